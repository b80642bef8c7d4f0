//! Filesystems: which may carry a pool, which may with force, which may not, and the reason.

use super::*;
use crate::testing::Tmpfs;
use engram_base::error::Kind;

fn verdict(magic: u64, name: Option<&str>) -> Verdict {
    classify(magic, name).1
}

#[test]
fn the_allow_list_is_tmpfs_ext4_and_xfs() {
    let mut allowed: Vec<&str> = KNOWN
        .iter()
        .filter(|(.., verdict)| matches!(verdict, Verdict::Allowed(_)))
        .map(|(name, ..)| *name)
        .collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["ext4", "tmpfs", "xfs"]);
}

#[test]
fn names_tell_apart_what_magic_numbers_do_not() {
    assert_eq!(verdict(EXT, Some("ext4")), Verdict::Allowed(FsKind::Ext4));
    assert_eq!(verdict(EXT, Some("ext3")), Verdict::Forced(OLD_EXT));
    assert!(matches!(verdict(EXT, None), Verdict::Forced(_)));
    assert_eq!(verdict(TMPFS, Some("tmpfs")), Verdict::Allowed(FsKind::Tmpfs));
    assert_eq!(verdict(TMPFS, None), Verdict::Allowed(FsKind::Tmpfs));
    assert_eq!(verdict(TMPFS, Some("devtmpfs")), Verdict::Forced(KERNEL_OWN));
    assert_eq!(verdict(XFS, None), Verdict::Allowed(FsKind::Xfs));
}

#[test]
fn network_filesystems_are_refused_by_name_and_by_number() {
    for name in ["nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "9p", "ceph", "beegfs", "fuse"] {
        assert!(matches!(verdict(0, Some(name)), Verdict::Refused(_)), "{name}");
    }
    for name in ["fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "virtiofs"] {
        assert!(matches!(verdict(0x6573_5546, Some(name)), Verdict::Refused(_)), "{name}");
    }
    for magic in [0x6969, 0xFF53_4D42, 0x0BD0_0BD0, 0x4750_4653, 0x0102_1997, 0x00C3_6400] {
        assert!(matches!(verdict(magic, None), Verdict::Refused(_)), "{magic:#x}");
    }
}

#[test]
fn unknown_filesystems_need_force() {
    assert_eq!(classify(1, Some("newfs")), ("newfs".to_owned(), Verdict::Forced(UNTESTED)));
    let (name, verdict) = classify(0xABCD, None);
    assert_eq!((name.contains("0xabcd"), verdict), (true, Verdict::Forced(UNTESTED)));
}

#[test]
fn each_name_and_each_number_is_listed_once() {
    for (n, (name, magic, _)) in KNOWN.iter().enumerate() {
        for (other, other_magic, _) in &KNOWN[n + 1..] {
            assert_ne!(name, other);
            assert!(*magic == 0 || magic != other_magic, "{name} and {other}");
        }
    }
}

#[test]
fn mountinfo_rows_are_read_with_any_number_of_tags_and_with_blanks() {
    let row = r"36 35 98:0 /mnt1 /mnt/with\040blank rw,noatime - ext3 /dev/root rw,errors=continue";
    let row = MountRow::parse(row).unwrap();
    assert_eq!((row.id, row.root.as_str(), row.fstype), ("36", "/mnt1", "ext3"));
    assert_eq!((row.point.as_str(), row.options), ("/mnt/with blank", "rw,errors=continue"));
    let row = "40 35 0:38 / /a rw shared:2 master:1 propagate_from:3 - tmpfs tmpfs rw,size=1k";
    let row = MountRow::parse(row).unwrap();
    assert_eq!((row.fstype, row.options), ("tmpfs", "rw,size=1k"));
    for broken in ["", "36 35", "36 35 98:0 / /a rw", " - ", "36 35 98:0 - ext3"] {
        assert!(MountRow::parse(broken).is_none(), "{broken:?}");
    }
    assert_eq!(unescape(r"a\134b\011\04x\"), "a\\b\t\\04x\\");
}

#[test]
fn a_tmpfs_is_admitted_and_is_not_durable() {
    let Some(mount) = Tmpfs::mount("a_tmpfs_is_admitted", "size=8m") else { return };
    let admitted = admit(mount.path(), false).unwrap();
    let expected = Mount { kind: FsKind::Tmpfs, name: "tmpfs".to_owned(), durable: false };
    assert_eq!(admitted, expected);
    assert_eq!(free_bytes(mount.path()).unwrap(), 8 << 20);
}

#[test]
fn a_tmpfs_without_a_bound_has_the_memory_there_is() {
    let Some(mount) = Tmpfs::mount("a_tmpfs_without_a_bound", "size=0") else { return };
    assert!(free_bytes(mount.path()).unwrap() > 0);
}

#[test]
fn proc_is_refused_unless_forced_and_the_message_says_what_to_do() {
    let error = admit(Path::new("/proc"), false).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    for part in ["/proc", "proc", "tmpfs, ext4 or xfs", "force=True"] {
        assert!(error.message().contains(part), "{error}");
    }
    assert_eq!(admit(Path::new("/proc"), true).unwrap().kind, FsKind::Other);
}

#[test]
fn a_missing_path_is_not_found() {
    let path = Path::new("/nowhere/at/all");
    assert_eq!(admit(path, true).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(free_bytes(path).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn what_a_path_is_on_is_told_whether_it_may_carry_a_pool_or_not() {
    let proc = look(Path::new("/proc")).unwrap();
    assert_eq!((proc.name.as_str(), proc.mounted.unwrap().0.as_str()), ("proc", "/proc"));
    assert!(matches!(proc.verdict, Verdict::Forced(_)));
    let Some(mount) = Tmpfs::mount("what_a_path_is_on", "size=8m,huge=never") else { return };
    let tmpfs = look(mount.path()).unwrap();
    assert_eq!((tmpfs.verdict, tmpfs.durable), (Verdict::Allowed(FsKind::Tmpfs), false));
    let (point, options) = tmpfs.mounted.unwrap();
    assert_eq!(Path::new(&point), mount.path());
    assert!(options.contains("size=8192k"), "{options}");
}
