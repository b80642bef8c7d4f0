//! numpy arrays on the pool's own memory, and bytes in and out of numpy's: the binding's `unsafe`.
//!
//! Who owns what. A `View` is the Python object that holds a claim on memory: an engine view (the
//! claim that keeps an extent from being used again), or bytes copied out of the catalog. An array
//! made by `array_over` has that `View` as its base, and numpy hands the base on to every array
//! sliced from it, in whatever order they die. So the claim is given up when the last array on the
//! memory is gone, and not before; closing the pool, deleting the object or dropping its handle
//! changes nothing, since none of them is the base.
//!
//! Who may write. Each array's own flag says so, and numpy lets nobody raise that flag unless the
//! base exports a writable buffer: a `View` made for reading does not, and one of `allocate` no
//! longer does once it is sealed. (An array sliced from `buf` *before* the seal keeps the flag it
//! was born with, as numpy knows no list of slices; its writes are in-place writes.)
//!
//! What is checked, because a wrong size here would be a wild access: the memory's length must be
//! exactly what dtype and shape ask for, and the dtype must hold no references.

use std::ffi::c_int;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use engram::{Oid, View as Claim};
use numpy::npyffi::flags::{NPY_ARRAY_CARRAY, NPY_ARRAY_CARRAY_RO, NPY_ARRAY_WRITEABLE};
use numpy::npyffi::{NpyTypes, PY_ARRAY_API, get_type_object, npy_intp};
use numpy::prelude::*;
use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::error::{Result, argument, corrupt};
use crate::namespace::Place;

/// Copies of at least this many bytes let go of the interpreter: about 5 us of copying, 50 times
/// what letting go and coming back costs.
const DETACH_BYTES: usize = 64 << 10;

/// numpy's own bound on dimensions.
const MAX_DIMS: usize = 64;

/// An address for arrays without bytes, aligned for every dtype.
#[repr(align(64))]
struct Nothing(#[allow(dead_code)] [u8; 64]);
static NOTHING: Nothing = Nothing([0; 64]);

enum Memory {
    /// An extent: the engine's claim on it.
    Claimed(Claim),
    /// A small value, copied out of the catalog; read-only, as writing it would write nowhere.
    Copied(Vec<u8>),
}

/// A claim on memory, as numpy's base object: exports the buffer, and gives up the claim when the
/// last array on it is gone.
#[pyclass(frozen, module = "engram._engram")]
pub struct View {
    memory: Memory,
    writable: AtomicBool,
    /// The object whose value this was when it was looked up or published.
    object: OnceLock<(Arc<Place>, Oid)>,
}

/// Where an object is: the pool's path and uuid, the namespace's name, and the OID.
type Whereabouts<'a> = (&'a Path, &'a str, &'a str, Oid);

impl View {
    /// A claim on an extent, writable if the engine says so.
    pub fn claimed(claim: Claim) -> Self {
        let writable = AtomicBool::new(claim.is_writable());
        View { memory: Memory::Claimed(claim), writable, object: OnceLock::new() }
    }

    /// Bytes of our own, read-only.
    pub fn copied(bytes: Vec<u8>) -> Self {
        let writable = AtomicBool::new(false);
        View { memory: Memory::Copied(bytes), writable, object: OnceLock::new() }
    }

    /// Notes whose value it is; the first to do so is believed.
    pub fn of(&self, place: Arc<Place>, oid: Oid) {
        let _ = self.object.set((place, oid));
    }

    /// From now on no array on this memory can be made writable.
    pub fn seal(&self) {
        self.writable.store(false, Ordering::Release);
    }

    fn address(&self) -> *mut u8 {
        match &self.memory {
            _ if self.len() == 0 => (&raw const NOTHING).cast_mut().cast(),
            Memory::Claimed(claim) => claim.as_ptr(),
            Memory::Copied(bytes) => bytes.as_ptr().cast_mut(),
        }
    }

    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Claimed(claim) => claim.len(),
            Memory::Copied(bytes) => bytes.len(),
        }
    }
}

#[pymethods]
impl View {
    /// Bytes under the claim.
    #[getter]
    fn nbytes(&self) -> usize {
        self.len()
    }

    /// Whether an array on this memory may be writable.
    #[getter]
    fn writable(&self) -> bool {
        self.writable.load(Ordering::Acquire)
    }

    /// The object whose value this was when the view was made: (the pool's path, its uuid, the
    /// namespace, the OID). None for scratch memory, for a copy, and before it is published.
    #[getter]
    fn object(&self) -> Option<Whereabouts<'_>> {
        if matches!(self.memory, Memory::Copied(_)) {
            return None;
        }
        let (place, oid) = self.object.get()?;
        Some((&place.path, &place.uuid, &place.namespace, *oid))
    }

    /// The buffer protocol: numpy asks it before it lets anyone raise an array's writeable flag.
    ///
    /// # Safety
    /// Called by the interpreter alone, with a `Py_buffer` to fill.
    #[allow(clippy::needless_pass_by_value)] // the receiver that PyO3 hands over
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        buffer: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if buffer.is_null() {
            return Err(PyBufferError::new_err("no buffer to fill"));
        }
        let this = slf.get();
        let readonly = c_int::from(!this.writable());
        // SAFETY: `buffer` is the interpreter's, not null. Address and length are those of memory
        // that lives as long as `slf`, whose reference `PyBuffer_FillInfo` takes into the buffer.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                buffer,
                slf.as_ptr(),
                this.address().cast(),
                this.len() as ffi::Py_ssize_t,
                readonly,
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __repr__(&self) -> String {
        let mode = if self.writable() { "writable" } else { "read-only" };
        format!("<engram view of {} bytes, {mode}>", self.len())
    }
}

/// The bytes that an array of this dtype and shape has; an error if no such array can be.
pub fn nbytes_of(itemsize: usize, shape: &[u64]) -> Result<usize> {
    let bytes = shape.iter().try_fold(itemsize as u64, |n, &d| n.checked_mul(d));
    // Also where a dimension of 0 makes the product 0, numpy wants the others to fit, and takes an
    // item without bytes for one character.
    let item = if itemsize == 0 { 4 } else { itemsize as u64 };
    let count = shape.iter().filter(|&&d| d != 0).try_fold(item, |n, &d| n.checked_mul(d));
    match (bytes, count) {
        (Some(bytes), Some(count))
            if isize::try_from(bytes.max(count)).is_ok() && shape.len() <= MAX_DIMS =>
        {
            Ok(bytes as usize)
        }
        _ => Err(argument(format!(
            "shape {} with {itemsize} bytes an item is more than an array can have: at most \
             {MAX_DIMS} dimensions and 2**63 - 1 bytes; give a smaller shape or several arrays",
            shown(shape)
        ))),
    }
}

/// A shape as Python writes it.
pub fn shown(shape: &[u64]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => format!("({})", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// An array on the memory of `view`, which becomes its base. Writable if `view` is.
pub fn array_over<'py>(
    py: Python<'py>,
    view: &Py<View>,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[u64],
) -> Result<Bound<'py, PyUntypedArray>> {
    let this = view.get();
    plain(descr)?;
    if this.len() != nbytes_of(descr.itemsize(), shape)? {
        return Err(corrupt(format!(
            "an object of dtype {descr} and shape {} lies on {} bytes: run engram.verify on this \
             pool",
            shown(shape),
            this.len()
        )));
    }
    let mut dims: Vec<npy_intp> = shape.iter().map(|&d| d as npy_intp).collect();
    let flags = if this.writable() { NPY_ARRAY_CARRAY } else { NPY_ARRAY_CARRAY_RO };
    // SAFETY: we are attached. `into_dtype_ptr` gives away one reference, which NewFromDescr
    // steals. `dims` has `len` entries. The address holds itemsize x shape bytes (checked above)
    // and lives as long as `view`, which SetBaseObject (stealing the reference that `into_ptr`
    // gives) ties to the array before anyone else sees it. The dtype holds no references (`plain`).
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            descr.clone().into_dtype_ptr(),
            dims.len() as c_int,
            dims.as_mut_ptr(),
            ptr::null_mut(),
            this.address().cast(),
            flags,
            ptr::null_mut(),
        );
        let array: Bound<'py, PyUntypedArray> =
            Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked();
        as_asked(&array, descr)?;
        let base = view.clone_ref(py).into_ptr();
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base) < 0 {
            return Err(PyErr::fetch(py).into());
        }
        Ok(array)
    }
}

/// A new array of numpy's own with these bytes in it.
pub fn array_of<'py>(
    py: Python<'py>,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[u64],
    bytes: &[u8],
) -> Result<Bound<'py, PyUntypedArray>> {
    // SAFETY: the slice is `bytes.len()` readable bytes.
    unsafe { copied(py, descr, shape, bytes.as_ptr(), bytes.len()) }
}

/// A new array of numpy's own, whose bytes are what `fill` makes of zeros while the interpreter is
/// let go of.
pub fn array_filled<'py>(
    py: Python<'py>,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[u64],
    fill: impl FnOnce(&mut [u8]) -> engram::Result<()> + Send,
) -> Result<Bound<'py, PyUntypedArray>> {
    plain(descr)?;
    let len = nbytes_of(descr.itemsize(), shape)?;
    let array = blank(py, descr, shape)?;
    if len > 0 {
        let carried = Carried(data(&array));
        // SAFETY: `blank` has allocated itemsize x shape bytes, zeroed, of which nobody else knows
        // before this function returns.
        py.detach(move || fill(unsafe { std::slice::from_raw_parts_mut(carried.get(), len) }))?;
    }
    Ok(array)
}

/// A new array of zeros.
fn blank<'py>(
    py: Python<'py>,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[u64],
) -> Result<Bound<'py, PyUntypedArray>> {
    let mut dims: Vec<npy_intp> = shape.iter().map(|&d| d as npy_intp).collect();
    // SAFETY: we are attached; Zeros steals the descr's reference, and allocates itemsize x shape
    // bytes.
    let array: Bound<'py, PyUntypedArray> = unsafe {
        let array = PY_ARRAY_API.PyArray_Zeros(
            py,
            dims.len() as c_int,
            dims.as_mut_ptr(),
            descr.clone().into_dtype_ptr(),
            0,
        );
        Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked()
    };
    as_asked(&array, descr)?;
    Ok(array)
}

/// A new array of numpy's own with an extent's bytes in it.
pub fn array_from<'py>(
    py: Python<'py>,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[u64],
    claim: &Claim,
) -> Result<Bound<'py, PyUntypedArray>> {
    // SAFETY: a claim is `len` readable bytes for as long as it lives. Another process may write
    // them meanwhile: in-place writes are neither atomic nor isolated, and the copy is of bytes.
    claim.reading(claim.len(), || unsafe { copied(py, descr, shape, claim.as_ptr(), claim.len()) })
}

/// `len` bytes at `from`, as a new array.
///
/// # Safety
/// `from` is `len` readable bytes, or `len` is 0.
unsafe fn copied<'py>(
    py: Python<'py>,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[u64],
    from: *const u8,
    len: usize,
) -> Result<Bound<'py, PyUntypedArray>> {
    plain(descr)?;
    if len != nbytes_of(descr.itemsize(), shape)? {
        return Err(corrupt(format!(
            "{len} bytes were kept for a value of dtype {descr} and shape {}: run engram.verify on \
             this pool",
            shown(shape)
        )));
    }
    let mut dims: Vec<npy_intp> = shape.iter().map(|&d| d as npy_intp).collect();
    // SAFETY: we are attached; NewFromDescr steals the descr's reference and, given no data,
    // allocates itemsize x shape bytes (at least one), which nobody else knows of yet. `len` is
    // that number and `from` holds it, so the copy is within both; they are different allocations.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            descr.clone().into_dtype_ptr(),
            dims.len() as c_int,
            dims.as_mut_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            0,
            ptr::null_mut(),
        );
        let array: Bound<'py, PyUntypedArray> =
            Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked();
        as_asked(&array, descr)?;
        copy(py, data(&array), from, len);
        Ok(array)
    }
}

/// An array's bytes, if they lie in C order. Good while the array lives.
///
/// The caller copies them out and keeps none. Another Python thread may write the array meanwhile,
/// as it may under any copy that numpy makes: the bytes are then some mixture, never out of bounds.
pub fn bytes_of<'a>(array: &'a Bound<'_, PyUntypedArray>) -> Option<&'a [u8]> {
    if !array.is_c_contiguous() || plain(&array.dtype()).is_err() {
        return None;
    }
    let len = array.len() * array.dtype().itemsize();
    if len == 0 {
        return Some(&[]);
    }
    // SAFETY: a C-contiguous array is its length x itemsize readable bytes at its data pointer; the
    // borrow of `array` keeps it alive, and numpy refuses to resize what is referenced.
    Some(unsafe { std::slice::from_raw_parts(data(array), len) })
}

/// Lets `fill` write bytes of an array that lies in C order and may be written, from its start,
/// while the interpreter is let go of.
///
/// Another Python thread may look at them meanwhile, as it may under any copy that numpy makes.
pub fn fill<T: Send>(
    py: Python<'_>,
    array: &Bound<'_, PyUntypedArray>,
    fill: impl FnOnce(&mut [u8]) -> engram::Result<T> + Send,
) -> Result<T> {
    // SAFETY: a live array's fields are readable while we are attached.
    let flags = unsafe { (*numpy::npyffi::_PyArray_GET_ITEM_DATA(array.as_array_ptr())).flags };
    if !array.is_c_contiguous() || flags & NPY_ARRAY_WRITEABLE == 0 {
        return Err(argument("only memory in one piece that may be written is read into"));
    }
    plain(&array.dtype())?;
    let len = array.len() * array.dtype().itemsize();
    if len == 0 {
        return Ok(fill(&mut [])?);
    }
    let carried = Carried(data(array));
    // SAFETY: a C-contiguous array is its length x itemsize bytes at its data pointer, which may be
    // written (both checked above); the caller's borrow keeps it alive, and numpy refuses to resize
    // what is referenced.
    Ok(py.detach(move || fill(unsafe { std::slice::from_raw_parts_mut(carried.get(), len) }))?)
}

/// Copies one array into another of the same shape and dtype, whatever their strides: numpy's own
/// loop, which lets go of the interpreter.
pub fn copy_into(to: &Bound<'_, PyUntypedArray>, from: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
    // SAFETY: both are live arrays; numpy checks shapes, casts and the writeable flag itself.
    let done =
        unsafe { PY_ARRAY_API.PyArray_CopyInto(to.py(), to.as_array_ptr(), from.as_array_ptr()) };
    if done < 0 { Err(PyErr::fetch(to.py())) } else { Ok(()) }
}

/// Copies `len` bytes of an extent from `start` into `to`, which is that long.
pub fn copy_out(py: Python<'_>, to: &mut [u8], claim: &Claim, start: usize) -> Result<()> {
    if start.checked_add(to.len()).is_none_or(|end| end > claim.len()) {
        return Err(corrupt(format!(
            "bytes {start} to {} lie outside an extent of {}: run engram.verify on this pool",
            start.saturating_add(to.len()),
            claim.len()
        )));
    }
    // SAFETY: `start + to.len()` is within the claim (checked above), which is readable memory
    // apart from `to`.
    claim.reading(to.len(), || unsafe {
        copy(py, to.as_mut_ptr(), claim.as_ptr().add(start), to.len());
    });
    Ok(())
}

/// Whether raw bytes may be taken for values of this dtype: it holds no references and is no
/// dtype of a third party.
fn plain(descr: &Bound<'_, PyArrayDescr>) -> Result<()> {
    if descr.has_object() || !(0..256).contains(&descr.num()) {
        return Err(argument(format!(
            "dtype {descr} holds references, not values: its items have no bytes to keep"
        )));
    }
    Ok(())
}

/// numpy widens strings of no width to one character: not over memory that has none.
fn as_asked(array: &Bound<'_, PyUntypedArray>, descr: &Bound<'_, PyArrayDescr>) -> Result<()> {
    if array.dtype().itemsize() == descr.itemsize() {
        return Ok(());
    }
    Err(argument(format!("numpy has no array of dtype {descr}: give it a width")))
}

fn data(array: &Bound<'_, PyUntypedArray>) -> *mut u8 {
    // SAFETY: a live array's fields are readable while we are attached.
    unsafe { (*numpy::npyffi::_PyArray_GET_ITEM_DATA(array.as_array_ptr())).data.cast() }
}

/// A pointer that a closure may carry while the interpreter is let go of.
struct Carried<T>(T);
// SAFETY: what is carried is used by the same thread alone; `detach` only asks for `Send` to keep
// Python references out.
unsafe impl<T> Send for Carried<T> {}
impl<T> Carried<T> {
    fn get(self) -> T {
        self.0
    }
}

/// # Safety
/// `to` and `from` are `len` bytes each, writable and readable, and do not overlap.
unsafe fn copy(py: Python<'_>, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promise, in both branches.
    let run = |to: *mut u8, from: *const u8| unsafe { ptr::copy_nonoverlapping(from, to, len) };
    if len < DETACH_BYTES {
        run(to, from);
    } else {
        let carried = Carried((to, from));
        py.detach(move || {
            let (to, from) = carried.get();
            run(to, from);
        });
    }
}
