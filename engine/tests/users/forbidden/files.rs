//! Acts on files, without the engine: every way in which one may read, write or take away a file or
//! folder, on every file and folder that is another's.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use super::refused;
use super::world::{Who, World, all_below, state};
use crate::common::{ALICE, DAVE, alone, fork, is_root};

/// A way to come at a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `open` for reading; of a folder, a listing.
    Read,
    Write,
    ReadWrite,
    Truncate,
    Remove,
    /// Another name in the same folder.
    Rename,
    /// Another folder, one's own.
    TakeAway,
    /// One's own in its place.
    Replace,
    /// A second name, in one's own folder.
    Link,
    Chmod,
    Chown,
    /// A file, a folder, a link, in a folder.
    MakeFile,
    MakeFolder,
    MakeLink,
}

use Way::{
    Chmod, Chown, Link, MakeFile, MakeFolder, MakeLink, Read, ReadWrite, Remove, Rename, Replace,
    TakeAway, Truncate, Write,
};

const OPENED: &[Way] = &[Read, Write, ReadWrite, Truncate];
const WRITTEN: &[Way] = &[Write, ReadWrite, Truncate];
const TAKEN: &[Way] = &[Remove, Rename, TakeAway, Replace];
const GIVEN: &[Way] = &[Chmod, Chown];
const MADE: &[Way] = &[MakeFile, MakeFolder, MakeLink];
const LINKED: &[Way] = &[Link];

/// A row: what it is that is come at, by whom, in which ways.
struct Row {
    what: &'static str,
    by: &'static [Who],
    /// Every file and folder of it, as root sees them.
    of: fn(&World) -> Vec<PathBuf>,
    ways: &'static [&'static [Way]],
}

const ANYBODY: &[Who] = &[Who::Stranger, Who::Member];
const STRANGER: &[Who] = &[Who::Stranger];
const MEMBER: &[Who] = &[Who::Member];
const EVERY: &[&[Way]] = &[OPENED, TAKEN, GIVEN, MADE, LINKED];

fn below(places: &[PathBuf]) -> Vec<PathBuf> {
    places.iter().flat_map(|place| all_below(place)).collect()
}

/// The folders and files from which everything of the pool hangs.
fn frame(world: &World) -> Vec<PathBuf> {
    let mut found = vec![world.path.clone(), world.path.join("pool.toml"), world.path.join("ns")];
    found.extend(world.on_devices());
    found.extend(["default", "open", "closed"].map(|name| world.path.join("ns").join(name)));
    for device in world.on_devices() {
        found.extend(["default", "open", "closed"].map(|name| device.join(name)));
    }
    found
}

/// What lies in the folder of the namespace that all may enter, and on the devices.
fn parts(world: &World) -> Vec<PathBuf> {
    let names = ["shared", "private", "published"];
    let mut found: Vec<PathBuf> = names.iter().flat_map(|n| world.places("open", n)).collect();
    let here = ["namespace.toml", "scopes", "births"].map(|name| world.places("open", name));
    found.extend(here.into_iter().map(|places| places[0].clone()));
    found
}

fn versions(world: &World) -> Vec<PathBuf> {
    below(&world.places("open", "published"))
}

const TABLE: &[Row] = &[
    Row {
        what: "another's private realm, on each device",
        by: ANYBODY,
        of: |world| {
            let of = |uid: u32| below(&world.places("open", &format!("private/{uid}")));
            [of(DAVE), of(ALICE)].concat()
        },
        ways: EVERY,
    },
    Row {
        what: "a shared realm of a namespace that one may enter",
        by: STRANGER,
        of: |world| below(&world.places("open", "shared")),
        ways: EVERY,
    },
    Row {
        what: "a namespace that one may not enter",
        by: STRANGER,
        of: |world| below(&world.places("closed", "")),
        ways: EVERY,
    },
    Row {
        what: "a namespace of mode 0700",
        by: ANYBODY,
        of: |world| below(&world.places("default", "")),
        ways: EVERY,
    },
    Row {
        what: "what is published",
        by: STRANGER,
        of: versions,
        ways: &[WRITTEN, TAKEN, GIVEN, MADE],
    },
    Row {
        what: "published files, by one who may publish",
        by: MEMBER,
        of: |world| versions(world).into_iter().filter(|path| path.is_file()).collect(),
        ways: &[WRITTEN, GIVEN],
    },
    Row {
        what: "the pool's, the devices' and the namespaces' folders, pool.toml",
        by: ANYBODY,
        of: frame,
        ways: &[WRITTEN, TAKEN, GIVEN],
    },
    Row {
        what: "new things in the pool's own folders",
        by: ANYBODY,
        of: |world| {
            [vec![world.path.clone(), world.path.join("ns")], world.on_devices().into()].concat()
        },
        ways: &[MADE],
    },
    Row {
        what: "the parts of a namespace: its realms' folders, namespace.toml, scopes, births",
        by: ANYBODY,
        of: parts,
        ways: &[TAKEN, GIVEN],
    },
    Row {
        what: "namespace.toml",
        by: ANYBODY,
        of: |world| vec![world.path.join("ns/open/namespace.toml")],
        ways: &[WRITTEN],
    },
    Row {
        what: "the shared counter, which tells of realms that come",
        by: STRANGER,
        of: |world| vec![world.path.join("ns/open/scopes")],
        ways: &[OPENED],
    },
    Row {
        what: "the id prefixes of others",
        by: ANYBODY,
        of: |world| all_below(&world.path.join("ns/open/births")).split_off(1),
        ways: &[WRITTEN, TAKEN, GIVEN],
    },
];

/// Tries; `None` where it makes no sense, or depends on how this kernel is set up.
fn attempt(way: Way, path: &Path, own: &Path) -> Option<io::Result<()>> {
    let is_dir = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let mine = own.join("mine");
    let opened = |options: &fs::OpenOptions| (!is_dir).then(|| options.open(path).map(drop));
    let inside = |name: &str| path.join(format!("planted-{name}"));
    match way {
        Read if is_dir => Some(fs::read_dir(path).map(drop)),
        Read => Some(File::open(path).map(drop)),
        Write => opened(File::options().write(true)),
        ReadWrite => opened(File::options().read(true).write(true)),
        Truncate => opened(File::options().write(true).truncate(true)),
        Remove if is_dir => Some(fs::remove_dir(path)),
        Remove => Some(fs::remove_file(path)),
        Rename => Some(fs::rename(path, path.with_extension("elsewhere"))),
        TakeAway => Some(fs::rename(path, own.join("taken"))),
        Replace => {
            let _ = fs::remove_dir_all(&mine);
            let _ = fs::remove_file(&mine);
            if is_dir {
                fs::create_dir(&mine).unwrap();
            } else {
                fs::write(&mine, "mine").unwrap();
            }
            Some(fs::rename(&mine, path))
        }
        // A second name of a file that is one's to look at is no harm, and may be allowed.
        Link => (!is_dir).then(|| fs::hard_link(path, own.join("linked"))),
        Chmod => Some(fs::set_permissions(path, Permissions::from_mode(0o777))),
        // SAFETY: asks for a number.
        Chown => Some(chown(path, Some(unsafe { libc::geteuid() }), None)),
        MakeFile => is_dir.then(|| File::create_new(inside("file")).map(drop)),
        MakeFolder => is_dir.then(|| fs::create_dir(inside("folder"))),
        MakeLink => is_dir.then(|| symlink(own, inside("link"))),
    }
}

/// Tries every way of a row on everything that it is about; how many acts that were.
fn try_all(row: &Row, by: Who, paths: &[PathBuf], own: &Path) -> u64 {
    let mut acts = 0;
    for (path, way) in paths.iter().flat_map(|path| row.ways.iter().map(move |way| (path, way))) {
        for way in *way {
            let Some(done) = attempt(*way, path, own) else { continue };
            let kept_out = done.as_ref().is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
            assert!(kept_out, "{}: {by:?} {way:?} {}: {done:?}", row.what, path.display());
            acts += 1;
        }
    }
    acts
}

/// What is allowed, so that what is refused is not refused for another reason.
fn allowed(world: &World) {
    let shown = world.path.join("ns/open/published");
    let read = move |path: PathBuf| File::open(&path).map(|_| path);
    fork(|_| {
        Who::Stranger.become_them();
        let files: Vec<PathBuf> = all_below(&shown).into_iter().map(|p| read(p).unwrap()).collect();
        assert!(files.iter().any(|path| path.ends_with("catalog/data.mdb")), "{files:?}");
        File::open(world.path.join("pool.toml")).unwrap();
        let prefixes = world.path.join("ns/open/births");
        File::create_new(prefixes.join("stranger")).unwrap();
        fs::remove_file(prefixes.join("stranger")).unwrap();
    })
    .finish();
    fork(|_| {
        Who::Member.become_them();
        for place in world.places("open", "shared") {
            File::create_new(place.join("member")).unwrap();
            fs::remove_file(place.join("member")).unwrap();
        }
        let mut counter = File::options();
        counter.read(true).write(true).open(world.path.join("ns/open/scopes")).unwrap();
    })
    .finish();
}

/// No file of another's is read, written, taken away or made one's own but by whom its scope
/// admits.
#[test]
fn files_of_others_are_closed() {
    let test = "files::files_of_others_are_closed";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let world = World::new();
        allowed(&world);
        let tops = world.dirs.each_ref().map(tempfile::TempDir::path);
        let before = state(&tops);
        let mut acts = 0;
        for row in TABLE {
            let paths = (row.of)(&world);
            assert!(!paths.is_empty(), "{}", row.what);
            for by in row.by {
                let own = tempfile::tempdir_in("/dev/shm").unwrap();
                fs::set_permissions(own.path(), Permissions::from_mode(0o777)).unwrap();
                let peer = fork(|line| {
                    by.become_them();
                    line.say(try_all(row, *by, &paths, own.path()));
                });
                acts += peer.line.hear();
                peer.finish();
            }
        }
        assert_eq!(state(&tops), before, "nothing has changed");
        refused(acts, 2, "files");
    });
}
