//! Operations on names and records, beside a naive tree.

use proptest::prelude::*;

use super::{
    Clash, annotate, create, delete, delete_batch, delete_tree, link, members, path_of,
    refuse_changed, rename,
};
use crate::rows_mut::RowsMut;
use crate::testing::tree::{ModelTree, check};
use crate::testing::{
    AlwaysSync, Lies, Op, ROOT, TestRows, after, array_record, at, extent_of, group, here, object,
    op, stamp, target,
};
use engram_base::error::{Error, Kind};
use engram_base::id::{Member, NameKey, id_key};
use engram_base::name::Path;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_records::attrs::Value;
use engram_records::object::Stored;

proptest! {
    #[test]
    fn operations_do_what_they_do_to_a_naive_tree_and_refused_ones_leave_the_rows_as_they_were(
        ops in prop::collection::vec(op(true), 1..40),
    ) {
        let (mut memory, mut tree) = (TestRows::with_root(), ModelTree::default());
        let mut last_id = ROOT;
        for (now, op) in (1..).zip(&ops) {
            let (before, tree_before) = (memory.clone(), tree.clone());
            let done = op.run(&mut memory, now, &mut last_id);
            let expected = tree.apply(op);
            prop_assert_eq!(done.as_ref().map_err(Error::kind), expected.as_ref().map_err(|k| *k),
                "{:?}: {:?}", op, done);
            if done.is_err() {
                prop_assert_eq!(&memory, &before, "a refused operation changes no row: {:?}", op);
                tree = tree_before;
            }
            prop_assert_eq!(&ModelTree::of(&mut memory), &tree, "{:?}", op);
            check(&mut memory);
        }
    }

    #[test]
    fn a_group_deleted_bit_by_bit_is_gone_as_one_deleted_at_once_is(
        ops in prop::collection::vec(op(true), 1..40), most in 1usize..6,
    ) {
        let (mut memory, mut last_id) = (TestRows::with_root(), ROOT);
        for (now, op) in (1..).zip(&ops) {
            let _ = op.run(&mut memory, now, &mut last_id);
        }
        let Some(Member::Group(gid)) = at(&mut memory, "a") else { return Ok(()) };
        let mut at_once = memory.clone();
        loop {
            let gone = delete_batch(&mut memory, gid, most).unwrap();
            prop_assert!(gone <= most);
            if gone == 0 {
                break;
            }
            check(&mut memory); // whole between any two steps
        }
        prop_assert_eq!(members(&mut memory, gid, None, 1).unwrap(), []);
        for rows in [&mut memory, &mut at_once] {
            rows.remove(Table::Names, NameKey::new(ROOT, "a").as_bytes()).unwrap();
            delete_tree(rows, gid).unwrap();
            check(rows);
        }
        prop_assert_eq!(&memory.rows, &at_once.rows);
        prop_assert_eq!(memory.touches(), at_once.touches());
    }
}

#[test]
fn a_mirror_that_cannot_be_moved_into_itself_stays_a_mirror() {
    let mut memory = after(&[Op::Reflect { path: "a".to_owned() }]);
    let before = memory.clone();
    let into_itself = Op::Rename { from: here("a"), to: here("a/b") };
    let refused = into_itself.run(&mut memory, 9, &mut 100).unwrap_err();
    assert_eq!(refused.kind(), Kind::Argument);
    assert_eq!(memory, before);
}

#[test]
fn an_annotation_that_does_not_fit_leaves_a_mirror_as_it_was() {
    let mut memory = after(&[Op::Reflect { path: "a".to_owned() }]);
    let (before, member) = (memory.clone(), at(&mut memory, "a").unwrap());
    let mut wrong = Value::text("three");
    wrong.shape = vec![1; 65];
    let refused = annotate(&mut memory, member, &[(1, Some(&wrong))], stamp(9)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Argument);
    assert_eq!(memory, before);
}

#[test]
fn nothing_is_made_from_a_group_that_was_deleted() {
    let mut memory = after(&[group("a")]);
    let Some(Member::Group(gone)) = at(&mut memory, "a") else { panic!("a is a group") };
    delete(&mut memory, &target(ROOT, &Path::new("a").unwrap()), "a").unwrap();
    let before = memory.clone();
    for text in ["b", "b/c"] {
        let path = Path::new(text).unwrap();
        let place = target(gone, &path);
        let mut none = || panic!("no id is taken");
        let made = create(&mut memory, &place, stamp(5), &[], &[], true, &mut none);
        assert_eq!(made.unwrap_err().kind(), Kind::NotFound);
        let record = array_record(Stored::Inline(b""), false, stamp(5));
        let new =
            super::NewRecord { oid: 9, record, index: None, modes: &AlwaysSync, reserved: None };
        let linked = link(&mut memory, &place, &new, true, &mut none);
        assert_eq!(linked.unwrap_err().kind(), Kind::NotFound);
        assert_eq!(
            super::check_free(&mut memory, &place, true).unwrap_err().kind(),
            Kind::NotFound
        );
    }
    assert_eq!(memory, before);
}

#[test]
fn an_object_that_is_replaced_gives_its_space_back_and_keeps_its_name() {
    let mut memory = after(&[object("a", Lies::InExtent)]);
    let old = at(&mut memory, "a").unwrap();
    assert!(memory.released.is_empty());
    let overwrite =
        Op::Link { at: here("a"), overwrite: true, lies: Lies::Inline, read_only: false };
    overwrite.run(&mut memory, 5, &mut 50).unwrap();
    assert_eq!(memory.released, [extent_of(old.id(), 0)]);
    assert_eq!(at(&mut memory, "a"), Some(Member::Object(51)));
    assert!(!memory.has(Table::Objects, &id_key(old.id())).unwrap());
}

#[test]
fn a_member_that_is_renamed_to_its_own_name_is_not_touched() {
    let mut memory = after(&[object("a", Lies::Inline)]);
    let before = memory.clone();
    let path = Path::new("a").unwrap();
    let place = target(ROOT, &path);
    let mut none = || panic!("no id is taken");
    rename(&mut memory, &place, "a", &place, Clash::Refuse, stamp(9), &mut none).unwrap();
    assert_eq!(memory, before);
}

#[test]
fn members_are_listed_in_byte_order_from_any_name_on_and_no_other_group_s() {
    let names = ["a", "a!", "aa", "b", "ä"];
    let inner = names.map(|name| object(&format!("g/{name}"), Lies::Inline));
    let mut memory = after(&[&inner[..], &[group("f/x"), group("h/y")]].concat());
    let Some(Member::Group(gid)) = at(&mut memory, "g") else { panic!("g is a group") };
    let mut listed = |after: Option<&str>, limit| -> Vec<String> {
        let members = members(&mut memory, gid, after, limit).unwrap();
        members.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(listed(None, usize::MAX), names);
    assert_eq!(listed(None, 2), names[..2]);
    for (place, name) in names.iter().enumerate() {
        assert_eq!(listed(Some(name), usize::MAX), names[place + 1..], "after {name:?}");
    }
    assert_eq!(listed(Some("a\""), usize::MAX), names[2..], "after a name that is not there");
    assert_eq!(listed(None, 0), [""; 0]);
}

#[test]
fn a_path_leads_back_to_its_member() {
    let mut memory = after(&[object("a/b/c", Lies::Inline)]);
    for path in ["a", "a/b", "a/b/c"] {
        let member = at(&mut memory, path).unwrap();
        assert_eq!(path_of(&mut memory, member).unwrap(), path);
    }
    assert_eq!(path_of(&mut memory, Member::Group(ROOT)).unwrap(), "");
    let gone = path_of(&mut memory, Member::Object(99)).unwrap_err();
    assert_eq!(gone.kind(), Kind::NotFound);
}

#[test]
fn attributes_that_have_changed_meanwhile_are_refused() {
    let mut memory = after(&[
        object("a", Lies::Inline),
        Op::Annotate { at: here("a"), key: 1, text: Some("one") },
        Op::Annotate { at: here("a"), key: 2, text: Some("two") },
    ]);
    let member = at(&mut memory, "a").unwrap();
    let (one, two) = (Value::text("one"), Value::text("two"));
    assert_eq!(refuse_changed(&mut memory, member, &[(1, &one), (2, &two)]), Ok(()));
    assert_eq!(refuse_changed(&mut memory, Member::Object(99), &[]), Ok(()), "it asks for nothing");
    for wrong in [[(1, &one), (2, &one)], [(1, &one), (3, &two)]] {
        let refused = refuse_changed(&mut memory, member, &wrong).unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy);
    }
}
