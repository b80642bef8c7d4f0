//! Records of version 2, which pools of format 5 have: `engram upgrade` reads them, and salvage.
//! Pools of format 6 have records of today's version.
//!
//! They differ in the head alone, which has 40 bytes: the time of the last change stands in its
//! last eight, in ns since 1970, and nothing is between it and the shape.

use std::borrow::Cow;

use super::{Record, u32_at, u64_at};
use engram_base::checksum;
use engram_base::error::Result;
use engram_base::fail;

const VERSION: u8 = 2;
const HEAD_BYTES: usize = 40;

/// Reads a row; as for one of today, every length is checked against it, and its checksum.
///
/// `Record::encode` makes the row that today's engine has for it.
pub fn parse(row: &[u8]) -> Result<Record<'_>> {
    if row.len() < HEAD_BYTES {
        fail!(Corrupt, "a record has {} bytes; its head alone takes {HEAD_BYTES}", row.len());
    }
    if row[0] != VERSION {
        fail!(Corrupt, "a record has version {}; pools of format 5 have {VERSION}", row[0]);
    }
    let carried = u32_at(row, checksum::AT_IN_ROW);
    if carried != 0 && carried != checksum::of_row(row) {
        fail!(Corrupt, "a record is damaged: its checksum is not that of its bytes");
    }
    let times = [u64_at(row, 24) as i64, u64_at(row, 32) as i64];
    Record::parse_sections(row, carried, times, &row[HEAD_BYTES..])
}

/// Reads a row of this version, or of today's, as pools of format 6 have it.
pub fn parse_any(row: &[u8]) -> Result<Record<'_>> {
    if row.first() == Some(&VERSION) { parse(row) } else { Record::parse(row) }
}

/// The row that today's engine has for one of version 2; any other row is as it was.
pub fn as_of_today(row: &[u8]) -> Result<Cow<'_, [u8]>> {
    if row.first() != Some(&VERSION) {
        return Ok(Cow::Borrowed(row));
    }
    parse(row).map(|record| Cow::Owned(record.encode()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::{HEAD_BYTES, VERSION, as_of_today, parse};
    use crate::object::{HEAD_BYTES as NEW_HEAD_BYTES, Record};
    use engram_base::checksum;
    use engram_base::varint;

    /// The row that an engine of format 5 wrote for a record.
    pub(in crate::object) fn encode(record: &Record<'_>) -> Vec<u8> {
        let new = record.encode();
        let (mut row, mut rest) = (new[..NEW_HEAD_BYTES].to_vec(), &new[NEW_HEAD_BYTES..]);
        varint::take_signed(&mut rest).unwrap();
        row[0] = VERSION;
        row.extend(record.modified.to_le_bytes());
        assert_eq!(row.len(), HEAD_BYTES);
        row.extend(rest);
        if record.checked {
            row[checksum::AT_IN_ROW..][..4].fill(0);
            let carried = checksum::of_row(&row).to_le_bytes();
            row[checksum::AT_IN_ROW..][..4].copy_from_slice(&carried);
        }
        row
    }

    #[test]
    fn a_row_that_format_5_wrote_is_read() {
        // A group "a" of parent 1, made at 2 and changed at 3, of user 4, with the generation 5.
        let mut row = vec![2, 0, 0, 0x80, 0, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0];
        for word in [1u64, 2, 3] {
            row.extend(word.to_le_bytes());
        }
        row.extend([0, 1, b'a', 0, 0, 0, 0]);
        let record = parse(&row).unwrap();
        assert!(record.flags.read_only && !record.checked);
        assert_eq!((record.parent, record.created, record.modified), (1, 2, 3));
        assert_eq!((record.owner, record.generation, record.name), (4, 5, "a"));
        assert_eq!(encode(&record), row);
        assert_eq!(Record::parse(&record.encode()), Ok(record));
        assert!(Record::parse(&row).is_err() && parse(&record.encode()).is_err());
        for row in [&row, &record.encode()] {
            assert_eq!(*as_of_today(row).unwrap(), record.encode());
        }
        assert!(as_of_today(&row[..9]).is_err() && as_of_today(&[]).unwrap().is_empty());
        assert!((0..row.len()).all(|cut| parse(&row[..cut]).is_err()), "one that is cut short");
    }
}
