//! Blocks of runs: some hundred entries, sized to fill one page of the catalog.
//!
//! First the references (which segment of the run, which position), packed; then the keys as
//! ascending numbers, or the cells one after another, strings without what they share with the one
//! before.

use std::borrow::Cow;

use super::ascending::Ascending;
use super::head::RunHead;
use super::packing::PackingKind;
use crate::cell::Cell;
use crate::segment::bits::Packed;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::varint;

/// What a page of the catalog has for one value beside its header.
pub(super) const BLOCK_BYTES: usize = 4080;
/// The most entries of a block of keys that do not differ: a bit each, and no more.
pub(super) const LEN_MAX: usize = 0x8000;

const INT: u8 = 0;
const BIG: u8 = 1;
const FLOAT: u8 = 2;
/// Of a string.
pub(super) const TEXT: u8 = 3;
const TIME: u8 = 4;
const OTHER: u8 = 5;

/// A block of a run, read in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    pub references: Packed<'a>,
    pub values: BlockValues<'a>,
    pub len: usize,
}

/// Its values.
#[derive(Clone, Copy, Debug)]
pub(super) enum BlockValues<'a> {
    Keys(Ascending<'a>),
    Cells(&'a [u8]),
}

impl<'a> Block<'a> {
    /// Block `number` of a run.
    pub(super) fn parse(head: &RunHead<'_>, number: usize, bytes: &'a [u8]) -> Result<Self> {
        let len = head.len(number)?;
        let mut rest = bytes;
        let Some(references) = Packed::take(&mut rest, head.reference_width(), len) else {
            fail!(Corrupt, "a block of `index_runs` with {len} entries has {} bytes", bytes.len());
        };
        let values = match head.packing.kind {
            PackingKind::Cells => BlockValues::Cells(rest),
            _ => match Ascending::parse(rest, head.key(number), len) {
                Some(keys) => BlockValues::Keys(keys),
                None => fail!(Corrupt, "a block of `index_runs` has no keys"),
            },
        };
        Ok(Block { references, values, len })
    }
}

/// Calls `each` with the cells of a block, and which one each is, until it says `false`.
pub(super) fn each_cell(
    bytes: &[u8],
    len: usize,
    mut each: impl FnMut(usize, &Cell<'_>) -> Result<bool>,
) -> Result<bool> {
    let (mut rest, mut text) = (bytes, Vec::new());
    for index in 0..len {
        let Some(cell) = take(&mut rest, &mut text) else {
            fail!(Corrupt, "entry {index} of a block of `index_runs` is no cell");
        };
        if !each(index, &cell)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Appends a cell behind one whose string was `before`.
pub(super) fn push(out: &mut Vec<u8>, before: &mut Vec<u8>, cell: &Cell<'_>) {
    if let Cell::Text(text) = cell {
        let text = text.as_bytes();
        let shared = before.iter().zip(text).take_while(|(a, b)| a == b).count();
        out.push(TEXT);
        varint::push(out, shared as u64);
        varint::push(out, (text.len() - shared) as u64);
        out.extend_from_slice(&text[shared..]);
        before.truncate(shared);
        before.extend_from_slice(&text[shared..]);
    } else {
        push_whole(out, cell);
    }
}

/// Appends a cell that stands alone.
pub(super) fn push_whole(out: &mut Vec<u8>, cell: &Cell<'_>) {
    let (tag, word) = match cell {
        Cell::Int(value) => (INT, value.to_le_bytes()),
        Cell::Big(value) => (BIG, value.to_le_bytes()),
        Cell::Float(value) => (FLOAT, value.to_le_bytes()),
        Cell::Time(value) => (TIME, value.to_le_bytes()),
        Cell::Text(text) => {
            out.push(TEXT);
            out.extend_from_slice(text.as_bytes());
            return;
        }
        // `Cells::indexed` lets nothing far in here.
        Cell::Far(_) | Cell::Other => {
            out.push(OTHER);
            return;
        }
    };
    out.push(tag);
    out.extend_from_slice(&word);
}

/// A cell that stands alone.
pub(super) fn whole(bytes: &[u8]) -> Option<Cell<'_>> {
    match bytes.split_first()? {
        (&TEXT, text) => Some(Cell::Text(Cow::Borrowed(std::str::from_utf8(text).ok()?))),
        (&tag, mut rest) => plain(tag, &mut rest).filter(|_| rest.is_empty()),
    }
}

fn take<'t>(bytes: &mut &[u8], text: &'t mut Vec<u8>) -> Option<Cell<'t>> {
    let (&tag, rest) = bytes.split_first()?;
    *bytes = rest;
    if tag != TEXT {
        return plain(tag, bytes);
    }
    let shared = usize::try_from(varint::take(bytes)?).ok()?;
    if shared > text.len() {
        return None;
    }
    text.truncate(shared);
    text.extend_from_slice(varint::take_bytes(bytes)?);
    Some(Cell::Text(Cow::Borrowed(std::str::from_utf8(text).ok()?)))
}

fn plain(tag: u8, bytes: &mut &[u8]) -> Option<Cell<'static>> {
    if tag == OTHER {
        return Some(Cell::Other);
    }
    let (word, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    match tag {
        INT => Some(Cell::Int(i64::from_le_bytes(*word))),
        BIG => Some(Cell::Big(u64::from_le_bytes(*word))),
        FLOAT => Some(Cell::Float(f64::from_le_bytes(*word))),
        TIME => Some(Cell::Time(i64::from_le_bytes(*word))),
        _ => None,
    }
}
