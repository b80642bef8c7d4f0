//! Who takes part where files are measured: `Fs` in this process, and system calls in a folder.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use engram::{Mode, Pool};
use engram_fs::{Clash, Errno, Fs, Handle, Ino, Maker, OpenFlags, Options, ROOT};

use crate::Result;

const MAKER: Maker = Maker { uid: 0, gid: 0 };
const BOTH: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false };

/// A folder of a file system: names made, looked at and taken away, and files opened.
pub trait Contestant {
    fn name(&self) -> String;
    fn create(&self, name: &str) -> Result<()>;
    fn stat(&self, name: &str) -> Result<()>;
    fn open(&self, name: &str) -> Result<()>;
    fn unlink(&self, name: &str) -> Result<()>;
    /// A new file; what is written goes behind its end, if it is to `append`.
    fn file(&self, name: &str, append: bool) -> Result<Box<dyn Bytes>>;
    fn mkdir(&self, name: &str) -> Result<()>;
    fn rmdir(&self, name: &str) -> Result<()>;
    fn rename(&self, old: &str, new: &str) -> Result<()>;
    /// A folder in this one.
    fn folder(&self, name: &str) -> Result<Box<dyn Contestant>>;
    /// Looks at everything that is listed; how much that is.
    fn list(&self) -> Result<u64>;
}

/// Bytes of an open file, or of memory.
pub trait Bytes {
    fn write(&mut self, at: u64, data: &[u8]) -> Result<()>;
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()>;
}

/// A folder of a pool, by `Fs`.
#[derive(Clone)]
pub struct InPool {
    pub fs: Fs,
    pub folder: Ino,
}

impl InPool {
    /// The root of a pool.
    pub fn open(pool: &Path) -> Result<InPool> {
        let pool = Pool::open(pool, Mode::ReadWrite, false)?;
        let fs = Fs::new(pool.namespace("default")?, Options::default()).map_err(text)?;
        Ok(InPool { fs, folder: ROOT })
    }

    /// A new file.
    pub fn create_file(&self, name: &str, append: bool) -> Result<Handle> {
        let flags = OpenFlags { append, ..BOTH };
        let made = self.fs.create(self.folder, name.as_bytes(), 0o644, flags, MAKER);
        Ok(made.map_err(text)?.1)
    }
}

pub fn text(error: Errno) -> String {
    error.message
}

impl Contestant for InPool {
    fn name(&self) -> String {
        "engram".to_owned()
    }

    fn create(&self, name: &str) -> Result<()> {
        self.create_file(name, false).map(drop)
    }

    fn stat(&self, name: &str) -> Result<()> {
        black_box(self.fs.lookup(self.folder, name.as_bytes()).map_err(text)?);
        Ok(())
    }

    fn open(&self, name: &str) -> Result<()> {
        let stat = self.fs.lookup(self.folder, name.as_bytes()).map_err(text)?;
        Ok(self.fs.open(stat.ino, BOTH).map(drop).map_err(text)?)
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(self.fs.unlink(self.folder, name.as_bytes()).map_err(text)?)
    }

    fn file(&self, name: &str, append: bool) -> Result<Box<dyn Bytes>> {
        Ok(Box::new(self.create_file(name, append)?))
    }

    fn mkdir(&self, name: &str) -> Result<()> {
        Ok(self.fs.mkdir(self.folder, name.as_bytes(), 0o755, MAKER).map(drop).map_err(text)?)
    }

    fn rmdir(&self, name: &str) -> Result<()> {
        Ok(self.fs.rmdir(self.folder, name.as_bytes()).map_err(text)?)
    }

    fn rename(&self, old: &str, new: &str) -> Result<()> {
        let (old, new) = (old.as_bytes(), new.as_bytes());
        let renamed = self.fs.rename(self.folder, old, self.folder, new, Clash::Refuse);
        Ok(renamed.map_err(text)?)
    }

    fn folder(&self, name: &str) -> Result<Box<dyn Contestant>> {
        let stat = self.fs.lookup(self.folder, name.as_bytes()).map_err(text)?;
        Ok(Box::new(InPool { folder: stat.ino, ..self.clone() }))
    }

    fn list(&self) -> Result<u64> {
        let (mut count, mut refused) = (0, None);
        let folder = self.fs.open_folder(self.folder).map_err(text)?;
        let each = |entry: &engram_fs::Entry, _| {
            count += 1;
            match self.fs.stat_entry(entry) {
                Ok(stat) => drop(black_box(stat)),
                Err(error) => refused = Some(error),
            }
            refused.is_none()
        };
        folder.list(0, each).map_err(text)?;
        match refused {
            Some(error) => Err(text(error).into()),
            None => Ok(count - 2), // of itself and of what is above
        }
    }
}

impl Bytes for Handle {
    fn write(&mut self, at: u64, data: &[u8]) -> Result<()> {
        Ok(Handle::write(self, at, data).map(drop).map_err(text)?)
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        Ok(Handle::read(self, at, into).map(drop).map_err(text)?)
    }
}

/// System calls in a folder.
#[derive(Clone)]
pub struct Calls {
    name: String,
    folder: PathBuf,
}

impl Calls {
    /// A folder that needs no name.
    pub fn in_folder(folder: &str) -> Box<dyn Contestant> {
        Box::new(Calls { name: "calls".to_owned(), folder: PathBuf::from(folder) })
    }

    /// A folder that is given as `NAME=PATH`.
    pub fn named(given: &str) -> Result<Calls> {
        let (name, folder) = given.split_once('=').ok_or("a folder is given as NAME=PATH")?;
        Ok(Calls { name: name.to_owned(), folder: PathBuf::from(folder) })
    }
}

impl Contestant for Calls {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn create(&self, name: &str) -> Result<()> {
        Ok(File::create_new(self.folder.join(name)).map(drop)?)
    }

    fn stat(&self, name: &str) -> Result<()> {
        black_box(fs::metadata(self.folder.join(name))?.len());
        Ok(())
    }

    fn open(&self, name: &str) -> Result<()> {
        let path = self.folder.join(name);
        Ok(OpenOptions::new().read(true).write(true).open(path).map(drop)?)
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.folder.join(name))?)
    }

    fn file(&self, name: &str, append: bool) -> Result<Box<dyn Bytes>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).append(append);
        let file = options.open(self.folder.join(name))?;
        Ok(if append { Box::new(Appended(file)) } else { Box::new(file) })
    }

    fn mkdir(&self, name: &str) -> Result<()> {
        Ok(fs::create_dir(self.folder.join(name))?)
    }

    fn rmdir(&self, name: &str) -> Result<()> {
        Ok(fs::remove_dir(self.folder.join(name))?)
    }

    fn rename(&self, old: &str, new: &str) -> Result<()> {
        Ok(fs::rename(self.folder.join(old), self.folder.join(new))?)
    }

    fn folder(&self, name: &str) -> Result<Box<dyn Contestant>> {
        Ok(Box::new(Calls { folder: self.folder.join(name), ..self.clone() }))
    }

    fn list(&self) -> Result<u64> {
        let mut count = 0;
        for entry in fs::read_dir(&self.folder)? {
            black_box(entry?.metadata()?.len());
            count += 1;
        }
        Ok(count)
    }
}

impl Bytes for File {
    fn write(&mut self, at: u64, data: &[u8]) -> Result<()> {
        Ok(self.write_all_at(data, at)?)
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        Ok(self.read_exact_at(into, at)?)
    }
}

/// A file that grows at its end.
struct Appended(File);

impl Bytes for Appended {
    fn write(&mut self, _: u64, data: &[u8]) -> Result<()> {
        Ok(self.0.write_all(data)?)
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        Ok(self.0.read_exact_at(into, at)?)
    }
}
