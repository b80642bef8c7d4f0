//! Engine errors as Python exceptions: one conversion, by kind, for every native.
//!
//! The classes are `engram.errors`'; they are looked up once, by the name that the engine's table
//! of kinds gives. `kinds` hands that table to Python: exit codes and errnos have one source.

use engram::{Error, Kind};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// What a native can fail with: the engine's refusal, or an exception that Python code raised.
pub enum Failure {
    /// The engine refused.
    Engine(Error),
    /// Python code or numpy raised.
    Python(PyErr),
}

/// A native's result.
pub type Result<T> = std::result::Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Engine(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Failure::Python(error)
    }
}

impl<'a, 'py> From<pyo3::CastError<'a, 'py>> for Failure {
    fn from(error: pyo3::CastError<'a, 'py>) -> Self {
        Failure::Python(error.into())
    }
}

impl From<pyo3::CastIntoError<'_>> for Failure {
    fn from(error: pyo3::CastIntoError<'_>) -> Self {
        Failure::Python(error.into())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            Failure::Engine(error) => Python::attach(|py| raised(py, &error)),
        }
    }
}

/// An `ArgumentError` with this message.
pub fn argument(message: impl Into<String>) -> Failure {
    Failure::Engine(Error::new(Kind::Argument, message))
}

/// A `BusyError` with this message.
pub fn busy(message: impl Into<String>) -> Failure {
    Failure::Engine(Error::new(Kind::Busy, message))
}

/// A `CorruptError` with this message.
pub fn corrupt(message: impl Into<String>) -> Failure {
    Failure::Engine(Error::new(Kind::Corrupt, message))
}

/// The engine's refusal of a pool as a whole: a pool that is not there is also Python's
/// `FileNotFoundError`.
pub fn of_pool(py: Python<'_>, error: Error) -> Failure {
    if error.kind() != Kind::NotFound {
        return Failure::Engine(error);
    }
    match class(py, "PoolNotFoundError") {
        Ok(class) => Failure::Python(PyErr::from_type(class, (error.message().to_owned(),))),
        Err(problem) => Failure::Python(problem),
    }
}

/// The same failure as an `ArgumentError`, if numpy refused a value (`ValueError`, `TypeError`,
/// `OverflowError`); other exceptions pass.
pub fn refused(py: Python<'_>, what: &str, error: PyErr) -> Failure {
    use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
    let numpys = error.is_instance_of::<PyValueError>(py)
        || error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyOverflowError>(py);
    let ours = class(py, "EngramError").is_ok_and(|c| error.is_instance(py, c.as_any()));
    if numpys && !ours {
        return argument(format!("{what}: {}", error.value(py)));
    }
    Failure::Python(error)
}

/// Warns the program, in the name of the package's caller. A warning that is made an error has
/// nobody to go to here, and is printed.
pub fn warn(py: Python<'_>, texts: &[String]) {
    for text in texts {
        let warned = class(py, "EngramWarning").and_then(|category| {
            let text = std::ffi::CString::new(text.as_str())?;
            PyErr::warn(py, category.as_any(), &text, 2)
        });
        if let Err(error) = warned {
            error.write_unraisable(py, None);
        }
    }
}

/// The engine's table of kinds: (number, class name, exit code, errno), in the order of numbers.
#[pyfunction]
pub fn kinds() -> Vec<(u8, &'static str, u8, i32)> {
    Kind::ALL.iter().map(|k| (*k as u8, k.class_name(), k.exit_code(), k.errno())).collect()
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import("engram.errors")?.getattr(name)?.cast_into::<PyType>()?)
}

fn raised(py: Python<'_>, error: &Error) -> PyErr {
    static CLASSES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();
    let classes = CLASSES.get_or_try_init(py, || {
        Kind::ALL.iter().map(|k| Ok(class(py, k.class_name())?.unbind())).collect::<PyResult<_>>()
    });
    let classes = match classes {
        Ok(classes) => classes,
        Err(problem) => return problem,
    };
    let class = classes[error.kind() as usize - 1].bind(py);
    match class.call1((error.message(),)).and_then(|e| Ok(e.cast_into::<PyBaseException>()?)) {
        Ok(exception) => PyErr::from_value(exception.into_any()),
        Err(problem) => problem,
    }
}
