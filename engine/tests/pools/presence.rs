//! Pools whose files are removed while processes have them open: nobody is told that it has stored
//! what nobody will find.

use std::path::Path;
use std::time::Duration;

use crate::common::{
    alone, attach, check, filled, fork, lookup, put, put_new, read, sound, span_files, view,
};
use engram::{CreateOptions, Kind, Mode, Pool, Realm};

/// A value that is in an extent.
const WORDS: usize = 4096;
/// Longer than a commit goes without a look.
const A_WHILE: Duration = Duration::from_millis(40);

fn create(path: &Path) -> (Pool, Realm) {
    let options = CreateOptions { size: 8 << 20, ..CreateOptions::default() };
    Pool::create(path, &options).unwrap().close();
    let (pool, realm) = attach(path, Mode::ReadWrite);
    put(&realm, "before", &filled(1, 1, WORDS));
    (pool, realm)
}

/// Removes files, and leaves folders: as logind does.
fn remove_files(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => remove_files(&path),
            path => std::fs::remove_file(path).unwrap(),
        }
    }
}

/// Removes the file of the one span alone, as a cleaner does that goes by age.
fn remove_span(pool: &Path) {
    let [span] = &span_files(pool)[..] else { panic!("there is one, and one look finds it") };
    std::fs::remove_file(span).unwrap();
}

fn kind<T>(done: engram::Result<T>) -> Option<Kind> {
    done.err().map(|error| error.kind())
}

/// All that a process may ask for, and that is refused now.
fn refused(pool: &Pool, realm: &Realm) {
    let gone = Some(Kind::PoolGone);
    assert_eq!(kind(put_new(realm, "small", &[0; 8])), gone);
    assert_eq!(kind(put_new(realm, "large", &vec![0; 1 << 16])), gone);
    assert_eq!(kind(realm.delete(realm.root(), "before")), gone);
    assert_eq!(kind(realm.lookup(realm.root(), "before")), gone);
    assert_eq!(kind(realm.space()), gone);
    assert_eq!(kind(pool.try_close()), gone);
    assert!(!pool.is_open());
}

#[test]
fn a_commit_to_files_that_were_removed_is_refused_and_so_is_all_that_follows() {
    // A fork of another test's would make a lease anew.
    let test = "a_commit_to_files_that_were_removed_is_refused_and_so_is_all_that_follows";
    alone(test, || {
        ["the folder", "the files", "the leases", "the span"].into_iter().for_each(removed);
    });
}

fn removed(what: &str) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = &dir.path().join("pool");
    let (pool, realm) = create(path);
    let view = view(&realm, "before");
    match what {
        "the folder" => std::fs::remove_dir_all(path).unwrap(),
        "the files" => remove_files(path),
        "the span" => remove_span(path),
        _ => remove_files(&path.join("ns/default/shared/leases")),
    }
    std::thread::sleep(A_WHILE);
    let error = put_new(&realm, "after", &[0; 8]).expect_err(what);
    assert_eq!(error.kind(), Kind::PoolGone, "{what}: {error}");
    for words in ["default", path.to_str().unwrap(), "engram doctor"] {
        assert!(error.message().contains(words), "{what}: {error}");
    }
    refused(&pool, &realm);
    // What a view shows is there as long as the view.
    assert_eq!(check(&view), (1, 1), "{what}");
}

/// What is done by the pool's path is done to no other pool that lies there now.
#[test]
fn nothing_is_done_to_a_pool_that_has_taken_the_place_of_this_one() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = &dir.path().join("pool");
    let (pool, _realm) = create(path);
    let own = pool.namespace("default").unwrap();
    for replaced in [false, true] {
        if replaced {
            drop(create(path));
        } else {
            std::fs::rename(path, dir.path().join("elsewhere")).unwrap();
        }
        let gone = Some(Kind::PoolGone);
        assert_eq!(kind(engram::backup(&pool, &dir.path().join("copy"), false)), gone);
        assert_eq!(kind(pool.add_device(dir.path(), false)), gone);
        assert_eq!(kind(pool.create_namespace("new", 0o700, None, None)), gone);
        assert_eq!(kind(own.set_posix_mode(0o755)), gone);
        assert!(!dir.path().join("copy").exists());
    }
}

#[test]
fn a_child_of_a_process_whose_pool_was_removed_is_told_so() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = &dir.path().join("pool");
    let (_pool, realm) = create(path);
    std::fs::remove_dir_all(path).unwrap();
    let child = fork(|_| {
        assert_eq!(kind(put_new(&realm, "after", &[0; 8])), Some(Kind::PoolGone));
        assert_eq!(kind(realm.lookup(realm.root(), "before")), Some(Kind::PoolGone));
    });
    child.finish();
}

#[test]
fn a_batch_whose_files_were_removed_is_refused_as_a_whole() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = &dir.path().join("pool");
    let (pool, realm) = create(path);
    let batch = realm.batch().unwrap();
    put(&realm, "in it", &filled(2, 2, 64));
    std::fs::remove_dir_all(path).unwrap();
    std::thread::sleep(A_WHILE);
    assert_eq!(kind(batch.commit()), Some(Kind::PoolGone));
    refused(&pool, &realm);
}

#[test]
fn closing_says_that_the_files_were_removed_a_moment_ago() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = &dir.path().join("pool");
    let (pool, realm) = create(path);
    put(&realm, "just now", &filled(2, 2, 64));
    std::fs::remove_dir_all(path).unwrap();
    assert_eq!(kind(pool.try_close()), Some(Kind::PoolGone));
    assert!(!pool.is_open());
    // A pool of that name is another, for this process too.
    let (pool, realm) = create(path);
    assert_eq!(lookup(&realm, "just now"), None);
    pool.try_close().unwrap();
    sound(path);
}

#[test]
fn a_pool_that_another_took_the_place_of_is_gone_for_those_who_had_it() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let (pool, realm) = create(&path);
    let other = fork(|_| {
        pool.close();
        std::fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        let (new, _) = create(&path);
        new.close();
    });
    other.finish();
    std::thread::sleep(A_WHILE);
    refused(&pool, &realm);
    // Nothing is lost of it, which is why a process that only closes it is not told.
    let (_pool, realm) = attach(&dir.path().join("elsewhere"), Mode::ReadWrite);
    assert_eq!(read(&realm, "before"), filled(1, 1, WORDS));
}

#[test]
fn a_pool_whose_folder_was_renamed_is_written_to_still() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, elsewhere) = (dir.path().join("pool"), dir.path().join("elsewhere"));
    let (pool, realm) = create(&path);
    std::fs::rename(&path, &elsewhere).unwrap();
    std::thread::sleep(A_WHILE);
    put(&realm, "small", &filled(3, 3, 8));
    pool.try_close().unwrap();
    let (_pool, realm) = attach(&elsewhere, Mode::Read);
    assert_eq!(read(&realm, "small"), filled(3, 3, 8));
}

/// Nothing is lost of a pool that goes by another name, whatever lies at its path now.
#[test]
fn closing_a_pool_that_was_renamed_and_replaced_loses_nothing_and_says_nothing() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, elsewhere) = (dir.path().join("pool"), dir.path().join("elsewhere"));
    let (pool, realm) = create(&path);
    std::fs::rename(&path, &elsewhere).unwrap();
    // It has no spans.
    let options = CreateOptions { size: 8 << 20, ..CreateOptions::default() };
    Pool::create(&path, &options).unwrap().close();
    drop(realm);
    pool.try_close().unwrap();
    let (_pool, realm) = attach(&elsewhere, Mode::Read);
    assert_eq!(read(&realm, "before"), filled(1, 1, WORDS));
}
