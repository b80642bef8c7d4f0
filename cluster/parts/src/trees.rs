//! Subtrees: groups of a node pool that a name of the cluster is, with all below them.
//!
//! *Invariant*: a subtree is known by its manifest's uuid, never by a path. So whoever asks for one
//! that was replaced is not given what has its name now.
//!
//! *Protocol*. A subtree is prepared below `.cluster/trees`, where nobody looks, and a part of its
//! uuid, with its group's number as value, stands for it: as parts of arrays it is entered into
//! manifests again, and freed. When its manifest is there, the group is moved to the subtree's own
//! name in the pool: there all who have the pool find it, and what queries say of paths is true. A
//! former subtree of that name gives way. All else of that name stays, and so does the new group:
//! it is found by its number in either place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use engram_base::error::{Error, Kind, Result};
use engram_base::mutex::lock;

use crate::head::{Class, Head};
use crate::pool::{New, NodePool, Place};
use crate::{Mark, PartName, Parts, check_uuid};

/// The group of subtrees whose manifests are not there yet, or are no more.
const TREES: &str = ".cluster/trees";

/// The subtrees of one node pool.
#[derive(Clone)]
pub struct Trees {
    parts: Parts,
    /// The groups of those that were asked for.
    known: Arc<Mutex<HashMap<String, u64>>>,
}

impl Trees {
    /// The subtrees of the pool in which these parts lie.
    pub fn of(parts: &Parts) -> Trees {
        Trees { parts: parts.clone(), known: Arc::default() }
    }

    fn pool(&self) -> &NodePool {
        self.parts.pool()
    }

    /// Makes an empty subtree, which nobody finds yet: the number of its group.
    pub fn prepare(&self, uuid: &str, mark: &Mark) -> Result<u64> {
        check_uuid(uuid)?;
        let taken = self.pool().look(Place::at(&mark.path))?;
        if taken.is_some() && self.tree_at(&mark.path)?.is_none() {
            let path = &mark.path;
            let why = format!("the node pool has {path:?} already, which is not the cluster's");
            return Err(Error::new(Kind::Exists, why));
        }
        let group = self.pool().make_group(Place::at(&format!("{TREES}/{uuid}")))?;
        let head = Head { class: Class::Blob, ..Head::default() }.encode();
        let mark = mark.encode();
        let value = group.to_string();
        let nbytes = value.len() as u64;
        let new = New { head: &head, mark: &mark, nbytes, overwrite: true };
        self.pool().put(Place::at(&sign_of(uuid).path()?), &new, value.as_bytes())?;
        Ok(group)
    }

    /// The number of a subtree's group; none where it is not here.
    pub fn group(&self, uuid: &str) -> Result<Option<u64>> {
        if let Some(group) = lock(&self.known).get(uuid) {
            return Ok(Some(*group));
        }
        let group = self.read(uuid)?;
        if let Some(group) = group {
            lock(&self.known).insert(uuid.to_owned(), group);
        }
        Ok(group)
    }

    fn read(&self, uuid: &str) -> Result<Option<u64>> {
        let Some(sign) = self.parts.bytes(&sign_of(uuid))? else { return Ok(None) };
        if sign.head()?.class != Class::Blob {
            return Ok(None);
        }
        let mut text = vec![0; sign.len().min(20)];
        sign.copy_out(0, &mut text);
        Ok(str::from_utf8(&text).ok().and_then(|text| text.parse().ok()))
    }

    /// Moves a subtree to its name, whose manifest is there. It may be there already.
    pub fn settle(&self, uuid: &str) -> Result<()> {
        let Some(mark) = self.parts.mark(&sign_of(uuid))? else { return Ok(()) };
        let made = format!("{TREES}/{uuid}");
        if self.pool().look(Place::at(&made))?.is_none() {
            return Ok(());
        }
        if let Some(former) = self.tree_at(&mark.path)? {
            self.pool().rename(Place::at(&mark.path), Place::at(&format!("{TREES}/{former}")))?;
        }
        match self.pool().rename(Place::at(&made), Place::at(&mark.path)) {
            Err(error) if error.kind() != Kind::Exists => Err(error),
            _ => Ok(()),
        }
    }

    /// Frees a subtree with all that is in it; false where the uuid is of no subtree that is here.
    pub fn free(&self, uuid: &str) -> Result<bool> {
        let Some(group) = self.read(uuid)? else { return Ok(false) };
        lock(&self.known).remove(uuid);
        self.pool().free(Place { group, path: "" })?;
        self.parts.free(&sign_of(uuid))?;
        Ok(true)
    }

    /// Forgets the groups of those that were asked for: another process may have freed one.
    pub fn forget(&self) {
        lock(&self.known).clear();
    }

    /// The uuid of the subtree that is the group of this path, if one is.
    fn tree_at(&self, path: &str) -> Result<Option<String>> {
        let Some(found) = self.pool().look(Place::at(path))? else { return Ok(None) };
        let head = found.head()?;
        let (Class::Group, Some(told)) = (head.class, head.told) else { return Ok(None) };
        for (name, mark) in self.parts.all()? {
            if mark.path == path && name.part == 0 && self.read(&name.uuid)? == Some(told.id) {
                return Ok(Some(name.uuid));
            }
        }
        Ok(None)
    }
}

/// The part that stands for a subtree.
fn sign_of(uuid: &str) -> PartName {
    PartName { uuid: uuid.to_owned(), part: 0 }
}
