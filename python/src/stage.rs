//! Stages: trees brought into a namespace and out of it, by a thread of the engine's.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engram_fs::Fs;
use engram_stage::{
    Asked, Existing, Options, Order, Pace, Plan, Progress, Report, Source, Target, Told, Verify,
    Work, check, slots, status,
};
use pyo3::prelude::*;

use crate::error::{Failure, Result, argument};
use crate::namespace::Namespace;

/// Between two looks whether a stage has ended, or a signal has come: a part of the time waited so
/// far, within these bounds.
const BLINKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// A stage at work, or one that has ended.
#[pyclass(frozen, module = "engram._engram")]
pub struct Stage {
    name: String,
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
    /// The sources that changed while they were read, and were read again.
    changed: Vec<String>,
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
            changed: report.changed,
            troubles: report.troubles.into_iter().map(|one| (one.path, one.why)).collect(),
        }
    }
}

/// How a stage is to be done, as a dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct StageOptions {
    workers: usize,
    verify: String,
    existing: String,
    sha256: bool,
    keep_owners: Option<bool>,
    awaited: bool,
    order: String,
    listed: Vec<String>,
    rate: Option<u64>,
    files_per_second: Option<u64>,
    slots: Option<PathBuf>,
    /// One for each pair of a stage-in, or none at all.
    devices: Vec<Option<Py<PyAny>>>,
}

impl StageOptions {
    fn options(&self) -> Result<Options> {
        let usual = Options::default();
        let none = |what: &str, word: &str| argument(format!("there is no {what} {word:?}"));
        let mut order = Order::of_word(&self.order).ok_or_else(|| none("order", &self.order))?;
        if let Order::Listed { paths, .. } = &mut order {
            paths.clone_from(&self.listed);
        }
        let existing = Existing::of_word(&self.existing);
        Ok(Options {
            workers: if self.workers == 0 { usual.workers } else { self.workers },
            verify: Verify::of_word(&self.verify)
                .ok_or_else(|| none("way to look at copies", &self.verify))?,
            existing: existing.ok_or_else(|| none("word for files there", &self.existing))?,
            sha256: self.sha256,
            keep_owners: self.keep_owners.unwrap_or(usual.keep_owners),
            awaited: self.awaited,
            order,
            ..usual
        })
    }
}

/// What the status file of a stage says.
#[pyclass(frozen, get_all, module = "engram._engram")]
pub struct StageStatus {
    /// The stage's name.
    name: String,
    /// "in" or "out".
    direction: &'static str,
    /// Each pair of paths: from where, and where to.
    pairs: Vec<(String, String)>,
    /// How it stands, a word.
    state: &'static str,
    /// How many files are there.
    files: u64,
    /// How many there are to be.
    files_in_all: u64,
    /// How many bytes are there.
    nbytes: u64,
    /// How many there are to be.
    nbytes_in_all: u64,
    /// How many of the files were there before.
    files_reused: u64,
    /// How many bytes those have.
    nbytes_reused: u64,
    /// When it was begun last, in ns since 1970.
    begun: i64,
    /// When that was noted last, in ns since 1970.
    noted: i64,
    /// The process that works at it, or did.
    pid: u32,
    /// What could not be done, and why.
    troubles: Vec<(String, String)>,
}

fn status_of(told: Told) -> Result<StageStatus> {
    let counts = told.counts;
    Ok(StageStatus {
        name: told.name,
        direction: told.plan.work.word(),
        pairs: told.plan.work.pairs()?,
        state: told.state.word(),
        files: counts.files_done,
        files_in_all: counts.files,
        nbytes: counts.bytes_done,
        nbytes_in_all: counts.bytes,
        files_reused: counts.files_reused,
        nbytes_reused: counts.bytes_reused,
        begun: told.begun,
        noted: told.noted,
        pid: told.pid,
        troubles: told.troubles.into_iter().map(|one| (one.path, one.why)).collect(),
    })
}

fn fs_of(namespace: &Namespace) -> Result<Fs> {
    let fs = Fs::new(namespace.engine().clone(), engram_fs::Options::default());
    Ok(fs.map_err(engram::Error::from)?)
}

/// The stages of a namespace, by name.
#[pyfunction]
pub fn stages(py: Python<'_>, namespace: &Namespace) -> Result<Vec<StageStatus>> {
    let fs = fs_of(namespace)?;
    py.detach(|| status::all(&fs))?.into_iter().map(status_of).collect()
}

/// What the status file of a stage says.
#[pyfunction]
pub fn stage_status(py: Python<'_>, namespace: &Namespace, name: &str) -> Result<StageStatus> {
    let fs = fs_of(namespace)?;
    status_of(py.detach(|| status::one(&fs, name))?)
}

/// Asks a stage that a process works at to end; whether there is such a process.
#[pyfunction]
pub fn stop_stage(py: Python<'_>, namespace: &Namespace, name: &str) -> Result<bool> {
    let fs = fs_of(namespace)?;
    Ok(py.detach(|| status::ask(&fs, name, Asked::Stop))?)
}

/// Asks a stage that a process works at to go at this speed; whether there is such a process.
#[pyfunction]
pub fn pace_stage(
    py: Python<'_>,
    namespace: &Namespace,
    name: &str,
    rate: Option<u64>,
    files_per_second: Option<u64>,
) -> Result<bool> {
    let fs = fs_of(namespace)?;
    let asked = Asked::Pace { bytes: rate, files: files_per_second };
    Ok(py.detach(|| status::ask(&fs, name, asked))?)
}

/// Drops a stage: how many files and bytes that are, what would be lost, and whether it is gone.
#[pyfunction]
pub fn drop_stage(
    py: Python<'_>,
    namespace: &Namespace,
    name: &str,
    keep: bool,
    force: bool,
) -> Result<(u64, u64, Vec<String>, bool)> {
    let fs = fs_of(namespace)?;
    let dropped = py.detach(|| engram_stage::drop_stage(&fs, name, keep, force))?;
    Ok((dropped.files, dropped.bytes, dropped.lost, dropped.done))
}

/// Makes a folder of slots, or changes what its stages may do together.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands it over")]
pub fn set_slots(
    folder: PathBuf,
    slots: u64,
    rate: Option<u64>,
    files_per_second: Option<u64>,
) -> Result<()> {
    Ok(slots::Limits { slots, bytes: rate, files: files_per_second }.set(&folder)?)
}

impl Stage {
    fn begin(py: Python<'_>, namespace: &Namespace, name: String, plan: Plan) -> Result<Self> {
        let fs = fs_of(namespace)?;
        let begun = py.detach(|| status::begin(&fs, &name, &plan))?;
        let pace = Arc::new(Pace::new(plan.bytes_per_second, plan.files_per_second));
        let progress = Arc::new(Progress::default());
        let run = {
            let (progress, pace) = (Arc::clone(&progress), Arc::clone(&pace));
            move || begun.run(&fs, &plan, &pace, &progress)
        };
        let thread = std::thread::Builder::new().name("engram-stage".to_owned()).spawn(run);
        let thread = thread.map_err(|error| {
            engram::Error::new(engram::Kind::Os, format!("no thread can be started: {error}"))
        })?;
        Ok(Stage { name, progress, pace, thread: Mutex::new(Some(thread)) })
    }
}

#[pymethods]
impl Stage {
    /// Begins a stage, which goes on while others run.
    #[new]
    fn new(
        py: Python<'_>,
        namespace: &Namespace,
        name: Option<String>,
        inward: bool,
        pairs: Vec<(PathBuf, PathBuf)>,
        options: StageOptions,
    ) -> Result<Self> {
        let of_pool = |path: PathBuf| match path.into_os_string().into_string() {
            Ok(path) => Ok(path),
            Err(path) => Err(argument(format!("{} is not UTF-8", path.display()))),
        };
        let pairs = pairs.into_iter();
        let work = if inward {
            let mut devices = options.devices.iter();
            let source = |(from, to)| {
                let device = devices.next().and_then(Option::as_ref).map(|one| one.bind(py));
                Ok(Source { from, to: of_pool(to)?, device: namespace.device(device)? })
            };
            Work::In(pairs.map(source).collect::<Result<_>>()?)
        } else {
            let target = |(from, to)| Ok(Target { from: of_pool(from)?, to });
            Work::Out(pairs.map(target).collect::<Result<_>>()?)
        };
        let mut plan = Plan::new(&work, options.options()?)?;
        plan.bytes_per_second = options.rate;
        plan.files_per_second = options.files_per_second;
        plan.slots = options.slots;
        let name = match name {
            Some(name) => name,
            None => plan.usual_name()?,
        };
        Stage::begin(py, namespace, name, plan)
    }

    /// Begins a stage again that has a status file: it does what is left.
    #[staticmethod]
    fn resumed(py: Python<'_>, namespace: &Namespace, name: String) -> Result<Self> {
        let fs = fs_of(namespace)?;
        let told = py.detach(|| status::one(&fs, &name))?;
        Stage::begin(py, namespace, name, told.plan)
    }

    /// The stage's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
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
            let blink = (begun.elapsed() / 50).clamp(BLINKS[0], BLINKS[1]);
            py.detach(|| std::thread::sleep(blink));
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
        let counts = self.progress.counts();
        (
            counts.files_done,
            counts.files,
            counts.bytes_done,
            counts.bytes,
            counts.files_reused,
            counts.bytes_reused,
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
        files: progress.counts().files_done,
        bytes: progress.counts().bytes_done,
        whole: found.is_empty(),
        troubles: found,
        took: begun.elapsed(),
        ..Report::default()
    };
    Ok(report.into())
}
