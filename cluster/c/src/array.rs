//! Arrays of a cluster, as they were looked up.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use engram_base::dtype::DType;
use engram_base::slab::Slab;
use engram_driver::cluster::{Cluster as Driven, dtype_in};
use engram_driver::error::Error;
use engram_edge::error::c_string;
use engram_edge::raw;
use engram_parts::dtype;

use crate::cluster::Cluster;
use crate::status::{Status, guard};

/// An array of a cluster, in the generation that was looked up.
pub struct Array {
    driven: Arc<Driven>,
    path: String,
    shape: Vec<u64>,
    dtype: DType,
    spec: CString,
    generation: u64,
}

/// Looks an array up by its name. Free it with `engram_cluster_array_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_array_open(
    cluster: *const Cluster,
    path: *const c_char,
    array: *mut *mut Array,
) -> Status {
    guard(|| {
        let out = raw::out("array", array)?;
        let (cluster, path) = (raw::of("cluster", cluster)?, raw::text("path", path)?);
        let (manifest, _) = cluster.driven.look_up(path)?.ok_or_else(|| {
            let name = &cluster.facts.name;
            Error::NotFound(format!("there is no {path:?} in the cluster {name:?}"))
        })?;
        let boxes = manifest.array().ok_or_else(|| {
            Error::Argument(format!("{path:?} is a group of the cluster, and no array"))
        })?;
        let dtype = dtype_in(&manifest)?;
        let spec = c_string(dtype::text_of(&dtype));
        let (shape, generation) = (boxes.shape.clone(), manifest.generation);
        let driven = Arc::clone(&cluster.driven);
        out.set(raw::give(Array { driven, path: path.to_owned(), shape, dtype, spec, generation }));
        Ok(())
    })
}

/// The type of the array's items, in the form that `engram_dtype_spec` gives. The string belongs to
/// the array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_array_spec(array: *const Array) -> *const c_char {
    raw::of("array", array).map_or(c"".as_ptr(), |array| array.spec.as_ptr())
}

/// The number of the array's dimensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_array_ndim(array: *const Array) -> usize {
    raw::of("array", array).map_or(0, |array| array.shape.len())
}

/// The array's shape: one length for each dimension. It belongs to the array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_array_shape(array: *const Array) -> *const u64 {
    raw::of("array", array).map_or(std::ptr::null(), |array| array.shape.as_ptr())
}

/// The array's generation: a number that grows with each publication of the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_array_generation(array: *const Array) -> u64 {
    raw::of("array", array).map_or(0, |array| array.generation)
}

/// Reads a box of the array into memory, from whatever nodes it lies on, in the generation that the
/// name has now. Where no part covers the box, it holds the array's fill value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_array_load(
    array: *const Array,
    ndim: usize,
    offsets: *const u64,
    counts: *const u64,
    data: *mut c_void,
    nbytes: usize,
) -> Status {
    guard(|| {
        let array = raw::of("array", array)?;
        let offsets = raw::lengths("offsets", offsets, ndim)?;
        let counts = raw::lengths("counts", counts, ndim)?;
        let out = raw::bytes_mut("data", data, nbytes)?;
        let slab = Slab::new(&array.shape, offsets, counts)?;
        array.driven.load(&array.path, &array.dtype, &slab, out).map(drop)
    })
}

/// Frees an array. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_array_free(array: *mut Array) {
    drop(raw::take(array));
}
