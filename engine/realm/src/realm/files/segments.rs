//! Rows of segments, in `chunks`, as they come and go.

use super::map::FileMap;
use super::{OpenFile, part, with_record};
use crate::realm::commit::Changes;
use crate::realm::core::Core;
use crate::realm::{space, write};
use crate::view::Claim;
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Member, Oid, id_key};
use engram_catalog::rows::Rows;
use engram_catalog::{Headroom, ReadTxn, Table};
use engram_ops::links;
use engram_ops::rows_mut::{Reserved, RowsMut};
use engram_ops::{chunk_rows, group};
use engram_records::extent::{Extent, PAGE};
use engram_records::index_mode::Touch;
use engram_records::object::{Record, Stored};
use engram_records::segmented::Segmented;
use engram_records::stamp::Stamp;
use engram_space::head::FileHead;
use std::borrow::Cow;
use std::sync::Arc;

/// A segment: an extent of whole pages, and where it is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSegment {
    /// Where it begins in the file.
    pub at: u64,
    /// Where it lies in the arena.
    pub extent: Extent,
}

impl FileSegment {
    /// Where it ends in the file.
    pub fn end(&self) -> u64 {
        self.at + self.extent.len
    }
}

/// The key of a segment.
pub(super) fn key_of(oid: Oid, at: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&id_key(oid));
    key[8..].copy_from_slice(&at.to_be_bytes());
    key
}

/// The segment of a row; `CorruptError` if it can be none.
fn parse(oid: Oid, key: &[u8], row: &[u8]) -> Result<FileSegment> {
    chunk_rows::segment(oid, key, row).map(|(at, extent)| FileSegment { at, extent })
}

/// Every segment of a file, in order.
pub(super) fn all(txn: &ReadTxn<'_>, oid: Oid) -> Result<Vec<FileSegment>> {
    let mut all: Vec<FileSegment> = Vec::new();
    let mut cursor = txn.seek(Table::Chunks, &id_key(oid))?;
    while let Some((key, row)) = cursor.next()? {
        if !key.starts_with(&id_key(oid)) {
            break;
        }
        let segment = parse(oid, key, row)?;
        if all.last().is_some_and(|last| last.end() > segment.at) {
            fail!(Corrupt, "two segments of file {oid:#x} overlap at {}: run verify", segment.at);
        }
        all.push(segment);
    }
    Ok(all)
}

/// The last segment that begins before an offset.
fn before(rows: &mut Changes<'_>, oid: Oid, offset: u64) -> Result<Option<FileSegment>> {
    match rows.txn().before(Table::Chunks, &key_of(oid, offset))? {
        Some((key, row)) if key.starts_with(&id_key(oid)) => parse(oid, key, row).map(Some),
        _ => Ok(None),
    }
}

/// Puts the row of a segment.
pub(super) fn put(
    rows: &mut dyn RowsMut,
    oid: Oid,
    segment: FileSegment,
    stamp: Stamp,
) -> Result<()> {
    let record = chunk_rows::segment_record(oid, segment.extent, stamp);
    rows.put_record(Table::Chunks, &key_of(oid, segment.at), &record)
}

/// A segment that has its space, and no row yet.
pub(super) struct NewSegment {
    pub at: u64,
    pub reserved: Reserved,
    pub claim: Claim,
}

impl NewSegment {
    /// Reserves whole pages for a place in the file, on a device if one is named: so many bytes, or
    /// fewer, if there is no piece so long.
    pub fn reserve(
        core: &Arc<Core>,
        at: u64,
        [most, least]: [u64; 2],
        device: Option<u32>,
    ) -> Result<NewSegment> {
        let mut len = most;
        loop {
            match space::reserve(core, len, device) {
                Ok((reserved, claim)) => return Ok(NewSegment { at, reserved, claim }),
                Err(error) if error.kind() == Kind::PoolFull && len > least => {
                    len = (len / 2).next_multiple_of(PAGE).max(least);
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub fn segment(&self) -> FileSegment {
        FileSegment { at: self.at, extent: self.reserved.extent }
    }
}

/// Gives a file a segment, if there still is a hole; the map with it, if nothing else has changed.
/// Where it is not taken its space goes back.
pub(super) fn add(open: &OpenFile, map: &FileMap, new: &NewSegment) -> Result<Option<FileMap>> {
    let (core, oid) = (&open.core, open.oid);
    let added = add_row(open, map, new);
    if !matches!(added, Ok(Some(_))) {
        space::give_back(core, new.reserved);
    }
    let Some((before, id)) = added? else { return Ok(None) };
    step!("file.added");
    debug_assert!(before < id, "file {oid:#x} is changed by transaction {id} and by {before}");
    Ok((before <= map.as_of).then(|| map.with(id, &[new.segment()])))
}

/// Commits the row; which transaction changed segments before, and which has now.
fn add_row(open: &OpenFile, map: &FileMap, new: &NewSegment) -> Result<Option<(u64, u64)>> {
    let (core, oid) = (&open.core, open.oid);
    let inside = core.enter()?;
    if new.reserved.lease != inside.lease().id() {
        fail!(Busy, "this process has forked while the file was written: write it again");
    }
    let stamp = write::stamp(core)?;
    core.commit(&inside, Headroom::Normal, |rows| {
        check_segmented(rows, oid)?;
        let segment = new.segment();
        if before(rows, oid, segment.end())?.is_some_and(|known| known.end() > segment.at) {
            return Ok(None);
        }
        put(rows, oid, segment, stamp)?;
        rows.adopt(new.reserved)?;
        Ok(Some(announce(rows, &map.head)))
    })
}

/// Says in the head that this transaction changes segments; the last that did so and was committed,
/// and this one. A word beyond the last commit is one that somebody died on.
pub(super) fn announce(rows: &mut Changes<'_>, head: &FileHead) -> (u64, u64) {
    let id = rows.txn().id();
    let before = head.map().min(id - 1);
    step!("file.row");
    head.set_map(id);
    step!("file.mapped");
    (before, id)
}

/// Refuses to change segments of what has none any more.
fn check_segmented(rows: &mut dyn Rows, oid: Oid) -> Result<()> {
    with_record(rows, oid, |record, _| match record.stored {
        Stored::Segmented(_) => Ok(()),
        _ => fail!(Corrupt, "{:?} was in segments, and is not: run verify", record.name),
    })
}

/// Removes what segments have of a range of whole pages, and tells the record what the size is; the
/// caller has the tail.
pub(super) fn cut(open: &OpenFile, map: &FileMap, from: u64, to: u64, size: u64) -> Result<()> {
    let (core, oid) = (&open.core, open.oid);
    let inside = core.enter()?;
    let stamp = write::stamp(core)?;
    core.commit(&inside, Headroom::Relief, |rows| {
        cut_rows(rows, oid, from, to, stamp)?;
        set_nbytes(rows, oid, size, stamp)?;
        announce(rows, &map.head);
        Ok(())
    })?;
    step!("file.cut");
    crate::realm::after_commit(core, &inside);
    Ok(())
}

/// Removes the rows of what segments have of a range of whole pages.
pub(super) fn cut_rows(
    rows: &mut Changes<'_>,
    oid: Oid,
    from: u64,
    to: u64,
    stamp: Stamp,
) -> Result<()> {
    let mut end = to;
    while let Some(segment) = before(rows, oid, end)?.filter(|segment| segment.end() > from) {
        rows.remove(Table::Chunks, &key_of(oid, segment.at))?;
        let (first, last) = (segment.at.max(from), segment.end().min(to));
        if segment.at < first {
            let extent = part(segment.extent, 0, first - segment.at);
            put(rows, oid, FileSegment { at: segment.at, extent }, stamp)?;
        }
        if last < segment.end() {
            let extent = part(segment.extent, last - segment.at, segment.end() - last);
            put(rows, oid, FileSegment { at: last, extent }, stamp)?;
        }
        rows.cut(part(segment.extent, first - segment.at, last - first), oid)?;
        end = segment.at;
    }
    Ok(())
}

/// Tells the record how long the file is.
pub(super) fn set_nbytes(
    rows: &mut dyn RowsMut,
    oid: Oid,
    nbytes: u64,
    stamp: Stamp,
) -> Result<()> {
    change_record(rows, oid, |record| {
        let stored = match record.stored {
            Stored::Segmented(segmented) => Stored::Segmented(Segmented { nbytes, ..segmented }),
            stored => stored,
        };
        Record { stored, modified: stamp.now, ..*record }.encode()
    })
}

/// Changes the row of a file's record, which may have no name any more.
pub(super) fn change_record(
    rows: &mut dyn RowsMut,
    oid: Oid,
    change: impl FnOnce(&Record<'_>) -> Vec<u8>,
) -> Result<()> {
    let key = id_key(oid);
    let orphan = rows.get(Table::Orphans, &key)?.map(Cow::into_owned);
    if let Some(row) = orphan {
        let (txn, record) = links::split_orphan(&row)?;
        let row = change(&Record::parse(record)?);
        return rows.put(Table::Orphans, &key, &links::orphan_row(txn, &Record::parse(&row)?));
    }
    let (row, index, before) = group::with_record(rows, Member::Object(oid), |record| {
        Ok((change(record), record.index, record.stored.nbytes()))
    })?;
    rows.put(Table::Objects, &key, &row)?;
    if Record::parse(&row)?.stored.nbytes() != before {
        rows.index(oid, Touch::Changed(index))?;
    }
    Ok(())
}
