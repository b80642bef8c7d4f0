//! Namespaces: named parts of a pool, each with an owner, a group and a mode.
//!
//! | file | what it owns |
//! |---|---|
//! | `make` | making and removing namespaces, all of them or nothing |
//! | `setup` | where the realm of a scope lies, and whether it can be what it should be |
//! | `private` | a user's own realm, made at its first use |
//! | `births` | the upper bits of ids: no two realms have the same |
//! | `query` | queries in the view |
//! | `restore` | namespaces and realms like those of another pool |
//! | `scopes` | the word that says whether there is more than the shared realm |
//! | `chunks` | chunked arrays in the view |
//! | `inplace` | writing in place through the view |
//! | `slab` | storing and loading boxes of arrays |
//! | `look` | look-ups and listings in the view |
//! | `still` | snapshots of a namespace, and locks in it |
//! | `text` | TOML files, written whole |
//! | `tree` | one tree out of the rows of several realms |
//! | `write` | writing through the view |
//! | `change` | deleting and renaming through it |
//! | `view` | [`Namespace`]: what one user sees of all realms as one tree |
//!
//! On media: `ns/<name>/` with `namespace.toml`, `scopes`, `births/`, and the realms `shared/`,
//! `private/<uid>/` and `published/<version>/`. The kernel keeps others out: the namespace's own
//! folder admits whom its mode admits; the shared realm is 0700/0600, or 2770/0660 where the mode
//! lets the group write; a private realm is 0700/0600 and its user's. No code of ours decides who
//! may see what. But what is opened in a folder where everybody may make things is looked at
//! first: a private realm is a real folder, its user's own, closed to others, or it is refused by
//! name.

mod births;
mod change;
mod chunks;
mod inplace;
mod look;
mod make;
mod private;
mod query;
mod restore;
mod scopes;
mod setup;
mod slab;
mod still;
mod text;
mod tree;
mod view;
mod write;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::inplace::InPlace;
pub(crate) use self::look::MOVES_MAX;
pub(crate) use self::make::{
    NewNamespace, add_device, create, create_catalog, realm_folders, refuse_others, remove, users,
};
pub(crate) use self::private::remove as remove_private;
pub(crate) use self::restore::{create_default, create_like, hand_over, realm_like};
pub(crate) use self::setup::{check_still, private_setups, realm_setup, setup};
pub use self::slab::Flush;
pub(crate) use self::text::{read_toml, write_toml};
pub use self::view::Namespace;
use crate::error::{Error, Kind, Result};
use crate::folder::set_mode;
use crate::id::Gid;
use crate::pool::PoolFile;
use crate::scope::Scope;

/// The namespace that every pool starts with.
pub const DEFAULT: &str = "default";

const NAMESPACES: &str = "ns";
const SHARED: &str = "shared";
const PRIVATE: &str = "private";
const NAMESPACE_FILE: &str = "namespace.toml";
const REALM_FILE: &str = "realm.toml";
/// The mode of folders in which everybody who comes there may make things of their own.
pub(crate) const STICKY: u32 = 0o1777;

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
}

#[derive(Serialize, Deserialize)]
struct RealmFile {
    format: u32,
    map_size: u64,
    birth: u64,
    root: Gid,
    #[serde(default)]
    incompatible: Vec<String>,
}

/// The folder of all namespaces.
pub(crate) fn folder(pool: &Path) -> PathBuf {
    pool.join(NAMESPACES)
}

/// What is wrong with the word of a namespace (see `scopes`), if anything.
pub(crate) fn word_problem(pool: &Path, name: &str) -> Option<String> {
    let problem = scopes::problem(&place(pool, name))?;
    Some(format!("namespace {name:?}: {problem}"))
}

/// The folder of a namespace.
pub(crate) fn place(pool: &Path, name: &str) -> PathBuf {
    folder(pool).join(name)
}

/// What a namespace has on a device.
pub(crate) fn on_device(device: &Path, file: &PoolFile, name: &str) -> PathBuf {
    device.join(&file.uuid).join(name)
}

/// Where the realm of a scope lies within a namespace, for a user; the same on each device.
pub(crate) fn within(scope: Scope, user: u32) -> PathBuf {
    match scope {
        Scope::Private => Path::new(PRIVATE).join(user.to_string()),
        scope => PathBuf::from(scope.as_str()),
    }
}

/// The modes of a shared realm's folders and files.
fn modes(mode: u32) -> (u32, u32) {
    if mode & 0o020 == 0 { (0o700, 0o600) } else { (0o2770, 0o660) }
}

/// Makes a folder with exactly this mode, whatever the umask.
pub(crate) fn make_folder(path: &Path, mode: u32) -> Result<()> {
    fs::DirBuilder::new()
        .mode(mode & 0o700)
        .create(path)
        .map_err(|e| Error::os(format!("making {}", path.display()), &e))?;
    set_mode(path, mode).inspect_err(|_| drop(fs::remove_dir(path)))
}

/// The names of all namespaces, in byte order.
pub(crate) fn names(pool: &Path) -> Result<Vec<String>> {
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

/// What is known of a namespace without opening it.
pub(crate) fn info(pool: &Path, name: &str) -> Result<NamespaceInfo> {
    let place = place(pool, name);
    let meta = fs::metadata(&place)
        .map_err(|e| Error::os(format!("looking at namespace {name:?}"), &e))?;
    let mode = match read_toml::<NamespaceFile>(&place.join(NAMESPACE_FILE)) {
        Ok(file) => file.mode,
        // Who may not enter still sees the folder, which has the same mode.
        Err(error) if error.kind() == Kind::Access => meta.mode() & 0o777,
        Err(error) => return Err(error),
    };
    Ok(NamespaceInfo { name: name.to_owned(), owner: meta.uid(), group: meta.gid(), mode })
}
