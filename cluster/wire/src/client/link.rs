//! One connection of a client: bytes out, bytes in, each with a deadline.
//!
//! The socket never blocks: what is not there yet is awaited with `poll`, which has a deadline. The
//! caller's own thread does all of it, so bytes come straight into its memory, and no other thread
//! has to be woken for them.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::client::secure::{Secure, Step};
use crate::error::{Error, Result};
use crate::tls::{self, Tls};

/// A connection.
pub(crate) struct Link {
    address: String,
    socket: TcpStream,
    secure: Option<Box<Secure>>,
}

impl Link {
    /// Connects to `HOST:PORT`, and proves both sides to each other if there is TLS.
    pub(crate) fn connect(address: &str, tls: Option<&Tls>, until: Instant) -> Result<Link> {
        let mut last = None;
        for found in resolve(address, until)? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match TcpStream::connect_timeout(&found, left) {
                Ok(socket) => return Link::over(address, socket, tls, until),
                Err(error) => last = Some(error),
            }
        }
        Err(match last {
            Some(error) if is_of_this_side(&error) => {
                Error::os(format!("connecting to {address}"), &error)
            }
            Some(error) if error.kind() != io::ErrorKind::TimedOut => Error::Unreachable(format!(
                "{address}: {error}; is its host up, and does anything serve there?"
            )),
            _ => Error::Unreachable(format!("{address} did not answer in time; is its host up?")),
        })
    }

    fn over(address: &str, socket: TcpStream, tls: Option<&Tls>, until: Instant) -> Result<Link> {
        let failed = |e: io::Error| Error::os(format!("setting up a connection to {address}"), &e);
        socket.set_nonblocking(true).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let mut link = Link { address: address.to_owned(), socket, secure: None };
        if let Some(tls) = tls {
            let name = tls::name_of(host_of(address)?)?;
            let secure = Secure::new(&tls.client, name).map_err(|e| link.refused(&e))?;
            link.secure = Some(Box::new(secure));
            // Until all of the own handshake is out, nothing can be sent.
            link.step_until_ready(until)?;
            tls.server_peer(link.secure.as_ref().and_then(|secure| secure.peer()))?;
        }
        Ok(link)
    }

    /// The address, as the caller has given it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Whether the other side has closed the connection, or sent what nobody has asked for.
    pub(crate) fn is_stale(&self) -> bool {
        // What has come may be tickets of TLS, behind which the end is not seen yet.
        let mut end = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        if !matches!(poll(&mut end, Some(&Timespec::default())), Ok(0)) {
            return true;
        }
        let mut byte = [0];
        match rustix::net::recv(&self.socket, &mut byte, rustix::net::RecvFlags::PEEK) {
            // Under TLS the other side may send tickets at any time.
            Ok((_, len)) => len == 0 || self.secure.is_none(),
            Err(error) => error != Errno::AGAIN,
        }
    }

    /// Sends all of some bytes. It may take longer, as long as the other side takes some of them
    /// within the time that is left now.
    pub(crate) fn send(&mut self, bytes: &[u8], until: Instant) -> Result<()> {
        if self.secure.is_none() {
            return self.send_plain(bytes, until);
        }
        // A body is encrypted a piece at a time, for memory's sake.
        let patience = until.saturating_duration_since(Instant::now());
        for piece in bytes.chunks(256 << 10) {
            let until = Instant::now() + patience;
            self.step_until_ready(until)?;
            let Some(secure) = &mut self.secure else { break };
            if let Err(error) = secure.encrypt(piece) {
                return Err(self.refused(&error));
            }
            self.send_outgoing(until)?;
        }
        Ok(())
    }

    /// Receives into memory: at least a byte, or 0 where the other side has ended.
    pub(crate) fn receive(&mut self, into: &mut [u8], until: Instant) -> Result<usize> {
        let mut got = 0;
        loop {
            let Some(secure) = &mut self.secure else { return self.receive_plain(into, until) };
            match secure.step(&mut into[got..]).map_err(|e| tls::failed(&self.address, &e))? {
                // As many records as have arrived, or fit.
                Step::Got(len) => got += len,
                Step::Send => self.send_outgoing(until)?,
                Step::Ready | Step::More if got == 0 => self.receive_records(until)?,
                Step::Ready | Step::More | Step::Ended => return Ok(got),
            }
            if got == into.len() {
                return Ok(got);
            }
        }
    }

    fn receive_plain(&self, into: &mut [u8], until: Instant) -> Result<usize> {
        loop {
            match io::Read::read(&mut &self.socket, into) {
                Ok(len) => return Ok(len),
                Err(error) => self.blocked(&error, PollFlags::IN, until)?,
            }
        }
    }

    /// Receives what TLS is to take apart.
    fn receive_records(&mut self, until: Instant) -> Result<()> {
        let Some(secure) = &mut self.secure else { return Ok(()) };
        loop {
            match io::Read::read(&mut &self.socket, secure.room()) {
                // Without the other side's goodbye nobody knows whether this is the end.
                Ok(0) => {
                    return Err(Error::Broken(format!(
                        "{} broke the connection off",
                        self.address
                    )));
                }
                Ok(len) => {
                    secure.arrived(len);
                    return Ok(());
                }
                Err(error) => {
                    blocked(&self.socket, &self.address, &error, PollFlags::IN, until)?;
                }
            }
        }
    }

    fn step_until_ready(&mut self, until: Instant) -> Result<()> {
        loop {
            let Some(secure) = &mut self.secure else { return Ok(()) };
            match secure.step(&mut []) {
                Ok(Step::Ready) => return Ok(()),
                Ok(Step::Send) => self.send_outgoing(until)?,
                Ok(Step::More) => self.receive_records(until)?,
                Ok(Step::Got(_)) => {}
                Ok(Step::Ended) => {
                    return Err(Error::Broken(format!("{} has ended", self.address)));
                }
                Err(error) => return Err(self.refused(&error)),
            }
        }
    }

    fn send_outgoing(&mut self, until: Instant) -> Result<()> {
        let Some(secure) = &mut self.secure else { return Ok(()) };
        let outgoing = std::mem::take(&mut secure.outgoing);
        self.send_plain(&outgoing, until)?;
        if let Some(secure) = &mut self.secure {
            secure.outgoing = outgoing;
            secure.outgoing.clear();
        }
        Ok(())
    }

    fn send_plain(&self, mut bytes: &[u8], mut until: Instant) -> Result<()> {
        let patience = until.saturating_duration_since(Instant::now());
        while !bytes.is_empty() {
            match io::Write::write(&mut &self.socket, bytes) {
                Ok(len) => {
                    bytes = &bytes[len..];
                    until = Instant::now() + patience;
                }
                Err(error) => self.blocked(&error, PollFlags::OUT, until)?,
            }
        }
        Ok(())
    }

    fn blocked(&self, error: &io::Error, for_what: PollFlags, until: Instant) -> Result<()> {
        blocked(&self.socket, &self.address, error, for_what, until)
    }

    fn refused(&self, error: &rustls::Error) -> Error {
        tls::failed(&self.address, error)
    }
}

/// Waits where a call would have blocked; any other error is the connection's end.
fn blocked(
    socket: &TcpStream,
    address: &str,
    error: &io::Error,
    for_what: PollFlags,
    until: Instant,
) -> Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => wait(socket, address, for_what, until),
        _ => Err(Error::Broken(format!("the connection to {address} broke: {error}"))),
    }
}

fn wait(socket: &TcpStream, address: &str, for_what: PollFlags, until: Instant) -> Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let late = || Error::Deadline(format!("{address} sends or takes nothing; it is slow or away"));
    if left.is_zero() {
        return Err(late());
    }
    let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(socket, for_what)], Some(&time)) {
        Ok(0) => Err(late()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(Error::os("waiting for a connection", &error.into())),
    }
}

/// The host of `HOST:PORT`; an IPv6 address stands in brackets.
fn host_of(address: &str) -> Result<&str> {
    let host = address.rsplit_once(':').map(|(host, _)| host).filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| no_address(address))?;
    Ok(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

/// Whether this process, or its host, has no descriptor, memory or port left.
fn is_of_this_side(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::ADDRNOTAVAIL)
    )
}

fn no_address(address: &str) -> Error {
    Error::Argument(format!("{address:?} is no address: write HOST:PORT"))
}

/// The addresses of a name. The C library looks names up without a deadline, so another thread
/// does, and is left to itself where it takes too long.
fn resolve(address: &str, until: Instant) -> Result<Vec<SocketAddr>> {
    if let Ok(known) = address.parse() {
        return Ok(vec![known]);
    }
    host_of(address)?;
    let (give, take) = mpsc::channel();
    let name = address.to_owned();
    std::thread::Builder::new()
        .name("engram-names".into())
        .spawn(move || {
            let _ = give.send(name.to_socket_addrs().map(Iterator::collect));
        })
        .map_err(|e| Error::os("looking up a name", &e))?;
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    match take.recv_timeout(left) {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => Err(no_address(address)),
        Ok(Err(error)) => Err(Error::Unreachable(format!("{address}: {error}; is it its name?"))),
        Err(_) => Err(Error::Unreachable(format!("{address}: no name server answers in time"))),
    }
}
