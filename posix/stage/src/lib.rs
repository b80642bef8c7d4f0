//! Trees of files brought into a pool before a job, and safely back after it.
//!
//! A *stage* copies trees between the kernel's file systems and a namespace: *in* before a job,
//! *out* after it.
//!
//! This crate owns how that is done so that nothing is lost: what is copied, in which order and how
//! fast, how it is known to be right, and how a stage that died goes on.
//!
//! *Invariant*: under its own name a file is whole, on both sides. A copy is made under another
//! name, or in one commit; it takes its name when it has been looked at ([`Verify`]). What a stage
//! has done it finds again by what it has left: a copy in a pool keeps what its source was
//! ([`staged`]), a copy outside is told by the log of its stage. So to resume is to do the same
//! again: what is done is seen to be done.
//!
//! | module | what it offers |
//! |---|---|
//! | [`sum`] | sums of bytes: XXH3-128, SHA-256 |
//! | [`manifest`] | which files a stage has written, and what they sum up to |
//! | [`tree`] | trees of the kernel's file systems |
//! | [`pace`] | limits of bytes and files a second |
//! | [`options`] | how a stage is to be done |
//! | [`plan`] | what a stage is to do |
//! | [`progress`] | how far it is, and how it ended |
//! | [`status`] | stages by name: begun, watched, asked to stop, resumed by any process |
//! | [`slots`] | how stages of several jobs take turns |
//! | [`dropped`] | the room that a stage has in the pool, given back |
//! | [`staged`] | what a copy in a pool keeps of its source |
//! | [`inward`] | stage-in |
//! | `awaited` | what is on its way in, told to programs that open it |
//! | [`outward`] | stage-out |
//! | `log` | what a stage-out has done, so that it can be resumed |
//! | [`check`] | a folder outside, compared with its manifest |

#![deny(missing_docs)]

/// The steps of a stage at which a test lets it die.
pub const STEPS: [&str; 15] = [
    "stage.begun",
    "stage.part-copied",
    "stage.part-noted",
    "stage.given",
    "stage.taken",
    "stage.put",
    "stage.put-together",
    "stage.part-written",
    "stage.part-logged",
    "stage.copy-written",
    "stage.copy-looked-at",
    "stage.copy-named",
    "stage.copy-logged",
    "stage.manifest-written",
    "stage.manifest-named",
];

mod awaited;
pub mod check;
pub mod dropped;
mod failure;
pub mod inward;
mod log;
pub mod manifest;
pub mod options;
pub mod outward;
pub mod pace;
pub mod plan;
pub mod progress;
pub mod slots;
pub mod staged;
pub mod status;
pub mod sum;
pub mod tree;

pub use check::check;
pub use dropped::{Dropped, drop_stage};
pub use inward::{Source, stage_in};
pub use options::{Existing, Options, Order, Verify};
pub use outward::{Target, stage_out};
pub use pace::Pace;
pub use plan::{Plan, Work};
pub use progress::{Counts, Progress, Report, Trouble};
pub use status::{Asked, State, Told};
