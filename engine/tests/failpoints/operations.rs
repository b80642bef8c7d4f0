//! What a program does with a pool, each time in one of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use engram::{
    Clash, CreateOptions, Error, File, IndexMode, IndexSettings, Kind, Member, Mode, NewObject,
    Payload, Placement, Pool, Properties, Realm, Result, Value,
};

use super::common::{self, KEEP, OVER, filled, floats, lookup, put};

/// A pool, as far as an operation needs one.
pub struct Place {
    /// The folder that holds all.
    pub root: PathBuf,
    /// The pool's.
    pub path: PathBuf,
    /// While it is open.
    pub pool: Option<Pool>,
}

impl Place {
    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("an open pool")
    }
}

/// What a program does: what it finds there, and what it does.
pub struct Operation {
    /// What it is called.
    pub name: &'static str,
    /// Makes what it finds.
    pub prepare: fn(&mut Place),
    /// Does it.
    pub work: fn(&mut Place) -> Result<()>,
}

/// Operations of several parts, each whole for itself.
pub const IN_PARTS: &[&str] = &["seal the index", "fork", "write in place, flush"];

/// Operations that end with a sync: what it was to make durable is there, if it fails.
pub const SYNCED: &[&str] =
    &["append to a file, sync", "write to a file, sync", "set a file's times"];

const SIZE: u64 = 8 << 20;

/// Of durability `system` where the filesystem is taken for a disk's.
pub fn options() -> CreateOptions {
    CreateOptions { size: SIZE, ..CreateOptions::default() }
}

/// A pool with something in it, closed.
fn closed(place: &mut Place) {
    filled_pool(place);
    place.pool.take().expect("a pool").close();
}

/// A pool with something in it, open.
fn filled_pool(place: &mut Place) {
    let pool = Pool::create(&place.path, &options()).expect("a new pool");
    let realm = pool.realm("default").expect("there");
    let settings = IndexSettings { tail_rows: Some(4), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &settings).expect("settings");
    put(&realm, "kept/small", &filled(1, 1, 10));
    put(&realm, "kept/large", &filled(1, 2, 4_000));
    put(&realm, "kept/other", &filled(1, 3, 2_000));
    put(&realm, "kept/gone", &filled(1, 4, 2_000));
    realm.delete(realm.root(), "kept/gone").expect("deleted");
    place.pool = Some(pool);
}

fn nothing(_: &mut Place) {}

fn with_device(place: &mut Place) {
    filled_pool(place);
    std::fs::create_dir_all(place.root.join("device")).expect("a folder");
}

fn put_words(place: &mut Place, path: &str, words: usize) -> Result<()> {
    let realm = place.pool().realm("default")?;
    let data = filled(2, words as u64, words);
    realm.put(realm.root(), path, &floats(&[words as u64]), &data, OVER).map(drop)
}

fn put_large(place: &mut Place) -> Result<()> {
    put_words(place, "new/large", 3_000)
}

fn seal(place: &mut Place) -> Result<()> {
    (0..4).try_for_each(|n| put_words(place, &format!("kept/{n}"), 10))
}

fn allocate(place: &mut Place) -> Result<()> {
    let realm = place.pool().realm("default")?;
    let data = filled(3, 3, 9_000);
    let space = realm.allocate(realm.root(), "new/made", &floats(&[9_000]), 72_000, KEEP)?;
    space.write(&data);
    space.publish().map(drop)
}

fn batch(place: &mut Place, objects: usize, words: usize) -> Result<()> {
    let realm = place.pool().realm("default")?;
    let batch = realm.batch()?;
    for n in 0..objects {
        put_words(place, &format!("batch/{n}"), if n % 3 == 0 { words } else { 100 })?;
    }
    batch.commit()
}

fn in_place(place: &mut Place) -> Result<()> {
    let realm = place.pool().realm("default")?;
    for path in ["kept/large", "kept/small"] {
        let oid = lookup(&realm, path).expect("there");
        let Payload::Extent(view) = realm.view(oid, true)? else { panic!("{path} is inline") };
        // What is there already: nobody can say what an operation in place leaves half done.
        let data = common::contents(&view);
        // SAFETY: the writable view's own memory.
        unsafe { view.as_ptr().copy_from(data.as_ptr(), data.len()) };
        realm.flush(oid)?;
    }
    Ok(())
}

fn swap(place: &mut Place) -> Result<()> {
    let realm = place.pool().realm("default")?;
    let oid = lookup(&realm, "kept/large").expect("there");
    let (_, generation) = realm.payload(oid)?;
    realm.replace_payload(oid, generation, &filled(7, 7, 4_000)).map(drop)
}

fn annotate(place: &mut Place) -> Result<()> {
    let realm = place.pool().realm("default")?;
    let oid = lookup(&realm, "kept/large").expect("there");
    realm.set_attrs(Member::Object(oid), &[("note".into(), Value::text("seen"))])
}

fn fork_child(place: &mut Place) -> Result<()> {
    // SAFETY: this process has no thread that holds anything; the child ends by `_exit`.
    let child = match unsafe { libc::fork() } {
        0 => {
            let put = catch_unwind(AssertUnwindSafe(|| put_words(place, "of-child", 2_000)));
            place.pool().close();
            // SAFETY: always sound; nothing of the parent's is torn down.
            unsafe { libc::_exit(i32::from(!matches!(put, Ok(Ok(()))))) }
        }
        child => child,
    };
    let ours = put_words(place, "of-parent", 2_000);
    let mut status = 0;
    // SAFETY: a child of ours, and a place for its status.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if status == 0 { ours } else { Err(Error::new(Kind::Os, format!("the child: {status:#x}"))) }
}

#[expect(clippy::unnecessary_wraps, reason = "operations return what went wrong")]
fn close(place: &mut Place) -> Result<()> {
    place.pool.take().expect("a pool").close();
    Ok(())
}

fn read_all(place: &mut Place) -> Result<()> {
    let pool = Pool::open(&place.path, Mode::Read, false)?;
    let realm = pool.realm("default")?;
    let oid = realm.lookup(realm.root(), "kept/large")?.expect("there").id();
    let found = realm.payload(oid).map(drop);
    pool.close();
    found
}

fn make_namespace(place: &mut Place) -> Result<()> {
    place.pool().create_namespace("other", 0o700, None, None).map(drop)
}

fn with_namespace(place: &mut Place) {
    filled_pool(place);
    place.pool().create_namespace("other", 0o700, None, None).expect("a namespace");
}

fn add_device(place: &mut Place) -> Result<()> {
    place.pool().add_device(&place.root.join("device"), false)
}

/// A pool with files: one that has segments, holes and spare space, and one in its record.
fn with_files(place: &mut Place) {
    filled_pool(place);
    let realm = place.pool().realm("default").expect("there");
    make_file(&realm, "f/small", &[1; 600]).expect("a file");
    make_file(&realm, "f/other", &[2; 700]).expect("a file");
    make_file(&realm, "f/large", &[3; 900]).expect("a file");
    realm.make_group(realm.root(), "empty", b"", None).expect("a group");
    let file = open_file(&realm, "f/large").expect("there");
    file.append(&vec![4; 30_000]).expect("room");
    file.write_at(200_000, &[5; 9000]).expect("room");
}

fn make_file(realm: &Realm, path: &str, data: &[u8]) -> Result<()> {
    let properties = Properties { written: 1, accessed: 2, rest: b"kept" }.encode();
    let new = NewObject { properties, ..NewObject::blob() };
    let placement = Placement { index: Some(IndexMode::None), ..KEEP };
    realm.put(realm.root(), path, &new, data, placement).map(drop)
}

fn open_file(realm: &Realm, path: &str) -> Result<File> {
    realm.open_file(lookup(realm, path).expect("there"), true)
}

/// Opens a file, does something with it, and closes it.
fn with_file(place: &Place, path: &str, work: impl Fn(&File) -> Result<()>) -> Result<()> {
    work(&open_file(&place.pool().realm("default")?, path)?)
}

fn rename_over(place: &Place, old: &str, new: &str, clash: Clash) -> Result<()> {
    let realm = place.pool().realm("default")?;
    let folder = realm.lookup(realm.root(), "f")?.expect("there").id();
    realm.rename_over(folder, old, folder, new, clash)
}

fn link(place: &mut Place) -> Result<()> {
    let realm = place.pool().realm("default")?;
    realm.link(lookup(&realm, "f/large").expect("there"), realm.root(), "further")
}

fn unlink_open(place: &mut Place) -> Result<()> {
    let realm = place.pool().realm("default")?;
    let folder = realm.lookup(realm.root(), "f")?.expect("there").id();
    let file = open_file(&realm, "f/large")?;
    realm.unlink(folder, "large")?;
    // What fails now is of no name.
    let _ = file.append(&vec![6; 100_000]);
    Ok(())
}

/// What is done with files.
pub const OF_FILES: &[Operation] = &[
    Operation {
        name: "make a file",
        prepare: with_files,
        work: |place| make_file(&place.pool().realm("default")?, "f/new", b"new"),
    },
    Operation {
        name: "append within a record",
        prepare: with_files,
        work: |place| with_file(place, "f/small", |file| file.append(&[7; 100]).map(drop)),
    },
    Operation {
        name: "append beyond a record",
        prepare: with_files,
        work: |place| with_file(place, "f/small", |file| file.append(&vec![7; 10_000]).map(drop)),
    },
    Operation {
        name: "append to a file, sync",
        prepare: with_files,
        work: |place| {
            with_file(place, "f/large", |file| {
                file.append(&vec![7; 150_000])?;
                file.sync()
            })
        },
    },
    Operation {
        name: "write to a file, sync",
        prepare: with_files,
        work: |place| {
            with_file(place, "f/large", |file| {
                file.write_at(10_000, &[7; 5000])?;
                file.sync()
            })
        },
    },
    Operation {
        name: "write into a hole",
        prepare: with_files,
        work: |place| with_file(place, "f/large", |file| file.write_at(100_000, &vec![7; 30_000])),
    },
    Operation {
        name: "cut a file",
        prepare: with_files,
        work: |place| with_file(place, "f/large", |file| file.set_size(9000)),
    },
    Operation {
        name: "extend a file by a hole",
        prepare: with_files,
        work: |place| with_file(place, "f/large", |file| file.set_size(900_000)),
    },
    Operation {
        name: "punch a hole",
        prepare: with_files,
        work: |place| with_file(place, "f/large", |file| file.punch(8192, 8192)),
    },
    Operation {
        name: "allocate space for a file",
        prepare: with_files,
        work: |place| with_file(place, "f/large", |file| file.allocate(50_000, 100_000, true)),
    },
    Operation {
        name: "set a file's times",
        prepare: with_files,
        work: |place| {
            with_file(place, "f/large", |file| file.set_times(Some(5), Some(6)).map(drop))
        },
    },
    Operation { name: "link a file", prepare: with_files, work: link },
    Operation {
        name: "rename over a file",
        prepare: with_files,
        work: |place| rename_over(place, "small", "large", Clash::Replace),
    },
    Operation {
        name: "exchange two files",
        prepare: with_files,
        work: |place| rename_over(place, "small", "other", Clash::Exchange),
    },
    Operation { name: "unlink an open file", prepare: with_files, work: unlink_open },
    Operation {
        name: "remove a folder",
        prepare: with_files,
        work: |place| {
            let realm = place.pool().realm("default")?;
            realm.remove_empty(realm.root(), "empty")
        },
    },
];

/// Everything else that is tried.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        name: "create",
        prepare: nothing,
        work: |place| {
            place.pool = Some(Pool::create(&place.path, &options())?);
            Ok(())
        },
    },
    Operation {
        name: "open",
        prepare: closed,
        work: |place| {
            place.pool = Some(Pool::open(&place.path, Mode::ReadWrite, false)?);
            Ok(())
        },
    },
    Operation { name: "open to read", prepare: closed, work: read_all },
    Operation {
        name: "put small",
        prepare: filled_pool,
        work: |place| put_words(place, "new/small", 10),
    },
    Operation { name: "put large", prepare: filled_pool, work: put_large },
    Operation { name: "allocate and publish", prepare: filled_pool, work: allocate },
    Operation { name: "batch", prepare: filled_pool, work: |place| batch(place, 9, 2_000) },
    Operation {
        name: "delete",
        prepare: filled_pool,
        work: |place| {
            let realm = place.pool().realm("default")?;
            realm.delete(realm.root(), "kept")
        },
    },
    Operation {
        name: "move",
        prepare: filled_pool,
        work: |place| {
            let realm = place.pool().realm("default")?;
            realm.rename(realm.root(), "kept/large", realm.root(), "moved/there")
        },
    },
    Operation { name: "annotate", prepare: filled_pool, work: annotate },
    Operation { name: "swap a value", prepare: filled_pool, work: swap },
    Operation { name: "write in place, flush", prepare: filled_pool, work: in_place },
    Operation { name: "seal the index", prepare: filled_pool, work: seal },
    Operation {
        name: "grow the catalog",
        prepare: filled_pool,
        work: |place| batch(place, 600, 120),
    },
    Operation {
        name: "grow the arena",
        prepare: |place| {
            filled_pool(place);
            place.pool().realm("default").expect("there").resize(3 * SIZE).expect("resized");
        },
        work: |place| put_words(place, "big", 1_500_000),
    },
    Operation { name: "fork", prepare: filled_pool, work: fork_child },
    Operation { name: "make a namespace", prepare: filled_pool, work: make_namespace },
    Operation {
        name: "remove a namespace",
        prepare: with_namespace,
        work: |place| place.pool().remove_namespace("other"),
    },
    Operation { name: "add a device", prepare: with_device, work: add_device },
    Operation { name: "close", prepare: filled_pool, work: close },
    Operation { name: "destroy", prepare: closed, work: |place| Pool::destroy(&place.path) },
];
