//! Each rule of comparison as a case, and ranges held to what single cells say.

use super::{CellClass, Predicate, after};
use crate::ast::{Comparison, Test};
use engram_columns::cell::{Cell, Cells};
use engram_columns::literal::Literal;
use engram_columns::literal::time_of;
use proptest::prelude::*;

const DAY: i64 = 86_400_000_000_000;

fn text(text: &str) -> Cell<'_> {
    Cell::Text(text.into())
}

fn word(text: &str) -> Literal {
    Literal::Text(text.to_owned())
}

fn is(comparison: Comparison, value: Literal) -> Predicate {
    Predicate::new(&Test::Compare(comparison, value))
}

fn each(test: &Test, cases: &[(Cell<'_>, bool)]) {
    let predicate = Predicate::new(test);
    for (cell, expected) in cases {
        assert_eq!(predicate.cell(cell), *expected, "{cell:?} against {test:?}");
    }
}

#[test]
fn numbers_compare_whatever_their_width() {
    each(
        &Test::Compare(Comparison::Eq, Literal::Int(1)),
        &[(Cell::Int(1), true), (Cell::Float(1.0), true), (Cell::Float(1.5), false)],
    );
    each(
        &Test::Compare(Comparison::Gt, Literal::Float(9_007_199_254_740_992.0)),
        &[(Cell::Int((1 << 53) + 1), true), (Cell::Int(1 << 53), false)],
    );
    each(
        &Test::Compare(Comparison::Ge, Literal::Big(u64::MAX)),
        &[(Cell::Big(u64::MAX), true), (Cell::Float(f64::INFINITY), true)],
    );
    each(
        &Test::Compare(Comparison::Eq, Literal::Int(0)),
        &[(Cell::Float(-0.0), true), (Cell::Float(f64::NAN), false)],
    );
}

#[test]
fn unlike_types_are_neither_equal_nor_unequal() {
    let cells = [text("5"), Cell::Time(5), Cell::Other];
    for comparison in [Comparison::Eq, Comparison::Ne, Comparison::Lt, Comparison::Ge] {
        for cell in &cells {
            assert!(!is(comparison, Literal::Int(5)).cell(cell), "{comparison:?} {cell:?}");
        }
        assert!(!is(comparison, word("5")).cell(&Cell::Int(5)));
        assert!(!is(comparison, word("no date")).cell(&Cell::Time(0)));
        assert!(!is(comparison, word("5")).cell(&Cell::Float(f64::NAN)));
    }
}

#[test]
fn nan_is_only_unequal() {
    let nan = Cell::Float(f64::NAN);
    assert!(is(Comparison::Ne, Literal::Int(5)).cell(&nan));
    assert!(Predicate::new(&Test::Exists).cell(&nan));
    let all = f64::INFINITY;
    let others = [
        Test::Compare(Comparison::Le, Literal::Float(all)),
        Test::Between(Literal::Float(-all), Literal::Float(all)),
        Test::In(vec![Literal::Int(5)]),
        Test::Contains(Literal::Int(5)),
        Test::Like("%".to_owned()),
    ];
    assert!(others.iter().all(|test| !Predicate::new(test).cell(&nan)));
}

#[test]
fn a_string_beside_a_time_is_what_it_names() {
    each(
        &Test::Compare(Comparison::Lt, word("1970-01-02")),
        &[
            (Cell::Time(DAY - 1), true),
            (Cell::Time(DAY), false),
            (text("1970-01-01"), true),
            (text("1970-01-03"), false),
        ],
    );
    each(
        &Test::In(vec![word("1970-01-02T00:00Z"), Literal::Int(7)]),
        &[
            (Cell::Time(DAY), true),
            (Cell::Time(DAY + 1), false),
            (text("1970-01-02"), false),
            (Cell::Int(DAY), false),
        ],
    );
    each(
        &Test::Between(word("1970-01-01"), word("1970-01-02")),
        &[
            (Cell::Time(-1), false),
            (Cell::Time(0), true),
            (Cell::Time(2 * DAY - 1), true),
            (Cell::Time(2 * DAY), false),
            (text("1970-01-01 9"), true),
        ],
    );
    each(&Test::Contains(word("1970-01-02")), &[(Cell::Time(2 * DAY - 1), true)]);
    each(&Test::StartsWith("1970".to_owned()), &[(Cell::Time(0), false)]);
}

#[test]
fn a_date_is_a_stretch_before_and_after_which_the_others_are() {
    let year = 365 * DAY;
    let cells = [-1, 0, year / 2, year - 1, year].map(Cell::Time);
    let cases = [
        (Comparison::Eq, [false, true, true, true, false]),
        (Comparison::Ne, [true, false, false, false, true]),
        (Comparison::Lt, [true, false, false, false, false]),
        (Comparison::Le, [true, true, true, true, false]),
        (Comparison::Gt, [false, false, false, false, true]),
        (Comparison::Ge, [false, true, true, true, true]),
    ];
    for (comparison, expected) in cases {
        let test = Test::Compare(comparison, word("1970"));
        for (cell, expected) in cells.iter().zip(expected) {
            each(&test, &[(cell.clone(), expected)]);
        }
    }
    let several = Test::In(vec![word("1970-01"), word("1970-01-05"), word("1970-03-02T00")]);
    let found = [0, 31 * DAY - 1, 31 * DAY, 60 * DAY, 60 * DAY + 1].map(Cell::Time);
    for (cell, expected) in found.into_iter().zip([true, true, false, true, false]) {
        each(&several, &[(cell, expected)]);
    }
}

#[test]
fn strings_are_looked_into_as_they_are_written() {
    each(&Test::Contains(word("b")), &[(text("abc"), true), (text("aBc"), false)]);
    each(&Test::Contains(Literal::Int(5)), &[(Cell::Int(5), true), (text("5"), false)]);
    each(&Test::StartsWith("ab".to_owned()), &[(text("abc"), true), (text("Abc"), false)]);
    each(&Test::EndsWith("bc".to_owned()), &[(text("abc"), true), (text("c"), false)]);
    each(&Test::Like("a_c%".to_owned()), &[(text("abcd"), true), (text("ABC"), false)]);
}

#[test]
fn one_item_of_an_array_compares_as_it_does_and_is_contained_as_a_whole() {
    let item = Cells::Item(text("abc"));
    let says = |test: Test| Predicate::new(&test).cells(&item);
    assert!(says(Test::Exists) && says(Test::Contains(word("abc"))));
    assert!(says(Test::Compare(Comparison::Eq, word("abc"))) && says(Test::Like("a%".to_owned())));
    assert!(!says(Test::Contains(word("b"))) && !says(Test::Contains(Literal::Int(1))));
}

#[test]
fn several_items_are_there_and_contain() {
    let items = Cells::Many(vec![Cell::Int(1), text("abc"), Cell::Float(f64::NAN)]);
    let none = Cells::Many(Vec::new());
    let says = |test: Test, cells: &Cells<'_>| Predicate::new(&test).cells(cells);
    assert!(says(Test::Exists, &items) && says(Test::Exists, &none));
    assert!(says(Test::Contains(Literal::Float(1.0)), &items));
    assert!(says(Test::Contains(word("abc")), &items));
    assert!(!says(Test::Contains(word("b")), &items));
    assert!(!says(Test::Contains(Literal::Int(2)), &items));
    assert!(!says(Test::Contains(Literal::Int(1)), &none));
    assert!(!says(Test::Compare(Comparison::Ne, Literal::Int(9)), &items));
    assert!(!says(Test::Like("%".to_owned()), &items));
}

#[test]
fn instants_that_64_bits_cannot_count_compare_exactly() {
    let [before, after] = [word("1550-01-01"), word("2500")];
    let far = |text: &str| time_of(&word(text)).unwrap();
    let cells = ["1000-01-01", "1549-12-31T23:59", "1550", "1700", "2499-12-31", "2500", "2501"];
    let lows = [true, true, false, false, false, false, false];
    let highs = [false, false, false, false, false, true, true];
    for ((cell, low), high) in cells.into_iter().zip(lows).zip(highs) {
        each(&Test::Compare(Comparison::Lt, before.clone()), &[(far(cell), low)]);
        each(&Test::Compare(Comparison::Ge, after.clone()), &[(far(cell), high)]);
        let between = Test::Between(before.clone(), word("2499-12-31"));
        each(&between, &[(far(cell), !low && !high)]);
        each(&Test::In(vec![word(cell)]), &[(far(cell), true), (far("1300"), false)]);
        each(&Test::Compare(Comparison::Ne, word("1550")), &[(far(cell), cell != "1550")]);
    }
}

#[test]
fn the_next_string_steps_over_what_is_no_character() {
    assert_eq!(after("ab").as_deref(), Some("ac"));
    assert_eq!(after("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
    assert_eq!(after("a\u{10ffff}").as_deref(), Some("b"));
    assert_eq!(after("\u{10ffff}"), None);
    assert_eq!(after(""), None);
}

fn some_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab%_\u{d7ff}\u{10ffff}]{0,3}",
        Just("1970-01-02".to_owned()),
        Just("1970-01-01T00:00:00.000000001".to_owned()),
        Just("1969".to_owned()),
    ]
}

fn some_literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        (-3_i64..3).prop_map(Literal::Int),
        Just(Literal::Big(u64::MAX)),
        prop_oneof![-3.0..3.0, Just(f64::INFINITY), Just(-0.0)].prop_map(Literal::Float),
        some_text().prop_map(Literal::Text),
        prop::sample::select(vec!["1000", "1100", "1970", "1970-01", "2262", "2300-05", "2400"])
            .prop_map(word),
    ]
}

fn some_cell() -> impl Strategy<Value = Cell<'static>> {
    prop_oneof![
        (-3_i64..3).prop_map(Cell::Int),
        Just(Cell::Big(u64::MAX)),
        prop_oneof![-3.0..3.0, Just(f64::NAN), Just(f64::INFINITY)].prop_map(Cell::Float),
        some_text().prop_map(|text| Cell::Text(text.into())),
        prop_oneof![-1_i64..3, Just(DAY), Just(32 * DAY), Just(i64::MAX)].prop_map(Cell::Time),
        Just(Cell::Other),
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn ranges_say_what_cells_say(test in some_test(), cell in some_cell()) {
        let predicate = Predicate::new(&test);
        let truth = predicate.cell(&cell);
        if matches!(cell, Cell::Float(value) if value.is_nan()) {
            prop_assert_eq!(truth, predicate.takes_nan());
        } else if matches!(cell, Cell::Other) {
            prop_assert_eq!(truth, !predicate.ranges(CellClass::Other).is_empty());
        } else {
            let ranges = predicate.ranges(CellClass::of(&cell));
            let around = ranges.iter().find(|range| range.holds(&cell));
            prop_assert!(!truth || around.is_some());
            prop_assert!(truth || around.is_none_or(|range| !range.exact));
        }
    }

    #[test]
    fn strings_that_pass_have_all_parts(test in some_test(), text in some_text()) {
        let predicate = Predicate::new(&test);
        let passes = predicate.cell(&Cell::Text(text.as_str().into()));
        prop_assert!(!passes || predicate.parts().iter().all(|part| text.contains(part)));
    }

    #[test]
    fn one_item_in_an_array_is_contained_where_it_equals(value in some_literal(),
                                                         cell in some_cell()) {
        let contains = Predicate::new(&Test::Contains(value.clone()));
        let many = Cells::Many(vec![Cell::Other, cell.clone()]);
        prop_assert_eq!(contains.cells(&many), is(Comparison::Eq, value).cell(&cell));
    }

    #[test]
    fn any_of_several_is_any_equal(values in prop::collection::vec(some_literal(), 0..5),
                                   cell in some_cell()) {
        let any = values.iter().any(|value| is(Comparison::Eq, value.clone()).cell(&cell));
        prop_assert_eq!(Predicate::new(&Test::In(values)).cell(&cell), any);
    }
}
