//! Checksums: what `verify` compares, in a pool that was made with them.
//!
//! **What is covered.** A record carries 32 bits over its whole row, so name, attributes, shape and
//! an inline value are covered; a value that lies in an extent has a word of its own in the record,
//! 64 bits over the value's bytes. Both are XXH3: it is found out when bits have changed by
//! themselves, not when somebody has changed them on purpose.
//!
//! **Who writes them.** A record's is part of its encoding (`object`), so no change of a row can
//! forget it; a record that has none, in a pool without checksums, gets none. A value's is computed
//! over the pool's own memory once it has been filled, outside any lock, before the row commits.
//!
//! **Values that are written in place** change under their checksum, so they have none meanwhile. A
//! process that is given a writable view has pinned the extent as a *writer* first, and then takes
//! the checksum away, under the writer lock; it is there once, so this commits once. `flush` sets
//! it anew, if no lease says that somebody could still be writing. It marks the record with a
//! number of its own, computes without a lock, and puts the checksum where it finds that number
//! still: a writer that came meanwhile has taken it away. If this process has writable views
//! itself, the last of them to go does what `flush` could not. A process that dies in between
//! leaves a value that is not checked, never one that looks damaged.

use crate::random;
use twox_hash::XxHash3_64;
use twox_hash::xxhash3_64::Hasher;

/// A value's checksum word when it has none.
pub const NONE: u64 = 0;
/// Words below this one are no checksums, but numbers of those who compute one.
const LEAST: u64 = 1 << 32;

/// Where a record's own checksum stands in its row.
pub const AT_IN_ROW: usize = 4;

/// A checksum that is computed piece by piece.
pub struct RunningChecksum(Hasher);

impl Default for RunningChecksum {
    fn default() -> Self {
        Self::new()
    }
}

impl RunningChecksum {
    /// One that has no bytes yet; its word is that of an empty value.
    pub fn new() -> Self {
        RunningChecksum(Hasher::new())
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        use std::hash::Hasher as _;
        self.0.write(bytes);
    }

    /// The word for a record.
    pub fn word(&self) -> u64 {
        use std::hash::Hasher as _;
        as_word(self.0.finish())
    }
}

/// The word of a whole value.
#[cfg(test)]
pub(crate) fn of(bytes: &[u8]) -> u64 {
    as_word(XxHash3_64::oneshot(bytes))
}

fn as_word(hash: u64) -> u64 {
    if hash < LEAST { hash + LEAST } else { hash }
}

/// Whether a record's word is a checksum to compare.
pub fn is_checksum(word: u64) -> bool {
    word >= LEAST
}

/// A number for a process that computes a checksum: no checksum, and as good as nobody else's.
pub fn new_mark() -> crate::error::Result<u64> {
    let random = random::id()?;
    Ok((random >> 32).max(1))
}

/// A row's own checksum, as if it had none; never 0.
///
/// # Panics
///
/// If the row is shorter than eight bytes: a record's head has 32.
pub fn of_row(row: &[u8]) -> u32 {
    let (before, rest) = row.split_at(AT_IN_ROW);
    let before = u32::from_le_bytes(before.try_into().expect("four bytes"));
    // Multiplying by an odd number loses nothing of the bytes before.
    let hash = XxHash3_64::oneshot(&rest[4..]) as u32 ^ before.wrapping_mul(0x9E37_79B1);
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_same_word_as_the_whole() {
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n * 7) as u8).collect();
        for piece in [1, 63, 64, 4096, 99_999] {
            let mut running = RunningChecksum::new();
            bytes.chunks(piece).for_each(|chunk| running.add(chunk));
            assert_eq!(running.word(), of(&bytes), "{piece} at a time");
        }
        assert_ne!(of(&bytes), of(&bytes[1..]));
    }

    #[test]
    fn no_word_of_a_value_is_a_mark() {
        assert!(is_checksum(as_word(0)) && is_checksum(as_word(LEAST - 1)));
        assert!(is_checksum(as_word(LEAST)) && is_checksum(as_word(u64::MAX)));
        assert!(!is_checksum(NONE) && !is_checksum(new_mark().unwrap()));
    }
}
