//! A naive tree: paths, and what is at each. It says what an operation does, and when it refuses.

use std::collections::BTreeMap;

use super::{Lies, Op, ROOT, TestPath, TestRows};
use crate::group;
use engram_base::error::Kind;
use engram_base::id::{Gid, Member, id_key, split_name_key};
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_records::attrs;
use engram_records::extent::Extent;
use engram_records::object::{Class, Record, Stored};

/// What is at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// How an object's value lies; `None` for a group.
    pub(crate) object: Option<&'static str>,
    pub(crate) mirror: bool,
    pub(crate) read_only: bool,
    pub(crate) attrs: BTreeMap<u32, String>,
}

impl Node {
    fn is_group(&self) -> bool {
        self.object.is_none()
    }
}

/// Every member by its path from the root, without a slash before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelTree(pub(crate) BTreeMap<String, Node>);

/// A path and those above it, the outermost first.
fn with_all_above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).chain([path])
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

fn lies(lies: Lies) -> &'static str {
    match lies {
        Lies::Inline => "inline",
        Lies::InExtent => "in an extent",
        Lies::InChunks => "in chunks",
    }
}

impl ModelTree {
    fn full(&self, at: &TestPath) -> String {
        let base = at.base.as_ref().filter(|base| self.0.get(*base).is_some_and(Node::is_group));
        match (at.path.strip_prefix('/'), base) {
            (Some(absolute), _) => absolute.to_owned(),
            (None, Some(base)) => format!("{base}/{}", at.path),
            (None, None) => at.path.clone(),
        }
    }

    /// Whether this member, or a group above it, is read-only.
    fn held(&self, path: &str) -> bool {
        with_all_above(path).any(|at| self.0.get(at).is_some_and(|node| node.read_only))
    }

    /// The refusal to make something at a path whose parents are not all groups.
    fn refuse_below_object(&self, path: &str) -> Result<(), Kind> {
        let mut above = with_all_above(path).take_while(|at| *at != path);
        if above.any(|at| self.0.get(at).is_some_and(|node| !node.is_group())) {
            return Err(Kind::Exists);
        }
        Ok(())
    }

    fn refuse_held(&self, path: &str) -> Result<(), Kind> {
        if self.held(path) { Err(Kind::ReadOnly) } else { Ok(()) }
    }

    fn put(&mut self, path: &str, node: Node) {
        for above in with_all_above(path) {
            self.0.entry(above.to_owned()).or_default();
        }
        self.0.insert(path.to_owned(), node);
    }

    fn node(&mut self, path: &str) -> Result<&mut Node, Kind> {
        self.0.get_mut(path).ok_or(Kind::NotFound)
    }

    /// Does what an operation should do; `Err` with the kind of the refusal that it should give.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), Kind> {
        match op {
            Op::Create { at, exist_ok } => {
                let path = self.full(at);
                self.refuse_below_object(&path)?;
                match self.0.get(&path) {
                    Some(node) if node.is_group() && *exist_ok => return Ok(()),
                    Some(_) => return Err(Kind::Exists),
                    None => self.refuse_held(&path)?,
                }
                self.put(&path, Node::default());
            }
            Op::Link { at, overwrite, lies: how, read_only } => {
                let path = self.full(at);
                self.refuse_below_object(&path)?;
                if self.0.get(&path).is_some_and(|node| node.is_group() || !overwrite) {
                    return Err(Kind::Exists);
                }
                self.refuse_held(&path)?;
                let object = Some(lies(*how));
                self.put(&path, Node { object, read_only: *read_only, ..Node::default() });
            }
            Op::Delete { at } => {
                let path = self.full(at);
                self.node(&path)?;
                self.refuse_held(&path)?;
                let mut below = self.0.iter().filter(|(inner, _)| is_below(inner, &path));
                if below.any(|(_, node)| node.read_only) {
                    return Err(Kind::ReadOnly);
                }
                self.0.retain(|inner, _| *inner != path && !is_below(inner, &path));
            }
            Op::Rename { from, to } => return self.rename(from, to),
            Op::Annotate { at, key, text } => {
                let path = self.full(at);
                self.node(&path)?;
                self.refuse_held(&path)?;
                let node = self.node(&path)?;
                node.mirror = false;
                match text {
                    Some(text) => node.attrs.insert(*key, (*text).to_owned()),
                    None => node.attrs.remove(key),
                };
            }
            Op::Protect { at, on } => {
                let path = self.full(at);
                self.node(&path)?;
                if let Some((above, _)) = path.rsplit_once('/') {
                    self.refuse_held(above)?;
                }
                let node = self.node(&path)?;
                node.mirror &= node.read_only == *on;
                node.read_only = *on;
            }
            Op::Reflect { path } => {
                if let Some((above, _)) = path.rsplit_once('/')
                    && !self.0.get(above).is_some_and(Node::is_group)
                {
                    return Err(Kind::NotFound);
                }
                if self.0.contains_key(path) {
                    return Err(Kind::Exists);
                }
                self.0.insert(path.clone(), Node { mirror: true, ..Node::default() });
            }
        }
        Ok(())
    }

    fn rename(&mut self, from: &TestPath, to: &TestPath) -> Result<(), Kind> {
        let (from, to) = (self.full(from), self.full(to));
        self.node(&from)?;
        self.refuse_below_object(&to)?;
        if self.0.contains_key(&to) {
            return if from == to { Ok(()) } else { Err(Kind::Exists) };
        }
        self.refuse_held(&from)?;
        self.refuse_held(&to)?;
        if is_below(&to, &from) {
            return Err(Kind::Argument);
        }
        self.node(&from)?.mirror = false;
        let goes = |path: &String| *path == from || is_below(path, &from);
        let going: Vec<String> = self.0.keys().filter(|path| goes(path)).cloned().collect();
        for path in going {
            let node = self.0.remove(&path).expect("it was listed");
            self.put(&format!("{to}{}", &path[from.len()..]), node);
        }
        Ok(())
    }

    /// The tree that rows say.
    pub(crate) fn of(rows: &mut impl Rows) -> ModelTree {
        let mut tree = ModelTree::default();
        let mut open: Vec<(Gid, String)> = vec![(ROOT, String::new())];
        while let Some((gid, above)) = open.pop() {
            for (name, member) in group::members(rows, gid, None, usize::MAX).expect("sound rows") {
                let path = format!("{above}{name}");
                let node = group::with_record(rows, member, |record| Ok(node_of(record)));
                tree.0.insert(path.clone(), node.expect("a name's record"));
                if let Member::Group(gid) = member {
                    open.push((gid, path + "/"));
                }
            }
        }
        tree
    }
}

fn node_of(record: &Record<'_>) -> Node {
    let attrs = attrs::entries(record.attrs).map(|entry| {
        let entry = entry.expect("a sound entry");
        (entry.key, String::from_utf8(entry.data().to_vec()).expect("a text"))
    });
    let object = match record.stored {
        _ if record.class == Class::Group => None,
        Stored::Inline(_) => Some("inline"),
        Stored::Contiguous { .. } => Some("in an extent"),
        Stored::Chunked(_) => Some("in chunks"),
        Stored::Segmented(_) => Some("in segments"),
    };
    Node {
        object,
        mirror: record.flags.mirror,
        read_only: record.flags.read_only,
        attrs: attrs.collect(),
    }
}

/// The ids of a table whose key is an id and whose row is a member.
fn listed(memory: &TestRows, table: Table) -> Vec<u64> {
    let id = |(key, row): (&[u8], &[u8])| {
        let member = Member::from_row(row).expect("a member");
        assert_eq!(key, id_key(member.id()));
        member.id()
    };
    memory.rows.in_order(table).map(id).collect()
}

/// Asserts what holds of rows between any two operations; `indexed` are the objects that the index
/// should know.
pub(crate) fn check(memory: &mut TestRows) {
    let (mut records, mut extents) = (Vec::<(Member, Vec<u8>)>::new(), Vec::<Extent>::new());
    for (table, member) in
        [(Table::Groups, Member::Group as fn(u64) -> _), (Table::Objects, Member::Object)]
    {
        for (key, row) in memory.rows.in_order(table) {
            let id = u64::from_be_bytes(key.try_into().expect("an id"));
            records.push((member(id), row.to_vec()));
        }
    }
    let (mut read_only, mut mirrors, mut objects) = (Vec::new(), Vec::new(), Vec::new());
    for (member, row) in &records {
        let record = Record::parse(row).expect("a sound record");
        extents.extend(record.extent());
        read_only.extend(record.flags.read_only.then_some(member.id()));
        mirrors.extend(record.flags.mirror.then_some(member.id()));
        objects.extend(matches!(member, Member::Object(_)).then_some(member.id()));
        if *member != Member::Group(ROOT) {
            let named = group::child(memory, record.parent, record.name).expect("sound rows");
            assert_eq!(named, Some(*member), "its record says {:?}", record.name);
        }
    }
    for (key, _) in memory.rows.in_order(Table::Names) {
        split_name_key(key).expect("a key of names");
    }
    assert_eq!(memory.rows.entries(Table::Names), records.len() - 1, "a name for each record");
    read_only.sort_unstable();
    assert_eq!(listed(memory, Table::ReadOnly), read_only, "what is read-only is listed");
    assert_eq!(listed(memory, Table::Mirrors), mirrors, "mirrors are listed");
    let known: Vec<u64> = memory.touches().into_keys().collect();
    assert_eq!(known, objects, "the index was told of each object, and of no other");
    for (key, row) in memory.rows.in_order(Table::Chunks) {
        let (oid, _) = crate::chunk_rows::split_key(key).expect("a key of chunks");
        assert!(objects.contains(&oid), "a chunk has its array");
        extents.extend(crate::chunk_rows::parse(row).expect("a chunk").extent());
    }
    // Each extent that a row ever took is in one record, or was released, once.
    extents.extend(&memory.released);
    extents.sort_unstable();
    let mut adopted: Vec<Extent> = memory.adopted.iter().map(|one| one.extent).collect();
    adopted.sort_unstable();
    assert_eq!(extents, adopted, "space in records and released, and space that was taken");
}
