//! The body of a response, as hyper asks for it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use crate::message::{Check, Chunks, Content};
use crate::server::piece::{Piece, Pieces, placeholder};
use crate::server::watch::Watch;

/// How many chunks of a stream are made ahead of what is sent.
const AHEAD: usize = 2;

enum State {
    Bytes(Bytes),
    /// Placeholders: the piece is put where the connection finds it at the first of them.
    Piece(Option<Box<Piece>>),
    Stream(mpsc::Receiver<io::Result<Vec<u8>>>),
    Done,
}

/// A body that is sent.
pub(crate) struct Outgoing {
    state: State,
    left: Option<u64>,
    pieces: Pieces,
    watch: Arc<Watch>,
}

impl Outgoing {
    pub(crate) fn new(
        content: Content,
        check: Option<Check>,
        pieces: &Pieces,
        watch: &Arc<Watch>,
    ) -> Outgoing {
        let left = content.length();
        let state = match (content, check) {
            (Content::Bytes(bytes), Some(check)) => {
                State::Piece(Some(Box::new(Piece::of_memory(bytes.into(), check))))
            }
            (Content::Bytes(bytes), None) => State::Bytes(bytes.into()),
            (Content::File(range), check) => {
                State::Piece(Some(Box::new(Piece::of_file(range, check))))
            }
            (Content::Stream { len, chunks }, check) => State::Stream(begin(chunks, len, check)),
        };
        Outgoing { state, left, pieces: pieces.clone(), watch: Arc::clone(watch) }
    }

    /// The body of an answer to HEAD: none, whatever the headers say.
    pub(crate) fn none(pieces: &Pieces, watch: &Arc<Watch>) -> Outgoing {
        let (pieces, watch) = (pieces.clone(), Arc::clone(watch));
        Outgoing { state: State::Done, left: Some(0), pieces, watch }
    }
}

/// Makes a stream's chunks on a thread that may wait for them, and for the other side.
fn begin(
    chunks: Chunks,
    len: Option<u64>,
    check: Option<Check>,
) -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (give, take) = mpsc::channel(AHEAD);
    // Nobody waits for the thread: it ends with the stream, or when nobody takes its chunks.
    drop(tokio::task::spawn_blocking(move || {
        let may = || check.as_ref().is_none_or(|check| check());
        let refused = || io::Error::other("the response may not be completed any more");
        let mut left = len;
        for chunk in chunks {
            let chunk = chunk.and_then(|chunk| {
                if let Some(left) = &mut left {
                    *left = left
                        .checked_sub(chunk.len() as u64)
                        .ok_or_else(|| io::Error::other("a stream is longer than it said"))?;
                }
                if may() { Ok(chunk) } else { Err(refused()) }
            });
            let ends = chunk.is_err();
            if give.blocking_send(chunk).is_err() || ends {
                return;
            }
        }
        let end = match left {
            Some(left) if left > 0 => Err(io::Error::other("a stream is shorter than it said")),
            _ if may() => return,
            _ => Err(refused()),
        };
        let _ = give.blocking_send(end);
    }));
    take
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let data = match &mut this.state {
            State::Bytes(bytes) if !bytes.is_empty() => Some(std::mem::take(bytes)),
            State::Piece(piece) if this.left > Some(0) => {
                if let Some(piece) = piece.take() {
                    this.pieces.put(*piece);
                }
                Some(placeholder(this.left.unwrap_or(0)))
            }
            State::Stream(chunks) => ready!(chunks.poll_recv(cx)).transpose()?.map(Bytes::from),
            _ => None,
        };
        let Some(data) = data else {
            this.state = State::Done;
            return Poll::Ready(None);
        };
        if let Some(left) = &mut this.left {
            *left -= data.len() as u64;
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.watch.answered();
    }
}
