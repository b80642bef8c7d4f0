//! Presence: whether the realm's files still have their names.
//!
//! A pool in memory is files in /dev/shm, and other programs remove files there: logind's
//! `RemoveIPC` those of a user who has logged out, a cleaner of temporary files, an `rm`. The
//! process that has them mapped notices nothing of that. It goes on, and so would its commits, into
//! memory that goes with the last process that maps it.
//!
//! So a commit looks, before it changes anything: whether catalog and lease still have a name,
//! whether the catalog's is still its own, and whether one span is there, another each time.
//! A look takes a few system calls, which a small put would feel, so it is taken once in
//! [`LOOK_NS`]. Whenever a session is closed that could write, all spans are looked for.
//! What the first look finds is final: from then on nobody enters the realm in this process. A
//! commit that is made within that time of the removal is lost, as all that was made before is.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::setup::Setup;
use crate::realm::spans;
use engram_base::error::{Error, Kind, Result};
use engram_media::clock;
use engram_space::extent::Span;

/// How often is looked at most.
const LOOK_NS: i64 = 10_000_000;

/// What is known of the files.
#[derive(Default)]
pub(crate) struct RealmPresence {
    gone: AtomicBool,
    /// When the next look is due, by the coarse clock.
    due_ns: AtomicI64,
    /// How many looks there were.
    looks: AtomicUsize,
}

impl RealmPresence {
    /// Whether a look has found files without names.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Looks, if it is time; an error if files have lost their names.
    pub(crate) fn check(&self, core: &Core, inside: &Inside<'_>) -> Result<()> {
        let now_ns = clock::coarse_ns();
        if now_ns < self.due_ns.load(Ordering::Relaxed) && !self.is_gone() {
            return Ok(());
        }
        self.due_ns.store(now_ns + LOOK_NS, Ordering::Relaxed);
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        let span = inside.arena().attached_in_turn(look);
        let present = are_named(inside)
            && inside.catalog().is_at_its_place()
            && span.is_none_or(|span| is_there(core, span));
        self.expect(present, &core.setup)
    }

    /// Looks at the end: what goes by another name now, with all that is in it, is not lost.
    pub(crate) fn check_at_end(&self, core: &Core, inside: &Inside<'_>) -> Result<()> {
        let present = core.setup.immutable
            || are_named(inside)
                && (!inside.catalog().is_at_its_place()
                    || inside.arena().attached().into_iter().all(|span| is_there(core, span)));
        self.expect(present, &core.setup)
    }

    fn expect(&self, present: bool, setup: &Setup) -> Result<()> {
        if present && !self.is_gone() {
            return Ok(());
        }
        self.gone.store(true, Ordering::Relaxed);
        Err(gone(setup))
    }
}

/// Whether a span's file is there; or nothing is at all, since the pool goes by another name.
fn is_there(core: &Core, span: Span) -> bool {
    let exists = |path: &Path| std::fs::symlink_metadata(path).is_ok();
    let path = || spans::span_path(core, span);
    !span.has_file() || path().is_ok_and(|path| exists(&path)) || !exists(&core.setup.dir)
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
