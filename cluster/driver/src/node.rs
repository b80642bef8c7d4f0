//! A node: its pool, and the process of the host that serves it.
//!
//! *Protocol*. A node pool says in `cluster.toml` of which cluster it is, and which node. Every
//! process of the host that takes part starts a [`Node`]; the one that has the kernel's lock of
//! `cluster.lock` serves, and the others wait for it. The lock goes with its process, and no child
//! inherits it. Whoever serves runs the machines of the protocol on a thread of its own, which asks
//! for nothing that another thread may hold for long: a lease is renewed while an interpreter is
//! busy.

use std::collections::{BTreeSet, HashSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engram_base::error::{Error as StoreError, Result as StoreResult};
use engram_base::mutex::lock;
use engram_base::node_files;
use engram_base::random;
use engram_parts::table::Table;
use engram_parts::{Mark, PartName, Parts, Trees};
use engram_protocol::clock::Moment;
use engram_protocol::coordinator::{Keys, LeaseId, Reply, Request, Row};
use engram_protocol::holdings::{Duty, Held, Holdings};
use engram_protocol::maker::ended_in;
use engram_protocol::manifest::Manifest;
use engram_protocol::map::{Identity, Map};
use engram_protocol::membership::{Membership, News};
use engram_protocol::stop::Stop;
use engram_protocol::{Action, Rules};
use engram_wire::{Limits, Server, Tls, Who};
use serde::{Deserialize, Serialize};

use crate::calls::Caller;
use crate::clock::{now, wall};
use crate::cluster::check_name;
use crate::coordinator::Coordinator;
use crate::error::{Error, Result};
use crate::lock::LockFile;
use crate::routes::Routes;
use crate::worker::{Done, Job, Worker, borne};

/// Between two tries of the lock.
const LOCK_EVERY: Duration = Duration::from_millis(100);
/// How long those who are answered at the end are waited for.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// So long the parts that there are are waited for, before what is known of them is gone on with.
const LIST_WITHIN: Duration = Duration::from_secs(1);
/// When they are listed again, where they could not be.
const LIST_AGAIN: Duration = Duration::from_secs(5);
/// Threads that ask the coordinator, beside the one that renews the lease.
const ASKERS: usize = 2;

/// How a node takes part.
#[derive(Clone)]
pub struct NodeOptions {
    /// The cluster's name.
    pub cluster: String,
    /// The node pool.
    pub pool: PathBuf,
    /// The endpoints of etcd, each `HOST:PORT`.
    pub etcd: Vec<String>,
    /// How long a member's lease runs without being renewed.
    pub ttl: Duration,
    /// The host's name or address, at which others find it.
    pub host: String,
    /// Its share of names.
    pub weight: f64,
    /// How long a superseded part is kept for those who have looked its name up.
    pub kept: Duration,
    /// Its certificate; none on loopback, or where that is asked for.
    pub tls: Option<Tls>,
    /// The engine of this process.
    pub table: &'static Table,
    /// Who runs methods that are called here.
    pub caller: Option<Arc<dyn Caller>>,
}

/// What a node pool says of its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFile {
    /// The cluster's name.
    pub cluster: String,
    /// The node's uuid.
    pub node: String,
    /// The port at which it was served last.
    pub port: u16,
}

impl NodeFile {
    /// What a pool says; none where it is of no cluster.
    pub fn read(pool: &Path) -> Result<Option<NodeFile>> {
        let path = pool.join(node_files::NODE);
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map(Some).map_err(|error| {
                Error::Corrupt(format!("{} cannot be read: {error}", path.display()))
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(os(&path, &error)),
        }
    }

    /// What a pool says that is of this cluster, or of none yet; one of another is refused.
    pub fn of_cluster(pool: &Path, cluster: &str) -> Result<Option<NodeFile>> {
        match NodeFile::read(pool)? {
            Some(file) if file.cluster != cluster => Err(Error::Argument(format!(
                "the pool {} is of cluster {:?}, not of {cluster:?}: name another pool, or that \
                 cluster",
                pool.display(),
                file.cluster
            ))),
            found => Ok(found),
        }
    }

    fn write(&self, pool: &Path) -> Result<()> {
        let text = toml::to_string(self).expect("plain values");
        let (path, made) = (pool.join(node_files::NODE), pool.join(node_files::NODE_HALF));
        std::fs::write(&made, text)
            .and_then(|()| std::fs::rename(&made, &path))
            .map_err(|error| os(&path, &error))
    }
}

fn os(path: &Path, error: &std::io::Error) -> Error {
    Error::Store(StoreError::os(path.display(), error))
}

/// What threads of the process that serves share.
pub(crate) struct Shared {
    pub(crate) cluster: String,
    pub(crate) node: String,
    pub(crate) parts: Parts,
    pub(crate) trees: Trees,
    pub(crate) caller: Option<Arc<dyn Caller>>,
    pub(crate) coordinator: Arc<Coordinator>,
    membership: Mutex<Membership>,
    /// Held from a look at whose a part is until it is freed.
    frees: Mutex<()>,
}

impl Shared {
    /// Whether the node answers now for what this member holds; for whoever it is, where none is
    /// named.
    pub(crate) fn answers(&self, member: Option<LeaseId>) -> bool {
        let membership = lock(&self.membership);
        match member {
            Some(member) => membership.answers(now(), member),
            None => membership.serves(now()).is_some(),
        }
    }

    /// Whether a name of the cluster has this part of this node now.
    pub(crate) fn is_published(&self, path: &str, name: &PartName) -> Result<bool> {
        let rows = self.rows(path, None)?;
        Ok(self.is_named(&rows, name))
    }

    /// The row of a name, and that of a maker if one is given.
    fn rows(&self, path: &str, maker: Option<LeaseId>) -> Result<Vec<Row>> {
        let keys = Keys::new(&self.cluster);
        let asked = [Some(keys.name(path)), maker.map(|maker| keys.maker(maker))];
        let request = Request::Get { keys: asked.into_iter().flatten().collect() };
        let Reply::Rows { rows, .. } = self.coordinator.answer(&request) else {
            return Err(Error::Coordinator(format!(
                "{} does not answer whether {path:?} is published: try again later",
                self.coordinator.told()
            )));
        };
        Ok(rows)
    }

    /// Whether one of these rows is a manifest that names this part of this node; one that cannot
    /// be read may.
    fn is_named(&self, rows: &[Row], name: &PartName) -> bool {
        let names = Keys::new(&self.cluster).name("");
        let is_own = |row: &Row| match Manifest::decode(&row.value) {
            Ok(own) if own.parts_uuid() != name.uuid => false,
            Ok(own) => own.holders_of(name.part).iter().any(|holder| holder.node == self.node),
            Err(_) => true,
        };
        rows.iter().any(|row| row.key.starts_with(&names) && is_own(row))
    }

    /// Frees a part that its maker gives back, or the subtree that it stands for. What is published
    /// is refused: only the name's removal or replacement frees it.
    pub(crate) fn give_back(&self, name: &PartName, maker: LeaseId) -> Result<()> {
        let _alone = lock(&self.frees);
        let Some(mark) = self.parts.mark(name)? else { return Ok(()) };
        if mark.maker != maker {
            let PartName { uuid, part } = name;
            return Err(Error::Access(format!("part {part} of {uuid} is another maker's")));
        }
        if self.is_published(&mark.path, name)? {
            return Err(Error::Access(format!(
                "{:?} is published: what is of it is freed when the name is removed or replaced",
                mark.path
            )));
        }
        if name.part == 0 && self.trees.free(&name.uuid)? {
            return Ok(());
        }
        Ok(self.parts.free(name)?)
    }

    /// Frees a part that another is about to make anew, if its publication has ended, or its maker:
    /// it can never be published. What may be published yet stays.
    pub(crate) fn clear_of_dead(&self, name: &PartName) -> Result<()> {
        let _alone = lock(&self.frees);
        let Some(mark) = self.parts.mark(name)? else { return Ok(()) };
        let rows = self.rows(&mark.path, Some(mark.maker))?;
        let key = Keys::new(&self.cluster).maker(mark.maker);
        let maker = rows.iter().find(|row| row.key == key);
        let may_be = maker.is_some_and(|row| mark.begun >= ended_in(row));
        if !may_be && !self.is_named(&rows, name) {
            self.parts.free(name)?;
        }
        Ok(())
    }

    /// Frees what has been judged to be free, unless another maker has made it anew since.
    pub(crate) fn free(&self, held: Held) -> StoreResult<()> {
        let _alone = lock(&self.frees);
        let name = PartName { uuid: held.uuid, part: held.part };
        let is_other = |mark: Mark| (mark.maker, mark.begun) != (held.maker, held.begun);
        if self.parts.mark(&name)?.is_some_and(is_other) {
            return Ok(());
        }
        if name.part == 0 && self.trees.free(&name.uuid)? {
            return Ok(());
        }
        self.parts.free(&name)
    }

    /// Which member the node is.
    pub(crate) fn member(&self) -> Option<LeaseId> {
        lock(&self.membership).serves(now())
    }
}

/// How a node stands, as its own process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Another process of the host serves.
    Waits,
    /// This process is about to serve.
    Joins,
    /// This process serves as this member.
    Serves(LeaseId),
    /// It has ended, for this reason if it is an error: the pool cannot be served any more.
    Ended(Option<String>),
}

struct Told {
    standing: Mutex<Standing>,
    changed: Condvar,
}

impl Told {
    fn say(&self, standing: Standing) {
        *lock(&self.standing) = standing;
        self.changed.notify_all();
    }
}

enum Event {
    Reply { task: Task, token: u64, reply: Reply },
    Done(Done),
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Membership,
    Holdings,
    Look,
}

/// This process's part in serving a node pool.
pub struct Node {
    told: Arc<Told>,
    events: Sender<Event>,
    coordinator: Arc<Coordinator>,
    steward: Option<JoinHandle<()>>,
    /// The thread is of this process, and of no child of it.
    process: u32,
}

/// Pools that this process serves, or waits to serve: the kernel's lock tells processes apart.
static OWN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

impl Node {
    /// Takes part: serves as soon as no other process of the host does.
    ///
    /// The pool must be there, and be of no other cluster. An etcd that cannot be trusted is
    /// refused here.
    pub fn start(options: NodeOptions) -> Result<Node> {
        check_name(&options.cluster)?;
        if let Some(tls) = &options.tls
            && let Who::User(uid) = tls.own().who
        {
            return Err(Error::Access(format!(
                "the certificate of user {uid} serves no node: take one of a member"
            )));
        }
        let coordinator = Coordinator::open(&options.etcd, options.tls.as_ref(), options.ttl / 6)?;
        NodeFile::of_cluster(&options.pool, &options.cluster)?;
        let keys = Keys::new(&options.cluster);
        let Reply::Rows { revision, .. } =
            coordinator.answer(&Request::Get { keys: vec![keys.stopped()] })
        else {
            return Err(Error::Coordinator(format!(
                "{} has no leader, or does not answer in time: try again",
                coordinator.told()
            )));
        };
        let place = options.pool.canonicalize().map_err(|error| os(&options.pool, &error))?;
        if !lock(&OWN).insert(place.clone()) {
            return Err(Error::Argument(format!(
                "this process takes part with the pool {} already",
                place.display()
            )));
        }
        let told =
            Arc::new(Told { standing: Mutex::new(Standing::Joins), changed: Condvar::new() });
        let (events, inbox) = channel();
        let coordinator = Arc::new(coordinator);
        let steward = Steward {
            options: NodeOptions { pool: place.clone(), ..options },
            coordinator: Arc::clone(&coordinator),
            stop: Stop::new(&keys, revision),
            told: Arc::clone(&told),
            events: events.clone(),
            inbox,
        };
        let thread = std::thread::Builder::new().name("engram-node".to_owned());
        let run = move || {
            steward.run();
            lock(&OWN).remove(&place);
        };
        let steward = thread.spawn(run).map_err(|error| os(Path::new("a thread"), &error))?;
        let process = std::process::id();
        Ok(Node { told, events, coordinator, steward: Some(steward), process })
    }

    /// The endpoints of etcd: those that were given, and those that it has told of.
    pub fn endpoints(&self) -> Vec<String> {
        self.coordinator.endpoints()
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        lock(&self.told.standing).clone()
    }

    /// Waits until something holds of how it stands; false after this time.
    pub fn wait_until(&self, within: Duration, holds: impl Fn(&Standing) -> bool) -> bool {
        let until = Instant::now() + within;
        let mut standing = lock(&self.told.standing);
        while !holds(&standing) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            standing = match self.told.changed.wait_timeout(standing, left) {
                Ok((standing, _)) => standing,
                Err(_) => return false,
            };
        }
        true
    }

    /// Ends this process's part. If it served and no other process of the host does, the node
    /// leaves the map; what lies in its pool stays.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.steward.take());
            return;
        }
        let _ = self.events.send(Event::Stop);
        if let Some(steward) = self.steward.take() {
            let _ = steward.join();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread that waits for the lock, and then serves.
struct Steward {
    options: NodeOptions,
    coordinator: Arc<Coordinator>,
    stop: Stop,
    told: Arc<Told>,
    events: Sender<Event>,
    inbox: Receiver<Event>,
}

impl Steward {
    fn run(self) {
        let end = match self.wait_for_lock() {
            Ok(Some(held)) => {
                let served = self.serve();
                drop(held);
                served.err().map(|error| error.to_string())
            }
            Ok(None) => None,
            Err(error) => Some(error.to_string()),
        };
        self.told.say(Standing::Ended(end));
    }

    /// The kernel's lock of the pool; none where the end came first.
    fn wait_for_lock(&self) -> Result<Option<LockFile>> {
        let file = LockFile::open(&self.options.pool.join(node_files::LOCK))?;
        loop {
            if file.take()? {
                return Ok(Some(file));
            }
            self.told.say(Standing::Waits);
            match self.inbox.recv_timeout(LOCK_EVERY) {
                Err(RecvTimeoutError::Timeout) | Ok(Event::Reply { .. } | Event::Done(_)) => {}
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Whether the process before this one, for whose end it waited, ended since all are to end.
    fn is_stopped(&self, node: &str) -> bool {
        let asked = std::fs::read_to_string(self.options.pool.join(node_files::STOPPED));
        if asked.is_ok_and(|asked| asked.parse().is_ok_and(|asked| self.stop.is_since(asked))) {
            return true;
        }
        let keys = self.stop.rows(node).to_vec();
        match self.coordinator.answer(&Request::Get { keys }) {
            Reply::Rows { rows, .. } => self.stop.asked(node, &rows).is_some(),
            _ => false,
        }
    }

    fn serve(&self) -> Result<()> {
        self.told.say(Standing::Joins);
        let NodeOptions { cluster, pool, host, weight, ttl, tls, .. } = &self.options;
        let parts = Parts::open(self.options.table, pool)?;
        let facts = parts.facts()?;
        let keys = Keys::new(cluster);
        let mut file = match NodeFile::read(pool)? {
            Some(file) => file,
            None => NodeFile { cluster: cluster.clone(), node: random::uuid()?, port: 0 },
        };
        if self.is_stopped(&file.node) {
            return Ok(());
        }
        let nobody = Membership::new(&keys, Identity::default(), *ttl, Rules::ALL);
        let shared = Arc::new(Shared {
            cluster: cluster.clone(),
            node: file.node.clone(),
            trees: Trees::of(&parts),
            parts,
            caller: self.options.caller.clone(),
            coordinator: Arc::clone(&self.coordinator),
            membership: Mutex::new(nobody),
            frees: Mutex::default(),
        });
        let server = bind(host, file.port, tls.as_ref(), &shared)?;
        file.port = server.address().port();
        file.write(pool)?;
        let address = address_of(host, file.port);
        let Place { host, boot, path } = Place::of(pool)?;
        let identity = Identity {
            node: file.node.clone(),
            pool: facts.uuid,
            host,
            path,
            boot,
            address,
            weight: *weight,
            format: facts.format,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        *lock(&shared.membership) = Membership::new(&keys, identity, *ttl, Rules::ALL);
        let events = self.events.clone();
        let worker = Worker::start(&shared, move |done| events.send(Event::Done(done)).is_ok())?;
        let mut round = Round {
            steward: self,
            keys,
            shared,
            worker,
            holdings: None,
            joins: None,
            is_listing: false,
            checking: HashSet::new(),
            wakes: [None; 3],
        };
        let served = round.run();
        server.stop(STOP_WITHIN);
        served
    }
}

/// Serves at the port of last time if it is free, and else at any.
fn bind(host: &str, port: u16, tls: Option<&Tls>, shared: &Arc<Shared>) -> Result<Server> {
    let routes = Arc::new(Routes::new(Arc::clone(shared)));
    // A part may be as large as the pool: its size is compared before space is reserved.
    let limits = Limits { body_bytes: u64::MAX, ..Limits::default() };
    let address = |port: u16| {
        let mut found = (host, port).to_socket_addrs().map_err(|error| {
            Error::Argument(format!("{host:?} is no name or address of this host: {error}"))
        })?;
        found.next().ok_or_else(|| Error::Argument(format!("{host:?} has no address")))
    };
    let bound: std::result::Result<Server, _> =
        Server::bind(address(port)?, tls, limits.clone(), routes.clone());
    match bound {
        Ok(server) => Ok(server),
        Err(_) if port != 0 => {
            let any: SocketAddr = address(0)?;
            Ok(Server::bind(any, tls, limits, routes)?)
        }
        Err(error) => Err(error.into()),
    }
}

fn address_of(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Where a pool lies, as its node says: a copy of it lies elsewhere, or on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    host: String,
    boot: String,
    path: String,
}

impl Place {
    pub(crate) fn of(pool: &Path) -> Result<Place> {
        let path = pool.canonicalize().map_err(|error| os(pool, &error))?;
        Ok(Place { host: host_name(), boot: boot_id(), path: path.display().to_string() })
    }

    /// Whether a node says this of its pool, since the host booted.
    pub(crate) fn is_of(&self, identity: &Identity) -> bool {
        let Identity { host, boot, path, .. } = identity;
        (&self.host, &self.boot, &self.path) == (host, boot, path)
    }
}

/// The host's name, as the kernel has it.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The host's boot: memory does not outlive it.
fn boot_id() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    told.map(|id| id.trim().to_owned()).unwrap_or_default()
}

type Asked = (Task, u64, Request);

/// The threads that ask the coordinator. A renewal waits for no other question: where the
/// coordinator takes long for those, the lease runs on.
struct Asks {
    renewals: Sender<Asked>,
    others: Sender<Asked>,
}

impl Asks {
    fn start(steward: &Steward) -> Asks {
        Asks { renewals: Asks::threads(steward, 1), others: Asks::threads(steward, ASKERS) }
    }

    fn threads(steward: &Steward, count: usize) -> Sender<Asked> {
        let (asks, questions) = channel::<Asked>();
        let questions = Arc::new(Mutex::new(questions));
        for _ in 0..count {
            let questions = Arc::clone(&questions);
            let coordinator = Arc::clone(&steward.coordinator);
            let events = steward.events.clone();
            std::thread::spawn(move || {
                loop {
                    let Ok((task, token, request)) = lock(&questions).recv() else { return };
                    let reply = coordinator.answer(&request);
                    if events.send(Event::Reply { task, token, reply }).is_err() {
                        return;
                    }
                }
            });
        }
        asks
    }

    fn send(&self, asked: Asked) -> std::result::Result<(), SendError<Asked>> {
        let is_renewal = matches!(asked.2, Request::Renew { .. });
        if is_renewal { self.renewals.send(asked) } else { self.others.send(asked) }
    }
}

/// One time of serving.
struct Round<'s> {
    steward: &'s Steward,
    keys: Keys,
    shared: Arc<Shared>,
    worker: Worker,
    holdings: Option<Holdings>,
    /// The member that waits for the list of its parts, and whether they are entered.
    joins: Option<(LeaseId, bool)>,
    /// Whether the worker lists the parts.
    is_listing: bool,
    /// Parts at whose bytes the worker looks.
    checking: HashSet<Held>,
    /// When each task is to be woken.
    wakes: [Option<Moment>; 3],
}

impl Round<'_> {
    fn run(&mut self) -> Result<()> {
        let asks = Asks::start(self.steward);
        let actions = lock(&self.shared.membership).start(now());
        self.of_membership(actions, &asks);
        let (mut leaves, mut end) = (None, Ok(()));
        loop {
            let next = self.wakes.iter().flatten().min();
            let wait = next.map_or(LOCK_EVERY, |at| *at - now());
            let wait = if leaves.is_some() { wait.min(LOCK_EVERY) } else { wait };
            let mut stops = false;
            let went = match self.steward.inbox.recv_timeout(wait) {
                Ok(Event::Reply { task, token, reply }) => self.reply(task, token, reply, &asks),
                Ok(Event::Done(done)) => self.done(done, &asks),
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    stops = true;
                    Ok(())
                }
                Err(RecvTimeoutError::Timeout) => Ok(()),
            };
            let went = went.and_then(|()| self.wake(&asks));
            if went.is_err() && end.is_ok() {
                // The node is away at once, and not when its lease has ended.
                (end, stops) = (went, true);
                (self.holdings, self.joins) = (None, None);
            }
            if stops && leaves.is_none() {
                leaves = Some(Instant::now() + STOP_WITHIN);
                let actions = lock(&self.shared.membership).leave(now(), wall());
                self.of_membership(actions, &asks);
            }
            // Where the coordinator is away, the lease ends by itself.
            let is_over =
                |until: Instant| lock(&self.shared.membership).is_idle() || Instant::now() >= until;
            if leaves.is_some_and(is_over) {
                return end;
            }
        }
    }

    fn reply(&mut self, task: Task, token: u64, reply: Reply, asks: &Asks) -> Result<()> {
        match task {
            Task::Membership => {
                let actions = lock(&self.shared.membership).reply(now(), token, reply);
                self.of_membership(actions, asks);
                Ok(())
            }
            Task::Holdings => {
                let actions = self.holdings.as_mut().map(|own| own.reply(now(), token, reply));
                self.of_holdings(actions.unwrap_or_default(), asks)
            }
            Task::Look => {
                let Reply::Rows { rows, .. } = reply else { return Ok(()) };
                if let Some(asked) = self.steward.stop.asked(&self.shared.node, &rows) {
                    // Where it cannot be written, who waits asks the coordinator.
                    let word = self.steward.options.pool.join(node_files::STOPPED);
                    let _ = std::fs::write(word, asked.to_string());
                    let _ = self.steward.events.send(Event::Stop);
                }
                let Ok(map) = Map::of(&self.keys, &rows) else { return Ok(()) };
                let actions = lock(&self.shared.membership).map_seen(now(), &map);
                self.of_membership(actions, asks);
                Ok(())
            }
        }
    }

    fn wake(&mut self, asks: &Asks) -> Result<()> {
        let is_due = |wake: &mut Option<Moment>| wake.take_if(|at| *at <= now()).is_some();
        if is_due(&mut self.wakes[Task::Membership as usize]) {
            let actions = lock(&self.shared.membership).tick(now());
            self.of_membership(actions, asks);
        }
        if is_due(&mut self.wakes[Task::Holdings as usize]) {
            // The parts are listed first; where the worker is at something else, that comes later.
            if self.is_listing {
                let actions = self.holdings.as_mut().map(|own| own.tick(now()));
                self.of_holdings(actions.unwrap_or_default(), asks)?;
            } else {
                let member = lock(&self.shared.membership).member();
                self.worker.ask(Job::List(member.unwrap_or(0)))?;
                self.is_listing = true;
                self.wake_at(Task::Holdings, now() + LIST_WITHIN);
            }
        }
        if is_due(&mut self.wakes[Task::Look as usize]) {
            let mut keys = vec![self.keys.node(&self.shared.node)];
            keys.extend(self.steward.stop.rows(&self.shared.node));
            let _ = asks.send((Task::Look, 0, Request::Get { keys }));
            self.wakes[Task::Look as usize] = Some(now() + self.steward.options.ttl / 3);
        }
        Ok(())
    }

    /// Takes the end of a job.
    fn done(&mut self, done: Done, asks: &Asks) -> Result<()> {
        let actions = match done {
            Done::Listed(member, all) => {
                self.is_listing = false;
                self.wakes[Task::Holdings as usize] = None;
                match borne(all)? {
                    Some(all) => self.listed(member, all),
                    None => self.wake_at(Task::Holdings, now() + LIST_AGAIN),
                }
                self.holdings.as_mut().map(|own| own.tick(now()))
            }
            Done::Checked(held, whole) => {
                self.checking.remove(&held);
                let whole = borne(whole)?;
                self.holdings.as_mut().map(|own| own.checked(now(), &held, whole))
            }
            Done::Freed(freed) => {
                // What is there yet is listed again, and then judged again.
                borne(freed)?;
                None
            }
        };
        self.of_holdings(actions.unwrap_or_default(), asks)
    }

    /// Takes the parts that there are: other processes of the host make some, too.
    fn listed(&mut self, member: LeaseId, all: Vec<Held>) {
        if let Some((joins, entered)) = self.joins {
            // They were listed before it was a member: it may have made others.
            if joins != member {
                self.wake_at(Task::Holdings, now());
                return;
            }
            let (keys, node) = (&self.keys, &self.shared.node);
            let own = Holdings::new(keys, node, member, all, entered, Rules::ALL);
            self.holdings = Some(own.keeping(self.steward.options.kept));
            self.joins = None;
            return;
        }
        let Some(own) = &mut self.holdings else { return };
        let there: HashSet<&Held> = all.iter().collect();
        let gone: Vec<Held> = own.parts().filter(|held| !there.contains(held)).cloned().collect();
        for held in &gone {
            own.remove(held);
        }
        for held in all {
            own.add(held);
        }
    }

    fn of_membership(&mut self, actions: Vec<Action<News>>, asks: &Asks) {
        for action in actions {
            match action {
                Action::Ask { token, request } => {
                    let _ = asks.send((Task::Membership, token, request));
                }
                Action::Wake(at) => self.wake_at(Task::Membership, at),
                Action::Own(News::Joined { member, entered }) => {
                    self.joined(member, entered);
                    self.steward.told.say(Standing::Serves(member));
                }
                Action::Own(News::Left) => {
                    (self.holdings, self.joins) = (None, None);
                    self.steward.told.say(Standing::Joins);
                }
                Action::Own(News::Waits(_)) => {}
            }
        }
    }

    fn joined(&mut self, member: LeaseId, entered: bool) {
        (self.holdings, self.joins) = (None, Some((member, entered)));
        self.wake_at(Task::Holdings, now());
        self.wake_at(Task::Look, now() + self.steward.options.ttl / 3);
    }

    fn of_holdings(&mut self, actions: Vec<Action<Duty>>, asks: &Asks) -> Result<()> {
        for action in actions {
            match action {
                Action::Ask { token, request } => {
                    let _ = asks.send((Task::Holdings, token, request));
                }
                Action::Wake(at) => self.wake_at(Task::Holdings, at),
                Action::Own(Duty::Free(held)) => self.worker.ask(Job::Free(held))?,
                Action::Own(Duty::Check(held)) => {
                    if self.checking.insert(held.clone()) {
                        self.worker.ask(Job::Check(held))?;
                    }
                }
                Action::Own(Duty::AllEntered) => {
                    let actions = lock(&self.shared.membership).all_entered(now());
                    self.of_membership(actions, asks);
                }
            }
        }
        Ok(())
    }

    fn wake_at(&mut self, task: Task, at: Moment) {
        let wake = &mut self.wakes[task as usize];
        *wake = Some(wake.map_or(at, |other| other.min(at)));
    }
}
