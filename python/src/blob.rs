//! Blobs: bytes under a name.

use engram::{NewObject, Oid, Payload};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyString, PyTuple};

use crate::error::{Result, argument, refused};
use crate::member::{self, NewMember};
use crate::namespace::Namespace;
use crate::value::{self, Name};
use crate::view;

/// Creates a blob of any object that exports contiguous bytes. Returns its OID and size.
#[pyfunction]
pub fn put_blob(
    py: Python<'_>,
    namespace: &Namespace,
    parent: u64,
    path: Name<'_>,
    data: &Bound<'_, PyAny>,
    new: &Bound<'_, PyTuple>,
) -> Result<(Oid, usize)> {
    let new = member::fields(new)?;
    let new = NewMember::of(&new)?;
    let place = new.placement(namespace)?;
    let attrs = value::attributes_of(new.attrs)?;
    let buffer;
    let bytes = if let Ok(bytes) = data.cast::<PyBytes>() {
        bytes.as_bytes()
    } else {
        buffer = exported(py, data)?;
        view::bytes_of(&buffer).unwrap_or_default()
    };
    let object = NewObject { attrs, origin: new.origin.to_vec(), ..NewObject::blob() };
    let engine = namespace.engine();
    let oid = py.detach(|| engine.put(parent, path.0, &object, bytes, place))?;
    Ok((oid, bytes.len()))
}

fn exported<'py>(py: Python<'py>, data: &Bound<'py, PyAny>) -> Result<Bound<'py, PyUntypedArray>> {
    if data.is_instance_of::<PyString>() {
        return Err(argument("a blob is bytes, and this is a str: encode it, as in s.encode()"));
    }
    let what = || format!("{} is nothing to make a blob of", data.get_type());
    let flat = py
        .import("builtins")?
        .call_method1("memoryview", (data,))
        .and_then(|bytes| bytes.call_method1("cast", ("B",)))
        .and_then(|bytes| py.import("numpy")?.call_method1("asarray", (bytes,)))
        .map_err(|e| refused(py, &what(), e))?;
    Ok(flat.cast_into::<PyUntypedArray>()?)
}

/// The bytes of a blob that a slice selects, or all of them, copied out.
#[pyfunction]
#[pyo3(signature = (namespace, oid, part = None))]
pub fn read_blob<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    oid: Oid,
    part: Option<&Bound<'py, PySlice>>,
) -> Result<Bound<'py, PyBytes>> {
    let (payload, _) = namespace.engine().payload(oid)?;
    let len = match &payload {
        Payload::Inline(bytes) => bytes.len(),
        Payload::Extent(claim) => claim.len(),
    };
    let (start, len) = match part {
        Some(part) => {
            let part = part.indices(len as isize)?;
            (part.start as usize, part.slicelength)
        }
        None => (0, len),
    };
    let claim = match payload {
        Payload::Inline(bytes) => return Ok(PyBytes::new(py, &bytes[start..start + len])),
        Payload::Extent(claim) => claim,
    };
    Ok(PyBytes::new_with(py, len, |to| view::copy_out(py, to, &claim, start).map_err(PyErr::from))?)
}
