//! Files that everybody writes: a log that all append to, and some that all write, cut, link,
//! rename and take away.
//!
//! A record of the log is there wholly or not at all, and every acknowledged one is, in its
//! writer's order. The words of the others say their own place: whatever came between, each is that
//! or zero.

use engram::{Error, Kind, Payload, Realm};
use engram_fs::{Clash, Errno, Fs, Ino, OpenFlags, ROOT};

use crate::board::WRITING;
use crate::bytes::file_word;
use crate::data::{Random, Words};
use crate::files::{MAKER, folder_at, list, read_all, refusal};
use crate::operation::{Outcome, index_mode};
use crate::pool::over;

pub(crate) const LOG: &str = "files/log";
pub(crate) const STORM: &str = "files/storm";
/// A file of [`WORDS`] words that nobody cuts: whoever stores to memory behind an end would die.
pub(crate) const MAPPED: &str = "files/mapped";
/// Names there.
pub(crate) const NAMES: u64 = 4;
/// The words that a file there has at most.
pub(crate) const WORDS: u64 = 30_000;
/// The log grows no longer than this.
const LOG_MAX: u64 = 1 << 20;
/// What a record begins with; the lower bits say how many words it has.
const RECORD: u64 = 0x10C5 << 32;
/// The least words of a record: the beginning, whose it is, which version.
const LEAST: u64 = 3;

/// What one worker has appended to the log, by version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logged(Vec<u64>);

/// Makes the log, and the folder of the others.
pub(crate) fn make(realm: &Realm) {
    let (root, new) = (realm.root(), engram::NewObject::blob());
    realm.create_group(root, STORM, &[], &[], false).expect("a group");
    realm.put(root, LOG, &new, b"", over(index_mode(5))).expect("a file");
    let zeros = vec![0; WORDS as usize * 8];
    realm.put(root, MAPPED, &new, &zeros, over(index_mode(5))).expect("a file");
}

/// Whether what follows from a seed is a record of the log, and how many words it has.
pub(crate) fn record(seed: u64) -> Option<u64> {
    let mut random = Random(seed);
    let is_record = random.percent(40);
    let most = [20, 20, 400][random.below(3) as usize];
    is_record.then(|| LEAST + random.below(most))
}

/// Does what follows from a seed.
pub(crate) fn perform(fs: &Fs, slot: usize, seed: u64, version: u64) -> engram::Result<()> {
    match record(seed) {
        Some(words) => append(fs, slot, version, words),
        None => match storm(fs, &mut Random(seed ^ 1)) {
            Err(error) if !is_passing(&error) => Err(error.into()),
            _ => Ok(()),
        },
    }
}

fn append(fs: &Fs, slot: usize, version: u64, words: u64) -> engram::Result<()> {
    let appending = OpenFlags { write: true, append: true, ..OpenFlags::default() };
    let log = folder_at(fs, LOG).and_then(|ino| fs.open(ino, appending)).map_err(refusal)?;
    let data = record_for(log.stat().map_err(refusal)?.size, slot, version, words)?;
    let count = log.write(0, &data).map_err(refusal)?;
    assert_eq!(count, data.len());
    Ok(())
}

/// The bytes of a record for a log of so many bytes, if that is not long enough.
pub(crate) fn record_for(
    size: u64,
    slot: usize,
    version: u64,
    words: u64,
) -> engram::Result<Vec<u8>> {
    if size > LOG_MAX {
        return Err(Error::new(Kind::PoolFull, "the log is long enough"));
    }
    let head = [RECORD | words, slot as u64, version];
    let rest = (LEAST..words).map(|place| file_word(slot, version, place as usize));
    Ok(head.into_iter().chain(rest).flat_map(u64::to_le_bytes).collect())
}

/// Whether another was quicker, or there is no room: then nothing is done, or some of it.
pub(crate) fn is_passing(error: &Errno) -> bool {
    use libc::{EBUSY, EEXIST, ENOENT, ENOSPC, ESTALE};
    [ENOENT, EEXIST, ESTALE, ENOSPC, EBUSY].contains(&error.code)
}

pub(crate) fn word_at(place: u64) -> u64 {
    place | 0x57_0A11 << 40
}

/// Does anything to any of the files that are everybody's.
fn storm(fs: &Fs, random: &mut Random) -> Result<(), Errno> {
    let folder = folder_at(fs, STORM)?;
    let name = [b'0' + random.below(NAMES) as u8];
    let other = [b'0' + random.below(NAMES) as u8];
    match random.below(14) {
        0 | 1 => {
            let flags = OpenFlags { write: true, ..OpenFlags::default() };
            fs.create(folder, &name, 0o600, flags, MAKER).map(drop)
        }
        2 => fs.unlink(folder, &name),
        3 => {
            let clash = [Clash::Refuse, Clash::Replace, Clash::Exchange];
            fs.rename(folder, &name, folder, &other, clash[random.below(3) as usize])
        }
        4 => fs.link(fs.lookup(folder, &name)?.ino, folder, &other).map(drop),
        5 => look_at_view(fs, fs.lookup(folder, &name)?.ino),
        _ => write(fs, fs.lookup(folder, &name)?.ino, random),
    }
}

/// Opens a file that others may be taking away, and changes it once or twice.
fn write(fs: &Fs, ino: Ino, random: &mut Random) -> Result<(), Errno> {
    let file = fs.open(ino, OpenFlags { read: true, write: true, ..OpenFlags::default() })?;
    for _ in 0..=random.below(2) {
        let (place, many) = (random.below(WORDS), 1 + random.below(3000));
        let (at, len) = (place * 8, many * 8);
        match random.below(6) {
            0 | 1 => {
                let words = (place..place + many).flat_map(|place| word_at(place).to_le_bytes());
                file.write(at, &words.collect::<Vec<u8>>()).map(drop)?;
            }
            2 => file.set_size(at)?,
            3 => file.fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, at, len)?,
            4 => file.fallocate(0, at, len)?,
            _ => {
                let mut bytes = vec![0xEE; len as usize];
                let count = file.read(at, &mut bytes)?;
                check_words(&bytes[..count], place);
            }
        }
    }
    Ok(())
}

/// Looks at a file's memory, which stays as long as the view, whoever cuts the file.
fn look_at_view(fs: &Fs, ino: Ino) -> Result<(), Errno> {
    match fs.namespace().view(ino, false)? {
        Payload::Inline(bytes) => check_words(&bytes, 0),
        Payload::Extent(view) => {
            let mut bytes = vec![0; view.len()];
            view.copy_out(0, &mut bytes);
            check_words(&bytes, 0);
        }
    }
    Ok(())
}

pub(crate) fn check_words(bytes: &[u8], first: u64) {
    assert!(bytes.len().is_multiple_of(8), "a file of words has {} bytes", bytes.len());
    let words = Words::Copied(bytes);
    let is_own =
        |at: usize| matches!(words.at(at), 0) || words.at(at) == word_at(first + at as u64);
    let Some(wrong) = (0..words.len()).find(|at| !is_own(*at)) else { return };
    let many = (wrong..words.len()).take_while(|at| !is_own(*at)).count();
    let (word, place) = (words.at(wrong), first + wrong as u64);
    panic!("word {place} of {} of a file is {word:#x}, and {many} are others'", words.len());
}

/// Looks at all that everybody writes; how many things were looked at.
///
/// # Panics
///
/// If anything is torn.
pub(crate) fn check(fs: &Fs) -> u64 {
    let told = |error: Errno| error.to_string();
    let mut checks = records(fs).unwrap_or_else(|why| panic!("{LOG}: {why}")).len() as u64;
    let mapped = folder_at(fs, MAPPED).and_then(|ino| read_all(fs, ino));
    check_words(&mapped.map_err(told).expect("the file is always there"), 0);
    let folder = folder_at(fs, STORM).map_err(told).expect("the folder is always there");
    for stat in list(fs, folder).map_err(told).expect("a listing").into_values() {
        match read_all(fs, stat.ino) {
            Ok(bytes) => check_words(&bytes, 0),
            // It may be taken away between the two looks.
            Err(error) if is_passing(&error) => {}
            Err(error) => panic!("a file of {STORM}: {error}"),
        }
        checks += 1;
    }
    checks
}

/// The records of the log: whose each is, and which version.
fn records(fs: &Fs) -> Result<Vec<(u64, u64)>, String> {
    let told = |error: Errno| error.to_string();
    let ino = fs.walk(ROOT, LOG).map_err(told)?.stat.ok_or("it is gone")?.ino;
    let bytes = read_all(fs, ino).map_err(told)?;
    let (words, mut found, mut at) = (Words::Copied(&bytes), Vec::new(), 0);
    while at < words.len() {
        let many = words.at(at).wrapping_sub(RECORD);
        if many < LEAST || many > (words.len() - at) as u64 {
            return Err(format!("word {at} of {} begins no record", words.len()));
        }
        let (slot, version) = (words.at(at + 1), words.at(at + 2));
        let torn = (LEAST..many).find(|&place| {
            words.at(at + place as usize) != file_word(slot as usize, version, place as usize)
        });
        if let Some(place) = torn {
            return Err(format!("word {place} of version {version} by {slot} is another's"));
        }
        found.push((slot, version));
        at += many as usize;
    }
    match found.iter().find(|(slot, _)| *slot >= WRITING as u64) {
        Some((slot, _)) => Err(format!("it has a record by {slot}")),
        None => Ok(found),
    }
}

impl Logged {
    /// Does to the model what follows from a seed.
    pub(crate) fn imagine(&mut self, seed: u64, version: u64) -> Outcome {
        if record(seed).is_some() {
            self.0.push(version);
        }
        Outcome::Done
    }
}

/// Compares what a worker has in the log with its model; how many records were compared.
pub(crate) fn compare(fs: &Fs, slot: usize, model: &Logged) -> Result<u64, String> {
    let all = records(fs).map_err(|why| format!("{LOG}: {why}"))?;
    let own = all.into_iter().filter(|(whose, _)| *whose == slot as u64);
    let own: Vec<u64> = own.map(|(_, version)| version).collect();
    if own == model.0 {
        return Ok(own.len() as u64);
    }
    let at = own.iter().zip(&model.0).position(|(found, must)| found != must);
    let (found, must) = (own.len(), model.0.len());
    Err(format!("{LOG} has {found} records of w{slot}, not {must}; the first other one: {at:?}"))
}
