//! Where bytes come from: filesystems, files of allocated space, address ranges, copying.
//!
//! Everything above this crate sees memory: a base address, offsets in it, and one durability
//! call, [`map::AddressRange::flush`]. The [`Medium`] of an offset says what stands behind it, and
//! so what `flush` has to do. The kernel is asked for it when a file is attached; nobody passes it
//! down: a medium is a variant here, found in `Medium::of`, served in `AddressRange::flush`.
//!
//! **Persistent memory.** On a filesystem with DAX, mapped pages *are* the medium. That alone does
//! not make a flush of cache lines durable: the blocks of a page may be known to the filesystem's
//! memory alone. `MAP_SYNC` closes that gap: the kernel refuses it where it cannot be kept, and
//! keeps a page from being written before what leads to its blocks is durable. So a file for which
//! `MAP_SYNC` is granted is [`Medium::Dax`], and one for which it is refused is a file like others,
//! with `msync`. New space there is written once before it is used (see [`span`]): a first write
//! into a block that nobody has written makes the kernel commit the filesystem's journal.
//!
//! This crate owns the files that give a pool space, the addresses at which they are mapped, and
//! the copying and flushing of bytes there. It knows no object and no row.
//!
//! *Invariant*: no page is mapped that has no block. [`span`] allocates, [`map`] maps; a write into
//! a mapped page therefore never runs out of space, which would be a SIGBUS instead of an error.
//! And a byte that was flushed without an error is as durable as its [`Medium`] can make it.
//!
//! | module | what it offers |
//! |---|---|
//! | [`exchange`] | two names that change places in one step |
//! | [`filesystem`] | which filesystems may carry a device, and what they promise |
//! | [`cgroup`] | how much memory may still be taken before the kernel kills |
//! | [`devdax`] | persistent memory without a filesystem |
//! | [`span`] | files whose every byte is allocated before anybody maps them |
//! | [`map`] | address ranges, and files mapped into them |
//! | `first_touch` | what is stored into pages that the process has not come to yet |
//! | [`memory`] | a piece of a range in somebody's hands |
//! | [`persist`] | copying, zeroing and writing cache lines back |
//! | [`emulated`] | memory that takes as long as persistent memory would |
//! | [`shared_counter`] | one number that many processes look at |
//! | [`bell`], [`futex`] | a word by which threads of many processes are woken |

#![deny(missing_docs)]

pub mod bell;
pub mod cgroup;
pub mod clock;
pub mod devdax;
pub mod emulated;
pub mod exchange;
pub mod filesystem;
mod first_touch;
pub mod futex;
pub mod map;
pub mod memory;
pub mod persist;
pub mod shared_counter;
pub mod span;
#[cfg(test)]
pub(crate) mod testing;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use engram_base::error::{Error, Result};

/// What a mapped offset is kept on, which is what makes it durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Medium {
    /// tmpfs: there is nothing below the mapped memory; a flush has nothing to do.
    Memory = 1,
    /// The page cache of a filesystem with a disk below it: `msync` writes and waits.
    PageCache = 2,
    /// Persistent memory, a file mapped with `MAP_SYNC` or a devdax node: written-back cache lines
    /// are durable.
    Dax = 4,
}

impl Medium {
    /// Every medium.
    pub(crate) const ALL: [Medium; 3] = [Medium::Memory, Medium::PageCache, Medium::Dax];

    /// Asks the kernel what `file` is kept on.
    pub fn of(file: &File) -> Result<Medium> {
        let meta = file.metadata().map_err(|e| Error::os("cannot look at a file (fstat)", &e))?;
        if devdax::is_device(&meta) {
            let durable = devdax::facts_of(&meta)?.durable;
            return Ok(if durable { Medium::Dax } else { Medium::Memory });
        }
        let magic = filesystem::magic(file.as_raw_fd())
            .map_err(|e| Error::os("cannot ask what filesystem a file is on (fstatfs)", &e))?;
        Ok(if filesystem::in_memory(magic) {
            Medium::Memory
        } else if persist::can_flush_lines() && map::grants_sync(file) {
            Medium::Dax
        } else {
            Medium::PageCache
        })
    }

    /// Asks the kernel what files that are made in this folder are kept on. Where this user can
    /// make none, a filesystem that keeps no files in memory is taken for a disk's.
    pub fn of_folder(folder: &Path) -> Result<Medium> {
        let place = |write: bool, flags: i32| {
            File::options()
                .read(true)
                .write(write)
                .custom_flags(flags | libc::O_CLOEXEC)
                .open(folder)
        };
        let file = place(true, libc::O_TMPFILE).or_else(|_| place(false, libc::O_DIRECTORY));
        let shown = folder.display();
        Self::of(&file.map_err(|e| Error::os(format_args!("cannot look at {shown}"), &e))?)
    }

    /// What listings call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Medium::Memory => "memory",
            Medium::PageCache => "page cache",
            Medium::Dax => "persistent memory, MAP_SYNC",
        }
    }

    /// This medium's bit in a set of media.
    pub(crate) const fn bit(self) -> u8 {
        self as u8
    }
}

/// The kernel's id of this boot; zeros where it does not tell.
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut id = [0; 16];
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = std::str::from_utf8(pair)
            .ok()
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            .unwrap_or(0);
    }
    id
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
        assert_eq!(Medium::of_folder(mount.path()), Ok(Medium::Memory));
    }
}
