//! What a caller asks, answered as system calls answer it.
//!
//! A front that has no kernel between itself and a program (the preload library) has each call
//! answered here: who asks, where, and what. [`Asked`] follows the path, asks for permission, and
//! does what was asked, or says with which number Linux would refuse it.
//!
//! *Protocol*: a call looks first, and judges by what it saw; what it then does relies on that. A
//! name is taken away, or replaced, only if it still leads to the node that was judged; a mode and
//! an owner are judged within the commit that changes them. Whatever else has come between is
//! met as an error of the change, and the call looks again, 1000 times at most. So a call is
//! answered as if nobody had come between, and never done to another node than was judged.
//!
//! *Invariant*: of several reasons to refuse, the number is the one that Linux comes to first. The
//! comments name its functions where the order is not obvious. Its settings `protected_hardlinks`
//! and the like are taken to be off.
//!
//! | module | what it offers |
//! |---|---|
//! | `attributes` | what is known of a node, and changed of it |
//! | `names` | names made, changed and taken away |
//! | `open` | files and folders opened |

mod attributes;
mod names;
mod open;

pub use open::Opened;

use crate::caller::{Caller, WRITE};
use crate::errno::{Result, refuse};
use crate::fs::{Fs, LOOKS};
use crate::stat::{NodeKind, Stat};
use crate::walk::{Answer, Unanswered};

/// A file system, as one caller asks it.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    fs: &'a Fs,
    caller: &'a Caller,
}

impl Fs {
    /// The file system, as this caller asks it.
    pub fn asked_by<'a>(&'a self, caller: &'a Caller) -> Asked<'a> {
        Asked { fs: self, caller }
    }
}

impl<'a> Asked<'a> {
    pub(crate) fn fs(&self) -> &'a Fs {
        self.fs
    }

    pub(crate) fn caller(&self) -> &'a Caller {
        self.caller
    }

    /// Refuses to change anything where the file system is shown for reading.
    fn check_writable(&self) -> Result<()> {
        self.fs.check_writable()
    }

    /// Refuses what the caller may not do to a node: first to write it where all is for reading.
    fn check(&self, rights: u16, stat: &Stat) -> Result<()> {
        use NodeKind::{File, Folder, Symlink};
        if rights & WRITE != 0
            && matches!(stat.kind, File | Folder | Symlink)
            && self.fs.is_read_only()
        {
            refuse!(EROFS, "the namespace is shown for reading");
        }
        self.caller.check(rights, &stat.into())
    }

    /// Looks and acts; again, where what was seen is not so any more when it acts: that is told by
    /// one of these numbers, which `act` alone gives.
    fn again<S, T>(
        changed: &[i32],
        look: impl Fn() -> Answer<S>,
        act: impl Fn(S) -> Answer<T>,
    ) -> Answer<T> {
        let mut looks = 0;
        loop {
            let seen = look()?;
            let done = act(seen);
            let code = done.as_ref().err().and_then(Unanswered::code);
            looks += 1;
            if code.is_none_or(|code| !changed.contains(&code)) || looks > LOOKS {
                return done;
            }
        }
    }
}
