//! Copying and zeroing at the speed of the memory, and making it durable where it lies.
//!
//! A store that goes through the cache first reads the line that it is about to overwrite, so a
//! copy moves three bytes for each byte copied, not two. Non-temporal stores leave out that read,
//! and leave the cache to those who compute. They pay where the destination is not in the cache,
//! and cost where it is, or is read next. Measured (Zen 5, 2 cores, 1 MiB of L2, 32 MiB of L3, warm
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
//! Non-temporal stores are not ordered with others. [`copy`] ends with a fence, so that every
//! reader that sees anything that its caller writes afterwards sees what it wrote, too.
//!
//! **Persistent memory** (fsdax, devdax) has what the processor's caches have let go of. Two calls
//! make it so, and every durable byte of such a medium went through them: [`flush_lines`] asks for
//! lines to be written back, [`fence`] waits until all that were asked for are in the domain that
//! survives power loss. Of the instructions that write back, the best there is serves: `clwb`,
//! which keeps the line in the cache; else `clflushopt`, which drops it; else `clflush`, which also
//! waits for each line. Stores that passed the cache by need the fence alone, so [`copy_through`]
//! leaves nothing to write back.

/// A cache line: what is written back at once.
pub const LINE: usize = 64;

/// From this many bytes on, stores pass the cache by.
pub const STREAM: usize = 4 << 20;

/// Copies `len` bytes, whatever the alignment. The copy is ordered before whatever the caller
/// writes next.
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

/// Whether this engine can make mapped persistent memory durable on this processor.
pub const fn can_flush_lines() -> bool {
    cfg!(target_arch = "x86_64")
}

/// Copies `len` bytes to persistent memory, past the cache; the bytes that cannot pass it are
/// written back. All of it is durable once [`fence`] has been called.
///
/// # Safety
///
/// As [`copy`].
pub unsafe fn copy_through(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= STREAM && std::arch::is_x86_feature_detected!("avx2") {
        let (head, body) = x86::parts(dst, len);
        // SAFETY: AVX2 is there; the rest is the caller's contract. Head and tail are pieces of
        // what was just written.
        return unsafe {
            x86::copy_avx2(dst, src, len);
            note(dst.add(head), body);
            flush_lines(dst, head);
            flush_lines(dst.add(head + body), len - head - body);
        };
    }
    // SAFETY: the caller's contract is these calls'.
    unsafe {
        copy(dst, src, len);
        flush_lines(dst, len);
    }
}

/// Asks for every cache line of `[at, at + len)` to be written back. They are durable once
/// [`fence`] has been called.
///
/// # Safety
///
/// `at` is mapped for `len` bytes.
pub unsafe fn flush_lines(at: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    #[cfg(test)]
    watched::note(at as usize, len);
    note(at, len);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's contract.
    unsafe {
        x86::flush_lines(at, len);
    }
}

/// Tells tests that these bytes are on their way.
#[cfg_attr(not(feature = "faults"), expect(unused_variables, reason = "tests alone are told"))]
fn note(at: *const u8, len: usize) {
    #[cfg(feature = "faults")]
    engram_base::faults::flushed(engram_base::faults::FlushEvent::Lines(at as usize, len));
}

/// Waits until every line that [`flush_lines`] was asked for, and every store that passed the cache
/// by, has left this processor for the memory.
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction orders stores, and touches no memory; every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(feature = "faults")]
    engram_base::faults::flushed(engram_base::faults::FlushEvent::Fence);
}

/// The stores that pass the cache by, and the instructions that write it back.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid_count, __get_cpuid_max, __m256i, _mm_sfence, _mm256_loadu_si256,
        _mm256_stream_si256,
    };
    use std::ptr;
    use std::sync::OnceLock;

    use super::LINE;

    /// What one turn of the loop moves.
    const BLOCK: usize = 2 * LINE;

    /// How a line is written back.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum WriteBack {
        /// The line stays in the cache.
        Clwb,
        /// It goes.
        ClflushOpt,
        /// It goes, and the processor waits for it.
        Clflush,
    }

    impl WriteBack {
        /// The best that this processor has.
        pub(super) fn best() -> WriteBack {
            static BEST: OnceLock<WriteBack> = OnceLock::new();
            *BEST.get_or_init(|| {
                // Leaf 7, EBX: bit 24 is clwb, bit 23 clflushopt.
                #[allow(unused_unsafe, reason = "newer compilers call these safe")]
                // SAFETY: every x86-64 has the instruction; the leaf is asked for where it exists.
                let features =
                    unsafe { if __get_cpuid_max(0).0 >= 7 { __cpuid_count(7, 0).ebx } else { 0 } };
                match (features >> 24 & 1, features >> 23 & 1) {
                    (1, _) => WriteBack::Clwb,
                    (_, 1) => WriteBack::ClflushOpt,
                    _ => WriteBack::Clflush,
                }
            })
        }
    }

    /// # Safety
    ///
    /// As [`super::flush_lines`].
    pub(super) unsafe fn flush_lines(at: *const u8, len: usize) {
        // SAFETY: the caller's contract, and the processor was asked for its instructions.
        unsafe { flush_lines_by(WriteBack::best(), at, len) }
    }

    /// # Safety
    ///
    /// As [`super::flush_lines`], on a processor that has the instruction.
    pub(super) unsafe fn flush_lines_by(how: WriteBack, at: *const u8, len: usize) {
        let before = at as usize % LINE;
        let lines = (before + len).div_ceil(LINE);
        let first = at.wrapping_sub(before);
        for line in 0..lines {
            let line = first.wrapping_add(line * LINE);
            // SAFETY: the instructions read no byte and change none; they name lines of mapped
            // memory, which the caller vouches for. The compiler may move no store across them:
            // they are taken to touch memory.
            unsafe {
                match how {
                    WriteBack::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack)),
                    WriteBack::ClflushOpt => {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack));
                    }
                    WriteBack::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack)),
                }
            }
        }
    }

    /// How many bytes of a copy to `dst` come before the first whole line, and how many pass the
    /// cache by.
    pub(super) fn parts(dst: *mut u8, len: usize) -> (usize, usize) {
        let head = dst.align_offset(LINE).min(len);
        (head, (len - head) / BLOCK * BLOCK)
    }

    /// # Safety
    ///
    /// As [`super::copy`], on a processor with AVX2.
    #[target_feature(enable = "avx2")]
    #[expect(clippy::cast_ptr_alignment, reason = "stores are aligned; loads need not be")]
    pub(super) unsafe fn copy_avx2(dst: *mut u8, src: *const u8, len: usize) {
        // A head up to the first line's start, whole blocks, and a tail.
        let (head, body) = parts(dst, len);
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

/// For tests: what this thread has asked to be written back.
#[cfg(test)]
pub(super) mod watched {
    use std::cell::RefCell;

    thread_local! {
        static RANGES: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(at: usize, len: usize) {
        RANGES.with_borrow_mut(|ranges| ranges.push((at, len)));
    }

    /// Every (address, length) since this was last asked.
    pub(crate) fn take() -> Vec<(usize, usize)> {
        RANGES.take()
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE, STREAM, copy, copy_through, watched, zero};

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

    #[test]
    fn copy_through_is_exact_at_every_alignment() {
        check(copy_through, <[u8]>::to_vec);
    }

    /// The lines that a copy to persistent memory leaves in the cache are asked to be written back:
    /// all of a short one, the first and last lines of a long one, and whatever the stream leaves
    /// out.
    #[test]
    fn copy_through_writes_back_all_that_did_not_pass_the_cache_by() {
        for len in [1, 64, 4096, STREAM - 1, STREAM, STREAM + 63, STREAM + 4096 + 77] {
            for to in [0, 1, 63] {
                let source = pattern(len);
                let mut bytes = vec![0; len + 3 * LINE];
                let start = bytes.as_ptr().align_offset(LINE) + to;
                let begin = bytes.as_ptr() as usize + start;
                watched::take();
                // SAFETY: the vector has `len` bytes from `start` on.
                unsafe { copy_through(bytes.as_mut_ptr().add(start), source.as_ptr(), len) };
                let asked = watched::take();
                #[cfg(target_arch = "x86_64")]
                let passes_by = std::arch::is_x86_feature_detected!("avx2");
                #[cfg(not(target_arch = "x86_64"))]
                let passes_by = false;
                if len < STREAM || !passes_by {
                    assert_eq!(asked, [(begin, len)]);
                    continue;
                }
                let head = (LINE - to) % LINE;
                let tail = (len - head) % (2 * LINE);
                let mut expected = vec![(begin, head), (begin + len - tail, tail)];
                expected.retain(|&(_, len)| len > 0);
                assert_eq!(asked, expected, "{len} bytes at {to}");
            }
        }
    }

    /// Every line that has a byte of the range is written back, by each instruction there is; no
    /// byte changes.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn writing_back_changes_no_byte() {
        use super::x86::{WriteBack, flush_lines_by};
        let best = WriteBack::best();
        let all = [WriteBack::Clflush, WriteBack::ClflushOpt, WriteBack::Clwb];
        let (bytes, had) = (pattern(4096 + 99), pattern(4096 + 99));
        for how in all.into_iter().filter(|&how| how == WriteBack::Clflush || how == best) {
            for (at, len) in [(0, 1), (63, 2), (1, 4096), (64, 64), (99, 4096)] {
                // SAFETY: the vector has these bytes; the processor has the instruction.
                unsafe { flush_lines_by(how, bytes.as_ptr().add(at), len) };
            }
            super::fence();
            assert!(bytes == had, "{how:?}");
        }
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
