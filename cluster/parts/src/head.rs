//! What an object is, beside its value: class, dtype, shape, dimensions, attributes.
//!
//! A head travels with an object from one process to another, and from the library of a cluster to
//! the engine of its process. What was told of an object that is there follows it (see [`Told`]).
//!
//! ```text
//! version u8 · class u8 · dtype · ndim · lengths · dims? · attributes · told?
//! attribute = key · dtype · ndim · lengths · bytes
//! ```
//!
//! Numbers are varints, and texts and bytes have their length before them. A head comes from the
//! network: what cannot be one is an error, and memory is taken for what is there alone.

use engram_base::dtype::DType;
use engram_base::error::{Error, Kind, Result};
use engram_base::varint;

const VERSION: u8 = 1;
/// The most dimensions of anything.
const NDIM_MOST: u64 = 64;

/// The kind of thing that an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// An array of items of one size.
    #[default]
    Array = 1,
    /// Bytes.
    Blob = 2,
    /// An array of strings.
    Strings = 3,
    /// A group, which has attributes alone.
    Group = 4,
}

/// An attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Attr {
    /// Its key.
    pub key: String,
    /// The type of its items.
    pub dtype: DType,
    /// The shape; empty for a scalar.
    pub shape: Vec<u64>,
    /// The bytes, in C order.
    pub data: Vec<u8>,
}

/// What a pool tells of an object that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its number in the pool, or a group's.
    pub id: u64,
    /// It changes with the object's value.
    pub generation: u64,
    /// The value's length, in bytes.
    pub nbytes: u64,
    /// When it was made, in ns since 1970.
    pub created: i64,
    /// When it was changed last, in ns since 1970.
    pub modified: i64,
    /// The uid of its owner.
    pub owner: u64,
    /// Who sees it: 0 its owner, 1 the namespace's, 2 everyone.
    pub scope: u8,
    /// Whether its value lies in one piece.
    pub is_contiguous: bool,
}

/// What an object is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// The kind of thing.
    pub class: Class,
    /// The type of its items; none of blobs and groups.
    pub dtype: Option<DType>,
    /// The shape.
    pub shape: Vec<u64>,
    /// The names of the dimensions.
    pub dims: Option<Vec<String>>,
    /// The attributes.
    pub attrs: Vec<Attr>,
    /// What is told of it, if it is there.
    pub told: Option<Told>,
}

impl Head {
    /// Whether everyone sees what it is of: a group, which has no scope, is seen by its owner.
    pub fn is_published(&self) -> bool {
        self.told.is_some_and(|told| told.scope == 2)
    }

    /// The head of an array without attributes.
    pub fn array(dtype: DType, shape: Vec<u64>) -> Head {
        Head { dtype: Some(dtype), shape, ..Head::default() }
    }

    /// How many bytes an array of this head has.
    pub fn nbytes(&self) -> Result<u64> {
        let item = self.dtype.as_ref().map_or(1, DType::itemsize);
        let items = self.shape.iter().try_fold(1_u64, |all, length| all.checked_mul(*length));
        items.and_then(|items| items.checked_mul(item)).ok_or_else(|| {
            Error::new(Kind::Argument, format!("an array of shape {:?} is too large", self.shape))
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.class as u8];
        push_dtype(&mut out, self.dtype.as_ref());
        push_shape(&mut out, &self.shape);
        match &self.dims {
            Some(dims) => {
                out.push(1);
                varint::push(&mut out, dims.len() as u64);
                for name in dims {
                    push_bytes(&mut out, name.as_bytes());
                }
            }
            None => out.push(0),
        }
        varint::push(&mut out, self.attrs.len() as u64);
        for attr in &self.attrs {
            push_bytes(&mut out, attr.key.as_bytes());
            push_dtype(&mut out, Some(&attr.dtype));
            push_shape(&mut out, &attr.shape);
            push_bytes(&mut out, &attr.data);
        }
        if let Some(told) = &self.told {
            out.push(1);
            for number in [told.id, told.generation, told.nbytes, told.owner] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            varint::push_signed(&mut out, told.created);
            varint::push_signed(&mut out, told.modified);
            out.extend_from_slice(&[told.scope, u8::from(told.is_contiguous)]);
        } else {
            out.push(0);
        }
        out
    }

    /// The head that these bytes are.
    pub fn decode(bytes: &[u8]) -> Result<Head> {
        let odd = || Error::new(Kind::Corrupt, "the bytes that came are no head of an object");
        take(bytes).filter(Head::fits).ok_or_else(odd)
    }

    fn fits(&self) -> bool {
        let has_dtype = matches!(self.class, Class::Array | Class::Strings);
        let names = self.dims.as_ref().is_none_or(|dims| dims.len() == self.shape.len());
        has_dtype == self.dtype.is_some() && names
    }
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::push(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn push_dtype(out: &mut Vec<u8>, dtype: Option<&DType>) {
    let mut bytes = Vec::new();
    if let Some(dtype) = dtype {
        dtype.encode(&mut bytes);
    }
    push_bytes(out, &bytes);
}

fn push_shape(out: &mut Vec<u8>, shape: &[u64]) {
    varint::push(out, shape.len() as u64);
    for length in shape {
        out.extend_from_slice(&length.to_le_bytes());
    }
}

fn take(mut bytes: &[u8]) -> Option<Head> {
    let rest = &mut bytes;
    if take_byte(rest)? != VERSION {
        return None;
    }
    let class = match take_byte(rest)? {
        1 => Class::Array,
        2 => Class::Blob,
        3 => Class::Strings,
        4 => Class::Group,
        _ => return None,
    };
    let dtype = take_dtype(rest)?;
    let shape = take_shape(rest)?;
    let dims = match take_byte(rest)? {
        0 => None,
        1 => Some(take_texts(rest)?),
        _ => return None,
    };
    let mut attrs = Vec::new();
    for _ in 0..varint::take(rest)? {
        let key = take_text(rest)?;
        let (dtype, shape) = (take_dtype(rest)??, take_shape(rest)?);
        attrs.push(Attr { key, dtype, shape, data: varint::take_bytes(rest)?.to_vec() });
    }
    let told = match take_byte(rest)? {
        0 => None,
        1 => Some(take_told(rest)?),
        _ => return None,
    };
    rest.is_empty().then_some(Head { class, dtype, shape, dims, attrs, told })
}

fn take_told(rest: &mut &[u8]) -> Option<Told> {
    let (id, generation) = (take_number(rest)?, take_number(rest)?);
    let (nbytes, owner) = (take_number(rest)?, take_number(rest)?);
    let (created, modified) = (varint::take_signed(rest)?, varint::take_signed(rest)?);
    let scope = take_byte(rest)?;
    let is_contiguous = match take_byte(rest)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some(Told { id, generation, nbytes, created, modified, owner, scope, is_contiguous })
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    let (byte, after) = rest.split_first()?;
    *rest = after;
    Some(*byte)
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    str::from_utf8(varint::take_bytes(rest)?).ok().map(str::to_owned)
}

fn take_texts(rest: &mut &[u8]) -> Option<Vec<String>> {
    let count = varint::take(rest).filter(|count| *count <= NDIM_MOST)?;
    (0..count).map(|_| take_text(rest)).collect()
}

/// A dtype, which may be none; an outer none where the bytes are no dtype.
#[expect(clippy::option_option, reason = "no dtype is not a wrong one")]
fn take_dtype(rest: &mut &[u8]) -> Option<Option<DType>> {
    let bytes = varint::take_bytes(rest)?;
    if bytes.is_empty() {
        return Some(None);
    }
    let (dtype, len) = DType::decode(bytes).ok()?;
    (len == bytes.len() && dtype.validate().is_ok()).then_some(Some(dtype))
}

fn take_shape(rest: &mut &[u8]) -> Option<Vec<u64>> {
    let count = varint::take(rest).filter(|count| *count <= NDIM_MOST)?;
    (0..count).map(|_| take_number(rest)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Attr, Class, Head, Told};
    use engram_base::dtype::DType;

    fn head() -> Head {
        let key = "t".to_owned();
        let (dtype, data) = (DType::scalar(b'f', b'<', 8), vec![1; 16]);
        let attrs = vec![
            Attr { key, dtype: dtype.clone(), shape: vec![2], data },
            Attr { key: String::new(), dtype: DType::Text, shape: vec![], data: b"abc".to_vec() },
        ];
        let told = Told { id: 9, created: -5, scope: 2, is_contiguous: true, ..Told::default() };
        Head {
            class: Class::Array,
            dtype: Some(dtype),
            shape: vec![3, u64::MAX],
            dims: Some(vec!["x".to_owned(), "y".to_owned()]),
            attrs,
            told: Some(told),
        }
    }

    #[test]
    fn heads_come_back_from_their_bytes() {
        for head in [head(), Head { class: Class::Blob, ..Head::default() }] {
            assert_eq!(Head::decode(&head.encode()).unwrap(), head);
        }
        assert!(head().nbytes().is_err());
    }

    #[test]
    fn what_is_cut_or_changed_is_no_head_or_another_one() {
        let bytes = head().encode();
        for len in 0..bytes.len() {
            assert!(Head::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] ^= flip;
                // It may be a head still; it must not be the same, nor a panic.
                assert!(Head::decode(&other).map_or(true, |other| other != head()), "byte {at}");
            }
        }
    }
}
