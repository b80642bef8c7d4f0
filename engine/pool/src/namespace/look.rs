//! Look-ups in the view: by path in the one tree, by id in the realm that has it.

use super::Namespace;
use super::tree::{MemberLocation, Tree};
use super::view::VisibleRealms;
use crate::namespace::retry::Retry;
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member, Oid};
use engram_base::name::Path;
use engram_base::scope::Scope;
use engram_realm::{Found, Realm};

/// See [`Namespace::scope_of`].
pub(super) fn scope_of(namespace: &Namespace, member: Member) -> Result<Scope> {
    match member {
        Member::Group(gid) if gid == namespace.root() => Ok(Scope::Shared),
        Member::Group(gid) => {
            namespace.in_owning_realm(member, |realm| realm.group(gid).map(|i| i.scope))
        }
        Member::Object(oid) => {
            namespace.in_owning_realm(member, |realm| realm.object(oid).map(|i| i.scope))
        }
    }
}

/// See [`Namespace::find`].
pub(super) fn find(namespace: &Namespace, parent: Gid, path: &str) -> Result<Option<Found>> {
    namespace.retry(Retry::IfViewChanged, || {
        let realms = match namespace.seen()? {
            VisibleRealms::One(realm) => return realm.find(parent, path),
            VisibleRealms::Many(realms) => realms,
        };
        let path = Path::new(path)?;
        let mut found = namespace.look(&realms, |tree| {
            let found = tree.resolve(parent, &path)?;
            found.map(|place| Ok((place.at, found_at(tree, &realms, place)?))).transpose()
        })?;
        see_heads(&realms, found.as_mut_slice())?;
        Ok(found.map(|(_, found)| found))
    })
}

/// See [`Namespace::find_counted`].
pub(super) fn find_counted(
    namespace: &Namespace,
    parent: Gid,
    name: &str,
) -> Result<Option<(Found, u64)>> {
    namespace.retry(Retry::IfViewChanged, || {
        if let VisibleRealms::One(realm) = namespace.seen()? {
            return realm.find_counted(parent, name);
        }
        let Some(found) = find(namespace, parent, name)? else { return Ok(None) };
        let names = match &found {
            Found::Object(info) => match namespace.count_names(info.oid) {
                // It has gone since: it is told as it was.
                Err(error) if error.kind() == Kind::NotFound => 1,
                names => names?,
            },
            Found::Group(_) => 1,
        };
        Ok(Some((found, names)))
    })
}

/// See [`Namespace::list_found`].
pub(super) fn list_found(
    namespace: &Namespace,
    gid: Gid,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Found)>> {
    namespace.retry(Retry::IfViewChanged, || {
        let realms = match namespace.seen()? {
            VisibleRealms::One(realm) => return realm.list_found(gid, after, limit),
            VisibleRealms::Many(realms) => realms,
        };
        let (names, mut found): (Vec<String>, Vec<(usize, Found)>) =
            namespace.look(&realms, |tree| {
                let all = tree.list(gid, after, limit)?.into_iter();
                all.map(|(name, place)| Ok((name, (place.at, found_at(tree, &realms, place)?))))
                    .collect()
            })?;
        see_heads(&realms, &mut found)?;
        Ok(names.into_iter().zip(found.into_iter().map(|(_, found)| found)).collect())
    })
}

/// See [`Namespace::path_of`].
pub(super) fn path_of(namespace: &Namespace, member: Member) -> Result<String> {
    namespace.retry(Retry::IfViewChanged, || match namespace.seen()? {
        VisibleRealms::One(realm) => realm.path_of(member),
        VisibleRealms::Many(realms) if realms.is_empty() && member.id() == namespace.root() => {
            Ok(String::new())
        }
        VisibleRealms::Many(realms) if realms.is_empty() => {
            fail!(NotFound, "there is nothing in namespace {:?}", namespace.namespace())
        }
        VisibleRealms::Many(realms) => namespace.look(&realms, |tree| tree.path_of(member)),
    })
}

/// Whether it is the root, and no realm is seen that could say anything of it.
pub(super) fn is_bare_root(namespace: &Namespace, member: Member) -> Result<bool> {
    Ok(member == Member::Group(namespace.root())
        && matches!(namespace.seen()?, VisibleRealms::Many(realms) if realms.is_empty()))
}

pub(super) fn each<T>(
    namespace: &Namespace,
    realms: &[Realm],
    oids: &[Oid],
    mut read: impl FnMut(&mut Tree<'_, '_>, usize, Oid) -> Result<T>,
) -> Result<Vec<Option<T>>> {
    namespace.look(realms, |tree| {
        let mut all = Vec::with_capacity(oids.len());
        for oid in oids {
            let home = tree.home(Member::Object(*oid))?;
            all.push(home.map(|home| read(tree, home, *oid)).transpose()?);
        }
        Ok(all)
    })
}

/// What there is at a place, in the rows in which it was found.
fn found_at(tree: &mut Tree<'_, '_>, realms: &[Realm], place: MemberLocation) -> Result<Found> {
    Found::of(tree.at(place.at), place.member, realms[place.at].scope())
}

/// Has each realm tell of the files that were found in it what their heads say.
fn see_heads(realms: &[Realm], found: &mut [(usize, Found)]) -> Result<()> {
    for (at, realm) in realms.iter().enumerate() {
        let here = found.iter_mut().filter(|(place, _)| *place == at);
        realm.see_heads(here.filter_map(|(_, found)| found.info()))?;
    }
    Ok(())
}
