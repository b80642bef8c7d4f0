//! The C functions by which a cluster's library reaches the engine of its process.
//!
//! A function returns 0, or says in `Fault` what was wrong. Strings are not ended by NUL. Handles
//! may be used from any thread, and are given back by the function that says so, once.

use std::ffi::c_void;
use std::ptr;

use engram_base::error::{Error, Kind};

/// The version of this table: both sides have the same, or refuse each other.
pub const VERSION: u32 = 4;

/// The longest message of a fault, in bytes.
pub const FAULT_MOST: usize = 1000;

/// Bytes of the caller, which live through the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// The first.
    pub at: *const u8,
    /// How many.
    pub len: usize,
}

impl Bytes {
    /// These bytes.
    pub fn of(bytes: &[u8]) -> Bytes {
        Bytes { at: bytes.as_ptr(), len: bytes.len() }
    }

    /// The bytes as a slice.
    ///
    /// # Safety
    ///
    /// They live as long as the slice is used.
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes { at: ptr::null(), len: 0 }
    }
}

/// What was wrong.
#[repr(C)]
pub struct Fault {
    /// The number of the error's kind.
    pub kind: u32,
    /// How long the message is.
    pub len: usize,
    /// The message.
    pub text: [u8; FAULT_MOST],
}

impl Default for Fault {
    fn default() -> Fault {
        Fault { kind: 0, len: 0, text: [0; FAULT_MOST] }
    }
}

impl Fault {
    /// Says an error; a message that is too long is cut.
    pub fn say(&mut self, error: &Error) {
        let message = error.message();
        let mut len = message.len().min(FAULT_MOST);
        while !message.is_char_boundary(len) {
            len -= 1;
        }
        self.kind = error.kind() as u32;
        self.len = len;
        self.text[..len].copy_from_slice(&message.as_bytes()[..len]);
    }

    /// The error that was said.
    pub fn into_error(self) -> Error {
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u32 == self.kind);
        let text = String::from_utf8_lossy(&self.text[..self.len.min(FAULT_MOST)]).into_owned();
        Error::new(kind.unwrap_or(Kind::Os), text)
    }
}

/// What a pool is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Its uuid.
    pub uuid: [u8; 64],
    /// How long that is.
    pub uuid_len: usize,
    /// The format of its files.
    pub format: u32,
}

impl Default for Facts {
    fn default() -> Facts {
        Facts { uuid: [0; 64], uuid_len: 0, format: 0 }
    }
}

/// The room of a pool, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The most that its objects may take.
    pub size: u64,
    /// What they take.
    pub used: u64,
}

/// A place in a pool: a path below a group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The group's number; 0 for the root.
    pub group: u64,
    /// The path; empty for the group itself.
    pub path: Bytes,
}

/// An object that is to be made.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NewObject {
    /// Where.
    pub place: Place,
    /// What it is: the bytes of a [`Head`](crate::head::Head).
    pub head: Bytes,
    /// What a cluster keeps in its record; empty for nothing.
    pub mark: Bytes,
    /// How many bytes it has.
    pub nbytes: u64,
    /// Whether it replaces what is there.
    pub overwrite: bool,
}

/// A box of an array: so many numbers of each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Where it begins along each dimension.
    pub offsets: *const u64,
    /// How long it is.
    pub counts: *const u64,
    /// How many dimensions.
    pub ndim: usize,
    /// The number of the object that it is of; 0 for whichever has the name.
    pub of: u64,
}

/// An object that is looked at.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// What it is given back by.
    pub handle: *mut c_void,
    /// Its first byte; null where the value lies in pieces.
    pub at: *const u8,
    /// How many bytes.
    pub len: usize,
    /// A file in which they lie, open as long as it is looked at; -1: none.
    pub fd: i32,
    /// Where they begin in it.
    pub offset: u64,
    /// What it is: the bytes of a [`Head`](crate::head::Head).
    pub head: Bytes,
    /// What a cluster keeps in its record.
    pub mark: Bytes,
}

impl Default for Memory {
    fn default() -> Memory {
        let (handle, at, none) = (ptr::null_mut(), ptr::null(), Bytes::default());
        Memory { handle, at, len: 0, fd: -1, offset: 0, head: none, mark: none }
    }
}

/// Is told a member: the caller's own, the name, the head, and what a cluster keeps of it.
pub type Take = extern "C" fn(*mut c_void, Bytes, Bytes, Bytes);

/// Is told a hit: the caller's own, the path, the head, and the bytes that order it among others.
pub type TakeHit = extern "C" fn(*mut c_void, Bytes, Bytes, Bytes);

/// The functions.
#[repr(C)]
pub struct Table {
    /// [`VERSION`].
    pub version: u32,
    /// Opens a pool by its path.
    pub open: unsafe extern "C" fn(Bytes, *mut *mut c_void, *mut Fault) -> i32,
    /// Gives a pool back.
    pub close: unsafe extern "C" fn(*mut c_void),
    /// Tells what a pool is.
    pub facts: unsafe extern "C" fn(*mut c_void, *mut Facts, *mut Fault) -> i32,
    /// Tells what room a pool has.
    pub room: unsafe extern "C" fn(*mut c_void, *mut Room, *mut Fault) -> i32,
    /// Reserves space for an object: a writer, and its memory.
    pub begin: unsafe extern "C" fn(
        *mut c_void,
        *const NewObject,
        *mut *mut c_void,
        *mut *mut u8,
        *mut Fault,
    ) -> i32,
    /// Writes into a writer's memory, from an offset on.
    pub write: unsafe extern "C" fn(*mut c_void, usize, Bytes),
    /// Lets the object appear, and takes the writer back, whatever the end.
    pub finish: unsafe extern "C" fn(*mut c_void, *mut Fault) -> i32,
    /// Takes a writer back: the object does not appear.
    pub give_up: unsafe extern "C" fn(*mut c_void),
    /// Looks at an object; `NotFound` where it is not there. Of a group the head alone.
    pub look: unsafe extern "C" fn(*mut c_void, Place, *mut Memory, *mut Fault) -> i32,
    /// Takes back what was looked at.
    pub leave: unsafe extern "C" fn(*mut c_void),
    /// Copies a box of an array's value out; of a blob, a range of its bytes.
    pub load: unsafe extern "C" fn(*mut c_void, Place, Cut, *mut u8, usize, *mut Fault) -> i32,
    /// Writes a box of an array's value in place.
    pub store: unsafe extern "C" fn(*mut c_void, Place, Cut, Bytes, *mut Fault) -> i32,
    /// Tells up to so many members of a group after a name, in byte order.
    pub list: unsafe extern "C" fn(
        *mut c_void,
        Place,
        Bytes,
        usize,
        Take,
        *mut c_void,
        *mut Fault,
    ) -> i32,
    /// Makes a group, and those above it; its number. One that is there is given as it is.
    pub group: unsafe extern "C" fn(*mut c_void, Place, *mut u64, *mut Fault) -> i32,
    /// Gives a member another place; what has that already is an error.
    pub rename: unsafe extern "C" fn(*mut c_void, Place, Place, *mut Fault) -> i32,
    /// Sets attributes: those of a head.
    pub set_attrs: unsafe extern "C" fn(*mut c_void, Place, Bytes, *mut Fault) -> i32,
    /// Removes an attribute.
    pub drop_attr: unsafe extern "C" fn(*mut c_void, Place, Bytes, *mut Fault) -> i32,
    /// Removes a member, if it is there; a group with all that is in it.
    pub free: unsafe extern "C" fn(*mut c_void, Place, *mut Fault) -> i32,
    /// Removes a group, if nothing is in it.
    pub prune: unsafe extern "C" fn(*mut c_void, Place, *mut Fault) -> i32,
    /// Sums up an object whose record has a mark, and has nobody write it any more: the sum.
    pub seal: unsafe extern "C" fn(*mut c_void, Place, *mut u64, *mut Fault) -> i32,
    /// Tells what a query finds below these groups, in its order: the text, whether relative paths
    /// in it begin at the only group, whether what is published is meant alone, the groups, and how
    /// many.
    pub query: unsafe extern "C" fn(
        *mut c_void,
        Bytes,
        bool,
        bool,
        *const u64,
        usize,
        TakeHit,
        *mut c_void,
        *mut Fault,
    ) -> i32,
}
