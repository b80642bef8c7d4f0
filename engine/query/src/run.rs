//! A search: one plan, one snapshot, and what is asked of the objects that it finds.
//!
//! Each object is looked at in one place. First those that records alone can judge: what the batch
//! that asks has changed; what waits in the queue, whatever the index still has of it; the tail;
//! and objects that are not indexed, if one without attributes could be found at all. Then the
//! sealed segments (`segments.rs`), less what is dead in them and what was looked at before.

use std::collections::BTreeMap;

use super::answer::{Consistency, LeafExplanation, QueryOptions, RecordCounts, SegmentExplanation};
use super::ascending;
use super::compile::{About, Condition, OrderKey, Plan};
use super::goal::Goal;
use super::groups::Groups;
use super::order::{self, Sorter};
use super::record::Judge;
use super::sealed::DirectoryCache;
use super::totals::Tally;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Oid, id_key, id_of_key};
use engram_catalog::meta::meta_u64;
use engram_catalog::{Growth, Table};
use engram_columns::cell::Cell;
use engram_index::{UNINDEXED, queue};
use engram_ops::overlay::peek::Peek;
use engram_records::attrs::KeyId;
use engram_records::index_mode::IndexMode;
use engram_records::object::Record;

/// A count with a limit up to this lists what it finds.
const LISTED_MAX: usize = 1 << 16;

/// A search under way.
pub struct Search<'a> {
    pub(super) peek: Peek<'a>,
    pub(super) plan: &'a Plan,
    pub(super) judge: Judge<'a>,
    pub(super) options: &'a QueryOptions,
    pub(super) directories: &'a DirectoryCache,
    pub(super) growth: Option<&'a Growth>,
    /// How many records were judged, by where they were found.
    pub counts: RecordCounts,
    /// What became of each segment, where somebody wants to know.
    pub trace: Option<Vec<SegmentExplanation>>,
    /// The conditions that were searched for, and how.
    pub leaves: Vec<LeafExplanation>,
    /// How many threads searched.
    pub threads: usize,
}

impl<'a> Search<'a> {
    /// A search that has not begun.
    pub fn new(
        peek: Peek<'a>,
        plan: &'a Plan,
        groups: Groups<'a>,
        options: &'a QueryOptions,
        directories: &'a DirectoryCache,
    ) -> Self {
        let (judge, counts) = (Judge::new(groups), RecordCounts::default());
        let (growth, trace, leaves, threads) = (None, None, Vec::new(), 1);
        Search { peek, plan, judge, options, directories, growth, counts, trace, leaves, threads }
    }

    /// Lets the search ask which objects commits have changed.
    #[must_use]
    pub fn told_by(self, growth: Option<&'a Growth>) -> Self {
        Search { growth, ..self }
    }

    /// The objects found, in the order asked for.
    pub fn oids(&mut self) -> Result<Vec<Oid>> {
        let mut oids = self.first_oids()?;
        oids.drain(..self.plan.offset.min(oids.len()));
        Ok(oids)
    }

    /// The same, with those that are left out in front.
    fn first_oids(&mut self) -> Result<Vec<Oid>> {
        let plan = self.plan;
        if plan.totals.is_some() {
            fail!(Query, "{}", plan.other_way());
        }
        if plan.limit == Some(0) || plan.limit.is_some_and(|limit| limit <= plan.offset) {
            return Ok(Vec::new());
        }
        if let (Some(limit), false) = (plan.limit, plan.order.is_empty())
            && let Some(first) = self.first(limit)?
        {
            return Ok(first);
        }
        let bound = if plan.order.is_empty() { plan.limit } else { None };
        let mut goal = Goal::Oids(Vec::new());
        self.reach(&mut goal, bound)?;
        let Goal::Oids(mut oids) = goal else { unreachable!("it asked for objects") };
        ascending::sort(&mut oids);
        if plan.order.is_empty() {
            oids.truncate(plan.limit.unwrap_or(usize::MAX));
            return Ok(oids);
        }
        let mut sorter = Sorter::new(&plan.order, plan.limit).among(&oids);
        let columns = order::columns(&plan.order).unwrap_or_default();
        self.tell(&oids, &columns, &mut sorter)?;
        Ok(sorter.finish())
    }

    /// Whether this object is there, and is found.
    pub fn finds(&mut self, oid: Oid) -> Result<bool> {
        match self.peek.get(Table::Objects, &id_key(oid))? {
            Some(row) => self.judge.is_true(&self.plan.node, &Record::parse(row)?),
            None => Ok(false),
        }
    }

    /// How many objects there are.
    pub fn count(&mut self) -> Result<u64> {
        let limit = self.plan.limit.unwrap_or(usize::MAX);
        let bound = Some(limit).filter(|limit| *limit <= LISTED_MAX);
        // With a bound it is over once so many are found, whatever their order.
        let mut goal = if bound.is_some() { Goal::Oids(Vec::new()) } else { Goal::Count(0) };
        if limit > 0 {
            self.reach(&mut goal, bound)?;
        }
        let count = match goal {
            Goal::Count(count) => count,
            Goal::Oids(oids) => oids.len() as u64,
            _ => unreachable!("it asked for a count"),
        };
        Ok(count.min(limit as u64).saturating_sub(self.plan.offset as u64))
    }

    /// How many attributes they have in all.
    pub fn count_attributes(&mut self) -> Result<u64> {
        match self.each(Goal::Attributes(0))? {
            Goal::Attributes(count) => Ok(count),
            _ => unreachable!("it asked for a count of attributes"),
        }
    }

    /// The attributes' keys, and how many of the objects have each.
    pub fn attribute_keys(&mut self) -> Result<BTreeMap<KeyId, u64>> {
        match self.each(Goal::Keys(BTreeMap::new()))? {
            Goal::Keys(keys) => Ok(keys),
            _ => unreachable!("it asked for keys"),
        }
    }

    /// The objects' names, in the order asked for.
    pub fn names(&mut self) -> Result<Vec<String>> {
        let oids = self.oids()?;
        oids.iter().map(|oid| self.with_record(*oid, |_, r| Ok(r.name.to_owned()))).collect()
    }

    /// The objects' paths, in the order asked for.
    pub fn paths(&mut self) -> Result<Vec<String>> {
        let oids = self.oids()?;
        let path = |judge: &mut Judge<'_>, r: &Record<'_>| judge.groups.path_of(r.parent, r.name);
        oids.iter().map(|oid| self.with_record(*oid, path)).collect()
    }

    /// What an object is ordered by.
    pub fn order_cells(&mut self, oid: Oid) -> Result<Vec<Option<Cell<'static>>>> {
        let keys = &self.plan.order;
        self.with_record(oid, |judge, record| {
            let cell = |key: &OrderKey| match &key.about {
                Some(about) => judge.order_cell(about, record),
                None => Ok(None),
            };
            keys.iter().map(cell).collect()
        })
    }

    /// How many objects there are, found as they would be listed; or how many figures are of.
    pub fn hits(&mut self) -> Result<u64> {
        if self.plan.totals.is_some() {
            return Ok(self.tally()?.objects);
        }
        if self.plan.order.is_empty() || self.plan.limit.is_none() {
            return self.count();
        }
        Ok(self.oids()?.len() as u64)
    }

    /// The figures of the objects found.
    pub fn tally(&mut self) -> Result<Tally> {
        let Some(totals) = &self.plan.totals else { fail!(Query, "{}", self.plan.other_way()) };
        let tally = Tally::new(totals);
        if !tally.by_columns() {
            let oids = self.found()?;
            return self.tally_of(&oids);
        }
        let mut goal = Goal::Totals(Box::new(tally));
        self.reach(&mut goal, None)?;
        let Goal::Totals(tally) = goal else { unreachable!("it asked for figures") };
        tally.told(&mut self.judge)
    }

    /// The figures of these objects.
    pub fn tally_of(&mut self, oids: &[Oid]) -> Result<Tally> {
        let Some(totals) = &self.plan.totals else { fail!(Query, "{}", self.plan.other_way()) };
        let mut tally = Tally::new(totals);
        for oid in oids {
            self.with_record(*oid, |judge, record| tally.record(judge, record))?;
        }
        tally.told(&mut self.judge)
    }

    /// Whatever is found, ascending: what figures are of.
    pub fn found(&mut self) -> Result<Vec<Oid>> {
        let mut goal = Goal::Oids(Vec::new());
        self.search(&mut goal, None)?;
        let Goal::Oids(mut oids) = goal else { unreachable!("it asked for objects") };
        ascending::sort(&mut oids);
        Ok(oids)
    }

    /// What a goal says of the objects; with a limit, of those that it leaves.
    pub fn each(&mut self, mut goal: Goal) -> Result<Goal> {
        if self.plan.limit.is_none() && self.plan.offset == 0 {
            self.reach(&mut goal, None)?;
            return Ok(goal);
        }
        for oid in self.oids()? {
            self.with_record(oid, |judge, record| goal.record(judge, oid, record))?;
        }
        Ok(goal)
    }

    /// Looks at every object that there is, in whatever order; with a bound at so many of the least
    /// OIDs at least.
    fn reach(&mut self, goal: &mut Goal, bound: Option<usize>) -> Result<()> {
        if self.plan.totals.is_some() != matches!(goal, Goal::Totals(_)) {
            fail!(Query, "{}", self.plan.other_way());
        }
        self.search(goal, bound)
    }

    fn search(&mut self, goal: &mut Goal, bound: Option<usize>) -> Result<()> {
        if matches!(self.plan.node, Condition::Const(false)) {
            return Ok(());
        }
        if self.options.brute_force {
            return self.scan(goal, bound);
        }
        let excluded = self.outside(goal)?;
        self.segments(goal, bound, &excluded)
    }

    /// Runs `read` on the record of an object that was found.
    pub fn with_record<T>(
        &mut self,
        oid: Oid,
        read: impl FnOnce(&mut Judge<'_>, &Record<'_>) -> Result<T>,
    ) -> Result<T> {
        let row = self.row(oid)?;
        read(&mut self.judge, &Record::parse(row)?)
    }

    fn row(&self, oid: Oid) -> Result<&'a [u8]> {
        match self.peek.get(Table::Objects, &id_key(oid))? {
            Some(row) => Ok(row),
            None => fail!(
                Corrupt,
                "object {oid:#x} is in the index, and has no record: run verify, then reindex"
            ),
        }
    }

    /// Judges an object by its record.
    pub(super) fn judge(&mut self, goal: &mut Goal, oid: Oid) -> Result<()> {
        self.judge_row(goal, oid, self.row(oid)?)
    }

    fn judge_row(&mut self, goal: &mut Goal, oid: Oid, row: &[u8]) -> Result<()> {
        let record = Record::parse(row)?;
        if self.judge.is_true(&self.plan.node, &record)? {
            goal.record(&mut self.judge, oid, &record)?;
        }
        Ok(())
    }

    /// Judges every record, ascending by OID; with a bound until so many are found.
    fn scan(&mut self, goal: &mut Goal, bound: Option<usize>) -> Result<()> {
        let peek = self.peek;
        let changed = peek.changed(Table::Objects)?;
        let mut changed = changed.into_iter().peekable();
        let mut cursor = peek.txn().seek(Table::Objects, &[])?;
        let full = |goal: &Goal| matches!((goal, bound), (Goal::Oids(o), Some(b)) if o.len() >= b);
        while !full(goal) {
            let below = cursor.next()?.map(|(key, row)| Ok((id_of_key(key)?, row))).transpose()?;
            let end = below.map_or(Oid::MAX, |(oid, _)| oid);
            let mut hidden = false;
            while let Some((oid, row)) = changed.next_if(|(oid, _)| *oid <= end) {
                hidden |= below.is_some_and(|(below, _)| below == oid);
                if let Some(row) = row {
                    self.counts.batch += 1;
                    self.judge_row(goal, oid, row)?;
                }
            }
            let Some((oid, row)) = below else { break };
            if !hidden {
                self.counts.scanned += 1;
                self.judge_row(goal, oid, row)?;
            }
        }
        Ok(())
    }

    /// Judges what no segment has, or has no longer; the OIDs, ascending, that were looked at.
    pub(super) fn outside(&mut self, goal: &mut Goal) -> Result<Vec<Oid>> {
        let peek = self.peek;
        let mut seen = Vec::new();
        for (oid, row) in peek.changed(Table::Objects)? {
            seen.push(oid);
            if let Some(row) = row {
                self.counts.batch += 1;
                self.judge_row(goal, oid, row)?;
            }
        }
        if self.options.consistency == Consistency::Strong {
            let queued = queue::all(self.peek.txn())?;
            self.counts.queue = self.judge_listed(queued, goal, &mut seen)?;
        }
        self.judge_tail(goal, &seen)?;
        self.unindexed(goal, &seen)?;
        Ok(seen)
    }

    /// Judges these objects, ascending, but for those seen, and adds them to these.
    fn judge_listed(
        &mut self,
        listed: Vec<Oid>,
        goal: &mut Goal,
        seen: &mut Vec<Oid>,
    ) -> Result<u64> {
        let before = seen.len();
        for oid in listed {
            if seen[..before].binary_search(&oid).is_err() {
                self.judge(goal, oid)?;
                seen.push(oid);
            }
        }
        let judged = seen.len() - before;
        // Two ascending parts.
        #[expect(clippy::stable_sort_primitive)]
        seen.sort();
        Ok(judged as u64)
    }

    /// Judges the objects of mode `none`, which are listed nowhere.
    fn unindexed(&mut self, goal: &mut Goal, seen: &[Oid]) -> Result<()> {
        let txn = self.peek.txn();
        if meta_u64(txn.get(Table::Meta, UNINDEXED)?)? == 0 || !can_be_bare(&self.plan.node) {
            return Ok(());
        }
        let mut cursor = txn.seek(Table::Objects, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let oid = id_of_key(key)?;
            let unindexed = Record::index_of(row)? == IndexMode::None;
            if unindexed && seen.binary_search(&oid).is_err() {
                self.counts.unindexed += 1;
                self.judge_row(goal, oid, row)?;
            }
        }
        Ok(())
    }
}

/// Whether a condition can be true of an object without attributes.
fn can_be_bare(node: &Condition) -> bool {
    bare(node) != Some(false)
}

/// What a condition is of an object without attributes, where that follows from this alone.
fn bare(node: &Condition) -> Option<bool> {
    match node {
        Condition::Const(value) => Some(*value),
        Condition::Not(inner) => bare(inner).map(|value| !value),
        Condition::All(parts) if parts.iter().any(|part| bare(part) == Some(false)) => Some(false),
        Condition::All(parts) => parts.iter().all(|part| bare(part) == Some(true)).then_some(true),
        Condition::Any(parts) if parts.iter().any(|part| bare(part) == Some(true)) => Some(true),
        Condition::Any(parts) => {
            parts.iter().all(|part| bare(part) == Some(false)).then_some(false)
        }
        Condition::Leaf(leaf) => {
            matches!(leaf.about, About::Attr(_) | About::Part(..)).then_some(false)
        }
    }
}
