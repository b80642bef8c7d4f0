//! numpy's dtypes as the engine's, and back.
//!
//! Both ways are exact: kind, width, byte order, a datetime's unit, fields with their offsets,
//! titles and padding, sub-arrays. Two things are not kept, because they say nothing of the bytes:
//! a dtype's `metadata`, and `numpy.record` as the type of a structured scalar.
//!
//! A structured dtype's field names can be changed in place, so descriptors of structured dtypes
//! are built anew each time; those of plain scalars cannot change and are shared.

use std::collections::HashMap;
use std::sync::Mutex;

use engram::dtype::{DType, Field, MAX_DEPTH, Unit};
use numpy::PyArrayDescr;
use numpy::prelude::*;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::error::{Result, argument, refused};

/// How many scalar descriptors are kept ready. Strings of every width could fill it; it then stays.
const MAX_SHARED: usize = 512;

/// Descriptors by kind, byte order and itemsize.
type Shared = Mutex<HashMap<(u8, u8, u32), Py<PyArrayDescr>>>;

/// Whatever numpy takes for a dtype, as a dtype.
pub fn parse<'py>(spec: &Bound<'py, PyAny>) -> Result<Bound<'py, PyArrayDescr>> {
    if let Ok(descr) = spec.cast::<PyArrayDescr>() {
        return Ok(descr.clone());
    }
    PyArrayDescr::new(spec.py(), spec)
        .map_err(|e| refused(spec.py(), &format!("dtype {spec:?} is none that numpy knows"), e))
}

/// Whether this is the dtype of variable-length strings.
pub fn is_text(descr: &Bound<'_, PyArrayDescr>) -> bool {
    descr.kind() == b'T'
}

/// numpy's dtype as the engine's. `ArgumentError` for what has no fixed bytes.
pub fn encode(descr: &Bound<'_, PyArrayDescr>) -> Result<DType> {
    let encoded = encode_at(descr, 0)?;
    if !matches!(encoded, DType::Scalar { .. }) {
        encoded.validate()?;
    }
    Ok(encoded)
}

fn encode_at(descr: &Bound<'_, PyArrayDescr>, depth: usize) -> Result<DType> {
    if depth > MAX_DEPTH {
        return Err(argument(format!(
            "a dtype nested more than {MAX_DEPTH} deep cannot be kept: flatten it"
        )));
    }
    if is_text(descr) {
        if depth > 0 {
            return Err(argument(
                "a field of variable-length strings cannot be kept: give it a width, as in 'U16'",
            ));
        }
        return Ok(DType::Text);
    }
    if descr.has_subarray() {
        let base = Box::new(encode_at(&descr.base(), depth + 1)?);
        let shape = descr.shape().into_iter().map(|d| d as u64).collect();
        return Ok(DType::Sub { base, shape });
    }
    if descr.has_fields() {
        return encode_struct(descr, depth);
    }
    let kind = descr.kind();
    if !b"biufcmMSUV".contains(&kind) || !(0..256).contains(&descr.num()) {
        return Err(argument(format!(
            "dtype {descr} cannot be kept: an array has any of numpy's fixed-size dtypes, or \
             numpy.dtypes.StringDType() for strings; convert it with astype, or store each part \
             as an array of its own"
        )));
    }
    let unit = if matches!(kind, b'm' | b'M') { unit_of(descr)? } else { None };
    Ok(DType::Scalar { kind, order: order_of(descr), size: small(descr.itemsize())?, unit })
}

fn encode_struct(descr: &Bound<'_, PyArrayDescr>, depth: usize) -> Result<DType> {
    let table = descr.getattr("fields")?;
    let names = descr.getattr("names")?.cast_into::<PyTuple>()?;
    let mut fields = Vec::with_capacity(names.len());
    for name in names.iter() {
        let entry = table.get_item(&name)?.cast_into::<PyTuple>()?;
        let title = match entry.get_item(2) {
            Err(_) => None,
            Ok(title) => Some(title.extract::<String>().map_err(|_| {
                argument(format!("the title {title:?} of field {name:?} is no string"))
            })?),
        };
        let inner = entry.get_item(0)?.cast_into::<PyArrayDescr>()?;
        let dtype = encode_at(&inner, depth + 1).map_err(|failure| match failure {
            crate::error::Failure::Engine(e) => e.context(format!("field {name:?}")).into(),
            other @ crate::error::Failure::Python(_) => other,
        })?;
        let offset = small(entry.get_item(1)?.extract::<usize>()?)?;
        fields.push(Field { name: text_of(&name)?, title, offset, dtype });
    }
    Ok(DType::Struct { size: small(descr.itemsize())?, align: descr.is_aligned_struct(), fields })
}

fn text_of(name: &Bound<'_, PyAny>) -> Result<String> {
    name.extract().map_err(|_| argument(format!("the field name {name:?} is no valid Unicode")))
}

fn order_of(descr: &Bound<'_, PyArrayDescr>) -> u8 {
    match descr.byteorder() {
        b'=' if cfg!(target_endian = "little") => b'<',
        b'=' => b'>',
        order => order,
    }
}

fn small(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).map_err(|_| {
        argument(format!("{bytes} bytes an item is more than 2**32 - 1: use a dimension instead"))
    })
}

fn unit_of(descr: &Bound<'_, PyArrayDescr>) -> Result<Option<(Unit, u32)>> {
    let numpy = descr.py().import("numpy")?;
    let (unit, count): (String, u32) = numpy.call_method1("datetime_data", (descr,))?.extract()?;
    Ok(Unit::from_name(&unit).map(|unit| (unit, count)))
}

/// The engine's dtype as numpy's.
pub fn decode<'py>(py: Python<'py>, dtype: &DType) -> Result<Bound<'py, PyArrayDescr>> {
    static SHARED: PyOnceLock<Shared> = PyOnceLock::new();
    match dtype {
        DType::Scalar { kind, order, size, unit: None } => {
            let key = (*kind, *order, *size);
            let shared = SHARED.get_or_init(py, Mutex::default);
            if let Some(descr) = shared.lock().unwrap().get(&key) {
                return Ok(descr.bind(py).clone());
            }
            let descr = PyArrayDescr::new(py, scalar_name(*kind, *order, *size))?;
            let mut shared = shared.lock().unwrap();
            if shared.len() < MAX_SHARED {
                shared.insert(key, descr.clone().unbind());
            }
            Ok(descr)
        }
        DType::Scalar { kind, order, unit: Some((unit, count)), .. } => {
            let (order, kind) = (*order as char, *kind as char);
            Ok(PyArrayDescr::new(py, format!("{order}{kind}8[{count}{}]", unit.name()))?)
        }
        DType::Struct { size, align, fields } => decode_struct(py, *size, *align, fields),
        DType::Sub { base, shape } => {
            let shape = PyTuple::new(py, shape)?;
            Ok(PyArrayDescr::new(py, (decode(py, base)?, shape))?)
        }
        DType::Text => {
            static TEXT: PyOnceLock<Py<PyArrayDescr>> = PyOnceLock::new();
            let text = TEXT.get_or_try_init(py, || {
                let made = py.import("numpy")?.getattr("dtypes")?.call_method0("StringDType")?;
                Ok::<_, PyErr>(made.cast_into::<PyArrayDescr>()?.unbind())
            })?;
            Ok(text.bind(py).clone())
        }
    }
}

/// numpy's name of a scalar dtype, such as `<f8` or `|S5`.
fn scalar_name(kind: u8, order: u8, size: u32) -> String {
    let width = if kind == b'U' { size / 4 } else { size };
    format!("{}{}{width}", order as char, kind as char)
}

fn decode_struct<'py>(
    py: Python<'py>,
    size: u32,
    align: bool,
    fields: &[Field],
) -> Result<Bound<'py, PyArrayDescr>> {
    let spec = PyDict::new(py);
    spec.set_item("names", PyList::new(py, fields.iter().map(|f| &f.name))?)?;
    let formats: Vec<_> = fields.iter().map(|f| decode(py, &f.dtype)).collect::<Result<_>>()?;
    spec.set_item("formats", formats)?;
    spec.set_item("offsets", PyList::new(py, fields.iter().map(|f| f.offset))?)?;
    if fields.iter().any(|f| f.title.is_some()) {
        spec.set_item("titles", PyList::new(py, fields.iter().map(|f| f.title.as_ref()))?)?;
    }
    spec.set_item("itemsize", size)?;
    if align {
        spec.set_item("aligned", true)?;
    }
    Ok(PyArrayDescr::new(py, spec)?)
}

/// A descriptor that a handle may keep: the caller's own where nobody can change it, otherwise a
/// new one without what is not kept.
pub fn shared<'py>(
    descr: &Bound<'py, PyArrayDescr>,
    encoded: &DType,
) -> Result<Bound<'py, PyArrayDescr>> {
    match encoded {
        DType::Scalar { unit: None, .. } => decode(descr.py(), encoded),
        DType::Scalar { .. } => Ok(descr.clone()),
        _ => decode(descr.py(), encoded),
    }
}
