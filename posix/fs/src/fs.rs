//! Names made, found, changed and taken away.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use engram::{
    Found, IndexMode, Kind, Member, Mode, NamesSeen, Namespace, NewObject, ObjectInfo, Payload,
    Permit, Placement,
};

use crate::caller::Protection;
use crate::errno::{Errno, Result, gone_is_stale, name_of, refuse, shown_name};
use crate::handle::{Handle, HandleCore, OpenFlags};
use crate::known::Known;
use crate::listed::Listed;
use crate::properties::PosixProperties;
use crate::shown::{self, Shown};
use crate::stat::{Defaults, NodeKind, Stat};

/// The number of a node: an OID or a GID; the root is [`ROOT`].
pub type Ino = u64;
/// The root's number.
pub const ROOT: Ino = 1;
/// The longest target of a symbolic link.
const TARGET_BYTES_MAX: usize = 4095;
/// So often a name is looked up that leads to something else each time.
pub(crate) const LOOKS: u32 = 1000;
/// Of so many nodes is remembered whether they are folders.
const KINDS: usize = 1 << 14;

/// How a namespace is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether nothing may be changed.
    pub read_only: bool,
    /// By how much at least, and at most, files grow at a time; `None`: the engine's measure.
    pub growth: Option<(u64, u64)>,
}

/// Who makes something: whose it is to be.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Maker {
    /// The user and the group of this process.
    pub fn this_process() -> Result<Maker> {
        match std::fs::metadata("/proc/self") {
            Ok(meta) => Ok(Maker { uid: meta.uid(), gid: meta.gid() }),
            Err(error) => refuse!(EIO, "/proc/self does not tell who this is: {error}"),
        }
    }
}

/// What a new node is to be.
#[derive(Clone, Copy)]
struct NewNode {
    kind: NodeKind,
    mode: u32,
    rdev: u64,
    maker: Maker,
}

/// What becomes of what has the name that a node is to get.
pub use engram::Clash;

/// What a file system has, and has left.
#[derive(Clone, Copy, Debug)]
pub struct Statfs {
    /// The bytes that it may have.
    pub size: u64,
    /// The bytes that are free.
    pub free: u64,
}

/// A namespace as a file system. Cheap to clone; every method may be called from any thread.
#[derive(Clone)]
pub struct Fs {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub namespace: Namespace,
    pub defaults: Defaults,
    read_only: bool,
    /// Numbers of nodes, with a bit that says whether they are folders; in one of many places each.
    kinds: Vec<AtomicU64>,
    /// The files that are open, by number.
    pub open: Mutex<HashMap<Ino, Weak<HandleCore>>>,
    pub shown: Shown,
    pub known: Known,
    pub listed: Listed,
}

/// The list of open files of a process that forks.
pub struct OpenFiles<'f> {
    _open: MutexGuard<'f, HashMap<Ino, Weak<HandleCore>>>,
}

/// What has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Member(Member),
    Shown(u64),
}

impl Fs {
    /// Shows a namespace.
    pub fn new(namespace: Namespace, options: Options) -> Result<Fs> {
        let (mode, gid) = mode_of(&namespace)?;
        if let Some((least, most)) = options.growth {
            namespace.set_file_growth(least, most)?;
        }
        let read_only = options.read_only || namespace.mode() == Mode::Read;
        let inner = Inner {
            namespace,
            defaults: Defaults { mode, gid },
            read_only,
            kinds: (0..KINDS).map(|_| AtomicU64::new(0)).collect(),
            open: Mutex::default(),
            shown: Shown::default(),
            known: Known::default(),
            listed: Listed::default(),
        };
        Ok(Fs { inner: Arc::new(inner) })
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.inner.namespace
    }

    /// Whether nothing may be changed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.inner.read_only
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.inner.read_only {
            refuse!(EROFS, "namespace {:?} is shown for reading", self.namespace().namespace());
        }
        if engram::in_batch() {
            refuse!(EBUSY, "this thread runs a batch, which cannot undo what a file system does");
        }
        Ok(())
    }

    /// The number of a member.
    pub fn ino_of(&self, member: Member) -> Ino {
        match member {
            Member::Group(gid) if gid == self.namespace().root() => ROOT,
            member => {
                self.note(member);
                member.id()
            }
        }
    }

    /// Remembers whether a node is a folder.
    pub(crate) fn note(&self, member: Member) {
        let word = member.id() << 1 | u64::from(matches!(member, Member::Group(_)));
        self.place(member.id()).store(word, Ordering::Relaxed);
    }

    /// Remembers that a node is a folder, which may have been removed since.
    pub fn note_folder(&self, ino: Ino) {
        if ino != ROOT && !shown::is_shown(ino) {
            self.note(Member::Group(ino));
        }
    }

    /// The folder that a folder is in; of the root, itself.
    pub fn folder_above(&self, ino: Ino) -> Result<Ino> {
        Ok(self.known_folder(ino, &mut self.moment()?)?.above)
    }

    fn place(&self, id: u64) -> &AtomicU64 {
        &self.inner.kinds[(id ^ id >> 20) as usize % KINDS]
    }

    /// What has a number.
    pub(crate) fn node(&self, ino: Ino) -> Result<Node> {
        if ino == ROOT {
            return Ok(Node::Member(Member::Group(self.namespace().root())));
        }
        if shown::is_shown(ino) {
            return Ok(Node::Shown(ino));
        }
        let word = self.place(ino).load(Ordering::Relaxed);
        // The upper bit is lost; what the engine says of the other kind tells.
        if word >> 1 == ino & (u64::MAX >> 1) {
            let is_group = word & 1 != 0;
            let member = if is_group { Member::Group(ino) } else { Member::Object(ino) };
            return Ok(Node::Member(member));
        }
        let member = match self.namespace().object(ino) {
            Err(error) if error.kind() == Kind::NotFound => match self.namespace().group(ino) {
                Ok(_) => Member::Group(ino),
                // It may be open, and have no name any more.
                Err(_) => Member::Object(ino),
            },
            found => found.map(|_| Member::Object(ino))?,
        };
        self.note(member);
        Ok(Node::Member(member))
    }

    /// The folder of a number.
    pub(crate) fn folder_of(&self, ino: Ino) -> Result<u64> {
        match self.node(ino)? {
            Node::Member(Member::Group(gid)) => Ok(gid),
            _ => refuse!(ENOTDIR, "node {ino:#x} is no folder"),
        }
    }

    /// The group of a folder, and a name in it, if members can have such names there.
    pub(crate) fn member_place<'n>(&self, parent: Ino, name: &'n [u8]) -> Option<(u64, &'n str)> {
        match self.node(parent) {
            Ok(Node::Member(Member::Group(gid))) => Some((gid, name_of(name).ok()?)),
            _ => None,
        }
    }

    /// Refuses to change what is only shown.
    pub(crate) fn real_folder(&self, ino: Ino) -> Result<u64> {
        match self.node(ino)? {
            Node::Member(Member::Group(gid)) => Ok(gid),
            Node::Member(_) => refuse!(ENOTDIR, "node {ino:#x} is no folder"),
            Node::Shown(_) => refuse!(EPERM, "what is below .engram is shown, and not changed"),
        }
    }

    /// The node of a name in a folder; `ENOENT` if there is none.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Stat> {
        match self.seek(parent, name)? {
            Some(stat) => Ok(stat),
            None => refuse!(ENOENT, "there is no {:?} in this folder", shown_name(name)),
        }
    }

    /// The node of a name in a folder, if there is one.
    pub(crate) fn seek(&self, parent: Ino, name: &[u8]) -> Result<Option<Stat>> {
        let name = name_of(name)?;
        let Node::Member(Member::Group(gid)) = self.node(parent)? else {
            return match self.lookup_shown(parent, name) {
                Err(error) if error.code == libc::ENOENT => Ok(None),
                found => found.map(Some),
            };
        };
        for look in 0.. {
            match self.namespace().find_counted(gid, name).map_err(gone_is_absent)? {
                // Another may have the name by now of what is gone since it was found.
                Some((found, names)) => match self.stat_counted(&found, names) {
                    Err(Errno { code: libc::ENOENT | libc::ESTALE, .. }) if look < LOOKS => {}
                    known => return known.map(Some),
                },
                None => return self.find_shown(parent, gid, name),
            }
        }
        unreachable!("it looks until it finds what is there, or nothing")
    }

    /// What is known of something found that has so many names.
    fn stat_counted(&self, found: &Found, names: u64) -> Result<Stat> {
        match found {
            Found::Group(gid) => self.stat_group(*gid),
            Found::Object(info) => {
                self.note(Member::Object(info.oid));
                Stat::of_object(info, names as u32, self.inner.defaults)
            }
        }
    }

    pub(crate) fn stat_object(&self, info: &ObjectInfo) -> Result<Stat> {
        self.note(Member::Object(info.oid));
        let nlink = self.namespace().count_names(info.oid).map_err(gone_is_stale)?;
        Stat::of_object(info, nlink as u32, self.inner.defaults)
    }

    pub(crate) fn stat_group(&self, gid: u64) -> Result<Stat> {
        let namespace = self.namespace();
        let info = namespace.group(gid).map_err(gone_is_stale)?;
        let times = namespace.group_times(gid)?;
        let ino = self.ino_of(Member::Group(gid));
        let groups = || Ok(namespace.count_groups(gid)?);
        Stat::of_group(&info, ino, times, groups, self.inner.defaults)
    }

    /// What is known of a node.
    pub fn stat(&self, ino: Ino) -> Result<Stat> {
        match self.node(ino)? {
            Node::Shown(ino) => self.stat_shown(ino),
            Node::Member(Member::Group(gid)) => self.stat_group(gid),
            Node::Member(Member::Object(oid)) => match self.namespace().object(oid) {
                Ok(info) => match self.stat_object(&info) {
                    // It has lost its last name in between.
                    Err(Errno { code: libc::ESTALE, message }) => self.stat_nameless(oid, &message),
                    known => known,
                },
                Err(error) if error.kind() == Kind::NotFound => {
                    self.stat_nameless(oid, error.message())
                }
                Err(error) => Err(error.into()),
            },
        }
    }

    /// What is known of a file that is open and has no name any more.
    fn stat_nameless(&self, oid: u64, why: &str) -> Result<Stat> {
        match self.open_core(oid) {
            Some(core) => core.stat_nameless(self.inner.defaults),
            None => Err(Errno::new(libc::ESTALE, why)),
        }
    }

    /// The file of this number, if it is open here.
    pub(crate) fn open_core(&self, ino: Ino) -> Option<Arc<HandleCore>> {
        let open = self.inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&ino).and_then(Weak::upgrade)
    }

    /// Before a fork: no other thread is amid a change of the list of open files until this is
    /// dropped, on both sides.
    pub fn before_fork(&self) -> OpenFiles<'_> {
        OpenFiles { _open: self.inner.open.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// What a new node in a folder gets: its properties' section.
    fn properties_of(&self, parent: u64, new: NewNode) -> Result<Vec<u8>> {
        let above = self.namespace().group(parent).map_err(gone_is_absent)?;
        properties_below(self.inner.defaults.of_group(&above)?, new)
    }

    /// Makes a node with a value: a file, a symbolic link, a special file.
    fn make(&self, parent: Ino, name: &[u8], new: NewNode, value: &[u8]) -> Result<Stat> {
        self.check_writable()?;
        let (name, gid) = (name_of(name)?, self.real_folder(parent)?);
        let properties = self.properties_of(gid, new)?;
        let object = NewObject { properties, ..NewObject::blob() };
        let index = Some(IndexMode::None);
        let placement = Placement { index, owner: Some(new.maker.uid), ..Placement::default() };
        let put = self.namespace().put(gid, name, &object, value, placement);
        let oid = put.map_err(gone_is_absent)?;
        self.note(Member::Object(oid));
        let info = self.namespace().object(oid).map_err(gone_is_stale)?;
        Stat::of_object(&info, 1, self.inner.defaults)
    }

    /// Makes an empty file, and opens it.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
        maker: Maker,
    ) -> Result<(Stat, Handle)> {
        self.check_writable()?;
        let above = self.namespace().group(self.real_folder(parent)?).map_err(gone_is_absent)?;
        let above = self.inner.defaults.of_group(&above)?;
        let handle = self.create_in(parent, above, name, mode, flags, maker)?;
        let info = self.namespace().object(handle.ino()).map_err(gone_is_stale)?;
        Ok((Stat::of_object(&info, 1, self.inner.defaults)?, handle))
    }

    /// The same in a folder of this mode and group, and nothing is said of the file.
    pub(crate) fn create_in(
        &self,
        parent: Ino,
        above: (u16, u32),
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
        maker: Maker,
    ) -> Result<Handle> {
        self.check_writable()?;
        let (name, gid) = (name_of(name)?, self.real_folder(parent)?);
        let new = NewNode { kind: NodeKind::File, mode, rdev: 0, maker };
        let properties = properties_below(above, new)?;
        let object = NewObject { properties, ..NewObject::blob() };
        let index = Some(IndexMode::None);
        let placement = Placement { index, owner: Some(maker.uid), ..Placement::default() };
        let made = self.namespace().create_file(gid, name, &object, placement, flags.write);
        Ok(self.made_file(made.map_err(gone_is_absent)?, flags))
    }

    /// Makes a file or a special file.
    pub fn mknod(
        &self,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u64,
        maker: Maker,
    ) -> Result<Stat> {
        match NodeKind::of_mode(mode) {
            Some(kind) if !matches!(kind, NodeKind::Folder | NodeKind::Symlink) => {
                self.make(parent, name, NewNode { kind, mode, rdev, maker }, b"")
            }
            _ => refuse!(EINVAL, "a node of the mode {mode:o} cannot be made so"),
        }
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], maker: Maker) -> Result<Stat> {
        if target.len() > TARGET_BYTES_MAX {
            refuse!(ENAMETOOLONG, "a target of {} bytes is too long", target.len());
        }
        if target.is_empty() {
            refuse!(ENOENT, "a symbolic link leads somewhere");
        }
        let new = NewNode { kind: NodeKind::Symlink, mode: 0o777, rdev: 0, maker };
        self.make(parent, name, new, target)
    }

    /// Where a symbolic link leads.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let oid = match self.node(ino)? {
            Node::Shown(ino) => return self.readlink_shown(ino),
            Node::Member(Member::Object(oid)) => oid,
            Node::Member(_) => refuse!(EINVAL, "a folder is no symbolic link"),
        };
        if self.stat(ino)?.kind != NodeKind::Symlink {
            refuse!(EINVAL, "node {ino:#x} is no symbolic link");
        }
        self.target_of(oid)
    }

    /// Where an object leads that is a symbolic link.
    pub(crate) fn target_of(&self, oid: u64) -> Result<Vec<u8>> {
        match self.namespace().payload(oid).map_err(gone_is_stale)?.0 {
            Payload::Inline(bytes) => Ok(bytes),
            Payload::Extent(view) => {
                let mut bytes = vec![0; view.len()];
                view.copy_out(0, &mut bytes);
                Ok(bytes)
            }
        }
    }

    /// Makes a folder.
    pub fn mkdir(&self, parent: Ino, name: &[u8], mode: u32, maker: Maker) -> Result<Stat> {
        self.check_writable()?;
        let (name, above) = (name_of(name)?, self.real_folder(parent)?);
        let new = NewNode { kind: NodeKind::Folder, mode, rdev: 0, maker };
        let properties = self.properties_of(above, new)?;
        let made = self.namespace().make_group(above, name, &properties, Some(maker.uid));
        self.stat_group(made.map_err(gone_is_absent)?)
    }

    /// Takes a name away from what is no folder.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.unlink_if(parent, name, None)
    }

    /// The same; `ENOENT` too if what the name leads to by then may not go.
    pub(crate) fn unlink_if(
        &self,
        parent: Ino,
        name: &[u8],
        may_go: Option<&Permit<'_>>,
    ) -> Result<()> {
        self.check_writable()?;
        let (name, gid) = (name_of(name)?, self.real_folder(parent)?);
        let unlinked = match may_go {
            Some(may_go) => self.namespace().unlink_if(gid, name, may_go),
            None => self.namespace().unlink(gid, name),
        };
        unlinked.map_err(|error| match error.kind() {
            Kind::Argument => Errno::new(libc::EISDIR, error.message()),
            _ => gone_is_absent(error),
        })
    }

    /// What protects an object, by what its record says.
    pub(crate) fn protection_of(&self, owner: u32, properties: &[u8]) -> Option<Protection> {
        let kept = self.inner.defaults.of_object(properties).ok()?;
        Some(Protection { kind: kept.kind, mode: kept.mode, uid: owner, gid: kept.gid })
    }

    /// Removes a folder that is empty.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.rmdir_seen(parent, name, None)
    }

    /// The same; `ENOENT` too if it is another folder than was seen by now.
    pub(crate) fn rmdir_seen(&self, parent: Ino, name: &[u8], was: Option<Ino>) -> Result<()> {
        self.check_writable()?;
        let (name, gid) = (name_of(name)?, self.real_folder(parent)?);
        let removed = match was {
            Some(was) => self.namespace().remove_empty_if(gid, name, was),
            None => self.namespace().remove_empty(gid, name),
        };
        removed.map_err(|error| match error.kind() {
            Kind::Argument => Errno::new(libc::ENOTDIR, error.message()),
            Kind::Exists => Errno::new(libc::ENOTEMPTY, error.message()),
            _ => gone_is_absent(error),
        })
    }

    /// Gives a node a further name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Stat> {
        self.check_writable()?;
        let (name, gid) = (name_of(name)?, self.real_folder(parent)?);
        let Node::Member(Member::Object(oid)) = self.node(ino)? else {
            refuse!(EPERM, "a folder has one name")
        };
        self.namespace().link(oid, gid, name).map_err(|error| match error.kind() {
            Kind::Argument => Errno::new(libc::EMLINK, error.message()),
            Kind::Unsupported => Errno::new(libc::EXDEV, error.message()),
            _ => gone_is_absent(error),
        })?;
        self.stat(ino)
    }

    /// Gives a node another name or folder, and says what becomes of what has that name.
    pub fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        clash: Clash,
    ) -> Result<()> {
        self.rename_seen(parent, name, new_parent, new_name, clash, None)
    }

    /// The same; `ENOENT` too if the names lead to something else than was seen by now.
    pub(crate) fn rename_seen(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        clash: Clash,
        was: Option<NamesSeen>,
    ) -> Result<()> {
        self.check_writable()?;
        let (old, from) = (name_of(name)?, self.real_folder(parent)?);
        let (new, to) = (name_of(new_name)?, self.real_folder(new_parent)?);
        // Also a further name of the same file, for which the engine has nothing to do.
        let has = |parent, name| self.namespace().lookup(parent, name).map_err(gone_is_absent);
        if clash == Clash::Refuse && has(to, new)?.is_some() && has(from, old)?.is_some() {
            refuse!(EEXIST, "there is {new:?} already, and it is to stay");
        }
        let renamed = match was {
            Some(was) => self.namespace().rename_over_if(from, old, to, new, clash, was),
            None => self.namespace().rename_over(from, old, to, new, clash),
        };
        renamed.map_err(|error| match error.kind() {
            Kind::Exists if clash == Clash::Replace => self.why_kept(from, old, to, new, &error),
            Kind::Unsupported => Errno::new(libc::EXDEV, error.message()),
            _ => gone_is_absent(error),
        })
    }

    /// Why something keeps its name that was to be replaced.
    fn why_kept(&self, from: u64, old: &str, to: u64, new: &str, error: &engram::Error) -> Errno {
        let folder = |parent, name| {
            matches!(self.namespace().lookup(parent, name), Ok(Some(Member::Group(_))))
        };
        let code = match (folder(from, old), folder(to, new)) {
            (true, true) => libc::ENOTEMPTY,
            (true, false) => libc::ENOTDIR,
            // A folder that holds what is to replace it is not empty.
            (false, true) if self.holds(to, new, from) => libc::ENOTEMPTY,
            (false, true) => libc::EISDIR,
            (false, false) => libc::EEXIST,
        };
        Errno::new(code, error.message())
    }

    /// Whether the folder of a name is the one of this number, or above it.
    fn holds(&self, parent: u64, name: &str, mut below: u64) -> bool {
        let Ok(Some(Member::Group(folder))) = self.namespace().lookup(parent, name) else {
            return false;
        };
        while below != folder {
            match self.namespace().group(below) {
                Ok(info) if info.parent != 0 => below = info.parent,
                _ => return false,
            }
        }
        true
    }

    /// Opens a file.
    pub fn open(&self, ino: Ino, flags: OpenFlags) -> Result<Handle> {
        if flags.write {
            self.check_writable()?;
        }
        let handle = match self.node(ino)? {
            Node::Shown(ino) => self.open_shown(ino, flags)?,
            Node::Member(Member::Group(_)) => refuse!(EISDIR, "a folder has no bytes"),
            Node::Member(Member::Object(oid)) => self.open_object(oid, flags)?,
        };
        if flags.truncate && flags.write {
            handle.set_size(0)?;
        }
        Ok(handle)
    }

    /// What the namespace's realms have, and have left.
    pub fn statfs(&self) -> Result<Statfs> {
        let space = self.namespace().space()?;
        // What was freed is there for whoever needs it.
        let free = space.size.saturating_sub(space.used);
        Ok(Statfs { size: space.size, free })
    }
}

/// What a new node gets in a folder of this mode and group.
fn properties_below(above: (u16, u32), new: NewNode) -> Result<Vec<u8>> {
    let (above_mode, above_gid) = above;
    let inherits = u32::from(above_mode) & libc::S_ISGID != 0;
    let mut mode = (new.mode & 0o7777) as u16;
    if inherits && new.kind == NodeKind::Folder {
        mode |= libc::S_ISGID as u16;
    }
    let gid = if inherits { above_gid } else { new.maker.gid };
    let now = now()?;
    Ok(PosixProperties { kind: new.kind, mode, gid, rdev: new.rdev }.section(now, now))
}

/// What is not where a name was looked for.
pub(crate) fn gone_is_absent(error: engram::Error) -> Errno {
    match error.kind() {
        Kind::NotFound => Errno::new(libc::ENOENT, error.message()),
        Kind::InvalidName => Errno::new(libc::EINVAL, error.message()),
        _ => error.into(),
    }
}

/// Now, in ns since 1970.
pub fn now() -> Result<i64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    match since.map(|since| i64::try_from(since.as_nanos())) {
        Ok(Ok(now)) => Ok(now),
        _ => refuse!(EOVERFLOW, "the clock is before 1970, or beyond 2262"),
    }
}

/// The namespace's mode and group.
fn mode_of(namespace: &Namespace) -> Result<(u16, u32)> {
    let info = namespace.info()?;
    Ok(((info.mode & 0o7777) as u16, info.group))
}
