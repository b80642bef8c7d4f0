//! The modes of new objects, as this process last worked them out.
//!
//! Where a realm has settings, the mode of a new object is that of the nearest group above with
//! one. Looking for it costs two rows for each group on the way, and in a batch each of them would
//! be a guard: annotating a group would make batches below it fail. So each process remembers the
//! answers, and one row of `meta` says for how long: `settings`, a random number that changes with
//! every change of settings, and whenever a group moves. It is random, not counted, because a batch
//! sees its own changes before anybody else does, and may never apply them: an answer that it
//! remembers must not be taken for one that another commit has made.

use std::collections::HashMap;
use std::sync::Mutex;

use super::IndexMode;
use super::settings;
use engram_base::error::Result;
use engram_base::id::Gid;
use engram_base::mutex::lock;
use engram_catalog::rows::Rows;
use engram_ops::index_modes::{IndexModes, version};

/// How many groups' modes are remembered.
const GROUPS_MAX: usize = 1 << 16;

/// What one process remembers of one realm.
#[derive(Debug, Default)]
pub struct ModeCache(Mutex<CachedModes>);

#[derive(Debug, Default)]
struct CachedModes {
    version: u64,
    modes: HashMap<Gid, IndexMode>,
}

impl IndexModes for ModeCache {
    fn mode_at(&self, mut rows: &mut dyn Rows, group: Gid) -> Result<IndexMode> {
        if !rows.has_index_settings()? {
            return Ok(IndexMode::default());
        }
        let version = version(&mut rows)?;
        let of_version = |known: &CachedModes| known.version == version;
        let known = Some(lock(&self.0)).filter(|known| of_version(known));
        if let Some(mode) = known.and_then(|known| known.modes.get(&group).copied()) {
            return Ok(mode);
        }
        let mode = settings::at(&mut rows, group)?.0.mode.unwrap_or_default();
        let mut known = lock(&self.0);
        if !of_version(&known) || known.modes.len() >= GROUPS_MAX {
            *known = CachedModes { version, modes: HashMap::new() };
        }
        known.modes.insert(group, mode);
        Ok(mode)
    }
}
