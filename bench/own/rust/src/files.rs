//! Files: names and bytes by `Fs`, beside system calls in folders, by turns. One folder is on the
//! machine's own file system; others may be mounts, which have the kernel between besides.

use std::hint::black_box;
use std::path::Path;

use engram::{CreateOptions, Pool};

use crate::contestants::{Bytes, Calls, Contestant, InPool};
use crate::store::timed;
use crate::{Result, json};

const SMALL: usize = 4 << 10;
const LARGE: usize = 128 << 10;
const WITHIN: u64 = 1 << 20;
const RECORD: usize = 100;

/// What a contestant does with a name.
type OfName = fn(&dyn Contestant, &str) -> Result<()>;

/// What is measured of names.
const NAMES: [(&str, OfName); 4] = [
    ("create", |who, name| who.create(name)),
    ("stat", |who, name| who.stat(name)),
    ("open", |who, name| who.open(name)),
    ("unlink", |who, name| who.unlink(name)),
];

/// Seconds by what was done and by who did it, each in the order in which it came first.
#[derive(Default)]
pub struct Found(Vec<(&'static str, Rounds)>);

/// Seconds of each round, by contestant.
type Rounds = Vec<(String, Vec<f64>)>;

impl Found {
    /// Adds a round's.
    pub fn add(&mut self, work: &'static str, who: &str, seconds: f64) {
        let place = self.0.iter().position(|(name, _)| *name == work).unwrap_or_else(|| {
            self.0.push((work, Vec::new()));
            self.0.len() - 1
        });
        let rounds = &mut self.0[place].1;
        match rounds.iter_mut().find(|(name, _)| name == who) {
            Some((_, taken)) => taken.push(seconds),
            None => rounds.push((who.to_owned(), vec![seconds])),
        }
    }

    /// As a JSON object.
    pub fn json(&self) -> String {
        let parts = self.0.iter().map(|(work, rounds)| {
            let named: Vec<(&str, &[f64])> =
                rounds.iter().map(|(who, taken)| (who.as_str(), taken.as_slice())).collect();
            format!("\"{work}\": {}", json(&named))
        });
        format!("{{{}}}", parts.collect::<Vec<_>>().join(", "))
    }
}

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Files, and small reads and writes, in a round.
    pub count: u64,
    /// The size of the file that is written and read in large pieces.
    pub mib: u64,
    /// Rounds after one to warm up.
    pub rounds: u64,
}

/// Measures in `folder`, and in `others`, folders by name.
pub fn measure(folder: &Path, plan: Plan, others: &[&str]) -> Result<String> {
    let pool_path = folder.join("files.pool");
    let size = (plan.mib << 20) * 2 + (256 << 20);
    drop(Pool::create(&pool_path, &CreateOptions { size, ..Default::default() })?);
    let mut all: Vec<Box<dyn Contestant>> = vec![Box::new(InPool::open(&pool_path)?)];
    for other in others {
        all.push(Box::new(Calls::named(other)?));
    }
    let mut found = Found::default();
    for round in 0..=plan.rounds {
        let mut unused = Found::default();
        let found = if round == 0 { &mut unused } else { &mut found };
        names(found, plan.count, &all)?;
        small(found, plan.count, &all)?;
        large(found, plan.mib, &all)?;
    }
    drop(all);
    Pool::destroy(&pool_path)?;
    Ok(found.json())
}

/// Measures a round of one contestant alone, and of plain memory.
pub fn once(who: Box<dyn Contestant>, count: u64, mib: u64) -> Result<String> {
    let (mut found, all) = (Found::default(), [who]);
    names(&mut found, count, &all)?;
    small(&mut found, count, &all)?;
    large(&mut found, mib, &all)?;
    Ok(found.json())
}

fn names(found: &mut Found, count: u64, all: &[Box<dyn Contestant>]) -> Result<()> {
    let name = |number: u64| format!("file-{number:08}");
    for (work, each) in NAMES {
        for who in all {
            let run = || (0..count).try_for_each(|number| each(who.as_ref(), &name(number)));
            found.add(work, &who.name(), timed(count, run)?);
        }
    }
    Ok(())
}

/// Small pieces within 1 MiB, and records behind the end.
fn small(found: &mut Found, count: u64, all: &[Box<dyn Contestant>]) -> Result<()> {
    let data = vec![7; WITHIN as usize];
    let mut into = vec![0; SMALL];
    let place = |turn: u64| turn.wrapping_mul(0x9e37_79b9) % (WITHIN / SMALL as u64) * SMALL as u64;
    for who in all {
        let mut file = who.file("bytes", false)?;
        file.write(0, &data)?;
        let write = || (0..count).try_for_each(|turn| file.write(place(turn), &data[..SMALL]));
        found.add("write 4 KiB", &who.name(), timed(count, write)?);
        let read = || (0..count).try_for_each(|turn| file.read(place(turn), &mut into));
        found.add("read 4 KiB", &who.name(), timed(count, read)?);
        drop(file);
        who.unlink("bytes")?;
        let mut log = who.file("log", true)?;
        let append = || (0..count).try_for_each(|_| log.write(0, &data[..RECORD]));
        found.add("append 100 B", &who.name(), timed(count, append)?);
        drop(log);
        who.unlink("log")?;
    }
    black_box(into);
    Ok(())
}

/// Large pieces of a large file, whose space was touched before; plain memory takes part.
fn large(found: &mut Found, mib: u64, all: &[Box<dyn Contestant>]) -> Result<()> {
    let data = vec![7; LARGE];
    let mut into = vec![0; LARGE];
    let (places, size) = ((mib << 20) / LARGE as u64, (mib << 20) as usize);
    let mut one = |name: &str, file: &mut dyn Bytes| -> Result<()> {
        let mut write =
            || (0..places).try_for_each(|at| file.write(at * LARGE as u64, black_box(&data)));
        write()?;
        found.add("write 128 KiB", name, timed(places, write)?);
        let read = || (0..places).try_for_each(|at| file.read(at * LARGE as u64, &mut into));
        found.add("read 128 KiB", name, timed(places, read)?);
        black_box(&into);
        Ok(())
    };
    for who in all {
        one(&who.name(), who.file("large", false)?.as_mut())?;
        who.unlink("large")?;
    }
    one("memcpy", &mut vec![1_u8; size])
}

/// Memory: what copying alone takes.
impl Bytes for Vec<u8> {
    fn write(&mut self, at: u64, data: &[u8]) -> Result<()> {
        self[at as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(&self[at as usize..][..into.len()]);
        Ok(())
    }
}
