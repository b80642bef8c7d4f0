//! Random numbers that follow from a seed, and values of which every word can be checked.

use engram::View;

use crate::machine::word;

/// A small generator (splitmix64); the seed is all of it.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.any() % bound
    }

    /// Whether something happens that does in so many percent of cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The word at a place of the value that `tag` wrote as its version `version`. The first two words
/// say whose it is and which.
pub fn word_of(tag: u64, version: u64, place: usize) -> u64 {
    match place {
        0 => tag,
        1 => version,
        _ => mix(tag ^ version.rotate_left(32)) ^ (place as u64).wrapping_mul(0x9E37_79B9),
    }
}

/// All words of that value, as bytes.
pub fn filled(tag: u64, version: u64, words: usize) -> Vec<u8> {
    (0..words).flat_map(|place| word_of(tag, version, place).to_le_bytes()).collect()
}

/// The words of a value, however it lies.
pub enum Words<'a> {
    /// A copy.
    Copied(&'a [u8]),
    /// Memory of the pool.
    Seen(&'a View),
}

impl Words<'_> {
    /// How many words it has.
    pub fn len(&self) -> usize {
        match self {
            Words::Copied(bytes) => bytes.len() / 8,
            Words::Seen(view) => view.len() / 8,
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    pub fn at(&self, place: usize) -> u64 {
        match self {
            Words::Copied(bytes) => {
                u64::from_le_bytes(bytes[place * 8..][..8].try_into().expect("eight bytes"))
            }
            Words::Seen(view) => word(view, place),
        }
    }

    /// Whose value it is and which version, if every word agrees; else what does not.
    pub fn whole(&self) -> Result<(u64, u64), String> {
        let (tag, version) = (self.at(0), self.at(1));
        match (0..self.len()).find(|&place| self.at(place) != word_of(tag, version, place)) {
            None => Ok((tag, version)),
            Some(place) => Err(format!(
                "word {place} of {} of version {version} by {tag} is {:#x}, not {:#x}",
                self.len(),
                self.at(place),
                word_of(tag, version, place)
            )),
        }
    }
}
