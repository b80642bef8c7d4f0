//! A user's own realm in a namespace: made at its first use.
//!
//! It is made whole under a hidden name and then renamed to the user's number, under the pool lock,
//! so that of two processes of the user one makes it and the other finds it, and nobody removes the
//! namespace meanwhile. It lies in a sticky folder: others may put things there, but not take this
//! one away. Anything that they put in its place beforehand is refused by name.
//!
//! Nobody but its user, or root, can remove it, so its user can: it is renamed away first, looked
//! at once more, and then goes, its spans before its folder, so that what somebody died removing is
//! still told by its name, and goes when the user removes it again, or makes a new one.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
use std::path::{Path, PathBuf};

use super::id_prefixes::ID_PREFIXES;
use super::make::{NewRealm, build_realm, users};
use super::setup::{namespace_file, private_setup};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::pool_lock::PoolLock;
use engram_base::scope::Scope;
use engram_base::user;
use engram_files::folder::{check_own, check_real, make_for_namespace, sync_names_above};
use engram_files::paths::{PRIVATE, on_device, place, within};
use engram_files::pool_file::PoolFile;
use engram_media::filesystem::Mount;
use engram_realm::Setup;
use engram_realm::process;

/// What the folder of a realm that is being made is called before its user's number.
const MAKING: &str = ".new-";
/// What one that is being removed is.
const REMOVING: &str = ".gone-";

/// This user's private realm in a namespace; made if there is none, of this size, or of what the
/// namespace says.
pub(super) fn ensure(
    pool: &Path,
    file: &PoolFile,
    mount: Mount,
    name: &str,
    size: Option<u64>,
) -> Result<Setup> {
    let user = user::current();
    if let Some(setup) = private_setup(pool, file, mount.clone(), name, user)? {
        return Ok(setup);
    }
    let _pool_lock = PoolLock::take(pool)?;
    if let Some(setup) = private_setup(pool, file, mount.clone(), name, user)? {
        return Ok(setup);
    }
    let description = namespace_file(pool, file.format, name)?;
    let namespace = place(pool, name);
    check_real(pool, &namespace.join(PRIVATE))?;
    check_real(pool, &namespace.join(ID_PREFIXES))?;
    let devices = PoolFile::read(pool)?.folders();
    for device in &devices {
        make_for_namespace(&namespace, &on_device(device, file, name))?;
    }
    clear_left(pool, file, name, &devices, user)?;
    let temporary = namespace.join(PRIVATE).join(format!("{MAKING}{user}"));
    let new = NewRealm {
        pool,
        namespace: &namespace,
        name,
        at: &temporary,
        place: within(Scope::Private, user),
        scope: Scope::Private,
        modes: (0o700, 0o600),
        group: false,
        root: Some(description.root),
        size: size.unwrap_or(description.size),
        devices: &devices,
        mount: mount.clone(),
    };
    let dir = namespace.join(within(Scope::Private, user));
    let made = build_realm(file, &new).and_then(|_| {
        fs::rename(&temporary, &dir)
            .map_err(|e| Error::os(format!("naming the private realm {}", dir.display()), &e))?;
        sync_names_above(&dir).inspect_err(|_| drop(fs::rename(&dir, &temporary)))
    });
    if let Err(error) = made {
        let _ = fs::remove_dir_all(&temporary);
        for device in &devices {
            let spans = on_device(device, file, name).join(within(Scope::Private, user));
            let _ = fs::remove_dir_all(spans);
        }
        return Err(error);
    }
    match private_setup(pool, file, mount, name, user)? {
        Some(setup) => Ok(setup),
        None => Err(Error::new(
            Kind::NotFound,
            format!("{} was removed as soon as it was made", dir.display()),
        )),
    }
}

/// Removes this user's private realm in a namespace, unless somebody has it open; `let_go` closes
/// the caller's own handles on it. The caller has the pool lock.
pub(crate) fn remove(
    pool: &Path,
    file: &PoolFile,
    name: &str,
    let_go: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let user = user::current();
    let namespace = place(pool, name);
    let private = namespace.join(PRIVATE);
    check_real(pool, &private)?;
    let dir = namespace.join(within(Scope::Private, user));
    let devices = PoolFile::read(pool)?.folders();
    if !check_own(&dir, user)? {
        if clear_left(pool, file, name, &devices, user)? {
            return Ok(());
        }
        fail!(
            NotFound,
            "{} has no private realm in namespace {name:?} of {}: there is nothing to remove",
            user::shown(user),
            pool.display()
        );
    }
    let mut others = users(&dir)?;
    others.retain(|&pid| pid != std::process::id());
    refuse_users(name, &others)?;
    let_go(&dir)?;
    let away = private.join(format!("{REMOVING}{user}"));
    remove_own(&away, user)?; // of an earlier realm, whose spans were this one's since
    fs::rename(&dir, &away)
        .map_err(|e| Error::os(format!("removing the private realm {}", dir.display()), &e))?;
    let put_back = |error| {
        fs::rename(&away, &dir)
            .map_err(|e| Error::os(format!("putting back {}", dir.display()), &e))?;
        Err(error)
    };
    // Nobody finds it any more; a process that had found it before has a lease by now, or fails.
    if let Err(error) = users(&away).and_then(|users| refuse_users(name, &users)) {
        return put_back(error);
    }
    if let Err(error) = sync_names_above(&dir) {
        return put_back(error);
    }
    process::detach(&away);
    // It is gone. The user's next one clears away what cannot be cleared now.
    let _ = clear_left(pool, file, name, &devices, user);
    Ok(())
}

fn refuse_users(name: &str, users: &[u32]) -> Result<()> {
    if !users.is_empty() {
        fail!(
            Busy,
            "your private realm in namespace {name:?} is open in process {users:?}: close it there \
             first"
        );
    }
    Ok(())
}

/// Removes a folder that is the user's own; whether it was there. Another's is refused.
fn remove_own(folder: &Path, user: u32) -> Result<bool> {
    let there = check_own(folder, user)?;
    if there {
        fs::remove_dir_all(folder)
            .map_err(|e| Error::os(format!("removing {}", folder.display()), &e))?;
    }
    Ok(there)
}

/// Clears away what this user died making or removing, while the user has no private realm in the
/// namespace; whether there was any. Anything that is not the user's own is refused.
fn clear_left(
    pool: &Path,
    file: &PoolFile,
    name: &str,
    devices: &[PathBuf],
    user: u32,
) -> Result<bool> {
    let mut any = false;
    for device in devices {
        any |= remove_own(&on_device(device, file, name).join(within(Scope::Private, user)), user)?;
    }
    // Last: they tell that there may be more.
    for hidden in [MAKING, REMOVING] {
        let place = place(pool, name).join(PRIVATE).join(format!("{hidden}{user}"));
        any |= remove_own(&place, user)?;
    }
    Ok(any)
}

/// The users who have a private realm in a namespace, or what is left of one, ascending.
pub(super) fn leavings(pool: &Path, file: &PoolFile, name: &str) -> Result<Vec<u32>> {
    let mut found = BTreeSet::new();
    let here = place(pool, name).join(PRIVATE);
    let devices = file.folders().into_iter();
    let there = devices.map(|device| on_device(&device, file, name).join(PRIVATE));
    for folder in [here].into_iter().chain(there) {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // It is being made, or removed; or this user may not enter, and sees none; or somebody
            // has put something else in its place.
            Err(e) if matches!(e.kind(), NotFound | PermissionDenied | NotADirectory) => continue,
            Err(e) => return Err(Error::os(format!("listing {}", folder.display()), &e)),
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let of = [MAKING, REMOVING].iter().find_map(|hidden| name.strip_prefix(hidden));
            // Anything but a real folder keeps nobody from removing it.
            if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && let Ok(user) = of.unwrap_or(name).parse()
            {
                found.insert(user);
            }
        }
    }
    Ok(found.into_iter().collect())
}
