//! How nodes of a cluster send bytes to each other: HTTP/1.1, with TLS.
//!
//! This crate owns connections: who is let in, how long each may take, how bytes of a file get into
//! the memory of another node, and what to do where they stop. It knows no pool, no cluster's map
//! and no meaning of a path. Any HTTP client can ask such a server.
//!
//! *Invariant*: nobody here waits for ever. Each call of a client has a deadline, each connection
//! of a server a limit for each thing that it can wait for. What [`Client::pull`] says it has
//! fetched is as many bytes as were asked for, of one thing: of one length, and of one `ETag`.
//!
//! | module | what it offers |
//! |---|---|
//! | [`message`] | requests and responses, as a handler sees them; bytes of files as a body |
//! | [`server`] | a server with threads of its own, and what it bears |
//! | [`client`] | requests with deadlines, over connections that are kept |
//! | [`pull`] | bytes of several holders into memory, and on from where they broke off |
//! | [`authority`], [`tls`], [`identity`] | a cluster's certificates, and who the other side is |
//! | [`target`] | paths and queries, as they stand in a request |
//! | [`error`] | what can go wrong, by what the caller does about it |

#![deny(missing_docs)]

pub mod authority;
mod bounce;
pub mod client;
pub mod error;
pub mod identity;
pub mod message;
pub mod pull;
pub mod server;
pub mod target;
pub mod tls;

pub use authority::{Authority, Credentials};
pub use client::{Answer, Ask, Client, on_its_way};
pub use error::{Error, Result};
pub use identity::{Identity, Who};
pub use message::{Content, FileRange, Handler, Headers, Method, Request, Response};
pub use pull::{Pull, Pulled, Within};
pub use server::{Limits, Server};
pub use tls::Tls;
