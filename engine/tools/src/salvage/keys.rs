//! The names of attribute keys, of which each is said twice: by its number, and by itself.
//!
//! Only where both rows say the same is a name beyond doubt. One row alone is believed, and told
//! of: the other one is lost, or so damaged that it says nothing of either. Where two say different
//! things, nobody knows which of them is right: under neither name does anything go out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use engram_records::attrs::KeyId;

/// The rows of `keys` of one realm.
#[derive(Default)]
pub(super) struct Keys {
    /// What the rows by number say.
    names: BTreeMap<KeyId, BTreeSet<String>>,
    /// What the rows by name say.
    numbers: BTreeMap<String, BTreeSet<KeyId>>,
}

impl Keys {
    /// Notes a row, in either direction; bytes that cannot be one are none.
    pub(super) fn note(&mut self, key: &[u8], value: &[u8]) {
        let (by_name, number, name) = match key.split_first() {
            Some((b'k', name)) => (true, <[u8; 4]>::try_from(value).map(u32::from_le_bytes), name),
            Some((b'i', number)) => {
                (false, <[u8; 4]>::try_from(number).map(u32::from_be_bytes), value)
            }
            _ => return,
        };
        let (Ok(number), Ok(name)) = (number, std::str::from_utf8(name)) else { return };
        if engram_base::name::check_key("attribute key", name).is_err() {
            return;
        }
        if by_name {
            self.numbers.entry(name.to_owned()).or_default().insert(number);
        } else {
            self.names.entry(number).or_default().insert(name.to_owned());
        }
    }

    /// Whether both rows say this.
    fn agree(&self, number: KeyId, name: &str) -> bool {
        self.names.get(&number).is_some_and(|names| names.contains(name))
            && self.numbers.get(name).is_some_and(|numbers| numbers.contains(&number))
    }

    /// The name of each number, as far as it is known; of what is in doubt, or lost, it is told.
    pub(super) fn resolve(self, lose: &mut dyn FnMut(String)) -> HashMap<KeyId, String> {
        let mut said: BTreeMap<KeyId, BTreeSet<&str>> = BTreeMap::new();
        for (number, names) in &self.names {
            said.entry(*number).or_default().extend(names.iter().map(String::as_str));
        }
        for (name, numbers) in &self.numbers {
            for number in numbers {
                said.entry(*number).or_default().insert(name);
            }
        }
        let sure: BTreeMap<&str, KeyId> = said
            .iter()
            .flat_map(|(number, names)| names.iter().map(|name| (*name, *number)))
            .filter(|(name, number)| self.agree(*number, name))
            .collect();
        let mut known = HashMap::new();
        for (number, names) in said {
            let agreed: Vec<&str> =
                names.iter().copied().filter(|name| self.agree(number, name)).collect();
            // A name that is another number's beyond doubt is not this one's.
            let left: Vec<&str> =
                names.iter().copied().filter(|name| !sure.contains_key(name)).collect();
            match (&agreed[..], &left[..]) {
                ([name], _) => drop(known.insert(number, (*name).to_owned())),
                ([], [name]) => {
                    lose(format!(
                        "of the two rows of attribute key {number} only one is sound: it is taken \
                         to be {name:?}, as that says"
                    ));
                    known.insert(number, (*name).to_owned());
                }
                ([], []) => {}
                _ => lose(format!(
                    "the two rows of attribute key {number} say different names: {}; attributes \
                     of it are left out",
                    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
                )),
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::Keys;
    use engram_records::attrs::KeyId;

    type KeyNames = Vec<(KeyId, String)>;

    /// What comes of rows by number and rows by name, and how many things are told.
    fn resolved(by_number: &[(KeyId, &str)], by_name: &[(&str, KeyId)]) -> (KeyNames, usize) {
        let mut keys = Keys::default();
        for (number, name) in by_number {
            keys.note(&[b"i", number.to_be_bytes().as_slice()].concat(), name.as_bytes());
        }
        for (name, number) in by_name {
            keys.note(&[b"k", name.as_bytes()].concat(), &number.to_le_bytes());
        }
        let mut told = 0;
        let mut known: KeyNames = keys.resolve(&mut |_| told += 1).into_iter().collect();
        known.sort();
        (known, told)
    }

    fn known(names: &[(KeyId, &str)]) -> KeyNames {
        names.iter().map(|(number, name)| (*number, (*name).to_owned())).collect()
    }

    #[test]
    fn a_name_is_believed_as_far_as_its_rows_agree() {
        let (both, one) = (known(&[(0, "a"), (1, "b")]), known(&[(1, "b")]));
        let sound = [(0, "a"), (1, "b")];
        assert_eq!(resolved(&sound, &[("a", 0), ("b", 1)]), (both.clone(), 0));
        // The one row or the other is lost.
        assert_eq!(resolved(&sound, &[("b", 1)]), (both.clone(), 1));
        assert_eq!(resolved(&[(1, "b")], &[("a", 0), ("b", 1)]), (both.clone(), 1));
        // A name is damaged, in either.
        assert_eq!(resolved(&[(0, "c"), (1, "b")], &[("a", 0), ("b", 1)]), (one.clone(), 1));
        assert_eq!(resolved(&sound, &[("c", 0), ("b", 1)]), (one.clone(), 1));
        // A name is damaged so that it is another key's.
        assert_eq!(resolved(&[(0, "b"), (1, "b")], &[("a", 0), ("b", 1)]), (both.clone(), 1));
        // A number is damaged: to one that is another's, or nobody's.
        assert_eq!(resolved(&sound, &[("a", 1), ("b", 1)]), (both.clone(), 1));
        assert_eq!(resolved(&[(1, "a"), (1, "b")], &[("a", 0), ("b", 1)]), (both, 1));
        let (found, told) = resolved(&sound, &[("a", 7), ("b", 1)]);
        assert_eq!(told, 2);
        assert_eq!(found.iter().filter(|(number, _)| *number < 7).count(), 2);
    }
}
