//! Salvage: everything sound, out of a pool that is damaged.
//!
//! Nothing of the pool is trusted, mapped, locked or written: its catalogs are read page by page
//! (`verify::pages`), its values from their files. So a pool can be salvaged that no engine opens,
//! by every user who can read its files, while nobody writes to it. What is sound is
//!
//! * a record that decodes, agrees with itself, and has the checksum that it carries, in a page of
//!   its table, or in one that the damage has cut off from it and that is not free;
//! * with a value that can be read whole, and that has the checksum which its record says.
//!
//! Of a chunked array each chunk is for itself: one that is damaged is lost alone, and told; there
//! are zeros where it was.
//!
//! An attribute's name is one that both of its rows say (`keys`); what only one says, or they say
//! differently, is told.
//!
//! Names and places come from the records themselves. A member whose groups are lost is put below
//! `lost+found`, one whose name is lost or taken gets its OID for a name. All that is left out, or
//! put elsewhere, is told with the reason. Copies go through the ordinary doors of another pool,
//! so they are new objects there: with new OIDs, times and owners. A member that was read-only is
//! so again.
//!
//! The scopes are not kept: all of it comes to shared realms of namespaces that are the salvager's
//! alone, so that nothing is seen by anybody who could not see it before. Every change by this is
//! noted, by namespace.

mod chunks;
mod gather;
mod keys;
mod note;
mod place;
mod segments;

use std::collections::HashMap;
use std::path::Path;

use self::chunks::Chunked;
use self::gather::{Gathered, Saved};
use self::place::GivenPaths;
use self::segments::SavedFile;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member, Oid};
use engram_base::telemetry::operation;
use engram_files::pool_file::real_path;
use engram_pool::namespace;
use engram_realm::Realm;
use engram_records::attrs;
use engram_records::attrs::Value;
use engram_records::layout::Layout;
use engram_records::object::{Class, NewObject, Placement, Record, Stored};

/// Something that was left out, or is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The namespace.
    pub namespace: String,
    /// The member's path; empty for what is wrong with the whole.
    pub path: String,
    /// What is lost, and why.
    pub what: String,
}

/// A pool that is being salvaged: what its catalogs still say.
pub struct Salvage {
    namespaces: Vec<(String, Gathered, Vec<Item>)>,
    losses: Vec<Loss>,
    notes: Vec<Loss>,
    checksums: Option<bool>,
}

/// A member to be copied.
struct Item {
    member: Member,
    path: String,
}

/// A caller's part in a salvage: it hears what is copied and what is lost, and may stop it.
pub trait Witness {
    /// Hears that a member is about to be copied, and says whether to go on.
    fn begin(&mut self, place: u64, path: &str) -> bool;
    /// Hears that a part of the member is lost, or was put elsewhere.
    fn lose(&mut self, loss: Loss);
    /// Hears, from time to time, that the copy goes on.
    fn pulse(&mut self);
}

impl Salvage {
    /// Reads what can be read of the pool at `path`.
    pub fn open(path: &Path, pulse: &mut dyn FnMut()) -> Result<Salvage> {
        let _operation = operation!(INFO, "salvage", pool = %path.display());
        let path = &real_path(path)?;
        let (mut losses, mut notes) = (Vec::new(), Vec::new());
        let mut namespaces = Vec::new();
        let devices = gather::devices(path, &mut losses)?;
        for name in namespace::names(path)? {
            let (gathered, mut lost) = Gathered::read(path, &devices, &name, pulse);
            losses.append(&mut lost);
            notes.extend(note::of(path, &name, &gathered));
            let mut places = GivenPaths::new(&gathered);
            let mut items = Vec::new();
            for gid in gathered.groups.keys() {
                items.push(Item { member: Member::Group(*gid), path: places.of_group(*gid) });
            }
            // Groups by path, so that each comes after those above it, then objects by OID.
            items.sort_by(|a, b| a.path.cmp(&b.path));
            for oid in gathered.objects.keys() {
                let (path, moved) = places.of_object(*oid);
                if let Some(what) = moved {
                    losses.push(Loss { namespace: name.clone(), path: path.clone(), what });
                }
                items.push(Item { member: Member::Object(*oid), path });
            }
            namespaces.push((name, gathered, items));
        }
        Ok(Salvage { namespaces, losses, notes, checksums: devices.checksums })
    }

    /// The namespaces, and how many members each has still.
    pub fn namespaces(&self) -> Vec<(String, u64)> {
        self.namespaces.iter().map(|(name, _, items)| (name.clone(), items.len() as u64)).collect()
    }

    /// What is lost already: what has no record any more, and what had another place.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// What will not be as it was, though nothing of it is lost: who may see it.
    pub fn notes(&self) -> &[Loss] {
        &self.notes
    }

    /// Whether the pool kept checksums; `None` if its description is damaged.
    pub fn checksums(&self) -> Option<bool> {
        self.checksums
    }

    /// Estimates the bytes that the values take in a pool.
    pub fn nbytes(&self) -> u64 {
        let of = |saved: &Saved| match Record::parse(&saved.row).map(|record| record.extent()) {
            Ok(Some(extent)) => extent.len,
            _ => 0,
        };
        let all = self.namespaces.iter().flat_map(|(_, gathered, _)| gathered.objects.values());
        all.fold(0, |sum: u64, saved| sum.saturating_add(of(saved)))
    }

    /// Copies the members of a namespace from the one at `from` on, until `witness` says no.
    ///
    /// An error is one of the target: damage is a loss.
    pub fn copy(&self, name: &str, to: &Realm, from: u64, witness: &mut dyn Witness) -> Result<()> {
        let Some((_, gathered, items)) = self.namespaces.iter().find(|(other, ..)| other == name)
        else {
            fail!(NotFound, "there is no namespace {name:?} in what is salvaged")
        };
        for (place, item) in items.iter().enumerate().skip(from as usize) {
            if !witness.begin(place as u64, &item.path) {
                return Ok(());
            }
            let mut losses = Vec::new();
            let mut lose = |what: String| {
                losses.push(Loss { namespace: name.to_owned(), path: item.path.clone(), what });
            };
            let copied = match item.member {
                Member::Group(gid) => group(gathered, gid, &item.path, to, &mut lose),
                Member::Object(oid) => {
                    let saved = &gathered.objects[&oid];
                    object(gathered, oid, saved, &item.path, to, witness, &mut lose)
                }
            };
            match copied {
                Ok(()) => {}
                // Of the target's own troubles none is the damaged pool's.
                Err(error) if matches!(error.kind(), Kind::PoolFull | Kind::Access) => {
                    return Err(error);
                }
                Err(error) => lose(format!("left out: {}", error.message())),
            }
            for loss in losses {
                witness.lose(loss);
            }
        }
        further_names(name, gathered, items, to, witness)?;
        protect_groups(gathered, items, to)
    }
}

/// Gives objects their further names, once all is there.
fn further_names(
    namespace: &str,
    gathered: &Gathered,
    items: &[Item],
    to: &Realm,
    witness: &mut dyn Witness,
) -> Result<()> {
    if gathered.further_names.is_empty() {
        return Ok(());
    }
    let paths: HashMap<Member, &str> =
        items.iter().map(|item| (item.member, item.path.as_str())).collect();
    let there = |path: &str| match path {
        "" => Ok(Some(Member::Group(to.root()))),
        path => to.lookup(to.root(), path),
    };
    for (oid, names) in &gathered.further_names {
        let Some(path) = paths.get(&Member::Object(*oid)) else { continue };
        for further @ (group, name) in names {
            let named = match (there(path)?, paths.get(&Member::Group(*group))) {
                _ if !gathered.is_named(*oid, further) => {
                    Err(Error::new(Kind::Corrupt, "the table of names does not have it"))
                }
                (Some(Member::Object(copy)), Some(above)) => match there(above)? {
                    // A copy that was interrupted has it already.
                    Some(Member::Group(parent))
                        if to.lookup(parent, name)? == Some(Member::Object(copy)) =>
                    {
                        Ok(())
                    }
                    Some(Member::Group(parent)) => to.link(copy, parent, name),
                    _ => Err(Error::new(Kind::NotFound, "the group above it is lost")),
                },
                _ => Err(Error::new(Kind::NotFound, "it, or the group above it, is lost")),
            };
            match named {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), Kind::PoolFull | Kind::Access) => {
                    return Err(error);
                }
                Err(error) => witness.lose(Loss {
                    namespace: namespace.to_owned(),
                    path: (*path).to_owned(),
                    what: format!("its further name {name:?}: {}", error.message()),
                }),
            }
        }
    }
    Ok(())
}

/// Makes groups read-only that were, once all is in them.
fn protect_groups(gathered: &Gathered, items: &[Item], to: &Realm) -> Result<()> {
    for item in items {
        let Member::Group(gid) = item.member else { continue };
        let record = Record::parse(&gathered.groups[&gid].row);
        if !record.is_ok_and(|record| record.flags.read_only) {
            continue;
        }
        let group = match &*item.path {
            "" => Some(Member::Group(to.root())),
            path => to.lookup(to.root(), path)?,
        };
        if let Some(group @ Member::Group(_)) = group {
            to.set_read_only(group, true)?;
        }
    }
    Ok(())
}

/// A record's attributes, those that can be read; the others are told.
fn attributes(
    gathered: &Gathered,
    saved: &Saved,
    section: &[u8],
    lose: &mut dyn FnMut(String),
) -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = Vec::new();
    for entry in attrs::entries(section) {
        let decoded = entry.and_then(|entry| Ok((entry.key, entry.decode()?)));
        match decoded {
            Ok((key, value)) => match gathered.key(saved.realm, key) {
                Some(name) if found.iter().all(|(other, _)| other != name) => {
                    found.push((name.to_owned(), value));
                }
                Some(name) => lose(format!("attribute {name:?} is there twice")),
                None => lose(format!("the attribute of key {key}, whose name is lost")),
            },
            Err(error) => lose(format!("an attribute: {}", error.message())),
        }
    }
    found
}

fn group(
    gathered: &Gathered,
    gid: Gid,
    path: &str,
    to: &Realm,
    lose: &mut dyn FnMut(String),
) -> Result<()> {
    let saved = &gathered.groups[&gid];
    let record = Record::parse(&saved.row)?;
    let attrs = attributes(gathered, saved, record.attrs, lose);
    if path.is_empty() {
        to.set_attrs(Member::Group(to.root()), &attrs)?;
        return to.set_origin(Member::Group(to.root()), record.origin);
    }
    let made = to.create_group(to.root(), path, &attrs, record.origin, true)?;
    to.set_attrs(Member::Group(made), &attrs)
}

fn object(
    gathered: &Gathered,
    oid: Oid,
    saved: &Saved,
    path: &str,
    to: &Realm,
    witness: &mut dyn Witness,
    lose: &mut dyn FnMut(String),
) -> Result<()> {
    let record = Record::parse(&saved.row)?;
    record.check()?;
    let new = NewObject {
        class: record.class,
        dtype: match record.class {
            Class::Blob => engram_base::dtype::DType::bytes(),
            _ => record.decode_dtype()?,
        },
        shape: record.decode_shape(),
        dims: record.decode_dims()?,
        attrs: attributes(gathered, saved, record.attrs, lose),
        origin: record.origin.to_vec(),
        properties: record.properties.to_vec(),
        layout: match record.stored {
            Stored::Chunked(chunking) => chunking.layout(),
            _ => Layout::Contiguous,
        },
    };
    let read_only = record.flags.read_only;
    let placement = Placement { index: Some(record.index), read_only, ..Placement::default() };
    let (extent, nbytes, word) = match record.stored {
        Stored::Inline(bytes) => {
            check_text(&record, bytes)?;
            return to.put(to.root(), path, &new, bytes, placement).map(|_| ());
        }
        Stored::Contiguous { extent, nbytes, checksum } => (extent, nbytes, checksum),
        Stored::Chunked(chunking) => {
            let chunked = Chunked { gathered, oid, saved, record: &record, chunking: &chunking };
            return chunked.copy(path, &new, placement, to, witness, lose);
        }
        Stored::Segmented(segmented) => {
            let file = SavedFile { gathered, oid, saved, segmented };
            return file.copy(path, &new, placement, to, witness, lose);
        }
    };
    let spans = gathered.spans(saved.realm);
    if record.class == Class::Strings {
        let mut value = Vec::new();
        spans.read_checked(extent, nbytes, word, |piece| {
            value.extend_from_slice(piece);
            witness.pulse();
        })?;
        check_text(&record, &value)?;
        return to.put(to.root(), path, &new, &value, placement).map(|_| ());
    }
    if !spans.cover(extent) {
        fail!(Corrupt, "its {nbytes} bytes at {} of the arena are in no span", extent.offset);
    }
    let allocation = to.allocate(to.root(), path, &new, nbytes, placement)?;
    let mut at = 0;
    spans.read_checked(extent, nbytes, word, |piece| {
        allocation.write_at(at, piece);
        at += piece.len() as u64;
        witness.pulse();
    })?;
    allocation.publish().map(|_| ())
}

/// Whether a value of strings is one: offsets that ascend to its end, and UTF-8 between them.
fn check_text(record: &Record<'_>, value: &[u8]) -> Result<()> {
    if record.class != Class::Strings {
        return Ok(());
    }
    let count = record
        .decode_shape()
        .iter()
        .try_fold(1usize, |n, length| n.checked_mul(usize::try_from(*length).ok()?));
    let offsets = count.and_then(|n| n.checked_add(1)?.checked_mul(8));
    let Some((offsets, text)) = offsets.and_then(|bytes| value.split_at_checked(bytes)) else {
        fail!(Corrupt, "its {} bytes are fewer than its strings have offsets", value.len())
    };
    let text = std::str::from_utf8(text)
        .map_err(|e| Error::new(Kind::Corrupt, format!("its strings are no UTF-8: {e}")))?;
    let mut before = 0;
    for word in offsets.chunks_exact(8) {
        let offset = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let place = usize::try_from(offset).unwrap_or(usize::MAX);
        if place < before || !text.is_char_boundary(place) {
            fail!(Corrupt, "an offset of its strings, {offset}, cannot be");
        }
        before = place;
    }
    if before != text.len() {
        fail!(Corrupt, "its strings end at {before}, not at {}", text.len());
    }
    Ok(())
}
