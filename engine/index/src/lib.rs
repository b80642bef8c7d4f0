//! The index: Group Split and Merge over sealed column segments.
//!
//! The idea is GSM's (MOSIQS, IEEE Access 2021, doi 10.1109/ACCESS.2021.3087502): objects of one
//! kind carry the same keys, so keys are indexed together, in groups that split and merge. Here
//! each group of keys is a column group of sealed segments.
//!
//! This crate owns the rows of the index: the tail, the queue, the directory of segments, families
//! and settings. It works within the transaction that it is given, and knows neither queries
//! nor commits.
//!
//! *An index row is never a copy of attributes.* Records have them; the index says where it has
//! looked. So an object is at exactly one place:
//!
//! * in the **tail** ([`tail`]), from the object's own commit on. Queries judge its record, or
//!   cells that they keep of it. When the tail is full, a transaction after a commit **seals** it
//!   (`seal`); when nobody commits for a second, and when the last process closes the realm, what
//!   is left is sealed, too;
//! * at one live position of a **segment** ([`engram_columns::segment`]): columns over some
//!   thousand objects of one **family** ([`family`]), with **zones** ([`engram_columns::zone`])
//!   that say what a query need not open;
//! * or it waits in the **queue** ([`queue`]), if it is of mode `async`; the index is out of date
//!   about it then. Objects of mode `none` are nowhere.
//!
//! Changing or deleting a sealed object marks its position dead ([`directory`]). Everything else
//! (uniting small segments, splitting families by value, taking splits back, regrouping keys,
//! dropping what is dead) is **maintenance** ([`maintain`]): steps between commits, each a
//! transaction that leaves a whole index, made from records ([`extract`]), or from what segments
//! say of live objects. How often, and for which objects, **settings** say ([`settings`]), and
//! queries may hint ([`hints`]).
//!
//! *Invariant*: after each transaction an object of mode `sync` is in the tail or at one live
//! position of one segment, and never in both. One of mode `async` is so too, or it waits in the
//! queue, or its place is out of date and the queue says so. What the index has of an object that
//! is not in the queue is what its record says. `verify` checks all of it against the records.
//!
//! | module | what it offers |
//! |---|---|
//! | `change` | [`touched`]: what a commit notes of each object that it touches |
//! | [`tail`] | what is not sealed yet |
//! | `seal`, [`extract`] | records as rows of segments |
//! | [`directory`], [`family`] | the segments that there are, and the families they belong to |
//! | [`queue`], [`maintain`], `renew` | draining and maintenance, one step in a transaction |
//! | [`settings`], [`hints`] | what programs and queries wish for |
//! | `state` | [`IndexState`]: what one process remembers between its commits |
//! | [`stats`] | how the index lies, in figures |

#![deny(missing_docs)]

pub(crate) mod change;
pub mod directory;
pub mod extract;
pub mod family;
pub mod hints;
pub mod maintain;
pub(crate) mod mode_cache;
pub mod queue;
pub(crate) mod renew;
pub(crate) mod seal;
pub mod settings;
pub(crate) mod split;
pub(crate) mod state;
pub mod stats;
pub mod tail;

pub use self::change::{UNINDEXED, touched};
pub use self::settings::{IndexSettings, Policy};
pub use self::state::{IndexState, Waiting};
pub use self::stats::{AttributeGroupStats, IndexStats, KeyStats};
pub use engram_records::index_mode::IndexMode;
