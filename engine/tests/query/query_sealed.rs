//! Queries on sealed segments of a corpus like that of a satellite's granules.

use engram::query::parse;
use engram::{
    Class, CreateOptions, DType, IndexSettings, NewObject, Placement, Pool, QueryOptions, Realm,
    Value,
};

fn number(value: f64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: DType::scalar(b'f', b'<', 8), shape: Vec::new(), data }
}

fn int(value: i64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: DType::scalar(b'i', b'<', 8), shape: Vec::new(), data }
}

fn corpus(realm: &Realm, granules: u64) {
    for granule in 0..granules {
        let batch = realm.batch().unwrap();
        let group = format!("GLAH_634_{}", 2121 + granule);
        for object in 0..2167_u64 {
            let at = granule * 2167 + object;
            let mixed =
                f64::from((at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32) / 2.0_f64.powi(32);
            let attrs = vec![
                ("orbit_num".to_owned(), int(granule as i64 / 3)),
                ("sky_version".to_owned(), Value::text("4.1")),
                ("date".to_owned(), int(20_140_900 + granule as i64 % 30)),
                ("level".to_owned(), int((object % 5) as i64)),
                ("word".to_owned(), Value::text(["a", "bb", "ccc", "dddd"][object as usize % 4])),
                ("d_lat".to_owned(), number(mixed * 180.0 - 90.0)),
                ("d_lon".to_owned(), number(f64::from(at as u32) / 1000.0)),
            ];
            let new = NewObject {
                class: Class::Array,
                dtype: DType::scalar(b'f', b'<', 8),
                shape: vec![4],
                dims: None,
                attrs,
                origin: Vec::new(),
                properties: Vec::new(),
                layout: engram::Layout::default(),
            };
            let path =
                format!("{group}/{}_{object}", if object % 9 == 0 { "Infrared" } else { "x" });
            realm.put(realm.root(), &path, &new, &[0; 32], Placement::default()).unwrap();
        }
        batch.commit().unwrap();
    }
}

#[test]
fn columns_answer_as_records_do() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CreateOptions { size: 64 << 20, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
    let realm = pool.realm("default").unwrap();
    let small = IndexSettings { segment_rows: Some(512), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &small).unwrap();
    corpus(&realm, 3);
    realm.maintain().unwrap();
    assert!(realm.index_stats().unwrap().segments > 3);
    for text in [
        "",
        "@path contains \"2122/Inf\"",
        "@path = \"GLAH_634_2121/x_1\"",
        "@path startswith \"GLAH_634_2122/x_1\"",
        "@path endswith \"2/x_1\"",
        "@group = \"GLAH_634_2121\"",
        "under(\"GLAH_634_2122\") and not level in (1, 2)",
        "orbit_num = 0 and level = 2 and word = \"bb\" and sky_version = \"4.1\" and date > 0",
        "d_lat > 89.5",
        "d_lon = 1.5",
        "d_lon between 1.5 and 1.6 or d_lat < -89",
        "word contains \"c\" or level < 2",
        "not (word like \"%c\" or level != 2)",
        "date = 20140901 and @nbytes = 32 and @dtype = \"float64\" and @shape = \"(4,)\"",
        "@owner = \"root\" and level = 4",
        "nothing = 3",
    ] {
        let query = parse(text).unwrap();
        let brute = QueryOptions { brute_force: true, ..QueryOptions::default() };
        let expected = realm.query(&query, &brute).unwrap();
        for threads in [1, 3] {
            let options = QueryOptions {
                threads: Some(threads),
                threads_for_little: true,
                ..QueryOptions::default()
            };
            assert_eq!(realm.query(&query, &options).unwrap(), expected, "{text}");
            assert_eq!(
                realm.query_count(&query, &options).unwrap(),
                expected.oids.len() as u64,
                "{text}"
            );
            assert_eq!(
                realm.query_attribute_keys(&query, &options).unwrap(),
                realm.query_attribute_keys(&query, &brute).unwrap(),
                "{text}"
            );
            assert_eq!(
                realm.query_count_attributes(&query, &options).unwrap(),
                realm.query_count_attributes(&query, &brute).unwrap(),
                "{text}"
            );
        }
    }
}

fn sealed_corpus(granules: u64, test: impl FnOnce(&Realm)) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CreateOptions { size: 64 << 20, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
    let realm = pool.realm("default").unwrap();
    let small = IndexSettings { segment_rows: Some(256), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &small).unwrap();
    corpus(&realm, granules);
    realm.reindex(realm.root(), None).unwrap();
    while realm.maintain().unwrap() > 0 {}
    test(&realm);
}

#[test]
fn the_first_of_an_order_are_found_in_few_segments_and_without_their_records() {
    sealed_corpus(3, |realm| {
        let segments = realm.index_stats().unwrap().segments;
        assert!(segments > 20, "{segments}");
        // Nearly unique keys, clustered and not; keys of few values; conditions; several keys.
        for (text, most) in [
            ("order by d_lat limit 10", 10),
            ("order by d_lat desc limit 10", 10),
            ("order by d_lon limit 10 offset 5", 2),
            ("order by d_lon desc limit 3", 2),
            ("order by date limit 10", 2),
            ("order by level desc limit 4", 2),
            // Its last key lies in runs, and very many tie.
            ("order by orbit_num, level desc, d_lat limit 12", usize::MAX),
            ("level = 2 order by d_lon limit 20", 3),
            ("word = \"ccc\" order by @name limit 6", 16),
            ("@path contains \"2122/Inf\" order by d_lat desc limit 5", 12),
            ("order by @created desc limit 10", 2),
        ] {
            let query = parse(text).unwrap();
            let brute = QueryOptions { brute_force: true, ..QueryOptions::default() };
            let expected = realm.query(&query, &brute).unwrap();
            assert_eq!(expected.oids.len() as u64, query.limit.unwrap(), "{text}");
            assert_eq!(realm.query(&query, &QueryOptions::default()).unwrap(), expected, "{text}");
            let told = realm.explain(&query, &QueryOptions::default()).unwrap();
            assert_eq!(told.hits, expected.oids.len() as u64, "{text}");
            // What is in no segment yet is read; nothing else.
            assert!(told.records.ordered <= told.records.tail, "{text}: {:?}", told.records);
            assert_eq!(told.records.verified, 0, "{text}");
            let opened = |s: &&engram::SegmentExplanation| s.read || s.why.starts_with("every");
            let opened = told.segments.iter().filter(opened).count();
            assert!(opened <= most, "{text}: {opened} of {segments} segments");
        }
    });
}

#[test]
fn figures_come_from_columns_and_are_those_of_records() {
    sealed_corpus(2, |realm| {
        for text in [
            "count(), mean(d_lat), min(d_lon), max(d_lon), sum(level)",
            "count(), mean(d_lat), distinct(word), distinct(d_lon) group by level",
            "sum(d_lat), max(word) where level < 3 group by word, level order by sum(d_lat) desc",
            "mean(d_lon) where d_lat > 80 group by @group",
            "count() group by @owner",
            "count(), mean(level) where @path contains \"2122/Inf\" group by orbit_num, date",
            "sum(@nbytes), max(@created) group by @dtype",
            "count(nothing), min(nothing) group by nothing",
            "mean(d_lat) where level > 9",
        ] {
            let query = parse(text).unwrap();
            let brute = QueryOptions { brute_force: true, ..QueryOptions::default() };
            let expected = realm.query_totals(&query, &brute).unwrap();
            for threads in [1, 3] {
                let options = QueryOptions {
                    threads: Some(threads),
                    threads_for_little: true,
                    ..QueryOptions::default()
                };
                assert_eq!(realm.query_totals(&query, &options).unwrap(), expected, "{text}");
            }
            let told = realm.explain(&query, &QueryOptions::default()).unwrap();
            assert_eq!(told.records.verified, 0, "{text}");
        }
        let rows = |text: &str| {
            realm.query_totals(&parse(text).unwrap(), &QueryOptions::default()).unwrap().rows
        };
        let int = |value: i128| Some(engram::Figure::Int(value));
        assert_eq!(rows("count() group by level limit 1"), [[int(0), int(868)]]);
        assert_eq!(rows("count(), sum(level), min(level) where level > 9"), [[int(0), None, None]]);
    });
}

#[test]
fn values_that_no_figure_can_be_of_are_errors_with_their_place() {
    sealed_corpus(1, |realm| {
        let refused = |text: &str| {
            let error = realm
                .query_totals(&parse(text).unwrap(), &QueryOptions::default())
                .expect_err("it cannot be");
            assert_eq!(error.kind(), engram::Kind::Query);
            error.message().to_owned()
        };
        let message = refused("count(), mean(word) where level = 1 group by level");
        assert!(message.starts_with("column 10: mean(word) takes numbers"), "{message}");
        assert!(message.ends_with("\n           ^^^^^^^^^^"), "{message}");
        let message = refused("sum(@created) group by date");
        assert!(message.contains("some objects have times there"), "{message}");
        let query = |text: &str| realm.query(&parse(text).unwrap(), &QueryOptions::default());
        let message = query("count()").expect_err("no objects").message().to_owned();
        assert!(message.contains("aggregate()"), "{message}");
        let options = QueryOptions::default();
        let message = realm.query_totals(&parse("level = 1").unwrap(), &options);
        assert!(message.expect_err("no figures").message().contains("query()"));
    });
}
