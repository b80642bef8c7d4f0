//! How a node becomes a member and stays one.
//!
//! *Protocol* (C1, C3). A node looks at the map. Where its row names a member of this boot and
//! place whose lease runs, another process of the host served the pool and died: the node renews
//! that lease and goes on as the same member. Any other lease it lets run until it ends by itself:
//! that member may be the one of which this pool is a copy, on a host of the same name. Then it
//! asks for a lease, whose id is the id of the new member, and enters the map by one transaction:
//! its row is as it was seen, and the member that it names, if any, has no lease any more. A member
//! renews its lease every third of its time to live. When the coordinator says that the lease has
//! ended, the node is a new member, from the beginning.
//!
//! A node that comes back without its memory has another pool at the same place of the host: its
//! former row is marked as lost, in the same transaction.
//!
//! The caller holds the kernel's lock of the node pool: no other process of the host serves it.

use std::time::Duration;

use crate::clock::Moment;
use crate::coordinator::{
    Change, Guard, Keys, LeaseId, Reply, Request, Revision, Row, Transaction,
};
use crate::lease::Lease;
use crate::map::{Entry, Identity, Map, State};
use crate::question::Question;
use crate::{Action, Rule, Rules};

/// What a member's node is told.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// It is this member now.
    Joined {
        /// Which member.
        member: LeaseId,
        /// Whether its parts are entered already: another process of the host was this member.
        entered: bool,
    },
    /// It is no member any more: its lease has ended, or it was struck.
    Left,
    /// It cannot join, for this reason; it goes on trying.
    Waits(String),
}

#[derive(Clone, Debug)]
enum Stage {
    /// Not begun, or it has left for good.
    Idle,
    /// It asked for the map.
    Looking,
    /// It asked whether the lease of the member before it runs.
    Continuing { entry: Box<Entry>, modified: Revision },
    /// It asked whether the members that were in its place have a lease yet.
    Awaiting { map: Box<Map> },
    /// It asked for a lease.
    Granting { map: Box<Map> },
    /// It asked to enter the map, or to go on in it.
    Entering { lease: Lease, entry: Box<Entry> },
    /// It looks again at this moment.
    Pausing { until: Moment },
    /// It is a member.
    Inside(Inside),
}

#[derive(Clone, Debug)]
struct Inside {
    lease: Lease,
    entry: Box<Entry>,
    /// When the row was changed last; none where that is to be found out.
    modified: Option<Revision>,
    /// Whether the row is to be written.
    is_stale: bool,
    leaves: bool,
    /// No renewal before this moment: the coordinator did not answer the last.
    retry_at: Moment,
}

/// One node that is a member, or becomes one.
#[derive(Clone, Debug)]
pub struct Membership {
    keys: Keys,
    rules: Rules,
    ttl: Duration,
    identity: Identity,
    stage: Stage,
    /// A member before this one, whose lease is known to have ended.
    ended: Option<LeaseId>,
    question: Question,
    renewal: Question,
}

impl Membership {
    /// A node that is no member yet.
    pub fn new(keys: &Keys, identity: Identity, ttl: Duration, rules: Rules) -> Membership {
        Membership {
            keys: keys.clone(),
            rules,
            ttl,
            identity,
            stage: Stage::Idle,
            ended: None,
            question: Question::numbered(0),
            renewal: Question::numbered(1),
        }
    }

    /// Which member the node is.
    pub fn member(&self) -> Option<LeaseId> {
        if let Stage::Inside(inside) = &self.stage { Some(inside.lease.id()) } else { None }
    }

    /// The member as which the node may answer at this moment.
    pub fn serves(&self, now: Moment) -> Option<LeaseId> {
        let Stage::Inside(inside) = &self.stage else { return None };
        let serves = !inside.leaves && inside.lease.serves(now, self.rules);
        serves.then_some(inside.lease.id())
    }

    /// Whether the node answers at this moment for what this member holds.
    pub fn answers(&self, now: Moment, member: LeaseId) -> bool {
        let own = self.serves(now);
        own == Some(member) || (own.is_some() && !self.rules.has(Rule::Incarnations))
    }

    /// Whether it has not begun, or has left.
    pub fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// What the node is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Begins to become a member.
    pub fn start(&mut self, now: Moment) -> Vec<Action<News>> {
        self.stage = Stage::Looking;
        self.renewal.give_up();
        let request = Request::List { prefix: self.keys.map() };
        vec![self.question.ask(now, request), Action::Wake(now + self.patience())]
    }

    /// Says that all parts of the pool are entered into the manifests again.
    pub fn all_entered(&mut self, now: Moment) -> Vec<Action<News>> {
        if let Stage::Inside(inside) = &mut self.stage
            && !inside.entry.entered
        {
            inside.entry.entered = true;
            inside.is_stale = true;
            return self.write_row(now);
        }
        Vec::new()
    }

    /// Leaves the map: the node answers nobody any more. What lies in its pool stays.
    pub fn leave(&mut self, now: Moment, wall: u64) -> Vec<Action<News>> {
        let Stage::Inside(inside) = &mut self.stage else {
            self.stage = Stage::Idle;
            return vec![Action::Own(News::Left)];
        };
        inside.leaves = true;
        inside.is_stale = true;
        // A reply to what was written before is none to this.
        self.question.give_up();
        (inside.entry.state, inside.entry.since) = (State::Away, wall);
        self.write_row(now)
    }

    /// Takes a map that was read: a member that is no longer in it begins anew, and so does one
    /// whose row was written since by another: a machine that was copied while it ran.
    pub fn map_seen(&mut self, now: Moment, map: &Map) -> Vec<Action<News>> {
        let Stage::Inside(inside) = &self.stage else { return Vec::new() };
        let id = inside.lease.id();
        let is_own = |own: &(&Entry, Revision)| {
            let (entry, modified) = own;
            let is_older = inside.modified.is_none_or(|known| *modified <= known);
            let address = &entry.identity.address;
            entry.member == id && (is_older || *address == self.identity.address)
        };
        let there = map.node(&self.identity.node).is_some_and(|own| is_own(&own));
        if there || inside.leaves { Vec::new() } else { self.left(now) }
    }

    /// Goes on where time has passed.
    pub fn tick(&mut self, now: Moment) -> Vec<Action<News>> {
        let patience = self.patience();
        let overdue = self.question.is_overdue(now, patience);
        if overdue {
            self.question.give_up();
        }
        if self.renewal.is_overdue(now, patience) {
            self.renewal.give_up();
        }
        match &self.stage {
            Stage::Idle => Vec::new(),
            Stage::Pausing { until } if now >= *until => self.start(now),
            Stage::Pausing { until } => vec![Action::Wake(*until)],
            Stage::Inside(_) => {
                let mut actions = self.renew(now);
                actions.extend(self.write_row(now));
                actions
            }
            // Whatever was asked may have been done: the map tells.
            _ if overdue => self.start(now),
            _ => self.question.overdue_at(patience).map(Action::Wake).into_iter().collect(),
        }
    }

    /// Takes a reply.
    pub fn reply(&mut self, now: Moment, token: u64, reply: Reply) -> Vec<Action<News>> {
        if let Some(sent) = self.renewal.answered(token) {
            return self.renewed(now, sent, &reply);
        }
        let Some(sent) = self.question.answered(token) else { return Vec::new() };
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Inside(inside) => {
                self.stage = Stage::Inside(inside);
                self.row_written(now, reply)
            }
            Stage::Looking => match reply {
                Reply::Rows { rows, .. } => match Map::of(&self.keys, &rows) {
                    Ok(map) => self.looked(now, map),
                    Err(why) => self.pause(now, Some(why)),
                },
                _ => self.pause(now, None),
            },
            Stage::Continuing { entry, modified } => match reply {
                Reply::Renewed(Some(ttl)) => self.continued(now, sent, ttl, entry, modified),
                Reply::Renewed(None) => {
                    self.ended = Some(entry.member);
                    self.start(now)
                }
                _ => self.pause(now, None),
            },
            Stage::Awaiting { map } => match reply {
                Reply::Rows { rows, .. } if rows.is_empty() => self.grant(now, map),
                Reply::Rows { .. } => self.await_end(now),
                _ => self.pause(now, None),
            },
            Stage::Granting { map } => match reply {
                Reply::Granted(id) => self.enter(now, sent, id, &map),
                _ => self.pause(now, None),
            },
            Stage::Entering { lease, entry } => match reply {
                Reply::Committed { done: true, revision, .. } => {
                    self.joined(now, lease, entry, revision)
                }
                Reply::Committed { done: false, .. } => self.await_end(now),
                _ => self.pause(now, None),
            },
            // A reply to something that was given up.
            stage => {
                self.stage = stage;
                Vec::new()
            }
        }
    }

    /// How long a reply is waited for.
    fn patience(&self) -> Duration {
        let ttl =
            if let Stage::Inside(inside) = &self.stage { inside.lease.ttl() } else { self.ttl };
        ttl / 6
    }

    /// Looks again when a lease that runs may have ended.
    fn await_end(&mut self, now: Moment) -> Vec<Action<News>> {
        let why = "the row of this node, or of one at its place, is of a member whose lease runs: \
                   the host was booted just now, or another serves a copy of the pool";
        let until = now + self.ttl / 4;
        self.stage = Stage::Pausing { until };
        vec![Action::Wake(until), Action::Own(News::Waits(why.to_owned()))]
    }

    fn pause(&mut self, now: Moment, why: Option<String>) -> Vec<Action<News>> {
        let until = now + self.ttl / 12;
        self.stage = Stage::Pausing { until };
        let mut actions = vec![Action::Wake(until)];
        actions.extend(why.map(|why| Action::Own(News::Waits(why))));
        actions
    }

    fn looked(&mut self, now: Moment, map: Map) -> Vec<Action<News>> {
        let wake = Action::Wake(now + self.patience());
        let own = map.node(&self.identity.node);
        let here = own.filter(|(entry, _)| self.runs(entry) && self.is_here(&entry.identity));
        if let Some((entry, modified)) = here {
            let (entry, lease) = (Box::new(entry.clone()), entry.member);
            self.stage = Stage::Continuing { entry, modified };
            return vec![self.question.ask(now, Request::Renew { lease }), wake];
        }
        let others = map.nodes().filter(|entry| self.is_replaced(entry));
        let before = own.map(|(entry, _)| entry).into_iter().chain(others);
        let before = before.filter(|entry| self.runs(entry));
        let keys: Vec<String> = before.map(|entry| self.keys.member(entry.member)).collect();
        if keys.is_empty() {
            return self.grant(now, Box::new(map));
        }
        self.stage = Stage::Awaiting { map: Box::new(map) };
        vec![self.question.ask(now, Request::Get { keys }), wake]
    }

    /// Whether the lease of a member may run, as far as the map tells.
    fn runs(&self, entry: &Entry) -> bool {
        entry.state == State::Serving && self.ended != Some(entry.member)
    }

    fn grant(&mut self, now: Moment, map: Box<Map>) -> Vec<Action<News>> {
        self.stage = Stage::Granting { map };
        let request = Request::Grant { ttl: self.ttl };
        vec![self.question.ask(now, request), Action::Wake(now + self.patience())]
    }

    /// Asks to enter the map as the member of this lease.
    fn enter(&mut self, now: Moment, sent: Moment, id: LeaseId, map: &Map) -> Vec<Action<News>> {
        let mut guards = Vec::new();
        let mut changes = Vec::new();
        let absent = |member| Guard::Unchanged { key: self.keys.member(member), modified: 0 };
        let own = map.node(&self.identity.node);
        let key = self.keys.node(&self.identity.node);
        guards.push(Guard::Unchanged { key: key.clone(), modified: own.map_or(0, |own| own.1) });
        if let Some((entry, _)) = own
            && entry.state == State::Serving
        {
            guards.push(absent(entry.member));
        }
        for former in map.nodes().filter(|entry| self.is_replaced(entry)) {
            let key = self.keys.node(&former.identity.node);
            let modified = map.node(&former.identity.node).map_or(0, |found| found.1);
            guards.push(Guard::Unchanged { key: key.clone(), modified });
            if former.state == State::Serving {
                guards.push(absent(former.member));
            }
            let value = row(&Entry { state: State::Lost, ..former.clone() });
            changes.push(Change::Put { key, value, lease: None });
        }
        let identity = self.identity.clone();
        let state = State::Serving;
        let entry = Box::new(Entry { member: id, state, since: 0, entered: false, identity });
        let value = self.identity.node.clone().into_bytes();
        changes.push(Change::Put { key: self.keys.member(id), value, lease: Some(id) });
        changes.push(Change::Put { key, value: row(&entry), lease: None });
        changes.push(Change::Put { key: self.keys.epoch(), value: Vec::new(), lease: None });
        self.stage = Stage::Entering { lease: Lease::new(id, self.ttl, sent), entry };
        let join = Transaction { guards, changes, otherwise: Vec::new() };
        vec![self.question.ask(now, Request::Commit(join)), Action::Wake(now + self.patience())]
    }

    /// Whether what this was is this host since it booted, and this very pool: not a copy of it,
    /// nor another host of the same kernel.
    fn is_here(&self, other: &Identity) -> bool {
        let own = &self.identity;
        (&other.boot, &other.host, &other.path) == (&own.boot, &own.host, &own.path)
    }

    /// Whether a node was at this node's place before the host lost its memory.
    fn is_replaced(&self, entry: &Entry) -> bool {
        let (other, own) = (&entry.identity, &self.identity);
        other.node != own.node
            && (&other.host, &other.path) == (&own.host, &own.path)
            && other.boot != own.boot
            && entry.state != State::Lost
    }

    fn joined(
        &mut self,
        now: Moment,
        lease: Lease,
        entry: Box<Entry>,
        modified: Revision,
    ) -> Vec<Action<News>> {
        let joined = News::Joined { member: lease.id(), entered: entry.entered };
        self.stage = Stage::Inside(Inside {
            lease,
            entry,
            modified: Some(modified),
            is_stale: false,
            leaves: false,
            retry_at: now,
        });
        let mut actions = vec![Action::Own(joined)];
        actions.extend(self.renew(now));
        actions
    }

    /// Asks to go on as the member whose lease runs. The row is written even if it says all
    /// already: the process before may have asked to leave, and that may be on its way yet. Its
    /// guard on the row does not hold any more.
    fn continued(
        &mut self,
        now: Moment,
        sent: Moment,
        ttl: Duration,
        mut entry: Box<Entry>,
        modified: Revision,
    ) -> Vec<Action<News>> {
        entry.identity = self.identity.clone();
        let key = self.keys.node(&self.identity.node);
        let member = Guard::Present { key: self.keys.member(entry.member) };
        let guards = vec![Guard::Unchanged { key: key.clone(), modified }, member];
        let changes = vec![Change::Put { key, value: row(&entry), lease: None }];
        self.stage = Stage::Entering { lease: Lease::new(entry.member, ttl, sent), entry };
        let write = Transaction { guards, changes, otherwise: Vec::new() };
        vec![self.question.ask(now, Request::Commit(write)), Action::Wake(now + self.patience())]
    }

    /// Renews the lease where it is time.
    fn renew(&mut self, now: Moment) -> Vec<Action<News>> {
        let Stage::Inside(inside) = &self.stage else { return Vec::new() };
        if let Some(overdue) = self.renewal.overdue_at(self.patience()) {
            return vec![Action::Wake(overdue)];
        }
        let at = inside.lease.renew_at().max(inside.retry_at);
        if now < at {
            return vec![Action::Wake(at)];
        }
        let lease = inside.lease.id();
        let wake = Action::Wake(now + self.patience());
        vec![self.renewal.ask(now, Request::Renew { lease }), wake]
    }

    fn renewed(&mut self, now: Moment, sent: Moment, reply: &Reply) -> Vec<Action<News>> {
        let Stage::Inside(inside) = &mut self.stage else { return Vec::new() };
        match reply {
            Reply::Renewed(Some(ttl)) => inside.lease.renewed(sent, *ttl),
            // Whoever struck it has said that it is away.
            Reply::Renewed(None) if inside.leaves => {
                self.stage = Stage::Idle;
                return vec![Action::Own(News::Left)];
            }
            Reply::Renewed(None) => return self.left(now),
            _ => inside.retry_at = now + inside.lease.ttl() / 12,
        }
        self.renew(now)
    }

    fn left(&mut self, now: Moment) -> Vec<Action<News>> {
        let mut actions = vec![Action::Own(News::Left)];
        actions.extend(self.start(now));
        actions
    }

    /// Writes the node's row where it is to be written, and nothing else is asked.
    fn write_row(&mut self, now: Moment) -> Vec<Action<News>> {
        let patience = self.patience();
        let Stage::Inside(inside) = &self.stage else { return Vec::new() };
        if !inside.is_stale || self.question.is_open() {
            return self.question.overdue_at(patience).map(Action::Wake).into_iter().collect();
        }
        let key = self.keys.node(&self.identity.node);
        let Some(modified) = inside.modified else {
            let request = Request::Get { keys: vec![key] };
            return vec![self.question.ask(now, request), Action::Wake(now + patience)];
        };
        let member = self.keys.member(inside.lease.id());
        let guards = vec![
            Guard::Unchanged { key: key.clone(), modified },
            Guard::Present { key: member.clone() },
        ];
        let mut changes = vec![Change::Put { key, value: row(&inside.entry), lease: None }];
        if inside.leaves {
            changes.push(Change::Delete { key: member });
            changes.push(Change::Put { key: self.keys.epoch(), value: Vec::new(), lease: None });
        }
        let write = Transaction { guards, changes, otherwise: Vec::new() };
        vec![self.question.ask(now, Request::Commit(write)), Action::Wake(now + patience)]
    }

    /// Takes the reply about the node's row.
    fn row_written(&mut self, now: Moment, reply: Reply) -> Vec<Action<News>> {
        let Stage::Inside(inside) = &mut self.stage else { return Vec::new() };
        match reply {
            Reply::Committed { done: true, .. } if inside.leaves => {
                self.stage = Stage::Idle;
                return vec![Action::Own(News::Left)];
            }
            Reply::Committed { done: true, revision, .. } => {
                inside.modified = Some(revision);
                inside.is_stale = false;
            }
            Reply::Rows { rows, .. } => {
                let id = inside.lease.id();
                let own = |row: &&Row| {
                    serde_json::from_slice::<Entry>(&row.value)
                        .is_ok_and(|entry| entry.member == id && entry.state == State::Serving)
                };
                match rows.iter().find(own) {
                    Some(row) => inside.modified = Some(row.modified),
                    None if inside.leaves => {
                        self.stage = Stage::Idle;
                        return vec![Action::Own(News::Left)];
                    }
                    None => return self.left(now),
                }
            }
            // It was not written, or nobody knows: the row tells.
            _ => inside.modified = None,
        }
        self.write_row(now)
    }
}

fn row(entry: &Entry) -> Vec<u8> {
    serde_json::to_vec(entry).expect("an entry is JSON")
}
