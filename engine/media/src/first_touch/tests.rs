//! Bytes are the same in any way, and each unit is new once.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proptest::prelude::*;

use super::*;
use crate::map::AddressRange;
use crate::memory::Memory;

const MIB: u64 = 1 << 20;
/// Held by a test that counts what the process keeps, or relies on its keeping a file.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file in memory, all of which is allocated.
fn file_of(len: u64) -> File {
    let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.write_all(&vec![0; len as usize]).unwrap();
    file
}

fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (state >> 33) as u8
    };
    (0..len).map(next).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn values_are_in_the_file_and_in_memory_wherever_they_are_stored(
        stores in prop::collection::vec(
            (0..14 * MIB, 1..6 * MIB as usize, any::<u64>(), 0..3_usize), 1..12),
    ) {
        // Files that values come from: of the same filesystem, and of another one.
        let sources = [file_of(7 * MIB), tempfile::tempfile().unwrap()];
        // Two files, the second from its second MiB on.
        let files = [file_of(8 * MIB), file_of(8 * MIB)];
        let range = Arc::new(AddressRange::reserve(16 * MIB, 16 * MIB).unwrap());
        range.attach(0, 8 * MIB, &files[0], 0, true).unwrap();
        range.attach(8 * MIB, 6 * MIB, &files[1], 2 * MIB, true).unwrap();
        let memory = Memory::new(&range, 0, 14 * MIB);
        let mut model = vec![0; 14 * MIB as usize];
        for (at, len, seed, kind) in stores {
            let len = len.min((14 * MIB - at) as usize);
            let data = bytes_of(seed, len);
            if let Some(file) = sources.get(kind) {
                let place = seed % MIB;
                file.write_all_at(&data, place).unwrap();
                prop_assert_eq!(memory.read_from(at, file.as_fd(), place, len).unwrap(), len);
            } else {
                memory.write_at(at, &data);
            }
            model[at as usize..at as usize + len].copy_from_slice(&data);
        }
        prop_assert!(memory.read(model.len()) == model);
        let mut held = vec![0; model.len()];
        let (first, second) = held.split_at_mut(8 * MIB as usize);
        files[0].read_exact_at(first, 0).unwrap();
        files[1].read_exact_at(second, 2 * MIB).unwrap();
        prop_assert!(held == model);
    }
}

#[test]
fn a_file_that_ends_gives_what_it_has_and_one_that_cannot_be_read_is_told_of() {
    let _alone = alone();
    let range = Arc::new(AddressRange::reserve(16 * MIB, 16 * MIB).unwrap());
    range.attach(0, 16 * MIB, &file_of(16 * MIB), 0, true).unwrap();
    let memory = Memory::new(&range, 0, 16 * MIB);
    let data = bytes_of(23, 5 * MIB as usize + 7);
    for (at, folder) in [(5, "/dev/shm"), (6 * MIB + 5, "/tmp")] {
        let mut file = tempfile::tempfile_in(folder).unwrap();
        file.write_all(&data).unwrap();
        // To new pages, and to those that the process has come to.
        for _ in 0..2 {
            let read = memory.read_from(at, file.as_fd(), 3, 6 * MIB as usize).unwrap();
            assert_eq!(read, data.len() - 3);
            assert_eq!(memory.read_from(at, file.as_fd(), 6 * MIB, MIB as usize).unwrap(), 0);
        }
        let mut held = vec![0; data.len() - 3];
        memory.copy_out(at, &mut held);
        assert!(held == data[3..]);
    }
    let unreadable = File::options().write(true).open("/dev/null").unwrap();
    for len in [PAGE, 2 * MIB] {
        let refused = memory.read_from(0, unreadable.as_fd(), 0, len as usize).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    }
}

#[test]
fn bytes_of_a_file_are_filled_in_as_those_in_memory() {
    let _alone = alone();
    let data = bytes_of(29, 3 * MIB as usize);
    let from = file_of(4 * MIB);
    from.write_all_at(&data, 9).unwrap();
    let file = file_of(8 * MIB);
    let kept = FirstTouch::keep(&file, 0, 0..8 * MIB).unwrap();
    let range = AddressRange::reserve(8 * MIB, 8 * MIB).unwrap();
    range.attach(0, 8 * MIB, &file, 0, true).unwrap();
    for (way, at) in [(FillBy::Call, 5), (FillBy::Populated, 4 * MIB + 5)] {
        // SAFETY: the range is attached for writing, and this thread has it alone.
        let filled = unsafe {
            let to = range.base().add(at as usize);
            kept.fill(way, at, to, Incoming::File(from.as_fd(), 9), data.len())
        };
        assert_eq!(filled.unwrap(), data.len());
        let mut held = vec![0; data.len()];
        file.read_exact_at(&mut held, at).unwrap();
        assert!(held == data, "{way:?}");
    }
    // A call that was always refused would fill nothing.
    // SAFETY: the descriptor is open.
    let written = unsafe { kept.write(MIB, Incoming::File(from.as_fd(), 9), MIB as usize) };
    assert!(written > 0);
}

#[test]
fn each_unit_is_come_to_once() {
    let _alone = alone();
    let file = file_of(8 * MIB);
    let kept = FirstTouch::keep(&file, 0, 0..8 * MIB).unwrap();
    let run = |at: u64, most: u64| (kept.is_untouched(at), kept.run(at, most));
    assert_eq!(run(MIB + 5, 2 * MIB), (true, 2 * MIB));
    assert_eq!(run(MIB + 5, 2 * MIB), (false, 2 * MIB));
    // Up to what was come to; that; and beyond it.
    assert_eq!(run(0, 8 * MIB), (true, MIB));
    assert_eq!(run(MIB, 7 * MIB), (false, 2 * MIB + UNIT));
    assert_eq!(run(3 * MIB + UNIT, PIECE), (true, PIECE));
    assert_eq!(run(0, 8 * MIB), (false, 7 * MIB + UNIT));
}

#[test]
fn pages_that_take_no_faults_are_written_through_memory() {
    let _alone = alone();
    let file = file_of(8 * MIB);
    let range = AddressRange::reserve(8 * MIB, 8 * MIB).unwrap();
    range.attach(0, 8 * MIB, &file, 0, true).unwrap();
    range.prefault(0, 4 * MIB).unwrap();
    assert!(!range.is_new(0, 2 * MIB as usize));
    assert!(!range.is_new(4 * MIB, PAGE as usize), "too little to tell");
    // Each page takes a fault; that was a sample, whose answer holds.
    assert!(range.is_new(4 * MIB, 2 * MIB as usize));
    assert!(range.is_new(4 * MIB, 2 * MIB as usize));
    // SAFETY: the range is attached for writing, and this thread has it alone.
    unsafe {
        let data = bytes_of(3, 2 * MIB as usize);
        range.store(4 * MIB, Incoming::Memory(data.as_ptr()), data.len()).unwrap();
        assert!(!range.is_new(4 * MIB, 2 * MIB as usize), "it has been come to");
    }
}

#[test]
fn a_long_store_where_all_was_come_to_is_one_run() {
    let _alone = alone();
    let file = file_of(16 * MIB);
    let kept = FirstTouch::keep(&file, 0, 0..16 * MIB).unwrap();
    let range = AddressRange::reserve(16 * MIB, 16 * MIB).unwrap();
    range.attach(0, 16 * MIB, &file, 0, true).unwrap();
    let data = bytes_of(17, 9 * MIB as usize);
    for _ in 0..2 {
        // SAFETY: the range is attached for writing, and this thread has it alone.
        let stored = unsafe {
            let from = Incoming::Memory(data.as_ptr());
            kept.store(2 * MIB, range.base().add(2 * MIB as usize), from, data.len())
        };
        assert_eq!(stored.unwrap(), data.len());
    }
    assert!(!kept.is_untouched(2 * MIB) && !kept.is_untouched(10 * MIB));
    assert_eq!(kept.run(2 * MIB, 9 * MIB), 9 * MIB);
}

#[test]
fn a_call_maps_no_page_and_populated_pages_are_mapped() {
    let file = file_of(8 * MIB);
    let _alone = alone();
    let kept = FirstTouch::keep(&file, 0, 0..8 * MIB).unwrap();
    let range = AddressRange::reserve(8 * MIB, 8 * MIB).unwrap();
    range.attach(0, 8 * MIB, &file, 0, true).unwrap();
    let data = bytes_of(11, 2 * MIB as usize);
    let faults = |at: usize| {
        let before = faults_so_far();
        // SAFETY: the range is attached for writing, and this thread has it alone.
        unsafe { range.base().add(at).write_volatile(range.base().add(at).read_volatile()) };
        faults_so_far() - before
    };
    for (way, at) in [(FillBy::Call, MIB as usize + 5), (FillBy::Populated, 4 * MIB as usize + 5)] {
        // SAFETY: as above.
        let filled = unsafe {
            let from = Incoming::Memory(data.as_ptr());
            kept.fill(way, at as u64, range.base().add(at), from, data.len())
        };
        assert_eq!(filled.unwrap(), data.len());
        assert_eq!(faults(at + MIB as usize) > 0, way == FillBy::Call, "{way:?}");
        let mut held = vec![0; data.len()];
        file.read_exact_at(&mut held, at as u64).unwrap();
        assert!(held == data, "{way:?}");
    }
    // Populating alone, of part of a page too, maps them all.
    let at = 6 * MIB as usize + 4 * PAGE as usize + 5;
    // SAFETY: as above.
    match unsafe { populate(range.base().add(at), 3 * PAGE as usize) } {
        Ok(()) => assert_eq!(faults(at) + faults(at + 3 * PAGE as usize), 0),
        // A kernel before Linux 5.14 has no such advice.
        Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EINVAL), "{e}"),
    }
}

#[test]
fn the_quicker_way_is_taken_and_the_other_one_tried_now_and_then() {
    let times = FillTimes::new();
    let pieces = |call: u64, populated: u64, count: u64| {
        let mut called = 0;
        for _ in 0..count {
            let way = times.choose();
            let micros = if way == FillBy::Call { call } else { populated };
            times.took(way, MIB, Duration::from_micros(micros));
            called += u64::from(way == FillBy::Call);
        }
        called
    };
    // Both are tried at once, and from then on the other one once in so many.
    let called = pieces(300, 200, 10 * TRIED_AGAIN.0);
    assert!((5..=12).contains(&called), "{called}");
    // The call becomes quick, as the other ranks have ended.
    pieces(100, 200, 20 * TRIED_AGAIN.0);
    // The slower it is, the more seldom.
    let called = pieces(100, 200, 20 * TRIED_AGAIN.0);
    assert!((305..=315).contains(&called), "{called}");
    let called = pieces(100, 9000, 20 * TRIED_AGAIN.0);
    assert!((310..=319).contains(&called), "{called}");
}

#[test]
fn a_time_that_a_stop_made_long_is_soon_forgotten() {
    let times = FillTimes::new();
    let usual = Duration::from_micros(200);
    times.took(FillBy::Call, MIB, Duration::from_micros(300));
    times.took(FillBy::Populated, MIB, Duration::MAX);
    for _ in 0..4 {
        times.took(FillBy::Populated, MIB, usual);
    }
    times.took(FillBy::Populated, MIB, Duration::MAX);
    for _ in 0..8 {
        times.took(FillBy::Populated, MIB, usual);
    }
    assert_eq!(times.choose(), FillBy::Populated);
    // The smallest time is one, too.
    times.took(FillBy::Call, u64::MAX, Duration::ZERO);
    assert!(times.call.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_file_that_refuses_is_written_through_memory() {
    let _alone = alone();
    let file = file_of(8 * MIB);
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    let only_read = File::open(format!("/proc/self/fd/{number}")).unwrap();
    let kept = FirstTouch::keep(&only_read, 0, 0..8 * MIB).unwrap();
    let range = AddressRange::reserve(8 * MIB, 8 * MIB).unwrap();
    range.attach(0, 8 * MIB, &file, 0, true).unwrap();
    let data = bytes_of(7, 2 * MIB as usize);
    // SAFETY: the range is attached for writing, and the vector is another place.
    unsafe {
        let from = Incoming::Memory(data.as_ptr());
        assert_eq!(kept.write(0, from, data.len()), 0);
        kept.fill(FillBy::Call, 0, range.base(), from, data.len()).unwrap();
    }
    let mut held = vec![0; data.len()];
    file.read_exact_at(&mut held, 0).unwrap();
    assert!(held == data);
}

#[test]
fn beyond_what_a_process_may_write_to_files_memory_serves() {
    let _alone = alone();
    let file = file_of(8 * MIB);
    let from = file_of(4 * MIB);
    from.write_all_at(&bytes_of(5, 4 * MIB as usize), 0).unwrap();
    // SAFETY: the child leaves by `_exit`, whatever happens; glibc's allocator survives the fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let limit = libc::rlimit { rlim_cur: 2 * MIB, rlim_max: 2 * MIB };
        let range = AddressRange::reserve(8 * MIB, 8 * MIB);
        let stored = range.is_ok_and(|range| {
            let attached = range.attach(0, 8 * MIB, &file, 0, true).is_ok();
            // SAFETY: a limit of this process, which is about to end.
            let limited = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } == 0;
            let data = bytes_of(5, 4 * MIB as usize);
            // So a call would be made.
            TIMES.took(FillBy::Populated, MIB, Duration::from_secs(9));
            // SAFETY: the range is attached for writing, and the vector is another place.
            let stored = unsafe { range.store(MIB, Incoming::Memory(data.as_ptr()), data.len()) };
            FILE_TIMES.took(FillBy::Populated, MIB, Duration::from_secs(9));
            let memory = Memory::new(&Arc::new(range), 0, 8 * MIB);
            let read = memory.read_from(5 * MIB, from.as_fd(), 0, 2 * MIB as usize);
            attached && limited && stored.is_ok() && read.is_ok()
        });
        // SAFETY: always sound.
        unsafe { libc::_exit(i32::from(!stored)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child; `status` is a valid place.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "it was killed, or could not store");
    let mut held = vec![0; 4 * MIB as usize];
    file.read_exact_at(&mut held, MIB).unwrap();
    assert!(held == bytes_of(5, 4 * MIB as usize));
    file.read_exact_at(&mut held[..2 * MIB as usize], 5 * MIB).unwrap();
    assert!(held[..2 * MIB as usize] == bytes_of(5, 2 * MIB as usize));
}

#[test]
fn small_files_and_too_many_are_not_kept_and_a_range_lets_go_of_its() {
    let _alone = alone();
    let small = file_of(FILE_LEAST / 2);
    assert!(FirstTouch::keep(&small, 0, 0..FILE_LEAST / 2).is_none());
    let file = file_of(FILE_LEAST);
    let many: Vec<_> =
        (0..FILES_MOST + 9).filter_map(|_| FirstTouch::keep(&file, 0, 0..FILE_LEAST)).collect();
    assert!(many.len() <= FILES_MOST as usize);
    assert!(FirstTouch::keep(&file, 0, 0..FILE_LEAST).is_none());
    drop(many);
    let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let range = Arc::new(AddressRange::reserve(FILE_LEAST, FILE_LEAST).unwrap());
    range.attach(0, FILE_LEAST, &file, 0, true).unwrap();
    // The same piece once more takes the place of the first.
    range.attach(0, FILE_LEAST, &file, 0, true).unwrap();
    assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count(), before + 1);
    AddressRange::release(&range);
    assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count(), before);
}
