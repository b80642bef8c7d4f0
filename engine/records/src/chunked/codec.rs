//! Codecs: a chunk's bytes, encoded and decoded.
//!
//! A chunk that does not become shorter is kept as it is, which its length says. So a decoder knows
//! how many bytes it has to give: it writes into a buffer of just that size, whatever the bytes
//! say, and anything else than filling it is `CorruptError`.
//!
//! **Its check.** Where there is a codec, every chunk ends with 4 bytes of XXH3 over those before:
//! one bit that changes in what is encoded changes many values, and coders often do not see it.
//! Without a codec there is none, as contiguous arrays have none.
//!
//! **Shuffle** puts the first bytes of all items together, then the second ones: neighbours in a
//! smooth field have the same sign and exponent, and coders find runs of equal bytes.

use crate::layout::{Codec, Coder};
use engram_base::checksum::RunningChecksum;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;

/// The length of a chunk's check.
pub const CHECK: usize = 4;

/// The check of a chunk, by the word over its bytes.
pub fn check_of(word: u64) -> [u8; CHECK] {
    (word as u32).to_le_bytes()
}

fn check_over(encoded: &[u8]) -> [u8; CHECK] {
    let mut running = RunningChecksum::new();
    running.add(encoded);
    check_of(running.word())
}

/// A chunk without its check, which must be that of its bytes.
pub fn checked(stored: &[u8]) -> Result<&[u8]> {
    match stored.split_last_chunk::<CHECK>() {
        Some((encoded, check)) if *check == check_over(encoded) => Ok(encoded),
        _ => fail!(Corrupt, "its bytes are not those of its check"),
    }
}

/// One thread's codec, with what it needs again and again.
pub struct Worker {
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
    /// A worker for chunks of items of so many bytes each. It keeps its buffers from one chunk to
    /// the next, so one thread uses it for many.
    pub fn new(codec: Codec, item: u64) -> Worker {
        Worker {
            codec,
            item: item as usize,
            shuffled: Vec::new(),
            encoded: Vec::new(),
            zstd: None,
            unzstd: None,
        }
    }

    /// A chunk as it is kept, with its check; `None` without a codec: as it is.
    pub fn encode(&mut self, chunk: &[u8]) -> Result<Option<&[u8]>> {
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
        let len = len.min(chunk.len());
        grow(&mut self.encoded, len + CHECK);
        if len == chunk.len() {
            self.encoded[..len].copy_from_slice(chunk);
        }
        let check = check_over(&self.encoded[..len]);
        self.encoded[len..len + CHECK].copy_from_slice(&check);
        Ok(Some(&self.encoded[..len + CHECK]))
    }

    /// Decodes a chunk into `chunk`, which has just its length.
    pub fn decode(&mut self, stored: &[u8], chunk: &mut [u8]) -> Result<()> {
        let stored = if self.codec.is_none() { stored } else { checked(stored)? };
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
    let done = match item {
        2 => shuffle_of::<2, 2>(from, to),
        4 => shuffle_of::<4, 4>(from, to),
        8 => shuffle_of::<8, 8>(from, to),
        16 => shuffle_of::<16, 8>(from, to),
        _ => 0,
    };
    let items = from.len() / item;
    for (byte, plane) in to.chunks_exact_mut(items).enumerate() {
        let from = from[byte..].iter().step_by(item).skip(done);
        for (to, from) in plane[done..].iter_mut().zip(from) {
            *to = *from;
        }
    }
}

/// Undoes `shuffle`.
fn unshuffle(from: &[u8], to: &mut [u8], item: usize) {
    let done = match item {
        2 => unshuffle_of::<2, 2>(from, to),
        4 => unshuffle_of::<4, 4>(from, to),
        8 => unshuffle_of::<8, 8>(from, to),
        16 => unshuffle_of::<16, 8>(from, to),
        _ => 0,
    };
    let items = from.len() / item;
    for (byte, plane) in from.chunks_exact(items).enumerate() {
        let to = to[byte..].iter_mut().step_by(item).skip(done);
        for (from, to) in plane[done..].iter().zip(to) {
            *to = *from;
        }
    }
}

/// Transposes eight words as a square of bytes.
fn transpose(rows: &mut [u64; 8]) {
    let steps: [(usize, u64); 3] =
        [(4, 0x0000_0000_ffff_ffff), (2, 0x0000_ffff_0000_ffff), (1, 0x00ff_00ff_00ff_00ff)];
    for (far, mask) in steps {
        for at in (0..8).filter(|at| at & far == 0) {
            let swapped = ((rows[at] >> (8 * far)) ^ rows[at + far]) & mask;
            rows[at + far] ^= swapped;
            rows[at] ^= swapped << (8 * far);
        }
    }
}

/// `WORD` bytes at once of items of `ITEM`, which are turned in squares: as many items of each
/// square stand beside each other as make its rows 8 bytes long. How many items are done.
fn shuffle_of<const ITEM: usize, const WORD: usize>(from: &[u8], to: &mut [u8]) -> usize {
    let (items, beside) = (from.len() / ITEM, 8 / WORD);
    for (square, group) in from.chunks_exact(8 * beside * ITEM).enumerate() {
        for part in (0..ITEM).step_by(WORD) {
            let mut rows = [0; 8];
            for (at, row) in rows.iter_mut().enumerate() {
                let mut bytes = [0; 8];
                for (next, word) in bytes.chunks_exact_mut(WORD).enumerate() {
                    word.copy_from_slice(&group[(8 * next + at) * ITEM + part..][..WORD]);
                }
                *row = u64::from_le_bytes(bytes);
            }
            transpose(&mut rows);
            for (at, row) in rows.into_iter().enumerate() {
                let (next, byte) = (at / WORD, part + at % WORD);
                let place = byte * items + 8 * (square * beside + next);
                to[place..][..8].copy_from_slice(&row.to_le_bytes());
            }
        }
    }
    items / (8 * beside) * (8 * beside)
}

/// Undoes `shuffle_of`.
fn unshuffle_of<const ITEM: usize, const WORD: usize>(from: &[u8], to: &mut [u8]) -> usize {
    let (items, beside) = (to.len() / ITEM, 8 / WORD);
    for (square, group) in to.chunks_exact_mut(8 * beside * ITEM).enumerate() {
        for part in (0..ITEM).step_by(WORD) {
            let mut rows = [0; 8];
            for (at, row) in rows.iter_mut().enumerate() {
                let (next, byte) = (at / WORD, part + at % WORD);
                let place = byte * items + 8 * (square * beside + next);
                *row = u64::from_le_bytes(from[place..][..8].try_into().expect("eight bytes"));
            }
            transpose(&mut rows);
            for (at, row) in rows.into_iter().enumerate() {
                for (next, word) in row.to_le_bytes().chunks_exact(WORD).enumerate() {
                    group[(8 * next + at) * ITEM + part..][..WORD].copy_from_slice(word);
                }
            }
        }
    }
    items / (8 * beside) * (8 * beside)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CHECK, Worker};
    use crate::layout::Codec;
    use engram_base::error::Kind;

    fn codecs() -> impl Iterator<Item = Codec> {
        ["none", "lz4", "zstd:1", "shuffle+lz4", "shuffle+zstd"]
            .into_iter()
            .filter(|text| !(cfg!(miri) && text.contains("zstd"))) // C, which miri does not run
            .map(|text| text.parse().unwrap())
    }

    /// How many items a chunk has, at most. Miri takes a thousand times as long for each.
    const ITEMS: usize = if cfg!(miri) { 20 } else { 2000 };

    #[test]
    fn shuffled_bytes_are_the_first_of_all_items_then_the_second() {
        for item in 1..20 {
            for items in [1, 7, 8, 9, 31, 32, 33, 100].into_iter().take_while(|n| *n < ITEMS) {
                let chunk: Vec<u8> =
                    (0..items * item).map(|at| (at * 7 + at / 256) as u8).collect();
                let (mut shuffled, mut back) = (vec![0; chunk.len()], vec![0; chunk.len()]);
                super::shuffle(&chunk, &mut shuffled, item);
                let places = (0..item).flat_map(|byte| (0..items).map(move |at| at * item + byte));
                let naive: Vec<u8> = places.map(|place| chunk[place]).collect();
                assert!(shuffled == naive, "{items} items of {item}");
                super::unshuffle(&shuffled, &mut back, item);
                assert!(back == chunk, "{items} items of {item}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back_and_is_longer_by_its_check_at_most(
            seed in prop::collection::vec(0u8..4, 1..64), items in 1..ITEMS, item in 1u64..20,
        ) {
            let len = items * item as usize;
            let chunk: Vec<u8> = seed.iter().copied().cycle().take(len).collect();
            for codec in codecs() {
                let mut worker = Worker::new(codec, item);
                let (stored, most) = match worker.encode(&chunk).unwrap() {
                    Some(encoded) => (encoded.to_vec(), len + CHECK),
                    None => (chunk.clone(), len),
                };
                let mut back = vec![0xff; len];
                worker.decode(&stored, &mut back).unwrap();
                prop_assert!(back == chunk && stored.len() <= most, "{codec}");
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
    fn a_damaged_chunk_is_refused() {
        let chunk: Vec<u8> = (0..4 * ITEMS as u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for codec in codecs().filter(|codec| !codec.is_none()) {
            let mut worker = Worker::new(codec, 4);
            let stored = worker.encode(&chunk).unwrap().expect("it is shorter").to_vec();
            for at in (0..stored.len()).step_by(stored.len() / 97 + 1) {
                let mut damaged = stored.clone();
                damaged[at] ^= 0x55;
                let mut back = vec![0; chunk.len()];
                let refused = worker.decode(&damaged, &mut back).unwrap_err();
                assert_eq!(refused.kind(), Kind::Corrupt, "{codec}, byte {at}");
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
