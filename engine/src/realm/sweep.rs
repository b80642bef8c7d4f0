//! Sweeping: span files that no row names are removed. Compaction leaves them, and its death.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::extent::{Growing, Span};
use crate::realm::core::{Core, Setup};
use crate::rows::Snapshot;

/// Removes the span files but those in `kept`, by device and file number. The caller has the realm
/// alone, or the right to grow it.
pub(crate) fn sweep_spans(
    setup: &Setup,
    devices: &[PathBuf],
    kept: &HashSet<(u32, u32)>,
) -> Result<()> {
    for (device, path) in (0..).zip(devices) {
        for entry in fs::read_dir(setup.spans_on(path)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("span-")?.parse().ok());
            if number.is_some_and(|number| !kept.contains(&(device, number))) {
                let path = entry.path();
                fs::remove_file(&path)
                    .map_err(|e| Error::os(format!("removing {}", path.display()), &e))?;
            }
        }
    }
    Ok(())
}

impl Core {
    /// Removes what somebody has left who died compacting.
    pub(super) fn sweep(&self) -> Result<()> {
        let inside = self.enter()?;
        let _growing = Growing::begin(&self.setup.dir)?;
        let spans = Span::all(&mut Snapshot(&inside.read()?))?;
        let kept = spans.iter().map(|span| (span.device, span.file)).collect();
        let devices = crate::pool::PoolFile::read(&self.setup.pool)?.devices;
        sweep_spans(&self.setup, &devices, &kept)
    }
}
