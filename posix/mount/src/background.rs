//! Going on without the process that was started.
//!
//! That one starts this program anew, in the foreground and in a process group of its own, and
//! waits for one line from it: it serves. If it ends before, its sentence has been said, and its
//! code is passed on. A process that has threads and an open pool is never forked.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use engram::{Error, Kind, Result};

use crate::arguments::Arguments;

/// What the process in the background says once it serves.
const READY: &str = "ready";
/// The variable by which it knows that somebody waits for that.
const WAITED_FOR: &str = "ENGRAM_MOUNT_WAITED_FOR";

/// Starts the process that serves, and waits until it does.
pub fn start(arguments: &Arguments) -> Result<()> {
    let refused = |error: std::io::Error| {
        let what = format!("starting the process that serves: {error}");
        Error::new(Kind::Os, what)
    };
    let program = std::env::current_exe().map_err(refused)?;
    let mut child = Command::new(program)
        .args(&arguments.given)
        .arg("--foreground")
        .env(WAITED_FOR, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(refused)?;
    let mut line = String::new();
    if let Some(said) = child.stdout.take() {
        BufReader::new(said).read_line(&mut line).map_err(refused)?;
    }
    if line.trim() == READY {
        return Ok(());
    }
    let ended = child.wait().map_err(refused)?;
    std::process::exit(ended.code().unwrap_or(1))
}

/// Says that the mount serves, if somebody waits for that.
pub fn say_ready() {
    if std::env::var_os(WAITED_FOR).is_some() {
        // Nobody reads what comes after: the pipe breaks, and nothing is written to it any more.
        let _ = writeln!(std::io::stdout(), "{READY}");
    }
}
