//! A process becomes another program.
//!
//! What lies in a pool is not there for the kernel: a program is run from a copy in memory, or from
//! the mount of the pool, if there is one. A script is run by its interpreter, which is given the
//! script's path, and reads it by this library.
//!
//! *Limit*: a program that runs from memory finds no path of its own in `/proc/self/exe`; one that
//! looks beside itself for its libraries (`$ORIGIN`) does not find them.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_void};

use engram_fs::{Answer, Asked, At, Handle, NodeKind, OpenFlags};

use crate::calls::descriptors::refused;
use crate::calls::folder::{path_of, whole_path};
use crate::calls::{of_node, refused_call};
use crate::descriptors;
pub use crate::handing::List;
use crate::handing::{self, become_by, strings};
use crate::inside::is_inside;
use crate::places::{by_path, fail, inside};
use crate::process;
use crate::real::{errno, interpose, real, set_errno};
use crate::traced;
use crate::trees::{self, Opened, Tree};

pub type Text = *const c_char;

const HERE: c_int = libc::AT_FDCWD;
/// How many interpreters of interpreters the kernel follows.
const DEPTH: u32 = 5;
/// So much of its first line the kernel reads.
const LINE: usize = 256;
const SHELL: &CStr = c"/bin/sh";

/// Instead of a working folder of ours, and of descriptors, for a program that has no library.
const IN_A_MOUNT: &str = "a static program knows no prefix: start it in a mount of the pool";
const BY_PIPES: &str = "a static program has no descriptors of a pool: give it pipes, or a mount's";

/// What is to be run.
enum Program {
    /// The kernel's, from a folder.
    Kernel(c_int, CString),
    /// A script of this first line, by this path.
    Script(Vec<u8>, CString),
    /// A copy in memory.
    Copy(c_int),
}

/// Makes a copy in memory of a file. The thread is inside.
pub fn copy_of(file: &Handle, name: &CStr) -> engram_fs::Result<c_int> {
    const MFD_EXEC: c_uint = 0x10;
    let failed = || refused(errno(), "there is no memory for a copy of a program");
    let name = name.as_ptr();
    // SAFETY: a string, and flags; a kernel before 6.3 knows one of them less.
    let made = unsafe {
        match libc::memfd_create(name, libc::MFD_CLOEXEC | MFD_EXEC) {
            -1 if errno() == libc::EINVAL => libc::memfd_create(name, libc::MFD_CLOEXEC),
            fd => fd,
        }
    };
    if made < 0 {
        return Err(failed());
    }
    let fd = descriptors::hide(made);
    let mut piece = vec![0_u8; 1 << 20];
    let mut at = 0;
    loop {
        let count = file.read(at, &mut piece)?;
        if count == 0 {
            return Ok(fd);
        }
        let (from, offset) = (piece.as_ptr().cast::<c_void>(), at as i64);
        let written = real!(
            pwrite(fd: c_int, from: *const c_void, count: usize, offset: i64) -> isize
        );
        if written < 0 {
            drop_copy(fd);
            return Err(failed());
        }
        at += written as u64;
    }
}

/// The copy is not needed any more.
fn drop_copy(fd: c_int) {
    descriptors::forget(fd);
    real!(close(fd: c_int) -> c_int);
}

/// The program that a node is. The thread is inside.
fn program_at(
    tree: &Tree,
    opened: &Opened,
    asked: Asked<'_>,
    at: At<'_>,
    named: Option<&CStr>,
    follow: bool,
) -> Answer<Program> {
    let stat = asked.stat(at, follow)?;
    match stat.kind {
        NodeKind::File => {}
        NodeKind::Symlink => return Err(refused(libc::ELOOP, "no link is followed").into()),
        _ => return Err(refused(libc::EACCES, "what has this name is no file").into()),
    }
    asked.access(at, libc::X_OK, follow)?;
    let whole = CString::new(whole_path(tree, opened, &stat)?).unwrap_or_default();
    if let Some(mut path) = handing::mount_of(tree) {
        path.extend_from_slice(&whole.as_bytes()[tree.prefix.len()..]);
        return Ok(Program::Kernel(HERE, CString::new(path).unwrap_or_default()));
    }
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let file = opened.fs.open(stat.ino, flags)?;
    let mut line = vec![0; LINE];
    let count = file.read(0, &mut line)?;
    line.truncate(count);
    if line.starts_with(b"#!") {
        return Ok(Program::Script(line, named.unwrap_or(&whole).to_owned()));
    }
    let name = whole.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    Ok(Program::Copy(copy_of(&file, &CString::new(name).unwrap_or_default())?))
}

/// The program of a path; `None`: there is none, and the number of the error says why.
unsafe fn find(folder: c_int, path: Text, flags: c_int) -> Option<Program> {
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let found = RefCell::new(None);
    let keep = |program: Program| {
        found.replace(Some(program));
        0
    };
    // SAFETY: a string, as the program gave it.
    let name = unsafe { CStr::from_ptr(path) };
    let named = (folder == HERE || name.to_bytes().starts_with(b"/")).then_some(name);
    if name.is_empty()
        && flags & libc::AT_EMPTY_PATH != 0
        && let Some(held) = descriptors::get(folder)
    {
        let _: c_int = inside(|| {
            let (Some(tree), at) = (held.tree(), At::node(held.description().node())) else {
                return Err(refused(libc::ESTALE, "its prefix is not one of this program's"));
            };
            let found = program_at(tree, held.opened()?, held.asked()?, at, None, true);
            found.map(keep).map_err(of_node)
        });
        return found.into_inner();
    }
    // SAFETY: a string, as the program gave it.
    let _: c_int = unsafe {
        by_path(
            folder,
            path,
            |tree, opened, asked, at| program_at(tree, opened, asked, at, named, follow).map(keep),
            |folder, path| keep(Program::Kernel(folder, CStr::from_ptr(path).to_owned())),
        )
    };
    found.into_inner()
}

/// The interpreter of a script, and what it is given before the script.
fn interpreter(line: &[u8]) -> Option<(CString, Option<CString>)> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = line.get(2..)?;
    let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    let line = line[..end].trim_ascii();
    let cut = line.iter().position(is_space).unwrap_or(line.len());
    let (name, rest) = (&line[..cut], line[cut..].trim_ascii());
    if name.is_empty() {
        return None;
    }
    let rest = (!rest.is_empty()).then(|| CString::new(rest).ok()).flatten();
    Some((CString::new(name).ok()?, rest))
}

/// Tries to become a program; on return, the number of the error says why that failed.
unsafe fn become_one(
    folder: c_int,
    path: Text,
    arguments: &[Text],
    environment: List,
    flags: c_int,
    depth: u32,
) {
    // SAFETY: strings and lists, as the program gave them.
    unsafe {
        match find(folder, path, flags) {
            None => {}
            Some(Program::Kernel(folder, path)) => {
                if !may_be_in_folder(folder, &path) {
                    return;
                }
                let list = ended(arguments);
                plain(folder, path.as_ptr(), list.as_ptr(), environment, flags);
                let why = errno();
                if why == libc::ENOENT
                    && let Some(line) = first_line(folder, &path)
                    && interpreter(&line).is_some_and(|(name, _)| is_ours(&name))
                {
                    interpret(&line, &path, arguments, environment, depth);
                } else {
                    set_errno(why);
                }
            }
            Some(Program::Script(line, path)) => {
                interpret(&line, &path, arguments, environment, depth);
            }
            Some(Program::Copy(fd)) => {
                let path = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
                if may_be_in_folder(HERE, &path) {
                    let list = ended(arguments);
                    plain(fd, c"".as_ptr(), list.as_ptr(), environment, libc::AT_EMPTY_PATH);
                }
                let why = errno();
                drop_copy(fd);
                set_errno(why);
            }
        }
    }
}

unsafe fn interpret(line: &[u8], path: &CStr, arguments: &[Text], environment: List, depth: u32) {
    if depth >= DEPTH {
        return set_errno(libc::ELOOP);
    }
    let Some((name, given)) = interpreter(line) else { return set_errno(libc::ENOEXEC) };
    let mut list = vec![name.as_ptr()];
    list.extend(given.iter().map(|given| given.as_ptr()));
    list.push(path.as_ptr());
    list.extend(arguments.iter().skip(1));
    // SAFETY: strings and lists, as the program gave them.
    unsafe { become_one(HERE, name.as_ptr(), &list, environment, 0, depth + 1) };
}

fn is_ours(path: &CStr) -> bool {
    matches!(crate::places::locate(HERE, path), crate::places::Place::Ours(..))
}

/// A list, as C has it.
fn ended(list: &[Text]) -> Vec<Text> {
    [list, &[std::ptr::null()]].concat()
}

/// Whether there is something to be run; the number of the error says why there is nothing.
fn is_there(folder: c_int, path: Text) -> bool {
    let (mode, flags) = (libc::F_OK, 0);
    let done = real!(
        faccessat(folder: c_int, path: Text, mode: c_int, flags: c_int) -> c_int
    );
    done == 0 || !matches!(errno(), libc::ENOENT | libc::ENOTDIR)
}

/// Becomes a program of the kernel's, which is handed what it inherits.
unsafe fn plain(folder: c_int, path: Text, list: List, environment: List, flags: c_int) {
    if flags == 0 && !is_there(folder, path) {
        return;
    }
    // SAFETY: as the program gave them.
    unsafe {
        let call = |environment: List| kernels(folder, path, list, environment, flags);
        set_errno(become_by(environment, &call));
    }
}

/// The kernel's own call.
unsafe fn kernels(folder: c_int, path: Text, list: List, environment: List, flags: c_int) {
    if folder == HERE && flags == 0 {
        real!(execve(path: Text, list: List, environment: List) -> c_int);
    } else {
        // The C library has it since 2.34.
        let number = libc::SYS_execveat;
        real!(
            syscall(number: c_long, folder: c_int, path: Text, list: List, environment: List,
                flags: c_int) -> c_long
        );
    }
}

fn first_bytes(folder: c_int, path: &CStr, count: usize) -> Option<Vec<u8>> {
    let (path, flags) = (path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
    let fd = real!(openat(folder: c_int, path: Text, flags: c_int) -> c_int);
    if fd < 0 {
        return None;
    }
    let mut bytes = vec![0_u8; count];
    let into = bytes.as_mut_ptr().cast::<c_void>();
    let read = real!(read(fd: c_int, into: *mut c_void, count: usize) -> isize);
    real!(close(fd: c_int) -> c_int);
    bytes.truncate(usize::try_from(read).ok()?);
    Some(bytes)
}

fn first_line(folder: c_int, path: &CStr) -> Option<Vec<u8>> {
    first_bytes(folder, path, LINE).filter(|line| line.starts_with(b"#!"))
}

/// Notes that a program has descriptors of ours, and no library to know them by.
fn note_lost(folder: c_int, path: &CStr) {
    if traced::is_on()
        && descriptors::passes_any()
        && first_bytes(folder, path, 4096).is_some_and(|bytes| is_static(&bytes))
    {
        traced::refused("execve", BY_PIPES);
    }
}

/// Whether a program of the kernel's will be in the working folder, which is of ours: if it can
/// have this library, or there is a mount, in which the kernel goes there.
fn may_be_in_folder(folder: c_int, path: &CStr) -> bool {
    if process::folder().is_none() {
        note_lost(folder, path);
        return true;
    }
    if first_bytes(folder, path, 4096).is_none_or(|bytes| !is_static(&bytes)) {
        return true;
    }
    let Some((tree, ino)) = process::folder() else { return true };
    let Some(mut mounted) = handing::mount_of(tree) else {
        let _: c_int = fail(&refused_call("execve", IN_A_MOUNT));
        return false;
    };
    let to = RefCell::new(None);
    let done: c_int = inside(|| {
        let whole = path_of(tree, tree.open()?, ino)?;
        mounted.extend_from_slice(&whole[tree.prefix.len()..]);
        to.replace(CString::new(&*mounted).ok());
        Ok(0)
    });
    let Some(to) = to.into_inner().filter(|_| done == 0) else { return false };
    let to = to.as_ptr();
    real!(chdir(to: Text) -> c_int) == 0
}

/// Whether bytes begin a program of ELF that asks for no dynamic linker.
fn is_static(bytes: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let word = |at: usize, count: usize| {
        let bytes = bytes.get(at..at + count)?;
        Some(bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte)))
    };
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let (Some(table), Some(size), Some(count)) = (word(32, 8), word(54, 2), word(56, 2)) else {
        return false;
    };
    let kind = |at: u64| word((table + at * size) as usize, 4);
    (0..count).all(|at| kind(at).is_some_and(|kind| kind != u64::from(INTERPRETER)))
}

/// Becomes a program: the kernel's or one of ours.
///
/// # Safety
///
/// What `execveat` asks for.
pub unsafe fn execute(
    folder: c_int,
    path: Text,
    list: List,
    environment: List,
    flags: c_int,
) -> c_int {
    // SAFETY: as the program gave them.
    unsafe {
        if trees::all().is_empty() || is_inside() || path.is_null() {
            kernels(folder, path, list, environment, flags);
            return -1;
        }
        become_one(folder, path, &strings(list), environment, flags, 0);
    }
    -1
}

/// Becomes a program that is looked for in `PATH`; what the kernel takes for no program is given to
/// the shell, if `by_shell`.
///
/// # Safety
///
/// What `execvpe` asks for.
pub unsafe fn search(file: Text, list: List, environment: List, by_shell: bool) -> c_int {
    // SAFETY: as the program gave them.
    unsafe {
        if trees::all().is_empty() || is_inside() {
            return real!(execvpe(file: Text, list: List, environment: List) -> c_int);
        }
        let name = CStr::from_ptr(file).to_bytes();
        if name.is_empty() {
            set_errno(libc::ENOENT);
            return -1;
        }
        let arguments = strings(list);
        let run = |path: &CStr| {
            become_one(HERE, path.as_ptr(), &arguments, environment, 0, 0);
            if errno() == libc::ENOEXEC && by_shell {
                let mut list = vec![SHELL.as_ptr(), path.as_ptr()];
                list.extend(arguments.iter().skip(1));
                become_one(HERE, SHELL.as_ptr(), &list, environment, 0, 0);
            }
            errno()
        };
        let why = if name.contains(&b'/') { run(CStr::from_ptr(file)) } else { along(name, run) };
        set_errno(why);
    }
    -1
}

/// Tries each folder of `PATH`; why the program was not to be had, as the C library says it.
fn along(name: &[u8], run: impl Fn(&CStr) -> c_int) -> c_int {
    if name.len() > 255 {
        return libc::ENAMETOOLONG;
    }
    let path = trees::variable(c"PATH").unwrap_or_else(|| b"/bin:/usr/bin".to_vec());
    let mut is_denied = false;
    let mut why = libc::ENOENT;
    for folder in path.split(|byte| *byte == b':') {
        let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        let Ok(whole) = CString::new([folder, slash, name].concat()) else { continue };
        why = run(&whole);
        match why {
            libc::EACCES => is_denied = true,
            libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT => {}
            _ => return why,
        }
    }
    if is_denied { libc::EACCES } else { why }
}

interpose! {
    /// Becomes a program.
    [execve](path: Text, list: List, environment: List) -> c_int {
        // SAFETY: the program's promise.
        unsafe { execute(HERE, path, list, environment, 0) }
    }

    /// Becomes a program, with the environment as it is.
    [execv](path: Text, list: List) -> c_int {
        // SAFETY: the program's promise.
        unsafe { execute(HERE, path, list, handing::environment(), 0) }
    }

    /// Becomes a program, from a folder.
    [execveat](folder: c_int, path: Text, list: List, environment: List, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe { execute(folder, path, list, environment, flags) }
    }

    /// Becomes the program that is open.
    [fexecve](fd: c_int, list: List, environment: List) -> c_int {
        if fd < 0 || list.is_null() || environment.is_null() {
            set_errno(libc::EINVAL);
            return -1;
        }
        // SAFETY: the program's promise.
        unsafe { execute(fd, c"".as_ptr(), list, environment, libc::AT_EMPTY_PATH) }
    }

    /// Becomes a program that is looked for.
    [execvp](file: Text, list: List) -> c_int {
        // SAFETY: the program's promise.
        unsafe { search(file, list, handing::environment(), true) }
    }

    /// Becomes a program that is looked for, with an environment.
    [execvpe](file: Text, list: List, environment: List) -> c_int {
        // SAFETY: the program's promise.
        unsafe { search(file, list, environment, true) }
    }
}
