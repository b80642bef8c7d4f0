//! What a cluster keeps in a node pool, as objects of the engine.
//!
//! This crate owns how the engine answers [`engram_parts::table`], for the library of a cluster
//! that is in the same process. Parts and subtrees are ordinary objects and groups: this crate
//! knows places alone, and not what they are to a cluster.
//!
//! *Invariant*: an object that is made appears in one commit, when all its bytes are written.
//!
//! | item | what it offers |
//! |---|---|
//! | [`TABLE`] | the engine's functions |
//! | [`heads`] | heads of objects as the engine has them |

#![deny(missing_docs)]

pub mod heads;
mod hits;

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::ptr;
use std::time::Duration;

use engram::{
    Allocation, Error, FORMAT, Flush, Found, Gid, INLINE_BYTES_MAX, Kind, Layout, LockMode, Member,
    Mode, Namespace, Oid, Payload, Placement, Pool, Result, View,
};
use engram_parts::head::Head;
use engram_parts::table::{
    Bytes, Cut, Facts, Fault, Memory, NewObject, Place, Room, Table, VERSION,
};
use engram_parts::table::{Take, TakeHit};
use engram_parts::{Mark, checksum_of};

/// So long those who have a part's memory for writing are waited for, before it is sealed.
const SEALED_WITHIN: Duration = Duration::from_secs(2);

/// The functions of this process's engine.
pub static TABLE: Table = Table {
    version: VERSION,
    open,
    close,
    facts,
    room,
    begin,
    write,
    finish,
    give_up,
    look,
    leave,
    load,
    store,
    list,
    group,
    rename,
    set_attrs,
    drop_attr,
    free,
    prune,
    seal,
    query,
};

/// A pool that is open, with the namespace that has all.
struct Opened {
    pool: Pool,
    namespace: Namespace,
}

/// An object that is being written.
enum Writer {
    Large(Box<Allocation>),
    /// One that is put when all is there: it lies in its record, or replaces another.
    Small {
        namespace: Namespace,
        group: Gid,
        path: String,
        object: Box<engram::NewObject>,
        placement: Placement,
        bytes: Vec<u8>,
    },
}

/// What was looked at, and what keeps it.
struct Looked {
    bytes: Kept,
    file: Option<File>,
    head: Vec<u8>,
    mark: Vec<u8>,
}

enum Kept {
    View(View),
    Inline(Vec<u8>),
    /// A group has none, and a value in pieces none in one place.
    None,
}

/// Runs something, and says what was wrong. A panic is an error: it must not pass through C.
fn guarded(fault: *mut Fault, work: impl FnOnce() -> Result<()>) -> i32 {
    let end = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Error::new(Kind::Os, "the engine has panicked: standard error says where"))
    });
    let Err(error) = end else { return 0 };
    // SAFETY: the caller's fault lives through the call.
    unsafe { (*fault).say(&error) };
    1
}

/// A handle's pool.
///
/// # Safety
///
/// The handle is of `open`, and was not given back.
unsafe fn pool_of<'a>(handle: *mut c_void) -> &'a Opened {
    // SAFETY: the caller's promise.
    unsafe { &*handle.cast::<Opened>() }
}

unsafe extern "C" fn open(path: Bytes, out: *mut *mut c_void, fault: *mut Fault) -> i32 {
    guarded(fault, || {
        use std::os::unix::ffi::OsStringExt as _;
        // SAFETY: the caller's bytes live through the call.
        let bytes = unsafe { path.as_slice() }.to_vec();
        let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
        let pool = Pool::open(&path, Mode::ReadWrite, false)?;
        let namespace = pool.namespace("default")?;
        let opened = Box::into_raw(Box::new(Opened { pool, namespace }));
        // SAFETY: the caller's place for it.
        unsafe { *out = opened.cast() };
        Ok(())
    })
}

unsafe extern "C" fn close(handle: *mut c_void) {
    // SAFETY: the handle is of `open`, and is given back once.
    let opened = unsafe { Box::from_raw(handle.cast::<Opened>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| opened.pool.close()));
}

unsafe extern "C" fn facts(handle: *mut c_void, out: *mut Facts, fault: *mut Fault) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle and place.
        let (opened, out) = unsafe { (pool_of(handle), &mut *out) };
        let uuid = opened.pool.uuid().as_bytes();
        let len = uuid.len().min(out.uuid.len());
        out.uuid[..len].copy_from_slice(&uuid[..len]);
        (out.uuid_len, out.format) = (len, FORMAT);
        Ok(())
    })
}

unsafe extern "C" fn room(handle: *mut c_void, out: *mut Room, fault: *mut Fault) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle and place.
        let (opened, out) = unsafe { (pool_of(handle), &mut *out) };
        let space = opened.namespace.space()?;
        *out = Room { size: space.size, used: space.used };
        Ok(())
    })
}

/// A place's group and path.
///
/// # Safety
///
/// The place lives as long as the path is used.
unsafe fn place_of<'a>(namespace: &Namespace, place: Place) -> Result<(Gid, &'a str)> {
    // SAFETY: the caller's promise.
    let path = str::from_utf8(unsafe { place.path.as_slice() });
    let path = path.map_err(|_| Error::new(Kind::InvalidName, "a path is no UTF-8"))?;
    Ok((if place.group == 0 { namespace.root() } else { place.group }, path))
}

fn none_there(path: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no {path:?} here"))
}

unsafe extern "C" fn begin(
    handle: *mut c_void,
    new: *const NewObject,
    out: *mut *mut c_void,
    memory: *mut *mut u8,
    fault: *mut Fault,
) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle, and what the new object refers to, live through the call.
        let (opened, new) = unsafe { (pool_of(handle), &*new) };
        // SAFETY: as above.
        let (group, path) = unsafe { place_of(&opened.namespace, new.place)? };
        // SAFETY: as above.
        let (head, mark) = unsafe { (new.head.as_slice(), new.mark.as_slice()) };
        let object = heads::object_of(Head::decode(head)?, mark)?;
        let start = Start { group, path, nbytes: new.nbytes, overwrite: new.overwrite };
        let mut writer = Box::new(start.writer(&opened.namespace, object)?);
        let at = match &mut *writer {
            Writer::Large(allocation) => allocation.view().as_ptr(),
            Writer::Small { bytes, .. } => bytes.as_mut_ptr(),
        };
        // SAFETY: the caller's places for them.
        unsafe {
            *out = Box::into_raw(writer).cast();
            *memory = at;
        }
        Ok(())
    })
}

struct Start<'p> {
    group: Gid,
    path: &'p str,
    nbytes: u64,
    overwrite: bool,
}

impl Start<'_> {
    fn writer(self, namespace: &Namespace, object: engram::NewObject) -> Result<Writer> {
        let Start { group, path, nbytes, overwrite } = self;
        if !overwrite && namespace.lookup(group, path)?.is_some() {
            return Err(Error::new(Kind::Exists, format!("{path} is there already")));
        }
        let placement = Placement { overwrite, ..Placement::default() };
        if nbytes <= INLINE_BYTES_MAX || object.class == engram::Class::Strings {
            let bytes = vec![0; nbytes as usize];
            let (namespace, path) = (namespace.clone(), path.to_owned());
            let object = Box::new(object);
            return Ok(Writer::Small { namespace, group, path, object, placement, bytes });
        }
        let allocation = namespace.allocate(group, path, &object, nbytes, placement)?;
        Ok(Writer::Large(Box::new(allocation)))
    }
}

unsafe extern "C" fn write(writer: *mut c_void, offset: usize, data: Bytes) {
    // SAFETY: the writer is of `begin`; the bytes live through the call and fit, as was checked.
    let (writer, data) = unsafe { (&mut *writer.cast::<Writer>(), data.as_slice()) };
    match writer {
        Writer::Large(allocation) => allocation.write_at(offset as u64, data),
        Writer::Small { bytes, .. } => bytes[offset..offset + data.len()].copy_from_slice(data),
    }
}

unsafe extern "C" fn finish(writer: *mut c_void, fault: *mut Fault) -> i32 {
    // SAFETY: the writer is of `begin`, and is taken back here.
    let writer = unsafe { Box::from_raw(writer.cast::<Writer>()) };
    guarded(fault, || match *writer {
        Writer::Large(allocation) => allocation.publish().map(drop),
        Writer::Small { namespace, group, path, object, placement, bytes } => {
            namespace.put(group, &path, &object, &bytes, placement).map(drop)
        }
    })
}

unsafe extern "C" fn give_up(writer: *mut c_void) {
    // SAFETY: the writer is of `begin`, and is taken back here.
    let writer = unsafe { Box::from_raw(writer.cast::<Writer>()) };
    let _ = catch_unwind(AssertUnwindSafe(move || drop(writer)));
}

fn find(namespace: &Namespace, group: Gid, path: &str) -> Result<Member> {
    if path.is_empty() {
        return Ok(Member::Group(group));
    }
    namespace.lookup(group, path)?.ok_or_else(|| none_there(path))
}

/// The object that has a name; not 0: if its number is `of`.
fn find_object(namespace: &Namespace, group: Gid, path: &str, of: u64) -> Result<Oid> {
    match find(namespace, group, path)? {
        Member::Object(oid) if of != 0 && oid != of => {
            Err(Error::new(Kind::NotFound, format!("another object has the name {path:?} now")))
        }
        Member::Object(oid) => Ok(oid),
        Member::Group(_) => Err(Error::new(Kind::Argument, format!("{path:?} is a group"))),
    }
}

fn find_group(namespace: &Namespace, group: Gid, path: &str) -> Result<Gid> {
    match find(namespace, group, path)? {
        Member::Group(gid) => Ok(gid),
        Member::Object(_) => Err(Error::new(Kind::Argument, format!("{path:?} is no group"))),
    }
}

unsafe extern "C" fn look(
    handle: *mut c_void,
    place: Place,
    out: *mut Memory,
    fault: *mut Fault,
) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the place lives through the call.
        let (group, path) = unsafe { place_of(namespace, place)? };
        let (looked, offset) = match find(namespace, group, path)? {
            Member::Group(gid) => (Looked::group(namespace, gid)?, 0),
            Member::Object(oid) => Looked::object(namespace, oid)?,
        };
        let looked = Box::new(looked);
        let (at, len) = match &looked.bytes {
            Kept::View(view) => (view.as_ptr().cast_const(), view.len()),
            Kept::Inline(bytes) => (bytes.as_ptr(), bytes.len()),
            Kept::None => (ptr::null(), 0),
        };
        let fd = looked.file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let (head, mark) = (Bytes::of(&looked.head), Bytes::of(&looked.mark));
        let handle = Box::into_raw(looked).cast();
        // SAFETY: the caller's place for it.
        unsafe { *out = Memory { handle, at, len, fd, offset, head, mark } };
        Ok(())
    })
}

impl Looked {
    fn group(namespace: &Namespace, gid: Gid) -> Result<Looked> {
        let attrs = namespace.attrs(Member::Group(gid))?;
        let info = namespace.group(gid)?;
        let head = heads::of_group(gid, &info, attrs).encode();
        Ok(Looked { bytes: Kept::None, file: None, head, mark: info.origin })
    }

    /// An object, and where its bytes begin in their file.
    fn object(namespace: &Namespace, oid: Oid) -> Result<(Looked, u64)> {
        let info = namespace.object(oid)?;
        let attrs = namespace.attrs(Member::Object(oid))?;
        let head = heads::of_object(&info, attrs).encode();
        let mark = info.origin;
        if info.layout != Layout::Contiguous {
            return Ok((Looked { bytes: Kept::None, file: None, head, mark }, 0));
        }
        let (bytes, source) = match namespace.view(oid, false)? {
            Payload::Extent(view) => {
                let source = view.source()?;
                (Kept::View(view), source)
            }
            Payload::Inline(bytes) => (Kept::Inline(bytes), None),
        };
        let (file, offset) = source.map_or((None, 0), |(file, offset)| (Some(file), offset));
        Ok((Looked { bytes, file, head, mark }, offset))
    }
}

unsafe extern "C" fn leave(handle: *mut c_void) {
    // SAFETY: the handle is of `look`, and is taken back here.
    let looked = unsafe { Box::from_raw(handle.cast::<Looked>()) };
    let _ = catch_unwind(AssertUnwindSafe(move || drop(looked)));
}

/// A box's offsets and counts.
///
/// # Safety
///
/// The box lives as long as they are used.
unsafe fn numbers<'a>(cut: Cut) -> (&'a [u64], &'a [u64]) {
    if cut.ndim == 0 {
        return (&[], &[]);
    }
    // SAFETY: the caller's promise.
    unsafe {
        (
            std::slice::from_raw_parts(cut.offsets, cut.ndim),
            std::slice::from_raw_parts(cut.counts, cut.ndim),
        )
    }
}

unsafe extern "C" fn load(
    handle: *mut c_void,
    place: Place,
    cut: Cut,
    out: *mut u8,
    len: usize,
    fault: *mut Fault,
) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the place and the box live through the call.
        let ((group, path), (offsets, counts)) =
            unsafe { (place_of(namespace, place)?, numbers(cut)) };
        let oid = find_object(namespace, group, path, cut.of)?;
        let out = if len == 0 {
            &mut []
        } else {
            // SAFETY: the caller's own memory, of this length.
            unsafe { std::slice::from_raw_parts_mut(out, len) }
        };
        namespace.load_slab(oid, offsets, counts, out)
    })
}

unsafe extern "C" fn store(
    handle: *mut c_void,
    place: Place,
    cut: Cut,
    data: Bytes,
    fault: *mut Fault,
) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the place, the box and the data live through the call.
        let ((group, path), (offsets, counts), data) =
            unsafe { (place_of(namespace, place)?, numbers(cut), data.as_slice()) };
        let oid = find_object(namespace, group, path, cut.of)?;
        namespace.store_slab(oid, offsets, counts, data, Flush::default())
    })
}

unsafe extern "C" fn list(
    handle: *mut c_void,
    place: Place,
    after: Bytes,
    limit: usize,
    take: Take,
    into: *mut c_void,
    fault: *mut Fault,
) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the place and the name live through the call.
        let ((group, path), after) = unsafe { (place_of(namespace, place)?, after.as_slice()) };
        let after = str::from_utf8(after).ok().filter(|after| !after.is_empty());
        let group = find_group(namespace, group, path)?;
        for (name, found) in namespace.list_found(group, after, limit)? {
            let (head, mark) = match found {
                Found::Group(gid) => (heads::bare_group(gid), Vec::new()),
                Found::Object(info) => (heads::of_object(&info, Vec::new()), info.origin),
            };
            let head = head.encode();
            take(into, Bytes::of(name.as_bytes()), Bytes::of(&head), Bytes::of(&mark));
        }
        Ok(())
    })
}

unsafe extern "C" fn group(
    handle: *mut c_void,
    place: Place,
    out: *mut u64,
    fault: *mut Fault,
) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the place lives through the call.
        let (group, path) = unsafe { place_of(namespace, place)? };
        let made = namespace.create_group(group, path, &[], &[], true, None)?;
        // SAFETY: the caller's place for it.
        unsafe { *out = made };
        Ok(())
    })
}

unsafe extern "C" fn rename(handle: *mut c_void, from: Place, to: Place, fault: *mut Fault) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the places live through the call.
        let ((group, old), (target, new)) =
            unsafe { (place_of(namespace, from)?, place_of(namespace, to)?) };
        namespace.rename(group, old, target, new)
    })
}

unsafe extern "C" fn set_attrs(
    handle: *mut c_void,
    place: Place,
    head: Bytes,
    fault: *mut Fault,
) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the place and the head live through the call.
        let ((group, path), head) = unsafe { (place_of(namespace, place)?, head.as_slice()) };
        let attrs = heads::values_of(Head::decode(head)?.attrs);
        namespace.set_attrs(find(namespace, group, path)?, &attrs)
    })
}

unsafe extern "C" fn drop_attr(
    handle: *mut c_void,
    place: Place,
    key: Bytes,
    fault: *mut Fault,
) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the place and the key live through the call.
        let ((group, path), key) = unsafe { (place_of(namespace, place)?, key.as_slice()) };
        let key = str::from_utf8(key);
        let key = key.map_err(|_| Error::new(Kind::InvalidName, "a key is no UTF-8"))?;
        namespace.delete_attr(find(namespace, group, path)?, key)
    })
}

unsafe extern "C" fn free(handle: *mut c_void, place: Place, fault: *mut Fault) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the place lives through the call.
        let (group, path) = unsafe { place_of(namespace, place)? };
        let gone = if path.is_empty() {
            let own = namespace.path_of(Member::Group(group));
            own.and_then(|own| namespace.delete(namespace.root(), &own))
        } else {
            unprotected(namespace, group, path).and_then(|()| namespace.delete(group, path))
        };
        match gone {
            Err(error) if error.kind() != Kind::NotFound => Err(error),
            _ => Ok(()),
        }
    })
}

unsafe extern "C" fn prune(handle: *mut c_void, place: Place, fault: *mut Fault) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the place lives through the call.
        let (group, path) = unsafe { place_of(namespace, place)? };
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        namespace.remove_empty(find_group(namespace, group, above)?, name)
    })
}

unsafe extern "C" fn seal(
    handle: *mut c_void,
    place: Place,
    out: *mut u64,
    fault: *mut Fault,
) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the place lives through the call.
        let (group, path) = unsafe { place_of(namespace, place)? };
        let sum = sealed(namespace, find_object(namespace, group, path, 0)?)?;
        // SAFETY: the caller's place for it.
        unsafe { *out = sum };
        Ok(())
    })
}

/// Whoever has a part's memory for writing has its lock for reading: so nobody does meanwhile.
fn sealed(namespace: &Namespace, oid: Oid) -> Result<u64> {
    let member = Member::Object(oid);
    let mut pause = |time| {
        std::thread::sleep(time);
        Ok(())
    };
    let _alone = namespace.lock(member, LockMode::Write, Some(SEALED_WITHIN), &mut pause)?;
    let no_mark = || Error::new(Kind::NotFound, "there is no part of a cluster here");
    let mut mark = Mark::decode(&namespace.object(oid)?.origin).ok_or_else(no_mark)?;
    if let (true, Some(sum)) = (namespace.is_read_only(member)?, mark.checksum) {
        return Ok(sum);
    }
    let sum = match namespace.view(oid, false)? {
        // SAFETY: the view keeps the memory, and nobody writes it: whoever would has the lock.
        Payload::Extent(view) => checksum_of(unsafe {
            std::slice::from_raw_parts(view.as_ptr().cast_const(), view.len())
        }),
        Payload::Inline(bytes) => checksum_of(&bytes),
    };
    mark.checksum = Some(sum);
    namespace.set_origin(member, &mark.encode())?;
    namespace.set_read_only(member, true)?;
    Ok(sum)
}

/// What is sealed is read-only, and nobody deletes that by mistake.
fn unprotected(namespace: &Namespace, group: Gid, path: &str) -> Result<()> {
    let member = find(namespace, group, path)?;
    let is_sealed = matches!(member, Member::Object(_)) && namespace.is_read_only(member)?;
    if is_sealed { namespace.set_read_only(member, false) } else { Ok(()) }
}

unsafe extern "C" fn query(
    handle: *mut c_void,
    text: Bytes,
    is_from_group: bool,
    is_published: bool,
    groups: *const u64,
    count: usize,
    take: TakeHit,
    into: *mut c_void,
    fault: *mut Fault,
) -> i32 {
    guarded(fault, || {
        // SAFETY: the caller's handle.
        let namespace = unsafe { &pool_of(handle).namespace };
        // SAFETY: the text lives through the call.
        let text = str::from_utf8(unsafe { text.as_slice() });
        let text = text.map_err(|_| Error::new(Kind::Query, "the query is no UTF-8"))?;
        let groups = if count == 0 {
            &[]
        } else {
            // SAFETY: the caller's groups, which live through the call.
            unsafe { std::slice::from_raw_parts(groups, count) }
        };
        hits::find(namespace, text, groups, is_from_group, is_published, &mut |path, head, key| {
            take(into, Bytes::of(path.as_bytes()), Bytes::of(head), Bytes::of(key));
        })
    })
}
