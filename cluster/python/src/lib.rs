//! The module `engram.cluster._cluster`: clusters as Python sees them.
//!
//! These are natives for the package in `python/engram/cluster`, not an interface of their own.
//! Manifests and nodes pass as JSON, bytes as buffers. Whatever asks another process lets go of the
//! interpreter meanwhile; a member's lease is renewed by threads that never take it.

#![allow(clippy::needless_pass_by_value)] // values of Python's are given whole
#![allow(clippy::too_many_arguments)] // natives take what the package has taken apart

mod buffer;
mod certificates;
mod cluster;
mod engine;
mod error;
mod node;
mod together;
mod tree;

use pyo3::prelude::*;

#[pymodule]
mod _cluster {
    #[pymodule_export]
    use crate::certificates::{certify_host, certify_user, make_authority};
    #[pymodule_export]
    use crate::cluster::{Cluster, Draft, NewPart};
    #[pymodule_export]
    use crate::node::{Node, check_etcd_version, check_pool, etcd_asked, etcd_version, node_of};
    #[pymodule_export]
    use crate::together::Together;
    #[pymodule_export]
    use crate::tree::{Tree, homes, query_node};
}
