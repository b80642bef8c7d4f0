//! Requests, each with a deadline, over connections that are kept.
//!
//! The caller's thread does all: it connects, sends, waits and receives. Callers are threads of the
//! engine, Python without its lock, ranks of MPI; an event loop between them and the kernel would
//! wake two threads more for each request, and have to be there again after a fork. Whoever asks
//! many at once does so from as many threads.

pub(crate) mod exchange;
pub(crate) mod link;
pub(crate) mod secure;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use engram_base::mutex::lock;

use crate::client::exchange::{Exchange, Head};
use crate::client::link::Link;
use crate::error::{Error, Result};
use crate::message::{Headers, Method};
use crate::tls::Tls;

/// How many idle connections are kept for each address.
const KEPT: usize = 8;
/// Connections that are kept to all addresses: an address that is asked again connects anew.
const KEPT_IN_ALL: usize = 256;
/// How long one is kept: less long than a server waits.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Bytes of a body that come or go in a second, at least.
const SLOWEST: u64 = 64 << 10;

/// How long so many bytes may be on their way, beyond the deadline for an answer to begin.
pub fn on_its_way(nbytes: u64) -> Duration {
    Duration::from_secs(nbytes / SLOWEST)
}

/// How a request is made.
#[derive(Clone, Debug)]
pub struct Ask {
    /// How long an answer may take once the request has gone, and the connection before. A body is
    /// on its way for longer, as long as some of it comes or goes at any time.
    pub deadline: Duration,
    /// How long a connection may take to come about, of that.
    pub connect: Duration,
    /// How many bytes an answer may have.
    pub most_bytes: u64,
}

impl Default for Ask {
    fn default() -> Self {
        Ask {
            deadline: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            most_bytes: 16 << 20,
        }
    }
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The answer if its status is below 400, and else what the other side says.
    pub fn accepted(self) -> Result<Answer> {
        if self.status < 400 {
            return Ok(self);
        }
        let message = String::from_utf8_lossy(&self.body).trim_end().to_owned();
        Err(Error::Refused { status: self.status, message })
    }
}

struct Kept {
    exchange: Exchange,
    since: Instant,
}

/// What asks, and the connections that it keeps.
///
/// After a fork the child keeps none: the parent's are not its own to speak on.
pub struct Client {
    tls: Option<Tls>,
    kept: Mutex<HashMap<String, Vec<Kept>>>,
    process: u32,
}

impl Client {
    /// A client; with TLS it believes only members of its own cluster.
    pub fn new(tls: Option<&Tls>) -> Client {
        Client { tls: tls.cloned(), kept: Mutex::default(), process: std::process::id() }
    }

    /// Whether what is received is what the socket gives, and not decrypted.
    pub(crate) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Asks at `HOST:PORT` for a path, as it stands in a request ([`crate::target`]), and reads the
    /// answer, whatever its status.
    ///
    /// What can be done twice is tried once more if a kept connection turns out to be closed. On
    /// an error anything else may have been done, or not.
    pub fn request(
        &self,
        method: Method,
        address: &str,
        path: &str,
        headers: &Headers,
        body: &[u8],
        ask: &Ask,
    ) -> Result<Answer> {
        let until = Instant::now() + ask.deadline;
        let head = head_of(method, address, path, headers, body.len())?;
        let (mut exchange, head) =
            self.begin(method, address, head.as_bytes(), body, ask.connect, until)?;
        let until = Instant::now() + ask.deadline + head.on_its_way();
        let body = exchange.body(&head, ask.most_bytes, until)?;
        self.keep(exchange);
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// Asks for what lies at a path.
    pub fn get(&self, address: &str, path: &str, ask: &Ask) -> Result<Answer> {
        self.request(Method::Get, address, path, &Headers::default(), &[], ask)
    }

    /// Sends a request and reads the head of its answer, on a kept connection if there is one.
    pub(crate) fn begin(
        &self,
        method: Method,
        address: &str,
        head: &[u8],
        body: &[u8],
        connect: Duration,
        until: Instant,
    ) -> Result<(Exchange, Head)> {
        if let Some(mut exchange) = self.take(address) {
            match exchange.ask(method, head, body, until) {
                Ok(head) => return Ok((exchange, head)),
                // It was closed while nobody looked: the request was not begun.
                Err(Error::Broken(_)) if method.is_idempotent() && !exchange.has_answered => {}
                Err(error) => return Err(error),
            }
        }
        let connected = until.min(Instant::now() + connect);
        let mut exchange = Exchange::new(Link::connect(address, self.tls.as_ref(), connected)?);
        let head = exchange.ask(method, head, body, until)?;
        Ok((exchange, head))
    }

    fn take(&self, address: &str) -> Option<Exchange> {
        if std::process::id() != self.process {
            return None;
        }
        loop {
            let kept = lock(&self.kept).get_mut(address)?.pop()?;
            if kept.since.elapsed() < KEPT_FOR && !kept.exchange.link.is_stale() {
                return Some(kept.exchange);
            }
        }
    }

    /// Closes the connections that are kept.
    pub fn close_kept(&self) {
        if std::process::id() == self.process {
            lock(&self.kept).clear();
        }
    }

    /// Keeps a connection for the next request, if it can have one.
    pub(crate) fn keep(&self, exchange: Exchange) {
        // The lock may have been held by another thread at the fork.
        if !exchange.can_go_on() || std::process::id() != self.process {
            return;
        }
        let mut kept = lock(&self.kept);
        // Nobody else looks at connections to addresses that are asked no more.
        kept.retain(|_, own| {
            own.retain(|one| one.since.elapsed() < KEPT_FOR);
            !own.is_empty()
        });
        if kept.values().map(Vec::len).sum::<usize>() >= KEPT_IN_ALL {
            return;
        }
        let own = kept.entry(exchange.link.address().to_owned()).or_default();
        if own.len() >= KEPT {
            own.remove(0);
        }
        own.push(Kept { exchange, since: Instant::now() });
    }
}

/// A request's head, if all of it can be sent as it is.
pub(crate) fn head_of(
    method: Method,
    address: &str,
    path: &str,
    headers: &Headers,
    body: usize,
) -> Result<String> {
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::Argument(format!(
            "{path:?} cannot be asked for: it begins with '/', and encode_path makes it so"
        )));
    }
    let host = address.bytes().all(|byte| byte.is_ascii_graphic());
    if !host {
        return Err(Error::Argument(format!("{address:?} is no address: write HOST:PORT")));
    }
    let mut head = format!("{} {path} HTTP/1.1\r\nHost: {address}\r\n", method.word());
    for (name, value) in &headers.0 {
        let named = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !named || value.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(Error::Argument(format!("the header {name:?}: {value:?} cannot be sent")));
        }
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if body > 0 || matches!(method, Method::Put | Method::Post) {
        let _ = write!(head, "Content-Length: {body}\r\n");
    }
    head.push_str("\r\n");
    Ok(head)
}
