//! What tests of connections have in common: servers, holders that misbehave, bytes.

#![allow(dead_code, reason = "no program of tests uses all of it")]

use std::io::{Read as _, Seek as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use engram_base::checksum::RunningChecksum;
use engram_wire::{
    Client, Content, FileRange, Handler, Limits, Pull, Pulled, Request, Response, Result, Server,
    Tls,
};

/// Long enough for anything that ends at all.
pub const LONG: Duration = Duration::from_secs(60);
/// Short, where a test waits for a limit.
pub const SHORT: Duration = Duration::from_millis(80);

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

pub fn sum(bytes: &[u8]) -> u64 {
    let mut sum = RunningChecksum::new();
    sum.add(bytes);
    sum.word()
}

pub fn file(bytes: &[u8]) -> Arc<OwnedFd> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    Arc::new(file.into())
}

/// A response of a file, from its 100th byte on: an offset that is not kept would be noticed.
pub fn of_file(file: &Arc<OwnedFd>, len: usize, guard: Box<dyn std::any::Any + Send>) -> Response {
    let range = FileRange { file: Arc::clone(file), offset: 100, len: len as u64, guard };
    Response::of(200, Content::File(range)).with("ETag", "\"1\"")
}

/// A handler that gives one file, and has its bytes.
pub fn giving(len: usize) -> (Vec<u8>, Arc<dyn Handler>) {
    let whole = pattern(len + 100);
    let file = file(&whole);
    let handler = move |_: Request| of_file(&file, len, Box::new(()));
    (whole[100..].to_vec(), Arc::new(handler))
}

pub fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub fn serve(tls: Option<&Tls>, limits: Limits, handler: Arc<dyn Handler>) -> Server {
    Server::bind(any(), tls, limits, handler).unwrap()
}

pub fn plain(handler: impl Fn(Request) -> Response + Send + Sync + 'static) -> Server {
    serve(None, Limits::default(), Arc::new(handler))
}

/// Sends bytes as they are, and returns all that is answered until the server closes.
pub fn raw(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    // The server may close before it has read all of it.
    let _ = socket.write_all(request);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

/// The head and the body of an answer.
pub fn split(answer: &[u8]) -> (String, Vec<u8>) {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    (String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase(), answer[end + 4..].to_vec())
}

/// Reads a request's head from a connection.
pub fn head(socket: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if socket.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.extend_from_slice(&byte);
    }
    Some(String::from_utf8(head).unwrap().to_lowercase())
}

/// Where the range that a head asks for begins.
pub fn from_of(head: &str) -> usize {
    let range = head.split("range: bytes=").nth(1).unwrap();
    range.split('-').next().unwrap().parse().unwrap()
}

pub fn partial(from: usize, total: usize, etag: &str) -> String {
    format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nETag: {etag}\r\n\
         Content-Range: bytes {from}-{}/{total}\r\n\r\n",
        total - from,
        total - 1
    )
}

/// A holder that answers by `answer` on each connection, and then closes it.
pub fn holder(answer: impl Fn(usize, &mut TcpStream, &str) + Send + 'static) -> String {
    let listener = TcpListener::bind(any()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for (number, socket) in listener.incoming().enumerate() {
            let mut socket = socket.unwrap();
            if let Some(head) = head(&mut socket) {
                answer(number, &mut socket, &head);
            }
        }
    });
    address
}

/// A holder that accepts and says nothing.
pub fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind(any()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

pub fn pull(client: &Client, holders: &[&str], into: &mut [u8], how: &Pull) -> Result<Pulled> {
    client.pull(holders, "/part", into, how, &mut |_| ControlFlow::Continue(()))
}

/// Waits for what comes about without a message.
pub fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
