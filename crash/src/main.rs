//! `make crash`: the long campaign. Arguments: how many kills, how often at each step, at least.
//! `STEP=file.announced` leads processes to that step alone.

use std::process::ExitCode;

use engram_crash::campaign::Plan;
use engram_crash::program;

fn main() -> ExitCode {
    program::live_if_asked();
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let kills = numbers.next().unwrap_or(4000);
    let each = numbers.next().unwrap_or(5);
    let only = std::env::var("STEP").ok().map(|name| engram_crash::campaign::number(&name));
    if engram_crash::run(Plan { seed: engram_crash::seed(), kills, each, only }) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
