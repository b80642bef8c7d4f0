//! Attributes: values of any dtype an array may have, kept exactly, inside their member's record.
//!
//! A record's attribute section is a run of entries: key id (u32), dimensions (u8), dtype length
//! (u16), data length (u32), then shape, dtype and data. Keys are interned in `keys` (key ↔ id),
//! append-only, so an id once read can be cached for ever.

use crate::dtype::DType;
use crate::error::Result;
use crate::fail;
use crate::object::{self, ATTRS_BYTES_MAX};

/// The id that an attribute key is interned as.
pub type KeyId = u32;

/// An attribute's value: C order, in its own byte order.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The items' type.
    pub dtype: DType,
    /// The shape; empty for a scalar.
    pub shape: Vec<u64>,
    /// The bytes.
    pub data: Vec<u8>,
}

impl Value {
    /// A scalar string.
    pub fn text(text: &str) -> Self {
        Value { dtype: DType::Text, shape: Vec::new(), data: text.as_bytes().to_vec() }
    }

    /// Checks that dtype, shape and data agree.
    pub fn check(&self) -> Result<()> {
        if self.shape.len() > object::NDIM_MAX {
            fail!(Argument, "an attribute has {} dimensions; at most 64 fit", self.shape.len());
        }
        if !self.dtype.is_text() {
            let expected = object::value_bytes(&self.dtype, &self.shape)?;
            if expected != self.data.len() as u64 {
                fail!(
                    Argument,
                    "an attribute of shape {:?} asks for {expected} bytes, {} were given",
                    self.shape,
                    self.data.len()
                );
            }
        }
        Ok(())
    }
}

const ENTRY_HEAD: usize = 4 + 1 + 2 + 4;

/// One entry of the section, borrowed.
pub(crate) struct Entry<'a> {
    /// The interned key.
    pub key: KeyId,
    /// The whole entry, head included.
    pub bytes: &'a [u8],
}

/// Walks the section, entry by entry.
pub(crate) fn entries(section: &[u8]) -> impl Iterator<Item = Result<Entry<'_>>> {
    let mut rest = section;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let len = entry_len(rest);
        let Some(len) = len.filter(|&len| len <= rest.len()) else {
            rest = &[];
            return Some(Err(crate::error::Error::new(
                crate::error::Kind::Corrupt,
                "a record's attributes are cut short",
            )));
        };
        let (bytes, after) = rest.split_at(len);
        rest = after;
        let key = KeyId::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        Some(Ok(Entry { key, bytes }))
    })
}

fn entry_len(rest: &[u8]) -> Option<usize> {
    if rest.len() < ENTRY_HEAD {
        return None;
    }
    let dtype = u16::from_le_bytes([rest[5], rest[6]]) as usize;
    let data = u32::from_le_bytes(rest[7..11].try_into().expect("four bytes")) as usize;
    Some(ENTRY_HEAD + rest[4] as usize * 8 + dtype + data)
}

impl Entry<'_> {
    /// The value.
    pub(crate) fn decode(&self) -> Result<Value> {
        let ndim = self.bytes[4] as usize;
        let (shape, rest) = self.bytes[ENTRY_HEAD..].split_at(ndim * 8);
        let dtype_len = u16::from_le_bytes([self.bytes[5], self.bytes[6]]) as usize;
        let (dtype, data) = rest.split_at(dtype_len);
        let (dtype, _) = DType::decode(dtype)?;
        let value = Value { dtype, shape: object::decode_shape(shape), data: data.to_vec() };
        match value.check() {
            Ok(()) => Ok(value),
            Err(error) => fail!(Corrupt, "{}", error.message()),
        }
    }
}

/// Appends an entry to a section under construction.
pub(crate) fn push(section: &mut Vec<u8>, key: KeyId, value: &Value) -> Result<()> {
    value.check()?;
    let mut dtype = Vec::with_capacity(16);
    value.dtype.encode(&mut dtype);
    let too_long = section.len() + value.data.len() + dtype.len() > ATTRS_BYTES_MAX;
    if dtype.len() > usize::from(u16::MAX) || too_long {
        fail!(
            Argument,
            "an attribute of {} bytes does not fit: attributes of one member take at most \
             64 MiB in all; store it as an array",
            value.data.len()
        );
    }
    section.extend_from_slice(&key.to_le_bytes());
    section.push(value.shape.len() as u8);
    section.extend_from_slice(&(dtype.len() as u16).to_le_bytes());
    section.extend_from_slice(&(value.data.len() as u32).to_le_bytes());
    section.extend_from_slice(&object::encode_shape(&value.shape));
    section.extend_from_slice(&dtype);
    section.extend_from_slice(&value.data);
    Ok(())
}

/// The section with these keys set or removed (`None`); the others keep their bytes.
pub(crate) fn merge(section: &[u8], changes: &[(KeyId, Option<&Value>)]) -> Result<Vec<u8>> {
    let mut merged = Vec::with_capacity(section.len() + 64);
    for entry in entries(section) {
        let entry = entry?;
        if !changes.iter().any(|(key, _)| *key == entry.key) {
            merged.extend_from_slice(entry.bytes);
        }
    }
    for (place, (key, value)) in changes.iter().enumerate() {
        // Of a key given twice, the last value counts.
        let last = changes[place + 1..].iter().all(|(later, _)| later != key);
        if let (Some(value), true) = (value, last) {
            push(&mut merged, *key, value)?;
        }
    }
    Ok(merged)
}
