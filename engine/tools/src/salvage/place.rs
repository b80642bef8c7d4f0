//! Where salvaged members go: to their own paths, as far as there are groups above them.

use std::collections::{HashMap, HashSet};

use super::gather::Gathered;
use engram_base::id::{Gid, Oid};
use engram_base::name::Name;
use engram_ops::group::DEPTH_MAX;
use engram_records::object::Record;

/// A member that has no group any more is put below this one.
const LOST: &str = "lost+found";

/// The paths that are given out.
pub(super) struct GivenPaths<'g> {
    gathered: &'g Gathered,
    groups: HashMap<Gid, String>,
    taken: HashSet<String>,
}

impl<'g> GivenPaths<'g> {
    pub(super) fn new(gathered: &'g Gathered) -> Self {
        let mut places = GivenPaths { gathered, groups: HashMap::new(), taken: HashSet::new() };
        for gid in gathered.groups.keys() {
            let path = places.of_group(*gid);
            places.taken.insert(path);
        }
        places
    }

    /// Where a group is by its record, or by the table of names; `None` for one that is lost.
    fn above(&self, gid: Gid) -> Option<(Gid, String)> {
        if let Some(saved) = self.gathered.groups.get(&gid) {
            let record = Record::parse(&saved.row).ok()?;
            return Some((record.parent, record.name.to_owned()));
        }
        self.gathered.group_names.get(&gid).cloned()
    }

    /// The path of a group; empty for the root.
    pub(super) fn of_group(&mut self, gid: Gid) -> String {
        if let Some(path) = self.groups.get(&gid) {
            return path.clone();
        }
        // Upwards to the root, or to where nothing is known any more.
        let (mut names, mut at, mut steps) = (Vec::new(), gid, 0);
        let path = loop {
            match self.above(at) {
                Some((0, _)) => break names,
                Some((parent, name)) if steps < DEPTH_MAX => {
                    names.push(named(&name, at));
                    (at, steps) = (parent, steps + 1);
                }
                _ => {
                    names.push(format!("{at:x}"));
                    names.push(LOST.to_owned());
                    break names;
                }
            }
        };
        let path = path.into_iter().rev().collect::<Vec<_>>().join("/");
        self.groups.insert(gid, path.clone());
        path
    }

    /// The path of an object, and what is to be said of it if it is not its own.
    pub(super) fn of_object(&mut self, oid: Oid) -> (String, Option<String>) {
        let Ok(record) = Record::parse(&self.gathered.objects[&oid].row) else {
            return (format!("{LOST}/{oid:x}"), None);
        };
        let group = self.of_group(record.parent);
        let join = |name: &str| {
            if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") }
        };
        let own = join(record.name);
        let valid = Name::new(record.name).is_ok() && !self.taken.contains(&own);
        let path = if valid { own.clone() } else { join(&format!("{oid:x}")) };
        self.taken.insert(path.clone());
        if group == LOST || group.starts_with(&format!("{LOST}/")) {
            return (path, Some("put there, since a group above it is lost".to_owned()));
        }
        let moved = (path != own).then(|| format!("put there, since {own:?} cannot be its path"));
        (path, moved)
    }
}

/// A group's name, or its GID where that is none.
fn named(name: &str, gid: Gid) -> String {
    if Name::new(name).is_ok() { name.to_owned() } else { format!("{gid:x}") }
}
