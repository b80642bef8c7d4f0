//! The index of a realm, as this process remembers it between commits and between queries.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use crate::caretaker::LastLook;
use crate::realm::drainer::Drainer;
use crate::realm::failure::KnownFailure;
use engram_index::IndexState;
use engram_query::sealed::DirectoryCache;
use engram_query::tree::GroupCache;

/// What is remembered of the index.
#[derive(Default)]
pub struct IndexRuntime {
    /// Every group's path, as queries last needed it.
    pub groups: GroupCache,
    /// Every segment, as queries last needed it.
    pub directories: DirectoryCache,
    /// When there is something to do, and the modes of new objects.
    pub(crate) state: IndexState,
    /// The thread that indexes what is queued.
    pub(crate) drainer: Drainer,
    /// Whether this process has opened the realm to work with it.
    pub(crate) used: AtomicBool,
    /// What the caretaker saw of the queue.
    pub(crate) last_look: Mutex<LastLook>,
    /// How maintenance failed last in this process.
    pub(crate) failure: KnownFailure,
}

impl IndexRuntime {
    /// Whether a query has asked for something that was not seen to yet.
    pub(crate) fn asks(&self) -> bool {
        self.state.is_asked()
    }

    /// What a forked child begins with: no thread, and nobody at work.
    pub(crate) fn forget(&self) {
        self.state.forget();
        self.drainer.forget();
        self.failure.forget();
    }
}
