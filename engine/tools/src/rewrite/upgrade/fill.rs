//! A namespace of the earlier pool, in the new one: rows, values, moves that have ended, an index.

use std::collections::HashMap;

use super::super::spans::NewSpans;
use super::super::{MOVES, MovedValue, finish_catalog, rewrite_space};
use super::earlier::{FoundNamespace, FoundRealm, digest, of_value};
use super::{UpgradeReport, Work};
use crate::verify::SpanFiles;
use engram_base::checksum::{self, RunningChecksum};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::Gid;
use engram_base::scope::Scope;
use engram_catalog::meta::meta_u64;
use engram_catalog::{Catalog, Filling, Table};
use engram_index::{UNINDEXED, maintain, queue};
use engram_ops::marks::Going;
use engram_pool::namespace;
use engram_pool::published;
use engram_pool::transfer;
use engram_realm::{LIMIT, NEXT_ID, Setup, USED, boot_id};
use engram_records::index_mode::IndexMode;
use engram_records::object::version2;
use engram_records::object::{Record, Stored};

/// Tables whose rows are taken as they are. Those of records are taken in their new form; of
/// `meta`, the accounts that [`LASTING`] names; the others follow from these, or are of the moment.
const AS_THEY_ARE: [Table; 7] = [
    Table::Names,
    Table::Keys,
    Table::IndexSettings,
    Table::Transfers,
    Table::Leaving,
    Table::ReadOnly,
    Table::Mirrors,
];
/// Receipts of moves: with the marks they say where members are, and go when that is settled.
const RECEIPTS: Table = Table::Received;
/// The rows of `meta` that an index which is built anew does not change.
const LASTING: [&[u8]; 5] = [LIMIT, NEXT_ID, b"keys", b"settings", b"arrived"];
/// Objects that one transaction brings to the index.
const PART: usize = 16_384;

/// A realm that is being made.
struct MadeRealm<'f> {
    found: &'f FoundRealm<'f>,
    setup: Setup,
    catalog: Catalog,
    spans: NewSpans,
}

/// Makes a namespace of the new pool.
pub(super) fn namespace(
    work: &Work<'_>,
    from: &FoundNamespace<'_>,
    report: &mut UpgradeReport,
) -> Result<()> {
    let like = namespace::look_like(work.file, from.name)?;
    namespace::create_like(work.dest, work.new, &like)?;
    let mut made = Vec::with_capacity(from.realms.len());
    for found in &from.realms {
        let called = || format!("namespace {:?}", found.realm.called);
        made.push(realm(work, found).map_err(|error| error.context(called()))?);
    }
    let out = moved_away(&made)?;
    for (new, out) in made.into_iter().zip(out) {
        finish(new, &out, report)?;
    }
    namespace::hand_over(work.path, work.dest, work.new, from.name)
}

/// Makes a realm with all rows and values, and no index yet.
fn realm<'f>(work: &Work<'_>, found: &'f FoundRealm<'f>) -> Result<MadeRealm<'f>> {
    let from = found.realm;
    let setup =
        namespace::realm_like(work.dest, work.new, work.mount, work.file, &from.setup, from.user)?;
    let catalog = Catalog::open(&setup.catalog(), &setup.catalog_options())?;
    fill(found, &catalog)?;
    step!("upgrade.rows");
    let mut spans = NewSpans::default();
    if found.end > 0 {
        spans = NewSpans::make(&setup, work.dest, work.mount, found.end)?;
        let words = copy_values(found, &spans).map_err(|error| work.damaged(error))?;
        if work.mount.durable {
            spans.sync()?;
        }
        let files =
            spans.rows.iter().zip(&spans.files).map(|(row, (path, _))| (*row, path.clone()));
        compare_values(&found.values, &words, &SpanFiles::open(files))?;
    }
    rewrite_space(&spans.rows, &found.values, &[], &catalog)?;
    compare_records(found, &catalog)?;
    step!("upgrade.values");
    catalog.growth().set_boot_id(boot_id());
    Ok(MadeRealm { found, setup, catalog, spans })
}

/// Puts the rows that last, each record in its new form, with the place that its value goes to.
fn fill(found: &FoundRealm<'_>, catalog: &Catalog) -> Result<()> {
    let places: HashMap<(Table, &[u8]), u64> =
        found.values.iter().map(|value| ((value.table, value.key.as_slice()), value.to)).collect();
    let mut filling = Filling::new(catalog);
    found.realm.rows(|table, key, row| match table {
        Table::Objects | Table::Groups | Table::Chunks => {
            let record = version2::parse_any(row)?;
            let stored = match record.stored {
                Stored::Contiguous { mut extent, nbytes, checksum } => {
                    extent.offset = places.get(&(table, key)).copied().unwrap_or(extent.offset);
                    // A number of the process that computes its checksum stays behind.
                    let sound = checksum::is_checksum(checksum);
                    let checksum = if sound { checksum } else { checksum::NONE };
                    Stored::Contiguous { extent, nbytes, checksum }
                }
                stored => stored,
            };
            filling.put(table, key, &Record { stored, ..record }.encode())
        }
        Table::Meta if LASTING.contains(&key) => filling.put(table, key, row),
        table if table == RECEIPTS || AS_THEY_ARE.contains(&table) => filling.put(table, key, row),
        _ => Ok(()),
    })?;
    let used: u64 = found.values.iter().map(|value| value.from.len).sum();
    filling.put(Table::Meta, USED, &used.to_le_bytes())?;
    filling.put(Table::Meta, UNINDEXED, &found.unindexed.to_le_bytes())?;
    filling.flush()
}

/// Copies every value; the checksum of each.
fn copy_values(found: &FoundRealm<'_>, to: &NewSpans) -> Result<Vec<u64>> {
    let copy = |value: &MovedValue| {
        let (mut running, mut done) = (RunningChecksum::new(), 0);
        found.files.read(value.from.offset, value.nbytes, |piece| {
            running.add(piece);
            to.write_at(piece, value.to + done)?;
            done += piece.len() as u64;
            Ok(())
        })?;
        let word = running.word();
        if checksum::is_checksum(value.word) && word != value.word {
            fail!(Corrupt, "its bytes are not those of its checksum");
        }
        Ok(word)
    };
    let refused = |value: &MovedValue, error: Error| match error.kind() {
        Kind::PoolFull => error,
        _ => of_value(value, &error),
    };
    found.values.iter().map(|value| copy(value).map_err(|error| refused(value, error))).collect()
}

/// Reads what was written, and compares it with what was read before.
fn compare_values(values: &[MovedValue], words: &[u64], files: &SpanFiles) -> Result<()> {
    for (value, word) in values.iter().zip(words) {
        if files.checksum(value.place(), value.nbytes)? != *word {
            fail!(Os, "what was written of a value at {} is not there: try again", value.to);
        }
    }
    Ok(())
}

/// Reads the new records, and compares them with those that they were made of.
fn compare_records(found: &FoundRealm<'_>, catalog: &Catalog) -> Result<()> {
    let txn = catalog.read()?;
    let mut sum = 0u64;
    for table in [Table::Objects, Table::Groups, Table::Chunks] {
        let mut cursor = txn.seek(table, &[])?;
        while let Some((key, row)) = cursor.next()? {
            sum = sum.wrapping_add(digest(table, key, &Record::parse(row)?));
        }
    }
    if sum != found.digest {
        fail!(Os, "the new records are not those of the earlier pool: try again");
    }
    Ok(())
}

/// What each realm has no more, as far as moves that died have come.
fn moved_away(made: &[MadeRealm<'_>]) -> Result<Vec<Vec<Vec<Going>>>> {
    let looks = made.iter().map(|new| new.catalog.read()).collect::<Result<Vec<_>>>()?;
    let other = |scope, user| {
        let same = |new: &MadeRealm<'_>| {
            let realm = new.found.realm;
            realm.scope == scope && (scope != Scope::Private || realm.user == user)
        };
        Some(&looks[made.iter().position(same)?])
    };
    looks.iter().map(|look| transfer::leaves_out(look, other)).collect()
}

/// Ends moves that died, builds the index, and makes all of it durable.
fn finish(new: MadeRealm<'_>, out: &[Vec<Going>], report: &mut UpgradeReport) -> Result<()> {
    let MadeRealm { found, setup, mut catalog, spans } = new;
    forget_moves(&catalog)?;
    if !out.is_empty() {
        drop(catalog);
        transfer::take_out(&setup, out)?;
        catalog = Catalog::open(&setup.catalog(), &setup.catalog_options())?;
    }
    build_index(&catalog, setup.root())?;
    step!("upgrade.indexed");
    finish_catalog(&catalog, &setup)?;
    let txn = catalog.read()?;
    report.realms += 1;
    report.objects += txn.entries(Table::Objects)?;
    report.bytes += meta_u64(txn.get(Table::Meta, USED)?)?;
    drop(txn);
    drop(catalog);
    if found.realm.scope == Scope::Published {
        let files: Vec<_> = spans.files.into_iter().map(|(path, _)| path).collect();
        published::finish_like(&setup, &files)?;
    }
    Ok(())
}

fn forget_moves(catalog: &Catalog) -> Result<()> {
    let mut keys = Vec::new();
    for table in MOVES {
        let txn = catalog.read()?;
        let mut cursor = txn.seek(table, &[])?;
        while let Some((key, _)) = cursor.next()? {
            keys.push((table, key.to_vec()));
        }
    }
    catalog.run(|txn| keys.iter().try_for_each(|(table, key)| txn.delete(*table, key).map(drop)))
}

/// Brings every object to the index that is to be in it. All of them are queued, whatever their
/// mode, and the queue is drained: so how a tail lies is the index's own affair.
fn build_index(catalog: &Catalog, root: Gid) -> Result<()> {
    let mut from = Vec::new();
    loop {
        let (part, next) = objects_from(catalog, &from)?;
        catalog.run(|txn| part.iter().try_for_each(|key| txn.put(Table::Queue, key, &[])))?;
        while catalog.run(|txn| queue::drain(txn, root, PART as u64))? > 0 {}
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    while catalog.run(|txn| maintain::seal_tail(txn, root, false))?.is_some() {}
    while catalog.run(|txn| maintain::step(txn, root, &[], true))?.is_some() {}
    Ok(())
}

/// Keys of objects, and the one to go on from.
type PartToIndex = (Vec<Vec<u8>>, Option<Vec<u8>>);

/// Objects from a key on that are to be indexed.
fn objects_from(catalog: &Catalog, from: &[u8]) -> Result<PartToIndex> {
    let txn = catalog.read()?;
    let mut cursor = txn.seek(Table::Objects, from)?;
    let mut part = Vec::new();
    while let Some((key, row)) = cursor.next()? {
        if part.len() == PART {
            return Ok((part, Some(key.to_vec())));
        }
        if Record::index_of(row)? != IndexMode::None {
            part.push(key.to_vec());
        }
    }
    Ok((part, None))
}
