//! Chunks beside a map of cells.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{ChunkValue, ExpectedChunk, Staged, cut, key_of, next, parse, remove_all, split_key};
use crate::rows_mut::Reserved;
use crate::testing::{LEASE, TestRows, extent_of, stamp};
use engram_base::error::Kind;
use engram_base::id::id_key;
use engram_records::chunked::grid::{Grid, GridCell};
use engram_records::extent::Extent;

/// The array of the tests, and one that follows it in the table.
const OIDS: [u64; 2] = [7, 8];

/// One change of an array's chunks.
#[derive(Clone, Debug)]
enum Step {
    Put {
        oid: u64,
        cell: [u32; 2],
        inline: bool,
    },
    /// Put, if the chunk's generation is still the one of this many steps ago.
    Swap {
        cell: [u32; 2],
        stale: bool,
    },
    Cut {
        oid: u64,
        shape: [u64; 2],
    },
    Remove {
        oid: u64,
        most: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let oid = || prop::sample::select(OIDS.to_vec());
    let cell = || [0..3u32, 0..3u32];
    prop_oneof![
        5 => (oid(), cell(), any::<bool>())
            .prop_map(|(oid, cell, inline)| Step::Put { oid, cell, inline }),
        2 => (cell(), any::<bool>()).prop_map(|(cell, stale)| Step::Swap { cell, stale }),
        1 => (oid(), [0..7u64, 0..7u64]).prop_map(|(oid, shape)| Step::Cut { oid, shape }),
        1 => (oid(), 0..4usize).prop_map(|(oid, most)| Step::Remove { oid, most }),
    ]
}

/// A chunk, as the model knows it: its generation, and its extent if it has one.
type Known = (u32, Option<Extent>);

/// What the rows say.
fn chunks(memory: &mut TestRows) -> BTreeMap<(u64, GridCell), Known> {
    let mut all = BTreeMap::new();
    for oid in OIDS {
        let mut from = id_key(oid).to_vec();
        while let Some((key, row)) = next(memory, oid, &mut from).unwrap() {
            let (of, cell) = split_key(&key).unwrap();
            assert_eq!(of, oid);
            let record = parse(&row).unwrap();
            all.insert((oid, cell), (record.generation, record.extent()));
        }
    }
    all
}

fn staged(cell: [u32; 2], extent: Option<Extent>, expected: ExpectedChunk) -> Staged {
    let value = match extent {
        None => ChunkValue::Inline(vec![1, 2]),
        Some(extent) => ChunkValue::Reserved {
            reserved: Reserved { extent, lease: LEASE },
            nbytes: 9,
            checksum: 0,
        },
    };
    Staged { cell: cell.to_vec(), value, expected }
}

proptest! {
    #[test]
    fn chunks_come_and_go_as_in_a_map_and_each_extent_is_given_back_once(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut memory = TestRows::default();
        let mut model = BTreeMap::<(u64, GridCell), Known>::new();
        for (number, step) in (1..).zip(steps) {
            match step {
                Step::Put { oid, cell, inline } => {
                    let extent = (!inline).then(|| extent_of(number, 0));
                    let staged = staged(cell, extent, ExpectedChunk::Anything);
                    prop_assert!(staged.fits(&mut memory, oid).unwrap());
                    staged.put(&mut memory, oid, stamp(1)).unwrap();
                    let key = (oid, cell.to_vec());
                    let generation = model.get(&key).map_or(0, |known| known.0 + 1);
                    model.insert(key, (generation, extent));
                }
                Step::Swap { cell, stale } => {
                    let there = model.get(&(7, cell.to_vec())).map(|known| known.0);
                    let other = if there == Some(5) { None } else { Some(5) };
                    let expected = ExpectedChunk::As(if stale { other } else { there });
                    let fits = staged(cell, None, expected).fits(&mut memory, 7);
                    prop_assert_eq!(fits, Ok(!stale));
                }
                Step::Cut { oid, shape } => {
                    let grid = Grid { shape: shape.to_vec(), chunks: vec![2, 2], item: 1 };
                    cut(&mut memory, oid, &grid).unwrap();
                    model.retain(|(of, cell), _| {
                        let mut dims = cell.iter().zip(shape);
                        *of != oid || dims.all(|(at, length)| u64::from(*at) * 2 < length)
                    });
                }
                Step::Remove { oid, most } => {
                    let of = model.keys().filter(|(of, _)| *of == oid);
                    let going: Vec<_> = of.take(most).cloned().collect();
                    prop_assert_eq!(remove_all(&mut memory, oid, most), Ok(going.len()));
                    for key in going {
                        model.remove(&key);
                    }
                }
            }
            prop_assert_eq!(&chunks(&mut memory), &model);
            for oid in OIDS {
                let there = model.keys().any(|key| key.0 == oid);
                prop_assert_eq!(super::any(&mut memory, oid), Ok(there));
            }
            let mut extents: Vec<Extent> = model.values().filter_map(|known| known.1).collect();
            extents.extend(&memory.released);
            extents.sort_unstable();
            let mut adopted: Vec<Extent> = memory.adopted.iter().map(|one| one.extent).collect();
            adopted.sort_unstable();
            prop_assert_eq!(extents, adopted);
        }
    }

    #[test]
    fn a_key_is_split_as_it_was_made_and_keys_follow_one_another_in_c_order(
        oid in any::<u64>(), mut cells in prop::collection::vec([any::<u32>(), any::<u32>()], 1..9),
        noise in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        for cell in &cells {
            prop_assert_eq!(split_key(&key_of(oid, cell)), Ok((oid, cell.to_vec())));
        }
        let mut keys: Vec<_> = cells.iter().map(|cell| key_of(oid, cell)).collect();
        keys.sort_unstable();
        cells.sort_unstable();
        prop_assert_eq!(keys, cells.iter().map(|cell| key_of(oid, cell)).collect::<Vec<_>>());
        match split_key(&noise) {
            Ok((oid, cell)) => prop_assert_eq!(key_of(oid, &cell), noise),
            Err(error) => {
                prop_assert_eq!(error.kind(), Kind::Corrupt);
                prop_assert!(noise.len() < 12 || noise.len() % 4 != 0);
            }
        }
    }
}

#[test]
fn a_record_of_another_class_is_no_chunk() {
    let group = crate::group::group_record(1, "a", stamp(1), &[], &[]).encode();
    assert_eq!(parse(&group).unwrap_err().kind(), Kind::Corrupt);
}
