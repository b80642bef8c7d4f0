//! The query language: text to tree.
//!
//! ```text
//! query   = [any] [order by field [asc | desc], ...] [limit n] [offset n]
//!         | measure, ... [where any] [group by field, ...] [order by column [asc | desc], ...]
//!           [limit n] [offset n]
//! measure = function([field | *])
//! column  = measure | field
//! any     = all {or all}
//! all     = operand {and operand}
//! operand = {not} (term | "(" any ")")
//! term    = exists(field) | under(text) | true | false
//!         | field [not] test | field is [not] null | value op field [op value]
//! test    = op value | between value and value | in list | contains (value | list)
//!         | startswith text | endswith text | like text
//! list    = (value, ...) | [value, ...]
//! field   = name{.name} | group.name{.name} | @name
//! value   = number | text | true | false | inf | :name
//! ```
//!
//! The words of totals, `is`, `null` and `offset` are words only where no attribute may stand, or
//! none without an operator: attributes of these names need no backquotes. `x not in (1)` is
//! `exists(x) and not x in (1)`, and `x is null` is `not exists(x)`: the tree has nothing else.
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
use super::params::{Given, Params};
use super::words::Word;
use crate::ast::{Builtin, Comparison, Expr, Function, Order, Query, QueryField, Test};
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
    parse_with(text, &Params::new())
}

/// Parses a query with parameters.
pub fn parse_with(text: &str, params: &Params) -> Result<Query> {
    if text.len() > QUERY_BYTES_MAX {
        let length = text.len();
        fail!(
            Query,
            "the query has {length} bytes; at most {QUERY_BYTES_MAX} are read: shorten it"
        );
    }
    let mut given = Given::new(params);
    let parsed = tokens(text, &mut given).and_then(|tokens| {
        let input = TokenSlice::new(&tokens);
        query(&mut Stateful { input, state: 0 })
    });
    let query = parsed.map_err(|error| match error.into_inner() {
        Ok(fault) => fault.explain(text),
        Err(_) => unreachable!("the whole query is there"),
    })?;
    given.check().map(|()| query)
}

fn query(input: &mut Tokens<'_, '_>) -> Parsed<Query> {
    if is_call(input) {
        return totals::query(input);
    }
    let expr = match here(input).kind {
        TokenKind::End | TokenKind::Word(Word::Order | Word::Limit) => Expr::All,
        _ if begins_offset(input) => Expr::All,
        _ => any_of(input)?,
    };
    let order_by = if took(input, Word::Order)? { order_by(input)? } else { Vec::new() };
    let (limit, offset) = part(input, !order_by.is_empty(), "@path")?;
    let token = here(input);
    let message = match &token.kind {
        TokenKind::End => return Ok(Query { expr, order_by, limit, offset, totals: None }),
        TokenKind::Name(name) if name.eq_ignore_ascii_case("group") => {
            "groups are of figures, which stand in front: write count() where ... group by level"
                .to_owned()
        }
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

/// Whether a name and a parenthesis begin here.
fn is_call(input: &Tokens<'_, '_>) -> bool {
    let next = input.get(1).map(|token| &token.kind);
    matches!(here(input).kind, TokenKind::Name(_)) && next == Some(&TokenKind::Open)
}

/// Whether a name stands here, in letters of either case.
fn is_named(input: &Tokens<'_, '_>, wanted: &str) -> bool {
    matches!(here(input).kind, TokenKind::Name(name) if name.eq_ignore_ascii_case(wanted))
}

/// Whether `offset` and a number begin here.
fn begins_offset(input: &Tokens<'_, '_>) -> bool {
    let next = input.get(1).map(|token| &token.kind);
    is_named(input, "offset") && matches!(next, Some(TokenKind::Value(_) | TokenKind::End))
}

/// `limit n` and `offset n`, as far as they are there; `sample` can be ordered by.
fn part(input: &mut Tokens<'_, '_>, ordered: bool, sample: &str) -> Parsed<(Option<u64>, u64)> {
    let limit = opt(preceded(word(Word::Limit), limit)).parse_next(input)?;
    if !is_named(input, "offset") {
        return Ok((limit, 0));
    }
    let at = here(input).at.clone();
    advance(input)?;
    let token = here(input);
    let Some(offset) = count_of(token) else {
        let message = "a number of objects was expected, as in limit 10 offset 20";
        return fault(token.at.clone(), message);
    };
    advance(input)?;
    if !ordered {
        let message = format!(
            "an offset counts in an order, and there is none: write order by before it, as in \
             order by {sample} limit 10 offset 20"
        );
        return fault(at, message);
    }
    Ok((limit, offset))
}

fn by(input: &mut Tokens<'_, '_>) -> Parsed<()> {
    let message = "'by' was expected, as in order by temperature desc";
    let message = format!("{message}{}", attribute(here(input), Word::Order));
    expect(input, &TokenKind::Word(Word::By), &message)
}

/// `asc` or `desc`, or neither; whether it was the latter.
fn descends(input: &mut Tokens<'_, '_>) -> Parsed<bool> {
    Ok(!took(input, Word::Asc)? && took(input, Word::Desc)?)
}

fn order_by(input: &mut Tokens<'_, '_>) -> Parsed<Vec<Order>> {
    by(input)?;
    let order = |input: &mut Tokens<'_, '_>| {
        if is_call(input) {
            let message = "objects are ordered by what each has: figures are ordered where the \
                           query begins with them, as in count() group by level order by count()";
            return fault(here(input).at.clone(), message);
        }
        let field = field(input)?;
        let descending = descends(input)?;
        Ok(Order { field, descending })
    };
    separated(1.., order, is(&TokenKind::Comma)).parse_next(input)
}

fn limit(input: &mut Tokens<'_, '_>) -> Parsed<u64> {
    let token = here(input);
    let Some(limit) = count_of(token) else {
        let message = "a number of objects was expected, as in limit 10";
        return fault(token.at.clone(), format!("{message}{}", attribute(token, Word::Limit)));
    };
    advance(input).map(|()| limit)
}

/// A token as a number of objects.
fn count_of(token: &Token<'_>) -> Option<u64> {
    match token.kind {
        TokenKind::Value(Literal::Int(count)) => u64::try_from(count).ok(),
        TokenKind::Value(Literal::Big(count)) => Some(count),
        _ => None,
    }
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
        TokenKind::Name(name) if next == Some(&TokenKind::Open) => {
            fault(token.at.clone(), totals::misplaced(name))
        }
        TokenKind::Name(_) | TokenKind::Quoted(_) | TokenKind::Builtin(_) => {
            let field = field(input)?;
            tested(input, field, &token.at)
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

/// A field and what stands after it.
fn tested(input: &mut Tokens<'_, '_>, field: QueryField, at: &Range<usize>) -> Parsed<Expr> {
    let next = input.get(1).map(|token| &token.kind);
    if here(input).kind == TokenKind::Word(Word::Not) && next != Some(&TokenKind::End) {
        let not = here(input).at.clone();
        advance(input)?;
        let kind = &here(input).kind;
        let negatable = matches!(
            kind,
            TokenKind::Word(
                Word::In
                    | Word::Like
                    | Word::Between
                    | Word::Contains
                    | Word::StartsWith
                    | Word::EndsWith
            )
        );
        if !negatable {
            let message = "in, like, between, contains, startswith or endswith comes after 'not': \
                           it stands before any other test, as in not x = 5";
            return fault(not, message);
        }
        let there = Expr::Test(field.clone(), Test::Exists);
        let test = conjoined(input, field, at)?;
        return Ok(Expr::And(vec![there, Expr::Not(Box::new(test))]));
    }
    if is_named(input, "is") {
        advance(input)?;
        let is_not = took(input, Word::Not)?;
        if !is_named(input, "null") {
            let message = "'null' was expected after 'is', as in x is null or x is not null: a \
                           value is compared by '='";
            return fault(here(input).at.clone(), message);
        }
        advance(input)?;
        let there = Expr::Test(field, Test::Exists);
        return Ok(if is_not { there } else { Expr::Not(Box::new(there)) });
    }
    conjoined(input, field, at)
}

/// A field and a test; of a list that is contained, a test of each.
fn conjoined(input: &mut Tokens<'_, '_>, field: QueryField, at: &Range<usize>) -> Parsed<Expr> {
    let next = input.get(1).map(|token| &token.kind);
    let of_list = matches!(next, Some(TokenKind::OpenList | TokenKind::List(_)));
    if here(input).kind == TokenKind::Word(Word::Contains) && of_list {
        advance(input)?;
        let open = here(input).at.clone();
        let values = list(input, &field)?;
        let each = |value| Expr::Test(field.clone(), Test::Contains(value));
        let mut each: Vec<Expr> = values.into_iter().map(each).collect();
        return match each.len() {
            0 => fault(open, "a value was expected in the list: every array contains nothing"),
            1 => Ok(each.remove(0)),
            _ => Ok(Expr::And(each)),
        };
    }
    let test = test(input, &field, at)?;
    Ok(Expr::Test(field, test))
}

/// The values of a list: in parentheses, in brackets, or a parameter's.
fn list(input: &mut Tokens<'_, '_>, field: &QueryField) -> Parsed<Vec<Literal>> {
    let token = here(input);
    let end = match &token.kind {
        TokenKind::List(values) => {
            for value in values {
                check_instant(field, value, &token.at)?;
            }
            return advance(input).map(|()| values.clone());
        }
        TokenKind::OpenList => TokenKind::CloseList,
        _ => TokenKind::Close,
    };
    let open = token.at.clone();
    advance(input)?;
    let mut values = Vec::new();
    if here(input).kind != end {
        let value = |input: &mut Tokens<'_, '_>| operand_of(field, input);
        values = separated(1.., value, is(&TokenKind::Comma)).parse_next(input)?;
    }
    if end == TokenKind::Close {
        close(input, &open, "a comma")?;
    } else {
        let message = format!("a comma or ']' was expected, not {}", here(input).kind);
        expect(input, &end, &message)?;
    }
    Ok(values)
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
            advance(input)?;
            let next = here(input);
            let begins = [TokenKind::Open, TokenKind::OpenList].contains(&next.kind);
            if !begins && !matches!(next.kind, TokenKind::List(_)) {
                let message = "'(' or '[' was expected, as in x in (1, 2), or a parameter that \
                               stands for a list, as in x in :some with params={\"some\": [1, 2]}";
                return fault(next.at.clone(), message);
            }
            list(input, field).map(Test::In)
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
    let figure = match field {
        QueryField::Attr(key) => {
            Function::ALL.iter().find(|(_, name)| name.eq_ignore_ascii_case(key))
        }
        _ => None,
    };
    match &token.kind {
        TokenKind::End | TokenKind::Close | TokenKind::Word(_) | TokenKind::Name(_)
            if figure.is_some() =>
        {
            let of = if shown.eq_ignore_ascii_case("count") { "" } else { "temperature" };
            format!(
                "as a figure {shown} needs parentheses, as in {shown}({of}), and as an attribute \
                 an operator, as in {shown} = 5"
            )
        }
        TokenKind::Value(_) | TokenKind::Dot if joined => {
            "an attribute stands in backquotes if other characters than letters, digits and _ are \
             in its name, as in `a-b`"
                .to_owned()
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
            let parts = parts(input)?;
            Ok(if parts.is_empty() {
                QueryField::GroupAttr(key)
            } else {
                QueryField::GroupPart(key, parts)
            })
        }
        TokenKind::Name(name) => attr(input, (*name).to_owned()),
        TokenKind::Quoted(name) => attr(input, name.clone()),
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

/// An attribute, or a field of one whose dtype is a structure.
fn attr(input: &mut Tokens<'_, '_>, key: String) -> Parsed<QueryField> {
    let parts = parts(input)?;
    Ok(if parts.is_empty() { QueryField::Attr(key) } else { QueryField::Part(key, parts) })
}

/// The fields that are named after the attribute at hand, one within the other.
fn parts(input: &mut Tokens<'_, '_>) -> Parsed<Vec<String>> {
    advance(input)?;
    let mut parts = Vec::new();
    while here(input).kind == TokenKind::Dot {
        advance(input)?;
        let token = here(input);
        parts.push(match &token.kind {
            TokenKind::Name(name) => (*name).to_owned(),
            TokenKind::Quoted(name) => name.clone(),
            kind => {
                let message = "the name of a field was expected after the dot; an attribute with a \
                               dot in its name stands in backquotes, as in `a.b`";
                return fault(token.at.clone(), format!("{message}{}", backquotes(kind)));
            }
        });
        advance(input)?;
    }
    Ok(parts)
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
        TokenKind::OpenList | TokenKind::List(_) => {
            let message = "a list stands after in or contains, as in x in [1, 2]";
            return fault(token.at.clone(), format!("{VALUE}, not a list: {message}"));
        }
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

mod totals;

#[cfg(test)]
mod tests;
