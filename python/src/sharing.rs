//! Sharing: members move from one scope of a namespace to another.

use engram::{Gid, Moved, Scope};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::error::{Result, argument};
use crate::namespace::Namespace;
use crate::value::{Name, Truth};

/// How many objects and groups have moved, and how many bytes.
type Counts = (u64, u64, u64);

fn scope(name: &str) -> Result<Scope> {
    Scope::parse(name)
        .ok_or_else(|| argument(format!("{name:?} is no scope: private, shared or published")))
}

fn scopes(names: &[String]) -> Result<Vec<Scope>> {
    names.iter().map(|name| scope(name)).collect()
}

fn counts(moved: Moved) -> Counts {
    (moved.objects, moved.groups, moved.bytes)
}

/// Moves a member of a group from the realms of some scopes to that of another.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "a list from Python comes as one")]
pub fn transfer(
    py: Python<'_>,
    namespace: &Namespace,
    group: Gid,
    path: Name<'_>,
    sources: Vec<String>,
    target: &str,
) -> Result<Counts> {
    let (sources, target) = (scopes(&sources)?, scope(target)?);
    let namespace = namespace.engine();
    Ok(counts(py.detach(|| namespace.transfer(group, path.0, &sources, target))?))
}

/// Publishes a member of a group; where nobody but the owner would read it, only with `closed`.
#[pyfunction]
pub fn publish(
    py: Python<'_>,
    namespace: &Namespace,
    group: Gid,
    path: Name<'_>,
    closed: Truth,
) -> Result<Counts> {
    let namespace = namespace.engine();
    Ok(counts(py.detach(|| namespace.publish(group, path.0, closed.0))?))
}

/// Publishes objects, as [`publish`].
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arrays from Python come so")]
pub fn publish_all(
    py: Python<'_>,
    namespace: &Namespace,
    oids: PyReadonlyArray1<'_, u64>,
    closed: Truth,
) -> Result<Counts> {
    let oids: Vec<u64> = oids.as_array().iter().copied().collect();
    let namespace = namespace.engine();
    Ok(counts(py.detach(|| namespace.publish_all(&oids, closed.0))?))
}

/// Moves objects from the realms of some scopes to that of another.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arrays and lists from Python come so")]
pub fn transfer_all(
    py: Python<'_>,
    namespace: &Namespace,
    oids: PyReadonlyArray1<'_, u64>,
    sources: Vec<String>,
    target: &str,
) -> Result<Counts> {
    let (sources, target) = (scopes(&sources)?, scope(target)?);
    let oids: Vec<u64> = oids.as_array().iter().copied().collect();
    let namespace = namespace.engine();
    Ok(counts(py.detach(|| namespace.transfer_all(&oids, &sources, target))?))
}
