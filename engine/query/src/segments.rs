//! Sealed segments searched: zones rule most of them out, columns decide the rest, and records are
//! asked where columns cannot.
//!
//! The thread that reads the catalog opens segments. Where many are to be searched, it brings the
//! parts that they need to hand, which are bytes of the mapped catalog and stay while its
//! transaction does, and other threads search them with it. The work that needs the catalog stays
//! with the reader: which groups pass, and what records say.
//!
//! With a bound, segments are searched from the least OIDs on, until no later one can have less.

use std::cell::RefCell;

use super::answer::{Consistency, SegmentExplanation};
use super::compile::{About, Condition, leaves_of};
use super::eval::Searcher;
use super::goal::Goal;
use super::groups::Groups;
use super::run::Search;
use super::sealed::{PartSource, SearchedSegment, within};
use super::workers::{self, SegmentOutcome, THREADS_MAX};
use super::zones::{self, EVERY, How, NONE, PreparedLeaf, SOME};
use engram_base::error::{Error, Result};
use engram_base::id::Oid;
use engram_catalog::Table;
use engram_columns::cell::Cell;
use engram_columns::column_key::NAME;
use engram_columns::segment::Marks;
use engram_index::directory::SegmentEntry;

/// Segments beside one thread's before another one helps.
const SEGMENTS_PER_THREAD: usize = 24;
/// Objects of segments for a thread that a query asks for: a test of some thousand takes some us.
const ROWS_PER_THREAD: u64 = 1 << 14;

impl<'a> Search<'a> {
    /// Searches the segments. `excluded`, ascending, was looked at elsewhere.
    pub(super) fn segments(
        &mut self,
        goal: &mut Goal,
        bound: Option<usize>,
        excluded: &[Oid],
    ) -> Result<()> {
        let txn = self.peek.txn();
        let directory = self.directories.of(txn)?;
        if directory.is_empty() {
            return Ok(());
        }
        let (ready, verdicts) = self.decide(&directory)?;
        self.explain_leaves(&ready);
        self.explain_skipped(&directory, &verdicts);
        goal.prepare(txn, &directory, &verdicts)?;
        let mut order: Vec<usize> = (0..directory.len()).collect();
        order.retain(|place| verdicts[*place] != NONE);
        // Usually they are in order, and then what is found is.
        order.sort_by_key(|place| directory[*place].min);
        let rows = order.iter().map(|place| u64::from(directory[*place].rows)).sum();
        self.threads = self.helpful(order.len(), rows, bound);
        let dead = txn.entries(Table::IndexDead)? > 0;
        let searcher = Searcher::new(&ready, Some(PartSource(txn)));
        let (mut handed, mut vain) = (Vec::new(), Vec::new());
        for place in order {
            let entry = directory[place];
            if beyond(goal, bound, entry) {
                continue;
            }
            let bytes =
                if dead { txn.get(Table::IndexDead, &entry.segment.to_be_bytes())? } else { None };
            let untouched = bytes.is_none() && within(excluded, entry).is_empty();
            if let (Goal::Count(count), EVERY, true) = (&mut *goal, verdicts[place], untouched) {
                *count += u64::from(entry.rows);
                self.explain(entry, "every object passes, by its zones", u64::from(entry.rows));
                continue;
            }
            let mut piece = SearchedSegment::open(txn, entry, place)?;
            piece.hide(bytes, excluded)?;
            if names_rule_out(&searcher, &ready, &self.plan.search, &mut piece)? {
                self.explain(entry, "no object passes, by its name", 0);
                continue;
            }
            answer_groups(&mut self.judge.groups, &ready, &mut piece, PartSource(txn))?;
            if self.threads > 1 {
                self.bring(goal, &ready, &mut piece)?;
                handed.push(piece);
                continue;
            }
            self.bring(goal, &[], &mut piece)?;
            let found = workers::search(&searcher, &self.plan.search, goal, &mut piece, 0)?;
            vain.extend(found.is_vain().then_some(place));
            self.verify(goal, found)?;
        }
        for found in workers::share(self.threads, &ready, &self.plan.search, goal, handed)? {
            let segment = found.explanation.segment;
            let place = directory.binary_search_by_key(&segment, |entry| entry.segment).ok();
            vain.extend(place.filter(|_| found.is_vain()));
            self.verify(goal, found)?;
        }
        self.learn(&directory, &ready, &vain)
    }

    /// What can be said of segments without opening one: each leaf with what the index says of it,
    /// by number; and the verdict on each segment.
    pub(super) fn decide(
        &mut self,
        directory: &[SegmentEntry],
    ) -> Result<(Vec<Option<PreparedLeaf<'a>>>, Vec<u8>)> {
        let (plan, txn) = (self.plan, self.peek.txn());
        // What waits in the queue is as the index has it only where nothing but the index is asked.
        let current =
            self.options.consistency == Consistency::Strong || txn.entries(Table::Queue)? == 0;
        let mut leaves = Vec::new();
        leaves_of(&plan.search, &mut leaves);
        let mut ready: Vec<Option<PreparedLeaf<'_>>> = Vec::new();
        ready.resize_with(plan.leaves, || None);
        for leaf in leaves {
            let passing = match &leaf.about {
                About::Group(field) => self.judge.groups.passing(leaf, field)?,
                _ => None,
            };
            let mut leaf_ready = PreparedLeaf::new(txn, leaf, directory, passing)?;
            if !current {
                leaf_ready.doubt_groups();
            }
            ready[leaf.number] = Some(leaf_ready);
        }
        let mut verdicts = zones::verdicts(&plan.search, &ready, directory.len());
        for at in 0..ready.len() {
            let Some(leaf) = &mut ready[at] else { continue };
            // Names and runs are looked into where that can still rule something out.
            if verdicts.contains(&SOME)
                && (current && leaf.look_up(txn, directory, &verdicts)?
                    || leaf.consult_runs(txn, directory, &verdicts, self.options)?)
            {
                verdicts = zones::verdicts(&plan.search, &ready, directory.len());
            }
            let Some(leaf) = &mut ready[at] else { continue };
            if verdicts.contains(&SOME) && self.sift(leaf, directory, &verdicts) {
                verdicts = zones::verdicts(&plan.search, &ready, directory.len());
            }
        }
        Ok((ready, verdicts))
    }

    /// Rules segments out by what is remembered of them; whether there were any.
    fn sift(&self, leaf: &mut PreparedLeaf<'_>, directory: &[SegmentEntry], open: &[u8]) -> bool {
        let Some(sought) = leaf.sought() else { return false };
        self.directories.sieves.sift(&sought, directory, open, &mut leaf.verdicts)
    }

    /// Remembers what segments hold that were opened in vain, if tests of few values have opened
    /// them.
    fn learn(
        &self,
        directory: &[SegmentEntry],
        ready: &[Option<PreparedLeaf<'_>>],
        vain: &[usize],
    ) -> Result<()> {
        if vain.is_empty() {
            return Ok(());
        }
        let mut columns = Vec::new();
        for leaf in ready.iter().flatten() {
            if let (Some(sought), None) = (leaf.sought(), &leaf.named) {
                let open = vain.iter().filter(|place| leaf.verdicts[**place] == SOME);
                columns.extend(open.map(|place| (directory[*place], sought.column)));
            }
        }
        self.directories.sieves.learn(self.peek.txn(), directory, &columns)
    }

    /// How many threads are to search so many segments, which have so many objects.
    fn helpful(&self, segments: usize, rows: u64, bound: Option<usize>) -> usize {
        match (bound, self.options.threads) {
            (Some(_), _) => 1,
            (None, Some(threads)) => {
                let threads = workers::asked(self.options, threads, rows, ROWS_PER_THREAD);
                threads.min(segments).clamp(1, THREADS_MAX)
            }
            (None, None) if segments < 2 * SEGMENTS_PER_THREAD => 1,
            (None, None) => {
                workers::cores().min(segments / SEGMENTS_PER_THREAD).clamp(1, THREADS_MAX)
            }
        }
    }

    /// Asks records where columns could not tell.
    pub(super) fn verify(&mut self, goal: &mut Goal, found: SegmentOutcome) -> Result<()> {
        self.counts.verified += found.unsure.len() as u64;
        if let Some(trace) = &mut self.trace {
            trace.push(found.explanation);
        }
        found.unsure.into_iter().try_for_each(|oid| self.judge(goal, oid))
    }

    /// Brings to hand all parts that a thread without the catalog will need.
    fn bring(
        &mut self,
        goal: &Goal,
        ready: &[Option<PreparedLeaf<'_>>],
        piece: &mut SearchedSegment<'a>,
    ) -> Result<()> {
        let source = PartSource(self.peek.txn());
        let mut keys = goal.columns(piece)?;
        let undecided = ready.iter().flatten().filter(|r| r.verdicts[piece.place] == SOME);
        keys.extend(undecided.filter_map(|ready| ready.how.column()));
        for key in keys {
            if let Some(column) = piece.segment.column(key)? {
                piece.fetch(source, &column)?;
            }
        }
        Ok(())
    }

    pub(super) fn explain(&mut self, entry: SegmentEntry, why: &str, hits: u64) {
        let Some(trace) = &mut self.trace else { return };
        let (segment, family, objects) = (entry.segment, entry.family, entry.rows);
        let why = why.to_owned();
        trace.push(SegmentExplanation {
            segment,
            family,
            objects,
            why,
            hits,
            ..Default::default()
        });
    }

    pub(super) fn explain_leaves(&mut self, ready: &[Option<PreparedLeaf<'_>>]) {
        if self.trace.is_some() {
            self.leaves = ready.iter().flatten().map(|r| r.explain(&self.plan.texts)).collect();
        }
    }

    pub(super) fn explain_skipped(&mut self, directory: &[SegmentEntry], verdicts: &[u8]) {
        if self.trace.is_some() {
            for (entry, _) in directory.iter().zip(verdicts).filter(|(_, v)| **v == NONE) {
                self.explain(*entry, "no object passes, by its zones", 0);
            }
        }
    }
}

/// Whether a segment cannot have any of the least OIDs that are still wanted.
fn beyond(goal: &mut Goal, bound: Option<usize>, entry: SegmentEntry) -> bool {
    let (Goal::Oids(oids), Some(bound)) = (goal, bound) else { return false };
    if oids.len() < bound {
        return false;
    }
    if oids.len() > bound {
        oids.select_nth_unstable(bound - 1);
        oids.truncate(bound);
    }
    oids.iter().max().is_some_and(|greatest| *greatest < entry.min)
}

/// Whether names alone say that nothing passes, where groups would have to be judged. Leaves about
/// names are answered then.
pub(super) fn names_rule_out<'t>(
    searcher: &Searcher<'_, 't>,
    ready: &[Option<PreparedLeaf<'_>>],
    node: &Condition,
    piece: &mut SearchedSegment<'t>,
) -> Result<bool> {
    let open = || ready.iter().flatten().filter(|ready| ready.verdicts[piece.place] == SOME);
    let names: Vec<_> = open().filter(|ready| ready.how == How::Cells(NAME)).collect();
    if names.is_empty() || !open().any(|ready| matches!(ready.how, How::Group(_))) {
        return Ok(false);
    }
    for ready in names {
        let marks = searcher.leaf(ready.leaf, piece, None)?;
        piece.answered.push((ready.leaf.number, marks));
    }
    Ok(searcher.marks(node, piece)?.may.is_empty())
}

/// Answers the leaves about groups, of which a segment has few.
pub(super) fn answer_groups<'t>(
    groups: &mut Groups<'_>,
    ready: &[Option<PreparedLeaf<'_>>],
    piece: &mut SearchedSegment<'t>,
    source: PartSource<'t>,
) -> Result<()> {
    for ready in ready.iter().flatten() {
        let (How::Group(field), SOME) = (&ready.how, ready.verdicts[piece.place]) else { continue };
        if ready.passing.is_some() {
            continue; // columns answer that
        }
        let Some(key) = ready.how.column() else { continue };
        let Some(entry) = piece.segment.column(key)? else { continue };
        piece.fetch(source, &entry)?;
        let state = RefCell::new((&mut *groups, None::<Error>));
        let marks = piece.column(entry)?.test(
            &|cell| {
                let (groups, failed) = &mut *state.borrow_mut();
                let gid = match cell {
                    Cell::Int(gid) => *gid as u64,
                    Cell::Big(gid) => *gid,
                    _ => return false,
                };
                groups.judge_sealed(ready.leaf, field, gid).unwrap_or_else(|error| {
                    *failed = Some(error);
                    false
                })
            },
            None,
        )?;
        if let Some(error) = state.into_inner().1 {
            return Err(error);
        }
        let Marks { must, may } = marks;
        piece.answered.push((ready.leaf.number, Marks { must, may }));
    }
    Ok(())
}
