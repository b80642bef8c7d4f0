//! The index: Group Split and Merge over sealed column segments.

pub(crate) mod cell;
pub(crate) mod change;
pub(crate) mod column_key;
pub(crate) mod directory;
pub(crate) mod extract;
pub(crate) mod family;
pub(crate) mod look;
pub(crate) mod maintain;
pub(crate) mod mode;
pub(crate) mod names;
pub(crate) mod queue;
pub(crate) mod range;
pub(crate) mod runs;
pub(crate) mod seal;
pub(crate) mod segment;
pub(crate) mod settings;
pub(crate) mod split;
pub(crate) mod state;
pub(crate) mod stats;
mod trigrams;
pub(crate) mod zone;
pub(crate) mod zones;

pub(crate) use self::change::{UNINDEXED, touched};
pub use self::mode::IndexMode;
pub(crate) use self::mode::Touch;
pub use self::settings::{IndexSettings, Policy};
pub(crate) use self::state::IndexState;
pub use self::stats::{AttributeGroupStats, IndexStats, KeyStats};
