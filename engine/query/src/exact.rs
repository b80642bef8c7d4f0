//! Sums of floating-point numbers without rounding, whatever the order in which they are added.
//!
//! The index decides in which order rows come by, and an answer must not depend on the index. So a
//! sum is kept as an integer of as many digits as its numbers need, and rounded once, in the end.
//! Digits have 32 bits in words of 128, so that a number is added to one word, and no carry is due
//! before the end: a number adds less than 2^84 to a word, and there are no 2^43 objects.

/// Bits of a digit.
const DIGIT: u32 = 32;
const DIGIT_MASK: i128 = (1 << DIGIT) - 1;
/// The lowest digit's lowest bit is two to this power, less.
const LOWEST: i32 = 1075;

/// A sum of floating-point numbers, and of whole ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExactSum {
    /// The place of the first digit that is kept.
    low: usize,
    digits: Vec<i128>,
    /// Infinities and NaN as they add up, which no digits tell.
    special: Option<f64>,
}

impl ExactSum {
    /// Adds a number.
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let exponent = (bits >> 52) as u32 & 0x7ff;
        if exponent == 0x7ff {
            return self.add_special(value);
        }
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, exponent) =
            if exponent == 0 { (fraction, 1) } else { (fraction | 1 << 52, exponent) };
        // In halves, each of which is one shift.
        let shift = exponent % DIGIT;
        let (high, low) = (mantissa >> 1 >> (63 - shift), mantissa << shift);
        let word = i128::from(high) << 64 | i128::from(low);
        // All ones for a negative number, which turn the word round.
        let sign = i128::from(bits.cast_signed() >> 63);
        let (at, word) = ((exponent / DIGIT) as usize, (word ^ sign) - sign);
        match self.digits.get_mut(at.wrapping_sub(self.low)) {
            Some(digit) => *digit += word,
            None => self.add_beyond(at, word),
        }
    }

    /// Adds to a digit that is not kept yet.
    #[cold]
    #[inline(never)]
    fn add_beyond(&mut self, at: usize, word: i128) {
        self.reach(at, at);
        self.digits[at - self.low] += word;
    }

    /// Adds an infinity or NaN.
    #[cold]
    #[inline(never)]
    fn add_special(&mut self, value: f64) {
        self.special = Some(self.special.unwrap_or(0.0) + value);
    }

    /// Adds a whole number, exactly.
    pub(crate) fn add_whole(&mut self, value: i128) {
        let mut rest = value.unsigned_abs();
        let mut scale = 1.0;
        while rest > 0 {
            // A power of two times 32 bits is a floating-point number.
            let part = f64::from(rest as u32) * scale;
            self.add(if value < 0 { -part } else { part });
            rest >>= DIGIT;
            scale *= 4_294_967_296.0;
        }
    }

    /// Adds another sum.
    pub(crate) fn unite(&mut self, other: &ExactSum) {
        if let Some(special) = other.special {
            self.add_special(special);
        }
        let mut other = other.clone();
        other.carry();
        if let Some(more) = other.digits.len().checked_sub(1) {
            self.reach(other.low, other.low + more);
            for (at, digit) in (other.low - self.low..).zip(&other.digits) {
                self.digits[at] += digit;
            }
            self.carry();
        }
    }

    /// Has digits from one place to another.
    fn reach(&mut self, first: usize, last: usize) {
        if self.digits.is_empty() {
            self.low = first;
        }
        if first < self.low {
            let more = self.low - first;
            self.digits.splice(0..0, std::iter::repeat_n(0, more));
            self.low = first;
        }
        let len = last + 1 - self.low;
        if self.digits.len() < len {
            self.digits.resize(len, 0);
        }
    }

    /// Passes carries on. All digits but the last are then none of them negative, and of 32 bits;
    /// the last is no greater, and no less than -2^32.
    fn carry(&mut self) {
        let mut carry = 0;
        for digit in &mut self.digits {
            *digit += carry;
            carry = *digit >> DIGIT;
            *digit &= DIGIT_MASK;
        }
        while carry != 0 && carry != -1 {
            self.digits.push(carry & DIGIT_MASK);
            carry >>= DIGIT;
        }
        if let Some(last) = self.digits.last_mut() {
            *last += carry << DIGIT;
        }
    }

    /// The sum, rounded to the nearest number of double precision.
    pub(crate) fn value(&self) -> f64 {
        if let Some(special) = self.special {
            return special;
        }
        let mut sum = self.clone();
        sum.carry();
        let negative = sum.digits.last().is_some_and(|top| *top < 0);
        if negative {
            sum.digits.iter_mut().for_each(|digit| *digit = -*digit);
            sum.carry();
        }
        while sum.digits.last() == Some(&0) {
            sum.digits.pop();
        }
        let digits: Vec<u64> = sum.digits.iter().map(|digit| *digit as u64).collect();
        let Some(top) = digits.last() else { return 0.0 };
        // The highest 64 bits, and whether there is anything below them.
        let lead = top.leading_zeros() - DIGIT;
        let mut window: u128 = 0;
        for place in 0..4 {
            let digit = digits.len().checked_sub(1 + place).map_or(0, |at| digits[at]);
            window = window << DIGIT | u128::from(digit);
        }
        let window = window << lead;
        let below = digits.len().saturating_sub(4);
        let sticky = window as u64 != 0 || digits[..below].iter().any(|digit| *digit != 0);
        let word = (window >> 64) as u64 | u64::from(sticky);
        let power = (sum.low + digits.len()) as i32 * DIGIT as i32 - LOWEST - 64 - lead as i32;
        #[expect(clippy::cast_precision_loss, reason = "this is the one rounding")]
        let rounded = scaled(word as f64, power);
        if negative { -rounded } else { rounded }
    }
}

/// A number times a power of two.
fn scaled(value: f64, power: i32) -> f64 {
    let two = |power: i32| f64::from_bits(((power + 1023) as u64) << 52);
    // In steps, as the power alone may be too small or too large for a number.
    let first = power.clamp(-1000, 1000);
    let second = (power - first).clamp(-1000, 1000);
    value * two(first) * two(second)
}

#[cfg(test)]
#[expect(
    clippy::float_cmp,
    clippy::cast_precision_loss,
    reason = "sums are exact, and so are tests"
)]
mod tests {
    use super::ExactSum;
    use proptest::prelude::*;

    fn of(values: &[f64]) -> ExactSum {
        let mut sum = ExactSum::default();
        for value in values {
            sum.add(*value);
        }
        sum
    }

    #[test]
    fn sums_are_rounded_once() {
        assert_eq!(of(&[]).value(), 0.0);
        assert_eq!(of(&[1e100, 1.0, -1e100]).value(), 1.0);
        assert_eq!(of(&[0.1; 10]).value(), 1.0);
        assert_eq!(of(&[f64::MAX, f64::MAX, -f64::MAX]).value(), f64::MAX);
        assert_eq!(of(&[f64::MAX, f64::MAX]).value(), f64::INFINITY);
        assert_eq!(of(&[5e-324, 5e-324]).value(), 1e-323);
        assert_eq!(of(&[-1.5, 0.25]).value(), -1.25);
        assert_eq!(of(&[f64::INFINITY, 1.0]).value(), f64::INFINITY);
        assert!(of(&[f64::INFINITY, f64::NEG_INFINITY]).value().is_nan());
        let half_way = 9_007_199_254_740_992.0;
        assert_eq!(of(&[half_way, 1.0]).value(), half_way);
        assert_eq!(of(&[half_way, 1.0, 5e-324]).value(), half_way + 2.0);
        let many = vec![1e15; 5000];
        assert_eq!(of(&many).value(), 5e18);
        let most = f64::from_bits(1.0_f64.to_bits() - 1);
        assert_eq!(of(&vec![-most; 1 << 16]).value(), -most * 65536.0);
        assert_eq!(of(&[-0.0, -0.0]).value().to_bits(), 0.0_f64.to_bits());
        assert_eq!(of(&[f64::MAX, -0.0, 5e-324, -f64::MAX]).value(), 5e-324);
        assert!(of(&[f64::NAN, f64::INFINITY]).value().is_nan());
        assert_eq!(of(&[f64::NEG_INFINITY, f64::MAX]).value(), f64::NEG_INFINITY);
        let mut parts = of(&[f64::INFINITY]);
        parts.unite(&of(&[f64::NEG_INFINITY]));
        assert!(parts.value().is_nan());
        let mut whole = ExactSum::default();
        whole.add_whole(i128::from(u64::MAX) * 3);
        whole.add_whole(-i128::from(u64::MAX));
        assert_eq!(whole.value(), 2.0 * 18_446_744_073_709_551_615.0);
    }

    /// Numbers that are multiples of 2^-70 below 2^40: their sum is one of whole numbers.
    fn plain() -> impl Strategy<Value = f64> {
        (-(1_i64 << 52)..1 << 52, 0..58_i32).prop_map(|(digits, shift)| {
            let scale = f64::from_bits(((1023 - 70 + shift) as u64) << 52);
            digits as f64 * scale
        })
    }

    fn whole(value: f64) -> i128 {
        let scale = f64::from_bits((1023_u64 + 70) << 52);
        let scaled = value * scale;
        scaled as i128
    }

    proptest! {
        #[test]
        fn the_order_does_not_matter_and_nothing_is_lost(
            mut values in prop::collection::vec(plain(), 0..60),
            cut in any::<prop::sample::Index>(),
        ) {
            let sum = of(&values).value();
            let exact: i128 = values.iter().map(|value| whole(*value)).sum();
            // A whole number of 128 bits as a number of double precision is rounded once, too.
            let scale = f64::from_bits((1023_u64 - 70) << 52);
            prop_assert_eq!(sum, exact as f64 * scale);
            let at = if values.is_empty() { 0 } else { cut.index(values.len()) };
            let (mut first, second) = (of(&values[..at]), of(&values[at..]));
            first.unite(&second);
            prop_assert_eq!(first.value(), sum);
            values.reverse();
            prop_assert_eq!(of(&values).value(), sum);
        }

        #[test]
        fn what_is_taken_away_again_leaves_no_trace(
            values in prop::collection::vec(any::<f64>(), 0..40),
            one in any::<f64>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let finite = |value: &f64| value.is_finite();
            let mut all: Vec<f64> = values.into_iter().filter(finite).collect();
            let one = if one.is_finite() { one } else { 1.5 };
            all.extend(all.clone().iter().rev().map(|value| -value));
            all.insert(cut.index(all.len() + 1), one);
            prop_assert_eq!(of(&all).value(), one);
            let (first, second) = all.split_at(cut.index(all.len()));
            let mut sum = of(first);
            sum.unite(&of(second));
            prop_assert_eq!(sum.value(), one);
        }

        #[test]
        fn any_numbers_add_up_in_any_order(
            mut values in prop::collection::vec(any::<f64>(), 0..40),
        ) {
            let sum = of(&values).value();
            values.sort_by(f64::total_cmp);
            prop_assert_eq!(of(&values).value().to_bits(), sum.to_bits());
        }
    }
}
