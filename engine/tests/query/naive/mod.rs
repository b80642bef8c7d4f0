//! A query's answer worked out the plain way: every object through the public doors, each test by
//! rules written down anew. It knows nothing of the index, nor of how the engine judges records.
#![allow(dead_code, reason = "each test program uses its part")]

mod generate;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use engram::query::ast::{
    Builtin, Comparison, Direction, Expr, Function, Literal, Query, QueryField, Test,
};
use engram::{DType, Figure, Gid, IndexMode, Member, ObjectInfo, Oid, Realm, Value};

pub use generate::{Op, ast_query, op, perform, totals_query};

/// A value, as a query sees it.
#[derive(Clone, Debug)]
pub enum Plain {
    Int(i128),
    Float(f64),
    Text(String),
    Time(i64),
    /// Several items, or none.
    Many(Vec<Plain>),
    /// Equal to nothing.
    Other,
}

/// One object, with all that a query can ask.
pub struct Known {
    pub oid: Oid,
    pub info: ObjectInfo,
    pub path: String,
    pub attrs: BTreeMap<String, Plain>,
    /// The fields of those that have a structure.
    pub parts: BTreeMap<String, BTreeMap<Vec<String>, Plain>>,
    /// Its group, then the group above, to the root.
    pub above: Vec<Above>,
}

/// What a group says of all that is below it.
#[derive(Clone, Debug)]
pub struct Above {
    attrs: BTreeMap<String, Plain>,
    parts: BTreeMap<String, BTreeMap<Vec<String>, Plain>>,
}

fn plain(value: &Value) -> Plain {
    let items: u64 = value.shape.iter().product();
    let scalar = |data: &[u8]| match value.dtype {
        DType::Scalar { kind: b'i', size: 8, .. } => {
            Plain::Int(i64::from_le_bytes(data.try_into().unwrap()).into())
        }
        DType::Scalar { kind: b'u', size: 8, .. } => {
            Plain::Int(u64::from_le_bytes(data.try_into().unwrap()).into())
        }
        DType::Scalar { kind: b'i', size: 2, order: b'>', .. } => {
            Plain::Int(i16::from_be_bytes(data.try_into().unwrap()).into())
        }
        DType::Scalar { kind: b'b', .. } => Plain::Int(data[0].into()),
        DType::Scalar { kind: b'f', size: 8, .. } => {
            Plain::Float(f64::from_le_bytes(data.try_into().unwrap()))
        }
        DType::Scalar { kind: b'f', size: 4, .. } => {
            Plain::Float(f32::from_le_bytes(data.try_into().unwrap()).into())
        }
        DType::Scalar { kind: b'M', .. } => {
            Plain::Time(i64::from_le_bytes(data.try_into().unwrap()))
        }
        DType::Scalar { kind: b'c', .. } | DType::Struct { .. } => Plain::Other,
        DType::Text => Plain::Text(String::from_utf8(data.to_vec()).unwrap()),
        _ => panic!("the generator makes no {:?}", value.dtype),
    };
    let is_strings = value.dtype == DType::Text && !value.shape.is_empty();
    assert!(!is_strings, "the generator makes no arrays of strings");
    if items == 1 {
        return scalar(&value.data);
    }
    let size = value.dtype.itemsize() as usize;
    Plain::Many(value.data.chunks_exact(size).map(scalar).collect())
}

/// The fields of a structure of the generator's: an integer and a number.
fn parts(value: &Value) -> Option<BTreeMap<Vec<String>, Plain>> {
    let DType::Struct { .. } = value.dtype else { return None };
    let (x, y) = value.data.split_at(8);
    let x = Plain::Int(i64::from_le_bytes(x.try_into().unwrap()).into());
    let y = Plain::Float(f64::from_le_bytes(y.try_into().unwrap()));
    Some(BTreeMap::from([(vec!["x".to_owned()], x), (vec!["y".to_owned()], y)]))
}

fn parts_of(realm: &Realm, member: Member) -> BTreeMap<String, BTreeMap<Vec<String>, Plain>> {
    let attrs = realm.attrs(member).unwrap().into_iter();
    attrs.filter_map(|(key, value)| Some((key, parts(&value)?))).collect()
}

fn attrs_of(realm: &Realm, member: Member) -> BTreeMap<String, Plain> {
    realm.attrs(member).unwrap().into_iter().map(|(key, v)| (key, plain(&v))).collect()
}

impl Above {
    fn of(realm: &Realm, group: Member) -> Above {
        Above { attrs: attrs_of(realm, group), parts: parts_of(realm, group) }
    }
}

/// Every object below a group, in ascending order of OIDs.
pub fn everything(realm: &Realm, root: Gid) -> Vec<Known> {
    let mut all = Vec::new();
    let mut above = Vec::new();
    let mut at = root;
    loop {
        above.push(Above::of(realm, Member::Group(at)));
        if at == realm.root() {
            break;
        }
        at = realm.group(at).unwrap().parent;
    }
    let path = realm.path_of(Member::Group(root)).unwrap();
    walk(realm, root, &path, &above, &mut all);
    all.sort_by_key(|known| known.oid);
    all
}

fn walk(realm: &Realm, gid: Gid, path: &str, above: &[Above], all: &mut Vec<Known>) {
    for (name, member) in realm.list(gid, None, usize::MAX).unwrap() {
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        match member {
            Member::Group(inner) => {
                let mut chain = vec![Above::of(realm, member)];
                chain.extend_from_slice(above);
                walk(realm, inner, &path, &chain, all);
            }
            Member::Object(oid) => {
                let info = realm.object(oid).unwrap();
                let (attrs, parts) = match info.index {
                    IndexMode::None => Default::default(),
                    _ => (attrs_of(realm, member), parts_of(realm, member)),
                };
                all.push(Known { oid, info, path, attrs, parts, above: above.to_vec() });
            }
        }
    }
}

fn group_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(group, _)| group)
}

fn field(known: &Known, field: &QueryField) -> Option<Plain> {
    let text = |text: &str| Some(Plain::Text(text.to_owned()));
    let Known { info, path, .. } = known;
    let shape = match info.class {
        engram::Class::Blob => vec![info.nbytes],
        _ => info.shape.clone(),
    };
    match field {
        QueryField::Attr(key) => known.attrs.get(key).cloned(),
        QueryField::Part(key, parts) => known.parts.get(key)?.get(parts).cloned(),
        QueryField::GroupAttr(key) => known.above.iter().find_map(|a| a.attrs.get(key)).cloned(),
        QueryField::GroupPart(key, parts) => {
            let nearest = known.above.iter().find(|above| above.attrs.contains_key(key))?;
            nearest.parts.get(key)?.get(parts).cloned()
        }
        QueryField::Builtin(builtin) => match builtin {
            Builtin::Name => text(path.rsplit('/').next().unwrap()),
            Builtin::Path => text(path),
            Builtin::Group => text(group_of(path)),
            Builtin::Owner => Some(Plain::Int(info.owner.into())),
            Builtin::Dtype => match info.class {
                engram::Class::Blob => text("bytes"),
                _ => text("float64"),
            },
            Builtin::Shape => match shape.as_slice() {
                [only] => text(&format!("({only},)")),
                more => {
                    let parts: Vec<String> = more.iter().map(ToString::to_string).collect();
                    text(&format!("({})", parts.join(", ")))
                }
            },
            Builtin::Ndim => Some(Plain::Int(shape.len() as i128)),
            Builtin::Size => Some(Plain::Int(shape.iter().product::<u64>().into())),
            Builtin::Nbytes => Some(Plain::Int(info.nbytes.into())),
            Builtin::Scope => text("shared"),
            Builtin::Created => Some(Plain::Time(info.created)),
            Builtin::Modified => Some(Plain::Time(info.modified)),
        },
    }
}

/// The first and the last instant that the generator's strings name.
fn instants(text: &str) -> Option<(i64, i64)> {
    const DAY: i64 = 86_400_000_000_000;
    match text {
        "1970" => Some((0, 365 * DAY - 1)),
        "1970-01" => Some((0, 31 * DAY - 1)),
        "1970-01-01" => Some((0, DAY - 1)),
        "1970-01-02" => Some((DAY, 2 * DAY - 1)),
        "2017-09-01T00:00:01" => Some((1_504_224_001_000_000_000, 1_504_224_001_000_000_000)),
        _ => None,
    }
}

fn literal(value: &Literal) -> Plain {
    match value {
        Literal::Int(value) => Plain::Int((*value).into()),
        Literal::Big(value) => Plain::Int((*value).into()),
        Literal::Float(value) => Plain::Float(*value),
        Literal::Text(text) => Plain::Text(text.clone()),
    }
}

/// How two values compare; none where they are unlike. NaN is like numbers, in no order.
#[allow(clippy::option_option)] // unlike, and like without an order, are two things
#[allow(clippy::cast_precision_loss)] // see below
fn order(a: &Plain, b: &Plain) -> Option<Option<Ordering>> {
    match (a, b) {
        (Plain::Int(a), Plain::Int(b)) => Some(Some(a.cmp(b))),
        (Plain::Float(a), Plain::Float(b)) => Some(a.partial_cmp(b)),
        // The generator's integers beside floats are exact as floats, or far from them.
        (Plain::Int(a), Plain::Float(b)) => Some((*a as f64).partial_cmp(b)),
        (Plain::Float(a), Plain::Int(b)) => Some(a.partial_cmp(&(*b as f64))),
        (Plain::Text(a), Plain::Text(b)) => Some(Some(a.cmp(b))),
        (Plain::Time(a), Plain::Time(b)) => Some(Some(a.cmp(b))),
        (Plain::Time(a), Plain::Text(b)) => instants(b).map(|(first, last)| {
            let inside = (first..=last).contains(a);
            Some(if inside { Ordering::Equal } else { a.cmp(&first) })
        }),
        _ => None,
    }
}

fn equal(value: &Plain, wanted: &Literal) -> bool {
    order(value, &literal(wanted)) == Some(Some(Ordering::Equal))
}

fn test_of(value: &Plain, test: &Test) -> bool {
    let Plain::Many(items) = value else { return test_one(value, test) };
    match test {
        Test::Exists => true,
        Test::Contains(wanted) => items.iter().any(|item| equal(item, wanted)),
        _ => false,
    }
}

fn test_one(value: &Plain, test: &Test) -> bool {
    let compare = |wanted: &Literal| order(value, &literal(wanted));
    match (test, value) {
        (Test::Exists, _) => true,
        (Test::Compare(how, wanted), _) => match (compare(wanted), how) {
            (None, _) => false,
            (Some(order), Comparison::Eq) => order == Some(Ordering::Equal),
            (Some(order), Comparison::Ne) => order != Some(Ordering::Equal),
            (Some(order), Comparison::Lt) => order == Some(Ordering::Less),
            (Some(order), Comparison::Gt) => order == Some(Ordering::Greater),
            (Some(order), Comparison::Le) => order.is_some_and(Ordering::is_le),
            (Some(order), Comparison::Ge) => order.is_some_and(Ordering::is_ge),
        },
        (Test::Between(low, high), _) => {
            compare(low).flatten().is_some_and(Ordering::is_ge)
                && compare(high).flatten().is_some_and(Ordering::is_le)
        }
        (Test::In(all), _) => all.iter().any(|wanted| equal(value, wanted)),
        (Test::Contains(Literal::Text(part)), Plain::Text(text)) => text.contains(part.as_str()),
        (Test::Contains(wanted), _) => equal(value, wanted),
        (Test::StartsWith(start), Plain::Text(text)) => text.starts_with(start.as_str()),
        (Test::EndsWith(end), Plain::Text(text)) => text.ends_with(end.as_str()),
        (Test::Like(pattern), Plain::Text(text)) => {
            let (pattern, text): (Vec<_>, Vec<_>) =
                (pattern.chars().collect(), text.chars().collect());
            like(&pattern, &text)
        }
        _ => false,
    }
}

fn like(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|skipped| like(rest, &text[skipped..])),
        ['_', rest @ ..] => !text.is_empty() && like(rest, &text[1..]),
        ['\\', wanted, rest @ ..] | [wanted, rest @ ..] => {
            text.first() == Some(wanted) && like(rest, &text[1..])
        }
    }
}

/// Whether the condition is true; relative paths start at `from`, a path.
pub fn is_true(known: &Known, expr: &Expr, from: &str) -> bool {
    match expr {
        Expr::All => true,
        Expr::And(parts) => parts.iter().all(|part| is_true(known, part, from)),
        Expr::Or(parts) => parts.iter().any(|part| is_true(known, part, from)),
        Expr::Not(inner) => !is_true(known, inner, from),
        Expr::Test(name, test) => field(known, name).is_some_and(|value| test_of(&value, test)),
        Expr::Under(path) => {
            let wanted = match path.strip_prefix('/') {
                Some(absolute) => absolute.to_owned(),
                None if from.is_empty() || path.is_empty() => format!("{from}{path}"),
                None => format!("{from}/{path}"),
            };
            wanted.is_empty() || known.path.starts_with(&format!("{wanted}/"))
        }
    }
}

fn rank(value: &Plain) -> u8 {
    match value {
        Plain::Float(value) if value.is_nan() => 1,
        Plain::Int(_) | Plain::Float(_) => 0,
        Plain::Time(_) => 2,
        Plain::Text(_) => 3,
        Plain::Many(_) | Plain::Other => 4,
    }
}

fn order_of(a: &Known, b: &Known, query: &Query) -> Ordering {
    let mut all = Ordering::Equal;
    for key in &query.order_by {
        let one = match (field(a, &key.field), field(b, &key.field)) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) => {
                let same = rank(&a) == rank(&b);
                let order = order(&a, &b).flatten().filter(|_| same);
                let order = order.unwrap_or_else(|| rank(&a).cmp(&rank(&b)));
                if key.descending { order.reverse() } else { order }
            }
        };
        all = all.then(one);
    }
    all.then(a.oid.cmp(&b.oid))
}

/// The hits among these, in the order that the query asks for.
pub fn hits<'k>(all: &'k [Known], query: &Query, from: &str) -> Vec<&'k Known> {
    let mut hits: Vec<_> = all.iter().filter(|k| is_true(k, &query.expr, from)).collect();
    hits.sort_by(|a, b| order_of(a, b, query));
    hits.drain(..hits.len().min(query.offset as usize));
    hits.truncate(query.limit.map_or(usize::MAX, |limit| limit as usize));
    hits
}

/// The order of two values where each may be missing: that comes last.
fn order_of_two(a: Option<&Plain>, b: Option<&Plain>, descending: bool) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => {
            let same = rank(a) == rank(b);
            let order = order(a, b).flatten().filter(|_| same);
            let order = order.unwrap_or_else(|| rank(a).cmp(&rank(b)));
            if descending { order.reverse() } else { order }
        }
    }
}

fn is_same(a: Option<&Plain>, b: Option<&Plain>) -> bool {
    order_of_two(a, b, false).is_eq()
}

/// A figure of some values; none where there are none. Values that cannot be are an error.
#[allow(clippy::cast_precision_loss)] // sums are compared loosely
fn figure(function: Function, values: &[Plain]) -> Result<Option<Plain>, ()> {
    if function == Function::Count {
        return Ok(Some(Plain::Int(values.len() as i128)));
    }
    if values.iter().any(|value| rank(value) == 4) {
        return Err(());
    }
    let number = |value: &Plain| match value {
        Plain::Int(value) => Ok(*value as f64),
        Plain::Float(value) => Ok(*value),
        _ => Err(()),
    };
    match function {
        Function::Count => unreachable!("it was counted before"),
        Function::Distinct => {
            let first = |(at, value): (usize, &Plain)| {
                values[..at].iter().all(|known| !is_same(Some(known), Some(value)))
            };
            let distinct = values.iter().enumerate().filter(|pair| first(*pair)).count();
            Ok(Some(Plain::Int(distinct as i128)))
        }
        Function::Min | Function::Max => {
            let class = |value: &Plain| rank(value).saturating_sub(1);
            let class = |value: &Plain| if rank(value) == 1 { 0 } else { class(value) };
            if values.iter().any(|value| class(value) != class(&values[0])) {
                return Err(());
            }
            let compare = |a: &&Plain, b: &&Plain| order_of_two(Some(a), Some(b), false);
            let found = match function {
                Function::Min => values.iter().min_by(compare),
                _ => values.iter().max_by(compare),
            };
            Ok(found.cloned())
        }
        Function::Sum | Function::Mean => {
            let numbers = values.iter().map(number).collect::<Result<Vec<_>, ()>>()?;
            let whole = values.iter().map(|value| match value {
                Plain::Int(value) => Some(*value),
                _ => None,
            });
            let whole: Option<Vec<i128>> = whole.collect();
            let sum = numbers.iter().sum::<f64>();
            Ok(match (values.len(), function, whole) {
                (0, ..) => None,
                (count, Function::Mean, _) => Some(Plain::Float(sum / count as f64)),
                (_, _, Some(whole)) => Some(Plain::Int(whole.iter().sum())),
                _ => Some(Plain::Float(sum)),
            })
        }
    }
}

/// The rows of figures that a query gives; an error where values cannot be in them.
pub fn totals(all: &[Known], query: &Query, from: &str) -> Result<Vec<Vec<Option<Plain>>>, ()> {
    let asked = query.totals.as_ref().unwrap();
    let mut groups: Vec<(Vec<Option<Plain>>, Vec<&Known>)> = Vec::new();
    if asked.by.is_empty() {
        groups.push((Vec::new(), Vec::new()));
    }
    for known in all.iter().filter(|known| is_true(known, &query.expr, from)) {
        let key: Vec<_> = asked.by.iter().map(|by| field(known, by)).collect();
        if key.iter().flatten().any(|value| rank(value) == 4) {
            return Err(());
        }
        let same = |other: &[Option<Plain>]| {
            other.iter().zip(&key).all(|(a, b)| is_same(a.as_ref(), b.as_ref()))
        };
        match groups.iter_mut().find(|(other, _)| same(other)) {
            Some((_, members)) => members.push(known),
            None => groups.push((key, vec![known])),
        }
    }
    let mut rows = Vec::new();
    for (mut row, members) in groups {
        for measure in &asked.measures {
            row.push(match &measure.field {
                None => Some(Plain::Int(members.len() as i128)),
                Some(of) => {
                    let values: Vec<_> = members.iter().filter_map(|k| field(k, of)).collect();
                    figure(measure.function, &values)?
                }
            });
        }
        rows.push(row);
    }
    let by = (0..asked.by.len()).map(|column| (column, Direction::Ascending));
    let keys: Vec<_> = asked.order.iter().copied().chain(by).collect();
    rows.sort_by(|a, b| {
        keys.iter().fold(Ordering::Equal, |all, (column, direction)| {
            let descending = *direction == Direction::Descending;
            all.then(order_of_two(a[*column].as_ref(), b[*column].as_ref(), descending))
        })
    });
    rows.drain(..rows.len().min(query.offset as usize));
    rows.truncate(query.limit.map_or(usize::MAX, |limit| limit as usize));
    Ok(rows)
}

#[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "as both were computed")]
/// Whether a figure is this value; sums may differ in their last digits.
pub fn is_figure(figure: Option<&Figure>, value: Option<&Plain>) -> bool {
    match (figure, value) {
        (None, None) => true,
        (Some(Figure::Int(a)), Some(Plain::Int(b))) => a == b,
        (Some(Figure::Text(a)), Some(Plain::Text(b))) => a == b,
        (Some(Figure::Time(a)), Some(Plain::Time(b))) => *a == i128::from(*b),
        (Some(Figure::Float(a)), Some(Plain::Float(b))) => {
            a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * b.abs()
        }
        // Of equal numbers any may stand for all, to this look at them.
        (Some(Figure::Int(a)), Some(Plain::Float(b))) => *a as f64 == *b,
        _ => false,
    }
}
