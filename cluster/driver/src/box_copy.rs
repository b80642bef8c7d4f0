//! The memory of a box, into which parts are copied.
//!
//! Bytes whose place in that memory is in one piece are fetched right into it.

use std::ops::Range;

use engram_base::dtype::DType;
use engram_base::slab::Slab;
use engram_parts::{Looked, dtype};
use engram_protocol::manifest::{Boxes, Manifest, Part};

use crate::error::{Error, Result};

/// The bytes of a part that was read.
pub(crate) enum GotPart {
    /// They lie in the pool of this host's node.
    Here(Looked),
    /// They were fetched.
    Came {
        /// Where they begin in the part.
        from: u64,
        /// They.
        bytes: Vec<u8>,
    },
    /// They were fetched to their place.
    InPlace,
}

/// Which bytes of a part are to be fetched, and where to.
pub(crate) struct Place<'a> {
    /// Where they begin in the part.
    pub(crate) from: u64,
    /// How many they are.
    pub(crate) len: usize,
    /// How many the part has.
    pub(crate) total: u64,
    /// Their place, if it is in one piece. What it holds counts only once the part is taken.
    pub(crate) memory: Option<&'a mut [u8]>,
}

/// Parts, copied into the memory of a box.
pub(crate) struct BoxCopy<'a> {
    dtype: &'a DType,
    slab: &'a Slab,
    item: u64,
    out: &'a mut [u8],
    /// Of which manifest what no part covers was filled.
    filled: Option<String>,
}

impl<'a> BoxCopy<'a> {
    pub(crate) fn new(dtype: &'a DType, slab: &'a Slab, out: &'a mut [u8]) -> Self {
        BoxCopy { dtype, slab, item: dtype.itemsize(), out, filled: None }
    }
}

impl BoxCopy<'_> {
    /// What is to be fetched of each of these parts.
    pub(crate) fn places(&mut self, manifest: &Manifest, parts: &[u32]) -> Result<Vec<Place<'_>>> {
        self.begin(manifest)?;
        let Some(boxes) = manifest.array() else { return Ok(Vec::new()) };
        let mut places = Vec::with_capacity(parts.len());
        let mut pieces: Vec<(usize, Range<usize>)> = Vec::new();
        for (at, number) in parts.iter().enumerate() {
            let (place, piece) = self.place_of(boxes, &boxes.parts[*number as usize])?;
            places.push(place);
            pieces.extend(piece.map(|piece| (at, piece)));
        }
        pieces.sort_by_key(|(_, piece)| piece.start);
        let (mut rest, mut begin) = (&mut *self.out, 0);
        for (at, piece) in pieces {
            let (before, after) = std::mem::take(&mut rest).split_at_mut(piece.end - begin);
            places[at].memory = Some(&mut before[piece.start - begin..]);
            (rest, begin) = (after, piece.end);
        }
        Ok(places)
    }

    /// Copies what has come of a part.
    pub(crate) fn take(&mut self, manifest: &Manifest, number: u32, got: &GotPart) -> Result<()> {
        let Some(boxes) = manifest.array() else { return Ok(()) };
        let part = &boxes.parts[number as usize];
        if let GotPart::Here(bytes) = got
            && bytes.len() as u64 != nbytes_of(boxes, part)?
        {
            return Err(Error::Corrupt(format!(
                "part {number} has {} bytes in the pool of this host's node, and the manifest says \
                 {:?} items of dtype {}: run verify",
                bytes.len(),
                part.counts,
                boxes.dtype
            )));
        }
        let (source, target) = self.common(part)?;
        // Both have the same items in the same order; runs of one may be longer than the other's.
        let mut sources = source.runs(self.item).map(|run| (run.array, run.len));
        let mut targets = target.runs(self.item).map(|run| (run.array, run.len));
        let (mut one, mut other) = (sources.next(), targets.next());
        while let (Some((from, n)), Some((to, m))) = (one, other) {
            let len = n.min(m);
            let place = &mut self.out[to as usize..(to + len) as usize];
            match got {
                GotPart::Here(bytes) => bytes.copy_out(from as usize, place),
                GotPart::Came { from: begin, bytes } => {
                    place.copy_from_slice(&bytes[(from - begin) as usize..][..place.len()]);
                }
                GotPart::InPlace => return Ok(()),
            }
            one = if n == len { sources.next() } else { Some((from + len, n - len)) };
            other = if m == len { targets.next() } else { Some((to + len, m - len)) };
        }
        Ok(())
    }

    /// What a part and the box have in common, as boxes of each.
    fn common(&self, part: &Part) -> Result<(Slab, Slab)> {
        let from = |dim: usize| part.offsets[dim].max(self.slab.offsets()[dim]);
        let to = |dim: usize| {
            (part.offsets[dim] + part.counts[dim])
                .min(self.slab.offsets()[dim] + self.slab.counts()[dim])
        };
        let dims = part.counts.len();
        let counts: Vec<u64> = (0..dims).map(|dim| to(dim) - from(dim)).collect();
        let within =
            |begins: &[u64]| -> Vec<u64> { (0..dims).map(|dim| from(dim) - begins[dim]).collect() };
        let source = Slab::new(&part.counts, &within(&part.offsets), &counts)?;
        let target = Slab::new(self.slab.counts(), &within(self.slab.offsets()), &counts)?;
        Ok((source, target))
    }

    /// What is to be fetched of a part, and its place in the memory, if that is in one piece.
    fn place_of(
        &self,
        boxes: &Boxes,
        part: &Part,
    ) -> Result<(Place<'static>, Option<Range<usize>>)> {
        let (source, target) = self.common(part)?;
        let total = nbytes_of(boxes, part)?;
        let bytes = source.span(self.item);
        // Of more than half, the rest comes too: then the checksum can be compared.
        let is_small = !bytes.is_empty() && bytes.end - bytes.start <= total / 2;
        let Range { start: from, end } = if is_small { bytes.clone() } else { 0..total };
        let len = end - from;
        let is_dense = source.elements() * self.item == len;
        let to = target.span(self.item);
        let is_one = len > 0 && is_dense && to.end - to.start == len;
        let place = Place { from, len: len as usize, total, memory: None };
        Ok((place, is_one.then_some(to.start as usize..to.end as usize)))
    }

    /// Looks at a manifest before the first of its parts comes. Memory of items that no part covers
    /// is filled.
    pub(crate) fn begin(&mut self, manifest: &Manifest) -> Result<()> {
        let Some(boxes) = manifest.array() else { return Ok(()) };
        if self.filled.as_deref() == Some(&manifest.uuid) {
            return Ok(());
        }
        if dtype::of_text(&boxes.dtype)? != *self.dtype || self.slab.shape() != boxes.shape {
            return Err(Error::Conflict(format!(
                "an array of dtype {} and shape {:?} was asked for, and it has dtype {} and shape \
                 {:?} now: it was replaced; look it up again",
                dtype::text_of(self.dtype),
                self.slab.shape(),
                boxes.dtype,
                boxes.shape
            )));
        }
        let nbytes = self.slab.elements() * self.item;
        if self.out.len() as u64 != nbytes {
            return Err(Error::Argument(format!(
                "the memory has {} bytes, and {nbytes} are needed for {:?} items of dtype {}",
                self.out.len(),
                self.slab.counts(),
                boxes.dtype
            )));
        }
        self.filled = Some(manifest.uuid.clone());
        let mut covered = 0;
        let (offsets, counts) = (self.slab.offsets(), self.slab.counts());
        for part in boxes.parts.iter().filter(|part| part.overlaps(offsets, counts)) {
            covered += self.common(part)?.0.elements();
        }
        match &boxes.fill {
            _ if covered == self.slab.elements() => {}
            Some(fill) if fill.len() as u64 == self.item && self.item > 0 => {
                self.out.chunks_exact_mut(fill.len()).for_each(|item| item.copy_from_slice(fill));
            }
            _ => self.out.fill(0),
        }
        Ok(())
    }
}

fn nbytes_of(boxes: &Boxes, part: &Part) -> Result<u64> {
    let item = dtype::of_text(&boxes.dtype)?.itemsize();
    let nbytes = part.counts.iter().try_fold(item, |all, count| all.checked_mul(*count));
    nbytes.filter(|nbytes| i64::try_from(*nbytes).is_ok()).ok_or_else(|| {
        Error::Corrupt(format!("a part of {:?} items has more than memory can have", part.counts))
    })
}
