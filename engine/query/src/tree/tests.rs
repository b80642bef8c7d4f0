//! The tree that follows changes is the tree that is made anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::{GroupCache, GroupStretch, GroupTree};
use engram_base::id::{Gid, id_key};
use engram_catalog::{Catalog, Headroom, Options, Table, WriteTxn};
use engram_ops::group::group_record;
use engram_records::stamp::Stamp;

const ROOT: Gid = 1;

/// A group: the one that it is in, its name, and whether it has attributes.
type KnownGroup = (Gid, String, bool);

fn put(txn: &mut WriteTxn<'_>, gid: Gid, group: &KnownGroup) {
    let (parent, name, attrs) = group;
    let attrs: &[u8] = if *attrs { &[0, 0, 0, 0, 0] } else { &[] };
    let stamp = Stamp { owner: 0, now: 0, checksums: false };
    let row = group_record(*parent, name, stamp, attrs, &[]).encode();
    txn.put(Table::Groups, &id_key(gid), &row).unwrap();
}

/// Every group below one with its path from there, as a walk meets them.
fn walked(tree: &GroupTree, from: Gid) -> BTreeMap<Gid, (Vec<String>, bool)> {
    let (mut all, mut path) = (BTreeMap::new(), Vec::new());
    tree.walk(from, &mut |node, depth| {
        path.truncate(depth);
        path.push(node.name.to_string());
        all.insert(node.gid, (path.clone(), node.has_attrs));
        Ok(())
    })
    .unwrap();
    all
}

fn expected(known: &BTreeMap<Gid, KnownGroup>) -> BTreeMap<Gid, (Vec<String>, bool)> {
    let path = |gid: Gid| {
        let (mut names, mut at) = (Vec::new(), gid);
        while at != 0 {
            names.push(known[&at].1.clone());
            at = known[&at].0;
        }
        names.reverse();
        names
    };
    known.iter().map(|(gid, (_, _, attrs))| (*gid, (path(*gid), *attrs))).collect()
}

/// What happens to a group: it comes into one of the others, moves there, or goes.
#[derive(Clone, Debug)]
struct Change {
    which: usize,
    into: usize,
    kind: u8,
}

fn change() -> impl Strategy<Value = Change> {
    (0_usize..64, 0_usize..64, 0_u8..4).prop_map(|(which, into, kind)| Change { which, into, kind })
}

fn is_within(known: &BTreeMap<Gid, KnownGroup>, mut at: Gid, above: Gid) -> bool {
    while at != 0 && at != above {
        at = known[&at].0;
    }
    at == above
}

fn happen(
    txn: &mut WriteTxn<'_>,
    known: &mut BTreeMap<Gid, KnownGroup>,
    next: &mut Gid,
    step: &Change,
) {
    let gids: Vec<Gid> = known.keys().copied().collect();
    let (which, into) = (gids[step.which % gids.len()], gids[step.into % gids.len()]);
    match step.kind {
        0 | 1 => {
            // Ids of several processes do not come in order.
            *next += 1;
            let gid = if next.is_multiple_of(2) { *next } else { 1000 - *next };
            known.insert(gid, (into, format!("g{next}"), step.kind == 0));
            put(txn, gid, &known[&gid]);
        }
        2 if which != ROOT && !is_within(known, into, which) => {
            let group = known.get_mut(&which).unwrap();
            (group.0, group.1, group.2) = (into, format!("{}'", group.1), !group.2);
            put(txn, which, group);
        }
        3 if which != ROOT && known.values().all(|(parent, ..)| *parent != which) => {
            known.remove(&which);
            txn.delete(Table::Groups, &id_key(which)).unwrap();
        }
        _ => {}
    }
}

fn with_root() -> (tempfile::TempDir, Catalog, BTreeMap<Gid, KnownGroup>) {
    let dir = tempfile::tempdir().unwrap();
    Catalog::create(dir.path(), &Options::default()).unwrap();
    let catalog = Catalog::open(dir.path(), &Options::default()).unwrap();
    let known = BTreeMap::from([(ROOT, (0, String::new(), false))]);
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    put(&mut txn, ROOT, &known[&ROOT]);
    txn.commit().unwrap();
    (dir, catalog, known)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
    fn a_tree_that_follows_is_as_one_that_is_made_anew(
        commits in prop::collection::vec((prop::collection::vec(change(), 0..12), 0_u8..4), 1..30),
    ) {
        let (_dir, catalog, mut known) = with_root();
        let (cache, mut next) = (GroupCache::default(), ROOT);
        let mut old: Option<(Arc<GroupTree>, BTreeMap<Gid, KnownGroup>)> = None;
        for (steps, look) in commits {
            let mut txn = catalog.write(Headroom::Normal).unwrap();
            for step in &steps {
                happen(&mut txn, &mut known, &mut next, step);
            }
            txn.commit().unwrap();
            if look == 0 {
                continue;
            }
            let read = catalog.read().unwrap();
            let tree = cache.of(&read).unwrap().unwrap();
            prop_assert_eq!(walked(&tree, ROOT), expected(&known));
            for gid in known.keys() {
                let below = walked(&tree, *gid).into_keys();
                let all = known.keys().filter(|at| is_within(&known, **at, *gid)).copied();
                prop_assert!(below.eq(all));
            }
            // Whoever walks a tree has it as it was.
            if let Some((held, was)) = old.replace((tree, known.clone())) {
                prop_assert_eq!(walked(&held, ROOT), expected(&was));
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
fn only_groups_that_have_changed_are_read_again() {
    let (_dir, catalog, mut known) = with_root();
    let commit = |change: &mut dyn FnMut(&mut WriteTxn<'_>)| {
        let mut txn = catalog.write(Headroom::Normal).unwrap();
        change(&mut txn);
        txn.commit().unwrap();
    };
    commit(&mut |txn| {
        for gid in 2..=5000 {
            known.insert(gid, (gid / 2, format!("g{gid}"), false));
            put(txn, gid, &known[&gid]);
        }
    });
    let cache = GroupCache::default();
    let read = || cache.of(&catalog.read().unwrap()).unwrap().unwrap().read;
    assert_eq!(read(), 5000);
    commit(&mut |txn| txn.put(Table::Objects, &id_key(9), b"row").unwrap());
    assert_eq!(read(), 5000, "no group has changed");
    for gid in 5001..5011 {
        commit(&mut |txn| put(txn, gid, &(7, format!("g{gid}"), true)));
    }
    commit(&mut |txn| {
        put(txn, 9, &(5010, "moved".to_owned(), false));
        assert!(txn.delete(Table::Groups, &id_key(5000)).unwrap());
    });
    assert_eq!(read(), 5012, "ten came, one moved, one went");
    commit(&mut |txn| (2..2000).for_each(|gid| put(txn, gid, &(gid / 2, "x".to_owned(), false))));
    assert_eq!(read(), 5009, "nobody knows which of so many, so it is made anew");
    let before = catalog.read().unwrap();
    commit(&mut |txn| put(txn, 2, &(1, "y".to_owned(), false)));
    assert_eq!(read(), 5010);
    let earlier = cache.of(&before).unwrap().unwrap();
    assert_eq!(walked(&earlier, 2)[&2].0, ["x"], "an earlier snapshot has a tree of its own");
    assert_eq!(read(), 5010, "and the newest tree stays");
}

#[test]
#[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
fn stretches_are_of_groups_that_follow_each_other() {
    let (_dir, catalog, _) = with_root();
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    (10..20).for_each(|gid| put(&mut txn, gid, &(ROOT, format!("g{gid}"), false)));
    txn.commit().unwrap();
    let tree = GroupTree::read(&catalog.read().unwrap(), 0).unwrap();
    let stretch = |before, first, last, after| GroupStretch { before, first, last, after };
    assert_eq!(
        tree.stretches(&[1, 10, 11, 14, 18, 19]),
        [
            stretch(None, 1, 11, Some(12)),
            stretch(Some(13), 14, 14, Some(15)),
            stretch(Some(17), 18, 19, None)
        ]
    );
    assert_eq!(tree.stretches(&[12]), [stretch(Some(11), 12, 12, Some(13))]);
    assert!(tree.stretches(&[]).is_empty());
}
