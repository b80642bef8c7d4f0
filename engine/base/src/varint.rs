//! Lengths and counts on media: LEB128, seven bits a byte, least first, at most nine bytes.
//!
//! A signed number is turned first, so that small ones of either sign are short: 0, -1, 1, -2, …
//! are 0, 1, 2, 3, …. As it may need 64 bits, the ninth byte has eight of them.

/// Appends a number (below 2^63).
pub fn push(out: &mut Vec<u8>, mut value: u64) {
    debug_assert!(value >> 63 == 0);
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number from the front; `None` if the bytes are none.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    // Mostly it is one byte.
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *bytes = rest;
            Some(u64::from(byte))
        }
        _ => take_long(bytes),
    }
}

/// Appends any signed number.
#[inline]
pub fn push_signed(out: &mut Vec<u8>, value: i64) {
    let turned = (value as u64) << 1 ^ (value >> 63) as u64;
    // Mostly it is one byte.
    if turned < 0x80 { out.push(turned as u8) } else { push_all_bits(out, turned) }
}

fn push_all_bits(out: &mut Vec<u8>, mut value: u64) {
    let (mut bytes, mut last) = ([0; 9], 0);
    while value >= 0x80 && last < 8 {
        bytes[last] = value as u8 | 0x80;
        value >>= 7;
        last += 1;
    }
    bytes[last] = value as u8;
    out.extend_from_slice(&bytes[..=last]);
}

/// Takes a signed number from the front; `None` if the bytes are none.
#[inline]
pub fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    let turned = match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *bytes = rest;
            u64::from(byte)
        }
        _ => take_all_bits(bytes)?,
    };
    Some((turned >> 1) as i64 ^ -((turned & 1) as i64))
}

fn take_all_bits(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (place, &byte) in bytes.iter().enumerate().take(9) {
        let bits = if place == 8 { byte } else { byte & 0x7f };
        value |= u64::from(bits) << (7 * place);
        if byte & 0x80 == 0 || place == 8 {
            *bytes = &bytes[place + 1..];
            return Some(value);
        }
    }
    None
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (place, &byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *bytes = &bytes[place + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes a length from the front, and then as many bytes.
#[inline]
pub fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::{push, push_signed, take, take_bytes, take_signed};

    #[test]
    fn what_is_pushed_is_taken() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), (1 << 63) - 1] {
            let mut bytes = Vec::new();
            push(&mut bytes, value);
            let mut rest = bytes.as_slice();
            assert_eq!(take(&mut rest), Some(value));
            assert!(rest.is_empty());
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn a_signed_number_of_any_size_is_taken_as_it_was_pushed() {
        let edges = (0..64).flat_map(|bits| {
            let edge = 1i64.wrapping_shl(bits);
            [edge, edge.wrapping_neg(), edge.wrapping_sub(1), edge.wrapping_neg().wrapping_sub(1)]
        });
        for value in edges {
            let mut bytes = Vec::new();
            push_signed(&mut bytes, value);
            let bits = 64 - (value ^ value >> 63).leading_zeros() + 1;
            assert_eq!(bytes.len(), bits.div_ceil(7).min(9) as usize, "{value}");
            let mut rest = bytes.as_slice();
            assert_eq!(take_signed(&mut rest), Some(value));
            assert!(rest.is_empty());
            assert_eq!(take_signed(&mut &bytes[..bytes.len() - 1]), None);
        }
        // The ninth byte is the last, whatever is in it.
        let mut endless = [0xff; 20].as_slice();
        assert_eq!((take_signed(&mut endless), endless.len()), (Some(i64::MIN), 11));
    }

    #[test]
    fn what_is_cut_short_or_endless_is_none() {
        assert_eq!(take(&mut [0x80; 20].as_slice()), None);
        assert_eq!(take_bytes(&mut [5, 1, 2].as_slice()), None);
    }
}
