//! Names: every distinct leaf name once, with a number.
//!
//! Segments keep a name's number as their column `NAME`; which numbers a query's names have is
//! found here, once for a query. A name keeps its number for good: nothing tells when the last
//! object of that name goes.
//!
//! Names lie in their own order, so that one name, or all in a range, are a seek. Anything else
//! looks at every name; from [`THRESHOLD`] names on, only at those that can match, as told by
//! their trigrams (`trigrams.rs`).

#[cfg(test)]
mod tests;

use super::trigrams::{self, WantedTrigrams};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::name::NAME_BYTES_MAX;
use engram_catalog::Txn;
use engram_catalog::{Table, WriteTxn};

/// How many names there are when their trigrams are first taken down.
pub(crate) const THRESHOLD: u32 = 1 << 16;

/// The row with how many names there are.
const COUNT: &[u8] = b"#";
/// The first byte of a name's key.
const NAME: u8 = b'n';

fn name_key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(NAME);
    key.extend_from_slice(name.as_bytes());
    key
}

fn number_of(value: &[u8]) -> Result<u32> {
    match value.try_into() {
        Ok(bytes) => Ok(u32::from_le_bytes(bytes)),
        Err(_) => fail!(Corrupt, "a number in `index_names` has {} bytes, not 4", value.len()),
    }
}

/// Reads a row of trigrams.
#[cfg(feature = "faults")]
pub fn decode(row: &[u8]) -> Result<()> {
    super::trigrams::decode(row).map(drop)
}

/// How many names there are; their numbers are those below.
pub(crate) fn count(txn: &Txn<'_>) -> Result<u64> {
    next(txn).map(u64::from)
}

/// The number of the next new name.
pub(super) fn next(txn: &Txn<'_>) -> Result<u32> {
    txn.get(Table::IndexNames, COUNT)?.map_or(Ok(0), number_of)
}

/// The numbers of these names, in their order; new ones are given one.
pub fn intern(txn: &mut WriteTxn<'_>, names: &[&str]) -> Result<Vec<u32>> {
    intern_with(txn, names, THRESHOLD)
}

fn intern_with(txn: &mut WriteTxn<'_>, names: &[&str], threshold: u32) -> Result<Vec<u32>> {
    let before = next(txn)?;
    let known = known(txn, names)?;
    if let Some(numbers) = known.iter().copied().collect::<Option<_>>() {
        return Ok(numbers);
    }
    // One that is new may come again.
    let distinct = names.is_sorted_by(|a, b| a < b);
    let mut numbers = Vec::with_capacity(names.len());
    let mut new = Vec::new();
    for (name, known) in names.iter().zip(known) {
        let key = name_key(name);
        let known = match known {
            None if !distinct => txn.get(Table::IndexNames, &key)?.map(number_of).transpose()?,
            known => known,
        };
        if let Some(known) = known {
            numbers.push(known);
            continue;
        }
        let number = before + new.len() as u32;
        txn.put(Table::IndexNames, &key, &number.to_le_bytes())?;
        new.push(*name);
        numbers.push(number);
    }
    let Some(now) = before.checked_add(new.len() as u32).filter(|now| *now < u32::MAX) else {
        fail!(Argument, "the index has {before} names, and can number no {} more", new.len());
    };
    txn.put(Table::IndexNames, COUNT, &now.to_le_bytes())?;
    if before >= threshold {
        trigrams::add(txn, before, &new)?;
    } else if now >= threshold {
        let all = in_order(txn, now)?;
        trigrams::add(txn, 0, &all.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(numbers)
}

/// The numbers that names have already.
fn known(txn: &WriteTxn<'_>, names: &[&str]) -> Result<Vec<Option<u32>>> {
    let mut cursor = txn.seek(Table::IndexNames, &[])?;
    let mut key = Vec::with_capacity(1 + NAME_BYTES_MAX);
    let number = |name: &&str| {
        key.clear();
        key.push(NAME);
        key.extend_from_slice(name.as_bytes());
        cursor.find(&key)?.map(number_of).transpose()
    };
    names.iter().map(number).collect()
}

/// Every name, by its number.
fn in_order(txn: &Txn<'_>, count: u32) -> Result<Vec<String>> {
    let mut names = vec![String::new(); count as usize];
    each(txn, "", None, |name, number| {
        let Some(place) = names.get_mut(number as usize) else {
            fail!(Corrupt, "name {name:?} has number {number} of {count} in `index_names`");
        };
        name.clone_into(place);
        Ok(())
    })?;
    Ok(names)
}

/// Calls `each` with all names from `low` to `high`, both included, in their order, and their
/// numbers.
pub fn each(
    txn: &Txn<'_>,
    low: &str,
    high: Option<&str>,
    mut each: impl FnMut(&str, u32) -> Result<()>,
) -> Result<()> {
    // No name is longer than a name may be: bytes beyond change nothing but the length of the key.
    let mut from = name_key(low);
    from.truncate(1 + NAME_BYTES_MAX);
    let mut cursor = txn.seek(Table::IndexNames, &from)?;
    while let Some((key, value)) = cursor.next()?
        && key[0] == NAME
    {
        let Ok(name) = std::str::from_utf8(&key[1..]) else {
            fail!(Corrupt, "a name in `index_names` is no UTF-8: {:02x?}", &key[1..]);
        };
        if high.is_some_and(|high| name > high) {
            break;
        }
        each(name, number_of(value)?)?;
    }
    Ok(())
}

/// Calls `each` with all names that contain each of these `parts`, and some others, in any order,
/// and their numbers. Without parts these are all names.
pub fn each_with(
    txn: &Txn<'_>,
    parts: &[&str],
    each: impl FnMut(&str, u32) -> Result<()>,
) -> Result<()> {
    match WantedTrigrams::with(txn, parts)? {
        Some(chunks) => chunks.each(txn, each),
        None => self::each(txn, "", None, each),
    }
}

/// The number of one name.
pub fn number(txn: &Txn<'_>, name: &str) -> Result<Option<u32>> {
    txn.get(Table::IndexNames, &name_key(name))?.map(number_of).transpose()
}
