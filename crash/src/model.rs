//! What a worker's part of the pool must hold, worked out from what the worker has acknowledged.

use std::collections::BTreeMap;

use engram::IndexMode;

use crate::crowd::Logged;
use crate::data::{Words, word_of};
use crate::filed::Filed;
use crate::grids::Gridded;
use crate::operation::{Name, Operation, Outcome, batch, index_mode};
use crate::roam::Roaming;
use crate::travel::Travellers;

/// An object as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its length in words.
    pub words: u32,
    /// Versions of which each of its words may be one; 0 stands for zeros. More than one only after
    /// a death in the middle of writing in place.
    pub versions: Vec<u64>,
    /// Its attribute `v`, set when it was made.
    pub made: u64,
    /// Its attribute `a`, set since.
    pub noted: Option<u64>,
    /// When it is indexed.
    pub index: IndexMode,
}

impl Item {
    /// What of a value is not as it must be.
    pub fn misfit(&self, slot: usize, words: &Words<'_>) -> Option<String> {
        if words.len() != self.words as usize {
            return Some(format!("it has {} words, not {}", words.len(), self.words));
        }
        let fits = |place: usize| {
            let found = words.at(place);
            self.versions.iter().any(|&version| match version {
                0 => found == 0,
                _ => found == word_of(slot as u64, version, place),
            })
        };
        let place = (0..words.len()).find(|&place| !fits(place))?;
        Some(format!(
            "word {place} of {} is {:#x}, of none of the versions {:?}",
            self.words,
            words.at(place),
            self.versions
        ))
    }
}

/// All objects of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// By their names.
    pub items: BTreeMap<Name, Item>,
    /// Groups that there are.
    pub groups: [bool; 3],
    /// What goes from scope to scope.
    pub travellers: Travellers,
    /// What it has in the group that everybody moves.
    pub roaming: Roaming,
    /// Its rows of chunked arrays.
    pub gridded: Gridded,
    /// Its files.
    pub filed: Filed,
    /// Its records of the log.
    pub logged: Logged,
}

impl Model {
    /// Does to the model what an operation does to the pool; how that must end.
    pub fn imagine(&mut self, operation: &Operation) -> Outcome {
        use Operation as O;
        match operation {
            O::Put { name, version, words, index }
            | O::Allocate { name, version, words, index } => {
                self.put(*name, *words, *version, *version, index_mode(*index))
            }
            O::Zeroed { name, version, words } => {
                self.put(*name, *words, 0, *version, IndexMode::Sync)
            }
            O::Replace { name, version } => self.change(*name, |item| {
                item.versions = vec![*version];
            }),
            O::InPlace { name, version } => self.change(*name, |item| {
                item.versions = vec![*version];
            }),
            O::Annotate { name, version } => self.change(*name, |item| item.noted = Some(*version)),
            O::Pad { name } | O::NewKey { name, .. } => self.change(*name, |_| ()),
            O::Delete { name } => {
                self.items.remove(name).map_or(Outcome::Refused, |_| Outcome::Done)
            }
            O::DeleteGroup { group } => {
                self.items.retain(|name, _| name.group() != *group);
                if std::mem::take(&mut self.groups[*group as usize]) {
                    Outcome::Done
                } else {
                    Outcome::Refused
                }
            }
            O::Rename { old, new } => self.rename(*old, *new),
            O::Batch { seed, version, many } => {
                for operation in batch(*seed, *version, *many) {
                    self.imagine(&operation);
                }
                Outcome::Done
            }
            O::Arrive { .. } | O::Leave { .. } | O::Move { .. } | O::MoveRun { .. } => {
                if self.travellers.imagine(operation) { Outcome::Refused } else { Outcome::Done }
            }
            O::Roam { seed, version } => self.roaming.imagine(*seed, *version),
            O::Grid { seed, version } => self.gridded.imagine(*seed, *version),
            O::File { seed, version } => self.filed.imagine(*seed, *version),
            O::Crowd { seed, version } => self.logged.imagine(*seed, *version),
            O::Reopen { .. } => {
                self.filed.let_go();
                Outcome::Done
            }
            O::Abandon { .. }
            | O::Scratch { .. }
            | O::Grow
            | O::Common { .. }
            | O::Query { .. }
            | O::Maintain
            | O::Drain
            | O::Hold { .. }
            | O::Fork
            | O::Exec
            | O::Snap
            | O::Lock { .. }
            | O::Mode { .. }
            | O::Watch => Outcome::Done,
        }
    }

    /// As far as a death, or a lack of space, in the middle of writing in place may have got.
    pub fn tear(&mut self, operation: &Operation) {
        match operation {
            Operation::InPlace { name, version } => {
                if let Some(item) = self.items.get_mut(name) {
                    item.versions.push(*version);
                }
            }
            Operation::File { seed, version } => self.filed.tear(*seed, *version),
            _ => {}
        }
    }

    fn put(
        &mut self,
        name: Name,
        words: u32,
        version: u64,
        made: u64,
        index: IndexMode,
    ) -> Outcome {
        self.groups[name.group() as usize] = true;
        let item = Item { words, versions: vec![version], made, noted: None, index };
        self.items.insert(name, item);
        Outcome::Done
    }

    fn change(&mut self, name: Name, change: impl FnOnce(&mut Item)) -> Outcome {
        match self.items.get_mut(&name) {
            Some(item) => {
                change(item);
                Outcome::Done
            }
            None => Outcome::Refused,
        }
    }

    fn rename(&mut self, old: Name, new: Name) -> Outcome {
        if !self.items.contains_key(&old) {
            return Outcome::Refused;
        }
        if old == new {
            return Outcome::Done;
        }
        if self.items.contains_key(&new) {
            return Outcome::Refused;
        }
        let item = self.items.remove(&old).expect("looked at above");
        self.groups[new.group() as usize] = true;
        self.items.insert(new, item);
        Outcome::Done
    }
}
