//! LMDB's meta pages, and the heads of its trees, read without trust.

use super::nodes::{HEAD, META, u16_at, u32_at, u64_at};
use engram_base::error::Result;
use engram_base::fail;

const MAGIC: u32 = 0xBEEF_C0DE;
const DATA_VERSION: u32 = 1;
/// The bytes of a tree's head.
pub(super) const TREE_BYTES: usize = 48;
/// The list of free pages has numbers for keys.
const INTEGER_KEYS: u16 = 0x08;

/// The head of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeHead {
    /// In the list of free pages the bytes of a page, else 0.
    pub pad: u32,
    pub flags: u16,
    pub depth: u16,
    pub branch: u64,
    pub leaf: u64,
    pub overflow: u64,
    pub entries: u64,
    pub root: u64,
}

impl TreeHead {
    /// One without pages.
    pub(super) const EMPTY: TreeHead = TreeHead {
        pad: 0,
        flags: 0,
        depth: 0,
        branch: 0,
        leaf: 0,
        overflow: 0,
        entries: 0,
        root: u64::MAX,
    };

    /// The same with another's flags.
    pub(super) fn like(self, other: &TreeHead) -> TreeHead {
        TreeHead { pad: other.pad, flags: other.flags, ..self }
    }

    /// The head at an offset.
    pub(super) fn parse(bytes: &[u8], at: usize) -> Option<TreeHead> {
        let bytes = bytes.get(at..at.checked_add(TREE_BYTES)?)?;
        Some(TreeHead {
            pad: u32_at(bytes, 0)?,
            flags: u16_at(bytes, 4)?,
            depth: u16_at(bytes, 6)?,
            branch: u64_at(bytes, 8)?,
            leaf: u64_at(bytes, 16)?,
            overflow: u64_at(bytes, 24)?,
            entries: u64_at(bytes, 32)?,
            root: u64_at(bytes, 40)?,
        })
    }
}

/// What a meta page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub map_bytes: u64,
    pub flags: u16,
    pub free: TreeHead,
    pub main: TreeHead,
    pub last_page: u64,
    pub transaction: u64,
}

impl Meta {
    /// Reads the meta page of this number.
    pub(super) fn parse(page: &[u8], number: u64, page_bytes: u64) -> Result<Meta> {
        let parts = (u64_at(page, 0), u16_at(page, 10), u32_at(page, HEAD), u32_at(page, HEAD + 4));
        if parts != (Some(number), Some(META), Some(MAGIC), Some(DATA_VERSION)) {
            fail!(Corrupt, "it is no meta page");
        }
        let trees = HEAD + 24;
        let after = trees + 2 * TREE_BYTES;
        let (Some(free), Some(main), Some(map_bytes), Some(last_page), Some(transaction)) = (
            TreeHead::parse(page, trees),
            TreeHead::parse(page, trees + TREE_BYTES),
            u64_at(page, HEAD + 16),
            u64_at(page, after),
            u64_at(page, after + 8),
        ) else {
            fail!(Corrupt, "it is cut short")
        };
        if u64::from(free.pad) != page_bytes {
            fail!(Corrupt, "it says pages of {} bytes, not {page_bytes}", free.pad);
        }
        if free.flags & INTEGER_KEYS == 0 || main.flags != 0 || main.pad != 0 {
            fail!(Corrupt, "its flags cannot be {:#x} and {:#x}", free.flags, main.flags);
        }
        if u64_at(page, HEAD + 8) != Some(0) {
            fail!(Corrupt, "it asks for an address");
        }
        Ok(Meta { map_bytes, flags: free.flags, free, main, last_page, transaction })
    }
}
