//! What media may hold, with bits turned: rows and pages of a real pool, mutated, are refused or
//! read, and nothing else. `make fuzz` goes on where this ends, from bytes of its own.
#![cfg(feature = "faults")]

use crate::common::{Fixture, Random, catalog_of, filled, floats};
use engram::catalog::Table;
use engram::{DType, IndexSettings, NewObject, Placement, Realm, Value, decode};

const ROUNDS: u64 = 20_000;

fn fill(realm: &Realm) {
    let settings = IndexSettings {
        tail_rows: Some(16),
        segment_rows: Some(64),
        split_threshold: Some(100),
        ..IndexSettings::default()
    };
    realm.set_index_settings(realm.root(), &settings).unwrap();
    for n in 0..400u64 {
        let dtype = DType::Scalar { kind: b'i', order: b'<', size: 8, unit: None };
        let number = Value { dtype, shape: Vec::new(), data: n.to_le_bytes().to_vec() };
        let attrs = vec![
            ("n".to_owned(), number),
            ("name".to_owned(), Value::text(&format!("the {n}th"))),
            ("kind".to_owned(), Value::text(["a", "b"][n as usize % 2])),
        ];
        let new = NewObject { attrs, dims: Some(vec!["x".into()]), ..floats(&[4]) };
        let path = format!("g{}/{n}", n % 3);
        realm.put(realm.root(), &path, &new, &filled(n, n, 4), Placement::default()).unwrap();
    }
    realm.maintain().unwrap();
}

/// Every row of a table.
fn rows(fixture: &Fixture, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let catalog = catalog_of(fixture);
    let txn = catalog.read().unwrap();
    let mut cursor = txn.seek(table, &[]).unwrap();
    let mut rows = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        rows.push((key.to_vec(), value.to_vec()));
    }
    rows
}

fn mutated(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.below(4) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.below(256) as u8),
            _ => bytes[at] = [0, 0x7f, 0x80, 0xff][random.below(4) as usize],
        }
    }
    bytes
}

#[test]
fn mutated_rows_and_pages_are_read_or_refused() {
    let fixture = Fixture::new(32 << 20);
    fill(&fixture.realm());
    fixture.pool.close();
    let mut random = Random(crate::common::seed());
    for table in Table::ALL {
        let rows = rows(&fixture, table);
        for _ in 0..if rows.is_empty() { 0 } else { ROUNDS } {
            let pick = |random: &mut Random| &rows[random.below(rows.len() as u64) as usize];
            let (key, value) = pick(&mut random);
            let (key, value) = (mutated(key, &mut random), mutated(value, &mut random));
            match table {
                Table::Objects | Table::Groups => decode::record(&value),
                Table::IndexSegments | Table::IndexRuns => {
                    let other = mutated(&pick(&mut random).1, &mut random);
                    decode::segment(&value, &other);
                    decode::run(&value, &other);
                }
                _ => decode::row(&key, &value),
            }
        }
    }
    let data = std::fs::File::open(fixture.realm_dir().join("catalog/data.mdb")).unwrap();
    let mut pages = vec![0; 100 * 4096];
    std::os::unix::fs::FileExt::read_exact_at(&data, &mut pages, 0).unwrap();
    for _ in 0..ROUNDS {
        let at = random.below(100) as usize * 4096;
        decode::page(&mutated(&pages[at..at + 4096], &mut random));
    }
    let dtype = DType::Struct { size: 12, align: false, fields: Vec::new() };
    let mut bytes = Vec::new();
    dtype.encode(&mut bytes);
    for _ in 0..ROUNDS {
        decode::dtype(&mutated(&bytes, &mut random));
    }
}
