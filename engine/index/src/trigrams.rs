//! Trigrams: which names can contain a part, where there are too many names to look at all.
//!
//! Names lie a second time in the order of their numbers, [`GROUP`] in a row: a *group*. Each
//! [`CHUNK`] numbers, once they are given out, form a chunk, and for each three bytes that follow
//! each other in one of its names, the chunk has a row with the groups in which they do. So a part
//! of three bytes or more leads to the few groups that have all its trigrams, and each name there
//! is looked at itself. The names behind the last chunk are all looked at. A chunk's rows are
//! written once, and a group's row as often as names come to it.
//!
//! Groups, not single names, keep the rows short: a common trigram takes a bit for each group at
//! most, a rare one a byte or two.

use engram_catalog::Txn;
use std::collections::BTreeSet;

use engram_base::error::Result;
use engram_base::fail;
use engram_base::varint;
use engram_catalog::{Table, WriteTxn};

/// How many names are in a row.
const GROUP: u32 = 64;
/// How many names' trigrams are in one chunk.
const CHUNK: u32 = 1 << 14;
/// How many groups a chunk has.
const GROUPS: usize = (CHUNK / GROUP) as usize;
/// A bit for each group.
const BITMAP_BYTES: usize = GROUPS / 8;

/// The first byte of a group's key.
const NAMES: u8 = b'r';
/// The first byte of the key of a trigram's row.
const TRIGRAM: u8 = b't';

fn group_key(group: u32) -> [u8; 5] {
    let mut key = [NAMES; 5];
    key[1..].copy_from_slice(&group.to_be_bytes());
    key
}

fn trigram_key(chunk: u32, trigram: [u8; 3]) -> [u8; 8] {
    let mut key = [TRIGRAM; 8];
    key[1..5].copy_from_slice(&chunk.to_be_bytes());
    key[5..].copy_from_slice(&trigram);
    key
}

/// Adds names, numbered from `first` on; all before are there.
pub(super) fn add(txn: &mut WriteTxn<'_>, first: u32, names: &[&str]) -> Result<()> {
    let mut rest = names;
    let mut next = first;
    while !rest.is_empty() {
        let (here, after) = rest.split_at(rest.len().min((GROUP - next % GROUP) as usize));
        let key = group_key(next / GROUP);
        let mut row = match txn.get(Table::IndexNames, &key)? {
            Some(row) if !next.is_multiple_of(GROUP) => row.to_vec(),
            _ => Vec::new(),
        };
        for name in here {
            varint::push(&mut row, name.len() as u64);
            row.extend_from_slice(name.as_bytes());
        }
        txn.put(Table::IndexNames, &key, &row)?;
        (rest, next) = (after, next + here.len() as u32);
        if next.is_multiple_of(CHUNK) {
            seal(txn, next / CHUNK - 1)?;
        }
    }
    Ok(())
}

/// Takes down the trigrams of a chunk whose names are all there.
fn seal(txn: &mut WriteTxn<'_>, chunk: u32) -> Result<()> {
    let mut found: Vec<u64> = Vec::new();
    for group in 0..GROUPS as u32 {
        let from = found.len();
        each_in(&*txn, chunk * GROUPS as u32 + group, |name, _| {
            let word =
                |t: &[u8]| u64::from(t[0]) << 48 | u64::from(t[1]) << 40 | u64::from(t[2]) << 32;
            found.extend(name.as_bytes().windows(3).map(|t| word(t) | u64::from(group)));
            Ok(())
        })?;
        // Once for each group, before there are many.
        found[from..].sort_unstable();
        let mut kept = from;
        for at in from..found.len() {
            if kept == from || found[kept - 1] != found[at] {
                found[kept] = found[at];
                kept += 1;
            }
        }
        found.truncate(kept);
    }
    found.sort_unstable();
    for groups in found.chunk_by(|a, b| a >> 32 == b >> 32) {
        let trigram = groups[0].to_be_bytes();
        let key = trigram_key(chunk, [trigram[1], trigram[2], trigram[3]]);
        txn.put(Table::IndexNames, &key, &encode(groups.iter().map(|word| *word as u32)))?;
    }
    Ok(())
}

/// Ascending groups of a chunk: how far each is from the one before; or a bit for each, where that
/// is no longer.
fn encode(groups: impl Iterator<Item = u32> + Clone) -> Vec<u8> {
    let (mut row, mut next) = (Vec::new(), 0);
    for group in groups.clone() {
        varint::push(&mut row, u64::from(group - next));
        next = group + 1;
        if row.len() >= BITMAP_BYTES {
            row = vec![0; BITMAP_BYTES];
            groups.for_each(|group| row[group as usize / 8] |= 1 << (group % 8));
            break;
        }
    }
    row
}

/// The groups of a chunk, a bit for each.
type Bits = [u8; BITMAP_BYTES];

pub(super) fn decode(mut row: &[u8]) -> Result<Bits> {
    if let Ok(bits) = Bits::try_from(row) {
        return Ok(bits);
    }
    let (mut bits, mut next) = ([0; BITMAP_BYTES], 0_usize);
    while !row.is_empty() {
        let group =
            varint::take(&mut row).and_then(|step| next.checked_add(usize::try_from(step).ok()?));
        match group {
            Some(group) if group < GROUPS => bits[group / 8] |= 1 << (group % 8),
            _ => fail!(Corrupt, "a row of trigrams in `index_names` is none"),
        }
        next = group.unwrap_or(GROUPS) + 1;
    }
    Ok(bits)
}

/// Calls `each` with a group's names, and their numbers; a group that is not there has none.
fn each_in(
    txn: &Txn<'_>,
    group: u32,
    mut each: impl FnMut(&str, u32) -> Result<()>,
) -> Result<bool> {
    let Some(mut row) = txn.get(Table::IndexNames, &group_key(group))? else { return Ok(false) };
    let mut number = group * GROUP;
    while !row.is_empty() {
        let name = varint::take_bytes(&mut row).and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name.filter(|_| number < (group + 1) * GROUP) else {
            fail!(Corrupt, "group {group} of `index_names` is none");
        };
        each(name, number)?;
        number += 1;
    }
    Ok(true)
}

/// The trigrams that a name has if it contains some parts.
pub(super) struct WantedTrigrams {
    trigrams: BTreeSet<[u8; 3]>,
}

impl WantedTrigrams {
    /// `None` if no trigrams have been taken down. Parts may have none: then all names are looked
    /// at, in the order of their numbers, which is faster than in their own.
    pub(super) fn with(txn: &Txn<'_>, parts: &[&str]) -> Result<Option<Self>> {
        let windows = parts.iter().flat_map(|part| part.as_bytes().windows(3));
        let trigrams: BTreeSet<[u8; 3]> = windows.map(|t| [t[0], t[1], t[2]]).collect();
        let there = txn.get(Table::IndexNames, &group_key(0))?.is_some();
        Ok(there.then_some(WantedTrigrams { trigrams }))
    }

    /// Calls `each` with every name that has all the trigrams, some that have not, and their
    /// numbers.
    pub(super) fn each(
        &self,
        txn: &Txn<'_>,
        mut each: impl FnMut(&str, u32) -> Result<()>,
    ) -> Result<()> {
        let chunks = super::names::next(txn)? / CHUNK;
        for chunk in 0..chunks {
            let Some(bits) = self.groups(txn, chunk)? else { continue };
            let has = |group: &u32| bits[*group as usize / 8] >> (group % 8) & 1 != 0;
            for group in (0..GROUPS as u32).filter(has) {
                each_in(txn, chunk * GROUPS as u32 + group, &mut each)?;
            }
        }
        let mut group = chunks * GROUPS as u32;
        while each_in(txn, group, &mut each)? {
            group += 1;
        }
        Ok(())
    }

    /// The groups of a chunk that have all the trigrams; `None` if there are none.
    fn groups(&self, txn: &Txn<'_>, chunk: u32) -> Result<Option<Bits>> {
        let mut all = [0xFF; BITMAP_BYTES];
        for trigram in &self.trigrams {
            let Some(row) = txn.get(Table::IndexNames, &trigram_key(chunk, *trigram))? else {
                return Ok(None);
            };
            let these = decode(row)?;
            all.iter_mut().zip(these).for_each(|(all, these)| *all &= these);
            if all == [0; BITMAP_BYTES] {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }
}
