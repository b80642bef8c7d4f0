//! What the program is told to do. People use `engram mount`, which says it all.

use std::ffi::OsString;
use std::path::PathBuf;

use engram::{Error, Kind, Result};
use engram_fs::trace::Spec;

use crate::cached::Cache;
use crate::kernel;

const USAGE: &str = "engram-mount POOL DIR [--namespace NAME] [--cache job|shared|none] \
                     [--read-only] [--foreground] [--threads N] [--growth LEAST:MOST] \
                     [--trace FILE] [--trace-ring FILE[:SIZE]]";

/// What `--help` prints behind the usage.
const OPTIONS: &str = "\
Shows a namespace of a pool as a folder. `engram mount` does the same.

  --namespace NAME                  which one; \"default\" if none is said
  --cache job|shared|none           what the kernel may keep: everything, what others may not have
                                    changed (this if none is said), nothing
  --read-only                       refuse all changes through it
  --foreground                      serve it here, until Ctrl-C or an unmount
  --threads N                       how many serve it, 1 to 64
  --growth LEAST:MOST               by how many bytes files grow at a time
  --trace FILE                      append a line for each operation to this file
  --trace-ring FILE[:SIZE]          the same in a file of fixed size, which keeps the newest lines
  --help                            show this";

/// What is asked for by `--help`, wherever it stands.
pub fn help(given: &[OsString]) -> Option<String> {
    let asked = given.iter().any(|word| word == "--help");
    asked.then(|| format!("Usage: {USAGE}\n\n{OPTIONS}"))
}

/// What it is told.
#[derive(Clone, Debug)]
pub struct Arguments {
    pub pool: PathBuf,
    pub place: PathBuf,
    pub namespace: String,
    pub cache: Cache,
    pub read_only: bool,
    pub foreground: bool,
    pub threads: usize,
    /// By how many bytes at least, and at most, files grow at a time.
    pub growth: Option<(u64, u64)>,
    /// Where a trace is to be written.
    pub trace: Option<Spec>,
    /// As they were given, for the process in the background.
    pub given: Vec<OsString>,
}

impl Arguments {
    pub fn parse(given: Vec<OsString>) -> Result<Arguments> {
        let mut arguments = Arguments {
            pool: PathBuf::new(),
            place: PathBuf::new(),
            namespace: "default".to_owned(),
            cache: Cache::Shared,
            read_only: false,
            foreground: false,
            threads: kernel::threads(),
            growth: None,
            trace: None,
            given: given.clone(),
        };
        let mut places = Vec::new();
        let mut rest = given.into_iter();
        while let Some(word) = rest.next() {
            let Some(option) = word.to_str().and_then(|word| word.strip_prefix("--")) else {
                places.push(PathBuf::from(word));
                continue;
            };
            let lacks_value = || wrong(&format!("--{option} takes a value"));
            let mut value = || {
                let value = rest.next().and_then(|value| value.into_string().ok());
                value.ok_or_else(lacks_value)
            };
            match option {
                "read-only" => arguments.read_only = true,
                "foreground" => arguments.foreground = true,
                "namespace" => arguments.namespace = value()?,
                "cache" => {
                    let value = value()?;
                    arguments.cache = Cache::parse(&value).ok_or_else(|| {
                        wrong(&format!("--cache {value} is none of job, shared, none"))
                    })?;
                }
                "threads" => {
                    let value = value()?;
                    let threads = value.parse().ok().filter(|count| (1..=64).contains(count));
                    arguments.threads = threads
                        .ok_or_else(|| wrong(&format!("--threads {value} is not 1 to 64")))?;
                }
                "growth" => arguments.growth = Some(growth(&value()?)?),
                "trace" | "trace-ring" => {
                    let file = rest.next().ok_or_else(lacks_value)?;
                    let ring = option == "trace-ring";
                    let spec =
                        if ring { Spec::parse_ring(&file)? } else { Spec::File(file.into()) };
                    if arguments.trace.replace(spec).is_some() {
                        return Err(wrong("a mount has one trace: give --trace or --trace-ring"));
                    }
                }
                _ => return Err(wrong(&format!("there is no option --{option}"))),
            }
        }
        let Ok([pool, place]) = <[PathBuf; 2]>::try_from(places) else {
            return Err(wrong("a pool and a folder are needed"));
        };
        (arguments.pool, arguments.place) = (pool, place);
        Ok(arguments)
    }
}

fn growth(value: &str) -> Result<(u64, u64)> {
    let growth = value
        .split_once(':')
        .and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
    growth.ok_or_else(|| wrong(&format!("--growth {value} is no pair of bytes")))
}

fn wrong(what: &str) -> Error {
    Error::new(Kind::Argument, format!("{what}: {USAGE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn help_is_given_wherever_it_is_asked_for_and_explains_each_option_of_the_usage() {
        assert_eq!(help(&words("/dev/shm/run /mnt/run --read-only")), None);
        let told = help(&words("--read-only --help /dev/shm/run")).expect("it is asked for");
        assert!(told.starts_with("Usage: engram-mount POOL DIR "));
        let words = USAGE.split_whitespace().filter_map(|word| word.strip_prefix("[--"));
        let names: Vec<&str> = words.map(|word| word.trim_end_matches(']')).collect();
        assert!(names.contains(&"read-only") && names.contains(&"growth"));
        for name in names {
            assert!(OPTIONS.contains(&format!("\n  --{name} ")), "{name}");
        }
    }
}
