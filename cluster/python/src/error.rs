//! Errors of a cluster as Python exceptions, by the name that each has.

use engram_driver::error::Error;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The exception that an error is.
pub fn raised(error: &Error) -> PyErr {
    Python::attach(|py| {
        let class = |name| -> PyResult<Bound<'_, PyType>> {
            Ok(py.import("engram.errors")?.getattr(name)?.cast_into::<PyType>()?)
        };
        match class(error.class_name()) {
            Ok(class) => PyErr::from_type(class, (error.to_string(),)),
            Err(problem) => problem,
        }
    })
}

/// A native's result.
pub fn told<T>(result: engram_driver::error::Result<T>) -> PyResult<T> {
    result.map_err(|error| raised(&error))
}
