//! A query's text as tokens.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;

use winnow::Parser;
use winnow::combinator::{dispatch, peek, preceded, terminated};
use winnow::error::ErrMode;
use winnow::stream::{LocatingSlice, Location, Stream};
use winnow::token::{any, take_while};

use super::fault::{Parsed, fault};
use super::number::{number, shortened};
use super::params::{Given, Param};
use super::words::{Word, begins_name, continues_name, word};
use crate::ast::{Builtin, Comparison};
use engram_columns::literal::Literal;

/// The text, and where in it the next token begins.
pub(super) type Input<'q> = LocatingSlice<&'q str>;

/// One token, and at which bytes it stands.
#[derive(Clone, Debug)]
pub(super) struct Token<'q> {
    pub(super) kind: TokenKind<'q>,
    pub(super) at: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind<'q> {
    /// A word of the language.
    Word(Word),
    /// A name as it is.
    Name(&'q str),
    /// A name in backquotes.
    Quoted(String),
    /// A built-in field.
    Builtin(Builtin),
    /// A number or a string.
    Value(Literal),
    /// `=` and the like.
    Comparison(Comparison),
    /// `(`
    Open,
    /// `)`
    Close,
    /// `,`
    Comma,
    /// `.`
    Dot,
    /// `[`
    OpenList,
    /// `]`
    CloseList,
    /// The values of a parameter that is a list.
    List(Vec<Literal>),
    /// `*`: any value.
    Star,
    /// After the last.
    End,
}

impl Display for TokenKind<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let shorten = |text: &str, f: &mut Formatter<'_>| f.write_str(&shortened(text));
        match self {
            TokenKind::Word(word) => write!(f, "'{}'", word.name()),
            TokenKind::Name(name) => write!(f, "'{}'", shortened(name)),
            TokenKind::Quoted(name) => shorten(&format!("`{name}`"), f),
            TokenKind::Builtin(builtin) => write!(f, "@{}", builtin.name()),
            TokenKind::Value(value) => shorten(&value.to_string(), f),
            TokenKind::Comparison(comparison) => write!(f, "'{comparison}'"),
            TokenKind::Open => f.write_str("'('"),
            TokenKind::Close => f.write_str("')'"),
            TokenKind::Comma => f.write_str("a comma"),
            TokenKind::Dot => f.write_str("a dot"),
            TokenKind::OpenList => f.write_str("'['"),
            TokenKind::CloseList => f.write_str("']'"),
            TokenKind::List(_) => f.write_str("a list"),
            TokenKind::Star => f.write_str("'*'"),
            TokenKind::End => f.write_str("the end"),
        }
    }
}

impl Location for Token<'_> {
    fn previous_token_end(&self) -> usize {
        self.at.end
    }

    fn current_token_start(&self) -> usize {
        self.at.start
    }
}

/// All tokens; the last is the end. A parameter is the value that it stands for.
pub(super) fn tokens<'q>(query: &'q str, params: &mut Given<'_>) -> Parsed<Vec<Token<'q>>> {
    let mut input = LocatingSlice::new(query);
    let mut all = Vec::new();
    loop {
        take_while(0.., char::is_whitespace).void().parse_next(&mut input)?;
        if input.is_empty() {
            let end = query.trim_end().len();
            all.push(Token { kind: TokenKind::End, at: end..end });
            return Ok(all);
        }
        let joined = all.last().is_some_and(|last: &Token<'_>| {
            last.at.end == input.current_token_start() && matches!(last.kind, TokenKind::Name(_))
        });
        let mut ahead = input.chars();
        if !joined && ahead.next() == Some(':') && ahead.next().is_some_and(begins_name) {
            let (kind, at) = (|input: &mut Input<'q>| parameter(input, params))
                .with_span()
                .parse_next(&mut input)?;
            all.push(Token { kind, at });
            continue;
        }
        let of_limit = all.last().is_some_and(|last| last.kind == TokenKind::Word(Word::Limit));
        let number = input.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-'));
        let (kind, at) = match token.with_span().parse_next(&mut input) {
            Err(ErrMode::Cut(wrong)) if of_limit && number => {
                let most = u64::MAX;
                let message = "a number of objects was expected, as in limit 10";
                return fault(wrong.at, format!("{message}; the most is {most}"));
            }
            found => found?,
        };
        all.push(Token { kind, at });
    }
}

fn token<'q>(input: &mut Input<'q>) -> Parsed<TokenKind<'q>> {
    dispatch! {peek(any);
        '(' => any.value(TokenKind::Open),
        ')' => any.value(TokenKind::Close),
        ',' => any.value(TokenKind::Comma),
        '[' => any.value(TokenKind::OpenList),
        ']' => any.value(TokenKind::CloseList),
        '"' | '\'' => string.map(|text| TokenKind::Value(Literal::Text(text))),
        '`' => quoted.map(TokenKind::Quoted),
        '@' => builtin.map(TokenKind::Builtin),
        '=' | '!' | '<' | '>' => comparison.map(TokenKind::Comparison),
        '0'..='9' | '-' | '+' => number.map(TokenKind::Value),
        '*' => any.value(TokenKind::Star),
        '.' => dot,
        c if begins_name(c) => name.map(|name| match word(name) {
            Some(word) => TokenKind::Word(word),
            None => TokenKind::Name(name),
        }),
        _ => stray,
    }
    .parse_next(input)
}

/// `:name`: what was given for it.
fn parameter<'q>(input: &mut Input<'q>, params: &mut Given<'_>) -> Parsed<TokenKind<'q>> {
    let start = input.current_token_start();
    any.void().parse_next(input)?;
    let name = name.parse_next(input)?;
    match params.take(name) {
        Some(Param::One(value)) => Ok(TokenKind::Value(value.clone())),
        Some(Param::Many(values)) => Ok(TokenKind::List(values.clone())),
        None => {
            let name = shortened(name);
            let known = params.names();
            let given = if known.is_empty() { "none was".to_owned() } else { known };
            let message = format!(
                "no parameter {name} was given ({given}): give a value for it, as in \
                 params={{\"{name}\": 5}}"
            );
            fault(start..input.current_token_start(), message)
        }
    }
}

fn name<'q>(input: &mut Input<'q>) -> Parsed<&'q str> {
    take_while(1.., continues_name).parse_next(input)
}

/// `group.x`, or `.5`.
fn dot<'q>(input: &mut Input<'q>) -> Parsed<TokenKind<'q>> {
    if input.chars().nth(1).is_some_and(|c| c.is_ascii_digit()) {
        return number.map(TokenKind::Value).parse_next(input);
    }
    any.value(TokenKind::Dot).parse_next(input)
}

/// The longest of them that stands here.
fn comparison(input: &mut Input<'_>) -> Parsed<Comparison> {
    let start = input.current_token_start();
    let written = take_while(1.., ['=', '!', '<', '>']).parse_next(input)?;
    let meant = match written {
        "=" | "==" => return Ok(Comparison::Eq),
        "!=" | "<>" => return Ok(Comparison::Ne),
        "<" => return Ok(Comparison::Lt),
        "<=" => return Ok(Comparison::Le),
        ">" => return Ok(Comparison::Gt),
        ">=" => return Ok(Comparison::Ge),
        "=<" => "<=",
        "=>" => ">=",
        "=!" | "!==" => "!=",
        "===" => "=",
        "!" => {
            return fault(start..start + 1, "'!' alone is no operator: write 'not', or '!='");
        }
        _ => {
            let at = start..start + written.len();
            let known = "= != < <= > >=";
            return fault(
                at,
                format!("'{}' is no operator: there are {known}", shortened(written)),
            );
        }
    };
    let message = format!("'{written}' is no operator: write '{meant}'");
    fault(start..start + written.len(), message)
}

/// A string in single or double quotes.
fn string(input: &mut Input<'_>) -> Parsed<String> {
    let start = input.current_token_start();
    let quote = any.parse_next(input)?;
    let mut text = String::new();
    loop {
        let plain = |c| c != quote && c != '\\' && c != '\n';
        let run: &str = take_while(0.., plain).parse_next(input)?;
        text.push_str(run);
        match input.next_token() {
            Some('\\') => text.push(escape(input)?),
            Some('\n') => {
                let message = format!(
                    "the line ends before the text that begins here: close it with {quote}, and \
                     write \\n for a new line in it"
                );
                return fault(start..start + 1, message);
            }
            Some(_) => return Ok(text),
            None => {
                let message =
                    format!("the text that begins here is not closed: end it with {quote}");
                return fault(start..start + 1, message);
            }
        }
    }
}

/// What follows a backslash.
fn escape(input: &mut Input<'_>) -> Parsed<char> {
    let start = input.current_token_start() - 1;
    let escaped = input.next_token();
    let at = start..input.current_token_start();
    match escaped {
        Some('n') => Ok('\n'),
        Some('t') => Ok('\t'),
        Some(c @ ('\\' | '"' | '\'')) => Ok(c),
        Some('u') => {
            let hex = |c: char| c.is_ascii_hexdigit();
            let mut digits = preceded('{', terminated(take_while(1..=6, hex), '}'));
            let code: Parsed<&str> = digits.parse_next(input);
            let char = code.ok().and_then(|code| u32::from_str_radix(code, 16).ok());
            match char.and_then(char::from_u32) {
                Some(c) => Ok(c),
                None => fault(at, "a character by its number is written \\u{e9}, in hexadecimal"),
            }
        }
        Some(c @ ('%' | '_')) => {
            let message = format!("a backslash before {c} is itself escaped: write \\\\{c}");
            fault(at, message)
        }
        _ => fault(
            at,
            "after a backslash stands n, t, \\, a quote, or u{...}: for a backslash write \\\\",
        ),
    }
}

/// A name in backquotes; one in it is doubled.
fn quoted(input: &mut Input<'_>) -> Parsed<String> {
    let start = input.current_token_start();
    any.void().parse_next(input)?;
    let mut name = String::new();
    loop {
        let run: &str = take_while(0.., |c| c != '`').parse_next(input)?;
        name.push_str(run);
        if input.next_token().is_none() {
            return fault(
                start..start + 1,
                "the name that begins here is not closed: end it with `",
            );
        }
        if input.starts_with('`') {
            any.void().parse_next(input)?;
            name.push('`');
        } else if name.is_empty() {
            let at = start..input.current_token_start();
            return fault(at, "an attribute's name was expected between the backquotes");
        } else {
            return Ok(name);
        }
    }
}

/// `@path` and the like.
fn builtin(input: &mut Input<'_>) -> Parsed<Builtin> {
    let start = input.current_token_start();
    any.void().parse_next(input)?;
    let name: &str = take_while(0.., continues_name).parse_next(input)?;
    if let Some((builtin, _)) = Builtin::ALL.iter().find(|(_, known)| *known == name) {
        return Ok(*builtin);
    }
    let all = Builtin::ALL.map(|(_, name)| format!("@{name}")).join(" ");
    let there = nearest(name)
        .map_or_else(|| "there are".to_owned(), |near| format!("did you mean @{near}? There are"));
    let at = start..input.current_token_start();
    let name = shortened(name);
    fault(at, format!("there is no built-in field @{name}: {there} {all}"))
}

/// The built-in field that was most likely meant.
fn nearest(name: &str) -> Option<&'static str> {
    nearest_of(name, Builtin::ALL.iter().map(|(_, known)| *known))
}

/// The one of some names that was most likely meant.
pub(super) fn nearest_of<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let name = name.to_lowercase();
    let near = known.map(|known| (edits(&name, known), known)).min();
    near.filter(|(edits, known)| *edits <= known.len() / 2).map(|(_, known)| known)
}

/// How many characters to add, drop, change or swap with the next from one to the other.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.chars().take(16).collect::<Vec<_>>(), b.chars().collect::<Vec<_>>());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// A character that begins nothing.
fn stray<'q>(input: &mut Input<'q>) -> Parsed<TokenKind<'q>> {
    let start = input.current_token_start();
    let c = any.parse_next(input)?;
    let shown = if c == '\\' { c.to_string() } else { c.escape_debug().to_string() };
    let write = match c {
        '&' => "write 'and'",
        '|' => "write 'or'",
        '~' => "write 'not'",
        '≤' => "write '<='",
        '≥' => "write '>='",
        '≠' => "write '!='",
        '“' | '”' | '„' | '‘' | '’' | '«' | '»' => {
            "text stands in plain quotes, \" or '"
        }
        '{' | '}' => "write '(' and ')'",
        '?' | '$' => {
            "a value that is given beside the query is written with a name, as in x < :low"
        }
        ';' => "a query is one condition, and ends without a sign",
        _ => "an attribute with such a character in its name stands in backquotes, as in `x y`",
    };
    let at = start..start + c.len_utf8();
    fault(at, format!("'{shown}' means nothing here: {write}"))
}
