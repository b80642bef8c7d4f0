//! The allocator: which free extent a request gets.
//!
//! The state is in the catalog, so every process sees one allocator, and a crash needs no repair.
//! A request takes, in this order: space that this process has touched lately (its page table is
//! warm, and copying runs six times as fast there), the smallest free extent that holds it well
//! aligned, the smallest that holds it page-aligned. The rest at either end stays free.

use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_catalog::{ReadTxn, Table, WriteTxn};
use engram_records::extent::{Extent, LINE, PAGE, best_align, round_up};

/// How many free extents of about the right size are tried before a larger one is taken.
const CANDIDATES_MAX: usize = 16;

/// What a reservation asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// How many bytes (already rounded by `extent_len`).
    pub len: u64,
    /// Extents that this process touched lately, newest first.
    pub warm: &'a [Extent],
    /// The ranges to stay within (the spans of one device), or anywhere.
    pub within: Option<&'a [Extent]>,
}

/// Takes a free extent out of the tables; `None` when no free extent holds it.
pub fn allocate(txn: &mut WriteTxn<'_>, wanted: &Wanted<'_>) -> Result<Option<Extent>> {
    let found = match wanted.within {
        Some(ranges) => find_within(txn, wanted.len, ranges)?,
        None => match find_warm(txn, wanted)? {
            Some(found) => Some(found),
            None => find_fit(txn, wanted.len)?,
        },
    };
    let Some((free, place)) = found else { return Ok(None) };
    take_out(txn, free, place)?;
    step!("reserve.taken");
    Ok(Some(place))
}

/// Where `len` bytes go in `free` at this alignment.
fn fit(free: Extent, len: u64, align: u64) -> Option<Extent> {
    let offset = round_up(free.offset, align);
    (offset.checked_add(len)? <= free.end()).then_some(Extent { offset, len })
}

fn find_warm(txn: &WriteTxn<'_>, wanted: &Wanted<'_>) -> Result<Option<(Extent, Extent)>> {
    for warm in wanted.warm.iter().filter(|warm| warm.len >= wanted.len) {
        let Some(free) = free_before(txn, warm.offset + 1)? else { continue };
        let place = Extent { offset: warm.offset, len: wanted.len };
        if place.end() <= free.end() {
            return Ok(Some((free, place)));
        }
    }
    Ok(None)
}

fn find_fit(txn: &WriteTxn<'_>, len: u64) -> Result<Option<(Extent, Extent)>> {
    let align = best_align(len);
    // A free extent this large holds the request whatever its own alignment is.
    for at_least in [len, len + align] {
        let mut cursor =
            txn.seek(Table::ExtentsBySize, &size_key(Extent { offset: 0, len: at_least }))?;
        for _ in 0..CANDIDATES_MAX {
            let Some((key, _)) = cursor.next()? else { break };
            let free = parse_size_key(key)?;
            if let Some(place) = fit(free, len, align) {
                return Ok(Some((free, place)));
            }
        }
    }
    let align = align.min(PAGE);
    let mut cursor = txn.seek(Table::ExtentsBySize, &size_key(Extent { offset: 0, len }))?;
    while let Some((key, _)) = cursor.next()? {
        let free = parse_size_key(key)?;
        if let Some(place) = fit(free, len, align) {
            return Ok(Some((free, place)));
        }
    }
    Ok(None)
}

fn find_within(
    txn: &WriteTxn<'_>,
    len: u64,
    ranges: &[Extent],
) -> Result<Option<(Extent, Extent)>> {
    for align in [best_align(len), best_align(len).min(PAGE)] {
        for range in ranges {
            let mut cut = free_before(txn, range.offset + 1)?;
            let mut cursor = txn.seek(Table::ExtentsByOffset, &range.offset.to_be_bytes())?;
            loop {
                if let Some(free) = cut {
                    let start = free.offset.max(range.offset);
                    let end = free.end().min(range.end());
                    let part = Extent { offset: start, len: end.saturating_sub(start) };
                    if let Some(place) = fit(part, len, align) {
                        return Ok(Some((free, place)));
                    }
                }
                match cursor.next()? {
                    Some((key, value)) => {
                        let free = parse_free(key, value)?;
                        if free.offset >= range.end() {
                            break;
                        }
                        cut = Some(free);
                    }
                    None => break,
                }
            }
        }
    }
    Ok(None)
}

/// The free extent that begins before `offset`, nearest to it.
fn free_before(txn: &WriteTxn<'_>, offset: u64) -> Result<Option<Extent>> {
    match txn.before(Table::ExtentsByOffset, &offset.to_be_bytes())? {
        Some((key, value)) => Ok(Some(parse_free(key, value)?)),
        None => Ok(None),
    }
}

/// Whether all of an extent is free.
pub fn covers(txn: &WriteTxn<'_>, extent: Extent) -> Result<bool> {
    let free = free_before(txn, extent.offset + 1)?;
    Ok(free.is_some_and(|free| free.end() >= extent.end()))
}

/// Takes a part of a free extent out of the tables.
pub(super) fn take_free(txn: &mut WriteTxn<'_>, part: Extent) -> Result<()> {
    let Some(free) = free_before(txn, part.offset + 1)?.filter(|free| free.end() >= part.end())
    else {
        fail!(Corrupt, "{part:?} was found free, and is not: run verify")
    };
    take_out(txn, free, part)
}

/// Takes a part out of a free extent; the rest at either end stays free.
fn take_out(txn: &mut WriteTxn<'_>, free: Extent, part: Extent) -> Result<()> {
    remove_free(txn, free)?;
    if part.offset > free.offset {
        put_free(txn, Extent { offset: free.offset, len: part.offset - free.offset })?;
    }
    if part.end() < free.end() {
        put_free(txn, Extent { offset: part.end(), len: free.end() - part.end() })?;
    }
    Ok(())
}

/// The largest free extents that have a page, at most so many.
pub(super) fn largest_free(txn: &WriteTxn<'_>, most: usize) -> Result<Vec<Extent>> {
    let mut found: Vec<Extent> = Vec::new();
    let mut below = [0xff; 16];
    while found.len() < most {
        let Some((key, _)) = txn.before(Table::ExtentsBySize, &below)? else { break };
        let free = parse_size_key(key)?;
        if free.len < PAGE {
            break;
        }
        found.push(free);
        below = size_key(free);
    }
    Ok(found)
}

/// Every free extent, by offset.
pub fn free_rows(txn: &ReadTxn<'_>) -> Result<Vec<Extent>> {
    let mut found = Vec::new();
    let mut cursor = txn.seek(Table::ExtentsByOffset, &[])?;
    while let Some((key, value)) = cursor.next()? {
        found.push(parse_free(key, value)?);
    }
    Ok(found)
}

/// Gives an extent back to the free tables, joined with its free neighbours.
pub fn insert_free(txn: &mut WriteTxn<'_>, extent: Extent) -> Result<()> {
    let mut joined = extent;
    // The last that begins before the end of `extent`: one that begins in it overlaps it as well.
    if let Some(before) = free_before(txn, extent.end())? {
        if before.end() > extent.offset {
            fail!(Corrupt, "{extent:?} is freed, but {before:?} is free already: run verify");
        }
        if before.end() == extent.offset {
            remove_free(txn, before)?;
            joined = Extent { offset: before.offset, len: before.len + joined.len };
        }
    }
    let end = extent.end().to_be_bytes();
    if let Some(len) = txn.get(Table::ExtentsByOffset, &end)? {
        let after = parse_free(&end, len)?;
        remove_free(txn, after)?;
        joined.len += after.len;
    }
    put_free(txn, joined)
}

fn put_free(txn: &mut WriteTxn<'_>, free: Extent) -> Result<()> {
    txn.put(Table::ExtentsByOffset, &free.offset.to_be_bytes(), &free.len.to_le_bytes())?;
    txn.put(Table::ExtentsBySize, &size_key(free), &[])
}

fn remove_free(txn: &mut WriteTxn<'_>, free: Extent) -> Result<()> {
    let by_offset = txn.delete(Table::ExtentsByOffset, &free.offset.to_be_bytes())?;
    let by_size = txn.delete(Table::ExtentsBySize, &size_key(free))?;
    if !(by_offset && by_size) {
        fail!(Corrupt, "the free tables disagree about {free:?}: run verify");
    }
    Ok(())
}

fn size_key(free: Extent) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&free.len.to_be_bytes());
    key[8..].copy_from_slice(&free.offset.to_be_bytes());
    key
}

/// The free extent that a key of `extents_by_size` stands for; `CorruptError` if it can be none.
pub fn parse_size_key(key: &[u8]) -> Result<Extent> {
    let Some((len, offset)) = key.split_first_chunk::<8>() else {
        fail!(Corrupt, "a key of `extents_by_size` has {} bytes", key.len())
    };
    let Ok(offset) = <[u8; 8]>::try_from(offset) else {
        fail!(Corrupt, "a key of `extents_by_size` has {} bytes", key.len())
    };
    checked(u64::from_be_bytes(offset), u64::from_be_bytes(*len))
}

/// The free extent that a row of `extents_by_offset` is; `CorruptError` if it can be none.
pub fn parse_free(key: &[u8], value: &[u8]) -> Result<Extent> {
    let Ok(offset) = <[u8; 8]>::try_from(key) else {
        fail!(Corrupt, "a key of `extents_by_offset` has {} bytes", key.len())
    };
    checked(u64::from_be_bytes(offset), parse_len(value)?)
}

pub(crate) fn parse_len(value: &[u8]) -> Result<u64> {
    match <[u8; 8]>::try_from(value) {
        Ok(len) => Ok(u64::from_le_bytes(len)),
        Err(_) => fail!(Corrupt, "an extent's length has {} bytes", value.len()),
    }
}

/// An extent from media, bounded.
pub(crate) fn checked(offset: u64, len: u64) -> Result<Extent> {
    let aligned = offset.is_multiple_of(LINE) && len.is_multiple_of(LINE) && len > 0;
    if !aligned || offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
        fail!(Corrupt, "an extent at {offset} of {len} bytes cannot be");
    }
    Ok(Extent { offset, len })
}
