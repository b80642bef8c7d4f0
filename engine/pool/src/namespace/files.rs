//! Files through the view: each is opened, named and unnamed in the realm that has it.
//!
//! A file system's operations name a group and one name in it, never a path. What would need two
//! realms is `UnsupportedError`: a file system says so as it does of two of its kind, and programs
//! copy then.

use super::retry::{Doing, Retry};
use super::{Namespace, NamespaceInfo, write};
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member, Oid};
use engram_base::name::Path;
use engram_base::scope::Scope;
use engram_ops::group::{ChangeProperties, Clash, Permit, Taker};
use engram_ops::group_times::GroupTimes;
use engram_realm::{File, NamedFile, NamesSeen, Realm};
use engram_records::index_mode::IndexMode;
use engram_records::object::{NewObject, Placement};

/// A member that is to be changed: its realm, the group that holds it there, and itself.
struct Place {
    realm: Realm,
    parent: Gid,
    member: Member,
}

impl Namespace {
    /// Opens an object as a file: a blob, or an array that lies in one piece, which keeps its size.
    /// Its space is kept until the file is closed, also if its last name goes meanwhile.
    pub fn open_file(&self, oid: Oid, write: bool) -> Result<File> {
        let member = Member::Object(oid);
        if write {
            return self.write_in_owning_realm(member, Doing::Changing, |realm| {
                realm.open_file(oid, true)
            });
        }
        self.in_owning_realm(member, |realm| realm.open_file(oid, false))
    }

    /// Opens the file of a name in a group, if it may be opened: found, judged and opened in one
    /// look.
    pub fn open_named(
        &self,
        parent: Gid,
        name: &str,
        write: bool,
        may_open: &Permit<'_>,
    ) -> Result<NamedFile> {
        match self.alone()? {
            Some(realm) => realm.open_named(parent, name, write, may_open),
            None => Ok(NamedFile::Unsure),
        }
    }

    /// Makes an empty file of a name in a group, and opens it: in one commit.
    pub fn create_file(
        &self,
        parent: Gid,
        name: &str,
        new: &NewObject,
        placement: Placement,
        write: bool,
    ) -> Result<File> {
        self.retry(Retry::IfMoved, || {
            let aim = self.aim(parent, name, placement)?;
            aim.realm.create_file(aim.group, aim.path, new, placement, write)
        })
    }

    /// Says by how much at least, and at most, files grow at a time that this process writes.
    pub fn set_file_growth(&self, least: u64, most: u64) -> Result<()> {
        self.all_seen()?
            .iter()
            .filter(|realm| realm.scope() != Scope::Published)
            .try_for_each(|realm| realm.set_file_growth(least, most))
    }

    /// Makes a group, which a file system gives these properties and this owner; `None` is the user
    /// that opened the pool.
    pub fn make_group(
        &self,
        parent: Gid,
        name: &str,
        properties: &[u8],
        owner: Option<u32>,
    ) -> Result<Gid> {
        self.retry(Retry::IfMoved, || {
            if let Some(realm) = self.alone()? {
                return realm.make_group(parent, name, properties, owner);
            }
            let aim = write::aim_among_realms(self, parent, name, None, Taker::Group)?;
            aim.realm.make_group(aim.group, aim.path, properties, owner)
        })
    }

    /// Gives an object a further name in a group of the same realm.
    pub fn link(&self, oid: Oid, parent: Gid, name: &str) -> Result<()> {
        self.retry(Retry::IfMoved, || {
            if let Some(realm) = self.alone()? {
                return realm.link(oid, parent, name);
            }
            let aim = write::aim_among_realms(self, parent, name, None, Taker::Moved)?;
            match aim.realm.link(oid, aim.group, aim.path) {
                // It is in another realm; or it has gone meanwhile.
                Err(error) if error.kind() == Kind::NotFound && self.object(oid).is_ok() => {
                    self.two_realms(name)
                }
                linked => linked,
            }
        })
    }

    /// Takes a name away from an object. With its last one it goes; a file that somebody has open
    /// goes when it is closed.
    pub fn unlink(&self, parent: Gid, name: &str) -> Result<()> {
        self.retry(Retry::IfMoved, || {
            let place = match self.alone()? {
                Some(realm) => return realm.unlink(parent, name),
                None => self.place(parent, name)?,
            };
            place.realm.unlink(place.parent, name)
        })
    }

    /// As `unlink`, if what the name leads to in that commit may go; else it is `NotFoundError`.
    pub fn unlink_if(&self, parent: Gid, name: &str, may_go: &Permit<'_>) -> Result<()> {
        self.retry(Retry::IfMoved, || {
            let place = match self.alone()? {
                Some(realm) => return realm.unlink_if(parent, name, may_go),
                None => self.place(parent, name)?,
            };
            place.realm.unlink_if(place.parent, name, may_go)
        })
    }

    /// Removes a group that has no members that this user sees.
    pub fn remove_empty(&self, parent: Gid, name: &str) -> Result<()> {
        self.retry(Retry::IfMoved, || match self.alone()? {
            Some(realm) => realm.remove_empty(parent, name),
            None => self.remove_empty_of_many(parent, name, None),
        })
    }

    /// As `remove_empty`, if the name still leads to this group.
    pub fn remove_empty_if(&self, parent: Gid, name: &str, was: Gid) -> Result<()> {
        self.retry(Retry::IfMoved, || match self.alone()? {
            Some(realm) => realm.remove_empty_if(parent, name, was),
            None => self.remove_empty_of_many(parent, name, Some(was)),
        })
    }

    /// Removes a group from each realm that has it.
    fn remove_empty_of_many(&self, parent: Gid, name: &str, was: Option<Gid>) -> Result<()> {
        let place = self.place(parent, name)?;
        let Member::Group(gid) = place.member else { fail!(Argument, "{name:?} is no group") };
        if was.is_some_and(|was| was != gid) {
            fail!(NotFound, "{name:?} leads to something else by now: nothing was changed");
        }
        if self.count(gid)? > 0 {
            fail!(Exists, "the group {name:?} is not empty");
        }
        // Each realm looks again when it removes its own: something may be there by then.
        for realm in self.all_seen()? {
            if realm.scope() != Scope::Published && !realm.is(&place.realm) {
                match realm.remove_empty(parent, name) {
                    Err(error) if error.kind() == Kind::NotFound => {}
                    removed => removed?,
                }
            }
        }
        match was {
            Some(was) => place.realm.remove_empty_if(place.parent, name, was),
            None => place.realm.remove_empty(place.parent, name),
        }
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
        self.retry(Retry::IfMoved, || match self.alone()? {
            Some(realm) => realm.rename_over(parent, old, new_parent, new, clash),
            None => self.rename_of_many(parent, old, new_parent, new, clash, None),
        })
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
        self.retry(Retry::IfMoved, || match self.alone()? {
            Some(realm) => realm.rename_over_if(parent, old, new_parent, new, clash, was),
            None => self.rename_of_many(parent, old, new_parent, new, clash, Some(was)),
        })
    }

    /// Renames where there are several realms.
    fn rename_of_many(
        &self,
        parent: Gid,
        old: &str,
        new_parent: Gid,
        new: &str,
        clash: Clash,
        was: Option<NamesSeen>,
    ) -> Result<()> {
        let place = self.place(parent, old)?;
        let there = self.lookup(new_parent, new)?;
        if was.is_some_and(|was| was != NamesSeen { member: place.member, there }) {
            fail!(NotFound, "{old:?} or {new:?} leads to something else by now: nothing was done");
        }
        if there.is_none() && clash == Clash::Exchange {
            fail!(NotFound, "there is no {new:?} to exchange names with");
        }
        if there.is_none() || clash == Clash::Refuse {
            match self.rename(parent, old, new_parent, new) {
                // It has come since.
                Err(error) if error.kind() == Kind::Exists && clash == Clash::Replace => {}
                renamed => return renamed,
            }
        }
        let other = self.place(new_parent, new)?;
        if !other.realm.is(&place.realm) {
            return self.two_realms(new);
        }
        let (from, to) = (place.parent, other.parent);
        match was {
            Some(was) => place.realm.rename_over_if(from, old, to, new, clash, was),
            None => place.realm.rename_over(from, old, to, new, clash),
        }
    }

    /// Changes what a file system keeps beside a member, and the member's owner.
    pub fn set_properties(
        &self,
        member: Member,
        owner: Option<u32>,
        change: &ChangeProperties<'_>,
    ) -> Result<()> {
        self.write_in_owning_realm(member, Doing::Changing, |realm| {
            realm.set_properties(member, owner, change)
        })
    }

    /// When names in a group last changed, and how many groups are in it; `None` where no file
    /// system has had to do with it.
    pub fn group_times(&self, gid: Gid) -> Result<Option<GroupTimes>> {
        self.in_owning_realm(Member::Group(gid), |realm| realm.group_times(gid))
    }

    /// Says of a group when names in it last changed.
    pub fn set_group_times(&self, gid: Gid, written: i64) -> Result<()> {
        self.write_in_owning_realm(Member::Group(gid), Doing::Changing, |realm| {
            realm.set_group_times(gid, written)
        })
    }

    /// How many groups are in a group, counted.
    pub fn count_groups(&self, gid: Gid) -> Result<u32> {
        self.in_owning_realm(Member::Group(gid), |realm| realm.count_groups(gid))
    }

    /// Has an object whose attributes are not indexed be indexed from now on, so; any other stays
    /// as it is.
    pub fn index_from_now(&self, oid: Oid, mode: IndexMode) -> Result<()> {
        self.write_in_owning_realm(Member::Object(oid), Doing::Setting, |realm| {
            realm.index_from_now(oid, mode)
        })
    }

    /// Whether this user sees a realm of this scope in it.
    pub fn has_realm(&self, scope: Scope) -> Result<bool> {
        Ok(self.all_seen()?.iter().any(|realm| realm.scope() == scope))
    }

    /// What is known of the namespace: its mode, its owner and its group.
    pub fn info(&self) -> Result<NamespaceInfo> {
        super::info(self.pool_path(), self.namespace())
    }

    /// How many names an object has.
    pub fn count_names(&self, oid: Oid) -> Result<u64> {
        self.in_owning_realm(Member::Object(oid), |realm| realm.count_names(oid))
    }

    /// The place of a member that is there, to be changed.
    fn place(&self, parent: Gid, name: &str) -> Result<Place> {
        let path = Path::new(name)?;
        let (found, realms) = self.look_to_change(&self.all_seen()?, |tree| {
            let Some(place) = tree.resolve(parent, &path)? else {
                fail!(NotFound, "there is no {name:?} in this group")
            };
            tree.refuse_moving(place.member, false)?;
            tree.refuse_read_only(place.member)?;
            Ok(place)
        })?;
        let realm = realms[found.at].clone();
        if realm.scope() == Scope::Published {
            fail!(ReadOnly, "{name:?} is published, which nobody changes: unpublish it first");
        }
        Ok(Place { realm, parent: found.parent, member: found.member })
    }

    fn two_realms<T>(&self, name: &str) -> Result<T> {
        fail!(
            Unsupported,
            "{name:?} of namespace {:?} is of another scope, and a name, or an exchange of names, \
             cannot be of two: copy it",
            self.namespace()
        )
    }
}
