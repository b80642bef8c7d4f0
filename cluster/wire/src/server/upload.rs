//! The body of a request: read by its handler, on the handler's thread.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use hyper::body::{Body as _, Incoming};
use tokio::runtime::Handle;

use crate::error::{Error, Result};
use crate::server::watch::Watch;

/// The body of a request, unread: the other side sends it as it is read.
///
/// Whoever asked with `Expect: 100-continue` is told to go on at the first byte that is read. A
/// handler that refuses without reading saves them the sending.
pub struct Upload {
    source: Option<Incoming>,
    runtime: Handle,
    watch: Arc<Watch>,
    /// What has come, and is not yet read.
    chunk: Bytes,
    announced: Option<u64>,
    read: u64,
    limit: u64,
}

impl Upload {
    pub(crate) fn new(source: Incoming, watch: &Arc<Watch>, limit: u64) -> Upload {
        Upload {
            announced: source.size_hint().exact(),
            source: Some(source),
            runtime: Handle::current(),
            watch: Arc::clone(watch),
            chunk: Bytes::new(),
            read: 0,
            limit,
        }
    }

    /// How many bytes it has, if the other side says so.
    pub fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Reads all of it, if it has at most so many bytes.
    pub fn read_all(&mut self, most: u64) -> Result<Vec<u8>> {
        let most = most.min(self.limit);
        if let Some(len) = self.announced
            && len > most
        {
            return Err(too_large(most));
        }
        let mut all = Vec::with_capacity(self.announced.unwrap_or(0) as usize);
        while self.fill()? {
            if (all.len() + self.chunk.len()) as u64 > most {
                return Err(too_large(most));
            }
            all.extend_from_slice(&self.chunk);
            self.chunk.clear();
        }
        Ok(all)
    }

    /// Sees to it that something can be read; false at the end.
    fn fill(&mut self) -> Result<bool> {
        while self.chunk.is_empty() {
            let Some(source) = &mut self.source else { return Ok(false) };
            self.watch.reads(true);
            let next = poll_fn(|cx| Pin::new(&mut *source).poll_frame(cx));
            let next = self.runtime.block_on(next);
            self.watch.reads(false);
            match next {
                Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => {
                    return Err(Error::Broken(format!("the request's body broke off: {error}")));
                }
                None => self.source = None,
            }
            self.read += self.chunk.len() as u64;
            if self.read > self.limit {
                return Err(too_large(self.limit));
            }
        }
        Ok(true)
    }
}

fn too_large(most: u64) -> Error {
    Error::TooLarge(format!("the request's body has more than the {most} bytes that are taken"))
}

impl io::Read for Upload {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() || !self.fill().map_err(io::Error::other)? {
            return Ok(0);
        }
        let len = into.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut into[..len]);
        Ok(len)
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a body of {:?} bytes, {} read", self.announced, self.read)
    }
}
