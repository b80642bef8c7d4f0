//! Verify compares all that the index holds with the records: what is planted in segments and runs,
//! one at a time, is found.

use crate::common::{Fixture, KEEP, catalog_of, floats, report_of, sound};
use engram::catalog::{Headroom, Table, WriteTxn};
use engram::{DType, IndexSettings, Mode, NewObject, Pool, Value};

/// How many objects the damaged pool has, all sealed.
const OBJECTS: u32 = 300;

fn value(kind: u8, data: &[u8]) -> Value {
    let dtype = DType::scalar(kind, b'<', data.len() as u32);
    Value { dtype, shape: Vec::new(), data: data.to_vec() }
}

/// A sound pool with nearly unique numbers and strings, in runs, and a key of few values.
fn sealed() -> Fixture {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let settings =
        IndexSettings { segment_rows: Some(64), tail_rows: Some(64), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &settings).unwrap();
    for index in 0..OBJECTS {
        let mixed = index.wrapping_mul(2_654_435_761);
        let attrs = vec![
            ("few".into(), value(b'i', &(index % 5).to_le_bytes())),
            ("lat".into(), value(b'f', &(f64::from(mixed) / 7.0).to_le_bytes())),
            ("label".into(), Value::text(&format!("granule {mixed}"))),
        ];
        let new = NewObject { attrs, ..floats(&[1]) };
        realm.put(realm.root(), &format!("o{index}"), &new, &[7; 8], KEEP).unwrap();
    }
    for index in 0..20 {
        realm.delete(realm.root(), &format!("o{}", index * 3)).unwrap();
    }
    realm.maintain().unwrap();
    let stats = realm.index_stats().unwrap();
    assert!(stats.groups.iter().filter(|group| group.runs && group.blocks > 0).count() >= 2);
    assert!(stats.dead > 0);
    drop(realm);
    fixture.pool.close();
    sound(&fixture.path);
    fixture
}

/// Rows of a table.
fn rows(txn: &WriteTxn<'_>, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = txn.seek(table, &[]).unwrap();
    let mut rows = Vec::new();
    while let Some((key, row)) = cursor.next().unwrap() {
        rows.push((key.to_vec(), row.to_vec()));
    }
    rows
}

/// What verify says once `damage` has been done, which is undone again; `None` for nothing.
fn said(fixture: &Fixture, damage: impl FnOnce(&mut WriteTxn<'_>)) -> Option<String> {
    let mut before = Vec::new();
    let change = |change: &mut dyn FnMut(&mut WriteTxn<'_>)| {
        let catalog = catalog_of(fixture);
        let mut txn = catalog.write(Headroom::Relief).unwrap();
        change(&mut txn);
        txn.commit().unwrap();
    };
    let mut damage = Some(damage);
    change(&mut |txn| {
        let tables = [Table::IndexRuns, Table::IndexSegments, Table::IndexDead, Table::IndexZones];
        before = tables.map(|table| (table, rows(txn, table))).to_vec();
        if let Some(damage) = damage.take() {
            damage(txn);
        }
    });
    let problems = report_of(&fixture.path).problems;
    change(&mut |txn| {
        for (table, kept) in &before {
            for (key, _) in rows(txn, *table) {
                txn.delete(*table, &key).unwrap();
            }
            for (key, row) in kept {
                txn.put(*table, key, row).unwrap();
            }
        }
    });
    (!problems.is_empty()).then(|| problems.join("; "))
}

#[test]
fn verify_finds_every_kind_of_damage_to_runs() {
    let fixture = sealed();
    let is_head = |key: &[u8]| key[4..8] == [0; 4];
    // Column and number of a run.
    let run_of = |key: &[u8]| {
        if is_head(key) { [&key[..4], &key[8..]].concat() } else { key[..8].to_vec() }
    };
    let runs = {
        let catalog = catalog_of(&fixture);
        rows(&catalog.write(Headroom::Relief).unwrap(), Table::IndexRuns)
    };
    let blocks: Vec<_> = runs.iter().filter(|(key, _)| !is_head(key)).collect();
    assert!(blocks.len() > 1);
    let (mut damages, mut finds) = (0, 0);
    for (key, row) in &blocks {
        let gone = said(&fixture, |txn| {
            txn.delete(Table::IndexRuns, key).unwrap();
        });
        assert!(gone.is_some_and(|said| said.contains("is missing")));
        for at in (0..row.len()).step_by(row.len().div_ceil(16)) {
            let mut damaged = row.clone();
            damaged[at] ^= 1;
            damages += 1;
            let found = said(&fixture, |txn| txn.put(Table::IndexRuns, key, &damaged).unwrap());
            finds += u32::from(found.is_some());
        }
    }
    // Entries of what is deleted may say what they like: few are.
    assert!(finds * 8 > damages * 7, "{finds} of {damages}");
    for (key, row) in runs.iter().filter(|(key, _)| is_head(key)) {
        // A whole run is gone; or there a second time, so that each of its entries is there twice.
        let run = runs.iter().filter(|(other, _)| run_of(other) == run_of(key));
        let gone = said(&fixture, |txn| {
            for (part, _) in run.clone() {
                txn.delete(Table::IndexRuns, part).unwrap();
            }
        });
        assert!(gone.is_some_and(|said| said.contains("entries of segment")));
        let twice = said(&fixture, |txn| {
            for (part, row) in run.clone() {
                let mut other = part.clone();
                let number = if is_head(part) { 8..12 } else { 4..8 };
                other[number].copy_from_slice(&[0, 0, 0xff, 0xff]);
                txn.put(Table::IndexRuns, &other, row).unwrap();
            }
        });
        assert!(twice.is_some_and(|said| said.contains("entries of segment")));
        // Behind the segments are fences; one of a string may be any that parts the same.
        let segments = u32::from_le_bytes(row[16..20].try_into().unwrap()) as usize;
        for at in 0..20 + 6 * segments {
            let mut damaged = row.clone();
            damaged[at] ^= 0x41;
            // The level alone may be another: it says when a run is merged, no more.
            let found = said(&fixture, |txn| txn.put(Table::IndexRuns, key, &damaged).unwrap());
            assert!(found.is_some() || at == 3, "byte {at} of the head {key:02x?}");
        }
    }
    sound(&fixture.path);
}

#[test]
fn verify_finds_values_in_columns_that_are_not_those_of_the_records() {
    let fixture = sealed();
    let parts = {
        let catalog = catalog_of(&fixture);
        rows(&catalog.write(Headroom::Relief).unwrap(), Table::IndexSegments)
    };
    let (mut damages, mut found) = (0, 0);
    for (key, row) in parts.iter().take(6) {
        for at in (0..row.len()).step_by(row.len().div_ceil(12)) {
            let mut damaged = row.clone();
            damaged[at] ^= 0x10;
            damages += 1;
            let said = said(&fixture, |txn| txn.put(Table::IndexSegments, key, &damaged).unwrap());
            found += u32::from(said.is_some());
        }
    }
    // A byte may be of a dead position, or of no position: most are not.
    assert!(found * 4 > damages * 3, "{found} of {damages}");
    sound(&fixture.path);
}

#[test]
fn verify_finds_positions_that_are_alive_again() {
    let fixture = sealed();
    let revived = said(&fixture, |txn| {
        let dead = rows(txn, Table::IndexDead);
        assert!(!dead.is_empty());
        for (key, _) in &dead {
            txn.delete(Table::IndexDead, key).unwrap();
        }
    });
    assert!(revived.is_some_and(|said| said.contains("which is not there")));
    let (pool, path) = (Pool::open(&fixture.path, Mode::ReadWrite, true).unwrap(), &fixture.path);
    drop(pool.realm("default").unwrap());
    sound(path);
}
