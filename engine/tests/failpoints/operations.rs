//! What a program does with a pool, each time in one of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use engram::{
    CreateOptions, Error, IndexSettings, Kind, Member, Mode, Payload, Pool, Result, Value,
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

/// Everything that is tried.
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
    Operation { name: "batch", prepare: filled_pool, work: |place| batch(place, 6, 2_000) },
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
