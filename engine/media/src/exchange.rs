//! Two names that change places in one step, whoever dies meanwhile.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use engram_base::error::{Error, Kind, Result};
use engram_base::fail;

/// Exchanges what two paths of one filesystem stand for.
pub fn exchange(one: &Path, other: &Path) -> Result<()> {
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let (Ok(from), Ok(to)) = (text(one), text(other)) else {
        fail!(Argument, "the path {} has a NUL byte; choose another", one.display());
    };
    let (here, how) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    // By its number: musl has no such function in 1.2.3.
    // SAFETY: two strings that end with NUL.
    let done =
        unsafe { libc::syscall(libc::SYS_renameat2, here, from.as_ptr(), here, to.as_ptr(), how) };
    if done == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS) => Err(Error::new(
            Kind::Unsupported,
            format!(
                "the filesystem of {} cannot exchange two names in one step (renameat2): use \
                 tmpfs, ext4 or xfs",
                one.display()
            ),
        )),
        _ => Err(Error::os(
            format_args!("exchanging {} and {}", one.display(), other.display()),
            &error,
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::exchange;
    use engram_base::error::Kind;

    #[test]
    fn folders_change_places_or_nothing_happens() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        for path in [&one, &other] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("name"), path.to_str().unwrap()).unwrap();
        }
        exchange(&one, &other).unwrap();
        assert_eq!(fs::read_to_string(one.join("name")).unwrap(), other.to_str().unwrap());
        assert_eq!(fs::read_to_string(other.join("name")).unwrap(), one.to_str().unwrap());
        let refused = exchange(&one, &dir.path().join("none")).unwrap_err();
        assert_eq!(refused.kind(), Kind::NotFound);
        assert!(one.exists());
    }
}
