//! Groups of one user in which another has something in private, and what becomes of them when the
//! first deletes, hides or withdraws them.

use std::path::Path;

use crate::common::{
    ALICE, BOB, CAROL, KEEP, TEAM, alone, become_user, floats, folder_of, fork, is_root, sound,
};
use engram::{
    CreateOptions, Kind, Member, Mode, Moved, Namespace, Placement, Pool, QueryOptions, Result,
    Scope, Value, query,
};

const PRIVATE: Placement = Placement { scope: Some(Scope::Private), ..KEEP };
const SHARED: Placement = Placement { scope: Some(Scope::Shared), ..KEEP };

/// Runs something as a user.
type AsUser<'a> = dyn Fn(u32, &dyn Fn(&Namespace)) + 'a;

/// As a user: what `work` says of the namespace that the team shares.
fn as_user(path: &Path, user: u32, group: u32, work: impl FnOnce(&Namespace)) {
    fork(|_| {
        become_user(user, group);
        let pool = Pool::open(path, Mode::ReadWrite, true).expect("the pool");
        work(&pool.namespace("team").expect("the namespace"));
    })
    .finish();
}

/// Runs `play` with a pool of Alice's whose namespace Bob shares and Carol enters; then the pool is
/// sound.
fn with_team(test: &str, play: impl FnOnce(&AsUser<'_>)) {
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        fork(|_| {
            become_user(ALICE, TEAM);
            let options = CreateOptions { size: 32 << 20, ..CreateOptions::default() };
            let pool = Pool::create(&path, &options).expect("a pool");
            pool.create_namespace("team", 0o775, Some(TEAM), None).expect("a namespace");
        })
        .finish();
        play(&|user, work| {
            let group = if user == CAROL { CAROL } else { TEAM };
            as_user(&path, user, group, work);
            sound(&path);
        });
        sound(&path);
    });
}

fn put(team: &Namespace, path: &str, placement: Placement) -> Result<u64> {
    team.put(team.root(), path, &floats(&[3]), &[7; 24], placement)
}

fn member(team: &Namespace, path: &str) -> Option<Member> {
    team.lookup(team.root(), path).expect("a look")
}

fn group(team: &Namespace, path: &str) -> Member {
    member(team, path).unwrap_or_else(|| panic!("{path} is gone"))
}

fn delete(team: &Namespace, path: &str) {
    team.delete(team.root(), path).expect("a deletion");
}

fn transfer(team: &Namespace, path: &str, from: Scope, to: Scope) -> Result<Moved> {
    team.transfer(team.root(), path, &[from], to)
}

fn keys(team: &Namespace, path: &str) -> Vec<String> {
    let attrs = team.attrs(group(team, path)).expect("attributes");
    attrs.into_iter().map(|(key, _)| key).collect()
}

fn value() -> Value {
    Value::text("v")
}

fn scope(team: &Namespace, path: &str) -> Scope {
    team.scope_of(group(team, path)).expect("a scope")
}

/// Every object that a query finds, by its path.
fn found(team: &Namespace) -> Vec<String> {
    let every = query::parse("order by @path").expect("a query");
    let answer = team.query(&every, &QueryOptions::default()).expect("an answer");
    let path = |oid: &u64| team.path_of(Member::Object(*oid)).expect("a path");
    answer.oids.iter().map(path).collect()
}

/// Bob keeps `a/c`, which was Alice's, with `a/c/mine` in it.
fn kept_by_bob(user: &AsUser<'_>) {
    user(ALICE, &|team| {
        let root = team.root();
        let attrs = [("said".to_owned(), value())];
        team.create_group(root, "a/c", &attrs, b"", false, None).expect("a group");
    });
    user(BOB, &|team| {
        put(team, "a/c/mine", PRIVATE).expect("a put");
    });
    user(ALICE, &|team| delete(team, "a/c"));
    user(BOB, &|team| assert_eq!(keys(team, "a/c"), ["said"]));
}

#[test]
fn what_is_said_of_a_group_that_became_the_users_own_goes_with_it() {
    let test = "what_is_said_of_a_group_that_became_the_users_own_goes_with_it";
    with_team(test, |user| {
        kept_by_bob(user);
        user(BOB, &|team| {
            let own = group(team, "a/c");
            team.set_attrs(own, &[("more".to_owned(), value())]).expect("an attribute");
            team.set_read_only(own, true).expect("a hint");
            let moved = transfer(team, "a/c", Scope::Private, Scope::Shared).expect("a move");
            assert_eq!((moved.objects, moved.groups), (1, 1));
            assert_eq!(keys(team, "a/c"), ["more", "said"]);
            assert_eq!(team.is_read_only(group(team, "a/c")), Ok(true));
            assert_eq!(scope(team, "a/c"), Scope::Shared);
        });
        user(ALICE, &|team| {
            assert_eq!(keys(team, "a/c"), ["more", "said"]);
            team.set_read_only(group(team, "a/c"), false).expect("the hint taken back");
            delete(team, "a/c");
        });
        user(BOB, &|team| assert_eq!(member(team, "a/c"), None));
    });
}

#[test]
fn a_group_that_became_the_users_own_keeps_its_attributes_when_its_members_go() {
    let test = "a_group_that_became_the_users_own_keeps_its_attributes_when_its_members_go";
    with_team(test, |user| {
        kept_by_bob(user);
        user(BOB, &|team| {
            transfer(team, "a/c/mine", Scope::Private, Scope::Shared).expect("a move");
            assert_eq!(keys(team, "a/c"), ["said"]);
            assert_eq!(scope(team, "a/c"), Scope::Private);
        });
        user(ALICE, &|team| assert_eq!(keys(team, "a/c"), Vec::<String>::new()));
        user(BOB, &|team| {
            let root = team.root();
            team.rename(root, "a/c", root, "own").expect("another name");
            assert_eq!(keys(team, "own"), ["said"]);
            transfer(team, "own/mine", Scope::Shared, Scope::Private).expect("a move");
            transfer(team, "own", Scope::Private, Scope::Published).expect("a move");
        });
        user(CAROL, &|team| {
            assert_eq!(keys(team, "own"), ["said"]);
            assert!(member(team, "own/mine").is_some());
        });
    });
}

#[test]
fn a_read_only_group_of_others_is_protected_where_another_brings_his_own() {
    let test = "a_read_only_group_of_others_is_protected_where_another_brings_his_own";
    with_team(test, |user| {
        user(BOB, &|team| {
            team.create_group(team.root(), "a", &[], b"", false, Some(Scope::Private))
                .expect("a group");
            let oid = put(team, "a/x", PRIVATE).expect("a put");
            team.transfer_all(&[oid], &[Scope::Private], Scope::Shared).expect("a move");
            put(team, "a/y", PRIVATE).expect("a put");
        });
        user(ALICE, &|team| {
            team.set_read_only(group(team, "a"), true).expect("a hint");
        });
        user(BOB, &|team| {
            let refused = transfer(team, "a", Scope::Private, Scope::Shared).expect_err("guarded");
            assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
        });
        user(ALICE, &|team| {
            assert_eq!(member(team, "a/y"), None);
            team.set_read_only(group(team, "a"), false).expect("the hint taken back");
            put(team, "a/z", SHARED).expect("nothing protects it any more");
        });
        user(BOB, &|team| {
            let attrs = [("bobs".to_owned(), value())];
            team.set_attrs(group(team, "a"), &attrs).expect("an attribute");
            transfer(team, "a", Scope::Private, Scope::Shared).expect("a move");
            assert_eq!(scope(team, "a"), Scope::Shared);
        });
        user(ALICE, &|team| {
            assert_eq!(keys(team, "a"), ["bobs"]);
            for path in ["a/x", "a/y", "a/z"] {
                assert!(member(team, path).is_some(), "{path}");
            }
        });
    });
}

#[test]
fn nothing_is_published_under_a_name_that_hides_it_from_who_shares() {
    let test = "nothing_is_published_under_a_name_that_hides_it_from_who_shares";
    with_team(test, |user| {
        user(BOB, &|team| {
            put(team, "b/x", PRIVATE).expect("a put");
        });
        user(ALICE, &|team| {
            put(team, "other/y", SHARED).expect("a put");
            let root = team.root();
            team.rename(root, "other", root, "b").expect("a name that is free to her");
        });
        user(BOB, &|team| {
            let refused = transfer(team, "b", Scope::Private, Scope::Published).expect_err("taken");
            assert_eq!(refused.kind(), Kind::Exists, "{refused}");
            assert_eq!(scope(team, "b/x"), Scope::Private);
        });
        user(CAROL, &|team| assert_eq!(member(team, "b"), None));
    });
}

#[test]
fn groups_of_others_alone_are_nothing_to_publish() {
    let test = "groups_of_others_alone_are_nothing_to_publish";
    with_team(test, |user| {
        user(ALICE, &|team| {
            put(team, "a/x", KEEP).expect("a put");
        });
        user(BOB, &|team| {
            put(team, "a/mine", PRIVATE).expect("a put");
            delete(team, "a/mine");
            let refused = transfer(team, "a", Scope::Private, Scope::Published).expect_err("his?");
            assert_eq!(refused.kind(), Kind::Argument, "{refused}");
        });
        user(CAROL, &|team| assert_eq!(member(team, "a"), None));
    });
}

#[test]
fn what_is_kept_in_a_published_group_is_there_again_when_nothing_hides_that() {
    let test = "what_is_kept_in_a_published_group_is_there_again_when_nothing_hides_that";
    with_team(test, |user| {
        user(ALICE, &|team| {
            put(team, "b/a/x", KEEP).expect("a put");
            transfer(team, "b/a", Scope::Shared, Scope::Published).expect("a move");
        });
        user(BOB, &|team| {
            put(team, "b/a/mine", PRIVATE).expect("a put");
        });
        let hide = |team: &Namespace| {
            let root = team.root();
            team.create_group(root, "b/a", &[], b"", false, Some(Scope::Shared)).expect("a group");
        };
        user(ALICE, &hide);
        user(BOB, &|team| {
            assert_eq!(member(team, "b/a/mine"), None);
            assert_eq!(found(team), Vec::<String>::new());
            // A second one of that path would be out of reach once nothing hides the first.
            let refused = put(team, "b/a/mine", PRIVATE).expect_err("another has the name");
            assert_eq!(refused.kind(), Kind::Exists, "{refused}");
        });
        user(ALICE, &|team| delete(team, "b/a"));
        user(BOB, &|team| {
            assert_eq!(found(team), ["b/a/mine", "b/a/x"]);
            assert!(member(team, "b/a/mine").is_some());
        });
        user(ALICE, &|team| {
            put(team, "b/a", SHARED).expect("an object");
        });
        user(BOB, &|team| {
            assert_eq!(found(team), ["b/a"]);
            assert_eq!(member(team, "b/a/mine"), None);
        });
    });
}
