//! What this machine gives a pool: what a path is on, and how much memory may be taken.

use std::path::PathBuf;

use engram::media::{cgroup, devdax, filesystem};
use pyo3::prelude::*;

use crate::error::Result;

/// What a path is on.
#[pyclass(frozen, get_all, module = "engram._engram")]
pub struct Standing {
    /// The filesystem's name; "devdax" for a node.
    filesystem: String,
    /// "allowed", "forced" (with force alone) or "refused".
    verdict: &'static str,
    /// Why it is not allowed.
    reason: Option<&'static str>,
    /// Whether what is synced there survives power loss.
    durable: bool,
    /// Where it is mounted.
    mount: Option<String>,
    /// The filesystem's own options.
    options: Option<String>,
    /// Bytes that can still be taken there; of a node, all that a pool could take.
    free: u64,
}

/// Says what a path, which exists, is on.
#[pyfunction]
pub fn standing(py: Python<'_>, path: PathBuf) -> Result<Standing> {
    if devdax::is_node(&path) {
        let facts = py.detach(|| devdax::look(&path))?;
        return Ok(Standing {
            filesystem: "devdax".to_owned(),
            verdict: "allowed",
            reason: None,
            durable: facts.durable,
            mount: None,
            options: None,
            free: facts.len.saturating_sub(devdax::LABEL_LEN),
        });
    }
    let (found, free) = py.detach(move || -> engram::Result<_> {
        Ok((filesystem::look(&path)?, filesystem::free_bytes(&path)?))
    })?;
    let (verdict, reason) = match found.verdict {
        filesystem::Verdict::Allowed(_) => ("allowed", None),
        filesystem::Verdict::Forced(reason) => ("forced", Some(reason)),
        filesystem::Verdict::Refused(reason) => ("refused", Some(reason)),
    };
    let (mount, options) = found.mounted.unzip();
    let (filesystem, durable) = (found.name, found.durable);
    Ok(Standing { filesystem, verdict, reason, durable, mount, options, free })
}

/// What bounds the memory that this process may take: (file, limit, used), in bytes.
#[pyfunction]
pub fn memory_limits(py: Python<'_>) -> Vec<(PathBuf, u64, u64)> {
    let limits = py.detach(cgroup::limits);
    limits.into_iter().map(|limit| (limit.file, limit.bytes, limit.used)).collect()
}
