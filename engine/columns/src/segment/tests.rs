//! Segments: columns say what rows have, and no bytes can do harm.

#![allow(clippy::cast_precision_loss)] // small numbers, made up

use std::time::Instant;

use proptest::prelude::*;

use super::layout::OTHER_GROUP;
use super::*;
use crate::cell::{Cell, total_order};
use crate::column_key;
use crate::column_key::{
    CREATED, ColumnKey, DTYPE, GROUP, IndexRow, NAME, NATTRS, NBYTES, NDIM, OID, OWNER, RowCell,
    SHAPE, SIZE,
};
use crate::range::Range;
use crate::zone::tests::{any_cell, any_range};
use crate::zone::{ZoneVerdict, exists, judge};

/// How many rows a segment has, at most. Miri takes a thousand times as long for each.
const ROWS: usize = if cfg!(miri) { 12 } else { 300 };

/// A column of one kind or of all, dense or rare, of few values or of many.
fn any_column(rows: usize) -> impl Strategy<Value = Vec<Slot<'static>>> {
    let number = (0_i64..1000).prop_map(Cell::Int);
    let float = (0_i64..1000).prop_map(|value| Cell::Float(value as f64 / 8.0));
    let double = any::<f64>().prop_map(Cell::Float);
    let time = (0_i64..1_000_000).prop_map(Cell::Time);
    let big = (u64::MAX - 500..=u64::MAX).prop_map(Cell::Big);
    let text = "[a-c]{0,4}".prop_map(|text| Cell::Text(text.into()));
    let long = if cfg!(miri) { "[a-zé]{20}" } else { "[a-zé]{200}" }
        .prop_map(|text| Cell::Text(text.into()));
    let cell = prop_oneof![
        Just(number.boxed()),
        Just(float.boxed()),
        Just(double.boxed()),
        Just(time.boxed()),
        Just(big.boxed()),
        Just(text.boxed()),
        Just(long.boxed()),
        Just(any_cell().boxed()),
    ];
    let chances = prop_oneof![Just((1, 0, 0)), Just((9, 1, 0)), Just((8, 1, 1)), Just((1, 9, 0))];
    (cell, chances, 1..ROWS).prop_flat_map(move |(cell, (sure, absent, unsure), values)| {
        let values = prop::collection::vec(cell, values);
        let state = prop_oneof![sure => Just(0), absent => Just(1), unsure => Just(2)];
        let states = prop::collection::vec((state, any::<prop::sample::Index>()), rows);
        (values, states).prop_map(|(values, states)| {
            let row = |(state, index): &(u8, prop::sample::Index)| match state {
                0 => Some(Some(index.get(&values).clone())),
                1 => None,
                _ => Some(None),
            };
            states.iter().map(row).collect()
        })
    })
}

/// Columns 1, 2, … of the same length.
fn any_columns() -> impl Strategy<Value = Vec<Vec<Slot<'static>>>> {
    prop_oneof![1..ROWS / 4, ROWS / 3..ROWS]
        .prop_flat_map(|rows| prop::collection::vec(any_column(rows), 1..4))
}

fn rows_of(columns: &[Vec<Slot<'static>>]) -> Vec<IndexRow<'static>> {
    let row = |at: usize| {
        let cells = columns
            .iter()
            .enumerate()
            .filter_map(|(number, column)| Some((number as ColumnKey + 1, column[at].clone()?)));
        IndexRow { oid: 7 + 3 * at as u64, cells: cells.collect::<Vec<_>>().leak() }
    };
    (0..columns[0].len()).map(row).collect()
}

/// The rows, column by column.
fn gather<'r>(rows: &'r [IndexRow<'r>], layout: &SegmentLayout) -> GatheredRows<'r> {
    let mut gathered = GatheredRows::new(layout.clone(), rows.len());
    let mut before: &[RowCell<'_>] = &[];
    for row in rows {
        let given = |(key, _): &&RowCell<'_>| [NAME, CREATED].contains(key);
        let own: Vec<_> = row.cells.iter().filter(given).collect();
        match own[..] {
            [(_, Some(Cell::Text(name))), (_, Some(Cell::Time(created)))] => {
                gathered.row(row.oid, name, *created);
            }
            _ => gathered.bare_row(row.oid),
        }
        for (key, _) in before.iter().filter(|cell| !given(cell)) {
            if row.cells.iter().all(|(own, _)| own != key) {
                let place = gathered.place(*key);
                gathered.clear(place);
            }
        }
        for (key, cell) in row.cells.iter().filter(|cell| !given(cell)) {
            let place = gathered.place(*key);
            gathered.set(place, cell.clone());
        }
        before = row.cells;
    }
    gathered
}

#[test]
fn a_cell_that_no_row_has_any_more_is_not_the_one_cell_of_its_column() {
    let given = |oid, attribute: Slot<'static>| {
        let mut cells = vec![];
        cells.extend(attribute.map(|cell| (1, cell)));
        cells.push((NAME, Some(Cell::Text("n".into()))));
        cells.push((CREATED, Some(Cell::Time(0))));
        IndexRow { oid, cells: cells.leak() }
    };
    // Of one segment every row is dead, and in the other the record alone says what a row has.
    let rows = [given(1, Some(Some(Cell::Int(5)))), given(2, Some(None)), given(3, None)];
    let mut sealed = SealedRows::default();
    for (rows, dead) in [(&rows[..1], true), (&rows[1..], false)] {
        let mut gathered = gather(rows, &SegmentLayout::default());
        let built = gathered.build().unwrap();
        let mut gone = Bitmap::new(rows.len());
        if dead {
            gone.insert(0);
        }
        sealed.add(built.head, built.blocks, gone).unwrap();
    }
    let mut united = sealed.gather(SegmentLayout::default()).unwrap().unwrap();
    // A row that takes back what it was given leaves such a cell too.
    let mut taken_back = gather(&rows[1..2], &SegmentLayout::default());
    let place = taken_back.place(1);
    taken_back.set(place, Some(Cell::Int(5)));
    taken_back.set(place, None);
    for gathered in [&mut united, &mut taken_back] {
        let built = gathered.build().unwrap();
        let segment = Segment::parse(&built.head).unwrap();
        let entry = segment.column(1).unwrap().unwrap();
        let column = Column::parse(&entry, &built.blocks[0]).unwrap();
        assert!(matches!(column.cell(0), Ok(Some(None))) && !entry.constant());
    }
}

/// The first column by itself, the second in runs, the others in no group.
fn layout() -> SegmentLayout {
    let group = |id, column, kind| AttributeGroup { id, columns: vec![column], kind };
    let groups = vec![group(1, 1, GroupKind::Columns), group(2, 2, GroupKind::Runs)];
    SegmentLayout { family: 5, groups }
}

fn equal(a: &Slot<'_>, b: &Slot<'_>) -> bool {
    match (a, b) {
        (Some(Some(a)), Some(Some(b))) => {
            values::tag(a) == values::tag(b) && total_order(a, b).is_eq()
        }
        (a, b) => a.is_none() == b.is_none() && a.is_some() == b.is_some(),
    }
}

fn check_marks(marks: &Marks, column: &[Slot<'static>], test: impl Fn(&Cell<'_>) -> bool) {
    for (at, cell) in column.iter().enumerate() {
        let (must, may) = match cell {
            None => (false, false),
            Some(None) => (false, true),
            Some(Some(cell)) => (test(cell), test(cell)),
        };
        assert_eq!(marks.must.contains(at), must, "row {at}: {cell:?}");
        assert_eq!(marks.may.contains(at), may, "row {at}: {cell:?}");
    }
}

/// Whether rows that are asked alone say what they say among all.
fn check_among(column: &Column<'_>, cells: &[Slot<'static>], range: &Range<'_>) {
    for every in [2, 7, 100] {
        let mut among = Bitmap::new(cells.len());
        (0..cells.len()).step_by(every).for_each(|at| among.insert(at));
        for marks in [
            column.range(range, Some(&among)).unwrap(),
            column.test(&|cell| range.holds(cell), Some(&among)).unwrap(),
        ] {
            let Marks { mut must, mut may } = column.range(range, None).unwrap();
            let mut found = marks;
            for marks in [&mut found.must, &mut found.may, &mut must, &mut may] {
                marks.and(&among);
            }
            assert_eq!(found, Marks { must, may }, "one of {every}");
        }
    }
}

/// Whether what a column gives of all rows is what their cells are.
fn check_all_at_once(column: &Column<'_>, cells: &[Slot<'static>], in_runs: bool) {
    let sure: Vec<&Cell<'_>> = cells.iter().flatten().flatten().collect();
    assert_eq!(column.sure().count(), sure.len());
    let (ranks, numbers) = (column.ranks().unwrap(), column.numbers().unwrap());
    assert!(!in_runs || ranks.is_none() && numbers.is_none());
    if let Some(ranks) = ranks {
        assert_eq!(ranks.len(), sure.len());
        for (at, cell) in sure.iter().enumerate() {
            for other in [at / 2, at * 7 % sure.len()] {
                let order = total_order(cell, sure[other]);
                assert_eq!(ranks[at].cmp(&ranks[other]), order, "{cell:?} {:?}", sure[other]);
            }
        }
    }
    if let Some(numbers) = numbers {
        assert_eq!(numbers.len(), sure.len());
        for (at, cell) in sure.iter().enumerate() {
            assert!(equal(&Some(Some(numbers.cell(at))), &Some(Some((*cell).clone()))));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 300 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_rows_have_is_what_columns_say(
        columns in any_columns(),
        ranges in prop::collection::vec(any_range(), 4),
    ) {
        let rows = rows_of(&columns);
        let mut gathered = gather(&rows, &layout());
        let built = gathered.build().unwrap();
        let segment = Segment::parse(&built.head).unwrap();
        prop_assert_eq!(segment.len(), rows.len());
        prop_assert_eq!(segment.family(), 5);
        prop_assert_eq!(segment.oids(), rows.iter().map(|row| row.oid).collect::<Vec<_>>());
        for (at, row) in rows.iter().enumerate() {
            prop_assert_eq!(segment.oid(at), Some(row.oid));
            prop_assert_eq!(segment.position(row.oid), Some(at));
            prop_assert_eq!(segment.position(row.oid + 1), None);
        }
        prop_assert_eq!(segment.oid(rows.len()), None);
        for (number, cells) in columns.iter().enumerate() {
            let key = number as ColumnKey + 1;
            let sf = cells.iter().flatten().count();
            let Some(entry) = segment.column(key).unwrap() else {
                prop_assert_eq!(sf, 0);
                continue;
            };
            prop_assert_eq!(entry.sf as usize, sf);
            prop_assert_eq!(entry.in_runs(), key == 2);
            prop_assert_eq!(entry.all_present(), sf == rows.len());
            prop_assert_eq!(entry.has_unsure(), cells.iter().flatten().any(Option::is_none));
            let block = &built.blocks[usize::from(entry.part) - 1];
            let column = Column::parse(&entry, block).unwrap();
            let presence = column.presence();
            for (at, cell) in cells.iter().enumerate() {
                prop_assert_eq!(presence.contains(at), cell.is_some());
                prop_assert_eq!(column.unsure().contains(at), matches!(cell, Some(None)));
                let found = column.cell(at).unwrap().map(|cell| cell.map(Cell::into_owned));
                if entry.in_runs() {
                    prop_assert_eq!(found.is_some(), cell.is_some());
                } else {
                    prop_assert!(equal(&found, cell), "{:?} for {:?}", found, cell);
                }
            }
            prop_assert_eq!(column.cell(rows.len()).unwrap().is_none(), true);
            check_all_at_once(&column, cells, entry.in_runs());
            for range in &ranges {
                if entry.in_runs() {
                    let marks = column.range(range, None).unwrap();
                    prop_assert!(marks.must.is_empty() && marks.may == presence);
                    continue;
                }
                check_marks(&column.range(range, None).unwrap(), cells, |cell| range.holds(cell));
                let odd = |cell: &Cell<'_>| format!("{cell:?}").len() % 2 == 1 || range.holds(cell);
                check_marks(&column.test(&odd, None).unwrap(), cells, odd);
                check_among(&column, cells, range);
            }
            for cell in cells.iter().flatten().flatten().take(3).filter(|_| !entry.in_runs()) {
                let range = Range::equal(cell);
                check_marks(&column.range(&range, None).unwrap(), cells, |cell| range.holds(cell));
            }
        }
    }

    #[test]
    fn segments_that_are_united_say_the_same(
        columns in any_columns(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        dead in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
        runs in any::<bool>(),
    ) {
        let mut rows = rows_of(&columns);
        for row in &mut rows {
            let name = (NAME, Some(Cell::Text(format!("é{}", row.oid % 50).into())));
            let created = (CREATED, Some(Cell::Time(row.oid as i64 / 40)));
            let cells = row.cells.iter().cloned().chain([name, created]);
            row.cells = cells.collect::<Vec<_>>().leak();
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(rows.len())).collect();
        cuts.extend([0, rows.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let dead: Vec<u64> = dead.iter().map(|at| at.get(&rows).oid).collect();
        let mut sealed = SealedRows::default();
        // Segments come in any order.
        for cut in cuts.windows(2).rev() {
            let rows = &rows[cut[0]..cut[1]];
            let mut gathered = gather(rows, &SegmentLayout::default());
            let built = gathered.build().unwrap();
            let mut gone = Bitmap::new(rows.len());
            let positions = (0..rows.len()).filter(|at| dead.contains(&rows[*at].oid));
            positions.for_each(|at| gone.insert(at));
            sealed.add(built.head, built.blocks, gone).unwrap();
        }
        let live: Vec<IndexRow<'_>> =
            rows.iter().filter(|row| !dead.contains(&row.oid)).copied().collect();
        prop_assert_eq!(sealed.len(), live.len());
        prop_assume!(!live.is_empty());
        let layout = if runs { layout() } else { SegmentLayout::default() };
        let mut united = sealed.gather(layout.clone()).unwrap().unwrap();
        let mut anew = gather(&live, &layout);
        let (mut found, mut expected) = (united.signatures(), anew.signatures());
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
        let (united, anew) = (united.build().unwrap(), anew.build().unwrap());
        prop_assert_eq!(&united.zones, &anew.zones);
        let of = |built: &Built<'_>, key| {
            let segment = Segment::parse(&built.head).unwrap();
            let entry = segment.column(key).unwrap().unwrap();
            let column = Column::parse(&entry, &built.blocks[usize::from(entry.part) - 1]).unwrap();
            let slot = |at| column.cell(at).unwrap().map(|cell| cell.map(Cell::into_owned));
            (entry.in_runs(), (0..live.len()).map(slot).collect::<Vec<_>>())
        };
        for (key, _) in united.zones.iter().filter(|(key, _)| *key != OID) {
            let ((in_runs, united), (_, anew)) = (of(&united, *key), of(&anew, *key));
            prop_assert_eq!(in_runs, runs && *key == 2);
            prop_assert!(united.iter().zip(&anew).all(|(a, b)| equal(a, b)), "column {}", key);
        }
        for ((_, united), (_, anew)) in united.runs.iter().zip(&anew.runs) {
            let same = |((a, at), (b, other)): (&(&Cell<'_>, u16), &(&Cell<'_>, u16))| {
                at == other && total_order(a, b).is_eq()
            };
            prop_assert!(united.len() == anew.len() && united.iter().zip(anew).all(same));
        }
    }

    #[test]
    fn zones_and_runs_tell_of_the_same_cells(
        columns in any_columns(),
        range in any_range(),
    ) {
        let rows = rows_of(&columns);
        let mut gathered = gather(&rows, &layout());
        let built = gathered.build().unwrap();
        prop_assert!(built.zones.is_sorted_by(|a, b| a.0 < b.0));
        for (key, zones) in &built.zones {
            if *key == OID {
                prop_assert_eq!((zones[0].min, zones[0].max), (7, rows[rows.len() - 1].oid));
                prop_assert_eq!((zones[0].extra, zones[0].sf as usize), (5, rows.len()));
                continue;
            }
            let cells = &columns[*key as usize - 1];
            let sure = cells.iter().flatten().flatten();
            let unsure = cells.iter().flatten().any(Option::is_none);
            let passing = sure.filter(|cell| range.holds(cell)).count();
            if range.low.is_some() || range.high.is_some() {
                match judge(zones, &range) {
                    ZoneVerdict::None => prop_assert!(passing == 0 && !unsure),
                    ZoneVerdict::All => prop_assert_eq!(passing, rows.len()),
                    ZoneVerdict::Some => {}
                }
            }
            let all = cells.iter().all(Option::is_some);
            prop_assert_eq!(exists(zones) == ZoneVerdict::All, all);
        }
        for (key, run) in &built.runs {
            prop_assert_eq!(*key, 2);
            let mut expected: Vec<_> = columns[1].iter().enumerate()
                .filter_map(|(at, cell)| Some((cell.as_ref()?.as_ref()?, at as u16)))
                .collect();
            expected.sort_by(|a, b| total_order(a.0, b.0).then(a.1.cmp(&b.1)));
            prop_assert_eq!(run.len(), expected.len());
            for (found, expected) in run.iter().zip(expected) {
                prop_assert_eq!(found.1, expected.1);
                prop_assert!(total_order(found.0, expected.0).is_eq());
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "a damaged count of rows takes miri minutes")]
    fn damaged_segments_are_refused_or_wrong_but_never_worse(
        columns in any_columns(),
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
        range in any_range(),
    ) {
        let rows = rows_of(&columns);
        let mut gathered = gather(&rows, &layout());
        let mut built = gathered.build().unwrap();
        let head = built.head.clone();
        for (at, byte) in &hits {
            let at = at.index(built.head.len() + built.blocks[0].len());
            match at.checked_sub(built.head.len()) {
                None => built.head[at] = *byte,
                Some(at) => built.blocks[0][at] = *byte,
            }
        }
        let cut_block = &built.blocks[0][..cut.index(built.blocks[0].len() + 1)];
        for (head, block) in [(&built.head, &built.blocks[0][..]), (&head, cut_block)] {
            let Ok(segment) = Segment::parse(head) else { continue };
            let len = segment.len();
            prop_assert!(segment.oids().len() == len && segment.groups().count() < 70_000);
            let _ = (segment.position(8), segment.oid(len - 1), segment.parts());
            for entry in segment.columns().flatten().take(100) {
                let Ok(column) = Column::parse(&entry, block) else { continue };
                prop_assert!(column.presence().len() == len);
                for at in [0, len / 2, len - 1, len] {
                    let _ = column.cell(at);
                }
                if let Ok(marks) = column.range(&range, None) {
                    prop_assert!(marks.may.len() == len && marks.must.len() == len);
                }
                if let Ok(marks) = column.test(&|cell| range.holds(cell), None) {
                    prop_assert!(marks.may.len() == len && marks.must.len() == len);
                }
            }
        }
        let _ = Segment::parse(&head[..cut.index(head.len())]);
    }
}

/// Granules of 2167 objects: 20 keys constant in each, 12 of small vocabularies, 5 nearly unique.
fn glas(first: u64, count: u64) -> Vec<IndexRow<'static>> {
    const GRANULE: u64 = 2167;
    const NAMES: [&str; 5] = ["i_lat", "i_elev", "i_reflctUC", "d_pctSAT", "i_gval_rcv"];
    let mut seed = 7_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let mut now = 1_700_000_000_000_000_000_i64;
    let row = |number: u64| {
        let granule = number / GRANULE;
        let mut cells = Vec::with_capacity(48);
        for key in 0..20 {
            let constant = match key % 3 {
                0 => Cell::Int((granule * 20 + key) as i64),
                1 => Cell::Text(format!("level {}", (granule + key) % 7).into()),
                _ => Cell::Float(granule as f64 / 3.0 + key as f64),
            };
            cells.push((key as ColumnKey, Some(constant)));
        }
        for key in 0..12 {
            let drawn = random() % (2 + key * key / 3);
            let cell = match key % 3 {
                0 => Cell::Text(format!("{} {drawn}", NAMES[drawn as usize % 5]).into()),
                1 => Cell::Int(drawn as i64),
                _ => Cell::Float(drawn as f64 * 0.1),
            };
            cells.push((20 + key as ColumnKey, Some(cell)));
        }
        for key in 32..37 {
            cells.push((key, Some(Cell::Float(random() as f64 * 1e-7))));
        }
        now += 4_000 + (random() % 2_000) as i64;
        let id_prefix = 0xABCD_EF00_0000_0000;
        let built_in = [
            (GROUP, column_key::unsigned(id_prefix + granule * 2200)),
            (NAME, Cell::Text(format!("Cloud_Layer_{:04}", number % GRANULE).into())),
            (OWNER, Cell::Int(1000)),
            (DTYPE, Cell::Text(["float64", "int32"][number as usize % 2].into())),
            (SHAPE, Cell::Text("(40,)".into())),
            (NDIM, Cell::Int(1)),
            (SIZE, Cell::Int(40)),
            (NBYTES, Cell::Int([320, 160][number as usize % 2])),
            (CREATED, Cell::Time(now)),
            (NATTRS, Cell::Int(37)),
        ];
        cells.extend(built_in.map(|(key, cell)| (key, Some(cell))));
        IndexRow { oid: id_prefix + number + granule + 2, cells: cells.leak() }
    };
    (first..first + count).map(row).collect()
}

fn glas_layout(per_group: usize) -> SegmentLayout {
    let keys: Vec<ColumnKey> = (0..32).collect();
    let group = |(at, columns): (usize, &[ColumnKey])| AttributeGroup {
        id: at as u32 + 1,
        columns: columns.to_vec(),
        kind: GroupKind::Columns,
    };
    let mut groups: Vec<_> = keys.chunks(per_group).enumerate().map(group).collect();
    let columns = (32..37).collect();
    groups.push(AttributeGroup { id: 99, columns, kind: GroupKind::Runs });
    SegmentLayout { family: 1, groups }
}

/// Bytes that LMDB takes for a row: beside others, or in pages of its own.
fn row_bytes(len: usize) -> usize {
    if len < 2000 { len + 16 } else { (len + 16).next_multiple_of(4096) }
}

#[test]
#[cfg_attr(miri, ignore = "it measures, and takes miri minutes")]
fn an_object_takes_a_few_bytes_whatever_the_groups() {
    for (count, per_group, most) in [(4096, 4, 14.0), (4096, 32, 14.0), (256, 4, 26.0)] {
        let rows = glas(1000, count);
        let layout = glas_layout(per_group);
        let time = || {
            let start = Instant::now();
            std::hint::black_box(gather(&rows, &layout).build().unwrap());
            start.elapsed()
        };
        let took = (0..5).map(|_| time()).min().unwrap();
        let mut gathered = gather(&rows, &layout);
        let built = gathered.build().unwrap();
        let zones: usize = built.zones.iter().map(|(_, zones)| 32 * zones.len()).sum();
        let parts = std::iter::once(&built.head).chain(&built.blocks);
        let bytes = zones + parts.map(|part| row_bytes(part.len())).sum::<usize>();
        let each = bytes as f64 / count as f64;
        println!(
            "{count} rows, {per_group} per group: {each:.1} bytes each (head {}, parts {:?}, \
             zones {zones}), {:.0} ns each",
            built.head.len(),
            built.blocks.iter().map(Vec::len).collect::<Vec<_>>(),
            took.as_nanos() as f64 / count as f64,
        );
        assert!(each < most, "{each} bytes for each of {count} objects");
        assert_eq!(built.runs.len(), 5);
        print_columns(&built);
    }
}

/// What each column takes and how long it is read, for measurements.
fn print_columns(built: &Built<'_>) {
    let segment = Segment::parse(&built.head).unwrap();
    let mut entries: Vec<_> = segment.columns().map(Result::unwrap).collect();
    entries.sort_by_key(|entry| entry.offset);
    for (at, entry) in entries.iter().enumerate() {
        let end = entries.get(at + 1).map_or(built.blocks[0].len(), |next| next.offset as usize);
        let column = Column::parse(entry, &built.blocks[0]).unwrap();
        let cell = column.cell(17).unwrap().flatten().unwrap_or(Cell::Other);
        let start = Instant::now();
        let mut found = 0;
        for _ in 0..50 {
            let column = Column::parse(entry, &built.blocks[0]).unwrap();
            found += column.range(&Range::equal(&cell), None).unwrap().must.count();
        }
        let took = start.elapsed().as_nanos() / 50;
        let bytes = end - entry.offset as usize;
        println!("{:>10x}: {bytes:>5} bytes, {took:>6} ns, {:>4} rows", entry.key, found / 50);
    }
}

#[test]
fn columns_that_no_group_names_are_kept() {
    let cells = vec![(3, Some(Cell::Int(4))), (OWNER, Some(Cell::Int(0)))];
    let rows = [IndexRow { oid: 1, cells: cells.leak() }];
    let mut gathered = gather(&rows, &SegmentLayout::default());
    let built = gathered.build().unwrap();
    let segment = Segment::parse(&built.head).unwrap();
    let ids: Vec<u32> = segment.groups().map(|group| group.id).collect();
    assert_eq!(ids, [BUILTIN_GROUP, OTHER_GROUP]);
    assert_eq!(segment.parts(), 1);
    let entry = segment.column(3).unwrap().unwrap();
    assert!(entry.constant() && entry.all_present());
    let column = Column::parse(&entry, &built.blocks[0]).unwrap();
    assert!(matches!(column.cell(0).unwrap(), Some(Some(Cell::Int(4)))));
}

#[test]
#[cfg_attr(miri, ignore = "its megabyte of text takes miri minutes")]
fn a_segment_of_much_text_has_several_parts() {
    let text = |at: u64, key: u32| Cell::Text(format!("{at} {key} {}", "x".repeat(200)).into());
    let cells = |at| (0..8).map(|key| (key, Some(text(at, key)))).collect::<Vec<_>>();
    let rows = (0..600).map(|at| IndexRow { oid: at, cells: cells(at).leak() });
    let rows: Vec<IndexRow<'_>> = rows.collect();
    let group = |id: u32| AttributeGroup {
        id: id + 1,
        columns: vec![2 * id, 2 * id + 1],
        kind: GroupKind::Columns,
    };
    let layout = SegmentLayout { family: 0, groups: (0..4).map(group).collect() };
    let mut gathered = gather(&rows, &layout);
    let built = gathered.build().unwrap();
    let segment = Segment::parse(&built.head).unwrap();
    assert_eq!(usize::from(segment.parts()), built.blocks.len());
    assert_eq!(segment.parts(), 2);
    for entry in segment.columns().map(Result::unwrap) {
        let column = Column::parse(&entry, &built.blocks[usize::from(entry.part) - 1]).unwrap();
        let expected = text(5, entry.key);
        let found = column.range(&Range::equal(&expected), None).unwrap();
        assert_eq!(found.must.iter().collect::<Vec<_>>(), [5]);
    }
}
