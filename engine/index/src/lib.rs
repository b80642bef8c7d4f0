//! The index: Group Split and Merge over sealed column segments.
//!
//! The idea is GSM's (MOSIQS, IEEE Access 2021, doi 10.1109/ACCESS.2021.3087502): objects of one
//! kind carry the same keys, so keys are indexed together, in groups that split and merge. Here
//! each group of keys is a column group of sealed segments.
//!
//! *An index row is never a copy of attributes.* Records have them; the index says where it has
//! looked. So an object is at exactly one place:
//!
//! * in the **tail** ([`change`]): an OID, written in the object's own commit. Queries judge its
//!   record. When the tail is full, a transaction after a commit **seals** it ([`seal`]);
//! * at one live position of a **segment** ([`segment`]): columns over some thousand objects of one
//!   **family** ([`family`]), with **zones** ([`zone`]) that say what a query need not open;
//! * or it waits in the **queue** ([`queue`]), if it is of mode `async`; the index is out of date
//!   about it then. Objects of mode `none` are nowhere.
//!
//! Changing or deleting a sealed object marks its position dead ([`directory`]). Everything else
//! (uniting small segments, splitting families by value, taking splits back, regrouping keys,
//! dropping what is dead) is **maintenance** ([`maintain`]): steps between commits, each a
//! transaction that leaves a whole index, made from records alone ([`extract`]). How often, and for
//! which objects, **settings** say ([`settings`]), and queries may hint ([`hints`]).
//!
//! `verify` checks all of it against the records.

#![deny(missing_docs)]

pub(crate) mod change;
pub mod directory;
pub mod extract;
pub mod family;
pub mod hints;
pub mod maintain;
pub(crate) mod mode_cache;
pub mod names;
pub mod queue;
pub(crate) mod seal;
pub mod settings;
pub(crate) mod split;
pub(crate) mod state;
pub mod stats;
mod trigrams;

pub use self::change::{UNINDEXED, touched};
pub use self::settings::{IndexSettings, Policy};
pub use self::state::IndexState;
pub use self::stats::{AttributeGroupStats, IndexStats, KeyStats};
pub use engram_records::index_mode::IndexMode;
