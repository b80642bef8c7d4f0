//! How a process that publishes is known to live.
//!
//! *Protocol*. Before its first publication a process asks for a lease, and writes a row that goes
//! with it: its id as a maker. Every part that is made for it names this id, and every publication
//! compares that the row is there. So once the row has gone, what the maker had prepared can never
//! be published, and is free. A maker whose lease has ended begins anew with another id; what it
//! had prepared it makes again.
//!
//! A maker counts its publications. Its row says, too, below which number all have ended: each has
//! taken effect, or never will. It is written with a renewal, so it may be old, and an old one says
//! less. Without it nobody could say of what a maker has published, and others have replaced or
//! removed before a holder looked, that it is free.

use std::time::Duration;

use crate::Action;
use crate::clock::Moment;
use crate::coordinator::{
    Change, Guard, Keys, LeaseId, Reply, Request, Revision, Row, Transaction,
};
use crate::lease::Lease;
use crate::question::Question;

/// What a maker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It has this id.
    Ready(LeaseId),
    /// Its lease has ended: what it has prepared may be given back.
    Lost(LeaseId),
}

#[derive(Clone, Debug)]
enum Stage {
    Idle,
    Granting,
    Writing(Lease),
    Pausing(Moment),
    Inside(Lease),
}

/// One process that publishes.
#[derive(Clone, Debug)]
pub struct Maker {
    keys: Keys,
    ttl: Duration,
    stage: Stage,
    question: Question,
    /// No renewal before this moment: the coordinator did not answer the last.
    retry_at: Moment,
    /// Below which number all of its publications have ended.
    ended: u64,
    /// What of that its row says, and what it is about to say.
    told: u64,
    telling: Option<u64>,
    /// When its row was written last: a write that comes late changes nothing.
    row: Revision,
}

/// Below which number all publications have ended, as a maker's row says.
pub fn ended_in(row: &Row) -> u64 {
    str::from_utf8(&row.value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Maker {
    /// A process that has not published yet.
    pub fn new(keys: &Keys, ttl: Duration) -> Maker {
        let (stage, question, retry_at) = (Stage::Idle, Question::default(), Moment(0));
        let (ended, told, telling, row) = (0, 0, None, 0);
        Maker { keys: keys.clone(), ttl, stage, question, retry_at, ended, told, telling, row }
    }

    /// All of its publications below this number have ended, and none that begins has such a one.
    /// Its row will say so.
    pub fn has_ended_below(&mut self, number: u64) {
        self.ended = self.ended.max(number);
    }

    /// Its id.
    pub fn id(&self) -> Option<LeaseId> {
        if let Stage::Inside(lease) = &self.stage { Some(lease.id()) } else { None }
    }

    /// Begins.
    pub fn start(&mut self, now: Moment) -> Vec<Action<Notice>> {
        self.stage = Stage::Granting;
        self.ask(now, Request::Grant { ttl: self.ttl })
    }

    /// Goes on where time has passed.
    pub fn tick(&mut self, now: Moment) -> Vec<Action<Notice>> {
        let overdue = self.question.is_overdue(now, self.patience());
        if overdue {
            self.question.give_up();
        }
        match &self.stage {
            Stage::Idle => Vec::new(),
            Stage::Pausing(until) if now < *until => vec![Action::Wake(*until)],
            Stage::Pausing(_) => self.start(now),
            Stage::Inside(_) => self.renew(now),
            Stage::Granting | Stage::Writing(_) if overdue => self.start(now),
            Stage::Granting | Stage::Writing(_) => {
                self.question.overdue_at(self.patience()).map(Action::Wake).into_iter().collect()
            }
        }
    }

    /// Takes a reply.
    pub fn reply(&mut self, now: Moment, token: u64, reply: &Reply) -> Vec<Action<Notice>> {
        let Some(sent) = self.question.answered(token) else { return Vec::new() };
        match (&mut self.stage, reply) {
            (Stage::Granting, Reply::Granted(id)) => {
                let (id, key) = (*id, self.keys.maker(*id));
                self.stage = Stage::Writing(Lease::new(id, self.ttl, sent));
                (self.told, self.telling, self.row) = (0, None, 0);
                self.write_row(now, key, id, Vec::new())
            }
            (Stage::Writing(lease), Reply::Committed { done: true, revision, .. }) => {
                let lease = *lease;
                self.row = *revision;
                self.stage = Stage::Inside(lease);
                let mut actions = vec![Action::Own(Notice::Ready(lease.id()))];
                actions.extend(self.renew(now));
                actions
            }
            (Stage::Inside(lease), Reply::Renewed(Some(ttl))) => {
                lease.renewed(sent, *ttl);
                let id = lease.id();
                if self.ended <= self.told {
                    return self.renew(now);
                }
                self.telling = Some(self.ended);
                let value = self.ended.to_string().into_bytes();
                self.write_row(now, self.keys.maker(id), id, value)
            }
            (Stage::Inside(_), Reply::Committed { done: true, revision, .. }) => {
                self.told = self.telling.take().unwrap_or(self.told);
                self.row = *revision;
                self.renew(now)
            }
            // What was written before was done unheard.
            (Stage::Inside(_), Reply::Committed { done: false, rows, .. }) => {
                if let Some(row) = rows.first() {
                    (self.told, self.row) = (ended_in(row), row.modified);
                }
                self.renew(now)
            }
            (Stage::Inside(lease), Reply::Renewed(None)) => {
                let lost = Action::Own(Notice::Lost(lease.id()));
                let mut actions = vec![lost];
                actions.extend(self.start(now));
                actions
            }
            (Stage::Inside(_), _) => {
                self.retry_at = now + self.ttl / 12;
                self.renew(now)
            }
            _ => {
                let until = now + self.ttl / 12;
                self.stage = Stage::Pausing(until);
                vec![Action::Wake(until)]
            }
        }
    }

    /// The row goes with the lease: once that has ended, it cannot be written. Nor can it be where
    /// it was written since.
    fn write_row(
        &mut self,
        now: Moment,
        key: String,
        lease: LeaseId,
        value: Vec<u8>,
    ) -> Vec<Action<Notice>> {
        let guards = vec![Guard::Unchanged { key: key.clone(), modified: self.row }];
        let otherwise = vec![key.clone()];
        let changes = vec![Change::Put { key, value, lease: Some(lease) }];
        self.ask(now, Request::Commit(Transaction { guards, changes, otherwise }))
    }

    fn patience(&self) -> Duration {
        self.ttl / 6
    }

    fn ask(&mut self, now: Moment, request: Request) -> Vec<Action<Notice>> {
        vec![self.question.ask(now, request), Action::Wake(now + self.patience())]
    }

    fn renew(&mut self, now: Moment) -> Vec<Action<Notice>> {
        let Stage::Inside(lease) = &self.stage else { return Vec::new() };
        if let Some(overdue) = self.question.overdue_at(self.patience()) {
            return vec![Action::Wake(overdue)];
        }
        let at = lease.renew_at().max(self.retry_at);
        if now < at {
            return vec![Action::Wake(at)];
        }
        let lease = lease.id();
        self.ask(now, Request::Renew { lease })
    }
}
