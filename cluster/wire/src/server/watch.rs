//! Whether a connection is worth its place: how long it has been quiet, and how slow it is.
//!
//! A connection is in one of three phases. *Idle* ones wait for the first byte of a request, those
//! in their *head* for its last line, *busy* ones for the handler, or for bytes from or to the
//! other side. A busy connection has no deadline but one: while it waits for the other side, so
//! many bytes must move in so much time. A handler may think as long as it likes.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use engram_base::mutex::lock;

use crate::server::Limits;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Head,
    Busy,
}

struct State {
    phase: Phase,
    since: Instant,
    /// Since when the bytes are counted, if the other side was waited for.
    counted: Option<Instant>,
    moved: u64,
    /// Whether the other side is waited for now: to take bytes, to send bytes of a body.
    is_full: bool,
    is_read: bool,
}

impl State {
    fn waits(&self) -> bool {
        self.is_full || self.is_read
    }

    fn count(&mut self) {
        if self.counted.is_none() {
            (self.counted, self.moved) = (Some(Instant::now()), 0);
        }
    }
}

/// What is known of one connection: told by whoever reads and writes, asked by its timer.
pub(crate) struct Watch(Mutex<State>);

impl Watch {
    /// Of a new connection: its first request is awaited as if its first byte had come.
    pub(crate) fn new() -> Watch {
        Watch(Mutex::new(State {
            phase: Phase::Head,
            since: Instant::now(),
            counted: None,
            moved: 0,
            is_full: false,
            is_read: false,
        }))
    }

    /// The other side has taken so many bytes, or has none left to take.
    pub(crate) fn wrote(&self, bytes: usize) {
        let mut state = lock(&self.0);
        state.moved += bytes as u64;
        state.is_full = false;
    }

    /// The other side takes nothing.
    pub(crate) fn is_full(&self) {
        let mut state = lock(&self.0);
        state.is_full = true;
        state.count();
    }

    /// Bytes have come: after an answer they begin the next request.
    pub(crate) fn came(&self, bytes: usize) {
        let mut state = lock(&self.0);
        state.moved += bytes as u64;
        if state.phase == Phase::Idle {
            (state.phase, state.since) = (Phase::Head, Instant::now());
        }
    }

    /// Whether a handler waits for more of a body.
    pub(crate) fn reads(&self, waits: bool) {
        let mut state = lock(&self.0);
        state.is_read = waits;
        if waits {
            state.count();
        }
    }

    /// A request is whole, but for its body.
    pub(crate) fn busy(&self) {
        lock(&self.0).phase = Phase::Busy;
    }

    /// The response has been handed over.
    pub(crate) fn answered(&self) {
        let mut state = lock(&self.0);
        (state.phase, state.since) = (Phase::Idle, Instant::now());
    }

    /// Whether the connection is to be ended.
    pub(crate) fn is_late(&self, limits: &Limits) -> bool {
        let mut state = lock(&self.0);
        let now = Instant::now();
        if let Some(from) = state.counted
            && now - from >= limits.slowest_within
        {
            if state.waits() && state.moved < limits.slowest_bytes {
                return true;
            }
            state.moved = 0;
            state.counted = state.waits().then_some(now);
        }
        match state.phase {
            // What waits to be taken is judged by its pace.
            Phase::Idle if !state.waits() => now - state.since > limits.idle,
            Phase::Head => now - state.since > limits.head,
            _ => false,
        }
    }
}

/// How often a connection's timer asks.
pub(crate) fn tick(limits: &Limits) -> Duration {
    let least = limits.head.min(limits.idle).min(limits.slowest_within);
    (least / 4).clamp(Duration::from_millis(5), Duration::from_secs(1))
}
