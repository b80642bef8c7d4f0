//! Stages: trees brought into a namespace and out of it, by a thread of the engine's.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engram_fs::Fs;
use engram_stage::{
    Existing, Options, Pace, Progress, Report, Source, Target, Verify, check, stage_in, stage_out,
};
use pyo3::prelude::*;

use crate::error::{Failure, Result, argument};
use crate::namespace::Namespace;

/// Between two looks whether a stage has ended, or a signal has come.
const BLINK: Duration = Duration::from_millis(20);

/// A stage at work, or one that has ended.
#[pyclass(frozen, module = "engram._engram")]
pub struct Stage {
    progress: Arc<Progress>,
    pace: Arc<Pace>,
    thread: Mutex<Option<JoinHandle<engram::Result<Report>>>>,
}

/// What came of a stage.
#[pyclass(frozen, get_all, module = "engram._engram")]
pub struct StageReport {
    /// How many files, links and special files are there.
    files: u64,
    /// How many bytes they have.
    nbytes: u64,
    /// How many of them were there before.
    files_reused: u64,
    /// How many bytes those have.
    nbytes_reused: u64,
    /// Whether all of it was done.
    whole: bool,
    /// How long it took, in seconds.
    seconds: f64,
    /// What could not be done, and why.
    troubles: Vec<(String, String)>,
}

impl From<Report> for StageReport {
    fn from(report: Report) -> Self {
        StageReport {
            files: report.files,
            nbytes: report.bytes,
            files_reused: report.files_reused,
            nbytes_reused: report.bytes_reused,
            whole: report.whole,
            seconds: report.took.as_secs_f64(),
            troubles: report.troubles.into_iter().map(|one| (one.path, one.why)).collect(),
        }
    }
}

fn options(
    workers: usize,
    verify: &str,
    existing: &str,
    sha256: bool,
    keep_owners: Option<bool>,
) -> Result<Options> {
    let usual = Options::default();
    Ok(Options {
        workers: if workers == 0 { usual.workers } else { workers },
        verify: match verify {
            "size" => Verify::Size,
            "written" => Verify::Written,
            "readback" => Verify::Readback,
            _ => return Err(argument(format!("copies are not looked at by {verify:?}"))),
        },
        existing: match existing {
            "refuse" => Existing::Refuse,
            "overwrite" => Existing::Overwrite,
            "update" => Existing::Update,
            _ => return Err(argument(format!("{existing:?} is nothing that is done with files"))),
        },
        sha256,
        keep_owners: keep_owners.unwrap_or(usual.keep_owners),
        ..usual
    })
}

#[pymethods]
impl Stage {
    /// Begins a stage, which goes on while others run.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "a stage's options, one each")]
    fn new(
        namespace: &Namespace,
        inward: bool,
        pairs: Vec<(PathBuf, PathBuf)>,
        workers: usize,
        verify: &str,
        existing: &str,
        sha256: bool,
        keep_owners: Option<bool>,
        rate: Option<u64>,
        files_per_second: Option<u64>,
    ) -> Result<Self> {
        let options = options(workers, verify, existing, sha256, keep_owners)?;
        let fs = Fs::new(namespace.engine().clone(), engram_fs::Options::default())
            .map_err(engram::Error::from)?;
        let (progress, pace) =
            (Arc::new(Progress::default()), Arc::new(Pace::new(rate, files_per_second)));
        let of_pool = |path: PathBuf| match path.into_os_string().into_string() {
            Ok(path) => Ok(path),
            Err(path) => Err(argument(format!("{} is not UTF-8", path.display()))),
        };
        let run = {
            let (progress, pace) = (Arc::clone(&progress), Arc::clone(&pace));
            let mut sources = Vec::new();
            let mut targets = Vec::new();
            for (from, to) in pairs {
                if inward {
                    sources.push(Source { from, to: of_pool(to)? });
                } else {
                    targets.push(Target { from: of_pool(from)?, to });
                }
            }
            move || {
                if inward {
                    stage_in(&fs, &sources, options, &pace, &progress)
                } else {
                    stage_out(&fs, &targets, options, &pace, &progress)
                }
            }
        };
        let thread = std::thread::Builder::new().name("engram-stage".to_owned()).spawn(run);
        let thread = thread.map_err(|error| {
            engram::Error::new(engram::Kind::Os, format!("no thread can be started: {error}"))
        })?;
        Ok(Stage { progress, pace, thread: Mutex::new(Some(thread)) })
    }

    /// Waits until it has ended, or for so many seconds; what came of it, or None.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<Option<StageReport>> {
        let begun = Instant::now();
        let ended = loop {
            // Held for a moment alone: others may wait for it with the interpreter.
            let mut held = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            match held.take() {
                None => return Err(argument("the stage has ended, and its report was taken")),
                Some(thread) if thread.is_finished() => break thread.join(),
                Some(thread) => *held = Some(thread),
            }
            drop(held);
            if timeout.is_some_and(|timeout| begun.elapsed().as_secs_f64() >= timeout) {
                return Ok(None);
            }
            py.detach(|| std::thread::sleep(BLINK));
            py.check_signals().map_err(Failure::Python)?;
        };
        match ended {
            Ok(report) => Ok(Some(report?.into())),
            Err(_) => Err(argument("the stage ended by a panic: report it")),
        }
    }

    /// Asks it to end: what is half done is gone on with by the same stage.
    fn stop(&self) {
        self.progress.stop();
    }

    /// Changes how fast it may go.
    fn set_pace(&self, rate: Option<u64>, files_per_second: Option<u64>) {
        self.pace.set(rate, files_per_second);
    }

    /// How far it is: files and bytes, of how many, and how many of these were there before.
    fn progress(&self) -> (u64, u64, u64, u64, u64, u64) {
        let progress = &self.progress;
        (
            progress.files_done.load(Relaxed),
            progress.files.load(Relaxed),
            progress.bytes_done.load(Relaxed),
            progress.bytes.load(Relaxed),
            progress.files_reused.load(Relaxed),
            progress.bytes_reused.load(Relaxed),
        )
    }
}

/// Compares a folder with its manifest: how many files and bytes were looked at, and what is not as
/// it must be.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands it over")]
pub fn check_manifest(py: Python<'_>, folder: PathBuf) -> Result<StageReport> {
    let begun = Instant::now();
    let progress = Progress::default();
    let found = py.detach(|| check(&folder, &Pace::new(None, None), &progress))?;
    let report = Report {
        files: progress.files_done.load(Relaxed),
        bytes: progress.bytes_done.load(Relaxed),
        whole: found.is_empty(),
        troubles: found,
        took: begun.elapsed(),
        ..Report::default()
    };
    Ok(report.into())
}
