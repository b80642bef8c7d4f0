//! Zones: what one segment holds of one column, in 32 bytes, so that most segments need not be
//! opened.
//!
//! A zone is about the cells of one [`ZoneClass`]: a column that holds numbers and strings has two.
//! Its ends are 64-bit *prefixes*. A prefix never turns an order round: `a <= b` gives
//! `prefix(a) <= prefix(b)`, but unequal cells may have the same one (an integer beyond 2^53 is
//! rounded to a double, a string is cut after eight bytes). So unequal prefixes prove an order of
//! their cells; equal ones prove that the cells are equal if both are *exact*, which means that the
//! prefix alone gives the cell back. An end of a zone is exact if every cell with its prefix is.

use std::borrow::Cow;

use super::cell::Cell;
use super::range::Range;
use engram_base::error::Result;
use engram_base::fail;

/// Bytes of a zone on media.
pub const ZONE_BYTES: usize = 32;

/// What can be compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneClass {
    /// Numbers and truth values.
    Number = 0,
    /// Instants.
    Time = 1,
    /// Strings.
    Text = 2,
    /// Cells that equal nothing; and the zone of a column whose every cell is unsure.
    Other = 3,
    /// A segment's own: its OIDs as they are, not as numbers.
    Oids = 4,
}

impl ZoneClass {
    fn of(number: u8) -> Option<Self> {
        [ZoneClass::Number, ZoneClass::Time, ZoneClass::Text, ZoneClass::Other, ZoneClass::Oids]
            .get(usize::from(number))
            .copied()
    }

    /// The class of a cell.
    pub(crate) fn of_cell(cell: &Cell<'_>) -> Self {
        match cell {
            Cell::Int(_) | Cell::Big(_) | Cell::Float(_) => ZoneClass::Number,
            Cell::Time(_) | Cell::Far(_) => ZoneClass::Time,
            Cell::Text(_) => ZoneClass::Text,
            Cell::Other => ZoneClass::Other,
        }
    }
}

/// Every cell of the class equals the ends, which are exact; none is NaN.
pub const CONSTANT: u8 = 1;
/// Some rows of the column are unsure, whatever the class.
pub const UNSURE: u8 = 2;
/// Every row of the segment has the column.
pub const ALL_PRESENT: u8 = 4;
/// The column's cells are in runs.
pub const IN_RUNS: u8 = 8;
/// Every cell of the column is of this class, and none is unsure.
pub const SOLE: u8 = 16;
/// Some numbers are NaN, which no end counts.
pub const NAN: u8 = 32;
/// `min` is exact.
pub const MIN_EXACT: u8 = 64;
/// `max` is exact.
pub const MAX_EXACT: u8 = 128;

/// What one segment holds of one column in one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The segment.
    pub segment: u32,
    /// How many rows have the column, of whatever class, unsure ones included.
    pub sf: u32,
    /// Of which cells this zone tells.
    pub class: ZoneClass,
    /// [`CONSTANT`] and the others.
    pub flags: u8,
    /// How many cells are of the class, NaN included; of [`ZoneClass::Oids`]: the family.
    pub extra: u32,
    /// Prefix of the least cell; above `max` if there is none that can be compared.
    pub min: u64,
    /// Prefix of the greatest cell.
    pub max: u64,
}

/// How many of a segment's rows pass a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneVerdict {
    /// None.
    None,
    /// Perhaps some.
    Some,
    /// Every row of the segment.
    All,
}

/// The 64-bit prefix of a cell, and whether it is exact. `None` for NaN and what equals nothing.
#[allow(clippy::cast_precision_loss)] // that is what is not exact
pub fn prefix(cell: &Cell<'_>) -> Option<(u64, bool)> {
    match cell {
        Cell::Int(value) => {
            let rounded = *value as f64;
            Some((of_float(rounded), rounded as i128 == i128::from(*value)))
        }
        Cell::Big(value) => {
            let rounded = *value as f64;
            Some((of_float(rounded), rounded as i128 == i128::from(*value)))
        }
        Cell::Float(value) => (!value.is_nan()).then(|| (of_float(*value), true)),
        Cell::Time(value) => Some((*value as u64 ^ SIGN, true)),
        Cell::Text(text) => {
            let mut bytes = [0; 8];
            let len = text.len().min(8);
            bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
            // Zeros fill up a short string, so one that ends with zeros cannot be told from it.
            Some((u64::from_be_bytes(bytes), text.len() <= 8 && !text.ends_with('\0')))
        }
        Cell::Far(_) | Cell::Other => None,
    }
}

const SIGN: u64 = 1 << 63;

/// Bits in the order of the numbers; both zeros are the same number.
fn of_float(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

fn to_float(prefix: u64) -> f64 {
    f64::from_bits(if prefix & SIGN == 0 { !prefix } else { prefix & !SIGN })
}

impl Zone {
    /// The directory's zone of a segment: its family, and its least and greatest OID.
    pub(crate) fn directory(family: u32, rows: u32, min: u64, max: u64) -> Self {
        let flags = ALL_PRESENT | SOLE | MIN_EXACT | MAX_EXACT;
        Zone { segment: 0, sf: rows, class: ZoneClass::Oids, flags, extra: family, min, max }
    }

    /// The zone of a column of strings that each of so many rows has: these, in order.
    pub(crate) fn texts(distinct: &[&str], rows: u32) -> Self {
        let of = |text: &&str| prefix(&Cell::Text((*text).into())).unwrap_or_default();
        let (min, max) = (distinct.first().map(of), distinct.last().map(of));
        let (min, max) = (min.unwrap_or_default().0, max.unwrap_or_default().0);
        let is_exact = |(_, exact): (u64, bool)| exact;
        let min_exact = distinct.iter().map(of).take_while(|found| found.0 == min).all(is_exact);
        let mut last = distinct.iter().rev().map(of).take_while(|found| found.0 == max);
        let max_exact = last.all(is_exact);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = ALL_PRESENT
            | SOLE
            | flag(min_exact, MIN_EXACT)
            | flag(max_exact, MAX_EXACT)
            | flag(min_exact && max_exact && min == max, CONSTANT);
        let class = ZoneClass::Text;
        Zone { segment: 0, sf: rows, class, flags, extra: rows, min, max }
    }

    /// Whether this is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The one cell that all of the class equal, where the zone alone says which.
    pub fn constant(&self) -> Option<Cell<'static>> {
        if !self.has(CONSTANT) || !self.has(MIN_EXACT) || self.min != self.max {
            return None;
        }
        match self.class {
            ZoneClass::Number => Some(Cell::Float(to_float(self.min))),
            ZoneClass::Time => Some(Cell::Time((self.min ^ SIGN) as i64)),
            ZoneClass::Text => {
                let bytes = self.min.to_be_bytes();
                let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                let text = std::str::from_utf8(&bytes[..len]).ok()?;
                Some(Cell::Text(Cow::Owned(text.to_owned())))
            }
            ZoneClass::Other | ZoneClass::Oids => None,
        }
    }

    /// As it lies on media.
    pub(crate) fn encode(&self) -> [u8; ZONE_BYTES] {
        let mut bytes = [0; ZONE_BYTES];
        bytes[..4].copy_from_slice(&self.segment.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sf.to_le_bytes());
        bytes[8] = self.class as u8;
        bytes[9] = self.flags;
        bytes[12..16].copy_from_slice(&self.extra.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.min.to_le_bytes());
        bytes[24..].copy_from_slice(&self.max.to_le_bytes());
        bytes
    }

    /// Reads a zone from its bytes on media. One of an unknown class is a `CorruptError`.
    #[expect(clippy::missing_panics_doc, reason = "each part lies within the zone's bytes")]
    pub fn decode(bytes: &[u8; ZONE_BYTES]) -> Result<Self> {
        let Some(class) = ZoneClass::of(bytes[8]) else {
            fail!(Corrupt, "a zone is of the unknown class {}", bytes[8]);
        };
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        Ok(Zone {
            segment: half(0),
            sf: half(4),
            class,
            flags: bytes[9],
            extra: half(12),
            min: word(16),
            max: word(24),
        })
    }

    /// How many cells of this class are in the range: all counts these, not the segment's rows.
    fn within(&self, range: &Range<'_>) -> ZoneVerdict {
        let mut all = !self.has(NAN);
        if let Some(low) = &range.low {
            let Some((bound, exact)) = prefix(&low.cell) else { return ZoneVerdict::None };
            let same = |end: u64, flag: u8| end == bound && exact && self.has(flag);
            if self.max < bound || same(self.max, MAX_EXACT) && !low.inclusive {
                return ZoneVerdict::None;
            }
            all &= self.min > bound || same(self.min, MIN_EXACT) && low.inclusive;
        }
        if let Some(high) = &range.high {
            let Some((bound, exact)) = prefix(&high.cell) else { return ZoneVerdict::None };
            let same = |end: u64, flag: u8| end == bound && exact && self.has(flag);
            if self.min > bound || same(self.min, MIN_EXACT) && !high.inclusive {
                return ZoneVerdict::None;
            }
            all &= self.max < bound || same(self.max, MAX_EXACT) && high.inclusive;
        }
        match (self.min > self.max, all) {
            (true, _) => ZoneVerdict::None,
            (false, true) => ZoneVerdict::All,
            (false, false) => ZoneVerdict::Some,
        }
    }
}

/// How many of a segment's rows have the column, by its zones there.
pub fn exists(zones: &[Zone]) -> ZoneVerdict {
    match zones.first() {
        None => ZoneVerdict::None,
        Some(zone) if zone.has(ALL_PRESENT) => ZoneVerdict::All,
        Some(_) => ZoneVerdict::Some,
    }
}

/// How many of a segment's rows have a cell in the range, by the column's zones there. Unsure rows
/// are perhaps some.
pub fn judge(zones: &[Zone], range: &Range<'_>) -> ZoneVerdict {
    let Some(bound) = range.low.as_ref().or(range.high.as_ref()) else { return exists(zones) };
    let classes = [&range.low, &range.high]
        .map(|end| ZoneClass::of_cell(end.as_ref().map_or(&bound.cell, |end| &end.cell)));
    let like = |zone: &&Zone| classes == [zone.class; 2];
    let found =
        zones.iter().find(like).map_or(ZoneVerdict::None, |zone| match zone.within(range) {
            ZoneVerdict::All if !zone.has(ALL_PRESENT) || !zone.has(SOLE) => ZoneVerdict::Some,
            verdict => verdict,
        });
    or_unsure(zones, found)
}

/// The same for any test of a cell: decided where the zones say each cell, else perhaps some.
pub fn judge_cells(zones: &[Zone], test: &dyn Fn(&Cell<'_>) -> bool) -> ZoneVerdict {
    let mut passes = 0;
    for zone in zones.iter().filter(|zone| zone.extra > 0) {
        let known =
            if zone.class == ZoneClass::Other { Some(Cell::Other) } else { zone.constant() };
        let Some(cell) = known else { return ZoneVerdict::Some };
        passes += usize::from(test(&cell));
    }
    let found = match zones {
        _ if passes == 0 => ZoneVerdict::None,
        [zone] if zone.has(ALL_PRESENT) && zone.has(SOLE) => ZoneVerdict::All,
        _ => ZoneVerdict::Some,
    };
    or_unsure(zones, found)
}

fn or_unsure(zones: &[Zone], found: ZoneVerdict) -> ZoneVerdict {
    let unsure = zones.iter().any(|zone| zone.has(UNSURE));
    if unsure && found == ZoneVerdict::None { ZoneVerdict::Some } else { found }
}

/// What is known of a column while its cells go by.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZoneBuilder {
    classes: [Option<Ends>; 4],
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    cells: u32,
    nan: bool,
    min: u64,
    max: u64,
    min_exact: bool,
    max_exact: bool,
}

impl ZoneBuilder {
    /// Counts a cell that so many rows have.
    pub(crate) fn add(&mut self, cell: &Cell<'_>, rows: u32) {
        let nothing =
            Ends { cells: 0, nan: false, min: u64::MAX, max: 0, min_exact: true, max_exact: true };
        let ends = self.classes[ZoneClass::of_cell(cell) as usize].get_or_insert(nothing);
        ends.cells += rows;
        let Some((prefix, exact)) = prefix(cell) else {
            ends.nan |= !matches!(cell, Cell::Other);
            return;
        };
        ends.min_exact =
            exact && (prefix < ends.min || ends.min_exact) || prefix > ends.min && ends.min_exact;
        ends.max_exact =
            exact && (prefix > ends.max || ends.max_exact) || prefix < ends.max && ends.max_exact;
        ends.min = ends.min.min(prefix);
        ends.max = ends.max.max(prefix);
    }

    /// The column's zones, ascending by class: at least one if any row has the column.
    pub(crate) fn finish(&self, rows: u32, sf: u32, unsure: bool, in_runs: bool) -> Vec<Zone> {
        let sole = !unsure && self.classes.iter().flatten().count() == 1;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let common = flag(unsure, UNSURE)
            | flag(sf == rows, ALL_PRESENT)
            | flag(in_runs, IN_RUNS)
            | flag(sole, SOLE);
        let classes = [ZoneClass::Number, ZoneClass::Time, ZoneClass::Text, ZoneClass::Other];
        let zones = classes.iter().zip(&self.classes).filter_map(|(&class, ends)| {
            let ends = (*ends)?;
            let same = ends.min == ends.max && ends.min_exact && ends.max_exact && !ends.nan;
            let flags = common
                | flag(same, CONSTANT)
                | flag(ends.nan, NAN)
                | flag(ends.min_exact, MIN_EXACT)
                | flag(ends.max_exact, MAX_EXACT);
            let Ends { cells, min, max, .. } = ends;
            Some(Zone { segment: 0, sf, class, flags, extra: cells, min, max })
        });
        let mut zones: Vec<Zone> = zones.collect();
        if zones.is_empty() && sf > 0 {
            let class = ZoneClass::Other;
            zones.push(Zone { segment: 0, sf, class, flags: common, extra: 0, min: 1, max: 0 });
        }
        zones
    }
}

#[cfg(test)]
pub(crate) mod tests;
