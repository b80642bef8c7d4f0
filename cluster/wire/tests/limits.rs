//! What a server bears: slow clients, silent ones, too many, and what is no HTTP at all.

mod common;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use common::{SHORT, giving, head, plain, raw, serve, split, until};
use engram_wire::{Ask, Client, Content, FileRange, Limits, Request, Response};
use proptest::prelude::*;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn a_head_that_does_not_arrive_ends_its_connection() {
    let limits = Limits { head: SHORT, ..Limits::default() };
    let server = serve(None, limits, Arc::new(|_: Request| panic!("nobody has asked")));
    // One that says nothing, one that stops amid the head, and one that sends byte by byte.
    for (sent, trickles) in [("", false), ("GET / HTTP/1.1\r\nHo", false), ("GET /", true)] {
        let mut socket = TcpStream::connect(server.address()).unwrap();
        socket.write_all(sent.as_bytes()).unwrap();
        if trickles {
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        }
        loop {
            match socket.read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let _ = socket.write_all(b"a");
                }
                Ok(0) | Err(_) => break,
                Ok(_) => panic!("it was answered"),
            }
        }
    }
    until(|| server.connections() == 0);
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    let server = plain(|_| panic!("nobody has asked"));
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    let (head, _) = split(&raw(server.address(), long.as_bytes()));
    assert!(head.starts_with("http/1.1 431"), "{head}");
}

#[test]
fn one_connection_too_many_is_told_so() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = serve(None, limits, Arc::new(|_: Request| Response::new(200, "")));
    let open = || {
        let mut socket = TcpStream::connect(server.address()).unwrap();
        socket.write_all(GET).unwrap();
        let head = head(&mut socket).unwrap();
        (socket, head)
    };
    let (first, _second) = (open(), open());
    let (_, refusal) = open();
    assert!(refusal.starts_with("http/1.1 503"), "{refusal}");
    assert!(refusal.contains("connection: close"));
    drop(first);
    until(|| server.connections() < 2);
    assert!(open().1.starts_with("http/1.1 200"));
}

#[test]
fn a_client_that_takes_nothing_loses_its_connection_and_the_guard_goes() {
    struct Told(mpsc::Sender<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let (told, tells) = mpsc::channel();
    let size = 64 << 20;
    let file = common::file(&common::pattern(size));
    let handler = move |_: Request| {
        let (file, guard) = (Arc::clone(&file), Box::new(Told(told.clone())));
        Response::of(200, Content::File(FileRange { file, offset: 0, len: size as u64, guard }))
    };
    let limits = Limits { slowest_within: SHORT, ..Limits::default() };
    let server = serve(None, limits, Arc::new(handler));
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(GET).unwrap();
    tells.recv().unwrap();
    until(|| server.connections() == 0);
}

#[test]
fn a_client_that_sends_no_body_loses_its_connection() {
    let (told, tells) = mpsc::channel();
    let handler = move |mut request: Request| {
        told.send(request.body.read_all(100).is_err()).unwrap();
        Response::new(200, "")
    };
    let limits = Limits { slowest_within: SHORT, ..Limits::default() };
    let server = serve(None, limits, Arc::new(handler));
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nbody").unwrap();
    assert!(tells.recv().unwrap());
    until(|| server.connections() == 0);
}

#[test]
fn a_handler_may_think_longer_than_any_limit_of_the_other_side() {
    let limits = Limits { head: SHORT, idle: SHORT, slowest_within: SHORT, ..Limits::default() };
    let handler = |_: Request| {
        // Longer than each limit, as slow work is: there is nothing to wait for.
        std::thread::sleep(SHORT * 4);
        Response::new(200, "thought")
    };
    let server = serve(None, limits, Arc::new(handler));
    let address = server.address().to_string();
    assert_eq!(Client::new(None).get(&address, "/", &Ask::default()).unwrap().body, b"thought");
}

#[test]
fn limits_that_let_nothing_through_are_refused() {
    let (_, handler) = giving(1);
    for limits in [
        Limits { connections: 0, ..Limits::default() },
        Limits { head: Duration::ZERO, ..Limits::default() },
        Limits { head_bytes: 10, ..Limits::default() },
    ] {
        let started = engram_wire::Server::bind(common::any(), None, limits, Arc::clone(&handler));
        assert!(matches!(started.err(), Some(engram_wire::Error::Argument(_))));
    }
}

/// What may be sent: anything, and requests with something changed.
fn sent() -> impl Strategy<Value = Vec<u8>> {
    let request: &[u8] = b"PUT /a%20b?c=d HTTP/1.1\r\nHost: x\r\nRange: bytes=1-2\r\n\
        If-Match: *\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc";
    let changed = proptest::collection::vec((0..request.len(), any::<u8>()), 0..6);
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..400),
        (changed, 0..=request.len(), 1..4_usize).prop_map(move |(changes, end, times)| {
            let mut bytes = request.to_vec();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            bytes.truncate(end);
            bytes.repeat(times)
        }),
        ("[A-Z]{0,5}", "[ -~]{0,30}", "[ -~\r\n:%]{0,60}").prop_map(|(method, path, headers)| {
            format!("{method} /{path} HTTP/1.1\r\n{headers}\r\n\r\n").into_bytes()
        }),
    ]
}

#[test]
fn nothing_that_is_sent_makes_the_server_panic() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_ours = std::thread::current().name() == Some("engram-wire");
        PANICS.fetch_add(usize::from(is_ours), Ordering::Relaxed);
        before(info);
    }));
    let (bytes, handler) = giving(1000);
    let reading = move |mut request: Request| {
        let _ = request.body.read_all(1000);
        handler.handle(request)
    };
    let limits = Limits { head: SHORT, slowest_within: SHORT, ..Limits::default() };
    let server = serve(None, limits, Arc::new(reading));
    proptest!(ProptestConfig::with_cases(300), |(sent in sent())| {
        let mut socket = TcpStream::connect(server.address()).unwrap();
        let _ = socket.write_all(&sent);
        // No more comes: it need not wait for the rest of a head.
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let address = server.address().to_string();
    assert_eq!(Client::new(None).get(&address, "/", &Ask::default()).unwrap().body, bytes);
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}
