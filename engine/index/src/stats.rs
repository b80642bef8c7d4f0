//! Figures: what the index is made of, as `index_stats` tells it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::UNINDEXED;
use super::directory::{self, SegmentEntry};
use super::family::{Family, Past};
use super::tail;
use engram_base::error::Result;
use engram_base::id::{Gid, Member};
use engram_catalog::meta::meta_u64;
use engram_catalog::{CatalogStats, ReadTxn, Table};
use engram_columns::cell::{Cell, compare};
use engram_columns::column_key::{ColumnKey, is_builtin};
use engram_columns::literal::instant_text;
use engram_columns::segment::{BUILTIN_GROUP, GroupKind};
use engram_columns::zone::{ZONE_BYTES, Zone};
use engram_ops::group;
use engram_records::attrs::KeyId;

/// A key of an attribute group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStats {
    /// The attribute key.
    pub key: String,
    /// How many sealed objects have it, dead ones included (its sharing frequency).
    pub sf: u64,
}

/// An attribute group of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeGroupStats {
    /// The family's number.
    pub family: u32,
    /// The group's number within it; 0 for the built-in fields.
    pub group: u32,
    /// The path of the group whose objects these are; `None` for free objects.
    pub tag: Option<String>,
    /// Whether its values are kept as sorted runs.
    pub runs: bool,
    /// Its keys: as many as its sharing frequency.
    pub keys: Vec<KeyStats>,
    /// How many objects are sealed in the family, dead ones included.
    pub objects: u64,
    /// How many segments have a block of it.
    pub blocks: u64,
    /// The bytes of these blocks.
    pub bytes: u64,
    /// Where splits by value have put the family: conditions that its objects meet.
    pub bounds: Vec<String>,
}

/// What the index is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Every attribute group of every family.
    pub groups: Vec<AttributeGroupStats>,
    /// Families that objects belong to.
    pub families: u64,
    /// Objects that wait to be sealed.
    pub tail: u64,
    /// Objects that wait to be indexed.
    pub queued: u64,
    /// Objects of mode `none`.
    pub unindexed: u64,
    /// Positions of segments, dead ones included.
    pub sealed: u64,
    /// Positions whose object has gone, or is elsewhere.
    pub dead: u64,
    /// Segments.
    pub segments: u64,
    /// How often anything was sealed, split, merged.
    pub seals: u64,
    /// Splits by value.
    pub splits: u64,
    /// Merges of attribute groups, and of halves of splits.
    pub merges: u64,
    /// Bytes of each table's pages.
    pub tables: Vec<(&'static str, u64)>,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// The tables that are the index.
const TABLES: [Table; 9] = [
    Table::IndexTail,
    Table::IndexTailRanges,
    Table::IndexSegments,
    Table::IndexDead,
    Table::IndexZones,
    Table::IndexRuns,
    Table::IndexFamilies,
    Table::IndexSettings,
    Table::Queue,
];

/// Gives the name of a key.
type KeyName<'a> = &'a dyn Fn(KeyId) -> Result<Arc<str>>;

/// The figures of a snapshot.
pub fn of(
    txn: &ReadTxn<'_>,
    root: Gid,
    catalog: &CatalogStats,
    key_name: KeyName<'_>,
) -> Result<IndexStats> {
    let tables: Vec<(&'static str, u64)> = TABLES
        .map(|table| {
            let of = catalog.tables[table as usize];
            let pages = of.branch_pages + of.leaf_pages + of.overflow_pages;
            (table.name(), pages * catalog.page_bytes)
        })
        .to_vec();
    let segments = directory::all(txn)?;
    let mut stats = IndexStats {
        tail: tail::all(txn)?.len() as u64,
        queued: txn.entries(Table::Queue)?,
        unindexed: meta_u64(txn.get(Table::Meta, UNINDEXED)?)?,
        sealed: segments.iter().map(|entry| u64::from(entry.rows)).sum(),
        segments: segments.len() as u64,
        bytes: tables.iter().map(|(_, bytes)| bytes).sum(),
        tables,
        ..IndexStats::default()
    };
    let mut cursor = txn.seek(Table::IndexDead, &[])?;
    while let Some((_, bits)) = cursor.next()? {
        stats.dead += bits.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    }
    drop(cursor);
    let mut families = BTreeMap::new();
    let mut cursor = txn.seek(Table::IndexFamilies, &[])?;
    while let Some((key, row)) = cursor.next()? {
        let family = Family::parse(key, row)?;
        families.insert(family.id, family);
    }
    drop(cursor);
    let past = Past::load(txn)?;
    (stats.seals, stats.splits, stats.merges) = (past.seals, past.splits, past.merges);
    let counted = Counted { txn, key_name, segments: &segments, families: &families };
    for family in families.values() {
        stats.seals += family.seals;
        stats.splits += family.splits;
        stats.merges += family.merges;
        stats.families += u64::from(family.is_leaf());
        counted.family(root, family, &mut stats.groups)?;
    }
    Ok(stats)
}

struct Counted<'a, 'env> {
    txn: &'a ReadTxn<'env>,
    key_name: KeyName<'a>,
    segments: &'a [SegmentEntry],
    families: &'a BTreeMap<u32, Family>,
}

impl IndexStats {
    /// Adds what the index of another realm is made of.
    pub fn unite(&mut self, other: IndexStats) {
        let IndexStats { groups, tables, .. } = other;
        self.groups.extend(groups);
        self.families += other.families;
        self.tail += other.tail;
        self.queued += other.queued;
        self.unindexed += other.unindexed;
        self.sealed += other.sealed;
        self.dead += other.dead;
        self.segments += other.segments;
        self.seals += other.seals;
        self.splits += other.splits;
        self.merges += other.merges;
        self.bytes += other.bytes;
        for (table, bytes) in tables {
            match self.tables.iter_mut().find(|(known, _)| *known == table) {
                Some((_, sum)) => *sum += bytes,
                None => self.tables.push((table, bytes)),
            }
        }
    }
}

impl Counted<'_, '_> {
    fn family(
        &self,
        root: Gid,
        family: &Family,
        groups: &mut Vec<AttributeGroupStats>,
    ) -> Result<()> {
        let own: Vec<&SegmentEntry> =
            self.segments.iter().filter(|e| e.family == family.id).collect();
        if own.is_empty() && !family.is_leaf() {
            return Ok(());
        }
        let mut blocks: HashMap<u32, (u64, u64)> = HashMap::new();
        for entry in &own {
            for group in directory::head(self.txn, entry.segment)?.groups() {
                let (count, bytes) = blocks.entry(group.id).or_default();
                *count += 1;
                *bytes += u64::from(group.bytes);
            }
        }
        let tag = match family.tag {
            0 => None,
            tag if tag == root => None,
            tag => group::path_of(&mut self.txn.rows(), Member::Group(tag)).ok(),
        };
        let objects = own.iter().map(|entry| u64::from(entry.rows)).sum();
        let bounds = self.bounds(family)?;
        let built_in = (BUILTIN_GROUP, false, Vec::new());
        let listed = family
            .groups
            .iter()
            .map(|group| (group.id, group.kind == GroupKind::Runs, group.columns.clone()));
        for (id, runs, columns) in std::iter::once(built_in).chain(listed) {
            let (count, bytes) = blocks.get(&id).copied().unwrap_or_default();
            let keys = columns.iter().filter(|key| !is_builtin(**key)).map(|key| {
                Ok(KeyStats { key: (self.key_name)(*key)?.to_string(), sf: self.sf(*key, &own)? })
            });
            groups.push(AttributeGroupStats {
                family: family.id,
                group: id,
                tag: tag.clone(),
                runs,
                keys: keys.collect::<Result<_>>()?,
                objects,
                blocks: count,
                bytes,
                bounds: bounds.clone(),
            });
        }
        Ok(())
    }

    /// How many sealed objects of these segments have a key.
    fn sf(&self, key: ColumnKey, own: &[&SegmentEntry]) -> Result<u64> {
        let (mut sf, mut last) = (0, None);
        let mut cursor = self.txn.seek(Table::IndexZones, &key.to_be_bytes())?;
        while let Some((row, value)) = cursor.next()? {
            if !row.starts_with(&key.to_be_bytes()) {
                break;
            }
            for zone in value.as_chunks::<ZONE_BYTES>().0 {
                let zone = Zone::decode(zone)?;
                // A column has a zone for each class of cells, and all of them say its SF.
                let is_own = own.binary_search_by_key(&zone.segment, |e| e.segment).is_ok();
                if is_own && last != Some(zone.segment) {
                    sf += u64::from(zone.sf);
                }
                last = Some(zone.segment);
            }
        }
        Ok(sf)
    }

    /// What the splits above a family say of its objects: for each key the nearest bound on each
    /// side, which is the narrowest, as a split parts what the splits above it have left.
    fn bounds(&self, family: &Family) -> Result<Vec<String>> {
        let (mut bounds, mut child) = (Vec::new(), family);
        let mut told: Vec<(ColumnKey, bool, &Cell<'_>)> = Vec::new();
        for _ in 0..self.families.len() {
            let Some(above) = self.families.get(&child.parent) else { break };
            if let Some(split) = &above.split {
                let is_high = split.high == child.id;
                let wider = told.iter().any(|(key, high, at)| {
                    (*key, *high) == (split.key, is_high) && compare(at, &split.at).is_some()
                });
                if !wider {
                    told.push((split.key, is_high, &split.at));
                    let sign = if is_high { ">=" } else { "<" };
                    let key = (self.key_name)(split.key)?;
                    bounds.push(format!("{key} {sign} {}", text(&split.at)));
                }
            }
            child = above;
        }
        bounds.reverse();
        Ok(bounds)
    }
}

fn text(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Int(value) => value.to_string(),
        Cell::Big(value) => value.to_string(),
        Cell::Float(value) => format!("{value:?}"), // with an exponent, where digits are many
        Cell::Text(text) => format!("{text:?}"),
        Cell::Time(ns) => format!("\"{}\"", instant_text((*ns).into())),
        Cell::Far(far) => format!("\"{}\"", instant_text(far.ns())),
        Cell::Other => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, text};

    #[test]
    fn bounds_are_told_in_few_digits_and_times_as_dates() {
        let cases = [
            (Cell::Float(1.25e-160), "1.25e-160"),
            (Cell::Float(-12.5), "-12.5"),
            (Cell::Float(f64::MAX), "1.7976931348623157e308"),
            (Cell::Int(-3), "-3"),
            (Cell::Text("a\"b".into()), "\"a\\\"b\""),
            (Cell::Time(1_504_224_000_000_000_000), "\"2017-09-01\""),
            (Cell::Time(1_504_267_200_500_000_000), "\"2017-09-01T12:00:00.5\""),
            (Cell::instant(-63_549_360_000_000_000_000), "\"-0044-03-15\""),
        ];
        for (cell, expected) in cases {
            assert_eq!(text(&cell), expected);
        }
    }
}
