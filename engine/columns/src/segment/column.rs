//! One column of a segment: which rows have it, which of them are unsure, and the cells of the
//! others.
//!
//! On media a column is a byte of [`DICTIONARY`], [`ROWS`] or [`ELSEWHERE`], with [`STATES`] if not
//! every row has a sure cell; then the rows' states, a number each ([`SURE`], [`UNSURE`],
//! [`ABSENT`]); then the cells of the sure rows alone, so that what is rare takes little:
//!
//! * **dictionary**: how many distinct cells (varint), these in `total_order`, and a code for each
//!   sure row. A constant has one cell, and codes of no bits;
//! * **rows**: a cell for each sure row;
//! * **elsewhere**: nothing; the cells are in the column's runs.

use super::bitmap::Bitmap;
use super::head::ColumnEntry;
use super::ints::{self, Ints, SIGN};
use super::values::{self, Values};
use crate::cell::{Cell, total_order};
use crate::range::Range;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::varint;

const DICTIONARY: u8 = 0;
const ROWS: u8 = 1;
const ELSEWHERE: u8 = 2;
const STATES: u8 = 0x80;

/// So many stretches of codes beyond the first are compared one after the other.
const STRETCHES_FEW: usize = 3;

/// The row has the column, and its cell is here or in the runs.
pub(super) const SURE: u64 = 0;
/// The row has the column, and its record alone says more.
pub(super) const UNSURE: u64 = 1;
/// The row has no such column.
pub(super) const ABSENT: u64 = 2;

/// In a list of cells' numbers: the row has no such column.
pub const NO_CELL: u32 = u32::MAX;
/// In a list of cells' numbers: the row is unsure.
pub const UNSURE_CELL: u32 = u32::MAX - 1;

/// The strings that a test can be true of, so that others need not be looked at.
#[derive(Clone, Debug, Default)]
pub struct SoughtTexts {
    /// They lie in one of these: from one string to another, both included, or to the last.
    pub ranges: Vec<(String, Option<String>)>,
    /// They contain all of these.
    pub parts: Vec<String>,
}

/// What a row has: nothing, something of which its record alone says what it is, or a cell.
pub type Slot<'a> = Option<Option<Cell<'a>>>;

/// What is known of a test's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The rows that pass.
    pub must: Bitmap,
    /// The rows that pass, or whose record must be asked: unsure ones, and those in runs.
    pub may: Bitmap,
}

/// The cells of rows that all have one of a kind.
#[derive(Clone, Debug)]
pub enum Numbers {
    /// Integers.
    Ints(Vec<i64>),
    /// Floating-point numbers.
    Floats(Vec<f64>),
    /// Instants, in ns since 1970.
    Times(Vec<i64>),
}

impl Numbers {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Numbers::Ints(items) | Numbers::Times(items) => items.len(),
            Numbers::Floats(items) => items.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    ///
    /// # Panics
    ///
    /// If there are no more than so many.
    pub fn cell(&self, at: usize) -> Cell<'static> {
        match self {
            Numbers::Ints(items) => Cell::Int(items[at]),
            Numbers::Floats(items) => Cell::Float(items[at]),
            Numbers::Times(items) => Cell::Time(items[at]),
        }
    }

    /// These as the distinct ones of a dictionary, and a code for each row.
    fn coded(&self, codes: &Ints<'_>) -> Result<Numbers> {
        fn all<T: Copy>(distinct: &[T], codes: &Ints<'_>) -> Result<Vec<T>> {
            let mut found = Vec::with_capacity(codes.len());
            let mut beyond = false;
            codes.each(|code| match distinct.get(code as usize) {
                Some(item) => found.push(*item),
                None => beyond = true,
            });
            if beyond { Err(corrupt()) } else { Ok(found) }
        }
        Ok(match self {
            Numbers::Ints(items) => Numbers::Ints(all(items, codes)?),
            Numbers::Floats(items) => Numbers::Floats(all(items, codes)?),
            Numbers::Times(items) => Numbers::Times(all(items, codes)?),
        })
    }
}

/// The rank of each of some cells in order.
fn distinct_ranks(cells: &[Cell<'_>]) -> Vec<u64> {
    let mut ranks = Vec::with_capacity(cells.len());
    let mut rank = 0;
    for (at, cell) in cells.iter().enumerate() {
        if at > 0 && total_order(&cells[at - 1], cell).is_ne() {
            rank += 1;
        }
        ranks.push(rank);
    }
    ranks
}

/// Bits in the order of the numbers; both zeros are the same number, and NaN is behind all others.
fn in_order(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    let bits = (value + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// Appends a column whose cells are in runs.
pub(super) fn push_elsewhere(out: &mut Vec<u8>, states: Option<&[u64]>) {
    push_form(out, ELSEWHERE, states);
}

/// Appends a column as distinct cells, in `total_order`, and codes of the sure rows.
pub(super) fn push_dictionary(
    out: &mut Vec<u8>,
    states: Option<&[u64]>,
    distinct: &[&Cell<'_>],
    codes: &[u64],
) {
    push_form(out, DICTIONARY, states);
    varint::push(out, distinct.len() as u64);
    values::push_distinct(out, distinct);
    ints::push(out, codes);
}

/// Appends a column of which every sure row has the same cell.
pub(super) fn push_constant(out: &mut Vec<u8>, states: Option<&[u64]>, cell: &Cell<'_>) {
    push_form(out, DICTIONARY, states);
    varint::push(out, 1);
    values::push(out, &[cell]);
    ints::push_zeros(out);
}

/// Appends a column of strings that every row has: each distinct one once, in order, and codes.
pub(super) fn push_texts(out: &mut Vec<u8>, distinct: &[&str], codes: &[u64]) {
    push_form(out, DICTIONARY, None);
    varint::push(out, distinct.len() as u64);
    values::push_texts(out, distinct);
    ints::push(out, codes);
}

/// Appends a column as the cells of the sure rows.
pub(super) fn push_rows(out: &mut Vec<u8>, states: Option<&[u64]>, cells: &[&Cell<'_>]) {
    push_form(out, ROWS, states);
    values::push(out, cells);
}

/// Appends a column of instants that every row has, in ns since 1970.
pub(super) fn push_times(out: &mut Vec<u8>, times: &[i64]) {
    push_form(out, ROWS, None);
    values::push_times(out, times);
}

fn push_form(out: &mut Vec<u8>, form: u8, states: Option<&[u64]>) {
    out.push(form | if states.is_some() { STATES } else { 0 });
    if let Some(states) = states {
        ints::push(out, states);
    }
}

/// A column on media.
#[derive(Clone, Debug)]
pub struct Column<'a> {
    rows: usize,
    /// Which rows have a sure cell; all if none is said.
    sure: Option<Bitmap>,
    /// Which rows are unsure, if any are.
    unsure: Option<Bitmap>,
    cells: ColumnCells<'a>,
}

#[derive(Clone, Debug)]
enum ColumnCells<'a> {
    Dictionary { distinct: Values<'a>, codes: Ints<'a> },
    Rows(Values<'a>),
    Elsewhere,
}

fn corrupt() -> Error {
    Error::new(Kind::Corrupt, "a segment's column is not what a segment has")
}

#[expect(clippy::len_without_is_empty, reason = "a segment has rows")]
impl<'a> Column<'a> {
    /// Reads a column from the block that its entry names.
    pub fn parse(entry: &ColumnEntry, block: &'a [u8]) -> Result<Self> {
        let mut bytes = block.get(entry.offset as usize..).unwrap_or_default();
        let (&form, rest) = bytes.split_first().ok_or_else(corrupt)?;
        bytes = rest;
        let rows = entry.rows as usize;
        let (mut sure, mut unsure, mut len) = (None, None, rows);
        if form & STATES != 0 {
            let states = Ints::take(&mut bytes, rows).ok_or_else(corrupt)?;
            let found = states.between(SURE, SURE);
            let doubtful = states.between(UNSURE, UNSURE);
            len = found.count();
            if len + doubtful.count() != entry.sf as usize {
                fail!(Corrupt, "column {} has not the {} rows of its entry", entry.key, entry.sf);
            }
            sure = Some(found);
            unsure = (!doubtful.is_empty()).then_some(doubtful);
        } else if entry.sf as usize != rows {
            fail!(Corrupt, "column {} has {rows} rows instead of {}", entry.key, entry.sf);
        }
        let cells = match form & !STATES {
            DICTIONARY => {
                let count = varint::take(&mut bytes).and_then(|count| usize::try_from(count).ok());
                let count = count.filter(|count| *count <= len).ok_or_else(corrupt)?;
                let distinct = Values::take(&mut bytes, count)?;
                let codes = Ints::take(&mut bytes, len).ok_or_else(corrupt)?;
                ColumnCells::Dictionary { distinct, codes }
            }
            ROWS => ColumnCells::Rows(Values::take(&mut bytes, len)?),
            ELSEWHERE => ColumnCells::Elsewhere,
            _ => return Err(corrupt()),
        };
        Ok(Column { rows, sure, unsure, cells })
    }

    /// How many rows the segment has; at least 1.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Which rows have the column, unsure ones included.
    pub fn presence(&self) -> Bitmap {
        let mut present = self.sure();
        if let Some(unsure) = &self.unsure {
            present.or(unsure);
        }
        present
    }

    /// Which rows have the column, but the record alone says what.
    pub fn unsure(&self) -> Bitmap {
        self.unsure.clone().unwrap_or_else(|| Bitmap::new(self.rows))
    }

    /// Whether the cells are in the column's runs.
    pub fn in_runs(&self) -> bool {
        matches!(self.cells, ColumnCells::Elsewhere)
    }

    /// Which rows have a cell, here or in the runs.
    pub fn sure(&self) -> Bitmap {
        self.sure.clone().unwrap_or_else(|| Bitmap::full(self.rows))
    }

    /// What a row has: `None` if it has no such column, `Some(None)` if its record alone says.
    pub fn cell(&self, position: usize) -> Result<Slot<'a>> {
        let at = match &self.sure {
            None if position < self.rows => position,
            Some(sure) if sure.contains(position) => sure.rank(position),
            _ => {
                let unsure = self.unsure.as_ref().is_some_and(|unsure| unsure.contains(position));
                return Ok(unsure.then_some(None));
            }
        };
        Ok(Some(match &self.cells {
            ColumnCells::Dictionary { distinct, codes } => {
                Some(distinct.get(codes.get(at) as usize)?)
            }
            ColumnCells::Rows(cells) => Some(cells.get(at)?),
            ColumnCells::Elsewhere => None,
        }))
    }

    /// Which rows pass a test of their cell. Every distinct cell of a dictionary is tested once. Of
    /// rows that are not among some, where some are given, what is said is for nobody.
    pub fn test(&self, test: &dyn Fn(&Cell<'_>) -> bool, among: Option<&Bitmap>) -> Result<Marks> {
        let among = self.among(among);
        let passed = match &self.cells {
            ColumnCells::Dictionary { distinct, codes } => {
                tested_codes(distinct, codes, test, among)?
            }
            ColumnCells::Rows(cells) => tested(cells, test, among)?,
            ColumnCells::Elsewhere => return Ok(self.elsewhere()),
        };
        Ok(self.marks(passed))
    }

    /// The same of a test that is true of such strings alone, and of whatever other cells.
    pub fn seek(
        &self,
        sought: &SoughtTexts,
        test: &dyn Fn(&Cell<'_>) -> bool,
        among: Option<&Bitmap>,
    ) -> Result<Marks> {
        match &self.cells {
            ColumnCells::Dictionary { distinct: Values::Ordered(texts), codes } => {
                let parts: Vec<&str> = sought.parts.iter().map(String::as_str).collect();
                let mut passing = PassingCodes::default();
                for (low, high) in &sought.ranges {
                    let found = texts.each_like(low, high.as_deref(), &parts, |at, text| {
                        if at >= passing.seen && test(&Cell::Text(text.into())) {
                            passing.add(at);
                        }
                    });
                    found.ok_or_else(corrupt)?;
                }
                Ok(self.marks(passing.coded(texts.len(), codes, self.among(among))))
            }
            _ => self.test(test, among),
        }
    }

    /// Calls for each distinct cell of a column without doubt, in the order of their numbers; the
    /// number of each row's.
    pub(super) fn each_coded(&self, visit: impl FnMut(&Cell<'_>)) -> Result<Vec<u64>> {
        match &self.cells {
            ColumnCells::Dictionary { distinct, codes } => {
                distinct.each(visit)?;
                Ok(codes.to_vec())
            }
            ColumnCells::Rows(cells) => {
                cells.each(visit)?;
                Ok((0..cells.len() as u64).collect())
            }
            ColumnCells::Elsewhere => Err(corrupt()),
        }
    }

    /// The cells of the sure rows, in the order of the rows, where all are numbers of one kind that
    /// has 64 bits, or all are instants; `None` where they are not, or are in the column's runs.
    pub fn numbers(&self) -> Result<Option<Numbers>> {
        Ok(match &self.cells {
            ColumnCells::Dictionary { distinct, codes } => match distinct.numbers() {
                Some(distinct) => Some(distinct.coded(codes)?),
                None => None,
            },
            ColumnCells::Rows(cells) => cells.numbers(),
            ColumnCells::Elsewhere => None,
        })
    }

    /// A number for each sure row, in the order of the rows, such that two numbers compare as their
    /// cells do in [`total_order`]. `None` where only a look at each cell would tell, or they are
    /// in the column's runs.
    pub fn ranks(&self) -> Result<Option<Vec<u64>>> {
        Ok(match &self.cells {
            ColumnCells::Dictionary { distinct, codes } => {
                Some(match distinct {
                    Values::Singles(_) | Values::Doubles(_) | Values::Mixed { .. } => {
                        // Distinct cells may be equal: zeros of both signs, numbers of two kinds.
                        let ranks = distinct_ranks(&distinct.to_vec()?);
                        let rank = |code| ranks.get(code as usize).copied().ok_or_else(corrupt);
                        codes.to_vec().into_iter().map(rank).collect::<Result<_>>()?
                    }
                    _ => codes.to_vec(),
                })
            }
            ColumnCells::Rows(Values::Ints(words) | Values::Bigs(words) | Values::Times(words)) => {
                Some(words.to_vec())
            }
            ColumnCells::Rows(cells) => match cells.numbers() {
                Some(Numbers::Floats(floats)) => Some(floats.into_iter().map(in_order).collect()),
                _ => None,
            },
            ColumnCells::Elsewhere => None,
        })
    }

    /// Each cell once or more often, and for each row the number of its own, or [`NO_CELL`] or
    /// [`UNSURE_CELL`]. The cells are not in the column's runs.
    pub fn take_apart(&self) -> Result<(Vec<Cell<'a>>, Vec<u32>)> {
        let (cells, codes): (_, Vec<u32>) = match &self.cells {
            ColumnCells::Dictionary { distinct, codes } => {
                (distinct.to_vec()?, codes.to_vec().into_iter().map(|code| code as u32).collect())
            }
            ColumnCells::Rows(cells) => (cells.to_vec()?, (0..cells.len() as u32).collect()),
            ColumnCells::Elsewhere => return Err(corrupt()),
        };
        if codes.iter().any(|code| *code as usize >= cells.len()) {
            return Err(corrupt());
        }
        let Some(sure) = &self.sure else { return Ok((cells, codes)) };
        let mut spread = vec![NO_CELL; self.rows];
        sure.iter().zip(codes).for_each(|(at, code)| spread[at] = code);
        for at in self.unsure.iter().flat_map(Bitmap::iter) {
            spread[at] = UNSURE_CELL;
        }
        Ok((cells, spread))
    }

    /// Which rows have a cell in the range; see [`Column::test`].
    pub fn range(&self, range: &Range<'_>, among: Option<&Bitmap>) -> Result<Marks> {
        let among = self.among(among);
        let passed = match &self.cells {
            ColumnCells::Dictionary { distinct, codes } => {
                tested_codes(distinct, codes, &|cell| range.holds(cell), among)?
            }
            ColumnCells::Rows(cells) => ranged(cells, range, among)?,
            ColumnCells::Elsewhere => return Ok(self.elsewhere()),
        };
        Ok(self.marks(passed))
    }

    /// The rows that a test is asked of, as positions among the sure ones: where a row has none,
    /// all are asked.
    fn among<'b>(&self, among: Option<&'b Bitmap>) -> Option<&'b Bitmap> {
        among.filter(|_| self.sure.is_none())
    }

    fn elsewhere(&self) -> Marks {
        Marks { must: Bitmap::new(self.rows), may: self.presence() }
    }

    /// Makes marks of a bitmap over the sure rows, which says which of them passed.
    fn marks(&self, passed: Bitmap) -> Marks {
        let must = match &self.sure {
            None => passed,
            Some(sure) => sure.spread(&passed),
        };
        let mut may = must.clone();
        if let Some(unsure) = &self.unsure {
            may.or(unsure);
        }
        Marks { must, may }
    }
}

/// Which codes stand for a cell that passes a test.
fn tested_codes(
    distinct: &Values<'_>,
    codes: &Ints<'_>,
    test: &dyn Fn(&Cell<'_>) -> bool,
    among: Option<&Bitmap>,
) -> Result<Bitmap> {
    let (mut passing, mut at) = (PassingCodes::default(), 0);
    distinct.each(|cell| {
        if test(cell) {
            passing.add(at);
        }
        at += 1;
    })?;
    Ok(passing.coded(distinct.len(), codes, among))
}

/// The codes of cells that pass. They are in the order of their cells, so that is a few stretches
/// of codes mostly.
#[derive(Default)]
struct PassingCodes {
    /// From one code to another, both included.
    stretches: Vec<(usize, usize)>,
    /// Codes below this one have been looked at.
    seen: usize,
}

impl PassingCodes {
    /// Adds a code above all before.
    fn add(&mut self, code: usize) {
        match self.stretches.last_mut() {
            Some((_, last)) if *last + 1 == code => *last = code,
            _ => self.stretches.push((code, code)),
        }
        self.seen = code + 1;
    }

    /// Which of these codes, of so many cells, are among them.
    fn coded(&self, distinct: usize, codes: &Ints<'_>, among: Option<&Bitmap>) -> Bitmap {
        let Some(((low, high), more)) = self.stretches.split_first() else {
            return Bitmap::new(codes.len());
        };
        if high - low + 1 == distinct {
            return Bitmap::full(codes.len());
        }
        if more.len() > STRETCHES_FEW {
            let mut passing = vec![false; distinct];
            self.stretches.iter().for_each(|(low, high)| passing[*low..=*high].fill(true));
            return codes.matching(|code| passing.get(code as usize).copied().unwrap_or(false));
        }
        let mut found = codes.between_among(*low as u64, *high as u64, among);
        for (low, high) in more {
            found.or(&codes.between_among(*low as u64, *high as u64, among));
        }
        found
    }
}

/// A look at one row costs as much as reading so many, one after another.
const ROWS_PER_LOOK: usize = 32;

fn tested(
    cells: &Values<'_>,
    test: &dyn Fn(&Cell<'_>) -> bool,
    among: Option<&Bitmap>,
) -> Result<Bitmap> {
    let mut passed = Bitmap::new(cells.len());
    let few = |among: &&Bitmap| among.has_at_most(cells.len() / ROWS_PER_LOOK);
    if let Some(among) = among.filter(few) {
        for at in among.iter() {
            if test(&cells.get(at)?) {
                passed.take_in(at);
            }
        }
        return Ok(passed);
    }
    let mut at = 0;
    cells.each(|cell| {
        if among.is_none_or(|among| among.contains(at)) && test(cell) {
            passed.take_in(at);
        }
        at += 1;
    })?;
    Ok(passed)
}

/// Whole numbers, times and floating-point numbers are compared as they lie, with ends that are
/// searched once among all values of the kind; that takes care of ends of another kind too.
fn ranged(cells: &Values<'_>, range: &Range<'_>, among: Option<&Bitmap>) -> Result<Bitmap> {
    let within =
        |ints: &Ints<'_>, cell: &dyn Fn(u64) -> Cell<'static>| match ends(range, cell, 0, u64::MAX)
        {
            Some((low, high)) => ints.between_among(low, high, among),
            None => Bitmap::new(ints.len()),
        };
    Ok(match cells {
        Values::Ints(ints) => within(ints, &|word| Cell::Int((word ^ SIGN) as i64)),
        Values::Bigs(ints) => within(ints, &Cell::Big),
        Values::Times(ints) => within(ints, &|word| Cell::Time((word ^ SIGN) as i64)),
        Values::Singles(items) if range.low.is_some() || range.high.is_some() => {
            floats(items, range, |item| f64::from(f32::from_le_bytes(*item)))
        }
        Values::Doubles(items) if range.low.is_some() || range.high.is_some() => {
            floats(items, range, |item| f64::from_le_bytes(*item))
        }
        _ => return tested(cells, &|cell| range.holds(cell), among),
    })
}

fn floats<T>(items: &[T], range: &Range<'_>, number_of: impl Fn(&T) -> f64) -> Bitmap {
    // Words in the order of the numbers, from one infinity to the other.
    let number = |word: u64| f64::from_bits(if word & SIGN == 0 { !word } else { word ^ SIGN });
    let infinity = f64::INFINITY.to_bits() | SIGN;
    let found = ends(range, &|word| Cell::Float(number(word)), !infinity, infinity);
    let Some((low, high)) = found.map(|(low, high)| (number(low), number(high))) else {
        return Bitmap::new(items.len());
    };
    // Choosing among bits that lie ready is what compilers do several at once.
    let words = items.chunks(64).map(|block| {
        block.iter().zip(&BITS).fold(0, |word, (item, bit)| {
            let value = number_of(item);
            word | if low <= value && value <= high { *bit } else { 0 }
        })
    });
    Bitmap::from_words(words.collect(), items.len())
}

/// The bits of a word.
const BITS: [u64; 64] = {
    let (mut bits, mut at) = ([0; 64], 0);
    while at < 64 {
        bits[at] = 1 << at;
        at += 1;
    }
    bits
};

/// The least and the greatest word in the range, if any, of words in the order of their cells.
fn ends(
    range: &Range<'_>,
    cell: &dyn Fn(u64) -> Cell<'static>,
    least: u64,
    greatest: u64,
) -> Option<(u64, u64)> {
    let low = first(least, greatest, |word| range.not_below(&cell(word)))?;
    if !range.not_above(&cell(least)) {
        return None;
    }
    let high = match first(least, greatest, |word| !range.not_above(&cell(word))) {
        Some(beyond) => beyond - 1,
        None => greatest,
    };
    (low <= high).then_some((low, high))
}

/// The first of `least..=greatest` that is, of words that are from some one on.
fn first(least: u64, greatest: u64, is: impl Fn(u64) -> bool) -> Option<u64> {
    if !is(greatest) {
        return None;
    }
    let (mut low, mut high) = (least, greatest);
    while low < high {
        let middle = low.midpoint(high);
        if is(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(high)
}
