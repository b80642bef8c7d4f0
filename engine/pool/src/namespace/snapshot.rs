//! Snapshots of a namespace, and locks in it.
//!
//! A snapshot of a namespace is one of each realm that the user sees, taken together
//! (`realm::together`), and a view of its own on them: nothing moves in it, and no realm comes to
//! it. If one has come, or a published version, while they were taken, they are taken again: what
//! had moved there could be in none of them.

use std::cell::RefCell;
use std::time::Duration;

use super::{moves, view};
use crate::namespace::retry::Retry;

use super::Namespace;
use super::view::VisibleRealms;
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::id::Member;
use engram_realm::{Lock, Realm, Wait, snapshot_together};
use engram_space::lease::LockMode;

/// See [`Namespace::snapshot`].
pub(super) fn snapshot(namespace: &Namespace, max_growth: Option<u64>) -> Result<Namespace> {
    if namespace.is_snapshot() {
        fail!(Argument, "this is of a snapshot already: take another from the pool itself");
    }
    let take = || {
        namespace.retry(Retry::IfViewChanged, || match namespace.seen()? {
            VisibleRealms::One(realm) => Ok(vec![realm.snapshot(max_growth)?]),
            VisibleRealms::Many(realms) => snapshot_together(&realms, max_growth),
        })
    };
    let held = namespace.retry(Retry::IfMoved, || match take() {
        // Published values that went as they were looked for: there is a newer version.
        Err(error) if error.kind() == Kind::NotFound => take(),
        taken => taken,
    })?;
    Ok(view::of_snapshots(namespace, &held))
}

/// See [`Namespace::lock`].
pub(super) fn lock(
    namespace: &Namespace,
    member: Member,
    mode: LockMode,
    within: Option<Duration>,
    pause: &mut dyn FnMut(Duration) -> Result<()>,
) -> Result<Lock> {
    let waiting = RefCell::new((Wait::new(within), pause));
    // No `retry`: how long it goes on is for the caller to say, for ever if so, and each round has
    // waited already.
    loop {
        let taken = namespace.in_owning_realm(member, |realm| {
            let (wait, pause) = &mut *waiting.borrow_mut();
            let taken = realm.lock_here(member, mode, wait, pause)?;
            Ok(taken.map(|lock| (lock, realm.clone())))
        })?;
        match taken {
            Some((lock, realm)) if is_home(namespace, member, &realm)? => return Ok(lock),
            // It has moved while one waited.
            Some(_) => {}
            // It moves; perhaps its mover is gone.
            None => drop(moves::end_dead_moves(namespace)?),
        }
    }
}

/// Whether this realm has a member still, or none has.
fn is_home(namespace: &Namespace, member: Member, realm: &Realm) -> Result<bool> {
    let realms = match namespace.seen()? {
        VisibleRealms::One(one) => return Ok(one.is(realm)),
        VisibleRealms::Many(realms) => realms,
    };
    let home = namespace.look(&realms, |tree| tree.home(member))?;
    Ok(home.is_none_or(|home| realms[home].is(realm)))
}
