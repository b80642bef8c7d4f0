//! The query language: text to tree.
//!
//! ```text
//! query   = [any] [order by field [asc | desc], ...] [limit n]
//! any     = all {or all}
//! all     = operand {and operand}
//! operand = {not} (term | "(" any ")")
//! term    = exists(field) | under(text) | true | false
//!         | field test | value op field [op value]
//! test    = op value | between value and value | in (value, ...) | contains value
//!         | startswith text | endswith text | like text
//! field   = name | group.name | @name
//! ```
//!
//! One token always decides what comes next, so a fault is where it is found: no branch is tried
//! and given up. `a < x < b` is `a < x and x < b`. Text and depth are bounded, so a query can
//! exhaust neither memory nor the stack.

use std::ops::Range;

use winnow::Parser;
use winnow::combinator::{opt, preceded, separated};
use winnow::stream::{Stateful, Stream, TokenSlice};
use winnow::token::any;

use super::fault::{Parsed, fault};
use super::lex::{Token, TokenKind, tokens};
use super::number::{infinity, shortened};
use super::words::Word;
use crate::ast::{Builtin, Comparison, Expr, Order, Query, QueryField, Test};
use engram_base::error::Result;
use engram_base::fail;
use engram_columns::literal::Literal;
use engram_columns::literal::time_of;

/// The longest query, in bytes.
pub const QUERY_BYTES_MAX: usize = 1 << 20;
/// How deep parentheses and `not` may be nested.
pub const NESTING_MAX: usize = 200;

/// The tokens that are left, and how many parentheses and `not`s are around them.
type Tokens<'t, 'q> = Stateful<TokenSlice<'t, Token<'q>>, usize>;

const VALUE: &str = "a value was expected: a number, or text in quotes";

/// Parses a query. An ill-formed one is [`Kind::Query`](engram_base::error::Kind::Query), with the
/// place and
/// what was expected there.
pub fn parse(text: &str) -> Result<Query> {
    if text.len() > QUERY_BYTES_MAX {
        let length = text.len();
        fail!(
            Query,
            "the query has {length} bytes; at most {QUERY_BYTES_MAX} are read: shorten it"
        );
    }
    let parsed = tokens(text).and_then(|tokens| {
        let input = TokenSlice::new(&tokens);
        query(&mut Stateful { input, state: 0 })
    });
    parsed.map_err(|error| match error.into_inner() {
        Ok(fault) => fault.explain(text),
        Err(_) => unreachable!("the whole query is there"),
    })
}

fn query(input: &mut Tokens<'_, '_>) -> Parsed<Query> {
    let expr = match here(input).kind {
        TokenKind::End | TokenKind::Word(Word::Order | Word::Limit) => Expr::All,
        _ => any_of(input)?,
    };
    let order_by = if took(input, Word::Order)? { order_by(input)? } else { Vec::new() };
    let limit = opt(preceded(word(Word::Limit), limit)).parse_next(input)?;
    let token = here(input);
    let message = match &token.kind {
        TokenKind::End => return Ok(Query { expr, order_by, limit }),
        TokenKind::Word(Word::Order) if limit.is_some() => {
            "'order by' comes before 'limit'".to_owned()
        }
        TokenKind::Close => "no '(' is open that this ')' closes".to_owned(),
        TokenKind::Comparison(_) if expr != Expr::All => {
            "comparisons are joined by 'and', as in a > 2 and a < 5; a chain begins with a value, \
             as in 2 < a < 5"
                .to_owned()
        }
        kind if limit.is_some() => format!("the end was expected after the limit, not {kind}"),
        kind if order_by.is_empty() => {
            format!("'and', 'or', 'order by', 'limit' or the end was expected, not {kind}")
        }
        kind => format!("'asc', 'desc', a comma, 'limit' or the end was expected, not {kind}"),
    };
    fault(token.at.clone(), message)
}

fn order_by(input: &mut Tokens<'_, '_>) -> Parsed<Vec<Order>> {
    let message = "'by' was expected, as in order by temperature desc";
    let message = format!("{message}{}", attribute(here(input), Word::Order));
    expect(input, &TokenKind::Word(Word::By), &message)?;
    let order = |input: &mut Tokens<'_, '_>| {
        let field = field(input)?;
        let descending = !took(input, Word::Asc)? && took(input, Word::Desc)?;
        Ok(Order { field, descending })
    };
    separated(1.., order, is(&TokenKind::Comma)).parse_next(input)
}

fn limit(input: &mut Tokens<'_, '_>) -> Parsed<u64> {
    let token = here(input);
    let limit = match token.kind {
        TokenKind::Value(Literal::Int(limit)) => u64::try_from(limit).ok(),
        TokenKind::Value(Literal::Big(limit)) => Some(limit),
        _ => None,
    };
    let Some(limit) = limit else {
        let message = "a number of objects was expected, as in limit 10";
        return fault(token.at.clone(), format!("{message}{}", attribute(token, Word::Limit)));
    };
    advance(input).map(|()| limit)
}

/// Terms joined by `and` and `or`. With [`operand`], all of the parser that recurses: two frames,
/// kept small, for each level of depth.
fn any_of(input: &mut Tokens<'_, '_>) -> Parsed<Expr> {
    let (mut any, mut all) = (Vec::new(), Vec::new());
    loop {
        all.push(operand(input)?);
        if took(input, Word::And)? {
            continue;
        }
        any.push(joined(std::mem::take(&mut all), Expr::And));
        if !took(input, Word::Or)? {
            return Ok(joined(any, Expr::Or));
        }
    }
}

fn joined(mut terms: Vec<Expr>, join: fn(Vec<Expr>) -> Expr) -> Expr {
    if terms.len() == 1 { terms.remove(0) } else { join(terms) }
}

/// A term or what stands in parentheses, and the `not`s before it.
fn operand(input: &mut Tokens<'_, '_>) -> Parsed<Expr> {
    let outside = input.state;
    while here(input).kind == TokenKind::Word(Word::Not) {
        deeper(input)?;
    }
    let nots = input.state - outside;
    let mut expr = if here(input).kind == TokenKind::Open {
        let open = deeper(input)?;
        let expr = any_of(input)?;
        close(input, &open, "'and', 'or'")?;
        expr
    } else {
        term(input)?
    };
    for _ in 0..nots {
        expr = Expr::Not(Box::new(expr));
    }
    input.state = outside;
    Ok(expr)
}

/// Takes a token that leads one level deeper; where it is.
fn deeper(input: &mut Tokens<'_, '_>) -> Parsed<Range<usize>> {
    let at = here(input).at.clone();
    if input.state == NESTING_MAX {
        let message = format!(
            "parentheses and 'not' are nested at most {NESTING_MAX} deep: simplify the query"
        );
        return fault(at, message);
    }
    input.state += 1;
    advance(input).map(|()| at)
}

fn term(input: &mut Tokens<'_, '_>) -> Parsed<Expr> {
    let token = here(input);
    let next = input.get(1).map(|token| &token.kind);
    match &token.kind {
        TokenKind::Word(Word::Exists) => {
            let open = open(input, "exists(temperature)")?;
            let field = field(input)?;
            close(input, &open, "")?;
            Ok(Expr::Test(field, Test::Exists))
        }
        TokenKind::Word(Word::Under) => {
            let open = open(input, "under(\"run-17\")")?;
            let path = text(input, "the path of a group was expected in quotes: \"run-17\"")?;
            close(input, &open, "")?;
            Ok(Expr::Under(path))
        }
        TokenKind::Word(word @ (Word::True | Word::False))
            if !matches!(next, Some(TokenKind::Comparison(_))) =>
        {
            advance(input)?;
            Ok(if *word == Word::True { Expr::All } else { Expr::Not(Box::new(Expr::All)) })
        }
        TokenKind::Value(_) | TokenKind::Word(Word::True | Word::False) => mirrored(input),
        TokenKind::Name(_) | TokenKind::Quoted(_) | TokenKind::Builtin(_) => {
            let field = field(input)?;
            let test = test(input, &field, &token.at)?;
            Ok(Expr::Test(field, test))
        }
        kind => {
            let example = "a condition was expected, such as temperature < -15";
            fault(token.at.clone(), format!("{example}, not {kind}{}", backquotes(kind)))
        }
    }
}

/// `value op field`, or the chain `value op field op value`.
fn mirrored(input: &mut Tokens<'_, '_>) -> Parsed<Expr> {
    use Comparison::{Eq, Ge, Gt, Le, Lt, Ne};
    let at = here(input).at.clone();
    let first = value(input)?;
    let token = here(input);
    let TokenKind::Comparison(written) = token.kind else {
        let expected = "after a value a comparison was expected, as in 0 < temperature";
        let odd = "; an attribute with an odd name stands in backquotes";
        return fault(token.at.clone(), format!("{expected}, not {}{odd}", token.kind));
    };
    advance(input)?;
    if let (Literal::Text(text), TokenKind::Value(_)) = (&first, &here(input).kind) {
        return fault(at, no_field(text));
    }
    let field = field(input)?;
    check_instant(&field, &first, &at)?;
    let mirror = |comparison| match comparison {
        Lt => Gt,
        Le => Ge,
        Gt => Lt,
        Ge => Le,
        same @ (Eq | Ne) => same,
    };
    let test = Expr::Test(field.clone(), Test::Compare(mirror(written), first));
    let token = here(input);
    let TokenKind::Comparison(second) = token.kind else { return Ok(test) };
    if !matches!((written, second), (Lt | Le, Lt | Le) | (Gt | Ge, Gt | Ge)) {
        let message = "a chain goes one way, as in 0 < a <= 5: join other comparisons with 'and'";
        return fault(token.at.clone(), message);
    }
    advance(input)?;
    let last = operand_of(&field, input)?;
    Ok(Expr::And(vec![test, Expr::Test(field, Test::Compare(second, last))]))
}

/// What stands after a field.
fn test(input: &mut Tokens<'_, '_>, field: &QueryField, at: &Range<usize>) -> Parsed<Test> {
    let token = here(input);
    match token.kind {
        TokenKind::Comparison(comparison) => {
            advance(input)?;
            if comparison == Comparison::Eq && here(input).kind == TokenKind::Star {
                return advance(input).map(|()| Test::Exists);
            }
            Ok(Test::Compare(comparison, operand_of(field, input)?))
        }
        TokenKind::Word(Word::Between) => {
            advance(input)?;
            let low = operand_of(field, input)?;
            let and = "'and' was expected: two values follow 'between', as in between 1 and 5";
            expect(input, &TokenKind::Word(Word::And), and)?;
            Ok(Test::Between(low, operand_of(field, input)?))
        }
        TokenKind::Word(Word::In) => {
            let open = open(input, "x in (1, 2)")?;
            let mut values = Vec::new();
            if here(input).kind != TokenKind::Close {
                let value = |input: &mut Tokens<'_, '_>| operand_of(field, input);
                values = separated(1.., value, is(&TokenKind::Comma)).parse_next(input)?;
            }
            close(input, &open, "a comma")?;
            Ok(Test::In(values))
        }
        TokenKind::Word(Word::Contains) => {
            advance(input)?;
            Ok(Test::Contains(operand_of(field, input)?))
        }
        TokenKind::Word(Word::StartsWith) => {
            advance(input)?;
            text(input, "the start of a text was expected in quotes: \"GLAH\"")
                .map(Test::StartsWith)
        }
        TokenKind::Word(Word::EndsWith) => {
            advance(input)?;
            text(input, "the end of a text was expected in quotes: \".nc\"").map(Test::EndsWith)
        }
        TokenKind::Word(Word::Like) => {
            advance(input)?;
            let pattern = "a pattern was expected in quotes, with % for any run and _ for any one";
            text(input, &format!("{pattern}: \"GLAH_%\"")).map(Test::Like)
        }
        _ => fault(token.at.clone(), no_test(token, field, at)),
    }
}

/// A value that the field can be compared with.
fn operand_of(field: &QueryField, input: &mut Tokens<'_, '_>) -> Parsed<Literal> {
    let at = here(input).at.clone();
    let value = value(input)?;
    check_instant(field, &value, &at).map(|()| value)
}

/// Refuses what is no instant where nothing else can be true.
fn check_instant(field: &QueryField, value: &Literal, at: &Range<usize>) -> Parsed<()> {
    let QueryField::Builtin(Builtin::Created | Builtin::Modified) = field else { return Ok(()) };
    if time_of(value).is_some() {
        return Ok(());
    }
    let value = value.to_string();
    let shown = shortened(&value);
    let write = "write \"2017\", \"2017-09\", \"2017-09-01\" or \"2017-09-01T04:30:05\"";
    fault(at.clone(), format!("{field} is an instant, and {shown} names none: {write}"))
}

/// What to say where an operator should stand.
fn no_test(token: &Token<'_>, field: &QueryField, at: &Range<usize>) -> String {
    let shown = field.to_string();
    let shown = shortened(&shown);
    let joined = token.at.start == at.end && matches!(field, QueryField::Attr(_));
    match &token.kind {
        TokenKind::Value(_) | TokenKind::Dot if joined => {
            "an attribute stands in backquotes if other characters than letters, digits and _ are \
             in its name, as in `a-b`"
                .to_owned()
        }
        TokenKind::Word(Word::Not) => {
            format!("'not' stands before the whole test, as in not {shown} in (1, 2)")
        }
        TokenKind::Name(name) if name.eq_ignore_ascii_case("is") => {
            format!("whether it is there is asked by exists({shown}), or not exists({shown})")
        }
        TokenKind::End | TokenKind::Close | TokenKind::Word(Word::And | Word::Or) => format!(
            "an operator was expected, as in {shown} = 5; whether it is there at all is asked by \
             exists({shown})"
        ),
        kind => format!(
            "an operator was expected, not {kind}{}: = != < <= > >= between in contains startswith \
             endswith like",
            backquotes(kind)
        ),
    }
}

fn field(input: &mut Tokens<'_, '_>) -> Parsed<QueryField> {
    let token = here(input);
    let next = input.get(1).map(|token| &token.kind);
    match &token.kind {
        TokenKind::Name(name)
            if next == Some(&TokenKind::Dot)
                && *name != "group"
                && name.eq_ignore_ascii_case("group") =>
        {
            let message = format!("'group.' is written in lower case, not '{name}.'");
            fault(token.at.clone(), message)
        }
        TokenKind::Name("group") if next == Some(&TokenKind::Dot) => {
            advance(input)?;
            advance(input)?;
            let token = here(input);
            let key = match &token.kind {
                TokenKind::Name(name) => (*name).to_owned(),
                TokenKind::Quoted(name) => name.clone(),
                kind => {
                    let message = "the name of a group's attribute was expected after group.";
                    return fault(token.at.clone(), format!("{message}{}", backquotes(kind)));
                }
            };
            advance(input).map(|()| QueryField::GroupAttr(key))
        }
        TokenKind::Name(name) => advance(input).map(|()| QueryField::Attr((*name).to_owned())),
        TokenKind::Quoted(name) => advance(input).map(|()| QueryField::Attr(name.clone())),
        TokenKind::Builtin(builtin) => advance(input).map(|()| QueryField::Builtin(*builtin)),
        TokenKind::Value(Literal::Text(text)) => {
            let quoted = QueryField::Attr(text.clone());
            let message =
                "an attribute was expected, not text: without quotes, or in backquotes if";
            fault(token.at.clone(), format!("{message} its name is odd, as in {quoted}"))
        }
        kind => {
            let message = format!("an attribute was expected, not {kind}{}", backquotes(kind));
            fault(token.at.clone(), message)
        }
    }
}

fn value(input: &mut Tokens<'_, '_>) -> Parsed<Literal> {
    let token = here(input);
    let value = match &token.kind {
        TokenKind::Value(value) => value.clone(),
        TokenKind::Word(Word::True) => Literal::Int(1),
        TokenKind::Word(Word::False) => Literal::Int(0),
        TokenKind::Name(name) => match infinity(name) {
            Some(infinity) => Literal::Float(infinity),
            None => return fault(token.at.clone(), no_value(name)),
        },
        TokenKind::Quoted(_) | TokenKind::Builtin(_) => {
            let message = format!("{VALUE}; attributes and fields are compared with values alone");
            return fault(token.at.clone(), message);
        }
        TokenKind::End => return fault(token.at.clone(), VALUE),
        kind => return fault(token.at.clone(), format!("{VALUE}, not {kind}")),
    };
    advance(input).map(|()| value)
}

/// What to say of a text where an attribute should stand.
fn no_field(text: &str) -> String {
    let plain = QueryField::Attr(text.to_owned()).to_string();
    let plain = shortened(&plain);
    format!("an attribute was expected, not text: {plain} stands without these quotes")
}

/// What to say of a name where a value should stand.
fn no_value(name: &str) -> String {
    let name = shortened(name);
    match name.to_ascii_lowercase().as_str() {
        "nan" => "NaN is no value to compare with: nothing equals it".to_owned(),
        "null" | "none" | "nil" | "missing" => {
            format!("there is no {name}: ask exists(x), or not exists(x) for what is missing")
        }
        _ => format!(
            "a value was expected, not '{name}': text stands in quotes, \"{name}\", and attributes \
             are compared with values alone"
        ),
    }
}

fn text(input: &mut Tokens<'_, '_>, expected: &str) -> Parsed<String> {
    let token = here(input);
    match &token.kind {
        TokenKind::Value(Literal::Text(text)) => advance(input).map(|()| text.clone()),
        _ => fault(token.at.clone(), expected),
    }
}

/// A word and the parenthesis after it; where that is.
fn open(input: &mut Tokens<'_, '_>, example: &str) -> Parsed<Range<usize>> {
    advance(input)?;
    let at = here(input).at.clone();
    expect(input, &TokenKind::Open, &format!("'(' was expected, as in {example}"))?;
    Ok(at)
}

/// The parenthesis that closes the one at `open`; `or` is what might go on instead.
fn close(input: &mut Tokens<'_, '_>, open: &Range<usize>, or: &str) -> Parsed<()> {
    let token = here(input);
    if token.kind == TokenKind::End {
        return fault(open.clone(), "this '(' is not closed: ')' was expected before the end");
    }
    let or = if or.is_empty() { String::new() } else { format!("{or} or ") };
    expect(input, &TokenKind::Close, &format!("{or}')' was expected, not {}", token.kind))
}

/// Takes the token that must stand here.
fn expect(input: &mut Tokens<'_, '_>, kind: &TokenKind<'_>, message: &str) -> Parsed<()> {
    let token = here(input);
    if token.kind == *kind { advance(input) } else { fault(token.at.clone(), message) }
}

/// Takes the word if it stands here.
fn took(input: &mut Tokens<'_, '_>, one: Word) -> Parsed<bool> {
    opt(word(one)).map(|found| found.is_some()).parse_next(input)
}

fn word<'t, 'q: 't>(word: Word) -> impl FnMut(&mut Tokens<'t, 'q>) -> Parsed<()> {
    let kind = TokenKind::Word(word);
    move |input| any.verify(|token: &&Token<'_>| token.kind == kind).void().parse_next(input)
}

fn is<'t, 'q: 't>(kind: &TokenKind<'_>) -> impl FnMut(&mut Tokens<'t, 'q>) -> Parsed<()> {
    move |input| any.verify(|token: &&Token<'_>| token.kind == *kind).void().parse_next(input)
}

fn advance(input: &mut Tokens<'_, '_>) -> Parsed<()> {
    any.void().parse_next(input)
}

/// The next token; at the end it is the end, which is never taken.
fn here<'t, 'q>(input: &Tokens<'t, 'q>) -> &'t Token<'q> {
    input.peek_token().expect("the end is never taken")
}

/// What to add where a word begins a clause and an attribute of its name was meant.
fn attribute(next: &Token<'_>, word: Word) -> String {
    match next.kind {
        TokenKind::Comparison(_) => backquotes(&TokenKind::Word(word)),
        _ => String::new(),
    }
}

/// What to add where a word of the language stands in an attribute's place.
fn backquotes(kind: &TokenKind<'_>) -> String {
    match kind {
        TokenKind::Word(word) => {
            format!(": an attribute of that name is written `{}`", word.name())
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
