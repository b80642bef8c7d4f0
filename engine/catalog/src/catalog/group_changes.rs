//! Which groups the last commits have changed, for those who keep a picture of all groups.
//!
//! A query that asks about groups needs to know how all of them lie. A process that has read them
//! once keeps up with them: it reads again those that have changed since. The row
//! [`GROUP_CHANGES`] of `meta` tells which these are. It has a number that grows with each change
//! of a row of `groups`, and then the ids of the groups changed last, at most [`TOLD_MAX`], the
//! newest last (eight bytes each, little-endian).
//!
//! *Invariant*: two snapshots with the same number have the same rows in `groups`. Of two numbers
//! that are no further apart than the later row has ids, its last ids are the groups whose rows
//! may differ, and no others. So the row is written in the transaction that changes a group, and
//! where ids are left out the number goes up by more than there can be ids.

use super::lmdb::Txn;
use super::{Table, WriteTxn};
use engram_base::error::Result;
use engram_base::fail;

/// The row of `meta` that tells of changed groups.
pub(super) const GROUP_CHANGES: &[u8] = b"group_changes";
/// Of how many changes it tells.
pub(super) const TOLD_MAX: usize = 128;

/// How often groups were changed, and which the last were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupChanges {
    /// A number that no other state of `groups` in this catalog has.
    pub number: u64,
    /// The groups changed last, the newest last; some more than once.
    last: Vec<u64>,
}

impl GroupChanges {
    /// What a snapshot says.
    pub fn read(txn: &Txn<'_>) -> Result<Self> {
        let Some(row) = txn.get(Table::Meta, GROUP_CHANGES)? else { return Ok(Self::default()) };
        match Self::parse(row) {
            Some(changes) => Ok(changes),
            None => fail!(Corrupt, "the row `group_changes` of `meta` has {} bytes", row.len()),
        }
    }

    fn parse(row: &[u8]) -> Option<Self> {
        let (words, rest) = row.as_chunks::<8>();
        let (number, last) = words.split_first()?;
        let told = rest.is_empty() && last.len() <= TOLD_MAX;
        let last = last.iter().map(|id| u64::from_le_bytes(*id)).collect();
        told.then_some(GroupChanges { number: u64::from_le_bytes(*number), last })
    }

    /// The groups that have changed since the number was this one; `None` where that is not known.
    pub fn since(&self, number: u64) -> Option<&[u64]> {
        let changes = usize::try_from(self.number.checked_sub(number)?).ok()?;
        self.last.len().checked_sub(changes).map(|from| &self.last[from..])
    }

    fn add(&mut self, group: u64) {
        if self.last.len() == TOLD_MAX {
            self.last.remove(0);
        }
        self.last.push(group);
        self.number += 1;
    }

    /// Says that any group may be another.
    fn add_many(&mut self) {
        self.last.clear();
        self.number += 1 + TOLD_MAX as u64;
    }

    fn encode(&self) -> Vec<u8> {
        let words = std::iter::once(&self.number).chain(&self.last);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// The groups that a transaction has changed so far.
#[derive(Debug, Default)]
pub(super) struct GroupNotes(usize);

impl WriteTxn<'_> {
    /// Takes down that the row of a group was put or removed.
    pub(super) fn note_group(&mut self, key: &[u8]) -> Result<()> {
        let Ok(id) = <[u8; 8]>::try_from(key) else { return Ok(()) };
        self.groups.0 += 1;
        if self.groups.0 > TOLD_MAX {
            return Ok(()); // it says that it does not tell
        }
        let mut changes = GroupChanges::read(self)?;
        if self.groups.0 < TOLD_MAX {
            changes.add(u64::from_be_bytes(id));
        } else {
            changes.add_many();
        }
        self.put(Table::Meta, GROUP_CHANGES, &changes.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::{GroupChanges, TOLD_MAX};

    #[test]
    fn the_last_changes_are_told_and_earlier_ones_are_not_known() {
        let mut changes = GroupChanges::default();
        assert_eq!(changes.since(0), Some(&[][..]));
        (0..200).for_each(|group| changes.add(group));
        assert_eq!(changes.since(197), Some(&[197, 198, 199][..]));
        assert_eq!(changes.since(200 - TOLD_MAX as u64).map(<[u64]>::len), Some(TOLD_MAX));
        assert_eq!(changes.since(199 - TOLD_MAX as u64), None);
        assert_eq!(changes.since(201), None, "that is yet to come");
        let read = GroupChanges::parse(&changes.encode());
        assert_eq!(read, Some(changes.clone()));
        changes.add_many();
        let now = changes.number;
        assert!((0..now).all(|number| changes.since(number).is_none()));
        changes.add(7);
        assert_eq!(changes.since(now), Some(&[7][..]));
    }

    #[test]
    fn a_damaged_row_is_no_change() {
        let mut changes = GroupChanges::default();
        changes.add(1);
        let row = changes.encode();
        for len in (0..row.len()).filter(|len| len % 8 != 0 || *len == 0) {
            assert_eq!(GroupChanges::parse(&row[..len]), None);
        }
        assert_eq!(GroupChanges::parse(&[0; 8 * (TOLD_MAX + 2)]), None);
    }
}
