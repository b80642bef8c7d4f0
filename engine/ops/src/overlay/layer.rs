//! One table's part of a batch's list.
//!
//! A batch is mostly look-ups of single keys that share a long prefix (the group) and come once,
//! so entries are found by hash. Keys and rows lie one after another in one buffer, which is let
//! go of in one piece. Order is made where it is asked for: at the end, by a sort (which is one
//! pass over keys that came in order), and for walks along a group by a map that is kept from then
//! on.
//!
//! A row that is replaced leaves its bytes behind. When most of the buffer is such bytes, it is
//! written anew, so that setting one row many times takes no more room than twice the row.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound;

use hashbrown::{DefaultHashBuilder, HashTable};

use engram_catalog::rows::Row;

/// Left-over bytes that are not worth the work.
const WASTE_BYTES_MIN: usize = 64 << 10;

/// What LMDB keeps beside a key and its value.
const NODE_BYTES: usize = 10;

/// What an operation relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard<B> {
    /// There is no such row.
    Absent,
    /// There is one, whatever it holds.
    Present,
    /// A group is there, and as a mirror or not.
    Group {
        /// Whether as a mirror.
        mirror: bool,
    },
    /// The row is this one, byte by byte.
    Equals(B),
}

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<B> {
    /// It is this one from now on.
    Put(B),
    /// It goes.
    Remove,
}

/// How the batch sees a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RowState<'a> {
    Row(&'a [u8]),
    Nothing,
    /// There is a row: only the catalog knows which.
    Something,
    /// Only the catalog knows.
    Below,
}

/// A part of the buffer.
#[derive(Clone, Copy)]
struct BufferRange {
    at: usize,
    len: usize,
}

/// One row, as the list knows it: what it relies on, and what becomes of it.
#[derive(Clone, Copy)]
struct LayerEntry {
    key: BufferRange,
    guard: Option<Guard<BufferRange>>,
    change: Option<Change<BufferRange>>,
}

/// Where the entry of a key with this hash is.
#[derive(Clone, Copy)]
struct HashedPlace {
    hash: u32,
    place: u32,
}

impl HashedPlace {
    /// The hash as the table takes it: it looks at bits of both ends.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// A row of the list, as it is applied.
pub struct Listed<'a> {
    /// The row's key.
    pub key: &'a [u8],
    /// What is relied on of it, if anything is.
    pub guard: Option<Guard<&'a [u8]>>,
    /// What becomes of it; `None` where it is only relied on.
    pub change: Option<Change<&'a [u8]>>,
}

/// One table's part of the list.
#[derive(Default)]
pub struct Layer {
    bytes: Vec<u8>,
    /// How many of the bytes are left over.
    waste: usize,
    /// In the order in which they came.
    entries: Vec<LayerEntry>,
    /// Where each key's entry is, beside a hash of the key: the table grows without a look at keys.
    places: HashTable<HashedPlace>,
    hasher: DefaultHashBuilder,
    /// The same by key, once somebody has asked for order.
    ordered: Option<BTreeMap<Box<[u8]>, u32>>,
}

impl Layer {
    /// How the list sees a row.
    pub(crate) fn seen(&self, key: &[u8]) -> RowState<'_> {
        let Some(place) = self.find(key) else { return RowState::Below };
        let LayerEntry { guard, change, .. } = self.entries[place];
        match (change, guard) {
            (Some(Change::Put(row)), _) | (None, Some(Guard::Equals(row))) => {
                RowState::Row(self.slice(row))
            }
            (Some(Change::Remove), _) | (None, Some(Guard::Absent)) => RowState::Nothing,
            (None, Some(Guard::Present | Guard::Group { .. })) => RowState::Something,
            (None, None) => RowState::Below,
        }
    }

    /// Whether the list says nothing of the table.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What becomes of a row.
    pub(crate) fn change(&self, key: &[u8]) -> Option<Change<&[u8]>> {
        self.listed(*self.entries.get(self.find(key)?)?).change
    }

    /// Notes what an operation relied on. The first such note stays, but for one: an operation that
    /// relied on there being a row may come to rely on what it holds.
    pub(crate) fn guard(&mut self, key: &[u8], guard: Guard<&[u8]>) {
        let place = self.place(key);
        let guard = match (self.entries[place].guard, guard) {
            (None | Some(Guard::Present | Guard::Group { .. }), Guard::Equals(row)) => {
                Guard::Equals(self.push(|bytes| bytes.extend(row)))
            }
            (None, Guard::Present) => Guard::Present,
            (None, Guard::Group { mirror }) => Guard::Group { mirror },
            (None, Guard::Absent) => Guard::Absent,
            (Some(_), _) => return,
        };
        self.entries[place].guard = Some(guard);
    }

    /// Puts the row that `write` appends to the buffer.
    pub(crate) fn put(&mut self, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let place = self.place(key);
        let row = self.push(write);
        self.replace(place, Change::Put(row));
    }

    /// Puts a row that the list has not seen, and relies on there being none.
    pub(crate) fn put_unseen(&mut self, key: &[u8], value: &[u8]) {
        debug_assert_eq!(self.find(key), None);
        let place = self.add(key, self.hash(key));
        let row = self.push(|bytes| bytes.extend(value));
        let entry = &mut self.entries[place];
        (entry.guard, entry.change) = (Some(Guard::Absent), Some(Change::Put(row)));
    }

    /// Removes a row.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        let place = self.place(key);
        self.replace(place, Change::Remove);
    }

    /// The first row from `from` on, and before `end`, that the list puts.
    pub(crate) fn first_put(&mut self, from: &[u8], end: Option<&[u8]>) -> Option<Row> {
        let ordered = self.ordered.take().unwrap_or_else(|| {
            (0..).zip(&self.entries).map(|(place, e)| (self.slice(e.key).into(), place)).collect()
        });
        let range = ordered.range::<[u8], _>((
            Bound::Included(from),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        ));
        let first =
            range.into_iter().find_map(|(key, &place)| match self.entries[place as usize].change {
                Some(Change::Put(row)) => Some((key.to_vec(), self.slice(row).to_vec())),
                _ => None,
            });
        self.ordered = Some(ordered);
        first
    }

    /// Every row of the list, in the order of their keys.
    pub fn in_order(&self) -> impl Iterator<Item = Listed<'_>> {
        let mut entries = self.entries.clone();
        entries.sort_unstable_by(|a, b| self.slice(a.key).cmp(self.slice(b.key)));
        entries.into_iter().map(|entry| self.listed(entry))
    }

    /// The bytes that the list's rows will take in the catalog, about.
    pub(crate) fn bytes_put(&self) -> u64 {
        let bytes = self.entries.iter().map(|entry| match entry.change {
            Some(Change::Put(row)) => NODE_BYTES + entry.key.len + row.len,
            _ => 0,
        });
        bytes.sum::<usize>() as u64
    }

    /// How many rows the list puts.
    pub(crate) fn rows_put(&self) -> u64 {
        let is_put = |entry: &&LayerEntry| matches!(entry.change, Some(Change::Put(_)));
        self.entries.iter().filter(is_put).count() as u64
    }

    fn listed(&self, entry: LayerEntry) -> Listed<'_> {
        Listed {
            key: self.slice(entry.key),
            guard: entry.guard.map(|guard| match guard {
                Guard::Absent => Guard::Absent,
                Guard::Present => Guard::Present,
                Guard::Group { mirror } => Guard::Group { mirror },
                Guard::Equals(row) => Guard::Equals(self.slice(row)),
            }),
            change: entry.change.map(|change| match change {
                Change::Put(row) => Change::Put(self.slice(row)),
                Change::Remove => Change::Remove,
            }),
        }
    }

    fn slice(&self, span: BufferRange) -> &[u8] {
        &self.bytes[span.at..span.at + span.len]
    }

    fn hash(&self, key: &[u8]) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        self.find_hashed(key, self.hash(key))
    }

    fn find_hashed(&self, key: &[u8], hash: u32) -> Option<usize> {
        let same = |known: &HashedPlace| {
            known.hash == hash && self.slice(self.entries[known.place as usize].key) == key
        };
        let found = self.places.find(HashedPlace::spread(hash), same);
        found.map(|known| known.place as usize)
    }

    /// The place of the key's entry, which is made if there is none.
    fn place(&mut self, key: &[u8]) -> usize {
        let hash = self.hash(key);
        match self.find_hashed(key, hash) {
            Some(place) => place,
            None => self.add(key, hash),
        }
    }

    /// Makes the entry of a key that has none.
    fn add(&mut self, key: &[u8], hash: u32) -> usize {
        let place = self.entries.len();
        let span = self.push(|bytes| bytes.extend(key));
        self.entries.push(LayerEntry { key: span, guard: None, change: None });
        let new = HashedPlace { hash, place: place as u32 };
        let hash_of = |known: &HashedPlace| HashedPlace::spread(known.hash);
        self.places.insert_unique(HashedPlace::spread(hash), new, hash_of);
        if let Some(ordered) = &mut self.ordered {
            ordered.insert(key.into(), place as u32);
        }
        place
    }

    fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> BufferRange {
        let at = self.bytes.len();
        write(&mut self.bytes);
        BufferRange { at, len: self.bytes.len() - at }
    }

    fn replace(&mut self, place: usize, change: Change<BufferRange>) {
        if let Some(Change::Put(before)) = self.entries[place].change.replace(change) {
            self.waste += before.len;
            if self.waste > WASTE_BYTES_MIN.max(self.bytes.len() / 2) {
                self.tidy();
            }
        }
    }

    /// Writes the buffer anew, without the bytes left over.
    fn tidy(&mut self) {
        let mut tidied = Vec::with_capacity(2 * (self.bytes.len() - self.waste));
        let mut keep = |span: &mut BufferRange| {
            let at = tidied.len();
            tidied.extend_from_slice(&self.bytes[span.at..span.at + span.len]);
            span.at = at;
        };
        for entry in &mut self.entries {
            keep(&mut entry.key);
            if let Some(Guard::Equals(row)) = &mut entry.guard {
                keep(row);
            }
            if let Some(Change::Put(row)) = &mut entry.change {
                keep(row);
            }
        }
        self.bytes = tidied;
        self.waste = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Guard, Layer, RowState, WASTE_BYTES_MIN};

    fn put(layer: &mut Layer, key: &[u8], row: &[u8]) {
        layer.put(key, |bytes| bytes.extend(row));
    }

    #[test]
    fn a_change_hides_what_was_relied_on_and_the_first_guard_stays() {
        let mut layer = Layer::default();
        assert_eq!(layer.seen(b"k"), RowState::Below);
        layer.guard(b"k", Guard::Equals(b"before"));
        layer.guard(b"k", Guard::Absent);
        assert_eq!(layer.seen(b"k"), RowState::Row(b"before"));
        layer.guard(b"p", Guard::Present);
        layer.guard(b"p", Guard::Absent);
        assert_eq!(layer.seen(b"p"), RowState::Something);
        layer.guard(b"p", Guard::Equals(b"row"));
        assert_eq!(layer.seen(b"p"), RowState::Row(b"row"));
        put(&mut layer, b"k", b"after");
        assert_eq!(layer.seen(b"k"), RowState::Row(b"after"));
        layer.remove(b"k");
        assert_eq!(layer.seen(b"k"), RowState::Nothing);
        let listed = layer.in_order().next().unwrap();
        assert_eq!(listed.guard, Some(Guard::Equals(&b"before"[..])));
        assert_eq!(listed.change, Some(Change::Remove));
    }

    #[test]
    fn a_new_row_is_put_and_its_absence_relied_on() {
        let mut layer = Layer::default();
        put(&mut layer, b"a", b"1");
        layer.put_unseen(b"k", b"row");
        assert_eq!(layer.seen(b"k"), RowState::Row(b"row"));
        layer.remove(b"k");
        let listed = layer.in_order().nth(1).unwrap();
        assert_eq!((listed.key, listed.guard), (&b"k"[..], Some(Guard::Absent)));
        assert_eq!((listed.change, layer.rows_put()), (Some(Change::Remove), 1));
    }

    #[test]
    fn order_holds_for_rows_that_come_before_and_after_it_is_asked_for() {
        let mut layer = Layer::default();
        for key in [b"d", b"b", b"c"] {
            put(&mut layer, key, key);
        }
        assert_eq!(layer.first_put(b"a", None).unwrap().0, b"b");
        put(&mut layer, b"a", b"");
        layer.remove(b"b");
        assert_eq!(layer.first_put(b"a", None).unwrap().0, b"a");
        assert_eq!(layer.first_put(b"b", None).unwrap().0, b"c");
        assert_eq!(layer.first_put(b"b", Some(b"c")), None);
        assert_eq!(layer.first_put(b"c", Some(b"c")), None);
        assert_eq!(layer.first_put(b"e", None), None);
        let keys: Vec<_> = layer.in_order().map(|listed| listed.key).collect();
        assert_eq!(keys, [b"a", b"b", b"c", b"d"]);
    }

    #[test]
    fn a_row_set_many_times_takes_little_room() {
        let mut layer = Layer::default();
        layer.guard(b"guarded", Guard::Equals(b"row"));
        let mut most = 0;
        for round in 0..10_000_u32 {
            put(&mut layer, b"row", &round.to_le_bytes().repeat(100));
            most = most.max(layer.bytes.len());
        }
        assert!(most < 2 * WASTE_BYTES_MIN, "{most} bytes");
        assert_eq!(layer.seen(b"row"), RowState::Row(&9_999_u32.to_le_bytes().repeat(100)));
        assert_eq!(layer.seen(b"guarded"), RowState::Row(b"row"));
    }
}
