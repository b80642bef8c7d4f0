//! What this process's last commit has left behind: facts that the next commit would look up.
//!
//! A fact is of one commit, and holds for a transaction that begins right after that one. Where
//! another process has committed in between, it is forgotten. So whoever writes alone, as most
//! do, looks up neither the group that it puts into nor the range of the index's tail.
//!
//! One fact is of all commits in a row: since which of them no group was changed, as far as this
//! process knows. What is remembered of groups stays so while this process puts objects into them.

use std::ops::RangeInclusive;
use std::sync::Mutex;

use engram_base::id::Gid;
use engram_base::mutex::lock;
use engram_index::tail::TailRange;

/// The facts of this process's last commit.
#[derive(Default)]
pub(crate) struct Recent(Mutex<LastCommit>);

#[derive(Clone, Copy, Default)]
struct LastCommit {
    id: u64,
    facts: CommitFacts,
    /// The first commit as of which every group is as it is as of this one.
    same_groups: u64,
}

/// What was so after a commit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CommitFacts {
    /// A range of the index's tail.
    pub range: Option<TailRange>,
    /// A group that was there.
    pub group: Option<Gid>,
    /// Whether it changed any group, made one or removed one.
    pub changed_groups: bool,
}

impl Recent {
    /// What is known to a transaction of this id.
    pub(super) fn before(&self, id: u64) -> CommitFacts {
        let last = *lock(&self.0);
        if last.id + 1 == id { last.facts } else { CommitFacts::default() }
    }

    /// Takes down what was so after a commit.
    pub(super) fn after(&self, id: u64, facts: CommitFacts) {
        let mut last = lock(&self.0);
        let same_groups = match facts.changed_groups {
            true => id,
            false if last.id + 1 == id => last.same_groups,
            // What another process has committed meanwhile is in what came right before.
            false => id - 1,
        };
        *last = LastCommit { id, facts, same_groups };
    }

    /// The commits up to the newest one as of which every group is as it is as of that one, as far
    /// as this process knows.
    pub(super) fn same_groups(&self, newest: u64) -> RangeInclusive<u64> {
        let last = *lock(&self.0);
        if last.id == newest { last.same_groups..=newest } else { newest..=newest }
    }
}

#[cfg(test)]
mod tests {
    use super::{CommitFacts, Recent};

    #[test]
    fn groups_are_the_same_as_long_as_this_process_alone_commits_and_changes_none() {
        let recent = Recent::default();
        let (quiet, loud) =
            (CommitFacts::default(), CommitFacts { changed_groups: true, ..Default::default() });
        assert_eq!(recent.same_groups(7), 7..=7, "nothing is known of what others have done");
        recent.after(8, quiet);
        recent.after(9, quiet);
        assert_eq!(recent.same_groups(9), 7..=9);
        assert_eq!(recent.same_groups(10), 10..=10, "10 is another process's");
        recent.after(12, quiet);
        assert_eq!(recent.same_groups(12), 11..=12, "11 may have changed any");
        recent.after(13, loud);
        assert_eq!(recent.same_groups(13), 13..=13);
        recent.after(14, quiet);
        assert_eq!(recent.same_groups(14), 13..=14);
    }
}
