//! What a member's record keeps for the file system, byte by byte.
//!
//! The engine keeps it as it is (`engram_records::properties`): a version (1), the kind (1), the
//! mode (2), the group (4), the device of a special file or the list of a folder (8),
//! little-endian. A member without it was not made by a file system, and has the namespace's mode
//! and group.

use crate::errno::{Result, refuse};
use crate::stat::NodeKind;
use engram::Properties;

const VERSION: u8 = 1;
const BYTES: usize = 16;

/// What a file system keeps of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PosixProperties {
    /// What kind of node it is.
    pub kind: NodeKind,
    /// The permissions, with set-user-id, set-group-id and sticky bits.
    pub mode: u16,
    /// The group that it belongs to.
    pub gid: u32,
    /// The device, of a special file; of a folder, the list of what a stage is to bring there
    /// ([`crate::expected`]), or 0.
    pub rdev: u64,
}

impl PosixProperties {
    /// The bytes that `parse` reads.
    fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0] = VERSION;
        bytes[1] = self.kind as u8;
        bytes[2..4].copy_from_slice(&self.mode.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.gid.to_le_bytes());
        bytes[8..].copy_from_slice(&self.rdev.to_le_bytes());
        bytes
    }

    /// A record's section, with the times of its value.
    pub fn section(self, written: i64, accessed: i64) -> Vec<u8> {
        Properties { written, accessed, rest: &self.to_bytes() }.encode()
    }

    /// Reads what the engine has kept; `EIO` if it can be none.
    pub fn parse(rest: &[u8]) -> Result<Self> {
        let Ok(bytes) = <[u8; BYTES]>::try_from(rest) else {
            refuse!(EIO, "a record keeps {} bytes for the file system, not {BYTES}", rest.len())
        };
        let kind = NodeKind::from_byte(bytes[1]);
        let (VERSION, Some(kind)) = (bytes[0], kind) else {
            refuse!(EIO, "a record keeps a node of kind {} in version {}", bytes[1], bytes[0])
        };
        let mode = u16::from_le_bytes([bytes[2], bytes[3]]);
        if mode > 0o7777 {
            refuse!(EIO, "a record keeps the mode {mode:o}");
        }
        Ok(PosixProperties {
            kind,
            mode,
            gid: u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")),
            rdev: u64::from_le_bytes(bytes[8..].try_into().expect("eight bytes")),
        })
    }
}

/// What is kept of a copy of a member that was this user's: of another's, without the bits with
/// which a program runs as its owner or group; and no list of what a stage is to bring.
pub fn of_copy(kept: &[u8], is_another: bool) -> Vec<u8> {
    let parsed = Properties::parse(kept).ok().flatten();
    let posix = parsed.and_then(|parsed| PosixProperties::parse(parsed.rest).ok());
    let (Some(parsed), Some(posix)) = (parsed, posix) else { return kept.to_vec() };
    let mode = if is_another { without_suid(posix.mode) } else { posix.mode };
    let rdev = if posix.kind == NodeKind::Folder { 0 } else { posix.rdev };
    PosixProperties { mode, rdev, ..posix }.section(parsed.written, parsed.accessed)
}

/// A mode without set-user-id, and without set-group-id where that is not a mark for locks.
pub(crate) fn without_suid(mode: u16) -> u16 {
    let group_runs = mode & 0o010 != 0;
    mode & !(0o4000 | if group_runs { 0o2000 } else { 0 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{PosixProperties, without_suid};
    use crate::stat::NodeKind;

    proptest! {
        #[test]
        fn they_are_read_as_they_were_written(
            kind in 1u8..8,
            mode in 0..=0o7777u16,
            gid: u32,
            rdev: u64,
        ) {
            let kind = NodeKind::from_byte(kind).unwrap();
            let properties = PosixProperties { kind, mode, gid, rdev };
            prop_assert_eq!(PosixProperties::parse(&properties.to_bytes()), Ok(properties));
        }

        #[test]
        fn any_others_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            match PosixProperties::parse(&bytes) {
                Ok(read) => prop_assert_eq!(&read.to_bytes()[..], &bytes[..]),
                Err(error) => prop_assert_eq!(error.code, libc::EIO),
            }
        }
    }

    #[test]
    fn set_group_id_stays_where_the_group_may_not_run_a_file() {
        assert_eq!(without_suid(0o6755), 0o755);
        assert_eq!(without_suid(0o6745), 0o2745);
        assert_eq!(without_suid(0o1644), 0o1644);
    }
}
