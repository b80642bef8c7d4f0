//! Which parts of a node pool count, and which are free.
//!
//! *Protocol* (C3, C4). Now and then a member looks up the names of the parts that lie in its pool.
//! A part whose manifest names this member is left alone. Else:
//!
//! - The manifest names the part at this node, in a former life: the member enters itself in place
//!   of that one, by a transaction that compares the name's revision, and that its own lease runs.
//!   Until then the part counts for nothing.
//! - A manifest has named the part, and none does any more: nobody can be given the part. It is
//!   free a minute after that was seen, so that readers who looked the name up before are not sent
//!   away; memory that is mapped stays until the last local view has gone, which the engine sees
//!   to.
//! - No manifest names it, and its maker says in its row that the part's publication has ended: the
//!   part was published and replaced between two looks, or never will be. It is free a minute after
//!   that, too.
//! - No manifest names it, and the row of its maker is absent at the same revision: no transaction
//!   of that maker can take effect any more, since it would compare that row. The part is free.
//! - No manifest names it, and the maker is there: it may be published yet.
//!
//! A copy of a part bears the part's name, whoever makes it: so another maker may want to make one
//! that is here already. Where the first can never be published, it gives way at once. Hence what
//! was judged to be free is looked at once more before it goes: it may be another maker's by then.
//!
//! A sealed part is entered only after its bytes were summed up and found to be those that were
//! written ([`Duty::Check`]): that takes as long as it takes, and all else goes on meanwhile. The
//! parts of a name are entered together when all are checked, or those that are, at the next look.
//! What is damaged counts for nothing, and is free as any other part is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::clock::Moment;
use crate::coordinator::{
    Change, Guard, KEYS_MOST, Keys, LeaseId, Reply, Request, Revision, Row, Transaction,
};
use crate::maker;
use crate::manifest::{Holder, Manifest};
use crate::question::Question;
use crate::{Action, Rule, Rules};

/// A superseded part is kept this long after it was seen to be one, if nothing else is said. All
/// names are looked at twice in that time.
pub const KEPT: Duration = Duration::from_secs(60);

/// So long a reply is waited for, before it is asked again.
const PATIENCE: Duration = Duration::from_secs(3);

/// Names in one look: each has a key, and each part's maker may have another.
const NAMES_AT_ONCE: usize = 40;

/// Spreads members over the numbers of questions: those of one are no other's.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A part that lies in the pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// The name whose part it is.
    pub path: String,
    /// The uuid of its manifest.
    pub uuid: String,
    /// Its number there.
    pub part: u32,
    /// Who makes it.
    pub maker: LeaseId,
    /// Of which publication of its maker it is, as that one counts them.
    pub begun: u64,
    /// What its bytes sum up to, if it is sealed.
    pub checksum: Option<u64>,
}

/// What the pool is asked to do, or told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Free this part: nobody can be given it any more.
    Free(Held),
    /// Look whether the bytes of this part are those that were written, and tell by
    /// [`Holdings::checked`].
    Check(Held),
    /// Every part that was held when the member began is entered, damaged or free.
    AllEntered,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Whether a manifest has named it.
    was_named: bool,
    /// When it was seen to be superseded.
    superseded: Option<Moment>,
    bytes: Bytes,
}

/// What is known of a part's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Bytes {
    #[default]
    Unknown,
    /// They are looked at.
    Asked,
    /// They could not be looked at: they are at the next look at all names.
    Unsure,
    Whole,
    Damaged,
}

/// The parts of one node pool.
#[derive(Clone, Debug)]
pub struct Holdings {
    keys: Keys,
    rules: Rules,
    node: String,
    member: LeaseId,
    kept: Duration,
    parts: BTreeMap<Held, Seen>,
    /// Names that are yet to be looked up in this round.
    left: VecDeque<String>,
    /// Those that are looked up now, or entered.
    asked: Vec<String>,
    /// The makers that are looked up with them.
    makers: BTreeSet<LeaseId>,
    /// Manifests that are to be written with this member in place of a former one.
    to_enter: Vec<(String, Revision, Manifest)>,
    question: Question,
    next_round: Moment,
    is_new: bool,
}

impl Holdings {
    /// What this member of the node holds. `entered`: the manifests name it already.
    pub fn new(
        keys: &Keys,
        node: &str,
        member: LeaseId,
        parts: impl IntoIterator<Item = Held>,
        entered: bool,
        rules: Rules,
    ) -> Holdings {
        Holdings {
            keys: keys.clone(),
            rules,
            node: node.to_owned(),
            member,
            kept: KEPT,
            parts: parts.into_iter().map(|held| (held, Seen::default())).collect(),
            left: VecDeque::new(),
            asked: Vec::new(),
            makers: BTreeSet::new(),
            to_enter: Vec::new(),
            // A late reply to what a former member has asked is none to this one.
            question: Question::numbered(member.wrapping_mul(SPREAD) >> 1),
            next_round: Moment(0),
            is_new: !entered,
        }
    }

    /// The same, with superseded parts kept for another time.
    #[must_use]
    pub fn keeping(self, kept: Duration) -> Holdings {
        Holdings { kept, ..self }
    }

    /// Takes a part that was written.
    pub fn add(&mut self, held: Held) {
        self.parts.entry(held).or_default();
    }

    /// Forgets a part that was removed.
    pub fn remove(&mut self, held: &Held) {
        self.parts.remove(held);
    }

    /// Takes what the bytes of a part were found to be: those that were written, or not; none where
    /// they could not be looked at now.
    pub fn checked(&mut self, now: Moment, held: &Held, whole: Option<bool>) -> Vec<Action<Duty>> {
        let seen = self.parts.get_mut(held).filter(|seen| seen.bytes == Bytes::Asked);
        // It was asked for a former member, and is answered already, or has gone.
        let Some(seen) = seen else { return self.unless_busy(now) };
        seen.bytes = match whole {
            Some(true) => Bytes::Whole,
            Some(false) => Bytes::Damaged,
            None => Bytes::Unsure,
        };
        let has = |bytes| self.of(&held.path).any(|other| self.parts[other].bytes == bytes);
        if !has(Bytes::Asked) && has(Bytes::Whole) {
            self.left.push_back(held.path.clone());
        }
        self.unless_busy(now)
    }

    /// Goes on where nothing is asked.
    fn unless_busy(&mut self, now: Moment) -> Vec<Action<Duty>> {
        if self.question.is_open() { Vec::new() } else { self.go_on(now) }
    }

    /// All that is held.
    pub fn parts(&self) -> impl Iterator<Item = &Held> {
        self.parts.keys()
    }

    /// Begins, or goes on where time has passed.
    pub fn tick(&mut self, now: Moment) -> Vec<Action<Duty>> {
        if self.question.is_overdue(now, PATIENCE) {
            self.question.give_up();
            // What was yet to be entered is looked up again, too: else it would pass as entered.
            self.left.extend(self.to_enter.drain(..).map(|(path, ..)| path));
            self.left.extend(self.asked.drain(..));
            return self.go_on(now);
        }
        if let Some(overdue) = self.question.overdue_at(PATIENCE) {
            return vec![Action::Wake(overdue)];
        }
        if now < self.next_round {
            return vec![Action::Wake(self.next_round)];
        }
        self.next_round = now + self.kept / 2;
        let names: BTreeSet<&String> = self.parts.keys().map(|held| &held.path).collect();
        self.left = names.into_iter().cloned().collect();
        self.go_on(now)
    }

    /// Takes a reply of the coordinator.
    pub fn reply(&mut self, now: Moment, token: u64, reply: Reply) -> Vec<Action<Duty>> {
        if self.question.answered(token).is_none() {
            return Vec::new();
        }
        match reply {
            Reply::Rows { rows, .. } => {
                let mut actions = self.looked(now, &rows);
                actions.extend(self.go_on(now));
                actions
            }
            Reply::Committed { done, .. } => {
                // Where a guard did not hold, the name has changed: it is looked up again.
                if !done {
                    self.left.extend(self.asked.drain(..));
                }
                self.go_on(now)
            }
            _ => {
                self.question.wait(now);
                vec![Action::Wake(now + PATIENCE)]
            }
        }
    }

    /// Enters what is to be entered, then looks up the next names.
    fn go_on(&mut self, now: Moment) -> Vec<Action<Duty>> {
        self.asked.clear();
        let wake = Action::Wake(now + PATIENCE);
        if let Some((path, modified, manifest)) = self.to_enter.pop() {
            let key = self.keys.name(&path);
            let mut guards = vec![Guard::Unchanged { key: key.clone(), modified }];
            if self.rules.has(Rule::Entering) {
                guards.push(Guard::Present { key: self.keys.member(self.member) });
            }
            let changes = vec![Change::Put { key, value: manifest.encode(), lease: None }];
            self.asked = vec![path];
            let enter = Transaction { guards, changes, otherwise: Vec::new() };
            return vec![self.question.ask(now, Request::Commit(enter)), wake];
        }
        if self.ask_for_next() {
            let mut keys: Vec<_> = self.asked.iter().map(|path| self.keys.name(path)).collect();
            keys.extend(self.makers.iter().map(|maker| self.keys.maker(*maker)));
            return vec![self.question.ask(now, Request::Get { keys }), wake];
        }
        let mut actions = vec![Action::Wake(self.next_round)];
        let is_awaited = |seen: &Seen| matches!(seen.bytes, Bytes::Asked | Bytes::Unsure);
        if self.is_new && !self.parts.values().any(is_awaited) {
            self.is_new = false;
            actions.push(Action::Own(Duty::AllEntered));
        }
        actions
    }

    /// Takes the next names, and their makers as far as one request can name them.
    fn ask_for_next(&mut self) -> bool {
        self.makers.clear();
        while self.asked.len() < NAMES_AT_ONCE
            && let Some(path) = self.left.pop_front()
        {
            let makers: Vec<LeaseId> = self.of(&path).map(|held| held.maker).collect();
            self.asked.push(path);
            for maker in makers {
                if self.makers.len() + NAMES_AT_ONCE < KEYS_MOST {
                    self.makers.insert(maker);
                }
            }
        }
        !self.asked.is_empty()
    }

    /// The parts of a name: they stand together, since they are sorted by name first.
    fn of<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Held> {
        let path_of = path.to_owned();
        let uuid = String::new();
        let first = Held { path: path_of, uuid, part: 0, maker: 0, begun: 0, checksum: None };
        let from = self.parts.range(first..).map(|(held, _)| held);
        from.take_while(move |held| held.path == path)
    }

    /// Judges the parts of the names that were looked up.
    fn looked(&mut self, now: Moment, rows: &[Row]) -> Vec<Action<Duty>> {
        let mut actions = Vec::new();
        for path in std::mem::take(&mut self.asked) {
            let key = self.keys.name(&path);
            let row = rows.iter().find(|row| row.key == key);
            let manifest = match row.map(|row| Manifest::decode(&row.value)) {
                Some(Ok(manifest)) => Some(manifest),
                None => None,
                // What cannot be read says nothing about its parts.
                Some(Err(_)) => continue,
            };
            let held: Vec<Held> = self.of(&path).cloned().collect();
            let mut enters = Vec::new();
            for held in held {
                let maker = self.maker_of(&held, rows);
                match self.judge(now, &held, manifest.as_ref(), maker) {
                    Judgement::Stays => {}
                    Judgement::Enters => enters.push(held.part),
                    Judgement::IsChecked => actions.push(Action::Own(Duty::Check(held))),
                    Judgement::Goes => {
                        self.parts.remove(&held);
                        actions.push(Action::Own(Duty::Free(held)));
                    }
                }
            }
            if let (false, Some(mut next), Some(row)) = (enters.is_empty(), manifest, row) {
                next.enter(&enters, &self.node, self.member);
                self.to_enter.push((path, row.modified, next));
            }
        }
        actions
    }

    /// What the row of a part's maker says; of one that was not asked for nothing is known.
    fn maker_of(&self, held: &Held, rows: &[Row]) -> Making {
        if !self.makers.contains(&held.maker) {
            return Making::Open;
        }
        let key = self.keys.maker(held.maker);
        match rows.iter().find(|row| row.key == key) {
            None => Making::Gone,
            Some(row) if held.begun < maker::ended_in(row) => Making::Ended,
            Some(_) => Making::Open,
        }
    }

    fn judge(
        &mut self,
        now: Moment,
        held: &Held,
        manifest: Option<&Manifest>,
        maker: Making,
    ) -> Judgement {
        let seen = self.parts.entry(held.clone()).or_default();
        let is_own = |manifest: &&Manifest| manifest.parts_uuid() == held.uuid;
        if let Some(manifest) = manifest.filter(is_own) {
            let own = |holder: &&Holder| holder.node == self.node;
            if let Some(holder) = manifest.holders_of(held.part).into_iter().find(own) {
                (seen.was_named, seen.superseded) = (true, None);
                // What is about to be sealed has a checksum before its manifest has.
                let expected = manifest.checksum_of(held.part);
                let is_same = expected.is_none() || expected == held.checksum;
                let is_former = holder.member != self.member;
                if !is_former || !is_same || !self.rules.has(Rule::Incarnations) {
                    return Judgement::Stays;
                }
                // What is not sealed has no bytes that it must have: whoever was about to seal it
                // may have died, and others have written on.
                if expected.is_none() || !self.rules.has(Rule::Wholeness) {
                    return Judgement::Enters;
                }
                return match seen.bytes {
                    Bytes::Whole => Judgement::Enters,
                    Bytes::Asked | Bytes::Damaged => Judgement::Stays,
                    Bytes::Unknown | Bytes::Unsure => {
                        seen.bytes = Bytes::Asked;
                        Judgement::IsChecked
                    }
                };
            }
        }
        match maker {
            Making::Gone if !seen.was_named => return Judgement::Goes,
            Making::Open if !seen.was_named => return Judgement::Stays,
            _ => {}
        }
        let since = *seen.superseded.get_or_insert(now);
        if now - since >= self.kept { Judgement::Goes } else { Judgement::Stays }
    }
}

/// How the making of a part stands.
#[derive(Clone, Copy)]
enum Making {
    /// Its maker may publish it yet.
    Open,
    /// Its maker has published it, or given it up.
    Ended,
    /// Its maker is no more.
    Gone,
}

enum Judgement {
    Stays,
    Enters,
    IsChecked,
    Goes,
}
