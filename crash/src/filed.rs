//! What a worker's files must be, worked out from what it has acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use engram_fs::Clash;

use crate::bytes::FileWords;
use crate::files::{Act, FOLDERS, HANDLES, MODE, Spot, Target, act};
use crate::operation::Outcome;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    File(FileWords),
    Symlink(u64),
}

/// A file or a symbolic link, as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub thing: Thing,
    pub mode: u16,
    pub note: Option<u64>,
}

/// What a worker has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filed {
    /// Files and symbolic links, by numbers of their own.
    pub(crate) nodes: BTreeMap<u64, Node>,
    made: u64,
    /// The names of each folder that is there.
    pub(crate) folders: [Option<BTreeMap<u8, u64>>; FOLDERS as usize],
    open: [Option<u64>; HANDLES as usize],
}

impl Default for Filed {
    fn default() -> Self {
        let folders = [Some(BTreeMap::new()), None, None];
        Filed { nodes: BTreeMap::new(), made: 0, folders, open: [None; HANDLES as usize] }
    }
}

impl Filed {
    /// Does to the model what follows from a seed; how that must end, unless there is no space.
    pub(crate) fn imagine(&mut self, seed: u64, version: u64) -> Outcome {
        if self.try_imagine(act(seed), version).is_some() {
            Outcome::Done
        } else {
            Outcome::Refused
        }
    }

    /// As far as a death in the middle may have got: words that are overwritten lie there already.
    pub(crate) fn tear(&mut self, seed: u64, version: u64) {
        let (file, from, words, version) = match act(seed) {
            Act::Write { file, from, words } => (file, from, words, version),
            Act::Punch { file, from, words } | Act::Zero { file, from, words, .. } => {
                (file, from, words, 0)
            }
            _ => return,
        };
        if let Some(file) = self.file_of(file) {
            file.tear(from, words, version);
        }
    }

    /// Nothing is open any more.
    pub(crate) fn let_go(&mut self) {
        self.open = [None; HANDLES as usize];
        self.forget();
    }

    /// How many files are open that have no name.
    pub(crate) fn nameless(&self) -> usize {
        let named = self.named();
        let open: BTreeSet<u64> = self.open.iter().flatten().copied().collect();
        open.difference(&named).count()
    }

    fn named(&self) -> BTreeSet<u64> {
        self.folders.iter().flatten().flat_map(BTreeMap::values).copied().collect()
    }

    /// Forgets what has no name and is not open.
    fn forget(&mut self) {
        let (named, open) = (self.named(), self.open);
        self.nodes.retain(|node, _| named.contains(node) || open.contains(&Some(*node)));
    }

    fn node(&self, at: Spot) -> Option<u64> {
        self.folders[usize::from(at.folder)].as_ref()?.get(&at.name).copied()
    }

    /// The node of a name, if it is a file.
    fn named_file(&self, at: Spot) -> Option<u64> {
        let node = self.node(at)?;
        matches!(self.nodes[&node].thing, Thing::File(_)).then_some(node)
    }

    fn file_of(&mut self, file: Target) -> Option<&mut FileWords> {
        let open = self.open[usize::from(file.handle)];
        let node = open.or_else(|| self.named_file(file.at))?;
        match &mut self.nodes.get_mut(&node).expect("it has a name, or is open").thing {
            Thing::File(words) => Some(words),
            Thing::Symlink(_) => None,
        }
    }

    fn make(&mut self, at: Spot, thing: Thing, mode: u16) -> Option<u64> {
        let names = self.folders[usize::from(at.folder)].as_mut()?;
        if names.contains_key(&at.name) {
            return None;
        }
        self.made += 1;
        names.insert(at.name, self.made);
        self.nodes.insert(self.made, Node { thing, mode, note: None });
        Some(self.made)
    }

    fn put(&mut self, at: Spot, node: u64) {
        let names = self.folders[usize::from(at.folder)].as_mut().expect("looked at before");
        names.insert(at.name, node);
    }

    fn take(&mut self, at: Spot) -> Option<u64> {
        self.folders[usize::from(at.folder)].as_mut()?.remove(&at.name)
    }

    fn try_imagine(&mut self, act: Act, version: u64) -> Option<()> {
        match act {
            Act::Create { at, handle } => {
                let made = self.make(at, Thing::File(FileWords::default()), MODE)?;
                self.open[usize::from(handle)] = Some(made);
            }
            Act::Open { at, handle } => {
                self.open[usize::from(handle)] = Some(self.named_file(at)?);
            }
            Act::Close { handle } => drop(self.open[usize::from(handle)].take()?),
            Act::Write { file, from, words } => self.file_of(file)?.set(from, words, version),
            Act::Append { file, words } => {
                let file = self.file_of(file)?;
                file.set(file.len(), words, version);
            }
            Act::Resize { file, words } => self.file_of(file)?.resize(words),
            Act::Punch { file, from, words } => self.file_of(file)?.set_within(from, words, 0),
            Act::Zero { file, from, words, keep } => {
                let file = self.file_of(file)?;
                if keep {
                    file.set_within(from, words, 0);
                } else {
                    file.set(from, words, 0);
                }
            }
            Act::Allocate { file, from, words, keep } => {
                let file = self.file_of(file)?;
                if !keep && from + words > file.len() {
                    file.resize(from + words);
                }
            }
            Act::Sync { file } => drop(self.file_of(file)?),
            Act::Symlink { at } => drop(self.make(at, Thing::Symlink(version), 0o777)?),
            Act::Mode { at, mode } => {
                let node = self.named_file(at)?;
                self.nodes.get_mut(&node).expect("it has a name").mode = mode;
            }
            Act::Note { at } => {
                let node = self.named_file(at)?;
                self.nodes.get_mut(&node).expect("it has a name").note = Some(version);
            }
            _ => self.imagine_names(act)?,
        }
        self.forget();
        Some(())
    }

    fn imagine_names(&mut self, act: Act) -> Option<()> {
        match act {
            Act::Link { from, to } => {
                let node = self.node(from)?;
                if self.folders[usize::from(to.folder)].is_none() || self.node(to).is_some() {
                    return None;
                }
                self.put(to, node);
            }
            Act::Unlink { at } => drop(self.take(at)?),
            Act::Rename { from, to, clash } => self.rename(from, to, clash)?,
            Act::MakeFolder { folder } => {
                let there = &mut self.folders[usize::from(folder)];
                if there.is_some() {
                    return None;
                }
                *there = Some(BTreeMap::new());
            }
            Act::RemoveFolder { folder } => {
                let there = &mut self.folders[usize::from(folder)];
                there.take_if(|names| names.is_empty())?;
            }
            Act::RenameFolder { from, clash } => {
                let (from, to) = (usize::from(from), usize::from(FOLDERS - from));
                self.folders[from].as_ref()?;
                let there = self.folders[to].as_ref().map(BTreeMap::is_empty);
                match (clash, there) {
                    (Clash::Refuse, None) | (Clash::Replace, None | Some(true)) => {
                        self.folders[to] = self.folders[from].take();
                    }
                    (Clash::Exchange, Some(_)) => self.folders.swap(from, to),
                    _ => return None,
                }
            }
            Act::DeleteFolder { folder } => drop(self.folders[usize::from(folder)].take()?),
            _ => unreachable!("{act:?} changes no name"),
        }
        Some(())
    }

    fn rename(&mut self, from: Spot, to: Spot, clash: Clash) -> Option<()> {
        let node = self.node(from)?;
        self.folders[usize::from(to.folder)].as_ref()?;
        let there = self.node(to);
        match (clash, there) {
            (Clash::Refuse, Some(_)) | (Clash::Exchange, None) => return None,
            // Two names of one file: as POSIX has it, both stay.
            (_, Some(there)) if there == node => {}
            (Clash::Exchange, Some(there)) => {
                self.put(to, node);
                self.put(from, there);
            }
            (Clash::Refuse | Clash::Replace, _) => {
                self.take(from);
                self.put(to, node);
            }
        }
        Some(())
    }
}
