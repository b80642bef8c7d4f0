//! What users may take of a server: members come first.
//!
//! *Invariant*: one user has at most [`share`] of the connections and of the requests that are
//! answered at once, whatever it asks and however slowly. A request more waits, as nobody is in a
//! hurry for a user's hundredth; a connection more is closed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use engram_base::mutex::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::server::Limits;

/// What one user may have of so many.
fn share(of: usize) -> usize {
    (of / 4).max(1)
}

/// Users who are connected.
pub(crate) struct Guests {
    connections: usize,
    handlers: usize,
    users: Mutex<HashMap<u32, Taken>>,
}

struct Taken {
    connections: usize,
    handlers: Arc<Semaphore>,
}

/// One connection of a user.
pub(crate) struct Guest {
    guests: Arc<Guests>,
    uid: u32,
    handlers: Arc<Semaphore>,
}

impl Guests {
    pub(crate) fn new(limits: &Limits) -> Guests {
        let (connections, handlers) = (share(limits.connections), share(limits.handlers));
        Guests { connections, handlers, users: Mutex::default() }
    }

    /// Lets one more connection of a user in; none where it has its share.
    pub(crate) fn enter(guests: &Arc<Guests>, uid: u32) -> Option<Guest> {
        let mut users = lock(&guests.users);
        let taken = users.entry(uid).or_insert_with(|| Taken {
            connections: 0,
            handlers: Arc::new(Semaphore::new(guests.handlers)),
        });
        if taken.connections == guests.connections {
            return None;
        }
        taken.connections += 1;
        let handlers = Arc::clone(&taken.handlers);
        drop(users);
        Some(Guest { guests: Arc::clone(guests), uid, handlers })
    }
}

impl Guest {
    /// Waits until fewer requests of the user are answered than its share.
    pub(crate) async fn may_ask(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.handlers).acquire_owned().await.ok()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut users = lock(&self.guests.users);
        if let Entry::Occupied(mut taken) = users.entry(self.uid) {
            taken.get_mut().connections -= 1;
            if taken.get().connections == 0 {
                taken.remove();
            }
        }
    }
}
