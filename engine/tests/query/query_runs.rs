//! Queries on keys that are nearly unique, whose cells lie in runs: texts by parts, and sums.

use engram::query::parse;
use engram::{
    CreateOptions, DType, Figure, IndexSettings, NewObject, Placement, Pool, QueryOptions, Realm,
    Value,
};

const OBJECTS: u64 = 6000;

fn number(value: f64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: DType::scalar(b'f', b'<', 8), shape: Vec::new(), data }
}

/// A number that looks like any other.
fn mixed(at: u64) -> u64 {
    at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
}

/// A whole number below another that looks like any other.
fn below(at: u64, end: u32) -> f64 {
    f64::from((mixed(at) % u64::from(end)) as u32)
}

/// What an object has as its remark; some have the same, and some have none.
fn remark(at: u64) -> Option<String> {
    let number = mixed(at) % 2000;
    let bird = ["kestrel", "heron", "Möwe €", "kestrelß"][number as usize % 4];
    let state = ["calm", "gusty", "wet"][number as usize % 3];
    (!at.is_multiple_of(61)).then(|| format!("{bird} {number}, {state} and {state}"))
}

/// Numbers of the first of four are alike, of the others as unlike as numbers can be.
fn figure(at: u64) -> f64 {
    let one = below(at, 1_000_000) / 1e4 - 50.0;
    match at % 4 {
        0 => one,
        1 => one.powi(31) * if (at / 4).is_multiple_of(2) { 1e200 } else { 1e-200 },
        2 => f64::from_bits(mixed(at) << 20) % 1e300,
        _ => [f64::INFINITY, -0.0, 5e-324, one][(at / 4 % 4) as usize],
    }
}

fn corpus(test: impl FnOnce(&Realm)) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CreateOptions { size: 64 << 20, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
    let realm = pool.realm("default").unwrap();
    let small = IndexSettings { segment_rows: Some(1024), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &small).unwrap();
    let batch = realm.batch().unwrap();
    for at in 0..OBJECTS {
        let mut attrs = vec![
            ("four".to_owned(), Value::text(["n", "e", "s", "w"][at as usize % 4])),
            ("figure".to_owned(), number(figure(at))),
            ("minus".to_owned(), number(-figure(at))),
            ("lat".to_owned(), number(below(at, 180_000_000) / 1e6 - 90.0)),
        ];
        attrs.extend(remark(at).map(|remark| ("remark".to_owned(), Value::text(&remark))));
        let new = NewObject { attrs, ..NewObject::blob() };
        realm.put(realm.root(), &format!("o{at}"), &new, b"", Placement::default()).unwrap();
    }
    batch.commit().unwrap();
    realm.reindex(realm.root(), None).unwrap();
    while realm.maintain().unwrap() > 0 {}
    test(&realm);
}

fn with_threads(threads: usize) -> QueryOptions {
    QueryOptions { threads: Some(threads), threads_for_little: true, ..QueryOptions::default() }
}

#[test]
fn parts_of_texts_are_found_in_runs_as_one_by_one() {
    corpus(|realm| {
        let count = |part: &str| {
            let has = |remark: &String| remark.contains(part);
            (0..OBJECTS).filter_map(remark).filter(has).count() as u64
        };
        for part in ["kestrel 8", "l 12", " 9", "8, wet and", "ß 1", "€", "Möwe €", "wet", "zz"]
        {
            let query = parse(&format!("remark contains '{part}'")).unwrap();
            let like = parse(&format!("remark like '%{part}%'")).unwrap();
            let not = parse(&format!("not remark contains '{part}'")).unwrap();
            for threads in [1, 3] {
                let found = |query| realm.query_count(query, &with_threads(threads)).unwrap();
                assert_eq!(found(&query), count(part), "{part}");
                assert_eq!(found(&like), count(part), "{part}");
                assert_eq!(found(&not), OBJECTS - count(part), "{part}");
            }
            let told = realm.explain(&query, &QueryOptions::default()).unwrap();
            assert!(told.leaves[0].how.contains("runs"), "{:?}", told.leaves);
            assert_eq!(told.records.verified, 0, "{part}");
        }
        for text in [
            "remark contains ''",
            "remark contains 8",
            "remark like '%l _, %'",
            "remark like '%el%8%wet%'",
            "remark endswith 'wet'",
            "remark startswith 'Möwe € 1'",
            "remark like 'Möwe%7, calm%'",
            "remark > 'heron 5' and remark contains '77'",
            "remark between 'heron 10, calm and calm' and 'heron 12'",
            "remark in ('heron 1, gusty and gusty', 'kestrel 8, wet and wet')",
            "remark != 'heron 1, gusty and gusty' order by remark limit 9",
        ] {
            let query = parse(text).unwrap();
            let brute = QueryOptions { brute_force: true, ..QueryOptions::default() };
            let expected = realm.query(&query, &brute).unwrap();
            for threads in [1, 3] {
                assert_eq!(
                    realm.query(&query, &with_threads(threads)).unwrap(),
                    expected,
                    "{text}"
                );
            }
        }
    });
}

#[test]
fn sums_of_runs_are_exact_whatever_their_numbers() {
    corpus(|realm| {
        let rows = |text: &str, options: &QueryOptions| {
            realm.query_totals(&parse(text).unwrap(), options).unwrap().rows
        };
        for text in [
            "mean(lat), sum(lat), count(lat) group by four",
            "mean(figure), sum(minus), min(figure), max(minus) group by four",
            "sum(figure), mean(lat)",
            "mean(lat) where figure < 0 group by four",
            "mean(lat), count(), distinct(figure) where remark contains '8' group by four",
        ] {
            let brute = QueryOptions { brute_force: true, ..QueryOptions::default() };
            let expected = format!("{:?}", rows(text, &brute));
            for threads in [1, 3] {
                assert_eq!(format!("{:?}", rows(text, &with_threads(threads))), expected, "{text}");
            }
        }
        // Against sums of whole millionths.
        let found = rows("sum(lat) group by four order by four", &QueryOptions::default());
        for (row, from) in found.iter().zip([1, 0, 2, 3]) {
            // Whole numbers below 2^53 add up exactly.
            let of = |at| below(at, 180_000_000) - 90e6;
            let exact: f64 = (from..OBJECTS).step_by(4).map(of).sum();
            let Some(Figure::Float(sum)) = row[1] else { panic!("{row:?}") };
            assert!((sum - exact / 1e6).abs() < 1e-7, "{sum} for {exact}");
        }
    });
}
