//! Attributes of many objects, by key: what tables are made of.
//!
//! A column comes in parts, one for each dtype that its values have, so that a table of a million
//! numbers needs no million Python objects: scalars of fixed width as an array, all else as a list
//! of values as `attrs` gives them. Each part says which rows its values belong to.

use std::collections::BTreeMap;

use engram::dtype::DType;
use engram::query::ast::Builtin;
use engram::query::projection::{PartValues, WantedField};
use engram::{IndexMode, Member, Value};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::error::{Result, argument};
use crate::namespace::Namespace;
use crate::query::each;
use crate::{dtype, value};

/// The values of one dtype.
#[derive(Default)]
struct Part<'py> {
    rows: Vec<u32>,
    bytes: Vec<u8>,
    objects: Vec<Bound<'py, PyAny>>,
}

/// A key's parts; under `None` what has no fixed width.
type Parts<'py> = Vec<(Option<DType>, Part<'py>)>;

/// Rows, and their values: an array or a list.
type Told<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyAny>);

/// The same, without rows where they are all rows.
type Whose<'py> = (Option<Bound<'py, PyArray1<u32>>>, Bound<'py, PyAny>);

/// The attributes of objects (those of `keys`, if given), by key in byte order; and the rows of
/// objects that are gone.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as PyO3 hands it over
#[allow(clippy::type_complexity)] // as the stubs tell it
pub fn columns<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    oids: PyReadonlyArray1<'_, u64>,
    keys: Option<Vec<String>>,
) -> Result<(Vec<(String, Vec<Told<'py>>)>, Vec<usize>)> {
    let mut found: BTreeMap<String, Parts<'py>> = BTreeMap::new();
    let mut gone = Vec::new();
    let all = each(&oids, |oid| namespace.engine().attrs(Member::Object(oid)))?;
    for (row, attrs) in all.into_iter().enumerate() {
        let Some(attrs) = attrs else {
            gone.push(row);
            continue;
        };
        for (key, value) in attrs {
            if keys.as_ref().is_none_or(|keys| keys.contains(&key)) {
                push(py, found.entry(key).or_default(), row as u32, &value)?;
            }
        }
    }
    let told = found.into_iter().map(|(key, parts)| {
        let parts = parts.into_iter().map(|(dtype, part)| part.told(py, dtype.as_ref()));
        Ok((key, parts.collect::<Result<Vec<_>>>()?))
    });
    Ok((told.collect::<Result<Vec<_>>>()?, gone))
}

fn push<'py>(py: Python<'py>, parts: &mut Parts<'py>, row: u32, value: &Value) -> Result<()> {
    let fixed = matches!(value.dtype, DType::Scalar { kind, .. } if b"biufcmM".contains(&kind));
    let fixed = fixed && value.shape.is_empty();
    let same = |part: &&mut (Option<DType>, Part<'py>)| match &part.0 {
        Some(dtype) => fixed && *dtype == value.dtype,
        None => !fixed,
    };
    let part = if let Some((_, part)) = parts.iter_mut().find(same) {
        part
    } else {
        parts.push((fixed.then(|| value.dtype.clone()), Part::default()));
        &mut parts.last_mut().expect("one was pushed").1
    };
    part.rows.push(row);
    if fixed {
        part.bytes.extend_from_slice(&value.data);
    } else {
        part.objects.push(value::from_value(py, value)?);
    }
    Ok(())
}

impl<'py> Part<'py> {
    fn told(self, py: Python<'py>, dtype: Option<&DType>) -> Result<Told<'py>> {
        let count = self.rows.len() as u64;
        let rows = PyArray1::from_vec(py, self.rows);
        let values = match dtype {
            Some(dtype) => {
                value::array_of_bytes(py, &dtype::decode(py, dtype)?, &[count], &self.bytes)?
            }
            None => PyList::new(py, self.objects)?.into_any(),
        };
        Ok((rows, values))
    }
}

/// What objects, given ascending by their ids, have of some fields: 0 and an attribute's key, 2 and
/// a built-in field (the owner by uid), 3 the number of the group that holds it. By field, in parts
/// as those of `columns`; rows are None where they are all rows, in order. And the rows of objects
/// that are gone.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as PyO3 hands it over
#[allow(clippy::type_complexity)] // as the stubs tell it
pub fn project<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    oids: PyReadonlyArray1<'_, u64>,
    fields: Vec<(u8, String)>,
) -> Result<(Vec<Vec<Whose<'py>>>, Vec<u32>)> {
    let builtin = |name: &str| Builtin::ALL.iter().find(|(_, known)| *known == name);
    let wanted = fields.into_iter().map(|(kind, name)| match (kind, builtin(&name)) {
        (0, _) => Ok(WantedField::Attr(name)),
        (2, Some((builtin, _))) => Ok(WantedField::Builtin(*builtin)),
        (3, _) => Ok(WantedField::Parent),
        _ => Err(argument(format!("{name:?} is no field: name a built-in field or a key"))),
    });
    let wanted = wanted.collect::<Result<Vec<_>>>()?;
    let (engine, oids) = (namespace.engine(), oids.as_array().to_vec());
    let found = py.detach(|| engine.columns_of(&oids, &wanted))?;
    let mut columns = Vec::with_capacity(found.columns.len());
    for parts in found.columns {
        let mut told = Vec::with_capacity(parts.len());
        for part in parts {
            if let PartValues::Values(values) = &part.values {
                let mut parts = Parts::default();
                for (row, value) in part.rows.iter().zip(values) {
                    push(py, &mut parts, *row, value)?;
                }
                for (dtype, part) in parts {
                    let (rows, values) = part.told(py, dtype.as_ref())?;
                    told.push((Some(rows), values));
                }
                continue;
            }
            let count = part.rows.len() as u64;
            let all = part.rows.len() == oids.len()
                && part.rows.iter().enumerate().all(|(at, row)| at == *row as usize);
            let values = match part.values {
                PartValues::Fixed(kind, bytes) => {
                    let dtype = dtype::decode(py, &kind.dtype())?;
                    value::array_of_bytes(py, &dtype, &[count], &bytes)?
                }
                PartValues::Texts(texts, codes) => {
                    let texts: Vec<_> = texts.iter().map(|text| PyString::new(py, text)).collect();
                    let values = codes.iter().map(|code| &texts[*code as usize]);
                    PyList::new(py, values)?.into_any()
                }
                PartValues::Values(_) => continue,
            };
            let rows = (!all).then(|| PyArray1::from_vec(py, part.rows));
            told.push((rows, values));
        }
        columns.push(told);
    }
    Ok((columns, found.gone))
}

/// The keys of the attributes that objects have to queries, in byte order, each with how many of
/// them have it.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as PyO3 hands it over
pub fn attribute_keys_of(
    namespace: &Namespace,
    oids: PyReadonlyArray1<'_, u64>,
) -> Result<Vec<(String, u64)>> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let engine = namespace.engine();
    let seen = each(&oids, |oid| match engine.object(oid)?.index {
        IndexMode::None => Ok(Vec::new()), // to a query it has none
        _ => engine.attrs(Member::Object(oid)),
    })?;
    for attrs in seen {
        for (key, _) in attrs.into_iter().flatten() {
            *counts.entry(key).or_default() += 1;
        }
    }
    Ok(counts.into_iter().collect())
}
