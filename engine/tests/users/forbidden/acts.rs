//! Acts through the engine: the requests of a user to a pool that is another's.

use std::path::Path;

use engram::{
    Error, Kind, LockMode, Member, Mode, Namespace, NewObject, Oid, Payload, Placement, Pool,
    QueryOptions, Result, Scope, query,
};

use super::refused;
use super::world::{SECRET, Who, World, open, state, text};
use crate::common::{ALICE, DAVE, KEEP, OVER, TEAM, alone, become_user, floats, fork, is_root};

/// What an act has at hand.
struct Stage {
    pool: Pool,
    /// The namespace that everybody may enter.
    open: Namespace,
    path: std::path::PathBuf,
    /// A folder of the user's own.
    own: std::path::PathBuf,
    /// What Dave keeps: a group and an object; what is shared; what is published.
    kept: (u64, Oid),
    shared: Oid,
    shown: Oid,
}

/// A row: the act, by whom, what the refusal may be, and how it is tried.
struct Act {
    what: &'static str,
    by: &'static [Who],
    refused: &'static [Kind],
    tried: fn(&Stage) -> Result<()>,
}

const ANYBODY: &[Who] = &[Who::Stranger, Who::Member];
const STRANGER: &[Who] = &[Who::Stranger];
const ACCESS: &[Kind] = &[Kind::Access];
const UNSEEN: &[Kind] = &[Kind::NotFound];
const READ_ONLY: &[Kind] = &[Kind::ReadOnly];

const fn act(
    what: &'static str,
    by: &'static [Who],
    refused: &'static [Kind],
    tried: fn(&Stage) -> Result<()>,
) -> Act {
    Act { what, by, refused, tried }
}

/// Nothing was found: as if it were not there.
fn unseen<T: std::fmt::Debug>(found: &[T]) -> Result<()> {
    let none = Error::new(Kind::NotFound, "not seen");
    if found.is_empty() { Err(none) } else { panic!("{found:?} was seen") }
}

fn hits(stage: &Stage, text: &str) -> Vec<Oid> {
    let query = query::parse(text).unwrap();
    stage.open.query(&query, &QueryOptions::default()).unwrap().oids
}

impl Stage {
    fn root(&self) -> u64 {
        self.open.root()
    }

    fn put(&self, path: &str, scope: Scope, placement: Placement) -> Result<()> {
        let placement = Placement { scope: Some(scope), ..placement };
        self.open.put(self.root(), path, &floats(&[2]), &[1; 16], placement).map(drop)
    }

    fn transfer(&self, path: &str, from: Scope, to: Scope) -> Result<()> {
        self.open.transfer(self.root(), path, &[from], to).map(drop)
    }

    fn kept(&self) -> Member {
        Member::Object(self.kept.1)
    }

    fn shown(&self) -> Member {
        Member::Object(self.shown)
    }
}

/// What is closed to a user altogether.
const CLOSED: &[Act] = &[
    act("open a namespace of mode 0700", ANYBODY, ACCESS, |s| {
        s.pool.namespace("default").map(drop)
    }),
    act("open its shared realm", ANYBODY, ACCESS, |s| s.pool.realm("default").map(drop)),
    act("open a namespace that one may not enter", STRANGER, ACCESS, |s| {
        s.pool.namespace("closed").map(drop)
    }),
    act("open its shared realm", STRANGER, ACCESS, |s| s.pool.realm("closed").map(drop)),
    act("open the shared realm of one that one may enter", STRANGER, ACCESS, |s| {
        s.pool.realm("open").map(drop)
    }),
    act("the same, to read", STRANGER, ACCESS, |s| {
        Pool::open(&s.path, Mode::Read, false)?.realm("open").map(drop)
    }),
    act("the same, of a scope", STRANGER, ACCESS, |s| {
        s.open.realm_of(Scope::Shared, true).map(drop)
    }),
    act("put something shared", STRANGER, ACCESS, |s| s.put("x", Scope::Shared, KEEP)),
    act("replace something shared", STRANGER, ACCESS, |s| s.put("ours", Scope::Shared, OVER)),
    act("make a shared group", STRANGER, ACCESS, |s| {
        s.open.create_group(s.root(), "g", &[], &[], false, Some(Scope::Shared)).map(drop)
    }),
    act("see what is shared", STRANGER, UNSEEN, |s| {
        unseen(s.open.lookup(s.root(), "ours")?.as_slice())
    }),
    act("see it by a query", STRANGER, UNSEEN, |s| unseen(&hits(s, "@name = \"ours\""))),
    act("read it by its id", STRANGER, UNSEEN, |s| s.open.payload(s.shared).map(drop)),
    act("map it by its id", STRANGER, UNSEEN, |s| s.open.view(s.shared, true).map(drop)),
    act("delete it", STRANGER, UNSEEN, |s| s.open.delete(s.root(), "ours")),
    act("move it", STRANGER, UNSEEN, |s| s.open.rename(s.root(), "ours", s.root(), "mine")),
    act("make it one's own", STRANGER, UNSEEN, |s| {
        s.transfer("ours", Scope::Shared, Scope::Private)
    }),
    act("share what one keeps", STRANGER, ACCESS, |s| {
        s.transfer("own", Scope::Private, Scope::Shared)
    }),
    act("publish what one keeps", STRANGER, ACCESS, |s| {
        s.transfer("own", Scope::Private, Scope::Published)
    }),
    act("resize the namespace", STRANGER, ACCESS, |s| s.pool.realm("open")?.resize(1 << 30)),
];

/// What others have published.
const PUBLISHED: &[Act] = &[
    act("replace what is published", ANYBODY, READ_ONLY, |s| {
        s.put("shown/small", Scope::Published, OVER)
    }),
    act("put something published", ANYBODY, READ_ONLY, |s| s.put("x", Scope::Published, KEEP)),
    act("write it in place", ANYBODY, READ_ONLY, |s| s.open.view(s.shown, true).map(drop)),
    act("replace its value", ANYBODY, READ_ONLY, |s| {
        s.open.replace_payload(s.shown, 0, &[0; 320_000]).map(drop)
    }),
    act("set its attribute", ANYBODY, READ_ONLY, |s| {
        s.open.set_attrs(s.shown(), &[text("a", "b")])
    }),
    act("make it read-only", ANYBODY, READ_ONLY, |s| s.open.set_read_only(s.shown(), true)),
    act("delete it", ANYBODY, READ_ONLY, |s| s.open.delete(s.root(), "shown/large")),
    act("delete the group that it is in", ANYBODY, READ_ONLY, |s| s.open.delete(s.root(), "shown")),
    act("move it", ANYBODY, READ_ONLY, |s| {
        s.open.rename(s.root(), "shown/large", s.root(), "mine")
    }),
    act("withdraw it", STRANGER, ACCESS, |s| s.transfer("shown", Scope::Published, Scope::Shared)),
    act("withdraw it to oneself", STRANGER, ACCESS, |s| {
        s.transfer("shown", Scope::Published, Scope::Private)
    }),
];

/// What Dave keeps to himself.
const PRIVATE: &[Act] = &[
    act("see another's private name", ANYBODY, UNSEEN, |s| {
        unseen(s.open.lookup(s.root(), SECRET)?.as_slice())
    }),
    act("see it in a listing", ANYBODY, UNSEEN, |s| {
        let names = s.open.list(s.root(), None, 99)?.into_iter().map(|(name, _)| name);
        unseen(&names.filter(|name| name.contains("dave")).collect::<Vec<_>>())
    }),
    act("see it by a query for a name", ANYBODY, UNSEEN, |s| {
        unseen(&hits(s, "@name contains \"dave\""))
    }),
    act("see it by a query for an attribute", ANYBODY, UNSEEN, |s| {
        unseen(&hits(s, &format!("`{SECRET}` = \"{SECRET}\"")))
    }),
    act("see it by a query for a path", ANYBODY, UNSEEN, |s| {
        unseen(&hits(s, &format!("@path contains \"{SECRET}\"")))
    }),
    act("read it by its id", ANYBODY, UNSEEN, |s| s.open.payload(s.kept.1).map(drop)),
    act("map it by its id", ANYBODY, UNSEEN, |s| s.open.view(s.kept.1, true).map(drop)),
    act("read its attributes by its id", ANYBODY, UNSEEN, |s| s.open.attrs(s.kept()).map(drop)),
    act("ask for its path by its id", ANYBODY, UNSEEN, |s| s.open.path_of(s.kept()).map(drop)),
    act("ask for its scope by its id", ANYBODY, UNSEEN, |s| s.open.scope_of(s.kept()).map(drop)),
    act("list its group by its id", ANYBODY, UNSEEN, |s| {
        unseen(&s.open.list(s.kept.0, None, 99).unwrap_or_default())
    }),
    act("set its attribute", ANYBODY, UNSEEN, |s| s.open.set_attrs(s.kept(), &[text("a", "b")])),
    act("make it read-only", ANYBODY, UNSEEN, |s| s.open.set_read_only(s.kept(), true)),
    act("lock it", ANYBODY, UNSEEN, |s| {
        s.open.lock(s.kept(), LockMode::Write, None, &mut |_| Ok(())).map(drop)
    }),
    act("put something into its group", ANYBODY, UNSEEN, |s| {
        s.open.put(s.kept.0, "x", &floats(&[1]), &[0; 8], KEEP).map(drop)
    }),
    act("share it", ANYBODY, UNSEEN, |s| s.transfer(SECRET, Scope::Private, Scope::Shared)),
    act("share it by its id", ANYBODY, UNSEEN, |s| {
        let moved = s.open.transfer_all(&[s.kept.1], &[Scope::Private], Scope::Shared)?;
        unseen(&vec![(); moved.objects as usize])
    }),
    act("publish it", ANYBODY, UNSEEN, |s| s.transfer(SECRET, Scope::Private, Scope::Published)),
    act("take it", ANYBODY, UNSEEN, |s| s.transfer(SECRET, Scope::Shared, Scope::Private)),
    act("move it", ANYBODY, UNSEEN, |s| s.open.rename(s.root(), SECRET, s.root(), "mine")),
    act("delete it", ANYBODY, UNSEEN, |s| s.open.delete(s.root(), SECRET)),
];

/// What is the pool's owner's.
const POOL: &[Act] = &[
    act("make a namespace", ANYBODY, ACCESS, |s| {
        s.pool.create_namespace("mine", 0o700, None, None).map(drop)
    }),
    act("remove a namespace", ANYBODY, ACCESS, |s| s.pool.remove_namespace("open")),
    act("remove one that is empty of private things", ANYBODY, ACCESS, |s| {
        s.pool.remove_namespace("closed")
    }),
    act("add a device", ANYBODY, ACCESS, |s| s.pool.add_device(&s.own, false)),
    act("destroy the pool", ANYBODY, ACCESS, |s| Pool::destroy(&s.path)),
    act("make a pool within it", ANYBODY, &[Kind::Argument], |s| {
        Pool::create(&s.path.join("mine"), &engram::CreateOptions::default()).map(drop)
    }),
    act("copy what one may not read", ANYBODY, UNSEEN, |s| {
        let copy = s.own.join("copy");
        let report = engram::backup(&s.pool, &copy, false)?;
        assert!(report.skipped.iter().any(|name| name == "default"), "{report:?}");
        let private = format!("open (private of user {DAVE})");
        assert!(report.skipped.contains(&private), "{report:?}");
        unseen(&super::traces::found(&[&copy], SECRET.as_bytes()))
    }),
    act("verify what one may not read", ANYBODY, UNSEEN, |s| {
        let report = engram::verify(&s.path)?;
        assert_eq!(report.problems, Vec::<String>::new());
        assert!(report.skipped.iter().any(|name| name == "default"), "{report:?}");
        unseen(&report.problems)
    }),
];

fn stage(world: &World, own: &Path) -> Stage {
    let (pool, open) = open(&world.path, "open");
    let (path, own) = (world.path.clone(), own.to_owned());
    let stage =
        Stage { pool, open, path, own, kept: world.kept, shared: world.shared, shown: world.shown };
    // What one keeps oneself, one keeps.
    stage.put("own", Scope::Private, KEEP).unwrap();
    stage
}

fn try_all(stage: &Stage, by: Who) -> u64 {
    let rows = [CLOSED, PUBLISHED, PRIVATE, POOL].into_iter().flatten();
    let mut acts = 0;
    for row in rows.filter(|row| row.by.contains(&by)) {
        match (row.tried)(stage) {
            Err(error) if row.refused.contains(&error.kind()) => acts += 1,
            other => panic!("{by:?}: {}: {other:?}, not {:?}", row.what, row.refused),
        }
    }
    acts
}

/// The users who may do what the others are refused.
fn allowed(world: &World) {
    fork(|_| {
        become_user(DAVE, TEAM);
        let (_pool, open) = open(&world.path, "open");
        assert!(open.lookup(open.root(), SECRET).unwrap().is_some());
        assert!(matches!(open.payload(world.kept.1).unwrap().0, Payload::Extent(_)));
        open.set_attrs(Member::Object(world.kept.1), &[text("a", "b")]).unwrap();
        open.delete_attr(Member::Object(world.kept.1), "a").unwrap();
        // A member shares, takes, publishes and withdraws what is shared, whoever has made it.
        let moves = [
            ("ours", Scope::Shared, Scope::Private),
            ("ours", Scope::Private, Scope::Shared),
            ("shown", Scope::Published, Scope::Shared),
            ("shown", Scope::Shared, Scope::Published),
        ];
        for (path, from, to) in moves {
            assert!(open.transfer(open.root(), path, &[from], to).unwrap().objects > 0);
        }
    })
    .finish();
    fork(|_| {
        become_user(ALICE, TEAM);
        let (pool, _) = open(&world.path, "open");
        drop(pool.create_namespace("mine", 0o700, None, None).unwrap());
        pool.remove_namespace("mine").unwrap();
        pool.realm("open").unwrap().resize(64 << 20).unwrap();
    })
    .finish();
}

/// What is another's is refused through the engine as by the files, or is as if it were not there.
#[test]
fn acts_of_others_are_refused() {
    let test = "acts::acts_of_others_are_refused";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let world = World::new();
        let mut acts = 0;
        for by in ANYBODY {
            let own = tempfile::tempdir_in("/dev/shm").unwrap();
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(own.path(), open).unwrap();
            let dave = world.places("open", &format!("private/{DAVE}"));
            let dave: Vec<&Path> = dave.iter().map(std::path::PathBuf::as_path).collect();
            let before = state(&dave);
            let peer = fork(|line| {
                by.become_them();
                line.say(try_all(&stage(&world, own.path()), *by));
            });
            acts += peer.line.hear();
            peer.finish();
            assert_eq!(state(&dave), before, "{by:?}");
        }
        allowed(&world);
        let report = engram::verify(&world.path).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        refused(acts, 2, "the engine");
    });
}

/// A user who makes a folder in the place of somebody's private realm wins nothing: it is refused
/// by name, and so is one that is open to others.
#[test]
fn a_squatted_private_realm_is_not_used() {
    let test = "acts::a_squatted_private_realm_is_not_used";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let world = World::new();
        let new: NewObject = floats(&[2]);
        let keep = |uid: u32| {
            let pool = Pool::open(&world.path, Mode::ReadWrite, false)?;
            let open = pool.namespace("open")?;
            let placement = Placement { scope: Some(Scope::Private), ..KEEP };
            let kept = open.put(open.root(), &format!("of{uid}"), &new, &[5; 16], placement);
            kept.map(drop)
        };
        let mut acts = 0;
        // In the namespace's folder and on each device.
        for (uid, place) in (40_050..).zip(world.places("open", "private")) {
            let place = place.join(uid.to_string());
            fork(|_| {
                Who::Member.become_them();
                std::fs::create_dir(&place).unwrap();
            })
            .finish();
            fork(|_| {
                become_user(uid, TEAM);
                let refused = keep(uid).unwrap_err();
                assert_eq!(refused.kind(), Kind::Access, "{refused}");
                assert!(refused.message().contains(&place.display().to_string()), "{refused}");
            })
            .finish();
            assert!(std::fs::read_dir(&place).unwrap().next().is_none(), "{}", place.display());
            acts += 1;
            // Taken away by the owner, it is the user's to make.
            std::fs::remove_dir(&place).unwrap();
            fork(|_| {
                become_user(uid, TEAM);
                keep(uid).unwrap();
            })
            .finish();
        }
        // One's own, but open to others: who may have looked, or written there?
        fork(|_| {
            become_user(40_050, TEAM);
            let place = &world.places("open", "private/40050")[0];
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
            std::fs::set_permissions(place, open).unwrap();
            let refused = keep(40_050).unwrap_err();
            assert_eq!(refused.kind(), Kind::Access, "{refused}");
        })
        .finish();
        acts += 1;
        refused(acts, 3, "squatting");
    });
}
