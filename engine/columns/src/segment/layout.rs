//! How a segment's columns are grouped.

use crate::column_key::ColumnKey;

/// The most rows of a segment: a position takes 16 bits.
pub(crate) const ROWS_MAX: usize = u16::MAX as usize;

/// The most columns of a segment, built-in ones included: places of columns, groups and parts take
/// 16 bits.
pub const COLUMNS_MAX: usize = 60_000;

/// The group of the built-in columns.
pub const BUILTIN_GROUP: u32 = 0;
/// The group of the columns that no group of the layout names.
pub(crate) const OTHER_GROUP: u32 = u32::MAX;

/// What a segment is to be: its family, and its attribute groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentLayout {
    /// The family that the segment belongs to.
    pub family: u32,
    /// Attribute groups, in the order of their columns in the segment. Built-in columns always form
    /// a group of their own before these ([`BUILTIN_GROUP`]), and columns that are named nowhere
    /// form one behind them ([`OTHER_GROUP`]): a segment keeps whatever its rows have.
    pub groups: Vec<AttributeGroup>,
}

/// Columns that lie side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeGroup {
    /// Its number within the family, neither [`BUILTIN_GROUP`] nor [`OTHER_GROUP`].
    pub id: u32,
    /// Which columns; those that no row has are left out of the segment.
    pub columns: Vec<ColumnKey>,
    /// How their values are kept.
    pub kind: GroupKind,
}

/// How an attribute group's values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// As columns.
    Columns,
    /// As columns row by row: nearly every value is another.
    Rows,
    /// As sorted runs: the segment keeps only which rows have the attribute.
    Runs,
}
