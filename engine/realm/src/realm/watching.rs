//! Watching one realm: what its commits have changed, for a watcher that sleeps until then.
//!
//! A watcher sleeps on the bell of the realm's growth page, without entering the realm: a fork or a
//! close does not wait for it. It holds the page meanwhile, which stays mapped until it wakes; a
//! session that is closed rings. What it asks when it wakes is one snapshot.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::realm::core::Core;
use crate::realm::{Realm, query};
use engram_base::error::Result;
use engram_base::id::Oid;
use engram_catalog::Growth;
use engram_query::answer::QueryOptions;
use engram_query::ast::Query;

/// What a look of a watcher has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// Of the objects that were changed since the last look, in that order, whether the query is
    /// true of each now. Some may be there more than once. What is gone is not found.
    Changed(Vec<(Oid, bool)>),
    /// Every object of which the query is true.
    Whole(Vec<Oid>),
}

impl Core {
    /// Wakes all watchers of the realm, if it is up.
    pub(crate) fn ring(&self) {
        if let Some(catalog) = &self.gate.read().catalog {
            catalog.growth().bell().ring();
        }
    }
}

impl Realm {
    /// The page with the realm's bell; none where nobody ever commits.
    pub fn bell(&self) -> Result<Option<Arc<Growth>>> {
        let core = self.readable()?;
        let inside = core.enter()?;
        Ok((!core.setup.immutable).then(|| inside.catalog().shared_growth()))
    }

    /// Wakes all watchers of the realm.
    pub fn ring(&self) {
        self.core.ring();
    }

    /// The id of the commit that a look sees which begins now: one that begins later sees it, too.
    /// (LMDB's own last id is of a commit that no look may see yet.)
    pub fn last_commit(&self) -> Result<u64> {
        Ok(self.readable()?.enter()?.read()?.id())
    }

    /// The commits as of which every group is as it is by now, its name and all that is kept of it,
    /// as far as this process knows: the newest one, which looks may not see yet, and those before
    /// it that only this process has followed, without changing any group. What a look saw of a
    /// group that began at a `last_commit` among them is so. Far cheaper than a look.
    pub fn same_groups(&self) -> Result<RangeInclusive<u64>> {
        let core = self.readable()?;
        let newest = core.enter()?.catalog().last_id()?;
        Ok(core.recent.same_groups(newest))
    }

    /// Looks whether the realm's files have their names.
    pub fn check_present(&self) -> Result<()> {
        self.readable()?.check_present()
    }

    /// What a query finds since a commit, or at all, and as of which commit that is. For a thread
    /// that runs no batch.
    pub fn sight(
        &self,
        query: &Query,
        options: &QueryOptions,
        since: Option<u64>,
    ) -> Result<(u64, Sighting)> {
        let growth = self.bell()?;
        query::search_again(self, query, options, |search, peek| {
            let at = peek.txn().id();
            let changed = match (since, &growth) {
                (Some(since), Some(growth)) => growth.changed(since, at),
                _ => None,
            };
            let Some(changed) = changed else { return Ok((at, Sighting::Whole(search.oids()?))) };
            let judged = changed.into_iter().map(|oid| Ok((oid, search.finds(oid)?)));
            Ok((at, Sighting::Changed(judged.collect::<Result<_>>()?)))
        })
    }
}
