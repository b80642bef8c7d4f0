//! Signal handlers of the program, which run between calls of ours and not amid them.
//!
//! A handler may call nearly everything that goes by paths and descriptors, whatever it interrupts.
//! Amid a call of ours it cannot be answered: this thread may hold a lock of the engine's. So the
//! kernel is given one function for all signals, which calls the program's handler.
//!
//! *Protocol*: where the thread is inside, or holds a lock of this library's, the function gives
//! the signal back to the kernel for this thread, and has all signals blocked that can wait, as of
//! its own return. When the call is done, the mask is again what it was, and the kernel brings what
//! has come meanwhile: each with what is told of it, on the stack that is meant for it. A handler
//! that leaves by `siglongjmp` leaves nothing of the engine's behind.
//!
//! A handler may have come amid the program's own `malloc`: what this library needs meanwhile it
//! has from elsewhere (`memory.c`).
//!
//! What the thread itself has caused, such as `SIGSEGV`, cannot wait. A call of ours in its handler
//! gets `EDEADLK`, if the thread was inside.

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use libc::{siginfo_t, sigset_t, ucontext_t};

use crate::inside::is_inside;
use crate::real::{real, set_errno};
use crate::trees;

/// So many signals Linux has, and one.
const SIGNALS: usize = 65;
/// What is caused by the thread itself, or ends it.
const AT_ONCE: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];
/// What a handler is told and done with, which the kernel does not see as the program set it.
const FLAGS: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND;

/// What the program has set for a signal.
struct Set {
    handler: AtomicUsize,
    wants_told: AtomicBool,
    is_once: AtomicBool,
}

static SET: [Set; SIGNALS] = [const {
    Set {
        handler: AtomicUsize::new(libc::SIG_DFL),
        wants_told: AtomicBool::new(false),
        is_once: AtomicBool::new(false),
    }
}; SIGNALS];

unsafe extern "C" {
    /// Says where on the stack the thread's handler begins, or 0; what it was before.
    fn engram_handling(frame: usize) -> usize;
    fn engram_memory_begin();
}

/// Finds what a handler may need, before the program's `main`.
pub fn begin() {
    // SAFETY: always sound.
    unsafe { engram_memory_begin() };
}

thread_local! {
    /// How many locks of this library's the thread holds.
    static LOCKS: Cell<u32> = const { Cell::new(0) };
    /// Whether a signal waits until the thread is outside; then the mask is this again.
    static WAITS: Cell<bool> = const { Cell::new(false) };
    static MASK: Cell<MaybeUninit<sigset_t>> = const { Cell::new(MaybeUninit::uninit()) };
    /// Whether no signal is put off: the thread is about to become another program.
    static RUNS_AT_ONCE: Cell<bool> = const { Cell::new(false) };
    /// Signals whose handlers have run, a bit each.
    static RAN: Cell<u64> = const { Cell::new(0) };
}

/// The thread holds a lock, or one more.
pub fn hold() {
    LOCKS.set(LOCKS.get() + 1);
}

/// The thread holds one lock less.
pub fn let_go() {
    LOCKS.set(LOCKS.get() - 1);
    resume();
}

/// Whether handlers run at once from now on, whatever the thread holds: what is put off has all
/// signals blocked, and so would the program that the thread becomes.
pub fn run_at_once(is_so: bool) {
    RUNS_AT_ONCE.set(is_so);
}

/// What has waited comes now, if the thread is outside.
pub fn resume() {
    if WAITS.get() && LOCKS.get() == 0 && !is_inside() {
        WAITS.set(false);
        let mask = MASK.get();
        let (how, mask, nothing) = (libc::SIG_SETMASK, mask.as_ptr(), std::ptr::null_mut());
        real!(
            pthread_sigmask(how: c_int, mask: *const sigset_t, nothing: *mut sigset_t) -> c_int
        );
    }
}

/// All signals that can wait.
fn waiting() -> sigset_t {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: a place for a set, which is filled before anything is taken out.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in AT_ONCE {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        all.assume_init()
    }
}

/// The signal comes again when the thread is outside.
///
/// # Safety
///
/// Both are what the kernel has given a handler.
unsafe fn put_off(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let all = waiting();
    let (how, mask, nothing) = (libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    real!(pthread_sigmask(how: c_int, mask: *const sigset_t, nothing: *mut sigset_t) -> c_int);
    // SAFETY: the caller's promise: as this handler returns, the mask is that of the context.
    unsafe {
        let then = &raw mut (*context.cast::<ucontext_t>()).uc_sigmask;
        if !WAITS.replace(true) {
            MASK.set(MaybeUninit::new(then.read()));
        }
        then.write(all);
    }
    // SAFETY: always sound.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    let number = libc::SYS_rt_tgsigqueueinfo;
    let queued = real!(
        syscall(number: c_long, process: c_int, thread: c_int, signal: c_int,
            info: *mut siginfo_t) -> c_long
    );
    if queued != 0 {
        // There is no room for what is told of it.
        let number = libc::SYS_tgkill;
        real!(
            syscall(number: c_long, process: c_int, thread: c_int, signal: c_int) -> c_long
        );
    }
}

type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// Runs the program's handler, or puts the signal off.
unsafe extern "C-unwind" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let before = crate::real::errno();
    // SAFETY: what the kernel tells of the signal.
    let is_caused = AT_ONCE.contains(&signal) && unsafe { (*info).si_code } > 0;
    let can_wait = !is_caused && signal != libc::SIGABRT;
    if can_wait && !RUNS_AT_ONCE.get() && (is_inside() || LOCKS.get() > 0) {
        // SAFETY: what the kernel has given.
        unsafe { put_off(signal, info, context) };
        crate::real::set_errno(before);
        return;
    }
    let set = &SET[signal as usize];
    RAN.set(RAN.get() | 1 << (signal - 1));
    let handler = set.handler.load(Ordering::Relaxed);
    if handler <= libc::SIG_IGN {
        return;
    }
    if set.is_once.load(Ordering::Relaxed) {
        reset(signal);
    }
    // SAFETY: the program's function, of one argument, or of these three.
    let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
    // SAFETY: as the kernel would call it.
    unsafe {
        let before = engram_handling((&raw const before).addr());
        handler(signal, info, context);
        engram_handling(before);
    }
}

fn own() -> usize {
    handle as *const () as usize
}

/// The signal does what it does usually.
fn reset(signal: c_int) {
    let mut action = action_of(signal);
    action.sa_sigaction = libc::SIG_DFL;
    let (new, old) = (&raw const action, std::ptr::null_mut());
    real!(
        sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int
    );
}

/// What the kernel has for a signal.
fn action_of(signal: c_int) -> libc::sigaction {
    // SAFETY: plain data, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let (new, old) = (std::ptr::null(), &raw mut action);
    real!(
        sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int
    );
    action
}

/// Whether a handler has run, since this was asked last, after which no call goes on.
pub fn interrupts() -> bool {
    let ran = RAN.replace(0);
    (1..SIGNALS as c_int)
        .filter(|signal| ran & 1 << (signal - 1) != 0)
        .any(|signal| action_of(signal).sa_flags & libc::SA_RESTART == 0)
}

/// Between two looks whether what a call waits for is there: at first, and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(5));

/// A call that waits for something, and looks again and again whether it is there.
#[derive(Default)]
pub struct Waiting {
    last: Option<Duration>,
}

impl Waiting {
    /// Lets a moment pass between two looks, longer each time. `false`: since the first look a
    /// handler has run after which the call does not go on, and it fails with `EINTR`.
    pub fn goes_on(&mut self) -> bool {
        let interrupted = interrupts();
        let next = match self.last {
            Some(_) if interrupted => {
                set_errno(libc::EINTR);
                return false;
            }
            Some(last) => (last * 2).min(LOOK_AGAIN.1),
            None => LOOK_AGAIN.0,
        };
        self.last = Some(next);
        let time = libc::timespec { tv_sec: 0, tv_nsec: next.subsec_nanos().into() };
        // SAFETY: a time; the rest is not asked for.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
        true
    }
}

/// Whether a program's handler is called by ours.
fn is_program(handler: usize) -> bool {
    // SIG_DFL, SIG_IGN, SIG_HOLD and SIG_ERR are no functions.
    handler > 2 && handler != libc::SIG_ERR
}

/// Sets what a signal does, or asks for it.
///
/// # Safety
///
/// As for `sigaction`.
pub unsafe fn set(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let kernel = |new: *const libc::sigaction| {
        real!(
            sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction)
                -> c_int
        )
    };
    let set = usize::try_from(signal).ok().and_then(|signal| SET.get(signal));
    let Some(set) = set.filter(|_| !trees::all().is_empty()) else { return kernel(new) };
    let known = (
        set.handler.load(Ordering::Relaxed),
        set.wants_told.load(Ordering::Relaxed),
        set.is_once.load(Ordering::Relaxed),
    );
    let put = |(handler, told, once): (usize, bool, bool)| {
        set.wants_told.store(told, Ordering::Relaxed);
        set.is_once.store(once, Ordering::Relaxed);
        set.handler.store(handler, Ordering::Relaxed);
    };
    // SAFETY: null, or what the program gives.
    let given = unsafe { new.as_ref() }.copied();
    let done = match given.filter(|given| is_program(given.sa_sigaction)) {
        None => kernel(new),
        Some(mut given) => {
            let flags = given.sa_flags;
            put((
                given.sa_sigaction,
                flags & libc::SA_SIGINFO != 0,
                flags & libc::SA_RESETHAND != 0,
            ));
            given.sa_sigaction = own();
            given.sa_flags = flags & !FLAGS | libc::SA_SIGINFO;
            let done = kernel(&raw const given);
            if done != 0 {
                put(known);
            }
            done
        }
    };
    // SAFETY: null, or a place of the program's.
    if let Some(old) = unsafe { old.as_mut() }
        && done == 0
        && old.sa_sigaction == own()
    {
        old.sa_sigaction = known.0;
        let (told, once) = (c_int::from(known.1), c_int::from(known.2));
        let flags = (told * libc::SA_SIGINFO) | (once * libc::SA_RESETHAND);
        old.sa_flags = (old.sa_flags & !FLAGS) | flags;
    }
    done
}

/// The same by a function that is given a handler alone, and says which was there.
pub fn set_by(
    signal: c_int,
    handler: usize,
    kernel: impl FnOnce(usize) -> usize,
    once: bool,
) -> usize {
    let set = usize::try_from(signal).ok().and_then(|signal| SET.get(signal));
    let Some(set) = set.filter(|_| !trees::all().is_empty()) else { return kernel(handler) };
    let known = set.handler.load(Ordering::Relaxed);
    let is_ours = is_program(handler);
    let was = kernel(if is_ours { own() } else { handler });
    if is_ours && was != libc::SIG_ERR {
        set.wants_told.store(false, Ordering::Relaxed);
        set.is_once.store(once, Ordering::Relaxed);
        set.handler.store(handler, Ordering::Relaxed);
        let mut action = action_of(signal);
        action.sa_flags = action.sa_flags & !FLAGS | libc::SA_SIGINFO;
        let (new, old) = (&raw const action, std::ptr::null_mut());
        real!(
            sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction)
                -> c_int
        );
    }
    if was == own() { known } else { was }
}
