//! Snapshots of a namespace, and locks in it.
//!
//! A snapshot of a namespace is one of each realm that the user sees, taken together
//! (`realm::together`), and a view of its own on them: nothing moves in it, and no realm comes to
//! it. If one has come, or a published version, while they were taken, they are taken again: what
//! had moved there could be in none of them.

use crate::namespace::retry::Retry;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::view::{Namespace, VisibleRealms};
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::id::Member;
use engram_realm::{Lock, Realm, Wait, snapshot_together};
use engram_space::lease::LockMode;

impl Namespace {
    /// The namespace as the newest commits have left it, until the last handle of what is returned
    /// goes, or it is ended: all that is looked up through it is of those. It is given up when more
    /// bytes of a catalog than `max_growth` wait for it (if not given: 256 MiB, or four times the
    /// catalog).
    pub fn snapshot(&self, max_growth: Option<u64>) -> Result<Namespace> {
        if self.is_snapshot() {
            fail!(Argument, "this is of a snapshot already: take another from the pool itself");
        }
        let take = || {
            self.retry(Retry::IfViewChanged, || match self.seen()? {
                VisibleRealms::One(realm) => Ok(vec![realm.snapshot(max_growth)?]),
                VisibleRealms::Many(realms) => snapshot_together(&realms, max_growth),
            })
        };
        let held = self.retry(Retry::IfMoved, || match take() {
            // Published values that went as they were looked for: there is a newer version.
            Err(error) if error.kind() == Kind::NotFound => take(),
            taken => taken,
        })?;
        Ok(self.of_snapshots(&held))
    }

    /// Ends the snapshot that this is of; without one, nothing.
    pub fn end_snapshot(&self) {
        for realm in self.snapshots() {
            realm.end_snapshot();
        }
    }

    /// What the program should be told, though nothing has failed: see [`Realm::take_notices`].
    ///
    /// [`Realm::take_notices`]: engram_realm::Realm::take_notices
    pub fn take_notices(&self) -> Vec<String> {
        match self.seen() {
            Ok(VisibleRealms::One(realm)) => realm.take_notices(),
            Ok(VisibleRealms::Many(realms)) => {
                realms.iter().flat_map(Realm::take_notices).collect()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Locks a member in the realm that has it: see [`Realm::lock`]. While it is on its way to
    /// another scope nobody has it; who waits gets it where it comes to.
    ///
    /// [`Realm::lock`]: engram_realm::Realm::lock
    pub fn lock(
        &self,
        member: Member,
        mode: LockMode,
        within: Option<Duration>,
        pause: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<Lock> {
        let waiting = RefCell::new((Wait::new(within), pause));
        loop {
            let taken = self.in_owning_realm(member, |realm| {
                let (wait, pause) = &mut *waiting.borrow_mut();
                let taken = realm.lock_here(member, mode, wait, pause)?;
                Ok(taken.map(|lock| (lock, realm.clone())))
            })?;
            match taken {
                Some((lock, realm)) if self.is_home(member, &realm)? => return Ok(lock),
                // It has moved while one waited.
                Some(_) => {}
                // It moves; perhaps by somebody who is gone.
                None => drop(self.end_dead_moves()?),
            }
        }
    }

    /// Whether this realm has a member still, or none has.
    fn is_home(&self, member: Member, realm: &Realm) -> Result<bool> {
        let realms = match self.seen()? {
            VisibleRealms::One(one) => return Ok(one.is(realm)),
            VisibleRealms::Many(realms) => realms,
        };
        let home = self.look(&realms, |tree| tree.home(member))?;
        Ok(home.is_none_or(|home| realms[home].is(realm)))
    }

    /// Whether this is of a snapshot.
    pub fn is_snapshot(&self) -> bool {
        Arc::as_ref(&self.inner).is_snapshot
    }
}
