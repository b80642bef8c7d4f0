//! How all groups lie, remembered from query to query.
//!
//! Tests of groups are about all groups at once when they are to rule segments out: which lie below
//! this one, which have such a path. A process reads every group once, and keeps the tree that they
//! form. Which groups the commits since then have changed, the catalog tells
//! ([`engram_catalog::GroupChanges`]), and these are read again: so a commit that changes no group
//! costs the next query nothing, and a group that comes, goes or moves costs one look. Where it is
//! not known what has changed, the tree is made anew.
//!
//! *Invariant*: a tree with the number of a snapshot's changes is the tree of the groups in that
//! snapshot. A tree serves snapshots of its own number alone.
//!
//! Names lie in the tree, and paths do not: a walk puts them together on its way down, so a group
//! that gets another name changes in one place.

use std::sync::{Arc, Mutex};

use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, id_key, id_of_key};
use engram_base::mutex::lock;
use engram_catalog::{GroupChanges, ReadTxn, Table};
use engram_records::object::Record;

/// A realm with more groups has no tree: it would take some hundred megabytes.
const GROUPS_MAX: u64 = 1 << 21;

/// Where there is no node.
const NOWHERE: u32 = u32::MAX;

/// A group in the tree.
#[derive(Clone, Debug)]
pub(crate) struct GroupNode {
    /// The group.
    pub gid: Gid,
    /// Its name; the root's is empty.
    pub name: Box<str>,
    /// Whether it has attributes of its own.
    pub has_attrs: bool,
    /// The GID of the group that it is in, 0 for the root.
    parent: Gid,
    /// The places of that group, of the first group in this one, and of those before and after it
    /// in the same.
    above: u32,
    first: u32,
    before: u32,
    after: u32,
}

/// All groups of a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupTree {
    /// The number of the changes that it has seen.
    number: u64,
    nodes: Vec<GroupNode>,
    /// Places of groups that have gone.
    free: Vec<u32>,
    /// Every group with its place, ascending.
    places: Vec<(Gid, u32)>,
    /// How many records it has read since it was made, those for making it included.
    #[cfg(test)]
    pub read: usize,
}

/// Where a process keeps the last tree.
#[derive(Debug, Default)]
pub struct GroupCache(Mutex<Option<Arc<GroupTree>>>);

impl GroupCache {
    /// The tree of this snapshot, if it can have one.
    pub(crate) fn of(&self, txn: &ReadTxn<'_>) -> Result<Option<Arc<GroupTree>>> {
        let changes = GroupChanges::read(txn)?;
        let mut newer = false;
        {
            let mut kept = lock(&self.0);
            if let Some(mut tree) = kept.take() {
                newer = tree.number > changes.number;
                let whole = match changes.since(tree.number) {
                    None => newer, // of use to others
                    Some([]) => true,
                    // A tree that somebody walks stays as it is for them.
                    Some(changed) => Arc::make_mut(&mut tree).follow(txn, &changes, changed)?,
                };
                if whole {
                    *kept = Some(Arc::clone(&tree));
                }
                if tree.number == changes.number {
                    return Ok(Some(tree));
                }
            }
        }
        if txn.entries(Table::Groups)? > GROUPS_MAX {
            return Ok(None);
        }
        let tree = Arc::new(GroupTree::read(txn, changes.number)?);
        if !newer {
            *lock(&self.0) = Some(Arc::clone(&tree));
        }
        Ok(Some(tree))
    }
}

impl GroupTree {
    fn read(txn: &ReadTxn<'_>, number: u64) -> Result<Self> {
        let mut tree = GroupTree { number, ..GroupTree::default() };
        let mut cursor = txn.seek(Table::Groups, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let gid = id_of_key(key)?;
            tree.places.push((gid, tree.nodes.len() as u32));
            tree.nodes.push(GroupNode::new(gid, &Record::parse(row)?));
        }
        #[cfg(test)]
        {
            tree.read = tree.nodes.len();
        }
        let mut last = (0, NOWHERE);
        for at in 0..tree.nodes.len() as u32 {
            let parent = tree.nodes[at as usize].parent;
            if last.0 != parent {
                last = (parent, tree.place(parent).unwrap_or(NOWHERE));
            }
            if parent != 0 && last.1 == NOWHERE {
                fail!(Corrupt, "group {parent:#x} holds something, and has no record: run verify");
            }
            tree.attach(at, last.1);
        }
        Ok(tree)
    }

    /// Reads the groups again that have changed; whether it is the tree of the snapshot then. If
    /// not, or after an error, it is of no use any more.
    fn follow(
        &mut self,
        txn: &ReadTxn<'_>,
        changes: &GroupChanges,
        changed: &[Gid],
    ) -> Result<bool> {
        let mut changed = changed.to_vec();
        changed.sort_unstable();
        changed.dedup();
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        for gid in changed {
            let known = self.place(gid);
            if let Some(at) = known {
                self.detach(at);
            }
            let row = txn.get(Table::Groups, &id_key(gid))?;
            #[cfg(test)]
            {
                self.read += 1;
            }
            match (known, row) {
                (Some(at), Some(row)) => {
                    let first = self.nodes[at as usize].first;
                    self.nodes[at as usize] =
                        GroupNode { first, ..GroupNode::new(gid, &Record::parse(row)?) };
                    there.push(at);
                }
                (None, Some(row)) => {
                    there.push(self.add(GroupNode::new(gid, &Record::parse(row)?)));
                }
                (Some(at), None) => gone.push(at),
                (None, None) => {}
            }
        }
        for at in there {
            let parent = self.nodes[at as usize].parent;
            match self.place(parent) {
                Some(above) => self.attach(at, above),
                None if parent == 0 => {}
                None => return Ok(false),
            }
        }
        for at in gone {
            if self.nodes[at as usize].first != NOWHERE {
                return Ok(false);
            }
            self.remove(at);
        }
        self.number = changes.number;
        Ok(true)
    }

    /// The place of a group.
    fn place(&self, gid: Gid) -> Option<u32> {
        let at = self.places.binary_search_by_key(&gid, |(known, _)| *known).ok()?;
        Some(self.places[at].1)
    }

    fn add(&mut self, node: GroupNode) -> u32 {
        let gid = node.gid;
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            at
        } else {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        };
        let before = self.places.partition_point(|(known, _)| *known < gid);
        self.places.insert(before, (gid, at));
        at
    }

    fn remove(&mut self, at: u32) {
        let gid = self.nodes[at as usize].gid;
        self.places.remove(self.places.partition_point(|(known, _)| *known < gid));
        self.nodes[at as usize].name = Box::default();
        self.free.push(at);
    }

    /// Puts a group into the one above it; the root stands alone.
    fn attach(&mut self, at: u32, above: u32) {
        let Some(parent) = self.nodes.get_mut(above as usize) else { return };
        let after = std::mem::replace(&mut parent.first, at);
        if let Some(after) = self.nodes.get_mut(after as usize) {
            after.before = at;
        }
        let node = &mut self.nodes[at as usize];
        (node.above, node.before, node.after) = (above, NOWHERE, after);
    }

    /// Takes a group out of the one above it.
    fn detach(&mut self, at: u32) {
        let GroupNode { above, before, after, .. } = self.nodes[at as usize];
        if let Some(after) = self.nodes.get_mut(after as usize) {
            after.before = before;
        }
        match (self.nodes.get(before as usize), self.nodes.get(above as usize)) {
            (Some(_), _) => self.nodes[before as usize].after = after,
            (None, Some(_)) => self.nodes[above as usize].first = after,
            (None, None) => {}
        }
        let node = &mut self.nodes[at as usize];
        (node.above, node.before, node.after) = (NOWHERE, NOWHERE, NOWHERE);
    }

    /// Calls `enter` with a group and each below it, each after the one above it, and how deep it
    /// lies below the first.
    pub(crate) fn walk(
        &self,
        from: Gid,
        enter: &mut dyn FnMut(&GroupNode, usize) -> Result<()>,
    ) -> Result<()> {
        let Some(from) = self.place(from) else { return Ok(()) };
        let (mut at, mut depth, mut left) = (from, 0, self.nodes.len());
        loop {
            let node = &self.nodes[at as usize];
            let Some(rest) = left.checked_sub(1) else {
                fail!(Corrupt, "the groups above {:#x} form a loop: run verify", node.gid);
            };
            left = rest;
            enter(node, depth)?;
            if node.first != NOWHERE {
                (at, depth) = (node.first, depth + 1);
                continue;
            }
            while at != from && self.nodes[at as usize].after == NOWHERE {
                (at, depth) = (self.nodes[at as usize].above, depth - 1);
            }
            if at == from {
                return Ok(());
            }
            at = self.nodes[at as usize].after;
        }
    }

    /// These groups, ascending, as stretches between which there is another group.
    pub(crate) fn stretches(&self, groups: &[Gid]) -> Vec<GroupStretch> {
        let mut stretches: Vec<GroupStretch> = Vec::new();
        let mut next = 0;
        for &gid in groups {
            if self.places.get(next).is_none_or(|(known, _)| *known != gid) {
                next += self.places[next..].partition_point(|(known, _)| *known < gid);
                let before = next.checked_sub(1).map(|at| self.places[at].0);
                stretches.push(GroupStretch { before, first: gid, last: gid, after: None });
            }
            next += usize::from(self.places.get(next).is_some_and(|(known, _)| *known == gid));
            let after = self.places.get(next).map(|(known, _)| *known);
            match stretches.last_mut() {
                Some(stretch) => (stretch.last, stretch.after) = (gid, after),
                None => stretches.push(GroupStretch { before: None, first: gid, last: gid, after }),
            }
        }
        stretches
    }
}

impl GroupNode {
    fn new(gid: Gid, record: &Record<'_>) -> Self {
        GroupNode {
            gid,
            name: record.name.into(),
            has_attrs: !record.attrs.is_empty(),
            parent: record.parent,
            above: NOWHERE,
            first: NOWHERE,
            before: NOWHERE,
            after: NOWHERE,
        }
    }
}

/// Groups that follow each other: there is no other between the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupStretch {
    /// The group before them, if there is one.
    pub before: Option<Gid>,
    /// The first.
    pub first: Gid,
    /// The last.
    pub last: Gid,
    /// The group after them, if there is one.
    pub after: Option<Gid>,
}

#[cfg(test)]
mod tests;
