//! Dtypes as manifests have them.

use engram_base::dtype::{DType, Unit};
use engram_base::error::{Error, Kind, Result};

/// A dtype as manifests have it: numpy's text for a scalar, the engine's bytes for any other.
pub fn text_of(dtype: &DType) -> String {
    if let DType::Scalar { kind, order, size, unit } = dtype {
        // numpy counts characters, each of four bytes.
        let count = if *kind == b'U' { size / 4 } else { *size };
        let unit = match unit {
            Some((unit, 1)) => format!("[{}]", unit.name()),
            Some((unit, steps)) => format!("[{steps}{}]", unit.name()),
            None => String::new(),
        };
        return format!("{}{}{count}{unit}", *order as char, *kind as char);
    }
    let mut bytes = Vec::new();
    dtype.encode(&mut bytes);
    bytes.iter().fold("x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// The dtype that a manifest's text is.
pub fn of_text(text: &str) -> Result<DType> {
    let odd = || Error::new(Kind::Corrupt, format!("{text:?} in a manifest is no dtype"));
    let dtype = match text.strip_prefix('x') {
        Some(hex) => {
            let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
            let byte = |pair: Option<&str>| u8::from_str_radix(pair?, 16).ok();
            let bytes: Option<Vec<u8>> = digits.map(byte).collect();
            DType::decode(&bytes.ok_or_else(odd)?).map_err(|_| odd())?.0
        }
        None => scalar_of(text).ok_or_else(odd)?,
    };
    dtype.validate().map_err(|_| odd())?;
    Ok(dtype)
}

/// The scalar that numpy writes so: `<f8`, `|S5`, `<U5`, `<M8[25s]`.
fn scalar_of(text: &str) -> Option<DType> {
    let (&[order, kind, ..], rest) = (text.as_bytes(), text.get(2..)?) else { return None };
    let (count, unit) = match rest.split_once('[') {
        Some((count, unit)) => (count, Some(unit.strip_suffix(']')?)),
        None => (rest, None),
    };
    let count: u32 = count.parse().ok()?;
    let size = if kind == b'U' { count.checked_mul(4)? } else { count };
    let unit = match unit {
        Some(unit) => {
            let name = unit.trim_start_matches(|sign: char| sign.is_ascii_digit());
            let steps = &unit[..unit.len() - name.len()];
            let steps = if steps.is_empty() { 1 } else { steps.parse().ok()? };
            Some((Unit::from_name(name)?, steps))
        }
        None => None,
    };
    Some(DType::Scalar { kind, order, size, unit })
}

#[cfg(test)]
mod tests {
    use super::{of_text, text_of};
    use engram_base::dtype::{DType, Field};

    #[test]
    fn dtypes_come_back_from_their_text() {
        for text in ["<f8", ">i2", "|b1", "|u1", "<c16", "|S5", "|V3", "<U5", "<M8[ns]", "<m8[25s]"]
        {
            assert_eq!(text_of(&of_text(text).unwrap()), text);
        }
        assert_eq!(of_text("<U5").unwrap().itemsize(), 20);
        let field = Field {
            name: "x".to_owned(),
            title: None,
            offset: 0,
            dtype: DType::scalar(b'f', b'<', 4),
        };
        let own = DType::Struct { size: 8, align: false, fields: vec![field] };
        assert_eq!(of_text(&text_of(&own)).unwrap(), own);
        for odd in ["", "<", "f8", "<f", "<f7", "<M8[x]", "<M8[s", "x", "xzz", "<f8 ", "é"] {
            assert!(of_text(odd).is_err(), "{odd:?}");
        }
    }
}
