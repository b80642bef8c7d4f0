//! Zones: they never lose a row, and say all only where it is all.

use proptest::prelude::*;

use super::*;
use crate::cell::compare;
use crate::range::Bound;
use crate::segment::Slot;

/// Numbers close to each other and to where doubles lose integers, strings that share prefixes.
pub(crate) fn any_cell() -> impl Strategy<Value = Cell<'static>> {
    let edges = [0, 1, -1, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1, i64::MAX, i64::MIN];
    let floats = [0.0, -0.0, 1.0, 0.5, -1.5, 9_007_199_254_740_992.0, 1e300, f64::MIN_POSITIVE];
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 9_223_372_036_854_775_808.0];
    prop_oneof![
        4 => (-4_i64..4).prop_map(Cell::Int),
        2 => prop::sample::select(edges.to_vec()).prop_map(Cell::Int),
        1 => any::<i64>().prop_map(Cell::Int),
        1 => (1_u64 << 63..=u64::MAX).prop_map(Cell::Big),
        1 => (0_u64..4).prop_map(|below| Cell::Big(u64::MAX - below)),
        2 => prop::sample::select(floats.to_vec()).prop_map(Cell::Float),
        2 => prop::sample::select(odd.to_vec()).prop_map(Cell::Float),
        1 => any::<f64>().prop_map(Cell::Float),
        2 => any::<i64>().prop_map(Cell::Time),
        2 => (-2_i64..2).prop_map(Cell::Time),
        3 => "[ab\u{0}é]{0,3}".prop_map(|text| Cell::Text(text.into())),
        2 => "processi[ab\u{0}]{0,3}".prop_map(|text| Cell::Text(text.into())),
        1 => Just(Cell::Other),
    ]
}

/// Ranges whose ends are often of one class.
pub(crate) fn any_range() -> impl Strategy<Value = Range<'static>> {
    let end = || prop::option::of((any_cell(), any::<bool>()));
    (end(), end()).prop_map(|(low, high)| {
        let bound = |(cell, inclusive)| Bound { cell, inclusive };
        Range { low: low.map(bound), high: high.map(bound) }
    })
}

fn zones_of(cells: &[Slot<'_>]) -> Vec<Zone> {
    let mut builder = ZoneBuilder::default();
    cells.iter().flatten().flatten().for_each(|cell| builder.add(cell, 1));
    let sf = cells.iter().flatten().count();
    let unsure = cells.iter().flatten().any(Option::is_none);
    let zones = builder.finish(cells.len() as u32, sf as u32, unsure, false);
    for zone in &zones {
        assert_eq!(Zone::decode(&zone.encode()).unwrap(), *zone);
    }
    zones
}

/// What may truly be said: unsure rows may pass or fail.
pub fn check(verdict: ZoneVerdict, cells: &[Slot<'_>], test: impl Fn(&Cell<'_>) -> bool) {
    let sure = cells.iter().flatten().flatten().filter(|cell| test(cell)).count();
    let unsure = cells.iter().flatten().filter(|cell| cell.is_none()).count();
    match verdict {
        ZoneVerdict::None => assert_eq!(sure + unsure, 0),
        ZoneVerdict::All => assert_eq!(sure, cells.len()),
        ZoneVerdict::Some => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 2000 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn prefixes_never_turn_an_order_round(a in any_cell(), b in any_cell()) {
        if let (Some(order), Some(p), Some(q)) = (compare(&a, &b), prefix(&a), prefix(&b)) {
            prop_assert!(p.0 == q.0 || p.0.cmp(&q.0) == order);
            prop_assert!(p.0 != q.0 || !p.1 || !q.1 || order.is_eq());
        }
    }

    #[test]
    fn no_row_is_lost_and_all_is_all(
        cells in prop::collection::vec(
            prop_oneof![
                8 => any_cell().prop_map(|cell| Some(Some(cell))),
                1 => Just(None),
                1 => Just(Some(None)),
            ],
            1..5,
        ),
        same in any::<bool>(),
        range in any_range(),
    ) {
        let cells = if same { vec![cells[0].clone(); 3] } else { cells };
        let zones = zones_of(&cells);
        if range.low.is_some() || range.high.is_some() {
            check(judge(&zones, &range), &cells, |cell| range.holds(cell));
        }
        check(judge_cells(&zones, &|cell| range.holds(cell)), &cells, |cell| range.holds(cell));
        for cell in cells.iter().flatten().flatten() {
            let equal = Range::equal(cell);
            check(judge(&zones, &equal), &cells, |cell| equal.holds(cell));
        }
        let present = cells.iter().flatten().count();
        let expected = match present {
            0 => ZoneVerdict::None,
            all if all == cells.len() => ZoneVerdict::All,
            _ => ZoneVerdict::Some,
        };
        prop_assert_eq!(exists(&zones), expected);
    }
}

fn verdict(cells: &[Cell<'static>], range: &Range<'_>) -> ZoneVerdict {
    let cells: Vec<_> = cells.iter().cloned().map(|cell| Some(Some(cell))).collect();
    judge(&zones_of(&cells), range)
}

#[test]
fn a_constant_is_known_without_opening_the_segment() {
    let date = [Cell::Int(20_140_928), Cell::Int(20_140_928)];
    assert_eq!(verdict(&date, &Range::equal(&Cell::Int(20_140_928))), ZoneVerdict::All);
    assert_eq!(verdict(&date, &Range::equal(&Cell::Float(20_140_928.0))), ZoneVerdict::All);
    assert_eq!(verdict(&date, &Range::equal(&Cell::Int(20_140_929))), ZoneVerdict::None);
    assert_eq!(verdict(&date, &Range::above(Cell::Int(20_140_928), false)), ZoneVerdict::None);
    let level = [Cell::Text("four".into())];
    assert_eq!(verdict(&level, &Range::equal(&level[0])), ZoneVerdict::All);
    assert_eq!(verdict(&level, &Range::equal(&Cell::Text("four\0".into()))), ZoneVerdict::Some);
    let contains = |cell: &Cell<'_>| matches!(cell, Cell::Text(text) if text.contains("ou"));
    let zones = zones_of(&[Some(Some(level[0].clone()))]);
    assert_eq!(judge_cells(&zones, &contains), ZoneVerdict::All);
    assert_eq!(judge_cells(&zones, &|cell| !contains(cell)), ZoneVerdict::None);
}

#[test]
fn ends_decide_whole_ranges() {
    let cells = [Cell::Int(3), Cell::Float(4.5)];
    assert_eq!(verdict(&cells, &Range::above(Cell::Int(2), false)), ZoneVerdict::All);
    assert_eq!(verdict(&cells, &Range::above(Cell::Int(3), true)), ZoneVerdict::All);
    assert_eq!(verdict(&cells, &Range::above(Cell::Int(3), false)), ZoneVerdict::Some);
    assert_eq!(verdict(&cells, &Range::below(Cell::Int(3), false)), ZoneVerdict::None);
    assert_eq!(
        verdict(&cells, &Range::above(Cell::Text(String::new().into()), true)),
        ZoneVerdict::None
    );
}

#[test]
fn a_zone_of_an_unknown_class_is_refused() {
    let mut bytes = Zone::directory(1, 2, 3, 4).encode();
    bytes[8] = 5;
    assert!(Zone::decode(&bytes).is_err());
}
