//! How a query was answered, as plain values.

use pyo3::prelude::*;

/// One segment of the index: (number, family, objects, read, why, blocks, bytes, worker, hits,
/// verified).
type Segment = (u32, u32, u32, bool, String, u32, u64, usize, u64, u64);

/// How a query was answered.
#[pyclass(frozen, get_all, module = "engram._engram")]
pub struct Explanation {
    /// The transaction that it saw.
    snapshot: u64,
    /// How many threads searched.
    threads: usize,
    /// How many objects were found.
    hits: u64,
    /// The conditions: each in words, and how it is answered.
    leaves: Vec<(String, String)>,
    /// The index's segments, in the order of their numbers.
    segments: Vec<Segment>,
    /// Objects that were judged by their records, by where these were found.
    records: Vec<(&'static str, u64)>,
}

impl From<engram::Explanation> for Explanation {
    fn from(found: engram::Explanation) -> Self {
        let records = found.records;
        Explanation {
            snapshot: found.snapshot,
            threads: found.threads,
            hits: found.hits,
            leaves: found.leaves.into_iter().map(|leaf| (leaf.test, leaf.how)).collect(),
            segments: found
                .segments
                .into_iter()
                .map(|s| {
                    (
                        s.segment, s.family, s.objects, s.read, s.why, s.blocks, s.bytes, s.worker,
                        s.hits, s.verified,
                    )
                })
                .collect(),
            records: vec![
                ("scanned", records.scanned),
                ("tail", records.tail),
                ("queue", records.queue),
                ("unindexed", records.unindexed),
                ("batch", records.batch),
                ("verified", records.verified),
                ("ordered", records.ordered),
            ],
        }
    }
}
