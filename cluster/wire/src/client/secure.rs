//! The client's side of TLS, over bytes that come and go elsewhere.
//!
//! rustls is given whole stretches of what arrives, so that one call of the kernel brings many
//! records, and each is decrypted where it lies and copied once, to where the caller wants it. Its
//! buffered interface reads a record in four calls and copies it twice more.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError};
use rustls::{ClientConfig, Error as TlsError};

/// What arrives is kept here until it is decrypted: a dozen records.
const INCOMING: usize = 256 << 10;
/// The most that a record adds to what it carries, generously.
const RECORD: usize = 16 << 10;
const OVERHEAD: usize = 64;

/// What is to be done next.
pub(crate) enum Step {
    /// So many bytes were decrypted into the caller's memory.
    Got(usize),
    /// [`Secure::outgoing`] is to be sent.
    Send,
    /// More is to be received.
    More,
    /// All that arrived is decrypted; the caller's own bytes may be encrypted.
    Ready,
    /// The other side has said that it sends no more.
    Ended,
}

/// One connection's state.
pub(crate) struct Secure {
    tls: UnbufferedClientConnection,
    incoming: Box<[u8]>,
    from: usize,
    to: usize,
    /// What is to be sent.
    pub(crate) outgoing: Vec<u8>,
    /// What was decrypted beyond the caller's memory.
    over: Vec<u8>,
    ended: bool,
}

impl Secure {
    pub(crate) fn new(
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Secure, TlsError> {
        Ok(Secure {
            tls: UnbufferedClientConnection::new(Arc::clone(config), name)?,
            incoming: vec![0; INCOMING].into_boxed_slice(),
            from: 0,
            to: 0,
            outgoing: Vec::new(),
            over: Vec::new(),
            ended: false,
        })
    }

    /// Whom the other side's certificate speaks for is asked of these.
    pub(crate) fn peer(&self) -> Option<&[rustls::pki_types::CertificateDer<'static>]> {
        self.tls.peer_certificates()
    }

    /// Where the next bytes that arrive belong.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if INCOMING - self.to < RECORD + OVERHEAD {
            self.incoming.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        &mut self.incoming[self.to..]
    }

    /// So many bytes were put into the room.
    pub(crate) fn arrived(&mut self, len: usize) {
        self.to += len;
    }

    /// Goes on with what has arrived: decrypts at most one record into the caller's memory.
    pub(crate) fn step(&mut self, into: &mut [u8]) -> Result<Step, TlsError> {
        if !self.over.is_empty() && !into.is_empty() {
            let len = into.len().min(self.over.len());
            into[..len].copy_from_slice(&self.over[..len]);
            self.over.drain(..len);
            return Ok(Step::Got(len));
        }
        loop {
            let Secure { tls, incoming, outgoing, over, ended, .. } = self;
            let status = tls.process_tls_records(&mut incoming[self.from..self.to]);
            let mut discard = status.discard;
            let step = match status.state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    let mut got = 0;
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        let len = record.payload.len().min(into.len() - got);
                        into[got..got + len].copy_from_slice(&record.payload[..len]);
                        over.extend_from_slice(&record.payload[len..]);
                        got += len;
                    }
                    (got > 0).then_some(Step::Got(got))
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    grown(outgoing, 4 << 10, |room| match data.encode(room) {
                        Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                        done => done.map_err(|_| None),
                    })?;
                    None
                }
                ConnectionState::TransmitTlsData(transmit) => {
                    transmit.done();
                    Some(Step::Send)
                }
                ConnectionState::BlockedHandshake => Some(Step::More),
                ConnectionState::WriteTraffic(_) if *ended => Some(Step::Ended),
                ConnectionState::WriteTraffic(_) => Some(Step::Ready),
                ConnectionState::PeerClosed | ConnectionState::Closed => {
                    *ended = true;
                    Some(Step::Ended)
                }
                _ => return Err(TlsError::General("an unknown state of TLS".into())),
            };
            self.from += discard;
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    /// Encrypts bytes behind those that are to be sent. Only when a step was [`Step::Ready`].
    pub(crate) fn encrypt(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        let status = self.tls.process_tls_records(&mut self.incoming[self.from..self.to]);
        self.from += status.discard;
        let ConnectionState::WriteTraffic(mut traffic) = status.state? else {
            return Err(TlsError::General("bytes arrived that nobody has asked for".into()));
        };
        for record in bytes.chunks(RECORD) {
            let least = record.len() + OVERHEAD;
            grown(&mut self.outgoing, least, |room| match traffic.encrypt(record, room) {
                Err(EncryptError::InsufficientSize(size)) => Err(Some(size.required_size)),
                done => done.map_err(|_| None),
            })?;
        }
        Ok(())
    }
}

/// Lets something be written behind a buffer's end, with as much room as it needs.
fn grown(
    buffer: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), TlsError> {
    let (end, mut room) = (buffer.len(), room);
    loop {
        buffer.resize(end + room, 0);
        let done = write(&mut buffer[end..]);
        buffer.truncate(end + done.unwrap_or(0));
        match done {
            Ok(_) => return Ok(()),
            Err(Some(needed)) if needed > room => room = needed,
            Err(_) => return Err(TlsError::General("a record could not be encrypted".into())),
        }
    }
}
