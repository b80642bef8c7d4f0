//! Queries on a realm: which objects, by any combination of what is known of them.
//!
//! A query is one read transaction, and inside a batch that transaction below the batch's own
//! changes: everything that it finds, counts and names is of one commit. It waits for no writer.

use crate::batch;
use crate::realm::keys;
use crate::realm::{Mode, Realm};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Oid;
use engram_base::id::id_key;
use engram_base::telemetry::operation;
use engram_catalog::Table;
use engram_columns::column_key::ColumnKey;
use engram_index::hints::{Hint, split_places};
use engram_ops::overlay::Overlay;
use engram_ops::overlay::peek::Peek;
use engram_query::answer::{Explanation, QueryOptions, TotalsAnswer};
use engram_query::ast::Query;
use engram_query::compile::{Plan, compile};
use engram_query::groups::Groups;
use engram_query::projection::{Projection, WantedField};
use engram_query::run::Search;
use engram_query::sealed::DirectoryCache;
use engram_query::tree::GroupCache;
use engram_records::object::Record;

/// See [`Realm::query_attribute_keys`].
pub(super) fn query_attribute_keys(
    realm: &Realm,
    query: &Query,
    options: &QueryOptions,
) -> Result<Vec<(String, u64)>> {
    search(realm, query, options, |search, peek| {
        let keys = search.attribute_keys()?;
        let mut named = Vec::with_capacity(keys.len());
        for (key, count) in keys {
            named.push((keys::key_name_at(&realm.core, peek.txn(), key)?.to_string(), count));
        }
        named.sort_unstable();
        Ok(named)
    })
}

/// See [`Realm::explain`].
pub(super) fn explain(realm: &Realm, query: &Query, options: &QueryOptions) -> Result<Explanation> {
    run(realm, query, options, Asking { tell: true, noted: true }, |search, peek| {
        search.trace = Some(Vec::new());
        let hits = search.hits()?;
        let mut segments = search.trace.take().unwrap_or_default();
        segments.sort_by_key(|segment| segment.segment);
        Ok(Explanation {
            snapshot: peek.txn().id(),
            query: query.to_string(),
            leaves: std::mem::take(&mut search.leaves),
            segments,
            records: search.counts,
            threads: search.threads,
            hits,
        })
    })
}

/// See [`Realm::query_totals`].
pub(super) fn query_totals(
    realm: &Realm,
    query: &Query,
    options: &QueryOptions,
) -> Result<TotalsAnswer> {
    search(realm, query, options, |search, peek| search.tally()?.rows(peek.txn().id()))
}

pub(super) fn each_record<T>(
    realm: &Realm,
    oids: &[Oid],
    mut read: impl FnMut(&mut Groups<'_>, &Record<'_>) -> Result<T>,
) -> Result<Vec<Option<T>>> {
    peek(realm, |peek| {
        let mut groups = Groups::new(peek, realm.root(), groups(realm));
        let mut all = Vec::with_capacity(oids.len());
        for oid in oids {
            let row = peek.get(Table::Objects, &id_key(*oid))?;
            all.push(row.map(|row| read(&mut groups, &Record::parse(row)?)).transpose()?);
        }
        Ok(all)
    })
}

/// See [`Realm::columns_of`].
pub(super) fn columns_of(
    realm: &Realm,
    oids: &[Oid],
    wanted: &[WantedField],
) -> Result<Projection> {
    peek(realm, |peek| {
        let groups = Groups::new(peek, realm.root(), groups(realm)).of(realm.scope());
        let (plan, options) = (Plan::everything(), QueryOptions::default());
        let mut search = Search::new(peek, &plan, groups, &options, directories(realm));
        let mut key_id = |key: &str| keys::key_at(&realm.core, peek.txn(), key);
        search.project(oids, wanted, &mut key_id)
    })
}

pub(super) fn search<T>(
    realm: &Realm,
    query: &Query,
    options: &QueryOptions,
    ask: impl FnOnce(&mut Search<'_>, Peek<'_>) -> Result<T>,
) -> Result<T> {
    run(realm, query, options, Asking { tell: false, noted: true }, ask)
}

/// The same for one who asks again and again: what the index is asked for is not noted.
pub(super) fn search_again<T>(
    realm: &Realm,
    query: &Query,
    options: &QueryOptions,
    ask: impl FnOnce(&mut Search<'_>, Peek<'_>) -> Result<T>,
) -> Result<T> {
    run(realm, query, options, Asking { tell: false, noted: false }, ask)
}

/// What a query does beside its answer.
#[derive(Clone, Copy)]
struct Asking {
    /// It tells how it is answered.
    tell: bool,
    /// The index takes down what it was asked for.
    noted: bool,
}

fn run<T>(
    realm: &Realm,
    query: &Query,
    options: &QueryOptions,
    asking: Asking,
    ask: impl FnOnce(&mut Search<'_>, Peek<'_>) -> Result<T>,
) -> Result<T> {
    let _operation = operation!(DEBUG, "query", text = %query);
    options.check()?;
    // A snapshot stays as it is.
    let growth = if realm.at().is_none() { realm.bell()? } else { None };
    peek(realm, |peek| {
        let mut groups = Groups::new(peek, realm.root(), groups(realm)).of(realm.scope());
        let mut key_id = |key: &str| keys::key_at(&realm.core, peek.txn(), key);
        let plan = compile(query, options, &mut groups, &mut key_id, asking.tell)?;
        if asking.noted && realm.mode() == Mode::ReadWrite {
            realm.asked(&plan, options, peek)?;
        }
        let directories = directories(realm);
        let search = Search::new(peek, &plan, groups, options, directories);
        ask(&mut search.told_by(growth.as_deref()), peek)
    })
}

/// Runs `look` on the newest snapshot, below the changes of the batch that this thread runs.
fn peek<T>(realm: &Realm, look: impl FnOnce(Peek<'_>) -> Result<T>) -> Result<T> {
    let core = realm.readable()?;
    let inside = core.enter()?;
    let above = |over: Option<&Overlay>| look(Peek::new(&inside.read_at(realm.at())?, over));
    if realm.at().is_some() || !batch::runs(core) {
        return above(None);
    }
    match batch::with(core, |overlay| above(Some(overlay)))? {
        Some(done) => Ok(done),
        None => fail!(Busy, "the batch ended in another thread"),
    }
}

/// The paths of groups, as queries here last needed them: a snapshot has its own.
fn groups(realm: &Realm) -> &GroupCache {
    realm.at().map_or(&realm.core.index.groups, |at| &at.groups)
}

/// The segments, likewise.
fn directories(realm: &Realm) -> &DirectoryCache {
    realm.at().map_or(&realm.core.index.directories, |at| &at.directories)
}

/// What a query asks of the index beside its answer.
pub(super) fn hints(
    plan: &Plan,
    options: &QueryOptions,
    key_id: &mut dyn FnMut(&str) -> Result<Option<ColumnKey>>,
) -> Result<Vec<Hint>> {
    let mut hints = Vec::new();
    let mut keys = plan.keys();
    keys.sort_unstable();
    keys.dedup();
    if options.merge && keys.len() > 1 {
        hints.push(Hint::Merge(keys.clone()));
    }
    if let Some((key, value)) = &options.split_on
        && let Some(key) = key_id(key)?
    {
        hints.extend(split_places(value).map(|at| Hint::SplitOn(key, at)));
    }
    if let Some(most) = options.split_threshold
        && !keys.is_empty()
    {
        hints.push(Hint::SplitAbove(keys, most as usize));
    }
    Ok(hints)
}
