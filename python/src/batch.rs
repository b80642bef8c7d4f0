//! Batches: many operations, one commit.
//!
//! The block's two ends are native, so that no signal's exception comes between the batch's own
//! begin or end and the interpreter's: a batch is begun exactly if its block will be left.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::error::{Failure, Result, busy};
use crate::namespace::Namespace;

/// A with-block whose operations happen all at once when it ends, or not at all if it raises.
///
/// A batch belongs to its thread and to one namespace. Reads inside the block see what it has done
/// so far; nobody else does until it ends. A batch within a batch joins it. A conflict with what
/// others did meanwhile raises `BusyError` when the block ends, and undoes all of it; so does an
/// inner batch that raised. A batch that is dropped without an end is undone.
///
/// All that its thread writes meanwhile to the namespace is part of it: do not leave a generator or
/// a coroutine waiting inside the block.
#[pyclass(frozen, module = "engram")]
pub struct Batch {
    engine: engram::Namespace,
    /// Those that were begun and not ended, innermost last, each with its thread.
    begun: Mutex<Vec<(ThreadId, engram::Batch)>>,
}

impl Batch {
    fn begun(&self) -> MutexGuard<'_, Vec<(ThreadId, engram::Batch)>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Batch {
    #[new]
    fn new(namespace: &Namespace) -> Self {
        Batch { engine: namespace.engine().clone(), begun: Mutex::default() }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Result<Bound<'_, Self>> {
        let batch = slf.get().engine.batch()?;
        slf.get().begun().push((thread::current().id(), batch));
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _error: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let own = |(thread, _): &(ThreadId, engram::Batch)| *thread == thread::current().id();
        let begun = {
            let mut begun = self.begun();
            begun.iter().rposition(own).map(|place| begun.remove(place).1)
        };
        let Some(batch) = begun else {
            // The block's own error is the one to tell.
            return if kind.is_none() { Err(self.not_begun_here()) } else { Ok(()) };
        };
        if kind.is_none() {
            return Ok(py.detach(|| batch.commit())?);
        }
        let _ = py.detach(|| batch.abort());
        Ok(())
    }

    fn __repr__(&self) -> String {
        let begun = self.begun().len();
        let state = if begun > 0 { "running" } else { "not running" };
        format!("<engram.Batch of {:?}, {state}>", self.engine.namespace())
    }
}

impl Batch {
    /// The error of an end without a begin, which changes nothing.
    fn not_begun_here(&self) -> Failure {
        let what = if self.begun().is_empty() {
            "this batch does not run: it has ended already, or was never entered"
        } else {
            "this batch was begun in another thread: only that one can end it"
        };
        busy(format!("{what} ({:?})", self.engine.namespace()))
    }
}

/// Whether this thread runs a batch.
#[pyfunction]
pub fn in_batch() -> bool {
    engram::in_batch()
}

/// Has `hook` called when the batch that this thread runs has ended, if it runs one, with whether
/// it is committed. A hook that raises is called once more, as a signal may have come between.
#[pyfunction]
pub fn when_ended(hook: Py<PyAny>) {
    engram::when_ended(move |committed| {
        // Without an interpreter there is nobody to see what it would do.
        let _ = Python::try_attach(|py| run(py, &hook, committed));
    });
}

fn run(py: Python<'_>, hook: &Py<PyAny>, committed: bool) {
    let Err(first) = hook.call1(py, (committed,)) else { return };
    if let Err(error) = hook.call1(py, (committed,)) {
        error.write_unraisable(py, Some(hook.bind(py)));
    }
    if first.is_instance_of::<PyKeyboardInterrupt>(py) {
        // It is not to be lost: raised again, where it hits the program.
        let raised = py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main"));
        if let Err(error) = raised {
            error.write_unraisable(py, Some(hook.bind(py)));
        }
    }
}
