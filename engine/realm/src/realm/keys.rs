//! Attribute keys and their numbers. A number is given once, and never taken back.

use std::collections::HashMap;

use std::sync::Arc;

use hashbrown::DefaultHashBuilder;

use crate::realm::core::Core;
use crate::realm::gate::Inside;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::mutex::lock;
use engram_base::name::check_key;
use engram_catalog::meta::meta_u64;
use engram_catalog::{Headroom, ReadTxn, Table};
use engram_ops::rows_mut::RowsMut;
use engram_records::attrs::KeyId;

/// Attribute keys and their ids, as far as this process has met them.
#[derive(Default)]
pub(crate) struct KeyCache {
    names: HashMap<KeyId, Arc<str>, DefaultHashBuilder>,
    /// Keys that were asked for by their names.
    known: Vec<KnownKey>,
    /// Where each of them is.
    places: HashMap<Arc<str>, usize, DefaultHashBuilder>,
    /// Where the one is that was interned last.
    last: usize,
}

/// A key that was asked for by its name.
struct KnownKey {
    name: Arc<str>,
    id: KeyId,
    /// Where the one is that was interned after it, the last time.
    next: usize,
}

impl KeyCache {
    fn id(&self, key: &str) -> Option<KeyId> {
        self.known.get(*self.places.get(key)?).map(|known| known.id)
    }

    /// The same for one of many keys that are interned. Objects that come one after another mostly
    /// have the same keys, in the same order: so a look at the key that came next the last time is
    /// nearly always enough.
    fn id_in_turn(&mut self, key: &str) -> Option<KeyId> {
        let guess = self.known.get(self.last).map_or(0, |last| last.next);
        let place = match self.known.get(guess) {
            Some(known) if *known.name == *key => guess,
            _ => *self.places.get(key)?,
        };
        if place != guess
            && let Some(last) = self.known.get_mut(self.last)
        {
            last.next = place;
        }
        self.last = place;
        self.known.get(place).map(|known| known.id)
    }

    /// The ids of keys, if all are known.
    fn ids(&mut self, keys: &[&str]) -> Option<Vec<KeyId>> {
        let mut ids = Vec::with_capacity(keys.len());
        for key in keys {
            ids.push(self.id_in_turn(key)?);
        }
        Some(ids)
    }

    fn insert(&mut self, key: &str, id: KeyId) {
        if self.places.contains_key(key) {
            return;
        }
        let name = Arc::clone(self.names.entry(id).or_insert_with(|| key.into()));
        self.places.insert(Arc::clone(&name), self.known.len());
        self.known.push(KnownKey { name, id, next: 0 });
    }
}

/// The ids of attribute keys; new ones are interned in a commit of their own.
pub(super) fn intern<'k>(
    core: &Core,
    inside: &Inside<'_>,
    keys: impl Iterator<Item = &'k str>,
) -> Result<Vec<KeyId>> {
    let keys: Vec<&str> = keys.collect();
    if let Some(known) = lock(&core.keys).ids(&keys) {
        return Ok(known);
    }
    let mut missing = Vec::new();
    for key in &keys {
        check_key("attribute key", key)?;
        if known_key(core, inside, key)?.is_none() {
            missing.push(*key);
        }
    }
    if !missing.is_empty() {
        // In the order given: members written alike then have their keys in ascending order.
        core.prepare(inside, Headroom::Normal, |rows| {
            missing.iter().try_for_each(|key| intern_row(rows, key))
        })?;
        step!("keys.committed");
    }
    keys.iter()
        .map(|key| match known_key(core, inside, key)? {
            Some(id) => Ok(id),
            None => fail!(Corrupt, "attribute key {key:?} was interned, and is not there"),
        })
        .collect()
}

/// The numbers that another realm's keys have here; new ones are interned.
pub fn translate(core: &Core, keys: &HashMap<KeyId, String>) -> Result<HashMap<KeyId, KeyId>> {
    let inside = core.enter()?;
    let mut theirs: Vec<_> = keys.iter().collect();
    theirs.sort_unstable();
    let ours = intern(core, &inside, theirs.iter().map(|(_, key)| key.as_str()))?;
    Ok(theirs.into_iter().map(|(number, _)| *number).zip(ours).collect())
}

/// The id of a key, if anybody has ever used it.
pub fn known_key(core: &Core, inside: &Inside<'_>, key: &str) -> Result<Option<KeyId>> {
    if let Some(id) = lock(&core.keys).id(key) {
        return Ok(Some(id));
    }
    key_at(core, &inside.read()?, key)
}

/// The same in a snapshot. Keys are never taken back, so one that this process has met is
/// known.
pub fn key_at(core: &Core, txn: &ReadTxn<'_>, key: &str) -> Result<Option<KeyId>> {
    if let Some(id) = lock(&core.keys).id(key) {
        return Ok(Some(id));
    }
    if key.len() > engram_base::name::NAME_BYTES_MAX {
        return Ok(None);
    }
    let Some(row) = txn.get(Table::Keys, &key_by_name(key))? else { return Ok(None) };
    let id = parse_key_id(row)?;
    lock(&core.keys).insert(key, id);
    Ok(Some(id))
}

/// The key of an id.
pub(crate) fn key_name(core: &Core, inside: &Inside<'_>, id: KeyId) -> Result<Arc<str>> {
    if let Some(name) = lock(&core.keys).names.get(&id) {
        return Ok(Arc::clone(name));
    }
    key_name_at(core, &inside.read()?, id)
}

/// The same in a snapshot.
pub fn key_name_at(core: &Core, txn: &ReadTxn<'_>, id: KeyId) -> Result<Arc<str>> {
    if let Some(name) = lock(&core.keys).names.get(&id) {
        return Ok(Arc::clone(name));
    }
    let row = txn.get(Table::Keys, &key_by_id(id))?;
    let Some(Ok(name)) = row.map(std::str::from_utf8) else {
        fail!(Corrupt, "attribute key number {id} is not in `keys`")
    };
    let name: Arc<str> = name.into();
    lock(&core.keys).names.insert(id, Arc::clone(&name));
    Ok(name)
}

fn intern_row(rows: &mut dyn RowsMut, key: &str) -> Result<()> {
    if rows.has(Table::Keys, &key_by_name(key))? {
        return Ok(());
    }
    let count = meta_u64(rows.get(Table::Meta, b"keys")?.as_deref())?;
    let Ok(id) = KeyId::try_from(count) else {
        fail!(PoolFull, "this realm has 2^32 attribute keys already")
    };
    rows.put(Table::Meta, b"keys", &(count + 1).to_le_bytes())?;
    rows.put(Table::Keys, &key_by_name(key), &id.to_le_bytes())?;
    rows.put(Table::Keys, &key_by_id(id), key.as_bytes())
}

fn key_by_name(key: &str) -> Vec<u8> {
    [b"k", key.as_bytes()].concat()
}

fn key_by_id(id: KeyId) -> [u8; 5] {
    let mut key = [b'i'; 5];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

fn parse_key_id(row: &[u8]) -> Result<KeyId> {
    match <[u8; 4]>::try_from(row) {
        Ok(id) => Ok(KeyId::from_le_bytes(id)),
        Err(_) => fail!(Corrupt, "an attribute key's number has {} bytes", row.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::KeyCache;

    #[test]
    fn keys_are_found_in_any_order() {
        let mut cache = KeyCache::default();
        assert_eq!(cache.ids(&["a"]), None);
        for (key, id) in [("a", 7), ("b", 3), ("c", 9), ("b", 3)] {
            cache.insert(key, id);
        }
        for _ in 0..2 {
            assert_eq!(cache.ids(&["a", "b", "c"]), Some(vec![7, 3, 9]));
            assert_eq!(cache.ids(&["c", "a", "a", "b"]), Some(vec![9, 7, 7, 3]));
            assert_eq!(cache.ids(&[]), Some(vec![]));
            assert_eq!(cache.ids(&["b", "d"]), None, "one is not known");
            assert_eq!((cache.id("c"), cache.id("d")), (Some(9), None));
        }
    }
}
