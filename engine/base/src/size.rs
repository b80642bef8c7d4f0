//! Sizes in messages, as people write them: in the largest binary unit that they fill.

use std::fmt;

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A number of bytes that is written as "1.5 GiB" or "256 bytes".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(mut unit) = (self.0.max(1).ilog2() / 10).checked_sub(1) else {
            return write!(f, "{} bytes", self.0);
        };
        let hundredths = |unit: u32| {
            let shift = 10 * (unit + 1);
            (u128::from(self.0) * 100 + (1 << (shift - 1))) >> shift
        };
        // What would be shown as 1024 is one of the next unit.
        if hundredths(unit) >= 102_400 && unit as usize + 1 < UNITS.len() {
            unit += 1;
        }
        let shown = format!("{}.{:02}", hundredths(unit) / 100, hundredths(unit) % 100);
        let shown = shown.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{shown} {}", UNITS[unit as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::ByteSize;

    #[test]
    fn sizes_are_written_in_the_largest_unit_that_they_fill() {
        for (bytes, shown) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (100 << 10, "100 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            (1 << 30, "1 GiB"),
            (1_610_612_736, "1.5 GiB"),
            (1_000_000_000, "953.67 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), shown);
        }
    }
}
