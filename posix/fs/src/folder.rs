//! Folders that are listed.
//!
//! A listing is read in parts, each of one moment; a name that is made or taken away between two
//! parts may be in it or not, and any other is in it once. The place of an entry is its number in
//! the listing, which a folder keeps while it is open: so one may go on anywhere. At the beginning
//! it is read anew.

use std::sync::{Mutex, PoisonError};

use engram::{Found, Member};

use crate::errno::Result;
use crate::fs::{Fs, Ino, Node, gone_is_absent};
use crate::stat::{NodeKind, Stat};

/// So many members are read at once.
const PART: usize = 2048;

/// An entry of a folder.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its number.
    pub ino: Ino,
    /// What kind of node it is, as far as the listing tells.
    pub kind: NodeKind,
    /// Its name.
    pub name: String,
    /// What was found of it; `None` of a folder, which is asked for itself.
    found: Option<Box<Stat>>,
    /// Whether that stays so until a commit.
    lasts: bool,
}

impl Entry {
    /// What is known of it, if that stays so until a commit.
    pub(crate) fn lasting(&self) -> Option<Stat> {
        self.found.as_deref().copied().filter(|_| self.lasts)
    }
}

#[derive(Default)]
struct Listing {
    entries: Vec<Entry>,
    whole: bool,
}

/// A folder that is open.
pub struct Folder {
    fs: Fs,
    node: Node,
    ino: Ino,
    parent: Ino,
    listing: Mutex<Listing>,
}

impl Fs {
    /// Opens a folder to be listed.
    pub fn open_folder(&self, ino: Ino) -> Result<Folder> {
        let node = self.node(ino)?;
        let parent = match node {
            Node::Shown(ino) => self.parent_of_shown(ino)?,
            Node::Member(_) => self.above(self.folder_of(ino)?)?,
        };
        Ok(Folder { fs: self.clone(), node, ino, parent, listing: Mutex::default() })
    }

    /// What is known of an entry.
    pub fn stat_entry(&self, entry: &Entry) -> Result<Stat> {
        match &entry.found {
            Some(found) => Ok(**found),
            None => self.stat(entry.ino),
        }
    }
}

impl Folder {
    /// The folder's number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Calls `each` with the entries from a place on, and the place behind each, until it says that
    /// it is full. The first two are `.` and `..`.
    pub fn list(&self, from: u64, mut each: impl FnMut(&Entry, u64) -> bool) -> Result<()> {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if from == 0 {
            *listing = Listing::default();
        }
        let mut at = from as usize;
        loop {
            while listing.entries.len() <= at && !listing.whole {
                self.read_on(&mut listing)?;
            }
            let Some(entry) = listing.entries.get(at) else { return Ok(()) };
            at += 1;
            if !each(entry, at as u64) {
                return Ok(());
            }
        }
    }

    /// Reads the next part.
    fn read_on(&self, listing: &mut Listing) -> Result<()> {
        if listing.entries.is_empty() {
            let dot = |name: &str, ino| Entry {
                ino,
                kind: NodeKind::Folder,
                name: name.to_owned(),
                found: None,
                lasts: false,
            };
            listing.entries.extend([dot(".", self.ino), dot("..", self.parent)]);
        }
        let gid = match self.node {
            Node::Member(member) => member.id(),
            Node::Shown(ino) => {
                let entry_of = |shown: crate::shown::ShownEntry| Entry {
                    ino: shown.ino,
                    kind: shown.kind,
                    name: shown.name,
                    found: None,
                    lasts: false,
                };
                listing.entries.extend(self.fs.list_shown(ino)?.into_iter().map(entry_of));
                listing.whole = true;
                return Ok(());
            }
        };
        let after = (listing.entries.len() > 2)
            .then(|| listing.entries.last().map(|entry| entry.name.clone()).unwrap_or_default());
        let (seen, from) = (self.fs.seen_now()?, listing.entries.len());
        let part = self.fs.namespace().list_found(gid, after.as_deref(), PART);
        let part = part.map_err(gone_is_absent)?;
        listing.whole = part.len() < PART;
        for (name, found) in part {
            listing.entries.push(match found {
                Found::Group(gid) => Entry {
                    ino: self.fs.ino_of(Member::Group(gid)),
                    kind: NodeKind::Folder,
                    name,
                    found: None,
                    lasts: false,
                },
                Found::Object(info) => {
                    let stat = self.fs.stat_object(&info)?;
                    let (found, lasts) = (Some(Box::new(stat)), info.head.is_none());
                    Entry { ino: stat.ino, kind: stat.kind, name, found, lasts }
                }
            });
        }
        if let Some(seen) = seen {
            self.fs.inner.listed.remember(self.ino, seen, &listing.entries[from..]);
        }
        Ok(())
    }
}
