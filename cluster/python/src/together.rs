//! A process's share in what several publish together.

use engram_base::dtype::DType;
use engram_driver::error::Error;
use engram_driver::together::Together as Driven;
use engram_parts::dtype;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::buffer::Bytes;
use crate::cluster::Cluster;
use crate::error::told;

/// A process's share in a publication.
#[pyclass(frozen, module = "engram.cluster._cluster")]
pub struct Together {
    driven: Driven,
}

fn dtype_of(text: &str) -> PyResult<DType> {
    told(dtype::of_text(text).map_err(Error::from))
}

fn texts(given: &[String]) -> Vec<&str> {
    given.iter().map(String::as_str).collect()
}

#[pymethods]
impl Together {
    /// Begins a publication, as its publisher: the token for the others, and a share.
    #[staticmethod]
    fn begin(py: Python<'_>, cluster: &Cluster) -> PyResult<(String, Together)> {
        let driven = cluster.driven()?;
        let (token, driven) = told(py.detach(|| Driven::begin(&driven)))?;
        Ok((token, Together { driven }))
    }

    /// Takes part in a publication, as the process of this place.
    #[staticmethod]
    fn join(cluster: &Cluster, token: &str, place: u32) -> PyResult<Together> {
        Ok(Together { driven: told(Driven::join(&cluster.driven()?, token, place))? })
    }

    /// Says what array is to be of a name; attributes as JSON.
    fn array(&self, path: &str, dtype: &str, shape: Vec<u64>, attrs: &str) -> PyResult<()> {
        told(self.driven.array(path, &dtype_of(dtype)?, &shape))?;
        if attrs == "{}" {
            return Ok(());
        }
        let attrs = serde_json::from_str(attrs);
        let attrs = attrs.map_err(|error| Error::Argument(format!("attributes: {error}")));
        told(attrs.and_then(|attrs| self.driven.set_attrs(path, attrs)))
    }

    /// Stores a box in this host's node pool.
    fn store(
        &self,
        py: Python<'_>,
        path: &str,
        dtype: &str,
        offsets: Vec<u64>,
        counts: Vec<u64>,
        data: PyBuffer<u8>,
    ) -> PyResult<()> {
        let (dtype, data) = (dtype_of(dtype)?, Bytes::read(&data)?);
        let store = || self.driven.store(path, &dtype, &offsets, &counts, data.as_slice());
        told(py.detach(store))
    }

    /// Stores an array as a whole. Of several processes that do so, the first one's counts.
    fn put(
        &self,
        py: Python<'_>,
        path: &str,
        dtype: &str,
        shape: Vec<u64>,
        data: PyBuffer<u8>,
    ) -> PyResult<()> {
        let (dtype, data) = (dtype_of(dtype)?, Bytes::read(&data)?);
        told(py.detach(|| self.driven.put(path, &dtype, &shape, data.as_slice())))
    }

    /// What this process has made, for the publisher.
    fn told(&self, py: Python<'_>) -> PyResult<String> {
        told(py.detach(|| self.driven.told()))
    }

    /// As the publisher: the plan for what all have told: a line for each.
    fn plan(&self, py: Python<'_>, shares: Vec<String>) -> PyResult<String> {
        told(py.detach(|| self.driven.plan(&texts(&shares))))
    }

    /// Seals this process's parts as its line of the plan has them: what they sum up to.
    fn seal(&self, py: Python<'_>, line: &str) -> PyResult<String> {
        told(py.detach(|| self.driven.seal(line)))
    }

    /// As the publisher: publishes what was planned, and is sealed.
    fn publish(
        &self,
        py: Python<'_>,
        shares: Vec<String>,
        plan: &str,
        sealed: Vec<String>,
    ) -> PyResult<()> {
        told(py.detach(|| self.driven.publish(&texts(&shares), plan, &texts(&sealed))))
    }

    /// Ends it: what was published stays, and otherwise all is given back.
    fn end(&self, py: Python<'_>, is_published: bool) {
        let end = || if is_published { self.driven.end() } else { self.driven.give_back() };
        py.detach(end);
    }
}
