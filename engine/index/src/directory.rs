//! The directory: which segments there are, where an object is sealed, and which positions are
//! dead.
//!
//! The zones of the column `OID` list every segment with its least and greatest OID and its family.
//! A position is *dead* when its object was deleted, or has changed and is in the tail again (or in
//! a newer segment). Dead positions are bits of one row of `index_dead` for each segment that has
//! any. An object has one live position at most.

use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Oid;
use engram_catalog::Txn;
use engram_catalog::{Table, WriteTxn};
use engram_columns::column_key::OID;
use engram_columns::segment::Segment;
use engram_columns::segment::bitmap::Bitmap;
use engram_columns::zone::{ZONE_BYTES, Zone};

/// A segment, as the directory knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// The segment's number.
    pub segment: u32,
    /// The family whose objects it holds.
    pub family: u32,
    /// How many positions it has, dead ones included.
    pub rows: u32,
    /// The least OID in it.
    pub min: Oid,
    /// The greatest OID in it: OIDs between the two may lie in other segments too.
    pub max: Oid,
}

/// A position of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentPosition {
    pub segment: u32,
    pub position: usize,
    /// How many positions the segment has.
    pub rows: usize,
}

/// The key of a part of a segment: 0 is its head.
pub fn part_key(segment: u32, part: u16) -> [u8; 6] {
    let mut key = [0; 6];
    key[..4].copy_from_slice(&segment.to_be_bytes());
    key[4..].copy_from_slice(&part.to_be_bytes());
    key
}

/// Calls `each` with every segment, in ascending order, until it says `false`.
fn walk(txn: &Txn<'_>, mut each: impl FnMut(SegmentEntry) -> Result<bool>) -> Result<()> {
    let mut cursor = txn.seek(Table::IndexZones, &OID.to_be_bytes())?;
    while let Some((key, value)) = cursor.next()? {
        if !key.starts_with(&OID.to_be_bytes()) {
            break;
        }
        let (zones, rest) = value.as_chunks::<ZONE_BYTES>();
        if !rest.is_empty() {
            fail!(Corrupt, "a row of `index_zones` has {} bytes; zones have 32", value.len());
        }
        for zone in zones {
            let Zone { segment, sf, extra, min, max, .. } = Zone::decode(zone)?;
            if !each(SegmentEntry { segment, family: extra, rows: sf, min, max })? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Every segment, in the order of their numbers.
pub fn all(txn: &Txn<'_>) -> Result<Vec<SegmentEntry>> {
    let mut entries = Vec::new();
    walk(txn, |entry| {
        entries.push(entry);
        Ok(true)
    })?;
    Ok(entries)
}

/// A segment's head.
pub fn head<'t>(txn: &'t Txn<'_>, segment: u32) -> Result<Segment<'t>> {
    match txn.get(Table::IndexSegments, &part_key(segment, 0))? {
        Some(head) => Segment::parse(head),
        None => fail!(Corrupt, "segment {segment} is in the directory, but has no head"),
    }
}

/// Copies of a segment's parts: its head, and the others in order.
pub(crate) fn parts(txn: &Txn<'_>, segment: u32) -> Result<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    let mut cursor = txn.seek(Table::IndexSegments, &part_key(segment, 0))?;
    while let Some((key, part)) = cursor.next()?
        && key.starts_with(&segment.to_be_bytes())
    {
        if key != part_key(segment, parts.len() as u16) {
            fail!(Corrupt, "segment {segment} has parts missing: run verify, then reindex");
        }
        parts.push(part.to_vec());
    }
    if parts.is_empty() {
        fail!(Corrupt, "segment {segment} is in the directory, but has no head");
    }
    Ok(parts)
}

/// Which positions of a segment are dead.
pub fn dead(txn: &Txn<'_>, segment: u32, rows: usize) -> Result<Bitmap> {
    match txn.get(Table::IndexDead, &segment.to_be_bytes())? {
        Some(bytes) => Bitmap::from_bytes(bytes, rows),
        None => Ok(Bitmap::new(rows)),
    }
}

fn is_dead(txn: &Txn<'_>, segment: u32, position: usize) -> Result<bool> {
    let row = txn.get(Table::IndexDead, &segment.to_be_bytes())?;
    let byte = row.and_then(|bytes| bytes.get(position / 8));
    Ok(byte.is_some_and(|byte| byte >> (position % 8) & 1 != 0))
}

/// Where objects are sealed and alive, asked within one transaction that neither makes segments nor
/// drops any. From the second object on the directory is remembered, in the order of OIDs, so that
/// the few segments whose range has an OID are found without a walk.
#[derive(Debug, Default)]
pub struct Finder {
    asked: bool,
    /// By their least OIDs, each with the greatest OID of it and all before it.
    entries: Vec<(SegmentEntry, Oid)>,
}

impl Finder {
    /// Where an object is sealed and alive.
    pub(crate) fn find(&mut self, txn: &Txn<'_>, oid: Oid) -> Result<Option<SegmentPosition>> {
        if !std::mem::replace(&mut self.asked, true) {
            let mut found = None;
            walk(txn, |entry| {
                found = place_in(txn, &entry, oid)?;
                Ok(found.is_none())
            })?;
            return Ok(found);
        }
        if self.entries.is_empty() {
            self.remember(txn)?;
        }
        let end = self.entries.partition_point(|(entry, _)| entry.min <= oid);
        for (entry, greatest) in self.entries[..end].iter().rev() {
            if *greatest < oid {
                break;
            }
            if let Some(place) = place_in(txn, entry, oid)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    fn remember(&mut self, txn: &Txn<'_>) -> Result<()> {
        let mut all = all(txn)?;
        all.sort_unstable_by_key(|entry| (entry.min, entry.segment));
        let mut greatest = 0;
        self.entries.extend(all.into_iter().map(|entry| {
            greatest = entry.max.max(greatest);
            (entry, greatest)
        }));
        Ok(())
    }
}

/// Where an object lives in a segment, if it does.
fn place_in(txn: &Txn<'_>, entry: &SegmentEntry, oid: Oid) -> Result<Option<SegmentPosition>> {
    if !(entry.min..=entry.max).contains(&oid) {
        return Ok(None);
    }
    let head = head(txn, entry.segment)?;
    match head.position(oid) {
        Some(position) if !is_dead(txn, entry.segment, position)? => {
            Ok(Some(SegmentPosition { segment: entry.segment, position, rows: head.len() }))
        }
        _ => Ok(None),
    }
}

/// Marks a position dead.
pub(crate) fn mark_dead(txn: &mut WriteTxn<'_>, place: SegmentPosition) -> Result<()> {
    let mut bitmap = dead(txn, place.segment, place.rows)?;
    bitmap.insert(place.position);
    txn.put(Table::IndexDead, &place.segment.to_be_bytes(), &bitmap.to_bytes())
}

/// Marks positions of a segment dead.
pub(crate) fn mark_all_dead(
    txn: &mut WriteTxn<'_>,
    segment: u32,
    positions: &[usize],
) -> Result<()> {
    let rows = head(txn, segment)?.len();
    let mut bitmap = dead(txn, segment, rows)?;
    for position in positions {
        bitmap.insert(*position);
    }
    txn.put(Table::IndexDead, &segment.to_be_bytes(), &bitmap.to_bytes())
}

/// The live positions of a segment, with their OIDs, ascending.
pub(crate) fn live(txn: &Txn<'_>, segment: u32) -> Result<Vec<(usize, Oid)>> {
    let head = head(txn, segment)?;
    let dead = dead(txn, segment, head.len())?;
    Ok(head.oids().into_iter().enumerate().filter(|(at, _)| !dead.contains(*at)).collect())
}
