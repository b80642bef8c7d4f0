//! Bytes in: overwriting, extending, and what lies in a hole.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::map::FileMap;
use super::segments::{self, NewSegment};
use super::{GROWTH, OpenFile, PIECE, now, pages, tail};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_records::extent::PAGE;
use engram_records::segmented::FILE_BYTES_MAX;

/// The most that a hole gets at a time beyond what is written there: it is zeroed, and flushed.
const HOLE_MOST: u64 = 4 << 20;

/// Where a write ends; one that no file can have is refused.
pub(super) fn end_of(offset: u64, len: u64) -> Result<u64> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(end),
        _ => fail!(
            Argument,
            "{len} bytes at {offset} do not fit: a file has at most {FILE_BYTES_MAX}"
        ),
    }
}

impl OpenFile {
    /// See [`super::File::write_at`].
    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        end_of(offset, data.len() as u64)?;
        let (mut offset, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(PIECE));
            if !self.write_piece(offset, piece)? {
                // From here on it is beyond the end: all of it at once.
                let Some(map) = self.map()? else { continue };
                return self.extend(&map, Some(offset), rest).map(drop);
            }
            (offset, rest) = (offset + piece.len() as u64, after);
        }
        Ok(())
    }

    /// Writes a piece; `false`: it reaches beyond the end of a file with segments.
    fn write_piece(&self, offset: u64, data: &[u8]) -> Result<bool> {
        let end = offset + data.len() as u64;
        loop {
            let Some(used) = self.using()? else {
                match self.write_record(Some(offset), data)? {
                    Some(_) => return Ok(true),
                    None => continue,
                }
            };
            let map = &used.map;
            if end > map.head.size() {
                return Ok(false);
            }
            if !map.copy_in(&self.core, offset, data) {
                let map = Arc::clone(map);
                drop(used);
                self.fill_hole(&map, offset, data)?;
                continue;
            }
            step!("file.copied");
            self.written(map, offset, end)?;
            if map.is_good(&self.core) {
                return Ok(true);
            }
        }
    }

    /// See [`super::File::append`].
    pub(super) fn append(&self, data: &[u8]) -> Result<u64> {
        loop {
            match self.map()? {
                Some(map) => return self.extend(&map, None, data),
                None => {
                    if let Some(at) = self.write_record(None, data)? {
                        return Ok(at);
                    }
                }
            }
        }
    }

    /// Notes that bytes were written.
    fn written(&self, map: &FileMap, from: u64, to: u64) -> Result<()> {
        map.head.touch(now()?);
        if self.core.setup.durable {
            map.head.note_dirty(from, to);
        }
        self.wrote.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Writes beyond the end, or at it: where that was.
    fn extend(&self, map: &FileMap, offset: Option<u64>, data: &[u8]) -> Result<u64> {
        let _tail = tail::take(self, &map.head)?;
        // Where there is no room for all of it, what was given to the file for it goes back.
        let mut kept = None;
        loop {
            let Some(map) = self.map()? else {
                fail!(Corrupt, "the file {:#x} was in segments, and is not: run verify", self.oid)
            };
            let size = map.head.size();
            let at = offset.unwrap_or(size);
            let end = end_of(at, data.len() as u64)?;
            let (first, last) = pages(at, end);
            if let Some(hole) = map.hole(first, last) {
                let kept = *kept.get_or_insert_with(|| map.end().max(size.next_multiple_of(PAGE)));
                self.grow(&map, hole, last, size).inspect_err(|_| self.take_back(kept))?;
                continue;
            }
            // No segment goes while the tail is held.
            if at > size {
                map.zero(&self.core, size, at);
            }
            map.copy_in(&self.core, at, data);
            step!("file.extended");
            self.written(&map, size.min(at), end)?;
            if end > size {
                map.head.set_size(end);
            }
            step!("file.sized");
            return Ok(at);
        }
    }

    /// Gives the file a segment for a hole behind its end, or before it, that a write up to `last`
    /// meets. One that continues the file is as long as the file is, within bounds.
    fn grow(&self, map: &FileMap, hole: (u64, u64), last: u64, size: u64) -> Result<()> {
        let (from, to) = hole;
        let mut most = to - from;
        if from > 0 && from == map.end() && to == last {
            let least = self.core.files.growth_least.load(Ordering::Relaxed);
            let bound = self.core.files.growth_most.load(Ordering::Relaxed);
            most = most.max(size.next_multiple_of(PAGE).clamp(least, bound.max(least)));
        }
        let new = NewSegment::reserve(&self.core, from, [most, PAGE], self.device())?;
        // Of what lies before the end, a reader sees zeros until it is written.
        let before = size.clamp(from, from + new.reserved.extent.len) - from;
        if before > 0 {
            new.claim.memory().zero(before);
            self.flush_new(&new)?;
        }
        self.take_map(segments::add(self, map, &new)?);
        Ok(())
    }

    /// Gives the file a segment for the first hole that a write meets, filled already (F5).
    fn fill_hole(&self, map: &FileMap, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + data.len() as u64;
        let (first, last) = pages(offset, end);
        let Some((from, to)) = map.hole(first, last) else { return Ok(()) };
        let mut most = to - from;
        if data.len() as u64 >= GROWTH.0 {
            // A program goes on there, most likely: so many pieces must not be as many segments.
            let room = map.gap(from, map.head.size().next_multiple_of(PAGE));
            most = most.max(map.run_before(from, HOLE_MOST).min(room));
        }
        let new = NewSegment::reserve(&self.core, from, [most, PAGE], self.device())?;
        let (memory, to) = (new.claim.memory(), from + new.reserved.extent.len);
        let (start, stop) = (offset.clamp(from, to), end.clamp(from, to));
        memory.zero_part(0, start - from);
        memory.write_at(start - from, &data[(start - offset) as usize..(stop - offset) as usize]);
        memory.zero_part(stop - from, to - stop);
        step!("file.filled");
        self.flush_new(&new)?;
        self.wrote.store(true, Ordering::Relaxed);
        self.take_map(segments::add(self, map, &new)?);
        Ok(())
    }

    /// Makes a new segment's bytes durable before its row is, where the realm promises that (P1).
    pub(super) fn flush_new(&self, new: &NewSegment) -> Result<()> {
        let extent = new.reserved.extent;
        crate::realm::space::flush_extent(&self.core, extent, extent.len)
    }

    /// Goes on with the map that a change has left, if it is known.
    pub(super) fn take_map(&self, map: Option<FileMap>) -> Option<Arc<FileMap>> {
        map.map(|map| self.know(map))
    }
}
