//! What families remember is of objects that live.
//!
//! A family counts the objects that come into it, and how many of these have each key; nothing is
//! taken back when an object goes. So where objects come and go, maintenance counts anew from time
//! to time, by what the segments' heads say: once a family has counted more than twice as many
//! objects as its segments have rows; and thoroughly, once any have gone, where somebody asks for
//! maintenance, or a realm rests. Then keys that nobody has any more are forgotten, and compaction
//! finds that their names are of no use. A family that was never split and has no segments left is
//! forgotten as a whole. Where groups are fixed, what a family was first is what it stays.

use std::collections::BTreeMap;

use super::directory::{self, SegmentEntry};
use super::family::{Families, Family};
use engram_base::error::Result;
use engram_catalog::{Txn, WriteTxn};
use engram_columns::column_key::{ColumnKey, is_builtin};

/// A family that has counted fewer objects is not worth a look.
const COUNTED_MIN: u64 = 256;

/// The segments of each family of a tag.
type Segments = BTreeMap<u32, Vec<SegmentEntry>>;

/// Forgets the families without segments that stand alone; whether there were any.
pub(crate) fn drop_empty(
    families: &mut Families,
    txn: &mut WriteTxn<'_>,
    segments: &Segments,
) -> Result<bool> {
    let alone = |family: &&Family| {
        let pointed = families.all.values().any(|other| other.into == family.id);
        family.parent == 0 && family.is_leaf() && !segments.contains_key(&family.id) && !pointed
    };
    let empty: Vec<u32> = families.all.values().filter(alone).map(|family| family.id).collect();
    empty.iter().try_for_each(|id| families.remove(txn, *id))?;
    Ok(!empty.is_empty())
}

/// Counts one family anew, if one is due; thoroughly, if any of its objects have gone.
pub(crate) fn recount(
    families: &mut Families,
    txn: &WriteTxn<'_>,
    segments: &Segments,
    thorough: bool,
) -> Result<bool> {
    let rows = rows(families, segments);
    for family in families.all.values() {
        let rows = rows.get(&family.id).copied().unwrap_or(0);
        let due = family.objects >= COUNTED_MIN && family.objects > 2 * rows;
        if due || thorough && family.objects > rows {
            let below = below(families, family.id);
            let own: Vec<&SegmentEntry> =
                below.iter().filter_map(|id| segments.get(id)).flatten().collect();
            let (id, keys) = (family.id, keys_of(txn, &own)?);
            families.change(id)?.recount(keys, rows);
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many rows the segments of each family have, those of what splits have made of it included.
fn rows(families: &Families, segments: &Segments) -> BTreeMap<u32, u64> {
    let mut rows = BTreeMap::new();
    for (family, own) in segments {
        let own: u64 = own.iter().map(|entry| u64::from(entry.rows)).sum();
        let above = |id: &u32| families.all.get(id).map(|family| family.parent);
        let all = std::iter::successors(Some(*family), above).take_while(|id| *id != 0);
        // More than there are would be a loop.
        all.take(families.all.len()).for_each(|id| *rows.entry(id).or_default() += own);
    }
    rows
}

/// A family, and those that splits have made of it.
fn below(families: &Families, family: u32) -> Vec<u32> {
    let (mut all, mut at) = (vec![family], 0);
    while let Some(id) = all.get(at).copied() {
        at += 1;
        let children = families.all.values().filter(|child| child.parent == id);
        let new: Vec<u32> =
            children.map(|child| child.id).filter(|child| !all.contains(child)).collect();
        all.extend(new);
    }
    all
}

/// How many rows of the segments have each attribute.
fn keys_of(txn: &Txn<'_>, segments: &[&SegmentEntry]) -> Result<BTreeMap<ColumnKey, u64>> {
    let mut keys = BTreeMap::new();
    for entry in segments {
        for column in directory::head(txn, entry.segment)?.columns() {
            let column = column?;
            if !is_builtin(column.key) {
                *keys.entry(column.key).or_default() += u64::from(column.sf);
            }
        }
    }
    Ok(keys)
}
