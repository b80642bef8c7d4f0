//! Sealed segments, as a search meets them: which there are, and the parts of one.

use std::sync::{Arc, Mutex};

use super::sieves::Sieves;
use super::tail::TailCache;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Oid;
use engram_base::mutex::lock;
use engram_catalog::{ReadTxn, Table};
use engram_columns::column_key::OID;
use engram_columns::segment::bitmap::Bitmap;
use engram_columns::segment::{Column, ColumnEntry, Marks, Segment};
use engram_columns::zone::Zone;
use engram_columns::zones::ColumnZones;
use engram_index::directory::SegmentEntry;
use engram_index::directory::part_key;

/// The directory of one snapshot: every segment, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct Directory {
    snapshot: u64,
    entries: Vec<SegmentEntry>,
}

impl std::ops::Deref for Directory {
    type Target = [SegmentEntry];

    fn deref(&self) -> &[SegmentEntry] {
        &self.entries
    }
}

/// Where a process keeps the last directory, which serves its own snapshot alone, what it knows of
/// the last tail, and sieves, which serve all.
#[derive(Debug, Default)]
pub struct DirectoryCache {
    last: Mutex<Option<Arc<Directory>>>,
    pub(crate) tail: TailCache,
    /// What columns of segments hold that were opened in vain.
    pub(crate) sieves: Sieves,
}

impl DirectoryCache {
    /// The directory of this snapshot.
    pub(crate) fn of(&self, txn: &ReadTxn<'_>) -> Result<Arc<Directory>> {
        let known = lock(&self.last).as_ref().filter(|known| known.snapshot == txn.id()).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let zones = ColumnZones::read(txn, OID)?;
        let mut entries = Vec::new();
        for zone in zones.iter() {
            let Zone { segment, extra, sf, min, max, .. } = zone?;
            entries.push(SegmentEntry { segment, family: extra, rows: sf, min, max });
        }
        let directory = Arc::new(Directory { snapshot: txn.id(), entries });
        *lock(&self.last) = Some(Arc::clone(&directory));
        Ok(directory)
    }
}

/// A segment's part, which is there.
pub(crate) fn part<'t>(txn: &'t ReadTxn<'_>, segment: u32, part: u16) -> Result<&'t [u8]> {
    match txn.get(Table::IndexSegments, &part_key(segment, part))? {
        Some(bytes) => Ok(bytes),
        None => fail!(Corrupt, "segment {segment} has no part {part}: run verify, then reindex"),
    }
}

/// Where the parts of a segment that are not at hand come from.
#[derive(Clone, Copy)]
pub(crate) struct PartSource<'t>(pub &'t ReadTxn<'t>);

/// One segment under search.
pub(crate) struct SearchedSegment<'t> {
    /// The segment, as the directory knows it.
    pub entry: SegmentEntry,
    /// Its place in the directory.
    pub place: usize,
    /// Its head.
    pub segment: Segment<'t>,
    /// The parts at hand.
    parts: Vec<(u16, &'t [u8])>,
    /// Leaves that were answered before, by their numbers.
    pub answered: Vec<(usize, Marks)>,
    /// Positions that are not to be found here.
    pub hidden: Option<Bitmap>,
    /// Bytes of the parts read.
    pub bytes: u64,
}

impl<'t> SearchedSegment<'t> {
    /// Opens a segment.
    pub(crate) fn open(txn: &'t ReadTxn<'t>, entry: SegmentEntry, place: usize) -> Result<Self> {
        let segment = Segment::parse(part(txn, entry.segment, 0)?)?;
        if segment.len() != entry.rows as usize {
            fail!(
                Corrupt,
                "segment {} has {} rows, and {} in the directory: run verify",
                entry.segment,
                segment.len(),
                entry.rows
            );
        }
        let (parts, answered) = (Vec::new(), Vec::new());
        Ok(SearchedSegment { entry, place, segment, parts, answered, hidden: None, bytes: 0 })
    }

    /// Brings a column's part to hand.
    pub(crate) fn fetch(&mut self, source: PartSource<'t>, column: &ColumnEntry) -> Result<()> {
        if !self.parts.iter().any(|(number, _)| *number == column.part) {
            let bytes = part(source.0, self.entry.segment, column.part)?;
            self.bytes += bytes.len() as u64;
            self.parts.push((column.part, bytes));
        }
        Ok(())
    }

    /// How many parts are at hand.
    pub(crate) fn parts(&self) -> u32 {
        self.parts.len() as u32
    }

    /// A column whose part is at hand.
    pub(crate) fn column(&self, entry: ColumnEntry) -> Result<Column<'t>> {
        match self.parts.iter().find(|(number, _)| *number == entry.part) {
            Some((_, bytes)) => Column::parse(&entry, bytes),
            None => fail!(Corrupt, "part {} of a segment was not read", entry.part),
        }
    }

    /// Hides what is dead, and what was looked at elsewhere.
    pub(crate) fn hide(&mut self, dead: Option<&[u8]>, excluded: &[Oid]) -> Result<()> {
        let rows = self.segment.len();
        let mut hidden = dead.map(|bytes| Bitmap::from_bytes(bytes, rows)).transpose()?;
        let within = within(excluded, self.entry);
        for at in within.iter().filter_map(|oid| self.segment.position(*oid)) {
            hidden.get_or_insert_with(|| Bitmap::new(rows)).insert(at);
        }
        self.hidden = hidden;
        Ok(())
    }
}

/// Returns the part of some ascending OIDs that the segment could have.
pub(crate) fn within(oids: &[Oid], entry: SegmentEntry) -> &[Oid] {
    let from = oids.partition_point(|oid| *oid < entry.min);
    let to = oids.partition_point(|oid| *oid <= entry.max);
    &oids[from..to]
}
