//! Every group's path, remembered for as long as nobody commits.
//!
//! Tests of groups are about all groups at once when they are to rule segments out. A process that
//! asks many queries of a realm at rest walks its groups once. Nothing outlives its snapshot: the
//! next one, whatever it changed, has a table of its own. Realms of very many groups have none.

use std::sync::{Arc, Mutex};

use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, id_of_key};
use engram_base::mutex::lock;
use engram_catalog::{ReadTxn, Table};
use engram_records::object::Record;

/// A realm with more groups has no table.
const GROUPS_MAX: u64 = 1 << 16;
/// Nor has one whose paths take more bytes in all.
const PATH_BYTES_MAX: usize = 16 << 20;

/// A group in the table.
#[derive(Debug)]
pub(crate) struct GroupRow {
    /// The group.
    pub gid: Gid,
    /// Its path.
    pub path: Box<str>,
}

/// The groups of one snapshot, ascending by GID.
#[derive(Debug)]
pub(crate) struct GroupTable {
    snapshot: u64,
    rows: Vec<GroupRow>,
}

/// Where a process keeps the last table.
#[derive(Debug, Default)]
pub struct GroupCache(Mutex<Option<Arc<GroupTable>>>);

impl GroupCache {
    /// The table of this snapshot, if it can have one.
    pub(crate) fn of(&self, txn: &ReadTxn<'_>) -> Result<Option<Arc<GroupTable>>> {
        if let Some(table) = lock(&self.0).as_ref().filter(|table| table.snapshot == txn.id()) {
            return Ok(Some(Arc::clone(table)));
        }
        if txn.entries(Table::Groups)? > GROUPS_MAX {
            return Ok(None);
        }
        let Some(table) = GroupTable::read(txn)?.map(Arc::new) else { return Ok(None) };
        *lock(&self.0) = Some(Arc::clone(&table));
        Ok(Some(table))
    }
}

impl GroupTable {
    fn read(txn: &ReadTxn<'_>) -> Result<Option<Self>> {
        let mut groups = Vec::new();
        let mut cursor = txn.seek(Table::Groups, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let record = Record::parse(row)?;
            groups.push((id_of_key(key)?, record.parent, record.name));
        }
        let find = |gid: Gid| groups.binary_search_by_key(&gid, |(known, ..)| *known);
        let (mut rows, mut bytes) = (Vec::with_capacity(groups.len()), 0);
        for &(gid, parent, name) in &groups {
            let (mut names, mut at) = (vec![name], parent);
            while at != 0 {
                let Ok(place) = find(at) else {
                    fail!(Corrupt, "group {at:#x} holds something, and has no record: run verify")
                };
                let (_, above, name) = groups[place];
                names.push(name);
                at = above;
                if names.len() > groups.len() {
                    fail!(Corrupt, "the groups above {gid:#x} form a loop: run verify");
                }
            }
            // The last is the root's, which has none.
            names.pop();
            names.reverse();
            let path = names.join("/").into_boxed_str();
            bytes += path.len();
            if bytes > PATH_BYTES_MAX {
                return Ok(None);
            }
            rows.push(GroupRow { gid, path });
        }
        Ok(Some(GroupTable { snapshot: txn.id(), rows }))
    }

    /// Every group.
    pub(crate) fn rows(&self) -> &[GroupRow] {
        &self.rows
    }

    /// One group.
    pub(crate) fn get(&self, gid: Gid) -> Option<&GroupRow> {
        let place = self.rows.binary_search_by_key(&gid, |row| row.gid).ok()?;
        Some(&self.rows[place])
    }
}
