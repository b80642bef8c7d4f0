//! Value kinds: what a column's cells were before they became cells.
//!
//! A cell keeps no dtype: an index compares numbers, whatever their width. To give values back, a
//! segment says of a column which kind all of its sure cells are of, if they are of one and it is a
//! usual one: a scalar of little-endian numbers, truth values, text, or instants. Where it says
//! nothing (it is of an older version, or the values are of several kinds), records tell.

use engram_base::dtype::{DType, Unit};
use engram_records::attrs::AttrEntry;

use crate::cell::Cell;

/// What values were; the number is on media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// A truth value.
    Bool = 1,
    /// An integer of 1 byte.
    Int8 = 2,
    /// An integer of 2 bytes.
    Int16 = 3,
    /// An integer of 4 bytes.
    Int32 = 4,
    /// An integer of 8 bytes.
    Int64 = 5,
    /// An unsigned integer of 1 byte.
    Unsigned8 = 6,
    /// An unsigned integer of 4 bytes.
    Unsigned32 = 7,
    /// An unsigned integer of 8 bytes.
    Unsigned64 = 8,
    /// A number of single precision.
    Single = 9,
    /// A number of double precision.
    Double = 10,
    /// A string.
    Text = 11,
    /// An instant, counted in ns.
    Nanoseconds = 12,
    /// An instant, counted in µs.
    Microseconds = 13,
    /// An instant, counted in seconds.
    Seconds = 14,
    /// An instant, counted in days.
    Days = 15,
}

use ValueKind::{
    Bool, Days, Double, Int8, Int16, Int32, Int64, Microseconds, Nanoseconds, Seconds, Single,
    Text, Unsigned8, Unsigned32, Unsigned64,
};

/// The units in which instants of a kind are counted, in the order of the kinds.
const COUNTED: [Unit; 4] = [Unit::Nanosecond, Unit::Microsecond, Unit::Second, Unit::Day];

impl ValueKind {
    /// Every one, by its number less one.
    const ALL: [ValueKind; 15] = [
        Bool,
        Int8,
        Int16,
        Int32,
        Int64,
        Unsigned8,
        Unsigned32,
        Unsigned64,
        Single,
        Double,
        Text,
        Nanoseconds,
        Microseconds,
        Seconds,
        Days,
    ];

    /// The kind of a number.
    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The kind of a value, if it is of one.
    #[inline]
    pub fn of_entry(entry: &AttrEntry<'_>) -> Option<Self> {
        if !entry.is_scalar() {
            return None;
        }
        match entry.dtype() {
            [4] => Some(Text),
            [1, b'f', b'<', 8, 0, 0, 0] => Some(Double),
            [1, b'i', b'<', 8, 0, 0, 0] => Some(Int64),
            [1, b'b', _, 1, 0, 0, 0] => Some(Bool),
            [1, b'f', b'<', 4, 0, 0, 0] => Some(Single),
            [1, b'i', _, 1, 0, 0, 0] => Some(Int8),
            [1, b'i', b'<', 2, 0, 0, 0] => Some(Int16),
            [1, b'i', b'<', 4, 0, 0, 0] => Some(Int32),
            [1, b'u', _, 1, 0, 0, 0] => Some(Unsigned8),
            [1, b'u', b'<', 4, 0, 0, 0] => Some(Unsigned32),
            [1, b'u', b'<', 8, 0, 0, 0] => Some(Unsigned64),
            [1, b'M', b'<', 8, 0, 0, 0, unit, 1, 0, 0, 0] => {
                let counted = [Nanoseconds, Microseconds, Seconds, Days].into_iter();
                counted.zip(COUNTED).find(|(_, known)| *known as u8 == *unit).map(|(kind, _)| kind)
            }
            _ => None,
        }
    }

    /// Its dtype.
    pub fn dtype(self) -> DType {
        let scalar = |kind, size| DType::scalar(kind, if size > 1 { b'<' } else { b'|' }, size);
        let instant =
            |unit| DType::Scalar { kind: b'M', order: b'<', size: 8, unit: Some((unit, 1)) };
        match self {
            Bool => scalar(b'b', 1),
            Int8 => scalar(b'i', 1),
            Int16 => scalar(b'i', 2),
            Int32 => scalar(b'i', 4),
            Int64 => scalar(b'i', 8),
            Unsigned8 => scalar(b'u', 1),
            Unsigned32 => scalar(b'u', 4),
            Unsigned64 => scalar(b'u', 8),
            Single => scalar(b'f', 4),
            Double => scalar(b'f', 8),
            Text => DType::Text,
            Nanoseconds => instant(Unit::Nanosecond),
            Microseconds => instant(Unit::Microsecond),
            Seconds => instant(Unit::Second),
            Days => instant(Unit::Day),
        }
    }

    /// How many ns one count of it is.
    fn step(self) -> i64 {
        match self {
            Microseconds => 1_000,
            Seconds => 1_000_000_000,
            Days => 86_400_000_000_000,
            _ => 1,
        }
    }

    /// Appends the bytes of the value that became this cell; whether it can be one of this kind.
    pub fn push(self, cell: &Cell<'_>, out: &mut Vec<u8>) -> bool {
        match (self, cell) {
            (_, Cell::Int(value)) => return self.push_int(*value, out),
            (Unsigned64, Cell::Big(value)) => out.extend_from_slice(&value.to_le_bytes()),
            (Double, Cell::Float(value)) => out.extend_from_slice(&value.to_le_bytes()),
            (Single, Cell::Float(value)) => {
                out.extend_from_slice(&(*value as f32).to_le_bytes());
            }
            (_, Cell::Time(value)) => return self.push_time(*value, out),
            (Text, Cell::Text(text)) => out.extend_from_slice(text.as_bytes()),
            _ => return false,
        }
        true
    }

    /// The same of an integer.
    #[inline]
    pub fn push_int(self, value: i64, out: &mut Vec<u8>) -> bool {
        let width = match self {
            Bool | Int8 | Unsigned8 => 1,
            Int16 => 2,
            Int32 | Unsigned32 => 4,
            Int64 | Unsigned64 => 8,
            _ => return false,
        };
        out.extend_from_slice(&value.to_le_bytes()[..width]);
        true
    }

    /// The same of an instant, in ns since 1970.
    #[inline]
    pub fn push_time(self, ns: i64, out: &mut Vec<u8>) -> bool {
        if !matches!(self, Nanoseconds | Microseconds | Seconds | Days) {
            return false;
        }
        out.extend_from_slice(&ns.div_euclid(self.step()).to_le_bytes());
        true
    }
}

/// What is known of the kinds of a column while its values go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KindsSeen {
    /// There was none yet.
    #[default]
    None,
    /// All were of this one.
    One(ValueKind),
    /// They were of several, or of one that has no number.
    Several,
}

impl KindsSeen {
    /// Takes in another.
    #[inline]
    pub(crate) fn note(&mut self, kind: Option<ValueKind>) {
        *self = match (*self, kind) {
            (KindsSeen::None, Some(kind)) => KindsSeen::One(kind),
            (KindsSeen::One(one), Some(kind)) if one == kind => KindsSeen::One(one),
            _ => KindsSeen::Several,
        };
    }

    /// The number on media; 0 says nothing.
    pub(crate) fn number(self) -> u8 {
        match self {
            KindsSeen::One(kind) => kind as u8,
            KindsSeen::None | KindsSeen::Several => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KindsSeen, ValueKind};
    use crate::cell::{Cells, cells_of};
    use engram_base::dtype::DType;
    use engram_records::attrs::{Value, entries, section};

    fn value(dtype: DType, shape: Vec<u64>, data: &[u8]) -> Vec<u8> {
        let value = Value { dtype, shape, data: data.to_vec() };
        section(&[3], &[("k".to_owned(), value)]).unwrap()
    }

    #[test]
    fn a_value_comes_back_from_its_cell_in_its_own_bytes() {
        for (number, kind) in (1..).zip(ValueKind::ALL) {
            assert_eq!(ValueKind::of(number), Some(kind));
            assert_eq!(kind as u8, number);
            let size = kind.dtype().itemsize() as usize;
            let samples: Vec<Vec<u8>> = match kind {
                ValueKind::Text => vec![b"".to_vec(), "é".into()],
                ValueKind::Bool => vec![vec![0], vec![1]],
                ValueKind::Days => {
                    vec![19_000_i64.to_le_bytes().into(), (-3_i64).to_le_bytes().into()]
                }
                ValueKind::Double => {
                    vec![0.1_f64.to_le_bytes().into(), f64::NAN.to_le_bytes().into()]
                }
                ValueKind::Single => vec![0.1_f32.to_le_bytes().into()],
                _ => vec![vec![0x7f; size], 5_i64.to_le_bytes()[..size].into(), {
                    let mut low = vec![0; size];
                    low[size - 1] = if kind == ValueKind::Seconds { 0 } else { 0x80 };
                    if kind >= ValueKind::Nanoseconds { vec![0; size] } else { low }
                }],
            };
            for data in samples {
                let bytes = value(kind.dtype(), Vec::new(), &data);
                let entry = entries(&bytes).next().unwrap().unwrap();
                assert_eq!(ValueKind::of_entry(&entry), Some(kind));
                let Cells::One(cell) = cells_of(&entry).unwrap() else { panic!("{kind:?}") };
                let mut out = Vec::new();
                if kind == ValueKind::Seconds && data == vec![0x7f; size] {
                    continue; // it is too far away for a cell of 64 bits
                }
                let far = matches!(cell, crate::cell::Cell::Far(_));
                assert_eq!(kind.push(&cell, &mut out), !far, "{kind:?} {data:?}");
                assert!(far || out == data, "{kind:?} {data:?} {out:?}");
            }
        }
        assert_eq!([0, 16].map(ValueKind::of), [None; 2]);
    }

    #[test]
    fn what_is_no_plain_scalar_is_of_no_kind() {
        for bytes in [
            value(DType::scalar(b'i', b'<', 8), vec![1], &[0; 8]),
            value(DType::scalar(b'i', b'>', 8), Vec::new(), &[0; 8]),
            value(DType::scalar(b'c', b'<', 16), Vec::new(), &[0; 16]),
        ] {
            let entry = entries(&bytes).next().unwrap().unwrap();
            assert_eq!(ValueKind::of_entry(&entry), None);
        }
        let mut seen = KindsSeen::default();
        seen.note(Some(ValueKind::Bool));
        seen.note(Some(ValueKind::Bool));
        assert_eq!(seen, KindsSeen::One(ValueKind::Bool));
        seen.note(None);
        seen.note(Some(ValueKind::Bool));
        assert_eq!(seen.number(), 0);
    }
}
