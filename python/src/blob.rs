//! Blobs: bytes under a name.

use engram_engine::dtype::DType;
use engram_engine::{Class, NewObject, Oid, Payload, Placement};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::error::{Result, argument, corrupt, refused};
use crate::realm::{Realm, scope_of};
use crate::value::{self, Name, Truth};
use crate::view;

/// Creates a blob of any object that exports contiguous bytes. Returns its OID and size.
#[pyfunction]
#[pyo3(signature = (realm, parent, path, data, attrs, overwrite, device, index, read_only,
                    scope, origin))]
#[allow(clippy::too_many_arguments)] // one crossing for one blob
pub fn put_blob(
    py: Python<'_>,
    realm: &Realm,
    parent: u64,
    path: Name<'_>,
    data: &Bound<'_, PyAny>,
    attrs: Option<&Bound<'_, PyAny>>,
    overwrite: Truth,
    device: Option<&Bound<'_, PyAny>>,
    index: Option<&Bound<'_, PyAny>>,
    read_only: Truth,
    scope: Option<&Bound<'_, PyAny>>,
    origin: &[u8],
) -> Result<(Oid, usize)> {
    let place = Placement {
        read_only: read_only.0,
        scope: scope_of(scope)?,
        ..realm.placement(overwrite.0, device, index)?
    };
    let attrs = value::attributes_of(attrs)?;
    let buffer;
    let bytes = if let Ok(bytes) = data.cast::<PyBytes>() {
        bytes.as_bytes()
    } else {
        buffer = exported(py, data)?;
        view::bytes_of(&buffer).unwrap_or_default()
    };
    let new = NewObject {
        class: Class::Blob,
        dtype: DType::bytes(),
        shape: Vec::new(),
        dims: None,
        attrs,
        origin: origin.to_vec(),
        layout: engram_engine::Layout::default(),
    };
    let engine = realm.engine();
    let oid = py.detach(|| engine.put(parent, path.0, &new, bytes, place))?;
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

/// Bytes `start..stop` of a blob, copied out; to its end where `stop` is None.
#[pyfunction]
#[pyo3(signature = (realm, oid, start = 0, stop = None))]
pub fn read_blob<'py>(
    py: Python<'py>,
    realm: &Realm,
    oid: Oid,
    start: usize,
    stop: Option<usize>,
) -> Result<Bound<'py, PyBytes>> {
    let (payload, _) = realm.engine().payload(oid)?;
    let len = match &payload {
        Payload::Inline(bytes) => bytes.len(),
        Payload::Extent(claim) => claim.len(),
    };
    let stop = stop.unwrap_or(len);
    if start > stop || stop > len {
        return Err(corrupt(format!(
            "bytes {start} to {stop} of a blob of {len}: run engram.verify on this pool"
        )));
    }
    let claim = match payload {
        Payload::Inline(bytes) => return Ok(PyBytes::new(py, &bytes[start..stop])),
        Payload::Extent(claim) => claim,
    };
    Ok(PyBytes::new_with(py, stop - start, |to| {
        view::copy_out(py, to, &claim, start).map_err(PyErr::from)
    })?)
}
