//! A batch's list beside the same operations on the rows themselves.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::Overlay;
use super::layer::Change;
use super::peek::Peek;
use crate::testing::{Lies, Op, ROOT, TestRows, after, at, here, object, op, stamp};
use crate::{group, protect};
use engram_base::error::{Error, Kind, Result};
use engram_base::id::{Member, id_key};
use engram_catalog::rows::Rows;
use engram_catalog::testing::MemoryRows;
use engram_catalog::{Catalog, Headroom, Options, Table};
use engram_records::extent::Extent;

/// Tables that operations on names and records change.
const CHANGED: [Table; 7] = [
    Table::Objects,
    Table::Groups,
    Table::Names,
    Table::Meta,
    Table::ReadOnly,
    Table::Mirrors,
    Table::Chunks,
];

/// Ids of a batch begin here, so that they differ from all others.
const BATCH_IDS: u64 = 1 << 20;

struct Below {
    _dir: tempfile::TempDir,
    catalog: Catalog,
}

impl Below {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Catalog::create(dir.path(), &Options::default()).unwrap();
        let catalog = Catalog::open(dir.path(), &Options::default()).unwrap();
        Below { _dir: dir, catalog }
    }

    /// Has the catalog hold these rows and no others.
    fn set(&self, rows: &MemoryRows) {
        let mut txn = self.catalog.write(Headroom::Normal).unwrap();
        rows.write_to(&mut txn).unwrap();
        txn.commit().unwrap();
    }
}

/// Runs a property on many cases; a case that fails is made small, and printed.
fn each<S: Strategy>(cases: u32, strategy: &S, property: impl Fn(S::Value)) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let run = |case| {
        property(case);
        Ok(())
    };
    TestRunner::new(config).run(strategy, run).unwrap();
}

/// What each operation gives, by its kind and its message.
fn run(rows: &mut TestRows, ops: &[Op], first: u64) -> Vec<Result<()>> {
    let mut last_id = first;
    (100..).zip(ops).map(|(now, op)| op.run(rows, now, &mut last_id)).collect()
}

/// The same in a batch.
fn run_in(over: &mut Overlay, below: &Below, ops: &[Op]) -> Vec<Result<()>> {
    let mut last_id = BATCH_IDS;
    let each = |(now, op): (i64, &Op)| op.run(&mut over.on(&below.catalog), now, &mut last_id);
    (100..).zip(ops).map(each).collect()
}

fn kinds(results: &[Result<()>]) -> Vec<Option<Kind>> {
    results.iter().map(|result| result.as_ref().err().map(Error::kind)).collect()
}

/// The list, applied to these rows.
fn apply(over: &Overlay, rows: &MemoryRows) -> MemoryRows {
    let mut rows = rows.clone();
    for table in Table::ALL {
        for row in over.layers[table as usize].in_order() {
            match row.change {
                Some(Change::Put(value)) => rows.put(table, row.key, value),
                Some(Change::Remove) => drop(rows.remove(table, row.key)),
                None => {}
            }
        }
    }
    rows
}

/// Asserts that some rows are seen as those of memory are, through every door of `Rows`.
fn assert_seen(rows: &mut impl Rows, as_these: &MemoryRows) {
    for table in CHANGED {
        let (mut from, mut walked) = (Vec::new(), Vec::new());
        while let Some((key, row)) = rows.first_from(table, &from).unwrap() {
            from.clone_from(&key);
            from.push(0);
            walked.push((key, row));
        }
        let there = as_these.in_order(table).map(|(key, row)| (key.to_vec(), row.to_vec()));
        assert_eq!(walked, there.collect::<Vec<_>>(), "{table:?}");
        for (key, row) in &walked {
            assert_eq!(rows.get(table, key).unwrap().as_deref(), Some(&row[..]), "{table:?}");
            assert_eq!(rows.glance(table, key).unwrap().as_deref(), Some(&row[..]), "{table:?}");
            assert!(rows.has(table, key).unwrap(), "{table:?}");
            let absent = [&key[..], b"\0"].concat();
            assert_eq!(rows.get(table, &absent), Ok(None), "{table:?}");
            assert_eq!(rows.has(table, &absent), Ok(false), "{table:?}");
        }
    }
}

fn sorted(extents: impl IntoIterator<Item = Extent>) -> Vec<Extent> {
    let mut extents: Vec<Extent> = extents.into_iter().collect();
    extents.sort_unstable();
    extents
}

fn some_ops(protecting: bool, most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(protecting), 0..most)
}

#[test]
fn a_list_on_top_of_a_catalog_is_seen_and_applied_as_the_operations_themselves_are() {
    let below = Below::new();
    each(150, &(some_ops(true, 15), some_ops(true, 15)), |(first, ops)| {
        let mut direct = TestRows::with_root();
        run(&mut direct, &first, ROOT);
        let base = direct.rows.clone();
        below.set(&base);
        direct = TestRows { rows: base.clone(), ..TestRows::default() };
        let (mut over, mut last) = (Overlay::default(), (BATCH_IDS, BATCH_IDS));
        for (now, op) in (100..).zip(&ops) {
            let done = op.run(&mut over.on(&below.catalog), now, &mut last.0);
            assert_eq!(done, op.run(&mut direct, now, &mut last.1), "{op:?}");
            assert_seen(&mut over.look(&below.catalog), &direct.rows);
            let txn = below.catalog.read().unwrap();
            assert_seen(&mut over.look_at(&txn), &direct.rows);
            assert_seen(&mut Peek::new(&txn, Some(&over)), &direct.rows);
        }
        assert_eq!(apply(&over, &base), direct.rows);
        assert!(over.changes_something() || base == direct.rows);
        let txn = below.catalog.read().unwrap();
        assert_eq!(over.check_guards(&mut txn.rows()), Ok(()), "nobody has changed anything");
        assert_eq!(over.check_emptied(&mut direct, true), Ok(()));

        assert_eq!(over.touched, direct.touches());
        let of = |list: &[crate::rows_mut::Reserved]| list.iter().map(|one| one.extent).collect();
        let (adopted, orphaned): (Vec<_>, Vec<_>) = (of(&over.adopted), of(&over.orphaned));
        let taken = sorted(direct.adopted.iter().map(|one| one.extent));
        assert_eq!(sorted(over.reservations().map(|one| one.extent)), taken);
        assert_eq!(sorted([&adopted[..], &orphaned].concat()), taken);
        let released = over.released.iter().map(|(extent, _)| *extent);
        assert_eq!(sorted(released.chain(orphaned)), sorted(direct.released));
    });
}

#[test]
fn a_list_whose_guards_hold_is_what_its_operations_do_to_rows_that_others_have_changed() {
    let below = Below::new();
    let met = std::cell::Cell::new((0, 0));
    let cases = (some_ops(false, 12), some_ops(false, 5), some_ops(false, 5));
    each(600, &cases, |(first, ops, others)| {
        let mut base = TestRows::with_root();
        run(&mut base, &first, ROOT);
        below.set(&base.rows);
        let mut over = Overlay::default();
        let in_batch = run_in(&mut over, &below, &ops);

        let mut now = base.clone();
        run(&mut now, &others, 1 << 10);
        let applied = apply(&over, &now.rows);
        let holds = over
            .check_guards(&mut now)
            .and_then(|()| over.check_emptied(&mut applied.clone(), true));
        let (applies, conflicts) = met.get();
        if let Err(error) = holds {
            assert_eq!(error.kind(), Kind::Busy);
            assert!(now.rows != base.rows, "nobody has changed anything");
            return met.set((applies, conflicts + 1));
        }
        met.set((applies + 1, conflicts));
        let direct = run(&mut now, &ops, BATCH_IDS);
        assert_eq!(kinds(&direct), kinds(&in_batch), "each operation was, or was not, refused");
        assert_eq!(applied, now.rows);
    });
    let (applies, conflicts) = met.get();
    assert!(applies > 50 && conflicts > 50, "{applies} applied, {conflicts} refused");
}

/// A batch on these rows, which then are changed: whether it is still applied.
fn applies_after(base: &TestRows, batch: &[Op], change: impl FnOnce(&mut TestRows)) -> bool {
    let below = Below::new();
    below.set(&base.rows);
    let mut over = Overlay::default();
    for result in run_in(&mut over, &below, batch) {
        result.unwrap();
    }
    let mut now = base.clone();
    change(&mut now);
    let applied = apply(&over, &now.rows);
    over.check_guards(&mut now).is_ok() && over.check_emptied(&mut applied.clone(), true).is_ok()
}

#[test]
fn a_batch_that_puts_into_a_group_relies_on_its_being_there_and_true() {
    let base = after(&[object("a/b", Lies::Inline)]);
    let batch = [object("a/new", Lies::Inline)];
    let gid = at(&mut base.clone(), "a").unwrap();
    let annotated = Op::Annotate { at: here("a"), key: 1, text: Some("one") };
    assert!(applies_after(&base, &batch, |now| annotated.run(now, 9, &mut 90).unwrap()));
    let deleted = Op::Delete { at: here("a") };
    assert!(!applies_after(&base, &batch, |now| deleted.run(now, 9, &mut 90).unwrap()));
    let mirrored = |now: &mut TestRows| {
        let row = group::with_record(now, gid, |record| {
            let flags = engram_records::object::Flags { mirror: true, ..record.flags };
            Ok(engram_records::object::Record { flags, ..*record }.encode())
        });
        now.rows.put(Table::Groups, &id_key(gid.id()), &row.unwrap());
    };
    assert!(!applies_after(&base, &batch, mirrored), "what is put there would be seen by others");
}

#[test]
fn a_batch_that_deletes_relies_on_nothing_being_put_there_meanwhile() {
    let base = after(&[object("a/b", Lies::InChunks)]);
    let put = |now: &mut TestRows| object("a/new", Lies::Inline).run(now, 9, &mut 90).unwrap();
    let group = [Op::Delete { at: here("a") }];
    assert!(applies_after(&base, &group, |_| {}));
    assert!(!applies_after(&base, &group, put));
    let oid = at(&mut base.clone(), "a/b").unwrap().id();
    let chunk = |now: &mut TestRows| {
        let row = crate::group::group_record(oid, "", stamp(1), &[], &[]).encode();
        now.rows.put(Table::Chunks, &crate::chunk_rows::key_of(oid, &[9]), &row);
    };
    assert!(!applies_after(&base, &[Op::Delete { at: here("a/b") }], chunk));
}

#[test]
fn a_batch_that_saw_nothing_read_only_relies_on_that() {
    let base = after(&[object("a", Lies::Inline), object("b", Lies::Inline)]);
    let batch = [Op::Annotate { at: here("a"), key: 1, text: Some("one") }];
    let protect = |now: &mut TestRows| {
        let other = at(now, "b").unwrap();
        protect::set(now, other, true, stamp(9)).unwrap();
    };
    assert!(!applies_after(&base, &batch, protect));
}

#[test]
fn a_look_through_a_list_leaves_no_guard() {
    let below = Below::new();
    below.set(&after(&[object("a/b", Lies::Inline)]).rows);
    let mut over = Overlay::default();
    assert!(matches!(at(&mut over.look(&below.catalog), "a/b"), Some(Member::Object(_))));
    assert!(at(&mut over.look(&below.catalog), "a/c").is_none());
    assert!(over.holds_at.is_none() && !over.changes_something());
    assert!(over.layers.iter().all(|layer| layer.in_order().all(|row| row.guard.is_none())));
    assert!(at(&mut over.on(&below.catalog), "a/c").is_none());
    assert!(over.holds_at.is_some(), "an operation relies on what it looked for");
}

#[test]
fn a_name_that_somebody_takes_after_a_look_beside_it_is_not_free() {
    let below = Below::new();
    below.set(&after(&[object("a", Lies::Inline), object("z", Lies::Inline)]).rows);
    let mut over = Overlay::default();
    assert_eq!(at(&mut over.on(&below.catalog), "b"), None);
    assert_eq!(at(&mut over.on(&below.catalog), "c"), None, "it lies between the same two");
    below.set(&after(&["a", "d", "z"].map(|name| object(name, Lies::Inline))).rows);
    assert!(at(&mut over.on(&below.catalog), "d").is_some());
}

#[test]
fn guards_hold_on_over_commits_of_the_batch_s_own_and_no_others() {
    let mut over = Overlay::default();
    over.helped(4);
    assert_eq!(over.holds_at, None);
    over.holds_at = Some(4);
    over.helped(5);
    assert_eq!(over.holds_at, Some(5));
    over.helped(7);
    assert_eq!(over.holds_at, Some(5), "somebody else's commit lies between");
}
