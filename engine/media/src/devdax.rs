//! Nodes of persistent memory without a filesystem (devdax): what they are, and whose they are.
//!
//! `/dev/dax0.0` is a character device that can be mapped, and neither read nor written. It has a
//! size and an alignment, which sysfs tells, and no names: so the first 2 MiB hold a **label**, the
//! pool and the namespace that the node serves, and the rest is taken in ranges by one realm. Which
//! ranges, the rows of that realm's spans say; nothing on the node does.
//!
//! A node is one file with one owner and one mode, so it serves one realm: every user who may open
//! it may read all of it. The label is checked each time that a node is opened for use, so that a
//! node which another pool has taken meanwhile is an error, not somebody else's data. It is
//! written, and durable, before `pool.toml` lists the node, and removed after the pool has gone;
//! its writer holds the node's lock (`flock`), so of two pools that want the same node one is
//! refused.
//!
//! The label's bytes (little-endian): `ENGRAMDX`; version u32, 1; checksum u32 over all 2 MiB's
//! first 4 KiB with this field zero (FNV-1a); the pool's uuid, 32 hexadecimal digits; length of the
//! namespace's name u32; the name; zeros.
//!
//! Tests need no such machine: built with the feature `faults`, the engine takes an ordinary file
//! whose name ends in `.dax` for a node.

use std::fs::{File, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Medium;
use super::map::{AddressRange, HUGE};
use super::memory::Memory;
use engram_base::error::{Error, Result};
use engram_base::fail;

/// Where ranges begin: the bytes before are the label's.
pub const LABEL_LEN: u64 = HUGE;

const MAGIC: &[u8; 8] = b"ENGRAMDX";
const VERSION: u32 = 1;
/// What the checksum covers; the label ends within it.
const COVERED: usize = 4096;
/// Where the note begins, which is as long.
const NOTE_AT: usize = COVERED;
const CHECKSUM_AT: usize = 12;
const UUID_AT: usize = 16;
const UUID_LEN: usize = 32;
const NAME_AT: usize = UUID_AT + UUID_LEN + 4;

/// What a node is, without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its bytes.
    pub len: u64,
    /// Whether what is flushed to it survives power loss.
    pub durable: bool,
}

/// Whose a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The pool's uuid: 32 hexadecimal digits.
    pub pool: String,
    /// The namespace whose shared realm has the node.
    pub namespace: String,
}

/// What stands where a label would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelState {
    /// Zeros.
    Nothing,
    /// A label.
    Label(Label),
    /// Something else.
    Other,
}

/// Whether the path leads to a node. A path that leads nowhere does not.
pub fn is_node(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| is_device(&meta) || is_pretended(path, &meta))
}

/// Whether this is a devdax node, as the kernel has them.
pub(super) fn is_device(meta: &Metadata) -> bool {
    let of_dax = |sysfs: PathBuf| {
        let subsystem = std::fs::read_link(sysfs.join("subsystem")).ok();
        subsystem.is_some_and(|link| link.file_name().is_some_and(|name| name == "dax"))
    };
    FileType::is_char_device(&meta.file_type()) && of_dax(sysfs_of(meta))
}

#[cfg(feature = "faults")]
fn is_pretended(path: &Path, meta: &Metadata) -> bool {
    meta.is_file() && path.extension().is_some_and(|suffix| suffix == "dax")
}

#[cfg(not(feature = "faults"))]
fn is_pretended(_: &Path, _: &Metadata) -> bool {
    false
}

fn sysfs_of(meta: &Metadata) -> PathBuf {
    let device = meta.rdev();
    PathBuf::from(format!("/sys/dev/char/{}:{}", libc::major(device), libc::minor(device)))
}

/// Asks for the size of a node, and what it promises.
///
/// `Unsupported` if its alignment is none that spans have.
pub fn look(path: &Path) -> Result<Facts> {
    let meta = std::fs::metadata(path)
        .map_err(|e| Error::os(format_args!("cannot look at {}", path.display()), &e))?;
    if is_pretended(path, &meta) {
        let file = File::open(path)
            .map_err(|e| Error::os(format_args!("cannot open {}", path.display()), &e))?;
        return Ok(Facts { len: meta.len(), durable: Medium::of(&file)? != Medium::Memory });
    }
    if !is_device(&meta) {
        fail!(Unsupported, "{} is no devdax node", path.display());
    }
    let facts = facts_of(&meta)?;
    let align = number(&meta, "align").unwrap_or(HUGE);
    if !HUGE.is_multiple_of(align) {
        fail!(
            Unsupported,
            "{} is mapped in pieces of {align} bytes, and spans are multiples of 2 MiB: make it \
             anew with `ndctl create-namespace -m devdax -a 2M`",
            path.display()
        );
    }
    Ok(facts)
}

/// The size of a device, and whether it is persistent: memory of an NVDIMM is, memory that the
/// kernel was told to set aside is not.
pub(super) fn facts_of(meta: &Metadata) -> Result<Facts> {
    let Some(len) = number(meta, "size") else {
        let place = sysfs_of(meta);
        fail!(Unsupported, "{} does not tell a node's size: is /sys mounted?", place.display())
    };
    let place = std::fs::canonicalize(sysfs_of(meta)).unwrap_or_default();
    let durable = place.iter().any(|part| part.to_string_lossy().starts_with("ndbus"));
    Ok(Facts { len, durable })
}

fn number(meta: &Metadata, what: &str) -> Option<u64> {
    std::fs::read_to_string(sysfs_of(meta).join(what)).ok()?.trim().parse().ok()
}

/// Opens a node for its ranges; it must carry this label.
///
/// On error nothing has changed: `Corrupt` says whose the node is instead.
pub fn open(path: &Path, label: &Label, writable: bool) -> Result<File> {
    let file = open_node(path, writable)?;
    match read_label(&file, look(path)?)? {
        LabelState::Label(found) if found == *label => Ok(file),
        found => fail!(
            Corrupt,
            "{} should serve namespace {:?} of pool {}, and {}: restore the pool from a copy",
            path.display(),
            label.namespace,
            label.pool,
            found.told()
        ),
    }
}

/// Makes a node this pool's: writes the label, durably. With `force` also over another's.
///
/// On error nothing has changed; `Exists` says whose the node is.
pub fn claim(path: &Path, label: &Label, force: bool) -> Result<()> {
    let file = open_node(path, true)?;
    let facts = look(path)?;
    if facts.len < 2 * LABEL_LEN {
        fail!(
            Argument,
            "{} has {} bytes: a node needs 4 MiB, the label's and as many for data",
            path.display(),
            facts.len
        );
    }
    lock(&file, path)?;
    let found = read_label(&file, facts)?;
    if found != LabelState::Nothing && !force {
        fail!(
            Exists,
            "{} {}: choose another node, or take it over with all that is on it (force=True)",
            path.display(),
            found.told()
        );
    }
    write_label(&file, Some(label))
}

/// Takes this label off a node; one that carries another stays as it is.
pub fn disclaim(path: &Path, label: &Label) -> Result<()> {
    let file = open_node(path, true)?;
    lock(&file, path)?;
    if read_label(&file, look(path)?)? == LabelState::Label(label.clone()) {
        write_label(&file, None)?;
    }
    Ok(())
}

/// What stands beside the label, if anything does: its length, its checksum, its bytes.
pub fn note(path: &Path) -> Result<Option<String>> {
    let file = open_node(path, false)?;
    if look(path)?.len < LABEL_LEN {
        return Ok(None);
    }
    let (_range, memory) = first_bytes(&file, false)?;
    let bytes = memory.read(NOTE_AT + COVERED).split_off(NOTE_AT);
    let text = bytes[8..].get(..number_at(&bytes, 0) as usize).filter(|text| !text.is_empty());
    let sound = text.filter(|text| checksum(text) == number_at(&bytes, 4));
    Ok(sound.and_then(|text| String::from_utf8(text.to_vec()).ok()))
}

/// Writes that, durably.
pub fn set_note(path: &Path, text: &str) -> Result<()> {
    let file = open_node(path, true)?;
    if text.len() > COVERED - 8 {
        fail!(Argument, "{} has no room for {} bytes beside its label", path.display(), text.len());
    }
    lock(&file, path)?;
    let (range, memory) = first_bytes(&file, true)?;
    let mut bytes = vec![0; COVERED];
    bytes[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&checksum(text.as_bytes()).to_le_bytes());
    bytes[8..8 + text.len()].copy_from_slice(text.as_bytes());
    memory.write_at(NOTE_AT as u64, &bytes);
    range.flush(NOTE_AT as u64, COVERED as u64)
}

/// Zeroes `len` bytes of an opened node at `place`, durably.
pub fn zero(file: &File, place: u64, len: u64) -> Result<()> {
    let range = std::sync::Arc::new(AddressRange::reserve(len, len)?);
    range.attach(0, len, file, place, true)?;
    Memory::new(&range, 0, len).zero(len);
    range.flush(0, len)
}

/// Reads bytes of an opened node from `place` on.
pub fn read(file: &File, place: u64, bytes: &mut [u8]) -> Result<()> {
    let first = place - place % HUGE;
    let before = (place - first) as usize;
    let len = (before + bytes.len()).next_multiple_of(HUGE as usize) as u64;
    let range = std::sync::Arc::new(AddressRange::reserve(len, len)?);
    range.attach(0, len, file, first, false)?;
    bytes.copy_from_slice(&Memory::new(&range, 0, len).read(before + bytes.len())[before..]);
    Ok(())
}

impl LabelState {
    /// The end of a sentence about the node.
    fn told(&self) -> String {
        match self {
            LabelState::Nothing => "carries no label".to_owned(),
            LabelState::Label(label) => {
                format!("serves namespace {:?} of the pool {}", label.namespace, label.pool)
            }
            LabelState::Other => "holds something that is not Engram's".to_owned(),
        }
    }
}

fn open_node(path: &Path, writable: bool) -> Result<File> {
    let file = File::options()
        .read(true)
        .write(writable)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| Error::os(format_args!("cannot open {}", path.display()), &e))?;
    let meta =
        file.metadata().map_err(|e| Error::os("cannot look at a node that is open (fstat)", &e))?;
    if !is_device(&meta) && !is_pretended(path, &meta) {
        fail!(Corrupt, "{} is no devdax node any more", path.display());
    }
    Ok(file)
}

/// Waits for the node's lock; it goes when the file is closed.
fn lock(file: &File, path: &Path) -> Result<()> {
    file.lock().map_err(|e| Error::os(format_args!("cannot lock {}", path.display()), &e))
}

/// The first bytes of a node, mapped.
fn first_bytes(file: &File, writable: bool) -> Result<(std::sync::Arc<AddressRange>, Memory)> {
    let range = std::sync::Arc::new(AddressRange::reserve(LABEL_LEN, LABEL_LEN)?);
    range.attach(0, LABEL_LEN, file, 0, writable)?;
    let memory = Memory::new(&range, 0, LABEL_LEN);
    Ok((range, memory))
}

fn read_label(file: &File, facts: Facts) -> Result<LabelState> {
    if facts.len < LABEL_LEN {
        return Ok(LabelState::Other);
    }
    let (_range, memory) = first_bytes(file, false)?;
    Ok(parse(&memory.read(COVERED)))
}

/// Writes a label, or zeros, durably.
fn write_label(file: &File, label: Option<&Label>) -> Result<()> {
    let (range, memory) = first_bytes(file, true)?;
    // Half of one, after a power cut, is nobody's: the checksum tells.
    memory.write(&label.map_or_else(|| vec![0; COVERED], Label::encode));
    range.flush(0, COVERED as u64)
}

impl Label {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; COVERED];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[UUID_AT..UUID_AT + UUID_LEN].copy_from_slice(self.pool.as_bytes());
        let name = self.namespace.as_bytes();
        bytes[NAME_AT - 4..NAME_AT].copy_from_slice(&(name.len() as u32).to_le_bytes());
        bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
        let checksum = checksum(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

fn parse(bytes: &[u8]) -> LabelState {
    if bytes.iter().all(|&byte| byte == 0) {
        return LabelState::Nothing;
    }
    let word = |at: usize| number_at(bytes, at);
    let mut unsigned = bytes.to_vec();
    unsigned[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    if bytes[..8] != *MAGIC || word(8) != VERSION || word(CHECKSUM_AT) != checksum(&unsigned) {
        return LabelState::Other;
    }
    let name = bytes.get(NAME_AT..).and_then(|rest| rest.get(..word(NAME_AT - 4) as usize));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    match (text(&bytes[UUID_AT..UUID_AT + UUID_LEN]), name.and_then(text)) {
        (Some(pool), Some(namespace)) => LabelState::Label(Label { pool, namespace }),
        _ => LabelState::Other,
    }
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// FNV-1a, of 32 bits.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(all(test, feature = "faults"))]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use engram_base::error::Kind;

    fn label(pool: char, namespace: &str) -> Label {
        let pool = std::iter::repeat_n(pool, UUID_LEN).collect();
        Label { pool, namespace: namespace.to_owned() }
    }

    /// A file that passes for a node of so many bytes.
    fn node(dir: &Path, len: u64) -> PathBuf {
        let path = dir.join("node.dax");
        File::create(&path).unwrap().set_len(len).unwrap();
        path
    }

    #[test]
    fn a_node_is_one_pools_until_it_is_given_up_or_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = node(dir.path(), 8 << 20);
        assert!(is_node(&path) && !is_node(dir.path()) && !is_node(Path::new("/dev/null")));
        let (one, two) = (label('1', "default"), label('2', "default"));
        assert_eq!(open(&path, &one, false).unwrap_err().kind(), Kind::Corrupt);
        claim(&path, &one, false).unwrap();
        drop(open(&path, &one, true).unwrap());
        for other in [&two, &label('1', "another")] {
            let error = open(&path, other, false).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.message().contains(&one.pool), "{error}");
            disclaim(&path, other).unwrap();
        }
        let error = claim(&path, &two, false).unwrap_err();
        assert_eq!(error.kind(), Kind::Exists);
        assert!(error.message().contains(&one.pool), "{error}");
        open(&path, &one, false).unwrap();
        claim(&path, &two, true).unwrap();
        assert_eq!(open(&path, &one, false).unwrap_err().kind(), Kind::Corrupt);
        disclaim(&path, &two).unwrap();
        claim(&path, &one, false).unwrap();
    }

    #[test]
    fn what_is_not_ours_is_not_taken_without_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = node(dir.path(), 8 << 20);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&[7], 4000).unwrap();
        let error = claim(&path, &label('1', "default"), false).unwrap_err();
        assert_eq!(error.kind(), Kind::Exists);
        assert!(error.message().contains("not Engram's"), "{error}");
        claim(&path, &label('1', "default"), true).unwrap();
        let error = claim(&node(dir.path(), 3 << 20), &label('1', "default"), true).unwrap_err();
        assert_eq!(error.kind(), Kind::Argument);
    }

    /// Any byte of a label that changes makes it nobody's; none makes the engine fall over.
    #[test]
    fn a_damaged_label_is_nobodys() {
        let whole = label('a', "icesat").encode();
        assert_eq!(parse(&whole), LabelState::Label(label('a', "icesat")));
        for place in 0..COVERED {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x81;
            assert_eq!(parse(&damaged), LabelState::Other, "byte {place}");
        }
        // A length that leads outside, with a checksum that fits.
        let mut damaged = whole;
        damaged[NAME_AT - 4..NAME_AT].copy_from_slice(&u32::MAX.to_le_bytes());
        damaged[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        let sum = checksum(&damaged);
        damaged[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(parse(&damaged), LabelState::Other);
    }

    #[test]
    fn ranges_are_zeroed_where_they_lie() {
        let dir = tempfile::tempdir().unwrap();
        let path = node(dir.path(), 8 << 20);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&vec![9; 8 << 20], 0).unwrap();
        zero(&file, 4 << 20, 2 << 20).unwrap();
        let mut bytes = vec![0; 8 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let mut part = vec![0; 3000];
        read(&file, (4 << 20) - 1000, &mut part).unwrap();
        assert!(part[..1000].iter().all(|&b| b == 9) && part[1000..].iter().all(|&b| b == 0));
        let zeros = 4 << 20..6 << 20;
        assert!(bytes.iter().enumerate().all(|(at, &b)| (b == 0) == zeros.contains(&at)));
    }
}
