//! What a pool is, in a file: `pool.toml`, and what stands in its place while it comes and goes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::folder::make_folder;
use crate::folder::sync_names;
use crate::paths;
use crate::toml_file::{read_toml, write_toml};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::random;
use engram_media::devdax;
use engram_media::emulated::CLOCK_FILE;
use engram_media::filesystem::Mount;

/// The format version that this engine reads and writes.
pub const FORMAT: u32 = 7;
/// The earliest format that `engram upgrade` brings to this one.
pub const UPGRADED_FROM: u32 = 5;

/// The description of a whole pool.
pub const POOL_FILE: &str = "pool.toml";
/// Its name until the pool is whole.
pub const CREATING: &str = "creating.toml";
/// Its name from when the pool is whole no more.
pub const DESTROYING: &str = "destroying.toml";
/// What stands beside it while the pool that it was upgraded from has not gone (see `upgrade` in
/// `engram-tools`).
pub const UPGRADING: &str = "upgrading.toml";
/// What a pool's folder is called, behind its own name, while it is made of one of an earlier
/// format; then that one is, until it is gone.
const BESIDE: &str = ".upgrading";

/// Descriptions that somebody died writing: a folder with nothing but these is as good as empty.
const UNFINISHED: [&str; 4] =
    ["pool.toml.new", "creating.toml.new", "destroying.toml.new", "upgrading.toml.new"];

/// `pool.toml`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolFile {
    /// The version of everything on media; [`FORMAT`] alone is read.
    pub format: u32,
    /// 32 hexadecimal digits: the name of the pool's folder on each device.
    pub uuid: String,
    /// What a commit survives: `"process"` its process, `"system"` a loss of power too.
    pub durability: String,
    /// The bytes that values may take, over all devices.
    pub size: u64,
    /// Whether values have checksums.
    #[serde(default)]
    pub checksums: bool,
    /// Whether copying takes as long as on persistent memory, for evaluation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emulated: bool,
    /// The folders and devdax nodes that values lie on; the first is the pool's own folder.
    pub devices: Vec<PathBuf>,
    /// Features that an engine must know to open the pool.
    #[serde(default)]
    pub incompatible: Vec<String>,
    /// Features that an engine must know to write to it.
    #[serde(default)]
    pub read_only: Vec<String>,
}

impl PoolFile {
    /// The pool's own folder.
    ///
    /// # Panics
    ///
    /// If it has no device, which `load` refuses.
    pub fn path(&self) -> &Path {
        &self.devices[0]
    }

    /// The devices that are folders.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.devices.iter().filter(|device| !devdax::is_node(device)).cloned().collect()
    }

    /// The devices that are devdax nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &PathBuf> {
        self.devices.iter().filter(|device| devdax::is_node(device))
    }

    /// What the pool's nodes carry.
    pub fn label(&self) -> devdax::Label {
        devdax::Label { pool: self.uuid.clone(), namespace: paths::DEFAULT.to_owned() }
    }

    /// Reads the description of the pool at `path`; says what is there instead if it is none.
    pub fn read(path: &Path) -> Result<Self> {
        let file = path.join(POOL_FILE);
        match read_toml::<Versioned>(&file) {
            Ok(found) if found.format != FORMAT => return Err(other_format(path, found.format)),
            Ok(_) => {}
            Err(error) if error.kind() == Kind::NotFound => {
                let there = what_is_there(path);
                // Its maker may have finished it between the two looks.
                return if file.exists() { Self::read(path) } else { Err(there) };
            }
            Err(error) if error.kind() == Kind::Os && !path.is_dir() => {
                return Err(what_is_there(path));
            }
            Err(error) => return Err(error),
        }
        Self::load(path, POOL_FILE)?.without_unknown_features(path)
    }

    /// Reads the description of a pool, also of one that is being made: for its maker, who has a
    /// realm of it open already.
    pub fn read_in_making(path: &Path) -> Result<Self> {
        match Self::read(path) {
            Err(_) if path.join(CREATING).exists() => Self::load(path, CREATING),
            read => read,
        }
    }

    /// Reads the description of a pool of this format, or of an earlier one that can be upgraded.
    pub fn read_to_upgrade(path: &Path) -> Result<Self> {
        let earlier = UPGRADED_FROM..FORMAT;
        match read_toml::<Versioned>(&path.join(POOL_FILE)) {
            Ok(found) if earlier.contains(&found.format) => {
                Self::load(path, POOL_FILE)?.without_unknown_features(path)
            }
            _ => Self::read(path),
        }
    }

    fn without_unknown_features(self, path: &Path) -> Result<Self> {
        if !self.incompatible.is_empty() {
            fail!(
                Format,
                "{} uses the features {:?}, which this engine does not know: upgrade engram",
                path.display(),
                self.incompatible
            );
        }
        Ok(self)
    }

    /// Reads the description of a pool of this format, or of an earlier one: enough to take it
    /// away, not to open it.
    pub fn read_to_destroy(path: &Path) -> Result<Self> {
        match read_toml::<Versioned>(&path.join(POOL_FILE)) {
            Ok(found) if found.format < FORMAT => Self::load(path, POOL_FILE),
            _ => Self::read(path),
        }
    }

    /// Reads the description under this name. The first device is the pool's own folder, wherever
    /// that has been moved or copied to; the others are called by their real paths.
    pub fn load(path: &Path, name: &str) -> Result<Self> {
        let mut file: PoolFile = read_toml(&path.join(name))?;
        for device in file.devices.iter_mut().skip(1) {
            if let Ok(real) = fs::canonicalize(&*device) {
                *device = real;
            }
        }
        match file.devices.first_mut() {
            Some(own) => path.clone_into(own),
            None => fail!(Format, "{} is damaged: it lists no device", path.join(name).display()),
        }
        // The uuid names a folder that may be removed: it leads nowhere else.
        let sound = file.uuid.len() == 32 && file.uuid.bytes().all(|b| b.is_ascii_hexdigit());
        if !sound || !matches!(file.durability.as_str(), "process" | "system") {
            let file = path.join(name);
            fail!(Format, "{} is damaged: uuid or durability cannot be", file.display());
        }
        Ok(file)
    }

    /// Whether the pool at `path`, whole or not, is the one of this uuid. (It is looked for in the
    /// order in which its description is renamed, and so is found under one of the names.)
    pub(crate) fn is_of(path: &Path, uuid: &str) -> Result<bool> {
        for name in [CREATING, POOL_FILE, DESTROYING] {
            match read_toml::<Named>(&path.join(name)) {
                Ok(found) if found.uuid == uuid => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == Kind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// The description of a copy of the pool at `dest`, on that device alone.
    pub fn like(&self, dest: &Path, mount: &Mount) -> Result<Self> {
        let survives = self.durability == "system" && mount.durable;
        Ok(PoolFile {
            format: FORMAT,
            uuid: random::uuid()?,
            durability: if survives { "system" } else { "process" }.to_owned(),
            devices: vec![dest.to_owned()],
            emulated: false,
            ..self.clone()
        })
    }

    /// Begins the pool: from here on it is a half-created one.
    pub fn begin(&self, path: &Path) -> Result<()> {
        self.write(path, CREATING)?;
        make_folder(&paths::folder(path), 0o755)
    }

    /// Ends what `begin` has begun: the pool is whole.
    pub fn finish(path: &Path) -> Result<()> {
        // What the description leads to is on the medium first.
        sync_names(path)?;
        fs::rename(path.join(CREATING), path.join(POOL_FILE))
            .map_err(|e| Error::os(format!("finishing {}", path.display()), &e))?;
        sync_names(path)
    }

    /// Writes the description under this name.
    pub fn write(&self, path: &Path, name: &str) -> Result<()> {
        let mut file = self.clone();
        if let Some(own) = file.devices.first_mut() {
            *own = PathBuf::from(".");
        }
        write_toml(&path.join(name), &file, 0o644)
    }
}

/// Says of a pool of another format what to do with it.
fn other_format(path: &Path, format: u32) -> Error {
    let at = path.display();
    let what = if format > FORMAT {
        format!(
            "{at} has format {format}, of a newer engram, and this one reads up to {FORMAT}: \
             upgrade engram"
        )
    } else if format >= UPGRADED_FROM {
        format!(
            "{at} has format {format}, of an earlier engram, and this one reads {FORMAT}: run \
             `engram upgrade {at}`, which keeps all that is in it"
        )
    } else {
        format!(
            "{at} has format {format}, and this engram reads {FORMAT}, and upgrades from \
             {UPGRADED_FROM} on: use the engram that made it, or remove it with `engram destroy`"
        )
    };
    Error::new(Kind::Format, what)
}

#[derive(Deserialize)]
struct Versioned {
    format: u32,
}

#[derive(Deserialize)]
struct Named {
    uuid: String,
}

/// The path of a pool without links; where there is nothing, it says so.
pub fn real_path(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|_| what_is_there(path))
}

/// A part that is gone of a pool that is there is damage: no name that the caller has given is
/// wrong. `place` is where it should be, and is there itself, unless it has just been removed with
/// all in it.
pub fn missing(pool: &Path, place: &Path, error: Error) -> Error {
    if error.kind() != Kind::NotFound || !place.is_dir() || !pool.join(POOL_FILE).exists() {
        return error;
    }
    Error::new(Kind::Corrupt, format!("{}: it is gone, {}", error.message(), way_out(pool)))
}

/// What to do with a pool of which something is gone.
fn way_out(pool: &Path) -> String {
    let at = pool.display();
    format!(
        "and the rest of the pool {at} is there: put it back (is its disk mounted?), or take a \
         backup, or save what is sound (`engram export {at} / NEW --format pool --salvage`)"
    )
}

/// Whether a folder has nothing in it but what a process that was making a pool died writing.
pub fn is_unbegun(path: &Path) -> bool {
    let Ok(entries) = fs::read_dir(path) else { return false };
    let unfinished = |name: std::ffi::OsString| UNFINISHED.iter().any(|known| name == **known);
    entries.into_iter().all(|entry| entry.is_ok_and(|entry| unfinished(entry.file_name())))
}

/// Whether what has this name in the folder of the pool with this uuid is a part of the pool.
pub fn is_part(name: &OsStr, uuid: &str) -> bool {
    let markers = [POOL_FILE, CREATING, DESTROYING, UPGRADING, CLOCK_FILE, paths::NAMESPACES, uuid];
    markers.iter().chain(&UNFINISHED).any(|part| name == *part)
}

/// Removes what somebody died writing.
pub fn remove_unfinished(path: &Path) {
    for name in UNFINISHED {
        let _ = fs::remove_file(path.join(name));
    }
}

/// Where a pool of the next format is made of this one; and where this one is after that, until it
/// is gone.
pub fn beside(pool: &Path) -> PathBuf {
    let mut name = pool.file_name().unwrap_or_default().to_owned();
    name.push(BESIDE);
    pool.with_file_name(name)
}

/// Says what is at a path where no pool is.
pub fn what_is_there(path: &Path) -> Error {
    let at = path.display();
    if path.file_name().is_some() && beside(path).join(UPGRADING).exists() && !path.exists() {
        let what = format!("an upgrade of {at} was interrupted: run `engram upgrade {at}` again");
        return Error::new(Kind::Format, what);
    }
    if path.join(DESTROYING).exists() {
        let what = format!("{at} is a half-destroyed pool: run `engram destroy {at}`");
        return Error::new(Kind::Format, what);
    }
    if path.join(CREATING).exists() {
        return Error::new(
            Kind::Format,
            format!(
                "{at} is a half-created pool, which somebody is making, or has died making: make \
                 it anew (`engram create {at}`), or take it away (`engram destroy {at}`)"
            ),
        );
    }
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() && paths::place(path, paths::DEFAULT).is_dir() => Error::new(
            Kind::Corrupt,
            format!("{} is gone, {}", path.join(POOL_FILE).display(), way_out(path)),
        ),
        Ok(meta) if meta.is_dir() && is_unbegun(path) => Error::new(
            Kind::Format,
            format!(
                "{at} is an empty folder, and no pool, or one that somebody died making: make it \
                 anew (`engram create {at}`), or take the folder away (`engram destroy {at}`)"
            ),
        ),
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

#[cfg(test)]
mod tests;
