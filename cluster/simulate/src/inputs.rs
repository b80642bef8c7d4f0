//! What clients do, and what fails.

use crate::random::Dice;
use crate::{S, Setup};

/// Clients in each history.
pub(crate) const CLIENTS: usize = 6;
/// Names that they publish.
pub(crate) const NAMES: u64 = 12;

/// Which messages a cut takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All that the node sends and is sent.
    All,
    /// What it sends to the coordinator.
    ToStore,
    /// What the coordinator sends to it.
    FromStore,
    /// What it and the coordinator send each other.
    Store,
    /// None: what it sends to the coordinator arrives when the cut ends.
    Late,
    /// What it and all others send each other, but for the coordinator.
    Peers,
    /// What it sends to others, but for the coordinator.
    ToPeers,
}

/// Something that happens at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// When, in nanoseconds.
    pub at: u64,
    /// What.
    pub kind: Kind,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A client publishes these names, each in so many parts with so many holders.
    Publish {
        /// Which client.
        client: usize,
        /// The names.
        names: Vec<u64>,
        /// Parts of each.
        parts: u32,
        /// Holders of each part.
        replicas: u32,
        /// How long it is at other things between its parts and the publication.
        long: u64,
    },
    /// A client publishes a name and removes others, at once.
    Replace {
        /// Which client.
        client: usize,
        /// The name that is published; none where others are removed only.
        name: Option<u64>,
        /// Those that are removed.
        removed: Vec<u64>,
    },
    /// A client removes a name.
    Remove {
        /// Which client.
        client: usize,
        /// The name.
        name: u64,
    },
    /// A client publishes a name anew with the parts that it has.
    Seal {
        /// Which client.
        client: usize,
        /// The name.
        name: u64,
    },
    /// A client reads a name.
    Read {
        /// Which client.
        client: usize,
        /// The name.
        name: u64,
    },
    /// A client's process ends, and another takes its place.
    Leave {
        /// Which client.
        client: usize,
    },
    /// Messages of a node are lost for so many nanoseconds.
    Cut {
        /// Which node.
        node: usize,
        /// Which messages.
        cut: Cut,
        /// How long.
        long: u64,
    },
    /// Messages of a client are lost for so many nanoseconds.
    CutClient {
        /// Which client.
        client: usize,
        /// Which messages.
        cut: Cut,
        /// How long.
        long: u64,
    },
    /// A node's processes stop, and go on.
    Pause {
        /// Which node.
        node: usize,
        /// How long.
        long: u64,
    },
    /// A node goes down, and comes back.
    Crash {
        /// Which node.
        node: usize,
        /// How many parts of a thousand it keeps; none: it comes back with another pool.
        keeps: Option<u64>,
        /// How long it is away.
        long: u64,
    },
    /// The process that serves a node dies, and another takes over.
    Death {
        /// Which node.
        node: usize,
    },
    /// A node has no room.
    Full {
        /// Which node.
        node: usize,
        /// How long.
        long: u64,
    },
    /// A node leaves, and joins again.
    Stop {
        /// Which node.
        node: usize,
        /// How long it is away.
        long: u64,
    },
    /// The coordinator does not answer.
    Silence {
        /// How long.
        long: u64,
    },
    /// The coordinator restarts: what it has done last it does not answer, and its leases begin
    /// anew.
    Restart {
        /// How long.
        long: u64,
    },
}

/// The cuts that there are.
const CUTS: [Cut; 7] =
    [Cut::All, Cut::ToStore, Cut::FromStore, Cut::Store, Cut::Late, Cut::Peers, Cut::ToPeers];

/// The inputs of a history, in the order of time.
pub(crate) fn of(setup: &Setup) -> Vec<Input> {
    let mut dice = Dice::new(&[setup.seed, setup.nodes as u64, 1]);
    let end = setup.seconds * S;
    let mut inputs = Vec::new();
    let mut at = 2 * S;
    while at < end {
        inputs.push(Input { at, kind: work(&mut dice) });
        at += dice.between(S / 10, S);
    }
    // Some histories are calm, some are not.
    let calm = 1 + dice.below(6);
    let mut at = 5 * S;
    while at < end {
        at += dice.between(S / 2, 8 * S) * calm;
        inputs.push(Input { at, kind: failure(&mut dice, setup.nodes as u64) });
    }
    inputs.sort_by_key(|input| input.at);
    inputs
}

fn work(dice: &mut Dice) -> Kind {
    let client = dice.below(CLIENTS as u64) as usize;
    let name = dice.below(NAMES);
    match dice.below(100) {
        0..35 => {
            let names = if dice.happens(150) { vec![name, (name + 1) % NAMES] } else { vec![name] };
            let (parts, replicas) = (1 + dice.below(4) as u32, 1 + dice.below(2) as u32);
            // Who takes long has a name of its own: else others publish it meanwhile.
            if dice.happens(100) {
                let (names, long) = (vec![NAMES + client as u64], dice.between(S, 90 * S));
                return Kind::Publish { client, names, parts, replicas, long };
            }
            Kind::Publish { client, names, parts, replicas, long: 0 }
        }
        35..38 => Kind::Remove { client, name },
        38..39 => {
            let others = [(name + 1) % NAMES, (name + 2) % NAMES];
            let name = dice.happens(700).then_some(name);
            let removed = others[..if name.is_some() { 1 } else { 2 }].to_vec();
            Kind::Replace { client, name, removed }
        }
        39..40 => Kind::Leave { client },
        40..44 => Kind::Seal { client, name },
        _ => Kind::Read { client, name },
    }
}

fn failure(dice: &mut Dice, nodes: u64) -> Kind {
    // Few nodes are used much: failures look for them.
    let node = dice.below(nodes.min(8)) as usize;
    let long = dice.between(S, 40 * S);
    match dice.below(130) {
        0..30 => Kind::Cut { node, cut: CUTS[dice.below(7) as usize], long },
        124.. => Kind::Restart { long: dice.between(S, 6 * S) },
        100.. => {
            let client = dice.below(CLIENTS as u64) as usize;
            Kind::CutClient { client, cut: CUTS[dice.below(7) as usize], long }
        }
        30..50 => Kind::Pause { node, long },
        50..58 => Kind::Crash { node, keeps: None, long },
        58..72 => Kind::Crash { node, keeps: Some(400 + dice.below(700)), long },
        72..84 => Kind::Death { node },
        84..90 => Kind::Full { node, long },
        90..96 => Kind::Stop { node, long },
        _ => Kind::Silence { long: long / 3 },
    }
}
