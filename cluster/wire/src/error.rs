//! What can go wrong between two nodes, by what the caller does about it.

use std::fmt;

/// What went wrong. The message says what was wrong with which value, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Nobody answers at the address: try another holder, or later.
    Unreachable(String),
    /// Too little came in time: the other side is slow, stopped or cut off. Try another holder.
    Deadline(String),
    /// The other side has answered, and refuses.
    Refused {
        /// The status of its answer.
        status: u16,
        /// What it says, and who it is.
        message: String,
    },
    /// What lies there is not, or no longer, what was asked for: look it up again.
    Changed(String),
    /// More bytes than the receiver takes.
    TooLarge(String),
    /// The other side is not of this cluster, or a certificate or key cannot be used.
    Tls(String),
    /// The connection broke, or what came is no HTTP. What arrived is right as far as it goes.
    Broken(String),
    /// A value of the caller cannot be sent, or an option contradicts another.
    Argument(String),
    /// The caller's own progress function has ended it.
    Cancelled,
    /// The operating system refuses something on this side.
    Os(String),
}

/// What a call of this crate gives.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this side's operating system: `doing` is what was tried.
    pub(crate) fn os(doing: impl fmt::Display, error: &std::io::Error) -> Error {
        Error::Os(format!("{doing}: {error}"))
    }

    /// Whether the same may succeed at another holder, or later at this one.
    pub fn is_of_the_way(&self) -> bool {
        match self {
            Error::Unreachable(_) | Error::Deadline(_) | Error::Broken(_) => true,
            Error::Refused { status, .. } => *status >= 500,
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused { status, message } => write!(f, "{message} (status {status})"),
            Error::Cancelled => f.write_str("the caller has cancelled it"),
            Error::Unreachable(text)
            | Error::Deadline(text)
            | Error::Changed(text)
            | Error::TooLarge(text)
            | Error::Tls(text)
            | Error::Broken(text)
            | Error::Argument(text)
            | Error::Os(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
