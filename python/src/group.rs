//! Groups: finding, listing, creating, deleting and moving members.

use engram::{Class, Gid, Layout, Member};
use numpy::PyArrayDescr;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::dtype;
use crate::error::Result;
use crate::namespace::{Namespace, scope_of};
use crate::value::{self, Name};

/// What a handle is made of: 0 and a GID for a group; 1, an OID, dtype and shape for an array; 2,
/// an OID, uint8 and the bytes' number as a shape for a blob; 3, and as for an array, for a chunked
/// one.
pub type Found<'py> = (u8, u64, Option<Bound<'py, PyArrayDescr>>, Option<Bound<'py, PyTuple>>);

/// A member's name with it.
type Named<'py> = (String, Found<'py>);

/// What a handle is made of.
pub fn facts(py: Python<'_>, found: engram::Found) -> Result<Found<'_>> {
    let info = match found {
        engram::Found::Group(gid) => return Ok((0, gid, None, None)),
        engram::Found::Object(info) => info,
    };
    let descr = dtype::decode(py, &info.dtype)?;
    if info.class == Class::Blob {
        return Ok((2, info.oid, Some(descr), Some(PyTuple::new(py, [info.nbytes])?)));
    }
    Ok((kind_of(&info.layout), info.oid, Some(descr), Some(PyTuple::new(py, &info.shape)?)))
}

/// The first part of what an array's handle is made of.
pub fn kind_of(layout: &Layout) -> u8 {
    if *layout == Layout::Contiguous { 1 } else { 3 }
}

/// The member at `path` under a group, or None; at "/" the root itself.
#[pyfunction]
pub fn find<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    parent: Gid,
    path: Name<'_>,
) -> Result<Option<Found<'py>>> {
    let engine = namespace.engine();
    if path.0 == "/" {
        return facts(py, engram::Found::Group(engine.root())).map(Some);
    }
    engine.find(parent, path.0)?.map(|found| facts(py, found)).transpose()
}

/// Whether there is a member at `path` under a group.
#[pyfunction]
pub fn contains(namespace: &Namespace, parent: Gid, path: Name<'_>) -> Result<bool> {
    Ok(path.0 == "/" || namespace.engine().lookup(parent, path.0)?.is_some())
}

/// Up to `limit` names of members after `after`, in byte order.
#[pyfunction]
pub fn names(
    py: Python<'_>,
    namespace: &Namespace,
    group: Gid,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>> {
    let engine = namespace.engine();
    let listed = py.detach(|| engine.list(group, after, limit))?;
    Ok(listed.into_iter().map(|(name, _)| name).collect())
}

/// Up to `limit` members after `after`, in byte order of their names, as of one commit, and the
/// last name looked at (None at the end).
#[pyfunction]
pub fn members<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    group: Gid,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<Named<'py>>, Option<String>)> {
    let engine = namespace.engine();
    let listed = py.detach(|| engine.list_found(group, after, limit))?;
    let last = (listed.len() == limit).then(|| listed.last().map(|(n, _)| n.clone())).flatten();
    let named = listed.into_iter().map(|(name, found)| Ok((name, facts(py, found)?)));
    Ok((named.collect::<Result<Vec<_>>>()?, last))
}

/// How many members a group has.
#[pyfunction]
pub fn count(namespace: &Namespace, group: Gid) -> Result<u64> {
    Ok(namespace.engine().count(group)?)
}

/// Creates a group, and the groups above it; the GID.
#[pyfunction]
#[pyo3(signature = (namespace, parent, path, attrs, origin, exist_ok, scope = None))]
#[expect(clippy::too_many_arguments, reason = "the arguments of the Python call")]
pub fn create_group(
    py: Python<'_>,
    namespace: &Namespace,
    parent: Gid,
    path: Name<'_>,
    attrs: Option<&Bound<'_, PyAny>>,
    origin: &[u8],
    exist_ok: bool,
    scope: Option<&Bound<'_, PyAny>>,
) -> Result<Gid> {
    let scope = scope_of(scope)?;
    let attrs = value::attributes_of(attrs)?;
    let engine = namespace.engine();
    Ok(py.detach(|| engine.create_group(parent, path.0, &attrs, origin, exist_ok, scope))?)
}

/// Replaces what an import keeps beside a group.
#[pyfunction]
pub fn set_origin(py: Python<'_>, namespace: &Namespace, group: Gid, origin: &[u8]) -> Result<()> {
    let origin = origin.to_vec();
    let engine = namespace.engine();
    Ok(py.detach(|| engine.set_origin(Member::Group(group), &origin))?)
}

/// All that is known of a group.
#[pyclass(frozen, get_all, module = "engram._engram")]
pub struct GroupInfo {
    /// The group that it is in; its own GID at the root.
    parent: Gid,
    /// Its name there.
    name: String,
    /// When it was made: nanoseconds since 1970, UTC.
    created: i64,
    /// When it was last changed: nanoseconds since 1970, UTC.
    modified: i64,
    /// The uid of its maker.
    owner: u32,
    /// Who sees it: `"private"`, `"shared"` or `"published"`.
    scope: &'static str,
    /// What an import kept beside it: JSON, or nothing.
    origin: Vec<u8>,
}

/// All that is known of a group.
#[pyfunction]
pub fn group_info(namespace: &Namespace, group: Gid) -> Result<GroupInfo> {
    let info = namespace.engine().group(group)?;
    Ok(GroupInfo {
        parent: info.parent,
        name: info.name,
        created: info.created,
        modified: info.modified,
        owner: info.owner,
        scope: info.scope.as_str(),
        origin: info.origin,
    })
}

/// The path of a group or an object from its namespace's root.
#[pyfunction]
pub fn path_of(namespace: &Namespace, is_group: bool, member: u64) -> Result<String> {
    Ok(namespace.engine().path_of(of(is_group, member))?)
}

/// Deletes a member; a group with all that is in it.
#[pyfunction]
pub fn delete(py: Python<'_>, namespace: &Namespace, parent: Gid, path: Name<'_>) -> Result<()> {
    let engine = namespace.engine();
    Ok(py.detach(|| engine.delete(parent, path.0))?)
}

/// Refuses where one of these members cannot be deleted; whether one batch can delete all others.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "a list from Python comes as one")]
pub fn check_deletable(
    py: Python<'_>,
    namespace: &Namespace,
    parent: Gid,
    names: Vec<String>,
) -> Result<bool> {
    let engine = namespace.engine();
    Ok(py.detach(|| engine.check_deletable(parent, &names))?)
}

/// Makes a group or an object read-only, or takes that back.
#[pyfunction]
pub fn set_read_only(
    py: Python<'_>,
    namespace: &Namespace,
    is_group: bool,
    member: u64,
    on: bool,
) -> Result<()> {
    let engine = namespace.engine();
    Ok(py.detach(|| engine.set_read_only(of(is_group, member), on))?)
}

/// Whether changes of a group or an object are refused.
#[pyfunction]
pub fn is_read_only(namespace: &Namespace, is_group: bool, member: u64) -> Result<bool> {
    Ok(namespace.engine().is_read_only(of(is_group, member))?)
}

/// Moves a member to another path under the same group.
#[pyfunction]
pub fn rename(
    py: Python<'_>,
    namespace: &Namespace,
    parent: Gid,
    old: Name<'_>,
    new: Name<'_>,
) -> Result<()> {
    let engine = namespace.engine();
    Ok(py.detach(|| engine.rename(parent, old.0, parent, new.0))?)
}

/// The member that a handle stands for.
pub fn of(is_group: bool, id: u64) -> Member {
    if is_group { Member::Group(id) } else { Member::Object(id) }
}
