//! The rows of `index_zones`: every segment's zones, column by column.
//!
//! Key: column (4, big-endian), then segment / [`SEGMENTS_PER_ROW`] (4, big-endian). Value: the
//! zones of these segments, ascending by segment and class. So a query reads one column's zones
//! from front to end, and a seal changes one row for each column. A row of 120 zones is 3,840
//! bytes: with its header it fills one page, where 128 would take two.
//!
//! The zones of the column [`OID`] are the directory: one for each segment that there is.

use crate::column_key::{ColumnKey, OID};
use crate::zone::{ZONE_BYTES, Zone, ZoneClass};
use engram_base::error::Result;
use engram_base::fail;
use engram_catalog::{ReadTxn, Table, WriteTxn};

/// How many segments' zones lie in one row.
pub(crate) const SEGMENTS_PER_ROW: u32 = 120;

/// The key of the row that has a segment's zones of a column.
fn row_key(column: ColumnKey, segment: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&column.to_be_bytes());
    key[4..].copy_from_slice(&(segment / SEGMENTS_PER_ROW).to_be_bytes());
    key
}

/// The zones of a row, checked to be whole.
fn whole(value: &[u8]) -> Result<&[[u8; ZONE_BYTES]]> {
    let (zones, rest) = value.as_chunks::<ZONE_BYTES>();
    if !rest.is_empty() {
        fail!(Corrupt, "a row of `index_zones` has {} bytes; zones have 32", value.len());
    }
    Ok(zones)
}

fn segment_of(zone: &[u8; ZONE_BYTES]) -> u32 {
    u32::from_le_bytes([zone[0], zone[1], zone[2], zone[3]])
}

/// The zones of a row about the same segment as the one at this place.
pub fn beside(row: &[[u8; ZONE_BYTES]], at: usize) -> std::ops::Range<usize> {
    let segment = segment_of(&row[at]);
    let same = |zone: &&[u8; ZONE_BYTES]| segment_of(zone) == segment;
    let before = row[..at].iter().rev().take_while(same).count();
    at - before..at + row[at..].iter().take_while(same).count()
}

/// Where a segment's zones lie among these.
fn place(zones: &[[u8; ZONE_BYTES]], segment: u32) -> std::ops::Range<usize> {
    let start = zones.partition_point(|zone| segment_of(zone) < segment);
    let count = zones[start..].iter().take_while(|zone| segment_of(zone) == segment).count();
    start..start + count
}

/// Sets a segment's zones, as they were built.
pub fn add(txn: &mut WriteTxn<'_>, segment: u32, zones: &[(ColumnKey, Vec<Zone>)]) -> Result<()> {
    for (column, zones) in zones {
        let zones = zones.iter().map(|zone| Zone { segment, ..*zone }.encode()).collect::<Vec<_>>();
        replace(txn, *column, segment, zones.as_flattened())?;
    }
    Ok(())
}

/// Takes a segment's zones away. Its columns are those of its head; the directory goes too.
pub fn remove(
    txn: &mut WriteTxn<'_>,
    segment: u32,
    columns: impl IntoIterator<Item = ColumnKey>,
) -> Result<()> {
    for column in columns.into_iter().chain([OID]) {
        replace(txn, column, segment, &[])?;
    }
    Ok(())
}

fn replace(txn: &mut WriteTxn<'_>, column: ColumnKey, segment: u32, zones: &[u8]) -> Result<()> {
    let key = row_key(column, segment);
    let mut value = match txn.get(Table::IndexZones, &key)? {
        Some(value) => value.to_vec(),
        None if zones.is_empty() => return Ok(()),
        None => Vec::new(),
    };
    let place = place(whole(&value)?, segment);
    value.splice(place.start * ZONE_BYTES..place.end * ZONE_BYTES, zones.iter().copied());
    if value.is_empty() {
        return txn.delete(Table::IndexZones, &key).map(|_| ());
    }
    txn.put(Table::IndexZones, &key, &value)
}

/// One segment's zones of one column: at most one for each class of cells.
#[derive(Clone, Copy, Debug)]
pub struct SegmentZones {
    zones: [Zone; CLASSES],
    len: usize,
}

const CLASSES: usize = 4;

impl SegmentZones {
    /// Reads zones from their bytes on media.
    pub fn decode(zones: &[[u8; ZONE_BYTES]]) -> Result<Self> {
        let (class, flags) = (ZoneClass::Other, 0);
        let none = Zone { segment: 0, sf: 0, class, flags, extra: 0, min: 1, max: 0 };
        let mut decoded = SegmentZones { zones: [none; CLASSES], len: zones.len() };
        if zones.len() > CLASSES {
            fail!(Corrupt, "a segment has {} zones of one column; at most 4", zones.len());
        }
        for (decoded, zone) in decoded.zones.iter_mut().zip(zones) {
            *decoded = Zone::decode(zone)?;
        }
        Ok(decoded)
    }
}

impl std::ops::Deref for SegmentZones {
    type Target = [Zone];

    fn deref(&self) -> &[Zone] {
        &self.zones[..self.len]
    }
}

/// One column's zones in all segments, read in place.
pub struct ColumnZones<'t> {
    /// Number of the row, and its zones.
    rows: Vec<(u32, &'t [[u8; ZONE_BYTES]])>,
}

impl<'t> ColumnZones<'t> {
    /// Finds the column's rows.
    pub fn read(txn: &'t ReadTxn<'_>, column: ColumnKey) -> Result<Self> {
        let mut rows = Vec::new();
        let mut cursor = txn.seek(Table::IndexZones, &column.to_be_bytes())?;
        while let Some((key, value)) = cursor.next()? {
            if !key.starts_with(&column.to_be_bytes()) {
                break;
            }
            let Ok(row) = <[u8; 4]>::try_from(&key[4..]) else {
                fail!(Corrupt, "a key of `index_zones` has {} bytes instead of 8", key.len());
            };
            rows.push((u32::from_be_bytes(row), whole(value)?));
        }
        Ok(ColumnZones { rows })
    }

    /// Every zone, ascending by segment and class.
    pub fn iter(&self) -> impl Iterator<Item = Result<Zone>> + '_ {
        self.rows.iter().flat_map(|(_, zones)| zones.iter()).map(Zone::decode)
    }

    /// Every zone as it lies on media, row by row.
    pub fn raw(&self) -> impl Iterator<Item = &'t [[u8; ZONE_BYTES]]> + '_ {
        self.rows.iter().map(|(_, zones)| *zones)
    }

    /// One segment's zones, for [`crate::zone::judge`]; none if it has no such column.
    pub fn of(&self, segment: u32) -> Result<SegmentZones> {
        let row = segment / SEGMENTS_PER_ROW;
        let found = self.rows.binary_search_by_key(&row, |(number, _)| *number);
        let zones = found.map_or(&[][..], |at| self.rows[at].1);
        SegmentZones::decode(&zones[place(zones, segment)])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use engram_catalog::{Catalog, Headroom, Options};

    fn zone(min: u64) -> Zone {
        let class = if min.is_multiple_of(2) { ZoneClass::Number } else { ZoneClass::Text };
        Zone { segment: 0, sf: 3, class, flags: 0, extra: 3, min, max: min }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

        #[test]
        #[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
        fn each_segment_has_the_zones_that_were_set_last(
            steps in prop::collection::vec((0_u32..400, 1_u32..4, 0_u64..3), 1..80),
        ) {
            let dir = tempfile::tempdir().unwrap();
            Catalog::create(dir.path(), &Options::default()).unwrap();
            let catalog = Catalog::open(dir.path(), &Options::default()).unwrap();
            let mut txn = catalog.write(Headroom::Normal).unwrap();
            let mut model = BTreeMap::new();
            for (segment, column, count) in steps {
                let zones: Vec<Zone> = (0..count).map(zone).collect();
                if zones.is_empty() {
                    remove(&mut txn, segment, [column]).unwrap();
                    model.remove(&(column, segment));
                } else {
                    add(&mut txn, segment, &[(column, zones.clone())]).unwrap();
                    model.insert((column, segment), zones);
                }
            }
            txn.commit().unwrap();
            let txn = catalog.read().unwrap();
            for column in 1..4 {
                let read = ColumnZones::read(&txn, column).unwrap();
                let mut all = Vec::new();
                for segment in 0..400 {
                    let set = model.get(&(column, segment)).cloned().unwrap_or_default();
                    let set: Vec<Zone> = set.iter().map(|z| Zone { segment, ..*z }).collect();
                    prop_assert_eq!(&*read.of(segment).unwrap(), &set[..]);
                    all.extend(set);
                }
                prop_assert_eq!(read.iter().collect::<Result<Vec<_>>>().unwrap(), all.clone());
                prop_assert_eq!(read.iter().next().is_none(), all.is_empty());
            }
        }
    }
}
