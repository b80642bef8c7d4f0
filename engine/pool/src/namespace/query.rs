//! Queries in the view: each realm seen answers for itself, at one commit of each.
//!
//! The conditions of a query on groups (paths, attributes above an object) are asked of the one
//! tree, not of the mirrors that a realm happens to have. An object that a name hides is left out:
//! an object is found if its path leads to it. Which those are is worked out from the names of the
//! realms that win, which are few as a rule, and remembered for as long as nobody commits.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::namespace::retry::Retry;
use engram_realm::keys;

use super::Namespace;
use super::tree::Tree;
use super::view::VisibleRealms;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Member, Oid, id_key, split_name_key};
use engram_base::mutex::lock;
use engram_base::name::{Name, Path};
use engram_base::scope::Scope;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_columns::column_key::FIRST_BUILTIN;
use engram_ops::overlay::peek::Peek;
use engram_query::answer::{Answer, Explanation, Keyed, QueryOptions, TotalsAnswer};
use engram_query::ast::Query;
use engram_query::compile::{OrderKey, Plan, compile};
use engram_query::goal::Goal;
use engram_query::groups::{Beyond, Groups};
use engram_query::order::{compare_cells, order_bytes};
use engram_query::projection::{Projection, WantedField};
use engram_query::run::Search;
use engram_query::totals::Tally;
use engram_realm::process::between_forks;
use engram_realm::{HasCore, Mode, Realm, peek_together};
use engram_records::attrs::KeyId;
use engram_records::object::Record;

/// What the names of earlier realms hide in each realm.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    /// The commits that it is of.
    at: Vec<u64>,
    objects: Vec<HashSet<Oid>>,
    /// Groups, and with them all that lies in them.
    groups: HashSet<Gid>,
}

impl Hidden {
    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.objects.iter().all(HashSet::is_empty)
    }
}

/// See [`Namespace::query`].
pub(super) fn query(
    namespace: &Namespace,
    query: &Query,
    options: &QueryOptions,
) -> Result<Answer> {
    namespace.retry(Retry::IfViewChanged, || match namespace.seen()? {
        VisibleRealms::One(realm) => realm.query(query, options),
        VisibleRealms::Many(realms) => united(namespace, &realms, query, options, |united| {
            let oids = united.hits()?.into_iter().map(|(_, oid)| oid).collect();
            Ok(Answer { oids, snapshot: united.snapshot() })
        }),
    })
}

/// See [`Namespace::query_count`].
pub(super) fn query_count(
    namespace: &Namespace,
    query: &Query,
    options: &QueryOptions,
) -> Result<u64> {
    namespace.retry(Retry::IfViewChanged, || match namespace.seen()? {
        VisibleRealms::One(realm) => realm.query_count(query, options),
        VisibleRealms::Many(realms) => {
            united(namespace, &realms, query, options, |united: &mut United<'_, '_>| united.count())
        }
    })
}

/// See [`Namespace::query_count_attributes`].
pub(super) fn query_count_attributes(
    namespace: &Namespace,
    query: &Query,
    options: &QueryOptions,
) -> Result<u64> {
    namespace.retry(Retry::IfViewChanged, || match namespace.seen()? {
        VisibleRealms::One(realm) => realm.query_count_attributes(query, options),
        VisibleRealms::Many(realms) => united(namespace, &realms, query, options, |united| {
            let goals = united.goals(|| Goal::Attributes(0))?.into_iter();
            Ok(goals.map(|goal| if let Goal::Attributes(sum) = goal { sum } else { 0 }).sum())
        }),
    })
}

/// See [`Namespace::query_attribute_keys`].
pub(super) fn query_attribute_keys(
    namespace: &Namespace,
    query: &Query,
    options: &QueryOptions,
) -> Result<Vec<(String, u64)>> {
    namespace.retry(Retry::IfViewChanged, || {
        let realms = match namespace.seen()? {
            VisibleRealms::One(realm) => return realm.query_attribute_keys(query, options),
            VisibleRealms::Many(realms) => realms,
        };
        united(namespace, &realms, query, options, |united| {
            let mut all: BTreeMap<String, u64> = BTreeMap::new();
            let goals = united.goals(|| Goal::Keys(BTreeMap::new()))?;
            for (at, goal) in goals.into_iter().enumerate() {
                let Goal::Keys(keys) = goal else { continue };
                for (key, count) in keys {
                    let name = keys::key_name_at(realms[at].core(), united.peeks[at].txn(), key)?;
                    *all.entry(name.to_string()).or_default() += count;
                }
            }
            Ok(all.into_iter().collect())
        })
    })
}

/// See [`Namespace::query_names`].
pub(super) fn query_names(
    namespace: &Namespace,
    query: &Query,
    options: &QueryOptions,
) -> Result<Vec<String>> {
    namespace.retry(Retry::IfViewChanged, || match namespace.seen()? {
        VisibleRealms::One(realm) => realm.query_names(query, options),
        VisibleRealms::Many(realms) => united(namespace, &realms, query, options, |united| {
            let hits = united.hits()?.into_iter();
            hits.map(|(at, oid)| {
                united.searches[at].with_record(oid, |_, record| Ok(record.name.to_owned()))
            })
            .collect()
        }),
    })
}

/// See [`Namespace::query_paths`].
pub(super) fn query_paths(
    namespace: &Namespace,
    query: &Query,
    options: &QueryOptions,
) -> Result<Vec<String>> {
    namespace.retry(Retry::IfViewChanged, || match namespace.seen()? {
        VisibleRealms::One(realm) => realm.query_paths(query, options),
        VisibleRealms::Many(realms) => united(namespace, &realms, query, options, |united| {
            let hits = united.hits()?.into_iter();
            hits.map(|(at, oid)| {
                united.searches[at].with_record(oid, |judge, record| {
                    judge.groups.path_of(record.parent, record.name)
                })
            })
            .collect()
        }),
    })
}

/// See [`Namespace::query_keyed`].
pub(super) fn query_keyed(
    namespace: &Namespace,
    query: &Query,
    options: &QueryOptions,
) -> Result<Vec<Keyed>> {
    namespace.retry(Retry::IfViewChanged, || {
        let realms = match namespace.seen()? {
            VisibleRealms::One(realm) => vec![realm.clone()],
            VisibleRealms::Many(realms) => realms,
        };
        united(namespace, &realms, query, options, |united| {
            let mut all = Vec::new();
            for (at, oid) in united.hits()? {
                let search = &mut united.searches[at];
                let key = order_bytes(united.order, &search.order_cells(oid)?);
                let path = search.with_record(oid, |judge, record| {
                    judge.groups.path_of(record.parent, record.name)
                })?;
                all.push(Keyed { oid, path, key });
            }
            Ok(all)
        })
    })
}

/// See [`Namespace::query_totals`].
pub(super) fn query_totals(
    namespace: &Namespace,
    query: &Query,
    options: &QueryOptions,
) -> Result<TotalsAnswer> {
    namespace.retry(Retry::IfViewChanged, || match namespace.seen()? {
        VisibleRealms::One(realm) => realm.query_totals(query, options),
        VisibleRealms::Many(realms) => {
            united(namespace, &realms, query, options, |united: &mut United<'_, '_>| {
                let snapshot = united.snapshot();
                united.tally()?.rows(snapshot)
            })
        }
    })
}

/// The figures that a query gives of objects in several namespaces, of any pools, each looked at as
/// of one commit of its own. Each has the options with which it is asked.
pub fn totals_of_several(
    namespaces: &[(&Namespace, QueryOptions)],
    query: &Query,
) -> Result<TotalsAnswer> {
    let (mut all, mut snapshot): (Option<Tally>, u64) = (None, 0);
    for (namespace, options) in namespaces {
        let (tally, at) = namespace.retry(Retry::IfViewChanged, || {
            let realms = namespace.all_seen()?;
            united(namespace, &realms, query, options, |united: &mut United<'_, '_>| {
                Ok((united.tally()?, united.snapshot()))
            })
        })?;
        snapshot = at;
        match &mut all {
            Some(all) => all.unite(&tally)?,
            None => all = Some(tally),
        }
    }
    match all {
        Some(all) => all.rows(snapshot),
        None => fail!(Argument, "figures are of one namespace at least, and none was named"),
    }
}

/// See [`Namespace::columns_of`].
pub(super) fn columns_of(
    namespace: &Namespace,
    oids: &[Oid],
    wanted: &[WantedField],
) -> Result<Projection> {
    namespace.retry(Retry::IfViewChanged, || {
        let realms = match namespace.seen()? {
            VisibleRealms::One(realm) => return realm.columns_of(oids, wanted),
            VisibleRealms::Many(realms) => realms,
        };
        peek_together(&realms, |peeks| {
            let mut all = Projection::default();
            all.columns.resize_with(wanted.len(), Vec::new);
            // Where an object is in several realms, the first of them has it.
            let mut left: Vec<u32> = (0..oids.len() as u32).collect();
            for (at, realm) in realms.iter().enumerate() {
                let here: Vec<Oid> = left.iter().map(|place| oids[*place as usize]).collect();
                let beyond = Elsewhere::new(at, &realms, peeks, namespace.root());
                let index = &realm.core().index;
                let groups = Groups::new(peeks[at], namespace.root(), &index.groups);
                let groups = groups.of(realm.scope()).beyond(&beyond);
                let (plan, options) = (Plan::everything(), QueryOptions::default());
                let mut search =
                    Search::new(peeks[at], &plan, groups, &options, &index.directories);
                let mut key_id = |key: &str| keys::key_at(realm.core(), peeks[at].txn(), key);
                let found = search.project(&here, wanted, &mut key_id)?;
                for (all, parts) in all.columns.iter_mut().zip(found.columns) {
                    for mut part in parts {
                        part.rows.iter_mut().for_each(|row| *row = left[*row as usize]);
                        all.push(part);
                    }
                }
                left = found.gone.into_iter().map(|row| left[row as usize]).collect();
            }
            all.gone = left;
            Ok(all)
        })
    })
}

/// See [`Namespace::explain`].
pub(super) fn explain(
    namespace: &Namespace,
    query: &Query,
    options: &QueryOptions,
) -> Result<Explanation> {
    namespace.retry(Retry::IfViewChanged, || {
        let realms = match namespace.seen()? {
            VisibleRealms::One(realm) => return realm.explain(query, options),
            VisibleRealms::Many(realms) => realms,
        };
        let hits = if query.totals.is_some() {
            let all = Query { expr: query.expr.clone(), ..Query::default() };
            namespace.query_count(&all, options)?
        } else {
            namespace.query_count(query, options)?
        };
        let mut all = Explanation { query: query.to_string(), ..Explanation::default() };
        for realm in &realms {
            let one = realm.explain(query, options)?;
            all.snapshot = one.snapshot;
            all.threads = all.threads.max(one.threads);
            if all.leaves.is_empty() {
                all.leaves = one.leaves;
            }
            all.segments.extend(one.segments);
            all.records.add(&one.records);
        }
        Ok(Explanation { hits, ..all })
    })
}

fn united<T>(
    namespace: &Namespace,
    realms: &[Realm],
    query: &Query,
    options: &QueryOptions,
    ask: impl FnOnce(&mut United<'_, '_>) -> Result<T>,
) -> Result<T> {
    options.check()?;
    let root = namespace.root();
    peek_together(realms, |peeks| {
        let hidden = hidden(namespace, realms, peeks)?;
        let views: Vec<_> =
            (0..realms.len()).map(|at| Elsewhere::new(at, realms, peeks, root)).collect();
        let groups = |at: usize| {
            let groups = Groups::new(peeks[at], root, &realms[at].core().index.groups);
            groups.of(realms[at].scope()).beyond(&views[at])
        };
        let mut plans = Vec::with_capacity(realms.len());
        for (at, realm) in realms.iter().enumerate() {
            let (core, txn) = (realm.core(), peeks[at].txn());
            let mut key_id = |key: &str| keys::key_at(core, txn, key);
            let mut plan = compile(query, options, &mut groups(at), &mut key_id, false)?;
            if realm.mode() == Mode::ReadWrite && realm.scope() != Scope::Published {
                realm.asked(&plan, options, peeks[at])?;
            }
            plan.offset = 0;
            if !hidden.is_empty() {
                plan.limit = None;
            }
            plans.push(plan);
        }
        let searches = plans.iter().enumerate().map(|(at, plan)| {
            let directories = &realms[at].core().index.directories;
            Search::new(peeks[at], plan, groups(at), options, directories)
        });
        let limit = query.last().map(|last| usize::try_from(last).unwrap_or(usize::MAX));
        let offset = usize::try_from(query.offset).unwrap_or(usize::MAX);
        ask(&mut United {
            peeks,
            searches: searches.collect(),
            order: plans.first().map_or(&[], |plan| plan.order.as_slice()),
            limit,
            offset,
            hidden: &hidden,
            root,
            scopes: &realms.iter().map(Realm::scope).collect::<Vec<_>>(),
        })
    })
}

/// What is hidden at these commits; of a batch's own changes worked out anew.
fn hidden(namespace: &Namespace, realms: &[Realm], peeks: &[Peek<'_>]) -> Result<Arc<Hidden>> {
    let at: Vec<u64> = peeks.iter().map(|peek| peek.txn().id()).collect();
    let prefixes = realms.iter().map(|realm| realm.core().setup.id_prefix);
    let at: Vec<u64> = prefixes.chain(at).collect();
    let batch = peeks.iter().any(Peek::in_batch);
    if !batch {
        let known = between_forks(|| lock(namespace.hidden_before()).clone());
        if let Some(known) = known.filter(|known| known.at == at) {
            return Ok(known);
        }
    }
    let mut hidden = work_out(realms, peeks, namespace.root())?;
    hidden.at = at;
    let hidden = Arc::new(hidden);
    if !batch {
        between_forks(|| *lock(namespace.hidden_before()) = Some(Arc::clone(&hidden)));
    }
    Ok(hidden)
}

/// A query under way in every realm.
pub(super) struct United<'u, 'a> {
    peeks: &'u [Peek<'u>],
    searches: Vec<Search<'a>>,
    order: &'u [OrderKey],
    /// How many of the first, and how many of these are left out.
    limit: Option<usize>,
    offset: usize,
    hidden: &'u Hidden,
    root: Gid,
    scopes: &'u [Scope],
}

impl United<'_, '_> {
    /// The commit of the last realm, which is the shared one where nothing is published.
    fn snapshot(&self) -> u64 {
        self.peeks.last().map_or(0, |peek| peek.txn().id())
    }

    /// Every hit that is not hidden, with its realm, in the order asked for.
    fn hits(&mut self) -> Result<Vec<(usize, Oid)>> {
        let mut all: Vec<(usize, Oid)> = Vec::new();
        for at in 0..self.searches.len() {
            for oid in self.searches[at].oids()? {
                if self.is_shown(at, oid)? {
                    all.push((at, oid));
                }
            }
        }
        if self.order.is_empty() {
            all.sort_unstable_by_key(|(_, oid)| *oid);
        } else {
            let mut keyed = Vec::with_capacity(all.len());
            for (at, oid) in all {
                keyed.push((self.searches[at].order_cells(oid)?, oid, at));
            }
            let order = self.order;
            keyed.sort_by(|(a, one, _), (b, other, _)| {
                compare_cells(order, a, b).then(one.cmp(other))
            });
            all = keyed.into_iter().map(|(_, oid, at)| (at, oid)).collect();
        }
        all.truncate(self.limit.unwrap_or(usize::MAX));
        all.drain(..self.offset.min(all.len()));
        Ok(all)
    }

    fn count(&mut self) -> Result<u64> {
        if !self.hidden.is_empty() {
            return Ok(self.hits()?.len() as u64);
        }
        let mut sum: u64 = 0;
        for search in &mut self.searches {
            sum += search.count()?;
        }
        let limit = self.limit.map_or(u64::MAX, |limit| limit as u64);
        Ok(sum.min(limit).saturating_sub(self.offset as u64))
    }

    /// The figures of all hits that are not hidden.
    fn tally(&mut self) -> Result<Tally> {
        let mut all: Option<Tally> = None;
        for at in 0..self.searches.len() {
            let tally = if self.hidden.is_empty() {
                self.searches[at].tally()?
            } else {
                let mut shown = Vec::new();
                for oid in self.searches[at].found()? {
                    if self.is_shown(at, oid)? {
                        shown.push(oid);
                    }
                }
                self.searches[at].tally_of(&shown)?
            };
            match &mut all {
                Some(all) => all.unite(&tally)?,
                None => all = Some(tally),
            }
        }
        match all {
            Some(all) => Ok(all),
            None => fail!(Corrupt, "a namespace has no realm: open it again"),
        }
    }

    /// What a goal says of the hits of each realm.
    fn goals(&mut self, goal: impl Fn() -> Goal) -> Result<Vec<Goal>> {
        if self.hidden.is_empty() && self.limit.is_none() && self.offset == 0 {
            return self.searches.iter_mut().map(|search| search.each(goal())).collect();
        }
        let mut goals: Vec<Goal> = self.searches.iter().map(|_| goal()).collect();
        for (at, oid) in self.hits()? {
            let goal = &mut goals[at];
            self.searches[at].with_record(oid, |judge, record| goal.record(judge, oid, record))?;
        }
        Ok(goals)
    }

    fn is_shown(&self, at: usize, oid: Oid) -> Result<bool> {
        if self.hidden.objects[at].contains(&oid) {
            return Ok(false);
        }
        if self.hidden.groups.is_empty() {
            return Ok(true);
        }
        let Some(row) = self.peeks[at].get(Table::Objects, &id_key(oid))? else { return Ok(false) };
        let parent = Record::parse(row)?.parent;
        let above = with_tree(self.peeks, self.scopes, self.root, |tree| tree.chain(parent))?;
        Ok(above.iter().all(|(_, group)| !self.hidden.groups.contains(&group.gid)))
    }
}

fn with_tree<T>(
    peeks: &[Peek<'_>],
    scopes: &[Scope],
    root: Gid,
    look: impl FnOnce(&mut Tree<'_, '_>) -> Result<T>,
) -> Result<T> {
    let mut peeks = peeks.to_vec();
    let mut rows: Vec<&mut dyn Rows> = Vec::with_capacity(peeks.len());
    rows.extend(peeks.iter_mut().map(|peek| peek as &mut dyn Rows));
    look(&mut Tree::new(&mut rows, scopes, root))
}

/// Looks at each name of the realms that win for what has it in the others.
fn work_out(realms: &[Realm], peeks: &[Peek<'_>], root: Gid) -> Result<Hidden> {
    let scopes: Vec<Scope> = realms.iter().map(Realm::scope).collect();
    let objects = vec![HashSet::new(); realms.len()];
    let mut hidden = Hidden { at: Vec::new(), objects, groups: HashSet::new() };
    with_tree(peeks, &scopes, root, |tree| {
        for at in 0..realms.len() {
            hidden.groups.extend(tree.nameless(at)?);
        }
        for (at, peek) in peeks.iter().enumerate().take(realms.len().saturating_sub(1)) {
            peek.each(Table::Names, &mut |key, row| {
                let ((parent, name), member) = (split_name_key(key)?, Member::from_row(row)?);
                let counts = tree.counts(at, member)?;
                for later in at + 1..realms.len() {
                    if let Member::Object(oid) = member
                        && tree.at(later).has(Table::Objects, &id_key(oid))?
                    {
                        hidden.objects[later].insert(oid);
                    }
                    if !counts {
                        continue;
                    }
                    match engram_ops::group::child(tree.at(later), parent, name)? {
                        Some(Member::Object(oid)) => {
                            hidden.objects[later].insert(oid);
                        }
                        Some(Member::Group(gid))
                            if member != Member::Group(gid)
                                && tree.counts(later, Member::Group(gid))? =>
                        {
                            hidden.groups.insert(gid);
                        }
                        _ => {}
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok(hidden)
}

/// What the realms together say of groups, for the query of one of them.
struct Elsewhere<'e> {
    own: usize,
    realms: &'e [Realm],
    peeks: &'e [Peek<'e>],
    scopes: Vec<Scope>,
    root: Gid,
    /// Keys that this realm has no number for, though others have.
    unknown: RefCell<Vec<String>>,
}

impl<'e> Elsewhere<'e> {
    fn new(own: usize, realms: &'e [Realm], peeks: &'e [Peek<'e>], root: Gid) -> Self {
        let scopes = realms.iter().map(Realm::scope).collect();
        Elsewhere { own, realms, peeks, scopes, root, unknown: RefCell::default() }
    }

    fn tree<T>(&self, look: impl FnOnce(&mut Tree<'_, '_>) -> Result<T>) -> Result<T> {
        with_tree(self.peeks, &self.scopes, self.root, look)
    }

    fn number(&self, at: usize, key: &str) -> Result<Option<KeyId>> {
        keys::key_at(self.realms[at].core(), self.peeks[at].txn(), key)
    }
}

impl<'e> Beyond<'e> for Elsewhere<'e> {
    fn home(&self, gid: Gid) -> Result<Option<(usize, &'e [u8])>> {
        let Some(at) = self.tree(|tree| tree.home_of_group(gid))? else { return Ok(None) };
        Ok(self.peeks[at].get(Table::Groups, &id_key(gid))?.map(|row| (at, row)))
    }

    fn key(&self, at: usize, key: KeyId) -> Result<Option<KeyId>> {
        if at == self.own {
            return Ok(Some(key));
        }
        let unknown = (FIRST_BUILTIN - 1).checked_sub(key).map(|place| place as usize);
        if let Some(name) = unknown.and_then(|place| self.unknown.borrow().get(place).cloned()) {
            return self.number(at, &name);
        }
        let name =
            keys::key_name_at(self.realms[self.own].core(), self.peeks[self.own].txn(), key)?;
        self.number(at, &name)
    }

    fn unknown_key(&self, key: &str) -> Result<Option<KeyId>> {
        for at in 0..self.realms.len() {
            if at != self.own && self.number(at, key)?.is_some() {
                let mut unknown = self.unknown.borrow_mut();
                unknown.push(key.to_owned());
                return Ok(Some(FIRST_BUILTIN - unknown.len() as KeyId));
            }
        }
        Ok(None)
    }

    fn find(&self, from: Gid, path: &str) -> Result<Option<Gid>> {
        if path.split('/').any(|component| Name::new(component).is_err()) {
            return Ok(None);
        }
        let path = Path::new(path)?;
        let found = self.tree(|tree| tree.resolve(from, &path))?;
        Ok(match found.map(|place| place.member) {
            Some(Member::Group(gid)) => Some(gid),
            _ => None,
        })
    }
}
