//! Presence: whether the realm's files still have their names.
//!
//! A pool in memory is files in /dev/shm, and other programs remove files there: logind's
//! `RemoveIPC` those of a user who has logged out, a cleaner of temporary files, an `rm`. The
//! process that has them mapped notices nothing of that. It goes on, and so would its commits, into
//! memory that goes with the last process that maps it.
//!
//! So a commit looks, before it changes anything: whether catalog and lease still have a name, and
//! whether the catalog's is still its own. A look takes a few system calls, which a small put would
//! feel, so it is taken once in [`LOOK_NS`], and whenever a session is closed that could write.
//! What the first look finds is final: from then on nobody enters the realm in this process. A
//! commit that is made within that time of the removal is lost, as all that was made before is.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::realm::gate::Inside;
use crate::realm::setup::Setup;
use engram_base::error::{Error, Kind, Result};
use engram_media::clock;

/// How often is looked at most.
const LOOK_NS: i64 = 10_000_000;

/// What is known of the files.
#[derive(Default)]
pub(crate) struct RealmPresence {
    gone: AtomicBool,
    /// When the next look is due, by the coarse clock.
    due_ns: AtomicI64,
}

impl RealmPresence {
    /// Whether a look has found files without names.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Looks, if it is time; an error if files have lost their names.
    pub(crate) fn check(&self, setup: &Setup, inside: &Inside<'_>) -> Result<()> {
        let now_ns = clock::coarse_ns();
        if now_ns < self.due_ns.load(Ordering::Relaxed) && !self.is_gone() {
            return Ok(());
        }
        self.due_ns.store(now_ns + LOOK_NS, Ordering::Relaxed);
        self.expect(are_named(inside) && inside.catalog().is_at_its_place(), setup)
    }

    /// Looks at the end: what goes by another name now is not lost.
    pub(crate) fn check_at_end(&self, setup: &Setup, inside: &Inside<'_>) -> Result<()> {
        self.expect(setup.immutable || are_named(inside), setup)
    }

    fn expect(&self, present: bool, setup: &Setup) -> Result<()> {
        if present && !self.is_gone() {
            return Ok(());
        }
        self.gone.store(true, Ordering::Relaxed);
        Err(gone(setup))
    }
}

fn are_named(inside: &Inside<'_>) -> bool {
    inside.catalog().is_named() && inside.lease().is_named()
}

/// The error of a realm whose files were removed.
#[cold]
pub(crate) fn gone(setup: &Setup) -> Error {
    Error::new(
        Kind::PoolGone,
        format!(
            "the files of namespace {:?} of {} were removed while this process had it open, by a \
             logout, a cleaner or a command, or another pool has taken their place: what has no \
             name goes with the last process that maps it; copy what open views show, make the \
             pool anew, and ask `engram doctor` what removes files there",
            setup.namespace,
            setup.pool.display()
        ),
    )
}
