//! The rows that copy members into a realm, and those that remove them from one.

use std::collections::{HashMap, HashSet};

use crate::transfer::plan::{MovePlan, Passenger};
use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member, NameKey, id_key, split_name_key};
use engram_base::scope::Scope;
use engram_catalog::Table;
use engram_catalog::rows::{Row, Rows};
use engram_ops::chunk_rows;
use engram_ops::index_modes;
use engram_ops::marks::{Going, pass, refuse_leaving};
use engram_ops::protect;
use engram_ops::rows_mut::{Reserved, RowsMut};
use engram_ops::{group, mirror};
use engram_realm::Changes;
use engram_records::attrs;
use engram_records::attrs::KeyId;
use engram_records::index_mode::Touch;
use engram_records::object::{Flags, Record, Stored};

/// The key numbers of the realm that receives, by those of the one that gives.
pub(crate) type KeyNumbers = HashMap<KeyId, KeyId>;

/// Where values have been copied to, by the keys of their rows.
pub(crate) type CopiedValues = HashMap<Vec<u8>, Reserved>;

/// Makes a plan's members be in a realm of this scope (T2).
pub(crate) fn copy_in(
    rows: &mut Changes<'_>,
    scope: Scope,
    plan: &MovePlan,
    keys: &KeyNumbers,
    places: &CopiedValues,
) -> Result<()> {
    for (gid, row) in &plan.above {
        copy_in_group(rows, scope, *gid, row, keys, true)?;
    }
    let mut settings = false;
    for passenger in &plan.passengers {
        match passenger.going.member {
            Member::Group(gid) => {
                copy_in_group(rows, scope, gid, &passenger.row, keys, passenger.going.mirror)?;
                settings |= copy_in_settings(rows, gid, passenger)?;
            }
            Member::Object(oid) => {
                copy_in_object(rows, oid, &passenger.row, keys, places)?;
                copy_in_chunks(rows, oid, &passenger.chunks, places)?;
            }
        }
    }
    if settings { index_modes::changed(rows) } else { Ok(()) }
}

fn copy_in_settings(rows: &mut Changes<'_>, gid: Gid, passenger: &Passenger) -> Result<bool> {
    match &passenger.settings {
        Some(settings) if !rows.has(Table::IndexSettings, &id_key(gid))? => {
            rows.put(Table::IndexSettings, &id_key(gid), settings)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Makes a group be here: for good, or (`mirror`) so that members of it have a place.
fn copy_in_group(
    rows: &mut Changes<'_>,
    scope: Scope,
    gid: Gid,
    row: &[u8],
    keys: &KeyNumbers,
    mirror: bool,
) -> Result<()> {
    let record = Record::parse(row)?;
    if !mirror {
        // Where it has come from here, and is not gone from here yet, it would be lost.
        refuse_leaving(rows, gid)?;
    }
    let before = rows.get(Table::Groups, &id_key(gid))?.map(std::borrow::Cow::into_owned);
    if let Some(before) = &before {
        let before = Record::parse(before)?;
        if mirror {
            return Ok(());
        }
        if !before.flags.mirror {
            return unite(rows, gid, &before, &attrs::rekey(record.attrs, keys)?);
        }
        give_name_up(rows, &before, Member::Group(gid))?;
    }
    // Where others look, a mirror carries its name only: the group itself is not theirs to see.
    let attrs = if mirror && scope != Scope::Private {
        Vec::new()
    } else {
        attrs::rekey(record.attrs, keys)?
    };
    let origin = if mirror { &[] } else { record.origin };
    // A group that says that it is read-only says so where it is true.
    let flags = Flags { mirror, read_only: record.flags.read_only && !mirror };
    let record = Record { attrs: &attrs, origin, flags, ..record };
    take_name(rows, &record, Member::Group(gid))?;
    rows.put_record(Table::Groups, &id_key(gid), &record)?;
    mirror::note(rows, gid, mirror)?;
    keep_read_only(rows, Member::Group(gid), flags)
}

fn keep_read_only(rows: &mut Changes<'_>, member: Member, flags: Flags) -> Result<()> {
    if rows.has_read_only()? || flags.read_only {
        return protect::note(rows, member, flags.read_only);
    }
    Ok(())
}

/// Gives a group that is true here the attributes of one that comes and was so elsewhere: two users
/// who did not see each other's have changed it. The attributes here stay.
fn unite(rows: &mut Changes<'_>, gid: Gid, there: &Record<'_>, coming: &[u8]) -> Result<()> {
    let mut said = HashSet::new();
    for entry in attrs::entries(there.attrs) {
        said.insert(entry?.key);
    }
    let mut more = Vec::new();
    for entry in attrs::entries(coming) {
        let entry = entry?;
        if !said.contains(&entry.key) {
            more.push((entry.key, entry.decode()?));
        }
    }
    if more.is_empty() {
        return Ok(());
    }
    let more: Vec<_> = more.iter().map(|(key, value)| (*key, Some(value))).collect();
    let attrs = attrs::merge(there.attrs, &more)?;
    rows.put_record(Table::Groups, &id_key(gid), &Record { attrs: &attrs, ..*there })
}

fn copy_in_object(
    rows: &mut Changes<'_>,
    oid: u64,
    row: &[u8],
    keys: &KeyNumbers,
    places: &CopiedValues,
) -> Result<()> {
    let record = Record::parse(row)?;
    // It may be on its way here, and not gone from here yet.
    refuse_leaving(rows, oid)?;
    if rows.has(Table::Objects, &id_key(oid))? {
        fail!(Exists, "object {oid:#x} ({:?}) is there already: run verify", record.name);
    }
    let place = places.get(id_key(oid).as_slice());
    let stored = placed(oid, record.stored, place)?;
    let attrs = attrs::rekey(record.attrs, keys)?;
    let record = Record { attrs: &attrs, stored, ..record };
    take_name(rows, &record, Member::Object(oid))?;
    rows.put_record(Table::Objects, &id_key(oid), &record)?;
    keep_read_only(rows, Member::Object(oid), record.flags)?;
    rows.index(oid, Touch::New(record.index))?;
    match place {
        Some(place) => rows.adopt(*place),
        None => Ok(()),
    }
}

/// Makes an array's chunks be here.
fn copy_in_chunks(
    rows: &mut Changes<'_>,
    oid: u64,
    chunks: &[Row],
    places: &CopiedValues,
) -> Result<()> {
    for (key, row) in chunks {
        let record = chunk_rows::parse(row)?;
        let place = places.get(key);
        let stored = placed(oid, record.stored, place)?;
        rows.put_record(Table::Chunks, key, &Record { stored, ..record })?;
        if let Some(place) = place {
            rows.adopt(*place)?;
        }
    }
    Ok(())
}

/// A value that has been copied to a place.
fn placed<'r>(oid: u64, stored: Stored<'r>, place: Option<&Reserved>) -> Result<Stored<'r>> {
    match (stored.extent(), place) {
        // A checksum that is just being computed is not of this value any more.
        (Some(_), Some(place)) => Ok(stored.moved_to(place.extent.offset)),
        (Some(_), None) => fail!(Busy, "object {oid:#x} changed while it was copied: try again"),
        (None, _) => Ok(stored),
    }
}

/// Gives a member its name, if that is free.
fn take_name(rows: &mut Changes<'_>, record: &Record<'_>, member: Member) -> Result<()> {
    let key = NameKey::new(record.parent, record.name);
    match group::child(rows, record.parent, record.name)? {
        Some(there) if there == member => Ok(()),
        Some(there) => fail!(
            Exists,
            "the name {:?} is taken there, by another {}: rename or delete one of them first",
            record.name,
            if matches!(there, Member::Group(_)) { "group" } else { "object" }
        ),
        None => {
            rows.put(Table::Names, key.as_bytes(), &member.to_row())?;
            rows.names_changed(record.parent, i32::from(matches!(member, Member::Group(_))))
        }
    }
}

/// Takes a member's name away, if it has it: a mirror may have gone without.
fn give_name_up(rows: &mut Changes<'_>, record: &Record<'_>, member: Member) -> Result<()> {
    match group::child(rows, record.parent, record.name)? {
        Some(there) if there == member => {
            rows.remove(Table::Names, NameKey::new(record.parent, record.name).as_bytes())?;
            rows.names_changed(record.parent, -i32::from(matches!(member, Member::Group(_))))
        }
        _ => Ok(()),
    }
}

/// Whether the names of a plan's members are free in a realm; asked before anything is copied.
pub(crate) fn check_free(rows: &mut dyn Rows, plan: &MovePlan) -> Result<()> {
    for passenger in &plan.passengers {
        refuse_leaving(rows, passenger.going.member.id())?;
        let record = Record::parse(&passenger.row)?;
        if let Some(there) = group::child(rows, record.parent, record.name)?
            && there != passenger.going.member
        {
            fail!(
                Exists,
                "the name {:?} is taken there: rename or delete one of the two first",
                record.name
            );
        }
    }
    Ok(())
}

/// Refuses to give more members, or attributes, to a group that is true here, too, and read-only.
pub(crate) fn check_guards(rows: &mut dyn Rows, plan: &MovePlan) -> Result<()> {
    for passenger in &plan.passengers {
        let Member::Group(gid) = passenger.going.member else { continue };
        if !passenger.going.mirror && mirror::presence(rows, gid)? == Some(false) {
            protect::refuse_new(rows, gid, Record::parse(&passenger.row)?.name)?;
        }
    }
    Ok(())
}

/// Refuses to copy in where a group that only has members in the plan is true, and lies elsewhere
/// than it did in the source: it has been renamed since the source was made to say where it is.
pub(crate) fn check_places(rows: &mut dyn Rows, plan: &MovePlan) -> Result<()> {
    let mirrors = plan.passengers.iter().filter(|passenger| passenger.going.mirror);
    for passenger in mirrors {
        let Some(row) = rows.get(Table::Groups, &id_key(passenger.going.member.id()))? else {
            continue;
        };
        let (there, here) = (Record::parse(&row)?, Record::parse(&passenger.row)?);
        if !there.flags.mirror && (there.parent, there.name) != (here.parent, here.name) {
            return Err(Error::moved());
        }
    }
    Ok(())
}

/// Makes members no longer be in a realm (T3). Groups in which others have put something stay as
/// mirrors; mirrors above that hold nothing any more go, too.
pub(crate) fn remove_members(rows: &mut Changes<'_>, members: &[Going], root: Gid) -> Result<()> {
    pass(rows)?;
    let mut emptied = HashSet::new();
    let mut unnamed = Unnamed::default();
    for going in members.iter().rev() {
        let (table, key) = group::table_of(going.member);
        let Some(row) = rows.get(table, &key)?.map(std::borrow::Cow::into_owned) else { continue };
        let record = Record::parse(&row)?;
        match going.member {
            Member::Object(oid) => {
                rows.remove(table, &key)?;
                rows.index(oid, Touch::Gone(record.index))?;
                if record.flags.read_only {
                    protect::note(rows, going.member, false)?;
                }
                if let Some(extent) = record.extent() {
                    rows.release(extent, oid)?;
                }
                if record.has_parts() {
                    chunk_rows::remove_all(rows, oid, usize::MAX)?;
                }
            }
            Member::Group(gid) if unnamed.has_members(rows, gid)? => {
                let flags = Flags { mirror: true, read_only: false };
                rows.put_record(table, &key, &Record { flags, origin: &[], ..record })?;
                mirror::note(rows, gid, true)?;
                if record.flags.read_only {
                    protect::note(rows, going.member, false)?;
                }
                continue;
            }
            Member::Group(gid) => {
                group::remove_group(rows, gid)?;
                unnamed.gone(gid);
            }
        }
        give_name_up(rows, &record, going.member)?;
        emptied.insert(record.parent);
    }
    emptied.into_iter().try_for_each(|gid| clear_mirrors(rows, gid, root, &mut unnamed))
}

/// Removes a mirror that holds nothing, and those above it that hold nothing then.
fn clear_mirrors(
    rows: &mut Changes<'_>,
    mut gid: Gid,
    root: Gid,
    unnamed: &mut Unnamed,
) -> Result<()> {
    while gid != root && gid != 0 {
        let Some(row) = rows.get(Table::Groups, &id_key(gid))?.map(std::borrow::Cow::into_owned)
        else {
            return Ok(());
        };
        let record = Record::parse(&row)?;
        if !record.flags.mirror || unnamed.has_members(rows, gid)? {
            return Ok(());
        }
        group::remove_group(rows, gid)?;
        give_name_up(rows, &record, Member::Group(gid))?;
        unnamed.gone(gid);
        gid = record.parent;
    }
    Ok(())
}

/// Mirrors that no name leads to, since a member has theirs: where they lie. Looked for when it is
/// first asked.
#[derive(Default)]
struct Unnamed {
    above: Option<HashMap<Gid, Gid>>,
}

impl Unnamed {
    /// Whether a group has members, named or not.
    fn has_members(&mut self, rows: &mut dyn Rows, gid: Gid) -> Result<bool> {
        if let Some((key, _)) = rows.first_from(Table::Names, NameKey::new(gid, "").as_bytes())?
            && split_name_key(&key)?.0 == gid
        {
            return Ok(true);
        }
        if self.above.is_none() {
            self.above = Some(Self::find(rows)?);
        }
        Ok(self.above.iter().flatten().any(|(_, above)| *above == gid))
    }

    fn find(rows: &mut dyn Rows) -> Result<HashMap<Gid, Gid>> {
        let mirrors = mirror::all(rows)?.into_iter();
        Ok(mirrors
            .filter(|mirror| !mirror.named)
            .map(|mirror| (mirror.gid, mirror.parent))
            .collect())
    }

    fn gone(&mut self, gid: Gid) {
        if let Some(above) = &mut self.above {
            above.remove(&gid);
        }
    }
}
