//! The campaign, short: a hundred and some kills, some of the steps.

use std::process::{Command, ExitCode};

use engram_crash::campaign::Plan;
use engram_crash::program;

fn main() -> ExitCode {
    program::live_if_asked();
    build_the_library();
    if engram_crash::run(Plan { seed: engram_crash::seed(), kills: 150, each: 0, only: None }) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// cargo builds no library that a test preloads: it is asked for here, unless one is named. It has
/// the features of all tests (`tests/programs.py`): what they have built is not built again.
fn build_the_library() {
    if std::env::var_os("ENGRAM_PRELOAD_LIBRARY").is_some() {
        return;
    }
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "test", "-p", "engram-preload"])
        .args(["--features", "faults,engram-store/tracing"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.expect("cargo").success(), "the library to preload does not build");
}
