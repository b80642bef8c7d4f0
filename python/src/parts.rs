//! The engine's functions for the library of clusters, which is a module of its own, the heads with
//! which objects travel between nodes, and dtypes as manifests have them.

use engram::{DType, Value};
use engram_holding::heads::{attrs_of, values_of};
use engram_parts::head::{Class, Head};
use numpy::{PyArrayDescr, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::dtype;
use crate::error::{Result, corrupt};
use crate::strings;
use crate::value::{self, Source, array_of_bytes};

/// The address of the table of functions that `engram.cluster._cluster` calls.
#[pyfunction]
pub fn parts_table() -> usize {
    &raw const engram_holding::TABLE as usize
}

/// What a head says: its class, dtype, shape, names of dimensions, attributes, and what is told of
/// an object that is there.
type Said<'py> = (
    &'static str,
    Option<Bound<'py, PyArrayDescr>>,
    Bound<'py, PyTuple>,
    Option<Vec<String>>,
    Vec<(String, Bound<'py, PyAny>)>,
    Option<ToldOf>,
);

/// Id, generation, bytes, ns of making, ns of the last change, owner, whether it is in one piece.
type ToldOf = (u64, u64, u64, i64, i64, u64, bool);

/// A value for another node: the bytes of its head, and its own.
#[pyfunction]
#[pyo3(signature = (value, dims = None, attrs = None))]
pub fn packed<'py>(
    py: Python<'py>,
    value: &Bound<'py, PyAny>,
    dims: Option<&Bound<'_, PyAny>>,
    attrs: Option<&Bound<'_, PyAny>>,
) -> Result<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let attrs = attrs_of(value::attributes_of(attrs)?);
    if let Ok(bytes) = value.cast::<PyBytes>() {
        let head = Head { class: Class::Blob, attrs, ..Head::default() };
        return Ok((PyBytes::new(py, &head.encode()), bytes.clone()));
    }
    let (class, dtype, shape, data) = match value::source("the value", value, None)? {
        Source::Text(data, shape) => {
            (Class::Strings, engram::DType::Text, shape, PyBytes::new(py, &data))
        }
        Source::Plain(array, dtype) => {
            let shape = array.shape().iter().map(|&length| length as u64).collect();
            let bytes = array.call_method0("tobytes")?.cast_into::<PyBytes>()?;
            (Class::Array, dtype, shape, bytes)
        }
    };
    let dims = value::dims_of(dims, shape.len())?;
    let head = Head { class, dtype: Some(dtype), shape, dims, attrs, told: None };
    Ok((PyBytes::new(py, &head.encode()), data))
}

/// Attributes for another node: the bytes of a head that has them alone.
#[pyfunction]
pub fn packed_attrs<'py>(py: Python<'py>, attrs: &Bound<'_, PyAny>) -> Result<Bound<'py, PyBytes>> {
    let attrs = attrs_of(value::attributes_of(Some(attrs))?);
    let head = Head { class: Class::Group, attrs, ..Head::default() };
    Ok(PyBytes::new(py, &head.encode()))
}

/// What a head says that another node has sent.
#[pyfunction]
pub fn unpacked<'py>(py: Python<'py>, head: &[u8]) -> Result<Said<'py>> {
    let head = Head::decode(head)?;
    let class = match head.class {
        Class::Array => "array",
        Class::Blob => "blob",
        Class::Strings => "strings",
        Class::Group => "group",
    };
    let dtype = head.dtype.as_ref().map(|own| dtype::decode(py, own)).transpose()?;
    let shape = PyTuple::new(py, &head.shape)?;
    let told = head.told.map(|told| {
        let (made, changed) = (told.created, told.modified);
        (told.id, told.generation, told.nbytes, made, changed, told.owner, told.is_contiguous)
    });
    let attr = |(key, own): (String, Value)| Ok((key, value::from_value(py, &own)?));
    let attrs = values_of(head.attrs).into_iter().map(attr).collect::<Result<Vec<_>>>()?;
    Ok((class, dtype, shape, head.dims, attrs, told))
}

/// The array, or strings, of bytes that another node has sent with this head.
#[pyfunction]
pub fn array_of_packed<'py>(
    py: Python<'py>,
    head: &[u8],
    data: &[u8],
) -> Result<Bound<'py, PyAny>> {
    let head = Head::decode(head)?;
    let dtype = head.dtype.as_ref().ok_or_else(|| corrupt("a head has no dtype".to_owned()))?;
    if head.class == Class::Strings {
        return strings::decode(py, data, &head.shape);
    }
    if head.nbytes()? != data.len() as u64 {
        return Err(corrupt(format!("{} bytes came for shape {:?}", data.len(), head.shape)));
    }
    array_of_bytes(py, &dtype::decode(py, dtype)?, &head.shape, data)
}

/// A dtype in the engine's bytes.
#[pyfunction]
pub fn dtype_bytes<'py>(py: Python<'py>, spec: &Bound<'py, PyAny>) -> Result<Bound<'py, PyBytes>> {
    let mut bytes = Vec::new();
    dtype::encode(&dtype::parse(spec)?)?.encode(&mut bytes);
    Ok(PyBytes::new(py, &bytes))
}

/// The dtype that these bytes are.
#[pyfunction]
pub fn dtype_of<'py>(py: Python<'py>, data: &[u8]) -> Result<Bound<'py, PyArrayDescr>> {
    let (found, _) = DType::decode(data)?;
    dtype::decode(py, &found)
}
