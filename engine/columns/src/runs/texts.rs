//! Texts of a block put together, one behind the other, those that are the same once.
//!
//! A block keeps of each text what it does not share with the one before. Side by side in one
//! buffer they are checked as UTF-8 at once, and a part is looked for in all of them at once, which
//! may also be found across the end of one: that is no match.
//!
//! *Invariant*: the texts and how many entries have each are those that [`each_cell`] tells of, or
//! the block is not read.
//!
//! [`each_cell`]: super::block::each_cell

use std::ops::Range;

use memchr::memmem::Finder;

use super::block::TEXT;
use crate::cell::{Cell, TEXT_BYTES_MAX};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::varint;

/// The texts of one block, put together in buffers that serve many.
#[derive(Debug, Default)]
pub(super) struct BlockTexts {
    /// One behind the other.
    all: String,
    ends: Vec<TextEnd>,
}

/// Where a text ends.
#[derive(Clone, Copy, Debug)]
struct TextEnd {
    /// In the buffer.
    byte: usize,
    /// Among the entries of the block.
    entry: usize,
}

impl BlockTexts {
    /// Puts together the cells of a block. `false` if they are not texts alone, or no cells: then
    /// they are to be looked at one by one.
    pub(super) fn read(&mut self, cells: &[u8], len: usize) -> bool {
        let mut bytes = std::mem::take(&mut self.all).into_bytes();
        bytes.clear();
        self.ends.clear();
        let whole = put_together(cells, len, &mut bytes, &mut self.ends);
        match String::from_utf8(bytes) {
            Ok(all) => self.all = all,
            Err(_) => return false,
        }
        whole.is_some()
    }

    /// Calls with each text, and which entries have it, until it is told `false`; whether it never
    /// was.
    pub(super) fn each(
        &self,
        mut each: impl FnMut(Range<usize>, &Cell<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let mut start = TextEnd { byte: 0, entry: 0 };
        for end in &self.ends {
            let Some(text) = self.all.get(start.byte..end.byte) else {
                fail!(Corrupt, "entry {} of a block of `index_runs` is no text", start.entry);
            };
            if !each(start.entry..end.entry, &Cell::Text(text.into()))? {
                return Ok(false);
            }
            start = *end;
        }
        Ok(true)
    }

    /// Calls with the entries of each text that has a part, which is not empty.
    pub(super) fn each_with(
        &self,
        part: &Finder<'_>,
        mut each: impl FnMut(Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let (bytes, len) = (self.all.as_bytes(), part.needle().len());
        let (mut from, mut text) = (0, 0);
        while let Some(found) = part.find(&bytes[from..]) {
            let at = from + found;
            text += self.ends[text..].partition_point(|end| end.byte <= at);
            let end = self.ends[text];
            if at + len > end.byte {
                // It begins in one text and ends in another.
                from = at + 1;
                continue;
            }
            each(text.checked_sub(1).map_or(0, |before| self.ends[before].entry)..end.entry)?;
            from = end.byte;
        }
        Ok(())
    }
}

/// Puts texts together; `None` where they are none, or one is longer than texts of runs are.
fn put_together(
    cells: &[u8],
    len: usize,
    bytes: &mut Vec<u8>,
    ends: &mut Vec<TextEnd>,
) -> Option<()> {
    let (mut rest, mut start, mut entry) = (cells, 0, 0);
    while entry < len {
        let (&tag, after) = rest.split_first()?;
        rest = after;
        if tag != TEXT {
            return None;
        }
        let shared = usize::try_from(varint::take(&mut rest)?).ok()?;
        let new = varint::take_bytes(&mut rest)?;
        if shared > bytes.len() - start || new.len() > TEXT_BYTES_MAX - shared {
            return None;
        }
        let next = bytes.len();
        bytes.extend_from_within(start..start + shared);
        bytes.extend_from_slice(new);
        start = next;
        entry += 1 + repeated(&mut rest, bytes.len() - start, len - entry - 1);
        ends.push(TextEnd { byte: bytes.len(), entry });
    }
    Some(())
}

/// How many of the next entries, so many at most, have the same text again, of this length; they
/// are taken from the front.
fn repeated(rest: &mut &[u8], length: usize, most: usize) -> usize {
    // What is longer than a byte says is put together again: the same text twice is no fault.
    let Ok(length @ ..0x80) = u8::try_from(length) else { return 0 };
    let same = [TEXT, length, 0];
    let (entries, _) = rest.as_chunks::<3>();
    let count = entries.iter().take(most).take_while(|entry| **entry == same).count();
    *rest = &rest[3 * count..];
    count
}

#[cfg(test)]
mod tests {
    use memchr::memmem::Finder;
    use proptest::prelude::*;

    use super::BlockTexts;
    use crate::cell::{Cell, TEXT_BYTES_MAX};
    use crate::runs::block::{each_cell, push};

    /// A block of these texts, in order.
    fn block(texts: &mut [String]) -> Vec<u8> {
        texts.sort();
        let (mut out, mut before) = (Vec::new(), Vec::new());
        for text in texts {
            push(&mut out, &mut before, &Cell::Text(text.as_str().into()));
        }
        out
    }

    fn with(texts: &BlockTexts, part: &str) -> Vec<usize> {
        let mut found = Vec::new();
        let each = |entries| {
            found.extend(entries);
            Ok(())
        };
        texts.each_with(&Finder::new(part), each).unwrap();
        found
    }

    fn read(texts: &mut [String]) -> BlockTexts {
        let mut read = BlockTexts::default();
        assert!(read.read(&block(texts), texts.len()));
        read
    }

    #[test]
    fn a_part_is_found_wherever_it_lies() {
        let mut texts = ["", "", "kestrel 8, wet", "kestrel 8, wet", "kestrel 80", "kestrel 9"]
            .map(String::from);
        let read = read(&mut texts);
        // In what is shared, across its end, in what is new, and across the end of a text.
        assert_eq!(with(&read, "kestrel"), [2, 3, 4, 5]);
        assert_eq!(with(&read, "kestrel 8"), [2, 3, 4]);
        assert_eq!(with(&read, "l 80"), [4]);
        assert_eq!(with(&read, "wet"), [2, 3]);
        assert_eq!(with(&read, "wetkestrel"), []);
        assert_eq!(with(&read, "0kestrel 9"), []);
        assert_eq!(with(&read, "9"), [5]);
        // One that is found across an end first, and then in the text behind it.
        let read = self::read(&mut ["aba", "babab"].map(String::from));
        assert_eq!(with(&read, "abab"), [1]);
        assert_eq!(with(&read, "bab"), [1]);
        assert_eq!(with(&read, "baba"), [1]);
    }

    #[test]
    fn long_texts_are_read_and_longer_ones_are_left() {
        let long = "ß".repeat(TEXT_BYTES_MAX / 2);
        let read = read(&mut [long.clone(), long.clone(), format!("{}t", &long[2..])]);
        assert_eq!(with(&read, "ßt"), [0]);
        assert_eq!(with(&read, "ß"), [0, 1, 2]);
        let too_long = format!("{long}a");
        assert!(!BlockTexts::default().read(&block(&mut [too_long]), 1));
    }

    #[test]
    fn other_cells_and_halves_of_characters_are_left() {
        let (mut out, mut before) = (Vec::new(), Vec::new());
        push(&mut out, &mut before, &Cell::Int(8));
        push(&mut out, &mut before, &Cell::Text("a".into()));
        assert!(!BlockTexts::default().read(&out, 2));
        // A text that ends within a character, and the rest of it.
        let mut halves = BlockTexts::default();
        assert!(halves.read(&[3, 0, 1, 0xc3, 3, 0, 1, 0x9f], 2));
        assert!(halves.each(|_, _| Ok(true)).is_err());
        assert!(!halves.read(&[3, 0, 1, 0xc3], 1));
        assert!(!halves.read(&[3, 0, 1, b'a'], 2));
        assert!(!halves.read(&[3, 1, 1, b'a'], 1));
    }

    proptest! {
        #[test]
        fn texts_and_parts_are_those_of_a_plain_look(
            mut texts in prop::collection::vec("[abß€]{0,7}", 1..if cfg!(miri) { 9 } else { 90 }),
            parts in prop::collection::vec("[abß€]{1,4}", 9),
        ) {
            let bytes = block(&mut texts);
            let mut read = BlockTexts::default();
            prop_assert!(read.read(&bytes, texts.len()));
            let mut told = Vec::new();
            let each = |entries: std::ops::Range<usize>, cell: &Cell<'_>| {
                let Cell::Text(text) = cell else { return Ok(false) };
                told.extend(entries.map(|_| text.to_string()));
                Ok(true)
            };
            prop_assert!(read.each(each).unwrap());
            prop_assert_eq!(&told, &texts);
            for part in parts {
                let wanted: Vec<usize> =
                    (0..texts.len()).filter(|at| texts[*at].contains(&part)).collect();
                prop_assert_eq!(with(&read, &part), wanted, "{}", part);
            }
        }

        #[test]
        fn damaged_blocks_are_read_as_cell_by_cell_or_left(
            mut texts in prop::collection::vec("[abß]{0,5}", 1..20),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = block(&mut texts);
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let (mut one_by_one, mut together) = (Vec::new(), Vec::new());
            let plain = each_cell(&bytes, texts.len(), |_, cell| {
                one_by_one.push(cell.clone().into_owned());
                Ok(true)
            });
            let mut read = BlockTexts::default();
            if read.read(&bytes, texts.len()) {
                let found = read.each(|entries, cell| {
                    together.extend(entries.map(|_| cell.clone().into_owned()));
                    Ok(true)
                });
                prop_assert_eq!(found.is_ok(), plain.is_ok());
                if plain.is_ok() {
                    prop_assert_eq!(format!("{together:?}"), format!("{one_by_one:?}"));
                }
            }
        }
    }
}
