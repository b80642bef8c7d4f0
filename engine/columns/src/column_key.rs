//! What the index calls a column, and what it keeps of one object.
//!
//! An attribute's column is called by the number that its key is interned as. The values that every
//! object has beside its attributes have columns too, numbered from the top, where no key gets.

use super::cell::Cell;

/// The number of a column: an attribute's key, or one of the constants here.
pub type ColumnKey = u32;

/// The least built-in column; every greater number is one too.
pub const FIRST_BUILTIN: ColumnKey = 0xFFFF_FF00;
/// OIDs. No segment stores it as a column; its zones are the directory of segments.
pub const OID: ColumnKey = FIRST_BUILTIN;
/// The GID of the group that holds the object.
pub const GROUP: ColumnKey = FIRST_BUILTIN + 1;
/// The object's name.
pub const NAME: ColumnKey = FIRST_BUILTIN + 2;
/// The owner's uid.
pub const OWNER: ColumnKey = FIRST_BUILTIN + 3;
/// The dtype, as numpy writes it.
pub const DTYPE: ColumnKey = FIRST_BUILTIN + 4;
/// The shape, as `(3, 4)`.
pub const SHAPE: ColumnKey = FIRST_BUILTIN + 5;
/// How many dimensions.
pub const NDIM: ColumnKey = FIRST_BUILTIN + 6;
/// How many items.
pub const SIZE: ColumnKey = FIRST_BUILTIN + 7;
/// Bytes of the value.
pub const NBYTES: ColumnKey = FIRST_BUILTIN + 8;
/// When the object was made: a time.
pub const CREATED: ColumnKey = FIRST_BUILTIN + 9;
/// How many attributes the object has.
pub const NATTRS: ColumnKey = FIRST_BUILTIN + 10;

/// Whether the column is one of every object's.
pub fn is_builtin(key: ColumnKey) -> bool {
    key >= FIRST_BUILTIN
}

/// An unsigned number (a GID, a count of bytes) as a cell.
pub fn unsigned(value: u64) -> Cell<'static> {
    i64::try_from(value).map_or(Cell::Big(value), Cell::Int)
}

/// A column's cell in one row. `None` is "unsure": there is such an attribute, and the record alone
/// says what it is (see [`super::cell::Cells::indexed`]).
pub type RowCell<'a> = (ColumnKey, Option<Cell<'a>>);

/// What the index keeps of one object.
#[derive(Clone, Copy, Debug)]
pub struct IndexRow<'a> {
    /// The object.
    pub oid: u64,
    /// Its cells, in ascending order of their columns, each column once.
    pub cells: &'a [RowCell<'a>],
}
