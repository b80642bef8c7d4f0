//! Queries on sealed segments of a corpus like that of a satellite's granules.

use std::time::Instant;

use engram_engine::query::parse;
use engram_engine::{
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
            let mixed = (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 53) as f64;
            let attrs = vec![
                ("orbit_num".to_owned(), int(granule as i64 / 3)),
                ("sky_version".to_owned(), Value::text("4.1")),
                ("date".to_owned(), int(20_140_900 + granule as i64 % 30)),
                ("level".to_owned(), int((object % 5) as i64)),
                ("word".to_owned(), Value::text(["a", "bb", "ccc", "dddd"][object as usize % 4])),
                ("d_lat".to_owned(), number(mixed * 180.0 - 90.0)),
                ("d_lon".to_owned(), number(at as f64 / 1000.0)),
            ];
            let new = NewObject {
                class: Class::Array,
                dtype: DType::scalar(b'f', b'<', 8),
                shape: vec![4],
                dims: None,
                attrs,
                origin: Vec::new(),
            };
            let path = format!("{group}/{}_{object}", if object % 9 == 0 { "Infrared" } else { "x" });
            realm.put(realm.root(), &path, &new, &[0; 32], Placement::default()).unwrap();
        }
        batch.commit().unwrap();
    }
}

#[test]
fn times() {
    let granules = std::env::var("GRANULES").map_or(46, |text| text.parse().unwrap());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CreateOptions { size: 1 << 30, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
    let realm = pool.realm("default").unwrap();
    corpus(&realm, granules);
    realm.tend().unwrap();
    println!("{} objects", granules * 2167);
    for text in [
        "",
        "@path contains \"2122/Inf\"",
        "@group = \"GLAH_634_2121\"",
        "under(\"GLAH_634_2121\")",
        "exists(orbit_num) and @path contains \"2122/Inf\"",
        "exists(orbit_num) and exists(sky_version) and date = 20140905 and exists(d_lat)",
        "orbit_num = 3 and level = 2 and word = \"bb\" and sky_version = \"4.1\" and date > 0",
        "d_lat > 89.9",
        "d_lon = 1.5",
        "d_lon between 1.5 and 1.6",
        "level = 3",
        "word contains \"c\" or level < 2",
        "d_lat > 0 and d_lon > 7",
        "nothing = 3",
    ] {
        let query = parse(text).unwrap();
        for threads in [1, 2] {
            let options = QueryOptions { threads: Some(threads), ..QueryOptions::default() };
            let answer = realm.query(&query, &options).unwrap();
            let mut rounds = 0;
            let start = Instant::now();
            while start.elapsed().as_millis() < 200 {
                realm.query(&query, &options).unwrap();
                rounds += 1;
            }
            let each = start.elapsed().as_secs_f64() / f64::from(rounds) * 1e6;
            let counted = Instant::now();
            let attributes = realm.query_count_attributes(&query, &options).unwrap();
            let counted = counted.elapsed().as_secs_f64() * 1e6;
            println!(
                "{each:10.1} us  {threads} threads  {:7} hits  {attributes} attributes in {counted:.1} us  {text}",
                answer.oids.len()
            );
        }
        let why = realm.explain(&query, &QueryOptions::default()).unwrap();
        let read = why.segments.iter().filter(|s| s.read).count();
        println!("           {read} of {} segments, {:?}", why.segments.len(), why.records);
    }
}

