//! Deleting: whole, in one commit; or in delete batches.
//!
//! In delete batches a group goes in several commits, where there is no room for one.
//!
//! A commit copies each page that it changes, and LMDB reuses none before the next. A group of
//! thousands lies in more pages than the catalog's reserve has (P5), so on a mount that is full to
//! the last block its deletion finds no room, though it is what would make some. Then its members
//! go first, the deepest before, some in each commit, and so few as find room: what one commit
//! frees, a later one uses. The group goes last. A death in between leaves the members that were
//! still there; nothing was acknowledged by then.
//!
//! A chunked array of thousands of chunks goes likewise: chunks first, the array last. Until then
//! it has zeros where chunks have gone.
//!
//! A user's batch is one commit, and stays that: in it there is no such way out.

use crate::batch;
use crate::realm::{Realm, after_commit};
use engram_base::error::{Kind, Result};
use engram_base::id::{Gid, Member};
use engram_base::name::Path;
use engram_catalog::Headroom;
use engram_ops::group::Target;
use engram_ops::{chunk_rows, group, mirror, protect};

/// So many members go in one commit, if there is room for that.
const MOST: usize = 256;

/// See [`Realm::delete`].
pub(super) fn delete(realm: &Realm, parent: Gid, path: &str) -> Result<()> {
    let core = realm.writable()?;
    let parsed = Path::new(path)?;
    let target = Target { from: parent, root: realm.root(), path: &parsed };
    delete_whole_or_in_batches(
        realm,
        || realm.lookup(parent, path),
        || {
            let inside = &core.enter()?;
            core.write(inside, Headroom::Relief, realm.precondition(), |rows| {
                group::delete(rows, &target, path)
            })
        },
    )
}

/// See [`Realm::delete_group`].
pub(super) fn delete_group(realm: &Realm, gid: Gid, unnamed: &[Gid]) -> Result<()> {
    let core = realm.writable()?;
    let root = realm.root();
    let all = || [gid].into_iter().chain(unnamed.iter().copied());
    delete_whole_or_in_batches(
        realm,
        || Ok(Some(Member::Group(gid))),
        || {
            let inside = &core.enter()?;
            core.write(inside, Headroom::Relief, realm.precondition(), |rows| {
                all().try_for_each(|gid| mirror::delete(rows, gid, root))
            })
        },
    )
}

/// Deletes a member by `whole`, in one commit; where that finds no room, in delete batches.
fn delete_whole_or_in_batches(
    realm: &Realm,
    member: impl FnOnce() -> Result<Option<Member>>,
    whole: impl Fn() -> Result<()>,
) -> Result<()> {
    let refused = match whole() {
        Err(error) if error.kind() == Kind::PoolFull && !batch::runs(&realm.core) => error,
        done => return done,
    };
    let Some(member) = member()? else { return Err(refused) };
    let mut most = MOST;
    loop {
        match delete_batch(realm, member, most) {
            Ok(0) => return whole(),
            Ok(_) => most = MOST.min(most * 2),
            Err(error) if error.kind() == Kind::PoolFull && most > 1 => most /= 2,
            Err(error) => return Err(error),
        }
    }
}

fn delete_batch(realm: &Realm, member: Member, most: usize) -> Result<usize> {
    let inside = &realm.core.enter()?;
    let gone = realm.core.commit_if(inside, Headroom::Relief, realm.precondition(), |rows| {
        protect::refuse_deletion(rows, member)?;
        match member {
            Member::Group(gid) => group::delete_batch(rows, gid, most),
            Member::Object(oid) => chunk_rows::remove_all(rows, oid, most),
        }
    })?;
    after_commit(&realm.core, inside);
    Ok(gone)
}
