//! This process's part in serving a node pool.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engram_driver::calls::{Called, Caller};
use engram_driver::error::Error;
use engram_driver::etcd::{Etcd, judge_version};
use engram_driver::node::{Node as Driven, NodeFile, NodeOptions, Standing};
use engram_wire::Method;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::certificates::tls;
use crate::engine::table;
use crate::error::{raised, told};

/// A function of Python's that runs calls: of the method, the number and the body. It gives the
/// bytes that a call gave, or whether there is such a call that goes on.
struct Runs {
    function: Py<PyAny>,
}

impl Caller for Runs {
    fn call(&self, method: Method, number: &str, body: &[u8]) -> Result<Called, Error> {
        Python::attach(|py| {
            let arguments = (method.word(), number, PyBytes::new(py, body));
            let said = self.function.bind(py).call1(arguments);
            let said = said.map_err(|error| of_python(py, &error))?;
            if let Ok(bytes) = said.cast::<PyBytes>() {
                return Ok(Called::Ended(bytes.as_bytes().to_vec()));
            }
            let goes_on = said.is_truthy().map_err(|error| of_python(py, &error))?;
            Ok(if goes_on { Called::GoesOn } else { Called::Unknown })
        })
    }
}

/// An exception as the other side is to raise it.
fn of_python(py: Python<'_>, error: &PyErr) -> Error {
    let class = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    let text = error.value(py).to_string();
    Error::of_class(&class, text.clone()).unwrap_or(Error::Unsupported(text))
}

/// A node.
#[pyclass(frozen, module = "engram.cluster._cluster")]
pub struct Node {
    driven: Mutex<Option<Driven>>,
}

#[pymethods]
impl Node {
    /// Takes part: serves as soon as no other process of the host does.
    #[new]
    #[pyo3(signature = (
        cluster, pool, etcd, *, ttl, host, weight=1.0, kept=60.0, tls_folder=None, caller=None
    ))]
    fn new(
        py: Python<'_>,
        cluster: String,
        pool: PathBuf,
        etcd: Vec<String>,
        ttl: f64,
        host: String,
        weight: f64,
        kept: f64,
        tls_folder: Option<PathBuf>,
        caller: Option<Py<PyAny>>,
    ) -> PyResult<Node> {
        let tls = tls(tls_folder.as_ref(), &[&host])?;
        let caller = caller.map(|function| Arc::new(Runs { function }) as Arc<dyn Caller>);
        let (ttl, kept) = (Duration::from_secs_f64(ttl), Duration::from_secs_f64(kept));
        let table = table(py)?;
        let options =
            NodeOptions { cluster, pool, etcd, ttl, host, weight, kept, tls, table, caller };
        let driven = told(py.detach(|| Driven::start(options)))?;
        Ok(Node { driven: Mutex::new(Some(driven)) })
    }

    /// How it stands: "waits", "joins", "serves" or "ended"; then the member, or why it ended.
    fn standing(&self) -> (&'static str, Option<String>) {
        let driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        match driven.as_ref().map(Driven::standing) {
            Some(Standing::Waits) => ("waits", None),
            Some(Standing::Joins) => ("joins", None),
            Some(Standing::Serves(member)) => ("serves", Some(format!("{member:x}"))),
            Some(Standing::Ended(why)) => ("ended", why),
            None => ("ended", None),
        }
    }

    /// The endpoints of etcd: those that were given, and that it has told of; none at the end.
    fn endpoints(&self) -> Vec<String> {
        let driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        driven.as_ref().map(Driven::endpoints).unwrap_or_default()
    }

    /// Ends this process's part.
    fn stop(&self, py: Python<'_>) {
        let driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(driven));
    }
}

/// Refuses a pool that is of another cluster.
#[pyfunction]
pub fn check_pool(pool: PathBuf, cluster: &str) -> PyResult<()> {
    told(NodeFile::of_cluster(&pool, cluster)).map(drop)
}

/// The cluster and node that a pool is of; none where it is of no cluster.
#[pyfunction]
pub fn node_of(pool: PathBuf) -> PyResult<Option<(String, String)>> {
    Ok(told(NodeFile::read(&pool))?.map(|file| (file.cluster, file.node)))
}

/// Refuses a version of etcd that may not decide for a cluster.
#[pyfunction]
pub fn check_etcd_version(version: &str) -> PyResult<()> {
    judge_version(version).map_err(|why| raised(&Error::Unsupported(why)))
}

/// The version of the etcd at these endpoints, which answers by the consent of most of its members.
#[pyfunction]
#[pyo3(signature = (endpoints, within, *, tls_folder=None))]
pub fn etcd_version(
    py: Python<'_>,
    endpoints: Vec<String>,
    within: f64,
    tls_folder: Option<PathBuf>,
) -> PyResult<String> {
    let tls = tls(tls_folder.as_ref(), &[])?;
    let within = Duration::from_secs_f64(within);
    told(py.detach(|| Etcd::new(&endpoints, tls.as_ref(), within)?.check_answers()))
}

/// Asks the etcd at these endpoints what its gateway has at a path; question and answer are JSON.
#[pyfunction]
#[pyo3(signature = (endpoints, path, question, within, *, tls_folder=None))]
pub fn etcd_asked(
    py: Python<'_>,
    endpoints: Vec<String>,
    path: &str,
    question: &str,
    within: f64,
    tls_folder: Option<PathBuf>,
) -> PyResult<String> {
    let tls = tls(tls_folder.as_ref(), &[])?;
    let within = Duration::from_secs_f64(within);
    let answer = py.detach(|| {
        let question = serde_json::from_str(question).unwrap_or_default();
        Etcd::new(&endpoints, tls.as_ref(), within)?.asked(path, &question)
    });
    Ok(told(answer)?.to_string())
}
