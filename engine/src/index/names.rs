//! Names: every distinct leaf name once, with a number.
//!
//! Segments keep a name's number as their column `NAME`; which numbers a query's names have is
//! found here, once for a query, and then it is a set of small numbers. A name keeps its number
//! for good: nothing tells when the last object of that name goes.
//!
//! Names lie in their own order, so that one name, or all that start alike, are a seek. Anything else
//! looks at every name; from [`THRESHOLD`] names on, only at those that can match, as told by their
//! trigrams (`trigrams.rs`).

#[cfg(test)]
mod tests;

use super::look::Look;
use super::trigrams::{self, Chunks};
use crate::catalog::{Table, WriteTxn};
use crate::error::Result;
use crate::fail;

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

/// How many names there are; their numbers are those below.
pub(crate) fn count(look: &impl Look) -> Result<u32> {
    look.row(Table::IndexNames, COUNT)?.map_or(Ok(0), number_of)
}

/// The numbers of these names, in their order; new ones are given one.
pub(crate) fn intern(txn: &mut WriteTxn<'_>, names: &[&str]) -> Result<Vec<u32>> {
    intern_with(txn, names, THRESHOLD)
}

fn intern_with(txn: &mut WriteTxn<'_>, names: &[&str], threshold: u32) -> Result<Vec<u32>> {
    let before = count(txn)?;
    let mut numbers = Vec::with_capacity(names.len());
    let mut new = Vec::new();
    for name in names {
        let key = name_key(name);
        if let Some(value) = txn.get(Table::IndexNames, &key)? {
            numbers.push(number_of(value)?);
            continue;
        }
        let number = before + new.len() as u32;
        txn.put(Table::IndexNames, &key, &number.to_le_bytes())?;
        new.push(*name);
        numbers.push(number);
    }
    if new.is_empty() {
        return Ok(numbers);
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

/// Every name, by its number.
fn in_order(look: &impl Look, count: u32) -> Result<Vec<String>> {
    let mut names = vec![String::new(); count as usize];
    each(look, "", |name, number| {
        let Some(place) = names.get_mut(number as usize) else {
            fail!(Corrupt, "name {name:?} has number {number} of {count} in `index_names`");
        };
        name.clone_into(place);
        Ok(())
    })?;
    Ok(names)
}

/// Calls `each` with all names that start with `prefix`, in their order, and their numbers.
pub(crate) fn each(
    look: &impl Look,
    prefix: &str,
    mut each: impl FnMut(&str, u32) -> Result<()>,
) -> Result<()> {
    let from = name_key(prefix);
    let mut cursor = look.rows(Table::IndexNames, &from)?;
    while let Some((key, value)) = cursor.next()?
        && key.starts_with(&from)
    {
        let Ok(name) = std::str::from_utf8(&key[1..]) else {
            fail!(Corrupt, "a name in `index_names` is no UTF-8: {:02x?}", &key[1..]);
        };
        each(name, number_of(value)?)?;
    }
    Ok(())
}

/// The number of one name.
pub(crate) fn exact(look: &impl Look, name: &str) -> Result<Option<u32>> {
    look.row(Table::IndexNames, &name_key(name))?.map(number_of).transpose()
}

/// The names that start with `prefix`.
pub(crate) fn starting_with(look: &impl Look, prefix: &str) -> Result<NameSet> {
    let mut numbers = Vec::new();
    each(look, prefix, |_, number| {
        numbers.push(number);
        Ok(())
    })?;
    Ok(NameSet::new(numbers))
}

/// The names that `test` is true of. All of them contain each of these `parts`, of which there may be
/// none: they spare the test of other names.
pub(crate) fn matching(
    look: &impl Look,
    parts: &[&str],
    test: impl Fn(&str) -> bool,
) -> Result<NameSet> {
    let mut numbers = Vec::new();
    let mut look_at = |name: &str, number| {
        if test(name) {
            numbers.push(number);
        }
        Ok(())
    };
    match Chunks::with(look, parts)? {
        Some(chunks) => chunks.each(look, look_at)?,
        None => each(look, "", &mut look_at)?,
    }
    Ok(NameSet::new(numbers))
}

/// A set of names, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameSet {
    /// Ascending.
    numbers: Vec<u32>,
    /// A bit for each number from the least on; empty where few numbers are soon looked through.
    bits: Vec<u64>,
}

/// Up to so many numbers are looked through.
const FEW: usize = 8;
/// The most words of bits for each number: more sparse sets are searched by halves.
const WORDS_EACH: usize = 64;

impl NameSet {
    fn new(mut numbers: Vec<u32>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        let mut set = NameSet { numbers, bits: Vec::new() };
        let Some((least, greatest)) = set.bounds() else { return set };
        let words = (greatest - least) as usize / 64 + 1;
        if set.len() > FEW && words <= set.len() * WORDS_EACH {
            set.bits = vec![0; words];
            for number in &set.numbers {
                let at = (number - least) as usize;
                set.bits[at / 64] |= 1 << (at % 64);
            }
        }
        set
    }

    /// Whether it has this number.
    pub(crate) fn contains(&self, number: u32) -> bool {
        if self.bits.is_empty() {
            return self.numbers.binary_search(&number).is_ok();
        }
        let Some(at) = number.checked_sub(self.numbers[0]) else { return false };
        self.bits.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    /// How many names there are.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The numbers, ascending.
    pub(crate) fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// The least and the greatest.
    pub(crate) fn bounds(&self) -> Option<(u32, u32)> {
        Some((*self.numbers.first()?, *self.numbers.last()?))
    }
}
