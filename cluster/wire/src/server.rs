//! The server: connections are held by a runtime of its own, requests answered by threads.
//!
//! **Who runs what.** A few threads read, encrypt and send for all connections; none of them waits
//! for anything but the kernel. A request is answered on a thread of its own, which may wait as
//! long as it likes: the engine's calls do. The process around it, Python or a rank of MPI, lends
//! no thread and no event loop.
//!
//! **Forks.** A child has the server's memory and not its threads. It does not serve, and says so
//! ([`Server::is_of_this_process`]); stopping or dropping it there does nothing. The socket that
//! listens stays open in the child until it calls exec or ends: until then the address is not
//! free, and connections that come after the parent's end are answered by nobody.

pub(crate) mod carrier;
mod connection;
mod guests;
mod kernel;
pub(crate) mod outgoing;
pub(crate) mod piece;
pub(crate) mod ranges;
pub(crate) mod upload;
pub(crate) mod watch;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::sync::watch::{Receiver, Sender, channel};

use crate::error::{Error, Result};
use crate::identity::Who;
use crate::message::Handler;
use crate::tls::Tls;

/// What a server bears.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once. One more is answered 503 and closed. One user has a quarter at most,
    /// of these and of the handlers.
    pub connections: usize,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// How long a head may take to arrive, from its first byte, and a TLS handshake.
    pub head: Duration,
    /// How long a connection may wait for its next request.
    pub idle: Duration,
    /// Bytes of a request's body.
    pub body_bytes: u64,
    /// So many bytes at least must move in [`Limits::slowest_within`], while a client is waited
    /// for in the middle of a body.
    pub slowest_bytes: u64,
    /// See [`Limits::slowest_bytes`].
    pub slowest_within: Duration,
    /// Threads that read, encrypt and send.
    pub threads: usize,
    /// Requests that are answered at once; more wait.
    pub handlers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 1024,
            head_bytes: 16 << 10,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            body_bytes: 64 << 20,
            slowest_bytes: 64 << 10,
            slowest_within: Duration::from_secs(10),
            threads: std::thread::available_parallelism().map_or(2, Into::into).clamp(2, 8),
            handlers: 64,
        }
    }
}

impl Limits {
    fn check(&self) -> Result<()> {
        let none = Duration::ZERO;
        if [self.connections, self.threads, self.handlers].contains(&0)
            || [self.head, self.idle, self.slowest_within].contains(&none)
        {
            return Err(Error::Argument(format!("a limit of 0 lets nothing through: {self:?}")));
        }
        // hyper's buffer has at least so many bytes.
        if self.head_bytes < 8 << 10 {
            return Err(Error::Argument(format!(
                "a head of {} bytes at most is less than 8 KiB, which clients may count on",
                self.head_bytes
            )));
        }
        Ok(())
    }
}

/// A server that runs.
pub struct Server {
    address: SocketAddr,
    process: u32,
    runtime: Option<Runtime>,
    stop: Sender<bool>,
    open: Receiver<usize>,
}

impl Server {
    /// Serves at a socket that listens; with TLS, only those whom the cluster's authority knows.
    pub fn start(
        listener: TcpListener,
        tls: Option<&Tls>,
        limits: Limits,
        handler: Arc<dyn Handler>,
    ) -> Result<Server> {
        limits.check()?;
        if let Some(tls) = tls
            && let Who::User(uid) = tls.own().who
        {
            return Err(Error::Argument(format!(
                "the certificate of user {uid} serves nobody: take one of a member"
            )));
        }
        let failed = |e: std::io::Error| Error::os("starting a server", &e);
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits.threads)
            .max_blocking_threads(limits.handlers)
            .thread_name("engram-wire")
            .on_thread_start(kernel::hold_back_sigpipe)
            .enable_all()
            .build()
            .map_err(failed)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(failed)?
        };
        let (stop, stopped) = channel(false);
        let (count, open) = channel(0);
        let acceptor = tls.map(|tls| tokio_rustls::TlsAcceptor::from(Arc::clone(&tls.server)));
        let shared = connection::Shared {
            guests: Arc::new(guests::Guests::new(&limits)),
            refusing_users: Semaphore::new(connection::REFUSING_USERS),
            tls: tls.cloned().zip(acceptor),
            limits,
            handler,
            stopped,
            open: count,
        };
        runtime.spawn(connection::accept(listener, Arc::new(shared)));
        Ok(Server { address, process: std::process::id(), runtime: Some(runtime), stop, open })
    }

    /// Serves at an address; port 0 is one that is free.
    pub fn bind(
        address: SocketAddr,
        tls: Option<&Tls>,
        limits: Limits,
        handler: Arc<dyn Handler>,
    ) -> Result<Server> {
        let listener = TcpListener::bind(address)
            .map_err(|e| Error::os(format!("listening at {address}"), &e))?;
        Server::start(listener, tls, limits, handler)
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        *self.open.borrow()
    }

    /// Whether the process that asks is the one that serves, and no child of it.
    pub fn is_of_this_process(&self) -> bool {
        std::process::id() == self.process
    }

    /// Takes no new connection, lets requests that run be answered, and ends. Returns whether all
    /// were answered in time; others were broken off. Not for a handler: it would wait for itself.
    pub fn stop(mut self, within: Duration) -> bool {
        self.end(within)
    }

    fn end(&mut self, within: Duration) -> bool {
        let Some(runtime) = self.runtime.take() else { return true };
        if std::process::id() != self.process {
            // Its threads are the parent's: whoever waited for them here would wait for ever.
            std::mem::forget(runtime);
            return true;
        }
        let deadline = Instant::now() + within;
        self.stop.send_replace(true);
        let open = &mut self.open;
        let all = runtime.block_on(async {
            let none = open.wait_for(|open| *open == 0);
            matches!(tokio::time::timeout(within, none).await, Ok(Ok(_)))
        });
        runtime.shutdown_timeout(deadline.saturating_duration_since(Instant::now()));
        all
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
