//! What users hand in: anything numpy takes for an array, as bytes with a dtype and a shape; and an
//! attribute's value, both ways.
//!
//! An attribute comes back as what it was. A `str` is kept as text and comes back as `str`; `bytes`
//! come back as `numpy.bytes_` with every byte, trailing zeros too; a scalar comes back as numpy's
//! scalar; an array as an array. A 0-d value that no scalar can carry exactly (numpy's scalars are
//! of native byte order) comes back as the 0-d array that it was.

use engram::Value;
use engram::dtype::{DType, Field};
use numpy::prelude::*;
use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple, PyType,
};
use pyo3::{Borrowed, intern};

use crate::error::{Failure, Result, argument, refused};
use crate::{dtype, strings, view};

/// This machine's byte order, as numpy writes it.
const NATIVE: u8 = if cfg!(target_endian = "little") { b'<' } else { b'>' };

/// A name or path from Python: valid Unicode; the engine judges the rest.
#[derive(Clone, Copy)]
pub struct Name<'a>(pub &'a str);

impl<'a, 'py> FromPyObject<'a, 'py> for Name<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if !object.is_instance_of::<PyString>() {
            let kind = object.get_type().name()?;
            let message = format!("{:?} is of type {kind}, and names and paths are str", &*object);
            return Err(argument(message).into());
        }
        object.extract::<&'a str>().map(Name).map_err(|_| {
            let error = engram::Error::new(
                engram::Kind::InvalidName,
                format!("the name {:?} has no UTF-8: leave the lone surrogates out", &*object),
            );
            Failure::Engine(error).into()
        })
    }
}

/// A truth value from Python.
#[derive(Clone, Copy)]
pub struct Truth(pub bool);

impl<'a, 'py> FromPyObject<'a, 'py> for Truth {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        object.extract::<bool>().map(Truth).map_err(|_| {
            argument(format!("{:?} is no truth value: give True or False", &*object)).into()
        })
    }
}

/// Data to be stored.
pub enum Source<'py> {
    /// Fixed-size items, in an array of any strides.
    Plain(Bound<'py, PyUntypedArray>, DType),
    /// Variable-length strings: the payload, and the shape.
    Text(Vec<u8>, Vec<u64>),
}

/// What numpy makes of `data` (as `dtype`, if given). `what` names it in errors.
pub fn source<'py>(
    what: &str,
    data: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyArrayDescr>>,
) -> Result<Source<'py>> {
    if let (Ok(text), None) = (data.cast_exact::<PyString>(), dtype) {
        return text
            .to_str()
            .map(|t| Source::Text(t.as_bytes().to_vec(), Vec::new()))
            .map_err(|_| argument(format!("{what} is {data:?}, which has no UTF-8: encode it")));
    }
    let array = match data.cast_exact::<PyUntypedArray>() {
        Ok(array) if dtype.is_none_or(|d| array.dtype().is(d)) => array.clone(),
        _ => as_array(what, data, dtype)?,
    };
    let array = match of_times(what, &array, dtype)? {
        Some(times) => as_array(what, array.as_any(), Some(&times))?,
        None => array,
    };
    let descr = array.dtype();
    check_times(what, data, &array)?;
    if dtype.is_none() {
        check_kept(what, data, &array)?;
    }
    if descr.kind() == b'O' && !descr.has_fields() || dtype::is_text(&descr) {
        if descr.kind() == b'O' && array.ndim() == 0 {
            let item = array.call_method0("item")?;
            if !item.is_instance_of::<PyString>() {
                return Err(unfit(what, &item)?);
            }
        }
        let (payload, shape) = strings::encode(what, array.as_any())?;
        return Ok(Source::Text(payload, shape));
    }
    match dtype::encode(&descr) {
        Ok(encoded) => Ok(Source::Plain(array, encoded)),
        Err(Failure::Engine(e)) => Err(e.context(what).into()),
        Err(other) => Err(other),
    }
}

/// Refuses times that lie beyond what the dtype holds which numpy has converted them to: it wraps
/// them without a word.
fn check_times(
    what: &str,
    data: &Bound<'_, PyAny>,
    made: &Bound<'_, PyUntypedArray>,
) -> Result<()> {
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (py, descr) = (data.py(), made.dtype());
    let timed = matches!(descr.kind(), b'M' | b'm') || descr.has_fields();
    if timed && !data.is(made) {
        CHECK.import(py, "engram.times", "check")?.call1((what, data, descr))?;
    }
    Ok(())
}

/// Refuses what numpy has changed without a word of what it was given.
fn check_kept(what: &str, data: &Bound<'_, PyAny>, made: &Bound<'_, PyUntypedArray>) -> Result<()> {
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = data.py();
    let sequence = data.is_instance_of::<PyList>() || data.is_instance_of::<PyTuple>();
    if sequence || is_labelled(data)? {
        CHECK.import(py, "engram.kept", "check")?.call1((what, data, made))?;
    }
    Ok(())
}

/// Whether something is of a library whose arrays have more than values, or made from its classes.
fn is_labelled(data: &Bound<'_, PyAny>) -> Result<bool> {
    let py = data.py();
    if data.is_instance_of::<PyUntypedArray>() {
        return Ok(false);
    }
    for class in data.get_type().mro() {
        let module = class.getattr(intern!(py, "__module__"))?;
        let Ok(module) = module.cast::<PyString>() else { continue };
        let root = module.to_str()?.split('.').next().unwrap_or_default();
        if matches!(root, "pandas" | "polars" | "pyarrow" | "xarray") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn as_array<'py>(
    what: &str,
    data: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyArrayDescr>>,
) -> Result<Bound<'py, PyUntypedArray>> {
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = data.py();
    CHECK.import(py, "engram.kept", "check_given")?.call1((what, data, dtype.is_none()))?;
    let array = AS_ARRAY
        .import(py, "numpy", "asarray")?
        .call1((data, dtype))
        .map_err(|e| refused(py, &format!("{what} cannot be an array"), e))?;
    Ok(array.cast_into::<PyUntypedArray>()?)
}

fn unfit(what: &str, item: &Bound<'_, PyAny>) -> Result<Failure> {
    if let Some(large) = too_large(what, item) {
        return Ok(large);
    }
    let kind = item.get_type().name()?.to_string();
    let instead = match kind.as_str() {
        "dict" | "OrderedDict" => "give each value a name of its own, or json.dumps(...) of it",
        "NoneType" => "leave it out, or give a value that means none",
        "set" | "frozenset" => "give sorted(...) of it",
        "Timestamp" | "Timedelta" | "NaTType" => "give x.to_numpy(), without a zone",
        "Decimal" | "Fraction" => "give float(...) or str(...) of it",
        _ => "give a number, bytes, str, a date or time, a numpy array or a sequence of them",
    };
    Ok(argument(format!(
        "{what} is of type {kind}, which numpy has no fixed-size dtype for: {instead}"
    )))
}

/// The refusal of an integer that no dtype has the bits for; None for what is no integer.
pub fn too_large(what: &str, item: &Bound<'_, PyAny>) -> Option<Failure> {
    let fits = item.extract::<i64>().is_ok() || item.extract::<u64>().is_ok();
    (item.is_instance_of::<PyInt>() && !fits).then(|| {
        let shown = item.repr().map_or_else(|_| "an integer".to_owned(), |r| r.to_string());
        let shown = if shown.len() > 80 { "an integer".to_owned() } else { shown };
        argument(format!(
            "{what} is {shown}, which fits no 64-bit integer: store it as float(n) or as str(n)"
        ))
    })
}

/// The dtype that numpy has for an object array of nothing but dates and times of `datetime`, or
/// of nothing but its durations.
fn of_times<'py>(
    what: &str,
    array: &Bound<'py, PyUntypedArray>,
    asked: Option<&Bound<'py, PyArrayDescr>>,
) -> Result<Option<Bound<'py, PyArrayDescr>>> {
    let py = array.py();
    if asked.is_some() || array.dtype().kind() != b'O' {
        return Ok(None);
    }
    let datetime = py.import(intern!(py, "datetime"))?;
    let flat = array.call_method1("reshape", (-1,))?;
    let Ok(first) = flat.get_item(0) else {
        return Ok(None);
    };
    let name = |item: &Bound<'_, PyAny>| -> Result<Option<&'static str>> {
        for (class, name) in [("datetime", "M8"), ("date", "M8"), ("timedelta", "m8")] {
            if item.get_type().is(&datetime.getattr(class)?) {
                if class == "datetime" && !item.getattr(intern!(py, "tzinfo"))?.is_none() {
                    return Err(argument(format!(
                        "{what} has {item}, and numpy's times have no zone: give \
                         t.astimezone(datetime.UTC).replace(tzinfo=None), and the zone beside it"
                    )));
                }
                return Ok(Some(name));
            }
        }
        Ok(None)
    };
    let found = name(&first)?;
    if found.is_some() {
        for item in flat.try_iter()? {
            if name(&item?)? != found {
                return Ok(None);
            }
        }
    }
    Ok(found.map(|name| PyArrayDescr::new(py, name)).transpose()?)
}

/// A whole shape from Python: an int, or a sequence of ints.
pub fn shape_of(shape: &Bound<'_, PyAny>) -> Result<Vec<u64>> {
    let one = |item: &Bound<'_, PyAny>| -> Result<u64> {
        let whole = item.call_method0("__index__").map_err(|_| {
            argument(format!("shape {shape:?} is no shape: give an int or a tuple of ints"))
        })?;
        match whole.extract::<i64>() {
            Ok(size) if size >= 0 => Ok(size as u64),
            _ => Err(argument(format!(
                "shape {shape:?} has the dimension {whole}: a dimension is from 0 to 2**63 - 1"
            ))),
        }
    };
    match shape.try_iter() {
        Err(_) => Ok(vec![one(shape)?]),
        Ok(items) => items.map(|item| one(&item?)).collect(),
    }
}

/// Names of dimensions, as many as there are.
pub fn dims_of(dims: Option<&Bound<'_, PyAny>>, ndim: usize) -> Result<Option<Vec<String>>> {
    let Some(dims) = dims.filter(|d| !d.is_none()) else {
        return Ok(None);
    };
    let bad = || argument(format!("dims {dims:?} are no names: give a tuple of str"));
    let names: Vec<String> = match dims.cast::<PyString>() {
        Ok(one) => vec![one.extract().map_err(|_| bad())?],
        Err(_) => dims
            .try_iter()
            .map_err(|_| bad())?
            .map(|name| name.and_then(|n| n.extract()).map_err(|_| bad()))
            .collect::<Result<_>>()?,
    };
    if names.len() != ndim {
        return Err(argument(format!(
            "dims {dims:?} name {} dimensions, and the array has {ndim}: give one name for each",
            names.len()
        )));
    }
    Ok(Some(names))
}

/// Attributes from a mapping of Python's.
pub fn attributes_of(attrs: Option<&Bound<'_, PyAny>>) -> Result<Vec<(String, Value)>> {
    let Some(attrs) = attrs.filter(|a| !a.is_none()) else {
        return Ok(Vec::new());
    };
    if let Ok(dict) = attrs.cast_exact::<PyDict>() {
        let mut found = Vec::with_capacity(dict.len());
        for (key, value) in dict.iter() {
            found.push(attribute_of(&key, &value)?);
        }
        return Ok(found);
    }
    let Ok(mapping) = attrs.cast::<PyMapping>() else {
        return Err(argument(format!("attrs {attrs:?} are no mapping of str to values")));
    };
    let mut found = Vec::new();
    for item in mapping.items()?.iter() {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        found.push(attribute_of(&key, &value)?);
    }
    Ok(found)
}

fn attribute_of(key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result<(String, Value)> {
    let name = key.extract::<Name<'_>>()?.0;
    Ok((name.to_owned(), to_value(name, value)?))
}

/// An attribute's value from Python.
pub fn to_value(name: &str, value: &Bound<'_, PyAny>) -> Result<Value> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(fixed(b'S', b'|', bytes.as_bytes().to_vec()));
    }
    if let Some(number) = number_of(value) {
        return Ok(number);
    }
    if value.is_instance_of::<PyString>() && !value.is_exact_instance_of::<PyString>() {
        return numpy_text(name, value);
    }
    if value.is_instance_of::<PyDict>() {
        return to_value(name, &tree_of(name, value)?);
    }
    let found = match source(&format!("attribute '{name}'"), value, None) {
        Err(_) if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() => {
            return to_value(name, &tree_of(name, value)?);
        }
        found => found?,
    };
    match found {
        Source::Text(data, shape) => Ok(Value { dtype: DType::Text, shape, data }),
        Source::Plain(array, dtype) => {
            let shape = array.shape().iter().map(|&d| d as u64).collect();
            let data = match view::bytes_of(&array) {
                Some(bytes) => bytes.to_vec(),
                None => array.call_method0("tobytes")?.cast::<PyBytes>()?.as_bytes().to_vec(),
            };
            Ok(Value { dtype, shape, data })
        }
    }
}

/// The structure of a dict, or of a list that is no array: the package makes it.
fn tree_of<'py>(name: &str, value: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let nested = value.py().import(intern!(value.py(), "engram.nested"))?;
    Ok(nested.call_method1(intern!(value.py(), "encode"), (name, value))?)
}

/// Whether a structure is what the package has made of a dict or a list.
fn is_tree(fields: &[Field]) -> bool {
    let mut titles = fields.iter().filter_map(|field| field.title.as_deref());
    titles.any(|title| title.starts_with("tree "))
}

/// `numpy.str_` is kept as what it is, a string of fixed width; other subclasses of `str` as text.
fn numpy_text(name: &str, value: &Bound<'_, PyAny>) -> Result<Value> {
    let no_utf8 = |_| argument(format!("attribute '{name}' is {value:?}, which has no UTF-8"));
    let string = value.cast::<PyString>()?.to_str().map_err(no_utf8)?;
    if !value.is_instance(scalar_class(value.py(), "str_")?.as_any())? {
        return Ok(Value { dtype: DType::Text, shape: vec![], data: string.as_bytes().to_vec() });
    }
    Ok(fixed(b'U', NATIVE, string.chars().flat_map(|c| u32::from(c).to_ne_bytes()).collect()))
}

/// A number of Python's own, as what numpy makes of it, without asking numpy: most attributes are
/// such, and numpy would take longer for one than all else that storing it takes.
fn number_of(value: &Bound<'_, PyAny>) -> Option<Value> {
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Some(fixed(b'f', NATIVE, number.value().to_ne_bytes().to_vec()));
    }
    if let Ok(truth) = value.cast_exact::<PyBool>() {
        return Some(fixed(b'b', b'|', vec![u8::from(truth.is_true())]));
    }
    let whole = value.cast_exact::<PyInt>().ok()?.extract::<i64>().ok()?;
    Some(fixed(b'i', NATIVE, whole.to_ne_bytes().to_vec()))
}

fn fixed(kind: u8, order: u8, data: Vec<u8>) -> Value {
    let dtype = DType::Scalar { kind, order, size: data.len() as u32, unit: None };
    Value { dtype, shape: Vec::new(), data }
}

/// An attribute's value for Python.
pub fn from_value<'py>(py: Python<'py>, value: &Value) -> Result<Bound<'py, PyAny>> {
    let scalar = value.shape.is_empty();
    match &value.dtype {
        DType::Text if scalar => Ok(PyString::new(py, strings::one(&value.data)?).into_any()),
        DType::Text => strings::decode(py, &value.data, &value.shape),
        DType::Scalar { kind: b'S', .. } if scalar => {
            Ok(scalar_class(py, "bytes_")?.call1((PyBytes::new(py, &value.data),))?)
        }
        DType::Scalar { kind: b'U', order, .. } if scalar && native(*order) => {
            let units = value.data.chunks_exact(4);
            let text: Option<String> = units
                .map(|c| char::from_u32(u32::from_ne_bytes(c.try_into().expect("chunks of four"))))
                .collect();
            match text {
                Some(text) => Ok(scalar_class(py, "str_")?.call1((text,))?),
                None => as_stored(py, value),
            }
        }
        DType::Scalar { order, .. } if scalar && native(*order) => {
            Ok(as_stored(py, value)?.get_item(PyTuple::empty(py))?)
        }
        DType::Struct { fields, .. } if scalar && is_tree(fields) => {
            let nested = py.import(intern!(py, "engram.nested"))?;
            Ok(nested.call_method1(intern!(py, "decode"), (as_stored(py, value)?,))?)
        }
        DType::Struct { .. } if scalar => {
            Ok(as_stored(py, value)?.get_item(PyTuple::empty(py))?.call_method0("copy")?)
        }
        _ => as_stored(py, value),
    }
}

/// The value as the array that was stored, 0-d or not.
fn as_stored<'py>(py: Python<'py>, value: &Value) -> Result<Bound<'py, PyAny>> {
    let descr = dtype::decode(py, &value.dtype)?;
    array_of_bytes(py, &descr, &value.shape, &value.data)
}

/// A new array with these bytes, of any dtype that has them.
pub fn array_of_bytes<'py>(
    py: Python<'py>,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[u64],
    bytes: &[u8],
) -> Result<Bound<'py, PyAny>> {
    if descr.itemsize() > 0 || descr.has_fields() || descr.kind() == b'V' {
        return Ok(view::array_of(py, descr, shape, bytes)?.into_any());
    }
    // numpy widens 'S0' and 'U0' to one character wherever it can, but not within a field.
    let within = PyTuple::new(py, [("f", descr)])?;
    let spec = PyArrayDescr::new(py, within.to_list())?;
    let made = py.import("numpy")?.call_method1("zeros", (PyTuple::new(py, shape)?, spec))?;
    Ok(made.get_item("f")?)
}

fn native(order: u8) -> bool {
    order == b'|' || order == NATIVE
}

fn scalar_class<'py>(py: Python<'py>, name: &str) -> Result<Bound<'py, PyType>> {
    static BYTES: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static STR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let kept = if name == "str_" { &STR } else { &BYTES };
    let found = kept.get_or_try_init(py, || {
        let class = py.import("numpy")?.getattr(name)?;
        class
            .cast_into::<PyType>()
            .map(Bound::unbind)
            .map_err(|e| PyTypeError::new_err(e.to_string()))
    })?;
    Ok(found.bind(py).clone())
}
