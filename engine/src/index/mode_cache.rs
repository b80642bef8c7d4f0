//! The modes of new objects, as this process last worked them out.
//!
//! Where a realm has settings, the mode of a new object is that of the nearest group above with
//! one. Looking for it costs two rows for each group on the way, and in a batch each of them would
//! be a guard: whoever annotates a group would make batches below it fail. So each process
//! remembers the answers, and one row of `meta` says for how long: `settings`, a random number that
//! changes with every change of settings, and whenever a group moves. It is random, not counted,
//! because a batch sees its own changes before anybody else does, and may never apply them: what it
//! remembers must not be taken for what another commit has made.

use std::collections::HashMap;
use std::sync::Mutex;

use super::IndexMode;
use super::settings;
use crate::catalog::Table;
use crate::error::Result;
use crate::fail;
use crate::id::Gid;
use crate::realm::lock;
use crate::rows::{Rows, RowsMut};

/// The row of `meta` that changes with settings and moves.
const SETTINGS: &[u8] = b"settings";
/// How many groups' modes are remembered.
const GROUPS_MAX: usize = 1 << 16;

/// What one process remembers of one realm.
#[derive(Debug, Default)]
pub(crate) struct ModeCache(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    version: u64,
    modes: HashMap<Gid, IndexMode>,
}

impl ModeCache {
    /// The mode of a new object in a group. A batch relies on the version alone.
    pub(crate) fn mode_at(&self, rows: &mut impl Rows, group: Gid) -> Result<IndexMode> {
        if !rows.has_index_settings()? {
            return Ok(IndexMode::default());
        }
        let version = match rows.get(Table::Meta, SETTINGS)?.as_deref() {
            None => 0,
            Some(row) => match <[u8; 8]>::try_from(row) {
                Ok(version) => u64::from_le_bytes(version),
                Err(_) => fail!(Corrupt, "the version of settings has {} bytes", row.len()),
            },
        };
        let of_version = |known: &Known| known.version == version;
        let known = Some(lock(&self.0)).filter(|known| of_version(known));
        if let Some(mode) = known.and_then(|known| known.modes.get(&group).copied()) {
            return Ok(mode);
        }
        let mode = settings::at(rows, group)?.0.mode.unwrap_or_default();
        let mut known = lock(&self.0);
        if !of_version(&known) || known.modes.len() >= GROUPS_MAX {
            *known = Known { version, modes: HashMap::new() };
        }
        known.modes.insert(group, mode);
        Ok(mode)
    }
}

/// Settings change, or groups move: modes may be others now.
pub(crate) fn changed(rows: &mut impl RowsMut) -> Result<()> {
    rows.put(Table::Meta, SETTINGS, &crate::lease::random_id()?.to_le_bytes())
}
