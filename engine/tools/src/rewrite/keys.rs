//! Attribute keys that something still has.
//!
//! A key keeps its name and number for as long as the realm is open, whether an object has it or
//! not: processes remember numbers. In a catalog that nobody knows yet, the names of keys go that
//! no record, and nothing in the index, refers to. Their numbers are not given again: `keys` in
//! `meta` is the next number, whatever names there are.

use std::collections::HashSet;

use engram_base::error::Result;
use engram_base::fail;
use engram_catalog::{ReadTxn, Table};
use engram_index::family::Family;
use engram_records::attrs::{self, KeyId};
use engram_records::object::Record;

/// The keys of records, and those that segments, runs and families name.
pub(super) fn living(txn: &ReadTxn<'_>) -> Result<HashSet<KeyId>> {
    let mut living = HashSet::new();
    for table in [Table::Objects, Table::Groups] {
        let mut cursor = txn.seek(table, &[])?;
        while let Some((_, row)) = cursor.next()? {
            for entry in attrs::entries(Record::parse(row)?.attrs) {
                living.insert(entry?.key);
            }
        }
    }
    for table in [Table::IndexZones, Table::IndexRuns] {
        columns(txn, table, &mut living)?;
    }
    let mut cursor = txn.seek(Table::IndexFamilies, &[])?;
    while let Some((key, row)) = cursor.next()? {
        living.extend(Family::parse(key, row)?.named());
    }
    Ok(living)
}

/// The columns that a table has rows of, whose keys begin with them.
fn columns(txn: &ReadTxn<'_>, table: Table, into: &mut HashSet<KeyId>) -> Result<()> {
    let mut from = Some(0_u32);
    while let Some(least) = from
        && let Some((key, _)) = txn.seek(table, &least.to_be_bytes())?.next()?
    {
        let Some(column) = key.first_chunk() else {
            fail!(Corrupt, "a key of `{}` has {} bytes: run verify", table.name(), key.len());
        };
        let column = u32::from_be_bytes(*column);
        into.insert(column);
        from = column.checked_add(1);
    }
    Ok(())
}

/// Whether a row of `keys` is of one of these.
pub(super) fn is_of(living: &HashSet<KeyId>, key: &[u8], row: &[u8]) -> bool {
    let number = match key.split_first() {
        Some((b'i', number)) => number.try_into().map(KeyId::from_be_bytes),
        _ => row.try_into().map(KeyId::from_le_bytes),
    };
    // What cannot be read is left to `verify`.
    number.is_ok_and(|number| living.contains(&number)) || number.is_err()
}
