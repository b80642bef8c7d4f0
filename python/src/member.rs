//! What is said of a new array or blob beside its name and its value: one struct.
//!
//! Python hands it over as a tuple, which `new_member` in `python/engram/member.py` makes: that
//! costs next to nothing, which counts where a small array is put. A field that is `None` is left
//! to the natives, the group or numpy.

use engram::Placement;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::{Result, argument};
use crate::index;
use crate::namespace::{Namespace, scope_of};
use crate::value::Truth;

type Given<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// How many fields there are.
const FIELDS: usize = 12;

/// The fields as they lie in the tuple.
pub type Fields<'a, 'py> = [Borrowed<'a, 'py, PyAny>; FIELDS];

/// What is said of something new.
pub struct NewMember<'a, 'py> {
    /// The shape of an array.
    pub shape: Given<'a, 'py>,
    /// Its dtype.
    pub dtype: Given<'a, 'py>,
    /// The attributes.
    pub attrs: Given<'a, 'py>,
    /// The names of an array's dimensions.
    pub dims: Given<'a, 'py>,
    /// What `chunks=` says.
    pub chunks: Given<'a, 'py>,
    /// What `codec=` says.
    pub codec: Option<&'a str>,
    /// What an import keeps beside it: JSON, or nothing.
    pub origin: &'a [u8],
    overwrite: bool,
    device: Given<'a, 'py>,
    index_mode: Given<'a, 'py>,
    read_only: bool,
    scope: Given<'a, 'py>,
}

impl<'a, 'py> NewMember<'a, 'py> {
    /// The struct of the fields that `fields` has read.
    pub fn of(fields: &'a Fields<'a, 'py>) -> Result<Self> {
        let [
            shape,
            dtype,
            attrs,
            dims,
            overwrite,
            device,
            index_mode,
            read_only,
            scope,
            chunks,
            codec,
            origin,
        ] = fields;
        Ok(NewMember {
            shape: given(shape),
            dtype: given(dtype),
            attrs: given(attrs),
            dims: given(dims),
            chunks: given(chunks),
            codec: text(codec, "codec")?,
            origin: origin.extract()?,
            overwrite: overwrite.extract::<Truth>()?.0,
            device: given(device),
            index_mode: given(index_mode),
            read_only: read_only.extract::<Truth>()?.0,
            scope: given(scope),
        })
    }

    /// Where and how it is put in a namespace.
    pub fn placement(&self, namespace: &Namespace) -> Result<Placement> {
        Ok(Placement {
            overwrite: self.overwrite,
            device: namespace.device(self.device)?,
            index: index::mode_of(self.index_mode)?,
            owner: None,
            read_only: self.read_only,
            scope: scope_of(self.scope)?,
        })
    }
}

/// The fields of a tuple of Python's, each read once: Python's stable ABI shows no slice of them.
pub fn fields<'a, 'py>(said: &'a Bound<'py, PyTuple>) -> Result<Fields<'a, 'py>> {
    if said.len() != FIELDS {
        return Err(argument(format!("{said:?} has not the fields of a NewMember")));
    }
    let mut found = [said.get_borrowed_item(0)?; FIELDS];
    for (index, field) in found.iter_mut().enumerate().skip(1) {
        *field = said.get_borrowed_item(index)?;
    }
    Ok(found)
}

/// A text, or nothing; the error of anything else names the argument.
fn text<'a>(field: &'a Bound<'_, PyAny>, name: &str) -> PyResult<Option<&'a str>> {
    field.extract().map_err(|error: PyErr| {
        PyTypeError::new_err(format!("argument '{name}': {}", error.value(field.py())))
    })
}

fn given<'a, 'py>(field: &'a Bound<'py, PyAny>) -> Given<'a, 'py> {
    (!field.is_none()).then_some(field)
}
