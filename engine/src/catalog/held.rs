//! Snapshots that are held beyond a borrow, and what they keep (`lmdb::held`, `realm::snapshot`).

use super::{Catalog, ReadTxn};
use crate::error::Result;

impl Catalog {
    /// Keeps a snapshot live beyond its borrow; the number to ask for it by. Who no longer needs it
    /// lets go of it: until then LMDB reuses no page that it shows.
    pub(crate) fn hold(&self, read: ReadTxn<'_>) -> u64 {
        self.env.hold(read.into_raw())
    }

    /// A held snapshot, to look through; waits while another thread does. `None` if there is none
    /// of this number.
    pub(crate) fn held(&self, number: u64) -> Result<Option<ReadTxn<'_>>> {
        Ok(self.env.held(number)?.map(ReadTxn::new))
    }

    /// Ends a held snapshot, unless somebody looks through it now. Whether it is gone.
    pub(crate) fn let_go(&self, number: u64) -> Result<bool> {
        self.env.let_go(number)
    }

    /// How many pages are free but for who looks at the snapshot of this transaction; counting
    /// stops at `enough`.
    pub(crate) fn pages_freed_since(&self, since: u64, enough: u64) -> Result<u64> {
        self.env.pages_freed_since(since, enough)
    }

    /// The last page in use.
    pub(crate) fn last_page(&self) -> Result<u64> {
        self.env.last_page()
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.env.page_bytes()
    }
}
