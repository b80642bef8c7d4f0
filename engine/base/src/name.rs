//! Names and paths: what a component may be, validated once and carried as a type.
//!
//! A path is split at `/`; a leading `/` is the namespace's root. A component is 1 to 255 bytes of
//! UTF-8 without NUL, and not `.` or `..`. Attribute keys and dimension names follow the same
//! bounds but may hold a `/`, because files carry such names.

use crate::error::{Error, Kind, Result};
use crate::fail;

/// The longest component, attribute key or dimension name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 255;

/// One component of a path, known to be valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a>(&'a str);

impl<'a> Name<'a> {
    /// The component itself.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Takes one component.
    pub fn new(text: &'a str) -> Result<Self> {
        let why = match text {
            "" => "is empty",
            "." | ".." => "is reserved",
            _ if text.len() > NAME_BYTES_MAX => {
                fail!(
                    InvalidName,
                    "name {:?}… has {} bytes of UTF-8; at most {NAME_BYTES_MAX} fit: shorten it",
                    text.chars().take(32).collect::<String>(),
                    text.len()
                )
            }
            _ if text.contains('\0') => "has a NUL character",
            _ if text.contains('/') => "has a '/'",
            _ => return Ok(Name(text)),
        };
        fail!(InvalidName, "name {text:?} {why}: choose another")
    }
}

/// A path, split and validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    /// Whether it began with `/`, so that it starts at the namespace's root.
    pub absolute: bool,
    /// The components before the last.
    pub parents: Vec<Name<'a>>,
    /// The last component.
    pub last: Name<'a>,
}

impl<'a> Path<'a> {
    /// Splits a path that names a member.
    pub fn new(text: &'a str) -> Result<Self> {
        let (absolute, relative) = match text.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let within = |e: Error| {
            if relative.contains('/') { e.context(format!("path {text:?}")) } else { e }
        };
        let (before, last) = match relative.rsplit_once('/') {
            Some((before, last)) => (Some(before), last),
            None => (None, relative),
        };
        let parents = match before {
            None => Vec::new(),
            Some(before) => {
                before.split('/').map(Name::new).collect::<Result<Vec<_>>>().map_err(within)?
            }
        };
        Ok(Path { absolute, parents, last: Name::new(last).map_err(within)? })
    }
}

/// Checks an attribute key or a dimension name; `what` says which it is.
pub fn check_key(what: &str, text: &str) -> Result<()> {
    if text.is_empty() || text.contains('\0') || text.len() > NAME_BYTES_MAX {
        return Err(Error::new(
            Kind::InvalidName,
            format!(
                "{what} {:?} must be 1 to {NAME_BYTES_MAX} bytes of UTF-8 without NUL, it has {}",
                text.chars().take(32).collect::<String>(),
                text.len()
            ),
        ));
    }
    Ok(())
}

/// Checks a namespace's name: a component that can also be a plain folder name.
pub fn check_namespace(text: &str) -> Result<()> {
    let name = Name::new(text)?;
    if name.as_str().starts_with('.') || name.as_str().len() > 128 {
        fail!(
            InvalidName,
            "namespace name {text:?} must not begin with '.' and must have at most 128 bytes"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Path, check_namespace};
    use crate::error::Kind;

    #[test]
    fn bad_components_are_refused_with_the_name() {
        for bad in ["", ".", "..", "a//b", "a/../b", "a/", "nul\0", "//"] {
            let error = Path::new(bad).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidName, "{bad:?}");
        }
        assert!(Path::new(&"é".repeat(128)).is_err());
        assert!(Path::new(&"é".repeat(127)).is_ok());
        assert!(check_namespace(".hidden").is_err());
    }

    #[test]
    fn a_path_splits_at_slashes() {
        let path = Path::new("/run-17/step/T").unwrap();
        assert!(path.absolute);
        assert_eq!(path.parents.len(), 2);
        assert_eq!(path.last.as_str(), "T");
    }
}
