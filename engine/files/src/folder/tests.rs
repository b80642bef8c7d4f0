//! Whose a folder is, and what may stand in its place.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use super::{
    belongs_to, check_own, check_real, check_theirs, make_folder, make_for_namespace,
    make_for_spans, open_folder, own, set_mode, sync_names_above,
};
use crate::paths;
use crate::testing::{make_fifo, pool};
use engram_base::error::{Error, Kind};
use engram_base::user;

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn kind<T>(done: Result<T, Error>) -> Option<Kind> {
    done.err().map(|error| error.kind())
}

#[test]
fn a_folder_is_made_with_exactly_its_mode_and_never_over_another() {
    let dir = tempfile::tempdir().unwrap();
    for (number, mode) in [0o700, 0o755, 0o2770, 0o1777].into_iter().enumerate() {
        let folder = dir.path().join(number.to_string());
        make_folder(&folder, mode).unwrap();
        assert_eq!(mode_of(&folder), mode, "whatever the umask");
        assert_eq!(kind(make_folder(&folder, 0o700)), Some(Kind::Exists));
        assert_eq!(mode_of(&folder), mode);
    }
}

#[test]
fn what_stands_in_the_place_of_what_was_made_gets_no_mode() {
    let dir = tempfile::tempdir().unwrap();
    let dir = fs::canonicalize(dir.path()).unwrap().join("in");
    fs::create_dir(&dir).unwrap();
    let at = |name: &str| dir.join(name);
    fs::write(at("file"), "").unwrap();
    fs::set_permissions(at("file"), fs::Permissions::from_mode(0o600)).unwrap();
    own(&at("file")).unwrap();
    own(&dir).unwrap();

    symlink(at("file"), at("link")).unwrap();
    make_fifo(&at("fifo"));
    fs::write(at("twice"), "").unwrap();
    fs::hard_link(at("twice"), at("another name")).unwrap();
    symlink(&dir, dir.with_file_name("around")).unwrap();
    let around = dir.with_file_name("around").join("file");
    for path in [at("link"), at("fifo"), at("twice"), around] {
        assert_eq!(kind(own(&path)), Some(Kind::Access), "{}", path.display());
        assert_eq!(kind(set_mode(&path, 0o666)), Some(Kind::Access), "{}", path.display());
    }
    assert_eq!((mode_of(&at("file")), kind(own(&at("none")))), (0o600, Some(Kind::NotFound)));
}

#[test]
fn only_folders_are_opened_as_folders() {
    let dir = tempfile::tempdir().unwrap();
    make_fifo(&dir.path().join("fifo"));
    fs::write(dir.path().join("file"), "").unwrap();
    for name in ["fifo", "file"] {
        let refused = open_folder(&dir.path().join(name)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotADirectory, "{name}");
    }
    open_folder(dir.path()).unwrap();
    sync_names_above(&dir.path().join("file")).unwrap();
}

#[test]
fn a_link_anywhere_between_the_pool_and_a_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("pool");
    let deep = pool.join("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    assert_eq!(check_real(&pool, &deep), Ok(()));
    assert_eq!(check_real(&pool, &pool.join("a/missing/d")), Ok(()), "that is for who opens it");
    for part in ["a/b/c", "a/b", "a"] {
        let (place, away) = (pool.join(part), dir.path().join("away"));
        fs::rename(&place, &away).unwrap();
        symlink(&away, &place).unwrap();
        let refused = check_real(&pool, &deep).unwrap_err();
        assert_eq!(refused.kind(), Kind::Corrupt, "{part}");
        assert!(refused.message().contains("a symbolic link"), "{refused}");
        fs::remove_file(&place).unwrap();
        fs::write(&place, "").unwrap();
        let refused = check_real(&pool, &place).unwrap_err();
        assert!(refused.message().contains("is a file"), "{refused}");
        fs::remove_file(&place).unwrap();
        fs::rename(&away, &place).unwrap();
    }
    // The pool itself may be reached by a link: the user has given that path.
    let link = dir.path().join("link");
    symlink(&pool, &link).unwrap();
    assert_eq!(check_real(&link, &link.join("a/b/c")), Ok(()));
}

#[test]
fn a_private_folder_is_real_the_user_s_and_closed_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, me) = (dir.path().join("1000"), user::current());
    assert_eq!(check_own(&folder, me), Ok(false), "there is none yet");
    make_folder(&folder, 0o700).unwrap();
    assert_eq!((check_own(&folder, me), belongs_to(&folder, me)), (Ok(true), true));
    assert_eq!(kind(check_own(&folder, me + 1)), Some(Kind::Access), "another's");
    assert!(!belongs_to(&folder, me + 1));
    for mode in [0o701, 0o710, 0o750, 0o777] {
        set_mode(&fs::canonicalize(&folder).unwrap(), mode).unwrap();
        assert_eq!(kind(check_own(&folder, me)), Some(Kind::Access), "mode {mode:o}");
    }
    let (link, file) = (dir.path().join("link"), dir.path().join("file"));
    symlink(&folder, &link).unwrap();
    fs::write(&file, "").unwrap();
    for planted in [link, file] {
        assert_eq!(kind(check_own(&planted, me)), Some(Kind::Access), "{}", planted.display());
        assert!(!belongs_to(&planted, me));
    }
}

#[test]
fn what_a_namespace_has_on_a_device_admits_whom_the_namespace_admits() {
    let dir = tempfile::tempdir().unwrap();
    let dir = fs::canonicalize(dir.path()).unwrap();
    let (path, device) = (dir.join("pool"), dir.join("device"));
    fs::create_dir(&path).unwrap();
    let namespace = pool(&path);
    make_folder(&namespace.join(paths::PRIVATE), super::STICKY).unwrap();
    make_folder(&namespace.join("published"), 0o755).unwrap();
    set_mode(&namespace, 0o750).unwrap();
    make_folder(&device, super::STICKY).unwrap();
    let outer = device.join("uuid").join("default");
    for _ in 0..2 {
        // The second time all of it is there, as after a process that died in between.
        make_for_namespace(&namespace, &outer).unwrap();
        let modes = [outer.parent().unwrap(), &outer, &outer.join("published")].map(mode_of);
        assert_eq!(modes, [0o755, 0o750, 0o755], "as the namespace and its versions");
        assert_eq!(mode_of(&outer.join(paths::PRIVATE)), super::STICKY);
    }
    assert_eq!(check_theirs(&namespace, &outer), Ok(()));
    assert_eq!(check_theirs(&namespace, &device.join("missing")), Ok(()));
    let link = device.join("link");
    symlink(&outer, &link).unwrap();
    assert_eq!(kind(check_theirs(&namespace, &link)), Some(Kind::Access));

    let planted = device.join("other");
    symlink(&outer, &planted).unwrap();
    let refused = make_for_namespace(&namespace, &planted.join("default"));
    assert_eq!(kind(refused), Some(Kind::Access), "a link where the pool's folder should be");

    if user::current() == 0 {
        let planted = device.join("of another user");
        make_folder(&planted, 0o755).unwrap();
        chown(&planted, Some(4711), None).unwrap();
        let refused = make_for_namespace(&namespace, &planted.join("default"));
        assert_eq!(kind(refused), Some(Kind::Access));
    } else {
        println!("a folder of another user's is not tried: giving one away takes root");
    }

    let spans = outer.join("shared");
    for _ in 0..2 {
        make_for_spans(&namespace, &spans).unwrap();
        assert_eq!(mode_of(&spans), 0o750);
    }
    symlink(&outer, outer.join("7")).unwrap();
    assert_eq!(kind(make_for_spans(&namespace, &outer.join("7"))), Some(Kind::Corrupt));
}
