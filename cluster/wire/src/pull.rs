//! Bytes of several holders, into the caller's memory: on from where they broke off.
//!
//! A pull asks for ranges, so whatever has arrived stays: after a break it asks the same holder for
//! the rest, and where that does not help, the next one. All ranges must be of one thing. They have
//! the expected length in common, and the `ETag` that came first, which is sent with each further
//! request; anything else is [`Error::Changed`].
//!
//! The socket's bytes go straight into the caller's memory, or by way of a
//! buffer in the cache (`bounce.rs`) where that is faster. The checksum is computed over each
//! piece right after it has come, while it is in the processor's cache. Several connections divide
//! the memory among them; their checksum is computed once all has come.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engram_base::checksum::RunningChecksum;
use engram_base::mutex::lock;

use crate::bounce::Bounce;
use crate::client::exchange::{Exchange, Framing, Head};
use crate::client::{Ask, Client, head_of};
use crate::error::{Error, Result};
use crate::message::{Headers, Method};

/// What is received before it is summed up: it fits a processor's own cache.
const PIECE: usize = 256 << 10;
/// A connection more is worth its making for so many bytes.
const LEAST_EACH: usize = 4 << 20;
/// How much of a refusal is read.
const REFUSAL: u64 = 4 << 10;

/// Which bytes are pulled, where they are not all that are at a path.
#[derive(Clone, Copy, Debug)]
pub struct Within {
    /// Where they begin.
    pub from: u64,
    /// How many there are at the path.
    pub total: u64,
}

/// How bytes are pulled.
#[derive(Clone, Debug)]
pub struct Pull {
    /// Which are pulled; none: all.
    pub within: Option<Within>,
    /// What the bytes' `ETag` must be, if that is known.
    pub etag: Option<String>,
    /// Whether each holder is asked at the end if it has the bytes still. A holder keeps them as
    /// they are while they are on their way; but what lies on the same host has arrived before it
    /// is read. So where nobody compares a checksum, only this tells that they were not replaced.
    pub confirm: bool,
    /// Headers that each request has.
    pub headers: Headers,
    /// When it must be over, from now on.
    pub deadline: Duration,
    /// How long a connection may take to come about.
    pub connect: Duration,
    /// A holder of which fewer bytes than this come in [`Pull::slowest_within`] is left for the
    /// next one, as is one that has not begun to answer by then.
    pub slowest_bytes: u64,
    /// See [`Pull::slowest_bytes`].
    pub slowest_within: Duration,
    /// How often a holder may break off before it is left.
    pub breaks: u32,
    /// Over how many connections at once: more than one where the link is faster than a processor
    /// receives or decrypts.
    pub connections: usize,
}

impl Default for Pull {
    fn default() -> Self {
        Pull {
            within: None,
            confirm: false,
            etag: None,
            headers: Headers::default(),
            deadline: Duration::from_secs(600),
            connect: Duration::from_secs(5),
            slowest_bytes: 64 << 10,
            slowest_within: Duration::from_secs(5),
            breaks: 8,
            connections: 1,
        }
    }
}

/// What was pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The checksum of all bytes: XXH3, as the engine's records have it.
    pub checksum: u64,
    /// The `ETag` that all ranges had.
    pub etag: Option<String>,
    /// How many requests were sent.
    pub requests: u64,
    /// What each holder gave, in the order in which they were asked.
    pub holders: Vec<Tried>,
}

/// What a holder gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Its address.
    pub address: String,
    /// How many bytes it gave.
    pub bytes: u64,
    /// Why it was left.
    pub left_for: Option<Error>,
}

/// Told how many bytes have come so far; breaks the pull off if it says so.
pub type Progress<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

impl Client {
    /// Fills memory with bytes at a path, from these holders, the first one first.
    ///
    /// On an error the memory has some of the bytes, and no telling which. If every holder fails,
    /// the error is the last one's.
    pub fn pull(
        &self,
        holders: &[&str],
        path: &str,
        into: &mut [u8],
        how: &Pull,
        progress: &mut Progress<'_>,
    ) -> Result<Pulled> {
        let all = Within { from: 0, total: into.len() as u64 };
        let common = Common {
            within: how.within.unwrap_or(all),
            client: self,
            holders,
            path,
            how,
            until: Instant::now() + how.deadline,
            etag: Mutex::new(how.etag.clone()),
            got: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        };
        let (checksum, tried) = common.run(into, progress)?;
        if how.confirm {
            common.confirm(&tried)?;
        }
        let etag = common.etag.into_inner().unwrap_or_default();
        let requests = common.requests.into_inner();
        Ok(Pulled { checksum, etag, requests, holders: tried })
    }
}

/// What all connections of one pull share.
struct Common<'a> {
    client: &'a Client,
    holders: &'a [&'a str],
    path: &'a str,
    how: &'a Pull,
    within: Within,
    until: Instant,
    etag: Mutex<Option<String>>,
    got: AtomicU64,
    requests: AtomicU64,
    /// Whether one of them has failed, so that the others need not go on.
    ends: AtomicBool,
}

/// The memory that one connection fills.
struct Part<'a> {
    into: &'a mut [u8],
    /// Where it begins in the whole.
    from: u64,
    filled: usize,
    sum: Option<RunningChecksum>,
}

impl Common<'_> {
    fn run(&self, into: &mut [u8], progress: &mut Progress<'_>) -> Result<(u64, Vec<Tried>)> {
        if self.holders.is_empty() {
            return Err(Error::Argument(format!("{} has no holder to pull it from", self.path)));
        }
        let count = self.how.connections.min(into.len() / LEAST_EACH).max(1);
        if count == 1 {
            let mut part =
                Part { into, from: self.within.from, filled: 0, sum: Some(RunningChecksum::new()) };
            let tried = self.fill(&mut part, progress)?;
            let sum = part.sum.unwrap_or_default();
            return Ok((sum.word(), tried));
        }
        let each = into.len().div_ceil(count);
        let tried = std::thread::scope(|scope| {
            let mut parts = into.chunks_mut(each).enumerate().map(|(number, into)| {
                let from = self.within.from + (number * each) as u64;
                Part { into, from, filled: 0, sum: None }
            });
            let first = parts.next();
            let others: Vec<_> = parts
                .map(|mut part| {
                    scope.spawn(move || self.fill(&mut part, &mut |_| ControlFlow::Continue(())))
                })
                .collect();
            let mut all = first.map_or(Ok(Vec::new()), |mut part| self.fill(&mut part, progress));
            for other in others {
                let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                all = joined(all, other);
            }
            all
        })?;
        let mut sum = RunningChecksum::new();
        sum.add(into);
        Ok((sum.word(), tried))
    }

    /// Asks those that gave something whether they have it still.
    fn confirm(&self, tried: &[Tried]) -> Result<()> {
        let mut headers = self.how.headers.clone();
        if let Some(etag) = &*lock(&self.etag) {
            headers.push("If-Match", etag.clone());
        }
        let ask = Ask {
            deadline: self.until.saturating_duration_since(Instant::now()),
            connect: self.how.connect,
            most_bytes: REFUSAL,
        };
        for Tried { address, .. } in tried.iter().filter(|one| one.bytes > 0) {
            let path = self.path;
            let answer = self.client.request(Method::Head, address, path, &headers, &[], &ask)?;
            match answer.status {
                200 => {}
                404 | 412 => {
                    return Err(Error::Changed(format!(
                        "{path} at {address} was removed or replaced while it came: look it up \
                         again"
                    )));
                }
                status => {
                    let message = format!("{address} refuses {path}, after all of it has come");
                    return Err(Error::Refused { status, message });
                }
            }
        }
        Ok(())
    }

    /// Fills a part from one holder after another.
    fn fill(&self, part: &mut Part<'_>, progress: &mut Progress<'_>) -> Result<Vec<Tried>> {
        let mut tried = Vec::new();
        for address in self.holders {
            let before = part.filled;
            let end = self.fill_from(address, part, progress);
            let bytes = (part.filled - before) as u64;
            let address = (*address).to_owned();
            match end {
                Ok(()) => {
                    tried.push(Tried { address, bytes, left_for: None });
                    return Ok(tried);
                }
                Err(error) => {
                    let all_over = Instant::now() >= self.until || is_final(&error);
                    tried.push(Tried { address, bytes, left_for: Some(error.clone()) });
                    if all_over {
                        self.ends.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
        }
        self.ends.store(true, Ordering::Relaxed);
        let last = tried.pop().and_then(|one| one.left_for);
        Err(last.unwrap_or(Error::Cancelled))
    }

    /// Fills a part from one holder, as often as it breaks off after it has given something.
    fn fill_from(
        &self,
        address: &str,
        part: &mut Part<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        let mut breaks = 0;
        loop {
            let before = part.filled;
            match self.fill_once(address, part, progress) {
                Err(Error::Broken(text)) => {
                    breaks += 1;
                    if part.filled == before || breaks > self.how.breaks {
                        return Err(Error::Broken(text));
                    }
                }
                end => return end,
            }
        }
    }

    /// One request for the rest of a part.
    fn fill_once(
        &self,
        address: &str,
        part: &mut Part<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        let mut headers = self.how.headers.clone();
        let from = part.from + part.filled as u64;
        let end = part.from + part.into.len() as u64;
        // Of nothing there is no range.
        if self.within.total > 0 {
            headers.push("Range", format!("bytes={from}-{}", end - 1));
        }
        if let Some(etag) = &*lock(&self.etag) {
            headers.push("If-Match", etag.clone());
        }
        let head = head_of(Method::Get, address, self.path, &headers, 0)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let patience = self.until.min(Instant::now() + self.how.slowest_within);
        let (mut exchange, head) = self.client.begin(
            Method::Get,
            address,
            head.as_bytes(),
            &[],
            self.how.connect,
            patience,
        )?;
        self.judge(address, &mut exchange, &head, from, end)?;
        self.receive(&mut exchange, part, progress)?;
        exchange.done(&head);
        self.client.keep(exchange);
        Ok(())
    }

    /// Whether what is answered is what was asked for.
    fn judge(
        &self,
        address: &str,
        exchange: &mut Exchange,
        head: &Head,
        from: u64,
        end: u64,
    ) -> Result<()> {
        let changed = |what: String| {
            let path = self.path;
            Err(Error::Changed(format!("{path} at {address} {what}: look it up again")))
        };
        match head.status {
            200 | 206 => {}
            412 => return changed("is another one now".into()),
            416 => {
                let range = head.headers.get("content-range").unwrap_or("of another length");
                return changed(format!(
                    "is {range}, where {} bytes were expected",
                    self.within.total
                ));
            }
            status => {
                let until = self.until.min(Instant::now() + self.how.slowest_within);
                let said = exchange.body(head, REFUSAL, until).unwrap_or_default();
                let said = String::from_utf8_lossy(&said);
                let message = format!("{address} refuses {}: {}", self.path, said.trim_end());
                return Err(Error::Refused { status, message });
            }
        }
        let framed = head.framing;
        let (total, begins) = match head.headers.get("content-range").filter(|_| head.status == 206)
        {
            Some(range) => content_range(range).ok_or_else(|| odd(address, range))?,
            None => match framed {
                // All of it, though a part was asked for.
                Framing::Length(len) => (len, 0),
                _ => return Err(odd(address, "an answer without a length")),
            },
        };
        if total != self.within.total {
            return changed(format!(
                "has {total} bytes, where {} were expected",
                self.within.total
            ));
        }
        if begins != from || framed != Framing::Length(end - from) {
            return Err(odd(address, "another range than was asked for"));
        }
        let etag = head.headers.get("etag");
        let mut known = lock(&self.etag);
        if let (Some(known), Some(etag)) = (known.as_deref(), etag)
            && known != etag
        {
            return changed(format!("is {etag}, where {known} was expected"));
        }
        if known.is_none() {
            *known = etag.map(ToOwned::to_owned);
        }
        Ok(())
    }

    /// Receives what is left of a part, while enough comes.
    fn receive(
        &self,
        exchange: &mut Exchange,
        part: &mut Part<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        let (mut since, mut came) = (Instant::now(), 0);
        let begun = part.from + part.filled as u64;
        let mut bounce = Bounce::needed(&part.into[part.filled..], begun, PIECE);
        // What is decrypted does not come from the kernel.
        bounce = bounce.filter(|_| self.client.is_plain());
        while part.filled < part.into.len() {
            let patience = since + self.how.slowest_within;
            let room = part.into.len() - part.filled;
            let into = &mut part.into[part.filled..][..room.min(PIECE)];
            let until = patience.min(self.until);
            let received = match &mut bounce {
                None => exchange.receive(into, until),
                Some(bounce) => {
                    let from = part.from + part.filled as u64;
                    bounce.receive(into, from, |buffer| exchange.receive(buffer, until))
                }
            };
            let len = match received {
                Ok(0) => {
                    let address = exchange.link.address();
                    return Err(Error::Broken(format!("{address} broke off amid its answer")));
                }
                Ok(len) => len,
                Err(Error::Deadline(_))
                    if came >= self.how.slowest_bytes && Instant::now() < self.until =>
                {
                    (since, came) = (Instant::now(), 0);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(sum) = &mut part.sum {
                sum.add(&into[..len]);
            }
            part.filled += len;
            came += len as u64;
            let got = self.got.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
            if progress(got).is_break() || self.ends.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let now = Instant::now();
            if part.filled == part.into.len() {
                break;
            }
            if now >= self.until || (now >= patience && came < self.how.slowest_bytes) {
                let address = exchange.link.address();
                return Err(Error::Deadline(format!("{address} is too slow: {came} bytes came")));
            }
            if now >= patience {
                (since, came) = (now, 0);
            }
        }
        Ok(())
    }
}

/// What no other holder can make good.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Changed(_) | Error::Argument(_) | Error::Cancelled | Error::Os(_))
}

/// What two connections of a pull gave: an error that explains the other one counts.
fn joined(one: Result<Vec<Tried>>, other: Result<Vec<Tried>>) -> Result<Vec<Tried>> {
    match (one, other) {
        (Ok(mut one), Ok(other)) => {
            one.extend(other);
            Ok(one)
        }
        (Err(Error::Cancelled) | Ok(_), Err(error)) | (Err(error), _) => Err(error),
    }
}

fn odd(address: &str, what: &str) -> Error {
    Error::Broken(format!("{address} answers {what}: does it serve ranges?"))
}

/// The length of the whole, and where the part begins.
fn content_range(value: &str) -> Option<(u64, u64)> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (from, _) = range.split_once('-')?;
    Some((total.trim().parse().ok()?, from.trim().parse().ok()?))
}
