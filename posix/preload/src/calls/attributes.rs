//! Extended attributes.

use std::ffi::{CStr, c_char, c_int, c_void};

use engram_fs::{Answer, Asked, At, Result};

use crate::calls::descriptors::refused;
use crate::calls::{of_node, offered};
use crate::descriptors::{self, Held};
use crate::inside::is_inside;
use crate::places::{Failing, by_path, inside};
use crate::real::{interpose, real};

const HERE: c_int = libc::AT_FDCWD;

fn held(fd: c_int) -> Option<Held> {
    if is_inside() { None } else { descriptors::get(fd) }
}

/// Asks for the node of a descriptor.
fn on_held<T: Failing>(
    held: &Held,
    act: impl FnOnce(Asked<'static>, At<'static>) -> Answer<T>,
) -> T {
    inside(|| {
        if held.description().flags() & libc::O_PATH != 0 {
            return Err(refused(libc::EBADF, "it was opened by O_PATH, for its name alone"));
        }
        act(held.asked()?, At::node(held.description().node())).map_err(of_node)
    })
}

/// The name of an attribute, as the program gave it.
unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a [u8]> {
    if name.is_null() {
        return Err(refused(libc::EFAULT, "an attribute has a name"));
    }
    // SAFETY: a string, as the program promises.
    Ok(unsafe { CStr::from_ptr(name) }.to_bytes())
}

/// Hands C what was found; its size alone, if that is what C asks for.
unsafe fn hand(found: &[u8], to: *mut c_void, size: usize) -> Result<isize> {
    if size == 0 {
        return Ok(found.len() as isize);
    }
    if found.len() > size {
        return Err(refused(libc::ERANGE, "there is no room for what was found"));
    }
    // SAFETY: there is room, as the program promises.
    unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), to.cast::<u8>(), found.len()) };
    Ok(found.len() as isize)
}

unsafe fn get(
    asked: Asked<'_>,
    at: At<'_>,
    name: *const c_char,
    room: (*mut c_void, usize),
    follow: bool,
) -> Answer<isize> {
    // SAFETY: as the program promises.
    unsafe { Ok(hand(&asked.get_xattr(at, name_of(name)?, follow)?, room.0, room.1)?) }
}

unsafe fn list(
    asked: Asked<'_>,
    at: At<'_>,
    room: (*mut c_char, usize),
    follow: bool,
) -> Answer<isize> {
    let mut names = Vec::new();
    for name in asked.list_xattr(at, follow)? {
        names.extend_from_slice(name.as_bytes());
        names.push(0);
    }
    // SAFETY: as the program promises.
    Ok(unsafe { hand(&names, room.0.cast::<c_void>(), room.1) }?)
}

unsafe fn set(
    asked: Asked<'_>,
    at: At<'_>,
    name: *const c_char,
    value: (*const c_void, usize),
    flags: c_int,
    follow: bool,
) -> Answer<c_int> {
    // SAFETY: as the program promises.
    unsafe {
        let value = match value.1 {
            0 => &[],
            size => std::slice::from_raw_parts(value.0.cast::<u8>(), size),
        };
        let set = asked.set_xattr(at, name_of(name)?, value, flags, follow);
        offered("setxattr", set).map(|()| 0)
    }
}

unsafe fn remove(asked: Asked<'_>, at: At<'_>, name: *const c_char, follow: bool) -> Answer<c_int> {
    // SAFETY: as the program promises.
    asked.remove_xattr(at, unsafe { name_of(name) }?, follow).map(|()| 0)
}

interpose! {
    /// An attribute's value.
    [getxattr](path: *const c_char, name: *const c_char, to: *mut c_void, size: usize) -> isize {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| get(asked, at, name, (to, size), true),
                |_, path| {
                    real!(
                        getxattr(path: *const c_char, name: *const c_char, to: *mut c_void,
                            size: usize) -> isize
                    )
                },
            )
        }
    }

    /// An attribute's value, of a link itself.
    [lgetxattr](path: *const c_char, name: *const c_char, to: *mut c_void, size: usize) -> isize {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| get(asked, at, name, (to, size), false),
                |_, path| {
                    real!(
                        lgetxattr(path: *const c_char, name: *const c_char, to: *mut c_void,
                            size: usize) -> isize
                    )
                },
            )
        }
    }

    /// An attribute's value, of an open file.
    [fgetxattr](fd: c_int, name: *const c_char, to: *mut c_void, size: usize) -> isize {
        let Some(held) = held(fd) else {
            return real!(
                fgetxattr(fd: c_int, name: *const c_char, to: *mut c_void, size: usize) -> isize
            );
        };
        // SAFETY: the program's promise.
        on_held(&held, |asked, at| unsafe { get(asked, at, name, (to, size), true) })
    }

    /// The names of attributes.
    [listxattr](path: *const c_char, to: *mut c_char, size: usize) -> isize {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| list(asked, at, (to, size), true),
                |_, path| {
                    real!(listxattr(path: *const c_char, to: *mut c_char, size: usize) -> isize)
                },
            )
        }
    }

    /// The names of attributes, of a link itself.
    [llistxattr](path: *const c_char, to: *mut c_char, size: usize) -> isize {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| list(asked, at, (to, size), false),
                |_, path| {
                    real!(llistxattr(path: *const c_char, to: *mut c_char, size: usize) -> isize)
                },
            )
        }
    }

    /// The names of attributes, of an open file.
    [flistxattr](fd: c_int, to: *mut c_char, size: usize) -> isize {
        let Some(held) = held(fd) else {
            return real!(flistxattr(fd: c_int, to: *mut c_char, size: usize) -> isize);
        };
        // SAFETY: the program's promise.
        on_held(&held, |asked, at| unsafe { list(asked, at, (to, size), true) })
    }

    /// Sets an attribute.
    [setxattr](
        path: *const c_char, name: *const c_char, from: *const c_void, size: usize, flags: c_int
    ) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| set(asked, at, name, (from, size), flags, true),
                |_, path| {
                    real!(
                        setxattr(path: *const c_char, name: *const c_char, from: *const c_void,
                            size: usize, flags: c_int) -> c_int
                    )
                },
            )
        }
    }

    /// Sets an attribute, of a link itself.
    [lsetxattr](
        path: *const c_char, name: *const c_char, from: *const c_void, size: usize, flags: c_int
    ) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| set(asked, at, name, (from, size), flags, false),
                |_, path| {
                    real!(
                        lsetxattr(path: *const c_char, name: *const c_char, from: *const c_void,
                            size: usize, flags: c_int) -> c_int
                    )
                },
            )
        }
    }

    /// Sets an attribute, of an open file.
    [fsetxattr](
        fd: c_int, name: *const c_char, from: *const c_void, size: usize, flags: c_int
    ) -> c_int {
        let Some(held) = held(fd) else {
            return real!(
                fsetxattr(fd: c_int, name: *const c_char, from: *const c_void, size: usize,
                    flags: c_int) -> c_int
            );
        };
        // SAFETY: the program's promise.
        on_held(&held, |asked, at| unsafe { set(asked, at, name, (from, size), flags, true) })
    }

    /// Removes an attribute.
    [removexattr](path: *const c_char, name: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| remove(asked, at, name, true),
                |_, path| real!(removexattr(path: *const c_char, name: *const c_char) -> c_int),
            )
        }
    }

    /// Removes an attribute, of a link itself.
    [lremovexattr](path: *const c_char, name: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| remove(asked, at, name, false),
                |_, path| real!(lremovexattr(path: *const c_char, name: *const c_char) -> c_int),
            )
        }
    }

    /// Removes an attribute, of an open file.
    [fremovexattr](fd: c_int, name: *const c_char) -> c_int {
        let Some(held) = held(fd) else {
            return real!(fremovexattr(fd: c_int, name: *const c_char) -> c_int);
        };
        // SAFETY: the program's promise.
        on_held(&held, |asked, at| unsafe { remove(asked, at, name, true) })
    }
}
