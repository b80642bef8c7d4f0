//! Watching: a wait for what a query finds from now on.

use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engram::query::parse;
use engram::{Error, Kind as ErrorKind, Namespace, QueryOptions, WatchEnd, Watcher};

use crate::error::{Status, guard};
use crate::group::Group;
use crate::list::List;
use crate::raw::{self, argument};

/// So many objects are given at a time.
const MOST: usize = 1024;

/// A watch of the objects that appear below a group.
pub struct Watch {
    watcher: Watcher,
    namespace: Namespace,
    /// How many calls of `engram_watch_wake` waits have returned for.
    answered: AtomicU64,
}

/// Begins to watch for objects below a group that come to match a query. With `existing`, objects
/// that match already are given first. The query has no order and no limit. A watch is not valid in
/// a forked child, which begins its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_watch_begin(
    group: *const Group,
    query: *const c_char,
    existing: bool,
    watch: *mut *mut Watch,
) -> Status {
    guard(|| {
        let out = raw::out("watch", watch)?;
        let group = raw::of("group", group)?;
        let query = parse(raw::text("query", query)?)?;
        let options = QueryOptions { root: Some(group.gid), ..QueryOptions::default() };
        let watcher = group.namespace.watch(&query, &options, existing)?;
        let (namespace, answered) = (group.namespace.clone(), AtomicU64::new(0));
        out.set(raw::give(Watch { watcher, namespace, answered }));
        Ok(())
    })
}

/// Waits until a commit of any process brings something, for so many seconds, or for ever if the
/// number is negative. Gives the paths, from the root of the namespace, and the ids of what has
/// come, each once. The list is empty if the time is up, if a signal was handled meanwhile, or if
/// another thread has called `engram_watch_wake`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_watch_wait(
    watch: *const Watch,
    seconds: f64,
    found: *mut *mut List,
) -> Status {
    guard(|| {
        let out = raw::out("found", found)?;
        let Watch { watcher, namespace, answered } = raw::of("watch", watch)?;
        let within = if seconds < 0.0 {
            None
        } else {
            let within = Duration::try_from_secs_f64(seconds);
            Some(within.map_err(|_| argument(format!("{seconds} seconds are no time to wait")))?)
        };
        let mut signal = false;
        let until = within.and_then(|within| Instant::now().checked_add(within));
        let mut list = List::default();
        while list.is_empty() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let mut pause = |came: bool| {
                signal |= came;
                if came { Err(Error::new(ErrorKind::Os, "a signal has come")) } else { Ok(()) }
            };
            let end = watcher.wait(left, answered.load(Ordering::SeqCst), &mut pause);
            if end == Ok(WatchEnd::Called) {
                answered.store(watcher.calls(), Ordering::SeqCst);
            }
            if signal || end? != WatchEnd::Hits {
                break;
            }
            // Nobody is told of nothing: where all has been deleted since, the wait goes on.
            list = List::of_objects(namespace, &watcher.take(MOST)?)?;
        }
        out.set(raw::give(list));
        Ok(())
    })
}

/// Makes `engram_watch_wait` return in every thread that waits on this watch; if none waits, the
/// next call returns at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_watch_wake(watch: *const Watch) -> Status {
    guard(|| {
        raw::of("watch", watch)?.watcher.call_back();
        Ok(())
    })
}

/// Ends a watch, and frees it. No thread may be waiting on it. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_watch_free(watch: *mut Watch) {
    drop(raw::take(watch));
}
