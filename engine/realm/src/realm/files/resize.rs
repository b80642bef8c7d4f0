//! Other sizes: cutting, extending by a hole, space before bytes, holes made.

use std::sync::atomic::Ordering;

use super::map::{FileMap, Known};
use super::segments::{self, NewSegment};
use super::write::end_of;
use super::{OpenFile, now, pages, tail};
use crate::realm::write;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_catalog::Headroom;
use engram_records::extent::PAGE;

impl OpenFile {
    /// See [`super::File::set_size`].
    pub(super) fn set_size(&self, size: u64) -> Result<()> {
        end_of(0, size)?;
        loop {
            let Some(map) = self.map()? else {
                if self.resize_record(size)? {
                    return Ok(());
                }
                continue;
            };
            let _tail = tail::take(self, &map.head)?;
            let Some(map) = self.map()? else { continue };
            let before = map.head.size();
            if size > before {
                // Zeros up to there, where there are segments; the rest is a hole.
                map.zero(&self.core, before, size);
                self.note(&map, before, size)?;
                if size > map.end() {
                    self.say_size(size)?;
                }
                step!("file.zeroed");
                map.head.set_size(size);
                return Ok(());
            }
            map.head.set_size(size);
            step!("file.shortened");
            self.note(&map, size, size)?;
            let kept = size.next_multiple_of(PAGE);
            if map.end() > kept {
                self.flush_size(&map)
                    .and_then(|()| segments::cut(self, &map, kept, u64::MAX, size))
                    .inspect_err(|error| keep_size(&map, before, error))?;
                self.map()?;
            } else if size < before {
                // A copy takes the record's word where a head says more than there is.
                self.say_size(size).inspect_err(|error| keep_size(&map, before, error))?;
            }
            return Ok(());
        }
    }

    /// Makes zeros of what lies behind the end in the last page, where anything may be: a process
    /// that maps the page sees it.
    pub(super) fn clear_end(&self) -> Result<()> {
        let Some(map) = self.map()? else { return Ok(()) };
        // Bytes that are being appended lie there before the size says so.
        let _tail = tail::take(self, &map.head)?;
        let Some(map) = self.map()? else { return Ok(()) };
        let size = map.head.size();
        map.zero(&self.core, size, size.next_multiple_of(PAGE));
        Ok(())
    }

    /// Notes that the size, or bytes of a range, have changed.
    fn note(&self, map: &FileMap, from: u64, to: u64) -> Result<()> {
        map.head.touch(now()?);
        if self.core.setup.durable {
            map.head.note_dirty(from, to);
        }
        self.wrote.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a lower size durable before segments go, where the realm promises that: after a
    /// failure of power no head says more than there was.
    fn flush_size(&self, map: &FileMap) -> Result<()> {
        if !self.core.setup.durable {
            return Ok(());
        }
        let inside = self.core.enter()?;
        map.head.flush().inspect_err(|_| inside.catalog().poison())
    }

    /// Tells the record how long the file is.
    fn say_size(&self, size: u64) -> Result<()> {
        let inside = self.core.enter()?;
        let stamp = write::stamp(&self.core)?;
        self.core.commit(&inside, Headroom::Relief, |rows| {
            segments::set_nbytes(rows, self.oid, size, stamp)
        })?;
        crate::realm::after_commit(&self.core, &inside);
        Ok(())
    }

    /// See [`super::File::allocate`].
    pub(super) fn allocate(&self, offset: u64, len: u64, keep: bool) -> Result<()> {
        let end = end_of(offset, len)?;
        if len == 0 {
            fail!(Argument, "space of 0 bytes cannot be allocated");
        }
        loop {
            let Some(map) = self.map()? else {
                if self.allocate_record(end, keep)? {
                    return Ok(());
                }
                continue;
            };
            let _tail = tail::take(self, &map.head)?;
            let Some(map) = self.map()? else { continue };
            // What lay behind the end before stays; what is added there goes where this fails.
            let kept = map.end().max(map.head.size().next_multiple_of(PAGE));
            loop {
                let Some(map) = self.map()? else { break };
                let (first, last) = pages(offset, end);
                let size = map.head.size();
                if let Some(hole) = map.hole(first, last) {
                    self.fill(&map, hole).inspect_err(|_| self.take_back(kept))?;
                    continue;
                }
                if !keep && end > size {
                    map.zero(&self.core, size, end);
                    self.note(&map, size, end)?;
                    map.head.set_size(end);
                }
                return Ok(());
            }
        }
    }

    /// Gives a hole space, or its first part; what is there are zeros, as far as the file's end.
    fn fill(&self, map: &FileMap, hole: (u64, u64)) -> Result<()> {
        let (from, to) = hole;
        let new = NewSegment::reserve(&self.core, from, [to - from, PAGE], self.device())?;
        // What lies behind the end becomes zeros when the end moves there, as in `grow`.
        let before = map.head.size().clamp(from, from + new.reserved.extent.len) - from;
        new.claim.memory().zero(before);
        self.flush_new(&new)?;
        self.wrote.store(true, Ordering::Relaxed);
        self.take_map(segments::add(self, map, &new)?);
        Ok(())
    }

    /// Takes back what was given to a file behind an offset, where nobody can have written: it lies
    /// behind the end, and the caller has the tail. Of what lies before the end somebody may have
    /// made use meanwhile.
    pub(super) fn take_back(&self, kept: u64) {
        // Where that fails, too, the last who closes the file does it.
        if let Ok(Some(map)) = self.map()
            && map.end() > kept
        {
            let _ = segments::cut(self, &map, kept, u64::MAX, map.head.size());
        }
    }

    /// See [`super::File::punch`], which frees space, and [`super::File::zero`], which does not.
    pub(super) fn clear(&self, offset: u64, len: u64, frees: bool) -> Result<()> {
        let end = end_of(offset, len)?;
        if len == 0 {
            fail!(Argument, "a range of 0 bytes cannot be cleared: give at least one byte");
        }
        if self.fixed {
            return Err(self.keeps_size());
        }
        loop {
            let Some(map) = self.map()? else {
                if self.punch_record(offset, end)? {
                    return Ok(());
                }
                continue;
            };
            let _tail = tail::take(self, &map.head)?;
            let Some(map) = self.map()? else { continue };
            let size = map.head.size();
            // Whole pages go; of the others the bytes are zeroed.
            let (first, last) = (offset.next_multiple_of(PAGE), end - end % PAGE);
            if !frees || first >= last {
                map.zero(&self.core, offset, end.min(size.max(offset)));
                return self.note(&map, offset, end);
            }
            map.zero(&self.core, offset, first);
            map.zero(&self.core, last, end);
            self.note(&map, offset, end)?;
            segments::cut(self, &map, first, last, size)?;
            return self.map().map(drop);
        }
    }
}

/// Gives a file back the size that it keeps, as its segments are there still. Where nobody knows
/// whether they are, it has the lower one.
fn keep_size(map: &FileMap, size: u64, error: &Error) {
    if error.kind() != Kind::CommitUncertain {
        map.head.set_size(size);
    }
}

/// What the last of a process does that closes a file which it has changed. It waits for nobody: if
/// others extend the file, they settle it in their turn.
pub(super) fn settle(open: &OpenFile) -> Result<()> {
    if open.core.gate.is_shut() || !open.core.gate.is_up() {
        return Ok(());
    }
    let Known::Map(map) = open.known()? else { return Ok(()) };
    let Some(_tail) = tail::try_take(open, &map.head)? else { return Ok(()) };
    let Some(map) = open.map()? else { return Ok(()) };
    let size = map.head.size();
    let kept = size.next_multiple_of(PAGE);
    let inside = open.core.enter()?;
    if map.end() > kept && !open.others_have_it(&inside)? {
        drop(inside);
        segments::cut(open, &map, kept, u64::MAX, size)?;
        return open.map().map(drop);
    }
    let said = super::with_record(&mut inside.read()?.rows(), open.oid, |record, _| {
        Ok(record.stored.nbytes())
    })?;
    drop(inside);
    if said == size { Ok(()) } else { open.say_size(size) }
}
