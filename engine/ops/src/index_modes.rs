//! Index modes of new objects: who knows them, and when they change.
//!
//! A group's settings say how objects below it are indexed. The layer above knows the settings; an
//! operation here asks it through [`IndexModes`], and tells it by one row of `meta` that the
//! answers may be others from now on.

use crate::rows_mut::RowsMut;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Gid;
use engram_base::random;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_records::index_mode::IndexMode;

/// The row of `meta` that changes with settings and moves.
const SETTINGS: &[u8] = b"settings";

/// What knows the modes of new objects.
pub trait IndexModes {
    /// The mode of a new object in a group. A batch relies on the version alone.
    fn mode_at(&self, rows: &mut dyn Rows, group: Gid) -> Result<IndexMode>;
}

/// The version of all settings: another number with every change of one, and with every group that
/// moves.
pub fn version(rows: &mut dyn Rows) -> Result<u64> {
    match rows.get(Table::Meta, SETTINGS)?.as_deref() {
        None => Ok(0),
        Some(row) => match <[u8; 8]>::try_from(row) {
            Ok(version) => Ok(u64::from_le_bytes(version)),
            Err(_) => fail!(Corrupt, "the version of settings has {} bytes", row.len()),
        },
    }
}

/// Notes that settings change, or groups move: modes may be others now.
pub fn changed(rows: &mut dyn RowsMut) -> Result<()> {
    rows.put(Table::Meta, SETTINGS, &random::id()?.to_le_bytes())
}
