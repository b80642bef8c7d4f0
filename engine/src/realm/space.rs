//! Space: reserving it, growing the arena, giving it back, and the accounts.
//!
//! A reservation looks for space in this order: free extents (after reclaiming what the floor
//! allows); what only waits for look-ups that run this instant; what dead processes had reserved;
//! new spans, up to the realm's size and the devices' room; and then it is `PoolFullError`, which
//! names who holds the space. Nothing but rows changes under the writer lock.

use std::sync::Arc;

use crate::catalog::{Headroom, ReadTxn, Table, WriteTxn};
use crate::error::Result;
use crate::extent::{
    Claim, Extent, HUGE, PAGE, SIZE_MAX, Span, Wanted, allocate, end_reservation, extent_len,
    freed_row, pending_rows, reclaim, reserve_row, round_up,
};
use crate::fail;
use crate::faults::step;
use crate::media::memory::Memory;
use crate::realm::core::{Core, Inside, lock};
use crate::realm::spans::ranges_of;
use crate::rows::{Reserved, Snapshot};

/// Keys of `meta`.
pub(crate) const USED: &[u8] = b"used";
pub(crate) const LIMIT: &[u8] = b"limit";
pub(crate) const NEXT_ID: &[u8] = b"next_id";

/// How many freed extents one reservation looks at before it looks at all of them.
const RECLAIM_ROWS: usize = 256;
/// How often a reservation asks again for space that running look-ups hold.
const WAITS_MAX: u32 = 64;

/// A number in `meta`.
pub(crate) fn meta_u64(value: Option<&[u8]>) -> Result<u64> {
    match value.map(<[u8; 8]>::try_from) {
        None => Ok(0),
        Some(Ok(bytes)) => Ok(u64::from_le_bytes(bytes)),
        Some(Err(_)) => fail!(Corrupt, "a number in `meta` does not have 8 bytes"),
    }
}

/// The realm's size: the bound of its arena.
pub(crate) fn read_limit(txn: &ReadTxn<'_>) -> Result<u64> {
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

impl Core {
    /// Reserves space for `nbytes` and claims it. On error nothing is reserved.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        nbytes: u64,
        device: Option<u32>,
    ) -> Result<(Reserved, Claim)> {
        let inside = self.enter()?;
        if nbytes > SIZE_MAX {
            let limit = read_limit(&inside.read()?)?;
            return Err(self.full(&inside, nbytes, limit));
        }
        self.take_back_left(&inside)?;
        let len = extent_len(nbytes);
        let mut waits = 0;
        let mut dead_asked = false;
        loop {
            match self.try_reserve(&inside, &[len], device)? {
                Attempt::Reserved(extents, age) => {
                    let extent = extents[0];
                    let reserved = Reserved { extent, lease: inside.lease().id() };
                    step!("reserve.committed");
                    return match self.hold(&inside, extent, age) {
                        Ok(claim) => Ok((reserved, claim)),
                        Err(error) => {
                            drop(inside);
                            self.give_back(reserved);
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
                    self.take_back_dead(&inside)?;
                }
                Attempt::Short { arena_end, .. } => self.grow(&inside, len, device, arena_end)?,
            }
        }
    }

    /// Pins an extent that is reserved for us, and attaches its memory.
    pub(super) fn hold(
        self: &Arc<Self>,
        inside: &Inside<'_>,
        extent: Extent,
        age: u64,
    ) -> Result<Claim> {
        self.reach(inside, extent.end())?;
        let hold = inside.lease().pin(extent.offset, age);
        step!("reserve.pinned");
        Ok(Claim::new(self, extent, hold, inside.arena().memory(extent)))
    }

    /// Reserves space of these lengths, of which there is at least one, for as many as there is.
    pub(super) fn try_reserve(
        &self,
        inside: &Inside<'_>,
        lens: &[u64],
        device: Option<u32>,
    ) -> Result<Attempt> {
        let warm = self.warm(lens[0]);
        let lease = inside.lease().id();
        let within = device.map(|device| ranges_of(inside, device)).transpose()?;
        let wanted = Wanted { len: 0, warm: &warm, within: within.as_deref() };
        self.commit(inside, Headroom::Normal, |rows| {
            let txn = rows.txn();
            let mut waiting = 0;
            if some_freed(txn)? {
                let mut peers = lock(&self.peers);
                let epoch = || inside.catalog().growth().lease_epoch();
                let own = inside.own_leases().map(crate::lease::Lease::file);
                let floor = peers.floor(&self.setup.leases(), epoch, lease, &own)?;
                let mut resume = lock(&self.resume);
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

    /// Copies a value of another realm into space that is reserved here, and flushes it (P1). Both
    /// extents are kept: the one by its record, the other by its reservation.
    pub(crate) fn copy_in(
        &self,
        from: &Core,
        extent: Extent,
        place: Reserved,
        nbytes: u64,
    ) -> Result<()> {
        let (from, to) = (from.memory_at(extent)?, self.memory_at(place.extent)?);
        to.copy(&from, nbytes);
        self.flush_extent(place.extent, nbytes)
    }

    fn memory_at(&self, extent: Extent) -> Result<Memory> {
        let inside = self.enter()?;
        self.reach(&inside, extent.end())?;
        Ok(inside.arena().memory(extent))
    }

    /// Attaches the spans up to `end`.
    pub(crate) fn reach(&self, inside: &Inside<'_>, end: u64) -> Result<()> {
        let txn = inside.read()?;
        self.reach_in(inside, end, &txn)
    }

    /// The same, by the rows of a snapshot.
    pub(crate) fn reach_in(&self, inside: &Inside<'_>, end: u64, txn: &ReadTxn<'_>) -> Result<()> {
        inside.arena().reach(end, &mut Snapshot(txn), |span| {
            let writable = !self.setup.immutable && !self.is_closed(*span)?;
            Ok((self.open_span(*span, writable)?, writable))
        })
    }

    /// Gives a reservation back, if it is this process's own; a child's copy gives nothing.
    pub(crate) fn give_back(&self, reserved: Reserved) {
        let Ok(inside) = self.enter() else { return };
        if inside.lease().id() != reserved.lease {
            return;
        }
        // On an error the reservation returns with the lease.
        let _ = self.commit(&inside, Headroom::Relief, |rows| {
            end_reservation(rows.txn(), reserved.lease, reserved.extent)?;
            step!("give_back.ended");
            freed_row(rows.txn(), reserved.extent)
        });
        step!("give_back.committed");
    }

    /// Makes an extent's bytes durable, where the realm promises that.
    pub(crate) fn flush_extent(&self, extent: Extent, nbytes: u64) -> Result<()> {
        let inside = self.enter()?;
        if !self.setup.durable {
            return Ok(());
        }
        inside.arena().flush(extent, nbytes).inspect_err(|_| inside.catalog().poison())
    }

    /// Writes every span back.
    pub(crate) fn sync_spans(&self, inside: &Inside<'_>) -> Result<()> {
        let spans = {
            let txn = inside.read()?;
            Span::all(&mut Snapshot(&txn))?
        };
        let end = spans.last().map_or(0, |last| last.range.end());
        if end == 0 {
            return Ok(());
        }
        self.reach(inside, end)?;
        inside.arena().flush(Extent { offset: 0, len: end }, end)
    }

    /// Sets the bound of the arena; where that is below what it has, this is refused, or it is
    /// what it has.
    pub(crate) fn resize(&self, size: u64, as_can_be: bool) -> Result<()> {
        let inside = self.enter()?;
        crate::pool::check_size(size)?;
        let size = round_up(size, HUGE);
        let reserved = inside.arena().reserved();
        if size > reserved {
            fail!(
                Argument,
                "size {size} is beyond the {reserved} bytes of addresses reserved at open: close \
                 the pool everywhere and open it again after a smaller resize, or make a new pool"
            );
        }
        self.commit(&inside, Headroom::Relief, |rows| {
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
    pub(crate) fn space(&self) -> Result<Space> {
        let inside = self.enter()?;
        let mut pids = self.others_of(&inside)?;
        pids.push(std::process::id());
        let txn = inside.read()?;
        let arena = Span::all(&mut Snapshot(&txn))?.last().map_or(0, |last| last.range.end());
        let used = meta_u64(txn.get(Table::Meta, USED)?)?;
        let pending = pending_rows(&txn)?.iter().map(|(_, extent)| extent.len).sum::<u64>();
        Ok(Space {
            size: read_limit(&txn)?,
            arena,
            used,
            free: arena.saturating_sub(used + pending),
            pending,
            largest_free: txn
                .last(Table::ExtentsBySize)?
                .map(|(key, _)| crate::extent::parse_size_key(&key))
                .transpose()?
                .map_or(0, |largest| largest.len),
            catalog: inside.catalog().growth().allocated_pages() * PAGE,
            pids,
            views: inside.own_leases().map(|lease| lease.pinned() as u64).sum(),
        })
    }
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
