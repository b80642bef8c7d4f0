//! Codecs: a chunk's bytes, encoded and decoded.
//!
//! What does not become shorter is kept as it is, which its length says: an encoded chunk is always
//! shorter than the chunk. So a chunk never takes more than its own bytes, and a decoder knows how
//! many it has to give: it writes into a buffer of just that size, whatever the bytes say, and
//! anything else than filling it is `CorruptError`.
//!
//! **Shuffle** puts the first bytes of all items together, then the second ones: neighbours in a
//! smooth field have the same sign and exponent, and coders find runs of equal bytes.

use crate::error::{Error, Kind, Result};
use crate::fail;
use crate::layout::{Codec, Coder};

/// One thread's codec, with what it needs again and again.
pub(crate) struct Worker {
    codec: Codec,
    item: usize,
    /// The shuffled chunk.
    shuffled: Vec<u8>,
    /// The encoded chunk.
    encoded: Vec<u8>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    unzstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Worker {
    pub(crate) fn new(codec: Codec, item: u64) -> Worker {
        Worker {
            codec,
            item: item as usize,
            shuffled: Vec::new(),
            encoded: Vec::new(),
            zstd: None,
            unzstd: None,
        }
    }

    /// A chunk encoded; `None` if that is not shorter.
    pub(crate) fn encode(&mut self, chunk: &[u8]) -> Result<Option<&[u8]>> {
        if self.codec.is_none() {
            return Ok(None);
        }
        let source = if self.codec.shuffle && self.item > 1 {
            self.shuffled.resize(chunk.len(), 0);
            shuffle(chunk, &mut self.shuffled, self.item);
            &self.shuffled
        } else {
            chunk
        };
        let failed = |what: String| Error::new(Kind::Os, format!("encoding a chunk: {what}"));
        let len = match self.codec.coder {
            Coder::None => return Ok(None),
            Coder::Lz4 => {
                let most = lz4_flex::block::get_maximum_output_size(source.len());
                grow(&mut self.encoded, most);
                lz4_flex::block::compress_into(source, &mut self.encoded)
                    .map_err(|e| failed(e.to_string()))?
            }
            Coder::Zstd(level) => {
                let most = zstd::zstd_safe::compress_bound(source.len());
                grow(&mut self.encoded, most);
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(
                        zstd::bulk::Compressor::new(level).map_err(|e| failed(e.to_string()))?,
                    ),
                };
                zstd.compress_to_buffer(source, &mut self.encoded[..])
                    .map_err(|e| failed(e.to_string()))?
            }
        };
        Ok((len < chunk.len()).then(|| &self.encoded[..len]))
    }

    /// Decodes a chunk into `chunk`, which has just its length.
    pub(crate) fn decode(&mut self, stored: &[u8], chunk: &mut [u8]) -> Result<()> {
        if stored.len() == chunk.len() {
            chunk.copy_from_slice(stored);
            return Ok(());
        }
        if stored.len() > chunk.len() || self.codec.is_none() {
            fail!(Corrupt, "{} bytes are stored for a chunk of {}", stored.len(), chunk.len());
        }
        let shuffled = self.codec.shuffle && self.item > 1;
        if shuffled {
            self.shuffled.resize(chunk.len(), 0);
        }
        let target = if shuffled { &mut self.shuffled[..] } else { &mut *chunk };
        let whole = target.len();
        let filled = match self.codec.coder {
            Coder::None => unreachable!("asked for above"),
            Coder::Lz4 => {
                lz4_flex::block::decompress_into(stored, target).map_err(|e| e.to_string())
            }
            Coder::Zstd(_) => {
                let unzstd = match &mut self.unzstd {
                    Some(unzstd) => unzstd,
                    none => {
                        let made = zstd::bulk::Decompressor::new();
                        none.insert(made.map_err(|e| Error::new(Kind::Os, e.to_string()))?)
                    }
                };
                unzstd.decompress_to_buffer(stored, target).map_err(|e| e.to_string())
            }
        };
        match filled {
            Ok(filled) if filled == whole => {}
            Ok(filled) => fail!(Corrupt, "it decodes to {filled} bytes, not to {whole}"),
            Err(what) => fail!(Corrupt, "it does not decode: {what}"),
        }
        if shuffled {
            unshuffle(&self.shuffled, chunk, self.item);
        }
        Ok(())
    }
}

fn grow(buffer: &mut Vec<u8>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
}

/// Puts the first bytes of all items together, then the second ones, and so on.
fn shuffle(from: &[u8], to: &mut [u8], item: usize) {
    match item {
        2 => shuffle_of::<2>(from, to),
        4 => shuffle_of::<4>(from, to),
        8 => shuffle_of::<8>(from, to),
        16 => shuffle_of::<16>(from, to),
        _ => {
            let items = from.len() / item;
            for (byte, plane) in to.chunks_exact_mut(items).enumerate() {
                for (to, from) in plane.iter_mut().zip(from[byte..].iter().step_by(item)) {
                    *to = *from;
                }
            }
        }
    }
}

/// Items that are turned at once: a cache line of each plane.
const TURN: usize = 64;

fn shuffle_of<const ITEM: usize>(from: &[u8], to: &mut [u8]) {
    let items = from.len() / ITEM;
    let (whole, rest) = from.as_chunks::<ITEM>();
    debug_assert!(rest.is_empty());
    for (turn, group) in whole.chunks(TURN).enumerate() {
        for byte in 0..ITEM {
            let plane = &mut to[byte * items + turn * TURN..][..group.len()];
            for (to, from) in plane.iter_mut().zip(group) {
                *to = from[byte];
            }
        }
    }
}

/// Undoes `shuffle`.
fn unshuffle(from: &[u8], to: &mut [u8], item: usize) {
    match item {
        2 => unshuffle_of::<2>(from, to),
        4 => unshuffle_of::<4>(from, to),
        8 => unshuffle_of::<8>(from, to),
        16 => unshuffle_of::<16>(from, to),
        _ => {
            let items = from.len() / item;
            for (byte, plane) in from.chunks_exact(items).enumerate() {
                for (from, to) in plane.iter().zip(to[byte..].iter_mut().step_by(item)) {
                    *to = *from;
                }
            }
        }
    }
}

fn unshuffle_of<const ITEM: usize>(from: &[u8], to: &mut [u8]) {
    let items = to.len() / ITEM;
    let (whole, rest) = to.as_chunks_mut::<ITEM>();
    debug_assert!(rest.is_empty());
    for (turn, group) in whole.chunks_mut(TURN).enumerate() {
        for byte in 0..ITEM {
            let plane = &from[byte * items + turn * TURN..][..group.len()];
            for (from, to) in plane.iter().zip(group.iter_mut()) {
                to[byte] = *from;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Worker;
    use crate::error::Kind;
    use crate::layout::Codec;

    fn codecs() -> impl Iterator<Item = Codec> {
        ["none", "lz4", "zstd:1", "shuffle+lz4", "shuffle+zstd"]
            .into_iter()
            .map(|text| text.parse().unwrap())
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back_and_is_never_longer(
            seed in prop::collection::vec(0u8..4, 1..64), items in 1usize..2000, item in 1u64..20,
        ) {
            let len = items * item as usize;
            let chunk: Vec<u8> = seed.iter().copied().cycle().take(len).collect();
            for codec in codecs() {
                let mut worker = Worker::new(codec, item);
                let stored = match worker.encode(&chunk).unwrap() {
                    Some(shorter) => shorter.to_vec(),
                    None => chunk.clone(),
                };
                let mut back = vec![0xff; len];
                worker.decode(&stored, &mut back).unwrap();
                prop_assert!(back == chunk && stored.len() <= len, "{codec}");
            }
        }

        #[test]
        fn bytes_of_any_kind_are_decoded_or_refused(
            stored in prop::collection::vec(any::<u8>(), 0..300), len in 1usize..400,
        ) {
            for codec in codecs() {
                let mut chunk = vec![0; len];
                if let Err(error) = Worker::new(codec, 4).decode(&stored, &mut chunk) {
                    prop_assert_eq!(error.kind(), Kind::Corrupt);
                }
            }
        }
    }

    #[test]
    fn a_damaged_chunk_is_refused_or_other_bytes_and_never_more() {
        let chunk: Vec<u8> = (0..8192u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for codec in codecs().filter(|codec| !codec.is_none()) {
            let mut worker = Worker::new(codec, 4);
            let stored = worker.encode(&chunk).unwrap().expect("it is shorter").to_vec();
            for at in (0..stored.len()).step_by(stored.len() / 97 + 1) {
                let mut damaged = stored.clone();
                damaged[at] ^= 0x55;
                let mut back = vec![0; chunk.len()];
                if let Err(error) = worker.decode(&damaged, &mut back) {
                    assert_eq!(error.kind(), Kind::Corrupt, "{codec}, byte {at}");
                }
            }
            let mut back = vec![0; chunk.len()];
            let cut = worker.decode(&stored[..stored.len() / 2], &mut back).unwrap_err();
            assert_eq!(cut.kind(), Kind::Corrupt, "{codec}");
            // A chunk of fewer items is no place for one of more.
            let mut back = vec![0; chunk.len() - 4];
            assert_eq!(worker.decode(&stored, &mut back).unwrap_err().kind(), Kind::Corrupt);
        }
    }
}
