//! How parts are found and fetched.
//!
//! *Protocol* (C5). A strong read asks the coordinator for the name's manifest, then any holder for
//! each part, by the uuid of the manifest and the id of the member. So a holder that has moved on
//! says so, and never gives other bytes: the reader looks the name up again, for all parts
//! together, since an array is read in one generation. A holder that does not answer is passed
//! over, and looked at: if its lease has ended, it is struck. One that gives other bytes than were
//! sealed is asked once more: what is written while it is pulled may be whole then. Where no holder
//! is left, the answer is at once that its node is away, or that the part is lost.
//!
//! The map comes from a cache; it is read again before a holder is taken for gone. What looks lost
//! in a map that is younger than the manifest may have been entered again in between: the name is
//! looked up once more.

use std::time::Duration;

use crate::clock::Moment;
use crate::coordinator::{Keys, LeaseId, Reply, Request, Revision, Row};
use crate::manifest::{Holder, Manifest};
use crate::map::{Map, Standing};
use crate::question::Question;
use crate::{Action, Rules};

/// So long a reply of the coordinator is waited for, before it is asked again.
const PATIENCE: Duration = Duration::from_secs(3);

/// So often a name is looked up again because it was replaced.
const ROUNDS_MOST: u32 = 20;

/// One part that is asked for at one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// What its end is told with.
    pub attempt: u64,
    /// The node.
    pub node: String,
    /// Where it answers.
    pub address: String,
    /// The member that the node must be.
    pub member: LeaseId,
    /// The uuid by which the manifest's parts are asked for.
    pub uuid: String,
    /// The number of the part in it.
    pub part: u32,
}

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The part is here, whole and with the checksum of the manifest.
    Whole,
    /// The holder has no such part.
    NotThere,
    /// The holder gave other bytes than those of the manifest's checksum.
    Differs,
    /// The holder does not answer, or is another member.
    Failed,
}

/// What a reader is asked to do, or told at the end.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Fetch this part.
    Fetch(Fetch),
    /// Look at this member, and strike it if its lease has ended.
    Suspect {
        /// The node.
        node: String,
        /// The member.
        member: LeaseId,
    },
    /// All parts are here, and are those of this manifest.
    Done {
        /// The manifest.
        manifest: Box<Manifest>,
        /// At which revision it was written.
        modified: Revision,
    },
    /// It cannot be read.
    Failed(Failure),
}

/// Why a name cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no such name.
    NotFound,
    /// These nodes are away, or do not answer; what lies on them may come back.
    Away(Vec<Holder>),
    /// These parts are lost.
    Lost(Vec<u32>),
    /// No holder has this part, and the manifest names it.
    Missing(u32),
    /// This part has other bytes than were sealed, again and again.
    Differs(u32),
    /// The name was replaced again and again while it was read.
    Replaced,
    /// The name is a group: it has no parts that are read.
    Group,
    /// The manifest, or the map, cannot be read.
    Unreadable(String),
    /// The coordinator does not answer.
    Coordinator,
}

/// Which parts are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None: the manifest alone.
    Manifest,
    /// All parts.
    All,
    /// Those whose box has an item in common with this one.
    Box {
        /// Where it begins.
        offsets: Vec<u64>,
        /// How long it is.
        counts: Vec<u64>,
    },
}

#[derive(Clone, Debug, Default)]
struct Sought {
    part: u32,
    /// Those who did not answer, or not rightly, since the name was looked up; and where: a member
    /// may go on in another process, at another address.
    refused: Vec<(Holder, String)>,
    /// Those of them who have no such part.
    lacking: Vec<Holder>,
    /// Those who gave other bytes than were sealed.
    differing: Vec<Holder>,
    attempt: Option<u64>,
    asked: Option<Holder>,
    address: String,
    is_here: bool,
}

impl Sought {
    /// Takes note that the holder that was asked last is not to be asked again there.
    fn refuse(&mut self) {
        self.refused.extend(self.asked.take().map(|asked| (asked, self.address.clone())));
    }
}

/// One read of one name.
#[derive(Clone, Debug)]
pub struct Read {
    keys: Keys,
    rules: Rules,
    path: String,
    wanted: Wanted,
    /// The reader's node, which is asked first.
    own: Option<String>,
    deadline: Moment,
    map: Map,
    /// Whether the map was read since the name was looked up, and the other way round.
    map_is_newer: bool,
    question: Question,
    manifest: Option<(Manifest, Revision)>,
    sought: Vec<Sought>,
    attempts: u64,
    rounds: u32,
    /// A part that its holder did not have.
    missed: Option<(Revision, u32)>,
    /// The manifest of which parts looked lost in a map that was younger.
    lost: Option<(Revision, Vec<u32>)>,
}

impl Read {
    /// A read of a name. `map` may be old.
    pub fn new(
        keys: &Keys,
        path: &str,
        wanted: Wanted,
        own: Option<String>,
        map: Map,
        deadline: Moment,
        rules: Rules,
    ) -> Read {
        Read {
            keys: keys.clone(),
            rules,
            path: path.to_owned(),
            wanted,
            own,
            deadline,
            map,
            map_is_newer: false,
            question: Question::default(),
            manifest: None,
            sought: Vec::new(),
            attempts: 0,
            rounds: 0,
            missed: None,
            lost: None,
        }
    }

    /// Begins.
    pub fn start(&mut self, now: Moment) -> Vec<Action<Step>> {
        self.look_up(now)
    }

    /// The manifest that is read.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref().map(|(manifest, _)| manifest)
    }

    /// The map as the reader knows it now.
    pub fn into_map(self) -> Map {
        self.map
    }

    /// Puts the deadline off: something has come.
    pub fn go_on_until(&mut self, deadline: Moment) {
        self.deadline = self.deadline.max(deadline);
    }

    /// Asks again where no reply has come, and ends at the deadline.
    pub fn tick(&mut self, now: Moment) -> Vec<Action<Step>> {
        if now >= self.deadline {
            let asked: Vec<Holder> = self.sought.iter().filter_map(|s| s.asked.clone()).collect();
            return if self.question.is_open() || asked.is_empty() {
                failed(Failure::Coordinator)
            } else {
                failed(Failure::Away(asked))
            };
        }
        if self.question.is_overdue(now, PATIENCE) {
            return if self.manifest.is_some() { self.read_map(now) } else { self.look_up(now) };
        }
        let overdue = self.question.overdue_at(PATIENCE).unwrap_or(self.deadline);
        vec![Action::Wake(overdue.min(self.deadline))]
    }

    /// Takes a reply of the coordinator.
    pub fn reply(&mut self, now: Moment, token: u64, reply: Reply) -> Vec<Action<Step>> {
        if self.question.answered(token).is_none() {
            return Vec::new();
        }
        match reply {
            Reply::Rows { rows, .. } if self.manifest.is_none() => self.found(now, &rows),
            Reply::Rows { rows, .. } => match Map::of(&self.keys, &rows) {
                Ok(map) => {
                    self.map = map;
                    self.map_is_newer = true;
                    self.fetch(now)
                }
                Err(why) => failed(Failure::Unreadable(why)),
            },
            // It is asked again when it is overdue.
            _ => {
                self.question.wait(now);
                vec![Action::Wake((now + PATIENCE).min(self.deadline))]
            }
        }
    }

    /// Takes the end of a fetch.
    pub fn fetched(&mut self, now: Moment, attempt: u64, end: Fetched) -> Vec<Action<Step>> {
        let Some(sought) = self.sought.iter_mut().find(|s| s.attempt == Some(attempt)) else {
            return Vec::new();
        };
        sought.attempt = None;
        match end {
            Fetched::Whole => {
                sought.is_here = true;
                if self.sought.iter().all(|sought| sought.is_here) {
                    self.done()
                } else {
                    Vec::new()
                }
            }
            Fetched::NotThere => {
                sought.lacking.extend(sought.asked.clone());
                sought.refuse();
                self.fetch(now)
            }
            Fetched::Differs => {
                let asked = sought.asked.clone();
                if asked.as_ref().is_some_and(|asked| sought.differing.contains(asked)) {
                    sought.refuse();
                }
                sought.differing.extend(asked);
                self.fetch(now)
            }
            Fetched::Failed => {
                let asked = sought.asked.clone();
                sought.refuse();
                let mut actions: Vec<Action<Step>> = asked
                    .map(|Holder { node, member }| Action::Own(Step::Suspect { node, member }))
                    .into_iter()
                    .collect();
                actions.extend(self.fetch(now));
                actions
            }
        }
    }

    fn look_up(&mut self, now: Moment) -> Vec<Action<Step>> {
        self.manifest = None;
        self.sought.clear();
        self.rounds += 1;
        if self.rounds > ROUNDS_MOST {
            return failed(Failure::Replaced);
        }
        let keys = vec![self.keys.name(&self.path)];
        let wake = Action::Wake((now + PATIENCE).min(self.deadline));
        vec![self.question.ask(now, Request::Get { keys }), wake]
    }

    fn read_map(&mut self, now: Moment) -> Vec<Action<Step>> {
        let wake = Action::Wake((now + PATIENCE).min(self.deadline));
        vec![self.question.ask(now, Request::List { prefix: self.keys.map() }), wake]
    }

    fn found(&mut self, now: Moment, rows: &[Row]) -> Vec<Action<Step>> {
        let Some(row) = rows.first() else { return failed(Failure::NotFound) };
        let manifest = match Manifest::decode(&row.value) {
            Ok(manifest) => manifest,
            Err(why) => return failed(Failure::Unreadable(why)),
        };
        if self.wanted != Wanted::Manifest && manifest.array().is_none() {
            return failed(Failure::Group);
        }
        if let Some((modified, parts)) = self.lost.take()
            && modified == row.modified
        {
            return failed(Failure::Lost(parts));
        }
        if self.missed.is_some_and(|(modified, _)| modified != row.modified) {
            self.missed = None;
        }
        let count = manifest.array().map_or(1, |boxes| boxes.parts.len() as u32);
        let is_wanted = |part: &u32| match (&self.wanted, manifest.array()) {
            (Wanted::Manifest, _) => false,
            (Wanted::Box { offsets, counts }, Some(boxes)) => {
                boxes.parts[*part as usize].overlaps(offsets, counts)
            }
            (Wanted::All | Wanted::Box { .. }, _) => true,
        };
        let sought = |part| Sought { part, ..Sought::default() };
        self.sought = (0..count).filter(is_wanted).map(sought).collect();
        self.map_is_newer = false;
        self.manifest = Some((manifest, row.modified));
        if self.sought.is_empty() { self.done() } else { self.fetch(now) }
    }

    fn done(&mut self) -> Vec<Action<Step>> {
        let (manifest, modified) = self.manifest.clone().expect("parts are of a manifest");
        vec![Action::Own(Step::Done { manifest: Box::new(manifest), modified })]
    }

    /// Asks the next holder of each part that nobody is asked for.
    fn fetch(&mut self, now: Moment) -> Vec<Action<Step>> {
        let Some((manifest, modified)) = &self.manifest else { return Vec::new() };
        let mut actions = Vec::new();
        let (mut lost, mut away) = (Vec::new(), Vec::new());
        let (mut is_stuck, mut missed) = (false, None);
        for sought in self.sought.iter_mut().filter(|s| !s.is_here && s.attempt.is_none()) {
            let holders =
                ordered(manifest.holders_of(sought.part), sought.part, self.own.as_deref());
            let at = |holder: &&Holder| placed(&self.map, holder, self.rules);
            let next = holders.iter().filter_map(at).find(|at| !sought.refused.contains(at));
            let Some((holder, address)) = next else {
                is_stuck = true;
                if !sought.lacking.is_empty() && missed.is_none() {
                    let all = holders.iter().all(|holder| sought.lacking.contains(holder));
                    missed = Some((*modified, sought.part, all));
                }
                if holders.iter().all(|holder| sought.differing.contains(holder)) {
                    return failed(Failure::Differs(sought.part));
                }
                let is_lost = |holder: &&Holder| {
                    matches!(self.map.standing(holder, self.rules), Standing::Lost)
                };
                if holders.iter().all(is_lost) {
                    lost.push(sought.part);
                } else {
                    away.extend(holders.iter().filter(|h| !is_lost(h)).map(|h| (*h).clone()));
                }
                continue;
            };
            self.attempts += 1;
            sought.attempt = Some(self.attempts);
            (sought.asked, sought.address) = (Some(holder.clone()), address.clone());
            actions.push(Action::Own(Step::Fetch(Fetch {
                attempt: self.attempts,
                node: holder.node.clone(),
                address,
                member: holder.member,
                uuid: manifest.parts_uuid().to_owned(),
                part: sought.part,
            })));
        }
        if !is_stuck {
            actions.push(Action::Wake(self.deadline));
            return actions;
        }
        // A holder without the part may have freed it since: the name is looked up again, once.
        match missed {
            Some((modified, part, _)) if self.missed != Some((modified, part)) => {
                self.missed = Some((modified, part));
                return self.look_up(now);
            }
            Some((_, part, true)) => return failed(Failure::Missing(part)),
            Some(_) | None => {}
        }
        if !self.map_is_newer {
            actions.extend(self.read_map(now));
            return actions;
        }
        if !away.is_empty() {
            away.sort();
            away.dedup();
            return failed(Failure::Away(away));
        }
        self.lost = self.manifest.as_ref().map(|(_, modified)| (*modified, lost));
        self.look_up(now)
    }
}

/// A holder with where it answers now; none where it does not.
fn placed(map: &Map, holder: &Holder, rules: Rules) -> Option<(Holder, String)> {
    match map.standing(holder, rules) {
        Standing::Serving(entry) => Some((holder.clone(), entry.identity.address.clone())),
        _ => None,
    }
}

/// The holders in the order in which a reader asks them: its own node, then the others, beginning
/// at another for each part.
fn ordered<'h>(holders: Vec<&'h Holder>, part: u32, own: Option<&str>) -> Vec<&'h Holder> {
    let mut holders = holders;
    if !holders.is_empty() {
        let first = part as usize % holders.len();
        holders.rotate_left(first);
    }
    holders.sort_by_key(|holder| own != Some(holder.node.as_str()));
    holders
}

fn failed(why: Failure) -> Vec<Action<Step>> {
    vec![Action::Own(Step::Failed(why))]
}
