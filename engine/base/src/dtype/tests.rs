//! Dtypes: a dtype comes out as it went in, and no bytes can do harm.

use proptest::prelude::*;

use super::*;

fn encoded(dtype: &DType) -> Vec<u8> {
    let mut bytes = Vec::new();
    dtype.encode(&mut bytes);
    bytes
}

fn field(name: &str, offset: u32, dtype: DType) -> Field {
    Field { name: name.to_owned(), title: None, offset, dtype }
}

const F8: DType = DType::scalar(b'f', b'<', 8);

fn check_round_trip(dtype: &DType) {
    dtype.validate().unwrap();
    let mut bytes = encoded(dtype);
    let len = bytes.len();
    assert_eq!(DType::decode(&bytes).unwrap(), (dtype.clone(), len));
    // The bytes after it in a record are left alone.
    bytes.extend_from_slice(b"more");
    assert_eq!(DType::decode(&bytes).unwrap(), (dtype.clone(), len));
    // A dtype cut short is never another dtype.
    for cut in 0..len {
        assert_eq!(DType::decode(&bytes[..cut]).unwrap_err().kind(), Kind::Corrupt, "at {cut}");
    }
}

/// Says that this is refused where it comes in, for this reason, and on media too.
fn check_refused(dtype: &DType, reason: &str) {
    let error = dtype.validate().unwrap_err();
    assert_eq!(error.kind(), Kind::Argument);
    assert!(error.message().contains(reason), "{error}");
    let error = DType::decode(&encoded(dtype)).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.message().contains(reason), "{error}");
}

#[test]
fn bytes_on_media_are_these() {
    assert_eq!(encoded(&F8), [1, b'f', b'<', 8, 0, 0, 0]);
    let time =
        DType::Scalar { kind: b'M', order: b'>', size: 8, unit: Some((Unit::Nanosecond, 5)) };
    assert_eq!(encoded(&time), [1, b'M', b'>', 8, 0, 0, 0, 10, 5, 0, 0, 0]);
    let generic = DType::scalar(b'm', b'<', 8);
    assert_eq!(encoded(&generic), [1, b'm', b'<', 8, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(encoded(&DType::Text), [4]);
    let sub = DType::Sub { base: Box::new(DType::scalar(b'b', b'|', 1)), shape: vec![3] };
    assert_eq!(encoded(&sub), [3, 1, 3, 0, 0, 0, 0, 0, 0, 0, 1, b'b', b'|', 1, 0, 0, 0]);
    let title = Some("t".to_owned());
    let one =
        Field { name: "ab".to_owned(), title, offset: 4, dtype: DType::scalar(b'S', b'|', 2) };
    let record = DType::Struct { size: 8, align: true, fields: vec![one] };
    let expected = [
        2, 1, 8, 0, 0, 0, 1, 0, 0, 0, // struct, aligned, itemsize, fields
        1, 4, 0, 0, 0, 2, 0, 0, 0, b'a', b'b', 1, 0, 0, 0, b't', // title, offset, name, title
        1, b'S', b'|', 2, 0, 0, 0,
    ];
    assert_eq!(encoded(&record), expected);
    for dtype in [F8, time, generic, DType::Text, sub, record] {
        check_round_trip(&dtype);
    }
}

#[test]
fn every_scalar_that_numpy_has_is_kept() {
    let ordered: &[(u8, &[u32])] = &[
        (b'i', &[2, 4, 8]),
        (b'u', &[2, 4, 8]),
        (b'f', &[2, 4, 8, 16]),
        (b'c', &[8, 16, 32]),
        (b'U', &[0, 4, 400]),
    ];
    for (kind, sizes) in ordered {
        for size in *sizes {
            check_round_trip(&DType::scalar(*kind, b'<', *size));
            check_round_trip(&DType::scalar(*kind, b'>', *size));
        }
    }
    for (kind, size) in
        [(b'b', 1), (b'i', 1), (b'u', 1), (b'S', 0), (b'S', 7), (b'V', 0), (b'V', 9)]
    {
        check_round_trip(&DType::scalar(kind, b'|', size));
    }
    for (unit, name) in Unit::ALL {
        assert_eq!((Unit::from_name(name), unit.name()), (Some(unit), name));
        for kind in [b'M', b'm'] {
            check_round_trip(&DType::Scalar { kind, order: b'<', size: 8, unit: Some((unit, 25)) });
        }
    }
    assert_eq!(Unit::from_name("generic"), None);
}

#[test]
fn units_are_numbered_from_one_without_gaps() {
    for (place, (unit, _)) in Unit::ALL.into_iter().enumerate() {
        assert_eq!(unit as usize, place + 1);
    }
}

#[test]
fn scalars_that_numpy_does_not_have_are_refused() {
    for (kind, size) in [(b'b', 2), (b'i', 3), (b'u', 16), (b'f', 1), (b'c', 4), (b'U', 6)] {
        check_refused(&DType::scalar(kind, b'<', size), "cannot have");
    }
    check_refused(&DType::scalar(b'O', b'|', 8), "unknown kind 'O'");
    check_refused(&DType::scalar(b'S', b'|', u32::MAX), "cannot have");
    check_refused(&DType::scalar(b'f', b'|', 8), "byte order '|'");
    check_refused(&DType::scalar(b'f', b'=', 8), "byte order '='");
    check_refused(&DType::scalar(b'i', b'<', 1), "byte order '<'");
    check_refused(&DType::scalar(b'S', b'<', 8), "byte order '<'");
    for count in [0, u32::MAX] {
        let unit = Some((Unit::Day, count));
        check_refused(&DType::Scalar { kind: b'M', order: b'<', size: 8, unit }, "units of time");
    }
    let unit = Some((Unit::Day, 1));
    let timed = DType::Scalar { kind: b'f', order: b'<', size: 8, unit };
    assert!(timed.validate().unwrap_err().message().contains("unit of time"));
    let mut bytes = encoded(&DType::scalar(b'M', b'<', 8));
    bytes[7] = 14;
    assert!(DType::decode(&bytes).unwrap_err().message().contains("unknown unit 14"));
}

#[test]
fn structures_may_overlap_pad_and_be_empty() {
    let int = DType::scalar(b'i', b'<', 4);
    let fields = vec![field("all", 0, F8), field("high", 4, int.clone()), field("low", 0, int)];
    let overlapping = DType::Struct { size: 32, align: false, fields };
    check_round_trip(&overlapping);
    assert_eq!(overlapping.itemsize(), 32);
    check_round_trip(&DType::Struct { size: 0, align: false, fields: vec![] });
    check_round_trip(&DType::Struct { size: 8, align: true, fields: vec![field("", 0, F8)] });
    let name = "\u{1F30A} wave height / m";
    check_round_trip(&DType::Struct { size: 8, align: true, fields: vec![field(name, 0, F8)] });
}

#[test]
fn fields_lie_within_their_structure_and_have_names_of_their_own() {
    let record = |size, fields| DType::Struct { size, align: false, fields };
    check_refused(&record(7, vec![field("x", 0, F8)]), "\"x\" that ends at byte 8");
    check_refused(&record(8, vec![field("x", 1, F8)]), "ends at byte 9");
    check_refused(&record(8, vec![field("x", u32::MAX, F8)]), "ends at byte");
    check_refused(&record(8, vec![field("x", 0, F8), field("x", 0, F8)]), "two fields named \"x\"");
    check_refused(&record(u32::MAX, vec![]), "bytes, more than");
    check_refused(&record(8, vec![field("x", 0, DType::Text)]), "variable-length strings inside");
    check_refused(&record(8, vec![field(&"n".repeat(MAX_NAME + 1), 0, F8)]), "name has more than");
    let many = (0..=MAX_FIELDS).map(|n| field(&n.to_string(), 0, F8)).collect();
    check_refused(&record(8, many), "65536 fields");
}

#[test]
fn sub_arrays_have_dimensions_and_fit() {
    let sub = |shape: Vec<u64>| DType::Sub { base: Box::new(F8), shape };
    check_round_trip(&sub(vec![3, 4]));
    assert_eq!(sub(vec![3, 4]).itemsize(), 96);
    check_round_trip(&sub(vec![0]));
    check_round_trip(&sub(vec![1; MAX_DIMS]));
    check_refused(&sub(vec![]), "0 dimensions");
    check_refused(&sub(vec![1; MAX_DIMS + 1]), "65 dimensions");
    check_refused(&sub(vec![1 << 30]), "more than 2147483647 bytes");
    check_refused(&sub(vec![u64::MAX, u64::MAX, 2]), "more than");
    check_refused(&sub(vec![0, u64::MAX]), "more than");
    check_refused(&DType::Sub { base: Box::new(DType::Text), shape: vec![2] }, "variable-length");
}

#[test]
fn nesting_is_bounded_and_a_tower_of_tags_overflows_no_stack() {
    let wrap = |dtype| DType::Struct { size: 8, align: false, fields: vec![field("x", 0, dtype)] };
    let deepest = (1..MAX_DEPTH).fold(F8, |dtype, _| wrap(dtype));
    check_round_trip(&deepest);
    check_refused(&wrap(deepest), "nests deeper than 16");
    // Sub-arrays of one element, a million deep.
    let tower: Vec<u8> = [3, 1, 1, 0, 0, 0, 0, 0, 0, 0].repeat(1_000_000);
    assert_eq!(DType::decode(&tower).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn counts_that_the_bytes_cannot_hold_allocate_nothing() {
    let huge =
        [2, 0, 8, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, b'x'];
    assert!(DType::decode(&huge).unwrap_err().message().contains("ends too early"));
    assert_eq!(DType::decode(&[]).unwrap_err().kind(), Kind::Corrupt);
    assert!(DType::decode(&[9]).unwrap_err().message().contains("unknown tag 9"));
    assert!(DType::decode(&[2, 8]).unwrap_err().message().contains("unknown flags"));
    let bad_name = [2, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0xFF];
    assert!(DType::decode(&bad_name).unwrap_err().message().contains("UTF-8"));
}

fn scalar() -> impl Strategy<Value = DType> {
    let order = prop_oneof![Just(b'<'), Just(b'>')];
    let number = (prop_oneof![Just((b'f', 2)), Just((b'u', 8)), Just((b'c', 32))], order.clone());
    let unit = proptest::option::of((proptest::sample::select(&Unit::ALL[..]), 1..1000_u32));
    prop_oneof![
        number.prop_map(|((kind, size), order)| DType::scalar(kind, order, size)),
        (0..300_u32).prop_map(|size| DType::scalar(b'S', b'|', size)),
        (0..300_u32, order.clone()).prop_map(|(n, order)| DType::scalar(b'U', order, 4 * n)),
        (unit, order).prop_map(|(unit, order)| {
            let unit = unit.map(|((unit, _), count)| (unit, count));
            DType::Scalar { kind: b'M', order, size: 8, unit }
        }),
    ]
}

fn structure(dtypes: Vec<(DType, Option<String>, u32)>, align: bool) -> DType {
    let mut size = 0;
    let mut fields = Vec::new();
    for (n, (dtype, title, gap)) in dtypes.into_iter().enumerate() {
        let offset = size + gap;
        size = offset + dtype.itemsize() as u32;
        fields.push(Field { name: format!("f{n}"), title, offset, dtype });
    }
    fields.reverse();
    DType::Struct { size, align, fields }
}

fn any_dtype() -> impl Strategy<Value = DType> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        let member = (inner.clone(), proptest::option::of(".{0,9}"), 0..9_u32);
        let members = proptest::collection::vec(member, 0..4);
        prop_oneof![
            (members, any::<bool>()).prop_map(|(members, align)| structure(members, align)),
            (inner, proptest::collection::vec(0..4_u64, 1..4))
                .prop_map(|(base, shape)| DType::Sub { base: Box::new(base), shape }),
        ]
    })
}

proptest! {
    #[test]
    fn any_dtype_comes_back_as_it_was(dtype in any_dtype()) {
        prop_assert!(dtype.validate().is_ok());
        let bytes = encoded(&dtype);
        prop_assert_eq!(DType::decode(&bytes).unwrap(), (dtype, bytes.len()));
    }

    #[test]
    fn any_bytes_are_a_valid_dtype_or_corrupt(bytes in proptest::collection::vec(0..16_u8, 0..90)) {
        check_garbage(&bytes)?;
    }

    #[test]
    fn a_damaged_dtype_is_a_valid_dtype_or_corrupt(
        dtype in any_dtype(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encoded(&dtype);
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        check_garbage(&bytes)?;
    }
}

/// Whatever decodes is valid, and has exactly the bytes that it was decoded from.
fn check_garbage(bytes: &[u8]) -> std::result::Result<(), TestCaseError> {
    match DType::decode(bytes) {
        Ok((dtype, len)) => {
            prop_assert!(dtype.validate().is_ok());
            prop_assert_eq!(encoded(&dtype), &bytes[..len]);
        }
        Err(error) => prop_assert_eq!(error.kind(), Kind::Corrupt),
    }
    Ok(())
}
