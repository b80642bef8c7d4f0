//! Subtrees: objects at the nodes that names below them are at home at.

use std::sync::Arc;

use engram_driver::cluster::Cluster as Driven;
use engram_driver::error::Error;
use engram_driver::trees::Tree as Drawn;
use engram_parts::pool::{BoxOf, Listed};
use engram_protocol::manifest::{Holder, Manifest};
use engram_protocol::placement::Placement;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cluster::Cluster;
use crate::error::{raised, told};

/// Names with heads, and what orders hits.
type Rows<'py> = Vec<(String, Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;

/// A head, and a value if it is short.
type SeenBytes<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// A subtree, as a manifest has it.
#[pyclass(frozen, module = "engram.cluster._cluster")]
pub struct Tree {
    driven: Arc<Driven>,
    drawn: Drawn,
}

fn rows(py: Python<'_>, listed: Vec<Listed>) -> Rows<'_> {
    let row =
        |each: Listed| (each.name, PyBytes::new(py, &each.head), PyBytes::new(py, &each.more));
    listed.into_iter().map(row).collect()
}

impl Tree {
    fn holder(&self, place: usize) -> PyResult<&Holder> {
        let there = self.drawn.holders.len();
        let why = || Error::Argument(format!("holder {place} of {there}"));
        self.drawn.holders.get(place).ok_or_else(|| raised(&why()))
    }
}

#[pymethods]
impl Tree {
    #[new]
    fn new(cluster: &Cluster, path: &str, manifest: &str) -> PyResult<Tree> {
        let manifest = Manifest::decode(manifest.as_bytes());
        let manifest = manifest.map_err(|why| raised(&Error::Argument(why)))?;
        let drawn = told(Drawn::of(path, &manifest))?;
        Ok(Tree { driven: cluster.driven()?, drawn })
    }

    /// The nodes that hold it, in the manifest's order.
    #[getter]
    fn nodes(&self) -> Vec<String> {
        self.drawn.holders.iter().map(|holder| holder.node.clone()).collect()
    }

    /// The place of the holder at which a name below is at home.
    fn home(&self, below: &str) -> usize {
        let home = self.drawn.home(below);
        self.drawn.holders.iter().position(|holder| holder == home).unwrap_or(0)
    }

    /// Has a holder make it, before its manifest is there.
    fn prepare(&self, py: Python<'_>, holder: usize, maker: u64, begun: u64) -> PyResult<()> {
        let holder = self.holder(holder)?;
        told(py.detach(|| self.driven.prepare_tree(&self.drawn, holder, maker, begun)))
    }

    /// Has a holder move it to its name, when its manifest is there.
    fn settle(&self, py: Python<'_>, holder: usize) -> PyResult<()> {
        let holder = self.holder(holder)?;
        told(py.detach(|| self.driven.settle_tree(&self.drawn, holder)))
    }

    /// Gives back what was prepared at a holder, and is not published.
    fn give_back(&self, py: Python<'_>, holder: usize, maker: u64) -> PyResult<()> {
        let holder = self.holder(holder)?;
        told(py.detach(|| self.driven.drop_tree(&self.drawn, holder, maker)))
    }

    /// An object's or group's head, and its value if that is short; none where nothing is there.
    fn look<'py>(&self, py: Python<'py>, below: &str) -> PyResult<Option<SeenBytes<'py>>> {
        let seen = told(py.detach(|| self.driven.look_below(&self.drawn, below)))?;
        Ok(seen.map(|seen| {
            let value = seen.value.map(|value| PyBytes::new(py, &value));
            (PyBytes::new(py, &seen.head), value)
        }))
    }

    /// Pulls an object's whole value into a buffer of its size.
    fn pull(&self, py: Python<'_>, below: &str, tag: String, out: PyBuffer<u8>) -> PyResult<()> {
        let mut bytes = vec![0; out.len_bytes()];
        told(py.detach(|| self.driven.pull_below(&self.drawn, below, Some(tag), &mut bytes)))?;
        out.copy_from_slice(py, &bytes)
    }

    /// A box of an object's value.
    fn load<'py>(
        &self,
        py: Python<'py>,
        below: &str,
        of: u64,
        offsets: Vec<u64>,
        counts: Vec<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let cut = BoxOf { offsets: &offsets, counts: &counts, of: Some(of) };
        let load = || self.driven.load_below(&self.drawn, below, &cut);
        Ok(PyBytes::new(py, &told(py.detach(load))?))
    }

    /// Writes a box of an object's value in place.
    fn store(
        &self,
        py: Python<'_>,
        below: &str,
        of: u64,
        offsets: Vec<u64>,
        counts: Vec<u64>,
        data: &[u8],
    ) -> PyResult<()> {
        let cut = BoxOf { offsets: &offsets, counts: &counts, of: Some(of) };
        let store = || self.driven.store_below(&self.drawn, below, &cut, data);
        told(py.detach(store))
    }

    /// Makes an object of a head and a value; with `is_new` where none is there.
    fn put(
        &self,
        py: Python<'_>,
        below: &str,
        head: &[u8],
        data: &[u8],
        is_new: bool,
    ) -> PyResult<()> {
        told(py.detach(|| self.driven.put_below(&self.drawn, below, head, data, is_new)))
    }

    /// Sets the attributes of a head.
    fn set_attrs(&self, py: Python<'_>, below: &str, head: &[u8]) -> PyResult<()> {
        told(py.detach(|| self.driven.set_attrs_below(&self.drawn, below, head)))
    }

    /// Removes an attribute.
    fn drop_attr(&self, py: Python<'_>, below: &str, key: &str) -> PyResult<()> {
        told(py.detach(|| self.driven.drop_attr_below(&self.drawn, below, key)))
    }

    /// Removes an object, or a group with all that is in it.
    fn remove(&self, py: Python<'_>, below: &str) -> PyResult<()> {
        told(py.detach(|| self.driven.remove_below(&self.drawn, below)))
    }

    /// Makes a group.
    fn make_group(&self, py: Python<'_>, below: &str) -> PyResult<()> {
        told(py.detach(|| self.driven.group_below(&self.drawn, below)))
    }

    /// Up to so many members that a holder has of a group, after a name.
    fn list<'py>(
        &self,
        py: Python<'py>,
        holder: usize,
        below: &str,
        after: &str,
        limit: usize,
    ) -> PyResult<Rows<'py>> {
        let holder = self.holder(holder)?;
        let list = || self.driven.list_below(&self.drawn, holder, below, after, limit);
        Ok(rows(py, told(py.detach(list))?))
    }
}

/// What a query finds in subtrees that a node has, in its order.
#[pyfunction]
pub fn query_node<'py>(
    py: Python<'py>,
    cluster: &Cluster,
    node: String,
    member: u64,
    text: &str,
    trees: Vec<String>,
    is_from_tree: bool,
) -> PyResult<Rows<'py>> {
    let driven = cluster.driven()?;
    let holder = Holder { node, member };
    let ask = || driven.query_holder(&holder, text, &trees, is_from_tree);
    Ok(rows(py, told(py.detach(ask))?))
}

/// The places of the nodes, among these, at which names are at home.
#[pyfunction]
pub fn homes(py: Python<'_>, nodes: Vec<String>, names: Vec<String>) -> Vec<Option<usize>> {
    py.detach(|| {
        let placement = Placement::new(nodes.iter().map(|node| (node.as_str(), 1.0)));
        names.iter().map(|name| placement.home(name)).collect()
    })
}
