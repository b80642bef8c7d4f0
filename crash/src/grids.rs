//! Chunked arrays: a log of each worker's own, and a grid in whose chunks all of them write.
//!
//! A log is appended to, cut, and made anew, each in one commit. A worker's columns of the grid lie
//! in chunks that are another's as well, who writes there at the same time; a box within one chunk
//! is there wholly or not at all.

use engram::{Error, Flush, Kind, Layout, Member, Namespace, NewObject, Oid, Realm, Result};

use crate::board::WRITING;
use crate::data::{Random, Words, word_of};
use crate::operation::{Outcome, index_mode};
use crate::pool::{array, over};

const GRID: &str = "common/grid";
const ROWS: u64 = 48;
/// Rows of a chunk of the grid; it is as wide as two workers' columns.
const CHUNK_ROWS: u64 = 24;
/// Rows of a chunk of a log.
const LOG_CHUNK: u64 = 30;
/// Words of a row, in a log and of each worker in the grid.
const WORDS: u64 = 6;
/// A row's number is its version times this, and its place in what was written at once.
const MOST: u64 = 64;
const CODECS: [&str; 5] = ["none", "lz4", "zstd", "shuffle+lz4", "shuffle+zstd"];

/// What is done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Makes the log anew.
    Make { rows: u64, codec: &'static str },
    /// Appends to it.
    Append { rows: u64 },
    /// Gives it so many percent of its rows.
    Cut { percent: u64 },
    /// Writes rows of the worker's columns, within one chunk.
    Store { row: u64, rows: u64 },
    /// Looks at all of the grid.
    Look,
}

/// The rows of one worker, by their numbers; 0 stands for zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gridded {
    log: Option<Vec<u64>>,
    columns: Vec<u64>,
}

impl Default for Gridded {
    fn default() -> Self {
        Gridded { log: None, columns: vec![0; ROWS as usize] }
    }
}

fn chunked(shape: [u64; 2], chunks: [u64; 2], codec: &str) -> NewObject {
    let codec = codec.parse().expect("a codec's name");
    let layout = Layout::Chunked { chunks: chunks.to_vec(), codec };
    NewObject { shape: shape.to_vec(), layout, ..array(0, Vec::new()) }
}

/// Makes the grid.
pub(crate) fn make(realm: &Realm) {
    let shape = [ROWS, WRITING as u64 * WORDS];
    let new = chunked(shape, [CHUNK_ROWS, 2 * WORDS], "shuffle+zstd");
    realm.create_zeroed(realm.root(), GRID, &new, over(index_mode(0))).expect("the grid");
}

fn log_of(slot: usize) -> String {
    format!("common/log-{slot}")
}

/// What follows from a seed.
fn act(seed: u64) -> Act {
    let mut random = Random(seed);
    match random.below(12) {
        0 => Act::Make { rows: random.below(MOST), codec: CODECS[random.below(5) as usize] },
        1..5 => Act::Append { rows: 1 + random.below(MOST - 1) },
        5 | 6 => Act::Cut { percent: random.below(120) },
        7..11 => {
            let row = random.below(ROWS);
            Act::Store { row, rows: 1 + random.below(CHUNK_ROWS - row % CHUNK_ROWS) }
        }
        _ => Act::Look,
    }
}

/// The numbers of rows that are written at once.
fn numbers(version: u64, rows: u64) -> impl Iterator<Item = u64> {
    (0..rows).map(move |place| version * MOST + place)
}

fn bytes_of(slot: usize, version: u64, rows: u64) -> Vec<u8> {
    let row = |number| (0..WORDS).map(move |place| word_of(slot as u64, number, place as usize));
    numbers(version, rows).flat_map(row).flat_map(u64::to_le_bytes).collect()
}

fn oid_of(at: &Namespace, path: &str) -> Result<Oid> {
    match at.lookup(at.root(), path)? {
        Some(Member::Object(oid)) => Ok(oid),
        _ => Err(Error::new(Kind::NotFound, "there is no such name")),
    }
}

/// The rows of a box as wide as a worker's columns.
fn load(at: &Namespace, oid: Oid, columns: u64, rows: u64) -> Result<Vec<Vec<u64>>> {
    let mut bytes = vec![0; (rows * WORDS * 8) as usize];
    at.load_slab(oid, &[0, columns], &[rows, WORDS], &mut bytes)?;
    let words = |row: &[u8]| (0..WORDS as usize).map(|at| Words::Copied(row).at(at)).collect();
    Ok(bytes.chunks_exact((WORDS * 8) as usize).map(words).collect())
}

/// Does what follows from a seed.
pub(crate) fn perform(at: &Namespace, slot: usize, seed: u64, version: u64) -> Result<()> {
    let log = log_of(slot);
    match act(seed) {
        Act::Make { rows, codec } => {
            let new = chunked([rows, WORDS], [LOG_CHUNK, WORDS], codec);
            let data = bytes_of(slot, version, rows);
            at.put(at.root(), &log, &new, &data, over(index_mode(0))).map(drop)
        }
        Act::Append { rows } => {
            let data = bytes_of(slot, version, rows);
            at.append(oid_of(at, &log)?, 0, &[rows, WORDS], &data).map(drop)
        }
        Act::Cut { percent } => {
            let oid = oid_of(at, &log)?;
            let rows = at.object(oid)?.shape[0] * percent / 100;
            at.reshape(oid, &[rows, WORDS])
        }
        Act::Store { row, rows } => {
            let (place, data) = ([row, slot as u64 * WORDS], bytes_of(slot, version, rows));
            at.store_slab(oid_of(at, GRID)?, &place, &[rows, WORDS], &data, Flush::Once)
        }
        Act::Look => {
            let oid = oid_of(at, GRID)?;
            for whose in 0..WRITING as u64 {
                for row in load(at, oid, whose * WORDS, ROWS)? {
                    let is_whole =
                        (0..).zip(&row).all(|(at, word)| *word == word_of(whose, row[1], at));
                    assert!(
                        is_whole || row.iter().all(|word| *word == 0),
                        "a row of {whose}: {row:x?}"
                    );
                }
            }
            Ok(())
        }
    }
}

impl Gridded {
    /// Does to the model what follows from a seed; how that must end.
    pub(crate) fn imagine(&mut self, seed: u64, version: u64) -> Outcome {
        let act = act(seed);
        match (act, &mut self.log) {
            (Act::Make { rows, .. }, log) => *log = Some(numbers(version, rows).collect()),
            (Act::Append { rows }, Some(log)) => log.extend(numbers(version, rows)),
            (Act::Cut { percent }, Some(log)) => log.resize(log.len() * percent as usize / 100, 0),
            (Act::Append { .. } | Act::Cut { .. }, None) => return Outcome::Refused,
            (Act::Store { row, rows }, _) => {
                let places = &mut self.columns[row as usize..];
                places.iter_mut().zip(numbers(version, rows)).for_each(|(to, from)| *to = from);
            }
            (Act::Look, _) => {}
        }
        Outcome::Done
    }
}

/// Compares what a worker has there with its model; how many rows were compared.
pub(crate) fn compare(
    at: &Namespace,
    slot: usize,
    model: &Gridded,
) -> std::result::Result<u64, String> {
    let told = |error: Error| error.to_string();
    let (path, columns) = (log_of(slot), slot as u64 * WORDS);
    let grid = oid_of(at, GRID).map_err(told)?;
    let rows = load(at, grid, columns, ROWS).map_err(told)?;
    misfit(slot, &rows, &model.columns).map_or(Ok(()), |why| Err(format!("{GRID}: {why}")))?;
    let found = at.lookup(at.root(), &path).map_err(told)?;
    match (found, &model.log) {
        (None, None) => Ok(ROWS),
        (Some(Member::Object(oid)), Some(log)) => {
            let shape = at.object(oid).map_err(told)?.shape;
            if shape != [log.len() as u64, WORDS] {
                return Err(format!("{path} has the shape {shape:?}, and {} rows", log.len()));
            }
            let rows = load(at, oid, 0, shape[0]).map_err(|error| format!("{path}: {error}"))?;
            misfit(slot, &rows, log).map_or(Ok(()), |why| Err(format!("{path}: {why}")))?;
            Ok(ROWS + shape[0])
        }
        (found, log) => Err(format!("{path} is {found:x?}, and must be there: {}", log.is_some())),
    }
}

/// What is not as it must be.
fn misfit(slot: usize, rows: &[Vec<u64>], numbers: &[u64]) -> Option<String> {
    let fits = |row: &[u64], number: u64| match number {
        0 => row.iter().all(|word| *word == 0),
        _ => (0..).zip(row).all(|(at, word)| *word == word_of(slot as u64, number, at)),
    };
    let at = rows.iter().zip(numbers).position(|(row, number)| !fits(row, *number))?;
    Some(format!("row {at} is {:x?}, and must be {:#x}", rows[at], numbers[at]))
}
