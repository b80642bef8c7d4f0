//! Which tables are empty, so that a commit need not ask LMDB.
//!
//! Most realms have nothing on its way to another realm, nothing read-only, no settings of the
//! index and nothing queued, and every commit has to know that. In a transaction that has not used
//! a table yet, LMDB looks its root up in the table of tables first. So each commit leaves one word
//! behind in the growth page: its own id, and a bit for each table that it knows to be empty.
//!
//! *Invariant*: a word with the id of the last commit tells the truth about that commit. The word
//! is stored under the writer lock, before LMDB commits. A writer that dies in between, or whose
//! commit fails, leaves a word with an id that no commit has: the next writer gets that id again,
//! finds the word not to be of the commit before its own, asks LMDB, and stores a word of its own
//! before it commits. So does the first writer after a loss of power, whatever has become of the
//! two files.
//!
//! What the word says goes on from commit to commit. So a process that opens the catalog clears it,
//! whoever else writes just then, and the next commit asks. Damage to it goes on no longer than to
//! an opening while nobody writes.

use super::Table;

/// The bits of the word that say which tables; the others are the id.
const TABLE_BITS: u32 = Table::COUNT as u32;

/// The tables that are known to be empty after a commit. Others may be, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EmptyTables {
    as_of: u64,
    bits: u64,
}

impl EmptyTables {
    /// What a transaction knows that begins after commit `last`.
    pub(super) fn after(self, last: u64) -> EmptyTables {
        if self.as_of == last { self } else { EmptyTables::default() }
    }

    /// The same, as of another commit.
    pub(super) fn as_of(self, id: u64) -> EmptyTables {
        EmptyTables { as_of: id, ..self }
    }

    /// Whether a table is known to be empty.
    pub(super) fn has(self, table: Table) -> bool {
        self.bits & bit(table) != 0
    }

    /// Notes that a table is empty.
    pub(super) fn add(&mut self, table: Table) {
        self.bits |= bit(table);
    }

    /// Notes that a table has got a row.
    pub(super) fn remove(&mut self, table: Table) {
        self.bits &= !bit(table);
    }

    /// The word of the growth page. Of a commit whose id has no room in it, it says nothing.
    pub(super) fn word(self) -> u64 {
        let has_room = self.as_of.leading_zeros() >= TABLE_BITS;
        if has_room { self.as_of << TABLE_BITS | self.bits } else { 0 }
    }

    /// What a word says.
    pub(super) fn of_word(word: u64) -> EmptyTables {
        EmptyTables { as_of: word >> TABLE_BITS, bits: word & ((1 << TABLE_BITS) - 1) }
    }
}

fn bit(table: Table) -> u64 {
    1 << table as u32
}

#[cfg(test)]
mod tests {
    use super::EmptyTables;
    use crate::catalog::Table;

    #[test]
    fn a_word_is_believed_about_the_last_commit_alone() {
        let mut empty = EmptyTables::default().as_of(7);
        empty.add(Table::Queue);
        empty.add(Table::Transfers);
        empty.remove(Table::Transfers);
        let read = EmptyTables::of_word(empty.word());
        assert_eq!(read, empty);
        assert!(read.after(7).has(Table::Queue) && !read.after(7).has(Table::Transfers));
        assert!(!read.after(6).has(Table::Queue) && !read.after(8).has(Table::Queue));
    }

    #[test]
    fn an_id_without_room_in_the_word_leaves_nothing_known() {
        let mut empty = EmptyTables::default().as_of(1 << (u64::BITS - super::TABLE_BITS));
        empty.add(Table::Queue);
        assert_eq!(EmptyTables::of_word(empty.word()), EmptyTables::default());
    }
}
