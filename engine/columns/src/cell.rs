//! Cells: what an attribute's value is to the index and to queries.
//!
//! A value keeps its dtype in the record; here only what can be compared is left of it. Numbers
//! compare as numbers whatever their width, strings as Unicode, times as instants. Everything else
//! (complex numbers, structures, time differences, `NaT`) is there, and equals nothing. A value of
//! one item is that item, whatever its shape: files write scalars as arrays of one.
//!
//! Sealed columns and a record's own attributes go through this one door, so the index cannot
//! answer otherwise than a scan of the records would.

use std::borrow::Cow;
use std::cmp::Ordering;

use engram_base::dtype::{DType, Field, Unit};
use engram_base::error::Result;
use engram_records::attrs::{AttrEntry, Value};

/// Strings longer than this are not kept in the index: the record decides.
pub const TEXT_BYTES_MAX: usize = 512;

/// One comparable value.
#[derive(Clone, Debug)]
pub enum Cell<'a> {
    /// An integer or a truth value (0 or 1).
    Int(i64),
    /// An integer above `i64::MAX`.
    Big(u64),
    /// A floating-point number; may be NaN.
    Float(f64),
    /// A string.
    Text(Cow<'a, str>),
    /// An instant: ns since 1970.
    Time(i64),
    /// An instant before 1677 or after 2262, which so many ns do not reach.
    Far(Far),
    /// There, but equal to nothing.
    Other,
}

/// The ns since 1970 of an instant that 64 bits cannot count: the high and the low word, in which
/// they are in order. (As one `i128` they would make every cell larger.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Far(i64, u64);

impl Far {
    /// Whether it is before every [`Cell::Time`]; it is after them all otherwise.
    pub fn is_before(self) -> bool {
        self.0 < 0
    }

    /// The ns since 1970.
    pub fn ns(self) -> i128 {
        i128::from(self.0) << 64 | i128::from(self.1)
    }
}

/// What a value is made of.
#[derive(Clone, Debug)]
pub enum Cells<'a> {
    /// One item.
    One(Cell<'a>),
    /// The text that is the one item of an array: it compares as that text does, but what the array
    /// contains is the whole item.
    Item(Cell<'a>),
    /// None, or several.
    Many(Vec<Cell<'a>>),
}

impl<'a> Cells<'a> {
    /// What the index keeps of the value; `None` where it keeps nothing and the record decides.
    /// So columns, zones and runs know no instant but those of 64 bits.
    pub(crate) fn indexed(self) -> Option<Cell<'a>> {
        match self {
            Cells::One(Cell::Text(text)) if text.len() > TEXT_BYTES_MAX => None,
            Cells::Many(_) | Cells::Item(_) | Cells::One(Cell::Far(_)) => None,
            Cells::One(cell) => Some(cell),
        }
    }

    /// The same, of an array.
    fn of_array(self) -> Self {
        match self {
            Cells::One(text @ Cell::Text(_)) => Cells::Item(text),
            cells => cells,
        }
    }
}

/// How two cells compare; `None` where they are of unlike types, or one of them is NaN.
pub fn compare(a: &Cell<'_>, b: &Cell<'_>) -> Option<Ordering> {
    use Cell::{Big, Far, Float, Int, Text, Time};
    match (a, b) {
        (Int(a), Int(b)) | (Time(a), Time(b)) => Some(a.cmp(b)),
        (Big(a), Big(b)) => Some(a.cmp(b)),
        (Far(a), Far(b)) => Some(a.cmp(b)),
        (Far(a), Time(_)) if a.is_before() => Some(Ordering::Less),
        (Int(_), Big(_)) => Some(Ordering::Less),
        (Big(_), Int(_)) | (Far(_), Time(_)) => Some(Ordering::Greater),
        (Float(a), Float(b)) => a.partial_cmp(b),
        (Int(a), Float(b)) => int_and_float(i128::from(*a), *b),
        (Big(a), Float(b)) => int_and_float(i128::from(*a), *b),
        (Float(_), Int(_) | Big(_)) | (Time(_), Far(_)) => compare(b, a).map(Ordering::reverse),
        (Text(a), Text(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// Compares exactly, as Python does: neither side is rounded.
fn int_and_float(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // Beyond these no integer of ours can be; within, the whole part is an exact i128.
    if float >= 1.0e20 {
        return Some(Ordering::Less);
    }
    if float <= -1.0e20 {
        return Some(Ordering::Greater);
    }
    let whole = float.trunc();
    let ordering = int.cmp(&(whole as i128));
    Some(ordering.then(0.0_f64.partial_cmp(&(float - whole)).unwrap_or(Ordering::Equal)))
}

/// A total order for dictionaries and runs: by kind, then by value; NaN after all numbers.
/// It agrees with [`compare`] wherever that compares.
pub fn total_order(a: &Cell<'_>, b: &Cell<'_>) -> Ordering {
    compare(a, b).unwrap_or_else(|| rank(a).cmp(&rank(b)))
}

/// Ranks a cell by its kind, with NaN apart. Cells of one rank compare with each other, unless they
/// are NaN or `Other`.
pub(crate) fn rank(cell: &Cell<'_>) -> u8 {
    match cell {
        Cell::Float(value) if value.is_nan() => 1,
        Cell::Int(_) | Cell::Big(_) | Cell::Float(_) => 0,
        Cell::Time(_) | Cell::Far(_) => 2,
        Cell::Text(_) => 3,
        Cell::Other => 4,
    }
}

/// Appends bytes that are in the order of cells: those of two cells compare as [`total_order`]
/// compares the cells. None begins another, so what follows them is compared only where the cells
/// are equal.
pub fn push_order(cell: &Cell<'_>, out: &mut Vec<u8>) {
    out.push(rank(cell));
    match cell {
        Cell::Int(value) => push_number(*value < 0, value.unsigned_abs(), 0, out),
        Cell::Big(value) => push_number(false, *value, 0, out),
        Cell::Float(value) if value.is_nan() => {}
        Cell::Float(value) => push_float(*value, out),
        Cell::Time(value) => out.extend_from_slice(&turned(i128::from(*value))),
        Cell::Far(value) => out.extend_from_slice(&turned(value.ns())),
        Cell::Text(text) => {
            for byte in text.bytes() {
                // A zero ends the text: one within it is followed by what no end is.
                out.push(byte);
                if byte == 0 {
                    out.push(0xff);
                }
            }
            out.extend_from_slice(&[0, 0]);
        }
        Cell::Other => {}
    }
}

/// A signed number whose bytes are in its order.
fn turned(number: i128) -> [u8; 16] {
    (number ^ i128::MIN).to_be_bytes()
}

/// A number that is `mantissa` times two to the power of `exponent`, by its sign, the place of its
/// highest bit, and its bits from there on: no rounding, whatever it was.
fn push_number(is_negative: bool, mantissa: u64, exponent: i32, out: &mut Vec<u8>) {
    if mantissa == 0 {
        out.push(1);
        return;
    }
    let shift = mantissa.leading_zeros();
    let place = (63 - shift as i32 + exponent + 0x4000) as u16;
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&place.to_be_bytes());
    bytes[2..].copy_from_slice(&(mantissa << shift).to_be_bytes());
    if is_negative {
        bytes = bytes.map(|byte| !byte);
    }
    out.push(if is_negative { 0 } else { 2 });
    out.extend_from_slice(&bytes);
}

fn push_float(value: f64, out: &mut Vec<u8>) {
    if value.is_infinite() {
        return push_number(value < 0.0, 1, 0x2000, out);
    }
    let bits = value.to_bits();
    let (fraction, biased) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7ff) as i32);
    let (mantissa, exponent) =
        if biased == 0 { (fraction, -1074) } else { (fraction | 1 << 52, biased - 1075) };
    push_number(value < 0.0, mantissa, exponent, out);
}

impl Cell<'_> {
    /// The instant so many ns after 1970 begins.
    pub fn instant(ns: i128) -> Cell<'static> {
        i64::try_from(ns).map_or(Cell::Far(Far((ns >> 64) as i64, ns as u64)), Cell::Time)
    }

    /// The same with a string of its own.
    pub fn into_owned(self) -> Cell<'static> {
        match self {
            Cell::Text(text) => Cell::Text(Cow::Owned(text.into_owned())),
            Cell::Int(value) => Cell::Int(value),
            Cell::Big(value) => Cell::Big(value),
            Cell::Float(value) => Cell::Float(value),
            Cell::Time(value) => Cell::Time(value),
            Cell::Far(value) => Cell::Far(value),
            Cell::Other => Cell::Other,
        }
    }
}

/// What an attribute's value is made of.
pub fn cells_of<'a>(entry: &AttrEntry<'a>) -> Result<Cells<'a>> {
    if let Some(cell) = plain(entry) {
        return Ok(Cells::One(cell));
    }
    let value = entry.decode()?;
    let cells = cells_of_value(&value);
    Ok(if value.shape.is_empty() { cells } else { cells.of_array() })
}

fn cells_of_value(value: &Value) -> Cells<'static> {
    if value.dtype.is_text() {
        return text_items(&value.shape, &value.data);
    }
    let itemsize = value.dtype.itemsize() as usize;
    if let (0, DType::Scalar { kind: b'S' | b'U', .. }) = (itemsize, &value.dtype) {
        return empty_texts(&value.shape);
    }
    if itemsize == 0 || matches!(value.dtype, DType::Struct { .. } | DType::Sub { .. }) {
        return Cells::One(Cell::Other);
    }
    let mut items = value.data.chunks_exact(itemsize).map(|item| scalar(&value.dtype, item));
    match (items.next(), items.len()) {
        (Some(only), 0) => Cells::One(only),
        (Some(first), _) => Cells::Many(std::iter::once(first).chain(items).collect()),
        (None, _) => Cells::Many(Vec::new()),
    }
}

/// What a field of an attribute's value is made of, or a field of that field, and so on; `None`
/// where the value has no such field.
pub fn cells_of_part<'a>(entry: &AttrEntry<'a>, parts: &[String]) -> Result<Option<Cells<'a>>> {
    let value = entry.decode()?;
    let (mut dtype, mut is_array) = (&value.dtype, !value.shape.is_empty());
    // Where within an item: once, or in each structure of an array of them.
    let mut offsets = vec![0];
    for part in parts {
        if let DType::Sub { base, .. } = dtype {
            let len = (dtype.itemsize() as usize).min(value.data.len());
            let step = base.itemsize() as usize;
            let steps = || (0..len).step_by(step.max(1));
            offsets =
                offsets.iter().flat_map(|at| steps().map(move |further| at + further)).collect();
            (dtype, is_array) = (base, true);
        }
        let DType::Struct { fields, .. } = dtype else { return Ok(None) };
        let named = |field: &&Field| field.name == *part || field.title.as_ref() == Some(part);
        let Some(field) = fields.iter().find(named) else { return Ok(None) };
        for offset in &mut offsets {
            *offset += field.offset as usize;
        }
        dtype = &field.dtype;
    }
    let whole = value.dtype.itemsize() as usize;
    let (base, width) = match dtype {
        DType::Sub { base, .. } => (&**base, base.itemsize() as usize),
        other => (other, other.itemsize() as usize),
    };
    let len = dtype.itemsize() as usize;
    if whole == 0 || width == 0 || matches!(base, DType::Struct { .. } | DType::Sub { .. }) {
        return Ok(Some(Cells::One(Cell::Other)));
    }
    let places =
        value.data.chunks_exact(whole).flat_map(|item| offsets.iter().map(move |at| (item, *at)));
    let fields = places.filter_map(|(item, at)| item.get(at..at + len));
    let mut items = fields.flat_map(|field| field.chunks_exact(width)).map(|i| scalar(base, i));
    let is_array = is_array || matches!(dtype, DType::Sub { .. });
    Ok(Some(match (items.next(), items.next()) {
        (Some(only), None) if is_array => Cells::One(only).of_array(),
        (Some(only), None) => Cells::One(only),
        (Some(first), Some(second)) => {
            Cells::Many([first, second].into_iter().chain(items).collect())
        }
        (None, _) => Cells::Many(Vec::new()),
    }))
}

/// What the index keeps of an attribute's value (see [`Cells::indexed`]).
#[inline]
pub fn indexed<'a>(entry: &AttrEntry<'a>) -> Result<Option<Cell<'a>>> {
    match plain(entry) {
        Some(Cell::Text(text)) if text.len() > TEXT_BYTES_MAX => Ok(None),
        Some(cell) => Ok(Some(cell)),
        None => Ok(cells_of(entry)?.indexed()),
    }
}

/// The usual kinds, without allocating: a little-endian number or a string, of one item.
#[inline]
fn plain<'a>(entry: &AttrEntry<'a>) -> Option<Cell<'a>> {
    let data = entry.data();
    if !entry.is_single() {
        return None;
    }
    match entry.dtype() {
        [4] if entry.is_scalar() => std::str::from_utf8(data).ok().map(|t| Cell::Text(t.into())),
        [1, b'f', b'<', 8, 0, 0, 0] => Some(Cell::Float(f64::from_le_bytes(data.try_into().ok()?))),
        [1, b'f', b'<', 4, 0, 0, 0] => {
            Some(Cell::Float(f64::from(f32::from_le_bytes(data.try_into().ok()?))))
        }
        [1, b'i', b'<', 8, 0, 0, 0] => Some(Cell::Int(i64::from_le_bytes(data.try_into().ok()?))),
        [1, b'i', b'<', 4, 0, 0, 0] => {
            Some(Cell::Int(i64::from(i32::from_le_bytes(data.try_into().ok()?))))
        }
        _ => None,
    }
}

/// Strings without width: each is empty, so that two stand for any number of them.
fn empty_texts(shape: &[u64]) -> Cells<'static> {
    let empty = || Cell::Text(Cow::Borrowed(""));
    match shape.iter().fold(1, |count: u64, length| count.saturating_mul(*length)) {
        1 => Cells::One(empty()),
        0 => Cells::Many(Vec::new()),
        _ => Cells::Many(vec![empty(), empty()]),
    }
}

fn text_items<'a>(shape: &[u64], data: &[u8]) -> Cells<'a> {
    let owned = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Cell::Text(Cow::Owned(text.to_owned())),
        Err(_) => Cell::Other,
    };
    if shape.is_empty() {
        return Cells::One(owned(data));
    }
    let count = shape.iter().try_fold(1_usize, |n, &len| n.checked_mul(usize::try_from(len).ok()?));
    let table = count.and_then(|n| n.checked_add(1)).and_then(|n| n.checked_mul(8));
    let Some((offsets, bytes)) = table.and_then(|n| data.split_at_checked(n)) else {
        return Cells::One(Cell::Other);
    };
    let at = |i: usize| {
        let word = offsets[i * 8..i * 8 + 8].try_into().expect("eight bytes");
        usize::try_from(u64::from_le_bytes(word)).unwrap_or(usize::MAX)
    };
    let items = (0..offsets.len() / 8 - 1)
        .map(|i| bytes.get(at(i)..at(i + 1)).map_or(Cell::Other, owned))
        .collect::<Vec<_>>();
    match <[Cell<'_>; 1]>::try_from(items) {
        Ok([only]) => Cells::One(only),
        Err(items) => Cells::Many(items),
    }
}

/// One item of a valid dtype that is neither text nor composite.
fn scalar(dtype: &DType, item: &[u8]) -> Cell<'static> {
    let DType::Scalar { kind, order, unit, .. } = dtype else { return Cell::Other };
    let mut bytes = [0_u8; 16];
    let width = item.len().min(16);
    if matches!(kind, b'b' | b'i' | b'u' | b'f' | b'M') {
        bytes[..width].copy_from_slice(&item[..width]);
        if *order == b'>' {
            bytes[..width].reverse();
        }
    }
    let word = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    match (kind, item.len()) {
        (b'b', _) => Cell::Int(i64::from(bytes[0] != 0)),
        (b'u', _) => i64::try_from(word).map_or(Cell::Big(word), Cell::Int),
        (b'i', len @ 1..=8) => {
            let unused = 64 - 8 * len as u32;
            Cell::Int((word << unused) as i64 >> unused)
        }
        (b'f', 2) => Cell::Float(half(word as u16)),
        (b'f', 4) => Cell::Float(f64::from(f32::from_bits(word as u32))),
        (b'f', 8) => Cell::Float(f64::from_bits(word)),
        (b'f', 16) => Cell::Float(extended(u128::from_le_bytes(bytes))),
        (b'S', _) => {
            let end = item.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
            match std::str::from_utf8(&item[..end]) {
                Ok(text) => Cell::Text(Cow::Owned(text.to_owned())),
                Err(_) => Cell::Other,
            }
        }
        (b'U', _) => utf32(item, *order),
        (b'M', _) => instant(word as i64, *unit),
        _ => Cell::Other,
    }
}

fn utf32(item: &[u8], order: u8) -> Cell<'static> {
    let codes = item.chunks_exact(4).map(|code| {
        let code: [u8; 4] = code.try_into().expect("four bytes");
        if order == b'>' { u32::from_be_bytes(code) } else { u32::from_le_bytes(code) }
    });
    match codes.map(char::from_u32).collect::<Option<String>>() {
        Some(text) => Cell::Text(Cow::Owned(text.trim_end_matches('\0').to_owned())),
        None => Cell::Other,
    }
}

/// A half-precision number.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * power_of_two(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * power_of_two(exponent - 25),
    }
}

/// An x87 number (numpy's longdouble on x86-64), rounded to double precision.
fn extended(bits: u128) -> f64 {
    let sign = if bits >> 79 & 1 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = ((bits >> 64 & 0x7fff) as i32, bits as u64);
    sign * match exponent {
        0x7fff if fraction << 1 == 0 => f64::INFINITY,
        0x7fff => f64::NAN,
        _ if fraction == 0 => 0.0,
        _ if exponent - 16383 > 1023 => f64::INFINITY,
        // Rounded, as every conversion of such a number is. The power is two factors, for by itself
        // it may be too small for a double where the product is not.
        #[expect(clippy::cast_precision_loss)]
        _ => {
            let exponent = exponent - 16383;
            let half = exponent / 2;
            let near_one = fraction as f64 * power_of_two(-63);
            near_one * power_of_two(half) * power_of_two(exponent - half)
        }
    }
}

/// Two to this power, exactly; zero where that is no normal number. (`powi` promises no precision,
/// and what an index has on media is to be the same everywhere.)
fn power_of_two(exponent: i32) -> f64 {
    let biased = u64::try_from(exponent + 1023).unwrap_or(0);
    f64::from_bits(biased.min(2047) << 52)
}

/// A datetime of numpy's as ns since 1970: exact, but for what is below a nanosecond.
fn instant(count: i64, unit: Option<(Unit, u32)>) -> Cell<'static> {
    const DAY: i128 = 86_400_000_000_000;
    let Some((unit, step)) = unit else { return Cell::Other };
    if count == i64::MIN {
        return Cell::Other;
    }
    let count = i128::from(count) * i128::from(step);
    let ns = match unit {
        Unit::Year => days_to_month(count.saturating_mul(12)).saturating_mul(DAY),
        Unit::Month => days_to_month(count).saturating_mul(DAY),
        Unit::Week => count.saturating_mul(7 * DAY),
        Unit::Day => count.saturating_mul(DAY),
        Unit::Hour => count.saturating_mul(DAY / 24),
        Unit::Minute => count.saturating_mul(60_000_000_000),
        Unit::Second => count.saturating_mul(1_000_000_000),
        Unit::Millisecond => count.saturating_mul(1_000_000),
        Unit::Microsecond => count.saturating_mul(1_000),
        Unit::Nanosecond => count,
        Unit::Picosecond => count.div_euclid(1_000),
        Unit::Femtosecond => count.div_euclid(1_000_000),
        Unit::Attosecond => count.div_euclid(1_000_000_000),
    };
    Cell::instant(ns)
}

/// Days from 1970-01-01 to the first of the month that lies so many months after it.
pub(crate) fn days_to_month(months: i128) -> i128 {
    // Years that begin in March end with their leap day.
    let since_march = months + 1970 * 12 - 2;
    let (year, month) = (since_march.div_euclid(12), since_march.rem_euclid(12));
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 - 719_468
}

#[cfg(test)]
mod tests {
    use super::{Cell, Cells, compare, days_to_month, extended, half, instant};
    use super::{push_order, total_order};
    use engram_base::dtype::Unit;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    #[test]
    fn integers_and_floats_compare_exactly() {
        let big = 1_i64 << 53;
        let close = Cell::Float(9_007_199_254_740_992.0);
        assert_eq!(compare(&Cell::Int(big + 1), &close), Some(Ordering::Greater));
        assert_eq!(compare(&Cell::Int(big), &close), Some(Ordering::Equal));
        assert_eq!(compare(&Cell::Int(-1), &Cell::Float(-0.5)), Some(Ordering::Less));
        assert_eq!(compare(&Cell::Int(1), &Cell::Float(0.5)), Some(Ordering::Greater));
        assert_eq!(
            compare(&Cell::Big(u64::MAX), &Cell::Float(f64::INFINITY)),
            Some(Ordering::Less)
        );
        assert_eq!(compare(&Cell::Int(0), &Cell::Float(f64::NAN)), None);
        assert_eq!(compare(&Cell::Int(0), &Cell::Text("0".into())), None);
        assert_eq!(total_order(&Cell::Float(f64::NAN), &Cell::Int(9)), Ordering::Greater);
    }

    #[test]
    fn instants_of_every_unit_are_in_order() {
        let units = [(Unit::Year, -970), (Unit::Month, -11_639), (Unit::Day, -354_253)];
        let far = units.map(|(unit, count)| instant(count, Some((unit, 1))));
        let ages = [i64::MIN + 1, -10_i64.pow(12), 10_i64.pow(12), i64::MAX];
        let [first, early, late, last] = ages.map(|years| instant(years, Some((Unit::Year, 1))));
        let [long_ago, near] = [Cell::Time(i64::MIN), Cell::Time(i64::MAX)];
        let mut sorted = vec![&first, &early];
        sorted.extend(&far);
        sorted.extend([&long_ago, &near, &late, &last]);
        for pair in sorted.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Some(Ordering::Less), "{pair:?}");
            assert_eq!(total_order(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        let [year, month, day] = [(Unit::Year, 1), (Unit::Month, 12), (Unit::Day, 365)]
            .map(|(unit, of_year)| instant(-1000 * of_year, Some((unit, 1))));
        assert_eq!(compare(&year, &month), Some(Ordering::Equal));
        assert_eq!(compare(&month, &day), Some(Ordering::Less), "without leap days");
        assert!(Cells::One(year).indexed().is_none());
        assert!(Cells::One(near).indexed().is_some());
    }

    fn cell() -> impl Strategy<Value = Cell<'static>> {
        let near = prop::sample::select(vec![
            0.0,
            -0.0,
            0.5,
            1.0,
            -1.0,
            f64::MIN_POSITIVE,
            5e-324,
            -5e-324,
            f64::MAX,
            f64::MIN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            9_007_199_254_740_992.0,
            9_223_372_036_854_775_808.0,
        ]);
        let text = prop::collection::vec(prop::sample::select(vec!['\0', '\u{1}', 'a', 'é']), 0..4);
        prop_oneof![
            any::<i64>().prop_map(Cell::Int),
            (-3..4_i64).prop_map(Cell::Int),
            ((1_i64 << 53) - 2..(1 << 53) + 3).prop_map(Cell::Int),
            (1_u64 << 63..u64::MAX).prop_map(Cell::Big),
            any::<f64>().prop_map(Cell::Float),
            near.prop_map(Cell::Float),
            any::<i64>().prop_map(Cell::Time),
            (i128::from(i64::MIN) * 4..i128::from(i64::MAX) * 4).prop_map(Cell::instant),
            text.prop_map(|signs| Cell::Text(signs.into_iter().collect::<String>().into())),
            Just(Cell::Other),
        ]
    }

    proptest! {
        #[test]
        fn bytes_in_order_compare_as_the_cells_do(a in cell(), b in cell(), tail: [bool; 2]) {
            let [mut one, mut other] = [Vec::new(), Vec::new()];
            push_order(&a, &mut one);
            push_order(&b, &mut other);
            one.push(u8::from(tail[0]));
            other.push(u8::from(tail[1]));
            let expected = total_order(&a, &b).then(tail[0].cmp(&tail[1]));
            prop_assert_eq!(one.cmp(&other), expected);
            let turned = |bytes: &[u8]| bytes.iter().map(|byte| !byte).collect::<Vec<_>>();
            prop_assert_eq!(turned(&one).cmp(&turned(&other)), expected.reverse());
        }
    }

    #[test]
    fn cells_are_three_words() {
        assert_eq!(size_of::<Cell<'_>>(), 24);
        let Cell::Far(far) = Cell::instant(-(1 << 90) + 7) else { panic!("too far for 64 bits") };
        assert_eq!(far.ns(), -(1 << 90) + 7);
    }

    #[test]
    fn months_are_days() {
        assert_eq!(days_to_month(0), 0);
        assert_eq!(days_to_month(12), 365);
        assert_eq!(days_to_month(2), 59);
        assert_eq!(days_to_month(30 * 12 + 2), 11_017); // 2000-03-01
        assert_eq!(days_to_month(-12), -365);
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "these are exact")]
    fn odd_floats_are_read() {
        assert_eq!(half(0x3c00), 1.0);
        assert_eq!(half(0xc000), -2.0);
        assert_eq!(half(1), f64::from(f32::EPSILON) / 2.0);
        assert_eq!(half(0x7bff), 65504.0);
        assert_eq!(extended(0x4000_c000_0000_0000_0000), 3.0);
        let power = |biased: u128| extended(biased << 64 | 1 << 63);
        assert_eq!(power(16383 + 1023), f64::from_bits(2046 << 52), "the greatest power");
        assert_eq!(power(16383 - 1022), f64::MIN_POSITIVE);
        assert_eq!(power(16383 - 1074), f64::from_bits(1), "the least number");
        assert_eq!([power(16383 - 1076), power(1)], [0.0; 2]);
    }
}
