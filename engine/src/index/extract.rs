//! What the index keeps of an object: its record as a row of cells.
//!
//! The built-in cells are here and nowhere else: queries that judge a record itself ask for the
//! same ones.

use std::borrow::Cow;

use super::cell::{Cell, TEXT_BYTES_MAX, indexed};
use super::column_key::{
    CREATED, DTYPE, GROUP, NAME, NATTRS, NBYTES, NDIM, OWNER, Row, RowCell, SHAPE, SIZE, unsigned,
};
use crate::attrs::{self, KeyId};
use crate::dtype::{DType, shape_text};
use crate::error::Result;
use crate::id::Oid;
use crate::object::{Class, Record};

/// The dtype as numpy writes it; `bytes` for a blob.
pub(crate) fn dtype_text(record: &Record<'_>) -> Result<Cow<'static, str>> {
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
pub(crate) fn shape(record: &Record<'_>) -> Vec<u64> {
    match record.class {
        Class::Blob => vec![record.stored.nbytes()],
        _ => record.decode_shape(),
    }
}

/// How many items a shape has.
pub(crate) fn size(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |size: u64, length| size.saturating_mul(*length))
}

/// What the index keeps of many objects: their rows' cells, all in one buffer.
pub(crate) struct Extracted<'a> {
    cells: Vec<RowCell<'a>>,
    /// Each object and where its cells end.
    ends: Vec<(Oid, usize)>,
}

impl<'a> Extracted<'a> {
    /// Room for so many objects.
    pub(crate) fn with_capacity(objects: usize) -> Self {
        Extracted { cells: Vec::new(), ends: Vec::with_capacity(objects) }
    }

    /// Adds an object, whose name has this number. `long` are the keys of attributes that were left
    /// out of the record because the index does not keep their like.
    pub(crate) fn push(
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
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |(oid, end)| {
            let cells = &self.cells[start..*end];
            start = *end;
            Row { oid: *oid, cells }
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
