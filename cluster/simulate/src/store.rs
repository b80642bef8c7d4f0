//! The coordinator: rows, revisions, transactions, leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engram_protocol::coordinator::{
    Change, Guard, LeaseId, Reply, Request, Revision, Row, Transaction,
};

struct Stored {
    value: Vec<u8>,
    modified: Revision,
    lease: Option<LeaseId>,
}

struct Running {
    ttl: u64,
    ends: u64,
    keys: BTreeSet<String>,
}

/// A store that is linearizable since it has one thread.
#[derive(Default)]
pub(crate) struct Store {
    revision: Revision,
    rows: BTreeMap<String, Stored>,
    leases: BTreeMap<LeaseId, Running>,
    granted: LeaseId,
    /// No lease ends before.
    next_end: u64,
}

impl Store {
    /// The row of this key.
    pub(crate) fn row(&self, key: &str) -> Option<Row> {
        self.rows.get(key).map(|stored| told(key, stored))
    }

    /// All rows whose keys begin so.
    pub(crate) fn rows<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = Row> + 's {
        (self.rows.range(prefix.to_owned()..))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(key, stored)| told(key, stored))
    }

    /// Answers at this moment of its clock.
    pub(crate) fn answer(&mut self, now: u64, request: &Request) -> Reply {
        self.end_leases(now);
        match request {
            Request::Grant { ttl } => {
                self.granted += 1;
                let ttl = ttl.as_nanos() as u64;
                let running = Running { ttl, ends: now + ttl, keys: BTreeSet::new() };
                self.next_end = self.next_end.min(running.ends);
                self.leases.insert(self.granted, running);
                Reply::Granted(self.granted)
            }
            Request::Renew { lease } => match self.leases.get_mut(lease) {
                Some(running) => {
                    running.ends = now + running.ttl;
                    Reply::Renewed(Some(Duration::from_nanos(running.ttl)))
                }
                None => Reply::Renewed(None),
            },
            Request::Revoke { lease } => {
                self.end(*lease);
                Reply::Revoked
            }
            Request::Get { keys } => {
                Reply::Rows { revision: self.revision, rows: self.those(keys) }
            }
            Request::List { prefix } => {
                Reply::Rows { revision: self.revision, rows: self.rows(prefix).collect() }
            }
            Request::Commit(transaction) => self.commit(transaction),
        }
    }

    /// It has restarted: every lease begins anew, since nobody could renew it meanwhile.
    pub(crate) fn restarted(&mut self, now: u64) {
        for running in self.leases.values_mut() {
            running.ends = now + running.ttl;
        }
    }

    /// Ends the leases whose time has passed.
    pub(crate) fn end_leases(&mut self, now: u64) {
        if now < self.next_end {
            return;
        }
        let ended = |(id, running): (&LeaseId, &Running)| (running.ends <= now).then_some(*id);
        let ended: Vec<LeaseId> = self.leases.iter().filter_map(ended).collect();
        for id in ended {
            self.end(id);
        }
        self.next_end = self.leases.values().map(|running| running.ends).min().unwrap_or(u64::MAX);
    }

    fn end(&mut self, lease: LeaseId) {
        if let Some(running) = self.leases.remove(&lease)
            && !running.keys.is_empty()
        {
            self.revision += 1;
            for key in running.keys {
                self.rows.remove(&key);
            }
        }
    }

    fn those(&self, keys: &[String]) -> Vec<Row> {
        keys.iter().filter_map(|key| self.row(key)).collect()
    }

    fn commit(&mut self, transaction: &Transaction) -> Reply {
        let holds = |guard: &Guard| match guard {
            Guard::Unchanged { key, modified } => {
                self.rows.get(key).map_or(0, |stored| stored.modified) == *modified
            }
            Guard::Present { key } => self.rows.contains_key(key),
        };
        if !transaction.guards.iter().all(holds) {
            let rows = self.those(&transaction.otherwise);
            return Reply::Committed { done: false, revision: self.revision, rows };
        }
        let gone = |change: &Change| match change {
            Change::Put { lease: Some(lease), .. } => !self.leases.contains_key(lease),
            _ => false,
        };
        if transaction.changes.iter().any(gone) {
            return Reply::Refused("requested lease not found".to_owned());
        }
        self.revision += 1;
        for change in &transaction.changes {
            self.change(change);
        }
        Reply::Committed { done: true, revision: self.revision, rows: Vec::new() }
    }

    fn change(&mut self, change: &Change) {
        let key = match change {
            Change::Put { key, .. } | Change::Delete { key } => key,
        };
        if let Some(Stored { lease: Some(lease), .. }) = self.rows.remove(key)
            && let Some(running) = self.leases.get_mut(&lease)
        {
            running.keys.remove(key);
        }
        if let Change::Put { value, lease, .. } = change {
            if let Some(running) = lease.and_then(|lease| self.leases.get_mut(&lease)) {
                running.keys.insert(key.clone());
            }
            let stored = Stored { value: value.clone(), modified: self.revision, lease: *lease };
            self.rows.insert(key.clone(), stored);
        }
    }
}

fn told(key: &str, stored: &Stored) -> Row {
    Row { key: key.to_owned(), value: stored.value.clone(), modified: stored.modified }
}
