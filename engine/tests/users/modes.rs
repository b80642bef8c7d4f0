//! A namespace's mode is changed: who comes in then, whoever dies on the way, and who has it open.
#![cfg(feature = "faults")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::common::moves::value_of;
use crate::common::{
    ALICE, BOB, CAROL, OVER, TEAM, alone, become_user, die_at_step, filled, floats, folder_of,
    fork, is_root, put, sound,
};
use engram::{CreateOptions, Kind, Mode, Namespace, Placement, Pool, Scope, faults};

const WORDS: usize = 20_000;

/// A pool of Alice's on two devices, with a namespace of her group's in which something is
/// published, and something shared.
fn begin(path: &Path, mode: u32) {
    let device = path.with_file_name("device");
    fork(|_| {
        become_user(ALICE, TEAM);
        fs::create_dir(&device).unwrap();
        // Who admits nobody to the device would admit nobody to what lies there.
        fs::set_permissions(&device, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let devices = vec![device.clone()];
        let options = CreateOptions { size: 64 << 20, devices, ..CreateOptions::default() };
        let pool = Pool::create(path, &options).unwrap();
        let realm = pool.create_namespace("team", mode, Some(TEAM), None).unwrap();
        put(&realm, "shown", &filled(1, 1, WORDS));
        put(&realm, "ours", &filled(2, 1, WORDS));
        let team = pool.namespace("team").unwrap();
        team.publish(team.root(), "shown", true).unwrap();
    })
    .finish();
}

fn value(team: &Namespace, name: &str, number: u64) -> bool {
    let found = team.lookup(team.root(), name).ok().flatten();
    found.is_some_and(|member| value_of(team, member.id()) == filled(number, 1, WORDS))
}

/// What a user may: read what is published, read what is shared, put something beside it, and list
/// what lies on the devices.
fn may(path: &Path, user: u32) -> [bool; 4] {
    let mut found = [false; 4];
    let asked = fork(|line| {
        become_user(user, if user == CAROL { CAROL } else { TEAM });
        let mut all = [false; 4];
        let opened = Pool::open(path, Mode::ReadWrite, true);
        if let Ok(pool) = &opened
            && let Ok(team) = pool.namespace("team")
        {
            all[0] = value(&team, "shown", 1);
            all[1] = value(&team, "ours", 2);
            let shared = Placement { scope: Some(Scope::Shared), ..OVER };
            let (new, value) = (floats(&[WORDS as u64]), filled(9, 1, WORDS));
            let name = format!("of-{user}");
            all[2] = team.put(team.root(), &name, &new, &value, shared).is_ok();
        }
        all[3] = on_devices(path).iter().all(|folder| fs::read_dir(folder).is_ok());
        for one in all {
            line.say(u64::from(one));
        }
    });
    for one in &mut found {
        *one = asked.line.hear() == 1;
    }
    asked.finish();
    found
}

/// What the namespace has on the devices.
fn on_devices(path: &Path) -> Vec<PathBuf> {
    let found = [path.to_owned(), path.with_file_name("device")].map(|device| {
        let entries = fs::read_dir(&device).unwrap().map(|entry| entry.unwrap().path());
        let mut uuid = entries.filter(|path| path.file_name().is_some_and(|name| name.len() == 32));
        uuid.next().unwrap().join("team")
    });
    found.to_vec()
}

/// What a mode lets Bob, who is of the group, and Carol, who is not.
fn expected(mode: u32) -> [[bool; 4]; 2] {
    let of = |bits: u32| {
        let (enters, writes) = (bits & 1 != 0, bits & 0o3 == 3);
        [enters, writes, writes, enters && bits & 4 != 0]
    };
    [of(mode >> 3 & 7), of(mode & 7)]
}

fn seen(path: &Path) -> [[bool; 4]; 2] {
    [may(path, BOB), may(path, CAROL)]
}

fn mode_of(path: &Path) -> u32 {
    let pool = Pool::open(path, Mode::Read, true).unwrap();
    let found = pool.namespaces().unwrap().into_iter().find(|info| info.name == "team");
    found.unwrap().mode
}

/// Changes the mode as Alice; dies at a step, if one is given and reached.
fn change(path: &Path, mode: u32, dies_at: Option<&'static str>) -> bool {
    let mut changing = fork(|_| {
        become_user(ALICE, TEAM);
        if let Some(step) = dies_at {
            die_at_step(step);
        }
        Pool::set_mode(path, "team", mode).unwrap();
    });
    let status = changing.wait();
    assert!(libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == 0, "{status:#x}");
    libc::WIFSIGNALED(status)
}

#[test]
fn who_comes_in_is_whom_the_new_mode_admits() {
    let test = "who_comes_in_is_whom_the_new_mode_admits";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        begin(&path, 0o700);
        for mode in [0o755, 0o770, 0o750, 0o775, 0o705, 0o770, 0o700, 0o775, 0o755, 0o700] {
            assert!(!change(&path, mode, None));
            assert_eq!(mode_of(&path), mode);
            assert_eq!(seen(&path), expected(mode), "{mode:o}");
            assert_eq!(may(&path, ALICE), [true; 4], "{mode:o}");
            sound(&path);
        }
        // A new process finds everything in the shared realm the owner's, or the group's.
        assert!(!change(&path, 0o770, None));
        for folder in on_devices(&path).iter().chain([&path.join("ns/team")]) {
            let meta = folder.join("shared").metadata().unwrap();
            assert_eq!((meta.mode() & 0o7777, meta.gid()), (0o2770, TEAM), "{folder:?}");
        }
    });
}

/// A death at each step leaves the old mode or the new one, and the owner's next opening the new
/// one, unless it was not even written down.
#[test]
fn a_death_at_any_step_leaves_the_old_mode_or_the_new_one() {
    let test = "a_death_at_any_step_leaves_the_old_mode_or_the_new_one";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let steps: Vec<_> =
            faults::ALL.iter().copied().filter(|step| step.starts_with("mode.")).collect();
        let mut died = std::collections::BTreeSet::new();
        for (old, new) in [
            (0o700, 0o755),
            (0o755, 0o700),
            (0o700, 0o775),
            (0o775, 0o700),
            (0o750, 0o770),
            (0o770, 0o750),
            (0o770, 0o705),
            (0o705, 0o770),
        ] {
            for &step in &steps {
                let dir = folder_of(ALICE);
                let path = dir.path().join("pool");
                begin(&path, old);
                if !change(&path, new, Some(step)) {
                    continue;
                }
                died.insert(step);
                let told = format!("{old:o} to {new:o}, dead at {step}");
                let between = mode_of(&path);
                assert!([old, new].contains(&between), "{told}: {between:o}");
                // What lies on devices may admit those whom either mode admits, and no others.
                let either = [expected(old), expected(new)];
                let found = seen(&path);
                let shown = |all: [[bool; 4]; 2]| all.map(|one| [one[0], one[1], one[2]]);
                assert!(either.map(shown).contains(&shown(found)), "{told}: {found:?}");
                for user in 0..2 {
                    let admitted = either.iter().any(|one| one[user][3]);
                    assert!(admitted || !found[user][3], "{told}: {found:?}");
                }
                sound(&path);
                // The owner opens it.
                assert_eq!(may(&path, ALICE), [true; 4], "{told}");
                assert_eq!(mode_of(&path), new, "{told}");
                assert_eq!(seen(&path), expected(new), "{told}");
                sound(&path);
            }
        }
        assert_eq!(died.into_iter().collect::<Vec<_>>().len(), steps.len(), "each step is met");
    });
}

#[test]
fn who_has_it_open_goes_on_and_keeps_the_group_from_changing() {
    let test = "who_has_it_open_goes_on_and_keeps_the_group_from_changing";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        begin(&path, 0o755);
        let reader = fork(|line| {
            become_user(CAROL, CAROL);
            let pool = Pool::open(&path, Mode::Read, true).unwrap();
            let team = pool.namespace("team").unwrap();
            assert!(value(&team, "shown", 1));
            let oid = team.lookup(team.root(), "shown").unwrap().unwrap().id();
            let engram::Payload::Extent(view) = team.view(oid, false).unwrap() else { panic!() };
            line.say(1);
            line.expect(2);
            // The mode is 0700 by now: what is mapped stays mapped, and nothing new is found.
            assert_eq!(crate::common::contents(&view), filled(1, 1, WORDS));
            assert_eq!(
                team.lookup(team.root(), "shown").map(drop).unwrap_err().kind(),
                Kind::Access
            );
            drop((team, pool));
            let again = Pool::open(&path, Mode::Read, true).and_then(|pool| pool.namespace("team"));
            assert_eq!(again.map(drop).unwrap_err().kind(), Kind::Access);
        });
        reader.line.expect(1);
        assert!(!change(&path, 0o700, None), "a reader keeps nobody from it");
        reader.line.say(2);
        reader.finish();
        fork(|_| {
            become_user(ALICE, TEAM);
            let pool = Pool::open(&path, Mode::ReadWrite, true).unwrap();
            let team = pool.namespace("team").unwrap();
            // Who may enter can be changed, whoever has it open; whether the group writes cannot.
            team.set_posix_mode(0o750).unwrap();
            assert_eq!(team.posix_mode().unwrap(), 0o750);
            let refused = team.set_posix_mode(0o770).unwrap_err();
            assert_eq!(refused.kind(), Kind::Busy);
            assert!(refused.message().contains(&std::process::id().to_string()), "{refused}");
            assert_eq!(team.posix_mode().unwrap(), 0o750);
            for wrong in [0o077, 0o757, 0o1755] {
                assert_eq!(team.set_posix_mode(wrong).unwrap_err().kind(), Kind::Argument);
            }
            let reading = Pool::open(&path, Mode::Read, true).unwrap().namespace("team").unwrap();
            assert_eq!(reading.set_posix_mode(0o755).unwrap_err().kind(), Kind::ReadOnly);
        })
        .finish();
        fork(|_| {
            become_user(BOB, TEAM);
            let refused = Pool::set_mode(&path, "team", 0o777 & !0o002).unwrap_err();
            assert_eq!(refused.kind(), Kind::Access, "{refused}");
            assert!(refused.message().contains("alone, beside root, may change"), "{refused}");
        })
        .finish();
        assert_eq!(mode_of(&path), 0o750);
        // Root may, and what it makes is the owner's.
        Pool::set_mode(&path, "team", 0o770).unwrap();
        assert_eq!(seen(&path), expected(0o770));
        assert_eq!(may(&path, ALICE), [true; 4]);
        let toml = path.join("ns/team/namespace.toml").metadata().unwrap();
        assert_eq!(toml.uid(), ALICE);
    });
}

/// What members of the group put in the place of something gets no mode.
#[test]
fn what_members_of_the_group_put_there_is_left_alone() {
    let test = "what_members_of_the_group_put_there_is_left_alone";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let (path, secret) = (dir.path().join("pool"), dir.path().join("secret"));
        begin(&path, 0o775);
        fork(|_| {
            become_user(ALICE, TEAM);
            fs::write(&secret, "hers").unwrap();
            fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .unwrap();
        })
        .finish();
        for link in [false, true] {
            fork(|_| {
                become_user(BOB, TEAM);
                let place = path.join("ns/team/shared/leases").join(format!("planted-{link}"));
                if link {
                    std::os::unix::fs::symlink(&secret, &place).unwrap();
                } else {
                    fs::write(&place, "his").unwrap();
                }
            })
            .finish();
        }
        assert!(!change(&path, 0o755, None));
        assert!(!change(&path, 0o775, None));
        assert_eq!(secret.metadata().unwrap().mode() & 0o777, 0o600);
        let planted = path.join("ns/team/shared/leases/planted-false").metadata().unwrap();
        assert_eq!((planted.uid(), planted.mode() & 0o777), (BOB, 0o600));
    });
}

#[test]
fn nothing_is_published_where_nobody_would_read_it_unless_that_is_asked_for() {
    let test = "nothing_is_published_where_nobody_would_read_it_unless_that_is_asked_for";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        begin(&path, 0o700);
        for (mode, open) in [(0o700, false), (0o744, false), (0o750, true), (0o701, true)] {
            assert!(!change(&path, mode, None));
            fork(|_| {
                become_user(ALICE, TEAM);
                let pool = Pool::open(&path, Mode::ReadWrite, true).unwrap();
                let team = pool.namespace("team").unwrap();
                let Err(refused) = team.publish(team.root(), "ours", false) else {
                    assert!(open, "{mode:o}");
                    team.transfer(team.root(), "ours", &[Scope::Published], Scope::Shared).unwrap();
                    return;
                };
                assert!(!open, "{mode:o}: {refused}");
                assert_eq!(refused.kind(), Kind::ClosedNamespace);
                for part in [format!("mode {mode:o}"), "--mode 755".into(), "--closed".into()] {
                    assert!(refused.message().contains(&part), "{refused}");
                }
                let oid = team.lookup(team.root(), "ours").unwrap().unwrap().id();
                assert_eq!(team.publish_all(&[oid], false).unwrap_err().kind(), refused.kind());
                assert_eq!(team.publish_all(&[oid], true).unwrap().objects, 1);
                team.transfer(team.root(), "ours", &[Scope::Published], Scope::Shared).unwrap();
            })
            .finish();
        }
    });
}

/// Who dies closing a namespace to its group leaves nothing of it open, once it is opened again.
#[test]
fn what_a_death_left_open_to_the_group_is_closed() {
    let test = "what_a_death_left_open_to_the_group_is_closed";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        for step in ["mode.folder", "mode.closed"] {
            let dir = folder_of(ALICE);
            let path = dir.path().join("pool");
            begin(&path, 0o775);
            assert!(change(&path, 0o755, Some(step)));
            assert_eq!(may(&path, ALICE), [true; 4]);
            for at in ["published", "shared", ""] {
                for folder in on_devices(&path).iter().chain([&path.join("ns/team")]) {
                    let mode = folder.join(at).metadata().map_or(0, |meta| meta.mode());
                    assert_eq!(mode & 0o022, 0, "{step}: {}", folder.join(at).display());
                }
            }
        }
    });
}
