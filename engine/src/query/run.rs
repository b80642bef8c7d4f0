//! A search: one plan, one snapshot, and what is asked of the objects that it finds.

use std::collections::BTreeMap;

use super::answer::{QueryOptions, RecordCounts};
use super::compile::{Node, Plan};
use super::groups::Groups;
use super::order::Sorter;
use super::record::{Judge, seen_attrs};
use crate::attrs::{self, KeyId};
use crate::batch::Peek;
use crate::catalog::Table;
use crate::error::Result;
use crate::fail;
use crate::id::{Oid, id_key};
use crate::object::Record;

/// What becomes of an object that was found; says whether to go on.
pub(crate) type Found<'f> = dyn FnMut(&mut Judge<'_>, Oid, &Record<'_>) -> Result<bool> + 'f;

/// A search under way.
pub(crate) struct Search<'a> {
    peek: Peek<'a>,
    plan: &'a Plan,
    judge: Judge<'a>,
    /// How many records were judged, by where they were found.
    pub counts: RecordCounts,
}

impl<'a> Search<'a> {
    /// A search that has not begun.
    pub(crate) fn new(
        peek: Peek<'a>,
        plan: &'a Plan,
        groups: Groups<'a>,
        _options: &QueryOptions,
    ) -> Self {
        Search { peek, plan, judge: Judge::new(groups), counts: RecordCounts::default() }
    }

    /// The objects found, in the order asked for.
    pub(crate) fn oids(&mut self) -> Result<Vec<Oid>> {
        let limit = self.plan.limit;
        if limit == Some(0) {
            return Ok(Vec::new());
        }
        if self.plan.order.is_empty() {
            let mut oids = Vec::new();
            self.scan(&mut |_, oid, _| {
                oids.push(oid);
                Ok(limit.is_none_or(|limit| oids.len() < limit))
            })?;
            return Ok(oids);
        }
        let mut sorter = Sorter::new(&self.plan.order, limit);
        self.scan(&mut |judge, oid, record| sorter.add(judge, oid, record).map(|()| true))?;
        Ok(sorter.finish())
    }

    /// How many objects there are.
    pub(crate) fn count(&mut self) -> Result<u64> {
        let limit = self.plan.limit.map_or(u64::MAX, |limit| limit as u64);
        let mut count = 0;
        if limit > 0 {
            self.scan(&mut |_, _, _| {
                count += 1;
                Ok(count < limit)
            })?;
        }
        Ok(count)
    }

    /// How many attributes they have in all.
    pub(crate) fn count_attributes(&mut self) -> Result<u64> {
        let mut count = 0;
        self.each(&mut |_, _, record| {
            for entry in attrs::entries(seen_attrs(record)) {
                entry?;
                count += 1;
            }
            Ok(true)
        })?;
        Ok(count)
    }

    /// The attributes' keys, and how many of the objects have each.
    pub(crate) fn attribute_keys(&mut self) -> Result<BTreeMap<KeyId, u64>> {
        let mut keys = BTreeMap::new();
        self.each(&mut |_, _, record| {
            for entry in attrs::entries(seen_attrs(record)) {
                *keys.entry(entry?.key).or_insert(0) += 1;
            }
            Ok(true)
        })?;
        Ok(keys)
    }

    /// The objects' names, in the order asked for.
    pub(crate) fn names(&mut self) -> Result<Vec<String>> {
        let oids = self.oids()?;
        oids.iter().map(|oid| self.with_record(*oid, |_, r| Ok(r.name.to_owned()))).collect()
    }

    /// The objects' paths, in the order asked for.
    pub(crate) fn paths(&mut self) -> Result<Vec<String>> {
        let oids = self.oids()?;
        let path = |judge: &mut Judge<'_>, r: &Record<'_>| judge.groups.path_of(r.parent, r.name);
        oids.iter().map(|oid| self.with_record(*oid, path)).collect()
    }

    /// Each object found, in no order; with a limit, those that it leaves.
    fn each(&mut self, found: &mut Found<'_>) -> Result<()> {
        if self.plan.limit.is_none() {
            return self.scan(found);
        }
        for oid in self.oids()? {
            self.with_record(oid, |judge, record| found(judge, oid, record).map(|_| ()))?;
        }
        Ok(())
    }

    fn with_record<T>(
        &mut self,
        oid: Oid,
        read: impl FnOnce(&mut Judge<'_>, &Record<'_>) -> Result<T>,
    ) -> Result<T> {
        let Some(row) = self.peek.get(Table::Objects, &id_key(oid))? else {
            fail!(Corrupt, "object {oid:#x} is in the index, and has no record: run verify")
        };
        read(&mut self.judge, &Record::parse(row)?)
    }

    /// Judges every record, ascending by OID.
    fn scan(&mut self, found: &mut Found<'_>) -> Result<()> {
        if matches!(self.plan.node, Node::Const(false)) {
            return Ok(());
        }
        let peek = self.peek;
        let changed = peek.changed(Table::Objects)?;
        let mut changed = changed.into_iter().peekable();
        let mut cursor = peek.txn().seek(Table::Objects, &[])?;
        loop {
            let below = cursor.next()?.map(|(key, row)| Ok((oid_of(key)?, row))).transpose()?;
            let end = below.map_or(Oid::MAX, |(oid, _)| oid);
            let mut hidden = false;
            while let Some((oid, row)) = changed.next_if(|(oid, _)| *oid <= end) {
                hidden |= below.is_some_and(|(below, _)| below == oid);
                let Some(row) = row else { continue };
                self.counts.batch += 1;
                if !self.judged(oid, row, found)? {
                    return Ok(());
                }
            }
            let Some((oid, row)) = below else { return Ok(()) };
            if hidden {
                continue;
            }
            self.counts.scanned += 1;
            if !self.judged(oid, row, found)? {
                return Ok(());
            }
        }
    }

    /// Judges one record; whether to go on.
    fn judged(&mut self, oid: Oid, row: &[u8], found: &mut Found<'_>) -> Result<bool> {
        let record = Record::parse(row)?;
        if self.judge.is_true(&self.plan.node, &record)? {
            found(&mut self.judge, oid, &record)
        } else {
            Ok(true)
        }
    }
}

/// The OID that a row of a table keyed by OIDs is of.
pub(crate) fn oid_of(key: &[u8]) -> Result<Oid> {
    match <[u8; 8]>::try_from(key) {
        Ok(oid) => Ok(Oid::from_be_bytes(oid)),
        Err(_) => fail!(Corrupt, "a key of {} bytes stands for an object", key.len()),
    }
}
