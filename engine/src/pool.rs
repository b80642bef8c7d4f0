//! Pools: creating, opening, destroying, devices.
//!
//! On media: `pool.toml` (format, uuid, durability, devices, features) and `ns/`. A pool is made
//! with its description under the name `creating`; renaming that to `pool.toml` is the last step.
//! So a folder with `creating` is a half-created pool, which `destroy` clears away; and `destroy`
//! itself begins by renaming `pool.toml` to `destroying`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::fail;
use crate::media::filesystem::{self, Mount};
use crate::namespace::{self, NamespaceInfo, NewNamespace, make_folder, read_toml, write_toml};
use crate::process;
use crate::realm::{Mode, Realm};
use crate::session::Session;

/// The format version that this engine reads and writes. Until 1.0 there is no migration.
pub const FORMAT: u32 = 1;

const POOL_FILE: &str = "pool.toml";
const CREATING: &str = "creating.toml";
const DESTROYING: &str = "destroying.toml";

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
}

/// A device, as listings show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number.
    pub index: u32,
    /// Its folder.
    pub path: PathBuf,
    /// Its filesystem.
    pub filesystem: String,
    /// Whether that survives power loss.
    pub durable: bool,
    /// The free bytes of its mount.
    pub free: u64,
}

/// `pool.toml`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PoolFile {
    pub format: u32,
    pub uuid: String,
    pub durability: String,
    pub size: u64,
    pub devices: Vec<PathBuf>,
    /// Features that an engine must know to open the pool.
    #[serde(default)]
    pub incompatible: Vec<String>,
    /// Features that an engine must know to write to it.
    #[serde(default)]
    pub read_only: Vec<String>,
}

impl PoolFile {
    /// Reads the description of the pool at `path`; says what is there instead if it is none.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = path.join(POOL_FILE);
        match read_toml::<Versioned>(&file) {
            Ok(found) if found.format > FORMAT => fail!(
                Format,
                "{} has format {}, this engine reads up to {FORMAT}: upgrade engram",
                path.display(),
                found.format
            ),
            Ok(_) => {}
            Err(error) if error.kind() == Kind::NotFound => return Err(what_is_there(path)),
            Err(error) if error.kind() == Kind::Os && !path.is_dir() => {
                return Err(what_is_there(path));
            }
            Err(error) => return Err(error),
        }
        let pool: PoolFile = read_toml(&file)?;
        let sound = pool.uuid.len() == 32 && pool.uuid.bytes().all(|b| b.is_ascii_hexdigit());
        if !sound || !matches!(pool.durability.as_str(), "process" | "system") {
            fail!(Format, "{} is damaged: uuid or durability cannot be", file.display());
        }
        if !pool.incompatible.is_empty() {
            fail!(
                Format,
                "{} uses the features {:?}, which this engine does not know: upgrade engram",
                path.display(),
                pool.incompatible
            );
        }
        Ok(pool)
    }
}

#[derive(Deserialize)]
struct Versioned {
    format: u32,
}

fn what_is_there(path: &Path) -> Error {
    let at = path.display();
    if path.join(CREATING).exists() || path.join(DESTROYING).exists() {
        return Error::new(
            Kind::Format,
            format!("{at} is a half-created or half-destroyed pool: run `engram destroy {at}`"),
        );
    }
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Error::new(
            Kind::Format,
            format!("{at} is a folder, but not a pool (it has no {POOL_FILE}): check the path"),
        ),
        Ok(_) => Error::new(
            Kind::Format,
            format!("{at} is a file, not a pool: to bring a file in, use `engram import`"),
        ),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Error::new(
            Kind::NotFound,
            format!(
                "there is no pool at {at}: make one with engram.create or `engram create {at}`"
            ),
        ),
        Err(e) => Error::os(format!("looking at {at}"), &e),
    }
}

/// An open pool. Cheap to clone; the clones share one session.
#[derive(Clone)]
pub struct Pool {
    path: PathBuf,
    file: PoolFile,
    mount: Mount,
    session: Arc<Session>,
}

impl Pool {
    /// Makes a pool at `path`, which must not exist or be an empty folder, and opens it.
    ///
    /// On error nothing is left behind.
    pub fn create(path: &Path, options: &CreateOptions) -> Result<Pool> {
        let path = &absolute(path)?;
        let existed = prepare_folder(path)?;
        let made = Self::build(path, options);
        if made.is_err() {
            clear(path, !existed);
        }
        made
    }

    fn build(path: &Path, options: &CreateOptions) -> Result<Pool> {
        if options.size == 0 {
            fail!(Argument, "size 0 leaves no room for data: give for example \"4 GiB\"");
        }
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
            uuid: new_uuid()?,
            durability: durability.as_str().to_owned(),
            size: options.size,
            devices,
            incompatible: Vec::new(),
            read_only: Vec::new(),
        };
        write_toml(&path.join(CREATING), &file, 0o644)?;
        make_folder(&namespace::folder(path), 0o755)?;
        let default =
            NewNamespace { name: namespace::DEFAULT, mode: 0o700, group: None, size: options.size };
        namespace::create(path, &file, &default)?;
        fs::rename(path.join(CREATING), path.join(POOL_FILE))
            .map_err(|e| Error::os(format!("finishing {}", path.display()), &e))?;
        let pool = Self::open(path, Mode::ReadWrite, true)?;
        if options.prefault {
            pool.realm(namespace::DEFAULT)?.prefault()?;
        }
        Ok(pool)
    }

    /// Opens the pool at `path`, and its default namespace.
    pub fn open(path: &Path, mode: Mode, force: bool) -> Result<Pool> {
        let path = &absolute(path)?;
        let file = PoolFile::read(path)?;
        let mut mount = filesystem::admit(path, force)?;
        for device in &file.devices[1..] {
            if !device.is_dir() {
                fail!(
                    NotFound,
                    "device {} of {} is missing: mount it, and open again",
                    device.display(),
                    path.display()
                );
            }
            let next = filesystem::admit(device, true)?;
            if !next.durable {
                mount = next;
            }
        }
        let mode = if file.read_only.is_empty() { mode } else { Mode::Read };
        let pool = Pool { path: path.clone(), file, mount, session: Session::new(mode) };
        match pool.realm(namespace::DEFAULT) {
            Ok(_) => {}
            // A pool whose default namespace is another's is still a pool.
            Err(error) if error.kind() == Kind::Access && pool.has_others() => {}
            Err(error) => return Err(error),
        }
        // Our lease stands: whoever destroys the pool sees it, unless that began before.
        if !path.join(POOL_FILE).exists() {
            return Err(what_is_there(path));
        }
        Ok(pool)
    }

    fn has_others(&self) -> bool {
        namespace::names(&self.path).is_ok_and(|names| names.len() > 1)
    }

    /// Removes the pool with all that is in it, unless somebody has it open.
    pub fn destroy(path: &Path) -> Result<()> {
        let path = &absolute(path)?;
        let (file, marker) = match PoolFile::read(path) {
            Ok(file) => (file, POOL_FILE),
            Err(error) => {
                let left = [DESTROYING, CREATING].into_iter().find(|m| path.join(m).exists());
                let Some(marker) = left else { return Err(error) };
                (read_toml(&path.join(marker))?, marker)
            }
        };
        let away = path.join(DESTROYING);
        fs::rename(path.join(marker), &away)
            .map_err(|e| Error::os(format!("destroying {}", path.display()), &e))?;
        let mut users = Vec::new();
        for name in namespace::names(path).unwrap_or_default() {
            users.extend(namespace::users(&namespace::realm_folder(path, &name))?);
        }
        if !users.is_empty() {
            fs::rename(&away, path.join(marker))
                .map_err(|e| Error::os(format!("putting back {}", path.display()), &e))?;
            fail!(Busy, "{} is open in process {users:?}: close it there first", path.display());
        }
        for name in namespace::names(path).unwrap_or_default() {
            process::detach(&namespace::realm_folder(path, &name));
        }
        for device in &file.devices {
            let spans = device.join(&file.uuid);
            if spans.exists() {
                fs::remove_dir_all(&spans)
                    .map_err(|e| Error::os(format!("removing {}", spans.display()), &e))?;
            }
        }
        clear(path, true);
        Ok(())
    }

    /// Ends this session's handles. Views stay valid.
    pub fn close(&self) {
        self.session.close();
    }

    /// Whether the session is open.
    pub fn is_open(&self) -> bool {
        self.session.is_open()
    }

    /// The pool's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The pool's identity: 32 hexadecimal digits.
    pub fn uuid(&self) -> &str {
        &self.file.uuid
    }

    /// What the handles may do.
    pub fn mode(&self) -> Mode {
        self.session.mode()
    }

    /// What the pool survives.
    pub fn durability(&self) -> Durability {
        if self.file.durability == "system" { Durability::System } else { Durability::Process }
    }

    /// The devices, as they are now.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let file = PoolFile::read(&self.path)?;
        file.devices
            .into_iter()
            .enumerate()
            .map(|(index, path)| {
                let mount = filesystem::admit(&path, true)?;
                Ok(DeviceInfo {
                    index: index as u32,
                    filesystem: mount.name,
                    durable: mount.durable,
                    free: filesystem::free_bytes(&path)?,
                    path,
                })
            })
            .collect()
    }

    /// Adds a device; every process finds it at its next growth.
    pub fn add_device(&self, path: &Path, force: bool) -> Result<()> {
        self.writable()?;
        let lock = fs::File::open(&self.path)
            .map_err(|e| Error::os(format!("opening {}", self.path.display()), &e))?;
        lock.lock().map_err(|e| Error::os(format!("locking {}", self.path.display()), &e))?;
        let mut file = PoolFile::read(&self.path)?;
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
        file.devices.push(device);
        write_toml(&self.path.join(POOL_FILE), &file, 0o644)
    }

    /// The shared realm of a namespace.
    pub fn realm(&self, name: &str) -> Result<Realm> {
        if !self.is_open() {
            fail!(Argument, "the pool {} is closed: open it again", self.path.display());
        }
        let setup = namespace::setup(&self.path, &self.file, self.mount.clone(), name)?;
        let core = self.session.core(setup)?;
        Ok(Realm::new(core, Arc::clone(&self.session)))
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
        if size == 0 {
            fail!(Argument, "size 0 leaves no room for data in namespace {name:?}");
        }
        namespace::create(&self.path, &self.file, &NewNamespace { name, mode, group, size })?;
        self.realm(name)
    }

    /// Every namespace, in byte order of the names.
    pub fn namespaces(&self) -> Result<Vec<NamespaceInfo>> {
        let names = namespace::names(&self.path)?;
        names.iter().map(|name| namespace::info(&self.path, name)).collect()
    }

    /// Removes a namespace with all that is in it, unless somebody has it open.
    pub fn remove_namespace(&self, name: &str) -> Result<()> {
        self.writable()?;
        let file = PoolFile::read(&self.path)?;
        namespace::check_removable(&self.path, name)?;
        self.session.forget(&namespace::realm_folder(&self.path, name))?;
        namespace::remove(&self.path, &file, name)
    }

    fn writable(&self) -> Result<()> {
        if !self.is_open() {
            fail!(Argument, "the pool {} is closed: open it again", self.path.display());
        }
        if self.mode() == Mode::Read {
            fail!(
                ReadOnly,
                "the pool {} is open read-only: open it with mode \"r+\" to write",
                self.path.display()
            );
        }
        Ok(())
    }
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
    if !path.is_dir() {
        fail!(NotFound, "device {} is no folder: make or mount it first", path.display());
    }
    let path = fs::canonicalize(path)
        .map_err(|e| Error::os(format!("looking at device {}", path.display()), &e))?;
    if known.contains(&path) {
        fail!(Exists, "device {} is part of the pool already", path.display());
    }
    let mount = filesystem::admit(&path, force)?;
    Ok((path, mount))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        fail!(InvalidName, "the pool's path is empty");
    }
    // An existing pool is one pool, by whatever links it is reached.
    if let Ok(real) = fs::canonicalize(path) {
        return Ok(real);
    }
    std::path::absolute(path).map_err(|e| Error::os(format!("looking at {}", path.display()), &e))
}

/// Makes the pool's folder; returns whether it was there (and empty) before.
fn prepare_folder(path: &Path) -> Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(true),
            Some(_) if path.join(POOL_FILE).exists() => {
                fail!(Exists, "a pool exists at {}: open it, or destroy it first", path.display())
            }
            Some(_) if path.join(CREATING).exists() || path.join(DESTROYING).exists() => {
                Err(what_is_there(path))
            }
            Some(_) => fail!(
                Exists,
                "{} is a folder with other files in it: choose a path that does not exist",
                path.display()
            ),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let made = make_folder(path, 0o755);
            made.map_err(|error| match error.kind() {
                Kind::NotFound => Error::new(
                    Kind::NotFound,
                    format!("the folder above {} does not exist: make it first", path.display()),
                ),
                _ => error,
            })?;
            Ok(false)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            fail!(Exists, "{} is a file: choose a path that does not exist", path.display())
        }
        Err(e) => Err(Error::os(format!("looking at {}", path.display()), &e)),
    }
}

/// Removes what is ours in the pool's folder, and the folder itself if nothing else is in it.
fn clear(path: &Path, folder_too: bool) {
    if let Ok(file) = read_toml::<PoolFile>(&path.join(CREATING)) {
        for device in &file.devices {
            let _ = fs::remove_dir_all(device.join(&file.uuid));
        }
    }
    if let Ok(file) = read_toml::<PoolFile>(&path.join(POOL_FILE)) {
        for device in &file.devices {
            let _ = fs::remove_dir_all(device.join(&file.uuid));
        }
    }
    let _ = fs::remove_dir_all(namespace::folder(path));
    for name in [POOL_FILE, CREATING, DESTROYING] {
        let _ = fs::remove_file(path.join(name));
    }
    if folder_too {
        let _ = fs::remove_dir(path);
    }
}

/// Makes the folder of a realm's spans on a device, with the realm's own mode and group.
pub(crate) fn make_span_folder(realm: &Path, folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let outer = folder.parent().expect("<device>/<uuid>/<namespace>/shared");
    for above in [outer.parent().expect("as above"), outer] {
        match make_folder(above, 0o755) {
            Err(error) if error.kind() == Kind::Exists => {}
            made => made?,
        }
    }
    let meta = fs::metadata(realm)
        .map_err(|e| Error::os(format!("looking at {}", realm.display()), &e))?;
    match make_folder(folder, 0o700) {
        Err(error) if error.kind() == Kind::Exists => return Ok(()),
        made => made?,
    }
    chown(folder, None, Some(meta.gid()))
        .and_then(|()| {
            fs::set_permissions(folder, fs::Permissions::from_mode(meta.mode() & 0o7777))
        })
        .map_err(|e| Error::os(format!("setting the mode of {}", folder.display()), &e))
}

fn new_uuid() -> Result<String> {
    use std::fmt::Write;
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(Kind::Os, format!("no random bytes: {e}")))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
