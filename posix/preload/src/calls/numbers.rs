//! System calls by their numbers.
//!
//! A number that has a function here goes to that; so do those of calls that the C library has had
//! since later releases only. Another one that is given a path or a descriptor of ours is refused:
//! `ENOTSUP`. The kernel alone answers all others.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint};

use libc::{mode_t, off_t};

use crate::calls::forks::clone_by;
use crate::calls::programs::execute;
use crate::descriptors;
use crate::inside::is_inside;
use crate::places::{Place, locate};
use crate::real::{interpose, real, set_errno};
use crate::trees;

const HERE: c_int = libc::AT_FDCWD;

/// What a call is given, as the kernel has it in registers.
type Given = [c_long; 6];

fn at<T>(word: c_long) -> *const T {
    std::ptr::with_exposed_provenance(word as usize)
}

fn to<T>(word: c_long) -> *mut T {
    std::ptr::with_exposed_provenance_mut(word as usize)
}

fn fd(word: c_long) -> c_int {
    word as c_int
}

fn size(word: c_long) -> usize {
    word as usize
}

/// A call for a descriptor of ours.
unsafe fn by_descriptor(number: c_long, given: Given) -> Option<c_long> {
    let [one, two, three, four, ..] = given;
    // SAFETY: what the program gave, as the kernel would have had it; these are functions of this
    // library.
    Some(unsafe {
        match number {
            libc::SYS_read => libc::read(fd(one), to(two), size(three)) as c_long,
            libc::SYS_write => libc::write(fd(one), at(two), size(three)) as c_long,
            libc::SYS_pread64 => libc::pread(fd(one), to(two), size(three), four) as c_long,
            libc::SYS_pwrite64 => libc::pwrite(fd(one), at(two), size(three), four) as c_long,
            libc::SYS_readv => libc::readv(fd(one), at(two), fd(three)) as c_long,
            libc::SYS_writev => libc::writev(fd(one), at(two), fd(three)) as c_long,
            libc::SYS_preadv => libc::preadv(fd(one), at(two), fd(three), four) as c_long,
            libc::SYS_pwritev => libc::pwritev(fd(one), at(two), fd(three), four) as c_long,
            libc::SYS_lseek => libc::lseek(fd(one), two, fd(three)),
            libc::SYS_close => c_long::from(libc::close(fd(one))),
            libc::SYS_dup => c_long::from(libc::dup(fd(one))),
            libc::SYS_dup3 => c_long::from(libc::dup3(fd(one), fd(two), fd(three))),
            libc::SYS_fcntl => c_long::from(libc::fcntl(fd(one), fd(two), three)),
            libc::SYS_ioctl => c_long::from(libc::ioctl(fd(one), two as _, three)),
            libc::SYS_fstat => c_long::from(libc::fstat(fd(one), to(two))),
            libc::SYS_fsync => c_long::from(libc::fsync(fd(one))),
            libc::SYS_fdatasync => c_long::from(libc::fdatasync(fd(one))),
            libc::SYS_ftruncate => c_long::from(libc::ftruncate(fd(one), two as off_t)),
            libc::SYS_fallocate => c_long::from(libc::fallocate(fd(one), fd(two), three, four)),
            libc::SYS_fchmod => c_long::from(libc::fchmod(fd(one), two as mode_t)),
            libc::SYS_fchown => c_long::from(libc::fchown(fd(one), two as u32, three as u32)),
            libc::SYS_fchdir => c_long::from(libc::fchdir(fd(one))),
            libc::SYS_flock => c_long::from(libc::flock(fd(one), fd(two))),
            libc::SYS_fstatfs => c_long::from(libc::fstatfs(fd(one), to(two))),
            libc::SYS_sendmsg => libc::sendmsg(fd(one), at(two), fd(three)) as c_long,
            libc::SYS_recvmsg => libc::recvmsg(fd(one), to(two), fd(three)) as c_long,
            _ => return None,
        }
    })
}

/// A call that names a path, from a folder or from where the program is.
unsafe fn by_path(number: c_long, given: Given) -> Option<c_long> {
    let [one, two, three, four, five, _] = given;
    // SAFETY: as above.
    Some(c_long::from(unsafe {
        match number {
            libc::SYS_openat => libc::openat(fd(one), at(two), fd(three), four as mode_t),
            libc::SYS_mkdirat => libc::mkdirat(fd(one), at(two), three as mode_t),
            libc::SYS_mknodat => libc::mknodat(fd(one), at(two), three as mode_t, four as u64),
            libc::SYS_unlinkat => libc::unlinkat(fd(one), at(two), fd(three)),
            libc::SYS_renameat2 => {
                libc::renameat2(fd(one), at(two), fd(three), at(four), five as c_uint)
            }
            libc::SYS_linkat => libc::linkat(fd(one), at(two), fd(three), at(four), fd(five)),
            libc::SYS_symlinkat => libc::symlinkat(at(one), fd(two), at(three)),
            libc::SYS_readlinkat => {
                return Some(libc::readlinkat(fd(one), at(two), to(three), size(four)) as c_long);
            }
            libc::SYS_faccessat => libc::faccessat(fd(one), at(two), fd(three), 0),
            libc::SYS_faccessat2 => libc::faccessat(fd(one), at(two), fd(three), fd(four)),
            libc::SYS_fchmodat => libc::fchmodat(fd(one), at(two), three as mode_t, 0),
            libc::SYS_fchownat => {
                libc::fchownat(fd(one), at(two), three as u32, four as u32, fd(five))
            }
            libc::SYS_newfstatat => libc::fstatat(fd(one), at(two), to(three), fd(four)),
            libc::SYS_statx => libc::statx(fd(one), at(two), fd(three), four as c_uint, to(five)),
            libc::SYS_utimensat => {
                if two == 0 {
                    libc::futimens(fd(one), at(three))
                } else {
                    libc::utimensat(fd(one), at(two), at(three), fd(four))
                }
            }
            libc::SYS_truncate => libc::truncate(at(one), two),
            libc::SYS_chdir => libc::chdir(at(one)),
            libc::SYS_statfs => libc::statfs(at(one), to(two)),
            libc::SYS_execve => execute(HERE, at(one), at(two), at(three), 0),
            libc::SYS_execveat => execute(fd(one), at(two), at(three), at(four), fd(five)),
            #[cfg(target_arch = "x86_64")]
            _ => return by_old_path(number, given),
            #[cfg(not(target_arch = "x86_64"))]
            _ => return None,
        }
    }))
}

/// The same by calls that one machine alone has still.
#[cfg(target_arch = "x86_64")]
unsafe fn by_old_path(number: c_long, given: Given) -> Option<c_long> {
    let [one, two, three, four, ..] = given;
    // SAFETY: as above.
    Some(c_long::from(unsafe {
        match number {
            libc::SYS_open => libc::open(at(one), fd(two), three as mode_t),
            libc::SYS_creat => libc::creat(at(one), two as mode_t),
            libc::SYS_stat => libc::stat(at(one), to(two)),
            libc::SYS_lstat => libc::lstat(at(one), to(two)),
            libc::SYS_access => libc::access(at(one), fd(two)),
            libc::SYS_mkdir => libc::mkdir(at(one), two as mode_t),
            libc::SYS_rmdir => libc::rmdir(at(one)),
            libc::SYS_unlink => libc::unlink(at(one)),
            libc::SYS_rename => libc::rename(at(one), at(two)),
            libc::SYS_renameat => libc::renameat(fd(one), at(two), fd(three), at(four)),
            libc::SYS_link => libc::link(at(one), at(two)),
            libc::SYS_symlink => libc::symlink(at(one), at(two)),
            libc::SYS_readlink => {
                return Some(libc::readlink(at(one), to(two), size(three)) as c_long);
            }
            libc::SYS_chmod => libc::chmod(at(one), two as mode_t),
            libc::SYS_chown => libc::chown(at(one), two as u32, three as u32),
            libc::SYS_lchown => libc::lchown(at(one), two as u32, three as u32),
            libc::SYS_dup2 => libc::dup2(fd(one), fd(two)),
            _ => return None,
        }
    }))
}

/// A call that moves bytes, or maps them.
unsafe fn by_bytes(number: c_long, given: Given) -> Option<c_long> {
    let [one, two, three, four, five, six] = given;
    // SAFETY: as above.
    Some(unsafe {
        match number {
            libc::SYS_preadv2 => {
                libc::preadv2(fd(one), at(two), fd(three), four, fd(six)) as c_long
            }
            libc::SYS_pwritev2 => {
                libc::pwritev2(fd(one), at(two), fd(three), four, fd(six)) as c_long
            }
            libc::SYS_copy_file_range => {
                let (from, into, flags) = (to(two), to(four), six as c_uint);
                libc::copy_file_range(fd(one), from, fd(three), into, size(five), flags) as c_long
            }
            libc::SYS_sendfile => libc::sendfile(fd(one), fd(two), to(three), size(four)) as c_long,
            libc::SYS_splice => {
                let (from, into, flags) = (to(two), to(four), six as c_uint);
                libc::splice(fd(one), from, fd(three), into, size(five), flags) as c_long
            }
            libc::SYS_mmap => {
                let map = libc::mmap(to(one), size(two), fd(three), fd(four), fd(five), six);
                map.addr() as c_long
            }
            libc::SYS_fadvise64 => match libc::posix_fadvise(fd(one), two, three, fd(four)) {
                0 => 0,
                code => {
                    set_errno(code);
                    -1
                }
            },
            libc::SYS_readahead => libc::readahead(fd(one), two, size(three)) as c_long,
            libc::SYS_syncfs => c_long::from(libc::syncfs(fd(one))),
            libc::SYS_sync_file_range => {
                c_long::from(libc::sync_file_range(fd(one), two, three, four as c_uint))
            }
            libc::SYS_fgetxattr => {
                libc::fgetxattr(fd(one), at(two), to(three), size(four)) as c_long
            }
            libc::SYS_flistxattr => libc::flistxattr(fd(one), to(two), size(three)) as c_long,
            libc::SYS_fsetxattr => {
                c_long::from(libc::fsetxattr(fd(one), at(two), at(three), size(four), fd(five)))
            }
            libc::SYS_fremovexattr => c_long::from(libc::fremovexattr(fd(one), at(two))),
            _ => return None,
        }
    })
}

/// A call that begins or ends something, or closes numbers.
unsafe fn by_process(number: c_long, given: Given) -> Option<c_long> {
    let [one, two, three, four, five, _] = given;
    // SAFETY: as above.
    unsafe {
        match number {
            libc::SYS_close_range => {
                if one as c_uint > two as c_uint {
                    set_errno(libc::EINVAL);
                    return Some(-1);
                }
                let (first, last) = (one as c_uint, two as c_uint);
                Some(c_long::from(super::descriptors::close_numbers(first, last, fd(three))))
            }
            libc::SYS_clone => clone_by([one, two, three, four, five]),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork | libc::SYS_vfork => Some(c_long::from(libc::fork())),
            libc::SYS_getcwd => {
                crate::process::folder()?;
                let path: *const c_char = libc::getcwd(to(one), size(two));
                if path.is_null() {
                    return Some(-1);
                }
                Some(CStr::from_ptr(path).to_bytes_with_nul().len() as c_long)
            }
            libc::SYS_umask => Some(c_long::from(libc::umask(one as mode_t))),
            _ => None,
        }
    }
}

/// Which of a call's arguments are descriptors, and which are paths: by their places.
fn names(number: c_long) -> (&'static [usize], &'static [usize]) {
    match number {
        libc::SYS_tee => (&[0, 1], &[]),
        libc::SYS_getdents64 | libc::SYS_vmsplice => (&[0], &[]),
        libc::SYS_pidfd_getfd => (&[1], &[]),
        libc::SYS_openat2 | libc::SYS_name_to_handle_at | libc::SYS_open_tree => (&[0], &[1]),
        libc::SYS_setxattr
        | libc::SYS_lsetxattr
        | libc::SYS_getxattr
        | libc::SYS_lgetxattr
        | libc::SYS_listxattr
        | libc::SYS_llistxattr
        | libc::SYS_removexattr
        | libc::SYS_lremovexattr
        | libc::SYS_chroot
        | libc::SYS_acct
        | libc::SYS_swapon
        | libc::SYS_swapoff
        | libc::SYS_umount2 => (&[], &[0]),
        libc::SYS_mount | libc::SYS_pivot_root => (&[], &[0, 1]),
        libc::SYS_inotify_add_watch => (&[], &[1]),
        libc::SYS_fanotify_mark => (&[], &[4]),
        _ => (&[], &[]),
    }
}

/// Whether a call that has no function here is given a path or a descriptor of ours.
unsafe fn is_for_us(number: c_long, given: Given) -> bool {
    let (numbers, paths) = names(number);
    if numbers.iter().any(|place| descriptors::is_ours(fd(given[*place]))) {
        return true;
    }
    paths.iter().any(|place| {
        let path: *const c_char = at(given[*place]);
        let folder = if number == libc::SYS_openat2 { fd(given[0]) } else { HERE };
        // SAFETY: a string, as the kernel would have had it.
        !path.is_null()
            && matches!(locate(folder, unsafe { CStr::from_ptr(path) }), Place::Ours(..))
    })
}

/// Calls of which none concerns this library, and which a program makes often.
fn is_plain(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_futex
            | libc::SYS_gettid
            | libc::SYS_getpid
            | libc::SYS_getrandom
            | libc::SYS_membarrier
            | libc::SYS_sched_yield
            | libc::SYS_tgkill
    )
}

interpose! {
    /// A system call by its number.
    [syscall](
        number: c_long, one: c_long, two: c_long, three: c_long, four: c_long, five: c_long,
        six: c_long
    ) -> c_long {
        if !is_plain(number) && !is_inside() && !trees::all().is_empty() {
            let given = [one, two, three, four, five, six];
            // SAFETY: the program's promise.
            unsafe {
                let answer = by_descriptor(number, given)
                    .or_else(|| by_path(number, given))
                    .or_else(|| by_bytes(number, given))
                    .or_else(|| by_process(number, given));
                if let Some(answer) = answer {
                    return answer;
                }
                if is_for_us(number, given) {
                    set_errno(libc::ENOTSUP);
                    return -1;
                }
            }
        }
        real!(
            syscall(number: c_long, one: c_long, two: c_long, three: c_long, four: c_long,
                five: c_long, six: c_long) -> c_long
        )
    }
}
