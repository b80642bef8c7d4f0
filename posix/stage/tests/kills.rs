//! A stage that is killed at any of its steps leaves no short file, and the next one ends it.
#![cfg(feature = "faults")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use engram::{CreateOptions, Mode, Pool};
use engram_fs::{Fs, NodeKind, Options as Shown};
use engram_stage::{
    Options, Pace, Plan, Progress, Report, STEPS, Source, State, Target, Verify, Work, check,
    drop_stage, status,
};

const MIB: u64 = 1 << 20;
/// What a process that is to die works at: see [`Death::words`].
const WORK: &str = "ENGRAM_TEST_STAGE";
/// So many processes are to die in a campaign, and what chance begins with.
const KILLS: &str = "ENGRAM_STAGE_KILLS";
const SEED: &str = "SEED";

/// Chance that begins with a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count.div_ceil(8))
            .flat_map(|_| self.next().to_le_bytes())
            .take(count as usize)
            .collect()
    }
}

/// How a process does its stages, and when it dies.
#[derive(Clone, Debug)]
struct Death {
    /// At which step, and at which of its passings; "never": whoever has begun it ends it.
    step: &'static str,
    nth: u32,
    workers: usize,
    verify: Verify,
    awaited: bool,
}

impl Death {
    fn at(step: &'static str, nth: u32) -> Death {
        Death { step, nth, workers: 1, verify: Verify::Written, awaited: false }
    }

    fn words(&self, folder: &Path) -> String {
        let Death { step, nth, workers, verify, awaited } = self;
        format!("{}|{step}|{nth}|{workers}|{}|{awaited}", folder.display(), verify.word())
    }

    fn of_words(words: &str) -> (PathBuf, Death) {
        let words: Vec<&str> = words.split('|').collect();
        let step = STEPS.into_iter().find(|step| *step == words[1]).unwrap_or("never");
        let verify = Verify::of_word(words[4]).unwrap();
        let (nth, workers) = (words[2].parse().unwrap(), words[3].parse().unwrap());
        (words[0].into(), Death { step, nth, workers, verify, awaited: words[5] == "true" })
    }

    fn options(&self) -> Options {
        let Death { workers, verify, awaited, .. } = *self;
        Options { workers, verify, awaited, part: MIB, ..Options::default() }
    }
}

fn fs_of(pool: &Pool) -> Fs {
    Fs::new(pool.namespace("default").unwrap(), Shown::default()).unwrap()
}

fn run(name: &str, pool: &Pool, plan: &Plan) -> Report {
    let (pace, progress) = (Pace::new(None, None), Progress::default());
    let fs = fs_of(pool);
    status::begin(&fs, name, plan).unwrap().run(&fs, plan, &pace, &progress).unwrap()
}

fn inward(folder: &Path, pool: &Pool, how: &Death) -> Report {
    let work = Work::In(vec![Source::new(folder.join("from"), "in")]);
    run("in", pool, &Plan::new(&work, how.options()).unwrap())
}

fn outward(folder: &Path, pool: &Pool, how: &Death) -> Report {
    let work = Work::Out(vec![Target { from: "in".to_owned(), to: folder.join("to") }]);
    let options = Options { verify: Verify::Readback, ..how.options() };
    run("out", pool, &Plan::new(&work, options).unwrap())
}

/// The process that dies: it does both stages.
#[test]
fn work_until_a_step() {
    let Ok(words) = std::env::var(WORK) else { return };
    let (folder, how) = Death::of_words(&words);
    let (step, nth) = (how.step, how.nth);
    let passed = AtomicU32::new(0);
    engram::faults::on_step(move |now| {
        if now == step && passed.fetch_add(1, SeqCst) + 1 == nth {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    });
    let pool = Pool::open(&folder.join("pool"), Mode::ReadWrite, false).unwrap();
    assert!(inward(&folder, &pool, &how).whole);
    // A bit that has turned in what was half done is found, and the file is named, once.
    assert!(outward(&folder, &pool, &how).whole || outward(&folder, &pool, &how).whole);
}

/// Files by their path below a folder; of a link, where it leads.
fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, at: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
        let Ok(entries) = fs::read_dir(at) else { return };
        for entry in entries {
            let path = entry.unwrap().path();
            let below = || path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                into.insert(below(), target.into_os_string().into_encoded_bytes());
            } else if path.is_dir() {
                walk(root, &path, into);
            } else {
                into.insert(below(), fs::read(&path).unwrap());
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(root, root, &mut all);
    all
}

/// What is in the pool under names that files have there for good.
fn in_pool(pool: &Pool) -> BTreeMap<String, Vec<u8>> {
    fn walk(fs: &Fs, path: &str, into: &mut BTreeMap<String, Vec<u8>>) {
        let stat = match fs.walk(engram_fs::ROOT, path) {
            Err(error) if error.code == libc::ENOENT => return,
            walked => walked.unwrap().stat,
        };
        let Some(folder) = stat else { return };
        for name in names_in(fs, folder.ino) {
            let path = format!("{path}/{name}");
            let stat = fs.lookup(folder.ino, name.as_bytes()).unwrap();
            let below = path["in/".len()..].to_owned();
            match stat.kind {
                NodeKind::Folder => walk(fs, &path, into),
                NodeKind::Symlink => {
                    into.insert(below, fs.readlink(stat.ino).unwrap());
                }
                _ => {
                    let flags = engram_fs::OpenFlags { read: true, ..Default::default() };
                    let mut bytes = vec![0; stat.size as usize];
                    let count = fs.open(stat.ino, flags).unwrap().read(0, &mut bytes).unwrap();
                    bytes.truncate(count);
                    into.insert(below, bytes);
                }
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(&fs_of(pool), "in", &mut all);
    all
}

fn names_in(fs: &Fs, folder: engram_fs::Ino) -> Vec<String> {
    let mut names = Vec::new();
    let list = |entry: &engram_fs::Entry, _: u64| {
        names.push(entry.name.clone());
        true
    };
    fs.open_folder(folder).unwrap().list(0, list).unwrap();
    names.retain(|name| ![".", ".."].contains(&name.as_str()));
    names
}

/// A pool, and the folders beside it.
struct Room {
    folder: PathBuf,
    expected: BTreeMap<String, Vec<u8>>,
    _place: tempfile::TempDir,
}

/// How a process has ended that was to die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Killed,
    /// It has done all that it was to do.
    Done,
}

impl Room {
    /// A room with a folder that is to be brought, which `fill` fills.
    fn new(fill: impl FnOnce(&Path)) -> Room {
        let room = tempfile::tempdir_in("/dev/shm").unwrap();
        let folder = room.path().to_owned();
        let from = folder.join("from");
        fs::create_dir(&from).unwrap();
        fill(&from);
        let create = CreateOptions { size: 96 * MIB, force: true, ..CreateOptions::default() };
        Pool::create(&folder.join("pool"), &create).unwrap().close();
        Room { expected: contents(&from), folder, _place: room }
    }

    fn pool(&self) -> Pool {
        Pool::open(&self.folder.join("pool"), Mode::ReadWrite, false).unwrap()
    }

    /// Has a process work until it dies: at its step, or after so long.
    fn die(&self, how: &Death, after: Option<Duration>) -> Ended {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "work_until_a_step"])
            .env(WORK, how.words(&self.folder))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if let Some(after) = after {
            std::thread::sleep(after);
            child.kill().unwrap();
        }
        let ended = child.wait_with_output().unwrap();
        if ended.status.success() {
            return Ended::Done;
        }
        let told = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
        assert_eq!(signal, Some(9), "{how:?}: {told}");
        Ended::Killed
    }

    /// Under its own name each file is whole, on both sides, and what is said to be right is.
    fn look(&self, what: &str) {
        let pool = self.pool();
        for (path, bytes) in in_pool(&pool) {
            assert!(bytes == self.expected[&path], "{what}: {path} in the pool has other bytes");
        }
        for (path, bytes) in contents(&self.folder.join("to")) {
            let name = path.rsplit('/').next().unwrap();
            let is_part = name.starts_with(".engram-");
            if !is_part && name != "MANIFEST.engram" {
                assert!(bytes == self.expected[&path], "{what}: {path} outside has other bytes");
            }
        }
        if self.folder.join("to/MANIFEST.engram").exists() {
            self.check(what);
        }
        // The status files know who died.
        for stage in status::all(&fs_of(&pool)).unwrap() {
            let state = stage.state;
            assert!([State::Died, State::Whole].contains(&state), "{what}: {state:?}");
        }
        pool.close();
    }

    fn check(&self, what: &str) {
        let progress = Progress::default();
        let found = check(&self.folder.join("to"), &Pace::new(None, None), &progress).unwrap();
        assert_eq!(found, [], "{what}");
    }

    /// The next one ends it, and then all that the stages have may go, and nothing stays behind.
    fn end(&self, what: &str, how: &Death, was_flipped: bool) {
        let pool = self.pool();
        let brought = inward(&self.folder, &pool, how);
        assert_eq!(brought.troubles, [], "{what}");
        assert!(in_pool(&pool) == self.expected, "{what}: the pool has other files");
        let mut taken = outward(&self.folder, &pool, how);
        if was_flipped && !taken.whole {
            taken = outward(&self.folder, &pool, how);
        }
        assert_eq!(taken.troubles, [], "{what}");
        let mut outside = contents(&self.folder.join("to"));
        assert!(outside.remove("MANIFEST.engram").is_some(), "{what}");
        assert!(outside == self.expected, "{what}: other files, or more, are outside");
        self.check(what);
        for name in ["out", "in"] {
            let dropped = drop_stage(&fs_of(&pool), name, false, false).unwrap();
            assert!(dropped.done, "{what}: {name}: {dropped:?}");
        }
        assert_eq!(in_pool(&pool), BTreeMap::new(), "{what}");
        let fs = fs_of(&pool);
        let work = fs.walk(engram_fs::ROOT, ".engram-stage").unwrap().stat.unwrap();
        assert_eq!(names_in(&fs, work.ino), Vec::<String>::new(), "{what}");
        pool.close();
        let problems = engram::verify(&self.folder.join("pool")).unwrap().problems;
        assert_eq!(problems, Vec::<String>::new(), "{what}");
    }

    /// Turns a bit of a half-made copy outside; `false`: there is none.
    fn flip(&self, chance: &mut Chance) -> bool {
        let all = contents(&self.folder.join("to"));
        let is_part = |path: &str| path.rsplit('/').next().unwrap().starts_with(".engram-");
        let parts: Vec<_> =
            all.iter().filter(|(path, bytes)| is_part(path) && !bytes.is_empty()).collect();
        if parts.is_empty() {
            return false;
        }
        let (path, bytes) = parts[chance.below(parts.len() as u64) as usize];
        let at = chance.below(bytes.len() as u64);
        let file = fs::OpenOptions::new().write(true).open(self.folder.join("to").join(path));
        file.unwrap().write_all_at(&[bytes[at as usize] ^ 1 << chance.below(8)], at).unwrap();
        true
    }
}

/// The folder of a death at a step: a file for each way in which files come.
fn fill(from: &Path) {
    fs::create_dir(from.join("b")).unwrap();
    let mut chance = Chance(1);
    fs::write(from.join("a"), chance.bytes(5000)).unwrap();
    fs::write(from.join("large"), chance.bytes(3 * MIB + 77)).unwrap();
    // As much as comes in one commit, with what is before it; the next one comes alone.
    fs::write(from.join("middle"), chance.bytes(MIB)).unwrap();
    fs::write(from.join("b/small"), b"small").unwrap();
    let sparse = fs::File::create(from.join("b/large")).unwrap();
    sparse.set_len(4 * MIB).unwrap();
    sparse.write_all_at(&chance.bytes(100_000), 2 * MIB).unwrap();
}

/// Any folder.
fn fill_by(chance: &mut Chance, from: &Path) {
    let mut folders = vec![from.to_owned()];
    for number in 0..=chance.below(12) {
        let folder = folders[chance.below(folders.len() as u64) as usize].clone();
        let name = folder
            .join(format!("{}{number}", ["f", "two words ", "%41\n", "ü"][number as usize % 4]));
        match chance.below(10) {
            0 => {
                fs::create_dir(&name).unwrap();
                folders.push(name);
            }
            1 => std::os::unix::fs::symlink(format!("to/{number}"), name).unwrap(),
            2 => {
                let file = fs::File::create(&name).unwrap();
                file.set_len(chance.below(5 * MIB)).unwrap();
                let bytes = chance.below(100_000);
                file.write_all_at(&chance.bytes(bytes), 0).unwrap();
            }
            3 => {
                let size = MIB + chance.below(3 * MIB);
                fs::write(name, chance.bytes(size)).unwrap();
            }
            4 => {
                fs::write(&name, b"several names").unwrap();
                fs::hard_link(&name, folder.join(format!("again{number}"))).unwrap();
            }
            _ => {
                let size = chance.below(100) * chance.below(1000);
                fs::write(name, chance.bytes(size)).unwrap();
            }
        }
    }
}

fn dies_and_is_resumed(step: &'static str, nth: u32) -> bool {
    let (room, how) = (Room::new(fill), Death::at(step, nth));
    if room.die(&how, None) == Ended::Done {
        return false;
    }
    room.look(step);
    room.end(step, &how, false);
    true
}

#[test]
fn a_stage_that_dies_at_any_step_is_ended_by_the_next() {
    for step in STEPS {
        assert!(dies_and_is_resumed(step, 1), "{step} is not reached");
        dies_and_is_resumed(step, 2);
        dies_and_is_resumed(step, 3);
    }
}

/// The campaign: any folder, several deaths of a stage, at steps and at any moment, and bits that
/// turn in what was half done.
#[test]
fn a_stage_that_dies_again_and_again_loses_nothing() {
    let number = |key: &str| std::env::var(key).ok()?.parse::<u64>().ok();
    let Some(most) = number(KILLS) else { return };
    let seed = number(SEED).unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEED={seed}");
    let (mut killed, mut flipped, mut round) = (0, 0, 0);
    while killed < most {
        round += 1;
        let mut chance = Chance(seed.wrapping_mul(1 << 20).wrapping_add(round));
        let room = Room::new(|from| fill_by(&mut chance, from));
        let mut how = Death {
            workers: 1 + chance.below(2) as usize,
            verify: [Verify::Size, Verify::Written, Verify::Readback][chance.below(3) as usize],
            awaited: chance.one_in(2),
            ..Death::at("never", 1)
        };
        let mut was_flipped = false;
        for _ in 0..=chance.below(3) {
            let is_step = chance.one_in(2);
            let after = Duration::from_micros(chance.below(60_000));
            how.step = STEPS[chance.below(STEPS.len() as u64) as usize];
            how.nth = 1 + chance.below(5) as u32;
            let what = format!("SEED={seed}, round {round}: {how:?}");
            let ended = if is_step {
                room.die(&how, None)
            } else {
                room.die(&Death { step: "never", ..how.clone() }, Some(after))
            };
            killed += u64::from(ended == Ended::Killed);
            room.look(&what);
            if chance.one_in(4) && room.flip(&mut chance) {
                (was_flipped, flipped) = (true, flipped + 1);
            }
        }
        room.end(&format!("SEED={seed}, round {round}: {how:?}"), &how, was_flipped);
    }
    println!("{killed} deaths in {round} rounds, {flipped} bits turned: nothing is lost");
}

/// The list of steps names every step of the source, once, and no other.
#[test]
fn the_list_names_each_step_of_the_source_once() {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            let steps = text.split("step!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(steps.map(str::to_owned));
        }
    }
    found.sort();
    let mut listed: Vec<&str> = STEPS.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed);
}
