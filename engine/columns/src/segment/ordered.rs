//! Strings in order, each once: what a dictionary of many strings is on media.
//!
//! The strings stand in *groups* of [`GROUP`]. The first of a group is whole; each other one says
//! how many bytes of the string before it go, and which come in their place. So a string is found
//! by a search among first strings and a look at one group, and numbered names take two bytes each.
//!
//! A long list begins with a *signature*, which says which groups can have a part of a string. It
//! is a table of words. Each three bytes that follow each other in a string (a trigram) lead to one
//! of the words, where the bit of the string's group is set; 64 bits stand for all groups, some
//! side by side where there are more. A group that has a part has the bits of all its trigrams.
//!
//! *Invariant*: any bytes of the right length are some list of strings, or an error when a string
//! of it is read.

use std::ops::Range;

use super::ints::{self, Ints};
use engram_base::varint;

/// How many strings are in a group.
const GROUP: usize = 64;
/// From so many strings on there is a signature: fewer are soon looked through.
const SIGNED_FROM: usize = 8 * GROUP;
/// The most and the fewest words of a signature, as powers of two.
const WORDS_MOST: u32 = 15;
const WORDS_LEAST: u32 = 3;
/// A signature is made shorter while less than one of so many bits is set.
const SPARSE: usize = 16;
/// A count that does not fit its half of a byte, and follows.
const MORE: usize = 15;

/// The word that a trigram leads to, of so many.
fn word_of(trigram: &[u8], log: u32) -> usize {
    let number = trigram.iter().fold(0, |number: u32, byte| number << 8 | u32::from(*byte));
    (number.wrapping_mul(0x9E37_79B1) >> (32 - log)) as usize
}

/// How many groups share a bit, as a power of two.
fn shift_of(groups: usize) -> u32 {
    let last = groups.saturating_sub(1);
    (usize::BITS - last.leading_zeros()).saturating_sub(6)
}

/// How many bytes two strings begin with alike.
pub(super) fn shared(a: &[u8], b: &[u8]) -> usize {
    let (words, _) = a.as_chunks::<8>();
    let mut at = 0;
    for (a, b) in words.iter().zip(b.as_chunks::<8>().0) {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return at + differ.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

/// Appends strings, ascending and each once. How many they are is kept elsewhere.
pub(super) fn push(out: &mut Vec<u8>, texts: &[&str]) {
    let groups = texts.len().div_ceil(GROUP);
    let (mut ends, mut bytes) = (Vec::with_capacity(groups), Vec::with_capacity(4 * texts.len()));
    let mut signature = TextSignature::new(texts.len());
    let mut before: &[u8] = &[];
    for (at, text) in texts.iter().enumerate() {
        let text = text.as_bytes();
        let same = if at % GROUP == 0 { 0 } else { shared(before, text) };
        signature.add(at / GROUP, text, shared(before, text));
        let (gone, new) = (before.len() - same, &text[same..]);
        if at % GROUP == 0 {
            varint::push(&mut bytes, text.len() as u64);
        } else {
            bytes.push((gone.min(MORE) << 4 | new.len().min(MORE)) as u8);
            for count in [gone, new.len()] {
                if count >= MORE {
                    varint::push(&mut bytes, (count - MORE) as u64);
                }
            }
        }
        bytes.extend_from_slice(new);
        if at % GROUP == GROUP - 1 || at + 1 == texts.len() {
            ends.push(bytes.len() as u64);
        }
        before = text;
    }
    signature.push(out);
    ints::push(out, &ends);
    varint::push(out, bytes.len() as u64);
    out.extend_from_slice(&bytes);
}

/// A signature under construction.
struct TextSignature {
    words: Vec<u64>,
    log: u32,
    groups: usize,
    shift: u32,
    /// The bit of the last string's group.
    bit: usize,
}

impl TextSignature {
    /// An empty one for so many strings; of few none.
    fn new(texts: usize) -> Self {
        let groups = texts.div_ceil(GROUP);
        let log = texts.next_power_of_two().ilog2().min(WORDS_MOST);
        let words = if texts < SIGNED_FROM { Vec::new() } else { vec![0; 1 << log] };
        TextSignature { words, log, groups, shift: shift_of(groups), bit: usize::MAX }
    }

    /// Adds a string, which begins with so many bytes of the one added before.
    fn add(&mut self, group: usize, text: &[u8], same: usize) {
        if self.words.is_empty() {
            return;
        }
        // What is in what two strings of a bit have in common was added with the first.
        let bit = group >> self.shift;
        let from = if bit == self.bit { same.saturating_sub(2) } else { 0 };
        self.bit = bit;
        for trigram in text[from..].windows(3) {
            self.words[word_of(trigram, self.log)] |= 1 << bit;
        }
    }

    fn push(mut self, out: &mut Vec<u8>) {
        if self.words.is_empty() {
            return out.push(0);
        }
        let bits = ((self.groups - 1) >> self.shift) + 1;
        let mut set: usize = self.words.iter().map(|word| word.count_ones() as usize).sum();
        while self.log > WORDS_LEAST && set * SPARSE < self.words.len() * bits {
            // A shorter table is led to by the upper bits of the same number.
            self.words = self.words.as_chunks::<2>().0.iter().map(|[a, b]| a | b).collect();
            self.log -= 1;
            set = self.words.iter().map(|word| word.count_ones() as usize).sum();
        }
        out.push(self.log as u8);
        out.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
    }
}

/// Strings on media.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderedTexts<'a> {
    len: usize,
    signature: &'a [[u8; 8]],
    ends: Ints<'a>,
    bytes: &'a [u8],
}

impl<'a> OrderedTexts<'a> {
    /// Takes `len` strings from the front; `None` if the bytes are none.
    pub(super) fn take(bytes: &mut &'a [u8], len: usize) -> Option<Self> {
        let (&log, rest) = bytes.split_first()?;
        *bytes = rest;
        let mut signature: &[[u8; 8]] = &[];
        if log > 0 {
            let words =
                1_usize.checked_shl(u32::from(log)).filter(|_| u32::from(log) <= WORDS_MOST);
            let (words, rest) = bytes.split_at_checked(8 * words?)?;
            signature = words.as_chunks().0;
            *bytes = rest;
        }
        let ends = Ints::take(bytes, len.div_ceil(GROUP))?;
        Some(OrderedTexts { len, signature, ends, bytes: varint::take_bytes(bytes)? })
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn group(&self, group: usize) -> Option<&'a [u8]> {
        let start = if group == 0 { 0 } else { self.ends.get(group - 1) };
        self.bytes.get(usize::try_from(start).ok()?..usize::try_from(self.ends.get(group)).ok()?)
    }

    /// The first string of a group.
    fn first(&self, group: usize) -> Option<&'a [u8]> {
        varint::take_bytes(&mut self.group(group)?)
    }

    /// Calls with the strings of a group and their places, until it says `false`. `None` if one is
    /// none.
    fn each_in(&self, group: usize, visit: &mut impl FnMut(usize, &str) -> bool) -> Option<()> {
        let mut rest = self.group(group)?;
        let mut text = varint::take_bytes(&mut rest)?.to_vec();
        let places = group * GROUP..self.len.min((group + 1) * GROUP);
        for at in places.clone() {
            if at > places.start {
                let (&counts, after) = rest.split_first()?;
                rest = after;
                let mut count = |count: u8| match usize::from(count) {
                    MORE => MORE.checked_add(usize::try_from(varint::take(&mut rest)?).ok()?),
                    count => Some(count),
                };
                let (gone, new) = (count(counts >> 4)?, count(counts & 15)?);
                text.truncate(text.len().checked_sub(gone)?);
                let (new, after) = rest.split_at_checked(new)?;
                rest = after;
                text.extend_from_slice(new);
            }
            if !visit(at, std::str::from_utf8(&text).ok()?) {
                break;
            }
        }
        Some(())
    }

    /// One string, if it is one.
    pub(super) fn get(&self, at: usize) -> Option<String> {
        let mut found = None;
        self.each_in(at / GROUP, &mut |place, text| {
            found = (place == at).then(|| text.to_owned());
            place < at
        })?;
        found
    }

    /// Calls with every string, in order. `None` if one is none.
    pub(super) fn each(&self, mut visit: impl FnMut(&str)) -> Option<()> {
        let mut visit = |_, text: &str| {
            visit(text);
            true
        };
        (0..self.len.div_ceil(GROUP)).try_for_each(|group| self.each_in(group, &mut visit))
    }

    /// Calls with all strings from `low` to `high`, both included, that have all `parts`, and with
    /// some others, and with their places. `None` if one of them is none.
    pub(super) fn each_like(
        &self,
        low: &str,
        high: Option<&str>,
        parts: &[&str],
        mut visit: impl FnMut(usize, &str),
    ) -> Option<()> {
        let groups = self.between(low.as_bytes(), high.map(str::as_bytes))?;
        // One group is as soon looked at as the signature.
        let bits = if groups.len() > 1 { self.with(parts) } else { u64::MAX };
        let shift = shift_of(self.len.div_ceil(GROUP));
        for group in groups.filter(|group| bits >> (group >> shift) & 1 != 0) {
            self.each_in(group, &mut |at, text| {
                let within = high.is_none_or(|high| text <= high);
                if within {
                    visit(at, text);
                }
                within
            })?;
        }
        Some(())
    }

    /// The groups that can have strings from `low` to `high`.
    fn between(&self, low: &[u8], high: Option<&[u8]>) -> Option<Range<usize>> {
        let groups = self.len.div_ceil(GROUP);
        let from = self.groups_to(low, groups)?.saturating_sub(1);
        let to = high.map_or(Some(groups), |high| self.groups_to(high, groups))?;
        Some(from..to.max(from))
    }

    /// How many groups begin with this string or a lesser one.
    fn groups_to(&self, text: &[u8], groups: usize) -> Option<usize> {
        let (mut low, mut high) = (0, groups);
        while low < high {
            let middle = low.midpoint(high);
            if self.first(middle)? <= text {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// The bits of groups that can have all these parts.
    fn with(&self, parts: &[&str]) -> u64 {
        let Some(log) = self.signature.len().checked_ilog2() else { return u64::MAX };
        let trigrams = parts.iter().flat_map(|part| part.as_bytes().windows(3));
        trigrams.fold(u64::MAX, |bits, trigram| {
            bits & u64::from_le_bytes(self.signature[word_of(trigram, log)])
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{GROUP, OrderedTexts, push, shared};

    fn bytes(texts: &BTreeSet<String>) -> Vec<u8> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut bytes = Vec::new();
        push(&mut bytes, &texts);
        bytes
    }

    /// How many strings there are, at most. Miri takes a thousand times as long for each.
    const TEXTS: u32 = if cfg!(miri) { 40 } else { 900 };

    fn any_texts() -> impl Strategy<Value = BTreeSet<String>> {
        let wild = prop::collection::btree_set("[abß日\u{10ffff}]{0,9}", 0..TEXTS as usize);
        let numbered = (0_u32..5000, 0..TEXTS).prop_map(|(first, count)| {
            (first..first + count).map(|number| format!("name {number:06}")).collect()
        });
        let long = prop::collection::btree_set("[ab]{0,300}", 0..TEXTS as usize / 11);
        prop_oneof![wild, numbered, long]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 200 },
            ..ProptestConfig::default()
        })]

        #[test]
        fn strings_are_found_as_a_plain_look_finds_them(
            texts in any_texts(),
            parts in prop::collection::vec("[abß0-9e ]{0,4}", 3),
            ends in any::<(prop::sample::Index, prop::sample::Index)>(),
        ) {
            let media = bytes(&texts);
            let mut rest = media.as_slice();
            let read = OrderedTexts::take(&mut rest, texts.len()).unwrap();
            prop_assert!(rest.is_empty());
            let all: Vec<&str> = texts.iter().map(String::as_str).collect();
            let mut each = Vec::new();
            read.each(|text| each.push(text.to_owned())).unwrap();
            prop_assert_eq!(&each, &all);
            for (at, text) in all.iter().enumerate() {
                prop_assert_eq!(read.get(at), Some((*text).to_owned()));
            }
            prop_assert_eq!(read.get(all.len()), None);
            let end = |index: prop::sample::Index| all.get(index.index(all.len() + 1)).copied();
            let (low, high) = (end(ends.0).unwrap_or("b"), end(ends.1));
            for parts in [&parts[..1], &parts[1..], &[]] {
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                let passes = |text: &str| {
                    text >= low && high.is_none_or(|high| text <= high)
                        && parts.iter().all(|part| text.contains(part))
                };
                let mut found = Vec::new();
                read.each_like(low, high, &parts, |at, text| {
                    assert_eq!(all[at], text);
                    if passes(text) {
                        found.push(at);
                    }
                }).unwrap();
                let wanted = (0..all.len()).filter(|at| passes(all[*at])).collect::<Vec<_>>();
                prop_assert_eq!(found, wanted);
            }
        }

        #[test]
        fn any_bytes_are_strings_or_none(
            texts in any_texts(),
            hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut media = bytes(&texts);
            for (at, byte) in hits {
                let at = at.index(media.len());
                media[at] = byte;
            }
            for media in [&media[..], &media[..cut.index(media.len())]] {
                let Some(read) = OrderedTexts::take(&mut &*media, texts.len()) else { continue };
                let _ = (read.each(|_| ()), read.get(texts.len() / 2));
                let _ = read.each_like("a", Some("name 1"), &["abc"], |_, _| ());
            }
        }

        #[test]
        fn what_is_shared_is_counted(a in "[ab]{0,30}", b in "[ab]{0,30}") {
            let count = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(shared(a.as_bytes(), b.as_bytes()), count);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "its thousands of names take miri minutes")]
    fn numbered_names_take_a_few_bytes_and_a_part_is_in_few_groups() {
        let texts: BTreeSet<String> =
            (0..4096).map(|number| format!("n{:016x}", 0x61a7b + number)).collect();
        let media = bytes(&texts);
        assert!(media.len() < 7 * texts.len(), "{} bytes", media.len());
        let read = OrderedTexts::take(&mut media.as_slice(), texts.len()).unwrap();
        for part in ["61a7b", "00061f4", "62a7a"] {
            let mut looked = 0;
            read.each_like("", None, &[part], |_, _| looked += 1).unwrap();
            assert!((1..=4 * GROUP).contains(&looked), "{part}: {looked} were looked at");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "its thousands of strings take miri minutes")]
    fn of_more_than_64_groups_some_share_a_bit() {
        let texts: BTreeSet<String> =
            (0..20_000_u32).map(|at| format!("{:x}", at.wrapping_mul(0x9E37_79B1))).collect();
        let media = bytes(&texts);
        let read = OrderedTexts::take(&mut media.as_slice(), texts.len()).unwrap();
        let (mut looked, mut found) = (0, 0);
        read.each_like("", None, &["1234"], |_, text| {
            looked += 1;
            found += usize::from(text.contains("1234"));
        })
        .unwrap();
        assert_eq!(found, texts.iter().filter(|text| text.contains("1234")).count());
        assert!(found > 0 && looked < texts.len() / 2, "{looked} were looked at");
    }
}
