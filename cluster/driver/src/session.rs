//! This process as a maker: its lease, on a thread of its own, and what it has begun.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engram_base::error::Error as StoreError;
use engram_base::mutex::lock;
use engram_protocol::Action;
use engram_protocol::clock::Moment;
use engram_protocol::coordinator::{Keys, LeaseId, Request};
use engram_protocol::maker::{Maker, Notice};

use crate::clock::now;
use crate::coordinator::Coordinator;
use crate::error::{Error, Result};

#[derive(Default)]
struct Told {
    id: Mutex<Option<LeaseId>>,
    changed: Condvar,
    begun: Mutex<Begun>,
}

/// What the maker has begun.
#[derive(Debug, Default)]
struct Begun {
    count: u64,
    /// The numbers of publications that may take effect yet.
    open: BTreeSet<u64>,
}

impl Begun {
    /// All below this number have ended.
    fn ended_below(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.count + 1)
    }
}

/// One publication, from before it looks its names up until it has ended.
pub(crate) struct Beginning {
    told: Arc<Told>,
    pub(crate) number: u64,
    is_unknown: AtomicBool,
}

impl Beginning {
    /// Nobody knows whether it takes effect yet: it does not end.
    pub(crate) fn is_unknown(&self) {
        self.is_unknown.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Beginning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beginning").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        if !self.is_unknown.load(Ordering::Relaxed) {
            lock(&self.told.begun).open.remove(&self.number);
        }
    }
}

/// A maker that lives as long as this value, and this process.
pub(crate) struct Session {
    told: Arc<Told>,
    process: u32,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    pub(crate) fn start(asked: &Arc<Coordinator>, keys: &Keys, ttl: Duration) -> Result<Session> {
        let (told, (stop, stopped)) = (Arc::new(Told::default()), channel());
        let (own, asked, mut maker) = (Arc::clone(&told), Arc::clone(asked), Maker::new(keys, ttl));
        let run = move || {
            let mut actions = maker.start(now());
            loop {
                let wake = perform(&asked, &mut maker, actions, &own);
                let wait = wake.map_or(ttl / 12, |at| at - now());
                match stopped.recv_timeout(wait) {
                    Err(RecvTimeoutError::Timeout) => {
                        maker.has_ended_below(lock(&own.begun).ended_below());
                        actions = maker.tick(now());
                    }
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            // What was prepared and not published is free at once.
            if let Some(lease) = maker.id() {
                let _ = asked.answer(&Request::Revoke { lease });
            }
        };
        let thread = std::thread::Builder::new().name("engram-maker".to_owned()).spawn(run);
        let thread =
            thread.map_err(|error| Error::Store(StoreError::os("starting a thread", &error)))?;
        let process = std::process::id();
        Ok(Session { told, process, stop: Some(stop), thread: Some(thread) })
    }

    /// Whether it is of this process, and not of one that this process was forked from.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// A publication begins: it looks its names up after this.
    pub(crate) fn begin(&self) -> Beginning {
        let mut begun = lock(&self.told.begun);
        begun.count += 1;
        let number = begun.count;
        begun.open.insert(number);
        Beginning { told: Arc::clone(&self.told), number, is_unknown: AtomicBool::new(false) }
    }

    /// The maker's id, once it has one.
    pub(crate) fn id(&self, within: Duration) -> Result<LeaseId> {
        let until = Instant::now() + within;
        let mut id = lock(&self.told.id);
        loop {
            if let Some(id) = *id {
                return Ok(id);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Coordinator(
                    "etcd does not answer, so nothing can be published; what is open reads on"
                        .to_owned(),
                ));
            }
            id = match self.told.changed.wait_timeout(id, left) {
                Ok((id, _)) => id,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && self.is_own()
        {
            let _ = thread.join();
        }
    }
}

/// Does what the maker wants; when it is to be woken.
fn perform(
    asked: &Coordinator,
    maker: &mut Maker,
    actions: Vec<Action<Notice>>,
    told: &Told,
) -> Option<Moment> {
    let mut wake: Option<Moment> = None;
    let mut left = actions;
    while !left.is_empty() {
        let mut next = Vec::new();
        for action in left {
            match action {
                Action::Ask { token, request } => {
                    let reply = asked.answer(&request);
                    next.extend(maker.reply(now(), token, &reply));
                }
                Action::Wake(at) => wake = Some(wake.map_or(at, |other| other.min(at))),
                Action::Own(notice) => {
                    *lock(&told.id) = match notice {
                        Notice::Ready(id) => Some(id),
                        Notice::Lost(_) => None,
                    };
                    told.changed.notify_all();
                }
            }
        }
        left = next;
    }
    wake
}
