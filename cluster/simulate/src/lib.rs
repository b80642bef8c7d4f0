//! Histories of a cluster, each from one seed.
//!
//! A history is the shipped state machines of `engram-protocol` in a world of its own: a
//! coordinator, nodes and clients with clocks of their own, a network that loses, doubles and
//! delays messages. The seed makes a list of inputs (what clients do, and what fails), and decides
//! how each message fares. The same seed gives the same history, and an input that is left out
//! changes no other message.
//!
//! This crate owns what is looked at in a history ([`Violation`]), and how the shortest list of
//! inputs is found that violates it yet ([`shortest`]).
//!
//! *Invariant*: the world knows the truth, and the machines are told nothing of it.
//!
//! | module | what it offers |
//! |---|---|
//! | `random` | numbers that only a seed decides |
//! | `store` | the coordinator |
//! | `inputs` | what clients do, and what fails |
//! | `network` | how a message fares |
//! | `truth` | what is so, and what must never be |
//! | `client` | those who publish and read |
//! | `node` | those who hold |
//! | `world` | the events, in the order of time |

mod client;
mod inputs;
mod network;
mod node;
mod random;
mod store;
mod truth;
mod world;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use engram_protocol::Rules;

pub use inputs::Input;
pub use truth::Violation;

/// Nanoseconds in a second.
const S: u64 = 1_000_000_000;

/// What a history is made of.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The number of nodes.
    pub nodes: usize,
    /// How long clients work and things fail, in seconds. A time of peace follows.
    pub seconds: u64,
    /// The rules that hold.
    pub rules: Rules,
    /// What decides everything else.
    pub seed: u64,
}

/// What happened in a history.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Events.
    pub events: u64,
    /// Publications that took effect.
    pub published: u64,
    /// Publications that did not.
    pub refused: u64,
    /// Names that were read.
    pub read: u64,
    /// Reads that ended otherwise.
    pub unread: u64,
    /// Members that were struck.
    pub struck: u64,
    /// Names whose parts were entered again.
    pub entered: u64,
    /// Parts that were freed.
    pub freed: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events; {} publications took effect, {} did not; {} reads ended with a value, {} \
             without; {} members were struck; {} names were entered again; {} parts were freed",
            self.events,
            self.published,
            self.refused,
            self.read,
            self.unread,
            self.struck,
            self.entered,
            self.freed
        )
    }
}

impl Tally {
    /// Adds those of another history.
    pub fn add(&mut self, other: &Tally) {
        self.events += other.events;
        self.published += other.published;
        self.refused += other.refused;
        self.read += other.read;
        self.unread += other.unread;
        self.struck += other.struck;
        self.entered += other.entered;
        self.freed += other.freed;
    }
}

/// The inputs of a history.
pub fn inputs(setup: &Setup) -> Vec<Input> {
    inputs::of(setup)
}

/// Runs a history with these inputs: what was done, or what must never be.
pub fn run(setup: &Setup, inputs: &[Input]) -> Result<Tally, Violation> {
    world::World::new(setup, false).run(inputs)
}

/// Runs the histories of these seeds on all processors: what was done, and which have a violation.
pub fn run_all(setup: &Setup, seeds: Range<u64>) -> (Tally, Vec<Setup>) {
    let next = AtomicU64::new(seeds.start);
    let ends = Mutex::new((Tally::default(), Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let setup = Setup { seed, ..*setup };
            let end = run(&setup, &inputs(&setup));
            let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
            match end {
                Ok(tally) => ends.0.add(&tally),
                Err(_) => ends.1.push(setup),
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (tally, mut violated) = ends.into_inner().unwrap_or_else(PoisonError::into_inner);
    violated.sort_by_key(|setup| setup.seed);
    (tally, violated)
}

/// How a history that has a violation is shown: the shortest one, line by line.
pub fn shown(setup: &Setup) -> String {
    let short = shortest(setup, &inputs(setup));
    let (lines, end) = told(setup, &short);
    let Setup { nodes, seed, seconds, .. } = setup;
    let end = end.map_or_else(|violation| violation.to_string(), |_| "no violation".to_owned());
    format!(
        "seed {seed}, {nodes} nodes, {seconds} s; its shortest history has {} inputs:\n{}\n{end}",
        short.len(),
        lines.join("\n")
    )
}

/// Runs it, and tells line by line what happened.
pub fn told(setup: &Setup, inputs: &[Input]) -> (Vec<String>, Result<Tally, Violation>) {
    let mut world = world::World::new(setup, true);
    let end = world.run(inputs);
    (world.into_lines(), end)
}

/// The shortest list of inputs, made by leaving some out, whose history has a violation yet.
pub fn shortest(setup: &Setup, inputs: &[Input]) -> Vec<Input> {
    let mut left = inputs.to_vec();
    let mut size = left.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        let before = left.len();
        while at < left.len() {
            let mut tried = left.clone();
            tried.drain(at..(at + size).min(left.len()));
            if run(setup, &tried).is_err() {
                left = tried;
            } else {
                at += size;
            }
        }
        if size > 1 {
            size = size.div_ceil(2);
        } else if left.len() == before {
            break;
        }
    }
    left
}
