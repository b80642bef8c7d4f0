//! The module `engram._engram`: the engine as Python sees it, one file per noun.
//!
//! These are natives for the package in `python/engram`, not an interface of their own: they take
//! a namespace and an id, validate, turn numpy's dtypes and arrays into the engine's and back, and
//! let go of the interpreter while the engine copies much or may wait. All handles, names and
//! defaults that users see are the package's. `unsafe` stands in `view.rs` alone.

mod array;
mod attrs;
mod batch;
mod blob;
mod chunks;
mod columns;
mod copying;
mod descriptor;
mod dtype;
mod error;
mod explanation;
mod field;
mod files;
mod group;
mod housekeeping;
mod index;
mod lock;
mod machine;
mod member;
mod namespace;
mod naming;
mod parts;
mod pool;
mod query;
mod salvage;
mod sharing;
mod stage;
mod strings;
mod value;
mod view;
mod watch;

use pyo3::prelude::*;

#[pymodule]
mod _engram {
    #[pymodule_export]
    use crate::array::{
        Allocation, ObjectInfo, Written, allocate, allocate_text, flush, object_info,
        open_for_write, put_array, read, scratch, view_of,
    };
    #[pymodule_export]
    use crate::attrs::{attr_delete, attr_get, attr_items, attr_names, attr_set};
    #[pymodule_export]
    use crate::batch::{Batch, in_batch, when_ended};
    #[pymodule_export]
    use crate::blob::{put_blob, read_blob};
    #[pymodule_export]
    use crate::chunks::{
        append, codec_name, load_box, reshape, store_box, stored_chunk, stored_nbytes,
    };
    #[pymodule_export]
    use crate::columns::{attribute_keys_of, columns, project};
    #[pymodule_export]
    use crate::copying::{Copying, Leaving};
    #[pymodule_export]
    use crate::error::kinds;
    #[pymodule_export]
    use crate::explanation::Explanation;
    #[pymodule_export]
    use crate::field::array_field;
    #[pymodule_export]
    use crate::files::{
        File, Posix, RangeLocks, create_file, follow, link, posix_of, serve_mount, symlink,
    };
    #[pymodule_export]
    use crate::group::{
        GroupInfo, check_deletable, contains, count, create_group, delete, find, group_info,
        is_read_only, members, names, path_of, rename, set_origin, set_read_only,
    };
    #[pymodule_export]
    use crate::housekeeping::{backup, compact, holders, upgrade};
    #[pymodule_export]
    use crate::index::{
        drain_queue, index_settings, index_stats, maintain, reindex, set_index_settings,
    };
    #[pymodule_export]
    use crate::lock::Lock;
    #[pymodule_export]
    use crate::machine::{Standing, memory_limits, standing};
    #[pymodule_export]
    use crate::namespace::{Namespace, Space};
    #[pymodule_export]
    use crate::naming::{named_in_vain, refuse_name};
    #[pymodule_export]
    use crate::parts::{
        array_of_packed, dtype_bytes, dtype_of, packed, packed_attrs, parts_table, unpacked,
    };
    #[pymodule_export]
    use crate::pool::{DeviceInfo, NamespaceInfo, Pool, adopt, chmod, destroy, verify};
    #[pymodule_export]
    use crate::query::{Query, handles, names_of, object_infos, paths_of};
    #[pymodule_export]
    use crate::salvage::Salvage;
    #[pymodule_export]
    use crate::sharing::{publish, publish_all, transfer, transfer_all};
    #[pymodule_export]
    use crate::stage::{
        Stage, StageReport, StageStatus, check_manifest, drop_stage, pace_stage, set_slots,
        stage_status, stages, stop_stage,
    };
    #[pymodule_export]
    use crate::view::View;
    #[pymodule_export]
    use crate::watch::Watch;

    /// The version of the package and of its engine, which `Cargo.toml` says alone.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
