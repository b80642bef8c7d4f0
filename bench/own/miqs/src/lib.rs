//! MIQS+ for Python, behind the same kind of binding as Engram's: `bench/own/miqs.py` loads it.
//!
//! The index itself is `bench/own/rust/src/miqs.rs`, tested there.

#![allow(clippy::cast_precision_loss, reason = "counts and sizes here are far below 2^53")]

#[path = "../../rust/src/corpus.rs"]
mod corpus;
#[path = "../../rust/src/miqs.rs"]
mod index;
#[path = "../../rust/src/radix.rs"]
mod radix;

use pyo3::prelude::*;

/// Any failure, as text.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[pymodule]
mod engram_miqs {
    use std::path::PathBuf;

    use engram::query::parse;
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    use crate::corpus::{Corpus, Item};
    use crate::index;

    #[allow(clippy::needless_pass_by_value)] // as `map_err` hands it over
    fn refused(error: impl ToString) -> PyErr {
        PyValueError::new_err(error.to_string())
    }

    /// An index in memory: from attributes and names to paths.
    #[pyclass]
    struct Miqs(index::Miqs);

    impl Miqs {
        fn ids(&self, query: &str) -> PyResult<Vec<index::Id>> {
            let query = parse(query).map_err(|error| refused(error.message()))?;
            self.0.query(&query.expr).map_err(refused)
        }
    }

    #[pymethods]
    impl Miqs {
        #[new]
        fn new() -> Self {
            Miqs(index::Miqs::new(false))
        }

        /// Takes in an object, which must be new, with its attributes: numbers and strings.
        fn insert(&mut self, path: &str, attrs: &Bound<'_, PyDict>) -> PyResult<()> {
            let mut items = Vec::with_capacity(attrs.len());
            for (key, value) in attrs {
                items.push((key.extract::<String>()?, item(&value)?));
            }
            self.0.insert(path, items.iter().map(|(key, item)| (key.as_str(), item)));
            Ok(())
        }

        /// Takes in a corpus from its file.
        #[allow(clippy::needless_pass_by_value)] // as PyO3 hands it over
        fn load(&mut self, path: PathBuf) -> PyResult<()> {
            let corpus = Corpus::read(&path).map_err(refused)?;
            for place in 0..corpus.len() {
                self.0.insert(&corpus.path(place), corpus.attributes(place));
            }
            self.0.shrink();
            Ok(())
        }

        /// The paths of the objects that a query finds.
        fn query(&self, query: &str) -> PyResult<Vec<String>> {
            Ok(self.ids(query)?.into_iter().map(|id| self.0.path(id)).collect())
        }

        /// How many attributes these have.
        fn count_attributes(&self, query: &str) -> PyResult<u64> {
            Ok(self.0.count_attributes(&self.ids(query)?))
        }
    }

    fn item(value: &Bound<'_, PyAny>) -> PyResult<Item> {
        if let Ok(text) = value.extract::<String>() {
            return Ok(Item::Text(text));
        }
        if let Ok(int) = value.extract::<i64>() {
            return Ok(Item::Int(int));
        }
        value.extract::<f64>().map(Item::Float)
    }
}
