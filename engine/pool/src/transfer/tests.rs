//! What a move reads before it begins, and what becomes of one that is given up half-way.

use super::{Leg, MoveSource, gather, leave};
use crate::namespace::Namespace;
use crate::tests::{of, small_pool};
use engram_base::error::Kind;
use engram_base::id::Member;
use engram_base::scope::Scope;
use engram_catalog::Table;
use engram_ops::marks::Going;
use engram_realm::{HasCore as _, Realm};
use engram_records::object::{NewObject, Placement};
use std::sync::Arc;

fn member(namespace: &Namespace, path: &str) -> Member {
    namespace.lookup(namespace.root(), path).unwrap().expect(path)
}

fn gathered(realm: &Realm, roots: &[Member]) -> engram_base::error::Result<Vec<Going>> {
    let inside = realm.core().enter()?;
    let txn = inside.read()?;
    gather(&mut txn.rows(), realm.root(), roots)
}

#[test]
fn a_move_gathers_groups_before_what_is_in_them_and_each_member_once() {
    let (_dir, pool) = small_pool();
    let all = pool.namespace("default").unwrap();
    for path in ["g/h/a", "g/b", "c"] {
        all.put(all.root(), path, &NewObject::blob(), b"", Placement::default()).unwrap();
    }
    let realm = all.realm_of(Scope::Shared, false).unwrap().unwrap();
    let [outer, inner, a, b, c] = ["g", "g/h", "g/h/a", "g/b", "c"].map(|path| member(&all, path));
    // The inner group is named first, and is below the outer one, too.
    let going = gathered(&realm, &[inner, outer, c, a]).unwrap();
    let depths: Vec<u32> = going.iter().map(|going| going.depth).collect();
    assert!(depths.is_sorted(), "{going:?}");
    let mut members: Vec<Member> = going.iter().map(|going| going.member).collect();
    let at = |member| members.iter().position(|other| *other == member).unwrap();
    assert!(at(outer) < at(inner) && at(inner) < at(a) && at(outer) < at(b));
    members.sort_by_key(|member| member.id());
    let mut wanted = vec![outer, inner, a, b, c];
    wanted.sort_by_key(|member| member.id());
    assert_eq!(members, wanted);
    let root = gathered(&realm, &[Member::Group(all.root())]).unwrap_err();
    assert_eq!(root.kind(), Kind::Argument, "the root belongs to every scope");
}

/// The rows that a realm has of moves.
fn rows_of_moves(realm: &Realm) -> u64 {
    let inside = realm.core().enter().unwrap();
    let txn = inside.read().unwrap();
    let tables = [Table::Transfers, Table::Leaving, Table::Received];
    tables.into_iter().map(|table| txn.entries(table).unwrap()).sum()
}

#[test]
fn a_move_that_was_given_up_before_it_arrived_is_undone_by_the_next_change() {
    let (_dir, pool) = small_pool();
    let all = pool.namespace("default").unwrap();
    let root = all.root();
    all.put(root, "g/a", &NewObject::blob(), &[1; 2000], of(Scope::Private)).unwrap();
    let realm = all.realm_of(Scope::Private, false).unwrap().unwrap();
    let source = MoveSource { core: Arc::clone(realm.core()), roots: vec![member(&all, "g")] };
    let leg: Leg = leave(&source, Scope::Shared, 0).unwrap();
    assert_eq!(leg.going.len(), 2);
    assert_eq!(rows_of_moves(&realm), 3, "the move, and a mark for each member");
    let busy = realm.delete(root, "g/a").unwrap_err();
    assert_eq!(busy.kind(), Kind::Busy, "a member on its way was changed: {busy}");

    drop(leg); // as a thread that died in the middle of it
    all.rename(root, "g/a", root, "g/b").unwrap();
    assert_eq!(rows_of_moves(&realm), 0);
    assert_eq!(all.scope_of(member(&all, "g/b")).unwrap(), Scope::Private);
}
