//! What was listed last, for the looks that follow: whoever lists a folder asks next what is known
//! of each of its entries.
//!
//! *Invariant*: what is remembered is so while the newest commit is the one as of which it was
//! listed, and is used then alone. What changes without a commit is not remembered: files with
//! heads, and folders, whose times are kept elsewhere.

use std::sync::Mutex;

use crate::folder::Entry;
use crate::fs::Ino;
use crate::known::lock;
use crate::stat::Stat;

/// So many entries are remembered at most: a program that sorts what it lists asks for them later.
const ENTRIES: usize = 1 << 13;

/// Entries of one folder, in byte order of their names, as of one commit.
#[derive(Default)]
struct LastListing {
    folder: Ino,
    commit: u64,
    entries: Vec<(Box<str>, Stat)>,
    /// Where the next look is expected.
    next: usize,
}

/// The entries that were listed last.
#[derive(Default)]
pub(crate) struct Listed(Mutex<LastListing>);

impl Listed {
    /// Remembers a part of a listing: what goes on from the part before is added to it.
    pub(crate) fn remember(&self, folder: Ino, commit: u64, part: &[Entry]) {
        let Some(mut last) = lock(&self.0) else { return };
        let first = part.first().map(|entry| entry.name.as_str());
        let goes_on = (last.folder, last.commit) == (folder, commit)
            && last.entries.last().is_some_and(|(name, _)| Some(&**name) < first);
        if !goes_on {
            *last = LastListing { folder, commit, ..LastListing::default() };
        }
        let over =
            (last.entries.len() + part.len()).saturating_sub(ENTRIES).min(last.entries.len());
        last.entries.drain(..over);
        last.next = last.next.saturating_sub(over);
        let kept = part.iter().filter_map(|entry| Some((&entry.name, entry.lasting()?)));
        last.entries.extend(kept.map(|(name, stat)| (name.as_str().into(), stat)));
    }

    /// What is known of a name in a folder, if it is remembered as of this commit.
    pub(crate) fn get(&self, folder: Ino, commit: u64, name: &str) -> Option<Stat> {
        let mut last = lock(&self.0)?;
        if (last.folder, last.commit) != (folder, commit) {
            return None;
        }
        let is_next = last.entries.get(last.next).is_some_and(|(next, _)| **next == *name);
        let at = if is_next {
            last.next
        } else {
            last.entries.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?
        };
        last.next = at + 1;
        Some(last.entries[at].1)
    }
}
