//! The index: Group Split and Merge over sealed column segments.

pub(crate) mod cell;
pub(crate) mod change;
pub(crate) mod column_key;
pub(crate) mod extract;
pub(crate) mod mode;
pub(crate) mod range;
pub(crate) mod segment;
pub(crate) mod settings;
pub(crate) mod zone;
pub(crate) mod zones;

pub(crate) use self::change::{UNINDEXED, touched};
pub use self::mode::IndexMode;
pub(crate) use self::mode::Touch;
pub use self::settings::{IndexSettings, Policy};
