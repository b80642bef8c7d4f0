//! Objects that everybody writes: what must hold of them whoever has died.
//!
//! Each value says whose it is. Pairs and sets are written in batches alone: whoever lists them in
//! one look finds all of one batch.

use engram::{Found, Oid, Payload, Realm, Result, View};

use crate::data::{Random, filled};
use crate::operation::index_mode;
use crate::pool::{LOOSE, PAIR, SET, SET_MANY, array, group, number, object, over, with_words};

/// Does something to what everybody writes. Others may be quicker: then nothing is done.
pub fn write(realm: &Realm, random: &mut Random, tag: u64, version: u64) {
    let root = realm.root();
    let name = |random: &mut Random| format!("{LOOSE}/{}", random.below(6));
    let _: Result<()> = match random.below(10) {
        0..3 => together(realm, PAIR, 2, tag, version, 3 + random.below(60) as usize),
        3 => together(realm, SET, SET_MANY, tag, version, 130 + random.below(200) as usize),
        4 => realm.delete(root, SET),
        5 => realm.delete(root, &name(random)),
        6 => realm.rename(root, &name(random), root, &name(random)),
        _ => {
            let words = 3 + random.below(3000) as usize;
            put(realm, &name(random), tag, version, words)
        }
    };
}

fn put(realm: &Realm, path: &str, tag: u64, version: u64, words: usize) -> Result<()> {
    let new = array(words, vec![("c".to_owned(), number(version))]);
    let placement = over(index_mode((version % 8) as u8));
    realm.put(realm.root(), path, &new, &filled(tag, version, words), placement).map(drop)
}

/// Writes the objects of a group in one batch.
fn together(
    realm: &Realm,
    below: &str,
    many: usize,
    tag: u64,
    version: u64,
    words: usize,
) -> Result<()> {
    realm.begin_batch()?;
    let all = (0..many)
        .try_for_each(|place| put(realm, &format!("{below}/{place}"), tag, version, words));
    match all {
        Ok(()) => realm.commit_batch(),
        Err(error) => {
            realm.abort_batch()?;
            Err(error)
        }
    }
}

/// The shapes that one look at a group finds.
fn shapes(realm: &Realm, path: &str) -> Vec<Vec<u64>> {
    let Some(gid) = group(realm, path) else { return Vec::new() };
    // The group may be deleted between the two looks.
    let listed = realm.list_found(gid, None, 100).unwrap_or_default();
    let shape = |found: Found| match found {
        Found::Object(info) => info.shape,
        Found::Group(gid) => panic!("{path} holds the group {gid:#x}"),
    };
    listed.into_iter().map(|(_, found)| shape(found)).collect()
}

/// Looks at pairs and sets: all of one batch, whoever writes meanwhile.
///
/// # Panics
///
/// If one look mixes two batches.
pub fn check_together(realm: &Realm) {
    for (path, many) in [(PAIR, 2), (SET, SET_MANY)] {
        let shapes = shapes(realm, path);
        let one = shapes.windows(2).all(|two| two[0] == two[1]);
        let whole = shapes.is_empty() || shapes.len() == many;
        assert!(one && whole, "one look at {path} finds {shapes:?}");
    }
}

/// A view that is kept, and what it showed when it was taken.
pub struct Held {
    view: View,
    oid: Oid,
    showed: (u64, u64),
}

impl Held {
    /// Takes a view of something that everybody may delete, if it is there and no inline value.
    pub fn take(realm: &Realm, random: &mut Random) -> Option<Self> {
        let (loose, place) = (random.percent(60), random.below(6));
        let path = if loose { format!("{LOOSE}/{place}") } else { format!("{SET}/{}", place % 4) };
        let oid = object(realm, &path)?;
        match realm.view(oid, false) {
            Ok(Payload::Extent(view)) => {
                let showed = showed(&view, oid);
                Some(Held { view, oid, showed })
            }
            // Inline, or gone since.
            _ => None,
        }
    }

    /// Looks at every word again.
    ///
    /// # Panics
    ///
    /// If it shows anything else than when it was taken.
    pub fn check(&self) {
        assert_eq!(showed(&self.view, self.oid), self.showed, "a view of object {:#x}", self.oid);
    }
}

fn showed(view: &View, oid: Oid) -> (u64, u64) {
    let whole = crate::data::Words::Seen(view).whole();
    whole.unwrap_or_else(|why| panic!("a view of object {oid:#x}: {why}"))
}

/// Looks at every value that everybody writes.
///
/// # Panics
///
/// If one is torn.
pub fn check_values(realm: &Realm) -> u64 {
    let mut checks = 0;
    let groups = [PAIR, SET, LOOSE].into_iter().filter_map(|path| group(realm, path));
    for gid in groups {
        for (name, found) in realm.list_found(gid, None, 100).unwrap_or_default() {
            let Found::Object(info) = found else { panic!("{name} is a group") };
            // It may be replaced between the two looks.
            let Ok((payload, _)) = realm.payload(info.oid) else { continue };
            if let Err(why) = with_words(&payload, |words| words.whole()) {
                panic!("{name} of group {gid:#x}: {why}");
            }
            checks += 1;
        }
    }
    checks
}
