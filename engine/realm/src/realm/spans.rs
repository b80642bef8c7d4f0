//! Spans: the files that an arena lies in; opening them, and making more.
//!
//! A process that grows an arena holds its growth lock. The file is there, with all of its blocks,
//! before a row says so; a file that no row names was left by a death, and the next process removes
//! it.

use crate::Setup;
use crate::realm::holders;
use crate::realm::space;
use crate::realm::vacant;
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::space::read_limit;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::mutex::lock;
use engram_base::scope::Scope;
use engram_base::size::ByteSize;
use engram_base::telemetry::event;
use engram_catalog::{Headroom, ReadTxn, Table};
use engram_files::folder;
use engram_files::paths;
use engram_files::pool_file::{PoolFile, missing};
use engram_files::versions;
use engram_media::filesystem::Free;
use engram_media::span::FilePart;
use engram_media::{Medium, devdax, filesystem, span};
use engram_records::extent::{Extent, HUGE, PAGE, best_align, round_up};
use engram_space::extent::{Growing, Span, insert_free};

/// New spans are this part of the arena, within these bounds, if the devices have it.
const GROWTH_PART: u64 = 8;
const GROWTH_MIN: u64 = 16 << 20;
const GROWTH_MAX: u64 = 256 << 20;
/// Left on a device for the catalog and leases, whose rows make room.
pub(super) const DEVICE_MARGIN: u64 = 1 << 20;

/// Whether a span's file is published already. A process that publishes more makes spans beside
/// those, and the kernel lets nobody but root open these for writing.
pub(super) fn is_closed(core: &Core, span: Span) -> Result<bool> {
    if core.setup.scope != Scope::Published {
        return Ok(false);
    }
    let path = span_path(core, span)?;
    let meta = std::fs::symlink_metadata(&path)
        .map_err(|e| Error::os(format!("looking at {}", path.display()), &e))?;
    Ok(meta.mode() & 0o222 == 0)
}

/// Opens what has the bytes of a span: its file, or the node that it is a range of. For writing, if
/// it is told what is vacant there: all else gets what blocks it lacks.
pub fn open_span(core: &Core, span: Span, vacant: Option<&[FilePart]>) -> Result<File> {
    let path = span_path(core, span)?;
    let writable = vacant.is_some();
    if span.place == 0 {
        let opened = span::open(&path, span.range.len, writable, vacant.unwrap_or_default());
        return opened.map_err(|error| {
            // The publisher of a newer version may have taken it away.
            let outdated = core.setup.immutable && !versions::is_newest(&core.setup.dir);
            if outdated { error } else { missing(&core.setup.pool, &core.setup.dir, error) }
        });
    }
    devdax::open(&path, &core.setup.label(), writable)
}

/// The file of a span; the node, if it is a range of one.
pub fn span_path(core: &Core, span: Span) -> Result<PathBuf> {
    let setup = &core.setup;
    let mut devices = lock(&core.space.devices);
    if devices.len() <= span.device as usize {
        *devices = PoolFile::read_in_making(&setup.pool)?.devices;
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
pub(super) fn grow(
    core: &Core,
    inside: &Inside<'_>,
    len: u64,
    device: Option<u32>,
    arena_end: u64,
) -> Result<()> {
    let _growing = Growing::begin(&core.setup.dir)?;
    step!("grow.locked");
    let (spans, limit, tail) = {
        let txn = inside.read()?;
        let spans = Span::all(&mut txn.rows())?;
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
    let Some(needed) = needed else { return Err(holders::full(core, inside, len, limit)) };
    let hoped = round_up(end / GROWTH_PART, HUGE).clamp(GROWTH_MIN, GROWTH_MAX);
    let hoped = hoped.max(needed).min(room);
    let mut number = spans.len() as u32;
    let mut grown = append(core, inside, &mut number, hoped.max(needed), needed, device)?;
    while grown < needed {
        grown += append(core, inside, &mut number, needed - grown, needed - grown, device)?;
    }
    Ok(())
}

/// Appends one span on the device with most room; returns its length, at most `hoped`.
/// Refuses if the devices together have less room than `needed`.
fn append(
    core: &Core,
    inside: &Inside<'_>,
    number: &mut u32,
    hoped: u64,
    needed: u64,
    device: Option<u32>,
) -> Result<u64> {
    let devices = engram_files::pool_file::PoolFile::read(&core.setup.pool)?.devices;
    let (mut rooms, mut more, mut bound) = (Vec::new(), 0, None);
    for (index, path) in devices.iter().enumerate() {
        if device.is_some_and(|wanted| wanted as usize != index) {
            continue;
        }
        let free = if !devdax::is_node(path) {
            let free = filesystem::free(path)?;
            let bytes = free.bytes.saturating_sub(DEVICE_MARGIN);
            bound = bound.or(Some(free).filter(|free| free.bound.is_some()));
            bytes
        } else if core.setup.has_nodes() {
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
                paths::DEFAULT
            )
        };
        rooms.push((free / HUGE * HUGE, index as u32));
    }
    let total = distinct_room(&devices, &rooms)?.saturating_add(more);
    let Some(&(room, index)) = rooms.iter().max_by_key(|(room, index)| (*room, u32::MAX - index))
    else {
        fail!(Argument, "device {device:?} is not one of the pool's {}", devices.len())
    };
    if total < needed {
        fail!(
            PoolFull,
            "{} more are needed, and the pool's devices have {} free: {}",
            ByteSize(needed),
            ByteSize(total),
            bound.unwrap_or(Free { bytes: 0, bound: None }).remedy()
        );
    }
    *lock(&core.space.devices) = devices;
    let made = make_span(core, inside, *number, index, hoped.min(room));
    let len = match made {
        Ok(len) => len,
        Err(error) if error.kind() == Kind::PoolFull && needed < hoped.min(room) => {
            make_span(core, inside, *number, index, needed)?
        }
        Err(error) => return Err(error),
    };
    *number += 1;
    // From here on the span is the realm's, whether this process can attach it or not.
    let end = Span::all(&mut inside.read()?.rows())?.last().map_or(0, |s| s.range.end());
    space::reach(core, inside, end)?;
    step!("grow.reached");
    Ok(len)
}

/// Allocates the file of a span, then commits its row with the space in it.
fn make_span(core: &Core, inside: &Inside<'_>, number: u32, device: u32, len: u64) -> Result<u64> {
    let setup = &core.setup;
    let file = {
        let spans = Span::all(&mut inside.read()?.rows())?;
        spans.iter().map(|span| span.file + 1).max().unwrap_or(0).max(number)
    };
    let range = Extent { offset: 0, len };
    let mut span = Span { number, device, range, file, place: 0 };
    let path = lock(&core.space.devices)[device as usize].clone();
    if devdax::is_node(&path) {
        let gap = gaps_on(inside, device, &path)?.into_iter().max_by_key(|gap| gap.len);
        let Some(gap) = gap.filter(|gap| gap.len >= len) else {
            fail!(PoolFull, "{} has no {} in one piece", path.display(), ByteSize(len))
        };
        span.place = gap.offset;
        // Nobody else takes ranges of this node: it carries this realm's label, and a process that
        // grows the realm holds its growth lock.
        devdax::zero(&open_span(core, span, Some(&[]))?, span.place, len)?;
        return add_span(core, inside, span);
    }
    let path = span_path(core, span)?;
    let _ = std::fs::remove_file(&path); // without a row: left by a crash
    let folder = path.parent().expect("a span lies in a folder");
    setup.make_for_spans(folder)?;
    let mount = filesystem::admit(folder, true)?;
    let file = span::create(&path, len, setup.file_mode, &mount)?;
    folder::hand_over(&file, &path).inspect_err(|_| drop(std::fs::remove_file(&path)))?;
    add_span(core, inside, span).inspect_err(|_| {
        // A commit whose sync has failed may yet be seen: then the row needs its file.
        if !inside.catalog().poisoned() {
            drop(std::fs::remove_file(&path));
        }
    })
}

/// Commits the row of a span whose bytes are allocated, with the space in it.
fn add_span(core: &Core, inside: &Inside<'_>, mut span: Span) -> Result<u64> {
    step!("grow.made");
    core.prepare(inside, Headroom::Relief, |rows| {
        span.range.offset = Span::all(rows)?.last().map_or(0, |last| last.range.end());
        rows.txn().put(Table::Spans, &Span::key(span.number), &span.to_row())?;
        insert_free(rows.txn(), span.range)
    })?;
    step!("grow.committed");
    event!(DEBUG, "the arena has grown", bytes = span.range.len, device = span.device);
    Ok(span.range.len)
}

/// The bytes of a node that no span has.
pub(crate) fn free_on_node(core: &Core, device: u32, path: &Path) -> Result<u64> {
    let gaps = gaps_on(&core.enter()?, device, path)?;
    Ok(gaps.iter().map(|gap| gap.len).sum())
}

/// Gives all spans in memory huge pages, as far as there are any.
fn make_huge(core: &Core, inside: &Inside<'_>) -> Result<()> {
    for one in Span::all(&mut inside.read()?.rows())? {
        let file = open_span(core, one, Some(&[]))?;
        if one.place == 0 && Medium::of(&file)? == Medium::Memory {
            span::make_huge(&file, one.range.len);
        }
    }
    Ok(())
}

/// Makes the spans now that the realm may have, and maps every page (`prefault`).
pub(crate) fn prefault(core: &Arc<Core>) -> Result<()> {
    let inside = core.enter()?;
    loop {
        let txn = inside.read()?;
        let end = Span::all(&mut txn.rows())?.last().map_or(0, |last| last.range.end());
        let limit = read_limit(&txn)?;
        drop(txn);
        if end >= limit {
            let _growing = Growing::begin(&core.setup.dir)?;
            vacant::occupy_all(core, &inside)?;
            make_huge(core, &inside)?;
            return inside.arena().prefault(Extent { offset: 0, len: end });
        }
        let _growing = Growing::begin(&core.setup.dir)?;
        let txn = inside.read()?;
        let mut number = Span::all(&mut txn.rows())?.len() as u32;
        drop(txn);
        append(core, &inside, &mut number, limit - end, limit - end, None)?;
    }
}

/// The pieces of a node that no span has.
fn gaps_on(inside: &Inside<'_>, device: u32, path: &Path) -> Result<Vec<Extent>> {
    let spans = Span::all(&mut inside.read()?.rows())?;
    Span::gaps(&spans, device, devdax::look(path)?.len)
}

/// The arena's ranges that lie on one device.
pub(super) fn ranges_of(inside: &Inside<'_>, device: u32) -> Result<Vec<Extent>> {
    let txn = inside.read()?;
    let spans = Span::all(&mut txn.rows())?;
    Ok(spans.into_iter().filter(|span| span.device == device).map(|span| span.range).collect())
}

/// Where the free space at the arena's end begins.
fn tail_of(txn: &ReadTxn<'_>, end: u64) -> Result<u64> {
    match txn.last(Table::ExtentsByOffset)? {
        Some((key, value)) => {
            let free = engram_space::extent::parse_free(key, value)?;
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

/// Removes the span files but those in `kept`, by device and file number. The caller has the realm
/// alone, or the right to grow it.
pub fn sweep_spans(setup: &Setup, devices: &[PathBuf], kept: &HashSet<(u32, u32)>) -> Result<()> {
    for (device, path) in (0..).zip(devices) {
        for entry in fs::read_dir(setup.spans_on(path)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("span-")?.parse().ok());
            if number.is_some_and(|number| !kept.contains(&(device, number))) {
                let path = entry.path();
                fs::remove_file(&path)
                    .map_err(|e| Error::os(format!("removing {}", path.display()), &e))?;
            }
        }
    }
    Ok(())
}

/// Removes what a process that died compacting has left.
pub(super) fn sweep_left(core: &Core) -> Result<()> {
    let inside = core.enter()?;
    let _growing = Growing::begin(&core.setup.dir)?;
    let spans = Span::all(&mut inside.read()?.rows())?;
    let kept = spans.iter().map(|span| (span.device, span.file)).collect();
    let devices = engram_files::pool_file::PoolFile::read(&core.setup.pool)?.devices;
    sweep_spans(&core.setup, &devices, &kept)
}
