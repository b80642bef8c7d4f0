//! Planted things: links, FIFOs, sockets, folders and other files, where the engine expects its
//! own.
//!
//! Members of a namespace's group may rename what lies in its shared realm; a device's folder, or
//! the pool's, may be open to all. So at every name that the engine makes or opens there, something
//! else is put, and everything is tried by a user, and by root. Each try must end, well or with an
//! error. The links lead to the same place of another pool of the user's: a twin, in which all
//! would go well. No byte, mode or owner of it may change.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use engram::{CreateOptions, Error, Kind, LockMode, Member, Mode, Placement, Pool, Result, Scope};

use super::refused;
use super::world::all_below;
use crate::common::{
    ALICE, CAROL, KEEP, OVER, TEAM, alone, become_user, filled, floats, folder_of, fork, is_root,
};

/// What is put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    /// A symbolic link to the twin's file or folder of this place.
    Link,
    /// One to nothing: a process that follows it makes a file there.
    LinkToNothing,
    /// A second name of the twin's file.
    SecondName,
    Fifo,
    Folder,
    File,
    Socket,
}

const THINGS: [Thing; 7] = [
    Thing::Link,
    Thing::LinkToNothing,
    Thing::SecondName,
    Thing::Fifo,
    Thing::Folder,
    Thing::File,
    Thing::Socket,
];

/// What is tried then; each part may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Everything that one does with an open pool.
    Use,
    /// So much that the arena grows.
    Grow,
    /// Compacting, and a copy.
    Rewrite,
    /// Making and removing a namespace.
    Namespace,
    /// A device more.
    Device,
    /// Destroying the pool, and making one in its folder.
    Destroy,
}

/// A row: the place, in the pool's folder (`UUID` stands for what the pool has on a device), and
/// what is tried. Where there is something in a whole pool, it goes aside.
struct Row(&'static str, &'static [Then]);

const TABLE: &[Row] = &[
    // The pool's own folder, open to all.
    Row("pool.toml", &[Then::Use]),
    Row("pool.toml.new", &[Then::Device]),
    Row("creating.toml", &[Then::Use, Then::Destroy]),
    Row("creating.toml.new", &[Then::Destroy]),
    Row("destroying.toml", &[Then::Use, Then::Destroy]),
    Row("ns", &[Then::Use, Then::Namespace]),
    Row("UUID", &[Then::Use, Then::Rewrite]),
    Row("ns/team", &[Then::Use]),
    Row("ns/.new-late", &[Then::Namespace]),
    Row("ns/.gone-late", &[Then::Namespace]),
    Row("ns/late", &[Then::Namespace]),
    Row("UUID/late", &[Then::Namespace]),
    // A namespace's folder, and what it has on a device.
    Row("ns/team/namespace.toml", &[Then::Use, Then::Namespace]),
    Row("ns/team/namespace.toml.new", &[Then::Use]),
    Row("ns/team/scopes", &[Then::Use]),
    Row("ns/team/births", &[Then::Use]),
    Row("ns/team/private", &[Then::Use]),
    Row("ns/team/private/USER", &[Then::Use]),
    Row("ns/team/private/.new-USER", &[Then::Use]),
    Row("UUID/team", &[Then::Use, Then::Rewrite]),
    Row("UUID/team/private", &[Then::Use]),
    Row("UUID/team/private/USER", &[Then::Use]),
    Row("UUID/team/shared", &[Then::Use, Then::Rewrite]),
    Row("UUID/team/published", &[Then::Use]),
    // A shared realm, in which members of the group rename as they like.
    Row("ns/team/shared", &[Then::Use, Then::Rewrite]),
    Row("ns/team/shared/realm.toml", &[Then::Use]),
    Row("ns/team/shared/realm.toml.new", &[Then::Use]),
    Row("ns/team/shared/growing", &[Then::Use]),
    Row("ns/team/shared/locks", &[Then::Use]),
    Row("ns/team/shared/compacting", &[Then::Use, Then::Rewrite]),
    Row("ns/team/shared/catalog.new", &[Then::Use, Then::Rewrite]),
    Row("ns/team/shared/catalog", &[Then::Use, Then::Rewrite]),
    Row("ns/team/shared/catalog/data.mdb", &[Then::Use, Then::Rewrite]),
    Row("ns/team/shared/catalog/lock.mdb", &[Then::Use, Then::Rewrite]),
    Row("ns/team/shared/catalog/growth", &[Then::Use, Then::Rewrite]),
    Row("ns/team/shared/leases", &[Then::Use]),
    Row("ns/team/shared/leases/spare", &[Then::Use]),
    Row("ns/team/shared/leases/0123456789abcdef", &[Then::Use]),
    Row("ns/team/shared/leases/new-0123456789abcdef", &[Then::Use]),
    Row("UUID/team/shared/span-0", &[Then::Use, Then::Rewrite]),
    Row("UUID/team/shared/span-1", &[Then::Grow]),
    Row("UUID/team/published/span-1", &[Then::Use]),
    Row("ns/team/published", &[Then::Use]),
    Row("ns/team/published/00000000000000000001", &[Then::Use]),
    Row("ns/team/published/00000000000000000002", &[Then::Use]),
    Row("ns/team/published/.new-0123456789abcdef", &[Then::Use]),
    Row("ns/team/published/00000000000000000001/realm.toml", &[Then::Use]),
    Row("ns/team/published/00000000000000000001/catalog", &[Then::Use]),
    Row("ns/team/published/00000000000000000001/catalog/data.mdb", &[Then::Use]),
];

/// A pool of a user's, and that user.
struct Of {
    user: u32,
    dir: tempfile::TempDir,
    pool: PathBuf,
}

const WORDS: usize = 9_000;

impl Of {
    /// Makes the pool. Its folder, and that of its namespaces, are open to all, and sticky.
    fn new(user: u32) -> Of {
        Self::of_size(user, 4 << 20)
    }

    fn of_size(user: u32, size: u64) -> Of {
        let dir = folder_of(user);
        let pool = dir.path().join("pool");
        fork(|_| {
            if user != 0 {
                become_user(user, TEAM);
            }
            let options = CreateOptions { size, ..CreateOptions::default() };
            let made = Pool::create(&pool, &options).unwrap();
            drop(made.create_namespace("team", 0o775, Some(TEAM), None).unwrap());
            let team = made.namespace("team").unwrap();
            for (name, scope) in [("ours", Scope::Shared), ("shown", Scope::Shared)] {
                let placement = Placement { scope: Some(scope), ..KEEP };
                let new = floats(&[WORDS as u64]);
                team.put(team.root(), name, &new, &filled(1, 1, WORDS), placement).unwrap();
            }
            team.transfer(team.root(), "shown", &[Scope::Shared], Scope::Published).unwrap();
        })
        .finish();
        for open in [&pool, &pool.join("ns")] {
            fs::set_permissions(open, Permissions::from_mode(0o1777)).unwrap();
        }
        Of { user, dir, pool }
    }

    fn place(&self, row: &str) -> PathBuf {
        let uuid = fs::read_dir(&self.pool).unwrap().map(|e| e.unwrap().file_name());
        let uuid = uuid.map(|name| name.into_string().unwrap()).find(|name| name.len() == 32);
        let row = row.replace("USER", &self.user.to_string());
        self.pool.join(row.replace("UUID", &uuid.unwrap_or_default()))
    }

    /// Everything that may not change: owners, modes, lengths, times, and the beginning of files.
    fn state(&self) -> BTreeMap<PathBuf, ([u64; 5], Vec<u8>)> {
        let state = |path: PathBuf| {
            let meta = fs::symlink_metadata(&path).unwrap();
            let mut bytes = Vec::new();
            if meta.is_file() {
                File::open(&path).unwrap().take(1 << 15).read_to_end(&mut bytes).unwrap();
            }
            let owner = u64::from(meta.uid()) << 32 | u64::from(meta.gid());
            let time = meta.mtime() as u64 * 1_000_000_000 + meta.mtime_nsec() as u64;
            let numbers = [meta.ino(), u64::from(meta.mode()), owner, meta.size(), time];
            (path, (numbers, bytes))
        };
        all_below(self.dir.path()).into_iter().map(state).collect()
    }
}

/// Puts a thing at a place, as Carol would; the former one goes aside.
fn plant(thing: Thing, at: &Path, twin: &Path) -> std::io::Result<()> {
    let path = std::ffi::CString::new(at.to_str().unwrap()).unwrap();
    match thing {
        Thing::Link => symlink(twin, at)?,
        Thing::LinkToNothing => symlink(twin.with_extension("nothing"), at)?,
        Thing::SecondName => fs::hard_link(twin, at)?,
        Thing::Folder => fs::create_dir(at)?,
        Thing::File => fs::write(at, vec![7; 4096])?,
        // SAFETY: a string that ends in NUL.
        Thing::Fifo => match unsafe { libc::mkfifo(path.as_ptr(), 0o666) } {
            0 => {}
            _ => return Err(std::io::Error::last_os_error()),
        },
        Thing::Socket => drop(std::os::unix::net::UnixListener::bind(at)?),
    }
    match thing {
        Thing::SecondName => Ok(()),
        Thing::Link | Thing::LinkToNothing => lchown(at, Some(CAROL), Some(TEAM)),
        _ => {
            fs::set_permissions(at, Permissions::from_mode(0o777))?;
            chown(at, Some(CAROL), Some(TEAM))
        }
    }
}

fn put(pool: &Pool, name: &str, words: usize, scope: Scope) -> Result<()> {
    let team = pool.namespace("team")?;
    let placement = Placement { scope: Some(scope), ..OVER };
    team.put(team.root(), name, &floats(&[words as u64]), &filled(2, 2, words), placement).map(drop)
}

/// Uses a pool in every way that makes or opens files; gives what was refused.
fn use_pool(path: &Path) -> Vec<Error> {
    let pool = match Pool::open(path, Mode::ReadWrite, false) {
        Ok(pool) => pool,
        Err(error) => return vec![error],
    };
    let moved = |from: Scope, to: Scope| {
        let team = pool.namespace("team")?;
        team.transfer(team.root(), "moves", &[from], to).map(drop)
    };
    let look = || {
        let team = pool.namespace("team")?;
        for name in ["ours", "shown"] {
            let Some(member) = team.lookup(team.root(), name)? else { continue };
            team.payload(member.id())?;
            team.lock(member, LockMode::Read, Some(Duration::ZERO), &mut |_| Ok(()))?;
        }
        Ok(())
    };
    let tries = [
        look(),
        put(&pool, "moves", WORDS, Scope::Shared),
        put(&pool, "mine", WORDS, Scope::Private),
        moved(Scope::Shared, Scope::Published),
        moved(Scope::Published, Scope::Shared),
        look(),
    ];
    tries.into_iter().filter_map(Result::err).collect()
}

fn rewrite(path: &Path, own: &Path) -> Vec<Error> {
    let copied = Pool::open(path, Mode::Read, false)
        .and_then(|pool| engram::backup(&pool, &own.join("copy"), false).map(drop));
    let _ = Pool::destroy(&own.join("copy"));
    let tries = [copied, engram::compact(path).map(drop), engram::verify(path).map(drop)];
    tries.into_iter().filter_map(Result::err).collect()
}

fn try_then(then: Then, path: &Path, own: &Path) -> Vec<Error> {
    let pool = || Pool::open(path, Mode::ReadWrite, false);
    let tries = match then {
        Then::Use => return use_pool(path),
        Then::Grow => vec![pool().and_then(|pool| {
            let team = pool.namespace("team")?;
            let new = floats(&[20 << 17]);
            team.create_zeroed(team.root(), "much", &new, OVER).map(drop)
        })],
        Then::Rewrite => return rewrite(path, own),
        Then::Namespace => vec![
            pool().and_then(|pool| pool.create_namespace("late", 0o700, None, None).map(drop)),
            pool().and_then(|pool| pool.remove_namespace("late")),
        ],
        Then::Device => vec![pool().and_then(|pool| pool.add_device(own, false))],
        Then::Destroy => vec![
            Pool::destroy(path),
            Pool::create(path, &CreateOptions { size: 4 << 20, ..CreateOptions::default() })
                .map(drop),
        ],
    };
    tries.into_iter().filter_map(Result::err).collect()
}

/// A user tries, in a process that has half a minute; how much was refused. `None`: it died, or
/// waited for ever.
fn tried(of: &Of, then: Then, own: &Path) -> Option<u64> {
    let mut peer = fork(|line| {
        // SAFETY: asks for a signal, which kills a process that waits for a FIFO.
        unsafe { libc::alarm(30) };
        if of.user != 0 {
            become_user(of.user, TEAM);
        }
        let refused = try_then(then, &of.pool, own);
        // Nobody else is here: an error that says so is wrong.
        let busy: Vec<&Error> = refused.iter().filter(|e| e.kind() == Kind::Busy).collect();
        assert!(busy.is_empty(), "{busy:?}");
        line.say(refused.len() as u64);
    });
    let refused = peer.line.hear_if_any();
    let ended = peer.wait();
    refused.filter(|_| ended == 0)
}

/// Tries a row with each thing; how many that were, and how many refusals.
fn try_row(row: &Row, of: &Of, twin: &Of, wrong: &mut Vec<String>) -> (u64, u64) {
    let there = twin.place(row.0);
    let (mut acts, mut refusals) = (0, 0);
    // Root meets those that could have it write, give away or wait.
    let things = if of.user == 0 { &THINGS[..4] } else { &THINGS[..] };
    for thing in things.iter().copied() {
        let target = if there.exists() { there.clone() } else { twin.dir.path().join("other") };
        if thing == Thing::SecondName && target.is_dir() {
            continue;
        }
        for then in row.1 {
            let own = folder_of(of.user);
            // An arena grows once; a publisher where nothing is published clears spans away; and
            // another description makes another pool of it.
            let once = *then == Then::Grow
                || row.0.contains("published")
                || Path::new(row.0).extension().is_some_and(|suffix| suffix == "toml");
            let size = if *then == Then::Grow { 32 << 20 } else { 4 << 20 };
            let of_this_act = once.then(|| Of::of_size(of.user, size));
            let of = of_this_act.as_ref().unwrap_or(of);
            let at = of.place(row.0);
            let aside = of.dir.path().join("aside");
            let had = fs::rename(&at, &aside).is_ok();
            plant(thing, &at, &target).unwrap();
            let before = twin.state();
            let what = format!("{thing:?} at {} by {}, {then:?}", row.0, of.user);
            match tried(of, *then, own.path()) {
                Some(refused) => refusals += refused,
                None => wrong.push(format!("{what}: died")),
            }
            if twin.state() != before || target.with_extension("nothing").exists() {
                wrong.push(format!("{what}: followed"));
            }
            acts += 1;
            let _ = fs::remove_dir_all(&at);
            let _ = fs::remove_file(&at);
            if had && of_this_act.is_none() {
                fs::rename(&aside, &at).unwrap_or_else(|e| panic!("{what}: putting back: {e}"));
            }
        }
    }
    (acts, refusals)
}

fn try_table(user: u32) -> (u64, u64) {
    let (mut of, twin) = (Of::new(user), Of::new(user));
    fs::write(twin.dir.path().join("other"), vec![1; 1 << 20]).unwrap();
    chown(twin.dir.path().join("other"), Some(user), None).unwrap();
    let (mut acts, mut refusals, mut wrong) = (0, 0, Vec::new());
    for row in TABLE {
        let (more, refused) = try_row(row, &of, &twin, &mut wrong);
        (acts, refusals) = (acts + more, refusals + refused);
        if row.1.contains(&Then::Destroy) {
            of = Of::new(user);
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    // All that was there is there, and is used as before.
    let report = engram::verify(&of.pool).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(tried(&of, Then::Use, twin.dir.path()), Some(0));
    fork(|_| {
        let pool = Pool::open(&of.pool, Mode::Read, false).unwrap();
        let team = pool.namespace("team").unwrap();
        for name in ["ours", "shown"] {
            let found = team.lookup(team.root(), name).unwrap();
            assert!(matches!(found, Some(Member::Object(_))), "{name}");
        }
    })
    .finish();
    (acts, refusals)
}

fn try_as(test: &str, user: u32) {
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let (acts, refusals) = try_table(user);
        assert!(refusals > acts / 3, "{refusals} of {acts} were refused");
        refused(acts, 1, "planted things");
    });
}

/// Whatever is planted where the engine expects its own: it is refused, or does not matter.
#[test]
fn what_is_planted_is_not_followed() {
    try_as("planted::what_is_planted_is_not_followed", ALICE);
}

/// Nor by root, who could write to it, and give it away.
#[test]
fn what_is_planted_is_not_followed_by_root() {
    try_as("planted::what_is_planted_is_not_followed_by_root", 0);
}

/// The maker of a folder of the pool's uuid on a device before it is added is not trusted.
#[test]
fn a_device_with_anothers_folder_is_not_added() {
    let test = "planted::a_device_with_anothers_folder_is_not_added";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let (of, twin) = (Of::new(ALICE), Of::new(ALICE));
        let uuid = of.place("UUID").file_name().unwrap().to_owned();
        let mut acts = 0;
        for (user, thing) in [ALICE, 0].into_iter().flat_map(|user| THINGS.map(|t| (user, t))) {
            let device = folder_of(0);
            fs::set_permissions(device.path(), Permissions::from_mode(0o1777)).unwrap();
            let target = twin.place(if thing == Thing::SecondName { "pool.toml" } else { "UUID" });
            plant(thing, &device.path().join(&uuid), &target).unwrap();
            let before = twin.state();
            fork(|_| {
                if user != 0 {
                    become_user(user, TEAM);
                }
                let pool = Pool::open(&of.pool, Mode::ReadWrite, false).unwrap();
                let refused = pool.add_device(device.path(), false).unwrap_err();
                assert!(refused.message().contains(&*uuid.to_string_lossy()), "{refused}");
                assert_eq!(pool.devices().unwrap().len(), 1);
            })
            .finish();
            assert_eq!(twin.state(), before, "{thing:?}");
            acts += 1;
        }
        refused(acts, 2, "devices");
    });
}

/// A description that somebody else has written does not say what of others' is removed.
#[test]
fn a_description_of_anothers_removes_nothing_of_ones_own() {
    let test = "planted::a_description_of_anothers_removes_nothing_of_ones_own";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let victim = Of::new(ALICE);
        let uuid = victim.place("UUID").file_name().unwrap().to_str().unwrap().to_owned();
        let home = victim.dir.path().to_str().unwrap().to_owned();
        let before = victim.state();
        let pool = victim.pool.to_str().unwrap();
        let mut acts = 0;
        // A uuid that is a path, or a folder's name; another pool's folder on its device.
        let lies = [("pool", &*home), ("..", pool), (".", pool), ("", pool), (&*uuid, pool)];
        for (marker, (uuid, device), user) in ["pool.toml", "creating.toml", "destroying.toml"]
            .into_iter()
            .flat_map(|marker| lies.map(|lie| (marker, lie)))
            .flat_map(|(marker, lie)| [ALICE, 0].map(|user| (marker, lie, user)))
        {
            let dir = folder_of(CAROL);
            let text = format!(
                "format = {}\nuuid = {uuid:?}\ndurability = \"process\"\nsize = 1\n\
                 devices = [\".\", {device:?}]\n",
                engram::FORMAT
            );
            fs::write(dir.path().join(marker), text).unwrap();
            chown(dir.path().join(marker), Some(CAROL), Some(CAROL)).unwrap();
            fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
            fork(|_| {
                if user != 0 {
                    become_user(user, TEAM);
                }
                Pool::destroy(dir.path()).expect_err("it is no pool of theirs");
            })
            .finish();
            assert_eq!(victim.state(), before, "{marker} {uuid} {device}");
            acts += 1;
        }
        // One that lies beside a whole pool's own says nothing when that one goes.
        let whole = Of::new(ALICE);
        let text = format!(
            "format = {}\nuuid = {uuid:?}\ndurability = \"process\"\nsize = 1\n\
             devices = [\".\", {pool:?}]\n",
            engram::FORMAT
        );
        fs::write(whole.pool.join("creating.toml"), text).unwrap();
        chown(whole.pool.join("creating.toml"), Some(CAROL), Some(CAROL)).unwrap();
        let _ = Pool::destroy(&whole.pool);
        assert_eq!(victim.state(), before, "beside a whole pool");
        refused(acts + 1, 2, "descriptions");
    });
}
