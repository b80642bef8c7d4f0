//! Which bytes of an arena are whose, and which processes look at them.
//!
//! This crate owns free and reserved extents ([`extent`]) and leases ([`lease`]): allocation, the
//! reuse of what was freed, and who is alive. It does not know what a record says, nor what a batch
//! or a view is.
//!
//! *Invariant*: every byte of an arena is free, reserved under a lease, in use by one record, or
//! freed and waiting; and no byte is given away while a process that is alive may look at it (P2,
//! P3).
//!
//! | module | what it offers |
//! |---|---|
//! | [`extent`] | free and reserved extents, spans and the arena: allocation and reclaim |
//! | [`head`] | the head of a file: size, times, tail and map, as every process changes them |
//! | [`lease`] | leases, their ages, pins and locks, and the leases of other processes |

#![deny(missing_docs)]

pub mod extent;
pub mod head;
pub mod lease;
