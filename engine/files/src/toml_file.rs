//! TOML files: written whole, and a file that does not parse is told by name.
//!
//! Their first line is a comment with a checksum of the rest. A changed digit leaves good TOML with
//! another meaning, such as another mode or size; the checksum finds it. A file without that line
//! is taken as it is: an earlier engine wrote it, or somebody who edited it by hand and removed the
//! line, as the message advises.
//!
//! They lie in folders where others may have put something under the same name. So the new text
//! goes into a file that this process makes, whatever was there under its passing name; and a file
//! that is read is a plain one of a sane size, not the target of a link, nor a FIFO that keeps one
//! waiting.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use serde::Serialize;

use crate::folder::open_folder;
use engram_base::checksum::RunningChecksum;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::user;

/// No description is longer.
const BYTES_MAX: u64 = 1 << 20;
const ROOT: u32 = 0;
/// What the first line begins with; 16 hexadecimal digits follow.
const CHECK: &str = "# checksum of what follows: ";

/// Writes a TOML file whole: under another name, synced, then renamed. It stays with the owner that
/// it has, if root writes it anew.
pub fn write_toml<T: Serialize>(path: &Path, value: &T, mode: u32) -> Result<()> {
    use std::io::Write;
    let text = toml::to_string(value)
        .map_err(|e| Error::new(Kind::Os, format!("writing {}: {e}", path.display())))?;
    let temporary = path.with_extension("toml.new");
    let written = (|| {
        // Left by a crash, or planted: it goes, and is never written through.
        match fs::remove_file(&temporary) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = fs::File::create_new(&temporary)?;
        if let Ok(before) = fs::symlink_metadata(path)
            && (before.is_file() && user::current() == ROOT && before.uid() != ROOT)
        {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(format!("{CHECK}{:016x}\n{text}", checksum_of(&text)).as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        open_folder(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    })();
    written.map_err(|e| {
        let _ = fs::remove_file(&temporary);
        Error::os(format!("writing {} ({})", path.display(), temporary.display()), &e)
    })
}

/// Whether the text, if it has a checksum, is the one that it was taken of.
fn is_as_written(text: &str) -> bool {
    let Some(checked) = text.strip_prefix(CHECK) else { return true };
    checked.split_once('\n').is_some_and(|(word, rest)| {
        u64::from_str_radix(word, 16).is_ok_and(|word| word == checksum_of(rest))
    })
}

fn checksum_of(text: &str) -> u64 {
    let mut checksum = RunningChecksum::new();
    checksum.add(text.as_bytes());
    checksum.word()
}

/// Reads a TOML file; one that does not parse, or was changed since it was written, is
/// `FormatError`.
pub fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let damaged =
        |what: &str| Error::new(Kind::Format, format!("{} is damaged: {what}", path.display()));
    let refused = |e: std::io::Error| match e.raw_os_error() {
        Some(libc::ELOOP) => damaged("it is a symbolic link, which is not followed"),
        Some(libc::ENXIO) => damaged("it is no plain file"),
        _ => Error::os(format!("reading {}", path.display()), &e),
    };
    let file = fs::File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(refused)?;
    let meta = file.metadata().map_err(refused)?;
    if !meta.is_file() || meta.len() > BYTES_MAX {
        fail!(
            Format,
            "{} is damaged: it is no plain file of at most {BYTES_MAX} bytes",
            path.display()
        );
    }
    // A byte more than there is: without room, reading looks for its end in small pieces.
    let mut bytes = Vec::with_capacity(meta.len() as usize + 1);
    (&file).take(BYTES_MAX).read_to_end(&mut bytes).map_err(refused)?;
    let Ok(text) = String::from_utf8(bytes) else { return Err(damaged("it is no text")) };
    if !is_as_written(&text) {
        return Err(damaged(
            "its text does not agree with the checksum in its first line (if it was edited by \
             hand on purpose, remove that line)",
        ));
    }
    toml::from_str(&text).map_err(|e| damaged(e.message()))
}

#[cfg(test)]
mod tests;
