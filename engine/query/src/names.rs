//! Names that pass a test, as numbers: each distinct name is looked at once, however many objects
//! have it.

use std::ops::Bound;

use super::predicate::{CellClass, Predicate};
use engram_base::error::Result;
use engram_base::fail;
use engram_catalog::ReadTxn;
use engram_columns::cell::Cell;
use engram_index::names;

/// The numbers of names.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameSet {
    /// 64 numbers each, least first.
    words: Vec<u64>,
    len: usize,
}

impl NameSet {
    /// The names that pass.
    pub(crate) fn passing(txn: &ReadTxn<'_>, predicate: &Predicate) -> Result<Self> {
        let mut set = NameSet::default();
        let mut test = |name: &str, number: u32| {
            if predicate.cell(&Cell::Text(name.into())) { set.insert(number) } else { Ok(()) }
        };
        for range in predicate.ranges(CellClass::Text) {
            let text = |bound: &Bound<Cell<'static>>| match bound {
                Bound::Included(Cell::Text(text)) | Bound::Excluded(Cell::Text(text)) => {
                    Some(text.to_string())
                }
                _ => None,
            };
            match (text(&range.low), text(&range.high)) {
                (None, None) => names::each_with(txn, &predicate.parts(), &mut test)?,
                (low, high) => {
                    names::each(txn, &low.unwrap_or_default(), high.as_deref(), &mut test)?;
                }
            }
        }
        Ok(set)
    }

    fn insert(&mut self, number: u32) -> Result<()> {
        const NAMES_MAX: usize = 1 << 28;
        let word = number as usize / 64;
        if word >= NAMES_MAX / 64 {
            fail!(Corrupt, "a name has the number {number}: run verify");
        }
        if word >= self.words.len() {
            self.words.resize((word + 1).max(2 * self.words.len()), 0);
        }
        let bit = 1 << (number % 64);
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
        Ok(())
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether a cell of the column of names is one of them.
    pub(crate) fn holds(&self, cell: &Cell<'_>) -> bool {
        let Cell::Int(number) = cell else { return false };
        let word = usize::try_from(*number / 64).ok().and_then(|word| self.words.get(word));
        word.is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    /// The numbers, ascending.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        let bits = self.words.iter().enumerate();
        bits.flat_map(|(place, word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| place as u64 * 64 + bit)
        })
    }
}
