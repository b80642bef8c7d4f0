//! Calls of methods: what is sent to a node, and who runs it there.
//!
//! A call is bytes that this crate does not read. It has a number that its caller has chosen, by
//! which it is begun once, and asked for until it has ended:
//!
//! ```text
//! POST   /calls/NUMBER            begins the call of the body; the answer is as for GET
//! GET    /calls/NUMBER            200: what it gave; 202: it goes on; 404: it was never begun here
//! DELETE /calls/NUMBER            nobody asks for it any more
//! ```
//!
//! Only members may call: a call runs whatever it says, as the node's user. So calls are taken by
//! TLS alone, where the caller's certificate says who it is.

use std::time::Duration;

use engram_protocol::Rules;
use engram_protocol::manifest::Holder;
use engram_protocol::map::State;
use engram_wire::{Ask, Error as WireError, Headers, Method, Request, Response, Who, target};

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::making::refusal;
use crate::routes::Routes;
use engram_base::telemetry::operation;

/// The most bytes of a call, and of what it gives.
const CALL_MOST: u64 = 16 << 30;
/// A caller waits for an answer longer than a node waits for the end of a call.
const MARGIN: Duration = Duration::from_secs(15);

/// What a node says of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Called {
    /// It has ended, and gave these bytes.
    Ended(Vec<u8>),
    /// It goes on, or waits for a worker.
    GoesOn,
    /// It was never begun here, or was given up.
    Unknown,
    /// The node could not be reached, for this reason: nothing was begun.
    Unreached(String),
    /// The connection broke off, for this reason: it may have begun.
    Broken(String),
}

/// Who runs calls, in the process that serves a node.
pub trait Caller: Send + Sync + 'static {
    /// Begins a call, asks for one, or gives one up. It returns soon, whether it has ended or not.
    fn call(&self, method: Method, number: &str, body: &[u8]) -> Result<Called>;
}

impl Cluster {
    /// Sends a call to a node, asks for it, or gives it up.
    pub fn call(&self, node: &str, method: Method, number: &str, body: &[u8]) -> Result<Called> {
        let _operation = operation!(DEBUG, "cluster.call", node, bytes = body.len());
        match self.called(node, method, number, body)? {
            // It has another life since the map was read: nothing was begun.
            Called::Unreached(_) => {
                self.read_map()?;
                self.called(node, method, number, body)
            }
            called => Ok(called),
        }
    }

    fn called(&self, node: &str, method: Method, number: &str, body: &[u8]) -> Result<Called> {
        let map = self.map();
        let found = map.node(node).filter(|(entry, _)| entry.state == State::Serving);
        let map = if found.is_some() { map } else { self.read_map()? };
        let Some((entry, _)) = map.node(node) else {
            return Err(Error::NotFound(format!("there is no node {node} in the cluster")));
        };
        let holder = Holder { node: node.to_owned(), member: entry.member };
        if !map.is_member(&holder, Rules::ALL) {
            return Err(Cluster::away(&map, &[holder], "the object"));
        }
        let deadline = self.deadline + MARGIN;
        let ask = Ask { deadline, most_bytes: CALL_MOST, ..Ask::default() };
        let number = target::encode_query(number);
        let target = format!("/calls/{number}?member={:x}", entry.member);
        let (address, none) = (&entry.identity.address, Headers::default());
        match self.wire.request(method, address, &target, &none, body, &ask) {
            Ok(answer) if answer.status == 200 => Ok(Called::Ended(answer.body)),
            Ok(answer) if answer.status == 202 => Ok(Called::GoesOn),
            Ok(answer) if answer.headers.get("Engram-Call").is_some() => Ok(Called::Unknown),
            Ok(answer) if [421, 503].contains(&answer.status) => {
                self.suspect_if_fenced(&holder, &answer);
                Ok(Called::Unreached(refusal(&answer, &entry.identity.host).to_string()))
            }
            Ok(answer) => Err(refusal(&answer, &entry.identity.host)),
            Err(error) => {
                if error.is_of_the_way() {
                    self.suspect(&holder.node, holder.member);
                }
                match error {
                    WireError::Unreachable(why) => Ok(Called::Unreached(why)),
                    error if error.is_of_the_way() => Ok(Called::Broken(error.to_string())),
                    error => Err(error.into()),
                }
            }
        }
    }
}

impl Routes {
    /// Answers what is asked of a call.
    pub(crate) fn call(&self, mut request: Request, number: &str) -> Result<Response> {
        let shared = self.shared();
        let member = self.asked(&request)?;
        match request.peer.as_ref().map(|peer| &peer.who) {
            Some(Who::Member(_)) => {}
            Some(Who::User(uid)) => {
                let why = format!("the certificate of user {uid} reads, and calls nothing");
                return Err(Error::Access(why));
            }
            None => {
                let why = "methods are called by TLS alone, for they run as this node's user: \
                           start the cluster with certificates (tls=\"own\")";
                return Err(Error::Access(why.to_owned()));
            }
        }
        let Some(caller) = &shared.caller else {
            let why = "the process that serves this node runs no methods: serve it from Python";
            return Err(Error::Unsupported(why.to_owned()));
        };
        let body = request.body.read_all(CALL_MOST)?;
        let called = caller.call(request.method, number, &body)?;
        let shared = std::sync::Arc::clone(shared);
        let answer = match called {
            Called::Ended(bytes) => Response::new(200, bytes),
            Called::GoesOn => Response::new(202, ""),
            Called::Unknown | Called::Unreached(_) | Called::Broken(_) => {
                Response::new(404, "this call was never begun here\n")
                    .with("Engram-Call", "unknown")
            }
        };
        Ok(answer.checked(move || shared.answers(member)))
    }
}
