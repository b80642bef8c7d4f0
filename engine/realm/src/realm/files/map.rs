//! The map: what a process knows of a file's segments, as of a transaction (F3).

use std::sync::Arc;

use super::segments::FileSegment;
use super::{part, segments, with_record};
use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::space;
use engram_base::error::Result;
use engram_base::faults::step;
use engram_base::id::Oid;
use engram_catalog::{Headroom, ReadTxn};
use engram_media::memory::Memory;
use engram_records::extent::Extent;
use engram_records::object::Stored;
use engram_space::head::FileHead;

/// How often a process looks for the commit that a head has announced, before it takes the writer
/// lock to see whether there will be one.
const LOOKS: u32 = 100;

/// A file, as this process knows it.
#[derive(Clone, Default)]
pub(super) enum Known {
    /// By its record alone, which is looked at each time.
    #[default]
    Record,
    /// By its head and segments.
    Map(Arc<FileMap>),
}

/// A file's head and segments.
#[derive(Clone)]
pub(super) struct FileMap {
    /// The transaction as of which it is so.
    pub as_of: u64,
    pub head: FileHead,
    /// In the order of their places in the file; none overlaps another.
    pub segments: Vec<FileSegment>,
}

impl FileMap {
    /// Whether no transaction has changed segments since. What is published never changes.
    #[inline]
    pub fn is_good(&self, core: &Core) -> bool {
        core.setup.immutable || self.head.map() <= self.as_of
    }

    /// Tells the head how many bytes the segments take.
    fn tell_space(&self, core: &Core) {
        let space = self.segments.iter().map(|segment| segment.extent.len).sum();
        if !core.setup.immutable && self.head.facts().space != space {
            self.head.set_space(space);
        }
    }

    /// Where the last segment ends.
    pub fn end(&self) -> u64 {
        self.segments.last().map_or(0, FileSegment::end)
    }

    /// The place of the first segment that ends behind an offset.
    fn place(&self, offset: u64) -> usize {
        self.segments.partition_point(|segment| segment.end() <= offset)
    }

    /// Calls `each` with the pieces of a range in order: where each begins, how long it is, and its
    /// memory, if it is no hole. It stops where `each` says so.
    pub fn pieces(
        &self,
        core: &Core,
        from: u64,
        to: u64,
        mut each: impl FnMut(u64, u64, Option<&Memory>) -> bool,
    ) {
        let (mut at, mut place) = (from, self.place(from));
        while at < to {
            let next = self.segments.get(place).filter(|segment| segment.at < to);
            let (end, memory) = match next {
                None => (to, None),
                Some(segment) if segment.at > at => (segment.at, None),
                Some(segment) => {
                    let end = segment.end().min(to);
                    let extent = part(segment.extent, at - segment.at, end - at);
                    place += 1;
                    (end, Some(core.space.arena.memory(extent)))
                }
            };
            if !each(at, end - at, memory.as_ref()) {
                return;
            }
            at = end;
        }
    }

    /// The first hole in a range.
    pub fn hole(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let (mut at, mut place) = (from, self.place(from));
        while at < to {
            match self.segments.get(place) {
                Some(segment) if segment.at <= at => at = segment.end(),
                Some(segment) => return Some((at, segment.at.min(to))),
                None => return Some((at, to)),
            }
            place += 1;
        }
        None
    }

    /// How long the hole is that begins at an offset, up to a bound.
    pub fn gap(&self, from: u64, bound: u64) -> u64 {
        let next = self.segments.get(self.place(from)).map_or(bound, |segment| segment.at);
        next.min(bound).saturating_sub(from)
    }

    /// How long the segments are together that touch each other and end at an offset; no more than
    /// `most` is looked for.
    pub fn run_before(&self, at: u64, most: u64) -> u64 {
        let mut begin = at;
        for segment in self.segments[..self.place(at)].iter().rev() {
            if segment.end() < begin || at - begin >= most {
                break;
            }
            begin = segment.at;
        }
        (at - begin).min(most)
    }

    /// Copies a range out; holes are zeros.
    pub fn copy_out(&self, core: &Core, offset: u64, into: &mut [u8]) {
        self.pieces(core, offset, offset + into.len() as u64, |at, len, memory| {
            let into = &mut into[(at - offset) as usize..][..len as usize];
            match memory {
                Some(memory) => memory.copy_out(0, into),
                None => into.fill(0),
            }
            true
        });
    }

    /// Copies into a range that has no hole; `false` if it has one.
    pub fn copy_in(&self, core: &Core, offset: u64, data: &[u8]) -> bool {
        let mut whole = true;
        self.pieces(core, offset, offset + data.len() as u64, |at, len, memory| {
            whole = memory.is_some();
            if let Some(memory) = memory {
                memory.write_at(0, &data[(at - offset) as usize..][..len as usize]);
            }
            whole
        });
        whole
    }

    /// Zeroes what a range has of segments.
    pub fn zero(&self, core: &Core, from: u64, to: u64) {
        self.pieces(core, from, to, |_, len, memory| {
            if let Some(memory) = memory {
                memory.zero(len);
            }
            true
        });
    }

    /// Makes what a range has of segments durable.
    pub fn flush(&self, core: &Core, from: u64, to: u64) -> Result<()> {
        let mut flushed = Ok(());
        self.pieces(core, from, to.min(self.end()), |_, len, memory| {
            if let Some(memory) = memory {
                flushed = memory.flush(std::iter::once((0, len)));
            }
            flushed.is_ok()
        });
        flushed
    }

    /// The same with more segments, as of the transaction that made them.
    pub fn with(&self, as_of: u64, more: &[FileSegment]) -> FileMap {
        let mut segments = self.segments.clone();
        for segment in more {
            let place = segments.partition_point(|known| known.at < segment.at);
            segments.insert(place, *segment);
        }
        let map = FileMap { as_of, head: self.head.clone(), segments };
        let space = map.segments.iter().map(|segment| segment.extent.len).sum();
        map.head.set_space(space);
        map
    }
}

/// The head at an extent, attached.
pub(super) fn head_at(
    core: &Core,
    inside: &Inside<'_>,
    head: Extent,
    txn: &ReadTxn<'_>,
) -> Result<FileHead> {
    space::reach_in(core, inside, head.end(), txn)?;
    FileHead::new(core.space.arena.memory(head))
}

/// Learns how a file lies by now, by a map that is good.
pub(super) fn learn(core: &Core, inside: Inside<'_>, oid: Oid) -> Result<Known> {
    let mut inside = Some(inside);
    for look in 0.. {
        let within = inside.take().map_or_else(|| core.enter(), Ok)?;
        let txn = within.read()?;
        let head = with_record(&mut txn.rows(), oid, |record, _| {
            Ok(match record.stored {
                Stored::Segmented(segmented) => Some(segmented.head),
                _ => None,
            })
        })?;
        let Some(head) = head else { return Ok(Known::Record) };
        let head = head_at(core, &within, head, &txn)?;
        let segments = segments::all(&txn, oid)?;
        let end = segments.iter().map(|segment| segment.extent.end()).max().unwrap_or(0);
        space::reach_in(core, &within, end, &txn)?;
        let map = FileMap { as_of: txn.id(), head, segments };
        if map.is_good(core) {
            map.tell_space(core);
            return Ok(Known::Map(Arc::new(map)));
        }
        drop(txn);
        wait(core, &within, &map.head, look)?;
    }
    unreachable!("it looks until it finds a map that is good")
}

/// Waits a moment for the commit that a head has announced; after many looks, sees whether there
/// will be one.
pub(super) fn wait(core: &Core, inside: &Inside<'_>, head: &FileHead, looks: u32) -> Result<()> {
    step!("file.announced");
    if looks < LOOKS {
        std::thread::yield_now();
        return Ok(());
    }
    heal(core, inside, head)
}

/// Sets a head's word right that names a transaction which was never committed: under the writer
/// lock nobody is between the two.
fn heal(core: &Core, inside: &Inside<'_>, head: &FileHead) -> Result<()> {
    core.prepare(inside, Headroom::Relief, |rows| {
        let last = rows.txn().id() - 1;
        if head.map() > last {
            head.set_map(last);
        }
        Ok(())
    })
}
