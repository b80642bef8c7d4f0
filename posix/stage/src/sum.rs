//! Sums of files: XXH3-128 always, SHA-256 where it is asked for.

use std::fmt::{self, Write as _};

use sha2::{Digest, Sha256};
use twox_hash::xxhash3_128::Hasher;

/// What a file's bytes sum up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// XXH3, 128 bits, seed 0: as `xxhsum -H2` prints it.
    pub xxh3: u128,
    /// SHA-256, if it was asked for.
    pub sha256: Option<[u8; 32]>,
}

impl Sum {
    /// The sum of bytes that lie in one piece.
    pub fn of(bytes: &[u8], with_sha256: bool) -> Sum {
        Sum {
            xxh3: Hasher::oneshot(bytes),
            sha256: with_sha256.then(|| Sha256::digest(bytes).into()),
        }
    }

    /// XXH3-128 as 32 hexadecimal digits.
    pub fn xxh3_text(&self) -> String {
        format!("{:032x}", self.xxh3)
    }

    /// SHA-256 as 64 hexadecimal digits.
    pub fn sha256_text(&self) -> Option<String> {
        let told = |bytes: [u8; 32]| {
            bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
                // Writing to a string does not fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        self.sha256.map(told)
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.xxh3_text())
    }
}

/// A sum of bytes that come piece by piece, in order.
#[derive(Clone)]
pub struct RunningSum {
    bytes: u64,
    xxh3: Hasher,
    sha256: Option<Sha256>,
}

impl RunningSum {
    /// The sum of nothing yet.
    pub fn new(with_sha256: bool) -> Self {
        RunningSum { bytes: 0, xxh3: Hasher::new(), sha256: with_sha256.then(Sha256::new) }
    }

    /// The next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.xxh3.write(bytes);
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
    }

    /// The next piece, which is zeros.
    pub fn add_zeros(&mut self, mut count: u64) {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        while count > 0 {
            let piece = count.min(ZEROS.len() as u64);
            self.add(&ZEROS[..piece as usize]);
            count -= piece;
        }
    }

    /// How many bytes there were so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The sum of what there was so far.
    pub fn so_far(&self) -> Sum {
        self.clone().done()
    }

    /// The sum of all of it.
    pub fn done(self) -> Sum {
        Sum {
            xxh3: self.xxh3.finish_128(),
            sha256: self.sha256.map(|sha256| sha256.finalize().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{RunningSum, Sum};

    #[test]
    fn sums_are_those_that_other_programs_print() {
        // `printf hello | xxhsum -H2` and `printf hello | sha256sum`.
        let sum = Sum::of(b"hello", true);
        assert_eq!(sum.xxh3_text(), "b5e9c1ad071b3e7fc779cfaa5e523818");
        let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(sum.sha256_text().as_deref(), Some(sha256));
        assert_eq!(Sum::of(b"", false).xxh3_text(), "99aa06d3014798d86001c324468d497f");
    }

    proptest! {
        #[test]
        fn pieces_sum_up_to_what_the_whole_does(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..8),
            zeros in 0_u64..200_000,
        ) {
            let mut running = RunningSum::new(true);
            for piece in &pieces {
                running.add(piece);
            }
            running.add_zeros(zeros);
            let mut whole = pieces.concat();
            whole.resize(whole.len() + zeros as usize, 0);
            prop_assert_eq!(running.done(), Sum::of(&whole, true));
        }
    }
}
