//! Leaving: a user removes the own private realm, and so no longer keeps the pool's owner from
//! removing what it is in.

use std::path::Path;

use crate::common::{
    ALICE, BOB, CAROL, Fixture, KEEP, Line, alone, attach, become_user, check, filled, floats,
    folder_of, fork, is_root, put, sound,
};
use engram::{CreateOptions, Kind, Member, Mode, Namespace, Payload, Placement, Pool, Scope, View};

const MIB: usize = 1 << 20;
const PRIVATE: Placement = Placement { scope: Some(Scope::Private), ..KEEP };

fn keep(namespace: &Namespace, name: &str, tag: u64) {
    let data = filled(tag, 1, MIB / 8);
    let new = floats(&[MIB as u64 / 8]);
    namespace.put(namespace.root(), name, &new, &data, PRIVATE).unwrap();
}

fn view(namespace: &Namespace, name: &str) -> Option<View> {
    let Member::Object(oid) = namespace.lookup(namespace.root(), name).unwrap()? else {
        panic!("{name} is an array")
    };
    match namespace.payload(oid).unwrap().0 {
        Payload::Extent(view) => Some(view),
        Payload::Inline(_) => panic!("{name} is large"),
    }
}

/// What is private goes, all else stays, handles go on, and a new realm can be made.
#[test]
fn what_is_private_goes_and_nothing_else() {
    let fixture = Fixture::new(32 << 20);
    let pool = &fixture.pool;
    let namespace = pool.namespace("default").unwrap();
    put(&fixture.realm(), "shared", &filled(1, 1, MIB / 8));
    let missing = pool.remove_private("default").unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound, "{missing}");
    let none = pool.remove_private("none").unwrap_err();
    assert_eq!(none.kind(), Kind::NotFound, "{none}");
    for round in 2..4 {
        keep(&namespace, "own", round);
        keep(&namespace, "shared", round);
        let held = view(&namespace, "own").unwrap();
        assert_eq!(check(&view(&namespace, "shared").unwrap()).0, round, "mine hides it");
        pool.remove_private("default").unwrap();
        assert_eq!(check(&held), (round, 1), "a view shows what it showed");
        assert!(view(&namespace, "own").is_none());
        assert_eq!(check(&view(&namespace, "shared").unwrap()), (1, 1));
        assert_eq!(namespace.scopes().unwrap(), [Scope::Shared]);
        assert_eq!(pool.namespace("default").unwrap().scopes().unwrap(), [Scope::Shared]);
    }
    let left = std::fs::read_dir(fixture.path.join("ns/default/private")).unwrap();
    assert_eq!(left.count(), 0);
    pool.close();
    sound(&fixture.path);
    let (reader, _) = attach(&fixture.path, Mode::Read);
    assert_eq!(reader.remove_private("default").unwrap_err().kind(), Kind::ReadOnly);
    reader.close();
    Pool::destroy(&fixture.path).unwrap();
}

/// Another opening, in this process or another, keeps it there; nothing has changed then.
#[test]
fn what_is_open_elsewhere_stays() {
    alone("what_is_open_elsewhere_stays", || {
        let fixture = Fixture::new(32 << 20);
        let path = &fixture.path;
        let namespace = fixture.pool.namespace("default").unwrap();
        keep(&namespace, "own", 7);
        let other = fork(|line: &Line| {
            fixture.pool.close();
            let pool = Pool::open(path, Mode::Read, true).unwrap();
            let seen = pool.namespace("default").unwrap();
            assert_eq!(check(&view(&seen, "own").unwrap()), (7, 1));
            line.say(1);
            line.expect(2);
        });
        other.line.expect(1);
        let refused = fixture.pool.remove_private("default").unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy, "{refused}");
        assert!(refused.message().contains(&other.pid.to_string()), "{refused}");
        assert_eq!(check(&view(&namespace, "own").unwrap()), (7, 1));
        other.line.say(2);
        other.finish();
        let second = Pool::open(path, Mode::ReadWrite, true).unwrap();
        let refused = fixture.pool.remove_private("default").unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy, "{refused}");
        for pool in [&fixture.pool, &second] {
            let seen = pool.namespace("default").unwrap();
            assert_eq!(check(&view(&seen, "own").unwrap()), (7, 1));
        }
        second.close();
        fixture.pool.remove_private("default").unwrap();
        assert!(view(&namespace, "own").is_none());
    });
}

fn refused(done: engram::Result<()>, users: &[u32], others: &[u32]) {
    let error = done.unwrap_err();
    assert_eq!(error.kind(), Kind::Access, "{error}");
    assert!(error.message().contains("remove_private"), "{error}");
    for user in users {
        assert!(error.message().contains(&user.to_string()), "{error}");
    }
    for user in others {
        assert!(!error.message().contains(&user.to_string()), "{error}");
    }
}

/// The owner of a pool is told who has to leave, and can remove it when they have.
#[test]
fn the_owner_can_remove_what_the_others_have_left() {
    let test = "the_owner_can_remove_what_the_others_have_left";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let (dir, device) = (folder_of(ALICE), folder_of(ALICE));
        let path = dir.path().join("pool");
        let devices = vec![device.path().to_owned()];
        let options =
            CreateOptions { size: 64 << 20, mode: Some(0o755), devices, ..Default::default() };
        let by = |user: u32, work: &dyn Fn(&Pool)| {
            fork(|_| {
                become_user(user, user);
                work(&Pool::open(&path, Mode::ReadWrite, true).unwrap());
            })
            .finish();
        };
        fork(|_| {
            become_user(ALICE, ALICE);
            let pool = Pool::create(&path, &options).unwrap();
            pool.create_namespace("more", 0o755, None, None).unwrap();
            keep(&pool.namespace("default").unwrap(), "alices", 1);
        })
        .finish();
        for user in [BOB, CAROL] {
            by(user, &|pool| keep(&pool.namespace("default").unwrap(), "own", u64::from(user)));
        }
        by(BOB, &|pool| keep(&pool.namespace("more").unwrap(), "own", 3));
        let destroy = |users: &[u32], others: &[u32]| {
            fork(|_| {
                become_user(ALICE, ALICE);
                refused(Pool::destroy(&path), users, others);
            })
            .finish();
        };
        destroy(&[BOB, CAROL], &[ALICE]);
        by(ALICE, &|pool| refused(pool.remove_namespace("more"), &[BOB], &[CAROL]));
        by(BOB, &|pool| {
            let seen = pool.namespace("default").unwrap();
            let refused = pool.remove_namespace("more").unwrap_err();
            assert!(refused.kind() == Kind::Access, "{refused}");
            assert!(refused.message().contains(&format!("user {ALICE}")), "{refused}");
            for name in ["more", "default"] {
                pool.remove_private(name).unwrap();
            }
            assert_eq!(seen.scopes().unwrap(), [] as [Scope; 0]);
            assert_eq!(pool.remove_private("default").unwrap_err().kind(), Kind::NotFound);
        });
        by(ALICE, &|pool| pool.remove_namespace("more").unwrap());
        destroy(&[CAROL], &[ALICE, BOB]);
        by(CAROL, &|pool| {
            assert_eq!(check(&view(&pool.namespace("default").unwrap(), "own").unwrap()).1, 1);
            pool.remove_private("default").unwrap();
        });
        fork(|_| {
            become_user(ALICE, ALICE);
            Pool::destroy(&path).unwrap();
        })
        .finish();
        let left = |at: &Path| std::fs::read_dir(at).unwrap().count();
        assert_eq!([left(dir.path()), left(device.path())], [0, 0]);
    });
}
