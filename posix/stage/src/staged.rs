//! What a copy in a pool keeps of its source.
//!
//! A file that was staged in has an attribute ([`KEY`]) that says what its source was then, and
//! what its bytes sum up to. Where the source still is so, and the copy was not written since,
//! there is nothing to copy. The attribute goes with the file: renamed, moved or in a backup it
//! says the same.

use engram::Value;
use engram_fs::{Fs, Ino, OpenFlags, Result, Stat};

use crate::failure::Done;
use crate::sum::{RunningSum, Sum};
use crate::tree::Seen;

/// So many bytes are read at a time.
const PIECE: usize = 256 << 10;

/// The attribute's key.
pub const KEY: &str = "engram.staged";

/// What a copy was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// What the source was.
    pub source: Seen,
    /// What its bytes sum up to; `None`: it is on its way.
    pub sum: Option<Sum>,
}

impl Staged {
    fn parse(text: &str) -> Option<Staged> {
        let mut words = text.split(' ');
        let mut next = || words.next();
        let mut number = || next()?.parse::<i128>().ok();
        let (dev, ino, size) = (number()?, number()?, number()?);
        let (written, changed) = (number()?, number()?);
        let source = Seen {
            dev: u64::try_from(dev).ok()?,
            ino: u64::try_from(ino).ok()?,
            size: u64::try_from(size).ok()?,
            written: i64::try_from(written).ok()?,
            changed: i64::try_from(changed).ok()?,
        };
        let sum = match next()? {
            "-" => None,
            text => Some(Sum { xxh3: u128::from_str_radix(text, 16).ok()?, sha256: None }),
        };
        next().is_none().then_some(Staged { source, sum })
    }

    /// The attribute's value.
    pub fn value(&self) -> Value {
        let Seen { dev, ino, size, written, changed } = self.source;
        let sum = self.sum.map_or("-".to_owned(), |sum| sum.xxh3_text());
        Value::text(&format!("{dev} {ino} {size} {written} {changed} {sum}"))
    }

    /// What a file in a pool keeps; `None`: it was not staged in.
    pub fn of(fs: &Fs, file: Ino) -> Result<Option<Staged>> {
        let member = engram::Member::Object(file);
        let value = fs.namespace().attr(member, KEY)?;
        Ok(value.and_then(|value| Staged::parse(std::str::from_utf8(&value.data).ok()?)))
    }

    /// Whether a copy looks as it was made: nobody is known to have written to it since.
    pub fn is_untouched(&self, copy: &Stat) -> bool {
        copy.size == self.source.size && copy.written == self.source.written
    }

    /// Whether a copy has the bytes that it was made with. A write through a view, and one whose
    /// time was set back, is not told by times.
    pub(crate) fn is_unchanged(&self, fs: &Fs, copy: &Stat) -> Done<bool> {
        match self.sum {
            Some(sum) if self.is_untouched(copy) => sums_up_to(fs, copy, sum),
            _ => Ok(false),
        }
    }
}

/// Whether a file in a pool has the bytes that sum up so.
pub(crate) fn sums_up_to(fs: &Fs, file: &Stat, expected: Sum) -> Done<bool> {
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let open = fs.open(file.ino, flags)?;
    let mut sum = RunningSum::new(false);
    let mut piece = vec![0; PIECE.min(file.size.max(1) as usize)];
    let mut at = 0;
    loop {
        let count = open.read(at, &mut piece)?;
        if count == 0 {
            return Ok(at == file.size && sum.done().xxh3 == expected.xxh3);
        }
        sum.add(&piece[..count]);
        at += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Staged;
    use crate::sum::Sum;
    use crate::tree::Seen;

    proptest! {
        #[test]
        fn what_is_kept_is_read(
            (dev, ino, size) in any::<(u64, u64, u64)>(),
            (written, changed) in any::<(i64, i64)>(),
            xxh3 in prop::option::of(any::<u128>()),
        ) {
            let sum = xxh3.map(|xxh3| Sum { xxh3, sha256: None });
            let staged = Staged { source: Seen { dev, ino, size, written, changed }, sum };
            let value = staged.value();
            let text = std::str::from_utf8(&value.data).unwrap();
            prop_assert_eq!(Staged::parse(text), Some(staged));
            prop_assert_eq!(Staged::parse(&format!("{text} ")), None);
        }

        #[test]
        fn anything_is_read_or_is_nothing(text in any::<String>()) {
            let _ = Staged::parse(&text);
        }
    }
}
