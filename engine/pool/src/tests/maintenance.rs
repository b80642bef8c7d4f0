//! Maintenance keeps pace with commits.

use crate::pool::{CreateOptions, Pool};
use engram_base::dtype::DType;
use engram_catalog::Table;
use engram_index::IndexSettings;
use engram_realm::{HasCore, Realm};
use engram_records::attrs::Value;
use engram_records::object::{NewObject, Placement};

/// How many runs there are of all columns.
fn runs(realm: &Realm) -> usize {
    let inside = realm.core().enter().unwrap();
    let txn = inside.read().unwrap();
    let mut cursor = txn.seek(Table::IndexRuns, &[]).unwrap();
    let mut heads = 0;
    while let Some((key, _)) = cursor.next().unwrap() {
        heads += usize::from(key[4..8] == [0; 4]);
    }
    heads
}

#[test]
fn runs_stay_few_while_families_are_split() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CreateOptions { size: 8 << 20, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
    let realm = pool.realm("default").unwrap();
    let settings = IndexSettings {
        tail_rows: Some(64),
        segment_rows: Some(64),
        split_threshold: Some(16),
        ..IndexSettings::default()
    };
    realm.set_index_settings(realm.root(), &settings).unwrap();
    let mut most = 0;
    for number in 0..64 * 160 {
        let unique = f64::from(number * 7919 % 10_007) + f64::from(number) / 65_536.0;
        let value = Value {
            dtype: DType::scalar(b'f', b'<', 8),
            shape: Vec::new(),
            data: unique.to_le_bytes().to_vec(),
        };
        let new = NewObject { attrs: vec![("unique".to_owned(), value)], ..NewObject::blob() };
        realm.put(realm.root(), &number.to_string(), &new, b"", Placement::default()).unwrap();
        most = most.max(runs(&realm));
    }
    assert!(realm.index_stats().unwrap().splits > 0, "nothing was split: the test shows nothing");
    // Merged by fours, 160 segments are at most four levels of three; and one step of a split
    // writes 1,024 objects, which are 16 segments here, with a run each.
    assert!(most <= 28, "there were {most} runs at once");
}
