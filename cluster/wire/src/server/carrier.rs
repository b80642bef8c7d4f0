//! A connection as hyper sees it: bytes in, bytes out, and placeholders that become pieces.
//!
//! On plain TCP a piece of a file goes by `sendfile`, from the page cache to the socket. Under TLS
//! it is read into memory, as much as one write encrypts, and written from there.

use std::any::Any;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};
use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;

use crate::server::kernel;
use crate::server::piece::{Pieces, Source, is_placeholder};
use crate::server::watch::Watch;

/// What is read at once. Requests are small: bytes of files come by answers to them.
const INBOX: usize = 64 << 10;
/// What is encrypted at once, four records: the rest of a piece is read while it is on its way.
const OUTBOX: usize = 64 << 10;

/// How long a guard is held for what the other side does not acknowledge.
const HELD: Duration = Duration::from_secs(60);

/// The connection below.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection with its pieces.
pub(crate) struct Carrier {
    stream: Stream,
    pieces: Pieces,
    watch: Arc<Watch>,
    inbox: Box<[u8]>,
    /// Bytes of the next piece that are to be encrypted: read, and not yet taken.
    outbox: Vec<u8>,
    taken: usize,
}

impl Carrier {
    pub(crate) fn new(stream: Stream, pieces: Pieces, watch: Arc<Watch>) -> Carrier {
        let inbox = vec![0; INBOX].into_boxed_slice();
        Carrier { stream, pieces, watch, inbox, outbox: Vec::new(), taken: 0 }
    }

    /// Writes slices of memory; `more` says that a piece follows.
    fn write_slices(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            // What follows shares the packet of a response's head.
            Stream::Plain(tcp) if more && slices.len() == 1 => {
                let send = || {
                    Ok(rustix::net::send(&*tcp, &slices[0], SendFlags::MORE | SendFlags::NOSIGNAL)?)
                };
                when_writable(tcp, cx, send)
            }
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Stream::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        }
    }

    /// Sends at most so many bytes of the next piece.
    fn write_piece(&mut self, cx: &mut Context<'_>, most: u64) -> Poll<io::Result<usize>> {
        let Carrier { stream, pieces, outbox, taken, .. } = self;
        let sent = match stream {
            Stream::Plain(tcp) => ready!(when_writable(tcp, cx, || send_piece(tcp, pieces, most))),
            Stream::Tls(tls) => ready!(encrypt_piece(tls, cx, pieces, outbox, taken, most)),
        }?;
        if sent == 0 {
            let text = "a file has fewer bytes than its response promises";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
        }
        if let (Some(guard), Stream::Plain(tcp)) = (pieces.sent(sent as u64), stream)
            && let Ok(socket) = tcp.as_fd().try_clone_to_owned()
        {
            tokio::spawn(hold(guard, socket));
        }
        Poll::Ready(Ok(sent))
    }
}

/// Keeps a guard until the other side has acknowledged all bytes, or the connection is over.
///
/// `sendfile` gives the socket the pages of a file, and no copy of them: what would be written into
/// them before that, others would receive. The kernel tells nobody when it is so; it has to be
/// asked.
async fn hold(guard: Box<dyn Any + Send>, socket: OwnedFd) {
    let end = Instant::now() + HELD;
    let mut pause = Duration::from_millis(1);
    while kernel::may_send_again(&socket) && Instant::now() < end {
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    drop(guard);
}

/// Does one call of the kernel as soon as the socket takes bytes.
fn when_writable(
    tcp: &TcpStream,
    cx: &mut Context<'_>,
    call: impl Fn() -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(tcp.poll_write_ready(cx))?;
        match tcp.try_io(Interest::WRITABLE, &call) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return Poll::Ready(done),
        }
    }
}

fn send_piece(tcp: &TcpStream, pieces: &Pieces, most: u64) -> io::Result<usize> {
    pieces.with_next(|piece| {
        let len = most.min(piece.left);
        piece.may_send(len)?;
        match &piece.source {
            Source::File(file) => {
                let mut offset = piece.offset;
                Ok(rustix::fs::sendfile(tcp, file, Some(&mut offset), len as usize)?)
            }
            Source::Memory(bytes) => {
                let from = piece.offset as usize;
                Ok(rustix::net::send(tcp, &bytes[from..from + len as usize], SendFlags::NOSIGNAL)?)
            }
        }
    })
}

fn encrypt_piece(
    tls: &mut TlsStream<TcpStream>,
    cx: &mut Context<'_>,
    pieces: &Pieces,
    outbox: &mut Vec<u8>,
    taken: &mut usize,
    most: u64,
) -> Poll<io::Result<usize>> {
    if *taken == outbox.len() {
        *taken = 0;
        pieces.with_next(|piece| {
            let len = piece.left.min(OUTBOX as u64) as usize;
            outbox.resize(len, 0);
            let read = match &piece.source {
                Source::File(file) => rustix::io::pread(file, &mut outbox[..], piece.offset)?,
                Source::Memory(bytes) => {
                    let from = piece.offset as usize;
                    outbox.copy_from_slice(&bytes[from..from + len]);
                    len
                }
            };
            outbox.truncate(read);
            Ok(())
        })?;
    }
    let ready = &outbox[*taken..];
    let len = ready.len().min(most as usize);
    if pieces.with_next(|piece| Ok(piece.left == len as u64))? {
        // The last bytes wait until all before them have gone: then it is asked whether they may.
        ready!(Pin::new(&mut *tls).poll_flush(cx))?;
        pieces.with_next(|piece| piece.may_send(len as u64))?;
    }
    let sent = ready!(Pin::new(tls).poll_write(cx, &ready[..len]))?;
    *taken += sent;
    Poll::Ready(Ok(sent))
}

impl Write for Carrier {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let memory = bufs.iter().take_while(|slice| !is_placeholder(slice)).count();
        let written = if memory > 0 {
            this.write_slices(cx, &bufs[..memory], memory < bufs.len())
        } else {
            let run = bufs.iter().take_while(|slice| is_placeholder(slice));
            this.write_piece(cx, run.map(|slice| slice.len() as u64).sum())
        };
        match &written {
            Poll::Ready(Ok(len)) => this.watch.wrote(*len),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => this.watch.is_full(),
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = match &mut this.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        };
        if flushed.is_pending() {
            this.watch.is_full();
        } else {
            this.watch.wrote(0);
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

impl Read for Carrier {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let room = buf.remaining().min(this.inbox.len());
        let mut inbox = ReadBuf::new(&mut this.inbox[..room]);
        match &mut this.stream {
            Stream::Plain(tcp) => ready!(Pin::new(tcp).poll_read(cx, &mut inbox)),
            Stream::Tls(tls) => ready!(Pin::new(tls).poll_read(cx, &mut inbox)),
        }?;
        if !inbox.filled().is_empty() {
            this.watch.came(inbox.filled().len());
        }
        buf.put_slice(inbox.filled());
        Poll::Ready(Ok(()))
    }
}
