//! One request and its response, on a connection: heads, and how long a body is.

use std::time::{Duration, Instant};

use crate::client::link::Link;
use crate::client::on_its_way;
use crate::error::{Error, Result};
use crate::message::{Headers, Method};

/// A response's head has at most so many bytes, and so many headers.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 100;
/// What is read at once while a head is awaited: of a body that follows no more has to be copied.
const STEP: usize = 4 << 10;
/// What is read at once of a body.
const AT_ONCE: u64 = 256 << 10;

/// Where a response's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    UntilClosed,
}

/// A response but for its body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) framing: Framing,
    /// Whether the connection can be used again once the body is read.
    keeps: bool,
}

impl Head {
    /// How long the body may be on its way, beyond what any answer may take.
    pub(crate) fn on_its_way(&self) -> Duration {
        match self.framing {
            Framing::Length(len) => on_its_way(len),
            Framing::Chunked | Framing::UntilClosed => Duration::ZERO,
        }
    }
}

/// A connection, and what has arrived on it and is not read yet.
pub(crate) struct Exchange {
    pub(crate) link: Link,
    arrived: Vec<u8>,
    /// Whether a byte of a response has come since the request went.
    pub(crate) has_answered: bool,
    keeps: bool,
}

impl Exchange {
    pub(crate) fn new(link: Link) -> Exchange {
        Exchange { link, arrived: Vec::new(), has_answered: false, keeps: false }
    }

    /// Whether the connection can have another request: the last body is read, and nothing more
    /// has come.
    pub(crate) fn can_go_on(&self) -> bool {
        self.keeps && self.arrived.is_empty()
    }

    /// Sends a request, and reads the head of what is answered. A body may be on its way for
    /// longer; then the answer may take as long as was left in the beginning. What the kernel still
    /// holds of the body then, some megabytes at most, must be gone by the same time.
    pub(crate) fn ask(
        &mut self,
        method: Method,
        head: &[u8],
        body: &[u8],
        until: Instant,
    ) -> Result<Head> {
        (self.has_answered, self.keeps) = (false, false);
        let patience = until.saturating_duration_since(Instant::now());
        let small = body.len() <= STEP;
        let sent = if small {
            self.link.send(&[head, body].concat(), until)
        } else {
            self.link.send(head, until).and_then(|()| self.link.send(body, until))
        };
        let until = if small { until } else { Instant::now() + patience };
        match sent {
            // Who refuses a body, or a certificate, closes before all is sent, and has said why.
            Err(Error::Broken(text)) => self.head(method, until).map_err(|error| match error {
                Error::Tls(_) => error,
                _ => Error::Broken(text),
            }),
            Err(error) => Err(error),
            Ok(()) => self.head(method, until),
        }
    }

    fn head(&mut self, method: Method, until: Instant) -> Result<Head> {
        loop {
            if let Some((head, len)) = parse(&self.arrived, method, self.link.address())? {
                self.arrived.drain(..len);
                // What is below 200 announces the answer.
                if head.status >= 200 {
                    self.keeps = head.keeps && head.framing == Framing::Length(0);
                    return Ok(head);
                }
            } else if self.arrived.len() > HEAD_BYTES {
                return Err(self.odd("sends a head that does not end"));
            } else if self.more(until)? == 0 {
                return Err(self.cut());
            }
        }
    }

    /// Receives a little more behind what has arrived.
    fn more(&mut self, until: Instant) -> Result<usize> {
        let end = self.arrived.len();
        self.arrived.resize(end + STEP, 0);
        let received = self.link.receive(&mut self.arrived[end..], until);
        self.arrived.truncate(end + *received.as_ref().unwrap_or(&0));
        self.has_answered |= received.as_ref().is_ok_and(|len| *len > 0);
        received
    }

    /// Receives the next bytes of a body into memory, which must not reach beyond its end.
    pub(crate) fn receive(&mut self, into: &mut [u8], until: Instant) -> Result<usize> {
        if self.arrived.is_empty() {
            return self.link.receive(into, until);
        }
        let len = into.len().min(self.arrived.len());
        into[..len].copy_from_slice(&self.arrived[..len]);
        self.arrived.drain(..len);
        Ok(len)
    }

    /// The body that belongs to a head was read to its end.
    pub(crate) fn done(&mut self, head: &Head) {
        self.keeps = head.keeps;
    }

    /// Reads a body of at most so many bytes.
    pub(crate) fn body(&mut self, head: &Head, most: u64, until: Instant) -> Result<Vec<u8>> {
        let too_large = || {
            Error::TooLarge(format!("the answer has more than the {most} bytes that were allowed"))
        };
        let mut body = Vec::new();
        match head.framing {
            Framing::Length(len) if len > most => return Err(too_large()),
            Framing::Length(len) => self.add(&mut body, len, until)?,
            Framing::Chunked => loop {
                let size = self.chunk_size(until)?;
                if body.len() as u64 + size > most {
                    return Err(too_large());
                }
                if size == 0 {
                    while !self.line(until)?.is_empty() {}
                    break;
                }
                self.add(&mut body, size, until)?;
                if !self.line(until)?.is_empty() {
                    return Err(self.odd("sends a chunk that is longer than it says"));
                }
            },
            Framing::UntilClosed => loop {
                let mut piece = [0; STEP];
                let len = self.receive(&mut piece, until)?;
                body.extend_from_slice(&piece[..len]);
                if len == 0 {
                    break;
                } else if body.len() as u64 > most {
                    return Err(too_large());
                }
            },
        }
        self.done(head);
        Ok(body)
    }

    /// Adds so many bytes to a body. Memory is taken as they come, and not for what is announced.
    fn add(&mut self, body: &mut Vec<u8>, len: u64, until: Instant) -> Result<()> {
        let mut left = len;
        while left > 0 {
            let at = body.len();
            body.resize(at + left.min(AT_ONCE) as usize, 0);
            let received = self.receive(&mut body[at..], until);
            let len = *received.as_ref().unwrap_or(&0);
            body.truncate(at + len);
            left -= len as u64;
            if received? == 0 {
                return Err(self.cut());
            }
        }
        Ok(())
    }

    fn chunk_size(&mut self, until: Instant) -> Result<u64> {
        let line = self.line(until)?;
        let digits = line.split(';').next().unwrap_or("").trim();
        let is_number = !digits.is_empty() && digits.bytes().all(|d| d.is_ascii_hexdigit());
        match u64::from_str_radix(digits, 16) {
            Ok(size) if is_number && size < 1 << 48 => Ok(size),
            _ => Err(self.odd("sends a chunk without a length")),
        }
    }

    fn line(&mut self, until: Instant) -> Result<String> {
        loop {
            if let Some(end) = self.arrived.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.arrived.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
            }
            if self.arrived.len() > HEAD_BYTES {
                return Err(self.odd("sends a line that does not end"));
            }
            if self.more(until)? == 0 {
                return Err(self.cut());
            }
        }
    }

    fn cut(&self) -> Error {
        Error::Broken(format!("{} ended before its answer did", self.link.address()))
    }

    fn odd(&self, what: &str) -> Error {
        Error::Broken(format!("{} {what}: is it an HTTP/1.1 server?", self.link.address()))
    }
}

/// The head of a response and its length, if all of it has arrived.
fn parse(arrived: &[u8], method: Method, address: &str) -> Result<Option<(Head, usize)>> {
    let odd = |what: String| Error::Broken(format!("{address} does not speak HTTP/1.1: {what}"));
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(arrived).map_err(|e| odd(e.to_string()))?;
    let httparse::Status::Complete(len) = parsed else { return Ok(None) };
    let mut found = Headers::default();
    for header in response.headers {
        found.push(header.name, String::from_utf8_lossy(header.value));
    }
    let status = response.code.unwrap_or(0);
    let framing = framing(method, status, &found).map_err(odd)?;
    let closes = found
        .get("connection")
        .is_some_and(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case("close")));
    let keeps = response.version == Some(1) && !closes && framing != Framing::UntilClosed;
    Ok(Some((Head { status, headers: found, framing, keeps }, len)))
}

fn framing(method: Method, status: u16, headers: &Headers) -> std::result::Result<Framing, String> {
    if method == Method::Head || status < 200 || matches!(status, 204 | 304) {
        return Ok(Framing::Length(0));
    }
    if let Some(coding) = headers.get("transfer-encoding") {
        let known = coding.trim().eq_ignore_ascii_case("chunked");
        return if known { Ok(Framing::Chunked) } else { Err(format!("coding {coding:?}")) };
    }
    let own = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-length");
    let mut lengths = headers.0.iter().filter(own);
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(Framing::UntilClosed),
        (Some((_, value)), None) if value.bytes().all(|digit| digit.is_ascii_digit()) => {
            value.parse().map(Framing::Length).map_err(|e| format!("a length of {value:?}: {e}"))
        }
        (Some((_, value)), _) => Err(format!("a length of {value:?}")),
    }
}
