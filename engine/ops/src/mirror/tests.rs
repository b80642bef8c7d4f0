//! Mirrors: what they say, which name they get, and when they become the realm's own.

use super::{Original, all, delete, note, own, presence, reflect};
use crate::group;
use crate::testing::tree::check;
use crate::testing::{Lies, ROOT, TestRows, after, at, group as new_group, object};
use engram_base::id::{Gid, Member, id_key};
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_records::object::Record;

fn original(gid: Gid, parent: Gid, name: &str) -> Original {
    Original {
        gid,
        parent,
        name: name.to_owned(),
        owner: 7,
        created: 1,
        modified: 2,
        attrs: Vec::new(),
        checked: true,
    }
}

/// Each mirror of these rows: its GID, its parent, and whether its name leads to it.
fn mirrors(memory: &mut TestRows) -> Vec<(Gid, Gid, bool)> {
    all(memory).unwrap().into_iter().map(|one| (one.gid, one.parent, one.named)).collect()
}

#[test]
fn a_chain_of_groups_gets_mirrors_that_say_what_the_true_ones_say() {
    let mut memory = TestRows::with_root();
    let chain = [original(50, ROOT, "a"), original(51, 50, "b")];
    reflect(&mut memory, &chain).unwrap();
    assert_eq!(at(&mut memory, "a/b"), Some(Member::Group(51)));
    assert_eq!(mirrors(&mut memory), [(50, ROOT, true), (51, 50, true)]);
    let row = memory.get(Table::Groups, &id_key(51)).unwrap().unwrap().into_owned();
    let record = Record::parse(&row).unwrap();
    assert_eq!((record.owner, record.created, record.modified), (7, 1, 2));
    check(&mut memory);

    let before = memory.clone();
    reflect(&mut memory, &chain).unwrap();
    assert_eq!(memory, before, "what says the same is left as it is");
}

#[test]
fn a_mirror_follows_its_group_to_another_name_and_true_groups_stay() {
    let mut memory = after(&[new_group("own")]);
    let Some(Member::Group(own)) = at(&mut memory, "own") else { panic!("it is a group") };
    reflect(&mut memory, &[original(50, ROOT, "a")]).unwrap();
    reflect(&mut memory, &[original(50, own, "b"), original(own, ROOT, "renamed")]).unwrap();
    assert_eq!(at(&mut memory, "own/b"), Some(Member::Group(50)));
    assert_eq!((at(&mut memory, "a"), at(&mut memory, "renamed")), (None, None));
    assert_eq!(presence(&mut memory, own), Ok(Some(false)), "a true group is no mirror");
    assert_eq!(presence(&mut memory, 50), Ok(Some(true)));
    assert_eq!(presence(&mut memory, 99), Ok(None));
    check(&mut memory);
}

#[test]
fn a_member_that_has_the_name_keeps_it_and_the_mirror_gets_none() {
    let mut memory = after(&[object("a", Lies::Inline)]);
    let member = at(&mut memory, "a");
    reflect(&mut memory, &[original(50, ROOT, "a")]).unwrap();
    assert_eq!(at(&mut memory, "a"), member);
    assert_eq!(mirrors(&mut memory), [(50, ROOT, false)]);

    let before = memory.clone();
    own(&mut memory, Member::Group(50)).unwrap();
    assert_eq!(memory, before, "nobody finds it here, so nobody makes it the realm's own");

    // It gets the name once that is free, and can be deleted while it has none.
    let mut other = memory.clone();
    let path = engram_base::name::Path::new("a").unwrap();
    group::delete(&mut other, &crate::testing::target(ROOT, &path), "a").unwrap();
    reflect(&mut other, &[original(50, ROOT, "a")]).unwrap();
    assert_eq!(at(&mut other, "a"), Some(Member::Group(50)));
    delete(&mut memory, 50, ROOT).unwrap();
    assert_eq!((at(&mut memory, "a"), mirrors(&mut memory)), (member, Vec::new()));
    check(&mut memory);
}

#[test]
fn a_mirror_that_is_made_the_realm_s_own_is_listed_no_more() {
    let mut memory = TestRows::with_root();
    reflect(&mut memory, &[original(50, ROOT, "a")]).unwrap();
    own(&mut memory, Member::Group(50)).unwrap();
    assert_eq!(presence(&mut memory, 50), Ok(Some(false)));
    assert_eq!(mirrors(&mut memory), []);
    check(&mut memory);
    let before = memory.clone();
    own(&mut memory, Member::Group(50)).unwrap();
    own(&mut memory, Member::Object(51)).unwrap();
    reflect(&mut memory, &[original(50, ROOT, "elsewhere")]).unwrap();
    assert_eq!(memory, before, "what is the realm's own is no copy any more");
}

#[test]
fn a_group_is_deleted_with_all_below_it_by_its_gid_and_one_that_is_gone_is_no_matter() {
    let mut memory = after(&[object("a/b/c", Lies::InExtent), object("a/d", Lies::InChunks)]);
    let Some(Member::Group(gid)) = at(&mut memory, "a") else { panic!("it is a group") };
    delete(&mut memory, gid, ROOT).unwrap();
    assert_eq!(memory.rows.entries(Table::Names), 0);
    check(&mut memory);
    let before = memory.clone();
    delete(&mut memory, gid, ROOT).unwrap();
    assert_eq!(memory, before);
}

#[test]
fn a_mirror_is_listed_once_and_struck_off_once() {
    let mut memory = TestRows::with_root();
    for on in [true, true, false, false] {
        note(&mut memory, 50, on).unwrap();
        assert_eq!(memory.rows.entries(Table::Mirrors), usize::from(on));
    }
}
