//! Sieves: what a column of one segment holds, remembered where segments were opened in vain.
//!
//! A zone says between which values a column lies. Of values that are hardly ever the same that is
//! next to nothing: each small segment, whose values are in no run yet, is opened for each value
//! that is asked for. Splits make many families, and each has small segments of its own. So where a
//! test of few values has opened a segment twice and found nothing, the column is read once and its
//! values are remembered: the prefixes of numbers and times, in order, and hashes of strings. The
//! next test looks among them first.
//!
//! *Invariant*: a sieve lets through whatever the column may hold. A segment never changes once it
//! is written, and its number is never given again, so a sieve is right for as long as it is kept,
//! in every snapshot.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use super::sealed::part;
use super::zones::{NONE, SOME};
use engram_base::error::Result;
use engram_base::mutex::lock;
use engram_catalog::ReadTxn;
use engram_columns::cell::Cell;
use engram_columns::column_key::ColumnKey;
use engram_columns::segment::{Column, Segment};
use engram_columns::zone::prefix;
use engram_index::directory::SegmentEntry;

/// So many sieves at most are made after one query.
const MADE_MAX: usize = 8;
/// So many words in all are remembered: 16 MiB.
const WORDS_MAX: usize = 1 << 21;
/// So many columns of segments.
const COLUMNS_MAX: usize = 1 << 16;

/// What a test lets pass, if that is little: windows of prefixes, and strings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sought {
    /// The column.
    pub column: ColumnKey,
    /// Numbers, in order.
    pub numbers: Vec<(u64, u64)>,
    /// Times, in order.
    pub times: Vec<(u64, u64)>,
    /// Strings.
    pub texts: Vec<String>,
}

/// What a column holds.
#[derive(Debug, Default)]
struct Sieve {
    /// It may hold anything.
    any: bool,
    numbers: Box<[u64]>,
    times: Box<[u64]>,
    texts: Box<[u64]>,
}

impl Sieve {
    fn words(&self) -> usize {
        self.numbers.len() + self.times.len() + self.texts.len()
    }

    fn passes(&self, sought: &Sought, texts: &[u64]) -> bool {
        let within = |words: &[u64], windows: &[(u64, u64)]| {
            windows.iter().any(|(low, high)| {
                let at = words.partition_point(|word| word < low);
                words.get(at).is_some_and(|word| word <= high)
            })
        };
        self.any
            || within(&self.numbers, &sought.numbers)
            || within(&self.times, &sought.times)
            || texts.iter().any(|text| self.texts.binary_search(text).is_ok())
    }
}

/// What is known of a column of a segment.
#[derive(Debug)]
enum KnownColumn {
    /// It was opened once in vain.
    Vain,
    /// What it holds.
    Holds(Sieve),
}

/// The sieves of a process.
#[derive(Debug, Default)]
pub(crate) struct Sieves {
    hash: RandomState,
    kept: Mutex<KeptSieves>,
}

#[derive(Debug, Default)]
struct KeptSieves {
    known: HashMap<(u32, ColumnKey), KnownColumn>,
    words: usize,
}

impl Sieves {
    /// Gives the verdict that nothing passes on open segments of which that is known; whether there
    /// were any.
    pub(crate) fn sift(
        &self,
        sought: &Sought,
        directory: &[SegmentEntry],
        open: &[u8],
        verdicts: &mut [u8],
    ) -> bool {
        let kept = lock(&self.kept);
        if kept.words == 0 {
            return false;
        }
        let texts: Vec<u64> = sought.texts.iter().map(|text| self.hash.hash_one(text)).collect();
        let mut any = false;
        for (place, entry) in directory.iter().enumerate() {
            if open[place] == SOME
                && verdicts[place] == SOME
                && let Some(KnownColumn::Holds(sieve)) =
                    kept.known.get(&(entry.segment, sought.column))
                && !sieve.passes(sought, &texts)
            {
                (verdicts[place], any) = (NONE, true);
            }
        }
        any
    }

    /// Takes down that columns of segments were looked through in vain, and reads those that were
    /// so before.
    pub(crate) fn learn(
        &self,
        txn: &ReadTxn<'_>,
        directory: &[SegmentEntry],
        vain: &[(SegmentEntry, ColumnKey)],
    ) -> Result<()> {
        let mut due = Vec::new();
        {
            let mut kept = lock(&self.kept);
            for (entry, column) in vain {
                let of = (entry.segment, *column);
                match kept.known.get(&of).map(|known| matches!(known, KnownColumn::Vain)) {
                    Some(true) if due.len() < MADE_MAX => due.push((*entry, *column)),
                    Some(_) => {}
                    None => {
                        if kept.known.len() >= COLUMNS_MAX {
                            *kept = KeptSieves::default();
                        }
                        kept.known.insert(of, KnownColumn::Vain);
                    }
                }
            }
        }
        for (entry, column) in due {
            let sieve = self.read(txn, entry, column)?;
            self.keep(directory, entry.segment, column, sieve);
        }
        Ok(())
    }

    fn keep(&self, directory: &[SegmentEntry], segment: u32, column: ColumnKey, sieve: Sieve) {
        let mut kept = lock(&self.kept);
        let KeptSieves { known, words } = &mut *kept;
        // One that holds nothing is one, too.
        let added = sieve.words().max(1);
        if *words + added > WORDS_MAX || known.len() >= COLUMNS_MAX {
            let living: HashSet<u32> = directory.iter().map(|entry| entry.segment).collect();
            known.retain(|(segment, _), _| living.contains(segment));
            *words = held(known);
        }
        if *words + added > WORDS_MAX || known.len() >= COLUMNS_MAX {
            known.clear();
            *words = 0;
        }
        *words += added;
        known.insert((segment, column), KnownColumn::Holds(sieve));
    }

    /// Reads what a column holds.
    fn read(&self, txn: &ReadTxn<'_>, entry: SegmentEntry, key: ColumnKey) -> Result<Sieve> {
        let head = Segment::parse(part(txn, entry.segment, 0)?)?;
        let Some(column) = head.column(key)? else { return Ok(Sieve::default()) };
        let cells = Column::parse(&column, part(txn, entry.segment, column.part)?)?;
        let any = cells.in_runs() || column.has_unsure();
        let words = RefCell::new((any, [const { Vec::new() }; 3]));
        cells.test(
            &|cell| {
                let (any, [numbers, times, texts]) = &mut *words.borrow_mut();
                match (cell, prefix(cell)) {
                    (Cell::Text(text), _) => texts.push(self.hash.hash_one(&**text)),
                    (Cell::Time(_), Some((word, _))) => times.push(word),
                    (_, Some((word, _))) => numbers.push(word),
                    // What compares with nothing passes no window.
                    (Cell::Other | Cell::Float(_), None) => {}
                    (_, None) => *any = true,
                }
                false
            },
            None,
        )?;
        let (any, words) = words.into_inner();
        let [numbers, times, texts] = words.map(|mut words: Vec<u64>| {
            words.sort_unstable();
            words.dedup();
            words.into_boxed_slice()
        });
        Ok(Sieve { any, numbers, times, texts })
    }
}

fn held(known: &HashMap<(u32, ColumnKey), KnownColumn>) -> usize {
    let sieves = known.values().map(|known| match known {
        KnownColumn::Vain => 0,
        KnownColumn::Holds(sieve) => sieve.words().max(1),
    });
    sieves.sum()
}
