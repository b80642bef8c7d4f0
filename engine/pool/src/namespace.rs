//! Namespaces: named parts of a pool, each with an owner, a group and a mode.
//!
//! | file | what it owns |
//! |---|---|
//! | `make` | making and removing namespaces, all of them or nothing |
//! | `mode` | changing who may enter, and whether the group writes |
//! | `setup` | where the realm of a scope lies, and whether it can be what it should be |
//! | `private` | a user's own realm, made at its first use |
//! | `allocation` | space that is filled before it is an object |
//! | `copies` | copies into another group, namespace or pool |
//! | `id_prefixes` | the upper bits of ids: no two realms have the same |
//! | `query` | queries in the view |
//! | `restore` | namespaces and realms like those of another pool |
//! | `retry` | when an operation is begun again |
//! | `scopes` | the shared counter that says whether there is more than the shared realm |
//! | `handle` | [`Namespace`]: every operation of the view |
//! | `inplace` | writing in place through the view |
//! | `moves` | moves between scopes |
//! | `slab` | storing and loading boxes of arrays |
//! | `look` | look-ups and listings in the view |
//! | `snapshot` | snapshots of a namespace, and locks in it |
//! | `tree` | one tree out of the rows of several realms |
//! | `write` | writing through the view |
//! | `change` | deleting and renaming through it |
//! | `view` | the realms that one user sees, as one tree; those that come |
//! | `watch` | who sleeps until something matches a query |
//!
//! On media: `ns/<name>/` with `namespace.toml`, `scopes`, `births/`, and the realms `shared/`,
//! `private/<uid>/` and `published/<version>/`. The kernel keeps others out: the namespace's own
//! folder admits whom its mode admits; the shared realm is 0700/0600, or 2770/0660 where the mode
//! lets the group write; a private realm is 0700/0600 and its user's. No code of ours decides who
//! may see what. But anything that is opened in a folder where everybody may make things is looked
//! at first: a private realm is a real folder, its user's own, closed to others, or it is refused
//! by name.

mod allocation;
mod change;
pub mod copies;
mod files;
mod handle;
mod id_prefixes;
mod inplace;
mod look;
mod make;
pub(crate) mod mode;
mod moves;
mod private;
mod query;
mod restore;
pub(crate) mod retry;
mod scopes;
pub mod setup;
mod slab;
mod snapshot;
mod tree;
pub(crate) mod view;
mod watch;
mod write;

use engram_files::paths::NAMESPACE_FILE;
use engram_files::paths::folder;
use engram_files::paths::place;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::allocation::Allocation;
pub use self::copies::{CopiedIds, Copier, CopyOptions, CopyPlan};
pub use self::handle::Namespace;
pub use self::inplace::InPlace;
pub(crate) use self::make::{
    NewNamespace, add_device, create, create_catalog, realm_folders, refuse_others, remove, users,
};
pub use self::mode::{is_half_changed, set_mode};
pub use self::moves::Departure;
pub(crate) use self::private::remove as remove_private;
pub use self::query::totals_of_several;
pub use self::restore::{
    NamespaceLike, create_default, create_like, hand_over, look_like, realm_like, undo_like,
};
pub use self::setup::{private_setups, realm_setup, setup};
pub use self::slab::Flush;
pub use self::watch::{WatchEnd, Watcher};
use engram_base::error::{Error, Kind, Result};
use engram_base::id::Gid;
pub(crate) use engram_files::toml_file::read_toml;

/// What is known of a namespace without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Its name.
    pub name: String,
    /// The owner's uid.
    pub owner: u32,
    /// The group's gid.
    pub group: u32,
    /// The POSIX mode.
    pub mode: u32,
}

#[derive(Serialize, Deserialize)]
struct NamespaceFile {
    format: u32,
    mode: u32,
    /// The root group: the same in each realm, also for those who may not read the shared one.
    root: Gid,
    /// The bound of each realm's arena, as it was made.
    size: u64,
    /// The mode that is to be: a process is changing it, or died doing so (see `mode`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_mode: Option<u32>,
}

/// What is wrong with the shared counter of a namespace (see `scopes`), if anything.
pub fn counter_problem(pool: &Path, name: &str) -> Option<String> {
    let problem = scopes::problem(&place(pool, name))?;
    Some(format!("namespace {name:?}: {problem}"))
}

/// The names of all namespaces, in byte order.
pub fn names(pool: &Path) -> Result<Vec<String>> {
    let folder = folder(pool);
    let entries = fs::read_dir(&folder)
        .map_err(|e| Error::os(format!("listing the namespaces in {}", folder.display()), &e))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    Ok(names)
}

/// What is known of every namespace, in byte order of the names. Of one whose file is damaged its
/// folder tells the mode: one owner's damage hides no other namespace.
pub fn infos(pool: &Path) -> Result<Vec<NamespaceInfo>> {
    let mut found = Vec::new();
    for name in names(pool)? {
        found.push(match info(pool, &name) {
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Format | Kind::NotFound) => {
                let Ok(meta) = fs::metadata(place(pool, &name)) else { continue }; // just removed
                info_of(name, &meta, meta.mode() & 0o777)
            }
            info => info?,
        });
    }
    Ok(found)
}

fn info_of(name: String, meta: &fs::Metadata, mode: u32) -> NamespaceInfo {
    NamespaceInfo { name, owner: meta.uid(), group: meta.gid(), mode }
}

/// What is known of a namespace without opening it.
pub fn info(pool: &Path, name: &str) -> Result<NamespaceInfo> {
    let place = place(pool, name);
    let meta = fs::metadata(&place)
        .map_err(|e| Error::os(format!("looking at namespace {name:?}"), &e))?;
    let mode = match read_toml::<NamespaceFile>(&place.join(NAMESPACE_FILE)) {
        Ok(file) => mode::in_effect(&file, meta.mode()),
        // A user who may not enter still sees the folder, which has the same mode.
        Err(error) if error.kind() == Kind::Access => meta.mode() & 0o777,
        Err(error) => return Err(error),
    };
    Ok(info_of(name.to_owned(), &meta, mode))
}
