//! Lengths and counts on media: LEB128, seven bits a byte, least first, at most nine bytes.

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
    use super::{push, take, take_bytes};

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
    fn what_is_cut_short_or_endless_is_none() {
        assert_eq!(take(&mut [0x80; 20].as_slice()), None);
        assert_eq!(take_bytes(&mut [5, 1, 2].as_slice()), None);
    }
}
