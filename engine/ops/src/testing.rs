//! What unit tests of this crate share: rows in memory that note what becomes of space and of the
//! index, operations as data, and ([`tree`]) a naive tree that says what each should do.

pub(crate) mod tree;

use std::borrow::Cow;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;

use crate::chunk_rows::{self, ExpectedChunk, Staged};
use crate::group::{self, NewRecord, Target};
use crate::index_modes::IndexModes;
use crate::mirror::{self, Original};
use crate::protect;
use crate::rows_mut::{Reserved, RowsMut};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member, Oid, id_key};
use engram_base::name::Path;
use engram_catalog::Table;
use engram_catalog::rows::{Row, Rows};
use engram_catalog::testing::MemoryRows;
use engram_records::attrs::{KeyId, Value};
use engram_records::extent::{Extent, LINE};
use engram_records::index_mode::{IndexMode, Touch};
use engram_records::layout::{Chunking, Codec};
use engram_records::object::{Class, Flags, Record, Stored};
use engram_records::stamp::Stamp;

/// The GID of the root of [`TestRows::with_root`].
pub(crate) const ROOT: Gid = 1;
/// The lease of every reservation here.
pub(crate) const LEASE: u64 = 7;
/// Chunks that a chunked array of [`Op::Link`] gets.
const CHUNKS: u32 = 3;

/// Rows in memory, and what operations have said beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestRows {
    pub(crate) rows: MemoryRows,
    /// Extents that no row points to any more, in the order in which that was said.
    pub(crate) released: Vec<Extent>,
    /// Reservations that a row points to from then on.
    pub(crate) adopted: Vec<Reserved>,
    /// What the index was told, in order.
    pub(crate) touched: Vec<(Oid, Touch)>,
}

impl TestRows {
    /// Rows with a root, and nothing else.
    pub(crate) fn with_root() -> Self {
        let mut memory = TestRows::default();
        let root = group::group_record(0, "", stamp(0), &[], &[]);
        memory.put_record(Table::Groups, &id_key(ROOT), &root).expect("rows in memory");
        memory
    }

    /// What the index was told of each object, as one touch; none of what came and went.
    pub(crate) fn touches(&self) -> BTreeMap<Oid, Touch> {
        let mut touches = BTreeMap::new();
        for (oid, touch) in &self.touched {
            let both = match touches.remove(oid) {
                None => Some(*touch),
                Some(before) => Touch::then(before, *touch),
            };
            both.map(|both| touches.insert(*oid, both));
        }
        touches
    }
}

impl Rows for TestRows {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        self.rows.get(table, key)
    }

    fn has(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        self.rows.has(table, key)
    }

    fn first_from(&mut self, table: Table, from: &[u8]) -> Result<Option<Row>> {
        self.rows.first_from(table, from)
    }

    fn has_index_settings(&mut self) -> Result<bool> {
        self.rows.has_index_settings()
    }

    fn has_read_only(&mut self) -> Result<bool> {
        self.rows.has_read_only()
    }
}

impl RowsMut for TestRows {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.rows.put(table, key, value);
        Ok(())
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<()> {
        assert!(self.rows.remove(table, key), "a row of {table:?} is removed that is not there");
        Ok(())
    }

    fn release(&mut self, extent: Extent, _: Oid) -> Result<()> {
        self.released.push(extent);
        Ok(())
    }

    fn adopt(&mut self, reserved: Reserved) -> Result<()> {
        self.adopted.push(reserved);
        Ok(())
    }

    fn names_changed(&mut self, _: Gid, _: i32) -> Result<()> {
        Ok(())
    }

    fn index(&mut self, oid: Oid, touch: Touch) -> Result<()> {
        self.touched.push((oid, touch));
        Ok(())
    }
}

/// A stamp of this moment.
pub(crate) fn stamp(now: i64) -> Stamp {
    Stamp { owner: 1000, now, checksums: true }
}

/// The group of a path that begins at the root.
pub(crate) fn target<'a>(from: Gid, path: &'a Path<'a>) -> Target<'a> {
    Target { from, root: ROOT, path }
}

/// The member at a path from the root; `None` for none.
pub(crate) fn at(rows: &mut impl Rows, path: &str) -> Option<Member> {
    let path = Path::new(path).expect("a path");
    group::resolve(rows, &target(ROOT, &path)).expect("sound rows")
}

/// Every new object is indexed in its own commit.
pub(crate) struct AlwaysSync;

impl IndexModes for AlwaysSync {
    fn mode_at(&self, _: &mut dyn Rows, _: Gid) -> Result<IndexMode> {
        Ok(IndexMode::Sync)
    }
}

/// Where an operation begins, and the path from there (from the root, if it begins with `/`).
#[derive(Clone, Debug)]
pub(crate) struct TestPath {
    pub(crate) base: Option<String>,
    pub(crate) path: String,
}

/// How the value of a new object lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lies {
    Inline,
    InExtent,
    InChunks,
}

/// An operation, as data.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        at: TestPath,
        exist_ok: bool,
    },
    Link {
        at: TestPath,
        overwrite: bool,
        lies: Lies,
        read_only: bool,
    },
    Delete {
        at: TestPath,
    },
    Rename {
        from: TestPath,
        to: TestPath,
    },
    Annotate {
        at: TestPath,
        key: KeyId,
        text: Option<&'static str>,
    },
    Protect {
        at: TestPath,
        on: bool,
    },
    /// A group of another realm gets its mirror here, if the path is free.
    Reflect {
        path: String,
    },
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(select(vec!["a", "b", "ä"]), 1..4).prop_map(|names| names.join("/"))
}

fn place() -> impl Strategy<Value = TestPath> {
    (prop::option::weighted(0.2, path()), prop::bool::weighted(0.2), path()).prop_map(
        |(base, absolute, path)| TestPath {
            base,
            path: if absolute { format!("/{path}") } else { path },
        },
    )
}

/// Any operation; of `protecting` ones only if that is said.
pub(crate) fn op(protecting: bool) -> impl Strategy<Value = Op> {
    let lies = select(vec![Lies::Inline, Lies::InExtent, Lies::InChunks]);
    let texts = select(vec!["one", "two"]);
    let rare = if protecting { 0.05 } else { 0.0 };
    prop_oneof![
        3 => (place(), any::<bool>()).prop_map(|(at, exist_ok)| Op::Create { at, exist_ok }),
        4 => (place(), any::<bool>(), lies, prop::bool::weighted(rare)).prop_map(
            |(at, overwrite, lies, read_only)| Op::Link { at, overwrite, lies, read_only }
        ),
        2 => place().prop_map(|at| Op::Delete { at }),
        4 => (place(), place()).prop_map(|(from, to)| Op::Rename { from, to }),
        2 => (place(), 1..4u32, prop::option::of(texts))
            .prop_map(|(at, key, text)| Op::Annotate { at, key, text }),
        u32::from(protecting) => (place(), any::<bool>())
            .prop_map(|(at, on)| Op::Protect { at, on }),
        1 => path().prop_map(|path| Op::Reflect { path }),
    ]
}

impl Op {
    /// Runs it at this moment, with ids after `last_id`.
    pub(crate) fn run(&self, rows: &mut impl RowsMut, now: i64, last_id: &mut u64) -> Result<()> {
        let stamp = stamp(now);
        let mut new_id = || {
            *last_id += 1;
            *last_id
        };
        match self {
            Op::Create { at, exist_ok } => {
                let (from, path) = begin(rows, at)?;
                let target = target(from, &path);
                group::create(rows, &target, stamp, &[], &[], *exist_ok, &mut new_id).map(drop)
            }
            Op::Link { at, overwrite, lies, read_only } => {
                link(rows, at, *overwrite, *lies, *read_only, stamp, &mut new_id)
            }
            Op::Delete { at } => {
                let (from, path) = begin(rows, at)?;
                group::delete(rows, &target(from, &path), &at.path)
            }
            Op::Rename { from, to } => {
                let (old_from, old) = begin(rows, from)?;
                let (new_from, new) = begin(rows, to)?;
                let (old, new) = (target(old_from, &old), target(new_from, &new));
                let clash = group::Clash::Refuse;
                group::rename(rows, &old, &from.path, &new, clash, stamp, &mut new_id)
            }
            Op::Annotate { at, key, text } => {
                let member = find(rows, at)?;
                let value = text.map(Value::text);
                group::annotate(rows, member, &[(*key, value.as_ref())], stamp)
            }
            Op::Protect { at, on } => {
                let member = find(rows, at)?;
                protect::set(rows, member, *on, stamp)
            }
            Op::Reflect { path } => reflect(rows, path, new_id()),
        }
    }
}

/// The group that an operation begins at: the root, if the base is no group.
fn begin<'a>(rows: &mut impl Rows, at: &'a TestPath) -> Result<(Gid, Path<'a>)> {
    let from = match &at.base {
        None => ROOT,
        Some(base) => match group::resolve(rows, &target(ROOT, &Path::new(base)?))? {
            Some(Member::Group(gid)) => gid,
            _ => ROOT,
        },
    };
    Ok((from, Path::new(&at.path)?))
}

fn find(rows: &mut impl Rows, at: &TestPath) -> Result<Member> {
    let (from, path) = begin(rows, at)?;
    let found = group::resolve(rows, &target(from, &path))?;
    found.ok_or_else(|| Error::new(Kind::NotFound, "there is none"))
}

/// The extent of this value: each has its own.
pub(crate) fn extent_of(id: u64, part: u64) -> Extent {
    Extent { offset: (id * 8 + part) * LINE, len: LINE }
}

/// A record of a new array, as callers of `link` make it.
pub(crate) fn array_record(stored: Stored<'_>, read_only: bool, stamp: Stamp) -> Record<'_> {
    let flags = Flags { read_only, ..Flags::default() };
    let record = group::group_record(0, "", stamp, &[], &[]);
    let chunked = matches!(stored, Stored::Chunked(_));
    let (ndim, shape): (u8, &[u8]) = if chunked { (1, &[3]) } else { (0, &[]) };
    Record { class: Class::Array, dtype: b"u1", ndim, shape, flags, stored, ..record }
}

fn link(
    rows: &mut impl RowsMut,
    at: &TestPath,
    overwrite: bool,
    lies: Lies,
    read_only: bool,
    stamp: Stamp,
    new_id: &mut dyn FnMut() -> u64,
) -> Result<()> {
    let (from, path) = begin(rows, at)?;
    let oid = new_id();
    let extent = extent_of(oid, 0);
    let stored = match lies {
        Lies::Inline => Stored::Inline(b"value"),
        Lies::InExtent => Stored::Contiguous { extent, nbytes: 3, checksum: 0 },
        Lies::InChunks => {
            Stored::Chunked(Chunking { nbytes: 3, codec: Codec::default(), chunks: &[1] })
        }
    };
    let reserved = (lies == Lies::InExtent).then_some(Reserved { extent, lease: LEASE });
    let record = array_record(stored, read_only, stamp);
    let new = NewRecord { oid, record, index: None, modes: &AlwaysSync, reserved };
    group::link(rows, &target(from, &path), &new, overwrite, new_id)?;
    if lies == Lies::InChunks {
        for place in 0..CHUNKS {
            let extent = extent_of(oid, u64::from(place) + 1);
            let reserved = Reserved { extent, lease: LEASE };
            let value = chunk_rows::ChunkValue::Reserved { reserved, nbytes: 1, checksum: 0 };
            let expected = ExpectedChunk::Anything;
            Staged { cell: vec![place], value, expected }.put(rows, oid, stamp)?;
        }
    }
    Ok(())
}

fn reflect(rows: &mut impl RowsMut, path: &str, gid: Gid) -> Result<()> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = match above {
        "" => Some(Member::Group(ROOT)),
        above => group::resolve(rows, &target(ROOT, &Path::new(above)?))?,
    };
    let Some(Member::Group(parent)) = parent else { fail!(NotFound, "no group is above") };
    if group::child(rows, parent, name)?.is_some() {
        fail!(Exists, "the name is taken");
    }
    let original = Original {
        gid,
        parent,
        name: name.to_owned(),
        owner: 1000,
        created: 5,
        modified: 5,
        attrs: Vec::new(),
        checked: true,
    };
    mirror::reflect(rows, &[original])
}

/// A path from the root.
pub(crate) fn here(path: &str) -> TestPath {
    TestPath { base: None, path: path.to_owned() }
}

/// Rows after these operations, of which none is refused.
pub(crate) fn after(ops: &[Op]) -> TestRows {
    let (mut memory, mut last_id) = (TestRows::with_root(), ROOT);
    for (now, op) in (1..).zip(ops) {
        op.run(&mut memory, now, &mut last_id).unwrap();
    }
    memory
}

/// A new group.
pub(crate) fn group(path: &str) -> Op {
    Op::Create { at: here(path), exist_ok: false }
}

/// A new object.
pub(crate) fn object(path: &str, lies: Lies) -> Op {
    Op::Link { at: here(path), overwrite: false, lies, read_only: false }
}
