//! A stage that is killed at any of its steps leaves no short file, and the next one ends it.
#![cfg(feature = "faults")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use engram::{CreateOptions, Mode, Pool};
use engram_fs::{Fs, Options as Shown};
use engram_stage::{
    Options, Pace, Plan, Progress, Report, STEPS, Source, State, Target, Work, check, drop_stage,
    status,
};

const MIB: u64 = 1 << 20;
/// The folder that a process works in that is to die, the step, and at which of its passings.
const WORK: &str = "ENGRAM_TEST_STAGE";

fn options() -> Options {
    Options { workers: 1, part: MIB, ..Options::default() }
}

fn fs_of(pool: &Pool) -> Fs {
    Fs::new(pool.namespace("default").unwrap(), Shown::default()).unwrap()
}

fn run(name: &str, pool: &Pool, plan: &Plan) -> Report {
    let (pace, progress) = (Pace::new(None, None), Progress::default());
    let fs = fs_of(pool);
    status::begin(&fs, name, plan).unwrap().run(&fs, plan, &pace, &progress).unwrap()
}

fn inward(folder: &Path, pool: &Pool) -> Report {
    let work = Work::In(vec![Source { from: folder.join("from"), to: "in".to_owned() }]);
    run("in", pool, &Plan::new(&work, options()).unwrap())
}

fn outward(folder: &Path, pool: &Pool) -> Report {
    let work = Work::Out(vec![Target { from: "in".to_owned(), to: folder.join("to") }]);
    let options = Options { verify: engram_stage::Verify::Readback, ..options() };
    run("out", pool, &Plan::new(&work, options).unwrap())
}

/// The process that dies: it does both stages.
#[test]
fn work_until_a_step() {
    let Ok(words) = std::env::var(WORK) else { return };
    let mut words = words.split('|');
    let (folder, step) = (PathBuf::from(words.next().unwrap()), words.next().unwrap().to_owned());
    let nth: u32 = words.next().unwrap().parse().unwrap();
    let passed = AtomicU32::new(0);
    engram::faults::on_step(move |now| {
        if now == step && passed.fetch_add(1, SeqCst) + 1 == nth {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    });
    let pool = Pool::open(&folder.join("pool"), Mode::ReadWrite, false).unwrap();
    assert!(inward(&folder, &pool).whole);
    assert!(outward(&folder, &pool).whole);
}

fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, at: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
        let Ok(entries) = fs::read_dir(at) else { return };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, into);
            } else {
                let below = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                into.insert(below, fs::read(&path).unwrap());
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(root, root, &mut all);
    all
}

/// What is in the pool under names that files have there for good.
fn in_pool(pool: &Pool) -> BTreeMap<String, Vec<u8>> {
    let fs = fs_of(pool);
    let mut all = BTreeMap::new();
    for path in ["a", "large", "middle", "b/large", "b/small"] {
        let walked = match fs.walk(engram_fs::ROOT, &format!("in/{path}")) {
            Err(error) if error.code == libc::ENOENT => continue,
            walked => walked.unwrap(),
        };
        let Some(stat) = walked.stat else { continue };
        let flags = engram_fs::OpenFlags { read: true, ..Default::default() };
        let handle = fs.open(stat.ino, flags).unwrap();
        let mut bytes = vec![0; stat.size as usize];
        let count = handle.read(0, &mut bytes).unwrap();
        bytes.truncate(count);
        all.insert(path.to_owned(), bytes);
    }
    all
}

fn names_in(fs: &Fs, folder: &str) -> Vec<String> {
    let folder = fs.walk(engram_fs::ROOT, folder).unwrap().stat.unwrap();
    let mut names = Vec::new();
    let list = |entry: &engram_fs::Entry, _: u64| {
        names.push(entry.name.clone());
        true
    };
    fs.open_folder(folder.ino).unwrap().list(0, list).unwrap();
    names.retain(|name| ![".", ".."].contains(&name.as_str()));
    names
}

/// Makes the folder that is brought.
fn made(folder: &Path) -> PathBuf {
    let from = folder.join("from");
    fs::create_dir_all(from.join("b")).unwrap();
    let bytes = |seed: u64, size: u64| -> Vec<u8> {
        (0..size)
            .map(|at| ((at / 8 + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8)
            .collect()
    };
    fs::write(from.join("a"), bytes(1, 5000)).unwrap();
    fs::write(from.join("large"), bytes(2, 3 * MIB + 77)).unwrap();
    // As much as comes in one commit, with what is before it; the next one comes alone.
    fs::write(from.join("middle"), bytes(4, MIB)).unwrap();
    fs::write(from.join("b/small"), b"small").unwrap();
    let sparse = fs::File::create(from.join("b/large")).unwrap();
    sparse.set_len(4 * MIB).unwrap();
    sparse.write_all_at(&bytes(3, 100_000), 2 * MIB).unwrap();
    from
}

fn dies_and_is_resumed(step: &str, nth: u32) -> bool {
    let room = tempfile::tempdir_in("/dev/shm").unwrap();
    let folder = room.path();
    let from = made(folder);
    let create = CreateOptions { size: 64 * MIB, force: true, ..CreateOptions::default() };
    Pool::create(&folder.join("pool"), &create).unwrap().close();
    let died = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "work_until_a_step"])
        .env(WORK, format!("{}|{step}|{nth}", folder.display()))
        .output()
        .unwrap();
    if died.status.success() {
        return false;
    }
    let told = String::from_utf8_lossy(&died.stderr);
    let signal = std::os::unix::process::ExitStatusExt::signal(&died.status);
    assert_eq!(signal, Some(9), "{step}: {told}");
    let expected = contents(&from);
    // Under its own name each file is whole, on both sides.
    let pool = Pool::open(&folder.join("pool"), Mode::ReadWrite, false).unwrap();
    for (path, bytes) in in_pool(&pool) {
        assert!(bytes == expected[&path], "{step}: {path} in the pool has other bytes");
    }
    for (path, bytes) in contents(&folder.join("to")) {
        let name = path.rsplit('/').next().unwrap();
        let is_part = name.starts_with(".engram-");
        if !is_part && name != "MANIFEST.engram" {
            assert!(bytes == expected[&path], "{step}: {path} outside has other bytes");
        }
    }
    if folder.join("to/MANIFEST.engram").exists() {
        let progress = Progress::default();
        let found = check(&folder.join("to"), &Pace::new(None, None), &progress).unwrap();
        assert_eq!(found, [], "{step}");
    }
    // The status files know who died, and the next one ends it.
    let states = status::all(&fs_of(&pool)).unwrap();
    let states: Vec<(&str, State)> = states.iter().map(|one| (&*one.name, one.state)).collect();
    let died = [vec![("in", State::Died)], vec![("in", State::Whole), ("out", State::Died)]];
    assert!(died.contains(&states), "{step}: {states:?}");
    let brought = inward(folder, &pool);
    assert_eq!(brought.troubles, [], "{step}");
    assert_eq!(in_pool(&pool), expected, "{step}");
    let taken = outward(folder, &pool);
    assert_eq!(taken.troubles, [], "{step}");
    let mut outside = contents(&folder.join("to"));
    assert!(outside.remove("MANIFEST.engram").is_some(), "{step}");
    assert_eq!(outside, expected, "{step}: nothing else is left");
    let progress = Progress::default();
    let found = check(&folder.join("to"), &Pace::new(None, None), &progress).unwrap();
    assert_eq!(found, [], "{step}");
    // All of it is outside, so all of it may go, and nothing stays behind.
    for name in ["out", "in"] {
        let dropped = drop_stage(&fs_of(&pool), name, false, false).unwrap();
        assert!(dropped.done, "{step}: {name}: {dropped:?}");
    }
    assert_eq!(in_pool(&pool), BTreeMap::new(), "{step}");
    assert_eq!(names_in(&fs_of(&pool), ".engram-stage"), Vec::<String>::new(), "{step}");
    pool.close();
    assert_eq!(engram::verify(&folder.join("pool")).unwrap().problems, Vec::<String>::new());
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

/// The list of steps names every step of the source, once, and no other.
#[test]
fn the_list_names_each_step_of_the_source_once() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for entry in fs::read_dir(source).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let steps = text.split("step!(\"").skip(1).filter_map(|rest| rest.split('"').next());
        found.extend(steps.map(str::to_owned));
    }
    found.sort();
    let mut listed: Vec<&str> = STEPS.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed);
}
