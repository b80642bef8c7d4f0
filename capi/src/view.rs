//! Memory of the pool in C's hands: views of values, and space that is being filled.

use std::ffi::{c_char, c_void};

use engram::{Allocation as Engine, Namespace, Payload, View as EngineView};

use crate::dtype::DType;
use crate::error::{Status, guard};
use crate::group::Group;
use crate::object::{Object, hand, request, wanted};
use crate::options::Options;
use crate::raw;

/// A value as memory. It stays what it is until the view is freed, whatever becomes of the object,
/// here or in another process.
pub struct View {
    payload: Payload,
}

/// Space of the pool that is being filled, and becomes an array, or is given back.
pub struct Allocation {
    engine: Engine,
    view: EngineView,
    namespace: Namespace,
}

/// Gives a value as the pool's own memory; for writing in place too, with `write`, and then
/// `engram_object_flush` makes what was written durable. What is small and not to be written may be
/// a copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_object_view(
    object: *const Object,
    write: bool,
    view: *mut *mut View,
) -> Status {
    guard(|| {
        let out = raw::out("view", view)?;
        let object = raw::of("object", object)?;
        out.set(raw::give(View { payload: object.namespace.view(object.oid, write)? }));
        Ok(())
    })
}

/// The first byte of a view. Of one that is not for writing, nothing may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_view_data(view: *const View) -> *mut c_void {
    raw::of("view", view).map_or(std::ptr::null_mut(), |view| match &view.payload {
        Payload::Extent(view) => view.as_ptr().cast(),
        Payload::Inline(bytes) => bytes.as_ptr().cast_mut().cast(),
    })
}

/// The bytes of a view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_view_nbytes(view: *const View) -> usize {
    raw::of("view", view).map_or(0, |view| match &view.payload {
        Payload::Extent(view) => view.len(),
        Payload::Inline(bytes) => bytes.len(),
    })
}

/// Whether it is the pool's own memory, and no copy of what is small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_view_is_pool_memory(view: *const View) -> bool {
    raw::of("view", view).is_ok_and(|view| matches!(view.payload, Payload::Extent(_)))
}

/// Lets go of a view: its memory is not to be touched any more. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_view_free(view: *mut View) {
    drop(raw::take(view));
}

/// Reserves space for an array that becomes visible when it is published. It holds anything at
/// first. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_array_allocate(
    group: *const Group,
    path: *const c_char,
    dtype: *const DType,
    ndim: usize,
    shape: *const u64,
    options: *const Options,
    allocation: *mut *mut Allocation,
) -> Status {
    guard(|| {
        let out = raw::out("allocation", allocation)?;
        let request = request(group, path, dtype, ndim, shape, options)?;
        let (Group { namespace, gid }, nbytes) = (request.group, request.nbytes()?);
        let place = request.placement();
        let engine = namespace.allocate(*gid, request.path, &request.new, nbytes, place)?;
        let view = engine.view();
        out.set(raw::give(Allocation { engine, view, namespace: namespace.clone() }));
        Ok(())
    })
}

/// The memory to be filled; it is the allocation's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_allocation_data(allocation: *const Allocation) -> *mut c_void {
    let own = raw::of("allocation", allocation);
    own.map_or(std::ptr::null_mut(), |own| own.view.as_ptr().cast())
}

/// The bytes of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_allocation_nbytes(allocation: *const Allocation) -> usize {
    raw::of("allocation", allocation).map_or(0, |own| own.view.len())
}

/// Makes the array visible to all, whole. The allocation is freed whatever comes of it; on an error
/// nothing is visible and the space goes back. `object` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_allocation_publish(
    allocation: *mut Allocation,
    object: *mut *mut Object,
) -> Status {
    guard(|| {
        raw::of("allocation", allocation)?;
        let own = raw::take(allocation);
        let out = wanted(object)?;
        let Some(own) = own else { return Ok(()) };
        let Allocation { engine, view, namespace } = *own;
        let oid = engine.publish()?;
        drop(view);
        hand(out, &namespace, oid)
    })
}

/// Gives the space back; there was never an array. The allocation is freed. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_allocation_abandon(allocation: *mut Allocation) {
    drop(raw::take(allocation));
}
