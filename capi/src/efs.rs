//! echofs's C interface (`efs-api.h`): a job's files loaded, asked for and unloaded while it runs.
//!
//! A program of a job links `libengram` and calls what it called of echofs. The job's environment
//! says where its pool is (`ENGRAM_POOL`), below which folder of the parallel file system its files
//! are (`ENGRAM_ROOT`), and what its backends are called (`ENGRAM_BACKENDS`).
//!
//! *Protocol*. A request begins a task, a thread that does a stage; [`Task`] says how that stands.
//! The stage has the name that `engram stage` would give it. So others see it, and two processes do
//! not copy the same file at once: the second one waits. To unload is a stage-out to where the file
//! came from, looked at by reading it back. Then the stage is dropped: the file goes from the pool
//! if it is safe outside. Tasks end with their process; the same request goes on with them.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use engram::{Error, Kind, Mode, Pool, Result};
use engram_fs::Fs;
use engram_stage::status::begin;
use engram_stage::{
    Existing, Options, Pace, Plan, Progress, Source, Target, Verify, Work, drop_stage,
};

use crate::raw::{self, argument};

/// What a request is about: echofs's control block.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Iocb {
    backend: *mut c_char,
    path: *mut c_char,
    offset: i64,
    size: usize,
    task: c_int,
}

/// What a call came to, in echofs's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Success = 0,
    Snafu = -1,
    Invalid = -2,
    NoMemory = -5,
    ConnectionFailed = -6,
    TaskPending = -11,
    NoSuchTask = -12,
    TaskInProgress = -13,
    NoSuchPath = -14,
    PathExists = -15,
}

/// What each number says, also those that are never given here.
const MESSAGES: [(c_int, &CStr); 16] = [
    (0, c"success"),
    (-1, c"something failed that has no number of its own; `engram stage status` may say what"),
    (-2, c"an argument is not valid: a whole file or folder below root-dir, and a known backend"),
    (-3, c"the request is not valid"),
    (-4, c"the response is not valid"),
    (-5, c"the pool has no room"),
    (-6, c"this is no job's program: ENGRAM_POOL and ENGRAM_ROOT do not name a pool and a folder"),
    (-7, c"the request could not be sent"),
    (-8, c"no response was received"),
    (-9, c"the request could not be packed"),
    (-10, c"the response could not be unpacked"),
    (-11, c"the task is pending"),
    (-12, c"there is no such task in this process"),
    (-13, c"the task is in progress"),
    (-14, c"there is no such path"),
    (-15, c"another file is there already"),
];

/// Between two tries for a file that another process loads.
const AGAIN: Duration = Duration::from_millis(20);

/// A request that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Pending,
    Working,
    Ended(Code),
}

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Load,
    Unload,
}

/// The job that this process belongs to.
struct Job {
    fs: Fs,
    root: PathBuf,
    tasks: Mutex<HashMap<c_int, Task>>,
}

/// Why a task has failed.
fn code_of(error: &Error) -> Code {
    match error.kind() {
        Kind::NotFound => Code::NoSuchPath,
        Kind::Exists => Code::PathExists,
        Kind::PoolFull => Code::NoMemory,
        Kind::Argument | Kind::InvalidName => Code::Invalid,
        _ => Code::Snafu,
    }
}

impl Job {
    /// The job of this process, as its environment tells.
    fn this() -> std::result::Result<Arc<Job>, Code> {
        static JOB: OnceLock<Arc<Job>> = OnceLock::new();
        if let Some(job) = JOB.get() {
            return Ok(Arc::clone(job));
        }
        let job = Job::open().map_err(|_| Code::ConnectionFailed)?;
        Ok(Arc::clone(JOB.get_or_init(|| Arc::new(job))))
    }

    fn open() -> Result<Job> {
        let named = |key: &str| {
            let path = std::env::var_os(key).map(PathBuf::from);
            path.ok_or_else(|| argument(format!("{key} is not set")))
        };
        let (pool, root) = (named("ENGRAM_POOL")?, named("ENGRAM_ROOT")?);
        let pool = Pool::open(&pool, Mode::ReadWrite, true)?;
        let fs = Fs::new(pool.namespace("default")?, engram_fs::Options::default())?;
        Ok(Job { fs, root: plain(&root), tasks: Mutex::default() })
    }

    /// The path that a file of the parallel file system has in the pool.
    fn inside(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix(&self.root).ok()?;
        Some(below.to_str()?.to_owned())
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, HashMap<c_int, Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, task: c_int, state: Task) {
        self.tasks().insert(task, state);
    }

    /// Begins a task, and gives its number.
    fn begin(self: Arc<Self>, request: Request, path: PathBuf, inside: String) -> Result<c_int> {
        let task = {
            let mut tasks = self.tasks();
            let task = tasks.keys().max().map_or(1, |last| last + 1);
            tasks.insert(task, Task::Pending);
            task
        };
        let work = {
            let job = Arc::clone(&self);
            move || {
                let ended = job.run(task, request, path, inside).unwrap_or_else(|e| code_of(&e));
                job.set(task, Task::Ended(ended));
            }
        };
        match std::thread::Builder::new().name("engram-efs".to_owned()).spawn(work) {
            Ok(_) => Ok(task),
            Err(error) => {
                self.tasks().remove(&task);
                Err(Error::new(Kind::Os, format!("no thread for a task: {error}")))
            }
        }
    }

    fn run(&self, task: c_int, request: Request, path: PathBuf, inside: String) -> Result<Code> {
        let usual = Options { existing: Existing::Update, ..Options::default() };
        let load = Work::In(vec![Source::new(path.clone(), inside.clone())]);
        let unload = Work::Out(vec![Target { from: inside, to: path }]);
        let load = Plan::new(&load, usual.clone())?;
        if request == Request::Load {
            return Ok(self.stage(task, &load)?.0);
        }
        let options = Options { verify: Verify::Readback, ..usual };
        let (code, name) = self.stage(task, &Plan::new(&unload, options)?)?;
        if code != Code::Success {
            return Ok(code);
        }
        if !drop_stage(&self.fs, &name, false, false)?.done {
            // Somebody has written to it since.
            return Ok(Code::Snafu);
        }
        match drop_stage(&self.fs, &load.usual_name()?, true, false) {
            Err(error) if error.kind() != Kind::NotFound => Err(error),
            _ => Ok(Code::Success),
        }
    }

    /// Does a stage, once no other process does it; gives its name, too.
    fn stage(&self, task: c_int, plan: &Plan) -> Result<(Code, String)> {
        let name = plan.usual_name()?;
        let begun = loop {
            match begin(&self.fs, &name, plan) {
                Err(error) if error.kind() == Kind::Busy => std::thread::sleep(AGAIN),
                begun => break begun?,
            }
        };
        self.set(task, Task::Working);
        let report = begun.run(&self.fs, plan, &Pace::new(None, None), &Progress::default())?;
        Ok((if report.whole { Code::Success } else { Code::Snafu }, name))
    }
}

/// A path from the root on, as the kernel would follow it where it can.
fn plain(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.into())
}

/// Whether a backend is one of the job's; a request that names none means any.
fn is_backend(named: *const c_char) -> Result<bool> {
    let named = raw::text_or("efs_backend", named, "")?;
    let known = std::env::var("ENGRAM_BACKENDS").unwrap_or_default();
    Ok(named.is_empty() || known.lines().any(|one| one == named))
}

fn ask(block: *mut Iocb, request: Request) -> std::result::Result<(), Code> {
    let told = raw::of_mut("efs_iocb", block).map_err(|_| Code::Invalid)?;
    let path = raw::path("efs_path", told.path).map_err(|_| Code::Invalid)?;
    if !is_backend(told.backend).map_err(|_| Code::Invalid)? || told.offset != 0 {
        return Err(Code::Invalid);
    }
    let job = Job::this()?;
    let path = plain(path);
    let inside = job.inside(&path).ok_or(Code::Invalid)?;
    let outside = std::fs::metadata(&path);
    match &outside {
        // Parts of files are not loaded: a size names all of it, or nothing.
        Ok(meta) if told.size != 0 && told.size as u64 != meta.len() => return Err(Code::Invalid),
        Err(_) if request == Request::Load => return Err(Code::NoSuchPath),
        _ => {}
    }
    if request == Request::Unload && job.fs.walk(engram_fs::ROOT, &inside).is_err() {
        return Err(Code::NoSuchPath);
    }
    told.task = job.begin(request, path, inside).map_err(|error| code_of(&error))?;
    Ok(())
}

fn number(asked: impl FnOnce() -> std::result::Result<(), Code>) -> c_int {
    let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(asked));
    asked.unwrap_or(Err(Code::Snafu)).err().unwrap_or(Code::Success) as c_int
}

/// Begins to load a file or folder of the parallel file system into the job's pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn efs_load(block: *mut Iocb) -> c_int {
    number(|| ask(block, Request::Load))
}

/// Begins to bring a file or folder back to where it was loaded from, and to drop it from the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn efs_unload(block: *mut Iocb) -> c_int {
    number(|| ask(block, Request::Unload))
}

/// How the last request of a control block stands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn efs_status(block: *mut Iocb) -> c_int {
    number(|| {
        let told = raw::of("efs_iocb", block).map_err(|_| Code::Invalid)?;
        let task = Job::this()?.tasks().get(&told.task).copied();
        match task {
            None => Err(Code::NoSuchTask),
            Some(Task::Pending) => Err(Code::TaskPending),
            Some(Task::Working) => Err(Code::TaskInProgress),
            Some(Task::Ended(Code::Success)) => Ok(()),
            Some(Task::Ended(code)) => Err(code),
        }
    })
}

/// What a number says; the string stays.
#[unsafe(no_mangle)]
pub extern "C" fn efs_strerror(code: c_int) -> *mut c_char {
    let known = MESSAGES.iter().find(|(known, _)| *known == code);
    known.map_or(c"unknown", |(_, message)| message).as_ptr().cast_mut()
}
