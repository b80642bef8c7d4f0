//! The index: modes and settings as Python gives them, figures, maintenance.

use engram::query::ast::Literal;
use engram::{Gid, IndexMode, IndexSettings, Policy};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Result, argument};
use crate::namespace::Namespace;

/// A mode, as Python has it.
pub fn mode_name(mode: IndexMode) -> &'static str {
    match mode {
        IndexMode::Sync => "sync",
        IndexMode::Async => "async",
        IndexMode::None => "none",
    }
}

/// When an object is indexed, from Python: "sync", "async" or "none"; None where the group decides.
pub fn mode_of(index: Option<&Bound<'_, PyAny>>) -> Result<Option<IndexMode>> {
    let Some(index) = index.filter(|i| !i.is_none()) else {
        return Ok(None);
    };
    match index.extract::<&str>() {
        Ok("sync") => Ok(Some(IndexMode::Sync)),
        Ok("async") => Ok(Some(IndexMode::Async)),
        Ok("none") => Ok(Some(IndexMode::None)),
        _ => Err(argument(format!(
            "index {index:?} is unknown: use \"sync\", \"async\" or \"none\""
        ))),
    }
}

/// Settings of the index, from a dict of Python's: what it does not have is up to the group above.
pub fn settings_of(given: &Bound<'_, PyDict>) -> Result<IndexSettings> {
    let mut settings = IndexSettings::default();
    for (key, value) in given.iter() {
        let name: String = key.extract()?;
        if name == "attributes_per_group" && value.is_none() {
            settings.attributes_per_group = Some(0); // all in one
            continue;
        }
        let number = || whole(&name, &value);
        match name.as_str() {
            "index" => settings.mode = mode_of(Some(&value))?,
            "attributes_per_group" => settings.attributes_per_group = number()?,
            "index_policy" => settings.policy = policy_of(&value)?,
            "split_threshold" => settings.split_threshold = number()?,
            "split_on" => settings.split_on = split_of(&value)?,
            "segment_rows" => settings.segment_rows = number()?,
            "tail_rows" => settings.tail_rows = number()?,
            "merge_sf" => settings.merge_sf = number()?,
            "merge_overlap" => settings.merge_overlap = number()?,
            "queue_max" => settings.queue_max = number()?,
            _ => return Err(argument(format!("{name:?} is no setting of the index"))),
        }
    }
    Ok(settings)
}

fn whole(name: &str, value: &Bound<'_, PyAny>) -> Result<Option<u32>> {
    if value.is_none() {
        return Ok(None);
    }
    let index = value.call_method0("__index__").and_then(|whole| whole.extract::<u32>());
    index.map(Some).map_err(|_| {
        argument(format!("{name} {value:?} is no number: give a whole one from 0 to 2**32 - 1"))
    })
}

fn policy_of(value: &Bound<'_, PyAny>) -> Result<Option<Policy>> {
    match value.extract::<&str>() {
        Ok("fixed") => Ok(Some(Policy::Fixed)),
        Ok("dynamic") => Ok(Some(Policy::Dynamic)),
        _ if value.is_none() => Ok(None),
        _ => Err(argument(format!(
            "index_policy {value:?} is unknown: use \"fixed\" or \"dynamic\""
        ))),
    }
}

/// A key and a value to split at.
pub fn split_of(value: &Bound<'_, PyAny>) -> Result<Option<(String, Literal)>> {
    if value.is_none() {
        return Ok(None);
    }
    let Ok((key, at)) = value.extract::<(String, Bound<'_, PyAny>)>() else {
        return Err(argument(format!(
            "split_on {value:?} is no place to split at: give a key and a value, such as \
             (\"temperature\", 0)"
        )));
    };
    Ok(Some((key, literal(&at)?)))
}

fn literal(value: &Bound<'_, PyAny>) -> Result<Literal> {
    if let Ok(text) = value.extract::<&str>() {
        return Ok(Literal::Text(text.to_owned()));
    }
    if let Ok(whole) = value.extract::<i64>() {
        return Ok(Literal::Int(whole));
    }
    if let Ok(whole) = value.extract::<u64>() {
        return Ok(Literal::Big(whole));
    }
    match value.extract::<f64>() {
        Ok(number) if !number.is_nan() => Ok(Literal::Float(number)),
        _ => {
            Err(argument(format!("split_on {value:?} cannot be split at: give a number or a str")))
        }
    }
}

/// Sets how objects that will be stored below a group are indexed.
#[pyfunction]
pub fn set_index_settings(
    py: Python<'_>,
    namespace: &Namespace,
    group: Gid,
    settings: &Bound<'_, PyDict>,
) -> Result<()> {
    let settings = settings_of(settings)?;
    Ok(py.detach(|| namespace.engine().set_index_settings(group, &settings))?)
}

/// The settings that a group has itself, as `set_index_settings` takes them.
#[pyfunction]
pub fn index_settings<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    group: Gid,
) -> Result<Bound<'py, PyDict>> {
    let found = namespace.engine().index_settings(group)?;
    let told = PyDict::new(py);
    if let Some(mode) = found.mode {
        told.set_item("index", mode_name(mode))?;
    }
    if let Some(most) = found.attributes_per_group {
        told.set_item("attributes_per_group", (most > 0).then_some(most))?;
    }
    if let Some(policy) = found.policy {
        let name = if policy == Policy::Fixed { "fixed" } else { "dynamic" };
        told.set_item("index_policy", name)?;
    }
    match found.split_on {
        Some((key, Literal::Int(at))) => told.set_item("split_on", (key, at))?,
        Some((key, Literal::Big(at))) => told.set_item("split_on", (key, at))?,
        Some((key, Literal::Float(at))) => told.set_item("split_on", (key, at))?,
        Some((key, Literal::Text(at))) => told.set_item("split_on", (key, at))?,
        None => {}
    }
    let numbers = [
        ("split_threshold", found.split_threshold),
        ("segment_rows", found.segment_rows),
        ("tail_rows", found.tail_rows),
        ("merge_sf", found.merge_sf),
        ("merge_overlap", found.merge_overlap),
        ("queue_max", found.queue_max),
    ];
    for (name, value) in numbers {
        if value.is_some() {
            told.set_item(name, value)?;
        }
    }
    Ok(told)
}

/// An attribute group: (family, number, tag, whether it is kept as runs, keys with how many objects
/// have each, objects, blocks, bytes, bounds).
type Group = (u32, u32, Option<String>, bool, Vec<(String, u64)>, u64, u64, u64, Vec<String>);

/// What the index is made of: attribute groups, bytes of each table, all other figures.
type Stats = (Vec<Group>, Vec<(&'static str, u64)>, Vec<(&'static str, u64)>);

/// What the index is made of.
#[pyfunction]
pub fn index_stats(py: Python<'_>, namespace: &Namespace) -> Result<Stats> {
    let found = py.detach(|| namespace.engine().index_stats())?;
    let groups = found.groups.into_iter().map(|g| {
        let keys = g.keys.into_iter().map(|key| (key.key, key.sf)).collect();
        (g.family, g.group, g.tag, g.runs, keys, g.objects, g.blocks, g.bytes, g.bounds)
    });
    let figures = vec![
        ("families", found.families),
        ("segments", found.segments),
        ("sealed", found.sealed),
        ("dead", found.dead),
        ("tail", found.tail),
        ("queued", found.queued),
        ("unindexed", found.unindexed),
        ("seals", found.seals),
        ("splits", found.splits),
        ("merges", found.merges),
        ("nbytes", found.bytes),
    ];
    Ok((groups.collect(), found.tables, figures))
}

/// Indexes up to so many objects of the queue; how many it were.
#[pyfunction]
pub fn drain_queue(py: Python<'_>, namespace: &Namespace, most: u64) -> Result<u64> {
    Ok(py.detach(|| namespace.engine().drain_queue(most))?)
}

/// Does all maintenance of the index that is due; how many steps that took.
#[pyfunction]
pub fn maintain(py: Python<'_>, namespace: &Namespace) -> Result<u64> {
    Ok(py.detach(|| namespace.engine().maintain())?)
}

/// Indexes the objects below a group anew; with a mode, they have it from then on. Gives how many
/// it were.
#[pyfunction]
pub fn reindex(
    py: Python<'_>,
    namespace: &Namespace,
    group: Gid,
    mode: Option<&Bound<'_, PyAny>>,
) -> Result<u64> {
    let mode = mode_of(mode)?;
    Ok(py.detach(|| namespace.engine().reindex(group, mode))?)
}
