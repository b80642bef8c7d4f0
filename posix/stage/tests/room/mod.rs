//! A pool and a folder outside, for tests of stages.

use std::path::PathBuf;

use engram::{CreateOptions, Pool};
use engram_fs::{Fs, Options as Shown};
use engram_stage::{
    Options, Pace, Progress, Report, Source, Target, Verify, check, stage_in, stage_out,
};

pub const MIB: u64 = 1 << 20;

/// A pool, and a folder outside, for both of which a test has names.
pub struct Room {
    folder: tempfile::TempDir,
    /// The pool.
    pub pool: Pool,
}

impl Room {
    pub fn new() -> Room {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = CreateOptions { size: 256 * MIB, force: true, ..CreateOptions::default() };
        let pool = Pool::create(&folder.path().join("pool"), &options).unwrap();
        Room { folder, pool }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn fs(&self) -> Fs {
        Fs::new(self.pool.namespace("default").unwrap(), Shown::default()).unwrap()
    }

    pub fn bring(&self, from: &str, options: &Options) -> Report {
        let sources = [Source::new(self.path(from), "in")];
        let (pace, progress) = (Pace::new(None, None), Progress::default());
        stage_in(&self.fs(), &sources, options, &pace, &progress).unwrap()
    }

    pub fn take(&self, to: &str, options: &Options) -> Report {
        let targets = [self.target(to)];
        let (pace, progress) = (Pace::new(None, None), Progress::default());
        stage_out(&self.fs(), &targets, options, &pace, &progress).unwrap()
    }

    /// What brings "in" to a folder outside.
    pub fn target(&self, to: &str) -> Target {
        Target { from: "in".to_owned(), to: self.path(to) }
    }

    pub fn check(&self, folder: &str) -> Vec<String> {
        let progress = Progress::default();
        let found = check(&self.path(folder), &Pace::new(None, None), &progress).unwrap();
        found.into_iter().map(|trouble| format!("{}: {}", trouble.path, trouble.why)).collect()
    }
}

/// Options of a stage with two workers.
pub fn two(verify: Verify) -> Options {
    Options { workers: 2, verify, ..Options::default() }
}
