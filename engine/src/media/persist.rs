//! Copying and zeroing at the speed of the memory.
//!
//! A store that goes through the cache first reads the line that it is about to overwrite, so a
//! copy moves three bytes for each byte copied, not two. Non-temporal stores leave out that read,
//! and leave the cache to whoever computes. They pay where the destination is not in the cache, and
//! cost where it is, or is read next. Measured (Zen 5, 2 cores, 1 MiB of L2, 32 MiB of L3, warm
//! mappings; GB/s of glibc's memcpy against non-temporal AVX2):
//!
//! | source / destination | 256 KiB | 1 MiB | 4 MiB | 8 MiB | 16 MiB | 64 MiB |
//! |---|---|---|---|---|---|---|
//! | cached / not | 30, 37 | 20, 35 | 26, 39 | 26, 38 | 25, 37 | |
//! | cached / not, then read | 22, 18 | 19, 17 | 18, 18 | 18, 18 | 14, 16 | |
//! | both cached | 124, 39 | 52, 40 | 57, 39 | 55, 39 | 32, 37 | |
//! | neither | 22, 26 | 20, 27 | 20, 27 | 20, 27 | 20, 27 | 20, 27 |
//! | neither, two processes at once | | 9, 19 | | 10, 16 | | 9, 15 |
//!
//! Hence [`STREAM`]: below it memcpy never loses much and often wins; above it the stores that pass
//! the cache by do. AVX-512 copies no faster than AVX2 (26 against 27 at 64 MiB), so there is no
//! such copy. Zeroing reads nothing, and `memset` streams by itself where that pays: stores of our
//! own gave 93 against 93 at 64 MiB, 77 against 45 at 8 MiB out of the cache and 55 against 132 in
//! it, so `memset` it is.
//!
//! Non-temporal stores are not ordered with others. [`copy`] ends with a fence, so that what it
//! wrote is seen by whoever sees anything that its caller writes afterwards, and so that a medium
//! whose durability is a fence away (fsdax) has it.

/// From this many bytes on, stores pass the cache by.
pub const STREAM: usize = 4 << 20;

/// Copies `len` bytes, whatever the alignment. What was copied is ordered before whatever the
/// caller writes next.
///
/// # Safety
///
/// As `ptr::copy_nonoverlapping`: `src` is readable and `dst` writable for `len` bytes, and the two
/// do not overlap.
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= STREAM && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 is there; the rest is the caller's contract.
        return unsafe { x86::copy_avx2(dst, src, len) };
    }
    // SAFETY: the caller's contract is this call's.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, len) }
}

/// Zeroes `len` bytes, whatever the alignment. The zeros are ordered before whatever the caller
/// writes next.
///
/// # Safety
///
/// As `ptr::write_bytes`: `dst` is writable for `len` bytes.
pub unsafe fn zero(dst: *mut u8, len: usize) {
    // SAFETY: the caller's contract is this call's.
    unsafe { std::ptr::write_bytes(dst, 0, len) }
}

/// The stores that pass the cache by.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    use std::ptr;

    /// A cache line, to which the stores are aligned.
    const LINE: usize = 64;
    /// What one turn of the loop moves.
    const BLOCK: usize = 2 * LINE;

    /// # Safety
    ///
    /// As [`super::copy`], on a processor with AVX2.
    #[target_feature(enable = "avx2")]
    #[expect(clippy::cast_ptr_alignment, reason = "stores are aligned; loads need not be")]
    pub(super) unsafe fn copy_avx2(dst: *mut u8, src: *const u8, len: usize) {
        // A head up to the first line's start, whole blocks, and a tail.
        let head = dst.align_offset(LINE).min(len);
        let body = (len - head) / BLOCK * BLOCK;
        // SAFETY: head, body and tail are disjoint pieces of `len` bytes, so all stay within what
        // the caller vouches for; the body's stores are aligned, as they need to be, since it
        // begins at a line and steps by 32; the loads need no alignment.
        unsafe {
            ptr::copy_nonoverlapping(src, dst, head);
            let mut at = head;
            while at < head + body {
                let from = src.add(at).cast::<__m256i>();
                let to = dst.add(at).cast::<__m256i>();
                let (a, b) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
                let (c, d) = (_mm256_loadu_si256(from.add(2)), _mm256_loadu_si256(from.add(3)));
                _mm256_stream_si256(to, a);
                _mm256_stream_si256(to.add(1), b);
                _mm256_stream_si256(to.add(2), c);
                _mm256_stream_si256(to.add(3), d);
                at += BLOCK;
            }
            ptr::copy_nonoverlapping(src.add(at), dst.add(at), len - at);
            _mm_sfence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{STREAM, copy, zero};

    /// Lengths around every boundary: blocks, lines, and the one where streaming begins.
    const LENGTHS: [usize; 10] =
        [0, 1, 63, 64, 127, 4095, STREAM - 1, STREAM, STREAM + 1, STREAM + 4096 + 77];

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 + i / 251) as u8 | 1).collect()
    }

    /// Runs `write` on each of a few misalignments of each length, between bytes that must stay.
    fn check(write: unsafe fn(*mut u8, *const u8, usize), expected: impl Fn(&[u8]) -> Vec<u8>) {
        for len in LENGTHS {
            for (to, from) in [(0, 0), (1, 0), (0, 1), (63, 5), (64, 31), (17, 17)] {
                let source = pattern(from + len);
                let mut bytes = vec![0xEE; to + len + 200];
                // SAFETY: both vectors are `len` bytes longer than where each begins.
                unsafe { write(bytes.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
                let what = format!("{len} bytes from {from} to {to}");
                assert!(bytes[..to].iter().all(|&b| b == 0xEE), "before {what}");
                assert!(bytes[to..to + len] == expected(&source[from..]), "{what}");
                assert!(bytes[to + len..].iter().all(|&b| b == 0xEE), "after {what}");
            }
        }
    }

    #[test]
    fn copy_is_exact_at_every_alignment() {
        check(copy, <[u8]>::to_vec);
    }

    #[test]
    fn zero_is_exact_at_every_alignment() {
        // SAFETY: `check` passes writable bytes.
        check(|dst, _, len| unsafe { zero(dst, len) }, |bytes| vec![0; bytes.len()]);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_stream_of_any_length_is_exact() {
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 is there; `check` passes readable and writable bytes.
            check(|dst, src, len| unsafe { super::x86::copy_avx2(dst, src, len) }, <[u8]>::to_vec);
        }
    }
}
