//! A node pool, as the library of a cluster has it open: objects and groups by their places.
//!
//! Everything passes through the table of C functions to the engine of this process. Where a method
//! says nothing else, its error is the engine's own.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use engram_base::checksum::RunningChecksum;
use engram_base::error::{Error, Kind, Result};

use crate::head::Head;
use crate::table::{self, Bytes, Cut, Fault, Memory, NewObject, Room, Table, VERSION};

/// What is looked at at once.
const PIECE: usize = 256 << 10;

/// What a node pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its uuid.
    pub uuid: String,
    /// The format of its files.
    pub format: u32,
}

/// A place in a pool: a path below a group.
#[derive(Clone, Copy, Debug)]
pub struct Place<'p> {
    /// The group's number; 0 for the root.
    pub group: u64,
    /// The path; empty for the group itself.
    pub path: &'p str,
}

impl<'p> Place<'p> {
    /// A path from the root.
    pub fn at(path: &'p str) -> Place<'p> {
        Place { group: 0, path }
    }

    fn raw(self) -> table::Place {
        table::Place { group: self.group, path: Bytes::of(self.path.as_bytes()) }
    }
}

/// A member of a group, or what a query has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its name; the path of what was found.
    pub name: String,
    /// What it is.
    pub head: Vec<u8>,
    /// What a cluster keeps of it; of what was found, the bytes that order it among others.
    pub more: Vec<u8>,
}

/// A box of an array.
#[derive(Clone, Copy, Debug)]
pub struct BoxOf<'b> {
    /// Where it begins along each dimension.
    pub offsets: &'b [u64],
    /// How long it is.
    pub counts: &'b [u64],
    /// The number of the object that it is of, where only that one is meant.
    pub of: Option<u64>,
}

impl BoxOf<'_> {
    fn raw(&self) -> Result<Cut> {
        if self.offsets.len() != self.counts.len() {
            let why = format!("{:?} and {:?} are no box", self.offsets, self.counts);
            return Err(Error::new(Kind::Argument, why));
        }
        let (offsets, counts) = (self.offsets.as_ptr(), self.counts.as_ptr());
        let of = self.of.unwrap_or(0);
        Ok(Cut { offsets, counts, ndim: self.counts.len(), of })
    }
}

/// A node pool, which is open as long as this is.
#[derive(Clone)]
pub struct NodePool {
    opened: Arc<Opened>,
}

struct Opened {
    table: &'static Table,
    pool: *mut c_void,
}

// SAFETY: the table's functions may be called from any thread, and from several at once.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: it was opened by this table, and nothing that it gave out outlives it.
        unsafe { (self.table.close)(self.pool) }
    }
}

/// Calls a function of the table, and takes its fault.
fn call(call: impl FnOnce(&mut Fault) -> i32) -> Result<()> {
    let mut fault = Fault::default();
    if call(&mut fault) == 0 { Ok(()) } else { Err(fault.into_error()) }
}

extern "C" fn take(into: *mut c_void, name: Bytes, head: Bytes, more: Bytes) {
    // SAFETY: it is the vector of `listed`, and the bytes live through this call.
    let (all, name, head, more) = unsafe {
        (&mut *into.cast::<Vec<Listed>>(), name.as_slice(), head.as_slice(), more.as_slice())
    };
    let name = String::from_utf8_lossy(name).into_owned();
    all.push(Listed { name, head: head.to_vec(), more: more.to_vec() });
}

fn listed(tell: impl FnOnce(*mut c_void, &mut Fault) -> i32) -> Result<Vec<Listed>> {
    let mut all: Vec<Listed> = Vec::new();
    call(|fault| tell((&raw mut all).cast(), fault))?;
    Ok(all)
}

impl NodePool {
    /// Opens a node pool, by the engine of this process.
    pub fn open(table: &'static Table, pool: &Path) -> Result<NodePool> {
        if table.version != VERSION {
            return Err(Error::new(
                Kind::Unsupported,
                format!(
                    "the engine speaks version {} of node pools, the cluster's library {VERSION}: \
                     install both of one version of Engram",
                    table.version
                ),
            ));
        }
        let (path, mut opened) = (pool.as_os_str().as_encoded_bytes(), ptr::null_mut());
        // SAFETY: the path is read in the call, and the pool is given back by `Opened`.
        call(|fault| unsafe { (table.open)(Bytes::of(path), &raw mut opened, fault) })?;
        Ok(NodePool { opened: Arc::new(Opened { table, pool: opened }) })
    }

    /// What the pool is.
    pub fn facts(&self) -> Result<Facts> {
        let mut facts = table::Facts::default();
        let Opened { table, pool } = &*self.opened;
        // SAFETY: the pool is open.
        call(|fault| unsafe { (table.facts)(*pool, &raw mut facts, fault) })?;
        let uuid = String::from_utf8_lossy(&facts.uuid[..facts.uuid_len.min(64)]).into_owned();
        Ok(Facts { uuid, format: facts.format })
    }

    /// What room the pool has.
    pub fn room(&self) -> Result<Room> {
        let mut room = Room::default();
        let Opened { table, pool } = &*self.opened;
        // SAFETY: the pool is open.
        call(|fault| unsafe { (table.room)(*pool, &raw mut room, fault) })?;
        Ok(room)
    }

    /// Reserves space for an object; without room it fails before any byte moves.
    pub fn begin(&self, place: Place<'_>, new: &New<'_>) -> Result<Writer> {
        let object = NewObject {
            place: place.raw(),
            head: Bytes::of(new.head),
            mark: Bytes::of(new.mark),
            nbytes: new.nbytes,
            overwrite: new.overwrite,
        };
        let (mut writer, mut memory) = (ptr::null_mut(), ptr::null_mut());
        let Opened { table, pool } = &*self.opened;
        // SAFETY: what the object refers to lives through the call; the writer is given back.
        call(|fault| unsafe {
            (table.begin)(*pool, &raw const object, &raw mut writer, &raw mut memory, fault)
        })?;
        let (opened, nbytes) = (Arc::clone(&self.opened), new.nbytes as usize);
        Ok(Writer { opened, handle: writer, memory, nbytes })
    }

    /// Makes an object of these bytes.
    pub fn put(&self, place: Place<'_>, new: &New<'_>, data: &[u8]) -> Result<()> {
        let mut writer = self.begin(place, new)?;
        if writer.nbytes != data.len() {
            let (own, given) = (writer.nbytes, data.len());
            let why = format!("{:?} has {own} bytes, not {given}", place.path);
            return Err(Error::new(Kind::Argument, why));
        }
        writer.write_at(0, data);
        writer.finish()
    }

    /// An object, kept as long as it is held; none where it is not there.
    pub fn look(&self, place: Place<'_>) -> Result<Option<Looked>> {
        let mut memory = Memory::default();
        let Opened { table, pool } = &*self.opened;
        // SAFETY: what is given out is given back by `Looked`.
        let found =
            call(|fault| unsafe { (table.look)(*pool, place.raw(), &raw mut memory, fault) });
        match found {
            Ok(()) => Ok(Some(Looked { opened: Arc::clone(&self.opened), memory })),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Copies a box of an array's value into memory of its size; of a blob, a range of its bytes.
    pub fn load(&self, place: Place<'_>, cut: BoxOf<'_>, out: &mut [u8]) -> Result<()> {
        let (Opened { table, pool }, cut) = (&*self.opened, cut.raw()?);
        let (at, len) = (out.as_mut_ptr(), out.len());
        // SAFETY: the engine writes at most `len` bytes, and refuses a box of another size.
        call(|fault| unsafe { (table.load)(*pool, place.raw(), cut, at, len, fault) })
    }

    /// Writes a box of an array's value in place.
    pub fn store(&self, place: Place<'_>, cut: BoxOf<'_>, data: &[u8]) -> Result<()> {
        let (Opened { table, pool }, cut) = (&*self.opened, cut.raw()?);
        // SAFETY: all is read in the call.
        call(|fault| unsafe { (table.store)(*pool, place.raw(), cut, Bytes::of(data), fault) })
    }

    /// Up to so many members of a group after a name, in byte order.
    pub fn list(&self, place: Place<'_>, after: &str, limit: usize) -> Result<Vec<Listed>> {
        let (Opened { table, pool }, after) = (&*self.opened, Bytes::of(after.as_bytes()));
        // SAFETY: the vector is used by this call alone.
        listed(|into, fault| unsafe {
            (table.list)(*pool, place.raw(), after, limit, take, into, fault)
        })
    }

    /// Makes a group, and those above it: its number. One that is there is given as it is.
    pub fn make_group(&self, place: Place<'_>) -> Result<u64> {
        let (Opened { table, pool }, mut number) = (&*self.opened, 0);
        // SAFETY: the number is written in the call.
        call(|fault| unsafe { (table.group)(*pool, place.raw(), &raw mut number, fault) })?;
        Ok(number)
    }

    /// Gives a member another place.
    pub fn rename(&self, from: Place<'_>, to: Place<'_>) -> Result<()> {
        let Opened { table, pool } = &*self.opened;
        // SAFETY: all is read in the call.
        call(|fault| unsafe { (table.rename)(*pool, from.raw(), to.raw(), fault) })
    }

    /// Sets the attributes of a head.
    pub fn set_attrs(&self, place: Place<'_>, head: &[u8]) -> Result<()> {
        let Opened { table, pool } = &*self.opened;
        // SAFETY: all is read in the call.
        call(|fault| unsafe { (table.set_attrs)(*pool, place.raw(), Bytes::of(head), fault) })
    }

    /// Removes an attribute.
    pub fn drop_attr(&self, place: Place<'_>, key: &str) -> Result<()> {
        let (Opened { table, pool }, key) = (&*self.opened, Bytes::of(key.as_bytes()));
        // SAFETY: all is read in the call.
        call(|fault| unsafe { (table.drop_attr)(*pool, place.raw(), key, fault) })
    }

    /// Removes a member, if it is there; a group with all that is in it. The memory of an object
    /// stays until the last who has it has gone.
    pub fn free(&self, place: Place<'_>) -> Result<()> {
        let Opened { table, pool } = &*self.opened;
        // SAFETY: all is read in the call.
        call(|fault| unsafe { (table.free)(*pool, place.raw(), fault) })
    }

    /// Removes a group, if nothing is in it.
    pub fn prune(&self, place: Place<'_>) -> Result<()> {
        let Opened { table, pool } = &*self.opened;
        // SAFETY: all is read in the call.
        call(|fault| unsafe { (table.prune)(*pool, place.raw(), fault) })
    }

    /// Sums up an object whose record has a mark, and has nobody write it any more: what its bytes
    /// sum up to. `Busy` where a process has its memory for writing.
    pub fn seal(&self, place: Place<'_>) -> Result<u64> {
        let (Opened { table, pool }, mut sum) = (&*self.opened, 0);
        // SAFETY: the sum is written in the call.
        call(|fault| unsafe { (table.seal)(*pool, place.raw(), &raw mut sum, fault) })?;
        Ok(sum)
    }

    /// What a query finds below these groups, in its order. Relative paths in it begin at the root;
    /// with `is_from_group` there is one group, and they begin there. With `is_published` nothing
    /// else is found, and a limit counts only that.
    pub fn query(
        &self,
        text: &str,
        groups: &[u64],
        is_from_group: bool,
        is_published: bool,
    ) -> Result<Vec<Listed>> {
        let (Opened { table, pool }, text) = (&*self.opened, Bytes::of(text.as_bytes()));
        let (at, count) = (groups.as_ptr(), groups.len());
        // SAFETY: the vector is used by this call alone, and the groups are read in it.
        listed(|into, fault| unsafe {
            (table.query)(*pool, text, is_from_group, is_published, at, count, take, into, fault)
        })
    }
}

/// An object that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct New<'n> {
    /// The bytes of its head.
    pub head: &'n [u8],
    /// What a cluster keeps in its record; empty for nothing.
    pub mark: &'n [u8],
    /// How many bytes it has.
    pub nbytes: u64,
    /// Whether it replaces what is there.
    pub overwrite: bool,
}

/// An object that is being written. Where it is not finished, its space is given back.
pub struct Writer {
    opened: Arc<Opened>,
    /// Null once it is finished.
    handle: *mut c_void,
    memory: *mut u8,
    nbytes: usize,
}

// SAFETY: its memory is its own, and the table's functions may be called from any thread.
unsafe impl Send for Writer {}

impl Writer {
    /// Its memory, which nobody else sees yet.
    pub fn memory(&mut self) -> &mut [u8] {
        if self.nbytes == 0 {
            return &mut [];
        }
        // SAFETY: the space is reserved for this writer alone, and mapped as long as it lives.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.nbytes) }
    }

    /// Writes bytes from an offset on, past the cache where they are many.
    ///
    /// # Panics
    ///
    /// If they reach beyond the end.
    pub fn write_at(&mut self, offset: usize, data: &[u8]) {
        assert!(offset.checked_add(data.len()).is_some_and(|end| end <= self.nbytes), "beyond it");
        if !data.is_empty() {
            // SAFETY: checked above; the writer is open.
            unsafe { (self.opened.table.write)(self.handle, offset, Bytes::of(data)) }
        }
    }

    /// It is whole: it appears.
    pub fn finish(mut self) -> Result<()> {
        let writer = std::mem::replace(&mut self.handle, ptr::null_mut());
        // SAFETY: the call takes the writer back, whatever its end.
        call(|fault| unsafe { (self.opened.table.finish)(writer, fault) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: it was not finished, so it is given back here.
            unsafe { (self.opened.table.give_up)(self.handle) }
        }
    }
}

/// An object, whose bytes are kept as they are placed as long as this lives.
pub struct Looked {
    opened: Arc<Opened>,
    memory: Memory,
}

// SAFETY: the bytes are read alone, and the table's functions may be called from any thread.
unsafe impl Send for Looked {}
// SAFETY: as above.
unsafe impl Sync for Looked {}

impl Looked {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its bytes can be copied out: those of a value in pieces cannot.
    pub fn has_bytes(&self) -> bool {
        !self.memory.at.is_null()
    }

    /// The bytes of its head.
    pub fn head_bytes(&self) -> &[u8] {
        // SAFETY: they live as long as what was looked at is held.
        unsafe { self.memory.head.as_slice() }
    }

    /// What it is.
    pub fn head(&self) -> Result<Head> {
        Head::decode(self.head_bytes())
    }

    /// What a cluster keeps in its record.
    pub fn mark(&self) -> &[u8] {
        // SAFETY: it lives as long as what was looked at is held.
        unsafe { self.memory.mark.as_slice() }
    }

    /// The file in which its bytes lie, and where they begin there, for calls that send bytes of a
    /// file.
    pub fn source(&self) -> Option<(File, u64)> {
        if self.memory.fd < 0 {
            return None;
        }
        // SAFETY: the descriptor is open as long as the memory is held.
        let fd = unsafe { BorrowedFd::borrow_raw(self.memory.fd) };
        let own = fd.as_fd().try_clone_to_owned().ok()?;
        Some((File::from(own), self.memory.offset))
    }

    /// Copies bytes out, from an offset on. What is not sealed may change meanwhile.
    ///
    /// # Panics
    ///
    /// If they reach beyond the end, or its value lies in pieces.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        let fits = offset.checked_add(into.len()).is_some_and(|end| end <= self.len());
        assert!(fits && (self.has_bytes() || into.is_empty()), "beyond it");
        if !into.is_empty() {
            // SAFETY: checked above; `into` is the caller's own.
            unsafe {
                ptr::copy_nonoverlapping(self.memory.at.add(offset), into.as_mut_ptr(), into.len());
            }
        }
    }

    /// What its bytes sum up to; none where `goes_on` says that it is given up.
    pub fn checksum(&self, goes_on: &dyn Fn() -> bool) -> Option<u64> {
        let mut sum = RunningChecksum::new();
        let mut piece = vec![0; PIECE.min(self.len())];
        let mut at = 0;
        while at < self.len() {
            if !goes_on() {
                return None;
            }
            let len = piece.len().min(self.len() - at);
            self.copy_out(at, &mut piece[..len]);
            sum.add(&piece[..len]);
            at += len;
        }
        Some(sum.word())
    }
}

impl Drop for Looked {
    fn drop(&mut self) {
        // SAFETY: it was given out by this table's `look`, once.
        unsafe { (self.opened.table.leave)(self.memory.handle) }
    }
}
