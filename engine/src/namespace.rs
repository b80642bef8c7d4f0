//! Namespaces: named parts of a pool, each with an owner, a group and a mode.
//!
//! On media: `ns/<name>/namespace.toml` and the shared realm `ns/<name>/shared/`. A namespace is
//! made whole under a hidden name and then renamed into place; it is removed by renaming it away
//! first, so nobody ever opens half of one. The kernel keeps others out: the shared realm is
//! 0700/0600, or 2770/0660 where the namespace's mode lets its group write.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, Headroom, Table};
use crate::error::{Error, Kind, Result};
use crate::extent::{Growing, HUGE};
use crate::fail;
use crate::folder::make_for_spans;
use crate::group::{Stamp, group_record};
use crate::id::{COUNTER_BITS, Gid, id_key};
use crate::lease::{self, Peers};
use crate::media::filesystem::Mount;
use crate::name::check_namespace;
use crate::pool::{FORMAT, PoolFile};
use crate::process;
use crate::realm::{LIMIT, NEXT_ID, Setup, USED};
use crate::scope::Scope;

/// The namespace that every pool starts with.
pub const DEFAULT: &str = "default";

const NAMESPACES: &str = "ns";
/// What the folder of a namespace that is being made, or removed, is called before its name.
const MAKING: &str = ".new-";
const REMOVING: &str = ".gone-";
const SHARED: &str = "shared";
const MAP_SIZE: u64 = 64 << 30;

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

/// What a new namespace is given.
pub(crate) struct NewNamespace<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its mode.
    pub mode: u32,
    /// Its group's number.
    pub group: Option<u32>,
    /// The bound of its arena.
    pub size: u64,
}

/// The folder of all namespaces.
pub(crate) fn folder(pool: &Path) -> PathBuf {
    pool.join(NAMESPACES)
}

/// The shared realm's folder.
pub(crate) fn realm_folder(pool: &Path, name: &str) -> PathBuf {
    folder(pool).join(name).join(SHARED)
}

fn modes(mode: u32) -> (u32, u32) {
    if mode & 0o020 == 0 { (0o700, 0o600) } else { (0o2770, 0o660) }
}

/// Makes a folder with exactly this mode, whatever the umask.
pub(crate) fn make_folder(path: &Path, mode: u32) -> Result<()> {
    let made = fs::DirBuilder::new().mode(mode).create(path);
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(|e| Error::os(format!("making {}", path.display()), &e))
}

/// Makes the namespace, whole or not at all. The caller has the pool's turn.
pub(crate) fn create(pool: &Path, file: &PoolFile, new: &NewNamespace<'_>) -> Result<()> {
    check_namespace(new.name)?;
    if new.mode & !0o777 != 0 || new.mode & 0o700 != 0o700 {
        fail!(
            Argument,
            "mode {:#o} must be within 0o777 and let the owner read, write and enter (0o700)",
            new.mode
        );
    }
    let place = folder(pool).join(new.name);
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
    if made.is_err() {
        let _ = fs::remove_dir_all(&temporary);
        for device in &file.devices {
            let _ = fs::remove_dir_all(device.join(&file.uuid).join(new.name));
        }
    }
    made
}

/// Where the spans of a namespace's shared realm lie on a device.
pub(crate) fn span_folder(device: &Path, file: &PoolFile, name: &str) -> PathBuf {
    device.join(&file.uuid).join(name).join(SHARED)
}

/// Makes the folders for spans on a device that is being added.
pub(crate) fn add_device(pool: &Path, file: &PoolFile, device: &Path) -> Result<()> {
    for name in names(pool)? {
        let realm = realm_folder(pool, &name);
        match make_for_spans(&realm, &span_folder(device, file, &name)) {
            // Another's namespace: its owner makes the folder when it is needed.
            Err(error) if error.kind() == Kind::Access => {}
            made => made?,
        }
    }
    Ok(())
}

fn build(pool: &Path, at: &Path, file: &PoolFile, new: &NewNamespace<'_>) -> Result<()> {
    let (folder_mode, file_mode) = modes(new.mode);
    // The namespace's own folder may be entered by whom the mode admits; the realm may not.
    make_folder(at, 0o700 | (new.mode & 0o055))?;
    if let Some(gid) = new.group {
        chown(at, None, Some(gid))
            .map_err(|e| Error::os(format!("giving {:?} to group {gid}", new.name), &e))?;
        if new.mode & 0o020 != 0 {
            let setgid = fs::Permissions::from_mode(0o2770 | (new.mode & 0o055));
            fs::set_permissions(at, setgid)
                .map_err(|e| Error::os(format!("setting the mode of {:?}", new.name), &e))?;
        }
    }
    write_toml(
        &at.join("namespace.toml"),
        &NamespaceFile { format: FORMAT, mode: new.mode },
        0o644,
    )?;
    let realm = at.join(SHARED);
    make_folder(&realm, folder_mode)?;
    if new.group.is_some() {
        let gid = fs::metadata(at).map_err(|e| Error::os("reading a folder", &e))?.gid();
        chown(&realm, None, Some(gid)).map_err(|e| Error::os("giving a realm to its group", &e))?;
        fs::set_permissions(&realm, fs::Permissions::from_mode(folder_mode))
            .map_err(|e| Error::os("setting a realm's mode", &e))?;
    }
    for inner in ["catalog", "leases"] {
        make_folder(&realm.join(inner), folder_mode)?;
    }
    // What members of the group will use is made now, with the realm's own mode and group: none of
    // them could make it for the others.
    Growing::prepare(&realm, file_mode)?;
    for device in &file.devices {
        let spans = span_folder(device, file, new.name);
        // One that was left by somebody who died making a namespace of the name.
        let _ = fs::remove_dir_all(spans.parent().expect("of the namespace"));
        make_for_spans(&realm, &spans)?;
    }
    let birth = draw_birth(pool)?;
    let root = (birth << COUNTER_BITS) | 1;
    let toml =
        RealmFile { format: FORMAT, map_size: MAP_SIZE, birth, root, incompatible: Vec::new() };
    write_toml(&realm.join("realm.toml"), &toml, file_mode)?;
    let setup = setup_at(pool, &realm, file, new.name, file_mode, &toml, pool_mount(pool)?);
    create_catalog(&setup, new.size)?;
    make_locks(&realm, file_mode)?;
    lease::ensure_spare(&setup.leases(), file_mode);
    Ok(())
}

/// Makes the file on whose bytes objects are locked. It stays empty.
fn make_locks(realm: &Path, mode: u32) -> Result<()> {
    let path = realm.join(crate::realm::LOCKS);
    let refused = |e| Error::os(format!("making {}", path.display()), &e);
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .map_err(refused)?;
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(refused)?;
    crate::folder::hand_over(&file, &path)
}

fn pool_mount(pool: &Path) -> Result<Mount> {
    crate::media::filesystem::admit(pool, true)
}

fn create_catalog(setup: &Setup, size: u64) -> Result<()> {
    let options = setup.catalog_options();
    Catalog::create(&setup.catalog(), &options)?;
    let catalog = Catalog::open(&setup.catalog(), &options)?;
    catalog.growth().set_boot_id(crate::realm::boot_id());
    let size = crate::extent::round_up(size.max(HUGE), HUGE);
    loop {
        let mut txn = catalog.write(Headroom::Relief)?;
        let stamp = Stamp::now(owner_of(&setup.dir)?, setup.checksums);
        let root = group_record(0, "", stamp, &[], &[]).encode();
        let rows = [(LIMIT, size), (USED, 0), (NEXT_ID, 2)];
        let put = rows
            .iter()
            .try_for_each(|(key, value)| txn.put(Table::Meta, key, &value.to_le_bytes()))
            .and_then(|()| txn.put(Table::Groups, &id_key(setup.root()), &root));
        match (put, txn.short_of()) {
            (_, Some(pages)) => {
                drop(txn);
                catalog.extend(pages)?;
            }
            (Err(error), None) => return Err(error),
            (Ok(()), None) => return txn.commit().map(|_| ()),
        }
    }
}

fn owner_of(dir: &Path) -> Result<u32> {
    let meta = fs::metadata(dir);
    Ok(meta.map_err(|e| Error::os(format!("looking at {}", dir.display()), &e))?.uid())
}

/// 24 random bits that no realm of the pool has.
fn draw_birth(pool: &Path) -> Result<u64> {
    let mut taken = Vec::new();
    for name in names(pool)? {
        let file = realm_folder(pool, &name).join("realm.toml");
        if let Ok(realm) = read_toml::<RealmFile>(&file) {
            taken.push(realm.birth);
        }
    }
    loop {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes)
            .map_err(|e| Error::new(Kind::Os, format!("no random bytes: {e}")))?;
        let birth = u64::from(u32::from_le_bytes(bytes)) & ((1 << (64 - COUNTER_BITS)) - 1);
        if birth != 0 && !taken.contains(&birth) {
            return Ok(birth);
        }
    }
}

/// What `process::core_of` needs to open the namespace's shared realm.
pub(crate) fn setup(pool: &Path, file: &PoolFile, mount: Mount, name: &str) -> Result<Setup> {
    check_namespace(name)?;
    let place = folder(pool).join(name);
    if !place.is_dir() {
        fail!(
            NotFound,
            "there is no namespace {name:?} in {}: there are {:?}",
            pool.display(),
            names(pool)?
        );
    }
    let realm = place.join(SHARED);
    let toml: RealmFile = read_toml(&realm.join("realm.toml")).map_err(|error| match error.kind() {
        Kind::Access => Error::new(
            Kind::Access,
            format!(
                "namespace {name:?} is open to its owner and group alone, also for reading: ask \
                 its owner to publish what you need, or to give its group write access ({})",
                error.message()
            ),
        ),
        _ => error,
    })?;
    if toml.format != FORMAT || !toml.incompatible.is_empty() {
        fail!(
            Format,
            "{} has format {} with features {:?}; this engine reads format {FORMAT}: upgrade \
             engram",
            realm.display(),
            toml.format,
            toml.incompatible
        );
    }
    let mode = fs::metadata(&realm)
        .map_err(|e| Error::os(format!("looking at {}", realm.display()), &e))?
        .permissions()
        .mode();
    Ok(setup_at(pool, &realm, file, name, modes(mode & 0o777).1, &toml, mount))
}

fn setup_at(
    pool: &Path,
    realm: &Path,
    file: &PoolFile,
    name: &str,
    file_mode: u32,
    toml: &RealmFile,
    mount: Mount,
) -> Setup {
    Setup {
        dir: realm.to_owned(),
        pool: pool.to_owned(),
        uuid: file.uuid.clone(),
        namespace: name.to_owned(),
        file_mode,
        durable: file.durability == "system",
        mount,
        map_size: toml.map_size,
        birth: toml.birth,
        root: toml.root,
        scope: Scope::Shared,
        checksums: file.checksums,
        immutable: false,
    }
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
    let place = folder(pool).join(name);
    let meta = fs::metadata(&place)
        .map_err(|e| Error::os(format!("looking at namespace {name:?}"), &e))?;
    let mode = match read_toml::<NamespaceFile>(&place.join("namespace.toml")) {
        Ok(file) => file.mode,
        // Who may not enter still sees the folder, which has the same mode.
        Err(error) if error.kind() == Kind::Access => meta.mode() & 0o777,
        Err(error) => return Err(error),
    };
    Ok(NamespaceInfo { name: name.to_owned(), owner: meta.uid(), group: meta.gid(), mode })
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

/// Removes a namespace and all that is in it, unless somebody has it open; `let_go` closes the
/// caller's own handles. The caller has the pool's turn.
pub(crate) fn remove(
    pool: &Path,
    file: &PoolFile,
    name: &str,
    let_go: impl FnOnce() -> Result<()>,
) -> Result<()> {
    check_namespace(name)?;
    if name == DEFAULT {
        fail!(Argument, "the namespace \"default\" stays as long as its pool: destroy the pool");
    }
    let place = folder(pool).join(name);
    if !place.is_dir() {
        fail!(NotFound, "there is no namespace {name:?} in {}", pool.display());
    }
    clear_left(pool, file)?;
    let mut others = users(&place.join(SHARED))?;
    others.retain(|&pid| pid != std::process::id());
    refuse_users(name, &others)?;
    let_go()?;
    let away = folder(pool).join(format!("{REMOVING}{name}"));
    fs::rename(&place, &away).map_err(|e| Error::os(format!("removing {name:?}"), &e))?;
    // Nobody finds it any more; who had found it before has a lease by now, or fails.
    let unused = users(&away.join(SHARED)).and_then(|users| refuse_users(name, &users));
    if let Err(error) = unused {
        fs::rename(&away, &place).map_err(|e| Error::os(format!("putting back {name:?}"), &e))?;
        return Err(error);
    }
    process::detach(&away.join(SHARED));
    clear_left(pool, file)
}

fn refuse_users(name: &str, users: &[u32]) -> Result<()> {
    if !users.is_empty() {
        fail!(Busy, "namespace {name:?} is open in process {users:?}: close it there first");
    }
    Ok(())
}

/// Clears away namespaces that were removed, or that somebody died making. The caller has the
/// pool's turn, so nobody is at it now.
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
            for device in &file.devices {
                remove(&device.join(&file.uuid).join(name))?;
            }
            remove(&entry.path())?;
        } else if hidden.starts_with(MAKING) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Writes a TOML file whole: under another name, synced, then renamed.
pub(crate) fn write_toml<T: Serialize>(path: &Path, value: &T, mode: u32) -> Result<()> {
    use std::io::Write;
    let text = toml::to_string(value)
        .map_err(|e| Error::new(Kind::Os, format!("writing {}: {e}", path.display())))?;
    let temporary = path.with_extension("toml.new");
    let written = (|| {
        let mut file = fs::File::create(&temporary)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    })();
    written.map_err(|e| {
        let _ = fs::remove_file(&temporary);
        Error::os(format!("writing {}", path.display()), &e)
    })
}

/// Reads a TOML file; what does not parse is `FormatError`.
pub(crate) fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => {
            Error::new(Kind::Format, format!("{} is damaged: it is no text", path.display()))
        }
        _ => Error::os(format!("reading {}", path.display()), &e),
    })?;
    toml::from_str(&text).map_err(|e| {
        Error::new(Kind::Format, format!("{} is damaged: {}", path.display(), e.message()))
    })
}
