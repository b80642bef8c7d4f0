//! Backup: a whole pool at one path, of what there was at one moment, while others write and
//! delete.
//!
//! For each namespace: (1) the writer locks of its realms together, for as long as it takes to
//! begin a look-up in each: a move between two of them has either not arrived, or is in both, or
//! has left, and is never in none; (2) the rows of these snapshots into new catalogs; the snapshots
//! end there, so that the catalogs need not grow, and the look-ups' ages go on: nothing that the
//! rows point to is used again meanwhile (P2); (3) the values, one after another, into one span;
//! (4) everything synced; and when all namespaces are there, (5) `creating.toml` is renamed to
//! `pool.toml`. Until then, and after a death, the copy is a half-created pool, refused by name.
//!
//! Values are laid out longest first, so that large ones keep their alignment and no hole is left.
//! What is written *in place* meanwhile is not isolated: such a value may be of several moments.
//! Its checksum was taken away before the first write (see `checksum`), so a value whose bytes are
//! not those of its checksum, and whose record has changed since, is one of these, and is copied
//! without a checksum; if its record is as it was, the bytes have changed by themselves, and that
//! is an error.
//!
//! The process holds its realm open all the while: a fork in another thread waits for the end.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Value, rewrite_rows, rewrite_space, settle, values};
use crate::catalog::{Catalog, Headroom, Table};
use crate::checksum::{self, Running};
use crate::error::{Error, Kind, Result};
use crate::extent::{Extent, HUGE, PAGE, Span, best_align, round_up};
use crate::fail;
use crate::faults::step;
use crate::folder;
use crate::id::id_key;
use crate::media::filesystem::{self, Mount};
use crate::media::span;
use crate::namespace;
use crate::object::{Record, Stored};
use crate::pool::{Pool, PoolFile};
use crate::process;
use crate::realm::{Core, Inside, LIMIT, Look, Purpose, Setup, boot_id, meta_u64};
use crate::scope::Scope;

/// So many bytes are copied at a time.
const PIECE: usize = 1 << 20;

/// What a backup has copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Where the copy is.
    pub path: PathBuf,
    /// Realms: namespaces, and private ones of users in them.
    pub realms: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes that they take in the copy's arenas: as many as in the pool's.
    pub bytes: u64,
    /// What this user may not read, and what is left out.
    pub skipped: Vec<String>,
}

/// A core, with one session more for as long as it is copied.
struct Opened(Arc<Core>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.remove_session();
    }
}

impl Pool {
    /// Copies the pool to `dest`, which must not exist or be an empty folder: a whole pool on one
    /// device, with a uuid of its own, restored by opening it. Others may write meanwhile.
    ///
    /// With `force`, also onto a filesystem that is not known to carry a pool. On error nothing is
    /// left behind.
    pub fn backup(&self, dest: &Path, force: bool) -> Result<BackupReport> {
        self.check_open()?;
        Pool::make_at(dest, |dest| {
            let mount = filesystem::admit(dest, force)?;
            let source = PoolFile::read(self.path())?;
            let file = source.like(dest, &mount)?;
            file.begin(dest)?;
            step!("backup.begun");
            let mut report = BackupReport { path: dest.to_owned(), ..BackupReport::default() };
            for name in namespace::names(self.path())? {
                let copy = Copy { pool: self, source: &source, dest, file: &file, mount: &mount };
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
}

/// One backup.
struct Copy<'a> {
    pool: &'a Pool,
    source: &'a PoolFile,
    dest: &'a Path,
    file: &'a PoolFile,
    mount: &'a Mount,
}

/// A realm to be copied: of whom, and how it is opened here.
type Found = (Scope, u32, Opened);

impl Copy<'_> {
    fn namespace(&self, name: &str, report: &mut BackupReport) -> Result<()> {
        let found = self.find(name, report)?;
        match namespace::create_like(self.dest, self.file, self.pool.path(), name) {
            Err(error) if error.kind() == Kind::Access && found.is_empty() => {
                return if name == namespace::DEFAULT {
                    namespace::create_default(self.dest, self.file)
                } else {
                    Ok(())
                };
            }
            made => made?,
        }
        let insides: Vec<Inside<'_>> =
            found.iter().map(|(.., core)| core.0.enter()).collect::<Result<_>>()?;
        let looks = together(&insides)?;
        for (((scope, user, core), inside), look) in found.iter().zip(&insides).zip(looks) {
            let setup = namespace::realm_like(
                (self.dest, self.file, self.mount),
                &core.0.setup,
                (name, *scope, *user),
            )?;
            self.realm((&core.0, inside), look, &setup, report)?;
            report.realms += 1;
        }
        drop(insides);
        namespace::hand_over(self.pool.path(), self.dest, self.file, name)
    }

    /// The realms of a namespace that this user may read.
    fn find(&self, name: &str, report: &mut BackupReport) -> Result<Vec<Found>> {
        let (path, mount) = (self.pool.path(), filesystem::admit(self.pool.path(), true)?);
        let shared = namespace::setup(path, self.source, mount.clone(), name);
        let mut setups = vec![(Scope::Shared, 0, shared)];
        for (user, setup) in namespace::private_setups(path, self.source, &mount, name)? {
            setups.push((Scope::Private, user, setup));
        }
        let mut found = Vec::new();
        for (scope, user, setup) in setups {
            let shown = match scope {
                Scope::Private => format!("{name} (private of user {user})"),
                _ => name.to_owned(),
            };
            match setup.and_then(|setup| process::core_of(setup, Purpose::Look)) {
                Ok(core) => found.push((scope, user, Opened(core))),
                Err(error) if error.kind() == Kind::Access => report.skipped.push(shown),
                Err(error) => return Err(error),
            }
        }
        let published = namespace::place(path, name).join(namespace::within(Scope::Published, 0));
        if fs::read_dir(published).is_ok_and(|mut versions| versions.next().is_some()) {
            report.skipped.push(format!("{name} (published)"));
        }
        Ok(found)
    }

    fn realm(
        &self,
        (core, inside): (&Arc<Core>, &Inside<'_>),
        mut look: Look<'_>,
        setup: &Setup,
        report: &mut BackupReport,
    ) -> Result<()> {
        let mut found = values(look.txn())?;
        let limit = meta_u64(look.txn().get(Table::Meta, LIMIT)?)?;
        let end = lay_out(&mut found, limit);
        let catalog = Catalog::open(&setup.catalog(), &setup.catalog_options())?;
        rewrite_rows(look.txn(), &found, &catalog)?;
        report.objects += look.txn().entries(Table::Objects)?;
        step!("backup.rows");
        look.rest();
        let mut spans = Vec::new();
        if end > 0 {
            let range = Extent { offset: 0, len: end };
            spans.push(Span { number: 0, device: 0, range, file: 0, place: 0 });
            let file = self.span_file(setup, end)?;
            let changed = copy_values((core, inside), &found, &file)?;
            forget_checksums(&catalog, &changed)?;
            if self.mount.durable {
                file.sync_all().map_err(|e| Error::os("syncing the copy's values", &e))?;
            }
        }
        rewrite_space(&spans, &found, &catalog)?;
        step!("backup.values");
        catalog.growth().set_boot_id(boot_id());
        settle(&catalog, setup)?;
        report.bytes += found.iter().map(|value| value.from.len).sum::<u64>();
        Ok(())
    }

    /// The file of the copy's one span.
    fn span_file(&self, setup: &Setup, len: u64) -> Result<File> {
        let within = setup.dir.strip_prefix(namespace::place(self.dest, &setup.namespace));
        let within = within.expect("a realm lies in its namespace");
        let place = namespace::on_device(self.dest, self.file, &setup.namespace).join(within);
        let path = place.join("span-0");
        let file = span::create(&path, len, setup.file_mode, self.mount)?;
        folder::hand_over(&file, &path)?;
        Ok(file)
    }
}

/// Begins a look-up in each realm, all at one moment.
fn together<'a>(insides: &'a [Inside<'a>]) -> Result<Vec<Look<'a>>> {
    let writers = match insides {
        [_] => Vec::new(),
        several => several
            .iter()
            .map(|inside| inside.catalog().write(Headroom::Relief))
            .collect::<Result<Vec<_>>>()?,
    };
    let looks = insides.iter().map(Inside::look).collect();
    // In turn, the last first: each belongs to this thread.
    writers.into_iter().rev().for_each(drop);
    looks
}

/// Says where each value goes; where the arena ends then.
fn lay_out(values: &mut [Value], limit: u64) -> u64 {
    values.sort_unstable_by_key(|value| (Reverse(value.from.len), value.from.offset));
    let mut end = 0;
    for most in [HUGE, PAGE] {
        end = 0;
        for value in &mut *values {
            value.to = round_up(end, best_align(value.from.len).min(most));
            end = value.place().end();
        }
        end = round_up(end, HUGE);
        if end <= limit {
            break;
        }
    }
    end
}

/// Copies every value; gives those whose bytes are no more those of their checksum.
fn copy_values(
    (core, inside): (&Arc<Core>, &Inside<'_>),
    values: &[Value],
    to: &File,
) -> Result<Vec<Value>> {
    let end = values.iter().map(|value| value.from.end()).max().unwrap_or(0);
    core.reach(inside, end)?;
    let mut piece = vec![0; PIECE];
    let mut changed = Vec::new();
    for value in values {
        let memory = inside.arena().memory(value.from);
        let mut running = Running::new();
        let mut done = 0;
        while done < value.nbytes {
            let now = (PIECE as u64).min(value.nbytes - done) as usize;
            memory.copy_out(done, &mut piece[..now]);
            if checksum::is_checksum(value.word) {
                running.add(&piece[..now]);
            }
            to.write_all_at(&piece[..now], value.to + done)
                .map_err(|e| Error::os("writing the copy's values", &e))?;
            done += now as u64;
        }
        if checksum::is_checksum(value.word) && running.word() != value.word {
            check_changed(inside, value)?;
            changed.push(*value);
        }
    }
    Ok(changed)
}

/// Refuses a value whose bytes have changed, and whose record has not.
fn check_changed(inside: &Inside<'_>, value: &Value) -> Result<()> {
    let txn = inside.read()?;
    let Some(row) = txn.get(Table::Objects, &id_key(value.oid))? else { return Ok(()) };
    if let Stored::Contiguous { extent, checksum, .. } = Record::parse(row)?.stored
        && (extent, checksum) == (value.from, value.word)
    {
        fail!(
            Corrupt,
            "object {:#x} is damaged: its bytes are not those of its checksum; run verify, and \
             delete it before a backup, or export what is sound (engram export --salvage)",
            value.oid
        );
    }
    Ok(())
}

/// Takes the checksums of values away that were written in place meanwhile.
fn forget_checksums(catalog: &Catalog, changed: &[Value]) -> Result<()> {
    for value in changed {
        catalog.run(|txn| {
            let key = id_key(value.oid);
            let Some(row) = txn.get(Table::Objects, &key)? else { return Ok(()) };
            let record = Record::parse(row)?;
            let (extent, nbytes) = (value.place(), value.nbytes);
            let stored = Stored::Contiguous { extent, nbytes, checksum: checksum::NONE };
            let row = Record { stored, ..record }.encode();
            txn.put(Table::Objects, &key, &row)
        })?;
    }
    Ok(())
}

/// Makes durable which files there are.
fn sync_folders(folder: &Path) -> Result<()> {
    let refused = |e| Error::os(format!("syncing {}", folder.display()), &e);
    for entry in fs::read_dir(folder).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        if entry.file_type().map_err(refused)?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder).and_then(|file| file.sync_all()).map_err(refused)
}
