//! Heads of runs: what a run holds, and the first cell of each of its blocks.
//!
//! A head is read in place: it is taken apart only as far as a search goes. The first cells of the
//! blocks are the *fences* by which a search finds its block; before a text block the fence is as
//! much of its first string as tells it from the last one of the block before.

use super::block;
use super::packing::{Packing, PackingKind};
use crate::cell::Cell;
use crate::segment::bits::width_of;
use engram_base::error::Result;
use engram_base::fail;

const VERSION: u8 = 1;
/// Bytes before the segments.
const FIXED: usize = 20;
/// Bytes of a segment: its number, and how many entries are of it.
pub(super) const SEGMENT_BYTES: usize = 6;
/// Bytes of a fence of keys: the key, and how many entries come before its block.
const KEY_FENCE: usize = 12;
/// Bytes of a fence of cells: where the cell begins, and how many entries come before its block.
const CELL_FENCE: usize = 8;

/// A run's head as it is written.
pub(super) struct NewHead<'a> {
    pub packing: Packing,
    pub level: u8,
    pub position_width: u32,
    /// Ascending, with how many entries each has.
    pub segments: &'a [(u32, u16)],
    pub entries: u32,
    pub fences: Fences,
}

/// The first key or cell of each block, and how many entries come before it.
pub(super) enum Fences {
    /// And the last key.
    Keys(Vec<(u64, u32)>, u64),
    Cells(Vec<(Cell<'static>, u32)>),
}

impl Fences {
    /// Takes the last block away; how many entries come before it.
    pub(super) fn pop(&mut self) -> u32 {
        let last = match self {
            Fences::Keys(fences, _) => fences.pop().map(|(_, before)| before),
            Fences::Cells(fences) => fences.pop().map(|(_, before)| before),
        };
        last.unwrap_or(0)
    }

    /// These, and those of blocks behind them, before which so many entries come.
    pub(super) fn followed_by(self, behind: Fences, entries: u32) -> Fences {
        match (self, behind) {
            (Fences::Keys(mut fences, last), Fences::Keys(more, end)) => {
                let last = if more.is_empty() { last } else { end };
                fences.extend(more.into_iter().map(|(key, before)| (key, before + entries)));
                Fences::Keys(fences, last)
            }
            (Fences::Cells(mut fences), Fences::Cells(more)) => {
                fences.extend(more.into_iter().map(|(cell, before)| (cell, before + entries)));
                Fences::Cells(fences)
            }
            (fences, _) => fences,
        }
    }
}

impl NewHead<'_> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let blocks = match &self.fences {
            Fences::Keys(fences, _) => fences.len(),
            Fences::Cells(fences) => fences.len(),
        };
        let mut out = vec![VERSION, self.packing.kind as u8, self.packing.exponent, self.level];
        out.extend([self.position_width as u8, 0, 0, 0]);
        for number in [self.entries, blocks as u32, self.segments.len() as u32] {
            out.extend(number.to_le_bytes());
        }
        for (segment, count) in self.segments {
            out.extend(segment.to_le_bytes());
            out.extend(count.to_le_bytes());
        }
        match &self.fences {
            Fences::Keys(fences, last) => {
                for (key, before) in fences {
                    out.extend(key.to_le_bytes());
                    out.extend(before.to_le_bytes());
                }
                out.extend(last.to_le_bytes());
            }
            Fences::Cells(fences) => {
                let mut cells = Vec::new();
                for (cell, before) in fences {
                    out.extend((cells.len() as u32).to_le_bytes());
                    out.extend(before.to_le_bytes());
                    block::push_whole(&mut cells, cell);
                }
                out.extend(cells);
            }
        }
        out
    }
}

/// A run's head, read in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunHead<'a> {
    pub packing: Packing,
    pub level: u8,
    pub entries: u32,
    position_width: u32,
    reference_width: u32,
    segments: &'a [[u8; SEGMENT_BYTES]],
    fences: &'a [u8],
    blocks: usize,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl<'a> RunHead<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        match Self::parse_part(bytes) {
            Ok(head) if head.blocks > 0 => Ok(head),
            _ => fail!(Corrupt, "a head of `index_runs` of {} bytes is none", bytes.len()),
        }
    }

    /// Reads the head of a run that is being made, which may have no block yet.
    pub(super) fn parse_part(bytes: &'a [u8]) -> Result<Self> {
        match Self::try_parse(bytes) {
            Some(head) => Ok(head),
            None => {
                fail!(Corrupt, "the head of an unfinished run, of {} bytes, is none", bytes.len())
            }
        }
    }

    fn try_parse(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_at_checked(FIXED)?;
        if fixed[0] != VERSION || fixed[4] > 16 || fixed[5..8] != [0; 3] {
            return None;
        }
        let packing = Packing::decode(fixed[1], fixed[2])?;
        let (blocks, segments) = (word(fixed, 12) as usize, word(fixed, 16) as usize);
        let (segments, fences) = rest.split_at_checked(segments.checked_mul(SEGMENT_BYTES)?)?;
        let (segments, _) = segments.as_chunks::<SEGMENT_BYTES>();
        let fits = match packing.kind {
            PackingKind::Cells => fences.len() >= blocks.checked_mul(CELL_FENCE)?,
            _ => fences.len() == blocks.checked_mul(KEY_FENCE)?.checked_add(8)?,
        };
        if !fits || segments.is_empty() || segments.len() > 1 << 16 {
            return None;
        }
        let position_width = u32::from(fixed[4]);
        Some(RunHead {
            packing,
            level: fixed[3],
            entries: word(fixed, 8),
            position_width,
            reference_width: position_width + width_of(segments.len() as u64 - 1),
            segments,
            fences,
            blocks,
        })
    }

    /// How many blocks there are; at least one.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// The fences, to be followed by others.
    pub(super) fn fences(&self) -> Result<Fences> {
        if self.packing.kind == PackingKind::Cells {
            let fence = |block| Ok((self.cell(block)?.into_owned(), self.before(block)));
            return Ok(Fences::Cells((0..self.blocks).map(fence).collect::<Result<_>>()?));
        }
        let fence = |block| (self.key(block), self.before(block));
        Ok(Fences::Keys((0..self.blocks).map(fence).collect(), self.last_key()))
    }

    /// Bits of a position.
    pub(super) fn position_width(&self) -> u32 {
        self.position_width
    }

    /// Bits of a reference to a position.
    pub(super) fn reference_width(&self) -> u32 {
        self.reference_width
    }

    /// Which of the segments, and which position of it.
    pub(super) fn resolve(&self, reference: u64) -> (usize, u16) {
        let position = reference & ((1 << self.position_width) - 1);
        ((reference >> self.position_width) as usize, position as u16)
    }

    /// The number of one of the segments.
    pub(super) fn segment(&self, index: usize) -> Option<u32> {
        self.segments.get(index).map(|segment| word(segment, 0))
    }

    /// The segments, ascending, with how many entries each has.
    pub(super) fn segments(&self) -> impl ExactSizeIterator<Item = (u32, u16)> + 'a {
        self.segments
            .iter()
            .map(|segment| (word(segment, 0), u16::from_le_bytes([segment[4], segment[5]])))
    }

    /// The first key of a block.
    pub(super) fn key(&self, block: usize) -> u64 {
        let at = block * KEY_FENCE;
        u64::from_le_bytes(self.fences[at..at + 8].try_into().expect("eight bytes"))
    }

    /// The last key of all.
    pub(super) fn last_key(&self) -> u64 {
        self.key(self.blocks)
    }

    /// A cell that is not greater than a block's first, but greater than the last one before.
    pub(super) fn cell(&self, block: usize) -> Result<Cell<'a>> {
        let (table, cells) = self.fences.split_at(self.blocks * CELL_FENCE);
        let start = word(table, block * CELL_FENCE) as usize;
        let next = (block + 1) * CELL_FENCE;
        let end = if next < table.len() { word(table, next) as usize } else { cells.len() };
        match cells.get(start..end).and_then(block::whole) {
            Some(cell) => Ok(cell),
            None => fail!(Corrupt, "the fence of block {block} in `index_runs` is no cell"),
        }
    }

    /// How many entries come before a block, or before the end.
    pub(super) fn before(&self, block: usize) -> u32 {
        let at = match self.packing.kind {
            PackingKind::Cells => block * CELL_FENCE + 4,
            _ => block * KEY_FENCE + 8,
        };
        if block < self.blocks { word(self.fences, at) } else { self.entries }
    }

    /// How many entries a block has.
    pub(super) fn len(&self, block: usize) -> Result<usize> {
        match self.before(block + 1).checked_sub(self.before(block)) {
            // A block has fewer entries than bits.
            Some(len @ 1..=0x8000) => Ok(len as usize),
            _ => fail!(Corrupt, "block {block} of a run in `index_runs` has no entries"),
        }
    }
}
