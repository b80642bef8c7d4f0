//! Names and parents: every record is reached from the root, by one way.

use std::collections::{HashMap, HashSet};

use super::{RecordFacts, Walk};
use engram_base::error::Result;
use engram_base::id::{COUNTER_BITS, Gid, Member, id_key};
use engram_catalog::meta::meta_u64;
use engram_catalog::{ReadTxn, Table};
use engram_realm::NEXT_ID;

/// The groups above which there is no end; `parent` gives what a group lies in, and is asked once
/// for each, however deep they lie.
fn endless(groups: impl Iterator<Item = Gid>, parent: impl Fn(Gid) -> Option<Gid>) -> Vec<Gid> {
    /// What is known of a group: on the way that is being walked, or where its way ends.
    #[derive(Clone, Copy, PartialEq)]
    enum Way {
        Walked,
        Ends,
        Loops,
    }
    let mut ways: HashMap<Gid, Way> = HashMap::new();
    let mut looped = Vec::new();
    for start in groups {
        let (mut walked, mut at) = (Vec::new(), start);
        let way = loop {
            match ways.get(&at) {
                Some(Way::Walked) => break Way::Loops,
                Some(known) => break *known,
                None => {}
            }
            let Some(above) = parent(at) else { break Way::Ends };
            ways.insert(at, Way::Walked);
            walked.push(at);
            at = above;
        };
        for gid in walked {
            ways.insert(gid, way);
            if way == Way::Loops {
                looped.push(gid);
            }
        }
    }
    looped
}

impl Walk<'_> {
    /// Every record has a name, and hangs from the root.
    pub(super) fn tree(
        &mut self,
        groups: &HashMap<u64, RecordFacts>,
        objects: &HashMap<u64, RecordFacts>,
    ) {
        let root = self.core.setup.root();
        match groups.get(&root) {
            None => self.problem("the root group is missing"),
            Some(known) if known.parent != 0 || known.named => {
                self.problem("the root group lies in a group");
            }
            Some(_) => {}
        }
        let mut problems = Vec::new();
        for (id, known) in groups.iter().chain(objects) {
            if *id == root {
                continue;
            }
            if !known.named && !known.mirror {
                problems.push(format!("{id:#x} {:?} has a record, but no name", known.name));
            }
            if !groups.contains_key(&known.parent) {
                let parent = known.parent;
                problems.push(format!("{id:#x} {:?} lies in {parent:#x}, no group", known.name));
            }
        }
        let looped = endless(groups.keys().copied(), |gid| Some(groups.get(&gid)?.parent));
        problems.extend(looped.iter().map(|gid| format!("the groups above {gid:#x} form a loop")));
        for what in problems {
            self.problem(what);
        }
    }

    /// Every read-only record is listed as one, and nothing else is.
    pub(super) fn read_only(
        &mut self,
        txn: &ReadTxn<'_>,
        groups: &HashMap<u64, RecordFacts>,
        objects: &HashMap<u64, RecordFacts>,
    ) -> Result<()> {
        let said = |known: &HashMap<u64, RecordFacts>| {
            known.iter().filter(|(_, one)| one.read_only).map(|(id, _)| *id).collect::<Vec<u64>>()
        };
        let mut missing: HashSet<Member> = said(groups).into_iter().map(Member::Group).collect();
        missing.extend(said(objects).into_iter().map(Member::Object));
        let mut cursor = txn.seek(Table::ReadOnly, &[])?;
        let mut wrong = Vec::new();
        while let Some((key, row)) = cursor.next()? {
            match Member::from_row(row) {
                Ok(member) if key == id_key(member.id()) && missing.remove(&member) => {}
                Ok(member) => wrong.push(format!("{member:?} is listed as read-only, and is not")),
                Err(error) => wrong.push(format!("`read_only`: {error}")),
            }
        }
        for member in missing {
            wrong.push(format!("{member:?} is read-only, and is not listed so"));
        }
        for what in wrong {
            self.problem(what);
        }
        Ok(())
    }

    /// Every mirror is listed as one, and nothing else is.
    pub(super) fn mirrors(
        &mut self,
        txn: &ReadTxn<'_>,
        groups: &HashMap<u64, RecordFacts>,
    ) -> Result<()> {
        let mirrors = groups.iter().filter(|(_, known)| known.mirror);
        let mut missing: HashSet<u64> = mirrors.map(|(gid, _)| *gid).collect();
        let mut cursor = txn.seek(Table::Mirrors, &[])?;
        while let Some((key, row)) = cursor.next()? {
            match Member::from_row(row) {
                Ok(Member::Group(gid)) if key == id_key(gid) && missing.remove(&gid) => {}
                Ok(member) => {
                    self.problem(format!("{member:?} is listed as a mirror, and is none"));
                }
                Err(error) => self.problem(format!("`mirrors`: {error}")),
            }
        }
        for gid in missing {
            self.problem(format!("group {gid:#x} is a mirror, and is not listed so"));
        }
        Ok(())
    }

    /// The ids to come are none that were given out.
    pub(super) fn ids<'i>(
        &mut self,
        txn: &ReadTxn<'_>,
        ids: impl Iterator<Item = &'i u64>,
    ) -> Result<()> {
        let next = meta_u64(txn.get(Table::Meta, NEXT_ID)?)?;
        let counter = (1 << COUNTER_BITS) - 1;
        let born_here = ids.filter(|&id| id >> COUNTER_BITS == self.core.setup.id_prefix);
        let greatest = born_here.map(|id| id & counter).max().unwrap_or(0);
        if greatest >= next {
            self.problem(format!("id {greatest:#x} is in use, and {next:#x} would be given out"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Gid, endless};
    use std::cell::Cell;
    use std::collections::HashMap;

    /// The groups of these that loop, ascending, and how often a parent was asked for.
    fn looped(parents: &HashMap<Gid, Gid>) -> (Vec<Gid>, u64) {
        let asked = Cell::new(0);
        let mut found = endless(parents.keys().copied(), |gid| {
            asked.set(asked.get() + 1);
            parents.get(&gid).copied()
        });
        found.sort_unstable();
        (found, asked.get())
    }

    #[test]
    fn a_chain_of_groups_is_walked_once_however_deep_it_is() {
        let depth = 20_000;
        let chain: HashMap<Gid, Gid> = (1..=depth).map(|gid| (gid, gid - 1)).collect();
        let (found, asked) = looped(&chain);
        assert_eq!(found, Vec::<Gid>::new());
        // Each group's, and the root's on each of the ways that reach it.
        assert!(asked <= 2 * depth, "{asked} parents for {depth} groups");
    }

    #[test]
    fn groups_in_a_loop_and_those_below_one_are_found() {
        let chain = (1..10).map(|gid| (gid, gid - 1));
        let ring = [(20, 21), (21, 22), (22, 20)];
        let below = [(30, 31), (31, 21), (40, 40), (41, 40), (50, 99)];
        let parents = chain.chain(ring).chain(below).collect();
        assert_eq!(looped(&parents).0, [20, 21, 22, 30, 31, 40, 41]);
    }
}
