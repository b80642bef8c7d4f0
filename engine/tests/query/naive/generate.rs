//! Random objects, attributes, groups and queries, of few values, so that they meet.

use engram::dtype::Field;
use engram::query::ast::{
    Builtin, Comparison, Direction, Expr, Function, Literal, Measure, Order, Query, QueryField,
    Test, Totals,
};
use engram::{Class, DType, IndexMode, Member, NewObject, Placement, Realm, Result, Value};
use proptest::prelude::*;

/// One change.
#[derive(Clone, Debug)]
pub enum Op {
    Put { path: String, items: u64, blob: bool, attrs: Vec<(u8, Value)>, index: IndexMode },
    Group { path: String, attrs: Vec<(u8, Value)> },
    Delete { path: String },
    Rename { old: String, new: String },
    SetAttrs { path: String, attrs: Vec<(u8, Value)> },
    DeleteAttr { path: String, key: u8 },
}

/// The key of a number.
pub fn key_name(key: u8) -> String {
    format!("k{key}")
}

fn named(attrs: &[(u8, Value)]) -> Vec<(String, Value)> {
    let mut named: Vec<(String, Value)> = Vec::new();
    for (key, value) in attrs {
        let name = key_name(*key);
        named.retain(|(known, _)| *known != name);
        named.push((name, value.clone()));
    }
    named
}

/// Does it, if it can be done.
pub fn perform(realm: &Realm, op: &Op) -> Result<()> {
    let root = realm.root();
    let member = |path: &str| realm.lookup(root, path);
    match op {
        Op::Put { path, items, blob, attrs, index } => {
            let float = DType::scalar(b'f', b'<', 8);
            let new = NewObject {
                class: if *blob { Class::Blob } else { Class::Array },
                dtype: if *blob { DType::bytes() } else { float },
                shape: if *blob { Vec::new() } else { vec![*items] },
                dims: None,
                attrs: named(attrs),
                origin: Vec::new(),
                properties: Vec::new(),
                layout: engram::Layout::default(),
            };
            let over = Placement { overwrite: true, index: Some(*index), ..Placement::default() };
            realm.put(root, path, &new, &vec![0; *items as usize * 8], over).map(drop)
        }
        Op::Group { path, attrs } => {
            realm.create_group(root, path, &named(attrs), &[], true).map(drop)
        }
        Op::Delete { path } => realm.delete(root, path),
        Op::Rename { old, new } => realm.rename(root, old, root, new),
        Op::SetAttrs { path, attrs } => match member(path)? {
            Some(member) => realm.set_attrs(member, &named(attrs)),
            None => Ok(()),
        },
        Op::DeleteAttr { path, key } => match member(path)? {
            Some(member @ Member::Object(_)) => realm.delete_attr(member, &key_name(*key)),
            _ => Ok(()),
        },
    }
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "ab", "c"]), 1..4)
        .prop_map(|names| names.join("/"))
}

fn text() -> impl Strategy<Value = String> {
    let long = format!("{}a", "long ".repeat(120));
    let texts = ["", "a", "ab", "b", "abcdefgh", "abcdefghi", "é", "1", "1970-01-01"];
    let texts = texts.map(str::to_owned).into_iter().chain([long]);
    prop::sample::select(texts.collect::<Vec<_>>())
}

const INTS: [i64; 8] = [0, 1, 2, -1, 7, 1 << 40, i64::MIN, -3];
const FLOATS: [f64; 8] = [0.0, -0.0, 1.0, 0.5, -1.5, 7.0, f64::INFINITY, 1e300];

fn scalar(kind: u8, size: u32, order: u8, data: &[u8]) -> Value {
    Value { dtype: DType::scalar(kind, order, size), shape: Vec::new(), data: data.to_vec() }
}

fn value() -> impl Strategy<Value = Value> {
    let nanosecond = engram::dtype::Unit::Nanosecond;
    let time = DType::Scalar { kind: b'M', order: b'<', size: 8, unit: Some((nanosecond, 1)) };
    let day = 86_400_000_000_000_i64;
    let times = [0, 1, day, 31 * day - 1, 31 * day, 1_504_224_001_000_000_000];
    let times = prop::sample::select(times.to_vec());
    let int = prop::sample::select(INTS.to_vec());
    let float = prop::sample::select([FLOATS.as_slice(), &[f64::NAN]].concat());
    let member = |name: &str, offset, kind| Field {
        name: name.to_owned(),
        title: None,
        offset,
        dtype: DType::scalar(kind, b'<', 8),
    };
    let fields = vec![member("x", 0, b'i'), member("y", 8, b'f')];
    let structure = DType::Struct { size: 16, align: false, fields };
    prop_oneof![
        2 => (int.clone(), float.clone()).prop_map(move |(x, y)| Value {
            dtype: structure.clone(),
            shape: Vec::new(),
            data: [x.to_le_bytes(), y.to_le_bytes()].concat(),
        }),
        4 => int.clone().prop_map(|v| scalar(b'i', 8, b'<', &v.to_le_bytes())),
        4 => float.clone().prop_map(|v| scalar(b'f', 8, b'<', &v.to_le_bytes())),
        1 => float.prop_map(|v| scalar(b'f', 4, b'<', &(v as f32).to_le_bytes())),
        1 => (0..300_i16).prop_map(|v| scalar(b'i', 2, b'>', &v.to_be_bytes())),
        1 => any::<bool>().prop_map(|v| scalar(b'b', 1, b'|', &[v.into()])),
        1 => Just(scalar(b'u', 8, b'<', &u64::MAX.to_le_bytes())),
        1 => Just(scalar(b'c', 16, b'<', &[0; 16])),
        4 => text().prop_map(|text| Value::text(&text)),
        2 => times.prop_map(move |v| Value {
            dtype: time.clone(),
            shape: Vec::new(),
            data: v.to_le_bytes().to_vec(),
        }),
        2 => prop::collection::vec(int, 0..3).prop_map(|items| Value {
            dtype: DType::scalar(b'i', b'<', 8),
            shape: vec![items.len() as u64],
            data: items.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }),
    ]
}

fn attrs() -> impl Strategy<Value = Vec<(u8, Value)>> {
    prop::collection::vec((0..6_u8, value()), 0..6)
}

/// A random change.
pub fn op() -> impl Strategy<Value = Op> {
    let index = prop_oneof![
        4 => Just(IndexMode::Sync),
        2 => Just(IndexMode::Async),
        1 => Just(IndexMode::None),
    ];
    prop_oneof![
        12 => (path(), 0..4_u64, any::<bool>(), attrs(), index)
            .prop_map(|(path, items, blob, attrs, index)| {
                Op::Put { path, items, blob, attrs, index }
            }),
        1 => (path(), attrs()).prop_map(|(path, attrs)| Op::Group { path, attrs }),
        1 => path().prop_map(|path| Op::Delete { path }),
        2 => (path(), path()).prop_map(|(old, new)| Op::Rename { old, new }),
        3 => (path(), attrs()).prop_map(|(path, attrs)| Op::SetAttrs { path, attrs }),
        1 => (path(), 0..6_u8).prop_map(|(path, key)| Op::DeleteAttr { path, key }),
    ]
}

fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        4 => prop::sample::select(INTS.to_vec()).prop_map(Literal::Int),
        3 => prop::sample::select(FLOATS.to_vec()).prop_map(Literal::Float),
        1 => Just(Literal::Big(u64::MAX)),
        4 => text().prop_map(Literal::Text),
        1 => prop::sample::select(vec!["1970", "1970-01", "1970-01-02", "2017-09-01T00:00:01"])
            .prop_map(|text| Literal::Text(text.to_owned())),
        1 => prop::sample::select(vec!["a/b", "ab/a"])
            .prop_map(|text| Literal::Text(text.to_owned())),
    ]
}

fn part() -> impl Strategy<Value = String> {
    let parts = ["", "a", "b", "ab", "c", "/", "a/", "/b", "b/a", "a/b", "a/b/a", "ab/c", "d"];
    prop::sample::select(parts.map(str::to_owned).to_vec())
}

fn test() -> impl Strategy<Value = Test> {
    use Comparison::{Eq, Ge, Gt, Le, Lt, Ne};
    let comparison = prop::sample::select(vec![Eq, Ne, Lt, Le, Gt, Ge]);
    let patterns = ["%", "a%", "%b", "_", "a_", "%/b", "%a%", "a\\%", "ab"];
    let texts = || prop_oneof![part(), text()];
    prop_oneof![
        6 => (comparison, literal()).prop_map(|(how, value)| Test::Compare(how, value)),
        1 => part().prop_map(|text| Test::Compare(Eq, Literal::Text(text))),
        1 => part().prop_map(|text| Test::Compare(Ne, Literal::Text(text))),
        2 => (literal(), literal()).prop_map(|(low, high)| Test::Between(low, high)),
        2 => prop::collection::vec(literal(), 0..3).prop_map(Test::In),
        1 => part().prop_map(|text| Test::In(vec![Literal::Text(text), Literal::Int(1)])),
        1 => literal().prop_map(Test::Contains),
        2 => texts().prop_map(|part| Test::Contains(Literal::Text(part))),
        2 => texts().prop_map(Test::StartsWith),
        2 => texts().prop_map(Test::EndsWith),
        1 => prop::sample::select(patterns.map(str::to_owned).to_vec()).prop_map(Test::Like),
        2 => Just(Test::Exists),
    ]
}

fn field() -> impl Strategy<Value = QueryField> {
    // The owner also has a name, which the tests do not know.
    let builtins = Builtin::ALL.map(|(builtin, _)| builtin);
    let builtins = builtins.into_iter().filter(|b| !matches!(b, Builtin::Owner));
    prop_oneof![
        6 => (0..7_u8).prop_map(|key| QueryField::Attr(key_name(key))),
        2 => (0..6_u8).prop_map(|key| QueryField::GroupAttr(key_name(key))),
        1 => (0..6_u8, prop::sample::select(vec!["x", "y", "z"]))
            .prop_map(|(key, part)| QueryField::Part(key_name(key), vec![part.to_owned()])),
        1 => (0..6_u8, prop::sample::select(vec!["x", "y", "z"]))
            .prop_map(|(key, part)| QueryField::GroupPart(key_name(key), vec![part.to_owned()])),
        2 => prop::sample::select(builtins.collect::<Vec<_>>()).prop_map(QueryField::Builtin),
        3 => prop::sample::select(vec![Builtin::Path, Builtin::Name, Builtin::Group])
            .prop_map(QueryField::Builtin),
    ]
}

fn expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        10 => (field(), test()).prop_map(|(field, test)| Expr::Test(field, test)),
        1 => prop_oneof![path(), Just("/".to_owned()), Just("/a".to_owned())]
            .prop_map(Expr::Under),
        1 => Just(Expr::All),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Expr::And),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Expr::Or),
            inner.prop_map(|inner| Expr::Not(Box::new(inner))),
        ]
    })
}

/// Random figures.
pub fn totals_query() -> impl Strategy<Value = Query> {
    let functions = Function::ALL.map(|(function, _)| function).to_vec();
    let measure = prop_oneof![
        1 => Just(Measure { function: Function::Count, field: None }),
        5 => (prop::sample::select(functions), field())
            .prop_map(|(function, field)| Measure { function, field: Some(field) }),
    ];
    let order = prop::collection::vec((0..4_usize, any::<bool>()), 0..3);
    let condition = prop_oneof![1 => Just(Expr::All), 3 => expr()];
    let parts =
        (condition, prop::collection::vec(measure, 1..4), prop::collection::vec(field(), 0..3));
    let limit = prop_oneof![3 => Just(None), 1 => (0..5_u64).prop_map(Some)];
    (parts, order, limit, 0..3_u64).prop_map(|((expr, measures, mut by), order, limit, offset)| {
        by.dedup();
        let columns = by.len() + measures.len();
        let order: Vec<_> = order
            .into_iter()
            .filter(|(column, _)| *column < columns)
            .map(|(column, descending)| {
                (column, if descending { Direction::Descending } else { Direction::Ascending })
            })
            .collect();
        let offset = if order.is_empty() { 0 } else { offset };
        let totals = Some(Totals { measures, by, order });
        Query { expr, limit, offset, totals, ..Query::default() }
    })
}

/// A random query.
pub fn ast_query() -> impl Strategy<Value = Query> {
    let orders =
        (field(), any::<bool>()).prop_map(|(field, descending)| Order { field, descending });
    let limit = prop_oneof![3 => Just(None), 1 => (0..5_u64).prop_map(Some)];
    let order_by = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(orders, 1..3)];
    let offset = prop_oneof![2 => Just(0), 1 => 1..4_u64];
    (expr(), order_by, limit, offset).prop_map(|(expr, order_by, limit, offset)| {
        let offset = if order_by.is_empty() { 0 } else { offset };
        Query { expr, order_by, limit, offset, ..Query::default() }
    })
}
