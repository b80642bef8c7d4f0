//! Any key and value are a row of some table, or are refused; so is any text of a pool's files.
#![no_main]

use engram::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|row: (&[u8], &[u8])| {
    decode::row(row.0, row.1);
    if let Ok(text) = std::str::from_utf8(row.1) {
        decode::text(text);
    }
});
