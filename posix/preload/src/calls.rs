//! The functions that take the place of libc's: a file for each group of `symbols.toml`.
//!
//! Each is a few lines: whose the call is, what the file system is asked, and how C has the answer.
//! Callers are programs, so what C asks of them is taken for granted: strings end, and buffers are
//! as long as is said.

mod asynchronous;
mod attributes;
mod contents;
mod descriptors;
mod diagnostics;
mod folder;
mod folders;
mod forks;
mod fts;
mod libraries;
mod listed;
pub mod locks;
pub mod memory;
mod metadata;
mod names;
mod numbers;
pub mod pipes;
mod programs;
mod refused;
mod shells;
mod signals;
mod sockets;
mod spawned;
mod streams;
mod temporary;
mod threads;
mod transfer;
mod users;
mod walks;
mod wide_streams;

use engram_fs::{Answer, Errno, Unanswered};

pub use folder::whole_path;

/// A call that is refused, of a path or a descriptor of ours: the error, and what to do instead.
pub fn refused_call(name: &str, remedy: &str) -> Errno {
    crate::traced::refused(name, remedy);
    Errno::new(libc::ENOTSUP, format!("{name} is not answered here: {remedy}"))
}

/// Why a call on a node is refused. Nodes have no path that leads elsewhere, or is on its way.
fn of_node(why: Unanswered) -> Errno {
    match why {
        Unanswered::Refused(error) => error,
        Unanswered::Leaves(_) | Unanswered::Expected => {
            Errno::new(libc::EXDEV, "a node leads nowhere")
        }
    }
}

/// The answer to a call that asks for what is not offered here, which is noted: the error says what
/// to do instead.
fn offered<T>(name: &str, answer: Answer<T>) -> Answer<T> {
    if let Err(Unanswered::Refused(error)) = &answer
        && matches!(error.code, libc::EOPNOTSUPP | libc::ENXIO)
    {
        crate::traced::refused(name, &error.message);
    }
    answer
}
