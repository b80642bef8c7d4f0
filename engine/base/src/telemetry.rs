//! Traces: what the engine does, told to a program in Rust that listens by the crate `tracing`.
//!
//! *Protocol.* With the feature `tracing`, `operation!` begins a span that ends where its value is
//! dropped, `event!` tells of one moment, and every `step!` of the protocols ([`crate::faults`]) is
//! an event too. Their target is `engram`, and `engram::step` for steps. A subscriber runs in the
//! middle of the operation, often below the engine's locks: it must not call the engine.
//!
//! *Invariant*: in a build without the feature the macros are nothing at all. Neither their fields
//! are evaluated, nor is a branch left: a put of 256 bytes costs what it did.
//!
//! Fields have paths, names, the text of queries and numbers, never values of arrays.

#[cfg(feature = "tracing")]
#[doc(hidden)]
pub use tracing;

/// An operation that nobody is told of. It does nothing when it is dropped.
#[cfg(not(feature = "tracing"))]
#[derive(Debug)]
pub struct Untold(());

/// Begins such an operation.
#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[inline]
pub fn untold() -> Untold {
    Untold(())
}

/// Begins an operation of a level, such as `DEBUG`: `let _operation = operation!(INFO, "verify",
/// pool = %path.display());`. It ends where the value is dropped.
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! operation {
    ($level:ident, $name:literal $(, $($fields:tt)+)?) => {
        $crate::telemetry::tracing::span!(
            target: "engram", $crate::telemetry::tracing::Level::$level, $name $(, $($fields)+)?
        )
        .entered()
    };
}

/// Nothing: this build tells of nothing.
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! operation {
    ($level:ident, $name:literal $(, $($fields:tt)+)?) => {
        $crate::telemetry::untold()
    };
}
pub use operation;

/// Tells of a moment: `event!(DEBUG, "the catalog grows", pages);`.
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! event {
    ($level:ident, $text:literal $(, $($fields:tt)+)?) => {
        $crate::telemetry::tracing::event!(
            target: "engram", $crate::telemetry::tracing::Level::$level,
            { $($($fields)+)? }, $text
        )
    };
}

/// Nothing: this build tells of nothing.
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! event {
    ($level:ident, $text:literal $(, $($fields:tt)+)?) => {};
}
pub use event;

/// Tells that a protocol has reached this step.
#[cfg(feature = "tracing")]
pub fn reached(name: &'static str) {
    tracing::trace!(target: "engram::step", step = name);
}

/// Nothing: this build tells of nothing.
#[cfg(not(feature = "tracing"))]
#[inline]
pub fn reached(_name: &'static str) {}
