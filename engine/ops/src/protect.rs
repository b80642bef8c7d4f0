//! Read-only members: a hint against mistakes, which their owners can take back.
//!
//! A record says of itself that it is read-only (`Flags`), and that holds for all that is below a
//! group: nothing there is written, replaced, deleted, renamed or annotated, and nothing is made.
//! The table `read_only` lists the ids of such records. Most realms have none, and then asking
//! costs one load; where there are some, a change looks at the groups above what it changes.
//!
//! Here one realm is asked. A group above may be in another one: that, the view of all of them
//! asks (`Tree::refuse_read_only`), in the look in which it finds the member.
//!
//! It protects from mistakes, not from people: a user who may write in the realm may take the hint
//! back. A group above may be renamed or moved: its members stay what they are. Memory that was
//! viewed for writing before stays writable.

use crate::group;
use crate::group::{DEPTH_MAX, Target, table_of};
use crate::mirror;
use crate::rows_mut::RowsMut;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member, id_key};
use engram_base::name::Path;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_records::object::{Flags, Record};
use engram_records::stamp::Stamp;

/// The nearest read-only member at or above this one.
fn guard_of(rows: &mut dyn Rows, member: Member) -> Result<Option<Member>> {
    let mut at = member;
    for _ in 0..DEPTH_MAX {
        if rows.glance(Table::ReadOnly, &id_key(at.id()))?.is_some() {
            return Ok(Some(at));
        }
        let (table, key) = table_of(at);
        let above = match rows.glance(table, &key)? {
            Some(row) => Record::parse(&row)?.parent,
            None => return Ok(None), // the caller that needs it says that it is gone
        };
        if above == 0 {
            return Ok(None);
        }
        at = Member::Group(above);
    }
    fail!(Corrupt, "the groups above {:#x} form a loop: run verify", member.id())
}

fn refusal(rows: &mut dyn Rows, what: &str, by: Member) -> Result<Error> {
    let path = group::path_of(rows, by)?;
    let kind = if matches!(by, Member::Group(_)) { "group" } else { "object" };
    Ok(refused(what, kind, &path))
}

/// The refusal of `what` by what has this path.
fn refused(what: &str, kind: &str, path: &str) -> Error {
    let shown = if path.is_empty() { "/" } else { path };
    Error::new(
        Kind::ReadOnly,
        format!(
            "{what}: the {kind} {shown:?} is read-only; whoever means it sets read_only = False \
             there first (`engram protect POOL {shown} --off`)"
        ),
    )
}

/// The refusal of a change, or of something new, by a group of another realm.
pub fn refused_from_above(path: &str, new: bool, above: &str) -> Error {
    let shown = if path.is_empty() { "/" } else { path };
    let what = if new { "made" } else { "changed" };
    refused(&format!("{shown:?} cannot be {what}"), "group", above)
}

fn name_of(rows: &mut dyn Rows, member: Member) -> Result<String> {
    let path = group::path_of(rows, member)?;
    Ok(if path.is_empty() { "/".to_owned() } else { path })
}

/// Refuses a change of this member, if it or a group above it is read-only.
pub fn refuse(rows: &mut dyn Rows, member: Member) -> Result<()> {
    if !rows.has_read_only()? {
        return Ok(());
    }
    let Some(by) = guard_of(rows, member)? else { return Ok(()) };
    let what = format!("{:?} cannot be changed", name_of(rows, member)?);
    Err(refusal(rows, &what, by)?)
}

/// Refuses a new member of this group, if it or a group above it is read-only.
pub fn refuse_new(rows: &mut dyn Rows, group: Gid, name: &str) -> Result<()> {
    if !rows.has_read_only()? {
        return Ok(());
    }
    let Some(by) = guard_of(rows, Member::Group(group))? else { return Ok(()) };
    Err(refusal(rows, &format!("{name:?} cannot be made"), by)?)
}

/// Refuses to delete these members of a group, if one of them cannot be; those that are not there
/// are no matter.
pub fn refuse_deletions(
    rows: &mut dyn Rows,
    parent: Gid,
    root: Gid,
    names: &[String],
) -> Result<()> {
    if !rows.has_read_only()? {
        return Ok(());
    }
    for name in names {
        let target = Target { from: parent, root, path: &Path::new(name)? };
        if let Some(member) = group::resolve(rows, &target)? {
            refuse_deletion(rows, member)?;
        }
    }
    Ok(())
}

/// Refuses to delete this member, if it, a group above it or anything below it is read-only.
pub fn refuse_deletion(rows: &mut dyn Rows, member: Member) -> Result<()> {
    if !rows.has_read_only()? {
        return Ok(());
    }
    refuse(rows, member)?;
    let Member::Group(group) = member else { return Ok(()) };
    let mut from = vec![0];
    while let Some((mut key, row)) = rows.first_from(Table::ReadOnly, &from)? {
        let inner = Member::from_row(&row)?;
        if is_below(rows, inner, group)? {
            let what = format!("{:?} cannot be deleted", name_of(rows, member)?);
            return Err(refusal(rows, &what, inner)?);
        }
        key.push(0);
        from = key;
    }
    Ok(())
}

fn is_below(rows: &mut dyn Rows, member: Member, group: Gid) -> Result<bool> {
    let (table, key) = table_of(member);
    let Some(row) = rows.glance(table, &key)? else {
        fail!(Corrupt, "{member:?} is listed as read-only, and has no record: run verify")
    };
    let mut above = Record::parse(&row)?.parent;
    drop(row);
    for _ in 0..DEPTH_MAX {
        if above == group || above == 0 {
            return Ok(above == group);
        }
        let Some(row) = rows.glance(Table::Groups, &id_key(above))? else { return Ok(false) };
        above = Record::parse(&row)?.parent;
    }
    fail!(Corrupt, "the groups above {:#x} form a loop: run verify", member.id())
}

/// Whether changes of this member are refused.
pub fn holds(rows: &mut dyn Rows, member: Member) -> Result<bool> {
    group::with_record(rows, member, |_| Ok(()))?;
    Ok(rows.has_read_only()? && guard_of(rows, member)?.is_some())
}

/// Makes a member read-only, or takes that back. Only the group above takes back what it says.
pub fn set(rows: &mut dyn RowsMut, member: Member, on: bool, stamp: Stamp) -> Result<()> {
    let (above, before) =
        group::with_record(rows, member, |record| Ok((record.parent, record.flags.read_only)))?;
    if above != 0
        && rows.has_read_only()?
        && let Some(by) = guard_of(rows, Member::Group(above))?
    {
        let what = format!("{:?} cannot be changed", name_of(rows, member)?);
        return Err(refusal(rows, &what, by)?);
    }
    if before == on {
        return Ok(());
    }
    mirror::own(rows, member)?;
    let row = group::with_record(rows, member, |record| {
        let flags = Flags { read_only: on, ..record.flags };
        Ok(Record { flags, modified: stamp.now, ..*record }.encode())
    })?;
    let (table, key) = table_of(member);
    rows.put(table, &key, &row)?;
    note(rows, member, on)
}

/// Lists a record that is read-only, or strikes it off.
pub fn note(rows: &mut dyn RowsMut, member: Member, on: bool) -> Result<()> {
    let key = id_key(member.id());
    match (rows.has(Table::ReadOnly, &key)?, on) {
        (false, true) => rows.put(Table::ReadOnly, &key, &member.to_row()),
        (true, false) => rows.remove(Table::ReadOnly, &key),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
