//! Locks: with-blocks that keep out others who ask.
//!
//! The block's two ends are native, so that no signal's exception comes between the lock and the
//! interpreter's own begin or end. While one waits, the interpreter is let go of, and looked at
//! for signals between two steps: Ctrl-C ends the waiting.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engram::{LockMode, Member};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::{Failure, Result, argument};
use crate::group::of;
use crate::namespace::Namespace;

/// A with-block during which a group, an array or a blob is locked.
///
/// "w" excludes all others who lock it, "r" those who lock it with "w". It keeps out nobody who
/// does not ask: reading and writing go on without. It belongs to its thread, which may take it
/// again inside (but not "w" inside "r"), and ends with the block, with the pool's closing, and
/// with the process, however that ends. A forked child has no part in it.
#[pyclass(frozen, module = "engram")]
pub struct Lock {
    engine: engram::Namespace,
    member: Member,
    mode: LockMode,
    within: Option<Duration>,
    /// Those that were taken and not let go of, innermost last.
    taken: Mutex<Vec<engram::Lock>>,
}

/// How long to wait; `None` is for ever.
pub fn wait_of(timeout: &Bound<'_, PyAny>) -> Result<Option<Duration>> {
    let seconds = timeout.extract::<f64>().unwrap_or(f64::NAN);
    match Duration::try_from_secs_f64(seconds) {
        Ok(within) => Ok(Some(within)),
        Err(_) if seconds == f64::INFINITY => Ok(None),
        Err(_) => Err(argument(format!(
            "timeout {timeout:?} is no time to wait: give seconds from 0 on, or None"
        ))),
    }
}

#[pymethods]
impl Lock {
    #[new]
    fn new(
        namespace: &Namespace,
        is_group: bool,
        member: u64,
        mode: &Bound<'_, PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> Result<Self> {
        let text = mode.cast::<PyString>().ok().and_then(|text| text.to_str().ok());
        let mode = match text {
            Some("r") => LockMode::Read,
            Some("w") => LockMode::Write,
            _ => {
                let shown = text.map_or_else(|| format!("{mode:?}"), |text| format!("{text:?}"));
                return Err(argument(format!("mode {shown} is unknown: use \"r\" or \"w\"")));
            }
        };
        let within = timeout.map(wait_of).transpose()?.flatten();
        let (engine, member) = (namespace.engine().clone(), of(is_group, member));
        Ok(Lock { engine, member, mode, within, taken: Mutex::default() })
    }

    #[allow(clippy::redundant_closure_for_method_calls)] // a method is of one lifetime
    fn __enter__<'py>(slf: Bound<'py, Self>, py: Python<'py>) -> Result<Bound<'py, Self>> {
        let own = slf.get();
        let mut signal = None;
        let mut pause = |time| {
            std::thread::sleep(time);
            Python::attach(|py| py.check_signals()).map_err(|error| {
                signal = Some(error);
                engram::Error::new(engram::Kind::Os, "waiting was interrupted")
            })
        };
        let taken = py.detach(|| own.engine.lock(own.member, own.mode, own.within, &mut pause));
        match (taken, signal) {
            (Ok(lock), _) => {
                own.taken.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
                Ok(slf)
            }
            (Err(_), Some(signal)) => Err(Failure::Python(signal)),
            (Err(error), None) => Err(error.into()),
        }
    }

    fn __exit__(
        &self,
        _kind: Option<&Bound<'_, PyAny>>,
        _error: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) {
        drop(self.taken.lock().unwrap_or_else(PoisonError::into_inner).pop());
    }

    fn __repr__(&self) -> String {
        let mode = if self.mode == LockMode::Write { "w" } else { "r" };
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let held = taken.last().is_some_and(engram::Lock::is_held);
        let state = if held { "held" } else { "not held" };
        format!("<engram.Lock {mode:?} of {:#x}, {state}>", self.member.id())
    }
}
