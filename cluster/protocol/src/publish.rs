//! How a manifest takes effect.
//!
//! *Protocol* (C4). The maker has written parts where nobody finds them, and holders said that each
//! is whole. Then one transaction writes the manifests of up to [`NAMES_MOST`] names. It compares:
//!
//! - each name is as the maker saw it: no other publication was in between;
//! - where a name was absent: no name was removed since. An absent row has no revision that tells
//!   whether it was there in between, and generations are to grow;
//! - the map is at the epoch at which all holders were looked up: each is a member yet;
//! - the maker's row is there: nobody has given its parts back as those of a dead maker.
//!
//! A name of the cluster exists if and only if its manifest is committed. Where the epoch has
//! moved, the maker looks at the map again, and repeats if all holders are members yet. It repeats,
//! too, where some other name was removed, and where a holder of the generation that it saw has
//! entered itself again. A transaction whose reply was lost is asked again: its guards admit it
//! once, and the uuid at the name tells whether it was done. Where another has changed the name by
//! then, nothing tells, and it is not repeated.

use std::time::Duration;

use crate::clock::Moment;
use crate::coordinator::{
    Change, Guard, Keys, LeaseId, Reply, Request, Revision, Row, Transaction,
};
use crate::manifest::{Holder, Manifest};
use crate::map::Map;
use crate::question::Question;
use crate::{Action, Rule, Rules};

/// The most names that are published at once.
pub const NAMES_MOST: usize = 100;

/// So long a reply is waited for, before it is asked again.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a name is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The name.
    pub path: String,
    /// The revision of its manifest as the maker saw it; 0: there was none.
    pub seen: Revision,
    /// The uuid of that manifest.
    pub seen_uuid: Option<String>,
    /// Its next manifest; none where the name is removed.
    pub manifest: Option<Manifest>,
}

/// How a publication ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It took effect, at this revision or before it, and each name has been changed at it or
    /// since.
    Published(Revision),
    /// Somebody else changed these names in between; nothing took effect.
    Conflict(Vec<String>),
    /// These holders are no members any more; nothing took effect.
    HoldersGone(Vec<Holder>),
    /// The maker's lease has ended, so its parts may have been given back; nothing took effect.
    MakerGone,
    /// The coordinator refuses it, for this reason; nothing took effect.
    Refused(String),
    /// The coordinator did not answer until the deadline: it may take effect yet, or have done so.
    /// Or an answer was lost, and others have changed the names since.
    Unknown,
}

/// What a maker saw before it made anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The epoch of the map in which it looked its holders up.
    pub epoch: Revision,
    /// The revision of the row of removals, when it looked the names up.
    pub removed: Revision,
}

/// One publication.
#[derive(Clone, Debug)]
pub struct Publish {
    keys: Keys,
    rules: Rules,
    maker: LeaseId,
    proposals: Vec<Proposal>,
    seen: Seen,
    deadline: Moment,
    question: Question,
    /// Whether a reply was lost: the transaction may have been done.
    is_unsure: bool,
}

impl Publish {
    /// A publication of these names by this maker.
    pub fn new(
        keys: &Keys,
        maker: LeaseId,
        proposals: Vec<Proposal>,
        seen: Seen,
        deadline: Moment,
        rules: Rules,
    ) -> Publish {
        let question = Question::default();
        let (keys, is_unsure) = (keys.clone(), false);
        Publish { keys, rules, maker, proposals, seen, deadline, question, is_unsure }
    }

    /// Begins.
    pub fn start(&mut self, now: Moment) -> Vec<Action<Outcome>> {
        if self.proposals.len() > NAMES_MOST {
            let count = self.proposals.len();
            let why = format!("at most {NAMES_MOST} names are published at once, not {count}");
            return vec![Action::Own(Outcome::Refused(why))];
        }
        self.commit(now)
    }

    /// Asks again where no reply has come.
    pub fn tick(&mut self, now: Moment) -> Vec<Action<Outcome>> {
        if self.question.is_overdue(now, PATIENCE) {
            self.question.give_up();
            self.is_unsure = true;
            return self.commit(now);
        }
        self.question.overdue_at(PATIENCE).map(Action::Wake).into_iter().collect()
    }

    /// Takes a reply.
    pub fn reply(&mut self, now: Moment, token: u64, reply: Reply) -> Vec<Action<Outcome>> {
        if self.question.answered(token).is_none() {
            return Vec::new();
        }
        match reply {
            Reply::Committed { done: true, revision, .. } => {
                vec![Action::Own(Outcome::Published(revision))]
            }
            Reply::Committed { done: false, rows, revision } => self.not_done(now, revision, &rows),
            Reply::Rows { rows, .. } => match Map::of(&self.keys, &rows) {
                Ok(map) => self.looked(now, &map),
                Err(why) => vec![Action::Own(Outcome::Refused(why))],
            },
            Reply::Refused(why) if !self.is_unsure => vec![Action::Own(Outcome::Refused(why))],
            _ => {
                self.is_unsure = true;
                self.wait_to_ask(now)
            }
        }
    }

    /// Keeps the question open: it is asked again when it is overdue.
    fn wait_to_ask(&mut self, now: Moment) -> Vec<Action<Outcome>> {
        if now >= self.deadline {
            return vec![Action::Own(Outcome::Unknown)];
        }
        self.question.wait(now);
        vec![Action::Wake(now + PATIENCE)]
    }

    fn commit(&mut self, now: Moment) -> Vec<Action<Outcome>> {
        if now >= self.deadline {
            return vec![Action::Own(Outcome::Unknown)];
        }
        let mut publication = Transaction::default();
        for proposal in &self.proposals {
            let key = self.keys.name(&proposal.path);
            publication.otherwise.push(key.clone());
            publication.guards.push(Guard::Unchanged { key: key.clone(), modified: proposal.seen });
            publication.changes.push(match &proposal.manifest {
                Some(manifest) => Change::Put { key, value: manifest.encode(), lease: None },
                None => Change::Delete { key },
            });
        }
        let (epoch, removed) = (self.keys.epoch(), self.keys.removed());
        let maker = self.keys.maker(self.maker);
        if self.proposals.iter().any(|proposal| proposal.manifest.is_none()) {
            let key = removed.clone();
            publication.changes.push(Change::Put { key, value: Vec::new(), lease: None });
        }
        if self.proposals.iter().any(|proposal| proposal.seen == 0) {
            let modified = self.seen.removed;
            publication.guards.push(Guard::Unchanged { key: removed.clone(), modified });
        }
        publication.guards.push(Guard::Unchanged { key: epoch.clone(), modified: self.seen.epoch });
        if self.rules.has(Rule::Makers) {
            publication.guards.push(Guard::Present { key: maker.clone() });
        }
        publication.otherwise.extend([epoch, removed, maker]);
        if !self.rules.has(Rule::Guard) {
            publication.guards.clear();
        }
        let request = Request::Commit(publication);
        vec![self.question.ask(now, request), Action::Wake(now + PATIENCE)]
    }

    /// Finds out why a guard did not hold, at this revision.
    fn not_done(&mut self, now: Moment, revision: Revision, rows: &[Row]) -> Vec<Action<Outcome>> {
        let of = |key: &str| rows.iter().find(|row| row.key == key);
        let (mut conflicts, mut gone, mut done) = (Vec::new(), Vec::new(), None);
        let mut absent_since = None;
        for proposal in &mut self.proposals {
            let row = of(&self.keys.name(&proposal.path));
            let modified = row.map_or(0, |row| row.modified);
            let there = row.and_then(|row| Manifest::decode(&row.value).ok()).map(|now| now.uuid);
            let own = proposal.manifest.as_ref().map(|manifest| manifest.uuid.as_str());
            if own.is_some() && there.as_deref() == own {
                // A holder may have entered itself since.
                done = Some(done.map_or(modified, |other: Revision| other.min(modified)));
            } else if own.is_none() && row.is_none() && proposal.seen != 0 {
                gone.push(proposal.path.clone());
                let seen = proposal.seen;
                absent_since = Some(absent_since.map_or(seen, |other: Revision| other.min(seen)));
            } else if there.is_some() && there == proposal.seen_uuid {
                proposal.seen = modified;
            } else if modified != proposal.seen {
                conflicts.push(proposal.path.clone());
            }
        }
        // All names are written together: a manifest that is ours says that all were. A name that
        // is gone may have been removed by anybody; where all were to go, that is as good.
        let all_gone = absent_since.filter(|_| gone.len() == self.proposals.len());
        if let Some(revision) = done.or(all_gone) {
            return vec![Action::Own(Outcome::Published(revision))];
        }
        conflicts.extend(gone);
        let was_removed = of(&self.keys.removed()).map_or(0, |row| row.modified);
        let sees_absent = self.proposals.iter().any(|proposal| proposal.seen == 0);
        let may_be_done =
            !conflicts.is_empty() || (sees_absent && was_removed != self.seen.removed);
        // What was done unheard may have been replaced or removed since: nothing tells any more.
        if self.is_unsure && may_be_done {
            return vec![Action::Own(Outcome::Unknown)];
        }
        if !conflicts.is_empty() {
            return vec![Action::Own(Outcome::Conflict(conflicts))];
        }
        if self.rules.has(Rule::Makers) && of(&self.keys.maker(self.maker)).is_none() {
            return vec![Action::Own(Outcome::MakerGone)];
        }
        // At this revision all names are as they were seen: it is as if they were looked up now.
        self.seen.removed = was_removed;
        for manifest in self.proposals.iter_mut().filter_map(|each| each.manifest.as_mut()) {
            manifest.generation = revision;
        }
        let request = Request::List { prefix: self.keys.map() };
        vec![self.question.ask(now, request), Action::Wake(now + PATIENCE)]
    }

    /// Repeats if all holders are members yet.
    fn looked(&mut self, now: Moment, map: &Map) -> Vec<Action<Outcome>> {
        let mut gone: Vec<Holder> = (self.proposals.iter())
            .filter_map(|proposal| proposal.manifest.as_ref())
            .flat_map(|manifest| &manifest.holders)
            .filter(|holder| !map.is_member(holder, self.rules))
            .cloned()
            .collect();
        gone.sort();
        gone.dedup();
        if !gone.is_empty() {
            return vec![Action::Own(Outcome::HoldersGone(gone))];
        }
        self.seen.epoch = map.epoch;
        self.commit(now)
    }
}
