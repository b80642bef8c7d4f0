//! Groups: names, members, and the operations on them, written against rows.
//!
//! Invariant: for every row of `names` there is a record with that id, whose parent and name say
//! the same; and every record but the root's has such a row. Each function here keeps it within
//! one list of row changes.

use crate::chunk_rows;
use crate::index_modes;
use crate::marks::rely_on_all_moves;
use crate::rows_mut::{Reserved, RowsMut};
use crate::{group_times, links, mirror, protect};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Gid, Member, NameKey, Oid, id_key, split_name_key};
use engram_base::name::{Name, Path};
use engram_base::scope::Scope;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_records::attrs;
use engram_records::attrs::{KeyId, Value};
use engram_records::index_mode::{IndexMode, Touch};
use engram_records::object::{Class, Flags, Record, Stored};
use engram_records::stamp::Stamp;

/// All that is known of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupInfo {
    /// Its identity.
    pub gid: Gid,
    /// The group that holds it (0 for the root).
    pub parent: Gid,
    /// Its name there (empty for the root).
    pub name: String,
    /// The user that made it.
    pub owner: u32,
    /// When it was made, in ns since 1970.
    pub created: i64,
    /// When its row last changed, in ns since 1970.
    pub modified: i64,
    /// What an importer keeps for export.
    pub origin: Vec<u8>,
    /// What a file system keeps beside it; empty for none.
    pub properties: Vec<u8>,
    /// Who sees it.
    pub scope: Scope,
}

/// A chain of groups longer than any that somebody would make is a loop on media.
pub const DEPTH_MAX: u32 = 1 << 16;

/// Where something is to be linked: from this group, along this path.
pub struct Target<'a> {
    /// The group that relative paths start from.
    pub from: Gid,
    /// The namespace's root, for absolute paths.
    pub root: Gid,
    /// The path.
    pub path: &'a Path<'a>,
}

impl Target<'_> {
    fn start(&self) -> Gid {
        if self.path.absolute { self.root } else { self.from }
    }
}

/// An object's record before it has a parent, and where its value lies.
pub struct NewRecord<'a> {
    /// Its id.
    pub oid: Oid,
    /// The record; parent and name are filled in by `link`.
    pub record: Record<'a>,
    /// When it is indexed, where the object itself says so, and where not.
    pub index: Option<IndexMode>,
    /// What knows it in the latter case.
    pub modes: &'a dyn index_modes::IndexModes,
    /// The reservation that the record's extent is taken from.
    pub reserved: Option<Reserved>,
}

/// The member of a group.
pub fn child(rows: &mut dyn Rows, group: Gid, name: &str) -> Result<Option<Member>> {
    let key = NameKey::new(group, name);
    rows.get(Table::Names, key.as_bytes())?.map(|row| Member::from_row(&row)).transpose()
}

/// The group that a path's last component is looked up in; `None` when a parent is missing.
fn parent_of(rows: &mut dyn Rows, target: &Target<'_>) -> Result<Option<Gid>> {
    let mut group = target.start();
    for name in &target.path.parents {
        match child(rows, group, name.as_str())? {
            Some(Member::Group(gid)) => group = gid,
            _ => return Ok(None),
        }
    }
    Ok(Some(group))
}

/// The member at a path.
pub fn resolve(rows: &mut dyn Rows, target: &Target<'_>) -> Result<Option<Member>> {
    match parent_of(rows, target)? {
        Some(group) => child(rows, group, target.path.last.as_str()),
        None => Ok(None),
    }
}

/// As `resolve`, with an error that names the path and where it breaks off.
fn require(rows: &mut dyn Rows, target: &Target<'_>, shown: &str) -> Result<(Gid, Member)> {
    if let Some(group) = parent_of(rows, target)?
        && let Some(member) = child(rows, group, target.path.last.as_str())?
    {
        return Ok((group, member));
    }
    fail!(NotFound, "there is no {shown:?} in this group: list its members with keys() or tree()")
}

/// The last group on the way to a path that is there, and the names after it that are not.
fn reach<'p>(rows: &mut dyn Rows, target: &Target<'p>) -> Result<(Gid, &'p [Name<'p>])> {
    let mut group = target.start();
    let mut missing = target.path.parents.as_slice();
    while let Some((name, rest)) = missing.split_first() {
        match child(rows, group, name.as_str())? {
            Some(Member::Group(gid)) => (group, missing) = (gid, rest),
            Some(Member::Object(_)) => fail!(
                Exists,
                "{:?} is an object, not a group: nothing can be made below it",
                name.as_str()
            ),
            None => break,
        }
    }
    // A group that was found as a member is there; the group that a handle stands for may be gone.
    // A batch relies on what the group is.
    if (group == target.start() || rows.is_list()) && !rows.has(Table::Groups, &id_key(group))? {
        fail!(NotFound, "the group {group:#x} was deleted: open it again by its path");
    }
    Ok((group, missing))
}

/// Makes the groups that `reach` found missing, with the ids that `new_id` gives.
fn make_parents(
    rows: &mut dyn RowsMut,
    mut group: Gid,
    missing: &[Name<'_>],
    stamp: Stamp,
    new_id: &mut dyn FnMut() -> u64,
) -> Result<Gid> {
    if let Some(first) = missing.first() {
        protect::refuse_new(rows, group, first.as_str())?;
    }
    for name in missing {
        let gid = new_id();
        put_group(rows, gid, group, name.as_str(), stamp, &[], &[])?;
        group = gid;
    }
    Ok(group)
}

/// The group to link in; missing parents are made.
fn ensure_parent(
    rows: &mut dyn RowsMut,
    target: &Target<'_>,
    stamp: Stamp,
    new_id: &mut dyn FnMut() -> u64,
) -> Result<Gid> {
    let (reached, missing) = reach(rows, target)?;
    make_parents(rows, reached, missing, stamp, new_id)
}

fn put_group(
    rows: &mut dyn RowsMut,
    gid: Gid,
    parent: Gid,
    name: &str,
    stamp: Stamp,
    attrs: &[u8],
    origin: &[u8],
) -> Result<()> {
    let record = group_record(parent, name, stamp, attrs, origin);
    rows.put_record(Table::Groups, &id_key(gid), &record)?;
    rows.put(Table::Names, NameKey::new(parent, name).as_bytes(), &Member::Group(gid).to_row())?;
    rows.names_changed(parent, 1)
}

/// A group's record.
pub fn group_record<'a>(
    parent: Gid,
    name: &'a str,
    stamp: Stamp,
    attrs: &'a [u8],
    origin: &'a [u8],
) -> Record<'a> {
    Record {
        class: Class::Group,
        generation: 0,
        owner: stamp.owner,
        parent,
        created: stamp.now,
        modified: stamp.now,
        name,
        dtype: &[],
        ndim: 0,
        shape: &[],
        dims: &[],
        attrs,
        origin,
        properties: &[],
        index: IndexMode::default(),
        flags: Flags::default(),
        checked: stamp.checksums,
        stored: Stored::Inline(&[]),
    }
}

/// Makes a group; with `exist_ok` an existing one is returned as it is.
pub fn create(
    rows: &mut dyn RowsMut,
    target: &Target<'_>,
    stamp: Stamp,
    attrs: &[u8],
    origin: &[u8],
    exist_ok: bool,
    new_id: &mut dyn FnMut() -> u64,
) -> Result<Gid> {
    let parent = ensure_parent(rows, target, stamp, new_id)?;
    let name = target.path.last.as_str();
    match child(rows, parent, name)? {
        None => {
            protect::refuse_new(rows, parent, name)?;
            let gid = new_id();
            put_group(rows, gid, parent, name, stamp, attrs, origin)?;
            Ok(gid)
        }
        Some(Member::Group(gid)) if exist_ok => Ok(gid),
        Some(member) => taken(name, member, Taker::Group),
    }
}

/// What was to have a name that is taken.
#[derive(Clone, Copy, Debug)]
pub enum Taker {
    /// A new object, which may replace one or not.
    Object {
        /// Whether it was to replace an object of that name.
        overwrite: bool,
    },
    /// A new group.
    Group,
    /// A member that is renamed or moved.
    Moved,
}

/// The refusal of a name that is taken: `ExistsError`, with what to do about it.
pub fn taken<T>(name: &str, there: Member, taker: Taker) -> Result<T> {
    match (taker, there) {
        (Taker::Moved, _) => fail!(Exists, "{name:?} exists: rename or delete one of them first"),
        (Taker::Group, Member::Object(_)) => {
            fail!(Exists, "{name:?} exists, and is no group: rename or delete one of them first")
        }
        (_, Member::Group(_)) => {
            fail!(Exists, "{name:?} exists, and is a group: delete it first, or use require_group")
        }
        (Taker::Object { .. }, Member::Object(_)) => {
            fail!(Exists, "{name:?} exists: pass overwrite=True to replace it, or delete it first")
        }
    }
}

/// Links a new object; with `overwrite` the object of that name goes in the same commit.
pub fn link(
    rows: &mut dyn RowsMut,
    target: &Target<'_>,
    new: &NewRecord<'_>,
    overwrite: bool,
    new_id: &mut dyn FnMut() -> u64,
) -> Result<()> {
    let stamp =
        Stamp { owner: new.record.owner, now: new.record.created, checksums: new.record.checked };
    let parent = ensure_parent(rows, target, stamp, new_id)?;
    let name = target.path.last.as_str();
    if !new.record.properties.is_empty() {
        group_times::begin(rows, parent, stamp.now)?;
    }
    let index = match new.index {
        Some(index) => index,
        None => new.modes.mode_at(rows, parent)?,
    };
    let member = Member::Object(new.oid);
    match take_name(rows, parent, name, member)? {
        None => rows.names_changed(parent, 0)?,
        Some(Member::Object(old)) if overwrite => {
            protect::refuse(rows, Member::Object(old))?;
            links::drop_name(rows, old, parent, name, Some(stamp.now))?;
            rows.put(Table::Names, NameKey::new(parent, name).as_bytes(), &member.to_row())?;
        }
        Some(there) => return taken(name, there, Taker::Object { overwrite }),
    }
    let record = Record { parent, name, index, ..new.record };
    rows.put_record(Table::Objects, &id_key(new.oid), &record)?;
    if record.flags.read_only {
        protect::note(rows, Member::Object(new.oid), true)?;
    }
    step!("link.recorded");
    rows.index(new.oid, Touch::New(index))?;
    match new.reserved {
        Some(reserved) => rows.adopt(reserved),
        None => Ok(()),
    }
}

/// Makes room for what comes from elsewhere: the groups above it, and its name, which is free then.
/// With `overwrite` the object of that name goes in the same commit. Returns the group above.
pub fn make_room(
    rows: &mut dyn RowsMut,
    target: &Target<'_>,
    taker: Taker,
    stamp: Stamp,
    new_id: &mut dyn FnMut() -> u64,
) -> Result<Gid> {
    let parent = ensure_parent(rows, target, stamp, new_id)?;
    let name = target.path.last.as_str();
    match (child(rows, parent, name)?, taker) {
        (None, _) => protect::refuse_new(rows, parent, name)?,
        (Some(Member::Object(old)), Taker::Object { overwrite: true }) => {
            protect::refuse(rows, Member::Object(old))?;
            rows.remove(Table::Names, NameKey::new(parent, name).as_bytes())?;
            links::drop_name(rows, old, parent, name, Some(stamp.now))?;
        }
        (Some(there), taker) => return taken(name, there, taker),
    }
    Ok(parent)
}

/// Whether `make_room` would be refused now; asked before bulk data is copied.
pub fn check_room(rows: &mut dyn Rows, target: &Target<'_>, taker: Taker) -> Result<()> {
    let (group, missing) = reach(rows, target)?;
    let name = target.path.last.as_str();
    if !missing.is_empty() {
        return protect::refuse_new(rows, group, name);
    }
    match (child(rows, group, name)?, taker) {
        (None, _) => protect::refuse_new(rows, group, name),
        (Some(old @ Member::Object(_)), Taker::Object { overwrite: true }) => {
            protect::refuse(rows, old)
        }
        (Some(there), taker) => taken(name, there, taker),
    }
}

/// Gives a new object its name, unless a member has it already: that is returned. In a group that
/// is read-only no name is free.
fn take_name(
    rows: &mut dyn RowsMut,
    parent: Gid,
    name: &str,
    member: Member,
) -> Result<Option<Member>> {
    if rows.has_read_only()? {
        if let Some(there) = child(rows, parent, name)? {
            return Ok(Some(there));
        }
        protect::refuse_new(rows, parent, name)?;
    }
    let key = NameKey::new(parent, name);
    let there = rows.put_new(Table::Names, key.as_bytes(), &member.to_row())?;
    there.map(|row| Member::from_row(&row)).transpose()
}

/// Whether `link` would be refused now; asked before bulk data is copied.
pub fn check_free(rows: &mut dyn Rows, target: &Target<'_>, overwrite: bool) -> Result<()> {
    check_room(rows, target, Taker::Object { overwrite })
}

/// Removes a group's record, and all else that is kept of it; its name and its members are gone
/// already.
pub fn remove_group(rows: &mut dyn RowsMut, gid: Gid) -> Result<()> {
    rows.remove(Table::Groups, &id_key(gid))?;
    group_times::end(rows, gid)?;
    mirror::note(rows, gid, false)?;
    if rows.has_read_only()? && rows.has(Table::ReadOnly, &id_key(gid))? {
        protect::note(rows, Member::Group(gid), false)?;
    }
    if rows.has_index_settings()? && rows.has(Table::IndexSettings, &id_key(gid))? {
        rows.remove(Table::IndexSettings, &id_key(gid))?;
        index_modes::changed(rows)?;
    }
    Ok(())
}

/// Deletes a member: an object, or a group with all that is in it.
pub fn delete(rows: &mut dyn RowsMut, target: &Target<'_>, shown: &str) -> Result<()> {
    let (parent, member) = require(rows, target, shown)?;
    protect::refuse_deletion(rows, member)?;
    rows.remove(Table::Names, NameKey::new(parent, target.path.last.as_str()).as_bytes())?;
    step!("delete.unnamed");
    match member {
        Member::Object(oid) => links::drop_name(rows, oid, parent, target.path.last.as_str(), None),
        Member::Group(gid) => {
            rows.names_changed(parent, -1)?;
            delete_tree(rows, gid)
        }
    }
}

/// Deletes a group, whose name is gone already, with all that is in it.
pub(crate) fn delete_tree(rows: &mut dyn RowsMut, gid: Gid) -> Result<()> {
    let mut groups = vec![gid];
    while let Some(gid) = groups.pop() {
        let mut from = NameKey::new(gid, "").as_bytes().to_vec();
        while let Some((mut key, row)) = rows.first_from(Table::Names, &from)? {
            if split_name_key(&key)?.0 != gid {
                break;
            }
            rows.remove(Table::Names, &key)?;
            match Member::from_row(&row)? {
                Member::Group(inner) => groups.push(inner),
                Member::Object(oid) => {
                    links::drop_name(rows, oid, gid, split_name_key(&key)?.1, None)?;
                }
            }
            key.push(0);
            from = key;
        }
        // Read, so that a batch conflicts with one that moves an inner group out meanwhile.
        if rows.get(Table::Groups, &id_key(gid))?.is_none() {
            fail!(Corrupt, "a name stands for group {gid:#x}, which has no record: run verify");
        }
        remove_group(rows, gid)?;
        step!("delete.emptied");
    }
    Ok(())
}

/// What becomes of a member whose name another is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clash {
    /// It keeps the name, and the other is refused.
    #[default]
    Refuse,
    /// It goes: an object for an object, an empty group for a group.
    Replace,
    /// It gets the other's name.
    Exchange,
}

/// Refuses if a name leads to something else than was seen there, or to anything where nothing was.
pub fn refuse_other(
    rows: &mut dyn RowsMut,
    group: Gid,
    name: &str,
    was: Option<Member>,
) -> Result<()> {
    if child(rows, group, name)? != was {
        fail!(NotFound, "{name:?} leads to something else by now: nothing was changed");
    }
    Ok(())
}

/// Gives a member another name, or another group.
pub fn rename(
    rows: &mut dyn RowsMut,
    old: &Target<'_>,
    old_text: &str,
    new: &Target<'_>,
    clash: Clash,
    stamp: Stamp,
    new_id: &mut dyn FnMut() -> u64,
) -> Result<()> {
    let (old_parent, member) = require(rows, old, old_text)?;
    let (reached, missing) = reach(rows, new)?;
    let name = new.path.last.as_str();
    // Every refusal comes before the first change: in a batch what was changed would stay.
    let there = if missing.is_empty() { child(rows, reached, name)? } else { None };
    match (there, clash) {
        (Some(there), _) if there == member => return Ok(()),
        (Some(there), Clash::Refuse) => return taken(name, there, Taker::Moved),
        (None, Clash::Exchange) => {
            fail!(NotFound, "there is no {name:?} to exchange names with")
        }
        _ => {}
    }
    protect::refuse(rows, member)?;
    protect::refuse_new(rows, reached, name)?;
    refuse_into_itself(rows, member, reached, old_text)?;
    let old_place = (old_parent, old.path.last.as_str());
    if let Some(there) = there {
        protect::refuse(rows, there)?;
        if clash == Clash::Exchange {
            refuse_into_itself(rows, there, old_parent, name)?;
            return exchange(rows, (member, old_place), (there, (reached, name)), stamp.now);
        }
        replace(rows, member, there, reached, name, stamp.now)?;
    }
    mirror::own(rows, member)?;
    let parent = make_parents(rows, reached, missing, stamp, new_id)?;
    put_name(rows, member, old_place, (parent, name), stamp.now)?;
    step!("rename.recorded");
    rows.remove(Table::Names, NameKey::new(old_place.0, old_place.1).as_bytes())?;
    rows.put(Table::Names, NameKey::new(parent, name).as_bytes(), &member.to_row())
}

/// Refuses to give a group a place below itself.
fn refuse_into_itself(
    rows: &mut dyn RowsMut,
    member: Member,
    group: Gid,
    text: &str,
) -> Result<()> {
    let Member::Group(moved) = member else { return Ok(()) };
    // A published member below it would hold it where it is.
    rely_on_all_moves(rows)?;
    let (mut above, mut steps) = (group, 0);
    while above != 0 {
        if above == moved {
            fail!(Argument, "{text:?} cannot be moved into itself");
        }
        above = parent_of_group(rows, above)?;
        steps += 1;
        if steps > DEPTH_MAX {
            fail!(Corrupt, "the groups above {group:#x} form a loop: run verify");
        }
    }
    Ok(())
}

/// Takes a name away from what has it, for a member of the same kind; what has it goes.
fn replace(
    rows: &mut dyn RowsMut,
    member: Member,
    there: Member,
    parent: Gid,
    name: &str,
    now: i64,
) -> Result<()> {
    match (member, there) {
        (Member::Object(_), Member::Object(oid)) => {
            rows.remove(Table::Names, NameKey::new(parent, name).as_bytes())?;
            links::drop_name(rows, oid, parent, name, Some(now))
        }
        (Member::Group(_), Member::Group(gid)) => {
            refuse_full(rows, gid, name)?;
            rows.remove(Table::Names, NameKey::new(parent, name).as_bytes())?;
            rows.names_changed(parent, -1)?;
            remove_group(rows, gid)
        }
        _ => taken(name, there, Taker::Moved),
    }
}

/// Refuses a group that has members.
fn refuse_full(rows: &mut dyn Rows, gid: Gid, name: &str) -> Result<()> {
    if let Some((key, _)) = rows.first_from(Table::Names, NameKey::new(gid, "").as_bytes())?
        && split_name_key(&key)?.0 == gid
    {
        fail!(Exists, "the group {name:?} is not empty");
    }
    Ok(())
}

/// Gives two members each other's name.
fn exchange(
    rows: &mut dyn RowsMut,
    one: (Member, (Gid, &str)),
    two: (Member, (Gid, &str)),
    now: i64,
) -> Result<()> {
    for (member, old, new) in [(one.0, one.1, two.1), (two.0, two.1, one.1)] {
        mirror::own(rows, member)?;
        put_name(rows, member, old, new, now)?;
        rows.put(Table::Names, NameKey::new(new.0, new.1).as_bytes(), &member.to_row())?;
        step!("rename.exchanged");
    }
    Ok(())
}

/// Removes a group that is empty, which has this name.
pub fn remove_empty(rows: &mut dyn RowsMut, parent: Gid, name: &str) -> Result<()> {
    match child(rows, parent, name)? {
        Some(Member::Group(gid)) => {
            protect::refuse_deletion(rows, Member::Group(gid))?;
            refuse_full(rows, gid, name)?;
            rows.remove(Table::Names, NameKey::new(parent, name).as_bytes())?;
            rows.names_changed(parent, -1)?;
            remove_group(rows, gid)
        }
        Some(Member::Object(_)) => fail!(Argument, "{name:?} is no group"),
        None => fail!(NotFound, "there is no {name:?} in this group"),
    }
}

/// Takes a name away from an object, if it may go: with its last one it goes, or is kept for those
/// who have it open.
pub fn unlink(
    rows: &mut dyn RowsMut,
    parent: Gid,
    name: &str,
    now: i64,
    may_go: Option<&Permit<'_>>,
) -> Result<()> {
    match child(rows, parent, name)? {
        Some(member @ Member::Object(oid)) => {
            if let Some(may_go) = may_go
                && !with_record(rows, member, |record| Ok(permitted(may_go, oid, record)))?
            {
                fail!(NotFound, "{name:?} leads to something else by now: nothing was changed");
            }
            protect::refuse_deletion(rows, member)?;
            rows.remove(Table::Names, NameKey::new(parent, name).as_bytes())?;
            links::drop_name(rows, oid, parent, name, Some(now))
        }
        Some(Member::Group(_)) => fail!(Argument, "{name:?} is a group"),
        None => fail!(NotFound, "there is no {name:?} in this group"),
    }
}

/// Judges an object within the look, or the commit, that finds it: by its number, its owner and
/// what a file system keeps beside it.
pub type Permit<'a> = dyn Fn(Oid, u32, &[u8]) -> bool + 'a;

/// What a judge says of an object with this record.
pub fn permitted(judge: &Permit<'_>, oid: Oid, record: &Record<'_>) -> bool {
    judge(oid, record.owner, record.properties)
}

/// Makes a group with the properties that a file system gives it.
pub fn make(
    rows: &mut dyn RowsMut,
    gid: Gid,
    parent: Gid,
    name: &str,
    properties: &[u8],
    owner: Option<u32>,
    stamp: Stamp,
) -> Result<()> {
    if !rows.has(Table::Groups, &id_key(parent))? {
        fail!(NotFound, "the group {parent:#x} was deleted: open it again by its path");
    }
    if let Some(there) = child(rows, parent, name)? {
        return taken(name, there, Taker::Moved);
    }
    protect::refuse_new(rows, parent, name)?;
    group_times::begin(rows, parent, stamp.now)?;
    let owner = owner.unwrap_or(stamp.owner);
    let record = Record { properties, owner, ..group_record(parent, name, stamp, &[], &[]) };
    rows.put_record(Table::Groups, &id_key(gid), &record)?;
    rows.put(Table::Names, NameKey::new(parent, name).as_bytes(), &Member::Group(gid).to_row())?;
    group_times::begin(rows, gid, stamp.now)?;
    rows.names_changed(parent, 1)
}

/// Says what a file system is to keep beside a member: it is told whose the member was, and what
/// was kept.
pub type ChangeProperties<'a> = dyn Fn(u32, &[u8]) -> Result<Vec<u8>> + 'a;

/// Changes what a file system keeps beside a member, and its owner.
pub fn set_properties(
    rows: &mut dyn RowsMut,
    member: Member,
    owner: Option<u32>,
    stamp: Stamp,
    change: &ChangeProperties<'_>,
) -> Result<()> {
    protect::refuse(rows, member)?;
    mirror::own(rows, member)?;
    let (row, index, owned) = with_record(rows, member, |record| {
        let properties = change(record.owner, record.properties)?;
        let record = Record {
            properties: &properties,
            owner: owner.unwrap_or(record.owner),
            modified: stamp.now,
            ..*record
        };
        Ok((record.encode(), record.index, owner.is_some()))
    })?;
    let (table, key) = table_of(member);
    rows.put(table, &key, &row)?;
    match member {
        Member::Object(oid) if owned => rows.index(oid, Touch::Changed(index)),
        _ => Ok(()),
    }
}

/// Says in a member's record, and for an object in its links, that it has a name in place of
/// another; and in the groups that names have changed there.
fn put_name(
    rows: &mut dyn RowsMut,
    member: Member,
    old: (Gid, &str),
    new: (Gid, &str),
    now: i64,
) -> Result<()> {
    let groups = i32::from(matches!(member, Member::Group(_)) && old.0 != new.0);
    rows.names_changed(old.0, -groups)?;
    rows.names_changed(new.0, groups)?;
    let Member::Group(gid) = member else {
        return links::exchange_name(rows, member.id(), old, new, now);
    };
    let row = with_record(rows, member, |record| {
        let (parent, name) = new;
        Ok(Record { parent, name, modified: now, ..*record }.encode())
    })?;
    rows.put(Table::Groups, &id_key(gid), &row)?;
    if rows.has_index_settings()? { index_modes::changed(rows) } else { Ok(()) }
}

/// The group that holds a group; 0 for the root.
pub fn parent_of_group(rows: &mut dyn Rows, gid: Gid) -> Result<Gid> {
    match rows.get(Table::Groups, &id_key(gid))? {
        Some(row) => Ok(Record::parse(&row)?.parent),
        None => fail!(NotFound, "the group {gid:#x} was deleted: open it again by its path"),
    }
}

/// The table and key of a member's record.
pub fn table_of(member: Member) -> (Table, [u8; 8]) {
    match member {
        Member::Group(gid) => (Table::Groups, id_key(gid)),
        Member::Object(oid) => (Table::Objects, id_key(oid)),
    }
}

/// Runs `read` on a member's record.
pub fn with_record<T>(
    rows: &mut dyn Rows,
    member: Member,
    read: impl FnOnce(&Record<'_>) -> Result<T>,
) -> Result<T> {
    let (table, key) = table_of(member);
    match rows.get(table, &key)? {
        Some(row) => read(&Record::parse(&row)?),
        None => fail!(
            NotFound,
            "the {} {:#x} is gone: it was deleted or replaced; look it up again by its path",
            if matches!(member, Member::Group(_)) { "group" } else { "object" },
            member.id()
        ),
    }
}

/// Refuses if attributes of a member are not what they were.
pub fn refuse_changed(rows: &mut dyn Rows, member: Member, was: &[(KeyId, &Value)]) -> Result<()> {
    if was.is_empty() {
        return Ok(());
    }
    let same = with_record(rows, member, |record| {
        let mut left = was.len();
        for entry in attrs::entries(record.attrs) {
            let entry = entry?;
            if let Some((_, value)) = was.iter().find(|(key, _)| *key == entry.key)
                && entry.decode()? == **value
            {
                left -= 1;
            }
        }
        Ok(left == 0)
    })?;
    if same { Ok(()) } else { fail!(Busy, "attributes have changed meanwhile: nothing was set") }
}

/// Sets (or with `None` removes) attributes of a member.
pub fn annotate(
    rows: &mut dyn RowsMut,
    member: Member,
    changes: &[(KeyId, Option<&Value>)],
    stamp: Stamp,
) -> Result<()> {
    protect::refuse(rows, member)?;
    if let Member::Group(_) = member {
        // A value that does not fit is refused before the first change, which is the next line's.
        with_record(rows, member, |record| attrs::merge(record.attrs, changes).map(drop))?;
        mirror::own(rows, member)?;
    }
    let (row, index) = with_record(rows, member, |record| {
        let attrs = attrs::merge(record.attrs, changes)?;
        let row = Record { attrs: &attrs, modified: stamp.now, ..*record }.encode();
        Ok((row, record.index))
    })?;
    let (table, key) = table_of(member);
    rows.put(table, &key, &row)?;
    match member {
        Member::Object(oid) => rows.index(oid, Touch::Changed(index)),
        Member::Group(_) => Ok(()),
    }
}

/// Replaces what is kept beside a member: for export, or of what it is a part.
pub fn keep_origin(rows: &mut dyn RowsMut, member: Member, origin: &[u8]) -> Result<()> {
    protect::refuse(rows, member)?;
    mirror::own(rows, member)?;
    let row = with_record(rows, member, |record| Ok(Record { origin, ..*record }.encode()))?;
    let (table, key) = table_of(member);
    rows.put(table, &key, &row)
}

/// The path of a member, without a leading slash; empty for the root.
pub fn path_of(rows: &mut dyn Rows, member: Member) -> Result<String> {
    let (mut parent, mut path) =
        with_record(rows, member, |record| Ok((record.parent, record.name.to_owned())))?;
    for _ in 0..DEPTH_MAX {
        if parent == 0 {
            return Ok(path);
        }
        let (above, name) = with_record(rows, Member::Group(parent), |record| {
            Ok((record.parent, record.name.to_owned()))
        })?;
        if above != 0 {
            path = format!("{name}/{path}");
        }
        parent = above;
    }
    fail!(Corrupt, "the groups above {:#x} form a loop: run verify", member.id())
}

/// Up to `limit` members after a name, in byte order of their names.
pub fn members(
    rows: &mut dyn Rows,
    gid: Gid,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Member)>> {
    let mut found = Vec::new();
    let mut from = NameKey::new(gid, after.unwrap_or("")).as_bytes().to_vec();
    if after.is_some() {
        from.push(0); // the first key after that name: names hold no NUL
    }
    if limit == 0 {
        return Ok(found);
    }
    rows.each_from(Table::Names, &from, &mut |key, row| {
        let (parent, name) = split_name_key(key)?;
        if parent != gid {
            return Ok(false);
        }
        found.push((name.to_owned(), Member::from_row(row)?));
        Ok(found.len() < limit)
    })?;
    Ok(found)
}

/// The info of a group's record; whose realm that is of says the scope.
pub fn info(gid: Gid, record: &Record<'_>) -> GroupInfo {
    GroupInfo {
        gid,
        parent: record.parent,
        name: record.name.to_owned(),
        owner: record.owner,
        created: record.created,
        modified: record.modified,
        origin: record.origin.to_vec(),
        properties: record.properties.to_vec(),
        scope: Scope::default(),
    }
}

/// Deletes up to `most` members of a group, the deepest first; how many it were: none if it had
/// none. Of a chunked array its chunks go first, and count as much.
pub fn delete_batch(rows: &mut dyn RowsMut, gid: Gid, most: usize) -> Result<usize> {
    let mut open = vec![(gid, Vec::new())];
    let mut gone = 0;
    while gone < most
        && let Some((at, _)) = open.last()
    {
        let at = *at;
        let next = rows.first_from(Table::Names, NameKey::new(at, "").as_bytes())?;
        let inner = match next {
            Some((key, row)) if split_name_key(&key)?.0 == at => {
                Some((key.clone(), Member::from_row(&row)?))
            }
            _ => None,
        };
        match inner {
            Some((name, Member::Group(inner))) => open.push((inner, name)),
            Some((_, Member::Object(oid))) if links::goes_by_parts(rows, oid)? => {
                gone += chunk_rows::remove_all(rows, oid, most - gone)?;
            }
            Some((name, Member::Object(oid))) => {
                rows.remove(Table::Names, &name)?;
                rows.names_changed(at, 0)?;
                links::drop_name(rows, oid, at, split_name_key(&name)?.1, None)?;
                gone += 1;
            }
            None => {
                let Some((emptied, name)) = open.pop().filter(|_| !open.is_empty()) else { break };
                rows.remove(Table::Names, &name)?;
                rows.names_changed(split_name_key(&name)?.0, -1)?;
                remove_group(rows, emptied)?;
                gone += 1;
            }
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests;
