//! Verify compares runs and names with the records: each kind of damage is planted, alone.

mod common;

use common::{Fixture, KEEP, catalog_of, floats, report_of, sound};
use engram_engine::catalog::{Headroom, Table, WriteTxn};
use engram_engine::{IndexSettings, NewObject, Value};

/// A sound pool whose objects have a number and a string that no other has, in sealed segments.
fn planted() -> Fixture {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let settings =
        IndexSettings { segment_rows: Some(64), tail_rows: Some(64), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &settings).unwrap();
    let batch = realm.batch().unwrap();
    for at in 0..256_u64 {
        let height = (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) as i64;
        let mut height_value = Value::text("");
        height_value.dtype = engram_engine::DType::scalar(b'i', b'<', 8);
        height_value.data = height.to_le_bytes().to_vec();
        let attrs = vec![
            ("height".to_owned(), height_value),
            ("label".to_owned(), Value::text(&format!("label {height:x}"))),
        ];
        let new = NewObject { attrs, ..floats(&[1]) };
        realm.put(realm.root(), &format!("object {at}"), &new, &[0; 8], KEEP).unwrap();
    }
    batch.commit().unwrap();
    realm.tend().unwrap();
    drop(realm);
    fixture.pool.close();
    sound(&fixture.path);
    fixture
}

/// The rows of `index_runs` that are heads, or blocks.
fn parts(txn: &WriteTxn<'_>, heads: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut parts = Vec::new();
    let mut cursor = txn.seek(Table::IndexRuns, &[]).unwrap();
    while let Some((key, value)) = cursor.next().unwrap() {
        if (key[4..8] == [0; 4]) == heads {
            parts.push((key.to_vec(), value.to_vec()));
        }
    }
    assert!(parts.len() >= 2, "two columns have runs");
    parts
}

fn edit(txn: &mut WriteTxn<'_>, part: &(Vec<u8>, Vec<u8>), change: impl FnOnce(&mut Vec<u8>)) {
    let mut value = part.1.clone();
    change(&mut value);
    txn.put(Table::IndexRuns, &part.0, &value).unwrap();
}

type Damage = fn(&mut WriteTxn<'_>);

/// What is done, and a word of what verify says of it.
const DAMAGES: &[(&str, &str, Damage)] = &[
    ("a block is lost", "is missing", |txn| {
        let block = parts(txn, false).swap_remove(0);
        txn.delete(Table::IndexRuns, &block.0).unwrap();
    }),
    ("a head is lost", "of which", |txn| {
        let head = parts(txn, true).swap_remove(0);
        txn.delete(Table::IndexRuns, &head.0).unwrap();
    }),
    ("a run is lost", "which are not the 64", |txn| {
        let head = parts(txn, true).swap_remove(0);
        let run = [&head.0[..4], &head.0[8..]].concat();
        for (key, _) in parts(txn, false).iter().filter(|(key, _)| key.starts_with(&run)) {
            txn.delete(Table::IndexRuns, key).unwrap();
        }
        txn.delete(Table::IndexRuns, &head.0).unwrap();
    }),
    ("a number is at another position", "which are not the", |txn| {
        let block = parts(txn, false).swap_remove(0);
        edit(txn, &block, |value| value[0] ^= 1);
    }),
    ("a string is another", "which are not the", |txn| {
        let block = parts(txn, false).pop().unwrap();
        edit(txn, &block, |value| *value.last_mut().unwrap() ^= 1);
    }),
    ("the least key is greater", "runs of column", |txn| {
        let head = parts(txn, true).swap_remove(0);
        edit(txn, &head, |value| {
            let fence = value.len() - 20;
            value[fence + 7] ^= 0x40;
        });
    }),
    ("the greatest key is less", "not sorted", |txn| {
        let head = parts(txn, true).swap_remove(0);
        edit(txn, &head, |value| {
            let last = value.len() - 8;
            value[last..].fill(0);
        });
    }),
    ("a name has another's number", "another's", |txn| {
        txn.put(Table::IndexNames, b"nobject 7", &3_u32.to_le_bytes()).unwrap();
    }),
    ("a name is lost", "names are numbered", |txn| {
        assert!(txn.delete(Table::IndexNames, b"nobject 7").unwrap());
    }),
    ("names are miscounted", "another's", |txn| {
        txn.put(Table::IndexNames, b"#", &255_u32.to_le_bytes()).unwrap();
    }),
];

#[test]
fn damage_to_runs_and_names_is_found() {
    for (what, word, damage) in DAMAGES {
        let fixture = planted();
        let catalog = catalog_of(&fixture);
        let mut txn = catalog.write(Headroom::Normal).unwrap();
        damage(&mut txn);
        txn.commit().unwrap();
        drop(catalog);
        let problems = report_of(&fixture.path).problems;
        assert!(problems.iter().any(|said| said.contains(word)), "{what}: {problems:?}");
    }
}
