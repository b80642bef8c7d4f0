//! What many members ask of one etcd: `members ENDPOINT COUNT TTL_S SECONDS`.
//!
//! Each member is the machine that a node runs, on its own clock, with a few threads for all. What
//! is printed is JSON: how many requests and transactions each took to join, how long it took until
//! all were members, and how many leases ended within the seconds after that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engram_driver::clock::now;
use engram_driver::etcd::Etcd;
use engram_protocol::clock::Moment;
use engram_protocol::coordinator::{Keys, Request};
use engram_protocol::map::Identity;
use engram_protocol::membership::{Membership, News};
use engram_protocol::{Action, Rules};

const THREADS: usize = 16;

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    transactions: AtomicU64,
    joined: AtomicU64,
    left: AtomicU64,
    in_ms: AtomicU64,
}

struct Driven {
    machine: Membership,
    wake: Moment,
    is_inside: bool,
}

impl Driven {
    /// Does what the machine wants, until it waits.
    fn perform(
        &mut self,
        etcd: &Etcd,
        counts: &Counts,
        begun: Instant,
        mut left: Vec<Action<News>>,
    ) {
        while let Some(action) = left.pop() {
            match action {
                Action::Ask { token, request } => {
                    if !self.is_inside {
                        counts.requests.fetch_add(1, Ordering::Relaxed);
                        let is_commit = matches!(request, Request::Commit(_));
                        counts.transactions.fetch_add(u64::from(is_commit), Ordering::Relaxed);
                    }
                    let reply = etcd.answer(&request);
                    left.extend(self.machine.reply(now(), token, reply));
                }
                Action::Wake(at) => self.wake = self.wake.min(at),
                Action::Own(News::Joined { .. }) => {
                    self.is_inside = true;
                    counts.joined.fetch_add(1, Ordering::Relaxed);
                    let ms = begun.elapsed().as_millis() as u64;
                    counts.in_ms.fetch_max(ms, Ordering::Relaxed);
                }
                Action::Own(News::Left) => {
                    counts.left.fetch_add(1, Ordering::Relaxed);
                    left.extend(self.machine.start(now()));
                }
                Action::Own(News::Waits(_)) => {}
            }
        }
    }
}

fn drive(etcd: &Etcd, counts: &Counts, machines: Vec<Membership>, begun: Instant, count: u64) {
    let far = Moment(u64::MAX);
    let mut all: Vec<Driven> = machines
        .into_iter()
        .map(|machine| Driven { machine, wake: Moment(0), is_inside: false })
        .collect();
    for each in &mut all {
        let actions = each.machine.start(now());
        each.wake = far;
        each.perform(etcd, counts, begun, actions);
    }
    let mut until = None;
    loop {
        if counts.joined.load(Ordering::Relaxed) >= count {
            let end = *until.get_or_insert_with(|| Instant::now() + seconds());
            if Instant::now() >= end {
                return;
            }
        }
        let next = all.iter_mut().min_by_key(|each| each.wake).expect("some");
        let wait = next.wake - now();
        if !wait.is_zero() {
            std::thread::sleep(wait.min(Duration::from_millis(50)));
            continue;
        }
        next.wake = far;
        let actions = next.machine.tick(now());
        next.perform(etcd, counts, begun, actions);
    }
}

fn argument(place: usize) -> String {
    std::env::args().nth(place).expect("members ENDPOINT COUNT TTL_S SECONDS")
}

fn seconds() -> Duration {
    Duration::from_secs(argument(4).parse().expect("SECONDS"))
}

fn main() {
    let (endpoint, count): (_, u64) = (argument(1), argument(2).parse().expect("COUNT"));
    let ttl = Duration::from_secs(argument(3).parse().expect("TTL_S"));
    let etcd = Etcd::new(&[endpoint], None, ttl / 6).expect("an etcd");
    etcd.check_version().expect("an etcd that may decide");
    let keys = Keys::new(&format!("members-{}", std::process::id()));
    let member = |number: u64| {
        let identity = Identity {
            node: format!("{number:032x}"),
            pool: format!("{number:032x}"),
            host: format!("host{number}"),
            path: "/dev/shm/job".to_owned(),
            boot: "boot".to_owned(),
            address: format!("host{number}:4000"),
            weight: 1.0,
            ..Identity::default()
        };
        Membership::new(&keys, identity, ttl, Rules::ALL)
    };
    let (counts, begun) = (Counts::default(), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let own = (0..count).filter(|number| number % THREADS as u64 == thread);
            let (machines, counts, etcd) = (own.map(member).collect(), &counts, &etcd);
            scope.spawn(move || drive(etcd, counts, machines, begun, count));
        }
    });
    let told = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{{\"members\": {count}, \"requests\": {}, \"transactions\": {}, \"in_ms\": {}, \
         \"left\": {}}}",
        told(&counts.requests),
        told(&counts.transactions),
        told(&counts.in_ms),
        told(&counts.left)
    );
}
