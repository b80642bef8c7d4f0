//! Open clusters, and their names.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engram_driver::cluster::{Cluster as Driven, ClusterOptions};
use engram_driver::credentials;
use engram_driver::error::{Error, Result};
use engram_driver::known::{Known, bare_name};
use engram_edge::error::c_string;
use engram_edge::raw;
use engram_parts::table::Table;

use crate::status::{Status, guard};

/// How long anything is waited for, if nothing else is said.
const DEADLINE: Duration = Duration::from_secs(30);

/// How a cluster is opened. What is not set is taken from this user's file of the cluster.
#[derive(Default)]
pub struct Options {
    etcd: Option<Vec<String>>,
    pool: Option<PathBuf>,
    tls: Option<PathBuf>,
    deadline: Option<Duration>,
    ttl: Option<Duration>,
}

/// An open cluster.
pub struct Cluster {
    pub(crate) driven: Arc<Driven>,
    pub(crate) facts: Facts,
}

/// What a cluster was opened by.
#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) etcd: Vec<String>,
    pub(crate) pool: Option<PathBuf>,
    pub(crate) tls: Option<PathBuf>,
    pub(crate) ttl: Duration,
    pub(crate) table: &'static Table,
}

fn seconds(what: &str, given: f64) -> Result<Duration> {
    let is_fit = given.is_finite() && given > 0.0 && given < 1e9;
    let odd = || Error::Argument(format!("{what} {given}: give a number of seconds above 0"));
    is_fit.then(|| Duration::from_secs_f64(given)).ok_or_else(odd)
}

/// Makes options. Free them with `engram_cluster_options_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_options_new(options: *mut *mut Options) -> Status {
    guard(|| {
        raw::out("options", options)?.set(raw::give(Options::default()));
        Ok(())
    })
}

/// Sets where etcd is: endpoints `HOST:PORT`, with commas between them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_options_etcd(
    options: *mut Options,
    endpoints: *const c_char,
) -> Status {
    guard(|| {
        let endpoints = raw::text("endpoints", endpoints)?;
        let etcd = endpoints.split(',').map(str::trim).filter(|one| !one.is_empty());
        raw::of_mut("options", options)?.etcd = Some(etcd.map(str::to_owned).collect());
        Ok(())
    })
}

/// Sets the path of this host's node pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_options_pool(
    options: *mut Options,
    path: *const c_char,
) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.pool = Some(raw::path("path", path)?.to_owned());
        Ok(())
    })
}

/// Sets the folder with the certificate of this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_options_tls(
    options: *mut Options,
    folder: *const c_char,
) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.tls = Some(raw::path("folder", folder)?.to_owned());
        Ok(())
    })
}

/// Sets how long a call waits for others, in seconds. The default is 30.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_options_deadline(
    options: *mut Options,
    deadline: f64,
) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.deadline = Some(seconds("deadline", deadline)?);
        Ok(())
    })
}

/// Sets how long leases run, in seconds. The default is 15.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_options_ttl(options: *mut Options, ttl: f64) -> Status {
    guard(|| {
        raw::of_mut("options", options)?.ttl = Some(seconds("ttl", ttl)?);
        Ok(())
    })
}

/// Frees options. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_options_free(options: *mut Options) {
    drop(raw::take(options));
}

fn facts(name: &str, options: &Options, table: &'static Table) -> Result<Facts> {
    let name = bare_name(name).to_owned();
    let known = if let Some(etcd) = &options.etcd {
        let ttl = Duration::from_secs(15);
        (etcd.clone(), None, None, ttl)
    } else {
        let known = Known::read(&name)?;
        (known.etcd.clone(), known.pool(), known.tls.clone(), known.ttl())
    };
    let (etcd, pool, tls, ttl) = known;
    Ok(Facts {
        name,
        etcd,
        pool: options.pool.clone().or(pool),
        tls: options.tls.clone().or(tls),
        ttl: options.ttl.unwrap_or(ttl),
        table,
    })
}

/// Opens a cluster by its name, or by its URL `engram://NAME`. The engine is what `engram_engine()`
/// gives. Without options, everything is taken from this user's file of the cluster, which a node
/// writes when it is started. Close the cluster with `engram_cluster_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_open(
    name: *const c_char,
    options: *const Options,
    engine: *const c_void,
    cluster: *mut *mut Cluster,
) -> Status {
    guard(|| {
        let out = raw::out("cluster", cluster)?;
        let none = Options::default();
        // SAFETY: by the conventions NULL, or options that were made here and not freed.
        let options = unsafe { options.as_ref() }.unwrap_or(&none);
        // A table is never freed, as long as its library is there. Its version, the first field in
        // every version, is compared where it is used.
        let table = raw::of("engine", engine.cast::<Table>())?;
        let facts = facts(raw::text("name", name)?, options, table)?;
        let driven = Driven::open(ClusterOptions {
            name: facts.name.clone(),
            etcd: facts.etcd.clone(),
            tls: credentials::tls(facts.tls.as_deref(), &[])?,
            pool: facts.pool.clone(),
            table,
            deadline: options.deadline.unwrap_or(DEADLINE),
            ttl: facts.ttl,
        })?;
        out.set(raw::give(Cluster { driven: Arc::new(driven), facts }));
        Ok(())
    })
}

/// Closes a cluster. Its arrays and shares must have been freed. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_close(cluster: *mut Cluster) {
    drop(raw::take(cluster));
}

/// Gives whether this host has a node pool of the cluster, into which this process can store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_has_pool(
    cluster: *const Cluster,
    has_pool: *mut bool,
) -> Status {
    guard(|| {
        let out = raw::out("has_pool", has_pool)?;
        out.set(raw::of("cluster", cluster)?.driven.own_node().is_some());
        Ok(())
    })
}

/// Gives the names that begin with a prefix, one in each line, in a string to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_names(
    cluster: *const Cluster,
    prefix: *const c_char,
    names: *mut *mut c_char,
) -> Status {
    guard(|| {
        let out = raw::out("names", names)?;
        let prefix = raw::text_or("prefix", prefix, "")?;
        let found = raw::of("cluster", cluster)?.driven.list(prefix)?;
        let lines: String = found.into_iter().map(|(name, _)| name + "\n").collect();
        out.set(c_string(lines).into_raw());
        Ok(())
    })
}

/// Removes a name. The nodes that hold its parts free them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_remove(
    cluster: *const Cluster,
    path: *const c_char,
) -> Status {
    guard(|| raw::of("cluster", cluster)?.driven.remove(raw::text("path", path)?))
}
