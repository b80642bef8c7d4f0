//! Files outside, read again and compared with what they must sum up to.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use engram::{Error, Kind, Result};
use rustix::fs::Advice;

use crate::manifest::{self, Line, Manifest, What};
use crate::pace::Pace;
use crate::progress::{Progress, Trouble};
use crate::sum::{RunningSum, Sum};

/// What direct reads begin at, and are long: a multiple of any device's block.
const BLOCK: usize = 4096;
/// So many bytes are read at a time.
const PIECE: usize = 1 << 20;

/// Memory that begins at a block.
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    skip: usize,
}

impl Aligned {
    pub fn new() -> Aligned {
        let bytes = vec![0; PIECE + BLOCK];
        let skip = bytes.as_ptr().align_offset(BLOCK);
        Aligned { bytes, skip }
    }

    fn piece(&mut self) -> &mut [u8] {
        &mut self.bytes[self.skip..][..PIECE]
    }
}

/// Sums up a file as it lies on its medium: past the kernel's cache, as far as the file system lets
/// one. The file is durable already.
pub(crate) fn sum_of(
    path: &Path,
    with_sha256: bool,
    piece: &mut Aligned,
) -> io::Result<(u64, Sum)> {
    let open =
        |flags| fs::OpenOptions::new().read(true).custom_flags(flags | libc::O_NOFOLLOW).open(path);
    let file = match open(libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0)?,
        opened => opened?,
    };
    // Without direct reads: what is clean in the cache is dropped.
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    match read_all(&file, with_sha256, piece) {
        // It can be opened so, and not be read.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let file = open(0)?;
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
            read_all(&file, with_sha256, piece)
        }
        read => read,
    }
}

fn read_all(file: &File, with_sha256: bool, piece: &mut Aligned) -> io::Result<(u64, Sum)> {
    let mut sum = RunningSum::new(with_sha256);
    let mut at = 0;
    loop {
        let count = file.read_at(piece.piece(), at)?;
        if count == 0 {
            return Ok((at, sum.done()));
        }
        sum.add(&piece.piece()[..count]);
        at += count as u64;
        // The end of a file is not a block's.
        if !count.is_multiple_of(BLOCK) {
            return Ok((at, sum.done()));
        }
    }
}

/// Whether a file, or link, is what a line says; if not, what it is.
fn compare(path: &Path, line: &Line, piece: &mut Aligned) -> std::result::Result<(), String> {
    let sha256 = line.sum.sha256.is_some();
    let found = match line.what {
        What::Link => fs::read_link(path).map(|target| {
            let target = target.as_os_str().as_bytes();
            (target.len() as u64, Sum::of(target, sha256))
        }),
        What::File => sum_of(path, sha256, piece),
    };
    let (size, sum) = found.map_err(|error| error.to_string())?;
    if size != line.size {
        return Err(format!("has {size} bytes, and the manifest says {}", line.size));
    }
    if sum != line.sum {
        let told = line.sum;
        return Err(format!(
            "sums up to {sum}, and the manifest says {told}: its bytes are others"
        ));
    }
    Ok(())
}

/// Compares a folder with its manifest: what is not as it says.
pub fn check(folder: &Path, pace: &Pace, progress: &Progress) -> Result<Vec<Trouble>> {
    let path = folder.join(manifest::NAME);
    let text = fs::read_to_string(&path).map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            io::ErrorKind::PermissionDenied => Kind::Access,
            io::ErrorKind::InvalidData => Kind::Corrupt,
            _ => Kind::Os,
        };
        let path = path.display();
        Error::new(
            kind,
            format!("{path} cannot be read: {error}; a stage-out writes it when it ends"),
        )
    })?;
    let manifest = Manifest::parse(&text)?;
    progress.expect(manifest.lines());
    let mut piece = Aligned::new();
    for line in manifest.lines() {
        let stopped = || progress.is_stopped();
        if !pace.file(stopped) || !pace.bytes(line.size, stopped) {
            break;
        }
        match compare(&folder.join(&line.path), line, &mut piece) {
            Ok(()) => progress.looked(line.size),
            Err(why) => progress.trouble(line.path.as_str(), why),
        }
    }
    Ok(progress.take_troubles())
}
