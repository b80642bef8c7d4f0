//! Several users of one pool: what one makes in a realm, the others of the realm can use.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::{
    ALICE, BOB, CAROL, DAVE, ERIN, KEEP, Line, TEAM, alone, become_user, check, churn, filled,
    floats, folder_of, fork, is_root, put, view,
};
use engram::{CreateOptions, Kind, Mode, Placement, Pool, Realm, Scope};

const MIB: usize = 1 << 20;

fn realm_of(path: &Path, namespace: &str) -> (Pool, Realm) {
    let pool = Pool::open(path, Mode::ReadWrite, false).unwrap();
    let realm = pool.realm(namespace).unwrap();
    (pool, realm)
}

/// Uses a realm in every way that makes files in it.
fn use_all(realm: &Realm, tag: u64) {
    put(realm, &format!("large{tag}"), &filled(tag, 1, 3 * MIB / 8));
    for index in 0..2000 {
        put(realm, &format!("small{tag}/{index}"), &filled(tag, index, 60));
    }
    realm.delete(realm.root(), &format!("small{tag}")).unwrap();
    churn(realm, 1);
}

/// Root copies a user's pool, and the user may do with the copy what the pool's owner may.
#[test]
fn what_root_backs_up_is_its_owners() {
    let test = "what_root_backs_up_is_its_owners";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
        fork(|_| {
            become_user(ALICE, TEAM);
            let options = CreateOptions { size: 32 << 20, ..CreateOptions::default() };
            let pool = Pool::create(&path, &options).unwrap();
            put(&pool.realm("default").unwrap(), "mine", &filled(1, 1, MIB / 8));
        })
        .finish();
        let pool = Pool::open(&path, Mode::Read, true).unwrap();
        engram::backup(&pool, &copy, true).unwrap();
        pool.close();
        for name in ["", "pool.toml", "ns"] {
            let (of, like) = (copy.join(name).metadata().unwrap(), path.join(name));
            let like = like.metadata().unwrap();
            assert_eq!(of.uid(), ALICE, "{name:?}");
            assert_eq!((of.gid(), of.mode()), (like.gid(), like.mode()), "{name:?}");
        }
        fork(|_| {
            become_user(ALICE, TEAM);
            let (pool, realm) = realm_of(&copy, "default");
            assert_eq!(check(&view(&realm, "mine")), (1, 1));
            pool.create_namespace("more", 0o700, None, None).unwrap();
            pool.remove_namespace("more").unwrap();
            drop(realm);
            pool.close();
            Pool::destroy(&copy).unwrap();
        })
        .finish();
        assert!(!copy.exists());

        // A folder that was made for the copy keeps its owner.
        std::fs::create_dir(&copy).unwrap();
        std::os::unix::fs::chown(&copy, Some(BOB), Some(BOB)).unwrap();
        let pool = Pool::open(&path, Mode::Read, true).unwrap();
        engram::backup(&pool, &copy, true).unwrap();
        assert_eq!(copy.metadata().unwrap().uid(), BOB);
    });
}

/// Root uses a user's realm and leaves nothing in it that the user cannot use.
#[test]
fn what_root_makes_in_a_users_realm_is_the_users() {
    let test = "what_root_makes_in_a_users_realm_is_the_users";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        let options = CreateOptions { size: 32 << 20, ..CreateOptions::default() };
        let alice = fork(|line: &Line| {
            become_user(ALICE, ALICE);
            let pool = Pool::create(&path, &options).unwrap();
            let realm = pool.realm("default").unwrap();
            put(&realm, "mine", &filled(1, 1, MIB / 8));
            line.say(1);
            line.expect(2);
            // Root looks at this one, and has a lease; its arrays are there to be read.
            put(&realm, "mine", &filled(1, 2, MIB / 8));
            assert_eq!(check(&view(&realm, "large7")), (7, 1));
            use_all(&realm, 8);
            line.say(3);
            line.expect(4);
            drop(realm);
            pool.close();
            let (_pool, realm) = realm_of(&path, "default");
            assert_eq!(check(&view(&realm, "large7")), (7, 1));
            use_all(&realm, 9);
        });
        alice.line.expect(1);
        let (pool, realm) = realm_of(&path, "default");
        let held = view(&realm, "mine");
        use_all(&realm, 7);
        alice.line.say(2);
        alice.line.expect(3);
        assert_eq!(check(&held), (1, 1), "root's view is safe from the user's allocator");
        drop(held);
        drop(realm);
        pool.close();
        alice.line.say(4);
        alice.finish();
        let mut all = vec![path.clone()];
        while let Some(next) = all.pop() {
            let meta = std::fs::symlink_metadata(&next).unwrap();
            assert_eq!(meta.uid(), ALICE, "{}", next.display());
            if meta.is_dir() {
                all.extend(std::fs::read_dir(&next).unwrap().map(|e| e.unwrap().path()));
            }
        }
    });
}

/// The members of a namespace's group use it like its owner, whatever their umask; others do not.
#[test]
fn the_group_of_a_namespace_uses_it_like_its_owner() {
    let test = "the_group_of_a_namespace_uses_it_like_its_owner";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        let options = CreateOptions { size: 32 << 20, ..CreateOptions::default() };
        let alice = fork(|line: &Line| {
            become_user(ALICE, TEAM);
            let pool = Pool::create(&path, &options).unwrap();
            let team = pool.create_namespace("team", 0o770, Some(TEAM), None).unwrap();
            line.say(1);
            line.expect(2);
            assert_eq!(check(&view(&team, "large2")), (2, 1));
            use_all(&team, 1);
            line.say(3);
            line.expect(4);
        });
        alice.line.expect(1);
        let bob = fork(|line: &Line| {
            become_user(BOB, TEAM);
            // The first to grow the arena is not the owner.
            let (_pool, team) = realm_of(&path, "team");
            use_all(&team, 2);
            line.say(1);
            line.expect(2);
            assert_eq!(check(&view(&team, "large1")), (1, 1));
            use_all(&team, 3);
        });
        bob.line.expect(1);
        alice.line.say(2);
        alice.line.expect(3);
        bob.line.say(2);
        bob.finish();
        alice.line.say(4);
        alice.finish();
        fork(|_| {
            become_user(BOB, BOB);
            let pool = Pool::open(&path, Mode::ReadWrite, false).unwrap();
            let refused = pool.realm("team").err().expect("a refusal");
            assert_eq!(refused.kind(), Kind::Access, "{refused}");
        })
        .finish();
    });
}

/// In private.
const OWN: Placement = Placement { scope: Some(Scope::Private), ..KEEP };

/// Keeps something in private; the pool, and what is seen then.
fn keep(path: &Path, tag: u64) -> (Pool, Vec<String>) {
    let pool = Pool::open(path, Mode::ReadWrite, false).unwrap();
    let team = pool.namespace("team").unwrap();
    let (new, data) = (floats(&[MIB as u64 / 8]), filled(tag, 1, MIB / 8));
    team.put(team.root(), &format!("mine{tag}"), &new, &data, OWN).unwrap();
    let names = team.list(team.root(), None, 9).unwrap();
    drop(team);
    (pool, names.into_iter().map(|(name, _)| name).collect())
}

/// What users do who may enter the namespace, and not its shared realm.
fn strangers(path: &Path) {
    fork(|_| {
        become_user(CAROL, CAROL);
        let (pool, names) = keep(path, 3);
        assert_eq!(names, ["mine3"], "the shared realm is not hers to see");
        assert_eq!(pool.realm("team").err().expect("a refusal").kind(), Kind::Access);
        let team = pool.namespace("team").unwrap();
        let shared = Placement { scope: Some(Scope::Shared), ..KEEP };
        let refused = team.put(team.root(), "x", &floats(&[1]), &[0; 8], shared).unwrap_err();
        assert_eq!(refused.kind(), Kind::Access, "{refused}");
        let plain = team.put(team.root(), "y", &floats(&[1]), &[0; 8], KEEP).unwrap();
        assert_eq!(team.object(plain).unwrap().scope, Scope::Private);
        drop((team, pool));
        let pool = Pool::open(path, Mode::Read, false).unwrap();
        let team = pool.namespace("team").unwrap();
        assert_eq!(team.count(team.root()).unwrap(), 2);
    })
    .finish();
    fork(|_| {
        become_user(DAVE, DAVE);
        let pool = Pool::open(path, Mode::ReadWrite, false).unwrap();
        let team = pool.namespace("team").unwrap();
        assert_eq!(team.list(team.root(), None, 9).unwrap(), []);
        let refused = team.put(team.root(), "x", &floats(&[1]), &[0; 8], OWN).unwrap_err();
        assert_eq!(refused.kind(), Kind::Access, "{refused}");
        assert!(refused.message().contains(&BOB.to_string()), "{refused}");
        // Nor does a link lead the engine elsewhere.
        let link = path.join(format!("ns/team/private/{ERIN}"));
        std::os::unix::fs::symlink(path.join("ns"), &link).unwrap();
    })
    .finish();
    fork(|_| {
        become_user(ERIN, ERIN);
        let pool = Pool::open(path, Mode::ReadWrite, false).unwrap();
        let team = pool.namespace("team").unwrap();
        let refused = team.put(team.root(), "x", &floats(&[1]), &[0; 8], OWN).unwrap_err();
        assert_eq!(refused.kind(), Kind::Access, "{refused}");
        assert!(refused.message().contains("symbolic link"), "{refused}");
    })
    .finish();
}

/// A private realm is its user's: the others of the group see nothing of it, by the engine or by
/// its files; a user who shares nothing else keeps things in private all the same.
#[test]
fn a_private_realm_is_open_to_its_user_alone() {
    let test = "a_private_realm_is_open_to_its_user_alone";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        let options = CreateOptions { size: 32 << 20, ..CreateOptions::default() };
        fork(|_| {
            become_user(ALICE, TEAM);
            let pool = Pool::create(&path, &options).unwrap();
            let team = pool.create_namespace("team", 0o775, Some(TEAM), None).unwrap();
            put(&team, "ours", &filled(0, 1, 100));
            drop((team, pool));
            assert_eq!(keep(&path, 1).1, ["mine1", "ours"]);
        })
        .finish();
        fork(|_| {
            become_user(BOB, TEAM);
            assert_eq!(keep(&path, 2).1, ["mine2", "ours"]);
            for folder in [path.join("ns/team/private"), spans(&path).join("private")] {
                let alices = folder.join(ALICE.to_string());
                let refused = std::fs::read_dir(&alices).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
                assert!(std::fs::rename(&alices, folder.join("x")).is_err());
                assert!(std::fs::remove_dir_all(&alices).is_err());
            }
            // What he puts in the place of somebody's realm keeps nobody from the rest.
            std::fs::create_dir(path.join(format!("ns/team/private/{DAVE}"))).unwrap();
            let refused = Pool::open(&path, Mode::ReadWrite, false)
                .and_then(|pool| pool.remove_namespace("team"))
                .unwrap_err();
            assert_eq!(refused.kind(), Kind::Access, "{refused}");
        })
        .finish();
        strangers(&path);
        // The owner verifies what is hers and says what is not; root verifies and removes all.
        fork(|_| {
            become_user(ALICE, TEAM);
            let report = engram::verify(&path).unwrap();
            assert_eq!(report.problems, Vec::<String>::new());
            assert_eq!((report.namespaces, report.objects), (2, 2));
            let others = |user| format!("team (private of user {user})");
            assert!(report.skipped.contains(&others(BOB)), "{:?}", report.skipped);
            assert!(report.skipped.contains(&others(CAROL)), "{:?}", report.skipped);
            assert_eq!(Pool::destroy(&path).unwrap_err().kind(), Kind::Access);
        })
        .finish();
        let report = engram::verify(&path).unwrap();
        assert_eq!((report.problems, report.objects), (Vec::new(), 5));
        Pool::destroy(&path).unwrap();
        assert!(!path.exists());
    });
}

/// What the namespace has on the pool's own device.
fn spans(pool: &Path) -> std::path::PathBuf {
    let uuid = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        (name.len() == 32).then_some(name)
    };
    let uuid = std::fs::read_dir(pool).unwrap().find_map(uuid).unwrap();
    pool.join(uuid).join("team")
}
