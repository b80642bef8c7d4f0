//! Bytes of one file: whatever is done to it, it holds what a vector would.

use proptest::prelude::*;

use super::common::{Fixture, alone, floats, sound};
use super::{all, created, make_with};
use engram::{Kind, Payload, Seek};

const KIB: u64 = 1024;

/// What is done to a file.
#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize, u8),
    Append(usize, u8),
    Resize(u64),
    Punch(u64, u64),
    Allocate(u64, u64, bool),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let place = || prop_oneof![0..2 * KIB, 0..300 * KIB, Just(4096), Just(65536)];
    let length = || prop_oneof![1..2000usize, 1..70_000usize];
    prop_oneof![
        4 => (place(), length(), any::<u8>())
            .prop_map(|(at, len, byte)| Step::Write(at, len, byte)),
        3 => (length(), any::<u8>()).prop_map(|(len, byte)| Step::Append(len, byte)),
        2 => place().prop_map(Step::Resize),
        1 => (place(), 1..100 * KIB).prop_map(|(at, len)| Step::Punch(at, len)),
        1 => (place(), 1..100 * KIB, any::<bool>())
            .prop_map(|(at, len, keep)| Step::Allocate(at, len, keep)),
        1 => Just(Step::Reopen),
    ]
}

/// Bytes that differ from place to place.
fn pattern(at: u64, len: usize, byte: u8) -> Vec<u8> {
    (0..len).map(|i| ((at as usize + i) as u8).wrapping_mul(31) ^ byte).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn a_file_holds_what_a_vector_would(steps in prop::collection::vec(step(), 1..25)) {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        let mut file = created(&realm, "a/file");
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            match &step {
                Step::Write(at, len, byte) => {
                    let data = pattern(*at, *len, *byte);
                    file.write_at(*at, &data).unwrap();
                    let end = *at as usize + len;
                    model.resize(model.len().max(end), 0);
                    model[*at as usize..end].copy_from_slice(&data);
                }
                Step::Append(len, byte) => {
                    let data = pattern(model.len() as u64, *len, *byte);
                    prop_assert_eq!(file.append(&data).unwrap(), model.len() as u64);
                    model.extend(data);
                }
                Step::Resize(size) => {
                    file.set_size(*size).unwrap();
                    model.resize(*size as usize, 0);
                }
                Step::Punch(at, len) => {
                    file.punch(*at, *len).unwrap();
                    let end = ((at + len) as usize).min(model.len());
                    let at = (*at as usize).min(end);
                    model[at..end].fill(0);
                }
                Step::Allocate(at, len, keep) => {
                    file.allocate(*at, *len, *keep).unwrap();
                    if !keep {
                        model.resize(model.len().max((at + len) as usize), 0);
                    }
                }
                Step::Reopen => {
                    let oid = file.oid();
                    drop(file);
                    let said = realm.object(oid).unwrap();
                    prop_assert_eq!(said.nbytes, model.len() as u64);
                    file = realm.open_file(oid, true).unwrap();
                }
            }
            prop_assert!(all(&file) == model, "after {step:?}: {} bytes", model.len());
            check_holes(&file, &model);
        }
        check_view(&realm, &file, &model);
        drop(file);
        sound(&fixture.path);
        let used = realm.space().unwrap().used;
        let pages = model.len().next_multiple_of(4096) as u64 + 4096;
        prop_assert!(used <= pages, "{used} bytes are used for {}", model.len());
    }
}

/// Data and holes follow one another, and a hole is zeros.
fn check_holes(file: &engram::File, model: &[u8]) {
    let (mut at, size) = (0, model.len() as u64);
    while at < size {
        let data = file.seek(Seek::Data, at).unwrap();
        let zeros = &model[at as usize..data.unwrap_or(size) as usize];
        assert!(zeros.iter().all(|byte| *byte == 0), "a hole at {at} has bytes");
        let Some(data) = data else { break };
        let hole = file.seek(Seek::Hole, data).unwrap().expect("the end is a hole");
        assert!(hole > data && hole <= size, "{hole} after {data} of {size}");
        at = hole;
    }
    assert_eq!(file.seek(Seek::Data, size), Ok(None));
    assert_eq!(file.seek(Seek::Hole, size), Ok(None));
}

/// A view shows the file as one piece.
fn check_view(realm: &engram::Realm, file: &engram::File, model: &[u8]) {
    match realm.payload(file.oid()).unwrap().0 {
        Payload::Inline(bytes) => assert_eq!(bytes, model),
        Payload::Extent(view) => {
            let mut bytes = vec![0; view.len()];
            view.copy_out(0, &mut bytes);
            assert!(bytes == model);
        }
    }
    if model.is_empty() {
        return;
    }
    if let Payload::Extent(view) = realm.view(file.oid(), true).unwrap() {
        let last = model.len() as u64 - 1;
        view.write_at(last, b"!");
        let mut byte = [0];
        file.read_at(last, &mut byte).unwrap();
        assert_eq!(&byte, b"!", "what is written to the view is the file's");
        view.write_at(last, &model[last as usize..]);
    }
}

#[test]
fn an_array_is_a_file_that_keeps_its_size() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    for (name, count) in [("small", 10_u32), ("large", 10_000)] {
        let bytes: Vec<u8> = (0..count).flat_map(|x| f64::from(x).to_le_bytes()).collect();
        let count = u64::from(count);
        let placement = engram::Placement::default();
        let oid = realm.put(realm.root(), name, &floats(&[count]), &bytes, placement).unwrap();
        let file = realm.open_file(oid, true).unwrap();
        assert!(file.is_fixed() && all(&file) == bytes);
        file.write_at(8, &7.5_f64.to_le_bytes()).unwrap();
        for refused in [
            file.write_at(count * 8 - 4, &[0; 8]),
            file.append(b"more").map(drop),
            file.set_size(8),
            file.allocate(0, count * 8 + 1, false),
            file.punch(0, 8),
        ] {
            assert_eq!(refused.unwrap_err().kind(), Kind::Argument, "{name}");
        }
        assert_eq!(all(&file)[8..16], 7.5_f64.to_le_bytes());
        assert_eq!(all(&file).len() as u64, count * 8);
        file.sync().unwrap();
    }
    sound(&fixture.path);
}

#[test]
fn a_blob_is_a_file_as_it_lies_and_gets_segments_when_it_grows() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    for (name, len) in [("inline", 100), ("lines", 3000), ("pages", 200_000)] {
        let oid = make_with(&realm, name, &vec![b'x'; len]);
        let before = realm.object(oid).unwrap();
        assert!(before.head.is_none());
        let file = realm.open_file(oid, true).unwrap();
        assert_eq!(file.segments().unwrap().len(), usize::from(len > 1024));
        assert_eq!(file.append(&[b'y'; 5000]).unwrap(), len as u64);
        assert!(!file.segments().unwrap().is_empty());
        let info = realm.object(oid).unwrap();
        assert!(info.head.is_some_and(|head| head.size == len as u64 + 5000));
        assert_eq!(info.nbytes, len as u64 + 5000);
        let bytes = all(&file);
        assert!(bytes[..len].iter().all(|byte| *byte == b'x'));
        assert!(bytes[len..].iter().all(|byte| *byte == b'y') && bytes.len() == len + 5000);
    }
    sound(&fixture.path);
}

#[test]
fn times_are_the_heads_or_the_records() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let file = created(&realm, "file");
    assert_eq!((file.facts().unwrap().written, file.facts().unwrap().accessed), (5, 6));
    assert_eq!(file.set_times(Some(9), None), Ok(false), "the record has to say so");
    file.write_at(0, b"small").unwrap();
    let small = file.facts().unwrap();
    assert!(small.written > 1 << 60 && small.accessed == 6, "{small:?}");
    file.write_at(0, &[1; 5000]).unwrap();
    let large = file.facts().unwrap();
    assert!(large.written >= small.written && large.accessed == 6, "{large:?}");
    assert_eq!(file.set_times(Some(9), Some(10)), Ok(true));
    let set = file.facts().unwrap();
    assert_eq!((set.written, set.accessed, set.changed), (9, 10, large.changed));
}

#[test]
fn what_a_file_cannot_be_is_refused_by_name() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let file = created(&realm, "file");
    assert_eq!(file.write_at(u64::MAX - 3, b"five!").unwrap_err().kind(), Kind::Argument);
    assert_eq!(file.set_size(1 << 63).unwrap_err().kind(), Kind::Argument);
    let reader = realm.open_file(file.oid(), false).unwrap();
    assert_eq!(reader.write_at(0, b"x").unwrap_err().kind(), Kind::ReadOnly);
    let batch = realm.batch().unwrap();
    assert_eq!(file.write_at(0, b"x").unwrap_err().kind(), Kind::Busy);
    assert_eq!(realm.open_file(file.oid(), true).err().map(|e| e.kind()), Some(Kind::Busy));
    batch.commit().unwrap();
    assert_eq!(realm.open_file(12345, false).err().map(|e| e.kind()), Some(Kind::NotFound));
    fixture.pool.close();
    assert_eq!(file.write_at(0, b"x").unwrap_err().kind(), Kind::Argument, "the pool is closed");
}

#[test]
fn a_full_pool_refuses_and_tears_nothing() {
    let fixture = Fixture::new(4 << 20);
    let realm = fixture.realm();
    let file = created(&realm, "file");
    let mut size = 0;
    let refused = loop {
        match file.append(&vec![7; 100_000]) {
            Ok(at) => {
                assert_eq!(at, size);
                size += 100_000;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), Kind::PoolFull);
    assert!(size > 2 << 20, "{size} bytes of 4 MiB fit");
    let bytes = all(&file);
    assert!(bytes.len() as u64 == size && bytes.iter().all(|byte| *byte == 7));
    file.set_size(0).unwrap();
    assert_eq!(file.append(&vec![8; 3 << 20]), Ok(0), "what was cut is free again");
    drop(file);
    sound(&fixture.path);
}

#[test]
fn what_was_given_to_a_file_for_what_has_no_room_goes_back() {
    let fixture = Fixture::new(8 << 20);
    let realm = fixture.realm();
    let (file, other) = (created(&realm, "file"), created(&realm, "other"));
    file.write_at(0, &[1; 5000]).unwrap();
    let space = |file: &engram::File| file.facts().unwrap().space;
    let before = space(&file);
    for keep in [true, false] {
        let refused = file.allocate(0, 1 << 33, keep).unwrap_err();
        assert_eq!(refused.kind(), Kind::PoolFull);
        assert_eq!((space(&file), file.size()), (before, Ok(5000)), "keep: {keep}");
    }
    assert_eq!(file.append(&vec![2; 64 << 20]).unwrap_err().kind(), Kind::PoolFull);
    assert_eq!(file.write_at(6000, &vec![2; 64 << 20]).unwrap_err().kind(), Kind::PoolFull);
    assert!(space(&file) <= before + 4096, "{} bytes of it are kept", space(&file));
    assert!(all(&file) == [1; 5000]);
    other.append(&vec![3; 6 << 20]).unwrap();
    drop((file, other));
    sound(&fixture.path);
}

#[test]
fn a_view_of_a_file_that_is_emptied_and_filled_again_meanwhile_shows_nothing_else() {
    alone("a_view_of_a_file_that_is_emptied_and_filled_again_meanwhile_shows_nothing_else", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let file = created(&realm, "file");
        file.write_at(0, &[b'x'; 5000]).unwrap();
        file.set_size(100).unwrap();
        let (other, once) = (file.clone(), std::sync::Once::new());
        engram::faults::on_step(move |step| {
            if step == "view.mapped" {
                once.call_once(|| {
                    other.set_size(0).unwrap();
                    other.append(&[b'y'; 3000]).unwrap();
                });
            }
        });
        let Payload::Extent(view) = realm.payload(file.oid()).unwrap().0 else { panic!("3000") };
        let mut bytes = vec![0; view.len()];
        view.copy_out(0, &mut bytes);
        assert!(bytes == [b'y'; 3000], "{} bytes, {:?} first", bytes.len(), bytes.first());
    });
}

#[test]
fn a_file_across_many_spans_is_viewed_as_one_piece() {
    let fixture = Fixture::new(256 << 20);
    let realm = fixture.realm();
    let file = created(&realm, "file");
    let part = |number: u64| pattern(number, 1 << 20, number as u8);
    for number in 0..40 {
        file.append(&part(number)).unwrap();
    }
    assert!(file.segments().unwrap().len() > 3);
    let Payload::Extent(view) = realm.payload(file.oid()).unwrap().0 else { panic!("40 MiB") };
    let mut bytes = vec![0; 1 << 20];
    for number in 0..40 {
        view.copy_out(number << 20, &mut bytes);
        assert!(bytes == part(number), "part {number}");
    }
    // What is cut while it is viewed is nobody else's.
    file.set_size(1 << 20).unwrap();
    file.append(&vec![0xff; 30 << 20]).unwrap();
    super::common::put(&realm, "array", &vec![0xff; 30 << 20]);
    for number in 1..40 {
        view.copy_out(number << 20, &mut bytes);
        assert!(bytes == part(number), "part {number}, which is cut");
    }
    drop((view, file));
    sound(&fixture.path);
}

/// Ranks that each fill a part of one file by pieces leave few segments, and zeros where nobody
/// wrote.
#[test]
fn a_hole_that_is_filled_by_large_pieces_gets_few_segments() {
    const PART: u64 = 16 << 20;
    const PIECE: u64 = 128 << 10;
    let fixture = Fixture::new(128 << 20);
    let realm = fixture.realm();
    let file = created(&realm, "shared");
    file.set_size(3 * PART).unwrap();
    let piece = |rank: u64, at: u64| vec![(1 + rank + at / PIECE % 200) as u8; PIECE as usize];
    for at in (0..PART).step_by(PIECE as usize) {
        for rank in [2, 0] {
            file.write_at(rank * PART + at, &piece(rank, at)).unwrap();
        }
        if at == PART / 4 {
            // What a segment has beyond what was written is zeros still.
            let mut beyond = vec![9; PIECE as usize];
            file.read_at(at + PIECE, &mut beyond).unwrap();
            assert!(beyond.iter().all(|byte| *byte == 0));
        }
    }
    let segments = file.segments().unwrap();
    assert!(segments.len() < 40, "{} segments", segments.len());
    assert!(segments.iter().all(|segment| segment.end() <= PART || segment.at >= 2 * PART));
    let bytes = all(&file);
    for rank in [0, 2] {
        for at in (0..PART).step_by(PIECE as usize) {
            let from = (rank * PART + at) as usize;
            assert!(bytes[from..][..PIECE as usize] == piece(rank, at), "rank {rank} at {at}");
        }
    }
    assert!(bytes[PART as usize..2 * PART as usize].iter().all(|byte| *byte == 0));
    drop(file);
    sound(&fixture.path);
}
