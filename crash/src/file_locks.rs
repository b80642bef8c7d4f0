//! Locks of files, as programs take them: no two have one at once, and none outlives its holder.
//!
//! Who has a lock leaves a number on the board, and finds it again as long as it has the lock. Each
//! of the files is locked by another call.

use std::fs::{File, OpenOptions};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use engram::{LockMode, NewObject, Realm};
use engram_fs::{ByteRange, Fs, Locks, OpenFlags, Taker};

use crate::board::{Board, FILE_LOCKS};
use crate::called::Home;
use crate::calls::{self, Means};
use crate::data::Random;
use crate::files::folder_at;
use crate::machine::rest;
use crate::operation::index_mode;
use crate::pool::over;

/// How long a living holder may take to let go.
const PATIENCE: Duration = Duration::from_secs(20);
/// By what each file is locked.
const MEANS: [Means; FILE_LOCKS] = [Means::Process, Means::Open, Means::Whole];

fn path_of(place: usize) -> String {
    format!("files/lock{place}")
}

/// Makes what is locked.
pub(crate) fn make(realm: &Realm) {
    for place in 0..FILE_LOCKS {
        let (new, placement) = (NewObject::blob(), over(index_mode(5)));
        realm.put(realm.root(), &path_of(place), &new, b"", placement).expect("a file");
    }
}

/// A lock that is held.
pub(crate) struct Locked {
    _file: File,
    word: &'static AtomicU64,
    number: u64,
    place: usize,
    /// The number of the operation before which it was taken.
    pub(crate) since: u64,
}

impl Locked {
    /// Takes a lock, if it is to be had.
    ///
    /// # Panics
    ///
    /// If it is refused for another reason than another's lock.
    pub(crate) fn take(home: &Home, board: &'static Board, seed: u64, since: u64) -> Option<Self> {
        let mut random = Random(seed);
        let place = random.below(FILE_LOCKS as u64) as usize;
        let file = OpenOptions::new().read(true).write(true).open(home.path(&path_of(place)));
        let file = file.expect("nobody takes it away");
        match calls::lock(&file, MEANS[place], random.percent(30)) {
            Ok(()) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                return None;
            }
            Err(error) => panic!("locking {}: {error}", path_of(place)),
        }
        let (word, number) = (&board.file_locks[place], random.any());
        word.store(number, SeqCst);
        Some(Locked { _file: file, word, number, place, since })
    }

    /// Looks whether nobody else has taken it since.
    ///
    /// # Panics
    ///
    /// If somebody has.
    pub(crate) fn check(&self) {
        let (found, path) = (self.word.load(SeqCst), path_of(self.place));
        assert_eq!(found, self.number, "another has locked {path}, who should not");
    }
}

/// Takes every lock: whoever lives lets go soon, and the dead hold none.
///
/// # Panics
///
/// If one is not to be had.
pub(crate) fn check_all(fs: &Fs) -> u64 {
    let (locks, taker) = (Locks::default(), Taker { owner: 1, description: 1 });
    for place in 0..FILE_LOCKS {
        let path = path_of(place);
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let file = folder_at(fs, &path).and_then(|ino| fs.open(ino, flags)).expect("a file");
        let (all, until) = (ByteRange::of(0, u64::MAX), Instant::now() + PATIENCE);
        while !locks.try_lock(&file, taker, LockMode::Write, all).expect("a lock") {
            assert!(Instant::now() < until, "{path} is locked, and nobody has it who lives");
            rest(Duration::from_micros(300));
        }
        locks.unlock(&file, taker.owner, all).expect("unlocking");
    }
    FILE_LOCKS as u64
}
