//! Rows of segments on their way into another one: columns are put one behind the other, and no
//! record is read.

use super::bitmap::Bitmap;
use super::column::{Column, NO_CELL};
use super::gather::GatheredRows;
use super::head::{ColumnEntry, Segment};
use super::layout::SegmentLayout;
use crate::cell::Cell;
use crate::column_key::{CREATED, ColumnKey, NAME};
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
    rows: Vec<GivenCells>,
}

/// What each live row is given: where its name lies, and when it was made.
#[derive(Clone, Copy, Debug)]
struct GivenCells {
    name: (usize, usize),
    created: i64,
}

impl CopiedSegment {
    fn column(&self, entry: &ColumnEntry) -> Result<Column<'_>> {
        match self.parts.get(usize::from(entry.part).wrapping_sub(1)) {
            Some(part) => Column::parse(entry, part),
            None => fail!(Corrupt, "a segment has no part {}: run verify", entry.part),
        }
    }

    /// Calls for each cell of a column that every row has; the number of each row's.
    fn given(
        &self,
        segment: &Segment<'_>,
        key: ColumnKey,
        visit: impl FnMut(&Cell<'_>),
    ) -> Result<Vec<u64>> {
        match segment.column(key)?.filter(ColumnEntry::all_present) {
            Some(entry) => self.column(&entry)?.each_coded(visit),
            None => fail!(Corrupt, "a segment lacks what each object has: run verify"),
        }
    }
}

impl SealedRows {
    /// Adds a segment: its head, its other parts in order, and which of its positions are dead.
    pub fn add(&mut self, head: Vec<u8>, parts: Vec<Vec<u8>>, mut dead: Bitmap) -> Result<()> {
        dead.negate();
        let mut copied = CopiedSegment { head, parts, live: dead, rows: Vec::new() };
        let segment = Segment::parse(&copied.head)?;
        let mut spans = Vec::new();
        let names = copied.given(&segment, NAME, |cell| {
            let start = self.names.len();
            if let Cell::Text(name) = cell {
                self.names.push_str(name);
            }
            spans.push((start, self.names.len()));
        })?;
        let mut times = Vec::new();
        let created = copied.given(&segment, CREATED, |cell| {
            times.push(if let Cell::Time(time) = cell { *time } else { 0 });
        })?;
        let code = |codes: &[u64], at: usize| codes.get(at).map_or(usize::MAX, |at| *at as usize);
        let given = |at: usize| GivenCells {
            name: spans.get(code(&names, at)).copied().unwrap_or_default(),
            created: times.get(code(&created, at)).copied().unwrap_or_default(),
        };
        let found = copied.live.iter().map(given).collect();
        copied.rows = found;
        self.segments.push(copied);
        Ok(())
    }

    /// How many rows there are.
    #[expect(clippy::len_without_is_empty, reason = "a segment has rows")]
    pub fn len(&self) -> usize {
        self.segments.iter().map(|copied| copied.rows.len()).sum()
    }

    /// The rows, for a segment laid out so. `None` where segments do not say all, because cells lie
    /// in runs, or the objects of one are between those of another.
    pub fn gather(&self, layout: SegmentLayout) -> Result<Option<GatheredRows<'_>>> {
        let mut segments = Vec::with_capacity(self.segments.len());
        for copied in &self.segments {
            let segment = Segment::parse(&copied.head)?;
            let mut oids = Vec::new();
            segment.oids_at(&copied.live, &mut oids);
            if !oids.is_empty() {
                segments.push((oids, segment, copied));
            }
        }
        segments.sort_unstable_by_key(|(oids, ..)| oids.first().copied());
        let all = segments.iter().flat_map(|(oids, ..)| oids);
        if !all.clone().is_sorted_by(|a, b| a < b) {
            return Ok(None);
        }
        let mut gathered = GatheredRows::new(layout, all.count());
        for (oids, segment, copied) in segments {
            let from = gathered.len();
            for (oid, GivenCells { name: (start, end), created }) in oids.iter().zip(&copied.rows) {
                gathered.row(*oid, &self.names[*start..*end], *created);
            }
            let mut touched = Vec::new();
            for entry in segment.columns() {
                let entry = entry?;
                if [NAME, CREATED].contains(&entry.key) {
                    continue;
                }
                let column = copied.column(&entry)?;
                if column.in_runs() {
                    return Ok(None);
                }
                let place = gathered.place(entry.key);
                touched.push(place);
                if entry.constant()
                    && entry.all_present()
                    && let Some(Some(cell)) = column.cell(0)?
                {
                    gathered.note_kind(place, entry.kind());
                    gathered.extend(place, from, vec![cell], std::iter::once(0));
                    continue;
                }
                let (cells, codes) = column.take_apart()?;
                if !cells.is_empty() {
                    gathered.note_kind(place, entry.kind());
                }
                let code = |at: usize| codes.get(at).copied().unwrap_or(NO_CELL);
                gathered.extend(place, from, cells, copied.live.iter().map(code));
            }
            gathered.clear_others(from, touched);
        }
        Ok(Some(gathered))
    }
}
