//! A process that dies at a step of a merge in parts: the next one goes on, and finds all.
//!
//! `make crash` has processes die at most of these steps, among everything else. What only an older
//! engine leads to, or a run of which nothing lives, is tried here alone.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::SortedRuns;
use super::merge::{Limits, merge_within};
use super::tests::{TempCatalog, blocks_of};
use super::unfinished::{MergeSize, UNFINISHED};
use crate::cell::Cell;
use crate::zones;
use engram_base::faults::{ALL, on_step};
use engram_catalog::Table;

const SEGMENTS: u32 = 4;
const ROWS: u16 = 1000;
/// More than a part reads, so that there are several.
const PART: MergeSize = MergeSize { entries: 1500, blocks: 512, removed: 3 };
/// The step that a process is to die at, and the catalog's folder.
const TOLD: [&str; 2] = ["ENGRAM_TEST_DIES_AT", "ENGRAM_TEST_CATALOG"];

fn limits(part: MergeSize) -> Limits {
    Limits { fan_out: SEGMENTS as usize, entries: 9000, part }
}

fn filled() -> TempCatalog {
    let place = TempCatalog::new();
    for segment in 0..SEGMENTS {
        let cells = (0..ROWS).map(|at| (Cell::Int(i64::from(at) * 7919 % 1009), at));
        place.add(segment, &[(7, cells.collect())]);
    }
    place
}

/// What leads the next maintenance to a step; how many entries there are at the end.
fn prepare(place: &TempCatalog, step: &str) -> u64 {
    let merge = |part| assert!(place.change(|txn| merge_within(txn, limits(part))));
    let whole = MergeSize { entries: 1 << 20, ..PART };
    match step {
        "index.runs-given-up" => {
            merge(PART);
            let begun = {
                let txn = place.catalog.read().unwrap();
                txn.get(Table::Meta, UNFINISHED).unwrap().expect("a merge is begun").to_vec()
            };
            // An engine that does not know the row merges the same runs, by the same number.
            place.change(|txn| txn.delete(Table::Meta, UNFINISHED).map(drop));
            merge(whole);
            place.change(|txn| txn.put(Table::Meta, UNFINISHED, &begun));
        }
        "index.runs-gone" => {
            merge(whole);
            place.change(|txn| (0..SEGMENTS).try_for_each(|gone| zones::remove(txn, gone, [])));
            return 0;
        }
        _ => {}
    }
    u64::from(SEGMENTS) * u64::from(ROWS)
}

/// Merges in the catalog that this process was told of, until it dies at the step.
fn die_if_told() {
    let [Some(step), Some(dir)] = TOLD.map(std::env::var_os) else { return };
    on_step(move |reached| {
        if step == reached {
            std::process::abort();
        }
    });
    let place = TempCatalog::of(Path::new(&dir));
    while place.change(|txn| merge_within(txn, limits(PART))) {}
}

#[test]
#[cfg_attr(miri, ignore = "a catalog is LMDB, in C")]
fn a_merge_in_parts_outlives_a_death_at_each_of_its_steps() {
    die_if_told();
    let within = |step: &&&str| step.starts_with("index.runs-");
    let whole = ["index.runs-taken", "index.runs-merged"];
    for step in ALL.iter().filter(within).filter(|step| !whole.contains(step)) {
        let place = filled();
        let wanted = prepare(&place, step);
        let died = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "runs::kills::a_merge_in_parts_outlives_a_death_at_each_of_its_steps",
            ])
            .envs(TOLD.iter().zip([step.as_ref(), place.path().as_os_str()]))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert_eq!(died.unwrap().signal(), Some(6), "nobody comes to {step}");
        let seen = || {
            let mut seen = 0;
            super::check(&place.catalog.read().unwrap(), 7, |_, _, _| seen += 1).unwrap();
            seen
        };
        if wanted > 0 {
            assert_eq!(seen(), wanted, "after a death at {step}");
        }
        while place.change(|txn| merge_within(txn, limits(PART))) {}
        assert_eq!(seen(), wanted, "after a death at {step}, and the rest of the work");
        let txn = place.catalog.read().unwrap();
        assert!(txn.get(Table::Meta, UNFINISHED).unwrap().is_none());
        let (rows, of_runs) = blocks_of(&txn);
        assert_eq!(rows, of_runs, "{step}: no block is left that is of no run");
        assert_eq!(SortedRuns::read(&txn, 7).unwrap().size().0, usize::from(wanted > 0));
    }
}
