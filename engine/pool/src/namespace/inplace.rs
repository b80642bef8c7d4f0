//! Writing in place through the view.
//!
//! A write in place is no commit: bytes change, and nobody is asked. So the writer looks where the
//! object is before, and asks afterwards whether it has been there all the while
//! ([`InPlace::held`]). If it has moved to another realm, its value may have been copied before the
//! bytes changed: they are to be written again, where it is by now. While it is on its way nobody
//! can tell, and a writer that has begun waits for a while ([`WAIT`]); then that is `BusyError`.
//!
//! A view that is kept has nobody to ask: as with an object that is replaced, it is of what was.

use std::thread;
use std::time::{Duration, Instant};

use super::moves;

use super::Namespace;
use engram_base::error::{Kind, Result};
use engram_base::id::Oid;
use engram_realm::Realm;

/// How long a writer waits for an object that moves, and how often it looks.
const WAIT: (Duration, Duration) = (Duration::from_secs(10), Duration::from_millis(1));

/// Where an object was when its value was given out to be written in place.
pub struct InPlace {
    namespace: Namespace,
    realm: Realm,
    oid: Oid,
}

impl InPlace {
    /// An object that this realm has, as it was looked for.
    pub(super) fn new(namespace: &Namespace, realm: &Realm, oid: Oid) -> InPlace {
        InPlace { namespace: namespace.clone(), realm: realm.clone(), oid }
    }

    /// Whether what was written is the object's; if not, it has moved, and is to be written again.
    ///
    /// Waits while the object is on its way; `BusyError` if that takes too long: what was written
    /// may go with it, or not.
    pub fn held(&self) -> Result<bool> {
        let until = Instant::now() + WAIT.0;
        // No `retry`: it waits by the clock for a mover that lives, and does not begin anything
        // again, for its caller writes the bytes anew.
        loop {
            match self.realm.check_held(self.oid) {
                Ok(()) => return Ok(true),
                Err(error) if error.is_moved() => return Ok(false),
                Err(error) if error.kind() == Kind::Busy => {
                    if moves::end_dead_moves(&self.namespace)? {
                        return Ok(false);
                    }
                    if Instant::now() > until {
                        return Err(error.context("written while it moved, and perhaps not kept"));
                    }
                    thread::sleep(WAIT.1);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
