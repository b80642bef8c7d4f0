//! What is asked beside the query itself, and what comes back.

use std::cmp::Ordering;

use engram_base::error::Result;
use engram_base::id::{Gid, Oid};
use engram_columns::cell::{Cell, total_order};
use engram_columns::literal::Literal;
use engram_index::IndexSettings;

/// Which objects a query sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Every object, as the newest commit has it.
    #[default]
    Strong,
    /// Objects that wait in the queue as the index has them, which may be not at all. Their rows
    /// need not be read.
    Eventual,
}

/// How a query is answered.
#[derive(Clone, Debug, Default)]
pub struct QueryOptions {
    /// Which objects it sees.
    pub consistency: Consistency,
    /// How many threads search at most; `None` for as many as help. None is started where there is
    /// less to do than it takes to start one.
    pub threads: Option<usize>,
    /// Have all of them search however little there is to do: tests ask for it.
    pub threads_for_little: bool,
    /// Judge every record, and leave the index alone.
    pub brute_force: bool,
    /// A hint: have the attributes that the query names kept together from the next maintenance on,
    /// as if they had been asked for together often.
    pub merge: bool,
    /// A hint: split families of objects with this attribute by value, from the next maintenance
    /// on: what is below the value, and the others.
    pub split_on: Option<(String, Literal)>,
    /// A hint: have families of objects with an attribute that the query names split by value, from
    /// the next maintenance on, where they have more objects than so many full segments.
    ///
    /// No hint changes an answer, nor groups whose policy is fixed; and a process that may only
    /// read gives none.
    pub split_threshold: Option<u32>,
    /// Only objects below this group; `None` for the whole namespace. Relative paths in the query
    /// start here too.
    pub root: Option<Gid>,
}

impl QueryOptions {
    /// Refuses what cannot be.
    pub fn check(&self) -> Result<()> {
        if self.split_on.is_none() && self.split_threshold.is_none() {
            return Ok(());
        }
        let settings = IndexSettings {
            split_on: self.split_on.clone(),
            split_threshold: self.split_threshold,
            ..IndexSettings::default()
        };
        settings.check()
    }
}

/// The objects that a query finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// In the order that was asked for; ascending where none was.
    pub oids: Vec<Oid>,
    /// The transaction that the query saw.
    pub snapshot: u64,
}

/// Figures of the objects that a query finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TotalsAnswer {
    /// What each column is, as the query says it: the fields of groups first.
    pub columns: Vec<String>,
    /// A row for each group. `None` is what no object of the group has.
    pub rows: Vec<Vec<Option<Figure>>>,
    /// The transaction that the query saw.
    pub snapshot: u64,
}

/// One value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// A whole number.
    Int(i128),
    /// Another number.
    Float(f64),
    /// A string.
    Text(String),
    /// An instant, in ns since 1970.
    Time(i128),
}

impl Figure {
    /// A cell as a figure; none of what equals nothing.
    pub(crate) fn of(cell: &Cell<'_>) -> Option<Self> {
        Some(match cell {
            Cell::Int(value) => Figure::Int(i128::from(*value)),
            Cell::Big(value) => Figure::Int(i128::from(*value)),
            Cell::Float(value) => Figure::Float(*value),
            Cell::Text(text) => Figure::Text(text.to_string()),
            Cell::Time(value) => Figure::Time(i128::from(*value)),
            Cell::Far(value) => Figure::Time(value.ns()),
            Cell::Other => return None,
        })
    }

    /// The order of two in a column: what is missing comes last, whichever the direction.
    pub(crate) fn order(a: Option<&Self>, b: Option<&Self>, descending: bool) -> Ordering {
        match (a, b) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) if descending => b.compare(a),
            (Some(a), Some(b)) => a.compare(b),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Figure::Int(a), Figure::Int(b)) | (Figure::Time(a), Figure::Time(b)) => a.cmp(b),
            (Figure::Text(a), Figure::Text(b)) => a.cmp(b),
            _ => total_order(&self.cell(), &other.cell()),
        }
    }

    fn cell(&self) -> Cell<'_> {
        match self {
            Figure::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(value), _) => Cell::Int(value),
                (_, Ok(value)) => Cell::Big(value),
                #[expect(clippy::cast_precision_loss, reason = "beyond 64 bits")]
                _ => Cell::Float(*value as f64),
            },
            Figure::Float(value) => Cell::Float(*value),
            Figure::Text(text) => Cell::Text(text.as_str().into()),
            Figure::Time(value) => Cell::instant(*value),
        }
    }
}

/// An object that a query finds, with what merging it among the hits of other pools takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// The object.
    pub oid: Oid,
    /// Its path.
    pub path: String,
    /// Bytes in the order that was asked for; none where none was.
    pub key: Vec<u8>,
}

/// How a query was answered: counts, and what became of each part of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The transaction that the query saw.
    pub snapshot: u64,
    /// The query as it was run.
    pub query: String,
    /// The conditions that were searched for, and how.
    pub leaves: Vec<LeafExplanation>,
    /// Segments, in the order of their numbers.
    pub segments: Vec<SegmentExplanation>,
    /// Objects judged by their records, by where they were found.
    pub records: RecordCounts,
    /// How many threads searched.
    pub threads: usize,
    /// Objects found.
    pub hits: u64,
}

/// One condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeafExplanation {
    /// The condition.
    pub test: String,
    /// How it is answered.
    pub how: String,
}

/// What became of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentExplanation {
    /// Its number.
    pub segment: u32,
    /// Its family.
    pub family: u32,
    /// Its objects, dead ones included.
    pub objects: u32,
    /// Whether its columns were read; if not, `why` says what decided.
    pub read: bool,
    /// Why it was read, or not.
    pub why: String,
    /// Blocks of columns that were read.
    pub blocks: u32,
    /// Bytes of these.
    pub bytes: u64,
    /// The thread that searched it.
    pub worker: usize,
    /// Objects found in it by its columns.
    pub hits: u64,
    /// Objects in it that only their records could judge.
    pub verified: u64,
}

/// Objects judged by their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// By brute force.
    pub scanned: u64,
    /// In the tail: by their records, or by cells that this process has kept of them.
    pub tail: u64,
    /// Records of the tail that were read for this. What was read once is kept as cells.
    pub tail_read: u64,
    /// In the queue.
    pub queue: u64,
    /// Of mode `none`.
    pub unindexed: u64,
    /// Changed by the batch that asks.
    pub batch: u64,
    /// In segments, where columns could not decide.
    pub verified: u64,
    /// Read for what they are ordered by: no column says it.
    pub ordered: u64,
}

impl RecordCounts {
    /// Adds those of another search.
    pub fn add(&mut self, other: &RecordCounts) {
        self.scanned += other.scanned;
        self.tail += other.tail;
        self.tail_read += other.tail_read;
        self.queue += other.queue;
        self.unindexed += other.unindexed;
        self.batch += other.batch;
        self.verified += other.verified;
        self.ordered += other.ordered;
    }

    /// All that were judged.
    pub fn total(&self) -> u64 {
        self.scanned + self.tail + self.queue + self.unindexed + self.batch + self.verified
    }
}
