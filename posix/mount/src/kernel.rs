//! What is asked of the kernel: how a mount is served, and what its requests may be.
//!
//! A file system that is compared with this one asks for the same, and so takes it from here.

use std::os::unix::fs::MetadataExt;

use fuser::{Config, InitFlags, KernelConfig, MountOption, SessionACL};

use crate::cached::Cache;

/// The most that is written, or read, at once.
const TRANSFER_MAX: u32 = 1 << 20;
/// So many requests may wait that nobody waits for, such as those that read ahead.
const BACKGROUND_MAX: u16 = 64;

/// How many threads serve a mount, if nobody says.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 8)
}

/// How a mount is made: under what name it is listed, and who serves it.
pub fn config(source: String, read_only: bool, threads: usize) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source),
        MountOption::Subtype("engram".to_owned()),
        MountOption::DefaultPermissions,
        if read_only { MountOption::RO } else { MountOption::RW },
    ];
    let root = is_root();
    if root {
        // Device files and set-user-id bits are an ordinary user's mount's never.
        config.mount_options.extend([MountOption::Dev, MountOption::Suid]);
    }
    config.acl = if root { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(threads);
    config.clone_fd = true;
    config
}

/// Says what requests the kernel may send, and how large they may be.
pub fn negotiate(config: &mut KernelConfig, cache: Cache) {
    let wanted = [
        InitFlags::FUSE_ASYNC_READ,
        InitFlags::FUSE_BIG_WRITES,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_ATOMIC_O_TRUNC,
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        // Else it asks before each write whether the file has capabilities that go with it.
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    ];
    // Where this mount alone changes the pool, the kernel's own locks do, which take no request.
    let locks = [InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS];
    let locks = if cache == Cache::Job { &locks[..0] } else { &locks[..] };
    for flag in wanted.iter().chain(locks).copied() {
        // A kernel that lacks one does without.
        let _ = config.add_capabilities(flag);
    }
    let _ = config.set_max_write(TRANSFER_MAX);
    let _ = config.set_max_readahead(TRANSFER_MAX);
    let _ = config.set_max_background(BACKGROUND_MAX);
}

/// Whether the process may do all.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}
