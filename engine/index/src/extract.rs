//! What the index keeps of an object: its record, taken apart.
//!
//! Records of a kind follow each other. So what describes the value (dtype, shape, length) is kept
//! once for all objects that have the same, keys once for each set of them, and an attribute is
//! taken for a cell where its bytes are others than those of the row before.
//!
//! The built-in cells are here and nowhere else: queries that judge a record itself ask for the
//! same ones.

use std::borrow::Cow;
use std::collections::HashMap;

use hashbrown::DefaultHashBuilder;

use engram_base::dtype::{DType, shape_text};
use engram_base::error::Result;
use engram_base::id::{Gid, Oid};
use engram_columns::cell::{Cell, TEXT_BYTES_MAX, indexed};
use engram_columns::column_key::{
    CREATED, ColumnKey, DTYPE, GROUP, NAME, NATTRS, NBYTES, NDIM, OWNER, RowCell, SHAPE, SIZE,
    unsigned,
};
use engram_columns::segment::{GatheredRows, SegmentLayout};
use engram_columns::value_kind::ValueKind;
use engram_records::attrs::{self, AttrEntry, KeyId};
use engram_records::object::{Class, Record};

/// Attributes longer than this, all together, are copied one by one, without those that the index
/// does not keep.
const ATTRS_BYTES_LONG: usize = 4096;
/// Columns that describe the value.
const KIND_COLUMNS: usize = 5;

/// The dtype as numpy writes it; `bytes` for a blob.
pub fn dtype_text(record: &Record<'_>) -> Result<Cow<'static, str>> {
    Ok(match record.class {
        Class::Blob | Class::Group => "bytes".into(),
        Class::Strings => "StringDType()".into(),
        _ => DType::decode(record.dtype)?.0.text().into(),
    })
}

/// The shape as Python writes it; a blob's is that of its bytes.
pub fn shape(record: &Record<'_>) -> Vec<u64> {
    match record.class {
        Class::Blob => vec![record.stored.nbytes()],
        _ => record.decode_shape(),
    }
}

/// How many items a shape has.
pub fn size(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |size: u64, length| size.saturating_mul(*length))
}

/// The cells that describe the value.
fn kind_cells(record: &Record<'_>) -> Result<[(ColumnKey, Cell<'static>); KIND_COLUMNS]> {
    let shape = shape(record);
    Ok([
        (DTYPE, Cell::Text(dtype_text(record)?)),
        (SHAPE, Cell::Text(shape_text(&shape).into())),
        (NDIM, Cell::Int(shape.len() as i64)),
        (SIZE, unsigned(size(&shape))),
        (NBYTES, unsigned(record.stored.nbytes())),
    ])
}

/// Whether the index keeps nothing of a value, and the record tells: an array is not taken apart
/// for nothing.
fn is_unsure(entry: &AttrEntry<'_>) -> bool {
    !entry.is_single() || entry.bytes.len() > 2 * TEXT_BYTES_MAX
}

/// What a segment keeps of an attribute's value; `None` where its record alone tells.
pub fn kept<'a>(entry: &AttrEntry<'a>) -> Result<Option<Cell<'a>>> {
    if is_unsure(entry) { Ok(None) } else { indexed(entry) }
}

/// All that a segment says of an object, ascending by column.
pub fn cells<'a>(record: &Record<'a>) -> Result<Vec<RowCell<'a>>> {
    let mut cells = Vec::new();
    for entry in attrs::entries(record.attrs) {
        let entry = entry?;
        cells.push((entry.key, kept(&entry)?));
    }
    // Each key counts once.
    cells.sort_by_key(|(key, _)| *key);
    cells.dedup_by_key(|(key, _)| *key);
    let attributes = cells.len() as u64;
    let own = [
        (GROUP, unsigned(record.parent)),
        (NAME, Cell::Text(record.name.into())),
        (OWNER, Cell::Int(i64::from(record.owner))),
        (CREATED, Cell::Time(record.created)),
        (NATTRS, unsigned(attributes)),
    ];
    let own = own.into_iter().chain(kind_cells(record)?);
    cells.extend(own.map(|(key, cell)| (key, Some(cell))));
    cells[attributes as usize..].sort_unstable_by_key(|(key, _)| *key);
    Ok(cells)
}

/// Objects that are to be sealed, ascending, with what the index keeps of them.
#[derive(Default)]
pub struct Extracted {
    rows: Vec<ExtractedRow>,
    names: String,
    attrs: Vec<u8>,
    entries: Vec<EntrySpan>,
    /// What describes values, as the cells that it makes; by its bytes in records.
    kinds: Vec<[(ColumnKey, Cell<'static>); KIND_COLUMNS]>,
    kind_of: HashMap<Vec<u8>, u32, DefaultHashBuilder>,
    /// Sets of keys, each ascending.
    key_sets: Vec<Vec<KeyId>>,
    key_set_of: HashMap<Vec<KeyId>, u32, DefaultHashBuilder>,
    /// The bytes of the last object's kind, and its number.
    last_kind: (Vec<u8>, u32),
    /// What is being read: the bytes of a kind, the keys of an object.
    kind: Vec<u8>,
    keys: Vec<KeyId>,
}

/// One object, with places in the lists of all.
#[derive(Clone, Copy)]
struct ExtractedRow {
    oid: Oid,
    parent: Gid,
    created: i64,
    owner: u32,
    kind: u32,
    key_set: u32,
    /// Where its name, its attributes' bytes and its attributes begin.
    name: usize,
    attrs: usize,
    entries: usize,
}

/// Where an attribute lies in its object's bytes; without any, the record alone says what it is.
#[derive(Clone, Copy)]
struct EntrySpan {
    start: u32,
    end: u32,
}

impl Extracted {
    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes that are kept of them.
    pub(crate) fn bytes(&self) -> usize {
        self.names.len() + self.attrs.len()
    }

    /// The object at a place.
    pub(crate) fn oid(&self, at: u32) -> Oid {
        self.rows[at as usize].oid
    }

    /// The group that holds it.
    pub(crate) fn parent(&self, at: u32) -> Gid {
        self.rows[at as usize].parent
    }

    /// The number of its keys' set.
    pub(crate) fn key_set(&self, at: u32) -> u32 {
        self.rows[at as usize].key_set
    }

    /// A set of keys, ascending.
    pub(crate) fn keys(&self, key_set: u32) -> &[KeyId] {
        &self.key_sets[key_set as usize]
    }

    /// Adds an object by its row, with a greater id than those before.
    pub fn push(&mut self, oid: Oid, row: &[u8]) -> Result<()> {
        let record = Record::parse(row)?;
        let (name, attrs, entries) = (self.names.len(), self.attrs.len(), self.entries.len());
        let kind = self.kind_of(&record)?;
        let key_set = self.push_attrs(&record)?;
        self.names.push_str(record.name);
        let Record { parent, created, owner, .. } = record;
        let row = ExtractedRow { oid, parent, created, owner, kind, key_set, name, attrs, entries };
        self.rows.push(row);
        Ok(())
    }

    /// The number of what describes an object's value; mostly that of the object before.
    fn kind_of(&mut self, record: &Record<'_>) -> Result<u32> {
        let bytes = &mut self.kind;
        bytes.clear();
        bytes.extend([record.class as u8, record.ndim]);
        bytes.extend(record.stored.nbytes().to_le_bytes());
        bytes.extend_from_slice(record.shape);
        bytes.extend_from_slice(record.dtype);
        if self.last_kind.0 == *bytes {
            return Ok(self.last_kind.1);
        }
        let kind = if let Some(kind) = self.kind_of.get(bytes) {
            *kind
        } else {
            self.kinds.push(kind_cells(record)?);
            let kind = self.kinds.len() as u32 - 1;
            self.kind_of.insert(bytes.clone(), kind);
            kind
        };
        std::mem::swap(bytes, &mut self.last_kind.0);
        self.last_kind.1 = kind;
        Ok(kind)
    }

    /// Takes in the attributes of an object; the number of their keys' set.
    fn push_attrs(&mut self, record: &Record<'_>) -> Result<u32> {
        let Extracted { attrs, entries, keys, key_sets, key_set_of, rows, .. } = self;
        let (base, first) = (attrs.len(), entries.len());
        let whole = record.attrs.len() <= ATTRS_BYTES_LONG;
        if whole {
            attrs.extend_from_slice(record.attrs);
        }
        keys.clear();
        let mut at = 0;
        for entry in attrs::entries(record.attrs) {
            let entry = entry?;
            let (unsure, len) = (is_unsure(&entry), entry.bytes.len());
            let start = if whole { at } else { attrs.len() - base };
            at += len;
            if !whole && !unsure {
                attrs.extend_from_slice(entry.bytes);
            }
            let end = if unsure { start } else { start + len };
            entries.push(EntrySpan { start: start as u32, end: end as u32 });
            keys.push(entry.key);
        }
        // Usually they are in order already; each key is there once.
        if !keys.is_sorted_by(|a, b| a < b) {
            let own = entries.split_off(first);
            let mut own: Vec<_> = keys.iter().copied().zip(own).collect();
            own.sort_by_key(|(key, _)| *key);
            own.dedup_by_key(|(key, _)| *key);
            *keys = own.iter().map(|(key, _)| *key).collect();
            entries.extend(own.iter().map(|(_, entry)| *entry));
        }
        // Nothing is compared of empty sets: their bytes are nowhere, and a look there takes long.
        let same = |row: &&ExtractedRow| {
            let last = &key_sets[row.key_set as usize];
            last.len() == keys.len() && (keys.is_empty() || last == keys)
        };
        if let Some(last) = rows.last().filter(same) {
            return Ok(last.key_set);
        }
        if let Some(known) = key_set_of.get(keys) {
            return Ok(*known);
        }
        let key_set = key_sets.len() as u32;
        key_sets.push(keys.clone());
        key_set_of.insert(keys.clone(), key_set);
        Ok(key_set)
    }

    fn name(&self, at: u32) -> &str {
        let end = self.rows.get(at as usize + 1).map_or(self.names.len(), |next| next.name);
        &self.names[self.rows[at as usize].name..end]
    }

    /// The bytes of an object's attributes, one by one; none of one that its record alone tells.
    fn attributes(&self, at: u32) -> impl Iterator<Item = &[u8]> {
        let row = &self.rows[at as usize];
        let count = self.key_sets[row.key_set as usize].len();
        let bytes = &self.attrs[row.attrs..];
        let entries = &self.entries[row.entries..row.entries + count];
        entries.iter().map(|entry| &bytes[entry.start as usize..entry.end as usize])
    }

    /// What an object has of an attribute, where the index knows.
    pub(crate) fn cell(&self, at: u32, key: KeyId) -> Result<Option<Cell<'_>>> {
        match self.keys(self.key_set(at)).binary_search(&key) {
            Ok(place) => self.attributes(at).nth(place).map_or(Ok(None), cell),
            Err(_) => Ok(None),
        }
    }

    /// The columns of some of the objects, ascending, for a segment laid out so.
    pub fn gather(&self, places: &[u32], layout: SegmentLayout) -> Result<GatheredRows<'_>> {
        let mut gathered = GatheredRows::new(layout, places.len());
        let [group, owner, nattrs] = [GROUP, OWNER, NATTRS].map(|key| gathered.place(key));
        let mut kinds: Vec<Option<[u32; KIND_COLUMNS]>> = vec![None; self.kinds.len()];
        let (mut last, mut columns) = (None, Vec::new());
        for &at in places {
            let row = &self.rows[at as usize];
            gathered.row(row.oid, self.name(at), row.created);
            let before: Option<u32> = last.replace(at);
            let other = |differ: fn(&ExtractedRow, &ExtractedRow) -> bool| {
                before.is_none_or(|before| differ(&self.rows[before as usize], row))
            };
            if other(|a, b| a.parent != b.parent) {
                gathered.set(group, Some(unsigned(row.parent)));
            }
            if other(|a, b| a.owner != b.owner) {
                gathered.set(owner, Some(Cell::Int(i64::from(row.owner))));
            }
            if other(|a, b| a.kind != b.kind) {
                self.set_kind(&mut gathered, row.kind, &mut kinds);
            }
            if other(|a, b| a.key_set != b.key_set) {
                gathered.set(nattrs, Some(unsigned(self.keys(row.key_set).len() as u64)));
                self.set_all(&mut gathered, at, &mut columns)?;
            } else if let (Some(before), false) = (before, columns.is_empty()) {
                self.set_changed(&mut gathered, before, at, &columns)?;
            }
        }
        Ok(gathered)
    }

    /// Says what describes the value of the last row, and which numbers cells of this kind have.
    fn set_kind<'a>(
        &'a self,
        gathered: &mut GatheredRows<'a>,
        kind: u32,
        known: &mut [Option<[u32; KIND_COLUMNS]>],
    ) {
        let cells = &self.kinds[kind as usize];
        let codes = &mut known[kind as usize];
        if let Some(codes) = codes {
            for ((key, _), code) in cells.iter().zip(codes) {
                let place = gathered.place(*key);
                gathered.set_again(place, *code);
            }
            return;
        }
        *codes = Some([0, 1, 2, 3, 4].map(|nth: usize| {
            let (key, cell) = &cells[nth];
            let place = gathered.place(*key);
            gathered.set(place, Some(borrowed(cell)))
        }));
    }

    /// Says which attributes the last row has, the object at this place, and what they are.
    fn set_all<'a>(
        &'a self,
        gathered: &mut GatheredRows<'a>,
        at: u32,
        columns: &mut Vec<usize>,
    ) -> Result<()> {
        let keys = self.keys(self.key_set(at));
        let now: Vec<usize> = keys.iter().map(|key| gathered.place(*key)).collect();
        let gone = std::mem::replace(columns, now);
        for place in gone.into_iter().filter(|place| !columns.contains(place)) {
            gathered.clear(place);
        }
        for (entry, place) in self.attributes(at).zip(columns) {
            set(gathered, *place, entry)?;
        }
        Ok(())
    }

    /// Says which attributes of the last row are others than those of the row before it.
    fn set_changed<'a>(
        &'a self,
        gathered: &mut GatheredRows<'a>,
        before: u32,
        at: u32,
        columns: &[usize],
    ) -> Result<()> {
        let entries = self.attributes(before).zip(self.attributes(at)).zip(columns);
        for ((_, entry), place) in entries.filter(|((before, entry), _)| before != entry) {
            set(gathered, *place, entry)?;
        }
        Ok(())
    }
}

/// Says what the last row has of an attribute, by its bytes.
fn set<'a>(gathered: &mut GatheredRows<'a>, place: usize, entry: &'a [u8]) -> Result<()> {
    let Some(entry) = attrs::entries(entry).next().transpose()? else {
        gathered.set(place, None);
        return Ok(());
    };
    let cell = indexed(&entry)?;
    if cell.is_some() {
        gathered.note_kind(place, ValueKind::of_entry(&entry));
    }
    gathered.set(place, cell);
    Ok(())
}

/// What the index keeps of an attribute by its bytes, if it keeps anything.
fn cell(entry: &[u8]) -> Result<Option<Cell<'_>>> {
    attrs::entries(entry).next().map_or(Ok(None), |entry| indexed(&entry?))
}

/// The same cell, for as long as this one is there.
fn borrowed<'c>(cell: &'c Cell<'_>) -> Cell<'c> {
    match cell {
        Cell::Text(text) => Cell::Text(Cow::Borrowed(text)),
        other => other.clone(),
    }
}
