//! Numbers of a query: integers from `i64::MIN` to `u64::MAX`, floating-point numbers, infinities.

use winnow::Parser;
use winnow::stream::Location;
use winnow::token::take;

use super::fault::{Parsed, fault};
use super::lex::Input;
use engram_columns::literal::Literal;
use engram_columns::literal::instant;

/// A number. Text that runs on without a space is read with it, so that a date is not three
/// numbers.
pub(super) fn number(input: &mut Input<'_>) -> Parsed<Literal> {
    let start = input.current_token_start();
    let text: &str = take(run(input)).parse_next(input)?;
    let at = start..input.current_token_start();
    match value(text) {
        Ok(value) => Ok(value),
        Err(advice) => fault(at, format!("{} is not a number: {advice}", shortened(text))),
    }
}

/// How many characters belong to what begins here.
fn run(text: &str) -> usize {
    let mut chars = text.chars().peekable();
    let mut count = 0;
    while let Some(c) = chars.next() {
        let next = chars.peek().is_some_and(|c| c.is_alphanumeric() || *c == '.');
        let joins = matches!(c, '+' | '-' | ':') && next;
        if count > 0 && !joins && !matches!(c, '.' | '_') && !c.is_alphanumeric() {
            break;
        }
        count += 1;
    }
    count
}

fn value(text: &str) -> Result<Literal, String> {
    let (sign, digits) = match text.as_bytes()[0] {
        b'-' | b'+' => text.split_at(1),
        _ => ("", text),
    };
    if digits.is_empty() {
        return Err("a sign stands before a number".to_owned());
    }
    if let Some(infinity) = infinity(digits) {
        return Ok(Literal::Float(if sign == "-" { -infinity } else { infinity }));
    }
    if digits.bytes().all(|digit| digit.is_ascii_digit()) {
        let int = text.parse().map(Literal::Int);
        let big = text.parse().map(Literal::Big);
        return int.or(big).map_err(|_| {
            let range = "integers go from -9223372036854775808 to 18446744073709551615";
            format!("{range}: write {}.0 for the floating-point number", shortened(text))
        });
    }
    let number = digits.starts_with(|c: char| c == '.' || c.is_ascii_digit());
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && number => Ok(Literal::Float(value)),
        Ok(_) if number => Err("it is too large: write inf for infinity".to_owned()),
        _ if text.split_at_checked(10).and_then(|(date, _)| instant(date)).is_some() => {
            Err(format!("a date stands in quotes, \"{}\"", shortened(text)))
        }
        _ if number => Err(format!("text stands in quotes, \"{}\"", shortened(text))),
        _ => Err("a sign stands before a number".to_owned()),
    }
}

/// Infinity, by its name.
pub(super) fn infinity(text: &str) -> Option<f64> {
    text.eq_ignore_ascii_case("inf").then_some(f64::INFINITY)
}

/// What a message says of a long text.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
