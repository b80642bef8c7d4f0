//! Wide characters on a stream of ours.
//!
//! A stream of `fopencookie` has no wide side in the C library. So what reads wide characters reads
//! bytes here, and what writes them writes bytes. They are converted as the C library does it for
//! its own streams: by the encoding of the locale when a stream is used for wide characters first,
//! or by the one that `fopen` names; and what the encoding lacks is written as something similar.

use std::ffi::{CStr, c_char, c_int};

use libc::{FILE, iconv_t, wchar_t};

use crate::real::{errno, set_errno};

/// No character.
pub const NONE: u32 = u32::MAX;
/// The longest character of any encoding.
const LONGEST: usize = 16;

unsafe extern "C" {
    fn getc_unlocked(stream: *mut FILE) -> c_int;
    fn fwrite_unlocked(from: *const u8, size: usize, count: usize, stream: *mut FILE) -> usize;
}

/// The wide side of a stream.
pub struct Wide {
    /// What it is for: 1 for wide characters, -1 for bytes, 0 for nothing yet.
    pub orientation: c_int,
    between: Option<Between>,
}

/// Converters between characters and bytes.
struct Between {
    reading: iconv_t,
    writing: iconv_t,
    /// Whether ASCII is one byte each, and no byte of another character.
    is_plain: bool,
}

impl Drop for Between {
    fn drop(&mut self) {
        // SAFETY: converters that were opened.
        unsafe {
            libc::iconv_close(self.reading);
            libc::iconv_close(self.writing);
        }
    }
}

impl Between {
    fn new(encoding: &CStr) -> Option<Between> {
        let failed = std::ptr::without_provenance_mut::<std::ffi::c_void>(usize::MAX);
        let similar = [encoding.to_bytes(), b"//TRANSLIT\0"].concat();
        // SAFETY: strings.
        let (reading, writing) = unsafe {
            (
                libc::iconv_open(c"WCHAR_T".as_ptr(), encoding.as_ptr()),
                libc::iconv_open(similar.as_ptr().cast::<c_char>(), c"WCHAR_T".as_ptr()),
            )
        };
        let is_plain = matches!(encoding.to_bytes(), b"UTF-8" | b"ANSI_X3.4-1968");
        if reading == failed || writing == failed {
            for opened in [reading, writing].into_iter().filter(|one| *one != failed) {
                // SAFETY: a converter that was opened.
                unsafe { libc::iconv_close(opened) };
            }
            return None;
        }
        Some(Between { reading, writing, is_plain })
    }

    /// The character that these bytes are; an error's number, `EINVAL` if they are only its
    /// beginning.
    fn character(&self, bytes: &mut [u8]) -> Result<Option<u32>, c_int> {
        let before = errno();
        let mut found: wchar_t = 0;
        let (mut from, mut left) = (bytes.as_mut_ptr().cast::<c_char>(), bytes.len());
        let (mut to, mut room) = ((&raw mut found).cast::<c_char>(), size_of::<wchar_t>());
        // SAFETY: places of these lengths.
        let done = unsafe {
            libc::iconv(self.reading, &raw mut from, &raw mut left, &raw mut to, &raw mut room)
        };
        if room == 0 {
            return Ok(Some(found as u32));
        }
        let code = errno();
        set_errno(before);
        if done == usize::MAX { Err(code) } else { Ok(None) }
    }

    /// The bytes that a character is.
    fn bytes(&self, character: u32) -> Option<([u8; LONGEST], usize)> {
        let mut wide = character;
        let mut bytes = [0_u8; LONGEST];
        let (mut from, mut left) = ((&raw mut wide).cast::<c_char>(), size_of::<wchar_t>());
        let (mut to, mut room) = (bytes.as_mut_ptr().cast::<c_char>(), LONGEST);
        // SAFETY: places of these lengths.
        let done = unsafe {
            libc::iconv(self.writing, &raw mut from, &raw mut left, &raw mut to, &raw mut room)
        };
        (done != usize::MAX).then_some((bytes, LONGEST - room))
    }
}

impl Wide {
    /// That of a stream which was not used yet.
    pub fn new() -> Wide {
        Wide { orientation: 0, between: None }
    }

    /// One for wide characters of an encoding; `None`: there is none of that name.
    pub fn of(encoding: &CStr) -> Option<Wide> {
        Some(Wide { orientation: 1, between: Some(Between::new(encoding)?) })
    }

    /// What it is for, if that is known by now; else what is asked for.
    pub fn orient(&mut self, stream: *mut FILE, wanted: c_int) -> c_int {
        // SAFETY: a stream of ours.
        if self.orientation == 0 && unsafe { super::engram_stream_is_used(stream) } != 0 {
            self.orientation = -1;
        }
        if self.orientation == 0 {
            self.orientation = wanted.signum();
        }
        self.orientation
    }

    /// The converters, if the stream is for wide characters, or may be.
    fn between(&mut self, stream: *mut FILE) -> Option<&Between> {
        if self.orient(stream, 1) < 0 {
            return None;
        }
        if self.between.is_none() {
            // SAFETY: a string of the locale's.
            let encoding = unsafe { CStr::from_ptr(libc::nl_langinfo(libc::CODESET)) };
            self.between = Between::new(encoding);
        }
        self.between.as_ref()
    }

    /// Reads a character; [`NONE`] at the end, or if there is none.
    pub fn get(&mut self, stream: *mut FILE) -> u32 {
        let Some(between) = self.between(stream) else { return NONE };
        let mut bytes = [0_u8; LONGEST];
        let mut count = 0;
        loop {
            // SAFETY: a stream that the caller has.
            let byte = unsafe { getc_unlocked(stream) };
            if byte < 0 {
                // Where a character begins and does not end, libc sees the end alone.
                return NONE;
            }
            if count == 0 && byte < 0x80 && between.is_plain {
                return byte as u32;
            }
            bytes[count] = byte as u8;
            count += 1;
            match between.character(&mut bytes[..count]) {
                Ok(Some(character)) => return character,
                Ok(None) => count = 0,
                Err(libc::EINVAL) if count < LONGEST => {}
                Err(_) => return failed(stream, libc::EILSEQ),
            }
        }
    }

    /// Writes a character; whether it could.
    pub fn put(&mut self, stream: *mut FILE, character: u32) -> bool {
        let Some(between) = self.between(stream) else { return false };
        let plain = between.is_plain && character < 0x80;
        let found = if plain { Some(plain_bytes(character)) } else { between.bytes(character) };
        let Some((bytes, count)) = found else {
            failed(stream, libc::EILSEQ);
            return false;
        };
        // SAFETY: a stream that the caller has, and bytes.
        unsafe { fwrite_unlocked(bytes.as_ptr(), 1, count, stream) == count }
    }

    /// Has a character be read next; whether it could.
    pub fn unget(&mut self, stream: *mut FILE, character: u32) -> bool {
        if character == NONE {
            return false;
        }
        let Some((bytes, count)) = self.between(stream).and_then(|it| it.bytes(character)) else {
            return false;
        };
        // SAFETY: a stream that the caller has, and whose lock a thread may take again.
        bytes[..count]
            .iter()
            .rev()
            .all(|byte| unsafe { libc::ungetc(c_int::from(*byte), stream) } >= 0)
    }
}

fn plain_bytes(character: u32) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    bytes[0] = character as u8;
    (bytes, 1)
}

fn failed(stream: *mut FILE, code: c_int) -> u32 {
    super::set_failed(stream);
    set_errno(code);
    NONE
}
