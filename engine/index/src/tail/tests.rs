//! The tail against a plain set: any order of ids, transactions that are undone, sealing in parts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{NewInTail, all, has, spans, take};
use crate::directory::Finder;
use crate::touched;
use engram_base::id::{ID_BLOCK, Oid, id_key};
use engram_catalog::{Catalog, Headroom, Options, Table, WriteTxn};
use engram_ops::group::group_record;
use engram_records::index_mode::{IndexMode, Touch};
use engram_records::object::{Class, Record};
use engram_records::stamp::Stamp;

#[derive(Clone, Debug)]
enum Step {
    New(Oid, IndexMode),
    /// Several at once, as a batch makes them: all are taken down before any has its row.
    Batch(Vec<Oid>),
    Changed(Oid),
    Gone(Oid),
    Seal(usize),
    /// Ends the transaction; whether it is kept.
    End(bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    // Two blocks, and the edge between them.
    let oid = || (ID_BLOCK - 12)..(ID_BLOCK + 12);
    let mode = prop_oneof![4 => Just(IndexMode::Sync), 1 => Just(IndexMode::None)];
    prop_oneof![
        6 => (oid(), mode).prop_map(|(oid, mode)| Step::New(oid, mode)),
        2 => prop::collection::vec(oid(), 1..6).prop_map(Step::Batch),
        2 => oid().prop_map(Step::Changed),
        2 => oid().prop_map(Step::Gone),
        2 => (1_usize..8).prop_map(Step::Seal),
        3 => prop::bool::weighted(0.8).prop_map(Step::End),
    ]
}

/// What is so: the objects with their modes, and those of them that are sealed.
#[derive(Clone, Default)]
struct Model {
    objects: BTreeMap<Oid, IndexMode>,
    sealed: BTreeSet<Oid>,
}

impl Model {
    fn tail(&self) -> Vec<Oid> {
        let sync = self.objects.iter().filter(|(_, mode)| **mode == IndexMode::Sync);
        sync.map(|(oid, _)| *oid).filter(|oid| !self.sealed.contains(oid)).collect()
    }
}

fn record(mode: IndexMode) -> Vec<u8> {
    let stamp = Stamp::now(0, false).unwrap();
    Record { class: Class::Blob, index: mode, ..group_record(1, "name", stamp, &[], &[]) }.encode()
}

struct Running<'c> {
    txn: WriteTxn<'c>,
    new: NewInTail,
    model: Model,
}

impl Running<'_> {
    fn touch(&mut self, oid: Oid, touch: Touch) {
        let mut finder = Finder::default();
        touched(&mut self.txn, &mut finder, &mut self.new, oid, touch).unwrap();
    }

    fn put(&mut self, oid: Oid, mode: IndexMode) {
        self.txn.put(Table::Objects, &id_key(oid), &record(mode)).unwrap();
        self.model.objects.insert(oid, mode);
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::New(oid, mode) if !self.model.objects.contains_key(oid) => {
                self.put(*oid, *mode);
                self.touch(*oid, Touch::New(*mode));
            }
            Step::Batch(oids) => {
                let new: BTreeSet<Oid> = oids.iter().copied().collect();
                let new = new.into_iter().filter(|oid| !self.model.objects.contains_key(oid));
                let new: Vec<Oid> = new.collect();
                for oid in &new {
                    self.touch(*oid, Touch::New(IndexMode::Sync));
                }
                for oid in new {
                    self.put(oid, IndexMode::Sync);
                }
            }
            Step::Changed(oid) if self.model.objects.get(oid) == Some(&IndexMode::Sync) => {
                self.touch(*oid, Touch::Changed(IndexMode::Sync));
                self.model.sealed.remove(oid);
            }
            Step::Gone(oid) => {
                if let Some(mode) = self.model.objects.remove(oid) {
                    self.txn.delete(Table::Objects, &id_key(*oid)).unwrap();
                    self.touch(*oid, Touch::Gone(mode));
                    self.model.sealed.remove(oid);
                }
            }
            Step::Seal(most) => {
                let taken = take(&mut self.txn, *most, usize::MAX).unwrap();
                assert!(taken.len() <= *most && taken.is_sorted());
                let tail = self.model.tail();
                assert!(taken.iter().all(|oid| tail.contains(oid)), "{taken:?} of {tail:?}");
                assert_eq!(taken.len(), tail.len().min(*most));
                self.model.sealed.extend(taken);
                // What sealing takes no transaction has remembered.
                self.new = NewInTail::default();
            }
            Step::New(..) | Step::Changed(_) | Step::End(_) => {}
        }
        let tail = self.model.tail();
        assert_eq!(all(&self.txn).unwrap(), tail, "after {step:?}");
        for (oid, mode) in &self.model.objects {
            if *mode == IndexMode::Sync {
                assert_eq!(has(&self.txn, *oid).unwrap(), tail.contains(oid), "{oid}");
            }
        }
        let rows = self.txn.entries(Table::IndexTail).unwrap();
        assert!(rows + spans(&self.txn).unwrap() >= tail.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_object_is_in_the_tail_until_it_is_sealed(
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let dir = tempfile::tempdir().unwrap();
        Catalog::create(dir.path(), &Options::default()).unwrap();
        let catalog = Catalog::open(dir.path(), &Options::default()).unwrap();
        catalog.extend(512).unwrap();
        let (mut model, mut range) = (Model::default(), None);
        let begin = |model: &Model, range| Running {
            txn: catalog.write(Headroom::Normal).unwrap(),
            new: NewInTail::knowing(range),
            model: model.clone(),
        };
        let mut running = begin(&model, range);
        for step in &steps {
            if let Step::End(keep) = step {
                let Running { txn, new, model: after } = running;
                if *keep {
                    (model, range) = (after, new.range().filter(|_| new.count() > 0));
                    txn.commit().unwrap();
                } else {
                    drop(txn);
                }
                running = begin(&model, range);
            } else {
                running.run(step);
            }
        }
    }
}

#[test]
fn objects_in_the_order_of_their_ids_take_one_row_in_all() {
    let dir = tempfile::tempdir().unwrap();
    Catalog::create(dir.path(), &Options::default()).unwrap();
    let catalog = Catalog::open(dir.path(), &Options::default()).unwrap();
    let txn = catalog.write(Headroom::Normal).unwrap();
    let mut running = Running { txn, new: NewInTail::default(), model: Model::default() };
    for oid in ID_BLOCK..ID_BLOCK + 100 {
        running.run(&Step::New(oid, IndexMode::Sync));
    }
    let rows = |table| running.txn.entries(table).unwrap();
    assert_eq!((rows(Table::IndexTailRanges), rows(Table::IndexTail)), (1, 0));
    assert_eq!((running.new.span(), spans(&running.txn).unwrap()), (100, 100));
}
