//! A realm's own files, before LMDB and the lease mechanism are trusted with them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Report, pages};
use crate::catalog::Headroom;
use crate::error::{Error, Kind, Result};
use crate::namespace;
use crate::realm::{Core, Inside, Setup};

/// How often a catalog is walked that changes meanwhile.
const TRIES: u32 = 4;

/// What is known of a catalog's pages that LMDB may be asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// They are sound.
    Sound,
    /// Others commit faster than they can be walked.
    Moving,
}

/// Whether an error of opening a realm is a finding of `verify`.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupt | Kind::Format | Kind::Os | Kind::NotFound)
}

/// What the namespace's file says, against what its folders are.
pub(super) fn files(pool: &Path, setup: &Setup, report: &mut Report) {
    let name = &setup.namespace;
    let says = match namespace::info(pool, name) {
        Ok(info) => info.mode,
        Err(error) => return report.problems.push(format!("namespace {name:?}: {error}")),
    };
    let Ok(realm) = fs::metadata(&setup.dir) else { return };
    let group_writes = realm.permissions().mode() & 0o020 != 0;
    if (says & 0o020 != 0) != group_writes {
        report.problems.push(format!(
            "namespace {name:?}: its file says mode {says:#o}, its realm is {:#o}",
            realm.permissions().mode() & 0o7777
        ));
    }
}

/// Walks the pages of a realm that is not open. `None`: they are damaged, and that is told.
pub(super) fn pages(
    setup: &Setup,
    report: &mut Report,
    pulse: &mut dyn FnMut(),
) -> Result<Option<Pages>> {
    let file = setup.catalog().join("data.mdb");
    for _ in 0..TRIES {
        let pages = pages::Pages::open(&file)?;
        let checked = pages.walk(None, &mut |_, _, _| {}, pulse);
        if checked.problems.is_empty() {
            return Ok(Some(Pages::Sound));
        }
        if pages.newest() == Some(checked.transaction) {
            tell(&setup.namespace, checked.problems, report);
            return Ok(None);
        }
    }
    Ok(Some(Pages::Moving))
}

/// Walks the pages of an open realm, in a snapshot that a read transaction keeps.
pub(super) fn pages_kept(core: &Core, report: &mut Report, pulse: &mut dyn FnMut()) -> Result<()> {
    let inside = core.enter()?;
    let file = core.setup.catalog().join("data.mdb");
    // Nobody commits while the meta pages are read. (In a poisoned realm nobody does anyway.)
    let writer = inside.catalog().write(Headroom::Relief).ok();
    let txn = inside.read()?;
    let pages = pages::Pages::open(&file)?;
    drop(writer);
    let checked = pages.walk(Some(txn.id()), &mut |_, _, _| {}, pulse);
    tell(&core.setup.namespace, checked.problems, report);
    Ok(())
}

/// What the realm's growth page says, against its catalog.
pub(super) fn growth(inside: &Inside<'_>) -> Result<Option<String>> {
    let stats = inside.catalog().stats()?;
    let (last, mark) = (stats.last_page, stats.allocated_pages);
    Ok((mark <= last).then(|| {
        format!("growth says that {mark} pages of the catalog have blocks; its last is {last}")
    }))
}

fn tell(namespace: &str, problems: Vec<String>, report: &mut Report) {
    let told = problems.into_iter().map(|what| format!("namespace {namespace:?}: {what}"));
    report.problems.extend(told);
    report.problems.truncate(super::PROBLEMS_MAX);
}
