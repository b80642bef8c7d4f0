//! Writes the headers in `capi/include` from the source of the C ABIs; `make fmt` calls it.
//!
//! With `--verify`, as `make lint` calls it, nothing is written: the first line that differs is
//! shown, and the program fails.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Crates with a `cbindgen.toml`, and the header that each has.
const HEADERS: [(&str, &str); 2] =
    [("capi", "capi/include/engram.h"), ("cluster/c", "capi/include/engram_cluster.h")];

type Done = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let work: fn(&str, &str) -> Done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        [] => write,
        ["--verify"] => verify,
        _ => {
            eprintln!("usage: engram-header [--verify]; it was given {args:?}");
            return ExitCode::FAILURE;
        }
    };
    for (source, header) in HEADERS {
        if let Err(error) = work(source, header) {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// A path of the repository, in which this tool lies.
fn place(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A header as the source has it now.
fn generated(source: &str) -> Result<String, Box<dyn Error>> {
    let source = place(source);
    let config = cbindgen::Config::from_file(source.join("cbindgen.toml"))?;
    let mut bytes = Vec::new();
    cbindgen::Builder::new().with_config(config).with_crate(source).generate()?.write(&mut bytes);
    Ok(String::from_utf8(bytes)?)
}

fn write(source: &str, header: &str) -> Done {
    let made = generated(source)?;
    // A header that is as it was keeps its time, so that nothing is compiled anew for it.
    if std::fs::read_to_string(place(header)).ok().as_ref() != Some(&made) {
        std::fs::write(place(header), made)?;
    }
    Ok(())
}

fn verify(source: &str, header: &str) -> Done {
    let made = generated(source)?;
    let kept = std::fs::read_to_string(place(header))?;
    if made == kept {
        return Ok(());
    }
    let same = made.lines().zip(kept.lines()).take_while(|(made, kept)| made == kept).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(the end)").to_owned();
    Err(format!(
        "{header}:{}: the header is not what {source}/src gives; `make fmt` writes it\n\
         \x20   it has:         {}\n    the source gives: {}",
        same + 1,
        line(&kept),
        line(&made)
    )
    .into())
}
