//! The evaluation: a corpus in a pool, in MIQS+ and in `SQLite`, and the same questions to each.
//!
//! `bench/evaluation/` makes the corpus and the questions and judges what is printed here. A line
//! of the file of questions is: name, what is wanted (`objects`, or `attributes` to count), the
//! query in Engram's language, the same in SQL; with tabs in between.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use engram::query::ast::Query;
use engram::query::parse;
use engram::{Durability, IndexMode, Policy, QueryOptions};

use crate::corpus::Corpus;
use crate::miqs::Miqs;
use crate::ours::{Ours, Plan};
use crate::sqlite::Sqlite;
use crate::{Result, counting, json};

/// A round asks until this has passed.
const ROUND: Duration = Duration::from_millis(30);
const MOST: usize = 2000;

/// One question.
pub struct Question {
    name: String,
    counts: bool,
    query: Query,
    sql: String,
}

pub fn questions(path: &Path) -> Result<Vec<Question>> {
    let text = std::fs::read_to_string(path)?;
    let question = |line: &str| {
        let [name, wanted, text, sql] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("a question has four fields: {line}").into());
        };
        let (query, sql) = (parse(text)?, sql.to_owned());
        Ok(Question { name: name.to_owned(), counts: wanted == "attributes", query, sql })
    };
    text.lines().map(question).collect()
}

/// Fills a pool, which stays; seconds for each object, and the catalog's bytes.
pub fn fill(pool: &Path, corpus: &Path, words: [&str; 5]) -> Result<String> {
    let [mode, per_group, policy, durability, batch] = words;
    let plan = Plan {
        mode: match mode {
            "none" => IndexMode::None,
            "async" => IndexMode::Async,
            _ => IndexMode::Sync,
        },
        per_group: per_group.parse()?,
        policy: if policy == "fixed" { Policy::Fixed } else { Policy::Dynamic },
        durability: match durability {
            "system" => Durability::System,
            _ => Durability::Process,
        },
        batch: batch.parse()?,
    };
    let corpus = Corpus::read(corpus)?;
    let ours = Ours::create(pool, &plan)?;
    let taken_s = ours.fill(&corpus, &plan)?;
    let bytes = ours.close()?;
    let tables: Vec<(&str, [f64; 1])> = bytes.tables.iter().map(|(t, b)| (*t, [*b])).collect();
    let tables: Vec<(&str, &[f64])> = tables.iter().map(|(t, b)| (*t, &b[..])).collect();
    let whole = json(&[("taken", &[taken_s]), ("catalog", &[bytes.whole])]);
    Ok(format!("{{\"whole\": {whole}, \"tables\": {}}}", json(&tables)))
}

/// Builds MIQS+ and `SQLite`: seconds for each object and bytes of their indexes.
pub fn peers(folder: &Path, corpus: &Path, words: [&str; 2]) -> Result<String> {
    let corpus = Corpus::read(corpus)?;
    let (mut taken, mut bytes) = (Vec::new(), Vec::new());
    for (name, presence) in [("MIQS+", false), ("MIQS+ with presence", true)] {
        let (miqs, taken_s, held) = miqs(&corpus, presence);
        drop(miqs);
        taken.push((name, [taken_s]));
        bytes.push((name, [held]));
    }
    if words[0] == "sqlite" {
        let sqlite = Sqlite::create(&folder.join("peer.sqlite"), &corpus, words[1] == "system")?;
        taken.push(("SQLite", [sqlite.taken_s]));
        bytes.push(("SQLite", [sqlite.index_bytes()?]));
        sqlite.remove()?;
    }
    let slices = |named: &[(&'static str, [f64; 1])]| {
        let named: Vec<(&str, &[f64])> = named.iter().map(|(n, v)| (*n, &v[..])).collect();
        json(&named)
    };
    Ok(format!("{{\"taken\": {}, \"bytes\": {}}}", slices(&taken), slices(&bytes)))
}

fn miqs(corpus: &Corpus, presence: bool) -> (Miqs, f64, f64) {
    let ((miqs, taken_s), held, _) = counting::counted(|| {
        let mut miqs = Miqs::new(presence);
        let mut taken_s = 0.0;
        for place in 0..corpus.len() {
            let path = corpus.path(place);
            let start = Instant::now();
            miqs.insert(&path, corpus.attributes(place));
            taken_s += start.elapsed().as_secs_f64();
        }
        miqs.shrink();
        (miqs, taken_s)
    });
    (miqs, taken_s / corpus.len() as f64, held as f64)
}

/// What answers a question: the number of attributes, or the objects as it names them.
enum Found {
    Count(u64),
    Objects(Vec<u64>),
}

/// Who is asked.
enum Contestant {
    Engram { ours: Box<Ours>, options: QueryOptions },
    Miqs(Miqs),
    Sqlite(Sqlite),
}

impl Contestant {
    fn new(name: &str, folder: &Path, corpus: &Corpus) -> Result<Self> {
        let pool = folder.join("evaluation.pool");
        let one = QueryOptions { threads: Some(1), ..Default::default() };
        Ok(match name {
            "MIQS+" => Contestant::Miqs(miqs(corpus, false).0),
            "MIQS+ with presence" => Contestant::Miqs(miqs(corpus, true).0),
            "SQLite" => {
                let sqlite = Sqlite::create(&folder.join("evaluation.sqlite"), corpus, false)?;
                let keys = ["date", "orbit_num", "sky_version", "processing_level"];
                let there = |key: &&str| corpus.columns.iter().any(|column| column.name == *key);
                if keys.iter().all(there) {
                    let both = ["d_lat", "d_lon"].into_iter().filter(there);
                    sqlite.index_together(&keys.into_iter().chain(both).collect::<Vec<_>>())?;
                }
                Contestant::Sqlite(sqlite)
            }
            "brute force" => {
                let options = QueryOptions { brute_force: true, ..one };
                Contestant::Engram { ours: Box::new(Ours::open(&pool)?), options }
            }
            "engram" => Contestant::Engram { ours: Box::new(Ours::open(&pool)?), options: one },
            "engram on two threads" => {
                let options = QueryOptions { threads: Some(2), ..one };
                Contestant::Engram { ours: Box::new(Ours::open(&pool)?), options }
            }
            other => return Err(format!("nobody is called {other}").into()),
        })
    }

    fn ask(&self, question: &Question) -> Result<Found> {
        let query = &question.query;
        Ok(match (self, question.counts) {
            (Contestant::Engram { ours, options }, true) => {
                Found::Count(ours.realm.query_count_attributes(query, options)?)
            }
            (Contestant::Engram { ours, options }, false) => {
                Found::Objects(ours.realm.query(query, options)?.oids)
            }
            (Contestant::Miqs(miqs), true) => {
                Found::Count(miqs.count_attributes(&miqs.query(&query.expr)?))
            }
            (Contestant::Miqs(miqs), false) => {
                let ids = miqs.query(&query.expr)?;
                Found::Objects(ids.into_iter().map(u64::from).collect())
            }
            (Contestant::Sqlite(sqlite), true) => {
                Found::Count(sqlite.number(&question.sql)? as u64)
            }
            (Contestant::Sqlite(sqlite), false) => {
                let ids = sqlite.ids(&question.sql)?;
                Found::Objects(ids.into_iter().map(|id| id as u64).collect())
            }
        })
    }

    /// The paths of what was found, sorted; or the count.
    fn told(&self, corpus: &Corpus, found: Found) -> Result<Vec<String>> {
        let objects = match found {
            Found::Count(count) => return Ok(vec![count.to_string()]),
            Found::Objects(objects) => objects,
        };
        let mut paths = match self {
            Contestant::Engram { ours, .. } => {
                ours.realm.paths_of(&objects)?.into_iter().flatten().collect()
            }
            Contestant::Miqs(miqs) => objects.iter().map(|id| miqs.path(*id as u32)).collect(),
            Contestant::Sqlite(_) => {
                objects.iter().map(|id| corpus.path(*id as usize)).collect::<Vec<_>>()
            }
        };
        paths.sort_unstable();
        Ok(paths)
    }
}

/// Asks all contestants all questions, by turns, once they have been seen to agree.
pub fn ask(folder: &Path, corpus: &Path, file: &Path, rounds: u64, names: &str) -> Result<String> {
    let corpus = Corpus::read(corpus)?;
    let questions = questions(file)?;
    let mut contestants = Vec::new();
    for name in names.split(',') {
        contestants.push((name, Contestant::new(name, folder, &corpus)?));
    }
    let mut lines = Vec::new();
    for question in &questions {
        let hits = agree(question, &contestants, &corpus)? as f64;
        let mut samples: HashMap<&str, Vec<f64>> = HashMap::new();
        for round in 0..=rounds {
            for (name, contestant) in &contestants {
                let taken_s =
                    timed(|| contestant.ask(question).map(|found| drop(black_box(found))))?;
                if round > 0 {
                    samples.entry(name).or_default().push(taken_s);
                }
            }
        }
        let mut named: Vec<(&str, &[f64])> = vec![("hits", std::slice::from_ref(&hits))];
        named.extend(contestants.iter().map(|(name, _)| (*name, &samples[name][..])));
        lines.push(format!("\"{}\": {}", question.name, json(&named)));
    }
    for (_, contestant) in contestants {
        match contestant {
            Contestant::Engram { ours, .. } => drop(ours),
            Contestant::Sqlite(sqlite) => sqlite.remove()?,
            Contestant::Miqs(miqs) => drop(miqs),
        }
    }
    Ok(format!("{{{}}}", lines.join(", ")))
}

fn agree(q: &Question, contestants: &[(&str, Contestant)], corpus: &Corpus) -> Result<usize> {
    let mut first: Option<(&str, Vec<String>)> = None;
    for (name, contestant) in contestants {
        let told = contestant.told(corpus, contestant.ask(q)?)?;
        if let Some((other, expected)) = &first
            && told != *expected
        {
            let (found, wanted) = (told.len(), expected.len());
            return Err(format!("{}: {name} finds {found}, {other} {wanted}", q.name).into());
        }
        first.get_or_insert((name, told));
    }
    let count = first.map_or(0, |(_, told)| told.len());
    Ok(if q.counts { 1 } else { count })
}

/// Seconds for one call, over as many as fit into a round.
fn timed(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for done in 1..=MOST {
        work()?;
        if start.elapsed() > ROUND || done == MOST {
            return Ok(start.elapsed().as_secs_f64() / done as f64);
        }
    }
    unreachable!("the last call returns")
}

/// The most bytes that a process has had beyond the answer, while it asked each question.
pub fn memory(folder: &Path, file: &Path) -> Result<String> {
    let ours = Ours::open(&folder.join("evaluation.pool"))?;
    let mut lines = Vec::new();
    for question in questions(file)? {
        let ask = || ours.realm.query(&question.query, &QueryOptions::default());
        let (answer, _, peak) = counting::counted(ask);
        let hits = answer?.oids.len();
        let beyond = peak.saturating_sub(hits * size_of::<u64>());
        let named = json(&[("engram", &[beyond as f64]), ("hits", &[hits as f64])]);
        lines.push(format!("\"{}\": {named}", question.name));
    }
    Ok(format!("{{{}}}", lines.join(", ")))
}
