//! Vacating: free pages of the arena go back to a filesystem that is full, and get blocks again
//! before they are used.
//!
//! **Invariant.** What is free has blocks, so that a store into what was reserved is never a
//! SIGBUS. What is vacant may have none, and nobody reserves it.
//!
//! **Vacating.** (1) Take the growth lock. (2) One commit reclaims what nobody looks at any more,
//! as a reservation does, and calls whole free pages vacant: from then on nobody reserves them, and
//! nobody looks at them. (3) Their blocks are punched out. A death between leaves vacant pages with
//! blocks, which harms nobody. A commit of which it is not certain that it took place is followed
//! by no punch.
//!
//! **Occupying.** (1) Take the growth lock. (2) Allocate blocks for the fewest vacant pages that
//! make a run of the length that is asked for; sync the file where the realm promises that. (3) One
//! commit calls them free. The growth lock keeps a punch that is late from what is occupied again.
//!
//! It is done when a commit has freed space and no span could be made on the device, when the
//! catalog cannot grow, when an array has no room though free pieces would give it, and by
//! compaction. A disk and memory can take blocks back; persistent memory and devdax nodes keep
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
use engram_catalog::{Headroom, ReadTxn};
use engram_files::pool_file::PoolFile;
use engram_media::span::{FilePart, allocate_range, punch};
use engram_media::{Medium, devdax, filesystem};
use engram_records::extent::{Extent, HUGE, extent_len};
use engram_space::extent::{
    Growing, Span, VacantPart, free_rows, occupy, reclaim, vacant_parts, vacant_rows, vacate,
};

/// How many extents one commit calls vacant; fewer where the catalog has no room for that.
const EXTENTS_MAX: [usize; 3] = [1024, 32, 1];

/// Gives free pages back to the devices that are full. The caller has just freed something; what
/// hinders it leaves things as they are.
pub(crate) fn after_freeing(core: &Core, inside: &Inside<'_>) {
    if core.space.freed.swap(false, Ordering::Relaxed) {
        vacate_if_full(core, inside);
    }
}

/// The same, whether anything was freed or not. How many bytes were given back.
pub fn vacate_if_full(core: &Core, inside: &Inside<'_>) -> u64 {
    let full = |device: &Path| {
        let short = filesystem::is_short_of(device, DEVICE_MARGIN + HUGE);
        short.is_ok_and(|short| short) && !devdax::is_node(device)
    };
    let Ok(full) = devices(core, full) else { return 0 };
    if !full.contains(&true) {
        return 0;
    }
    let on = |span: &Span| full.get(span.device as usize) == Some(&true);
    give_back(core, inside, on).unwrap_or(0)
}

/// Gives all free pages back to their devices. How many bytes that were.
pub(crate) fn vacate_all(core: &Core, inside: &Inside<'_>) -> Result<u64> {
    give_back(core, inside, |_| true)
}

/// Asks something of each device of the pool.
fn devices(core: &Core, ask: impl Fn(&Path) -> bool) -> Result<Vec<bool>> {
    let mut devices = lock(&core.space.devices);
    if devices.is_empty() {
        *devices = PoolFile::read(&core.setup.pool)?.devices;
    }
    Ok(devices.iter().map(|device| ask(device)).collect())
}

fn give_back(core: &Core, inside: &Inside<'_>, on: impl Fn(&Span) -> bool) -> Result<u64> {
    // Readers of what is published have no leases.
    if core.setup.scope == Scope::Published {
        return Ok(0);
    }
    let _growing = Growing::begin(&core.setup.dir)?;
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
    let vacated = vacate_some(core, inside, &on)?;
    step!("vacate.committed");
    let mut bytes = 0;
    for extent in vacated {
        let span = files.iter().find(|(span, _)| extent.offset < span.range.end());
        if let Some((span, file)) = span {
            let range = FilePart { offset: extent.offset - span.range.offset, len: extent.len };
            punch(file, range).map_err(|e| Error::os("giving blocks back", &e))?;
            step!("vacate.punched");
            bytes += extent.len;
        }
    }
    Ok(bytes)
}

/// The span's file for writing, as it is: what it lacks is not allocated.
fn opened_as_it_is(core: &Core, span: Span) -> Result<File> {
    spans::open_span(core, span, Some(&[FilePart { offset: 0, len: span.range.len }]))
}

/// Calls free pages vacant, in as large a commit as there is room for.
fn vacate_some(core: &Core, inside: &Inside<'_>, on: &[Span]) -> Result<Vec<Extent>> {
    let mut refused = None;
    for most in EXTENTS_MAX {
        let vacated = core.prepare(inside, Headroom::Relief, |rows| {
            let floor = space::floor(core, inside)?;
            reclaim(rows.txn(), &floor, None, usize::MAX)?;
            vacate(rows.txn(), on, most)
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
    occupy_parts(core, inside, &parts)
}

/// Gives blocks to all vacant pages.
pub(super) fn occupy_all(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let vacant = vacant_rows(&inside.read()?)?;
    let parts: Vec<VacantPart> = vacant.into_iter().map(|of| VacantPart { of, part: of }).collect();
    if !parts.is_empty() && !occupy_parts(core, inside, &parts)? {
        let bytes: u64 = parts.iter().map(|part| part.part.len).sum();
        fail!(
            PoolFull,
            "{bytes} bytes of {} went back to the filesystem when it was full, and it has no room \
             for them now: make room there",
            core.setup.dir.display()
        );
    }
    Ok(())
}

fn occupy_parts(core: &Core, inside: &Inside<'_>, parts: &[VacantPart]) -> Result<bool> {
    let spans = Span::all(&mut inside.read()?.rows())?;
    for VacantPart { part, .. } in parts {
        let Some(span) = spans.iter().find(|span| part.offset < span.range.end()) else {
            return Ok(false);
        };
        let path = spans::span_path(core, *span)?;
        let file = opened_as_it_is(core, *span)?;
        let range = FilePart { offset: part.offset - span.range.offset, len: part.len };
        match allocate_range(&file, &path, range) {
            Err(error) if error.kind() == Kind::PoolFull => return Ok(false),
            done => done?,
        }
        if core.setup.mount.durable {
            file.sync_all().map_err(|e| Error::os(format!("syncing {}", path.display()), &e))?;
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

/// What is vacant of a span, as ranges of its file.
pub(super) fn vacant_ranges(txn: &ReadTxn<'_>, span: Span) -> Result<Vec<FilePart>> {
    let vacant = vacant_rows(txn)?.into_iter();
    let of_it = vacant
        .filter(|extent| span.range.offset <= extent.offset && extent.end() <= span.range.end());
    let range =
        |extent: Extent| FilePart { offset: extent.offset - span.range.offset, len: extent.len };
    Ok(of_it.map(range).collect())
}
