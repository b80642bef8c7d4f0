//! Space: reserving it, growing the arena, giving it back, and the accounts.
//!
//! A reservation looks for space in this order: free extents (after reclaiming what the floor
//! allows); what only waits for look-ups that run this instant; what dead processes had reserved;
//! new spans, up to the realm's size and the devices' room; and then it is `PoolFullError`, which
//! names who holds the space. Nothing but rows changes under the writer lock.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::{Headroom, ReadTxn, Table, WriteTxn};
use crate::error::{Error, Kind, Result};
use crate::extent::{
    Claim, Extent, Growing, HUGE, PAGE, SIZE_MAX, Span, Wanted, allocate, best_align,
    end_reservation, extent_len, freed_row, insert_free, pending_rows, reclaim, reserve_row,
    round_up,
};
use crate::fail;
use crate::faults::step;
use crate::folder;
use crate::media::memory::Memory;
use crate::media::{devdax, filesystem, span};
use crate::namespace;
use crate::pool::missing;
use crate::published;
use crate::realm::core::{Core, Inside, lock};
use crate::rows::{Reserved, Snapshot};
use crate::scope::Scope;

/// Keys of `meta`.
pub(crate) const USED: &[u8] = b"used";
pub(crate) const LIMIT: &[u8] = b"limit";
pub(crate) const NEXT_ID: &[u8] = b"next_id";

/// How many freed extents one reservation looks at before it looks at all of them.
const RECLAIM_ROWS: usize = 256;
/// How often a reservation asks again for space that running look-ups hold.
const WAITS_MAX: u32 = 64;
/// New spans are this part of the arena, within these bounds, if the devices have it.
const GROWTH_PART: u64 = 8;
const GROWTH_MIN: u64 = 16 << 20;
const GROWTH_MAX: u64 = 256 << 20;
/// Left on a device for the catalog and leases, whose rows make room.
const DEVICE_MARGIN: u64 = 1 << 20;

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

    /// Whether a span's file is published already. Who publishes more makes spans beside those, and
    /// the kernel lets nobody but root open these for writing.
    fn is_closed(&self, span: Span) -> Result<bool> {
        if self.setup.scope != Scope::Published {
            return Ok(false);
        }
        let path = self.span_path(span)?;
        let meta = std::fs::symlink_metadata(&path)
            .map_err(|e| Error::os(format!("looking at {}", path.display()), &e))?;
        Ok(meta.mode() & 0o222 == 0)
    }

    /// Opens what has the bytes of a span: its file, or the node that it is a range of.
    pub(crate) fn open_span(&self, span: Span, writable: bool) -> Result<File> {
        let path = self.span_path(span)?;
        if span.place == 0 {
            let opened = span::open(&path, span.range.len, writable);
            return opened.map_err(|error| {
                // Whoever has published a newer version may have taken it away.
                let outdated = self.setup.immutable && !published::is_newest(&self.setup.dir);
                if outdated { error } else { missing(&self.setup.pool, &self.setup.dir, error) }
            });
        }
        devdax::open(&path, &self.setup.label(), writable)
    }

    /// The file of a span; the node, if it is a range of one.
    pub(crate) fn span_path(&self, span: Span) -> Result<PathBuf> {
        let setup = &self.setup;
        let mut devices = lock(&self.devices);
        if devices.len() <= span.device as usize {
            *devices = crate::pool::PoolFile::read(&setup.pool)?.devices;
        }
        let Some(device) = devices.get(span.device as usize) else {
            fail!(
                Corrupt,
                "span {} lies on device {}, pool.toml lists {}: was it edited?",
                span.number,
                span.device,
                devices.len()
            )
        };
        if span.place != 0 {
            return Ok(device.clone());
        }
        let folder = setup.spans_on(device);
        setup.check_spans(&folder)?;
        Ok(folder.join(format!("span-{}", span.file)))
    }

    /// Appends spans so that `len` bytes fit, unless somebody else has since `arena_end` was read.
    fn grow(
        &self,
        inside: &Inside<'_>,
        len: u64,
        device: Option<u32>,
        arena_end: u64,
    ) -> Result<()> {
        let _growing = Growing::begin(&self.setup.dir)?;
        step!("grow.locked");
        let (spans, limit, tail) = {
            let txn = inside.read()?;
            let spans = Span::all(&mut Snapshot(&txn))?;
            let end = spans.last().map_or(0, |last| last.range.end());
            (spans, read_limit(&txn)?, tail_of(&txn, end)?)
        };
        let end = spans.last().map_or(0, |last| last.range.end());
        if end != arena_end {
            return Ok(());
        }
        let room = limit.min(inside.arena().reserved()).saturating_sub(end) / HUGE * HUGE;
        let tail = if device.is_none() { tail } else { end };
        let needed = [best_align(len), PAGE]
            .into_iter()
            .map(|align| round_up((round_up(tail, align) + len).saturating_sub(end), HUGE))
            .find(|&needed| needed <= room);
        let Some(needed) = needed else { return Err(self.full(inside, len, limit)) };
        let hoped = round_up(end / GROWTH_PART, HUGE).clamp(GROWTH_MIN, GROWTH_MAX);
        let hoped = hoped.max(needed).min(room);
        let mut number = spans.len() as u32;
        let mut grown = self.append(inside, &mut number, hoped.max(needed), needed, device)?;
        while grown < needed {
            grown += self.append(inside, &mut number, needed - grown, needed - grown, device)?;
        }
        Ok(())
    }

    /// Appends one span on the device with most room; returns its length, at most `hoped`.
    /// Refuses if the devices together have less room than `needed`.
    fn append(
        &self,
        inside: &Inside<'_>,
        number: &mut u32,
        hoped: u64,
        needed: u64,
        device: Option<u32>,
    ) -> Result<u64> {
        let devices = crate::pool::PoolFile::read(&self.setup.pool)?.devices;
        let (mut rooms, mut more) = (Vec::new(), 0);
        for (index, path) in devices.iter().enumerate() {
            if device.is_some_and(|wanted| wanted as usize != index) {
                continue;
            }
            let free = if !devdax::is_node(path) {
                filesystem::free_bytes(path)?.saturating_sub(DEVICE_MARGIN)
            } else if self.setup.has_nodes() {
                let gaps = gaps_on(inside, index as u32, path)?;
                let largest = gaps.iter().map(|gap| gap.len).max().unwrap_or(0);
                more += gaps.iter().map(|gap| gap.len).sum::<u64>() - largest;
                largest
            } else if device.is_none() {
                continue;
            } else {
                fail!(
                    Argument,
                    "device {index} is the devdax node {}, which is one file with one owner and \
                     mode: it serves the shared realm of namespace {:?} alone",
                    path.display(),
                    namespace::DEFAULT
                )
            };
            rooms.push((free / HUGE * HUGE, index as u32));
        }
        let total = distinct_room(&devices, &rooms)?.saturating_add(more);
        let Some(&(room, index)) =
            rooms.iter().max_by_key(|(room, index)| (*room, u32::MAX - index))
        else {
            fail!(Argument, "device {device:?} is not one of the pool's {}", devices.len())
        };
        if total < needed {
            fail!(
                PoolFull,
                "{needed} bytes more are needed, the pool's devices have {total} free: delete \
                 files there, or add a device (pool.add_device)"
            );
        }
        *lock(&self.devices) = devices;
        let made = self.make_span(inside, *number, index, hoped.min(room));
        let len = match made {
            Ok(len) => len,
            Err(error) if error.kind() == Kind::PoolFull && needed < hoped.min(room) => {
                self.make_span(inside, *number, index, needed)?
            }
            Err(error) => return Err(error),
        };
        *number += 1;
        // From here on the span is the realm's, whether this process can attach it or not.
        let end = Span::all(&mut Snapshot(&inside.read()?))?.last().map_or(0, |s| s.range.end());
        self.reach(inside, end)?;
        step!("grow.reached");
        Ok(len)
    }

    /// Allocates the file of a span, then commits its row with the space in it.
    fn make_span(&self, inside: &Inside<'_>, number: u32, device: u32, len: u64) -> Result<u64> {
        let setup = &self.setup;
        let file = {
            let spans = Span::all(&mut Snapshot(&inside.read()?))?;
            spans.iter().map(|span| span.file + 1).max().unwrap_or(0).max(number)
        };
        let range = Extent { offset: 0, len };
        let mut span = Span { number, device, range, file, place: 0 };
        let path = lock(&self.devices)[device as usize].clone();
        if devdax::is_node(&path) {
            let gap = gaps_on(inside, device, &path)?.into_iter().max_by_key(|gap| gap.len);
            let Some(gap) = gap.filter(|gap| gap.len >= len) else {
                fail!(PoolFull, "{} has no {len} bytes in one piece", path.display())
            };
            span.place = gap.offset;
            // Nobody else takes ranges of this node: it carries this realm's label, and whoever
            // grows the realm holds its growth lock.
            devdax::zero(&self.open_span(span, true)?, span.place, len)?;
            return self.add_span(inside, span);
        }
        let path = self.span_path(span)?;
        let _ = std::fs::remove_file(&path); // without a row: left by a crash
        let folder = path.parent().expect("a span lies in a folder");
        setup.make_for_spans(folder)?;
        let mount = filesystem::admit(folder, true)?;
        let file = span::create(&path, len, setup.file_mode, &mount)?;
        folder::hand_over(&file, &path).inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        self.add_span(inside, span).inspect_err(|_| {
            // A commit whose sync has failed may yet be seen: then the row needs its file.
            if !inside.catalog().poisoned() {
                drop(std::fs::remove_file(&path));
            }
        })
    }

    /// Commits the row of a span whose bytes are allocated, with the space in it.
    fn add_span(&self, inside: &Inside<'_>, mut span: Span) -> Result<u64> {
        step!("grow.made");
        self.commit(inside, Headroom::Relief, |rows| {
            span.range.offset = Span::all(rows)?.last().map_or(0, |last| last.range.end());
            rows.txn().put(Table::Spans, &Span::key(span.number), &span.to_row())?;
            insert_free(rows.txn(), span.range)
        })?;
        step!("grow.committed");
        Ok(span.range.len)
    }

    /// The bytes of a node that no span has.
    pub(crate) fn free_on_node(&self, device: u32, path: &Path) -> Result<u64> {
        let gaps = gaps_on(&self.enter()?, device, path)?;
        Ok(gaps.iter().map(|gap| gap.len).sum())
    }

    /// Makes the spans now that the realm may have, and maps every page (`prefault`).
    pub(crate) fn prefault(self: &Arc<Self>) -> Result<()> {
        let inside = self.enter()?;
        loop {
            let txn = inside.read()?;
            let end = Span::all(&mut Snapshot(&txn))?.last().map_or(0, |last| last.range.end());
            let limit = read_limit(&txn)?;
            drop(txn);
            if end >= limit {
                return inside.arena().prefault(Extent { offset: 0, len: end });
            }
            let _growing = Growing::begin(&self.setup.dir)?;
            let txn = inside.read()?;
            let mut number = Span::all(&mut Snapshot(&txn))?.len() as u32;
            drop(txn);
            self.append(&inside, &mut number, limit - end, limit - end, None)?;
        }
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

/// The pieces of a node that no span has.
fn gaps_on(inside: &Inside<'_>, device: u32, path: &Path) -> Result<Vec<Extent>> {
    let spans = Span::all(&mut Snapshot(&inside.read()?))?;
    Span::gaps(&spans, device, devdax::look(path)?.len)
}

/// The arena's ranges that lie on one device.
fn ranges_of(inside: &Inside<'_>, device: u32) -> Result<Vec<Extent>> {
    let txn = inside.read()?;
    let spans = Span::all(&mut Snapshot(&txn))?;
    Ok(spans.into_iter().filter(|span| span.device == device).map(|span| span.range).collect())
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

/// Where the free space at the arena's end begins.
fn tail_of(txn: &ReadTxn<'_>, end: u64) -> Result<u64> {
    match txn.last(Table::ExtentsByOffset)? {
        Some((key, value)) => {
            let free = crate::extent::parse_free(&key, &value)?;
            Ok(if free.end() == end { free.offset } else { end })
        }
        None => Ok(end),
    }
}

/// The room of all devices, each filesystem counted once.
fn distinct_room(devices: &[PathBuf], rooms: &[(u64, u32)]) -> Result<u64> {
    let mut by_filesystem = BTreeMap::new();
    for &(room, index) in rooms {
        let path = &devices[index as usize];
        let meta = std::fs::metadata(path)
            .map_err(|e| Error::os(format!("looking at device {}", path.display()), &e))?;
        let node = if meta.is_dir() { 0 } else { meta.ino() };
        by_filesystem.insert((meta.dev(), node), room);
    }
    Ok(by_filesystem.values().sum())
}
