//! Spans: every byte is there before anybody maps it, or there is an error and no file.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::filesystem::{FsKind, Mount};
use crate::map::AddressRange;
use crate::testing::Tmpfs;

const MIB: u64 = 1 << 20;

fn disk() -> Mount {
    Mount { kind: FsKind::Other, name: "whatever".to_owned(), durable: true }
}

fn tmpfs() -> Mount {
    Mount { kind: FsKind::Tmpfs, name: "tmpfs".to_owned(), durable: false }
}

/// A directory on /dev/shm, or nothing where that is no tmpfs.
fn shm(test: &str) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in("/dev/shm").ok();
    let dir = dir.filter(|d| Medium::of(&File::open(d.path()).unwrap()).unwrap() == Medium::Memory);
    if dir.is_none() {
        println!("{test} is skipped: /dev/shm is no tmpfs that this user can write");
    }
    dir
}

fn names(dir: &Path) -> Vec<String> {
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    fs::read_dir(dir).unwrap().map(name).collect()
}

fn check_new(file: &File, len: u64, mode: u32) {
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), len);
    assert!(meta.blocks() * 512 >= len, "{} blocks for {len} bytes", meta.blocks());
    assert_eq!(meta.permissions().mode() & 0o7777, mode);
}

#[test]
fn a_new_span_has_every_block_and_exactly_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    for (n, mode) in [0o600, 0o660, 0o666].into_iter().enumerate() {
        let file = create(&dir.path().join(format!("span-{n}")), 2 * MIB, mode, &disk()).unwrap();
        check_new(&file, 2 * MIB, mode);
    }
}

#[test]
fn a_new_span_in_memory_takes_its_own_length_and_no_more() {
    let Some(dir) = shm("a_new_span_in_memory_takes_its_own_length") else { return };
    // Multiples of huge pages, and lengths that are not.
    for (n, len) in [4096, 2 * MIB, 6 * MIB, 7 * MIB + 4096, 2 * MIB - 4096].iter().enumerate() {
        let file = create(&dir.path().join(format!("span-{n}")), *len, 0o600, &tmpfs()).unwrap();
        check_new(&file, *len, 0o600);
        assert_eq!(file.metadata().unwrap().blocks() * 512, *len);
        let range = AddressRange::reserve(*len, *len).unwrap();
        range.attach(0, *len, &file, 0, true).unwrap();
        // SAFETY: `len` bytes are attached, and nobody writes them.
        let bytes = unsafe { std::slice::from_raw_parts(range.base(), *len as usize) };
        assert!(bytes.iter().all(|&b| b == 0), "a new span of {len} bytes is not zero");
    }
}

#[test]
fn a_span_never_takes_over_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("span-0");
    fs::write(&path, b"mine").unwrap();
    assert_eq!(create(&path, MIB, 0o600, &disk()).unwrap_err().kind(), Kind::Exists);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    let link = dir.path().join("span-1");
    symlink(dir.path().join("nowhere"), &link).unwrap();
    assert_eq!(create(&link, MIB, 0o600, &disk()).unwrap_err().kind(), Kind::Exists);
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn a_span_has_bytes_and_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("span-0");
    assert_eq!(create(&path, 0, 0o600, &disk()).unwrap_err().kind(), Kind::Argument);
    assert_eq!(create(&path, u64::MAX, 0o600, &disk()).unwrap_err().kind(), Kind::Argument);
    assert_eq!(open(&path, 0, true, &[]).unwrap_err().kind(), Kind::Argument);
    assert_eq!(open(&path, MIB, true, &[]).unwrap_err().kind(), Kind::NotFound);
    let missing = dir.path().join("no/span-0");
    assert_eq!(create(&missing, MIB, 0o600, &disk()).unwrap_err().kind(), Kind::NotFound);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn open_refuses_what_is_not_the_span_that_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    drop(create(&at("good"), MIB, 0o600, &disk()).unwrap());
    assert_eq!(open(&at("good"), MIB, true, &[]).unwrap().metadata().unwrap().len(), MIB);
    open(&at("good"), MIB, false, &[]).unwrap();

    File::create(at("short")).unwrap().set_len(MIB - 1).unwrap();
    File::create(at("long")).unwrap().set_len(MIB + 1).unwrap();
    fs::create_dir(at("directory")).unwrap();
    symlink(at("good"), at("link")).unwrap();
    let fifo = std::ffi::CString::new(at("fifo").to_str().unwrap()).unwrap();
    // SAFETY: the name ends in NUL.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    for name in ["short", "long", "directory", "link", "fifo"] {
        for writable in [false, true] {
            let error = open(&at(name), MIB, writable, &[]).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{name}: {error}");
            assert!(error.message().contains(name), "{error}");
        }
    }
}

#[test]
fn open_for_writing_allocates_what_a_sparse_copy_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("span-0");
    File::create(&path).unwrap().set_len(4 * MIB).unwrap();
    assert_eq!(open(&path, 4 * MIB, false, &[]).unwrap().metadata().unwrap().blocks(), 0);
    let blocks = open(&path, 4 * MIB, true, &[]).unwrap().metadata().unwrap().blocks();
    assert!(blocks * 512 >= 4 * MIB, "{blocks}");
}

#[test]
fn a_full_tmpfs_refuses_and_keeps_nothing_of_it() {
    for huge in ["never", "advise", "within_size", "always"] {
        let options = format!("size=16m,huge={huge}");
        let Some(mount) = Tmpfs::mount("a_full_tmpfs_refuses", &options) else { return };
        let at = |name: &str| mount.path().join(name);
        let first = create(&at("span-0"), 10 * MIB, 0o600, &tmpfs()).unwrap();
        let error = create(&at("span-1"), 8 * MIB, 0o600, &tmpfs()).unwrap_err();
        assert_eq!(error.kind(), Kind::PoolFull, "huge={huge}: {error}");
        assert!(error.message().contains("needs 8 MiB"), "{error}");
        assert_eq!(names(mount.path()), ["span-0"], "huge={huge}");
        check_new(&first, 10 * MIB, 0o600);
        // The space that the refused one took is free again: all of it can be had.
        drop(create(&at("span-2"), 6 * MIB, 0o600, &tmpfs()).unwrap());
        assert_eq!(create(&at("x"), 4096, 0o600, &tmpfs()).unwrap_err().kind(), Kind::PoolFull);
        // And deleting makes room.
        fs::remove_file(at("span-2")).unwrap();
        drop(create(&at("span-1"), 6 * MIB, 0o600, &tmpfs()).unwrap());
    }
}

#[test]
fn every_byte_of_a_span_can_be_written_on_a_full_tmpfs() {
    let name = "every_byte_of_a_span_can_be_written";
    let Some(mount) = Tmpfs::mount(name, "size=12m") else { return };
    let len = 9 * MIB;
    let file = create(&mount.path().join("span-0"), len, 0o600, &tmpfs()).unwrap();
    // Another user of the mount takes all the rest.
    let other = File::create(mount.path().join("other")).unwrap();
    while fallocate(&other, other.metadata().unwrap().len(), 4096).is_ok() {}
    let range = AddressRange::reserve(len, len).unwrap();
    range.attach(0, len, &file, 0, true).unwrap();
    range.prefault(0, len).unwrap();
    // SAFETY: `len` bytes are attached for writing; a page without a block would be a SIGBUS.
    unsafe { range.base().write_bytes(7, len as usize) };
}

#[test]
fn signals_slow_an_allocation_down_and_never_stop_it() {
    // A kernel that is interrupted in every call of more than 100 KiB, and in every third other.
    let (mut calls, mut covered) = (0, 0);
    let kernel = |offset: u64, len: u64| {
        calls += 1;
        assert_eq!(offset, covered, "a gap, or the same twice");
        if len > 100 << 10 || calls % 3 == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        covered += len;
        Ok(())
    };
    in_steps(10 * MIB + 1, STEP, kernel).unwrap();
    assert_eq!(covered, 10 * MIB + 1);
    assert!(calls < 500, "{calls} calls");
    let full = |_, _| Err(io::Error::from_raw_os_error(libc::ENOSPC));
    assert_eq!(in_steps(MIB, STEP, full).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
}

#[test]
fn new_spans_in_memory_have_huge_pages_where_the_kernel_makes_them() {
    let Some(dir) = shm("new_spans_in_memory_have_huge_pages") else { return };
    let new = |name| {
        let mut options = File::options();
        options.read(true).write(true).create_new(true).open(dir.path().join(name)).unwrap()
    };
    let probe = new("probe");
    fallocate(&probe, 0, PAGE).unwrap();
    probe.set_len(HUGE).unwrap();
    if let Err(e) = collapse(&probe, 0, HUGE) {
        println!("new_spans_in_memory_have_huge_pages is skipped: the kernel makes none: {e}");
        return;
    }
    let (file, len) = (new("span-0"), 8 * MIB);
    assert_eq!(make_huge(&file, len), len);
    let range = AddressRange::reserve(len, len).unwrap();
    range.attach(0, len, &file, 0, true).unwrap();
    range.prefault(0, len).unwrap();
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", range.base() as usize);
    let rows = maps.lines().skip_while(|line| !line.starts_with(&start));
    let row = rows.into_iter().find(|line| line.starts_with("ShmemPmdMapped:")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("8192"), "{row}");
}

#[test]
fn huge_pages_are_made_as_long_as_they_come_quickly() {
    const FIRST: u64 = HUGE_STEPS.0;
    let (quick, slow) = (Duration::from_millis(1), Duration::from_millis(60));
    let first = |patient| Pace { step: FIRST, slow: 0, patient };
    let mut pace = first(false);
    assert!(pace.goes_on(FIRST, quick) && pace.goes_on(2 * FIRST, quick));
    assert_eq!(pace.step, 4 * FIRST);
    // One may be slow by chance; it makes the next one short.
    assert!(pace.goes_on(FIRST, slow) && pace.step == FIRST);
    assert!(pace.goes_on(FIRST, quick));
    assert!(pace.goes_on(FIRST, slow) && !pace.goes_on(FIRST, slow));
    assert!(Pace::quick(Some((pace.slow, Instant::now()))).is_none(), "not again at once");
    assert!(Pace::quick(Some((1, Instant::now()))).is_some_and(|pace| pace.slow == 1));
    assert!(Pace::quick(None).is_some_and(|pace| pace.step == FIRST));
    let mut pace = first(true);
    assert!((0..9).all(|_| pace.goes_on(FIRST, slow)));
}

#[test]
fn zeros_are_written_over_all_of_a_file_and_no_further() {
    let file = tempfile::tempfile().unwrap();
    for len in [1, HUGE - 1, HUGE, 2 * HUGE + 4096] {
        let had = vec![7; (len + 10) as usize];
        file.write_all_at(&had, 0).unwrap();
        write_zeros(&file, len).unwrap();
        let mut now = had;
        file.read_exact_at(&mut now, 0).unwrap();
        assert!(now[..len as usize].iter().all(|&byte| byte == 0), "{len}");
        assert_eq!(now[len as usize..], [7; 10], "{len}");
    }
}

#[test]
fn what_was_punched_gets_blocks_again_when_they_are_asked_for_and_not_by_opening() {
    let test = "what_was_punched_gets_blocks_again_when_they_are_asked_for_and_not_by_opening";
    let Some(dir) = shm(test) else { return };
    let path = dir.path().join("span-0");
    let file = create(&path, 4 * HUGE, 0o600, &tmpfs()).unwrap();
    let blocks = || file.metadata().unwrap().blocks() * 512;
    file.write_all_at(&[7; 16], HUGE).unwrap();
    let hole = FilePart { offset: HUGE, len: 2 * HUGE };
    punch(&file, hole).unwrap();
    assert_eq!(blocks(), 2 * HUGE);
    drop(open(&path, 4 * HUGE, true, &[hole]).unwrap());
    assert_eq!(blocks(), 2 * HUGE);
    allocate_range(&file, &path, FilePart { len: HUGE, ..hole }).unwrap();
    assert_eq!(blocks(), 3 * HUGE);
    let mut there = [1; 16];
    file.read_exact_at(&mut there, HUGE).unwrap();
    assert_eq!(there, [0; 16]);
    // Of an earlier copy without the zeros, all else gets blocks.
    punch(&file, FilePart { offset: 0, len: 4096 }).unwrap();
    drop(open(&path, 4 * HUGE, true, &[FilePart { offset: 2 * HUGE, len: HUGE }]).unwrap());
    assert_eq!(blocks(), 3 * HUGE);
    drop(open(&path, 4 * HUGE, true, &[]).unwrap());
    assert_eq!(blocks(), 4 * HUGE);
}

/// Vacant pages that have their blocks still hide no others that lack theirs.
#[test]
fn what_is_not_vacant_gets_its_blocks_whatever_is_vacant_has() {
    let test = "what_is_not_vacant_gets_its_blocks_whatever_is_vacant_has";
    let Some(dir) = shm(test) else { return };
    let path = dir.path().join("span-0");
    let file = create(&path, 4 * HUGE, 0o600, &tmpfs()).unwrap();
    punch(&file, FilePart { offset: 2 * HUGE, len: HUGE }).unwrap();
    drop(open(&path, 4 * HUGE, true, &[FilePart { offset: HUGE, len: HUGE }]).unwrap());
    assert_eq!(file.metadata().unwrap().blocks() * 512, 4 * HUGE);
}
