//! Any tree comes out of a pool as it went in; what is there is not copied again; what is wrong is
//! named.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

mod room;

use engram::Mode;
use engram_stage::{
    Existing, Options, Order, Pace, Plan, Progress, Report, Source, Target, Verify, Work, check,
    drop_stage, stage_in, stage_out, status,
};
use proptest::prelude::*;
use room::{MIB, Room, two};

/// A node of a tree, under a name of few letters.
#[derive(Clone, Debug)]
enum Node {
    File {
        size: u64,
        seed: u8,
        hole: bool,
    },
    Folder,
    Symlink(String),
    Fifo,
    /// A further name of the file that was made last.
    Link,
}

#[derive(Clone, Debug)]
struct Made {
    path: String,
    node: Node,
    mode: u32,
    /// In ns since 1970.
    written: i64,
    attribute: Option<(String, Vec<u8>)>,
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[abc]",
        1 => "[a-c %\n\\\\]{1,5}",
        1 => Just("größe".to_owned()),
    ]
    .prop_filter("a name", |name| !name.trim().is_empty())
}

fn made() -> impl Strategy<Value = Made> {
    let path = prop::collection::vec(name(), 1..4).prop_map(|names| names.join("/"));
    let sizes =
        prop_oneof![Just(0), 1_u64..3000, 3000_u64..100_000, MIB - 2..MIB + 3, 2 * MIB..3 * MIB,];
    let node = prop_oneof![
        5 => (sizes, any::<u8>(), any::<bool>())
            .prop_map(|(size, seed, hole)| Node::File { size, seed, hole }),
        2 => Just(Node::Folder),
        1 => "[abc/.]{1,9}".prop_map(Node::Symlink),
        1 => Just(Node::Fifo),
        1 => Just(Node::Link),
    ];
    let mode = prop_oneof![Just(0o644), Just(0o4755), Just(0o400), 0o700_u32..0o1000];
    let attribute = prop::option::of(("[a-z]{1,6}", prop::collection::vec(any::<u8>(), 1..40)));
    (path, node, mode, 0_i64..2_000_000_000_000_000_000, attribute).prop_map(
        |(path, node, mode, written, attribute)| Made { path, node, mode, written, attribute },
    )
}

fn bytes(size: u64, seed: u8) -> Vec<u8> {
    let word = |at: u64| (at ^ u64::from(seed) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (0..size).map(|at| word(at / 8) as u8).collect()
}

/// Makes a tree. What does not fit is left out.
fn make(root: &Path, all: &[Made]) {
    fs::create_dir(root).unwrap();
    let mut last: Option<PathBuf> = None;
    let mut folders = Vec::new();
    for made in all {
        let path = root.join(&made.path);
        let above = path.parent().unwrap();
        // A name behind a symlink may lie outside the tree.
        let mut between = above.ancestors().take_while(|folder| *folder != root);
        if between.any(Path::is_symlink)
            || fs::create_dir_all(above).is_err()
            || path.symlink_metadata().is_ok()
        {
            continue;
        }
        let done = match &made.node {
            Node::File { size, seed, hole } => fs::File::create(&path).and_then(|file| {
                last = Some(path.clone());
                file.set_len(*size)?;
                let begin = if *hole { size / 2 } else { 0 };
                file.write_all_at(&bytes(size - begin, *seed), begin)
            }),
            Node::Folder => fs::create_dir(&path),
            Node::Symlink(to) => symlink(to, &path),
            Node::Fifo => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).map_err(Into::into)
            }
            Node::Link => match &last {
                Some(last) => fs::hard_link(last, &path),
                None => continue,
            },
        };
        done.unwrap();
        if matches!(made.node, Node::Symlink(_)) {
            continue;
        }
        if let Some((key, value)) = &made.attribute {
            let name = format!("user.{key}");
            let flags = rustix::fs::XattrFlags::empty();
            if matches!(made.node, Node::File { .. } | Node::Folder) {
                rustix::fs::lsetxattr(&path, name.as_str(), value, flags).unwrap();
            }
        }
        if matches!(made.node, Node::Folder) {
            folders.push((path, made));
        } else {
            give(&path, made);
        }
    }
    folders.iter().rev().for_each(|(path, made)| give(path, made));
}

fn give(path: &Path, made: &Made) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let mode = if matches!(made.node, Node::Folder) { made.mode | 0o700 } else { made.mode };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let at = |ns: i64| Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    let times =
        Timestamps { last_access: at(made.written / 2), last_modification: at(made.written) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// The attributes of a node, into room that is larger than any of them.
fn attributes_of(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = [0; 4096];
    let count = rustix::fs::llistxattr(path, &mut names).unwrap();
    let names = names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = [0; 4096];
        let count = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        value[..count].to_vec()
    };
    let mut all: Vec<_> =
        names.map(|name| (String::from_utf8_lossy(name).into_owned(), value(name))).collect();
    all.sort();
    all
}

/// What can be said of a tree, by path: all of it that a stage keeps.
fn told(root: &Path) -> BTreeMap<String, String> {
    fn walk(root: &Path, at: &Path, into: &mut BTreeMap<String, String>) {
        let mut entries: Vec<_> =
            fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let meta = path.symlink_metadata().unwrap();
            let below = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if below == "MANIFEST.engram" || below == "MANIFEST.sha256" {
                continue;
            }
            let content = if meta.is_file() {
                let sum = engram_stage::sum::Sum::of(&fs::read(&path).unwrap(), false);
                format!("{} {sum}", meta.len())
            } else if meta.is_symlink() {
                fs::read_link(&path).unwrap().to_string_lossy().into_owned()
            } else {
                String::new()
            };
            let attributes = if meta.is_symlink() { Vec::new() } else { attributes_of(&path) };
            let links = if meta.is_dir() { 0 } else { meta.nlink() };
            into.insert(
                below,
                format!(
                    "{:o} {}:{} {}.{:09} {links} {attributes:?} {content}",
                    meta.mode(),
                    meta.uid(),
                    meta.gid(),
                    meta.mtime(),
                    meta.mtime_nsec()
                ),
            );
            if meta.is_dir() {
                walk(root, &path, into);
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(root, root, &mut all);
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_tree_comes_out_as_it_went_in(
        all in prop::collection::vec(made(), 1..20),
        verify in prop_oneof![Just(Verify::Size), Just(Verify::Written), Just(Verify::Readback)],
    ) {
        let room = Room::new();
        make(&room.path("from"), &all);
        let before = told(&room.path("from"));
        let brought = room.bring("from", &two(verify));
        prop_assert_eq!(&brought.troubles, &[]);
        prop_assert!(brought.whole);
        let with_attributes = all.iter().any(|made| {
            made.attribute.is_some() && matches!(made.node, Node::File { .. } | Node::Folder)
        });
        let told_of = before.values().any(|told| told.contains("user."));
        prop_assert!(!told_of || with_attributes);
        let taken = room.take("to", &Options { sha256: true, ..two(verify) });
        prop_assert_eq!(&taken.troubles, &[]);
        prop_assert_eq!(told(&room.path("to")), before.clone());
        prop_assert_eq!(told(&room.path("from")), before.clone(), "the source stays");
        prop_assert_eq!(room.check("to"), Vec::<String>::new());
        // All of it is there: nothing is copied again.
        let again = room.bring("from", &two(verify));
        prop_assert_eq!(&again.troubles, &[]);
        prop_assert_eq!(again.bytes_reused, brought.lines.iter().filter(|line| {
            line.what == engram_stage::manifest::What::File
        }).map(|line| line.size).sum::<u64>() + again.lines.iter().filter(|line| {
            line.what == engram_stage::manifest::What::Link
        }).map(|line| line.size).sum::<u64>());
        let again = room.take("to", &Options { sha256: true, ..two(verify) });
        prop_assert_eq!(&again.troubles, &[]);
        prop_assert_eq!(told(&room.path("to")), before);
        room.pool.close();
        let pool = room.path("pool");
        prop_assert_eq!(engram::verify(&pool).unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn another_file_of_the_name_stays_unless_it_is_to_go() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    fs::write(room.path("from/a"), b"new").unwrap();
    assert!(room.bring("from", &two(Verify::Written)).whole);
    fs::create_dir(room.path("to")).unwrap();
    fs::write(room.path("to/a"), b"other").unwrap();
    let kept = room.take("to", &two(Verify::Readback));
    assert_eq!(kept.troubles.len(), 1);
    assert!(kept.troubles[0].why.contains("--overwrite"), "{:?}", kept.troubles);
    assert_eq!(fs::read(room.path("to/a")).unwrap(), b"other");
    assert!(!room.path("to/MANIFEST.engram").exists(), "not all of it was done");
    let over = Options { existing: Existing::Overwrite, ..two(Verify::Readback) };
    assert!(room.take("to", &over).whole);
    assert_eq!(fs::read(room.path("to/a")).unwrap(), b"new");
    // What a stage has written, and nobody since, makes way for what is newer.
    fs::write(room.path("from/a"), b"newer").unwrap();
    assert!(room.bring("from", &two(Verify::Written)).whole);
    assert!(room.take("to", &two(Verify::Readback)).whole);
    assert_eq!(fs::read(room.path("to/a")).unwrap(), b"newer");
}

#[test]
fn a_changed_byte_is_found() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    fs::write(room.path("from/large"), bytes(3 * MIB, 1)).unwrap();
    fs::write(room.path("from/small"), b"1").unwrap();
    symlink("small", room.path("from/link")).unwrap();
    assert!(room.bring("from", &two(Verify::Readback)).whole);
    assert!(room.take("to", &two(Verify::Readback)).whole);
    assert_eq!(room.check("to"), Vec::<String>::new());
    let large = fs::OpenOptions::new().write(true).open(room.path("to/large")).unwrap();
    large.write_all_at(b"\xff\xfe", 2 * MIB + 7).unwrap();
    fs::write(room.path("to/small"), b"22").unwrap();
    fs::remove_file(room.path("to/link")).unwrap();
    let found = room.check("to");
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("large: sums up to") || found[1].starts_with("large: sums up to"));
    assert!(found.iter().any(|line| line.starts_with("small: has 2 bytes")));
    fs::write(room.path("to/MANIFEST.engram"), "engram-manifest 1\n").unwrap();
    let progress = Progress::default();
    let cut = check(&room.path("to"), &Pace::new(None, None), &progress).unwrap_err();
    assert_eq!(cut.kind(), engram::Kind::Corrupt);
}

#[test]
fn names_that_are_not_utf8_are_named_and_the_rest_is_brought() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    let odd = std::ffi::OsString::from_vec(b"od\xffd".to_vec());
    fs::write(room.path("from").join(&odd), b"1").unwrap();
    fs::write(room.path("from/even"), b"2").unwrap();
    let report = room.bring("from", &two(Verify::Written));
    assert_eq!(report.troubles.len(), 1, "{:?}", report.troubles);
    assert!(report.troubles[0].path.contains("od"), "{:?}", report.troubles);
    assert_eq!(report.files, 1);
    assert!(room.path("from").join(odd).as_os_str().as_bytes().contains(&0xff));
    assert_eq!(room.pool.mode(), Mode::ReadWrite);
}

/// A half-made copy that is another file's second name is not written through.
#[test]
fn what_a_dead_stage_left_is_not_written_through() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    fs::write(room.path("from/a"), b"first").unwrap();
    fs::write(room.path("from/b"), b"second").unwrap();
    assert!(room.bring("from", &two(Verify::Written)).whole);
    assert!(room.take("to", &two(Verify::Readback)).whole);
    fs::write(room.path("from/b"), b"the second, changed").unwrap();
    assert!(room.bring("from", &two(Verify::Written)).whole);
    let part = room.target("to").part_of(&room.fs(), &room.path("to/b"));
    fs::hard_link(room.path("to/a"), part).unwrap();
    room.take("to", &two(Verify::Readback));
    assert_eq!(fs::read(room.path("to/a")).unwrap(), b"first");
    assert_eq!(fs::read(room.path("to/b")).unwrap(), b"the second, changed");
}

/// Two stages of the same trees would share what is half made.
#[test]
fn trees_that_a_stage_is_at_are_no_others() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    let source = Source::new(room.path("from"), "in");
    let plan = Plan::new(&Work::In(vec![source]), Options::default()).unwrap();
    let fs = room.fs();
    let first = status::begin(&fs, "first", &plan).unwrap();
    for name in ["first", "second"] {
        let error = status::begin(&fs, name, &plan).err().unwrap();
        assert_eq!(error.kind(), engram::Kind::Busy, "{name}: {}", error.message());
    }
    let (pace, progress) = (Pace::new(None, None), Progress::default());
    assert!(first.run(&fs, &plan, &pace, &progress).unwrap().whole);
    assert!(status::begin(&fs, "second", &plan).is_ok());
}

/// A file is not dropped that was never brought out, also by force.
#[test]
fn what_a_stage_has_not_brought_is_not_dropped() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    fs::write(room.path("from/a"), b"first").unwrap();
    fs::write(room.path("from/b"), b"second").unwrap();
    assert!(room.bring("from", &two(Verify::Written)).whole);
    let order = Order::Listed { paths: vec!["in/a".to_owned()], only: true };
    let target = Target { from: "in".to_owned(), to: room.path("to") };
    let options = Options { order, ..two(Verify::Readback) };
    let plan = Plan::new(&Work::Out(vec![target]), options).unwrap();
    let (fs, pace, progress) = (room.fs(), Pace::new(None, None), Progress::default());
    let begun = status::begin(&fs, "out", &plan).unwrap();
    assert_eq!(begun.run(&fs, &plan, &pace, &progress).unwrap().files, 1);
    let dropped = drop_stage(&fs, "out", false, true).unwrap();
    assert_eq!((dropped.files, dropped.lost), (1, Vec::new()));
    let walked = |path: &str| fs.walk(engram_fs::ROOT, path).unwrap().stat;
    assert!(walked("in/a").is_none());
    assert!(walked("in/b").is_some());
}

/// Stages of several pools that bring files of the same names to one folder: each name is one's.
#[test]
fn pools_that_bring_out_the_same_names_do_not_share_what_is_half_made() {
    let rooms = [Room::new(), Room::new()];
    let contents = |room: usize, file: u64| vec![b'a' + room as u8; (file * 50_000) as usize + 1];
    for (number, room) in rooms.iter().enumerate() {
        fs::create_dir(room.path("from")).unwrap();
        for file in 0..20 {
            let path = room.path("from").join(file.to_string());
            fs::write(path, contents(number, file)).unwrap();
        }
        assert!(room.bring("from", &two(Verify::Written)).whole);
    }
    let to = rooms[0].path("to");
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let taking = rooms.iter().map(|room| {
            let target = Target { from: "in".to_owned(), to: to.clone() };
            scope.spawn(move || {
                let (pace, progress) = (Pace::new(None, None), Progress::default());
                stage_out(&room.fs(), &[target], &two(Verify::Written), &pace, &progress).unwrap()
            })
        });
        let taking: Vec<_> = taking.collect();
        taking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let refused: usize = reports.iter().map(|report| report.troubles.len()).sum();
    assert_eq!(refused, 20, "one of both has each name: {reports:?}");
    for file in 0..20 {
        let found = fs::read(to.join(file.to_string())).unwrap();
        let whose = usize::from(found[0] == b'b');
        assert!(found == contents(whose, file), "file {file}");
    }
}

/// What an awaited stage is to bring is expected until it is there, and no longer than the stage.
#[test]
fn names_are_expected_until_they_are_there() {
    let room = Room::new();
    fs::create_dir_all(room.path("from/deep")).unwrap();
    for file in ["deep/a", "deep/b", "deep/c", "deep/d"] {
        fs::write(room.path("from").join(file), file).unwrap();
    }
    let shown = room.fs();
    let folder = |path: &str| shown.walk(engram_fs::ROOT, path).ok()?.stat.map(|stat| stat.ino);
    let options = Options { awaited: true, workers: 1, ..two(Verify::Written) };
    let sources = [Source::new(room.path("from"), "in")];
    // Four a second: the last one is on its way for some time.
    let (pace, progress) = (Pace::new(None, Some(4)), Progress::default());
    std::thread::scope(|scope| {
        let stage =
            scope.spawn(|| stage_in(&room.fs(), &sources, &options, &pace, &progress).unwrap());
        while progress.counts().files_done == 0 {
            std::thread::yield_now();
        }
        let deep = folder("in/deep").unwrap();
        assert!(shown.is_expected(deep, b"d"));
        assert!(!shown.is_expected(deep, b"e"), "it is not on its way");
        assert!(!shown.is_expected(folder("in").unwrap(), b"d"), "nor there");
        let told = shown.walk(engram_fs::ROOT, "in/deep/d").unwrap_err();
        assert_eq!(told.code, libc::EBUSY, "{}", told.message);
        while shown.is_expected(deep, b"c") {
            std::thread::yield_now();
        }
        assert!(shown.lookup(deep, b"c").is_ok(), "it is expected no more, since it is there");
        progress.stop();
        assert!(!stage.join().unwrap().whole);
        assert!(!shown.is_expected(deep, b"d"), "nobody brings it any more");
        assert_eq!(shown.walk(engram_fs::ROOT, "in/deep/d").unwrap().stat.map(|at| at.ino), None);
        assert_eq!(shown.stat(deep).unwrap().mode, 0o755, "it is a folder as before");
    });
}
