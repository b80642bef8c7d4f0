//! Look-ups in the view: by path in the one tree, by id in the realm that has it.

use super::tree::{Place, Tree};
use super::view::{Namespace, Seen};
use crate::attrs::Value;
use crate::error::{Kind, Result};
use crate::fail;
use crate::group::GroupInfo;
use crate::id::{Gid, Member, Oid};
use crate::name::Path;
use crate::object::ObjectInfo;
use crate::realm::{Found, Payload, Realm, look_to_change, look_together};
use crate::scope::Scope;

/// How often what moves from one realm to another while it is looked at is looked for again.
pub(crate) const MOVES_MAX: u32 = 100;

/// What an operation does with the member that it looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It reads.
    Looking,
    /// It relies on the member being where it was found, and changes what `protect` does not mean.
    Setting,
    /// It changes the member: refused below a read-only group, whichever realm has that.
    Changing,
}

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

    /// Runs an operation in the realm that has a member; again, if it moves meanwhile.
    pub(super) fn at_home<T>(
        &self,
        member: Member,
        operation: impl Fn(&Realm) -> Result<T>,
    ) -> Result<T> {
        self.wherever(member, Doing::Looking, |realm, _| operation(realm))
    }

    /// The same, for one that may change the member: it is given all realms, too, and relies on
    /// that the member is there.
    pub(super) fn wherever<T>(
        &self,
        member: Member,
        doing: Doing,
        operation: impl Fn(&Realm, &[Realm]) -> Result<T>,
    ) -> Result<T> {
        let (mut moves, mut mended) = (0, false);
        let changes = doing != Doing::Looking;
        loop {
            let word = self.word();
            let relying;
            let (done, all) = match self.seen()? {
                Seen::One(realm) if changes => {
                    relying = self.while_alone(realm, word);
                    (operation(&relying, &[]), None)
                }
                Seen::One(realm) => (operation(realm, &[]), None),
                Seen::Many(realms) => {
                    let (home, realms) = if changes {
                        self.look_to_change(&realms, |tree| {
                            if doing == Doing::Changing {
                                tree.refuse_read_only(member)?;
                            }
                            tree.home(member)
                        })?
                    } else {
                        (self.look(&realms, |tree| tree.home(member))?, realms)
                    };
                    if home.is_none() && word != self.word() {
                        continue;
                    }
                    // Gone: any realm says so as well as another.
                    let Some(realm) = home.map_or_else(|| realms.first(), |at| realms.get(at))
                    else {
                        fail!(NotFound, "there is nothing in namespace {:?}", self.namespace())
                    };
                    (operation(realm, &realms), Some(home.is_some()))
                }
            };
            match done {
                // Perhaps it is where there was no realm before.
                Err(error) if error.kind() == Kind::NotFound && all.is_none() => {
                    if word == self.word() {
                        return Err(error);
                    }
                }
                Err(error) if error.kind() == Kind::NotFound && all == Some(false) => {
                    return Err(error);
                }
                Err(error)
                    if (error.kind() == Kind::NotFound || error.is_moved())
                        && moves < MOVES_MAX =>
                {
                    moves += 1;
                }
                // Perhaps it is on its way by somebody who is gone.
                Err(error)
                    if error.kind() == Kind::Busy
                        && !error.is_moved()
                        && !mended
                        && self.mend()? =>
                {
                    mended = true;
                }
                done => return done,
            }
        }
    }

    /// Who sees a member: the scope of the realm that has it.
    pub fn scope_of(&self, member: Member) -> Result<Scope> {
        match member {
            Member::Group(gid) if gid == self.root() => Ok(Scope::Shared),
            Member::Group(gid) => self.at_home(member, |realm| realm.group(gid).map(|i| i.scope)),
            Member::Object(oid) => self.at_home(member, |realm| realm.object(oid).map(|i| i.scope)),
        }
    }

    /// The member at a path from `parent`; a leading `/` starts at the root.
    pub fn lookup(&self, parent: Gid, path: &str) -> Result<Option<Member>> {
        self.fresh(|| match self.seen()? {
            Seen::One(realm) => realm.lookup(parent, path),
            Seen::Many(realms) => {
                let path = Path::new(path)?;
                let found = self.look(&realms, |tree| tree.resolve(parent, &path))?;
                Ok(found.map(|place| place.member))
            }
        })
    }

    /// The member at a path from `parent`, with what is known of it.
    pub fn find(&self, parent: Gid, path: &str) -> Result<Option<Found>> {
        self.fresh(|| {
            let realms = match self.seen()? {
                Seen::One(realm) => return realm.find(parent, path),
                Seen::Many(realms) => realms,
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
        self.at_home(Member::Group(gid), |realm| realm.group(gid))
    }

    /// What is known of an object.
    pub fn object(&self, oid: Oid) -> Result<ObjectInfo> {
        self.at_home(Member::Object(oid), |realm| realm.object(oid))
    }

    /// Up to `limit` members of a group after a name, in byte order of their names.
    pub fn list(
        &self,
        gid: Gid,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Member)>> {
        self.fresh(|| match self.seen()? {
            Seen::One(realm) => realm.list(gid, after, limit),
            Seen::Many(realms) => {
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
        self.fresh(|| {
            let realms = match self.seen()? {
                Seen::One(realm) => return realm.list_found(gid, after, limit),
                Seen::Many(realms) => realms,
            };
            self.look(&realms, |tree| {
                let all = tree.list(gid, after, limit)?.into_iter();
                all.map(|(name, place)| Ok((name, found_at(tree, &realms, place)?))).collect()
            })
        })
    }

    /// How many members a group has.
    pub fn count(&self, gid: Gid) -> Result<u64> {
        self.fresh(|| match self.seen()? {
            Seen::One(realm) => realm.count(gid),
            Seen::Many(realms) => {
                let all = self.look(&realms, |tree| tree.list(gid, None, usize::MAX))?;
                Ok(all.len() as u64)
            }
        })
    }

    /// The path of a member, without a leading slash; empty for the root.
    pub fn path_of(&self, member: Member) -> Result<String> {
        self.fresh(|| match self.seen()? {
            Seen::One(realm) => realm.path_of(member),
            Seen::Many(realms) if realms.is_empty() && member.id() == self.root() => {
                Ok(String::new())
            }
            Seen::Many(realms) if realms.is_empty() => {
                fail!(NotFound, "there is nothing in namespace {:?}", self.namespace())
            }
            Seen::Many(realms) => self.look(&realms, |tree| tree.path_of(member)),
        })
    }

    /// Every attribute of a member, in byte order of the keys.
    pub fn attrs(&self, member: Member) -> Result<Vec<(String, Value)>> {
        if self.is_bare_root(member)? {
            return Ok(Vec::new());
        }
        self.at_home(member, |realm| realm.attrs(member))
    }

    /// One attribute of a member.
    pub fn attr(&self, member: Member, key: &str) -> Result<Option<Value>> {
        if self.is_bare_root(member)? {
            return Ok(None);
        }
        self.at_home(member, |realm| realm.attr(member, key))
    }

    /// Whether it is the root, and no realm is seen that could say anything of it.
    fn is_bare_root(&self, member: Member) -> Result<bool> {
        Ok(member == Member::Group(self.root())
            && matches!(self.seen()?, Seen::Many(realms) if realms.is_empty()))
    }

    /// An object's value for reading, and the generation of its payload.
    pub fn payload(&self, oid: Oid) -> Result<(Payload, u32)> {
        self.at_home(Member::Object(oid), |realm| realm.payload(oid))
    }

    /// An object's value as memory of the pool where it lies in an extent. For writing it is put
    /// there first; an empty value stays inline.
    pub fn view(&self, oid: Oid, write: bool) -> Result<Payload> {
        let doing = if write { Doing::Changing } else { Doing::Looking };
        self.wherever(Member::Object(oid), doing, |realm, _| realm.view(oid, write))
    }

    /// Makes what was written in place durable, as far as the medium can.
    ///
    /// An object that was replaced or deleted meanwhile is `BusyError` (P8).
    pub fn flush(&self, oid: Oid) -> Result<()> {
        self.at_home(Member::Object(oid), |realm| realm.flush(oid))
    }

    /// The names of objects, as of one commit of each realm; `None` for those that are gone.
    pub fn names_of(&self, oids: &[Oid]) -> Result<Vec<Option<String>>> {
        self.fresh(|| match self.seen()? {
            Seen::One(realm) => realm.names_of(oids),
            Seen::Many(realms) => self.each(&realms, oids, |tree, at, oid| {
                let read = |record: &crate::object::Record<'_>| Ok(record.name.to_owned());
                crate::group::with_record(tree.at(at), Member::Object(oid), read)
            }),
        })
    }

    /// The paths of objects, as of one commit of each realm; `None` for those that are gone.
    pub fn paths_of(&self, oids: &[Oid]) -> Result<Vec<Option<String>>> {
        self.fresh(|| match self.seen()? {
            Seen::One(realm) => realm.paths_of(oids),
            Seen::Many(realms) => {
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
fn found_at(tree: &mut Tree<'_, '_>, realms: &[Realm], place: Place) -> Result<Found> {
    Found::of(tree.at(place.at), place.member, realms[place.at].scope())
}
