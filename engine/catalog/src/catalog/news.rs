//! News: which objects the last commits have changed, for watchers.
//!
//! A process that watches is woken by a bell (`engram_media::bell`) in the growth page, and asks
//! then which objects the commits since its last look have put or removed. So it judges these
//! alone, and does not run its query over all. The answers are in the growth page, too: a *note*
//! for each of the last commits, at the place that its id modulo [`NOTES`] says, and a ring of ids
//! for commits of several objects.
//!
//! A note is two words. The first is the commit's id and, in the lower 16 bits, of how many objects
//! it tells: 0, 1 or more, or [`WHOLE`], by which it says that anything may be different. The
//! second is the object's id, or the place in the ring from which on the ids lie: a number that
//! only grows.
//!
//! Notes are stored under the writer lock, before LMDB commits. *Invariant*: a commit whose id is
//! visible has its note there, or a note of another id is. A writer that dies in between leaves a
//! note of an id that no commit has, and the next writer gets that id, and stores its own. So a
//! note is believed of the id that it has, and where it has another (the commit was long ago, or of
//! an engine that makes no notes), nothing is known, and a watcher looks at everything. (The one
//! exception: an engine without notes commits next after a writer that died between note and
//! commit. What that commit changed is then seen with the next look at everything.)
//!
//! A reader takes no lock. It reads the first word before and after the second, which the writer
//! clears first; and after it has read ids in the ring, it looks how far the ring has gone on.
//!
//! What is no news: a group that comes or goes changes no object. A group whose record changes (its
//! name, its attributes, the group above it) may change what a query says of every object below, so
//! that is `WHOLE`.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::Table;

/// How many commits have notes.
pub(super) const NOTES: usize = 128;
/// How many ids the ring has room for.
pub(super) const RING: usize = 128;
/// A commit of more objects says that anything may be different.
const TOLD_MAX: usize = 96;
const WHOLE: u64 = 0xFFFF;
const COUNT_BITS: u32 = 16;

/// The words, as they lie in the growth page.
#[derive(Debug)]
#[repr(C)]
pub(super) struct News {
    notes: [[AtomicU64; 2]; NOTES],
    ring: [AtomicU64; RING],
}

/// What a transaction has changed so far.
#[derive(Debug, Default)]
pub(super) struct Changed {
    count: usize,
    first: u64,
    more: Vec<u64>,
    whole: bool,
}

impl Changed {
    /// Takes down that a row was put or removed.
    #[inline]
    pub(super) fn note(&mut self, table: Table, key: &[u8]) {
        if table == Table::Objects
            && let Ok(key) = <[u8; 8]>::try_from(key)
        {
            self.object(u64::from_be_bytes(key));
        }
    }

    /// Takes down that anything may be different.
    pub(super) fn note_whole(&mut self) {
        self.whole = true;
        self.more = Vec::new();
    }

    /// Whether there is anything to tell.
    pub(super) fn is_any(&self) -> bool {
        self.whole || self.count > 0
    }

    fn object(&mut self, id: u64) {
        let last = self.more.last().copied().unwrap_or(self.first);
        if self.whole || self.count > 0 && last == id {
            return;
        }
        match self.count {
            0 => self.first = id,
            1..TOLD_MAX => self.more.push(id),
            _ => return self.note_whole(),
        }
        self.count += 1;
    }
}

impl News {
    /// Tells what the commit of this id changes. The caller has the writer lock; `head` is how far
    /// the ring has gone.
    pub(super) fn tell(&self, head: &AtomicU64, id: u64, changed: &Changed) {
        let count = if changed.whole { WHOLE } else { changed.count as u64 };
        let mut second = changed.first;
        if !changed.whole && changed.count > 1 {
            second = head.load(Ordering::Relaxed);
            head.store(second.wrapping_add(changed.count as u64), Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let all = std::iter::once(&changed.first).chain(&changed.more);
            for (place, object) in (second..).zip(all) {
                self.ring[place as usize % RING].store(*object, Ordering::Relaxed);
            }
        }
        let [tag, about] = &self.notes[id as usize % NOTES];
        tag.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        about.store(second, Ordering::Relaxed);
        tag.store(id << COUNT_BITS | count, Ordering::Release);
    }

    /// The objects that the commits after one and up to another have put or removed, in that order,
    /// some more than once. `None` if that is not known, or anything may be different.
    pub(super) fn between(&self, head: &AtomicU64, after: u64, upto: u64) -> Option<Vec<u64>> {
        if upto.checked_sub(after)? > NOTES as u64 {
            return None;
        }
        let mut all = Vec::new();
        for id in after + 1..=upto {
            self.of(head, id, &mut all)?;
        }
        Some(all)
    }

    fn of(&self, head: &AtomicU64, id: u64, all: &mut Vec<u64>) -> Option<()> {
        let [tag, about] = &self.notes[id as usize % NOTES];
        let first = tag.load(Ordering::Acquire);
        let second = about.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let same = tag.load(Ordering::Relaxed) == first;
        if !same || first >> COUNT_BITS != id << COUNT_BITS >> COUNT_BITS {
            return None;
        }
        match first & WHOLE {
            WHOLE => return None,
            0 => {}
            1 => all.push(second),
            many => {
                let places = second..second.wrapping_add(many);
                all.extend(places.map(|at| self.ring[at as usize % RING].load(Ordering::Relaxed)));
                fence(Ordering::SeqCst);
                if head.load(Ordering::Relaxed).wrapping_sub(second) > RING as u64 {
                    return None;
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Changed, NOTES, News, TOLD_MAX};
    use crate::catalog::Table;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn news() -> News {
        News {
            notes: [const { [const { AtomicU64::new(0) }; 2] }; NOTES],
            ring: [const { AtomicU64::new(0) }; super::RING],
        }
    }

    fn of(ids: impl IntoIterator<Item = u64>) -> Changed {
        let mut changed = Changed::default();
        ids.into_iter().for_each(|id| changed.note(Table::Objects, &id.to_be_bytes()));
        changed
    }

    #[test]
    fn what_commits_have_told_is_told_in_their_order() {
        let (news, head) = (news(), AtomicU64::new(0));
        news.tell(&head, 7, &of([5, 5]));
        news.tell(&head, 8, &Changed::default());
        news.tell(&head, 9, &of([3, 9, 3]));
        assert_eq!(news.between(&head, 6, 9), Some(vec![5, 3, 9, 3]));
        assert_eq!(news.between(&head, 9, 9), Some(vec![]));
        assert_eq!(news.between(&head, 5, 9), None, "of commit 6 there is no note");
        assert_eq!(news.between(&head, 8, 10), None);
        assert_eq!(news.between(&head, 9, 8), None, "a look beyond the last commit tells nothing");
    }

    #[test]
    fn what_is_too_much_or_no_object_is_anything() {
        let (news, head) = (news(), AtomicU64::new(0));
        let mut whole = of([1]);
        whole.note_whole();
        whole.note(Table::Objects, &[0; 8]);
        for (id, changed) in
            [of(0..TOLD_MAX as u64), of(0..=TOLD_MAX as u64), whole].iter().enumerate()
        {
            news.tell(&head, id as u64, changed);
        }
        assert_eq!(news.between(&head, 0, 0), Some(vec![]));
        assert_eq!(news.of(&head, 0, &mut Vec::new()), Some(()));
        assert_eq!((news.between(&head, 0, 1), news.between(&head, 1, 2)), (None, None));
        assert!(!of([]).is_any() && of([1]).is_any());
        let mut other = Changed::default();
        other.note(Table::Names, &[0; 8]);
        assert!(!other.is_any());
    }

    #[test]
    fn what_has_been_overwritten_is_not_told() {
        let (news, head) = (news(), AtomicU64::new(0));
        for id in 1..=2 * NOTES as u64 {
            news.tell(&head, id, &of([id]));
        }
        let last = 2 * NOTES as u64;
        assert_eq!(news.between(&head, last - NOTES as u64 - 1, last), None);
        let all = news.between(&head, last - NOTES as u64, last).expect("all notes are there");
        assert_eq!(all.len(), NOTES);
        // The ring has less room than the notes have.
        news.tell(&head, last + 1, &of(0..60));
        news.tell(&head, last + 2, &of(100..160));
        assert_eq!(news.between(&head, last, last + 2).map(|all| all.len()), Some(120));
        news.tell(&head, last + 3, &of(200..209));
        assert_eq!(news.between(&head, last, last + 3), None);
        assert_eq!(news.between(&head, last + 1, last + 3).map(|all| all.len()), Some(69));
    }

    #[test]
    fn a_reader_beside_a_writer_is_told_what_is_so_or_nothing() {
        let (news, head) = (news(), AtomicU64::new(0));
        let (done, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        // However busy the processors are, the reader is told of the commits between two of these:
        // the writer waits at each until it has looked, and at the next until it has looked again.
        let waits = |id: u64| matches!(id % 1000, 1 | 4);
        // Commit `id` changes as many objects as its lower bits say, all of them called by it.
        let objects = |id: u64| (0..id % 40).map(move |at| id << 8 | at);
        let commits = 200_000;
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut at, mut told) = (0, 0);
                while at < commits {
                    let upto = done.load(Ordering::Acquire);
                    if let Some(all) = news.between(&head, at, upto) {
                        let expected: Vec<u64> = (at + 1..=upto).flat_map(objects).collect();
                        assert_eq!(all, expected);
                        told += u64::from(upto > at);
                    }
                    at = upto;
                    seen.store(at, Ordering::Release);
                    std::thread::yield_now();
                }
                assert!(told >= commits / 1000, "it was told something {told} times");
            });
            for id in 1..=commits {
                news.tell(&head, id, &of(objects(id)));
                done.store(id, Ordering::Release);
                while waits(id) && seen.load(Ordering::Acquire) < id && !reader.is_finished() {
                    std::thread::yield_now();
                }
            }
        });
    }
}
