//! Etcd as the coordinator of a cluster, by its JSON gateway.
//!
//! The gateway is HTTP/1.1 at the same port as gRPC, in every etcd since 3.4. With it the cluster
//! needs one kind of connection for all, and no compiler of protocol buffers. It costs a copy in
//! base64, which rows of at most a megabyte bear.
//!
//! A request goes to the endpoint that answered last, and to the others where that one does not. A
//! transaction is tried once at an endpoint that took the connection: whether it was done is for
//! the machine to find out that asked.
//!
//! An etcd that was brought along may have more members than whoever opened it was told of. So its
//! members are asked for now and then: one that came later answers, where those before it are gone.
//! Their names tell that it is such an etcd. Any other may call its members what its clients cannot
//! reach, and is asked where it was given.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use engram_base::mutex::lock;
use engram_protocol::coordinator::{Change, Guard, Reply, Request, Revision, Row, Transaction};
use engram_wire::{Ask, Client, Error as WireError, Headers, Method, Tls};
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// The most bytes of an answer: a map of thousands of nodes.
const ANSWER_MOST: u64 = 256 << 20;

/// How the names of members begin of an etcd that was brought along.
const BROUGHT: &str = "engram";
/// So many deadlines go by until its members are asked for again.
const LEARN_AFTER: u32 = 4;

/// Versions that are known to diverge, with the first that does not.
const REFUSED: [((u64, u64), u64, &str); 2] = [((3, 4), 22, "3.4.22"), ((3, 5), 6, "3.5.6")];

/// The coordinator.
pub struct Etcd {
    /// Those that were given, and those that were learned.
    endpoints: Mutex<Vec<Endpoint>>,
    /// So many of them were given.
    given: usize,
    has_tls: bool,
    /// When the members are to be asked for; none: never, since it was not brought along.
    learns: Mutex<Option<Instant>>,
    client: Client,
    plain: Client,
    /// The endpoint that answered last.
    last: AtomicUsize,
    deadline: Duration,
}

/// Where a member answers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    /// As it was given: `HOST:PORT`, perhaps with a scheme before it.
    text: String,
    address: String,
    /// Whether it is asked by TLS.
    is_secure: bool,
}

impl Endpoint {
    fn of(text: &str, has_tls: bool) -> Result<Endpoint> {
        let (is_secure, host) = match text.split_once("://") {
            Some(("https", host)) => (true, host),
            Some(("http", host)) => (false, host),
            _ => (has_tls, text),
        };
        if is_secure && !has_tls {
            return Err(Error::Argument(format!(
                "the endpoint {text:?} of etcd asks for TLS: give the folder of certificates"
            )));
        }
        let address = host.trim_end_matches('/').to_owned();
        Ok(Endpoint { text: text.to_owned(), address, is_secure })
    }
}

/// What the gateway says.
enum Said {
    Done(Value),
    /// It was not done: gRPC's code, and why.
    Refused(String),
    Unreachable(String),
}

impl Etcd {
    /// The coordinator at these addresses, each `HOST:PORT`; `https://` before one is TLS, and
    /// `http://` is none. A question is given up after `deadline`.
    pub fn new(endpoints: &[String], tls: Option<&Tls>, deadline: Duration) -> Result<Etcd> {
        if endpoints.is_empty() {
            return Err(Error::Argument("a cluster has an endpoint of etcd: HOST:PORT".to_owned()));
        }
        let has_tls = tls.is_some();
        let found = endpoints.iter().map(|text| Endpoint::of(text, has_tls));
        Ok(Etcd {
            endpoints: Mutex::new(found.collect::<Result<_>>()?),
            given: endpoints.len(),
            has_tls,
            learns: Mutex::new(Some(Instant::now())),
            client: Client::new(tls),
            plain: Client::new(None),
            last: AtomicUsize::new(0),
            deadline,
        })
    }

    /// What asks an endpoint.
    fn client(&self, endpoint: &Endpoint) -> &Client {
        if endpoint.is_secure { &self.client } else { &self.plain }
    }

    /// Its addresses, as they were given and learned.
    pub fn endpoints(&self) -> Vec<String> {
        lock(&self.endpoints).iter().map(|each| each.text.clone()).collect()
    }

    /// Asks for the members, if it is time to and this etcd was brought along.
    pub fn learn(&self) {
        {
            let mut learns = lock(&self.learns);
            if learns.is_none_or(|at| Instant::now() < at) {
                return;
            }
            *learns = Some(Instant::now() + self.deadline * LEARN_AFTER);
        }
        let Said::Done(told) = self.post("/v3/cluster/member/list", &json!({}), true) else {
            return;
        };
        let Some(found) = brought_along(&told) else {
            *lock(&self.learns) = None;
            return;
        };
        let mut endpoints = lock(&self.endpoints);
        endpoints.truncate(self.given);
        for endpoint in found.iter().filter_map(|text| Endpoint::of(text, self.has_tls).ok()) {
            if endpoints.iter().all(|known| known.address != endpoint.address) {
                endpoints.push(endpoint);
            }
        }
    }

    /// Asks what the gateway has at a path, in JSON, once.
    pub fn asked(&self, path: &str, body: &Value) -> Result<Value> {
        match self.post(path, body, false) {
            Said::Done(told) => Ok(told),
            Said::Refused(why) | Said::Unreachable(why) => Err(Error::Coordinator(format!(
                "etcd at {} does not do {path}: {why}",
                self.endpoints().join(", ")
            ))),
        }
    }

    /// Refuses an etcd that is too old or known to lose what it acknowledged, by its version.
    pub fn check_version(&self) -> Result<String> {
        let ask = Ask { deadline: self.deadline, ..Ask::default() };
        let mut why = String::new();
        let endpoints = lock(&self.endpoints).clone();
        for endpoint in &endpoints {
            let answer = self.client(endpoint).get(&endpoint.address, "/version", &ask);
            match answer.and_then(engram_wire::Answer::accepted) {
                Ok(answer) => {
                    let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                    let Some(version) = told["etcdserver"].as_str().map(str::to_owned) else {
                        return Err(Error::Unsupported(format!(
                            "what answers at {} is no etcd: name the address for its clients, \
                             which has port 2379 as a rule",
                            endpoint.text
                        )));
                    };
                    judge_version(&version).map_err(|why| {
                        Error::Unsupported(format!("etcd at {}: {why}", endpoint.text))
                    })?;
                    return Ok(version);
                }
                Err(error) => why = error.to_string(),
            }
        }
        Err(Error::Coordinator(format!(
            "no etcd answers at {}: start it, or name another ({why})",
            self.endpoints().join(", ")
        )))
    }

    /// Refuses an etcd as [`check_version`](Etcd::check_version) does, and one of which most
    /// members do not answer each other.
    pub fn check_answers(&self) -> Result<String> {
        let version = self.check_version()?;
        match self.answer(&Request::Get { keys: vec!["/engram/".to_owned()] }) {
            Reply::Rows { .. } => Ok(version),
            _ => Err(Error::Coordinator(format!(
                "etcd at {} has no leader, or does not answer in time: try again later",
                self.endpoints().join(", ")
            ))),
        }
    }

    /// Closes the connections that are kept for the next request.
    pub(crate) fn close_kept(&self) {
        self.client.close_kept();
        self.plain.close_kept();
    }

    /// Answers a question; where nobody knows whether it was done, `Unreachable`.
    pub fn answer(&self, request: &Request) -> Reply {
        let reply = self.reply(request);
        if !matches!(reply, Reply::Unreachable) {
            self.learn();
        }
        reply
    }

    fn reply(&self, request: &Request) -> Reply {
        match request {
            Request::Grant { ttl } => self.grant(*ttl),
            Request::Renew { lease } => {
                match self.post("/v3/lease/keepalive", &json!({ "ID": lease.to_string() }), true) {
                    Said::Done(told) => {
                        let seconds = number(&told["result"]["TTL"]);
                        Reply::Renewed((seconds > 0).then(|| Duration::from_secs(seconds)))
                    }
                    Said::Refused(..) | Said::Unreachable(_) => Reply::Unreachable,
                }
            }
            Request::Revoke { lease } => {
                match self.post("/v3/lease/revoke", &json!({ "ID": lease.to_string() }), true) {
                    Said::Unreachable(_) => Reply::Unreachable,
                    Said::Done(_) | Said::Refused(..) => Reply::Revoked,
                }
            }
            Request::Get { keys } => {
                let success: Vec<Value> = keys.iter().map(|key| range_of(key)).collect();
                match self.post("/v3/kv/txn", &json!({ "success": success }), true) {
                    Said::Done(told) => {
                        Reply::Rows { revision: revision(&told), rows: rows_of_all(&told) }
                    }
                    other => other.failed(),
                }
            }
            Request::List { prefix } => {
                let ask = json!({ "key": coded(prefix), "range_end": coded(&after(prefix)) });
                match self.post("/v3/kv/range", &ask, true) {
                    Said::Done(told) => {
                        Reply::Rows { revision: revision(&told), rows: rows(&told["kvs"]) }
                    }
                    other => other.failed(),
                }
            }
            Request::Commit(transaction) => self.commit(transaction),
        }
    }

    fn grant(&self, ttl: Duration) -> Reply {
        // Etcd counts whole seconds. A lease that runs longer than its member thinks does no harm.
        let seconds = (ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).max(1).to_string();
        // A lease that was granted unheard ends by itself: it may be asked for twice.
        match self.post("/v3/lease/grant", &json!({ "TTL": seconds }), true) {
            Said::Done(told) => match number(&told["ID"]) {
                0 => Reply::Unreachable,
                id => Reply::Granted(id),
            },
            other => other.failed(),
        }
    }

    fn commit(&self, transaction: &Transaction) -> Reply {
        let compare: Vec<Value> = transaction.guards.iter().map(compare_of).collect();
        let success: Vec<Value> = transaction.changes.iter().map(change_of).collect();
        let failure: Vec<Value> = transaction.otherwise.iter().map(|key| range_of(key)).collect();
        let ask = json!({ "compare": compare, "success": success, "failure": failure });
        match self.post("/v3/kv/txn", &ask, false) {
            Said::Done(told) => {
                let done = told["succeeded"].as_bool().unwrap_or(false);
                let rows = if done { Vec::new() } else { rows_of_all(&told) };
                Reply::Committed { done, revision: revision(&told), rows }
            }
            other => other.failed(),
        }
    }

    /// Sends a question to the endpoint that answered last, then to the others. What may be done
    /// only once goes on to another where no connection came about, and nowhere else.
    fn post(&self, path: &str, body: &Value, may_repeat: bool) -> Said {
        let text = body.to_string();
        let ask =
            Ask { deadline: self.deadline, connect: self.deadline / 2, most_bytes: ANSWER_MOST };
        let first = self.last.load(Ordering::Relaxed);
        let endpoints = lock(&self.endpoints).clone();
        let mut why = String::new();
        for step in 0..endpoints.len() {
            let place = (first + step) % endpoints.len();
            let endpoint = &endpoints[place];
            let answer = self.client(endpoint).request(
                Method::Post,
                &endpoint.address,
                path,
                &Headers(vec![("Content-Type".to_owned(), "application/json".to_owned())]),
                text.as_bytes(),
                &ask,
            );
            match answer {
                Ok(answer) => match said(answer.status, &answer.body) {
                    // This endpoint has no leader, or is about to stop.
                    Said::Unreachable(told) if may_repeat => why = told,
                    said => {
                        self.last.store(place, Ordering::Relaxed);
                        return said;
                    }
                },
                Err(error @ (WireError::Unreachable(_) | WireError::Tls(_))) => {
                    why = error.to_string();
                }
                Err(error) if may_repeat => why = error.to_string(),
                Err(error) => {
                    // Whoever asks next begins elsewhere.
                    self.last.store(place + 1, Ordering::Relaxed);
                    return Said::Unreachable(error.to_string());
                }
            }
        }
        Said::Unreachable(why)
    }
}

impl Said {
    fn failed(self) -> Reply {
        match self {
            Said::Refused(why) => Reply::Refused(why),
            Said::Unreachable(_) | Said::Done(_) => Reply::Unreachable,
        }
    }
}

/// What an answer of the gateway means. It has gRPC's codes.
fn said(status: u16, body: &[u8]) -> Said {
    let told: Value = serde_json::from_slice(body).unwrap_or_default();
    if status == 200 && told.is_object() && told["error"].is_null() {
        return Said::Done(told);
    }
    let error = if told["error"].is_object() { &told["error"] } else { &told };
    let message = error["message"].as_str().or(error["error"].as_str());
    let message = message.unwrap_or("etcd's gateway says nothing that can be read").to_owned();
    // Canceled, unknown, deadline, exhausted, aborted, internal, unavailable: it may be done.
    match number(&error["code"]) {
        0 | 1 | 2 | 4 | 8 | 10 | 13 | 14 => Said::Unreachable(message),
        _ => Said::Refused(message),
    }
}

fn coded(text: &str) -> String {
    BASE64.encode(text)
}

fn range_of(key: &str) -> Value {
    json!({ "requestRange": { "key": coded(key) } })
}

fn compare_of(guard: &Guard) -> Value {
    match guard {
        Guard::Unchanged { key, modified } => json!({
            "key": coded(key), "target": "MOD", "result": "EQUAL",
            "mod_revision": modified.to_string(),
        }),
        Guard::Present { key } => json!({
            "key": coded(key), "target": "VERSION", "result": "GREATER", "version": "0",
        }),
    }
}

fn change_of(change: &Change) -> Value {
    match change {
        Change::Put { key, value, lease } => json!({ "requestPut": {
            "key": coded(key), "value": BASE64.encode(value),
            "lease": lease.unwrap_or(0).to_string(),
        } }),
        Change::Delete { key } => json!({ "requestDeleteRange": { "key": coded(key) } }),
    }
}

/// The first key that does not begin so: all keys of a cluster end before it.
fn after(prefix: &str) -> String {
    // Prefixes end with '/', which '0' follows.
    let mut end = prefix.to_owned();
    if let Some(last) = end.pop() {
        end.push(char::from_u32(last as u32 + 1).unwrap_or('\u{7f}'));
    }
    end
}

/// Where the members of an etcd answer that was brought along; none if it was not. Those that have
/// no voice yet, or have not started, answer nothing.
fn brought_along(told: &Value) -> Option<Vec<String>> {
    let none = Vec::new();
    let members = told["members"].as_array().unwrap_or(&none);
    let names = members.iter().filter_map(|each| each["name"].as_str().filter(|s| !s.is_empty()));
    if !names.clone().all(|name| name.starts_with(BROUGHT)) || names.count() == 0 {
        return None;
    }
    let voices = members.iter().filter(|each| each["isLearner"].as_bool() != Some(true));
    Some(voices.filter_map(|each| each["clientURLs"][0].as_str().map(str::to_owned)).collect())
}

/// A number, which the gateway writes as text.
fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

fn revision(told: &Value) -> Revision {
    number(&told["header"]["revision"])
}

fn rows(kvs: &Value) -> Vec<Row> {
    let decoded = |value: &Value| BASE64.decode(value.as_str().unwrap_or_default()).ok();
    let row = |kv: &Value| {
        let key = String::from_utf8(decoded(&kv["key"])?).ok()?;
        let value = decoded(&kv["value"]).unwrap_or_default();
        Some(Row { key, value, modified: number(&kv["mod_revision"]) })
    };
    kvs.as_array().map_or(Vec::new(), |kvs| kvs.iter().filter_map(row).collect())
}

/// The rows of all answers of a transaction.
fn rows_of_all(told: &Value) -> Vec<Row> {
    let responses = told["responses"].as_array().map_or(&[][..], Vec::as_slice);
    responses.iter().flat_map(|each| rows(&each["response_range"]["kvs"])).collect()
}

/// Whether this version may decide for a cluster; if not, why.
pub fn judge_version(version: &str) -> std::result::Result<(), String> {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<u64>().ok());
    let (Some(Some(major)), Some(Some(minor)), Some(Some(patch))) =
        (numbers.next(), numbers.next(), numbers.next())
    else {
        return Err(format!("its version {version:?} cannot be read: 3.4.22 or later is needed"));
    };
    if (major, minor) < (3, 4) {
        return Err(format!("version {version} has no /v3 gateway: 3.4.22 or later is needed"));
    }
    for (series, least, named) in REFUSED {
        if (major, minor) == series && patch < least {
            return Err(format!(
                "version {version} may lose what it has acknowledged, so it cannot decide for a \
                 cluster: {named} or later is needed"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Said, after, brought_along, judge_version, said};

    #[test]
    fn members_are_learned_of_an_etcd_that_was_brought_along() {
        let member = |name: &str, url: &str| json!({ "name": name, "clientURLs": [url] });
        let (first, second) = (member("engram-h1", "http://h1:1"), member("engram-h2", "h2:2"));
        let learner = json!({ "name": "engram-h3", "clientURLs": ["h3:3"], "isLearner": true });
        let added = json!({ "ID": "7", "peerURLs": ["http://h4:4"] });
        let told = json!({ "members": [first, added, second, learner] });
        assert_eq!(brought_along(&told), Some(vec!["http://h1:1".to_owned(), "h2:2".to_owned()]));
        let told = json!({ "members": [first, member("default", "http://localhost:2379")] });
        assert_eq!(brought_along(&told), None);
        assert_eq!(brought_along(&json!({})), None);
    }

    #[test]
    fn versions_that_lose_data_are_refused_by_name() {
        for good in ["3.4.22", "3.4.23", "3.5.6", "3.5.21", "3.6.0", "4.0.0", "3.6.0-rc.1"] {
            assert_eq!(judge_version(good), Ok(()), "{good}");
        }
        for (bad, named) in [
            ("3.4.0", "3.4.22"),
            ("3.4.21", "3.4.22"),
            ("3.5.1", "3.5.6"),
            ("3.5.5", "3.5.6"),
            ("3.3.25", "3.4.22"),
            ("2.3.8", "3.4.22"),
            ("", "3.4.22"),
            ("three", "3.4.22"),
        ] {
            let why = judge_version(bad).unwrap_err();
            assert!(why.contains(named) && why.contains(bad), "{why}");
        }
    }

    #[test]
    fn what_may_have_been_done_is_told_from_what_was_not() {
        let lease = br#"{"error":"etcdserver: requested lease not found","code":5,
            "message":"etcdserver: requested lease not found"}"#;
        assert!(matches!(said(404, lease), Said::Refused(why) if why.contains("lease")));
        let late = br#"{"error":"etcdserver: request timed out","code":14,"message":"late"}"#;
        assert!(matches!(said(503, late), Said::Unreachable(_)));
        assert!(matches!(said(502, b"<html>a proxy"), Said::Unreachable(_)));
        assert!(matches!(said(200, b"{}"), Said::Done(_)));
        let stream = br#"{"error":{"grpc_code":14,"code":14,"message":"closing"}}"#;
        assert!(matches!(said(200, stream), Said::Unreachable(_)));
    }

    #[test]
    fn a_prefix_ends_before_its_neighbour() {
        assert_eq!(after("/engram/c/map/"), "/engram/c/map0");
    }
}
