//! What a literal of a query is beside cells: a number, a string, and the instants that it names.
//!
//! A string names the whole of a year, a month or a day: `2017`, `2017-09`, `2017-09-01`; with a
//! time of day it names one instant: `2017-09-01 04:30`, `2017-09-01T04:30:05.25Z`,
//! `2017-09-01T04:30:05+02:00`. A year of other than four digits has more of them, or a sign:
//! `-0044-03-15`, `12000-01-01`; alone it has the sign, so that `20170901` is none. Without a zone
//! it is UTC, as numpy's datetimes are. Below a nanosecond digits are cut.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::ops::RangeInclusive;

use crate::cell::{Cell, days_to_month};

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// A value in a query. A string also stands for the instants that it names, beside times.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// An integer; `true` and `false` are 1 and 0.
    Int(i64),
    /// An integer above `i64::MAX`.
    Big(u64),
    /// Another number (`inf` and `-inf` too); never NaN.
    Float(f64),
    /// A string.
    Text(String),
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Int(value) => write!(f, "{value}"),
            Literal::Big(value) => write!(f, "{value}"),
            // The shortest digits that are read back to the same number, never an integer's.
            Literal::Float(value) => write!(f, "{value:?}"),
            Literal::Text(text) => write_text(text, f),
        }
    }
}

/// Writes a text as a literal of a query, in quotes.
pub fn write_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{{{:x}}}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

/// The literal as a cell.
pub fn cell_of(literal: &Literal) -> Cell<'static> {
    match literal {
        Literal::Int(value) => Cell::Int(*value),
        Literal::Big(value) => Cell::Big(*value),
        Literal::Float(value) => Cell::Float(*value),
        Literal::Text(text) => Cell::Text(Cow::Owned(text.clone())),
    }
}

/// The literal as an instant, the first that it names; `None` where it names none.
pub fn time_of(literal: &Literal) -> Option<Cell<'static>> {
    times_of(literal).map(|(first, _)| first)
}

/// The literal as the first and the last instant that it names; `None` where it names none.
pub fn times_of(literal: &Literal) -> Option<(Cell<'static>, Cell<'static>)> {
    let Literal::Text(text) = literal else { return None };
    let named = instants(text)?;
    Some((Cell::instant(*named.start()), Cell::instant(*named.end())))
}

/// The first instant that a text names: ns since 1970.
pub fn instant(text: &str) -> Option<i128> {
    instants(text).map(|named| *named.start())
}

/// The instants that a text names: ns since 1970.
pub fn instants(text: &str) -> Option<RangeInclusive<i128>> {
    let mut rest = Digits(text.as_bytes());
    let year = rest.year()?;
    let is_year = rest.0.is_empty();
    let month = rest.part()?;
    let is_month = rest.0.is_empty();
    let day = rest.part()?;
    if !(1..=12).contains(&month) {
        return None;
    }
    let first = days_to_month((year - 1970) * 12 + month - 1);
    let length = days_to_month((year - 1970) * 12 + month) - first;
    if !(1..=length).contains(&day) {
        return None;
    }
    let midnight = (first + day - 1) * DAY;
    if rest.0.is_empty() {
        let days = match (is_year, is_month) {
            (true, _) => days_to_month((year + 1 - 1970) * 12) - first,
            (false, true) => length,
            (false, false) => 1,
        };
        return Some(midnight..=midnight + days * DAY - 1);
    }
    rest.byte(b"Tt ")?;
    let ns = midnight + rest.time_of_day()?;
    rest.0.is_empty().then_some(ns..=ns)
}

/// The text that names an instant, ns since 1970: a day if it is its midnight.
pub fn instant_text(ns: i128) -> String {
    let (mut days, of_day) = (ns.div_euclid(DAY), ns.rem_euclid(DAY));
    let mut month = days * 4800 / 146_097; // as many as days make on average, which is near
    while days_to_month(month) > days {
        month -= 1;
    }
    while days_to_month(month + 1) <= days {
        month += 1;
    }
    days -= days_to_month(month);
    let (year, month) = (1970 + month.div_euclid(12), month.rem_euclid(12) + 1);
    let sign = if year < 0 { "-" } else { "" };
    let mut text = format!("{sign}{:04}-{month:02}-{:02}", year.abs(), days + 1);
    let (seconds, fraction) = (of_day / SECOND, of_day % SECOND);
    if of_day > 0 {
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let _ = write!(text, "T{hours:02}:{minutes:02}:{seconds:02}");
    }
    if fraction > 0 {
        let digits = format!("{fraction:09}");
        let _ = write!(text, ".{}", digits.trim_end_matches('0'));
    }
    text
}

/// What is left to read.
struct Digits<'a>(&'a [u8]);

impl Digits<'_> {
    /// Reads a number of so many digits.
    fn number(&mut self, count: usize) -> Option<i128> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.iter().try_fold(0, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + i128::from(digit - b'0'))
        })
    }

    /// Reads a year, such as `2017`, `-0044` or `12000-`, of no more digits than numpy's years
    /// have.
    fn year(&mut self) -> Option<i128> {
        let sign = self.byte(b"+-");
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let year = self.number((4..=19).contains(&count).then_some(count)?)?;
        let long = count > 4 && sign.is_none() && self.0.is_empty();
        (!long).then_some(if sign == Some(b'-') { -year } else { year })
    }

    /// Reads a month or a day, such as `-09`. Where nothing is left, it is the first.
    fn part(&mut self) -> Option<i128> {
        if self.0.is_empty() {
            return Some(1);
        }
        self.byte(b"-")?;
        self.number(2)
    }

    /// A number below a limit.
    fn below(&mut self, limit: i128) -> Option<i128> {
        self.number(2).filter(|number| *number < limit)
    }

    /// One of these bytes.
    fn byte(&mut self, any: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        any.contains(first).then(|| self.0 = rest).map(|()| *first)
    }

    /// Reads `04`, `04:30`, `04:30:05` or `04:30:05.25`, and a zone, as ns since midnight in UTC.
    fn time_of_day(&mut self) -> Option<i128> {
        let mut ns = self.below(24)? * 3600 * SECOND;
        if self.byte(b":").is_some() {
            ns += self.below(60)? * 60 * SECOND;
            if self.byte(b":").is_some() {
                ns += self.below(60)? * SECOND;
                if self.byte(b".,").is_some() {
                    ns += self.fraction()?;
                }
            }
        }
        Some(ns - self.zone()?)
    }

    /// Reads the digits of a fraction, at least one. Those below a nanosecond are cut.
    fn fraction(&mut self) -> Option<i128> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        let ns = (0..9).fold(0, |ns, place| {
            ns * 10 + digits.get(place).map_or(0, |digit| i128::from(digit - b'0'))
        });
        (count > 0).then_some(ns)
    }

    /// What the zone is ahead of UTC, in ns.
    fn zone(&mut self) -> Option<i128> {
        let Some(sign) = self.byte(b"Zz+-") else { return Some(0) };
        if matches!(sign, b'Z' | b'z') {
            return Some(0);
        }
        let mut minutes = self.below(24)? * 60;
        if self.byte(b":").is_some() || !self.0.is_empty() {
            minutes += self.below(60)?;
        }
        Some(if sign == b'-' { -minutes } else { minutes } * 60 * SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::{instant, instant_text, instants};

    #[test]
    fn dates_and_times_are_instants() {
        let day = 86_400_000_000_000;
        let cases = [
            ("1970-01-01", 0),
            ("1970-01-02", day),
            ("1969-12-31T23:59:59.999999999Z", -1),
            ("1970-01-01T00:00:00.0000000019", 1),
            ("1970-01-01 04", day / 6),
            ("1970-01-01T04:30", day / 6 + day / 48),
            ("1970-01-01T02:00:00+02:00", 0),
            ("1970-01-01t02:00+0200", 0),
            ("1969-12-31T22:00-02", 0),
            ("1970-01-01T00:00:00,5z", 500_000_000),
            ("2000-02-29", 951_782_400_000_000_000),
            ("2017-09-01T12:00:00Z", 1_504_267_200_000_000_000),
            ("2017", 1_483_228_800_000_000_000),
            ("2017-09", 1_504_224_000_000_000_000),
            ("9999-12-31", 253_402_214_400_000_000_000),
            ("0000-01-01", -62_167_219_200_000_000_000),
            ("-0044-03-15", -63_549_360_000_000_000_000),
            ("12000-01-01", 316_516_204_800_000_000_000),
            ("+12000", 316_516_204_800_000_000_000),
        ];
        for (text, ns) in cases {
            assert_eq!(instant(text), Some(ns), "{text}");
        }
    }

    #[test]
    fn a_date_is_the_whole_of_its_time_and_a_time_of_day_one_instant() {
        let cases = [
            ("1970", "1970-01-01T00", "1970-12-31T23:59:59.999999999"),
            ("2000", "2000-01-01T00", "2000-12-31T23:59:59.999999999"),
            ("2000-02", "2000-02-01T00", "2000-02-29T23:59:59.999999999"),
            ("2017-12", "2017-12-01T00", "2017-12-31T23:59:59.999999999"),
            ("2017-12-31", "2017-12-31T00", "2017-12-31T23:59:59.999999999"),
            ("-0044-03-15", "-0044-03-15T00", "-0044-03-15T23:59:59.999999999"),
            ("2017-12-31T00", "2017-12-31T00", "2017-12-31T00"),
            ("2017-12-31 04:30", "2017-12-31T04:30", "2017-12-31T04:30"),
            ("2017-12-31T04:30:05Z", "2017-12-31T04:30:05", "2017-12-31T04:30:05"),
        ];
        for (text, first, last) in cases {
            let expected = instant(first).unwrap()..=instant(last).unwrap();
            assert_eq!(instants(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_instant_is_written_as_it_is_read() {
        let day = 86_400_000_000_000;
        let cases = [
            (0, "1970-01-01"),
            (-1, "1969-12-31T23:59:59.999999999"),
            (day / 2 + 500_000_000, "1970-01-01T12:00:00.5"),
            (1_504_267_200_000_000_000, "2017-09-01T12:00:00"),
            (-63_549_360_000_000_000_000, "-0044-03-15"),
        ];
        for (ns, text) in cases {
            assert_eq!(instant_text(ns), text);
        }
        for days in (-1_000_000_i64..1_000_000).step_by(13) {
            let ns = i128::from(days) * day + i128::from(days.rem_euclid(7));
            assert_eq!(instant(&instant_text(ns)), Some(ns), "{days}");
        }
    }

    #[test]
    fn other_texts_are_not() {
        let texts = [
            "",
            "017",
            "20170901",
            "2017-",
            "2017-9",
            "2017T10",
            "2017-09T10",
            "+99999999999999999999",
            "2017-13-01",
            "2017-00-01",
            "2017-09-31",
            "1900-02-29",
            "2017-09-01T",
            "2017-09-01T24:00",
            "2017-09-01T10:60",
            "2017-09-01T10:00:60",
            "2017-09-01T10:00:00.",
            "2017-09-01T10:00Zx",
            "2017-09-01x",
            " 2017-09-01",
            "2017-9-1",
            "2017-09-01T10:00+2",
            "2017-09-01T10:00+02:",
            "+017-09-01",
            "2017-09-01T10:00:00é",
        ];
        for text in texts {
            assert_eq!(instant(text), None, "{text}");
        }
    }
}
