//! What a program gets that this process becomes, or starts: descriptors, the working folder, and
//! this library.
//!
//! The new program is told by its environment. [`HANDED`] has the numbers of the descriptors by
//! which it finds the descriptions, and of the leases that keep its files until it has opened them;
//! [`FOLDER`] has the working folder, if that is of ours; [`LOCKS`] has what is locked. They are
//! taken out of the environment before the program's `main` sees it. `LD_PRELOAD` and the variables
//! of `engram run` are put in where the program has left them out: without this library its child
//! reached no file of ours.
//!
//! *A program that cannot have the library* (a static one, or one that runs as another user) is
//! given descriptors that can be neither read nor written. In a working folder of ours it would be
//! in another one without being told, and is refused: `ENOTSUP`.
//!
//! # Files without a name
//!
//! A file that was unlinked is there as long as somebody's lease lists it. This process's lease
//! goes with its descriptors when it becomes another program. So the program inherits the leases'
//! descriptors, and closes them when it has opened a pool, and in it all the files it was handed.
//! Where the filesystem below has no room for one lease more, it closes them first.

mod becoming;
mod locks;

use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

pub use self::becoming::{List, become_by};
use self::locks::LOCKS;
use crate::descriptions::{self, HANDED};
use crate::descriptors;
use crate::process::{self, Spin};
use crate::real::real;
use crate::trees::{self, variable};

/// By which a program that is started finds its working folder: the number of the tree, the
/// folder's, and that of the folder above.
pub const FOLDER: &CStr = c"ENGRAM_RUN_FOLDER";
/// Where the pools are mounted, too: a line for each of `ENGRAM_RUN`, which may be empty.
pub const MOUNTED: &CStr = c"ENGRAM_RUN_MOUNT";
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// What every program is to have in its environment, as this one had it.
struct Kept {
    /// `LD_PRELOAD` of this library alone.
    preload: CString,
    /// The library's file name.
    library: Vec<u8>,
    /// Variables of `engram run`.
    variables: Vec<CString>,
}

static KEPT: OnceLock<Kept> = OnceLock::new();
/// Leases of the program that was here before.
static LEFT: Spin<Vec<c_int>> = Spin::new(Vec::new());

/// The environment as it is.
pub fn environment() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the C library's; it is not written while it is read, as C asks of programs.
    unsafe { environ }
}

/// The strings of a list that ends with null; none, if there is no list.
///
/// # Safety
///
/// It is such a list.
pub unsafe fn strings(list: *const *const c_char) -> Vec<*const c_char> {
    let mut all = Vec::new();
    let mut next = list;
    // SAFETY: the caller's promise: it is read as far as its null.
    unsafe {
        while !next.is_null() && !(*next).is_null() {
            all.push(*next);
            next = next.add(1);
        }
    }
    all
}

/// Takes over what the program before has left, before `main`.
pub fn take_over() {
    KEPT.get_or_init(kept_now);
    if let Some(numbers) = variable(HANDED) {
        let numbers = String::from_utf8_lossy(&numbers);
        let numbers: Vec<Option<c_int>> = numbers.split(',').map(found).collect();
        let mut left = descriptors::adopt(&numbers);
        for fd in &left {
            close_on_exec(*fd, true);
        }
        LEFT.lock().append(&mut left);
    }
    if let Some((tree, ino, above)) = variable(FOLDER).and_then(|folder| folder_of(&folder)) {
        process::go_to(tree, ino, above);
    }
    if let Some(kept) = variable(LOCKS) {
        locks::take_over(&kept);
    }
    for name in [HANDED, FOLDER, LOCKS] {
        // SAFETY: a string; no other thread is there yet.
        unsafe { libc::unsetenv(name.as_ptr()) };
    }
}

fn folder_of(text: &[u8]) -> Option<(&'static trees::Tree, u64, u64)> {
    let mut numbers =
        std::str::from_utf8(text).ok()?.split(',').map_while(|text| text.parse().ok());
    let mut next = || numbers.next();
    let tree: u64 = next()?;
    Some((trees::all().get(tree as usize)?, next()?, next()?))
}

fn kept_now() -> Kept {
    // SAFETY: plain data, for which zeros are valid.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: an address of this library, and a place for what is told of it.
    let is_found = unsafe { libc::dladdr(take_over as *const _, &raw mut found) } != 0;
    let path = if is_found && !found.dli_fname.is_null() {
        // SAFETY: a string of the dynamic linker's, which stays.
        unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes()
    } else {
        b""
    };
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let whole = whole.as_os_str().as_bytes();
    let name = path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
    // SAFETY: a list of strings.
    let all = unsafe { strings(environment()) };
    // SAFETY: a string of the environment.
    let text = |entry: &*const c_char| unsafe { CStr::from_ptr(*entry) }.to_owned();
    let is_kept = |entry: &CString| {
        let bytes = entry.as_bytes();
        bytes.starts_with(b"ENGRAM_RUN") && !is_handed(bytes)
    };
    Kept {
        preload: CString::new([PRELOAD, whole].concat()).unwrap_or_default(),
        library: name,
        variables: all.iter().map(text).filter(is_kept).collect(),
    }
}

/// The name of a variable, with the sign that follows it.
fn name_of(entry: &[u8]) -> &[u8] {
    let end = entry.iter().position(|byte| *byte == b'=');
    &entry[..end.map_or(entry.len(), |at| at + 1)]
}

fn is_handed(entry: &[u8]) -> bool {
    let name = name_of(entry).strip_suffix(b"=");
    [HANDED, FOLDER, LOCKS].iter().any(|one| name == Some(one.to_bytes()))
}

/// Says whether a descriptor is closed when this process becomes another program.
pub fn close_on_exec(fd: c_int, closes: bool) {
    let (command, flags) = (libc::F_SETFD, c_long::from(if closes { libc::FD_CLOEXEC } else { 0 }));
    real!(fcntl(fd: c_int, command: c_int, flags: c_long) -> c_int);
}

/// A pool was opened: what was handed is opened, too, and the leases that kept it are let go of.
/// The thread is inside.
pub fn settle() {
    if LEFT.lock().is_empty() {
        return;
    }
    open_handed();
    let_go();
}

/// Opens what was handed. What cannot be opened is refused when it is used.
pub fn open_handed() {
    for (fd, hidden) in descriptors::in_range(0, u32::MAX) {
        if let Some(held) = descriptors::get(fd).filter(|_| !hidden) {
            let _ = held.body();
        }
    }
}

/// Lets go of the leases that keep what was handed; whether there were any.
pub fn let_go() -> bool {
    let left = std::mem::take(&mut *LEFT.lock());
    for fd in &left {
        let fd = *fd;
        descriptors::forget(fd);
        real!(close(fd: c_int) -> c_int);
    }
    !left.is_empty()
}

/// A descriptor, for a program that is to find it again, with the file that it stands for: a
/// program in between, without this library, may have closed it, and opened another by its number.
fn told(fd: c_int) -> String {
    let [device, inode] = descriptions::file_of(fd).unwrap_or_default();
    format!("{fd}:{device}:{inode}")
}

/// The descriptor that was told of so, if it stands for that file still.
fn found(text: &str) -> Option<c_int> {
    let mut numbers = text.splitn(3, ':');
    let fd = numbers.next()?.parse().ok()?;
    let mut next = || numbers.next()?.parse::<u64>().ok();
    let file = [next()?, next()?];
    (descriptions::file_of(fd) == Some(file)).then_some(fd)
}

/// The environment that a program is handed.
struct Handing {
    environment: Vec<*const c_char>,
    /// The strings of it that are ours.
    own: Vec<CString>,
}

impl Handing {
    /// Adds to an environment what the program finds there.
    ///
    /// # Safety
    ///
    /// `environment` is a list of strings that ends with null, and outlives this.
    unsafe fn new(
        environment: *const *const c_char,
        leases: &[c_int],
        locks: &locks::Handed,
    ) -> Handing {
        let mut handing = Handing { environment: Vec::new(), own: Vec::new() };
        if let Some(shared) = descriptions::there() {
            let numbers: Vec<String> =
                shared.handed().iter().chain(leases).map(|fd| told(*fd)).collect();
            handing.add(HANDED, &numbers.join(","));
        }
        if let Some(named) = locks.named() {
            handing.add(LOCKS, &named);
        }
        // SAFETY: the caller's promise.
        handing.fill(&unsafe { strings(environment) });
        handing
    }

    fn fill(&mut self, given: &[*const c_char]) {
        // SAFETY: strings, as the program gave them.
        let bytes = |entry: &*const c_char| unsafe { CStr::from_ptr(*entry) }.to_bytes();
        if let Some((tree, ino)) = process::folder() {
            self.add(FOLDER, &format!("{},{ino},{}", tree.number, process::above()));
        }
        let kept = KEPT.get_or_init(kept_now);
        let mut is_preloaded = false;
        for entry in given.iter().filter(|entry| !is_handed(bytes(entry))) {
            let Some(value) = bytes(entry).strip_prefix(PRELOAD) else {
                self.environment.push(*entry);
                continue;
            };
            is_preloaded = true;
            let has_it = value.windows(kept.library.len()).any(|part| part == kept.library);
            if has_it {
                self.environment.push(*entry);
            } else {
                let both = [kept.preload.as_bytes(), b":", value].concat();
                self.own.extend(CString::new(both));
            }
        }
        if !is_preloaded {
            self.environment.push(kept.preload.as_ptr());
        }
        for entry in &kept.variables {
            let name = name_of(entry.as_bytes());
            if !given.iter().any(|one| bytes(one).starts_with(name)) {
                self.environment.push(entry.as_ptr());
            }
        }
        self.environment.extend(self.own.iter().map(|entry| entry.as_ptr()));
        self.environment.push(std::ptr::null());
    }

    fn add(&mut self, name: &CStr, value: &str) {
        let entry = [name.to_bytes(), b"=", value.as_bytes()].concat();
        self.own.extend(CString::new(entry));
    }

    /// The environment, which ends with null.
    fn environment(&self) -> *const *const c_char {
        self.environment.as_ptr()
    }
}

/// Where the folder is that a tree's pool is mounted at, if it is.
pub fn mount_of(tree: &trees::Tree) -> Option<Vec<u8>> {
    let all = variable(MOUNTED)?;
    let folder = all.split(|byte| *byte == b'\n').nth(tree.number as usize)?;
    (!folder.is_empty()).then(|| folder.to_vec())
}
