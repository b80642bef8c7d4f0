//! Published realms: versions that nobody ever writes again.
//!
//! A reader of a shared realm writes its lease and its lock file, and so must be trusted by the
//! others. A published realm is read without any of that, by the users whom the namespace's mode
//! admits, who need not be trusted at all. On media:
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
//! (`pool_lock/watch.rs`). (1) The leftovers of dead publishers are cleared away. (2) The newest
//! catalog is copied into a working realm, an ordinary one that nobody else knows. (3) Members come
//! and go there, by ordinary commits; values go into new spans of just their size. (4) The index is
//! brought up to date, spans without a value in use lose their rows' files, and the catalog is
//! written out without free pages. (5) Everything is synced and made 0444, the files before the
//! folders. (6) *One rename* gives the version its name: the commit point. (7) Older versions are
//! removed, and spans that have no value any more. A publisher that dies before (6) has changed
//! nothing; one that dies after it has only left things to be cleared away.
//!
//! **Trust.** Nobody has to trust readers. Readers trust the publisher as far as one trusts a file
//! of another user's that one maps: those who may write it could cut it short (SIGBUS), and LMDB
//! believes its pages. Records and extents are bounded as everywhere; `verify` walks in a child.
//!
//! **Readers** look for the newest version when they open the namespace, and again when its shared
//! counter says that one has come (`namespace/scopes.rs`). A reader that has an older one open goes
//! on with it: its catalog is mapped, and so are the spans that it has met. Where it meets a span
//! that is gone, it looks for the newest version and asks again. Views keep their memory: a file
//! that is mapped keeps its bytes when its name goes.

mod making;
mod restore;

use engram_files::paths::REALM_FILE;
use engram_files::versions::version_name;
use engram_files::versions::versions;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::making::{Making, SPAN_MAX};
pub use self::restore::{begin_like, finish_like, undo_like};
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::id::Gid;
use engram_base::scope::Scope;
use engram_files::folder::check_real;
use engram_files::pool_file::{PoolFile, missing};
use engram_media::filesystem::Mount;
use engram_realm::Setup;

/// The mode of what nobody writes again.
const FILE_MODE: u32 = 0o444;
/// Nothing is born in a published realm. But every version is told from every other by this number,
/// which is beyond the 24 bits of id prefixes: compact catalogs all count their commits from one.
const NO_ID_PREFIX: u64 = 1 << 40;
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

/// What is needed to open the newest version in this folder; `None` where there is none.
pub fn setup(
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
        let toml: VersionFile = match engram_files::toml_file::read_toml(&dir.join(REALM_FILE)) {
            Ok(toml) => toml,
            // A newer one has come meanwhile, and this one was removed.
            Err(error) if error.kind() == Kind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if toml.format != file.format || !toml.incompatible.is_empty() {
            fail!(
                Format,
                "{} has format {} with features {:?}; its pool has format {}: upgrade engram",
                dir.display(),
                toml.format,
                toml.incompatible,
                file.format
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
            id_prefix: NO_ID_PREFIX | version,
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

/// Does something with the newest version; where that fails because it has gone meanwhile (the
/// publisher of a newer one removes the others), with the one that is the newest then. `None` where
/// there is none.
pub fn with_newest<T>(
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

/// Sees to it that a version's name is on the medium: the process that gave it may have died
/// before.
pub(crate) fn sync_name(setup: &Setup) -> Result<()> {
    making::sync_folder(setup.dir.parent().expect("a version lies in a folder"))
}
