//! `engram-mount`: the mount as a program of its own; see the crate's documentation.

use std::process::ExitCode;

fn main() -> ExitCode {
    match engram_mount::run(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engram-mount: {}", error.message());
            ExitCode::from(error.kind().exit_code())
        }
    }
}
