//! Where the realm of a scope lies, and whether it can be what it should be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use engram_files::realm_file::realm_file;

use crate::namespace::{NamespaceFile, names};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::name::check_namespace;
use engram_base::pool_lock::PoolLock;
use engram_base::scope::Scope;
use engram_base::user;
use engram_files::folder::{check_own, check_real};
use engram_files::paths::{PRIVATE, modes, place, within};
use engram_files::pool_file::{FORMAT, PoolFile, missing};
use engram_files::realm_file::RealmFile;
use engram_files::toml_file::{read_toml, write_toml};
use engram_media::filesystem::Mount;
use engram_realm::Setup;

/// Refuses a namespace that there is not.
pub(super) fn check_there(pool: &Path, name: &str) -> Result<()> {
    check_namespace(name)?;
    // A link is none: it could lead anywhere.
    if !fs::symlink_metadata(place(pool, name)).is_ok_and(|meta| meta.is_dir()) {
        fail!(
            NotFound,
            "there is no namespace {name:?} in {}: there are {:?}",
            pool.display(),
            names(pool)?
        );
    }
    Ok(())
}

/// What a namespace, of a pool of this format, says of itself to all who may enter it.
pub(super) fn namespace_file(pool: &Path, format: u32, name: &str) -> Result<NamespaceFile> {
    check_there(pool, name)?;
    let namespace = place(pool, name);
    let file: NamespaceFile = read_toml(&namespace.join(engram_files::paths::NAMESPACE_FILE))
        .map_err(|error| closed(name, missing(pool, &namespace, error)))?;
    if file.format != format {
        fail!(
            Format,
            "namespace {name:?} has format {}; its pool has format {format}: upgrade engram",
            file.format
        );
    }
    Ok(file)
}

/// Sets the size that the namespace says for private realms yet to be made.
pub(super) fn set_size(pool: &Path, name: &str, size: u64) -> Result<()> {
    let _pool_lock = PoolLock::take(pool)?;
    let before = namespace_file(pool, FORMAT, name)?;
    let path = place(pool, name).join(engram_files::paths::NAMESPACE_FILE);
    if before.size == size {
        return Ok(());
    }
    write_toml(&path, &NamespaceFile { size, ..before }, 0o644)
}

fn closed(name: &str, error: Error) -> Error {
    if error.kind() != Kind::Access {
        return error;
    }
    Error::new(
        Kind::Access,
        format!(
            "namespace {name:?} is open to its owner alone, and to its group if its mode lets that \
             write, also for reading: ask its owner to publish what you need, in a namespace that \
             you may enter ({})",
            error.message()
        ),
    )
}

/// What `process::core_of` needs to open the namespace's shared realm.
pub fn setup(pool: &Path, file: &PoolFile, mount: Mount, name: &str) -> Result<Setup> {
    check_there(pool, name)?;
    let dir = place(pool, name).join(within(Scope::Shared, 0));
    check_folders(pool, &dir)?;
    let toml =
        realm_file(&dir, file.format).map_err(|error| closed(name, missing(pool, &dir, error)))?;
    let mode = fs::metadata(&dir)
        .map_err(|e| Error::os(format!("looking at {}", dir.display()), &e))?
        .permissions()
        .mode();
    let file_mode = modes(mode & 0o777).1;
    let folder = RealmFolder { dir: &dir, scope: Scope::Shared, file_mode };
    Ok(setup_at(pool, file, name, folder, &toml, mount))
}

/// The same of the realm of a scope, as this user has it; `None` where there is none yet. A user
/// who may not use it is refused with `AccessError`.
pub fn realm_setup(
    pool: &Path,
    file: &PoolFile,
    mount: Mount,
    name: &str,
    scope: Scope,
) -> Result<Option<Setup>> {
    match scope {
        Scope::Shared => setup(pool, file, mount, name).map(Some),
        Scope::Private => private_setup(pool, file, mount, name, user::current()),
        Scope::Published => {
            let published = place(pool, name).join(within(Scope::Published, 0));
            crate::published::setup(pool, &published, file, &mount, name)
        }
    }
}

/// The private realm of a user: a real folder, the user's own, and closed to others. Anybody who
/// may enter the namespace could have put something else in its place.
pub(super) fn private_setup(
    pool: &Path,
    file: &PoolFile,
    mount: Mount,
    name: &str,
    user: u32,
) -> Result<Option<Setup>> {
    let dir = place(pool, name).join(within(Scope::Private, user));
    if !check_own(&dir, user)? {
        return Ok(None);
    }
    check_folders(pool, &dir)?;
    let toml = realm_file(&dir, file.format).map_err(|error| missing(pool, &dir, error))?;
    let folder = RealmFolder { dir: &dir, scope: Scope::Private, file_mode: 0o600 };
    Ok(Some(setup_at(pool, file, name, folder, &toml, mount)))
}

/// Refuses a realm of which a folder is no folder: in a shared one any member could put a link.
fn check_folders(pool: &Path, dir: &Path) -> Result<()> {
    check_real(pool, &dir.join("catalog"))?;
    check_real(dir, &dir.join("leases"))
}

/// The users who have a private realm in a namespace, ascending, each with what is needed to open
/// it or why it cannot be opened.
pub fn private_setups(
    pool: &Path,
    file: &PoolFile,
    mount: &Mount,
    name: &str,
) -> Result<Vec<(u32, Result<Setup>)>> {
    let mut users = private_users(&place(pool, name))?;
    users.sort_unstable();
    let setup = |user| match private_setup(pool, file, mount.clone(), name, user) {
        Ok(Some(setup)) => Some((user, Ok(setup))),
        Ok(None) => None,
        Err(error) => Some((user, Err(error))),
    };
    Ok(users.into_iter().filter_map(setup).collect())
}

/// The users who have a folder for a private realm in this namespace's folder.
pub(super) fn private_users(namespace: &Path) -> Result<Vec<u32>> {
    let private = namespace.join(PRIVATE);
    let entries = match fs::read_dir(&private) {
        Ok(entries) => entries,
        // It is being made, or removed; or this user may not enter, and sees none.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return Ok(Vec::new()),
        Err(e) => return Err(Error::os(format!("listing {}", private.display()), &e)),
    };
    let user_of = |entry: fs::DirEntry| {
        // Anything but a real folder is no realm: the one who put it there has put nothing in it.
        let folder = entry.file_type().ok()?.is_dir();
        folder.then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    };
    Ok(entries.filter_map(|entry| user_of(entry.ok()?)).collect())
}

/// The folder of a realm, and for whom it is.
#[derive(Clone, Copy)]
pub(super) struct RealmFolder<'a> {
    pub dir: &'a Path,
    pub scope: Scope,
    /// The mode of the files made in it.
    pub file_mode: u32,
}

/// What is needed to open a realm that `realm.toml` describes.
pub(super) fn setup_at(
    pool: &Path,
    file: &PoolFile,
    name: &str,
    folder: RealmFolder<'_>,
    toml: &RealmFile,
    mount: Mount,
) -> Setup {
    Setup {
        dir: folder.dir.to_owned(),
        pool: pool.to_owned(),
        uuid: file.uuid.clone(),
        namespace: name.to_owned(),
        file_mode: folder.file_mode,
        durable: file.durability == "system",
        mount,
        map_size: toml.map_size,
        id_prefix: toml.id_prefix,
        root: toml.root,
        scope: folder.scope,
        checksums: file.checksums,
        emulated: file.emulated,
        immutable: false,
    }
}
