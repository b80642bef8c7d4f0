//! Variable-length strings: numpy's `StringDType` (and object arrays of `str`) as the engine's text
//! payload, and back.
//!
//! The payload of a single string (0-d) is its UTF-8 bytes alone. That of an n-d array is n + 1
//! offsets (u64, little-endian) into the bytes that follow them: item i lies at
//! `offset[i]..offset[i + 1]`.
//! The bytes read are validated in full before numpy sees any of it.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::error::{Failure, Result, argument, corrupt};
use crate::value;

/// What numpy's array of `StringDType` has for each item, beside the characters.
const ITEM_BYTES: usize = 16;

/// The payload of an array of `str`, of numpy's dtype `T` or object. `what` names it in errors.
pub fn encode(what: &str, array: &Bound<'_, PyAny>) -> Result<(Vec<u8>, Vec<u64>)> {
    let shape: Vec<u64> = array.getattr("shape")?.extract()?;
    crate::view::nbytes_of(ITEM_BYTES, &shape)?;
    let flat = array.call_method1("reshape", (-1,))?.call_method0("tolist")?;
    let items = flat.cast_into::<PyList>()?;
    if shape.is_empty() {
        let item = items.get_item(0)?;
        return Ok((text(what, 0, &item)?.as_bytes().to_vec(), shape));
    }
    let mut offsets = Vec::with_capacity((items.len() + 1) * 8);
    let mut bytes = Vec::new();
    offsets.extend_from_slice(&0_u64.to_le_bytes());
    for (place, item) in items.iter().enumerate() {
        let kept = text(what, place, &item).map_err(|e| too_large(what, &items).unwrap_or(e))?;
        bytes.extend_from_slice(kept.as_bytes());
        offsets.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    }
    offsets.append(&mut bytes);
    Ok((offsets, shape))
}

/// The payload of `count` empty strings; of one if `single`.
pub fn empty(shape: &[u64]) -> Result<Vec<u8>> {
    if shape.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![0; crate::view::nbytes_of(8, shape)? + 8])
}

/// The refusal of the first item that is too large an integer, which is why numpy took them all
/// for objects.
fn too_large(what: &str, items: &Bound<'_, PyList>) -> Option<Failure> {
    let mut places = items.iter().enumerate();
    places.find_map(|(n, item)| value::too_large(&format!("item {n} of {what}"), &item))
}

fn text<'a>(what: &str, place: usize, item: &'a Bound<'_, PyAny>) -> Result<&'a str> {
    let Ok(string) = item.cast::<PyString>() else {
        let kind = item.get_type().name()?;
        return Err(argument(format!(
            "{what} has dtype object, and item {place} of it is of type {kind}: an object array is \
             kept only if all of it is str; convert it to a fixed-size dtype with astype, or \
             store its parts under names of their own"
        )));
    };
    string.to_str().map_err(|_| {
        argument(format!("item {place} of {what} is {item:?}, which has no UTF-8: encode it"))
    })
}

/// So many strings are Python's at a time.
const PIECE: usize = 1 << 14;

/// The array of `StringDType` that a payload holds.
pub fn decode<'py>(py: Python<'py>, payload: &[u8], shape: &[u64]) -> Result<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let dtype = crate::dtype::decode(py, &engram::dtype::DType::Text)?;
    if shape.is_empty() {
        return Ok(numpy.call_method1("array", (one(payload)?, dtype))?);
    }
    let count = crate::view::nbytes_of(1, shape)?;
    let flat = numpy.call_method1("empty", (count, dtype))?;
    // Piece by piece: Python's own strings take several times the room of numpy's.
    for (number, piece) in split(payload, count)?.chunks(PIECE).enumerate() {
        let start = number * PIECE;
        let place = py.import("builtins")?.call_method1("slice", (start, start + piece.len()))?;
        flat.set_item(place, PyList::new(py, piece)?)?;
    }
    Ok(flat.call_method1("reshape", (PyTuple::new(py, shape)?,))?)
}

/// A payload of one string.
pub fn one(payload: &[u8]) -> Result<&str> {
    std::str::from_utf8(payload)
        .map_err(|e| corrupt(format!("a string is no UTF-8 ({e}): run engram.verify on this pool")))
}

fn split(payload: &[u8], count: usize) -> Result<Vec<&str>> {
    let broken = |why: &str| {
        corrupt(format!(
            "{count} strings in {} bytes: {why}; run engram.verify on this pool",
            payload.len()
        ))
    };
    let table = count.checked_add(1).and_then(|n| n.checked_mul(8));
    let Some((table, bytes)) = table.and_then(|n| payload.split_at_checked(n)) else {
        return Err(broken("their offsets are cut short"));
    };
    let offset = |i: usize| {
        let eight = table[i * 8..i * 8 + 8].try_into().expect("eight bytes are eight");
        usize::try_from(u64::from_le_bytes(eight)).unwrap_or(usize::MAX)
    };
    if offset(0) != 0 || offset(count) != bytes.len() {
        return Err(broken("their offsets do not span them"));
    }
    (0..count)
        .map(|i| match bytes.get(offset(i)..offset(i + 1)) {
            Some(item) => one(item),
            None => Err(broken("their offsets do not ascend")),
        })
        .collect()
}
