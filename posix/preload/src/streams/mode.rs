//! What the second argument of `fopen` says, as the GNU C library reads it.

use std::ffi::{CStr, CString, c_int};

/// A mode.
pub struct Mode {
    letter: u8,
    updates: bool,
    extra: c_int,
    /// Which encoding wide characters have in the file, after `,ccs=`.
    pub encoding: Option<CString>,
}

impl Mode {
    /// Reads it; `None`: it begins with no letter that there is.
    pub fn parse(mode: &CStr) -> Option<Mode> {
        let bytes = mode.to_bytes();
        let letter = *bytes.first().filter(|letter| b"rwa".contains(letter))?;
        let mut parsed = Mode { letter, updates: false, extra: 0, encoding: None };
        let mut known = 0;
        for (at, byte) in bytes.iter().enumerate().take(7).skip(1) {
            match byte {
                b'+' => parsed.updates = true,
                b'x' => parsed.extra |= libc::O_EXCL,
                b'b' => {}
                b'e' => {
                    parsed.extra |= libc::O_CLOEXEC;
                    continue;
                }
                _ => continue,
            }
            known = at;
        }
        parsed.encoding = encoding(&bytes[known + 1..]);
        Some(parsed)
    }

    /// One that only reads, or only writes.
    pub const fn plain(letter: u8) -> Mode {
        Mode { letter, updates: false, extra: 0, encoding: None }
    }

    /// With further flags of `open`.
    pub fn with(self, extra: c_int) -> Mode {
        Mode { extra: self.extra | extra, ..self }
    }

    /// The flags of `open`.
    pub fn flags(&self) -> c_int {
        let (alone, made) = match self.letter {
            b'r' => (libc::O_RDONLY, 0),
            b'w' => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
            _ => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
        };
        (if self.updates { libc::O_RDWR } else { alone }) | made | self.extra
    }

    /// The same, in the letters that `fopencookie` knows.
    pub fn kind(&self) -> &'static CStr {
        match (self.letter, self.updates) {
            (b'r', false) => c"r",
            (b'r', true) => c"r+",
            (b'w', false) => c"w",
            (b'w', true) => c"w+",
            (_, false) => c"a",
            (_, true) => c"a+",
        }
    }

    /// Whether such a stream reads.
    pub fn reads(&self) -> bool {
        self.letter == b'r' || self.updates
    }

    /// Whether such a stream writes.
    pub fn writes(&self) -> bool {
        self.letter != b'r' || self.updates
    }

    /// Whether it writes behind the end.
    pub fn appends(&self) -> bool {
        self.letter == b'a'
    }

    /// Whether it begins behind the end.
    pub fn begins_at_end(&self) -> bool {
        self.appends() && !self.updates
    }
}

fn encoding(rest: &[u8]) -> Option<CString> {
    let at = rest.windows(5).position(|five| five == b",ccs=")?;
    let name = rest[at + 5..].split(|byte| *byte == b',').next()?;
    CString::new(name).ok()
}
