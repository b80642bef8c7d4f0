//! The words that the language keeps for itself.

/// A word of the language, in letters of either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    And,
    Or,
    Not,
    Between,
    In,
    Contains,
    StartsWith,
    EndsWith,
    Like,
    Exists,
    Under,
    Order,
    By,
    Limit,
    Asc,
    Desc,
    True,
    False,
}

/// Every one, as it is written.
const ALL: [(Word, &str); 18] = [
    (Word::And, "and"),
    (Word::Or, "or"),
    (Word::Not, "not"),
    (Word::Between, "between"),
    (Word::In, "in"),
    (Word::Contains, "contains"),
    (Word::StartsWith, "startswith"),
    (Word::EndsWith, "endswith"),
    (Word::Like, "like"),
    (Word::Exists, "exists"),
    (Word::Under, "under"),
    (Word::Order, "order"),
    (Word::By, "by"),
    (Word::Limit, "limit"),
    (Word::Asc, "asc"),
    (Word::Desc, "desc"),
    (Word::True, "true"),
    (Word::False, "false"),
];

/// The word that this is.
pub(super) fn word(text: &str) -> Option<Word> {
    ALL.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(word, _)| *word)
}

impl Word {
    /// As it is written.
    pub(super) fn name(self) -> &'static str {
        ALL.iter().find(|(word, _)| *word == self).map_or("", |(_, name)| name)
    }
}

/// Whether a name may begin so.
pub(super) fn begins_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

/// Whether a name may go on so.
pub(super) fn continues_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Whether an attribute's key can stand as it is; if not, it stands in backquotes.
pub(super) fn is_bare(key: &str) -> bool {
    key.starts_with(begins_name) && key.chars().all(continues_name) && word(key).is_none()
}
