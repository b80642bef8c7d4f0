//! How long a member may answer.
//!
//! *Protocol* (C1). A member renews its lease every third of its time to live. It serves, prepares
//! and answers only while its own clock is less than three quarters of that time after the moment
//! at which the renewal that was acknowledged last was **sent**. The coordinator began the lease
//! anew after that moment, so the lease runs yet, as long as no clock is a quarter faster or slower
//! than another. The member looks at the beginning of each request and again before its last byte.
//!
//! How long the lease runs is what the coordinator says. A process that goes on with the lease of
//! another may have been told to ask for a longer one; that counts from the next lease on.

use std::time::Duration;

use crate::clock::Moment;
use crate::coordinator::LeaseId;
use crate::{Rule, Rules};

/// How long a lease runs without being renewed, where nobody says otherwise.
pub const TTL: Duration = Duration::from_secs(15);

/// A lease as its member knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    id: LeaseId,
    ttl: Duration,
    /// When the renewal was sent that was acknowledged last.
    sent: Moment,
}

impl Lease {
    /// A lease that was asked for, or renewed, at this moment.
    pub fn new(id: LeaseId, ttl: Duration, sent: Moment) -> Lease {
        Lease { id, ttl, sent }
    }

    /// Which it is: the id of the member.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// How long it runs without being renewed.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Takes note of an acknowledged renewal that was sent at this moment: from then on it runs so
    /// long.
    pub fn renewed(&mut self, sent: Moment, ttl: Duration) {
        (self.sent, self.ttl) = (self.sent.max(sent), ttl);
    }

    /// When it is to be renewed.
    pub fn renew_at(&self) -> Moment {
        self.sent + self.ttl / 3
    }

    /// From when on its member says nothing.
    pub fn fenced_at(&self) -> Moment {
        self.sent + self.ttl * 3 / 4
    }

    /// Whether its member may answer at this moment.
    pub fn serves(&self, now: Moment, rules: Rules) -> bool {
        !rules.has(Rule::Fencing) || now < self.fenced_at()
    }
}

#[cfg(test)]
mod tests {
    use super::Lease;
    use crate::Rules;
    use crate::clock::Moment;
    use std::time::Duration;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_member_falls_silent_three_quarters_after_it_asked() {
        let ttl = Duration::from_secs(12);
        let mut lease = Lease::new(1, ttl, Moment(5 * S));
        assert!(lease.serves(Moment(14 * S - 1), Rules::ALL));
        assert!(!lease.serves(Moment(14 * S), Rules::ALL));
        assert_eq!(lease.renew_at(), Moment(9 * S));
        lease.renewed(Moment(9 * S), ttl);
        assert!(lease.serves(Moment(18 * S - 1), Rules::ALL));
        // The answer to an earlier renewal comes late: it takes nothing back.
        lease.renewed(Moment(6 * S), ttl);
        assert!(lease.serves(Moment(18 * S - 1), Rules::ALL));
    }
}
