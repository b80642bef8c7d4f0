//! Room, growth, and the media below: disks, persistent memory, devdax nodes.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod bounds;
mod cgroup;
mod compact;
mod devdax;
mod growth;
mod pmem;
mod space;
mod sync;
mod vacant;
