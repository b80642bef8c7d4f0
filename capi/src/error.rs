//! Statuses, and the last error of each thread.

use std::ffi::{CStr, c_char, c_int};

use engram::{Kind, Result};
use engram_edge::error as edge;
pub(crate) use engram_edge::error::c_string;

/// The result of a call: 0, or the number of the kind of its error, by what the caller can do about
/// it.
///
/// The numbers are those of the engine's one table, which only ever grows at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// The call has succeeded.
    Ok = 0,
    /// No such pool, namespace, group, object or attribute.
    NotFound = 1,
    /// The name is taken.
    Exists = 2,
    /// The pool, its device or the memory limit has no room.
    PoolFull = 3,
    /// The kernel refuses this user.
    Access = 4,
    /// A write through a read-only handle.
    ReadOnly = 5,
    /// An ill-formed query.
    Query = 6,
    /// The bytes on the media are not those that were written.
    Corrupt = 7,
    /// Another process or thread holds it, or has changed it.
    Busy = 8,
    /// Not a pool; a pool whose creation was not finished, or of a newer version.
    Format = 9,
    /// The name is not valid.
    InvalidName = 10,
    /// A dtype, shape, value, pointer or handle is not valid here.
    Argument = 11,
    /// The filesystem or environment cannot carry a pool.
    Unsupported = 12,
    /// The operating system failed in a way that has no kind of its own, or the engine has a
    /// defect.
    Os = 13,
    /// The last sync of a commit failed, so the change may be there or not. Close the pool, run
    /// `engram verify`, check whether the change is there, and repeat it if it is not.
    CommitUncertain = 14,
    /// The pool's files were removed while this process had it open. Its values are lost when no
    /// process maps them any more.
    PoolGone = 15,
    /// Only its owner may enter the namespace, so nobody would read what is published there.
    ClosedNamespace = 16,
    /// A loss of power may have damaged the pool, and nobody has verified it since.
    Unverified = 17,
}

/// Each kind's status, in the order of their numbers: that it has the same is checked below.
const STATUSES: [Status; Kind::ALL.len()] = [
    Status::NotFound,
    Status::Exists,
    Status::PoolFull,
    Status::Access,
    Status::ReadOnly,
    Status::Query,
    Status::Corrupt,
    Status::Busy,
    Status::Format,
    Status::InvalidName,
    Status::Argument,
    Status::Unsupported,
    Status::Os,
    Status::CommitUncertain,
    Status::PoolGone,
    Status::ClosedNamespace,
    Status::Unverified,
];

const _: () = {
    let mut place = 0;
    while place < STATUSES.len() {
        assert!(STATUSES[place] as usize == Kind::ALL[place] as usize);
        place += 1;
    }
};

/// Each kind's name as C has it.
const NAMES: [&CStr; Kind::ALL.len()] = [
    c"NotFoundError",
    c"ExistsError",
    c"PoolFullError",
    c"AccessError",
    c"ReadOnlyError",
    c"QueryError",
    c"CorruptError",
    c"BusyError",
    c"FormatError",
    c"InvalidNameError",
    c"ArgumentError",
    c"UnsupportedError",
    c"EngramError",
    c"CommitUncertainError",
    c"PoolGoneError",
    c"ClosedNamespaceError",
    c"UnverifiedError",
];

/// Runs the body of a function: its error becomes the status and this thread's last error.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> Status {
    edge::guard(body).map_or(Status::Ok, |kind| STATUSES[kind as usize - 1])
}

fn kind(status: c_int) -> Option<Kind> {
    Kind::ALL.get(usize::try_from(status).ok()?.checked_sub(1)?).copied()
}

/// The message of this thread's last call that failed: what was wrong, with the value, and what to
/// do. It stays until the thread's next call that fails; "" if none has failed.
#[unsafe(no_mangle)]
pub extern "C" fn engram_last_error() -> *const c_char {
    edge::last()
}

/// The name of a status, which is the name of the Python exception; "OK" for 0.
#[unsafe(no_mangle)]
pub extern "C" fn engram_status_name(status: c_int) -> *const c_char {
    match (status, kind(status)) {
        (0, _) => c"OK".as_ptr(),
        (_, Some(kind)) => NAMES[kind as usize - 1].as_ptr(),
        (_, None) => c"unknown".as_ptr(),
    }
}

/// The errno that is nearest to a status, such as `ENOENT` for `ENGRAM_STATUS_NOT_FOUND`; 0 for 0.
#[unsafe(no_mangle)]
pub extern "C" fn engram_status_errno(status: c_int) -> c_int {
    match (status, kind(status)) {
        (0, _) => 0,
        (_, Some(kind)) => kind.errno(),
        (_, None) => Kind::Argument.errno(),
    }
}

/// The library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn engram_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Frees a string that a function has given to be freed. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_string_free(string: *mut c_char) {
    crate::raw::take_string(string);
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString};

    use engram::{Error, Kind};

    use super::{Status, engram_last_error, engram_status_name, guard};

    fn last_error() -> String {
        // SAFETY: a string that this thread's next failing call changes.
        unsafe { CStr::from_ptr(engram_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_ends_at_the_edge() {
        assert_eq!(guard(|| panic!("by {}", "design")), Status::Os);
        assert!(last_error().contains("by design") && last_error().contains("defect"));
        assert_eq!(guard(|| panic!("plainly")), Status::Os);
        assert!(last_error().contains("plainly"));
    }

    #[test]
    fn each_kind_has_its_name_and_a_message_keeps_what_follows_a_nul() {
        for kind in Kind::ALL {
            let status = guard(|| Err(Error::new(kind, "one\0two")));
            assert_eq!((status as u8, last_error().as_str()), (kind as u8, "one?two"));
            // SAFETY: a string that stays.
            let name = unsafe { CStr::from_ptr(engram_status_name(status as i32)) };
            assert_eq!(name.to_owned(), CString::new(kind.class_name()).unwrap());
        }
    }
}
