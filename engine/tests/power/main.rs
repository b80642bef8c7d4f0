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
use record::{Informer, RECORDER, Recorder};
use replay::Blind;
use work::Worker;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Does everything once, while it is recorded.
fn record(dir: &Path, seed: u64, lines: &'static [&'static str], steps: usize) -> Recorded {
    let root = dir.join("recorded");
    std::fs::create_dir_all(root.join("device")).expect("a folder");
    std::fs::create_dir_all(root.join("later")).expect("a folder");
    *RECORDER.lock().expect("a recorder") = Some(Recorder::new(&root, seed));
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
    Recorded { trace, steps, root: root_text, lines, seed }
}

fn main() {
    syscalls::pretend_disk();
    syscalls::hook(Informer);
    engram_engine::faults::on_step(|name| record::with(|recorder| recorder.point(name)));
    let seed = common::seed();
    let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs at /dev/shm");
    let started = Instant::now();
    let recorded = record(dir.path(), seed, &[], 20);
    println!(
        "{} events, {} operations, {:?}",
        recorded.trace.events.len(),
        recorded.steps.len(),
        started.elapsed()
    );
    let only = variable("POINT").map(|point| (point as usize, variable("AT").unwrap_or(0)));
    let plan = Plan {
        seeds: variable("ENGRAM_POWER_SEEDS").unwrap_or(1),
        stride: variable("ENGRAM_POWER_STRIDE").unwrap_or(3) as usize,
        blind: Blind::default(),
        only,
        enough: 20,
    };
    let outcome = campaign::run(&recorded, plan, dir.path());
    for failure in &outcome.failures {
        println!("{failure}");
    }
    println!(
        "{} points, {} images, {} failures, {:?}",
        outcome.points,
        outcome.images,
        outcome.failures.len(),
        started.elapsed()
    );
    assert!(outcome.failures.is_empty());
}
