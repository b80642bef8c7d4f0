//! Mirrors: groups of another realm of the namespace, under which this one has members.
//!
//! A mirror has the GID of the true group, and a copy of its place, name and attributes. The copy
//! may be behind: a process that sees both realms goes by the true record. It is made new before
//! anything is made below it, and where it stands in the way of a name. A mirror whose true group
//! is gone, or not to be seen, is an ordinary group of its realm: nothing below it is lost. A
//! change makes it the realm's own, and so does a move to another realm ([`own`]).
//!
//! A mirror has its row in `names` if the name is free in its realm. Where a member of the realm
//! has the name already, that one keeps it, and hides the group from this realm's user as it hides
//! the true one.
//!
//! The table `mirrors` lists them, so that a change which must know of each does not look at every
//! group: there are few, however many groups a realm has.

use std::borrow::Cow;

use crate::group;
use crate::group::{Target, child, with_record};
use crate::index_modes;
use crate::rows_mut::RowsMut;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Member, NameKey, id_key};
use engram_base::name::Path;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_records::index_mode::IndexMode;
use engram_records::object::{Class, Flags, Record, Stored};

/// What a true group says of itself.
#[derive(Clone, Debug)]
pub struct Original {
    /// Its identity, which the mirror has too.
    pub gid: Gid,
    /// The group that holds it.
    pub parent: Gid,
    /// Its name there.
    pub name: String,
    /// The user that made it.
    pub owner: u32,
    /// When it was made, in ns since 1970.
    pub created: i64,
    /// When its row last changed, in ns since 1970.
    pub modified: i64,
    /// Encoded with the key numbers of the realm that gets the mirror.
    pub attrs: Vec<u8>,
    /// Whether records have checksums.
    pub checked: bool,
}

/// Makes mirrors of a chain of groups, outermost first, or makes those that are there say what the
/// true ones say. True groups are left as they are.
pub fn reflect(rows: &mut dyn RowsMut, chain: &[Original]) -> Result<()> {
    chain.iter().try_for_each(|original| reflect_one(rows, original))
}

fn reflect_one(rows: &mut dyn RowsMut, original: &Original) -> Result<()> {
    let group = Member::Group(original.gid);
    let before = match rows.get(Table::Groups, &id_key(original.gid))? {
        None => None,
        Some(row) => {
            let record = Record::parse(&row)?;
            if !record.flags.mirror {
                return Ok(());
            }
            let same = record.parent == original.parent
                && record.name == original.name
                && record.attrs == original.attrs;
            Some((record.parent, record.name.to_owned(), same))
        }
    };
    if let Some((parent, name, same)) = &before {
        let moved = (*parent, name.as_str()) != (original.parent, original.name.as_str());
        if moved && child(rows, *parent, name)? == Some(group) {
            rows.remove(Table::Names, NameKey::new(*parent, name).as_bytes())?;
            rows.names_changed(*parent, -1)?;
        }
        if moved && rows.has_index_settings()? {
            index_modes::changed(rows)?;
        }
        if !same {
            rows.put_record(Table::Groups, &id_key(original.gid), &record_of(original))?;
        }
    } else {
        rows.put_record(Table::Groups, &id_key(original.gid), &record_of(original))?;
        note(rows, original.gid, true)?;
    }
    if child(rows, original.parent, &original.name)?.is_none() {
        let key = NameKey::new(original.parent, &original.name);
        rows.put(Table::Names, key.as_bytes(), &group.to_row())?;
        rows.names_changed(original.parent, 1)?;
    }
    Ok(())
}

fn record_of(original: &Original) -> Record<'_> {
    Record {
        class: Class::Group,
        generation: 0,
        owner: original.owner,
        parent: original.parent,
        created: original.created,
        modified: original.modified,
        name: &original.name,
        dtype: &[],
        ndim: 0,
        shape: &[],
        dims: &[],
        attrs: &original.attrs,
        origin: &[],
        properties: &[],
        index: IndexMode::default(),
        flags: Flags { mirror: true, ..Flags::default() },
        checked: original.checked,
        stored: Stored::Inline(&[]),
    }
}

/// Lists a group as a mirror, or strikes it off.
pub fn note(rows: &mut dyn RowsMut, gid: Gid, on: bool) -> Result<()> {
    let key = id_key(gid);
    match (rows.has(Table::Mirrors, &key)?, on) {
        (false, true) => rows.put(Table::Mirrors, &key, &Member::Group(gid).to_row()),
        (true, false) => rows.remove(Table::Mirrors, &key),
        _ => Ok(()),
    }
}

/// Makes a mirror a true group, since nobody who changes it here sees another that is true: its
/// record from now on is no copy. One that has no name here, since a member has that, stays as it
/// is: nobody finds it.
pub fn own(rows: &mut dyn RowsMut, member: Member) -> Result<()> {
    let Member::Group(gid) = member else { return Ok(()) };
    let owned = |record: &Record<'_>| {
        let flags = Flags { mirror: false, ..record.flags };
        let row = record.flags.mirror.then(|| Record { flags, ..*record }.encode());
        Ok((row, record.parent, record.name.to_owned()))
    };
    let (Some(row), parent, name) = with_record(rows, member, owned)? else { return Ok(()) };
    if child(rows, parent, &name)? != Some(member) {
        return Ok(());
    }
    rows.put(Table::Groups, &id_key(gid), &row)?;
    note(rows, gid, false)
}

/// A mirror of a realm.
pub struct Mirror {
    /// Its identity, which is the true group's.
    pub gid: Gid,
    /// Where it says that the true group lies.
    pub parent: Gid,
    /// Whether its name leads to it.
    pub named: bool,
}

/// Every mirror of a realm.
pub fn all(rows: &mut dyn Rows) -> Result<Vec<Mirror>> {
    let (mut all, mut from) = (Vec::new(), Vec::new());
    while let Some((mut key, row)) = rows.first_from(Table::Mirrors, &from)? {
        let group = Member::from_row(&row)?;
        let Some(row) = rows.get(Table::Groups, &id_key(group.id()))?.map(Cow::into_owned) else {
            fail!(Corrupt, "{group:?} is listed as a mirror, and has no record: run verify")
        };
        let record = Record::parse(&row)?;
        let named = child(rows, record.parent, record.name)? == Some(group);
        all.push(Mirror { gid: group.id(), parent: record.parent, named });
        key.push(0);
        from = key;
    }
    Ok(all)
}

/// Whether a group is here, and whether as a mirror.
pub fn presence(rows: &mut dyn Rows, gid: Gid) -> Result<Option<bool>> {
    match rows.get(Table::Groups, &id_key(gid))? {
        Some(row) => Ok(Some(Record::parse(&row)?.flags.mirror)),
        None => Ok(None),
    }
}

/// Deletes a group with all that this realm has below it, whatever it is called by now.
pub fn delete(rows: &mut dyn RowsMut, gid: Gid, root: Gid) -> Result<()> {
    let group = Member::Group(gid);
    if presence(rows, gid)?.is_none() {
        return Ok(()); // gone with another
    }
    let (parent, name) =
        with_record(rows, group, |record| Ok((record.parent, record.name.to_owned())))?;
    if child(rows, parent, &name)? == Some(group) {
        let path = Path::new(&name)?;
        return group::delete(rows, &Target { from: parent, root, path: &path }, &name);
    }
    group::delete_tree(rows, gid)
}

#[cfg(test)]
mod tests;
