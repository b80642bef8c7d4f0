//! An open cluster.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engram_base::slab::Slab;
use engram_driver::calls::Called;
use engram_driver::cluster::{Cluster as Driven, ClusterOptions, Draft as Drafted};
use engram_driver::error::Error;
use engram_parts::{Mark, PartName, dtype};
use engram_protocol::manifest::{Holder, Manifest};
use engram_wire::Method;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyString, PyTuple};

use crate::buffer::{Bytes, BytesMut};
use crate::certificates::tls;
use crate::engine::table;
use crate::error::{raised, told};

/// An open cluster.
#[pyclass(frozen, module = "engram.cluster._cluster")]
pub struct Cluster {
    name: String,
    driven: Mutex<Option<Arc<Driven>>>,
}

/// Names that are to be published, as they were seen.
#[pyclass(frozen, module = "engram.cluster._cluster")]
pub struct Draft {
    drafted: Drafted,
}

#[pymethods]
impl Draft {
    /// Who makes it.
    #[getter]
    fn maker(&self) -> u64 {
        self.drafted.maker
    }

    /// Which of its maker's publications it is.
    #[getter]
    fn begun(&self) -> u64 {
        self.drafted.begun()
    }

    /// The generation that the names will have at least.
    #[getter]
    fn generation(&self) -> u64 {
        self.drafted.generation
    }

    /// What each of the names is now; none where there is nothing.
    #[getter]
    fn there(&self) -> Vec<Option<&'static str>> {
        let Drafted { proposals, groups, .. } = &self.drafted;
        let kind = |path| if groups.contains(path) { "group" } else { "array" };
        proposals.iter().map(|own| (own.seen != 0).then(|| kind(&own.path))).collect()
    }
}

/// A part that is to be made.
#[pyclass(frozen, module = "engram.cluster._cluster")]
pub struct NewPart {
    made: engram_parts::NewPart,
}

#[pymethods]
impl NewPart {
    #[new]
    fn new(
        path: String,
        uuid: String,
        part: u32,
        maker: u64,
        begun: u64,
        dtype: &str,
        offsets: Vec<u64>,
        counts: Vec<u64>,
    ) -> PyResult<NewPart> {
        let name = PartName { uuid, part };
        let mark = Mark { path, maker, begun, offsets, checksum: None };
        let dtype = told(dtype::of_text(dtype).map_err(Error::from))?;
        Ok(NewPart { made: engram_parts::NewPart { name, mark, dtype, counts } })
    }
}

fn holder_of(holder: (String, u64)) -> Holder {
    let (node, member) = holder;
    Holder { node, member }
}

fn decoded(manifest: &str) -> PyResult<Manifest> {
    Manifest::decode(manifest.as_bytes()).map_err(|why| raised(&Error::Argument(why)))
}

fn encoded(manifest: &Manifest) -> String {
    String::from_utf8(manifest.encode()).expect("JSON is text")
}

impl Cluster {
    pub(crate) fn driven(&self) -> PyResult<Arc<Driven>> {
        let driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        driven.clone().ok_or_else(|| {
            let name = &self.name;
            raised(&Error::Argument(format!("the cluster {name:?} is closed: open it again")))
        })
    }
}

#[pymethods]
impl Cluster {
    #[new]
    #[pyo3(signature = (name, etcd, *, pool=None, deadline, ttl, tls_folder=None))]
    fn new(
        py: Python<'_>,
        name: String,
        etcd: Vec<String>,
        pool: Option<PathBuf>,
        deadline: f64,
        ttl: f64,
        tls_folder: Option<PathBuf>,
    ) -> PyResult<Cluster> {
        let tls = tls(tls_folder.as_ref(), &[])?;
        let (deadline, ttl) = (Duration::from_secs_f64(deadline), Duration::from_secs_f64(ttl));
        let table = table(py)?;
        let own = name.clone();
        let options = ClusterOptions { name, etcd, tls, pool, table, deadline, ttl };
        let driven = told(py.detach(|| Driven::open(options)))?;
        Ok(Cluster { name: own, driven: Mutex::new(Some(Arc::new(driven))) })
    }

    /// All nodes, each as JSON.
    fn nodes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let driven = self.driven()?;
        let nodes = told(py.detach(|| driven.nodes()))?;
        Ok(nodes.iter().map(|entry| serde_json::to_string(entry).expect("JSON")).collect())
    }

    #[getter]
    fn epoch(&self) -> PyResult<u64> {
        Ok(self.driven()?.epoch())
    }

    /// Where rows are asked for: as it was given, and as etcd has told.
    fn endpoints(&self) -> PyResult<Vec<String>> {
        Ok(self.driven()?.endpoints())
    }

    #[getter]
    fn own_node(&self) -> PyResult<Option<String>> {
        Ok(self.driven()?.own_node().map(str::to_owned))
    }

    /// The node and member that this host's pool is now.
    fn own_holder(&self, py: Python<'_>) -> PyResult<(String, u64)> {
        let driven = self.driven()?;
        let holder = told(py.detach(|| driven.own_holder()))?;
        Ok((holder.node, holder.member))
    }

    /// A name's manifest as JSON, and the revision at which it was written.
    fn look_up(&self, py: Python<'_>, path: &str) -> PyResult<Option<(String, u64)>> {
        let driven = self.driven()?;
        let found = told(py.detach(|| driven.look_up(path)))?;
        Ok(found.map(|(manifest, modified)| (encoded(&manifest), modified)))
    }

    /// What [`look_up`](Cluster::look_up) gives of each name, as of one moment.
    fn look_up_all(
        &self,
        py: Python<'_>,
        paths: Vec<String>,
    ) -> PyResult<Vec<Option<(String, u64)>>> {
        let driven = self.driven()?;
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let found = told(py.detach(|| driven.look_up_all(&paths)))?.into_iter();
        let text = |(manifest, modified)| (encoded(&manifest), modified);
        Ok(found.map(|one| one.map(text)).collect())
    }

    /// All names that begin so, and their manifests.
    fn names(&self, py: Python<'_>, prefix: &str) -> PyResult<Vec<(String, String)>> {
        let driven = self.driven()?;
        let found = told(py.detach(|| driven.list(prefix)))?;
        Ok(found.into_iter().map(|(path, manifest)| (path, encoded(&manifest))).collect())
    }

    /// Looks up names that are to be published.
    fn draft(&self, py: Python<'_>, paths: Vec<String>) -> PyResult<Draft> {
        let driven = self.driven()?;
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        Ok(Draft { drafted: told(py.detach(|| driven.draft(&paths)))? })
    }

    /// Publishes a draft: for each of its names a manifest, or none to remove it.
    fn publish(
        &self,
        py: Python<'_>,
        draft: &Draft,
        manifests: Vec<Option<String>>,
    ) -> PyResult<u64> {
        let driven = self.driven()?;
        let mut drafted = draft.drafted.clone();
        for (proposal, text) in drafted.proposals.iter_mut().zip(&manifests) {
            proposal.manifest = text.as_deref().map(decoded).transpose()?;
        }
        told(py.detach(|| driven.publish(drafted)))
    }

    /// The size of a node's pool, and what is used of it, in bytes.
    fn room(&self, py: Python<'_>, node: &str) -> PyResult<(u64, u64)> {
        let driven = self.driven()?;
        told(py.detach(|| driven.room(node)))
    }

    /// A uuid for a publication.
    #[staticmethod]
    fn new_uuid() -> PyResult<String> {
        told(Driven::new_uuid())
    }

    /// Refuses manifests, by the names that they are for, that cannot be published together.
    #[staticmethod]
    fn check(manifests: Vec<(String, String)>) -> PyResult<()> {
        let read = |(path, text): &(String, String)| Ok((path.clone(), decoded(text)?));
        let read: Vec<(String, Manifest)> = manifests.iter().map(read).collect::<PyResult<_>>()?;
        let all: Vec<_> = read.iter().map(|(path, manifest)| (path.as_str(), manifest)).collect();
        told(Driven::check(&all))
    }

    /// Makes a part at a node of a buffer's bytes: what they sum up to.
    fn make_part(
        &self,
        py: Python<'_>,
        holder: (String, u64),
        part: &NewPart,
        data: PyBuffer<u8>,
    ) -> PyResult<u64> {
        let (driven, data, holder) = (self.driven()?, Bytes::read(&data)?, holder_of(holder));
        told(py.detach(|| driven.make_part(&holder, &part.made, data.as_slice())))
    }

    /// Makes a part at a node whose items all have these bytes; zeros without any.
    fn fill_part(
        &self,
        py: Python<'_>,
        holder: (String, u64),
        part: &NewPart,
        item: Vec<u8>,
    ) -> PyResult<()> {
        let (driven, holder) = (self.driven()?, holder_of(holder));
        told(py.detach(|| driven.fill_part(&holder, &part.made, &item)))
    }

    /// Has a node sum up a part, which nobody writes from then on.
    fn seal_part(
        &self,
        py: Python<'_>,
        holder: (String, u64),
        uuid: String,
        part: u32,
    ) -> PyResult<u64> {
        let (driven, holder) = (self.driven()?, holder_of(holder));
        told(py.detach(|| driven.seal_part(&holder, &PartName { uuid, part })))
    }

    /// Gives back a part that its maker does not publish.
    fn give_back(
        &self,
        py: Python<'_>,
        holder: (String, u64),
        uuid: String,
        part: u32,
        maker: u64,
    ) -> PyResult<()> {
        let (driven, holder) = (self.driven()?, holder_of(holder));
        told(py.detach(|| driven.give_back(&holder, &PartName { uuid, part }, maker)))
    }

    /// Reads a box of an array into a buffer of its bytes: the manifest, and its revision.
    fn load(
        &self,
        py: Python<'_>,
        path: &str,
        dtype: &str,
        shape: Vec<u64>,
        offsets: Vec<u64>,
        counts: Vec<u64>,
        out: PyBuffer<u8>,
    ) -> PyResult<(String, u64)> {
        let dtype = dtype::of_text(dtype).map_err(|error| raised(&error.into()))?;
        let (driven, mut out) = (self.driven()?, BytesMut::of(&out)?);
        let slab = Slab::new(&shape, &offsets, &counts).map_err(|error| raised(&error.into()))?;
        let (manifest, modified) =
            told(py.detach(|| driven.load(path, &dtype, &slab, out.as_mut_slice())))?;
        Ok((encoded(&manifest), modified))
    }

    /// Asks the processes of a node, or of all nodes, to end.
    #[pyo3(signature = (node=None))]
    fn ask_to_stop(&self, py: Python<'_>, node: Option<String>) -> PyResult<()> {
        let driven = self.driven()?;
        told(py.detach(|| driven.ask_to_stop(node.as_deref())))
    }

    /// The nodes whose leases run, each as JSON.
    fn serving(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let driven = self.driven()?;
        let nodes = told(py.detach(|| driven.serving()))?;
        Ok(nodes.iter().map(|entry| serde_json::to_string(entry).expect("JSON")).collect())
    }

    /// The names of which a node holds something that no other has.
    fn names_only_at(&self, py: Python<'_>, node: &str) -> PyResult<Vec<String>> {
        let driven = self.driven()?;
        told(py.detach(|| driven.names_only_at(node)))
    }

    /// Gives a node up for good.
    fn give_up(&self, py: Python<'_>, node: &str) -> PyResult<()> {
        let driven = self.driven()?;
        told(py.detach(|| driven.give_up(node)))
    }

    /// What the node server at an address says that it is, as JSON.
    fn describe(&self, py: Python<'_>, address: &str, within: f64) -> PyResult<String> {
        let driven = self.driven()?;
        told(py.detach(|| driven.describe(address, Duration::from_secs_f64(within))))
    }

    /// Sends a call to a node (`POST`), asks for it (`GET`), or gives it up (`DELETE`). Gives what
    /// it gave; true where it goes on, false where it was never begun there; or as text why the
    /// node could not be reached, or in a tuple, why the connection broke off.
    fn call<'py>(
        &self,
        py: Python<'py>,
        node: &str,
        method: &str,
        number: &str,
        body: PyBuffer<u8>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (driven, body) = (self.driven()?, Bytes::read(&body)?);
        let method = Method::of_word(method).unwrap_or(Method::Get);
        match told(py.detach(|| driven.call(node, method, number, body.as_slice())))? {
            Called::Ended(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
            Called::GoesOn => Ok(PyBool::new(py, true).to_owned().into_any()),
            Called::Unknown => Ok(PyBool::new(py, false).to_owned().into_any()),
            Called::Unreached(why) => Ok(PyString::new(py, &why).into_any()),
            Called::Broken(why) => Ok(PyTuple::new(py, [why])?.into_any()),
        }
    }

    fn close(&self, py: Python<'_>) {
        let driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| {
            if let Some(driven) = &driven {
                driven.close();
            }
            drop(driven);
        });
    }
}
