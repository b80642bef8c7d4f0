//! Storing and loading boxes of arrays through the view, with no copy but the one.
//!
//! Many processes store disjoint boxes of one array at once: nobody takes a lock, and nobody asks
//! another. As with every write in place, another process may see half of one.
//!
//! Where the pool says that what it has survives a loss of power, a box that was stored does, on
//! return. How it gets there is the caller's choice ([`Flush`]).

use std::time::Duration;
use std::{iter, thread};

use super::retry::Doing;
use engram_base::id::Member;

use super::Namespace;
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::id::Oid;
use engram_base::slab::Slab;
use engram_base::threads;
use engram_realm::view::View;
use engram_realm::{Payload, gone_is_busy};
use engram_records::layout::Layout;
use engram_records::object::{Class, ObjectInfo};

/// How often a write that has begun is tried again, and how long after, while the object is busy:
/// some of it may have been written, so it is not given up lightly.
const PATIENCE: (u32, Duration) = (1000, Duration::from_millis(1));

/// What is copied at once where each piece is made durable before the next: sixteen pages.
const PIECE: usize = 64 << 10;

/// When what is stored in bulk is made durable, where the pool promises that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// Once, after all of it has been copied (pMEMCPY's mode A).
    #[default]
    Once,
    /// Piece by piece, as it is copied (pMEMCPY's mode B, which is what `MAP_SYNC` gave).
    AsWritten,
}

/// See [`Namespace::load_slab`].
pub(super) fn load_slab(
    namespace: &Namespace,
    oid: Oid,
    offsets: &[u64],
    counts: &[u64],
    out: &mut [u8],
) -> Result<()> {
    let info = namespace.object(oid)?;
    if info.layout != Layout::Contiguous {
        return load_box(namespace, oid, offsets, counts, out);
    }
    let (slab, item) = boxed(&info, offsets, counts, out.len())?;
    match namespace.payload(oid)?.0 {
        Payload::Extent(view) => {
            check_length(&info, &slab, item, view.len())?;
            load(&view, &slab, item, out);
        }
        Payload::Inline(bytes) => {
            check_length(&info, &slab, item, bytes.len())?;
            for run in slab.runs(item) {
                let from = &bytes[run.array as usize..][..run.len as usize];
                out[run.buffer as usize..][..run.len as usize].copy_from_slice(from);
            }
        }
    }
    Ok(())
}

/// See [`Namespace::store_slab`].
pub(super) fn store_slab(
    namespace: &Namespace,
    oid: Oid,
    offsets: &[u64],
    counts: &[u64],
    data: &[u8],
    flush: Flush,
) -> Result<()> {
    let info = namespace.object(oid)?;
    if info.layout != Layout::Contiguous {
        return store_box(namespace, oid, offsets, counts, data);
    }
    let (slab, item) = boxed(&info, offsets, counts, data.len())?;
    let mut patience = 0;
    // No `retry`: some of what is begun again may have been written, so that it waits for a mover
    // that lives.
    loop {
        let (payload, place) = match namespace.view_in_place(oid) {
            Ok(opened) => opened,
            Err(error) if error.kind() == Kind::Busy && patience > 0 => {
                patience -= 1;
                thread::sleep(PATIENCE.1);
                continue;
            }
            Err(error) => return Err(gone_is_busy(error)),
        };
        // An empty value stays in its row.
        let Payload::Extent(view) = payload else { return Ok(()) };
        check_length(&info, &slab, item, view.len())?;
        store(&view, &slab, item, data, flush)?;
        if place.held().map_err(gone_is_busy)? {
            return Ok(());
        }
        patience = PATIENCE.0;
    }
}

/// The box, and the bytes of an item.
fn boxed(info: &ObjectInfo, offsets: &[u64], counts: &[u64], given: usize) -> Result<(Slab, u64)> {
    let slab = match info.class {
        Class::Blob => Slab::new(&[info.nbytes], offsets, counts),
        Class::Array => Slab::new(&info.shape, offsets, counts),
        _ => fail!(
            Argument,
            "{:?} has strings of variable length, which have no parts in place: load it whole",
            info.name
        ),
    };
    let slab = slab.map_err(|error| error.context(format!("{:?}", info.name)))?;
    let item = info.dtype.itemsize();
    let wanted = slab.elements() * item;
    if wanted != given as u64 {
        fail!(
            Argument,
            "{:?}: counts {counts:?} of {item}-byte items take {wanted} bytes, {given} were given",
            info.name
        );
    }
    Ok((slab, item))
}

/// A record and its value were looked at one after the other: they must agree.
fn check_length(info: &ObjectInfo, slab: &Slab, item: u64, nbytes: usize) -> Result<()> {
    if slab.shape().iter().product::<u64>() * item != nbytes as u64 {
        fail!(Busy, "{:?} was changed meanwhile: try again", info.name);
    }
    Ok(())
}

/// Copies a box out of a view, in C order.
fn load(view: &View, slab: &Slab, item: u64, out: &mut [u8]) {
    threads::copy_into(out, |start, part| {
        for run in slab.runs_in(item, start..start + part.len() as u64) {
            let to = &mut part[run.buffer as usize..][..run.len as usize];
            view.copy_out(run.array, to);
        }
    });
}

/// Copies a box into a view, and makes it durable if the pool says so.
fn store(view: &View, slab: &Slab, item: u64, data: &[u8], flush: Flush) -> Result<()> {
    if flush == Flush::Once {
        threads::copy_from(data, |start, part| {
            for run in slab.runs_in(item, start..start + part.len() as u64) {
                let from = &part[run.buffer as usize..][..run.len as usize];
                view.write_at(run.array, from);
            }
        });
        return view.flush(slab.runs(item).map(|run| (run.array, run.len)));
    }
    for run in slab.runs(item) {
        let mut at = run.array;
        for piece in data[run.buffer as usize..][..run.len as usize].chunks(PIECE) {
            view.write_at(at, piece);
            view.flush(iter::once((at, piece.len() as u64)))?;
            at += piece.len() as u64;
        }
    }
    Ok(())
}

fn load_box(
    namespace: &Namespace,
    oid: Oid,
    offsets: &[u64],
    counts: &[u64],
    out: &mut [u8],
) -> Result<()> {
    // Run again where the array moves meanwhile, so the buffer is lent each time.
    let out = std::cell::RefCell::new(out);
    namespace.in_owning_realm(Member::Object(oid), |realm| {
        realm.load_box(oid, offsets, counts, &mut out.borrow_mut())
    })
}

fn store_box(
    namespace: &Namespace,
    oid: Oid,
    offsets: &[u64],
    counts: &[u64],
    data: &[u8],
) -> Result<()> {
    namespace.write_in_owning_realm(Member::Object(oid), Doing::Changing, |realm| {
        realm.store_box(oid, offsets, counts, data)
    })
}
