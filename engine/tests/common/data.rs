//! Random numbers with a seed that is printed, and arrays of which every word can be checked.

use engram::View;

/// A small generator (splitmix64); the seed is all of it.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// A seed for this run: `ENGRAM_SEED`, or another one each time. Printed, to be run again.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let seed = std::env::var("ENGRAM_SEED").ok().and_then(|text| text.parse().ok());
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    let seed = seed.unwrap_or_else(random);
    println!("ENGRAM_SEED={seed}");
    seed
}

/// The bytes of an array that says whose it is (`tag`) and which version (`version`), and whose
/// every other word follows from these two and from its place.
pub fn filled(tag: u64, version: u64, words: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(words * 8);
    for word in words_of(tag, version, words) {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The words of that array.
pub fn words_of(tag: u64, version: u64, words: usize) -> impl Iterator<Item = u64> {
    let base = mix(tag ^ version.rotate_left(32));
    [tag, version, words as u64]
        .into_iter()
        .chain((3..words as u64).map(move |place| base ^ place.wrapping_mul(0x9E37_79B9)))
}

/// Checks every word of a view; returns whose array it is and which version.
/// Reads word by word, since somebody may be writing there if the engine is wrong.
#[expect(clippy::cast_ptr_alignment, reason = "every extent is aligned to 64 bytes")]
pub fn check(view: &View) -> (u64, u64) {
    let words = view.len() / 8;
    let at = view.as_ptr().cast::<u64>();
    // SAFETY: the view is live, as long as this, and aligned.
    let read = |place: usize| unsafe { at.add(place).read_volatile() };
    let (tag, version) = (read(0), read(1));
    for (place, expected) in words_of(tag, version, words).enumerate() {
        let found = read(place);
        assert_eq!(
            found, expected,
            "word {place} of {words} of array {tag} version {version}: torn or foreign"
        );
    }
    (tag, version)
}
