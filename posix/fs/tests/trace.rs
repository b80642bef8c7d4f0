//! Traces: several processes write one, are killed, forked, and find the disk full; what is shown
//! is whole. What a trace says of a file's pieces is where they lie.

use std::borrow::Cow;
use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use engram::{CreateOptions, Pool};
use engram_fs::trace::{Argument, Operation, Record, Spec, Way, ring};
use engram_fs::{Errno, Fs, Maker, OpenFlags, Options, ROOT, Tracer};

/// So many operations a process does that is not killed, in each of its threads.
const OPERATIONS: u64 = 3000;
const THREADS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(60);
const SPEC: &str = "ENGRAM_TEST_TRACE";
const LONG: &str = "ENGRAM_TEST_LONG";
/// One that is killed does so many, should it outlive its test.
const LONG_OPERATIONS: u64 = 300_000;

/// Notes one operation, whose lines belong together and say so.
fn note(tracer: &Tracer, thread: u64, number: u64) {
    tracer.note_all(std::process::id(), |lines| {
        let path = format!("/a:b/{thread}/{}", "%".repeat(number as usize % 40));
        let range = |from| [Argument::Number(from), Argument::Number(number)];
        lines.add(Operation::Read, &path, &range(thread));
        for piece in 0..number % 3 {
            let arguments = [Argument::Address(piece), Argument::Number(number)];
            lines.add(Operation::NvmlRead, "/pool", &arguments);
        }
    });
}

/// A process of its own does this, and is no test.
#[test]
fn writer() {
    let Some(spec) = env::var_os(SPEC) else { return };
    let operations = env::var_os(LONG).map_or(OPERATIONS, |_| LONG_OPERATIONS);
    let tracer = Tracer::open(&Spec::parse(&spec).unwrap()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let tracer = &tracer;
            scope.spawn(move || {
                for number in 0..operations {
                    note(tracer, thread, number);
                }
            });
        }
    });
    println!("lost {}", tracer.lost());
}

fn begin(spec: &str, long: bool) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "writer", "--nocapture"]).env(SPEC, spec).stdout(Stdio::piped());
    if long {
        command.env(LONG, "1");
    }
    command.spawn().unwrap()
}

fn ended(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// What a line says: process, thread, number.
fn facts(line: &str) -> (u32, Option<u64>, u64) {
    let record = Record::parse(line.as_bytes()).unwrap_or_else(|why| panic!("{line}: {why}"));
    let [first, Argument::Number(number)] = &record.arguments[..] else { panic!("{line}") };
    match (record.operation, first) {
        (Operation::Read, Argument::Number(thread)) => {
            let path = format!("/a:b/{thread}/{}", "%".repeat(*number as usize % 40));
            assert_eq!(record.place, path, "{line}");
            (record.pid, Some(*thread), *number)
        }
        (Operation::NvmlRead, Argument::Address(piece)) if *piece < number % 3 => {
            assert_eq!(record.place, "/pool");
            (record.pid, None, *number)
        }
        _ => panic!("nobody wrote {line}"),
    }
}

/// Waits until a trace has so many bytes, or has been written around.
fn wait(until: impl Fn() -> bool) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < PATIENCE, "nothing is written");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn many_processes_append_to_one_file_and_one_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let spec = path.to_str().unwrap();
    let mut victim = begin(spec, true);
    let others: Vec<Child> = (0..3).map(|_| begin(spec, false)).collect();
    let of_victim = format!(":{}:", victim.id());
    wait(|| fs::read_to_string(&path).is_ok_and(|text| text.contains(&of_victim)));
    victim.kill().unwrap();
    victim.wait().unwrap();
    let pids: Vec<u32> = others.iter().map(Child::id).collect();
    for other in others {
        assert!(ended(other).contains("lost 0"));
    }
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.ends_with('\n'));
    let (mut next, mut pieces) = (HashMap::new(), 0);
    let (mut damaged, mut last) = (0, 0);
    for line in text.lines() {
        let mut line = Cow::Borrowed(line);
        if Record::parse(line.as_bytes()).is_err() {
            // It was killed within one, and another went on behind that.
            damaged += 1;
            pieces = 0;
            let Some(behind) = Record::behind_damage(line.as_bytes()) else { continue };
            line = Cow::Owned(behind.line());
        }
        let (pid, thread, number) = facts(&line);
        let before = std::mem::replace(&mut last, pid);
        match thread {
            // The lines of one operation come together.
            None => pieces -= 1,
            Some(thread) => {
                // It may have been killed just between two of its lines.
                assert!(pieces == 0 || before == victim.id(), "before {line}");
                pieces = number % 3;
                let next: &mut u64 = next.entry((pid, thread)).or_default();
                assert_eq!(*next, number, "one is missing before {line}");
                *next += 1;
            }
        }
    }
    assert_eq!(pieces, 0);
    // Each thread of it was within one line at most.
    assert!(damaged <= THREADS, "{damaged} lines are damaged");
    for pid in pids {
        assert!((0..THREADS).all(|thread| next[&(pid, thread)] == OPERATIONS));
    }
    assert!(next.keys().any(|(pid, _)| *pid == victim.id()));
}

#[test]
fn many_processes_share_one_ring_and_one_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    let spec = format!("ring:{}:1MiB", path.display());
    let mut victim = begin(&spec, true);
    let others: Vec<Child> = (0..3).map(|_| begin(&spec, false)).collect();
    wait(|| ring::lines(&path).is_ok_and(|lines| lines.len() > 2000));
    // It is read while they write, and is overwritten meanwhile.
    for _ in 0..20 {
        for line in ring::lines(&path).unwrap() {
            facts(&line);
        }
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    let last = begin(&spec, false);
    for other in others {
        assert!(ended(other).contains("lost 0"));
    }
    let (last, said) = (last.id(), ended(last));
    assert!(said.contains("lost 0"), "{said}");
    let lines = ring::lines(&path).unwrap();
    assert!(lines.len() > 2000, "{}", lines.len());
    let mut newest: HashMap<(u32, u64), u64> = HashMap::new();
    for line in &lines {
        if let (pid, Some(thread), number) = facts(line) {
            let newest = newest.entry((pid, thread)).or_default();
            *newest = number.max(*newest);
        }
    }
    // Who wrote last has its last lines there.
    assert!((0..THREADS).any(|thread| newest.get(&(last, thread)) == Some(&(OPERATIONS - 1))));
    assert!(fs::metadata(&path).unwrap().len() <= 1 << 20);
}

#[test]
fn a_child_that_was_forked_tells_its_own_and_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (file, round) = (folder.path().join("file"), folder.path().join("ring"));
    let tracers = [
        Tracer::open(&Spec::File(file.clone())).unwrap(),
        Tracer::open(&Spec::Ring(round.clone(), None)).unwrap(),
    ];
    for tracer in &tracers {
        note(tracer, 1, 0);
        // SAFETY: the child calls what any thread may call, and ends without what would be run at
        // an end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            for number in 1..9 {
                note(tracer, 2, number);
            }
            // SAFETY: it ends.
            unsafe { libc::_exit(0) };
        }
        note(tracer, 3, 9);
        let mut status = 0;
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        note(tracer, 4, 10);
    }
    let text = fs::read_to_string(&file).unwrap();
    let of_file: Vec<String> = text.lines().map(str::to_owned).collect();
    for lines in [of_file, ring::lines(&round).unwrap()] {
        let mut numbers: Vec<u64> = Vec::new();
        for line in &lines {
            let record = Record::parse(line.as_bytes()).unwrap();
            let (pid, thread, number) = facts(line);
            assert_eq!(pid == std::process::id(), !(1..9).contains(&number), "{line}");
            assert_eq!(record.tid == pid, (1..9).contains(&number), "a child has one thread");
            numbers.extend(thread.map(|_| number));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..11).collect::<Vec<u64>>());
    }
}

#[test]
fn a_full_disk_leaves_one_damaged_line_and_the_rest_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let limited = "trap '' XFSZ; ulimit -f 64; exec \"$0\" --exact writer --nocapture";
    let child = Command::new("sh")
        .args(["-c", limited])
        .arg(env::current_exe().unwrap())
        .env(SPEC, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = ended(child);
    let lost = said.lines().find_map(|line| line.trim().strip_prefix("lost "));
    let lost: u64 = lost.expect("it says so").parse().unwrap();
    assert!(lost > 1000, "{said}");
    // Somebody goes on, once there is room.
    let tracer = Tracer::open(&Spec::File(path.clone())).unwrap();
    note(&tracer, 0, 1);
    let bytes = fs::read(&path).unwrap();
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let (last, lines) = lines.split_last().unwrap();
    assert!(last.is_empty());
    let good = lines.iter().filter(|line| Record::parse(line).is_ok()).count();
    assert!(lines.len() - good <= 1, "{} of {} are whole", good, lines.len());
    assert!(good > 100);
    assert!(lines[lines.len() - 2..].iter().all(|line| Record::parse(line).is_ok()));
}

#[test]
fn what_was_lost_is_told_before_the_next_line() {
    let folder = tempfile::tempdir().unwrap();
    let tracer = Tracer::open(&Spec::Ring(folder.path().join("ring"), None)).unwrap();
    let long = format!("/{}", "x".repeat(20_000));
    tracer.note(Operation::Open, 7, || Cow::Borrowed(&long), &[]);
    assert_eq!(tracer.lost(), 1);
    tracer.note(Operation::Open, 7, || Cow::Borrowed("/short"), &[]);
    tracer.note(Operation::Close, 7, || Cow::Borrowed("/short"), &[]);
    let lines = ring::lines(&folder.path().join("ring")).unwrap();
    let told: Vec<String> =
        lines.iter().map(|line| line.split(':').nth(1).unwrap().into()).collect();
    assert_eq!(told, ["lost", "open", "close"]);
    assert!(lines[0].ends_with("::1"), "{}", lines[0]);
    assert_eq!(tracer.lost(), 1);
}

#[test]
fn who_traces_nothing_is_asked_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let off = Tracer::off();
    off.note_all(1, |_| panic!("nobody asks"));
    assert!(!off.is_on());
    let tracer = Tracer::open(&Spec::File(path.clone())).unwrap();
    tracer.stop();
    tracer.note(Operation::Open, 1, || panic!("nobody asks"), &[]);
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn only_a_trace_is_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let refused = |path: &Path| Tracer::open(&Spec::File(path.to_owned())).err().unwrap();
    fs::write(&path, b"x,y\n1,2\n").unwrap();
    assert!(refused(&path).message.contains("is no trace"), "{}", refused(&path));
    assert_eq!(fs::read(&path).unwrap(), b"x,y\n1,2\n");
    let round = folder.path().join("ring");
    drop(Tracer::open(&Spec::Ring(round.clone(), None)).unwrap());
    assert!(refused(&round).message.contains("is a ring"));
    assert!(refused(folder.path()).message.contains("is no regular file"));
    assert_eq!(refused(&folder.path().join("no/trace")).code, libc::ENOENT);
    let file = folder.path().join("trace");
    note(&Tracer::open(&Spec::File(file.clone())).unwrap(), 0, 1);
    note(&Tracer::open(&Spec::File(file.clone())).unwrap(), 0, 3);
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 3);
    let refused = Tracer::open(&Spec::Ring(file, None)).err().unwrap();
    assert!(refused.message.contains("is no ring"));
}

#[test]
fn a_spec_is_read_with_its_size() {
    let parse = |text: &str| Spec::parse(text.as_ref());
    let ring = |path: &str, size| Ok(Spec::Ring(PathBuf::from(path), size));
    assert_eq!(parse("/t/a:b"), Ok(Spec::File(PathBuf::from("/t/a:b"))));
    assert_eq!(parse("ring:/t/r"), ring("/t/r", None));
    assert_eq!(parse("ring:/t/r:16MiB"), ring("/t/r", Some(16 << 20)));
    assert_eq!(parse("ring:/t/r:1GiB"), ring("/t/r", Some(1 << 30)));
    assert_eq!(parse("ring:/t/r:4096"), ring("/t/r", Some(4096)));
    assert_eq!(parse("ring:/t/r:x"), ring("/t/r:x", None));
    for nothing in ["", "ring:", "ring::1MiB"] {
        assert_eq!(parse(nothing).unwrap_err().code, libc::EINVAL, "{nothing}");
    }
}

/// A namespace as a file system, for a while.
fn with_fs(run: impl FnOnce(&Fs, &Path)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let options = CreateOptions { size: 32 << 20, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&path, &options).unwrap();
    let fs = Fs::new(pool.namespace("default").unwrap(), Options::default()).unwrap();
    run(&fs, &path);
    drop(fs);
    pool.close();
}

const BOTH: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false };

#[test]
fn each_piece_of_a_transfer_has_a_line_and_a_hole_has_no_address() {
    with_fs(|fs, pool| {
        let maker = Maker::this_process().unwrap();
        let (_, handle) = fs.create(ROOT, b"file", 0o644, BOTH, maker).unwrap();
        let file = pool.with_extension("trace");
        let tracer = Tracer::open(&Spec::File(file.clone())).unwrap();
        handle.write(0, b"small").unwrap();
        let told = |way, offset, size| {
            fs::write(&file, b"").unwrap();
            tracer.note_all(5, |lines| lines.transfer(way, "/file", &handle, offset, size));
            let text = fs::read_to_string(&file).unwrap();
            let records = text.lines().map(|line| Record::parse(line.as_bytes()).unwrap());
            records.collect::<Vec<_>>()
        };
        // It lies in its record.
        assert_eq!(told(Way::Write, 0, 5).len(), 1);
        handle.write(0, &vec![1; 50_000]).unwrap();
        handle.write(1 << 20, &vec![2; 50_000]).unwrap();
        let size = (1 << 20) + 50_000;
        let records = told(Way::Read, 10, size - 10);
        assert_eq!(records[0].operation, Operation::Read);
        assert_eq!(records[0].place, "/file");
        assert_eq!(records[0].arguments, [Argument::Number(10), Argument::Number(size - 10)]);
        let pieces: Vec<(u64, u64)> = records[1..]
            .iter()
            .map(|record| {
                assert_eq!((record.operation, record.pid), (Operation::NvmlRead, 5));
                assert_eq!(record.place, pool.to_str().unwrap());
                match record.arguments[..] {
                    [Argument::Address(address), Argument::Number(len)] => (address, len),
                    _ => panic!("{record:?}"),
                }
            })
            .collect();
        assert_eq!(pieces.iter().map(|(_, len)| len).sum::<u64>(), size - 10);
        let holes: Vec<_> = pieces.iter().filter(|(address, _)| *address == 0).collect();
        assert_eq!(holes.len(), 1, "{pieces:?}");
        // The engine tells the same, and what lies there is what was written.
        let whole = handle.pieces(0, u64::MAX).unwrap();
        assert_eq!(whole.iter().map(|piece| piece.len).sum::<u64>(), size);
        assert_eq!(whole[0].address.unwrap() + 10, pieces[0].0);
        assert!(whole.windows(2).all(|two| two[0].at + two[0].len == two[1].at));
        let written = told(Way::Write, 1 << 20, 50_000);
        assert_eq!(written[1].operation, Operation::NvmlWrite);
        assert!(told(Way::Read, size, 0).len() == 1);
    });
}

#[test]
fn a_path_is_that_of_the_name_and_of_what_is_shown() {
    with_fs(|fs, _| {
        let maker = Maker::this_process().unwrap();
        let folder = fs.mkdir(ROOT, b"a:b", 0o755, maker).unwrap().ino;
        let (stat, handle) = fs.create(folder, b"file", 0o644, BOTH, maker).unwrap();
        assert_eq!(fs.path_of(ROOT).unwrap(), "/");
        assert_eq!(fs.path_of(folder).unwrap(), "/a:b");
        assert_eq!(fs.path_of(stat.ino).unwrap(), "/a:b/file");
        assert_eq!(fs.path_in(ROOT, "new").unwrap(), "/new");
        assert_eq!(fs.path_in(folder, "new").unwrap(), "/a:b/new");
        let shown = fs.lookup(ROOT, b".engram").unwrap().ino;
        let queries = fs.lookup(shown, b"query").unwrap().ino;
        let query = fs.lookup(queries, b"x = 1 %2F 2").map(|stat| stat.ino);
        let query = query.or_else(|_| fs.lookup(queries, b"x = 1").map(|stat| stat.ino)).unwrap();
        assert!(fs.path_of(query).unwrap().starts_with("/.engram/query/x = 1"));
        fs.unlink(folder, b"file").unwrap();
        let gone: Errno = fs.path_of(stat.ino).unwrap_err();
        assert_eq!(gone.code, libc::ESTALE);
        drop(handle);
    });
}
