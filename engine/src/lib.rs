//! Engram's engine: persistent-memory pools that many processes map at once.
//!
//! The engine knows no Python, POSIX view, MPI or network. `ARCHITECTURE.md` shows where what is.

#![deny(missing_docs)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("Engram's engine is for 64-bit Linux: it needs OFD locks, fallocate and big maps");

mod attrs;
mod batch;
pub mod catalog;
mod checksum;
mod chunked;
#[cfg(feature = "faults")]
pub mod decode;
pub mod dtype;
pub mod error;
mod extent;
pub mod faults;
mod folder;
mod group;
mod id;
mod index;
mod layout;
mod lease;
pub mod media;
mod mirror;
mod name;
mod namespace;
mod object;
mod pool;
mod process;
mod protect;
mod published;
pub mod query;
mod realm;
mod rewrite;
mod rows;
mod salvage;
mod scope;
mod session;
mod slab;
mod threads;
mod transfer;
mod turn;
mod varint;
mod verify;

pub use attrs::Value;
pub use batch::{Batch, in_batch, when_ended};
pub use dtype::DType;
pub use error::{Error, Kind, Result};
pub use extent::{Allocation, Extent, View};
pub use group::GroupInfo;
pub use id::{Gid, Member, Oid};
pub use index::{AttributeGroupStats, IndexMode, IndexSettings, IndexStats, KeyStats, Policy};
pub use layout::{CHUNK_BYTES_MAX, Codec, Coder, Layout, chunks_for};
pub use lease::LockMode;
pub use namespace::{Flush, InPlace, Namespace, NamespaceInfo};
pub use object::{Class, INLINE_BYTES_MAX, NDIM_MAX, NewObject, ObjectInfo, Placement};
pub use pool::{CreateOptions, DeviceInfo, Durability, FORMAT, Pool};
pub use query::answer::{
    Answer, Consistency, Explanation, LeafExplanation, QueryOptions, RecordCounts,
    SegmentExplanation,
};
pub use realm::{
    CatalogUse, Found, Holders, LeaseInfo, Lock, Mode, Payload, ReaderInfo, Realm, Space,
};
pub use rewrite::{BackupReport, CompactReport};
pub use salvage::{Loss, Salvage, Witness};
pub use scope::Scope;
pub use slab::{Run, Runs, Slab};
pub use transfer::Moved;
pub use verify::Report;
