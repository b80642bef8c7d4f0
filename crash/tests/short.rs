//! The campaign, short: a hundred and some kills, some of the steps.

use std::process::ExitCode;

use engram_crash::campaign::Plan;

fn main() -> ExitCode {
    if engram_crash::run(Plan { seed: engram_crash::seed(), kills: 150, each: 0 }) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
