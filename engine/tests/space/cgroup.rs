//! A memory cgroup's limit is named where it, and not the pool or its mount, is what is full.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Fixture, alone, filled, fork, is_root, put_new, sound};
use engram::{Error, Kind, Result, Scope};

const LIMIT: u64 = 192 << 20; // messages say "192 MiB"
/// One array of 8 MiB.
const WORDS: usize = 1 << 20;

/// A cgroup of the test's own, which goes with it.
struct Cgroup {
    folder: PathBuf,
    /// The file with its limit.
    limit: &'static str,
}

impl Cgroup {
    /// Makes one that may have so many bytes; `None` where that cannot be done here.
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("engram-test-{}", std::process::id());
        let v1 = (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes");
        for (mount, limit) in [v1, (Path::new("/sys/fs/cgroup"), "memory.max")] {
            let folder = mount.join(&name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let made = Cgroup { folder, limit };
            if fs::write(made.file(), bytes.to_string()).is_ok() {
                return Some(made);
            }
        }
        None
    }

    fn file(&self) -> PathBuf {
        self.folder.join(self.limit)
    }

    /// Has this process in it from here on.
    fn enter(&self) {
        let own = std::process::id().to_string();
        fs::write(self.folder.join("cgroup.procs"), own).expect("a process of the cgroup's");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Does something again and again until there is no room.
fn until_full(mut work: impl FnMut(u64) -> Result<()>) -> Error {
    let refused = (0..100_000).find_map(|at| work(at).err()).expect("a refusal");
    assert_eq!(refused.kind(), Kind::PoolFull, "{refused}");
    refused
}

#[test]
fn a_full_memory_cgroup_is_named() {
    let test = "a_full_memory_cgroup_is_named";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let Some(cgroup) = Cgroup::new(LIMIT) else {
            return println!("{test} is skipped: no memory cgroup can be made here");
        };
        let fixture = Fixture::new(512 << 20);
        fork(|_| {
            cgroup.enter();
            let realm = fixture.realm();
            let named = |what: &str, refused: &Error| {
                let told = refused.message();
                let file = cgroup.file().display().to_string();
                for part in [&*file, "memory cgroup's limit", "192 MiB", "raise"] {
                    assert!(told.contains(part), "{what}: {part} is not in: {told}");
                }
            };
            // So much is left for the process itself: at the very limit the kernel kills.
            let mut ballast = filled(1, 1, 3 * WORDS);
            put_new(&realm, "large", &filled(2, 1, 5 * WORDS)).unwrap();
            let value = filled(3, 1, WORDS);
            let refused = until_full(|at| put_new(&realm, &format!("a{at}"), &value).map(drop));
            named("put", &refused);
            ballast.clear();
            ballast.shrink_to_fit();
            let refused = realm.scratch(64 << 20, None).map(drop).unwrap_err();
            named("scratch", &refused);
            let all = fixture.pool.namespace("default").unwrap();
            let refused = all.transfer(all.root(), "large", &[Scope::Shared], Scope::Published);
            named("publish", &refused.unwrap_err());
            let refused = engram::backup(&fixture.pool, &fixture.dir.path().join("copy"), true);
            named("backup", &refused.unwrap_err());
            realm.delete(realm.root(), "large").expect("deleting makes room");
            put_new(&realm, "again", &value).unwrap();
        })
        .finish();
        sound(&fixture.path);
    });
}
