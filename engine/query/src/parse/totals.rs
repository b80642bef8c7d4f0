//! Queries that begin with figures: `count(), mean(x) where y < 5 group by z`.

use winnow::Parser;
use winnow::combinator::separated;

use super::super::lex::nearest_of;
use super::{
    Parsed, Tokens, advance, any_of, begins_offset, by, close, descends, fault, field, here, is,
    is_call, is_named, part, shortened, took,
};
use crate::ast::{Direction, Expr, Function, Measure, Query, QueryField, Totals};
use crate::lex::TokenKind;
use crate::totals::GROUPED_MAX;
use crate::words::Word;

/// A query whose first measure begins here.
pub(super) fn query(input: &mut Tokens<'_, '_>) -> Parsed<Query> {
    let measures: Vec<Measure> =
        separated(1.., measure, is(&TokenKind::Comma)).parse_next(input)?;
    let expr = if is_named(input, "where") {
        advance(input)?;
        any_of(input)?
    } else {
        Expr::All
    };
    let by = if is_named(input, "group") { group_by(input)? } else { Vec::new() };
    let mut totals = Totals { measures, by, order: Vec::new() };
    let ordered = took(input, Word::Order)?;
    if ordered {
        totals.order = order_by(input, &totals)?;
    }
    let sample = totals.name(0);
    let (limit, offset) = part(input, ordered, &sample)?;
    let token = here(input);
    if token.kind == TokenKind::End {
        return Ok(Query { expr, order_by: Vec::new(), limit, offset, totals: Some(totals) });
    }
    let kind = &token.kind;
    let message = if limit.is_some() || offset > 0 {
        format!("the end was expected after the limit, not {kind}")
    } else if ordered {
        format!("'asc', 'desc', a comma, 'limit' or the end was expected, not {kind}")
    } else if !totals.by.is_empty() {
        format!("a comma, 'order by', 'limit' or the end was expected, not {kind}")
    } else {
        format!(
            "a comma and another figure, 'where', 'group by', 'order by', 'limit' or the end was \
             expected, not {kind}: a condition stands behind 'where'"
        )
    };
    fault(token.at.clone(), message)
}

fn measure(input: &mut Tokens<'_, '_>) -> Parsed<Measure> {
    let token = here(input);
    let TokenKind::Name(name) = token.kind else {
        let message =
            format!("a figure was expected, such as mean(temperature), not {}", token.kind);
        return fault(token.at.clone(), message);
    };
    let Some(function) = function(name) else {
        return fault(token.at.clone(), unknown(name));
    };
    advance(input)?;
    let open = here(input).at.clone();
    if here(input).kind != TokenKind::Open {
        let message = format!("'(' was expected, as in {}(temperature)", function.name());
        return fault(open, message);
    }
    advance(input)?;
    let of_objects = function == Function::Count;
    let field = match here(input).kind {
        TokenKind::Close if of_objects => None,
        TokenKind::Star if of_objects => advance(input).map(|()| None)?,
        TokenKind::Close | TokenKind::Star => {
            let message = format!(
                "a field was expected, as in {}(temperature): objects alone are counted, by \
                 count()",
                function.name()
            );
            return fault(here(input).at.clone(), message);
        }
        _ => Some(field(input)?),
    };
    close(input, &open, "")?;
    Ok(Measure { function, field })
}

fn group_by(input: &mut Tokens<'_, '_>) -> Parsed<Vec<QueryField>> {
    advance(input)?;
    if !took(input, Word::By)? {
        let message = "'by' was expected, as in group by level";
        return fault(here(input).at.clone(), message);
    }
    let mut fields: Vec<QueryField> = Vec::new();
    loop {
        let at = here(input).at.clone();
        if is_call(input) {
            let message = "groups are of objects that have the same of a field, not of a figure: \
                           write the field alone";
            return fault(at, message);
        }
        let field = field(input)?;
        if fields.contains(&field) {
            let shown = field.to_string();
            let shown = shortened(&shown);
            return fault(at, format!("the groups are by {shown} already: name each field once"));
        }
        if fields.len() == GROUPED_MAX {
            let message = format!("groups are by at most {GROUPED_MAX} fields: leave some out");
            return fault(at, message);
        }
        fields.push(field);
        if here(input).kind != TokenKind::Comma {
            return Ok(fields);
        }
        advance(input)?;
    }
}

fn order_by(input: &mut Tokens<'_, '_>, totals: &Totals) -> Parsed<Vec<(usize, Direction)>> {
    by(input)?;
    let mut order = Vec::new();
    loop {
        let at = here(input).at.clone();
        let place = if is_call(input) {
            let measure = measure(input)?;
            let place = totals.measures.iter().position(|known| *known == measure);
            place.map(|place| place + totals.by.len())
        } else {
            let field = field(input)?;
            totals.by.iter().position(|known| *known == field)
        };
        let Some(place) = place else {
            let columns = totals.by.len() + totals.measures.len();
            let names: Vec<String> = (0..columns.min(8)).map(|at| totals.name(at)).collect();
            let names = names.join(", ");
            let names = shortened(&names);
            let message = format!("rows are ordered by what they have: {names}");
            return fault(at, message);
        };
        let direction = if descends(input)? { Direction::Descending } else { Direction::Ascending };
        order.push((place, direction));
        if here(input).kind != TokenKind::Comma || begins_offset(input) {
            return Ok(order);
        }
        advance(input)?;
    }
}

fn function(name: &str) -> Option<Function> {
    let known = |(_, known): &&(Function, &str)| known.eq_ignore_ascii_case(name);
    Function::ALL.iter().find(known).map(|(function, _)| *function)
}

/// What to say of a function that there is none of.
fn unknown(name: &str) -> String {
    let all = Function::ALL.map(|(_, name)| name);
    let near = match name.to_ascii_lowercase().as_str() {
        "avg" | "average" => Some("mean"),
        "nunique" | "unique" => Some("distinct"),
        "len" | "size" => Some("count"),
        "total" => Some("sum"),
        _ => nearest_of(name, all.into_iter()),
    };
    let there = near
        .map_or_else(|| "there are".to_owned(), |near| format!("did you mean {near}? There are"));
    let name = shortened(name);
    format!("there is no function {name}: {there} {}", all.join(" "))
}

/// What to say of a function in a condition.
pub(super) fn misplaced(name: &str) -> String {
    if function(name).is_none() {
        let all = Function::ALL.map(|(_, name)| name).join(" ");
        let name = shortened(name);
        return format!(
            "there is no function {name}: a condition has exists(x) and under('path'), and figures \
             stand in front: {all}"
        );
    }
    let name = name.to_ascii_lowercase();
    format!(
        "{name} is a figure of all objects found, and no condition on one: it stands in front, as \
         in {name}(x) where y < 5"
    )
}
