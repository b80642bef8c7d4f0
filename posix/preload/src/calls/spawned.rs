//! Programs that are started beside this one.
//!
//! Within libc, `posix_spawn` does all by itself: what it opens, duplicates and closes in the child
//! passes this library by. So a child is forked here, does what it is to do by functions of this
//! library, and becomes the program. A pipe says why, if it does not.
//!
//! What is to be done is kept here, too, in order: the program's own `posix_spawn_file_actions_t`
//! has no more than the address of the list.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use libc::{mode_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::calls::programs::{List, Text, execute, search};
use crate::descriptors;
use crate::inside::is_inside;
use crate::real::{errno, interpose, real, set_errno};
use crate::trees;

/// Something to be done in the child.
pub enum Action {
    Close(c_int),
    Duplicate(c_int, c_int),
    Open(c_int, CString, c_int, mode_t),
    Go(CString),
    GoTo(c_int),
    CloseFrom(c_int),
    TakeTerminal(c_int),
}

pub type Actions = *const posix_spawn_file_actions_t;
pub type Attributes = *const posix_spawnattr_t;
type MutActions = *mut posix_spawn_file_actions_t;

/// Where the program's structure has the address of the list: behind two numbers.
unsafe fn place(actions: Actions) -> *mut *mut Vec<Action> {
    // SAFETY: the structure has 80 bytes, and is aligned for addresses.
    unsafe { actions.cast_mut().cast::<*mut Vec<Action>>().add(1) }
}

unsafe fn listed<'a>(actions: Actions) -> &'a [Action] {
    if actions.is_null() {
        return &[];
    }
    // SAFETY: null, or the list that was put there.
    unsafe { (*place(actions)).as_ref() }.map_or(&[], |list| list)
}

unsafe fn add(actions: MutActions, action: Action) -> c_int {
    // SAFETY: null, or the list that was put there.
    unsafe {
        let place = place(actions);
        if (*place).is_null() {
            *place = Box::into_raw(Box::default());
        }
        (**place).push(action);
    }
    0
}

/// Whether a number may be that of a descriptor.
fn is_number(fd: c_int) -> bool {
    // SAFETY: always sound.
    let most = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    fd >= 0 && i64::from(fd) < most
}

/// A path that a child will use.
unsafe fn kept(path: Text) -> CString {
    // SAFETY: a string, as the program gave it.
    unsafe { CStr::from_ptr(path) }.to_owned()
}

fn no_actions() -> bool {
    trees::all().is_empty()
}

/// Does one action; whether that worked.
unsafe fn act(action: &Action) -> bool {
    // SAFETY: numbers and strings; these are functions of this library.
    unsafe {
        match action {
            // What is not open is closed already.
            Action::Close(fd) => {
                libc::close(*fd);
                true
            }
            Action::Duplicate(fd, to) if fd == to => {
                let flags = libc::fcntl(*fd, libc::F_GETFD);
                flags >= 0 && libc::fcntl(*fd, libc::F_SETFD, flags & !libc::FD_CLOEXEC) >= 0
            }
            Action::Duplicate(fd, to) => libc::dup2(*fd, *to) >= 0,
            Action::Open(fd, path, flags, mode) => {
                libc::close(*fd);
                let new = libc::open(path.as_ptr(), *flags, *mode);
                if new == *fd || new < 0 {
                    return new >= 0;
                }
                let done = libc::dup2(new, *fd) >= 0;
                libc::close(new);
                done
            }
            Action::Go(path) => libc::chdir(path.as_ptr()) == 0,
            Action::GoTo(fd) => libc::fchdir(*fd) == 0,
            Action::CloseFrom(first) => {
                let (first, last) = ((*first).max(0) as c_uint, c_uint::MAX);
                super::descriptors::close_numbers(first, last, 0) == 0
            }
            Action::TakeTerminal(fd) => libc::tcsetpgrp(*fd, libc::getpgrp()) == 0,
        }
    }
}

/// Sets the child's signals, rank and ids, by the attributes, in libc's order.
unsafe fn prepare(attributes: Attributes, flags: c_int) -> bool {
    // SAFETY: attributes that were made by libc's functions, and places for what is in them.
    unsafe {
        let mut defaults: libc::sigset_t = std::mem::zeroed();
        if flags & libc::POSIX_SPAWN_SETSIGDEF != 0 {
            libc::posix_spawnattr_getsigdefault(attributes, &raw mut defaults);
        }
        for signal in 1..=64 {
            let mut now: libc::sigaction = std::mem::zeroed();
            let is_known = libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0;
            let is_caught = !matches!(now.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
            if is_known && (is_caught || libc::sigismember(&raw const defaults, signal) == 1) {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        if flags & (libc::POSIX_SPAWN_SETSCHEDULER | libc::POSIX_SPAWN_SETSCHEDPARAM) != 0 {
            let mut parameter: libc::sched_param = std::mem::zeroed();
            let mut policy = 0;
            libc::posix_spawnattr_getschedparam(attributes, &raw mut parameter);
            libc::posix_spawnattr_getschedpolicy(attributes, &raw mut policy);
            let done = if flags & libc::POSIX_SPAWN_SETSCHEDULER != 0 {
                libc::sched_setscheduler(0, policy, &raw const parameter)
            } else {
                libc::sched_setparam(0, &raw const parameter)
            };
            if done == -1 {
                return false;
            }
        }
        if flags & SET_SESSION != 0 && libc::setsid() == -1 {
            return false;
        }
        if flags & libc::POSIX_SPAWN_SETPGROUP != 0 {
            let mut group = 0;
            libc::posix_spawnattr_getpgroup(attributes, &raw mut group);
            if libc::setpgid(0, group) != 0 {
                return false;
            }
        }
        let resets = flags & libc::POSIX_SPAWN_RESETIDS != 0;
        !resets || libc::setegid(libc::getgid()) == 0 && libc::seteuid(libc::getuid()) == 0
    }
}

const SET_SESSION: c_int = 0x80;
const SET_CONTROL_GROUP: c_int = 0x100;

/// Goes to the control group of the attributes.
unsafe fn go_to_group(attributes: Attributes) -> bool {
    let mut group: c_int = -1;
    let into = &raw mut group;
    // SAFETY: a descriptor and a string; a number is written there.
    unsafe {
        real!(posix_spawnattr_getcgroup_np(attributes: Attributes, into: *mut c_int) -> c_int);
        let path = c"cgroup.procs".as_ptr();
        let fd = libc::openat(group, path, libc::O_WRONLY | libc::O_CLOEXEC);
        let done = libc::write(fd, c"0".as_ptr().cast(), 1) == 1;
        libc::close(fd);
        done
    }
}

/// What is to be started, and how.
pub struct Start<'a> {
    /// The program's path, or its name, which is looked for.
    pub path: Text,
    /// Whether it is looked for.
    pub searched: bool,
    /// What is done before.
    pub actions: &'a [Action],
    /// How it is started, or null.
    pub attributes: Attributes,
    /// Its arguments.
    pub list: List,
    /// Its environment.
    pub environment: List,
}

/// In the child: becomes the program, or tells why not.
unsafe fn child(start: &Start<'_>, before: &libc::sigset_t, tell: c_int) -> ! {
    let mut flags: libc::c_short = 0;
    // SAFETY: what the program gave, and places.
    unsafe {
        let mut mask = *before;
        if !start.attributes.is_null() {
            libc::posix_spawnattr_getflags(start.attributes, &raw mut flags);
        }
        let flags = c_int::from(flags);
        if flags & libc::POSIX_SPAWN_SETSIGMASK != 0 {
            libc::posix_spawnattr_getsigmask(start.attributes, &raw mut mask);
        }
        let ready = prepare(start.attributes, flags)
            && (flags & SET_CONTROL_GROUP == 0 || go_to_group(start.attributes))
            && start.actions.iter().all(|action| act(action));
        if ready {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            if start.searched {
                search(start.path, start.list, start.environment, false);
            } else {
                execute(libc::AT_FDCWD, start.path, start.list, start.environment, 0);
            }
        }
        let why = errno();
        let (from, size) = ((&raw const why).cast::<c_void>(), size_of::<c_int>());
        real!(write(tell: c_int, from: *const c_void, size: usize) -> isize);
        libc::_exit(127);
    }
}

fn close_hidden(fd: c_int) {
    descriptors::forget(fd);
    real!(close(fd: c_int) -> c_int);
}

/// Starts a program; the number of the error, or 0.
///
/// # Safety
///
/// What `posix_spawn` asks for.
pub unsafe fn spawn(pid: *mut pid_t, start: &Start<'_>) -> c_int {
    if is_inside() {
        // A signal handler amid a call of the engine.
        return libc::EDEADLK;
    }
    let (kept, mut ends) = (errno(), [-1_i32; 2]);
    let (to, flags) = (ends.as_mut_ptr(), libc::O_CLOEXEC);
    if real!(pipe2(to: *mut c_int, flags: c_int) -> c_int) != 0 {
        return errno();
    }
    let [hear, tell] = ends.map(descriptors::hide);
    // SAFETY: places for sets of signals; what the program gave is used in the child alone.
    let why = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let new = libc::fork();
        let failed = errno();
        if new == 0 {
            child(start, &before, tell);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        close_hidden(tell);
        if new < 0 { failed } else { heard(hear, new, pid) }
    };
    close_hidden(hear);
    set_errno(kept);
    why
}

/// Waits until the child has become the program, or has told why not.
unsafe fn heard(hear: c_int, new: pid_t, pid: *mut pid_t) -> c_int {
    let mut why: c_int = 0;
    let (into, size) = ((&raw mut why).cast::<c_void>(), size_of::<c_int>());
    let count = loop {
        let count = real!(read(hear: c_int, into: *mut c_void, size: usize) -> isize);
        if count >= 0 || errno() != libc::EINTR {
            break count;
        }
    };
    // SAFETY: a child of this process; the program's place for its number.
    unsafe {
        if count == size as isize {
            while libc::waitpid(new, std::ptr::null_mut(), 0) < 0 && errno() == libc::EINTR {}
            return why;
        }
        if !pid.is_null() {
            *pid = new;
        }
    }
    0
}

unsafe fn spawn_held(place: *mut c_int, start: &Start<'_>) -> c_int {
    let mut pid: pid_t = 0;
    // SAFETY: as the program gave it.
    unsafe {
        let why = spawn(&raw mut pid, start);
        if why != 0 {
            return why;
        }
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as c_int;
        if fd < 0 {
            return errno();
        }
        *place = fd;
    }
    0
}

interpose! {
    /// Nothing is to be done yet.
    [posix_spawn_file_actions_init](actions: MutActions) -> c_int {
        if no_actions() {
            return real!(posix_spawn_file_actions_init(actions: MutActions) -> c_int);
        }
        // SAFETY: the program's structure.
        unsafe { actions.write_bytes(0, 1) };
        0
    }

    /// The list is not needed any more.
    [posix_spawn_file_actions_destroy](actions: MutActions) -> c_int {
        if no_actions() {
            return real!(posix_spawn_file_actions_destroy(actions: MutActions) -> c_int);
        }
        // SAFETY: null, or the list that was put there.
        unsafe {
            let list = std::mem::replace(&mut *place(actions), std::ptr::null_mut());
            if !list.is_null() {
                drop(Box::from_raw(list));
            }
        }
        0
    }

    /// A number is to be closed.
    [posix_spawn_file_actions_addclose](actions: MutActions, fd: c_int) -> c_int {
        if no_actions() {
            return real!(
                posix_spawn_file_actions_addclose(actions: MutActions, fd: c_int) -> c_int
            );
        }
        // SAFETY: the program's promise.
        if is_number(fd) { unsafe { add(actions, Action::Close(fd)) } } else { libc::EBADF }
    }

    /// A number is to stand for what another does.
    [posix_spawn_file_actions_adddup2](actions: MutActions, fd: c_int, to: c_int) -> c_int {
        if no_actions() {
            return real!(
                posix_spawn_file_actions_adddup2(actions: MutActions, fd: c_int, to: c_int)
                    -> c_int
            );
        }
        if !is_number(fd) || !is_number(to) {
            return libc::EBADF;
        }
        // SAFETY: the program's promise.
        unsafe { add(actions, Action::Duplicate(fd, to)) }
    }

    /// A file is to be opened.
    [posix_spawn_file_actions_addopen](
        actions: MutActions, fd: c_int, path: Text, flags: c_int, mode: mode_t
    ) -> c_int {
        if no_actions() {
            return real!(
                posix_spawn_file_actions_addopen(actions: MutActions, fd: c_int, path: Text,
                    flags: c_int, mode: mode_t) -> c_int
            );
        }
        if !is_number(fd) {
            return libc::EBADF;
        }
        // SAFETY: the program's promise.
        unsafe { add(actions, Action::Open(fd, kept(path), flags, mode)) }
    }

    /// The child is to go to a folder.
    [posix_spawn_file_actions_addchdir_np](
        actions: MutActions, path: Text
    ) -> c_int {
        if no_actions() {
            return real!(
                posix_spawn_file_actions_addchdir_np(actions: MutActions, path: Text) -> c_int
            );
        }
        // SAFETY: the program's promise.
        unsafe { add(actions, Action::Go(kept(path))) }
    }

    /// The child is to go to a folder that is open.
    [posix_spawn_file_actions_addfchdir_np](
        actions: MutActions, fd: c_int
    ) -> c_int {
        if no_actions() {
            return real!(
                posix_spawn_file_actions_addfchdir_np(actions: MutActions, fd: c_int) -> c_int
            );
        }
        // SAFETY: the program's promise.
        if is_number(fd) { unsafe { add(actions, Action::GoTo(fd)) } } else { libc::EBADF }
    }

    /// All numbers from one on are to be closed.
    [posix_spawn_file_actions_addclosefrom_np](actions: MutActions, first: c_int) -> c_int {
        if no_actions() {
            return real!(
                posix_spawn_file_actions_addclosefrom_np(actions: MutActions, first: c_int)
                    -> c_int
            );
        }
        if !is_number(first) {
            return libc::EBADF;
        }
        // SAFETY: the program's promise.
        unsafe { add(actions, Action::CloseFrom(first)) }
    }

    /// The child is to have the terminal.
    [posix_spawn_file_actions_addtcsetpgrp_np](actions: MutActions, terminal: c_int) -> c_int {
        if no_actions() {
            return real!(
                posix_spawn_file_actions_addtcsetpgrp_np(actions: MutActions, terminal: c_int)
                    -> c_int
            );
        }
        if !is_number(terminal) {
            return libc::EBADF;
        }
        // SAFETY: the program's promise.
        unsafe { add(actions, Action::TakeTerminal(terminal)) }
    }

    /// Starts a program.
    [posix_spawn](
        pid: *mut pid_t, path: *const c_char, actions: Actions, attributes: Attributes,
        list: List, environment: List
    ) -> c_int {
        if no_actions() {
            return real!(
                posix_spawn(pid: *mut pid_t, path: *const c_char, actions: Actions,
                    attributes: Attributes, list: List, environment: List) -> c_int
            );
        }
        // SAFETY: the program's promise.
        unsafe {
            let actions = listed(actions);
            let start = Start { path, searched: false, actions, attributes, list, environment };
            spawn(pid, &start)
        }
    }

    /// Starts a program that is looked for.
    [posix_spawnp](
        pid: *mut pid_t, path: *const c_char, actions: Actions, attributes: Attributes,
        list: List, environment: List
    ) -> c_int {
        if no_actions() {
            return real!(
                posix_spawnp(pid: *mut pid_t, path: *const c_char, actions: Actions,
                    attributes: Attributes, list: List, environment: List) -> c_int
            );
        }
        // SAFETY: the program's promise.
        unsafe {
            let actions = listed(actions);
            let start = Start { path, searched: true, actions, attributes, list, environment };
            spawn(pid, &start)
        }
    }

    /// Starts a program, and gives a descriptor of its process.
    [pidfd_spawn](
        place: *mut c_int, path: *const c_char, actions: Actions, attributes: Attributes,
        list: List, environment: List
    ) -> c_int {
        if no_actions() {
            return real!(
                pidfd_spawn(place: *mut c_int, path: *const c_char, actions: Actions,
                    attributes: Attributes, list: List, environment: List) -> c_int
            );
        }
        // SAFETY: the program's promise.
        unsafe {
            let actions = listed(actions);
            let start = Start { path, searched: false, actions, attributes, list, environment };
            spawn_held(place, &start)
        }
    }

    /// The same for a program that is looked for.
    [pidfd_spawnp](
        place: *mut c_int, path: *const c_char, actions: Actions, attributes: Attributes,
        list: List, environment: List
    ) -> c_int {
        if no_actions() {
            return real!(
                pidfd_spawnp(place: *mut c_int, path: *const c_char, actions: Actions,
                    attributes: Attributes, list: List, environment: List) -> c_int
            );
        }
        // SAFETY: the program's promise.
        unsafe {
            let actions = listed(actions);
            let start = Start { path, searched: true, actions, attributes, list, environment };
            spawn_held(place, &start)
        }
    }
}
