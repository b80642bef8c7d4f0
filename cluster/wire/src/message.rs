//! What a handler is given, and what it gives back.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::identity::Identity;
pub use crate::server::upload::Upload;

/// What a request asks to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Give what lies there.
    Get,
    /// Say what is known of it.
    Head,
    /// Put this there.
    Put,
    /// Do something.
    Post,
    /// Remove it.
    Delete,
}

impl Method {
    /// The word in a request.
    pub fn word(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Put => "PUT",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        }
    }

    /// The method of a word.
    pub fn of_word(word: &str) -> Option<Method> {
        [Method::Get, Method::Head, Method::Put, Method::Post, Method::Delete]
            .into_iter()
            .find(|method| method.word() == word)
    }

    /// Whether doing it twice does what doing it once does.
    pub fn is_idempotent(self) -> bool {
        self != Method::Post
    }
}

/// Headers, in the order in which they came. Names are compared without their case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// Adds one more.
    pub fn push(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }
}

/// A request, as a handler is given it.
#[derive(Debug)]
pub struct Request {
    /// What is to be done.
    pub method: Method,
    /// To what: the path, decoded.
    pub path: String,
    /// The pairs behind the question mark, decoded, in their order.
    pub query: Vec<(String, String)>,
    /// The headers; a value that is no text is not among them.
    pub headers: Headers,
    /// Who asks, as its certificate says; without TLS nobody knows.
    pub peer: Option<Identity>,
    /// From where.
    pub address: SocketAddr,
    /// What is sent along, unread.
    pub body: Upload,
}

impl Request {
    /// The first value of a pair of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(own, _)| own == name).map(|(_, value)| &**value)
    }
}

/// Whether a response may end: asked again right before its last byte goes.
pub type Check = Box<dyn Fn() -> bool + Send>;

/// Chunks that a handler makes while they are sent.
pub type Chunks = Box<dyn Iterator<Item = io::Result<Vec<u8>>> + Send>;

/// Bytes of a file that are sent without a copy through this process.
pub struct FileRange {
    /// The file.
    pub file: Arc<OwnedFd>,
    /// Where the bytes begin in it.
    pub offset: u64,
    /// How many they are.
    pub len: u64,
    /// What keeps the bytes as they are. It is dropped once, on a thread of the server: when the
    /// other side has acknowledged the last byte, or when the connection is over. (One that lies
    /// on the same node acknowledges what it has yet to read. Such a reader sees changes that are
    /// made right after the guard has gone: it compares a checksum, or asks once more.)
    pub guard: Box<dyn Any + Send>,
}

impl fmt::Debug for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from {} of {:?}", self.len, self.offset, self.file)
    }
}

/// The body of a response.
pub enum Content {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// Bytes of a file.
    File(FileRange),
    /// Bytes that are yet to be made, by a thread of their own, and how many they will be.
    Stream {
        /// How many bytes; where it is not known they are sent chunk by chunk.
        len: Option<u64>,
        /// The bytes. An error breaks the connection off.
        chunks: Chunks,
    },
}

impl Content {
    /// How many bytes they are, if that is known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Content::Bytes(bytes) => Some(bytes.len() as u64),
            Content::File(range) => Some(range.len),
            Content::Stream { len, .. } => *len,
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Content::File(range) => range.fmt(f),
            Content::Stream { len, .. } => write!(f, "a stream of {len:?} bytes"),
        }
    }
}

/// What a handler answers.
///
/// The server makes parts of it: where a GET asks for a range, and the status is 200 and the length
/// is known, it answers 206 with that range, or 416. An `ETag` is compared with `If-Match`.
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers; those of the length and of the connection are the server's own.
    pub headers: Headers,
    /// The body. To HEAD it is not sent; its length is.
    pub content: Content,
    /// If it says no right before the last byte, the connection is broken off instead. A stream
    /// asks it before each of its chunks, and before its end.
    pub check: Option<Check>,
}

impl Response {
    /// An answer of bytes in memory.
    pub fn new(status: u16, bytes: impl Into<Vec<u8>>) -> Response {
        Response::of(status, Content::Bytes(bytes.into()))
    }

    /// An answer of any body.
    pub fn of(status: u16, content: Content) -> Response {
        Response { status, headers: Headers::default(), content, check: None }
    }

    /// The same with a header more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Response {
        self.headers.push(name, value);
        self
    }

    /// The same, checked before it ends.
    #[must_use]
    pub fn checked(mut self, check: impl Fn() -> bool + Send + 'static) -> Response {
        self.check = Some(Box::new(check));
        self
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.status, self.headers, self.content)
    }
}

/// Who answers requests.
///
/// It is called on threads that may wait: each has one request at a time. A panic is answered with
/// status 500, and harms no other request.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, request: Request) -> Response;
}

impl<F: Fn(Request) -> Response + Send + Sync + 'static> Handler for F {
    fn handle(&self, request: Request) -> Response {
        self(request)
    }
}
