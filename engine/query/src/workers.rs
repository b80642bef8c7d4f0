//! Threads that search segments side by side.
//!
//! Each takes the next segment that nobody has taken, and keeps what it finds to itself until all
//! are done; then the parts of the answer are united. A segment has one searcher, and an object is
//! in one segment, so nothing is found twice.

use std::sync::Mutex;
use std::thread;

use super::answer::{QueryOptions, SegmentExplanation};
use super::compile::Condition;
use super::eval::Searcher;
use super::goal::Goal;
use super::sealed::SearchedSegment;
use super::zones::PreparedLeaf;
use engram_base::error::Result;
use engram_base::id::Oid;
use engram_base::mutex::lock;
use engram_columns::segment::{Bitmap, Segment};

/// So many threads at most.
pub(crate) const THREADS_MAX: usize = 64;

/// How many threads this process may run at once.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// How many of the threads that a query asks for share so much work: a thread is started only where
/// there is `worth` for it, beside what the others have, since it takes 50 us to start one.
pub(crate) fn asked(options: &QueryOptions, threads: usize, work: u64, worth: u64) -> usize {
    if options.threads_for_little {
        return threads;
    }
    threads.min(usize::try_from(work / worth).unwrap_or(usize::MAX).max(1))
}

/// What a segment left open, and what became of it.
pub(crate) struct SegmentOutcome {
    /// Objects that only their records can judge.
    pub unsure: Vec<Oid>,
    /// What became of the segment.
    pub explanation: SegmentExplanation,
}

impl SegmentOutcome {
    /// Whether the segment was searched for nothing.
    pub(crate) fn is_vain(&self) -> bool {
        self.explanation.hits == 0 && self.unsure.is_empty()
    }
}

/// Searches one segment.
pub(crate) fn search<'t>(
    searcher: &Searcher<'_, 't>,
    node: &Condition,
    goal: &mut Goal,
    piece: &mut SearchedSegment<'t>,
    worker: usize,
) -> Result<SegmentOutcome> {
    let mut marks = searcher.marks(node, piece)?;
    if let Some(hidden) = &piece.hidden {
        marks.must.and_not(hidden);
        marks.may.and_not(hidden);
    }
    let left = goal.hits(piece, &marks.must)?;
    marks.may.and_not(&marks.must);
    if let Some(left) = left {
        // They pass, and their records say what is asked of them.
        marks.must.and_not(&left);
        marks.may.or(&left);
    }
    let mut unsure = Vec::new();
    piece.segment.oids_at(&marks.may, &mut unsure);
    let explanation = SegmentExplanation {
        segment: piece.entry.segment,
        family: piece.entry.family,
        objects: piece.entry.rows,
        read: true,
        why: String::new(),
        blocks: piece.parts(),
        bytes: piece.bytes,
        worker,
        hits: marks.must.count() as u64,
        verified: unsure.len() as u64,
    };
    Ok(SegmentOutcome { unsure, explanation })
}

/// Searches segments whose parts are at hand, with so many threads. Objects found come in the order
/// of the segments.
pub(crate) fn share(
    threads: usize,
    ready: &[Option<PreparedLeaf<'_>>],
    node: &Condition,
    goal: &mut Goal,
    pieces: Vec<SearchedSegment<'_>>,
) -> Result<Vec<SegmentOutcome>> {
    if pieces.is_empty() {
        return Ok(Vec::new());
    }
    let queue = Mutex::new(pieces.into_iter().enumerate());
    let part = match goal {
        Goal::Oids(_) => Goal::Bits(Vec::new()),
        _ => goal.anew(),
    };
    let done = side_by_side(threads, &|worker| {
        let searcher = Searcher::new(ready, None);
        let (mut goal, mut found, mut searched) = (part.anew(), Vec::new(), Vec::new());
        loop {
            let next = lock(&queue).next();
            let Some((place, mut piece)) = next else { return Ok((goal, found, searched)) };
            found.push(search(&searcher, node, &mut goal, &mut piece, worker)?);
            if let Goal::Bits(bits) = &mut goal {
                searched.extend(bits.pop().map(|hits| (place, piece.segment, hits)));
            }
        }
    })?;
    let (mut all, mut segments) = (Vec::new(), Vec::new());
    for (theirs, mut found, mut searched) in done {
        if !matches!(theirs, Goal::Bits(_)) {
            goal.unite(theirs)?;
        }
        all.append(&mut found);
        segments.append(&mut searched);
    }
    if let Goal::Oids(oids) = goal {
        segments.sort_unstable_by_key(|(place, ..)| *place);
        list(threads, oids, &segments)?;
    }
    Ok(all)
}

/// Appends the OIDs of hits, each thread its part of them: fresh memory is slow to touch.
fn list(threads: usize, oids: &mut Vec<Oid>, hits: &[(usize, Segment<'_>, Bitmap)]) -> Result<()> {
    let total: usize = hits.iter().map(|(_, _, hits)| hits.count()).sum();
    let mut all = vec![0; total];
    let (mut rest, mut parts) = (all.as_mut_slice(), Vec::with_capacity(hits.len()));
    for (_, segment, hits) in hits {
        let (part, after) = rest.split_at_mut(hits.count());
        rest = after;
        parts.push((segment, hits, part));
    }
    let parts = Mutex::new(parts.into_iter());
    side_by_side(threads, &|_| {
        let mut of_segment = Vec::new();
        loop {
            let next = lock(&parts).next();
            let Some((segment, hits, part)) = next else { return Ok(()) };
            of_segment.clear();
            segment.oids_at(hits, &mut of_segment);
            part.copy_from_slice(&of_segment);
        }
    })?;
    if oids.is_empty() {
        *oids = all;
    } else {
        oids.append(&mut all);
    }
    Ok(())
}

/// Runs the same work in so many threads, this one among them; returns the result of each.
pub(crate) fn side_by_side<T: Send>(
    threads: usize,
    work: &(dyn Fn(usize) -> Result<T> + Sync),
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let helpers: Vec<_> =
            (1..threads).map(|worker| scope.spawn(move || work(worker))).collect();
        let mut done = vec![work(0)];
        for helper in helpers {
            done.push(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done.into_iter().collect()
    })
}
