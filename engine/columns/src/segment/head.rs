//! A segment's head: whose rows it has, and where each column lies. Part 0 of the segment.
//!
//! | Offset | Bytes | What |
//! |---|---|---|
//! | 0 | 4 | `ESG`, then the version, 2 |
//! | 4 | 4 | family |
//! | 8 | 2 | rows |
//! | 10 | 2 | columns |
//! | 12 | 2 | groups that have columns |
//! | 14 | 13 each | columns by key: key (4), offset (4), SF (2), place of the group (2), flags |
//! | | 10 each | groups, in the order of their columns: id (4), part (2), bytes (4) |
//! | | | OIDs, ascending: a sequence |
//!
//! The low four bits of an entry's flags say what they say below; the high four are the number of
//! a [`ValueKind`], or 0. Entries are of one length, so that one column is found without reading
//! the others.

use super::bitmap::Bitmap;
use super::ints::{self, Ints};
use super::layout::ROWS_MAX;
use crate::column_key::ColumnKey;
use crate::value_kind::ValueKind;
use engram_base::error::{Error, Kind, Result};

const MAGIC: [u8; 4] = *b"ESG\x02";
const FIXED_BYTES: usize = 14;
const COLUMN_BYTES: usize = 13;
const GROUP_BYTES: usize = 10;

/// Every row has the column.
pub(super) const ALL_PRESENT: u8 = 1;
/// Some rows are unsure.
pub(super) const HAS_UNSURE: u8 = 2;
/// Every row that has the column has the same cell.
pub(super) const CONSTANT: u8 = 4;
/// The cells are in runs.
pub(super) const IN_RUNS: u8 = 8;
/// From this bit on: of which kind the values of all sure rows were, 0 if nothing is said.
pub(super) const KIND_SHIFT: u32 = 4;

/// Where a column lies, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnEntry {
    /// The column.
    pub key: ColumnKey,
    /// The part of the segment that has it, from 1.
    pub part: u16,
    /// Where in the part it begins.
    pub offset: u32,
    /// The segment's rows.
    pub rows: u32,
    /// How many rows have it.
    pub sf: u32,
    /// Place of its group among [`Segment::groups`].
    pub group: u16,
    flags: u8,
}

impl ColumnEntry {
    /// Whether every row has it.
    pub fn all_present(&self) -> bool {
        self.flags & ALL_PRESENT != 0
    }

    /// Whether some rows are unsure.
    pub fn has_unsure(&self) -> bool {
        self.flags & HAS_UNSURE != 0
    }

    /// Whether every row that has it has the same cell.
    pub fn constant(&self) -> bool {
        self.flags & CONSTANT != 0
    }

    /// Of which kind the values of all its sure rows were, if that is said.
    pub fn kind(&self) -> Option<ValueKind> {
        ValueKind::of(self.flags >> KIND_SHIFT)
    }

    /// Whether its cells are in runs.
    pub fn in_runs(&self) -> bool {
        self.flags & IN_RUNS != 0
    }
}

/// An attribute group of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupEntry {
    /// Its number within the family; [`super::BUILTIN_GROUP`] and [`super::OTHER_GROUP`] too.
    pub id: u32,
    /// The part that has its columns.
    pub part: u16,
    /// Bytes of its columns there.
    pub bytes: u32,
}

/// A column, as the builder knows it.
pub(super) struct NewColumn {
    pub key: ColumnKey,
    pub offset: u32,
    pub sf: u32,
    pub group: u16,
    pub flags: u8,
}

/// The head of a segment: columns in ascending order, OIDs too.
pub(super) fn encode(
    family: u32,
    oids: &[u64],
    columns: &[NewColumn],
    groups: &[GroupEntry],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + COLUMN_BYTES * columns.len() + 16 * groups.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&family.to_le_bytes());
    for count in [oids.len(), columns.len(), groups.len()] {
        let count = u16::try_from(count).expect("the builder keeps to the limits");
        out.extend_from_slice(&count.to_le_bytes());
    }
    for column in columns {
        out.extend_from_slice(&column.key.to_le_bytes());
        out.extend_from_slice(&column.offset.to_le_bytes());
        out.extend_from_slice(&(column.sf as u16).to_le_bytes());
        out.extend_from_slice(&column.group.to_le_bytes());
        out.push(column.flags);
    }
    for group in groups {
        out.extend_from_slice(&group.id.to_le_bytes());
        out.extend_from_slice(&group.part.to_le_bytes());
        out.extend_from_slice(&group.bytes.to_le_bytes());
    }
    ints::push(&mut out, oids);
    out
}

/// A segment, as its head tells it; read in place.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    family: u32,
    columns: &'a [[u8; COLUMN_BYTES]],
    groups: &'a [[u8; GROUP_BYTES]],
    oids: Ints<'a>,
}

fn corrupt() -> Error {
    Error::new(Kind::Corrupt, "a segment's head is not what a segment has")
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn quarter(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

#[expect(clippy::len_without_is_empty, reason = "a segment has rows")]
impl<'a> Segment<'a> {
    /// Reads a head.
    pub fn parse(head: &'a [u8]) -> Result<Self> {
        Self::read(head).ok_or_else(corrupt)
    }

    fn read(head: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = head.split_first_chunk::<FIXED_BYTES>()?;
        let [rows, columns, groups] = [8, 10, 12].map(|at| usize::from(quarter(fixed, at)));
        if fixed[..4] != MAGIC || rows == 0 || rows > ROWS_MAX {
            return None;
        }
        let (columns, rest) = rest.split_at_checked(columns * COLUMN_BYTES)?;
        let (groups, mut rest) = rest.split_at_checked(groups * GROUP_BYTES)?;
        let oids = Ints::take(&mut rest, rows)?;
        let columns = columns.as_chunks().0;
        let groups = groups.as_chunks().0;
        Some(Segment { family: half(fixed, 4), columns, groups, oids })
    }

    /// How many rows, dead ones included; at least 1.
    pub fn len(&self) -> usize {
        self.oids.len()
    }

    /// The family.
    pub fn family(&self) -> u32 {
        self.family
    }

    /// The OID at a position, if there is such a position.
    pub fn oid(&self, position: usize) -> Option<u64> {
        (position < self.len()).then(|| self.oids.get(position))
    }

    /// The OIDs, ascending: by position.
    pub fn oids(&self) -> Vec<u64> {
        self.oids.to_vec()
    }

    /// Appends the OIDs at these positions, ascending.
    pub fn oids_at(&self, positions: &Bitmap, out: &mut Vec<u64>) {
        if positions.is_full() {
            self.oids.extend(out);
        } else {
            self.oids.extend_at(positions, out);
        }
    }

    /// Where an OID lies.
    pub fn position(&self, oid: u64) -> Option<usize> {
        ints::position(&self.oids, oid)
    }

    /// A column's entry, if any row has the column.
    pub fn column(&self, key: ColumnKey) -> Result<Option<ColumnEntry>> {
        let found = self.columns.binary_search_by_key(&key, |entry| half(entry, 0));
        found.ok().map(|at| self.entry(&self.columns[at])).transpose()
    }

    /// Every column, ascending by key.
    pub fn columns(&self) -> impl Iterator<Item = Result<ColumnEntry>> + use<'a> {
        let segment = *self;
        self.columns.iter().map(move |entry| segment.entry(entry))
    }

    /// The groups that have columns, the built-in one first.
    pub fn groups(&self) -> impl Iterator<Item = GroupEntry> + use<'a> {
        self.groups.iter().map(|group| GroupEntry {
            id: half(group, 0),
            part: quarter(group, 4),
            bytes: half(group, 6),
        })
    }

    /// How many parts follow the head: 1 to this.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> u16 {
        self.groups().map(|group| group.part).max().unwrap_or(0)
    }

    fn entry(&self, bytes: &[u8; COLUMN_BYTES]) -> Result<ColumnEntry> {
        let group = quarter(bytes, 10);
        let part = self.groups.get(usize::from(group)).map(|group| quarter(group, 4));
        let (sf, rows) = (u32::from(quarter(bytes, 8)), self.len() as u32);
        match part {
            Some(part @ 1..) if (1..=rows).contains(&sf) => Ok(ColumnEntry {
                key: half(bytes, 0),
                part,
                offset: half(bytes, 4),
                rows,
                sf,
                group,
                flags: bytes[12],
            }),
            _ => Err(corrupt()),
        }
    }
}
