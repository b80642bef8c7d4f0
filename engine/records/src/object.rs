//! Objects: what a record holds, byte by byte.
//!
//! One record format serves objects and groups (a group is a record of class `Group`, without
//! dtype and data). A record is a fixed head of 32 bytes, then how long after it was made it last
//! changed, then its sections in this order: shape, name, dtype, dimension names, attributes,
//! origin, payload. Lengths are varints, all else is little-endian. `docs/format.md` has the table.
//!
//! `Record` borrows its sections from the row it was read from, so reading allocates nothing, and
//! a change is: parse, replace a section, encode. Every bound is checked once, in `parse`: a row
//! that does not fit is `CorruptError`, never a wild access.

pub mod version2;

use crate::extent::Extent;
use crate::index_mode::IndexMode;
use crate::layout::{Chunking, Layout, check_chunks};
use crate::segmented::{self, HeadFacts, Segmented};
use engram_base::checksum;
use engram_base::checksum::{NONE, is_checksum};
use engram_base::dtype::DType;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::id::{Gid, Oid};
use engram_base::name::NAME_BYTES_MAX;
use engram_base::scope::Scope;
pub use engram_base::slab::NDIM_MAX;
use engram_base::varint;

/// The record format that this engine writes.
pub const RECORD_VERSION: u8 = 3;
/// The fixed head of every record, in bytes.
pub const HEAD_BYTES: usize = 32;
/// Values up to this many bytes lie in the record itself: docs/format.md has the reasons.
pub const INLINE_BYTES_MAX: u64 = 1024;
/// The most bytes that the attributes of one member may take.
pub const ATTRS_BYTES_MAX: usize = 64 << 20;
/// The payload of a contiguous record: offset, extent length, value length, checksum of the value.
const CONTIGUOUS_BYTES: usize = 32;

const LAYOUT_INLINE: u8 = 0;
const LAYOUT_CONTIGUOUS: u8 = 1;
const LAYOUT_CHUNKED: u8 = 2;
const LAYOUT_SEGMENTED: u8 = 3;
/// The most bytes that a record's properties take.
pub const PROPERTIES_BYTES_MAX: usize = 255;

/// What kind of member a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// A group: no dtype, no data.
    Group = 0,
    /// An array of a fixed-size dtype.
    Array = 1,
    /// Bytes.
    Blob = 2,
    /// An array of variable-length strings.
    Strings = 3,
    /// A chunk of an array, in the table `chunks`: no name, no dtype.
    Chunk = 4,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// In the record.
    Inline(&'a [u8]),
    /// In one extent, of which the value takes the first `nbytes`.
    Contiguous {
        /// The extent.
        extent: Extent,
        /// The value's length in bytes.
        nbytes: u64,
        /// The checksum of the value (see `checksum`), or 0: there is none.
        checksum: u64,
    },
    /// In chunks, which have rows of their own (see `chunked`).
    Chunked(Chunking<'a>),
    /// In segments, which have rows of their own, under a head (see `segmented`).
    Segmented(Segmented),
}

impl Stored<'_> {
    /// The value's length in bytes; of a file, what it was when its record last changed.
    pub fn nbytes(&self) -> u64 {
        match self {
            Stored::Inline(bytes) => bytes.len() as u64,
            Stored::Contiguous { nbytes, .. } => *nbytes,
            Stored::Chunked(chunking) => chunking.nbytes,
            Stored::Segmented(segmented) => segmented.nbytes,
        }
    }

    /// The one extent that the row itself points to, how many bytes of it count, and their
    /// checksum: the value's, or a file's head.
    pub fn extent(&self) -> Option<(Extent, u64, u64)> {
        match self {
            Stored::Inline(_) | Stored::Chunked(_) => None,
            Stored::Contiguous { extent, nbytes, checksum } => Some((*extent, *nbytes, *checksum)),
            Stored::Segmented(segmented) => Some((segmented.head, segmented.head.len, NONE)),
        }
    }
}

impl<'a> Stored<'a> {
    /// The same with its extent elsewhere, as long as it was. A number of the process that computes
    /// its checksum stays behind.
    #[must_use]
    pub fn moved_to(self, offset: u64) -> Stored<'a> {
        match self {
            Stored::Contiguous { extent, nbytes, checksum } => Stored::Contiguous {
                extent: Extent { offset, ..extent },
                nbytes,
                checksum: if is_checksum(checksum) { checksum } else { NONE },
            },
            Stored::Segmented(segmented) => {
                let head = Extent { offset, ..segmented.head };
                Stored::Segmented(Segmented { head, ..segmented })
            }
            stored => stored,
        }
    }
}

/// A record, with its sections borrowed from the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it describes.
    pub class: Class,
    /// Counts the changes of its payload; what compare-and-swap compares.
    pub generation: u32,
    /// The user that made it.
    pub owner: u32,
    /// The group that holds it (0 for the root); of a chunk, its array.
    pub parent: Gid,
    /// When it was made, in ns since 1970.
    pub created: i64,
    /// When its row last changed, in ns since 1970. On media it is how long that is after
    /// `created`, which may be before it: clocks are set back.
    pub modified: i64,
    /// Its name in the group (empty for the root).
    pub name: &'a str,
    /// The encoded dtype (empty for groups and blobs).
    pub dtype: &'a [u8],
    /// How many dimensions there are.
    pub ndim: u8,
    /// The shape: a varint for each dimension.
    pub shape: &'a [u8],
    /// The encoded dimension names (empty: none).
    pub dims: &'a [u8],
    /// The encoded attributes (see `attrs`).
    pub attrs: &'a [u8],
    /// What an importer keeps for export; opaque here.
    pub origin: &'a [u8],
    /// What a file system keeps beside it (see `properties`); empty for none.
    pub properties: &'a [u8],
    /// When the object is indexed (of no meaning in groups).
    pub index: IndexMode,
    /// What else it is.
    pub flags: Flags,
    /// Whether its row carries a checksum.
    pub checked: bool,
    /// The value.
    pub stored: Stored<'a>,
}

/// What a record says in one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Neither it nor what is below it is to be changed: a hint against mistakes.
    pub read_only: bool,
    /// A group that stands for one of the same GID in another realm of the namespace, so that
    /// members here have a place. Its description of itself is a copy.
    pub mirror: bool,
}

/// Bits of the head's fourth byte, whose lowest two are the index mode.
const READ_ONLY_BIT: u8 = 0x80;
const MIRROR_BIT: u8 = 0x40;
/// Whether there is a section of properties.
const PROPERTIES_BIT: u8 = 0x20;
const MODE_BITS: u8 = 0x03;

impl Flags {
    fn bits(self) -> u8 {
        u8::from(self.read_only) * READ_ONLY_BIT + u8::from(self.mirror) * MIRROR_BIT
    }

    /// Mode and flags of the head's fourth byte; `None` if a newer engine wrote it.
    fn split(byte: u8) -> Option<(IndexMode, Flags)> {
        if byte & !(READ_ONLY_BIT | MIRROR_BIT | PROPERTIES_BIT | MODE_BITS) != 0 {
            return None;
        }
        let mode = IndexMode::from_byte(byte & MODE_BITS)?;
        let flags = Flags { read_only: byte & READ_ONLY_BIT != 0, mirror: byte & MIRROR_BIT != 0 };
        Some((mode, flags))
    }
}

fn u32_at(row: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(row[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(row: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(row[at..at + 8].try_into().expect("eight bytes"))
}

impl<'a> Record<'a> {
    /// Reads a row of `objects` or `groups`; every length is checked against the row, and its
    /// checksum, if it has one.
    pub fn parse(row: &'a [u8]) -> Result<Self> {
        if row.len() < HEAD_BYTES {
            fail!(Corrupt, "a record has {} bytes; its head alone takes {HEAD_BYTES}", row.len());
        }
        if row[0] != RECORD_VERSION {
            fail!(Corrupt, "a record has version {}; this engine reads {RECORD_VERSION}", row[0]);
        }
        let carried = u32_at(row, checksum::AT_IN_ROW);
        if carried != 0 && carried != checksum::of_row(row) {
            fail!(Corrupt, "a record is damaged: its checksum is not that of its bytes");
        }
        let created = u64_at(row, 24) as i64;
        let mut rest = &row[HEAD_BYTES..];
        let Some(age) = varint::take_signed(&mut rest) else {
            fail!(Corrupt, "a record ends before it says when it was changed")
        };
        Self::parse_sections(row, carried, [created, created.wrapping_add(age)], rest)
    }

    /// Reads what is behind a head, which says `carried` for its checksum, and these times.
    #[inline]
    pub(crate) fn parse_sections(
        row: &'a [u8],
        carried: u32,
        [created, modified]: [i64; 2],
        mut rest: &'a [u8],
    ) -> Result<Self> {
        let Some((ndim, shape)) = take_shape(&mut rest) else {
            fail!(Corrupt, "a record's shape goes beyond the row's end")
        };
        let mut section = || match varint::take_bytes(&mut rest) {
            Some(section) => Ok(section),
            None => fail!(Corrupt, "a record's section goes beyond the row's end"),
        };
        let name = section()?;
        let (dtype, dims, attrs, origin) = (section()?, section()?, section()?, section()?);
        let Ok(name) = std::str::from_utf8(name) else {
            fail!(Corrupt, "a record's name is not UTF-8")
        };
        if name.len() > NAME_BYTES_MAX {
            fail!(Corrupt, "a record's name has {} bytes", name.len());
        }
        let Some((index, flags)) = Flags::split(row[3]) else {
            fail!(Corrupt, "a record has the unknown index mode or flags {:#x}", row[3])
        };
        let properties =
            if row[3] & PROPERTIES_BIT == 0 { &[] } else { take_properties(&mut rest)? };
        Ok(Record {
            class: match row[2] {
                0 => Class::Group,
                1 => Class::Array,
                2 => Class::Blob,
                3 => Class::Strings,
                4 => Class::Chunk,
                class => fail!(Corrupt, "a record has the unknown class {class}"),
            },
            generation: u32_at(row, 8),
            owner: u32_at(row, 12),
            parent: u64_at(row, 16),
            created,
            modified,
            name,
            dtype,
            ndim,
            shape,
            dims,
            attrs,
            origin,
            properties,
            index,
            flags,
            checked: carried != 0,
            stored: parse_payload(row[1], row[2], ndim, rest)?,
        })
    }

    /// When the object of a row is indexed, without a look at the rest.
    pub fn index_of(row: &[u8]) -> Result<IndexMode> {
        match row.get(3).and_then(|byte| Flags::split(*byte)) {
            Some((mode, _)) => Ok(mode),
            None => fail!(Corrupt, "a record of {} bytes has no index mode", row.len()),
        }
    }

    /// The row that `parse` reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        self.encode_to(&mut row);
        row
    }

    /// Appends the row that `parse` reads.
    pub fn encode_to(&self, row: &mut Vec<u8>) {
        let start = row.len();
        let payload = match &self.stored {
            Stored::Inline(bytes) => bytes.len(),
            Stored::Contiguous { .. } => CONTIGUOUS_BYTES,
            Stored::Chunked(chunking) => chunking.encoded_len(),
            Stored::Segmented(_) => segmented::PAYLOAD_BYTES,
        };
        let sections = self.name.len()
            + self.dtype.len()
            + self.shape.len()
            + self.dims.len()
            + self.attrs.len()
            + self.origin.len()
            + self.properties.len();
        row.reserve(HEAD_BYTES + 32 + sections + payload);
        let layout = match self.stored {
            Stored::Inline(_) => LAYOUT_INLINE,
            Stored::Contiguous { .. } => LAYOUT_CONTIGUOUS,
            Stored::Chunked(_) => LAYOUT_CHUNKED,
            Stored::Segmented(_) => LAYOUT_SEGMENTED,
        };
        let properties = if self.properties.is_empty() { 0 } else { PROPERTIES_BIT };
        row.extend_from_slice(&[
            RECORD_VERSION,
            layout,
            self.class as u8,
            self.index as u8 | self.flags.bits() | properties,
        ]);
        row.extend_from_slice(&0u32.to_le_bytes());
        row.extend_from_slice(&self.generation.to_le_bytes());
        row.extend_from_slice(&self.owner.to_le_bytes());
        row.extend_from_slice(&self.parent.to_le_bytes());
        row.extend_from_slice(&self.created.to_le_bytes());
        varint::push_signed(row, self.modified.wrapping_sub(self.created));
        row.push(self.ndim);
        row.extend_from_slice(self.shape);
        for section in [self.name.as_bytes(), self.dtype, self.dims, self.attrs, self.origin] {
            varint::push(row, section.len() as u64);
            row.extend_from_slice(section);
        }
        if !self.properties.is_empty() {
            varint::push(row, self.properties.len() as u64);
            row.extend_from_slice(self.properties);
        }
        match &self.stored {
            Stored::Inline(bytes) => row.extend_from_slice(bytes),
            Stored::Contiguous { extent, nbytes, checksum } => {
                for word in [extent.offset, extent.len, *nbytes, *checksum] {
                    row.extend_from_slice(&word.to_le_bytes());
                }
            }
            Stored::Chunked(chunking) => chunking.encode_to(row),
            Stored::Segmented(segmented) => segmented.encode_to(row),
        }
        if self.checked {
            let row = &mut row[start..];
            let checksum = checksum::of_row(row).to_le_bytes();
            row[checksum::AT_IN_ROW..][..4].copy_from_slice(&checksum);
        }
    }

    /// Whether the value is in chunks, which have rows of their own.
    pub fn is_chunked(&self) -> bool {
        matches!(self.stored, Stored::Chunked(_))
    }

    /// Whether rows of `chunks` belong to it: an array's chunks, or a file's segments.
    pub fn has_parts(&self) -> bool {
        matches!(self.stored, Stored::Chunked(_) | Stored::Segmented(_))
    }

    /// The extent that the record points to: the value's, or a file's head.
    pub fn extent(&self) -> Option<Extent> {
        self.stored.extent().map(|(extent, ..)| extent)
    }

    /// The extent that the record points to, and how many bytes of it count.
    pub fn stored_extent(&self) -> Option<(Extent, u64)> {
        self.stored.extent().map(|(extent, nbytes, _)| (extent, nbytes))
    }

    /// The dtype, decoded.
    pub fn decode_dtype(&self) -> Result<DType> {
        let (dtype, used) = DType::decode(self.dtype)?;
        if used != self.dtype.len() {
            fail!(Corrupt, "a record's dtype has {} bytes too many", self.dtype.len() - used);
        }
        Ok(dtype)
    }

    /// The shape, decoded.
    pub fn decode_shape(&self) -> Vec<u64> {
        decode_shape(self.shape)
    }

    /// The dimension names, decoded.
    pub fn decode_dims(&self) -> Result<Option<Vec<String>>> {
        decode_dims(self.dims, usize::from(self.ndim))
    }

    /// Whether dtype, shape and value agree; what `verify` asks of every record.
    pub fn check(&self) -> Result<()> {
        self.decode_dims()?;
        let nbytes = self.stored.nbytes();
        match self.class {
            Class::Group if nbytes == 0 && self.dtype.is_empty() => Ok(()),
            Class::Group => fail!(Corrupt, "a group's record holds data"),
            Class::Blob => Ok(()),
            Class::Chunk if self.name.is_empty() && self.dtype.is_empty() && self.ndim == 0 => {
                Ok(())
            }
            Class::Chunk => fail!(Corrupt, "a chunk's record has a name, a dtype or a shape"),
            Class::Strings => {
                self.decode_dtype()?;
                Ok(())
            }
            Class::Array => {
                let (dtype, shape) = (self.decode_dtype()?, self.decode_shape());
                let expected = value_bytes(&dtype, &shape)?;
                if expected != nbytes {
                    fail!(Corrupt, "dtype and shape ask for {expected} bytes, {nbytes} are stored");
                }
                if let Stored::Chunked(chunking) = self.stored {
                    check_chunks(&shape, &decode_shape(chunking.chunks), dtype.itemsize())
                        .map_err(|error| Error::new(Kind::Corrupt, error.message()))?;
                }
                Ok(())
            }
        }
    }
}

fn parse_payload(layout: u8, class: u8, ndim: u8, rest: &[u8]) -> Result<Stored<'_>> {
    match layout {
        LAYOUT_INLINE => Ok(Stored::Inline(rest)),
        LAYOUT_CONTIGUOUS => {
            if rest.len() != CONTIGUOUS_BYTES {
                fail!(Corrupt, "a contiguous record ends with {} bytes, not 32", rest.len());
            }
            let extent = Extent { offset: u64_at(rest, 0), len: u64_at(rest, 8) };
            let nbytes = u64_at(rest, 16);
            let aligned = (extent.offset | extent.len).is_multiple_of(crate::extent::LINE);
            let ends = extent.offset.checked_add(extent.len);
            if nbytes > extent.len || !aligned || ends.is_none_or(|end| end > i64::MAX as u64) {
                fail!(Corrupt, "a record's value of {nbytes} bytes does not fit {extent:?}");
            }
            Ok(Stored::Contiguous { extent, nbytes, checksum: u64_at(rest, 24) })
        }
        LAYOUT_CHUNKED if class == Class::Array as u8 => {
            Chunking::parse(ndim, rest).map(Stored::Chunked)
        }
        LAYOUT_CHUNKED => fail!(Corrupt, "a record of class {class} says that it is in chunks"),
        LAYOUT_SEGMENTED if class == Class::Blob as u8 => {
            Segmented::parse(rest).map(Stored::Segmented)
        }
        LAYOUT_SEGMENTED => fail!(Corrupt, "a record of class {class} says that it is in segments"),
        layout => fail!(
            Format,
            "a record has the layout kind {layout}, of a newer engine: upgrade engram to read it"
        ),
    }
}

/// Takes the section of properties from the front.
fn take_properties<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    match varint::take_bytes(rest) {
        Some(section) if (1..=PROPERTIES_BYTES_MAX).contains(&section.len()) => Ok(section),
        Some(section) => fail!(Corrupt, "a record's properties have {} bytes", section.len()),
        None => fail!(Corrupt, "a record's properties go beyond the row's end"),
    }
}

/// The bytes of a value of this dtype and shape; overflow is an error.
pub fn value_bytes(dtype: &DType, shape: &[u64]) -> Result<u64> {
    let mut bytes = dtype.itemsize();
    for &length in shape {
        if length > i64::MAX as u64 {
            fail!(Argument, "shape {shape:?} overflows: a dimension has at most 2^63 - 1 items");
        }
        bytes = match bytes.checked_mul(length) {
            Some(bytes) if i64::try_from(bytes).is_ok() => bytes,
            _ => fail!(Argument, "shape {shape:?} of {}-byte items overflows", dtype.itemsize()),
        };
    }
    Ok(bytes)
}

/// Appends a shape as a record's section.
pub fn encode_shape(shape: &[u64], section: &mut Vec<u8>) {
    for &length in shape {
        varint::push(section, length);
    }
}

/// The shape of a section that `take_shape` has taken.
pub fn decode_shape(mut section: &[u8]) -> Vec<u64> {
    std::iter::from_fn(|| varint::take(&mut section)).collect()
}

/// Takes the number of dimensions and the shape's section from the front.
pub(crate) fn take_shape<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&ndim, rest) = bytes.split_first()?;
    if usize::from(ndim) > NDIM_MAX {
        return None;
    }
    let mut after = rest;
    for _ in 0..ndim {
        varint::take(&mut after)?;
    }
    *bytes = after;
    Some((ndim, &rest[..rest.len() - after.len()]))
}

/// Dimension names as a record's section: each a length byte and its UTF-8.
pub fn encode_dims(dims: Option<&[String]>, ndim: usize) -> Result<Vec<u8>> {
    let Some(dims) = dims else { return Ok(Vec::new()) };
    if dims.len() != ndim {
        fail!(Argument, "dims {dims:?} name {} dimensions, the array has {ndim}", dims.len());
    }
    let mut section = Vec::with_capacity(dims.iter().map(|d| d.len() + 1).sum());
    for dim in dims {
        if !dim.is_empty() {
            engram_base::name::check_key("dimension name", dim)?;
        }
        section.push(dim.len() as u8);
        section.extend_from_slice(dim.as_bytes());
    }
    Ok(section)
}

fn decode_dims(mut section: &[u8], ndim: usize) -> Result<Option<Vec<String>>> {
    if section.is_empty() {
        return Ok(None);
    }
    let mut dims = Vec::with_capacity(ndim);
    while let Some((&len, rest)) = section.split_first() {
        let name = rest.get(..len as usize).and_then(|b| std::str::from_utf8(b).ok());
        let Some(name) = name else { fail!(Corrupt, "a record's dimension names are cut short") };
        dims.push(name.to_owned());
        section = &rest[len as usize..];
    }
    if dims.len() != ndim {
        fail!(Corrupt, "a record names {} dimensions of {ndim}", dims.len());
    }
    Ok(Some(dims))
}

/// What a new object is, before it has data.
#[derive(Clone, Debug, PartialEq)]
pub struct NewObject {
    /// Array, blob or strings.
    pub class: Class,
    /// The items' type (ignored for blobs).
    pub dtype: DType,
    /// The shape (a blob's is empty).
    pub shape: Vec<u64>,
    /// The dimensions' names.
    pub dims: Option<Vec<String>>,
    /// The attributes to begin with.
    pub attrs: Vec<(String, crate::attrs::Value)>,
    /// What an importer keeps for export, opaque here; empty for none.
    pub origin: Vec<u8>,
    /// What a file system keeps beside it (see `properties`); empty for none.
    pub properties: Vec<u8>,
    /// How its value is to lie; only arrays of fixed-size items can be chunked.
    pub layout: Layout,
}

impl NewObject {
    /// A blob without attributes.
    pub fn blob() -> Self {
        NewObject {
            class: Class::Blob,
            dtype: DType::bytes(),
            shape: Vec::new(),
            dims: None,
            attrs: Vec::new(),
            origin: Vec::new(),
            properties: Vec::new(),
            layout: Layout::Contiguous,
        }
    }
}

/// How a new object is placed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placement {
    /// Replace what has the name, in the same commit.
    pub overwrite: bool,
    /// Take space on this device alone.
    pub device: Option<u32>,
    /// When to index it; `None` for what holds in its group.
    pub index: Option<IndexMode>,
    /// Whether it is read-only from the beginning.
    pub read_only: bool,
    /// The user that it is to belong to; `None` for the one that opened the pool.
    pub owner: Option<u32>,
    /// Who sees it; `None` for those who see its group. A realm takes no notice: it has one scope.
    pub scope: Option<Scope>,
}

/// All that is known of an object without its value.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectInfo {
    /// Its identity.
    pub oid: Oid,
    /// Array, blob or strings.
    pub class: Class,
    /// The items' type.
    pub dtype: DType,
    /// The shape.
    pub shape: Vec<u64>,
    /// The dimensions' names.
    pub dims: Option<Vec<String>>,
    /// The user that made it.
    pub owner: u32,
    /// When it was made, in ns since 1970.
    pub created: i64,
    /// When its row last changed, in ns since 1970.
    pub modified: i64,
    /// The group that holds it.
    pub parent: Gid,
    /// Its name there.
    pub name: String,
    /// Counts the changes of its payload.
    pub generation: u32,
    /// The value's length in bytes.
    pub nbytes: u64,
    /// When it is indexed.
    pub index: IndexMode,
    /// Whether the value lies in the catalog, and is copied out on every access.
    pub inline: bool,
    /// How the value lies.
    pub layout: Layout,
    /// What an importer keeps for export.
    pub origin: Vec<u8>,
    /// What a file system keeps beside it; empty for none.
    pub properties: Vec<u8>,
    /// What a file's head says; `None` for any other value. A record that is read alone says how
    /// long the file was.
    pub head: Option<HeadFacts>,
    /// Who sees it.
    pub scope: Scope,
}

impl ObjectInfo {
    /// The info of a record, in a realm of this scope.
    pub fn of(oid: Oid, record: &Record<'_>, scope: Scope) -> Result<Self> {
        Ok(ObjectInfo {
            oid,
            class: record.class,
            dtype: match record.class {
                Class::Group => fail!(Corrupt, "object {oid:#x} has a group's record"),
                Class::Chunk => fail!(Corrupt, "object {oid:#x} has a chunk's record"),
                Class::Blob => DType::bytes(),
                _ => record.decode_dtype()?,
            },
            shape: record.decode_shape(),
            dims: record.decode_dims()?,
            owner: record.owner,
            created: record.created,
            modified: record.modified,
            parent: record.parent,
            name: record.name.to_owned(),
            generation: record.generation,
            nbytes: record.stored.nbytes(),
            index: record.index,
            inline: matches!(record.stored, Stored::Inline(_)),
            layout: match record.stored {
                Stored::Chunked(chunking) => chunking.layout(),
                _ => Layout::Contiguous,
            },
            origin: record.origin.to_vec(),
            properties: record.properties.to_vec(),
            head: match record.stored {
                Stored::Segmented(segmented) => Some(HeadFacts {
                    size: segmented.nbytes,
                    written: record.modified,
                    changed: record.modified,
                    accessed: record.modified,
                    space: segmented.nbytes,
                }),
                _ => None,
            },
            scope,
        })
    }
}

#[cfg(test)]
mod tests;
