//! Any bytes are a segment and its columns, or a run and its blocks, or are refused.
#![no_main]

use engram::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|parts: (&[u8], &[u8])| {
    let (head, block) = parts;
    decode::segment(head, block);
    decode::segment(&[b"ESG\x01".as_slice(), head].concat(), block);
    decode::run(head, block);
    decode::run(&[b"\x01".as_slice(), head].concat(), block);
});
