//! Space: reserving it, growing the arena, giving it back, and the accounts.
//!
//! A reservation looks for space in this order: free extents (after reclaiming what the floor
//! allows); what only waits for look-ups that run this instant; what dead processes had reserved;
//! vacant pages (`vacant`); new spans, up to the realm's size and the devices' room; and then it is
//! `PoolFullError`, which names who holds the space. Only rows change under the writer lock.

use crate::realm::ahead;
use crate::realm::checked;
use crate::realm::dead;
use crate::realm::holders;
use crate::realm::spans;
use crate::realm::vacant;
use std::sync::Arc;

use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::spans::ranges_of;
use crate::view::Claim;
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::mutex::lock;
use engram_base::threads::each;
use engram_catalog::meta::meta_u64;
use engram_catalog::{Headroom, ReadTxn, Table, WriteTxn};
use engram_media::memory::Memory;
use engram_ops::rows_mut::Reserved;
use engram_records::extent::{Extent, HUGE, LINE, PAGE, SIZE_MAX, extent_len, round_up};
use engram_space::extent::{
    Floor, FreedOf, Span, Wanted, allocate, end_reservation, freed_row, pending_rows, reclaim,
    reserve_row, vacant_rows,
};
use engram_space::lease::Lease;

/// The key in `meta` of the bytes that extents in use have, which each commit brings up to date.
pub const USED: &[u8] = b"used";
/// The key in `meta` of the most bytes that the arena may grow to.
pub const LIMIT: &[u8] = b"limit";
/// The key in `meta` of the counter's value in the next id that is given out.
pub const NEXT_ID: &[u8] = b"next_id";

/// How many freed extents one reservation looks at before it looks at all of them.
const RECLAIM_ROWS: usize = 256;
/// So many bytes of a value are copied before its copier is asked whether to go on.
const COPY_BYTES: u64 = 64 << 20;
/// One thread copies so many of these at a time.
const PIECE_BYTES: u64 = 4 << 20;
/// How often a reservation asks again for space that running look-ups hold.
const WAITS_MAX: u32 = 64;

/// The realm's size: the bound of its arena.
pub fn read_limit(txn: &ReadTxn<'_>) -> Result<u64> {
    meta_u64(txn.get(Table::Meta, LIMIT)?)
}

/// Where a realm's space is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The bound of the arena, in bytes.
    pub size: u64,
    /// What spans fill so far.
    pub arena: u64,
    /// What objects take.
    pub used: u64,
    /// What is free in the spans.
    pub free: u64,
    /// What is reserved, or freed and still in somebody's view.
    pub pending: u64,
    /// What is free, and has no blocks: they were given back to the filesystem when it was full.
    pub vacant: u64,
    /// The largest free extent.
    pub largest_free: u64,
    /// What the catalog has allocated.
    pub catalog: u64,
    /// The pids that have the realm open.
    pub pids: Vec<u32>,
    /// How many extents this process views.
    pub views: u64,
}

/// What trying to reserve found.
pub(super) enum Attempt {
    /// For the first of what was asked for, as many as there is space for: at least one.
    Reserved(Vec<Extent>, u64),
    /// No room; how much only waits for running look-ups, and where the arena ends.
    Short { waiting: u64, arena_end: u64 },
}

/// Reserves space for `nbytes` and claims it. On error nothing is reserved.
pub fn reserve(core: &Arc<Core>, nbytes: u64, device: Option<u32>) -> Result<(Reserved, Claim)> {
    match reserve_besides(core, nbytes, device) {
        // What this thread's batch holds ready is for other lengths.
        Err(error) if error.kind() == Kind::PoolFull && ahead::give_up(core) => {
            reserve_besides(core, nbytes, device)
        }
        reserved => reserved,
    }
}

/// The same, besides what this thread's batch holds ready.
fn reserve_besides(
    core: &Arc<Core>,
    nbytes: u64,
    device: Option<u32>,
) -> Result<(Reserved, Claim)> {
    let inside = core.enter()?;
    if nbytes > SIZE_MAX {
        let limit = read_limit(&inside.read()?)?;
        return Err(holders::full(core, &inside, nbytes, limit));
    }
    dead::take_back_left(core, &inside)?;
    let len = extent_len(nbytes);
    let mut waits = 0;
    let (mut dead_asked, mut vacated) = (false, false);
    loop {
        match try_reserve(core, &inside, &[len], device)? {
            Attempt::Reserved(extents, age) => {
                let extent = extents[0];
                let reserved = Reserved { extent, lease: inside.lease().id() };
                step!("reserve.committed");
                return match hold(core, &inside, extent, age) {
                    Ok(claim) => Ok((reserved, claim)),
                    Err(error) => {
                        drop(inside);
                        give_back(core, reserved);
                        Err(error)
                    }
                };
            }
            Attempt::Short { waiting, .. } if waiting >= len && waits < WAITS_MAX => {
                waits += 1;
                std::thread::yield_now();
            }
            Attempt::Short { .. } if !dead_asked => {
                dead_asked = true;
                dead::take_back_dead(core, &inside)?;
            }
            Attempt::Short { .. } if vacant::occupy_run(core, &inside, len, device)? => {}
            Attempt::Short { arena_end, .. } => {
                grow_or_vacate(core, &inside, Asked { len, device, arena_end }, &mut vacated)?;
            }
        }
    }
}

/// Space that is asked for and not free.
#[derive(Clone, Copy)]
struct Asked {
    len: u64,
    device: Option<u32>,
    /// Where the arena ended then.
    arena_end: u64,
}

/// Grows the arena. Where the devices have no room for that, free pieces that are too small go back
/// to them, once.
fn grow_or_vacate(
    core: &Core,
    inside: &Inside<'_>,
    asked: Asked,
    vacated: &mut bool,
) -> Result<()> {
    let grown = spans::grow(core, inside, asked.len, asked.device, asked.arena_end);
    let Err(error) = grown else { return Ok(()) };
    if error.kind() != Kind::PoolFull || std::mem::replace(vacated, true) {
        return Err(error);
    }
    // Beyond the realm's size no filesystem helps.
    if read_limit(&inside.read()?)?.saturating_sub(asked.arena_end) < asked.len {
        return Err(error);
    }
    if vacant::vacate_all(core, inside)? == 0 { Err(error) } else { Ok(()) }
}

/// Pins an extent that is reserved for us, and attaches its memory.
pub(super) fn hold(
    core: &Arc<Core>,
    inside: &Inside<'_>,
    extent: Extent,
    age: u64,
) -> Result<Claim> {
    reach(core, inside, extent.end())?;
    let hold = inside.lease().pin(extent, age);
    step!("reserve.pinned");
    Ok(Claim::new(core, extent, hold, inside.arena().memory(extent)))
}

/// Reserves space of these lengths, of which there is at least one, for as many as there is.
pub(super) fn try_reserve(
    core: &Core,
    inside: &Inside<'_>,
    lens: &[u64],
    device: Option<u32>,
) -> Result<Attempt> {
    let warm = core.space.warm(lens[0]);
    let lease = inside.lease().id();
    let within = device.map(|device| ranges_of(inside, device)).transpose()?;
    let wanted = Wanted { len: 0, warm: &warm, within: within.as_deref() };
    core.prepare(inside, Headroom::Normal, |rows| {
        let txn = rows.txn();
        let mut waiting = 0;
        if some_freed(txn)? {
            let floor = floor(core, inside)?;
            let mut resume = lock(&core.space.resume);
            let first = reclaim(txn, &floor, *resume, RECLAIM_ROWS)?;
            *resume = first.resume;
            step!("reserve.reclaimed");
            waiting = first.waiting;
            let taken = take(txn, &wanted, lens, lease)?;
            if !taken.is_empty() {
                return Ok(Attempt::Reserved(taken, txn.id()));
            }
            let all = reclaim(txn, &floor, None, usize::MAX)?;
            waiting = waiting.max(all.waiting);
        }
        let taken = take(txn, &wanted, lens, lease)?;
        if !taken.is_empty() {
            return Ok(Attempt::Reserved(taken, txn.id()));
        }
        let arena_end = Span::all(rows)?.last().map_or(0, |last| last.range.end());
        Ok(Attempt::Short { waiting, arena_end })
    })
}

/// What live leases still look at. The caller holds the writer lock.
pub(super) fn floor(core: &Core, inside: &Inside<'_>) -> Result<Floor> {
    let mut peers = lock(&core.space.peers);
    let epoch = || inside.catalog().growth().lease_epoch();
    let own = inside.own_leases().map(Lease::file);
    peers.floor(&core.setup.leases(), epoch, inside.lease().id(), &own)
}

/// Copies a value of another realm into space that is reserved here, and flushes it (P1). Both
/// extents are kept: the one by its record, the other by its reservation.
pub fn copy_in(
    core: &Core,
    from: &Core,
    extent: Extent,
    place: Reserved,
    nbytes: u64,
) -> Result<()> {
    let (from, to) = (memory_at(from, extent)?, memory_at(core, place.extent)?);
    to.copy(&from, nbytes);
    flush_extent(core, place.extent, nbytes)
}

/// Copies a value of another realm, or of this one, into space that is reserved here, flushes it
/// (P1), and returns its checksum, if this realm keeps such. `told` hears of the bytes of each
/// piece, and may end it.
///
/// Both extents are kept: the one by a snapshot or a mark, the other by its reservation.
pub fn copy_value(
    core: &Core,
    from: &Core,
    value: (Extent, u64),
    place: Reserved,
    told: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<u64> {
    let (extent, nbytes) = value;
    let part = |extent: Extent, at: u64, len: u64| Extent {
        offset: extent.offset + at,
        len: len.next_multiple_of(LINE).min(extent.len - at),
    };
    let mut done = 0;
    while done < nbytes {
        let bytes = (nbytes - done).min(COPY_BYTES);
        let pieces = bytes.div_ceil(PIECE_BYTES) as usize;
        each(
            pieces,
            bytes as usize,
            || (),
            |(), nth| {
                let at = done + nth as u64 * PIECE_BYTES;
                let len = (done + bytes - at).min(PIECE_BYTES);
                let from = memory_at(from, part(extent, at, len))?;
                memory_at(core, part(place.extent, at, len))?.copy(&from, len);
                Ok(())
            },
        )?;
        done += bytes;
        told(bytes)?;
    }
    flush_extent(core, place.extent, nbytes)?;
    Ok(checked::checksum_of(core, &memory_at(core, place.extent)?, nbytes))
}

/// The memory of an extent that somebody keeps.
pub fn memory_at(core: &Core, extent: Extent) -> Result<Memory> {
    let inside = core.enter()?;
    reach(core, &inside, extent.end())?;
    Ok(inside.arena().memory(extent))
}

/// Attaches the spans up to `end`.
pub fn reach(core: &Core, inside: &Inside<'_>, end: u64) -> Result<()> {
    let txn = inside.read()?;
    reach_in(core, inside, end, &txn)
}

/// The same, by the rows of a snapshot.
pub fn reach_in(core: &Core, inside: &Inside<'_>, end: u64, txn: &ReadTxn<'_>) -> Result<()> {
    inside.arena().reach(end, &mut txn.rows(), |span| {
        let writable = !core.setup.immutable && !spans::is_closed(core, *span)?;
        if !writable {
            return Ok((spans::open_span(core, *span, None)?, false));
        }
        // As it is now, whatever the snapshot is of.
        let vacant = vacant::vacant_ranges(&inside.read()?, *span)?;
        let opened = match spans::open_span(core, *span, Some(&vacant)) {
            // More may have been vacated since this snapshot.
            Err(error) if error.kind() == Kind::PoolFull => {
                let vacant = vacant::vacant_ranges(&inside.read()?, *span)?;
                spans::open_span(core, *span, Some(&vacant))
            }
            opened => opened,
        };
        Ok((opened?, true))
    })
}

/// Gives a reservation back, if it is this process's own; a child's copy gives nothing.
pub fn give_back(core: &Core, reserved: Reserved) {
    give_all_back(core, &[reserved]);
}

/// The same of several, in one commit.
pub fn give_all_back(core: &Core, all: &[Reserved]) {
    if all.is_empty() {
        return;
    }
    let Ok(inside) = core.enter() else { return };
    let lease = inside.lease().id();
    let own: Vec<Extent> =
        all.iter().filter(|one| one.lease == lease).map(|one| one.extent).collect();
    if own.is_empty() {
        return;
    }
    // On an error the reservations return with the lease.
    let _ = core.commit(&inside, Headroom::Relief, |rows| {
        for extent in &own {
            end_reservation(rows.txn(), lease, *extent)?;
            step!("give_back.ended");
            freed_row(rows.txn(), *extent, FreedOf::Nothing)?;
        }
        Ok(())
    });
    step!("give_back.committed");
}

/// Makes an extent's bytes durable, where the realm promises that.
pub fn flush_extent(core: &Core, extent: Extent, nbytes: u64) -> Result<()> {
    let inside = core.enter()?;
    if !core.setup.durable {
        return Ok(());
    }
    inside.arena().flush(extent, nbytes).inspect_err(|_| inside.catalog().poison())
}

/// Writes every span back.
pub(crate) fn sync_spans(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let spans = {
        let txn = inside.read()?;
        Span::all(&mut txn.rows())?
    };
    let end = spans.last().map_or(0, |last| last.range.end());
    if end == 0 {
        return Ok(());
    }
    reach(core, inside, end)?;
    inside.arena().flush(Extent { offset: 0, len: end }, end)
}

/// Sets the bound of the arena; where that is below what it has, this is refused, or it is
/// what it has.
pub(crate) fn resize(core: &Core, size: u64, as_can_be: bool) -> Result<()> {
    let inside = core.enter()?;
    engram_space::extent::check_size(size)?;
    let size = round_up(size, HUGE);
    let reserved = inside.arena().reserved();
    if size > reserved {
        fail!(
            Argument,
            "size {size} is beyond the {reserved} bytes of addresses reserved at open: close \
             the pool everywhere and open it again after a smaller resize, or make a new pool"
        );
    }
    core.commit(&inside, Headroom::Relief, |rows| {
        let end = Span::all(rows)?.last().map_or(0, |last| last.range.end());
        let size = if as_can_be { size.max(end) } else { size };
        if size < end {
            fail!(
                Argument,
                "size {size} is below the {end} bytes that spans fill already; the smallest \
                 size now is {end}"
            );
        }
        rows.txn().put(Table::Meta, LIMIT, &size.to_le_bytes())
    })
}

/// The accounts.
pub(crate) fn space(core: &Core) -> Result<Space> {
    let inside = core.enter()?;
    let mut pids = dead::others_of(core, &inside)?;
    pids.push(std::process::id());
    let txn = inside.read()?;
    let arena = Span::all(&mut txn.rows())?.last().map_or(0, |last| last.range.end());
    let used = meta_u64(txn.get(Table::Meta, USED)?)?;
    let pending = pending_rows(&txn)?.iter().map(|row| row.extent.len).sum::<u64>();
    let vacant = vacant_rows(&txn)?.iter().map(|extent| extent.len).sum::<u64>();
    Ok(Space {
        size: read_limit(&txn)?,
        arena,
        used,
        free: arena.saturating_sub(used + pending + vacant),
        pending,
        vacant,
        largest_free: txn
            .last(Table::ExtentsBySize)?
            .map(|(key, _)| engram_space::extent::parse_size_key(key))
            .transpose()?
            .map_or(0, |largest| largest.len),
        catalog: inside.catalog().growth().allocated_pages() * PAGE,
        pids,
        views: inside.own_leases().map(|lease| lease.pinned() as u64).sum(),
    })
}

/// Reserves free extents of these lengths, up to the first that there is none for.
fn take(
    txn: &mut WriteTxn<'_>,
    wanted: &Wanted<'_>,
    lens: &[u64],
    lease: u64,
) -> Result<Vec<Extent>> {
    let mut taken = Vec::with_capacity(lens.len());
    for &len in lens {
        let Some(extent) = allocate(txn, &Wanted { len, ..*wanted })? else { break };
        reserve_row(txn, lease, extent)?;
        taken.push(extent);
    }
    Ok(taken)
}

/// Whether any extent waits to be reclaimed.
fn some_freed(txn: &WriteTxn<'_>) -> Result<bool> {
    Ok(txn.seek(Table::ExtentsPending, &[2])?.next()?.is_some())
}
