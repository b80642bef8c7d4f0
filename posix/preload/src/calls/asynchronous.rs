//! Asynchronous input and output: an operation of ours is done at once.
//!
//! libc's threads would read and write by hidden functions. Its own functions find in the caller's
//! block that the operation is done, and with what result.

use std::ffi::{c_int, c_void};

use libc::{aiocb, sigevent};

use crate::descriptors;
use crate::inside::is_inside;
use crate::real::{errno, interpose, real, set_errno};

unsafe extern "C" {
    fn engram_aio_done(block: *mut aiocb, value: isize, error: c_int);
    fn engram_aio_notify(event: *const sigevent) -> c_int;
}

/// The highest priority that libc takes.
const HIGHEST: c_int = 20;

unsafe fn is_ours(block: *const aiocb) -> bool {
    // SAFETY: the program's block.
    !is_inside() && descriptors::is_ours(unsafe { (*block).aio_fildes })
}

/// Does an operation, and says so; whether it was taken at all.
unsafe fn done(block: *mut aiocb, operation: impl FnOnce(&aiocb) -> isize) -> c_int {
    // SAFETY: the program's block.
    unsafe {
        if !(0..=HIGHEST).contains(&(*block).aio_reqprio) {
            engram_aio_done(block, -1, libc::EINVAL);
            set_errno(libc::EINVAL);
            return -1;
        }
        let before = errno();
        let value = operation(&*block);
        engram_aio_done(block, value, if value < 0 { errno() } else { 0 });
        engram_aio_notify(&raw const (*block).aio_sigevent);
        set_errno(before);
        0
    }
}

fn read(block: &aiocb) -> isize {
    let to = block.aio_buf.cast::<c_void>();
    // SAFETY: the program's buffer.
    unsafe { libc::pread(block.aio_fildes, to, block.aio_nbytes, block.aio_offset) }
}

fn write(block: &aiocb) -> isize {
    let from = block.aio_buf.cast_const().cast::<c_void>();
    // SAFETY: the program's buffer.
    unsafe { libc::pwrite(block.aio_fildes, from, block.aio_nbytes, block.aio_offset) }
}

/// What libc is to do of a list; ours are done meanwhile. Whether one of ours has failed.
unsafe fn done_of(blocks: &[*mut aiocb]) -> (Vec<*mut aiocb>, bool) {
    let mut failed = false;
    let mut rest = Vec::with_capacity(blocks.len());
    for block in blocks.iter().copied().filter(|block| !block.is_null()) {
        // SAFETY: the program's blocks.
        unsafe {
            let operation = (*block).aio_lio_opcode;
            if operation == libc::LIO_NOP || !is_ours(block) {
                rest.push(block);
                continue;
            }
            let taken = match operation {
                libc::LIO_READ => done(block, read),
                libc::LIO_WRITE => done(block, write),
                _ => {
                    engram_aio_done(block, -1, libc::EINVAL);
                    -1
                }
            };
            failed |= taken != 0 || libc::aio_error(block) != 0;
        }
    }
    (rest, failed)
}

interpose! {
    /// Reads.
    [aio_read, aio_read64](block: *mut aiocb) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if is_ours(block) {
                return done(block, read);
            }
        }
        real!(aio_read(block: *mut aiocb) -> c_int)
    }

    /// Writes.
    [aio_write, aio_write64](block: *mut aiocb) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if is_ours(block) {
                return done(block, write);
            }
        }
        real!(aio_write(block: *mut aiocb) -> c_int)
    }

    /// Makes a file durable.
    [aio_fsync, aio_fsync64](operation: c_int, block: *mut aiocb) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if is_ours(block) && matches!(operation, libc::O_SYNC | libc::O_DSYNC) {
                return done(block, |block| libc::fsync(block.aio_fildes) as isize);
            }
        }
        real!(aio_fsync(operation: c_int, block: *mut aiocb) -> c_int)
    }

    /// Does several operations.
    [lio_listio, lio_listio64](
        mode: c_int, blocks: *const *mut aiocb, count: c_int, when: *mut sigevent
    ) -> c_int {
        let kernel = |blocks: *const *mut aiocb, count: c_int| {
            real!(
                lio_listio(mode: c_int, blocks: *const *mut aiocb, count: c_int,
                    when: *mut sigevent) -> c_int
            )
        };
        let waits = mode == libc::LIO_WAIT;
        // SAFETY: the program's promise.
        unsafe {
            let known = waits || mode == libc::LIO_NOWAIT;
            let Some(number) = usize::try_from(count).ok().filter(|_| known) else {
                return kernel(blocks, count);
            };
            let all = if number == 0 { &[] } else { std::slice::from_raw_parts(blocks, number) };
            if !all.iter().any(|block| !block.is_null() && is_ours(*block)) {
                return kernel(blocks, count);
            }
            let (rest, failed) = done_of(all);
            let taken = kernel(rest.as_ptr(), rest.len() as c_int);
            if failed && taken == 0 {
                set_errno(libc::EIO);
                return -1;
            }
            taken
        }
    }
}
