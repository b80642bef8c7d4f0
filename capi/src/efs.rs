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
//! if it is safe outside, as a file is that nobody has changed. Tasks end with their process; the
//! same request goes on with them.

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
    /// By the process that has begun them, and a number: a child that was forked has none.
    tasks: Mutex<HashMap<(u32, c_int), Task>>,
}

/// What a request is about.
#[derive(Clone)]
struct Subject {
    /// Where its bytes are outside, or are to be.
    outside: PathBuf,
    /// Its path in the pool.
    inside: String,
    device: Option<u32>,
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
        // As files below it are named: through its own links, too.
        let root = root.canonicalize().unwrap_or(root);
        Ok(Job { fs, root, tasks: Mutex::default() })
    }

    /// The path that a file of the parallel file system has in the pool.
    fn inside(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix(&self.root).ok()?;
        Some(below.to_str()?.to_owned())
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, HashMap<(u32, c_int), Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, task: c_int, state: Task) {
        self.tasks().insert((std::process::id(), task), state);
    }

    /// Begins a task, and gives its number.
    fn begin(self: Arc<Self>, request: Request, subject: Subject) -> Result<c_int> {
        let own = std::process::id();
        let task = {
            let mut tasks = self.tasks();
            let last = tasks.keys().filter(|(pid, _)| *pid == own).map(|(_, task)| *task).max();
            let task = last.unwrap_or(0) + 1;
            tasks.insert((own, task), Task::Pending);
            task
        };
        let work = {
            let job = Arc::clone(&self);
            move || {
                let ended = job.run(task, request, &subject).unwrap_or_else(|e| code_of(&e));
                job.set(task, Task::Ended(ended));
            }
        };
        match std::thread::Builder::new().name("engram-efs".to_owned()).spawn(work) {
            Ok(_) => Ok(task),
            Err(error) => {
                self.tasks().remove(&(own, task));
                Err(Error::new(Kind::Os, format!("no thread for a task: {error}")))
            }
        }
    }

    fn run(&self, task: c_int, request: Request, subject: &Subject) -> Result<Code> {
        let Subject { outside, inside, device } = subject.clone();
        let usual = Options { existing: Existing::Update, ..Options::default() };
        let source = Source { device, ..Source::new(outside.clone(), inside.clone()) };
        let load = Plan::new(&Work::In(vec![source]), usual.clone())?;
        if request == Request::Load {
            return self.stage(task, &load);
        }
        let unload = Work::Out(vec![Target { from: inside.clone(), to: outside }]);
        let unload = Plan::new(&unload, Options { verify: Verify::Readback, ..usual })?;
        let code = self.stage(task, &unload)?;
        if code != Code::Success {
            return Ok(code);
        }
        self.drop(&unload, false)?;
        // What is there still was changed on both sides, or since: a newer file outside stays.
        let left = self.fs.walk(engram_fs::ROOT, &inside).is_ok_and(|at| at.stat.is_some());
        if left {
            return Ok(Code::PathExists);
        }
        self.drop(&load, true)?;
        Ok(Code::Success)
    }

    /// Drops a stage that this process, or another, has done.
    fn drop(&self, plan: &Plan, keep: bool) -> Result<()> {
        loop {
            match drop_stage(&self.fs, &plan.usual_name()?, keep, false) {
                Err(error) if error.kind() == Kind::Busy => std::thread::sleep(AGAIN),
                Err(error) if error.kind() != Kind::NotFound => return Err(error),
                _ => return Ok(()),
            }
        }
    }

    /// Does a stage, once no other process does it.
    fn stage(&self, task: c_int, plan: &Plan) -> Result<Code> {
        let name = plan.usual_name()?;
        let begun = loop {
            match begin(&self.fs, &name, plan) {
                Err(error) if error.kind() == Kind::Busy => std::thread::sleep(AGAIN),
                begun => break begun?,
            }
        };
        self.set(task, Task::Working);
        let report = begun.run(&self.fs, plan, &Pace::new(None, None), &Progress::default())?;
        Ok(if report.whole { Code::Success } else { Code::Snafu })
    }
}

/// A path from the root on: its folders as the kernel would follow them, as far as they are there,
/// and the name as it is.
fn plain(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    for above in path.ancestors().skip(1) {
        if let (Ok(there), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return there.join(rest);
        }
    }
    path
}

/// The device of a backend, by its id or type, where the pool has several. A request that names no
/// backend means any.
fn device_of(backend: *const c_char) -> std::result::Result<Option<u32>, Code> {
    let named = raw::text_or("efs_backend", backend, "").map_err(|_| Code::Invalid)?;
    if named.is_empty() {
        return Ok(None);
    }
    let known = std::env::var("ENGRAM_BACKENDS").unwrap_or_default();
    let mut known = known.lines().map(|line| line.split_once('\t').unwrap_or((line, "")));
    let found = known.find(|(name, _)| *name == named);
    found.map(|(_, device)| device.parse().ok()).ok_or(Code::Invalid)
}

fn ask(block: *mut Iocb, request: Request) -> std::result::Result<(), Code> {
    let told = raw::of_mut("efs_iocb", block).map_err(|_| Code::Invalid)?;
    let path = raw::path("efs_path", told.path).map_err(|_| Code::Invalid)?;
    let device = device_of(told.backend)?;
    if told.offset != 0 {
        return Err(Code::Invalid);
    }
    let job = Job::this()?;
    let path = plain(path);
    let inside = job.inside(&path).ok_or(Code::Invalid)?;
    match std::fs::metadata(&path) {
        // Parts of files are not loaded: a size names all of it, or nothing.
        Ok(meta) if told.size != 0 && told.size as u64 != meta.len() => return Err(Code::Invalid),
        Err(_) if request == Request::Load => return Err(Code::NoSuchPath),
        _ => {}
    }
    let is_there = || job.fs.walk(engram_fs::ROOT, &inside).is_ok_and(|at| at.stat.is_some());
    if request == Request::Unload && !is_there() {
        return Err(Code::NoSuchPath);
    }
    // What a link leads to is loaded under the link's name.
    let outside = path.canonicalize().unwrap_or(path);
    let subject = Subject { outside, inside, device };
    told.task = job.begin(request, subject).map_err(|error| code_of(&error))?;
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
        let task = (std::process::id(), told.task);
        let task = Job::this()?.tasks().get(&task).copied();
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
