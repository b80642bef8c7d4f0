//! Engram: arrays in memory that many processes map at once, and that outlive their program.
//!
//! This crate is the facade of the engine: it names what a user needs, and holds no code of its
//! own. `ARCHITECTURE.md` shows the crates below it and what each may use.
//!
//! # Building
//!
//! LMDB's C is built to wait for its locks, and to know processes, by functions of this engine. So
//! a process does not sleep beside a free lock when another is killed, and two copies of the engine
//! can share a process. A crate that depends on this one says so in its own `.cargo/config.toml`;
//! without that the build stops and names the flags:
//!
//! ```toml
//! [env]
//! HOST_CFLAGS = """-Dpthread_mutex_lock=engram_mutex_lock -Dgetpid=engram_getpid \
//!     -Dfcntl=engram_fcntl"""
//! TARGET_CFLAGS = """-Dpthread_mutex_lock=engram_mutex_lock -Dgetpid=engram_getpid \
//!     -Dfcntl=engram_fcntl"""
//! ```
//!
//! What lies behind a handle is for the engine's own crates:
//!
//! ```compile_fail,E0599
//! fn behind(realm: &engram::Realm) {
//!     let _ = realm.core();
//! }
//! ```
//!
//! ```
//! fn handle(realm: &engram::Realm) {
//!     let _ = realm.root();
//! }
//! ```
//!
//! # A pool, an array, and a view of it
//!
//! ```
//! use engram::{
//!     Class, CreateOptions, DType, Layout, Member, Mode, NewObject, Payload, Placement, Pool,
//! };
//!
//! # fn main() -> engram::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = &folder.path().join("pool");
//! // 16 MiB; `force` admits filesystems that are not known to carry a pool.
//! let options = CreateOptions { size: 16 << 20, force: true, ..CreateOptions::default() };
//! let pool = Pool::create(path, &options)?;
//! let all = pool.namespace("default")?;
//!
//! // 1000 numbers of float64, little-endian, in one call: the array is there whole, or not at all.
//! let temperature = NewObject {
//!     class: Class::Array,
//!     dtype: DType::scalar(b'f', b'<', 8),
//!     shape: vec![1000],
//!     dims: Some(vec!["x".to_owned()]),
//!     attrs: Vec::new(),
//!     origin: Vec::new(),
//!     properties: Vec::new(),
//!     layout: Layout::default(),
//! };
//! let bytes: Vec<u8> = (0..1000).flat_map(|x| f64::from(x).to_le_bytes()).collect();
//! let oid = all.put(all.root(), "run/T", &temperature, &bytes, Placement::default())?;
//! pool.close();
//!
//! // Later, in any process: the value is mapped, not copied.
//! let pool = Pool::open(path, Mode::Read, true)?;
//! let all = pool.namespace("default")?;
//! assert_eq!(all.lookup(all.root(), "run/T")?, Some(Member::Object(oid)));
//! let Payload::Extent(view) = all.view(oid, false)? else { panic!("8000 bytes are not inline") };
//! assert_eq!(view.len(), 8000);
//! // SAFETY: the view keeps its memory mapped, and nobody writes to this array meanwhile.
//! let seen = unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) };
//! assert_eq!(seen, bytes);
//! # Ok(())
//! # }
//! ```
//!
//! # Many objects in one commit, and those that a query finds
//!
//! ```
//! use engram::{CreateOptions, DType, NewObject, Placement, Pool, Value, query};
//!
//! # fn main() -> engram::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = &folder.path().join("pool");
//! # let options = CreateOptions { size: 16 << 20, force: true, ..CreateOptions::default() };
//! let pool = Pool::create(path, &options)?;
//! let all = pool.namespace("default")?;
//!
//! let batch = all.batch()?;
//! for orbit in 0..10_i64 {
//!     let number = Value {
//!         dtype: DType::scalar(b'i', b'<', 8),
//!         shape: Vec::new(),
//!         data: orbit.to_le_bytes().to_vec(),
//!     };
//!     let attrs = vec![("orbit".to_owned(), number)];
//!     let log = NewObject { attrs, ..NewObject::blob() };
//!     all.put(all.root(), &format!("log-{orbit}"), &log, b"ready", Placement::default())?;
//! }
//! batch.commit()?; // all of them, or, on an error, none
//!
//! let late = query::parse("orbit >= 8")?;
//! let found = all.query_paths(&late, &query::answer::QueryOptions::default())?;
//! assert_eq!(found, ["log-8", "log-9"]);
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("Engram's engine is for 64-bit Linux: it needs OFD locks, fallocate and big maps");

pub use engram_base::dtype::{self, DType};
pub use engram_base::error::{self, Error, Kind, Result};
pub use engram_base::faults;
pub use engram_base::guest::become_one as become_guest;
pub use engram_base::id::{Gid, Member, Oid};
pub use engram_base::process;
pub use engram_base::scope::Scope;
pub use engram_base::slab::{Run, Runs, Slab};
pub use engram_base::telemetry;
pub use engram_catalog as catalog;
pub use engram_files::pool_file::FORMAT;
pub use engram_index::{AttributeGroupStats, IndexSettings, IndexStats, KeyStats, Policy};
pub use engram_media as media;
pub use engram_ops::group::{Clash, GroupInfo, Permit};
pub use engram_ops::group_times::GroupTimes;
pub use engram_pool::namespace::{
    Allocation, CopiedIds, Copier, CopyOptions, CopyPlan, Departure, Flush, InPlace, Namespace,
    NamespaceInfo, WatchEnd, Watcher, totals_of_several,
};
pub use engram_pool::transfer::Moved;
pub use engram_pool::{CreateOptions, DeviceInfo, Durability, Pool};
pub use engram_query as query;
pub use engram_query::answer::{
    Answer, Consistency, Explanation, Figure, LeafExplanation, QueryOptions, RecordCounts,
    SegmentExplanation, TotalsAnswer,
};
pub use engram_realm::batch::{Batch, in_batch, when_ended};
pub use engram_realm::fork::{
    around as around_fork, keep_leases, leave_leases, watch as watch_forks,
};
pub use engram_realm::view::{RealmAllocation, View};
pub use engram_realm::{
    CatalogUse, File, FilePiece, FileSegment, Found, Holders, LeaseInfo, Lock, MaintenanceFailure,
    MaintenanceTask, Mode, NamedFile, NamesSeen, Payload, ReaderInfo, Realm, Seek, Sighting, Space,
    StoredChunk,
};
pub use engram_records::attrs::Value;
pub use engram_records::extent::Extent;
pub use engram_records::index_mode::IndexMode;
pub use engram_records::layout::{CHUNK_BYTES_MAX, Codec, Coder, Layout, chunks_for};
pub use engram_records::object::{
    Class, INLINE_BYTES_MAX, NDIM_MAX, NewObject, ObjectInfo, Placement,
};
pub use engram_records::properties::Properties;
pub use engram_records::segmented::{FILE_BYTES_MAX, HeadFacts};
pub use engram_space::lease::{LockMode, LockedRange, RangeLocks};
#[cfg(feature = "faults")]
pub use engram_tools::decode;
pub use engram_tools::rewrite::{
    BackupOptions, BackupReport, CompactReport, LeftOut, UpgradeReport, backup, backup_with,
    compact, compact_with, upgrade,
};
pub use engram_tools::salvage::{Loss, Salvage, Witness};
pub use engram_tools::verify::{Report, verify, verify_with};
