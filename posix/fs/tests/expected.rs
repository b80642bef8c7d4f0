//! Lists of names that are on their way.

use std::collections::BTreeSet;

use engram::{CreateOptions, Pool};
use engram_fs::{Expected, Fs, Maker, OpenFlags, Options, ROOT};

/// A list that leads to more others than anybody follows is read all the same.
#[test]
fn a_list_may_lead_to_any_number_of_others() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CreateOptions { size: 32 << 20, ..CreateOptions::default() };
    let pool = Pool::create(&folder.path().join("pool"), &options).unwrap();
    let fs = || Fs::new(pool.namespace("default").unwrap(), Options::default()).unwrap();
    let (writer, reader) = (fs(), fs());
    let maker = Maker::this_process().unwrap();
    let made = writer.mkdir(ROOT, b"made", 0o755, maker).unwrap().ino;
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    for others in [0, 1, 64, 65, 1000] {
        let name = format!("list-{others}");
        let (_, list) = writer.create(ROOT, name.as_bytes(), 0o600, flags, maker).unwrap();
        let gone: BTreeSet<u64> = (0..others).map(|number| 1_000_000 + number).collect();
        let names = [(made, b"a".as_slice()), (made, b"b".as_slice())];
        let expected = Expected::write(list, &gone, names).unwrap();
        writer.expect_in(made, None, Some(expected.ino())).unwrap();
        assert!(reader.is_expected(made, b"a"), "{others} others");
        assert!(reader.is_anything_expected(expected.ino()));
        assert!(!reader.is_expected(made, b"c"));
        expected.arrived(made, b"a").unwrap();
        assert!(!reader.is_expected(made, b"a"));
        assert!(reader.is_expected(made, b"b"));
        let list = expected.ino();
        drop(expected);
        assert!(!reader.is_expected(made, b"b"), "nobody brings it");
        assert!(!reader.is_anything_expected(list));
        writer.expect_in(made, Some(list), None).unwrap();
    }
}
