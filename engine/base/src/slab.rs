//! Slabs: boxes of an array, and the contiguous pieces that they are made of.
//!
//! An array lies in C order, and so does the memory of a caller that stores or loads a part of it.
//! A box is then a sequence of *runs*: pieces that are contiguous in both. Dimensions that the box
//! covers wholly, from the last one on, make runs longer: a box of whole planes is one run.
//!
//! Nothing here touches memory; it is arithmetic, checked once in [`Slab::new`]: what it gives out
//! lies within the array and within the buffer.

use std::ops::Range;

use crate::error::Result;
use crate::fail;

/// The most dimensions an array may have (`NumPy`'s own bound).
pub const NDIM_MAX: usize = 64;

/// A box of an array: where it begins and how long it is in each dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slab {
    shape: Vec<u64>,
    offsets: Vec<u64>,
    counts: Vec<u64>,
}

/// A piece of a box that is contiguous in the array and in the buffer; in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where it begins in the array.
    pub array: u64,
    /// Where it begins in the buffer.
    pub buffer: u64,
    /// How long it is.
    pub len: u64,
}

impl Slab {
    /// The box of an array of this shape. One that is not within it is `ArgumentError`.
    pub fn new(shape: &[u64], offsets: &[u64], counts: &[u64]) -> Result<Slab> {
        let ndim = shape.len();
        if offsets.len() != ndim || counts.len() != ndim {
            fail!(
                Argument,
                "the array has {ndim} dimensions, shape {shape:?}; {} offsets and {} counts were \
                 given",
                offsets.len(),
                counts.len()
            );
        }
        for dim in 0..ndim {
            if offsets[dim].checked_add(counts[dim]).is_none_or(|end| end > shape[dim]) {
                fail!(
                    Argument,
                    "offsets {offsets:?} and counts {counts:?} reach beyond shape {shape:?}: in \
                     dimension {dim}, {} + {} is more than {}",
                    offsets[dim],
                    counts[dim],
                    shape[dim]
                );
            }
        }
        Ok(Slab { shape: shape.to_vec(), offsets: offsets.to_vec(), counts: counts.to_vec() })
    }

    /// All of an array.
    pub fn all(shape: &[u64]) -> Slab {
        Slab { shape: shape.to_vec(), offsets: vec![0; shape.len()], counts: shape.to_vec() }
    }

    /// The array's shape.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Where the box begins.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// How long it is.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many items it has. Those of an array fit in 64 bits, so those of a box do.
    pub fn elements(&self) -> u64 {
        self.counts.iter().product()
    }

    /// From its first byte in the array to behind its last one, for items of so many bytes.
    pub fn span(&self, item: u64) -> Range<u64> {
        if self.elements() == 0 {
            return 0..0;
        }
        let (mut first, mut last, mut stride) = (0, 0, item);
        for dim in (0..self.shape.len()).rev() {
            first += self.offsets[dim] * stride;
            last += (self.offsets[dim] + self.counts[dim] - 1) * stride;
            stride *= self.shape[dim];
        }
        first..last + item
    }

    /// Its runs, in the order in which they lie, for items of so many bytes.
    pub fn runs(&self, item: u64) -> Runs<'_> {
        let ndim = self.shape.len();
        // Whole dimensions at the end, and the one before them, make one run.
        let whole = |dim: &usize| self.counts[*dim] == self.shape[*dim];
        let tail = (0..ndim).rev().take_while(whole).count();
        let outer = ndim.saturating_sub(tail + 1);
        let len = self.counts[outer..].iter().product::<u64>() * item;
        let mut strides = vec![item; ndim];
        for dim in (1..ndim).rev() {
            strides[dim - 1] = strides[dim] * self.shape[dim];
        }
        let array = self.offsets.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
        let left =
            if self.elements() * item == 0 { 0 } else { self.counts[..outer].iter().product() };
        Runs { slab: self, at: vec![0; outer], strides, next: Run { array, buffer: 0, len }, left }
    }
}

impl Slab {
    /// The runs of these bytes of the buffer alone, cut to them; in it they begin at 0.
    pub fn runs_in(&self, item: u64, bytes: Range<u64>) -> impl Iterator<Item = Run> {
        let runs = self.runs(item);
        let before = bytes.start / runs.next.len.max(1);
        let within = runs.skip(before as usize).take_while(move |run| run.buffer < bytes.end);
        within.map(move |run| {
            let cut = bytes.start.saturating_sub(run.buffer);
            let end = run.len.min(bytes.end - run.buffer);
            let (array, buffer) = (run.array + cut, run.buffer + cut - bytes.start);
            Run { array, buffer, len: end - cut }
        })
    }
}

/// The runs of a box.
pub struct Runs<'a> {
    slab: &'a Slab,
    /// Which run of each of the outer dimensions is next.
    at: Vec<u64>,
    strides: Vec<u64>,
    next: Run,
    left: u64,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        self.left = self.left.checked_sub(1)?;
        let run = self.next;
        self.next.buffer += run.len;
        // As a counter: the last outer dimension runs fastest.
        for dim in (0..self.at.len()).rev() {
            self.at[dim] += 1;
            self.next.array += self.strides[dim];
            if self.at[dim] < self.slab.counts[dim] {
                break;
            }
            self.next.array -= self.strides[dim] * self.at[dim];
            self.at[dim] = 0;
        }
        Some(run)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Runs<'_> {}

#[cfg(test)]
mod tests;
