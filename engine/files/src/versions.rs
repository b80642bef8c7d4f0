//! The folders of published versions: their names, and which is the newest.

use std::fs;
use std::path::{Path, PathBuf};

use engram_base::error::{Error, Result};

/// What a version that is being made is called before its name.
pub const MAKING: &str = ".new-";

/// The versions in a namespace's folder of published ones, and what is unfinished there.
pub fn versions(published: &Path) -> Result<(Vec<u64>, Vec<PathBuf>)> {
    let (mut versions, mut unfinished) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(published) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((versions, unfinished)),
        Err(e) => return Err(Error::os(format!("listing {}", published.display()), &e)),
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(MAKING) {
            unfinished.push(entry.path());
        } else if let Ok(version) = name.parse::<u64>()
            && name == version_name(version)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
        {
            versions.push(version);
        }
    }
    versions.sort_unstable();
    Ok((versions, unfinished))
}

/// Whether the version in this folder is the newest that there is.
pub fn is_newest(dir: &Path) -> bool {
    let all = dir.parent().and_then(|published| versions(published).ok());
    let newest = all.and_then(|(versions, _)| versions.last().copied());
    newest.is_some_and(|newest| dir.ends_with(version_name(newest)))
}

/// The name of a version's folder: names are in the order of their numbers.
pub fn version_name(version: u64) -> String {
    format!("{version:020}")
}

#[cfg(test)]
mod tests;
