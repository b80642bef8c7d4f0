//! What runs and names take: `cargo test --release -- --ignored --nocapture index::runs::timing`.

#![allow(clippy::cast_precision_loss)] // figures to look at

use std::time::Instant;

use super::tests::Place;
use super::{Runs, merge_some};
use crate::catalog::Table;
use crate::index::cell::Cell;
use crate::index::names;
use crate::index::range::Range;

const ROWS: u32 = 4096;

fn random(at: u32) -> u64 {
    let mixed = (u64::from(at) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ mixed >> 32
}

/// Five keys as they come in files.
fn cells(at: u32) -> [Cell<'static>; 5] {
    let unit = |seed| (random(at ^ seed) >> 11) as f64 / (1_u64 << 53) as f64;
    [
        Cell::Float(unit(1 << 28).mul_add(180.0, -90.0)),
        Cell::Float((unit(2 << 28) * 360e6).round() / 1e6),
        Cell::Float(f64::from(unit(3 << 28) as f32)),
        Cell::Int((random(at) >> 24) as i64),
        Cell::Time(1_700_000_000_000_000_000 + i64::from(at) * 1_000_000_000),
    ]
}

#[test]
#[ignore = "it measures"]
fn a_million_entries_of_five_keys() {
    let place = Place::new();
    let (mut appending, mut merging, mut merged) = (0, 0, 0_u64);
    for segment in 0..(1_000_000 / ROWS) {
        let rows: Vec<_> = (0..ROWS).map(|at| cells(segment * ROWS + at)).collect();
        let columns: Vec<_> = (0..5)
            .map(|key| {
                let mut cells: Vec<_> = rows.iter().map(|row| row[key].clone()).zip(0..).collect();
                cells.sort_by(|a, b| crate::index::cell::total_order(&a.0, &b.0));
                (key as u32, cells)
            })
            .collect();
        let start = Instant::now();
        place.add(segment, &columns);
        appending += start.elapsed().as_nanos();
        loop {
            let before = Instant::now();
            let done = place.change(merge_some);
            merging += before.elapsed().as_nanos();
            if !done {
                break;
            }
            merged += 1;
        }
        if segment == 2 || segment + 1 == 1_000_000 / ROWS {
            query(&place, (segment + 1) * ROWS);
        }
    }
    let entries = f64::from(1_000_000 / ROWS * ROWS * 5);
    println!("{merged} merges");
    println!("append {:.1} ns an entry", appending as f64 / entries);
    println!("merge {:.1} ns an entry over its life", merging as f64 / entries);
    let start = Instant::now();
    (0..100).for_each(|_| assert!(!place.change(merge_some)));
    println!("nothing to merge: {:.1} us", start.elapsed().as_secs_f64() * 1e4);
}

fn query(place: &Place, count: u32) {
    let txn = place.catalog.read().unwrap();
    for key in 0..5 {
        let runs = Runs::read(&txn, key).unwrap();
        let bytes = runs.bytes().unwrap() as f64 / runs.entries() as f64;
        let asked: Vec<_> =
            (0..20_000).map(|at| cells(random(at) as u32 % count)[key as usize].clone()).collect();
        let (start, mut found) = (Instant::now(), 0_u64);
        for cell in &asked {
            let runs = Runs::read(&txn, key).unwrap();
            runs.visit(&Range::equal(cell), &|_| true, |_, _, _| found += 1).unwrap();
        }
        let seek = start.elapsed().as_nanos() / 20_000;
        assert!(found >= 20_000);
        let start = Instant::now();
        let mut sum = 0_u64;
        runs.visit(&Range::default(), &|_| true, |segment, at, _| {
            sum += u64::from(segment) + u64::from(at);
        })
        .unwrap();
        assert!(sum > 0);
        let walk = start.elapsed().as_nanos() as f64 / runs.entries() as f64;
        println!(
            "{count} entries, key {key}: {} runs, {bytes:.2} bytes an entry, seek {seek} ns, \
             walk {walk:.2} ns an entry",
            runs.len()
        );
    }
}

#[test]
#[ignore = "it measures"]
fn names_of_a_hundred_thousand_objects() {
    let place = Place::new();
    let all: Vec<String> =
        (0..120_000).map(|at| format!("sample_{:08x}.dat", random(at) as u32)).collect();
    let mut slowest = 0.0_f64;
    let start = Instant::now();
    for (call, part) in all.chunks(4096).enumerate() {
        let part: Vec<&str> = part.iter().map(String::as_str).collect();
        let begin = Instant::now();
        place.change(|txn| names::intern(txn, &part));
        slowest = slowest.max(begin.elapsed().as_secs_f64());
        if [14, 28].contains(&call) {
            println!(
                "{} names, {:.0} ns a name, slowest call {:.1} ms",
                (call + 1) * 4096,
                start.elapsed().as_nanos() as f64 / ((call + 1) * 4096) as f64,
                slowest * 1e3
            );
            let txn = place.catalog.read().unwrap();
            let (mut rows, mut bytes) = ([0_u64; 256], [0_u64; 256]);
            let mut cursor = txn.seek(Table::IndexNames, &[]).unwrap();
            while let Some((key, value)) = cursor.next().unwrap() {
                rows[usize::from(key[0])] += 1;
                bytes[usize::from(key[0])] += (key.len() + value.len() + 10) as u64;
            }
            for kind in [b'n', b'r', b't'] {
                println!(
                    "  {}: {} rows, {} bytes",
                    kind as char,
                    rows[usize::from(kind)],
                    bytes[usize::from(kind)]
                );
            }
            for part in ["abc12", "77", "sample_0000"] {
                let begin = Instant::now();
                let mut found = 0;
                names::each_with(&txn, &[part], |name, _| {
                    found += u32::from(name.contains(part));
                    Ok(())
                })
                .unwrap();
                println!("  contains {part:?}: {found} in {:?}", begin.elapsed());
            }
        }
    }
}
