//! The one error type, and the one table of kinds that every layer maps from.
//!
//! A kind says what the caller can do about it. Kinds are numbered, append-only: the Python class,
//! the CLI's exit code, the C code and the errno follow from the number (`docs/format.md`). A
//! message says what was wrong, with the value, and what to do next.

use std::fmt;

/// What went wrong, by what the caller can do about it. The numbers are part of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// No such pool, namespace, group, object or attribute.
    NotFound = 1,
    /// The name is taken.
    Exists = 2,
    /// The pool, its device or the memory limit has no room.
    PoolFull = 3,
    /// The kernel refuses this user.
    Access = 4,
    /// A write through a read-only handle.
    ReadOnly = 5,
    /// An ill-formed query.
    Query = 6,
    /// What is on media is not what was written.
    Corrupt = 7,
    /// Somebody else holds or changed it.
    Busy = 8,
    /// Not a pool, half-created, newer; a file of unknown or broken format.
    Format = 9,
    /// A name that cannot be a name.
    InvalidName = 10,
    /// A dtype, shape, value or handle that does not fit.
    Argument = 11,
    /// A filesystem or environment that cannot carry a pool.
    Unsupported = 12,
    /// The operating system failed in a way that has no kind of its own.
    Os = 13,
    /// A commit whose last sync failed: what it changed may be durable, or not.
    CommitUncertain = 14,
    /// The pool's files were removed under a process that has it open.
    PoolGone = 15,
    /// Nobody but its owner may enter the namespace, so nobody would read what is published there.
    ClosedNamespace = 16,
    /// A loss of power may have damaged the pool, and nobody has verified it since.
    Unverified = 17,
}

impl Kind {
    /// Every kind, in the order of its number.
    pub const ALL: [Kind; 17] = [
        Kind::NotFound,
        Kind::Exists,
        Kind::PoolFull,
        Kind::Access,
        Kind::ReadOnly,
        Kind::Query,
        Kind::Corrupt,
        Kind::Busy,
        Kind::Format,
        Kind::InvalidName,
        Kind::Argument,
        Kind::Unsupported,
        Kind::Os,
        Kind::CommitUncertain,
        Kind::PoolGone,
        Kind::ClosedNamespace,
        Kind::Unverified,
    ];

    /// The Python exception's name.
    pub const fn class_name(self) -> &'static str {
        match self {
            Kind::NotFound => "NotFoundError",
            Kind::Exists => "ExistsError",
            Kind::PoolFull => "PoolFullError",
            Kind::Access => "AccessError",
            Kind::ReadOnly => "ReadOnlyError",
            Kind::Query => "QueryError",
            Kind::Corrupt => "CorruptError",
            Kind::Busy => "BusyError",
            Kind::Format => "FormatError",
            Kind::InvalidName => "InvalidNameError",
            Kind::Argument => "ArgumentError",
            Kind::Unsupported => "UnsupportedError",
            Kind::Os => "EngramError",
            Kind::CommitUncertain => "CommitUncertainError",
            Kind::PoolGone => "PoolGoneError",
            Kind::ClosedNamespace => "ClosedNamespaceError",
            Kind::Unverified => "UnverifiedError",
        }
    }

    /// The command line's exit code: from 10, in the order of the numbers.
    pub const fn exit_code(self) -> u8 {
        9 + self as u8
    }

    /// The nearest errno, for callers that speak nothing else.
    pub const fn errno(self) -> i32 {
        match self {
            Kind::NotFound => libc::ENOENT,
            Kind::Exists => libc::EEXIST,
            Kind::PoolFull => libc::ENOSPC,
            Kind::Access | Kind::ClosedNamespace => libc::EACCES,
            Kind::ReadOnly => libc::EROFS,
            Kind::Query | Kind::InvalidName | Kind::Argument => libc::EINVAL,
            Kind::Corrupt | Kind::Os | Kind::CommitUncertain | Kind::Unverified => libc::EIO,
            Kind::Busy => libc::EBUSY,
            Kind::Format => libc::ENOEXEC,
            Kind::Unsupported => libc::EOPNOTSUPP,
            Kind::PoolGone => libc::ESTALE,
        }
    }
}

/// An error: its kind and its message. On an error the realm is as it was before the call.
///
/// Two kinds of call are exceptions. After [`Kind::CommitUncertain`] the change is there as a whole
/// or not at all, and only a look after `verify` tells which. A call that says so takes several
/// commits, and those that were made stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    message: String,
    /// What it relied on had moved: looked for again, it may well succeed.
    moved: bool,
}

/// The engine's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), moved: false }
    }

    /// The refusal of a change that relied on a look which no longer holds, since something has
    /// moved between scopes. The changer looks again; it comes out only if that goes on and on.
    pub fn moved() -> Self {
        let message = "it was to be changed where it had just been found, and members moved from \
                       one scope to another each time: try again";
        Error { moved: true, ..Self::new(Kind::Busy, message) }
    }

    /// The same error; of what is not where a look has found it, one that says to look again.
    #[must_use]
    pub fn gone_is_moved(self) -> Self {
        Error { moved: self.moved || self.kind == Kind::NotFound, ..self }
    }

    /// The same error; of a commit that is uncertain, one that says no more than that a sync
    /// failed: for a commit of which the caller knows that nothing will be seen.
    #[must_use]
    pub fn certain(self) -> Self {
        let kind = if self.kind == Kind::CommitUncertain { Kind::Os } else { self.kind };
        Error { kind, ..self }
    }

    /// Whether it is such a refusal.
    pub fn is_moved(&self) -> bool {
        self.moved
    }

    /// The operating system's refusal of `what`, with the kind that its errno asks for.
    pub fn os(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(libc::ENOENT) => Kind::NotFound,
            Some(libc::EEXIST) => Kind::Exists,
            Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM) => Kind::PoolFull,
            Some(libc::EACCES | libc::EPERM) => Kind::Access,
            Some(libc::EROFS) => Kind::ReadOnly,
            Some(libc::EOPNOTSUPP) => Kind::Unsupported,
            _ => Kind::Os,
        };
        Error::new(kind, format!("{what}: {error}"))
    }

    /// The last failed system call's refusal of `what`.
    pub fn last_os(what: impl fmt::Display) -> Self {
        Self::os(what, &std::io::Error::last_os_error())
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What was wrong, with the value, and what to do next.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same kind, with `context` before the message.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        Error { message: format!("{context}: {}", self.message), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Shorthand: `fail!(Busy, "… {value}")` returns the error.
#[macro_export]
macro_rules! fail {
    ($kind:ident, $($arg:tt)*) => {
        return Err($crate::error::Error::new($crate::error::Kind::$kind, format!($($arg)*)))
    };
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn kinds_are_numbered_from_one_without_gaps() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place + 1);
            assert_eq!(kind.exit_code() as usize, place + 10);
        }
    }
}
