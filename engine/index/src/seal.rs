//! Sealing: the records of objects become rows of segments.
//!
//! Everything that makes a segment comes through here: the tail, the queue, and segments that are
//! rewritten. The objects have no live place when this begins (or it is taken from them in the same
//! transaction); when it ends, each has one. Objects that came to the index just now are placed by
//! their keys; those of a segment that is rewritten stay in their family.
//!
//! Objects of one tag share families with those of another that has them laid out in the same way:
//! a thousand groups with settings of their own, all alike, need no thousand segments. They lie
//! under the tag that came first. When its settings change, those of the others come under another
//! from then on; what is sealed stays where it is.
//!
//! Small segments are united without a look at the records: their columns say all that there is to
//! say of a live object, or the queue says that they do not.

use std::collections::{BTreeMap, HashSet};

use hashbrown::DefaultHashBuilder;

use super::directory::{self, part_key};
use super::extract::Extracted;
use super::family::groups::{Occurrence, Signature};
use super::family::{Families, take_number};
use super::hints::split_places;
use super::settings::{self, Effective};
use super::split;
use super::tail;
use crate::Policy;
use engram_base::error::{Kind, Result};
use engram_base::faults::step;
use engram_base::id::{Gid, Oid, id_key};
use engram_catalog::{Table, WriteTxn};
use engram_columns::cell::{Cell, compare};
use engram_columns::column_key::{ColumnKey, is_builtin};
use engram_columns::literal::cell_of;
use engram_columns::runs;
use engram_columns::segment::{Built, COLUMNS_MAX, GatheredRows, SealedRows};
use engram_columns::zones;

/// The row of `meta` with the next segment's number.
pub(crate) const NEXT_SEGMENT: &[u8] = b"next_segment";
/// Bytes of names and attributes that are read before what they hold is sealed.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// Columns that a segment of several rows has at most.
pub(crate) const COLUMNS_USUAL: usize = 4096;
/// Built-in columns that each object has.
pub(crate) const COLUMNS_BUILTIN: usize = 10;
/// Rows from which a family of fixed groups decides which of its keys are nearly unique.
const SAMPLE_ROWS: usize = 32;

/// Where objects come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From outside the segments.
    New,
    /// From segments of this family.
    Family { tag: Gid, id: u32 },
}

/// Seals objects, ascending; how many. One with more attributes than a segment has columns stays
/// in the tail for good, and is judged on its record.
pub(crate) fn seal(
    txn: &mut WriteTxn<'_>,
    root: Gid,
    oids: &[Oid],
    origin: Origin,
) -> Result<usize> {
    let (mut rest, mut sealed) = (oids, 0);
    while !rest.is_empty() {
        // A segment that is rewritten stays one, or small ones would never become fewer.
        let most = if origin == Origin::New { RECORD_BYTES_MAX } else { usize::MAX };
        let objects = read(txn, &mut rest, most)?;
        if !objects.is_empty() {
            sealed += seal_objects(txn, root, &objects, origin)?;
        }
    }
    Ok(sealed)
}

/// Takes objects from the front and reads their records, up to about so many bytes.
fn read(txn: &WriteTxn<'_>, oids: &mut &[Oid], most: usize) -> Result<Extracted> {
    let mut objects = Extracted::default();
    let mut cursor = txn.seek(Table::Objects, &[])?;
    let mut next = None;
    while let Some((oid, rest)) = oids.split_first()
        && objects.bytes() <= most
    {
        *oids = rest;
        // Mostly the ids follow each other, and so do the rows.
        let key = id_key(*oid);
        let beside = if next == Some(*oid) { cursor.next()? } else { None };
        let record = match beside {
            Some((found, record)) if found == key.as_slice() => Some(record),
            _ => cursor.find(&key)?,
        };
        // An object without a record is not indexed: verify would have said so.
        next = record.and_then(|_| oid.checked_add(1));
        if let Some(record) = record {
            objects.push(*oid, record)?;
        }
    }
    Ok(objects)
}

fn seal_objects(
    txn: &mut WriteTxn<'_>,
    root: Gid,
    objects: &Extracted,
    origin: Origin,
) -> Result<usize> {
    let mut by_tag: BTreeMap<Gid, Vec<u32>> = BTreeMap::new();
    let (mut parent, mut tag, mut sealed) = (0, 0, 0);
    let mut shared = SharedTags::default();
    let mut rows = Vec::with_capacity(objects.len());
    for at in 0..objects.len() as u32 {
        if objects.keys(objects.key_set(at)).len() + COLUMNS_BUILTIN > COLUMNS_MAX {
            tail::add(txn, objects.oid(at))?;
            continue;
        }
        sealed += 1;
        // Mostly an object is in the group of the one before it.
        if parent != objects.parent(at) {
            parent = objects.parent(at);
            let own = match origin {
                Origin::Family { tag, .. } => tag,
                Origin::New => shared.of(txn, root, parent)?,
            };
            if own != tag {
                by_tag.entry(tag).or_default().append(&mut rows);
                tag = own;
            }
        }
        rows.push(at);
    }
    by_tag.entry(tag).or_default().append(&mut rows);
    for (tag, rows) in by_tag {
        if !rows.is_empty() {
            let settings = settings_of(txn, root, tag)?;
            let families = Families::load(txn, tag)?;
            let mut sealing = Sealing { families, txn: &mut *txn, settings: &settings };
            sealing.run(objects, &rows, origin)?;
            sealing.families.save(txn)?;
        }
    }
    Ok(sealed)
}

/// Under which tags objects are sealed, within one transaction.
#[derive(Default)]
struct SharedTags {
    /// Layouts with the tags under which they lie, once somebody has asked.
    known: Option<Vec<(Effective, Gid)>>,
}

impl SharedTags {
    /// The tag for what is in a group: the first of those that have objects laid out as there.
    fn of(&mut self, txn: &mut WriteTxn<'_>, root: Gid, group: Gid) -> Result<Gid> {
        let (settings, tag) = settings::at(&mut txn.rows(), group)?;
        if tag == 0 {
            return Ok(0);
        }
        let known = match &mut self.known {
            Some(known) => known,
            none => none.insert(known_layouts(txn, root)?),
        };
        let layout = settings.layout();
        if let Some((_, tag)) = known.iter().find(|(known, _)| *known == layout) {
            return Ok(*tag);
        }
        known.push((layout, tag));
        Ok(tag)
    }
}

/// The layout of what has no tag, and those of the tags that have families and are still there.
fn known_layouts(txn: &mut WriteTxn<'_>, root: Gid) -> Result<Vec<(Effective, Gid)>> {
    let mut layouts = vec![(settings::at(&mut txn.rows(), root)?.0.layout(), 0)];
    let mut next = 1_u64;
    loop {
        let row = txn.seek(Table::IndexFamilies, &next.to_be_bytes())?.next()?;
        let Some(tag) = row.and_then(|(key, _)| key.first_chunk()) else { return Ok(layouts) };
        let tag = Gid::from_be_bytes(*tag);
        match settings::at(&mut txn.rows(), tag) {
            Ok((settings, _)) => layouts.push((settings.layout(), tag)),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => return Err(error),
        }
        let Some(after) = tag.checked_add(1) else { return Ok(layouts) };
        next = after;
    }
}

/// Makes one segment of small ones of a leaf, from their columns alone. Whether it did: segments
/// do not say all where cells lie in runs, or objects of one are between those of another.
pub(crate) fn unite(
    txn: &mut WriteTxn<'_>,
    root: Gid,
    tag: Gid,
    leaf: u32,
    segments: &[u32],
) -> Result<bool> {
    let mut rows = SealedRows::default();
    for segment in segments {
        let mut parts = directory::parts(txn, *segment)?;
        let dead = directory::dead(txn, *segment, directory::head(txn, *segment)?.len())?;
        rows.add(parts.remove(0), parts, dead)?;
    }
    let settings = settings_of(txn, root, tag)?;
    let families = Families::load(txn, tag)?;
    let lasting = rows.len() * 2 > settings.segment_rows;
    let Some(mut gathered) = rows.gather(families.get(leaf)?.layout(lasting))? else {
        return Ok(false);
    };
    for segment in segments {
        remove(txn, *segment)?;
    }
    step!("index.segments-gathered");
    let mut sealing = Sealing { families, txn: &mut *txn, settings: &settings };
    let mut signatures = gathered.signatures();
    signatures.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sealing.place_keys(leaf, &signatures, rows.len())?;
    gathered.lay_out(sealing.families.get(leaf)?.layout(lasting));
    sealing.write(leaf, gathered)?;
    sealing.families.save(txn)?;
    Ok(true)
}

/// The settings of a tag's families.
pub(crate) fn settings_of(txn: &mut WriteTxn<'_>, root: Gid, tag: Gid) -> Result<Effective> {
    let at = if tag == 0 { root } else { tag };
    match settings::at(&mut txn.rows(), at) {
        Ok((settings, _)) => Ok(settings.effective()),
        // The group is gone: only dead positions are left of its families.
        Err(error) if error.kind() == Kind::NotFound => {
            Ok(settings::at(&mut txn.rows(), root)?.0.effective())
        }
        Err(error) => Err(error),
    }
}

/// Places of objects, cut into parts of at most so many, with about [`COLUMNS_USUAL`] columns at
/// most; an object of more is a part of its own.
fn parts<'r>(objects: &Extracted, rows: &'r [u32], most: usize) -> Vec<&'r [u32]> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let mut columns: HashSet<ColumnKey, DefaultHashBuilder> = HashSet::default();
    let mut last = None;
    for (at, row) in rows.iter().enumerate() {
        let key_set = objects.key_set(*row);
        let keys = if last == Some(key_set) { &[] } else { objects.keys(key_set) };
        let new = keys.iter().filter(|key| !columns.contains(key)).count();
        let full = columns.len() + new + COLUMNS_BUILTIN > COLUMNS_USUAL;
        if at > start && (at - start == most || full) {
            parts.push(&rows[start..at]);
            start = at;
            columns.clear();
            columns.extend(objects.keys(key_set));
        } else {
            columns.extend(keys);
        }
        last = Some(key_set);
    }
    parts.push(&rows[start..]);
    parts
}

/// The objects of one tag on their way into segments.
struct Sealing<'a, 'env> {
    families: Families,
    txn: &'a mut WriteTxn<'env>,
    settings: &'a Effective,
}

impl Sealing<'_, '_> {
    fn run(&mut self, objects: &Extracted, rows: &[u32], origin: Origin) -> Result<()> {
        let mut by_keys: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for same in rows.chunk_by(|a, b| objects.key_set(*a) == objects.key_set(*b)) {
            by_keys.entry(objects.key_set(same[0])).or_default().extend(same);
        }
        let mut by_keys: Vec<_> =
            by_keys.into_iter().map(|(set, rows)| (objects.keys(set), rows)).collect();
        // The most usual first: they say what the family is.
        by_keys.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(b.0)));
        let mut by_leaf: BTreeMap<u32, (Vec<Signature>, Vec<u32>)> = BTreeMap::new();
        for (keys, rows) in by_keys {
            let from = match origin {
                Origin::Family { id, .. } => id,
                Origin::New => {
                    let root = self.families.root_of(self.txn, keys)?;
                    self.families.change(root)?.count(keys, rows.len() as u64);
                    self.split_on_hint(root, keys, |key| objects.cell(rows[0], key))?;
                    root
                }
            };
            for (leaf, rows) in self.by_leaf(from, objects, rows, origin)? {
                let (signatures, all) = by_leaf.entry(leaf).or_default();
                signatures.push((keys.to_vec(), rows.len() as u64));
                all.extend(rows);
            }
        }
        for (leaf, (signatures, mut rows)) in by_leaf {
            let family = self.families.change(leaf)?;
            if origin == Origin::New {
                family.seals += 1;
                if family.parent != 0 {
                    for (keys, count) in &signatures {
                        family.count(keys, *count);
                    }
                }
            }
            self.place_keys(leaf, &signatures, rows.len())?;
            rows.sort_unstable();
            for part in parts(objects, &rows, self.settings.segment_rows) {
                let lasting = part.len() * 2 > self.settings.segment_rows;
                let layout = self.families.get(leaf)?.layout(lasting);
                self.write(leaf, objects.gather(part, layout)?)?;
            }
        }
        Ok(())
    }

    /// Objects below a family by their leaf. New ones that are few for so many leaves stay with the
    /// family that was split, in one segment; maintenance brings more of them to the leaves later.
    fn by_leaf(
        &self,
        from: u32,
        objects: &Extracted,
        rows: Vec<u32>,
        origin: Origin,
    ) -> Result<BTreeMap<u32, Vec<u32>>> {
        let few = || self.families.are_few(from, rows.len() as u64, self.settings.leaf_rows());
        if self.families.get(from)?.is_leaf() || origin == Origin::New && few()? {
            return Ok(BTreeMap::from([(from, rows)]));
        }
        let mut by_leaf: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for row in rows {
            let leaf = self.families.leaf(from, |key| objects.cell(row, key))?;
            by_leaf.entry(leaf).or_default().push(row);
        }
        Ok(by_leaf)
    }

    fn place_keys(&mut self, leaf: u32, signatures: &[Signature], rows: usize) -> Result<()> {
        let occurrence = Occurrence::new(signatures);
        let family = self.families.change(leaf)?;
        family.place_keys(&occurrence, self.settings);
        // Once as many are at hand as a segment has, it shows what belongs together.
        let dynamic = self.settings.policy == Policy::Dynamic;
        if dynamic && rows * 2 > self.settings.segment_rows {
            family.merges += family.unite_groups(&occurrence, self.settings) as u64;
        }
        Ok(())
    }

    /// Splits a new family where its tag's settings say; one of its objects has these cells.
    fn split_on_hint<'c>(
        &mut self,
        root: u32,
        keys: &[ColumnKey],
        cell: impl FnOnce(ColumnKey) -> Result<Option<Cell<'c>>>,
    ) -> Result<()> {
        let Some((key, value)) = &self.settings.split_on else { return Ok(()) };
        let Some(key) = split::known_key(self.txn, key)? else { return Ok(()) };
        let family = self.families.get(root)?;
        let formed = self.settings.policy == Policy::Fixed && family.seals > 0;
        if family.is_leaf() && keys.contains(&key) && !formed {
            let has = cell(key)?;
            let alike = |at: &Cell<'_>| has.as_ref().is_some_and(|has| compare(has, at).is_some());
            let at = split_places(value).find(alike).unwrap_or_else(|| cell_of(value));
            split::split(&mut self.families, self.txn, root, key, at, false)?;
        }
        Ok(())
    }

    /// Writes one segment.
    fn write(&mut self, leaf: u32, mut rows: GatheredRows<'_>) -> Result<()> {
        let count = rows.len();
        let lasting = count * 2 > self.settings.segment_rows;
        let family = self.families.change(leaf)?;
        let decides = match self.settings.policy {
            Policy::Dynamic => lasting,
            Policy::Fixed => family.seals <= 1 && family.parent == 0 && count >= SAMPLE_ROWS,
        };
        let mut built = rows.build()?;
        if decides && family.make_runs(&nearly_unique(&built, count)) && lasting {
            drop(built);
            rows.lay_out(family.layout(true));
            built = rows.build()?;
        }
        let segment = take_number(self.txn, NEXT_SEGMENT)?;
        put(self.txn, segment, &built)
    }
}

/// The attributes of a segment that have more than half as many values as it has rows.
fn nearly_unique(built: &Built<'_>, rows: usize) -> Vec<ColumnKey> {
    let unique = built
        .distinct
        .iter()
        .filter(|(key, distinct)| !is_builtin(*key) && *distinct as usize * 2 > rows);
    unique.map(|(key, _)| *key).collect()
}

fn put(txn: &mut WriteTxn<'_>, segment: u32, built: &Built<'_>) -> Result<()> {
    txn.put(Table::IndexSegments, &part_key(segment, 0), &built.head)?;
    for (part, block) in (1..).zip(&built.blocks) {
        txn.put(Table::IndexSegments, &part_key(segment, part), block)?;
    }
    step!("index.segment-put");
    for (column, entries) in &built.runs {
        runs::append(txn, *column, segment, entries)?;
    }
    zones::add(txn, segment, &built.zones)
}

/// Takes a segment away, with all that is known of it.
pub(crate) fn remove(txn: &mut WriteTxn<'_>, segment: u32) -> Result<()> {
    let columns = super::directory::head(txn, segment)?.columns();
    let columns: Vec<ColumnKey> =
        columns.map(|column| column.map(|column| column.key)).collect::<Result<_>>()?;
    zones::remove(txn, segment, columns)?;
    let mut parts = Vec::new();
    let mut cursor = txn.seek(Table::IndexSegments, &part_key(segment, 0))?;
    while let Some((key, _)) = cursor.next()? {
        if !key.starts_with(&segment.to_be_bytes()) {
            break;
        }
        parts.push(key.to_vec());
    }
    drop(cursor);
    for key in parts {
        txn.delete(Table::IndexSegments, &key)?;
    }
    txn.delete(Table::IndexDead, &segment.to_be_bytes()).map(|_| ())
}
