//! What a catalog takes, and who reads it: for people.

use super::{Catalog, Table};
use engram_base::error::Result;

/// What a table takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Rows.
    pub entries: u64,
    /// Levels of its tree.
    pub depth: u64,
    /// Pages of keys.
    pub branch_pages: u64,
    /// Pages of rows.
    pub leaf_pages: u64,
    /// Pages of large values.
    pub overflow_pages: u64,
}

/// What a catalog takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogStats {
    /// Bytes per page.
    pub page_bytes: u64,
    /// The last page in use.
    pub last_page: u64,
    /// Pages that have blocks.
    pub allocated_pages: u64,
    /// Pages that no row uses, though a reader may still see them.
    pub free_pages: u64,
    /// The tables, in the order of [`Table::ALL`].
    pub tables: [TableStats; Table::COUNT],
}

impl Catalog {
    /// Every reader slot in use: its process, and the snapshot that it reads, if it reads one now.
    pub fn readers(&self) -> Result<Vec<(u32, Option<u64>)>> {
        self.env.readers()
    }

    /// Frees the reader slots of processes that are gone.
    pub fn clear_dead_readers(&self) -> Result<()> {
        self.env.clear_dead_readers()
    }

    /// Pages with rows on them, pages that the next transaction may take, and pages without rows
    /// that readers still see.
    pub fn pages(&self) -> Result<(u64, u64, u64)> {
        let last_id = self.env.last_id()?;
        let behind = |(_, snapshot): &(u32, Option<u64>)| snapshot.is_some_and(|id| id < last_id);
        let some_behind = self.env.readers()?.iter().any(behind);
        let without_rows = self.env.free_pages(u64::MAX, true)?;
        let free = if some_behind {
            self.env.free_pages(u64::MAX, false)?.min(without_rows)
        } else {
            without_rows
        };
        let last = self.env.last_page()? + 1;
        Ok((last.saturating_sub(without_rows), free, without_rows - free))
    }

    /// What the catalog takes.
    pub fn stats(&self) -> Result<CatalogStats> {
        let free_pages = self.env.free_pages(u64::MAX, true)?;
        let read = self.env.read()?;
        let mut tables = [TableStats::default(); Table::COUNT];
        for table in Table::ALL {
            let tree = read.tree(table)?;
            tables[table as usize] = TableStats {
                entries: read.entries(table)?,
                depth: tree.depth.into(),
                branch_pages: tree.branch.into(),
                leaf_pages: tree.leaf.into(),
                overflow_pages: tree.overflow.into(),
            };
        }
        Ok(CatalogStats {
            page_bytes: self.env.page_bytes(),
            last_page: self.env.last_page()?,
            allocated_pages: self.growth.allocated_pages(),
            free_pages,
            tables,
        })
    }
}
