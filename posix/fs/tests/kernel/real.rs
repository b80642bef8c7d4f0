//! A folder on tmpfs, asked by a thread that is one user after another.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use engram_fs::Caller;

use crate::steps::{Call, Given, Step};

/// Why a comparison with the kernel cannot be had here; `None`: it can.
pub fn why_not() -> Option<&'static str> {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return Some("only root can be several users");
    }
    (!Path::new("/dev/shm").is_dir()).then_some("there is no tmpfs at /dev/shm")
}

/// Gives this thread a umask and a working folder of its own.
pub fn stand_alone() {
    // SAFETY: of this thread alone.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0, "{}", std::io::Error::last_os_error());
}

pub struct Real {
    pub root: PathBuf,
    /// Whether the kernel refuses to link to what is another user's.
    pub keeps_links: bool,
}

fn done(given: i64) -> Result<i64, i32> {
    match given {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().expect("an errno")),
        given => Ok(given),
    }
}

fn text(path: &str) -> CString {
    CString::new(path).expect("a path without NUL")
}

/// Has this thread be a user; files alone are asked for as it.
fn become_user(caller: &Caller) {
    let (count, groups) = (caller.groups.len(), caller.groups.as_ptr());
    // SAFETY: numbers of this thread alone; the list has that many.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setgroups, count, groups), 0);
        libc::syscall(libc::SYS_setfsgid, caller.gid);
        libc::syscall(libc::SYS_setfsuid, caller.uid);
        libc::umask(caller.umask);
    }
}

fn become_root() {
    // SAFETY: numbers of this thread alone.
    unsafe {
        libc::syscall(libc::SYS_setfsuid, 0);
        libc::syscall(libc::SYS_setfsgid, 0);
        assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
        libc::umask(0o022);
    }
}

impl Real {
    pub fn new(root: PathBuf) -> Real {
        let kept = fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
        std::env::set_current_dir(&root).unwrap();
        Real { root, keeps_links: kept.trim() == "1" }
    }

    /// The path as the kernel has it.
    fn at(&self, path: &str) -> CString {
        match path.strip_prefix('@') {
            Some(rest) => text(&format!("{}{rest}", self.root.display())),
            None => text(path),
        }
    }

    /// The folder that a step begins at; `None` if there is none.
    pub fn begin(&self, from: Option<&str>) -> Option<OwnedFd> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_DIRECTORY;
        let from = self.root.join(from.unwrap_or("."));
        let opened = fs::File::options().read(true).custom_flags(flags).open(from);
        opened.ok().map(OwnedFd::from)
    }

    /// Whether the kernel would refuse a link that it would not with its protection off.
    pub fn is_kept_from(&self, step: &Step) -> bool {
        let Call::Link(old, _, follow) = &step.call else { return false };
        let Some(from) = self.begin(step.from) else { return false };
        let old = self.at(old);
        let flags = if *follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        // SAFETY: a number is written to a place of ours.
        let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
        // SAFETY: a path that ends with NUL, and a valid place.
        let found = unsafe { libc::fstatat(from.as_raw_fd(), old.as_ptr(), &raw mut stat, flags) };
        self.keeps_links && step.caller.uid != 0 && found == 0 && stat.st_uid != step.caller.uid
    }

    pub fn run(&self, step: &Step, from: &OwnedFd) -> Given {
        become_user(&step.caller);
        let given = self.call(&step.call, from.as_raw_fd());
        become_root();
        given
    }

    fn call(&self, call: &Call, from: i32) -> Given {
        let plain = |given: i32| done(i64::from(given)).map(|_| String::new());
        let flag = |follow: bool| if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        // SAFETY: paths end with NUL; numbers are written to places of ours.
        unsafe {
            match call {
                Call::Stat(at, follow) => stat_at(from, &self.at(at), flag(*follow)),
                Call::Access(at, rights, follow) => {
                    let (at, flags) = (self.at(at), flag(*follow) | libc::AT_EACCESS);
                    let number = libc::SYS_faccessat2;
                    plain(libc::syscall(number, from, at.as_ptr(), *rights, flags) as i32)
                }
                Call::Mkdir(at, mode) => plain(libc::mkdirat(from, self.at(at).as_ptr(), *mode)),
                Call::Mknod(at, mode, rdev) => {
                    plain(libc::mknodat(from, self.at(at).as_ptr(), *mode, *rdev))
                }
                Call::Symlink(target, at) => {
                    let (target, at) = (self.at(target), self.at(at));
                    plain(libc::symlinkat(target.as_ptr(), from, at.as_ptr()))
                }
                Call::Link(old, new, follow) => {
                    let (old, new) = (self.at(old), self.at(new));
                    let flags = if *follow { libc::AT_SYMLINK_FOLLOW } else { 0 };
                    plain(libc::linkat(from, old.as_ptr(), from, new.as_ptr(), flags))
                }
                Call::Unlink(at) => plain(libc::unlinkat(from, self.at(at).as_ptr(), 0)),
                Call::Rmdir(at) => {
                    plain(libc::unlinkat(from, self.at(at).as_ptr(), libc::AT_REMOVEDIR))
                }
                Call::Rename(old, new, flags) => {
                    let (old, new) = (self.at(old), self.at(new));
                    plain(libc::renameat2(from, old.as_ptr(), from, new.as_ptr(), *flags))
                }
                Call::Chmod(at, mode, follow) => {
                    let at = self.at(at);
                    let number = libc::SYS_fchmodat2;
                    plain(libc::syscall(number, from, at.as_ptr(), *mode, flag(*follow)) as i32)
                }
                Call::Chown(at, uid, gid, follow) => {
                    let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
                    plain(libc::fchownat(from, self.at(at).as_ptr(), uid, gid, flag(*follow)))
                }
                Call::Utimes(at, read, written, follow) => {
                    let time = |nsec: i64| libc::timespec { tv_sec: 9, tv_nsec: nsec };
                    let times = [time(*read), time(*written)];
                    let at = self.at(at);
                    plain(libc::utimensat(from, at.as_ptr(), times.as_ptr(), flag(*follow)))
                }
                _ => self.call_here(call, from),
            }
        }
    }

    /// Calls that have no form with a folder: the thread is in it meanwhile.
    fn call_here(&self, call: &Call, from: i32) -> Given {
        let plain = |given: i64| done(given).map(|_| String::new());
        let key = c"user.k";
        let user = become_here(from);
        // SAFETY: paths end with NUL; buffers are as long as they are said to be.
        let given = unsafe {
            match call {
                Call::Open(at, flags, mode) => self.open(at, *flags, *mode).map(|(_, stat)| stat),
                Call::Write(at) => self.open(at, libc::O_WRONLY, 0).and_then(|(file, _)| {
                    done(libc::write(file.as_raw_fd(), c"bytes".as_ptr().cast(), 5) as i64)?;
                    stat_at(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
                }),
                Call::List(at) => self.list(at),
                Call::Chdir(at) => plain(i64::from(libc::chdir(self.at(at).as_ptr()))),
                Call::Truncate(at, size) => {
                    plain(i64::from(libc::truncate(self.at(at).as_ptr(), *size as i64)))
                }
                Call::Statfs(at) => {
                    let mut all = std::mem::zeroed::<libc::statfs>();
                    plain(i64::from(libc::statfs(self.at(at).as_ptr(), &raw mut all)))
                }
                Call::Readlink(at) => {
                    let (at, mut into) = (self.at(at), [0u8; 4096]);
                    let read = libc::readlink(at.as_ptr(), into.as_mut_ptr().cast(), into.len());
                    let count = done(read as i64)? as usize;
                    Ok(String::from_utf8_lossy(&into[..count]).into_owned())
                }
                Call::SetXattr(at, flags, follow) => {
                    let set = if *follow { libc::setxattr } else { libc::lsetxattr };
                    let value = c"value".as_ptr().cast();
                    plain(i64::from(set(self.at(at).as_ptr(), key.as_ptr(), value, 5, *flags)))
                }
                Call::RemoveXattr(at, follow) => {
                    let remove = if *follow { libc::removexattr } else { libc::lremovexattr };
                    plain(i64::from(remove(self.at(at).as_ptr(), key.as_ptr())))
                }
                Call::GetXattr(at, follow) => {
                    let get = if *follow { libc::getxattr } else { libc::lgetxattr };
                    let (at, mut into) = (self.at(at), [0u8; 64]);
                    let count = get(at.as_ptr(), key.as_ptr(), into.as_mut_ptr().cast(), 64);
                    let count = done(count as i64)? as usize;
                    Ok(String::from_utf8_lossy(&into[..count]).into_owned())
                }
                Call::ListXattr(at, follow) => {
                    let list = if *follow { libc::listxattr } else { libc::llistxattr };
                    let (at, mut into) = (self.at(at), [0u8; 256]);
                    let count = list(at.as_ptr(), into.as_mut_ptr().cast(), into.len());
                    let count = done(count as i64)? as usize;
                    Ok(String::from_utf8_lossy(&into[..count]).into_owned())
                }
                other => unreachable!("{other:?} has a form with a folder"),
            }
        };
        become_here_again(&self.root, user);
        given
    }

    fn open(&self, at: &str, flags: i32, mode: u32) -> Result<(OwnedFd, String), i32> {
        use std::os::fd::FromRawFd;
        let at = self.at(at);
        // SAFETY: a path that ends with NUL; what is opened is owned from then on.
        let file = unsafe {
            let opened = libc::open(at.as_ptr(), flags | libc::O_NONBLOCK, mode);
            OwnedFd::from_raw_fd(done(i64::from(opened))? as i32)
        };
        let stat = stat_at(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)?;
        Ok((file, stat))
    }

    fn list(&self, at: &str) -> Given {
        let path = std::ffi::OsStr::from_bytes(self.at(at).as_bytes()).to_owned();
        let entries = fs::read_dir(path).map_err(|error| error.raw_os_error().unwrap_or(0))?;
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        Ok(names.join(" "))
    }

    /// The whole tree, by path.
    pub fn tree(&self) -> Vec<String> {
        let (mut all, mut open) = (Vec::new(), vec![PathBuf::from(".")]);
        while let Some(below) = open.pop() {
            for entry in fs::read_dir(self.root.join(&below)).unwrap().flatten() {
                let (path, meta) = (below.join(entry.file_name()), entry.metadata().unwrap());
                let (mode, size) = (meta.mode(), if meta.is_dir() { 0 } else { meta.size() });
                let said = said(mode, meta.uid(), meta.gid(), meta.nlink(), size);
                all.push(format!("{}: {said}", path.display()));
                if meta.is_dir() {
                    open.push(path);
                }
            }
        }
        all.sort();
        all
    }
}

/// Goes to a folder; as root, for whoever has it open need not be able to search the way there.
fn become_here(from: i32) -> (u32, u32) {
    // SAFETY: numbers of this thread alone.
    unsafe {
        let uid = libc::syscall(libc::SYS_setfsuid, 0) as u32;
        let gid = libc::syscall(libc::SYS_setfsgid, 0) as u32;
        assert_eq!(libc::fchdir(from), 0, "a step begins at a folder");
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        (uid, gid)
    }
}

fn become_here_again(root: &Path, user: (u32, u32)) {
    // SAFETY: numbers of this thread alone.
    unsafe {
        libc::syscall(libc::SYS_setfsuid, 0);
        std::env::set_current_dir(root).unwrap();
        libc::syscall(libc::SYS_setfsgid, user.1);
        libc::syscall(libc::SYS_setfsuid, user.0);
    }
}

/// What is compared of a node.
pub fn said(mode: u32, uid: u32, gid: u32, nlink: u64, size: u64) -> String {
    format!("mode {mode:o} uid {uid} gid {gid} nlink {nlink} size {size}")
}

fn stat_at(from: i32, at: &std::ffi::CStr, flags: i32) -> Given {
    // SAFETY: all zeros are a valid one.
    let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
    // SAFETY: a path that ends with NUL, and a valid place.
    done(i64::from(unsafe { libc::fstatat(from, at.as_ptr(), &raw mut stat, flags) }))?;
    let is_folder = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let size = if is_folder { 0 } else { stat.st_size as u64 };
    Ok(said(stat.st_mode, stat.st_uid, stat.st_gid, stat.st_nlink, size))
}
