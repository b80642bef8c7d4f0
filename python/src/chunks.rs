//! Chunked arrays: boxes in and out, other shapes, and what they take.
//!
//! Chunks are decoded straight into the new array's memory, and encoded straight out of the given
//! one's, on a few threads, while the interpreter is let go of.

use engram::{Codec, Layout, Oid, Payload, StoredChunk, chunks_for};
use numpy::prelude::*;
use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use crate::array::gone;
use crate::error::{Result, argument};
use crate::namespace::Namespace;
use crate::value;
use crate::view::{self, View};

/// How an array is to lie, by what `chunks=` and `codec=` say.
pub fn layout_of(
    chunks: Option<&Bound<'_, PyAny>>,
    codec: Option<&str>,
    shape: &[u64],
    item: u64,
) -> Result<Layout> {
    let codec = codec.map(str::parse::<Codec>).transpose()?;
    let chunks = chunks.filter(|chunks| !chunks.is_none());
    let chunks = match chunks {
        Some(all) if all.is_instance_of::<PyBool>() => {
            if all.is_truthy()? {
                Some(chunks_for(shape, item))
            } else {
                None
            }
        }
        Some(all) => Some(value::shape_of(all)?),
        None => None,
    };
    match (chunks, codec) {
        (Some(chunks), codec) => Ok(Layout::Chunked { chunks, codec: codec.unwrap_or_default() }),
        (None, None) => Ok(Layout::Contiguous),
        (None, Some(codec)) if codec == Codec::default() => Ok(Layout::Contiguous),
        (None, Some(codec)) => Err(argument(format!(
            "codec {:?} is for chunked arrays: give chunks= too (chunks=True chooses)",
            codec.to_string()
        ))),
    }
}

/// A copy of a box of the value.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "tuples from Python come as vectors")]
pub fn load_box<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    oid: Oid,
    dtype: &Bound<'py, PyArrayDescr>,
    offsets: Vec<u64>,
    counts: Vec<u64>,
) -> Result<Bound<'py, PyUntypedArray>> {
    let engine = namespace.engine();
    view::array_filled(py, dtype, &counts, |bytes| engine.load_slab(oid, &offsets, &counts, bytes))
}

/// A chunk as it is kept, by its place in the grid, as bytes: its items, on the pool's own memory
/// where they lie in it so, and False; or what the array's codec made of them, and True. None where
/// nothing has been written.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as above")]
pub fn stored_chunk<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    oid: Oid,
    cell: Vec<u32>,
) -> Result<Option<(Bound<'py, PyAny>, bool)>> {
    let engine = namespace.engine();
    let (view, coded) = match py.detach(|| engine.stored_chunk(oid, &cell)).map_err(gone)? {
        StoredChunk::Absent => return Ok(None),
        StoredChunk::Plain(Payload::Extent(claim)) => (View::claimed(claim), false),
        StoredChunk::Plain(Payload::Inline(bytes)) => (View::copied(bytes), false),
        StoredChunk::Encoded(bytes) => (View::copied(bytes), true),
    };
    let shape = [view.len() as u64];
    let bytes = numpy::dtype::<u8>(py);
    Ok(Some((view::array_over(py, &Py::new(py, view)?, &bytes, &shape)?.into_any(), coded)))
}

/// Writes a box of the value; with a mask, of as many bytes, only those bytes where that is not
/// zero. Both lie in C order.
#[pyfunction]
#[pyo3(signature = (namespace, oid, offsets, counts, array, mask = None))]
#[expect(clippy::needless_pass_by_value, reason = "as above")]
pub fn store_box(
    py: Python<'_>,
    namespace: &Namespace,
    oid: Oid,
    offsets: Vec<u64>,
    counts: Vec<u64>,
    array: &Bound<'_, PyUntypedArray>,
    mask: Option<&Bound<'_, PyUntypedArray>>,
) -> Result<()> {
    let engine = namespace.engine();
    let bytes = in_c_order(array)?;
    let Some(mask) = mask else {
        let flush = engram::Flush::Once;
        let stored = py.detach(|| engine.store_slab(oid, &offsets, &counts, bytes, flush));
        return Ok(stored.map_err(gone)?);
    };
    let mask = in_c_order(mask)?;
    Ok(py.detach(|| engine.store_masked(oid, &offsets, &counts, bytes, mask)).map_err(gone)?)
}

fn in_c_order<'a>(array: &'a Bound<'_, PyUntypedArray>) -> Result<&'a [u8]> {
    view::bytes_of(array).ok_or_else(|| argument("only an array in C order can be stored"))
}

/// Gives a chunked array another shape.
#[pyfunction]
pub fn reshape(
    py: Python<'_>,
    namespace: &Namespace,
    oid: Oid,
    shape: &Bound<'_, PyAny>,
) -> Result<()> {
    let shape = value::shape_of(shape)?;
    let engine = namespace.engine();
    Ok(py.detach(|| engine.reshape(oid, &shape)).map_err(gone)?)
}

/// Appends an array in C order along a dimension; the shape then.
#[pyfunction]
pub fn append<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    oid: Oid,
    axis: usize,
    array: &Bound<'py, PyUntypedArray>,
) -> Result<Bound<'py, PyTuple>> {
    let engine = namespace.engine();
    let counts: Vec<u64> = array.shape().iter().map(|&length| length as u64).collect();
    let bytes = in_c_order(array)?;
    let shape = py.detach(|| engine.append(oid, axis, &counts, bytes)).map_err(gone)?;
    Ok(PyTuple::new(py, shape)?)
}

/// A codec's name as arrays tell it: each has one alone.
#[pyfunction]
pub fn codec_name(codec: &str) -> Result<String> {
    Ok(codec.parse::<Codec>()?.to_string())
}

/// The bytes that a value takes.
#[pyfunction]
pub fn stored_nbytes(py: Python<'_>, namespace: &Namespace, oid: Oid) -> Result<u64> {
    let engine = namespace.engine();
    Ok(py.detach(|| engine.stored_nbytes(oid))?)
}
