//! Sealing: the records of objects become rows of segments.
//!
//! Everything that makes a segment comes through here: the tail, the queue, and segments that are
//! rewritten. The objects have no live place when this begins (or it is taken from them in the same
//! transaction); when it ends, each has one. Objects that came to the index just now are placed by
//! their keys; those of a segment that is rewritten stay in their family.

use std::collections::{BTreeMap, HashMap, HashSet};

use hashbrown::DefaultHashBuilder;

use super::directory::part_key;
use super::extract::Extracted;
use super::family::groups::{Occurrence, Signature};
use super::family::{Families, attribute_keys, take_number};
use super::names;
use super::settings::{self, Effective};
use super::tail;
use crate::Policy;
use engram_base::error::{Kind, Result};
use engram_base::faults::step;
use engram_base::id::{Gid, Oid, id_key};
use engram_catalog::{Table, WriteTxn};
use engram_columns::cell::TEXT_BYTES_MAX;
use engram_columns::column_key::{ColumnKey, IndexRow, is_builtin};
use engram_columns::runs;
use engram_columns::segment::{Built, COLUMNS_MAX, build};
use engram_columns::zones;
use engram_records::attrs;
use engram_records::object::Record;

/// The row of `meta` with the next segment's number.
pub(crate) const NEXT_SEGMENT: &[u8] = b"next_segment";
/// Bytes of records that are read before what they hold is sealed.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// A longer record is read without what the index does not keep: its attributes that are longer
/// than the second.
const RECORD_BYTES_LONG: usize = 4096;
const ENTRY_BYTES_LONG: usize = 2 * TEXT_BYTES_MAX;
/// Columns that a segment of several rows has at most.
pub(crate) const COLUMNS_USUAL: usize = 4096;
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

/// Records, one after another in one buffer.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    /// Each object and where its record ends.
    spans: Vec<(Oid, usize)>,
    /// Attributes too long for the index, by the place of their object; left out of the record.
    long: Vec<(usize, ColumnKey)>,
}

impl Records {
    fn push(&mut self, oid: Oid, row: &[u8]) -> Result<()> {
        if row.len() <= RECORD_BYTES_LONG {
            self.bytes.extend_from_slice(row);
        } else {
            let record = Record::parse(row)?;
            let mut short = Vec::new();
            for entry in attrs::entries(record.attrs) {
                let entry = entry?;
                if entry.bytes.len() > ENTRY_BYTES_LONG {
                    self.long.push((self.spans.len(), entry.key));
                } else {
                    short.extend_from_slice(entry.bytes);
                }
            }
            let record = Record { attrs: &short, dims: &[], origin: &[], checked: false, ..record };
            record.encode_to(&mut self.bytes);
        }
        self.spans.push((oid, self.bytes.len()));
        Ok(())
    }

    fn iter(&self) -> impl Iterator<Item = Result<(Oid, Record<'_>)>> {
        let mut from = 0;
        self.spans.iter().map(move |(oid, end)| {
            let row = &self.bytes[from..*end];
            from = *end;
            Record::parse(row).map(|record| (*oid, record))
        })
    }

    /// The keys left out of the record at a place.
    fn long_of(&self, place: usize) -> impl Iterator<Item = ColumnKey> + '_ {
        let first = self.long.partition_point(|(of, _)| *of < place);
        self.long[first..].iter().take_while(move |(of, _)| *of == place).map(|(_, key)| *key)
    }
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
        let records = read(txn, &mut rest, most)?;
        if !records.spans.is_empty() {
            sealed += seal_records(txn, root, &records, origin)?;
        }
    }
    Ok(sealed)
}

/// Takes objects from the front and reads their records, up to about so many bytes.
fn read(txn: &WriteTxn<'_>, oids: &mut &[Oid], most: usize) -> Result<Records> {
    let mut records = Records::default();
    let mut cursor = txn.seek(Table::Objects, &[])?;
    let mut next = None;
    while let Some((oid, rest)) = oids.split_first()
        && records.bytes.len() <= most
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
            records.push(*oid, record)?;
            if records.spans.len() == 1 {
                // The others will be much like it.
                let all = records.bytes.len().saturating_mul(rest.len());
                records.bytes.reserve(all.min(RECORD_BYTES_MAX));
            }
        }
    }
    Ok(records)
}

fn seal_records(
    txn: &mut WriteTxn<'_>,
    root: Gid,
    records: &Records,
    origin: Origin,
) -> Result<usize> {
    let parsed: Vec<(Oid, Record<'_>)> = records.iter().collect::<Result<_>>()?;
    let mut names: Vec<&str> = parsed.iter().map(|(_, record)| record.name).collect();
    names.sort_unstable();
    names.dedup();
    let numbers = names::intern(txn, &names)?;
    let number_of: HashMap<&str, u32, DefaultHashBuilder> =
        names.into_iter().zip(numbers).collect();
    let mut extracted = Extracted::with_capacity(parsed.len());
    for (place, (oid, record)) in parsed.iter().enumerate() {
        extracted.push(*oid, record, number_of[record.name], records.long_of(place))?;
    }
    let mut by_tag: BTreeMap<Gid, Vec<IndexRow<'_>>> = BTreeMap::new();
    let mut tags: HashMap<Gid, Gid> = HashMap::new();
    let mut sealed = 0;
    for ((_, record), row) in parsed.iter().zip(extracted.rows()) {
        if row.cells.len() > COLUMNS_MAX {
            tail::add(txn, row.oid)?;
            continue;
        }
        sealed += 1;
        let tag = match (origin, tags.get(&record.parent)) {
            (Origin::Family { tag, .. }, _) => tag,
            (Origin::New, Some(tag)) => *tag,
            (Origin::New, None) => {
                let (_, tag) = settings::at(&mut txn.rows(), record.parent)?;
                tags.insert(record.parent, tag);
                tag
            }
        };
        by_tag.entry(tag).or_default().push(row);
    }
    for (tag, of_tag) in by_tag {
        let settings = settings_of(txn, root, tag)?;
        let mut sealing =
            Sealing { families: Families::load(txn, tag)?, txn: &mut *txn, settings: &settings };
        sealing.run(of_tag, origin)?;
        sealing.families.save(txn)?;
    }
    Ok(sealed)
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

/// Rows by their attributes' keys. Mostly a row has the keys of the one before it.
fn by_keys(rows: Vec<IndexRow<'_>>) -> Vec<(Vec<ColumnKey>, Vec<IndexRow<'_>>)> {
    let mut by_keys: Vec<(Vec<ColumnKey>, Vec<IndexRow<'_>>)> = Vec::new();
    let mut places: HashMap<Vec<ColumnKey>, usize> = HashMap::new();
    let mut last = usize::MAX;
    for row in rows {
        let same = by_keys.get(last).is_some_and(|(keys, _)| {
            let own = row.cells.iter().map(|(key, _)| key).filter(|key| !is_builtin(**key));
            own.eq(keys)
        });
        if !same {
            let keys = attribute_keys(row.cells);
            last = *places.entry(keys).or_insert_with_key(|keys| {
                by_keys.push((keys.clone(), Vec::new()));
                by_keys.len() - 1
            });
        }
        by_keys[last].1.push(row);
    }
    by_keys
}

/// Rows, cut into parts of at most so many, with about [`COLUMNS_USUAL`] columns at most; a row of
/// more is a part of its own.
fn parts<'r, 'a>(rows: &'r [IndexRow<'a>], most: usize) -> Vec<&'r [IndexRow<'a>]> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let mut columns: HashSet<ColumnKey, DefaultHashBuilder> = HashSet::default();
    for (at, row) in rows.iter().enumerate() {
        // Mostly a row has the columns of the one before it.
        let same = at > start && {
            let keys = |row: &IndexRow<'a>| row.cells.iter().map(|(key, _)| *key);
            row.cells.len() == rows[at - 1].cells.len() && keys(row).eq(keys(&rows[at - 1]))
        };
        let new = if same {
            0
        } else {
            row.cells.iter().filter(|(key, _)| !columns.contains(key)).count()
        };
        if at > start && (at - start == most || columns.len() + new > COLUMNS_USUAL) {
            parts.push(&rows[start..at]);
            start = at;
            columns.clear();
        }
        if !same || columns.is_empty() {
            columns.extend(row.cells.iter().map(|(key, _)| *key));
        }
    }
    parts.push(&rows[start..]);
    parts
}

/// The rows of one tag on their way into segments.
struct Sealing<'a, 'env> {
    families: Families,
    txn: &'a mut WriteTxn<'env>,
    settings: &'a Effective,
}

impl Sealing<'_, '_> {
    fn run(&mut self, rows: Vec<IndexRow<'_>>, origin: Origin) -> Result<()> {
        let mut by_keys = by_keys(rows);
        // The most usual first: they say what the family is.
        by_keys.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(&b.0)));
        let mut by_leaf: BTreeMap<u32, (Vec<Signature>, Vec<IndexRow<'_>>)> = BTreeMap::new();
        for (keys, rows) in by_keys {
            let from = match origin {
                Origin::Family { id, .. } => id,
                Origin::New => {
                    let root = self.families.root_of(self.txn, &keys)?;
                    self.families.change(root)?.count(&keys, rows.len() as u64);
                    self.split_on_hint(root, &keys)?;
                    root
                }
            };
            for (leaf, rows) in self.by_leaf(from, rows)? {
                let (signatures, all) = by_leaf.entry(leaf).or_default();
                signatures.push((keys.clone(), rows.len() as u64));
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
            rows.sort_unstable_by_key(|row| row.oid);
            for part in parts(&rows, self.settings.segment_rows) {
                self.write(leaf, part)?;
            }
        }
        Ok(())
    }

    /// Rows below a family by their leaf.
    fn by_leaf<'r>(
        &self,
        from: u32,
        rows: Vec<IndexRow<'r>>,
    ) -> Result<BTreeMap<u32, Vec<IndexRow<'r>>>> {
        if self.families.get(from)?.is_leaf() {
            return Ok(BTreeMap::from([(from, rows)]));
        }
        let mut by_leaf: BTreeMap<u32, Vec<IndexRow<'r>>> = BTreeMap::new();
        for row in rows {
            by_leaf.entry(self.families.leaf(from, row.cells)?).or_default().push(row);
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

    /// Splits a new family where its tag's settings say.
    fn split_on_hint(&mut self, root: u32, keys: &[ColumnKey]) -> Result<()> {
        let Some((key, value)) = &self.settings.split_on else { return Ok(()) };
        let Some(key) = super::split::known_key(self.txn, key)? else { return Ok(()) };
        let family = self.families.get(root)?;
        let formed = self.settings.policy == Policy::Fixed && family.seals > 0;
        if family.is_leaf() && keys.contains(&key) && !formed {
            let at = engram_columns::literal::cell_of(value);
            super::split::split(&mut self.families, self.txn, root, key, at, false)?;
        }
        Ok(())
    }

    /// Writes one segment.
    fn write(&mut self, leaf: u32, rows: &[IndexRow<'_>]) -> Result<()> {
        let lasting = rows.len() * 2 > self.settings.segment_rows;
        let family = self.families.change(leaf)?;
        let mut built = build(rows, &family.layout(lasting))?;
        let decides = match self.settings.policy {
            Policy::Dynamic => lasting,
            Policy::Fixed => family.seals <= 1 && family.parent == 0 && rows.len() >= SAMPLE_ROWS,
        };
        if decides && family.make_runs(&nearly_unique(&built, rows.len())) && lasting {
            built = build(rows, &family.layout(true))?;
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
