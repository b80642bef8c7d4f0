//! Extended attributes: a member's attributes, as text.
//!
//! `user.KEY` is the attribute KEY, whatever its type, as text; set, it becomes text, or bytes, if
//! it is none. `user.KEY:TYPE` is the same with a type: `f8`, `f4`, `i8` to `i1`, `u8` to `u1`,
//! `b1`. Set so, an attribute is a number that queries compare as one. What an array is,
//! `user.engram.dtype`, `shape`, `dims` and `oid` tell. `user.engram.stage` alone of these is set:
//! whether a job's file is brought out at its end. Other classes of extended attributes
//! (`security.`, `trusted.`) are not kept.

use std::fmt::Write;

use engram::dtype::{DType, shape_text};
use engram::{IndexMode, Kind, Member, Value};

use crate::errno::{Errno, Result, gone_is_stale, refuse};
use crate::fs::{Fs, Ino, Node};

const USER: &str = "user.";
const OWN: &str = "engram.";
/// The stage tag: what becomes of a file or folder at the end of its job.
const STAGE: &str = "engram.stage";
/// What a stage tag may say.
const STAGES: [&str; 2] = ["persistent", "temporary"];
/// The longest value, as Linux has it.
const VALUE_BYTES_MAX: usize = 65536;
/// The types that a key may end with, and numpy's letters and sizes for them.
const TYPES: [(&str, u8, u32); 11] = [
    ("f8", b'f', 8),
    ("f4", b'f', 4),
    ("i8", b'i', 8),
    ("i4", b'i', 4),
    ("i2", b'i', 2),
    ("i1", b'i', 1),
    ("u8", b'u', 8),
    ("u4", b'u', 4),
    ("u2", b'u', 2),
    ("u1", b'u', 1),
    ("b1", b'b', 1),
];

/// A name, taken apart.
struct Key<'a> {
    key: &'a str,
    /// The letter and size of the type that it ends with.
    typed: Option<(u8, u32)>,
}

impl<'a> Key<'a> {
    fn parse(name: &'a [u8]) -> Result<Key<'a>> {
        let Ok(name) = std::str::from_utf8(name) else {
            refuse!(EILSEQ, "the attribute {:?} is not UTF-8", name.escape_ascii().to_string())
        };
        let Some(key) = name.strip_prefix(USER) else {
            refuse!(EOPNOTSUPP, "{name:?} cannot be kept: attributes here begin with {USER:?}")
        };
        if key.is_empty() {
            refuse!(EINVAL, "an attribute has a name behind {USER:?}");
        }
        let typed = key.rsplit_once(':').and_then(|(key, word)| {
            let (_, kind, size) = TYPES.iter().find(|(name, ..)| *name == word)?;
            (!key.is_empty()).then_some((key, (*kind, *size)))
        });
        Ok(match typed {
            Some((key, typed)) => Key { key, typed: Some(typed) },
            None => Key { key, typed: None },
        })
    }
}

impl Fs {
    fn member(&self, ino: Ino) -> Result<Member> {
        match self.node(ino)? {
            Node::Member(member) => Ok(member),
            Node::Shown(_) => refuse!(ENODATA, "what is only shown has no attributes"),
        }
    }

    /// An attribute's value.
    pub fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let (key, member) = (Key::parse(name)?, self.member(ino)?);
        if let Some(own) = key.key.strip_prefix(OWN)
            && let Some(value) = self.own_xattr(member, own)?
        {
            return Ok(value.into_bytes());
        }
        let value = self.namespace().attr(member, key.key).map_err(gone_is_stale)?;
        let fits = |value: &Value| match (key.typed, &value.dtype) {
            (None, _) => true,
            (Some((kind, size)), DType::Scalar { kind: of, size: bytes, .. }) => {
                (kind, size) == (*of, *bytes) && value.shape.is_empty()
            }
            _ => false,
        };
        match value.filter(fits) {
            Some(value) => Ok(bytes_of(&value)),
            None => refuse!(ENODATA, "there is no attribute {:?} of this type", key.key),
        }
    }

    /// What the engine itself knows of an object.
    fn own_xattr(&self, member: Member, own: &str) -> Result<Option<String>> {
        let Member::Object(oid) = member else { return Ok(None) };
        let info = self.namespace().object(oid).map_err(gone_is_stale)?;
        Ok(match own {
            "dtype" => Some(info.dtype.text()),
            "shape" => Some(shape_text(&info.shape)),
            "dims" => info.dims.map(|dims| dims.join(",")),
            "oid" => Some(format!("{oid:#x}")),
            _ => None,
        })
    }

    /// The names of a node's attributes.
    pub fn list_xattr(&self, ino: Ino) -> Result<Vec<String>> {
        let Node::Member(member) = self.node(ino)? else { return Ok(Vec::new()) };
        match self.namespace().attrs(member) {
            Ok(attrs) => Ok(attrs.into_iter().map(|(key, _)| format!("{USER}{key}")).collect()),
            Err(error) if error.kind() == Kind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets an attribute; by the flags of `setxattr` only if it is new, or is there.
    pub fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        self.check_writable()?;
        let (key, member) = (Key::parse(name)?, self.member(ino)?);
        if key.key.starts_with(OWN) && key.key != STAGE {
            refuse!(EPERM, "{:?} says what the object is, and is not set", key.key);
        }
        if value.len() > VALUE_BYTES_MAX {
            refuse!(E2BIG, "a value of {} bytes is too long", value.len());
        }
        let value = if key.key == STAGE { stage_tag(&key, value)? } else { value };
        let there = self.namespace().attr(member, key.key).map_err(gone_is_stale)?.is_some();
        match (flags, there) {
            (libc::XATTR_CREATE, true) => refuse!(EEXIST, "{:?} is there", key.key),
            (libc::XATTR_REPLACE, false) => refuse!(ENODATA, "there is no {:?}", key.key),
            _ => {}
        }
        let value = value_of(key.typed, value)?;
        let set = [(key.key.to_owned(), value)];
        self.namespace().set_attrs(member, &set).map_err(refused)?;
        if let Member::Object(oid) = member {
            self.namespace().index_from_now(oid, IndexMode::Async)?;
        }
        Ok(())
    }

    /// Removes an attribute.
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        let (key, member) = (Key::parse(name)?, self.member(ino)?);
        self.namespace().delete_attr(member, key.key).map_err(|error| match error.kind() {
            Kind::NotFound => Errno::new(libc::ENODATA, error.message()),
            _ => error.into(),
        })
    }
}

/// What a stage tag says, without the zero that C may have left behind it.
fn stage_tag<'v>(key: &Key<'_>, value: &'v [u8]) -> Result<&'v [u8]> {
    let said = value.strip_suffix(b"\0").unwrap_or(value);
    if key.typed.is_some() || !STAGES.iter().any(|tag| tag.as_bytes() == said) {
        refuse!(EINVAL, "{STAGE} says {}, and nothing else", STAGES.join(" or "));
    }
    Ok(said)
}

fn refused(error: engram::Error) -> Errno {
    match error.kind() {
        Kind::InvalidName => Errno::new(libc::EINVAL, error.message()),
        _ => gone_is_stale(error),
    }
}

/// What an attribute becomes that a file system keeps as bytes: text, or bytes, if it is none.
pub fn value_of_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')) {
        Some(text) => Value::text(text),
        None => scalar(b'S', bytes.len() as u32, bytes.to_vec()),
    }
}

fn scalar(kind: u8, size: u32, data: Vec<u8>) -> Value {
    let order = if size == 1 || kind == b'S' { b'|' } else { b'<' };
    Value { dtype: DType::Scalar { kind, order, size, unit: None }, shape: Vec::new(), data }
}

/// The value of a text, by the type that the key ends with.
fn value_of(typed: Option<(u8, u32)>, bytes: &[u8]) -> Result<Value> {
    let Some((kind, size)) = typed else { return Ok(value_of_bytes(bytes)) };
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.unwrap_or_default().trim();
    let data = match (kind, size) {
        (b'f', 8) => text.parse::<f64>().map(|x| x.to_le_bytes().to_vec()).ok(),
        (b'f', _) => text.parse::<f32>().map(|x| x.to_le_bytes().to_vec()).ok(),
        (b'b', _) => match text {
            "1" | "true" | "True" => Some(vec![1]),
            "0" | "false" | "False" => Some(vec![0]),
            _ => None,
        },
        (kind, size) => text.parse::<i128>().ok().and_then(|number| {
            let bits = size * 8;
            let (least, most) = match kind {
                b'i' => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
                _ => (0, (1_i128 << bits) - 1),
            };
            let fits = (least..=most).contains(&number);
            fits.then(|| number.to_le_bytes()[..size as usize].to_vec())
        }),
    };
    match data {
        Some(data) => Ok(scalar(kind, size, data)),
        None => refuse!(EINVAL, "{text:?} is no number of type {}{size}", kind as char),
    }
}

/// A value as text; bytes as they are.
fn bytes_of(value: &Value) -> Vec<u8> {
    match &value.dtype {
        DType::Text | DType::Scalar { kind: b'S' | b'V', .. } if value.shape.is_empty() => {
            value.data.clone()
        }
        DType::Scalar { kind, order, size, .. } => {
            let item = *size as usize;
            let items = value.data.chunks_exact(item.max(1));
            let texts: Vec<String> = items.map(|item| number(*kind, *order, item)).collect();
            if value.shape.is_empty() {
                texts.concat().into_bytes()
            } else {
                format!("[{}]", texts.join(", ")).into_bytes()
            }
        }
        dtype => dtype.text().into_bytes(),
    }
}

/// A number as text.
fn number(kind: u8, order: u8, item: &[u8]) -> String {
    let mut bytes = item.to_vec();
    if order == b'>' {
        bytes.reverse();
    }
    let wide = |fill: u8| {
        let mut wide = [fill; 16];
        wide[..bytes.len().min(16)].copy_from_slice(&bytes[..bytes.len().min(16)]);
        i128::from_le_bytes(wide)
    };
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    match (kind, bytes.len()) {
        (b'f', 8) => f64::from_le_bytes(bytes.try_into().expect("8 bytes")).to_string(),
        (b'f', 4) => f32::from_le_bytes(bytes.try_into().expect("4 bytes")).to_string(),
        (b'b', _) => if bytes == [0] { "False" } else { "True" }.to_owned(),
        (b'i' | b'M' | b'm', _) => wide(if negative { 0xff } else { 0 }).to_string(),
        (b'u', _) => wide(0).to_string(),
        (b'U', _) => bytes
            .chunks_exact(4)
            .filter_map(|point| char::from_u32(u32::from_le_bytes(point.try_into().ok()?)))
            .filter(|point| *point != '\0')
            .collect(),
        _ => bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}"); // a String takes all
            text
        }),
    }
}
