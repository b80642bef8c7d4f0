//! The kernel and [`engram_fs::Asked`] answer alike, whoever asks for whatever.

mod ours;
mod paths;
mod races;
mod real;
mod rules;
mod steps;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use engram::{CreateOptions, Pool};
use engram_fs::{Changes, Fs, Options, ROOT};
use proptest::prelude::*;
use tempfile::TempDir;

use ours::{End, Ours};
use real::Real;
use steps::{Given, Step, begun, step};

/// A folder and a namespace that are alike.
struct Both {
    real: Option<Real>,
    ours: Ours,
    pool: Pool,
    dir: TempDir,
}

impl Both {
    fn new() -> Both {
        let dir = match real::why_not() {
            None => tempfile::tempdir_in("/dev/shm").unwrap(),
            Some(_) => tempfile::tempdir().unwrap(),
        };
        let root = dir.path().join("in/real");
        fs::create_dir_all(&root).unwrap();
        for folder in [dir.path(), &dir.path().join("in")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        let options = CreateOptions { size: 32 << 20, force: true, ..CreateOptions::default() };
        let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
        let fs = Fs::new(pool.namespace("default").unwrap(), Options::default()).unwrap();
        let changes =
            Changes { mode: Some(0o777), uid: Some(0), gid: Some(0), ..Changes::default() };
        fs.change(ROOT, changes).unwrap();
        let prefix = root.to_str().unwrap().to_owned();
        let real = match real::why_not() {
            None => Some(Real::new(root)),
            Some(why) => {
                eprintln!("not compared with the kernel: {why}");
                None
            }
        };
        Both { real, ours: Ours { fs, prefix }, pool, dir }
    }

    /// What both give for a step; `None` if it is nothing to compare.
    fn run(&self, step: &Step) -> Option<(Given, Given)> {
        let real = self.real.as_ref();
        if real.is_some_and(|real| real.is_kept_from(step)) {
            return None;
        }
        let from = self.ours.begin(step.from)?;
        // First of ours: what leads out is not done, so that all stays as it is there.
        let kernel_from = match real {
            Some(real) => Some(real.begin(step.from)?),
            None => None,
        };
        let End::Given(given) = self.ours.run(step, from) else { return None };
        match (real, &kernel_from) {
            (Some(real), Some(from)) => Some((real.run(step, from), given)),
            _ => Some((given.clone(), given)),
        }
    }

    /// The differences of the two trees.
    fn differences(&self) -> Vec<String> {
        let Some(real) = &self.real else { return Vec::new() };
        let (real, ours) = (real.tree(), self.ours.tree());
        let missing =
            real.iter().filter(|line| !ours.contains(line)).map(|line| format!("- {line}"));
        let more = ours.iter().filter(|line| !real.contains(line)).map(|line| format!("+ {line}"));
        missing.chain(more).collect()
    }

    fn close(self) {
        let Both { ours, pool, dir, .. } = self;
        drop(ours);
        pool.close();
        let verified = engram::verify(&dir.path().join("pool")).unwrap();
        assert_eq!(verified.problems, Vec::<String>::new());
        std::env::set_current_dir("/").unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn the_kernel_answers_the_same(
        from_nothing in prop::bool::weighted(0.3),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        if let Some(why) = real::why_not() {
            eprintln!("skipped: {why}");
            return Ok(());
        }
        real::stand_alone();
        let both = Both::new();
        let begun = if from_nothing { Vec::new() } else { begun() };
        for (place, step) in begun.iter().chain(&steps).enumerate() {
            if let Some((expected, given)) = both.run(step) {
                prop_assert_eq!(expected, given, "step {}: {:?}", place, step);
            }
        }
        prop_assert_eq!(both.differences(), Vec::<String>::new());
        both.close();
    }
}
