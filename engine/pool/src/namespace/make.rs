//! Making and removing namespaces.
//!
//! A namespace is made whole under a hidden name and then renamed into place; it is removed by
//! renaming it away first, so nobody ever opens half of one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::id_prefixes::{self, ID_PREFIXES};
use super::mode::{check as check_mode, of_folder as mode_of_folder};
use super::private::leavings as private_leavings;
use super::setup::{RealmFolder, private_users, setup_at};
use crate::namespace::{NamespaceFile, names, scopes};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::id::{COUNTER_BITS, Gid, id_key};
use engram_base::name::check_namespace;
use engram_base::scope::Scope;
use engram_base::user;
use engram_catalog::{Catalog, Table};
use engram_files::folder::{STICKY, make_folder};
use engram_files::folder::{
    check_theirs, give_to_group, make_for_namespace, make_for_spans, set_mode, sync_names,
};
use engram_files::paths::{
    DEFAULT, NAMESPACE_FILE, PRIVATE, REALM_FILE, SHARED, folder, modes, on_device, place, within,
};
use engram_files::pool_file::{FORMAT, PoolFile};
use engram_files::realm_file::RealmFile;
use engram_files::toml_file::write_toml;
use engram_media::filesystem::Mount;
use engram_ops::group::group_record;
use engram_realm::process;
use engram_realm::{LIMIT, NEXT_ID, Setup, USED, prepare_locks};
use engram_records::extent::HUGE;
use engram_records::stamp::Stamp;
use engram_space::extent::Growing;
use engram_space::lease;
use engram_space::lease::Peers;

/// What the folder of a namespace that is being made, or removed, is called before its name.
const MAKING: &str = ".new-";
const REMOVING: &str = ".gone-";
const MAP_SIZE: u64 = 64 << 30;

/// What a new namespace is given.
pub(crate) struct NewNamespace<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its mode.
    pub mode: u32,
    /// Its group's number.
    pub group: Option<u32>,
    /// Its root group, if it is like another namespace.
    pub root: Option<Gid>,
    /// The bound of its arena.
    pub size: u64,
}

/// What a new realm is given.
pub(super) struct NewRealm<'a> {
    /// The pool's folder.
    pub pool: &'a Path,
    /// The namespace's folder, which may have a hidden name still.
    pub namespace: &'a Path,
    /// The namespace's name.
    pub name: &'a str,
    /// Where it is made.
    pub at: &'a Path,
    /// Where its spans lie in what the namespace has on a device.
    pub place: PathBuf,
    pub scope: Scope,
    /// The modes of its folders and of its files.
    pub modes: (u32, u32),
    /// Whether it has the namespace's group.
    pub group: bool,
    /// The namespace's root group, if it has one already.
    pub root: Option<Gid>,
    /// The bound of its arena.
    pub size: u64,
    pub devices: &'a [PathBuf],
    pub mount: Mount,
}

/// Makes the namespace, whole or not at all. The caller has the pool lock.
pub(crate) fn create(pool: &Path, file: &PoolFile, new: &NewNamespace<'_>) -> Result<()> {
    check_namespace(new.name)?;
    check_mode(new.mode)?;
    let place = place(pool, new.name);
    if place.exists() {
        fail!(
            Exists,
            "namespace {:?} exists in {}: open it, or remove it",
            new.name,
            pool.display()
        );
    }
    clear_left(pool, file)?;
    let temporary = folder(pool).join(format!("{MAKING}{}", new.name));
    let made = build(pool, &temporary, file, new).and_then(|()| {
        fs::rename(&temporary, &place).map_err(|e| match e.raw_os_error() {
            Some(libc::EEXIST | libc::ENOTEMPTY) => {
                Error::new(Kind::Exists, format!("namespace {:?} exists already", new.name))
            }
            _ => Error::os(format!("naming namespace {:?}", new.name), &e),
        })
    });
    let made = made
        .and_then(|()| sync_names(&folder(pool)).inspect_err(|_| drop(fs::remove_dir_all(&place))));
    if made.is_err() {
        let _ = fs::remove_dir_all(&temporary);
        for device in &file.folders() {
            let _ = fs::remove_dir_all(on_device(device, file, new.name));
        }
    }
    made
}

/// Makes the folders for spans on a device that is being added.
pub(crate) fn add_device(pool: &Path, file: &PoolFile, device: &Path) -> Result<()> {
    // The owner of a folder of the pool's uuid there would have all that is put into it.
    check_theirs(&place(pool, DEFAULT), &device.join(&file.uuid))?;
    for name in names(pool)? {
        let namespace = place(pool, &name);
        let outer = on_device(device, file, &name);
        let shared = within(Scope::Shared, 0);
        let made = make_for_namespace(&namespace, &outer)
            .and_then(|()| make_for_spans(&namespace.join(&shared), &outer.join(&shared)));
        match made {
            // Another's namespace: its owner makes the folder when it is needed.
            Err(error) if error.kind() == Kind::Access => {}
            made => made?,
        }
    }
    Ok(())
}

fn build(pool: &Path, at: &Path, file: &PoolFile, new: &NewNamespace<'_>) -> Result<()> {
    let modes = modes(new.mode);
    // The namespace's own folder may be entered by whom the mode admits; the realm may not.
    make_folder(at, 0o700 | (new.mode & 0o055))?;
    if let Some(gid) = new.group {
        give_to_group(at, gid)
            .map_err(|error| error.context(format!("giving {:?} to group {gid}", new.name)))?;
        if new.mode & 0o020 != 0 {
            set_mode(at, mode_of_folder(new.mode))?;
        }
    }
    for inner in [PRIVATE, ID_PREFIXES] {
        make_folder(&at.join(inner), STICKY)?;
    }
    make_for_published(at, new)?;
    scopes::make(at, modes.1)?;
    for device in &file.folders() {
        // A folder that was left by a process that died making a namespace of the name.
        let _ = fs::remove_dir_all(on_device(device, file, new.name));
    }
    let realm = NewRealm {
        pool,
        namespace: at,
        name: new.name,
        at: &at.join(SHARED),
        place: within(Scope::Shared, 0),
        scope: Scope::Shared,
        modes,
        group: new.group.is_some(),
        root: new.root,
        size: new.size,
        devices: &file.folders(),
        mount: pool_mount(pool)?,
    };
    let root = build_realm(file, &realm)?;
    let description =
        NamespaceFile { format: FORMAT, mode: new.mode, root, size: new.size, next_mode: None };
    write_toml(&at.join(NAMESPACE_FILE), &description, 0o644)
}

/// Makes the folder of published versions: it belongs to those who may write the shared realm, and
/// is open for reading to all whom the namespace's folder admits.
fn make_for_published(at: &Path, new: &NewNamespace<'_>) -> Result<()> {
    let published = at.join(Scope::Published.as_str());
    let mode = if new.mode & 0o020 == 0 { 0o755 } else { 0o2775 };
    make_folder(&published, 0o700)?;
    let gid = fs::metadata(at).map_err(|e| Error::os("reading a folder", &e))?.gid();
    give_to_group(&published, gid)?;
    set_mode(&published, mode)
}

/// Makes a realm, to be renamed into place or not; returns its root group.
pub(super) fn build_realm(file: &PoolFile, new: &NewRealm<'_>) -> Result<Gid> {
    let (realm, (folder_mode, file_mode)) = (new.at, new.modes);
    make_folder(realm, folder_mode)?;
    if new.group {
        let gid = fs::metadata(new.namespace).map_err(|e| Error::os("reading a folder", &e))?.gid();
        give_to_group(realm, gid)?;
        set_mode(realm, folder_mode)?;
    }
    for inner in ["catalog", "leases"] {
        make_folder(&realm.join(inner), folder_mode)?;
    }
    // The files that members of the group will use are made now, with the realm's own mode and
    // group: none of them could make it for the others.
    Growing::prepare(realm, file_mode)?;
    prepare_locks(realm, file_mode)?;
    for device in new.devices {
        let outer = on_device(device, file, new.name);
        make_for_namespace(new.namespace, &outer)?;
        make_for_spans(realm, &outer.join(&new.place))?;
    }
    let id_prefix = id_prefixes::draw(new.pool, &new.namespace.join(ID_PREFIXES))?;
    sync_names(&new.namespace.join(ID_PREFIXES))?;
    let root = new.root.unwrap_or((id_prefix << COUNTER_BITS) | 1);
    let toml =
        RealmFile { format: FORMAT, map_size: MAP_SIZE, id_prefix, root, incompatible: Vec::new() };
    write_toml(&realm.join(REALM_FILE), &toml, file_mode)?;
    let folder = RealmFolder { dir: realm, scope: new.scope, file_mode };
    let setup = setup_at(new.pool, file, new.name, folder, &toml, new.mount.clone());
    create_catalog(&setup, new.size)?;
    lease::ensure_spare(&setup.leases(), file_mode);
    Ok(root)
}

fn pool_mount(pool: &Path) -> Result<Mount> {
    engram_media::filesystem::admit(pool, true)
}

pub(crate) fn create_catalog(setup: &Setup, size: u64) -> Result<()> {
    let options = setup.catalog_options();
    Catalog::create(&setup.catalog(), &options)?;
    let catalog = Catalog::open(&setup.catalog(), &options)?;
    catalog.growth().set_boot_id(engram_realm::boot_id());
    let size = engram_records::extent::round_up(size.max(HUGE), HUGE);
    let stamp = Stamp::now(owner_of(&setup.dir)?, setup.checksums)?;
    let root = group_record(0, "", stamp, &[], &[]).encode();
    catalog.run(|txn| {
        for (key, value) in [(LIMIT, size), (USED, 0), (NEXT_ID, 2)] {
            txn.put(Table::Meta, key, &value.to_le_bytes())?;
        }
        txn.put(Table::Groups, &id_key(setup.root()), &root)
    })
}

fn owner_of(dir: &Path) -> Result<u32> {
    let meta = fs::metadata(dir);
    Ok(meta.map_err(|e| Error::os(format!("looking at {}", dir.display()), &e))?.uid())
}

/// The pids that have a realm open. This process is among them if it has it open, not if it has
/// views of it alone: those keep their memory when the files go.
pub(crate) fn users(realm: &Path) -> Result<Vec<u32>> {
    let leases = realm.join("leases");
    match fs::metadata(&leases) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::os(format!("looking at {}", leases.display()), &e)),
    }
    let mut peers = Peers::default();
    peers.refresh(&leases, 0, 0)?;
    let views = process::leases_of_views(realm);
    let users = peers.alive().into_iter().filter(|(id, _)| !views.contains(id));
    Ok(users.map(|(_, owner)| owner.pid).collect())
}

/// The folders of every realm in a namespace's folder, the shared one first.
pub(crate) fn realm_folders(namespace: &Path) -> Result<Vec<PathBuf>> {
    let private = private_users(namespace)?.into_iter();
    let private = private.map(|user| namespace.join(within(Scope::Private, user)));
    Ok([namespace.join(SHARED)].into_iter().chain(private).collect())
}

/// Refuses to take away what others have kept to themselves: their private realms. Nobody but root
/// could look whether they are in use, nor remove them.
pub(crate) fn refuse_others(pool: &Path, file: &PoolFile, name: &str) -> Result<()> {
    let user = user::current();
    let mut others = private_leavings(pool, file, name)?;
    others.retain(|&other| other != user && user != 0);
    if !others.is_empty() {
        let named: Vec<String> = others.iter().map(|other| user::shown(*other)).collect();
        fail!(
            Access,
            "namespace {name:?} has private realms of others: of {}. Each of these users can \
             remove their own, by `engram ns {} {name} --remove-private` or \
             pool.remove_private({name:?}). Or have root do this instead of you: root is not \
             refused, and their realms go too",
            named.join(", "),
            pool.display()
        );
    }
    Ok(())
}

/// Removes a namespace and all that is in it, unless somebody has it open; `let_go` closes the
/// caller's own handles on its realms. The caller has the pool lock.
pub(crate) fn remove(
    pool: &Path,
    file: &PoolFile,
    name: &str,
    let_go: impl FnOnce(&[PathBuf]) -> Result<()>,
) -> Result<()> {
    check_namespace(name)?;
    if name == DEFAULT {
        fail!(Argument, "the namespace \"default\" stays as long as its pool: destroy the pool");
    }
    let place = place(pool, name);
    if !place.is_dir() {
        fail!(NotFound, "there is no namespace {name:?} in {}", pool.display());
    }
    refuse_others(pool, file, name)?;
    clear_left(pool, file)?;
    let realms = realm_folders(&place)?;
    let mut others = users_of(&realms)?;
    others.retain(|&pid| pid != std::process::id());
    refuse_users(name, &others)?;
    let_go(&realms)?;
    let away = folder(pool).join(format!("{REMOVING}{name}"));
    fs::rename(&place, &away).map_err(|e| Error::os(format!("removing {name:?}"), &e))?;
    // Nobody finds it any more; a process that had found it before has a lease by now, or fails.
    let realms = realm_folders(&away)?;
    let unused = users_of(&realms).and_then(|users| refuse_users(name, &users));
    if let Err(error) = unused {
        fs::rename(&away, &place).map_err(|e| Error::os(format!("putting back {name:?}"), &e))?;
        return Err(error);
    }
    // It must not come back, least of all in part.
    sync_names(&folder(pool)).inspect_err(|_| drop(fs::rename(&away, &place)))?;
    for realm in &realms {
        process::detach(realm);
    }
    // It is gone. The next process to make or remove one clears away what cannot be cleared now.
    let _ = clear_left(pool, file);
    Ok(())
}

/// The pids that have one of these realms open.
fn users_of(realms: &[PathBuf]) -> Result<Vec<u32>> {
    let mut pids = Vec::new();
    for realm in realms {
        pids.append(&mut users(realm)?);
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

fn refuse_users(name: &str, users: &[u32]) -> Result<()> {
    if !users.is_empty() {
        fail!(Busy, "namespace {name:?} is open in process {users:?}: close it there first");
    }
    Ok(())
}

/// Clears away namespaces that were removed, or that somebody died making. The caller has the pool
/// lock, so nobody is at it now.
fn clear_left(pool: &Path, file: &PoolFile) -> Result<()> {
    let remove = |path: &Path| match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::os(format!("removing {}", path.display()), &e))
        }
        _ => Ok(()),
    };
    let entries = fs::read_dir(folder(pool)).map_err(|e| Error::os("listing namespaces", &e))?;
    for entry in entries.flatten() {
        let hidden = entry.file_name();
        let hidden = hidden.to_string_lossy();
        if let Some(name) = hidden.strip_prefix(REMOVING) {
            // Nobody has made a new one of the name: that clears this one away first.
            for device in &file.folders() {
                remove(&device.join(&file.uuid).join(name))?;
            }
            remove(&entry.path())?;
        } else if hidden.starts_with(MAKING) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}
