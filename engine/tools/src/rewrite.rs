//! Rewriting a realm: its rows into a new catalog, its values to other places.
//!
//! Backup, compaction and upgrade are one thing: all rows of one snapshot go, in the order of their
//! keys, into a catalog that nobody knows yet. Things of the moment stay behind: reservations, and
//! extents that were freed and wait; and of a copy also moves between realms that are under way,
//! which have ended there (see `transfer::copied`). Where values change their places, records are
//! told the new ones, and the free tables are made anew from what is left between.
//!
//! | file | what it owns |
//! |---|---|
//! | `backup` | a copy of a pool while others write |
//! | `compact` | a catalog without holes, an arena without empty spans |
//! | `upgrade` | a pool of an earlier format, made anew in this one |
//! | `keys` | which attribute keys are still of use |
//! | `left_out` | what is damaged, and goes neither into a copy nor small |
//! | `spans` | the arena of a pool that is being made of another |

mod backup;
mod compact;
mod keys;
mod left_out;
mod spans;
mod upgrade;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::Path;

pub use self::backup::{BackupOptions, BackupReport, backup, backup_with};
pub use self::compact::{CompactReport, compact, compact_with};
pub use self::left_out::LeftOut;
pub use self::upgrade::{UpgradeReport, upgrade};
use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_base::id::Oid;
use engram_catalog::{Catalog, Filling, ReadTxn, Table};
use engram_files::folder;
use engram_files::paths;
use engram_files::pool_file::{CREATING, POOL_FILE};
use engram_ops::chunk_rows;
use engram_realm::{Setup, USED};
use engram_records::extent::Extent;
use engram_records::object::{Record, Stored};
use engram_records::segmented::{HEAD_BYTES, HeadFacts};
use engram_space::extent::{Span, insert_free, vacant_row};

/// Tables whose rows are of the moment, or follow from the others.
const LEFT_OUT: [Table; 5] = [
    Table::Spans,
    Table::ExtentsByOffset,
    Table::ExtentsBySize,
    Table::ExtentsPending,
    Table::Orphans,
];

/// Tables of records whose values may lie in extents.
const VALUED: [Table; 2] = [Table::Objects, Table::Chunks];

/// What a realm knows of moves that are under way.
const MOVES: [Table; 3] = [Table::Transfers, Table::Leaving, Table::Received];

/// A value in an extent, and where it goes.
#[derive(Clone, Debug)]
struct MovedValue {
    /// The row that points to it: one of `objects`, or of `chunks`.
    table: Table,
    key: Vec<u8>,
    from: Extent,
    nbytes: u64,
    /// The word that the record has for it.
    word: u64,
    /// Where it goes; until that is known, where it is.
    to: u64,
    /// Of a file's head, the most bytes that the file may have in a copy of these rows.
    head: Option<u64>,
}

impl MovedValue {
    fn place(&self) -> Extent {
        Extent { offset: self.to, len: self.from.len }
    }
}

/// The object that a value is of.
fn id_of(key: &[u8]) -> Result<Oid> {
    match key.first_chunk() {
        Some(id) => Ok(u64::from_be_bytes(*id)),
        None => fail!(Corrupt, "a key of an object has {} bytes: run verify", key.len()),
    }
}

/// Every value that lies in an extent.
fn values(txn: &ReadTxn<'_>) -> Result<Vec<MovedValue>> {
    let (mut found, mut heads) = (Vec::<MovedValue>::new(), HashMap::new());
    let orphans = orphans(txn)?;
    for table in VALUED {
        let mut cursor = txn.seek(table, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let stored = Record::parse(row)?.stored;
            let Some((extent, nbytes, word)) = stored.extent() else { continue };
            let oid = id_of(key)?;
            if orphans.contains(&oid) {
                continue;
            }
            let head = match stored {
                Stored::Segmented(segmented) => Some(segmented.nbytes),
                _ => None,
            };
            if head.is_some() {
                heads.insert(oid, found.len());
            } else if table == Table::Chunks
                && let Some(place) = heads.get(&oid)
            {
                let (at, extent) = chunk_rows::segment(oid, key, row)?;
                let most = &mut found[*place].head;
                *most = (*most).max(Some(at + extent.len));
            }
            let (key, to) = (key.to_vec(), extent.offset);
            found.push(MovedValue { table, key, from: extent, nbytes, word, to, head });
        }
    }
    Ok(found)
}

/// Files without a name, which stay behind with their segments.
fn orphans(txn: &ReadTxn<'_>) -> Result<HashSet<Oid>> {
    let mut found = HashSet::new();
    let mut cursor = txn.seek(Table::Orphans, &[])?;
    while let Some((key, _)) = cursor.next()? {
        found.insert(id_of(key)?);
    }
    Ok(found)
}

/// The bytes of a head as a copy has them: nobody extends the file there, and it has no more bytes
/// than its rows allow.
fn settled_head(bytes: &[u8], most: u64) -> Result<[u8; HEAD_BYTES as usize]> {
    let facts = HeadFacts::parse(bytes)?;
    Ok(HeadFacts { size: facts.size.min(most), ..facts }.to_bytes())
}

/// Refuses values of which one lies in another, or behind the last span.
fn check_places(spans: &[Span], values: &[MovedValue]) -> Result<()> {
    let mut taken: Vec<Extent> = values.iter().map(|value| value.from).collect();
    taken.sort_unstable();
    let end = spans.last().map_or(0, |last| last.range.end());
    let mut at = 0;
    for extent in taken {
        if extent.offset < at {
            fail!(Corrupt, "{extent:?} overlaps the one before it: run verify");
        }
        at = extent.offset.saturating_add(extent.len);
    }
    if at > end {
        fail!(Corrupt, "a value ends at {at}, the spans at {end}: run verify");
    }
    if let Some(value) = values.iter().find(|value| value.nbytes > value.from.len) {
        let id = id_of(&value.key)?;
        fail!(Corrupt, "object {id:#x} has {} bytes in {:?}", value.nbytes, value.from);
    }
    Ok(())
}

/// Puts every row of a snapshot that lasts but for those of `without` and names of keys that
/// nothing has, each record with the place that its value goes to.
fn rewrite_rows(
    txn: &ReadTxn<'_>,
    values: &[MovedValue],
    without: &[Table],
    into: &Catalog,
) -> Result<()> {
    let places: HashMap<(Table, &[u8]), u64> =
        values.iter().map(|value| ((value.table, value.key.as_slice()), value.to)).collect();
    let orphans = orphans(txn)?;
    let living = keys::living(txn)?;
    let mut filling = Filling::new(into);
    for table in Table::ALL {
        if LEFT_OUT.contains(&table) || without.contains(&table) {
            continue;
        }
        let mut cursor = txn.seek(table, &[])?;
        while let Some((key, row)) = cursor.next()? {
            match table {
                Table::Chunks if !orphans.is_empty() && orphans.contains(&id_of(key)?) => {}
                Table::Objects | Table::Chunks => match places.get(&(table, key)) {
                    Some(to) => filling.put(table, key, &moved(row, *to)?)?,
                    None => filling.put(table, key, row)?,
                },
                Table::Meta if key == USED => {}
                Table::Keys if !keys::is_of(&living, key, row) => {}
                Table::Groups => {
                    Record::parse(row)?;
                    filling.put(table, key, row)?;
                }
                _ => filling.put(table, key, row)?,
            }
        }
    }
    let used: u64 = values.iter().map(|value| value.from.len).sum();
    filling.put(Table::Meta, USED, &used.to_le_bytes())?;
    filling.flush()
}

/// Makes a new catalog durable where that is promised; elsewhere it is marked as closed in good
/// order, its values being on the medium already.
fn finish_catalog(catalog: &Catalog, setup: &Setup) -> Result<()> {
    if setup.durable {
        return catalog.sync();
    }
    if setup.mount.durable { catalog.close_clean(|| Ok(())) } else { Ok(()) }
}

/// A record whose value lies elsewhere. A number of the process that computes its checksum stays
/// behind.
fn moved(row: &[u8], to: u64) -> Result<Vec<u8>> {
    let record = Record::parse(row)?;
    Ok(Record { stored: record.stored.moved_to(to), ..record }.encode())
}

/// Puts the spans, what is vacant in them, and what else is free in them between the values.
fn rewrite_space(
    spans: &[Span],
    values: &[MovedValue],
    vacant: &[Extent],
    into: &Catalog,
) -> Result<()> {
    let mut taken: Vec<Extent> = values.iter().map(MovedValue::place).collect();
    taken.extend(vacant);
    taken.sort_unstable();
    let end = spans.last().map_or(0, |last| last.range.end());
    let (mut free, mut at) = (Vec::new(), 0);
    for extent in taken {
        if extent.offset < at {
            fail!(Corrupt, "{extent:?} overlaps the one before it: run verify");
        }
        if extent.offset > at {
            free.push(Extent { offset: at, len: extent.offset - at });
        }
        at = extent.end();
    }
    if at > end {
        fail!(Corrupt, "a value ends at {at}, the spans at {end}: run verify");
    }
    if at < end {
        free.push(Extent { offset: at, len: end - at });
    }
    into.run(|txn| {
        for span in spans {
            txn.put(Table::Spans, &Span::key(span.number), &span.to_row())?;
        }
        Ok(())
    })?;
    for some in vacant.chunks(4096) {
        into.run(|txn| some.iter().try_for_each(|extent| vacant_row(txn, *extent)))?;
    }
    for some in free.chunks(4096) {
        into.run(|txn| some.iter().try_for_each(|extent| insert_free(txn, *extent)))?;
    }
    Ok(())
}

/// Makes durable which files there are.
fn sync_folders(folder: &Path) -> Result<()> {
    let refused = |e| Error::os(format!("syncing {}", folder.display()), &e);
    for entry in fs::read_dir(folder).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        if entry.file_type().map_err(refused)?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder).and_then(|file| file.sync_all()).map_err(refused)
}

/// Gives what lies around the namespaces of a pool that is being made to whom it belongs in another
/// one, with its mode. Each pool is a folder and a uuid.
fn hand_over(made: (&Path, &str), other: (&Path, &str)) -> Result<()> {
    let inner = paths::NAMESPACES;
    for (from, to) in [(inner, inner), (other.1, made.1), (POOL_FILE, CREATING)] {
        if other.0.join(from).exists() && made.0.join(to).exists() {
            folder::like_another(&made.0.join(to), &other.0.join(from))?;
        }
    }
    folder::like_another(made.0, other.0)
}
