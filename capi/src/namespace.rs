//! Namespaces: named parts of a pool. One is opened as its root group.

use std::ffi::c_char;

use crate::error::{Status, guard};
use crate::group::Group;
use crate::list::{List, MemberKind};
use crate::pool::{FIRST, Pool};
use crate::raw;

/// Opens a namespace, and gives its root group. NULL is the name of the namespace that every pool
/// has from the beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_namespace_open(
    pool: *const Pool,
    name: *const c_char,
    root: *mut *mut Group,
) -> Status {
    guard(|| {
        let out = raw::out("root", root)?;
        let name = raw::text_or("name", name, FIRST)?;
        let namespace = raw::of("pool", pool)?.engine.namespace(name)?;
        let gid = namespace.root();
        out.set(raw::give(Group { namespace, gid }));
        Ok(())
    })
}

/// Makes a namespace with a POSIX mode such as 0770. Its values may take at most `size` bytes; 0
/// means as many as in the pool's first namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_namespace_create(
    pool: *const Pool,
    name: *const c_char,
    mode: u32,
    size: u64,
) -> Status {
    guard(|| {
        let size = (size > 0).then_some(size);
        let (pool, name) = (raw::of("pool", pool)?, raw::text("name", name)?);
        pool.engine.create_namespace(name, mode, None, size).map(drop)
    })
}

/// Lists the namespaces of a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_namespace_list(pool: *const Pool, names: *mut *mut List) -> Status {
    guard(|| {
        let out = raw::out("names", names)?;
        let mut list = List::default();
        for info in raw::of("pool", pool)?.engine.namespaces()? {
            list.push(info.name, 0, MemberKind::Group);
        }
        out.set(raw::give(list));
        Ok(())
    })
}

/// Removes a namespace with everything in it. If others use it, the status is `ENGRAM_STATUS_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_namespace_remove(pool: *const Pool, name: *const c_char) -> Status {
    guard(|| raw::of("pool", pool)?.engine.remove_namespace(raw::text("name", name)?))
}
