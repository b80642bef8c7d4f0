//! What a process learns of a cluster by its name alone: where its etcd is, and this host's pool.
//!
//! It is a file of the user, which `engram.cluster` writes when a node is started:
//! `~/.local/state/engram/clusters/NAME.json` if nothing else is said.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use engram_base::error::Error as StoreError;
use rustix::system::uname;
use serde::Deserialize;

use crate::cluster::check_name;
use crate::error::{Error, Result};

/// What a process must know of a cluster.
#[derive(Clone, Debug, Deserialize)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// The endpoints of etcd, each `HOST:PORT`.
    pub etcd: Vec<String>,
    /// How long leases run, in seconds.
    ttl: f64,
    /// The folder of this user's certificates; without one connections are plain.
    pub tls: Option<PathBuf>,
    /// The node pool of each host, by the host's name.
    pools: BTreeMap<String, PathBuf>,
}

impl Known {
    /// What is known of a cluster, by its name or its URL.
    pub fn read(name: &str) -> Result<Known> {
        let bare = bare_name(name);
        check_name(bare)?;
        let path = folder().join(format!("{bare}.json"));
        let shown = path.display();
        let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::NotFound(format!(
                "nothing is known here of the cluster {bare:?}: {shown} is not there; start a node \
                 of it on this host"
            )),
            _ => Error::Store(StoreError::os(&shown, &error)),
        })?;
        let known: Known = serde_json::from_str(&text).map_err(|error| {
            Error::Corrupt(format!("{shown} cannot be read: {error}; remove it, and start a node"))
        })?;
        if known.ttl.is_finite() && known.ttl > 0.0 {
            return Ok(known);
        }
        Err(Error::Corrupt(format!(
            "{shown} has a ttl of {}: remove it, and start a node",
            known.ttl
        )))
    }

    /// How long leases run.
    pub fn ttl(&self) -> Duration {
        Duration::from_secs_f64(self.ttl)
    }

    /// The node pool of this host, if it has one.
    pub fn pool(&self) -> Option<PathBuf> {
        let host = uname().nodename().to_string_lossy().into_owned();
        self.pools.get(&host).filter(|pool| pool.exists()).cloned()
    }
}

/// The name of a cluster, also where it is a URL.
pub fn bare_name(name: &str) -> &str {
    name.strip_prefix("engram://").unwrap_or(name).trim_end_matches('/')
}

fn folder() -> PathBuf {
    let given = |key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = given("XDG_STATE_HOME")
        .unwrap_or_else(|| given("HOME").unwrap_or_default().join(".local/state"));
    base.join("engram/clusters")
}
