//! The files of a cluster's node: they lie in the folder of its pool, and go with the pool.
//!
//! The cluster's driver writes them; whoever destroys a pool knows their names alone.

/// Of which cluster the pool is, and which node.
pub const NODE: &str = "cluster.toml";
/// The same, while it is being written.
pub const NODE_HALF: &str = ".cluster.toml";
/// The lock of the process that serves.
pub const LOCK: &str = "cluster.lock";
/// When processes of the node were asked to end, for one that waits to serve.
pub const STOPPED: &str = "cluster.stopped";
/// All of them.
pub const ALL: [&str; 4] = [NODE, NODE_HALF, LOCK, STOPPED];
