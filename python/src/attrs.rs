//! Attributes of groups and objects.

use pyo3::prelude::*;

use crate::error::Result;
use crate::group::of;
use crate::namespace::Namespace;
use crate::value::{self, Name};

/// An attribute's value, or None (no attribute's value is None).
#[pyfunction]
pub fn attr_get<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    is_group: bool,
    member: u64,
    name: Name<'_>,
) -> Result<Option<Bound<'py, PyAny>>> {
    match namespace.engine().attr(of(is_group, member), name.0)? {
        Some(found) => value::from_value(py, &found).map(Some),
        None => Ok(None),
    }
}

/// Sets every attribute of a mapping, in one commit; if those of `was` are not what it says, none,
/// which is `BusyError`.
#[pyfunction]
#[pyo3(signature = (namespace, is_group, member, attrs, was = None))]
pub fn attr_set(
    py: Python<'_>,
    namespace: &Namespace,
    is_group: bool,
    member: u64,
    attrs: &Bound<'_, PyAny>,
    was: Option<&Bound<'_, PyAny>>,
) -> Result<()> {
    let (values, was) = (value::attributes_of(Some(attrs))?, value::attributes_of(was)?);
    let engine = namespace.engine();
    Ok(py.detach(|| engine.set_attrs_if(of(is_group, member), &was, &values))?)
}

/// Deletes an attribute.
#[pyfunction]
pub fn attr_delete(
    py: Python<'_>,
    namespace: &Namespace,
    is_group: bool,
    member: u64,
    name: Name<'_>,
) -> Result<()> {
    let engine = namespace.engine();
    Ok(py.detach(|| engine.delete_attr(of(is_group, member), name.0))?)
}

/// The names of all attributes, in byte order.
#[pyfunction]
pub fn attr_names(namespace: &Namespace, is_group: bool, member: u64) -> Result<Vec<String>> {
    let all = namespace.engine().attrs(of(is_group, member))?;
    Ok(all.into_iter().map(|(name, _)| name).collect())
}

/// All attributes, as they were at one moment, in byte order of their names.
#[pyfunction]
pub fn attr_items<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    is_group: bool,
    member: u64,
) -> Result<Vec<(String, Bound<'py, PyAny>)>> {
    let all = namespace.engine().attrs(of(is_group, member))?;
    all.into_iter().map(|(name, found)| Ok((name, value::from_value(py, &found)?))).collect()
}
