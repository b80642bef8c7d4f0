//! Where rows are asked for: at etcd, or by a user, to whom etcd does not speak, at the nodes.
//!
//! A node server shows the rows of the map and of names to whoever has a certificate of the
//! cluster, as etcd has them at that moment. It changes none for a user.

use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use engram_base::mutex::lock;
use engram_protocol::coordinator::{Reply, Request, Row};
use engram_protocol::map::Map;
use engram_wire::{Ask, Client, Headers, Method, Tls, Who};
use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::etcd::Etcd;

/// The most bytes of rows that a node shows at once: a map of thousands of nodes.
const ROWS_MOST: u64 = 256 << 20;

/// Whom a process asks for rows.
pub(crate) enum Coordinator {
    Etcd(Box<Etcd>),
    Nodes(Box<NodeRows>),
}

impl Coordinator {
    /// The coordinator at these addresses: those of etcd, or with a user's certificate those of
    /// nodes. One that cannot be trusted is refused.
    pub(crate) fn open(
        endpoints: &[String],
        tls: Option<&Tls>,
        deadline: Duration,
    ) -> Result<Coordinator> {
        if let Some(tls) = tls
            && let Who::User(uid) = tls.own().who
        {
            let known = Mutex::new(endpoints.to_vec());
            let rows = NodeRows { uid, known, client: Client::new(Some(tls)), deadline };
            return Ok(Coordinator::Nodes(Box::new(rows)));
        }
        let etcd = Etcd::new(endpoints, tls, deadline)?;
        etcd.check_version()?;
        etcd.learn();
        Ok(Coordinator::Etcd(Box::new(etcd)))
    }

    pub(crate) fn answer(&self, request: &Request) -> Reply {
        match self {
            Coordinator::Etcd(etcd) => etcd.answer(request),
            Coordinator::Nodes(nodes) => nodes.answer(request),
        }
    }

    /// Closes connections that are kept for the next request.
    pub(crate) fn close_kept(&self) {
        match self {
            Coordinator::Etcd(etcd) => etcd.close_kept(),
            Coordinator::Nodes(nodes) => nodes.client.close_kept(),
        }
    }

    /// Refuses a user, who changes nothing.
    pub(crate) fn check_writer(&self) -> Result<()> {
        match self {
            Coordinator::Etcd(_) => Ok(()),
            Coordinator::Nodes(nodes) => Err(Error::Access(nodes.refusal())),
        }
    }

    /// What does not answer, for messages.
    pub(crate) fn told(&self) -> String {
        match self {
            Coordinator::Etcd(etcd) => format!("etcd at {}", etcd.endpoints().join(", ")),
            Coordinator::Nodes(nodes) => format!("any node at {}", lock(&nodes.known).join(", ")),
        }
    }

    /// The addresses that are asked: those that were given, and those that were learned.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        match self {
            Coordinator::Etcd(etcd) => etcd.endpoints(),
            Coordinator::Nodes(nodes) => lock(&nodes.known).clone(),
        }
    }

    /// Nodes that a map has can be asked, too.
    pub(crate) fn learn(&self, map: &Map) {
        if let Coordinator::Nodes(nodes) = self {
            let mut known = lock(&nodes.known);
            for entry in map.serving() {
                if !known.contains(&entry.identity.address) {
                    known.push(entry.identity.address.clone());
                }
            }
        }
    }
}

/// Rows as nodes show them to a user.
pub(crate) struct NodeRows {
    uid: u32,
    /// The addresses of nodes, the one that answered last first.
    known: Mutex<Vec<String>>,
    client: Client,
    deadline: Duration,
}

/// A question for rows, as it is sent to a node.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Asked {
    /// These rows.
    Keys(Vec<String>),
    /// All rows whose keys begin so.
    Prefix(String),
}

/// A node's answer.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Shown {
    revision: u64,
    rows: Vec<ShownRow>,
}

#[derive(Debug, Deserialize, Serialize)]
struct ShownRow {
    key: String,
    value: String,
    modified: u64,
}

impl Asked {
    pub(crate) fn request(self) -> Request {
        match self {
            Asked::Keys(keys) => Request::Get { keys },
            Asked::Prefix(prefix) => Request::List { prefix },
        }
    }

    /// Whether all that is asked for begins with one of these.
    pub(crate) fn is_below(&self, roots: &[String]) -> bool {
        let is_below = |key: &String| roots.iter().any(|root| key.starts_with(root.as_str()));
        match self {
            Asked::Keys(keys) => keys.iter().all(is_below),
            Asked::Prefix(prefix) => is_below(prefix),
        }
    }
}

impl Shown {
    pub(crate) fn of(revision: u64, rows: Vec<Row>) -> Shown {
        let shown = |row: Row| ShownRow {
            key: row.key,
            value: BASE64.encode(row.value),
            modified: row.modified,
        };
        Shown { revision, rows: rows.into_iter().map(shown).collect() }
    }

    fn reply(self) -> Option<Reply> {
        let row = |shown: ShownRow| {
            let value = BASE64.decode(shown.value).ok()?;
            Some(Row { key: shown.key, value, modified: shown.modified })
        };
        let rows = self.rows.into_iter().map(row).collect::<Option<Vec<Row>>>()?;
        Some(Reply::Rows { revision: self.revision, rows })
    }
}

impl NodeRows {
    fn refusal(&self) -> String {
        format!("the certificate of user {} reads what is published, and changes nothing", self.uid)
    }

    fn answer(&self, request: &Request) -> Reply {
        let asked = match request {
            Request::Get { keys } => Asked::Keys(keys.clone()),
            Request::List { prefix } => Asked::Prefix(prefix.clone()),
            _ => return Reply::Refused(self.refusal()),
        };
        let body = serde_json::to_vec(&asked).expect("plain values");
        let addresses = lock(&self.known).clone();
        for (at, address) in addresses.iter().enumerate() {
            if let Some(reply) = self.ask(address, &body) {
                if at > 0 {
                    let mut known = lock(&self.known);
                    known.retain(|other| other != address);
                    known.insert(0, address.clone());
                }
                return reply;
            }
        }
        Reply::Unreachable
    }

    fn ask(&self, address: &str, body: &[u8]) -> Option<Reply> {
        let ask =
            Ask { deadline: self.deadline, connect: self.deadline / 2, most_bytes: ROWS_MOST };
        let headers = Headers::default();
        let answer =
            self.client.request(Method::Post, address, "/rows", &headers, body, &ask).ok()?;
        let shown: Shown = serde_json::from_slice(&answer.accepted().ok()?.body).ok()?;
        shown.reply()
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.told())
    }
}

/// The error where nobody answers.
pub(crate) fn no_answer(coordinator: &Coordinator) -> Error {
    Error::Coordinator(format!(
        "{} does not answer: what is open reads on, and nothing can be published",
        coordinator.told()
    ))
}
