//! Failing at every point, with many seeds, in several processes.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::check::{Expected, check};
use super::record::{Event, Trace};
use super::replay::{Blind, Medium};
use super::work::Step;

/// A trace, and what was done in it.
pub struct Recorded {
    /// What happened.
    pub trace: Trace,
    /// What was done.
    pub steps: Vec<Step>,
    /// Where it was recorded.
    pub root: String,
    /// Files whose lines reach the medium one by one.
    pub lines: &'static [&'static str],
    /// What chose everything.
    pub seed: u64,
}

impl Recorded {
    /// At how many moments power can fail.
    pub fn points(&self) -> usize {
        self.trace.events.iter().filter(|event| matches!(event, Event::Point(_))).count()
    }
}

/// Which failures are tried.
#[derive(Clone, Copy)]
pub struct Plan {
    /// How many seeds at each point.
    pub seeds: u64,
    /// One point of so many.
    pub stride: usize,
    /// What does not do what it promises.
    pub blind: Blind,
    /// One failure alone: its point and its seed.
    pub only: Option<(usize, u64)>,
    /// Enough failures have been found.
    pub enough: u64,
}

/// What came of it.
#[derive(Default)]
pub struct Outcome {
    /// So often power failed.
    pub images: u64,
    /// What was found wrong.
    pub failures: Vec<String>,
}

/// What a process says of itself to the one that started it.
#[repr(C)]
struct Progress {
    /// One more than the last image that it has begun.
    begun: AtomicU64,
    images: AtomicU64,
    failures: AtomicU64,
}

static PANIC: Mutex<String> = Mutex::new(String::new());
const WORKERS: usize = 2;
/// A check that takes longer than this hangs.
const SECONDS: u32 = 60;

/// Tries all of the plan's failures; images are made below `within`.
pub fn run(recorded: &Recorded, plan: Plan, within: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    let said = tempfile::tempfile_in(within).expect("a file for what is found");
    let progress: Vec<&Progress> = (0..WORKERS).map(|_| shared()).collect();
    let start = |worker: usize| {
        // SAFETY: this process has one thread; the child runs its part and ends.
        match unsafe { libc::fork() } {
            0 => {
                let said = said.try_clone().expect("a descriptor");
                let root = within.join(format!("image-{worker}"));
                work(recorded, plan, worker, progress[worker], &root, &said);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(0) }
            }
            pid => pid,
        }
    };
    let mut left: Vec<(i32, usize)> = (0..WORKERS).map(|worker| (start(worker), worker)).collect();
    while let Some((pid, worker)) = left.pop() {
        let mut status = 0;
        // SAFETY: a child of ours, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        if status != 0 {
            let at = progress[worker].begun.load(Ordering::SeqCst);
            outcome.failures.push(format!("image {at}: its process ended with status {status:#x}"));
            if (outcome.failures.len() as u64) < plan.enough {
                left.push((start(worker), worker));
            }
        }
    }
    outcome.images = progress.iter().map(|p| p.images.load(Ordering::SeqCst)).sum();
    let said = fs::read_to_string(format!("/proc/self/fd/{}", said.as_raw_fd()));
    outcome.failures.extend(said.unwrap_or_default().lines().map(str::to_owned));
    outcome
}

/// Memory that children share with this process.
fn shared() -> &'static Progress {
    // SAFETY: a new mapping at a place of the kernel's choosing.
    let at = unsafe {
        let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), 4096, read | write, flags, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: a page of zeros, which these atomics may be, for as long as the process lives.
    unsafe { &*at.cast::<Progress>() }
}

/// One process's part: every so many-th point, from where the process before it ended.
fn work(
    recorded: &Recorded,
    plan: Plan,
    worker: usize,
    progress: &Progress,
    root: &Path,
    said: &fs::File,
) {
    std::panic::set_hook(Box::new(|info| {
        *PANIC.lock().expect("a message") = info.to_string().replace('\n', " ");
    }));
    let mut medium = Medium::new(&recorded.trace, plan.blind, recorded.lines);
    let (mut point, mut done, mut begun) = (0, 0, 0);
    let from = progress.begun.load(Ordering::SeqCst);
    for event in &recorded.trace.events {
        medium.pass(event);
        match event {
            Event::Begun(number) => begun = number + 1,
            Event::Done(number) => done = number + 1,
            Event::Point(what) => {
                point += 1;
                let expected = Expected::new(&recorded.steps, done, begun);
                for seed in seeds(plan, point, worker) {
                    let image = point as u64 * (1 << 32) + seed;
                    if image < from || progress.failures.load(Ordering::SeqCst) >= plan.enough {
                        continue;
                    }
                    progress.begun.store(image + 1, Ordering::SeqCst);
                    // SAFETY: a check that hangs ends the process, which is noticed.
                    unsafe { libc::alarm(SECONDS) };
                    let checked = try_one(recorded, &medium, root, point, seed, &expected);
                    progress.images.fetch_add(1, Ordering::SeqCst);
                    if let Err(problem) = checked {
                        progress.failures.fetch_add(1, Ordering::SeqCst);
                        let line = format!(
                            "point {point} (before {what}), seed {seed} of {}: {}: {problem}",
                            recorded.seed,
                            expected.doing()
                        );
                        tell(said, &line);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The seeds to try at a point; none, if it is another process's, or left out.
fn seeds(plan: Plan, point: usize, worker: usize) -> std::ops::Range<u64> {
    match plan.only {
        Some((only, seed)) if only == point && worker == 0 => seed..seed + 1,
        None if point.is_multiple_of(plan.stride) && point / plan.stride % WORKERS == worker => {
            // With a stride, neighbours try different seeds.
            let first = point as u64 * plan.seeds;
            first..first + plan.seeds
        }
        _ => 0..0,
    }
}

fn tell(said: &fs::File, line: &str) {
    use std::io::Write;
    let line = format!("{}\n", line.replace('\n', " "));
    let mut said = said;
    said.write_all(line.as_bytes()).expect("room for a message");
}

fn try_one(
    recorded: &Recorded,
    medium: &Medium<'_>,
    root: &Path,
    point: usize,
    seed: u64,
    expected: &Expected<'_>,
) -> Result<(), String> {
    let _ = fs::remove_dir_all(root);
    fs::create_dir(root).expect("a folder for an image");
    let mixed = recorded.seed ^ (point as u64).rotate_left(40) ^ seed.rotate_left(20);
    medium.image(root, mixed);
    move_devices(&recorded.root, root);
    restart(root);
    let work = seed.is_multiple_of(3);
    let checked = catch_unwind(AssertUnwindSafe(|| check(&root.join("pool"), expected, work)));
    checked.unwrap_or_else(|_| Err(PANIC.lock().expect("a message").clone()))
}

/// The process that opens the image does so in another boot of the machine than the one that
/// failed.
fn restart(folder: &Path) {
    const BOOT_ID_AT: u64 = 40;
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            restart(&entry.path());
        } else if entry.file_name() == "growth" {
            let opened = fs::File::options().write(true).open(entry.path());
            let growth = opened.expect("a growth page");
            if growth.metadata().expect("its length").len() > BOOT_ID_AT {
                growth.write_all_at(b"another boot", BOOT_ID_AT).expect("a page");
            }
        }
    }
}

/// Devices are named by their paths, which an image has elsewhere. A text that is changed for that
/// loses its checksum; one that was cut short stays as it is.
fn move_devices(from: &str, root: &Path) {
    let unchecked = |text: &str| -> String {
        text.split_once('\n').map_or(text, |(_checksum, rest)| rest).to_owned()
    };
    for name in ["pool.toml", "creating.toml"] {
        let file = root.join("pool").join(name);
        if let Ok(text) = fs::read_to_string(&file) {
            let moved = unchecked(&text).replace(from, root.to_str().expect("a plain path"));
            fs::write(&file, moved).expect("a description");
        }
    }
    let Ok(pool) = fs::metadata(root.join("pool")) else { return };
    let below = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    for on_device in below(root).flat_map(|device| below(&device.path())) {
        let file = on_device.path().join(".pool.toml");
        if let Ok(text) = fs::read_to_string(&file) {
            let text = unchecked(&text);
            let lines = text.lines().map(|line| match line.split_once(" = ") {
                Some(("inode", _)) => format!("inode = \"{:x}\"\n", pool.ino()),
                _ => format!("{}\n", line.replace(from, root.to_str().expect("a plain path"))),
            });
            fs::write(&file, lines.collect::<String>()).expect("a description");
        }
    }
}
