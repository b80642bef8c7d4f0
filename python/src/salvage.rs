//! Salvage: what is sound of a damaged pool, copied into another one.

use std::path::PathBuf;
use std::sync::Mutex;

use engram::{Loss, Witness};
use pyo3::prelude::*;

use crate::error::{Result, of_pool};
use crate::pool::Pool;

/// What was lost: namespace, path, what and why.
type Lost = (String, String, String);

/// A damaged pool, read without trust.
#[pyclass(frozen, module = "engram._engram")]
pub struct Salvage {
    engine: engram::Salvage,
}

/// Tells Python of each member; what that raises ends the copy.
struct Teller<'a> {
    begin: &'a Py<PyAny>,
    lose: &'a Py<PyAny>,
    raised: &'a Mutex<Option<PyErr>>,
}

impl Teller<'_> {
    fn tell(&self, call: impl FnOnce(Python<'_>) -> PyResult<()>) -> bool {
        match Python::attach(call) {
            Ok(()) => true,
            Err(error) => {
                *self.raised.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                    Some(error);
                false
            }
        }
    }
}

impl Witness for Teller<'_> {
    fn begin(&mut self, place: u64, path: &str) -> bool {
        self.tell(|py| self.begin.call1(py, (place, path)).map(drop))
    }

    fn lose(&mut self, loss: Loss) {
        self.tell(|py| self.lose.call1(py, (loss.namespace, loss.path, loss.what)).map(drop));
    }

    fn pulse(&mut self) {
        crate::pool::pulse();
    }
}

#[pymethods]
impl Salvage {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "paths from Python come so")]
    fn new(py: Python<'_>, path: PathBuf) -> Result<Self> {
        let opened = py.detach(|| engram::Salvage::open(&path, &mut crate::pool::pulse));
        Ok(Salvage { engine: opened.map_err(|e| of_pool(py, e))? })
    }

    /// The namespaces, and how many members each has still.
    fn namespaces(&self) -> Vec<(String, u64)> {
        self.engine.namespaces()
    }

    /// What is lost already, or will have another path.
    fn losses(&self) -> Vec<Lost> {
        let told = |loss: &Loss| (loss.namespace.clone(), loss.path.clone(), loss.what.clone());
        self.engine.losses().iter().map(told).collect()
    }

    /// What will not be as it was, though nothing of it is lost.
    fn notes(&self) -> Vec<Lost> {
        let told = |loss: &Loss| (loss.namespace.clone(), loss.path.clone(), loss.what.clone());
        self.engine.notes().iter().map(told).collect()
    }

    /// Whether the pool kept checksums; None if nothing tells.
    fn checksums(&self) -> Option<bool> {
        self.engine.checksums()
    }

    /// About the bytes that the values take in a pool.
    fn nbytes(&self) -> u64 {
        self.engine.nbytes()
    }

    /// Copies a namespace's members from the one at `start` on; `begin(place, path)` is called
    /// before each, `lose(namespace, path, what)` for what is left out.
    fn copy(
        &self,
        py: Python<'_>,
        namespace: &str,
        target: &Pool,
        start: u64,
        begin: &Bound<'_, PyAny>,
        lose: &Bound<'_, PyAny>,
    ) -> Result<()> {
        let raised = Mutex::new(None);
        let (begin, lose) = (begin.clone().unbind(), lose.clone().unbind());
        py.detach(|| {
            let realm = target.engine().realm(namespace)?;
            let mut teller = Teller { begin: &begin, lose: &lose, raised: &raised };
            self.engine.copy(namespace, &realm, start, &mut teller)
        })?;
        match raised.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}
