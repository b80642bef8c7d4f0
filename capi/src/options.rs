//! How something is made, beyond its type and shape: what most callers leave at NULL.

use std::ffi::{c_char, c_int};
use std::path::PathBuf;

use engram::{Codec, CreateOptions, Durability, IndexMode, Layout, Placement, Result, chunks_for};

use crate::error::{Status, guard};
use crate::raw::{self, argument};

/// How a pool is made.
#[derive(Default)]
pub struct PoolOptions {
    pub(crate) engine: CreateOptions,
}

/// What a pool must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Survives {
    /// As much as the filesystem allows: on tmpfs the death of any process, on others the loss of
    /// power.
    Auto = 0,
    /// The death of any process.
    Process = 1,
    /// The loss of power, too.
    System = 2,
}

/// How an array or a blob is made.
#[derive(Default)]
pub struct Options {
    pub(crate) placement: Placement,
    pub(crate) dims: Option<Vec<String>>,
    pub(crate) unset: bool,
    chunks: Option<(Vec<u64>, Codec)>,
}

impl Options {
    /// How an array of this shape is to lie, of items of so many bytes.
    pub(crate) fn layout(&self, shape: &[u64], item: u64) -> Layout {
        match &self.chunks {
            None => Layout::Contiguous,
            Some((chunks, codec)) => {
                let chunks =
                    if chunks.is_empty() { chunks_for(shape, item) } else { chunks.clone() };
                Layout::Chunked { chunks, codec: *codec }
            }
        }
    }
}

/// When the attributes of an object are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Indexing {
    /// As the object's group says.
    Inherited = 0,
    /// In the commit that makes the object.
    Sync = 1,
    /// Soon after that commit.
    Async = 2,
    /// Never: queries find the object by its built-in fields only.
    Never = 3,
}

// C gives numbers, which may be any.
const AUTO: c_int = Survives::Auto as c_int;
const PROCESS: c_int = Survives::Process as c_int;
const SYSTEM: c_int = Survives::System as c_int;
const INHERITED: c_int = Indexing::Inherited as c_int;
const SYNC: c_int = Indexing::Sync as c_int;
const ASYNC: c_int = Indexing::Async as c_int;
const NEVER: c_int = Indexing::Never as c_int;

/// Gives new options for `engram_pool_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_options_new(options: *mut *mut PoolOptions) -> Status {
    guard(|| {
        raw::out("options", options)?.set(raw::give(PoolOptions::default()));
        Ok(())
    })
}

/// Sets what the pool must survive: one of `ENGRAM_SURVIVES_...`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_options_survives(
    options: *mut PoolOptions,
    survives: c_int,
) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.engine.durability = match survives {
            AUTO => None,
            PROCESS => Some(Durability::Process),
            SYSTEM => Some(Durability::System),
            other => return Err(argument(format!("survives is {other}: give 0, 1 or 2"))),
        };
        Ok(())
    })
}

/// Adds a device beside the pool's own path: a folder on another filesystem, or a devdax node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_options_add_device(
    options: *mut PoolOptions,
    path: *const c_char,
) -> Status {
    guard(|| {
        let path: PathBuf = raw::path("path", path)?.to_owned();
        raw::of_mut("options", options)?.engine.devices.push(path);
        Ok(())
    })
}

/// Sets the POSIX mode of the pool's first namespace, such as 0770. If it is not set, the namespace
/// is for its owner alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_options_mode(options: *mut PoolOptions, mode: u32) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.engine.mode = Some(mode);
        Ok(())
    })
}

/// Sets whether all space is taken from the kernel and mapped now, so that later writes need not
/// wait for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_options_prefault(
    options: *mut PoolOptions,
    on: bool,
) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.engine.prefault = on;
        Ok(())
    })
}

/// Sets whether each value has a checksum, which `engram_pool_verify` compares.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_options_checksums(
    options: *mut PoolOptions,
    on: bool,
) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.engine.checksums = on;
        Ok(())
    })
}

/// Sets whether copies run at the speed of persistent memory. This is for evaluation only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_options_emulate_pmem(
    options: *mut PoolOptions,
    on: bool,
) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.engine.emulated = on;
        Ok(())
    })
}

/// Sets whether a filesystem that is not on Engram's list is accepted. A network filesystem never
/// is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_options_force(options: *mut PoolOptions, on: bool) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.engine.force = on;
        Ok(())
    })
}

/// Frees options. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_pool_options_free(options: *mut PoolOptions) {
    drop(raw::take(options));
}

/// Gives new options for functions that make arrays and blobs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_options_new(options: *mut *mut Options) -> Status {
    guard(|| {
        raw::out("options", options)?.set(raw::give(Options::default()));
        Ok(())
    })
}

/// Sets whether something that has the name already is replaced, in the same commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_options_overwrite(options: *mut Options, on: bool) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.placement.overwrite = on;
        Ok(())
    })
}

/// Sets whether the values of a new array are unset instead of zeros. Unset values show what the
/// pool's user has stored there before. Making the array is faster then; use it if you will write
/// all of its values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_options_unset(options: *mut Options, on: bool) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.unset = on;
        Ok(())
    })
}

/// Sets whether the object is read-only from the beginning. This is a hint that protects against
/// mistakes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_options_read_only(options: *mut Options, on: bool) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.placement.read_only = on;
        Ok(())
    })
}

/// Sets when the object's attributes are indexed: one of `ENGRAM_INDEXING_...`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_options_indexing(options: *mut Options, indexing: c_int) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.placement.index = indexing_of(indexing)?;
        Ok(())
    })
}

/// When to index, which C gives as a number; `None` as the group says.
pub(crate) fn indexing_of(indexing: c_int) -> Result<Option<IndexMode>> {
    match indexing {
        INHERITED => Ok(None),
        SYNC => Ok(Some(IndexMode::Sync)),
        ASYNC => Ok(Some(IndexMode::Async)),
        NEVER => Ok(Some(IndexMode::None)),
        other => Err(argument(format!("indexing is {other}: give 0, 1, 2 or 3"))),
    }
}

/// Keeps an array in chunks of this shape, each encoded on its own, so that the array can grow and
/// shrink. If `ndim` is 0, Engram chooses the shape. The codec is "none", "lz4", "zstd" or
/// "zstd:9"; "shuffle+" may stand before each but "none". NULL means "none". Such an array has no
/// view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_options_chunks(
    options: *mut Options,
    ndim: usize,
    chunks: *const u64,
    codec: *const c_char,
) -> Status {
    guard(|| {
        let codec = raw::text_or("codec", codec, "none")?.parse()?;
        let chunks = raw::lengths("chunks", chunks, ndim)?.to_vec();
        raw::of_mut("options", options)?.chunks = Some((chunks, codec));
        Ok(())
    })
}

/// Sets the names of an array's dimensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_options_dims(
    options: *mut Options,
    ndim: usize,
    names: *const *const c_char,
) -> Status {
    guard(|| {
        let names = raw::lengths("names", names, ndim)?;
        let names = names.iter().map(|name| raw::text("a dimension's name", *name));
        let dims = names.map(|name| name.map(str::to_owned)).collect::<Result<_>>()?;
        raw::of_mut("options", options)?.dims = Some(dims);
        Ok(())
    })
}

/// Frees options. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_options_free(options: *mut Options) {
    drop(raw::take(options));
}
