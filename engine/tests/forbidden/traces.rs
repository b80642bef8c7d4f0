//! Traces: bytes of what a user keeps, in files that another user may read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::world::all_below;

/// The files below these in which the bytes stand, and where, for who may read them.
pub fn found(tops: &[&Path], bytes: &[u8]) -> Vec<(PathBuf, u64)> {
    let files = tops.iter().flat_map(|top| all_below(top)).filter(|path| path.is_file());
    files
        .filter_map(|path| Some((stands_in(&File::open(&path).ok()?, bytes)?, path)))
        .map(|(at, path)| (path, at))
        .collect()
}

/// Where the bytes stand in a file. Holes are passed over.
fn stands_in(file: &File, bytes: &[u8]) -> Option<u64> {
    use std::os::fd::AsRawFd;
    const PIECE: usize = 1 << 20;
    let len = file.metadata().ok()?.len();
    let mut piece = vec![0; PIECE + bytes.len()];
    let mut at = 0;
    while at < len {
        // SAFETY: asks where the next byte that is no hole lies.
        let next = unsafe { libc::lseek(file.as_raw_fd(), at.cast_signed(), libc::SEEK_DATA) };
        let Ok(next) = u64::try_from(next) else { break };
        let read = file.read_at(&mut piece, next).ok()?;
        if read == 0 {
            break;
        }
        let mut windows = piece[..read].windows(bytes.len());
        if let Some(place) = windows.position(|window| window == bytes) {
            return Some(next + place as u64);
        }
        at = next + (PIECE.min(read)) as u64;
    }
    None
}
