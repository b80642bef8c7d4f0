//! What must be true of a pool that is opened after power has failed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use engram::query::parse;
use engram::{CreateOptions, Kind, Mode, Pool, QueryOptions};

use super::work::{Nature, Shown, Step, shown, work_on};

/// What a pool may show: where it was when power failed.
pub struct Expected<'s> {
    steps: &'s [Step],
    /// How many operations were acknowledged.
    pub done: usize,
    /// How many had begun.
    pub begun: usize,
}

type Verdict = Result<(), String>;

impl<'s> Expected<'s> {
    /// Of these operations, so many had begun and ended.
    pub fn new(steps: &'s [Step], done: usize, begun: usize) -> Self {
        Expected { steps, done, begun }
    }

    /// What was being done.
    pub fn doing(&self) -> String {
        let now = self.steps.get(self.begun.max(1) - 1).map_or("", |step| step.what.as_str());
        format!("{} operations acknowledged, {} begun, the last: {now}", self.done, self.begun)
    }

    fn after(&self, steps: usize) -> Arc<Shown> {
        steps.checked_sub(1).map_or_else(Arc::default, |last| Arc::clone(&self.steps[last].after))
    }

    /// For each object that is being written in place, all values that it may have.
    fn loose(&self) -> BTreeMap<&'static str, Loose> {
        let mut loose = BTreeMap::<_, Vec<_>>::new();
        let mut unsynced = BTreeMap::<_, Vec<_>>::new();
        for (at, step) in self.steps[..self.begun].iter().enumerate() {
            match step.nature {
                Nature::Unsynced(path) => {
                    let values = [self.after(at), Arc::clone(&step.after)];
                    let of = |shown: &Arc<Shown>| shown.bytes.get(path).cloned();
                    unsynced.entry(path).or_default().extend(values.iter().filter_map(of));
                }
                Nature::Synced(path) if at < self.done => {
                    unsynced.remove(path);
                }
                Nature::InPlace(path) => {
                    let values = loose.entry(path).or_default();
                    values.extend(self.after(at).bytes.get(path).cloned());
                    values.extend(step.after.bytes.get(path).cloned());
                }
                Nature::Stored(path) if at >= self.done => {
                    let values = [self.after(at), Arc::clone(&step.after)];
                    let of = |shown: &Arc<Shown>| shown.bytes.get(path).cloned();
                    loose.entry(path).or_default().extend(values.iter().filter_map(of));
                }
                Nature::Flush(path) | Nature::Stored(path) if at < self.done => {
                    loose.remove(path);
                }
                _ => {}
            }
        }
        let loose = loose.into_iter().map(|(path, values)| (path, Loose::Words(values)));
        let unsynced = unsynced.into_iter().map(|(path, values)| (path, Loose::File(values)));
        loose.chain(unsynced).collect()
    }

    /// Whether `found` is what may be seen.
    fn admits(&self, found: &Shown) -> Verdict {
        let loose = self.loose();
        let before = differ(found, &self.after(self.done), &loose);
        if before.is_ok() || self.begun == self.done {
            return before;
        }
        let after = differ(found, &self.after(self.begun), &loose);
        after.map_err(|after| {
            format!(
                "neither as before the operation ({}) nor as after it ({after})",
                before.unwrap_err()
            )
        })
    }
}

/// Says in what `found` is not `expected`.
fn differ(found: &Shown, expected: &Shown, loose: &BTreeMap<&'static str, Loose>) -> Verdict {
    for (path, said) in &expected.said {
        match found.said.get(path) {
            None => return Err(format!("{path} is missing")),
            Some(other) if other != said => return Err(format!("{path}: {other}, not {said}")),
            Some(_) => {}
        }
    }
    if let Some(more) = found.said.keys().find(|path| !expected.said.contains_key(*path)) {
        return Err(format!("{more} is there"));
    }
    for (path, bytes) in &expected.bytes {
        let other = found.bytes.get(path).ok_or_else(|| format!("{path} has no value"))?;
        match loose.get(path.as_str()) {
            None if other != bytes => {
                let at = other.iter().zip(&**bytes).position(|(a, b)| a != b);
                let (is, was) = (other.len(), bytes.len());
                return Err(format!("{path} differs at byte {at:?} ({is} bytes, {was} expected)"));
            }
            Some(Loose::Words(values)) if !is_mixed(other, values) => {
                return Err(format!("{path} has words that nobody wrote"));
            }
            Some(Loose::File(values)) => {
                is_unsynced(other, values).map_err(|why| format!("{path}: {why}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Values that an object may have.
enum Loose {
    /// Each word is one of theirs.
    Words(Vec<Arc<Vec<u8>>>),
    /// The size is one of theirs, and each byte that all of them have alike.
    File(Vec<Arc<Vec<u8>>>),
}

/// Whether a file may be so that was not synced since: what was not written is as it was.
fn is_unsynced(found: &[u8], values: &[Arc<Vec<u8>>]) -> Verdict {
    if !values.iter().any(|value| value.len() == found.len()) {
        return Err(format!("it has {} bytes, as it never had", found.len()));
    }
    let kept = |at: usize| {
        let first = values[0].get(at)?;
        values.iter().all(|value| value.get(at) == Some(first)).then_some(*first)
    };
    match (0..found.len()).find(|at| kept(*at).is_some_and(|byte| byte != found[*at])) {
        Some(at) => Err(format!("byte {at} has changed, which nobody wrote")),
        None => Ok(()),
    }
}

/// Whether each word is one of the values'.
fn is_mixed(found: &[u8], values: &[Arc<Vec<u8>>]) -> bool {
    let word = |bytes: &[u8], at: usize| bytes.get(at..at + 8).map(<[u8]>::to_vec);
    (0..found.len()).step_by(8).all(|at| {
        let is = word(found, at);
        values.iter().any(|value| value.len() == found.len() && word(value, at) == is)
    })
}

/// Opens what is at `path` and checks everything; with `work`, also works in it, else verifies it
/// as it was left, before anybody opens it.
pub fn check(path: &Path, expected: &Expected<'_>, work: bool) -> Verdict {
    if !work && expected.done > 0 {
        verified(path).map_err(|error| format!("verified as it was left: {error}"))?;
    }
    let pool = match Pool::open(path, Mode::ReadWrite, false) {
        Ok(pool) => pool,
        Err(error) if expected.done == 0 => return start_again(path, &error),
        Err(error) => return Err(format!("it does not open: {error}")),
    };
    let checked = expected.admits(&shown(&pool)).and_then(|()| queries(&pool));
    let worked = match checked {
        Ok(()) if work => work_on(&pool).map_err(|error| format!("no work in it: {error}")),
        checked => checked,
    };
    pool.close();
    worked?;
    verified(path)
}

fn verified(path: &Path) -> Verdict {
    let report = engram::verify(path).map_err(|error| format!("verify: {error}"))?;
    if report.problems.is_empty() { Ok(()) } else { Err(report.problems.join("; ")) }
}

/// No pool was there yet: what there is can be cleared away, and a pool be made.
fn start_again(path: &Path, error: &engram::Error) -> Verdict {
    if !matches!(error.kind(), Kind::NotFound | Kind::Format) {
        return Err(format!("what is half made does not say so: {error}"));
    }
    let _ = Pool::destroy(path);
    let options = CreateOptions { size: 4 << 20, ..CreateOptions::default() };
    let pool = Pool::create(path, &options);
    let pool = pool.map_err(|error| format!("no pool can be made there: {error}"))?;
    pool.close();
    Ok(())
}

/// The index finds what records say.
fn queries(pool: &Pool) -> Verdict {
    let realm = pool.realm("default").map_err(|error| error.to_string())?;
    for text in ["orbit = 0", "orbit = 1 or orbit = 9", "serial < 20", "not exists(serial)"] {
        let query = parse(text).map_err(|error| error.to_string())?;
        let ask = |brute_force| {
            let options = QueryOptions { brute_force, ..QueryOptions::default() };
            realm.query(&query, &options).map_err(|error| format!("{text}: {error}"))
        };
        let (quick, slow) = (ask(false)?, ask(true)?);
        if quick.oids != slow.oids {
            return Err(format!(
                "{text}: {:?} by the index, {:?} by records",
                quick.oids, slow.oids
            ));
        }
    }
    Ok(())
}
