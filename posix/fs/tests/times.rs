//! Times that change with what is done to a file.

use engram::{CreateOptions, Pool};
use engram_fs::{Changes, Fs, Maker, OpenFlags, Options, ROOT, Time};

const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;

/// As by Linux: also where the range has its space already, and the size stays.
#[test]
fn a_range_that_is_given_space_was_written_now() {
    let room = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CreateOptions { size: 32 << 20, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&room.path().join("pool"), &options).unwrap();
    let fs = Fs::new(pool.namespace("default").unwrap(), Options::default()).unwrap();
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let maker = Maker::this_process().unwrap();
    // One whose bytes lie in its record, and one that has segments.
    for size in [1, 200_000] {
        let name = format!("f{size}");
        let (stat, file) = fs.create(ROOT, name.as_bytes(), 0o600, flags, maker).unwrap();
        file.write(0, &vec![7; size]).unwrap();
        for (mode, len) in [(0, 1), (KEEP, 1), (KEEP, 300_000), (0, 250_000), (PUNCH, 1)] {
            let written = Some(Time::At(0));
            fs.change(stat.ino, Changes { written, ..Changes::default() }).unwrap();
            file.fallocate(mode, 0, len).unwrap();
            let told = fs.stat(stat.ino).unwrap();
            assert!(told.written > 0, "{size} bytes, mode {mode}, {len}: {told:?}");
        }
        // One without a name has nobody who could ask by it.
        fs.unlink(ROOT, name.as_bytes()).unwrap();
        file.fallocate(0, 0, 1).unwrap();
        assert_eq!(file.stat().unwrap().size, 250_000);
    }
}
