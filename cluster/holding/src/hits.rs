//! What a query of a cluster finds in one node pool.

use engram::query::answer::{Keyed, QueryOptions};
use engram::query::ast::{Builtin, Expr, Literal, Query, QueryField, Test};
use engram::query::parse;
use engram::{Gid, Kind, Member, Namespace, Result};

use crate::heads;

/// How often what was replaced meanwhile is asked for again.
const ROUNDS_MOST: usize = 20;

/// A hit with its head, told of as it was at one moment.
struct Told {
    path: String,
    head: Vec<u8>,
    key: Vec<u8>,
}

/// Is told a hit: its path, its head, and the bytes that order it.
pub type Tell<'t> = dyn FnMut(&str, &[u8], &[u8]) + 't;

/// Tells what a query finds below these groups, in its order: path, head, and the bytes by which
/// it is ordered among the hits of other pools. An object that goes meanwhile is left out; one that
/// is replaced is judged anew, since its name was there all the time. Where what is published is
/// meant alone, a limit counts only that.
pub fn find(
    namespace: &Namespace,
    text: &str,
    groups: &[Gid],
    is_from_group: bool,
    is_published: bool,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let mut query = parse(text)?;
    let most = query.limit.map_or(usize::MAX, |limit| limit as usize);
    query.limit = query.limit.filter(|_| !is_published);
    let root = match groups {
        [] => return Ok(()),
        [only] if is_from_group => Some(*only),
        _ => {
            query = below(namespace, query, groups)?;
            None
        }
    };
    let options = QueryOptions { root, ..QueryOptions::default() };
    let (mut all, mut gone) = look(namespace, &query, &options, is_published)?;
    for _ in 0..ROUNDS_MOST {
        if gone.is_empty() {
            break;
        }
        let again = named(&query, std::mem::take(&mut gone));
        let (more, left) = look(namespace, &again, &options, is_published)?;
        gone = left;
        all.extend(more);
        // It is stable: what ties stays as the pool had it.
        all.sort_by(|one, other| one.key.cmp(&other.key));
    }
    for hit in all.iter().take(most) {
        tell(&hit.path, &hit.head, &hit.key);
    }
    Ok(())
}

/// The hits of a query, and the names of those that are gone before they are told of.
fn look(
    namespace: &Namespace,
    query: &Query,
    options: &QueryOptions,
    is_published: bool,
) -> Result<(Vec<Told>, Vec<String>)> {
    let (mut all, mut gone) = (Vec::new(), Vec::new());
    for Keyed { oid, path, key } in namespace.query_keyed(query, options)? {
        let head = namespace.object(oid).and_then(|info| {
            let attrs = namespace.attrs(Member::Object(oid))?;
            Ok(heads::of_object(&info, attrs))
        });
        match head {
            Ok(head) if is_published && !head.is_published() => {}
            Ok(head) => all.push(Told { path, head: head.encode(), key }),
            Err(error) if error.kind() == Kind::NotFound => gone.push(path),
            Err(error) => return Err(error),
        }
    }
    Ok((all, gone))
}

/// The query, of these names alone.
fn named(query: &Query, names: Vec<String>) -> Query {
    let names = Test::In(names.into_iter().map(Literal::Text).collect());
    let names = Expr::Test(QueryField::Builtin(Builtin::Path), names);
    Query { expr: Expr::And(vec![names, query.expr.clone()]), ..query.clone() }
}

/// The query, of what lies below one of these groups alone.
fn below(namespace: &Namespace, query: Query, groups: &[Gid]) -> Result<Query> {
    let under = |group: &Gid| Ok(Expr::Under(namespace.path_of(Member::Group(*group))?));
    let any = Expr::Or(groups.iter().map(under).collect::<Result<Vec<_>>>()?);
    Ok(Query { expr: Expr::And(vec![any, query.expr]), ..query })
}
