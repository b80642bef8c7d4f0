//! Where a path leads: to the kernel, or below a prefix.
//!
//! A path is absolute, or goes on from the program's working folder or from a descriptor; each of
//! these may be of ours or the kernel's. What is below a prefix is followed by the file system
//! there ([`engram_fs::At`]). A path that leads out again, by `..` or a link with an absolute
//! target, is looked at anew, with the count of the links that were followed; what it finds there
//! is what the call was asked for. A path of the kernel's may name what the program has open
//! ([`own`]): the call goes on with that, and not by a path.
//!
//! *Limit*: a symbolic link outside of the prefix that leads into it is the kernel's, which finds
//! nothing there.

pub mod own;

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int};

use engram_fs::{Answer, Asked, At, Beyond, Caller, Errno, Ino, Leaves, Unanswered};

use crate::descriptors;
use crate::handlers::Waiting;
use crate::inside::Inside;
use crate::process;
use crate::real::{errno, set_errno};
use crate::trees::{self, Opened, Tree};

/// What a call returns that fails.
pub trait Failing {
    /// That value.
    const FAILED: Self;
}

impl Failing for c_int {
    const FAILED: Self = -1;
}

impl Failing for isize {
    const FAILED: Self = -1;
}

impl Failing for i64 {
    const FAILED: Self = -1;
}

impl<T> Failing for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

/// Where a path leads.
pub enum Place<'p> {
    /// To the kernel: from this descriptor, by this path.
    Kernel(c_int, Cow<'p, CStr>),
    /// Below a prefix: to what the path names from a folder there.
    Ours(&'static Tree, Start, Cow<'p, [u8]>),
}

/// What a path goes on from, and how many links have led there.
#[derive(Clone, Copy)]
pub struct Start {
    from: Origin,
    links: u32,
}

#[derive(Clone, Copy)]
enum Origin {
    /// The prefix itself.
    Prefix,
    /// A folder below it.
    Folder(Ino),
    /// The path is that of a link of the kernel's, which leads to this node.
    Link(Ino),
}

impl Start {
    fn at_prefix() -> Start {
        Start { from: Origin::Prefix, links: 0 }
    }

    fn in_folder(ino: Ino) -> Start {
        Start { from: Origin::Folder(ino), links: 0 }
    }

    /// The folder that the path goes on from, or the node of the link; `None`: the prefix itself.
    pub fn node(self) -> Option<Ino> {
        match self.from {
            Origin::Prefix => None,
            Origin::Folder(ino) | Origin::Link(ino) => Some(ino),
        }
    }

    /// Whether the path is that of a link of the kernel's.
    pub fn is_link(self) -> bool {
        matches!(self.from, Origin::Link(_))
    }

    /// The node that the path names.
    fn at<'p>(self, opened: &Opened, path: &'p [u8]) -> At<'p> {
        let at = match self.from {
            Origin::Prefix => At::path(opened.root, path),
            Origin::Folder(ino) => At::path(ino, path),
            Origin::Link(ino) => At::through(path, ino),
        };
        at.after(self.links)
    }
}

/// What is left of an absolute path below a prefix; `.` for the prefix itself.
fn below<'p>(tree: &Tree, path: &'p [u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(&*tree.prefix)?;
    match rest.first() {
        None => Some(b"."),
        Some(b'/') => {
            let skipped = rest.iter().take_while(|byte| **byte == b'/').count();
            Some(if skipped == rest.len() { b"./" } else { &rest[skipped..] })
        }
        Some(_) => None,
    }
}

fn absolute(path: &[u8]) -> Option<(&'static Tree, &[u8])> {
    trees::all().iter().find_map(|tree| Some((tree, below(tree, path)?)))
}

/// An absolute path without `.`, `..` and doubled slashes, as far as a prefix.
fn cleaned(path: &[u8]) -> Option<(&'static Tree, Vec<u8>)> {
    let mut clean: Vec<u8> = Vec::with_capacity(path.len());
    let mut rest = path;
    loop {
        let skipped = rest.iter().take_while(|byte| **byte == b'/').count();
        rest = &rest[skipped..];
        if let Some(tree) = trees::all().iter().find(|tree| tree.prefix == clean) {
            let rest = if rest.is_empty() { b"." } else { rest };
            return Some((tree, rest.to_vec()));
        }
        if rest.is_empty() {
            return None;
        }
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        match &rest[..end] {
            b"." => {}
            b".." => {
                let above = clean.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                clean.truncate(above);
            }
            name => {
                clean.push(b'/');
                clean.extend_from_slice(name);
            }
        }
        rest = &rest[end..];
    }
}

/// Whether a path is longer than the kernel takes one, whatever of it is below a prefix.
fn is_too_long(path: &CStr) -> bool {
    path.count_bytes() >= libc::PATH_MAX as usize
}

/// Whether a path has names that a look at its beginning does not see through.
fn is_winding(path: &[u8]) -> bool {
    path.windows(2).any(|two| two == b"//" || two == b"/.") || path.starts_with(b"..")
}

/// Where a path leads from a descriptor.
pub fn locate(folder: c_int, path: &CStr) -> Place<'_> {
    let bytes = path.to_bytes();
    let kernel = || Place::Kernel(folder, Cow::Borrowed(path));
    if trees::all().is_empty() || crate::inside::is_inside() && bytes.first() != Some(&b'/') {
        return kernel();
    }
    let top = Start::at_prefix();
    if bytes.first() == Some(&b'/') {
        if let Some((tree, rest)) = absolute(bytes) {
            return Place::Ours(tree, top, Cow::Borrowed(rest));
        }
        if let Some((tree, start, rest)) = open_at(bytes) {
            return Place::Ours(tree, start, Cow::Borrowed(rest));
        }
        return match is_winding(bytes).then(|| cleaned(bytes)).flatten() {
            Some((tree, rest)) => Place::Ours(tree, top, Cow::Owned(rest)),
            None => kernel(),
        };
    }
    let from = if folder == libc::AT_FDCWD { process::folder() } else { descriptors::node(folder) };
    if let Some((tree, ino)) = from {
        return Place::Ours(tree, Start::in_folder(ino), Cow::Borrowed(bytes));
    }
    let above = match folder {
        libc::AT_FDCWD if process::is_near() || is_winding(bytes) => Some(process::kernel_folder()),
        libc::AT_FDCWD => None,
        folder => may_enter(bytes).then(|| path_of(folder)).flatten(),
    };
    let whole = above.map(|above| [&above, &b"/"[..], bytes].concat());
    match whole.and_then(|whole| cleaned(&whole)) {
        Some((tree, rest)) => Place::Ours(tree, top, Cow::Owned(rest)),
        None => kernel(),
    }
}

/// Where a path leads that names what this program has open, or its working folder, if that is of
/// ours; and what is left of the path, or all of it if it ends with the link itself.
fn open_at(path: &[u8]) -> Option<(&'static Tree, Start, &[u8])> {
    if crate::inside::is_inside() {
        return None;
    }
    let (own, rest) = own::named(path)?;
    let (tree, ino) = own.node()?;
    Some(match rest {
        b"" => (tree, Start { from: Origin::Link(ino), links: 0 }, path),
        rest => {
            let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
            let rest = if slashes == rest.len() { b"./" } else { &rest[slashes..] };
            (tree, Start::in_folder(ino), rest)
        }
    })
}

/// Whether a relative path may lead to a prefix from a folder of the kernel's: it begins with a
/// name that a prefix has, or winds.
fn may_enter(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/');
    let first = names.next().filter(|first| !first.is_empty());
    let has = |tree: &Tree| tree.prefix.split(|byte| *byte == b'/').any(|name| Some(name) == first);
    is_winding(path) || first.is_some() && trees::all().iter().any(has)
}

/// The path of a folder of the kernel's that is open.
fn path_of(folder: c_int) -> Option<Vec<u8>> {
    let before = errno();
    let found = std::fs::read_link(format!("/proc/self/fd/{folder}")).ok();
    set_errno(before);
    found.map(|path| path.into_os_string().into_encoded_bytes())
}

/// Where a path goes on that leads out of a tree.
fn beyond(tree: &'static Tree, leaves: Leaves) -> Place<'static> {
    let whole = match leaves.to {
        Beyond::Absolute(path) => {
            // It ends there, unless a link here has led to it: that goes on to what it names.
            if leaves.through_link
                && let Some((tree, start, rest)) = open_at(&path)
            {
                let start = Start { links: leaves.links, ..start };
                return Place::Ours(tree, start, Cow::Owned(rest.to_vec()));
            }
            path
        }
        Beyond::Above(rest) => {
            let above = tree.prefix.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            [&tree.prefix[..above], b"/", &rest].concat()
        }
    };
    let start = Start { links: leaves.links, ..Start::at_prefix() };
    if let Some((tree, rest)) = cleaned(&whole) {
        return Place::Ours(tree, start, Cow::Owned(rest));
    }
    kernels(whole)
}

/// Both places; a link of the kernel's beside a place of the kernel's is its, too.
fn of_one_side(places: [Place<'_>; 2]) -> [Place<'_>; 2] {
    match places {
        [one @ Place::Kernel(..), Place::Ours(_, link, path)] if link.is_link() => {
            [one, kernels(path.into_owned())]
        }
        [Place::Ours(_, link, path), other @ Place::Kernel(..)] if link.is_link() => {
            [kernels(path.into_owned()), other]
        }
        places => places,
    }
}

/// A path of the kernel's, from its root on.
fn kernels(whole: Vec<u8>) -> Place<'static> {
    // A name has no NUL.
    Place::Kernel(libc::AT_FDCWD, Cow::Owned(CString::new(whole).unwrap_or_default()))
}

/// Whether no program has a string at an address: the kernel says `EFAULT` then. Of another wrong
/// one this library does not know, and the program ends by a signal.
pub fn is_nowhere(path: *const c_char) -> bool {
    !(4096..1 << 47).contains(&path.addr())
}

/// Says with which number a call fails.
pub fn fail<T: Failing>(error: &Errno) -> T {
    set_errno(error.code);
    T::FAILED
}

/// Does what is asked of a file system, inside; the number of this thread's last error stays.
pub fn inside<T: Failing>(work: impl FnOnce() -> engram_fs::Result<T>) -> T {
    let Some(inside) = Inside::enter() else {
        set_errno(libc::EDEADLK);
        return T::FAILED;
    };
    let before = errno();
    let done = work();
    drop(inside);
    match done {
        Ok(value) => {
            set_errno(before);
            value
        }
        Err(error) => fail(&error),
    }
}

/// A call that names a path: answered below a prefix by `ours`, else by the kernel.
///
/// # Safety
///
/// `path` is a string, or null, which the kernel refuses.
pub unsafe fn by_path<T: Failing>(
    folder: c_int,
    path: *const c_char,
    ours: impl Fn(&'static Tree, &'static Opened, Asked<'_>, At<'_>) -> Answer<T>,
    kernel: impl Fn(c_int, *const c_char) -> T,
) -> T {
    // SAFETY: the caller's promise.
    unsafe { by_path_of(process::caller, folder, path, ours, kernel) }
}

/// The same for a caller that is asked for once the call is known to be of ours.
///
/// # Safety
///
/// As for [`by_path`].
pub unsafe fn by_path_of<T: Failing, C: std::borrow::Borrow<Caller>>(
    caller: impl Fn() -> C,
    folder: c_int,
    path: *const c_char,
    ours: impl Fn(&'static Tree, &'static Opened, Asked<'_>, At<'_>) -> Answer<T>,
    kernel: impl Fn(c_int, *const c_char) -> T,
) -> T {
    if is_nowhere(path) || trees::all().is_empty() {
        return kernel(folder, path);
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let is_long = is_too_long(path);
    let mut place = locate(folder, path);
    let mut waiting = Waiting::default();
    loop {
        let (tree, start, rest) = match place {
            Place::Kernel(folder, path) => return kernel(folder, path.as_ptr()),
            Place::Ours(..) if is_long => {
                set_errno(libc::ENAMETOOLONG);
                return T::FAILED;
            }
            Place::Ours(tree, start, rest) => (tree, start, rest),
        };
        let Some(inside) = Inside::enter() else {
            set_errno(libc::EDEADLK);
            return T::FAILED;
        };
        let before = errno();
        let caller = caller();
        let answer = match tree.open() {
            Ok(opened) => {
                let asked = opened.fs.asked_by(caller.borrow());
                ours(tree, opened, asked, start.at(opened, &rest))
            }
            Err(error) => Err(error.into()),
        };
        drop(inside);
        match answer {
            Ok(value) => {
                set_errno(before);
                return value;
            }
            Err(Unanswered::Refused(error)) => match from_removed(tree, start, &rest, &error) {
                Some(above) => place = above,
                None => return fail(&error),
            },
            Err(Unanswered::Leaves(leaves)) => place = beyond(tree, *leaves),
            Err(Unanswered::Expected) => {
                if !waiting.goes_on() {
                    return T::FAILED;
                }
                place = Place::Ours(tree, start, rest);
            }
        }
    }
}

/// Where a path goes on that leads up from the working folder, if that was removed: from the folder
/// that was above it.
fn from_removed(
    tree: &'static Tree,
    start: Start,
    path: &[u8],
    error: &Errno,
) -> Option<Place<'static>> {
    let rest = path.strip_prefix(b"..")?;
    let (_, folder) = process::folder().filter(|(at, _)| std::ptr::eq(*at, tree))?;
    let begins_there = matches!(start.from, Origin::Folder(ino) if ino == folder);
    if error.code != libc::ENOENT || !begins_there || !matches!(rest.first(), None | Some(b'/')) {
        return None;
    }
    let is_gone = || {
        let _inside = Inside::nested();
        let opened = tree.opened()?;
        Some(opened.fs.stat(folder).is_err_and(|why| why.code == libc::ESTALE))
    };
    let above = process::above();
    if above == folder || !is_gone()? {
        return None;
    }
    let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
    let rest = if slashes == rest.len() { &b"."[..] } else { &rest[slashes..] };
    Some(Place::Ours(tree, Start::in_folder(above), Cow::Owned(rest.to_vec())))
}

/// A call that names two paths: answered if both lead to one tree, else by the kernel, or not at
/// all.
///
/// # Safety
///
/// Both are strings, or null, which the kernel refuses.
pub unsafe fn by_two_paths(
    old: (c_int, *const c_char),
    new: (c_int, *const c_char),
    ours: impl Fn(Asked<'_>, At<'_>, At<'_>) -> Answer<()>,
    kernel: impl Fn((c_int, *const c_char), (c_int, *const c_char)) -> c_int,
) -> c_int {
    if trees::all().is_empty() {
        return kernel(old, new);
    }
    if is_nowhere(old.1) || is_nowhere(new.1) {
        set_errno(libc::EFAULT);
        return -1;
    }
    // SAFETY: the caller's promise.
    let [one, other] = unsafe { [CStr::from_ptr(old.1), CStr::from_ptr(new.1)] };
    let is_long = is_too_long(one) || is_too_long(other);
    let mut places = [locate(old.0, one), locate(new.0, other)];
    let mut waiting = Waiting::default();
    loop {
        places = of_one_side(places);
        let ((tree, from, one), (other, to, two)) = match &places {
            [Place::Kernel(a, old), Place::Kernel(b, new)] => {
                return kernel((*a, old.as_ptr()), (*b, new.as_ptr()));
            }
            _ if is_long => {
                set_errno(libc::ENAMETOOLONG);
                return -1;
            }
            [Place::Ours(tree, from, one), Place::Ours(other, to, two)] => {
                ((*tree, *from, one), (*other, *to, two))
            }
            _ => {
                set_errno(libc::EXDEV);
                return -1;
            }
        };
        if !std::ptr::eq(tree, other) {
            set_errno(libc::EXDEV);
            return -1;
        }
        let Some(inside) = Inside::enter() else {
            set_errno(libc::EDEADLK);
            return -1;
        };
        let before = errno();
        let answer = match tree.open() {
            Ok(opened) => {
                let asked = opened.fs.asked_by(process::caller());
                ours(asked, from.at(opened, one), to.at(opened, two))
            }
            Err(error) => Err(error.into()),
        };
        drop(inside);
        match answer {
            Ok(()) => {
                set_errno(before);
                return 0;
            }
            Err(Unanswered::Refused(error)) => return fail(&error),
            Err(Unanswered::Leaves(leaves)) => {
                let second = usize::from(leaves.second);
                places[second] = beyond(tree, *leaves);
            }
            Err(Unanswered::Expected) if waiting.goes_on() => {}
            Err(Unanswered::Expected) => return -1,
        }
    }
}
