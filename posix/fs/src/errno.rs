//! Errors, as system calls have them.

use engram::{Error, Kind};
use std::fmt;

/// A number that a system call fails with, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errno {
    /// The number, such as `libc::ENOENT`.
    pub code: i32,
    /// What was wrong, with the value, and what to do.
    pub message: String,
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    /// An error of this number.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Errno { code, message: message.into() }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Errno {}

/// By the engine's table of kinds.
impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Errno { code: error.kind().errno(), message: error.message().to_owned() }
    }
}

/// For callers that have kinds of errors, and no numbers.
impl From<Errno> for Error {
    fn from(error: Errno) -> Self {
        let kind = match error.code {
            libc::ENOENT | libc::ESTALE => Kind::NotFound,
            libc::EEXIST => Kind::Exists,
            libc::ENOSPC => Kind::PoolFull,
            libc::EACCES => Kind::Access,
            libc::EROFS => Kind::ReadOnly,
            libc::EBUSY => Kind::Busy,
            libc::EIO => Kind::Os,
            libc::EOPNOTSUPP | libc::EXDEV => Kind::Unsupported,
            libc::EILSEQ | libc::ENAMETOOLONG => Kind::InvalidName,
            _ => Kind::Argument,
        };
        Error::new(kind, error.message)
    }
}

/// Fails with a number and a sentence.
macro_rules! refuse {
    ($code:ident, $($message:tt)*) => {
        return Err($crate::errno::Errno::new(libc::$code, format!($($message)*)))
    };
}
pub(crate) use refuse;

/// Fails with a number and a sentence, where a path may also lead elsewhere.
macro_rules! refuse_at {
    ($code:ident, $($message:tt)*) => {
        return Err($crate::errno::Errno::new(libc::$code, format!($($message)*)).into())
    };
}
pub(crate) use refuse_at;

/// A name, or a path, as messages show it.
pub(crate) fn shown_name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The name as the engine has it: UTF-8, of at most 255 bytes.
pub(crate) fn name_of(name: &[u8]) -> Result<&str> {
    let Ok(text) = std::str::from_utf8(name) else {
        refuse!(
            EILSEQ,
            "the name {:?} is not UTF-8, as names in a pool are",
            name.escape_ascii().to_string()
        )
    };
    if text.len() > 255 {
        refuse!(ENAMETOOLONG, "the name {text:?} has {} bytes; at most 255 fit", text.len());
    }
    if text.is_empty() {
        refuse!(ENOENT, "a name has at least one character");
    }
    Ok(text)
}

/// The error of an operation that names an inode which is gone.
pub(crate) fn gone_is_stale(error: Error) -> Errno {
    match error.kind() {
        Kind::NotFound => Errno::new(libc::ESTALE, error.message()),
        _ => error.into(),
    }
}
