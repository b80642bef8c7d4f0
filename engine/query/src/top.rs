//! The first so many of an order, without a look at all that is found.
//!
//! The first key of the order is a column. The best that a segment may have of it follows from its
//! zones, so segments are searched from the best on, until the last of the hits at hand is better
//! than all that a segment may have. Of each, only the rows that are among its own first are taken.
//!
//! The cells of a nearly unique key lie in runs, in order already: they are walked from the better
//! end, and each entry's segment says whether it is found. Of such a segment only the rows that are
//! in no run are left for the search by zones: those that lack the key, and those whose record
//! alone says what they have.
//!
//! *Invariant*: a segment is left out only where each of its rows comes after every hit at hand,
//! ties by OID included; what is in no segment is judged first, as in every search.

use std::collections::HashMap;

use super::compile::{About, Condition};
use super::eval::Searcher;
use super::goal::Goal;
use super::order::Sorter;
use super::run::Search;
use super::sealed::{Directory, PartSource, SearchedSegment};
use super::segments::{answer_groups, names_rule_out};
use super::workers;
use super::zones::{DirectoryPlaces, EVERY, How, NONE, PreparedLeaf};
use engram_base::error::Result;
use engram_base::id::Oid;
use engram_catalog::Table;
use engram_columns::cell::Cell;
use engram_columns::column_key::ColumnKey;
use engram_columns::runs::SortedRuns;
use engram_columns::segment::{Bitmap, ColumnEntry};
use engram_columns::zone::{
    ALL_PRESENT, IN_RUNS, MAX_EXACT, MIN_EXACT, NAN, UNSURE, Zone, ZoneClass, prefix,
};
use engram_columns::zones::{ColumnZones, SegmentZones, beside};

/// So many at most are found in this way: beyond, a look at all is as fast.
const WANTED_MAX: usize = 1 << 14;
/// So many entries of runs are walked for each object wanted, and so many at least, before what a
/// condition rules out is known to be too much.
const ENTRIES_PER_HIT: usize = 64;
const ENTRIES_LEAST: usize = 8192;

/// So many records are read for each object wanted, and so many at least, where a further key of
/// the order lies in runs: with more ties than these, a look at all that is found is the better
/// way.
const RECORDS_PER_HIT: usize = 16;
const RECORDS_LEAST: usize = 1024;

/// Where a cell is in an order, as far as a zone tells: lesser is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    rank: u8,
    word: u64,
}

/// What lacks a value comes last.
const ABSENT: Spot = Spot { rank: 5, word: 0 };

impl Spot {
    /// Of a rank in ascending order, and a prefix within it.
    fn new(rank: u8, word: u64, descending: bool) -> Self {
        if descending { Spot { rank: 4 - rank, word: !word } } else { Spot { rank, word } }
    }

    /// Where a hit's cell is, and whether every cell at the same spot equals it.
    pub(crate) fn of(cell: Option<&Cell<'_>>, descending: bool) -> (Self, bool) {
        let Some(cell) = cell else { return (ABSENT, true) };
        let rank = match cell {
            Cell::Int(_) | Cell::Big(_) => 0,
            Cell::Float(value) => u8::from(value.is_nan()),
            Cell::Time(_) | Cell::Far(_) => 2,
            Cell::Text(_) => 3,
            Cell::Other => 4,
        };
        let (word, exact) = match (prefix(cell), cell) {
            (Some(found), _) => found,
            (None, Cell::Far(far)) => (if far.is_before() { 0 } else { u64::MAX }, false),
            (None, _) => (0, true),
        };
        (Spot::new(rank, word, descending), exact)
    }
}

/// The best that a segment may have.
#[derive(Clone, Copy, Debug)]
struct Best {
    spot: Spot,
    /// Whether every cell at that spot equals the others there.
    exact: bool,
    /// The segment's place in the directory.
    place: usize,
    /// Whether its cells lie in runs, so that only the others are told of.
    rest: bool,
}

impl Best {
    fn of(place: usize, zones: &[Zone], descending: bool) -> Self {
        let rest = zones.first().is_some_and(|zone| zone.has(IN_RUNS));
        let mut best = Best { spot: ABSENT, exact: true, place, rest };
        let mut add = |rank, word, exact| {
            let spot = Spot::new(rank, word, descending);
            if spot < best.spot {
                (best.spot, best.exact) = (spot, exact);
            } else if spot == best.spot {
                best.exact &= exact;
            }
        };
        for zone in zones {
            if zone.has(UNSURE) {
                // A string, several values, an instant far away: no number.
                if descending { add(4, 0, false) } else { add(2, 0, false) }
            }
            if rest {
                continue;
            }
            if zone.has(NAN) {
                add(1, 0, true);
            }
            let (word, flag) =
                if descending { (zone.max, MAX_EXACT) } else { (zone.min, MIN_EXACT) };
            let ends = zone.min <= zone.max;
            match zone.class {
                ZoneClass::Number if ends => add(0, word, zone.has(flag)),
                ZoneClass::Time if ends => add(2, word, zone.has(flag)),
                ZoneClass::Text if ends => add(3, word, zone.has(flag)),
                ZoneClass::Other if zone.extra > 0 => add(4, 0, true),
                _ => {}
            }
        }
        best
    }

    /// Whether every row that it tells of is there, so that none comes last for want of a value.
    fn all_present(zones: &[Zone]) -> bool {
        zones.first().is_some_and(|zone| zone.has(ALL_PRESENT))
    }
}

/// A segment that was opened, with what is found in it.
struct OpenedSegment<'t> {
    piece: SearchedSegment<'t>,
    must: Bitmap,
    may: Bitmap,
}

impl<'a> Search<'a> {
    /// The first so many objects in the order asked for, unsorted among others; `None` where a look
    /// at all that is found is the better way.
    pub(super) fn first(&mut self, wanted: usize) -> Result<Option<Vec<Oid>>> {
        let plan = self.plan;
        let Some(About::Attr(_) | About::Name | About::Builtin(_)) = &plan.order[0].about else {
            return Ok(None);
        };
        let Some(How::Cells(key)) = plan.order[0].about.as_ref().map(How::of) else {
            return Ok(None);
        };
        if self.options.brute_force || wanted > WANTED_MAX {
            return Ok(None);
        }
        let mut best = Sorter::new(&plan.order, Some(wanted));
        if matches!(plan.node, Condition::Const(false)) {
            return Ok(Some(Vec::new()));
        }
        let before = (self.counts, self.trace.as_ref().map(Vec::len));
        let mut goal = Goal::Oids(Vec::new());
        let excluded = self.outside(&mut goal)?;
        let Goal::Oids(oids) = goal else { unreachable!("it asked for objects") };
        for oid in oids {
            self.add(&mut best, oid)?;
        }
        let directory = self.directories.of(self.peek.txn())?;
        let (ready, verdicts) = self.decide(&directory)?;
        self.explain_leaves(&ready);
        self.explain_skipped(&directory, &verdicts);
        let mut opening = Opening {
            key,
            descending: plan.order[0].descending,
            dead: self.peek.txn().entries(Table::IndexDead)? > 0,
            excluded,
            directory,
            ready,
            verdicts,
            opened: HashMap::new(),
        };
        let found = opening.walk(self, &mut best, wanted)?;
        if !found || !opening.by_zones(self, &mut best, wanted)? {
            // The other way begins anew.
            self.counts = before.0;
            if let (Some(trace), Some(len)) = (&mut self.trace, before.1) {
                trace.truncate(len);
            }
            return Ok(None);
        }
        Ok(Some(best.finish()))
    }

    /// Takes a hit by its record.
    fn add(&mut self, best: &mut Sorter<'_>, oid: Oid) -> Result<()> {
        self.counts.ordered += 1;
        self.with_record(oid, |judge, record| best.add(judge, oid, record))
    }

    /// Takes hits at some positions of a segment: by columns where these say what orders them.
    fn add_at(
        &mut self,
        best: &mut Sorter<'_>,
        piece: &mut SearchedSegment<'a>,
        positions: impl Iterator<Item = usize>,
        known: Option<&Cell<'_>>,
    ) -> Result<()> {
        let plan = self.plan;
        let source = PartSource(self.peek.txn());
        for at in positions {
            let Some(oid) = piece.segment.oid(at) else { continue };
            let mut cells = Vec::with_capacity(plan.order.len());
            for (nth, key) in plan.order.iter().enumerate() {
                if let (0, Some(known)) = (nth, known) {
                    cells.push(Some(known.clone().into_owned()));
                    continue;
                }
                let Some(about) = &key.about else {
                    cells.push(None);
                    continue;
                };
                let How::Cells(column) = How::of(about) else { break };
                let Some(entry) = piece.segment.column(column)? else {
                    cells.push(None);
                    continue;
                };
                piece.fetch(source, &entry)?;
                match piece.column(entry)?.cell(at)? {
                    None => cells.push(None),
                    Some(Some(cell)) => cells.push(Some(cell.into_owned())),
                    Some(None) => break,
                }
            }
            if cells.len() == plan.order.len() {
                best.add_cells(oid, cells);
            } else {
                self.add(best, oid)?;
            }
        }
        Ok(())
    }
}

/// Segments on their way to be searched.
struct Opening<'s, 'a> {
    key: ColumnKey,
    descending: bool,
    /// Whether any segment has dead rows.
    dead: bool,
    /// What was looked at elsewhere.
    excluded: Vec<Oid>,
    directory: std::sync::Arc<Directory>,
    ready: Vec<Option<PreparedLeaf<'s>>>,
    verdicts: Vec<u8>,
    /// What was opened for entries of runs, by place.
    opened: HashMap<usize, Option<OpenedSegment<'a>>>,
}

impl<'a> Opening<'a, 'a> {
    /// Opens a segment and searches it; `None` if nothing in it passes.
    fn open(&self, search: &mut Search<'a>, place: usize) -> Result<Option<OpenedSegment<'a>>> {
        let (txn, entry) = (search.peek.txn(), self.directory[place]);
        let mut piece = SearchedSegment::open(txn, entry, place)?;
        let number = entry.segment.to_be_bytes();
        let bytes = if self.dead { txn.get(Table::IndexDead, &number)? } else { None };
        piece.hide(bytes, &self.excluded)?;
        let node = &search.plan.search;
        if self.verdicts[place] == EVERY {
            let mut all = Bitmap::full(piece.segment.len());
            if let Some(hidden) = &piece.hidden {
                all.and_not(hidden);
            }
            search.explain(entry, "every object passes, by its zones", all.count() as u64);
            return Ok(Some(OpenedSegment { must: all.clone(), may: all, piece }));
        }
        let searcher = Searcher::new(&self.ready, Some(PartSource(txn)));
        if names_rule_out(&searcher, &self.ready, node, &mut piece)? {
            search.explain(entry, "no object passes, by its name", 0);
            return Ok(None);
        }
        answer_groups(&mut search.judge.groups, &self.ready, &mut piece, PartSource(txn))?;
        let mut goal = Goal::Bits(Vec::new());
        let found = workers::search(&searcher, node, &mut goal, &mut piece, 0)?;
        let Goal::Bits(mut bits) = goal else { unreachable!("it asked for bits") };
        let must = bits.pop().unwrap_or_else(|| Bitmap::new(piece.segment.len()));
        let mut may = must.clone();
        for oid in &found.unsure {
            piece.segment.position(*oid).into_iter().for_each(|at| may.insert(at));
        }
        if let Some(trace) = &mut search.trace {
            trace.push(found.explanation);
        }
        Ok((!may.is_empty()).then_some(OpenedSegment { piece, must, may }))
    }

    /// Walks the column's runs from the better end, as far as needed; `false` if that is too far.
    fn walk(
        &mut self,
        search: &mut Search<'a>,
        best: &mut Sorter<'_>,
        wanted: usize,
    ) -> Result<bool> {
        let runs = SortedRuns::read(search.peek.txn(), self.key)?;
        if runs.entries() == 0 {
            return Ok(true);
        }
        let directory = std::sync::Arc::clone(&self.directory);
        let places = DirectoryPlaces::new(&directory, 0);
        let most = match search.plan.search {
            Condition::Const(_) => usize::MAX,
            _ => wanted.saturating_mul(ENTRIES_PER_HIT).max(ENTRIES_LEAST),
        };
        let mut walk = runs.walk(self.descending)?;
        let mut walked = 0;
        while let Some(entry) = walk.next_entry()? {
            let spot = Spot::of(Some(&entry.cell), self.descending).0;
            let worse = |(cell, _)| Spot::of(cell, self.descending).0 < spot;
            // What the last of so many is has to be sorted out.
            if walked % (1 + wanted / 16) == 0 && best.worst().is_some_and(worse) {
                break;
            }
            walked += 1;
            if walked > most {
                return Ok(false);
            }
            let Some(place) = places.of(entry.segment) else { continue };
            if self.verdicts[place] == NONE {
                continue;
            }
            if !self.opened.contains_key(&place) {
                let opened = self.open(search, place)?;
                self.opened.insert(place, opened);
            }
            let Some(Some(opened)) = self.opened.get_mut(&place) else { continue };
            let at = usize::from(entry.position);
            if opened.must.contains(at) {
                let at = std::iter::once(at);
                search.add_at(best, &mut opened.piece, at, Some(&entry.cell))?;
            } else if opened.may.contains(at)
                && let Some(oid) = opened.piece.segment.oid(at)
            {
                search.counts.verified += 1;
                if search.finds(oid)? {
                    search.add(best, oid)?;
                }
            }
        }
        Ok(true)
    }

    /// The segments that may have what is better than the last of the hits at hand.
    fn candidates(&self, search: &mut Search<'a>, best: &mut Sorter<'_>) -> Result<Vec<Best>> {
        let worst = best.worst().map(|(cell, _)| Spot::of(cell, self.descending).0);
        let hopeless = |spot: Spot| worst.is_some_and(|worst| worst < spot);
        let mut told = vec![false; self.directory.len()];
        let (mut found, mut place) = (Vec::new(), 0);
        let zones = ColumnZones::read(search.peek.txn(), self.key)?;
        for row in zones.raw() {
            let mut at = 0;
            while at < row.len() {
                let same = beside(row, at);
                at = same.end;
                let zones = SegmentZones::decode(&row[same])?;
                let Some(Zone { segment, .. }) = zones.first().copied() else { continue };
                let ahead = &self.directory[place..];
                place += ahead.iter().take_while(|entry| entry.segment < segment).count();
                if self.directory.get(place).is_none_or(|entry| entry.segment != segment) {
                    continue;
                }
                told[place] = true;
                let of_segment = Best::of(place, &zones, self.descending);
                // What the walk has come by is not looked at again.
                let nothing_left =
                    of_segment.rest && of_segment.spot == ABSENT && Best::all_present(&zones);
                if self.verdicts[place] == NONE || nothing_left {
                    continue;
                }
                if hopeless(of_segment.spot) {
                    let why = "no object is among the first, by its zones";
                    search.explain(self.directory[place], why, 0);
                } else {
                    found.push(of_segment);
                }
            }
        }
        if !hopeless(ABSENT) {
            let others = told.iter().enumerate().filter(|(_, told)| !**told);
            let lacking = others.filter(|(place, _)| self.verdicts[*place] != NONE);
            found.extend(lacking.map(|(place, _)| Best::of(place, &[], self.descending)));
        }
        Ok(found)
    }

    /// Searches segments from the best on; `false` if too many of them tie.
    fn by_zones(
        &mut self,
        search: &mut Search<'a>,
        best: &mut Sorter<'_>,
        wanted: usize,
    ) -> Result<bool> {
        let most = wanted.saturating_mul(RECORDS_PER_HIT).max(RECORDS_LEAST) as u64;
        let most = search.counts.ordered.saturating_add(most);
        let mut order = self.candidates(search, best)?;
        order.sort_unstable_by_key(|best| (best.spot, self.directory[best.place].min));
        for (nth, of_segment) in order.iter().enumerate() {
            if let Some((cell, oid)) = best.worst() {
                let (worst, exact) = Spot::of(cell, self.descending);
                if worst < of_segment.spot {
                    for left in &order[nth..] {
                        let why = "no object is among the first, by its zones";
                        search.explain(self.directory[left.place], why, 0);
                    }
                    break;
                }
                let tied = worst == of_segment.spot && exact && of_segment.exact;
                let later = oid < self.directory[of_segment.place].min;
                if tied && later && search.plan.order.len() == 1 {
                    continue;
                }
            }
            let opened = match self.opened.remove(&of_segment.place) {
                Some(opened) => opened,
                None => self.open(search, of_segment.place)?,
            };
            if let Some(opened) = opened {
                self.take(search, best, wanted, opened)?;
            }
            if search.counts.ordered > most {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes what may be among the first of a segment's hits.
    fn take(
        &self,
        search: &mut Search<'a>,
        best: &mut Sorter<'_>,
        wanted: usize,
        opened: OpenedSegment<'a>,
    ) -> Result<()> {
        let OpenedSegment { mut piece, must, may } = opened;
        let mut unsure = may;
        unsure.and_not(&must);
        let entry = piece.segment.column(self.key)?;
        let in_runs = entry.as_ref().is_some_and(ColumnEntry::in_runs);
        let mut absent = must.clone();
        if let Some(entry) = entry {
            piece.fetch(PartSource(search.peek.txn()), &entry)?;
            let column = piece.column(entry)?;
            let sure = column.sure();
            if in_runs {
                // The walk has come by these.
                unsure.and_not(&sure);
            } else {
                let mut hits = must.clone();
                hits.and(&sure);
                let alone = search.plan.order.len() == 1;
                let places = match column.ranks()? {
                    Some(ranks) => {
                        first_ranks(&ranks, &sure, &hits, wanted, self.descending, alone)
                    }
                    None => hits.iter().collect(),
                };
                search.add_at(best, &mut piece, places.into_iter(), None)?;
            }
            let mut by_record = must;
            by_record.and(&column.unsure());
            search.add_at(best, &mut piece, by_record.iter(), None)?;
            absent.and_not(&column.presence());
        }
        let mut doubtful = Vec::new();
        piece.segment.oids_at(&unsure, &mut doubtful);
        search.counts.verified += doubtful.len() as u64;
        for oid in doubtful {
            if search.finds(oid)? {
                search.add(best, oid)?;
            }
        }
        if best.worst().is_none_or(|(cell, _)| cell.is_none()) {
            let most = if search.plan.order.len() == 1 { wanted } else { usize::MAX };
            search.add_at(best, &mut piece, absent.iter().take(most), None)?;
        }
        Ok(())
    }
}

/// The positions of the first so many hits, by the ranks of the sure rows; with all that tie with
/// the last, unless the order is of one key alone: then the first positions of these.
fn first_ranks(
    ranks: &[u64],
    sure: &Bitmap,
    hits: &Bitmap,
    wanted: usize,
    descending: bool,
    alone: bool,
) -> Vec<usize> {
    let word = |rank: u64| if descending { !rank } else { rank };
    let found: Vec<(u64, usize)> = if sure.is_full() {
        hits.iter().map(|at| (word(ranks[at]), at)).collect()
    } else {
        let all = sure.iter().zip(ranks);
        all.filter(|(at, _)| hits.contains(*at)).map(|(at, rank)| (word(*rank), at)).collect()
    };
    if found.len() <= wanted {
        return found.into_iter().map(|(_, at)| at).collect();
    }
    let mut words: Vec<u64> = found.iter().map(|(rank, _)| *rank).collect();
    let (before, last, _) = words.select_nth_unstable(wanted - 1);
    let last = *last;
    let ties = wanted - before.iter().filter(|rank| **rank < last).count();
    let mut left = if alone { ties } else { usize::MAX };
    let passes = |(rank, at): (u64, usize)| {
        if rank > last || rank == last && left == 0 {
            return None;
        }
        left -= usize::from(rank == last);
        Some(at)
    };
    found.into_iter().filter_map(passes).collect()
}

#[cfg(test)]
mod tests {
    use super::{Bitmap, first_ranks};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_of_a_segment_are_those_of_a_sorted_list(
            rows in prop::collection::vec((any::<bool>(), any::<bool>(), 0_u64..6), 1..200),
            wanted in 1_usize..20,
            descending: bool,
        ) {
            let (mut sure, mut hits) = (Bitmap::new(rows.len()), Bitmap::new(rows.len()));
            for (at, (is_sure, is_hit, _)) in rows.iter().enumerate() {
                if *is_sure {
                    sure.insert(at);
                    if *is_hit {
                        hits.insert(at);
                    }
                }
            }
            let ranks: Vec<u64> = sure.iter().map(|at| rows[at].2).collect();
            let mut sorted: Vec<(u64, usize)> = hits.iter().map(|at| (rows[at].2, at)).collect();
            sorted.sort_by_key(|(rank, at)| (if descending { 9 - rank } else { *rank }, *at));
            sorted.truncate(wanted);
            let mut first: Vec<usize> = sorted.iter().map(|(_, at)| *at).collect();
            first.sort_unstable();
            let found = first_ranks(&ranks, &sure, &hits, wanted, descending, true);
            prop_assert_eq!(&found, &first);
            let with_ties = first_ranks(&ranks, &sure, &hits, wanted, descending, false);
            let last = sorted.last().map(|(rank, _)| *rank);
            prop_assert!(first.iter().all(|at| with_ties.contains(at)));
            let is_tied = |at: &usize| first.contains(at) || last == Some(rows[*at].2);
            prop_assert!(with_ties.iter().all(is_tied));
        }
    }
}
