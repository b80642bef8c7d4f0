//! Requests and answers: ranges, bodies, what is refused, connections that are kept.

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use common::{LONG, SHORT, giving, head, holder, pattern, plain, raw, serve, split};
use engram_wire::{
    Answer, Ask, Client, Content, Error, Headers, Limits, Method, Pull, Request, Response, Server,
};
use proptest::prelude::*;

fn asked(server: &Server, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut sent = Headers::default();
    for (name, value) in headers {
        sent.push(name, *value);
    }
    let address = server.address().to_string();
    Client::new(None).request(method, &address, path, &sent, &[], &Ask::default()).unwrap()
}

#[test]
fn a_range_of_a_file_is_its_bytes() {
    let (bytes, handler) = giving(5000);
    let server = serve(None, Limits::default(), handler);
    let whole = asked(&server, Method::Get, "/", &[]);
    assert_eq!((whole.status, &whole.body), (200, &bytes));
    assert_eq!(whole.headers.get("accept-ranges"), Some("bytes"));
    for (range, from, to) in
        [("bytes=0-0", 0, 1), ("bytes=1000-1999", 1000, 2000), ("bytes=-7", 4993, 5000)]
    {
        let part = asked(&server, Method::Get, "/", &[("Range", range)]);
        assert_eq!((part.status, &part.body[..]), (206, &bytes[from..to]), "{range}");
        let said = format!("bytes {from}-{}/5000", to - 1);
        assert_eq!(part.headers.get("content-range"), Some(&said[..]));
    }
    let beyond = asked(&server, Method::Get, "/", &[("Range", "bytes=5000-")]);
    assert_eq!((beyond.status, beyond.headers.get("content-range")), (416, Some("bytes */5000")));
}

#[test]
fn another_etag_than_was_wanted_is_refused() {
    let (bytes, handler) = giving(10);
    let server = serve(None, Limits::default(), handler);
    let same = asked(&server, Method::Get, "/", &[("If-Match", "\"0\", \"1\"")]);
    assert_eq!((same.status, same.body), (200, bytes));
    let other = asked(&server, Method::Get, "/", &[("If-Match", "\"2\"")]);
    assert_eq!((other.status, other.headers.get("etag")), (412, Some("\"1\"")));
}

#[test]
fn head_says_how_long_it_is_and_sends_nothing() {
    let (_, handler) = giving(5000);
    let server = serve(None, Limits::default(), handler);
    let request = b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let (head, body) = split(&raw(server.address(), request));
    assert!(head.contains("\r\ncontent-length: 5000"), "{head}");
    assert!(body.is_empty());
    let head = asked(&server, Method::Head, "/", &[]);
    assert_eq!((head.status, head.headers.get("content-length")), (200, Some("5000")));
}

#[test]
fn a_handler_sees_what_was_asked() {
    let (give, seen) = mpsc::channel();
    let server = plain(move |mut request| {
        let body = request.body.read_all(100).unwrap();
        give.send((request.method, request.path.clone(), request.query.clone(), body)).unwrap();
        assert_eq!(request.headers.get("x-Own"), Some("value"));
        assert!(request.peer.is_none() && request.query("b") == Some("x y"));
        Response::new(201, "made")
    });
    let client = Client::new(None);
    let (mut headers, address) = (Headers::default(), server.address().to_string());
    headers.push("X-Own", "value");
    let path = format!("{}?a=1&b=x+y", engram_wire::target::encode_path("/ä b/%"));
    let ask = Ask::default();
    let answer = client.request(Method::Put, &address, &path, &headers, b"body", &ask).unwrap();
    assert_eq!((answer.status, &answer.body[..]), (201, &b"made"[..]));
    let (method, path, query, body) = seen.recv().unwrap();
    assert_eq!((method, &path[..], &body[..]), (Method::Put, "/ä b/%", &b"body"[..]));
    assert_eq!(query, [("a".into(), "1".into()), ("b".into(), "x y".into())]);
}

#[test]
fn streams_are_sent_with_and_without_a_length() {
    let bytes = pattern(300_000);
    let own = bytes.clone();
    let server = plain(move |request: Request| {
        let mut chunks = vec![Ok(Vec::new())];
        chunks.extend(own.chunks(70_000).map(|chunk| Ok(chunk.to_vec())));
        let len = (request.path == "/known").then_some(own.len() as u64);
        Response::of(200, Content::Stream { len, chunks: Box::new(chunks.into_iter()) })
    });
    assert_eq!(asked(&server, Method::Get, "/known", &[]).body, bytes);
    assert_eq!(asked(&server, Method::Get, "/unknown", &[]).body, bytes);
    let part = asked(&server, Method::Get, "/known", &[("Range", "bytes=69999-140001")]);
    assert_eq!((part.status, &part.body[..]), (206, &bytes[69_999..140_002]));
}

#[test]
fn a_stream_of_another_length_than_it_said_arrives_broken() {
    for said in [5, 20] {
        let server = plain(move |_| {
            let chunks = Box::new([Ok(vec![0; 10])].into_iter());
            Response::of(200, Content::Stream { len: Some(said), chunks })
        });
        let address = server.address().to_string();
        let answer = Client::new(None).get(&address, "/", &Ask::default());
        assert!(matches!(answer, Err(Error::Broken(_))), "{answer:?}");
    }
}

#[test]
fn a_body_is_read_as_it_comes_and_no_further_than_its_limit() {
    let server = plain(|mut request| {
        if request.path == "/all" {
            return match request.body.read_all(1 << 20) {
                Ok(body) => Response::new(200, body),
                Err(error) => Response::new(413, error.to_string()),
            };
        }
        let mut first = vec![0; 1000];
        request.body.read_exact(&mut first).unwrap();
        let mut rest = Vec::new();
        request.body.read_to_end(&mut rest).unwrap();
        Response::new(200, [rest, first].concat())
    });
    let (client, address) = (Client::new(None), server.address().to_string());
    let send = |path: &str, body: &[u8]| {
        let none = Headers::default();
        client.request(Method::Post, &address, path, &none, body, &Ask::default())
    };
    let bytes = pattern(1 << 20);
    assert_eq!(send("/all", &bytes).unwrap().body, bytes);
    assert_eq!(send("/", &bytes).unwrap().body, [&bytes[1000..], &bytes[..1000]].concat());
    let refused = send("/all", &pattern((1 << 20) + 1)).unwrap().accepted();
    assert!(matches!(refused, Err(Error::Refused { status: 413, .. })), "{refused:?}");
    let chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\
        Connection: close\r\n\r\n";
    let body = format!("3e8\r\n{}\r\n2\r\nbb\r\n0\r\n\r\n", "a".repeat(1000));
    let (_, body) = split(&raw(server.address(), &[chunked, body.as_bytes()].concat()));
    assert_eq!(body, format!("bb{}", "a".repeat(1000)).into_bytes());
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
    let limits = Limits { body_bytes: 100, ..Limits::default() };
    let server = serve(None, limits, Arc::new(|_: Request| panic!("nobody is asked")));
    let request = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\
        Expect: 100-continue\r\n\r\n";
    let (head, _) = split(&raw(server.address(), request));
    assert!(head.starts_with("http/1.1 413"), "{head}");
}

#[test]
fn who_waits_to_be_told_to_send_is_told() {
    let server = plain(|mut request| Response::new(200, request.body.read_all(10).unwrap()));
    let mut socket = TcpStream::connect(server.address()).unwrap();
    let asks = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    socket.write_all(asks).unwrap();
    assert!(head(&mut socket).unwrap().starts_with("http/1.1 100"));
    socket.write_all(b"body").unwrap();
    assert!(head(&mut socket).unwrap().starts_with("http/1.1 200"));
    let mut body = [0; 4];
    socket.read_exact(&mut body).unwrap();
    assert_eq!(&body, b"body");
}

#[test]
fn requests_that_come_at_once_are_answered_in_their_order() {
    let (bytes, handler) = giving(3000);
    let server = serve(None, Limits::default(), handler);
    let one = |range: &str, close: &str| {
        format!("GET / HTTP/1.1\r\nHost: x\r\nRange: bytes={range}\r\n{close}\r\n")
    };
    let all = one("0-9", "") + &one("1000-1999", "") + &one("5-5", "Connection: close\r\n");
    let answer = raw(server.address(), all.as_bytes());
    let (_, rest) = split(&answer);
    assert_eq!(rest[..10], bytes[..10]);
    let (_, rest) = split(&rest[10..]);
    assert_eq!(rest[..1000], bytes[1000..2000]);
    let (_, rest) = split(&rest[1000..]);
    assert_eq!(rest, bytes[5..6]);
}

#[test]
fn a_handler_that_panics_or_answers_nonsense_harms_one_request() {
    let server = plain(|request: Request| match &request.path[..] {
        "/panic" => panic!("on purpose"),
        "/header" => Response::new(200, "x").with("X", "a\r\nB: c"),
        "/status" => Response::new(17, "x"),
        _ => Response::new(200, "well").with("Content-Length", "99"),
    });
    for path in ["/panic", "/header", "/status"] {
        assert_eq!(asked(&server, Method::Get, path, &[]).status, 500, "{path}");
    }
    assert_eq!(asked(&server, Method::Get, "/", &[]).body, b"well");
}

#[test]
fn a_connection_that_the_server_has_closed_is_made_anew_for_what_can_be_done_twice() {
    let limits = Limits { idle: common::SHORT, ..Limits::default() };
    let server = serve(None, limits, Arc::new(|_: Request| Response::new(200, "x")));
    let (client, address) = (Client::new(None), server.address().to_string());
    for _ in 0..2 {
        client.get(&address, "/", &Ask::default()).unwrap();
        common::until(|| server.connections() == 0);
    }
    // One that is closed right after the request is sent.
    let count = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&count);
    let address = holder(move |number, socket, head| {
        seen.lock().unwrap().push(number);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
        socket.write_all(answer).unwrap();
        // The next request on this connection is read, and never answered.
        if head.contains("once") {
            common::head(socket);
        }
    });
    let ask = Ask { deadline: LONG, ..Ask::default() };
    client.get(&address, "/once", &ask).unwrap();
    client.get(&address, "/again", &ask).unwrap();
    assert_eq!(*count.lock().unwrap(), [0, 1]);
    client.get(&address, "/once", &ask).unwrap();
    let none = Headers::default();
    let post = client.request(Method::Post, &address, "/", &none, b"x", &ask);
    assert!(matches!(post, Err(Error::Broken(_))), "{post:?}");
}

#[test]
fn what_cannot_be_sent_is_refused_before_it_is() {
    let client = Client::new(None);
    let ask = Ask::default();
    for path in ["x", "/a b", "/a\r\nX: y", "/ä"] {
        let got = client.get("127.0.0.1:1", path, &ask);
        assert!(matches!(got, Err(Error::Argument(_))), "{path}: {got:?}");
    }
    for address in ["host", "127.0.0.1", "x\r\n:1", ":80"] {
        let got = client.get(address, "/", &ask);
        assert!(matches!(got, Err(Error::Argument(_))), "{address}: {got:?}");
    }
    let mut headers = Headers::default();
    headers.push("X", "a\nb");
    let got = client.request(Method::Get, "127.0.0.1:1", "/", &headers, &[], &ask);
    assert!(matches!(got, Err(Error::Argument(_))), "{got:?}");
    let gone = common::silent().1;
    assert!(matches!(client.get(&gone, "/", &ask), Err(Error::Unreachable(_))));
}

#[test]
fn an_answer_has_no_more_bytes_than_were_allowed() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n12345678901",
    ] {
        let address = holder(move |_, socket, _| socket.write_all(answer).unwrap());
        let ask = Ask { most_bytes: 10, ..Ask::default() };
        let got = Client::new(None).get(&address, "/", &ask);
        assert!(matches!(got, Err(Error::TooLarge(_))), "{got:?}");
    }
}

#[test]
fn what_is_no_http_is_broken() {
    for answer in [
        &b"SSH-2.0-OpenSSH\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nConte",
        b"",
    ] {
        let address = holder(move |_, socket, _| socket.write_all(answer).unwrap());
        let got = Client::new(None).get(&address, "/", &Ask::default());
        assert!(matches!(got, Err(Error::Broken(_))), "{got:?}");
    }
}

#[test]
fn nothing_that_is_answered_makes_a_client_panic() {
    let (give, take) = mpsc::channel::<Vec<u8>>();
    let address = holder(move |_, socket, _| {
        let _ = socket.write_all(&take.recv().unwrap());
    });
    let answer: &[u8] = b"HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n\
        Content-Range: bytes 0-2/3\r\nETag: \"1\"\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let changed = proptest::collection::vec((0..answer.len(), any::<u8>()), 0..6);
    let sent = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        (changed, 0..=answer.len(), any::<bool>()).prop_map(move |(changes, end, has_length)| {
            let mut bytes = answer.to_vec();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            bytes.truncate(end);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let length = text.replace("Transfer-Encoding: chunked", "Content-Length: 3");
            if has_length { length.into_bytes() } else { bytes }
        }),
    ];
    let ask = Ask { deadline: LONG, most_bytes: u64::MAX, ..Ask::default() };
    let how = Pull { breaks: 0, ..Pull::default() };
    proptest!(ProptestConfig::with_cases(300), |(sent in sent)| {
        give.send(sent.clone()).unwrap();
        let _ = Client::new(None).get(&address, "/", &ask);
        give.send(sent).unwrap();
        let _ = common::pull(&Client::new(None), &[&address], &mut [0; 3], &how);
    });
}

#[test]
fn a_server_that_is_stopped_answers_what_it_has_begun() {
    let (entered, enters) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let server = plain(move |_| {
        entered.send(()).unwrap();
        released.lock().unwrap().recv().unwrap();
        Response::new(200, "whole")
    });
    let address = server.address().to_string();
    let asking = {
        let address = address.clone();
        std::thread::spawn(move || Client::new(None).get(&address, "/", &Ask::default()).unwrap())
    };
    enters.recv().unwrap();
    let stopping = std::thread::spawn(move || server.stop(LONG));
    // Nobody is let in any more; the one who was inside is answered.
    common::until(|| TcpStream::connect(&address).is_err());
    release.send(()).unwrap();
    assert_eq!(asking.join().unwrap().body, b"whole");
    assert!(stopping.join().unwrap());
}

#[test]
fn a_body_may_take_longer_than_the_deadline_while_it_is_taken() {
    // More than the kernel's buffers take on their way.
    let body = pattern(32 << 20);
    for takes in [true, false] {
        let deadline = if takes { 5 * SHORT } else { SHORT };
        let address = holder(move |_, socket, head| {
            assert!(head.starts_with("put"));
            let mut piece = vec![0; 1 << 20];
            // Twice the deadline for the first half, and no time for what the buffers still hold.
            for at in (0..32).filter(|_| takes) {
                if at < 16 {
                    std::thread::sleep(deadline / 8);
                }
                socket.read_exact(&mut piece).unwrap();
            }
            if !takes {
                std::thread::sleep(2 * SHORT);
            }
            let _ = socket.write_all(b"HTTP/1.1 204 No\r\n\r\n");
        });
        let ask = Ask { deadline, ..Ask::default() };
        let headers = Headers::default();
        let answer = Client::new(None).request(Method::Put, &address, "/x", &headers, &body, &ask);
        match answer {
            Ok(answer) => assert!(takes && answer.status == 204),
            Err(error) => assert!(!takes && matches!(error, Error::Deadline(_)), "{error}"),
        }
    }
}
