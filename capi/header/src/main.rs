//! Writes `capi/include/engram.h` from the source of the C ABI; `make fmt` calls it.
//!
//! With `--verify`, as `make lint` calls it, nothing is written: the first line that differs is
//! shown, and the program fails.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => write(),
        ["--verify"] => verify(),
        _ => Err(format!("usage: engram-header [--verify]; it was given {args:?}").into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the C ABI, which this tool lies in.
fn capi() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tool lies in a folder of capi/")
}

/// The header as the source has it now.
fn generated() -> Result<String, Box<dyn Error>> {
    let config = cbindgen::Config::from_file(capi().join("cbindgen.toml"))?;
    let mut bytes = Vec::new();
    cbindgen::Builder::new().with_config(config).with_crate(capi()).generate()?.write(&mut bytes);
    Ok(String::from_utf8(bytes)?)
}

fn write() -> Result<(), Box<dyn Error>> {
    let header = generated()?;
    let place = capi().join("include/engram.h");
    // A header that is as it was keeps its time, so that nothing is compiled anew for it.
    if std::fs::read_to_string(&place).ok().as_ref() != Some(&header) {
        std::fs::write(place, header)?;
    }
    Ok(())
}

fn verify() -> Result<(), Box<dyn Error>> {
    let made = generated()?;
    let kept = std::fs::read_to_string(capi().join("include/engram.h"))?;
    if made == kept {
        return Ok(());
    }
    let same = made.lines().zip(kept.lines()).take_while(|(made, kept)| made == kept).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(the end)").to_owned();
    Err(format!(
        "capi/include/engram.h:{}: the header is not what capi/src gives; `make fmt` writes it\n\
         \x20   it has:         {}\n    capi/src gives: {}",
        same + 1,
        line(&kept),
        line(&made)
    )
    .into())
}
