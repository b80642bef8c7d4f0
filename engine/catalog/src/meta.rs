//! Numbers in the table `meta`.

use engram_base::error::Result;
use engram_base::fail;

/// A number in `meta`.
pub fn meta_u64(value: Option<&[u8]>) -> Result<u64> {
    match value.map(<[u8; 8]>::try_from) {
        None => Ok(0),
        Some(Ok(bytes)) => Ok(u64::from_le_bytes(bytes)),
        Some(Err(_)) => fail!(Corrupt, "a number in `meta` does not have 8 bytes"),
    }
}
