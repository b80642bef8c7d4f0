//! Manifests: which files a stage has written, how many bytes each has, and what they sum up to.
//!
//! A manifest is text, a line for each file and symbolic link, in byte order of the paths:
//!
//! ```text
//! engram-manifest 1
//! file 4096 99aa06d3014798d86001c324468d497f - out/step-1
//! link 6 0d9f1c2b6b1d2f0e8f6a1f4f5a6b7c8d - out/newest
//! end 2 4102
//! ```
//!
//! The fields are the kind, the size in bytes, XXH3-128, SHA-256 or `-`, and the path below the
//! manifest's own folder. Of a link, size and sums are those of where it leads. In a path a line
//! feed stands as `\n`, a carriage return as `\r`, and a backslash as `\\`. The last line has the
//! number of lines and of bytes: a manifest without it was cut off.

use std::fmt::Write as _;

use engram::{Error, Kind, Result};

use crate::sum::Sum;

/// The manifest's name in the folder that it tells of.
pub const NAME: &str = "MANIFEST.engram";
/// The file beside it that `sha256sum -c` reads.
pub const SHA256_NAME: &str = "MANIFEST.sha256";
const HEAD: &str = "engram-manifest 1";

/// What a line tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A file's bytes.
    File,
    /// Where a symbolic link leads.
    Link,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            What::File => "file",
            What::Link => "link",
        }
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it tells of.
    pub what: What,
    /// How many bytes it has.
    pub size: u64,
    /// What they sum up to.
    pub sum: Sum,
    /// Where it is.
    pub path: String,
}

/// A manifest's lines, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    lines: Vec<Line>,
}

/// A path on one line.
pub(crate) fn escaped(path: &str) -> String {
    path.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

/// The path that a line has; `None`: there is no such escape.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    let mut path = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next()? {
                'n' => path.push('\n'),
                'r' => path.push('\r'),
                '\\' => path.push('\\'),
                _ => return None,
            },
            letter => path.push(letter),
        }
    }
    Some(path)
}

/// SHA-256 of 64 hexadecimal digits; `None` of anything else.
pub(crate) fn sha256_of(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let mut fields = text.splitn(5, ' ');
        let what = match fields.next()? {
            "file" => What::File,
            "link" => What::Link,
            _ => return None,
        };
        let size = fields.next()?.parse().ok()?;
        let xxh3 = fields.next().filter(|text| text.len() == 32)?;
        let xxh3 = u128::from_str_radix(xxh3, 16).ok()?;
        let sha256 = match fields.next()? {
            "-" => None,
            text => Some(sha256_of(text)?),
        };
        let path = unescaped(fields.next()?).filter(|path| !path.is_empty())?;
        Some(Line { what, size, sum: Sum { xxh3, sha256 }, path })
    }
}

impl Manifest {
    /// A manifest of these lines; of two of one path the later one counts.
    pub fn new(mut lines: Vec<Line>) -> Manifest {
        lines.sort_by(|one, other| one.path.cmp(&other.path));
        lines.reverse();
        lines.dedup_by(|one, other| one.path == other.path);
        lines.reverse();
        Manifest { lines }
    }

    /// Its lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Reads one; the error says which line cannot be read.
    pub fn parse(text: &str) -> Result<Manifest> {
        let wrong = |number: usize, why: &str| {
            Err(Error::new(Kind::Corrupt, format!("line {number} of the manifest {why}")))
        };
        let mut all = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        if all.next() != Some((1, HEAD)) {
            return wrong(
                1,
                &format!("is not {HEAD:?}: it is no manifest, or one of a later Engram"),
            );
        }
        let (mut lines, mut bytes) = (Vec::new(), 0_u64);
        for (number, text) in all {
            if let Some(counts) = text.strip_prefix("end ") {
                if counts != format!("{} {bytes}", lines.len()) {
                    return wrong(
                        number,
                        &format!("counts {counts}, and there are others above it"),
                    );
                }
                return Ok(Manifest::new(lines));
            }
            match Line::parse(text) {
                Some(line) => {
                    bytes = bytes.wrapping_add(line.size);
                    lines.push(line);
                }
                None => return wrong(number, &format!("cannot be read: {text:?}")),
            }
        }
        let found = lines.len();
        wrong(found + 2, &format!("is missing: the manifest ends after {found} files, cut off"))
    }

    /// What [`parse`](Manifest::parse) reads.
    pub fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        let mut bytes = 0_u64;
        for line in &self.lines {
            let (word, size, path) = (line.what.word(), line.size, escaped(&line.path));
            let sha256 = line.sum.sha256_text();
            let sha256 = sha256.as_deref().unwrap_or("-");
            // Writing to a string does not fail.
            let _ = writeln!(text, "{word} {size} {} {sha256} {path}", line.sum);
            bytes = bytes.wrapping_add(size);
        }
        let _ = writeln!(text, "end {} {bytes}", self.lines.len());
        text
    }

    /// What `sha256sum -c` reads: the files that have such a sum.
    pub fn sha256_text(&self) -> String {
        let mut text = String::new();
        for line in self.lines.iter().filter(|line| line.what == What::File) {
            let Some(sum) = line.sum.sha256_text() else { continue };
            let path = escaped(&line.path);
            // So it marks that there are escapes in the line.
            let mark = if path == line.path { "" } else { "\\" };
            let _ = writeln!(text, "{mark}{sum}  {path}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Line, Manifest, What};
    use crate::sum::Sum;

    fn line() -> impl Strategy<Value = Line> {
        let sums = (any::<u128>(), prop::option::of(any::<[u8; 32]>()));
        let what = prop_oneof![Just(What::File), Just(What::Link)];
        let path = prop_oneof!["[a-c/]{1,4}", "(.|[\\\\\n %])+"];
        (what, any::<u64>(), sums, path).prop_map(|(what, size, (xxh3, sha256), path)| Line {
            what,
            size,
            sum: Sum { xxh3, sha256 },
            path,
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(lines in prop::collection::vec(line(), 0..12)) {
            let manifest = Manifest::new(lines);
            let text = manifest.text();
            prop_assert_eq!(Manifest::parse(&text).unwrap(), manifest);
        }

        #[test]
        fn what_is_cut_off_or_changed_is_refused_or_another(
            lines in prop::collection::vec(line(), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let text = Manifest::new(lines).text();
            let mut end = cut.index(text.len() - 1);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            prop_assert!(Manifest::parse(&text[..end]).is_err(), "{end} of {}", text.len());
        }

        #[test]
        fn anything_is_read_or_refused(text in any::<String>()) {
            let _ = Manifest::parse(&text);
            let _ = Manifest::parse(&format!("engram-manifest 1\n{text}"));
        }
    }

    #[test]
    fn a_later_line_of_a_path_counts() {
        let line = |size| Line {
            what: What::File,
            size,
            sum: Sum::of(b"", true),
            path: "a\nb".to_owned(),
        };
        let manifest = Manifest::new(vec![line(1), line(2)]);
        assert_eq!(manifest.lines(), [line(2)]);
        let sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(manifest.sha256_text(), format!("\\{sum}  a\\nb\n"));
    }
}
