//! Checksums: kept by every way of writing, compared by verify, and never wrong about sound values.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::{Fixture, KEEP, OVER, attach, filled, floats, put, report_of, sound};
use engram::{CreateOptions, Kind, Member, Mode, Payload, Pool, Realm, Report, Value};

/// A pool that keeps checksums.
fn checked(size: u64) -> Fixture {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs at /dev/shm");
    let path = dir.path().join("pool");
    let options = CreateOptions { size, force: true, checksums: true, ..CreateOptions::default() };
    let pool = Pool::create(&path, &options).expect("a new pool");
    Fixture { dir, path, pool }
}

/// Every file of the pool below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// Turns a bit of the only place where the pool's files whose name begins so have these bytes.
fn damage(pool: &Path, name: &str, bytes: &[u8]) {
    let mut places = Vec::new();
    for path in files(pool) {
        if !path.file_name().unwrap().to_str().unwrap().starts_with(name) {
            continue;
        }
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len().min(64 << 20);
        let mut content = vec![0; len as usize];
        file.read_exact_at(&mut content, 0).unwrap();
        let found = content.windows(bytes.len()).enumerate().filter(|(_, part)| *part == bytes);
        places.extend(found.map(|(at, _)| (path.clone(), at)));
    }
    assert!(!places.is_empty(), "the bytes are in no file {name}*");
    for (path, at) in places {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&[bytes[0] ^ 1], at as u64).unwrap();
    }
}

fn refused(report: &Report, what: &str) {
    let found = report.problems.iter().any(|problem| problem.contains(what));
    assert!(found, "{what:?} is not in {:?}", report.problems);
}

fn write_in_place(realm: &Realm, oid: u64, at: usize, bytes: &[u8]) -> engram::View {
    let Payload::Extent(view) = realm.view(oid, true).unwrap() else { panic!("an extent") };
    assert!(at + bytes.len() <= view.len());
    // SAFETY: the view is writable and that long; nobody else looks at it.
    unsafe { view.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    view
}

#[test]
fn each_way_of_writing_keeps_a_checksum() {
    let fixture = checked(32 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    put(&realm, "put", &filled(1, 1, 5000));
    put(&realm, "replaced", &filled(2, 2, 5000));
    realm.put(root, "replaced", &floats(&[700]), &[7; 5600], OVER).unwrap();
    let zeros = realm.create_zeroed(root, "zeros", &floats(&[9000]), KEEP).unwrap();
    let allocation = realm.allocate(root, "g/allocated", &floats(&[9000]), 72_000, KEEP).unwrap();
    allocation.write(&vec![3; 72_000]);
    allocation.publish().unwrap();
    let inline = put(&realm, "inline", &[5; 64]);
    let (_, generation) = realm.payload(inline).unwrap();
    assert!(realm.replace_payload(inline, generation, &[6; 64]).unwrap());
    realm.set_attrs(Member::Object(zeros), &[("k".into(), Value::text("v"))]).unwrap();
    realm.rename(root, "put", root, "h/moved").unwrap();
    let batch = realm.batch().unwrap();
    put(&realm, "in/batch", &filled(4, 4, 6000));
    put(&realm, "in/small", &[8; 80]);
    batch.commit().unwrap();
    drop(realm);
    fixture.pool.close();
    let report = sound(&fixture.path);
    assert_eq!((report.checked, report.unchecked), (5, 0));
    assert!(report.checked_bytes >= 5000 + 5600 + 72_000 * 2 + 6000);
}

#[test]
fn a_turned_bit_of_a_value_is_found_and_named() {
    let fixture = checked(32 << 20);
    let realm = fixture.realm();
    let value: Vec<u8> = (0..40_000u32).flat_map(u32::to_le_bytes).collect();
    put(&realm, "run/T", &value);
    put(&realm, "sound", &filled(1, 1, 5000));
    drop(realm);
    fixture.pool.close();
    damage(&fixture.path, "span-", &value[80_000..80_040]);
    let report = report_of(&fixture.path);
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    refused(&report, "\"run/T\": the value of 160000 bytes");
}

#[test]
fn a_turned_bit_of_a_record_is_found_by_verify_and_by_who_reads_it() {
    let fixture = checked(32 << 20);
    let realm = fixture.realm();
    let oid = put(&realm, "small", b"a value that lies in its record.");
    drop(realm);
    fixture.pool.close();
    damage(&fixture.path, "data.mdb", b"a value that lies in its record.");
    refused(&report_of(&fixture.path), "its checksum is not that of its bytes");
    let (pool, realm) = attach(&fixture.path, Mode::ReadWrite);
    assert_eq!(realm.payload(oid).map(|_| ()).unwrap_err().kind(), Kind::Corrupt);
    let renamed = realm.rename(realm.root(), "small", realm.root(), "other");
    assert_eq!(renamed.unwrap_err().kind(), Kind::Corrupt);
    pool.close();
}

#[test]
fn without_the_option_nothing_is_summed() {
    let fixture = Fixture::new(32 << 20);
    let realm = fixture.realm();
    let value: Vec<u8> = (0..4000u32).flat_map(u32::to_le_bytes).collect();
    put(&realm, "T", &value);
    drop(realm);
    fixture.pool.close();
    damage(&fixture.path, "span-", &value[8000..8040]);
    let report = sound(&fixture.path);
    assert_eq!((report.checked, report.unchecked), (0, 0));
}

#[test]
fn a_value_is_not_checked_while_it_is_written_in_place_and_is_again_after_a_flush() {
    let fixture = checked(32 << 20);
    let realm = fixture.realm();
    let oid = put(&realm, "T", &filled(1, 1, 5000));
    let counts = |path| {
        let report = sound(path);
        (report.checked, report.unchecked)
    };
    drop(write_in_place(&realm, oid, 10, &[9; 10]));
    assert_eq!(counts(&fixture.path), (0, 1), "written, not flushed");
    realm.flush(oid).unwrap();
    assert_eq!(counts(&fixture.path), (1, 0), "flushed");
    let view = write_in_place(&realm, oid, 20, &[8; 10]);
    realm.flush(oid).unwrap();
    assert_eq!(counts(&fixture.path), (0, 1), "flushed while a writable view lives");
    // SAFETY: the view is writable and long enough.
    unsafe { view.as_ptr().write(77) };
    drop(view);
    assert_eq!(counts(&fixture.path), (1, 0), "that view is gone");
    let inline = put(&realm, "inline", &[5; 64]);
    drop(write_in_place(&realm, inline, 0, &[1; 8]));
    assert_eq!(counts(&fixture.path), (1, 1), "one that was promoted");
    realm.flush(inline).unwrap();
    assert_eq!(counts(&fixture.path), (2, 0));
}

#[test]
fn in_a_batch_too() {
    let fixture = checked(32 << 20);
    let realm = fixture.realm();
    let batch = realm.batch().unwrap();
    let oid = put(&realm, "T", &filled(1, 1, 5000));
    drop(write_in_place(&realm, oid, 10, &[9; 10]));
    let left = put(&realm, "left", &filled(1, 1, 5000));
    drop(write_in_place(&realm, left, 10, &[9; 10]));
    realm.flush(oid).unwrap();
    batch.commit().unwrap();
    let report = sound(&fixture.path);
    assert_eq!((report.checked, report.unchecked), (1, 1));
}

#[test]
fn threads_that_write_in_place_and_flush_leave_no_value_that_looks_damaged() {
    let fixture = checked(32 << 20);
    let realm = fixture.realm();
    let oid = put(&realm, "T", &vec![0; 200_000]);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let realm = realm.clone();
            scope.spawn(move || {
                for round in 0..60u8 {
                    let at = usize::from(thread) * 50_000 + usize::from(round) * 100;
                    drop(write_in_place(&realm, oid, at, &[round; 100]));
                    if round % 3 == 0 {
                        realm.flush(oid).unwrap();
                    }
                }
            });
        }
        for _ in 0..20 {
            sound(&fixture.path);
        }
    });
    realm.flush(oid).unwrap();
    let report = sound(&fixture.path);
    assert_eq!((report.checked, report.unchecked), (1, 0));
}
