//! Locks that a program goes on with.
//!
//! A program that this process becomes, or starts, inherits the keepers of its descriptions
//! ([`crate::keepers`]). What the process becomes goes on with the locks of the process, too, but
//! for those of files of which `exec` closes a descriptor. All that stands in its environment
//! ([`LOCKS`]).

use std::ffi::{CStr, c_int};
use std::fmt::Write as _;
use std::os::fd::{FromRawFd, OwnedFd};

use super::{close_on_exec, found, told};
use crate::calls::locks;
use crate::descriptions::What;
use crate::descriptors::{self, Held};
use crate::inside::Inside;
use crate::keepers;
use crate::real::real;
use crate::trees::{self, Tree};

/// The number of the process, and for each descriptor `kDESCRIPTION:DESCRIPTOR` of a keeper, or
/// `pDESCRIPTION:DESCRIPTOR` of what the process has locked of the description's file, each with
/// the file that the descriptor stands for. A child of a program that could not have this library
/// finds what its parent was handed: keepers alone.
pub const LOCKS: &CStr = c"ENGRAM_RUN_LOCKS";

/// What a program is handed of locks.
#[derive(Default)]
pub struct Handed {
    /// What each is, and of which description.
    what: Vec<(char, usize)>,
    descriptors: Vec<c_int>,
}

impl Handed {
    fn add(&mut self, what: char, number: usize, fd: c_int) {
        self.what.push((what, number));
        self.descriptors.push(fd);
    }

    /// To a program that this process becomes: keepers of what it inherits, where there are some or
    /// there is a lock, and the locks of the process.
    pub fn on() -> Handed {
        let _inside = Inside::nested();
        let (mut handed, open) = (Handed::default(), Open::now());
        for held in &open.inherited {
            if keepers::is_locked(held) {
                keepers::make(held);
            }
            handed.add_keeper(held.number());
        }
        let own = locks::process();
        for tree in trees::all() {
            let locks = tree.opened().map(|opened| opened.locks.descriptors(own));
            for (node, fd) in locks.into_iter().flatten() {
                // A descriptor of the file that is closed by `exec` takes its locks away.
                let of_it = |held: &&Held| is_of(held, tree, node);
                let inherited = open.inherited.iter().find(of_it);
                if let Some(held) = inherited.filter(|_| !open.closed.iter().any(|one| of_it(&one)))
                {
                    handed.add('p', held.number(), fd);
                }
            }
        }
        handed
    }

    fn add_keeper(&mut self, number: usize) {
        if let Some(keeper) = keepers::descriptor(number) {
            self.add('k', number, keeper);
        }
    }

    /// What it finds in its environment, if anything.
    pub fn named(&self) -> Option<String> {
        let mut named = locks::process().to_string();
        for ((what, number), fd) in self.what.iter().zip(&self.descriptors) {
            let _ = write!(named, ",{what}{number}:{}", told(*fd));
        }
        (!self.what.is_empty()).then_some(named)
    }

    /// What it is to inherit.
    pub fn descriptors(&self) -> &[c_int] {
        &self.descriptors
    }
}

fn is_of(held: &Held, tree: &Tree, node: u64) -> bool {
    let description = held.description();
    (description.tree(), description.node()) == (tree.number, node)
}

/// Files that are open, once each.
struct Open {
    /// What a program inherits.
    inherited: Vec<Held>,
    /// What is closed when this process becomes one.
    closed: Vec<Held>,
}

impl Open {
    fn now() -> Open {
        let mut open = Open { inherited: Vec::new(), closed: Vec::new() };
        for (fd, hidden) in descriptors::in_range(0, u32::MAX) {
            let Some(held) = descriptors::get(fd).filter(|_| !hidden) else { continue };
            if held.description().what() != What::File {
                continue;
            }
            let command = libc::F_GETFD;
            let flags = real!(fcntl(fd: c_int, command: c_int) -> c_int);
            let is_closed = flags & libc::FD_CLOEXEC != 0;
            let known = if is_closed { &mut open.closed } else { &mut open.inherited };
            if !known.iter().any(|known| known.number() == held.number()) {
                known.push(held);
            }
        }
        open
    }
}

/// What the program that was here before has handed on is this one's.
pub fn take_over(text: &[u8]) {
    let mut parts = std::str::from_utf8(text).unwrap_or_default().split(',');
    let is_own = parts.next().is_some_and(|own| own.parse() == Ok(locks::process()));
    let parsed = parts.filter_map(|part| {
        let (what, rest) = part.split_at_checked(1)?;
        let (number, fd) = rest.split_once(':')?;
        Some((what == "k", number.parse::<usize>().ok()?, found(fd)?))
    });
    for (is_keeper, number, fd) in parsed.filter(|part| part.0 || is_own) {
        descriptors::note_hidden(fd);
        close_on_exec(fd, true);
        let _inside = Inside::nested();
        match Held::of(number) {
            Some(held) if is_keeper => keepers::take_over(&held, fd),
            held => {
                // SAFETY: a descriptor that was left for this alone.
                let taker = unsafe { OwnedFd::from_raw_fd(fd) };
                // Where the file is not to be had, it goes, and the locks with it.
                let _ = held.map(|held| locks::adopt(&held, taker));
            }
        }
    }
}
