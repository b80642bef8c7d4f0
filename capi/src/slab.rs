//! Parts of arrays, copied in and out.

use std::ffi::{c_int, c_void};

use engram::Flush as Engine;

use crate::error::{Status, guard};
use crate::list::MemberKind;
use crate::object::Object;
use crate::raw::{self, argument};

/// When stored values are made durable, in a pool that survives a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Flush {
    /// Once, after all values have been copied.
    Once = 0,
    /// Piece by piece, while they are copied.
    AsWritten = 1,
}

const ONCE: c_int = Flush::Once as c_int;
const AS_WRITTEN: c_int = Flush::AsWritten as c_int;

/// Copies a box of an array into memory, in C order. `offsets` and `counts` have one number for
/// each dimension. For a blob, this copies a range of its bytes. `nbytes` is the size of the memory
/// at `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_load(
    object: *const Object,
    ndim: usize,
    offsets: *const u64,
    counts: *const u64,
    data: *mut c_void,
    nbytes: usize,
) -> Status {
    guard(|| {
        let object = raw::of("object", object)?;
        let (offsets, counts) =
            (raw::lengths("offsets", offsets, ndim)?, raw::lengths("counts", counts, ndim)?);
        let data = raw::bytes_mut("data", data, nbytes)?;
        object.namespace.load_slab(object.oid, offsets, counts, data)
    })
}

/// Copies memory into a box of an array, in place and without a lock. Many processes may store
/// disjoint boxes of one array at once. In a pool that survives a loss of power, the values are
/// durable when this returns. `flush` is one of `ENGRAM_FLUSH_...`. After an error, a part may have
/// been written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_store(
    object: *const Object,
    ndim: usize,
    offsets: *const u64,
    counts: *const u64,
    data: *const c_void,
    nbytes: usize,
    flush: c_int,
) -> Status {
    guard(|| {
        let object = raw::of("object", object)?;
        let (offsets, counts) =
            (raw::lengths("offsets", offsets, ndim)?, raw::lengths("counts", counts, ndim)?);
        let data = raw::bytes("data", data, nbytes)?;
        let flush = match flush {
            ONCE => Engine::Once,
            AS_WRITTEN => Engine::AsWritten,
            other => return Err(argument(format!("flush is {other}: give 0 or 1"))),
        };
        object.namespace.store_slab(object.oid, offsets, counts, data, flush)
    })
}

/// Copies a whole value into memory. `nbytes` must be what `engram_object_nbytes` gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_read(
    object: *const Object,
    data: *mut c_void,
    nbytes: usize,
) -> Status {
    guard(|| {
        let object = raw::of("object", object)?;
        if object.kind() == MemberKind::Strings {
            return Err(argument(
                "strings of variable length are not read from C: keep strings of a fixed width, \
                 or attributes",
            ));
        }
        let data = raw::bytes_mut("data", data, nbytes)?;
        let offsets = vec![0; object.shape.len()];
        object.namespace.load_slab(object.oid, &offsets, &object.shape, data)
    })
}

/// Makes everything that was written in place so far as durable as the pool is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_flush(object: *const Object) -> Status {
    guard(|| {
        let object = raw::of("object", object)?;
        object.namespace.flush(object.oid)
    })
}
