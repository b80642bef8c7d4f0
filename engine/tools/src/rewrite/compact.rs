//! Compaction: a catalog without holes, an arena without empty spans.
//!
//! A catalog keeps the pages that it once needed, an arena the spans. Both are given back while
//! nobody has the realm open: (1) the compaction lock is taken, and nobody is there (see
//! `compaction_lock`); files in fragments become files in one piece, in the old catalog
//! (`engram_realm::files`); (2) all rows go into a new catalog, `catalog.new`, in which spans that
//! hold nothing have no rows, and values behind them have moved up: their records say so, their
//! bytes stay in their files; (3) it is synced; (4) the two catalogs change places in one step,
//! which is the one moment at which anything changes for anybody; (5) the old catalog goes, and
//! then the files of spans that no row names any more; (6) the compaction lock is given up. A
//! death before (4) leaves the old realm, one after it the new one; the next process to open it
//! clears away what is left. So no page is ever mapped whose file has gone, and no file goes that
//! a row names.
//!
//! A published realm is left as it is: a publisher writes each version without holes, and takes
//! spans without values away. Its readers have no leases, so nobody could tell when bytes that lie
//! between values may move; a backup has them packed.
//!
//! A reader of another process would see two catalogs, whose transactions count anew: that is why
//! nobody may have the realm open, this process neither.

use engram_realm::{dead, files, vacant};
use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::Arc;

use super::left_out::{LeavingOut, LeftOut, is_damage, shown};
use super::{MovedValue, check_places, finish_catalog, rewrite_rows, rewrite_space, values};
use crate::verify::check_pages;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::pool_lock::PoolLock;
use engram_base::scope::Scope;
use engram_base::telemetry::operation;
use engram_base::user;
use engram_catalog::{Catalog, ReadTxn};
use engram_files::folder;
use engram_files::pool_file::{PoolFile, real_path};
use engram_media::exchange::exchange;
use engram_media::filesystem;
use engram_pool::check_devices;
use engram_pool::namespace;
use engram_realm::compaction_lock::{CompactionLock, new_catalog};
use engram_realm::process;
use engram_realm::{Core, Purpose, Setup, sweep_spans};
use engram_records::extent::{Extent, PAGE};
use engram_space::extent::{Span, vacant_rows};
use engram_space::lease::Peers;

/// What compacting has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Realms: namespaces, and private ones of users in them.
    pub realms: u64,
    /// Bytes that the catalogs had, and have.
    pub catalog: [u64; 2],
    /// Bytes that spans had, and have.
    pub arena: [u64; 2],
    /// Files whose fragments are in one piece now, but for their holes.
    pub joined: u64,
    /// What this user may not open.
    pub skipped: Vec<String>,
    /// What is damaged, and is as it was.
    pub left_out: Vec<LeftOut>,
}

/// Gives back what the catalogs and arenas of the pool at `path` do not need any more, in every
/// realm that this user may open, if nobody has one of them open; this process neither.
///
/// A damaged realm of another user's, or any for root, stays as it is, and the report names it. On
/// error a realm is as it was; those before it are compacted.
pub fn compact(path: &Path) -> Result<CompactReport> {
    compact_with(path, false)
}

/// The same; with `allow_partial` also what is damaged and the caller's own stays as it is, which
/// is an error otherwise.
pub fn compact_with(path: &Path, allow_partial: bool) -> Result<CompactReport> {
    let _operation = operation!(INFO, "compact", pool = %path.display());
    let path = &real_path(path)?;
    let file = PoolFile::read(path)?;
    check_devices(path, &file)?;
    let mount = filesystem::admit(path, true)?;
    let _pool_lock = PoolLock::take(path)?;
    let leaving = LeavingOut { done: "compacted", allow_partial };
    let mut report = CompactReport::default();
    for name in namespace::names(path)? {
        let shared = namespace::setup(path, &file, mount.clone(), &name);
        let mut setups = vec![(Scope::Shared, None, shared)];
        match namespace::private_setups(path, &file, &mount, &name) {
            Ok(private) => {
                let each = private.into_iter();
                setups.extend(each.map(|(user, one)| (Scope::Private, Some(user), one)));
            }
            Err(error) => {
                let left = leaving.leave(path, &name, Some(Scope::Private), None, error)?;
                report.left_out.push(left);
            }
        }
        for (scope, user, setup) in setups {
            match setup.and_then(|setup| compact_realm(&setup, &mut report)) {
                Ok(()) => {}
                Err(error) if error.kind() == Kind::Access => {
                    report.skipped.push(shown(&name, Some(scope), user));
                }
                // Who has it open is to close it: that is no damage.
                Err(error) if !is_damage(&error) => return Err(error),
                Err(error) => {
                    report.left_out.push(leaving.leave(path, &name, Some(scope), user, error)?);
                }
            }
        }
    }
    leaving.refuse_nothing(report.realms, &report.left_out)?;
    if report.realms == 0 && !report.skipped.is_empty() {
        fail!(
            Access,
            "nothing of the pool {} is {}'s to compact: ask the owners of {}",
            path.display(),
            user::shown(user::current()),
            report.skipped.join(", ")
        );
    }
    Ok(report)
}

/// The processes that have a realm open, or view what is in it.
fn users(setup: &Setup) -> Result<Vec<u32>> {
    let mut peers = Peers::default();
    peers.refresh(&setup.leases(), 0, 0)?;
    let mut pids: Vec<u32> = peers.alive().into_iter().map(|(_, owner)| owner.pid).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// The same without this process.
fn others(setup: &Setup) -> Result<Vec<u32>> {
    let ours = std::process::id();
    Ok(users(setup)?.into_iter().filter(|pid| *pid != ours).collect())
}

/// Refuses a realm that anybody has open; `doing` says what that would be in the way of.
pub(super) fn refuse_others(setup: &Setup, doing: &str) -> Result<()> {
    let pids = users(setup)?;
    let ours = std::process::id();
    if pids.contains(&ours) {
        fail!(
            Busy,
            "namespace {:?} of {} is open, or viewed, in this process itself ({ours}), among \
             {pids:?}: close the pool and let go of its views before {doing} it",
            setup.namespace,
            setup.pool.display()
        );
    }
    if !pids.is_empty() {
        fail!(
            Busy,
            "namespace {:?} of {} is open, or viewed, in process {pids:?}: close it there before \
             {doing} it",
            setup.namespace,
            setup.pool.display()
        );
    }
    Ok(())
}

fn compact_realm(setup: &Setup, report: &mut CompactReport) -> Result<()> {
    refuse_others(setup, "compacting")?;
    check_pages(setup)?;
    // Opened and closed: it is fit for use, and the reservations of the dead are taken back.
    let core = process::core_of(setup.clone(), Purpose::Use)?;
    let prepared = prepare(&core, setup);
    core.remove_session();
    let (compaction_lock, joined) = prepared?;
    refuse_others(setup, "compacting")?;
    let devices = PoolFile::read(&setup.pool)?.devices;
    let (before, after) = (setup.catalog(), new_catalog(&setup.dir));
    let made = remake(setup, &after, report).and_then(|kept| {
        step!("compact.filled");
        exchange(&before, &after)?;
        Ok(kept)
    });
    if let Ok(kept) = &made {
        step!("compact.exchanged");
        sync_folder(setup)?;
        clear(&after);
        // What cannot be removed now, the next process to open the realm removes.
        let _ = sweep_spans(setup, &devices, kept);
        step!("compact.swept");
    } else {
        clear(&after);
    }
    made?;
    drop(compaction_lock);
    report.realms += 1;
    report.joined += joined;
    Ok(())
}

/// What is done in the realm as it is, before its catalog is made anew: the compaction lock, and of
/// how many files fragments were joined.
fn prepare(core: &Arc<Core>, setup: &Setup) -> Result<(CompactionLock, u64)> {
    {
        let inside = core.enter()?;
        dead::take_back_dead(core, &inside)?;
        files::sweep_all_orphans(core, &inside)?;
        // So that the index names no key that nobody has; what fails is left for another time.
        let _ = engram_realm::index::maintain_all(core, &inside);
    }
    let compaction_lock = CompactionLock::take(setup)?;
    step!("compact.locked");
    let joined = if others(setup)?.is_empty() { files::put_in_order(core)? } else { 0 };
    // On a full filesystem the new catalog has room then.
    vacant::vacate_if_full(core, &core.enter()?);
    Ok((compaction_lock, joined))
}

/// Removes the catalog that has no place any more. What cannot be removed is no harm to the realm,
/// and the next process to open it tries again.
fn clear(catalog: &Path) {
    let _ = fs::remove_dir_all(catalog);
    step!("compact.cleared");
}

/// Makes the new catalog; the numbers of the span files that it names.
fn remake(setup: &Setup, at: &Path, report: &mut CompactReport) -> Result<HashSet<(u32, u32)>> {
    let options = setup.catalog_options();
    let old = Catalog::open(&setup.catalog(), &options)?;
    let txn = old.read()?;
    let spans = Span::all(&mut txn.rows())?;
    let mut found = values(&txn)?;
    check_places(&spans, &found)?;
    let kept = move_up(&spans, &mut found)?;
    make_beside(&setup.catalog(), at)?;
    Catalog::create(at, &options)?;
    let new = Catalog::open(at, &options)?;
    // The process that was moving members is gone: the next to open the namespace ends that, by
    // these rows.
    rewrite_rows(&txn, &found, &[], &new)?;
    step!("compact.rows");
    rewrite_space(&kept, &found, &moved_vacant(&txn, &spans, &kept)?, &new)?;
    new.growth().set_boot_id(old.growth().boot_id());
    finish_catalog(&new, setup)?;
    let bytes = |spans: &[Span]| spans.iter().map(|span| span.range.len).sum::<u64>();
    report.catalog[0] += old.growth().allocated_pages() * PAGE;
    report.catalog[1] += new.growth().allocated_pages() * PAGE;
    report.arena[0] += bytes(&spans);
    report.arena[1] += bytes(&kept);
    drop(txn);
    drop((old, new));
    like(&setup.catalog(), at)?;
    Ok(kept.iter().map(|span| (span.device, span.file)).collect())
}

/// The spans that hold something, one behind the other; values are told where they are then.
fn move_up(spans: &[Span], values: &mut [MovedValue]) -> Result<Vec<Span>> {
    values.sort_unstable_by_key(|value| value.from.offset);
    let mut rest = values.iter_mut().peekable();
    let mut kept: Vec<Span> = Vec::new();
    let mut reached = 0;
    for span in spans {
        let begins = |value: &MovedValue| value.from.offset < span.range.end();
        let holds = reached > span.range.offset || rest.peek().is_some_and(|value| begins(value));
        if !holds {
            continue;
        }
        let offset = kept.last().map_or(0, |last| last.range.end());
        while let Some(value) = rest.next_if(|value| begins(value)) {
            value.to = value.from.offset - span.range.offset + offset;
            reached = reached.max(value.from.end());
        }
        let range = Extent { offset, ..span.range };
        kept.push(Span { number: kept.len() as u32, range, ..*span });
    }
    if rest.next().is_some() {
        fail!(Corrupt, "a value lies behind the last span: run verify");
    }
    Ok(kept)
}

/// What is vacant in spans that are kept, where they are then. (A span is kept under its file.)
fn moved_vacant(txn: &ReadTxn<'_>, spans: &[Span], kept: &[Span]) -> Result<Vec<Extent>> {
    let mut moved = Vec::new();
    for vacant in vacant_rows(txn)? {
        let of = spans.iter().find(|span| vacant.offset < span.range.end());
        let file = |span: &Span| (span.device, span.file, span.place);
        let to = of.and_then(|of| Some((of, kept.iter().find(|one| file(one) == file(of))?)));
        if let Some((of, to)) = to {
            let offset = vacant.offset - of.range.offset + to.range.offset;
            moved.push(Extent { offset, ..vacant });
        }
    }
    Ok(moved)
}

/// Makes a folder like another, for what takes its place.
fn make_beside(old: &Path, new: &Path) -> Result<()> {
    let refused = |e| Error::os(format!("making {}", new.display()), &e);
    let mode = fs::metadata(old).map_err(refused)?.permissions().mode() & 0o7777;
    folder::make_folder(new, mode)
}

/// Gives a new catalog to the owner and group of the old one, as far as this user may.
fn like(old: &Path, new: &Path) -> Result<()> {
    let refused = |e| Error::os(format!("giving {} to its owner", new.display()), &e);
    let there = fs::metadata(old).map_err(refused)?;
    let folder = folder::own(new)?;
    let here = folder.metadata().map_err(refused)?;
    if (there.uid(), there.gid()) == (here.uid(), here.gid()) {
        return Ok(());
    }
    for name in ["data.mdb", "lock.mdb", "growth"] {
        give(&folder::own(&new.join(name))?, &there).map_err(refused)?;
    }
    give(&folder, &there).map_err(refused)?;
    folder.set_permissions(there.permissions()).map_err(refused)
}

fn give(made: &File, there: &Metadata) -> std::io::Result<()> {
    let owner = (made.metadata()?.uid() != there.uid()).then(|| there.uid());
    match fchown(made, owner, Some(there.gid())) {
        // A member of the group that is not the owner: the group may do all.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            fchown(made, None, Some(there.gid()))
        }
        given => given,
    }
}

/// Syncs the folder in which the catalogs have changed places. If that fails, the realm is
/// compacted, and after a loss of power it may be the old one: both are sound, and both catalogs
/// stay.
fn sync_folder(setup: &Setup) -> Result<()> {
    if !setup.mount.durable {
        return Ok(());
    }
    let synced = File::open(&setup.dir).and_then(|folder| folder.sync_all());
    synced.map_err(|e| {
        let at = setup.dir.display();
        let message = format!(
            "{at} is compacted, and syncing it failed ({e}): a loss of power may undo the \
             compaction, and loses nothing of what is stored"
        );
        Error::new(Kind::CommitUncertain, message)
    })
}

#[cfg(test)]
mod tests {
    use super::{Extent, MovedValue, Span, move_up};
    use engram_base::error::Kind;
    use engram_catalog::Table;

    fn span(number: u32, offset: u64, len: u64) -> Span {
        let range = Extent { offset, len };
        Span { number, device: number % 2, range, file: number + 7, place: 0 }
    }

    fn value(offset: u64, len: u64) -> MovedValue {
        let from = Extent { offset, len };
        let (table, key) = (Table::Objects, vec![1]);
        MovedValue { table, key, from, nbytes: len, word: 0, to: 0, head: None }
    }

    #[test]
    fn spans_that_hold_something_move_up_with_their_values() {
        let spans = [span(0, 0, 100), span(1, 100, 50), span(2, 150, 100), span(3, 250, 100)];
        // The first lies across two spans; nothing lies in the last but one.
        let mut values = [value(300, 50), value(90, 30), value(10, 20)];
        let kept = move_up(&spans, &mut values).unwrap();
        let files: Vec<u32> = kept.iter().map(|span| span.file).collect();
        assert_eq!(files, [7, 8, 10], "the files stay as they are, but for the empty span's");
        let ranges: Vec<Extent> = kept.iter().map(|span| span.range).collect();
        let range = |offset, len| Extent { offset, len };
        assert_eq!(ranges, [range(0, 100), range(100, 50), range(150, 100)]);
        assert!(kept.iter().zip(0..).all(|(span, number)| span.number == number));
        let to: Vec<u64> = values.iter().map(|value| value.to).collect();
        assert_eq!(to, [10, 90, 200], "in the order in which they lie");
        assert!(move_up(&spans, &mut []).unwrap().is_empty());
    }

    #[test]
    fn a_value_behind_the_last_span_is_damage() {
        let refused = move_up(&[span(0, 0, 100)], &mut [value(100, 10)]).unwrap_err();
        assert_eq!(refused.kind(), Kind::Corrupt);
    }
}
