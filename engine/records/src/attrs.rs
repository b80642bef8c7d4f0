//! Attributes: values of any dtype an array may have, kept exactly, inside their member's record.
//!
//! A record's attribute section is a run of entries: key id (varint), shape (as in a record), then
//! dtype and data, each with its length (varint) before it. Keys are interned in `keys` (key ↔ id),
//! append-only, so an id once read can be cached for ever.

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::object;
use crate::object::ATTRS_BYTES_MAX;
use engram_base::dtype::DType;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::varint;

/// The id that an attribute key is interned as.
pub type KeyId = u32;

/// An attribute's value: C order, in its own byte order.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The items' type.
    pub dtype: DType,
    /// The shape; empty for a scalar.
    pub shape: Vec<u64>,
    /// The bytes.
    pub data: Vec<u8>,
}

impl Value {
    /// A scalar string.
    pub fn text(text: &str) -> Self {
        Value { dtype: DType::Text, shape: Vec::new(), data: text.as_bytes().to_vec() }
    }

    /// Checks that dtype, shape and data agree.
    pub fn check(&self) -> Result<()> {
        if self.shape.len() > object::NDIM_MAX {
            fail!(Argument, "an attribute has {} dimensions; at most 64 fit", self.shape.len());
        }
        if !self.dtype.is_text() {
            let expected = object::value_bytes(&self.dtype, &self.shape)?;
            if expected != self.data.len() as u64 {
                fail!(
                    Argument,
                    "an attribute of shape {:?} asks for {expected} bytes, {} were given",
                    self.shape,
                    self.data.len()
                );
            }
        }
        Ok(())
    }
}

/// One entry of the section, borrowed.
pub struct AttrEntry<'a> {
    /// The interned key.
    pub key: KeyId,
    /// The whole entry.
    pub bytes: &'a [u8],
    shape: &'a [u8],
    dtype: &'a [u8],
    data: &'a [u8],
}

/// Walks the section, entry by entry.
pub fn entries(section: &[u8]) -> impl Iterator<Item = Result<AttrEntry<'_>>> {
    let mut rest = section;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let entry = take_entry(&mut rest);
        if entry.is_none() {
            rest = &[];
        }
        Some(entry.ok_or_else(|| Error::new(Kind::Corrupt, "a record's attributes are cut short")))
    })
}

#[inline]
fn take_entry<'a>(rest: &mut &'a [u8]) -> Option<AttrEntry<'a>> {
    let whole = *rest;
    let key = KeyId::try_from(varint::take(rest)?).ok()?;
    let (_, shape) = object::take_shape(rest)?;
    let dtype = varint::take_bytes(rest)?;
    let data = varint::take_bytes(rest)?;
    Some(AttrEntry { key, bytes: &whole[..whole.len() - rest.len()], shape, dtype, data })
}

impl<'a> AttrEntry<'a> {
    /// The encoded dtype.
    pub fn dtype(&self) -> &'a [u8] {
        self.dtype
    }

    /// The bytes.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The encoded shape.
    pub fn shape(&self) -> &'a [u8] {
        self.shape
    }

    /// Whether it has no dimensions.
    pub fn is_scalar(&self) -> bool {
        self.shape.is_empty()
    }

    /// Whether it holds one item: no dimensions, or all of length 1.
    pub fn is_single(&self) -> bool {
        self.shape.iter().all(|length| *length == 1)
    }

    /// The value.
    pub fn decode(&self) -> Result<Value> {
        let (dtype, _) = DType::decode(self.dtype)?;
        let shape = object::decode_shape(self.shape);
        let value = Value { dtype, shape, data: self.data.to_vec() };
        match value.check() {
            Ok(()) => Ok(value),
            Err(error) => fail!(Corrupt, "{}", error.message()),
        }
    }
}

/// Appends an entry to a section under construction.
pub(crate) fn push(section: &mut Vec<u8>, key: KeyId, value: &Value) -> Result<()> {
    value.check()?;
    if push_short(section, key, value) { Ok(()) } else { push_any(section, key, value) }
}

/// Appends the entry of any value.
fn push_any(section: &mut Vec<u8>, key: KeyId, value: &Value) -> Result<()> {
    let (start, data) = (section.len(), value.data.as_slice());
    varint::push(section, u64::from(key));
    section.push(value.shape.len() as u8);
    object::encode_shape(&value.shape, section);
    let dtype_len = push_dtype(section, &value.dtype);
    let too_long = start + data.len() + dtype_len > ATTRS_BYTES_MAX;
    if dtype_len > usize::from(u16::MAX) || too_long {
        section.truncate(start);
        if !too_long {
            fail!(
                Argument,
                "the dtype of an attribute takes {dtype_len} bytes, and may take 65,535: keep \
                 fewer fields, keys and items in it, and the others in attributes of their own"
            );
        }
        fail!(
            Argument,
            "an attribute of {} bytes does not fit: attributes of one member take at most \
             64 MiB in all; store it as an array",
            data.len()
        );
    }
    varint::push(section, data.len() as u64);
    section.extend_from_slice(data);
    Ok(())
}

/// Appends the same entry of a scalar of few bytes, as nearly all are, in two pieces; whether it is
/// one.
#[inline]
fn push_short(section: &mut Vec<u8>, key: KeyId, value: &Value) -> bool {
    let data = value.data.as_slice();
    let few = value.shape.is_empty() && key < 0x80 && data.len() < 0x80;
    if !few || section.len() > ATTRS_BYTES_MAX - 2 * 0x80 {
        return false;
    }
    let Some((dtype, len)) = value.dtype.encode_short() else { return false };
    // The key, no dimensions, the dtype and the data, each with its length before it.
    let mut head = [key as u8, 0, len as u8, 0, 0, 0, 0, 0, 0, 0, 0];
    head[3..10].copy_from_slice(&dtype);
    head[3 + len] = data.len() as u8;
    section.extend_from_slice(&head[..4 + len]);
    section.extend_from_slice(data);
    true
}

/// Appends a dtype behind its length, which it returns.
fn push_dtype(section: &mut Vec<u8>, dtype: &DType) -> usize {
    // Nearly every dtype takes a few bytes: its length goes into the one that is left free.
    let place = section.len();
    section.push(0);
    dtype.encode(section);
    let len = section.len() - place - 1;
    if len < 0x80 {
        section[place] = len as u8;
    } else {
        let mut prefix = Vec::new();
        varint::push(&mut prefix, len as u64);
        section.splice(place..=place, prefix);
    }
    len
}

/// The section of a new member with these attributes.
pub fn section(keys: &[KeyId], attrs: &[(String, Value)]) -> Result<Vec<u8>> {
    if !keys.is_sorted_by(|a, b| a < b) {
        // Not in order: one may be there twice.
        let values = attrs.iter().map(|(_, value)| Some(value));
        return merge(&[], &keys.iter().copied().zip(values).collect::<Vec<_>>());
    }
    let bytes = attrs.iter().map(|(_, value)| 16 + value.data.len()).sum();
    let mut section = Vec::with_capacity(bytes);
    for (key, (_, value)) in keys.iter().zip(attrs) {
        push(&mut section, *key, value)?;
    }
    Ok(section)
}

/// The section with other key numbers; `CorruptError` where `keys` does not know one of them.
pub fn rekey<H: BuildHasher>(section: &[u8], keys: &HashMap<KeyId, KeyId, H>) -> Result<Vec<u8>> {
    let mut rekeyed = Vec::with_capacity(section.len());
    for entry in entries(section) {
        let entry = entry?;
        let mut rest = entry.bytes;
        let (Some(_), Some(key)) = (varint::take(&mut rest), keys.get(&entry.key)) else {
            fail!(Corrupt, "an attribute has the unknown key {}", entry.key)
        };
        varint::push(&mut rekeyed, u64::from(*key));
        rekeyed.extend_from_slice(rest);
    }
    Ok(rekeyed)
}

/// The section with these keys set or removed (`None`); the others keep their bytes.
pub fn merge(section: &[u8], changes: &[(KeyId, Option<&Value>)]) -> Result<Vec<u8>> {
    let mut merged = Vec::with_capacity(section.len() + 64);
    for entry in entries(section) {
        let entry = entry?;
        if !changes.iter().any(|(key, _)| *key == entry.key) {
            merged.extend_from_slice(entry.bytes);
        }
    }
    for (place, (key, value)) in changes.iter().enumerate() {
        // Of a key given twice, the last value counts.
        let last = changes[place + 1..].iter().all(|(later, _)| later != key);
        if let (Some(value), true) = (value, last) {
            push(&mut merged, *key, value)?;
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;

    use super::{KeyId, Value, entries, merge, push_any, push_short, rekey, section};
    use engram_base::dtype::{DType, Field, Unit};
    use engram_base::error::Kind;

    fn value() -> impl Strategy<Value = Value> {
        let numbers = prop::collection::vec(any::<i16>(), 0..9).prop_map(|numbers| Value {
            dtype: DType::scalar(b'i', b'<', 2),
            shape: vec![numbers.len() as u64],
            data: numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        });
        prop_oneof![".{0,200}".prop_map(|text| Value::text(&text)), numbers]
    }

    /// A scalar of any kind, of about as many bytes as are few.
    fn scalar() -> impl Strategy<Value = Value> {
        let numbers =
            (prop::sample::select(b"biufcSV".to_vec()), 0..9_u32).prop_map(|(kind, of)| {
                let size = match kind {
                    b'b' => 1,
                    b'c' => 8 << (of % 2),
                    b'f' => 2 << (of % 3),
                    b'i' | b'u' => 1 << (of % 4),
                    _ => 124 + of,
                };
                let data = (0..size).map(|at| at as u8 % 2).collect();
                let order = if size == 1 || b"SV".contains(&kind) { b'|' } else { b'<' };
                Value { dtype: DType::scalar(kind, order, size), shape: Vec::new(), data }
            });
        let instant = any::<i64>().prop_map(|time| Value {
            dtype: DType::Scalar { kind: b'M', order: b'<', size: 8, unit: Some((Unit::Day, 1)) },
            shape: Vec::new(),
            data: time.to_le_bytes().to_vec(),
        });
        prop_oneof![numbers, instant, "[aß]{60,70}|.{0,9}".prop_map(|text| Value::text(&text))]
    }

    /// What a section says.
    fn read(section: &[u8]) -> BTreeMap<KeyId, Value> {
        let read = entries(section).map(|entry| {
            let entry = entry.unwrap();
            (entry.key, entry.decode().unwrap())
        });
        read.collect()
    }

    proptest! {
        #[test]
        fn a_short_entry_is_the_same_as_any(
            key in prop_oneof![0..9_u32, 0x7c..0x84_u32], value in prop_oneof![scalar(), value()],
        ) {
            let (mut short, mut any) = (vec![7], vec![7]);
            push_any(&mut any, key, &value).unwrap();
            let is_short = push_short(&mut short, key, &value);
            prop_assert_eq!(&short[..], if is_short { &any[..] } else { &[7][..] });
            let is_time = matches!(value.dtype, DType::Scalar { kind: b'M', .. });
            let few = key < 0x80 && value.shape.is_empty() && value.data.len() < 0x80;
            prop_assert_eq!(is_short, few && !is_time);
        }

        #[test]
        fn attributes_are_set_and_removed_as_in_a_map_and_get_other_numbers(
            steps in prop::collection::vec(
                prop::collection::vec((0..9u32, prop::option::of(value())), 0..4), 1..9),
        ) {
            let (mut section, mut model) = (Vec::new(), BTreeMap::new());
            for step in &steps {
                let changes: Vec<_> =
                    step.iter().map(|(key, value)| (*key, value.as_ref())).collect();
                section = merge(&section, &changes).unwrap();
                for (key, value) in step {
                    match value {
                        Some(value) => drop(model.insert(*key, value.clone())),
                        None => drop(model.remove(key)),
                    }
                }
                prop_assert_eq!(&read(&section), &model);
                prop_assert_eq!(entries(&section).count(), model.len());
            }
            let other = |key: KeyId| 70_000 - key;
            let numbers: HashMap<_, _> = (0..9).map(|key| (key, other(key))).collect();
            let moved: BTreeMap<_, _> = model.iter().map(|(k, v)| (other(*k), v.clone())).collect();
            prop_assert_eq!(&read(&rekey(&section, &numbers).unwrap()), &moved);
            let unknown = rekey(&section, &HashMap::new()).map_err(|error| error.kind());
            prop_assert_eq!(unknown.is_err(), !model.is_empty());
            prop_assert!(unknown.map_or_else(|kind| kind == Kind::Corrupt, |rest| rest.is_empty()));
        }

        #[test]
        fn bytes_of_any_kind_are_entries_or_refused(
            noise in prop::collection::vec(any::<u8>(), 0..60), value in value(), cut in 0..40usize,
        ) {
            let sound = section(&[3], &[("key".to_owned(), value)]).unwrap();
            let cut = &sound[..sound.len().saturating_sub(cut + 1)];
            prop_assert!(cut.is_empty() || entries(cut).any(|entry| entry.is_err()));
            for section in [&noise[..], cut, &[&sound[..], &noise].concat()] {
                let mut errors = 0;
                for entry in entries(section) {
                    match entry.and_then(|entry| entry.decode()) {
                        Ok(value) => prop_assert_eq!(value.check(), Ok(())),
                        Err(error) => {
                            prop_assert_eq!(error.kind(), Kind::Corrupt);
                            errors += 1;
                        }
                    }
                }
                prop_assert!(errors <= section.len());
            }
        }
    }

    /// A structure whose dtype takes as many bytes as its field's name is long, and some.
    fn named(len: usize) -> Value {
        let byte = DType::bytes();
        let field = Field { name: "n".repeat(len), title: None, offset: 0, dtype: byte };
        let dtype = DType::Struct { size: 1, align: false, fields: vec![field] };
        Value { dtype, shape: vec![2], data: vec![1, 2] }
    }

    #[test]
    fn a_new_section_is_what_merging_into_nothing_makes() {
        let values = [Value::text("one"), named(50), named(300), named(20_000), Value::text("")];
        let attrs: Vec<_> = values.into_iter().map(|value| ("key".to_owned(), value)).collect();
        for keys in [[1, 2, 300, 4000, 70_000], [5, 4, 3, 2, 1], [1, 2, 2, 1, 3]] {
            let made = section(&keys, &attrs).unwrap();
            let changes: Vec<_> =
                keys.into_iter().zip(&attrs).map(|(key, (_, value))| (key, Some(value))).collect();
            assert_eq!(made, merge(&[], &changes).unwrap());
            for entry in entries(&made) {
                let entry = entry.unwrap();
                // Of a key given twice, the last value counts.
                let place = keys.iter().rposition(|key| *key == entry.key).unwrap();
                assert_eq!(entry.decode().unwrap(), attrs[place].1);
            }
            let distinct = keys.into_iter().collect::<std::collections::HashSet<_>>();
            assert_eq!(entries(&made).count(), distinct.len());
        }
    }

    #[test]
    fn what_does_not_fit_leaves_the_section_as_it_was() {
        let mut made = Vec::new();
        super::push(&mut made, 1, &Value::text("one")).unwrap();
        let before = made.clone();
        assert!(super::push(&mut made, 2, &named(65_536)).is_err());
        assert_eq!(made, before);
    }
}
