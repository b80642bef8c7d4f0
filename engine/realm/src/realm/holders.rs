//! Who holds what: leases with what they view and have reserved, readers of the catalog, and the
//! space that waits for them.
//!
//! All of it is for people: nothing here decides anything. It is read while others work, so two
//! figures may be of two moments.
//!
//! *Held* is space that was freed and cannot be used again yet: an extent freed by transaction F is
//! held by a lease that pins it, and by one whose age is below F (see `extent::reclaim`). Several
//! may hold one extent; each is told of it. An extent that nobody holds is free when somebody asks
//! for space.

use std::collections::{BTreeMap, HashSet};

use crate::realm::core::Core;
use crate::realm::failure::{self, MaintenanceFailure};
use crate::realm::gate::Inside;
use crate::realm::space::USED;
use engram_base::error::{Error, Kind, Result};
use engram_base::mutex::lock;
use engram_base::scope::Scope;
use engram_base::size::ByteSize;
use engram_catalog::Table;
use engram_catalog::meta::meta_u64;
use engram_records::extent::PAGE;
use engram_space::extent::{ExtentHolder, Floor, Span, parse_size_key, pending_rows};
use engram_space::lease::{IDLE, Lease, LeaseFile, LeaseStatus};

/// The most holders that an error names.
const NAMED_MAX: usize = 4;

/// One lease: one process that has the realm open, or views of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The lease's id.
    pub id: u64,
    /// The process, as it says of itself.
    pub pid: u32,
    /// The owner of the lease file.
    pub user: u32,
    /// Whether its process is there. Of a dead one the space comes back when somebody asks.
    pub alive: bool,
    /// Whether it is this process's own.
    pub own: bool,
    /// Since when, in ns since 1970.
    pub since: i64,
    /// How many commits ago the oldest snapshot was that it looks at; `None`: it looks at none.
    pub behind: Option<u64>,
    /// How many extents it has views of.
    pub pins: u64,
    /// The bytes that it has reserved, and not published.
    pub reserved: u64,
    /// The bytes of deleted or replaced values that it keeps from being used again.
    pub held: u64,
}

/// A process's place in the catalog's table of readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderInfo {
    /// The process.
    pub pid: u32,
    /// How many places it has.
    pub slots: u64,
    /// How many commits ago the oldest snapshot was that it reads; `None`: it reads none now.
    pub behind: Option<u64>,
}

/// The pages of a catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogUse {
    /// Bytes that have blocks.
    pub allocated: u64,
    /// Bytes of pages with rows on them.
    pub used: u64,
    /// Bytes of pages that rows may take at once.
    pub free: u64,
    /// Bytes of pages without rows that readers still see.
    pub held: u64,
}

/// Who holds what in a realm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// The id of the last commit.
    pub commits: u64,
    /// Every lease: those that hold most come first.
    pub leases: Vec<LeaseInfo>,
    /// The catalog's readers.
    pub readers: Vec<ReaderInfo>,
    /// The catalog's pages.
    pub catalog: CatalogUse,
    /// The bytes that are reserved.
    pub reserved: u64,
    /// The bytes freed that somebody still looks at.
    pub held: u64,
    /// The bytes freed that nobody looks at: free when somebody asks for space.
    pub reclaimable: u64,
    /// The last failure of maintenance, if it was not made good since.
    pub maintenance: Option<MaintenanceFailure>,
}

impl Holders {
    /// The process with the oldest snapshot, by lease or by reader, and how many commits ago that
    /// was.
    pub fn oldest(&self) -> Option<(u32, u64)> {
        let leases = self.leases.iter().filter(|lease| lease.alive);
        let leases = leases.filter_map(|lease| Some((lease.pid, lease.behind?)));
        let readers = self.readers.iter().filter_map(|one| Some((one.pid, one.behind?)));
        leases.chain(readers).max_by_key(|(_, behind)| *behind)
    }
}

/// A lease, and what it looks at.
struct Looking {
    seen: LeaseStatus,
    pins: u64,
    floor: Floor,
}

impl Looking {
    fn of(seen: LeaseStatus, file: &LeaseFile) -> Self {
        let mut floor = Floor { age: file.age(), ..Floor::default() };
        let pins = file.note_pins(&mut floor);
        Looking { seen, pins, floor }
    }
}

/// Lists the holders of extents, locks and pages.
pub(crate) fn holders(core: &Core, inside: &Inside<'_>) -> Result<Holders> {
    let own: HashSet<u64> = inside.own_leases().map(Lease::id).collect();
    let epoch = inside.catalog().growth().lease_epoch();
    let own_looking = inside.own_leases().map(|lease| Looking::of(lease.seen(), lease.file()));
    let mut leases: Vec<Looking> = own_looking.collect();
    {
        let mut peers = lock(&core.space.peers);
        // Anew: of those that have gone nobody tells.
        peers.forget();
        peers.refresh(&core.setup.leases(), epoch, inside.lease().id())?;
        for (seen, file) in peers.all().filter(|(seen, _)| !own.contains(&seen.id)) {
            leases.push(Looking::of(seen, file));
        }
    }
    let commits = inside.catalog().last_id()?;
    let behind = |age: u64| commits.saturating_sub(age);
    let pending = pending_rows(&inside.read()?)?;
    let mut holders =
        Holders { commits, maintenance: failure::last(core, inside), ..Holders::default() };
    let mut reserved = BTreeMap::<u64, u64>::new();
    let mut held = vec![0_u64; leases.len()];
    let mut all = Floor { age: IDLE, ..Floor::default() };
    leases.iter().filter(|one| one.seen.alive).for_each(|one| all.join(&one.floor));
    for row in pending {
        let extent = row.extent;
        match row.holder {
            ExtentHolder::Lease(lease) => {
                *reserved.entry(lease).or_default() += extent.len;
                holders.reserved += extent.len;
            }
            ExtentHolder::Txn(freed_by) => {
                let parts = all.held(&row, freed_by);
                holders.held += parts;
                holders.reclaimable += extent.len - parts;
                for (held, one) in held.iter_mut().zip(&leases) {
                    if one.seen.alive {
                        *held += one.floor.held(&row, freed_by);
                    }
                }
            }
        }
    }
    for (Looking { seen, pins, floor }, held) in leases.iter().zip(held) {
        holders.leases.push(LeaseInfo {
            id: seen.id,
            pid: seen.pid,
            user: seen.user,
            alive: seen.alive,
            own: own.contains(&seen.id),
            since: seen.since,
            behind: (seen.alive && floor.age != IDLE).then(|| behind(floor.age)),
            pins: *pins,
            reserved: reserved.get(&seen.id).copied().unwrap_or(0),
            held,
        });
    }
    holders.leases.sort_by_key(|lease| (u64::MAX - (lease.reserved + lease.held), lease.pid));
    holders.readers = readers(inside, commits)?;
    holders.catalog = catalog_use(inside)?;
    Ok(holders)
}

/// The processes in the catalog's table of readers, after this commit.
fn readers(inside: &Inside<'_>, commits: u64) -> Result<Vec<ReaderInfo>> {
    // The places of the dead stay until somebody looks for them. A process that stands still with
    // the table's lock is in the table.
    match inside.catalog().clear_dead_readers() {
        Err(error) if error.kind() != Kind::Busy => return Err(error),
        _ => {}
    }
    let mut readers = BTreeMap::<u32, (u64, Option<u64>)>::new();
    for (pid, snapshot) in inside.catalog().readers()? {
        let (slots, oldest) = readers.entry(pid).or_default();
        *slots += 1;
        *oldest = (*oldest).max(snapshot.map(|age| commits.saturating_sub(age)));
    }
    let info = |(pid, (slots, behind))| ReaderInfo { pid, slots, behind };
    Ok(readers.into_iter().map(info).collect())
}

/// The error that says who holds the space.
pub(super) fn full(core: &Core, inside: &Inside<'_>, len: u64, limit: u64) -> Error {
    let held = who_holds(core, inside, limit).unwrap_or_default();
    let private = core.setup.scope == Scope::Private;
    let what = if private { "this user's private part of " } else { "" };
    let advice = if len > limit && !private {
        "it would not fit if it were empty: resize it (pool.resize)"
    } else if private && !beside_shared(core) {
        "delete objects or drop views: its size is the namespace's when it was made, and stays"
    } else if private {
        "delete objects, drop views, or resize the namespace (pool.resize), which binds this \
         part, too"
    } else {
        "delete objects, drop views, or resize it (pool.resize)"
    };
    Error::new(
        Kind::PoolFull,
        format!(
            "{what}namespace {:?} of {} has no room for {}: its size is {}, {held}; \
             {advice}",
            core.setup.namespace,
            core.setup.pool.display(),
            ByteSize(len),
            ByteSize(limit)
        ),
    )
}

/// Whether this user may use the namespace's shared realm, of a private one.
fn beside_shared(core: &Core) -> bool {
    let namespace = core.setup.dir.ancestors().nth(2);
    namespace.is_some_and(|folder| folder.join("shared/catalog").is_dir())
}

/// Names the holders of the space, in one sentence of bounded length.
fn who_holds(core: &Core, inside: &Inside<'_>, limit: u64) -> Result<String> {
    let holders = holders(core, inside)?;
    let txn = inside.read()?;
    let used = meta_u64(txn.get(Table::Meta, USED)?)?;
    let largest = match txn.last(Table::ExtentsBySize)? {
        Some((key, _)) => parse_size_key(key)?.len,
        None => 0,
    };
    let spans = Span::all(&mut txn.rows())?;
    let laid_out: u64 = spans.iter().filter(|span| span.has_file()).map(|s| s.range.len).sum();
    let named = |bytes: fn(&LeaseInfo) -> u64, total: u64| {
        let some: Vec<&LeaseInfo> =
            holders.leases.iter().filter(|lease| bytes(lease) > 0).collect();
        let mut names: Vec<String> = some
            .iter()
            .take(NAMED_MAX)
            .map(|lease| {
                let state = if lease.alive { "pid" } else { "dead, pid" };
                let size = ByteSize(bytes(lease));
                format!("{size} by lease {:016x} ({state} {})", lease.id, lease.pid)
            })
            .collect();
        if some.len() > NAMED_MAX {
            names.push(format!("{} more", some.len() - NAMED_MAX));
        }
        if total == 0 || names.is_empty() {
            String::new()
        } else {
            format!(": {}", names.join(", "))
        }
    };
    Ok(format!(
        "{} in objects, {} reserved{}, {} deleted but still viewed{}, the largest free piece {}, \
         {} yet to be used",
        ByteSize(used),
        ByteSize(holders.reserved),
        named(|lease| lease.reserved, holders.reserved),
        ByteSize(holders.held),
        named(|lease| lease.held, holders.held),
        ByteSize(largest),
        ByteSize(limit.saturating_sub(laid_out)),
    ))
}

/// Names, for an error, the oldest reader: it keeps most pages of the catalog from reuse.
pub(crate) fn who_keeps_pages(inside: &Inside<'_>) -> Result<Option<String>> {
    let catalog = inside.catalog();
    let oldest = catalog.readers()?.into_iter().filter_map(|(pid, age)| Some((age?, pid)));
    let Some((age, pid)) = oldest.min() else { return Ok(None) };
    let bytes = catalog.pages_freed_since(age, u64::MAX)? * catalog.page_bytes();
    let what = if pid == std::process::id() {
        "this process itself".to_owned()
    } else {
        format!("process {pid}")
    };
    let behind = catalog.last_id()?.saturating_sub(age);
    Ok((bytes > 0).then(|| {
        format!(
            "{what} keeps {} of it from reuse: it has looked at it since {behind} commits ago (a \
             snapshot, or it was stopped)",
            ByteSize(bytes)
        )
    }))
}

/// The catalog's pages, by what keeps them.
fn catalog_use(inside: &Inside<'_>) -> Result<CatalogUse> {
    let catalog = inside.catalog();
    let (used, free, held) = catalog.pages()?;
    let allocated = catalog.growth().allocated_pages();
    let unwritten = allocated.saturating_sub(used + free + held);
    Ok(CatalogUse {
        allocated: allocated * PAGE,
        used: used * PAGE,
        free: (free + unwritten) * PAGE,
        held: held * PAGE,
    })
}
