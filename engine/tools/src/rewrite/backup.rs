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
//! The process holds its realm open all the while: a fork in another thread waits for the end.

use engram_realm::space;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::spans::{NewSpans, lay_out};
use super::{
    MOVES, MovedValue, finish_catalog, id_of, rewrite_rows, rewrite_space, sync_folders, values,
};
use engram_base::checksum;
use engram_base::checksum::RunningChecksum;
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::scope::Scope;
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
/// With `force`, also onto a filesystem that is not known to carry a pool. On error nothing is
/// left behind.
pub fn backup(pool: &Pool, dest: &Path, force: bool) -> Result<BackupReport> {
    pool.check_open()?;
    Pool::make_at(dest, |dest| {
        let mount = filesystem::admit(dest, force)?;
        let source = PoolFile::read(pool.path())?;
        let file = source.like(dest, &mount)?;
        file.begin(dest)?;
        step!("backup.begun");
        let mut report = BackupReport { path: dest.to_owned(), ..BackupReport::default() };
        for name in namespace::names(pool.path())? {
            let copy = Copy { pool, source: &source, dest, file: &file, mount: &mount };
            copy.namespace(&name, &mut report)?;
            step!("backup.namespace");
        }
        if mount.durable {
            sync_folders(dest)?;
        }
        step!("backup.synced");
        PoolFile::finish(dest)?;
        step!("backup.named");
        Ok(report)
    })
}

/// One backup.
struct Copy<'a> {
    pool: &'a Pool,
    source: &'a PoolFile,
    dest: &'a Path,
    file: &'a PoolFile,
    mount: &'a Mount,
}

/// A realm to be copied: its scope, the user whose it is if it is private, and its core.
struct SourceRealm {
    scope: Scope,
    user: u32,
    core: Opened,
}

impl Copy<'_> {
    fn namespace(&self, name: &str, report: &mut BackupReport) -> Result<()> {
        match namespace::create_like(self.dest, self.file, self.source, name) {
            // This user may not even know what it is like.
            Err(error) if error.kind() == Kind::Access => {
                report.skipped.push(name.to_owned());
                if name == paths::DEFAULT {
                    namespace::create_default(self.dest, self.file)?;
                }
                return Ok(());
            }
            made => made?,
        }
        for _ in 0..TRIES_MAX {
            if self.try_realms(name, report)? {
                return namespace::hand_over(self.pool.path(), self.dest, self.file, name);
            }
        }
        fail!(
            Busy,
            "something is published in namespace {name:?} again and again, faster than a copy can \
             begin: try again later"
        )
    }

    /// Copies the realms of a namespace as of one moment; `false` if something was published just
    /// as that was to be.
    fn try_realms(&self, name: &str, report: &mut BackupReport) -> Result<bool> {
        let (found, skipped) = self.find(name)?;
        let insides = enter_all(&found)?;
        let looks = together(&found, &insides)?;
        if !self.is_newest(name, &found, &insides, &looks)? {
            return Ok(false);
        }
        report.skipped.extend(skipped);
        let mut out = Vec::with_capacity(found.len());
        for look in &looks {
            out.push(transfer::leaves_out(look.txn(), |scope, user| {
                let same = |found: &SourceRealm| {
                    found.scope == scope && (scope != Scope::Private || found.user == user)
                };
                Some(looks[found.iter().position(same)?].txn())
            })?);
        }
        for (((found, inside), look), out) in found.iter().zip(&insides).zip(looks).zip(out) {
            let setup = namespace::realm_like(
                self.dest,
                self.file,
                self.mount,
                self.source,
                &found.core.0.setup,
                found.user,
            )?;
            let spans = self.realm(&found.core.0, inside, look, &setup, &out, report)?;
            if found.scope == Scope::Published {
                published::finish_like(&setup, &spans)?;
            }
            report.realms += 1;
        }
        Ok(true)
    }

    /// The realms of a namespace that this user may read, and the names of the others.
    fn find(&self, name: &str) -> Result<(Vec<SourceRealm>, Vec<String>)> {
        let (path, mount) = (self.pool.path(), filesystem::admit(self.pool.path(), true)?);
        let shared = namespace::setup(path, self.source, mount.clone(), name);
        let mut setups = vec![(Scope::Shared, 0, shared)];
        for (user, setup) in namespace::private_setups(path, self.source, &mount, name)? {
            setups.push((Scope::Private, user, setup));
        }
        let published = Scope::Published;
        let newest = namespace::realm_setup(path, self.source, mount, name, published);
        setups.extend(newest.transpose().map(|setup| (published, 0, setup)));
        let (mut found, mut skipped) = (Vec::new(), Vec::new());
        for (scope, user, setup) in setups {
            let shown = match scope {
                Scope::Shared => name.to_owned(),
                Scope::Private => format!("{name} (private of user {user})"),
                Scope::Published => format!("{name} (published)"),
            };
            match setup.and_then(|setup| process::core_of(setup, Purpose::Look)) {
                Ok(core) => found.push(SourceRealm { scope, user, core: Opened(core) }),
                Err(error) if error.kind() == Kind::Access => skipped.push(shown),
                // A version that went as soon as it was found: there is a newer one.
                Err(error) if error.kind() == Kind::NotFound && scope == published => {}
                Err(error) => return Err(error),
            }
        }
        Ok((found, skipped))
    }

    /// Whether what was found of the published versions is the newest one still, after all looks
    /// have begun. Its spans are mapped first: a newer one takes those away that it does not need.
    fn is_newest(
        &self,
        name: &str,
        found: &[SourceRealm],
        insides: &[Inside<'_>],
        looks: &[LookUp<'_>],
    ) -> Result<bool> {
        let (path, mount) = (self.pool.path(), filesystem::admit(self.pool.path(), true)?);
        let at = found.iter().position(|found| found.scope == Scope::Published);
        if let Some(at) = at {
            let txn = looks[at].txn();
            let end = Span::all(&mut txn.rows())?.last().map_or(0, |last| last.range.end());
            match space::reach_in(&found[at].core.0, &insides[at], end, txn) {
                Err(error) if error.kind() == Kind::NotFound => return Ok(false),
                reached => reached?,
            }
        }
        let newest = match namespace::realm_setup(path, self.source, mount, name, Scope::Published)
        {
            Err(error) if error.kind() == Kind::Access => None,
            newest => newest?,
        };
        let before = at.map(|at| &found[at].core.0.setup.dir);
        Ok(newest.as_ref().map(|setup| &setup.dir) == before)
    }

    /// Copies a realm but for what is `out` of it; the files of its values.
    fn realm(
        &self,
        core: &Arc<Core>,
        inside: &Inside<'_>,
        mut look: LookUp<'_>,
        setup: &Setup,
        out: &[Vec<Going>],
        report: &mut BackupReport,
    ) -> Result<Vec<PathBuf>> {
        let mut found = values(look.txn())?;
        let limit = meta_u64(look.txn().get(Table::Meta, LIMIT)?)?;
        let end = lay_out(&mut found, limit);
        let mut catalog = Catalog::open(&setup.catalog(), &setup.catalog_options())?;
        rewrite_rows(look.txn(), &found, &MOVES, &catalog)?;
        step!("backup.rows");
        look.rest();
        let mut spans = NewSpans::default();
        if end > 0 {
            spans = NewSpans::make(setup, self.dest, self.mount, end)?;
            let changed = copy_values(core, inside, &found, &spans)?;
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
        report.objects += txn.entries(Table::Objects)?;
        report.bytes += meta_u64(txn.get(Table::Meta, USED)?)?;
        Ok(spans.files.into_iter().map(|(path, _)| path).collect())
    }
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

/// Begins a look-up in each realm, all at one moment. A published realm has no writer lock: whether
/// anything has come there meanwhile is looked at afterwards.
fn together<'a>(found: &[SourceRealm], insides: &'a [Inside<'a>]) -> Result<Vec<LookUp<'a>>> {
    let changing = found.iter().zip(insides).filter(|(found, _)| !found.core.0.setup.immutable);
    let writers = if found.len() > 1 {
        changing
            .map(|(_, inside)| inside.catalog().write(Headroom::Relief))
            .collect::<Result<_>>()?
    } else {
        Vec::new()
    };
    let looks = insides.iter().map(Inside::look).collect();
    // In turn, the last first: each belongs to this thread.
    writers.into_iter().rev().for_each(drop);
    looks
}

/// Copies every value; gives those whose bytes are no more those of their checksum.
fn copy_values(
    core: &Arc<Core>,
    inside: &Inside<'_>,
    values: &[MovedValue],
    to: &NewSpans,
) -> Result<Vec<MovedValue>> {
    let end = values.iter().map(|value| value.from.end()).max().unwrap_or(0);
    space::reach(core, inside, end)?;
    let mut piece = vec![0; PIECE];
    let mut changed = Vec::new();
    for value in values {
        let memory = inside.arena().memory(value.from);
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
