//! Watching: a reader sleeps until a commit, of any process, brings something that matches.
//!
//! **What is given.** A watcher knows the objects of which its query was true when it last looked.
//! It looks again, and gives those of which the query is true now and was not then. So an object is
//! given when it comes, when an attribute or its name or a group's makes it match, when it moves to
//! where this user sees it; and again, if it has ceased to match and a look has seen that. What was
//! replaced is another object. What came and went between two looks is not given.
//!
//! **Looking.** A look is a snapshot. In a namespace with the shared realm alone it asks the realm
//! which objects the commits since the last look have changed (`catalog/news.rs`), and judges
//! these. Where that is not known, and where a user sees several realms as one tree, the query runs
//! whole, and what it finds is compared with what was known.
//!
//! **Sleeping.** A look is of the moment after the watcher has listened to the bells of the realms
//! that it sees (`media/bell.rs`), so that no commit comes between look and sleep unheard. A realm
//! that comes, or a published version, rings the shared one's bell. While it sleeps the watcher
//! holds no lock, and no realm: other threads close, fork and remove what they want.
//!
//! **Nobody sleeps for ever on a bell that nobody rings.** A writer that is killed between its
//! commit and the bell, and one of an engine without bells, leave watchers asleep; so does somebody
//! who removes the pool's files. So a watcher looks every [`HEARTBEAT`] whatever happens, and
//! whether the files have their names. A user who may not use the shared realm cannot map its bell,
//! and has nothing to sleep on but the bell of the private one: that watcher looks every
//! [`OUTSIDE`].

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Namespace;
use super::view::VisibleRealms;
use crate::namespace::retry::Retry;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Oid;
use engram_base::mutex::lock;
use engram_catalog::{Growth, forks};
use engram_media::bell;
use engram_media::futex::Awoken;
use engram_query::answer::{Consistency, QueryOptions};
use engram_query::ast::Query;
use engram_realm::{Realm, Sighting};

/// How long a watcher sleeps at most before it looks whether all is well.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How often a watcher looks that cannot hear the shared realm's bell.
const OUTSIDE: Duration = Duration::from_millis(50);

/// Sleeps until something matches a query. Any thread may use it, several at once: each hit
/// goes to one of them. A forked child cannot.
pub struct Watcher {
    namespace: Namespace,
    query: Query,
    options: QueryOptions,
    seen: Mutex<Seen>,
    closed: AtomicBool,
    /// How often those who wait were called back.
    calls: AtomicU64,
    /// In which process it was begun.
    forks: u64,
}

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// There is something to take.
    Hits,
    /// The time is up.
    InTime,
    /// Somebody has called those who wait back.
    Called,
    /// The watcher was closed.
    Closed,
}

/// What a watcher has seen so far.
#[derive(Default)]
struct Seen {
    /// As of what: the shared counter, then of each realm its id prefix and its last commit.
    at: Vec<u64>,
    /// The objects of which the query was true then.
    known: HashSet<Oid>,
    /// What was not taken yet.
    hits: VecDeque<Oid>,
}

impl Seen {
    /// Takes down that the query is true of an object now, or not.
    fn judge(&mut self, oid: Oid, found: bool) {
        if !found {
            self.known.remove(&oid);
        } else if self.known.insert(oid) {
            self.hits.push_back(oid);
        }
    }

    /// Takes down all of which it is true.
    fn compare(&mut self, all: &[Oid]) {
        let known = std::mem::take(&mut self.known);
        self.hits.extend(all.iter().filter(|oid| !known.contains(oid)));
        self.known = all.iter().copied().collect();
    }
}

impl Watcher {
    /// See [`Namespace::watch`].
    pub(super) fn begin(
        namespace: &Namespace,
        query: &Query,
        options: &QueryOptions,
        existing: bool,
    ) -> Result<Watcher> {
        if namespace.is_snapshot() {
            fail!(Argument, "a snapshot shows what was, and nothing comes to it: watch the pool");
        }
        if query.totals.is_some() {
            fail!(
                Query,
                "{:?} gives figures, and what is watched are objects: leave the figures out",
                query.to_string()
            );
        }
        if !query.order_by.is_empty() || query.limit.is_some() {
            fail!(
                Argument,
                "{:?} has an order or a limit, and what is watched comes as it comes: leave it out",
                query.to_string()
            );
        }
        let watcher = Watcher {
            namespace: namespace.clone(),
            query: query.clone(),
            options: QueryOptions { consistency: Consistency::Strong, ..options.clone() },
            seen: Mutex::default(),
            closed: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            forks: forks(),
        };
        watcher.look()?;
        if !existing {
            lock(&watcher.seen).hits.clear();
        }
        Ok(watcher)
    }

    /// The query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Whether it was closed, or its pool.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst) || !self.namespace.is_open()
    }

    /// Takes the objects that are there to be taken, up to so many; none of a closed watcher.
    pub fn take(&self, most: usize) -> Result<Vec<Oid>> {
        self.check_process()?;
        if self.closed.load(Ordering::SeqCst) {
            return Ok(Vec::new());
        }
        let hits = &mut lock(&self.seen).hits;
        let count = most.min(hits.len());
        Ok(hits.drain(..count).collect())
    }

    /// How often [`Watcher::call_back`] was called.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Waits until there is something to take, for so long at most, or for ever: until somebody has
    /// called back after so many calls, or the watcher was closed. `pause` is called whenever a
    /// signal has come, with `true`, and at each heartbeat, for signals that came while nobody
    /// slept; its error ends the wait.
    pub fn wait(
        &self,
        within: Option<Duration>,
        calls: u64,
        pause: &mut dyn FnMut(bool) -> Result<()>,
    ) -> Result<WatchEnd> {
        let until = within.and_then(|within| Instant::now().checked_add(within));
        let mut beat = Instant::now();
        loop {
            self.check_process()?;
            let bells = self.bells()?;
            let heard: Vec<_> =
                bells.iter().map(|page| (page.bell(), page.bell().listen())).collect();
            if self.closed.load(Ordering::SeqCst) {
                return Ok(WatchEnd::Closed);
            }
            if !lock(&self.seen).hits.is_empty() || self.look()? {
                return Ok(WatchEnd::Hits);
            }
            if self.calls() != calls {
                return Ok(WatchEnd::Called);
            }
            let most = if self.namespace.sees_shared() { HEARTBEAT } else { OUTSIDE };
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(WatchEnd::InTime);
            }
            let awoken = bell::sleep(&heard, left.map_or(most, |left| left.min(most)))?;
            if awoken == Awoken::BySignal {
                pause(true)?;
            } else if awoken == Awoken::InTime || beat.elapsed() >= HEARTBEAT {
                // A watcher that is called all the time never sleeps for so long.
                pause(false)?;
                self.check_present()?;
                beat = Instant::now();
            }
        }
    }

    /// Calls those back who wait.
    pub fn call_back(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.ring();
    }

    /// Ends it: waiting threads are told, and nothing more is taken down.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.ring();
    }

    fn ring(&self) {
        if self.check_process().is_ok()
            && let Ok(realms) = self.namespace.all_seen()
        {
            realms.iter().for_each(Realm::ring);
        }
    }

    /// Another thread of the parent may have held what is inside when this process was forked.
    fn check_process(&self) -> Result<()> {
        if self.forks != forks() {
            fail!(
                Argument,
                "this watch was begun before a fork, by the parent: begin another in this process"
            );
        }
        Ok(())
    }

    fn check_present(&self) -> Result<()> {
        self.namespace.all_seen()?.iter().try_for_each(Realm::check_present)
    }

    fn bells(&self) -> Result<Vec<Arc<Growth>>> {
        let realms = self.namespace.all_seen()?;
        realms.iter().filter_map(|realm| realm.bell().transpose()).collect()
    }

    /// Looks at what there is; whether there is something to take.
    fn look(&self) -> Result<bool> {
        let seen = &mut *lock(&self.seen);
        let namespace = &self.namespace;
        let options = &self.options;
        refuse_batch(&namespace.all_seen()?)?;
        let (at, sighting) = namespace.retry(Retry::IfViewChanged, || {
            let mut at = vec![namespace.counter()];
            match namespace.seen()? {
                VisibleRealms::One(realm) => {
                    let last = match seen.at[..] {
                        [.., prefix, last] if seen.at.len() == 3 => {
                            (prefix == realm.id_prefix()).then_some(last)
                        }
                        _ => None,
                    };
                    if last.is_some() && last == Some(realm.last_commit()?) {
                        return Ok((seen.at.clone(), None));
                    }
                    let (now, sighting) = realm.sight(&self.query, options, last)?;
                    at.extend([realm.id_prefix(), now]);
                    Ok((at, Some(sighting)))
                }
                VisibleRealms::Many(realms) => {
                    // Before the query: what comes after that is looked at again.
                    for realm in &realms {
                        at.extend([realm.id_prefix(), realm.last_commit()?]);
                    }
                    if at == seen.at {
                        return Ok((at, None));
                    }
                    let all = namespace.query(&self.query, options)?.oids;
                    Ok((at, Some(Sighting::Whole(all))))
                }
            }
        })?;
        match sighting {
            Some(Sighting::Changed(judged)) => {
                for (oid, found) in judged {
                    seen.judge(oid, found);
                }
            }
            Some(Sighting::Whole(all)) => seen.compare(&all),
            None => {}
        }
        seen.at = at;
        Ok(!seen.hits.is_empty())
    }
}

fn refuse_batch(realms: &[Realm]) -> Result<()> {
    if realms.iter().any(Realm::runs_batch) {
        fail!(
            Busy,
            "this thread runs a batch, and a watch sees what is committed: end the batch first"
        );
    }
    Ok(())
}
