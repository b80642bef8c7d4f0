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
use engram_catalog::Table;
use engram_columns::column_key::ColumnKey;
use engram_columns::literal::cell_of;
use engram_index::hints::Hint;
use engram_ops::overlay::Overlay;
use engram_ops::overlay::peek::Peek;
use engram_query::answer::{Answer, Explanation, QueryOptions};
use engram_query::ast::Query;
use engram_query::compile::{Plan, compile};
use engram_query::groups::Groups;
use engram_query::run::Search;
use engram_query::sealed::DirectoryCache;
use engram_query::table::GroupCache;
use engram_records::object::Record;

impl Realm {
    /// The objects that a query finds.
    pub fn query(&self, query: &Query, options: &QueryOptions) -> Result<Answer> {
        self.search(query, options, |search, peek| {
            Ok(Answer { oids: search.oids()?, snapshot: peek.txn().id() })
        })
    }

    /// How many objects a query finds.
    pub fn query_count(&self, query: &Query, options: &QueryOptions) -> Result<u64> {
        self.search(query, options, |search, _| search.count())
    }

    /// How many attributes the objects have, in all, that a query finds.
    pub fn query_count_attributes(&self, query: &Query, options: &QueryOptions) -> Result<u64> {
        self.search(query, options, |search, _| search.count_attributes())
    }

    /// The keys of the attributes that the objects have which a query finds, in byte order, each
    /// with how many of the objects have it.
    pub fn query_attribute_keys(
        &self,
        query: &Query,
        options: &QueryOptions,
    ) -> Result<Vec<(String, u64)>> {
        self.search(query, options, |search, peek| {
            let keys = search.attribute_keys()?;
            let mut named = Vec::with_capacity(keys.len());
            for (key, count) in keys {
                named.push((keys::key_name_at(&self.core, peek.txn(), key)?.to_string(), count));
            }
            named.sort_unstable();
            Ok(named)
        })
    }

    /// The names of the objects that a query finds, in the order of [`Realm::query`].
    pub fn query_names(&self, query: &Query, options: &QueryOptions) -> Result<Vec<String>> {
        self.search(query, options, |search, _| search.names())
    }

    /// The paths of the objects that a query finds, in the order of [`Realm::query`].
    pub fn query_paths(&self, query: &Query, options: &QueryOptions) -> Result<Vec<String>> {
        self.search(query, options, |search, _| search.paths())
    }

    /// How a query is answered. It is run to find out.
    pub fn explain(&self, query: &Query, options: &QueryOptions) -> Result<Explanation> {
        self.run(query, options, true, |search, peek| {
            search.trace = Some(Vec::new());
            let hits = search.count()?;
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

    /// The names of objects, as of one commit; `None` for those that are gone.
    pub fn names_of(&self, oids: &[Oid]) -> Result<Vec<Option<String>>> {
        self.each_record(oids, |_, record| Ok(record.name.to_owned()))
    }

    /// The paths of objects, as of one commit; `None` for those that are gone.
    pub fn paths_of(&self, oids: &[Oid]) -> Result<Vec<Option<String>>> {
        self.each_record(oids, |groups, record| groups.path_of(record.parent, record.name))
    }

    fn each_record<T>(
        &self,
        oids: &[Oid],
        mut read: impl FnMut(&mut Groups<'_>, &Record<'_>) -> Result<T>,
    ) -> Result<Vec<Option<T>>> {
        self.peek(|peek| {
            let mut groups = Groups::new(peek, self.root(), self.groups());
            let mut all = Vec::with_capacity(oids.len());
            for oid in oids {
                let row = peek.get(Table::Objects, &id_key(*oid))?;
                all.push(row.map(|row| read(&mut groups, &Record::parse(row)?)).transpose()?);
            }
            Ok(all)
        })
    }

    fn search<T>(
        &self,
        query: &Query,
        options: &QueryOptions,
        ask: impl FnOnce(&mut Search<'_>, Peek<'_>) -> Result<T>,
    ) -> Result<T> {
        self.run(query, options, false, ask)
    }

    fn run<T>(
        &self,
        query: &Query,
        options: &QueryOptions,
        tell: bool,
        ask: impl FnOnce(&mut Search<'_>, Peek<'_>) -> Result<T>,
    ) -> Result<T> {
        options.check()?;
        self.peek(|peek| {
            let mut groups = Groups::new(peek, self.root(), self.groups()).of(self.scope());
            let mut key_id = |key: &str| keys::key_at(&self.core, peek.txn(), key);
            let plan = compile(query, options, &mut groups, &mut key_id, tell)?;
            if self.mode() == Mode::ReadWrite {
                self.asked(&plan, options, peek)?;
            }
            let directories = self.directories();
            ask(&mut Search::new(peek, &plan, groups, options, directories), peek)
        })
    }

    /// Runs `look` on the newest snapshot, below the changes of the batch that this thread runs.
    fn peek<T>(&self, look: impl FnOnce(Peek<'_>) -> Result<T>) -> Result<T> {
        let core = self.readable()?;
        let inside = core.enter()?;
        let above = |over: Option<&Overlay>| look(Peek::new(&inside.read_at(self.at())?, over));
        if self.at().is_some() || !batch::runs(core) {
            return above(None);
        }
        match batch::with(core, |overlay| above(Some(overlay)))? {
            Some(done) => Ok(done),
            None => fail!(Busy, "the batch ended in another thread"),
        }
    }

    /// Notes what a query asks of the index beside its answer.
    pub fn asked(&self, plan: &Plan, options: &QueryOptions, peek: Peek<'_>) -> Result<()> {
        if !peek.in_batch() {
            let mut key_id = |key: &str| keys::key_at(&self.core, peek.txn(), key);
            self.core.index.state.told(plan.keys(), hints(plan, options, &mut key_id)?);
        }
        Ok(())
    }

    /// The paths of groups, as queries here last needed them: a snapshot has its own.
    fn groups(&self) -> &GroupCache {
        self.at().map_or(&self.core.index.groups, |at| &at.groups)
    }

    /// The segments, likewise.
    fn directories(&self) -> &DirectoryCache {
        self.at().map_or(&self.core.index.directories, |at| &at.directories)
    }
}

/// What a query asks of the index beside its answer.
fn hints(
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
        hints.push(Hint::SplitOn(key, cell_of(value)));
    }
    if let Some(most) = options.split_threshold
        && !keys.is_empty()
    {
        hints.push(Hint::SplitAbove(keys, most as usize));
    }
    Ok(hints)
}
