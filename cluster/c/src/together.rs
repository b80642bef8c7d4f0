//! Publishing together: what several processes make, and one of them publishes.

use std::ffi::{c_char, c_void};
use std::ptr;

use engram_base::dtype::DType;
use engram_driver::error::{Error, Result};
use engram_driver::together::{Own, Together as Driven};
use engram_edge::error::c_string;
use engram_edge::raw;
use engram_parts::dtype;

use crate::cluster::Cluster;
use crate::status::{Status, guard};

/// A process's share in a publication.
pub struct Share {
    driven: Driven,
}

fn dtype_of(spec: *const c_char) -> Result<DType> {
    let text = raw::text("spec", spec)?;
    dtype::of_text(text).map_err(|_| {
        Error::Argument(format!("{text:?} is no type: give what engram_dtype_spec gives"))
    })
}

/// Texts of all processes, in the order of their places.
fn texts<'a>(what: &str, given: *const *const c_char, count: usize) -> Result<Vec<&'a str>> {
    let given = raw::slice(what, given, count)?;
    given.iter().map(|text| Ok(raw::text(what, *text)?)).collect()
}

/// Begins a publication, as its publisher: a share of place 0, and the token for the others, in a
/// string to be freed. The share is freed with `engram_share_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_begin(
    cluster: *const Cluster,
    token: *mut *mut c_char,
    share: *mut *mut Share,
) -> Status {
    guard(|| {
        let (token, share) = (raw::out("token", token)?, raw::out("share", share)?);
        let (text, driven) = Driven::begin(&raw::of("cluster", cluster)?.driven)?;
        token.set(c_string(text).into_raw());
        share.set(raw::give(Share { driven }));
        Ok(())
    })
}

/// Takes part in a publication, as the process of this place: each has another, from 1 on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_join(
    cluster: *const Cluster,
    token: *const c_char,
    place: u32,
    share: *mut *mut Share,
) -> Status {
    guard(|| {
        let out = raw::out("share", share)?;
        let token = raw::text("token", token)?;
        let driven = Driven::join(&raw::of("cluster", cluster)?.driven, token, place)?;
        out.set(raw::give(Share { driven }));
        Ok(())
    })
}

/// Declares an array: its name, type and shape. One process is enough. If several do so, they must
/// say the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_array(
    share: *const Share,
    path: *const c_char,
    spec: *const c_char,
    ndim: usize,
    shape: *const u64,
) -> Status {
    guard(|| {
        let (share, path) = (raw::of("share", share)?, raw::text("path", path)?);
        share.driven.array(path, &dtype_of(spec)?, raw::lengths("shape", shape, ndim)?)
    })
}

/// Stores a box of an array in this host's node pool. A box within one that this process has stored
/// is written in place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_store(
    share: *const Share,
    path: *const c_char,
    spec: *const c_char,
    ndim: usize,
    offsets: *const u64,
    counts: *const u64,
    data: *const c_void,
    nbytes: usize,
) -> Status {
    guard(|| {
        let (share, path) = (raw::of("share", share)?, raw::text("path", path)?);
        let offsets = raw::lengths("offsets", offsets, ndim)?;
        let counts = raw::lengths("counts", counts, ndim)?;
        let data = raw::bytes("data", data, nbytes)?;
        share.driven.store(path, &dtype_of(spec)?, offsets, counts, data)
    })
}

/// Stores an array as a whole, or a single value, which has no dimensions. Of several processes
/// that do so, the first one's counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_put(
    share: *const Share,
    path: *const c_char,
    spec: *const c_char,
    ndim: usize,
    shape: *const u64,
    data: *const c_void,
    nbytes: usize,
) -> Status {
    guard(|| {
        let (share, path) = (raw::of("share", share)?, raw::text("path", path)?);
        let shape = raw::lengths("shape", shape, ndim)?;
        share.driven.put(path, &dtype_of(spec)?, shape, raw::bytes("data", data, nbytes)?)
    })
}

/// Reads a box of what this process has stored, and not published yet. `found` is 0 where it makes
/// no such array, 1 where the box was copied, and 2 where it has stored less than the box.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_load(
    share: *const Share,
    path: *const c_char,
    spec: *const c_char,
    ndim: usize,
    offsets: *const u64,
    counts: *const u64,
    data: *mut c_void,
    nbytes: usize,
    found: *mut i32,
) -> Status {
    guard(|| {
        let (found, share) = (raw::out("found", found)?, raw::of("share", share)?);
        let offsets = raw::lengths("offsets", offsets, ndim)?;
        let counts = raw::lengths("counts", counts, ndim)?;
        let (path, out) = (raw::text("path", path)?, raw::bytes_mut("data", data, nbytes)?);
        let own = share.driven.load(path, &dtype_of(spec)?, offsets, counts, out)?;
        found.set(match own {
            Own::None => 0,
            Own::Copied => 1,
            Own::Part => 2,
        });
        Ok(())
    })
}

/// Gives the dims of an array that this process makes and has said them of. `ndim` is -1 where it
/// has not; no more than `most` are written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_dims(
    share: *const Share,
    path: *const c_char,
    ndim: *mut i32,
    dims: *mut u64,
    most: usize,
) -> Status {
    guard(|| {
        let (ndim, share) = (raw::out("ndim", ndim)?, raw::of("share", share)?);
        let shape = share.driven.known(raw::text("path", path)?).and_then(|(_, shape)| shape);
        let Some(shape) = shape else {
            ndim.set(-1);
            return Ok(());
        };
        for (at, length) in shape.iter().enumerate().take(if dims.is_null() { 0 } else { most }) {
            // SAFETY: by the conventions `most` places are the caller's.
            unsafe { ptr::write(dims.add(at), *length) };
        }
        ndim.set(shape.len() as i32);
        Ok(())
    })
}

/// Gives up what this process makes of an array; `was_there` says whether there was anything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_drop(
    share: *const Share,
    path: *const c_char,
    was_there: *mut bool,
) -> Status {
    guard(|| {
        let (out, share) = (raw::out("was_there", was_there)?, raw::of("share", share)?);
        out.set(share.driven.drop_array(raw::text("path", path)?)?);
        Ok(())
    })
}

/// Gives what this process has made, for the publisher, in a string to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_told(share: *const Share, told: *mut *mut c_char) -> Status {
    guard(|| {
        let (out, share) = (raw::out("told", told)?, raw::of("share", share)?);
        out.set(c_string(share.driven.told()?).into_raw());
        Ok(())
    })
}

/// As the publisher: gives the plan for what all processes have told, in the order of their places:
/// a line for each, all of them in a string to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_plan(
    share: *const Share,
    count: usize,
    told: *const *const c_char,
    plan: *mut *mut c_char,
) -> Status {
    guard(|| {
        let (out, share) = (raw::out("plan", plan)?, raw::of("share", share)?);
        out.set(c_string(share.driven.plan(&texts("told", told, count)?)?).into_raw());
        Ok(())
    })
}

/// Seals this process's parts as its line of the plan has them, and gives what they sum up to, for
/// the publisher, in a string to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_seal(
    share: *const Share,
    line: *const c_char,
    sealed: *mut *mut c_char,
) -> Status {
    guard(|| {
        let (out, share) = (raw::out("sealed", sealed)?, raw::of("share", share)?);
        out.set(c_string(share.driven.seal(raw::text("line", line)?)?).into_raw());
        Ok(())
    })
}

/// As the publisher: publishes what was planned and is sealed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_publish(
    share: *const Share,
    count: usize,
    told: *const *const c_char,
    plan: *const c_char,
    sealed: *const *const c_char,
) -> Status {
    guard(|| {
        let (share, plan) = (raw::of("share", share)?, raw::text("plan", plan)?);
        let (told, sealed) = (texts("told", told, count)?, texts("sealed", sealed, count)?);
        share.driven.publish(&told, plan, &sealed)
    })
}

/// Ends and frees a share. With `is_published`, what this process has stored stays; otherwise its
/// space is given back. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_share_free(share: *mut Share, is_published: bool) {
    if let Some(share) = raw::take(share) {
        if is_published {
            share.driven.end();
        } else {
            share.driven.give_back();
        }
    }
}
