//! Run hits: the rows of segments that runs have found, as bitmaps.
//!
//! Entries of a run come in the order of their cells, and so from all segments by turns. Where they
//! are few, each segment that has some gets a bitmap when the first comes. Where they are many, the
//! bitmaps of all segments lie side by side in one list of words, each from a word of its own on,
//! so that an entry costs one look at where its segment's is.

use super::zones::{DirectoryPlaces, SOME};
use engram_base::error::Result;
use engram_base::fail;
use engram_columns::runs::{RowSpan, RunPiece, RunTest};
use engram_columns::segment::Bitmap;

/// Entries are many if there is one for so many rows.
const ROWS_PER_ENTRY: u64 = 16;

/// What one thread has found in runs.
pub(crate) struct RunHits<'h> {
    places: &'h DirectoryPlaces<'h>,
    /// The verdicts so far, by place: only open segments are asked for.
    verdicts: &'h [u8],
    marks: HitMarks,
}

enum HitMarks {
    /// By place, which positions pass.
    Few(Vec<Option<Bitmap>>),
    /// All in one list, and by place which bits of it are the segment's.
    Many { spans: Vec<RowSpan>, words: Vec<u64> },
}

impl<'h> RunHits<'h> {
    /// Prepares for so many entries.
    pub(crate) fn new(places: &'h DirectoryPlaces<'h>, verdicts: &'h [u8], entries: u64) -> Self {
        let is_open = |place: usize| verdicts[place] == SOME;
        let open = (0..verdicts.len()).filter(|place| is_open(*place));
        let rows: u64 = open.map(|place| u64::from(places.rows(place))).sum();
        let marks = if entries < rows / ROWS_PER_ENTRY {
            HitMarks::Few(vec![None; verdicts.len()])
        } else {
            let mut end = 0;
            let span = |place: usize| {
                let rows = if is_open(place) { places.rows(place) as usize } else { 0 };
                let start = end;
                end += rows.next_multiple_of(64);
                RowSpan { start, rows }
            };
            let spans = (0..verdicts.len()).map(span).collect();
            HitMarks::Many { spans, words: vec![0; end / 64] }
        };
        RunHits { places, verdicts, marks }
    }

    /// Takes what passes of a piece.
    pub(crate) fn take(&mut self, piece: &RunPiece<'_, '_>, test: &RunTest<'_>) -> Result<()> {
        let RunHits { places, verdicts, marks } = self;
        let open = |segment: u32| places.of(segment).filter(|place| verdicts[*place] == SOME);
        let mut beyond = None;
        match marks {
            HitMarks::Few(rows) => piece.find(&open, test, &mut |place, position| {
                let len = places.rows(place) as usize;
                let marks = rows[place].get_or_insert_with(|| Bitmap::new(len));
                if !marks.take_in(usize::from(position)) {
                    beyond = Some(position);
                }
            })?,
            HitMarks::Many { spans, words } => {
                let span = |segment: u32| open(segment).map(|place| spans[place]);
                piece.find(&span, test, &mut |span, position| {
                    let at = span.start + usize::from(position);
                    if usize::from(position) < span.rows {
                        words[at / 64] |= 1 << (at % 64);
                    } else {
                        beyond = Some(position);
                    }
                })?;
            }
        }
        if let Some(position) = beyond {
            fail!(Corrupt, "a run names position {position} of a segment of fewer: run verify");
        }
        Ok(())
    }

    /// By place, which positions pass, where some do.
    pub(crate) fn into_rows(self) -> Vec<Option<Bitmap>> {
        match self.marks {
            HitMarks::Few(rows) => rows,
            HitMarks::Many { spans, words } => {
                let bitmap = |RowSpan { start, rows }: RowSpan| {
                    let own = &words[start / 64..(start + rows).div_ceil(64)];
                    let some = own.iter().any(|word| *word != 0);
                    some.then(|| Bitmap::from_words(own.to_vec(), rows))
                };
                spans.into_iter().map(bitmap).collect()
            }
        }
    }
}

/// What two threads have found, by place.
pub(crate) fn unite(
    mut all: Vec<Option<Bitmap>>,
    more: Vec<Option<Bitmap>>,
) -> Vec<Option<Bitmap>> {
    for (all, more) in all.iter_mut().zip(more) {
        match (all.as_mut(), more) {
            (Some(all), Some(more)) => all.or(&more),
            (None, more) => *all = more,
            (Some(_), None) => {}
        }
    }
    all
}
