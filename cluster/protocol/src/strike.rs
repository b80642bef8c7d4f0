//! How a member whose lease has ended leaves the map.
//!
//! *Protocol* (C2). Anybody who finds a member silent may strike it, and does so by one transaction
//! that compares: the member's row, which goes with its lease, is absent. Since a member falls
//! silent before its lease can have ended ([`crate::lease`]), nobody is answered by a member that
//! was struck. One that answers that it is no member for the moment is silent, too: cut off from
//! the coordinator it cannot leave by itself.
//!
//! A node that does not come back is given up so, too: what it alone held is lost then, and readers
//! no longer wait for it.

use std::time::Duration;

use crate::clock::Moment;
use crate::coordinator::{Change, Guard, Keys, LeaseId, Reply, Request, Row, Transaction};
use crate::map::{Entry, State};
use crate::question::Question;
use crate::{Action, Rule, Rules};

/// So long a reply is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is struck: by this machine, or by another before.
    Struck,
    /// Its lease runs, or its node is here again as another member.
    Alive,
    /// The coordinator does not answer.
    Unknown,
}

/// One member that is looked at, and struck if its lease has ended.
#[derive(Clone, Debug)]
pub struct Strike {
    keys: Keys,
    rules: Rules,
    node: String,
    member: LeaseId,
    question: Question,
    /// When it is, in seconds since 1970.
    wall: u64,
    /// How its node stands then.
    state: State,
}

impl Strike {
    /// Looks at the member of this node. `wall` is the time for people, in seconds since 1970.
    pub fn new(keys: &Keys, node: &str, member: LeaseId, wall: u64, rules: Rules) -> Strike {
        Strike {
            keys: keys.clone(),
            rules,
            node: node.to_owned(),
            member,
            question: Question::default(),
            wall,
            state: State::Away,
        }
    }

    /// Gives its node up for good, also one that is away already.
    #[must_use]
    pub fn for_good(self) -> Strike {
        Strike { state: State::Lost, ..self }
    }

    /// Begins.
    pub fn start(&mut self, now: Moment) -> Vec<Action<Verdict>> {
        let keys = vec![self.keys.node(&self.node), self.keys.member(self.member)];
        vec![self.question.ask(now, Request::Get { keys }), Action::Wake(now + PATIENCE)]
    }

    /// Ends where no reply has come.
    pub fn tick(&mut self, now: Moment) -> Vec<Action<Verdict>> {
        if self.question.is_overdue(now, PATIENCE) {
            self.question.give_up();
            return vec![Action::Own(Verdict::Unknown)];
        }
        Vec::new()
    }

    /// Takes a reply.
    pub fn reply(&mut self, now: Moment, token: u64, reply: Reply) -> Vec<Action<Verdict>> {
        if self.question.answered(token).is_none() {
            return Vec::new();
        }
        match reply {
            Reply::Rows { rows, .. } => self.judge(now, rows),
            Reply::Committed { done: true, .. } => vec![Action::Own(Verdict::Struck)],
            // The row has changed since: look again.
            Reply::Committed { done: false, .. } => self.start(now),
            _ => vec![Action::Own(Verdict::Unknown)],
        }
    }

    fn judge(&mut self, now: Moment, rows: Vec<Row>) -> Vec<Action<Verdict>> {
        let key = self.keys.node(&self.node);
        let runs = rows.iter().any(|row| row.key == self.keys.member(self.member));
        let Some(row) = rows.into_iter().find(|row| row.key == key) else {
            return vec![Action::Own(Verdict::Struck)];
        };
        let Ok(mut entry) = serde_json::from_slice::<Entry>(&row.value) else {
            return vec![Action::Own(Verdict::Unknown)];
        };
        let is_struck = match self.state {
            State::Lost if entry.member != self.member => return vec![Action::Own(Verdict::Alive)],
            State::Lost => entry.state == State::Lost,
            _ => entry.member != self.member || entry.state != State::Serving,
        };
        if is_struck {
            return vec![Action::Own(Verdict::Struck)];
        }
        if runs && self.rules.has(Rule::Patience) {
            return vec![Action::Own(Verdict::Alive)];
        }
        (entry.state, entry.since) = (self.state, self.wall);
        let value = serde_json::to_vec(&entry).expect("an entry is JSON");
        let mut guards = vec![Guard::Unchanged { key: key.clone(), modified: row.modified }];
        if self.rules.has(Rule::Patience) {
            guards.push(Guard::Unchanged { key: self.keys.member(self.member), modified: 0 });
        }
        let touched = Change::Put { key: self.keys.epoch(), value: Vec::new(), lease: None };
        let changes = vec![Change::Put { key, value, lease: None }, touched];
        let strike = Transaction { guards, changes, otherwise: Vec::new() };
        vec![self.question.ask(now, Request::Commit(strike)), Action::Wake(now + PATIENCE)]
    }
}
