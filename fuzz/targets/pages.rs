//! Any bytes are a page of a catalog, or are refused.
#![no_main]

use engram::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    decode::page(bytes);
    // A page of the right kind and size, whose nodes come from the bytes.
    let mut page = vec![0; 4096];
    let count = bytes.len().min(4096 - 16);
    page[4096 - count..].copy_from_slice(&bytes[..count]);
    page[10] = if bytes.first().is_some_and(|byte| byte & 1 == 0) { 1 } else { 2 };
    let nodes = usize::from(bytes.get(1).copied().unwrap_or(0) % 16);
    let (lower, upper) = (16 + 2 * nodes, 4096 - count);
    page[12..14].copy_from_slice(&(lower as u16).to_le_bytes());
    page[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
    for place in 0..nodes {
        let at = bytes.get(2 + place).map_or(upper, |byte| upper + 2 * usize::from(*byte));
        page[16 + 2 * place..18 + 2 * place].copy_from_slice(&(at as u16).to_le_bytes());
    }
    decode::page(&page);
});
