//! Chunks: each belongs to a chunked array that is there, and lies within it.

use std::collections::HashMap;

use super::files::Files;
use super::values::Sum;
use super::{PULSE_ROWS, Walk};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::id_of_key;
use engram_catalog::{ReadTxn, Table};
use engram_ops::chunk_rows::{parse, split_key};
use engram_records::chunked::codec::{CHECK, checked};
use engram_records::chunked::grid::Grid;
use engram_records::extent::Extent;
use engram_records::object::{Class, Record, Stored};

impl Walk<'_> {
    /// Decodes every chunk's row, and sees that its array has such a one.
    pub(super) fn chunks(
        &mut self,
        txn: &ReadTxn<'_>,
        files: &mut Files,
        extents: &mut Vec<(Extent, String)>,
        sums: &mut Vec<Sum>,
    ) -> Result<()> {
        if txn.entries(Table::Chunks)? == 0 {
            return Ok(());
        }
        let grids = grids(txn)?;
        let mut cursor = txn.seek(Table::Chunks, &[])?;
        let mut seen = 0usize;
        while let Some((key, row)) = cursor.next()? {
            if seen.is_multiple_of(PULSE_ROWS) {
                (self.pulse)();
            }
            seen += 1;
            if let Ok(oid) = id_of_key(key.get(..8).unwrap_or_default())
                && let Some(segment) = files.segment(oid, key, row)
            {
                match segment {
                    Ok((at, extent)) => {
                        extents.push((extent, format!("segment at {at} of file {oid:#x}")));
                    }
                    Err(error) => self.problem(error),
                }
                continue;
            }
            if let Err(error) = self.chunk(&grids, key, row, extents, sums) {
                self.problem(error);
            }
        }
        Ok(())
    }

    fn chunk(
        &mut self,
        grids: &HashMap<u64, (Grid, bool)>,
        key: &[u8],
        row: &[u8],
        extents: &mut Vec<(Extent, String)>,
        sums: &mut Vec<Sum>,
    ) -> Result<()> {
        let (oid, cell) = split_key(key)?;
        let what = format!("chunk {cell:?} of object {oid:#x}");
        let record = parse(row).map_err(|error| error.context(&what))?;
        // Whatever else is wrong with it, its extent is in use.
        if let Some(extent) = record.extent() {
            extents.push((extent, what.clone()));
        }
        self.check_checked(&record).map_err(|error| error.context(&what))?;
        record.check().map_err(|error| error.context(&what))?;
        let Some((grid, coded)) = grids.get(&oid) else {
            fail!(Corrupt, "{what} belongs to no chunked array or file that is there")
        };
        if record.parent != oid {
            fail!(Corrupt, "{what} says that it belongs to {:#x}", record.parent);
        }
        if !grid.reaches(&cell) {
            fail!(Corrupt, "{what} lies beyond the array's shape {:?}", grid.shape);
        }
        let check = if *coded { CHECK as u64 } else { 0 };
        let (nbytes, most) = (record.stored.nbytes(), grid.chunk_bytes() as u64 + check);
        if nbytes > most {
            fail!(Corrupt, "{what} has {nbytes} bytes, a chunk of the array {most} at most");
        }
        match record.stored {
            Stored::Contiguous { extent, nbytes, checksum: word }
                if *coded || self.core.setup.checksums =>
            {
                let (table, key) = (Table::Chunks, key.to_vec());
                sums.push(Sum { table, key, extent, nbytes, word, coded: *coded });
            }
            Stored::Inline(bytes) if *coded => {
                checked(bytes).map_err(|error| error.context(&what))?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// The grids of all chunked arrays whose records can be read, and whether they have a codec.
fn grids(txn: &ReadTxn<'_>) -> Result<HashMap<u64, (Grid, bool)>> {
    let mut grids = HashMap::new();
    let mut cursor = txn.seek(Table::Objects, &[])?;
    while let Some((key, row)) = cursor.next()? {
        if let Ok(record) = Record::parse(row)
            && record.class == Class::Array
            && let Stored::Chunked(chunking) = &record.stored
            && let Ok(grid) = Grid::of(&record, chunking)
            && let Ok(oid) = <[u8; 8]>::try_from(key)
        {
            grids.insert(u64::from_be_bytes(oid), (grid, !chunking.codec.is_none()));
        }
    }
    Ok(grids)
}
