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

/// See [`Catalog::pages`].
pub(super) fn pages(catalog: &Catalog) -> Result<(u64, u64, u64)> {
    let last_id = catalog.env.last_id()?;
    let behind = |(_, snapshot): &(u32, Option<u64>)| snapshot.is_some_and(|id| id < last_id);
    let some_behind = catalog.env.readers()?.iter().any(behind);
    let without_rows = catalog.env.free_pages(u64::MAX, true)?;
    let free = if some_behind {
        catalog.env.free_pages(u64::MAX, false)?.min(without_rows)
    } else {
        without_rows
    };
    let last = catalog.env.last_page()? + 1;
    Ok((last.saturating_sub(without_rows), free, without_rows - free))
}

/// See [`Catalog::stats`].
pub(super) fn stats(catalog: &Catalog) -> Result<CatalogStats> {
    let free_pages = catalog.env.free_pages(u64::MAX, true)?;
    let read = catalog.env.read()?;
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
        page_bytes: catalog.env.page_bytes(),
        last_page: catalog.env.last_page()?,
        allocated_pages: catalog.growth.allocated_pages(),
        free_pages,
        tables,
    })
}
