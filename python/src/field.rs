//! A field of an active object: the array of a group's member, found and mapped in one crossing.

use engram::{Class, Error, Gid, Kind, Layout, Member};
use pyo3::prelude::*;

use crate::array;
use crate::dtype;
use crate::error::Result;
use crate::group::{Found, facts};
use crate::namespace::Namespace;
use crate::value::Name;

/// How often it is found again, where somebody replaces it between the two looks.
const AGAIN_MAX: u32 = 100;

/// What a field's array is, and the array.
type Field<'py> = (Found<'py>, Bound<'py, PyAny>);

/// The array of this name in a group: what its handle is made of, and a view of it as `view` gives.
///
/// None where it takes more than a look: there is no such array, nothing is in it, it is of strings
/// or in chunks; or it is to be written, and the group's attribute `sharing` says that others may
/// look at what it has.
#[pyfunction]
pub fn array_field<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    group: Gid,
    name: Name<'_>,
    sharing: &str,
    write: bool,
) -> Result<Option<Field<'py>>> {
    let engine = namespace.engine();
    if write && engine.attr(Member::Group(group), sharing)?.is_some() {
        return Ok(None);
    }
    for _ in 0..AGAIN_MAX {
        let Some(engram::Found::Object(info)) = engine.find(group, name.0)? else {
            return Ok(None);
        };
        let plain = info.class == Class::Array && info.layout == Layout::Contiguous;
        if !plain || info.nbytes == 0 || info.dtype.is_text() {
            return Ok(None);
        }
        let payload = if write {
            py.detach(|| engine.view(info.oid, true))
        } else {
            engine.view(info.oid, false)
        };
        // Replaced since it was found: it is found again.
        if payload.as_ref().is_err_and(|error| error.kind() == Kind::NotFound) {
            continue;
        }
        let (payload, descr, shape, oid) =
            (payload?, dtype::decode(py, &info.dtype)?, info.shape.clone(), info.oid);
        let found = facts(py, engram::Found::Object(info))?;
        return Ok(Some((found, array::over(py, (namespace, oid), payload, &descr, &shape)?)));
    }
    Err(Error::new(Kind::Busy, format!("{:?} is replaced again and again", name.0)).into())
}
