//! The first process to open a pool makes its catalog's lock file anew. It may die in the middle of
//! that, while others wait to open the pool, too.

use std::ffi::c_int;
use std::time::Instant;

use crate::common::{Fixture, Line, Peer, alone, attach, deadline, filled, fork, put, read, sound};
use crate::syscalls::{Call, Hook};
use engram::Mode;

/// Stands still where the lock file's locks are made anew, and it does not say yet which commit was
/// the last.
struct StandStill(&'static Line);

impl Hook for StandStill {
    fn before(&self, call: &Call<'_>) -> Option<c_int> {
        // The lock file is made anew, and the catalog not mapped.
        if call.name == "mmap" && call.fd >= 0 && call.len > 1 << 30 {
            self.0.say(1);
            self.0.hear();
        }
        None
    }

    fn after(&self, _call: &Call<'_>, _result: i64) {}
}

/// Waits until a process waits for a lock of a file.
fn await_waiting(peer: &Peer) {
    let until = deadline();
    let waits = || {
        let at = std::fs::read_to_string(format!("/proc/{}/syscall", peer.pid)).unwrap_or_default();
        at.split(' ').next() == Some(&libc::SYS_fcntl.to_string())
    };
    while !waits() {
        assert!(Instant::now() < until && !peer.line.is_ready(), "it does not wait");
        std::thread::yield_now();
    }
}

#[test]
fn who_dies_as_the_first_to_open_a_pool_leaves_nothing_to_others_that_wait() {
    alone("who_dies_as_the_first_to_open_a_pool_leaves_nothing_to_others_that_wait", || {
        let fixture = Fixture::new(16 << 20);
        let path = &fixture.path;
        fixture.pool.close();
        // The last commit was on the one page of the catalog that says so, and on the other.
        for round in 0..4 {
            let (pool, realm) = attach(path, Mode::ReadWrite);
            for at in 0..6 + round {
                put(&realm, &format!("{at}"), &filled(at, 1, 9));
            }
            put(&realm, "last", &filled(100, round, 9));
            drop(realm);
            pool.close();
            let first = fork(|line| {
                // SAFETY: this process is killed while it is within `attach`.
                crate::syscalls::hook(StandStill(unsafe { &*std::ptr::from_ref(line) }));
                crate::syscalls::arm(true);
                attach(path, Mode::ReadWrite);
            });
            first.line.expect(1);
            let others = [1, 2].map(|other| {
                let other = fork(move |line| {
                    let (_pool, realm) = attach(path, Mode::ReadWrite);
                    assert_eq!(read(&realm, "last"), filled(100, round, 9), "the last is lost");
                    for at in 0..20 {
                        put(&realm, &format!("by-{other}"), &filled(at, other, 9));
                    }
                    line.say(1);
                    line.expect(2);
                });
                await_waiting(&other);
                other
            });
            first.kill();
            for other in others {
                other.line.expect(1);
                other.line.say(2);
                other.finish();
            }
            let (pool, realm) = attach(path, Mode::ReadWrite);
            assert_eq!(read(&realm, "last"), filled(100, round, 9));
            for other in [1, 2] {
                assert_eq!(read(&realm, &format!("by-{other}")), filled(19, other, 9));
            }
            drop(realm);
            pool.close();
            sound(path);
        }
    });
}
