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

/// What a program may do with a pool.
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
    /// The most that values may take.
    pub size: u64,
    /// What values take.
    pub used: u64,
    /// What the pool has taken from its devices so far.
    pub arena: u64,
    /// What of `arena` is free.
    pub free: u64,
    /// What of `arena` is reserved, or freed but still in use by a view.
    pub pending: u64,
    /// What the catalog takes, in addition.
    pub catalog: u64,
}

impl Pool {
    fn new(engine: Engine) -> Pool {
        let path = c_string(engine.path().as_os_str().as_bytes());
        let uuid = c_string(engine.uuid());
        Pool { engine, path, uuid }
    }
}

/// Makes a pool and opens it for writing. Its values may take at most `size` bytes. At `path` there
/// is nothing yet, or an empty folder. `options` may be NULL. After an error, nothing is left
/// behind.
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

/// Opens a pool. `mode` is `ENGRAM_OPEN_MODE_READ` or `ENGRAM_OPEN_MODE_READ_WRITE`. With `force`,
/// a filesystem that is not on Engram's list is accepted.
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

/// Closes a pool and frees its handle. Its groups and objects answer `ENGRAM_STATUS_ARGUMENT` from
/// then on, and are still to be freed. Views stay valid. If this thread runs a batch on the pool,
/// the status is `ENGRAM_STATUS_BUSY`, and the pool stays open. If the pool's files have been
/// removed, the status is `ENGRAM_STATUS_POOL_GONE`, and the pool is closed and freed. NULL is
/// allowed, and does nothing.
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

/// Removes a pool with everything in it. If other processes have it open, the status is
/// `ENGRAM_STATUS_BUSY`. With `force`, a damaged pool is removed too, as far as its parts can be
/// recognized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_destroy(path: *const c_char, force: bool) -> Status {
    guard(|| Engine::destroy_with(raw::path("path", path)?, force))
}

/// The pool's folder. The string belongs to the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_path(pool: *const Pool) -> *const c_char {
    raw::of("pool", pool).map_or(c"".as_ptr(), |pool| pool.path.as_ptr())
}

/// The pool's identity: 32 hexadecimal digits. The string belongs to the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_uuid(pool: *const Pool) -> *const c_char {
    raw::of("pool", pool).map_or(c"".as_ptr(), |pool| pool.uuid.as_ptr())
}

/// Whether each commit of the pool survives the loss of power.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_survives_power(pool: *const Pool) -> bool {
    raw::of("pool", pool).is_ok_and(|pool| pool.engine.durability() == Durability::System)
}

/// Gives the use of space of the pool's first namespace.
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

/// Sets the most that values may take in the pool's first namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_resize(pool: *const Pool, size: u64) -> Status {
    guard(|| raw::of("pool", pool)?.engine.namespace(FIRST)?.resize(size))
}

/// Adds a device to a pool. Other processes find it when they next need room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_add_device(
    pool: *const Pool,
    path: *const c_char,
    force: bool,
) -> Status {
    guard(|| raw::of("pool", pool)?.engine.add_device(raw::path("path", path)?, force))
}

/// Checks all of a pool, and lists its problems. The list of a sound pool is empty. A pool that
/// cannot be checked at all is an error.
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
