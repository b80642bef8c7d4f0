//! TOML files: written whole, and what does not parse is told by name.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Kind, Result};

/// Writes a TOML file whole: under another name, synced, then renamed.
pub(crate) fn write_toml<T: Serialize>(path: &Path, value: &T, mode: u32) -> Result<()> {
    use std::io::Write;
    let text = toml::to_string(value)
        .map_err(|e| Error::new(Kind::Os, format!("writing {}: {e}", path.display())))?;
    let temporary = path.with_extension("toml.new");
    let written = (|| {
        let mut file = fs::File::create(&temporary)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    })();
    written.map_err(|e| {
        let _ = fs::remove_file(&temporary);
        Error::os(format!("writing {}", path.display()), &e)
    })
}

/// Reads a TOML file; what does not parse is `FormatError`.
pub(crate) fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => {
            Error::new(Kind::Format, format!("{} is damaged: it is no text", path.display()))
        }
        _ => Error::os(format!("reading {}", path.display()), &e),
    })?;
    toml::from_str(&text).map_err(|e| {
        Error::new(Kind::Format, format!("{} is damaged: {}", path.display(), e.message()))
    })
}
