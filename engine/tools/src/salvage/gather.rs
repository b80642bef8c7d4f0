//! What the catalogs of one namespace still say: rows of sound pages, told apart by what they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::Loss;
use super::keys::Keys;
use crate::verify::{Pages, SpanFiles};
use engram_base::error::{Error, Result};
use engram_base::id::{Gid, Member, Oid, split_name_key};
use engram_catalog::Table;
use engram_files::paths;
use engram_files::pool_file::PoolFile;
use engram_ops::chunk_rows::{parse, split_key};
use engram_ops::links;
use engram_records::attrs::KeyId;
use engram_records::chunked::grid::GridCell;
use engram_records::object::version2::as_of_today;
use engram_records::object::{Class, Record};
use engram_space::extent::Span;

/// A record's row, and the realm that it was found in.
pub(super) struct Saved {
    pub realm: usize,
    pub row: Vec<u8>,
    /// Whether a tree led to it: a page that was cut off may have an older one.
    sure: bool,
}

/// The chunks of an array: where each is in the grid, and its row.
pub(super) type SavedChunks = BTreeMap<GridCell, Saved>;

/// What one realm has beside records.
struct RealmContext {
    whose: Whose,
    keys: HashMap<KeyId, String>,
    spans: SpanFiles,
    /// Whether its catalog is damaged: then rows may be lost that nothing else tells of.
    damaged: bool,
}

/// What there is of a namespace.
#[derive(Default)]
pub(super) struct Gathered {
    places: Vec<RealmContext>,
    pub groups: BTreeMap<Gid, Saved>,
    pub objects: BTreeMap<Oid, Saved>,
    /// Chunks of arrays, by the realm and the array.
    chunks: HashMap<(usize, Oid), SavedChunks>,
    /// Where groups are by the table of names, for those whose records are lost.
    pub group_names: HashMap<Gid, (Gid, String)>,
    /// Further names of objects: each one's groups and names there.
    pub further_names: BTreeMap<Oid, BTreeSet<(Gid, String)>>,
    /// What the table of names says of objects: each one's groups and names there.
    object_names: HashMap<Oid, Vec<(Gid, String)>>,
}

/// A realm of a namespace on media: its folder, and where its spans are below a device.
struct RealmPlace {
    folder: PathBuf,
    below: PathBuf,
    whose: Whose,
}

/// Who saw what is in a realm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// This user alone.
    User(u32),
    /// Who shares the namespace.
    Shared,
    /// Whom the namespace's mode admits.
    All,
}

/// The pool's uuid and devices, as far as that can be known.
pub(super) struct Devices {
    uuid: String,
    paths: Vec<PathBuf>,
    /// Whether the pool kept checksums; `None` if nothing tells.
    pub checksums: Option<bool>,
}

/// Reads `pool.toml`; where that is damaged, looks at the pool's own folder.
pub(super) fn devices(pool: &Path, losses: &mut Vec<Loss>) -> Result<Devices> {
    let damaged = match PoolFile::read_to_upgrade(pool) {
        Ok(file) if folder_of(&file.devices[0], &file.uuid).is_dir() => {
            let checksums = Some(file.checksums);
            return Ok(Devices { uuid: file.uuid, paths: file.devices, checksums });
        }
        Ok(file) => format!("pool.toml says uuid {}, of which there is no folder", file.uuid),
        Err(error) if pool.join("ns").is_dir() => error.message().to_owned(),
        Err(error) => return Err(error),
    };
    let entries = std::fs::read_dir(pool)
        .map_err(|e| Error::os(format!("listing {}", pool.display()), &e))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut uuids = names.filter(|n| n.len() == 32 && n.bytes().all(|b| b.is_ascii_hexdigit()));
    let uuid = uuids.next().unwrap_or_default();
    losses.push(Loss {
        namespace: String::new(),
        path: String::new(),
        what: format!("{damaged}; only what lies in the pool's own folder is looked for"),
    });
    Ok(Devices { uuid, paths: vec![pool.to_owned()], checksums: None })
}

fn folder_of(device: &Path, uuid: &str) -> PathBuf {
    device.join(uuid)
}

/// The realms of a namespace that this user may look into: a private name comes before a shared
/// one, a shared one before a published one.
fn realms(pool: &Path, name: &str) -> Vec<RealmPlace> {
    let place = paths::folder(pool).join(name);
    let inside = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(place.join(folder)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
            .collect();
        names.sort_by_key(|name| name.parse::<u64>().unwrap_or(0));
        names
    };
    let realm = |folder: String, below: &str, whose| RealmPlace {
        folder: place.join(&folder),
        below: Path::new(name).join(below),
        whose,
    };
    let mut found = Vec::new();
    for uid in inside("private") {
        let folder = format!("private/{uid}");
        found.push(realm(folder.clone(), &folder, Whose::User(uid.parse().unwrap_or(u32::MAX))));
    }
    found.push(realm("shared".to_owned(), "shared", Whose::Shared));
    if let Some(newest) = inside("published").pop() {
        found.push(realm(format!("published/{newest}"), "published", Whose::All));
    }
    found.retain(|realm| realm.folder.join("catalog").is_dir());
    found
}

impl Gathered {
    /// Reads every realm of a namespace; faults in it are told.
    pub(super) fn read(
        pool: &Path,
        devices: &Devices,
        name: &str,
        pulse: &mut dyn FnMut(),
    ) -> (Self, Vec<Loss>) {
        let mut gathered = Gathered::default();
        let mut losses = Vec::new();
        let mut lose = |what: String| {
            losses.push(Loss { namespace: name.to_owned(), path: String::new(), what });
        };
        let realms = realms(pool, name);
        if realms.is_empty() {
            lose("there is no catalog that this user can read".to_owned());
        }
        for realm in realms {
            let file = realm.folder.join("catalog/data.mdb");
            match Pages::open_earlier(&file) {
                Ok(pages) => gathered.realm(&pages, devices, &realm, pulse, &mut lose),
                Err(error) => lose(error.message().to_owned()),
            }
        }
        gathered.tell_lost_records(&mut lose);
        (gathered, losses)
    }

    fn realm(
        &mut self,
        pages: &Pages,
        devices: &Devices,
        realm: &RealmPlace,
        pulse: &mut dyn FnMut(),
        lose: &mut dyn FnMut(String),
    ) {
        let number = self.places.len();
        let mut keys = Keys::default();
        let mut spans = BTreeMap::new();
        let mut damaged = Vec::new();
        let mut take = |table: Option<Table>, key: &[u8], value: &[u8]| match table {
            Some(Table::Objects | Table::Groups) => {
                if let Err(error) = self.record(number, key, value, true) {
                    damaged.push(error.message().to_owned());
                }
            }
            Some(Table::Chunks) => {
                if let Err(error) = self.chunk(number, key, value, true) {
                    damaged.push(error.message().to_owned());
                }
            }
            Some(Table::Names) => self.name(key, value),
            Some(Table::Links) => self.further_name(key),
            Some(Table::Keys) => keys.note(key, value),
            Some(Table::Spans) => note_span(&mut spans, key, value),
            Some(_) => {}
            None => self.stray(number, key, value, &mut keys, &mut spans),
        };
        let checked = pages.walk(None, &mut take, pulse);
        let is_damaged = !checked.problems.is_empty();
        checked.problems.into_iter().chain(damaged).for_each(&mut *lose);
        let keys = keys.resolve(lose);
        let files = spans.into_values().filter(|span| span.has_file()).filter_map(|span: Span| {
            let device = devices.paths.get(span.device as usize)?;
            let folder = folder_of(device, &devices.uuid).join(&realm.below);
            // On a devdax node all spans lie in one file.
            let in_folder = || folder.join(format!("span-{}", span.file));
            Some((span, if span.place == 0 { in_folder() } else { device.clone() }))
        });
        let (whose, spans) = (realm.whose, SpanFiles::open(files));
        self.places.push(RealmContext { whose, keys, spans, damaged: is_damaged });
    }

    /// A row of `objects` or `groups`.
    fn record(&mut self, realm: usize, key: &[u8], row: &[u8], sure: bool) -> Result<()> {
        let Ok(id) = <[u8; 8]>::try_from(key).map(u64::from_be_bytes) else { return Ok(()) };
        let row = as_of_today(row).map_err(|error| error.context(format!("{id:#x}")))?;
        let record = Record::parse(&row).map_err(|error| error.context(format!("{id:#x}")))?;
        let saved = Saved { realm, row: row.to_vec(), sure };
        let rows = match record.class {
            Class::Group => &mut self.groups,
            _ => &mut self.objects,
        };
        // A mirror stands for a true record that there may be; an older row for a newer one.
        let rank = |saved: &Saved| {
            let record = Record::parse(&saved.row).ok()?;
            Some((
                saved.sure,
                !record.flags.mirror,
                std::cmp::Reverse(saved.realm),
                record.modified,
            ))
        };
        match rows.get(&id) {
            Some(known) if rank(known) >= rank(&saved) => {}
            _ => drop(rows.insert(id, saved)),
        }
        Ok(())
    }

    /// A row of `chunks`.
    fn chunk(&mut self, realm: usize, key: &[u8], row: &[u8], sure: bool) -> Result<()> {
        let (oid, cell) = split_key(key)?;
        let what = || format!("chunk {cell:?} of object {oid:#x}, which is zeros where it was");
        let row = as_of_today(row).map_err(|error| error.context(what()))?;
        let modified = parse(&row).map_err(|error| error.context(what()))?.modified;
        let chunks = self.chunks.entry((realm, oid)).or_default();
        // As with records, an older row of a page that was cut off makes way for a newer one.
        let rank = |saved: &Saved| Some((saved.sure, parse(&saved.row).ok()?.modified));
        if chunks.get(&cell).and_then(rank).is_none_or(|known| known < (sure, modified)) {
            chunks.insert(cell, Saved { realm, row: row.to_vec(), sure });
        }
        Ok(())
    }

    /// The chunks that there are of an array, and whether there may have been others.
    pub(super) fn chunks_of(&self, saved: &Saved, oid: Oid) -> (Option<&SavedChunks>, bool) {
        (self.chunks.get(&(saved.realm, oid)), self.places[saved.realm].damaged)
    }

    /// A row of `links`.
    fn further_name(&mut self, key: &[u8]) {
        if let Ok((oid, parent, name)) = links::split_key(key) {
            self.further_names.entry(oid).or_default().insert((parent, name.to_owned()));
        }
    }

    fn name(&mut self, key: &[u8], row: &[u8]) {
        let (Ok((parent, name)), Ok(member)) = (split_name_key(key), Member::from_row(row)) else {
            return;
        };
        let named = (parent, name.to_owned());
        match member {
            Member::Group(gid) => drop(self.group_names.insert(gid, named)),
            Member::Object(oid) => self.object_names.entry(oid).or_default().push(named),
        }
    }

    /// Whether the table of names has an object there. Neither table of names has a checksum, so a
    /// further name is believed where both have it.
    pub(super) fn is_named(&self, oid: Oid, named: &(Gid, String)) -> bool {
        self.object_names.get(&oid).is_some_and(|names| names.contains(named))
    }

    /// A row of a page that no tree leads to: the row itself tells what it is.
    fn stray(
        &mut self,
        realm: usize,
        key: &[u8],
        value: &[u8],
        keys: &mut Keys,
        spans: &mut BTreeMap<u32, Span>,
    ) {
        if value.len() >= engram_records::object::HEAD_BYTES
            && split_key(key).is_ok()
            && as_of_today(value).is_ok_and(|row| parse(&row).is_ok())
        {
            let _ = self.chunk(realm, key, value, false);
        } else if key.len() == 8 && value.len() >= engram_records::object::HEAD_BYTES {
            // One that does not parse is a row of something else, or a lost record.
            let _ = self.record(realm, key, value, false);
        } else if key.len() == 4 && Span::from_row(0, value).is_ok() {
            note_span(spans, key, value);
        } else if key.len() > 8 && value.len() == 9 {
            self.name(key, value);
        } else {
            keys.note(key, value);
        }
    }

    /// Records that names still stand for.
    fn tell_lost_records(&self, lose: &mut dyn FnMut(String)) {
        for (gid, (_, name)) in &self.group_names {
            if !self.groups.contains_key(gid) {
                lose(format!("the record of group {gid:#x} {name:?}, with its attributes"));
            }
        }
        for (oid, names) in &self.object_names {
            if let Some((_, name)) = names.last().filter(|_| !self.objects.contains_key(oid)) {
                lose(format!("object {oid:#x} {name:?}: its record is lost, and so is its value"));
            }
        }
    }

    /// An attribute key by its number in a realm.
    pub(super) fn key(&self, realm: usize, key: KeyId) -> Option<&str> {
        self.places[realm].keys.get(&key).map(String::as_str)
    }

    /// How many objects and true groups there are of realms that were not shared, by those who saw
    /// them.
    pub(super) fn elsewhere(&self) -> BTreeMap<Whose, (u64, u64)> {
        let mut counts: BTreeMap<Whose, (u64, u64)> = BTreeMap::new();
        for saved in self.objects.values() {
            counts.entry(self.places[saved.realm].whose).or_default().0 += 1;
        }
        for saved in self.groups.values() {
            let record = Record::parse(&saved.row);
            if record.is_ok_and(|record| !record.flags.mirror && record.parent != 0) {
                counts.entry(self.places[saved.realm].whose).or_default().1 += 1;
            }
        }
        counts.remove(&Whose::Shared);
        counts
    }

    /// The span files of a realm.
    pub(super) fn spans(&self, realm: usize) -> &SpanFiles {
        &self.places[realm].spans
    }
}

fn note_span(spans: &mut BTreeMap<u32, Span>, key: &[u8], value: &[u8]) {
    if let Ok(number) = <[u8; 4]>::try_from(key).map(u32::from_be_bytes)
        && let Ok(span) = Span::from_row(number, value)
    {
        spans.insert(number, span);
    }
}
