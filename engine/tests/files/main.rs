//! Files: bytes, sizes, holes and names, by one process and by several.

#[path = "../common/mod.rs"]
mod common;

mod bytes;
mod copies;
mod kills;
mod names;
mod processes;
mod views;

use engram::{File, IndexMode, NewObject, Oid, Placement, Properties, Realm};

/// What a file system says of a file: it is opaque to the engine.
const REST: &[u8] = b"mode and so on";

/// Makes an empty file, as a file system does.
fn make(realm: &Realm, path: &str) -> Oid {
    make_with(realm, path, b"")
}

fn make_with(realm: &Realm, path: &str, data: &[u8]) -> Oid {
    let properties = Properties { written: 5, accessed: 6, rest: REST }.encode();
    let new = NewObject { properties, ..NewObject::blob() };
    let placement = Placement { index: Some(IndexMode::None), ..Placement::default() };
    realm.put(realm.root(), path, &new, data, placement).expect("a new file")
}

/// A new file that is open for writing.
fn created(realm: &Realm, path: &str) -> File {
    make_open(realm, path).expect("an open file")
}

/// The same, in one commit; or why there is none.
fn make_open(realm: &Realm, path: &str) -> engram::Result<File> {
    let properties = Properties { written: 5, accessed: 6, rest: REST }.encode();
    let new = NewObject { properties, ..NewObject::blob() };
    let placement = Placement { index: Some(IndexMode::None), ..Placement::default() };
    realm.create_file(realm.root(), path, &new, placement, true)
}

/// All that a file holds.
fn all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xee; file.size().expect("a size") as usize];
    let count = file.read_at(0, &mut bytes).expect("bytes");
    bytes.truncate(count);
    bytes
}
