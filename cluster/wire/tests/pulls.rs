//! Pulls: on from where they broke off, from the next holder, and never of two things.

mod common;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::{
    SHORT, from_of, giving, holder, of_file, partial, pattern, plain, pull, serve, silent, sum,
};
use engram_wire::{
    Authority, Client, Content, Error, Limits, Pull, Request, Response, Tls, Within,
};

#[test]
fn all_bytes_come_with_their_checksum() {
    let credentials = Authority::new("job").unwrap().member("n1", &["127.0.0.1"]).unwrap();
    let tls = Tls::new(&credentials).unwrap();
    let (bytes, handler) = giving(9 << 20);
    for (tls, connections) in
        [None, Some(&tls)].into_iter().flat_map(|tls| [1, 2, 7].map(|count| (tls, count)))
    {
        let server = serve(tls, Limits::default(), Arc::clone(&handler));
        let (client, address) = (Client::new(tls), server.address().to_string());
        let mut into = vec![0; bytes.len()];
        let mut told = 0;
        let how = Pull { connections, ..Pull::default() };
        let pulled = client
            .pull(&[&address], "/part", &mut into, &how, &mut |got| {
                told = told.max(got);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(into == bytes);
        assert_eq!((pulled.checksum, pulled.etag.as_deref()), (sum(&bytes), Some("\"1\"")));
        let given: u64 = pulled.holders.iter().map(|holder| holder.bytes).sum();
        assert_eq!((given, pulled.requests), (9 << 20, connections.min(2) as u64));
        assert!(told <= 9 << 20);
    }
}

#[test]
fn a_piece_of_the_bytes_comes_wherever_its_place_lies_within_a_page() {
    let (bytes, handler) = giving(9 << 20);
    let server = serve(None, Limits::default(), handler);
    let (client, address) = (Client::new(None), server.address().to_string());
    let total = bytes.len() as u64;
    let mut memory = vec![0; bytes.len() + 8192];
    for (from, len, ahead) in [
        (0, 9 << 20, 16),
        (4096, 5 << 20, 63),
        (4095, 300_000, 1),
        (77, (9 << 20) - 77, 77),
        (8_000_000, 1, 0),
    ] {
        for connections in [1, 2] {
            let page = memory.as_ptr().addr().wrapping_neg() % 4096;
            let into = &mut memory[page + ahead..][..len];
            into.fill(0);
            let within = Some(Within { from, total });
            let pulled =
                pull(&client, &[&address], into, &Pull { within, connections, ..Pull::default() });
            assert!(into == &bytes[from as usize..][..len], "{from} {len} {ahead}");
            assert_eq!(pulled.unwrap().checksum, sum(into));
        }
    }
    let within = Some(Within { from: 5, total: total + 1 });
    let other = pull(&client, &[&address], &mut [0; 3], &Pull { within, ..Pull::default() });
    assert!(matches!(other, Err(Error::Changed(_))), "{other:?}");
}

#[test]
fn what_was_removed_while_it_came_has_not_come() {
    let bytes = pattern(5000);
    for (status, confirm) in [("404 Not Found", true), ("412 No", true), ("404 Not Found", false)] {
        let own = bytes.clone();
        let address = holder(move |_, socket, head| {
            if head.starts_with("head") {
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                let _ = socket.write_all(answer.as_bytes());
            } else {
                let _ = socket.write_all(partial(0, own.len(), "\"1\"").as_bytes());
                let _ = socket.write_all(&own);
            }
        });
        let mut into = vec![0; bytes.len()];
        let how = Pull { confirm, ..Pull::default() };
        let pulled = pull(&Client::new(None), &[&address], &mut into, &how);
        assert_eq!(matches!(pulled, Err(Error::Changed(_))), confirm, "{pulled:?}");
    }
}

#[test]
fn nothing_is_pulled_where_nothing_lies() {
    let server = plain(|_| Response::new(200, ""));
    let address = server.address().to_string();
    let pulled = pull(&Client::new(None), &[&address], &mut [], &Pull::default()).unwrap();
    assert_eq!((pulled.checksum, pulled.requests), (sum(&[]), 1));
    let none = pull(&Client::new(None), &[], &mut [0], &Pull::default());
    assert!(matches!(none, Err(Error::Argument(_))));
}

/// A holder that cuts each answer after so many bytes, and tells where each began.
fn cutting(bytes: &[u8], after: usize) -> (String, Arc<Mutex<Vec<usize>>>) {
    let (bytes, begun) = (bytes.to_vec(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&begun);
    let address = holder(move |_, socket, head| {
        let from = from_of(head);
        seen.lock().unwrap().push(from);
        let end = bytes.len().min(from + after);
        let _ = socket.write_all(partial(from, bytes.len(), "\"1\"").as_bytes());
        let _ = socket.write_all(&bytes[from..end]);
    });
    (address, begun)
}

#[test]
fn a_pull_goes_on_from_where_it_broke_off() {
    let bytes = pattern(250_000);
    let (address, begun) = cutting(&bytes, 100_000);
    let mut into = vec![0; bytes.len()];
    let pulled = pull(&Client::new(None), &[&address], &mut into, &Pull::default()).unwrap();
    assert!(into == bytes);
    assert_eq!((pulled.checksum, pulled.requests), (sum(&bytes), 3));
    assert_eq!(*begun.lock().unwrap(), [0, 100_000, 200_000]);
}

#[test]
fn the_next_holder_gives_the_rest() {
    let (bytes, handler) = giving(250_000);
    let (address, begun) = cutting(&bytes, 100_000);
    let server = serve(None, Limits::default(), handler);
    let second = server.address().to_string();
    let how = Pull { breaks: 0, ..Pull::default() };
    let gone = silent().1;
    let mut into = vec![0; bytes.len()];
    let holders = [&gone[..], &address, &second];
    let pulled = pull(&Client::new(None), &holders, &mut into, &how).unwrap();
    assert!(into == bytes);
    assert_eq!(pulled.checksum, sum(&bytes));
    assert_eq!(begun.lock().unwrap().len(), 1);
    let gave: Vec<u64> = pulled.holders.iter().map(|holder| holder.bytes).collect();
    assert_eq!(gave, [0, 100_000, 150_000]);
    let left: Vec<_> = pulled.holders.iter().map(|holder| &holder.left_for).collect();
    assert!(matches!(left[..], [Some(Error::Unreachable(_)), Some(Error::Broken(_)), None]));
}

#[test]
fn a_holder_that_says_nothing_or_trickles_is_left() {
    let (bytes, handler) = giving(300_000);
    let server = serve(None, Limits::default(), handler);
    let good = server.address().to_string();
    let (_kept, mute) = silent();
    let own = bytes.clone();
    let trickling = holder(move |_, socket, head| {
        let from = from_of(head);
        socket.write_all(partial(from, own.len(), "\"1\"").as_bytes()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        for at in from..own.len() {
            match socket.read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => return,
            }
            if socket.write_all(&own[at..=at]).is_err() {
                return;
            }
        }
    });
    let how = Pull { slowest_within: SHORT, ..Pull::default() };
    let client = Client::new(None);
    for slow in [&mute, &trickling] {
        let mut into = vec![0; bytes.len()];
        let pulled = pull(&client, &[slow, &good], &mut into, &how).unwrap();
        assert!(into == bytes);
        assert!(matches!(pulled.holders[0].left_for, Some(Error::Deadline(_))));
        let alone = pull(&client, &[slow], &mut into, &how);
        assert!(matches!(alone, Err(Error::Deadline(_))), "{alone:?}");
        let how = Pull { deadline: SHORT, ..Pull::default() };
        let late = pull(&client, &[slow, &good], &mut into, &how);
        assert!(matches!(late, Err(Error::Deadline(_))), "{late:?}");
    }
}

#[test]
fn what_is_of_another_length_or_etag_has_changed() {
    let client = Client::new(None);
    let (_, handler) = giving(1000);
    let server = serve(None, Limits::default(), handler);
    let address = server.address().to_string();
    for len in [0, 999, 1001] {
        let got = pull(&client, &[&address], &mut vec![0; len], &Pull::default());
        assert!(matches!(got, Err(Error::Changed(_))), "{len}: {got:?}");
    }
    let how = Pull { etag: Some("\"2\"".into()), ..Pull::default() };
    let got = pull(&client, &[&address], &mut [0; 1000], &how);
    assert!(matches!(got, Err(Error::Changed(_))), "{got:?}");
    // It changes between two ranges: at a holder that looks, and at one that does not.
    for looks in [true, false] {
        let bytes = pattern(1000);
        let address = holder(move |number, socket, head| {
            let (from, etag) = (from_of(head), format!("\"{number}\""));
            if looks && number > 0 {
                assert!(head.contains("if-match: \"0\""), "{head}");
                let refusal = b"HTTP/1.1 412 Changed\r\nContent-Length: 0\r\n\r\n";
                socket.write_all(refusal).unwrap();
                return;
            }
            socket.write_all(partial(from, 1000, &etag).as_bytes()).unwrap();
            socket.write_all(&bytes[from..from + 400]).unwrap();
        });
        let got = pull(&client, &[&address], &mut [0; 1000], &Pull::default());
        assert!(matches!(got, Err(Error::Changed(_))), "{got:?}");
    }
}

#[test]
fn other_bytes_have_another_checksum() {
    let (bytes, _) = giving(100_000);
    let mut wrong = bytes.clone();
    wrong[77_777] ^= 1;
    let file = common::file(&[vec![0; 100], wrong].concat());
    let server = plain(move |_| of_file(&file, 100_000, Box::new(())));
    let address = server.address().to_string();
    let mut into = vec![0; bytes.len()];
    let pulled = pull(&Client::new(None), &[&address], &mut into, &Pull::default()).unwrap();
    assert_ne!(pulled.checksum, sum(&bytes));
}

#[test]
fn a_holder_that_refuses_is_left_and_says_why() {
    let (bytes, handler) = giving(1000);
    let server = serve(None, Limits::default(), handler);
    let away = plain(|_| Response::new(503, "no lease\n"));
    let empty = plain(|_| Response::new(404, "no such part\n"));
    let [good, away, empty] = [server, away, empty].map(|s| (s.address().to_string(), s));
    let client = Client::new(None);
    let mut into = vec![0; bytes.len()];
    let pulled = pull(&client, &[&away.0, &empty.0, &good.0], &mut into, &Pull::default()).unwrap();
    assert!(into == bytes);
    let status = |at: usize| match &pulled.holders[at].left_for {
        Some(Error::Refused { status, .. }) => *status,
        _ => 0,
    };
    assert_eq!([status(0), status(1), status(2)], [503, 404, 0]);
    let got = pull(&client, &[&away.0], &mut into, &Pull::default());
    let Err(Error::Refused { status: 503, message }) = got else { panic!("{got:?}") };
    assert!(message.ends_with("no lease"), "{message}");
}

#[test]
fn the_caller_may_end_a_pull() {
    let (_, handler) = giving(9 << 20);
    let server = serve(None, Limits::default(), handler);
    let address = server.address().to_string();
    for connections in [1, 2] {
        let how = Pull { connections, ..Pull::default() };
        let got =
            Client::new(None).pull(&[&address], "/", &mut vec![0; 9 << 20], &how, &mut |_| {
                ControlFlow::Break(())
            });
        assert_eq!(got, Err(Error::Cancelled));
    }
}

#[test]
fn an_answer_that_may_not_end_arrives_short() {
    let credentials = Authority::new("job").unwrap().member("n1", &["127.0.0.1"]).unwrap();
    let tls = Tls::new(&credentials).unwrap();
    for (tls, len) in [(None, 1000), (None, 5 << 20), (Some(&tls), 1000), (Some(&tls), 5 << 20)] {
        let file = common::file(&pattern(len + 100));
        let handler = move |request: Request| match &request.path[..] {
            "/bytes" => Response::new(200, pattern(len)).checked(|| false),
            "/stream" => {
                let chunks = pattern(len).chunks(999).map(|c| Ok(c.to_vec())).collect::<Vec<_>>();
                let chunks = Box::new(chunks.into_iter());
                let asked = AtomicUsize::new(0);
                Response::of(200, Content::Stream { len: None, chunks })
                    .checked(move || asked.fetch_add(1, Ordering::Relaxed) * 999 < len)
            }
            _ => of_file(&file, len, Box::new(())).checked(|| false),
        };
        let server = serve(tls, Limits::default(), Arc::new(handler));
        let (client, address) = (Client::new(tls), server.address().to_string());
        let got = pull(&client, &[&address], &mut vec![0; len], &Pull::default());
        assert!(matches!(got, Err(Error::Broken(_))), "{got:?}");
        for path in ["/bytes", "/stream", "/file"] {
            let got = client.get(&address, path, &engram_wire::Ask::default());
            assert!(matches!(got, Err(Error::Broken(_))), "{path}: {got:?}");
        }
    }
}

#[test]
fn it_is_asked_again_right_before_the_last_byte() {
    let len = 64 << 20;
    let file = common::file(&pattern(len + 100));
    let may = Arc::new(AtomicBool::new(true));
    let (asks, own) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&may));
    let asked = Arc::clone(&asks);
    let server = plain(move |_| {
        let (own, asked) = (Arc::clone(&own), Arc::clone(&asked));
        of_file(&file, len, Box::new(())).checked(move || {
            asked.fetch_add(1, Ordering::Relaxed);
            own.load(Ordering::Relaxed)
        })
    });
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    // More than the kernel's buffers hold has not gone: it must not have been asked yet.
    socket.read_exact(&mut [0; 1000]).unwrap();
    assert_eq!(asks.load(Ordering::Relaxed), 0);
    may.store(false, Ordering::Relaxed);
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest);
    assert_eq!(asks.load(Ordering::Relaxed), 1);
    assert!(rest.len() < len);
}

/// Counts its end, and tells it.
struct Guard(Arc<AtomicUsize>, mpsc::Sender<()>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        let _ = self.1.send(());
    }
}

#[test]
fn a_guard_is_dropped_once_when_all_is_sent_and_when_the_client_vanishes() {
    let credentials = Authority::new("job").unwrap().member("n1", &["127.0.0.1"]).unwrap();
    let tls = Tls::new(&credentials).unwrap();
    for tls in [None, Some(&tls)] {
        let len = 64 << 20;
        let file = common::file(&pattern(len + 100));
        let drops = Arc::new(AtomicUsize::new(0));
        let (told, tells) = mpsc::channel();
        let own = Arc::clone(&drops);
        let told = Mutex::new(told);
        let handler = move |_: Request| {
            let guard = Guard(Arc::clone(&own), told.lock().unwrap().clone());
            of_file(&file, len, Box::new(guard))
        };
        let server = serve(tls, Limits::default(), Arc::new(handler));
        let (client, address) = (Client::new(tls), server.address().to_string());
        let mut into = vec![0; len];
        pull(&client, &[&address], &mut into, &Pull::default()).unwrap();
        tells.recv().unwrap();
        let head = engram_wire::Headers::default();
        let ask = engram_wire::Ask::default();
        client.request(engram_wire::Method::Head, &address, "/", &head, &[], &ask).unwrap();
        tells.recv().unwrap();
        // One that goes away amid its answer.
        let got = client
            .pull(&[&address], "/", &mut into, &Pull::default(), &mut |_| ControlFlow::Break(()));
        assert_eq!(got, Err(Error::Cancelled));
        tells.recv().unwrap();
        assert!(server.stop(common::LONG));
        // Nobody is left who could drop one more: the handler has gone with its server.
        assert!(tells.recv().is_err());
        assert_eq!(drops.load(Ordering::Relaxed), 3);
    }
}

/// A connection that has room for next to nothing that is not read.
fn narrow(address: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 2048).unwrap();
    connect(&socket, &address).unwrap();
    socket.into()
}

#[test]
fn a_guard_is_held_until_the_other_side_has_acknowledged_the_last_byte() {
    let (len, (told, tells)) = (32 << 10, mpsc::channel());
    let (drops, (asked, asks)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel());
    let (file, own) = (common::file(&pattern(len + 100)), Arc::clone(&drops));
    let server = plain(move |request: Request| {
        if request.path == "/other" {
            return Response::new(200, "");
        }
        let (guard, asked) = (Guard(Arc::clone(&own), told.clone()), asked.clone());
        of_file(&file, len, Box::new(guard)).checked(move || asked.send(()).is_ok())
    });
    let mut socket = narrow(server.address());
    socket.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    // The last byte goes right after it was asked whether it may.
    asks.recv().unwrap();
    let address = server.address().to_string();
    Client::new(None).get(&address, "/other", &engram_wire::Ask::default()).unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(common::split(&answer).1 == pattern(len + 100)[100..]);
    tells.recv().unwrap();
}

#[test]
fn a_file_that_has_become_shorter_breaks_the_answer_off() {
    let file = common::file(&pattern(1000));
    let server = plain(move |_| of_file(&file, 2000, Box::new(())));
    let address = server.address().to_string();
    let got = pull(&Client::new(None), &[&address], &mut [0; 2000], &Pull::default());
    assert!(matches!(got, Err(Error::Broken(_))), "{got:?}");
}
