//! Links: further names of an object, and what becomes of one that has none.
//!
//! An object has one name in its record, as any member has. A file system may give it more: each is
//! a row of `names`, as any name is, and a row of `links`, by the object's OID. *Invariant*: of an
//! object, `names` has the name of its record and those of its rows of `links`, each once, and no
//! others.
//!
//! **The last name.** An object goes with it: its rows go, and its space is free once nobody looks
//! at it. A file that somebody has open goes on without a name, as POSIX has it: its record goes
//! from `objects` to `orphans`, its segments stay where they are, and it is found by its OID alone.
//! Whoever has it open says so in its lease before the look that found it ends (F1), so the commit
//! that takes the name, under the writer lock, sees that; where a look-up runs that may find it
//! still, it takes it for open. A later commit removes those that nobody has open any more (F2).

use crate::chunk_rows;
use crate::group::{self, child};
use crate::protect;
use crate::rows_mut::RowsMut;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Gid, Member, NameKey, Oid, id_key, split_name_key};
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_records::index_mode::{IndexMode, Touch};
use engram_records::object::{Record, Stored};
use engram_records::stamp::Stamp;

/// The most names that an object has.
pub const NAMES_MAX: u64 = 1 << 16;
/// The bytes of a key before the name's own key.
const OID_BYTES: usize = 8;
/// The bytes before the record in a row of `orphans`.
const TXN_BYTES: usize = 8;

/// The key of a further name.
pub fn key_of(oid: Oid, parent: Gid, name: &str) -> Vec<u8> {
    [id_key(oid).as_slice(), NameKey::new(parent, name).as_bytes()].concat()
}

/// Splits a key into the object, the group and the name.
pub fn split_key(key: &[u8]) -> Result<(Oid, Gid, &str)> {
    let Some((oid, name)) = key.split_first_chunk::<OID_BYTES>() else {
        fail!(Corrupt, "a key of `links` has only {} bytes", key.len())
    };
    let (parent, name) = split_name_key(name)?;
    Ok((u64::from_be_bytes(*oid), parent, name))
}

/// The first further name of an object at or after a key.
fn first_from(rows: &mut dyn Rows, oid: Oid, from: &[u8]) -> Result<Option<(Gid, String)>> {
    match rows.first_from(Table::Links, from)? {
        Some((key, _)) if key.starts_with(&id_key(oid)) => {
            let (_, parent, name) = split_key(&key)?;
            Ok(Some((parent, name.to_owned())))
        }
        _ => Ok(None),
    }
}

/// The further names of an object, with the groups that have them.
pub fn further(rows: &mut dyn Rows, oid: Oid) -> Result<Vec<(Gid, String)>> {
    let (mut found, mut from) = (Vec::new(), id_key(oid).to_vec());
    if !rows.has_rows(Table::Links)? {
        return Ok(found);
    }
    while let Some((parent, name)) = first_from(rows, oid, &from)? {
        from = key_of(oid, parent, &name);
        from.push(0);
        found.push((parent, name));
    }
    Ok(found)
}

/// How many names an object has.
pub fn count(rows: &mut dyn Rows, oid: Oid) -> Result<u64> {
    Ok(1 + further(rows, oid)?.len() as u64)
}

/// Gives an object a further name, which is free.
pub fn add(rows: &mut dyn RowsMut, oid: Oid, parent: Gid, name: &str, stamp: Stamp) -> Result<()> {
    let member = Member::Object(oid);
    protect::refuse(rows, member)?;
    protect::refuse_new(rows, parent, name)?;
    if let Some(there) = child(rows, parent, name)? {
        return group::taken(name, there, group::Taker::Moved);
    }
    if !rows.has(Table::Groups, &id_key(parent))? {
        fail!(NotFound, "the group {parent:#x} was deleted: open it again by its path");
    }
    if count(rows, oid)? >= NAMES_MAX {
        fail!(Argument, "object {oid:#x} has {NAMES_MAX} names, and no more fit");
    }
    // The record says that something has changed; batches that rely on it are told by that.
    touch(rows, oid, |record| Record { modified: stamp.now, ..record })?;
    rows.put(Table::Names, NameKey::new(parent, name).as_bytes(), &member.to_row())?;
    rows.put(Table::Links, &key_of(oid, parent, name), &[])?;
    step!("links.added");
    rows.names_changed(parent, 0)
}

/// Changes an object's record.
pub(crate) fn touch(
    rows: &mut dyn RowsMut,
    oid: Oid,
    change: impl FnOnce(Record<'_>) -> Record<'_>,
) -> Result<()> {
    let row = group::with_record(rows, Member::Object(oid), |record| Ok(change(*record).encode()))?;
    rows.put(Table::Objects, &id_key(oid), &row)
}

/// Takes a name away from an object, whose row in `names` is gone, or is another's, by now. With
/// its last name the object goes.
pub fn drop_name(
    rows: &mut dyn RowsMut,
    oid: Oid,
    parent: Gid,
    name: &str,
    now: Option<i64>,
) -> Result<()> {
    rows.names_changed(parent, 0)?;
    if !rows.has_rows(Table::Links)? {
        return remove_object(rows, oid);
    }
    let Some((first_parent, first)) = first_from(rows, oid, &id_key(oid))? else {
        return remove_object(rows, oid);
    };
    let named = |record: &Record<'_>| Ok(record.parent == parent && record.name == name);
    let main = group::with_record(rows, Member::Object(oid), named)?;
    let (gone_parent, gone) = if main { (first_parent, first.as_str()) } else { (parent, name) };
    rows.remove(Table::Links, &key_of(oid, gone_parent, gone))?;
    let changed = |record: Record<'_>| -> Vec<u8> {
        let modified = now.unwrap_or(record.modified);
        let (parent, name) =
            if main { (first_parent, first.as_str()) } else { (record.parent, record.name) };
        Record { parent, name, modified, ..record }.encode()
    };
    let (row, index) = group::with_record(rows, Member::Object(oid), |record| {
        Ok((changed(*record), record.index))
    })?;
    rows.put(Table::Objects, &id_key(oid), &row)?;
    step!("links.dropped");
    rows.index(oid, Touch::Changed(index))
}

/// Gives an object another name in place of one of its names.
pub(crate) fn exchange_name(
    rows: &mut dyn RowsMut,
    oid: Oid,
    old: (Gid, &str),
    new: (Gid, &str),
    now: i64,
) -> Result<()> {
    let (row, index, main) = group::with_record(rows, Member::Object(oid), |record| {
        let main = (record.parent, record.name) == old;
        let (parent, name) = if main { new } else { (record.parent, record.name) };
        let row = Record { parent, name, modified: now, ..*record }.encode();
        Ok((row, record.index, main))
    })?;
    if !main {
        rows.remove(Table::Links, &key_of(oid, old.0, old.1))?;
        rows.put(Table::Links, &key_of(oid, new.0, new.1), &[])?;
    }
    rows.put(Table::Objects, &id_key(oid), &row)?;
    rows.index(oid, Touch::Changed(index))
}

/// Removes an object that has no name any more; one that somebody has open becomes an orphan.
pub(crate) fn remove_object(rows: &mut dyn RowsMut, oid: Oid) -> Result<()> {
    let key = id_key(oid);
    let Some(row) = rows.get(Table::Objects, &key)?.map(std::borrow::Cow::into_owned) else {
        fail!(Corrupt, "a name stands for object {oid:#x}, which has no record")
    };
    let record = Record::parse(&row)?;
    rows.remove(Table::Objects, &key)?;
    if record.flags.read_only {
        protect::note(rows, Member::Object(oid), false)?;
    }
    rows.index(oid, Touch::Gone(record.index))?;
    if rows.is_open(oid, &record)? {
        rows.orphan(oid, &nameless(&record))?;
        step!("links.orphaned");
        return Ok(());
    }
    remove_value(rows, oid, &record)
}

/// Whether the parts of an object, if it has any, may go before it does: nobody has it open, and it
/// has one name.
pub(crate) fn goes_by_parts(rows: &mut dyn RowsMut, oid: Oid) -> Result<bool> {
    if !chunk_rows::any(rows, oid)? {
        return Ok(false);
    }
    let row = group::with_record(rows, Member::Object(oid), |record| Ok(record.encode()))?;
    let record = Record::parse(&row)?;
    if !matches!(record.stored, Stored::Segmented(_)) {
        return Ok(true);
    }
    Ok(count(rows, oid)? == 1 && !rows.is_open(oid, &record)?)
}

/// Whether a file system has had to do with an object, so that whoever looks it up may open it.
pub fn is_file(record: &Record<'_>) -> bool {
    !record.properties.is_empty() || matches!(record.stored, Stored::Segmented(_))
}

/// The record of an object without a name.
pub(crate) fn nameless<'r>(record: &Record<'r>) -> Record<'r> {
    Record { parent: 0, name: "", index: IndexMode::None, ..*record }
}

/// Lets go of the space of an object whose record goes.
pub fn remove_value(rows: &mut dyn RowsMut, oid: Oid, record: &Record<'_>) -> Result<()> {
    if record.has_parts() {
        chunk_rows::remove_all(rows, oid, usize::MAX)?;
    }
    match record.extent() {
        Some(extent) => rows.release(extent, oid),
        None => Ok(()),
    }
}

/// The row of an orphan.
pub fn orphan_row(txn: u64, record: &Record<'_>) -> Vec<u8> {
    let mut row = txn.to_le_bytes().to_vec();
    record.encode_to(&mut row);
    row
}

/// Splits a row of `orphans` into the transaction that took the last name, and the record.
pub fn split_orphan(row: &[u8]) -> Result<(u64, &[u8])> {
    match row.split_first_chunk::<TXN_BYTES>() {
        Some((txn, record)) => Ok((u64::from_le_bytes(*txn), record)),
        None => fail!(Corrupt, "a row of `orphans` has only {} bytes", row.len()),
    }
}

/// Removes an orphan that nobody has open.
pub fn remove_orphan(rows: &mut dyn RowsMut, oid: Oid) -> Result<()> {
    let Some(row) = rows.get(Table::Orphans, &id_key(oid))?.map(std::borrow::Cow::into_owned)
    else {
        return Ok(());
    };
    rows.remove(Table::Orphans, &id_key(oid))?;
    remove_value(rows, oid, &Record::parse(split_orphan(&row)?.1)?)
}
