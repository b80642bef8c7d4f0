//! Identities: OIDs and GIDs, and how a name's row tells them apart.
//!
//! An id is the id prefix of the realm that made it (24 random bits), then a 40-bit counter. It is
//! never reused, and never routes a look-up: it says where an object was born, not where it lies.

use crate::error::Result;
use crate::fail;

/// A group's identity.
pub type Gid = u64;
/// An object's identity.
pub type Oid = u64;

/// The bits of an id that count.
pub const COUNTER_BITS: u32 = 40;
/// How many ids a lease takes at a time, so that gaps are normal.
pub const ID_BLOCK: u64 = 1024;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    /// A group.
    Group(Gid),
    /// An array or a blob.
    Object(Oid),
}

impl Member {
    /// The id, whichever kind it is.
    pub fn id(self) -> u64 {
        match self {
            Member::Group(id) | Member::Object(id) => id,
        }
    }

    /// The value of a row in `names`: a kind byte, then the id (little-endian).
    pub fn to_row(self) -> [u8; 9] {
        let mut row = [0; 9];
        row[0] = match self {
            Member::Group(_) => b'G',
            Member::Object(_) => b'O',
        };
        row[1..].copy_from_slice(&self.id().to_le_bytes());
        row
    }

    /// The member that a row in `names` stands for.
    pub fn from_row(row: &[u8]) -> Result<Self> {
        let id = match row.get(1..9).and_then(|b| <[u8; 8]>::try_from(b).ok()) {
            Some(bytes) if row.len() == 9 => u64::from_le_bytes(bytes),
            _ => fail!(Corrupt, "a row of `names` has {} bytes instead of 9", row.len()),
        };
        match row[0] {
            b'G' => Ok(Member::Group(id)),
            b'O' => Ok(Member::Object(id)),
            kind => fail!(Corrupt, "a row of `names` has the unknown kind {kind:#x}"),
        }
    }
}

/// The key of an id in `objects` and `groups`: big-endian, so that row order is the order of their
/// making.
pub fn id_key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// The id that a key of a table keyed by ids alone is.
pub fn id_of_key(key: &[u8]) -> Result<u64> {
    match <[u8; 8]>::try_from(key) {
        Ok(id) => Ok(u64::from_be_bytes(id)),
        Err(_) => fail!(Corrupt, "a key that is an id has {} bytes instead of 8", key.len()),
    }
}

/// The key of a row in `names`: the parent (big-endian), then the name, in a buffer on the stack.
pub struct NameKey {
    bytes: [u8; 8 + crate::name::NAME_BYTES_MAX],
    len: usize,
}

impl NameKey {
    /// The key of `name` in `parent`; an empty name is the first possible key of the group.
    pub fn new(parent: Gid, name: &str) -> Self {
        let mut bytes = [0; 8 + crate::name::NAME_BYTES_MAX];
        bytes[..8].copy_from_slice(&parent.to_be_bytes());
        bytes[8..8 + name.len()].copy_from_slice(name.as_bytes());
        NameKey { bytes, len: 8 + name.len() }
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Splits a key of `names` into parent and name.
pub fn split_name_key(key: &[u8]) -> Result<(Gid, &str)> {
    let Some((parent, name)) = key.split_first_chunk::<8>() else {
        fail!(Corrupt, "a key of `names` has only {} bytes", key.len())
    };
    match std::str::from_utf8(name) {
        Ok(name) => Ok((u64::from_be_bytes(*parent), name)),
        Err(_) => fail!(Corrupt, "a name in group {:#x} is not UTF-8", u64::from_be_bytes(*parent)),
    }
}
