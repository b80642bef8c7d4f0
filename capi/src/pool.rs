//! Pools: making, opening, closing, destroying.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use engram::{CreateOptions, Durability, Mode, Pool as Engine};

use crate::error::{Status, c_string, guard};
use crate::list::List;
use crate::options::PoolOptions;
use crate::raw::{self, argument};

/// An open pool.
pub struct Pool {
    pub(crate) engine: Engine,
    path: CString,
    uuid: CString,
}

/// What may be done with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum OpenMode {
    /// Reading.
    Read = 0,
    /// Reading and writing.
    ReadWrite = 1,
}

const READ: c_int = OpenMode::Read as c_int;
const READ_WRITE: c_int = OpenMode::ReadWrite as c_int;

/// Where the space of a pool's first namespace is, in bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Space {
    /// The bound of what values take.
    pub size: u64,
    /// What values take.
    pub used: u64,
    /// What is taken from the devices so far.
    pub arena: u64,
    /// What is free of that.
    pub free: u64,
    /// What is reserved, or freed and still in somebody's view.
    pub pending: u64,
    /// What the catalog takes, beside that.
    pub catalog: u64,
}

impl Pool {
    fn new(engine: Engine) -> Pool {
        let path = c_string(engine.path().as_os_str().as_bytes());
        let uuid = c_string(engine.uuid());
        Pool { engine, path, uuid }
    }
}

/// Makes a pool of at most `size` bytes of values at a path that does not exist or is an empty
/// folder, and opens it for writing. `options` may be NULL. On an error nothing is left behind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_create(
    path: *const c_char,
    size: u64,
    options: *const PoolOptions,
    pool: *mut *mut Pool,
) -> Status {
    guard(|| {
        let out = raw::out("pool", pool)?;
        let chosen = raw::of("options", options).map(|options| options.engine.clone());
        let options = CreateOptions { size, ..chosen.unwrap_or_default() };
        out.set(raw::give(Pool::new(Engine::create(raw::path("path", path)?, &options)?)));
        Ok(())
    })
}

/// Opens a pool: `mode` is `ENGRAM_OPEN_MODE_READ` or `ENGRAM_OPEN_MODE_READ_WRITE`; `force`, where
/// its filesystem is not on the list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_open(
    path: *const c_char,
    mode: c_int,
    force: bool,
    pool: *mut *mut Pool,
) -> Status {
    guard(|| {
        let out = raw::out("pool", pool)?;
        let mode = match mode {
            READ => Mode::Read,
            READ_WRITE => Mode::ReadWrite,
            other => return Err(argument(format!("mode is {other}: give 0 or 1"))),
        };
        out.set(raw::give(Pool::new(Engine::open(raw::path("path", path)?, mode, force)?)));
        Ok(())
    })
}

/// Closes a pool and frees it. Groups and objects of it answer `ENGRAM_STATUS_ARGUMENT` from then
/// on, and are freed by their owner as ever; views stay good. While this thread runs a batch on it,
/// that is `ENGRAM_STATUS_BUSY`, and the pool stays open. Where its files were removed meanwhile,
/// that is `ENGRAM_STATUS_POOL_GONE`; it is closed and freed. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_close(pool: *mut Pool) -> Status {
    guard(|| {
        if !pool.is_null() {
            let engine = &raw::of("pool", pool)?.engine;
            let closed = engine.try_close();
            if !engine.is_open() {
                drop(raw::take(pool));
            }
            closed?;
        }
        Ok(())
    })
}

/// Removes a pool with all that is in it. While others have it open, that is `ENGRAM_STATUS_BUSY`.
/// With `force` what is damaged, or is no pool any more, is removed as far as it can be told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_destroy(path: *const c_char, force: bool) -> Status {
    guard(|| Engine::destroy_with(raw::path("path", path)?, force))
}

/// The pool's folder. The string is the pool's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_path(pool: *const Pool) -> *const c_char {
    raw::of("pool", pool).map_or(c"".as_ptr(), |pool| pool.path.as_ptr())
}

/// The pool's identity, 32 hexadecimal digits. The string is the pool's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_uuid(pool: *const Pool) -> *const c_char {
    raw::of("pool", pool).map_or(c"".as_ptr(), |pool| pool.uuid.as_ptr())
}

/// Whether each commit of the pool survives the loss of power.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_survives_power(pool: *const Pool) -> bool {
    raw::of("pool", pool).is_ok_and(|pool| pool.engine.durability() == Durability::System)
}

/// Tells where the space of the pool's first namespace is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_space(pool: *const Pool, space: *mut Space) -> Status {
    guard(|| {
        let out = raw::out("space", space)?;
        let now = raw::of("pool", pool)?.engine.namespace(FIRST)?.space()?;
        out.set(Space {
            size: now.size,
            used: now.used,
            arena: now.arena,
            free: now.free,
            pending: now.pending,
            catalog: now.catalog,
        });
        Ok(())
    })
}

/// Sets the bound of what values may take in the pool's first namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_resize(pool: *const Pool, size: u64) -> Status {
    guard(|| raw::of("pool", pool)?.engine.namespace(FIRST)?.resize(size))
}

/// Adds a device to a pool; every process finds it when it next needs room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_add_device(
    pool: *const Pool,
    path: *const c_char,
    force: bool,
) -> Status {
    guard(|| raw::of("pool", pool)?.engine.add_device(raw::path("path", path)?, force))
}

/// Checks all of a pool, and lists what does not agree: nothing, of a sound one. What cannot be
/// checked at all is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_verify(
    path: *const c_char,
    problems: *mut *mut List,
) -> Status {
    guard(|| {
        let out = raw::out("problems", problems)?;
        let report = engram::verify(raw::path("path", path)?)?;
        out.set(raw::give(List::of_texts(report.problems)));
        Ok(())
    })
}

/// The namespace that every pool starts with.
pub(crate) const FIRST: &str = "default";
