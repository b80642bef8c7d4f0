//! Signals: a process that does not ignore SIGPIPE outlives clients that vanish.

mod common;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, mpsc};

use engram_wire::{Authority, Client, Error, Limits, Pull, Request, Tls};

struct Told(mpsc::Sender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_client_that_vanishes_ends_no_process_that_does_not_ignore_sigpipe() {
    // SAFETY: this program has no other test, and nobody else's handler is lost.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let credentials = Authority::new("job").unwrap().member("n1", &["127.0.0.1"]).unwrap();
    let tls = Tls::new(&credentials).unwrap();
    for tls in [None, Some(&tls)] {
        let len = 64 << 20;
        let file = common::file(&common::pattern(len + 100));
        let (told, tells) = mpsc::channel();
        let told = Mutex::new(told);
        let handler = move |_: Request| {
            let guard = Told(told.lock().unwrap().clone());
            common::of_file(&file, len, Box::new(guard))
        };
        let server = common::serve(tls, Limits::default(), Arc::new(handler));
        let (client, address) = (Client::new(tls), server.address().to_string());
        for _ in 0..4 {
            let mut into = vec![0; len];
            let got = client.pull(&[&address], "/", &mut into, &Pull::default(), &mut |_| {
                ControlFlow::Break(())
            });
            assert_eq!(got, Err(Error::Cancelled));
            tells.recv().unwrap();
        }
    }
}
