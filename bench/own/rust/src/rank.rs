//! One process of several that do the same at once, as a rank of mdtest or IOR does.
//!
//! It reads a line, does what it says, and answers with a line: `done`. Who started it measures
//! from the first line to the last answer.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Result;
use crate::contestants::{Calls, Contestant, InPool};

/// Does what it is told, until the input ends; in the folder `calls=PATH`, or at the root of
/// `fs=POOL`.
pub fn serve(place: &str, rank: &str) -> Result<String> {
    let who: Box<dyn Contestant> = match place.split_once('=') {
        Some(("fs", pool)) => Box::new(InPool::open(Path::new(pool))?),
        _ => Box::new(Calls::named(place)?),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        if let ["write" | "read", path, at, bytes, transfer] = words[..] {
            let range = [at.parse()?, bytes.parse()?, transfer.parse()?];
            transfers(words[0] == "write", Path::new(path), range)?;
        } else if let [work, count] = words[..] {
            names(who.as_ref(), work, rank, count.parse()?)?;
        } else {
            return Err(format!("{line:?} is no work of a rank").into());
        }
        writeln!(std::io::stdout(), "done")?;
    }
    Ok("{}".to_owned())
}

/// What mdtest does with names: this rank's own, in the folder of all.
fn names(who: &dyn Contestant, work: &str, rank: &str, count: u64) -> Result<()> {
    let each: fn(&dyn Contestant, &str) -> Result<()> = match work {
        "create" => |who, name| who.create(name),
        "stat" => |who, name| who.stat(name),
        "unlink" => |who, name| who.unlink(name),
        "mkdir" => |who, name| who.mkdir(name),
        "rmdir" => |who, name| who.rmdir(name),
        _ => return Err(format!("{work:?} is nothing that is done with names").into()),
    };
    (0..count).try_for_each(|number| each(who, &format!("mdtest.{rank}.{number}")))
}

/// What IOR does with bytes: opens, writes or reads a range in pieces, and closes.
fn transfers(write: bool, path: &Path, [at, bytes, transfer]: [u64; 3]) -> Result<()> {
    let mut piece = vec![7; transfer as usize];
    let file = OpenOptions::new().read(true).write(true).create(write).open(path)?;
    for place in (at..at + bytes).step_by(transfer as usize) {
        if write {
            file.write_all_at(black_box(&piece), place)?;
        } else {
            file.read_exact_at(&mut piece, place)?;
        }
    }
    black_box(piece);
    Ok(())
}
