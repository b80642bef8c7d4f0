//! For tests: a small tmpfs of one's own, where the tests run as root.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tempfile::TempDir;

/// A tmpfs that only the calling thread sees, and that goes with it.
pub(crate) struct Tmpfs {
    dir: TempDir,
}

impl Tmpfs {
    /// Mounts a tmpfs with `options`, such as `size=8m`, in a mount namespace of this thread's own.
    ///
    /// Not allowed to mount: prints that `test` is skipped and why, and is `None`.
    pub(crate) fn mount(test: &str, options: &str) -> Option<Tmpfs> {
        match Self::try_mount(options) {
            Ok(tmpfs) => Some(tmpfs),
            Err(e) => {
                println!("{test} is skipped: mounting a tmpfs ({options}) takes root: {e}");
                None
            }
        }
    }

    fn try_mount(options: &str) -> io::Result<Tmpfs> {
        let dir = tempfile::tempdir()?;
        let check = |rc: i32| if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        let options = CString::new(options)?;
        let point = CString::new(dir.path().as_os_str().as_bytes())?;
        let (none, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        // SAFETY: the calls read strings that end in NUL, and change this thread's own namespace.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            check(libc::mount(none, c"/".as_ptr(), none, private, none.cast()))?;
            let tmpfs = c"tmpfs".as_ptr();
            check(libc::mount(tmpfs, point.as_ptr(), tmpfs, flags, options.as_ptr().cast()))?;
        }
        Ok(Tmpfs { dir })
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        if let Ok(point) = CString::new(self.dir.path().as_os_str().as_bytes()) {
            // SAFETY: the call reads a string that ends in NUL; files still open stay usable.
            unsafe { libc::umount2(point.as_ptr(), libc::MNT_DETACH) };
        }
    }
}
