//! Copies of members into any namespace of any pool, and moves there.

use std::sync::Mutex;

use engram::{CopiedIds, Copier, CopyOptions, CopyPlan, Departure, Error, Gid, Kind, Member};
use engram_fs::properties::of_copy;
use pyo3::prelude::*;

use crate::error::{Result, argument};
use crate::namespace::{Namespace, scope_of};
use crate::value::{Name, Truth};

/// What an importer keeps of a member, by the member's id.
type Kept = Vec<(u64, Vec<u8>)>;

/// Members that are to be copied, as one commit has left them.
#[pyclass(frozen, module = "engram._engram")]
pub struct Copying {
    plan: CopyPlan,
}

/// Tells Python of what is copied; what that raises ends the copy.
struct Teller<'a> {
    told: &'a Py<PyAny>,
    origins: &'a Py<PyAny>,
    raised: &'a Mutex<Option<PyErr>>,
}

impl Teller<'_> {
    fn ask<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> engram::Result<T> {
        Python::attach(call).map_err(|error| {
            let mut raised = self.raised.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *raised = Some(error);
            Error::new(Kind::Argument, "the copy was ended by its caller")
        })
    }
}

impl Copier for Teller<'_> {
    fn copied(&mut self, nbytes: u64) -> engram::Result<()> {
        self.ask(|py| {
            py.check_signals()?;
            self.told.call1(py, (nbytes,)).map(drop)
        })
    }

    fn origins(&mut self, ids: &CopiedIds, kept: Kept) -> engram::Result<Kept> {
        self.ask(|py| self.origins.call1(py, (ids.clone(), kept))?.extract(py))
    }

    fn properties(&self, kept: &[u8], is_another: bool) -> Vec<u8> {
        of_copy(kept, is_another)
    }
}

#[pymethods]
impl Copying {
    /// Looks at the member at a path under a group, with all that is below it.
    #[new]
    fn new(py: Python<'_>, namespace: &Namespace, parent: Gid, path: Name<'_>) -> Result<Self> {
        let engine = namespace.engine();
        Ok(Copying { plan: py.detach(|| CopyPlan::of(engine, parent, path.0))? })
    }

    /// Whether it is a group, and its id.
    #[getter]
    fn member(&self) -> (bool, u64) {
        told(self.plan.root())
    }

    /// How many objects and groups, and the bytes of their values.
    fn counts(&self) -> Result<(u64, u64, u64)> {
        let all = self.plan.counts()?;
        Ok((all.objects, all.groups, all.bytes))
    }

    /// How many bytes `put` tells of in all.
    fn nbytes_to_copy(&self) -> Result<u64> {
        Ok(self.plan.bytes_to_copy()?)
    }

    /// Makes the copy, and returns whether it is a group, and its id. `told(nbytes)` hears of bytes
    /// that are copied; `origins(ids, kept)` says what is kept of copies beside them.
    #[expect(clippy::too_many_arguments, reason = "the arguments of the Python call")]
    fn put(
        &self,
        py: Python<'_>,
        namespace: &Namespace,
        parent: Gid,
        path: Name<'_>,
        overwrite: Truth,
        scope: Option<&Bound<'_, PyAny>>,
        told_of: &Bound<'_, PyAny>,
        origins: &Bound<'_, PyAny>,
    ) -> Result<(bool, u64)> {
        let options = CopyOptions { overwrite: overwrite.0, scope: scope_of(scope)? };
        let raised = Mutex::new(None);
        let (told_of, origins) = (told_of.clone().unbind(), origins.clone().unbind());
        let engine = namespace.engine();
        let made = py.detach(|| {
            let mut teller = Teller { told: &told_of, origins: &origins, raised: &raised };
            self.plan.put(engine, parent, path.0, options, &mut teller)
        });
        match raised.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(error) => Err(error.into()),
            None => Ok(told(made?)),
        }
    }

    /// The path of the first member that is not the same in what another plan has, and why; None
    /// if all of it is there.
    fn difference(
        &self,
        py: Python<'_>,
        other: &Copying,
    ) -> Result<Option<(String, &'static str)>> {
        Ok(py.detach(|| self.plan.difference(&other.plan))?)
    }
}

fn told(member: Member) -> (bool, u64) {
    (matches!(member, Member::Group(_)), member.id())
}

/// Members that are on their way to another namespace.
#[pyclass(frozen, module = "engram._engram")]
pub struct Leaving {
    departure: Mutex<Option<Departure>>,
}

#[pymethods]
impl Leaving {
    /// Marks the member at a path under a group, with all that is below it.
    #[new]
    fn new(py: Python<'_>, namespace: &Namespace, parent: Gid, path: Name<'_>) -> Result<Self> {
        let engine = namespace.engine();
        let departure = py.detach(|| engine.begin_departure(parent, path.0))?;
        Ok(Leaving { departure: Mutex::new(Some(departure)) })
    }

    /// Takes the members away, which have been copied.
    fn go(&self, py: Python<'_>, copied: &Copying) -> Result<()> {
        match self.take() {
            Some(departure) => Ok(py.detach(|| departure.go(&copied.plan))?),
            None => Err(argument("this move is over")),
        }
    }

    /// The members stay where they are, if they have not gone.
    fn stay(&self, py: Python<'_>) {
        if let Some(departure) = self.take() {
            py.detach(|| drop(departure));
        }
    }
}

impl Leaving {
    fn take(&self) -> Option<Departure> {
        self.departure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}
