//! Namespaces and realms like those of another pool: what a backup, and an upgrade, put rows into.
//!
//! Names, modes, groups, root groups and id prefixes are the other's, so that every id stays what
//! it is. The pool is one that is being made: nobody else looks at it yet. The other may be of an
//! earlier format.

use std::fs;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use super::id_prefixes::{self, ID_PREFIXES, name_of};
use super::make::{NewNamespace, NewRealm, build_realm, create};
use super::setup::{RealmFolder, namespace_file, setup, setup_at};
use crate::namespace::NamespaceFile;
use crate::published;
use engram_base::error::{Error, Kind, Result};
use engram_base::scope::Scope;
use engram_base::user;
use engram_catalog::Catalog;
use engram_files::folder::own;
use engram_files::paths::{
    DEFAULT, NAMESPACE_FILE, PRIVATE, REALM_FILE, SHARED, modes, on_device, place, within,
};
use engram_files::pool_file::{FORMAT, PoolFile};
use engram_files::realm_file::{RealmFile, realm_file};
use engram_files::toml_file::write_toml;
use engram_media::filesystem::Mount;
use engram_realm::Setup;
use engram_records::extent::HUGE;

const ROOT: u32 = 0;

/// What a namespace is like that another is made like.
pub struct NamespaceLike {
    name: String,
    file: NamespaceFile,
    group: u32,
    /// The id prefixes that were given out in it, by their names.
    id_prefixes: Vec<String>,
}

/// Looks what a namespace of the pool is like which `from` describes.
pub fn look_like(from: &PoolFile, name: &str) -> Result<NamespaceLike> {
    let source = from.path();
    let file = NamespaceFile { format: FORMAT, ..namespace_file(source, from.format, name)? };
    let meta = fs::metadata(place(source, name))
        .map_err(|e| Error::os(format!("looking at namespace {name:?}"), &e))?;
    // Also of realms that are not copied: what was born there may have been shared since.
    let prefixes = place(source, name).join(ID_PREFIXES);
    let entries = fs::read_dir(&prefixes)
        .map_err(|e| Error::os(format!("listing {}", prefixes.display()), &e))?;
    // Anybody may have put anything else there.
    let is_prefix = |name: &str| name.len() == 6 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let id_prefixes = names.filter(|name| is_prefix(name)).collect();
    Ok(NamespaceLike { name: name.to_owned(), file, group: meta.gid(), id_prefixes })
}

/// Makes a namespace like another.
pub fn create_like(pool: &Path, file: &PoolFile, like: &NamespaceLike) -> Result<()> {
    let (name, there) = (like.name.as_str(), &like.file);
    let group = (there.mode & 0o070 != 0).then_some(like.group);
    // Others never write, whatever a namespace that was made before this was refused says.
    let (mode, root, size) = (there.mode & !0o002, Some(there.root), there.size);
    let new = |group| NewNamespace { name, mode, group, root, size };
    match create(pool, file, &new(group)) {
        // This user is not in that group.
        Err(error) if error.kind() == Kind::Access && group.is_some() => {
            create(pool, file, &new(None))?;
        }
        made => made?,
    }
    write_toml(&place(pool, name).join(NAMESPACE_FILE), there, 0o644)?;
    let to = place(pool, name).join(ID_PREFIXES);
    like.id_prefixes.iter().try_for_each(|name| reserve(&to.join(name)))
}

fn reserve(id_prefix: &Path) -> Result<()> {
    match id_prefixes::reserve(id_prefix) {
        // It is kept already; or somebody else has come, and keeps it too.
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => {
            made.map(drop).map_err(|e| Error::os(format!("reserving {}", id_prefix.display()), &e))
        }
    }
}

/// Makes an empty default namespace, which every pool has.
pub fn create_default(pool: &Path, file: &PoolFile) -> Result<()> {
    let new = NewNamespace { name: DEFAULT, mode: 0o700, group: None, root: None, size: file.size };
    create(pool, file, &new)
}

/// Makes a realm like `source` of the pool which `from` describes, without any rows; what is needed
/// to open it. If it is private, it is of `user`.
pub fn realm_like(
    pool: &Path,
    file: &PoolFile,
    mount: &Mount,
    from: &PoolFile,
    source: &Setup,
    user: u32,
) -> Result<Setup> {
    let (name, scope) = (source.namespace.as_str(), source.scope);
    let namespace = place(pool, name);
    if scope == Scope::Published {
        let shared = setup(pool, file, mount.clone(), name)?;
        super::scopes::open(&namespace)?.raise();
        return published::begin_like(&shared, source.root);
    }
    let dir = namespace.join(within(scope, user));
    let modes = match scope {
        Scope::Private => (0o700, 0o600),
        _ => modes(namespace_file(pool, file.format, name)?.mode),
    };
    if scope == Scope::Private {
        let new = NewRealm {
            pool,
            namespace: &namespace,
            name,
            at: &dir,
            place: within(scope, user),
            scope,
            modes,
            group: false,
            root: Some(source.root),
            size: HUGE,
            devices: &file.folders(),
            mount: mount.clone(),
        };
        build_realm(file, &new)?;
        super::scopes::open(&namespace)?.raise();
    }
    let toml = RealmFile { format: FORMAT, ..realm_file(&source.dir, from.format)? };
    write_toml(&dir.join(REALM_FILE), &toml, modes.1)?;
    reserve(&namespace.join(ID_PREFIXES).join(name_of(toml.id_prefix)))?;
    let folder = RealmFolder { dir: &dir, scope, file_mode: modes.1 };
    let made = setup_at(pool, file, name, folder, &toml, mount.clone());
    for file in ["data.mdb", "lock.mdb", "growth"] {
        let path = made.catalog().join(file);
        fs::remove_file(&path)
            .map_err(|e| Error::os(format!("removing {}", path.display()), &e))?;
    }
    Catalog::create(&made.catalog(), &made.catalog_options())?;
    Ok(made)
}

/// Takes away what was begun of a realm of a copy: of one that was made like another, and cannot be
/// copied. A shared realm, which every namespace has, is made anew, with nothing in it.
pub fn undo_like(
    pool: &Path,
    file: &PoolFile,
    mount: &Mount,
    name: &str,
    scope: Scope,
    user: u32,
) -> Result<()> {
    let namespace = place(pool, name);
    let within = within(scope, user);
    let spans = on_device(&pool_device(file), file, name).join(&within);
    if scope == Scope::Published {
        published::undo_like(&namespace.join(&within))?;
        return clear(&spans);
    }
    let dir = namespace.join(&within);
    remove_folder(&dir)?;
    remove_folder(&spans)?;
    if scope == Scope::Private {
        return Ok(());
    }
    let description = namespace_file(pool, file.format, name)?;
    let new = NewRealm {
        pool,
        namespace: &namespace,
        name,
        at: &dir,
        place: within,
        scope,
        modes: modes(description.mode),
        group: description.mode & 0o070 != 0,
        root: Some(description.root),
        size: description.size,
        devices: &file.folders(),
        mount: mount.clone(),
    };
    build_realm(file, &new).map(drop)
}

fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::os(format!("removing {}", folder.display()), &e))
        }
        _ => Ok(()),
    }
}

/// Removes every file of a folder.
fn clear(folder: &Path) -> Result<()> {
    let refused = |e| Error::os(format!("clearing {}", folder.display()), &e);
    for entry in fs::read_dir(folder).map_err(refused)? {
        fs::remove_file(entry.map_err(refused)?.path()).map_err(refused)?;
    }
    Ok(())
}

/// To whom a folder belongs.
#[derive(Clone, Copy)]
struct FileOwner {
    user: u32,
    group: u32,
}

/// Gives a namespace of the copy, if root has made it, to whom it belongs in the pool `source`.
pub fn hand_over(source: &Path, pool: &Path, file: &PoolFile, name: &str) -> Result<()> {
    if user::current() != ROOT {
        return Ok(());
    }
    let owner = |path: &Path| {
        fs::metadata(path)
            .map(|meta| FileOwner { user: meta.uid(), group: meta.gid() })
            .map_err(|e| Error::os(format!("looking at {}", path.display()), &e))
    };
    let from = place(source, name);
    for to in [place(pool, name), on_device(&pool_device(file), file, name)] {
        give(&to, owner(&from)?, &[SHARED, PRIVATE])?;
        // A shared realm that was left out may be no folder there.
        let shared = owner(&from.join(SHARED)).or_else(|_| owner(&from))?;
        give(&to.join(SHARED), shared, &[])?;
        let private = to.join(PRIVATE);
        give(&private, owner(&from)?, &["*"])?;
        for entry in fs::read_dir(&private).into_iter().flatten().flatten() {
            if let Some(user) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                let there = owner(&from.join(PRIVATE).join(entry.file_name()));
                give(
                    &entry.path(),
                    FileOwner { user, group: there.map_or(user, |there| there.group) },
                    &[],
                )?;
            }
        }
    }
    Ok(())
}

fn pool_device(file: &PoolFile) -> std::path::PathBuf {
    file.devices.first().cloned().unwrap_or_default()
}

/// Gives a folder with all that is in it, but for what lies in it under one of the names `but`
/// (`*`: under any). Its contents go first: the new owner could put other things in their place.
/// Anything that root has not made here is left as it is.
fn give(at: &Path, to: FileOwner, but: &[&str]) -> Result<()> {
    let refused = |e| Error::os(format!("giving {} to its owner", at.display()), &e);
    if fs::symlink_metadata(at).map_err(refused)?.uid() != ROOT {
        return Ok(());
    }
    let made = own(at)?;
    let meta = made.metadata().map_err(refused)?;
    if meta.is_dir() {
        for entry in fs::read_dir(at).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let name = entry.file_name();
            if !but.iter().any(|one| *one == "*" || name.to_str() == Some(one)) {
                give(&entry.path(), to, &[])?;
            }
        }
    }
    fchown(&made, Some(to.user), Some(to.group)).map_err(refused)?;
    // Giving takes the bits away that say whose group new files have.
    if meta.is_dir() { made.set_permissions(meta.permissions()).map_err(refused) } else { Ok(()) }
}
