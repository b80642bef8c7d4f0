//! Steps: named places in the protocols, where tests let a process die.
//!
//! `step!` is nothing at all in a build without the feature `faults`. With it, it
//! calls what [`on_step`] was given, which may kill the process, wait, or count. A name is
//! `<protocol>.<what has just happened>`; [`ALL`] has every one, in the order of the essays, so a
//! campaign can visit each, and a test compares the list with the source. With the feature
//! `tracing` each step is told to a program that listens ([`crate::telemetry`]).

/// Marks a step of a protocol.
///
/// It expands to a call, not to a `cfg` of its own: that would be looked up in the crate that uses
/// the macro, and the steps of every crate without such a feature would be lost without a word.
#[macro_export]
macro_rules! step {
    ($name:literal) => {
        $crate::telemetry::reached($name);
        $crate::faults::reached($name);
    };
}
pub use step;

/// Nothing: this build has no steps.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn reached(_name: &'static str) {}

#[cfg(feature = "faults")]
pub use enabled::{ALL, FlushEvent, flushed, on_flush, on_step, reached};

#[cfg(feature = "faults")]
mod enabled {
    use std::sync::OnceLock;

    /// Every step's name.
    pub const ALL: &[&str] = &[
        // Opening, and its lease (P3).
        "lease.made",
        "lease.locked",
        "lease.named",
        "spare.fresh",
        "spare.linked",
        "spare.made",
        "open.catalog",
        "open.announced",
        "open.made",
        "open.ready",
        // What the dead left.
        "dead.locked",
        "dead.ended",
        "dead.committed",
        "dead.reaped",
        // The commit, and the catalog's growth (P5).
        "commit.begun",
        "commit.changed",
        "commit.made",
        "bell.raised",
        "bell.rung",
        "bell.sleeping",
        "commit.committed",
        "commit.short",
        "catalog.locked",
        "catalog.allocated",
        "catalog.marked",
        "ids.committed",
        "keys.committed",
        // Space: reserving and growing (P2).
        "reclaim.taken",
        "reserve.reclaimed",
        "reserve.taken",
        "reserve.committed",
        "reserve.pinned",
        "vacate.committed",
        "vacate.punched",
        "occupy.allocated",
        "occupy.committed",
        "grow.locked",
        "grow.made",
        "grow.committed",
        "grow.reached",
        "give_back.ended",
        "give_back.committed",
        // Values and their rows (P1, P8).
        "put.copied",
        "put.zeroed",
        "put.flushed",
        "link.recorded",
        "put.linked",
        "replace.copied",
        "replace.flushed",
        "replace.recorded",
        "inplace.promoted",
        "inplace.flushed",
        "chunks.pinned",
        "chunks.encoded",
        "chunks.reserved",
        "chunks.copied",
        "chunks.flushed",
        "chunks.recorded",
        "chunks.cut",
        "chunks.reshaped",
        "slab.flushed",
        "view.sought",
        "view.mapped",
        "view.pinned",
        "view.looked",
        "delete.unnamed",
        "delete.emptied",
        "rename.recorded",
        "rename.exchanged",
        "names.made",
        "links.added",
        "links.dropped",
        "links.orphaned",
        "orphans.swept",
        // Files.
        "file.listed",
        "file.made",
        "file.pinned",
        "file.announced",
        "file.tail",
        "file.tail-taken",
        "file.stored",
        "file.inlined",
        "file.copied-over",
        "file.segmented",
        "file.filled",
        "file.row",
        "file.mapped",
        "file.added",
        "file.copied",
        "file.extended",
        "file.sized",
        "file.zeroed",
        "file.shortened",
        "file.cut",
        "file.flushed",
        "file.closed",
        "write.committed",
        "batch.reserved",
        "batch.closed",
        "batch.rows",
        "batch.indexed",
        "batch.adopted",
        "batch.committed",
        // Changes of a namespace's mode.
        "mode.intended",
        "mode.devices",
        "mode.given",
        "mode.opened",
        "mode.folder",
        "mode.closed",
        "mode.settled",
        "mode.described",
        // A user's own realm.
        "private.found",
        // Moves between realms (T0 to T5), and published versions.
        "transfer.marked",
        "transfer.reserved",
        "transfer.copied",
        "transfer.arrived",
        "transfer.gone",
        "transfer.receipt-cleared",
        "transfer.forgotten",
        // Copies, and moves to another namespace.
        "copy.reserved",
        "copy.copied",
        "copy.recorded",
        "copy.committed",
        "move-out.copied",
        "move-out.gone",
        "move-out.forgotten",
        "publish.begun",
        "publish.spans-made",
        "publish.copied-in",
        "publish.settled",
        "publish.copied",
        "publish.synced",
        "publish.renamed",
        "publish.told",
        "publish.unnamed",
        "publish.outdated",
        "publish.cleared",
        "publish.arrived",
        "publish.gone",
        "publish.forgotten",
        "unpublish.arrived",
        "unpublish.removed",
        "unpublish.withdrawn",
        "unpublish.settled",
        // The index.
        "queue.taken",
        "queue.drained",
        "index.tail-taken",
        "index.segment-put",
        "index.sealed",
        "index.segments-gathered",
        "index.segments-taken",
        "index.rewritten",
        "index.united",
        "index.dropped",
        "index.families-dropped",
        "index.families-emptied",
        "index.recounted",
        "index.regrouped",
        "index.taken-back",
        "index.split",
        "index.runs-taken",
        "index.runs-merged",
        "index.runs-part",
        "index.runs-headless",
        "index.runs-joined",
        "index.runs-given-up",
        "index.runs-gone",
        "index.runs-cleared",
        "index.stepped",
        "index.settled",
        // Forking (P4).
        "fork.leased",
        "fork.announced",
        "fork.parted",
        "fork.adopted",
        "fork.opened",
        // Closing.
        "close.sealed",
        "close.given-back",
        "close.marked",
        "close.catalog",
        "lease.linked-as-spare",
        "close.lease",
        // A copy of the pool, and the realm made small.
        "backup.begun",
        "backup.rows",
        "backup.values",
        "backup.namespace",
        "backup.synced",
        "backup.named",
        "compact.locked",
        "join.copied",
        "join.committed",
        "compact.rows",
        "compact.filled",
        "compact.exchanged",
        "compact.cleared",
        "compact.swept",
        // A pool of an earlier format, made anew.
        "upgrade.locked",
        "upgrade.begun",
        "upgrade.rows",
        "upgrade.values",
        "upgrade.indexed",
        "upgrade.namespace",
        "upgrade.synced",
        "upgrade.named",
        "upgrade.verified",
        "upgrade.marked",
        "upgrade.renamed",
        "upgrade.exchanged",
        "upgrade.brought",
        "upgrade.removed",
        "upgrade.added",
        "upgrade.ended",
    ];

    type Hook = Box<dyn Fn(&'static str) + Send + Sync>;
    static HOOK: OnceLock<Hook> = OnceLock::new();

    /// Calls `hook` at every step from now on. Once for each process.
    ///
    /// # Panics
    ///
    /// The second time.
    pub fn on_step(hook: impl Fn(&'static str) + Send + Sync + 'static) {
        assert!(HOOK.set(Box::new(hook)).is_ok(), "steps have a hook already");
    }

    /// What has happened to memory that is itself the medium.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FlushEvent {
        /// So many bytes from this address on are on their way, as they were then.
        Lines(usize, usize),
        /// What was on its way has arrived.
        Fence,
    }

    type FlushHook = Box<dyn Fn(FlushEvent) + Send + Sync>;
    static FLUSH_HOOK: OnceLock<FlushHook> = OnceLock::new();

    /// Calls `hook` whenever cache lines are written back or waited for from now on. Once for each
    /// process.
    ///
    /// # Panics
    ///
    /// The second time.
    pub fn on_flush(hook: impl Fn(FlushEvent) + Send + Sync + 'static) {
        assert!(FLUSH_HOOK.set(Box::new(hook)).is_ok(), "flushes have a hook already");
    }

    /// Tells what [`on_flush`] was given of a flush.
    pub fn flushed(what: FlushEvent) {
        if let Some(hook) = FLUSH_HOOK.get() {
            hook(what);
        }
    }

    /// Tells what [`on_step`] was given of a step that is reached.
    pub fn reached(name: &'static str) {
        if let Some(hook) = HOOK.get() {
            hook(name);
        }
    }
}
