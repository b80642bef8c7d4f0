//! Files without segments: in their record, or in one extent; and how they get some.

use super::map::Known;
use super::segments::{self, FileSegment, NewSegment, change_record};
use super::write::end_of;
use super::{OpenFile, with_record};
use crate::realm::gate::Inside;
use crate::realm::{dead, space, write};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_catalog::Headroom;
use engram_ops::rows_mut::RowsMut;
use engram_records::extent::{Extent, PAGE};
use engram_records::object::{INLINE_BYTES_MAX, Record, Stored};
use engram_records::properties::{Properties, written_at};
use engram_records::segmented::{HEAD_BYTES, HeadFacts, Segmented};
use std::sync::atomic::Ordering;

/// How a file without segments lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FileForm {
    /// In its record, so many bytes.
    Inline(u64),
    /// In one extent, of which so many bytes count.
    Extent(Extent, u64),
    /// It has segments by now.
    Segmented,
}

impl FileForm {
    fn of(record: &Record<'_>) -> Result<FileForm> {
        Ok(match record.stored {
            Stored::Inline(bytes) => FileForm::Inline(bytes.len() as u64),
            Stored::Contiguous { extent, nbytes, .. } => FileForm::Extent(extent, nbytes),
            Stored::Segmented(_) => FileForm::Segmented,
            Stored::Chunked(_) => fail!(Unsupported, "{:?} is chunked by now", record.name),
        })
    }

    fn nbytes(self) -> u64 {
        match self {
            FileForm::Inline(nbytes) | FileForm::Extent(_, nbytes) => nbytes,
            FileForm::Segmented => 0,
        }
    }
}

/// When a record without a head says that its value was written, and read.
fn times_of(record: &Record<'_>) -> Result<(i64, i64)> {
    let properties = Properties::parse(record.properties)?;
    Ok(properties.map_or((record.modified, record.modified), |said| (said.written, said.accessed)))
}

impl OpenFile {
    pub(super) fn form(&self, inside: &Inside<'_>) -> Result<FileForm> {
        with_record(&mut inside.read()?.rows(), self.oid, |record, _| FileForm::of(record))
    }

    /// Whether the form is that of a file with segments, which is learned then.
    fn has_segments(&self, inside: Inside<'_>, form: FileForm) -> Result<bool> {
        if form != FileForm::Segmented {
            return Ok(false);
        }
        self.learn(inside).map(|known| matches!(known, Known::Map(_)))
    }

    pub(super) fn facts_of_record(&self) -> Result<HeadFacts> {
        let inside = self.core.enter()?;
        let txn = inside.read()?;
        let facts = with_record(&mut txn.rows(), self.oid, |record, _| {
            let (written, accessed) = times_of(record)?;
            let size = record.stored.nbytes();
            let (changed, space) = (record.modified, size);
            let facts = HeadFacts { size, written, changed, accessed, space };
            Ok((facts, FileForm::of(record)? == FileForm::Segmented))
        })?;
        drop(txn);
        match facts {
            (facts, false) => Ok(facts),
            (facts, true) => match self.learn(inside)? {
                Known::Map(map) => Ok(map.head.facts()),
                Known::Record => Ok(facts),
            },
        }
    }

    /// Reads a file without segments; `None` if it has some by now.
    pub(super) fn read_record(&self, offset: u64, into: &mut [u8]) -> Result<Option<usize>> {
        let inside = self.core.enter()?;
        let txn = inside.read()?;
        let mut count = 0;
        let form = with_record(&mut txn.rows(), self.oid, |record, _| {
            let size = record.stored.nbytes();
            count = size.saturating_sub(offset).min(into.len() as u64) as usize;
            if let Stored::Inline(bytes) = record.stored
                && count > 0
            {
                into[..count].copy_from_slice(&bytes[offset as usize..][..count]);
            }
            FileForm::of(record)
        })?;
        if let FileForm::Extent(extent, _) = form
            && count > 0
        {
            space::reach_in(&self.core, &inside, extent.end(), &txn)?;
            inside.arena().memory(extent).copy_out(offset, &mut into[..count]);
        }
        drop(txn);
        Ok((!self.has_segments(inside, form)?).then_some(count))
    }

    /// Writes to a file without segments, at an offset or behind the end: where that was. `None` if
    /// it has segments by now, or needs some: then it has got them.
    pub(super) fn write_record(&self, offset: Option<u64>, data: &[u8]) -> Result<Option<u64>> {
        let inside = self.core.enter()?;
        let form = self.form(&inside)?;
        let end = end_of(offset.unwrap_or(form.nbytes()), data.len() as u64)?;
        if self.fixed && end > form.nbytes() {
            return Err(self.keeps_size());
        }
        match form {
            FileForm::Inline(nbytes) if nbytes.max(end) <= INLINE_BYTES_MAX => {
                self.write_inline(&inside, |bytes| {
                    let at = offset.unwrap_or(bytes.len() as u64) as usize;
                    let end = at + data.len();
                    if bytes.len().max(end) > INLINE_BYTES_MAX as usize {
                        return None;
                    }
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[at..end].copy_from_slice(data);
                    Some(at as u64)
                })
            }
            FileForm::Extent(extent, _) if self.fixed => {
                self.write_extent(&inside, extent, offset.unwrap_or(0), data)
            }
            FileForm::Segmented => self.learn(inside).map(|_| None),
            _ => {
                drop(inside);
                self.to_segments().map(|()| None)
            }
        }
    }

    /// Writes to an array's extent, in place. Its checksum goes before a byte changes.
    fn write_extent(
        &self,
        inside: &Inside<'_>,
        extent: Extent,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<u64>> {
        let txn = inside.read()?;
        space::reach_in(&self.core, inside, extent.end(), &txn)?;
        drop(txn);
        if self.core.setup.checksums && !self.take_checksum(inside, extent)? {
            return Ok(None);
        }
        inside.arena().memory(extent).write_at(offset, data);
        step!("file.stored");
        self.wrote.store(true, Ordering::Relaxed);
        Ok(Some(offset))
    }

    /// Takes the checksum of a value away that is about to be written to; `false` if it lies
    /// elsewhere by now.
    fn take_checksum(&self, inside: &Inside<'_>, expected: Extent) -> Result<bool> {
        use engram_base::checksum::NONE;
        let stamp = write::stamp(&self.core)?;
        let has = |record: &Record<'_>| match record.stored {
            Stored::Contiguous { extent, checksum, .. } if extent == expected => {
                Some(checksum != NONE)
            }
            _ => None,
        };
        let seen = with_record(&mut inside.read()?.rows(), self.oid, |record, _| Ok(has(record)))?;
        if seen != Some(true) {
            return Ok(seen.is_some());
        }
        self.core.commit(inside, Headroom::Relief, |rows| {
            let there = with_record(rows, self.oid, |record, _| Ok(has(record).is_some()))?;
            if there {
                change_record(rows, self.oid, |record| {
                    let nbytes = record.stored.nbytes();
                    let stored = Stored::Contiguous { extent: expected, nbytes, checksum: NONE };
                    Record { stored, modified: stamp.now, ..*record }.encode()
                })?;
            }
            Ok(there)
        })
    }

    /// Changes a value that lies in its record, in one commit: what `edit` says, if it lies there
    /// still, and fits.
    fn write_inline<T>(
        &self,
        inside: &Inside<'_>,
        mut edit: impl FnMut(&mut Vec<u8>) -> Option<T>,
    ) -> Result<Option<T>> {
        let stamp = write::stamp(&self.core)?;
        let done = self.core.commit(inside, Headroom::Normal, |rows| {
            let before = with_record(rows, self.oid, |record, _| {
                Ok(match record.stored {
                    Stored::Inline(bytes) => {
                        Some((bytes.to_vec(), written_at(record.properties, stamp.now)?))
                    }
                    _ => None,
                })
            })?;
            let Some((mut bytes, properties)) = before else { return Ok(None) };
            let Some(done) = edit(&mut bytes) else { return Ok(None) };
            change_record(rows, self.oid, |record| {
                let (stored, modified) = (Stored::Inline(&bytes), stamp.now);
                let generation = record.generation.wrapping_add(1);
                let properties = properties.as_slice();
                Record { stored, properties, generation, modified, ..*record }.encode()
            })?;
            Ok(Some(done))
        })?;
        step!("file.inlined");
        crate::realm::after_commit(&self.core, inside);
        Ok(done)
    }

    /// Puts a file into segments, unless another has done so, or has changed it: then the caller
    /// looks again.
    fn to_segments(&self) -> Result<()> {
        let core = &self.core;
        let inside = core.enter()?;
        let txn = inside.read()?;
        let (form, generation, times, value) =
            with_record(&mut txn.rows(), self.oid, |record, _| {
                let value = match record.stored {
                    Stored::Inline(bytes) => bytes.to_vec(),
                    _ => Vec::new(),
                };
                Ok((FileForm::of(record)?, record.generation, times_of(record)?, value))
            })?;
        if let FileForm::Extent(extent, _) = form {
            space::reach_in(core, &inside, extent.end(), &txn)?;
        }
        drop(txn);
        drop(inside);
        let (head, head_claim) = space::reserve(core, HEAD_BYTES, None)?;
        let (size, (written, accessed)) = (form.nbytes(), times);
        let facts = HeadFacts { size, written, changed: written, accessed, space: 0 };
        head_claim.memory().write(&facts.to_bytes());
        let whole = |extent: Extent| (extent.offset | extent.len).is_multiple_of(PAGE);
        let first = match form {
            FileForm::Segmented => None,
            FileForm::Extent(extent, _) if whole(extent) => None,
            _ if form.nbytes() == 0 => None,
            _ => {
                let len = form.nbytes().next_multiple_of(PAGE);
                let new = NewSegment::reserve(core, 0, [len, len], self.device());
                Some(new.inspect_err(|_| space::give_back(core, head))?)
            }
        };
        if let Some(new) = &first {
            match form {
                FileForm::Extent(extent, nbytes) => {
                    new.claim.memory().copy(&core.space.arena.memory(extent), nbytes);
                }
                _ => new.claim.memory().write(&value),
            }
        }
        step!("file.copied-over");
        let moved = first
            .as_ref()
            .map_or(Ok(()), |new| self.flush_new(new))
            .and_then(|()| space::flush_extent(core, head.extent, HEAD_BYTES))
            .and_then(|()| self.swap_form(form, generation, head.extent, first.as_ref(), head));
        if !matches!(moved, Ok(true)) {
            space::give_back(core, head);
            if let Some(new) = &first {
                space::give_back(core, new.reserved);
            }
        }
        moved.map(drop)
    }

    /// Commits the new form; `false` if the file has changed meanwhile.
    fn swap_form(
        &self,
        form: FileForm,
        generation: u32,
        head: Extent,
        first: Option<&NewSegment>,
        reserved: engram_ops::rows_mut::Reserved,
    ) -> Result<bool> {
        let core = &self.core;
        let inside = core.enter()?;
        if reserved.lease != inside.lease().id() {
            fail!(Busy, "this process has forked while the file was written: write it again");
        }
        let stamp = write::stamp(core)?;
        let done = core.commit(&inside, Headroom::Normal, |rows| {
            let same = with_record(rows, self.oid, |record, _| {
                Ok(FileForm::of(record)? == form && record.generation == generation)
            })?;
            if !same || form == FileForm::Segmented {
                return Ok(false);
            }
            let segmented = Segmented { head, nbytes: form.nbytes() };
            change_record(rows, self.oid, |record| {
                let generation = record.generation.wrapping_add(1);
                let (stored, modified) = (Stored::Segmented(segmented), stamp.now);
                Record { stored, generation, modified, ..*record }.encode()
            })?;
            rows.adopt(reserved)?;
            match (first, form) {
                (Some(new), _) => {
                    segments::put(rows, self.oid, new.segment(), stamp)?;
                    rows.adopt(new.reserved)?;
                    if let FileForm::Extent(extent, _) = form {
                        rows.release(extent, self.oid)?;
                    }
                }
                (None, FileForm::Extent(extent, _)) => {
                    segments::put(rows, self.oid, FileSegment { at: 0, extent }, stamp)?;
                }
                (None, _) => {}
            }
            Ok(true)
        })?;
        step!("file.segmented");
        Ok(done)
    }

    /// Gives a file without segments another size; `false` if it has some by now.
    pub(super) fn resize_record(&self, size: u64) -> Result<bool> {
        let inside = self.core.enter()?;
        let form = self.form(&inside)?;
        if self.fixed && size != form.nbytes() {
            return Err(self.keeps_size());
        }
        match form {
            FileForm::Inline(_) if size <= INLINE_BYTES_MAX => {
                let resize = |bytes: &mut Vec<u8>| {
                    bytes.resize(size as usize, 0);
                    Some(())
                };
                self.write_inline(&inside, resize).map(|done| done.is_some())
            }
            FileForm::Segmented => self.learn(inside).map(|_| false),
            FileForm::Extent(_, nbytes) if size == nbytes => Ok(true),
            _ => {
                drop(inside);
                self.to_segments().map(|()| false)
            }
        }
    }

    /// Sees to it that a file without segments has space up to `end`; `false` if it is to have
    /// segments for that.
    pub(super) fn allocate_record(&self, end: u64, keep: bool) -> Result<bool> {
        let inside = self.core.enter()?;
        let form = self.form(&inside)?;
        match form {
            FileForm::Segmented => self.learn(inside).map(|_| false),
            _ if end <= form.nbytes() => Ok(true),
            _ if self.fixed => Err(self.keeps_size()),
            FileForm::Inline(_) if end <= INLINE_BYTES_MAX && keep => Ok(true),
            FileForm::Inline(_) if end <= INLINE_BYTES_MAX => {
                drop(inside);
                self.resize_record(end)
            }
            _ => {
                drop(inside);
                self.to_segments().map(|()| false)
            }
        }
    }

    /// Zeroes a range of a file without segments; `false` if it is to have segments for that.
    pub(super) fn punch_record(&self, offset: u64, end: u64) -> Result<bool> {
        let inside = self.core.enter()?;
        match self.form(&inside)? {
            FileForm::Inline(_) => {
                let zero = |bytes: &mut Vec<u8>| {
                    let to = (end as usize).min(bytes.len());
                    bytes[(offset as usize).min(to)..to].fill(0);
                    Some(())
                };
                self.write_inline(&inside, zero).map(|done| done.is_some())
            }
            FileForm::Segmented => self.learn(inside).map(|_| false),
            FileForm::Extent(..) => {
                drop(inside);
                self.to_segments().map(|()| false)
            }
        }
    }

    /// The extent of a file that lies in one, as if it were its segment.
    pub(super) fn one_extent(&self) -> Result<Vec<FileSegment>> {
        let inside = self.core.enter()?;
        Ok(match self.form(&inside)? {
            FileForm::Extent(extent, _) => vec![FileSegment { at: 0, extent }],
            _ => Vec::new(),
        })
    }

    /// Makes an extent durable that was written in place.
    pub(super) fn sync_extent(&self) -> Result<()> {
        let inside = self.core.enter()?;
        let FileForm::Extent(extent, nbytes) = self.form(&inside)? else { return Ok(()) };
        space::reach(&self.core, &inside, extent.end())?;
        space::flush_extent(&self.core, extent, nbytes)
    }

    /// Whether another process has the file open, or may come to.
    pub(super) fn others_have_it(&self, inside: &Inside<'_>) -> Result<bool> {
        self.core
            .commit(inside, Headroom::Relief, |_| dead::others_open(&self.core, inside, self.oid))
    }

    /// The refusal of another size.
    pub(super) fn keeps_size(&self) -> Error {
        let what = format!(
            "object {:#x} is an array, which keeps its size: make another, or a file",
            self.oid
        );
        Error::new(Kind::Argument, what)
    }
}
