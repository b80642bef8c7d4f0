//! The index: modes and settings, as Python gives them.

use engram_engine::IndexMode;
use pyo3::prelude::*;

use crate::error::{Result, argument};

/// A mode, as Python has it.
pub fn mode_name(mode: IndexMode) -> &'static str {
    match mode {
        IndexMode::Sync => "sync",
        IndexMode::Async => "async",
        IndexMode::None => "none",
    }
}

/// When an object is indexed, from Python: "sync", "async" or "none"; None where the group decides.
pub fn mode_of(index: Option<&Bound<'_, PyAny>>) -> Result<Option<IndexMode>> {
    let Some(index) = index.filter(|i| !i.is_none()) else {
        return Ok(None);
    };
    match index.extract::<&str>() {
        Ok("sync") => Ok(Some(IndexMode::Sync)),
        Ok("async") => Ok(Some(IndexMode::Async)),
        Ok("none") => Ok(Some(IndexMode::None)),
        _ => Err(argument(format!(
            "index {index:?} is unknown: use \"sync\", \"async\" or \"none\""
        ))),
    }
}
