//! Really different users: numbers that this machine knows nothing of, and processes that become
//! them for good.

use std::os::unix::fs::{PermissionsExt, chown};

/// The user who makes most pools.
pub const ALICE: u32 = 40_001;
pub const BOB: u32 = 40_002;
pub const CAROL: u32 = 40_003;
pub const DAVE: u32 = 40_004;
pub const ERIN: u32 = 40_005;
/// A group that some of them share.
pub const TEAM: u32 = 40_100;

/// Becomes a user, with this group beside its own, and the umask that hides most.
pub fn become_user(uid: u32, group: u32) {
    // SAFETY: this process, which has one thread, gives its rights away.
    unsafe {
        assert_eq!(libc::setgroups(1, &raw const group), 0);
        assert_eq!(libc::setgid(uid), 0);
        assert_eq!(libc::setuid(uid), 0);
        libc::umask(0o077);
        // Becoming another clears it.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

/// A folder that is a user's own.
pub fn folder_of(uid: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    chown(dir.path(), Some(uid), Some(uid)).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}
