//! Keepers: what keeps the locks of descriptions that several processes have.
//!
//! A lock of a description goes with its last descriptor, in whichever process that is. The kernel
//! sees to it where each process that has the description has a descriptor of its taker
//! ([`engram_fs::Locks::share`]). But a process may take the lock long after it was forked, and end
//! (`exec 9>lock; flock 9` in a shell): its parent has no such descriptor.
//!
//! So the description has a *keeper* before there are two processes: a socket that is connected to
//! itself. The first process that asks for a lock sends the taker's descriptor to it. The message
//! stays there: the others look at it (`MSG_PEEK`), and each look gives a copy of the descriptor.
//! With the keeper's last descriptor the kernel drops the message, and what is in it.
//!
//! A fork makes the keepers that the files of its process lack; each takes some microseconds, once.
//! A program that is started is handed them ([`crate::handing`]).
//!
//! *Protocol*: a process looks whether there is a taker, and sends one if there is none, under the
//! description's lock. A taker that was sent stays as long as the keeper.
//!
//! Nobody else can send to a keeper: a socket that is connected takes messages of its peer alone.
//! What has come before it was connected is thrown away.
//!
//! *Limit*: a description that comes through a socket comes without its keeper: the process locks
//! for itself. So it does where its parent shared more files than a quarter of the descriptors that
//! a process may have.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use engram_fs::{Errno, Forking, Result, Taker};
use libc::{cmsghdr, msghdr, sa_family_t, sockaddr, socklen_t};

use crate::calls::locks;
use crate::descriptions::{self, DESCRIPTIONS, What};
use crate::descriptors::{self, Held};
use crate::process::Spin;
use crate::real::{errno, real};
use crate::trees::Tree;

/// Room for a descriptor in a message.
type Room = [u64; 4];
const FD: usize = size_of::<c_int>();

/// By description: 0, or the keeper's descriptor and one.
static KEEPERS: [AtomicI32; DESCRIPTIONS] = [const { AtomicI32::new(0) }; DESCRIPTIONS];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Who makes a description's first keeper: of two, one would keep what the other lacks.
static MAKING: Spin<()> = Spin::new(());

/// A keeper, which goes when this is dropped.
pub struct Keeper(c_int);

impl Drop for Keeper {
    fn drop(&mut self) {
        let fd = self.0;
        descriptors::forget(fd);
        real!(close(fd: c_int) -> c_int);
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Keeper {
    /// Makes one; `None`: the kernel gives none, or there are enough.
    fn new() -> Option<Keeper> {
        if COUNT.load(Ordering::Relaxed) >= descriptors::high() as usize / 2 {
            return None;
        }
        // SAFETY: numbers alone.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return None;
        }
        let keeper = Keeper::of(descriptors::hide(fd));
        keeper.connect().then_some(keeper)
    }

    fn of(fd: c_int) -> Keeper {
        COUNT.fetch_add(1, Ordering::Relaxed);
        Keeper(fd)
    }

    /// Connects it to itself, by a name that the kernel chooses.
    fn connect(&self) -> bool {
        let fd = self.0;
        // SAFETY: plain data, for which zeros are valid.
        let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        name.sun_family = libc::AF_UNIX as sa_family_t;
        let at = (&raw mut name).cast::<sockaddr>();
        let mut size = size_of::<sa_family_t>() as socklen_t;
        if real!(bind(fd: c_int, at: *mut sockaddr, size: socklen_t) -> c_int) != 0 {
            return false;
        }
        size = size_of::<libc::sockaddr_un>() as socklen_t;
        // SAFETY: places for the name and for its size.
        let is_named = unsafe { libc::getsockname(fd, at, &raw mut size) } == 0;
        let connect = || real!(connect(fd: c_int, at: *mut sockaddr, size: socklen_t) -> c_int);
        let is_connected = is_named && connect() == 0;
        // What somebody else has sent meanwhile, by the name.
        while is_connected && self.throws_away() {}
        is_connected
    }

    /// Throws a message away, and what is in it; whether there was one.
    fn throws_away(&self) -> bool {
        let (fd, flags, mut byte) = (self.0, libc::MSG_DONTWAIT, 0_u8);
        let (to, size) = ((&raw mut byte).cast::<c_void>(), 1_usize);
        real!(recv(fd: c_int, to: *mut c_void, size: usize, flags: c_int) -> isize) >= 0
    }

    /// Has it keep a taker's descriptor.
    fn keep(&self, taker: c_int) -> Result<()> {
        let (fd, flags) = (self.0, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        let mut room: Room = [0; 4];
        let sent = with_message(&mut room, |message| {
            let message: *const msghdr = message;
            // SAFETY: there is room for a head and a descriptor behind it.
            unsafe {
                let head: *mut cmsghdr = libc::CMSG_FIRSTHDR(message);
                (*head).cmsg_level = libc::SOL_SOCKET;
                (*head).cmsg_type = libc::SCM_RIGHTS;
                (*head).cmsg_len = libc::CMSG_LEN(FD as u32) as _;
                libc::CMSG_DATA(head).cast::<c_int>().write_unaligned(taker);
            }
            real!(sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize)
        });
        if sent == 1 { Ok(()) } else { Err(no_lock("the kernel keeps no more of them")) }
    }

    /// A copy of the taker's descriptor that it keeps. The thread is inside.
    fn kept(&self) -> Result<Option<OwnedFd>> {
        let fd = self.0;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        let (mut room, mut found): (Room, c_int) = ([0; 4], -1);
        let size = with_message(&mut room, |message| {
            let size = real!(recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize);
            // SAFETY: what the kernel has filled.
            unsafe {
                let head = libc::CMSG_FIRSTHDR(message);
                if size > 0 && !head.is_null() && (*head).cmsg_type == libc::SCM_RIGHTS {
                    found = libc::CMSG_DATA(head).cast::<c_int>().read_unaligned();
                }
            }
            size
        });
        if size < 0 && errno() == libc::EAGAIN {
            return Ok(None);
        }
        if found < 0 {
            return Err(no_lock("this process may open no more files"));
        }
        // SAFETY: a descriptor that has just come.
        Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptors::hide(found)) }))
    }
}

fn no_lock(why: &str) -> Errno {
    Errno::new(libc::ENOLCK, why)
}

/// Does something with a message of a byte, and room for a descriptor.
fn with_message<T>(room: &mut Room, work: impl FnOnce(&mut msghdr) -> T) -> T {
    let mut byte = 0_u8;
    let at = (&raw mut byte).cast::<c_void>();
    let mut bytes = libc::iovec { iov_base: at, iov_len: 1 };
    // SAFETY: plain data, for which zeros are valid.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut bytes, 1);
    message.msg_control = room.as_mut_ptr().cast();
    // SAFETY: a number alone.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(FD as u32) } as _;
    work(&mut message)
}

/// A description's keeper, which goes on.
fn of(number: usize) -> Option<ManuallyDrop<Keeper>> {
    descriptor(number).map(|fd| ManuallyDrop::new(Keeper(fd)))
}

/// The descriptor of a description's keeper, for a program that is handed it.
pub fn descriptor(number: usize) -> Option<c_int> {
    let known = KEEPERS[number].load(Ordering::Acquire);
    (known != 0).then(|| known - 1)
}

/// A description has the keeper that was handed over.
pub fn take_over(held: &Held, fd: c_int) {
    set(held.number(), Keeper::of(fd));
}

/// A description has this keeper.
fn set(number: usize, keeper: Keeper) {
    let fd = ManuallyDrop::new(keeper).0;
    drop(swapped(number, fd + 1));
}

fn swapped(number: usize, new: i32) -> Option<Keeper> {
    if new == 0 && KEEPERS[number].load(Ordering::Relaxed) == 0 {
        return None;
    }
    let known = KEEPERS[number].swap(new, Ordering::AcqRel);
    (known != 0).then(|| Keeper(known - 1))
}

/// This process has a description no more, or a new one of its number: what kept its locks.
pub fn taken_out(number: usize) -> Option<Keeper> {
    swapped(number, 0)
}

/// Before a description's locks are asked for: what is kept of them is this process's, too. If
/// nothing is, and it is about to lock, what it will have is kept. The thread is inside.
pub fn join(held: &Held, taker: Taker, locks: bool) -> Result<()> {
    let Some(keeper) = of(held.number()) else { return Ok(()) };
    let (file, all) = (held.file()?, &held.opened()?.locks);
    let is_joined = || all.is_shared(file.ino(), taker.owner);
    if is_joined() {
        return Ok(());
    }
    let _alone = held.description().offset();
    if is_joined() {
        // By another thread.
        return Ok(());
    }
    match keeper.kept()? {
        Some(kept) => all.adopt(file, taker, kept, true),
        None if locks => all.share(file, taker, |taker| keeper.keep(taker)),
        None => Ok(()),
    }
}

/// For a fork: nobody else makes a keeper. It comes before the locks of files are held, which who
/// makes one asks for.
pub fn hold() {
    MAKING.acquire();
}

/// For a fork: on with it.
pub fn resume() {
    MAKING.release();
}

/// Before a fork: all files of this process have keepers. Nobody changes its locks meanwhile, nor
/// makes a keeper. The thread is inside.
pub fn before_fork(all: &mut [(u32, Forking<'_>)]) {
    let Some(shared) = descriptions::there() else { return };
    for number in shared.own() {
        let (description, is_kept) = (shared.description(number), of(number).is_some());
        if is_kept || description.what() != What::File {
            continue;
        }
        let Some(keeper) = Keeper::new() else { return };
        let locks = all.iter_mut().find(|(tree, _)| *tree == description.tree());
        let owner = locks::owner_of(number);
        let taker = locks.and_then(|(_, locks)| locks.share(description.node(), owner));
        if taker.is_none_or(|taker| keeper.keep(taker).is_ok()) {
            set(number, keeper);
        }
    }
}

/// Before a program is handed a description: it has a keeper, for what is locked of it. The thread
/// is inside.
pub fn make(held: &Held) {
    let _making = MAKING.lock();
    if of(held.number()).is_some() {
        return;
    }
    let Some(keeper) = Keeper::new() else { return };
    let taker = locks::taker(held, false);
    let kept = || held.opened()?.locks.share(held.file()?, taker, |taker| keeper.keep(taker));
    if !is_locked(held) || kept().is_ok() {
        set(held.number(), keeper);
    }
}

/// Whether this process has locks of a description.
pub fn is_locked(held: &Held) -> bool {
    let Some(opened) = held.tree().and_then(Tree::opened) else { return false };
    let (node, owner) = (held.description().node(), locks::owner_of(held.number()));
    opened.locks.descriptors(owner).iter().any(|(of, _)| *of == node)
}
