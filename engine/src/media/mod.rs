//! Where bytes come from: filesystems, files of allocated space, address ranges, copying.
//!
//! Everything above this module sees memory: a base address, offsets in it, and one durability
//! call, [`map::Range::flush`]. What stands behind an offset, and so what `flush` has to do, is its
//! [`Medium`]. The kernel is asked for it when a file is attached; nobody passes it down. That is
//! the seam at which fsdax (`MAP_SYNC`, then `clwb` and a fence), devdax and a simulated medium
//! come in: a variant here, found in `Medium::of`, served in `Range::flush`.
//!
//! | file | what it owns |
//! |---|---|
//! | [`filesystem`] | which filesystems may carry a device, and what they promise |
//! | [`cgroup`] | how much memory may still be taken before the kernel kills |
//! | [`span`] | files whose every byte is allocated before anybody maps them |
//! | [`map`] | address ranges, and files mapped into them |
//! | [`memory`] | a piece of a range in somebody's hands |
//! | [`persist`] | copying and zeroing at the speed of the memory |
//! | [`word`] | one number that many processes look at |
//!
//! *No page is mapped that has no block.* [`span`] allocates, [`map`] maps; a write into a mapped
//! page therefore never runs out of space, which would be a SIGBUS instead of an error.

pub mod cgroup;
pub mod filesystem;
pub mod map;
pub mod memory;
pub mod persist;
pub mod span;
#[cfg(test)]
pub(crate) mod testing;
pub mod word;

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::error::{Error, Result};

/// What a mapped offset is kept on, which is what makes it durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Medium {
    /// tmpfs: there is nothing below the mapped memory; a flush has nothing to do.
    Memory = 1,
    /// The page cache of a filesystem with a disk below it: `msync` writes and waits.
    PageCache = 2,
}

impl Medium {
    /// Asks the kernel what `file` is kept on.
    pub fn of(file: &File) -> Result<Medium> {
        let magic = filesystem::magic(file.as_raw_fd())
            .map_err(|e| Error::os("cannot ask what filesystem a file is on (fstatfs)", &e))?;
        Ok(if filesystem::in_memory(magic) { Medium::Memory } else { Medium::PageCache })
    }

    /// This medium's bit in a set of media.
    pub(crate) const fn bit(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::{Medium, testing::Tmpfs};

    #[test]
    fn the_kernel_is_asked_what_a_file_is_kept_on() {
        assert_eq!(Medium::of(&File::open("/proc/self/status").unwrap()), Ok(Medium::PageCache));
        let Some(mount) = Tmpfs::mount("the_kernel_is_asked", "size=1m") else { return };
        let file = File::create(mount.path().join("file")).unwrap();
        assert_eq!(Medium::of(&file), Ok(Medium::Memory));
    }
}
