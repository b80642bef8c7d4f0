//! Power failures under the engine, by the thousand.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/syscalls.rs"]
mod syscalls;

mod campaign;
mod check;
mod record;
mod replay;
mod work;

use std::path::Path;
use std::time::Instant;

use campaign::{Plan, Recorded};
use common::Random;
use engram::faults::FlushEvent;
use record::{Informer, RECORDER, Recorder};
use replay::Blind;
use work::Worker;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// What carries the pool.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    dax: bool,
    /// Files whose lines reach the medium one by one.
    lines: &'static [&'static str],
}

const KINDS: [Kind; 2] = [
    Kind { name: "disk", dax: false, lines: &[] },
    Kind { name: "persistent memory", dax: true, lines: &["/span-", "data.mdb", "growth"] },
];

/// More pages than any `msync`, and fewer than a whole file's sync.
const MSYNC: usize = 1 << 40;

/// What a sync is worth: without it, something is lost. By the kind of medium.
const BLIND: [(usize, Blind); 9] = [
    (0, Blind { files: "/span-", pages: (0, MSYNC), ..named("values are not flushed") }),
    (0, Blind { files: "/span-", pages: (MSYNC, usize::MAX), ..named("new spans are not synced") }),
    (0, Blind { files: "data.mdb", pages: (2, MSYNC), ..named("rows are not synced") }),
    (0, Blind { files: "data.mdb", pages: (0, 1), ..named("the commit is not synced") }),
    (0, Blind { files: "lock.mdb", pages: (0, usize::MAX), ..named("lock.mdb is not synced") }),
    (0, Blind { files: ".toml", pages: (0, usize::MAX), ..named("descriptions are not synced") }),
    (0, Blind { folders: true, ..named("names are not synced") }),
    (1, Blind { fences: true, ..named("nobody waits for lines") }),
    (1, Blind { folders: true, ..named("names are not synced") }),
];

const fn named(name: &'static str) -> Blind {
    Blind { name, files: "", pages: (0, 0), folders: false, fences: false }
}

/// Does everything once, while it is recorded.
fn record(dir: &Path, seed: u64, kind: Kind, steps: usize) -> Recorded {
    let root = dir.join("recorded");
    std::fs::create_dir_all(root.join("device")).expect("a folder");
    std::fs::create_dir_all(root.join("later")).expect("a folder");
    *RECORDER.lock().expect("a recorder") = Some(Recorder::new(&root, seed));
    syscalls::pretend_dax(kind.dax);
    syscalls::arm(true);
    let path = root.join("pool");
    let mut worker = Worker::new(&path);
    worker.begin(vec![root.join("device")]);
    worker.every_kind();
    worker.growth(&root.join("later"));
    worker.at_random(&mut Random(seed), steps);
    worker.end();
    syscalls::arm(false);
    let recorder = RECORDER.lock().expect("a recorder").take().expect("the recorder");
    let steps = worker.steps;
    let root_text = root.to_str().expect("a plain path").to_owned();
    let trace = recorder.end();
    std::fs::remove_dir_all(&root).expect("the pool goes");
    Recorded { trace, steps, root: root_text, lines: kind.lines, seed }
}

fn row(what: &str, points: usize, images: u64, failures: usize, started: Instant) {
    let seconds = started.elapsed().as_secs();
    println!("{what:45} {points:8} {images:10} {failures:10} {seconds:9} s");
}

fn main() {
    syscalls::pretend_disk(true);
    syscalls::hook(Informer);
    engram::faults::on_step(|name| record::with(|recorder| recorder.point(name)));
    engram::faults::on_flush(|what| {
        record::with(|recorder| match what {
            FlushEvent::Lines(at, len) => recorder.write_back(at, len),
            FlushEvent::Fence => recorder.fence(),
        });
    });
    let seed = common::seed();
    let long = variable("ENGRAM_POWER_SEEDS");
    let only = variable("ENGRAM_POINT").map(|point| (point as usize, long.unwrap_or(0)));
    let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs at /dev/shm");
    println!("{:45} {:>8} {:>10} {:>10} {:>11}", "power fails on", "points", "images", "lost", "");
    let mut lost = 0;
    for (number, kind) in KINDS.into_iter().enumerate() {
        let started = Instant::now();
        let recorded = record(dir.path(), seed, kind, if long.is_some() { 60 } else { 15 });
        let points = recorded.points();
        // A short run visits some points, and each seed's own; a long one all, with many seeds.
        let (seeds, stride) = long.map_or((1, points.div_ceil(200)), |seeds| (seeds, 1));
        let whole = Plan { seeds, stride, blind: Blind::default(), only, enough: 20 };
        let outcome = campaign::run(&recorded, whole, dir.path());
        outcome.failures.iter().for_each(|failure| println!("{failure}"));
        lost += outcome.failures.len();
        row(kind.name, points, outcome.images, outcome.failures.len(), started);
        for (_, blind) in BLIND.into_iter().filter(|(of, _)| *of == number && only.is_none()) {
            let started = Instant::now();
            let plan = Plan { seeds: 2, stride: 5, blind, only: None, enough: 1 };
            let outcome = campaign::run(&recorded, plan, dir.path());
            let found = outcome.failures.len();
            row(&format!("  where {}", blind.name), points, outcome.images, found, started);
            if variable("ENGRAM_SAY").is_some() {
                outcome.failures.iter().for_each(|failure| println!("{failure}"));
            }
            assert!(found > 0, "nothing is lost where {}", blind.name);
        }
    }
    assert_eq!(lost, 0, "what was acknowledged was lost; ENGRAM_SEED={seed} shows it again");
}
