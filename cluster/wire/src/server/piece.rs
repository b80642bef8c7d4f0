//! Bodies that hyper never sees: it is given placeholders, and the connection sends what they mean.
//!
//! hyper writes a body as slices of memory. A file's bytes would have to be copied into memory
//! first, where `sendfile` needs no copy. So the body of a file is made of slices of one region of
//! zeros, [`placeholder`], each as long as the bytes that it stands for. hyper counts and queues
//! them as any others, and never looks into them: a connection that writes several slices at once
//! is given them as they were queued. The connection knows them by their address, and sends the
//! next bytes of the next [`Piece`] instead. Responses go one after another, so pieces do, too.
//!
//! hyper would copy slices, and so send zeros, if the connection took one slice at a time: it says
//! that it does not ([`crate::server::carrier`]), and tests compare what arrives.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use engram_base::mutex::lock;

use crate::message::{Check, FileRange};

/// How long the longest placeholder is: so many bytes at most go in one call of the kernel.
const LONGEST: usize = 1 << 20;

/// Zeros that are never read, so no memory is behind them.
static REGION: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![0; LONGEST]));

/// A slice that stands for at most so many bytes of the next piece.
pub(crate) fn placeholder(len: u64) -> Bytes {
    REGION.slice(..len.min(LONGEST as u64) as usize)
}

/// Whether a slice is a placeholder.
pub(crate) fn is_placeholder(slice: &[u8]) -> bool {
    !slice.is_empty() && REGION.as_ptr_range().contains(&slice.as_ptr())
}

/// Where a piece's bytes are.
pub(crate) enum Source {
    File(Arc<OwnedFd>),
    Memory(Bytes),
}

/// What a connection sends for placeholders.
pub(crate) struct Piece {
    pub(crate) source: Source,
    pub(crate) offset: u64,
    pub(crate) left: u64,
    check: Option<Check>,
    /// What keeps the bytes of a file as they are.
    guard: Box<dyn Any + Send>,
}

impl Piece {
    pub(crate) fn of_file(range: FileRange, check: Option<Check>) -> Piece {
        let FileRange { file, offset, len, guard } = range;
        Piece { source: Source::File(file), offset, left: len, check, guard }
    }

    pub(crate) fn of_memory(bytes: Bytes, check: Check) -> Piece {
        let left = bytes.len() as u64;
        let source = Source::Memory(bytes);
        Piece { source, offset: 0, left, check: Some(check), guard: Box::new(()) }
    }

    /// An error if the next `len` bytes include the last one, and it may not go.
    pub(crate) fn may_send(&self, len: u64) -> io::Result<()> {
        if len < self.left || self.check.as_ref().is_none_or(|check| check()) {
            return Ok(());
        }
        Err(io::Error::other("the response may not be completed any more"))
    }
}

/// The pieces of one connection: put by bodies, taken by whoever writes.
#[derive(Clone, Default)]
pub(crate) struct Pieces(Arc<Mutex<VecDeque<Piece>>>);

impl Pieces {
    pub(crate) fn put(&self, piece: Piece) {
        lock(&self.0).push_back(piece);
    }

    /// Does something with the piece that is next.
    pub(crate) fn with_next<T>(
        &self,
        work: impl FnOnce(&mut Piece) -> io::Result<T>,
    ) -> io::Result<T> {
        match lock(&self.0).front_mut() {
            Some(piece) => work(piece),
            None => Err(io::Error::other("a placeholder stands for no piece")),
        }
    }

    /// So many bytes of the next piece have gone. Returns the piece's guard after its last ones.
    pub(crate) fn sent(&self, len: u64) -> Option<Box<dyn Any + Send>> {
        let mut pieces = lock(&self.0);
        let piece = pieces.front_mut()?;
        piece.offset += len;
        piece.left -= len;
        if piece.left > 0 { None } else { pieces.pop_front().map(|piece| piece.guard) }
    }
}
