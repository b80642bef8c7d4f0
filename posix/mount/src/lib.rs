//! The mount: a namespace of a pool as a file system, by FUSE.
//!
//! This crate owns the process that serves a mount. It opens the pool, asks the kernel for the
//! mount, and serves it until it is unmounted or told to end; then it closes the pool. The program
//! `engram-mount` is such a process. So is the one that Python's `engram mount` starts, which has
//! this crate within its module: an installed package needs no program beside it.
//!
//! *Invariant*: the process holds no state that the pool would miss. Killed, it leaves a mount that
//! answers nothing, which `engram unmount` takes away; what was acknowledged is in the pool.
//!
//! | module | what it offers |
//! |---|---|
//! | `arguments` | what it is told to do |
//! | `background` | going on without the process that was started |
//! | `serve` | requests of the kernel, and answers |
//! | `convert` | what the kernel and `Fs` say in different words |
//! | `traced` | what is noted in a trace |
//! | `cached` | what the kernel may keep, and for how long |
//! | `waits` | programs that wait for a lock |
//! | `kernel` | what is asked of the kernel |
//! | `handles` | open files and folders, by the numbers that the kernel has for them |
//! | `replaced` | files whose last name a rename has taken, until the kernel forgets them |

#![deny(missing_docs)]

mod arguments;
mod background;
mod cached;
mod convert;
mod handles;
pub mod kernel;
mod replaced;
mod serve;
mod traced;
mod waits;

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process;
use std::sync::Arc;

use arguments::Arguments;
pub use cached::Cache;
use engram::{Error, Kind, Mode, Pool, Result, Scope};
use engram_fs::{Fs, Options, Tracer};
use fuser::Session;
use kernel::is_root;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Mounts as the arguments of `engram-mount` say, and serves until the end; or, without
/// `--foreground`, has the same program do so in the background. With `--help` it prints what there
/// is to say.
pub fn run(arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let arguments: Vec<OsString> = arguments.collect();
    if let Some(help) = arguments::help(&arguments) {
        println!("{help}");
        return Ok(());
    }
    let arguments = Arguments::parse(arguments)?;
    if arguments.foreground { mount(&arguments) } else { background::start(&arguments) }
}

/// Mounts, and serves until the end.
fn mount(arguments: &Arguments) -> Result<()> {
    check_place(arguments)?;
    let mode = if arguments.read_only { Mode::Read } else { Mode::ReadWrite };
    let pool = Pool::open(&arguments.pool, mode, false)?;
    let namespace = pool.namespace(&arguments.namespace)?;
    if is_root() && namespace.has_realm(Scope::Private)? {
        return Err(Error::new(
            Kind::Access,
            format!(
                "namespace {:?} has private members of root's, which a mount would show to \
                 everybody: share them first, or mount as another user",
                arguments.namespace
            ),
        ));
    }
    // What root keeps there later is not shown, either.
    let namespace = if is_root() { namespace.without_private()? } else { namespace };
    let options = Options { read_only: arguments.read_only, growth: arguments.growth };
    let fs = Fs::new(namespace, options).map_err(|error| Error::new(Kind::Os, error.message))?;
    // Whoever unmounts it waits for this process.
    let source = format!("engram:{}@{}", arguments.pool.display(), process::id());
    let config = kernel::config(source, arguments.read_only, arguments.threads);
    let tracer = Arc::new(tracer(arguments)?);
    let served = serve::Served::new(fs, arguments.cache, Arc::clone(&tracer));
    let mut session = Session::new(served, &arguments.place, &config)
        .map_err(|error| refused(arguments, &error))?;
    let notifier = session.notifier();
    cached::tell(notifier)
        .map_err(|error| Error::new(Kind::Os, format!("starting a thread: {error}")))?;
    end_by_signal(&mut session)?;
    background::say_ready();
    let served = session.run();
    pool.close();
    tracer.stop();
    if tracer.lost() > 0 {
        eprintln!("engram-mount: {} lines of the trace could not be written", tracer.lost());
    }
    served.map_err(|error| {
        let place = arguments.place.display();
        Error::new(Kind::Os, format!("serving {place}: {error}"))
    })
}

/// What writes the trace that is asked for.
fn tracer(arguments: &Arguments) -> Result<Tracer> {
    let Some(spec) = &arguments.trace else { return Ok(Tracer::off()) };
    // Below the mount each line would be a request that is traced.
    let folder = spec.path().parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    let place = arguments.place.canonicalize();
    if let (Ok(folder), Ok(place)) = (folder, place)
        && folder.starts_with(place)
    {
        let (path, place) = (spec.path().display(), arguments.place.display());
        let what = format!("the trace {path} would lie below {place}: name a file elsewhere");
        return Err(Error::new(Kind::Argument, what));
    }
    Ok(Tracer::open(spec)?)
}

/// Unmounts where the process is told to end.
fn end_by_signal(session: &mut Session<serve::Served>) -> Result<()> {
    let refused =
        |error: std::io::Error| Error::new(Kind::Os, format!("listening for signals: {error}"));
    let mut unmounter = session.unmount_callable();
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(refused)?;
    let listen = move || {
        for _ in signals.forever() {
            // A mount that is busy goes with its last user; the next signal asks again.
            let _ = unmounter.unmount();
        }
    };
    std::thread::Builder::new().name("engram-signals".to_owned()).spawn(listen).map_err(refused)?;
    Ok(())
}

/// Refuses a place that cannot be mounted upon.
fn check_place(arguments: &Arguments) -> Result<()> {
    let place = arguments.place.display();
    match std::fs::metadata(&arguments.place) {
        Ok(meta) if meta.is_dir() => {
            let above = std::fs::metadata(arguments.place.join(".."));
            if above.is_ok_and(|above| above.dev() != meta.dev()) {
                let what = format!(
                    "{place} has something mounted upon it already: unmount that first, or use \
                     another folder"
                );
                return Err(Error::new(Kind::Busy, what));
            }
        }
        Ok(_) => {
            let what = format!("{place} is no folder: a pool is mounted upon an empty folder");
            return Err(Error::new(Kind::Argument, what));
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            let what = format!(
                "the mount at {place} answers nothing, since its process was killed: take it away \
                 (engram unmount {place})"
            );
            return Err(Error::new(Kind::Busy, what));
        }
        Err(error) => {
            let what = format!("{place}: {error}: make the folder first");
            return Err(Error::new(Kind::NotFound, what));
        }
    }
    if !std::path::Path::new("/dev/fuse").exists() {
        let what = "there is no /dev/fuse: this machine, or container, does not offer FUSE (a \
                    container needs --device /dev/fuse)";
        return Err(Error::new(Kind::Unsupported, what));
    }
    Ok(())
}

/// Why the kernel, or fusermount3, does not mount.
fn refused(arguments: &Arguments, error: &std::io::Error) -> Error {
    let place = arguments.place.display();
    let advice = if !is_root() && !has_fusermount() {
        "fusermount3 is missing, by which an ordinary user mounts: install fuse3"
    } else {
        "is something mounted there already, or is /dev/fuse closed to this user?"
    };
    let what = format!("{place} cannot be mounted upon: {error}; {advice}");
    Error::new(Kind::Unsupported, what)
}

/// Whether the program is here by which an ordinary user mounts.
fn has_fusermount() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/bin".into()]);
    folders
        .any(|folder| ["fusermount3", "fusermount"].iter().any(|name| folder.join(name).is_file()))
}
