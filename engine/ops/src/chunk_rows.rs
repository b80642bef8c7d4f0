//! Rows of `chunks`: keys, records, and how they come and go.
//!
//! A key is the array's OID and the chunk's place in the grid, four bytes a dimension, all
//! big-endian: the chunks of an array follow one another, in C order. The value is a record of
//! class `Chunk` without name, dtype and shape, whose parent is the array.

use crate::rows_mut::{Reserved, RowsMut};
use engram_base::checksum::NONE;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Oid, id_key};
use engram_catalog::Table;
use engram_catalog::rows::{Row, Rows};
use engram_records::chunked::grid::{Grid, GridCell};
use engram_records::extent::{Extent, PAGE};
use engram_records::index_mode::IndexMode;
use engram_records::object::{Class, Flags, Record, Stored};
use engram_records::segmented::FILE_BYTES_MAX;
use engram_records::stamp::Stamp;

/// The bytes of a key before the place.
const OID_BYTES: usize = 8;

/// The key of a chunk.
pub fn key_of(oid: Oid, cell: &[u32]) -> Vec<u8> {
    let mut key = Vec::with_capacity(OID_BYTES + 4 * cell.len());
    key.extend(id_key(oid));
    key.extend(cell.iter().flat_map(|at| at.to_be_bytes()));
    key
}

/// Splits a key into the array and the chunk's place.
pub fn split_key(key: &[u8]) -> Result<(Oid, GridCell)> {
    let Some((oid, place)) = key.split_first_chunk::<OID_BYTES>() else {
        fail!(Corrupt, "a key of `chunks` has only {} bytes", key.len())
    };
    let (place, rest) = place.as_chunks::<4>();
    if !rest.is_empty() || place.is_empty() {
        fail!(Corrupt, "a key of `chunks` has {} bytes", key.len());
    }
    Ok((u64::from_be_bytes(*oid), place.iter().map(|at| u32::from_be_bytes(*at)).collect()))
}

/// A segment of a file: where it begins in the file, and its extent. Its key is the file's OID and
/// that place, and all of the extent counts; `CorruptError` if it can be none.
pub fn segment(oid: Oid, key: &[u8], row: &[u8]) -> Result<(u64, Extent)> {
    let Some(at) = key.get(OID_BYTES..).and_then(|at| <[u8; 8]>::try_from(at).ok()) else {
        fail!(Corrupt, "the key of a segment of file {oid:#x} has {} bytes", key.len())
    };
    let (at, record) = (u64::from_be_bytes(at), parse(row)?);
    let Stored::Contiguous { extent, nbytes, .. } = record.stored else {
        fail!(Corrupt, "a segment of file {oid:#x} lies in its row")
    };
    let whole = (at | extent.offset | extent.len).is_multiple_of(PAGE) && nbytes == extent.len;
    let ends = at.checked_add(extent.len).is_some_and(|end| end <= FILE_BYTES_MAX);
    if record.parent != oid || !whole || !ends {
        fail!(
            Corrupt,
            "a segment of file {oid:#x} at {at} cannot be {extent:?}, of {nbytes} bytes"
        );
    }
    Ok((at, extent))
}

/// The record of a segment.
pub fn segment_record(oid: Oid, extent: Extent, stamp: Stamp) -> Record<'static> {
    let nbytes = extent.len;
    record(oid, Stored::Contiguous { extent, nbytes, checksum: NONE }, stamp)
}

/// A chunk's record, as far as it is one.
pub fn parse(row: &[u8]) -> Result<Record<'_>> {
    let record = Record::parse(row)?;
    if record.class != Class::Chunk {
        fail!(Corrupt, "a row of `chunks` has a record of class {:?}", record.class);
    }
    Ok(record)
}

/// The first row of an array's chunks at or after a key.
pub(crate) fn first_from(rows: &mut dyn Rows, oid: Oid, from: &[u8]) -> Result<Option<Row>> {
    let first = rows.first_from(Table::Chunks, from)?;
    Ok(first.filter(|(key, _)| key.starts_with(&id_key(oid))))
}

/// Whether an array has any chunk here.
pub(crate) fn any(rows: &mut dyn Rows, oid: Oid) -> Result<bool> {
    first_from(rows, oid, &id_key(oid)).map(|first| first.is_some())
}

/// Walks the rows of an array's chunks while the rows may change: the next one at or after `from`,
/// which is moved behind it. A walk begins at `id_key(oid)`.
pub fn next(rows: &mut dyn Rows, oid: Oid, from: &mut Vec<u8>) -> Result<Option<Row>> {
    let row = first_from(rows, oid, from)?;
    if let Some((key, _)) = &row {
        from.clone_from(key);
        from.push(0);
    }
    Ok(row)
}

/// Removes a chunk.
fn remove(rows: &mut dyn RowsMut, key: &[u8]) -> Result<()> {
    // Read here, so that a batch relies on it.
    let extent = match rows.get(Table::Chunks, key)? {
        Some(row) => parse(&row)?.extent(),
        None => return Ok(()),
    };
    rows.remove(Table::Chunks, key)?;
    match extent {
        Some(extent) => rows.release(extent, split_key(key)?.0),
        None => Ok(()),
    }
}

/// Removes up to `most` of an array's chunks; how many it were.
pub fn remove_all(rows: &mut dyn RowsMut, oid: Oid, most: usize) -> Result<usize> {
    let (mut gone, mut from) = (0, id_key(oid).to_vec());
    while gone < most
        && let Some((key, _)) = next(rows, oid, &mut from)?
    {
        remove(rows, &key)?;
        gone += 1;
    }
    Ok(gone)
}

/// Removes the chunks that the grid does not reach any more.
pub fn cut(rows: &mut dyn RowsMut, oid: Oid, grid: &Grid) -> Result<()> {
    let mut from = id_key(oid).to_vec();
    while let Some((key, _)) = next(rows, oid, &mut from)? {
        if !grid.reaches(&split_key(&key)?.1) {
            remove(rows, &key)?;
        }
    }
    Ok(())
}

/// What a chunk is to be, and what it must have been.
pub struct Staged {
    /// Where it is in the grid.
    pub cell: GridCell,
    /// What it holds.
    pub value: ChunkValue,
    /// What must be there for it to be put: see [`Staged::fits`].
    pub expected: ExpectedChunk,
}

/// Where an encoded chunk lies.
pub enum ChunkValue {
    /// In its row.
    Inline(Vec<u8>),
    /// In an extent that was reserved, and filled, before.
    Reserved {
        /// The reservation, which the row takes over.
        reserved: Reserved,
        /// The encoded chunk's length in bytes.
        nbytes: u64,
        /// Its checksum word, or 0: it has none.
        checksum: u64,
    },
}

/// What a chunk must be for another to take its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedChunk {
    /// Whatever is there, or nothing.
    Anything,
    /// Not there, or of this generation.
    As(Option<u32>),
}

impl Staged {
    /// Whether the chunk is as this one expects it.
    pub fn fits(&self, rows: &mut dyn Rows, oid: Oid) -> Result<bool> {
        let ExpectedChunk::As(expected) = self.expected else { return Ok(true) };
        let row = rows.get(Table::Chunks, &key_of(oid, &self.cell))?;
        let there = row.map(|row| parse(&row).map(|record| record.generation)).transpose()?;
        Ok(there == expected)
    }

    /// Puts it in place of what is there.
    pub fn put(&self, rows: &mut dyn RowsMut, oid: Oid, stamp: Stamp) -> Result<()> {
        let key = key_of(oid, &self.cell);
        let before = rows.get(Table::Chunks, &key)?;
        let before = before
            .map(|row| parse(&row).map(|r| (r.extent(), r.generation, r.created)))
            .transpose()?;
        let (generation, created) = before.map_or((0, stamp.now), |(_, generation, created)| {
            (generation.wrapping_add(1), created)
        });
        let stored = match &self.value {
            ChunkValue::Inline(bytes) => Stored::Inline(bytes),
            ChunkValue::Reserved { reserved, nbytes, checksum } => {
                let (nbytes, checksum) = (*nbytes, *checksum);
                Stored::Contiguous { extent: reserved.extent, nbytes, checksum }
            }
        };
        let record = Record { generation, created, ..record(oid, stored, stamp) };
        rows.put_record(Table::Chunks, &key, &record)?;
        if let ChunkValue::Reserved { reserved, .. } = &self.value {
            rows.adopt(*reserved)?;
        }
        match before {
            Some((Some(extent), ..)) => rows.release(extent, oid),
            _ => Ok(()),
        }
    }
}

fn record(oid: Oid, stored: Stored<'_>, stamp: Stamp) -> Record<'_> {
    Record {
        class: Class::Chunk,
        generation: 0,
        owner: stamp.owner,
        parent: oid,
        created: stamp.now,
        modified: stamp.now,
        name: "",
        dtype: &[],
        ndim: 0,
        shape: &[],
        dims: &[],
        attrs: &[],
        origin: &[],
        properties: &[],
        index: IndexMode::default(),
        flags: Flags::default(),
        checked: stamp.checksums,
        stored,
    }
}

#[cfg(test)]
mod tests;
