//! Paths and queries as they stand in a request: percent signs and two digits.

use std::fmt::Write as _;

/// A path of a request for a path of any characters; slashes stay.
pub fn encode_path(path: &str) -> String {
    encode(path, b"/-._~")
}

/// A name or a value of a query.
pub fn encode_query(text: &str) -> String {
    encode(text, b"-._~")
}

fn encode(text: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(byte as char);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The text that was encoded; none where it is not well encoded, or is no UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        out.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(out).ok()
}

/// The pairs of a query.
pub(crate) fn pairs(query: &str) -> Option<Vec<(String, String)>> {
    let text = |part: &str| decode(&part.replace('+', " "));
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((text(name)?, text(value)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for text in ["/a b/ä?&=%+#", "", "/plain-._~"] {
            assert_eq!(decode(&encode_path(text)).as_deref(), Some(text));
            assert_eq!(decode(&encode_query(text)).as_deref(), Some(text));
        }
        for odd in ["%", "%4", "%+1", "%zz", "%ff"] {
            assert_eq!(decode(odd), None, "{odd}");
        }
        let query = pairs("a=1&b=x+y%26&&c").unwrap();
        let named: Vec<_> = query.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(named, [("a", "1"), ("b", "x y&"), ("c", "")]);
    }
}
