//! Pools: creating, opening, destroying, devices.
//!
//! On media: `pool.toml` (format, uuid, durability, devices, features) and `ns/`. A pool is made
//! with its description under the name `creating`; renaming that to `pool.toml` is the last step.
//! So a folder with `creating` is a half-created pool, which `destroy` clears away; and `destroy`
//! itself begins by renaming `pool.toml` to `destroying`.

mod belongs;
mod destroy;
mod place;

use crate::namespace::Namespace;
use engram_files::pool_file::FORMAT;
use engram_space::extent::check_size;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::belongs::check as check_devices;
use self::destroy::{clear, owner_alone};
use self::place::{check_empty, ensure_folder, refuse_bare, refuse_in_pool, refuse_within};
use crate::namespace;
use crate::namespace::{NamespaceInfo, NewNamespace};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::pool_lock::PoolLock;
use engram_base::random;
use engram_base::telemetry::operation;
use engram_files::folder::sync_names_above;
use engram_files::paths;
use engram_files::pool_file::POOL_FILE;
pub(crate) use engram_files::pool_file::{PoolFile, missing};
use engram_media::filesystem::{self, FsKind, Mount};
use engram_media::shared_counter::SharedCounter;
use engram_media::{Medium, devdax};
use engram_realm::session::Session;
use engram_realm::{HasCore, Mode, Realm, Setup};

/// How often a pool is opened anew that others make anew meanwhile.
const OPEN_TRIES: u32 = 8;

/// What a pool survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The death of any process.
    Process,
    /// The loss of power, too.
    System,
}

impl Durability {
    /// `"process"` or `"system"`.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Process => "process",
            Durability::System => "system",
        }
    }
}

/// How a pool is made.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with another")]
pub struct CreateOptions {
    /// The bound of the default namespace's arena, and of others without their own, in bytes.
    pub size: u64,
    /// Further devices; the pool's own path is the first.
    pub devices: Vec<PathBuf>,
    /// What it must survive; `None` asks the mounts.
    pub durability: Option<Durability>,
    /// Allocate and map all space now.
    pub prefault: bool,
    /// Accept filesystems that are not on the list (network ones never).
    pub force: bool,
    /// Keep a checksum of every value, which `verify` compares.
    pub checksums: bool,
    /// Copy at the pace of persistent memory (see `media::emulated`): for evaluation alone.
    pub emulated: bool,
    /// The default namespace's POSIX mode; `None` is its owner's alone, 0o700.
    pub mode: Option<u32>,
    /// The Unix group of the default namespace; `None` is this process's.
    pub group: Option<u32>,
}

/// A device, as listings show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number.
    pub index: u32,
    /// Its folder, or its devdax node.
    pub path: PathBuf,
    /// Its filesystem; "devdax" for a node.
    pub filesystem: String,
    /// What mapped memory there is kept on, and so how it is made durable.
    pub medium: Medium,
    /// Whether that survives power loss.
    pub durable: bool,
    /// The free bytes of its mount.
    pub free: u64,
}

/// An open pool. Cheap to clone; the clones share one session.
#[derive(Clone)]
pub struct Pool {
    path: PathBuf,
    /// The filesystem and the inode of the pool's folder: a copy has the same uuid.
    place: (u64, u64),
    file: PoolFile,
    mount: Mount,
    session: Arc<Session>,
}

impl Pool {
    /// Makes a pool at `path`, which must not exist or be an empty folder, and opens it. It must
    /// not lie in another pool's folder: the process that destroys that one would find it in the
    /// way.
    ///
    /// On error nothing is left behind.
    pub fn create(path: &Path, options: &CreateOptions) -> Result<Pool> {
        let _operation =
            operation!(INFO, "pool.create", pool = %path.display(), size = options.size);
        Self::make_at(path, |path| Self::build(path, options))
    }

    /// Makes a folder that is the caller's alone, for a pool that `build` makes; on error it goes.
    pub fn make_at<T>(path: &Path, build: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let path = &absolute(path)?;
        refuse_within(path)?;
        let (_pool_lock, folder_made) = loop {
            let folder_made = ensure_folder(path)?;
            match PoolLock::take(path) {
                Ok(pool_lock) => break (pool_lock, folder_made),
                // The process that had made the folder could not make its pool, and took it away
                // again.
                Err(error) if error.kind() == Kind::NotFound => {}
                Err(error) => {
                    if folder_made {
                        let _ = fs::remove_dir(path);
                    }
                    return Err(error);
                }
            }
        };
        check_empty(path)?;
        let made = build(path).and_then(|made| {
            sync_names_above(path)?;
            Ok(made)
        });
        if made.is_err() {
            clear(path, folder_made);
        }
        made
    }

    fn build(path: &Path, options: &CreateOptions) -> Result<Pool> {
        check_size(options.size)?;
        let mut devices = vec![path.to_owned()];
        let mut mount = filesystem::admit(path, options.force)?;
        for device in &options.devices {
            let (device, next) = admit_device(device, &devices, options.force)?;
            if !next.durable {
                mount = next;
            }
            devices.push(device);
        }
        let durability = choose(options.durability, &mount)?;
        let file = PoolFile {
            format: FORMAT,
            uuid: random::uuid()?,
            durability: durability.as_str().to_owned(),
            size: options.size,
            checksums: options.checksums,
            emulated: options.emulated,
            devices,
            incompatible: Vec::new(),
            read_only: Vec::new(),
        };
        file.begin(path)?;
        let default = NewNamespace {
            name: paths::DEFAULT,
            mode: options.mode.unwrap_or(0o700),
            group: options.group,
            root: None,
            size: options.size,
        };
        namespace::create(path, &file, &default)?;
        for node in file.nodes() {
            devdax::claim(node, &file.label(), options.force)?;
        }
        for device in &file.devices[1..] {
            belongs::claim(path, &file, device)?;
        }
        PoolFile::finish(path)?;
        let pool = Self::open(path, Mode::ReadWrite, true)?;
        if options.prefault {
            pool.realm(paths::DEFAULT)?.prefault()?;
        }
        Ok(pool)
    }

    /// Opens the pool at `path`, and its default namespace.
    pub fn open(path: &Path, mode: Mode, force: bool) -> Result<Pool> {
        let _operation = operation!(INFO, "pool.open", pool = %path.display(), mode = ?mode);
        let path = &absolute(path)?;
        for _ in 0..OPEN_TRIES {
            let file = PoolFile::read(path)?;
            let uuid = file.uuid.clone();
            let opened = Self::open_as(path, file, mode, force);
            // Where another pool has been made meanwhile, that is the one to open.
            let another = || PoolFile::read(path).is_ok_and(|now| now.uuid != uuid);
            if opened.is_ok() || !another() {
                return opened;
            }
        }
        fail!(
            Busy,
            "the pool {} is removed and made anew again and again: open it when that is over",
            path.display()
        )
    }

    fn open_as(path: &Path, file: PoolFile, mode: Mode, force: bool) -> Result<Pool> {
        let mut mount = filesystem::admit(path, force)?;
        check_mounted(path, &file)?;
        for device in &file.devices[1..] {
            let next = mount_of(device, true)?;
            if !next.durable {
                mount = next;
            }
        }
        let mode = if file.read_only.is_empty() { mode } else { Mode::Read };
        match mode {
            Mode::Read => belongs::check(path, &file)?,
            Mode::ReadWrite => belongs::record_pool_folder(path, &file)?,
        }
        let session = Session::new(mode);
        let place = place_of(path)?;
        let pool = Pool { path: path.to_owned(), place, file, mount, session };
        match pool.namespace(paths::DEFAULT) {
            Ok(_) => {}
            // A pool whose default namespace is another's is still a pool.
            Err(error) if error.kind() == Kind::Access && pool.has_others() => {}
            Err(error) => return Err(missing(path, path, error)),
        }
        // Our lease stands: a process that destroys the pool sees it, unless that began before.
        if PoolFile::read(path)?.uuid != pool.file.uuid {
            fail!(Busy, "{} was removed while it was being opened, and made anew", path.display());
        }
        Ok(pool)
    }

    fn has_others(&self) -> bool {
        namespace::names(&self.path).is_ok_and(|names| names.len() > 1)
    }

    /// As `close`, but refuses while this thread runs a batch: it would be dropped without a word.
    /// It is closed all the same where its files were removed meanwhile, which is
    /// [`Kind::PoolGone`].
    pub fn try_close(&self) -> Result<()> {
        if self.session.runs_batch() {
            fail!(
                Busy,
                "this thread runs a batch on {}: end it before the pool is closed",
                self.path.display()
            );
        }
        let present = self.session.check_present();
        self.close();
        match present {
            Err(error) if error.kind() == Kind::PoolGone => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends this session's handles. Views stay valid.
    pub fn close(&self) {
        self.session.close();
    }

    /// Whether the session is open.
    pub fn is_open(&self) -> bool {
        self.session.is_open()
    }

    /// What `pool.toml` says now, if it is still this pool's: another may lie at its path.
    pub fn file_now(&self) -> Result<PoolFile> {
        let now = PoolFile::read(&self.path);
        let gone = match &now {
            Ok(file) => file.uuid != self.file.uuid,
            Err(error) => error.kind() == Kind::NotFound,
        };
        if gone {
            fail!(
                PoolGone,
                "{} is not the pool {} any more: it was removed, moved or replaced while this \
                 process had it open; nothing was done",
                self.path.display(),
                self.file.uuid
            );
        }
        now
    }

    /// The pool's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The pool's identity: 32 hexadecimal digits.
    pub fn uuid(&self) -> &str {
        &self.file.uuid
    }

    /// Whether the other is an opening of the same pool; a copy of it is another.
    pub fn is(&self, other: &Pool) -> bool {
        (self.uuid(), self.place) == (other.uuid(), other.place)
    }

    /// What the handles may do.
    pub fn mode(&self) -> Mode {
        self.session.mode()
    }

    /// What the pool survives.
    pub fn durability(&self) -> Durability {
        if self.file.durability == "system" { Durability::System } else { Durability::Process }
    }

    /// Whether it keeps checksums, which `verify` compares.
    pub fn checksums(&self) -> bool {
        self.file.checksums
    }

    /// Whether it copies at the pace of persistent memory: figures of it are to be labelled so.
    pub fn emulated(&self) -> bool {
        self.file.emulated
    }

    /// The devices, as they are now.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let file = self.file_now()?;
        file.devices
            .into_iter()
            .enumerate()
            .map(|(index, path)| {
                let index = index as u32;
                let mount = mount_of(&path, true)?;
                let (free, medium) = if devdax::is_node(&path) {
                    let medium = if mount.durable { Medium::Dax } else { Medium::Memory };
                    (self.free_on_node(index, &path)?, medium)
                } else {
                    (filesystem::free_bytes(&path)?, Medium::of_folder(&path)?)
                };
                let (filesystem, durable) = (mount.name, mount.durable);
                Ok(DeviceInfo { index, path, filesystem, medium, durable, free })
            })
            .collect()
    }

    /// The bytes of a node that no span has; all of them for a user who may not open the namespace.
    fn free_on_node(&self, index: u32, path: &Path) -> Result<u64> {
        let len = devdax::look(path)?.len;
        match self.realm(paths::DEFAULT) {
            Ok(realm) => realm.free_on_node(index, path),
            Err(error) if error.kind() == Kind::Access => Ok(len - devdax::LABEL_LEN.min(len)),
            Err(error) => Err(error),
        }
    }

    /// Adds a device; every process finds it at its next growth.
    pub fn add_device(&self, path: &Path, force: bool) -> Result<()> {
        let _operation = operation!(INFO, "pool.add-device", device = %path.display());
        self.writable()?;
        self.add(path, force).map_err(|error| self.owner_alone("add a device", error))
    }

    fn add(&self, path: &Path, force: bool) -> Result<()> {
        let _pool_lock = PoolLock::take(&self.path)?;
        let mut file = self.file_now()?;
        let (device, mount) = admit_device(path, &file.devices, force)?;
        if self.durability() == Durability::System && !mount.durable {
            fail!(
                Argument,
                "device {} is {}, which does not survive power loss, and the pool promises to: \
                 add it to a pool of durability \"process\"",
                device.display(),
                mount.name
            );
        }
        let node = devdax::is_node(&device);
        if node {
            devdax::claim(&device, &file.label(), force)?;
        } else {
            belongs::check_new(&self.path, &file, &device)?;
            namespace::add_device(&self.path, &file, &device)?;
        }
        let said = belongs::claim(&self.path, &file, &device);
        file.devices.push(device);
        let written = said.and_then(|()| file.write(&self.path, POOL_FILE));
        if written.is_err() && node {
            let _ = devdax::disclaim(&file.devices[file.devices.len() - 1], &file.label());
        }
        written
    }

    /// The shared realm of a namespace.
    pub fn realm(&self, name: &str) -> Result<Realm> {
        if !self.is_open() {
            fail!(Argument, "the pool {} is closed: open it again", self.path.display());
        }
        self.open_realm(namespace::setup(&self.path, &self.file, self.mount.clone(), name)?)
    }

    /// Lets go of the shared counter with the session, whoever still holds it.
    pub(crate) fn keep_counter(&self, counter: &Arc<SharedCounter>) {
        self.session.keep_counter(counter);
    }

    /// A handle on a realm of the pool.
    pub(crate) fn open_realm(&self, setup: Setup) -> Result<Realm> {
        let core = self.session.core(setup)?;
        Ok(Realm::new(core, Arc::clone(&self.session)))
    }

    /// Closes a published version that is outdated; views of it stay.
    pub(crate) fn let_go(&self, realm: &Realm) {
        self.session.let_go(realm.core());
    }

    /// What opening a realm of the pool takes: its folder, its description, what it lies on.
    pub(crate) fn parts(&self) -> (&Path, &PoolFile, &Mount) {
        (&self.path, &self.file, &self.mount)
    }

    /// Makes a namespace and opens it.
    pub fn create_namespace(
        &self,
        name: &str,
        mode: u32,
        group: Option<u32>,
        size: Option<u64>,
    ) -> Result<Realm> {
        self.writable()?;
        let size = size.unwrap_or(self.file.size);
        check_size(size)?;
        let _pool_lock = PoolLock::take(&self.path)?;
        let file = self.file_now()?;
        let new = NewNamespace { name, mode, group, root: None, size };
        namespace::create(&self.path, &file, &new)
            .map_err(|error| self.owner_alone("make namespaces in it", error))?;
        self.realm(name)
            .inspect_err(|_| drop(namespace::remove(&self.path, &file, name, |_| Ok(()))))
    }

    /// Gives a namespace of the pool at `path` another mode: its owner may, and root. Who may enter
    /// changes at once, for all who enter from then on; whether its group writes only while nobody
    /// has it open, this process neither.
    ///
    /// On error the mode is as it was, or the owner's next opening does the rest.
    pub fn set_mode(path: &Path, name: &str, mode: u32) -> Result<()> {
        namespace::set_mode(path, name, mode)
    }

    /// Every namespace, in byte order of the names.
    pub fn namespaces(&self) -> Result<Vec<NamespaceInfo>> {
        namespace::infos(&self.path)
    }

    /// Removes a namespace with all that is in it, unless somebody has it open.
    pub fn remove_namespace(&self, name: &str) -> Result<()> {
        self.writable()?;
        let _pool_lock = PoolLock::take(&self.path)?;
        let file = self.file_now()?;
        let place = paths::place(&self.path, name);
        let removed = namespace::remove(&self.path, &file, name, |realms| {
            realms.iter().try_for_each(|realm| self.session.forget(realm))
        });
        if removed.is_err() && place.is_dir() {
            // This session's handles go on, if something in this process still uses the realms.
            let _ = Namespace::open(self, name);
        }
        removed.map_err(|error| self.owner_alone("remove namespaces", error))
    }

    /// Removes the private realm of this user in a namespace, with all that is in it, unless
    /// somebody has it open. The view of others stays as it is.
    pub fn remove_private(&self, name: &str) -> Result<()> {
        self.writable()?;
        // The moves that the dead have left half done between it and the others are ended first.
        let namespace = self.namespace(name)?;
        let _pool_lock = PoolLock::take(&self.path)?;
        let file = self.file_now()?;
        let removed =
            namespace::remove_private(&self.path, &file, name, |realm| self.session.forget(realm));
        // Every handle looks anew, whatever came of it.
        namespace.has_come();
        crate::namespace::view::look_for_realms(&namespace)?;
        removed
    }

    fn owner_alone(&self, what: &str, error: Error) -> Error {
        owner_alone(&self.path.join(POOL_FILE), &self.path, what, error)
    }

    /// Refuses where the session is closed.
    pub fn check_open(&self) -> Result<()> {
        if !self.is_open() {
            fail!(Argument, "the pool {} is closed: open it again", self.path.display());
        }
        Ok(())
    }

    pub(crate) fn writable(&self) -> Result<()> {
        self.file_now()?;
        self.check_open()?;
        if self.mode() == Mode::Read {
            fail!(
                ReadOnly,
                "the pool {} is open read-only: open it with mode \"r+\" to write",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Says that the pool at `path` is the one that its devices belong to: after it was moved to
    /// another filesystem, or restored. Refused while the folder to which they belong has them
    /// still. No other copy of the pool can be opened after that.
    pub fn adopt(path: &Path) -> Result<()> {
        belongs::adopt(path)
    }

    /// Removes the pool with all that is in it, unless somebody has it open. A pool of an earlier
    /// format can be removed, too.
    pub fn destroy(path: &Path) -> Result<()> {
        Self::destroy_with(path, false)
    }

    /// The same; with `force` also where a device is missing, or may be another's: the data on it
    /// stays there. A device that is another pool's, of which this one is a copy, always stays.
    pub fn destroy_with(path: &Path, force: bool) -> Result<()> {
        let _operation = operation!(INFO, "pool.destroy", pool = %path.display());
        destroy::destroy_with(path, force)
    }

    /// What this user sees of a namespace.
    pub fn namespace(&self, name: &str) -> Result<Namespace> {
        if self.mode() == Mode::ReadWrite && self.is_open() {
            namespace::mode::resume(&self.path, &self.file, name);
        }
        Namespace::open(self, name)
    }
}

/// Refuses a pool of which a device is missing, or has nothing of it.
pub fn check_mounted(path: &Path, file: &PoolFile) -> Result<()> {
    for device in &file.devices[1..] {
        if !device.is_dir() && !devdax::is_node(device) {
            fail!(
                NotFound,
                "device {} of {} is missing: mount it, and open again",
                device.display(),
                path.display()
            );
        }
        refuse_bare(path, file, device)?;
    }
    Ok(())
}

/// The durability of a pool whose weakest device lies on `mount`.
fn choose(asked: Option<Durability>, mount: &Mount) -> Result<Durability> {
    match (asked, mount.durable) {
        (Some(Durability::System), false) => fail!(
            Argument,
            "durability \"system\" cannot be had: a device lies on {}, which does not survive \
             power loss; use a disk, or durability=\"process\"",
            mount.name
        ),
        (Some(asked), _) => Ok(asked),
        (None, true) => Ok(Durability::System),
        (None, false) => Ok(Durability::Process),
    }
}

fn admit_device(path: &Path, known: &[PathBuf], force: bool) -> Result<(PathBuf, Mount)> {
    if !path.is_dir() && !devdax::is_node(path) {
        fail!(
            NotFound,
            "device {} is neither a folder nor a devdax node: make or mount it first",
            path.display()
        );
    }
    let path = fs::canonicalize(path)
        .map_err(|e| Error::os(format!("looking at device {}", path.display()), &e))?;
    if known.contains(&path) {
        fail!(Exists, "device {} is part of the pool already", path.display());
    }
    refuse_in_pool(&path)?;
    let mount = mount_of(&path, force)?;
    Ok((path, mount))
}

/// What a device is on, if it may be.
fn mount_of(device: &Path, force: bool) -> Result<Mount> {
    if !devdax::is_node(device) {
        return filesystem::admit(device, force);
    }
    let durable = devdax::look(device)?.durable;
    Ok(Mount { kind: FsKind::Other, name: "devdax".to_owned(), durable })
}

fn place_of(path: &Path) -> Result<(u64, u64)> {
    let meta = fs::metadata(path);
    let meta = meta.map_err(|e| Error::os(format!("looking at {}", path.display()), &e))?;
    Ok((meta.dev(), meta.ino()))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        fail!(InvalidName, "the pool's path is empty");
    }
    // An existing pool is one pool, by whatever links it is reached.
    if let Ok(real) = fs::canonicalize(path) {
        return Ok(real);
    }
    let path = std::path::absolute(path)
        .map_err(|e| Error::os(format!("looking at {}", path.display()), &e))?;
    // A new one has a place without links, too.
    match (path.parent().map(fs::canonicalize), path.file_name()) {
        (Some(Ok(above)), Some(name)) => Ok(above.join(name)),
        _ => Ok(path),
    }
}
