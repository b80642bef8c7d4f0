//! Where a well-formed query names a field: for errors that only a pool can tell.

use std::ops::Range;

use super::fault::Fault;
use super::lex::{Token, TokenKind, tokens};
use super::params::Given;
use crate::ast::QueryField;
use engram_base::error::{Error, Kind};

/// An error about a field that a query names, of which these are the parts: with a caret under the
/// first place where one does, if there is any.
pub fn error_at(parts: &[&str], field: &QueryField, message: &str) -> Error {
    let found = parts.iter().find_map(|part| place(part, field).map(|at| (part, at)));
    match found {
        Some((part, at)) => Fault { at, message: message.to_owned() }.explain(part),
        None => Error::new(Kind::Query, message),
    }
}

/// The first place where a query names an attribute, of an object or of its groups.
fn place(query: &str, field: &QueryField) -> Option<Range<usize>> {
    let (QueryField::Attr(key) | QueryField::GroupAttr(key)) = field else { return None };
    let of_group = matches!(field, QueryField::GroupAttr(_));
    let tokens = tokens(query, &mut Given::any()).ok()?;
    (0..tokens.len()).find_map(|place| {
        let (before, token) = (&tokens[..place], &tokens[place]);
        let is_key = match &token.kind {
            TokenKind::Name("group") if tokens[place + 1].kind == TokenKind::Dot => false,
            // A function, as in count(x).
            TokenKind::Name(_) if tokens[place + 1].kind == TokenKind::Open => false,
            TokenKind::Name(name) => name == key,
            TokenKind::Quoted(name) => name == key,
            _ => false,
        };
        match before {
            _ if !is_key => None,
            [
                ..,
                Token { kind: TokenKind::Name("group"), at },
                Token { kind: TokenKind::Dot, .. },
            ] => of_group.then_some(at.start..token.at.end),
            [.., Token { kind: TokenKind::Dot, .. }] => None,
            _ => (!of_group).then(|| token.at.clone()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{QueryField, place};

    #[test]
    fn a_field_is_found_where_it_is_named_and_not_in_texts() {
        let attr = |key: &str| QueryField::Attr(key.to_owned());
        let group = |key: &str| QueryField::GroupAttr(key.to_owned());
        let cases = [
            ("Step = 3", attr("Step"), Some("Step")),
            ("a = 'Step' and not Step > 3", attr("Step"), Some("Step")),
            ("group.x = 1 or x = 1", attr("x"), Some("x")),
            ("x = 1 or group.x = 1", group("x"), Some("group.x")),
            ("group.`odd name` = 1", group("odd name"), Some("group.`odd name`")),
            ("`odd name` = 1", attr("odd name"), Some("`odd name`")),
            ("group.y = 1 and group = 2", attr("group"), Some("group")),
            ("group.y = 1", attr("y"), None),
            ("y = 1", group("y"), None),
            ("group = 1", attr("group"), Some("group")),
            ("a = 1 order by b desc", attr("b"), Some("b")),
            ("a < :low and b = 1", attr("b"), Some("b")),
            ("a in :low", attr("low"), None),
            ("max(max) where b = 1 group by level", attr("max"), Some("max")),
            ("max(t) group by max", attr("max"), Some("max")),
        ];
        for (query, field, expected) in cases {
            let found = place(query, &field);
            assert_eq!(found.clone().map(|at| &query[at]), expected, "{query}");
        }
        assert_eq!(place("a = 'Step' and Step > 3", &attr("Step")), Some(15..19));
        assert_eq!(place("group.x = 1 or x = 1", &attr("x")), Some(15..16));
        assert_eq!(place("max(max) group by max", &attr("max")), Some(4..7));
    }
}
