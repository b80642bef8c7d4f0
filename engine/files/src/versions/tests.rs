//! Folders of published versions, beside a set of numbers.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::{MAKING, is_newest, version_name, versions};
use engram_base::error::Kind;

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn versions_are_listed_in_the_order_of_their_numbers_and_the_last_is_the_newest(
        numbers in prop::collection::btree_set(prop_oneof![0..20u64, any::<u64>()], 0..6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        for number in &numbers {
            fs::create_dir(dir.path().join(version_name(*number))).unwrap();
        }
        let listed = versions(dir.path()).unwrap();
        prop_assert_eq!(&listed.0, &numbers.iter().copied().collect::<Vec<_>>());
        prop_assert!(listed.1.is_empty());
        for number in &numbers {
            let newest = numbers.last() == Some(number);
            prop_assert_eq!(is_newest(&dir.path().join(version_name(*number))), newest);
        }
        // Names are in the order of the numbers.
        let names: Vec<String> = numbers.iter().map(|number| version_name(*number)).collect();
        prop_assert!(names.is_sorted());
    }
}

#[test]
fn what_is_no_version_s_folder_is_none_and_what_is_being_made_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at(&version_name(7))).unwrap();
    fs::create_dir(at(&format!("{MAKING}8"))).unwrap();
    fs::create_dir(at("8")).unwrap(); // not as the engine writes it
    fs::create_dir(at("+0000000000000000009")).unwrap();
    fs::create_dir(at("99999999999999999999")).unwrap(); // beyond any number
    fs::write(at(&version_name(9)), "").unwrap();
    symlink(at(&version_name(7)), at(&version_name(10))).unwrap();
    assert_eq!(versions(dir.path()), Ok((vec![7], vec![at(".new-8")])));
    assert!(is_newest(&at(&version_name(7))) && !is_newest(&at(&version_name(10))));
}

#[test]
fn where_nothing_was_published_there_is_none_and_what_cannot_be_listed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(versions(&dir.path().join("none")), Ok((Vec::new(), Vec::new())));
    assert!(!is_newest(&dir.path().join("none").join(version_name(1))));
    fs::write(dir.path().join("file"), "").unwrap();
    assert_eq!(versions(&dir.path().join("file")).unwrap_err().kind(), Kind::Os);
}
