//! Groups, as a query looks at them: each is read once, and judged once for each test.
//!
//! The groups above an object are followed upwards, one record each. Most objects share their
//! group with the object before them, so the last answer is remembered first.

use std::borrow::Cow;
use std::collections::HashMap;

use super::compile::{GroupField, Leaf};
use super::tree::{GroupCache, GroupStretch, GroupTree};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Member, NameKey, id_key};
use engram_base::name::Name;
use engram_base::scope::Scope;
use engram_catalog::Table;
use engram_columns::cell::{Cell, Cells, cells_of, cells_of_part};
use engram_ops::overlay::peek::Peek;
use engram_records::attrs;
use engram_records::attrs::KeyId;
use engram_records::object::{Class, Record};

/// What other realms of the namespace say of its groups, for a query in one of them.
pub trait Beyond<'a> {
    /// The record of the realm that says what a group is, and which realm that is.
    fn home(&self, gid: Gid) -> Result<Option<(usize, &'a [u8])>>;
    /// The number that a realm has for a key, which has this number in the realm that asks.
    fn key(&self, at: usize, key: KeyId) -> Result<Option<KeyId>>;
    /// A number for a key that only other realms know.
    fn unknown_key(&self, key: &str) -> Result<Option<KeyId>>;
    /// The group at a path.
    fn find(&self, from: Gid, path: &str) -> Result<Option<Gid>>;
}

/// The groups of which a query has read something so far.
pub struct Groups<'a> {
    peek: Peek<'a>,
    root: Gid,
    scope: Scope,
    beyond: Option<&'a dyn Beyond<'a>>,
    known: HashMap<Gid, GroupFacts<'a>>,
    paths: HashMap<Gid, String>,
    cache: &'a GroupCache,
    /// By leaf: the group judged last, and all that were.
    verdicts: Vec<Verdicts>,
}

#[derive(Default)]
struct Verdicts {
    last: Option<(Gid, bool)>,
    all: HashMap<Gid, bool>,
}

/// A group's record, as far as queries ask for it.
#[derive(Clone, Copy)]
struct GroupFacts<'a> {
    /// The realm that says so, if there are several.
    at: usize,
    parent: Gid,
    name: &'a str,
    attrs: &'a [u8],
}

/// What a group itself has of a key.
enum OwnAttr<'a> {
    Nothing,
    /// The key, and not the field of it that was asked for.
    NoSuchField,
    Value(Cells<'a>),
}

impl<'a> Groups<'a> {
    /// Makes an empty set, which knows no group yet.
    pub fn new(peek: Peek<'a>, root: Gid, cache: &'a GroupCache) -> Self {
        let (known, paths, verdicts) = (HashMap::new(), HashMap::new(), Vec::new());
        let (scope, beyond) = (Scope::default(), None);
        Groups { peek, root, scope, beyond, known, paths, cache, verdicts }
    }

    /// Says of which scope the realm is that the query runs in.
    #[must_use]
    pub fn of(self, scope: Scope) -> Self {
        Groups { scope, ..self }
    }

    /// Lets the query ask other realms of the namespace, too.
    #[must_use]
    pub fn beyond(self, beyond: &'a dyn Beyond<'a>) -> Self {
        Groups { beyond: Some(beyond), ..self }
    }

    /// The scope of the realm that the query runs in.
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// A number for a key that no group of this realm has, where other realms know it.
    pub(crate) fn unknown_key(&self, key: &str) -> Result<Option<KeyId>> {
        self.beyond.map_or(Ok(None), |beyond| beyond.unknown_key(key))
    }

    /// The row that says what a group is, and the realm that it is of.
    fn row(&self, gid: Gid) -> Result<Option<(usize, &'a [u8])>> {
        match self.beyond {
            Some(beyond) => beyond.home(gid),
            None => Ok(self.peek.get(Table::Groups, &id_key(gid))?.map(|row| (0, row))),
        }
    }

    /// The namespace's root.
    pub(crate) fn root(&self) -> Gid {
        self.root
    }

    /// Refuses a group that is gone.
    pub(crate) fn require(&mut self, gid: Gid) -> Result<()> {
        if self.row(gid)?.is_none() {
            fail!(NotFound, "the group {gid:#x} was deleted: open it again by its path");
        }
        Ok(())
    }

    /// The group at a path from `from`; a leading `/` starts at the root.
    pub(crate) fn find(&mut self, from: Gid, path: &str) -> Result<Option<Gid>> {
        let (mut gid, rest) = match path.strip_prefix('/') {
            Some(rest) => (self.root, rest),
            None => (from, path),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return Ok(Some(gid));
        }
        if let Some(beyond) = self.beyond {
            return beyond.find(gid, rest);
        }
        for component in rest.split('/') {
            if Name::new(component).is_err() {
                return Ok(None);
            }
            let key = NameKey::new(gid, component);
            match self.peek.get(Table::Names, key.as_bytes())?.map(Member::from_row).transpose()? {
                Some(Member::Group(inner)) => gid = inner,
                _ => return Ok(None),
            }
        }
        Ok(Some(gid))
    }

    fn known(&mut self, gid: Gid) -> Result<GroupFacts<'a>> {
        match self.look_up(gid)? {
            Some(known) => Ok(known),
            None => fail!(Corrupt, "group {gid:#x} holds something, and has no record: run verify"),
        }
    }

    fn look_up(&mut self, gid: Gid) -> Result<Option<GroupFacts<'a>>> {
        if let Some(known) = self.known.get(&gid) {
            return Ok(Some(*known));
        }
        let Some((at, row)) = self.row(gid)? else { return Ok(None) };
        let record = Record::parse(row)?;
        if record.class != Class::Group || (record.parent == 0) != (gid == self.root) {
            fail!(Corrupt, "the record of group {gid:#x} is no group's: run verify");
        }
        let known =
            GroupFacts { at, parent: record.parent, name: record.name, attrs: record.attrs };
        self.known.insert(gid, known);
        Ok(Some(known))
    }

    /// The group's path; empty for the root.
    pub(crate) fn path(&mut self, gid: Gid) -> Result<&str> {
        if !self.paths.contains_key(&gid) {
            let (mut names, mut at) = (Vec::new(), gid);
            while at != self.root {
                let GroupFacts { parent, name, .. } = self.known(at)?;
                names.push(name);
                at = parent;
                check_depth(names.len(), gid)?;
            }
            names.reverse();
            self.paths.insert(gid, names.join("/"));
        }
        Ok(&self.paths[&gid])
    }

    /// The path of what has this name in the group.
    pub fn path_of(&mut self, parent: Gid, name: &str) -> Result<String> {
        let above = self.path(parent)?;
        Ok(if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") })
    }

    /// What the nearest group from this one upwards that has a key has of it: the value, or a field
    /// of it, a field of that, and so on.
    pub(crate) fn attr(
        &mut self,
        gid: Gid,
        key: KeyId,
        parts: &[String],
    ) -> Result<Option<Cells<'a>>> {
        let (mut at, mut steps) = (gid, 0);
        loop {
            match self.own_attr(at, key, parts)? {
                OwnAttr::Value(cells) => return Ok(Some(cells)),
                OwnAttr::NoSuchField => return Ok(None),
                OwnAttr::Nothing if at == self.root => return Ok(None),
                OwnAttr::Nothing => {}
            }
            at = self.known(at)?.parent;
            steps += 1;
            check_depth(steps, gid)?;
        }
    }

    /// What a group itself has of a key, or of a field of it.
    fn own_attr(&mut self, gid: Gid, key: KeyId, parts: &[String]) -> Result<OwnAttr<'a>> {
        let GroupFacts { at: realm, attrs, .. } = self.known(gid)?;
        let key = match self.beyond {
            Some(beyond) => beyond.key(realm, key)?,
            None => Some(key),
        };
        for entry in attrs::entries(attrs) {
            let entry = entry?;
            if Some(entry.key) == key {
                let cells = match parts {
                    [] => Some(cells_of(&entry)?),
                    parts => cells_of_part(&entry, parts)?,
                };
                return Ok(cells.map_or(OwnAttr::NoSuchField, OwnAttr::Value));
            }
        }
        Ok(OwnAttr::Nothing)
    }

    fn is_under(&mut self, gid: Gid, above: Gid) -> Result<bool> {
        let (mut at, mut steps) = (gid, 0);
        while at != above {
            if at == self.root {
                return Ok(false);
            }
            at = self.known(at)?.parent;
            steps += 1;
            check_depth(steps, gid)?;
        }
        Ok(true)
    }

    /// The groups that a leaf is true of, where that can be said without much ado.
    pub(crate) fn passing(&mut self, leaf: &Leaf, field: &GroupField) -> Result<Option<Passing>> {
        if *field == GroupField::Root {
            return Ok(Some(Passing::alone(self.root)));
        }
        if self.beyond.is_some() || !self.peek.changed(Table::Groups)?.is_empty() {
            return Ok(None);
        }
        if let (GroupField::Path, Some(text)) = (field, leaf.predicate.only_text()) {
            let found = self.find(self.root, text)?;
            return Ok(Some(match found {
                Some(gid) if self.path(gid)? == text => Passing::alone(gid),
                _ => Passing::default(),
            }));
        }
        let Some(tree) = self.cache.of(self.peek.txn())? else { return Ok(None) };
        let mut groups = match field {
            GroupField::Root => vec![self.root],
            GroupField::Under(above) => below(&tree, *above)?,
            GroupField::Path => with_path(&tree, self.root, leaf)?,
            GroupField::Attr(key, parts) => self.with_attr(&tree, leaf, *key, parts)?,
        };
        groups.sort_unstable();
        let stretches = tree.stretches(&groups);
        Ok(Some(Passing { groups, stretches }))
    }

    /// The groups that a leaf about an attribute is true of. One without attributes of its own is
    /// as the one above it is.
    fn with_attr(
        &mut self,
        tree: &GroupTree,
        leaf: &Leaf,
        key: KeyId,
        parts: &[String],
    ) -> Result<Vec<Gid>> {
        let (mut passing, mut above) = (Vec::new(), Vec::new());
        tree.walk(self.root, &mut |node, depth| {
            above.truncate(depth);
            let own = if node.has_attrs {
                self.own_attr(node.gid, key, parts)?
            } else {
                OwnAttr::Nothing
            };
            let passes = match own {
                OwnAttr::Value(cells) => leaf.predicate.cells(&cells),
                OwnAttr::NoSuchField => false,
                OwnAttr::Nothing => above.last().copied().unwrap_or(false),
            };
            if passes {
                passing.push(node.gid);
            }
            above.push(passes);
            Ok(())
        })?;
        Ok(passing)
    }

    /// Whether a leaf about the group is true of this one.
    pub(crate) fn judge(&mut self, leaf: &Leaf, field: &GroupField, gid: Gid) -> Result<bool> {
        if self.verdicts.len() <= leaf.number {
            self.verdicts.resize_with(leaf.number + 1, Verdicts::default);
        }
        let verdicts = &self.verdicts[leaf.number];
        if let Some((last, verdict)) = verdicts.last
            && last == gid
        {
            return Ok(verdict);
        }
        let verdict = match verdicts.all.get(&gid) {
            Some(verdict) => *verdict,
            None => self.judge_anew(leaf, field, gid)?,
        };
        let verdicts = &mut self.verdicts[leaf.number];
        verdicts.all.insert(gid, verdict);
        verdicts.last = Some((gid, verdict));
        Ok(verdict)
    }

    /// Judges a group that a segment names, as [`Groups::judge`] does. A group that is gone with
    /// its objects passes nothing.
    pub(crate) fn judge_sealed(
        &mut self,
        leaf: &Leaf,
        field: &GroupField,
        gid: Gid,
    ) -> Result<bool> {
        Ok(self.look_up(gid)?.is_some() && self.judge(leaf, field, gid)?)
    }

    fn judge_anew(&mut self, leaf: &Leaf, field: &GroupField, gid: Gid) -> Result<bool> {
        Ok(match field {
            GroupField::Root => gid == self.root,
            GroupField::Under(above) => self.is_under(gid, *above)?,
            GroupField::Path => leaf.predicate.cell(&Cell::Text(self.path(gid)?.into())),
            GroupField::Attr(key, parts) => {
                self.attr(gid, *key, parts)?.is_some_and(|cells| leaf.predicate.cells(&cells))
            }
        })
    }
}

/// The groups that a leaf is true of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passing {
    /// Each, ascending.
    groups: Vec<Gid>,
    /// The same, as stretches of groups that follow each other.
    pub stretches: Vec<GroupStretch>,
}

impl Passing {
    /// This group, of which it is not said what lies beside it.
    fn alone(gid: Gid) -> Self {
        let beside = Some(gid);
        let stretch = GroupStretch { before: beside, first: gid, last: gid, after: beside };
        Passing { groups: vec![gid], stretches: vec![stretch] }
    }

    /// Whether this cell of the column of groups is one of them.
    pub(crate) fn has(&self, cell: &Cell<'_>) -> bool {
        let gid = match cell {
            Cell::Int(gid) => *gid as u64,
            Cell::Big(gid) => *gid,
            _ => return false,
        };
        self.groups.binary_search(&gid).is_ok()
    }
}

/// A group, and those below it.
fn below(tree: &GroupTree, above: Gid) -> Result<Vec<Gid>> {
    let mut all = Vec::new();
    tree.walk(above, &mut |node, _| {
        all.push(node.gid);
        Ok(())
    })?;
    Ok(all)
}

/// The groups whose path a leaf is true of.
fn with_path(tree: &GroupTree, root: Gid, leaf: &Leaf) -> Result<Vec<Gid>> {
    // How long the path was at each depth above the last group.
    let (mut passing, mut path, mut lengths) = (Vec::new(), String::new(), vec![0]);
    tree.walk(root, &mut |node, depth| {
        lengths.truncate(depth.max(1));
        path.truncate(lengths[lengths.len() - 1]);
        if depth > 0 {
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(&node.name);
            lengths.push(path.len());
        }
        if leaf.predicate.cell(&Cell::Text(Cow::Borrowed(&path))) {
            passing.push(node.gid);
        }
        Ok(())
    })?;
    Ok(passing)
}

fn check_depth(steps: usize, gid: Gid) -> Result<()> {
    if steps > engram_ops::group::DEPTH_MAX as usize {
        fail!(Corrupt, "the groups above {gid:#x} form a loop: run verify");
    }
    Ok(())
}
