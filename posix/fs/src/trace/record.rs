//! A record of a trace, as a value and as a line.
//!
//! A line is `timestamp:operation:pid:tid:place` and the operation's arguments, each behind a
//! colon. Each record has one line, and each line that is read gives that line again: there are no
//! leading zeros, blanks or other ways to write a number.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// What an argument of an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// A whole number, such as an offset or a size.
    Number,
    /// An address, in hexadecimal digits.
    Address,
    /// A text, such as another path.
    Text,
}

/// An argument of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument<'a> {
    /// A whole number.
    Number(u64),
    /// An address; 0 of a hole.
    Address(u64),
    /// A text.
    Text(Cow<'a, str>),
}

impl<'a> Argument<'a> {
    /// A text.
    pub fn text(text: &'a str) -> Self {
        Argument::Text(Cow::Borrowed(text))
    }

    /// What it is.
    pub fn field(&self) -> Field {
        match self {
            Argument::Number(_) => Field::Number,
            Argument::Address(_) => Field::Address,
            Argument::Text(_) => Field::Text,
        }
    }
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident $word:literal [$($field:ident)*],)*) => {
        /// What was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            /// Every operation.
            pub const ALL: &'static [Operation] = &[$(Operation::$name,)*];

            /// Its name in a trace.
            pub fn name(self) -> &'static str {
                match self { $(Operation::$name => $word,)* }
            }

            /// The operation of this name.
            pub fn parse(name: &str) -> Option<Operation> {
                match name { $($word => Some(Operation::$name),)* _ => None }
            }

            /// Its arguments, behind the place.
            pub fn fields(self) -> &'static [Field] {
                match self { $(Operation::$name => &[$(Field::$field,)*],)* }
            }
        }
    };
}

operations! {
    /// Asked whether something may be done.
    Access "access" [],
    /// Closed a file.
    Close "close" [],
    /// Closed a folder.
    Closedir "closedir" [],
    /// Made a file, a special file, a symbolic link or, with a slash behind its path, a folder.
    Create "create" [],
    /// Made a file or folder durable.
    Fsync "fsync" [],
    /// Opened a file.
    Open "open" [],
    /// Opened a folder.
    Opendir "opendir" [],
    /// Read so many bytes at an offset.
    Read "read" [Number Number],
    /// Listed a folder, or a part of it.
    Readdir "readdir" [],
    /// Asked what is known of a node.
    Stat "stat" [],
    /// Gave a file another size.
    Truncate "truncate" [],
    /// Took a name away; of a folder with a slash behind its path.
    Unlink "unlink" [],
    /// Wrote so many bytes at an offset.
    Write "write" [Number Number],
    /// Read so many bytes of a backend at an address.
    NvmlRead "nvml_read" [Address Number],
    /// Wrote so many bytes of a backend at an address.
    NvmlWrite "nvml_write" [Address Number],
    // What follows is no part of the paper's format.
    /// Exchanged a name for another.
    Exchange "exchange" [Text],
    /// Saw to space from an offset on, or made it a hole.
    Fallocate "fallocate" [Number Number],
    /// Asked for a lock in the way.
    Getlk "getlk" [],
    /// Read an extended attribute.
    Getxattr "getxattr" [Text],
    /// Gave a file a further name.
    Link "link" [Text],
    /// Listed extended attributes.
    Listxattr "listxattr" [],
    /// So many lines could not be written before this one.
    Lost "lost" [Number],
    /// Read where a symbolic link leads.
    Readlink "readlink" [],
    /// A call that is not offered was refused: its name, and what to do.
    Refused "refused" [Text Text],
    /// Removed an extended attribute.
    Removexattr "removexattr" [Text],
    /// Gave a node another path.
    Rename "rename" [Text],
    /// Looked for data, or a hole, from an offset on.
    Seek "seek" [Number],
    /// Changed modes, owners or times.
    Setattr "setattr" [],
    /// Locked or unlocked a range.
    Setlk "setlk" [],
    /// Set an extended attribute.
    Setxattr "setxattr" [Text],
    /// Asked for what is free.
    Statfs "statfs" [],
}

impl Operation {
    /// Whether its place is a backend, and not a path.
    pub fn is_low_level(self) -> bool {
        matches!(self, Operation::NvmlRead | Operation::NvmlWrite)
    }
}

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it was done, in µs since 1970.
    pub at: u64,
    /// What was done.
    pub operation: Operation,
    /// The process that asked.
    pub pid: u32,
    /// The thread that served.
    pub tid: u32,
    /// The path from the pool's root on, which begins with a slash, or the backend. It is empty if
    /// what was used had no name any more.
    pub place: Cow<'a, str>,
    /// The operation's own.
    pub arguments: Vec<Argument<'a>>,
}

/// What is wrong with a line that is none of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage(String);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damage {}

/// Seconds have so many digits at most. A line that is glued to the beginning of another has more.
const SECONDS_DIGITS: usize = 10;
/// The first time, in µs, that has no line.
pub const TIME_END: u64 = 10_000_000_000 * 1_000_000;

macro_rules! damaged {
    ($($what:tt)*) => {
        return Err(Damage(format!($($what)*)))
    };
}

impl Record<'_> {
    /// Its line, without an end of line.
    pub fn line(&self) -> String {
        let mut line = String::new();
        write(&mut line, self);
        line
    }

    /// Reads a line, without its end.
    pub fn parse(line: &[u8]) -> Result<Record<'static>, Damage> {
        let Ok(line) = std::str::from_utf8(line) else { damaged!("it is no text of UTF-8") };
        let mut parts = line.split(':');
        let mut next = |what: &str| match parts.next() {
            Some(part) => Ok(part),
            None => damaged!("it ends before its {what}"),
        };
        let at = time(next("time")?)?;
        let name = next("operation")?;
        let Some(operation) = Operation::parse(name) else { damaged!("{name:?} is no operation") };
        let pid = id(next("process")?, "process")?;
        let tid = id(next("thread")?, "thread")?;
        let place = unescaped(next(if operation.is_low_level() { "backend" } else { "path" })?)?;
        if !operation.is_low_level() && !place.is_empty() && !place.starts_with('/') {
            damaged!("the path {place:?} does not begin with a slash");
        }
        let fields = operation.fields();
        let mut arguments = Vec::with_capacity(fields.len());
        for field in fields {
            arguments.push(argument(*field, next("last argument")?)?);
        }
        let more = parts.count();
        if more > 0 {
            damaged!("{name} has {} arguments, not {}", fields.len(), fields.len() + more);
        }
        Ok(Record { at, operation, pid, tid, place: Cow::Owned(place), arguments })
    }
}

impl Record<'_> {
    /// The record that stands in a damaged line behind what is left of another: a process was
    /// killed within its line, or a disk was full, and another process went on behind it.
    ///
    /// Its time has ten digits before the point, as all have from 2001 to 2286: the last ten there.
    pub fn behind_damage(line: &[u8]) -> Option<Record<'static>> {
        let begins = |at: usize| {
            let digits = line.get(at..at + SECONDS_DIGITS)?;
            let rest = line.get(at + SECONDS_DIGITS..)?;
            (digits.iter().all(u8::is_ascii_digit) && rest.first() == Some(&b'.')).then_some(at)
        };
        let starts = (1..line.len()).filter_map(begins);
        starts.map(|at| Record::parse(&line[at..])).find_map(Result::ok)
    }
}

/// Writes a record's line, without an end of line.
pub(super) fn write(line: &mut String, record: &Record<'_>) {
    let Record { at, operation, pid, tid, .. } = record;
    let (seconds, micros) = (at / 1_000_000, at % 1_000_000);
    let name = operation.name();
    // Nothing that is written to a string fails.
    let _ = write!(line, "{seconds}.{micros:06}:{name}:{pid}:{tid}:");
    escape(line, &record.place);
    for argument in &record.arguments {
        let _ = match argument {
            Argument::Number(number) => write!(line, ":{number}"),
            Argument::Address(address) => write!(line, ":{address:#x}"),
            Argument::Text(text) => {
                line.push(':');
                escape(line, text);
                Ok(())
            }
        };
    }
}

/// Writes a text without what parts fields and lines.
fn escape(line: &mut String, text: &str) {
    for part in text.split_inclusive([':', '\n', '%']) {
        match part.as_bytes().last() {
            Some(b':') => push_escaped(line, part, "%3A"),
            Some(b'\n') => push_escaped(line, part, "%0A"),
            Some(b'%') => push_escaped(line, part, "%25"),
            _ => line.push_str(part),
        }
    }
}

fn push_escaped(line: &mut String, part: &str, last: &str) {
    line.push_str(&part[..part.len() - 1]);
    line.push_str(last);
}

fn unescaped(text: &str) -> Result<String, Damage> {
    if text.contains('\n') {
        damaged!("{text:?} goes over more than one line");
    }
    let mut parts = text.split('%');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (sign, rest) = match part.get(..2) {
            Some("3A") => (':', &part[2..]),
            Some("0A") => ('\n', &part[2..]),
            Some("25") => ('%', &part[2..]),
            _ => damaged!("in {text:?} is a percent sign before neither 3A, 0A nor 25"),
        };
        plain.push(sign);
        plain.push_str(rest);
    }
    Ok(plain)
}

fn time(text: &str) -> Result<u64, Damage> {
    let parts = text.split_once('.').filter(|(seconds, micros)| {
        is_number(seconds) && seconds.len() <= SECONDS_DIGITS && is_digits(micros, 6)
    });
    match parts {
        Some((seconds, micros)) => {
            let read = |text: &str| text.parse::<u64>().unwrap_or_default();
            Ok(read(seconds) * 1_000_000 + read(micros))
        }
        None => damaged!("{text:?} is no time in seconds with six decimals"),
    }
}

fn is_digits(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a text is a number as it is written here.
fn is_number(text: &str) -> bool {
    !text.is_empty() && is_digits(text, text.len()) && (text == "0" || !text.starts_with('0'))
}

fn id(text: &str, what: &str) -> Result<u32, Damage> {
    match text.parse() {
        Ok(number) if is_number(text) => Ok(number),
        _ => damaged!("{text:?} is no number of a {what}"),
    }
}

fn argument(field: Field, text: &str) -> Result<Argument<'static>, Damage> {
    match field {
        Field::Text => Ok(Argument::Text(Cow::Owned(unescaped(text)?))),
        Field::Number => match text.parse() {
            Ok(number) if is_number(text) => Ok(Argument::Number(number)),
            _ => damaged!("{text:?} is no whole number"),
        },
        Field::Address => {
            let address = text.strip_prefix("0x").and_then(|digits| {
                let address = u64::from_str_radix(digits, 16).ok()?;
                (format!("{address:#x}") == text).then_some(address)
            });
            match address {
                Some(address) => Ok(Argument::Address(address)),
                None => damaged!("{text:?} is no address, such as 0x7f00"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Argument, Field, Operation, Record, TIME_END};
    use proptest::prelude::*;
    use std::borrow::Cow;

    /// Texts in which the signs that are escaped are not rare.
    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec(
            prop_oneof![
                Just(":".to_owned()),
                Just("\n".to_owned()),
                Just("%".to_owned()),
                Just("3A".to_owned()),
                any::<char>().prop_map(String::from),
            ],
            0..12,
        )
        .prop_map(|parts| parts.concat())
    }

    fn record() -> impl Strategy<Value = Record<'static>> {
        let operation = (0..Operation::ALL.len()).prop_map(|place| Operation::ALL[place]);
        (
            operation,
            0..TIME_END,
            any::<[u32; 2]>(),
            text(),
            any::<bool>(),
            any::<[u64; 2]>(),
            [text(), text()],
        )
            .prop_map(|(operation, at, [pid, tid], place, named, numbers, texts)| {
                let place = match operation.is_low_level() {
                    true => place,
                    false if named => format!("/{place}"),
                    false => String::new(),
                };
                let of = |(place, field): (usize, &Field)| match field {
                    Field::Number => Argument::Number(numbers[place]),
                    Field::Address => Argument::Address(numbers[place]),
                    Field::Text => Argument::Text(Cow::Owned(texts[place].clone())),
                };
                let arguments = operation.fields().iter().enumerate().map(of).collect();
                Record { at, operation, pid, tid, place: Cow::Owned(place), arguments }
            })
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(record in record()) {
            let line = record.line();
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(Record::parse(line.as_bytes()), Ok(record));
        }

        #[test]
        fn what_is_read_is_written_again(
            line in ".{0,60}", record in record(), cut in 0usize..9,
        ) {
            for text in [line, record.line().chars().skip(cut).collect()] {
                if let Ok(record) = Record::parse(text.as_bytes()) {
                    prop_assert_eq!(record.line(), text);
                }
            }
        }

        /// A writer was killed, or a disk was full, within a line, and another went on behind it.
        #[test]
        fn no_line_that_is_glued_to_another_is_read(
            first in record(), second in record(), cut in any::<prop::sample::Index>(),
        ) {
            let (first, second) = (first.line(), second.line());
            let mut cut = cut.index(first.len());
            while !first.is_char_boundary(cut) {
                cut -= 1;
            }
            let glued = format!("{}{second}", &first[..cut]);
            // Of the first one nothing is left, or no more than digits before a short time.
            let time = second.split('.').next().unwrap_or_default();
            if cut > 0 && time.len() == 10 {
                prop_assert!(Record::parse(glued.as_bytes()).is_err(), "{}", glued);
                let found = Record::behind_damage(glued.as_bytes());
                prop_assert_eq!(found.map(|found| found.line()), Some(second));
            }
        }
    }

    #[test]
    fn lines_are_as_the_paper_has_them() {
        let record = |operation, place, arguments| Record {
            at: 1_700_000_000_123_456,
            operation,
            pid: 10,
            tid: 11,
            place: Cow::Borrowed(place),
            arguments,
        };
        for (record, line) in [
            (record(Operation::Open, "/a/b", vec![]), "1700000000.123456:open:10:11:/a/b"),
            (
                record(Operation::Read, "/a:b", vec![Argument::Number(0), Argument::Number(4096)]),
                "1700000000.123456:read:10:11:/a%3Ab:0:4096",
            ),
            (
                record(
                    Operation::NvmlRead,
                    "/dev/shm/pool",
                    vec![Argument::Address(0), Argument::Number(96)],
                ),
                "1700000000.123456:nvml_read:10:11:/dev/shm/pool:0x0:96",
            ),
            (
                record(Operation::Rename, "/a\n", vec![Argument::text("/100%")]),
                "1700000000.123456:rename:10:11:/a%0A:/100%25",
            ),
        ] {
            assert_eq!(record.line(), line);
            assert_eq!(Record::parse(line.as_bytes()), Ok(record));
        }
        // The paper's thirteen, in order, and its two of the lower level.
        let names: Vec<&str> = Operation::ALL[..15].iter().map(|each| each.name()).collect();
        assert_eq!(
            names.join(" "),
            "access close closedir create fsync open opendir read readdir stat truncate unlink \
             write nvml_read nvml_write"
        );
        let all: std::collections::HashSet<_> =
            Operation::ALL.iter().map(|operation| operation.name()).collect();
        assert_eq!(all.len(), Operation::ALL.len());
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        for (line, what) in [
            ("", "\"\" is no time"),
            ("1700000000.12345:open:1:2:/a", "is no time in seconds with six decimals"),
            ("17000000001.123456:open:1:2:/a", "is no time"),
            ("01.123456:open:1:2:/a", "is no time"),
            ("1700000000.123456", "it ends before its operation"),
            ("1700000000.123456:opens:1:2:/a", "\"opens\" is no operation"),
            ("1700000000.123456:open:-1:2:/a", "\"-1\" is no number of a process"),
            ("1700000000.123456:open:1:5000000000:/a", "is no number of a thread"),
            ("1700000000.123456:open:1:2", "it ends before its path"),
            ("1700000000.123456:open:1:2:a", "does not begin with a slash"),
            ("1700000000.123456:open:1:2:/a%", "a percent sign before neither"),
            ("1700000000.123456:open:1:2:/a%3a", "a percent sign before neither"),
            ("1700000000.123456:open:1:2:/a:4", "open has 0 arguments, not 1"),
            ("1700000000.123456:read:1:2:/a:4", "it ends before its last argument"),
            ("1700000000.123456:read:1:2:/a:4:04", "\"04\" is no whole number"),
            ("1700000000.123456:read:1:2:/a:4:18446744073709551616", "is no whole number"),
            ("1700000000.123456:nvml_read:1:2:/p:12:4", "\"12\" is no address"),
            ("1700000000.123456:nvml_read:1:2:/p:0xA:4", "\"0xA\" is no address"),
            ("1700000000.123456:nvml_read:1:2", "it ends before its backend"),
        ] {
            let said = Record::parse(line.as_bytes()).unwrap_err().to_string();
            assert!(said.contains(what), "{line}: {said}");
        }
        assert_eq!(Record::parse(b"\xff").unwrap_err().to_string(), "it is no text of UTF-8");
        assert!(Record::parse(b"1700000000.123456:open:1:2:/a\n").is_err());
    }
}
