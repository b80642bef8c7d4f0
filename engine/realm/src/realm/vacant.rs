//! Vacating: free pages of the arena go back to a filesystem that is full, and get blocks again
//! before they are used.
//!
//! **Invariant.** Free pages have blocks, so that a store into reserved space is never a SIGBUS.
//! Vacant pages may have none. Nobody reserves them.
//!
//! **Vacating.** (1) The process takes the growth lock. (2) One commit reclaims extents, as a
//! reservation does, and calls whole free pages vacant: from then on nobody reserves them, and
//! nobody looks at them. (3) Their blocks are punched out. A death before (3) leaves vacant pages
//! with blocks, which harms nobody. An uncertain commit is followed by no punch.
//!
//! **Occupying.** (1) The process takes the growth lock. (2) It allocates blocks for the fewest
//! vacant pages that make a run of the wanted length, and some more if there is room. Where the
//! realm promises `"system"`, the file is synced. (3) One commit calls the pages free. The growth
//! lock keeps a late punch from pages that are occupied again.
//!
//! Four things lead to vacating: a commit that has freed space on a device where no span could be
//! made; a catalog that cannot grow; an array for which the free pieces would give room together;
//! and compaction. Disks and memory take blocks back. Persistent memory and devdax nodes keep
//! theirs.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::space;
use crate::realm::spans::{self, DEVICE_MARGIN, ranges_of};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::mutex::lock;
use engram_base::scope::Scope;
use engram_base::size::ByteSize;
use engram_catalog::{Headroom, ReadTxn};
use engram_files::pool_file::PoolFile;
use engram_media::span::{FilePart, allocate_range, punch};
use engram_media::{Medium, clock, devdax, filesystem};
use engram_records::extent::{Extent, HUGE, extent_len};
use engram_space::extent::{
    Growing, Span, VacantPart, free_rows, occupy, reclaim, vacant_parts, vacant_rows, vacate,
};

/// At least so many bytes get blocks again at once, where there is room.
const OCCUPY_LEAST: u64 = 1 << 20;
/// How often is looked at most whether a device is full.
const LOOK_NS: i64 = 10_000_000;
/// How many extents one commit reclaims and calls vacant; fewer where the catalog has no room for
/// that.
const EXTENTS_MAX: [usize; 3] = [1024, 32, 1];

/// Gives free pages back to the devices that are full, if this process has freed something since it
/// last did. What hinders it leaves things as they are.
///
/// It looks once in [`LOOK_NS`] at most: a value that is replaced again and again would feel it.
/// The caretaker looks after the last one.
pub(crate) fn after_freeing(core: &Core, inside: &Inside<'_>) {
    if !core.space.freed.load(Ordering::Relaxed) {
        return;
    }
    let now_ns = clock::coarse_ns();
    if now_ns < core.space.full_look_ns.load(Ordering::Relaxed) {
        return;
    }
    core.space.full_look_ns.store(now_ns + LOOK_NS, Ordering::Relaxed);
    core.space.freed.store(false, Ordering::Relaxed);
    if try_vacate(core, inside).is_none() {
        // Somebody else grows the arena, or looks for room as this does.
        core.space.freed.store(true, Ordering::Relaxed);
    }
}

/// The same at the end, without waiting for its time.
pub(super) fn at_end(core: &Core, inside: &Inside<'_>) {
    if core.space.freed.swap(false, Ordering::Relaxed) {
        vacate_if_full(core, inside);
    }
}

/// The same, whether anything was freed or not. It waits for nobody; `None`: it was not to be done
/// now.
fn try_vacate(core: &Core, inside: &Inside<'_>) -> Option<u64> {
    let full = full_devices(core);
    if !full.contains(&true) {
        return Some(0);
    }
    let growing = Growing::try_begin(&core.setup.dir).ok()??;
    give_back(core, inside, &growing, |span| full.get(span.device as usize) == Some(&true)).ok()
}

/// Gives free pages back to the devices that are full, as far as it can be done.
pub fn vacate_if_full(core: &Core, inside: &Inside<'_>) {
    let _ = try_vacate(core, inside);
}

/// Of each device whether no span could be made on it.
fn full_devices(core: &Core) -> Vec<bool> {
    let full = |device: &Path| {
        let short = filesystem::is_short_of(device, DEVICE_MARGIN + HUGE);
        short.is_ok_and(|short| short) && !devdax::is_node(device)
    };
    devices(core, full).unwrap_or_default()
}

/// Gives all free pages back to their devices. How many bytes that were.
pub(crate) fn vacate_all(core: &Core, inside: &Inside<'_>) -> Result<u64> {
    let growing = Growing::begin(&core.setup.dir)?;
    give_back(core, inside, &growing, |_| true)
}

/// Asks something of each device of the pool.
fn devices(core: &Core, ask: impl Fn(&Path) -> bool) -> Result<Vec<bool>> {
    let mut devices = lock(&core.space.devices);
    if devices.is_empty() {
        *devices = PoolFile::read(&core.setup.pool)?.devices;
    }
    Ok(devices.iter().map(|device| ask(device)).collect())
}

fn give_back(
    core: &Core,
    inside: &Inside<'_>,
    _growing: &Growing,
    on: impl Fn(&Span) -> bool,
) -> Result<u64> {
    // Readers of what is published have no leases.
    if core.setup.scope == Scope::Published {
        return Ok(0);
    }
    let spans = Span::all(&mut inside.read()?.rows())?;
    let mut files = Vec::new();
    for span in spans.into_iter().filter(|span| span.has_file() && span.place == 0 && on(span)) {
        let file = opened_as_it_is(core, span)?;
        if Medium::of(&file)? != Medium::Dax {
            files.push((span, file));
        }
    }
    if files.is_empty() {
        return Ok(0);
    }
    let on: Vec<Span> = files.iter().map(|(span, _)| *span).collect();
    let (mut bytes, mut resume) = (0, None);
    loop {
        let part = vacate_some(core, inside, &on, resume)?;
        step!("vacate.committed");
        for extent in &part.vacated {
            let span = files.iter().find(|(span, _)| extent.offset < span.range.end());
            if let Some((span, file)) = span {
                punch(file, part_of(*span, *extent))
                    .map_err(|e| Error::os("giving blocks back", &e))?;
                step!("vacate.punched");
                bytes += extent.len;
            }
        }
        resume = part.resume;
        if resume.is_none() && part.vacated.len() < EXTENTS_MAX[0] {
            return Ok(bytes);
        }
    }
}

fn part_of(span: Span, extent: Extent) -> FilePart {
    FilePart { offset: extent.offset - span.range.offset, len: extent.len }
}

/// What one commit has called vacant.
struct Vacated {
    vacated: Vec<Extent>,
    /// From where on there is more to reclaim.
    resume: Option<[u8; 17]>,
}

/// The span's file for writing, as it is: what it lacks is not allocated.
fn opened_as_it_is(core: &Core, span: Span) -> Result<File> {
    spans::open_span(core, span, Some(&[FilePart { offset: 0, len: span.range.len }]))
}

/// Reclaims some, and calls free pages vacant, in as large a commit as there is room for.
fn vacate_some(
    core: &Core,
    inside: &Inside<'_>,
    on: &[Span],
    resume: Option<[u8; 17]>,
) -> Result<Vacated> {
    let mut refused = None;
    for most in EXTENTS_MAX {
        let vacated = core.aside(inside, |rows| {
            let floor = space::floor(core, inside)?;
            let reclaimed = reclaim(rows.txn(), &floor, resume, most)?;
            let vacated = vacate(rows.txn(), on, most)?;
            Ok(Vacated { vacated, resume: reclaimed.resume })
        });
        match vacated {
            Err(error) if error.kind() == Kind::PoolFull => refused = Some(error),
            done => return done,
        }
    }
    Err(refused.expect("there was a first try"))
}

/// Gives blocks to vacant pages so that `len` bytes lie free in one piece; `false` if no vacant
/// pages would give that, or the device has no room for their blocks.
pub(super) fn occupy_run(
    core: &Core,
    inside: &Inside<'_>,
    len: u64,
    device: Option<u32>,
) -> Result<bool> {
    if vacant_rows(&inside.read()?)?.is_empty() {
        return Ok(false);
    }
    let within = device.map(|device| ranges_of(inside, device)).transpose()?;
    let _growing = Growing::begin(&core.setup.dir)?;
    let parts = {
        let txn = inside.read()?;
        let (free, vacant) = (free_rows(&txn)?, vacant_rows(&txn)?);
        vacant_parts(&free, &vacant, extent_len(len), within.as_deref())
    };
    // More than is asked for, if there is room: small requests would come here one by one.
    let more = |part: &VacantPart| {
        let len = part.part.len.max(OCCUPY_LEAST).min(part.of.end() - part.part.offset);
        VacantPart { part: Extent { len, ..part.part }, ..*part }
    };
    let larger: Vec<VacantPart> = parts.iter().map(more).collect();
    Ok((larger != parts && occupy_parts(core, inside, &larger)?)
        || occupy_parts(core, inside, &parts)?)
}

/// Gives blocks to all vacant pages.
pub(super) fn occupy_all(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let vacant = vacant_rows(&inside.read()?)?;
    let parts: Vec<VacantPart> = vacant.into_iter().map(|of| VacantPart { of, part: of }).collect();
    if !parts.is_empty() && !occupy_parts(core, inside, &parts)? {
        let bytes: u64 = parts.iter().map(|part| part.part.len).sum();
        fail!(
            PoolFull,
            "{} of {} went back to the filesystem when it was full, and it has no room \
             for them now: make room there",
            ByteSize(bytes),
            core.setup.dir.display()
        );
    }
    Ok(())
}

/// Gives blocks to these parts; `false`, and none has any, where there is no room for all. The
/// caller has the growth lock.
fn occupy_parts(core: &Core, inside: &Inside<'_>, parts: &[VacantPart]) -> Result<bool> {
    let spans = Span::all(&mut inside.read()?.rows())?;
    let mut given: Vec<(File, FilePart)> = Vec::new();
    for VacantPart { part, .. } in parts {
        let allocated = allocate_part(core, &spans, *part, &mut given);
        if let Err(error) = allocated {
            // The rows call them vacant still.
            for (file, part) in &given {
                let _ = punch(file, *part);
            }
            return if error.kind() == Kind::PoolFull { Ok(false) } else { Err(error) };
        }
        step!("occupy.allocated");
    }
    if parts.is_empty() {
        return Ok(false);
    }
    core.prepare(inside, Headroom::Relief, |rows| {
        parts.iter().try_for_each(|part| occupy(rows.txn(), part.of, part.part))
    })?;
    step!("occupy.committed");
    Ok(true)
}

/// Allocates one part, and notes it before, since it may get some blocks and not all.
fn allocate_part(
    core: &Core,
    spans: &[Span],
    part: Extent,
    given: &mut Vec<(File, FilePart)>,
) -> Result<()> {
    let Some(span) = spans.iter().find(|span| part.offset < span.range.end()) else {
        fail!(Corrupt, "{part:?} is vacant, and in no span: run verify");
    };
    let path = spans::span_path(core, *span)?;
    given.push((opened_as_it_is(core, *span)?, part_of(*span, part)));
    let (file, range) = given.last().expect("just put");
    allocate_range(file, &path, *range)?;
    if core.setup.mount.durable {
        file.sync_all().map_err(|e| Error::os(format!("syncing {}", path.display()), &e))?;
    }
    Ok(())
}

/// What is vacant of a span, as ranges of its file.
pub(super) fn vacant_ranges(txn: &ReadTxn<'_>, span: Span) -> Result<Vec<FilePart>> {
    let vacant = vacant_rows(txn)?.into_iter();
    let of_it = vacant
        .filter(|extent| span.range.offset <= extent.offset && extent.end() <= span.range.end());
    Ok(of_it.map(|extent| part_of(span, extent)).collect())
}
