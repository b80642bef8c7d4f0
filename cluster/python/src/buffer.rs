//! The memory of a caller's buffer, used while the interpreter is let go of.
//!
//! The caller keeps its promise that nobody else writes the buffer meanwhile: the package gives
//! arrays that it has made itself, or that its caller hands over for the call.

use engram_driver::error::Error;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::error::raised;

/// A buffer that is read.
pub struct Bytes<'b> {
    bytes: &'b [u8],
}

/// A buffer that is written.
pub struct BytesMut<'b> {
    bytes: &'b mut [u8],
}

fn in_one_piece(buffer: &PyBuffer<u8>) -> PyResult<()> {
    if buffer.is_c_contiguous() {
        return Ok(());
    }
    Err(raised(&Error::Argument("the buffer does not lie in one piece".to_owned())))
}

impl<'b> Bytes<'b> {
    pub fn read(buffer: &'b PyBuffer<u8>) -> PyResult<Bytes<'b>> {
        in_one_piece(buffer)?;
        if buffer.len_bytes() == 0 {
            return Ok(Bytes { bytes: &[] });
        }
        let at = buffer.buf_ptr().cast::<u8>();
        // SAFETY: the buffer is held as long as this, and lies in one piece of so many bytes.
        Ok(Bytes { bytes: unsafe { std::slice::from_raw_parts(at, buffer.len_bytes()) } })
    }

    pub fn as_slice(&self) -> &[u8] {
        self.bytes
    }
}

impl<'b> BytesMut<'b> {
    pub fn of(buffer: &'b PyBuffer<u8>) -> PyResult<BytesMut<'b>> {
        in_one_piece(buffer)?;
        if buffer.readonly() {
            return Err(raised(&Error::Argument("the buffer is read-only".to_owned())));
        }
        if buffer.len_bytes() == 0 {
            return Ok(BytesMut { bytes: &mut [] });
        }
        let at = buffer.buf_ptr().cast::<u8>();
        // SAFETY: as above, and it may be written.
        Ok(BytesMut { bytes: unsafe { std::slice::from_raw_parts_mut(at, buffer.len_bytes()) } })
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.bytes
    }
}
