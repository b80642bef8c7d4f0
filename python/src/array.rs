//! Arrays: put, allocate, read, view, write in place.
//!
//! Everything of one call is done in one native: a 256 B array is created, or read, in one crossing
//! between the languages. A native that commits lets go of the interpreter, as a commit may wait
//! for another process; reading does not, as readers wait for no one (protocol P6), unless it
//! copies much.

use std::sync::{Arc, Mutex, PoisonError};

use engram::dtype::DType;
use engram::{Class, Error, InPlace, Kind, Layout, NewObject, Oid, Payload, Placement};
use numpy::prelude::*;
use numpy::{PyArrayDescr, PyReadonlyArray1, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::error::{Result, argument, busy, corrupt};
use crate::group::{Found, kind_of};
use crate::member::{self, Fields, NewMember};
use crate::namespace::{Namespace, Place};
use crate::value::{self, Name, Source};
use crate::view::{self, View};
use crate::{chunks, descriptor, dtype, index, strings};

/// Arrays of other strides are copied straight into the pool from this size on; smaller ones by
/// way of a contiguous copy and a single commit.
const STRAIGHT_BYTES: usize = 64 << 10;

/// An array that is to be made: where, and what is said of it beside its data.
struct Request<'a, 'py> {
    namespace: &'a Namespace,
    parent: u64,
    path: &'a str,
    new: NewMember<'a, 'py>,
    place: Placement,
}

impl<'a, 'py> Request<'a, 'py> {
    fn of(
        namespace: &'a Namespace,
        parent: u64,
        path: Name<'a>,
        new: &'a Fields<'a, 'py>,
    ) -> Result<Self> {
        let new = NewMember::of(new)?;
        let place = new.placement(namespace)?;
        Ok(Request { namespace, parent, path: path.0, new, place })
    }

    fn object(&self, class: Class, dtype: DType, shape: &[u64]) -> Result<NewObject> {
        let item = dtype.itemsize();
        let layout = chunks::layout_of(self.new.chunks, self.new.codec, shape, item)?;
        Ok(NewObject {
            class,
            dtype,
            shape: shape.to_vec(),
            dims: value::dims_of(self.new.dims, shape.len())?,
            attrs: value::attributes_of(self.new.attrs)?,
            origin: self.new.origin.to_vec(),
            properties: Vec::new(),
            layout,
        })
    }

    fn dtype(&self) -> Result<Option<Bound<'py, PyArrayDescr>>> {
        self.new.dtype.map(dtype::parse).transpose()
    }

    fn target(&self) -> (&engram::Namespace, u64, &str, Placement) {
        (self.namespace.engine(), self.parent, self.path, self.place)
    }
}

/// Creates an array of `data`; of zeros where `data` is None. Returns what its handle is made of.
#[pyfunction]
pub fn put_array<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    parent: u64,
    path: Name<'_>,
    data: Option<&Bound<'py, PyAny>>,
    new: &Bound<'py, PyTuple>,
) -> Result<Found<'py>> {
    let new = member::fields(new)?;
    let request = Request::of(namespace, parent, path, &new)?;
    let descr = request.dtype()?;
    let shape = request.new.shape.map(value::shape_of).transpose()?;
    let Some(data) = data else {
        let Some(shape) = shape else {
            return Err(argument("an array needs data=, or shape= (and dtype=) for one of zeros"));
        };
        return zeros(py, &request, descr, shape);
    };
    match value::source("data", data, descr.as_ref())? {
        Source::Text(payload, found) => {
            agree(&found, shape)?;
            put_text(py, &request, &payload, &found)
        }
        Source::Plain(array, encoded) => {
            let found: Vec<u64> = array.shape().iter().map(|&d| d as u64).collect();
            agree(&found, shape)?;
            put_plain(py, &request, &array, encoded, &found)
        }
    }
}

fn agree(found: &[u64], asked: Option<Vec<u64>>) -> Result<()> {
    match asked {
        Some(asked) if asked != found => Err(argument(format!(
            "data has shape {}, and shape={} was asked for: give one of them, or use data.reshape",
            view::shown(found),
            view::shown(&asked)
        ))),
        _ => Ok(()),
    }
}

fn put_text<'py>(
    py: Python<'py>,
    request: &Request<'_, '_>,
    payload: &[u8],
    shape: &[u64],
) -> Result<Found<'py>> {
    let new = request.object(Class::Strings, DType::Text, shape)?;
    let (engine, parent, path, place) = request.target();
    let oid = py.detach(|| engine.put(parent, path, &new, payload, place))?;
    made(py, oid, &new.layout, dtype::decode(py, &DType::Text)?, shape)
}

fn put_plain<'py>(
    py: Python<'py>,
    request: &Request<'_, '_>,
    array: &Bound<'py, PyUntypedArray>,
    encoded: DType,
    shape: &[u64],
) -> Result<Found<'py>> {
    let descr = dtype::shared(&array.dtype(), &encoded)?;
    let nbytes = view::nbytes_of(descr.itemsize(), shape)?;
    let new = request.object(Class::Array, encoded, shape)?;
    let (engine, parent, path, place) = request.target();
    let put = |bytes: &[u8]| py.detach(|| engine.put(parent, path, &new, bytes, place));
    let oid = if let Some(bytes) = view::bytes_of(array) {
        put(bytes)?
    } else if nbytes < STRAIGHT_BYTES || new.layout != Layout::Contiguous {
        let dense = array.call_method1("copy", ("C",))?;
        let dense = dense.cast_into::<PyUntypedArray>()?;
        let bytes = view::bytes_of(&dense);
        put(bytes.unwrap_or_default())?
    } else {
        let reserved = reserve(py, request, &new, nbytes as u64)?;
        let target = Py::new(py, View::claimed(reserved.view()))?;
        view::copy_into(&view::array_over(py, &target, &array.dtype(), shape)?, array)?;
        py.detach(|| reserved.publish())?
    };
    made(py, oid, &new.layout, descr, shape)
}

fn made<'py>(
    py: Python<'py>,
    oid: Oid,
    layout: &Layout,
    descr: Bound<'py, PyArrayDescr>,
    shape: &[u64],
) -> Result<Found<'py>> {
    Ok((kind_of(layout), oid, Some(descr), Some(PyTuple::new(py, shape)?)))
}

fn reserve(
    py: Python<'_>,
    request: &Request<'_, '_>,
    new: &NewObject,
    nbytes: u64,
) -> Result<engram::Allocation> {
    let (engine, parent, path, place) = request.target();
    Ok(py.detach(|| engine.allocate(parent, path, new, nbytes, place))?)
}

/// A dtype and shape of nothing yet, as numpy takes them: no dtype is `float64`, a sub-array's
/// shape joins the array's.
fn blank<'py>(
    py: Python<'py>,
    descr: Option<Bound<'py, PyArrayDescr>>,
    mut shape: Vec<u64>,
) -> Result<(Bound<'py, PyArrayDescr>, DType, Vec<u64>)> {
    let mut descr = descr.unwrap_or_else(|| numpy::dtype::<f64>(py));
    if descr.has_subarray() {
        shape.extend(descr.shape().into_iter().map(|d| d as u64));
        descr = descr.base();
    }
    if descr.itemsize() == 0 && matches!(descr.kind(), b'S' | b'U') {
        return Err(argument(format!(
            "dtype {descr} has no width: say how wide, as in 'S16' or 'U16', or use \
             numpy.dtypes.StringDType()"
        )));
    }
    let encoded = dtype::encode(&descr)?;
    view::nbytes_of(descr.itemsize(), &shape)?;
    let descr = dtype::shared(&descr, &encoded)?;
    Ok((descr, encoded, shape))
}

fn zeros<'py>(
    py: Python<'py>,
    request: &Request<'_, '_>,
    descr: Option<Bound<'py, PyArrayDescr>>,
    shape: Vec<u64>,
) -> Result<Found<'py>> {
    let (descr, encoded, shape) = blank(py, descr, shape)?;
    if encoded.is_text() {
        return put_text(py, request, &strings::empty(&shape)?, &shape);
    }
    let new = request.object(Class::Array, encoded, &shape)?;
    let (engine, parent, path, place) = request.target();
    let oid = py.detach(|| engine.create_zeroed(parent, path, &new, place))?;
    made(py, oid, &new.layout, descr, &shape)
}

/// Space reserved for an array that is being filled: published whole, or given back.
#[pyclass(frozen, module = "engram._engram")]
pub struct Allocation {
    reserved: Mutex<Option<engram::Allocation>>,
    place: Arc<Place>,
    view: Py<View>,
    /// The array to fill.
    #[pyo3(get)]
    array: Py<PyUntypedArray>,
}

#[pymethods]
impl Allocation {
    /// Publishes what was filled in; returns the OID. The array turns read-only either way.
    fn publish(&self, py: Python<'_>) -> Result<Oid> {
        self.seal(py)?;
        match self.take() {
            Some(reserved) => {
                let oid = py.detach(|| reserved.publish())?;
                self.view.get().of(Arc::clone(&self.place), oid);
                Ok(oid)
            }
            None => Err(argument("this allocation is over: allocate again")),
        }
    }

    /// Whether so many bytes at an offset are better made elsewhere and then stored than made in
    /// the array, since this process has not come to its pages yet.
    fn is_new(&self, offset: u64, nbytes: usize) -> bool {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.as_ref().is_some_and(|reserved| reserved.is_new(offset, nbytes))
    }

    /// Copies bytes to an offset of the array. The interpreter goes on meanwhile.
    #[allow(clippy::needless_pass_by_value)] // as Python hands it over
    fn store(&self, py: Python<'_>, offset: u64, values: PyReadonlyArray1<'_, u8>) -> Result<()> {
        let bytes =
            values.as_slice().map_err(|_| argument("bytes to be stored lie side by side"))?;
        py.detach(|| self.with(offset, bytes.len(), |reserved| reserved.write_at(offset, bytes)))
    }

    /// Copies bytes of a file, from its byte `at` on, to an offset of the array; says how many,
    /// which are fewer where the file ends. The interpreter goes on meanwhile.
    fn read(
        &self,
        py: Python<'_>,
        offset: u64,
        file: i32,
        at: u64,
        nbytes: usize,
    ) -> Result<usize> {
        let read = descriptor::borrowed(file, |from| {
            let read = |reserved: &engram::Allocation| reserved.read_from(offset, from, at, nbytes);
            py.detach(|| self.with(offset, nbytes, read))
        });
        Ok(read??.map_err(PyErr::from)?)
    }

    /// Gives the space back. The array turns read-only, and its memory stays until it is gone.
    fn abandon(&self, py: Python<'_>) -> Result<()> {
        self.seal(py)?;
        if let Some(reserved) = self.take() {
            py.detach(|| drop(reserved));
        }
        Ok(())
    }
}

impl Allocation {
    fn take(&self) -> Option<engram::Allocation> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Does work on so many bytes from an offset on, which are the array's.
    fn with<T>(
        &self,
        offset: u64,
        nbytes: usize,
        work: impl FnOnce(&engram::Allocation) -> T,
    ) -> Result<T> {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reserved) = reserved.as_ref() else {
            return Err(argument("this allocation is over: allocate again"));
        };
        let (end, len) = (offset.saturating_add(nbytes as u64), reserved.view().len());
        if end > len as u64 {
            return Err(argument(format!("an array of {len} bytes ends before byte {end}")));
        }
        Ok(work(reserved))
    }

    fn seal(&self, py: Python<'_>) -> Result<()> {
        self.view.get().seal();
        let write = PyDict::new(py);
        write.set_item("write", false)?;
        self.array.bind(py).call_method("setflags", (), Some(&write))?;
        Ok(())
    }
}

/// Reserves space for an array, to be filled in place and then published.
#[pyfunction]
pub fn allocate(
    py: Python<'_>,
    namespace: &Namespace,
    parent: u64,
    path: Name<'_>,
    new: &Bound<'_, PyTuple>,
) -> Result<Allocation> {
    let new = member::fields(new)?;
    let request = Request::of(namespace, parent, path, &new)?;
    let (descr, encoded, shape) = blank(py, request.dtype()?, wanted_shape(&request.new)?)?;
    if encoded.is_text() {
        return Err(argument(
            "strings of variable length cannot be filled in place: create the array with data=",
        ));
    }
    let nbytes = view::nbytes_of(descr.itemsize(), &shape)? as u64;
    let object = request.object(Class::Array, encoded, &shape)?;
    let reserved = reserve(py, &request, &object, nbytes)?;
    let view = Py::new(py, View::claimed(reserved.view()))?;
    let array = view::array_over(py, &view, &descr, &shape)?.unbind();
    let place = namespace.place();
    Ok(Allocation { reserved: Mutex::new(Some(reserved)), place, view, array })
}

/// Reserves space for an array of strings whose payload, as `strings` has it, has so many bytes: to
/// be filled in place, as bytes, and then published. It is checked whenever it is read.
#[pyfunction]
pub fn allocate_text(
    py: Python<'_>,
    namespace: &Namespace,
    parent: u64,
    path: Name<'_>,
    nbytes: u64,
    new: &Bound<'_, PyTuple>,
) -> Result<Allocation> {
    let new = member::fields(new)?;
    let request = Request::of(namespace, parent, path, &new)?;
    let shape = wanted_shape(&request.new)?;
    let object = request.object(Class::Strings, DType::Text, &shape)?;
    let reserved = reserve(py, &request, &object, nbytes)?;
    let view = Py::new(py, View::claimed(reserved.view()))?;
    let array = view::array_over(py, &view, &numpy::dtype::<u8>(py), &[nbytes])?.unbind();
    let place = namespace.place();
    Ok(Allocation { reserved: Mutex::new(Some(reserved)), place, view, array })
}

/// The shape of what is to be filled in place, which nothing else can tell.
fn wanted_shape(new: &NewMember<'_, '_>) -> Result<Vec<u64>> {
    match new.shape {
        Some(shape) => value::shape_of(shape),
        None => Err(argument("space that is to be filled in place needs shape=")),
    }
}

/// An unnamed array in the pool, gone with its process.
#[pyfunction]
pub fn scratch<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    shape: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyUntypedArray>> {
    let device = namespace.device(device)?;
    let descr = dtype.map(dtype::parse).transpose()?;
    let (descr, encoded, shape) = blank(py, descr, value::shape_of(shape)?)?;
    if encoded.is_text() {
        return Err(argument("strings of variable length have no space of their own: use 'U16'"));
    }
    let nbytes = view::nbytes_of(descr.itemsize(), &shape)? as u64;
    let engine = namespace.engine();
    let claim = py.detach(|| engine.scratch(nbytes, device))?;
    view::array_over(py, &Py::new(py, View::claimed(claim))?, &descr, &shape)
}

/// All that is known of an object.
#[pyclass(frozen, get_all, module = "engram._engram")]
pub struct ObjectInfo {
    /// `"array"`, `"strings"` or `"blob"`.
    kind: &'static str,
    /// numpy's dtype.
    dtype: Py<PyArrayDescr>,
    /// The shape.
    shape: Py<PyTuple>,
    /// Names of the dimensions, if any were given.
    dims: Option<Vec<String>>,
    /// The uid of its maker.
    owner: u32,
    /// When it was made: nanoseconds since 1970, UTC.
    created: i64,
    /// When it was last changed: nanoseconds since 1970, UTC.
    modified: i64,
    /// The group that it is in.
    parent: u64,
    /// Its name there.
    name: String,
    /// Bytes of its value.
    nbytes: u64,
    /// Whether the value lies in the catalog.
    inline: bool,
    /// The shape of its chunks; `None` if it lies in one piece.
    chunks: Option<Py<PyTuple>>,
    /// How each chunk is encoded, as `codec=` has it; `None` likewise.
    codec: Option<String>,
    /// When it is indexed: `"sync"`, `"async"` or `"none"`.
    index: &'static str,
    /// Who sees it: `"private"`, `"shared"` or `"published"`.
    scope: &'static str,
    /// What an import kept beside it: JSON, or nothing.
    origin: Vec<u8>,
}

impl ObjectInfo {
    /// As Python has it.
    pub fn new(py: Python<'_>, info: engram::ObjectInfo) -> Result<Self> {
        let shape = if info.class == Class::Blob { vec![info.nbytes] } else { info.shape };
        let (chunks, codec) = match &info.layout {
            Layout::Contiguous => (None, None),
            Layout::Chunked { chunks, codec } => {
                (Some(PyTuple::new(py, chunks)?.unbind()), Some(codec.to_string()))
            }
        };
        Ok(ObjectInfo {
            kind: match info.class {
                Class::Array => "array",
                Class::Strings => "strings",
                Class::Blob => "blob",
                Class::Group | Class::Chunk => {
                    return Err(corrupt(format!("object {:#x} is none", info.oid)));
                }
            },
            dtype: dtype::decode(py, &info.dtype)?.unbind(),
            shape: PyTuple::new(py, &shape)?.unbind(),
            dims: info.dims,
            owner: info.owner,
            created: info.created,
            modified: info.modified,
            parent: info.parent,
            name: info.name,
            nbytes: info.nbytes,
            inline: info.inline,
            chunks,
            codec,
            index: index::mode_name(info.index),
            scope: info.scope.as_str(),
            origin: info.origin,
        })
    }
}

/// All that is known of an object.
#[pyfunction]
pub fn object_info(py: Python<'_>, namespace: &Namespace, oid: Oid) -> Result<ObjectInfo> {
    ObjectInfo::new(py, namespace.engine().object(oid)?)
}

/// A copy of the whole value.
#[pyfunction]
pub fn read<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    oid: Oid,
    dtype: &Bound<'py, PyArrayDescr>,
    shape: &Bound<'py, PyTuple>,
) -> Result<Bound<'py, PyAny>> {
    let shape: Vec<u64> = shape.extract()?;
    let (payload, _) = namespace.engine().payload(oid)?;
    copy_of(py, &payload, dtype, &shape)
}

fn copy_of<'py>(
    py: Python<'py>,
    payload: &Payload,
    dtype: &Bound<'py, PyArrayDescr>,
    shape: &[u64],
) -> Result<Bound<'py, PyAny>> {
    if !dtype::is_text(dtype) {
        return match payload {
            Payload::Inline(bytes) => value::array_of_bytes(py, dtype, shape, bytes),
            Payload::Extent(claim) => Ok(view::array_from(py, dtype, shape, claim)?.into_any()),
        };
    }
    match payload {
        Payload::Inline(bytes) => strings::decode(py, bytes, shape),
        Payload::Extent(claim) => {
            let mut bytes = vec![0; claim.len()];
            view::copy_out(py, &mut bytes, claim, 0)?;
            strings::decode(py, &bytes, shape)
        }
    }
}

/// The value as an array on the pool's own memory, flat where no shape is given; a small one that
/// lies in the catalog is moved to an extent first if it is to be written, and copied out if it is
/// to be read.
#[pyfunction]
#[pyo3(name = "view")]
pub fn view_of<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    oid: Oid,
    dtype: &Bound<'py, PyArrayDescr>,
    shape: Option<&Bound<'py, PyTuple>>,
    write: bool,
) -> Result<Bound<'py, PyAny>> {
    if dtype::is_text(dtype) {
        return Err(argument(
            "strings of variable length have no view: read them with [...], or keep strings of a \
             fixed width such as 'U16'",
        ));
    }
    let engine = namespace.engine();
    let payload = if write {
        py.detach(|| engine.view(oid, true)).map_err(gone)?
    } else {
        engine.view(oid, false)?
    };
    let shape = match shape {
        Some(shape) => shape.extract()?,
        None => whole(&payload, dtype),
    };
    over(py, (namespace, oid), payload, dtype, &shape)
}

/// The shape of a flat array over all of a payload.
fn whole(payload: &Payload, dtype: &Bound<'_, PyArrayDescr>) -> Vec<u64> {
    let bytes = match payload {
        Payload::Inline(bytes) => bytes.len(),
        Payload::Extent(claim) => claim.len(),
    };
    vec![(bytes / dtype.itemsize().max(1)) as u64]
}

/// An array over the payload of an object.
pub fn over<'py>(
    py: Python<'py>,
    object: (&Namespace, Oid),
    payload: Payload,
    dtype: &Bound<'py, PyArrayDescr>,
    shape: &[u64],
) -> Result<Bound<'py, PyAny>> {
    let view = match payload {
        Payload::Extent(claim) => View::claimed(claim),
        Payload::Inline(bytes) => View::copied(bytes),
    };
    view.of(object.0.place(), object.1);
    Ok(view::array_over(py, &Py::new(py, view)?, dtype, shape)?.into_any())
}

/// For a write into part of the value: (array, None) on the pool's own memory, or (copy,
/// generation) of a value that lies in the catalog, to be handed to `replace`.
#[pyfunction]
pub fn open_for_write<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    oid: Oid,
    dtype: &Bound<'py, PyArrayDescr>,
    shape: &Bound<'py, PyTuple>,
) -> Result<(Bound<'py, PyAny>, Written)> {
    let shape: Vec<u64> = shape.extract()?;
    let engine = namespace.engine();
    let (payload, generation) = engine.payload(oid).map_err(gone)?;
    check_size(engine, oid, &payload, dtype, &shape)?;
    if dtype::is_text(dtype) || matches!(payload, Payload::Inline(_)) {
        let written = Written { engine: engine.clone(), oid, of: Of::Copy(generation) };
        return Ok((copy_of(py, &payload, dtype, &shape)?, written));
    }
    drop(payload);
    let (payload, place) = py.detach(|| engine.view_in_place(oid)).map_err(gone)?;
    let written = Written { engine: engine.clone(), oid, of: Of::Place(place) };
    check_size(engine, oid, &payload, dtype, &shape)?;
    Ok((over(py, (namespace, oid), payload, dtype, &shape)?, written))
}

/// Refuses a blob that has another size by now than its handle was told.
fn check_size(
    engine: &engram::Namespace,
    oid: Oid,
    payload: &Payload,
    dtype: &Bound<'_, PyArrayDescr>,
    shape: &[u64],
) -> Result<()> {
    let now = whole(payload, dtype);
    if dtype::is_text(dtype) || shape.len() != 1 || shape == now {
        return Ok(());
    }
    if engine.object(oid).map_err(gone)?.class == Class::Blob {
        return Err(busy(format!(
            "the blob has {} bytes by now, and had {}: it was resized meanwhile; try again",
            now[0], shape[0]
        )));
    }
    Ok(())
}

/// What an array is of that was opened to be written.
enum Of {
    /// A copy of the value of this generation.
    Copy(u32),
    /// The value itself, there.
    Place(InPlace),
}

/// An array that was opened to be written, once it has been.
#[pyclass(frozen, module = "engram._engram")]
pub struct Written {
    engine: engram::Namespace,
    oid: Oid,
    of: Of,
}

#[pymethods]
impl Written {
    /// Sees that what was written into the array is the object's; False if it has to be opened and
    /// written again.
    fn settle(&self, py: Python<'_>, array: &Bound<'_, PyUntypedArray>) -> Result<bool> {
        let generation = match &self.of {
            Of::Place(place) => return Ok(py.detach(|| place.held()).map_err(gone)?),
            Of::Copy(generation) => *generation,
        };
        let replace = |bytes: &[u8]| {
            py.detach(|| self.engine.replace_payload(self.oid, generation, bytes)).map_err(gone)
        };
        if dtype::is_text(&array.dtype()) {
            let (payload, _) = strings::encode("the array", array.as_any())?;
            return Ok(replace(&payload)?);
        }
        let Some(bytes) = view::bytes_of(array) else {
            return Err(argument("only an array in C order can be put back"));
        };
        Ok(replace(bytes)?)
    }
}

/// Makes in-place writes as durable as the pool is.
#[pyfunction]
pub fn flush(py: Python<'_>, namespace: &Namespace, oid: Oid) -> Result<()> {
    let engine = namespace.engine();
    Ok(py.detach(|| engine.flush(oid)).map_err(gone)?)
}

/// For a write in place, an object that is gone is not missing: it was replaced under the handle.
pub fn gone(error: Error) -> Error {
    if error.kind() != Kind::NotFound {
        return error;
    }
    Error::new(
        Kind::Busy,
        format!("{}; nothing was written: look the name up again", error.message()),
    )
}
