//! Leases (protocol P3): the holdings of a dead process come back, those of a living one do not.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use crate::common::{
    Fixture, KEEP, Line, Peer, alone, alone_with, attach, check, churn, filled, floats, fork,
    is_root, lookup, put, read, report_of, sound, spawn, view,
};
use engram::{Kind, Mode, Pool, Realm};

const MIB: usize = 1 << 20;

/// Reserves 3 MiB in two ways, says so, and waits to be killed.
fn reserve_and_wait(realm: &Realm, line: &Line) {
    let new = floats(&[MIB as u64 / 8]);
    let space = realm.allocate(realm.root(), "never", &new, MIB as u64, KEEP).unwrap();
    let scratch = realm.scratch(2 * MIB as u64, None).unwrap();
    line.say(1);
    line.hear_if_any();
    drop((space, scratch));
}

fn attach_and_reserve(line: &Line) {
    let path = std::env::var("ENGRAM_TEST_POOL").unwrap();
    let (_pool, realm) = attach(path.as_ref(), Mode::ReadWrite);
    reserve_and_wait(&realm, line);
}

/// The next process that is spawned opens this pool.
fn tell_spawned(fixture: &Fixture) {
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("ENGRAM_TEST_POOL", &fixture.path) };
}

#[test]
fn what_a_killed_process_had_reserved_comes_back() {
    alone_with(
        "what_a_killed_process_had_reserved_comes_back",
        || {
            let fixture = Fixture::new(16 << 20);
            let realm = fixture.realm();
            tell_spawned(&fixture);
            let before = fixture.leases().len();
            let starts: [&dyn Fn() -> Peer; 2] =
                [&spawn, &|| fork(|line| reserve_and_wait(&realm, line))];
            for start in starts {
                let peer = start();
                peer.line.expect(1);
                assert_eq!(realm.space().unwrap().pending, 3 << 20);
                assert_eq!(realm.space().unwrap().pids.len(), 2);
                peer.kill();
                // All of it can be had again.
                drop(realm.scratch(16 << 20, None).unwrap());
                assert_eq!(realm.space().unwrap().pids, [std::process::id()]);
                assert_eq!(fixture.leases().len(), before, "{:?}", fixture.leases());
                assert_eq!(lookup(&realm, "never"), None);
                assert_eq!(sound(&fixture.path).used, 0);
            }
        },
        attach_and_reserve,
    );
}

/// The kernel drops the lock of a dead process's lease though its children live; and they keep
/// what they view of it.
#[test]
fn reservations_of_the_dead_come_back_while_their_children_live() {
    alone("reservations_of_the_dead_come_back_while_their_children_live", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let (ours, theirs) = Line::pair();
        let parent = fork(|line| {
            let scratch = realm.scratch(MIB as u64, None).unwrap();
            let data = filled(5, 5, MIB / 8);
            // SAFETY: the scratch's own memory.
            unsafe { scratch.as_ptr().copy_from(data.as_ptr(), MIB) };
            let child = fork(|_| {
                // SAFETY: asks for no signal: this one outlives its parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
                theirs.say(1);
                theirs.expect(2);
                assert_eq!(check(&scratch), (5, 5));
                drop(scratch.clone());
                theirs.say(3);
                theirs.hear_if_any();
            });
            std::mem::forget(child);
            reserve_and_wait(&realm, line);
        });
        drop(theirs);
        parent.line.expect(1);
        ours.expect(1);
        let reserved = realm.space().unwrap().pending;
        assert_eq!(reserved, 4 << 20);
        parent.kill();
        // All but what the child views can be had at once.
        let mut parts = Vec::new();
        while let Ok(part) = realm.scratch(MIB as u64, None) {
            // SAFETY: the scratch's own memory.
            unsafe { part.as_ptr().write_bytes(0xee, MIB) };
            parts.push(part);
        }
        assert_eq!(parts.len(), 15);
        ours.say(2);
        ours.expect(3);
        drop(parts);
        drop(ours);
        churn(&realm, 1);
        sound(&fixture.path);
    });
}

/// A program that a process starts has none of its leases: descriptors are closed on exec.
#[test]
fn a_program_that_was_started_keeps_no_lease() {
    alone_with(
        "a_program_that_was_started_keeps_no_lease",
        || {
            let fixture = Fixture::new(16 << 20);
            let realm = fixture.realm();
            let path = fixture.path.clone();
            let (ours, theirs) = Line::pair();
            let parent = fork(|line| {
                let (_pool, realm) = attach(&path, Mode::ReadWrite);
                let started = spawn();
                started.line.expect(1);
                theirs.say(1);
                // It goes on when the line to it breaks, which is not before this process ends.
                std::mem::forget(started);
                reserve_and_wait(&realm, line);
            });
            parent.line.expect(1);
            ours.expect(1);
            assert_eq!(realm.space().unwrap().pending, 3 << 20);
            parent.kill();
            assert_eq!(realm.space().unwrap().pids, [std::process::id()]);
            drop(realm.scratch(16 << 20, None).unwrap());
            sound(&fixture.path);
        },
        |line| {
            // SAFETY: asks for no signal: this one outlives its parent.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
            line.say(1);
            line.hear_if_any();
            // The parent is gone, and this process was there all the time.
        },
    );
}

/// A lease file as another copy of the engine would have it: locked, and naming this process.
///
/// `copy` is the number of its copy; that of a guest has one bit more than the pid.
fn strange_lease(fixture: &Fixture, copy: u32, start_time: u64, pid_namespace: u64) -> File {
    let pid = std::process::id();
    let path = fixture.realm_dir().join("leases/00000000deadbeef");
    let mut bytes = vec![0; 4096 + 8192 * 8];
    bytes[..8].copy_from_slice(b"ENGRLEAS");
    bytes[8..16].copy_from_slice(&0xdead_beef_u64.to_le_bytes());
    bytes[16..24].copy_from_slice(&pid_namespace.to_le_bytes());
    bytes[24..32].copy_from_slice(&start_time.to_le_bytes());
    bytes[32..36].copy_from_slice(&pid.to_le_bytes());
    bytes[48..52].copy_from_slice(&copy.to_le_bytes());
    bytes[64..72].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    // SAFETY: `flock` is plain data, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    // SAFETY: our own descriptor and a valid struct.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }, 0);
    file
}

fn start_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap()
}

fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").unwrap().ino()
}

fn refusal(fixture: &Fixture) -> (Kind, String) {
    let error = Pool::open(&fixture.path, Mode::ReadWrite, false).err().expect("a refusal");
    (error.kind(), error.message().to_owned())
}

#[test]
fn a_second_copy_of_the_engine_in_a_process_is_refused() {
    alone("a_second_copy_of_the_engine_in_a_process_is_refused", || {
        let fixture = Fixture::new(16 << 20);
        fixture.pool.close();
        let before = fixture.leases().len();
        let held = strange_lease(&fixture, std::process::id(), start_time(), pid_namespace());
        let (kind, message) = refusal(&fixture);
        assert_eq!(kind, Kind::Busy);
        assert!(message.contains("another copy of the engine"), "{message}");
        assert_eq!(fixture.leases().len(), before + 1, "a refusal leaves no lease");
        // A process of the same pid that started at another time is somebody else.
        drop(held);
        let held = strange_lease(&fixture, std::process::id(), start_time() + 1, pid_namespace());
        let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
        pool.close();
        // A guest shares the process.
        drop(held);
        let guest = std::process::id() | 1 << 22;
        let held = strange_lease(&fixture, guest, start_time(), pid_namespace());
        let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
        pool.close();
        // And a dead one is nobody.
        drop(held);
        drop(strange_lease(&fixture, std::process::id(), start_time(), pid_namespace()));
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        assert_eq!(realm.space().unwrap().pids, [std::process::id()]);
    });
}

#[test]
fn another_pid_namespace_is_refused_while_the_first_lives() {
    let test = "another_pid_namespace_is_refused_while_the_first_lives";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, 5000));
        let held = view(&realm, "x");
        // SAFETY: this process's next children get a PID namespace of their own.
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            println!("{test} is skipped: {}", std::io::Error::last_os_error());
            return;
        }
        let child = fork(|line| {
            // The mapping is there, and the view good; using the realm is not.
            assert_eq!(check(&held), (1, 1));
            let error = realm.lookup(realm.root(), "x").expect_err("a refusal");
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
            assert!(error.message().contains("PID namespace"), "{error}");
            fixture.pool.close();
            let (kind, message) = refusal(&fixture);
            assert_eq!(kind, Kind::Unsupported);
            let ours = pid_namespace().to_string();
            assert!(message.contains(&ours) && message.contains("PID namespace"), "{message}");
            line.say(1);
            line.expect(2);
            // Now that nobody else has it open, it is this namespace's.
            drop(held.clone());
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            put(&realm, "y", &filled(2, 2, 5000));
        });
        child.line.expect(1);
        put(&realm, "x", &filled(1, 2, 5000));
        drop(realm);
        fixture.pool.close();
        let mut held = Some(held);
        drop(held.take());
        child.line.say(2);
        child.finish();
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        assert_eq!(read(&realm, "x"), filled(1, 2, 5000));
        assert_eq!(read(&realm, "y"), filled(2, 2, 5000));
        sound(&fixture.path);
    });
}

/// What is no lease is nobody's, and does not keep the realm from being used.
#[test]
fn garbage_among_the_leases_is_passed_over() {
    alone("garbage_among_the_leases_is_passed_over", || {
        let fixture = Fixture::new(16 << 20);
        let leases = fixture.realm_dir().join("leases");
        std::fs::write(leases.join("00000000000000aa"), b"short").unwrap();
        std::fs::write(leases.join("00000000000000bb"), vec![0; 4096 + 8192 * 8]).unwrap();
        std::fs::write(leases.join("README"), b"not a lease").unwrap();
        std::fs::write(leases.join("new-00000000000000cc"), b"cut off").unwrap();
        std::fs::create_dir(leases.join("00000000000000dd")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", leases.join("00000000000000ee")).unwrap();
        fixture.pool.close();
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        churn(&realm, 1);
        churn(&realm, 1);
        assert_eq!(realm.space().unwrap().pids, [std::process::id()]);
        assert!(!leases.join("new-00000000000000cc").exists(), "it was cut off while made");
        assert!(leases.join("README").exists());
        sound(&fixture.path);
    });
}

/// A lease that cannot be looked at is not one that pins nothing.
#[test]
fn an_allocator_that_cannot_open_a_lease_takes_nothing_from_it() {
    alone_with(
        "an_allocator_that_cannot_open_a_lease_takes_nothing_from_it",
        || {
            let fixture = Fixture::new(16 << 20);
            let realm = fixture.realm();
            put(&realm, "x", &filled(1, 1, MIB / 8));
            tell_spawned(&fixture);
            let viewer = spawn();
            viewer.line.expect(1);
            realm.delete(realm.root(), "x").unwrap();
            // Every descriptor but one is taken: the folder can be listed, no lease opened.
            let mut all = Vec::new();
            while let Ok(file) = File::open("/dev/null") {
                all.push(file);
            }
            all.pop();
            let parts: Vec<_> =
                std::iter::from_fn(|| realm.scratch(MIB as u64, None).ok()).take(16).collect();
            for part in &parts {
                // SAFETY: the scratch's own memory.
                unsafe { part.as_ptr().write_bytes(0xee, MIB) };
            }
            drop(all);
            viewer.line.say(2);
            viewer.finish();
            drop(parts);
            drop(realm.scratch(16 << 20, None).unwrap());
            sound(&fixture.path);
        },
        |line| {
            let path = std::env::var("ENGRAM_TEST_POOL").unwrap();
            let (_pool, realm) = attach(path.as_ref(), Mode::ReadWrite);
            let held = view(&realm, "x");
            line.say(1);
            line.expect(2);
            assert_eq!(check(&held), (1, 1));
        },
    );
}

#[test]
fn a_process_that_could_give_nothing_back_leaves_its_lease_for_others() {
    alone("a_process_that_could_give_nothing_back_leaves_its_lease_for_others", || {
        let fixture = Fixture::new(16 << 20);
        let path = fixture.path.clone();
        fixture.pool.close();
        let peer = fork(|line| {
            let (pool, realm) = attach(&path, Mode::ReadWrite);
            // In a batch the space is reserved until the batch ends, which here it does not.
            realm.begin_batch().unwrap();
            put(&realm, "x", &filled(1, 1, MIB / 8));
            line.say(1);
            line.expect(2);
            pool.close();
        });
        peer.line.expect(1);
        let catalog = crate::common::catalog_of(&fixture);
        catalog.poison();
        peer.line.say(2);
        peer.finish();
        drop(catalog);
        // Verify makes the realm fit for use again, and takes back what the dead one had.
        assert_eq!(report_of(&path).problems, Vec::<String>::new());
        let (_pool, realm) = attach(&path, Mode::ReadWrite);
        drop(realm.scratch(16 << 20, None).unwrap());
        sound(&path);
    });
}

/// Whatever the dead have left, and although a process stands in the middle of a commit.
#[cfg(feature = "faults")]
#[test]
fn who_opens_after_a_death_waits_for_no_writer() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static ARMED: AtomicBool = AtomicBool::new(false);
    alone("who_opens_after_a_death_waits_for_no_writer", || {
        let fixture = Fixture::new(8 << 20);
        fixture.pool.close();
        let (path, stands) = (&fixture.path, fixture.dir.path().join("stands"));
        let dying = fork(|line| reserve_and_wait(&attach(path, Mode::ReadWrite).1, line));
        dying.line.expect(1);
        let writer = fork(|_| {
            let (_pool, realm) = attach(path, Mode::ReadWrite);
            let stands = stands.clone();
            engram::faults::on_step(move |step| {
                if step == "commit.begun" && ARMED.load(Ordering::SeqCst) {
                    std::fs::write(&stands, b"").unwrap();
                    std::thread::sleep(std::time::Duration::from_secs(3600));
                }
            });
            ARMED.store(true, Ordering::SeqCst);
            put(&realm, "small", &filled(1, 1, 9));
        });
        let until = crate::common::deadline();
        while !stands.exists() {
            assert!(std::time::Instant::now() < until, "the writer does not come to its commit");
            std::thread::yield_now();
        }
        dying.kill();
        let opener = fork(|line| {
            let (pool, realm) = attach(path, Mode::ReadWrite);
            line.say(3);
            line.expect(4);
            // All the space but what the dead had reserved would not do.
            put(&realm, "large", &filled(1, 1, 6 * MIB / 8));
            pool.close();
        });
        opener.line.expect(3);
        writer.kill();
        opener.line.say(4);
        opener.finish();
        sound(path);
    });
}
