//! Memory limits, read from made-up systems.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use engram_base::error::Kind;

const MIB: u64 = 1 << 20;
const V1: &str = "32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
const V2: &str = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";

/// A system's root directory with these files.
fn system(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn headroom_of(files: &[(&str, &str)]) -> Option<u64> {
    tightest(system(files).path()).map(|limit| limit.headroom())
}

#[test]
fn without_limits_there_is_no_headroom_to_tell() {
    assert_eq!(headroom_of(&[]), None);
    let unlimited = [
        ("proc/self/cgroup", "0::/a\n"),
        ("proc/self/mountinfo", V2),
        ("sys/fs/cgroup/a/memory.max", "max\n"),
        ("sys/fs/cgroup/a/memory.high", "max\n"),
        ("sys/fs/cgroup/a/memory.current", "1000\n"),
    ];
    assert_eq!(headroom_of(&unlimited), None);
    let unlimited = [
        ("proc/self/cgroup", "4:memory:/a\n"),
        ("proc/self/mountinfo", V1),
        ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000\n"),
    ];
    assert_eq!(headroom_of(&unlimited), None);
}

#[test]
fn v2_counts_clean_file_cache_as_room() {
    let files = [
        ("proc/self/cgroup", "0::/job/step\n"),
        ("proc/self/mountinfo", V2),
        ("sys/fs/cgroup/job/step/memory.max", "1000000\n"),
        ("sys/fs/cgroup/job/step/memory.current", "900000\n"),
        (
            "sys/fs/cgroup/job/step/memory.stat",
            "anon 1\nfile 700000\nshmem 500000\nfile_dirty 3000\nfile_writeback 2000\n\
             inactive_file 150000\nactive_file 50000\nunevictable 0\n",
        ),
    ];
    assert_eq!(headroom_of(&files), Some(1_000_000 - (900_000 - 195_000)));
}

#[test]
fn the_tightest_of_all_ancestors_and_of_high_and_max_counts() {
    let mut files = vec![
        ("proc/self/cgroup", "0::/a/b\n"),
        ("proc/self/mountinfo", V2),
        ("sys/fs/cgroup/a/b/memory.max", "5000\n"),
        ("sys/fs/cgroup/a/b/memory.current", "1000\n"),
        ("sys/fs/cgroup/a/memory.max", "6000\n"),
        ("sys/fs/cgroup/a/memory.current", "4500\n"),
    ];
    assert_eq!(headroom_of(&files), Some(1500));
    files.push(("sys/fs/cgroup/a/memory.high", "5000\n"));
    assert_eq!(headroom_of(&files), Some(500));
    // The top of a container's own mount has files as well.
    files.push(("sys/fs/cgroup/memory.max", "4600\n"));
    files.push(("sys/fs/cgroup/memory.current", "4500\n"));
    assert_eq!(headroom_of(&files), Some(100));
    files.push(("sys/fs/cgroup/memory.current", "9999\n"));
    assert_eq!(headroom_of(&files), Some(0));
}

#[test]
fn v1_beside_an_empty_v2_reads_the_totals() {
    let hybrid = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    let files = [
        ("proc/self/cgroup", "5:devices:/\n4:cpu,memory:/jobs/17\n0::/x\n"),
        ("proc/self/mountinfo", &format!("{hybrid}{V1}")),
        ("sys/fs/cgroup/memory/jobs/17/memory.limit_in_bytes", "4096000\n"),
        ("sys/fs/cgroup/memory/jobs/17/memory.usage_in_bytes", "3000000\n"),
        (
            "sys/fs/cgroup/memory/jobs/17/memory.stat",
            "active_file 1\ntotal_active_file 20\ntotal_inactive_file 300\ntotal_dirty 5\n",
        ),
    ];
    assert_eq!(headroom_of(&files), Some(1_096_000 + 315));
}

#[test]
fn a_container_sees_its_own_cgroup_at_the_mount() {
    let limit = [
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "3000\n"),
    ];
    // Without a cgroup namespace: the host's path, and a mount of that part alone.
    let mount = "32 31 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    let with = |own: &str, mounts: &str| {
        let mut files = vec![("proc/self/cgroup", own), ("proc/self/mountinfo", mounts)];
        files.extend(limit);
        headroom_of(&files)
    };
    assert_eq!(with("4:memory:/docker/abc\n", mount), Some(4000));
    assert_eq!(with("4:memory:/docker/abc/inner\n", mount), Some(4000));
    // With one, and moved out of what it can see.
    assert_eq!(with("4:memory:/\n", V1), Some(4000));
    assert_eq!(with("4:memory:/../other\n", V1), Some(4000));
    // A path that the mount does not show at all.
    assert_eq!(with("4:memory:/elsewhere\n", mount), Some(4000));
}

#[test]
fn garbage_in_the_files_is_no_limit() {
    for text in ["", "x", "-1", "99999999999999999999999", "\0\0", "12 13"] {
        let files = [
            ("proc/self/cgroup", "0::/a\n:::\n\n7\n"),
            ("proc/self/mountinfo", &format!("garbage\n - \n{V2}")),
            ("sys/fs/cgroup/a/memory.max", text),
            ("sys/fs/cgroup/a/memory.current", text),
            ("sys/fs/cgroup/a/memory.stat", text),
        ];
        assert_eq!(headroom_of(&files), None, "{text:?}");
    }
}

#[test]
fn beyond_the_limit_is_pool_full_with_the_numbers_and_the_remedy() {
    let root = system(&[
        ("proc/self/cgroup", "0::/job\n"),
        ("proc/self/mountinfo", V2),
        ("sys/fs/cgroup/job/memory.max", "104857600\n"),
        ("sys/fs/cgroup/job/memory.current", "52428800\n"),
    ]);
    admit_under(root.path(), 49 * MIB, "the test").unwrap();
    let error = admit_under(root.path(), 50 * MIB, "the test").unwrap_err();
    assert_eq!(error.kind(), Kind::PoolFull);
    let named = "the memory cgroup's limit";
    for part in
        ["the test", named, "has 50 MiB left (limit 100 MiB", "job/memory.max", "raise the limit"]
    {
        assert!(error.message().contains(part), "{error}");
    }
    assert_eq!(admit_under(root.path(), u64::MAX, "x").unwrap_err().kind(), Kind::PoolFull);
}

#[test]
fn the_machine_is_a_limit_too() {
    let root = system(&[(
        "proc/meminfo",
        "MemTotal: 2097152 kB\nMemFree: 1 kB\nMemAvailable: 1048576 kB\nSwapTotal: 0 kB\n",
    )]);
    admit_under(root.path(), 1000 * MIB, "x").unwrap();
    let error = admit_under(root.path(), 1024 * MIB, "x").unwrap_err();
    assert_eq!(error.kind(), Kind::PoolFull);
    let named = "this machine's memory";
    assert!(error.message().contains("meminfo") && error.message().contains(named), "{error}");
}

#[test]
fn this_machine_can_be_asked() {
    let limit = machine(Path::new("/")).unwrap();
    assert!(limit.bytes > 0 && limit.used < limit.bytes);
    // The machine is one of the limits; a cgroup is another, if there is one.
    let limits = limits();
    assert!(limits.len() <= 2 && limits.iter().any(|known| known.bytes == limit.bytes));
    assert!(limits.iter().all(|limit| limit.headroom() < UNLIMITED));
}
