//! `simulate NODES HISTORIES [--seed S] [--seconds N] [--without RULE]`
//!
//! Runs so many histories of a cluster of so many nodes, from this seed on. Where a history
//! violates an invariant, the shortest such is shown. Without a rule that is what is asked for: the
//! program fails where none is found.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use engram_protocol::{Rule, Rules};
use engram_simulate::{Setup, inputs, run, run_all, shown};

const USAGE: &str = "simulate NODES HISTORIES [--seed S] [--seconds N] [--without RULE]";

struct Arguments {
    histories: u64,
    setup: Setup,
    off: Option<Rule>,
}

fn arguments() -> Result<Arguments, String> {
    let mut given = std::env::args().skip(1);
    let mut number = |what: &str| {
        let text = given.next().ok_or_else(|| format!("{what} is missing: {USAGE}"))?;
        text.parse::<u64>().map_err(|_| format!("{what} is a number, not {text:?}"))
    };
    let (nodes, histories) = (number("NODES")?.max(1) as usize, number("HISTORIES")?);
    let mut setup = Setup { nodes, seconds: 120, rules: Rules::ALL, seed: 0 };
    let mut off = None;
    while let Some(option) = given.next() {
        let value = given.next().ok_or_else(|| format!("{option} has no value: {USAGE}"))?;
        let number =
            || value.parse::<u64>().map_err(|_| format!("{option} is a number, not {value:?}"));
        match option.as_str() {
            "--seed" => setup.seed = number()?,
            "--seconds" => setup.seconds = number()?,
            "--without" => {
                let is_it = |rule: &Rule| format!("{rule:?}").eq_ignore_ascii_case(&value);
                let rules = || format!("a rule is one of {:?}, not {value:?}", Rule::ALL);
                let rule = Rule::ALL.into_iter().find(is_it).ok_or_else(rules)?;
                (off, setup.rules) = (Some(rule), Rules::without(rule));
            }
            _ => return Err(format!("there is no option {option}: {USAGE}")),
        }
    }
    Ok(Arguments { histories, setup, off })
}

fn main() -> ExitCode {
    let Arguments { histories, setup, off } = match arguments() {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let begun = Instant::now();
    let (tally, violated) = run_all(&setup, setup.seed..setup.seed + histories);
    let (count, took) = (violated.len(), begun.elapsed().as_secs_f64());
    let mut told = format!(
        "{} nodes, {histories} histories in {took:.0} s, {count} with a violation; in the others:\n\
         {tally}\n",
        setup.nodes
    );
    let mut kinds = BTreeMap::new();
    for violation in violated.iter().filter_map(|setup| run(setup, &inputs(setup)).err()) {
        *kinds.entry(violation.of).or_insert(0) += 1;
    }
    told.extend(kinds.into_iter().map(|(of, count)| format!("{count} of {of}\n")));
    if let Some(first) = violated.first() {
        told += &shown(first);
        told.push('\n');
    }
    // Whoever reads may have seen enough.
    let _ = std::io::stdout().write_all(told.as_bytes());
    if violated.is_empty() == off.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
