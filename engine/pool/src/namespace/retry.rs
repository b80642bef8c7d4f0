//! Retrying: when an operation on the view is begun again.
//!
//! An operation looks at all realms, and then reads or changes one of them. Between the two a
//! member can move from one realm to another, by any process. Three things begin it again:
//!
//! * *The view has changed.* A realm, or a published version, has come while the operation looked:
//!   what had moved there may have been missed. The shared counter of the namespace tells.
//! * *Something has moved.* The commit refused, because what the look had seen does not hold any
//!   more ([`Error::is_moved`]); or the realm in which the member was found does not have it.
//! * *A dead process's move is in the way.* The member is on its way, so the change is refused as
//!   busy. A process that finds the mover dead ends the move, and the operation is begun again,
//!   once.
//!
//! [`Error::is_moved`]: engram_base::error::Error::is_moved

use std::thread;
use std::time::Duration;

use super::moves;

use super::Namespace;
use super::view::VisibleRealms;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::id::Member;
use engram_realm::Realm;

/// How often an operation is begun again before it says why it does not come to an end.
const TRIES_MAX: u32 = 100;
/// How often of these at once; then it waits between, for what moves again and again comes to an
/// end.
const TRIES_AT_ONCE: u32 = 10;
const PAUSE: Duration = Duration::from_millis(1);

/// What begins an operation again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The view has changed: for what looks at all realms and changes none.
    IfViewChanged,
    /// Something has moved, or a dead process's move was in the way: for what relies on a look.
    IfMoved,
}

/// What an operation does with the member that it looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It reads.
    Looking,
    /// It relies on the member being where it was found, and changes what `protect` does not mean.
    Setting,
    /// It changes the member: refused below a read-only group, whichever realm has that.
    Changing,
}

/// See [`Namespace::retry`].
#[inline]
pub(super) fn retry<T>(
    namespace: &Namespace,
    policy: Retry,
    operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    retry_with_pause(namespace, policy, operation, thread::sleep)
}

/// Goes on with an operation whose first try has failed, if something has moved.
#[cold]
pub(super) fn after_failure<T>(
    namespace: &Namespace,
    error: Error,
    operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    after_failure_with_pause(namespace, error, operation, thread::sleep)
}

/// The same as `retry`, with what it waits by.
#[inline]
fn retry_with_pause<T>(
    namespace: &Namespace,
    policy: Retry,
    mut operation: impl FnMut() -> Result<T>,
    pause: impl FnMut(Duration),
) -> Result<T> {
    if policy == Retry::IfMoved {
        return operation()
            .or_else(|error| after_failure_with_pause(namespace, error, operation, pause));
    }
    let mut tries = Tries { count: 0, pause };
    loop {
        let before = namespace.counter();
        let done = operation();
        if namespace.counter() == before || !tries.another(done.is_err()) {
            return done;
        }
    }
}

#[cold]
fn after_failure_with_pause<T>(
    namespace: &Namespace,
    mut error: Error,
    mut operation: impl FnMut() -> Result<T>,
    pause: impl FnMut(Duration),
) -> Result<T> {
    let (mut tries, mut recovered) = (Tries { count: 0, pause }, false);
    while is_to_retry(namespace, &error, &mut recovered)? && tries.another(true) {
        match operation() {
            Ok(done) => return Ok(done),
            Err(next) => error = next,
        }
    }
    Err(error)
}

/// How often an operation was begun again, and what it waits by.
struct Tries<P> {
    count: u32,
    pause: P,
}

impl<P: FnMut(Duration)> Tries<P> {
    /// Whether there may be one more; after some that failed, it comes after a pause.
    fn another(&mut self, failed: bool) -> bool {
        if self.count == TRIES_MAX {
            return false;
        }
        self.count += 1;
        if self.count > TRIES_AT_ONCE && failed {
            (self.pause)(PAUSE);
        }
        true
    }
}

/// Whether this error comes of something that has moved, or of a move that is ended now.
#[cold]
fn is_to_retry(namespace: &Namespace, error: &Error, recovered: &mut bool) -> Result<bool> {
    if error.is_moved() {
        return Ok(true);
    }
    if error.kind() == Kind::Busy && !*recovered && moves::end_dead_moves(namespace)? {
        *recovered = true;
        return Ok(true);
    }
    Ok(false)
}

/// See [`Namespace::with_owning_realm`].
pub(super) fn with_owning_realm<T>(
    namespace: &Namespace,
    member: Member,
    doing: Doing,
    operation: impl Fn(&Realm, &[Realm]) -> Result<T>,
) -> Result<T> {
    namespace
        .retry(Retry::IfMoved, || {
            let before = namespace.counter();
            // Where nothing is found and the view has changed, it may be in a realm that has come.
            let missed = |error: Error| {
                if namespace.counter() == before { error } else { error.gone_is_moved() }
            };
            match namespace.seen()? {
                VisibleRealms::One(realm) if doing == Doing::Looking => {
                    operation(realm, &[]).map_err(missed)
                }
                VisibleRealms::One(realm) => {
                    operation(&namespace.while_alone(realm, before), &[]).map_err(missed)
                }
                VisibleRealms::Many(realms) => {
                    let (home, realms) = owning_realm(namespace, member, doing, realms)?;
                    match home {
                        // Found there, and gone since: it has moved.
                        Some(at) => operation(&realms[at], &realms).map_err(Error::gone_is_moved),
                        // No realm has it by a name. If none has it open, any of them says so as
                        // well as another.
                        None => match realms.get(orphaned_in(namespace, member, &realms)?) {
                            Some(realm) => operation(realm, &realms).map_err(missed),
                            None => {
                                fail!(
                                    NotFound,
                                    "there is nothing in namespace {:?}",
                                    namespace.namespace()
                                )
                            }
                        },
                    }
                }
            }
        })
        .map_err(|error| match error.kind() {
            // It is nowhere, however often one looks.
            Kind::NotFound => Error::new(Kind::NotFound, error.message()),
            _ => error,
        })
}

/// Which of these realms has a member; the realms are given back as what they were seen, if
/// something is to be changed.
fn owning_realm(
    namespace: &Namespace,
    member: Member,
    doing: Doing,
    realms: Vec<Realm>,
) -> Result<(Option<usize>, Vec<Realm>)> {
    if doing == Doing::Looking {
        return Ok((namespace.look(&realms, |tree| tree.home(member))?, realms));
    }
    namespace.look_to_change(&realms, |tree| {
        if doing == Doing::Changing {
            tree.refuse_read_only(member)?;
        }
        tree.home(member)
    })
}

/// Which of these realms has an object that is open and has no name any more; the first, if none.
#[cold]
fn orphaned_in(namespace: &Namespace, member: Member, realms: &[Realm]) -> Result<usize> {
    Ok(namespace.look(realms, |tree| tree.home_of_orphan(member))?.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{PAUSE, Retry, TRIES_AT_ONCE, TRIES_MAX, retry_with_pause};
    use crate::pool::{CreateOptions, Pool};
    use engram_base::error::{Error, Kind, Result};

    #[test]
    fn what_fails_again_and_again_is_tried_at_once_at_first_and_after_pauses_then() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { size: 1 << 20, force: true, ..CreateOptions::default() };
        let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
        let namespace = pool.namespace("default").unwrap();
        // How often it is tried, and how often of these after a pause.
        let tried = |policy, operation: &dyn Fn() -> Result<()>| {
            let (mut tries, mut pauses) = (0, Vec::new());
            let again = || {
                tries += 1;
                operation()
            };
            let done = retry_with_pause(&namespace, policy, again, |pause| pauses.push(pause));
            assert!(pauses.iter().all(|pause| *pause == PAUSE));
            (done.map_err(|error| error.kind()), tries, pauses.len() as u32)
        };
        let (all, paused) = (TRIES_MAX + 1, TRIES_MAX - TRIES_AT_ONCE);
        let moved = || Err(Error::moved());
        assert_eq!(tried(Retry::IfMoved, &moved), (Err(Kind::Busy), all, paused));
        let refused = || Err(Error::new(Kind::NotFound, "it is not there"));
        assert_eq!(tried(Retry::IfMoved, &refused), (Err(Kind::NotFound), 1, 0));
        // Any error: what has come may be what was missed.
        let missed = || {
            namespace.has_come();
            refused()
        };
        assert_eq!(tried(Retry::IfViewChanged, &missed), (Err(Kind::NotFound), all, paused));
        // What was found is looked for again at once.
        let found = || {
            namespace.has_come();
            Ok(())
        };
        assert_eq!(tried(Retry::IfViewChanged, &found), (Ok(()), all, 0));
    }
}
