//! A pool of Alice's with everything in it that somebody else might want.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use engram::{
    CreateOptions, DType, Member, Mode, Namespace, NewObject, Oid, Placement, Pool, Scope, Value,
};

use crate::common::{
    ALICE, BOB, CAROL, DAVE, KEEP, TEAM, become_user, filled, floats, folder_of, fork,
};

/// Words that stand in what Dave keeps to himself: a name, an attribute's key and its text.
pub const SECRET: &str = "daves-secret";

/// The one who tries: a user, and a group beside its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Shares nothing with the others; may enter the namespace `open`.
    Stranger,
    /// Is in the group that shares the namespaces `open` and `closed`.
    Member,
}

impl Who {
    pub fn become_them(self) {
        match self {
            Who::Stranger => become_user(BOB, BOB),
            Who::Member => become_user(CAROL, TEAM),
        }
    }
}

/// The pool, on two devices. Namespaces: `default` (0700), `open` (0775), `closed` (0770). In
/// `open` Alice shares `ours` and `word`, has published `shown/large` and `shown/small`, and keeps
/// `alices`; Dave keeps a group, three objects on both devices, and attributes.
pub struct World {
    pub dirs: [tempfile::TempDir; 2],
    pub path: PathBuf,
    /// Ids of what Dave keeps: the group, an object in an extent.
    pub kept: (u64, Oid),
    /// Ids of what is shared, and of what is published.
    pub shared: Oid,
    pub shown: Oid,
}

/// A text attribute.
pub fn text(key: &str, value: &str) -> (String, Value) {
    let data = value.as_bytes().to_vec();
    (key.to_owned(), Value { dtype: DType::Text, shape: Vec::new(), data })
}

pub fn put(
    namespace: &Namespace,
    path: &str,
    new: &NewObject,
    data: &[u8],
    scope: Scope,
    device: u32,
) -> Oid {
    let placement = Placement { scope: Some(scope), device: Some(device), ..KEEP };
    namespace.put(namespace.root(), path, new, data, placement).expect("put")
}

/// An array of so many words, and its bytes.
pub fn array(tag: u64, words: usize) -> (NewObject, Vec<u8>) {
    (floats(&[words as u64]), filled(tag, 1, words))
}

/// Opens the pool as another program would.
pub fn open(path: &Path, namespace: &str) -> (Pool, Namespace) {
    let pool = Pool::open(path, Mode::ReadWrite, false).expect("an open pool");
    let namespace = pool.namespace(namespace).expect("the namespace");
    (pool, namespace)
}

/// The length of large arrays.
pub const WORDS: usize = 40_000;

fn alice(path: &Path, second: &Path) -> [u64; 2] {
    let devices = vec![second.to_owned()];
    let options = CreateOptions { size: 32 << 20, devices, ..CreateOptions::default() };
    let pool = Pool::create(path, &options).unwrap();
    let (new, data) = array(1, WORDS);
    let default = pool.namespace("default").unwrap();
    put(&default, "own", &new, &data, Scope::Shared, 1);
    for (name, mode) in [("open", 0o775), ("closed", 0o770)] {
        drop(pool.create_namespace(name, mode, Some(TEAM), None).unwrap());
        let namespace = pool.namespace(name).unwrap();
        put(&namespace, "ours", &new, &data, Scope::Shared, 1);
        put(&namespace, "word", &floats(&[2]), &[7; 16], Scope::Shared, 0);
        put(&namespace, "shown/large", &new, &data, Scope::Shared, 0);
        put(&namespace, "shown/small", &floats(&[2]), &[8; 16], Scope::Shared, 0);
        namespace.transfer(namespace.root(), "shown", &[Scope::Shared], Scope::Published).unwrap();
        put(&namespace, "alices", &new, &data, Scope::Private, 1);
    }
    let open = pool.namespace("open").unwrap();
    ["ours", "shown/large"].map(|path| id(&open, path))
}

fn dave(path: &Path) -> [u64; 2] {
    let (_pool, open) = open(path, "open");
    let attrs = [text(SECRET, SECRET)];
    let private = Some(Scope::Private);
    open.create_group(open.root(), SECRET, &attrs, &[], false, private).unwrap();
    let (new, data) = array(4, WORDS);
    let kept = NewObject { attrs: attrs.to_vec(), ..new };
    for device in [0, 1] {
        let path = format!("{SECRET}/large{device}");
        put(&open, &path, &kept, &data, Scope::Private, device);
    }
    let word = NewObject { attrs: attrs.to_vec(), ..floats(&[2]) };
    put(&open, "word-of-dave", &word, &[9; 16], Scope::Private, 0);
    [SECRET, &format!("{SECRET}/large0")].map(|path| id(&open, path))
}

fn id(namespace: &Namespace, path: &str) -> u64 {
    namespace.lookup(namespace.root(), path).unwrap().map(Member::id).unwrap()
}

impl World {
    pub fn new() -> World {
        let dirs = [folder_of(ALICE), folder_of(ALICE)];
        let path = dirs[0].path().join("pool");
        let ask = |uid: u32, work: &dyn Fn() -> [u64; 2]| {
            let peer = fork(|line| {
                become_user(uid, TEAM);
                for id in work() {
                    line.say(id);
                }
            });
            let ids = [peer.line.hear(), peer.line.hear()];
            peer.finish();
            ids
        };
        let [shared, shown] = ask(ALICE, &|| alice(&path, dirs[1].path()));
        let kept = ask(DAVE, &|| dave(&path));
        World { kept: (kept[0], kept[1]), shared, shown, path, dirs }
    }

    /// What the pool has on its devices.
    pub fn on_devices(&self) -> [PathBuf; 2] {
        [self.path.as_path(), self.dirs[1].path()].map(|device| {
            let uuid = |entry: std::io::Result<std::fs::DirEntry>| {
                let name = entry.unwrap().file_name().into_string().unwrap();
                (name.len() == 32).then_some(name)
            };
            device.join(std::fs::read_dir(device).unwrap().find_map(uuid).unwrap())
        })
    }

    /// A part of a namespace, such as `private/7`, where it lies: its realm, and on each device.
    pub fn places(&self, namespace: &str, part: &str) -> Vec<PathBuf> {
        let [one, two] = self.on_devices().map(|device| device.join(namespace).join(part));
        vec![self.path.join("ns").join(namespace).join(part), one, two]
    }
}

/// This and everything below it, as far as one may look.
pub fn all_below(top: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![top.to_owned()]);
    while let Some(next) = open.pop() {
        if std::fs::symlink_metadata(&next).is_ok_and(|meta| meta.is_dir()) {
            let entries = std::fs::read_dir(&next).into_iter().flatten();
            open.extend(entries.map(|entry| entry.unwrap().path()));
        }
        found.push(next);
    }
    found
}

/// Which file each path is, and when it was last changed in any way.
pub fn state(tops: &[&Path]) -> BTreeMap<PathBuf, [i64; 6]> {
    let all = tops.iter().flat_map(|top| all_below(top));
    let state = |path: PathBuf| {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let owner = i64::from(meta.uid()) << 32 | i64::from(meta.gid());
        let numbers = [
            meta.ino().cast_signed(),
            i64::from(meta.mode()),
            owner,
            meta.size().cast_signed(),
            meta.ctime(),
            meta.ctime_nsec(),
        ];
        (path, numbers)
    };
    all.map(state).collect()
}
