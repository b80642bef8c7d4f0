//! What a stage-out has done, as a file in the pool: so that it can be resumed.
//!
//! The log of a pair of a path in a namespace and a path outside is a file in the stages' work
//! folder. Each line is appended whole, when what it says is durable outside. A line that cannot be
//! read says nothing: what it stands for is done again.
//!
//! ```text
//! parts SOURCE COUNT PATH
//! naming SOURCE COPY XXH3-128 SHA-256 PATH
//! done SOURCE COPY XXH3-128 SHA-256 PATH
//! ```
//!
//! The second comes before a copy takes its name, which changes when it was changed: all else that
//! it says of the copy is so afterwards, too.
//!
//! SOURCE is `ino:size:written`, and COPY `dev:ino:size:written:changed`.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engram_fs::{Fs, Handle, Ino, Maker, OpenFlags};

use crate::failure::Done;
use crate::manifest::{escaped, sha256_of, unescaped};
use crate::plan::pair_key;
use crate::sum::Sum;
use crate::tree::Seen;

/// A file that is outside, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// What the file in the pool was.
    pub source: Seen,
    /// What the copy was, once it had its name.
    pub copy: Seen,
    /// What both sum up to.
    pub sum: Sum,
}

#[derive(Default)]
struct Known {
    written: HashMap<String, Written>,
    naming: HashMap<String, Written>,
    parts: HashMap<String, (Seen, u64)>,
}

/// The log of a path in a namespace and one outside.
pub(crate) struct Log {
    file: Handle,
    known: Mutex<Known>,
}

fn numbers<const N: usize>(text: &str) -> Option<[i128; N]> {
    let all: Option<Vec<i128>> = text.split(':').map(|word| word.parse().ok()).collect();
    all?.try_into().ok()
}

fn source_of(text: &str) -> Option<Seen> {
    let [ino, size, written] = numbers(text)?;
    Some(Seen {
        dev: 0,
        ino: ino.try_into().ok()?,
        size: size.try_into().ok()?,
        written: written.try_into().ok()?,
        changed: 0,
    })
}

fn copy_of(text: &str) -> Option<Seen> {
    let [dev, ino, size, written, changed] = numbers(text)?;
    Some(Seen {
        dev: dev.try_into().ok()?,
        ino: ino.try_into().ok()?,
        size: size.try_into().ok()?,
        written: written.try_into().ok()?,
        changed: changed.try_into().ok()?,
    })
}

impl Known {
    fn take(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "parts" => {
                let mut fields = rest.splitn(3, ' ');
                let source = source_of(fields.next()?)?;
                let count = fields.next()?.parse().ok()?;
                self.parts.insert(unescaped(fields.next()?)?, (source, count));
            }
            "done" | "naming" => {
                let mut fields = rest.splitn(5, ' ');
                let (source, copy) = (source_of(fields.next()?)?, copy_of(fields.next()?)?);
                let xxh3 = u128::from_str_radix(fields.next()?, 16).ok()?;
                let sha256 = fields.next().map(sha256_of)?;
                let path = unescaped(fields.next()?)?;
                let told = Written { source, copy, sum: Sum { xxh3, sha256 } };
                if word == "naming" {
                    self.naming.insert(path, told);
                } else {
                    self.parts.remove(&path);
                    self.naming.remove(&path);
                    self.written.insert(path, told);
                }
            }
            _ => {}
        }
        Some(())
    }
}

impl Log {
    /// The log's name in the work folder.
    pub fn name(from: &str, to: &Path) -> String {
        let key = pair_key(from.trim_matches('/').as_bytes(), to.as_os_str().as_bytes());
        format!("out-{key}")
    }

    /// The files that are outside, whole, each with its path below the pair's.
    pub fn all_written(&self) -> Vec<(String, Written)> {
        self.known().written.iter().map(|(path, written)| (path.clone(), *written)).collect()
    }

    /// Opens the log, and reads it; makes it, if there is none.
    pub fn open(fs: &Fs, work: Ino, from: &str, to: &Path) -> Done<Log> {
        let name = Log::name(from, to);
        let flags = OpenFlags { read: true, write: true, append: true, truncate: false };
        let file = loop {
            match fs.lookup(work, name.as_bytes()) {
                Ok(stat) => break fs.open(stat.ino, flags)?,
                Err(error) if error.code != libc::ENOENT => return Err(error.into()),
                Err(_) => {}
            }
            match fs.create(work, name.as_bytes(), 0o600, flags, Maker::this_process()?) {
                Err(error) if error.code == libc::EEXIST => {}
                made => break made?.1,
            }
        };
        let mut bytes = vec![0; file.stat()?.size as usize];
        let count = file.read(0, &mut bytes)?;
        let mut known = Known::default();
        for line in String::from_utf8_lossy(&bytes[..count]).lines() {
            let _ = known.take(line);
        }
        Ok(Log { file, known: Mutex::new(known) })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the log says of a path, if it is outside.
    pub fn written(&self, path: &str) -> Option<Written> {
        self.known().written.get(path).copied()
    }

    /// What a copy was that was about to take its name when a stage died, if it is what is there
    /// now.
    pub fn named(&self, path: &str, there: Seen) -> Option<Written> {
        let known = self.known().naming.get(path).copied();
        known.filter(|known| Seen { changed: there.changed, ..known.copy } == there)
    }

    /// How many parts of a file are outside that is as it was when they were written.
    pub fn parts(&self, path: &str, source: &Seen) -> u64 {
        let known = self.known();
        known.parts.get(path).filter(|(of, _)| of == source).map_or(0, |(_, count)| *count)
    }

    /// So many parts of a file are durable.
    pub fn note_parts(&self, path: &str, source: &Seen, count: u64) -> Done<()> {
        self.known().parts.insert(path.to_owned(), (*source, count));
        let Seen { ino, size, written, .. } = source;
        self.add(&format!("parts {ino}:{size}:{written} {count} {}\n", escaped(path)))
    }

    /// A copy that is whole is about to take its name.
    pub fn note_naming(&self, path: &str, copy: &Written) -> Done<()> {
        self.known().naming.insert(path.to_owned(), *copy);
        self.add_copy("naming", path, copy)
    }

    /// A file is outside, whole.
    pub fn note_written(&self, path: &str, done: &Written) -> Done<()> {
        let mut known = self.known();
        known.parts.remove(path);
        known.naming.remove(path);
        known.written.insert(path.to_owned(), *done);
        drop(known);
        self.add_copy("done", path, done)
    }

    fn add_copy(&self, word: &str, path: &str, told: &Written) -> Done<()> {
        let (source, copy) = (told.source, told.copy);
        let sha256 = told.sum.sha256_text();
        self.add(&format!(
            "{word} {}:{}:{} {}:{}:{}:{}:{} {} {} {}\n",
            source.ino,
            source.size,
            source.written,
            copy.dev,
            copy.ino,
            copy.size,
            copy.written,
            copy.changed,
            told.sum,
            sha256.as_deref().unwrap_or("-"),
            escaped(path)
        ))
    }

    fn add(&self, line: &str) -> Done<()> {
        self.file.write(0, line.as_bytes())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Known;

    proptest! {
        #[test]
        fn any_line_is_read_or_left_out(line in "(parts|done) [-0-9a-f: ]*(.*)") {
            let _ = Known::default().take(&line);
        }
    }
}
