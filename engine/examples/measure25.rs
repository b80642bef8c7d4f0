use engram::query::parse;
use engram::*;
use std::time::Instant;
fn int(value: i64) -> Value {
    Value { dtype: DType::scalar(b'i', b'<', 8), shape: vec![], data: value.to_le_bytes().to_vec() }
}
fn num(value: f64) -> Value {
    Value { dtype: DType::scalar(b'f', b'<', 8), shape: vec![], data: value.to_le_bytes().to_vec() }
}
fn mix(at: u64) -> u64 {
    let mut x = at.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
fn pool(name: &str) -> (std::path::PathBuf, Pool) {
    let path = std::path::PathBuf::from(format!("/dev/shm/c25-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    let options = CreateOptions { size: 4 << 30, force: true, ..CreateOptions::default() };
    let p = Pool::create(&path, &options).unwrap();
    (path, p)
}
fn time(realm: &Realm, text: &str, threads: Option<usize>, n: usize) -> (f64, usize, usize) {
    let q = parse(text).unwrap();
    let o = QueryOptions { threads, ..QueryOptions::default() };
    let mut t: Vec<f64> = (0..n)
        .map(|_| {
            let s = Instant::now();
            let a = realm.query(&q, &o).unwrap();
            std::hint::black_box(a.oids.len());
            s.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    t.sort_by(f64::total_cmp);
    let e = realm.explain(&q, &o).unwrap();
    (t[n / 2], e.segments.iter().filter(|s| s.read).count(), e.hits as usize)
}
fn groups(n: usize) {
    let (path, p) = pool("groups");
    let realm = p.realm("default").unwrap();
    let root = realm.root();
    let mut i = 0u64;
    for a in 0..n / 100 {
        let b = realm.batch().unwrap();
        for g in 0..100 {
            for o in 0..4 {
                let new = NewObject {
                    attrs: vec![("step".into(), int(o)), ("id".into(), int(mix(i) as i64 >> 2))],
                    ..NewObject::blob()
                };
                i += 1;
                realm
                    .put(root, &format!("run{a}/g{g}/o{o}"), &new, b"x", Placement::default())
                    .unwrap();
            }
        }
        b.commit().unwrap();
    }
    realm.create_group(root, "half", &[], &[], true).unwrap();
    for a in 0..n / 200 {
        realm.rename(root, &format!("run{a}"), root, &format!("half/run{a}")).unwrap();
    }
    realm.maintain().unwrap();
    println!("groups {n} segments {}", realm.index_stats().unwrap().segments);
    for text in [
        "under(\"half/run7\")",
        "under(\"half\")",
        "under(\"half\") and step = 2",
        "@path contains \"run77/g4\"",
        "group.x = 1",
    ] {
        let (us, open, hits) = time(&realm, text, Some(1), 15);
        println!("  {text}: {us:.0} us, {open} opened, {hits} hits");
    }
    let q = parse("under(\"half/run7\")").unwrap();
    let mut t = vec![];
    let mut t2 = vec![];
    for k in 0..15 {
        let new = NewObject { attrs: vec![("step".into(), int(9))], ..NewObject::blob() };
        realm.put(root, &format!("half/run9/more{k}"), &new, b"x", Placement::default()).unwrap();
        let s = Instant::now();
        realm.query(&q, &QueryOptions::default()).unwrap();
        t.push(s.elapsed().as_secs_f64() * 1e6);
        realm.create_group(root, &format!("half/run9/gg{k}"), &[], &[], true).unwrap();
        let s = Instant::now();
        realm.query(&q, &QueryOptions::default()).unwrap();
        t2.push(s.elapsed().as_secs_f64() * 1e6);
    }
    t.sort_by(f64::total_cmp);
    t2.sort_by(f64::total_cmp);
    println!("  after a put {:.0} us, after a new group {:.0} us", t[7], t2[7]);
    let s = Instant::now();
    for k in 0..2000 {
        realm.create_group(root, &format!("half/run9/hh{k}"), &[], &[], true).unwrap();
    }
    println!("  a new group {:.2} us", s.elapsed().as_secs_f64() * 1e6 / 2000.0);
    drop(realm);
    drop(p);
    let _ = std::fs::remove_dir_all(path);
}
fn fill(realm: &Realm, n: u64) {
    let root = realm.root();
    let mut i = 0u64;
    while i < n {
        let b = realm.batch().unwrap();
        for _ in 0..1000.min(n - i) {
            let new = NewObject {
                attrs: vec![
                    ("id".into(), int((mix(i) >> 2) as i64)),
                    ("lat".into(), num((mix(i * 7) >> 11) as f64 / 1e14)),
                    ("step".into(), int((i / 100) as i64)),
                    ("level".into(), int((mix(i * 3) % 37) as i64)),
                    ("part".into(), num((mix(i * 5) % 100_000) as f64 / 100.0)),
                    ("date".into(), int((i * 365 / n.max(1)) as i64)),
                ],
                ..NewObject::blob()
            };
            realm
                .put(root, &format!("g{}/o{i}", i / 5000), &new, b"x", Placement::default())
                .unwrap();
            i += 1;
        }
        b.commit().unwrap();
    }
}
fn points(n: u64, threshold: Option<u32>) {
    let (path, p) = pool("points");
    let realm = p.realm("default").unwrap();
    if threshold.is_some() {
        realm
            .set_index_settings(
                realm.root(),
                &IndexSettings { split_threshold: threshold, ..Default::default() },
            )
            .unwrap();
    }
    let s = Instant::now();
    fill(&realm, n);
    let f = s.elapsed().as_secs_f64();
    realm.maintain().unwrap();
    let st = realm.index_stats().unwrap();
    println!(
        "points {n} {threshold:?}: segments {} families {} bytes {} fill {f:.1}s maintain {:.1}s",
        st.segments,
        st.families,
        st.bytes,
        s.elapsed().as_secs_f64() - f
    );
    let at = n * 3 / 7;
    let id = (mix(at) >> 2) as i64;
    for text in [
        format!("id = {id}"),
        format!("step = {}", at / 100),
        format!("id = {}", id + 1),
        "level = 5 and step between 100 and 140".to_string(),
        format!("lat between 10 and 10.01"),
        format!("@name = \"o{at}\""),
    ] {
        let (us, open, hits) = time(&realm, &text, Some(1), 201);
        let (us2, ..) = time(&realm, &text, Some(2), 201);
        println!("  {text}: {us:.1} us (2 threads {us2:.1}), {open} opened, {hits} hits");
    }
    for text in ["lat < 46", "level < 18", "part < 500", "id > 0", "lat < 46 and part < 500"] {
        let (us, open, hits) = time(&realm, text, Some(1), 31);
        let (us2, ..) = time(&realm, text, Some(2), 31);
        println!(
            "  {text}: {us:.1} us (2 threads {us2:.1}: {:.2} x), {open} opened, {hits} hits",
            us / us2
        );
    }
    drop(realm);
    drop(p);
    let _ = std::fs::remove_dir_all(path);
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n = a[2].parse().unwrap();
    match a[1].as_str() {
        "groups" => groups(n),
        "points" => points(n as u64, a.get(3).map(|t| t.parse().unwrap())),
        _ => {}
    }
}
