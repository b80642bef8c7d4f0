//! What is known of a node, and changed of it.

use super::Asked;
use crate::caller::{READ, SEARCH, WRITE};
use crate::changes::{Changes, Time};
use crate::errno::{Result, refuse, refuse_at};
use crate::fs::{Ino, Statfs};
use crate::handle::Handle;
use crate::stat::{NodeKind, Stat};
use crate::walk::{Answer, At};

/// The longest name of an attribute, as Linux has it.
const ATTRIBUTE_BYTES_MAX: usize = 255;

/// A node that is gone since it was found: its name may have another by now.
const GONE: &[i32] = &[libc::ESTALE];

impl Asked<'_> {
    /// `stat`, and, unless links are followed, `lstat`.
    pub fn stat(&self, at: At<'_>, follow: bool) -> Answer<Stat> {
        self.find(&at, follow)
    }

    /// `readlink`.
    pub fn readlink(&self, at: At<'_>) -> Answer<Vec<u8>> {
        self.on(at, false, |stat| {
            if stat.kind != NodeKind::Symlink {
                refuse!(EINVAL, "what has this name is no symbolic link");
            }
            self.fs.readlink(stat.ino)
        })
    }

    /// `access`: whether the caller has all of these rights. Who asks by the real user is another
    /// caller.
    pub fn access(&self, at: At<'_>, rights: i32, follow: bool) -> Answer<()> {
        let Some(rights) = u16::try_from(rights).ok().filter(|rights| rights & !0o7 == 0) else {
            refuse_at!(EINVAL, "{rights:#o} are no rights: R_OK, W_OK and X_OK are")
        };
        let stat = self.find(&at, follow)?;
        if rights == 0 { Ok(()) } else { Ok(self.check(rights, &stat)?) }
    }

    /// `statfs`.
    pub fn statfs(&self, at: At<'_>) -> Answer<Statfs> {
        self.find(&at, true)?;
        Ok(self.fs.statfs()?)
    }

    /// `chdir`: the folder that a program may be in.
    pub fn chdir(&self, at: At<'_>) -> Answer<Ino> {
        let stat = self.find(&at, true)?;
        if stat.kind != NodeKind::Folder {
            refuse_at!(ENOTDIR, "what has this name is no folder to be in");
        }
        self.check(SEARCH, &stat)?;
        Ok(stat.ino)
    }

    /// `chmod`.
    pub fn chmod(&self, at: At<'_>, mode: u32, follow: bool) -> Answer<()> {
        self.on(at, follow, |stat| {
            self.check_writable()?;
            if stat.kind == NodeKind::Symlink {
                refuse!(EOPNOTSUPP, "a symbolic link keeps its mode");
            }
            self.fs.protect(stat, None, &|of| self.caller.with_mode(of, mode))
        })
    }

    /// `chown`; `None` leaves a number as it is.
    pub fn chown(
        &self,
        at: At<'_>,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> Answer<()> {
        self.on(at, follow, |stat| {
            self.fs.protect(stat, uid, &|of| self.caller.with_owner(of, uid, gid))
        })
    }

    /// `utimensat`; `None` leaves a time as it is.
    pub fn utimes(
        &self,
        at: At<'_>,
        accessed: Option<Time>,
        written: Option<Time>,
        follow: bool,
    ) -> Answer<()> {
        if accessed.is_none() && written.is_none() {
            // The path is not even looked at.
            return Ok(());
        }
        self.on(at, follow, |stat| {
            self.check_writable()?;
            let both_now = (accessed, written) == (Some(Time::Now), Some(Time::Now));
            self.caller.check_times(&stat.into(), both_now)?;
            self.fs.change(stat.ino, Changes { accessed, written, ..Changes::default() }).map(drop)
        })
    }

    /// `truncate`.
    pub fn truncate(&self, at: At<'_>, size: u64) -> Answer<()> {
        self.on(at, true, |stat| {
            match stat.kind {
                NodeKind::File => {}
                NodeKind::Folder => refuse!(EISDIR, "a folder has no size to be set"),
                _ => refuse!(EINVAL, "a special file has no size to be set"),
            }
            self.check(WRITE, stat)?;
            self.cut(stat, size)
        })
    }

    /// `ftruncate`, of a file that is open for writing.
    pub fn set_size(&self, handle: &Handle, size: u64) -> Result<()> {
        if handle.flags().write {
            self.before_write(handle)?;
        }
        handle.set_size(size)
    }

    /// Takes off an open file what the caller may not leave on it when it writes: set-user-id, and
    /// set-group-id. Before each write of whoever is not root, and `fallocate`.
    pub fn before_write(&self, handle: &Handle) -> Result<()> {
        if self.caller.is_root() { Ok(()) } else { self.strip(&handle.stat()?) }
    }

    /// Gives a file another size.
    pub(super) fn cut(&self, stat: &Stat, size: u64) -> Result<()> {
        self.strip(stat)?;
        self.fs.change(stat.ino, Changes { size: Some(size), ..Changes::default() }).map(drop)
    }

    fn strip(&self, stat: &Stat) -> Result<()> {
        if self.caller.having_written(&stat.into()) == stat.into() {
            return Ok(());
        }
        self.fs.protect(stat, None, &|of| Ok(self.caller.having_written(&of)))
    }

    /// `getxattr`.
    pub fn get_xattr(&self, at: At<'_>, name: &[u8], follow: bool) -> Answer<Vec<u8>> {
        check_name(name)?;
        self.on(at, follow, |stat| {
            self.caller.check_attribute(name, &stat.into(), false)?;
            self.fs.get_xattr(stat.ino, name)
        })
    }

    /// `listxattr`.
    pub fn list_xattr(&self, at: At<'_>, follow: bool) -> Answer<Vec<String>> {
        self.on(at, follow, |stat| self.fs.list_xattr(stat.ino))
    }

    /// `setxattr`, by its flags.
    pub fn set_xattr(
        &self,
        at: At<'_>,
        name: &[u8],
        value: &[u8],
        flags: i32,
        follow: bool,
    ) -> Answer<()> {
        if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
            refuse_at!(EINVAL, "setxattr has no flags {flags:#x}");
        }
        check_name(name)?;
        self.on(at, follow, |stat| {
            self.check_writable()?;
            self.caller.check_attribute(name, &stat.into(), true)?;
            self.fs.set_xattr(stat.ino, name, value, flags)
        })
    }

    /// `removexattr`.
    pub fn remove_xattr(&self, at: At<'_>, name: &[u8], follow: bool) -> Answer<()> {
        check_name(name)?;
        self.on(at, follow, |stat| {
            self.check_writable()?;
            self.caller.check_attribute(name, &stat.into(), true)?;
            self.fs.remove_xattr(stat.ino, name)
        })
    }

    /// Does something to the node of a path; to the one that has the name by then, if that is gone.
    fn on<T>(&self, at: At<'_>, follow: bool, act: impl Fn(&Stat) -> Result<T>) -> Answer<T> {
        let gone = if at.number().is_some() { &[] } else { GONE };
        Self::again(gone, || self.find(&at, follow), |stat| Ok(act(&stat)?))
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > ATTRIBUTE_BYTES_MAX {
        refuse!(
            ERANGE,
            "the name of an attribute has {} bytes: 1 to {ATTRIBUTE_BYTES_MAX} it may have",
            name.len()
        );
    }
    Ok(())
}

const _: () = assert!(READ as i32 == libc::R_OK && WRITE as i32 == libc::W_OK);
const _: () = assert!(SEARCH as i32 == libc::X_OK);
