//! A question to the coordinator that waits for its reply.
//!
//! A reply is the answer to the question that is open, or to none: one that comes late, after the
//! question was given up or asked anew, is not looked at.

use std::time::Duration;

use crate::Action;
use crate::clock::Moment;
use crate::coordinator::Request;

/// At most one open question.
#[derive(Clone, Debug, Default)]
pub(crate) struct Question {
    token: u64,
    asked: Option<Moment>,
}

impl Question {
    /// A question whose tokens begin here: odd or even for a machine that has two, elsewhere for
    /// one that follows another.
    pub(crate) fn numbered(from: u64) -> Question {
        Question { token: from, asked: None }
    }

    /// Asks this, and gives up what was open.
    pub(crate) fn ask<T>(&mut self, now: Moment, request: Request) -> Action<T> {
        self.token += 2;
        self.asked = Some(now);
        Action::Ask { token: self.token, request }
    }

    /// Asks nothing yet: what is open is overdue when it has waited as long as a question would.
    pub(crate) fn wait(&mut self, now: Moment) {
        self.token += 2;
        self.asked = Some(now);
    }

    /// Whether a reply with this token answers the open question: when it was asked. It is closed.
    pub(crate) fn answered(&mut self, token: u64) -> Option<Moment> {
        if token == self.token { self.asked.take() } else { None }
    }

    /// Whether a question is open that has waited this long.
    pub(crate) fn is_overdue(&self, now: Moment, patience: Duration) -> bool {
        self.asked.is_some_and(|asked| now - asked >= patience)
    }

    /// Whether a question is open.
    pub(crate) fn is_open(&self) -> bool {
        self.asked.is_some()
    }

    /// The moment after which the open question has waited this long.
    pub(crate) fn overdue_at(&self, patience: Duration) -> Option<Moment> {
        self.asked.map(|asked| asked + patience)
    }

    /// Gives up what is open.
    pub(crate) fn give_up(&mut self) {
        self.asked = None;
    }
}
