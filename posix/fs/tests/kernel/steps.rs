//! What is done, by whom, and under which path.

use engram_fs::Caller;
use proptest::prelude::*;

/// A call, with its arguments. Paths are relative, or begin with `@`, which stands for the folder
/// that is shown.
#[derive(Clone, Debug)]
pub enum Call {
    Stat(String, bool),
    Access(String, i32, bool),
    Open(String, i32, u32),
    /// Opened to be written, and written.
    Write(String),
    Mkdir(String, u32),
    Mknod(String, u32, u64),
    Symlink(String, String),
    Readlink(String),
    Link(String, String, bool),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, u32),
    Chmod(String, u32, bool),
    Chown(String, Option<u32>, Option<u32>, bool),
    Utimes(String, i64, i64, bool),
    Truncate(String, u64),
    SetXattr(String, i32, bool),
    GetXattr(String, bool),
    RemoveXattr(String, bool),
    ListXattr(String, bool),
    List(String),
    Chdir(String),
    Statfs(String),
}

/// A call of somebody, from a folder: the one that is shown, or one in it.
#[derive(Clone, Debug)]
pub struct Step {
    pub caller: Caller,
    pub from: Option<&'static str>,
    pub call: Call,
}

/// What a step gives: something to compare, or an errno.
pub type Given = Result<String, i32>;

/// A user with these groups.
pub fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid, groups: groups.to_vec(), umask: 0o022 }
}

fn callers() -> impl Strategy<Value = Caller> {
    let users = prop_oneof![
        3 => Just(caller(0, 0, &[])),
        2 => Just(caller(65534, 65534, &[])),
        2 => Just(caller(1, 1, &[100])),
        1 => Just(caller(65534, 100, &[])),
        1 => Just(caller(1, 100, &[65534])),
    ];
    let umask = prop_oneof![3 => Just(0o022u32), 1 => Just(0), 1 => Just(0o077)];
    (users, umask).prop_map(|(caller, umask)| Caller { umask, ..caller })
}

/// Names are of few letters, so that they meet.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        60 => "[abc]",
        2 => Just(".".to_owned()),
        4 => Just("..".to_owned()),
        1 => Just("x".repeat(256)),
    ]
}

fn path() -> impl Strategy<Value = String> {
    let names = prop_oneof![
        3 => prop::collection::vec(name(), 1..3),
        1 => prop::collection::vec(name(), 3..5),
    ];
    let slash = prop_oneof![8 => Just("/"), 1 => Just("//")];
    let before = prop_oneof![16 => Just(""), 1 => Just("@/"), 1 => Just("../real/")];
    let behind = prop_oneof![9 => Just(""), 1 => Just("/")];
    let path = (before, names, slash, behind).prop_map(|(before, names, slash, behind)| {
        format!("{before}{}{behind}", names.join(slash))
    });
    prop_oneof![
        200 => path,
        4 => Just(".".to_owned()),
        1 => Just(String::new()),
        1 => Just("a/".repeat(2048)),
    ]
}

fn mode() -> impl Strategy<Value = u32> {
    let known = [
        0o777, 0o755, 0o700, 0o1777, 0o1770, 0o2775, 0o2777, 0o070, 0o007, 0o6755, 0o2745, 0o4711,
        0o644, 0o600, 0o711, 0o766,
    ];
    prop_oneof![
        4 => Just(0o777u32),
        6 => prop::sample::select(known.to_vec()),
        1 => 0u32..=0o7777,
    ]
}

fn flags() -> impl Strategy<Value = i32> {
    let access = prop::sample::select(vec![libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR]);
    let further = prop::sample::subsequence(
        vec![
            libc::O_CREAT,
            libc::O_EXCL,
            libc::O_TRUNC,
            libc::O_DIRECTORY,
            libc::O_NOFOLLOW,
            libc::O_APPEND,
            libc::O_PATH,
            libc::O_NOATIME,
        ],
        0..3,
    );
    prop_oneof![
        2 => (access.clone(), further).prop_map(|(access, flags)| {
            flags.into_iter().fold(access, |all, flag| all | flag)
        }),
        1 => access.prop_map(|access| access | libc::O_CREAT),
    ]
}

fn user() -> impl Strategy<Value = Option<u32>> {
    prop::sample::select(vec![None, None, Some(0), Some(1), Some(65534)])
}

fn group() -> impl Strategy<Value = Option<u32>> {
    prop::sample::select(vec![None, Some(0), Some(1), Some(100), Some(65534)])
}

/// A time: `UTIME_NOW`, `UTIME_OMIT`, or one.
fn time() -> impl Strategy<Value = i64> {
    prop::sample::select(vec![libc::UTIME_NOW, libc::UTIME_NOW, libc::UTIME_OMIT, 7])
}

fn call() -> impl Strategy<Value = Call> {
    let kinds = vec![libc::S_IFREG, 0, libc::S_IFSOCK, libc::S_IFDIR, libc::S_IFLNK];
    let kind = prop::sample::select(kinds);
    prop_oneof![
        8 => (path(), mode()).prop_map(|(at, mode)| Call::Mkdir(at, mode)),
        10 => (path(), flags(), mode()).prop_map(|(at, flags, mode)| Call::Open(at, flags, mode)),
        2 => (path(), kind, mode()).prop_map(|(at, kind, mode)| Call::Mknod(at, kind | mode, 0)),
        4 => (path(), path()).prop_map(|(target, at)| Call::Symlink(target, at)),
        4 => (path(), path(), any::<bool>()).prop_map(|(old, new, follow)| {
            Call::Link(old, new, follow)
        }),
        3 => path().prop_map(Call::Unlink),
        3 => path().prop_map(Call::Rmdir),
        8 => (path(), path(), 0u32..3).prop_map(|(old, new, how)| Call::Rename(old, new, how)),
        6 => (path(), mode(), prop::bool::weighted(0.9))
            .prop_map(|(at, mode, follow)| Call::Chmod(at, mode, follow)),
        6 => (path(), user(), group(), any::<bool>())
            .prop_map(|(at, uid, gid, follow)| Call::Chown(at, uid, gid, follow)),
        2 => (path(), time(), time(), any::<bool>())
            .prop_map(|(at, read, written, follow)| Call::Utimes(at, read, written, follow)),
        3 => (path(), 0u64..3000).prop_map(|(at, size)| Call::Truncate(at, size)),
        3 => path().prop_map(Call::Write),
        4 => (path(), any::<bool>()).prop_map(|(at, follow)| Call::Stat(at, follow)),
        4 => (path(), 0..8, any::<bool>())
            .prop_map(|(at, rights, follow)| Call::Access(at, rights, follow)),
        2 => path().prop_map(Call::Readlink),
        2 => (path(), 0..3, any::<bool>())
            .prop_map(|(at, flags, follow)| Call::SetXattr(at, flags, follow)),
        2 => (path(), any::<bool>()).prop_map(|(at, follow)| Call::GetXattr(at, follow)),
        1 => (path(), any::<bool>()).prop_map(|(at, follow)| Call::RemoveXattr(at, follow)),
        1 => (path(), any::<bool>()).prop_map(|(at, follow)| Call::ListXattr(at, follow)),
        2 => path().prop_map(Call::List),
        1 => path().prop_map(Call::Chdir),
        1 => path().prop_map(Call::Statfs),
    ]
}

/// A tree in which there is something to do, for anybody.
pub fn begun() -> Vec<Step> {
    let users = [caller(0, 0, &[]), caller(1, 1, &[100]), caller(65534, 65534, &[])];
    let by = |user: usize, call| Step {
        caller: Caller { umask: 0, ..users[user].clone() },
        from: None,
        call,
    };
    let file = |at: &str, mode| Call::Open(at.to_owned(), libc::O_CREAT | libc::O_RDWR, mode);
    let folder = |at: &str, mode| Call::Mkdir(at.to_owned(), mode);
    vec![
        by(1, folder("a", 0o777)),
        by(2, folder("b", 0o1777)),
        by(0, folder("a/a", 0o777)),
        by(1, folder("b/a", 0o755)),
        by(2, folder("a/b", 0o770)),
        by(0, Call::Chown("a/a".to_owned(), None, Some(100), true)),
        by(0, Call::Chmod("a/a".to_owned(), 0o2777, true)),
        by(1, file("a/a/a", 0o6777)),
        by(2, file("a/a/b", 0o640)),
        by(1, file("b/b", 0o2745)),
        by(0, file("b/c", 0o666)),
        by(2, file("c", 0o4755)),
        by(1, Call::Symlink("../b".to_owned(), "a/c".to_owned())),
        by(2, Call::Symlink("@/a/a".to_owned(), "a/b/c".to_owned())),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let from = prop_oneof![8 => Just(None), 1 => Just(Some("a")), 1 => Just(Some("b"))];
    (callers(), from, call()).prop_map(|(caller, from, call)| Step { caller, from, call })
}

impl Call {
    /// The paths that it follows.
    pub fn paths(&self) -> (&str, Option<&str>) {
        match self {
            Call::Link(old, new, _) | Call::Rename(old, new, _) => (old, Some(new)),
            Call::Symlink(_, at)
            | Call::Stat(at, _)
            | Call::Access(at, ..)
            | Call::Open(at, ..)
            | Call::Write(at)
            | Call::Mkdir(at, _)
            | Call::Mknod(at, ..)
            | Call::Readlink(at)
            | Call::Unlink(at)
            | Call::Rmdir(at)
            | Call::Chmod(at, ..)
            | Call::Chown(at, ..)
            | Call::Utimes(at, ..)
            | Call::Truncate(at, _)
            | Call::SetXattr(at, ..)
            | Call::GetXattr(at, _)
            | Call::RemoveXattr(at, _)
            | Call::ListXattr(at, _)
            | Call::List(at)
            | Call::Chdir(at)
            | Call::Statfs(at) => (at, None),
        }
    }
}
