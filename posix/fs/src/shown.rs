//! Nodes that no record has: an array as `T.npy`, and a query as a folder of links.
//!
//! `T.npy` beside an array `T` is numpy's header and then the array's own memory; it is found by
//! its name and not listed. `.engram/query/EXPRESSION/` has a link to each object of which the
//! expression is true; in an expression, and in the links' names, `%2F` stands for a slash and
//! `%25` for a percent sign. They have numbers below those of any member, given as they are looked
//! up, by this process alone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use engram::dtype::{DType, shape_text};
use engram::{Class, Found, Layout, ObjectInfo, QueryOptions, query};

use crate::errno::{Result, refuse};
use crate::fs::{Fs, Ino, ROOT};
use crate::handle::{Handle, OpenFlags};
use crate::stat::{NodeKind, Stat};

/// Members' numbers begin with an id prefix, which is never zero.
const MEMBERS_FROM: Ino = 1 << 40;
const ENGRAM: &str = ".engram";
const QUERY: &str = "query";
const NPY: &str = ".npy";

/// Whether a number is of what is only shown.
pub(crate) fn is_shown(ino: Ino) -> bool {
    ino != ROOT && ino < MEMBERS_FROM
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Node {
    Engram,
    Queries,
    Query(String),
    Hit { query: Ino, path: String },
    Npy(u64),
}

/// What was looked up so far.
#[derive(Default)]
pub(crate) struct Shown {
    nodes: Mutex<(Vec<Node>, HashMap<Node, Ino>)>,
}

/// An entry of a folder that is only shown.
pub(crate) struct ShownEntry {
    pub ino: Ino,
    pub kind: NodeKind,
    pub name: String,
}

impl Shown {
    /// The number of a node; one that is new gets the next.
    fn ino(&self, node: &Node) -> Ino {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ino) = nodes.1.get(node) {
            return *ino;
        }
        nodes.0.push(node.clone());
        let ino = ROOT + nodes.0.len() as u64;
        nodes.1.insert(node.clone(), ino);
        ino
    }

    fn node(&self, ino: Ino) -> Result<Node> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        match nodes.0.get((ino - ROOT - 1) as usize) {
            Some(node) => Ok(node.clone()),
            None => refuse!(ESTALE, "node {ino} was never looked up here"),
        }
    }
}

/// A path, or an expression, as one name.
fn escaped(path: &str) -> String {
    path.replace('%', "%25").replace('/', "%2F")
}

fn unescaped(name: &str) -> String {
    name.replace("%2F", "/").replace("%2f", "/").replace("%25", "%")
}

impl Fs {
    /// A node that is only shown, of a name that no member of a group has.
    pub(crate) fn find_shown(&self, parent: Ino, gid: u64, name: &str) -> Result<Option<Stat>> {
        if parent == ROOT && name == ENGRAM {
            return self.stat_shown(self.inner.shown.ino(&Node::Engram)).map(Some);
        }
        let Some(stem) = name.strip_suffix(NPY).filter(|stem| !stem.is_empty()) else {
            return Ok(None);
        };
        match self.namespace().find(gid, stem)? {
            Some(Found::Object(info)) if header_of(&info).is_some() => {
                self.stat_shown(self.inner.shown.ino(&Node::Npy(info.oid))).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A name in a folder that is only shown.
    pub(crate) fn lookup_shown(&self, parent: Ino, name: &str) -> Result<Stat> {
        let crate::fs::Node::Shown(parent) = self.node(parent)? else {
            refuse!(ENOTDIR, "node {parent:#x} is no folder")
        };
        let node = match (self.inner.shown.node(parent)?, name) {
            (Node::Engram, QUERY) => Node::Queries,
            (Node::Queries, expression) => {
                let expression = unescaped(expression);
                if let Err(error) = query::parse(&expression) {
                    refuse!(ENOENT, "{expression:?} is no query: {}", error.message());
                }
                Node::Query(expression)
            }
            (Node::Query(_), hit) => Node::Hit { query: parent, path: unescaped(hit) },
            (Node::Engram, _) => refuse!(ENOENT, "{ENGRAM} has {QUERY:?} and no {name:?}"),
            _ => refuse!(ENOTDIR, "node {parent:#x} is no folder"),
        };
        if let Node::Hit { path, .. } = &node
            && self.namespace().lookup(self.namespace().root(), path)?.is_none()
        {
            refuse!(ENOENT, "there is no {path:?} among the hits");
        }
        self.stat_shown(self.inner.shown.ino(&node))
    }

    pub(crate) fn stat_shown(&self, ino: Ino) -> Result<Stat> {
        let node = self.inner.shown.node(ino)?;
        if let Node::Npy(oid) = node {
            let info = self.namespace().object(oid).map_err(crate::fs::gone_is_absent)?;
            let header = header_of(&info).map_or(0, |header| header.len() as u64);
            let stat = self.stat_object(&info)?;
            let size = header + info.nbytes;
            let (mode, nlink) = (stat.mode & 0o444, 1);
            return Ok(Stat { ino, size, blocks: size.div_ceil(512), mode, nlink, ..stat });
        }
        let root = self.stat(ROOT)?;
        let (kind, mode, size) = match &node {
            Node::Hit { path, .. } => (NodeKind::Symlink, 0o777, target_of(path).len() as u64),
            _ => (NodeKind::Folder, root.mode & 0o555, 0),
        };
        Ok(Stat { ino, kind, mode, nlink: 1, size, blocks: 0, ..root })
    }

    pub(crate) fn readlink_shown(&self, ino: Ino) -> Result<Vec<u8>> {
        match self.inner.shown.node(ino)? {
            Node::Hit { path, .. } => Ok(target_of(&path).into_bytes()),
            _ => refuse!(EINVAL, "node {ino:#x} is no symbolic link"),
        }
    }

    pub(crate) fn open_shown(&self, ino: Ino, flags: OpenFlags) -> Result<Handle> {
        let Node::Npy(oid) = self.inner.shown.node(ino)? else {
            refuse!(EISDIR, "a folder has no bytes")
        };
        if flags.write {
            refuse!(EACCES, "an array is written under its own name, not as {NPY}");
        }
        let info = self.namespace().object(oid).map_err(crate::fs::gone_is_absent)?;
        match header_of(&info) {
            Some(header) => self.prefixed(ino, header, oid, flags),
            None => Ok(self.shown_bytes(ino, Vec::new(), flags)),
        }
    }

    pub(crate) fn path_of_shown(&self, ino: Ino) -> Result<String> {
        Ok(match self.inner.shown.node(ino)? {
            Node::Engram => format!("/{ENGRAM}"),
            Node::Queries => format!("/{ENGRAM}/{QUERY}"),
            Node::Query(expression) => format!("/{ENGRAM}/{QUERY}/{}", escaped(&expression)),
            Node::Hit { query, path } => {
                format!("{}/{}", self.path_of_shown(query)?, escaped(&path))
            }
            Node::Npy(oid) => format!("{}{NPY}", self.path_of(oid)?),
        })
    }

    pub(crate) fn parent_of_shown(&self, ino: Ino) -> Result<Ino> {
        Ok(match self.inner.shown.node(ino)? {
            Node::Queries => self.inner.shown.ino(&Node::Engram),
            Node::Query(_) => self.inner.shown.ino(&Node::Queries),
            Node::Engram => ROOT,
            _ => refuse!(ENOTDIR, "node {ino:#x} is no folder"),
        })
    }

    pub(crate) fn list_shown(&self, ino: Ino) -> Result<Vec<ShownEntry>> {
        let shown = &self.inner.shown;
        match shown.node(ino)? {
            Node::Engram => Ok(vec![ShownEntry {
                ino: shown.ino(&Node::Queries),
                kind: NodeKind::Folder,
                name: QUERY.to_owned(),
            }]),
            // Any expression is there, once it is asked for.
            Node::Queries => Ok(Vec::new()),
            Node::Query(expression) => {
                let parsed = query::parse(&expression)?;
                let paths = self.namespace().query_paths(&parsed, &QueryOptions::default())?;
                let entry = |path: String| ShownEntry {
                    name: escaped(&path),
                    kind: NodeKind::Symlink,
                    ino: shown.ino(&Node::Hit { query: ino, path }),
                };
                Ok(paths.into_iter().map(entry).filter(|entry| entry.name.len() <= 255).collect())
            }
            _ => refuse!(ENOTDIR, "node {ino:#x} is no folder"),
        }
    }
}

/// Where a hit's link leads, from the folder of its query.
fn target_of(path: &str) -> String {
    format!("../../../{path}")
}

/// numpy's header of an array that can be shown as a file of numpy's.
fn header_of(info: &ObjectInfo) -> Option<Vec<u8>> {
    if info.class != Class::Array || info.layout != Layout::Contiguous {
        return None;
    }
    let descr = match &info.dtype {
        DType::Scalar { kind, order, size, unit } => {
            let unit = match unit {
                Some((unit, 1)) => format!("[{}]", unit.name()),
                Some((unit, count)) => format!("[{count}{}]", unit.name()),
                None => String::new(),
            };
            let width = if *kind == b'U' { size / 4 } else { *size };
            format!("'{}{}{width}{unit}'", *order as char, *kind as char)
        }
        // The list of fields is what numpy reads; what only a dictionary says is not shown.
        dtype @ DType::Struct { .. } => Some(dtype.text()).filter(|text| text.starts_with('['))?,
        _ => return None,
    };
    let shape = shape_text(&info.shape);
    let dict = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    // The header ends with a newline, at a multiple of 64 bytes.
    let (before, version): (usize, &[u8]) =
        if dict.len() < 60_000 { (10, &[1, 0]) } else { (12, &[2, 0]) };
    let len = (before + dict.len() + 1).next_multiple_of(64) - before;
    let mut header = b"\x93NUMPY".to_vec();
    header.extend_from_slice(version);
    match before {
        10 => header.extend_from_slice(&(len as u16).to_le_bytes()),
        _ => header.extend_from_slice(&(len as u32).to_le_bytes()),
    }
    header.extend_from_slice(dict.as_bytes());
    header.resize(before + len - 1, b' ');
    header.push(b'\n');
    Some(header)
}
