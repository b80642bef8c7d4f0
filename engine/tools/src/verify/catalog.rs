//! A realm's own files, before LMDB and the lease mechanism are trusted with them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::pages;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_catalog::Headroom;
use engram_pool::namespace;
use engram_realm::{Core, Inside, Setup};

/// How often a catalog is walked that changes meanwhile.
const TRIES: u32 = 4;

/// What is known of a catalog's pages.
pub(super) enum PagesState {
    /// LMDB may be asked about them.
    Sound,
    /// Others commit faster than they can be walked.
    Moving,
    /// They are damaged, in these ways.
    Damaged(Vec<String>),
}

/// Whether an error of opening a realm is a finding of `verify`.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupt | Kind::Format | Kind::Os | Kind::NotFound)
}

/// What the namespace's file says, if that is not what the shared realm is.
pub(super) fn file_problem(pool: &Path, setup: &Setup) -> Option<String> {
    let name = &setup.namespace;
    let says = match namespace::info(pool, name) {
        Ok(info) => info.mode,
        Err(error) => return Some(format!("namespace {name:?}: {error}")),
    };
    if namespace::is_half_changed(pool, name) {
        return None; // the owner's next opening does the rest
    }
    let mode = fs::metadata(&setup.dir).ok()?.permissions().mode();
    (says & 0o020 != mode & 0o020).then(|| {
        format!("namespace {name:?}: its file says mode {says:#o}, its realm is {mode:#o}")
    })
}

/// Walks the pages of a realm that is not open.
pub(super) fn pages(setup: &Setup, pulse: &mut dyn FnMut()) -> Result<PagesState> {
    if !setup.immutable {
        // Opening these files says what is wrong with them.
        let _ = engram_catalog::roll_back_closed(&setup.catalog(), &setup.catalog_options());
    }
    let file = setup.catalog().join("data.mdb");
    for _ in 0..TRIES {
        let pages = pages::Pages::open(&file)?;
        let checked = pages.walk(None, &mut |_, _, _| {}, pulse);
        if checked.problems.is_empty() {
            return Ok(PagesState::Sound);
        }
        if pages.newest() == Some(checked.transaction) {
            return Ok(PagesState::Damaged(checked.problems));
        }
    }
    Ok(PagesState::Moving)
}

/// Refuses a realm of which a page is damaged, before LMDB is asked about it.
pub(crate) fn check(setup: &Setup) -> Result<()> {
    match pages(setup, &mut || ())? {
        PagesState::Damaged(problems) => {
            let more = match problems.len() {
                0 | 1 => String::new(),
                more => format!(" (and {} more)", more - 1),
            };
            let first = problems.first().map_or("a page is damaged", String::as_str);
            fail!(Corrupt, "{first}{more}")
        }
        PagesState::Sound | PagesState::Moving => Ok(()),
    }
}

/// Walks the pages of an open realm, in a snapshot that a read transaction keeps.
pub(super) fn pages_kept(core: &Core, pulse: &mut dyn FnMut()) -> Result<Vec<String>> {
    let inside = core.enter()?;
    let file = core.setup.catalog().join("data.mdb");
    // Nobody commits while the meta pages are read. (In a poisoned realm nobody does anyway.)
    let writer = match inside.catalog().write(Headroom::Relief) {
        Err(error) if error.kind() == Kind::Busy => return Err(error),
        begun => begun.ok(),
    };
    let txn = inside.read()?;
    let pages = pages::Pages::open(&file)?;
    drop(writer);
    Ok(pages.walk(Some(txn.id()), &mut |_, _, _| {}, pulse).problems)
}

/// What the realm's growth page says, against its catalog.
pub(super) fn growth(inside: &Inside<'_>) -> Result<Option<String>> {
    let stats = inside.catalog().stats()?;
    let (last, mark) = (stats.last_page, stats.allocated_pages);
    Ok((mark <= last).then(|| {
        format!("growth says that {mark} pages of the catalog have blocks; its last is {last}")
    }))
}
