//! Ranges: they stay where they are, and what is attached is there.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::memory::Memory;
use crate::persist::watched;

const MIB: u64 = 1 << 20;

/// A file of `len` allocated bytes, each `byte`.
fn file_of(len: u64, byte: u8) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![byte; len as usize]).unwrap();
    file
}

fn byte_at(range: &AddressRange, offset: u64) -> u8 {
    assert!(offset < range.attached());
    // SAFETY: the offset is attached, and tests write through the file or by one thread.
    unsafe { range.base().add(offset as usize).read_volatile() }
}

#[test]
fn a_range_stays_put_while_spans_are_appended() {
    let range = AddressRange::reserve(1 << 40, 1 << 30).unwrap();
    assert_eq!(range.reserved(), 1 << 40);
    assert_eq!(range.base() as u64 % HUGE, 0);
    let base = range.base();
    for n in 0..5_u8 {
        range.attach(u64::from(n) * 2 * MIB, 2 * MIB, &file_of(2 * MIB, n + 1), 0, true).unwrap();
        assert_eq!(range.attached(), u64::from(n + 1) * 2 * MIB);
        assert_eq!(range.base(), base);
        for m in 0..=n {
            assert_eq!(byte_at(&range, u64::from(m) * 2 * MIB + 12_345), m + 1);
        }
    }
}

#[test]
fn what_is_written_is_in_the_file_and_in_every_other_mapping() {
    let mut file = file_of(2 * MIB, 0);
    let (one, two) =
        (AddressRange::reserve(MIB, 0).unwrap(), AddressRange::reserve(MIB, 0).unwrap());
    one.attach(0, 2 * MIB, &file, 0, true).unwrap();
    two.attach(0, 2 * MIB, &file, 0, false).unwrap();
    // SAFETY: the byte is attached for writing.
    unsafe { one.base().add(70_000).write_volatile(42) };
    assert_eq!(byte_at(&two, 70_000), 42);
    one.flush(70_000, 1).unwrap();
    one.flush(0, 2 * MIB).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(70_000)).unwrap();
    file.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [42]);
}

#[test]
fn attaching_leaves_no_gap_and_stays_within_the_reservation() {
    let range = AddressRange::reserve(4 * MIB, 4 * MIB).unwrap();
    let file = file_of(4 * MIB, 1);
    let refused = [(0, 0), (1, 4096), (0, 5000), (4096, 4096), (8 * MIB, 4096), (u64::MAX, 1)];
    for (offset, len) in refused {
        let error = range.attach(offset, len, &file, 0, true).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{offset} {len}: {error}");
    }
    let error = range.attach(0, 6 * MIB, &file_of(6 * MIB, 0), 0, true).unwrap_err();
    assert_eq!(error.kind(), Kind::PoolFull);
    assert!(error.message().contains("open it again"), "{error}");
    let error = range.attach(0, 4 * MIB, &file_of(MIB, 0), 0, true).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "truncated: {error}");
    assert_eq!(range.attached(), 0);
    range.attach(0, 4 * MIB, &file, 0, true).unwrap();
    assert_eq!(range.attached(), 4 * MIB);
}

#[test]
fn a_piece_attached_again_for_writing_keeps_its_bytes_and_its_end() {
    let range = AddressRange::reserve(4 * MIB, 0).unwrap();
    let (first, second) = (file_of(2 * MIB, 1), file_of(2 * MIB, 2));
    range.attach(0, 2 * MIB, &first, 0, false).unwrap();
    range.attach(2 * MIB, 2 * MIB, &second, 0, false).unwrap();
    range.attach(0, 2 * MIB, &first, 0, true).unwrap();
    assert_eq!(range.attached(), 4 * MIB);
    // SAFETY: the byte is attached for writing.
    unsafe { range.base().write_volatile(9) };
    assert_eq!([byte_at(&range, 0), byte_at(&range, 1), byte_at(&range, 3 * MIB)], [9, 1, 2]);
}

#[test]
fn flush_and_prefault_refuse_what_is_not_attached() {
    let range = AddressRange::reserve(4 * MIB, 0).unwrap();
    range.attach(0, 2 * MIB, &file_of(2 * MIB, 5), 0, true).unwrap();
    for (offset, len) in [(0, 2 * MIB), (4095, 2), (2 * MIB, 0), (2 * MIB - 1, 1)] {
        range.flush(offset, len).unwrap();
        range.prefault(offset, len).unwrap();
    }
    for (offset, len) in [(0, 2 * MIB + 1), (2 * MIB, 1), (u64::MAX, 1), (1, u64::MAX)] {
        assert_eq!(range.flush(offset, len).unwrap_err().kind(), Kind::Argument);
        assert_eq!(range.prefault(offset, len).unwrap_err().kind(), Kind::Argument);
    }
    assert!((0..2 * MIB).step_by(999).all(|at| byte_at(&range, at) == 5));
}

/// A range of three attached pieces of 2 MiB that are said to be of these media.
fn range_of(media: [Medium; 3]) -> AddressRange {
    let range = AddressRange::reserve(6 * MIB, 0).unwrap();
    for n in 0..3 {
        range.attach(n * 2 * MIB, 2 * MIB, &file_of(2 * MIB, 0), 0, true).unwrap();
    }
    range.pieces.write().unwrap().clear();
    range.media.store(0, Ordering::Relaxed);
    for (n, medium) in (0..).zip(media) {
        range.note(AttachedFile { start: n * 2 * MIB, end: (n + 1) * 2 * MIB, medium });
    }
    range
}

#[test]
fn persistent_memory_is_flushed_by_its_lines() {
    let range = range_of([Medium::Dax; 3]);
    let base = range.base() as usize;
    for (offset, len) in [(0, 1), (100, 4096), (2 * MIB - 1, 2), (0, 6 * MIB)] {
        watched::take();
        range.flush(offset, len).unwrap();
        assert_eq!(watched::take(), [(base + offset as usize, len as usize)]);
    }
    range.flush(5, 0).unwrap();
    assert!(watched::take().is_empty());
}

#[test]
fn each_piece_is_flushed_as_its_own_medium_needs() {
    let range = range_of([Medium::Dax, Medium::PageCache, Medium::Dax]);
    let base = range.base() as usize;
    let lines = |offset, len| {
        watched::take();
        range.flush(offset, len).unwrap();
        let relative = |(at, len): (usize, usize)| ((at - base) as u64, len as u64);
        watched::take().into_iter().map(relative).collect::<Vec<_>>()
    };
    assert_eq!(lines(10, 20), [(10, 20)]);
    assert_eq!(lines(2 * MIB, 2 * MIB), []);
    assert_eq!(lines(2 * MIB - 7, 9), [(2 * MIB - 7, 7)]);
    assert_eq!(lines(1, 6 * MIB - 2), [(1, 2 * MIB - 1), (4 * MIB, 2 * MIB - 1)]);
    assert_eq!(range.medium(0, 2 * MIB), Ok(Some(Medium::Dax)));
    assert_eq!(range.medium(3 * MIB, 1), Ok(Some(Medium::PageCache)));
    assert_eq!(range.medium(2 * MIB - 1, 2), Ok(None));
}

#[test]
fn what_is_written_through_is_durable_where_all_of_it_is_persistent_memory() {
    let range = Arc::new(range_of([Medium::Dax, Medium::Dax, Medium::PageCache]));
    let data = vec![7; 3 * MIB as usize];
    for (offset, durable) in [(0, true), (MIB, true), (2 * MIB, false), (3 * MIB, false)] {
        let memory = Memory::new(&range, offset, 3 * MIB);
        watched::take();
        assert_eq!(memory.write_through(&data), durable, "{offset}");
        assert_eq!(watched::take().is_empty(), !durable);
        assert_eq!([byte_at(&range, offset), byte_at(&range, offset + 3 * MIB - 1)], [7, 7]);
        memory.zero(3 * MIB);
    }
}

#[test]
fn touching_instead_of_prefaulting_changes_nothing_and_loses_no_write() {
    let range = AddressRange::reserve(2 * MIB, 0).unwrap();
    range.attach(0, 2 * MIB, &file_of(2 * MIB, 0), 0, true).unwrap();
    let done = AtomicU8::new(0);
    // SAFETY: the first byte of an attached page, which all access atomically.
    let byte = unsafe { AtomicU8::from_ptr(range.base()) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while done.load(Ordering::Relaxed) == 0 {
                touch(range.base(), PAGE as usize, false);
            }
        });
        let lost = (0..1_000_000_u32).find(|round| {
            byte.store(*round as u8, Ordering::Relaxed);
            byte.load(Ordering::Relaxed) != *round as u8
        });
        done.store(1, Ordering::Relaxed);
        assert_eq!(lost, None);
    });
    touch(range.base(), 2 * MIB as usize, false);
    assert!((1..2 * MIB).step_by(999).all(|at| byte_at(&range, at) == 0));
}

#[test]
fn what_is_attached_for_reading_can_be_prefaulted() {
    let range = AddressRange::reserve(2 * MIB, 0).unwrap();
    range.attach(0, 2 * MIB, &file_of(2 * MIB, 6), 0, false).unwrap();
    range.prefault(0, 2 * MIB).unwrap();
    touch(range.base(), 2 * MIB as usize, true);
    assert_eq!(byte_at(&range, 2 * MIB - 1), 6);
}

#[test]
fn ranges_give_their_addresses_back() {
    // 47 bits of addresses hold 128 of these at once.
    for _ in 0..1000 {
        AddressRange::reserve(1 << 40, 1 << 40).unwrap();
    }
}

#[test]
fn no_address_space_at_all_is_an_error() {
    assert_eq!(AddressRange::reserve(1 << 60, 1 << 60).unwrap_err().kind(), Kind::PoolFull);
    assert_eq!(AddressRange::reserve(u64::MAX, u64::MAX).unwrap_err().kind(), Kind::PoolFull);
    assert!(AddressRange::reserve(1 << 60, 1 << 30).unwrap().reserved() >= 1 << 30);
}

#[test]
fn hundreds_of_ranges_fit_whatever_they_ask_for() {
    let ranges: Vec<_> =
        (0..400).map(|_| AddressRange::reserve(1 << 43, 4 << 30).unwrap()).collect();
    assert!(ranges[0].reserved() >= 1 << 40 && ranges[399].reserved() >= 4 << 30);
    assert_eq!(AddressRange::reserve(1 << 47, 1 << 47).unwrap_err().kind(), Kind::PoolFull);
}

/// The limit concerns a whole process, so this test runs itself again in one of its own.
#[test]
fn a_limit_on_address_space_halves_the_reservation() {
    const LIMIT: u64 = 64 << 30;
    const NAME: &str = "ENGRAM_TEST_ADDRESS_LIMIT";
    if std::env::var_os(NAME).is_some() {
        let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
        // SAFETY: the call reads `limit`; this process is the test's own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
        let range = AddressRange::reserve(1 << 40, 1 << 30).unwrap();
        assert!((LIMIT / 4..LIMIT).contains(&range.reserved()), "{}", range.reserved());
        assert_eq!(AddressRange::reserve(1 << 40, LIMIT).unwrap_err().kind(), Kind::PoolFull);
        return;
    }
    let test = "map::tests::a_limit_on_address_space_halves_the_reservation";
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", test]).env(NAME, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "no such test: {test}");
}

#[test]
fn a_mapped_file_is_all_there_and_shared() {
    let file = file_of(8192, 3);
    let (one, two) = (MappedFile::map(&file, 8192).unwrap(), MappedFile::map(&file, 1).unwrap());
    assert_eq!((one.len(), two.len()), (8192, 8192));
    // SAFETY: both mappings have 8192 bytes; one thread writes and reads.
    unsafe {
        one.as_ptr().add(8191).write_volatile(4);
        assert_eq!([two.as_ptr().read_volatile(), two.as_ptr().add(8191).read_volatile()], [3, 4]);
    }
    one.flush().unwrap();
    assert_eq!(MappedFile::map(&file, 8193).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(MappedFile::map(&file_of(0, 0), 0).unwrap_err().kind(), Kind::Corrupt);
}

proptest! {
    #[test]
    fn pages_cover_what_is_asked_and_nothing_else(offset in 0..=4 * MIB, len in 0..=4 * MIB) {
        let range = AddressRange::reserve(4 * MIB, 0).unwrap();
        range.attached.store(4 * MIB, Ordering::Relaxed);
        match range.pages(offset, len) {
            Ok((at, pages)) => {
                let first = at as u64 - range.base() as u64;
                prop_assert!(first <= offset && offset - first < PAGE);
                prop_assert_eq!((first % PAGE, pages as u64 % PAGE), (0, 0));
                if len > 0 {
                    let end = first + pages as u64;
                    prop_assert!(end >= offset + len && end - (offset + len) < PAGE);
                }
                prop_assert!(offset + len <= 4 * MIB);
            }
            Err(_) => prop_assert!(offset + len > 4 * MIB),
        }
    }
}
