//! One connection: accepted, greeted, served by hyper, and watched.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::identity::{Identity, Who};
use crate::message::{Handler, Headers, Method, Request, Response};
use crate::server::carrier::{Carrier, Stream};
use crate::server::guests::{Guest, Guests};
use crate::server::outgoing::Outgoing;
use crate::server::piece::Pieces;
use crate::server::upload::Upload;
use crate::server::watch::{Watch, tick};
use crate::server::{Limits, ranges};
use crate::target;
use crate::tls::Tls;

/// Headers that the server writes itself: two of a kind would be two opinions.
const OWN: [&str; 4] = ["content-length", "transfer-encoding", "connection", "date"];
/// How many connections at once are told that there are too many.
const REFUSING: usize = 64;
/// How many connections of users at once are told so: they hold places meanwhile.
pub(crate) const REFUSING_USERS: usize = 4;
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 21\r\n\
    Connection: close\r\n\r\ntoo many connections\n";
const USER_REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 79\r\n\
    Connection: close\r\n\r\n\
    this user has its share of connections to this node: close some, or have fewer\n";

/// What all connections of a server share.
pub(crate) struct Shared {
    pub(crate) tls: Option<(Tls, TlsAcceptor)>,
    pub(crate) limits: Limits,
    pub(crate) guests: Arc<Guests>,
    pub(crate) refusing_users: Semaphore,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) stopped: Receiver<bool>,
    pub(crate) open: Sender<usize>,
}

/// A connection's place among those that are open.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Place> {
        let mut taken = false;
        shared.open.send_if_modified(|open| {
            taken = *open < shared.limits.connections;
            *open += usize::from(taken);
            taken
        });
        taken.then(|| Place(Arc::clone(shared)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

/// Takes connections until the server is stopped.
pub(crate) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let refusing = Arc::new(AtomicUsize::new(0));
    let mut stopped = shared.stopped.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        let Ok((tcp, address)) = accepted else {
            // Out of descriptors, say: the one who frees one needs time to.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = tcp.set_nodelay(true);
        if let Some(place) = Place::take(&shared) {
            tokio::spawn(serve(tcp, address, place));
        } else if shared.tls.is_none() && refusing.fetch_add(1, Ordering::Relaxed) < REFUSING {
            let refusing = Arc::clone(&refusing);
            tokio::spawn(async move {
                let _ = timeout(Duration::from_secs(1), refuse(tcp)).await;
                refusing.fetch_sub(1, Ordering::Relaxed);
            });
        } else if shared.tls.is_none() {
            refusing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Says that there are too many, and reads on: what is closed unread resets what was said.
async fn refuse(tcp: TcpStream) {
    if tcp.try_write(REFUSAL).is_err()
        || rustix::net::shutdown(&tcp, rustix::net::Shutdown::Write).is_err()
    {
        return;
    }
    let mut scrap = [0; 4096];
    while tcp.readable().await.is_ok() {
        match tcp.try_read(&mut scrap) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
}

/// Says that a user has its share; see [`refuse`]. A few connections at a time are told.
async fn refuse_user(mut stream: Stream, place: &Place) {
    let Ok(_permit) = place.0.refusing_users.try_acquire() else { return };
    let Stream::Tls(stream) = &mut stream else { return };
    if stream.write_all(USER_REFUSAL).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut scrap = [0; 4096];
    while stream.read(&mut scrap).await.is_ok_and(|read| read > 0) {}
}

async fn serve(tcp: TcpStream, address: SocketAddr, place: Place) {
    let shared = &place.0;
    let (stream, peer) = match &shared.tls {
        None => (Stream::Plain(tcp), None),
        Some((tls, acceptor)) => {
            // A stranger learns from the handshake that it is one, and nothing else.
            let Ok(Ok(stream)) = timeout(shared.limits.head, acceptor.accept(tcp)).await else {
                return;
            };
            let Ok(peer) = tls.peer(stream.get_ref().1.peer_certificates()) else { return };
            (Stream::Tls(Box::new(stream)), Some(peer))
        }
    };
    let guest = match &peer {
        Some(Identity { who: Who::User(uid), .. }) => {
            let Some(guest) = Guests::enter(&shared.guests, *uid) else {
                let _told = timeout(Duration::from_secs(1), refuse_user(stream, &place)).await;
                return;
            };
            Some(guest)
        }
        _ => None,
    };
    let (watch, pieces) = (Arc::new(Watch::new()), Pieces::default());
    let carrier = Carrier::new(stream, pieces.clone(), Arc::clone(&watch));
    let asker = Arc::new(Asker { peer, guest, address, watch, pieces, shared: Arc::clone(shared) });
    let service = service_fn(|request| {
        let asker = Arc::clone(&asker);
        async move { Ok::<_, Infallible>(answer(&asker, request).await) }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_header_size(shared.limits.head_bytes)
        .serve_connection(carrier, service);
    let mut connection = std::pin::pin!(connection);
    let mut stopped = shared.stopped.clone();
    let mut is_stopping = false;
    loop {
        tokio::select! {
            _ = &mut connection => return,
            () = sleep(tick(&shared.limits)) => {
                if asker.watch.is_late(&shared.limits) {
                    return;
                }
            }
            _ = stopped.wait_for(|stopped| *stopped), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Who asks, and over which connection.
struct Asker {
    peer: Option<Identity>,
    guest: Option<Guest>,
    address: SocketAddr,
    watch: Arc<Watch>,
    pieces: Pieces,
    shared: Arc<Shared>,
}

async fn answer(asker: &Asker, request: hyper::Request<Incoming>) -> hyper::Response<Outgoing> {
    asker.watch.busy();
    let method = Method::of_word(request.method().as_str());
    let given = match understood(asker, method, request) {
        Ok(request) => {
            let asked = request.headers.clone();
            let handler = Arc::clone(&asker.shared.handler);
            let permit = match &asker.guest {
                Some(guest) => guest.may_ask().await,
                None => None,
            };
            let answered = tokio::task::spawn_blocking(move || {
                // It is the thread's: a connection that is closed does not end what it does.
                let _permit = permit;
                handler.handle(request)
            })
            .await;
            answered.map(|response| (asked, response)).map_err(|_| {
                Response::new(500, "the server failed at this request, and serves on\n")
            })
        }
        Err(refusal) => Err(refusal),
    };
    let (asked, response) = given.unwrap_or_else(|refusal| (Headers::default(), refusal));
    let method = method.unwrap_or(Method::Get);
    sent(asker, method, ranges::apply(method, &asked, response))
}

fn understood(
    asker: &Asker,
    method: Option<Method>,
    request: hyper::Request<Incoming>,
) -> Result<Request, Response> {
    let method = method.ok_or_else(|| Response::new(405, "no such method is served\n"))?;
    let odd = || Response::new(400, "the path or query is not well encoded\n");
    let (head, body) = request.into_parts();
    let path = target::decode(head.uri.path()).ok_or_else(odd)?;
    let query = target::pairs(head.uri.query().unwrap_or("")).ok_or_else(odd)?;
    let text = |(name, value): (&HeaderName, &HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    let headers = Headers(head.headers.iter().filter_map(text).collect());
    let body = Upload::new(body, &asker.watch, asker.shared.limits.body_bytes);
    if body.announced() > Some(asker.shared.limits.body_bytes) {
        let most = asker.shared.limits.body_bytes;
        return Err(Response::new(413, format!("a body may have {most} bytes at most\n")));
    }
    let (peer, address) = (asker.peer.clone(), asker.address);
    Ok(Request { method, path, query, headers, peer, address, body })
}

/// A response as hyper sends it. One that cannot be sent is a fault of the handler.
fn sent(asker: &Asker, method: Method, response: Response) -> hyper::Response<Outgoing> {
    let Response { status, headers, content, check } = response;
    // Statuses below 200 announce an answer, and 204 and 304 have no body.
    let bare = method == Method::Head || matches!(status, 204 | 304);
    let length = content.length().filter(|_| method == Method::Head);
    let body = if bare {
        Outgoing::none(&asker.pieces, &asker.watch)
    } else {
        Outgoing::new(content, check, &asker.pieces, &asker.watch)
    };
    let mut out = hyper::Response::new(body);
    let Some(status) = hyper::StatusCode::from_u16(status).ok().filter(|s| s.as_u16() >= 200)
    else {
        return broken(asker);
    };
    *out.status_mut() = status;
    for (name, value) in headers.0 {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
        else {
            return broken(asker);
        };
        if !OWN.contains(&name.as_str()) {
            out.headers_mut().append(name, value);
        }
    }
    if let Some(length) = length {
        out.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    out
}

fn broken(asker: &Asker) -> hyper::Response<Outgoing> {
    let text = "the server's answer has a status or header that cannot be sent\n";
    let content = crate::message::Content::Bytes(text.into());
    let body = Outgoing::new(content, None, &asker.pieces, &asker.watch);
    let mut out = hyper::Response::new(body);
    *out.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
    out
}
