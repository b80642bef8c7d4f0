//! The dtype of an array or an attribute, exactly as numpy has it, and its bytes on media.
//!
//! Kept exactly: kind, width, byte order, datetime unit and count, field names, titles, offsets
//! (overlapping and out of order too), padding, the aligned flag, sub-array shapes. A dtype is
//! validated where it comes in ([`DType::validate`]) and again where it is read from media
//! ([`DType::decode`]), by the same rules, so that nothing above needs to doubt one.
//!
//! One node is a tag byte and then, integers little-endian:
//!
//! | tag | node | bytes after the tag |
//! |---|---|---|
//! | 1 | scalar | kind u8, order u8, itemsize u32; `M`, `m`: unit u8 (0 generic), count u32 |
//! | 2 | struct | flags u8 (1: aligned), itemsize u32, fields u32, then the fields |
//! | 3 | sub-array | dimensions u8, each length u64, then the element's node |
//! | 4 | text | none |
//!
//! A field is flags u8 (1: has a title), offset u32, name length u32, name, title length u32 and
//! title if it has one, then its node. Every dtype has one encoding.

mod text;

use crate::error::{Error, Kind, Result};

pub use self::text::shape_text;

/// The longest itemsize, as in numpy, whose itemsizes are C ints.
pub const MAX_ITEMSIZE: u64 = i32::MAX as u64;
/// How deep structures and sub-arrays may nest.
pub const MAX_DEPTH: usize = 16;
/// How many dimensions a shape may have, as in numpy 2.
pub const MAX_DIMS: usize = 64;
/// How many fields a structure may have.
pub const MAX_FIELDS: usize = 65_535;
/// How many bytes a field's name or title may have.
pub const MAX_NAME: usize = 65_535;

const SCALAR: u8 = 1;
const STRUCT: u8 = 2;
const SUB: u8 = 3;
const TEXT: u8 = 4;

/// The type of an array's elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// One value of fixed size.
    Scalar {
        /// numpy's letter: one of `b i u f c M m S U V`.
        kind: u8,
        /// `<`, `>`, or `|` where bytes have no order.
        order: u8,
        /// The itemsize in bytes.
        size: u32,
        /// The unit of `M` and `m` and how many of it make one step; `None` is generic.
        unit: Option<(Unit, u32)>,
    },
    /// Named fields at offsets.
    Struct {
        /// The itemsize in bytes, padding included.
        size: u32,
        /// Whether numpy calls it aligned.
        align: bool,
        /// The fields, in the order of their definition.
        fields: Vec<Field>,
    },
    /// A fixed-shape array as one element of a structure.
    Sub {
        /// The type of its elements.
        base: Box<DType>,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// Variable-length strings (numpy's `T`).
    Text,
}

/// One field of a structure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name, unique in its structure.
    pub name: String,
    /// numpy's title, an alias for the name.
    pub title: Option<String>,
    /// Where it begins, in bytes.
    pub offset: u32,
    /// Its type.
    pub dtype: DType,
}

/// A unit of time, as datetimes and time differences have it. The numbers are on media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Unit {
    /// `Y`
    Year = 1,
    /// `M`
    Month = 2,
    /// `W`
    Week = 3,
    /// `D`
    Day = 4,
    /// `h`
    Hour = 5,
    /// `m`
    Minute = 6,
    /// `s`
    Second = 7,
    /// `ms`
    Millisecond = 8,
    /// `us`
    Microsecond = 9,
    /// `ns`
    Nanosecond = 10,
    /// `ps`
    Picosecond = 11,
    /// `fs`
    Femtosecond = 12,
    /// `as`
    Attosecond = 13,
}

impl Unit {
    /// Every unit with numpy's name for it, in the order of its number.
    pub const ALL: [(Unit, &'static str); 13] = [
        (Unit::Year, "Y"),
        (Unit::Month, "M"),
        (Unit::Week, "W"),
        (Unit::Day, "D"),
        (Unit::Hour, "h"),
        (Unit::Minute, "m"),
        (Unit::Second, "s"),
        (Unit::Millisecond, "ms"),
        (Unit::Microsecond, "us"),
        (Unit::Nanosecond, "ns"),
        (Unit::Picosecond, "ps"),
        (Unit::Femtosecond, "fs"),
        (Unit::Attosecond, "as"),
    ];

    /// numpy's name for it.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize - 1].1
    }

    /// The unit with numpy's name `name`; "generic" is none.
    pub fn from_name(name: &str) -> Option<Unit> {
        Self::ALL.iter().find(|(_, n)| *n == name).map(|(unit, _)| *unit)
    }

    fn from_code(code: u8) -> Option<Unit> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).map(|(unit, _)| *unit)
    }
}

impl DType {
    /// Plain bytes: what a blob is made of.
    pub const fn bytes() -> DType {
        DType::Scalar { kind: b'u', order: b'|', size: 1, unit: None }
    }

    /// A scalar without a unit, such as `DType::scalar(b'f', b'<', 8)`.
    pub const fn scalar(kind: u8, order: u8, size: u32) -> DType {
        DType::Scalar { kind, order, size, unit: None }
    }

    /// The bytes of one element; of `Text`, whose elements differ, 0.
    pub fn itemsize(&self) -> u64 {
        match self {
            DType::Scalar { size, .. } | DType::Struct { size, .. } => u64::from(*size),
            DType::Sub { base, shape } => {
                shape.iter().fold(base.itemsize(), |bytes, n| bytes.saturating_mul(*n))
            }
            DType::Text => 0,
        }
    }

    /// Whether elements are variable-length strings.
    pub const fn is_text(&self) -> bool {
        matches!(self, DType::Text)
    }

    /// Refuses, as an `Argument`, a dtype that cannot be one; others encode and decode exactly.
    pub fn validate(&self) -> Result<()> {
        self.check(1).map_err(|what| Error::new(Kind::Argument, format!("this dtype {what}")))
    }

    /// Appends the bytes of this dtype, which is valid.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            DType::Scalar { kind, order, size, unit } => {
                out.extend_from_slice(&[SCALAR, *kind, *order]);
                out.extend_from_slice(&size.to_le_bytes());
                if is_time(*kind) {
                    let (code, count) = unit.map_or((0, 1), |(unit, n)| (unit as u8, n));
                    out.push(code);
                    out.extend_from_slice(&count.to_le_bytes());
                }
            }
            DType::Struct { size, align, fields } => {
                out.extend_from_slice(&[STRUCT, u8::from(*align)]);
                out.extend_from_slice(&size.to_le_bytes());
                out.extend_from_slice(&(fields.len() as u32).to_le_bytes());
                for field in fields {
                    field.encode(out);
                }
            }
            DType::Sub { base, shape } => {
                out.extend_from_slice(&[SUB, shape.len() as u8]);
                for n in shape {
                    out.extend_from_slice(&n.to_le_bytes());
                }
                base.encode(out);
            }
            DType::Text => out.push(TEXT),
        }
    }

    /// The same bytes of a dtype that takes few, and how many they are: a scalar that counts no
    /// time, or text.
    #[inline]
    pub fn encode_short(&self) -> Option<([u8; 7], usize)> {
        match self {
            DType::Scalar { kind, order, size, .. } if !is_time(*kind) => {
                let [a, b, c, d] = size.to_le_bytes();
                Some(([SCALAR, *kind, *order, a, b, c, d], 7))
            }
            DType::Text => Some(([TEXT, 0, 0, 0, 0, 0, 0], 1)),
            _ => None,
        }
    }

    /// Reads a dtype from the start of `bytes` and says how many bytes it took.
    ///
    /// Whatever the bytes are, the result is a valid dtype or `Corrupt`.
    pub fn decode(bytes: &[u8]) -> Result<(DType, usize)> {
        let corrupt = |what| Error::new(Kind::Corrupt, format!("a dtype on media {what}"));
        let mut reader = Reader { rest: bytes };
        let dtype = reader.dtype(1).map_err(corrupt)?;
        dtype.check(1).map_err(corrupt)?;
        Ok((dtype, bytes.len() - reader.rest.len()))
    }

    /// The rules; an error says what is wrong with "this dtype".
    fn check(&self, depth: usize) -> RuleResult {
        if depth > MAX_DEPTH {
            return Err(format!("nests deeper than {MAX_DEPTH}"));
        }
        match self {
            DType::Scalar { kind, order, size, unit } => check_scalar(*kind, *order, *size, *unit),
            DType::Struct { size, fields, .. } => check_struct(*size, fields, depth),
            DType::Sub { base, shape } => check_sub(base, shape, depth, self.itemsize()),
            DType::Text if depth > 1 => {
                Err("has variable-length strings inside a structure or sub-array".to_owned())
            }
            DType::Text => Ok(()),
        }
    }
}

impl Field {
    fn encode(&self, out: &mut Vec<u8>) {
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        out.push(u8::from(self.title.is_some()));
        out.extend_from_slice(&self.offset.to_le_bytes());
        text(out, &self.name);
        if let Some(title) = &self.title {
            text(out, title);
        }
        self.dtype.encode(out);
    }
}

/// What a rule says: nothing, or what is wrong.
type RuleResult<T = ()> = std::result::Result<T, String>;

const fn is_time(kind: u8) -> bool {
    matches!(kind, b'M' | b'm')
}

fn check_scalar(kind: u8, order: u8, size: u32, unit: Option<(Unit, u32)>) -> RuleResult {
    let ordered = size > 1;
    let (fits, ordered) = match kind {
        b'b' => (size == 1, false),
        b'i' | b'u' => (matches!(size, 1 | 2 | 4 | 8), ordered),
        // 16 and 32 are numpy's longdouble and its complex.
        b'f' => (matches!(size, 2 | 4 | 8 | 16), ordered),
        b'c' => (matches!(size, 8 | 16 | 32), ordered),
        b'M' | b'm' => (size == 8, true),
        b'S' | b'V' => (u64::from(size) <= MAX_ITEMSIZE, false),
        b'U' => (size.is_multiple_of(4) && u64::from(size) <= MAX_ITEMSIZE, true),
        _ => return Err(format!("has the unknown kind {:?}", char::from(kind))),
    };
    let kind_shown = char::from(kind);
    if !fits {
        return Err(format!(
            "of kind {kind_shown:?} has {size} bytes, which that kind cannot have"
        ));
    }
    let orders: &[u8] = if ordered { b"<>" } else { b"|" };
    if !orders.contains(&order) {
        let order = char::from(order);
        return Err(format!("of kind {kind_shown:?} and {size} bytes has byte order {order:?}"));
    }
    match unit {
        Some(_) if !is_time(kind) => Err(format!("of kind {kind_shown:?} has a unit of time")),
        Some((_, count)) if count == 0 || i32::try_from(count).is_err() => {
            Err(format!("counts {count} units of time as one step"))
        }
        _ => Ok(()),
    }
}

fn check_struct(size: u32, fields: &[Field], depth: usize) -> RuleResult {
    if u64::from(size) > MAX_ITEMSIZE {
        return Err(format!("has {size} bytes, more than {MAX_ITEMSIZE}"));
    }
    if fields.len() > MAX_FIELDS {
        return Err(format!("has {} fields, more than {MAX_FIELDS}", fields.len()));
    }
    for field in fields {
        let title = field.title.as_deref().unwrap_or("");
        if field.name.len() > MAX_NAME || title.len() > MAX_NAME {
            return Err(format!("has a field whose name has more than {MAX_NAME} bytes"));
        }
        field.dtype.check(depth + 1)?;
        let end = u64::from(field.offset) + field.dtype.itemsize();
        if end > u64::from(size) {
            let name = &field.name;
            return Err(format!("of {size} bytes has a field {name:?} that ends at byte {end}"));
        }
    }
    let mut names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("has two fields named {:?}", pair[0])),
        None => Ok(()),
    }
}

fn check_sub(base: &DType, shape: &[u64], depth: usize, itemsize: u64) -> RuleResult {
    if shape.is_empty() || shape.len() > MAX_DIMS {
        let dims = shape.len();
        return Err(format!("has a sub-array of {dims} dimensions; it can have 1 to {MAX_DIMS}"));
    }
    base.check(depth + 1)?;
    if shape.iter().any(|n| *n > MAX_ITEMSIZE) || itemsize > MAX_ITEMSIZE {
        return Err(format!("has a sub-array of shape {shape:?}, more than {MAX_ITEMSIZE} bytes"));
    }
    Ok(())
}

/// Bytes that are still to be read. Nothing is allocated that they could not fill.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> RuleResult<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or("ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> RuleResult<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or("ends too early")?;
        self.rest = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> RuleResult<u8> {
        self.array().map(|[byte]| byte)
    }

    fn int(&mut self) -> RuleResult<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn flag(&mut self) -> RuleResult<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            flags => Err(format!("has the unknown flags {flags:#x}")),
        }
    }

    fn text(&mut self) -> RuleResult<String> {
        let len = self.int()? as usize;
        let text = std::str::from_utf8(self.bytes(len)?);
        text.map(str::to_owned).map_err(|e| format!("has a name that is not UTF-8: {e}"))
    }

    fn dtype(&mut self, depth: usize) -> RuleResult<DType> {
        if depth > MAX_DEPTH {
            return Err(format!("nests deeper than {MAX_DEPTH}"));
        }
        match self.byte()? {
            SCALAR => self.scalar(),
            STRUCT => {
                let (align, size, count) = (self.flag()?, self.int()?, self.int()?);
                let fields = (0..count).map(|_| self.field(depth)).collect::<RuleResult<_>>()?;
                Ok(DType::Struct { size, align, fields })
            }
            SUB => {
                let dims = self.byte()?;
                let shape = (0..dims).map(|_| self.array().map(u64::from_le_bytes));
                let shape = shape.collect::<RuleResult<_>>()?;
                Ok(DType::Sub { shape, base: Box::new(self.dtype(depth + 1)?) })
            }
            TEXT => Ok(DType::Text),
            tag => Err(format!("has the unknown tag {tag}")),
        }
    }

    fn scalar(&mut self) -> RuleResult<DType> {
        let ([kind, order], size) = (self.array()?, self.int()?);
        let unit = if is_time(kind) {
            match (self.byte()?, self.int()?) {
                (0, 1) => None,
                (code, count) => {
                    let unit = Unit::from_code(code);
                    Some((unit.ok_or(format!("has the unknown unit {code}"))?, count))
                }
            }
        } else {
            None
        };
        Ok(DType::Scalar { kind, order, size, unit })
    }

    fn field(&mut self, depth: usize) -> RuleResult<Field> {
        let (titled, offset, name) = (self.flag()?, self.int()?, self.text()?);
        let title = if titled { Some(self.text()?) } else { None };
        Ok(Field { name, title, offset, dtype: self.dtype(depth + 1)? })
    }
}

#[cfg(test)]
mod tests;
