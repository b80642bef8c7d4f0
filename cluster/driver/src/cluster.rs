//! A cluster as its users have it: names that are looked up, read and published.
//!
//! Any process can be a user, on a node of the cluster or beside it. On a node it reads the parts
//! that lie there in place, and makes its own there; what lies elsewhere it fetches.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engram_base::dtype::DType;
use engram_base::error::{Error as StoreError, Kind};
use engram_base::mutex::lock;
use engram_base::random;
use engram_base::telemetry::operation;
use engram_parts::table::Table;
use engram_parts::{Parts, dtype};
use engram_protocol::coordinator::{KEYS_MOST, Keys, LeaseId, Reply, Request, Revision, Row};
use engram_protocol::manifest::{BYTES_MOST, Holder, Manifest};
use engram_protocol::map::{Entry, Map, State};
use engram_protocol::publish::{NAMES_MOST, Outcome, Proposal, Publish, Seen};
use engram_protocol::strike::{Strike, Verdict};
use engram_protocol::{Action, Rules};
use engram_wire::{Client, Method, Tls};
use serde_json::Value;

use crate::clock::{now, wall};
use crate::coordinator::{Coordinator, no_answer};
use crate::error::{Error, Result};
use crate::node::{NodeFile, Place};
use crate::session::{Beginning, Session};

/// Between two looks at what passes.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How a cluster is opened.
#[derive(Clone)]
pub struct ClusterOptions {
    /// Its name.
    pub name: String,
    /// The endpoints of etcd, each `HOST:PORT`; with a user's certificate, those of node servers.
    pub etcd: Vec<String>,
    /// This process's certificate: a member's, or a user's, who only reads.
    pub tls: Option<Tls>,
    /// The node pool of this host, if it has one.
    pub pool: Option<PathBuf>,
    /// The engine of this process.
    pub table: &'static Table,
    /// How long anything is waited for.
    pub deadline: Duration,
    /// How long the lease of this process as a maker runs.
    pub ttl: Duration,
}

/// The node pool of this host, opened by this process.
pub(crate) struct Local {
    node: String,
    place: Place,
    pub(crate) parts: Parts,
}

/// An open cluster.
pub struct Cluster {
    pub(crate) keys: Keys,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) wire: Client,
    map: Mutex<Map>,
    local: Option<Local>,
    maker: Mutex<Option<Arc<Session>>>,
    pub(crate) deadline: Duration,
    ttl: Duration,
}

/// Names as a maker saw them before it made anything.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Who makes it.
    pub maker: LeaseId,
    /// What the names are to be when they are published: filled in by the maker.
    pub proposals: Vec<Proposal>,
    /// The generation that the names will have at least.
    pub generation: Revision,
    /// Which of the names are groups of the cluster now.
    pub groups: Vec<String>,
    /// Which of the names are not there and lie below a group of the cluster, and below which.
    pub below: Vec<(String, String)>,
    seen: Seen,
    /// The map at that epoch.
    map: Map,
    beginning: Arc<Beginning>,
}

impl Draft {
    /// Which of its maker's publications it is: its parts say so.
    pub fn begun(&self) -> u64 {
        self.beginning.number
    }
}

impl Cluster {
    /// Opens a cluster: etcd answers, and can be trusted; there may be no member yet.
    pub fn open(options: ClusterOptions) -> Result<Cluster> {
        let _operation = operation!(INFO, "cluster.open", cluster = %options.name);
        let ClusterOptions { name, etcd, tls, pool, table, deadline, ttl } = options;
        check_name(&name)?;
        let coordinator = Arc::new(Coordinator::open(&etcd, tls.as_ref(), ttl / 6)?);
        let local = pool.map(|pool| Local::open(&name, &pool, table)).transpose()?.flatten();
        let cluster = Cluster {
            keys: Keys::new(&name),
            coordinator,
            wire: Client::new(tls.as_ref()),
            map: Mutex::default(),
            local,
            maker: Mutex::default(),
            deadline,
            ttl,
        };
        cluster.read_map()?;
        Ok(cluster)
    }

    /// All nodes, as the map has them now.
    pub fn nodes(&self) -> Result<Vec<Entry>> {
        Ok(self.read_map()?.nodes().cloned().collect())
    }

    /// A node, as the map had it when it was read last.
    pub fn entry_of(&self, node: &str) -> Option<Entry> {
        lock(&self.map).node(node).map(|(entry, _)| entry.clone())
    }

    /// The epoch of the map as it was read last.
    pub fn epoch(&self) -> Revision {
        lock(&self.map).epoch
    }

    /// The node of this host, if it has one: a copy of its pool is not it.
    pub fn own_node(&self) -> Option<&str> {
        let local = self.local.as_ref()?;
        let map = lock(&self.map);
        let is_copy =
            map.node(&local.node).is_some_and(|(entry, _)| !local.place.is_of(&entry.identity));
        (!is_copy).then_some(local.node.as_str())
    }

    /// The parts of this host's node pool.
    pub fn own_parts(&self) -> Option<&Parts> {
        self.local.as_ref().map(|local| &local.parts)
    }

    /// The holder that this host's node is now.
    pub fn own_holder(&self) -> Result<Holder> {
        let local = self.local.as_ref().ok_or_else(|| {
            Error::Argument("this process has no node pool: open the cluster with one".to_owned())
        })?;
        let serving = |map: &Map| {
            map.node(&local.node)
                .filter(|(entry, _)| entry.state == State::Serving)
                .filter(|(entry, _)| local.place.is_of(&entry.identity))
                .map(|(entry, _)| Holder { node: local.node.clone(), member: entry.member })
        };
        if let Some(own) = serving(&lock(&self.map)) {
            return Ok(own);
        }
        serving(&self.read_map()?).ok_or_else(|| {
            Error::Fenced(format!(
                "node {} is no member for the moment: its parts can be read and written here, and \
                 nothing of it published",
                local.node
            ))
        })
    }

    /// The holder that this host's node is now, by a map that is read anew. While the node is
    /// between two members it is waited for, until the deadline.
    pub(crate) fn own_holder_now(&self) -> Result<Holder> {
        let until = now() + self.deadline;
        loop {
            self.read_map()?;
            match self.own_holder() {
                Err(Error::Fenced(_)) if now() < until => std::thread::sleep(LOOK_EVERY),
                found => return found,
            }
        }
    }

    /// The pool of this host, if it is this node's, and no copy of it.
    pub(crate) fn local_of(&self, node: &str) -> Option<&Local> {
        let local = self.local.as_ref().filter(|local| local.node == node)?;
        let map = lock(&self.map);
        let (entry, _) = map.node(node)?;
        local.place.is_of(&entry.identity).then_some(local)
    }

    pub(crate) fn read_map(&self) -> Result<Map> {
        match self.coordinator.answer(&Request::List { prefix: self.keys.map() }) {
            Reply::Rows { rows, .. } => {
                let map = Map::of(&self.keys, &rows).map_err(Error::Corrupt)?;
                self.learn(&map);
                Ok(map)
            }
            _ => Err(self.no_coordinator()),
        }
    }

    /// The map as it was read last.
    pub(crate) fn map(&self) -> Map {
        lock(&self.map).clone()
    }

    /// Keeps a map, unless a newer one is known.
    pub(crate) fn learn(&self, map: &Map) {
        self.coordinator.learn(map);
        let mut own = lock(&self.map);
        if map.epoch >= own.epoch {
            *own = map.clone();
        }
    }

    /// The endpoints of etcd: those that were given, and those that it has told of. With a user's
    /// certificate, the addresses of nodes.
    pub fn endpoints(&self) -> Vec<String> {
        self.coordinator.endpoints()
    }

    pub(crate) fn no_coordinator(&self) -> Error {
        no_answer(&self.coordinator)
    }

    /// A name's manifest, and the revision at which it was written.
    pub fn look_up(&self, path: &str) -> Result<Option<(Manifest, Revision)>> {
        Ok(self.look_up_all(&[path])?.pop().flatten())
    }

    /// The manifests of several names, as of one moment.
    pub fn look_up_all(&self, paths: &[&str]) -> Result<Vec<Option<(Manifest, Revision)>>> {
        let keys: Vec<String> = paths.iter().map(|path| self.keys.name(path)).collect();
        let Reply::Rows { rows, .. } =
            self.coordinator.answer(&Request::Get { keys: keys.clone() })
        else {
            return Err(self.no_coordinator());
        };
        let found = |(key, path): (&String, &&str)| {
            let Some(row) = rows.iter().find(|row| row.key == *key) else { return Ok(None) };
            let manifest = Manifest::decode(&row.value)
                .map_err(|why| Error::Corrupt(format!("{path:?}: {why}")))?;
            Ok(Some((manifest, row.modified)))
        };
        keys.iter().zip(paths).map(found).collect()
    }

    /// How long a pull of so many bytes may take. The deadline is for an answer to begin; where
    /// too few come at any time, the pull ends by itself.
    pub(crate) fn patience(&self, nbytes: usize) -> Duration {
        self.deadline + engram_wire::on_its_way(nbytes as u64)
    }

    /// The manifests of several names; the coordinator is asked again until the deadline.
    pub(crate) fn look_up_within(
        &self,
        paths: &[&str],
    ) -> Result<Vec<Option<(Manifest, Revision)>>> {
        let until = now() + self.deadline;
        loop {
            match self.look_up_all(paths) {
                Err(Error::Coordinator(_)) if now() < until => std::thread::sleep(LOOK_EVERY),
                found => return found,
            }
        }
    }

    /// All names that begin so, with their manifests.
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, Manifest)>> {
        let (root, start) = (self.keys.name(""), self.keys.name(prefix));
        match self.coordinator.answer(&Request::List { prefix: start }) {
            Reply::Rows { rows, .. } => {
                let told = |row: engram_protocol::coordinator::Row| {
                    let manifest = Manifest::decode(&row.value).map_err(Error::Corrupt)?;
                    Ok((row.key[root.len()..].to_owned(), manifest))
                };
                rows.into_iter().map(told).collect()
            }
            _ => Err(self.no_coordinator()),
        }
    }

    /// Ends what this process is as a maker, and closes connections, whoever has handles of the
    /// cluster still. One that is used anew begins anew.
    pub fn close(&self) {
        let session = lock(&self.maker).take();
        drop(session);
        self.wire.close_kept();
        self.coordinator.close_kept();
    }

    fn session(&self) -> Result<Arc<Session>> {
        self.coordinator.check_writer()?;
        let mut maker = lock(&self.maker);
        if let Some(own) = maker.as_ref().filter(|own| own.is_own()) {
            return Ok(Arc::clone(own));
        }
        let own = Arc::new(Session::start(&self.coordinator, &self.keys, self.ttl)?);
        *maker = Some(Arc::clone(&own));
        Ok(own)
    }

    /// Who this process is as a maker.
    pub(crate) fn maker(&self) -> Result<LeaseId> {
        self.session()?.id(self.deadline)
    }

    /// Begins a publication to which others add: who makes it, and what is held until its end.
    pub(crate) fn begin_together(&self) -> Result<(LeaseId, Arc<Beginning>)> {
        let session = self.session()?;
        let beginning = Arc::new(session.begin());
        Ok((session.id(self.deadline)?, beginning))
    }

    /// Looks names up that are to be published. The map is read before: whatever is made after this
    /// is made at holders that are members in it.
    pub fn draft(&self, paths: &[&str]) -> Result<Draft> {
        if paths.len() > NAMES_MOST {
            let count = paths.len();
            let why = format!("at most {NAMES_MOST} names are published at once, not {count}");
            return Err(Error::Argument(why));
        }
        let session = self.session()?;
        let (beginning, maker) = (Arc::new(session.begin()), session.id(self.deadline)?);
        let map = self.read_map()?;
        let (revision, rows) = self.rows_of_draft(paths)?;
        let of = |key: &str| rows.iter().find(|row| row.key == key);
        let mut below = Vec::new();
        for path in paths.iter().filter(|path| of(&self.keys.name(path)).is_none()) {
            let is_group = |above: &&str| {
                let manifest = of(&self.keys.name(above)).map(|row| Manifest::decode(&row.value));
                matches!(manifest, Some(Ok(manifest)) if manifest.array().is_none())
            };
            below.extend(
                above(path).find(is_group).map(|group| ((*path).to_owned(), group.to_owned())),
            );
        }
        let mut groups = Vec::new();
        let seen = |path: &&str| {
            let row = of(&self.keys.name(path));
            let manifest = row.and_then(|row| Manifest::decode(&row.value).ok());
            if manifest.as_ref().is_some_and(|own| own.array().is_none()) {
                groups.push((*path).to_owned());
            }
            let uuid = manifest.map(|own| own.uuid);
            Proposal {
                path: (*path).to_owned(),
                seen: row.map_or(0, |row| row.modified),
                seen_uuid: uuid,
                manifest: None,
            }
        };
        let proposals = paths.iter().map(seen).collect();
        let removed = of(&self.keys.removed()).map_or(0, |row| row.modified);
        let seen = Seen { epoch: map.epoch, removed };
        Ok(Draft { maker, proposals, generation: revision, groups, below, seen, map, beginning })
    }

    /// The rows of names that are to be published, of what is above them, and of what is removed;
    /// as of one moment, but for some of the names above where there are very many.
    fn rows_of_draft(&self, paths: &[&str]) -> Result<(Revision, Vec<Row>)> {
        let mut keys = vec![self.keys.removed()];
        keys.extend(paths.iter().map(|path| self.keys.name(path)));
        let over: BTreeSet<&str> = paths.iter().flat_map(|path| above(path)).collect();
        let over = over.into_iter().filter(|name| !paths.contains(name));
        keys.extend(over.map(|name| self.keys.name(name)));
        let (mut begun, mut all) = (None, Vec::new());
        for keys in keys.chunks(KEYS_MOST) {
            let request = Request::Get { keys: keys.to_vec() };
            let Reply::Rows { revision, rows } = self.coordinator.answer(&request) else {
                return Err(self.no_coordinator());
            };
            begun.get_or_insert(revision);
            all.extend(rows);
        }
        begun.map(|revision| (revision, all)).ok_or_else(|| self.no_coordinator())
    }

    /// Refuses manifests that cannot be published together: one that says what cannot be, or too
    /// many bytes for one transaction.
    pub fn check(manifests: &[(&str, &Manifest)]) -> Result<()> {
        let mut all = 0;
        for (path, manifest) in manifests {
            manifest.check().map_err(|why| Error::Argument(format!("{path:?}: {why}")))?;
            let nbytes = manifest.encode().len();
            all += nbytes;
            if nbytes > BYTES_MOST {
                let parts = manifest.array().map_or(0, |boxes| boxes.parts.len());
                return Err(Error::Argument(format!(
                    "the manifest of {path:?} has {nbytes} bytes, with {parts} parts; etcd takes \
                     {BYTES_MOST}: give fewer parts, or fewer and shorter attributes"
                )));
            }
        }
        if all > BYTES_MOST {
            let count = manifests.len();
            return Err(Error::Argument(format!(
                "the manifests of {count} names have {all} bytes, and etcd takes {BYTES_MOST} at \
                 once: publish fewer names together"
            )));
        }
        Ok(())
    }

    /// Publishes what was drafted: all names at once, or none.
    pub fn publish(&self, draft: Draft) -> Result<Revision> {
        let _operation = operation!(DEBUG, "cluster.publish");
        let Draft { maker, proposals, below, mut seen, map, beginning, .. } = draft;
        check_below(&below, &proposals)?;
        let manifests: Vec<(&str, &Manifest)> = (proposals.iter())
            .filter_map(|each| Some((each.path.as_str(), each.manifest.as_ref()?)))
            .collect();
        Cluster::check(&manifests)?;
        let names: Vec<String> = proposals.iter().map(|each| each.path.clone()).collect();
        // The epoch tells that no member has gone since: so all must have been members then.
        if !gone_of(&map, &proposals).is_empty() {
            let map = self.read_map()?;
            let gone = gone_of(&map, &proposals);
            if !gone.is_empty() {
                return self.published(&names, Outcome::HoldersGone(gone));
            }
            seen.epoch = map.epoch;
        }
        let deadline = now() + self.deadline;
        let mut machine = Publish::new(&self.keys, maker, proposals, seen, deadline, Rules::ALL);
        let mut left: VecDeque<Action<Outcome>> = machine.start(now()).into();
        let mut wake = deadline;
        loop {
            match left.pop_front() {
                Some(Action::Ask { token, request }) => {
                    let reply = self.coordinator.answer(&request);
                    left.extend(machine.reply(now(), token, reply));
                }
                Some(Action::Wake(at)) => wake = at,
                Some(Action::Own(outcome)) => {
                    if outcome == Outcome::Unknown {
                        beginning.is_unknown();
                    }
                    return self.published(&names, outcome);
                }
                None => {
                    std::thread::sleep(wake - now());
                    left.extend(machine.tick(now()));
                }
            }
        }
    }

    fn published(&self, names: &[String], outcome: Outcome) -> Result<Revision> {
        match outcome {
            Outcome::Published(revision) => Ok(revision),
            Outcome::Conflict(names) => Err(Error::Conflict(format!(
                "{names:?}: somebody else has published or removed it in between; look it up again"
            ))),
            Outcome::HoldersGone(who) => {
                let nodes: Vec<&str> = who.iter().map(|holder| holder.node.as_str()).collect();
                Err(Error::NodeAway(format!(
                    "{names:?} is not published: {nodes:?} left the cluster in between; make the \
                     parts again"
                )))
            }
            Outcome::MakerGone => Err(Error::Fenced(format!(
                "{names:?} is not published: this process was cut off for so long that its parts \
                 may have been given back; make them again"
            ))),
            Outcome::Refused(why) => Err(Error::Argument(format!("{names:?}: etcd says: {why}"))),
            Outcome::Unknown => Err(Error::Coordinator(format!(
                "{names:?}: {} does not answer; whether it was published tells a look at it later",
                self.coordinator.told()
            ))),
        }
    }

    /// Removes a name. Its parts are freed by those who hold them.
    pub fn remove(&self, path: &str) -> Result<()> {
        let draft = self.draft(&[path])?;
        if draft.proposals[0].seen == 0 {
            return Err(Error::NotFound(format!("there is no {path:?} in the cluster")));
        }
        self.publish(draft).map(drop)
    }

    /// Looks at a member that does not answer, and strikes it if its lease has ended.
    pub(crate) fn suspect(&self, node: &str, member: LeaseId) {
        self.judge(Strike::new(&self.keys, node, member, wall(), Rules::ALL));
    }

    /// Runs the machine that strikes a member.
    pub(crate) fn judge(&self, mut machine: Strike) -> Verdict {
        let mut left: VecDeque<Action<Verdict>> = machine.start(now()).into();
        while let Some(action) = left.pop_front() {
            match action {
                Action::Ask { token, request } => {
                    let reply = self.coordinator.answer(&request);
                    left.extend(machine.reply(now(), token, reply));
                }
                Action::Own(verdict) => return verdict,
                Action::Wake(_) => {}
            }
        }
        Verdict::Unknown
    }

    pub(crate) fn away(map: &Map, who: &[Holder], what: &str) -> Error {
        let told: Vec<String> = (who.iter())
            .map(|holder| match map.node(&holder.node) {
                Some((entry, _)) if entry.state == State::Away => {
                    let since = wall().saturating_sub(entry.since);
                    format!("{} ({}) is away for {since} s", entry.identity.host, holder.node)
                }
                Some((entry, _)) if entry.member != holder.member => {
                    format!("{} ({}) is back, and not ready yet", entry.identity.host, holder.node)
                }
                Some((entry, _)) => {
                    format!("{} ({}) does not answer", entry.identity.host, holder.node)
                }
                None => format!("{} is unknown", holder.node),
            })
            .collect();
        Error::NodeAway(format!("{what} cannot be reached: {}; try again later", told.join("; ")))
    }

    /// What room a node's pool has: its size, and what is used, in bytes.
    pub fn room(&self, node: &str) -> Result<(u64, u64)> {
        if let Some(local) = self.local_of(node) {
            let room = local.parts.pool().room()?;
            return Ok((room.size, room.used));
        }
        let map = self.map();
        let (entry, _) = map
            .node(node)
            .ok_or_else(|| Error::NotFound(format!("the cluster has no node {node}")))?;
        let holder = Holder { node: node.to_owned(), member: entry.member };
        let answer = self.ask_holder(&holder, Method::Get, "/room", &[])?;
        let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        told["size"].as_u64().zip(told["used"].as_u64()).ok_or_else(|| {
            Error::Unsupported(format!("{node} does not tell its room: it is of an older version"))
        })
    }

    /// A uuid for a publication.
    pub fn new_uuid() -> Result<String> {
        Ok(random::uuid()?)
    }
}

/// Refuses what cannot be a cluster's name: it is a step of the keys of etcd.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.len() <= 64 && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "{name:?} cannot be a cluster's name: up to 64 letters, digits, dots, dashes and \
         underscores, a letter or digit first"
    )))
}

/// The holders of these manifests that are no members.
fn gone_of(map: &Map, proposals: &[Proposal]) -> Vec<Holder> {
    let manifests = proposals.iter().filter_map(|each| each.manifest.as_ref());
    let holders = manifests.flat_map(|manifest| &manifest.holders);
    holders.filter(|holder| !map.is_member(holder, Rules::ALL)).cloned().collect()
}

impl Local {
    /// Opens the pool; none where it is of no cluster yet.
    fn open(cluster: &str, pool: &Path, table: &'static Table) -> Result<Option<Local>> {
        let Some(file) = NodeFile::of_cluster(pool, cluster)? else { return Ok(None) };
        let place = Place::of(pool)?;
        Ok(Some(Local { node: file.node, place, parts: Parts::open(table, pool)? }))
    }
}

/// The items of an array's dtype, as a manifest has it.
pub fn dtype_in(manifest: &Manifest) -> Result<DType> {
    let boxes = manifest.array().ok_or_else(|| Error::Argument("no array".to_owned()))?;
    Ok(dtype::of_text(&boxes.dtype)?)
}

/// Refuses arrays that are to lie below a group of the cluster: it has objects of one node each.
fn check_below(below: &[(String, String)], proposals: &[Proposal]) -> Result<()> {
    let is_made = |path: &str| {
        proposals.iter().any(|proposal| proposal.path == path && proposal.manifest.is_some())
    };
    match below.iter().find(|(path, _)| is_made(path)) {
        None => Ok(()),
        Some((path, group)) => Err(Error::Store(StoreError::new(
            Kind::Exists,
            format!(
                "{path:?} lies below the group {group:?}, which has objects and no arrays over \
                 nodes: assign it a value (`cluster[{path:?}] = value`), or take a name below no \
                 group"
            ),
        ))),
    }
}

/// The names above a name, from the first step on.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}
