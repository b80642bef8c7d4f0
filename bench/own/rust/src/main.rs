//! Measures the engine without Python, beside bare LMDB putting the same rows.
//!
//! ```text
//! engram-bench small FOLDER COUNT ROUNDS              create and read 256 B arrays
//! engram-bench files FOLDER COUNT MIB ROUNDS NAME=PATH ...   names and bytes of files
//! engram-bench calls FOLDER COUNT MIB                  the same, one round in one folder
//! engram-bench folders POOL FOLDER FEW MANY LISTED OPENS ROUNDS   large folders
//! engram-bench list FOLDER COUNT                      list a folder, and look at its files
//! engram-bench fragments FOLDER SEGMENTS READS ROUNDS a file in very many segments
//! engram-bench rank fs=POOL|calls=FOLDER RANK         do what each line of the input says
//! engram-bench growth FOLDER NAMES FEW MANY PUTS ROUNDS   create where there are many already
//! engram-bench modes FOLDER COUNT ROUNDS              put with each mode of the index
//! engram-bench drain POOL                             drain the queue until the input ends
//! engram-bench build POOL COUNT                       leave a pool with that many arrays
//! engram-bench fill POOL CORPUS MODE PER_GROUP POLICY DURABILITY BATCH  leave a pool of a corpus
//! engram-bench peers FOLDER CORPUS WHO DURABILITY     build what Engram's index is compared with
//! engram-bench ask FOLDER CORPUS QUESTIONS ROUNDS NAMES   the pool evaluation.pool and its peers
//! engram-bench memory FOLDER QUESTIONS                what its queries take
//! ```
//!
//! `NAMES` is `ordered` or `random`. Each prints JSON: seconds for each unit of work, one number a
//! round. `bench/own/rust.py` runs it and judges.

#![allow(clippy::cast_precision_loss, reason = "counts and sizes here are far below 2^53")]

mod bare;
mod contestants;
mod corpus;
mod counting;
mod evaluate;
mod files;
mod folders;
mod fragments;
mod growth;
mod miqs;
mod modes;
mod ours;
mod radix;
mod rank;
mod small;
mod sqlite;
mod store;

use std::path::Path;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Any failure ends the program with its message.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["small", folder, count, rounds] => numbers([count, rounds])
            .and_then(|[count, rounds]| small::measure(Path::new(folder), count, rounds)),
        ["files", folder, count, mib, rounds, ref others @ ..] => numbers([count, mib, rounds])
            .and_then(|[count, mib, rounds]| {
                files::measure(Path::new(folder), files::Plan { count, mib, rounds }, others)
            }),
        ["calls", folder, count, mib] => numbers([count, mib]).and_then(|[count, mib]| {
            files::once(contestants::Calls::in_folder(folder), count, mib)
        }),
        ["folders", pool, folder, few, many, listed, opens, rounds] => {
            numbers([few, many, listed, opens, rounds]).and_then(
                |[few, many, listed, opens, rounds]| {
                    let plan = folders::Plan { few, many, listed, opens, rounds };
                    folders::measure(Path::new(pool), folder, plan)
                },
            )
        }
        ["list", folder, count] => {
            numbers([count]).and_then(|[count]| folders::list(folder, count))
        }
        ["fragments", folder, segments, reads, rounds] => numbers([segments, reads, rounds])
            .and_then(|[segments, reads, rounds]| {
                fragments::measure(Path::new(folder), segments, reads, rounds)
            }),
        ["rank", place, rank] => rank::serve(place, rank),
        ["modes", folder, count, rounds] => numbers([count, rounds])
            .and_then(|[count, rounds]| modes::measure(Path::new(folder), count, rounds)),
        ["drain", pool] => modes::drain(Path::new(pool)),
        ["growth", folder, names, few, many, puts, rounds] => numbers([few, many, puts, rounds])
            .and_then(|[few, many, puts, rounds]| {
                let plan = growth::Plan { few, many, puts, rounds, random: names == "random" };
                growth::measure(Path::new(folder), &plan)
            }),
        ["build", pool, count] => numbers([count]).and_then(|[count]| {
            let mut store = store::Store::create(Path::new(pool), store::Made::default())?;
            store.fill(count, false)?;
            Ok(format!("{{\"objects\": {count}}}"))
        }),
        ["fill", pool, corpus, mode, per_group, policy, durability, batch] => {
            let words = [mode, per_group, policy, durability, batch];
            evaluate::fill(Path::new(pool), Path::new(corpus), words)
        }
        ["peers", folder, corpus, who, durability] => {
            evaluate::peers(Path::new(folder), Path::new(corpus), [who, durability])
        }
        ["ask", folder, corpus, questions, rounds, names] => {
            numbers([rounds]).and_then(|[rounds]| {
                let [folder, corpus, questions] = [folder, corpus, questions].map(Path::new);
                evaluate::ask(folder, corpus, questions, rounds, names)
            })
        }
        ["memory", folder, questions] => evaluate::memory(Path::new(folder), Path::new(questions)),
        _ => Err("usage: engram-bench small|growth|build …; see src/main.rs".into()),
    };
    match done {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("engram-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn numbers<const N: usize>(words: [&str; N]) -> Result<[u64; N]> {
    let mut found = [0; N];
    for (number, word) in found.iter_mut().zip(words) {
        *number = word.parse().map_err(|_| format!("{word} is not a number"))?;
    }
    Ok(found)
}

/// Named lists of numbers, as a JSON object.
fn json(named: &[(&str, &[f64])]) -> String {
    let entries: Vec<String> = named
        .iter()
        .map(|(name, values)| {
            let values: Vec<String> = values.iter().map(|value| format!("{value:e}")).collect();
            format!("\"{name}\": [{}]", values.join(", "))
        })
        .collect();
    format!("{{{}}}", entries.join(", "))
}
