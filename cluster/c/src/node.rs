//! This process's part in serving the node of its host.

use engram_driver::credentials;
use engram_driver::error::Error;
use engram_driver::node::{Node as Driven, NodeOptions, Standing};
use engram_edge::raw;
use std::ffi::c_char;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::status::{Status, guard};

/// How long superseded parts are kept, and a name is waited for.
const KEPT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A process's part in serving a node pool.
pub struct Node(#[expect(dead_code, reason = "its end is what it is kept for")] Driven);

/// Takes part in serving this host's node pool, from threads of this process, until the node is
/// freed. Of the processes of a host that take part one serves, and the others wait for its end.
/// Returns when the node is served, by whichever. `host` is the name or address at which others
/// find this host; NULL: the host's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_serve(
    cluster: *const Cluster,
    host: *const c_char,
    node: *mut *mut Node,
) -> Status {
    guard(|| {
        let out = raw::out("node", node)?;
        let facts = &raw::of("cluster", cluster)?.facts;
        let host = raw::text_or("host", host, "")?;
        let host = if host.is_empty() { credentials::host_name() } else { host.to_owned() };
        let Some(pool) = facts.pool.clone() else {
            return Err(Error::Argument(format!(
                "this host has no node pool of the cluster {:?}: start a node of it with `engram \
                 cluster start`",
                facts.name
            )));
        };
        let driven = Driven::start(NodeOptions {
            cluster: facts.name.clone(),
            pool,
            etcd: facts.etcd.clone(),
            ttl: facts.ttl,
            tls: credentials::tls(facts.tls.as_deref(), &[&host])?,
            host,
            weight: 1.0,
            kept: KEPT,
            table: facts.table,
            caller: None,
        })?;
        let until = Instant::now() + KEPT;
        loop {
            match driven.standing() {
                Standing::Serves(_) | Standing::Waits => break,
                Standing::Ended(why) => {
                    let why = why.unwrap_or_else(|| "the cluster was stopped".to_owned());
                    return Err(Error::NodeAway(format!(
                        "the node of {:?} has ended: {why}",
                        facts.name
                    )));
                }
                Standing::Joins if Instant::now() > until => {
                    return Err(Error::Coordinator(format!(
                        "the node of {:?} has not joined within {} s: etcd does not answer, or \
                         another host serves a copy of the pool",
                        facts.name,
                        KEPT.as_secs()
                    )));
                }
                Standing::Joins => std::thread::sleep(LOOK_EVERY),
            }
        }
        out.set(raw::give(Node(driven)));
        Ok(())
    })
}

/// Ends this process's part. What lies in the pool stays. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_node_free(node: *mut Node) {
    drop(raw::take(node));
}
