//! Watching: a wait with the interpreter let go of, and what it has brought.
//!
//! While one waits, the interpreter is looked at for signals whenever one has come, and once a
//! second: Ctrl-C ends the waiting.

use engram::{Gid, WatchEnd, Watcher};
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::error::{Failure, Result};
use crate::lock::wait_of;
use crate::namespace::Namespace;
use crate::query::Query;

/// What sleeps until something matches a query.
#[pyclass(frozen, module = "engram._engram")]
pub struct Watch {
    watcher: Watcher,
}

#[pymethods]
impl Watch {
    #[new]
    fn new(
        py: Python<'_>,
        namespace: &Namespace,
        group: Gid,
        query: &Query,
        existing: bool,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> Result<Self> {
        // What is no time is refused here, and not when somebody waits.
        timeout.map(wait_of).transpose()?;
        let (engine, (query, options)) = (namespace.engine(), query.asked(namespace, group));
        let watcher = py.detach(|| engine.watch(query, &options, existing))?;
        Ok(Watch { watcher })
    }

    /// Waits for so many seconds, or for ever, until there is something to take; what has ended the
    /// wait: "hits", "in time", "called" or "closed".
    #[allow(clippy::redundant_closure_for_method_calls)] // a method is of one lifetime
    fn wait(
        &self,
        py: Python<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
        calls: u64,
    ) -> Result<&'static str> {
        let within = timeout.map(wait_of).transpose()?.flatten();
        let mut signal = None;
        let mut pause = |_| {
            Python::attach(|py| py.check_signals()).map_err(|error| {
                signal = Some(error);
                engram::Error::new(engram::Kind::Os, "waiting was interrupted")
            })
        };
        let end = py.detach(|| self.watcher.wait(within, calls, &mut pause));
        match (end, signal) {
            (_, Some(signal)) => Err(Failure::Python(signal)),
            (Err(error), None) => Err(error.into()),
            (Ok(WatchEnd::Hits), None) => Ok("hits"),
            (Ok(WatchEnd::InTime), None) => Ok("in time"),
            (Ok(WatchEnd::Called), None) => Ok("called"),
            (Ok(WatchEnd::Closed), None) => Ok("closed"),
        }
    }

    /// The OIDs of up to so many objects that have come.
    fn take<'py>(&self, py: Python<'py>, most: usize) -> Result<Bound<'py, PyArray1<u64>>> {
        let oids = py.detach(|| self.watcher.take(most))?;
        Ok(PyArray1::from_vec(py, oids))
    }

    /// How often those who wait were called back.
    #[getter]
    fn calls(&self) -> u64 {
        self.watcher.calls()
    }

    /// Calls back those who wait.
    fn call_back(&self, py: Python<'_>) {
        py.detach(|| self.watcher.call_back());
    }

    /// Ends it.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.watcher.close());
    }

    /// Whether it was closed, or its pool.
    #[getter]
    fn closed(&self) -> bool {
        self.watcher.is_closed()
    }
}
