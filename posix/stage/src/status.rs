//! Stages by name: what each is to do, how far it is, and who is at it.
//!
//! A stage has a *status file* in the pool: a file in the stages' work folder, whose bytes are its
//! [plan](crate::plan) and whose attributes say how it stands ([`STATE`]), what went wrong
//! ([`TROUBLES`]) and what somebody has asked of it ([`ASKED`]).
//!
//! *Protocol*. The process that works at a stage has its status file locked, all of it. The kernel
//! lets go of the lock with the process: a file that says "running" and is not locked is of a stage
//! that died. The process notes how far it is every second, and looks several times a second
//! whether somebody has asked it to stop, or to go at another speed.
//!
//! A process that begins a stage, or drops one, has the file [`BEGIN`] locked while it looks at the
//! others: no two stages are at one pair of paths.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use engram::{Error, Kind, LockMode, Member, Result, Value};
use engram_fs::{ByteRange, Fs, Handle, Ino, Locks, Maker, OpenFlags, ROOT, Taker};

use crate::failure::Failure;
use crate::inward::{WORK, folder_of, stage_in};
use crate::manifest::{escaped, unescaped};
use crate::outward::{listed, stage_out};
use crate::pace::Pace;
use crate::plan::{Plan, Work};
use crate::progress::{Counts, Progress, Report, Trouble};
use crate::slots::Slot;

/// The attribute that says how a stage stands.
pub const STATE: &str = "engram.state";
/// The attribute that says what could not be done.
pub const TROUBLES: &str = "engram.troubles";
/// The attribute by which others ask something of a stage that runs.
pub const ASKED: &str = "engram.asked";
/// So many troubles are kept; the report that the stage ends with has all.
const TROUBLES_MOST: usize = 100;
/// How the names of status files begin.
const PREFIX: &str = "stage-";
/// The file that is locked while a stage is begun, or begins to be dropped.
const BEGIN: &str = "begin";
/// So long others may have it locked; they hold it for a look at the status files.
const BEGIN_MOST: Duration = Duration::from_secs(30);
/// The longest name of a stage, in bytes.
const NAME_MOST: usize = 100;
/// Between two looks at what is asked.
const LOOK: Duration = Duration::from_millis(200);
/// Between two notes how far it is.
const NOTE: Duration = Duration::from_secs(1);
const ALL: ByteRange = ByteRange { from: 0, len: 0 };
const TAKER: Taker = Taker { owner: 1, description: 1 };

/// How a stage stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A process waits for a slot to work at it.
    Waiting,
    /// A process works at it.
    Running,
    /// The process that worked at it has died.
    Died,
    /// All of it was done.
    Whole,
    /// Something could not be done: the troubles say what.
    Incomplete,
    /// Somebody has stopped it.
    Stopped,
    /// Nobody could go on: the last of the troubles says why.
    Failed,
}

impl State {
    /// Every state.
    pub const ALL: [State; 7] = [
        State::Waiting,
        State::Running,
        State::Died,
        State::Whole,
        State::Incomplete,
        State::Stopped,
        State::Failed,
    ];

    /// The word that stands for it.
    pub fn word(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Running => "running",
            State::Died => "died",
            State::Whole => "whole",
            State::Incomplete => "incomplete",
            State::Stopped => "stopped",
            State::Failed => "failed",
        }
    }
}

/// What a status file says.
#[derive(Clone, Debug)]
pub struct Told {
    /// The stage's name.
    pub name: String,
    /// What it is to do.
    pub plan: Plan,
    /// How it stands.
    pub state: State,
    /// How far it is, or was when it ended.
    pub counts: Counts,
    /// When it was begun last, in ns since 1970.
    pub begun: i64,
    /// When that was noted last, in ns since 1970.
    pub noted: i64,
    /// The process that works at it, or did.
    pub pid: u32,
    /// What could not be done: the first hundred.
    pub troubles: Vec<Trouble>,
}

/// What is asked of a stage that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// That it ends.
    Stop,
    /// That it goes at this speed from now on.
    Pace {
        /// So many bytes a second; `None`: as fast as it goes.
        bytes: Option<u64>,
        /// So many files a second.
        files: Option<u64>,
    },
}

impl Asked {
    fn text(self) -> String {
        let limit = |limit: Option<u64>| limit.map_or("-".to_owned(), |limit| limit.to_string());
        match self {
            Asked::Stop => "stop".to_owned(),
            Asked::Pace { bytes, files } => format!("pace {} {}", limit(bytes), limit(files)),
        }
    }

    fn parse(text: &str) -> Option<Asked> {
        if text == "stop" {
            return Some(Asked::Stop);
        }
        let (bytes, files) = text.strip_prefix("pace ")?.split_once(' ')?;
        let limit = |text: &str| if text == "-" { Some(None) } else { text.parse().ok().map(Some) };
        Some(Asked::Pace { bytes: limit(bytes)?, files: limit(files)? })
    }
}

/// The right to begin or drop a stage, which one process has at a time. So two stages that have a
/// pair of paths in common see each other, whatever their names are.
struct BeginLock<'f> {
    fs: &'f Fs,
    work: Ino,
    _handle: Handle,
    _locks: Locks,
}

/// The file is there only while somebody has it, or has died with it.
impl Drop for BeginLock<'_> {
    fn drop(&mut self) {
        // Locked still: whoever waits for it sees that it has gone, and makes another.
        let _ = self.fs.unlink(self.work, BEGIN.as_bytes());
    }
}

impl BeginLock<'_> {
    fn take(fs: &Fs, work: Ino) -> Result<BeginLock<'_>> {
        let (locks, begun) = (Locks::default(), Instant::now());
        loop {
            if let Some(handle) = taken(fs, work, BEGIN, &locks)? {
                return Ok(BeginLock { fs, work, _handle: handle, _locks: locks });
            }
            if begun.elapsed() > BEGIN_MOST {
                let why = "another process begins or drops a stage here, and does not go on: end \
                           it, or try again";
                return Err(Error::new(Kind::Busy, why));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A file in the work folder, made if it is not there, and locked; `None`: another has it locked.
fn taken(fs: &Fs, work: Ino, file: &str, locks: &Locks) -> Result<Option<Handle>> {
    let maker = Maker::this_process()?;
    loop {
        let handle = match fs.lookup(work, file.as_bytes()) {
            Ok(stat) => match fs.open(stat.ino, READ_WRITE) {
                // It was removed between the two steps.
                Err(error) if is_gone(&error) => continue,
                opened => opened?,
            },
            Err(error) if error.code != libc::ENOENT => return Err(error.into()),
            Err(_) => match fs.create(work, file.as_bytes(), 0o600, READ_WRITE, maker) {
                Err(error) if error.code == libc::EEXIST => continue,
                made => made?.1,
            },
        };
        if !locked(&handle, locks)? {
            return Ok(None);
        }
        // Another may have removed it between the two steps.
        let now = fs.lookup(work, file.as_bytes());
        if now.is_ok_and(|now| now.ino == handle.ino()) {
            return Ok(Some(handle));
        }
        locks.closed(handle.ino(), TAKER.owner);
    }
}

/// A status file that this process has locked.
struct StatusFile {
    handle: Handle,
    begun: i64,
    _locks: Locks,
}

fn file_of(name: &str) -> Result<String> {
    if name.is_empty() || name.len() > NAME_MOST || name.contains(['/', '\0']) {
        return Err(Error::new(
            Kind::InvalidName,
            format!("{name:?} is no name of a stage: it has 1 to {NAME_MOST} bytes, and no slash"),
        ));
    }
    Ok(format!("{PREFIX}{name}"))
}

fn unknown(name: &str) -> Error {
    Error::new(
        Kind::NotFound,
        format!("there is no stage {name:?} in this namespace: `engram stage status` lists them"),
    )
}

/// The work folder; `None`: nothing was ever staged here.
pub(crate) fn work_of(fs: &Fs) -> Result<Option<Ino>> {
    match fs.lookup(ROOT, WORK.as_bytes()) {
        Ok(stat) => Ok(Some(stat.ino)),
        Err(error) if error.code == libc::ENOENT => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn file_called(fs: &Fs, name: &str) -> Result<Handle> {
    let file = file_of(name)?;
    let Some(work) = work_of(fs)? else { return Err(unknown(name)) };
    match fs.lookup(work, file.as_bytes()) {
        Ok(stat) => match fs.open(stat.ino, READ_WRITE) {
            Err(error) if is_gone(&error) => Err(unknown(name)),
            opened => Ok(opened?),
        },
        Err(error) if error.code == libc::ENOENT => Err(unknown(name)),
        Err(error) => Err(error.into()),
    }
}

/// Whether a file that was found has been removed since.
fn is_gone(error: &engram_fs::Errno) -> bool {
    [libc::ENOENT, libc::ESTALE].contains(&error.code)
}

const READ_WRITE: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false };

fn text_of(handle: &Handle) -> Result<String> {
    let mut bytes = vec![0; handle.stat()?.size as usize];
    let count = handle.read(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn attr_of(fs: &Fs, file: Ino, key: &str) -> Result<Option<String>> {
    let value = fs.namespace().attr(Member::Object(file), key)?;
    Ok(value.map(|value| String::from_utf8_lossy(&value.data).into_owned()))
}

fn locked(handle: &Handle, locks: &Locks) -> Result<bool> {
    Ok(locks.try_lock(handle, TAKER, LockMode::Write, ALL)?)
}

/// What is said of a stage that another process works at.
fn busy(name: &str) -> Error {
    Error::new(
        Kind::Busy,
        format!(
            "another process works at the stage {name:?}: wait for it, or end it by \
             `engram stage stop`"
        ),
    )
}

impl StatusFile {
    /// Makes a stage's status file, or takes it if it is there, and locks it.
    fn take(fs: &Fs, name: &str, plan: &Plan) -> Result<StatusFile> {
        let file = file_of(name)?;
        let maker = Maker::this_process()?;
        let work = folder_of(fs, ROOT, WORK.as_bytes(), 0o700, maker)?;
        let (text, locks) = (plan.text()?, Locks::default());
        let begins = BeginLock::take(fs, work)?;
        let Some(handle) = taken(fs, work, &file, &locks)? else { return Err(busy(name)) };
        let there = text_of(&handle)?;
        check_same(name, &there, plan)?;
        refuse_shared(fs, work, name, plan)?;
        if there != text {
            // Whoever dies in between leaves a plan, and what it leaves out behind it.
            handle.write(0, text.as_bytes())?;
            handle.set_size(text.len() as u64)?;
        }
        drop(begins);
        let file = StatusFile { handle, begun: engram_fs::now()?, _locks: locks };
        file.clear(fs, ASKED)?;
        file.clear(fs, TROUBLES)?;
        Ok(file)
    }

    fn member(&self) -> Member {
        Member::Object(self.handle.ino())
    }

    fn clear(&self, fs: &Fs, key: &str) -> Result<()> {
        match fs.namespace().delete_attr(self.member(), key) {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            done => done.map(drop),
        }
    }

    fn note(&self, fs: &Fs, state: State, counts: &Counts, troubles: &[Trouble]) -> Result<()> {
        let Counts { files, bytes, files_done, bytes_done, files_reused, bytes_reused } = counts;
        let (begun, now, pid) = (self.begun, engram_fs::now()?, std::process::id());
        let state = format!(
            "{} {begun} {now} {pid} {files} {bytes} {files_done} {bytes_done} {files_reused} \
             {bytes_reused}",
            state.word()
        );
        let mut attrs = vec![(STATE.to_owned(), Value::text(&state))];
        if !troubles.is_empty() {
            let line = |one: &Trouble| format!("{}\t{}\n", tabless(&one.path), tabless(&one.why));
            let text: String = troubles.iter().take(TROUBLES_MOST).map(line).collect();
            attrs.push((TROUBLES.to_owned(), Value::text(&text)));
        }
        fs.namespace().set_attrs(self.member(), &attrs)?;
        Ok(())
    }

    /// Notes how far the stage is, and does what is asked of it, until it has ended.
    fn watch(
        &self,
        fs: &Fs,
        ended: &Ended,
        slot: &OnceLock<Slot>,
        pace: &Pace,
        progress: &Progress,
    ) {
        let (mut noted, mut last) = (Instant::now(), progress.counts());
        let mut done = None;
        while !ended.wait(LOOK) {
            // Where nothing can be noted, the stage goes on: it has its own errors.
            let asked = attr_of(fs, self.handle.ino(), ASKED).ok().flatten();
            if asked != done {
                match asked.as_deref().and_then(Asked::parse) {
                    Some(Asked::Stop) => progress.stop(),
                    Some(Asked::Pace { bytes, files }) => pace.set(bytes, files),
                    None => {}
                }
                done = asked;
            }
            let now = progress.counts();
            // The first soon: whoever dies then has said what there is to do.
            let is_first = last == Counts::default() && now != last;
            if is_first || noted.elapsed() >= NOTE {
                // Limits that cannot be read are as they were.
                if let Some(Ok((bytes, files))) = slot.get().map(Slot::pace) {
                    pace.set_part(bytes, files);
                }
                if now != last {
                    let _ = self.note(fs, State::Running, &now, &[]);
                }
                (noted, last) = (Instant::now(), now);
            }
        }
    }

    /// Waits for a slot, if the stage is to have one; `false`: it was stopped meanwhile.
    fn take_slot(
        &self,
        fs: &Fs,
        plan: &Plan,
        slot: &OnceLock<Slot>,
        pace: &Pace,
        progress: &Progress,
    ) -> Result<bool> {
        let Some(folder) = &plan.slots else { return Ok(true) };
        let Some(taken) = Slot::take(folder, || progress.is_stopped())? else { return Ok(false) };
        let (bytes, files) = taken.pace()?;
        pace.set_part(bytes, files);
        self.note(fs, State::Running, &progress.counts(), &[])?;
        slot.get_or_init(|| taken);
        Ok(true)
    }

    /// Notes how the stage has ended.
    fn end(&self, fs: &Fs, ended: &Result<Report>, progress: &Progress) -> Result<()> {
        let counts = progress.counts();
        match ended {
            Ok(report) if report.whole => self.note(fs, State::Whole, &counts, &[]),
            Ok(report) if progress.is_stopped() => {
                self.note(fs, State::Stopped, &counts, &report.troubles)
            }
            Ok(report) => self.note(fs, State::Incomplete, &counts, &report.troubles),
            Err(error) => {
                let why = error.message().to_owned();
                self.note(fs, State::Failed, &counts, &[Trouble { path: String::new(), why }])
            }
        }
    }
}

/// A field of a line: what would end it is escaped, or becomes a space.
fn tabless(text: &str) -> String {
    escaped(text).replace('\t', " ")
}

/// Whether a status file is a plan's: of the same trees, however they are brought.
fn check_same(name: &str, text: &str, plan: &Plan) -> Result<()> {
    let Some(there) = Plan::parse(text) else { return Ok(()) };
    let (word, pairs) = (there.work.word(), there.work.pairs()?);
    if word == plan.work.word() && pairs == plan.work.pairs()? {
        return Ok(());
    }
    let first = pairs.first().map_or(String::new(), |(from, to)| format!(" from {from} to {to}"));
    Err(Error::new(
        Kind::Exists,
        format!(
            "{name:?} is another stage: {word}{first}; give this one another name, or drop that \
             one by `engram stage drop`"
        ),
    ))
}

/// Refuses paths that another stage is at, or that one is dropped of: each has half-made copies of
/// its own of them. The caller has the lock.
fn refuse_shared(fs: &Fs, work: Ino, name: &str, plan: &Plan) -> Result<()> {
    let own: HashSet<_> = plan.work.pairs()?.into_iter().collect();
    for (entry, stat) in listed(fs, work).map_err(Failure::into_error)? {
        let Some(other) = entry.name.strip_prefix(PREFIX).filter(|other| *other != name) else {
            continue;
        };
        let handle = match fs.open(stat.ino, READ_WRITE) {
            // It was dropped meanwhile.
            Err(error) if is_gone(&error) => continue,
            opened => opened?,
        };
        if !is_locked(&handle)? {
            continue;
        }
        let Some(theirs) = Plan::parse(&text_of(&handle)?) else { continue };
        if theirs.work.word() != plan.work.word() {
            continue;
        }
        if let Some((from, to)) = theirs.work.pairs()?.into_iter().find(|pair| own.contains(pair)) {
            return Err(Error::new(
                Kind::Busy,
                format!("another process is at the stage {other:?}, from {from} to {to}: wait"),
            ));
        }
    }
    Ok(())
}

/// Whether a stage has ended, for the one that watches it.
#[derive(Default)]
struct Ended {
    has: Mutex<bool>,
    told: Condvar,
}

impl Ended {
    /// Waits so long, or until it has.
    fn wait(&self, most: Duration) -> bool {
        let has = self.has.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(has, most, |has| !*has);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Tells that a stage has ended, also by a panic.
struct Ending<'e>(&'e Ended);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *self.0.has.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.told.notify_all();
    }
}

/// A stage that has its name: nobody else works at it.
pub struct Begun {
    file: StatusFile,
}

/// Takes the name of a stage, for one who is to work at it; an error: another process works at it,
/// or another stage has the name.
pub fn begin(fs: &Fs, name: &str, plan: &Plan) -> Result<Begun> {
    let file = StatusFile::take(fs, name, plan)?;
    let state = if plan.slots.is_some() { State::Waiting } else { State::Running };
    file.note(fs, state, &Counts::default(), &[])?;
    Ok(Begun { file })
}

impl Begun {
    /// Does the stage. What could not be brought the report says; an error, that nobody could go
    /// on.
    pub fn run(self, fs: &Fs, plan: &Plan, pace: &Pace, progress: &Progress) -> Result<Report> {
        let (file, ended, slot) = (self.file, Ended::default(), OnceLock::new());
        let report = std::thread::scope(|scope| {
            scope.spawn(|| file.watch(fs, &ended, &slot, pace, progress));
            let _ending = Ending(&ended);
            if !file.take_slot(fs, plan, &slot, pace, progress)? {
                return Ok(Report::default());
            }
            match &plan.work {
                Work::In(sources) => stage_in(fs, sources, &plan.options, pace, progress),
                Work::Out(targets) => stage_out(fs, targets, &plan.options, pace, progress),
            }
        });
        let noted = file.end(fs, &report, progress);
        let report = report?;
        noted.map(|()| report)
    }
}

fn told(fs: &Fs, file: Ino, name: &str) -> Result<Option<Told>> {
    let handle = fs.open(file, READ_WRITE)?;
    // One that was just made, or whose maker died then, says nothing.
    let Some(plan) = Plan::parse(&text_of(&handle)?) else { return Ok(None) };
    let state = attr_of(fs, file, STATE)?.unwrap_or_default();
    let mut words = state.split(' ');
    let word = words.next().unwrap_or_default();
    let known = State::ALL.into_iter().find(|known| known.word() == word);
    let numbers: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
    let mut state = known.unwrap_or(State::Died);
    if [State::Waiting, State::Running].contains(&state) && !is_locked(&handle)? {
        state = State::Died;
    }
    let troubles = attr_of(fs, file, TROUBLES)?.unwrap_or_default();
    let trouble = |line: &str| {
        let (path, why) = line.split_once('\t')?;
        Some(Trouble { path: unescaped(path)?, why: unescaped(why)? })
    };
    Ok(Some(Told {
        name: name.to_owned(),
        plan,
        state,
        begun: number(0) as i64,
        noted: number(1) as i64,
        pid: number(2) as u32,
        counts: Counts {
            files: number(3),
            bytes: number(4),
            files_done: number(5),
            bytes_done: number(6),
            files_reused: number(7),
            bytes_reused: number(8),
        },
        troubles: troubles.lines().filter_map(trouble).collect(),
    }))
}

fn is_locked(handle: &Handle) -> Result<bool> {
    let other = Locks::default().in_the_way(handle, TAKER.owner, LockMode::Write, ALL)?;
    Ok(other.is_some())
}

/// The stages of a namespace, in byte order of their names.
pub fn all(fs: &Fs) -> Result<Vec<Told>> {
    let Some(work) = work_of(fs)? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for (entry, stat) in listed(fs, work).map_err(Failure::into_error)? {
        let Some(name) = entry.name.strip_prefix(PREFIX) else { continue };
        match told(fs, stat.ino, name) {
            // It has been dropped since.
            Err(error) if error.kind() == Kind::NotFound => {}
            told => all.extend(told?),
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// What the status file of a stage says.
pub fn one(fs: &Fs, name: &str) -> Result<Told> {
    let file = file_called(fs, name)?.ino();
    told(fs, file, name)?.ok_or_else(|| unknown(name))
}

/// Asks something of a stage that another process works at; `false`: nobody does.
pub fn ask(fs: &Fs, name: &str, asked: Asked) -> Result<bool> {
    let handle = file_called(fs, name)?;
    if !is_locked(&handle)? {
        return Ok(false);
    }
    let attrs = [(ASKED.to_owned(), Value::text(&asked.text()))];
    fs.namespace().set_attrs(Member::Object(handle.ino()), &attrs)?;
    Ok(true)
}

/// Takes a stage's status file away once `drop_it` has done what goes with it, and says that the
/// stage is gone; if nobody works at it.
pub(crate) fn remove<T>(
    fs: &Fs,
    name: &str,
    drop_it: impl FnOnce(Ino, &Plan) -> Result<(T, bool)>,
) -> Result<T> {
    let work = work_of(fs)?.ok_or_else(|| unknown(name))?;
    let begins = BeginLock::take(fs, work)?;
    let handle = file_called(fs, name)?;
    let locks = Locks::default();
    if !locked(&handle, &locks)? {
        return Err(busy(name));
    }
    // Another may have dropped it, and a third begun it anew, before it was locked.
    let now = fs.lookup(work, file_of(name)?.as_bytes());
    if !now.is_ok_and(|now| now.ino == handle.ino()) {
        return Err(busy(name));
    }
    let plan = Plan::parse(&text_of(&handle)?).ok_or_else(|| unknown(name))?;
    refuse_shared(fs, work, name, &plan)?;
    drop(begins);
    let (dropped, is_gone) = drop_it(work, &plan)?;
    if is_gone {
        fs.unlink(work, file_of(name)?.as_bytes())?;
    }
    Ok(dropped)
}
