//! What others do while a stage is at work, or have left where it works.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use engram_stage::{
    Existing, Options, Pace, Plan, Progress, Source, Target, Verify, Work, drop_stage, stage_in,
    status,
};

mod room;

use room::{MIB, Room, two};

const STRANGER: u32 = 65534;

/// Whether the tests run as one who can give files away.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: files are given away by root alone");
    }
    is_root
}

/// Of stages of one pair of paths, whatever their names are, one begins.
#[test]
fn of_two_stages_that_begin_at_once_one_does() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    let source = Source::new(room.path("from"), "in");
    let works = [Work::In(vec![source.clone(), source]), Work::Out(vec![room.target("to")])];
    for (number, work) in works.iter().enumerate() {
        let plan = Plan::new(work, Options::default()).unwrap();
        for round in 0..30 {
            let begun: usize = std::thread::scope(|scope| {
                let begin = |name: &'static str| {
                    let (plan, fs) = (&plan, room.fs());
                    let name = format!("{name}{number}-{round}");
                    scope.spawn(move || status::begin(&fs, &name, plan).map(|begun| (begun, fs)))
                };
                let both = ["a", "b"].map(begin).map(|one| one.join().unwrap());
                let refused = both.iter().filter_map(|one| one.as_ref().err());
                assert!(refused.into_iter().all(|error| error.kind() == engram::Kind::Busy));
                both.iter().filter(|one| one.is_ok()).count()
            });
            assert_eq!(begun, 1, "round {round}");
        }
    }
}

/// A list of files may be of any length.
#[test]
fn a_stage_of_very_many_pairs_begins() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    let mut sources = Vec::new();
    for number in 0..3000 {
        let from = room.path("from").join(number.to_string());
        fs::write(&from, b"1").unwrap();
        sources.push(Source::new(from, format!("in/{number}")));
    }
    done(&room, "in", &Work::In(sources), &two(Verify::Written));
    assert_eq!(status::one(&room.fs(), "in").unwrap().counts.files_done, 3000);
}

/// What one stage keeps for its paths is not removed with another one of the same paths.
#[test]
fn a_stage_at_work_is_not_dropped_by_another_name() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    let plan = Plan::new(
        &Work::In(vec![Source::new(room.path("from"), "in")]),
        Options { awaited: true, ..two(Verify::Written) },
    )
    .unwrap();
    let (fs, pace, progress) = (room.fs(), Pace::new(None, None), Progress::default());
    let first = status::begin(&fs, "first", &plan).unwrap();
    assert!(first.run(&fs, &plan, &pace, &progress).unwrap().whole);
    let second = status::begin(&fs, "second", &plan).unwrap();
    let error = drop_stage(&fs, "first", false, false).unwrap_err();
    assert_eq!(error.kind(), engram::Kind::Busy, "{}", error.message());
    assert!(second.run(&fs, &plan, &pace, &progress).unwrap().whole);
    assert!(drop_stage(&fs, "first", false, false).unwrap().done);
    assert!(drop_stage(&fs, "second", false, false).unwrap().done);
}

/// A copy that another pair of paths brings to the same place is written elsewhere until then.
#[test]
fn pairs_that_lead_to_one_place_do_not_share_what_is_half_made() {
    let room = Room::new();
    let to = room.path("to/deep/file");
    let inner = Target { from: "in/deep".to_owned(), to: room.path("to/deep") };
    let other = Target { from: "else".to_owned(), to: room.path("to") };
    let fs = room.fs();
    let parts = [room.target("to"), inner, other].map(|target| target.part_of(&fs, &to));
    assert!(parts[0] != parts[1] && parts[1] != parts[2] && parts[0] != parts[2], "{parts:?}");
}

/// A copy that belongs to whom its source does not never runs as its owner.
#[test]
fn a_program_does_not_run_as_whoever_has_copied_it() {
    if !is_root() {
        return;
    }
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    for (name, size) in [("small", 10), ("large", 2 * MIB)] {
        let path = room.path("from").join(name);
        fs::write(&path, vec![1; size as usize]).unwrap();
        chown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    }
    let modes = |folder: &str| {
        ["small", "large"].map(|name| {
            let meta = fs::metadata(room.path(folder).join(name)).unwrap();
            (meta.mode() & 0o7777, meta.uid())
        })
    };
    let keeping = Options { keep_owners: true, ..two(Verify::Written) };
    let leaving = Options { keep_owners: false, ..two(Verify::Written) };
    assert!(room.bring("from", &keeping).whole);
    assert!(room.take("kept", &keeping).whole);
    assert_eq!(modes("kept"), [(0o6755, STRANGER); 2]);
    assert!(room.take("left", &leaving).whole);
    assert_eq!(modes("left"), [(0o755, 0); 2]);
    let room_in = Room::new();
    fs::rename(room.path("from"), room_in.path("from")).unwrap();
    assert!(room_in.bring("from", &leaving).whole);
    assert!(room_in.take("to", &keeping).whole);
    for name in ["small", "large"] {
        let meta = fs::metadata(room_in.path("to").join(name)).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o755, 0), "{name}");
    }
}

/// A link that stands where a folder is to be is not followed, and no manifest says that all is
/// there.
#[test]
fn a_link_in_the_place_of_a_folder_is_not_followed() {
    let room = Room::new();
    fs::create_dir_all(room.path("from/deep")).unwrap();
    fs::write(room.path("from/deep/file"), b"1").unwrap();
    fs::write(room.path("from/top"), b"2").unwrap();
    assert!(room.bring("from", &two(Verify::Written)).whole);
    fs::create_dir_all(room.path("to")).unwrap();
    fs::create_dir_all(room.path("elsewhere")).unwrap();
    symlink(room.path("elsewhere"), room.path("to/deep")).unwrap();
    let report = room.take("to", &two(Verify::Readback));
    assert!(!report.whole && !report.troubles.is_empty(), "{report:?}");
    assert_eq!(fs::read_dir(room.path("elsewhere")).unwrap().count(), 0);
    assert!(!room.path("to/MANIFEST.engram").exists());
    assert!(room.path("to/top").exists());
}

/// A half-made copy in the place of ours is not gone on with if it is somebody else's.
#[test]
fn what_a_stranger_has_left_is_not_gone_on_with() {
    if !is_root() {
        return;
    }
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    let contents: Vec<u8> = (0..4 * MIB).map(|at| (at / 4096) as u8).collect();
    fs::write(room.path("from/file"), &contents).unwrap();
    assert!(room.bring("from", &two(Verify::Written)).whole);
    let options = Options { part: MIB, workers: 1, ..two(Verify::Size) };
    // Stopped amid the file: its first parts are durable.
    let (pace, progress) = (Pace::new(Some(2 * MIB), None), Progress::default());
    std::thread::scope(|scope| {
        let target = [room.target("to")];
        let (fs, options, pace, progress) = (room.fs(), &options, &pace, &progress);
        let taking = scope
            .spawn(move || engram_stage::stage_out(&fs, &target, options, pace, progress).unwrap());
        while progress.counts().bytes_done < 5 * MIB / 2 {
            std::thread::yield_now();
        }
        progress.stop();
        assert!(!taking.join().unwrap().whole);
    });
    let part = room.target("to").part_of(&room.fs(), &room.path("to/file"));
    let planted = vec![0xee; contents.len()];
    assert!(part.exists());
    fs::write(&part, &planted).unwrap();
    chown(&part, Some(STRANGER), None).unwrap();
    let strangers = fs::File::open(&part).unwrap();
    assert!(room.take("to", &options).whole);
    assert_eq!(fs::read(room.path("to/file")).unwrap(), contents);
    let mut left = Vec::new();
    std::io::Read::read_to_end(&mut &strangers, &mut left).unwrap();
    assert!(left == planted, "nothing was written into it");
}

/// Two stages that bring one file to the same name at once: both are done.
#[test]
fn stages_that_meet_at_a_name_are_both_whole() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    for file in 0..200 {
        fs::write(room.path("from").join(file.to_string()), vec![file as u8; 3000]).unwrap();
    }
    let mut all = vec![Source::new(room.path("from"), "in")];
    for file in 0..200 {
        let from = room.path("from").join(file.to_string());
        all.push(Source::new(from, format!("in/{file}")));
    }
    let options = Options { existing: Existing::Update, ..two(Verify::Written) };
    let (one, other) = all.split_at(1);
    std::thread::scope(|scope| {
        let bring = |sources: &'_ [Source]| {
            let (sources, fs, options) = (sources.to_vec(), room.fs(), options.clone());
            scope.spawn(move || {
                let (pace, progress) = (Pace::new(None, None), Progress::default());
                stage_in(&fs, &sources, &options, &pace, &progress).unwrap()
            })
        };
        for taking in [bring(one), bring(other)] {
            let report = taking.join().unwrap();
            assert!(report.whole, "{:?}", &report.troubles[..report.troubles.len().min(3)]);
        }
    });
}

/// With a stage-in go its empty folders and its pipes, if they are outside, too.
#[test]
fn what_is_empty_goes_with_its_stage() {
    let room = Room::new();
    fs::create_dir_all(room.path("from/empty/inner")).unwrap();
    fs::create_dir_all(room.path("from/full")).unwrap();
    fs::write(room.path("from/full/file"), b"1").unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, room.path("from/pipe"), kind, mode, 0).unwrap();
    let work = Work::In(vec![Source::new(room.path("from"), "in")]);
    let plan = Plan::new(&work, two(Verify::Written)).unwrap();
    let (fs, pace, progress) = (room.fs(), Pace::new(None, None), Progress::default());
    let begun = status::begin(&fs, "stage", &plan).unwrap();
    assert!(begun.run(&fs, &plan, &pace, &progress).unwrap().whole);
    assert!(drop_stage(&fs, "stage", false, false).unwrap().done);
    assert!(fs.walk(engram_fs::ROOT, "in").unwrap().stat.is_none(), "nothing is left");
}

/// Writes to a file in the pool, and sets its times to what they were.
fn write_unseen(room: &Room, path: &str, bytes: &[u8]) {
    let fs = room.fs();
    let stat = fs.walk(engram_fs::ROOT, path).unwrap().stat.unwrap();
    let flags = engram_fs::OpenFlags { read: true, write: true, append: false, truncate: false };
    let file = fs.open(stat.ino, flags).unwrap();
    file.write(1, bytes).unwrap();
    drop(file);
    let written = Some(engram_fs::Time::At(stat.written));
    fs.change(stat.ino, engram_fs::Changes { written, ..Default::default() }).unwrap();
    let now = fs.walk(engram_fs::ROOT, path).unwrap().stat.unwrap();
    assert_eq!((now.written, now.size), (stat.written, stat.size));
}

fn done(room: &Room, name: &str, work: &Work, options: &Options) {
    let plan = Plan::new(work, options.clone()).unwrap();
    let (fs, pace, progress) = (room.fs(), Pace::new(None, None), Progress::default());
    let begun = status::begin(&fs, name, &plan).unwrap();
    assert!(begun.run(&fs, &plan, &pace, &progress).unwrap().whole);
}

/// A write that no time tells, as one through a view, is neither dropped nor replaced nor taken for
/// what is outside.
#[test]
fn a_write_that_times_do_not_tell_is_not_lost() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    for (name, size) in [("small", 100), ("large", 2 * MIB)] {
        fs::write(room.path("from").join(name), vec![7; size as usize]).unwrap();
    }
    let options = two(Verify::Written);
    let source = || Work::In(vec![Source::new(room.path("from"), "in")]);
    done(&room, "in", &source(), &options);
    done(&room, "out", &Work::Out(vec![room.target("to")]), &options);
    for name in ["small", "large"] {
        write_unseen(&room, &format!("in/{name}"), b"mine");
    }
    for stage in ["in", "out"] {
        let dropped = drop_stage(&room.fs(), stage, false, false).unwrap();
        assert!(!dropped.done, "{stage}");
        assert_eq!(dropped.lost.len(), 2, "{stage}: {:?}", dropped.lost);
    }
    // A newer source does not take their place.
    fs::write(room.path("from/small"), vec![8; 100]).unwrap();
    let report = room.bring("from", &options);
    assert_eq!(report.troubles.len(), 1, "{:?}", report.troubles);
    // The copies outside do.
    assert!(room.take("to", &options).whole);
    assert_eq!(room.check("to"), Vec::<String>::new());
    for name in ["small", "large"] {
        assert_eq!(&fs::read(room.path("to").join(name)).unwrap()[..6], b"\x07mine\x07", "{name}");
    }
    assert!(drop_stage(&room.fs(), "out", false, false).unwrap().done);
}

/// What has the name of the stage's own manifest is named, and stays.
#[test]
fn a_file_with_the_manifests_name_is_not_taken_for_it() {
    let room = Room::new();
    fs::create_dir_all(room.path("from/deep")).unwrap();
    fs::write(room.path("from/mine"), b"mine").unwrap();
    fs::write(room.path("from/deep/MANIFEST.engram"), b"deep").unwrap();
    assert!(room.bring("from", &two(Verify::Written)).whole);
    let fs_in = room.fs();
    let folder = fs_in.walk(engram_fs::ROOT, "in").unwrap().stat.unwrap().ino;
    let clash = engram::Clash::Refuse;
    fs_in.rename(folder, b"mine", folder, b"MANIFEST.engram", clash).unwrap();
    let report = room.take("to", &two(Verify::Readback));
    assert_eq!(report.troubles.len(), 1, "{:?}", report.troubles);
    assert_eq!(report.troubles[0].path, "in/MANIFEST.engram");
    assert!(!report.whole && !room.path("to/MANIFEST.engram").exists());
    assert_eq!(fs::read(room.path("to/deep/MANIFEST.engram")).unwrap(), b"deep");
}

/// A file with several names is brought anew under each of them once it has changed.
#[test]
fn further_names_follow_a_file_that_has_changed() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    fs::write(room.path("from/a"), b"first").unwrap();
    fs::hard_link(room.path("from/a"), room.path("from/b")).unwrap();
    for contents in ["first", "second one", "third"] {
        fs::write(room.path("from/a"), contents).unwrap();
        let report = room.bring("from", &two(Verify::Written));
        assert!(report.whole, "in: {:?}", report.troubles);
        let report = room.take("to", &two(Verify::Readback));
        assert!(report.whole, "out: {:?}", report.troubles);
        let of = |name: &str| fs::metadata(room.path("to").join(name)).unwrap().ino();
        assert_eq!(of("a"), of("b"));
        assert_eq!(fs::read_to_string(room.path("to/b")).unwrap(), contents);
    }
}

/// Bytes of a copy that was begun anew are not counted twice, and its source is named.
#[test]
fn a_source_that_changes_is_named_and_counted_once() {
    let room = Room::new();
    fs::create_dir(room.path("from")).unwrap();
    fs::write(room.path("from/file"), vec![1; 6 << 20]).unwrap();
    let sources = [Source::new(room.path("from"), "in")];
    let options = Options { workers: 1, part: MIB, ..two(Verify::Written) };
    let (pace, progress) = (Pace::new(Some(8 * MIB), None), Progress::default());
    let report = std::thread::scope(|scope| {
        let taking =
            scope.spawn(|| stage_in(&room.fs(), &sources, &options, &pace, &progress).unwrap());
        while progress.counts().bytes_done < 2 * MIB {
            std::thread::yield_now();
        }
        fs::write(room.path("from/file"), vec![2; 5 << 20]).unwrap();
        taking.join().unwrap()
    });
    assert!(report.whole, "{:?}", report.troubles);
    assert_eq!(report.changed, [room.path("from/file").to_str().unwrap()]);
    assert_eq!((report.files, report.bytes), (1, 5 * MIB));
    assert_eq!(progress.counts().bytes, 5 * MIB);
}
