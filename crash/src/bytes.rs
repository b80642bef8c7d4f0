//! What a file's words may be, by runs of words that are alike.

use crate::data::{Words, word_of};

/// Words that are alike: of which versions each may be. 0 stands for zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    words: u32,
    versions: Vec<u64>,
}

/// A file's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileWords {
    runs: Vec<Run>,
}

/// The word at a place of a file, as its writer's version of it: the place is one of the file, not
/// of what was written at once.
pub(crate) fn file_word(slot: usize, version: u64, place: usize) -> u64 {
    match version {
        0 => 0,
        _ => word_of(slot as u64, version, place + 2),
    }
}

impl FileWords {
    /// How many words it has.
    pub fn len(&self) -> u32 {
        self.runs.iter().map(|run| run.words).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Makes a run begin at a place within the file, and says which it is.
    fn split(&mut self, place: u32) -> usize {
        let mut at = 0;
        for number in 0..self.runs.len() {
            if at == place {
                return number;
            }
            let run = &mut self.runs[number];
            if place < at + run.words {
                let rest = Run { words: at + run.words - place, versions: run.versions.clone() };
                run.words = place - at;
                self.runs.insert(number + 1, rest);
                return number + 1;
            }
            at += run.words;
        }
        self.runs.len()
    }

    /// Gives it another length; what is added are zeros.
    pub(crate) fn resize(&mut self, words: u32) {
        let now = self.len();
        if words > now {
            self.runs.push(Run { words: words - now, versions: vec![0] });
        } else {
            let end = self.split(words);
            self.runs.truncate(end);
        }
    }

    /// A range, wherever it ends, is of one version.
    pub(crate) fn set(&mut self, from: u32, words: u32, version: u64) {
        if from + words > self.len() {
            self.resize(from + words);
        }
        self.set_within(from, words, version);
    }

    /// What there is of a range is of one version.
    pub(crate) fn set_within(&mut self, from: u32, words: u32, version: u64) {
        let end = (from + words).min(self.len());
        if from < end {
            let (first, last) = (self.split(from), self.split(end));
            let run = Run { words: end - from, versions: vec![version] };
            self.runs.splice(first..last, [run]);
        }
    }

    /// What there is of a range may be of one version more.
    pub(crate) fn tear(&mut self, from: u32, words: u32, version: u64) {
        let end = (from + words).min(self.len());
        if from < end {
            let (first, last) = (self.split(from), self.split(end));
            for run in &mut self.runs[first..last] {
                if !run.versions.contains(&version) {
                    run.versions.push(version);
                }
            }
        }
    }

    /// What of a file's bytes is not as it must be.
    pub fn misfit(&self, slot: usize, bytes: &[u8]) -> Option<String> {
        if bytes.len() as u64 != u64::from(self.len()) * 8 {
            return Some(format!("it has {} bytes, not {}", bytes.len(), self.len() * 8));
        }
        let (found, mut place) = (Words::Copied(bytes), 0);
        for run in &self.runs {
            for at in place..place + run.words as usize {
                let word = found.at(at);
                if !run.versions.iter().any(|version| word == file_word(slot, *version, at)) {
                    return Some(format!(
                        "word {at} of {} is {word:#x}, of none of the versions {:x?}",
                        self.len(),
                        run.versions
                    ));
                }
            }
            place += run.words as usize;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{FileWords, file_word};

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn words_are_told_from_others_by_place_and_version() {
        let mut file = FileWords::default();
        file.set(2, 3, 7);
        let is = |version: u64, place: usize| file_word(1, version, place);
        let mut words = vec![0, 0, is(7, 2), is(7, 3), is(7, 4)];
        assert_eq!(file.misfit(1, &bytes(&words)), None);
        assert!(file.misfit(1, &bytes(&words[..4])).is_some());
        words[3] = is(8, 3);
        assert!(file.misfit(1, &bytes(&words)).is_some());
        file.tear(3, 9, 8);
        assert_eq!(file.misfit(1, &bytes(&words)), None);
        words[2] = is(8, 2);
        assert!(file.misfit(1, &bytes(&words)).is_some());
        file.set_within(1, 2, 8);
        words[1] = is(8, 1);
        assert_eq!(file.misfit(1, &bytes(&words)), None);
        file.resize(2);
        file.resize(3);
        assert_eq!(file.misfit(1, &bytes(&[0, is(8, 1), 0])), None);
    }
}
