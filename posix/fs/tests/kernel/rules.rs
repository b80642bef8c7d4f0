//! Each rule by itself: the kernel keeps it, and so does [`engram_fs::Asked`].

use engram_fs::{At, Caller, Clash, Fs, Opened, Options, ROOT, Time, Unanswered};
use libc::{
    EACCES, EBUSY, EEXIST, EINVAL, EISDIR, ENODATA, ENOENT, ENOTDIR, ENOTEMPTY, ENXIO, EOPNOTSUPP,
    EPERM, ERANGE, EROFS, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, R_OK,
    RENAME_EXCHANGE, RENAME_NOREPLACE, S_IFCHR, S_IFIFO, S_IFREG, S_IFSOCK, UTIME_NOW, UTIME_OMIT,
    W_OK, X_OK,
};

use crate::Both;
use crate::real;
use crate::steps::{Call, Step, caller};

/// A folder and a namespace, and who asks.
pub struct Rules {
    pub both: Both,
    pub root: Caller,
    /// A user in groups 1 and 100.
    pub one: Caller,
    /// A user in no group of another's.
    other: Caller,
}

pub const OK: i32 = 0;

impl Rules {
    pub fn new() -> Rules {
        if real::why_not().is_none() {
            real::stand_alone();
        }
        let free = |user: Caller| Caller { umask: 0, ..user };
        Rules {
            both: Both::new(),
            root: free(caller(0, 0, &[])),
            one: free(caller(1, 1, &[100])),
            other: free(caller(65534, 65534, &[])),
        }
    }

    /// Both give this number, or do it.
    #[track_caller]
    pub fn gives(&self, caller: &Caller, call: Call, code: i32) {
        let expected = match code {
            OK => None,
            code => Some(code),
        };
        let step = Step { caller: caller.clone(), from: None, call };
        let (kernel, given) = self.both.run(&step).expect("nothing that leads out");
        assert_eq!(given.as_ref().err().copied(), expected, "{:?} by {caller:?}", step.call);
        assert_eq!(kernel, given, "the kernel, of {:?} by {caller:?}", step.call);
    }

    /// A file of somebody's, of this mode.
    #[track_caller]
    pub fn file(&self, whose: &Caller, at: &str, mode: u32) {
        self.gives(whose, Call::Open(text(at), O_CREAT | O_EXCL | O_WRONLY, mode), OK);
    }

    #[track_caller]
    pub fn folder(&self, whose: &Caller, at: &str, mode: u32) {
        self.gives(whose, Call::Mkdir(text(at), mode), OK);
        self.gives(whose, Call::Chmod(text(at), mode, true), OK);
    }

    #[track_caller]
    pub fn symlink(&self, target: &str, at: &str) {
        self.gives(&self.root, Call::Symlink(text(target), text(at)), OK);
    }

    /// The mode that a node has.
    fn mode(&self, at: &str) -> u16 {
        let asked = self.both.ours.fs.asked_by(&self.root);
        asked.stat(At::path(ROOT, at.as_bytes()), true).unwrap().mode
    }

    pub fn end(self) {
        assert_eq!(self.both.differences(), Vec::<String>::new());
        self.both.close();
    }
}

pub fn text(path: &str) -> String {
    path.to_owned()
}

pub fn open(at: &str, flags: i32) -> Call {
    Call::Open(text(at), flags, 0o644)
}

fn rename(old: &str, new: &str, flags: u32) -> Call {
    Call::Rename(text(old), text(new), flags)
}

fn access(at: &str, rights: i32) -> Call {
    Call::Access(text(at), rights, true)
}

#[test]
fn owner_group_and_others_have_their_own_rights() {
    let rules = Rules::new();
    let Rules { root, one, other, .. } = &rules;
    rules.file(one, "mine", 0o047);
    rules.gives(root, Call::Chown(text("mine"), None, Some(100), true), OK);
    let group = caller(7, 100, &[]);
    for (who, rights, code) in [
        (one, R_OK, EACCES),
        (&group, R_OK, OK),
        (&group, W_OK, EACCES),
        (other, R_OK | W_OK | X_OK, OK),
        (root, R_OK | W_OK | X_OK, OK),
    ] {
        rules.gives(who, access("mine", rights), code);
    }
    rules.gives(one, open("mine", O_RDONLY), EACCES);
    rules.gives(other, open("mine", O_RDWR), OK);
    rules.gives(root, Call::Chmod(text("mine"), 0o666, true), OK);
    rules.gives(root, access("mine", X_OK), EACCES);
    rules.gives(root, access("mine", 8), EINVAL);
    rules.folder(one, "folder", 0o600);
    rules.file(root, "folder/inside", 0o777);
    rules.gives(root, access("folder/inside", X_OK), OK);
    rules.gives(one, Call::List(text("folder")), OK);
    rules.gives(one, Call::Stat(text("folder/inside"), true), EACCES);
    rules.gives(one, Call::Stat(text("folder/."), true), EACCES);
    rules.gives(one, Call::Stat(text("folder/none/none"), true), EACCES);
    rules.gives(one, Call::Chdir(text("folder")), EACCES);
    rules.gives(other, Call::List(text("folder")), EACCES);
    rules.gives(root, Call::Chdir(text("folder")), OK);
    rules.gives(root, Call::Chdir(text("mine")), ENOTDIR);
    rules.gives(one, Call::Statfs(text("folder/inside")), EACCES);
    rules.end();
}

#[test]
fn a_sticky_folder_keeps_others_files() {
    let rules = Rules::new();
    let Rules { root, one, other, .. } = &rules;
    let third = &caller(9, 9, &[]);
    rules.folder(one, "sticky", 0o1777);
    rules.folder(one, "plain", 0o777);
    for name in ["sticky/a", "sticky/b", "plain/c"] {
        rules.file(other, name, 0o666);
    }
    rules.folder(other, "sticky/folder", 0o777);
    rules.gives(third, Call::Unlink(text("sticky/a")), EPERM);
    rules.gives(third, Call::Rmdir(text("sticky/folder")), EPERM);
    rules.gives(third, rename("sticky/a", "plain/a", 0), EPERM);
    rules.gives(third, rename("plain/c", "sticky/a", 0), EPERM);
    rules.gives(third, rename("plain/c", "sticky/a", RENAME_EXCHANGE), EPERM);
    rules.gives(third, Call::SetXattr(text("sticky"), 0, true), EPERM);
    rules.gives(one, Call::SetXattr(text("sticky"), 0, true), OK);
    rules.gives(third, rename("plain/c", "sticky/new", 0), OK);
    rules.gives(other, Call::Unlink(text("sticky/a")), OK);
    rules.gives(one, Call::Unlink(text("sticky/b")), OK);
    rules.gives(root, Call::Rmdir(text("sticky/folder")), OK);
    rules.end();
}

#[test]
fn modes_and_owners_are_for_owners_to_change() {
    let rules = Rules::new();
    let Rules { root, one, other, .. } = &rules;
    let chmod = |at: &str, mode| Call::Chmod(text(at), mode, true);
    let chown = |at: &str, uid, gid| Call::Chown(text(at), uid, gid, true);
    rules.file(one, "mine", 0o644);
    rules.gives(other, chmod("mine", 0o777), EPERM);
    rules.gives(one, chmod("mine", 0o2755), OK);
    assert_eq!(rules.mode("mine"), 0o2755);
    rules.gives(root, chown("mine", None, Some(5)), OK);
    rules.gives(one, chmod("mine", 0o2755), OK);
    assert_eq!(rules.mode("mine"), 0o755, "of a group that the caller is not in");
    rules.gives(root, chmod("mine", 0o6755), OK);
    rules.gives(one, chown("mine", None, Some(9)), EPERM);
    rules.gives(one, chown("mine", Some(9), None), EPERM);
    rules.gives(other, chown("mine", Some(65534), None), EPERM);
    rules.gives(one, chown("mine", Some(1), Some(100)), OK);
    assert_eq!(rules.mode("mine"), 0o755);
    rules.gives(root, chmod("mine", 0o6755), OK);
    rules.gives(root, chown("mine", Some(2), None), OK);
    assert_eq!(rules.mode("mine"), 0o755, "root's chown takes them, too");
    rules.gives(other, chown("mine", None, None), OK);
    rules.gives(root, chmod("mine", 0o4755), OK);
    rules.gives(other, chown("mine", None, None), EPERM);
    rules.folder(one, "folder", 0o2777);
    rules.gives(one, chown("folder", None, Some(100)), OK);
    assert_eq!(rules.mode("folder"), 0o2777);
    rules.symlink("mine", "link");
    rules.gives(root, Call::Chmod(text("link"), 0o600, false), EOPNOTSUPP);
    rules.gives(root, Call::Chown(text("link"), Some(1), None, false), OK);
    rules.end();
}

#[test]
fn who_writes_takes_set_user_id_away() {
    let rules = Rules::new();
    let Rules { root, one, other, .. } = &rules;
    for (name, mode, left) in [("both", 0o6777, 0o777), ("marked", 0o2767, 0o767)] {
        let set = || rules.gives(root, Call::Chmod(text(name), mode, true), OK);
        rules.file(one, name, 0o666);
        for call in [
            Call::Write(text(name)),
            Call::Truncate(text(name), 3),
            open(name, O_WRONLY | O_TRUNC),
            open(name, O_RDONLY | O_TRUNC),
        ] {
            set();
            rules.gives(root, call.clone(), OK);
            assert_eq!(u32::from(rules.mode(name)), mode, "root, by {call:?}");
            rules.gives(other, call.clone(), OK);
            assert_eq!(rules.mode(name), left, "another, by {call:?}");
        }
        set();
        rules.gives(one, Call::Write(text(name)), OK);
        // Without the group's right to run it, set-group-id is a mark, which its members may leave.
        assert_eq!(rules.mode(name), if mode == 0o2767 { 0o2767 } else { left });
    }
    rules.end();
}

#[test]
fn times_are_set_by_owners_and_touched_by_writers() {
    let rules = Rules::new();
    let Rules { one, other, .. } = &rules;
    let utimes = |at: &str, read, written| Call::Utimes(text(at), read, written, true);
    rules.file(one, "read", 0o644);
    rules.file(one, "written", 0o666);
    rules.gives(other, utimes("read", UTIME_NOW, UTIME_NOW), EACCES);
    rules.gives(other, utimes("written", UTIME_NOW, UTIME_NOW), OK);
    rules.gives(other, utimes("written", UTIME_NOW, UTIME_OMIT), EPERM);
    rules.gives(other, utimes("written", 5, UTIME_NOW), EPERM);
    rules.gives(one, utimes("read", 5, 6), OK);
    rules.gives(one, utimes("none", UTIME_OMIT, UTIME_OMIT), OK);
    let asked = rules.both.ours.fs.asked_by(one);
    let stat = asked.stat(At::path(ROOT, b"read"), true).unwrap();
    assert_eq!((stat.accessed, stat.written), (9_000_000_005, 9_000_000_006));
    rules.end();
}

#[test]
fn what_is_made_gets_its_mode_group_and_owner() {
    let rules = Rules::new();
    let Rules { root, one, other, .. } = &rules;
    let masked = Caller { umask: 0o027, ..one.clone() };
    rules.gives(&masked, open("file", O_CREAT), OK);
    rules.gives(&masked, Call::Mkdir(text("folder"), 0o7777), OK);
    assert_eq!((rules.mode("file"), rules.mode("folder")), (0o640, 0o1750));
    rules.folder(root, "team", 0o777);
    rules.gives(root, Call::Chown(text("team"), None, Some(100), true), OK);
    rules.gives(root, Call::Chmod(text("team"), 0o2777, true), OK);
    for (who, name, mode) in [(one, "team/in", 0o2775), (other, "team/out", 0o775)] {
        rules.file(who, name, 0o2775);
        assert_eq!(rules.mode(name), mode);
    }
    rules.gives(other, Call::Mkdir(text("team/folder"), 0o755), OK);
    assert_eq!(rules.mode("team/folder"), 0o2755);
    let mknod = |at: &str, mode, rdev| Call::Mknod(text(at), mode, rdev);
    rules.gives(one, mknod("device", S_IFCHR | 0o600, 0x103), EPERM);
    rules.gives(one, mknod("hidden", S_IFCHR | 0o600, 0), OK);
    rules.gives(one, mknod("fifo", S_IFIFO | 0o600, 0), OK);
    rules.gives(one, mknod("folder2", libc::S_IFDIR | 0o700, 0), EPERM);
    rules.gives(one, mknod("link", libc::S_IFLNK | 0o700, 0), EINVAL);
    rules.gives(one, mknod("socket", S_IFSOCK | 0o600, 0), OK);
    rules.gives(one, open("socket", O_RDONLY), ENXIO);
    rules.gives(other, open("socket", O_RDONLY), EACCES);
    rules.gives(other, Call::Truncate(text("socket"), 0), EINVAL);
    // A file that is made is opened, whatever its mode.
    rules.gives(one, Call::Open(text("none"), O_CREAT | O_RDWR, 0), OK);
    rules.gives(one, open("none", O_RDONLY), EACCES);
    rules.folder(root, "closed", 0o755);
    rules.file(root, "closed/there", 0o666);
    for (call, code) in [
        (Call::Mkdir(text("closed/new"), 0o777), EACCES),
        (Call::Mkdir(text("closed/there"), 0o777), EEXIST),
        (open("closed/new", O_CREAT), EACCES),
        (open("closed/there", O_CREAT | O_RDWR), OK),
        (open("closed/there", O_CREAT | O_EXCL), EEXIST),
        (Call::Symlink(text("x"), text("closed/new")), EACCES),
        (mknod("closed/new", S_IFREG | 0o600, 0), EACCES),
        (mknod("closed/new", S_IFCHR | 0o600, 0x103), EACCES),
        (Call::Unlink(text("closed/there")), EACCES),
        (Call::Unlink(text("closed/none")), ENOENT),
        (Call::Rmdir(text("closed/there")), EACCES),
        (rename("closed/there", "new", 0), EACCES),
        (rename("file", "closed/new", 0), EACCES),
    ] {
        rules.gives(one, call, code);
    }
    rules.end();
}

#[test]
fn a_folder_that_moves_is_written_itself() {
    let rules = Rules::new();
    let Rules { root, one, .. } = &rules;
    rules.folder(root, "a", 0o777);
    rules.folder(root, "b", 0o777);
    rules.folder(root, "a/kept", 0o755);
    rules.folder(one, "b/mine", 0o755);
    rules.gives(one, rename("a/kept", "b/kept", 0), EACCES);
    rules.gives(one, rename("a/kept", "a/other", 0), OK);
    rules.gives(one, rename("b/mine", "a/other", RENAME_EXCHANGE), EACCES);
    rules.gives(one, rename("b/mine", "a/mine", 0), OK);
    rules.gives(one, rename("a/mine", "a/other", RENAME_NOREPLACE), EEXIST);
    rules.gives(one, rename("a", "a/other/in", 0), EINVAL);
    rules.gives(one, rename("a/mine", "a", 0), ENOTEMPTY);
    rules.gives(one, rename("a/mine", "a", RENAME_EXCHANGE), EINVAL);
    rules.gives(one, rename("a/mine", "a/none", RENAME_EXCHANGE), ENOENT);
    rules.gives(one, rename("b", "b/.", 0), EBUSY);
    rules.gives(one, rename("b/.", "c", 0), EBUSY);
    rules.gives(one, rename("b/..", "c", 0), EBUSY);
    rules.gives(one, rename("b", "a/.", RENAME_NOREPLACE), EEXIST);
    rules.file(one, "file", 0o644);
    rules.gives(one, rename("file", "new/", 0), ENOTDIR);
    rules.gives(one, rename("file/", "new", 0), ENOTDIR);
    rules.gives(one, rename("b", "new/", 0), OK);
    rules.gives(one, rename("file", "new", 0), EISDIR);
    rules.gives(one, rename("new", "file", 0), ENOTDIR);
    rules.end();
}

#[test]
fn attributes_are_read_and_written_as_files_are() {
    let rules = Rules::new();
    let Rules { root, one, other, both } = &rules;
    let set = |at: &str, flags, follow| Call::SetXattr(text(at), flags, follow);
    let get = |at: &str, follow| Call::GetXattr(text(at), follow);
    rules.file(one, "file", 0o640);
    rules.symlink("file", "link");
    rules.gives(one, get("file", true), ENODATA);
    rules.gives(one, set("file", libc::XATTR_REPLACE, true), ENODATA);
    rules.gives(one, set("file", 0, true), OK);
    rules.gives(one, set("file", libc::XATTR_CREATE, true), EEXIST);
    rules.gives(one, set("file", 4, true), EINVAL);
    rules.gives(one, get("link", true), OK);
    rules.gives(other, get("file", true), EACCES);
    rules.gives(other, set("file", 0, true), EACCES);
    rules.gives(other, Call::RemoveXattr(text("file"), true), EACCES);
    rules.gives(other, Call::ListXattr(text("file"), true), OK);
    rules.gives(root, get("link", false), ENODATA);
    rules.gives(root, set("link", 0, false), EPERM);
    rules.gives(one, Call::RemoveXattr(text("link"), true), OK);
    let asked = both.ours.fs.asked_by(other);
    let named = |name: &[u8]| refused(asked.get_xattr(At::path(ROOT, b"file"), name, true));
    assert_eq!(named(b""), ERANGE);
    assert_eq!(named("n".repeat(256).as_bytes()), ERANGE);
    assert_eq!(named(b"trusted.k"), ENODATA);
    assert_eq!(named(b"security.k"), EOPNOTSUPP);
    let set = asked.set_xattr(At::path(ROOT, b"file"), b"trusted.k", b"", 0, true);
    assert_eq!(refused(set), EPERM);
    rules.end();
}

/// The number that a call is refused with.
#[track_caller]
pub fn refused<T>(answer: Result<T, Unanswered>) -> i32 {
    match answer {
        Err(Unanswered::Refused(error)) => error.code,
        Err(Unanswered::Leaves(leaves)) => panic!("it leaves: {leaves:?}"),
        Err(Unanswered::Expected) => panic!("no stage brings anything here"),
        Ok(_) => panic!("it is not refused"),
    }
}

#[test]
fn calls_of_open_files_ask_for_their_numbers() {
    let rules = Rules::new();
    let Rules { root, one, other, both } = &rules;
    rules.file(one, "file", 0o6666);
    let fs = &both.ours.fs;
    let (mine, others) = (fs.asked_by(one), fs.asked_by(other));
    let Ok(Opened::File(handle)) = mine.open(At::path(ROOT, b"file"), O_RDWR, 0) else {
        panic!("it is opened")
    };
    let at = At::node(handle.ino());
    mine.unlink(At::path(ROOT, b"file")).unwrap();
    assert_eq!(mine.stat(at, true).unwrap().nlink, 0);
    mine.chmod(at, 0o4600, true).unwrap();
    assert_eq!(refused(others.chmod(at, 0o600, true)), EPERM);
    assert_eq!(refused(others.utimes(at, Some(Time::Now), Some(Time::Now), true)), EACCES);
    mine.set_size(&handle, 9).unwrap();
    let stat = mine.stat(at, true).unwrap();
    assert_eq!((stat.size, stat.mode), (9, 0o600));
    let link = fs.asked_by(root).link(at, At::path(ROOT, b"again"), false);
    assert_eq!(refused(link), ENOENT, "a file without a name gets none");
    // What is no folder has no names in it; the path is looked at first.
    assert_eq!(refused(mine.stat(At::path(handle.ino(), b"x"), true)), ENOTDIR);
    assert_eq!(refused(mine.stat(At::path(handle.ino(), b""), true)), ENOENT);
    drop(handle);
    assert_eq!(refused(mine.open(At::path(ROOT, b"a"), libc::O_TMPFILE, 0o600)), EOPNOTSUPP);
    let asked = fs.asked_by(root);
    asked.mkdir(At::path(ROOT, b"gone"), 0o777).unwrap();
    let gone = asked.chdir(At::path(ROOT, b"gone")).unwrap();
    asked.rmdir(At::path(ROOT, b"gone")).unwrap();
    for path in [&b"."[..], b"..", b"x", b"x/y"] {
        assert_eq!(refused(asked.stat(At::path(gone, path), true)), ENOENT);
    }
    assert_eq!(refused(asked.mkdir(At::path(gone, b"x"), 0o755)), ENOENT);
    assert_eq!(refused(asked.open(At::path(gone, b"x"), O_CREAT, 0o755)), ENOENT);
    drop(std::fs::remove_file(both.dir.path().join("in/real/file")));
    rules.end();
}

#[test]
fn what_is_shown_for_reading_is_not_written() {
    let rules = Rules::new();
    let Rules { root, one, both, .. } = &rules;
    rules.folder(root, "folder", 0o755);
    rules.file(root, "folder/file", 0o644);
    let options = Options { read_only: true, ..Options::default() };
    let fs = Fs::new(both.pool.namespace("default").unwrap(), options).unwrap();
    let (asked, mine) = (fs.asked_by(root), fs.asked_by(one));
    let at = |path: &'static str| At::path(ROOT, path.as_bytes());
    assert_eq!(refused(asked.access(at("folder"), W_OK, true)), EROFS);
    asked.access(at("folder"), R_OK | X_OK, true).unwrap();
    assert_eq!(refused(mine.open(at("folder/file"), O_WRONLY, 0)), EROFS);
    assert_eq!(refused(mine.open(at("folder/new"), O_CREAT, 0)), EROFS);
    assert_eq!(refused(mine.mkdir(at("folder"), 0)), EEXIST, "it is there, in any case");
    assert_eq!(refused(mine.mkdir(at("folder/new"), 0)), EROFS, "before any permission");
    assert_eq!(refused(mine.unlink(at("none"))), EROFS);
    assert_eq!(refused(mine.rename(at("folder"), at("none"), Clash::Replace)), EROFS);
    assert_eq!(refused(asked.chmod(at("folder"), 0, true)), EROFS);
    assert_eq!(refused(asked.chown(at("folder"), None, None, true)), EROFS);
    assert_eq!(refused(asked.truncate(at("folder/file"), 0)), EROFS);
    assert_eq!(refused(asked.utimes(at("folder"), None, Some(Time::Now), true)), EROFS);
    assert_eq!(refused(asked.set_xattr(at("folder"), b"user.k", b"", 0, true)), EROFS);
    drop(fs);
    rules.end();
}

#[test]
fn what_no_record_has_is_looked_at_and_kept() {
    let rules = Rules::new();
    let asked = rules.both.ours.fs.asked_by(&rules.one);
    let at = |path: &'static str| At::path(ROOT, path.as_bytes());
    rules.file(&rules.one, "file", 0o644);
    drop(asked.open_folder(at(".engram/query/@name = \"file\"/")).unwrap());
    asked.stat(at(".engram/query/@name = \"file\"/file"), true).unwrap();
    asked.stat(at(".engram/../file"), true).unwrap();
    assert_eq!(refused(asked.stat(at(".engram/none"), true)), ENOENT);
    let root = rules.both.ours.fs.asked_by(&rules.root);
    assert_eq!(refused(root.mkdir(at(".engram/x"), 0o755)), EPERM);
    assert_eq!(refused(root.rmdir(at(".engram"))), EPERM);
    assert_eq!(refused(root.chmod(at(".engram"), 0o777, true)), EPERM);
    rules.end();
}
