//! What a node server answers.
//!
//! ```text
//! GET    /                        what the node is: cluster, node, member, version
//! GET    /room                    the bytes of its pool: {"size": …, "used": …}
//! GET    /parts/UUID/N            a part's bytes, or a range of them                ?member=HEX
//! PUT    /parts/UUID/N            makes a part of the body   ?path= maker= begun= dtype= offsets=
//!                                                 counts= [checksum=] [filled=1] member=
//! PUT    /parts/UUID/N/seal       sums a part up, which nobody writes from then on      ?member=
//! DELETE /parts/UUID/N            gives back a part that its maker does not publish ?maker=HEX
//! POST   /rows                    rows of the map and of names, as etcd has them: {"keys": […]} or
//!                                                 {"prefix": "…"}
//! ```
//!
//! What is answered of subtrees stands in `tree_routes`, and of calls in `calls`. A user, whose
//! certificate says so, reads parts that are published, and changes nothing.
//!
//! A part that is there already is made anew by another maker where the first can never publish
//! it.
//!
//! A member says nothing once its lease may have ended: that is looked at when a request begins,
//! and again before its last byte. A request that names a member is for that member alone: another
//! life of the node answers 421.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use engram_base::checksum::RunningChecksum;
use engram_base::error::Kind;
use engram_parts::{Looked, Mark, NewPart, PartName, dtype};
use engram_protocol::coordinator::{Keys, LeaseId, Reply};
use engram_wire::{Content, FileRange, Handler, Method, Request, Response, Who};
use serde_json::json;

use crate::coordinator::{Asked, Shown, no_answer};
use crate::error::{Error, Result};
use crate::node::Shared;

/// What is received before it is written on.
const PIECE: usize = 256 << 10;
/// The longest question for rows.
const ROWS_MOST: u64 = 1 << 20;

/// Answers requests to one node pool.
pub(crate) struct Routes {
    shared: Arc<Shared>,
}

impl Handler for Routes {
    fn handle(&self, request: Request) -> Response {
        self.answer(request).unwrap_or_else(|error| {
            Response::new(status_of(&error), format!("{error}\n"))
                .with("Content-Type", "text/plain; charset=utf-8")
                .with("Engram-Error", error.class_name())
        })
    }
}

fn status_of(error: &Error) -> u16 {
    match error {
        Error::Fenced(_) => 503,
        Error::NodeAway(_) => 421,
        Error::Conflict(_) => 409,
        other => match other.kind() {
            Kind::NotFound => 404,
            Kind::Argument | Kind::InvalidName | Kind::Query => 400,
            Kind::Access => 403,
            Kind::PoolFull => 507,
            Kind::Exists => 409,
            Kind::Busy => 503,
            _ => 500,
        },
    }
}

impl Routes {
    pub(crate) fn new(shared: Arc<Shared>) -> Routes {
        Routes { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn answer(&self, mut request: Request) -> Result<Response> {
        let path = request.path.clone();
        let steps: Vec<&str> = path.split('/').skip(1).collect();
        match (request.method, steps.as_slice()) {
            (Method::Get | Method::Head, [""]) => Ok(self.describe()),
            (Method::Get | Method::Head, ["room"]) => self.room(),
            (Method::Get | Method::Head, ["parts", uuid, part]) => {
                self.part(&request, uuid, number(part)?)
            }
            (Method::Put, ["parts", uuid, part]) => self.make(request, uuid, number(part)?),
            (Method::Put, ["parts", uuid, part, "seal"]) => {
                self.seal(&request, uuid, number(part)?)
            }
            (Method::Delete, ["parts", uuid, part]) => {
                self.drop_part(&request, uuid, number(part)?)
            }
            (_, ["trees", tree @ ..]) => {
                let tree: Vec<String> = tree.iter().map(|step| (*step).to_owned()).collect();
                self.tree(request, &tree)
            }
            (Method::Post, ["query"]) => self.query(&mut request),
            (Method::Post, ["rows"]) => self.rows(&mut request),
            (Method::Get | Method::Post | Method::Delete, ["calls", number]) => {
                self.call(request, number)
            }
            (_, ["" | "room"] | ["parts", ..]) => Ok(Response::new(405, "this is not done here\n")),
            _ => Err(Error::NotFound(format!("a node server has nothing at {path:?}"))),
        }
    }

    fn room(&self) -> Result<Response> {
        let room = self.shared.parts.pool().room()?;
        let told = json!({"size": room.size, "used": room.used});
        Ok(Response::new(200, format!("{told}\n")).with("Content-Type", "application/json"))
    }

    fn describe(&self) -> Response {
        let told = json!({
            "cluster": self.shared.cluster,
            "node": self.shared.node,
            "member": self.shared.member().map(|member| format!("{member:x}")),
            "version": env!("CARGO_PKG_VERSION"),
        });
        Response::new(200, format!("{told}\n")).with("Content-Type", "application/json")
    }

    /// The member that is asked; an error where this node is not it, or may not answer now.
    pub(crate) fn asked(&self, request: &Request) -> Result<Option<LeaseId>> {
        let member = request.query("member").map(hex).transpose()?;
        if self.shared.answers(member) {
            return Ok(member);
        }
        match (self.shared.member(), member) {
            (Some(own), Some(member)) => Err(Error::NodeAway(format!(
                "this node is member {own:x} now, not {member:x}: look the part up again"
            ))),
            _ => Err(Error::Fenced(format!(
                "node {} is no member of {} for the moment: ask another holder, or later",
                self.shared.node, self.shared.cluster
            ))),
        }
    }

    /// Rows that anybody may see who is of the cluster.
    fn rows(&self, request: &mut Request) -> Result<Response> {
        let asked: Asked = serde_json::from_slice(&request.body.read_all(ROWS_MOST)?)
            .map_err(|error| Error::Argument(format!("the question cannot be read: {error}")))?;
        let keys = Keys::new(&self.shared.cluster);
        if !asked.is_below(&[keys.map(), keys.name("")]) {
            let why = "rows of the map and of names are shown, and no others";
            return Err(Error::Access(why.to_owned()));
        }
        let Reply::Rows { revision, rows } = self.shared.coordinator.answer(&asked.request())
        else {
            return Err(no_answer(&self.shared.coordinator));
        };
        let shown = serde_json::to_vec(&Shown::of(revision, rows)).expect("plain values");
        Ok(Response::new(200, shown).with("Content-Type", "application/json"))
    }

    /// Refuses a user what no name of the cluster has.
    fn check_shown(&self, request: &Request, name: &PartName, bytes: &Looked) -> Result<()> {
        let Some(Who::User(uid)) = request.peer.as_ref().map(|peer| &peer.who) else {
            return Ok(());
        };
        let mark: Option<Mark> = serde_json::from_slice(bytes.mark()).ok();
        if let Some(mark) = mark
            && self.shared.is_published(&mark.path, name)?
        {
            return Ok(());
        }
        let PartName { uuid, .. } = name;
        Err(Error::Access(format!("{uuid} is not published, and the certificate is of user {uid}")))
    }

    fn part(&self, request: &Request, uuid: &str, part: u32) -> Result<Response> {
        let member = self.asked(request)?;
        let name = PartName { uuid: uuid.to_owned(), part };
        let Some(bytes) = self.shared.parts.bytes(&name)? else {
            return Err(Error::NotFound(format!(
                "part {part} of {uuid} is not here: it was replaced or removed; look it up again"
            )));
        };
        self.check_shown(request, &name, &bytes)?;
        let content = match bytes.source() {
            Some((file, offset)) => Content::File(FileRange {
                file: Arc::new(OwnedFd::from(file)),
                offset,
                len: bytes.len() as u64,
                guard: Box::new(bytes),
            }),
            None => streamed(bytes),
        };
        let shared = Arc::clone(&self.shared);
        Ok(Response::of(200, content)
            .with("Content-Type", "application/octet-stream")
            .with("ETag", format!("\"{uuid}/{part}\""))
            .checked(move || shared.answers(member)))
    }

    /// Refuses whoever only reads.
    pub(crate) fn check_writer(request: &Request) -> Result<()> {
        match request.peer.as_ref().map(|peer| &peer.who) {
            Some(Who::User(uid)) => Err(Error::Access(format!(
                "the certificate of user {uid} reads what is published, and changes nothing"
            ))),
            Some(Who::Member(_)) | None => Ok(()),
        }
    }

    fn make(&self, mut request: Request, uuid: &str, part: u32) -> Result<Response> {
        Routes::check_writer(&request)?;
        let member = self.asked(&request)?;
        let given = |name: &str| {
            let missing = || Error::Argument(format!("?{name}= is missing"));
            request.query(name).ok_or_else(missing)
        };
        let checksum = request.query("checksum").map(hex).transpose()?;
        let (path, maker) = (given("path")?.to_owned(), hex(given("maker")?)?);
        let begun = given("begun")?;
        let begun = begun.parse().map_err(|_| {
            Error::Argument(format!("{begun:?} is no number of a maker's publication"))
        })?;
        let (offsets, counts) = (list(given("offsets")?)?, list(given("counts")?)?);
        if offsets.len() != counts.len() {
            let why = format!("{offsets:?} and {counts:?} are no box: they have unlike lengths");
            return Err(Error::Argument(why));
        }
        let dtype = given("dtype")?;
        let dtype =
            dtype::of_text(dtype).map_err(|_| Error::Argument(format!("{dtype:?} is no dtype")))?;
        let name = PartName { uuid: uuid.to_owned(), part };
        let mark = Mark { path, maker, begun, offsets, checksum };
        let new = NewPart { name, mark, dtype, counts };
        if request.query("filled").is_some() {
            let item = request.body.read_all(new.dtype.itemsize())?;
            self.shared.parts.fill(&new, &item)?;
            self.asked(&request)?;
            return Ok(Response::new(200, "{}\n").with("Content-Type", "application/json"));
        }
        let nbytes = new.nbytes()?;
        if request.body.announced().is_some_and(|len| len != nbytes) {
            let counts = &new.counts;
            let why = format!("a part of {counts:?} items has {nbytes} bytes; the body has others");
            return Err(Error::Argument(why));
        }
        let sum = self.receive(&new, &mut request)?;
        // It counts only if the member that was asked has it.
        self.asked(&request)?;
        let own = member.or_else(|| self.shared.member()).unwrap_or(0);
        let told = json!({ "checksum": sum, "member": format!("{own:x}") });
        Ok(Response::new(200, format!("{told}\n")).with("Content-Type", "application/json"))
    }

    /// Receives a part's bytes; where they are not those that were sent, it does not appear.
    fn receive(&self, new: &NewPart, request: &mut Request) -> Result<u64> {
        let broken =
            |error: std::io::Error| Error::NodeAway(format!("the body broke off: {error}"));
        let nbytes = new.nbytes()? as usize;
        self.shared.clear_of_dead(&new.name)?;
        let mut writer = self.shared.parts.begin(new)?;
        let mut sum = RunningChecksum::new();
        let mut piece = vec![0; PIECE.min(nbytes)];
        let mut at = 0;
        while at < nbytes {
            let most = piece.len().min(nbytes - at);
            let got = request.body.read(&mut piece[..most]).map_err(broken)?;
            if got == 0 {
                return Err(Error::Argument(format!("the body ends after {at} of {nbytes} bytes")));
            }
            sum.add(&piece[..got]);
            writer.write_at(at, &piece[..got]);
            at += got;
        }
        if new.mark.checksum.is_some_and(|expected| expected != sum.word()) {
            return Err(Error::Corrupt("the bytes that came are not those that were sent".into()));
        }
        writer.finish()?;
        Ok(sum.word())
    }

    fn seal(&self, request: &Request, uuid: &str, part: u32) -> Result<Response> {
        Routes::check_writer(request)?;
        self.asked(request)?;
        let sum = self.shared.parts.seal(&PartName { uuid: uuid.to_owned(), part })?;
        self.asked(request)?;
        let told = json!({ "checksum": sum });
        Ok(Response::new(200, format!("{told}\n")).with("Content-Type", "application/json"))
    }

    fn drop_part(&self, request: &Request, uuid: &str, part: u32) -> Result<Response> {
        Routes::check_writer(request)?;
        let maker = maker_of(request)?;
        self.shared.give_back(&PartName { uuid: uuid.to_owned(), part }, maker)?;
        Ok(Response::new(204, ""))
    }
}

/// Bytes that are in no file that the kernel sends from.
pub(crate) fn streamed(bytes: Looked) -> Content {
    let (len, mut at) = (bytes.len(), 0);
    let chunks = std::iter::from_fn(move || {
        if at >= len {
            return None;
        }
        let mut piece = vec![0; PIECE.min(len - at)];
        bytes.copy_out(at, &mut piece);
        at += piece.len();
        Some(Ok(piece))
    });
    Content::Stream { len: Some(len as u64), chunks: Box::new(chunks) }
}

/// Whose a request is that gives something back.
pub(crate) fn maker_of(request: &Request) -> Result<LeaseId> {
    let missing = || Error::Argument("?maker= is missing: whose it is".to_owned());
    hex(request.query("maker").ok_or_else(missing)?)
}

fn number(text: &str) -> Result<u32> {
    text.parse().map_err(|_| Error::Argument(format!("{text:?} is no number of a part")))
}

pub(crate) fn hex(text: &str) -> Result<u64> {
    u64::from_str_radix(text, 16)
        .map_err(|_| Error::Argument(format!("{text:?} is no number in hexadecimal digits")))
}

pub(crate) fn list(text: &str) -> Result<Vec<u64>> {
    let wrong = || Error::Argument(format!("{text:?} is no list of numbers such as 0,128"));
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(|number| number.parse().map_err(|_| wrong())).collect()
}
