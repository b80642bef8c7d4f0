//! Any text is a query or is refused with a place; a query is written so that it is read back.
#![no_main]

use engram::{Kind, query::parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match parse(text) {
        Err(error) => {
            assert_eq!(error.kind(), Kind::Query);
            assert!(error.message().contains('^'), "{error}");
        }
        Ok(query) => {
            let written = query.to_string();
            assert_eq!(parse(&written), Ok(query), "{written}");
        }
    }
});
