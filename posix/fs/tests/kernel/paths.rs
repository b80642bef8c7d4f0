//! How paths are followed: as the kernel does, and out of what is shown.

use engram_fs::{At, Beyond, Clash, Leaves, ROOT, Unanswered};
use libc::{
    EACCES, EBUSY, EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY, EPERM,
    O_CREAT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NOFOLLOW, O_PATH, O_RDONLY, O_TRUNC, O_WRONLY,
    S_IFREG,
};

use crate::rules::{OK, Rules, open, refused, text};
use crate::steps::Call;

#[test]
fn slashes_and_dots_stand_last() {
    let rules = Rules::new();
    let Rules { root, .. } = &rules;
    rules.folder(root, "folder", 0o777);
    rules.file(root, "file", 0o666);
    rules.symlink("folder", "link");
    rules.symlink("file", "to-file");
    rules.symlink("none", "dangling");
    let rmdir = |at: &str| Call::Rmdir(text(at));
    let unlink = |at: &str| Call::Unlink(text(at));
    let stat = |at: &str, follow| Call::Stat(text(at), follow);
    for (call, code) in [
        (Call::Mkdir(text("made/"), 0o755), OK),
        (Call::Mkdir(text("dangling/"), 0o755), EEXIST),
        (Call::Mkdir(text("folder/.."), 0o755), EEXIST),
        (open("file/", O_RDONLY), ENOTDIR),
        (open("to-file/", O_RDONLY), ENOTDIR),
        (open("folder/", O_RDONLY), OK),
        (open("new/", O_CREAT), EISDIR),
        (open("file/", O_CREAT), EISDIR),
        (open(".", O_CREAT), EISDIR),
        (open(".", O_CREAT | O_EXCL), EEXIST),
        (open("folder", O_CREAT | O_DIRECTORY), EINVAL),
        (open("folder", O_WRONLY), EISDIR),
        (open("folder", O_RDONLY | O_TRUNC), EISDIR),
        (open("file", O_DIRECTORY), ENOTDIR),
        (open("dangling", O_RDONLY), ENOENT),
        (open("dangling", O_CREAT | O_EXCL), EEXIST),
        (open("to-file", O_NOFOLLOW), ELOOP),
        (open("link", O_NOFOLLOW | O_DIRECTORY), ENOTDIR),
        (open("link/", O_NOFOLLOW), OK),
        (open("to-file", O_PATH | O_NOFOLLOW), OK),
        (open("file", O_PATH | O_WRONLY | O_TRUNC), OK),
        (open("dangling", O_CREAT | O_WRONLY), OK),
        (unlink("absent/"), ENOENT),
        (unlink("folder/"), EISDIR),
        (unlink("file/"), ENOTDIR),
        (unlink("link/"), ENOTDIR),
        (unlink("folder/."), EISDIR),
        (unlink("folder"), EISDIR),
        (rmdir("folder/."), EINVAL),
        (rmdir("folder/.."), ENOTEMPTY),
        (rmdir("link/"), ENOTDIR),
        (rmdir("file"), ENOTDIR),
        (rmdir("made/"), OK),
        (stat("link", false), OK),
        (stat("link/", false), OK),
        (stat("to-file/", false), ENOTDIR),
        (stat("", true), ENOENT),
        (stat("file/none", true), ENOTDIR),
        (stat("file/../file", true), ENOTDIR),
        (stat("@//folder", true), OK),
        (Call::Readlink(text("link")), OK),
        (Call::Readlink(text("link/")), EINVAL),
        (Call::Readlink(text("file")), EINVAL),
        (Call::Symlink(String::new(), text("new")), ENOENT),
        (Call::Symlink(text("x"), text("new/")), ENOENT),
        (Call::Link(text("file"), text("new/"), false), ENOENT),
        (Call::Link(text("folder"), text("new"), false), EPERM),
        (Call::Link(text("folder"), text("file"), false), EEXIST),
        (Call::Truncate(text("folder"), 0), EISDIR),
        (Call::Mknod(text("new/"), S_IFREG, 0), ENOENT),
    ] {
        rules.gives(root, call, code);
    }
    rules.end();
}

#[test]
fn paths_have_their_limits() {
    let rules = Rules::new();
    let Rules { root, one, .. } = &rules;
    rules.folder(root, "a", 0o777);
    rules.folder(root, "closed", 0o700);
    let (fits, long) = ("n".repeat(255), "n".repeat(256));
    let stat = |at: &str| Call::Stat(text(at), true);
    rules.gives(root, stat(&fits), ENOENT);
    rules.gives(root, stat(&long), ENAMETOOLONG);
    rules.gives(root, stat(&format!("a/{long}/b")), ENAMETOOLONG);
    rules.gives(root, stat(&format!("none/{long}")), ENOENT);
    rules.gives(one, stat(&format!("closed/{long}")), EACCES);
    rules.gives(one, open(&long, O_CREAT), ENAMETOOLONG);
    rules.gives(root, Call::Mkdir(fits, 0o755), OK);
    rules.gives(root, stat(&"./".repeat(2047)), OK);
    rules.gives(root, stat(&format!("{}a", "./".repeat(2047))), OK);
    rules.gives(root, stat(&"./".repeat(2048)), ENAMETOOLONG);
    rules.gives(root, Call::Symlink("x".repeat(4096), text("a/long")), ENAMETOOLONG);
    // The 41st link is one too many.
    rules.file(root, "end", 0o644);
    rules.symlink("end", "l1");
    for number in 2..42 {
        rules.symlink(&format!("l{}", number - 1), &format!("l{number}"));
    }
    rules.gives(root, stat("l40"), OK);
    rules.gives(root, stat("l41"), ELOOP);
    rules.gives(root, Call::Stat(text("l41"), false), OK);
    rules.symlink("@/l39", "in-40");
    rules.symlink("@/l40", "in-41");
    rules.gives(root, stat("in-40"), OK);
    rules.gives(root, stat("in-41"), ELOOP);
    rules.symlink("@/loop", "loop");
    rules.gives(root, stat("loop"), ELOOP);
    rules.gives(root, stat("loop/x"), ELOOP);
    rules.gives(root, open("loop", O_CREAT), ELOOP);
    rules.end();
}

#[test]
fn links_lead_through_folders_that_may_be_searched() {
    let rules = Rules::new();
    let Rules { root, one, .. } = &rules;
    rules.folder(root, "closed", 0o700);
    rules.folder(root, "open", 0o755);
    rules.file(root, "closed/file", 0o644);
    rules.file(root, "open/file", 0o644);
    rules.symlink("../closed/file", "open/in");
    rules.symlink("../open", "closed/out");
    rules.symlink("@/closed/file", "open/in-whole");
    let stat = |at: &str| Call::Stat(text(at), true);
    rules.gives(one, stat("open/in"), EACCES);
    rules.gives(one, stat("open/in-whole"), EACCES);
    rules.gives(one, stat("closed/out/file"), EACCES);
    rules.gives(one, Call::Readlink(text("open/in")), OK);
    rules.gives(root, stat("open/in"), OK);
    rules.gives(root, stat("closed/out/../open/file"), OK);
    let (old, new) = (At::path(ROOT, b"open/in"), At::path(ROOT, b"kept"));
    assert_eq!(refused(rules.both.ours.fs.asked_by(one).link(old, new, true)), EACCES);
    rules.gives(root, Call::Link(text("open/in"), text("through"), true), OK);
    rules.gives(root, Call::Link(text("open/in"), text("open/itself"), false), OK);
    rules.gives(one, open("open/file", O_NOATIME), EPERM);
    rules.gives(root, open("open/file", O_NOATIME), OK);
    rules.end();
}

#[test]
fn a_path_that_leaves_says_where_to() {
    let rules = Rules::new();
    let Rules { root, both, .. } = &rules;
    rules.folder(root, "a", 0o755);
    rules.symlink("../..", "up");
    rules.symlink("/far/away", "a/far");
    rules.symlink("far", "a/near");
    let asked = both.ours.fs.asked_by(root);
    let leaves =
        |path: &str, links| match asked.stat(At::path(ROOT, path.as_bytes()).after(links), true) {
            Err(Unanswered::Leaves(leaves)) => *leaves,
            other => panic!("{path:?} stays: {other:?}"),
        };
    let above = |rest: &str| Beyond::Above(rest.as_bytes().to_vec());
    let whole = |path: &str| Beyond::Absolute(path.as_bytes().to_vec());
    for (path, to, links) in [
        ("..", above("."), 0),
        ("../", above("."), 0),
        ("a/../../b/c/", above("b/c/"), 0),
        ("up/x", above("../x"), 1),
        ("a/far", whole("/far/away"), 1),
        ("a/near//x/", whole("/far/away//x/"), 2),
    ] {
        let through_link = links > 0;
        let expected = Leaves { to, links: links + 3, through_link, second: false };
        assert_eq!(leaves(path, 3), expected, "{path:?}");
    }
    // Nothing is asked of what is outside: the last name alone decides.
    for (path, code) in [("..", ENOTEMPTY), ("a/../..", ENOTEMPTY), ("/", EBUSY)] {
        assert_eq!(refused(asked.rmdir(At::path(ROOT, path.as_bytes()))), code, "{path:?}");
    }
    let at = |path: &'static str| At::path(ROOT, path.as_bytes());
    assert_eq!(refused(asked.unlink(at("/"))), EISDIR);
    assert_eq!(refused(asked.mkdir(at("/"), 0o755)), EEXIST);
    assert_eq!(refused(asked.rename(at("/"), at("b"), Clash::Replace)), EBUSY);
    assert_eq!(refused(asked.stat(At::path(ROOT, b"l").after(40), true)), ENOENT);
    assert_eq!(refused(asked.stat(at("a/far").after(40), true)), ELOOP);
    match asked.rename(at("a"), at("a/far/x"), Clash::Replace) {
        Err(Unanswered::Leaves(leaves)) => assert!(leaves.second, "{leaves:?}"),
        other => panic!("it stays: {other:?}"),
    }
    match asked.open(at("a/near"), O_CREAT | O_WRONLY, 0o644) {
        Err(Unanswered::Leaves(leaves)) => assert_eq!(leaves.to, whole("/far/away")),
        Err(other) => panic!("it stays: {other:?}"),
        Ok(_) => panic!("it is opened"),
    }
    rules.end();
}
