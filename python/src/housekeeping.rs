//! Housekeeping: who holds what, copies of a pool, what it can give back, and newer formats.

use std::path::PathBuf;

use engram::{BackupOptions, LeftOut, MaintenanceFailure};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Result, of_pool};
use crate::namespace::Namespace;
use crate::pool::Pool;
use crate::value::Truth;

/// A damaged part: its namespace, scope, user, and what is wrong with it.
type Damaged = (String, Option<&'static str>, Option<u32>, String);

/// What a backup has copied: where, realms, objects, bytes, what this user may not read, what is
/// damaged.
type Copied = (PathBuf, u64, u64, u64, Vec<String>, Vec<Damaged>);

/// What compacting did: realms; bytes of catalogs and arenas, before and after; files that are in
/// one piece now; what this user may not open, what is damaged.
type Compacted = (u64, [u64; 2], [u64; 2], u64, Vec<String>, Vec<Damaged>);

/// What an upgrade has done: where the pool is, its format before and now, whether one that was
/// interrupted has been ended; realms, objects, bytes, what was left out.
type Upgraded = (PathBuf, u32, u32, bool, u64, u64, u64, Vec<String>);

/// Who holds what in a namespace, as plain values.
#[pyfunction]
pub fn holders<'py>(py: Python<'py>, namespace: &Namespace) -> Result<Bound<'py, PyDict>> {
    let engine = namespace.engine();
    let holders = py.detach(|| engine.holders())?;
    let told = PyDict::new(py);
    told.set_item("commits", holders.commits)?;
    let mut leases = Vec::new();
    for lease in &holders.leases {
        let one = PyDict::new(py);
        one.set_item("lease", format!("{:016x}", lease.id))?;
        one.set_item("pid", lease.pid)?;
        one.set_item("user", lease.user)?;
        one.set_item("alive", lease.alive)?;
        one.set_item("own", lease.own)?;
        one.set_item("since", lease.since)?;
        one.set_item("behind", lease.behind)?;
        one.set_item("views", lease.pins)?;
        one.set_item("reserved", lease.reserved)?;
        one.set_item("held", lease.held)?;
        leases.push(one);
    }
    told.set_item("leases", leases)?;
    let mut readers = Vec::new();
    for reader in &holders.readers {
        let one = PyDict::new(py);
        one.set_item("pid", reader.pid)?;
        one.set_item("slots", reader.slots)?;
        one.set_item("behind", reader.behind)?;
        readers.push(one);
    }
    told.set_item("readers", readers)?;
    let oldest = PyDict::new(py);
    if let Some((pid, behind)) = holders.oldest() {
        oldest.set_item("pid", pid)?;
        oldest.set_item("behind", behind)?;
    }
    told.set_item("oldest", if oldest.is_empty() { None } else { Some(oldest) })?;
    let catalog = PyDict::new(py);
    catalog.set_item("allocated", holders.catalog.allocated)?;
    catalog.set_item("used", holders.catalog.used)?;
    catalog.set_item("free", holders.catalog.free)?;
    catalog.set_item("held", holders.catalog.held)?;
    told.set_item("catalog", catalog)?;
    told.set_item("reserved", holders.reserved)?;
    told.set_item("held", holders.held)?;
    told.set_item("reclaimable", holders.reclaimable)?;
    told.set_item("maintenance", failure(py, holders.maintenance.as_ref())?)?;
    Ok(told)
}

/// How maintenance failed last, if it was not made good since.
fn failure<'py>(
    py: Python<'py>,
    failure: Option<&MaintenanceFailure>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(failure) = failure else { return Ok(None) };
    let told = PyDict::new(py);
    told.set_item("task", failure.task.words())?;
    told.set_item("error", failure.kind.class_name())?;
    told.set_item("pid", failure.pid)?;
    told.set_item("at", failure.at)?;
    told.set_item("message", failure.message.as_deref())?;
    Ok(Some(told))
}

/// Copies a pool to a place where there is nothing.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "paths from Python come so")]
pub fn backup(
    py: Python<'_>,
    pool: &Pool,
    dest: PathBuf,
    force: Truth,
    allow_partial: Truth,
) -> Result<Copied> {
    let engine = pool.engine();
    let options = BackupOptions { force: force.0, allow_partial: allow_partial.0 };
    let report = py.detach(|| engram::backup_with(engine, &dest, options))?;
    let left_out = report.left_out.into_iter().map(damaged).collect();
    Ok((report.path, report.realms, report.objects, report.bytes, report.skipped, left_out))
}

fn damaged(left: LeftOut) -> Damaged {
    (left.namespace, left.scope.map(engram::Scope::as_str), left.user, left.why)
}

/// Gives back what a pool that nobody has open does not need.
#[pyfunction]
pub fn compact(py: Python<'_>, path: PathBuf, allow_partial: Truth) -> Result<Compacted> {
    let report = py
        .detach(move || engram::compact_with(&path, allow_partial.0))
        .map_err(|e| of_pool(py, e))?;
    let left_out = report.left_out.into_iter().map(damaged).collect();
    let engram::CompactReport { realms, catalog, arena, joined, skipped, .. } = report;
    Ok((realms, catalog, arena, joined, skipped, left_out))
}

/// Makes a pool of an earlier format one of this format, in place or as a copy.
#[pyfunction]
pub fn upgrade(
    py: Python<'_>,
    path: PathBuf,
    to: Option<PathBuf>,
    force: Truth,
) -> Result<Upgraded> {
    let upgraded = py.detach(move || engram::upgrade(&path, to.as_deref(), force.0));
    let report = upgraded.map_err(|e| of_pool(py, e))?;
    Ok((
        report.path,
        report.from,
        engram::FORMAT,
        report.resumed,
        report.realms,
        report.objects,
        report.bytes,
        report.skipped,
    ))
}
