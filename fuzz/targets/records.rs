//! Any bytes are a record, or a dtype, that can be looked at and written again, or are refused.
#![no_main]

use engram::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    decode::record(bytes);
    decode::dtype(bytes);
    if bytes.len() > 8 {
        // Where the head is taken for granted, the sections behind it are met more often.
        let mut row = vec![2, bytes[0] & 1, bytes[1] & 3, bytes[2] & 0xE3, 0, 0, 0, 0];
        row.extend_from_slice(&[0; 32]);
        row.extend_from_slice(&bytes[3..]);
        decode::record(&row);
    }
});
