//! Random numbers from the kernel, for names that nobody else gives.

use std::fmt::Write;

use crate::error::{Error, Kind, Result};

fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(Kind::Os, format!("the kernel gives no random bytes: {e}")))?;
    Ok(bytes)
}

/// A random id, never 0. That no other is the same is as good as certain.
pub fn id() -> Result<u64> {
    Ok(u64::from_le_bytes(bytes()?).max(1))
}

/// A random name of 32 hexadecimal digits.
pub fn uuid() -> Result<String> {
    Ok(bytes::<16>()?.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
