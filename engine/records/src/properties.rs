//! Properties: what a file system keeps beside a member.
//!
//! A section of the record, absent where no file system has had to do with the member. The engine
//! knows the two times in it, which its own writes change; the rest is the file system's, and is
//! kept as it is.

use engram_base::error::Result;
use engram_base::fail;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 17;
/// The most bytes that a file system may keep.
pub const REST_BYTES_MAX: usize = super::object::PROPERTIES_BYTES_MAX - HEAD_BYTES;

/// The properties of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties<'a> {
    /// When its value was written, in ns since 1970. A file that has a head has this there.
    pub written: i64,
    /// When its value was read, as far as anybody has said so; likewise.
    pub accessed: i64,
    /// What the file system keeps; opaque here.
    pub rest: &'a [u8],
}

impl<'a> Properties<'a> {
    /// The section of a record.
    ///
    /// # Panics
    ///
    /// If the file system keeps more than [`REST_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.rest.len() <= REST_BYTES_MAX, "{} bytes of properties", self.rest.len());
        let mut section = Vec::with_capacity(HEAD_BYTES + self.rest.len());
        section.push(VERSION);
        section.extend_from_slice(&self.written.to_le_bytes());
        section.extend_from_slice(&self.accessed.to_le_bytes());
        section.extend_from_slice(self.rest);
        section
    }

    /// Reads the section of a record; `None` where it has none.
    pub fn parse(section: &'a [u8]) -> Result<Option<Self>> {
        let Some((version, bytes)) = section.split_first() else { return Ok(None) };
        if *version != VERSION {
            fail!(
                Format,
                "a record has properties of version {version}, of a newer engine: upgrade engram"
            );
        }
        let Some((times, rest)) = bytes.split_first_chunk::<16>() else {
            fail!(Corrupt, "a record's properties have {} bytes", section.len())
        };
        let time = |at: usize| i64::from_le_bytes(times[at..at + 8].try_into().expect("8 bytes"));
        Ok(Some(Properties { written: time(0), accessed: time(8), rest }))
    }
}

/// The section of a member whose value is written at this time; one that has none has none then.
pub fn written_at(section: &[u8], now: i64) -> Result<Vec<u8>> {
    let properties = Properties::parse(section)?;
    Ok(properties.map_or_else(Vec::new, |was| Properties { written: now, ..was }.encode()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Properties, REST_BYTES_MAX, written_at};
    use engram_base::error::Kind;

    proptest! {
        #[test]
        fn a_section_is_read_as_it_was_written(
            written: i64, accessed: i64, now: i64,
            rest in prop::collection::vec(any::<u8>(), 0..=REST_BYTES_MAX),
        ) {
            let properties = Properties { written, accessed, rest: &rest };
            let section = properties.encode();
            prop_assert_eq!(Properties::parse(&section), Ok(Some(properties)));
            let later = written_at(&section, now).unwrap();
            let expected = Properties { written: now, ..properties };
            prop_assert_eq!(Properties::parse(&later), Ok(Some(expected)));
        }

        #[test]
        fn any_other_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            match Properties::parse(&bytes) {
                Ok(Some(read)) => prop_assert_eq!(read.encode(), bytes),
                Ok(None) => prop_assert!(bytes.is_empty()),
                Err(error) => {
                    prop_assert!(matches!(error.kind(), Kind::Corrupt | Kind::Format));
                }
            }
        }
    }
}
