//! Threads that search segments side by side.
//!
//! Each takes the next segment that nobody has taken, and keeps what it finds to itself until all
//! are done; then the parts of the answer are united. A segment has one searcher, and an object is
//! in one segment, so nothing is found twice.

use std::sync::Mutex;
use std::thread;

use super::answer::SegmentExplanation;
use super::compile::Node;
use super::eval::Searcher;
use super::goal::Goal;
use super::sealed::Piece;
use super::zones::Ready;
use crate::error::Result;
use crate::id::Oid;
use crate::realm::lock;

/// What a segment left open, and what became of it.
pub(crate) struct Found {
    /// Objects that only their records can judge.
    pub unsure: Vec<Oid>,
    /// What became of the segment.
    pub explanation: SegmentExplanation,
}

/// Searches one segment.
pub(crate) fn search<'t>(
    searcher: &Searcher<'_, 't>,
    node: &Node,
    goal: &mut Goal,
    piece: &mut Piece<'t>,
    worker: usize,
) -> Result<Found> {
    let mut marks = searcher.marks(node, piece)?;
    if let Some(hidden) = &piece.hidden {
        marks.must.and_not(hidden);
        marks.may.and_not(hidden);
    }
    goal.hits(piece, &marks.must)?;
    marks.may.and_not(&marks.must);
    let unsure: Vec<Oid> = marks.may.iter().filter_map(|at| piece.segment.oid(at)).collect();
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
    Ok(Found { unsure, explanation })
}

/// Searches segments whose parts are at hand, with so many threads.
pub(crate) fn share(
    threads: usize,
    ready: &[Option<Ready<'_>>],
    node: &Node,
    goal: &mut Goal,
    pieces: Vec<Piece<'_>>,
) -> Result<Vec<Found>> {
    if pieces.is_empty() {
        return Ok(Vec::new());
    }
    let queue = Mutex::new(pieces.into_iter());
    let part = goal.anew();
    let work = |worker: usize, mut goal: Goal| -> Result<(Goal, Vec<Found>)> {
        let searcher = Searcher::new(ready, None);
        let mut found = Vec::new();
        loop {
            let next = lock(&queue).next();
            let Some(mut piece) = next else { return Ok((goal, found)) };
            found.push(search(&searcher, node, &mut goal, &mut piece, worker)?);
        }
    };
    let done = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .map(|worker| {
                let part = part.anew();
                let work = &work;
                scope.spawn(move || work(worker, part))
            })
            .collect();
        let mut done = vec![work(0, part.anew())];
        for helper in helpers {
            done.push(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    let mut all = Vec::new();
    for part in done {
        let (theirs, mut found) = part?;
        goal.unite(theirs);
        all.append(&mut found);
    }
    Ok(all)
}
