//! What the library of clusters, `libengram_cluster`, asks of this one: the engine of the process,
//! and types as a cluster has them.

use std::ffi::{c_char, c_void};

use crate::dtype::DType;
use crate::error::{Status, c_string, guard};
use crate::raw;

/// The engine of this process, for `engram_cluster_open`: a process has one.
#[unsafe(no_mangle)]
pub extern "C" fn engram_engine() -> *const c_void {
    (&raw const engram_holding::TABLE).cast()
}

/// Gives the type as a cluster has it, such as "<f8", in a string to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_dtype_spec(dtype: *const DType, spec: *mut *mut c_char) -> Status {
    guard(|| {
        let out = raw::out("spec", spec)?;
        let dtype = raw::of("dtype", dtype)?;
        out.set(c_string(engram_parts::dtype::text_of(dtype.engine())).into_raw());
        Ok(())
    })
}
