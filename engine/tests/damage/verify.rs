//! Verify finds what is wrong: each kind of damage that it claims to find is planted, alone.

use std::fs;
use std::path::Path;

use crate::common::{Fixture, KEEP, attach, catalog_of, filled, floats, put, report_of, sound};
use engram::catalog::{Headroom, Table, WriteTxn};
use engram::{Member, Mode, NewObject, Payload, Value};

/// The ids of the members of the pool that is damaged.
struct Ids {
    root: u64,
    group: u64,
    inner: u64,
    small: u64,
    large: u64,
    other: u64,
    /// A file of two segments and two names.
    file: u64,
    /// One that is open, and has no name.
    nameless: u64,
}

/// A sound pool: groups "g" and "g/inner", objects "small", "g/large" and "other" (in extents),
/// attributes on "small", free space in two pieces.
fn planted() -> (Fixture, Ids) {
    planted_with(true)
}

/// The same, and whether the file without a name is open still.
fn planted_with(open: bool) -> (Fixture, Ids) {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let small = put(&realm, "small", &filled(1, 1, 10));
    let attrs = [("units".into(), Value::text("K")), ("long_name".into(), Value::text("T"))];
    realm.set_attrs(Member::Object(small), &attrs).unwrap();
    let large = put(&realm, "g/large", &filled(2, 2, 50_000));
    let gap = put(&realm, "gap", &filled(3, 3, 50_000));
    let other = put(&realm, "other", &filled(4, 4, 50_000));
    realm.delete(realm.root(), "gap").unwrap();
    let _ = gap;
    let inner = realm.create_group(realm.root(), "g/inner", &[], &[], false).unwrap();
    let group = realm.lookup(realm.root(), "g").unwrap().unwrap().id();
    // What was freed becomes free.
    drop(realm.scratch(8 << 20, None).unwrap());
    drop(realm.scratch(64, None).unwrap());
    let new_file = |path: &str| {
        let oid = realm.put(realm.root(), path, &NewObject::blob(), b"", KEEP).unwrap();
        let file = realm.open_file(oid, true).unwrap();
        file.append(&[1; 9000]).unwrap();
        file.write_at(100_000, &[2; 5000]).unwrap();
        file
    };
    let (file, nameless) = (new_file("file"), new_file("nameless"));
    realm.link(file.oid(), realm.root(), "further").unwrap();
    realm.unlink(realm.root(), "nameless").unwrap();
    let (file, nameless) = (file.oid(), {
        let oid = nameless.oid();
        if open {
            // As long as this process lives.
            std::mem::forget(nameless);
        }
        oid
    });
    let ids = Ids { root: realm.root(), group, inner, small, large, other, file, nameless };
    drop(realm);
    fixture.pool.close();
    sound(&fixture.path);
    (fixture, ids)
}

fn key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

fn name_key(parent: u64, name: &str) -> Vec<u8> {
    [&parent.to_be_bytes(), name.as_bytes()].concat()
}

fn name_row(kind: u8, id: u64) -> Vec<u8> {
    [&[kind], id.to_le_bytes().as_slice()].concat()
}

fn row(txn: &WriteTxn<'_>, table: Table, key: &[u8]) -> Vec<u8> {
    txn.get(table, key).unwrap().expect("the row").to_vec()
}

/// The first row of a table.
fn first(txn: &WriteTxn<'_>, table: Table) -> (Vec<u8>, Vec<u8>) {
    let mut cursor = txn.seek(table, &[]).unwrap();
    let (key, value) = cursor.next().unwrap().expect("a row");
    (key.to_vec(), value.to_vec())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Changes bytes of a row in place.
fn edit(txn: &mut WriteTxn<'_>, table: Table, key: &[u8], change: impl FnOnce(&mut Vec<u8>)) {
    let mut value = row(txn, table, key);
    change(&mut value);
    txn.put(table, key, &value).unwrap();
}

fn segment_key(oid: u64, at: u64) -> Vec<u8> {
    [key(oid), key(at)].concat()
}

fn link_key(oid: u64, parent: u64, name: &str) -> Vec<u8> {
    [key(oid).as_slice(), &name_key(parent, name)].concat()
}

/// Where a file's head is, by its record.
fn head_of(txn: &WriteTxn<'_>, oid: u64) -> u64 {
    let record = row(txn, Table::Objects, &key(oid));
    u64_at(&record, record.len() - 16)
}

type Damage = fn(&mut WriteTxn<'_>, &Ids);

/// What is done, and a word of what verify says of it.
const DAMAGES: &[(&str, &str, Damage)] = &[
    ("a record is cut short", "its head alone", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.small), |row| row.truncate(20));
    }),
    ("a record's sections are cut short", "goes beyond the row", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.small), |row| row.truncate(44));
    }),
    ("a record of another version", "version 9", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.small), |row| row[0] = 9);
    }),
    ("a record of another layout", "layout kind 7", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.large), |row| row[1] = 7);
    }),
    ("a record of another class", "unknown class", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.large), |row| row[2] = 200);
    }),
    ("a group's record among the objects", "in `objects`", |txn, ids| {
        let group = row(txn, Table::Groups, &key(ids.inner));
        txn.put(Table::Objects, &key(ids.small), &group).unwrap();
    }),
    ("a value of another length", "are stored", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.small), |row| row.truncate(row.len() - 8));
    }),
    ("a key of another length", "has 3 bytes", |txn, _| {
        txn.put(Table::Objects, b"abc", b"").unwrap();
    }),
    ("an object without record", "missing Object", |txn, ids| {
        txn.delete(Table::Objects, &key(ids.small)).unwrap();
    }),
    ("a group without record", "missing Group", |txn, ids| {
        txn.delete(Table::Groups, &key(ids.inner)).unwrap();
    }),
    ("an object without name", "no name", |txn, ids| {
        txn.delete(Table::Names, &name_key(ids.root, "small")).unwrap();
    }),
    ("an object with two names", "second name", |txn, ids| {
        txn.put(Table::Names, &name_key(ids.root, "tiny"), &name_row(b'O', ids.small)).unwrap();
    }),
    ("two segments that overlap", "overlap", |txn, ids| {
        let (first, second) = (segment_key(ids.file, 0), segment_key(ids.file, 4096));
        let segment = row(txn, Table::Chunks, &first);
        txn.put(Table::Chunks, &second, &segment).unwrap();
    }),
    ("a segment of no file", "belongs to no chunked array or file", |txn, ids| {
        let segment = row(txn, Table::Chunks, &segment_key(ids.file, 0));
        txn.put(Table::Chunks, &segment_key(77, 0), &segment).unwrap();
    }),
    ("a segment that begins within a page", "a segment of file", |txn, ids| {
        let segment = row(txn, Table::Chunks, &segment_key(ids.file, 0));
        txn.put(Table::Chunks, &segment_key(ids.file, 9 << 20 | 8), &segment).unwrap();
    }),
    ("a head beyond the arena", "file", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.file), |row| {
            let at = row.len() - 16;
            row[at..][..8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        });
    }),
    ("a head where there is none", "as none does", |txn, ids| {
        let offset = head_of(txn, ids.file) + 64;
        edit(txn, Table::Objects, &key(ids.file), |row| {
            let at = row.len() - 16;
            row[at..][..8].copy_from_slice(&offset.to_le_bytes());
        });
    }),
    ("a further name of nothing", "which is not there", |txn, ids| {
        txn.put(Table::Links, &link_key(77, ids.root, "x"), b"").unwrap();
    }),
    ("a further name that no group has", "as `links` says", |txn, ids| {
        txn.put(Table::Links, &link_key(ids.file, ids.root, "x"), b"").unwrap();
    }),
    ("a further name of which the object knows nothing", "second name", |txn, ids| {
        txn.delete(Table::Links, &link_key(ids.file, ids.root, "further")).unwrap();
    }),
    ("a file without a name that has one", "is an orphan, too", |txn, ids| {
        let orphan = row(txn, Table::Orphans, &key(ids.nameless));
        txn.put(Table::Orphans, &key(ids.file), &orphan).unwrap();
    }),
    ("a file without a name of a later commit", "lost its name in", |txn, ids| {
        edit(txn, Table::Orphans, &key(ids.nameless), |row| row[7] = 1);
    }),
    ("a file without a name is cut short", "`orphans`", |txn, ids| {
        edit(txn, Table::Orphans, &key(ids.nameless), |row| row.truncate(30));
    }),
    ("segments of nothing", "belongs to no chunked array or file", |txn, ids| {
        txn.delete(Table::Orphans, &key(ids.nameless)).unwrap();
    }),
    ("a record that says another name", "its record says", |txn, ids| {
        txn.delete(Table::Names, &name_key(ids.root, "small")).unwrap();
        txn.put(Table::Names, &name_key(ids.root, "tiny"), &name_row(b'O', ids.small)).unwrap();
    }),
    ("a record that says another parent", "its record says", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.small), |row| {
            row[16..24].copy_from_slice(&ids.group.to_le_bytes());
        });
    }),
    ("a name of no kind", "unknown kind", |txn, ids| {
        txn.put(Table::Names, &name_key(ids.root, "what"), &name_row(b'?', ids.small)).unwrap();
    }),
    ("a name's row cut short", "instead of 9", |txn, ids| {
        txn.put(Table::Names, &name_key(ids.root, "what"), b"O").unwrap();
    }),
    ("a name that is no text", "UTF-8", |txn, ids| {
        let key = [&ids.root.to_be_bytes()[..], b"\xff\xfe"].concat();
        txn.put(Table::Names, &key, &name_row(b'O', ids.small)).unwrap();
    }),
    ("a name that cannot be", "has a '/'", |txn, ids| {
        txn.put(Table::Names, &name_key(ids.root, "a/b"), &name_row(b'O', ids.small)).unwrap();
    }),
    ("a name's key cut short", "has only 2", |txn, ids| {
        txn.put(Table::Names, b"ab", &name_row(b'O', ids.small)).unwrap();
    }),
    ("groups in a loop", "form a loop", |txn, ids| {
        let into = |row: &mut Vec<u8>| row[16..24].copy_from_slice(&ids.inner.to_le_bytes());
        edit(txn, Table::Groups, &key(ids.group), into);
        txn.delete(Table::Names, &name_key(ids.root, "g")).unwrap();
        txn.put(Table::Names, &name_key(ids.inner, "g"), &name_row(b'G', ids.group)).unwrap();
    }),
    ("a group in none", "no group", |txn, ids| {
        let into = |row: &mut Vec<u8>| row[16..24].copy_from_slice(&77_u64.to_le_bytes());
        edit(txn, Table::Groups, &key(ids.group), into);
        txn.delete(Table::Names, &name_key(ids.root, "g")).unwrap();
        txn.put(Table::Names, &name_key(77, "g"), &name_row(b'G', ids.group)).unwrap();
    }),
    ("a group beside the root", "no group", |txn, ids| {
        let into = |row: &mut Vec<u8>| row[16..24].fill(0);
        edit(txn, Table::Groups, &key(ids.group), into);
        txn.delete(Table::Names, &name_key(ids.root, "g")).unwrap();
        txn.put(Table::Names, &name_key(0, "g"), &name_row(b'G', ids.group)).unwrap();
    }),
    ("no root", "the root group is missing", |txn, ids| {
        txn.delete(Table::Groups, &key(ids.root)).unwrap();
    }),
    ("a root in a group", "the root group lies", |txn, ids| {
        edit(txn, Table::Groups, &key(ids.root), |row| row[16] = 1);
    }),
    ("an object in another's extent", "overlaps", |txn, ids| {
        let large = row(txn, Table::Objects, &key(ids.large));
        edit(txn, Table::Objects, &key(ids.other), |row| {
            let at = row.len() - 32;
            row[at..].copy_from_slice(&large[large.len() - 32..]);
        });
    }),
    ("an extent beyond the arena", "beyond the arena", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.large), |row| {
            let at = row.len() - 32;
            row[at..at + 8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        });
    }),
    ("an extent beyond all bounds", "does not fit", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.large), |row| {
            let at = row.len() - 32;
            row[at..at + 16].fill(0xc0);
        });
    }),
    ("free space that is in use", "overlaps", |txn, ids| {
        let large = row(txn, Table::Objects, &key(ids.large));
        let (offset, len) = (u64_at(&large, large.len() - 32), u64_at(&large, large.len() - 24));
        txn.put(Table::ExtentsByOffset, &offset.to_be_bytes(), &len.to_le_bytes()).unwrap();
        let by_size = [len.to_be_bytes(), offset.to_be_bytes()].concat();
        txn.put(Table::ExtentsBySize, &by_size, b"").unwrap();
    }),
    ("free space by offset alone", "is not in `extents_by_size`", |txn, _| {
        let (key, _) = first(txn, Table::ExtentsBySize);
        txn.delete(Table::ExtentsBySize, &key).unwrap();
    }),
    ("free space by size alone", "are not in `extents_by_offset`", |txn, _| {
        let (key, _) = first(txn, Table::ExtentsByOffset);
        txn.delete(Table::ExtentsByOffset, &key).unwrap();
    }),
    ("free space by size twice", "are not in `extents_by_offset`", |txn, _| {
        let (offset, _) = first(txn, Table::ExtentsByOffset);
        let by_size = [&64_u64.to_be_bytes()[..], &offset].concat();
        txn.put(Table::ExtentsBySize, &by_size, b"").unwrap();
    }),
    ("free space that is nobody's", "is not the arena's", |txn, _| {
        let (key, len) = first(txn, Table::ExtentsByOffset);
        txn.delete(Table::ExtentsByOffset, &key).unwrap();
        let by_size = [&len.iter().rev().copied().collect::<Vec<_>>()[..], &key].concat();
        assert!(txn.delete(Table::ExtentsBySize, &by_size).unwrap());
    }),
    ("free space in two pieces that touch", "touches", |txn, _| {
        let (key, len) = first(txn, Table::ExtentsByOffset);
        let (offset, len) = (u64::from_be_bytes(key[..8].try_into().unwrap()), u64_at(&len, 0));
        let by_size = |offset: u64, len: u64| [len.to_be_bytes(), offset.to_be_bytes()].concat();
        txn.delete(Table::ExtentsBySize, &by_size(offset, len)).unwrap();
        for (offset, len) in [(offset, 64), (offset + 64, len - 64)] {
            txn.put(Table::ExtentsByOffset, &offset.to_be_bytes(), &len.to_le_bytes()).unwrap();
            txn.put(Table::ExtentsBySize, &by_size(offset, len), b"").unwrap();
        }
    }),
    ("free space that cannot be", "cannot be", |txn, _| {
        let by_offset = 13_u64.to_be_bytes();
        txn.put(Table::ExtentsByOffset, &by_offset, &64_u64.to_le_bytes()).unwrap();
    }),
    ("a wrong account", "the account says", |txn, _| {
        txn.put(Table::Meta, b"used", &7_u64.to_le_bytes()).unwrap();
    }),
    ("an account cut short", "does not have 8 bytes", |txn, _| {
        txn.put(Table::Meta, b"used", b"7").unwrap();
    }),
    ("a span that overlaps", "not where the last ends", |txn, _| {
        let (_, span) = first(txn, Table::Spans);
        txn.put(Table::Spans, &1_u32.to_be_bytes(), &span).unwrap();
    }),
    ("a span without its file", "span 1", |txn, _| {
        let (_, mut span) = first(txn, Table::Spans);
        let end = u64_at(&span, 0) + u64_at(&span, 8);
        span[..8].copy_from_slice(&end.to_le_bytes());
        span[28..].copy_from_slice(&1_u32.to_le_bytes());
        txn.put(Table::Spans, &1_u32.to_be_bytes(), &span).unwrap();
    }),
    ("a span on no device", "device 5", |txn, _| {
        edit(txn, Table::Spans, &0_u32.to_be_bytes(), |span| span[16] = 5);
    }),
    ("a span's row cut short", "a row of 3 bytes", |txn, _| {
        edit(txn, Table::Spans, &0_u32.to_be_bytes(), |span| span.truncate(3));
    }),
    ("pending space of no kind", "unknown kind", |txn, _| {
        let mut key = [9; 17];
        key[9..].copy_from_slice(&64_u64.to_be_bytes());
        txn.put(Table::ExtentsPending, &key, &64_u64.to_le_bytes()).unwrap();
    }),
    ("an attribute of an unknown key", "unknown key", |txn, _| {
        for key in [&b"kunits"[..], b"i\0\0\0\0", b"klong_name", b"i\0\0\0\x01"] {
            assert!(txn.delete(Table::Keys, key).unwrap());
        }
        txn.put(Table::Meta, b"keys", &0_u64.to_le_bytes()).unwrap();
    }),
    ("an attribute key without its number", "counterpart", |txn, _| {
        txn.delete(Table::Keys, b"i\0\0\0\0").unwrap();
    }),
    ("two attribute keys of one number", "counterpart", |txn, _| {
        let number = row(txn, Table::Keys, b"kunits");
        txn.put(Table::Keys, b"klong_name", &number).unwrap();
    }),
    ("attribute keys of numbers that are yet to be given", "is the next", |txn, _| {
        txn.put(Table::Meta, b"keys", &1_u64.to_le_bytes()).unwrap();
    }),
    ("attributes cut short", "cut short", |txn, ids| {
        edit(txn, Table::Objects, &key(ids.small), |row| {
            // The first attribute's text is one byte: its length becomes more than there is.
            let at = row.windows(2).position(|w| w == b"\x01K").unwrap();
            row[at] = 0x7f;
        });
    }),
    ("ids that would be given out again", "would be given out", |txn, _| {
        txn.put(Table::Meta, b"next_id", &2_u64.to_le_bytes()).unwrap();
    }),
];

#[test]
fn verify_finds_every_kind_of_damage_that_is_planted() {
    for (what, word, damage) in DAMAGES {
        let (fixture, ids) = planted();
        {
            let catalog = catalog_of(&fixture);
            let mut txn = catalog.write(Headroom::Relief).unwrap();
            damage(&mut txn, &ids);
            txn.commit().unwrap();
        }
        let problems = report_of(&fixture.path).problems;
        assert!(problems.iter().any(|problem| problem.contains(word)), "{what}: {problems:#?}");
        assert!(problems.iter().all(|problem| problem.contains("\"default\"")), "{problems:#?}");
    }
}

/// As after a loss of power: a lease is never synced, what it has reserved is.
#[test]
fn space_that_a_lost_lease_had_reserved_is_no_damage_and_comes_back() {
    let (fixture, _) = planted_with(false);
    {
        let catalog = catalog_of(&fixture);
        let mut txn = catalog.write(Headroom::Relief).unwrap();
        let (key, len) = first(&txn, Table::ExtentsByOffset);
        txn.delete(Table::ExtentsByOffset, &key).unwrap();
        let by_size = [&len.iter().rev().copied().collect::<Vec<_>>()[..], &key].concat();
        txn.delete(Table::ExtentsBySize, &by_size).unwrap();
        let pending = [&[1][..], &0xabc_u64.to_be_bytes(), &key].concat();
        txn.put(Table::ExtentsPending, &pending, &len).unwrap();
        txn.commit().unwrap();
    }
    let report = sound(&fixture.path);
    assert!(report.orphaned > 0 && report.orphaned <= report.pending);
    let (pool, realm) = attach(&fixture.path, Mode::ReadWrite);
    put(&realm, "next", &filled(1, 1, 4096));
    pool.close();
    assert_eq!(sound(&fixture.path).orphaned, 0);
}

#[test]
fn verify_finds_spans_that_are_missing_or_cut_short() {
    for len in [None, Some(0), Some(4096)] {
        let (fixture, _) = planted();
        let span = fixture.path.join(fixture.pool.uuid()).join("default/shared/span-0");
        match len {
            None => std::fs::remove_file(&span).unwrap(),
            Some(len) => {
                let file = std::fs::File::options().write(true).open(&span).unwrap();
                file.set_len(len).unwrap();
            }
        }
        let problems = report_of(&fixture.path).problems;
        assert!(problems.iter().any(|problem| problem.contains("span 0")), "{problems:?}");
    }
}

#[test]
fn verify_finds_heads_that_are_none_or_say_too_much() {
    let damages: [(u64, u64, &str); 3] = [
        (0, 0, "begins with 0x0, as none does"),
        (8, 1 << 63, "bytes"),
        (8, 1 << 20, "and there are 106496 at most"),
    ];
    for (at, word, said) in damages {
        let (fixture, ids) = planted();
        let head = {
            let catalog = catalog_of(&fixture);
            head_of(&catalog.write(Headroom::Relief).unwrap(), ids.file)
        };
        let span = fixture.path.join(fixture.pool.uuid()).join("default/shared/span-0");
        let span = fs::File::options().write(true).open(&span).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&span, &word.to_le_bytes(), head + at).unwrap();
        let problems = report_of(&fixture.path).problems;
        let named = format!("file {:#x}", ids.file);
        let found = problems.iter().any(|told| told.contains(said) && told.contains(&named));
        assert!(found, "{problems:?}");
    }
}

/// Damage that verify finds is an error where it is met, never a wild access.
#[test]
fn what_is_damaged_is_an_error_where_it_is_used() {
    for (what, _, damage) in DAMAGES {
        let (fixture, ids) = planted();
        {
            let catalog = catalog_of(&fixture);
            let mut txn = catalog.write(Headroom::Relief).unwrap();
            damage(&mut txn, &ids);
            txn.commit().unwrap();
        }
        // Whatever it says: it says something, and comes to an end.
        let Ok(pool) = engram::Pool::open(&fixture.path, engram::Mode::ReadWrite, false) else {
            continue;
        };
        let realm = pool.realm("default").unwrap();
        let root = realm.root();
        for id in [ids.small, ids.large, ids.other] {
            if let Ok((Payload::Extent(view), _)) = realm.payload(id) {
                assert_eq!(crate::common::contents(&view).len(), view.len(), "{what}");
            }
            let _ = (realm.object(id), realm.attrs(Member::Object(id)));
            let _ = realm.path_of(Member::Object(id));
        }
        let _ = (realm.space(), realm.count(root), realm.path_of(Member::Group(ids.inner)));
        if let Ok(file) = realm.open_file(ids.file, true) {
            let mut bytes = vec![0; 20_000];
            let _ = (file.read_at(0, &mut bytes), file.read_at(95_000, &mut bytes), file.facts());
            let _ = (file.append(&bytes), file.write_at(50_000, &bytes), file.set_size(5000));
        }
        let _ = (realm.count_names(ids.file), realm.view(ids.file, false));
        let _ = realm.unlink(root, "file");
        let _ = realm.scratch(1 << 20, None);
        let _ = realm.put(root, "new", &floats(&[5000]), &filled(9, 9, 5000), KEEP);
        let _ = realm.rename(root, "other", ids.inner, "other");
        let _ = realm.delete(root, "g");
        let _ = realm.delete(root, "small");
        let _ = realm.scratch(12 << 20, None);
    }
}

type Harm = fn(&Path, &str);

/// A file without which nobody can open the pool is missed, even if all catalogs are sound.
#[test]
fn verify_finds_what_a_namespace_has_lost() {
    let scopes = "ns/default/scopes";
    let harms: [(&str, Harm, &str); 4] = [
        (scopes, |pool, file| fs::remove_file(pool.join(file)).unwrap(), "is gone"),
        (
            scopes,
            |pool, file| {
                let file = fs::File::options().write(true).open(pool.join(file)).unwrap();
                file.set_len(2048).unwrap();
            },
            "2048",
        ),
        ("ns/default", |pool, folder| fs::remove_dir_all(pool.join(folder)).unwrap(), "is gone"),
        (
            "ns/default/namespace.toml",
            |pool, file| fs::remove_file(pool.join(file)).unwrap(),
            "namespace.toml",
        ),
    ];
    for (at, harm, word) in harms {
        let (fixture, _) = planted();
        harm(&fixture.path, at);
        let problems = report_of(&fixture.path).problems;
        assert!(problems.iter().any(|told| told.contains(word)), "{at}: {problems:?}");
        assert!(problems.iter().any(|told| told.contains(at)), "{at}: {problems:?}");
        let opened = engram::Pool::open(&fixture.path, Mode::ReadWrite, false)
            .and_then(|pool| pool.namespace("default").map(drop));
        let Err(refused) = opened else {
            assert!(at.ends_with("namespace.toml"), "{at} is needed by all");
            continue;
        };
        let named = refused.message().contains(at) || refused.message().contains("\"default\"");
        assert!(named, "{at}: {refused}");
    }
}
