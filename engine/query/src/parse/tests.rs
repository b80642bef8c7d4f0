//! A query that is written is read back; a fault in an ill-formed one is told with its place, and
//! how to mend it.

use super::{NESTING_MAX, QUERY_BYTES_MAX, parse, parse_with};
use crate::ast::{
    Builtin, Comparison, Direction, Expr, Function, Measure, Order, Query, QueryField, Test, Totals,
};
use crate::params::{Param, Params};
use engram_base::error::Kind;
use engram_columns::literal::Literal;
use proptest::prelude::*;

fn attr(key: &str) -> QueryField {
    QueryField::Attr(key.to_owned())
}

fn text(text: &str) -> Literal {
    Literal::Text(text.to_owned())
}

fn is(key: &str, comparison: Comparison, value: Literal) -> Expr {
    Expr::Test(attr(key), Test::Compare(comparison, value))
}

fn expr(query: &str) -> Expr {
    parse(query).unwrap_or_else(|error| panic!("{query}\n{error}")).expr
}

/// Each is read as what the other says.
fn same(cases: &[(&str, &str)]) {
    for (written, plain) in cases {
        let query = parse(written).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(query.to_string(), *plain, "{written}");
        assert_eq!(parse(plain).as_ref(), Ok(&query), "{written}");
    }
}

#[test]
fn any_value_is_whether_there_is_one() {
    same(&[
        ("step = *", "exists(step)"),
        ("a==* and not @name=*", "exists(a) and not exists(@name)"),
        ("group.run = *", "exists(group.run)"),
    ]);
    for wrong in ["step > *", "step != *", "* = step", "step = * 3", "step in (*)", "*"] {
        assert_eq!(parse(wrong).unwrap_err().kind(), Kind::Query, "{wrong}");
    }
}

#[test]
fn the_examples_of_the_design_are_read() {
    use Comparison::{Eq, Lt};
    assert_eq!(
        expr(r#"temperature < -15 and pressure = 144 and processing_level in ("four", "five")"#),
        Expr::And(vec![
            is("temperature", Lt, Literal::Int(-15)),
            is("pressure", Eq, Literal::Int(144)),
            Expr::Test(attr("processing_level"), Test::In(vec![text("four"), text("five")])),
        ])
    );
    assert_eq!(
        expr(r#"@path contains "9610/Inf" and exists(orbit_num)"#),
        Expr::And(vec![
            Expr::Test(QueryField::Builtin(Builtin::Path), Test::Contains(text("9610/Inf"))),
            Expr::Test(attr("orbit_num"), Test::Exists),
        ])
    );
    let days = Test::Between(Literal::Int(20_170_901), Literal::Int(20_170_930));
    assert_eq!(
        expr(r#"under("run-17") and not (date between 20170901 and 20170930)"#),
        Expr::And(vec![
            Expr::Under("run-17".to_owned()),
            Expr::Not(Box::new(Expr::Test(attr("date"), days))),
        ])
    );
}

#[test]
fn what_is_written_in_several_ways_is_one() {
    same(&[
        ("", ""),
        (" \n ", ""),
        ("true", ""),
        ("a == 1", "a = 1"),
        ("a <> 1", "a != 1"),
        ("a=1", "a = 1"),
        ("5 < a", "a > 5"),
        ("5 >= a", "a <= 5"),
        ("'x' = a", "a = \"x\""),
        ("0 < a <= 5", "a > 0 and a <= 5"),
        ("b = 1 and 5 > a > 0", "b = 1 and (a < 5 and a > 0)"),
        ("NOT a = 1 AND (b = 2 OR c = 3)", "not a = 1 and (b = 2 or c = 3)"),
        ("((a = 1))", "a = 1"),
        ("(a = 1 and b = 2) and c = 3", "(a = 1 and b = 2) and c = 3"),
        ("a = 1 and b = 2 or c = 3", "a = 1 and b = 2 or c = 3"),
        ("a = 1 and false", "a = 1 and not true"),
        ("a = True", "a = 1"),
        ("true = a", "a = 1"),
        ("a in ()", "a in ()"),
        ("a between -inf and +5", "a between -inf and 5"),
        ("`a-b` = 1", "`a-b` = 1"),
        ("`a` = 1", "a = 1"),
        ("`a``b` = 1", "`a``b` = 1"),
        ("`limit` = 1 limit 1", "`limit` = 1 limit 1"),
        ("inf < 5", "inf < 5"),
        ("group = 1 and group.x = 2", "group = 1 and group.x = 2"),
        ("group.`odd name` = 2", "group.`odd name` = 2"),
        ("group.run.`1`.kind = 2", "group.run.`1`.kind = 2"),
        ("température > 5", "température > 5"),
        ("a contains 5", "a contains 5"),
        ("a like '100\\\\%'", "a like \"100\\\\%\""),
        ("a = '\\u{e9}\\u{0}\\'\"\\n'", "a = \"é\\u{0}'\\\"\\n\""),
        ("order by a", "order by a"),
        ("a = 1 ORDER BY a ASC, @name DESC LIMIT 5", "a = 1 order by a, @name desc limit 5"),
        ("limit 18446744073709551615", "limit 18446744073709551615"),
        ("a = 18446744073709551615", "a = 18446744073709551615"),
        ("a = -9223372036854775808", "a = -9223372036854775808"),
        ("a = 007", "a = 7"),
        ("a = 1e3", "a = 1000.0"),
        ("a = -.5", "a = -0.5"),
        ("a = 5.", "a = 5.0"),
    ]);
}

#[test]
fn denials_nulls_lists_and_figures_are_written_in_one_way() {
    same(&[
        ("a not in (1, 2)", "exists(a) and not a in (1, 2)"),
        ("a NOT LIKE 'x%' or b = 1", "exists(a) and not a like \"x%\" or b = 1"),
        ("a not between 1 and 2", "exists(a) and not a between 1 and 2"),
        ("a not contains 'x'", "exists(a) and not a contains \"x\""),
        ("a is null", "not exists(a)"),
        ("group.a IS NOT NULL", "exists(group.a)"),
        ("is is null and null = 1", "not exists(is) and null = 1"),
        ("a in [1, 'x']", "a in (1, \"x\")"),
        ("a in []", "a in ()"),
        ("tags contains ['a', 'b']", "tags contains \"a\" and tags contains \"b\""),
        ("tags contains ['a']", "tags contains \"a\""),
        ("position.x > 1 and a.`odd name`.y = 2", "position.x > 1 and a.`odd name`.y = 2"),
        ("`group`.x = 1", "`group`.x = 1"),
        ("order by a limit 3 OFFSET 2", "order by a limit 3 offset 2"),
        ("order by a offset 2", "order by a offset 2"),
        ("offset = 3 order by offset offset 1", "offset = 3 order by offset offset 1"),
        ("count = 1 and mean > 2", "count = 1 and mean > 2"),
        ("count(*)", "count()"),
        ("COUNT( ), Mean(a) WHERE b = 1", "count(), mean(a) where b = 1"),
        (
            "sum(a), distinct(@name) where where = 1 group by group.x, b.c order by sum(a) desc, \
             group.x limit 3 offset 1",
            "sum(a), distinct(@name) where where = 1 group by group.x, b.c order by sum(a) desc, \
             group.x limit 3 offset 1",
        ),
        ("min(a) where true", "min(a)"),
        ("max(a) where false group by b", "max(a) where not true group by b"),
        ("a = 1E-300", "a = 1e-300"),
    ]);
}

#[test]
fn ill_formed_queries_say_where_and_what_to_do() {
    let cases = include_str!("errors.txt");
    assert!(cases.matches("\n---\n").count() > 50);
    for block in cases.split("\n---\n") {
        let (query, expected) = block.split_once("\n=>\n").expect("a query and its error");
        let error = parse(query).expect_err(query);
        assert_eq!(error.kind(), Kind::Query);
        assert_eq!(error.message(), expected.trim_end_matches('\n'), "{query}");
    }
}

#[test]
fn parameters_are_the_values_given_for_them() {
    let one = |value| Param::One(value);
    let params: Params = [
        ("low", one(Literal::Int(-15))),
        ("name", one(text("o'hare"))),
        ("some", Param::Many(vec![Literal::Int(1), text("x")])),
        ("most", one(Literal::Int(3))),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let read = |query: &str| parse_with(query, &params).map(|query| query.to_string());
    let whole = "a < :low and @name like :name and b in :some and c contains :some limit :most";
    let plain = "a < -15 and @name like \"o'hare\" and b in (1, \"x\") and (c contains 1 and c \
                 contains \"x\") limit 3";
    assert_eq!(read(whole).as_deref(), Ok(plain));
    let error = read("a < :least and b in :some").expect_err("it is not given");
    let message = error.message();
    assert!(message.starts_with("column 5: no parameter least was given (:low :most"), "{message}");
    let error = read("a < :low and b in :some and @name = :name").expect_err("one is left");
    assert!(error.message().contains("no parameter :most"), "{error}");
    let error = read("a = :some and :low < b and @name = :name limit :most").expect_err("a list");
    assert!(error.message().starts_with("column 5: a value was expected"), "{error}");
}

#[test]
fn places_are_shown_under_tabs_wide_and_combining_characters() {
    let picture = |query: &str| {
        let error = parse(query).expect_err(query);
        error.message().lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(picture("\ta\t="), ["  \ta\t=", "  \t \t ^"]);
    assert_eq!(picture("a = '日本' b"), ["  a = '日本' b", "             ^"]);
    assert_eq!(picture("a = 'e\u{301}' b"), ["  a = 'e\u{301}' b", "          ^"]);
    assert_eq!(picture("a = '\u{1b}[1m' b")[0], "  a = '\u{fffd}[1m' b");
    assert_eq!(picture("a = '\u{202e}' b"), ["  a = '\u{fffd}' b", "          ^"]);
    let error = parse("a = 1 and\r\nb = \r\n").expect_err("ends early");
    assert!(error.message().starts_with("line 2, column 4: a value"), "{error}");
    let terms = |count| vec!["value_x = 1"; count].join(" and ");
    let long = picture(&format!("{} and oops {}", terms(40), terms(40)));
    assert!(long.iter().all(|line| line.chars().count() < 84), "{long:?}");
    assert!(long[0].starts_with("  …") && long[0].ends_with('…'), "{long:?}");
    let caret = long[1].find('^').expect("a caret");
    assert_eq!(long[0].chars().skip(caret).take(7).collect::<String>(), "value_x", "{long:?}");
}

#[test]
fn depth_and_length_are_bounded() {
    let nots = |count: usize| format!("{}a = 1", "not ".repeat(count));
    assert!(parse(&nots(NESTING_MAX)).is_ok());
    assert!(parse(&nots(NESTING_MAX + 1)).is_err());
    let parentheses = |count: usize| format!("{}a = 1{}", "(".repeat(count), ")".repeat(count));
    assert_eq!(parse(&parentheses(NESTING_MAX)), parse("a = 1"));
    let error = parse(&parentheses(QUERY_BYTES_MAX / 2 - 5)).expect_err("too deep");
    assert!(error.message().starts_with("column 201: "), "{error}");
    let mixed = "not (".repeat(NESTING_MAX / 2) + "a = 1" + &")".repeat(NESTING_MAX / 2);
    let small = std::thread::Builder::new().stack_size(512 << 10);
    let there = small.spawn(move || parse(&mixed).map(|query| query.to_string()));
    let written = there.expect("a thread").join().expect("enough stack");
    assert_eq!(written, Ok(nots(NESTING_MAX / 2)));
    let apart = vec!["(a = 1)"; 300].join(" or ");
    assert!(parse(&apart).is_ok(), "only what lies in each other is deep");
    let error = parse(&" ".repeat(QUERY_BYTES_MAX + 1)).expect_err("too long");
    assert_eq!(error.kind(), Kind::Query);
    assert!(parse(&" ".repeat(QUERY_BYTES_MAX)).is_ok());
}

#[test]
fn messages_stay_short_however_long_a_query_is() {
    let many = |piece: &str| piece.repeat(1 << 15);
    let (x, one) = (many("x"), many("1"));
    let queries = [
        x.clone(),
        format!("{x} is"),
        format!("`{x}` 5"),
        format!("a = {x}"),
        format!("a = {one}"),
        format!("a = {one}z"),
        format!("a = 1 '{x}'"),
        format!("@{x}"),
        format!("'{x}' = 5"),
        format!("a = '{x}"),
        many("("),
        many("日"),
        format!("a {}", many("<")),
    ];
    for query in queries {
        let error = parse(&query).expect_err("ill-formed");
        let message = error.message();
        assert!(message.chars().count() < 600, "{}", message.chars().take(900).collect::<String>());
    }
}

fn some_text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z`\"'\\\\% \n\t]{0,6}"]
}

fn some_key() -> impl Strategy<Value = String> {
    let words = vec!["and", "Limit", "group", "inf", "nan", "true", "x", "_x1", "é", "1x", "a.b"];
    prop_oneof![
        some_text().prop_filter("keys are not empty", |key| !key.is_empty()),
        prop::sample::select(words).prop_map(str::to_owned),
    ]
}

fn some_field() -> impl Strategy<Value = QueryField> {
    prop_oneof![
        2 => some_key().prop_map(QueryField::Attr),
        1 => some_key().prop_map(QueryField::GroupAttr),
        1 => (some_key(), prop::collection::vec(some_key(), 1..3))
            .prop_map(|(key, parts)| QueryField::Part(key, parts)),
        1 => (some_key(), prop::collection::vec(some_key(), 1..3))
            .prop_map(|(key, parts)| QueryField::GroupPart(key, parts)),
        1 => prop::sample::select(Builtin::ALL.to_vec()).prop_map(|(b, _)| QueryField::Builtin(b)),
    ]
}

fn some_literal() -> impl Strategy<Value = Literal> {
    let infinite = prop::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e16, 5e-324]);
    prop_oneof![
        any::<i64>().prop_map(Literal::Int),
        (i64::MAX as u64 + 1..).prop_map(Literal::Big),
        prop::num::f64::NORMAL.prop_map(Literal::Float),
        infinite.prop_map(Literal::Float),
        some_text().prop_map(Literal::Text),
    ]
}

fn some_test() -> impl Strategy<Value = Test> {
    use Comparison::{Eq, Ge, Gt, Le, Lt, Ne};
    let comparison = prop::sample::select(vec![Eq, Ne, Lt, Le, Gt, Ge]);
    prop_oneof![
        3 => (comparison, some_literal()).prop_map(|(c, value)| Test::Compare(c, value)),
        1 => (some_literal(), some_literal()).prop_map(|(low, high)| Test::Between(low, high)),
        1 => prop::collection::vec(some_literal(), 0..4).prop_map(Test::In),
        1 => some_literal().prop_map(Test::Contains),
        1 => some_text().prop_map(Test::StartsWith),
        1 => some_text().prop_map(Test::EndsWith),
        1 => some_text().prop_map(Test::Like),
        1 => Just(Test::Exists),
    ]
}

fn some_expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        1 => Just(Expr::All),
        6 => (some_field(), some_test()).prop_map(|(field, test)| match (field, test) {
            // These are compared with instants alone.
            (field @ QueryField::Builtin(Builtin::Created | Builtin::Modified), _) => {
                Expr::Test(field, Test::In(vec![text("2017"), text("-0044-03-15")]))
            }
            (field, test) => Expr::Test(field, test),
        }),
        1 => some_text().prop_map(Expr::Under),
    ];
    leaf.prop_recursive(5, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expr::And),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expr::Or),
            inner.prop_map(|term| Expr::Not(Box::new(term))),
        ]
    })
}

fn some_totals() -> impl Strategy<Value = Query> {
    let functions = Function::ALL.map(|(function, _)| function).to_vec();
    let measure = prop_oneof![
        1 => Just(Measure { function: Function::Count, field: None }),
        3 => (prop::sample::select(functions), some_field())
            .prop_map(|(function, field)| Measure { function, field: Some(field) }),
    ];
    let order = prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..3);
    let by = prop::collection::vec(some_field(), 0..3);
    let all = (some_expr(), prop::collection::vec(measure, 1..4), by, order);
    (all, any::<Option<u64>>(), 0..3_u64).prop_map(
        |((expr, measures, by, order), limit, offset)| {
            let mut fields: Vec<QueryField> = Vec::new();
            for field in by {
                if !fields.contains(&field) {
                    fields.push(field);
                }
            }
            let mut distinct: Vec<Measure> = Vec::new();
            for measure in measures {
                if !distinct.contains(&measure) {
                    distinct.push(measure);
                }
            }
            let columns = fields.len() + distinct.len();
            let order: Vec<_> = order
                .into_iter()
                .map(|(at, descending)| {
                    let direction =
                        if descending { Direction::Descending } else { Direction::Ascending };
                    (at.index(columns), direction)
                })
                .collect();
            let offset = if order.is_empty() { 0 } else { offset };
            let totals = Some(Totals { measures: distinct, by: fields, order });
            Query { expr, order_by: Vec::new(), limit, offset, totals }
        },
    )
}

fn some_query() -> impl Strategy<Value = Query> {
    prop_oneof![2 => some_listing(), 1 => some_totals()]
}

fn some_listing() -> impl Strategy<Value = Query> {
    let order =
        (some_field(), any::<bool>()).prop_map(|(field, descending)| Order { field, descending });
    let orders = prop::collection::vec(order, 0..3);
    (some_expr(), orders, any::<Option<u64>>(), any::<u64>()).prop_map(
        |(expr, order_by, limit, offset)| {
            let offset = if order_by.is_empty() { 0 } else { offset };
            Query { expr, order_by, limit, offset, totals: None }
        },
    )
}

/// What may stand in a query, and what may not, in any order.
fn soup() -> impl Strategy<Value = String> {
    let pieces = vec![
        "a",
        "group",
        ".",
        "`x y`",
        "@path",
        "@pth",
        "=",
        "<",
        "<=",
        "=<",
        "!",
        "between",
        "and",
        "or",
        "not",
        "in",
        "(",
        ")",
        ",",
        "contains",
        "like",
        "exists",
        "under",
        "order",
        "by",
        "limit",
        "desc",
        "5",
        "-1.5e3",
        "inf",
        "nan",
        "2017-09-01",
        "\"t\"",
        "'\\u{e9}'",
        "\"",
        "'",
        "`",
        "\\",
        "é",
        "日",
        "\u{301}",
        "\0",
        "\n",
        "\r\n",
        "\t",
        "+",
        "..",
        "1e999",
        "true",
        "is",
        "null",
        "[",
        "]",
        ":p",
        "offset",
        "count",
        "mean",
        "where",
        "*",
    ];
    prop::collection::vec(
        (prop::sample::select(pieces), prop::sample::select(vec!["", " "])),
        0..24,
    )
    .prop_map(|pieces| pieces.into_iter().flat_map(|(piece, gap)| [piece, gap]).collect())
}

/// A text is refused with a place, or its tree is written so that it is read back.
fn holds(query: &str) -> Result<(), TestCaseError> {
    match parse(query) {
        Err(error) => {
            prop_assert_eq!(error.kind(), Kind::Query);
            prop_assert!(error.message().contains('^'));
        }
        Ok(tree) => {
            let written = tree.to_string();
            let read = parse(&written);
            prop_assert_eq!(read, Ok(tree), "{}", written);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn what_is_written_is_read_back(query in some_query()) {
        let written = query.to_string();
        let read = parse(&written);
        prop_assert_eq!(read.as_ref(), Ok(&query), "{}", &written);
        // Equal floats are of one sign, too.
        let again = read.map(|query| query.to_string());
        prop_assert_eq!(again, Ok(written));
    }

    #[test]
    fn any_text_is_read_or_refused(query in any::<String>()) {
        holds(&query)?;
    }

    #[test]
    fn any_words_are_read_or_refused(query in soup()) {
        holds(&query)?;
    }

    #[test]
    fn a_query_cut_short_is_read_or_refused(
        query in some_query(),
        cut in any::<prop::sample::Index>(),
    ) {
        let written = query.to_string();
        let starts = written.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
        if !starts.is_empty() {
            holds(&written[..starts[cut.index(starts.len())]])?;
        }
    }
}
