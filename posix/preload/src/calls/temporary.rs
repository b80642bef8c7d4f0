//! Files and names that nobody has yet.
//!
//! A template is filled with letters at random until nobody has the name: by the public functions
//! of C, which are those of this library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::calls::walks::begins_here;
use crate::process::Spin;
use crate::real::{errno, interpose, real, set_errno};
use crate::trees;

/// What is filled in a template.
const BLANK: &[u8] = &[b'X'; 6];
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// So many names are tried, as libc does.
const TRIES: u32 = 62 * 62 * 62;
/// How long a name of `tmpnam` may be, with its NUL.
const NAME: usize = 20;
/// How long a path of `tempnam` may be, with its NUL.
const PATH: usize = 4096;
/// Where files are made of which nobody has said where.
const FOLDER: &CStr = c"/tmp";

/// Where the blank of a template begins, which so many bytes follow.
unsafe fn blank_of(template: *const c_char, suffix: c_int) -> Option<usize> {
    // SAFETY: a string, as the program gave it.
    let bytes = unsafe { CStr::from_ptr(template) }.to_bytes();
    let end = bytes.len().checked_sub(usize::try_from(suffix).ok()?)?;
    let from = end.checked_sub(BLANK.len())?;
    (&bytes[from..end] == BLANK).then_some(from)
}

/// Letters for a blank.
fn letters() -> [u8; 6] {
    let mut bits = [0_u8; 8];
    let (to, size) = (bits.as_mut_ptr().cast::<c_void>(), bits.len());
    // SAFETY: memory of this size.
    if unsafe { libc::getrandom(to, size, libc::GRND_NONBLOCK) } != size as isize {
        // The kernel has none yet: as soon after its start, no other program guesses names.
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a place for the time.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        bits = (now.tv_nsec as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes();
    }
    let mut number = u64::from_ne_bytes(bits);
    [(); 6].map(|()| {
        let letter = LETTERS[(number % 62) as usize];
        number /= 62;
        letter
    })
}

/// Fills a template until `make` has made something of its name; what `make` returns.
unsafe fn filled(
    template: *mut c_char,
    suffix: c_int,
    make: impl Fn(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: a string of the program's, which it lets be changed.
    unsafe {
        let Some(blank) = blank_of(template, suffix) else {
            set_errno(libc::EINVAL);
            return -1;
        };
        let before = errno();
        for _ in 0..TRIES {
            let letters = letters();
            let to = template.cast::<u8>().add(blank);
            std::ptr::copy_nonoverlapping(letters.as_ptr(), to, letters.len());
            let made = make(template);
            if made >= 0 {
                set_errno(before);
                return made;
            }
            if errno() != libc::EEXIST {
                return -1;
            }
        }
    }
    set_errno(libc::EEXIST);
    -1
}

/// Makes a file by a template.
unsafe fn make_file(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    // SAFETY: the program's template.
    unsafe { filled(template, suffix, |path| libc::open(path, flags, 0o600)) }
}

/// Finds a name that nobody has: as if it were made, and failed where somebody has it.
unsafe fn find_name(template: *mut c_char) -> c_int {
    // SAFETY: the program's template, and a place for what is known.
    unsafe {
        filled(template, 0, |path| {
            let mut stat = std::mem::zeroed::<libc::stat>();
            if libc::lstat(path, &raw mut stat) == 0 {
                set_errno(libc::EEXIST);
                return -1;
            }
            if errno() == libc::ENOENT { 0 } else { -1 }
        })
    }
}

/// Whether a path is of a folder.
fn is_folder(path: &CStr) -> bool {
    // SAFETY: a string, and a place for what is known.
    unsafe {
        let mut stat = std::mem::zeroed::<libc::stat>();
        libc::stat(path.as_ptr(), &raw mut stat) == 0
            && stat.st_mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// The template of a name in a folder.
fn template_in(folder: &CStr, prefix: &[u8]) -> Vec<u8> {
    let folder = folder.to_bytes();
    let slashes = folder.iter().rev().take_while(|byte| **byte == b'/').count();
    let folder = &folder[..(folder.len() - slashes).max(1)];
    [folder, b"/", prefix, BLANK, b"\0"].concat()
}

/// A name by `malloc`; null, if there is none.
unsafe fn name_in(folder: *const c_char, prefix: *const c_char) -> *mut c_char {
    // SAFETY: strings, as the program gave them, or null.
    unsafe {
        let name = c"TMPDIR".as_ptr();
        let variable = real!(secure_getenv(name: *const c_char) -> *const c_char);
        let given = [variable, folder, FOLDER.as_ptr()];
        let mut folders =
            given.into_iter().filter(|path| !path.is_null()).map(|path| CStr::from_ptr(path));
        let Some(folder) = folders.find(|path| is_folder(path)) else {
            set_errno(libc::ENOENT);
            return std::ptr::null_mut();
        };
        let prefix = if prefix.is_null() { c"" } else { CStr::from_ptr(prefix) }.to_bytes();
        let prefix = if prefix.is_empty() { b"file" } else { &prefix[..prefix.len().min(5)] };
        let mut template = template_in(folder, prefix);
        if template.len() > PATH {
            set_errno(libc::EINVAL);
            return std::ptr::null_mut();
        }
        if find_name(template.as_mut_ptr().cast::<c_char>()) != 0 {
            return std::ptr::null_mut();
        }
        libc::strdup(template.as_ptr().cast::<c_char>())
    }
}

/// Whether names without a folder are of ours.
fn is_ours_there() -> bool {
    let path = CString::from_vec_with_nul(template_in(FOLDER, b"file")).unwrap_or_default();
    // SAFETY: a string.
    unsafe { begins_here(path.as_ptr()) }
}

/// A name in the folder for those of which nobody has said where.
unsafe fn name_to(to: *mut c_char) -> *mut c_char {
    let template = template_in(FOLDER, b"file");
    // SAFETY: there is room for the name, which is shorter than C promises.
    unsafe {
        std::ptr::copy_nonoverlapping(template.as_ptr(), to.cast::<u8>(), template.len());
        if find_name(to) == 0 { to } else { std::ptr::null_mut() }
    }
}

/// The name that `tmpnam` gives without memory of the program's.
static OWN: Spin<[c_char; NAME]> = Spin::new([0; NAME]);

interpose! {
    /// Makes a file by a template.
    [mkstemp, mkstemp64](template: *mut c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if begins_here(template) {
                return make_file(template, 0, 0);
            }
        }
        real!(mkstemp(template: *mut c_char) -> c_int)
    }

    /// Makes a file by a template, and flags.
    [mkostemp, mkostemp64](template: *mut c_char, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if begins_here(template) {
                return make_file(template, 0, flags);
            }
        }
        real!(mkostemp(template: *mut c_char, flags: c_int) -> c_int)
    }

    /// Makes a file by a template that has a suffix.
    [mkstemps, mkstemps64](template: *mut c_char, suffix: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if begins_here(template) {
                return make_file(template, suffix, 0);
            }
        }
        real!(mkstemps(template: *mut c_char, suffix: c_int) -> c_int)
    }

    /// Makes a file by a template that has a suffix, and flags.
    [mkostemps, mkostemps64](template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if begins_here(template) {
                return make_file(template, suffix, flags);
            }
        }
        real!(mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int)
    }

    /// Makes a folder by a template.
    [mkdtemp](template: *mut c_char) -> *mut c_char {
        // SAFETY: the program's promise.
        unsafe {
            if begins_here(template) {
                let made = filled(template, 0, |path| libc::mkdir(path, 0o700));
                return if made == 0 { template } else { std::ptr::null_mut() };
            }
        }
        real!(mkdtemp(template: *mut c_char) -> *mut c_char)
    }

    /// Finds a name by a template; an empty one, if there is none.
    [mktemp](template: *mut c_char) -> *mut c_char {
        // SAFETY: the program's promise.
        unsafe {
            if begins_here(template) {
                if find_name(template) != 0 {
                    *template = 0;
                }
                return template;
            }
        }
        real!(mktemp(template: *mut c_char) -> *mut c_char)
    }

    /// Finds a name in a folder, in memory of its own.
    [tempnam](folder: *const c_char, prefix: *const c_char) -> *mut c_char {
        if !trees::all().is_empty() {
            // SAFETY: the program's promise.
            return unsafe { name_in(folder, prefix) };
        }
        real!(tempnam(folder: *const c_char, prefix: *const c_char) -> *mut c_char)
    }

    /// Finds a name, in memory of the program's or of the library's.
    [tmpnam](to: *mut c_char) -> *mut c_char {
        if !is_ours_there() {
            return real!(tmpnam(to: *mut c_char) -> *mut c_char);
        }
        // SAFETY: the program's promise; what is the library's own is for one thread at a time.
        unsafe {
            let own = OWN.lock().as_mut_ptr();
            name_to(if to.is_null() { own } else { to })
        }
    }

    /// Finds a name, in memory of the program's.
    [tmpnam_r](to: *mut c_char) -> *mut c_char {
        if to.is_null() || !is_ours_there() {
            return real!(tmpnam_r(to: *mut c_char) -> *mut c_char);
        }
        // SAFETY: the program's promise.
        unsafe { name_to(to) }
    }
}
