//! Any bytes are a line of a trace or are refused; a line is written as it was read.
#![no_main]

use engram_fs::trace::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    match Record::parse(line) {
        Ok(record) => assert_eq!(record.line().as_bytes(), line),
        Err(damage) => assert!(!damage.to_string().is_empty()),
    }
    if let Some(record) = Record::behind_damage(line) {
        assert!(line.ends_with(record.line().as_bytes()));
    }
});
