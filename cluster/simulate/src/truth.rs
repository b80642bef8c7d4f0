//! What is so, and what must never be.
//!
//! The truth is told every commit of the coordinator, every answer of a node and every end of a
//! read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use engram_protocol::coordinator::{Change, Keys, LeaseId, Revision, Transaction};
use engram_protocol::holdings::Held;
use engram_protocol::manifest::{Holder, Manifest};
use engram_protocol::map::{Entry, State};

use crate::S;

/// What must never be, and was.
#[derive(Clone, Debug)]
pub struct Violation {
    /// When, in nanoseconds.
    pub at: u64,
    /// Of which invariant.
    pub of: &'static str,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}: {}", seconds(self.at), self.of, self.what)
    }
}

/// A moment in seconds, to the millisecond.
pub(crate) fn seconds(at: u64) -> String {
    format!("{}.{:03} s", at / S, at % S / (S / 1000))
}

/// One content for each name and generation.
pub(crate) const I1: &str = "I1, one content of a generation";
/// What is said to be lost is.
pub(crate) const I2: &str = "I2, what is there is not lost";
/// A publication takes effect as its maker is told, and once.
pub(crate) const ONCE: &str = "C4, a publication takes effect once or never";
/// What was replaced before the read began is not read.
pub(crate) const STRONG: &str = "C5, a strong read";
/// Nobody is answered by a member that was struck.
pub(crate) const I3: &str = "I3, struck members are silent";
/// A manifest names only parts that were whole and checked.
pub(crate) const I4: &str = "I4, parts that are named are there";
/// After a time of peace all is in order.
pub(crate) const PEACE: &str = "peace";

type Check = Result<(), Violation>;

pub(crate) fn never(at: u64, of: &'static str, what: String) -> Check {
    Err(Violation { at, of, what })
}

/// What a maker wants a name to be.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) path: String,
    /// The uuid of its manifest; none where it is removed.
    pub(crate) uuid: Option<String>,
    /// The revision at which the maker saw the name.
    pub(crate) seen: Revision,
}

/// What is so.
pub(crate) struct Truth {
    map: String,
    names: String,
    entries: BTreeMap<String, (LeaseId, State)>,
    contents: BTreeMap<(String, Revision), String>,
    /// Each change of a name: the manifest's uuid, or none.
    changes: BTreeMap<String, Vec<(Revision, Option<String>)>>,
    /// The last change of a name that its maker was told of.
    acknowledged: BTreeMap<String, Revision>,
    whole: BTreeSet<(String, LeaseId, String, u32)>,
    /// The holders of each name, as it was written last.
    holders: BTreeMap<String, Vec<Holder>>,
    pub(crate) struck: u64,
}

impl Truth {
    pub(crate) fn new(keys: &Keys) -> Truth {
        Truth {
            map: keys.node(""),
            names: keys.name(""),
            entries: BTreeMap::new(),
            contents: BTreeMap::new(),
            changes: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            whole: BTreeSet::new(),
            holders: BTreeMap::new(),
            struck: 0,
        }
    }

    /// The part is whole at this member.
    pub(crate) fn is_whole(&mut self, node: &str, member: LeaseId, held: &Held) {
        self.whole.insert((node.to_owned(), member, held.uuid.clone(), held.part));
    }

    /// The coordinator has done this.
    pub(crate) fn committed(&mut self, at: u64, revision: Revision, done: &Transaction) -> Check {
        for change in &done.changes {
            match change {
                Change::Put { key, value, .. } if key.starts_with(&self.map) => {
                    let entry: Entry = serde_json::from_slice(value).expect("an entry");
                    let now = (entry.member, entry.state);
                    let before = self.entries.insert(entry.identity.node, now);
                    if before == Some((entry.member, State::Serving)) && now.1 != State::Serving {
                        self.struck += 1;
                    }
                }
                Change::Put { key, value, .. } if key.starts_with(&self.names) => {
                    let path = key[self.names.len()..].to_owned();
                    let manifest = Manifest::decode(value).expect("a manifest");
                    self.check_manifest(at, &path, &manifest)?;
                    let before = self.holders.insert(path.clone(), manifest.holders.clone());
                    let changes = self.changes.entry(path.clone()).or_default();
                    let uuid = Some(manifest.uuid.clone());
                    let is_entered = changes.last().is_some_and(|(_, last)| *last == uuid);
                    let is_again = changes.last().is_none_or(|(_, last)| *last != uuid)
                        && changes.iter().any(|(_, earlier)| *earlier == uuid);
                    changes.push((revision, uuid));
                    if is_again {
                        return never(at, ONCE, format!("{path} is again what it was before"));
                    }
                    if is_entered {
                        let (now, before) = (manifest.holders, before.unwrap_or_default());
                        let new = now.iter().filter(|holder| !before.contains(holder));
                        self.check_holders(at, new)?;
                    }
                }
                Change::Delete { key } if key.starts_with(&self.names) => {
                    let path = key[self.names.len()..].to_owned();
                    self.changes.entry(path).or_default().push((revision, None));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_manifest(&mut self, at: u64, path: &str, manifest: &Manifest) -> Check {
        let key = (path.to_owned(), manifest.generation);
        let content = self.contents.entry(key).or_insert_with(|| manifest.uuid.clone());
        if *content != manifest.uuid {
            let (one, other) = (content.clone(), &manifest.uuid);
            return never(at, I1, format!("{path} is {one}, and then {other} of one generation"));
        }
        let boxes = manifest.array().expect("an array");
        for part in 0..boxes.parts.len() as u32 {
            for holder in manifest.holders_of(part) {
                let (node, member, uuid) = (&holder.node, holder.member, manifest.parts_uuid());
                let whole = (node.clone(), member, uuid.to_owned(), part);
                if !self.whole.contains(&whole) {
                    let what = format!("{path}: part {part} was not whole at {node} {member:x}");
                    return never(at, I4, what);
                }
            }
        }
        Ok(())
    }

    /// Who is published or entered as a holder is a member.
    pub(crate) fn check_holders<'h>(
        &self,
        at: u64,
        holders: impl IntoIterator<Item = &'h Holder>,
    ) -> Check {
        for holder in holders {
            if self.entries.get(&holder.node) != Some(&(holder.member, State::Serving)) {
                let what =
                    format!("{} {:x} is no member, and a holder", holder.node, holder.member);
                return never(at, I4, what);
            }
        }
        Ok(())
    }

    /// A member answers.
    pub(crate) fn answers(&self, at: u64, node: &str, member: LeaseId) -> Check {
        if self.entries.get(node) == Some(&(member, State::Serving)) {
            return Ok(());
        }
        never(at, I3, format!("{node} answers as {member:x}"))
    }

    /// A part is freed: no manifest names it at this member.
    pub(crate) fn freed(
        &mut self,
        at: u64,
        node: &str,
        member: Option<LeaseId>,
        held: &Held,
        manifest: Option<&Manifest>,
    ) -> Check {
        self.whole.retain(|(at_node, _, uuid, part)| {
            at_node != node || *uuid != held.uuid || *part != held.part
        });
        let Some(manifest) = manifest.filter(|manifest| manifest.parts_uuid() == held.uuid) else {
            return Ok(());
        };
        let is_named = (manifest.holders_of(held.part).iter())
            .any(|holder| holder.node == node && Some(holder.member) == member);
        if is_named {
            return never(at, I4, format!("{node} frees part {} of {}", held.part, held.path));
        }
        Ok(())
    }

    /// A maker was told that these names have changed.
    pub(crate) fn acknowledge(&mut self, path: &str, revision: Revision) {
        let last = self.acknowledged.entry(path.to_owned()).or_default();
        *last = (*last).max(revision);
    }

    /// Whether this has taken effect.
    fn took_effect(&self, made: &Made) -> bool {
        let changes = self.changes.get(&made.path).map_or(&[][..], Vec::as_slice);
        changes.iter().any(|(revision, content)| *revision > made.seen && *content == made.uuid)
    }

    /// A maker was told that it has published this.
    pub(crate) fn published(&self, at: u64, made: &[Made]) -> Check {
        match made.iter().find(|made| !self.took_effect(made)) {
            Some(never_was) => never(at, ONCE, format!("{never_was:?} was to be, and never was")),
            None => Ok(()),
        }
    }

    /// A maker was told that nothing took effect. A removal may be another's.
    pub(crate) fn not_published(&self, at: u64, made: &[Made]) -> Check {
        match made.iter().find(|made| made.uuid.is_some() && self.took_effect(made)) {
            Some(was) => never(at, ONCE, format!("{was:?} was not to be, and was")),
            None => Ok(()),
        }
    }

    /// The last change of a name that its maker was told of by now.
    pub(crate) fn acknowledged(&self, path: &str) -> Revision {
        self.acknowledged.get(path).copied().unwrap_or(0)
    }

    /// A read ended with a manifest that was written at this revision, or with none. At its
    /// beginning the change of `acknowledged` was known.
    pub(crate) fn read(
        &self,
        at: u64,
        path: &str,
        acknowledged: Revision,
        found: Option<Revision>,
    ) -> Check {
        let changes = self.changes.get(path).map_or(&[][..], Vec::as_slice);
        let before = changes.iter().rev().find(|(revision, _)| *revision <= acknowledged);
        let is_right = match found {
            Some(revision) => revision >= acknowledged,
            None => {
                before.is_none_or(|(_, content)| content.is_none())
                    || changes
                        .iter()
                        .any(|(revision, content)| *revision > acknowledged && content.is_none())
            }
        };
        if is_right {
            return Ok(());
        }
        never(at, STRONG, format!("{path} is read as of {found:?}, after {acknowledged}"))
    }
}
