//! This process's part in serving the node of its host.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use engram_base::mutex::lock;
use engram_driver::credentials;
use engram_driver::error::{Error, Result};
use engram_driver::node::{Node as Driven, NodeFile, NodeOptions, Standing};
use engram_edge::raw;

use crate::cluster::Cluster;
use crate::status::{Status, guard};

/// How long superseded parts are kept for those who have looked them up.
const KEPT: Duration = Duration::from_secs(60);
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Nodes that this process serves, or waits to serve, by the places of their pools.
static SERVED: Mutex<BTreeMap<PathBuf, Weak<Driven>>> = Mutex::new(BTreeMap::new());

/// The part that a process takes in serving a node pool. Several handles of one pool share it, and
/// it ends when the last of them is freed.
pub struct Node(#[expect(dead_code, reason = "its end is what it is kept for")] Arc<Driven>);

/// Takes part in serving this host's node pool, from threads of this process, until the node is
/// freed. Of the processes of a host that take part one serves, and the others wait for its end.
/// Returns when the node is served, by whichever. `host` is the name or address at which others
/// find this host; NULL: that of the node before, or the host's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_serve(
    cluster: *const Cluster,
    host: *const c_char,
    node: *mut *mut Node,
) -> Status {
    guard(|| {
        let out = raw::out("node", node)?;
        let cluster = raw::of("cluster", cluster)?;
        let host = raw::text_or("host", host, "")?;
        let driven = taking_part(cluster, host)?;
        wait(&driven, &cluster.facts.name)?;
        out.set(raw::give(Node(driven)));
        Ok(())
    })
}

fn taking_part(cluster: &Cluster, host: &str) -> Result<Arc<Driven>> {
    let facts = &cluster.facts;
    let Some(pool) = facts.pool.clone() else {
        return Err(Error::Argument(format!(
            "this host has no node pool of the cluster {:?}: start a node of it with `engram \
             cluster start`",
            facts.name
        )));
    };
    let place = pool.canonicalize().unwrap_or_else(|_| pool.clone());
    let mut served = lock(&SERVED);
    if let Some(there) = served.get(&place).and_then(Weak::upgrade) {
        return Ok(there);
    }
    let before = NodeFile::of_cluster(&pool, &facts.name)?
        .and_then(|file| cluster.driven.entry_of(&file.node));
    let weight = before.as_ref().map_or(1.0, |entry| entry.identity.weight);
    let address = before
        .and_then(|entry| entry.identity.address.rsplit_once(':').map(|(host, _)| host.to_owned()));
    let host = match (host, address) {
        ("", Some(address)) => address.trim_matches(['[', ']']).to_owned(),
        ("", None) => credentials::host_name(),
        (host, _) => host.to_owned(),
    };
    let driven = Arc::new(Driven::start(NodeOptions {
        cluster: facts.name.clone(),
        pool,
        etcd: facts.etcd.clone(),
        ttl: facts.ttl,
        tls: credentials::tls(facts.tls.as_deref(), &[&host])?,
        host,
        weight,
        kept: KEPT,
        table: facts.table,
        caller: None,
    })?);
    served.retain(|_, node| node.strong_count() > 0);
    served.insert(place, Arc::downgrade(&driven));
    Ok(driven)
}

/// Waits until a node is served.
fn wait(driven: &Driven, cluster: &str) -> Result<()> {
    let until = Instant::now() + SERVED_WITHIN;
    loop {
        match driven.standing() {
            Standing::Serves(_) | Standing::Waits => return Ok(()),
            Standing::Ended(why) => {
                let why = why.unwrap_or_else(|| "the cluster was stopped".to_owned());
                return Err(Error::NodeAway(format!("the node of {cluster:?} has ended: {why}")));
            }
            Standing::Joins if Instant::now() > until => {
                return Err(Error::Coordinator(format!(
                    "the node of {cluster:?} has not joined within {} s: etcd does not answer, or \
                     another host serves a copy of the pool",
                    SERVED_WITHIN.as_secs()
                )));
            }
            Standing::Joins => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// Ends this process's part in serving. The data stay in the pool. NULL is allowed, and does
/// nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_node_free(node: *mut Node) {
    drop(raw::take(node));
}
