//! How a cluster stays one: leases, the map, manifests, publishing, reading, placement.
//!
//! A *cluster* is the node pools of several nodes under one name. A *member* is a node pool in one
//! life. A *coordinator* (etcd) decides who is a member and what a name means; a *node server*
//! answers for a node pool's bytes.
//!
//! This crate owns the protocols between these, as state machines. A machine is told what happened
//! and what its own clock says, and tells what to do: what to ask the coordinator, what to fetch
//! from a node, when to be woken. It opens no file and no socket, starts no thread and reads no
//! clock. So the same code runs below real drivers and in a simulation that replays a history from
//! its seed.
//!
//! *Invariant*: one sealed (name, generation) has one content for ever; nobody is answered by a
//! member that was struck from the map; a manifest names only parts that were whole and checked.
//! Each rule that keeps this has its name in [`Rule`], and the simulation finds what breaks without
//! it.
//!
//! | module | what it offers |
//! |---|---|
//! | [`coordinator`] | what is asked of the coordinator, in which words, and where its keys lie |
//! | [`clock`] | moments of one machine's own clock |
//! | [`map`] | which nodes there are, and how each stands |
//! | [`lease`] | how long a member may answer |
//! | [`membership`] | how a node becomes a member and stays one |
//! | [`strike`] | how a member whose lease has ended leaves the map |
//! | [`stop`] | how processes learn that they are to end |
//! | [`manifest`] | what a name of the cluster is: parts, boxes, holders |
//! | [`maker`] | how a process that publishes is known to live |
//! | [`publish`] | how a manifest takes effect |
//! | [`read`] | how parts are found and fetched |
//! | [`holdings`] | which parts of a node pool count, and which are free |
//! | [`placement`] | where names and parts go |

#![deny(missing_docs)]

pub mod clock;
pub mod coordinator;
pub mod holdings;
pub mod lease;
pub mod maker;
pub mod manifest;
pub mod map;
pub mod membership;
pub mod placement;
pub mod publish;
mod question;
pub mod read;
mod rules;
pub mod stop;
pub mod strike;

pub use rules::{Rule, Rules};

/// What a machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<T> {
    /// Ask the coordinator, and bring its reply with this token.
    Ask {
        /// What the reply is brought with.
        token: u64,
        /// What is asked.
        request: coordinator::Request,
    },
    /// Call `tick` at this moment at the latest.
    Wake(clock::Moment),
    /// Something that only this machine asks for.
    Own(T),
}
