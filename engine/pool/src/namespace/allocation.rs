//! Allocations through the view: space that is being filled, and becomes an object or nothing.
//!
//! The space lies in the realm into which the object falls. While it is filled, the group can move
//! to another realm; then the value is copied there when it is published.

use std::io;
use std::os::fd::BorrowedFd;

use super::Namespace;
use super::retry::Retry;
use engram_base::error::Result;
use engram_base::id::{Gid, Oid};
use engram_realm::view::{RealmAllocation, View};
use engram_records::object::{NewObject, Placement};

/// Space that is being filled, and becomes an object on `publish`, or not at all.
pub struct Allocation {
    pub(super) space: RealmAllocation,
    pub(super) namespace: Namespace,
    pub(super) parent: Gid,
    pub(super) path: String,
    pub(super) new: NewObject,
    pub(super) nbytes: u64,
    pub(super) placement: Placement,
}

impl Allocation {
    /// Fills the memory from its start.
    ///
    /// # Panics
    ///
    /// If `data` is longer than what was allocated.
    pub fn write(&self, data: &[u8]) {
        self.space.write(data);
    }

    /// Fills the memory from an offset on, in bytes.
    ///
    /// # Panics
    ///
    /// If `data` goes beyond what was allocated.
    pub fn write_at(&self, offset: u64, data: &[u8]) {
        self.space.write_at(offset, data);
    }

    /// Fills the memory from an offset on with `len` bytes of a file, from its byte `at` on; says
    /// how many, which are fewer where the file ends.
    ///
    /// # Errors
    ///
    /// The file cannot be read. The memory holds anything then.
    ///
    /// # Panics
    ///
    /// If they would go beyond what was allocated.
    pub fn read_from(
        &self,
        offset: u64,
        file: BorrowedFd<'_>,
        at: u64,
        len: usize,
    ) -> io::Result<usize> {
        self.space.read_from(offset, file, at, len)
    }

    /// Whether so many bytes are better copied to an offset from elsewhere, by `write_at`, than
    /// made there: this process has not come to its pages yet, and each would cost it a fault.
    pub fn is_new(&self, offset: u64, len: usize) -> bool {
        self.space.is_new(offset, len)
    }

    /// Zeroes the memory.
    pub fn zero(&self) {
        self.space.zero();
    }

    /// The memory to fill; it stays valid after `publish`, and after the allocation is dropped.
    pub fn view(&self) -> View {
        self.space.view()
    }

    /// Makes the memory durable, and the object visible to everyone of its scope, in one commit.
    ///
    /// On error nothing is visible, and the space goes back.
    pub fn publish(self) -> Result<Oid> {
        let Allocation { mut space, namespace, parent, path, new, nbytes, placement } = self;
        space.make_durable()?;
        let mut aimed = true;
        namespace.retry(Retry::IfMoved, || {
            if !std::mem::replace(&mut aimed, false) {
                let aim = namespace.aim(parent, &path, placement)?;
                if !space.is_in(&aim.realm) {
                    let other = namespace.allocate(parent, &path, &new, nbytes, placement)?;
                    space.copy_to(&other.space)?;
                    return other.publish();
                }
                space.aim(&aim.realm, aim.group, aim.path);
            }
            space.link()
        })
    }
}
