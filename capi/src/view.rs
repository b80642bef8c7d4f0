//! Memory of the pool in C's hands: views of values, and space that is being filled.

use std::ffi::{c_char, c_void};

use engram::{Allocation as Engine, Namespace, Payload, View as EngineView};

use crate::dtype::DType;
use crate::error::{Status, guard};
use crate::group::Group;
use crate::object::{Object, hand, request, wanted};
use crate::options::Options;
use crate::raw;

/// A value as memory. It keeps its contents until the view is freed, even if this or another
/// process deletes or replaces the object.
pub struct View {
    payload: Payload,
}

/// Space of the pool that a program fills. It then becomes an array, or is given back.
pub struct Allocation {
    engine: Engine,
    view: EngineView,
    namespace: Namespace,
}

/// Gives a value as memory of the pool. With `write`, the program may write there;
/// `engram_object_flush` then makes that durable. Without `write`, a small value may be a copy.
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

/// The first byte of a view. Unless the view was made with `write`, nothing may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_view_data(view: *const View) -> *mut c_void {
    raw::of("view", view).map_or(std::ptr::null_mut(), |view| match &view.payload {
        Payload::Extent(view) => view.as_ptr().cast(),
        Payload::Inline(bytes) => bytes.as_ptr().cast_mut().cast(),
    })
}

/// The number of bytes of a view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_view_nbytes(view: *const View) -> usize {
    raw::of("view", view).map_or(0, |view| match &view.payload {
        Payload::Extent(view) => view.len(),
        Payload::Inline(bytes) => bytes.len(),
    })
}

/// Whether the view is memory of the pool, and not a copy of a small value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_view_is_pool_memory(view: *const View) -> bool {
    raw::of("view", view).is_ok_and(|view| matches!(view.payload, Payload::Extent(_)))
}

/// Frees a view. Its memory must not be used any more. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_view_free(view: *mut View) {
    drop(raw::take(view));
}

/// Reserves space for an array, which becomes visible when it is published. The space is not
/// zeroed. `options` may be NULL.
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

/// The memory to fill. It belongs to the allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_allocation_data(allocation: *const Allocation) -> *mut c_void {
    let own = raw::of("allocation", allocation);
    own.map_or(std::ptr::null_mut(), |own| own.view.as_ptr().cast())
}

/// The number of bytes of the memory to fill.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_allocation_nbytes(allocation: *const Allocation) -> usize {
    raw::of("allocation", allocation).map_or(0, |own| own.view.len())
}

/// Makes the whole array visible to all. The allocation is freed, whether this succeeds or not.
/// After an error, nothing is visible, and the space is given back. `object` may be NULL.
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

/// Gives the space back, and frees the allocation. No array was ever visible. NULL is allowed, and
/// does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_allocation_abandon(allocation: *mut Allocation) {
    drop(raw::take(allocation));
}
