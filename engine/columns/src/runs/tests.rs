//! Runs against a plain list, through merges, deaths and damage.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::merge::{Limits, merge_within};
use super::unfinished::{MergeSize, UNFINISHED};
use super::{RowSpan, RunEntry, RunTest, SortedRuns, append, head_key};
use crate::cell::{Cell, total_order};
use crate::column_key::OID;
use crate::range::{Bound, Range};
use crate::zone::{Zone, ZoneClass};
use crate::zones;
use engram_base::error::Kind;
use engram_catalog::{Catalog, Headroom, Options, Table};

/// Whether two cells are the same one.
pub(super) fn same(a: &Cell<'_>, b: &Cell<'_>) -> bool {
    match (a, b) {
        (Cell::Float(a), Cell::Float(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
        (Cell::Text(a), Cell::Text(b)) => a == b,
        (Cell::Int(a), Cell::Int(b)) | (Cell::Time(a), Cell::Time(b)) => a == b,
        (Cell::Big(a), Cell::Big(b)) => a == b,
        (Cell::Other, Cell::Other) => true,
        _ => false,
    }
}

/// Any cell, many of them near each other.
pub(super) fn cell() -> impl Strategy<Value = Cell<'static>> {
    let decimal = |(digits, scale): (i32, i32)| Cell::Float(f64::from(digits) / 10_f64.powi(scale));
    prop_oneof![
        (-50_i64..50).prop_map(Cell::Int),
        any::<i64>().prop_map(Cell::Int),
        (1_u64 << 63..).prop_map(Cell::Big),
        (any::<i32>(), 0..8).prop_map(decimal),
        (-50_i32..50, 0..2).prop_map(decimal),
        any::<f32>().prop_map(|single| Cell::Float(f64::from(single))),
        any::<u64>().prop_map(|bits| Cell::Float(f64::from_bits(bits))),
        prop::sample::select(vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY])
            .prop_map(Cell::Float),
        "[abä]{0,6}".prop_map(|text| Cell::Text(text.into())),
        (any::<i32>(), 0..10_u32)
            .prop_map(|(n, e)| Cell::Time(i64::from(n) * 10_i64.pow(e % 4 * 3))),
        Just(Cell::Other),
    ]
}

/// Cells of one sort, or of any.
fn column() -> impl Strategy<Value = Vec<Cell<'static>>> {
    let many = |cells: BoxedStrategy<Cell<'static>>| prop::collection::vec(cells, 1..400);
    prop_oneof![
        many(cell().boxed()),
        many((-300_i64..300).prop_map(Cell::Int).boxed()),
        many(any::<i64>().prop_map(Cell::Int).boxed()),
        many(any::<i32>().prop_map(|n| Cell::Float(f64::from(n) / 1e6)).boxed()),
        many(any::<f64>().prop_map(Cell::Float).boxed()),
        many("[a-c]{0,3}x[a-zß]{0,40}".prop_map(|text| Cell::Text(text.into())).boxed()),
        many(any::<i32>().prop_map(|s| Cell::Time(i64::from(s) * 1_000_000_000)).boxed()),
    ]
}

fn range() -> impl Strategy<Value = Range<'static>> {
    let end = || {
        let bound = (cell(), any::<bool>()).prop_map(|(cell, inclusive)| Bound { cell, inclusive });
        prop::option::of(bound)
    };
    prop_oneof![
        (end(), end()).prop_map(|(low, high)| Range { low, high }),
        cell().prop_map(|cell| Range::equal(&cell)),
        Just(all_texts()),
    ]
}

/// The range that has every text.
fn all_texts() -> Range<'static> {
    Range::above(Cell::Text("".into()), true)
}

/// A catalog of its own.
pub struct TempCatalog {
    _dir: Option<tempfile::TempDir>,
    path: PathBuf,
    pub(super) catalog: Catalog,
}

impl TempCatalog {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Catalog::create(dir.path(), &Options::default()).unwrap();
        let place = TempCatalog::of(dir.path());
        TempCatalog { _dir: Some(dir), ..place }
    }

    /// The one that another process has made.
    pub(super) fn of(path: &Path) -> Self {
        let catalog = Catalog::open(path, &Options::default()).unwrap();
        TempCatalog { _dir: None, path: path.to_owned(), catalog }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the catalog, which grows where it must.
    pub(super) fn change<T>(
        &self,
        change: impl Fn(&mut engram_catalog::WriteTxn<'_>) -> engram_base::error::Result<T>,
    ) -> T {
        loop {
            let mut txn = self.catalog.write(Headroom::Normal).unwrap();
            let changed = change(&mut txn);
            if let Some(pages) = txn.short_of() {
                drop(txn);
                self.catalog.extend(pages).unwrap();
                continue;
            }
            txn.commit().unwrap();
            return changed.unwrap();
        }
    }

    pub(super) fn add(&self, segment: u32, columns: &[(u32, Vec<(Cell<'static>, u16)>)]) {
        self.change(|txn| {
            let zone = Zone {
                segment,
                sf: 1,
                class: ZoneClass::Number,
                flags: 0,
                extra: 0,
                min: 0,
                max: 9,
            };
            zones::add(txn, segment, &[(OID, vec![zone])])?;
            columns.iter().try_for_each(|(column, cells)| append(txn, *column, segment, cells))
        });
    }

    fn mark_dead(&self, segment: u32, positions: &BTreeSet<u16>) {
        let mut row = vec![0_u8; 1 << 13];
        for at in positions {
            row[usize::from(at / 8)] |= 1 << (at % 8);
        }
        self.change(|txn| txn.put(Table::IndexDead, &segment.to_be_bytes(), &row));
    }
}

/// Every entry that there should be, by column, segment and position.
type Model = BTreeMap<(u32, u32, u16), Cell<'static>>;

/// Whether a range has the right entries of a column, dead ones aside.
pub(super) fn check(
    place: &TempCatalog,
    model: &Model,
    dead: &BTreeSet<(u32, u16)>,
    range: &Range<'_>,
) {
    let txn = place.catalog.read().unwrap();
    let alive = |segment| model.keys().any(|(_, of, _)| *of == segment);
    for column in 1..3 {
        let runs = SortedRuns::read(&txn, column).unwrap();
        let mut found: Vec<(u32, u16, Cell<'static>)> = Vec::new();
        let each = |segment, at, cell: &Cell<'_>| {
            found.push((segment, at, cell.clone().into_owned()));
        };
        runs.visit(range, &alive, each).unwrap();
        let count = runs.count(range).unwrap();
        assert!(count >= found.len() as u64 && runs.count_by_blocks(range).unwrap() >= count);
        found.retain(|(segment, at, _)| !dead.contains(&(*segment, *at)));
        found.sort_by_key(|(segment, at, _)| (*segment, *at));
        let of = |key: &(u32, u32, u16)| key.0 == column && !dead.contains(&(key.1, key.2));
        let wanted: Vec<_> =
            model.iter().filter(|(key, cell)| of(key) && range.holds(cell)).collect();
        assert_eq!(found.len(), wanted.len(), "{range:?}");
        for ((segment, at, cell), (key, wanted)) in found.iter().zip(wanted) {
            assert_eq!((column, *segment, *at), *key);
            assert!(same(cell, wanted), "{cell:?} instead of {wanted:?}");
        }
        check_found(&runs, range, &alive);
        if range.low.is_none() && range.high.is_none() {
            check_scattered(&runs, &found);
            check_walks(&runs, &found, |segment, at| {
                alive(segment) && !dead.contains(&(segment, at))
            });
        }
    }
}

/// A test of cells, which texts pass that contain "a".
fn passes(cell: &Cell<'_>) -> bool {
    match cell {
        Cell::Text(text) => text.contains('a'),
        Cell::Int(number) => number % 2 == 0,
        Cell::Float(number) => *number > 0.5,
        Cell::Time(_) | Cell::Big(_) | Cell::Far(_) | Cell::Other => true,
    }
}

/// The entries that are found in a range by a test, in order.
fn found_in(
    runs: &SortedRuns<'_>,
    range: &Range<'_>,
    test: &RunTest<'_>,
    alive: &dyn Fn(u32) -> bool,
) -> engram_base::error::Result<Vec<(u32, u16)>> {
    let named = |segment| alive(segment).then_some(segment);
    let mut found = Vec::new();
    for piece in runs.pieces(range)? {
        piece.find(&named, test, &mut |segment, at| found.push((segment, at)))?;
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether a range has by each test the entries that a visit comes by and that pass.
fn check_found(runs: &SortedRuns<'_>, range: &Range<'_>, alive: &dyn Fn(u32) -> bool) {
    let mut visited = Vec::new();
    let each = |segment, at, cell: &Cell<'_>| visited.push((segment, at, passes(cell)));
    runs.visit(range, alive, each).unwrap();
    visited.sort_unstable();
    let of = |wanted: &dyn Fn(bool) -> bool| -> Vec<(u32, u16)> {
        let passing = visited.iter().filter(|(.., passed)| wanted(*passed));
        passing.map(|(segment, at, _)| (*segment, *at)).collect()
    };
    let found = |test: &RunTest<'_>| found_in(runs, range, test, alive).unwrap();
    assert_eq!(found(&RunTest::all()), of(&|_| true), "{range:?}");
    for part in [None, Some("a")] {
        assert_eq!(found(&RunTest::new(&passes, part)), of(&|passed| passed), "{range:?}");
    }
}

/// Whether scattered numbers are these entries, if they are numbers of one kind.
fn check_scattered(runs: &SortedRuns<'_>, found: &[(u32, u16, Cell<'static>)]) {
    const ROWS: usize = 1 << 12;
    let segments: BTreeSet<u32> = found.iter().map(|(segment, ..)| *segment).collect();
    let span = |segment: u32| {
        let place = segments.iter().position(|known| *known == segment)?;
        Some(RowSpan { start: place * ROWS, rows: ROWS })
    };
    let scattered = runs.scatter(&span, segments.len() * ROWS).unwrap();
    let Some(numbers) = scattered else { return };
    for (segment, at, cell) in found {
        let place = span(*segment).unwrap().start + usize::from(*at);
        assert!(same(&numbers.cell(place), cell), "{:?} for {cell:?}", numbers.cell(place));
    }
}

/// Whether walks from both ends come by these entries, and by no others that live, in order.
fn check_walks(
    runs: &SortedRuns<'_>,
    found: &[(u32, u16, Cell<'static>)],
    lives: impl Fn(u32, u16) -> bool,
) {
    for descending in [false, true] {
        let mut walk = runs.walk(descending).unwrap();
        let (mut walked, mut before): (Vec<_>, Option<Cell<'_>>) = (Vec::new(), None);
        while let Some(RunEntry { segment, position, cell }) = walk.next_entry().unwrap() {
            if let Some(before) = before.replace(cell.clone()) {
                let order = total_order(&before, &cell);
                assert!(if descending { order.is_ge() } else { order.is_le() });
            }
            walked.extend(lives(segment, position).then_some((segment, position, cell)));
        }
        walked.sort_by_key(|(segment, at, _)| (*segment, *at));
        assert_eq!(walked.len(), found.len());
        for (walked, found) in walked.iter().zip(found) {
            assert_eq!((walked.0, walked.1), (found.0, found.1));
            assert!(same(&walked.2, &found.2));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
    fn runs_find_what_a_plain_look_finds(
        segments in prop::collection::vec((column(), column()), 1..12),
        gone in prop::collection::btree_set(0_u32..12, 0..5),
        dying in prop::collection::vec((0_u32..12, 0_u16..400), 0..200),
        ranges in prop::collection::vec(range(), 12),
        fan_out in 2_usize..5,
        (entries, blocks, removed) in (100_usize..900, 6_usize..20, 1_u32..4),
    ) {
        let place = TempCatalog::new();
        let mut model = Model::new();
        let mut ranges = ranges;
        ranges.push(Range::default());
        for (segment, (first, second)) in (0..).zip(segments) {
            let both = [(1, first), (2, second)].map(|(column, cells)| {
                ranges.push(Range::equal(&cells[0]));
                let placed: Vec<_> = cells.into_iter().zip(0_u16..).collect();
                for (cell, at) in &placed {
                    model.insert((column, segment, *at), cell.clone());
                }
                (column, placed)
            });
            place.add(segment, &both);
        }
        let none = BTreeSet::new();
        for range in &ranges {
            check(&place, &model, &none, range);
        }
        // Some segments go, and some positions die.
        model.retain(|(_, segment, _), _| !gone.contains(segment));
        place.change(|txn| gone.iter().try_for_each(|segment| zones::remove(txn, *segment, [])));
        let dead: BTreeSet<(u32, u16)> =
            dying.into_iter().filter(|(segment, _)| !gone.contains(segment)).collect();
        for segment in 0..12 {
            let here = dead.iter().filter(|(of, _)| *of == segment).map(|(_, at)| *at).collect();
            place.mark_dead(segment, &here);
        }
        for range in &ranges {
            check(&place, &model, &dead, range);
        }
        let part = MergeSize { entries, blocks, removed };
        while place.change(|txn| merge_within(txn, Limits { fan_out, entries: 3000, part })) {
            for range in ranges.iter().take(4) {
                check(&place, &model, &dead, range);
            }
        }
        for range in &ranges {
            check(&place, &model, &dead, range);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
    fn damaged_runs_are_errors_or_bounded(
        first in column(),
        second in column(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        at_part in any::<prop::sample::Index>(),
        cut in prop::option::of(any::<prop::sample::Index>()),
        range in range(),
    ) {
        let place = TempCatalog::new();
        for (segment, cells) in (0..).zip([first, second]) {
            place.add(segment, &[(1, cells.into_iter().zip(0_u16..).collect())]);
        }
        let rows: Vec<(Vec<u8>, Vec<u8>)> = {
            let txn = place.catalog.read().unwrap();
            let mut cursor = txn.seek(Table::IndexRuns, &[]).unwrap();
            std::iter::from_fn(|| cursor.next().unwrap())
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect()
        };
        let (key, mut value) = at_part.get(&rows).clone();
        // Mostly near the front, where what matters most is.
        let reach = rows[0].1.len().min(value.len());
        for (at, byte) in &damage {
            value[at.index(reach)] = *byte;
        }
        if let Some(cut) = cut {
            value.truncate(cut.index(value.len()));
        }
        place.change(|txn| txn.put(Table::IndexRuns, &key, &value));
        let txn = place.catalog.read().unwrap();
        let whole = |_: u32| true;
        for range in [range, all_texts(), Range::default()] {
            let Ok(runs) = SortedRuns::read(&txn, 1) else { continue };
            let mut visited = 0_usize;
            let by = |test: &RunTest<'_>| {
                found_in(&runs, &range, test, &whole).map(|found| found.len())
            };
            let walked = |descending| {
                let mut walk = runs.walk(descending)?;
                std::iter::from_fn(|| walk.next_entry().transpose())
                    .try_fold(0, |entries, entry| entry.map(|_| entries + 1))
            };
            let scattered = runs.scatter(&|_| Some(RowSpan { start: 0, rows: 1 << 9 }), 1 << 9);
            for read in [
                runs.count(&range).map(|_| 0),
                runs.count_by_blocks(&range).map(|_| 0),
                runs.visit(&range, &whole, |_, _, _| visited += 1).map(|()| 0),
                by(&RunTest::all()),
                by(&RunTest::new(&passes, None)),
                by(&RunTest::new(&passes, Some("a"))),
                walked(false),
                walked(true),
                scattered.map(|_| 0),
            ] {
                match read {
                    Ok(found) => prop_assert!(found <= 1 << 20),
                    Err(error) => prop_assert_eq!(error.kind(), Kind::Corrupt),
                }
            }
            prop_assert!(visited <= 1 << 20);
        }
        drop(txn);
        let mut txn = place.catalog.write(Headroom::Normal).unwrap();
        let limits = Limits { fan_out: 2, entries: 3000, part: MergeSize::USUAL };
        if let Err(error) = merge_within(&mut txn, limits) {
            prop_assert!(txn.short_of().is_some() || error.kind() == Kind::Corrupt);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
fn a_part_is_looked_for_in_all_texts_of_a_block_and_the_test_is_not_asked() {
    let place = TempCatalog::new();
    let words = ["kestrel", "merlin", "osprey", "kite"];
    let texts = (0..1000_u16).map(|at| (Cell::Text(words[usize::from(at) % 4].into()), at));
    place.add(0, &[(7, texts.collect())]);
    let txn = place.catalog.read().unwrap();
    let runs = SortedRuns::read(&txn, 7).unwrap();
    let unasked = |cell: &Cell<'_>| panic!("the test was asked of {cell:?}");
    let test = RunTest::new(&unasked, Some("rlin"));
    for range in [all_texts(), Range::default()] {
        let found = found_in(&runs, &range, &test, &|_| true).unwrap();
        assert_eq!(found, (0..250).map(|nth| (0, nth * 4 + 1)).collect::<Vec<_>>());
    }
    // A range that begins behind some texts asks of each that is in it.
    let asked = |cell: &Cell<'_>| matches!(cell, Cell::Text(text) if text.contains('i'));
    let range = Range::above(Cell::Text("kestrel".into()), false);
    let found = found_in(&runs, &range, &RunTest::new(&asked, Some("i")), &|_| true).unwrap();
    assert_eq!(found.len(), 500);
}

#[test]
#[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
fn many_entries_are_merged_level_by_level() {
    let place = TempCatalog::new();
    let value = |at: u32| (f64::from(at.wrapping_mul(2_654_435_761) >> 4) / 1e6, at);
    for segment in 0..22 {
        let cells =
            (0..1000_u16).map(|at| (Cell::Float(value(segment * 1000 + u32::from(at)).0), at));
        place.add(segment, &[(7, cells.collect())]);
        while place.change(|txn| super::merge_some(txn, 1 << 15)) {}
    }
    let txn = place.catalog.read().unwrap();
    let runs = SortedRuns::read(&txn, 7).unwrap();
    // 22 is 112 in base 4: 1 + 1 + 2 runs.
    assert_eq!(runs.size(), (4, 22_000));
    assert!(runs.bytes().unwrap() < 22_000 * 6);
    let mut values: Vec<(f64, u32)> = (0..22_000).map(value).collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    for pair in values.windows(2).step_by(37) {
        let range = Range::above(Cell::Float(pair[0].0), true);
        let high = Range::below(Cell::Float(pair[1].0), false).high;
        let mut found = Vec::new();
        let each = |segment, at, _: &Cell<'_>| found.push(segment * 1000 + u32::from(at));
        runs.visit(&Range { low: range.low, high }, &|_| true, each).unwrap();
        assert_eq!(found, [pair[0].1]);
        let below = Range::below(Cell::Float(pair[0].0), false);
        let before = values.partition_point(|(value, _)| *value < pair[0].0);
        assert_eq!(runs.count(&below).unwrap(), before as u64);
    }
    assert!(txn.get(Table::IndexRuns, &head_key(7, 1)).unwrap().is_none());
}

/// Every block there is, and how many of them belong to runs.
pub(super) fn blocks_of(txn: &engram_catalog::Txn<'_>) -> (usize, usize) {
    let (mut rows, mut cursor) = (0, txn.seek(Table::IndexRuns, &[]).unwrap());
    while let Some((key, _)) = cursor.next().unwrap() {
        rows += usize::from(key[4..8] != [0; 4]);
    }
    let heads = super::heads(txn, 7).unwrap();
    (rows, heads.iter().map(|(_, head)| head.blocks()).sum())
}

#[test]
#[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
fn a_large_merge_goes_on_part_by_part_while_segments_come_go_and_die() {
    let place = TempCatalog::new();
    let part = MergeSize { entries: 700, blocks: 8, removed: 2 };
    let limits = Limits { fan_out: 4, entries: 1 << 20, part };
    let cell = |segment: u32, at: u16| {
        let number = (segment * 1000 + u32::from(at)).wrapping_mul(2_654_435_761) >> 8;
        match segment {
            // Keys of other packings, which one packing has to take together.
            0 | 5 => Cell::Float(f64::from(number) / 8.0),
            _ => Cell::Float(f64::from(number) / 1e3),
        }
    };
    let add = |segment| {
        place.add(segment, &[(7, (0..1000).map(|at| (cell(segment, at), at)).collect())]);
    };
    (0..4).for_each(add);
    let found = |segment: u32| {
        let txn = place.catalog.read().unwrap();
        let runs = SortedRuns::read(&txn, 7).unwrap();
        let (mut found, mut before) = (BTreeSet::new(), None);
        let each = |of, at, here: &Cell<'_>| {
            if of == segment {
                assert!(same(here, &cell(segment, at)), "{here:?}");
                assert!(found.insert(at), "{segment}: {at} is there twice");
            }
            before = Some(here.clone().into_owned());
        };
        runs.visit(&Range::default(), &|_| true, each).unwrap();
        found.len()
    };
    let mut steps = 0;
    while place.change(|txn| merge_within(txn, limits)) {
        steps += 1;
        match steps {
            1 => {
                let txn = place.catalog.read().unwrap();
                assert!(txn.get(Table::Meta, UNFINISHED).unwrap().is_some());
                assert_eq!(SortedRuns::read(&txn, 7).unwrap().size(), (4, 4000));
                drop(txn);
                add(5);
            }
            2 => place.change(|txn| zones::remove(txn, 1, [])),
            3 => place.mark_dead(2, &(0..900).collect()),
            _ => {}
        }
        for segment in [0, 3] {
            assert_eq!(found(segment), 1000, "after {steps} steps");
        }
        if steps > 1 {
            assert_eq!(found(5), 1000, "after {steps} steps");
        }
    }
    assert!(steps > 6, "{steps} steps");
    let txn = place.catalog.read().unwrap();
    assert!(txn.get(Table::Meta, UNFINISHED).unwrap().is_none());
    let (rows, of_runs) = blocks_of(&txn);
    assert_eq!(rows, of_runs, "no block is left that is of no run");
    let (runs, entries) = SortedRuns::read(&txn, 7).unwrap().size();
    assert!(runs == 2 && entries < 4600, "{runs} runs with {entries} entries");
    let mut seen = 0;
    super::check(&place.catalog.read().unwrap(), 7, |_, _, _| seen += 1).unwrap();
    assert_eq!(seen, entries);
}

#[test]
#[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
fn a_merge_whose_runs_others_have_merged_is_given_up() {
    let place = TempCatalog::new();
    let add = |segment: u32| {
        let cells = (0..1000_u16).map(|at| (Cell::Int(i64::from(at) * 7919 % 1009), at));
        place.add(segment, &[(7, cells.collect())]);
    };
    (0..4).for_each(add);
    let part = MergeSize { entries: 1500, ..MergeSize::USUAL };
    assert!(place.change(|txn| merge_within(txn, Limits { fan_out: 4, entries: 9000, part })));
    let row = place.catalog.read().unwrap().get(Table::Meta, UNFINISHED).unwrap().unwrap().to_vec();
    // An engine that does not know the row merges the same runs at once, by the same number.
    place.change(|txn| txn.delete(Table::Meta, UNFINISHED).map(|_| ()));
    let whole = Limits { fan_out: 4, entries: 9000, part: MergeSize::USUAL };
    assert!(place.change(|txn| merge_within(txn, whole)));
    place.change(|txn| txn.put(Table::Meta, UNFINISHED, &row));
    while place.change(|txn| merge_within(txn, Limits { fan_out: 4, entries: 9000, part })) {}
    let txn = place.catalog.read().unwrap();
    assert!(txn.get(Table::Meta, UNFINISHED).unwrap().is_none());
    let (rows, of_runs) = blocks_of(&txn);
    assert_eq!(rows, of_runs);
    assert_eq!(SortedRuns::read(&txn, 7).unwrap().size(), (1, 4000));
    super::check(&txn, 7, |_, _, _| ()).unwrap();
}
