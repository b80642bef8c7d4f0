//! Families: objects that carry about the same keys, and how their attributes are grouped.
//!
//! A segment's rows are of one family. Under each *tag* (a group with settings of its own; 0 for
//! all objects that have none above them, which are *free*) there are some families, told apart by
//! their keys: an object belongs to the one whose usual keys are most like its own. A family that
//! was split by value is an inner node: its objects belong to one of its two children. One that was
//! merged away points to the family that took its objects over. So every object has one leaf
//! ([`Families::leaf`]), and a segment whose family is no leaf any more is rewritten, one in a
//! transaction.
//!
//! Attribute groups say which keys lie side by side in the segments to come. Segments say
//! themselves how they were built, so a change of groups needs no rewriting to be right; segments
//! older than `renewed` are rewritten one by one all the same, to have its use.

mod codec;
pub(crate) mod groups;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Gid;
use engram_catalog::meta::meta_u64;
use engram_catalog::{Table, Txn, WriteTxn};
use engram_columns::cell::{Cell, compare};
use engram_columns::column_key::ColumnKey;
use engram_columns::segment::{AttributeGroup, GroupKind, SegmentLayout};

/// The most families that the keys of a tag's objects may form.
const ROOTS_MAX: usize = 64;

/// How many leaves get segments of their own however few their objects are.
const LEAVES_FEW: usize = 4;

/// The most keys that a family gives groups to; it counts twice as many.
const KEYS_MAX: usize = 1024;

/// The row of `meta` with the next family's number.
const NEXT_FAMILY: &[u8] = b"next_family";
/// The rows of `meta` with what was done to families that are forgotten ([`Past`]).
const PAST: [&[u8]; 3] = [b"past_seals", b"past_splits", b"past_merges"];

/// A split by value: below `at`, or without a value that compares, is `low`.
#[derive(Clone, Debug)]
pub struct Split {
    /// The attribute by whose value objects are told apart.
    pub key: ColumnKey,
    /// The least value that is `high`.
    pub at: Cell<'static>,
    /// The family of the lesser values, and of objects without one.
    pub low: u32,
    /// The family of this value and greater ones.
    pub high: u32,
    /// Whether a query asked for it.
    pub hinted: bool,
}

/// A family, as its row in `index_families` has it.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// Its number, from 1.
    pub id: u32,
    /// The tag, 0 for free objects.
    pub tag: Gid,
    /// The family that it was split from, 0 for none.
    pub parent: u32,
    /// The family that took its objects over, 0 for none.
    pub into: u32,
    /// How many objects came into it from the tail.
    pub objects: u64,
    /// How many of these had each key, ascending by key.
    pub keys: Vec<(ColumnKey, u64)>,
    /// Which keys lie together.
    pub groups: Vec<AttributeGroup>,
    /// The next attribute group's number.
    pub next_group: u32,
    /// Where it was split.
    pub split: Option<Split>,
    /// Segments with a lesser number are rewritten.
    pub renewed: u32,
    /// How often objects were sealed into it.
    pub seals: u64,
    /// How often it was split by value.
    pub splits: u64,
    /// How often two of its groups, or its two children, became one.
    pub merges: u64,
}

impl Family {
    /// Whether objects belong to it directly.
    pub(crate) fn is_leaf(&self) -> bool {
        self.split.is_none() && self.into == 0
    }

    /// The keys that at least half of its objects have.
    fn usual(&self) -> impl Iterator<Item = ColumnKey> {
        self.keys.iter().filter(|(_, count)| count * 2 >= self.objects).map(|(key, _)| *key)
    }

    /// How much these keys, ascending, are like its usual ones: in common over all.
    fn likeness(&self, keys: &[ColumnKey]) -> f64 {
        let (mut usual, mut common) = (0, 0);
        for key in self.usual() {
            usual += 1;
            common += usize::from(keys.binary_search(&key).is_ok());
        }
        let all = usual + keys.len() - common;
        if all == 0 { 1.0 } else { f64::from(common as u32) / f64::from(all as u32) }
    }

    /// Counts objects with these keys, which came from the tail. Of very many keys the rarest are
    /// forgotten: segments keep such columns all the same, in a group for all others.
    pub(crate) fn count(&mut self, keys: &[ColumnKey], objects: u64) {
        self.objects += objects;
        for key in keys {
            match self.keys.binary_search_by_key(key, |(known, _)| *known) {
                Ok(place) => self.keys[place].1 += objects,
                Err(place) => self.keys.insert(place, (*key, objects)),
            }
        }
        self.forget_rarest();
    }

    fn forget_rarest(&mut self) {
        if self.keys.len() > 2 * KEYS_MAX {
            self.keys.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
            self.keys.truncate(KEYS_MAX);
            self.keys.sort_unstable_by_key(|(key, _)| *key);
            self.forget_groups();
        }
    }

    /// Every attribute that its row names.
    pub fn named(&self) -> impl Iterator<Item = ColumnKey> + '_ {
        let counted = self.keys.iter().map(|(key, _)| *key);
        let placed = self.groups.iter().flat_map(|group| group.columns.iter().copied());
        counted.chain(placed).chain(self.split.iter().map(|split| split.key))
    }

    /// Counts anew: so many objects, and how many of them have each key. Keys that none has are
    /// forgotten.
    pub(crate) fn recount(&mut self, keys: BTreeMap<ColumnKey, u64>, objects: u64) {
        (self.keys, self.objects) = (keys.into_iter().collect(), objects);
        self.forget_rarest();
        self.forget_groups();
    }

    /// How its next segment is laid out. Runs are for segments of a lasting size: small ones, soon
    /// to be merged, keep every value in columns.
    pub(crate) fn layout(&self, lasting: bool) -> SegmentLayout {
        let mut groups = self.groups.clone();
        for group in groups.iter_mut().filter(|group| group.kind == GroupKind::Runs && !lasting) {
            group.kind = GroupKind::Rows;
        }
        SegmentLayout { family: self.id, groups }
    }
}

/// The families of one tag.
pub(crate) struct Families {
    pub tag: Gid,
    pub all: BTreeMap<u32, Family>,
    changed: Vec<u32>,
}

impl Families {
    /// Reads the families of a tag.
    pub(crate) fn load(txn: &WriteTxn<'_>, tag: Gid) -> Result<Self> {
        let mut all = BTreeMap::new();
        let mut cursor = txn.seek(Table::IndexFamilies, &tag.to_be_bytes())?;
        while let Some((key, row)) = cursor.next()? {
            let family = Family::parse(key, row)?;
            if family.tag != tag {
                break;
            }
            all.insert(family.id, family);
        }
        Ok(Families { tag, all, changed: Vec::new() })
    }

    /// The family of this number, to be changed.
    pub(crate) fn change(&mut self, id: u32) -> Result<&mut Family> {
        if !self.changed.contains(&id) {
            self.changed.push(id);
        }
        match self.all.get_mut(&id) {
            Some(family) => Ok(family),
            None => fail!(Corrupt, "family {id} of tag {:#x} is not in `index_families`", self.tag),
        }
    }

    /// The family of this number.
    pub(crate) fn get(&self, id: u32) -> Result<&Family> {
        match self.all.get(&id) {
            Some(family) => Ok(family),
            None => fail!(Corrupt, "family {id} of tag {:#x} is not in `index_families`", self.tag),
        }
    }

    /// The root family of objects with these keys, ascending; made if none is like it.
    pub(crate) fn root_of(&mut self, txn: &mut WriteTxn<'_>, keys: &[ColumnKey]) -> Result<u32> {
        let roots = self.all.values().filter(|family| family.parent == 0 && family.into == 0);
        let liked = roots.clone().map(|family| (family.likeness(keys), family.id));
        let best = liked.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        match best {
            Some((likeness, id)) if likeness >= 0.5 || roots.count() >= ROOTS_MAX => Ok(id),
            _ => self.make(txn, 0),
        }
    }

    /// A new family.
    pub(crate) fn make(&mut self, txn: &mut WriteTxn<'_>, parent: u32) -> Result<u32> {
        let id = take_number(txn, NEXT_FAMILY)?;
        let above = self.all.get(&parent);
        let family = Family {
            id,
            tag: self.tag,
            parent,
            groups: above.map(|above| above.groups.clone()).unwrap_or_default(),
            next_group: above.map_or(1, |above| above.next_group),
            keys: above.map(|above| above.keys.clone()).unwrap_or_default(),
            objects: above.map_or(0, |above| above.objects),
            ..Family::default()
        };
        self.all.insert(id, family);
        self.changed.push(id);
        Ok(id)
    }

    /// The leaf below a family for an object, of which `cell` says what it has.
    pub(crate) fn leaf<'c>(
        &self,
        from: u32,
        cell: impl Fn(ColumnKey) -> Result<Option<Cell<'c>>>,
    ) -> Result<u32> {
        let mut id = from;
        for _ in 0..=2 * self.all.len() {
            let family = self.get(id)?;
            id = match (&family.split, family.into) {
                (None, 0) => return Ok(id),
                (_, into @ 1..) => into,
                (Some(split), 0) => {
                    if is_high(split, cell(split.key)?.as_ref()) {
                        split.high
                    } else {
                        split.low
                    }
                }
            };
        }
        fail!(Corrupt, "the families below {from} of tag {:#x} form a loop", self.tag)
    }

    /// How many leaves are below a family, which may be one itself.
    pub(crate) fn leaves_below(&self, id: u32) -> Result<usize> {
        let (mut leaves, mut open) = (0, vec![id]);
        while let Some(id) = open.pop() {
            match &self.get(id)?.split {
                Some(split) if leaves + open.len() <= self.all.len() => {
                    open.extend([split.low, split.high]);
                }
                _ => leaves += 1,
            }
        }
        Ok(leaves)
    }

    /// Whether so many new objects of a family are too few for the leaves below it to get a segment
    /// each, of so many objects on average. A few leaves get theirs all the same.
    pub(crate) fn are_few(&self, id: u32, objects: u64, for_each: usize) -> Result<bool> {
        let leaves = self.leaves_below(id)?;
        Ok(leaves > LEAVES_FEW && objects < (leaves * for_each) as u64)
    }

    /// Whether a split there would part what belongs to a leaf, as far as the splits above it say.
    pub(crate) fn parts(&self, leaf: u32, key: ColumnKey, at: &Cell<'_>) -> Result<bool> {
        let mut child = self.get(leaf)?;
        for _ in 0..self.all.len() {
            let Some(above) = self.all.get(&child.parent) else { break };
            if let Some(split) = above.split.as_ref().filter(|split| split.key == key) {
                let beyond = compare(at, &split.at);
                let outside =
                    if split.high == child.id { Ordering::Less } else { Ordering::Greater };
                if beyond == Some(outside) || beyond == Some(Ordering::Equal) {
                    return Ok(false);
                }
            }
            child = above;
        }
        Ok(true)
    }

    /// Forgets a family to which nothing belongs. What was done to it stays counted.
    pub(crate) fn remove(&mut self, txn: &mut WriteTxn<'_>, id: u32) -> Result<()> {
        if let Some(family) = self.all.remove(&id) {
            Past::load(txn)?.with(&family).save(txn)?;
        }
        self.changed.retain(|changed| *changed != id);
        txn.delete(Table::IndexFamilies, &codec::key(self.tag, id))?;
        Ok(())
    }

    /// Writes those that changed.
    pub(crate) fn save(&mut self, txn: &mut WriteTxn<'_>) -> Result<()> {
        for id in std::mem::take(&mut self.changed) {
            if let Some(family) = self.all.get(&id) {
                txn.put(Table::IndexFamilies, &codec::key(self.tag, id), &family.encode())?;
            }
        }
        Ok(())
    }
}

/// How often anything was done to families that are forgotten since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    pub seals: u64,
    pub splits: u64,
    pub merges: u64,
}

impl Past {
    pub(crate) fn load(txn: &Txn<'_>) -> Result<Self> {
        let count = |name| meta_u64(txn.get(Table::Meta, name)?);
        let [seals, splits, merges] = PAST.map(count);
        Ok(Past { seals: seals?, splits: splits?, merges: merges? })
    }

    fn with(self, family: &Family) -> Self {
        Past {
            seals: self.seals + family.seals,
            splits: self.splits + family.splits,
            merges: self.merges + family.merges,
        }
    }

    fn save(self, txn: &mut WriteTxn<'_>) -> Result<()> {
        for (name, count) in PAST.into_iter().zip([self.seals, self.splits, self.merges]) {
            txn.put(Table::Meta, name, &count.to_le_bytes())?;
        }
        Ok(())
    }
}

fn is_high(split: &Split, cell: Option<&Cell<'_>>) -> bool {
    cell.and_then(|cell| compare(cell, &split.at)).is_some_and(Ordering::is_ge)
}

/// Takes the next of numbers that are never given twice, from 1.
pub(crate) fn take_number(txn: &mut WriteTxn<'_>, counter: &[u8]) -> Result<u32> {
    let next = meta_u64(txn.get(Table::Meta, counter)?)?.max(1);
    let Ok(number) = u32::try_from(next) else {
        fail!(PoolFull, "the index has used up 2^32 numbers: make a new namespace")
    };
    txn.put(Table::Meta, counter, &(next + 1).to_le_bytes())?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::groups::Occurrence;
    use super::{Cell, Family, KEYS_MAX, Split, is_high};
    use crate::settings::IndexSettings;

    #[test]
    fn likeness_counts_what_most_objects_have() {
        let mut family = Family::default();
        family.count(&[1, 2, 3], 10);
        family.count(&[1, 2, 9], 1);
        assert!((family.likeness(&[1, 2, 3]) - 1.0).abs() < 1e-9);
        assert!((family.likeness(&[1, 2, 3, 4]) - 0.75).abs() < 1e-9);
        assert!(family.likeness(&[7, 8]) < 0.1);
        assert!((Family::default().likeness(&[]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn of_very_many_keys_a_family_remembers_the_most_usual() {
        let mut family = Family::default();
        for object in 0..3000 {
            let keys: Vec<u32> =
                [1, 2].into_iter().chain(10 + 20 * object..30 + 20 * object).collect();
            family.count(&keys, 1);
            let signatures = [(keys, 1)];
            family.place_keys(&Occurrence::new(&signatures), &IndexSettings::default().effective());
        }
        assert!(family.keys.len() <= 2 * KEYS_MAX, "{}", family.keys.len());
        assert_eq!(family.keys[..2], [(1, 3000), (2, 3000)]);
        let placed: Vec<u32> =
            family.groups.iter().flat_map(|group| group.columns.clone()).collect();
        assert!(placed.len() <= KEYS_MAX, "{}", placed.len());
        assert!(placed.contains(&1) && placed.contains(&2));
    }

    #[test]
    fn what_lacks_the_value_is_low() {
        let split = Split { key: 5, at: Cell::Int(0), low: 1, high: 2, hinted: false };
        assert!(is_high(&split, Some(&Cell::Float(0.0))));
        assert!(!is_high(&split, Some(&Cell::Int(-1))));
        assert!(!is_high(&split, Some(&Cell::Text("x".into()))));
        assert!(!is_high(&split, None));
    }
}
