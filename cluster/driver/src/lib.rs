//! Drives a cluster's protocols: etcd, node servers, parts in node pools, readers and makers.
//!
//! This crate owns the doing of what the machines of `engram-protocol` decide: it asks etcd, serves
//! and fetches bytes by HTTP, keeps parts in node pools, and reads the machine's clock.
//!
//! *Invariant*: it decides nothing that a machine decides. What a node says, it says while its
//! machine says that it may.
//!
//! | module | what it offers |
//! |---|---|
//! | [`etcd`] | etcd, by its JSON gateway |
//! | `coordinator` | whom a process asks for rows: etcd, or nodes |
//! | [`clock`] | this machine's own clock |
//! | [`node`] | a node pool, and the process of the host that serves it |
//! | [`calls`] | calls of methods, which the process that serves has run |
//! | [`cluster`] | a cluster as its users have it |
//! | [`known`] | what this user's files say of a cluster |
//! | [`credentials`] | certificates, as folders have them |
//! | [`together`] | what several processes make, and one of them publishes |
//! | [`reading`] | parts, fetched to where they are wanted |
//! | `lock` | the lock of a node pool |
//! | `making` | parts, made and sealed at their holders |
//! | `operating` | a cluster as its operator has it |
//! | `plan` | which parts of several processes get which numbers |
//! | `session` | this process as a maker |
//! | [`trees`] | subtrees as users have them |
//! | `worker` | what a node does with its pool that may take long |
//! | `routes`, `tree_routes` | what a node server answers |
//! | [`error`] | what can go wrong, by what the caller does about it |

#![deny(missing_docs)]

mod box_copy;
pub mod calls;
pub mod clock;
pub mod cluster;
mod coordinator;
pub mod credentials;
pub mod error;
pub mod etcd;
pub mod known;
mod lock;
mod making;
pub mod node;
mod operating;
mod plan;
mod reading;
mod routes;
mod session;
pub mod together;
mod tree_routes;
pub mod trees;
mod worker;
