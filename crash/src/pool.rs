//! The pool that is worked on, and short ways to use it.

use std::path::Path;

use engram::query::parse;
use engram::{
    Class, CreateOptions, DType, Gid, IndexMode, IndexSettings, Member, Mode, Namespace, NewObject,
    Oid, Payload, Placement, Pool, QueryOptions, Realm, Result, Value,
};

use crate::board::WRITING;
use crate::data::Words;
use crate::{crowd, file_locks, files, grids, locks, roam, travel};

/// The bound of the pool's arena.
pub const SIZE: u64 = 256 << 20;
/// The namespace: what is published in it is everybody's to read.
pub(crate) const NAMESPACE: &str = "open";
/// The modes that it has by turns: its owner and strangers are let in by both.
const MODES: [u32; 2] = [0o755, 0o715];
/// Two objects that are always written in one batch, with one shape.
pub const PAIR: &str = "common/pair";
/// Objects that are always written in one batch, with one shape.
pub const SET: &str = "common/set";
/// How many those are.
pub const SET_MANY: usize = 4;
/// Objects that anybody writes, deletes and moves.
pub const LOOSE: &str = "common/loose";

/// Makes the pool, with an index that is rebuilt all the time.
///
/// # Panics
///
/// If it cannot be made.
pub fn make(path: &Path, checksums: bool) {
    let options = CreateOptions { size: SIZE, force: true, checksums, ..CreateOptions::default() };
    let pool = Pool::create(path, &options).expect("a new pool");
    let realm = pool.create_namespace(NAMESPACE, MODES[0], None, None).expect("a new namespace");
    // A merge is done in parts of the size of a few segments: here there are some in most merges.
    let settings = IndexSettings {
        tail_rows: Some(8),
        segment_rows: Some(3),
        split_threshold: Some(5),
        queue_max: Some(16),
        ..IndexSettings::default()
    };
    realm.set_index_settings(realm.root(), &settings).expect("settings");
    let own = IndexSettings {
        segment_rows: Some(4),
        split_threshold: Some(3),
        ..IndexSettings::default()
    };
    for slot in 0..WRITING {
        let gid = realm.create_group(realm.root(), &format!("w{slot}"), &[], &[], false);
        realm.set_index_settings(gid.expect("a group"), &own).expect("settings");
        travel::make(&realm, slot);
        files::make(&realm, slot);
    }
    for group in ["common/pair", "common/loose"] {
        realm.create_group(realm.root(), group, &[], &[], false).expect("a group");
    }
    locks::make(&realm);
    roam::make(&realm);
    grids::make(&realm);
    crowd::make(&realm);
    file_locks::make(&realm);
    pool.close();
}

/// Gives the pool's namespace one of its modes.
pub(crate) fn change_mode(path: &Path, which: u8) -> Result<()> {
    Pool::set_mode(path, NAMESPACE, MODES[usize::from(which) % MODES.len()])
}

/// What this user sees of the pool's namespace; what the dead were moving is settled.
///
/// # Panics
///
/// If that fails.
pub fn view(pool: &Pool) -> Namespace {
    pool.namespace(NAMESPACE).expect("the view of the namespace")
}

/// Opens the pool and its namespace.
///
/// # Panics
///
/// If that fails: whatever died before, opening needs no repair.
pub fn open(path: &Path, mode: Mode) -> (Pool, Realm) {
    let pool = Pool::open(path, mode, true).expect("an open pool");
    let realm = pool.realm(NAMESPACE).expect("the namespace");
    (pool, realm)
}

/// An array of so many words, with attributes.
pub fn array(words: usize, attrs: Vec<(String, Value)>) -> NewObject {
    NewObject {
        class: Class::Array,
        dtype: DType::Scalar { kind: b'u', order: b'<', size: 8, unit: None },
        shape: vec![words as u64],
        dims: None,
        attrs,
        origin: Vec::new(),
        properties: Vec::new(),
        layout: engram::Layout::default(),
    }
}

/// How everything is placed: what has the name goes.
pub fn over(index: IndexMode) -> Placement {
    Placement { overwrite: true, index: Some(index), ..Placement::default() }
}

/// A whole number as an attribute.
pub fn number(value: u64) -> Value {
    let dtype = DType::Scalar { kind: b'i', order: b'<', size: 8, unit: None };
    Value { dtype, shape: Vec::new(), data: value.to_le_bytes().to_vec() }
}

/// The whole number of an attribute.
pub fn number_of(value: &Value) -> Option<u64> {
    value.data.as_slice().try_into().ok().map(u64::from_le_bytes)
}

/// The member at a path.
pub fn member(realm: &Realm, path: &str) -> Option<Member> {
    realm.lookup(realm.root(), path).expect("a look-up")
}

/// The object at a path.
pub fn object(realm: &Realm, path: &str) -> Option<Oid> {
    match member(realm, path) {
        Some(Member::Object(oid)) => Some(oid),
        _ => None,
    }
}

/// The group at a path.
pub fn group(realm: &Realm, path: &str) -> Option<Gid> {
    match member(realm, path) {
        Some(Member::Group(gid)) => Some(gid),
        _ => None,
    }
}

/// Looks at a value.
pub fn with_words<T>(payload: &Payload, look: impl FnOnce(Words<'_>) -> T) -> T {
    match payload {
        Payload::Inline(bytes) => look(Words::Copied(bytes)),
        Payload::Extent(view) => look(Words::Seen(view)),
    }
}

/// What a query below a group finds: through the index, or by looking at every record.
pub fn ask(realm: &Realm, below: Gid, text: &str, brute_force: bool) -> Result<Vec<Oid>> {
    let options = QueryOptions { root: Some(below), brute_force, ..QueryOptions::default() };
    Ok(realm.query(&parse(text)?, &options)?.oids)
}
