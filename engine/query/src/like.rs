//! Patterns of `like`: `%` is any run of characters, `_` any one, `\` takes the next as it is.
//!
//! A pattern is cut at its `%` into pieces. The first stands at the start, the last at the end, and
//! each between is taken where it is first found: a later place would leave less room for the rest.

/// A pattern, taken apart once.
#[derive(Clone, Debug)]
pub struct Like {
    first: LiteralRun,
    /// What follows each `%`; empty where there is none.
    rest: Vec<LiteralRun>,
}

/// A run without `%`.
#[derive(Clone, Debug, Default)]
struct LiteralRun {
    /// Its characters; `None` is any one.
    chars: Vec<Option<char>>,
    /// The same where each is known.
    plain: Option<String>,
}

impl LiteralRun {
    fn new(chars: Vec<Option<char>>) -> Self {
        let plain = chars.iter().copied().collect();
        LiteralRun { chars, plain }
    }

    /// Where it ends if `text` starts with it.
    fn at_start(&self, text: &str) -> Option<usize> {
        if let Some(plain) = &self.plain {
            return text.starts_with(plain.as_str()).then_some(plain.len());
        }
        let mut rest = text.chars();
        for wanted in &self.chars {
            let found = rest.next()?;
            if wanted.is_some_and(|wanted| wanted != found) {
                return None;
            }
        }
        Some(text.len() - rest.as_str().len())
    }

    /// Where it ends at the first place in `text` that it is found.
    fn find(&self, text: &str) -> Option<usize> {
        if let Some(plain) = &self.plain {
            return text.find(plain.as_str()).map(|start| start + plain.len());
        }
        let starts = text.char_indices().map(|(start, _)| start);
        starts.into_iter().find_map(|start| Some(start + self.at_start(&text[start..])?))
    }

    /// Whether `text` ends with it.
    fn at_end(&self, text: &str) -> bool {
        if let Some(plain) = &self.plain {
            return text.ends_with(plain.as_str());
        }
        let mut rest = text.chars().rev();
        self.chars
            .iter()
            .rev()
            .all(|wanted| rest.next().is_some_and(|found| wanted.is_none_or(|c| c == found)))
    }
}

impl Like {
    /// Takes a pattern apart. A `\` at its end is itself.
    pub(crate) fn new(pattern: &str) -> Self {
        let mut pieces = Vec::new();
        let mut piece = Vec::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            match c {
                '%' => pieces.push(LiteralRun::new(std::mem::take(&mut piece))),
                '_' => piece.push(None),
                '\\' => piece.push(Some(chars.next().unwrap_or('\\'))),
                c => piece.push(Some(c)),
            }
        }
        pieces.push(LiteralRun::new(piece));
        let rest = pieces.split_off(1);
        Like { first: pieces.pop().unwrap_or_default(), rest }
    }

    /// Whether the whole text matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let Some(end) = self.first.at_start(text) else { return false };
        let mut text = &text[end..];
        let Some((last, between)) = self.rest.split_last() else { return text.is_empty() };
        for piece in between {
            let Some(end) = piece.find(text) else { return false };
            text = &text[end..];
        }
        last.at_end(text)
    }

    /// What each match begins with, and whether that alone decides.
    pub(crate) fn prefix(&self) -> (String, bool) {
        let known = self.first.chars.iter().map_while(|c| *c).collect();
        let only = matches!(self.rest.as_slice(), [last] if last.chars.is_empty());
        (known, only && self.first.plain.is_some())
    }

    /// The text that whatever contains it matches, and nothing else, if there is one.
    pub(crate) fn only_part(&self) -> Option<&str> {
        match self.rest.as_slice() {
            [part, end] if self.first.chars.is_empty() && end.chars.is_empty() => {
                part.plain.as_deref()
            }
            _ => None,
        }
    }

    /// Texts that each match contains.
    pub(crate) fn parts(&self) -> Vec<&str> {
        let pieces = std::iter::once(&self.first).chain(&self.rest);
        pieces.filter_map(|piece| piece.plain.as_deref()).filter(|part| !part.is_empty()).collect()
    }

    /// The one text that matches, where there is but one.
    pub(crate) fn exact(&self) -> Option<&str> {
        if self.rest.is_empty() { self.first.plain.as_deref() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::Like;
    use proptest::prelude::*;

    /// By the definition, with no thought for speed.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['%', rest @ ..] => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            ['_', rest @ ..] => !text.is_empty() && naive(rest, &text[1..]),
            ['\\', c, rest @ ..] | [c, rest @ ..] => {
                text.first() == Some(c) && naive(rest, &text[1..])
            }
        }
    }

    #[test]
    fn patterns_match_whole_texts() {
        let cases = [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("a%", "a", true),
            ("%c", "abc", true),
            ("%b%", "abc", true),
            ("a%bc", "abc", true),
            ("ab%bc", "abc", false),
            ("_", "é", true),
            ("_", "", false),
            ("%_", "日本", true),
            ("100\\%", "100%", true),
            ("100\\%", "1000", false),
            ("\\", "\\", true),
            ("", "", true),
            ("%", "\n", true),
            ("A", "a", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(Like::new(pattern).matches(text), expected, "{text:?} like {pattern:?}");
        }
    }

    #[test]
    fn a_part_alone_decides_where_anything_may_stand_around_it() {
        let cases = [
            ("%b%", Some("b")),
            ("%b\\%%", Some("b%")),
            ("b%", None),
            ("%b", None),
            ("a%b%", None),
            ("%a%b%", None),
            ("%_b%", None),
        ];
        for (pattern, part) in cases {
            assert_eq!(Like::new(pattern).only_part(), part, "{pattern:?}");
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_defined(pattern in "[ab%_é\\\\]{0,7}", text in "[ab%_é\\\\]{0,8}") {
            let like = Like::new(&pattern);
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            let expected = naive(&chars(&pattern), &chars(&text));
            prop_assert_eq!(like.matches(&text), expected);
            let (prefix, decides) = like.prefix();
            prop_assert!(!expected || text.starts_with(&prefix));
            prop_assert!(!decides || expected == text.starts_with(&prefix));
            prop_assert!(like.exact().is_none_or(|only| expected == (text == only)));
        }
    }
}
