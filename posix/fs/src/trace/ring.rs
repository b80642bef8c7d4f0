//! The ring: a file of fixed size that several processes share, and in which the oldest lines are
//! overwritten.
//!
//! A page of the file is its header; then come blocks. A block is *given* to one thread, which puts
//! record after record into it, and takes another when it is full. Blocks are given in turn: the
//! n-th is the place `(n - 1) % blocks`, so what was in that place is gone by then. The header has
//! how many were given.
//!
//! *Invariant*: what [`lines`] shows was written as one record, and is there as it was written.
//!
//! **Giving.** Who takes a block locks the file (`flock`, on a description of its own, which is no
//! other thread's), reads the number, writes the next one, and unlocks. Killed in between, it
//! leaves a number that nobody uses, and the kernel takes its lock. A process that is stopped in
//! between keeps the others out: they wait for a second, lose lines, count them, and try again ten
//! seconds later. No program waits for ever for another because it is traced.
//!
//! **Writing.** The thread writes zeros over its block, and the block's number at its front. Until
//! then the former one's records are whole there. Then it writes each record with one call.
//! Nothing is locked: no other thread writes there.
//!
//! **Overtaking.** A thread may write so rarely that its block is given again meanwhile. So it
//! looks at the header's number before each record, and takes another block once half of all were
//! given after its own. If it is stopped just then for as long as the others need for the other
//! half, it writes into a block that is somebody else's by now.
//!
//! **Reading.** A record has its length, and a sum (CRC-32) over its text, its place in the block,
//! and the block's number. So a record of which a part was overwritten, or was never written, is
//! none; nor is one of the block that had the place before. Behind a place that is no record the
//! reader looks on at the next one: what was not overwritten in a block is shown.
//!
//! | bytes of the header | |
//! |---|---|
//! | 0..16 | `engram ring 1\n` and two zeros |
//! | 16..24 | how many blocks were given |
//! | 24..28, 28..32 | bytes of a block, blocks |
//!
//! | bytes of a block | |
//! |---|---|
//! | 0..8 | its number, from 1 on |
//! | 8..12 | the sum of these |
//! | 16.. | records, each at a multiple of 8: length (4), sum (4), lines with their ends |
//!
//! All numbers are little-endian. Calls alone are used, and no mapping: a program that is traced
//! must not end by a signal because somebody cut its trace.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::errno::{Errno, Result, refuse};

/// What a ring begins with.
pub(super) const MAGIC: &[u8; 16] = b"engram ring 1\n\0\0";
const HEADER: u64 = 4096;
const GIVEN_AT: u64 = 16;
const BLOCK: usize = 16 << 10;
const FIRST: usize = 16;
const RECORD_HEAD: usize = 8;
/// The least, and the most, that a ring has.
const SIZES: (u64, u64) = (1 << 20, 64 << 30);
/// A ring's size, if nobody says.
pub const RING_SIZE: u64 = 16 << 20;
/// So often the lock is tried for, and so long is waited between the later ones: a second in all,
/// in which who has it gets a processor.
const TRIES: u32 = 1050;
const AT_ONCE: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);
/// So long nothing is tried after the lock could not be had.
const AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// A ring that is written to.
pub(super) struct Ring {
    file: File,
    blocks: u64,
}

/// A thread's part in a ring.
pub(super) struct Pen {
    /// A description of its own, for the lock.
    file: File,
    /// The number of its block; 0 if it has none.
    number: u64,
    /// Where the next record goes.
    at: usize,
    refused: Option<Instant>,
}

impl Ring {
    /// Opens a ring, or makes one.
    pub fn open(path: &Path, size: Option<u64>) -> Result<Ring> {
        let open = || OpenOptions::new().read(true).write(true).open(path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(path, size.unwrap_or(RING_SIZE))?;
                open()
            }
            opened => opened,
        };
        let file = file.map_err(|error| failed(path, &error))?;
        let blocks = blocks_of(&file, path)?;
        let has = HEADER + blocks * BLOCK as u64;
        if let Some(size) = size.filter(|size| blocks_for(*size) != Some(blocks)) {
            refuse!(
                EEXIST,
                "the ring {} has {has} bytes, not {size}: leave the size out, or name another file",
                path.display()
            );
        }
        Ok(Ring { file, blocks })
    }

    /// A part for the calling thread.
    pub fn pen(&self) -> io::Result<Pen> {
        // The file itself, whatever has its name by now.
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Pen { file, number: 0, at: 0, refused: None })
    }

    /// Writes lines; how many of them were lost.
    pub fn write(&self, pen: &mut Pen, text: &str) -> u64 {
        let (mut rest, mut lost) = (text, 0);
        while !rest.is_empty() {
            let Ok(room) = self.room(pen) else { return lost + count(rest.as_bytes()) };
            match fitting(rest, room) {
                0 if pen.at > FIRST => pen.number = 0,
                // Not even a whole block has room for it.
                0 => {
                    let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
                    (rest, lost) = (&rest[end..], lost + 1);
                }
                end => {
                    let (these, after) = rest.split_at(end);
                    let put = self.put(pen, these);
                    lost += put.map_or_else(|_| count(these.as_bytes()), |()| 0);
                    rest = after;
                }
            }
        }
        lost
    }

    /// How many bytes of text go into the thread's block, which it takes if it has none, or one
    /// that may soon be given again.
    fn room(&self, pen: &mut Pen) -> io::Result<usize> {
        if pen.number > 0 && given(&pen.file)?.saturating_sub(pen.number) > self.blocks / 2 {
            pen.number = 0;
        }
        if pen.number == 0 {
            self.take(pen)?;
        }
        Ok(BLOCK.saturating_sub(pen.at + RECORD_HEAD))
    }

    fn put(&self, pen: &mut Pen, text: &str) -> io::Result<()> {
        let mut record = Vec::with_capacity(RECORD_HEAD + text.len());
        record.extend_from_slice(&(text.len() as u32).to_le_bytes());
        record.extend_from_slice(&sum(pen.number, pen.at, text.as_bytes()).to_le_bytes());
        record.extend_from_slice(text.as_bytes());
        let at = self.place(pen.number) + pen.at as u64;
        pen.at = (pen.at + record.len()).next_multiple_of(8);
        pen.file.write_all_at(&record, at)
    }

    fn place(&self, number: u64) -> u64 {
        HEADER + (number - 1) % self.blocks * BLOCK as u64
    }

    /// Takes the next block.
    fn take(&self, pen: &mut Pen) -> io::Result<()> {
        let busy = || io::Error::from(io::ErrorKind::ResourceBusy);
        if pen.refused.is_some_and(|at| at.elapsed() < AFTER_REFUSAL) {
            return Err(busy());
        }
        if !locked(&pen.file)? {
            pen.refused = Some(Instant::now());
            return Err(busy());
        }
        pen.refused = None;
        let next = given(&pen.file).and_then(|given| {
            pen.file.write_all_at(&(given + 1).to_le_bytes(), GIVEN_AT)?;
            Ok(given + 1)
        });
        pen.file.unlock()?;
        let number = next?;
        let mut block = vec![0; BLOCK];
        block[..8].copy_from_slice(&number.to_le_bytes());
        block[8..12].copy_from_slice(&sum(number, 0, b"").to_le_bytes());
        pen.file.write_all_at(&block, self.place(number))?;
        (pen.number, pen.at) = (number, FIRST);
        Ok(())
    }
}

/// Locks a file, if that can be done within a moment.
fn locked(file: &File) -> io::Result<bool> {
    for tries in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if tries < AT_ONCE => std::thread::yield_now(),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
        }
    }
    Ok(false)
}

/// How many lines end in a text.
pub(super) fn count(text: &[u8]) -> u64 {
    text.split(|byte| *byte == b'\n').count() as u64 - 1
}

/// Where the last of the lines ends that have room together.
fn fitting(text: &str, room: usize) -> usize {
    if text.len() <= room {
        return text.len();
    }
    text.as_bytes()[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

fn given(file: &File) -> io::Result<u64> {
    let mut given = [0; 8];
    file.read_exact_at(&mut given, GIVEN_AT)?;
    Ok(u64::from_le_bytes(given))
}

fn failed(path: &Path, error: &io::Error) -> Errno {
    let code = error.raw_os_error().unwrap_or(libc::EIO);
    Errno::new(code, format!("the ring {}: {error}", path.display()))
}

/// How many blocks a ring of a size has.
fn blocks_for(size: u64) -> Option<u64> {
    let whole = (SIZES.0..=SIZES.1).contains(&size);
    whole.then_some((size - HEADER.min(size)) / BLOCK as u64)
}

/// Rings that this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Makes a ring, whole before it has its name.
fn make(path: &Path, size: u64) -> Result<()> {
    let Some(blocks) = blocks_for(size) else {
        refuse!(EINVAL, "a ring has {} to {} bytes, not {size}", SIZES.0, SIZES.1);
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!(".engram-ring-{}-{number}", std::process::id());
    let new = folder.unwrap_or(Path::new(".")).join(name);
    let fill = || {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
        let mut header = vec![0; HEADER as usize];
        header[..16].copy_from_slice(MAGIC);
        header[24..28].copy_from_slice(&(BLOCK as u32).to_le_bytes());
        header[28..32].copy_from_slice(&(blocks as u32).to_le_bytes());
        file.write_all_at(&header, 0)?;
        let zeros = vec![0; BLOCK];
        // All of it, so that no line finds the disk full.
        (0..blocks).try_for_each(|n| file.write_all_at(&zeros, HEADER + n * BLOCK as u64))?;
        match std::fs::hard_link(&new, path) {
            // Another process has made it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    };
    let made = fill();
    let _ = std::fs::remove_file(&new);
    made.map_err(|error| failed(path, &error))
}

/// How many blocks a ring has; refuses what is none.
fn blocks_of(file: &File, path: &Path) -> Result<u64> {
    let mut header = [0; 32];
    let read = file.read_exact_at(&mut header, 0);
    let size = file.metadata().map_err(|error| failed(path, &error))?.len();
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let blocks = u64::from(word(28));
    let right = size == HEADER + blocks * BLOCK as u64 && blocks >= 1;
    if read.is_err() || &header[..16] != MAGIC || word(24) != BLOCK as u32 || !right {
        refuse!(
            EINVAL,
            "{} is there, and is no ring of a trace: name another file",
            path.display()
        );
    }
    Ok(blocks)
}

/// The lines that are in a ring, the oldest block's first.
pub fn lines(path: &Path) -> Result<Vec<String>> {
    let file = File::open(path).map_err(|error| failed(path, &error))?;
    let blocks = blocks_of(&file, path)?;
    let mut found: Vec<(u64, String)> = Vec::new();
    let mut block = vec![0; BLOCK];
    for place in 0..blocks {
        let read = file.read_exact_at(&mut block, HEADER + place * BLOCK as u64);
        read.map_err(|error| failed(path, &error))?;
        let number = u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
        let head = u32::from_le_bytes(block[8..12].try_into().expect("four bytes"));
        if number > 0 && (number - 1) % blocks == place && head == sum(number, 0, b"") {
            found.push((number, records(number, &block)));
        }
    }
    found.sort_unstable_by_key(|(number, _)| *number);
    let lines = found.iter().flat_map(|(_, text)| text.split_terminator('\n'));
    Ok(lines.map(str::to_owned).collect())
}

/// The records of a block.
fn records(number: u64, block: &[u8]) -> String {
    let (mut text, mut at) = (String::new(), FIRST);
    while at + RECORD_HEAD <= block.len() {
        let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four"));
        let record = block.get(at + RECORD_HEAD..at + RECORD_HEAD + word(at) as usize);
        let whole = record.filter(|text| !text.is_empty() && sum(number, at, text) == word(at + 4));
        match whole.and_then(|record| std::str::from_utf8(record).ok()) {
            Some(record) => {
                text.push_str(record);
                at = (at + RECORD_HEAD + record.len()).next_multiple_of(8);
            }
            None => at += 8,
        }
    }
    text
}

/// The sum of a text at its place.
fn sum(number: u64, at: usize, text: &[u8]) -> u32 {
    let mut crc = Crc::default();
    crc.add(&number.to_le_bytes());
    crc.add(&(at as u32).to_le_bytes());
    crc.add(text);
    crc.value()
}

/// CRC-32, as zlib has it.
struct Crc(u32);

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut place = 0;
    while place < 256 {
        let mut value = place as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 0 { value >> 1 } else { value >> 1 ^ 0xEDB8_8320 };
            bit += 1;
        }
        table[place] = value;
        place += 1;
    }
    table
};

impl Default for Crc {
    fn default() -> Self {
        Crc(u32::MAX)
    }
}

impl Crc {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = TABLE[((self.0 ^ u32::from(*byte)) & 0xFF) as usize] ^ self.0 >> 8;
        }
    }

    fn value(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Crc, HEADER, Ring, SIZES, fitting, lines};
    use std::os::unix::fs::FileExt;

    fn ring(size: u64) -> (tempfile::TempDir, std::path::PathBuf, Ring) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ring");
        let ring = Ring::open(&path, Some(size)).expect("a ring");
        (folder, path, ring)
    }

    #[test]
    fn the_sum_is_that_of_zlib() {
        let mut crc = Crc::default();
        crc.add(b"123456789");
        assert_eq!(crc.value(), 0xCBF4_3926);
    }

    #[test]
    fn a_ring_keeps_its_size_and_the_newest_lines() {
        let (_folder, path, ring) = ring(SIZES.0);
        let size = std::fs::metadata(&path).expect("it is there").len();
        assert!(size <= SIZES.0 && size + BLOCK as u64 > SIZES.0);
        let mut pen = ring.pen().expect("a pen");
        let all: Vec<String> = (0..60_000).map(|n| format!("line {n} of this ring")).collect();
        for line in &all {
            assert_eq!(ring.write(&mut pen, &format!("{line}\n")), 0);
        }
        let kept = lines(&path).expect("lines");
        assert!(kept.len() > 10_000 && kept.len() < all.len());
        assert_eq!(kept, all[all.len() - kept.len()..]);
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), size);
    }

    #[test]
    fn what_is_longer_than_a_block_is_parted_at_its_lines() {
        let (_folder, path, ring) = ring(SIZES.0);
        let mut pen = ring.pen().expect("a pen");
        let many: Vec<String> = (0..2000).map(|n| format!("piece {n}")).collect();
        assert_eq!(ring.write(&mut pen, &format!("{}\n", many.join("\n"))), 0);
        let long = "x".repeat(BLOCK);
        assert_eq!(ring.write(&mut pen, &format!("before\n{long}\nbehind\n")), 1);
        let kept = lines(&path).expect("lines");
        assert_eq!(kept[..2000], many);
        assert_eq!(kept[2000..], ["before", "behind"]);
        assert_eq!(fitting("ab\ncd\n", 6), 6);
        assert_eq!(fitting("ab\ncd\n", 5), 3);
        assert_eq!(fitting("ab\ncd\n", 2), 0);
    }

    #[test]
    fn whatever_is_damaged_in_a_ring_no_other_line_is_shown() {
        let (_folder, path, ring) = ring(SIZES.0);
        let mut pen = ring.pen().expect("a pen");
        let all: Vec<String> = (0..400).map(|n| format!("line {n:010}")).collect();
        for line in &all {
            ring.write(&mut pen, &format!("{line}\n"));
        }
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("a file");
        for at in (0..309).map(|n| HEADER + 16 + n * 31) {
            let mut was = [0; 3];
            file.read_exact_at(&mut was, at).expect("bytes");
            file.write_all_at(&was.map(|byte| byte.wrapping_add(7)), at).expect("written");
            let kept = lines(&path).expect("lines");
            assert!(kept.len() < all.len() && kept.len() + 3 >= all.len(), "{at}: {}", kept.len());
            assert!(kept.iter().all(|line| all.contains(line)));
            file.write_all_at(&was, at).expect("written");
        }
        assert_eq!(lines(&path).expect("lines"), all);
    }

    #[test]
    fn a_thread_that_is_overtaken_shows_nothing_that_is_torn() {
        let (_folder, path, ring) = ring(SIZES.0);
        let (mut slow, mut fast) = (ring.pen().expect("a pen"), ring.pen().expect("a pen"));
        let say = |pen: &mut super::Pen, n: u64| ring.write(pen, &format!("line {n:06}\n"));
        say(&mut slow, 0);
        let blocks = ring.blocks;
        let mut n = 1;
        while fast.number < blocks + 1 {
            say(&mut fast, n);
            n += 1;
        }
        for _ in 0..20 {
            say(&mut fast, n);
            n += 1;
        }
        // It has looked at the number, and was stopped for all that.
        assert_eq!(ring.place(slow.number), ring.place(fast.number));
        ring.put(&mut slow, "line 999999\n").expect("written");
        slow.at += 4;
        ring.put(&mut slow, "line 999999\n").expect("written");
        let kept = lines(&path).expect("lines");
        assert!(!kept.contains(&"line 999999".to_owned()));
        assert!(kept.contains(&format!("line {:06}", n - 1)));
        assert!(kept.iter().all(|line| line.len() == 11 && line.starts_with("line ")));
        // One that looks takes another block.
        let was = slow.number;
        say(&mut slow, 7);
        assert!(slow.number > was + blocks / 2);
    }

    #[test]
    fn what_is_no_ring_is_refused_and_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes");
        std::fs::write(&path, b"my notes").expect("written");
        let Err(refused) = Ring::open(&path, None) else { panic!("it is no ring") };
        assert!(refused.message.contains("is no ring"), "{refused}");
        assert_eq!(std::fs::read(&path).expect("bytes"), b"my notes");
        for size in [0, SIZES.0 - 1, SIZES.1 + 1] {
            let refused = Ring::open(&folder.path().join("new"), Some(size)).err();
            assert_eq!(refused.expect("a refusal").code, libc::EINVAL);
        }
        let ring = folder.path().join("ring");
        Ring::open(&ring, Some(2 << 20)).expect("a ring");
        Ring::open(&ring, None).expect("of any size");
        Ring::open(&ring, Some(2 << 20)).expect("of this size");
        assert_eq!(Ring::open(&ring, Some(3 << 20)).err().expect("another").code, libc::EEXIST);
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(left.len(), 2);
    }
}
