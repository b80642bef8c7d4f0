//! Vacant extents: bytes of an arena whose blocks were given back to the filesystem.
//!
//! A row (0, 0, offset) of `extents_pending` says that nothing may be put there before the span's
//! file has blocks there again. The row is written before the blocks go, and removed after they
//! have come back. So a vacant page may have its blocks; a free page always has them. A vacant
//! extent lies within one span, and begins and ends at a page.

use super::allocator::{checked, insert_free, largest_free, parse_len, take_free};
use super::arena::Span;
use super::reclaim::{VACANT, pending_key};
use engram_base::error::Result;
use engram_base::fail;
use engram_catalog::{ReadTxn, Table, WriteTxn};
use engram_records::extent::{Extent, PAGE, round_up};

/// Every vacant extent, by offset.
pub fn vacant_rows(txn: &ReadTxn<'_>) -> Result<Vec<Extent>> {
    let mut found = Vec::new();
    let mut cursor = txn.seek(Table::ExtentsPending, &pending_key(VACANT, 0, 0))?;
    while let Some((key, value)) = cursor.next()? {
        let Some(extent) = parse(key, value)? else { break };
        found.push(extent);
    }
    Ok(found)
}

/// The extent of a row, if it is one of a vacant extent.
fn parse(key: &[u8], value: &[u8]) -> Result<Option<Extent>> {
    let Some((&[VACANT, ..], offset)) = key.split_last_chunk::<8>().filter(|_| key.len() == 17)
    else {
        return Ok(None);
    };
    let extent = checked(u64::from_be_bytes(*offset), parse_len(value)?)?;
    if !extent.offset.is_multiple_of(PAGE) || !extent.len.is_multiple_of(PAGE) {
        fail!(Corrupt, "{extent:?} is vacant, but not of whole pages");
    }
    Ok(Some(extent))
}

/// Puts the row of a vacant extent, which is nobody's and not free.
pub fn vacant_row(txn: &mut WriteTxn<'_>, extent: Extent) -> Result<()> {
    let key = pending_key(VACANT, 0, extent.offset);
    txn.put(Table::ExtentsPending, &key, &extent.len.to_le_bytes())
}

/// Takes whole free pages on these spans, the largest extents first and at most `most` of them, and
/// calls them vacant. What it took.
pub fn vacate(txn: &mut WriteTxn<'_>, spans: &[Span], most: usize) -> Result<Vec<Extent>> {
    let mut taken = Vec::new();
    for free in largest_free(txn, most)? {
        for span in spans {
            let from = round_up(free.offset.max(span.range.offset), PAGE);
            let to = free.end().min(span.range.end()) / PAGE * PAGE;
            if from < to {
                let pages = Extent { offset: from, len: to - from };
                take_free(txn, pages)?;
                vacant_row(txn, pages)?;
                taken.push(pages);
            }
        }
    }
    Ok(taken)
}

/// Calls free what has blocks again: a part of a vacant extent, or all of it.
pub fn occupy(txn: &mut WriteTxn<'_>, vacant: Extent, part: Extent) -> Result<()> {
    if !txn.delete(Table::ExtentsPending, &pending_key(VACANT, 0, vacant.offset))? {
        fail!(Corrupt, "{vacant:?} was to get blocks again, and is not vacant: run verify");
    }
    if part.offset > vacant.offset {
        vacant_row(txn, Extent { offset: vacant.offset, len: part.offset - vacant.offset })?;
    }
    if part.end() < vacant.end() {
        vacant_row(txn, Extent { offset: part.end(), len: vacant.end() - part.end() })?;
    }
    insert_free(txn, part)
}

/// The vacant parts that need blocks so that `len` bytes lie free in one piece, as few as can be:
/// each with the extent that it is a part of. Empty where no run of free and vacant pages is long
/// enough. `within` are the ranges to stay in, or anywhere.
pub fn vacant_parts(
    free: &[Extent],
    vacant: &[Extent],
    len: u64,
    within: Option<&[Extent]>,
) -> Vec<VacantPart> {
    let mut all: Vec<(Extent, bool)> = free.iter().map(|free| (*free, false)).collect();
    all.extend(vacant.iter().map(|vacant| (*vacant, true)));
    all.sort_unstable_by_key(|(extent, _)| extent.offset);
    let everywhere = [Extent { offset: 0, len: u64::MAX }];
    let mut best: Option<(u64, Vec<VacantPart>)> = None;
    for range in within.unwrap_or(&everywhere) {
        let end = range.offset.saturating_add(range.len);
        for begin in 0..all.len() {
            let from = round_up(all[begin].0.offset.max(range.offset), PAGE);
            let Some(parts) = parts_from(&all[begin..], from, len, end) else { continue };
            let bytes = parts.iter().map(|part| part.part.len).sum();
            if !parts.is_empty() && best.as_ref().is_none_or(|(least, _)| bytes < *least) {
                best = Some((bytes, parts));
            }
        }
    }
    best.map_or_else(Vec::new, |(_, parts)| parts)
}

/// What must get blocks again for a run of `len` bytes from `from` on; `None` if there is a gap, or
/// the range ends.
fn parts_from(run: &[(Extent, bool)], from: u64, len: u64, end: u64) -> Option<Vec<VacantPart>> {
    let to = from.checked_add(len).filter(|to| *to <= end)?;
    let (mut at, mut parts) = (from, Vec::new());
    for &(extent, is_vacant) in run {
        if extent.offset > at || at >= to {
            break;
        }
        if extent.end() <= at {
            continue;
        }
        let upto = round_up(extent.end().min(to), PAGE).min(extent.end());
        if is_vacant {
            let offset = at / PAGE * PAGE;
            let part = Extent { offset, len: upto - offset };
            parts.push(VacantPart { of: extent, part });
        }
        at = extent.end();
    }
    (at >= to).then_some(parts)
}

/// A part of a vacant extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VacantPart {
    /// The vacant extent.
    pub of: Extent,
    /// The part of it.
    pub part: Extent,
}

#[cfg(test)]
mod tests {
    use super::{Extent, PAGE, VacantPart, vacant_parts};

    fn pages(offset: u64, len: u64) -> Extent {
        Extent { offset: offset * PAGE, len: len * PAGE }
    }

    #[test]
    fn the_fewest_vacant_pages_that_make_a_run_get_blocks() {
        // vacant 0..4, free 4..6, used 6..7, vacant 7..20
        let (free, vacant) = ([pages(4, 2)], [pages(0, 4), pages(7, 13)]);
        let parts = |len, within: Option<&[Extent]>| {
            let parts = vacant_parts(&free, &vacant, len * PAGE, within);
            let of_pages = |part: VacantPart| (part.part.offset / PAGE, part.part.len / PAGE);
            parts.into_iter().map(of_pages).collect::<Vec<_>>()
        };
        assert_eq!(parts(3, None), [(0, 3)]);
        assert_eq!(parts(6, None), [(0, 4)], "with the free pages behind");
        assert_eq!(parts(7, None), [(7, 7)]);
        assert_eq!(parts(14, None), []);
        assert_eq!(parts(3, Some(&[pages(7, 13)])), [(7, 3)]);
        assert_eq!(parts(3, Some(&[pages(1, 3)])), [(1, 3)]);
        assert_eq!(parts(3, Some(&[pages(2, 3)])), [(2, 2)], "and one free page");
        // A few bytes of a page need the page.
        let few = vacant_parts(&free, &vacant, 64, None);
        assert_eq!(few, [VacantPart { of: vacant[0], part: pages(0, 1) }]);
    }
}
