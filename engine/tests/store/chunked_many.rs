//! Chunked arrays among others: processes that write at once and die, moves between scopes,
//! backup, compaction, salvage, and what verify finds.

use crate::common::grids::{CODECS, Naive, chunked, grid, part, store, whole};
use crate::common::moves::names;
use crate::common::{
    Fixture, KEEP, Random, alone, attach, catalog_of_path, die_at_step, fill_up, filled, fork,
    lookup, put, report_of, seed, sound, span_files,
};
use engram::catalog::{Headroom, Table, WriteTxn};
use engram::{
    CreateOptions, Flush, Kind, Loss, Member, Mode, Namespace, Pool, Salvage, Scope, Witness,
};

#[test]
fn processes_that_write_to_the_same_chunks_lose_nothing() {
    alone("processes_that_write_to_the_same_chunks_lose_nothing", || {
        const WRITERS: u64 = 3;
        let fixture = Fixture::new(64 << 20);
        let namespace = names(&fixture.pool);
        // Columns of each writer go through every chunk.
        let shape = [40, 30];
        let oid = grid(&namespace, "a", &shape, &[16, 16], "shuffle+lz4");
        let path = &fixture.path;
        let mut peers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                fork(|line| {
                    line.expect(1);
                    let (pool, _) = attach(path, Mode::ReadWrite);
                    let namespace = names(&pool);
                    for column in (writer..30).step_by(WRITERS as usize) {
                        let data = filled(writer, column, 40);
                        store(&namespace, oid, &[0, column], &[40, 1], &data);
                    }
                })
            })
            .collect();
        for peer in &peers {
            peer.line.say(1);
        }
        for peer in &mut peers {
            assert_eq!(peer.wait(), 0);
        }
        for column in 0..30 {
            let there = part(&namespace, oid, &[0, column], &[40, 1]);
            assert!(there == filled(column % WRITERS, column, 40), "column {column}");
        }
        sound(&fixture.path);
    });
}

#[test]
fn who_appends_at_the_same_time_comes_before_or_after() {
    alone("who_appends_at_the_same_time_comes_before_or_after", || {
        // Where others append to the same chunk, and where each row is one.
        for rows in [7, 1] {
            append_together(rows);
        }
    });
}

fn append_together(rows_in_chunk: u64) {
    const WRITERS: u64 = 3;
    const TIMES: u64 = 400;
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    let oid = grid(&namespace, "a", &[0, 5], &[rows_in_chunk, 5], "lz4");
    let path = &fixture.path;
    let append = |writer: u64| {
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = names(&pool);
        for time in 0..TIMES {
            let rows = 1 + time % 3;
            let data = (writer << 32 | time).to_le_bytes().repeat(5 * rows as usize);
            namespace.append(oid, 0, &[rows, 5], &data).expect("appended");
        }
    };
    let mut peers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            fork(move |line| {
                line.expect(1);
                append(writer);
            })
        })
        .collect();
    for peer in &peers {
        peer.line.say(1);
    }
    for peer in &mut peers {
        assert_eq!(peer.wait(), 0);
    }
    let all = whole(&namespace, oid);
    let row = |row: &[u8]| {
        assert!(row.chunks(8).all(|item| item == &row[..8]), "a row of two");
        u64::from_le_bytes(row[..8].try_into().unwrap())
    };
    let rows: Vec<u64> = all.chunks(40).map(row).collect();
    let (mut next, mut at) = ([0; WRITERS as usize], 0);
    while at < rows.len() {
        let (writer, time) = ((rows[at] >> 32) as usize, rows[at] & 0xffff_ffff);
        assert_eq!(time, next[writer], "in the order of each writer");
        next[writer] += 1;
        let many = 1 + time as usize % 3;
        assert!(rows[at..at + many].iter().all(|row| *row == rows[at]), "whole appends");
        at += many;
    }
    assert_eq!(next, [TIMES; WRITERS as usize]);
    sound(&fixture.path);
}

/// What a process does, and what the array is after it.
#[cfg(feature = "faults")]
struct Work {
    what: &'static str,
    act: fn(&Namespace, u64),
    imagine: fn(&mut Naive),
}

#[cfg(feature = "faults")]
const WORKS: [Work; 4] = [
    Work {
        what: "store",
        act: |namespace, oid| store(namespace, oid, &[3, 3], &[40, 40], &filled(2, 2, 1600)),
        imagine: |naive| naive.store(&[3, 3], &[40, 40], &filled(2, 2, 1600)),
    },
    Work {
        what: "append",
        act: |namespace, oid| {
            namespace.append(oid, 1, &[50, 7], &filled(3, 3, 350)).unwrap();
        },
        imagine: |naive| {
            naive.resize(&[50, 57]);
            naive.store(&[0, 50], &[50, 7], &filled(3, 3, 350));
        },
    },
    Work {
        what: "shrink",
        act: |namespace, oid| namespace.reshape(oid, &[20, 21]).unwrap(),
        imagine: |naive| naive.resize(&[20, 21]),
    },
    Work {
        what: "put",
        act: |namespace, _| {
            let new = chunked(&[64, 64], &[16, 16], "none");
            let data = filled(4, 4, 64 * 64);
            namespace.put(namespace.root(), "new", &new, &data, KEEP).unwrap();
        },
        imagine: |_| {},
    },
];

/// Does it in a process that dies as it reaches a step; whether it did. Then the array is as before
/// or as after, or (of a box) each of its chunks is; and no space is lost.
#[cfg(feature = "faults")]
fn die_at(step: &'static str, of: &Work) -> bool {
    let Work { what, act, imagine } = *of;
    let fixture = Fixture::new(32 << 20);
    let namespace = names(&fixture.pool);
    let new = chunked(&[50, 50], &[16, 16], "none");
    let before = Naive { shape: vec![50, 50], bytes: filled(1, 1, 2500) };
    let oid = namespace.put(namespace.root(), "a", &new, &before.bytes, KEEP).unwrap();
    drop(namespace);
    fixture.pool.close();
    let path = &fixture.path;
    let mut dying = fork(|_| {
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = names(&pool);
        die_at_step(step);
        act(&namespace, oid);
    });
    let died = libc::WIFSIGNALED(dying.wait());
    let (pool, realm) = attach(path, Mode::ReadWrite);
    let namespace = names(&pool);
    let shape = namespace.object(oid).unwrap().shape;
    let there = Naive { shape, bytes: whole(&namespace, oid) };
    let mut after = before.clone();
    imagine(&mut after);
    if what == "store" {
        for (row, column) in (0..4u64).flat_map(|row| (0..4u64).map(move |column| (row, column))) {
            let at = [row * 16, column * 16];
            let counts = at.map(|at| (50 - at).min(16));
            let chunk = there.part(&at, &counts);
            let one_of = [before.part(&at, &counts), after.part(&at, &counts)];
            assert!(one_of.contains(&chunk), "half a chunk at {step}");
        }
    } else {
        assert!(there == before || there == after, "{what} at {step}");
    }
    if let Some(made) = lookup(&realm, "new") {
        assert!(whole(&namespace, made) == filled(4, 4, 64 * 64), "{step}");
        namespace.delete(namespace.root(), "new").unwrap();
    }
    drop(realm.scratch(1 << 20, None).unwrap());
    namespace.delete(namespace.root(), "a").unwrap();
    drop((namespace, realm));
    pool.close();
    assert_eq!(sound(path).used, 0, "{what} at {step}");
    died
}

#[cfg(feature = "faults")]
#[test]
fn who_dies_at_any_step_leaves_whole_chunks_and_no_space_behind() {
    alone("who_dies_at_any_step_leaves_whole_chunks_and_no_space_behind", || {
        let of = ["chunks.", "reserve.", "commit.", "write."];
        let all = engram::faults::ALL.iter().copied();
        let mut kills = 0;
        for step in all.filter(|step| of.iter().any(|of| step.starts_with(of))) {
            let died = WORKS.iter().filter(|work| die_at(step, work)).count();
            assert!(died > 0 || !step.starts_with("chunks."), "nobody reaches {step}");
            kills += died;
        }
        println!("{kills} kills");
    });
}

/// Chunked arrays of each codec, below a group.
fn stock(namespace: &Namespace) -> Vec<(u64, Vec<u8>)> {
    let arrays = CODECS.iter().enumerate().map(|(at, codec)| {
        let new = chunked(&[70, 50], &[32, 16], codec);
        let data = filled(at as u64, 7, 70 * 50);
        let path = format!("run/deep/{codec}");
        let oid = namespace.put(namespace.root(), &path, &new, &data, KEEP).unwrap();
        (oid, data)
    });
    let mut arrays: Vec<_> = arrays.collect();
    let small = grid(namespace, "run/small", &[9], &[4], "lz4");
    store(namespace, small, &[2], &[3], &filled(9, 9, 3));
    arrays.push((small, whole(namespace, small)));
    arrays
}

fn all_there(namespace: &Namespace, arrays: &[(u64, Vec<u8>)]) {
    for (oid, data) in arrays {
        assert!(whole(namespace, *oid) == *data, "{oid:#x}");
    }
}

#[test]
fn chunks_go_where_their_array_goes() {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    let arrays = stock(&namespace);
    let root = namespace.root();
    let ways = [
        (Scope::Shared, Scope::Private),
        (Scope::Private, Scope::Published),
        (Scope::Published, Scope::Shared),
        (Scope::Shared, Scope::Published),
        (Scope::Published, Scope::Private),
        (Scope::Private, Scope::Shared),
    ];
    for (from, to) in ways {
        namespace.transfer(root, "run", &[from], to).expect("a move");
        all_there(&namespace, &arrays);
        let realm = namespace.realm_of(from, false).unwrap().unwrap();
        for (oid, _) in &arrays {
            assert_eq!(realm.object(*oid).unwrap_err().kind(), Kind::NotFound);
        }
        if from != Scope::Published {
            assert_eq!(realm.space().unwrap().used, 0, "{from:?} to {to:?}");
        }
        if to == Scope::Published {
            let refused = namespace.reshape(arrays[0].0, &[1, 1]).unwrap_err();
            assert_eq!(refused.kind(), Kind::ReadOnly);
        } else {
            store(&namespace, arrays[0].0, &[0, 0], &[1, 1], &arrays[0].1[..8]);
        }
        sound(&fixture.path);
    }
    namespace.delete(root, "run").unwrap();
    assert_eq!(fixture.realm().space().unwrap().used, 0);
}

#[test]
fn a_backup_and_a_compacted_pool_have_every_chunk() {
    alone("a_backup_and_a_compacted_pool_have_every_chunk", || {
        let fixture = Fixture::new(64 << 20);
        let namespace = names(&fixture.pool);
        let holes: Vec<_> = (0..9)
            .map(|at| put(&fixture.realm(), &format!("hole{at}"), &filled(at, 1, 200_000)))
            .collect();
        let arrays = stock(&namespace);
        for at in 0..holes.len() {
            namespace.delete(namespace.root(), &format!("hole{at}")).unwrap();
        }
        let dest = fixture.dir.path().join("copy");
        let report = engram::backup(&fixture.pool, &dest, true).unwrap();
        assert_eq!(report.objects, arrays.len() as u64);
        drop(namespace);
        fixture.pool.close();
        let before = sound(&fixture.path);
        assert_eq!(report.bytes, before.used);
        engram::compact(&fixture.path).unwrap();
        for path in [&dest, &fixture.path] {
            let report = sound(path);
            assert_eq!(report.used, before.used);
            let (pool, _) = attach(path, Mode::ReadWrite);
            let namespace = names(&pool);
            all_there(&namespace, &arrays);
            namespace.reshape(arrays[0].0, &[100, 100]).unwrap();
            drop(namespace);
            pool.close();
            sound(path);
        }
    });
}

#[test]
fn an_array_of_many_chunks_is_deleted_from_a_mount_that_is_full() {
    let test = "an_array_of_many_chunks_is_deleted_from_a_mount_that_is_full";
    alone(test, || {
        const CHUNKS: u64 = 12_000;
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 64 << 20) else { return };
        let namespace = names(&fixture.pool);
        let root = namespace.root();
        for path in ["a", "g/deep/b"] {
            let new = chunked(&[CHUNKS * 64], &[64], "none");
            let data = filled(1, 1, (CHUNKS * 64) as usize);
            namespace.put(root, path, &new, &data, KEEP).expect("there is room for that");
        }
        let filler = fill_up(&mount);
        namespace.delete(root, "a").expect("in parts");
        namespace.delete(root, "g").expect("in parts");
        assert_eq!(namespace.count(root).unwrap(), 0);
        std::fs::remove_file(filler).unwrap();
        drop(namespace);
        fixture.pool.close();
        assert_eq!(sound(&fixture.path).used, 0);
    });
}

struct Told(Vec<Loss>);

impl Witness for Told {
    fn begin(&mut self, _: u64, _: &str) -> bool {
        true
    }
    fn lose(&mut self, loss: Loss) {
        self.0.push(loss);
    }
    fn pulse(&mut self) {}
}

#[test]
fn of_a_damaged_chunk_verify_tells_and_salvage_loses_that_one_alone() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let options =
        CreateOptions { size: 64 << 20, force: true, checksums: true, ..CreateOptions::default() };
    let pool = Pool::create(&path, &options).unwrap();
    let namespace = names(&pool);
    let arrays = stock(&namespace);
    namespace.set_read_only(Member::Object(arrays[2].0), true).unwrap();
    drop(namespace);
    pool.close();
    sound(&path);
    // One chunk's bytes, in the file of the span: of the first array, which is not encoded.
    let spans = span_files(&path);
    let chunk: Vec<u8> = arrays[0].1[..16 * 8].to_vec();
    let mut damaged = 0;
    for span in spans {
        let mut bytes = std::fs::read(&span).unwrap();
        let at = bytes.windows(chunk.len()).position(|window| window == chunk);
        if let Some(at) = at {
            bytes[at + 5] ^= 1;
            std::fs::write(&span, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    let problems = report_of(&path).problems;
    assert!(problems.len() == 1 && problems[0].contains("chunk [0, 0]"), "{problems:?}");
    let salvage = Salvage::open(&path, &mut || ()).unwrap();
    let target = dir.path().join("salvaged");
    let saved = Pool::create(&target, &options).unwrap();
    let realm = saved.realm("default").unwrap();
    let mut told = Told(Vec::new());
    salvage.copy("default", &realm, 0, &mut told).unwrap();
    assert_eq!(told.0.len(), 1, "{:?}", told.0);
    assert!(told.0[0].path == "run/deep/none" && told.0[0].what.contains("chunk [0, 0]"));
    let namespace = names(&saved);
    for (at, codec) in CODECS.iter().enumerate() {
        let oid = lookup(&realm, &format!("run/deep/{codec}")).unwrap();
        let mut naive = Naive { shape: vec![70, 50], bytes: arrays[at].1.clone() };
        if at == 0 {
            naive.store(&[0, 0], &[32, 16], &[0; 32 * 16 * 8]);
        }
        assert!(whole(&namespace, oid) == naive.bytes, "{codec}");
        assert_eq!(namespace.is_read_only(Member::Object(oid)).unwrap(), at == 2);
        assert_eq!(namespace.object(oid).unwrap().layout, chunked(&[], &[32, 16], codec).layout);
    }
    sound(&target);
}

type Damage = fn(&mut WriteTxn<'_>, u64);

fn key(oid: u64, cell: &[u32]) -> Vec<u8> {
    let place = cell.iter().flat_map(|at| at.to_be_bytes());
    oid.to_be_bytes().into_iter().chain(place).collect()
}

fn row(txn: &WriteTxn<'_>, oid: u64, cell: &[u32]) -> Vec<u8> {
    txn.get(Table::Chunks, &key(oid, cell)).unwrap().expect("the row").to_vec()
}

/// What is done, and a word of what verify says of it.
const DAMAGES: &[(&str, Damage)] = &[
    ("lies beyond the array's shape", |txn, oid| {
        let row = row(txn, oid, &[1]);
        txn.put(Table::Chunks, &key(oid, &[99]), &row).unwrap();
        txn.delete(Table::Chunks, &key(oid, &[1])).unwrap();
    }),
    ("belongs to no chunked array", |txn, oid| {
        let row = row(txn, oid, &[1]);
        txn.put(Table::Chunks, &key(oid + 500, &[1]), &row).unwrap();
        txn.delete(Table::Chunks, &key(oid, &[1])).unwrap();
    }),
    ("belongs to no chunked array", |txn, oid| {
        txn.delete(Table::Objects, &oid.to_be_bytes()).unwrap();
    }),
    ("says that it belongs to", |txn, oid| {
        let mut row = row(txn, oid, &[1]);
        row[16] ^= 1;
        txn.put(Table::Chunks, &key(oid, &[1]), &row).unwrap();
    }),
    ("of class Array", |txn, oid| {
        let mut row = row(txn, oid, &[1]);
        row[2] = 1;
        txn.put(Table::Chunks, &key(oid, &[1]), &row).unwrap();
    }),
    ("has class Chunk", |txn, oid| {
        let row = row(txn, oid, &[1]);
        txn.put(Table::Objects, &(oid + 1).to_be_bytes(), &row).unwrap();
    }),
    ("beyond the array", |txn, oid| {
        let row = row(txn, oid, &[1]);
        txn.put(Table::Chunks, &key(oid, &[1, 2]), &row).unwrap();
    }),
    ("a key of `chunks` has 10 bytes", |txn, oid| {
        let row = row(txn, oid, &[1]);
        txn.put(Table::Chunks, &key(oid, &[1])[..10], &row).unwrap();
    }),
    ("overlaps", |txn, oid| {
        let row = row(txn, oid, &[1]);
        txn.put(Table::Chunks, &key(oid, &[2]), &row).unwrap();
    }),
    ("the account says", |txn, oid| {
        txn.delete(Table::Chunks, &key(oid, &[1])).unwrap();
    }),
    ("a chunk of the array 4096 at most", |txn, oid| {
        let mut row = row(txn, oid, &[1]);
        let nbytes = row.len() - 16;
        row[nbytes..nbytes + 8].copy_from_slice(&4097u64.to_le_bytes());
        let len = row.len() - 24;
        row[len..len + 8].copy_from_slice(&8192u64.to_le_bytes());
        txn.put(Table::Chunks, &key(oid, &[1]), &row).unwrap();
    }),
    ("dtype and shape ask for", |txn, oid| {
        let mut row = txn.get(Table::Objects, &oid.to_be_bytes()).unwrap().unwrap().to_vec();
        let nbytes = row.len() - 13; // a shape of two bytes, eleven before it
        row[nbytes] ^= 8;
        txn.put(Table::Objects, &oid.to_be_bytes(), &row).unwrap();
    }),
];

#[test]
fn verify_finds_chunks_that_cannot_be() {
    for (word, damage) in DAMAGES {
        let fixture = Fixture::new(16 << 20);
        let namespace = names(&fixture.pool);
        let new = chunked(&[1500], &[512], "none");
        let data = filled(1, 1, 1500);
        let oid = namespace.put(namespace.root(), "a", &new, &data, KEEP).unwrap();
        drop(namespace);
        fixture.pool.close();
        sound(&fixture.path);
        let catalog = catalog_of_path(&fixture.path);
        let mut txn = catalog.write(Headroom::Normal).unwrap();
        damage(&mut txn, oid);
        txn.commit().unwrap();
        drop(catalog);
        let problems = report_of(&fixture.path).problems;
        assert!(problems.iter().any(|told| told.contains(word)), "{word}: {problems:?}");
        // A process that meets it gets an error, and no wild access.
        let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
        let namespace = names(&pool);
        let mut out = vec![0; 1500 * 8];
        let _ = namespace.load_slab(oid, &[0], &[1500], &mut out);
        let _ = namespace.store_slab(oid, &[3], &[1000], &vec![1; 8000], Flush::Once);
        let _ = namespace.reshape(oid, &[600]);
        let _ = namespace.stored_nbytes(oid);
        let _ = namespace.delete(namespace.root(), "a");
    }
}

#[test]
fn an_encoded_chunk_that_does_not_decode_is_corrupt_and_says_which_it_is() {
    let mut random = Random(seed());
    for codec in ["lz4", "shuffle+zstd"] {
        let fixture = Fixture::new(16 << 20);
        let namespace = names(&fixture.pool);
        let oid = grid(&namespace, "a", &[100], &[50], codec);
        store(&namespace, oid, &[0], &[100], &1u64.to_le_bytes().repeat(100));
        drop(namespace);
        fixture.pool.close();
        let catalog = catalog_of_path(&fixture.path);
        let mut txn = catalog.write(Headroom::Normal).unwrap();
        let mut row = row(&txn, oid, &[1]);
        let value = row.len() - 4;
        for byte in &mut row[value..] {
            *byte = random.next() as u8;
        }
        row.truncate(value + 2);
        txn.put(Table::Chunks, &key(oid, &[1]), &row).unwrap();
        txn.commit().unwrap();
        drop(catalog);
        let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
        let namespace = names(&pool);
        let mut out = vec![0; 800];
        let damaged = namespace.load_slab(oid, &[0], &[100], &mut out).unwrap_err();
        assert!(damaged.kind() == Kind::Corrupt, "{damaged}");
        assert!(damaged.message().contains("chunk [1] of \"a\""), "{damaged}");
        assert_eq!(part(&namespace, oid, &[0], &[50]), 1u64.to_le_bytes().repeat(50));
        store(&namespace, oid, &[50], &[50], &2u64.to_le_bytes().repeat(50));
        assert_eq!(part(&namespace, oid, &[50], &[50]), 2u64.to_le_bytes().repeat(50));
    }
}

/// Any bit: a coder would often decode it to other values.
#[test]
fn one_bit_of_an_encoded_chunk_is_found_out_without_checksums() {
    let mut random = Random(seed());
    for (at, codec) in ["lz4", "zstd", "shuffle+lz4", "shuffle+zstd"].repeat(8).iter().enumerate() {
        // By turns what becomes shorter, and what does not.
        let mut word = |n: u64| if at / 4 % 2 == 0 { n * n / 7 % 3000 } else { random.next() };
        let words: Vec<u8> = (0..4096).map(&mut word).flat_map(u64::to_le_bytes).collect();
        let fixture = Fixture::new(16 << 20);
        let namespace = names(&fixture.pool);
        let oid = grid(&namespace, "a", &[4096], &[4096], codec);
        store(&namespace, oid, &[0], &[4096], &words);
        drop(namespace);
        fixture.pool.close();
        sound(&fixture.path);
        let [span] = &span_files(&fixture.path)[..] else { panic!("one span") };
        let mut bytes = std::fs::read(span).unwrap();
        let first = bytes.iter().position(|byte| *byte != 0).unwrap();
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        let at = first + random.below((last - first) as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        std::fs::write(span, bytes).unwrap();
        let problems = report_of(&fixture.path).problems;
        assert!(problems.len() == 1 && problems[0].contains("chunk [0]"), "{codec}: {problems:?}");
        let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
        let namespace = names(&pool);
        let mut out = vec![0; 800];
        let damaged = namespace.load_slab(oid, &[0], &[100], &mut out).unwrap_err();
        assert!(damaged.kind() == Kind::Corrupt, "{codec}: {damaged}");
        assert!(damaged.message().contains("chunk [0] of \"a\""), "{codec}: {damaged}");
    }
}
