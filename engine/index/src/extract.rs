//! What the index keeps of an object: its record as a row of cells.
//!
//! The built-in cells are here and nowhere else: queries that judge a record itself ask for the
//! same ones.

use std::borrow::Cow;

use engram_base::dtype::{DType, shape_text};
use engram_base::error::Result;
use engram_base::id::Oid;
use engram_columns::cell::{Cell, TEXT_BYTES_MAX, indexed};
use engram_columns::column_key::{
    CREATED, DTYPE, GROUP, IndexRow, NAME, NATTRS, NBYTES, NDIM, OWNER, RowCell, SHAPE, SIZE,
    unsigned,
};
use engram_records::attrs;
use engram_records::attrs::KeyId;
use engram_records::object::{Class, Record};

/// The dtype as numpy writes it; `bytes` for a blob.
pub fn dtype_text(record: &Record<'_>) -> Result<Cow<'static, str>> {
    // The usual ones, without a decoding and an allocation for each object.
    Ok(match (record.class, record.dtype) {
        (Class::Blob | Class::Group, _) => "bytes".into(),
        (Class::Strings, _) => "StringDType()".into(),
        (_, [1, b'f', b'<', 8, 0, 0, 0]) => "float64".into(),
        (_, [1, b'f', b'<', 4, 0, 0, 0]) => "float32".into(),
        (_, [1, b'i', b'<', 8, 0, 0, 0]) => "int64".into(),
        (_, [1, b'i', b'<', 4, 0, 0, 0]) => "int32".into(),
        (_, dtype) => DType::decode(dtype)?.0.text().into(),
    })
}

/// The shape as Python writes it; a blob's is that of its bytes.
pub fn shape(record: &Record<'_>) -> Vec<u64> {
    match record.class {
        Class::Blob => vec![record.stored.nbytes()],
        _ => record.decode_shape(),
    }
}

/// How many items a shape has.
pub fn size(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |size: u64, length| size.saturating_mul(*length))
}

/// What the index keeps of many objects: their rows' cells, all in one buffer.
pub struct Extracted<'a> {
    cells: Vec<RowCell<'a>>,
    /// Each object and where its cells end.
    ends: Vec<(Oid, usize)>,
}

impl<'a> Extracted<'a> {
    /// Makes an empty list, with room for so many objects.
    pub fn with_capacity(objects: usize) -> Self {
        Extracted { cells: Vec::new(), ends: Vec::with_capacity(objects) }
    }

    /// Adds an object, whose name has this number. `long` are the keys of attributes that were left
    /// out of the record because the index does not keep their like.
    pub fn push(
        &mut self,
        oid: Oid,
        record: &Record<'a>,
        name: u32,
        long: impl IntoIterator<Item = KeyId>,
    ) -> Result<()> {
        push_cells(&mut self.cells, record, name, long)?;
        self.ends.push((oid, self.cells.len()));
        if self.ends.len() == 1 {
            // The others will be much like it.
            self.cells.reserve(self.cells.len() * self.ends.capacity());
        }
        Ok(())
    }

    /// The rows, in the order in which they were added.
    pub fn rows(&self) -> impl Iterator<Item = IndexRow<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |(oid, end)| {
            let cells = &self.cells[start..*end];
            start = *end;
            IndexRow { oid: *oid, cells }
        })
    }
}

/// Appends the cells of one object's row.
fn push_cells<'a>(
    cells: &mut Vec<RowCell<'a>>,
    record: &Record<'a>,
    name: u32,
    long: impl IntoIterator<Item = KeyId>,
) -> Result<()> {
    let start = cells.len();
    for entry in attrs::entries(record.attrs) {
        let entry = entry?;
        // An array is not taken apart for nothing.
        let unsure = !entry.is_single() || entry.bytes.len() > 2 * TEXT_BYTES_MAX;
        cells.push((entry.key, if unsure { None } else { indexed(&entry)? }));
    }
    cells.extend(long.into_iter().map(|key| (key, None)));
    let attributes = (cells.len() - start) as u64;
    // Usually they are in order already; each key is there once.
    let ascend = |cells: &[RowCell<'_>]| cells.is_sorted_by(|a, b| a.0 < b.0);
    if !ascend(&cells[start..]) {
        cells[start..].sort_by_key(|(key, _)| *key);
        if !ascend(&cells[start..]) {
            let mut own = cells.split_off(start);
            own.dedup_by_key(|(key, _)| *key);
            cells.append(&mut own);
        }
    }
    let shape = shape(record);
    let built_in = [
        (GROUP, unsigned(record.parent)),
        (NAME, Cell::Int(i64::from(name))),
        (OWNER, Cell::Int(i64::from(record.owner))),
        (DTYPE, Cell::Text(dtype_text(record)?)),
        (SHAPE, Cell::Text(shape_text(&shape).into())),
        (NDIM, Cell::Int(shape.len() as i64)),
        (SIZE, unsigned(size(&shape))),
        (NBYTES, unsigned(record.stored.nbytes())),
        (CREATED, Cell::Time(record.created)),
        (NATTRS, unsigned(attributes)),
    ];
    cells.extend(built_in.into_iter().map(|(key, cell)| (key, Some(cell))));
    Ok(())
}
