//! Upgrade: a pool of an earlier format, made anew in this one.
//!
//! **The earlier pool is what there is until the two change names, and is not written before.**
//! Its catalogs are read page by page, as `verify` and salvage read them, and LMDB is never asked;
//! its values are read from their files. What is wrong with it is an error that names salvage.
//!
//! In place, the order is: (1) the pool lock, and the compaction lock of every realm: whoever has
//! a realm open is named, and nobody opens one from here on, the engine of the earlier format
//! neither; (2) every page and record is read and checked, and the room that is needed is compared
//! with what is there; (3) the new pool is made *beside* the earlier one, as `POOL.upgrading`, in
//! the way that a backup makes a copy: rows of the lasting tables, each record in its new form,
//! values side by side. Moves that died have ended in it (`transfer::copied`); reservations stay
//! behind. The index is built anew from the records. What was written is read again and compared,
//! record by record and value by value; (4) everything is synced, `creating.toml` becomes
//! `pool.toml`, and `verify` walks the new pool; (5) `upgrading.toml` says in it which folder is
//! the earlier pool's; (6) **the two folders change names, in one step**, and that is synced; (7)
//! what is no part of the pool moves from the earlier folder to the new one, and the earlier pool
//! is destroyed; (8) the further devices, which are free now, are added to the new one again, and
//! `upgrading.toml` goes.
//!
//! *A death* before (6) leaves the earlier pool as it was, with compaction locks that nobody holds,
//! which its next opening clears away. The next upgrade begins again: others may have written to
//! the pool meanwhile, so half a copy is worth nothing. A death after (6) leaves the new pool,
//! whole and open to all; the next upgrade finds `upgrading.toml` in it and goes on at (7). Where a
//! filesystem cannot exchange two names, (6) is two renames, the earlier pool's first: between them
//! there is no pool at the path, and the next upgrade does the second.
//!
//! With a path of its own (`--to`) the new pool is a copy like a backup's: with a uuid of its own,
//! of what this user may read; the earlier pool stays, and its locks are let go. In place the uuid
//! stays, since references from other pools say it, and there must be nothing that this user may
//! not read.
//!
//! | file | what it owns |
//! |---|---|
//! | `earlier` | what there is of the earlier pool, locked, read and checked |
//! | `fill` | a namespace of it, in the new pool |
//! | `names` | what stands beside what, and what a death leaves |

mod earlier;
mod fill;
mod names;

use std::path::{Path, PathBuf};

use self::earlier::Earlier;
use super::{hand_over, sync_folders};
use crate::verify::verify;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::pool_lock::PoolLock;
use engram_base::size::ByteSize;
use engram_base::telemetry::operation;
use engram_base::user;
use engram_files::paths;
use engram_files::pool_file::{FORMAT, PoolFile, beside, real_path};
use engram_files::upgrading::Upgrading;
use engram_media::filesystem::{self, Mount};
use engram_pool::Pool;
use engram_pool::namespace;

/// How often a pool is looked at anew that another process upgrades meanwhile.
const TRIES: u32 = 8;

/// What an upgrade has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpgradeReport {
    /// Where the pool of this format is.
    pub path: PathBuf,
    /// The format that it had; this engine's own: there was nothing to do.
    pub from: u32,
    /// Whether an upgrade that was interrupted has been brought to its end.
    pub resumed: bool,
    /// The realms that were made anew: shared, private and published ones.
    pub realms: u64,
    /// The objects in them.
    pub objects: u64,
    /// The bytes that the objects take in the arenas.
    pub bytes: u64,
    /// What this user may not read, and a copy lacks; devices that could not be added again.
    pub skipped: Vec<String>,
}

/// Makes the pool at `path` one of this format: in place, or, with `to`, as a copy there, which
/// must not exist or be an empty folder. Nobody may have it open.
///
/// In place, the new pool is made beside the earlier one, verified, and takes its name; the earlier
/// one goes after that. With `force`, a copy is also made on a filesystem that is not known to
/// carry a pool. On error the pool is as it was; or, once it has been replaced, it is the new one,
/// and the message says so.
pub fn upgrade(path: &Path, to: Option<&Path>, force: bool) -> Result<UpgradeReport> {
    let _operation = operation!(INFO, "upgrade", pool = %path.display());
    names::end_renaming(path)?;
    let path = &real_path(path)?;
    for _ in 0..TRIES {
        let file = PoolFile::read_to_upgrade(path)?;
        if file.format == FORMAT {
            return match to {
                None => go_on(path),
                Some(to) => fail!(
                    Argument,
                    "{} has format {FORMAT}, which is this engram's own, so that {} was not made: \
                     `engram backup` copies a pool",
                    path.display(),
                    to.display()
                ),
            };
        }
        let lock = match PoolLock::take(path) {
            // Another process has upgraded it just now.
            Err(error) if error.kind() == Kind::NotFound => continue,
            lock => lock?,
        };
        if PoolFile::read_to_upgrade(path)?.format == file.format {
            return match to {
                None => in_place(path, &file, lock),
                Some(to) => copy(path, &file, to, force),
            };
        }
    }
    fail!(Busy, "{} is upgraded by others again and again: look who does that", path.display())
}

/// Brings an upgrade to its end that was interrupted when the new pool had its name already; if
/// there is none, the pool is like any other.
fn go_on(path: &Path) -> Result<UpgradeReport> {
    let mut report = UpgradeReport { path: path.to_owned(), from: FORMAT, ..Default::default() };
    if let Some(left) = Upgrading::read(path)? {
        report.from = left.from;
        report.resumed = true;
        report.skipped = names::clear_away(path, &left)?;
    }
    Ok(report)
}

fn copy(path: &Path, file: &PoolFile, to: &Path, force: bool) -> Result<UpgradeReport> {
    let earlier = Earlier::lock(path, file)?;
    Pool::make_at(to, |to| {
        let mount = filesystem::admit(to, force)?;
        let new = file.like(to, &mount)?;
        let work = Work { path, file, earlier: &earlier, dest: to, new: &new, mount: &mount };
        work.make(None)
    })
}

fn in_place(path: &Path, file: &PoolFile, lock: PoolLock) -> Result<UpgradeReport> {
    names::check_place(path)?;
    let earlier = Earlier::lock(path, file)?;
    if !earlier.skipped.is_empty() {
        fail!(
            Access,
            "{} cannot be replaced by {}, who may not read all of it ({}): have root upgrade it, \
             or copy what you may read (`engram upgrade {} --to NEWPOOL`)",
            path.display(),
            user::shown(user::current()),
            earlier.skipped.join(", "),
            path.display()
        );
    }
    let place = beside(path);
    names::clear(path, &place, file)?;
    let report = Pool::make_at(&place, |dest| {
        let mount = filesystem::admit(dest, true)?;
        let new = PoolFile { format: FORMAT, devices: vec![dest.to_owned()], ..file.clone() };
        let work = Work { path, file, earlier: &earlier, dest, new: &new, mount: &mount };
        let report = work.make(Some(path))?;
        Upgrading::of(path, file.format, &file.devices[1..])?.write(dest)?;
        Ok(report)
    })?;
    step!("upgrade.marked");
    if let Err(error) = names::change(path, &place) {
        let _ = Pool::destroy(&place);
        return Err(error);
    }
    earlier.leave();
    step!("upgrade.exchanged");
    drop(lock);
    let left = |error: Error| {
        error.context(format!("{} is upgraded, and what it was is not removed", path.display()))
    };
    let end = go_on(path).map_err(left)?;
    let path = path.to_owned();
    Ok(UpgradeReport { path, skipped: end.skipped, ..report })
}

/// One upgrade: where from, and where to.
struct Work<'a> {
    path: &'a Path,
    file: &'a PoolFile,
    earlier: &'a Earlier,
    dest: &'a Path,
    new: &'a PoolFile,
    mount: &'a Mount,
}

impl Work<'_> {
    /// Makes the new pool, whole and verified; on error the caller clears it away. Where it takes
    /// the place of the earlier one, its folders have the same owners.
    fn make(&self, replaced: Option<&Path>) -> Result<UpgradeReport> {
        self.make_unsaid(replaced).map_err(|error| match error.kind() {
            Kind::PoolFull => self.without_room(&error),
            _ => error,
        })
    }

    fn make_unsaid(&self, replaced: Option<&Path>) -> Result<UpgradeReport> {
        let gathered = self.earlier.gather(self.file).map_err(|error| self.damaged(error))?;
        let needed = gathered.room();
        let free = filesystem::free(self.dest)?;
        if needed > free.bytes {
            let bound = free.bound.map_or(String::new(), |limit| format!(", since {limit}"));
            let (needed, free) = (ByteSize(needed), ByteSize(free.bytes));
            fail!(PoolFull, "{needed} are needed, and {free} are free{bound}");
        }
        self.new.begin(self.dest)?;
        step!("upgrade.begun");
        let mut report = UpgradeReport {
            path: self.dest.to_owned(),
            from: self.file.format,
            skipped: self.earlier.skipped.clone(),
            ..UpgradeReport::default()
        };
        for namespace in gathered.namespaces {
            fill::namespace(self, &namespace, &mut report)?;
            step!("upgrade.namespace");
        }
        if !paths::place(self.dest, paths::DEFAULT).is_dir() {
            if self.earlier.skipped.is_empty() {
                let gone = format!("namespace {:?} is gone", paths::DEFAULT);
                return Err(self.damaged(Error::new(Kind::Corrupt, gone)));
            }
            // This user may not even know what it is like.
            namespace::create_default(self.dest, self.new)?;
        }
        if let Some(replaced) = replaced {
            hand_over((self.dest, &self.new.uuid), (replaced, &self.new.uuid))?;
        }
        if self.mount.durable {
            sync_folders(self.dest)?;
        }
        step!("upgrade.synced");
        PoolFile::finish(self.dest)?;
        step!("upgrade.named");
        let verified = verify(self.dest)?;
        if let Some(problem) = verified.problems.first() {
            let what = format!("{problem}{}", some_more(verified.problems.len() - 1));
            return Err(self.damaged(Error::new(Kind::Corrupt, what)));
        }
        step!("upgrade.verified");
        Ok(report)
    }

    /// Says of what is wrong with the earlier pool what to do; any other error is what it was.
    fn damaged(&self, error: Error) -> Error {
        if error.kind() != Kind::Corrupt {
            return error;
        }
        let at = self.path.display();
        let what = format!(
            "{at} is damaged, and was left as it is: {}; save what is sound (`engram export {at} / \
             NEW --format pool --salvage`)",
            error.message()
        );
        Error::new(Kind::Corrupt, what)
    }

    fn without_room(&self, error: &Error) -> Error {
        let (at, dest) = (self.path.display(), self.dest.display());
        let what = format!(
            "there is no room for what {at} is to become at {dest}: {}; {at} is as it was: make \
             room, or name a place on another filesystem (`engram upgrade {at} --to NEWPOOL`)",
            error.message()
        );
        Error::new(Kind::PoolFull, what)
    }
}

/// What is said behind the first of several findings.
fn some_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(" (and {more} more)") }
}
