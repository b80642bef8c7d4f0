//! What can go wrong in a cluster, by what the caller does about it.

use std::fmt;

use engram_base::error::{Error as StoreError, Kind};
use engram_wire::Error as WireError;

/// What a call of this crate gives.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. The message says what was wrong, with the value, and what to do.
#[derive(Clone, Debug)]
pub enum Error {
    /// A node is away, or does not answer: try again later.
    NodeAway(String),
    /// Parts are lost for good.
    PartsLost(String),
    /// This node is no member for the moment: what it holds can be used here, and nothing
    /// published.
    Fenced(String),
    /// The coordinator does not answer: what is open reads on, and nothing can be published.
    Coordinator(String),
    /// Somebody else has changed the name in between: look it up again.
    Conflict(String),
    /// There is no such name.
    NotFound(String),
    /// A value, box or option that does not fit.
    Argument(String),
    /// A version, format or environment that cannot take part.
    Unsupported(String),
    /// This user may not.
    Access(String),
    /// What lies there is not what was written.
    Corrupt(String),
    /// The node pool says so.
    Store(StoreError),
}

impl Error {
    /// The kind of the store's errors that it is nearest to.
    pub fn kind(&self) -> Kind {
        match self {
            Error::NodeAway(_) | Error::Fenced(_) | Error::Coordinator(_) | Error::Conflict(_) => {
                Kind::Busy
            }
            Error::PartsLost(_) | Error::NotFound(_) => Kind::NotFound,
            Error::Argument(_) => Kind::Argument,
            Error::Unsupported(_) => Kind::Unsupported,
            Error::Access(_) => Kind::Access,
            Error::Corrupt(_) => Kind::Corrupt,
            Error::Store(error) => error.kind(),
        }
    }

    /// The same error, whose message begins with more.
    pub(crate) fn preceded_by(self, more: &str) -> Error {
        self.told(|text| format!("{more}{text}"))
    }

    /// The same error, whose message ends with more.
    pub(crate) fn followed_by(self, more: &str) -> Error {
        self.told(|text| format!("{text}{more}"))
    }

    /// The same error with another message.
    fn told(mut self, message: impl FnOnce(&str) -> String) -> Error {
        match &mut self {
            Error::NodeAway(text)
            | Error::PartsLost(text)
            | Error::Fenced(text)
            | Error::Coordinator(text)
            | Error::Conflict(text)
            | Error::NotFound(text)
            | Error::Argument(text)
            | Error::Unsupported(text)
            | Error::Access(text)
            | Error::Corrupt(text) => *text = message(text),
            Error::Store(error) => {
                *error = StoreError::new(error.kind(), message(&error.to_string()));
            }
        }
        self
    }

    /// The error that a Python exception of this name is; none where it is none of Engram's.
    pub fn of_class(class: &str, text: String) -> Option<Error> {
        Some(match class {
            "NodeAwayError" => Error::NodeAway(text),
            "PartsLostError" => Error::PartsLost(text),
            "FencedError" => Error::Fenced(text),
            "CoordinatorError" => Error::Coordinator(text),
            "ConflictError" => Error::Conflict(text),
            _ => match Kind::ALL.into_iter().find(|kind| kind.class_name() == class)? {
                Kind::NotFound => Error::NotFound(text),
                Kind::Argument => Error::Argument(text),
                Kind::Access => Error::Access(text),
                kind => Error::Store(StoreError::new(kind, text)),
            },
        })
    }

    /// The name of the Python exception that it is.
    pub fn class_name(&self) -> &'static str {
        match self {
            Error::NodeAway(_) => "NodeAwayError",
            Error::PartsLost(_) => "PartsLostError",
            Error::Fenced(_) => "FencedError",
            Error::Coordinator(_) => "CoordinatorError",
            Error::Conflict(_) => "ConflictError",
            other => other.kind().class_name(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NodeAway(text)
            | Error::PartsLost(text)
            | Error::Fenced(text)
            | Error::Coordinator(text)
            | Error::Conflict(text)
            | Error::NotFound(text)
            | Error::Argument(text)
            | Error::Unsupported(text)
            | Error::Access(text)
            | Error::Corrupt(text) => f.write_str(text),
            Error::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        Error::Store(error)
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Error {
        let text = error.to_string();
        match error {
            WireError::Argument(_) | WireError::TooLarge(_) => Error::Argument(text),
            WireError::Tls(_) | WireError::Refused { status: 403, .. } => Error::Access(text),
            WireError::Refused { status: 404, .. } | WireError::Changed(_) => Error::NotFound(text),
            WireError::Os(_) => Error::Store(StoreError::new(Kind::Os, text)),
            _ => Error::NodeAway(text),
        }
    }
}
