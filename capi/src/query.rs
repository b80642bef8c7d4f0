//! Queries: text in, paths and ids out.

use std::ffi::c_char;

use engram::QueryOptions;
use engram::query::parse;

use crate::error::{Status, guard};
use crate::group::Group;
use crate::list::List;
use crate::raw;

/// Finds the objects below a group that match a query. Gives their paths from the root of the
/// namespace and their ids, in the order that the query asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_query(
    group: *const Group,
    query: *const c_char,
    found: *mut *mut List,
) -> Status {
    guard(|| {
        let out = raw::out("found", found)?;
        let group = raw::of("group", group)?;
        let query = parse(raw::text("query", query)?)?;
        let options = QueryOptions { root: Some(group.gid), ..QueryOptions::default() };
        let oids = group.namespace.query(&query, &options)?.oids;
        out.set(raw::give(List::of_objects(&group.namespace, &oids)?));
        Ok(())
    })
}

/// Counts the objects below a group that match a query.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_query_count(
    group: *const Group,
    query: *const c_char,
    count: *mut u64,
) -> Status {
    guard(|| {
        let out = raw::out("count", count)?;
        let group = raw::of("group", group)?;
        let query = parse(raw::text("query", query)?)?;
        let options = QueryOptions { root: Some(group.gid), ..QueryOptions::default() };
        out.set(group.namespace.query_count(&query, &options)?);
        Ok(())
    })
}
