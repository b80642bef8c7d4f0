//! Backup: a whole pool at one path, of what there was at one moment, while others write and
//! delete.
//!
//! For each namespace: (1) the writer locks of its realms together, for as long as it takes to
//! begin a look-up in each (what is published has no such lock: if a version has come since that
//! one was found, all looks begin again), so that the copy is of one moment, and what it says of
//! moves between two realms tells in which of them their members are (`transfer::copied`); (2) the
//! rows of these snapshots into new catalogs; the snapshots end there, so that the catalogs need
//! not grow, and the look-ups' ages go on: nothing that the rows point to is used again meanwhile
//! (P2); (3) the values, one after another, into one span, those of what is published into as many
//! as a publisher would make; (4) everything synced; and when all namespaces are there, (5)
//! `creating.toml` is renamed to `pool.toml`. Until then, and after a death, the copy is a
//! half-created pool, refused by name.
//!
//! A value that is written *in place* meanwhile is not isolated: it may be of several moments. Its
//! checksum was taken away before the first write (see `checksum`), so a value whose bytes are not
//! those of its checksum, and whose record has changed since, is one of these, and is copied
//! without a checksum; if its record is as it was, the bytes have changed by themselves, and that
//! is an error.
//!
//! **A realm that is damaged is left out**, by name (see `left_out`): one user's realm must not
//! keep everybody's from being copied. Its pages are walked before LMDB is asked about them, for
//! LMDB trusts them. Where damage shows in the middle of the copy, what was begun of the realm is
//! taken away again.
//!
//! The process holds its realm open all the while: a fork in another thread waits for the end.

use engram_realm::space;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::left_out::{LeavingOut, LeftOut, ROOT, is_damage, shown};
use super::spans::{NewSpans, lay_out};
use super::{
    MOVES, MovedValue, check_places, finish_catalog, hand_over, id_of, rewrite_rows, rewrite_space,
    settled_head, sync_folders, values,
};
use crate::verify::check_pages;
use engram_base::checksum;
use engram_base::checksum::RunningChecksum;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::scope::Scope;
use engram_base::telemetry::operation;
use engram_base::user;
use engram_catalog::meta::meta_u64;
use engram_catalog::{Catalog, Headroom, Table};
use engram_files::paths;
use engram_files::pool_file::PoolFile;
use engram_media::filesystem::{self, Mount};
use engram_ops::marks::Going;
use engram_pool::Pool;
use engram_pool::namespace;
use engram_pool::published;
use engram_pool::transfer;
use engram_realm::process;
use engram_realm::{Core, Inside, LIMIT, LookUp, Purpose, Setup, USED, boot_id};
use engram_records::object::{Record, Stored};
use engram_space::extent::Span;

/// How often looks are begun again because something was published meanwhile.
const TRIES_MAX: u32 = 1000;
/// So many bytes are copied at a time.
const PIECE: usize = 1 << 20;

/// What a backup has copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Where the copy is.
    pub path: PathBuf,
    /// The realms that were copied: shared, private and published ones.
    pub realms: u64,
    /// The objects that were copied.
    pub objects: u64,
    /// The bytes that the objects take in the copy's arenas, which are as many as in the pool's.
    pub bytes: u64,
    /// The namespaces and realms that this user may not read. The copy lacks them.
    pub skipped: Vec<String>,
    /// What is damaged, and what could not be had for what its user does with it. The copy lacks
    /// it.
    pub left_out: Vec<LeftOut>,
}

/// How a backup is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupOptions {
    /// Also onto a filesystem that is not known to carry a pool.
    pub force: bool,
    /// Leave out also what is damaged and the caller's own, which is an error otherwise.
    pub allow_partial: bool,
}

/// A core that a backup copies. It counts one session more until this is dropped.
struct Opened(Arc<Core>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.remove_session();
    }
}

/// Copies a pool to `dest`, which must not exist or be an empty folder: a whole pool on one
/// device, with a uuid of its own, restored by opening it. Others may write meanwhile.
///
/// With `force`, also onto a filesystem that is not known to carry a pool. A damaged realm of
/// another user's, or any for root, is left out, and the report names it. On error nothing is left
/// behind.
pub fn backup(pool: &Pool, dest: &Path, force: bool) -> Result<BackupReport> {
    backup_with(pool, dest, BackupOptions { force, ..BackupOptions::default() })
}

/// The same, as the options say.
pub fn backup_with(pool: &Pool, dest: &Path, options: BackupOptions) -> Result<BackupReport> {
    let _operation = operation!(INFO, "backup", to = %dest.display());
    pool.check_open()?;
    pool.file_now()?;
    let leaving = LeavingOut { done: "copied", allow_partial: options.allow_partial };
    Pool::make_at(dest, |dest| {
        let mount = filesystem::admit(dest, options.force)?;
        let source = pool.file_now()?;
        let file = source.like(dest, &mount)?;
        file.begin(dest)?;
        step!("backup.begun");
        let mut report = BackupReport { path: dest.to_owned(), ..BackupReport::default() };
        let (source, file, mount, leaving) = (&source, &file, &mount, &leaving);
        let copy = Copy { pool, source, dest, file, mount, leaving };
        for name in namespace::names(pool.path())? {
            copy.namespace(&name, &mut report)?;
            step!("backup.namespace");
        }
        leaving.refuse_nothing(report.realms, &report.left_out)?;
        hand_over_by_root((dest, &file.uuid), (pool.path(), &source.uuid))?;
        if mount.durable {
            sync_folders(dest)?;
        }
        step!("backup.synced");
        PoolFile::finish(dest)?;
        step!("backup.named");
        Ok(report)
    })
}

/// What root copies stays its owner's. A folder that somebody else has made for the copy keeps its
/// owner.
fn hand_over_by_root(copy: (&Path, &str), pool: (&Path, &str)) -> Result<()> {
    let owner = |path: &Path| -> Result<u32> {
        let meta = fs::metadata(path)
            .map_err(|e| Error::os(format!("looking whose {} is", path.display()), &e))?;
        Ok(meta.uid())
    };
    if user::current() == ROOT && owner(pool.0)? != ROOT && owner(copy.0)? == ROOT {
        hand_over(copy, pool)?;
    }
    Ok(())
}

/// One backup.
struct Copy<'a> {
    pool: &'a Pool,
    source: &'a PoolFile,
    dest: &'a Path,
    file: &'a PoolFile,
    mount: &'a Mount,
    leaving: &'a LeavingOut,
}

/// A realm to be copied: its scope, the user whose it is if it is private, and its core.
struct SourceRealm {
    scope: Scope,
    user: u32,
    core: Opened,
}

impl SourceRealm {
    fn setup(&self) -> &Setup {
        &self.core.0.setup
    }

    /// The user, of a private realm.
    fn owner(&self) -> Option<u32> {
        (self.scope == Scope::Private).then_some(self.user)
    }
}

/// What there is of a namespace to be copied.
#[derive(Default)]
struct FoundRealms {
    realms: Vec<SourceRealm>,
    /// What this user may not read.
    skipped: Vec<String>,
    left_out: Vec<LeftOut>,
}

/// How an attempt to copy a namespace's realms ended.
enum Tried {
    Copied,
    /// Something was published just as the copy was to begin.
    Moved,
    /// This one of the realms is damaged, and nothing was copied.
    Damaged(usize, Error),
}

impl Copy<'_> {
    fn namespace(&self, name: &str, report: &mut BackupReport) -> Result<()> {
        let like = match namespace::look_like(self.source, name) {
            Ok(like) => like,
            Err(error) => return self.without(name, error, report),
        };
        namespace::create_like(self.dest, self.file, &like)?;
        let mut damaged: Vec<(Scope, u32, LeftOut)> = Vec::new();
        for _ in 0..TRIES_MAX {
            let mut found = self.find(name, &damaged)?;
            match self.try_realms(name, &mut found, report)? {
                Tried::Copied => {
                    report.skipped.append(&mut found.skipped);
                    report.left_out.append(&mut found.left_out);
                    report.left_out.extend(damaged.into_iter().map(|(_, _, left)| left));
                    return namespace::hand_over(self.pool.path(), self.dest, self.file, name);
                }
                Tried::Moved => {}
                Tried::Damaged(at, error) => {
                    let realm = &found.realms[at];
                    let left = self.leave(name, realm.scope, realm.owner(), error)?;
                    damaged.push((realm.scope, realm.user, left));
                }
            }
        }
        fail!(
            Busy,
            "something is published in namespace {name:?} again and again, faster than a copy can \
             begin: try again later"
        )
    }

    /// Goes on without a namespace of which not even this can be read what it is like.
    fn without(&self, name: &str, error: Error, report: &mut BackupReport) -> Result<()> {
        let place = paths::place(self.pool.path(), name);
        if error.kind() == Kind::NotFound && !place.exists() && name != paths::DEFAULT {
            return Ok(()); // removed since it was listed
        }
        if error.kind() == Kind::Access {
            report.skipped.push(name.to_owned());
        } else {
            report.left_out.push(self.leaving.leave(self.pool.path(), name, None, None, error)?);
        }
        if name == paths::DEFAULT {
            namespace::create_default(self.dest, self.file)?;
        }
        Ok(())
    }

    fn leave(&self, name: &str, scope: Scope, user: Option<u32>, error: Error) -> Result<LeftOut> {
        self.leaving.leave(self.pool.path(), name, Some(scope), user, error)
    }

    /// Copies the realms of a namespace as of one moment.
    fn try_realms(
        &self,
        name: &str,
        found: &mut FoundRealms,
        report: &mut BackupReport,
    ) -> Result<Tried> {
        let realms = &found.realms;
        let insides = enter_all(realms)?;
        let looks = match together(realms, &insides) {
            Ok(looks) => looks,
            Err((at, error)) => return Ok(Tried::Damaged(at, error)),
        };
        let published_left = found.left_out.iter().any(|left| left.scope == Some(Scope::Published));
        if !published_left {
            match self.is_newest(name, realms, &insides, &looks)? {
                Tried::Copied => {}
                other => return Ok(other),
            }
        }
        let mut out = Vec::with_capacity(realms.len());
        for (at, look) in looks.iter().enumerate() {
            let left = transfer::leaves_out(look.txn(), |scope, user| {
                let same = |found: &SourceRealm| {
                    found.scope == scope && (scope != Scope::Private || found.user == user)
                };
                Some(looks[realms.iter().position(same)?].txn())
            });
            match left {
                Ok(left) => out.push(left),
                Err(error) => return Ok(Tried::Damaged(at, error)),
            }
        }
        for (((realm, inside), look), out) in realms.iter().zip(&insides).zip(looks).zip(out) {
            let left = self.realm(realm, inside, look, &out, report)?;
            found.left_out.extend(left);
        }
        Ok(Tried::Copied)
    }

    /// The realms of a namespace that this user may read and that are no `damaged` ones, the names
    /// of those that this user may not read, and those that are left out.
    fn find(&self, name: &str, damaged: &[(Scope, u32, LeftOut)]) -> Result<FoundRealms> {
        let (path, mount) = (self.pool.path(), filesystem::admit(self.pool.path(), true)?);
        let mut found = FoundRealms::default();
        let shared = namespace::setup(path, self.source, mount.clone(), name);
        let mut setups = vec![(Scope::Shared, 0, shared)];
        match namespace::private_setups(path, self.source, &mount, name) {
            Ok(private) => {
                setups.extend(private.into_iter().map(|(user, one)| (Scope::Private, user, one)));
            }
            Err(error) => found.left_out.push(self.leave(name, Scope::Private, None, error)?),
        }
        let published = Scope::Published;
        let newest = namespace::realm_setup(path, self.source, mount, name, published);
        setups.extend(newest.transpose().map(|setup| (published, 0, setup)));
        for (scope, user, setup) in setups {
            if damaged.iter().any(|(one, of, _)| (*one, *of) == (scope, user)) {
                continue;
            }
            let dir = setup.as_ref().ok().map(|setup| setup.dir.clone());
            let opened = setup.and_then(|setup| {
                check_pages(&setup)?;
                process::core_of(setup, Purpose::Look)
            });
            let owner = (scope == Scope::Private).then_some(user);
            match opened {
                Ok(core) => found.realms.push(SourceRealm { scope, user, core: Opened(core) }),
                Err(error) if error.kind() == Kind::Access => {
                    found.skipped.push(shown(name, Some(scope), owner));
                }
                // It was removed as soon as it was found; of what is published there is a newer
                // version.
                Err(error)
                    if error.kind() == Kind::NotFound
                        && scope != Scope::Shared
                        && dir.is_some_and(|dir| !dir.exists()) => {}
                Err(error) => found.left_out.push(self.leave(name, scope, owner, error)?),
            }
        }
        Ok(found)
    }

    /// Whether what was found of the published versions is the newest one still, after all looks
    /// have begun. Its spans are mapped first: a newer one takes those away that it does not need.
    fn is_newest(
        &self,
        name: &str,
        found: &[SourceRealm],
        insides: &[Inside<'_>],
        looks: &[LookUp<'_>],
    ) -> Result<Tried> {
        let (path, mount) = (self.pool.path(), filesystem::admit(self.pool.path(), true)?);
        let at = found.iter().position(|found| found.scope == Scope::Published);
        let reached = at.map(|at| reach_all(&found[at], &insides[at], &looks[at]));
        let newest = match namespace::realm_setup(path, self.source, mount, name, Scope::Published)
        {
            Err(error) if error.kind() == Kind::Access => None,
            // The next attempt finds the damage.
            Err(error) if is_damage(&error) => return Ok(Tried::Moved),
            newest => newest?,
        };
        let before = at.map(|at| &found[at].setup().dir);
        if newest.as_ref().map(|setup| &setup.dir) != before {
            return Ok(Tried::Moved);
        }
        match (at, reached) {
            (Some(at), Some(Err(error))) => Ok(Tried::Damaged(at, error)),
            _ => Ok(Tried::Copied),
        }
    }

    /// Copies a realm but for what is `out` of it, or says why it is left out: then nothing of it
    /// is in the copy.
    fn realm(
        &self,
        from: &SourceRealm,
        inside: &Inside<'_>,
        look: LookUp<'_>,
        out: &[Vec<Going>],
        report: &mut BackupReport,
    ) -> Result<Option<LeftOut>> {
        let name = &from.setup().namespace;
        let placed = match PlacedValues::of(from, inside, &look) {
            Ok(placed) => placed,
            Err(error) => return self.leave(name, from.scope, from.owner(), error).map(Some),
        };
        let setup = namespace::realm_like(
            self.dest,
            self.file,
            self.mount,
            self.source,
            from.setup(),
            from.user,
        );
        let copied = setup.and_then(|setup| {
            let spans = self.rows_and_values(inside, look, &setup, placed, out, report)?;
            match from.scope {
                Scope::Published => published::finish_like(&setup, &spans),
                _ => Ok(()),
            }
        });
        match copied {
            Ok(()) => {
                report.realms += 1;
                Ok(None)
            }
            // What the copy meets of its own, as a full disk, is of other kinds.
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Format) => {
                let left = self.leave(name, from.scope, from.owner(), error)?;
                let (file, mount) = (self.file, self.mount);
                namespace::undo_like(self.dest, file, mount, name, from.scope, from.user)?;
                Ok(Some(left))
            }
            Err(error) => Err(error),
        }
    }

    /// Copies rows and values of a realm but for what is `out` of it; the files of its values.
    fn rows_and_values(
        &self,
        inside: &Inside<'_>,
        mut look: LookUp<'_>,
        setup: &Setup,
        placed: PlacedValues,
        out: &[Vec<Going>],
        report: &mut BackupReport,
    ) -> Result<Vec<PathBuf>> {
        let PlacedValues { values: found, end } = placed;
        let mut catalog = Catalog::open(&setup.catalog(), &setup.catalog_options())?;
        rewrite_rows(look.txn(), &found, &MOVES, &catalog)?;
        step!("backup.rows");
        look.rest();
        let mut spans = NewSpans::default();
        if end > 0 {
            spans = NewSpans::make(setup, self.dest, self.mount, end)?;
            let changed = copy_values(inside, &found, &spans)?;
            forget_checksums(&catalog, &changed)?;
            if self.mount.durable {
                spans.sync()?;
            }
        }
        rewrite_space(&spans.rows, &found, &[], &catalog)?;
        step!("backup.values");
        catalog.growth().set_boot_id(boot_id());
        if !out.is_empty() {
            drop(catalog);
            transfer::take_out(setup, out)?;
            catalog = Catalog::open(&setup.catalog(), &setup.catalog_options())?;
        }
        finish_catalog(&catalog, setup)?;
        let txn = catalog.read()?;
        let (objects, bytes) =
            (txn.entries(Table::Objects)?, meta_u64(txn.get(Table::Meta, USED)?)?);
        report.objects += objects;
        report.bytes += bytes;
        Ok(spans.files.into_iter().map(|(path, _)| path).collect())
    }
}

/// The values of a realm, which are mapped, and where each goes in the copy.
struct PlacedValues {
    values: Vec<MovedValue>,
    /// Where the copy's arena ends.
    end: u64,
}

impl PlacedValues {
    fn of(from: &SourceRealm, inside: &Inside<'_>, look: &LookUp<'_>) -> Result<PlacedValues> {
        let mut values = values(look.txn())?;
        let limit = meta_u64(look.txn().get(Table::Meta, LIMIT)?)?;
        let spans = Span::all(&mut look.txn().rows())?;
        check_places(&spans, &values)?;
        let reached = values.iter().map(|value| value.from.end()).max().unwrap_or(0);
        space::reach_in(&from.core.0, inside, reached, look.txn())?;
        let end = lay_out(&mut values, limit);
        Ok(PlacedValues { values, end })
    }
}

/// Maps every span that a look shows.
fn reach_all(from: &SourceRealm, inside: &Inside<'_>, look: &LookUp<'_>) -> Result<()> {
    let txn = look.txn();
    let end = Span::all(&mut txn.rows())?.last().map_or(0, |last| last.range.end());
    space::reach_in(&from.core.0, inside, end, txn)
}

/// Enters several cores in the order in which a fork takes them (see `realm::together`).
fn enter_all(found: &[SourceRealm]) -> Result<Vec<Inside<'_>>> {
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|place| Arc::as_ptr(&found[*place].core.0));
    let mut insides = Vec::with_capacity(order.len());
    for place in order {
        insides.push((place, found[place].core.0.enter()?));
    }
    insides.sort_by_key(|(place, _)| *place);
    Ok(insides.into_iter().map(|(_, inside)| inside).collect())
}

/// Begins a look-up in each realm, all at one moment; or says which of them cannot be looked at. A
/// published realm has no writer lock: whether anything has come there meanwhile is looked at
/// afterwards.
fn together<'a>(
    found: &[SourceRealm],
    insides: &'a [Inside<'a>],
) -> std::result::Result<Vec<LookUp<'a>>, (usize, Error)> {
    let mut writers = Vec::new();
    if found.len() > 1 {
        for (at, (found, inside)) in found.iter().zip(insides).enumerate() {
            if found.setup().immutable {
                continue;
            }
            match inside.catalog().write(Headroom::Relief) {
                Ok(writer) => writers.push(writer),
                Err(error) => return Err((at, error)),
            }
        }
    }
    let mut looks = Vec::with_capacity(insides.len());
    let mut refused = None;
    for (at, inside) in insides.iter().enumerate() {
        match inside.look() {
            Ok(look) => looks.push(look),
            Err(error) => {
                refused = Some((at, error));
                break;
            }
        }
    }
    // In turn, the last first: each belongs to this thread.
    writers.into_iter().rev().for_each(drop);
    refused.map_or(Ok(looks), Err)
}

/// Copies every value, all of which are mapped; gives those whose bytes are no more those of their
/// checksum.
fn copy_values(
    inside: &Inside<'_>,
    values: &[MovedValue],
    to: &NewSpans,
) -> Result<Vec<MovedValue>> {
    let mut piece = vec![0; PIECE];
    let mut changed = Vec::new();
    for value in values {
        let memory = inside.arena().memory(value.from);
        if let Some(most) = value.head {
            let head = settled_head(&memory.read(value.nbytes as usize), most)?;
            to.write_at(&head, value.to)?;
            continue;
        }
        let mut running = RunningChecksum::new();
        let mut done = 0;
        while done < value.nbytes {
            let now = (PIECE as u64).min(value.nbytes - done) as usize;
            memory.copy_out(done, &mut piece[..now]);
            if checksum::is_checksum(value.word) {
                running.add(&piece[..now]);
            }
            to.write_at(&piece[..now], value.to + done)?;
            done += now as u64;
        }
        if checksum::is_checksum(value.word) && running.word() != value.word {
            check_changed(inside, value)?;
            changed.push(value.clone());
        }
    }
    Ok(changed)
}

/// Refuses a value whose bytes have changed, and whose record has not.
fn check_changed(inside: &Inside<'_>, value: &MovedValue) -> Result<()> {
    let txn = inside.read()?;
    let Some(row) = txn.get(value.table, &value.key)? else { return Ok(()) };
    if let Stored::Contiguous { extent, checksum, .. } = Record::parse(row)?.stored
        && (extent, checksum) == (value.from, value.word)
    {
        fail!(
            Corrupt,
            "object {:#x} is damaged: its bytes are not those of its checksum; run verify, and \
             delete it before a backup, or export what is sound (engram export --salvage)",
            id_of(&value.key)?
        );
    }
    Ok(())
}

/// Takes the checksums of values away that were written in place meanwhile.
fn forget_checksums(catalog: &Catalog, changed: &[MovedValue]) -> Result<()> {
    for value in changed {
        catalog.run(|txn| {
            let Some(row) = txn.get(value.table, &value.key)? else { return Ok(()) };
            let record = Record::parse(row)?;
            let (extent, nbytes) = (value.place(), value.nbytes);
            let stored = Stored::Contiguous { extent, nbytes, checksum: checksum::NONE };
            let row = Record { stored, ..record }.encode();
            txn.put(value.table, &value.key, &row)
        })?;
    }
    Ok(())
}
