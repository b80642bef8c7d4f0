//! Boxes of arrays: stored and loaded in place, by many processes at once, wherever the array is.

use crate::common::moves::{names, value_of};
use crate::common::{
    Fixture, KEEP, OVER, Random, alone, attach, blob, floats, fork, lookup, seed, sound,
};
use engram::{Flush, Kind, Mode, Namespace, NewObject, Oid, Placement, Scope, Slab};

fn zeros(namespace: &Namespace, path: &str, shape: &[u64]) -> Oid {
    namespace.create_zeroed(namespace.root(), path, &floats(shape), KEEP).expect("an array")
}

/// A random box of a shape.
fn any_box(random: &mut Random, shape: &[u64]) -> (Vec<u64>, Vec<u64>) {
    shape
        .iter()
        .map(|len| {
            let offset = random.below(len + 1);
            (offset, random.below(len - offset + 1))
        })
        .unzip()
}

fn words(random: &mut Random, count: u64) -> Vec<u8> {
    (0..count).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// Copies a box into what an array has, naively.
fn store_naively(all: &mut [u8], slab: &Slab, data: &[u8]) {
    for run in slab.runs(8) {
        let from = &data[run.buffer as usize..][..run.len as usize];
        all[run.array as usize..][..run.len as usize].copy_from_slice(from);
    }
}

#[test]
fn boxes_are_where_they_were_stored_and_nowhere_else() {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    let mut random = Random(seed());
    // One that lies in its record at first, and one that has pages.
    for shape in [&[3, 4, 5][..], &[17, 3, 40, 9], &[], &[0, 4]] {
        let oid = zeros(&namespace, &format!("a{}", shape.len()), shape);
        let mut all = value_of(&namespace, oid);
        for round in 0..60 {
            let (offsets, counts) = any_box(&mut random, shape);
            let slab = Slab::new(shape, &offsets, &counts).expect("a box");
            let data = words(&mut random, slab.elements());
            let flush = [Flush::Once, Flush::AsWritten][round % 2];
            namespace.store_slab(oid, &offsets, &counts, &data, flush).expect("a store");
            store_naively(&mut all, &slab, &data);
            assert_eq!(value_of(&namespace, oid), all, "{offsets:?} {counts:?} of {shape:?}");

            let (offsets, counts) = any_box(&mut random, shape);
            let slab = Slab::new(shape, &offsets, &counts).expect("a box");
            let mut loaded = vec![0; 8 * slab.elements() as usize];
            namespace.load_slab(oid, &offsets, &counts, &mut loaded).expect("a load");
            let wanted: Vec<u8> = slab
                .runs(8)
                .flat_map(|run| all[run.array as usize..][..run.len as usize].to_vec())
                .collect();
            assert_eq!(loaded, wanted, "{offsets:?} {counts:?} of {shape:?}");
        }
    }
    drop(namespace);
    fixture.pool.close();
    sound(&fixture.path);
}

#[test]
fn processes_store_disjoint_boxes_of_one_array_at_once_and_one_that_dies_hurts_no_other() {
    alone(
        "processes_store_disjoint_boxes_of_one_array_at_once_and_one_that_dies_hurts_no_other",
        || {
            let fixture = Fixture::new(64 << 20);
            let namespace = names(&fixture.pool);
            let shape = [64, 32, 16];
            let oid = zeros(&namespace, "A", &shape);
            let block = |rank: u64| ([0, 8 * rank, 0], [64, 8, 16]);
            let data =
                |rank: u64, round: u64| words(&mut Random(1000 * rank + round + 1), 64 * 8 * 16);
            let path = fixture.path.clone();
            let ranks: Vec<_> = (0..4)
                .map(|rank| {
                    fork(|line| {
                        fixture.pool.close();
                        let (pool, _realm) = attach(&path, Mode::ReadWrite);
                        let namespace = names(&pool);
                        let (offsets, counts) = block(rank);
                        for round in 0.. {
                            let data = data(rank, round);
                            let stored =
                                namespace.store_slab(oid, &offsets, &counts, &data, Flush::Once);
                            stored.expect("a store");
                            line.say(round);
                            if round == 40 && rank > 0 {
                                break;
                            }
                        }
                    })
                })
                .collect();
            for rank in &ranks {
                rank.line.expect(0);
            }
            let mut ranks = ranks.into_iter();
            ranks.next().expect("the first").kill();
            ranks.for_each(|rank| {
                for round in 1..=40 {
                    rank.line.expect(round);
                }
                rank.finish();
            });
            for rank in 1..4 {
                let (offsets, counts) = block(rank);
                let mut loaded = vec![0; 8 * 64 * 8 * 16];
                namespace.load_slab(oid, &offsets, &counts, &mut loaded).expect("a load");
                assert_eq!(loaded, data(rank, 40), "rank {rank}");
            }
            drop(namespace);
            fixture.pool.close();
            sound(&fixture.path);
        },
    );
}

#[test]
fn what_is_stored_while_the_array_is_shared_and_unshared_is_kept() {
    let test = "what_is_stored_while_the_array_is_shared_and_unshared_is_kept";
    alone(test, || {
        let fixture = Fixture::new(64 << 20);
        let namespace = names(&fixture.pool);
        let oid = zeros(&namespace, "run/A", &[1000, 20]);
        let path = fixture.path.clone();
        let mover = fork(|line| {
            fixture.pool.close();
            let (pool, _realm) = attach(&path, Mode::ReadWrite);
            let namespace = names(&pool);
            line.say(1);
            while !line.is_ready() {
                for (from, to) in [(Scope::Shared, Scope::Private), (Scope::Private, Scope::Shared)]
                {
                    namespace.transfer(namespace.root(), "run", &[from], to).expect("a move");
                }
            }
        });
        mover.line.expect(1);
        let mut all = value_of(&namespace, oid);
        let mut random = Random(seed());
        for _ in 0..400 {
            let (offsets, counts) = any_box(&mut random, &[1000, 20]);
            let slab = Slab::new(&[1000, 20], &offsets, &counts).expect("a box");
            let data = words(&mut random, slab.elements());
            // Before anything is written, an array on its way is busy: as for any write in place.
            while let Err(error) = namespace.store_slab(oid, &offsets, &counts, &data, Flush::Once)
            {
                assert_eq!(error.kind(), Kind::Busy, "{error}");
            }
            store_naively(&mut all, &slab, &data);
        }
        mover.line.say(2);
        mover.finish();
        assert_eq!(value_of(&namespace, oid), all);
    });
}

#[test]
fn what_cannot_be_stored_or_loaded_is_refused_with_what_was_asked() {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    let oid = zeros(&namespace, "A", &[100, 20]);
    let store = |offsets: &[u64], counts: &[u64], bytes: usize| {
        namespace.store_slab(oid, offsets, counts, &vec![1; bytes], Flush::Once)
    };
    let load = |offsets: &[u64], counts: &[u64], bytes: usize| {
        namespace.load_slab(oid, offsets, counts, &mut vec![1; bytes])
    };
    for (offsets, counts, bytes, says) in [
        (&[90, 0][..], &[20, 20][..], 3200, "reach beyond shape [100, 20]"),
        (&[0], &[20], 160, "2 dimensions"),
        (&[0, 0], &[2, 20], 8, "take 320 bytes, 8 were given"),
    ] {
        for refused in [store(offsets, counts, bytes), load(offsets, counts, bytes)] {
            let error = refused.expect_err("an error");
            assert_eq!(error.kind(), Kind::Argument);
            assert!(error.message().contains(says) && error.message().contains("\"A\""), "{error}");
        }
    }
    assert!(value_of(&namespace, oid).iter().all(|byte| *byte == 0), "nothing was written");

    let bytes: NewObject = blob();
    let log = namespace.put(namespace.root(), "log", &bytes, &[7; 5000], KEEP).expect("a blob");
    namespace.store_slab(log, &[4990], &[10], &[8; 10], Flush::Once).expect("a blob's bytes");
    assert_eq!(value_of(&namespace, log)[4980..], [[7; 10], [8; 10]].concat());

    // Replaced meanwhile: a write into nothing is refused (P8).
    namespace.create_zeroed(namespace.root(), "A", &floats(&[100, 20]), OVER).expect("another");
    assert_eq!(store(&[0, 0], &[1, 1], 8).unwrap_err().kind(), Kind::NotFound);
    let kept = Placement { read_only: true, ..KEEP };
    let hint = namespace.create_zeroed(namespace.root(), "R", &floats(&[100, 20]), kept);
    let refused =
        namespace.store_slab(hint.expect("an array"), &[0, 0], &[1, 1], &[1; 8], Flush::Once);
    assert_eq!(refused.unwrap_err().kind(), Kind::ReadOnly);
}

#[test]
fn an_array_of_more_dimensions_than_there_may_be_is_refused_before_anything_is_made() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    for ndim in [65, 256, 300] {
        let new = floats(&vec![1; ndim]);
        let refused = realm.create_zeroed(realm.root(), "deep/a", &new, KEEP).expect_err("refused");
        assert_eq!(refused.kind(), Kind::Argument, "{refused}");
        assert!(refused.message().contains(&format!("{ndim} dimensions")), "{refused}");
        assert_eq!(lookup(&realm, "deep"), None);
    }
    realm.create_zeroed(realm.root(), "deep/a", &floats(&[1; 64]), KEEP).expect("64 may be");
    assert!(lookup(&realm, "deep/a").is_some());
}
