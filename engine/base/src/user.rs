//! Users: by number, as the kernel has them, and by name, as people do.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;

/// The longest entry of the user database that is read.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// The user that this process acts for.
pub fn current() -> u32 {
    // SAFETY: `geteuid` cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

/// A user, as messages name one.
pub fn shown(uid: u32) -> String {
    match name(uid) {
        Some(known) => format!("user {uid} ({known})"),
        None => format!("user {uid}"),
    }
}

/// The name of a user; `None` for one that this machine does not know.
pub fn name(uid: u32) -> Option<String> {
    let mut buffer = vec![0_u8; 1 << 10];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = ptr::null_mut();
        // SAFETY: every pointer is to a place of ours that is valid during the call, and the
        // length is the buffer's.
        let rc = unsafe {
            let (at, len) = (buffer.as_mut_ptr().cast(), buffer.len());
            libc::getpwuid_r(uid, entry.as_mut_ptr(), at, len, &raw mut found)
        };
        if rc == libc::ERANGE && buffer.len() < ENTRY_BYTES_MAX {
            buffer.resize(buffer.len() * 2, 0);
            continue;
        }
        if rc != 0 || found.is_null() {
            return None;
        }
        // SAFETY: the entry was found, so its name is a string that ends within the buffer.
        let name = unsafe { CStr::from_ptr((*found).pw_name) };
        return name.to_str().ok().map(str::to_owned);
    }
}
