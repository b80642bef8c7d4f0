//! The allocator beside a naive map of the arena, line by line.

use std::collections::HashSet;
use std::ops::Range;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};

use super::reclaim::Reclaimed;
use super::{
    ExtentHolder, Floor, FreedOf, Span, Wanted, allocate, check_size, covers, end_reservation,
    freed_row, has_reserved, insert_free, parse_free, parse_size_key, pending_rows, reclaim,
    reserve_row, reserving, take_back,
};
use engram_base::error::{Error, Kind};
use engram_catalog::testing::MemoryRows;
use engram_catalog::{Catalog, Headroom, Options, ReadTxn, Table, WriteTxn};
use engram_records::extent::{Extent, HUGE, LINE, PAGE, SIZE_MAX, best_align, extent_len};

/// The arena: large enough for one extent that wants the alignment of huge pages.
const ARENA: u64 = 3 << 20;
const LEASES: [u64; 3] = [1, 5, u64::MAX];

/// What an extent of the model is, if it is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reserved(u64),
    Used,
    Freed(u64),
}

/// One transaction.
#[derive(Clone, Debug)]
enum Step {
    Reserve { lease: u64, nbytes: u64, warm: Index, within: Option<(u64, u64)> },
    Use { which: Index },
    Free { which: Index },
    TakeBack { lease: u64 },
    Reclaim { behind: u64, pinned: Vec<Index>, shown: Vec<(Index, u64)>, rows_max: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let nbytes = prop_oneof![
        4 => 0..(8 * LINE),
        3 => 0..(20 * PAGE),
        1 => 0..(2 << 20) + PAGE,
    ];
    let within = (0..48u64, 1..32u64).prop_map(|(from, len)| (from << 16, len << 16));
    let leases = || select(LEASES.to_vec());
    let shown = prop::collection::vec((any::<Index>(), 1..200u64), 0..4);
    prop_oneof![
        6 => (leases(), nbytes, any::<Index>(), prop::option::weighted(0.3, within)).prop_map(
            |(lease, nbytes, warm, within)| Step::Reserve { lease, nbytes, warm, within }
        ),
        4 => any::<Index>().prop_map(|which| Step::Use { which }),
        4 => any::<Index>().prop_map(|which| Step::Free { which }),
        1 => leases().prop_map(|lease| Step::TakeBack { lease }),
        3 => (0..6u64, prop::collection::vec(any::<Index>(), 0..3), shown, 1..6usize).prop_map(
            |(behind, pinned, shown, rows_max)| Step::Reclaim { behind, pinned, shown, rows_max }
        ),
    ]
}

/// Lines in order, as runs of lines that touch.
fn runs(lines: impl Iterator<Item = u64>) -> Vec<Extent> {
    let mut runs: Vec<Extent> = Vec::new();
    for line in lines {
        match runs.last_mut().filter(|run| run.end() == line * LINE) {
            Some(run) => run.len += LINE,
            None => runs.push(Extent { offset: line * LINE, len: LINE }),
        }
    }
    runs
}

/// Every extent that is not free.
#[derive(Default)]
struct Model(Vec<(Extent, State)>);

impl Model {
    /// The free runs, found by marking each line of the arena.
    fn free(&self) -> Vec<Extent> {
        let mut taken = vec![false; (ARENA / LINE) as usize];
        for (extent, _) in &self.0 {
            for line in extent.offset / LINE..extent.end() / LINE {
                let line = &mut taken[line as usize];
                assert!(!*line, "{extent:?} and another have the same bytes");
                *line = true;
            }
        }
        runs((0..).zip(&taken).filter(|(_, taken)| !**taken).map(|(line, _)| line))
    }

    fn of_state(&self, is: impl Fn(State) -> bool) -> Vec<usize> {
        (0..self.0.len()).filter(|place| is(self.0[*place].1)).collect()
    }

    /// Whether `len` bytes have a place at this alignment in a part of a free run.
    fn fits(&self, len: u64, align: u64, within: Option<Extent>) -> bool {
        self.free().into_iter().any(|run| {
            let range = within.unwrap_or(Extent { offset: 0, len: ARENA });
            let (start, end) = (run.offset.max(range.offset), run.end().min(range.end()));
            start.next_multiple_of(align) + len <= end
        })
    }

    fn reserve(&mut self, txn: &mut WriteTxn<'_>, step: &Step) {
        let Step::Reserve { lease, nbytes, warm, within } = step else { unreachable!() };
        let len = extent_len(*nbytes);
        let freed = self.free();
        let warm = [freed.get(warm.index(freed.len() + 1)).copied().unwrap_or(Extent {
            offset: warm.index((ARENA / LINE) as usize) as u64 * LINE,
            len: LINE,
        })];
        let range = within.map(|(offset, len)| Extent { offset, len });
        let ranges = range.map(|range| [range]);
        let wanted = Wanted { len, warm: &warm, within: ranges.as_ref().map(|one| &one[..]) };
        if let Some(got) = allocate(txn, &wanted).unwrap() {
            assert!(got.len == len && got.offset.is_multiple_of(LINE), "{got:?} for {len}");
            let range = range.unwrap_or(Extent { offset: 0, len: ARENA });
            assert!(got.offset >= range.offset && got.end() <= range.end(), "{got:?}");
            reserve_row(txn, *lease, got).unwrap();
            self.0.push((got, State::Reserved(*lease)));
        } else {
            let align = best_align(len).min(PAGE);
            assert!(!self.fits(len, align, range), "{len} bytes had a place");
        }
    }

    fn reclaim(&mut self, txn: &mut WriteTxn<'_>, step: &Step) {
        let Step::Reclaim { behind, pinned, shown, rows_max } = step else { unreachable!() };
        let freed = self.of_state(|state| matches!(state, State::Freed(_)));
        let pins = pinned.iter().filter(|_| !freed.is_empty());
        let pins: HashSet<u64> =
            pins.map(|one| self.0[freed[one.index(freed.len())]].0.offset).collect();
        let age = txn.id().saturating_sub(*behind);
        // They begin within freed extents, if there are any.
        let shown = shown.iter().map(|(place, lines)| {
            let first = freed.get(place.index(freed.len() + 1)).map(|one| self.0[*one].0);
            let begin = first.map_or(0, |extent| extent.offset / LINE);
            begin + place.index(100) as u64..begin + place.index(100) as u64 + lines
        });
        let shown: Vec<Range<u64>> = shown.collect();
        let extent =
            |of: &Range<u64>| Extent { offset: of.start * LINE, len: (of.end - of.start) * LINE };
        let pages = shown.iter().map(extent).collect();
        let floor = Floor { age, pins, pages, ..Floor::default() };
        let (mut sum, mut resume) = ((0, 0), None);
        loop {
            let Reclaimed { bytes, waiting, resume: next } =
                reclaim(txn, &floor, resume, *rows_max).unwrap();
            sum = (sum.0 + bytes, sum.1 + waiting);
            if next.is_none() {
                break;
            }
            assert!(resume < next, "each run goes on behind the last");
            resume = next;
        }
        let (mut expected, mut left) = ((0, 0), Vec::new());
        let is_shown = |line: &u64| shown.iter().any(|range| range.contains(line));
        for (extent, state) in self.0.drain(..) {
            match state {
                State::Freed(by) if !floor.pins.contains(&extent.offset) => {
                    let lines = extent.offset / LINE..extent.end() / LINE;
                    let kept = runs(lines.filter(is_shown));
                    let rest = extent.len - kept.iter().map(|run| run.len).sum::<u64>();
                    if by <= floor.age {
                        expected.0 += rest;
                        left.extend(kept.into_iter().map(|run| (run, state)));
                    } else {
                        expected.1 += rest;
                        left.push((extent, state));
                    }
                }
                _ => left.push((extent, state)),
            }
        }
        self.0 = left;
        assert_eq!(sum, expected, "bytes that are free again, and that wait");
    }

    fn run(&mut self, txn: &mut WriteTxn<'_>, step: &Step) {
        match step {
            Step::Reserve { .. } => self.reserve(txn, step),
            Step::Use { which } => {
                let reserved = self.of_state(|state| matches!(state, State::Reserved(_)));
                if !reserved.is_empty() {
                    let (extent, state) = &mut self.0[reserved[which.index(reserved.len())]];
                    let State::Reserved(lease) = *state else { unreachable!() };
                    end_reservation(txn, lease, *extent).unwrap();
                    *state = State::Used;
                }
            }
            Step::Free { which } => {
                let used = self.of_state(|state| state == State::Used);
                if !used.is_empty() {
                    let (extent, state) = &mut self.0[used[which.index(used.len())]];
                    freed_row(txn, *extent, FreedOf::Nothing).unwrap();
                    *state = State::Freed(txn.id());
                }
            }
            Step::TakeBack { lease } => {
                let mut bytes = 0;
                for (extent, state) in &mut self.0 {
                    if *state == State::Reserved(*lease) {
                        bytes += extent.len;
                        *state = State::Freed(txn.id());
                    }
                }
                assert_eq!(take_back(txn, *lease), Ok(bytes));
            }
            Step::Reclaim { .. } => self.reclaim(txn, step),
        }
    }

    /// Asserts that the rows say what the model says.
    fn check(&self, txn: &ReadTxn<'_>) {
        assert_eq!(free_rows(txn), self.free(), "free extents, each as long as it can be");
        let pending = self.0.iter().filter_map(|(extent, state)| match state {
            State::Reserved(lease) => Some((ExtentHolder::Lease(*lease), *extent)),
            State::Freed(by) => Some((ExtentHolder::Txn(*by), *extent)),
            State::Used => None,
        });
        let mut pending: Vec<_> = pending.collect();
        let rows = pending_rows(txn).unwrap().into_iter();
        let mut found: Vec<_> = rows.map(|row| (row.holder, row.extent)).collect();
        let by_place = |one: &(ExtentHolder, Extent)| one.1;
        pending.sort_by_key(by_place);
        found.sort_by_key(by_place);
        assert_eq!(found, pending);
        let reserves = |lease| self.0.iter().any(|(_, state)| *state == State::Reserved(lease));
        let leases: Vec<u64> = LEASES.into_iter().filter(|lease| reserves(*lease)).collect();
        assert_eq!(reserving(txn), Ok(leases));
        for lease in LEASES {
            assert_eq!(has_reserved(txn, lease), Ok(reserves(lease)));
        }
    }
}

/// The free extents, of which both tables say the same.
fn free_rows(txn: &ReadTxn<'_>) -> Vec<Extent> {
    let rows = MemoryRows::of(txn).unwrap();
    let by_offset = rows.in_order(Table::ExtentsByOffset);
    let by_offset: Vec<_> = by_offset.map(|(key, row)| parse_free(key, row).unwrap()).collect();
    let by_size = rows.in_order(Table::ExtentsBySize);
    let mut by_size: Vec<_> = by_size.map(|(key, _)| parse_size_key(key).unwrap()).collect();
    assert!(by_size.is_sorted_by_key(|extent| (extent.len, extent.offset)));
    by_size.sort_unstable();
    assert_eq!(by_size, by_offset);
    by_offset
}

/// A catalog without a row.
fn catalog() -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    Catalog::create(dir.path(), &Options::default()).unwrap();
    let catalog = Catalog::open(dir.path(), &Options::default()).unwrap();
    (dir, catalog)
}

/// Runs one transaction, and commits it.
fn change<T>(catalog: &Catalog, change: impl FnOnce(&mut WriteTxn<'_>) -> T) -> T {
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    let done = change(&mut txn);
    txn.commit().unwrap();
    done
}

fn whole() -> Extent {
    Extent { offset: 0, len: ARENA }
}

#[test]
fn every_byte_is_free_reserved_used_or_freed_and_only_one_of_these() {
    let (_dir, catalog) = catalog();
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    let run = |steps: Vec<Step>| {
        change(&catalog, |txn| {
            MemoryRows::default().write_to(txn).unwrap();
            insert_free(txn, whole()).unwrap();
        });
        let mut model = Model::default();
        for step in &steps {
            change(&catalog, |txn| model.run(txn, step));
            model.check(&catalog.read().unwrap());
        }
        Ok(())
    };
    let steps = prop::collection::vec(step(), 1..40);
    TestRunner::new(config).run(&steps, run).unwrap();
}

#[test]
fn what_a_look_up_may_still_see_or_a_view_holds_is_not_given_away() {
    let (_dir, catalog) = catalog();
    change(&catalog, |txn| insert_free(txn, whole()).unwrap());
    let wanted = Wanted { len: ARENA, warm: &[], within: None };
    let taken = change(&catalog, |txn| allocate(txn, &wanted).unwrap().unwrap());
    let freed_by = change(&catalog, |txn| {
        freed_row(txn, taken, FreedOf::Nothing).unwrap();
        let floor = Floor { age: u64::MAX, ..Floor::default() };
        assert_eq!(reclaim(txn, &floor, None, 9).unwrap().bytes, 0, "it is not committed");
        txn.id()
    });
    for (age, pins, bytes, waiting) in [
        (0, vec![], 0, ARENA), // about to look: PIN
        (freed_by - 1, vec![], 0, ARENA),
        (u64::MAX, vec![taken.offset], 0, 0),
        (freed_by, vec![taken.offset + LINE], ARENA, 0),
    ] {
        let pins = pins.into_iter().collect();
        let floor = Floor { age, pins, ..Floor::default() };
        let done = change(&catalog, |txn| reclaim(txn, &floor, None, 9).unwrap());
        assert_eq!((done.bytes, done.waiting), (bytes, waiting), "{floor:?}");
    }
    change(&catalog, |txn| assert_eq!(covers(txn, whole()), Ok(true)));
}

#[test]
fn space_that_is_warm_is_taken_first_and_large_extents_are_aligned() {
    let (_dir, catalog) = catalog();
    let len = extent_len(100 * PAGE);
    let warm = Extent { offset: 77 * LINE, len };
    change(&catalog, |txn| {
        insert_free(txn, Extent { offset: LINE, len: ARENA - LINE }).unwrap();
        let wanted = Wanted { len, warm: &[warm], within: None };
        assert_eq!(allocate(txn, &wanted), Ok(Some(warm)));
        let cold = allocate(txn, &wanted).unwrap().unwrap();
        assert!(cold.offset.is_multiple_of(PAGE), "{cold:?}: the warm one is taken");
        let small = Wanted { len: LINE, warm: &[], within: None };
        let least = Extent { offset: warm.end(), len: cold.offset - warm.end() };
        assert_eq!(covers(txn, least), Ok(true));
        let got = allocate(txn, &small).unwrap().unwrap();
        assert_eq!(got.offset, least.offset, "of the smallest that holds it");
        assert_eq!(covers(txn, least), Ok(false));
    });
}

#[test]
fn what_has_no_place_at_its_best_alignment_is_put_where_it_fits() {
    let (_dir, catalog) = catalog();
    let huge = Extent { offset: PAGE, len: HUGE };
    let odd = Extent { offset: 2 * HUGE + 3 * PAGE, len: HUGE };
    change(&catalog, |txn| {
        insert_free(txn, huge).unwrap();
        insert_free(txn, odd).unwrap();
        let wanted = Wanted { len: odd.len, warm: &[], within: Some(&[odd]) };
        assert_eq!(allocate(txn, &wanted), Ok(Some(odd)), "there is no other room on the device");
        assert_eq!(allocate(txn, &wanted), Ok(None));
        let wanted = Wanted { len: HUGE, warm: &[], within: None };
        assert_eq!(allocate(txn, &wanted), Ok(Some(huge)));
        assert_eq!(allocate(txn, &wanted), Ok(None));
    });
}

#[test]
fn what_is_freed_twice_or_taken_back_is_refused() {
    let (_dir, catalog) = catalog();
    let extent = Extent { offset: PAGE, len: PAGE };
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    reserve_row(&mut txn, 7, extent).unwrap();
    assert_eq!(take_back(&mut txn, 7), Ok(PAGE));
    assert_eq!(end_reservation(&mut txn, 7, extent).unwrap_err().kind(), Kind::Busy);
    insert_free(&mut txn, extent).unwrap();
    let within = Extent { offset: PAGE + LINE, len: LINE };
    assert_eq!(insert_free(&mut txn, within).unwrap_err().kind(), Kind::Corrupt);
    txn.delete(Table::ExtentsBySize, &[&PAGE.to_be_bytes()[..], &PAGE.to_be_bytes()].concat())
        .unwrap();
    let wanted = Wanted { len: LINE, warm: &[extent], within: None };
    assert_eq!(allocate(&mut txn, &wanted).unwrap_err().kind(), Kind::Corrupt, "tables disagree");
}

#[test]
fn what_overlaps_a_free_extent_is_not_freed_and_changes_nothing() {
    let (_dir, catalog) = catalog();
    let free = Extent { offset: 2 * PAGE, len: PAGE };
    let lines = |from: u64, to: u64| Extent { offset: from * LINE, len: (to - from) * LINE };
    let (start, end) = (free.offset / LINE, free.end() / LINE);
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    insert_free(&mut txn, free).unwrap();
    for (what, extent) in [
        ("the same", free),
        ("its start", lines(start - 1, start + 1)),
        ("its start, and no more", lines(start, start + 1)),
        ("its inside", lines(start + 1, end - 1)),
        ("its end", lines(end - 1, end + 1)),
        ("all of it", lines(start - 1, end + 1)),
        ("all of it, to its end", lines(start - 1, end)),
    ] {
        let refused = insert_free(&mut txn, extent).map_err(|error| error.kind());
        assert_eq!(refused, Err(Kind::Corrupt), "{what}");
    }
    txn.commit().unwrap();
    assert_eq!(free_rows(&catalog.read().unwrap()), [free]);
    // What touches it on either side is joined with it.
    change(&catalog, |txn| {
        insert_free(txn, lines(start - 1, start)).unwrap();
        insert_free(txn, lines(end, end + 1)).unwrap();
    });
    assert_eq!(free_rows(&catalog.read().unwrap()), [lines(start - 1, end + 1)]);
}

#[test]
fn a_neighbour_that_cannot_be_is_not_joined() {
    let (_dir, catalog) = catalog();
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    let (after, len) = (2 * PAGE, u64::MAX - LINE + 1);
    let by_size = [&len.to_be_bytes()[..], &after.to_be_bytes()].concat();
    txn.put(Table::ExtentsByOffset, &after.to_be_bytes(), &len.to_le_bytes()).unwrap();
    txn.put(Table::ExtentsBySize, &by_size, &[]).unwrap();
    let extent = Extent { offset: PAGE, len: PAGE };
    assert_eq!(insert_free(&mut txn, extent).unwrap_err().kind(), Kind::Corrupt);
}

proptest! {
    #[test]
    fn rows_of_any_bytes_are_read_or_refused(
        key in prop::collection::vec(any::<u8>(), 0..20),
        value in prop::collection::vec(any::<u8>(), 0..40), small in any::<bool>(),
    ) {
        let mut value = value;
        if small && value.len() >= 16 {
            // Offsets and lengths that may well be some.
            for at in [0, 8] {
                value[at] &= 0xc0;
                value[at + 3..at + 8].fill(0);
            }
        }
        let corrupt = |error: Error| error.kind() == Kind::Corrupt;
        let sane = |extent: Extent| {
            extent.len > 0 && (extent.offset | extent.len).is_multiple_of(LINE)
                && i64::try_from(extent.end()).is_ok()
        };
        prop_assert!(parse_free(&key, &value).map_or_else(corrupt, sane));
        prop_assert!(parse_size_key(&key).map_or_else(corrupt, sane));
        match Span::from_row(3, &value) {
            Ok(span) => {
                prop_assert!(sane(span.range) && span.number == 3);
                prop_assert_eq!(&span.to_row()[..], &value[..]);
            }
            Err(error) => prop_assert!(corrupt(error)),
        }
    }
}

#[test]
fn spans_follow_one_another_without_a_gap() {
    let span = |number, offset| Span {
        number,
        device: number,
        range: Extent { offset, len: PAGE },
        file: number,
        place: 0,
    };
    let mut rows = MemoryRows::default();
    assert_eq!(Span::all(&mut rows), Ok(Vec::new()));
    let both = [span(0, 0), span(1, PAGE)];
    for span in both {
        rows.put(Table::Spans, &Span::key(span.number), &span.to_row());
    }
    assert_eq!(Span::all(&mut rows), Ok(both.to_vec()));
    for offset in [0, PAGE - LINE, PAGE + LINE] {
        rows.put(Table::Spans, &Span::key(1), &span(1, offset).to_row());
        assert_eq!(Span::all(&mut rows).unwrap_err().kind(), Kind::Corrupt, "{offset}");
    }
}

#[test]
fn a_realm_is_as_large_as_can_be_addressed() {
    for (size, fits) in [(0, false), (1, true), (SIZE_MAX, true), (SIZE_MAX + 1, false)] {
        let done = check_size(size).map_err(|error| error.kind());
        assert_eq!(done, if fits { Ok(()) } else { Err(Kind::Argument) }, "{size}");
    }
}
