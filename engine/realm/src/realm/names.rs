//! Names as a file system gives and takes them: one group and one name at a time.

use super::{Realm, files, ids, write};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Gid, Member, Oid, id_key};
use engram_base::name::Name;
use engram_catalog::{Headroom, Table};
use engram_ops::group::{ChangeProperties, Clash, Permit};
use engram_ops::group_times::GroupTimes;
use engram_ops::{group, group_times, links};
use engram_records::index_mode::{IndexMode, Touch};
use engram_records::object::Record;

/// What two names led to that a rename relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamesSeen {
    /// What is to be renamed.
    pub member: Member,
    /// What has the name that it is to get, if anything.
    pub there: Option<Member>,
}

impl Realm {
    /// Makes a group with the properties that a file system gives it, and this owner; `None` is the
    /// user that opened the pool.
    pub fn make_group(
        &self,
        parent: Gid,
        name: &str,
        properties: &[u8],
        owner: Option<u32>,
    ) -> Result<Gid> {
        Name::new(name)?;
        let core = self.writable()?;
        let inside = &core.enter()?;
        let ids = ids::take_ids(core, inside, 1)?;
        let stamp = write::stamp(core)?;
        core.write(inside, Headroom::Normal, self.precondition(), |rows| {
            let mut ids = ids;
            let gid = ids.take();
            group::make(rows, gid, parent, name, properties, owner, stamp)?;
            step!("names.made");
            Ok(gid)
        })
    }

    /// Gives an object a further name.
    pub fn link(&self, oid: Oid, parent: Gid, name: &str) -> Result<()> {
        Name::new(name)?;
        let core = self.writable()?;
        let inside = &core.enter()?;
        let stamp = write::stamp(core)?;
        core.write(inside, Headroom::Normal, self.precondition(), |rows| {
            links::add(rows, oid, parent, name, stamp)
        })
    }

    /// Takes a name away from an object. With its last one it goes; a file that somebody has open
    /// goes when it is closed.
    pub fn unlink(&self, parent: Gid, name: &str) -> Result<()> {
        Name::new(name)?;
        let core = self.writable()?;
        let inside = &core.enter()?;
        let stamp = write::stamp(core)?;
        core.write(inside, Headroom::Relief, self.precondition(), |rows| {
            group::unlink(rows, parent, name, stamp.now, None)
        })
    }

    /// As `unlink`, if what the name leads to in that commit may go; else it is `NotFoundError`.
    pub fn unlink_if(&self, parent: Gid, name: &str, may_go: &Permit<'_>) -> Result<()> {
        Name::new(name)?;
        let core = self.writable()?;
        let inside = &core.enter()?;
        let stamp = write::stamp(core)?;
        core.write(inside, Headroom::Relief, self.precondition(), |rows| {
            group::unlink(rows, parent, name, stamp.now, Some(may_go))
        })
    }

    /// Removes a group that has no members.
    pub fn remove_empty(&self, parent: Gid, name: &str) -> Result<()> {
        Name::new(name)?;
        let core = self.writable()?;
        let inside = &core.enter()?;
        core.write(inside, Headroom::Relief, self.precondition(), |rows| {
            group::remove_empty(rows, parent, name)
        })
    }

    /// As `remove_empty`, if the name still leads to this group.
    pub fn remove_empty_if(&self, parent: Gid, name: &str, was: Gid) -> Result<()> {
        Name::new(name)?;
        let core = self.writable()?;
        let inside = &core.enter()?;
        core.write(inside, Headroom::Relief, self.precondition(), |rows| {
            group::refuse_other(rows, parent, name, Some(Member::Group(was)))?;
            group::remove_empty(rows, parent, name)
        })
    }

    /// Gives a member another name or group, and says what becomes of what has that name.
    pub fn rename_over(
        &self,
        parent: Gid,
        old: &str,
        new_parent: Gid,
        new: &str,
        clash: Clash,
    ) -> Result<()> {
        write::rename(self, parent, old, new_parent, new, clash, None)
    }

    /// As `rename_over`, if the names still lead to what was seen there.
    pub fn rename_over_if(
        &self,
        parent: Gid,
        old: &str,
        new_parent: Gid,
        new: &str,
        clash: Clash,
        was: NamesSeen,
    ) -> Result<()> {
        write::rename(self, parent, old, new_parent, new, clash, Some(was))
    }

    /// Changes what a file system keeps beside a member, and the member's owner; also of a file
    /// that is open and has no name any more.
    pub fn set_properties(
        &self,
        member: Member,
        owner: Option<u32>,
        change: &ChangeProperties<'_>,
    ) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        let stamp = write::stamp(core)?;
        core.write(inside, Headroom::Normal, self.precondition(), |rows| {
            if let Member::Object(oid) = member
                && !rows.has(Table::Objects, &id_key(oid))?
            {
                return files::set_properties(rows, oid, owner, stamp, change);
            }
            group::set_properties(rows, member, owner, stamp, change)
        })
    }

    /// When names in a group last changed, and how many groups are in it; `None` where no file
    /// system has had to do with it.
    pub fn group_times(&self, gid: Gid) -> Result<Option<GroupTimes>> {
        let core = self.readable()?;
        let inside = core.enter()?;
        let txn = inside.read_at(self.at())?;
        group_times::of(&mut txn.rows(), gid)
    }

    /// Says of a group when names in it last changed.
    pub fn set_group_times(&self, gid: Gid, written: i64) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        let stamp = write::stamp(core)?;
        core.write(inside, Headroom::Normal, self.precondition(), |rows| {
            if !rows.has(Table::Groups, &id_key(gid))? {
                fail!(NotFound, "the group {gid:#x} was deleted: open it again by its path");
            }
            group_times::begin(rows, gid, stamp.now)?;
            let times = group_times::of(rows, gid)?.unwrap_or_default();
            let times = GroupTimes { written, changed: stamp.now, ..times };
            rows.put(Table::GroupTimes, &id_key(gid), &times.to_row())
        })
    }

    /// How many groups are in a group, counted.
    pub fn count_groups(&self, gid: Gid) -> Result<u32> {
        let core = self.readable()?;
        let inside = core.enter()?;
        let txn = inside.read_at(self.at())?;
        group_times::count_groups(&mut txn.rows(), gid)
    }

    /// Has an object whose attributes are not indexed be indexed from now on, so; any other stays
    /// as it is.
    pub fn index_from_now(&self, oid: Oid, mode: IndexMode) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        let member = Member::Object(oid);
        let is_indexed = |record: &Record<'_>| Ok(record.index != IndexMode::None);
        if group::with_record(&mut inside.read()?.rows(), member, is_indexed)? {
            return Ok(());
        }
        core.write(inside, Headroom::Normal, self.precondition(), |rows| {
            let row = group::with_record(rows, member, |record| {
                let unindexed = record.index == IndexMode::None;
                Ok(unindexed.then(|| Record { index: mode, ..*record }.encode()))
            })?;
            let Some(row) = row else { return Ok(()) };
            rows.put(Table::Objects, &id_key(oid), &row)?;
            rows.index(oid, Touch::Gone(IndexMode::None))?;
            rows.index(oid, Touch::New(mode))
        })?;
        Ok(())
    }

    /// How many names an object has.
    pub fn count_names(&self, oid: Oid) -> Result<u64> {
        let core = self.readable()?;
        let inside = core.enter()?;
        if self.at().is_none() && inside.catalog().knows_empty(Table::Links)? {
            return Ok(1);
        }
        let txn = inside.read_at(self.at())?;
        links::count(&mut txn.rows(), oid)
    }
}
