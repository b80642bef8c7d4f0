//! Slots: stages of several jobs, on several nodes, that take turns at a file system.
//!
//! A *folder of slots* lies where all of them see it: on the file system that they share. Its file
//! [`LIMITS`] says how many stages may work at once, and how fast all of them together:
//!
//! ```text
//! slots 2
//! rate 400000000
//! files 1000
//! ```
//!
//! `rate` is in bytes a second. A line that is missing is no limit; without `slots` there is one.
//!
//! *Protocol*. A stage works while it has one of the files `slot-0`, `slot-1`, ... locked. The
//! kernel lets go of the lock with the process, wherever the others are: the slot of one that died
//! is free at once. Each has an equal part of the rates. The file of limits is read again while
//! stages work, so an administrator raises and lowers them for all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engram::{Error, Kind, Result};
use rustix::fs::{FlockOperation, flock};

/// The file of limits, in the folder of slots.
pub const LIMITS: &str = "limits";
/// Between two looks for a free slot, each of which costs the shared file system: a hundredth of
/// the time waited so far, within these bounds.
const LOOKS: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];
/// So long all slots may be closed to this user.
const DENIED: Duration = Duration::from_secs(2);
/// So many slots there are at most.
const MOST: u64 = 1024;

/// What a folder of slots says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many stages may work at once.
    pub slots: u64,
    /// So many bytes a second may all of them together move; `None`: there is no limit.
    pub bytes: Option<u64>,
    /// So many files a second.
    pub files: Option<u64>,
}

impl Limits {
    /// Reads the limits of a folder; the error names the line that cannot be read.
    pub fn of(folder: &Path) -> Result<Limits> {
        let path = folder.join(LIMITS);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| failed(&path, "cannot be read", &error))?,
        };
        Limits::parse(&text).map_err(|line| {
            let path = path.display();
            let why = "has lines `slots N`, `rate BYTES` and `files N`, N from 1 on";
            Error::new(Kind::Format, format!("{path}: {line:?} cannot be read: the file {why}"))
        })
    }

    fn parse(text: &str) -> std::result::Result<Limits, String> {
        let mut limits = Limits { slots: 1, bytes: None, files: None };
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (key, value) = line.trim().split_once(' ').ok_or(line)?;
            let value = value.trim().parse().ok().filter(|value| *value > 0).ok_or(line)?;
            match key {
                "slots" if value <= MOST => limits.slots = value,
                "rate" => limits.bytes = Some(value),
                "files" => limits.files = Some(value),
                _ => return Err(line.to_owned()),
            }
        }
        Ok(limits)
    }

    /// What [`of`](Limits::of) reads.
    pub fn text(self) -> String {
        let line = |key: &str, value: Option<u64>| {
            value.map_or(String::new(), |value| format!("{key} {value}\n"))
        };
        format!(
            "{}{}{}",
            line("slots", Some(self.slots)),
            line("rate", self.bytes),
            line("files", self.files)
        )
    }

    /// The part of one slot: so many bytes and files a second.
    pub fn of_one(self) -> (Option<u64>, Option<u64>) {
        let part = |limit: Option<u64>| limit.map(|limit| (limit / self.slots).max(1));
        (part(self.bytes), part(self.files))
    }

    /// Makes a folder of slots with these limits, or gives them to one that is there.
    pub fn set(self, folder: &Path) -> Result<()> {
        if !folder.is_dir() {
            // Each user's stages make and lock files in it.
            let mode = fs::Permissions::from_mode(0o1777);
            fs::create_dir_all(folder)
                .and_then(|()| fs::set_permissions(folder, mode))
                .map_err(|error| failed(folder, "cannot be made", &error))?;
        }
        let (path, part) = (folder.join(LIMITS), folder.join(".limits"));
        let _ = fs::remove_file(&part);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&part)
            .and_then(|mut file| {
                file.write_all(self.text().as_bytes())?;
                // All users' stages read it, whatever this process's umask.
                file.set_permissions(fs::Permissions::from_mode(0o644))
            })
            .and_then(|()| fs::rename(&part, &path))
            .map_err(|error| failed(&path, "cannot be written", &error))
    }
}

fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => Kind::NotFound,
        io::ErrorKind::PermissionDenied => Kind::Access,
        _ => Kind::Os,
    };
    Error::new(kind, format!("{} {what}: {error}", path.display()))
}

/// A slot that this stage has, until it is dropped.
pub struct Slot {
    folder: PathBuf,
    _file: File,
}

impl Slot {
    /// Waits for a slot; `None`: `ended` says that nobody goes on.
    pub fn take(folder: &Path, ended: impl Fn() -> bool) -> Result<Option<Slot>> {
        // A folder without limits is somebody's, and not meant.
        if !folder.join(LIMITS).is_file() {
            return Err(Error::new(
                Kind::NotFound,
                format!(
                    "{} is no folder of slots: make one by `engram stage slots`",
                    folder.display()
                ),
            ));
        }
        let begun = Instant::now();
        loop {
            if ended() {
                return Ok(None);
            }
            let mut denied = Vec::new();
            let slots = Limits::of(folder)?.slots;
            for number in 0..slots {
                match try_slot(&folder.join(format!("slot-{number}"))) {
                    Ok(Some(file)) => {
                        return Ok(Some(Slot { folder: folder.to_owned(), _file: file }));
                    }
                    Ok(None) => {}
                    // Another may be making it just now, and let all have it then.
                    Err(error) if error.kind() == Kind::Access => denied.push(error),
                    Err(error) => return Err(error),
                }
            }
            let all_are = denied.len() as u64 == slots && begun.elapsed() > DENIED;
            if let Some(error) = denied.pop().filter(|_| all_are) {
                return Err(error);
            }
            std::thread::sleep((begun.elapsed() / 100).clamp(LOOKS[0], LOOKS[1]));
        }
    }

    /// So many bytes and files a second are its part now; an error, if nobody can say.
    pub fn pace(&self) -> Result<(Option<u64>, Option<u64>)> {
        Ok(Limits::of(&self.folder)?.of_one())
    }
}

fn try_slot(path: &Path) -> Result<Option<File>> {
    let wrong = |error: io::Error| failed(path, "cannot be locked", &error);
    let mut open = OpenOptions::new();
    open.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).mode(0o666);
    // In a folder that all may write to, the kernel may refuse to make what is there already.
    let file = match open.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = open.create(true).open(path).map_err(wrong)?;
            // Others' stages lock it, too, whatever this process's umask.
            let _ = made.set_permissions(fs::Permissions::from_mode(0o666));
            made
        }
        opened => opened.map_err(wrong)?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(wrong(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::{Limits, Slot};

    proptest! {
        #[test]
        fn what_is_written_is_read(
            slots in 1_u64..1024,
            (bytes, files) in (prop::option::of(1_u64..), prop::option::of(1_u64..)),
        ) {
            let limits = Limits { slots, bytes, files };
            prop_assert_eq!(Limits::parse(&limits.text()), Ok(limits));
        }

        #[test]
        fn anything_is_read_or_named(text in "(slots|rate|files|x)? ?[0-9]{0,5}\n?.*") {
            let _ = Limits::parse(&text);
        }
    }

    #[test]
    fn there_are_as_many_slots_as_the_limits_say() {
        let room = tempfile::tempdir().unwrap();
        let limits = Limits { slots: 2, bytes: Some(1000), files: None };
        limits.set(room.path()).unwrap();
        let never = || false;
        let first = Slot::take(room.path(), never).unwrap().unwrap();
        let _second = Slot::take(room.path(), never).unwrap().unwrap();
        assert_eq!(first.pace().unwrap(), (Some(500), None));
        let begun = Instant::now();
        let ended = || begun.elapsed() > Duration::from_millis(1);
        assert!(Slot::take(room.path(), ended).unwrap().is_none());
        Limits { slots: 4, ..limits }.set(room.path()).unwrap();
        assert_eq!(first.pace().unwrap(), (Some(250), None));
        let _third = Slot::take(room.path(), never).unwrap().unwrap();
        limits.set(room.path()).unwrap();
        drop(first);
        Slot::take(room.path(), never).unwrap().unwrap();
        assert!(Slot::take(&room.path().join("none"), never).is_err());
    }
}
