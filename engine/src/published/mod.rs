//! Published realms: versions that nobody ever writes again.
//!
//! Who reads a shared realm writes its lease and its lock file, and so must be trusted by the
//! others. What is published is read without any of that, by whom the namespace's mode admits, who
//! need not be trusted at all. On media:
//!
//! * `published/<version>/`: `realm.toml` and `catalog/data.mdb`, mode 0444. The greatest version
//!   counts; each is whole. LMDB opens it for reading alone, without locks, mapped as far as the
//!   file goes. No lease, no growth page, no pins: nothing of it ever changes.
//! * `published/span-<n>` on each device: values, mode 0444. A span belongs to the versions from
//!   the one it was made for on, and is not written again once that is there.
//! * `published/.new-<random>/`: a version that is being made, or whose maker has died.
//!
//! **Making a version** ([`Making`]): one process at a time, by a lock on the shared realm's
//! folder, which the kernel drops with its holder; readers may not open that folder, so they cannot
//! hold publishers up. A publisher that stands still holds the others up for seconds
//! (`turn/watch.rs`). (1) What dead publishers have left is cleared away. (2) The newest catalog
//! is copied into a working realm, an ordinary one that nobody else knows. (3) Members come and go
//! there, by ordinary commits; values go into new spans of just their size. (4) The index is
//! brought up to date, spans without a value in use lose their rows' files, and the catalog is
//! written out without free pages. (5) Everything is synced and made 0444, the files before the
//! folders. (6) *One rename* gives the version its name: the commit point. (7) Older versions are
//! removed, and spans that have no value any more. Who dies before (6) has changed nothing, after
//! it only left things to be cleared away.
//!
//! **Trust.** Nobody has to trust readers. Readers trust who publishes as far as one trusts a file
//! of another user's that one maps: who may write it could cut it short (SIGBUS), and LMDB believes
//! its pages. Records and extents are bounded as everywhere; `verify` walks in a child.
//!
//! **Readers** look for the newest version when they open the namespace, and again when its word
//! says that one has come (`namespace/scopes.rs`). Who has an older one open goes on with it: its
//! catalog is mapped, and so are the spans that it has met. Where it meets a span that is gone, it
//! looks for the newest version and asks again. Views keep their memory: a file that is mapped
//! keeps its bytes when its name goes.

mod making;
mod restore;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use self::making::{Making, SPAN_MAX};
pub(crate) use self::restore::{begin_like, finish_like};
use crate::error::{Error, Kind, Result};
use crate::fail;
use crate::folder::check_real;
use crate::id::Gid;
use crate::media::filesystem::Mount;
use crate::pool::{FORMAT, PoolFile, missing};
use crate::realm::Setup;
use crate::scope::Scope;

/// What a version that is being made is called before its name.
const MAKING: &str = ".new-";
const REALM_FILE: &str = "realm.toml";
/// The mode of what nobody writes again.
const FILE_MODE: u32 = 0o444;
/// Nothing is born in a published realm. But every version is told from every other by this number,
/// which is beyond the 24 bits of births: compact catalogs all count their commits from one.
const NO_BIRTH: u64 = 1 << 40;
/// How often the newest version is looked for again, if it goes while it is opened.
const TRIES_MAX: u32 = 100;

/// `realm.toml` of a version.
#[derive(Serialize, Deserialize)]
struct VersionFile {
    format: u32,
    version: u64,
    root: Gid,
    #[serde(default)]
    incompatible: Vec<String>,
}

/// The versions in a namespace's folder of published ones, and what is unfinished there.
fn versions(published: &Path) -> Result<(Vec<u64>, Vec<PathBuf>)> {
    let (mut versions, mut unfinished) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(published) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((versions, unfinished)),
        Err(e) => return Err(Error::os(format!("listing {}", published.display()), &e)),
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(MAKING) {
            unfinished.push(entry.path());
        } else if let Ok(version) = name.parse::<u64>()
            && name == version_name(version)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
        {
            versions.push(version);
        }
    }
    versions.sort_unstable();
    Ok((versions, unfinished))
}

/// Whether the version in this folder is the newest that there is.
pub(crate) fn is_newest(dir: &Path) -> bool {
    let all = dir.parent().and_then(|published| versions(published).ok());
    let newest = all.and_then(|(versions, _)| versions.last().copied());
    newest.is_some_and(|newest| dir.ends_with(version_name(newest)))
}

/// The name of a version's folder: names are in the order of their numbers.
fn version_name(version: u64) -> String {
    format!("{version:020}")
}

/// What is needed to open the newest version in this folder; `None` where there is none.
pub(crate) fn setup(
    pool: &Path,
    published: &Path,
    file: &PoolFile,
    mount: &Mount,
    name: &str,
) -> Result<Option<Setup>> {
    let mut met = Vec::new();
    for _ in 0..TRIES_MAX {
        let Some(version) = versions(published)?.0.pop() else { return Ok(None) };
        met.push(version);
        let dir = published.join(version_name(version));
        check_real(pool, &dir.join("catalog"))?;
        let toml: VersionFile = match crate::namespace::read_toml(&dir.join(REALM_FILE)) {
            Ok(toml) => toml,
            // A newer one has come meanwhile, and this one was removed.
            Err(error) if error.kind() == Kind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if toml.format != FORMAT || !toml.incompatible.is_empty() {
            fail!(
                Format,
                "{} has format {} with features {:?}; this engine reads format {FORMAT}: upgrade \
                 engram",
                dir.display(),
                toml.format,
                toml.incompatible
            );
        }
        return Ok(Some(Setup {
            dir,
            pool: pool.to_owned(),
            uuid: file.uuid.clone(),
            namespace: name.to_owned(),
            file_mode: FILE_MODE,
            durable: false,
            mount: mount.clone(),
            map_size: 0,
            birth: NO_BIRTH | version,
            root: toml.root,
            scope: Scope::Published,
            checksums: file.checksums,
            emulated: file.emulated,
            immutable: true,
        }));
    }
    if let [first, .., last] = met[..]
        && first == last
    {
        fail!(
            Corrupt,
            "{} has no {REALM_FILE}, so it is no version that was published: take it away",
            published.join(version_name(last)).display()
        );
    }
    fail!(Busy, "the newest published version in {} goes again and again", published.display())
}

/// Does something with the newest version; where that fails because it has gone meanwhile (who
/// publishes a newer one removes the others), with the one that is the newest then. `None` where
/// there is none.
pub(crate) fn with_newest<T>(
    mut find: impl FnMut() -> Result<Option<Setup>>,
    mut work: impl FnMut(Setup) -> Result<T>,
) -> Result<Option<T>> {
    let mut tries = 0;
    loop {
        let Some(setup) = find()? else { return Ok(None) };
        let (pool, dir) = (setup.pool.clone(), setup.dir.clone());
        let done = work(setup);
        tries += 1;
        if done.is_ok() || dir.is_dir() || tries == TRIES_MAX {
            return done.map(Some).map_err(|error| missing(&pool, &dir, error));
        }
    }
}

/// Sees to it that a version's name is on the medium: whoever gave it may have died before.
pub(crate) fn sync_name(setup: &Setup) -> Result<()> {
    making::sync_folder(setup.dir.parent().expect("a version lies in a folder"))
}
