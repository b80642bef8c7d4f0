//! A dtype as numpy writes it: what `str(dtype)` gives, and what queries compare `@dtype` with.
//!
//! Native numbers have names (`float64`), all other scalars their code (`>f8`, `<U3`, `|S5`);
//! structures are lists of their fields where numpy packs them so, and dictionaries where not.

use std::fmt::Write as _;

use super::{DType, Field, Unit};

impl DType {
    /// The dtype as numpy writes it.
    pub fn text(&self) -> String {
        match self {
            DType::Text => "StringDType()".to_owned(),
            DType::Struct { size, align, fields } => structure(*size, *align, fields, true),
            DType::Sub { base, shape } => format!("({}, {})", inner(base), shape_text(shape)),
            DType::Scalar { kind, order, size, unit } => scalar(*kind, *order, *size, *unit),
        }
    }
}

/// A shape as Python writes it: `()`, `(3,)`, `(3, 4)`.
pub fn shape_text(shape: &[u64]) -> String {
    match shape {
        [] => "()".to_owned(),
        [only] => format!("({only},)"),
        _ => {
            let lengths: Vec<String> = shape.iter().map(u64::to_string).collect();
            format!("({})", lengths.join(", "))
        }
    }
}

fn scalar(kind: u8, order: u8, size: u32, unit: Option<(Unit, u32)>) -> String {
    let bits = u64::from(size) * 8;
    if order == b'>' || matches!(kind, b'S' | b'U' | b'V') {
        return code(kind, order, size, unit);
    }
    match kind {
        b'b' => "bool".to_owned(),
        b'i' => format!("int{bits}"),
        b'u' => format!("uint{bits}"),
        b'f' => format!("float{bits}"),
        b'c' => format!("complex{bits}"),
        b'M' => format!("datetime64{}", step(unit)),
        b'm' => format!("timedelta64{}", step(unit)),
        _ => code(kind, order, size, unit),
    }
}

/// numpy's code of a scalar, such as `<f8`, `|S5` or `>M8[ns]`.
fn code(kind: u8, order: u8, size: u32, unit: Option<(Unit, u32)>) -> String {
    let width = if kind == b'U' { size / 4 } else { size };
    format!("{}{}{width}{}", order as char, kind as char, step(unit))
}

fn step(unit: Option<(Unit, u32)>) -> String {
    match unit {
        Some((unit, 1)) => format!("[{}]", unit.name()),
        Some((unit, count)) => format!("[{count}{}]", unit.name()),
        None => String::new(),
    }
}

/// A dtype within another: scalars by their code, quoted, without `|`.
fn inner(dtype: &DType) -> String {
    match dtype {
        DType::Scalar { kind: b'b', .. } => "'?'".to_owned(),
        DType::Scalar { kind: kind @ (b'S' | b'V' | b'U'), order, size: 0, .. } => {
            format!("'{}{}'", prefix(*order), *kind as char)
        }
        DType::Scalar { kind, order, size, unit } => {
            let code = code(*kind, *order, *size, *unit);
            format!("'{}'", code.strip_prefix('|').unwrap_or(&code))
        }
        DType::Struct { size, align, fields } => structure(*size, *align, fields, false),
        DType::Sub { .. } | DType::Text => dtype.text(),
    }
}

fn prefix(order: u8) -> String {
    if order == b'|' { String::new() } else { (order as char).to_string() }
}

/// `with_align`: say that it is aligned, which the list form cannot.
fn structure(size: u32, align: bool, fields: &[Field], with_align: bool) -> String {
    if !(with_align && align) && is_packed(size, align, fields) {
        let listed: Vec<String> = fields.iter().map(list_item).collect();
        return format!("[{}]", listed.join(", "));
    }
    let join =
        |each: &dyn Fn(&Field) -> String| fields.iter().map(each).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "{{'names': [{}], 'formats': [{}], 'offsets': [{}]",
        join(&|field| quoted(&field.name)),
        join(&|field| inner(&field.dtype)),
        join(&|field| field.offset.to_string())
    );
    if fields.iter().any(|field| field.title.is_some()) {
        let title = |field: &Field| field.title.as_deref().map_or("None".to_owned(), quoted);
        let _ = write!(text, ", 'titles': [{}]", join(&title));
    }
    let _ = write!(text, ", 'itemsize': {size}");
    text + if with_align && align { ", 'aligned': True}" } else { "}" }
}

fn list_item(field: &Field) -> String {
    let name = match &field.title {
        Some(title) => format!("({}, {})", quoted(title), quoted(&field.name)),
        None => quoted(&field.name),
    };
    match &field.dtype {
        DType::Sub { base, shape } => format!("({name}, {}, {})", inner(base), shape_text(shape)),
        dtype => format!("({name}, {})", inner(dtype)),
    }
}

/// Whether numpy would lay the fields out so by itself.
fn is_packed(size: u32, align: bool, fields: &[Field]) -> bool {
    let (mut end, mut widest) = (0_u64, 1);
    for field in fields {
        if align {
            let step = alignment(&field.dtype);
            (end, widest) = (end.next_multiple_of(step), widest.max(step));
        }
        if u64::from(field.offset) != end {
            return false;
        }
        end += field.dtype.itemsize();
    }
    u64::from(size) == if align { end.next_multiple_of(widest) } else { end }
}

fn alignment(dtype: &DType) -> u64 {
    match dtype {
        DType::Scalar { kind: b'S' | b'V', .. } | DType::Struct { align: false, .. } => 1,
        DType::Scalar { kind: b'U', .. } => 4,
        DType::Scalar { kind: b'c', size, .. } => u64::from(*size / 2).max(1),
        DType::Scalar { size, .. } => u64::from(*size).max(1),
        DType::Struct { fields, .. } => {
            fields.iter().map(|field| alignment(&field.dtype)).max().unwrap_or(1)
        }
        DType::Sub { base, .. } => alignment(base),
        DType::Text => 8,
    }
}

/// A string as Python's `repr` writes it, but for characters that it would not print.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut quoted = String::from(quote);
    for letter in text.chars() {
        match letter {
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            letter if letter == quote => quoted.extend(['\\', letter]),
            letter if letter.is_ascii_control() => {
                let _ = write!(quoted, "\\x{:02x}", letter as u32);
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push(quote);
    quoted
}

#[cfg(test)]
mod tests {
    use super::{DType, Field, Unit, shape_text};

    fn field(name: &str, offset: u32, dtype: DType) -> Field {
        Field { name: name.into(), title: None, offset, dtype }
    }

    #[test]
    fn scalars_are_written_as_numpy_does() {
        let unit = Some((Unit::Nanosecond, 1));
        for (dtype, text) in [
            (DType::scalar(b'f', b'<', 8), "float64"),
            (DType::scalar(b'f', b'>', 8), ">f8"),
            (DType::scalar(b'b', b'|', 1), "bool"),
            (DType::scalar(b'c', b'<', 32), "complex256"),
            (DType::scalar(b'U', b'<', 12), "<U3"),
            (DType::scalar(b'S', b'|', 5), "|S5"),
            (DType::Scalar { kind: b'M', order: b'<', size: 8, unit }, "datetime64[ns]"),
            (DType::Scalar { kind: b'M', order: b'>', size: 8, unit }, ">M8[ns]"),
            (DType::scalar(b'm', b'<', 8), "timedelta64"),
            (DType::Text, "StringDType()"),
        ] {
            assert_eq!(dtype.text(), text);
        }
    }

    #[test]
    fn structures_are_written_as_numpy_does() {
        let (byte, double) = (DType::scalar(b'u', b'|', 1), DType::scalar(b'f', b'<', 8));
        let packed = vec![field("x", 0, double.clone()), field("y", 8, byte.clone())];
        let packed = DType::Struct { size: 9, align: false, fields: packed };
        assert_eq!(packed.text(), "[('x', '<f8'), ('y', 'u1')]");
        let fields = vec![field("y", 0, byte), field("x", 8, double)];
        let aligned = DType::Struct { size: 16, align: true, fields: fields.clone() };
        let dict = "{'names': ['y', 'x'], 'formats': ['u1', '<f8'], 'offsets': [0, 8], \
                    'itemsize': 16";
        assert_eq!(aligned.text(), format!("{dict}, 'aligned': True}}"));
        let padded = DType::Struct { size: 16, align: false, fields };
        assert_eq!(padded.text(), format!("{dict}}}"));
        let sub = DType::Sub { base: Box::new(aligned), shape: vec![2] };
        assert_eq!(sub.text(), "([('y', 'u1'), ('x', '<f8')], (2,))");
    }

    #[test]
    fn shapes_are_written_as_python_does() {
        assert_eq!((shape_text(&[]), shape_text(&[3])), ("()".to_owned(), "(3,)".to_owned()));
        assert_eq!(shape_text(&[3, 4]), "(3, 4)");
    }
}
