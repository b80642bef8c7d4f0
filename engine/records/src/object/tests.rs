//! Records: read as they were written, whatever they hold; and of damaged ones, that they are.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{
    Class, Flags, HEAD_BYTES, NDIM_MAX, ObjectInfo, RECORD_VERSION, Record, Stored, decode_dims,
    decode_shape, encode_dims, encode_shape, take_shape, value_bytes, version2,
};
use crate::extent::{Extent, LINE};
use crate::index_mode::IndexMode;
use crate::layout::{Chunking, Codec, Coder};
use crate::segmented::{self, FILE_BYTES_MAX, Segmented};
use engram_base::checksum;
use engram_base::dtype::DType;
use engram_base::error::Kind;
use engram_base::name::NAME_BYTES_MAX;
use engram_base::scope::Scope;

const CLASSES: [Class; 5] = [Class::Group, Class::Array, Class::Blob, Class::Strings, Class::Chunk];

/// What a record owns, since a record borrows.
#[derive(Clone, Debug)]
struct Parts {
    class: Class,
    words: (u32, u32, u64, i64, i64),
    name: String,
    shape: Vec<u64>,
    sections: [Vec<u8>; 5],
    mode: IndexMode,
    flags: (bool, bool),
    checked: bool,
    value: Lies,
}

#[derive(Clone, Debug)]
enum Lies {
    Inline(Vec<u8>),
    InExtent(Extent, u64, u64),
    InSegments(Segmented),
    InChunks(u64, Codec, Vec<u8>),
}

fn value() -> impl Strategy<Value = Lies> {
    let extent = (0..1u64 << 40, 1..1u64 << 20)
        .prop_map(|(offset, len)| Extent { offset: offset * LINE, len: len * LINE });
    let coder = prop_oneof![Just(Coder::None), Just(Coder::Lz4), (-7..=22).prop_map(Coder::Zstd)];
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80).prop_map(Lies::Inline),
        (extent, any::<Index>(), any::<u64>()).prop_map(|(extent, nbytes, word)| {
            Lies::InExtent(extent, nbytes.index(extent.len as usize + 1) as u64, word)
        }),
        (0..1u64 << 50, 0..=FILE_BYTES_MAX).prop_map(|(line, nbytes)| {
            let head = Extent { offset: line * LINE, len: segmented::HEAD_BYTES };
            Lies::InSegments(Segmented { head, nbytes })
        }),
        (any::<u64>(), any::<bool>(), coder).prop_map(|(nbytes, shuffle, coder)| {
            Lies::InChunks(nbytes, Codec { shuffle, coder }, Vec::new())
        }),
    ]
}

fn parts() -> impl Strategy<Value = Parts> {
    let words = (any::<u32>(), any::<u32>(), any::<u64>(), any::<i64>(), any::<i64>());
    let section = || prop::collection::vec(any::<u8>(), 0..200);
    let sections = [section(), section(), section(), section(), section()];
    let mode = select(vec![IndexMode::Sync, IndexMode::Async, IndexMode::None]);
    let shape = prop::collection::vec(prop_oneof![0..300u64, 0..1u64 << 63], 0..5);
    let flags = (any::<bool>(), any::<bool>());
    let rest = (mode, flags, any::<bool>(), value());
    (select(CLASSES.to_vec()), words, "[^\0]{0,60}", shape, sections, rest).prop_map(
        |(class, words, name, shape, sections, (mode, flags, checked, mut value))| {
            let mut class = class;
            match &mut value {
                Lies::InChunks(_, _, chunks) => {
                    class = Class::Array;
                    encode_shape(&vec![3; shape.len().max(1)], chunks);
                }
                Lies::InSegments(_) => class = Class::Blob,
                _ => {}
            }
            let shape = if class == Class::Array && shape.is_empty() { vec![7] } else { shape };
            Parts { class, words, name, shape, sections, mode, flags, checked, value }
        },
    )
}

impl Parts {
    fn record<'a>(&'a self, shape: &'a mut Vec<u8>) -> Record<'a> {
        encode_shape(&self.shape, shape);
        let (generation, owner, parent, created, modified) = self.words;
        let [dtype, dims, attrs, origin, properties] = &self.sections;
        Record {
            class: self.class,
            generation,
            owner,
            parent,
            created,
            modified,
            name: &self.name,
            dtype,
            ndim: self.shape.len() as u8,
            shape,
            dims,
            attrs,
            origin,
            properties,
            index: self.mode,
            flags: Flags { read_only: self.flags.0, mirror: self.flags.1 },
            checked: self.checked,
            stored: match &self.value {
                Lies::Inline(bytes) => Stored::Inline(bytes),
                Lies::InExtent(extent, nbytes, checksum) => {
                    Stored::Contiguous { extent: *extent, nbytes: *nbytes, checksum: *checksum }
                }
                Lies::InSegments(segmented) => Stored::Segmented(*segmented),
                Lies::InChunks(nbytes, codec, chunks) => {
                    Stored::Chunked(Chunking { nbytes: *nbytes, codec: *codec, chunks })
                }
            },
        }
    }
}

/// Looks at all that a record says; none of it may panic.
fn look_at(record: &Record<'_>) {
    let _ = (record.check(), record.decode_dtype(), record.decode_shape(), record.decode_dims());
    let _ = ObjectInfo::of(7, record, Scope::Shared);
    crate::attrs::entries(record.attrs).flatten().for_each(|entry| drop(entry.decode()));
    let _ = crate::chunked::grid::Grid::find(record);
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(parts in parts()) {
        let mut shape = Vec::new();
        let record = parts.record(&mut shape);
        let row = record.encode();
        prop_assert_eq!(Record::parse(&row), Ok(record));
        prop_assert_eq!(Record::index_of(&row), Ok(parts.mode));
        prop_assert_eq!(&record.decode_shape(), &parts.shape);
        look_at(&record);
        // It is appended, wherever the row before it ends.
        let mut two = b"before".to_vec();
        record.encode_to(&mut two);
        prop_assert_eq!(&two[6..], &row[..]);
    }

    #[test]
    fn times_of_any_distance_are_read_as_they_were_written(
        created in any::<i64>(), age in prop_oneof![-300..300i64, any::<i64>()],
    ) {
        let sound = group();
        let record = Record::parse(&sound).unwrap();
        for created in [created, 0, i64::MIN, i64::MAX] {
            for modified in [created.wrapping_add(age), created, i64::MIN, i64::MAX] {
                let row = Record { created, modified, ..record }.encode();
                let read = Record::parse(&row).unwrap();
                let is_short = modified.wrapping_sub(created).wrapping_add(64) & !127 == 0;
                prop_assert_eq!((read.created, read.modified), (created, modified));
                prop_assert_eq!(row.len() == sound.len(), is_short);
            }
        }
    }

    #[test]
    fn what_an_engine_of_format_5_wrote_is_read_as_it_was(
        parts in parts(), place in any::<Index>(), other in 1u8..,
        cut in any::<Index>(), noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut shape = Vec::new();
        let record = parts.record(&mut shape);
        let row = version2::tests::encode(&record);
        prop_assert_eq!(version2::parse(&row), Ok(record));
        let mut damaged = row.clone();
        damaged[place.index(row.len())] ^= other;
        for damaged in [&damaged, &row[..cut.index(row.len())], &noise] {
            match version2::parse(damaged) {
                Ok(record) => {
                    prop_assert!(damaged[4..8] == [0; 4], "other bytes, and nobody notices");
                    look_at(&record);
                }
                Err(error) => prop_assert!(matches!(error.kind(), Kind::Corrupt | Kind::Format)),
            }
        }
    }

    #[test]
    fn a_checked_record_with_other_bytes_is_refused_and_no_other_ever_panics(
        parts in parts(), place in any::<Index>(), other in 1u8..,
        cut in any::<Index>(), noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut shape = Vec::new();
        let row = parts.record(&mut shape).encode();
        let mut damaged = row.clone();
        let at = place.index(row.len());
        damaged[at] ^= other;
        let mut cut_short = row.clone();
        cut_short.truncate(cut.index(row.len()));
        for row in [&damaged, &cut_short, &noise] {
            match Record::parse(row) {
                Ok(record) => {
                    let unchecked = row.get(4..8) == Some(&[0; 4]);
                    prop_assert!(unchecked, "byte {at} is another, and nobody notices");
                    look_at(&record);
                    let again = record.encode();
                    prop_assert_eq!(Record::parse(&again), Ok(record));
                }
                Err(error) => prop_assert!(matches!(error.kind(), Kind::Corrupt | Kind::Format)),
            }
        }
    }

    #[test]
    fn dims_and_shapes_are_read_as_they_were_written_and_any_bytes_are_or_are_refused(
        dims in prop::option::of(prop::collection::vec("[^\0]{0,30}", 1..6)),
        noise in prop::collection::vec(any::<u8>(), 0..40), ndim in 0..6usize,
    ) {
        let count = dims.as_ref().map_or(3, Vec::len);
        let section = encode_dims(dims.as_deref(), count).unwrap();
        prop_assert_eq!(decode_dims(&section, count), Ok(dims.clone()));
        if dims.is_some() {
            let refused = encode_dims(dims.as_deref(), count + 1).unwrap_err();
            prop_assert_eq!(refused.kind(), Kind::Argument);
            prop_assert_eq!(decode_dims(&section, count + 1).unwrap_err().kind(), Kind::Corrupt);
        }
        if let Err(error) = decode_dims(&noise, ndim) {
            prop_assert_eq!(error.kind(), Kind::Corrupt);
        }
        let mut rest = &noise[..];
        if let Some((ndim, shape)) = take_shape(&mut rest) {
            prop_assert_eq!(decode_shape(shape).len(), usize::from(ndim));
            prop_assert_eq!(1 + shape.len() + rest.len(), noise.len());
            prop_assert!(usize::from(ndim) <= NDIM_MAX);
        }
    }
}

/// A sound record of a group, without a checksum, so that its bytes can be changed.
fn group() -> Vec<u8> {
    let parts = Parts {
        class: Class::Group,
        words: (0, 0, 1, 0, 0),
        name: "a".to_owned(),
        shape: Vec::new(),
        sections: [const { Vec::new() }; 5],
        mode: IndexMode::Sync,
        flags: (false, false),
        checked: false,
        value: Lies::Inline(Vec::new()),
    };
    let mut shape = Vec::new();
    parts.record(&mut shape).encode()
}

fn kind_of(row: &[u8]) -> Option<Kind> {
    Record::parse(row).err().map(|error| error.kind())
}

#[test]
fn a_record_that_no_encoder_has_written_is_refused() {
    let sound = group();
    assert_eq!(kind_of(&sound), None);
    for cut in [HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1] {
        assert_eq!(kind_of(&sound[..cut]), Some(Kind::Corrupt), "{cut} bytes");
    }
    for (at, byte, kind) in [
        (0, RECORD_VERSION + 1, Kind::Corrupt),
        (1, 2, Kind::Corrupt), // a group in chunks
        (1, 4, Kind::Format),
        (1, 3, Kind::Corrupt), // a group in segments
        (2, 5, Kind::Corrupt),
        (3, 0x03, Kind::Corrupt),
        (3, 0x04, Kind::Corrupt),
        (checksum::AT_IN_ROW, 1, Kind::Corrupt),
        (0, RECORD_VERSION - 1, Kind::Corrupt),
        (HEAD_BYTES + 1, NDIM_MAX as u8 + 1, Kind::Corrupt),
        (HEAD_BYTES + 2, 99, Kind::Corrupt), // a name beyond the end
        (HEAD_BYTES + 3, 0xff, Kind::Corrupt), // a name that is no text
    ] {
        let mut row = sound.clone();
        row[at] = byte;
        assert_eq!(kind_of(&row), Some(kind), "byte {at} is {byte}");
    }
    let mut long = sound[..HEAD_BYTES + 2].to_vec();
    engram_base::varint::push(&mut long, NAME_BYTES_MAX as u64 + 1);
    long.extend([b'a'; NAME_BYTES_MAX + 1]);
    long.extend([0; 4]);
    assert_eq!(kind_of(&long), Some(Kind::Corrupt), "a name that is too long");
}

#[test]
fn a_value_lies_within_its_extent_and_that_in_whole_lines() {
    let extent = |offset, len, nbytes: u64| {
        let mut row = group();
        row[1] = 1;
        row.extend([offset, len, nbytes, 0].iter().flat_map(|word: &u64| word.to_le_bytes()));
        kind_of(&row)
    };
    assert_eq!(extent(64, 128, 128), None);
    assert_eq!(extent(64, 128, 129), Some(Kind::Corrupt));
    assert_eq!(extent(63, 128, 1), Some(Kind::Corrupt));
    assert_eq!(extent(64, 127, 1), Some(Kind::Corrupt));
    assert_eq!(extent(u64::MAX - 63, 128, 1), Some(Kind::Corrupt), "it ends beyond all numbers");
    assert_eq!(extent(i64::MAX as u64 - 63, 64, 1), Some(Kind::Corrupt));
    let mut short = group();
    short[1] = 1;
    assert_eq!(kind_of(&short), Some(Kind::Corrupt));
}

/// Asserts what `check` says of a record of this class, of items of 8 bytes.
fn checks(class: Class, shape: &[u64], stored: Stored<'_>) -> Result<(), Kind> {
    let (mut section, mut dtype) = (Vec::new(), Vec::new());
    encode_shape(shape, &mut section);
    if matches!(class, Class::Array | Class::Strings) {
        DType::scalar(b'f', b'<', 8).encode(&mut dtype);
    }
    let row = group();
    let (ndim, name) = (shape.len() as u8, if class == Class::Chunk { "" } else { "a" });
    let record = Record {
        class,
        name,
        dtype: &dtype,
        ndim,
        shape: &section,
        stored,
        ..Record::parse(&row).unwrap()
    };
    record.check().map_err(|error| error.kind())
}

#[test]
fn dtype_shape_and_value_agree() {
    let (corrupt, bytes) = (Err(Kind::Corrupt), [0; 48]);
    let inline = |len: usize| Stored::Inline(&bytes[..len]);
    assert_eq!(checks(Class::Array, &[2, 3], inline(48)), Ok(()));
    assert_eq!(checks(Class::Array, &[2, 3], inline(47)), corrupt);
    assert_eq!(checks(Class::Array, &[0, 3], inline(0)), Ok(()));
    let chunked =
        |nbytes, chunks| Stored::Chunked(Chunking { nbytes, codec: Codec::default(), chunks });
    assert_eq!(checks(Class::Array, &[2, 3], chunked(48, &[1, 1])), Ok(()));
    assert_eq!(checks(Class::Array, &[2, 3], chunked(48, &[1])), corrupt);
    assert_eq!(checks(Class::Blob, &[], inline(5)), Ok(()));
    assert_eq!(checks(Class::Strings, &[9], inline(5)), Ok(()));
    assert_eq!(checks(Class::Group, &[], inline(0)), Ok(()));
    assert_eq!(checks(Class::Group, &[], inline(1)), corrupt);
    assert_eq!(checks(Class::Chunk, &[], inline(5)), Ok(()));
    assert_eq!(checks(Class::Chunk, &[1], inline(5)), corrupt);
}

#[test]
fn the_bytes_of_a_value_are_counted_or_too_many() {
    let item = DType::scalar(b'f', b'<', 8);
    assert_eq!(value_bytes(&item, &[]), Ok(8));
    assert_eq!(value_bytes(&item, &[3, 0, 5]), Ok(0));
    assert_eq!(value_bytes(&item, &[1 << 59, 1]), Ok(1 << 62));
    for shape in [&[1 << 60][..], &[1 << 40, 1 << 40], &[0, 1 << 63], &[u64::MAX, 0]] {
        assert_eq!(value_bytes(&item, shape).unwrap_err().kind(), Kind::Argument, "{shape:?}");
    }
}

#[test]
fn a_record_of_a_group_or_a_chunk_is_no_object() {
    for class in [Class::Group, Class::Chunk] {
        let row = group();
        let record = Record { class, ..Record::parse(&row).unwrap() };
        let refused = ObjectInfo::of(7, &record, Scope::Shared).unwrap_err();
        assert_eq!(refused.kind(), Kind::Corrupt);
    }
}
