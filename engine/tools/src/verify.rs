//! Verify: walks catalog and extents, and says everything that does not agree.
//!
//! Checked: every row decodes; every name has a record that says the same name and parent, and
//! every record has a name, and the others that `links` has; every chunk belongs to an array, and
//! lies within it, every segment to a file that has a head; every chain of
//! parents ends at the root; no two extents overlap, whether in use, reserved, freed or free; free
//! extents are maximal and both free tables agree; in use + reserved + freed + free = arena; every
//! reservation has a lease; the accounts in `meta` are right; no id will be given out twice; every
//! span has its file, of its length; the index agrees with the records (see `index`), and so does
//! the list of what is read-only; checksums, where there are any (see `values`). Of a namespace's
//! realms, that each object is in one, and each group true in one, but for what moves (see
//! `scopes`).
//!
//! LMDB trusts its own pages, so they come first: `pages` reads all of them without it, and where
//! it finds damage, LMDB is not asked at all. Damage that it overlooks could still kill the process
//! that walks: callers run this in a child process, and take its death for what it is.
//!
//! Others may write meanwhile: all is of one snapshot, which a look-up keeps. Before LMDB is open
//! nothing keeps the pages of a snapshot, so a page that looks damaged while others commit is
//! looked at again, and at last with LMDB's own read transaction to keep it.

mod catalog;
mod chunks;
mod files;
mod index;
mod meta;
mod moves;
mod nodes;
mod pages;
mod runs;
mod scopes;
mod space;
mod tree;
mod values;

use engram_realm::dead;
use files::Files;
use std::collections::{HashMap, HashSet};
use std::path::Path;

pub(crate) use catalog::check as check_pages;
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member, id_key, split_name_key};
use engram_base::name::Name;
use engram_base::scope::Scope;
use engram_base::telemetry::operation;
use engram_base::user;
use engram_catalog::meta::meta_u64;
use engram_catalog::{GroupChanges, ReadTxn, Table};
use engram_files::paths;
use engram_files::pool_file::{PoolFile, real_path};
use engram_media::filesystem;
use engram_pool::check_devices;
use engram_pool::namespace;
use engram_pool::published::with_newest;
use engram_realm::process;
use engram_realm::{Core, Purpose, Setup, boot_id};
use engram_records::attrs::{self, KeyId};
use engram_records::extent::Extent;
use engram_records::object::{Class, Record, Stored};
#[cfg(feature = "faults")]
pub(crate) use nodes::decode as decode_page;
pub(crate) use pages::Pages;
use scopes::Walked;
pub(crate) use values::SpanFiles;
use values::Sum;

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What does not agree; empty for a sound pool.
    pub problems: Vec<String>,
    /// Namespaces, and private realms in them, that this user may not open.
    pub skipped: Vec<String>,
    /// Namespaces walked.
    pub namespaces: u64,
    /// Groups, roots included.
    pub groups: u64,
    /// Objects.
    pub objects: u64,
    /// Attributes.
    pub attributes: u64,
    /// Values in extents that have a checksum, and their bytes.
    pub checked: u64,
    /// Bytes of these.
    pub checked_bytes: u64,
    /// Values in extents that have none, though the pool keeps some: they were written in place,
    /// and not flushed since.
    pub unchecked: u64,
    /// Extents in use.
    pub extents: u64,
    /// Bytes that objects take in the arenas.
    pub used: u64,
    /// Bytes that are free there.
    pub free: u64,
    /// Bytes reserved, or freed and not yet reclaimed.
    pub pending: u64,
    /// Of these, bytes that leases reserved which are gone, as after a failure of power: the next
    /// process that stores something takes them back.
    pub orphaned: u64,
    /// Bytes that spans fill.
    pub arena: u64,
}

/// After so many rows one can see that the walk goes on.
const PULSE_ROWS: usize = 1024;
/// The most problems that are listed one by one.
const PROBLEMS_MAX: usize = 1000;

/// Walks every realm of the pool at `path` that this user may open.
///
/// A sound realm that nobody else has open is then fit for use again, if a failed sync or a
/// restart of the machine had closed it.
pub fn verify(path: &Path) -> Result<Report> {
    verify_with(path, &mut || ())
}

/// The same; calls `pulse` again and again, so that somebody can see that it goes on.
pub fn verify_with(path: &Path, pulse: &mut dyn FnMut()) -> Result<Report> {
    let _operation = operation!(INFO, "verify", pool = %path.display());
    let path = &real_path(path)?;
    let file = PoolFile::read(path)?;
    check_devices(path, &file)?;
    let mount = filesystem::admit(path, true)?;
    let mut report = Report::default();
    let names = namespace::names(path)?;
    if !names.iter().any(|name| name == paths::DEFAULT) {
        let gone = paths::place(path, paths::DEFAULT);
        let what = format!("namespace {:?}: {} is gone", paths::DEFAULT, gone.display());
        report.problems.push(what);
    }
    for name in names {
        let shared = namespace::setup(path, &file, mount.clone(), &name);
        if let Ok(setup) = &shared {
            report.problems.extend(catalog::file_problem(path, setup));
            report.problems.extend(namespace::counter_problem(path, &name));
        }
        let mut walked = Vec::new();
        if report.realm(name.clone(), shared, pulse, &mut walked)? {
            report.namespaces += 1;
        }
        report.private(
            &name,
            namespace::private_setups(path, &file, &mount, &name),
            |report, at| report.realm(at.0, at.1, pulse, &mut walked).map(drop),
        )?;
        let find = || namespace::realm_setup(path, &file, mount.clone(), &name, Scope::Published);
        report.published(&format!("{name} (published)"), find, pulse, &mut walked)?;
        report.scopes(&walked, &find)?;
    }
    Ok(report)
}

impl Report {
    /// Walks the private realms of a namespace. One that cannot be had now, for what its user does
    /// with it, keeps none of the others from being walked.
    fn private(
        &mut self,
        name: &str,
        setups: Result<Vec<(u32, Result<Setup>)>>,
        mut walk: impl FnMut(&mut Self, (String, Result<Setup>)) -> Result<()>,
    ) -> Result<()> {
        let setups = match setups {
            Err(error) if catalog::is_damage(&error) => {
                self.tell(name, vec![error.to_string()]);
                return Ok(());
            }
            setups => setups?,
        };
        for (user, setup) in setups {
            let called = format!("{name} (private of user {user})");
            match walk(self, (called.clone(), setup)) {
                Err(error) if user != user::current() => {
                    self.tell(&called, vec![format!("it was not walked: {error}")]);
                }
                walked => walked?,
            }
        }
        Ok(())
    }

    /// Walks the newest published version; if it goes meanwhile, the one that is the newest then.
    fn published(
        &mut self,
        name: &str,
        find: impl Fn() -> Result<Option<Setup>>,
        pulse: &mut dyn FnMut(),
        walked: &mut Vec<Walked>,
    ) -> Result<()> {
        if let Err(error) = find() {
            return self.realm(name.to_owned(), Err(error), pulse, walked).map(drop);
        }
        let (before, others) = (self.clone(), walked.len());
        with_newest(find, |setup| {
            self.clone_from(&before);
            walked.truncate(others);
            let dir = setup.dir.clone();
            self.realm(name.to_owned(), Ok(setup), pulse, walked)?;
            if self.problems.len() > before.problems.len() && !dir.is_dir() {
                fail!(Busy, "versions in {} go while they are verified: try again", dir.display());
            }
            Ok(())
        })
        .map(drop)
    }
}

impl Report {
    /// Walks a realm; `false` if this user may not open it.
    fn realm(
        &mut self,
        name: String,
        setup: Result<Setup>,
        pulse: &mut dyn FnMut(),
        all: &mut Vec<Walked>,
    ) -> Result<bool> {
        let before = self.problems.len();
        let opened = setup.and_then(|setup| {
            let pages = catalog::pages(&setup, pulse)?;
            let sound = !matches!(pages, catalog::PagesState::Damaged(_));
            let core = sound.then(|| process::core_of(setup, Purpose::Verify)).transpose()?;
            Ok((core, pages))
        });
        let (core, pages) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == Kind::Access => {
                self.skipped.push(name);
                return Ok(false);
            }
            Err(error) if catalog::is_damage(&error) => {
                self.tell(&name, vec![error.to_string()]);
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        match (&core, pages) {
            (Some(core), catalog::PagesState::Moving) => {
                self.tell(&name, catalog::pages_kept(core, pulse)?);
            }
            (_, catalog::PagesState::Damaged(problems)) => self.tell(&name, problems),
            _ => {}
        }
        let Some(core) = core else { return Ok(true) };
        let leases = HashSet::new();
        let mut walk = Walk { core: &core, name: &name, report: self, leases, pulse };
        match walk.run() {
            Ok(members) => {
                all.push(Walked { name: name.clone(), setup: core.setup.clone(), members });
            }
            Err(error) => self.problems.push(format!("namespace {name:?}: {error}")),
        }
        let sound = self.problems.len() == before;
        let readmitted = if sound { readmit(&core) } else { Ok(()) };
        core.remove_session();
        readmitted.map(|()| true)
    }
}

impl Report {
    fn tell(&mut self, name: &str, problems: Vec<String>) {
        let told = problems.into_iter().map(|what| format!("namespace {name:?}: {what}"));
        self.problems.extend(told);
        self.problems.truncate(PROBLEMS_MAX);
    }
}

/// Makes a sound realm fit for use again.
fn readmit(core: &Core) -> Result<()> {
    if core.setup.immutable {
        return Ok(());
    }
    let inside = core.enter()?;
    let alone = dead::others_of(core, &inside)?.is_empty();
    let growth = inside.catalog().growth();
    if alone && inside.catalog().poisoned() {
        inside.catalog().clear_poison();
        dead::take_back_dead(core, &inside)?;
    }
    if alone && growth.boot_id() != boot_id() {
        growth.set_boot_id(boot_id());
        growth.sync()?;
    }
    Ok(())
}

struct Walk<'a> {
    core: &'a Core,
    name: &'a str,
    report: &'a mut Report,
    /// The leases that there were before the walk's snapshot.
    leases: HashSet<u64>,
    pulse: &'a mut dyn FnMut(),
}

/// What a record says of itself.
struct RecordFacts {
    parent: Gid,
    name: String,
    named: bool,
    read_only: bool,
    /// A group of another realm: a member of this one may have its name.
    mirror: bool,
}

impl Walk<'_> {
    fn problem(&mut self, what: impl std::fmt::Display) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(format!("namespace {:?}: {what}", self.name));
        }
    }

    /// Walks the realm, and returns the members that it has for itself.
    fn run(&mut self) -> Result<Vec<Member>> {
        let core = self.core;
        let inside = core.enter()?;
        self.leases = space::lease_ids(core)?;
        if let Some(what) = catalog::growth(&inside)? {
            self.problem(what);
        }
        // A look-up, not only a snapshot: the extents that it shows are not used again meanwhile.
        let look = inside.look()?;
        let txn = look.txn();
        let keys = &self.keys(txn)?;
        let (mut extents, mut sums) = (Vec::new(), Vec::new());
        let mut groups = self.records(txn, Table::Groups, keys, &mut extents, &mut sums)?;
        let mut objects = self.records(txn, Table::Objects, keys, &mut extents, &mut sums)?;
        let mut files = Files::of(txn)?;
        self.chunks(txn, &mut files, &mut extents, &mut sums)?;
        self.orphans(txn, &objects, &mut extents)?;
        self.heads(txn, &files)?;
        self.names(txn, &mut groups, &mut objects)?;
        self.tree(&groups, &objects);
        self.moves(txn, &groups, &objects)?;
        self.read_only(txn, &groups, &objects)?;
        self.mirrors(txn, &groups)?;
        self.group_times(txn, &groups)?;
        if let Err(error) = GroupChanges::read(txn) {
            self.problem(error);
        }
        self.index(txn, keys)?;
        self.ids(txn, groups.keys().chain(objects.keys()))?;
        self.values(txn, &sums, &objects, &groups)?;
        self.space(txn, extents)?;
        Ok(scopes::members_of(&objects))
    }

    /// The attribute keys that have names: both directions agree, and no number is yet to be given.
    fn keys(&mut self, txn: &ReadTxn<'_>) -> Result<HashSet<KeyId>> {
        let next = meta_u64(txn.get(Table::Meta, b"keys")?)?;
        let (mut named, mut wrong) = (HashSet::new(), Vec::new());
        let mut cursor = txn.seek(Table::Keys, &[])?;
        while let Some((key, value)) = cursor.next()? {
            let other = match key.split_first() {
                Some((b'k', _)) => <[u8; 4]>::try_from(value)
                    .ok()
                    .map(|id| [b"i", u32::from_le_bytes(id).to_be_bytes().as_slice()].concat()),
                Some((b'i', _)) => Some([b"k", value].concat()),
                _ => None,
            };
            let back = other.and_then(|other| txn.get(Table::Keys, &other).transpose());
            let says = back.transpose()?.map(|back| match key[0] {
                b'k' => back == &key[1..],
                _ => back.iter().rev().eq(&key[1..]),
            });
            if says != Some(true) {
                wrong.push(format!("attribute key row {key:02x?} has no counterpart"));
            }
            if let Some((b'i', number)) = key.split_first()
                && let Ok(number) = number.try_into().map(KeyId::from_be_bytes)
            {
                named.insert(number);
            }
        }
        if let Some(number) = named.iter().find(|number| u64::from(**number) >= next) {
            wrong.push(format!("attribute key {number} is in `keys`, and {next} is the next"));
        }
        for what in wrong {
            self.problem(what);
        }
        Ok(named)
    }

    /// Decodes every record of a table.
    fn records(
        &mut self,
        txn: &ReadTxn<'_>,
        table: Table,
        keys: &HashSet<KeyId>,
        extents: &mut Vec<(Extent, String)>,
        sums: &mut Vec<Sum>,
    ) -> Result<HashMap<u64, RecordFacts>> {
        let mut known = HashMap::new();
        let mut cursor = txn.seek(table, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let Ok(id) = <[u8; 8]>::try_from(key).map(u64::from_be_bytes) else {
                self.problem(format!("a key of `{}` has {} bytes", table.name(), key.len()));
                continue;
            };
            if known.len().is_multiple_of(PULSE_ROWS) {
                (self.pulse)();
            }
            match self.record(table, id, row, keys, sums) {
                Ok((entry, extent)) => {
                    if let Some(extent) = extent {
                        extents.push((extent, format!("object {id:#x} {:?}", entry.name)));
                    }
                    known.insert(id, entry);
                }
                Err(error) => self.problem(format!("{} {id:#x}: {error}", table.name())),
            }
        }
        match table {
            Table::Groups => self.report.groups += known.len() as u64,
            _ => self.report.objects += known.len() as u64,
        }
        Ok(known)
    }

    fn record(
        &mut self,
        table: Table,
        id: u64,
        row: &[u8],
        keys: &HashSet<KeyId>,
        sums: &mut Vec<Sum>,
    ) -> Result<(RecordFacts, Option<Extent>)> {
        let record = Record::parse(row)?;
        self.check_checked(&record)?;
        if let Stored::Contiguous { extent, nbytes, checksum: word } = record.stored
            && self.core.setup.checksums
        {
            let key = id_key(id).to_vec();
            sums.push(Sum { table, key, extent, nbytes, word, coded: false });
        }
        record.check()?;
        let fits = match record.class {
            Class::Group => table == Table::Groups,
            Class::Chunk => false,
            _ => table == Table::Objects,
        };
        if !fits {
            fail!(Corrupt, "{id:#x} has class {:?} in `{}`", record.class, table.name());
        }
        for entry in attrs::entries(record.attrs) {
            let entry = entry?;
            entry.decode()?;
            if !keys.contains(&entry.key) {
                fail!(Corrupt, "an attribute has the unknown key {}", entry.key);
            }
            self.report.attributes += 1;
        }
        let entry = RecordFacts {
            parent: record.parent,
            name: record.name.to_owned(),
            named: false,
            read_only: record.flags.read_only,
            mirror: record.flags.mirror,
        };
        Ok((entry, record.extent()))
    }

    /// Records have checksums where the pool keeps some, and only there.
    fn check_checked(&self, record: &Record<'_>) -> Result<()> {
        if record.checked != self.core.setup.checksums {
            let (has, pool) = if record.checked { ("a", "no") } else { ("no", "some") };
            fail!(Corrupt, "it has {has} checksum, and the pool keeps {pool}");
        }
        Ok(())
    }

    /// Every name has its record, and they say the same.
    fn names(
        &mut self,
        txn: &ReadTxn<'_>,
        groups: &mut HashMap<u64, RecordFacts>,
        objects: &mut HashMap<u64, RecordFacts>,
    ) -> Result<()> {
        let mut links = self.links(txn, objects)?;
        let mut cursor = txn.seek(Table::Names, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let parsed = split_name_key(key).and_then(|key| Ok((key, Member::from_row(row)?)));
            let ((parent, name), member) = match parsed {
                Ok(parsed) => parsed,
                Err(error) => {
                    self.problem(error);
                    continue;
                }
            };
            let known = match member {
                Member::Group(gid) => groups.get_mut(&gid),
                Member::Object(oid) => objects.get_mut(&oid),
            };
            if let Err(error) = Name::new(name) {
                self.problem(error);
            }
            if links.remove(&(member.id(), parent, name.to_owned())) {
                continue;
            }
            match known {
                None => self.problem(format!("the name {name:?} stands for a missing {member:?}")),
                Some(known) if known.named => {
                    self.problem(format!("{member:?} has a second name, {name:?}"));
                }
                Some(known) if known.parent != parent || known.name != name => {
                    self.problem(format!(
                        "{member:?} is named {name:?} in group {parent:#x}; its record says {:?} \
                         in {:#x}",
                        known.name, known.parent
                    ));
                }
                Some(known) => known.named = true,
            }
        }
        for (oid, parent, name) in links {
            self.problem(format!("{oid:#x} has no name {name:?} in {parent:#x}, as `links` says"));
        }
        Ok(())
    }
}
