//! Look-ups in the view: by path in the one tree, by id in the realm that has it.

use super::tree::{MemberLocation, Tree};
use super::view::{Namespace, VisibleRealms};
use crate::namespace::retry::{Doing, Retry};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Member, Oid};
use engram_base::name::Path;
use engram_base::scope::Scope;
use engram_ops::group::GroupInfo;
use engram_realm::{Found, Payload, Realm, look_to_change, look_together};
use engram_records::attrs::Value;
use engram_records::object::ObjectInfo;

impl Namespace {
    /// Runs `look` on the one tree of these realms, as of one commit of each.
    pub(super) fn look<T>(
        &self,
        realms: &[Realm],
        look: impl FnOnce(&mut Tree<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        let scopes: Vec<Scope> = realms.iter().map(Realm::scope).collect();
        let root = self.root();
        look_together(realms, |rows| look(&mut Tree::new(rows, &scopes, root)))
    }

    /// The same for who is about to change something: with the realms as what they were seen.
    pub(super) fn look_to_change<T>(
        &self,
        realms: &[Realm],
        look: impl FnOnce(&mut Tree<'_, '_>) -> Result<T>,
    ) -> Result<(T, Vec<Realm>)> {
        let scopes: Vec<Scope> = realms.iter().map(Realm::scope).collect();
        let root = self.root();
        look_to_change(realms, |rows| look(&mut Tree::new(rows, &scopes, root)))
    }

    /// Who sees a member: the scope of the realm that has it.
    pub fn scope_of(&self, member: Member) -> Result<Scope> {
        match member {
            Member::Group(gid) if gid == self.root() => Ok(Scope::Shared),
            Member::Group(gid) => {
                self.in_owning_realm(member, |realm| realm.group(gid).map(|i| i.scope))
            }
            Member::Object(oid) => {
                self.in_owning_realm(member, |realm| realm.object(oid).map(|i| i.scope))
            }
        }
    }

    /// The member at a path from `parent`; a leading `/` starts at the root.
    pub fn lookup(&self, parent: Gid, path: &str) -> Result<Option<Member>> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.lookup(parent, path),
            VisibleRealms::Many(realms) => {
                let path = Path::new(path)?;
                let found = self.look(&realms, |tree| tree.resolve(parent, &path))?;
                Ok(found.map(|place| place.member))
            }
        })
    }

    /// The member at a path from `parent`, with what is known of it.
    pub fn find(&self, parent: Gid, path: &str) -> Result<Option<Found>> {
        self.retry(Retry::IfViewChanged, || {
            let realms = match self.seen()? {
                VisibleRealms::One(realm) => return realm.find(parent, path),
                VisibleRealms::Many(realms) => realms,
            };
            let path = Path::new(path)?;
            self.look(&realms, |tree| {
                let found = tree.resolve(parent, &path)?;
                found.map(|place| found_at(tree, &realms, place)).transpose()
            })
        })
    }

    /// What is known of a group.
    pub fn group(&self, gid: Gid) -> Result<GroupInfo> {
        if self.is_bare_root(Member::Group(gid))? {
            return self.bare_root();
        }
        self.in_owning_realm(Member::Group(gid), |realm| realm.group(gid))
    }

    /// What is known of an object.
    pub fn object(&self, oid: Oid) -> Result<ObjectInfo> {
        self.in_owning_realm(Member::Object(oid), |realm| realm.object(oid))
    }

    /// Up to `limit` members of a group after a name, in byte order of their names.
    pub fn list(
        &self,
        gid: Gid,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Member)>> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.list(gid, after, limit),
            VisibleRealms::Many(realms) => {
                let all = self.look(&realms, |tree| tree.list(gid, after, limit))?;
                Ok(all.into_iter().map(|(name, place)| (name, place.member)).collect())
            }
        })
    }

    /// As `list`, with what is known of each: all of it as of one commit of each realm.
    pub fn list_found(
        &self,
        gid: Gid,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Found)>> {
        self.retry(Retry::IfViewChanged, || {
            let realms = match self.seen()? {
                VisibleRealms::One(realm) => return realm.list_found(gid, after, limit),
                VisibleRealms::Many(realms) => realms,
            };
            self.look(&realms, |tree| {
                let all = tree.list(gid, after, limit)?.into_iter();
                all.map(|(name, place)| Ok((name, found_at(tree, &realms, place)?))).collect()
            })
        })
    }

    /// How many members a group has.
    pub fn count(&self, gid: Gid) -> Result<u64> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.count(gid),
            VisibleRealms::Many(realms) => {
                let all = self.look(&realms, |tree| tree.list(gid, None, usize::MAX))?;
                Ok(all.len() as u64)
            }
        })
    }

    /// The path of a member, without a leading slash; empty for the root.
    pub fn path_of(&self, member: Member) -> Result<String> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.path_of(member),
            VisibleRealms::Many(realms) if realms.is_empty() && member.id() == self.root() => {
                Ok(String::new())
            }
            VisibleRealms::Many(realms) if realms.is_empty() => {
                fail!(NotFound, "there is nothing in namespace {:?}", self.namespace())
            }
            VisibleRealms::Many(realms) => self.look(&realms, |tree| tree.path_of(member)),
        })
    }

    /// Every attribute of a member, in byte order of the keys.
    pub fn attrs(&self, member: Member) -> Result<Vec<(String, Value)>> {
        if self.is_bare_root(member)? {
            return Ok(Vec::new());
        }
        self.in_owning_realm(member, |realm| realm.attrs(member))
    }

    /// One attribute of a member.
    pub fn attr(&self, member: Member, key: &str) -> Result<Option<Value>> {
        if self.is_bare_root(member)? {
            return Ok(None);
        }
        self.in_owning_realm(member, |realm| realm.attr(member, key))
    }

    /// Whether it is the root, and no realm is seen that could say anything of it.
    fn is_bare_root(&self, member: Member) -> Result<bool> {
        Ok(member == Member::Group(self.root())
            && matches!(self.seen()?, VisibleRealms::Many(realms) if realms.is_empty()))
    }

    /// An object's value for reading, and the generation of its payload.
    pub fn payload(&self, oid: Oid) -> Result<(Payload, u32)> {
        self.in_owning_realm(Member::Object(oid), |realm| realm.payload(oid))
    }

    /// An object's value as memory of the pool where it lies in an extent. For writing it is put
    /// there first; an empty value stays inline.
    pub fn view(&self, oid: Oid, write: bool) -> Result<Payload> {
        let doing = if write { Doing::Changing } else { Doing::Looking };
        self.with_owning_realm(Member::Object(oid), doing, |realm, _| realm.view(oid, write))
    }

    /// Makes what was written in place durable, as far as the medium can.
    ///
    /// An object that was replaced or deleted meanwhile is `BusyError` (P8).
    pub fn flush(&self, oid: Oid) -> Result<()> {
        self.in_owning_realm(Member::Object(oid), |realm| realm.flush(oid))
    }

    /// The names of objects, as of one commit of each realm; `None` for those that are gone.
    pub fn names_of(&self, oids: &[Oid]) -> Result<Vec<Option<String>>> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.names_of(oids),
            VisibleRealms::Many(realms) => self.each(&realms, oids, |tree, at, oid| {
                let read = |record: &engram_records::object::Record<'_>| Ok(record.name.to_owned());
                engram_ops::group::with_record(tree.at(at), Member::Object(oid), read)
            }),
        })
    }

    /// The paths of objects, as of one commit of each realm; `None` for those that are gone.
    pub fn paths_of(&self, oids: &[Oid]) -> Result<Vec<Option<String>>> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.paths_of(oids),
            VisibleRealms::Many(realms) => {
                self.each(&realms, oids, |tree, _, oid| tree.path_of(Member::Object(oid)))
            }
        })
    }

    fn each<T>(
        &self,
        realms: &[Realm],
        oids: &[Oid],
        mut read: impl FnMut(&mut Tree<'_, '_>, usize, Oid) -> Result<T>,
    ) -> Result<Vec<Option<T>>> {
        self.look(realms, |tree| {
            let mut all = Vec::with_capacity(oids.len());
            for oid in oids {
                let home = tree.home(Member::Object(*oid))?;
                all.push(home.map(|home| read(tree, home, *oid)).transpose()?);
            }
            Ok(all)
        })
    }
}

/// What there is at a place, in the rows in which it was found.
fn found_at(tree: &mut Tree<'_, '_>, realms: &[Realm], place: MemberLocation) -> Result<Found> {
    Found::of(tree.at(place.at), place.member, realms[place.at].scope())
}
