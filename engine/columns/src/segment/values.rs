//! Lists of cells on media, one form for each kind of value: a column's dictionary, or the cells of
//! a column that has none, row by row.

use std::borrow::Cow;

use super::column::Numbers;
use super::ints::{self, Ints, SIGN};
use super::ordered::{self, OrderedTexts};
use crate::cell::Cell;
use engram_base::error::{Error, Kind, Result};

const INTS: u8 = 0;
const BIGS: u8 = 1;
const TIMES: u8 = 2;
const SINGLES: u8 = 3;
const DOUBLES: u8 = 4;
const TEXTS: u8 = 5;
const MIXED: u8 = 6;
const ORDERED: u8 = 7;

/// From so many strings on a dictionary keeps them by what they have in common.
const ORDERED_FROM: usize = 16;

/// What is on media is no list of cells.
fn corrupt() -> Error {
    Error::new(Kind::Corrupt, "a segment's values are not what a segment has")
}

/// Appends cells. How many they are is kept elsewhere.
pub(super) fn push(out: &mut Vec<u8>, cells: &[&Cell<'_>]) {
    let kind = kind_of(cells);
    out.push(kind);
    match kind {
        INTS | BIGS | TIMES => {
            let words: Vec<u64> = cells.iter().map(|cell| word(cell)).collect();
            ints::push(out, &words);
        }
        SINGLES => cells.iter().for_each(|cell| {
            out.extend_from_slice(&(f64::from_bits(word(cell)) as f32).to_le_bytes());
        }),
        DOUBLES => cells.iter().for_each(|cell| {
            out.extend_from_slice(&word(cell).to_le_bytes());
        }),
        _ => {
            let mut bytes = Vec::with_capacity(cells.len() * 16);
            let mut ends = Vec::with_capacity(cells.len());
            for cell in cells {
                if kind == MIXED {
                    bytes.push(tag(cell));
                }
                match cell {
                    Cell::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                    Cell::Other => {}
                    _ => bytes.extend_from_slice(&word(cell).to_le_bytes()),
                }
                ends.push(bytes.len() as u64);
            }
            ints::push(out, &ends);
            engram_base::varint::push(out, bytes.len() as u64);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Appends a dictionary's cells: each once, and in order.
pub(super) fn push_distinct(out: &mut Vec<u8>, cells: &[&Cell<'_>]) {
    match cells.iter().map(|cell| text_of(cell)).collect::<Option<Vec<_>>>() {
        Some(texts) if texts.len() >= ORDERED_FROM => push_texts(out, &texts),
        _ => push(out, cells),
    }
}

fn text_of<'c>(cell: &'c Cell<'_>) -> Option<&'c str> {
    if let Cell::Text(text) = cell { Some(text) } else { None }
}

/// Appends a dictionary's strings: each once, and in order.
pub(super) fn push_texts(out: &mut Vec<u8>, texts: &[&str]) {
    if texts.len() < ORDERED_FROM {
        let cells: Vec<Cell<'_>> = texts.iter().map(|text| Cell::Text((*text).into())).collect();
        return push(out, &cells.iter().collect::<Vec<_>>());
    }
    out.push(ORDERED);
    ordered::push(out, texts);
}

/// Appends instants, in ns since 1970.
pub(super) fn push_times(out: &mut Vec<u8>, times: &[i64]) {
    out.push(TIMES);
    let words: Vec<u64> = times.iter().map(|time| *time as u64 ^ SIGN).collect();
    ints::push(out, &words);
}

/// What tells a cell from all that are of another variant.
pub(super) fn tag(cell: &Cell<'_>) -> u8 {
    match cell {
        Cell::Int(_) => INTS,
        Cell::Big(_) => BIGS,
        Cell::Time(_) => TIMES,
        Cell::Float(_) => DOUBLES,
        Cell::Text(_) => TEXTS,
        // `Cells::indexed` lets nothing far in here.
        Cell::Far(_) | Cell::Other => MIXED,
    }
}

/// The cell's own bits, in order within whole numbers and times; 0 for one that has none.
pub(super) fn word(cell: &Cell<'_>) -> u64 {
    match cell {
        Cell::Int(value) | Cell::Time(value) => *value as u64 ^ SIGN,
        Cell::Big(value) => *value,
        Cell::Float(value) => value.to_bits(),
        Cell::Text(_) | Cell::Far(_) | Cell::Other => 0,
    }
}

fn kind_of(cells: &[&Cell<'_>]) -> u8 {
    let Some(first) = cells.first().map(|cell| tag(cell)) else { return INTS };
    if cells.iter().any(|cell| tag(cell) != first) {
        return MIXED;
    }
    let single = |cell: &&Cell<'_>| {
        let value = f64::from_bits(word(cell));
        f64::from(value as f32).to_bits() == value.to_bits()
    };
    if first == DOUBLES && cells.iter().all(single) { SINGLES } else { first }
}

/// Cells on media.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values<'a> {
    Ints(Ints<'a>),
    Bigs(Ints<'a>),
    Times(Ints<'a>),
    Singles(&'a [[u8; 4]]),
    Doubles(&'a [[u8; 8]]),
    Texts { ends: Ints<'a>, text: &'a str },
    Mixed { ends: Ints<'a>, bytes: &'a [u8] },
    Ordered(OrderedTexts<'a>),
}

impl<'a> Values<'a> {
    /// Takes `len` cells from the front.
    pub(super) fn take(bytes: &mut &'a [u8], len: usize) -> Result<Self> {
        Self::parse(bytes, len).ok_or_else(corrupt)
    }

    fn parse(bytes: &mut &'a [u8], len: usize) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        *bytes = rest;
        let split = |bytes: &mut &'a [u8], size: usize| {
            let (taken, rest) = bytes.split_at_checked(len * size)?;
            *bytes = rest;
            Some(taken)
        };
        Some(match kind {
            INTS => Values::Ints(Ints::take(bytes, len)?),
            BIGS => Values::Bigs(Ints::take(bytes, len)?),
            TIMES => Values::Times(Ints::take(bytes, len)?),
            SINGLES => Values::Singles(split(bytes, 4)?.as_chunks().0),
            DOUBLES => Values::Doubles(split(bytes, 8)?.as_chunks().0),
            TEXTS => {
                let ends = Ints::take(bytes, len)?;
                let text = std::str::from_utf8(engram_base::varint::take_bytes(bytes)?).ok()?;
                Values::Texts { ends, text }
            }
            MIXED => {
                let ends = Ints::take(bytes, len)?;
                Values::Mixed { ends, bytes: engram_base::varint::take_bytes(bytes)? }
            }
            ORDERED => Values::Ordered(OrderedTexts::take(bytes, len)?),
            _ => return None,
        })
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        match self {
            Values::Ints(ints) | Values::Bigs(ints) | Values::Times(ints) => ints.len(),
            Values::Singles(items) => items.len(),
            Values::Doubles(items) => items.len(),
            Values::Texts { ends, .. } | Values::Mixed { ends, .. } => ends.len(),
            Values::Ordered(texts) => texts.len(),
        }
    }

    /// A cell; an error beyond the last, or if what lies there is none.
    pub(super) fn get(&self, at: usize) -> Result<Cell<'a>> {
        if at < self.len() { self.cell(at).ok_or_else(corrupt) } else { Err(corrupt()) }
    }

    fn cell(&self, at: usize) -> Option<Cell<'a>> {
        let bounds = |ends: &Ints<'a>| {
            let start = if at == 0 { 0 } else { ends.get(at - 1) };
            start as usize..ends.get(at) as usize
        };
        Some(match self {
            Values::Ints(ints) => Cell::Int((ints.get(at) ^ SIGN) as i64),
            Values::Bigs(ints) => Cell::Big(ints.get(at)),
            Values::Times(ints) => Cell::Time((ints.get(at) ^ SIGN) as i64),
            Values::Singles(items) => Cell::Float(f64::from(f32::from_le_bytes(items[at]))),
            Values::Doubles(items) => Cell::Float(f64::from_le_bytes(items[at])),
            Values::Texts { ends, text } => Cell::Text(Cow::Borrowed(text.get(bounds(ends))?)),
            Values::Mixed { ends, bytes } => mixed(bytes.get(bounds(ends))?)?,
            Values::Ordered(texts) => Cell::Text(Cow::Owned(texts.get(at)?)),
        })
    }

    /// All of them, where all are of one kind of numbers, or instants.
    pub(super) fn numbers(&self) -> Option<Numbers> {
        let signed = |ints: &Ints<'_>| {
            let mut all = Vec::with_capacity(ints.len());
            ints.each(|word| all.push((word ^ SIGN) as i64));
            all
        };
        Some(match self {
            Values::Ints(ints) => Numbers::Ints(signed(ints)),
            Values::Times(ints) => Numbers::Times(signed(ints)),
            Values::Singles(items) => {
                let single = |item: &[u8; 4]| f64::from(f32::from_le_bytes(*item));
                Numbers::Floats(items.iter().map(single).collect())
            }
            Values::Doubles(items) => {
                Numbers::Floats(items.iter().map(|item| f64::from_le_bytes(*item)).collect())
            }
            _ => return None,
        })
    }

    /// All of them.
    pub(super) fn to_vec(self) -> Result<Vec<Cell<'a>>> {
        if let Values::Texts { .. } | Values::Mixed { .. } = self {
            return (0..self.len()).map(|at| self.cell(at).ok_or_else(corrupt)).collect();
        }
        let mut cells = Vec::with_capacity(self.len());
        self.each(|cell| cells.push(cell.clone().into_owned()))?;
        Ok(cells)
    }

    /// Calls for each cell, in order, until one is none.
    pub(super) fn each(&self, mut visit: impl FnMut(&Cell<'_>)) -> Result<()> {
        match self {
            Values::Ints(ints) => {
                ints.each(|word| visit(&Cell::Int((word ^ SIGN) as i64)));
            }
            Values::Times(ints) => {
                ints.each(|word| visit(&Cell::Time((word ^ SIGN) as i64)));
            }
            Values::Bigs(ints) => ints.each(|word| visit(&Cell::Big(word))),
            Values::Ordered(texts) => {
                texts.each(|text| visit(&Cell::Text(text.into()))).ok_or_else(corrupt)?;
            }
            _ => {
                for at in 0..self.len() {
                    visit(&self.cell(at).ok_or_else(corrupt)?);
                }
            }
        }
        Ok(())
    }
}

fn mixed(bytes: &[u8]) -> Option<Cell<'_>> {
    let (&tag, rest) = bytes.split_first()?;
    if tag == TEXTS {
        return Some(Cell::Text(Cow::Borrowed(std::str::from_utf8(rest).ok()?)));
    }
    if tag == MIXED {
        return rest.is_empty().then_some(Cell::Other);
    }
    let word = u64::from_le_bytes(rest.try_into().ok()?);
    match tag {
        INTS => Some(Cell::Int((word ^ SIGN) as i64)),
        BIGS => Some(Cell::Big(word)),
        TIMES => Some(Cell::Time((word ^ SIGN) as i64)),
        DOUBLES => Some(Cell::Float(f64::from_bits(word))),
        _ => None,
    }
}
