//! Rows of segments on their way into another one: columns are put one behind the other, and no
//! record is read.

use super::bitmap::Bitmap;
use super::column::Column;
use super::gather::GatheredRows;
use super::head::{ColumnEntry, Segment};
use super::layout::SegmentLayout;
use crate::cell::Cell;
use crate::column_key::NAME;
use engram_base::error::Result;
use engram_base::fail;

/// The live rows of some segments, copied out of the catalog.
#[derive(Debug, Default)]
pub struct SealedRows {
    segments: Vec<CopiedSegment>,
    /// Distinct names of each segment, one behind the other.
    names: String,
}

#[derive(Debug)]
struct CopiedSegment {
    head: Vec<u8>,
    parts: Vec<Vec<u8>>,
    live: Bitmap,
    /// For each live row, where its name lies.
    names: Vec<(usize, usize)>,
}

impl CopiedSegment {
    fn column(&self, entry: &ColumnEntry) -> Result<Column<'_>> {
        match self.parts.get(usize::from(entry.part).wrapping_sub(1)) {
            Some(part) => Column::parse(entry, part),
            None => fail!(Corrupt, "a segment has no part {}: run verify", entry.part),
        }
    }
}

impl SealedRows {
    /// Adds a segment: its head, its other parts in order, and which of its positions are dead.
    pub fn add(&mut self, head: Vec<u8>, parts: Vec<Vec<u8>>, mut dead: Bitmap) -> Result<()> {
        dead.negate();
        let mut copied = CopiedSegment { head, parts, live: dead, names: Vec::new() };
        let segment = Segment::parse(&copied.head)?;
        let Some(entry) = segment.column(NAME)?.filter(ColumnEntry::all_present) else {
            fail!(Corrupt, "a segment does not say the names of its objects: run verify");
        };
        let mut spans = Vec::new();
        let names = copied.column(&entry)?.each_coded(|cell| {
            let start = self.names.len();
            if let Cell::Text(name) = cell {
                self.names.push_str(name);
            }
            spans.push((start, self.names.len()));
        })?;
        let span = |at: usize| spans.get(*names.get(at)? as usize).copied();
        let found = copied.live.iter().map(|at| span(at).unwrap_or_default()).collect();
        copied.names = found;
        self.segments.push(copied);
        Ok(())
    }

    /// How many rows there are.
    #[expect(clippy::len_without_is_empty, reason = "a segment has rows")]
    pub fn len(&self) -> usize {
        self.segments.iter().map(|copied| copied.names.len()).sum()
    }

    /// The rows, for a segment laid out so. `None` where segments do not say all, because cells lie
    /// in runs, or the objects of one are between those of another.
    pub fn gather(&self, layout: SegmentLayout) -> Result<Option<GatheredRows<'_>>> {
        let mut segments = Vec::with_capacity(self.segments.len());
        for copied in &self.segments {
            let segment = Segment::parse(&copied.head)?;
            let mut oids = Vec::new();
            segment.oids_at(&copied.live, &mut oids);
            segments.push((oids, segment, copied));
        }
        segments.sort_unstable_by_key(|(oids, ..)| oids.first().copied());
        let all = segments.iter().flat_map(|(oids, ..)| oids);
        if !all.clone().is_sorted_by(|a, b| a < b) {
            return Ok(None);
        }
        let mut gathered = GatheredRows::new(layout, all.count());
        for (oids, segment, copied) in segments {
            let from = gathered.len();
            for (oid, (start, end)) in oids.iter().zip(&copied.names) {
                gathered.row(*oid, &self.names[*start..*end]);
            }
            let mut touched = Vec::new();
            for entry in segment.columns() {
                let entry = entry?;
                if entry.key == NAME {
                    continue;
                }
                let Some((cells, codes)) = copied.column(&entry)?.take_apart()? else {
                    return Ok(None);
                };
                let place = gathered.place(entry.key);
                touched.push(place);
                gathered.extend(place, from, cells, copied.live.iter().map(|at| codes[at]));
            }
            gathered.clear_others(from, touched);
        }
        Ok(Some(gathered))
    }
}
