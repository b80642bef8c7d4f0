//! Names against a plain list.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{count, each, each_with, intern_with, number};
use engram_base::error::Kind;
use engram_base::error::Result;
use engram_catalog::ReadTxn;
use engram_catalog::{Catalog, Headroom, Options, Table};

fn catalog() -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    Catalog::create(dir.path(), &Options::default()).unwrap();
    let catalog = Catalog::open(dir.path(), &Options::default()).unwrap();
    (dir, catalog)
}

/// Interns in one transaction, for which the catalog grows where it must.
fn intern(catalog: &Catalog, names: &[&str], threshold: u32) -> Vec<u32> {
    loop {
        let mut txn = catalog.write(Headroom::Normal).unwrap();
        match intern_with(&mut txn, names, threshold) {
            Ok(numbers) => {
                txn.commit().unwrap();
                return numbers;
            }
            Err(error) => {
                let Some(pages) = txn.short_of() else { panic!("{error}") };
                drop(txn);
                catalog.extend(pages).unwrap();
            }
        }
    }
}

/// The numbers of names that contain `parts` and pass a test.
fn matching(txn: &ReadTxn<'_>, parts: &[&str], test: impl Fn(&str) -> bool) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    each_with(txn, parts, |name, number| {
        if test(name) {
            numbers.push(number);
        }
        Ok(())
    })?;
    numbers.sort_unstable();
    Ok(numbers)
}

fn wanted(model: &BTreeMap<String, u32>, test: impl Fn(&str) -> bool) -> Vec<u32> {
    let mut numbers: Vec<u32> =
        model.iter().filter(|(name, _)| test(name)).map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    numbers
}

fn check(catalog: &Catalog, model: &BTreeMap<String, u32>, parts: &[String]) {
    let txn = catalog.read().unwrap();
    for part in parts {
        let part = part.as_str();
        assert_eq!(number(&txn, part).unwrap(), model.get(part).copied());
        for high in [Some("b"), None] {
            let mut found = Vec::new();
            let push = |_: &str, number| {
                found.push(number);
                Ok(())
            };
            each(&txn, part, high, push).unwrap();
            let within = |name: &&str| **name >= *part && high.is_none_or(|high| **name <= *high);
            let within = model.iter().filter(|(name, _)| within(&name.as_str()));
            assert!(found.iter().eq(within.map(|(_, number)| number)));
        }
        let found = matching(&txn, &[part], |name| name.contains(part)).unwrap();
        assert_eq!(found, wanted(model, |name| name.contains(part)));
        let found = matching(&txn, &[part], |name| name.ends_with(part)).unwrap();
        assert_eq!(found, wanted(model, |name| name.ends_with(part)));
        let found = matching(&txn, &[], |name| name.len() == part.len()).unwrap();
        assert_eq!(found, wanted(model, |name| name.len() == part.len()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn names_are_found_as_a_plain_look_finds_them(
        calls in prop::collection::vec(prop::collection::vec("[abß]{1,6}", 0..60), 1..8),
        parts in prop::collection::vec("[abß]{0,5}", 6),
        threshold in 0_u32..200,
    ) {
        let (_dir, catalog) = catalog();
        let mut model = BTreeMap::new();
        for mut names in calls {
            names.sort();
            names.dedup();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let numbers = intern(&catalog, &names, threshold);
            for (name, number) in names.into_iter().zip(numbers) {
                let next = model.len() as u32;
                prop_assert_eq!(*model.entry(name.to_owned()).or_insert(next), number);
            }
        }
        check(&catalog, &model, &parts);
        let names = count(&catalog.read().unwrap()).unwrap();
        prop_assert_eq!(names, model.len() as u64);
    }
}

#[test]
fn trigrams_of_many_names_leave_no_name_out() {
    let (_dir, catalog) = catalog();
    let mut model = BTreeMap::new();
    // Two chunks and a half, in calls that end in the middle of groups.
    let names: Vec<String> = (0..40_000_u32)
        .map(|at| format!("{:x}_{}", at.wrapping_mul(2_654_435_761), at % 97))
        .collect();
    for names in names.chunks(9999) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let numbers = intern(&catalog, &names, 15_000);
        model.extend(names.into_iter().map(str::to_owned).zip(numbers));
    }
    let parts = ["abc", "ff_1", "_96", "deadbeef", "0", "", "xyz"].map(str::to_owned);
    check(&catalog, &model, &parts);
    let txn = catalog.read().unwrap();
    // The trigrams spare all but few names: else the test here would see them all.
    let seen = std::cell::Cell::new(0);
    let found = matching(&txn, &["1234"], |name| {
        seen.set(seen.get() + 1);
        name.contains("1234")
    });
    assert!(!found.unwrap().is_empty());
    assert!(seen.get() < 20_000, "{} names were looked at", seen.get());
}

#[test]
fn damaged_names_are_errors() {
    let (_dir, catalog) = catalog();
    intern(&catalog, &["one", "two", "three"], 0);
    let damage: [(&[u8], &[u8]); 4] =
        [(b"#", b"12"), (b"n\xff", &[0; 4]), (b"none", b"1"), (b"r\0\0\0\0", b"\x09one")];
    for (key, value) in damage {
        let mut txn = catalog.write(Headroom::Normal).unwrap();
        let before = txn.get(Table::IndexNames, key).unwrap().map(<[u8]>::to_vec);
        txn.put(Table::IndexNames, key, value).unwrap();
        txn.commit().unwrap();
        let txn = catalog.read().unwrap();
        let all = each(&txn, "", None, |_, _| Ok(()));
        let all = all.and_then(|()| matching(&txn, &["one"], |_| true));
        assert_eq!(all.unwrap_err().kind(), Kind::Corrupt, "{key:?}");
        drop(txn);
        let mut txn = catalog.write(Headroom::Normal).unwrap();
        match before {
            Some(value) => txn.put(Table::IndexNames, key, &value).unwrap(),
            None => assert!(txn.delete(Table::IndexNames, key).unwrap()),
        }
        txn.commit().unwrap();
    }
    let txn = catalog.read().unwrap();
    assert_eq!(matching(&txn, &["one"], |_| true).unwrap(), [0, 1, 2]);
}
