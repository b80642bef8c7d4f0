//! Segmented values: how a file lies, which may grow and have holes.
//!
//! Its record points to a *head*, 128 bytes of the arena that every process may change: size and
//! times stand there, so that writing costs no commit. Its bytes lie in *segments*, extents of
//! whole pages, each at a multiple of a page in the file; where there is none, there is a hole. A
//! segment has a row of `chunks`, as a chunk of an array has: the key is the file's OID and the
//! place in the file, the value a record of class `Chunk`. So what copies, moves, verifies and
//! deletes chunks does so with segments.

use crate::extent::{Extent, LINE};
use engram_base::error::Result;
use engram_base::fail;

/// What a head begins with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ENGRHEAD");
/// The bytes of a head.
pub const HEAD_BYTES: u64 = 128;
/// The word of a head whose file has not been written to since it was flushed.
pub const CLEAN: u64 = u64::MAX;
/// The most bytes that a file may have: what a signed offset can say.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64 & !(crate::extent::PAGE - 1);
/// The payload of a segmented record: where the head is, and how long the file was.
pub(crate) const PAYLOAD_BYTES: usize = 16;

/// The payload of a segmented record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmented {
    /// Where the head lies.
    pub head: Extent,
    /// The file's length when the record last changed; the head knows what it is now.
    pub nbytes: u64,
}

impl Segmented {
    /// Appends the payload that `parse` reads.
    pub(crate) fn encode_to(self, row: &mut Vec<u8>) {
        row.extend_from_slice(&self.head.offset.to_le_bytes());
        row.extend_from_slice(&self.nbytes.to_le_bytes());
    }

    /// Reads the payload of a record.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let Ok(bytes) = <[u8; PAYLOAD_BYTES]>::try_from(bytes) else {
            fail!(Corrupt, "a segmented record ends with {} bytes, not 16", bytes.len())
        };
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let (offset, nbytes) = (word(0), word(8));
        let fits = offset.checked_add(HEAD_BYTES).is_some_and(|end| i64::try_from(end).is_ok());
        if !offset.is_multiple_of(LINE) || !fits || nbytes > FILE_BYTES_MAX {
            fail!(Corrupt, "a file's head cannot be at {offset}, nor have {nbytes} bytes");
        }
        Ok(Segmented { head: Extent { offset, len: HEAD_BYTES }, nbytes })
    }
}

/// What a head says of size and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadFacts {
    /// How many bytes the file has.
    pub size: u64,
    /// When it was written, in ns since 1970, or what somebody has said of that.
    pub written: i64,
    /// When bytes or size last changed.
    pub changed: i64,
    /// When it was read, as far as anybody has said so.
    pub accessed: i64,
    /// How many bytes its segments take.
    pub space: u64,
}

impl HeadFacts {
    /// The bytes of a head that nobody uses yet.
    pub fn to_bytes(self) -> [u8; HEAD_BYTES as usize] {
        let mut bytes = [0; HEAD_BYTES as usize];
        let words = [
            MAGIC,
            self.size,
            self.written.cast_unsigned(),
            self.changed.cast_unsigned(),
            self.accessed.cast_unsigned(),
            0,
            0,
            CLEAN,
            0,
            self.space,
        ];
        for (at, word) in words.into_iter().enumerate() {
            bytes[at * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What the bytes of a head say; `CorruptError` if they are none.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let Some(head) = bytes.first_chunk::<{ HEAD_BYTES as usize }>() else {
            fail!(Corrupt, "a file's head has {} bytes, not {HEAD_BYTES}", bytes.len())
        };
        let word =
            |at: usize| u64::from_le_bytes(head[at * 8..][..8].try_into().expect("eight bytes"));
        if word(0) != MAGIC {
            fail!(Corrupt, "a file's head begins with {:#x}, as none does", word(0));
        }
        let (size, time) = (word(1), |at| word(at).cast_signed());
        if size > FILE_BYTES_MAX {
            fail!(Corrupt, "a file's head says {size} bytes");
        }
        let [written, changed, accessed] = [2, 3, 4].map(time);
        Ok(HeadFacts { size, written, changed, accessed, space: word(9) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{FILE_BYTES_MAX, HEAD_BYTES, HeadFacts, Segmented};
    use crate::extent::Extent;
    use engram_base::error::Kind;

    proptest! {
        #[test]
        fn a_payload_is_read_as_it_was_written(
            line in 0..(1u64 << 56), nbytes in 0..=FILE_BYTES_MAX,
        ) {
            let head = Extent { offset: line * 64, len: HEAD_BYTES };
            let segmented = Segmented { head, nbytes };
            let mut row = Vec::new();
            segmented.encode_to(&mut row);
            prop_assert_eq!(Segmented::parse(&row), Ok(segmented));
        }

        #[test]
        fn any_other_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            match Segmented::parse(&bytes) {
                Ok(read) => {
                    let mut row = Vec::new();
                    read.encode_to(&mut row);
                    prop_assert_eq!(row, bytes);
                }
                Err(error) => prop_assert_eq!(error.kind(), Kind::Corrupt),
            }
        }
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_nothing_else_is_one() {
        let (written, changed) = (-5, i64::MAX);
        let facts = HeadFacts { size: 1 << 40, written, changed, accessed: 0, space: 77 };
        let bytes = facts.to_bytes();
        assert_eq!(HeadFacts::parse(&bytes), Ok(facts));
        for at in 0..8 {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(HeadFacts::parse(&other).unwrap_err().kind(), Kind::Corrupt);
        }
        assert_eq!(
            HeadFacts::parse(&bytes[..HEAD_BYTES as usize - 1]).unwrap_err().kind(),
            Kind::Corrupt
        );
        let long = HeadFacts { size: 1 << 63, ..facts };
        assert_eq!(HeadFacts::parse(&long.to_bytes()).unwrap_err().kind(), Kind::Corrupt);
    }
}
