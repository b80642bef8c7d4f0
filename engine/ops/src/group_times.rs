//! Times of groups: when names in a group last changed, and how many groups are in it.
//!
//! A file system shows them as a folder's times and links. A group has a row here from the first
//! time on that a file system has to do with it ([`begin`]); then every change of a name in it says
//! so, whoever makes it. A pool without files has no rows, and its changes cost nothing more.

use crate::rows_mut::RowsMut;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Member, NameKey, id_key, split_name_key};
use engram_catalog::Table;
use engram_catalog::rows::Rows;

const ROW_BYTES: usize = 20;

/// The times of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTimes {
    /// When names in it last changed, in ns since 1970, or what somebody has said of that.
    pub written: i64,
    /// When they last changed.
    pub changed: i64,
    /// How many groups are in it.
    pub groups: u32,
}

impl GroupTimes {
    /// The row that `parse` reads.
    pub fn to_row(self) -> [u8; ROW_BYTES] {
        let mut row = [0; ROW_BYTES];
        row[..8].copy_from_slice(&self.written.to_le_bytes());
        row[8..16].copy_from_slice(&self.changed.to_le_bytes());
        row[16..].copy_from_slice(&self.groups.to_le_bytes());
        row
    }

    /// Reads a row.
    pub fn parse(row: &[u8]) -> Result<Self> {
        let Ok(row) = <[u8; ROW_BYTES]>::try_from(row) else {
            fail!(Corrupt, "a row of `group_times` has {} bytes, not {ROW_BYTES}", row.len())
        };
        let time = |at: usize| i64::from_le_bytes(row[at..at + 8].try_into().expect("8 bytes"));
        let groups = u32::from_le_bytes(row[16..].try_into().expect("4 bytes"));
        Ok(GroupTimes { written: time(0), changed: time(8), groups })
    }

    /// What a change of names at this time makes of them.
    #[must_use]
    pub fn after(self, now: i64, groups: i32) -> Self {
        let groups = self.groups.saturating_add_signed(groups);
        GroupTimes { written: now, changed: now, groups }
    }
}

/// The times of a group; `None` where no file system has had to do with it.
pub fn of(rows: &mut dyn Rows, gid: Gid) -> Result<Option<GroupTimes>> {
    rows.get(Table::GroupTimes, &id_key(gid))?.map(|row| GroupTimes::parse(&row)).transpose()
}

/// How many groups are in a group, counted.
pub fn count_groups(rows: &mut dyn Rows, gid: Gid) -> Result<u32> {
    let (mut groups, mut from) = (0, NameKey::new(gid, "").as_bytes().to_vec());
    while let Some((mut key, row)) = rows.first_from(Table::Names, &from)? {
        if split_name_key(&key)?.0 != gid {
            break;
        }
        groups += u32::from(matches!(Member::from_row(&row)?, Member::Group(_)));
        key.push(0);
        from = key;
    }
    Ok(groups)
}

/// Gives a group its row, with what its record says, unless it has one.
pub fn begin(rows: &mut dyn RowsMut, gid: Gid, modified: i64) -> Result<()> {
    if of(rows, gid)?.is_some() {
        return Ok(());
    }
    let groups = count_groups(rows, gid)?;
    let times = GroupTimes { written: modified, changed: modified, groups };
    rows.put(Table::GroupTimes, &id_key(gid), &times.to_row())
}

/// Removes the row of a group that goes, if it has one.
pub(crate) fn end(rows: &mut dyn RowsMut, gid: Gid) -> Result<()> {
    if rows.has_rows(Table::GroupTimes)? && of(rows, gid)?.is_some() {
        rows.remove(Table::GroupTimes, &id_key(gid))?;
    }
    Ok(())
}
