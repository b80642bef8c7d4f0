//! Keys whose cells are in runs, in segments sealed here.

use crate::pool::{CreateOptions, Pool};
use engram_base::dtype::DType;
use engram_base::dtype::Unit;
use engram_base::error::Result;
use engram_base::id::id_key;
use engram_catalog::{Headroom, Table};
use engram_columns::runs;
use engram_columns::segment::{AttributeGroup, GroupKind, SegmentLayout};
use engram_columns::zones;
use engram_index::IndexSettings;
use engram_index::directory::part_key;
use engram_index::extract::Extracted;
use engram_index::tail;
use engram_query::answer::QueryOptions;
use engram_query::parse;
use engram_realm::{Changes, HasCore, Realm};
use engram_records::attrs::Value;
use engram_records::object::{NewObject, Placement};

/// Seals up to so many objects of the tail, with a key in runs; whether there were any.
fn seal(changes: &mut Changes<'_>, segment: u32, rows: usize, key: u32) -> Result<bool> {
    let txn = changes.txn();
    let oids = tail::take(txn, rows, usize::MAX)?;
    let mut objects = Extracted::default();
    for oid in &oids {
        objects.push(*oid, txn.get(Table::Objects, &id_key(*oid))?.unwrap())?;
    }
    if oids.is_empty() {
        return Ok(false);
    }
    let group = AttributeGroup { id: 1, columns: vec![key], kind: GroupKind::Runs };
    let layout = SegmentLayout { family: 1, groups: vec![group] };
    let rows: Vec<u32> = (0..oids.len() as u32).collect();
    let mut gathered = objects.gather(&rows, layout)?;
    let built = gathered.build()?;
    txn.put(Table::IndexSegments, &part_key(segment, 0), &built.head)?;
    for (part, block) in built.blocks.iter().enumerate() {
        txn.put(Table::IndexSegments, &part_key(segment, part as u16 + 1), block)?;
    }
    zones::add(txn, segment, &built.zones)?;
    for (column, entries) in &built.runs {
        runs::append(txn, *column, segment, entries)?;
    }
    Ok(true)
}

fn value(number: usize) -> Option<Value> {
    let float = |value: f64| Value {
        dtype: DType::scalar(b'f', b'<', 8),
        shape: Vec::new(),
        data: value.to_le_bytes().to_vec(),
    };
    match number % 13 {
        3 => None,
        5 => Some(Value::text(&format!("text {number}"))),
        // Not kept in the index: the record decides.
        7 if number.is_multiple_of(2) => Some(Value::text(&"long ".repeat(number + 110))),
        8 => Some(float(f64::NAN)),
        _ => Some(float(f64::from((number * 37 % 101) as u32) - 50.5)),
    }
}

fn fill(realm: &Realm) {
    for number in 0..300 {
        let new = NewObject {
            attrs: value(number).map(|value| ("u".to_owned(), value)).into_iter().collect(),
            ..NewObject::blob()
        };
        let path = format!("g{}/{number}", number / 50);
        realm.put(realm.root(), &path, &new, b"", Placement::default()).unwrap();
    }
}

#[test]
fn runs_answer_as_records_do() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CreateOptions { size: 8 << 20, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
    let realm = pool.realm("default").unwrap();
    let settings = IndexSettings { tail_rows: Some(1 << 20), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &settings).unwrap();
    fill(&realm);
    let core = realm.core();
    let inside = core.enter().unwrap();
    let key = engram_realm::keys::known_key(core, &inside, "u").unwrap().unwrap();
    let mut segment = 0;
    while core.commit(&inside, Headroom::Normal, |rows| seal(rows, segment, 32, key)).unwrap() {
        segment += 1;
    }
    assert_eq!(segment, 10);
    drop(inside);
    let mut by_runs = 0;
    for text in [
        "u = 49.5",
        "u = 3",
        "u != 49.5",
        "u > 40",
        "u <= -40 or u = \"text 5\"",
        "not u < 0",
        "u between -1 and 1",
        "u in (0.5, -0.5, 12345)",
        "exists(u)",
        "not exists(u)",
        "u contains \"ext 1\"",
        "u startswith \"text\"",
        "u startswith \"long\"",
        "u > 30 and @path contains \"g3/1\"",
        "u like \"%t 2%\" and not u = 4",
        "@name endswith \"7\" and u > 0",
        "@name like \"1%9\"",
    ] {
        let query = parse(text).unwrap();
        let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
        let expected = realm.query(&query, &brute_force).unwrap();
        for threads in [1, 3] {
            let options = QueryOptions {
                threads: Some(threads),
                threads_for_little: true,
                ..QueryOptions::default()
            };
            assert_eq!(realm.query(&query, &options).unwrap(), expected, "{text}");
            let why = realm.explain(&query, &options).unwrap();
            by_runs += usize::from(why.leaves.iter().any(|leaf| leaf.how.contains("runs")));
            // Of a tenth of the objects at most the index keeps too little.
            assert!(why.records.total() <= 30, "{text}: {why:?}");
        }
    }
    assert!(by_runs > 12, "{by_runs}");
}

#[test]
fn instants_of_any_century_are_found() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CreateOptions { size: 8 << 20, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
    let realm = pool.realm("default").unwrap();
    // From the year 1000 to 2314; the last are in the tail, the others in segments.
    for number in 0..1600_i64 {
        let day: i64 = -354_285 + 300 * number;
        let dtype = DType::Scalar { kind: b'M', order: b'<', size: 8, unit: Some((Unit::Day, 1)) };
        let value = Value { dtype, shape: Vec::new(), data: day.to_le_bytes().to_vec() };
        let new = NewObject { attrs: vec![("tt".to_owned(), value)], ..NewObject::blob() };
        realm.put(realm.root(), &number.to_string(), &new, b"", Placement::default()).unwrap();
    }
    realm.maintain().unwrap();
    assert!(realm.index_stats().unwrap().segments > 0);
    let until = |year: i64| (year - 1000) * 3_652_425 / 3_000_000;
    for (text, about) in [
        ("tt < '1550-01-01'", until(1550)),
        ("tt >= '1550'", 1600 - until(1550)),
        ("tt between '1200' and '1300'", until(1301) - until(1200)),
        ("tt < '1900'", until(1900)),
        ("tt > '2263'", 1600 - until(2264)),
        ("tt = '1000-01-01'", 1),
        ("tt != '1000-01-01'", 1599),
        ("tt < '-0044'", 0),
        ("tt < '12000-01-01'", 1600),
    ] {
        let query = parse(text).unwrap();
        let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
        let expected = realm.query(&query, &brute_force).unwrap();
        assert!((expected.oids.len() as i64 - about).abs() <= 1, "{text}: {}", expected.oids.len());
        assert_eq!(realm.query(&query, &QueryOptions::default()).unwrap(), expected, "{text}");
    }
    let ordered = parse("order by tt").unwrap();
    let oids = realm.query(&ordered, &QueryOptions::default()).unwrap().oids;
    assert!(oids.len() == 1600 && oids.is_sorted());
}
