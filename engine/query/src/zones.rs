//! Zones: which segments a query need not open, and which it finds whole.
//!
//! For each leaf the zones of its column give every segment one of three verdicts: no row of it
//! can pass, every row does, or perhaps some. Verdicts combine as the query does: *all of* is the
//! least, *any of* the greatest, *not* turns none into every.

use std::sync::Mutex;

use super::answer::{LeafExplanation, QueryOptions};
use super::compile::{About, Condition, GroupField, Leaf};
use super::groups::Passing;
use super::predicate::{self, Predicate};
use super::record::Users;
use super::run_hits::{self, RunHits};
use super::sealed::within;
use super::sieves::Sought;
use super::workers::{self, THREADS_MAX, side_by_side};
use crate::ast::Builtin;
use engram_base::error::{Error, Result};
use engram_base::id::{Gid, Member, NameKey, Oid, id_of_key};
use engram_base::mutex::lock;
use engram_base::name::Name;
use engram_catalog::{ReadTxn, Table};
use engram_columns::cell::Cell;
use engram_columns::column_key::{
    CREATED, ColumnKey, DTYPE, GROUP, NAME, NBYTES, NDIM, OWNER, SHAPE, SIZE, unsigned,
};
use engram_columns::range::{Bound, Range};
use engram_columns::runs::{RunTest, SortedRuns};
use engram_columns::segment::{Bitmap, SoughtTexts};
use engram_columns::zone;
use engram_columns::zone::{
    ALL_PRESENT, IN_RUNS, NAN, SOLE, UNSURE, ZONE_BYTES, Zone, ZoneClass, prefix,
};
use engram_columns::zones::{ColumnZones, SegmentZones, beside};
use engram_index::directory::SegmentEntry;

/// No row passes.
pub(crate) const NONE: u8 = 0;
/// Perhaps some do.
pub(crate) const SOME: u8 = 1;
/// Every row does.
pub(crate) const EVERY: u8 = 2;

/// How a leaf is answered where there are columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By the cells of a column.
    Cells(ColumnKey),
    /// By the column of owners, who have names too.
    Owner,
    /// By the groups in the column of groups.
    Group(GroupField),
    /// By records alone.
    Record,
}

impl How {
    pub(crate) fn of(about: &About) -> How {
        match about {
            About::Attr(key) => How::Cells(*key),
            About::Name => How::Cells(NAME),
            About::Group(field) => How::Group(field.clone()),
            About::Part(..) | About::Path(_) | About::Builtin(Builtin::Modified) => How::Record,
            About::Builtin(builtin) => match builtin {
                Builtin::Owner => How::Owner,
                Builtin::Dtype => How::Cells(DTYPE),
                Builtin::Shape => How::Cells(SHAPE),
                Builtin::Ndim => How::Cells(NDIM),
                Builtin::Size => How::Cells(SIZE),
                Builtin::Nbytes => How::Cells(NBYTES),
                Builtin::Created => How::Cells(CREATED),
                _ => How::Record,
            },
        }
    }

    /// The column that is read.
    pub(crate) fn column(&self) -> Option<ColumnKey> {
        match self {
            How::Cells(key) => Some(*key),
            How::Owner => Some(OWNER),
            How::Group(_) => Some(GROUP),
            How::Record => None,
        }
    }
}

/// So many entries of a run are read in the time that one record takes to be judged.
const ENTRIES_PER_RECORD: u64 = 64;
/// So many entries of runs for a thread are worth having it.
const ENTRIES_PER_THREAD: u64 = 1 << 16;
/// The same for one that a query asks for.
const ENTRIES_PER_THREAD_ASKED: u64 = 1 << 12;

/// Where each segment is in the directory.
pub(crate) struct DirectoryPlaces<'d> {
    directory: &'d [SegmentEntry],
    /// By number of the segment, from the first on; empty where it is not worth it.
    dense: Vec<u32>,
}

impl<'d> DirectoryPlaces<'d> {
    /// Prepares for about so many questions.
    pub(crate) fn new(directory: &'d [SegmentEntry], questions: u64) -> Self {
        const DENSE_MAX: usize = 1 << 20;
        let mut dense = Vec::new();
        let first = directory.first().map_or(0, |entry| entry.segment);
        let span = directory.last().map_or(0, |entry| (entry.segment - first) as usize + 1);
        if span <= DENSE_MAX && questions > 4 * span as u64 {
            dense.resize(span, u32::MAX);
            for (place, entry) in directory.iter().enumerate() {
                dense[(entry.segment - first) as usize] = place as u32;
            }
        }
        DirectoryPlaces { directory, dense }
    }

    pub(crate) fn of(&self, segment: u32) -> Option<usize> {
        if self.dense.is_empty() {
            return self.directory.binary_search_by_key(&segment, |entry| entry.segment).ok();
        }
        let at = segment.checked_sub(self.directory[0].segment)? as usize;
        self.dense.get(at).map(|place| *place as usize).filter(|at| *at < self.directory.len())
    }

    /// How many rows the segment at a place has.
    pub(crate) fn rows(&self, place: usize) -> u32 {
        self.directory[place].rows
    }
}

/// What rules most zones out.
#[derive(Clone, Copy)]
struct Glance {
    class: u8,
    flags: u8,
    min: u64,
    max: u64,
}

impl Glance {
    fn new(zone: &[u8; ZONE_BYTES]) -> Self {
        let word = |at: usize| u64::from_le_bytes(zone[at..at + 8].try_into().expect("eight"));
        Glance { class: zone[8], flags: zone[9], min: word(16), max: word(24) }
    }
}

/// A leaf with what the index says of it.
pub(crate) struct PreparedLeaf<'p> {
    /// The leaf.
    pub leaf: &'p Leaf,
    /// How it is answered.
    pub how: How,
    /// By class: the ranges that can pass, and whether all in them does.
    ranges: [Vec<(Range<'static>, bool)>; 4],
    /// By class: the same as prefixes, and so perhaps wider; ascending, none within another.
    windows: [Vec<(u64, u64)>; 4],
    /// Of a leaf about groups: those that pass, where that is known.
    pub passing: Option<Passing>,
    /// Between which prefixes there are no groups but those of each of the windows.
    insides: Vec<(Option<u64>, Option<u64>)>,
    takes_nan: bool,
    /// The flags of zones that prefixes do not rule out.
    never_misses: u8,
    /// The strings that can pass.
    pub sought: SoughtTexts,
    /// Of a leaf about names that were looked up: the objects that pass, ascending.
    pub named: Option<Vec<Oid>>,
    /// Segments whose cells of the column are in runs, by their places, and whether any of their
    /// records alone tells of the column.
    in_runs: Vec<(usize, bool)>,
    /// What the runs say, once they were asked: by place, which positions pass.
    pub runs: Option<Vec<Option<Bitmap>>>,
    /// By place in the directory.
    pub verdicts: Vec<u8>,
}

impl<'p> PreparedLeaf<'p> {
    /// Asks a leaf of every segment's zones. `passing` are the groups that do, where that is known.
    pub(crate) fn new(
        txn: &ReadTxn<'_>,
        leaf: &'p Leaf,
        directory: &[SegmentEntry],
        passing: Option<Passing>,
    ) -> Result<Self> {
        let how = How::of(&leaf.about);
        let takes_nan = leaf.predicate.takes_nan();
        let mut ready = PreparedLeaf {
            leaf,
            how,
            ranges: Default::default(),
            windows: Default::default(),
            passing,
            insides: Vec::new(),
            takes_nan,
            never_misses: UNSURE | if takes_nan { NAN } else { 0 },
            sought: SoughtTexts::default(),
            named: None,
            in_runs: Vec::new(),
            runs: None,
            verdicts: vec![SOME; directory.len()],
        };
        match (&ready.how, &ready.passing) {
            (How::Cells(_), _) => ready.prepare(),
            (How::Group(_), Some(passing)) => {
                let word = |gid: Gid| prefix(&unsigned(gid)).map_or(0, |(word, _)| word);
                let all = passing.stretches.iter();
                ready.insides =
                    all.clone().map(|s| (s.before.map(word), s.after.map(word))).collect();
                ready.windows[ZoneClass::Number as usize] =
                    all.map(|s| (word(s.first), word(s.last))).collect();
            }
            _ => return Ok(ready),
        }
        ready.judge_all(txn, directory)?;
        Ok(ready)
    }

    /// Takes back that every object of a segment is in a group that passes: one may be sealed in a
    /// group that is gone.
    pub(crate) fn doubt_groups(&mut self) {
        if matches!(self.how, How::Group(_)) {
            self.verdicts.iter_mut().for_each(|verdict| *verdict = SOME.min(*verdict));
        }
    }

    /// Looks names up in every group, if the leaf asks for some and there are no more groups than
    /// segments that are still to be searched by these verdicts; whether it did.
    pub(crate) fn look_up(
        &mut self,
        txn: &ReadTxn<'_>,
        directory: &[SegmentEntry],
        verdicts: &[u8],
    ) -> Result<bool> {
        if self.how != How::Cells(NAME) {
            return Ok(false);
        }
        let Some(names) = self.leaf.predicate.only_texts() else { return Ok(false) };
        let open: u64 = verdicts.iter().map(|verdict| u64::from(*verdict == SOME)).sum();
        let groups = txn.entries(Table::Groups)?;
        if groups.saturating_mul(names.len() as u64) > open {
            return Ok(false);
        }
        let mut named = Vec::new();
        let mut cursor = txn.seek(Table::Groups, &[])?;
        while let Some((key, _)) = cursor.next()? {
            let group = id_of_key(key)?;
            for name in names.iter().filter(|name| Name::new(name).is_ok()) {
                let row = txn.get(Table::Names, NameKey::new(group, name).as_bytes())?;
                if let Some(Member::Object(oid)) = row.map(Member::from_row).transpose()? {
                    named.push(oid);
                }
            }
        }
        named.sort_unstable();
        for (verdict, entry) in self.verdicts.iter_mut().zip(directory) {
            *verdict = if within(&named, *entry).is_empty() { NONE } else { SOME };
        }
        self.named = Some(named);
        Ok(true)
    }

    fn judge_all(&mut self, txn: &ReadTxn<'_>, directory: &[SegmentEntry]) -> Result<()> {
        let Some(column) = self.how.column() else { return Ok(()) };
        self.verdicts.fill(NONE);
        let zones = ColumnZones::read(txn, column)?;
        let mut place = 0;
        for row in zones.raw() {
            let mut at = 0;
            while at < row.len() {
                // Most zones go by here: only what is compared is read of them.
                if self.misses(Glance::new(&row[at])) {
                    at += 1;
                    continue;
                }
                let same = beside(row, at);
                at = same.end;
                // A column is of one class mostly.
                if let [only] = &row[same.clone()] {
                    self.judge_segment(&[Zone::decode(only)?], directory, &mut place);
                } else {
                    self.judge_segment(&SegmentZones::decode(&row[same])?, directory, &mut place);
                }
            }
        }
        Ok(())
    }

    /// Judges a segment by its zones. `place` goes up with the segments.
    fn judge_segment(&mut self, zones: &[Zone], directory: &[SegmentEntry], place: &mut usize) {
        let Some(Zone { segment, .. }) = zones.first() else { return };
        while directory.get(*place).is_some_and(|entry| entry.segment < *segment) {
            *place += 1;
        }
        if directory.get(*place).is_some_and(|entry| entry.segment == *segment) {
            self.verdicts[*place] = self.verdict(zones, *place);
        }
    }

    /// Asks the runs of the leaf's column which positions pass, of segments that are still to be
    /// searched by these verdicts; unless that is more work than asking their records. Whether it
    /// did.
    pub(crate) fn consult_runs(
        &mut self,
        txn: &ReadTxn<'_>,
        directory: &[SegmentEntry],
        verdicts: &[u8],
        options: &QueryOptions,
    ) -> Result<bool> {
        let How::Cells(key) = self.how else { return Ok(false) };
        let open = self.in_runs.iter().filter(|(place, _)| verdicts[*place] == SOME);
        let rows: u64 = open.map(|(place, _)| u64::from(directory[*place].rows)).sum();
        if rows == 0 {
            return Ok(false);
        }
        let all = self.ranges.iter().flatten();
        let whole = self.takes_nan
            || all.clone().any(|(range, _)| range.low.is_none() && range.high.is_none());
        let everything = [(Range::default(), false)];
        let ranges: Vec<_> = if whole { everything.iter().collect() } else { all.collect() };
        let runs = SortedRuns::read(txn, key)?;
        // A look at the heads alone tells mostly that it is not too much.
        let sum = |count: &dyn Fn(&Range<'_>) -> Result<u64>| {
            ranges.iter().try_fold(0, |sum, (range, _)| Ok::<_, Error>(sum + count(range)?))
        };
        let most = rows.saturating_mul(ENTRIES_PER_RECORD);
        let mut entries = sum(&|range| runs.count_by_blocks(range))?;
        let worth = match options.threads {
            Some(1) => u64::MAX,
            Some(_) => ENTRIES_PER_THREAD_ASKED,
            None => ENTRIES_PER_THREAD,
        };
        if entries > most || entries / 2 >= worth {
            entries = sum(&|range| runs.count(range))?;
        }
        if entries > most {
            return Ok(false);
        }
        let places = DirectoryPlaces::new(directory, entries);
        let mut pieces = Vec::new();
        for (range, exact) in ranges {
            pieces.extend(runs.pieces(range)?.into_iter().map(|piece| (piece, *exact)));
        }
        let threads = match options.threads {
            Some(threads) => workers::asked(options, threads, entries, worth),
            None if entries / 2 < worth => 1,
            None => workers::cores().min((entries / worth) as usize),
        };
        let threads = threads.min(pieces.len()).clamp(1, THREADS_MAX);
        let predicate = &self.leaf.predicate;
        let passes = |cell: &Cell<'_>| predicate.cell(cell);
        let (all, some) = (RunTest::all(), RunTest::new(&passes, predicate.only_part()));
        let queue = Mutex::new(pieces.into_iter());
        let found = side_by_side(threads, &|_| {
            let mut hits = RunHits::new(&places, verdicts, entries);
            loop {
                let next = lock(&queue).next();
                let Some((piece, exact)) = next else { return Ok(hits.into_rows()) };
                hits.take(&piece, if exact { &all } else { &some })?;
            }
        })?;
        let hits = found.into_iter().reduce(run_hits::unite).unwrap_or_default();
        for &(place, unsure) in &self.in_runs {
            if verdicts[place] == SOME && hits[place].is_none() {
                self.verdicts[place] = if unsure { SOME } else { NONE };
            }
        }
        self.runs = Some(hits);
        Ok(true)
    }

    /// What passes, if it is few values or stretches of numbers and times.
    pub(crate) fn sought(&self) -> Option<Sought> {
        let How::Cells(column) = self.how else { return None };
        let [numbers, times, texts, others] = &self.ranges;
        let bounded = |(range, _): &(Range<'_>, bool)| range.low.is_some() && range.high.is_some();
        let narrow = others.is_empty() && numbers.iter().chain(times).all(bounded);
        if !narrow || self.takes_nan || matches!(self.leaf.predicate, Predicate::Exists) {
            return None;
        }
        let text = |(range, _): &(Range<'static>, bool)| match (&range.low, &range.high) {
            (
                Some(Bound { cell: Cell::Text(low), inclusive: true }),
                Some(Bound { cell: Cell::Text(high), inclusive: true }),
            ) if low == high => Some(low.to_string()),
            _ => None,
        };
        Some(Sought {
            column,
            numbers: self.windows[ZoneClass::Number as usize].clone(),
            times: self.windows[ZoneClass::Time as usize].clone(),
            texts: texts.iter().map(text).collect::<Option<_>>()?,
        })
    }

    /// Puts the ranges of the leaf's test into the index's terms.
    fn prepare(&mut self) {
        for class in predicate::CellClass::ALL {
            let at = class_of(class) as usize;
            for range in self.leaf.predicate.ranges(class) {
                let (low, high) = (bound(&range.low), bound(&range.high));
                let end = |bound: &Option<Bound<'_>>, none| {
                    bound.as_ref().and_then(|b| prefix(&b.cell)).map_or(none, |(word, _)| word)
                };
                self.windows[at].push((end(&low, 0), end(&high, u64::MAX)));
                self.ranges[at].push((Range { low, high }, range.exact));
            }
        }
        self.windows.iter_mut().for_each(unite);
        let text = |end: &Option<Bound<'_>>| match end.as_ref().map(|bound| &bound.cell) {
            Some(Cell::Text(text)) => Some(text.to_string()),
            _ => None,
        };
        let texts = self.ranges[ZoneClass::Text as usize].iter();
        self.sought = SoughtTexts {
            ranges: texts.map(|(r, _)| (text(&r.low).unwrap_or_default(), text(&r.high))).collect(),
            parts: self.leaf.predicate.parts().into_iter().map(str::to_owned).collect(),
        };
    }

    /// How the leaf is answered, and how many segments that leaves open.
    pub(crate) fn explain(&self, texts: &[String]) -> LeafExplanation {
        let of =
            |wanted: u8| self.verdicts.iter().map(|is| usize::from(*is == wanted)).sum::<usize>();
        let by = match &self.how {
            How::Cells(_) if self.runs.is_some() => "a column and its sorted runs",
            How::Cells(_) if self.named.is_some() => "the names of each group",
            How::Cells(NAME) => "the column of names",
            How::Cells(_) => "the cells of a column",
            How::Owner => "the column of owners",
            How::Group(_) => "the column of groups, each group judged once",
            How::Record => "the records",
        };
        let how = format!(
            "{by}; by zones {} segments pass whole, {} not at all, {} perhaps",
            of(EVERY),
            of(NONE),
            of(SOME)
        );
        LeafExplanation { test: texts.get(self.leaf.number).cloned().unwrap_or_default(), how }
    }

    /// The one range of numbers that the test is, if it is one and nothing else.
    pub(crate) fn numbers(&self) -> Option<&Range<'static>> {
        let [numbers, times, texts, others] = &self.ranges;
        match numbers.as_slice() {
            [(range, true)] if times.is_empty() && texts.is_empty() && others.is_empty() => {
                let bounded = range.low.is_some() || range.high.is_some();
                (bounded && !self.takes_nan).then_some(range)
            }
            _ => None,
        }
    }

    fn verdict(&mut self, zones: &[Zone], place: usize) -> u8 {
        if zones[0].has(IN_RUNS) && !matches!(self.leaf.predicate, Predicate::Exists) {
            // The runs will say more.
            self.in_runs.push((place, zones.iter().any(|zone| zone.has(UNSURE))));
            return SOME;
        }
        if matches!(self.how, How::Group(_)) {
            return self.of_groups(zones);
        }
        let verdict = match &self.leaf.predicate {
            Predicate::Exists => zone::exists(zones),
            test => match zone::judge_cells(zones, &|cell| test.cell(cell)) {
                zone::ZoneVerdict::Some => return self.in_ranges(zones),
                decided => decided,
            },
        };
        match verdict {
            zone::ZoneVerdict::None => NONE,
            zone::ZoneVerdict::Some => SOME,
            zone::ZoneVerdict::All => EVERY,
        }
    }

    /// Whether no cell of the zone can pass, by prefixes alone.
    fn misses(&self, zone: Glance) -> bool {
        if zone.flags & self.never_misses != 0 {
            return false;
        }
        let Some(windows) = self.windows.get(usize::from(zone.class)) else { return false };
        // A zone in no order has ends that hold nothing; whatever takes it takes it all.
        let disordered = zone.min > zone.max && !windows.is_empty();
        !disordered && window(windows, zone.min).is_none_or(|at| windows[at].0 > zone.max)
    }

    /// The verdict on a segment by the zone of its groups. Prefixes of groups that follow each
    /// other may be the same, so that every group is one of them only if none of the groups beside
    /// them has a prefix in the zone.
    fn of_groups(&self, zones: &[Zone]) -> u8 {
        let [zone] = zones else { return SOME };
        let windows = &self.windows[ZoneClass::Number as usize];
        let inside = window(windows, zone.min).map(|at| self.insides[at]);
        let every = inside.is_some_and(|(before, after)| {
            before.is_none_or(|before| before < zone.min)
                && after.is_none_or(|after| after > zone.max)
        });
        if every && zone.has(ALL_PRESENT) && zone.has(SOLE) { EVERY } else { SOME }
    }

    fn in_ranges(&self, zones: &[Zone]) -> u8 {
        for zone in zones.iter().filter(|zone| zone.has(SOLE) && zone.has(ALL_PRESENT)) {
            let Some(ranges) = self.ranges.get(zone.class as usize) else { return SOME };
            let whole = ranges.iter().filter(|(_, exact)| *exact).any(|(range, _)| {
                if range.low.is_none() && range.high.is_none() {
                    !zone.has(NAN)
                } else {
                    zone::judge(zones, range) == zone::ZoneVerdict::All
                }
            });
            if whole {
                return EVERY;
            }
        }
        let one_range = self.ranges.iter().map(Vec::len).sum::<usize>() == 1;
        let bounded =
            self.ranges.iter().flatten().find(|(r, _)| r.low.is_some() || r.high.is_some());
        match bounded {
            // Ends may be exact: then what only touches an open end is none.
            Some((range, _)) if one_range && !self.takes_nan => {
                if zone::judge(zones, range) == zone::ZoneVerdict::None { NONE } else { SOME }
            }
            _ => SOME,
        }
    }
}

fn class_of(class: predicate::CellClass) -> ZoneClass {
    match class {
        predicate::CellClass::Number => ZoneClass::Number,
        predicate::CellClass::Time => ZoneClass::Time,
        predicate::CellClass::Text => ZoneClass::Text,
        predicate::CellClass::Other => ZoneClass::Other,
    }
}

fn bound(end: &std::ops::Bound<Cell<'static>>) -> Option<Bound<'static>> {
    match end {
        std::ops::Bound::Included(cell) => Some(Bound { cell: cell.clone(), inclusive: true }),
        std::ops::Bound::Excluded(cell) => Some(Bound { cell: cell.clone(), inclusive: false }),
        std::ops::Bound::Unbounded => None,
    }
}

/// The first of the windows that ends at this prefix or beyond.
fn window(windows: &[(u64, u64)], from: u64) -> Option<usize> {
    let at = windows.partition_point(|(_, high)| *high < from);
    (at < windows.len()).then_some(at)
}

/// Puts windows in order, and makes one of those that overlap.
fn unite(windows: &mut Vec<(u64, u64)>) {
    windows.retain(|(low, high)| low <= high);
    windows.sort_unstable();
    windows.dedup_by(|next, last| {
        let within = next.0 <= last.1;
        last.1 = if within { last.1.max(next.1) } else { last.1 };
        within
    });
}

/// The verdicts on a condition, by place in the directory.
pub(crate) fn verdicts(
    node: &Condition,
    ready: &[Option<PreparedLeaf<'_>>],
    segments: usize,
) -> Vec<u8> {
    match node {
        Condition::Const(value) => vec![if *value { EVERY } else { NONE }; segments],
        Condition::Not(inner) => {
            let mut inner = verdicts(inner, ready, segments);
            for verdict in &mut inner {
                *verdict = EVERY - *verdict;
            }
            inner
        }
        Condition::All(parts) => combine(parts, ready, segments, u8::min),
        Condition::Any(parts) => combine(parts, ready, segments, u8::max),
        Condition::Leaf(leaf) => match &ready[leaf.number] {
            Some(ready) => ready.verdicts.clone(),
            None => vec![SOME; segments],
        },
    }
}

fn combine(
    parts: &[Condition],
    ready: &[Option<PreparedLeaf<'_>>],
    segments: usize,
    of: fn(u8, u8) -> u8,
) -> Vec<u8> {
    let mut parts = parts.iter().map(|part| verdicts(part, ready, segments));
    let mut all = parts.next().unwrap_or_default();
    for part in parts {
        all.iter_mut().zip(part).for_each(|(all, part)| *all = of(*all, part));
    }
    all
}

/// The test of an owner's cell.
pub(crate) fn owner_test(users: &mut Users, predicate: &Predicate, cell: &Cell<'_>) -> bool {
    match cell {
        Cell::Int(uid) => u32::try_from(*uid).is_ok_and(|uid| users.test(predicate, uid)),
        _ => false,
    }
}
