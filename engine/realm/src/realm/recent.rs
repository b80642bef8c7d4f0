//! What this process's last commit has left behind: facts that the next commit would look up.
//!
//! A fact is of one commit, and holds for a transaction that begins right after that one. Where
//! another process has committed in between, it is forgotten. So whoever writes alone, as most
//! do, looks up neither the group that it puts into nor the range of the index's tail.

use std::sync::Mutex;

use engram_base::id::Gid;
use engram_base::mutex::lock;
use engram_index::tail::TailRange;

/// The facts of this process's last commit.
#[derive(Default)]
pub(crate) struct Recent(Mutex<(u64, CommitFacts)>);

/// What was so after a commit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CommitFacts {
    /// A range of the index's tail.
    pub range: Option<TailRange>,
    /// A group that was there.
    pub group: Option<Gid>,
}

impl Recent {
    /// What is known to a transaction of this id.
    pub(super) fn before(&self, id: u64) -> CommitFacts {
        let (as_of, facts) = *lock(&self.0);
        if as_of + 1 == id { facts } else { CommitFacts::default() }
    }

    /// Takes down what was so after a commit.
    pub(super) fn after(&self, id: u64, facts: CommitFacts) {
        *lock(&self.0) = (id, facts);
    }
}
