//! Chunked arrays against naive ones: boxes, other shapes, appending; what they take, and what is
//! refused.

use crate::common::grids::{CODECS, Naive, any_box, chunked, grid, part, store, whole, words};
use crate::common::moves::names;
use crate::common::{Fixture, KEEP, OVER, Random, attach, filled, floats, put, seed, sound};
use engram::catalog::{Headroom, Table};
use engram::{DType, Kind, Layout, Member, Mode, NewObject, Placement, QueryOptions, query};

/// One step, in the pool and in the naive copy.
fn step(random: &mut Random, namespace: &engram::Namespace, oid: u64, naive: &mut Naive) {
    let shape = naive.shape.clone();
    match random.below(8) {
        0 => {
            let other: Vec<u64> = shape.iter().map(|_| random.below(19)).collect();
            namespace.reshape(oid, &other).expect("another shape");
            naive.resize(&other);
        }
        1 => {
            let axis = random.below(shape.len() as u64) as usize;
            let mut counts = shape.clone();
            counts[axis] = random.below(6);
            let data = words(random, counts.iter().product());
            let mut offsets = vec![0; shape.len()];
            offsets[axis] = shape[axis];
            let mut longer = shape.clone();
            longer[axis] += counts[axis];
            naive.resize(&longer);
            naive.store(&offsets, &counts, &data);
            assert_eq!(namespace.append(oid, axis, &counts, &data).expect("appended"), longer);
        }
        2 => {
            let (offsets, counts) = any_box(random, &shape);
            assert!(part(namespace, oid, &offsets, &counts) == naive.part(&offsets, &counts));
        }
        _ => {
            let (offsets, counts) = any_box(random, &shape);
            let data = words(random, counts.iter().product());
            store(namespace, oid, &offsets, &counts, &data);
            naive.store(&offsets, &counts, &data);
        }
    }
}

#[test]
fn whatever_is_done_a_chunked_array_is_what_a_naive_one_is() {
    let mut random = Random(seed());
    let fixture = Fixture::new(64 << 20);
    let grids: [(&[u64], &[u64]); 4] =
        [(&[40], &[7]), (&[9, 14], &[4, 5]), (&[0, 3], &[2, 20]), (&[5, 6, 7], &[2, 3, 16])];
    let mut namespace = names(&fixture.pool);
    let mut arrays = Vec::new();
    for (at, (shape, chunks)) in grids.into_iter().enumerate() {
        for codec in CODECS {
            let oid = grid(&namespace, &format!("g/{at}/{codec}"), shape, chunks, codec);
            arrays.push((oid, Naive::zeros(shape)));
        }
    }
    let mut pool = fixture.pool;
    for round in 0..60 {
        for (oid, naive) in &mut arrays {
            step(&mut random, &namespace, *oid, naive);
        }
        if round % 20 == 19 {
            drop(namespace);
            pool.close();
            sound(&fixture.path);
            (pool, _) = attach(&fixture.path, Mode::ReadWrite);
            namespace = names(&pool);
        }
        for (oid, naive) in &arrays {
            assert!(namespace.object(*oid).unwrap().shape == naive.shape);
            assert!(whole(&namespace, *oid) == naive.bytes, "{oid:#x}, round {round}");
        }
    }
}

#[test]
fn large_chunks_lie_in_extents_and_many_threads_encode_them() {
    let mut random = Random(seed());
    let fixture = Fixture::new(256 << 20);
    let namespace = names(&fixture.pool);
    for codec in CODECS {
        let (shape, chunks) = ([300, 500], [64, 128]);
        let data: Vec<u8> = (0..300 * 500u64).flat_map(|at| (at / 3).to_le_bytes()).collect();
        let root = namespace.root();
        let new = chunked(&shape, &chunks, codec);
        let oid = namespace.put(root, codec, &new, &data, KEEP).expect("put");
        let mut naive = Naive { shape: shape.to_vec(), bytes: data };
        for _ in 0..10 {
            let (offsets, counts) = any_box(&mut random, &naive.shape);
            let data = words(&mut random, counts.iter().product());
            store(&namespace, oid, &offsets, &counts, &data);
            naive.store(&offsets, &counts, &data);
            let (offsets, counts) = any_box(&mut random, &naive.shape);
            assert!(part(&namespace, oid, &offsets, &counts) == naive.part(&offsets, &counts));
        }
        for shape in [[70, 130], [300, 130], [310, 600]] {
            namespace.reshape(oid, &shape).expect("another shape");
            naive.resize(&shape);
            assert!(whole(&namespace, oid) == naive.bytes, "{codec} {shape:?}");
        }
    }
    sound(&fixture.path);
}

#[test]
fn a_chunk_that_is_not_there_is_zeros_and_takes_nothing() {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    // A terabyte of nothing.
    let oid = grid(&namespace, "sparse", &[1 << 20, 1 << 17], &[256, 256], "none");
    assert_eq!(namespace.stored_nbytes(oid).unwrap(), 0);
    assert_eq!(namespace.object(oid).unwrap().nbytes, 1 << 40);
    let before = fixture.realm().space().unwrap().used;
    store(&namespace, oid, &[1000, 5000], &[2, 2], &filled(1, 1, 4));
    assert_eq!(part(&namespace, oid, &[1000, 5000], &[2, 2]), filled(1, 1, 4));
    assert_eq!(part(&namespace, oid, &[999, 4999], &[1, 2]), vec![0; 16]);
    let chunk = 256 * 256 * 8;
    assert_eq!(namespace.stored_nbytes(oid).unwrap(), chunk);
    assert_eq!(fixture.realm().space().unwrap().used, before + chunk);
    store(&namespace, oid, &[5000, 0], &[300, 300], &vec![0; 300 * 300 * 8]);
    assert_eq!(namespace.stored_nbytes(oid).unwrap(), chunk, "zeros that were zeros");
    namespace.reshape(oid, &[1000, 5000]).unwrap();
    assert_eq!(namespace.stored_nbytes(oid).unwrap(), chunk, "a part of the chunk is there still");
    namespace.reshape(oid, &[1 << 20, 1 << 17]).unwrap();
    assert_eq!(part(&namespace, oid, &[1000, 5000], &[2, 2]), vec![0; 32]);
    namespace.reshape(oid, &[0, 0]).unwrap();
    assert_eq!(namespace.stored_nbytes(oid).unwrap(), 0);
    assert_eq!(fixture.realm().space().unwrap().used, before);
    sound(&fixture.path);
}

#[test]
fn reading_a_box_touches_its_chunks_alone() {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    let data = filled(3, 3, 512 * 512);
    let new = chunked(&[512, 512], &[64, 64], "lz4");
    let oid = namespace.put(namespace.root(), "a", &new, &data, KEEP).unwrap();
    drop(namespace);
    fixture.pool.close();
    // All chunks but one are damaged: a reader of that one does not meet them.
    let catalog = crate::common::catalog_of_path(&fixture.path);
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    let mut keys = Vec::new();
    let mut cursor = txn.seek(Table::Chunks, &[]).unwrap();
    while let Some((key, _)) = cursor.next().unwrap() {
        keys.push(key.to_vec());
    }
    drop(cursor);
    assert_eq!(keys.len(), 64);
    for (_, key) in keys.iter().enumerate().filter(|(at, _)| *at != 27) {
        txn.put(Table::Chunks, key, b"no record").unwrap();
    }
    txn.commit().unwrap();
    drop(catalog);
    let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
    let namespace = names(&pool);
    let naive = Naive { shape: vec![512, 512], bytes: data };
    let (offsets, counts) = ([192, 192], [64, 64]);
    assert!(part(&namespace, oid, &offsets, &counts) == naive.part(&offsets, &counts));
    let mut out = vec![0; 65 * 64 * 8];
    let damaged = namespace.load_slab(oid, &offsets, &[65, 64], &mut out).unwrap_err();
    assert_eq!(damaged.kind(), Kind::Corrupt);
    assert!(damaged.message().contains("chunk [4, 3] of \"a\""), "{damaged}");
}

#[test]
fn nobody_who_counts_lists_or_asks_meets_a_chunk() {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    let root = namespace.root();
    put(&fixture.realm(), "other", &filled(1, 1, 9));
    let oid = grid(&namespace, "g/a", &[100, 100], &[10, 10], "zstd");
    store(&namespace, oid, &[0, 0], &[100, 100], &filled(2, 2, 10_000));
    assert_eq!(namespace.count(root).unwrap(), 2);
    let every = query::parse("@nbytes = 80000 and @ndim = 2").unwrap();
    let asked = |text: &str| {
        namespace.query(&query::parse(text).unwrap(), &QueryOptions::default()).unwrap().oids
    };
    assert_eq!(namespace.query(&every, &QueryOptions::default()).unwrap().oids, [oid]);
    assert_eq!(asked("@owner >= 0").len(), 2);
    namespace.reshape(oid, &[100, 50]).unwrap();
    assert_eq!(asked("@nbytes = 40000"), [oid]);
    assert_eq!(asked("@nbytes = 80000"), Vec::<u64>::new());
    let report = sound(&fixture.path);
    assert_eq!((report.objects, report.groups), (2, 2));
}

#[test]
fn what_goes_takes_its_chunks_along() {
    let fixture = Fixture::new(64 << 20);
    let (namespace, realm) = (names(&fixture.pool), fixture.realm());
    let root = namespace.root();
    let used = || realm.space().unwrap().used;
    let make = |path: &str| {
        let new = chunked(&[64, 64], &[16, 16], "none");
        namespace.put(root, path, &new, &filled(1, 1, 64 * 64), OVER).unwrap()
    };
    make("g/a");
    let one = used();
    assert!(one > 0);
    make("g/a");
    assert_eq!(used(), one, "overwritten");
    put(&realm, "g/a", &filled(1, 1, 2));
    assert_eq!(used(), 0, "overwritten by another");
    make("g/deep/b");
    make("c");
    namespace.delete(root, "g").unwrap();
    assert_eq!(used(), one, "with its group");
    namespace.rename(root, "c", root, "d/e").unwrap();
    let Some(Member::Object(oid)) = namespace.lookup(root, "d/e").unwrap() else { panic!("gone") };
    assert!(whole(&namespace, oid) == filled(1, 1, 64 * 64));
    // In a batch: made, written, resized, gone again; and of what was there before, or not at all.
    let batch = namespace.batch().unwrap();
    let made = make("f");
    store(&namespace, made, &[0, 0], &[1, 1], &[9; 8]);
    namespace.reshape(made, &[10, 10]).unwrap();
    namespace.append(made, 0, &[1, 10], &[7; 80]).unwrap();
    assert_eq!(part(&namespace, made, &[10, 0], &[1, 2]), [7; 16]);
    make("h");
    namespace.delete(root, "h").unwrap();
    namespace.delete(root, "d").unwrap();
    let refused = namespace.reshape(oid, &[1, 1]).unwrap_err();
    assert!(matches!(refused.kind(), Kind::NotFound | Kind::Busy), "{refused}");
    batch.commit().unwrap();
    assert_eq!(namespace.object(made).unwrap().shape, [11, 10]);
    assert_eq!(part(&namespace, made, &[0, 0], &[1, 1]), [9; 8]);
    let kept = used();
    let batch = namespace.batch().unwrap();
    make("x/y/z");
    let refused = namespace.store_slab(made, &[0, 0], &[1, 1], &[1; 8], engram::Flush::Once);
    assert_eq!(refused.unwrap_err().kind(), Kind::Busy, "made before the batch");
    batch.abort().unwrap();
    assert_eq!(used(), kept);
    namespace.delete(root, "f").unwrap();
    assert_eq!(used(), 0);
    drop((namespace, realm));
    fixture.pool.close();
    assert_eq!(sound(&fixture.path).used, 0);
}

#[test]
fn a_batch_that_deletes_an_array_conflicts_with_who_writes_to_it() {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    let root = namespace.root();
    let oid = grid(&namespace, "a", &[8], &[2], "none");
    let batch = namespace.batch().unwrap();
    namespace.delete(root, "a").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| store(&namespace, oid, &[3], &[1], &[1; 8]));
    });
    assert_eq!(batch.commit().unwrap_err().kind(), Kind::Busy);
    assert_eq!(part(&namespace, oid, &[3], &[1]), [1; 8]);
    let batch = namespace.batch().unwrap();
    namespace.delete(root, "a").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| store(&namespace, oid, &[3], &[1], &[2; 8]));
    });
    assert_eq!(batch.commit().unwrap_err().kind(), Kind::Busy, "another chunk in its place");
    namespace.delete(root, "a").unwrap();
    sound(&fixture.path);
}

#[test]
fn what_cannot_be_is_refused_and_says_what_to_do() {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    let root = namespace.root();
    let refused = |new: &NewObject, word: &str| {
        let error = namespace.create_zeroed(root, "a", new, KEEP).unwrap_err();
        assert!(error.kind() == Kind::Argument && error.message().contains(word), "{error}");
    };
    refused(&chunked(&[], &[], "lz4"), "without dimensions");
    refused(&chunked(&[4, 4], &[2], "lz4"), "[2]");
    refused(&chunked(&[4], &[0], "lz4"), "at least 1");
    refused(&chunked(&[1 << 40], &[1 << 30], "lz4"), "1073741824");
    refused(&chunked(&[1 << 40], &[1], "lz4"), "1099511627776 chunks");
    let nothing = DType::Scalar { kind: b'V', order: b'|', size: 0, unit: None };
    refused(&NewObject { dtype: nothing, ..chunked(&[4], &[2], "lz4") }, "0-byte items");
    let there = Placement { device: Some(0), ..KEEP };
    let placed = namespace.create_zeroed(root, "a", &chunked(&[4], &[2], "lz4"), there);
    assert_eq!(placed.unwrap_err().kind(), Kind::Argument);
    let filled_in = namespace.allocate(root, "a", &chunked(&[4], &[2], "lz4"), 32, KEEP);
    assert_eq!(filled_in.err().unwrap().kind(), Kind::Argument);

    let oid = grid(&namespace, "a", &[4, 4], &[2, 2], "lz4");
    let plain = namespace.create_zeroed(root, "plain", &floats(&[4, 4]), KEEP).unwrap();
    let kinds = |error: engram::Error, word: &str| {
        assert!(error.kind() == Kind::Argument && error.message().contains(word), "{error}");
    };
    kinds(namespace.payload(oid).err().unwrap(), "chunked");
    kinds(namespace.view(oid, true).err().unwrap(), "chunked");
    kinds(namespace.replace_payload(oid, 0, &[0; 128]).unwrap_err(), "chunked");
    kinds(namespace.reshape(plain, &[1, 1]).unwrap_err(), "chunks=");
    kinds(namespace.reshape(oid, &[4]).unwrap_err(), "[4, 4]");
    kinds(namespace.append(oid, 0, &[1, 3], &[0; 24]).unwrap_err(), "[1, 3]");
    kinds(namespace.append(oid, 2, &[1, 3], &[0; 24]).unwrap_err(), "dimension 2");
    kinds(namespace.append(oid, 0, &[1, 4], &[0; 24]).unwrap_err(), "24 were given");
    kinds(namespace.load_slab(oid, &[0, 3], &[4, 2], &mut [0; 64]).unwrap_err(), "reach beyond");
    let store = |offsets: &[u64], counts: &[u64], data: &[u8]| {
        namespace.store_slab(oid, offsets, counts, data, engram::Flush::Once)
    };
    kinds(store(&[0, 3], &[4, 2], &[0; 64]).unwrap_err(), "reach beyond");
    kinds(store(&[0, 3], &[4, 1], &[0; 64]).unwrap_err(), "64 were given");
    namespace.flush(oid).expect("there is nothing to do");
    namespace.set_read_only(Member::Object(oid), true).unwrap();
    for done in [
        store(&[0, 0], &[1, 1], &[1; 8]),
        namespace.reshape(oid, &[2, 2]),
        namespace.delete(root, "a"),
    ] {
        assert_eq!(done.unwrap_err().kind(), Kind::ReadOnly);
    }
    namespace.set_read_only(Member::Object(oid), false).unwrap();
    namespace.delete(root, "a").unwrap();
    assert_eq!(store(&[0, 0], &[1, 1], &[1; 8]).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn what_is_refused_gives_its_space_back() {
    let fixture = Fixture::new(6 << 20);
    let namespace = names(&fixture.pool);
    let shape = [1024, 400];
    let oid = grid(&namespace, "a", &shape, &[64, 400], "none");
    namespace.set_read_only(Member::Object(oid), true).unwrap();
    let data = filled(1, 1, 1024 * 400);
    for _ in 0..10 {
        let flush = engram::Flush::Once;
        let refused = namespace.store_slab(oid, &[0, 0], &shape, &data, flush).unwrap_err();
        assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
    }
    namespace.set_read_only(Member::Object(oid), false).unwrap();
    store(&namespace, oid, &[0, 0], &shape, &data);
    let new = chunked(&shape, &[64, 400], "none");
    for _ in 0..3 {
        let full =
            namespace.put(namespace.root(), "b", &new, &[&data[8..], &data[..8]].concat(), KEEP);
        assert_eq!(full.unwrap_err().kind(), Kind::PoolFull);
        assert_eq!(namespace.append(oid, 0, &shape, &data).unwrap_err().kind(), Kind::PoolFull);
    }
    assert_eq!(namespace.object(oid).unwrap().shape, shape);
    drop(fixture.realm().scratch(2 << 20, None).expect("all that was reserved is free"));
    assert!(whole(&namespace, oid) == data);
    sound(&fixture.path);
}

#[test]
fn a_snapshot_shows_what_was_whatever_becomes_of_the_array() {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    let data = filled(1, 1, 64 * 64);
    let new = chunked(&[64, 64], &[16, 16], "shuffle+lz4");
    let oid = namespace.put(namespace.root(), "a", &new, &data, KEEP).unwrap();
    let snapshot = namespace.snapshot(None).unwrap();
    store(&namespace, oid, &[0, 0], &[64, 64], &filled(2, 2, 64 * 64));
    namespace.reshape(oid, &[8, 8]).unwrap();
    namespace.delete(namespace.root(), "a").unwrap();
    crate::common::churn(&fixture.realm(), 1);
    assert!(whole(&snapshot, oid) == data);
    assert_eq!(snapshot.object(oid).unwrap().layout, new.layout);
}

#[test]
fn a_record_of_a_later_codec_is_refused_by_name() {
    let fixture = Fixture::new(64 << 20);
    let oid = grid(&names(&fixture.pool), "a", &[8], &[2], "lz4");
    fixture.pool.close();
    let catalog = crate::common::catalog_of_path(&fixture.path);
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    let mut row = txn.get(Table::Objects, &oid.to_be_bytes()).unwrap().unwrap().to_vec();
    // Before the shape of a chunk, one byte: level, flags, codec.
    let codec = row.len() - 4;
    assert_eq!(row[codec], 1);
    row[codec] = 77;
    row[4..8].fill(0); // it has no checksum
    txn.put(Table::Objects, &oid.to_be_bytes(), &row).unwrap();
    txn.commit().unwrap();
    drop(catalog);
    let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
    let refused = names(&pool).object(oid).unwrap_err();
    assert_eq!(refused.kind(), Kind::Format);
    assert!(refused.message().contains("codec 77"), "{refused}");
    pool.close();
    assert!(!engram::verify(&fixture.path).unwrap().problems.is_empty());
    assert_eq!(Layout::default(), Layout::Contiguous);
}
