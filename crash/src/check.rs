//! Looks at what a death has left, in a process of its own: a damaged pool may kill who reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use engram::catalog::{self, Catalog, Table};
use engram::{
    Found, IndexMode, Layout, Member, Mode, Namespace, ObjectInfo, Oid, Payload, Realm, Scope,
};

use engram_fs::Fs;

use crate::board::WRITING;
use crate::common::{check_together, check_values};
use crate::machine::{Atomics, Shared, fork, leave, now, wait};
use crate::model::Model;
use crate::operation::{Name, Operation};
use crate::pool::{ask, group, number_of, open, view, with_words};
use crate::{crowd, file_locks, files, grids, locks, roam, travel};

/// Values up to this lie in the catalog.
const INLINE: u64 = engram::INLINE_BYTES_MAX;

/// A worker that is gone, what it had acknowledged, and what it was about to do.
pub struct Gone {
    /// Its slot.
    pub slot: usize,
    /// What it had acknowledged.
    pub model: Model,
    /// What it had begun, and not acknowledged.
    pub pending: Option<Operation>,
}

/// What a check finds out, read when it has ended.
pub struct Findings {
    /// Bit `slot`: what was pending there was done.
    pub applied: AtomicU64,
    /// How long opening took.
    pub open_ns: AtomicU64,
    /// The same until the namespace was open, and the moves of the dead were ended.
    pub view_ns: AtomicU64,
    /// How many single checks were made.
    pub checks: AtomicU64,
}

// SAFETY: atomics alone.
unsafe impl Atomics for Findings {}

impl Findings {
    /// Runs a check in a process of its own; `false` if anything is wrong, which it has said.
    pub fn of(self_: &Shared<Findings>, check: impl FnOnce(&Findings)) -> bool {
        self_.applied.store(0, SeqCst);
        let pid = fork();
        if pid == 0 {
            crate::machine::die_with_parent();
            std::panic::set_hook(Box::new(|panic| {
                eprintln!("check: {panic}");
                leave(101);
            }));
            check(self_);
            leave(0);
        }
        wait(pid) == Some(0)
    }

    fn add(&self, checks: u64) {
        self.checks.fetch_add(checks, SeqCst);
    }
}

/// Opens the pool, as the first after a kill, and looks at what the dead have left.
///
/// # Panics
///
/// If anything acknowledged is not there, or anything else is.
pub fn after_kill(path: &Path, gone: &[Gone], findings: &Findings) {
    let before = now();
    let (pool, realm) = open(path, Mode::ReadWrite);
    findings.open_ns.store(now() - before, SeqCst);
    let namespace = view(&pool);
    findings.view_ns.store(now() - before, SeqCst);
    let fs = files::shown(&namespace);
    for one in gone {
        if settled(&realm, &namespace, &fs, one, findings) {
            findings.applied.fetch_or(1 << one.slot, SeqCst);
        }
    }
    check_together(&realm);
    findings.add(2 + check_values(&realm) + locks::check_all(&namespace) + crowd::check(&fs));
    findings.add(file_locks::check_all(&fs));
    pool.close();
}

/// Whether what was pending was done; it was so wholly, or not at all.
fn settled(realm: &Realm, namespace: &Namespace, fs: &Fs, one: &Gone, findings: &Findings) -> bool {
    let compare = |model: &Model| {
        let own = compare(realm, one.slot, model)?;
        let roaming = roam::compare(namespace, one.slot, &model.roaming, false)?;
        let gridded = grids::compare(namespace, one.slot, &model.gridded)?;
        let filed = files::compare(fs, one.slot, &model.filed)?;
        let logged = crowd::compare(fs, one.slot, &model.logged)?;
        let travelling = travel::compare(namespace, one.slot, model)?;
        Ok::<u64, String>(own + roaming + gridded + filed + logged + travelling)
    };
    let mut before = one.model.clone();
    if let Some(operation) = &one.pending {
        before.tear(operation);
    }
    let mut after = before.clone();
    if let Some(operation) = &one.pending {
        after.imagine(operation);
    }
    let looked = compare(&before);
    if looked.is_ok() || before == after {
        findings.add(looked.unwrap_or_else(|why| panic!("w{}: {why}", one.slot)));
        return false;
    }
    let again = compare(&after);
    let (without, with) = (looked.unwrap_err(), again.as_ref().err());
    findings.add(again.clone().unwrap_or_else(|_| {
        panic!(
            "w{} after {:?}: if it was not done, {without}; if it was, {}",
            one.slot,
            one.pending.as_ref().map(Operation::told),
            with.expect("an error")
        )
    }));
    true
}

/// Compares a worker's part of the pool with a model; how many things were compared.
fn compare(realm: &Realm, slot: usize, model: &Model) -> Result<u64, String> {
    let mut checks = 0;
    let mut found = BTreeMap::new();
    for (number, there) in model.groups.iter().enumerate() {
        let path = format!("w{slot}/g{number}");
        let gid = group(realm, &path);
        if gid.is_some() != *there {
            return Err(format!("{path} is {gid:?}, and shall be there: {there}"));
        }
        let Some(gid) = gid else { continue };
        for (name, member) in realm.list_found(gid, None, 1000).map_err(|e| e.to_string())? {
            let Found::Object(info) = member else {
                return Err(format!("{path}/{name} is a group"));
            };
            let place = name.parse::<u8>().map_err(|_| format!("{path}/{name} is strange"))?;
            found.insert(Name(number as u8 * crate::operation::NAMES as u8 + place), info);
        }
    }
    if let Some(name) = found.keys().find(|name| !model.items.contains_key(name)) {
        return Err(format!("{} is there, and shall not", name.path(slot)));
    }
    for (name, item) in &model.items {
        let path = name.path(slot);
        let Some(info) = found.get(name) else { return Err(format!("{path} is not there")) };
        let (payload, _) = realm.payload(info.oid).map_err(|e| format!("{path}: {e}"))?;
        if let Some(why) = with_words(&payload, |words| item.misfit(slot, &words)) {
            return Err(format!("{path}: {why}"));
        }
        let attr = |key: &str| {
            let value = realm.attr(Member::Object(info.oid), key).expect("it is there");
            value.and_then(|value| number_of(&value))
        };
        let (made, noted) = (attr("v"), attr("a"));
        if made != Some(item.made) || noted != item.noted || info.index != item.index {
            return Err(format!(
                "{path} has v={made:?} a={noted:?} {:?}, not v={} a={:?} {:?}",
                info.index, item.made, item.noted, item.index
            ));
        }
        checks += 4;
    }
    Ok(checks + compare_index(realm, slot, model, &found)?)
}

/// The index finds what the model has.
fn compare_index(
    realm: &Realm,
    slot: usize,
    model: &Model,
    found: &BTreeMap<Name, ObjectInfo>,
) -> Result<u64, String> {
    let below = group(realm, &format!("w{slot}")).ok_or("its group is gone")?;
    let indexed = model.items.iter().filter(|(_, item)| item.index != IndexMode::None);
    let oids = |noted: bool| {
        let of = indexed.clone().filter(|(_, item)| !noted || item.noted.is_some());
        let mut oids: Vec<Oid> = of.map(|(name, _)| found[name].oid).collect();
        oids.sort_unstable();
        oids
    };
    for (text, expected) in [("v >= 0", oids(false)), ("a >= 0", oids(true))] {
        let answer = ask(realm, below, text, false).map_err(|e| e.to_string())?;
        if answer != expected {
            return Err(format!("{text} finds {answer:x?}, not {expected:x?}"));
        }
    }
    Ok(2)
}

/// Looks at everything, while nobody is within an operation. `alive`: how many processes have the
/// pool open.
///
/// # Panics
///
/// If anything is wrong.
pub fn at_rest(path: &Path, all: &[Gone], alive: usize, findings: &Findings) {
    let (pool, realm) = open(path, Mode::ReadWrite);
    let namespace = view(&pool);
    // Takes back what the dead have reserved.
    let space = realm.space().expect("figures");
    assert_eq!(space.used + space.pending + space.free, space.arena, "{space:?}");
    assert_eq!(space.pids.len(), alive + 1, "{:?}: not those that live", space.pids);
    let fs = files::shown(&namespace);
    for one in all {
        assert!(one.pending.is_none());
        let checks = compare(&realm, one.slot, &one.model);
        let travelling = travel::compare(&namespace, one.slot, &one.model);
        let roaming = roam::compare(&namespace, one.slot, &one.model.roaming, true);
        let gridded = grids::compare(&namespace, one.slot, &one.model.gridded);
        let filed = files::compare(&fs, one.slot, &one.model.filed);
        let logged = crowd::compare(&fs, one.slot, &one.model.logged);
        for checks in [checks, travelling, roaming, gridded, filed, logged] {
            findings.add(checks.unwrap_or_else(|why| panic!("w{} at rest: {why}", one.slot)));
        }
    }
    assert_eq!(namespace.leaving().expect("marks"), 0, "something is on its way, by nobody");
    check_together(&realm);
    findings.add(4 + check_values(&realm) + crowd::check(&fs));
    let realms = Scope::ALL.map(|scope| namespace.realm_of(scope, false).expect("a realm"));
    // What is reserved by the dead of the private realm goes, too.
    realms.iter().flatten().for_each(|realm| drop(realm.space().expect("figures")));
    let mut used = realms.iter().flatten().map(extents).sum::<u64>();
    let alone = realms[Scope::Private as usize].is_none();
    drop((realm, namespace, fs, realms));
    pool.close();
    assert_eq!(leases(path, SHARED), alive, "there are other leases than those of the living");
    let private = if alone { None } else { Some(PRIVATE.to_owned() + &user(path)) };
    if let Some(private) = &private {
        // Who was there before it came opens it when it looks for it.
        assert!(leases(path, private) <= alive, "the dead have leases in the private realm");
    }
    for realm in [SHARED].into_iter().chain(private.as_deref()) {
        let reserved = reserved(path, realm);
        assert_eq!(reserved, 0, "bytes of {realm} are reserved, and nobody is in an operation");
        used += chunks(path, realm);
    }
    let orphans = orphans(path);
    used += orphans.iter().map(|row| orphan_len(row)).sum::<u64>();
    // A snapshot that is held keeps them longer.
    let open = all.iter().map(|one| one.model.filed.nameless()).sum::<usize>();
    assert!(orphans.len() >= open, "{} files without a name, {open} of them open", orphans.len());
    assert!(alive > 0 || orphans.is_empty(), "files of the dead without a name: {orphans:x?}");
    let report = engram::verify(path).expect("a walk");
    assert_eq!((report.problems, report.orphaned), (Vec::<String>::new(), 0));
    assert_eq!(report.used, used, "the account, and what the objects by name take");
    assert_eq!(report.used + report.pending + report.free, report.arena);
    findings.add(3 + report.objects + report.groups + report.attributes + report.extents);
}

/// Where realms lie.
const SHARED: &str = "ns/open/shared";
const PRIVATE: &str = "ns/open/private/";

/// The name of the folder of this user's own realm.
fn user(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    path.metadata().expect("the pool's folder").uid().to_string()
}

/// How many leases there are in a realm.
fn leases(path: &Path, realm: &str) -> usize {
    let names = std::fs::read_dir(path.join(realm).join("leases")).expect("leases").flatten();
    let named = names.filter(|entry| {
        entry.file_name().to_str().is_some_and(|name| u64::from_str_radix(name, 16).is_ok())
    });
    named.count()
}

/// The bytes of all extents of objects in one piece that have a name.
fn extents(realm: &Realm) -> u64 {
    let (mut bytes, mut groups, mut seen) = (0, vec![realm.root()], BTreeSet::new());
    while let Some(gid) = groups.pop() {
        for (name, found) in realm.list_found(gid, None, usize::MAX).expect("a listing") {
            match found {
                Found::Group(inner) => groups.push(inner),
                Found::Object(info) if info.layout != Layout::Contiguous => {}
                // It may have several names.
                Found::Object(info) if !seen.insert(info.oid) => {}
                Found::Object(info) if info.head.is_some() => bytes += HEAD,
                Found::Object(info) => {
                    let (payload, _) = realm.payload(info.oid).expect("a value");
                    assert_eq!(info.inline, matches!(payload, Payload::Inline(_)), "{name}");
                    assert!(info.inline || info.nbytes > 0, "{name}");
                    assert!(!info.inline || info.nbytes <= INLINE, "{name}");
                    bytes += if info.inline { 0 } else { extent_len(info.nbytes) };
                }
            }
        }
    }
    bytes
}

/// The bytes that a file's head takes in the arena.
const HEAD: u64 = 128;

/// The records of files without a name. The second byte says how one lies.
fn orphans(path: &Path) -> Vec<Vec<u8>> {
    let catalog = catalog_of(path, SHARED);
    let read = catalog.read().expect("a snapshot");
    let mut rows = read.seek(Table::Orphans, &[]).expect("rows");
    let mut all = Vec::new();
    while let Some((_, row)) = rows.next().expect("a row") {
        // Before the record is a transaction's number.
        all.push(row[8..].to_vec());
    }
    all
}

/// The bytes of one beside its segments: it lies in its record, or has a head. A value in one
/// extent is one where somebody has more open than a lease lists, who may have it open, too.
fn orphan_len(record: &[u8]) -> u64 {
    match record[1] {
        0 => 0,
        1 => {
            // A record ends with offset, extent length, value length and checksum.
            let from = record.len() - 24;
            u64::from_le_bytes(record[from..from + 8].try_into().expect("eight bytes"))
        }
        3 => HEAD,
        other => panic!("a file without a name lies so: {other}"),
    }
}

/// The bytes that a value takes in the arena.
fn extent_len(nbytes: u64) -> u64 {
    nbytes.next_multiple_of(if nbytes < 1 << 16 { 64 } else { 4096 })
}

/// The catalog of a realm.
fn catalog_of(path: &Path, realm: &str) -> Catalog {
    let options = catalog::Options { file_mode: 0o600, ..catalog::Options::default() };
    Catalog::open(&path.join(realm).join("catalog"), &options).expect("the catalog")
}

/// The bytes of all extents of chunks. A chunk's row ends with its value, or, if its second byte
/// says so, with where that lies, how long it is, and its checksum.
fn chunks(path: &Path, realm: &str) -> u64 {
    let catalog = catalog_of(path, realm);
    let read = catalog.read().expect("a snapshot");
    let mut rows = read.seek(Table::Chunks, &[]).expect("rows");
    let mut bytes = 0;
    while let Some((_, row)) = rows.next().expect("a row") {
        if row[1] == 1 {
            let length = &row[row.len() - 16..][..8];
            bytes += extent_len(u64::from_le_bytes(length.try_into().expect("a length")));
        }
    }
    bytes
}

/// The bytes that any lease has reserved, read in the catalog itself.
fn reserved(path: &Path, realm: &str) -> u64 {
    let catalog = catalog_of(path, realm);
    let read = catalog.read().expect("a snapshot");
    let mut rows = read.seek(Table::ExtentsPending, &[1]).expect("rows");
    let mut bytes = 0;
    while let Some((key, value)) = rows.next().expect("a row") {
        if key[0] != 1 {
            break;
        }
        bytes += u64::from_le_bytes(value.try_into().expect("a length"));
    }
    bytes
}

/// Deletes everything, when nobody has the pool open any more: every byte must come back.
///
/// # Panics
///
/// If it does not.
pub fn nothing_leaks(path: &Path, findings: &Findings) {
    let (pool, realm) = open(path, Mode::ReadWrite);
    let (root, namespace) = (realm.root(), view(&pool));
    travel::withdraw_all(&namespace, WRITING);
    for (name, _) in namespace.list(root, None, usize::MAX).expect("a listing") {
        namespace.delete(root, &name).expect("deleting");
    }
    while namespace.maintain().expect("maintenance") > 0 {}
    namespace.drain_queue(u64::MAX).expect("draining");
    for scope in [Scope::Private, Scope::Shared] {
        let Some(realm) = namespace.realm_of(scope, false).expect("a realm") else { continue };
        let size = realm.space().expect("figures").arena;
        if size > 0 {
            drop(realm.scratch(size, None).expect("the whole arena in one piece"));
        }
    }
    let realms = namespace.scopes().expect("realms").len() as u64;
    pool.close();
    let report = engram::verify(path).expect("a walk");
    assert_eq!((report.problems, report.orphaned), (Vec::<String>::new(), 0));
    // Beside them, the namespace that every pool has.
    assert_eq!((report.used, report.objects, report.groups), (0, 0, realms + 1));
    assert_eq!(report.pending + report.free, report.arena);
    findings.add(4);
}
