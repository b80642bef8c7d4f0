//! Names that pass a test, as numbers: each distinct name is looked at once, however many objects
//! have it.

use std::ops::Bound;

use super::predicate::{Class, Predicate};
use crate::catalog::{ReadTxn, Table};
use crate::error::Result;
use crate::fail;
use crate::index::cell::Cell;

/// What a name's row begins with.
const NAME_ROW: u8 = b'n';

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
        for range in predicate.ranges(Class::Text) {
            let low = match &range.low {
                Bound::Included(Cell::Text(low)) | Bound::Excluded(Cell::Text(low)) => {
                    low.as_bytes()
                }
                _ => &[],
            };
            let high = match &range.high {
                Bound::Included(Cell::Text(high)) | Bound::Excluded(Cell::Text(high)) => {
                    Some(high.as_bytes())
                }
                _ => None,
            };
            // No name, and so no row, is longer than what a key takes.
            let low = &low[..low.len().min(crate::name::NAME_BYTES_MAX)];
            let mut cursor = txn.seek(Table::IndexNames, &[&[NAME_ROW], low].concat())?;
            while let Some((key, row)) = cursor.next()? {
                let Some((&NAME_ROW, name)) = key.split_first() else { break };
                if high.is_some_and(|high| name > high) {
                    break;
                }
                let Ok(name) = std::str::from_utf8(name) else {
                    fail!(Corrupt, "a name in `index_names` is not UTF-8")
                };
                if predicate.cell(&Cell::Text(name.into())) {
                    let Ok(number) = <[u8; 4]>::try_from(row) else {
                        fail!(Corrupt, "the number of the name {name:?} has {} bytes", row.len())
                    };
                    set.insert(u32::from_le_bytes(number))?;
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
