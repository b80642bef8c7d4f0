//! Files: blobs that grow, shrink and have holes while many processes have them open.
//!
//! A file is an object of three forms. A *small* one lies in its record, and a write is a commit.
//! One that an array or blob was put as lies in *one extent*. One that has grown lies in
//! *segments* under a head (`engram_records::segmented`); it never goes back. The first write that
//! does not fit makes the third of the other two. Arrays keep their size, and so their form.
//!
//! Writing into segments takes no commit: bytes are copied, and size and times are words of the
//! head. The catalog changes when a segment comes or goes, and when the last process closes the
//! file.
//!
//! **F1 Open is a pin.** The lease lists the object's id from within the look-up that found it
//! (P2) until the file is closed. A commit that removes objects, or orphans, says so in the growth
//! page (`removing`), and then looks who has them open. Who opens lists first, and then looks
//! whether any has said so since the look-up: if so, it looks again under the writer lock. One of
//! the two sees the other. An object that goes while it is open is spared by reclaim with all that
//! it had, its head among it. So a head that was mapped is a head as long as the file is open.
//!
//! **F2 Unlink.** The commit that takes the last name of an open file keeps its record as an orphan
//! (`engram_ops::links`); `orphans` removes it once nobody has it open. A dead process's list goes
//! with its lease.
//!
//! **F3 Map.** What a process knows of a file's segments, its *map*, is as of a transaction. The
//! head's `map` is the last transaction that changed them, stored under the writer lock before it
//! commits. A map as of that transaction or a later one is good. It is asked before and after each
//! copy: a read starts over, a write is repeated, since what it wrote to may be gone. Between the
//! two, the lease has an age: this is P2, with the head's word for the look-up's snapshot. (1) age
//! = the last commit; fence; (2) read `map`: the map is good, so what it shows was not cut by then;
//! (3) copy; (4) age = IDLE. A cutter stores `map` and commits; an allocator reads the ages after
//! that. Either it sees the age, and what was cut waits; or the copier sees the new `map`, and does
//! not copy. A large copy is made in pieces, so that neither a fork nor what was cut waits long. A
//! writer that dies between store and commit leaves a number that no commit has, and so does a
//! catalog in which transactions count anew (a compaction, a move). A process that waits for the
//! number takes the writer lock, under which nobody is between the two, and sets the word right.
//! A view asks once, after it has read the size: segments that were cut have anything behind the
//! end that they had.
//!
//! **F4 Tail.** Size is changed, and segments are removed, only by the holder of the *tail*: the
//! head's word with its lease's id, set from 0 by compare and swap. Extending, it copies first and
//! raises the size then (release); cutting, it lowers the size first. So a death in between leaves
//! nothing to mend: whoever waits and finds the lease dead takes the tail over. Bytes behind the
//! end may be anything: what extends the end zeroes the gap first.
//!
//! **F5 Hole.** A segment for a hole is reserved and filled, with zeros around what is written,
//! and flushed where the realm is durable; then its row is committed, if there still is none
//! there. The second of two gives its own back, and writes into the first's. Where large pieces
//! fill a hole one after the other, each segment is as long as those before it together, within
//! bounds.
//!
//! **Flushing.** Where the realm promises `"system"`, each write widens the head's dirty range once
//! its bytes are copied; `sync` takes the range, whoever wrote it, flushes it, and then the head.
//! What was written since the last sync may be lost when power fails: old bytes of this realm may
//! stand in their place, up to the size that the head has by then.
//!
//! A thread that runs a batch cannot use files: a batch undoes, and writes in place stay.
//!
//! | file | what it owns |
//! |---|---|
//! | `map` | what is known of a file's segments |
//! | `tail` | who may change the size |
//! | `write` | bytes in: overwriting, extending, holes |
//! | `opening` | files opened: by number, by name, or as they are made |
//! | `segments` | rows of segments, as they come and go |
//! | `resize` | other sizes, space before bytes, holes made |
//! | `small` | files without segments, and how they get some |
//! | `ranges` | locks of ranges |
//! | `pieces` | where a range lies in memory, for traces |
//! | `view` | a file, or a part of it, as one piece of memory |
//! | `join` | segments that touch, made one by a compaction |
//! | `orphans` | files without names, when nobody has them open any more |

mod join;
mod map;
mod opening;
mod orphans;
mod pieces;
mod ranges;
mod resize;
mod segments;
mod small;
pub(crate) mod tail;
mod view;
mod write;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use self::map::{FileMap, Known};
use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::snapshot::SnapshotHandle;
use crate::realm::{Mode, Realm, space};
use crate::session::Session;
use crate::{batch, process};
use engram_base::clock;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Gid, Member, Oid, id_key};
use engram_base::mutex::lock;
use engram_catalog::rows::Rows;
use engram_catalog::{Headroom, Table};
use engram_ops::group::Permit;
use engram_ops::rows_mut::RowsMut;
use engram_ops::{group, links};
use engram_records::extent::{Extent, PAGE};
use engram_records::object::{NewObject, ObjectInfo, Placement, Record, Stored};
use engram_records::segmented::HeadFacts;
use engram_records::stamp::Stamp;
use engram_space::lease::{Hold, RangeLocks};
use std::time::SystemTime;

pub use self::opening::NamedFile;
pub(crate) use self::orphans::sweep as sweep_orphans;
pub use self::orphans::sweep_all as sweep_all_orphans;
pub use self::pieces::FilePiece;
pub use self::segments::FileSegment;
pub(super) use self::view::{ViewedPart, fill_holes, touch, view_in};

/// The least and the most that a file grows by at a time, where nobody says.
const GROWTH: (u64, u64) = (64 << 10, 64 << 20);

/// So much is copied at once: forks wait no longer.
const PIECE: usize = 1 << 20;

/// Files that this process has open in a realm.
pub(crate) struct OpenFiles {
    known: Mutex<HashMap<Oid, Weak<OpenFile>>>,
    growth_least: AtomicU64,
    growth_most: AtomicU64,
}

impl Default for OpenFiles {
    fn default() -> Self {
        OpenFiles {
            known: Mutex::default(),
            growth_least: AtomicU64::new(GROWTH.0),
            growth_most: AtomicU64::new(GROWTH.1),
        }
    }
}

/// Of a file whose space comes from wherever there is room.
const ANY_DEVICE: u32 = u32::MAX;

/// A file, as this process has it open, however often.
struct OpenFile {
    core: Arc<Core>,
    oid: Oid,
    hold: Hold,
    /// Whether it is an array, which keeps its size.
    fixed: bool,
    known: RwLock<Known>,
    /// Whether this process has changed it.
    wrote: AtomicBool,
    /// The device that its space comes from, or `ANY_DEVICE`.
    device: AtomicU32,
    stand_in: ranges::OwnStandIn,
}

/// A file that is open. Cheap to clone; every method may be called from any thread.
#[derive(Clone)]
pub struct File {
    open: Arc<OpenFile>,
    session: Arc<Session>,
    writable: bool,
}

/// What `seek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that were written, or have space.
    Data,
    /// A hole; the end of the file is one.
    Hole,
}

/// Refuses to move what somebody has open, or has several names, which are marked as going.
pub fn refuse_to_move(core: &Core, going: &[Member]) -> Result<()> {
    let inside = core.enter()?;
    fence(Ordering::SeqCst);
    let floor = core.prepare(&inside, Headroom::Relief, |_| space::floor(core, &inside))?;
    let txn = inside.read()?;
    let linked = txn.entries(Table::Links)? > 0;
    for member in going {
        let Member::Object(oid) = *member else { continue };
        let path = || group::path_of(&mut txn.rows(), *member).unwrap_or_default();
        if floor.has_open(oid) {
            fail!(
                Busy,
                "the file {:?} is open (`engram stats` names who has any), and what is open does \
                 not move: move it when it is closed",
                path()
            );
        }
        if linked && links::count(&mut txn.rows(), oid)? > 1 {
            fail!(
                Argument,
                "the file {:?} has several names, and moves to another scope, namespace or pool \
                 with one name only: remove the others first, or copy what has them and remove \
                 that",
                path()
            );
        }
    }
    Ok(())
}

/// Refuses what a batch could not undo.
fn refuse_batch() -> Result<()> {
    if batch::in_batch() {
        fail!(
            Busy,
            "this thread runs a batch, which cannot undo what is written to a file: end it first"
        );
    }
    Ok(())
}

/// Reads the record of an object, or of one that has no name any more; says which.
fn with_record<T>(
    rows: &mut dyn Rows,
    oid: Oid,
    read: impl FnOnce(&Record<'_>, bool) -> Result<T>,
) -> Result<T> {
    if let Some(row) = rows.get(Table::Objects, &id_key(oid))? {
        return read(&Record::parse(&row)?, false);
    }
    match rows.get(Table::Orphans, &id_key(oid))? {
        Some(row) => read(&Record::parse(links::split_orphan(&row)?.1)?, true),
        None => fail!(
            NotFound,
            "the file {oid:#x} is gone: it was deleted or replaced; open it again by its path"
        ),
    }
}

/// Changes what a file system keeps beside a file that has no name any more.
pub(super) fn set_properties(
    rows: &mut dyn RowsMut,
    oid: Oid,
    owner: Option<u32>,
    stamp: Stamp,
    change: &group::ChangeProperties<'_>,
) -> Result<()> {
    let properties = with_record(rows, oid, |record, _| change(record.owner, record.properties))?;
    segments::change_record(rows, oid, |record| {
        let (owner, modified) = (owner.unwrap_or(record.owner), stamp.now);
        Record { properties: &properties, owner, modified, ..*record }.encode()
    })
}

/// Tells of files what their heads say, which records do not; a look-up keeps the heads meanwhile.
/// Of one that is gone by then, its record has the last word.
pub(super) fn see_heads<'i>(
    core: &Core,
    inside: &Inside<'_>,
    at: Option<&SnapshotHandle>,
    infos: impl Iterator<Item = &'i mut ObjectInfo>,
) -> Result<()> {
    let mut look = None;
    for info in infos.filter(|info| info.head.is_some()) {
        if look.is_none() {
            look = Some(inside.look_at(at)?);
        }
        let txn = look.as_ref().expect("it has begun").txn();
        // It may have lost its last name since, and be open.
        let key = id_key(info.oid);
        let record = match txn.get(Table::Objects, &key)? {
            Some(row) => row,
            None => match txn.get(Table::Orphans, &key)? {
                Some(row) => links::split_orphan(row)?.1,
                None => continue,
            },
        };
        let Stored::Segmented(segmented) = Record::parse(record)?.stored else { continue };
        let head = map::head_at(core, inside, segmented.head, txn)?;
        let mut facts = head.facts();
        if at.is_some() {
            // The file may have grown since, in space that the snapshot does not have; or was cut,
            // and filled anew.
            let end = segments::all(txn, info.oid)?.last().map_or(0, FileSegment::end);
            let changed = !core.setup.immutable && head.map() > txn.id();
            let said = if changed { segmented.nbytes } else { facts.size };
            facts.size = said.min(end.max(segmented.nbytes));
        }
        info.nbytes = facts.size;
        info.head = Some(facts);
    }
    Ok(())
}

/// Puts the files of a realm in order before it is compacted: fragments are joined, and what the
/// dead have left of locks goes. How many files were in fragments. The caller has the compaction
/// lock, and has seen that no other process has the realm open; where this one uses it otherwise,
/// nothing is done.
pub fn put_in_order(core: &Arc<Core>) -> Result<u64> {
    process::alone(core, || {
        ranges::clear_stand_ins(&core.setup);
        join::join_fragments(core)
    })
    .unwrap_or(Ok(0))
}

/// Now, in ns since 1970.
fn now() -> Result<i64> {
    clock::kept(SystemTime::now())
}

impl Realm {
    /// Opens an object as a file: a blob, or an array that lies in one piece, which keeps its size.
    /// Its space is kept until the file is closed, also if its last name goes meanwhile.
    pub fn open_file(&self, oid: Oid, write: bool) -> Result<File> {
        opening::open_file(self, oid, write)
    }

    /// Opens the file of a name in a group, if it may be opened.
    pub fn open_named(
        &self,
        parent: Gid,
        name: &str,
        write: bool,
        may_open: &Permit<'_>,
    ) -> Result<NamedFile> {
        opening::open_named(self, parent, name, write, may_open)
    }

    /// Makes an empty file, and opens it: in one commit.
    pub fn create_file(
        &self,
        parent: Gid,
        path: &str,
        new: &NewObject,
        placement: Placement,
        write: bool,
    ) -> Result<File> {
        opening::create_file(self, parent, path, new, placement, write)
    }

    /// Tells of files what their heads say, which records do not.
    pub fn see_heads<'i>(&self, infos: impl Iterator<Item = &'i mut ObjectInfo>) -> Result<()> {
        let core = self.readable()?;
        see_heads(core, &core.enter()?, self.at(), infos)
    }

    /// Says by how much at least, and at most, files grow at a time that this process writes.
    pub fn set_file_growth(&self, least: u64, most: u64) -> Result<()> {
        let core = self.writable()?;
        if least < PAGE || most < least || !(least | most).is_multiple_of(PAGE) {
            fail!(
                Argument,
                "files cannot grow by {least} to {most} bytes: give multiples of {PAGE}, the first \
                 not above the second"
            );
        }
        core.files.growth_least.store(least, Ordering::Relaxed);
        core.files.growth_most.store(most, Ordering::Relaxed);
        Ok(())
    }
}

impl File {
    /// The object.
    pub fn oid(&self) -> Oid {
        self.open.oid
    }

    /// Whether it may be written to through this handle.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether it keeps its size: it is an array.
    pub fn is_fixed(&self) -> bool {
        self.open.fixed
    }

    fn check_open(&self) -> Result<()> {
        if !self.session.is_open() {
            fail!(
                Argument,
                "the pool {} is closed: open it again",
                self.open.core.setup.pool.display()
            );
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if !self.writable || self.session.mode() != Mode::ReadWrite {
            fail!(ReadOnly, "the file {:#x} was opened for reading", self.open.oid);
        }
        refuse_batch()
    }

    /// What is known of the object; of one that has no name any more, too.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.check_open()?;
        let core = &self.open.core;
        let inside = core.enter()?;
        let scope = core.setup.scope;
        let oid = self.open.oid;
        let mut info = with_record(&mut inside.read()?.rows(), oid, |record, _| {
            ObjectInfo::of(oid, record, scope)
        })?;
        drop(inside);
        if info.head.is_some() {
            let facts = self.open.facts()?;
            info.nbytes = facts.size;
            info.head = Some(facts);
        }
        Ok(info)
    }

    /// Whether it has no name any more.
    pub fn is_orphan(&self) -> Result<bool> {
        let inside = self.open.core.enter()?;
        if inside.catalog().knows_empty(Table::Orphans)? {
            return Ok(false);
        }
        let txn = inside.read()?;
        with_record(&mut txn.rows(), self.open.oid, |_, orphan| Ok(orphan))
    }

    /// How many bytes it has, and when it was changed.
    pub fn facts(&self) -> Result<HeadFacts> {
        self.check_open()?;
        self.open.facts()
    }

    /// How many bytes it has.
    pub fn size(&self) -> Result<u64> {
        self.facts().map(|facts| facts.size)
    }

    /// Reads from an offset on; fewer bytes than there is room for, where the file ends there.
    /// Holes are zeros.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.check_open()?;
        self.open.read_at(offset, into)
    }

    /// Writes at an offset, and extends the file where that is needed.
    ///
    /// On error some of it may have been written within the file's size before.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.open.write_at(offset, data)
    }

    /// Writes behind the end, wherever that is by then; returns where that was. Whatever several
    /// processes append comes whole, one after the other.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.check_writable()?;
        self.open.append(data)
    }

    /// Gives it another size. What is cut off is gone; what is added is a hole.
    pub fn set_size(&self, size: u64) -> Result<()> {
        self.check_writable()?;
        self.open.set_size(size)
    }

    /// Has the space that this process gives the file from now on, as long as it has it open, come
    /// from a device of the pool; `None`: from wherever there is room.
    pub fn set_device(&self, device: Option<u32>) {
        self.open.device.store(device.unwrap_or(ANY_DEVICE), Ordering::Relaxed);
    }

    /// Sees to it that all of a range has space, so that writing there cannot run out of it;
    /// extends the file to the range's end unless it is to `keep` its size.
    pub fn allocate(&self, offset: u64, len: u64, keep: bool) -> Result<()> {
        self.check_writable()?;
        self.open.allocate(offset, len, keep)
    }

    /// Makes zeros of what lies behind the end in its last page, for those who map whole pages. In
    /// a published version it stays as it is.
    pub fn clear_end(&self) -> Result<()> {
        self.check_open()?;
        if self.open.core.setup.immutable { Ok(()) } else { self.open.clear_end() }
    }

    /// Makes a range a hole; the size stays.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        self.open.clear(offset, len, true)
    }

    /// Makes a range zeros, as far as the file goes; its space and the size stay.
    pub fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        self.open.clear(offset, len, false)
    }

    /// Where the next data, or the next hole, begins, at or after an offset; `None` if the file
    /// ends before that.
    pub fn seek(&self, what: Seek, offset: u64) -> Result<Option<u64>> {
        self.check_open()?;
        self.open.seek(what, offset)
    }

    /// Makes what anybody has written to it durable, where the realm promises that.
    pub fn sync(&self) -> Result<()> {
        self.check_open()?;
        self.open.sync()
    }

    /// Says when it was written and read; `None` leaves what is there. `false`: it has no head, and
    /// its record has to say so.
    pub fn set_times(&self, written: Option<i64>, accessed: Option<i64>) -> Result<bool> {
        self.check_open()?;
        match self.open.known()? {
            Known::Map(map) => {
                map.head.set_times(written, accessed);
                if self.open.core.setup.durable {
                    let inside = self.open.core.enter()?;
                    map.head.flush().inspect_err(|_| inside.catalog().poison())?;
                }
                Ok(true)
            }
            Known::Record => Ok(false),
        }
    }

    /// Whether it lies in one extent under its record, so that what is written through its memory
    /// leaves no trace.
    pub fn is_in_one_extent(&self) -> Result<bool> {
        self.check_open()?;
        match self.open.known()? {
            Known::Map(_) => Ok(false),
            Known::Record => self.open.one_extent().map(|extent| !extent.is_empty()),
        }
    }

    /// Locks of ranges of it, for one taker; nothing is locked yet.
    pub fn range_locks(&self) -> Result<RangeLocks> {
        self.check_open()?;
        ranges::open(&self.open)
    }

    /// The locks of a taker who has handed over their descriptor ([`RangeLocks::descriptor`]).
    pub fn range_locks_handed(&self, descriptor: OwnedFd) -> Result<RangeLocks> {
        self.check_open()?;
        Ok(ranges::handed(&self.open, descriptor.into()))
    }

    /// Where a range of it lies in this process's memory, as far as the file goes: a piece for each
    /// segment and each hole, in order. None of a small one, whose bytes are in its record.
    pub fn pieces(&self, offset: u64, len: u64) -> Result<Vec<FilePiece>> {
        self.check_open()?;
        self.open.pieces(offset, len)
    }

    /// Its segments, in order; none of a small one.
    pub fn segments(&self) -> Result<Vec<FileSegment>> {
        self.check_open()?;
        match self.open.known()? {
            Known::Map(map) => Ok(map.segments.clone()),
            Known::Record => self.open.one_extent(),
        }
    }
}

impl OpenFile {
    /// The file as it is known, by a map that is good.
    fn known(&self) -> Result<Known> {
        let inside = self.core.enter()?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Known::Map(map) if map.is_good(&self.core) => Ok(Known::Map(map)),
            _ => self.learn(inside),
        }
    }

    /// Learns how the file lies.
    fn learn(&self, inside: Inside<'_>) -> Result<Known> {
        let learned = map::learn(&self.core, inside, self.oid)?;
        let _gate = self.core.gate.read();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = learned.clone();
        Ok(learned)
    }

    /// Takes a map for what is known from now on.
    fn know(&self, map: FileMap) -> Arc<FileMap> {
        let map = Arc::new(map);
        let _gate = self.core.gate.read();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Known::Map(Arc::clone(&map));
        map
    }

    /// Its map, for a copy: what the map shows is nobody else's until this is dropped. `None` if it
    /// has no segments yet.
    fn using(&self) -> Result<Option<UsedMap<'_>>> {
        loop {
            let inside = self.core.enter()?;
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
            let Known::Map(map) = known else { return Ok(None) };
            let used = UsedMap::begin(inside, map)?;
            if used.map.is_good(&self.core) {
                return Ok(Some(used));
            }
            drop(used);
            let Known::Map(_) = self.learn(self.core.enter()?)? else { return Ok(None) };
        }
    }

    /// Its map, if it has segments by now.
    fn map(&self) -> Result<Option<Arc<FileMap>>> {
        match self.known()? {
            Known::Map(map) => Ok(Some(map)),
            Known::Record => Ok(None),
        }
    }

    fn facts(&self) -> Result<HeadFacts> {
        match self.known()? {
            Known::Map(map) => Ok(map.head.facts()),
            Known::Record => self.facts_of_record(),
        }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        for piece in into.chunks_mut(PIECE) {
            let wanted = piece.len();
            let count = self.read_piece(offset.saturating_add(done as u64), piece)?;
            done += count;
            if count < wanted {
                break;
            }
        }
        Ok(done)
    }

    fn read_piece(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        loop {
            let Some(used) = self.using()? else {
                match self.read_record(offset, into)? {
                    Some(count) => return Ok(count),
                    None => continue,
                }
            };
            let map = &used.map;
            let count = map.head.size().saturating_sub(offset).min(into.len() as u64) as usize;
            map.copy_out(&self.core, offset, &mut into[..count]);
            if map.is_good(&self.core) {
                return Ok(count);
            }
        }
    }

    fn seek(&self, what: Seek, offset: u64) -> Result<Option<u64>> {
        let Some(map) = self.map()? else {
            let size = self.facts_of_record()?.size;
            let found = if what == Seek::Data { offset } else { size };
            return Ok((offset < size).then_some(found));
        };
        let size = map.head.size();
        if offset >= size {
            return Ok(None);
        }
        let mut at = offset;
        for segment in map.segments.iter().filter(|segment| segment.end() > offset) {
            if segment.at > at {
                break;
            }
            if what == Seek::Data {
                return Ok(Some(at));
            }
            at = segment.end();
        }
        match what {
            Seek::Hole => Ok(Some(at.min(size))),
            Seek::Data => {
                let next = map.segments.iter().find(|segment| segment.at >= at);
                Ok(next.map(|segment| segment.at).filter(|at| *at < size))
            }
        }
    }

    /// Flushes what is dirty, and the head behind it.
    fn sync(&self) -> Result<()> {
        if !self.core.setup.durable {
            return Ok(());
        }
        let Some(map) = self.map()? else { return self.sync_extent() };
        let inside = self.core.enter()?;
        let flushed = match map.head.take_dirty() {
            Some((from, to)) => map.flush(&self.core, from, to),
            None => Ok(()),
        };
        step!("file.flushed");
        let flushed = flushed.and_then(|()| map.head.flush());
        flushed.inspect_err(|_| inside.catalog().poison())
    }
}

/// A map that is used for a copy (F3).
struct UsedMap<'a> {
    map: Arc<FileMap>,
    age: u64,
    inside: Inside<'a>,
}

impl<'a> UsedMap<'a> {
    /// Begins at the last commit: of a map that is good, nothing was cut by then.
    fn begin(inside: Inside<'a>, map: Arc<FileMap>) -> Result<Self> {
        let age = inside.catalog().last_id()?;
        if let Some(lease) = &inside.state().lease {
            lease.look_again(age);
        }
        Ok(UsedMap { map, age, inside })
    }
}

impl Drop for UsedMap<'_> {
    fn drop(&mut self) {
        if let Some(lease) = &self.inside.state().lease {
            lease.end_look(self.age);
        }
    }
}

/// The last of this process closes it: what is spare behind the end goes back, the record learns
/// how long the file is, and one that has no name any more goes.
impl Drop for OpenFile {
    fn drop(&mut self) {
        if *self.wrote.get_mut() {
            // On an error the space stays the file's, and the record says what it said.
            let _ = resize::settle(self);
        }
        {
            let _gate = self.core.gate.read();
            let mut known = lock(&self.core.files.known);
            if known.get(&self.oid).is_some_and(|open| open.strong_count() == 0) {
                known.remove(&self.oid);
            }
        }
        self.core.gate.close_object(self.oid, self.hold);
        step!("file.closed");
        orphans::after_close(&self.core);
        self.core.remove_user();
    }
}

/// The pages that cover a range.
fn pages(from: u64, to: u64) -> (u64, u64) {
    (from - from % PAGE, to.div_ceil(PAGE) * PAGE)
}

/// The extent's part from `at` on.
fn part(extent: Extent, at: u64, len: u64) -> Extent {
    Extent { offset: extent.offset + at, len }
}
