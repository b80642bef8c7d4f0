//! Scratch memory in C's hands: pieces of the pool without a name, known by their addresses.
//!
//! A piece is given back when the program frees it or its scratch, and when the process dies,
//! however it does. So a program that takes its memory by `malloc` may take some of it from a pool
//! instead, as with memkind: a pool on a slow and large device holds what memory does not.
//!
//! *Invariant*: `pieces` has each address that was given out and not given back, with the view that
//! keeps its memory. Nobody else has such a view, so what `realloc` moves is its caller's alone.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engram::{Namespace, Result, View as EngineView};

use crate::error::{Status, guard};
use crate::group::Group;
use crate::raw::{self, argument};

/// What memory of a pool is aligned to in any case.
const ALIGNED: usize = 64;

/// A source of memory without a name, in a pool. The memory goes back to the pool when it is freed,
/// when the scratch is, and when the process ends, however it ends.
pub struct Scratch {
    namespace: Namespace,
    pieces: Mutex<HashMap<usize, Piece>>,
}

struct Piece {
    view: EngineView,
    /// Where in the view it begins, which is aligned as was asked for.
    start: usize,
    nbytes: usize,
}

impl Piece {
    fn at(&self) -> *mut u8 {
        // SAFETY: the start lies within the view.
        unsafe { self.view.as_ptr().cast::<u8>().add(self.start) }
    }
}

impl Scratch {
    fn pieces(&self) -> MutexGuard<'_, HashMap<usize, Piece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a piece whose address is a multiple of `alignment`, which is a power of two.
    fn reserve(&self, nbytes: usize, alignment: usize) -> Result<Piece> {
        let beside = alignment.saturating_sub(ALIGNED);
        let too_much = || argument(format!("{nbytes} bytes are more than a pool can have"));
        let taken = nbytes.checked_add(beside).ok_or_else(too_much)?;
        let view = self.namespace.scratch(taken as u64, None)?;
        let start = view.as_ptr().cast::<u8>().align_offset(alignment);
        Ok(Piece { view, start, nbytes })
    }

    /// Gives a piece to the program; NULL of none.
    fn give(&self, nbytes: usize, alignment: usize) -> Result<*mut c_void> {
        if nbytes == 0 {
            return Ok(ptr::null_mut());
        }
        let piece = self.reserve(nbytes, alignment)?;
        let at = piece.at();
        self.pieces().insert(at.addr(), piece);
        Ok(at.cast())
    }

    /// Takes a piece back from the program.
    fn take(&self, memory: *const c_void) -> Result<Piece> {
        let unknown =
            || argument(format!("{memory:p} is no memory of this scratch, or was freed before"));
        self.pieces().remove(&memory.addr()).ok_or_else(unknown)
    }

    /// Gives a piece another length where it is, unless it is too short, or would be half empty.
    fn keeps(&self, memory: *const c_void, nbytes: usize) -> bool {
        let mut pieces = self.pieces();
        let Some(piece) = pieces.get_mut(&memory.addr()) else { return false };
        let room = piece.view.len() - piece.start;
        let keeps = (room / 2..=room).contains(&nbytes);
        if keeps {
            piece.nbytes = nbytes;
        }
        keeps
    }

    /// Gives a piece another length; what both have is the same.
    fn resize(&self, memory: *mut c_void, nbytes: usize) -> Result<*mut c_void> {
        if memory.is_null() {
            return self.give(nbytes, ALIGNED);
        }
        if nbytes == 0 {
            return self.take(memory).map(|_| ptr::null_mut());
        }
        if self.keeps(memory, nbytes) {
            return Ok(memory);
        }
        // Before the other is taken: what fails changes nothing.
        let new = self.reserve(nbytes, ALIGNED)?;
        let (piece, at) = (self.take(memory)?, new.at());
        // SAFETY: both are as long, apart, and the caller's alone.
        unsafe { ptr::copy_nonoverlapping(piece.at(), at, nbytes.min(piece.nbytes)) };
        self.pieces().insert(at.addr(), new);
        Ok(at.cast())
    }
}

/// Memory, or NULL where that fails.
fn memory(body: impl FnOnce() -> Result<*mut c_void>) -> *mut c_void {
    let mut given = ptr::null_mut();
    guard(|| {
        given = body()?;
        Ok(())
    });
    given
}

/// Begins to take memory of the pool that a group lies in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scratch_new(
    group: *const Group,
    scratch: *mut *mut Scratch,
) -> Status {
    guard(|| {
        let out = raw::out("scratch", scratch)?;
        let namespace = raw::of("group", group)?.namespace.clone();
        out.set(raw::give(Scratch { namespace, pieces: Mutex::default() }));
        Ok(())
    })
}

/// Gives memory that holds whatever the pool held there before, aligned to 64 bytes. NULL after an
/// error, and where `nbytes` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scratch_malloc(
    scratch: *const Scratch,
    nbytes: usize,
) -> *mut c_void {
    memory(|| raw::of("scratch", scratch)?.give(nbytes, ALIGNED))
}

/// Gives memory for `count` items of `nbytes` each, all zeros. NULL after an error, and where there
/// are no bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scratch_calloc(
    scratch: *const Scratch,
    count: usize,
    nbytes: usize,
) -> *mut c_void {
    memory(|| {
        let too_many = || argument(format!("{count} items of {nbytes} bytes are too many"));
        let nbytes = count.checked_mul(nbytes).ok_or_else(too_many)?;
        let given = raw::of("scratch", scratch)?.give(nbytes, ALIGNED)?;
        if !given.is_null() {
            // SAFETY: it is as long, and nobody has it yet.
            unsafe { ptr::write_bytes(given.cast::<u8>(), 0, nbytes) };
        }
        Ok(given)
    })
}

/// Gives memory another length, in another place if need be, with what it held up to the shorter of
/// both lengths. With NULL this is `engram_scratch_malloc`. With 0 bytes it frees the memory and
/// returns NULL. It also returns NULL after an error: then the memory is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scratch_realloc(
    scratch: *const Scratch,
    pointer: *mut c_void,
    nbytes: usize,
) -> *mut c_void {
    memory(|| raw::of("scratch", scratch)?.resize(pointer, nbytes))
}

/// Gives memory whose address is a multiple of `alignment`: a power of two, and no less than the
/// size of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scratch_posix_memalign(
    scratch: *const Scratch,
    alignment: usize,
    nbytes: usize,
    pointer: *mut *mut c_void,
) -> Status {
    guard(|| {
        let out = raw::out("pointer", pointer)?;
        if !alignment.is_power_of_two() || alignment < size_of::<*const c_void>() {
            return Err(argument(format!(
                "alignment {alignment} is no power of two, or less than a pointer's size: 64 is one"
            )));
        }
        out.set(raw::of("scratch", scratch)?.give(nbytes, alignment)?);
        Ok(())
    })
}

/// Gives memory back to the pool. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scratch_release(
    scratch: *const Scratch,
    pointer: *mut c_void,
) -> Status {
    guard(|| {
        let scratch = raw::of("scratch", scratch)?;
        if !pointer.is_null() {
            drop(scratch.take(pointer)?);
        }
        Ok(())
    })
}

/// Gives all its memory back to the pool, and frees the scratch. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_scratch_free(scratch: *mut Scratch) {
    drop(raw::take(scratch));
}
