//! Attribute groups: which keys lie side by side.
//!
//! Keys that the same objects have go together, up to as many as a group may hold. Keys of few
//! objects share groups, and so do keys whose objects are nearly the same. The objects are known by
//! their *signatures*: which sets of keys occur, and how often.

use std::collections::{HashMap, HashSet};

use super::{Family, KEYS_MAX};
use crate::settings::Effective;
use engram_columns::column_key::ColumnKey;
use engram_columns::segment::{AttributeGroup, GroupKind};

/// A set of keys, ascending, and how many objects have just these.
pub(crate) type Signature = (Vec<ColumnKey>, u64);

/// Which signatures have a group's keys, and how many objects they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Presence {
    signatures: Vec<u32>,
    objects: u64,
}

/// What is known of the keys that occur.
pub(crate) struct Occurrence<'a> {
    signatures: &'a [Signature],
    of: HashMap<ColumnKey, Presence>,
}

impl<'a> Occurrence<'a> {
    /// Counts the objects in which each key occurs.
    pub(crate) fn new(signatures: &'a [Signature]) -> Self {
        let mut of: HashMap<ColumnKey, Presence> = HashMap::new();
        for (place, (keys, objects)) in signatures.iter().enumerate() {
            for key in keys {
                let none = Presence { signatures: Vec::new(), objects: 0 };
                let presence = of.entry(*key).or_insert(none);
                presence.signatures.push(place as u32);
                presence.objects += objects;
            }
        }
        Occurrence { signatures, of }
    }

    /// The presence of any of these keys.
    fn any(&self, keys: &[ColumnKey]) -> Presence {
        let known = keys.iter().filter_map(|key| self.of.get(key));
        let mut signatures: Vec<u32> = known.flat_map(|p| p.signatures.iter().copied()).collect();
        signatures.sort_unstable();
        signatures.dedup();
        let objects = signatures.iter().map(|place| self.signatures[*place as usize].1).sum();
        Presence { signatures, objects }
    }

    /// Whether two sets of keys are for one group: both of few objects, or nearly of the same.
    fn fit(&self, a: &[ColumnKey], b: &[ColumnKey], settings: &Effective) -> bool {
        let (a, b) = (self.any(a), self.any(b));
        let few = settings.merge_sf as u64;
        if a.objects < few && b.objects < few {
            return true;
        }
        let common = a.signatures.iter().filter(|s| b.signatures.binary_search(s).is_ok());
        let common: u64 = common.map(|place| self.signatures[*place as usize].1).sum();
        common * 100 >= (a.objects + b.objects - common) * u64::from(settings.merge_overlap)
    }
}

impl Family {
    /// Gives a group to each key that has none. With `Policy::Fixed` new keys get new groups.
    pub(crate) fn place_keys(&mut self, occurrence: &Occurrence<'_>, settings: &Effective) {
        let placed: HashSet<ColumnKey> =
            self.groups.iter().flat_map(|group| group.columns.iter().copied()).collect();
        let mut new: Vec<ColumnKey> = occurrence.of.keys().copied().collect();
        new.retain(|key| !placed.contains(key));
        // Those of the same objects side by side, those of most objects first.
        new.sort_by(|a, b| {
            let (pa, pb) = (&occurrence.of[a], &occurrence.of[b]);
            pb.objects.cmp(&pa.objects).then_with(|| pa.cmp(pb)).then(a.cmp(b))
        });
        // The others share the segments' group of what no group names.
        new.truncate(KEYS_MAX.saturating_sub(placed.len()));
        let most = settings.attributes_per_group;
        let fixed = settings.policy == crate::Policy::Fixed;
        let first_open = if fixed { self.groups.len() } else { 0 };
        let mut last = usize::MAX;
        for key in new {
            let fits = |group: &AttributeGroup| {
                group.kind == GroupKind::Columns
                    && group.columns.len() < most
                    && (most == usize::MAX || occurrence.fit(&group.columns, &[key], settings))
            };
            // The group that the key before has gone to is the likeliest.
            let usual = self.groups.get(last).is_some_and(fits).then_some(last);
            let found = usual.or_else(|| {
                let open = self.groups.iter().skip(first_open);
                open.enumerate().find(|(_, group)| fits(group)).map(|(at, _)| at + first_open)
            });
            last = found.unwrap_or_else(|| self.make_group(GroupKind::Columns));
            self.groups[last].columns.push(key);
        }
    }

    /// Takes keys that are counted no more out of their groups.
    pub(super) fn forget_groups(&mut self) {
        let Family { keys, groups, .. } = self;
        for group in &mut *groups {
            group.columns.retain(|key| keys.binary_search_by_key(key, |(k, _)| *k).is_ok());
        }
        groups.retain(|group| !group.columns.is_empty());
    }

    fn make_group(&mut self, kind: GroupKind) -> usize {
        let id = self.next_group.max(1);
        self.next_group = id + 1;
        self.groups.push(AttributeGroup { id, columns: Vec::new(), kind });
        self.groups.len() - 1
    }

    /// Gives nearly unique keys a group of runs each; whether any is new.
    pub(crate) fn make_runs(&mut self, unique: &[ColumnKey]) -> bool {
        let mut any = false;
        for key in unique {
            let in_runs = |g: &AttributeGroup| g.kind == GroupKind::Runs && g.columns == [*key];
            if self.groups.iter().any(in_runs) {
                continue;
            }
            self.take_out(&[*key]);
            let place = self.make_group(GroupKind::Runs);
            self.groups[place].columns.push(*key);
            any = true;
        }
        any
    }

    fn take_out(&mut self, keys: &[ColumnKey]) {
        for group in &mut self.groups {
            group.columns.retain(|column| !keys.contains(column));
        }
        self.groups.retain(|group| !group.columns.is_empty());
    }

    /// Unites groups that have room for each other and fit; how many went.
    pub(crate) fn unite_groups(
        &mut self,
        occurrence: &Occurrence<'_>,
        settings: &Effective,
    ) -> usize {
        let before = self.groups.len();
        let mut place = 0;
        while place < self.groups.len() {
            let mut other = place + 1;
            while other < self.groups.len() {
                let (a, b) = (&self.groups[place], &self.groups[other]);
                let columns = a.kind == GroupKind::Columns && b.kind == GroupKind::Columns;
                let room = a.columns.len() + b.columns.len() <= settings.attributes_per_group;
                if columns && room && occurrence.fit(&a.columns, &b.columns, settings) {
                    let gone = self.groups.remove(other);
                    self.groups[place].columns.extend(gone.columns);
                } else {
                    other += 1;
                }
            }
            place += 1;
        }
        before - self.groups.len()
    }

    /// Brings keys that are queried together into one group; whether that changed anything.
    pub(crate) fn bring_together(&mut self, keys: &[ColumnKey], most: usize) -> bool {
        let homes: Vec<&AttributeGroup> = self
            .groups
            .iter()
            .filter(|g| g.kind == GroupKind::Columns && g.columns.iter().any(|c| keys.contains(c)))
            .collect();
        let mut wanted: Vec<ColumnKey> =
            homes.iter().flat_map(|g| &g.columns).filter(|c| keys.contains(c)).copied().collect();
        if homes.len() < 2 || wanted.len() > most {
            return false;
        }
        // Whole groups where they have room together; else the keys alone.
        let all: Vec<ColumnKey> = homes.iter().flat_map(|group| &group.columns).copied().collect();
        if all.len() <= most {
            wanted = all;
        }
        self.take_out(&wanted);
        let place = self.make_group(GroupKind::Columns);
        self.groups[place].columns = wanted;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Family, GroupKind, Occurrence};
    use crate::settings::{Effective, IndexSettings, Policy};

    fn settings(most: u32) -> Effective {
        IndexSettings { attributes_per_group: Some(most), ..IndexSettings::default() }.effective()
    }

    fn columns(family: &Family) -> Vec<Vec<u32>> {
        family.groups.iter().map(|group| group.columns.clone()).collect()
    }

    #[test]
    fn keys_that_occur_together_share_groups_of_at_most_as_many_as_asked_for() {
        let signatures = [(vec![1, 2, 3, 4, 5, 6], 100), (vec![1, 2, 7, 8], 100)];
        let occurrence = Occurrence::new(&signatures);
        let mut family = Family::default();
        family.place_keys(&occurrence, &settings(4));
        assert_eq!(columns(&family), [vec![1, 2], vec![3, 4, 5, 6], vec![7, 8]]);
        let mut all = Family::default();
        all.place_keys(&occurrence, &settings(0));
        assert_eq!(all.groups.len(), 1, "all in one");
        assert_eq!(all.groups[0].columns.len(), 8);
    }

    #[test]
    fn keys_of_few_objects_share_a_group() {
        let signatures = [(vec![1, 2], 100), (vec![1, 2, 3], 2), (vec![1, 2, 4], 3)];
        let mut family = Family::default();
        family.place_keys(&Occurrence::new(&signatures), &settings(4));
        assert_eq!(columns(&family), [vec![1, 2], vec![4, 3]]);
    }

    #[test]
    fn new_keys_fill_groups_where_they_may_change_and_get_new_ones_where_not() {
        let (first, then) = ([(vec![1, 2], 100)], [(vec![1, 2, 3], 100)]);
        for (policy, expected) in
            [(Policy::Dynamic, vec![vec![1, 2, 3]]), (Policy::Fixed, vec![vec![1, 2], vec![3]])]
        {
            let settings = Effective { policy, ..settings(4) };
            let mut family = Family::default();
            family.place_keys(&Occurrence::new(&first), &settings);
            family.place_keys(&Occurrence::new(&then), &settings);
            assert_eq!(columns(&family), expected);
        }
    }

    #[test]
    fn nearly_unique_keys_get_runs_of_their_own_once() {
        let signatures = [(vec![1, 2, 3], 100)];
        let mut family = Family::default();
        family.place_keys(&Occurrence::new(&signatures), &settings(4));
        assert!(family.make_runs(&[2]));
        assert!(!family.make_runs(&[2]));
        assert_eq!(columns(&family), [vec![1, 3], vec![2]]);
        assert_eq!(family.groups[1].kind, GroupKind::Runs);
        family.place_keys(&Occurrence::new(&signatures), &settings(4));
        assert_eq!(family.groups.len(), 2, "a key has one group");
    }

    #[test]
    fn groups_are_united_where_they_fit_and_have_room() {
        let signatures = [(vec![1, 2, 3, 4, 5], 100)];
        let occurrence = Occurrence::new(&signatures);
        let mut family = Family::default();
        family.place_keys(&occurrence, &settings(2));
        assert_eq!(family.groups.len(), 3);
        assert_eq!(family.unite_groups(&occurrence, &settings(4)), 1);
        assert!(family.bring_together(&[1, 5], 4));
        let together = columns(&family);
        assert!(together.iter().any(|c| c.contains(&1) && c.contains(&5)), "{together:?}");
        assert!(!family.bring_together(&[1, 5], 4), "they are together already");
    }
}
