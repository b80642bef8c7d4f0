//! Extents: contiguous runs of bytes in an arena, as records name them.

/// A page, and the alignment of extents of 64 KiB and more.
pub const PAGE: u64 = 4096;
/// A huge page: the granularity of spans, and the alignment of extents of 2 MiB and more.
pub const HUGE: u64 = 2 << 20;
/// A cache line: the alignment of every extent.
pub const LINE: u64 = 64;

/// The most bytes that an arena may be asked for: beyond what processors address, and far from
/// where sums of a few of these would overflow.
pub const SIZE_MAX: u64 = 1 << 52;

/// A contiguous run of bytes in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// Where it begins, from the arena's start.
    pub offset: u64,
    /// Its length in bytes, a multiple of 64.
    pub len: u64,
}

impl Extent {
    /// Where it ends.
    pub fn end(self) -> u64 {
        self.offset + self.len
    }
}

/// Rounds up to a power of two.
pub fn round_up(value: u64, to: u64) -> u64 {
    value.div_ceil(to) * to
}

/// How many bytes an extent takes for a value of `nbytes`.
pub fn extent_len(nbytes: u64) -> u64 {
    round_up(nbytes.max(1), if nbytes < 16 * PAGE { LINE } else { PAGE })
}

/// The alignment that an extent of `len` bytes should have: one of whole pages has that of a page
/// at least, whatever is free.
pub fn best_align(len: u64) -> u64 {
    match len {
        HUGE.. => HUGE,
        _ if len >= 16 * PAGE || len.is_multiple_of(PAGE) => PAGE,
        _ => LINE,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HUGE, LINE, PAGE, best_align, extent_len, round_up};

    proptest! {
        #[test]
        fn an_extent_holds_its_value_in_whole_lines_and_wastes_less_than_a_page(
            nbytes in prop_oneof![0..=2 * HUGE, 0..1u64 << 50],
        ) {
            let len = extent_len(nbytes);
            prop_assert!(len >= nbytes.max(1) && len.is_multiple_of(LINE));
            let most = if nbytes < 16 * PAGE { LINE } else { PAGE - 1 };
            prop_assert!(len - nbytes <= most);
            prop_assert_eq!(extent_len(len), len, "what is rounded stays");
            let align = best_align(len);
            prop_assert!([LINE, PAGE, HUGE].contains(&align) && align <= len);
            prop_assert!(round_up(nbytes, align).is_multiple_of(align));
        }
    }
}
