//! The list of steps names every step of the source, once, and no other.
#![cfg(feature = "faults")]

use std::collections::BTreeSet;
use std::path::Path;

use engram::faults::ALL;

/// The names of the steps that stand in the files of a folder.
fn collect(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).expect("the source") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|suffix| suffix == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let steps = text.split("step!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(steps.map(str::to_owned));
        }
    }
}

#[test]
fn the_list_names_each_step_of_the_source_once() {
    let mut found = Vec::new();
    let engine = Path::new(env!("CARGO_MANIFEST_DIR"));
    for crate_of in std::fs::read_dir(engine).expect("the engine's crates") {
        let source = crate_of.expect("an entry").path().join("src");
        if source.is_dir() {
            collect(&source, &mut found);
        }
    }
    let listed: BTreeSet<&str> = ALL.iter().copied().collect();
    assert_eq!(listed.len(), ALL.len(), "a step is listed twice");
    let there: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(there, listed);
    assert_eq!(there.len(), found.len(), "two places have the same name");
}
