//! What is wrong with a query's text, and where: the line, a caret under the place, the advice.

use std::fmt::Write;
use std::ops::Range;

use unicode_width::UnicodeWidthChar;
use winnow::error::{ErrMode, ParserError};
use winnow::stream::{Location, Stream};

use engram_base::error::{Error, Kind};

/// How many columns of a line are shown.
const COLUMNS_MAX: usize = 76;
/// How many of them at most stand before the caret where the line is longer.
const BEFORE_MAX: usize = 50;

/// What is wrong, and at which bytes.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) at: Range<usize>,
    pub(super) message: String,
}

/// What a parser gives. Its own faults are final; a combinator's only say "not this".
pub(super) type Parsed<T> = winnow::ModalResult<T, Fault>;

/// A final fault.
pub(super) fn fault<T>(at: Range<usize>, message: impl Into<String>) -> Parsed<T> {
    Err(ErrMode::Cut(Fault { at, message: message.into() }))
}

impl<I: Stream + Location> ParserError<I> for Fault {
    type Inner = Self;

    fn from_input(input: &I) -> Self {
        let start = input.current_token_start();
        Fault { at: start..start, message: String::new() }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

impl Fault {
    /// The error that the user sees.
    pub(super) fn explain(&self, query: &str) -> Error {
        let place = (0..=self.at.start.min(query.len())).rev().find(|b| query.is_char_boundary(*b));
        let (before, after) = query.split_at(place.unwrap_or(0));
        let (lines, head) = match before.rsplit_once('\n') {
            Some((lines, head)) => (lines.split('\n').count(), head),
            None => (0, before),
        };
        let tail = after.split('\n').next().unwrap_or_default();
        let tail = tail.strip_suffix('\r').unwrap_or(tail);
        let wide = tail.char_indices().take_while(|(at, _)| *at < self.at.len()).count();
        let mut message = String::new();
        if query.trim_end().contains('\n') {
            let _ = write!(message, "line {}, ", lines + 1);
        }
        let _ = write!(message, "column {}: {}", head.chars().count() + 1, self.message);
        for line in picture(head, tail, wide) {
            let _ = write!(message, "\n  {}", line.trim_end());
        }
        Error::new(Kind::Query, message)
    }
}

/// The line, cut around the caret where it is long, and the line with the caret.
fn picture(head: &str, tail: &str, wide: usize) -> [String; 2] {
    let head = head.chars().map(shown).collect::<Vec<_>>();
    let tail = tail.chars().map(shown).collect::<Vec<_>>();
    let width = |chars: &[char]| chars.iter().map(|c| columns(*c)).sum::<usize>();
    let fits = width(&head) + width(&tail) <= COLUMNS_MAX;
    let start = if fits { 0 } else { head.len() - count(head.iter().rev(), BEFORE_MAX) };
    let (mut line, mut under) = (String::new(), String::new());
    if start > 0 {
        line.push('…');
        under.push(' ');
    }
    for c in &head[start..] {
        line.push(*c);
        under.extend(std::iter::repeat_n(if *c == '\t' { '\t' } else { ' ' }, columns(*c)));
    }
    let room = COLUMNS_MAX - width(&head[start..]).min(COLUMNS_MAX);
    let end = if fits { tail.len() } else { count(tail.iter(), room) };
    line.extend(&tail[..end]);
    if end < tail.len() {
        line.push('…');
    }
    let carets = width(&tail[..wide.min(end)]).max(1);
    under.extend(std::iter::repeat_n('^', carets));
    [line, under]
}

/// How many characters fit into so many columns.
fn count<'a>(chars: impl Iterator<Item = &'a char>, room: usize) -> usize {
    let mut left = room;
    chars.take_while(|c| left.checked_sub(columns(**c)).map(|rest| left = rest).is_some()).count()
}

/// A tab stays one, above and below. A character that a terminal would obey is not shown to it, nor
/// one that it would not show: joiners, marks of direction, soft hyphens.
fn shown(c: char) -> char {
    match c {
        '\t' => c,
        '\u{ad}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

fn columns(c: char) -> usize {
    c.width().unwrap_or(1)
}
