//! Attributes that a query names and nothing has: typing errors, as a rule.
//!
//! A query names an attribute in vain if no object, or no group above one, has it. What was once
//! seen to be there is not looked for again, so a query whose attributes are known costs a look at
//! a set for each.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use engram::QueryOptions;
use engram::query::ast::{self, Expr, QueryField, Test};
use engram::query::{error_at, parse};
use pyo3::prelude::*;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::query::Query;

/// Attributes of objects, and of groups above them, that a namespace was seen to have.
#[derive(Default)]
pub struct SeenFields(Mutex<HashSet<QueryField>>);

impl SeenFields {
    /// What of a query was not seen yet, each with whether it is only asked to be there.
    fn unseen(&self, query: &ast::Query) -> Vec<(QueryField, bool)> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<(QueryField, bool)> = Vec::new();
        let mut look = |field: &QueryField, is_presence: bool| {
            let field = match field {
                QueryField::Builtin(_) => return,
                QueryField::Part(key, _) => QueryField::Attr(key.clone()),
                QueryField::GroupPart(key, _) => QueryField::GroupAttr(key.clone()),
                QueryField::Attr(_) | QueryField::GroupAttr(_) => field.clone(),
            };
            if seen.contains(&field) {
                return;
            }
            match found.iter_mut().find(|(known, _)| *known == field) {
                Some((_, only_presence)) => *only_presence &= is_presence,
                None => found.push((field, is_presence)),
            }
        };
        tested(&query.expr, &mut look);
        query.order_by.iter().for_each(|order| look(&order.field, false));
        if let Some(totals) = &query.totals {
            let measured = totals.measures.iter().filter_map(|measure| measure.field.as_ref());
            totals.by.iter().chain(measured).for_each(|field| look(field, false));
        }
        found
    }

    fn add(&self, field: QueryField) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(field);
    }
}

/// Looks at each field that is tested, and at whether the test is that it is there.
fn tested(expr: &Expr, look: &mut impl FnMut(&QueryField, bool)) {
    match expr {
        Expr::All | Expr::Under(_) => {}
        Expr::And(parts) | Expr::Or(parts) => parts.iter().for_each(|part| tested(part, look)),
        Expr::Not(inner) => tested(inner, look),
        Expr::Test(field, test) => look(field, matches!(test, Test::Exists)),
    }
}

/// The attributes that a query names in vain, in a whole namespace: 0 for an object's or 1 for a
/// group's, the key, and whether the query only asks whether it is there. A namespace that cannot
/// answer says so when the query is asked.
#[pyfunction]
pub fn named_in_vain(
    py: Python<'_>,
    query: &Query,
    namespace: &Namespace,
) -> Vec<(u8, String, bool)> {
    let (query, _) = query.asked(namespace, namespace.root_gid());
    let mut vain = Vec::new();
    for (field, only_presence) in namespace.seen().unseen(query) {
        let any = format!("exists({field}) limit 1");
        let engine = namespace.engine();
        let ask = || engine.query_count(&parse(&any)?, &QueryOptions::default());
        let count = py.detach(ask);
        let Ok(0) = count else {
            if count.is_ok() {
                namespace.seen().add(field);
            }
            continue;
        };
        let of_group = matches!(field, QueryField::GroupAttr(_));
        if let QueryField::Attr(key) | QueryField::GroupAttr(key) = field {
            vain.push((of_group.into(), key, only_presence));
        }
    }
    vain
}

/// Raises a `QueryError` that points at where a query names an attribute, an object's or a group's:
/// in its condition, or in the order that was given beside it.
#[pyfunction]
pub fn refuse_name(
    condition: &str,
    order: &str,
    of_group: bool,
    key: String,
    message: &str,
) -> Result<()> {
    let field = if of_group { QueryField::GroupAttr(key) } else { QueryField::Attr(key) };
    let order = format!("order by {order}");
    Err(error_at(&[condition, &order], &field, message).into())
}
