//! Forks: a child does not serve, knows it, and asks for itself.

mod common;

use engram_wire::{Ask, Client, Request, Response};

#[test]
fn a_child_does_not_believe_that_it_serves() {
    // Who asks is told over which connection.
    let server = common::plain(|request: Request| Response::new(200, request.address.to_string()));
    let address = server.address().to_string();
    let client = Client::new(None);
    let bytes = client.get(&address, "/", &Ask::default()).unwrap().body;
    assert!(server.is_of_this_process());
    // SAFETY: the child calls what may follow a fork: no lock of another thread is waited for.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let serves = server.is_of_this_process();
            // On a connection of its own: the kept one is the parent's.
            let asked = client.get(&address, "/", &Ask::default());
            let stopped = server.stop(common::LONG);
            !serves && stopped && asked.is_ok_and(|answer| answer.body != bytes)
        }));
        // SAFETY: ends the child at once, without what the parent has left to do at its end.
        unsafe { libc::_exit(i32::from(!is_well.unwrap_or(false))) };
    }
    let mut status = 0;
    // SAFETY: the child was begun above, and `status` is there to be written.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(client.get(&address, "/", &Ask::default()).unwrap().body, bytes);
    assert_eq!(server.connections(), 1);
    assert!(server.stop(common::LONG));
}
