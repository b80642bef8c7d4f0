//! Layouts: how an array's value lies in its realm.
//!
//! *Contiguous* is one piece, in C order, which can be viewed and written in place. *Chunked* is a
//! grid of boxes of one shape, each kept for itself, so that the array can grow and shrink along
//! any dimension, and each box can be encoded (see `chunked`). The record says which, and with
//! which codec; `docs/format.md` has the bytes.

use std::fmt;
use std::str::FromStr;

use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::varint;

/// The most bytes that one chunk may have before it is encoded.
pub const CHUNK_BYTES_MAX: u64 = 1 << 30;
/// Zstandard's levels, as far as they differ in anything that somebody would want.
const LEVELS: std::ops::RangeInclusive<i32> = -7..=22;
/// The level that zstd itself takes for its default.
const LEVEL: i32 = 3;

/// What a chunk should have at most, where nobody says: a second-level cache holds it.
const CHUNK_BYTES: u64 = 512 << 10;
/// What a chunk of what is small yet has, where nobody says.
const CHUNK_BYTES_LEAST: u64 = 16 << 10;
/// A dimension that is empty as yet is taken for one of so many.
const GROWING: u64 = 1024;

/// What turns a chunk's bytes into fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coder {
    /// Nothing does.
    #[default]
    None,
    /// LZ4's block format.
    Lz4,
    /// Zstandard, at a level.
    Zstd(i32),
}

/// How each chunk of an array is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codec {
    /// Whether the first bytes of all items come first, then the second ones, and so on.
    pub shuffle: bool,
    /// What comes after that.
    pub coder: Coder,
}

impl Codec {
    /// Whether a chunk is kept as it is in memory.
    pub fn is_none(self) -> bool {
        self.coder == Coder::None
    }
}

/// As `from_str` reads it.
impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shuffle {
            f.write_str("shuffle+")?;
        }
        match self.coder {
            Coder::None => f.write_str("none"),
            Coder::Lz4 => f.write_str("lz4"),
            Coder::Zstd(LEVEL) => f.write_str("zstd"),
            Coder::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

/// `none`, `lz4`, `zstd`, `zstd:9`; `shuffle+` may stand before the last three.
impl FromStr for Codec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Codec> {
        let (shuffle, name) = match text.strip_prefix("shuffle+") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let coder = match name.split_once(':') {
            None if name == "none" && !shuffle => Some(Coder::None),
            None if name == "lz4" => Some(Coder::Lz4),
            None if name == "zstd" => Some(Coder::Zstd(LEVEL)),
            Some(("zstd", level)) => {
                level.parse().ok().filter(|level| LEVELS.contains(level)).map(Coder::Zstd)
            }
            _ => None,
        };
        match coder {
            Some(coder) => Ok(Codec { shuffle, coder }),
            None => fail!(
                Argument,
                "there is no codec {text:?}: use none, lz4, zstd or zstd:LEVEL ({} to {}), the \
                 last three with shuffle+ before them if that helps",
                LEVELS.start(),
                LEVELS.end()
            ),
        }
    }
}

/// How a new object's value is to lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// In one piece.
    #[default]
    Contiguous,
    /// In chunks of one shape.
    Chunked {
        /// A chunk's shape: as many dimensions as the array has, none of them zero.
        chunks: Vec<u64>,
        /// How each is encoded.
        codec: Codec,
    },
}

/// The payload of a chunked array's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking<'a> {
    /// The whole value's length in bytes, were it in one piece.
    pub nbytes: u64,
    /// How each chunk is encoded.
    pub codec: Codec,
    /// The shape of a chunk: a varint for each dimension.
    pub chunks: &'a [u8],
}

/// The bytes before the shape.
const HEAD: usize = 11;
const SHUFFLE_BIT: u8 = 1;
const CODER_NONE: u8 = 0;
const CODER_LZ4: u8 = 1;
const CODER_ZSTD: u8 = 2;

impl<'a> Chunking<'a> {
    /// The bytes that `encode_to` appends.
    pub(crate) fn encoded_len(&self) -> usize {
        HEAD + self.chunks.len()
    }

    /// Appends the payload that `parse` reads.
    pub(crate) fn encode_to(&self, row: &mut Vec<u8>) {
        row.extend_from_slice(&self.nbytes.to_le_bytes());
        let (coder, level) = match self.codec.coder {
            Coder::None => (CODER_NONE, 0),
            Coder::Lz4 => (CODER_LZ4, 0),
            Coder::Zstd(level) => (CODER_ZSTD, level as i8),
        };
        row.push(coder);
        row.push(u8::from(self.codec.shuffle) * SHUFFLE_BIT);
        row.push(level.cast_unsigned());
        row.extend_from_slice(self.chunks);
    }

    /// Reads the payload of a record of so many dimensions.
    pub(crate) fn parse(ndim: u8, bytes: &'a [u8]) -> Result<Self> {
        let Some((head, chunks)) = bytes.split_first_chunk::<HEAD>() else {
            fail!(Corrupt, "a chunked record ends with {} bytes", bytes.len())
        };
        let nbytes = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
        let level = i32::from(head[10].cast_signed());
        let coder = match (head[8], level) {
            (CODER_NONE, 0) => Coder::None,
            (CODER_LZ4, 0) => Coder::Lz4,
            (CODER_ZSTD, level) if LEVELS.contains(&level) => Coder::Zstd(level),
            (CODER_NONE | CODER_LZ4 | CODER_ZSTD, level) => {
                fail!(Corrupt, "a chunked record says level {level} of codec {}", head[8])
            }
            (coder, _) => fail!(
                Format,
                "a record has the codec {coder}, of a newer engine: upgrade engram to read it"
            ),
        };
        if head[9] & !SHUFFLE_BIT != 0 {
            fail!(
                Format,
                "a record has the codec flags {:#x}, of a newer engine: upgrade engram to read it",
                head[9]
            );
        }
        let (mut rest, mut lengths) = (chunks, 0_usize);
        while let Some(length) = varint::take(&mut rest) {
            if length == 0 || length > CHUNK_BYTES_MAX {
                fail!(Corrupt, "a chunked record has chunks of length {length}");
            }
            lengths += 1;
        }
        if !rest.is_empty() || lengths != usize::from(ndim) || ndim == 0 {
            fail!(Corrupt, "a chunked record of {ndim} dimensions has chunks of {lengths}");
        }
        let shuffle = head[9] & SHUFFLE_BIT != 0;
        Ok(Chunking { nbytes, codec: Codec { shuffle, coder }, chunks })
    }

    /// The layout, for those who ask.
    pub fn layout(&self) -> Layout {
        Layout::Chunked { chunks: crate::object::decode_shape(self.chunks), codec: self.codec }
    }
}

/// Chunks of much the same length in all dimensions, of a size that serves well. Those of what is
/// small yet are longer than it is, along the first dimension: it may be appended to.
pub fn chunks_for(shape: &[u64], item: u64) -> Vec<u64> {
    let mut chunks: Vec<u64> =
        shape.iter().map(|length| if *length == 0 { GROWING } else { *length }).collect();
    let bytes = chunks.iter().fold(item.max(1), |bytes, length| bytes.saturating_mul(*length));
    if let Some(first) = chunks.first_mut()
        && bytes < CHUNK_BYTES_LEAST
    {
        *first *= CHUNK_BYTES_LEAST / bytes;
    }
    loop {
        let bytes = chunks.iter().fold(item.max(1), |bytes, length| bytes.saturating_mul(*length));
        let longest = (0..chunks.len()).rev().max_by_key(|dim| chunks[*dim]);
        match longest {
            Some(dim) if bytes > CHUNK_BYTES && chunks[dim] > 1 => {
                chunks[dim] = chunks[dim].div_ceil(2);
            }
            _ => return chunks,
        }
    }
}

/// The bytes of one chunk before it is encoded, if such chunks can be.
pub(crate) fn chunk_bytes(item: u64, chunks: &[u64]) -> Option<u64> {
    let product = chunks.iter().try_fold(item, |bytes, length| bytes.checked_mul(*length));
    product.filter(|bytes| (1..=CHUNK_BYTES_MAX).contains(bytes))
}

/// Refuses chunks that an array of this shape, of items of so many bytes, cannot have.
pub fn check_chunks(shape: &[u64], chunks: &[u64], item: u64) -> Result<()> {
    if shape.is_empty() {
        fail!(Argument, "an array without dimensions has one item: it cannot be in chunks");
    }
    if chunks.len() != shape.len() || chunks.contains(&0) {
        fail!(
            Argument,
            "chunks {chunks:?} are none for shape {shape:?}: give one length, of at least 1, for \
             each dimension"
        );
    }
    if chunk_bytes(item, chunks).is_none() {
        fail!(
            Argument,
            "chunks {chunks:?} of {item}-byte items cannot be: a chunk has 1 to {CHUNK_BYTES_MAX} \
             bytes; 64 KiB to 4 MiB serve best"
        );
    }
    for (dim, (length, chunk)) in shape.iter().zip(chunks).enumerate() {
        if length.div_ceil(*chunk) > u64::from(u32::MAX) {
            fail!(
                Argument,
                "dimension {dim} of shape {shape:?} has {} chunks of {chunk}: at most 2^32 - 1 \
                 fit, make them longer",
                length.div_ceil(*chunk)
            );
        }
    }
    Ok(())
}

/// What to say of an operation that only contiguous values have.
pub fn chunked_has_no(name: &str, what: &str) -> Error {
    Error::new(
        Kind::Argument,
        format!(
            "{name:?} is chunked, so its value is in no one piece and has no {what}: read and \
             write boxes of it, or store it contiguous (without chunks)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        CHUNK_BYTES, CHUNK_BYTES_LEAST, Chunking, Codec, Coder, check_chunks, chunk_bytes,
        chunks_for,
    };
    use engram_base::error::Kind;

    proptest! {
        #[test]
        fn chunks_that_nobody_has_chosen_can_be_and_are_of_a_size_that_serves(
            shape in prop::collection::vec(prop_oneof![0..9u64, 0..1u64 << 20], 1..5),
            item in prop_oneof![1..64u64, Just(1 << 20)],
        ) {
            let chunks = chunks_for(&shape, item);
            let bytes = chunk_bytes(item, &chunks).unwrap();
            prop_assert!(bytes <= CHUNK_BYTES.max(item), "{chunks:?}");
            let whole = shape.iter().fold(item, |bytes, length| bytes.saturating_mul(*length));
            if (1..CHUNK_BYTES_LEAST).contains(&whole) {
                let room = CHUNK_BYTES_LEAST / 2 + 1..=CHUNK_BYTES_LEAST;
                prop_assert!(room.contains(&bytes), "{bytes} bytes, to be appended to");
            }
            prop_assert!(check_chunks(&shape, &chunks, item).is_ok(), "{chunks:?}");
        }
    }

    #[test]
    fn chunks_that_cannot_be_are_refused() {
        let refused = |shape: &[u64], chunks: &[u64], item| {
            check_chunks(shape, chunks, item).map_err(|error| error.kind()) == Err(Kind::Argument)
        };
        assert!(refused(&[], &[], 8), "no dimension to cut");
        assert!(refused(&[4, 4], &[4], 8) && refused(&[4], &[0], 8));
        assert!(refused(&[4], &[(1 << 30) + 1], 1) && !refused(&[4], &[1 << 30], 1));
        assert!(refused(&[4], &[1 << 40], u64::MAX), "more bytes than can be counted");
        let most = u64::from(u32::MAX);
        assert!(refused(&[most * 2 + 1], &[2], 1) && !refused(&[most * 2], &[2], 1));
    }

    #[test]
    fn a_codec_is_read_as_it_is_shown_and_others_are_refused_by_name() {
        for text in ["none", "lz4", "zstd", "zstd:9", "zstd:-7", "shuffle+lz4", "shuffle+zstd:22"] {
            assert_eq!(text.parse::<Codec>().unwrap().to_string(), text);
        }
        for text in ["", "gzip", "zstd:23", "zstd:", "lz4:1", "shuffle", "shuffle+none", "LZ4"] {
            let error = text.parse::<Codec>().unwrap_err();
            assert!(error.kind() == Kind::Argument && error.message().contains(text), "{text}");
        }
    }

    #[test]
    fn a_payload_is_read_as_it_was_written_and_a_damaged_one_is_refused() {
        let codec = Codec { shuffle: true, coder: Coder::Zstd(-3) };
        let chunking = Chunking { nbytes: 1 << 40, codec, chunks: &[64, 0x81, 0x01] };
        let mut row = Vec::new();
        chunking.encode_to(&mut row);
        assert_eq!(row.len(), chunking.encoded_len());
        assert_eq!(Chunking::parse(2, &row), Ok(chunking));
        for ndim in [0, 1, 3] {
            assert_eq!(Chunking::parse(ndim, &row).unwrap_err().kind(), Kind::Corrupt, "{ndim}");
        }
        // 258 lengths are not two, though a byte counts no further than 255.
        let many = Chunking { chunks: &[1; 258], ..chunking };
        let mut other = Vec::new();
        many.encode_to(&mut other);
        assert_eq!(Chunking::parse(2, &other).unwrap_err().kind(), Kind::Corrupt);
        for (at, byte, kind) in [
            (8, 9, Kind::Format),
            (9, 2, Kind::Format),
            (10, 99, Kind::Corrupt),
            (11, 0, Kind::Corrupt),
        ] {
            let mut other = row.clone();
            other[at] = byte;
            assert_eq!(Chunking::parse(2, &other).unwrap_err().kind(), kind, "byte {at}");
        }
    }
}
