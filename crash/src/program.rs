//! A worker that reaches the pool through the preload library alone: a program of its own, which
//! calls the C library, and does not know that what is below a folder is no file of the kernel's.
//!
//! It does with files what follows from seeds, as the others do, and also becomes itself anew with
//! the files that it has open, forks, locks files, and now and then opens the pool itself: then two
//! engines are in one process.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Seek;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};

use engram::Mode;

use crate::board::{Board, is_child};
use crate::called::{self, Home, Open};
use crate::data::Random;
use crate::file_locks::Locked;
use crate::files::HANDLES;
use crate::machine::{Shared, inherited, leave};
use crate::operation::{Operation, Outcome, Urge};
use crate::pool::{NAMESPACE, open};
use crate::worker::Place;
use crate::{calls, common};

/// What a program's first argument is, if it is to be one of these.
const WORD: &str = "--program";
/// For how many operations it keeps a lock.
const LOCKED_FOR: u64 = 3;
/// How often it looks whether it is left alone.
const LOOK_EVERY: u64 = 64;

/// The library that is preloaded: where `ENGRAM_PRELOAD_LIBRARY` says, or beside this program.
///
/// # Errors
///
/// If there is none.
pub fn library() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("ENGRAM_PRELOAD_LIBRARY") {
        return Ok(named.into());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("libengram_preload.so"));
    let told = || format!("there is no libengram_preload.so beside {}", own.display());
    found.into_iter().find(|library| library.is_file()).ok_or_else(told)
}

/// Becomes a program that works in a slot, below a prefix beside the pool.
///
/// # Panics
///
/// If it does not start.
pub fn start(place: &Place, board: &Shared<Board>, library: &Path) -> ! {
    let prefix = place.path.with_file_name("seen");
    let mut run = place.path.clone().into_os_string();
    run.push("=");
    run.push(&prefix);
    let error = command(place, board, &prefix)
        .env("LD_PRELOAD", library)
        .env("ENGRAM_RUN", run)
        .env("ENGRAM_RUN_NAMESPACE", NAMESPACE)
        .exec();
    panic!("a program does not start: {error}");
}

/// How a program is started that works in a slot.
fn command(place: &Place, board: &Shared<Board>, prefix: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args([WORD, &place.slot.to_string(), &board.number().to_string()])
        .arg(place.controller.to_string())
        .args([place.path.as_path(), prefix]);
    command
}

/// What a program knows of a file that the one before it has left open.
struct Left {
    fd: RawFd,
    /// Its number, its size, and the offset.
    is: [u64; 3],
}

impl Left {
    fn facts(file: &mut File) -> [u64; 3] {
        let stat = file.metadata().expect("a file that is open");
        [stat.ino(), stat.size(), file.stream_position().expect("an offset")]
    }

    /// Leaves it open for the next one.
    fn of(mut file: File) -> Left {
        let is = Left::facts(&mut file);
        Left { fd: calls::leave_open(file), is }
    }

    fn written(&self) -> String {
        let [ino, size, offset] = self.is;
        format!("{}:{ino}:{size}:{offset}", self.fd)
    }

    fn read(text: &str) -> Left {
        let mut words = text.split(':').map(|word| word.parse::<u64>().expect("a number"));
        let mut next = || words.next().expect("four numbers");
        Left { fd: next() as RawFd, is: [next(), next(), next()] }
    }

    /// The file, which is what it was.
    fn file(self) -> File {
        let mut file = inherited(self.fd);
        assert_eq!(Left::facts(&mut file), self.is, "a file that was left open is another one");
        let flags = calls::flags_of(&file).expect("flags") & libc::O_ACCMODE;
        assert_eq!(flags, libc::O_RDWR, "a file that was left open is open otherwise");
        file
    }
}

/// A program at work.
struct Program {
    place: Place,
    board: &'static Shared<Board>,
    prefix: String,
    home: Home,
    open: Open,
    /// Shared by a child and its parent, and from one program to the next.
    log: File,
    locked: Option<Locked>,
}

/// If these are the arguments of a program that [`start`] has started: goes on as that one.
///
/// # Panics
///
/// If its arguments say no such thing.
pub fn live_if_asked() {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let Some((word, words)) = words.split_first() else { return };
    if word != WORD {
        return;
    }
    let number =
        |word: &OsStr| word.to_str().and_then(|word| word.parse::<i32>().ok()).expect("a number");
    let [slot, board, controller, path, prefix, left @ ..] = words else {
        panic!("a program without its place")
    };
    let shared = Shared::<Board>::of(inherited(number(board)));
    let board: &'static Shared<Board> = Box::leak(Box::new(shared));
    let slot = number(slot) as usize;
    let place = Place { board, slot, path: path.into(), controller: number(controller) };
    place.settle();
    let prefix = prefix.to_str().expect("a path in UTF-8").to_owned();
    Program::new(place, board, prefix, left).run()
}

impl Program {
    fn new(
        place: Place,
        board: &'static Shared<Board>,
        prefix: String,
        left: &[std::ffi::OsString],
    ) -> Self {
        calls::keep_modes();
        // Half of all lives are spent in the folder of the pool.
        let within = place.own().seed.load(SeqCst).is_multiple_of(2);
        let home = Home::new(&prefix, place.slot, within);
        let mut left = left.iter().map(|word| word.to_str().expect("a number"));
        let log = left.next().map(|word| inherited(word.parse().expect("a number")));
        let mut open = Open::default();
        for (place, word) in open.iter_mut().zip(left) {
            *place = (word != "-").then(|| Left::read(word).file());
        }
        let log = log.unwrap_or_else(|| home.log());
        Program { place, board, prefix, home, open, log, locked: None }
    }

    fn run(mut self) -> ! {
        let own = self.place.own();
        if own.started.load(SeqCst) > own.acked.load(SeqCst) {
            // It has become itself.
            own.end(Outcome::Done);
        }
        while !self.is_over() {
            let number = own.started.load(SeqCst) + 1;
            let operation = self.next(number);
            own.begin(&operation);
            let done = self.perform(&operation, number);
            own.end(Outcome::of(done, &operation));
            if number.is_multiple_of(LOOK_EVERY) {
                self.place.die_alone();
            }
        }
        own.ended.store(1, SeqCst);
        leave(0);
    }

    /// The operation of a number: it follows from the life's seed, whatever the program has become
    /// since.
    fn next(&self, number: u64) -> Operation {
        let own = self.place.own();
        let random = &mut Random(own.seed.load(SeqCst) ^ number.rotate_left(40));
        let version = u64::from(own.life.load(SeqCst)) << 24 | number;
        let file = |random: &mut Random| loop {
            let seed = random.any();
            if called::is_a_programs(seed) {
                return Operation::File { seed, version };
            }
        };
        if random.percent(60) {
            match Urge::from_word(own.urge.load(SeqCst)) {
                Urge::None => {}
                Urge::Fork => return Operation::Fork,
                Urge::Reopen => return Operation::Exec,
                Urge::Crowd => return Operation::Crowd { seed: random.any(), version },
                _ => return file(random),
            }
        }
        match random.below(100) {
            0..20 => Operation::Crowd { seed: random.any(), version },
            20..28 => Operation::Lock { seed: random.any() },
            28..31 => Operation::Fork,
            31..34 => Operation::Exec,
            34..36 => Operation::Common { seed: random.any(), version },
            _ => file(random),
        }
    }

    fn perform(&mut self, operation: &Operation, number: u64) -> engram::Result<()> {
        match operation {
            Operation::File { seed, version } => {
                called::perform(&self.home, &mut self.open, *seed, *version)
            }
            Operation::Crowd { seed, version } => {
                called::crowd(&self.home, &self.log, *seed, *version)
            }
            Operation::Lock { seed } => {
                if self.locked.is_none() {
                    self.locked = Locked::take(&self.home, self.place.board, *seed, number);
                }
                Ok(())
            }
            Operation::Fork => {
                self.fork();
                Ok(())
            }
            Operation::Exec => self.become_anew(),
            Operation::Common { seed, version } => {
                let (pool, realm) = open(&self.place.path, Mode::ReadWrite);
                common::write(&realm, &mut Random(*seed), self.place.slot as u64, *version);
                drop(realm);
                pool.close();
                Ok(())
            }
            _ => unreachable!("{operation:?} is not a program's"),
        }
    }

    /// Whether to end. A lock is held for some operations, and never while everybody stands still.
    fn is_over(&mut self) -> bool {
        let own = self.place.own();
        if let Some(locked) = &self.locked {
            locked.check();
            own.checks.fetch_add(1, Relaxed);
            let long = own.started.load(SeqCst) > locked.since + LOCKED_FOR;
            if long || self.place.board.pause.load(SeqCst) != 0 {
                self.locked = None;
            }
        }
        self.place.is_over()
    }

    /// Forks a program that goes on in the slot for this one's child.
    fn fork(&mut self) {
        let Some(place) = self.place.fork() else { return };
        // What its parent has open and locked is so in it, too, until it lets go.
        self.locked = None;
        self.open = Open::default();
        let within = place.own().seed.load(SeqCst).is_multiple_of(2);
        self.home = Home::new(&self.prefix, place.slot, within);
        self.place = place;
        assert!(is_child(self.place.slot));
        let log = self.log.try_clone().expect("another descriptor of the log");
        let (board, prefix) = (self.board, self.prefix.clone());
        let (place, home) = (self.place.clone(), self.home.clone());
        Program { place, board, prefix, home, open: Open::default(), log, locked: None }.run()
    }

    /// Becomes the same program anew, with the files that it has open.
    fn become_anew(&mut self) -> ! {
        self.locked = None;
        let open: [_; HANDLES as usize] = std::mem::take(&mut self.open);
        let left = open.map(|file| file.map_or("-".to_owned(), |file| Left::of(file).written()));
        let log = self.log.try_clone().expect("another descriptor of the log");
        let error = command(&self.place, self.board, Path::new(&self.prefix))
            .arg(calls::leave_open(log).to_string())
            .args(left)
            .exec();
        panic!("a program does not become itself: {error}");
    }
}
