//! What workers do: operations, how they are chosen, and how they are written down.

use engram::{IndexMode, Kind};

use crate::data::Random;
use crate::{files, travel};

/// Groups that a worker has, and names in each.
pub const GROUPS: u64 = 3;
/// Names in a group.
pub const NAMES: u64 = 8;

/// A name of a worker's own: a group and a place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub u8);

impl Name {
    fn any(random: &mut Random) -> Self {
        Name(random.below(GROUPS * NAMES) as u8)
    }

    /// Its group.
    pub fn group(self) -> u8 {
        self.0 / NAMES as u8
    }

    /// Its path, for the worker in a slot.
    pub fn path(self, slot: usize) -> String {
        format!("w{slot}/g{}/{}", self.group(), self.0 % NAMES as u8)
    }
}

/// What a worker does in one step: all of it or nothing, unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Stores a value; `version` says which.
    Put { name: Name, version: u64, words: u32, index: u8 },
    /// Reserves, fills in place, and publishes.
    Allocate { name: Name, version: u64, words: u32, index: u8 },
    /// Reserves and fills, and thinks better of it.
    Abandon { name: Name, version: u64, words: u32 },
    /// Space now, contents later.
    Zeroed { name: Name, version: u64, words: u32 },
    /// Another value for the same object.
    Replace { name: Name, version: u64 },
    /// Writes every word where it lies: neither atomic nor isolated.
    InPlace { name: Name, version: u64 },
    /// Deletes an object.
    Delete { name: Name },
    /// Deletes a group of the worker's with all that is in it.
    DeleteGroup { group: u8 },
    /// Gives an object another name, perhaps in another group.
    Rename { old: Name, new: Name },
    /// Sets an attribute.
    Annotate { name: Name, version: u64 },
    /// Some of the above, in one commit.
    Batch { seed: u64, version: u64, many: u8 },
    /// An attribute larger than the catalog's room, for a moment.
    Pad { name: Name },
    /// An attribute of a key that nobody has used yet.
    NewKey { name: Name, version: u64 },
    /// Memory without a name.
    Scratch { words: u32 },
    /// More memory than there is in one piece: the arena grows.
    Grow,
    /// Something where others write too.
    Common { seed: u64, version: u64 },
    /// Asks for what it has.
    Query { seed: u64 },
    /// Does maintenance.
    Maintain,
    /// Indexes what is queued.
    Drain,
    /// Takes a view of something that others may delete, and keeps it.
    Hold { seed: u64 },
    /// Forks a worker.
    Fork,
    /// A program becomes itself anew, with the files that it has open.
    Exec,
    /// Closes the pool and opens it again.
    Reopen { drop_views: bool },
    /// Stores something that travels, in private if there was nothing.
    Arrive { place: u8, version: u64, words: u32, private: bool },
    /// Deletes something that travels.
    Leave { place: u8 },
    /// Moves what lies at these places to another scope, all in one.
    Move { places: u8, from: u8, to: u8 },
    /// Moves a group with all that is in it.
    MoveRun { to: u8 },
    /// Moves the group that everybody moves, or writes in it.
    Roam { seed: u64, version: u64 },
    /// Something with chunked arrays.
    Grid { seed: u64, version: u64 },
    /// Something with files of the worker's own.
    File { seed: u64, version: u64 },
    /// Something with files that everybody writes.
    Crowd { seed: u64, version: u64 },
    /// Takes a snapshot, or looks at the one that is held.
    Snap,
    /// Locks something that everybody locks.
    Lock { seed: u64 },
    /// Gives the namespace another mode, in which all who come still may.
    Mode { which: u8 },
    /// Looks what commits have changed since it looked last, and sleeps until the next.
    Watch,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    /// Done.
    Done = 1,
    /// There is no such name, or there is one already: nothing changed.
    Refused = 2,
    /// There was no space: nothing changed.
    Full = 3,
    /// It was on its way: nothing changed.
    Busy = 4,
}

impl Outcome {
    /// What the engine's answer means.
    ///
    /// # Panics
    ///
    /// On an error that this operation must not end with.
    pub fn of(done: Result<(), engram::Error>, operation: &Operation) -> Self {
        match done.map_err(|error| (error.kind(), error)) {
            Ok(()) => Outcome::Done,
            Err((Kind::NotFound | Kind::Exists, _)) => Outcome::Refused,
            Err((Kind::PoolFull, _)) => Outcome::Full,
            Err((Kind::Busy, _)) if operation.may_be_busy() => Outcome::Busy,
            Err((_, error)) => panic!("{operation:?} ended with: {error}"),
        }
    }

    /// What stands in a log.
    pub(crate) fn from_word(word: u32) -> Self {
        match word {
            1 => Outcome::Done,
            2 => Outcome::Refused,
            4 => Outcome::Busy,
            _ => Outcome::Full,
        }
    }
}

/// What a worker shall do often, so that rare steps are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Urge {
    /// Whatever comes.
    None = 0,
    Reopen,
    Fork,
    Grow,
    Pad,
    NewKey,
    Large,
    Abandon,
    Zeroed,
    Replace,
    InPlace,
    View,
    Delete,
    Rename,
    Batch,
    Queue,
    Index,
    Move,
    Publish,
    Grid,
    Watch,
    File,
    Crowd,
}

impl Urge {
    /// The urge that leads to a step.
    pub fn towards(step: &str) -> Urge {
        let (protocol, what) = step.split_once('.').unwrap_or((step, ""));
        match (protocol, what) {
            ("lease" | "spare" | "open" | "dead" | "close" | "ids", _) => Urge::Reopen,
            ("fork", _) => Urge::Fork,
            ("grow", _) => Urge::Grow,
            ("catalog", _) | ("commit", "short") => Urge::Pad,
            ("keys", _) => Urge::NewKey,
            ("give_back", _) => Urge::Abandon,
            ("put", "zeroed") => Urge::Zeroed,
            ("put" | "reclaim" | "reserve", _) => Urge::Large,
            ("replace", _) => Urge::Replace,
            ("inplace", _) | ("file", "stored") => Urge::InPlace,
            ("view", _) => Urge::View,
            ("delete", _) => Urge::Delete,
            ("batch", _) => Urge::Batch,
            ("queue", _) => Urge::Queue,
            ("index", _) => Urge::Index,
            ("transfer", _) => Urge::Move,
            ("publish" | "unpublish", _) => Urge::Publish,
            ("chunks", _) => Urge::Grid,
            ("bell", _) => Urge::Watch,
            ("file", "announced" | "tail-taken") => Urge::Crowd,
            ("file" | "names" | "links" | "orphans", _) | ("rename", "exchanged") => Urge::File,
            ("rename", _) => Urge::Rename,
            _ => Urge::None,
        }
    }

    /// What stands on the board.
    pub fn from_word(word: u32) -> Urge {
        use Urge::{
            Abandon, Batch, Crowd, Delete, File, Fork, Grid, Grow, InPlace, Index, Large, Move,
            NewKey, None, Pad, Publish, Queue, Rename, Reopen, Replace, View, Watch, Zeroed,
        };
        let all = [
            None, Reopen, Fork, Grow, Pad, NewKey, Large, Abandon, Zeroed, Replace, InPlace, View,
            Delete, Rename, Batch, Queue, Index, Move, Publish, Grid, Watch, File, Crowd,
        ];
        all.into_iter().find(|urge| *urge as u32 == word).unwrap_or(None)
    }
}

/// Chooses operations.
pub struct Choice {
    /// Where they follow from.
    pub random: Random,
    /// The last version given.
    pub version: u64,
}

impl Choice {
    fn words(&mut self) -> u32 {
        let most = [20, 120, 120, 1500, 12_000][self.random.below(5) as usize];
        3 + self.random.below(most) as u32
    }

    fn large(&mut self) -> u32 {
        130 + self.random.below(4000) as u32
    }

    fn put(&mut self) -> Operation {
        let index = self.random.below(8) as u8;
        let (name, version, words) = (Name::any(&mut self.random), self.version, self.words());
        Operation::Put { name, version, words, index }
    }

    /// The next one.
    pub fn next(&mut self, urge: Urge) -> Operation {
        self.version += 1;
        if urge != Urge::None && self.random.percent(60) {
            return self.urged(urge);
        }
        let (name, version) = (Name::any(&mut self.random), self.version);
        match self.random.below(164) {
            15..27 => self.allocate(name),
            27..30 => Operation::Abandon { name, version, words: self.large() },
            30..32 => Operation::Zeroed { name, version, words: self.large() },
            32..38 => Operation::Replace { name, version },
            38..46 => Operation::InPlace { name, version },
            46..51 => Operation::Delete { name },
            51 => Operation::DeleteGroup { group: name.group() },
            52..57 => Operation::Rename { old: name, new: Name::any(&mut self.random) },
            57..62 => Operation::Annotate { name, version },
            62..70 => self.batch(),
            70..72 => Operation::Scratch { words: self.large() },
            72..80 => Operation::Common { seed: self.random.any(), version },
            80..84 => Operation::Query { seed: self.random.any() },
            84..86 => Operation::Maintain,
            86..88 => Operation::Drain,
            88..94 => Operation::Hold { seed: self.random.any() },
            94..96 => Operation::Fork,
            96 => Operation::Reopen { drop_views: self.random.percent(50) },
            97 => Operation::NewKey { name, version },
            98..106 => travel::any(&mut self.random, version, false),
            106..110 => Operation::Snap,
            110..114 => Operation::Lock { seed: self.random.any() },
            114..122 => Operation::Roam { seed: self.random.any(), version },
            122..130 => Operation::Grid { seed: self.random.any(), version },
            130 => Operation::Mode { which: self.random.below(2) as u8 },
            131 => Operation::Watch,
            132..152 => Operation::File { seed: self.random.any(), version },
            152..164 => Operation::Crowd { seed: self.random.any(), version },
            _ => self.put(),
        }
    }

    fn allocate(&mut self, name: Name) -> Operation {
        let (words, index) = (self.large(), self.random.below(8) as u8);
        Operation::Allocate { name, version: self.version, words, index }
    }

    fn batch(&mut self) -> Operation {
        let many = 2 + self.random.below(10) as u8;
        Operation::Batch { seed: self.random.any(), version: self.version, many }
    }

    fn urged(&mut self, urge: Urge) -> Operation {
        let (name, version) = (Name::any(&mut self.random), self.version);
        match urge {
            Urge::None => self.put(),
            Urge::Reopen => Operation::Reopen { drop_views: true },
            Urge::Fork => Operation::Fork,
            Urge::Grow => Operation::Grow,
            Urge::Pad => Operation::Pad { name },
            Urge::NewKey => Operation::NewKey { name, version },
            Urge::Large if self.random.percent(50) => {
                Operation::Put { name, version, words: self.large(), index: 0 }
            }
            Urge::Large => self.allocate(name),
            Urge::Abandon => Operation::Abandon { name, version, words: self.large() },
            Urge::Zeroed => Operation::Zeroed { name, version, words: self.large() },
            Urge::Replace => Operation::Replace { name, version },
            Urge::InPlace if self.random.percent(50) => {
                Operation::Put { name, version, words: 3 + self.random.below(100) as u32, index: 0 }
            }
            Urge::InPlace => Operation::InPlace { name, version },
            Urge::View => Operation::Hold { seed: self.random.any() },
            Urge::Delete if self.random.percent(50) => {
                Operation::DeleteGroup { group: name.group() }
            }
            Urge::Delete => Operation::Delete { name },
            Urge::Rename => Operation::Rename { old: name, new: Name::any(&mut self.random) },
            Urge::Batch => self.batch(),
            Urge::Move if self.random.percent(40) => {
                Operation::Roam { seed: self.random.any(), version }
            }
            Urge::Move | Urge::Publish => {
                travel::any(&mut self.random, version, urge == Urge::Publish)
            }
            Urge::Grid => Operation::Grid { seed: self.random.any(), version },
            Urge::Watch => Operation::Watch,
            Urge::File => Operation::File { seed: self.random.any(), version },
            Urge::Crowd => Operation::Crowd { seed: self.random.any(), version },
            Urge::Queue if self.random.percent(30) => Operation::Drain,
            Urge::Queue => Operation::Put { name, version, words: 9, index: 7 },
            // By turns the worker's segments become many and few.
            Urge::Index => match (self.random.below(6), version / 64 % 2) {
                (0, _) => Operation::Maintain,
                (1, _) => Operation::Query { seed: self.random.any() },
                (2 | 3, 1) => Operation::DeleteGroup { group: name.group() },
                (_, 1) => Operation::Delete { name },
                _ => Operation::Put { name, version, words: 9, index: 0 },
            },
        }
    }
}

/// What a batch does: operations that follow from its seed. Their versions are its own.
pub fn batch(seed: u64, version: u64, many: u8) -> Vec<Operation> {
    let mut choice = Choice { random: Random(seed), version };
    // Space for values of one length is reserved ahead.
    let alike = choice.random.percent(50).then(|| choice.large());
    let within = |choice: &mut Choice| {
        let name = Name::any(&mut choice.random);
        match (choice.random.below(8), alike) {
            (0..5, Some(words)) => Operation::Put { name, version, words, index: 0 },
            (0..3, None) => choice.put(),
            (3 | 4, None) => choice.allocate(name),
            (5, _) => Operation::Delete { name },
            (6, _) => Operation::Rename { old: name, new: Name::any(&mut choice.random) },
            _ => Operation::Annotate { name, version },
        }
    };
    (0..many).map(|_| within(&mut choice)).collect()
}

/// When an object is indexed, for a number in an operation.
pub fn index_mode(index: u8) -> IndexMode {
    match index {
        0..5 => IndexMode::Sync,
        5 => IndexMode::None,
        _ => IndexMode::Async,
    }
}

impl Operation {
    /// Whether others may move what it changes.
    fn may_be_busy(&self) -> bool {
        matches!(self, Operation::Roam { .. })
    }

    /// What it is, for people: also what follows from its seed.
    pub fn told(&self) -> String {
        match self {
            Operation::File { seed, .. } => format!("{self:?}: {}", files::told(*seed)),
            _ => format!("{self:?}"),
        }
    }

    /// As four words, for the log.
    pub(crate) fn to_words(&self) -> [u64; 4] {
        use Operation as O;
        let sized = |name: &Name, words: &u32, index: u8| {
            u64::from(name.0) | u64::from(index) << 8 | u64::from(*words) << 16
        };
        match self {
            O::Put { name, version, words, index } => [1, sized(name, words, *index), *version, 0],
            O::Allocate { name, version, words, index } => {
                [2, sized(name, words, *index), *version, 0]
            }
            O::Abandon { name, version, words } => [3, sized(name, words, 0), *version, 0],
            O::Zeroed { name, version, words } => [4, sized(name, words, 0), *version, 0],
            O::Replace { name, version } => [5, name.0.into(), *version, 0],
            O::InPlace { name, version } => [6, name.0.into(), *version, 0],
            O::Delete { name } => [7, name.0.into(), 0, 0],
            O::DeleteGroup { group } => [8, (*group).into(), 0, 0],
            O::Rename { old, new } => [9, old.0.into(), new.0.into(), 0],
            O::Annotate { name, version } => [10, name.0.into(), *version, 0],
            O::Batch { seed, version, many } => [11, (*many).into(), *version, *seed],
            O::Pad { name } => [12, name.0.into(), 0, 0],
            O::NewKey { name, version } => [13, name.0.into(), *version, 0],
            O::Scratch { words } => [14, (*words).into(), 0, 0],
            O::Grow => [15, 0, 0, 0],
            O::Common { seed, version } => [16, 0, *version, *seed],
            O::Query { seed } => [17, 0, 0, *seed],
            O::Maintain => [18, 0, 0, 0],
            O::Drain => [19, 0, 0, 0],
            O::Hold { seed } => [20, 0, 0, *seed],
            O::Fork => [21, 0, 0, 0],
            O::Reopen { drop_views } => [22, (*drop_views).into(), 0, 0],
            O::Arrive { place, version, words, private } => {
                [23, sized(&Name(*place), words, (*private).into()), *version, 0]
            }
            O::Leave { place } => [24, (*place).into(), 0, 0],
            O::Move { places, from, to } => {
                [25, (*places).into(), u64::from(*from) | u64::from(*to) << 8, 0]
            }
            O::MoveRun { to } => [26, 0, u64::from(*to) << 8, 0],
            O::Snap => [27, 0, 0, 0],
            O::Lock { seed } => [28, 0, 0, *seed],
            O::Roam { seed, version } => [29, 0, *version, *seed],
            O::Grid { seed, version } => [30, 0, *version, *seed],
            O::Mode { which } => [31, (*which).into(), 0, 0],
            O::Watch => [32, 0, 0, 0],
            O::File { seed, version } => [33, 0, *version, *seed],
            O::Crowd { seed, version } => [34, 0, *version, *seed],
            O::Exec => [35, 0, 0, 0],
        }
    }

    /// What four words of a log say.
    pub(crate) fn from_words([kind, first, second, seed]: [u64; 4]) -> Self {
        use Operation as O;
        let (name, version) = (Name(first as u8), second);
        let (index, words) = ((first >> 8) as u8, (first >> 16) as u32);
        match kind {
            1 => O::Put { name, version, words, index },
            2 => O::Allocate { name, version, words, index },
            3 => O::Abandon { name, version, words },
            4 => O::Zeroed { name, version, words },
            5 => O::Replace { name, version },
            6 => O::InPlace { name, version },
            7 => O::Delete { name },
            8 => O::DeleteGroup { group: first as u8 },
            9 => O::Rename { old: name, new: Name(second as u8) },
            10 => O::Annotate { name, version },
            11 => O::Batch { seed, version, many: first as u8 },
            12 => O::Pad { name },
            13 => O::NewKey { name, version },
            14 => O::Scratch { words: first as u32 },
            15 => O::Grow,
            16 => O::Common { seed, version },
            17 => O::Query { seed },
            18 => O::Maintain,
            19 => O::Drain,
            20 => O::Hold { seed },
            21 => O::Fork,
            22 => O::Reopen { drop_views: first != 0 },
            23 => O::Arrive { place: first as u8, version, words, private: index != 0 },
            24 => O::Leave { place: first as u8 },
            25 => O::Move { places: first as u8, from: second as u8, to: (second >> 8) as u8 },
            26 => O::MoveRun { to: (second >> 8) as u8 },
            27 => O::Snap,
            28 => O::Lock { seed },
            29 => O::Roam { seed, version },
            30 => O::Grid { seed, version },
            31 => O::Mode { which: first as u8 },
            32 => O::Watch,
            33 => O::File { seed, version },
            34 => O::Crowd { seed, version },
            35 => O::Exec,
            _ => panic!("the log has an operation of kind {kind}"),
        }
    }
}
