//! What a node server answers of subtrees.
//!
//! ```text
//! PUT    /trees/UUID                   prepares one             ?path= maker= begun= member=
//! POST   /trees/UUID                   moves it to its name, once its manifest is there
//! DELETE /trees/UUID                   gives back one that its maker does not publish   ?maker=
//! GET    /trees/UUID/objects/PATH      head, then the value if it is short
//! GET    /trees/UUID/objects/PATH?value         the value, or a range of its bytes
//! GET    /trees/UUID/objects/PATH?offsets=&counts=[&of=]   a box of it
//! PUT    /trees/UUID/objects/PATH      makes an object of head and value   [?new: none is there]
//! PUT    /trees/UUID/objects/PATH?offsets=&counts=[&of=]   writes a box of it in place
//! POST   /trees/UUID/objects/PATH      sets the attributes of a head   [?drop=KEY removes one]
//! DELETE /trees/UUID/objects/PATH      removes an object, or a group with all that is in it
//! GET    /trees/UUID/groups/PATH       heads of members         ?after= limit=
//! PUT    /trees/UUID/groups/PATH       makes a group
//! POST   /query                        what a query finds in subtrees; the body is JSON
//! ```
//!
//! Each names the member that is asked, by `?member=`. A head is sent with its length before it, in
//! four bytes, little-endian; so is everything of a list or of a query's hits.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use engram_base::error::{Error as StoreError, Kind, Result as StoreResult};
use engram_parts::head::Head;
use engram_parts::pool::{BoxOf, Listed, New, Place};
use engram_parts::{Looked, Mark};
use engram_wire::{Content, FileRange, Method, Request, Response, Who};
use serde::Deserialize;

use crate::error::{Error, Result};
use crate::routes::{Routes, hex, list, maker_of, streamed};

/// A value of up to so many bytes comes with its head.
const SHORT: usize = 64 << 10;
/// The longest head.
const HEAD_MOST: usize = 16 << 20;
/// The largest box that is read or written at once.
pub(crate) const BOX_MOST: u64 = 64 << 20;
/// The longest question.
const QUESTION_MOST: u64 = 1 << 20;
/// Members that are listed at once.
pub(crate) const LISTED_MOST: usize = 10_000;
/// What is received before it is written on.
const PIECE: usize = 256 << 10;

/// Appends bytes with their length before them.
pub(crate) fn push_framed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Takes bytes with their length before them from the front.
pub(crate) fn take_framed<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (taken, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *bytes = rest;
    Some(taken)
}

/// Members or hits, framed one after another.
fn framed(all: &[Listed]) -> Response {
    let mut body = Vec::new();
    for Listed { name, head, more } in all {
        push_framed(&mut body, name.as_bytes());
        push_framed(&mut body, head);
        push_framed(&mut body, more);
    }
    Response::new(200, body).with("Content-Type", "application/octet-stream")
}

/// A question to a node: what a query finds in some subtrees.
#[derive(Debug, Deserialize)]
struct Question {
    /// The query, with its order and limit.
    text: String,
    /// The uuids of the subtrees.
    trees: Vec<String>,
    /// Whether relative paths in it begin at the one subtree.
    #[serde(default)]
    is_from_tree: bool,
}

/// What belongs to others than the owner is seen by these alone.
fn may_see(request: &Request, head: &Head) -> Result<()> {
    let Some(Who::User(uid)) = request.peer.as_ref().map(|peer| &peer.who) else { return Ok(()) };
    if head.is_published() {
        return Ok(());
    }
    Err(Error::Access(format!("this is not published, and the certificate is of user {uid}")))
}

fn is_of_user(request: &Request) -> bool {
    matches!(request.peer.as_ref().map(|peer| &peer.who), Some(Who::User(_)))
}

/// Where something of a subtree lies.
struct Spot {
    group: u64,
    path: String,
}

impl Spot {
    fn place(&self) -> Place<'_> {
        Place { group: self.group, path: &self.path }
    }

    /// What was asked of one object alone: it is another one now, or none.
    fn replaced(&self) -> Error {
        let path = &self.path;
        Error::Conflict(format!("{path:?} was replaced or removed: look it up again"))
    }

    /// What the pool says of a box, where it is of one object alone.
    fn same(&self, cut: &BoxOf<'_>, said: StoreResult<()>) -> Result<()> {
        match said {
            Err(error) if cut.of.is_some() && error.kind() == Kind::NotFound => {
                Err(self.replaced())
            }
            said => Ok(said?),
        }
    }
}

impl Routes {
    pub(crate) fn tree(&self, mut request: Request, steps: &[String]) -> Result<Response> {
        let member = self.asked(&request)?;
        let [uuid, rest @ ..] = steps else {
            return Err(Error::NotFound("a subtree is asked for by its uuid".to_owned()));
        };
        let shared = Arc::clone(self.shared());
        let answer = match rest {
            [] => self.whole_tree(&request, uuid),
            [kind, path @ ..] if kind == "objects" || kind == "groups" => {
                let group = shared.trees.group(uuid)?.ok_or_else(|| {
                    Error::NotFound(format!(
                        "subtree {uuid} is not here: it was removed, or lies elsewhere; look it up \
                         again"
                    ))
                })?;
                // A path that begins with a slash begins at the pool's root.
                if path.len() > 1 && path.iter().any(String::is_empty) {
                    let path = path.join("/");
                    return Err(Error::Argument(format!("{path:?} is no path: a step is empty")));
                }
                let spot = Spot { group, path: path.join("/") };
                if kind == "objects" {
                    self.object(&mut request, &spot)
                } else {
                    self.group(&request, &spot)
                }
            }
            _ => Err(Error::NotFound(format!("a subtree has nothing at {rest:?}"))),
        };
        Ok(answer?.checked(move || shared.answers(member)))
    }

    fn whole_tree(&self, request: &Request, uuid: &str) -> Result<Response> {
        Routes::check_writer(request)?;
        let trees = &self.shared().trees;
        match request.method {
            Method::Put => {
                let path = request.query("path").unwrap_or_default().to_owned();
                let maker = hex(request.query("maker").unwrap_or_default())?;
                if path.is_empty() {
                    return Err(Error::Argument("?path= is missing".to_owned()));
                }
                let begun = request.query("begun").and_then(|begun| begun.parse().ok());
                let begun =
                    begun.ok_or_else(|| Error::Argument("?begun= is missing".to_owned()))?;
                let mark = Mark { path, maker, begun, offsets: Vec::new(), checksum: None };
                trees.prepare(uuid, &mark)?;
                Ok(Response::new(204, ""))
            }
            Method::Post => {
                trees.settle(uuid)?;
                Ok(Response::new(204, ""))
            }
            Method::Delete => {
                let maker = maker_of(request)?;
                let sign = engram_parts::PartName { uuid: uuid.to_owned(), part: 0 };
                self.shared().give_back(&sign, maker)?;
                Ok(Response::new(204, ""))
            }
            Method::Get | Method::Head => Err(Error::Argument(
                "a subtree is asked for its members at /trees/UUID/groups/".to_owned(),
            )),
        }
    }

    fn object(&self, request: &mut Request, spot: &Spot) -> Result<Response> {
        let pool = self.shared().parts.pool();
        let of = request.query("of").map(hex).transpose()?;
        let cut = match (request.query("offsets"), request.query("counts")) {
            (Some(offsets), Some(counts)) => Some((list(offsets)?, list(counts)?)),
            _ => None,
        };
        if !matches!(request.method, Method::Get | Method::Head) {
            Routes::check_writer(request)?;
        }
        match (request.method, cut) {
            (Method::Get | Method::Head, Some((offsets, counts))) => {
                let cut = BoxOf { offsets: &offsets, counts: &counts, of };
                self.read_box(request, spot, &cut)
            }
            (Method::Get | Method::Head, None) => self.read(request, spot),
            (Method::Put, Some((offsets, counts))) => {
                let data = body_of(request, BOX_MOST)?;
                let cut = BoxOf { offsets: &offsets, counts: &counts, of };
                spot.same(&cut, pool.store(spot.place(), cut, &data))?;
                Ok(Response::new(204, ""))
            }
            (Method::Put, None) => self.write(request, spot),
            (Method::Post, _) => {
                match request.query("drop") {
                    Some(key) => pool.drop_attr(spot.place(), key)?,
                    None => pool.set_attrs(spot.place(), &body_of(request, HEAD_MOST as u64)?)?,
                }
                Ok(Response::new(204, ""))
            }
            (Method::Delete, _) => {
                if spot.path.is_empty() {
                    let why = "a subtree as a whole is removed by its name in the cluster";
                    return Err(Error::Argument(why.to_owned()));
                }
                if pool.look(spot.place())?.is_none() {
                    return Err(none_there(&spot.path));
                }
                pool.free(spot.place())?;
                Ok(Response::new(204, ""))
            }
        }
    }

    fn look(&self, request: &Request, spot: &Spot) -> Result<(Looked, Head)> {
        let found = self.shared().parts.pool().look(spot.place())?;
        let found = found.ok_or_else(|| none_there(&spot.path))?;
        let head = found.head()?;
        may_see(request, &head)?;
        Ok((found, head))
    }

    fn read(&self, request: &Request, spot: &Spot) -> Result<Response> {
        let (found, head) = self.look(request, spot)?;
        let told = head.told.unwrap_or_default();
        let tag = format!("\"{:x}/{:x}\"", told.id, told.generation);
        if request.query("value").is_none() {
            let mut body = Vec::new();
            push_framed(&mut body, found.head_bytes());
            if found.has_bytes() && found.len() <= SHORT {
                let begin = body.len();
                body.resize(begin + found.len(), 0);
                found.copy_out(0, &mut body[begin..]);
            }
            return Ok(Response::new(200, body).with("ETag", tag));
        }
        if !found.has_bytes() {
            let why = format!("{:?} lies in pieces: ask for boxes of it", spot.path);
            return Err(Error::Argument(why));
        }
        let content = match found.source() {
            Some((file, offset)) => Content::File(FileRange {
                file: Arc::new(OwnedFd::from(file)),
                offset,
                len: found.len() as u64,
                guard: Box::new(found),
            }),
            None => streamed(found),
        };
        Ok(Response::of(200, content).with("ETag", tag))
    }

    fn read_box(&self, request: &Request, spot: &Spot, cut: &BoxOf<'_>) -> Result<Response> {
        let (_, head) = self.look(request, spot)?;
        if cut.of.is_some_and(|of| head.told.is_none_or(|told| told.id != of)) {
            return Err(spot.replaced());
        }
        let asked = Head { shape: cut.counts.to_vec(), ..head };
        let nbytes = asked.nbytes()?;
        if nbytes > BOX_MOST {
            let why = format!("a box of {nbytes} bytes is asked for; at most {BOX_MOST} at once");
            return Err(Error::Argument(why));
        }
        let mut out = vec![0; nbytes as usize];
        spot.same(cut, self.shared().parts.pool().load(spot.place(), *cut, &mut out))?;
        Ok(Response::new(200, out))
    }

    fn write(&self, request: &mut Request, spot: &Spot) -> Result<Response> {
        let overwrite = request.query("new").is_none();
        let announced = request.body.announced();
        let mut len = [0; 4];
        request.body.read_exact(&mut len).map_err(|error| broken(&error))?;
        let len = u32::from_le_bytes(len) as usize;
        if len > HEAD_MOST {
            return Err(Error::Argument(format!("a head of {len} bytes is too long")));
        }
        let mut head = vec![0; len];
        request.body.read_exact(&mut head).map_err(|error| broken(&error))?;
        let nbytes =
            announced.and_then(|all| all.checked_sub(4 + len as u64)).ok_or_else(|| {
                Error::Argument("Content-Length is missing, or below the head's".to_owned())
            })?;
        let told = Head::decode(&head)?;
        if told.class == engram_parts::head::Class::Array && told.nbytes()? != nbytes {
            let why = format!("an array of shape {:?} has not {nbytes} bytes", told.shape);
            return Err(Error::Argument(why));
        }
        let new = New { head: &head, mark: &[], nbytes, overwrite };
        let mut writer = self.shared().parts.pool().begin(spot.place(), &new)?;
        let (mut piece, mut at) = (vec![0; PIECE.min(nbytes as usize)], 0);
        while at < nbytes as usize {
            let most = piece.len().min(nbytes as usize - at);
            request.body.read_exact(&mut piece[..most]).map_err(|error| broken(&error))?;
            writer.write_at(at, &piece[..most]);
            at += most;
        }
        writer.finish()?;
        Ok(Response::new(204, ""))
    }

    fn group(&self, request: &Request, spot: &Spot) -> Result<Response> {
        let pool = self.shared().parts.pool();
        match request.method {
            Method::Get | Method::Head => {
                let after = request.query("after").unwrap_or_default();
                let limit = request.query("limit").and_then(|limit| limit.parse().ok());
                let limit = limit.unwrap_or(LISTED_MOST).min(LISTED_MOST);
                let mut after = after.to_owned();
                let mut all = Vec::new();
                // A page may have nothing that a user may see, and is not the last one for that.
                loop {
                    let mut page = pool.list(spot.place(), &after, limit)?;
                    let is_last = page.len() < limit;
                    after = page.last().map(|each| each.name.clone()).unwrap_or_default();
                    if is_of_user(request) {
                        let told = |each: &Listed| Head::decode(&each.head);
                        page.retain(|each| told(each).is_ok_and(|head| head.is_published()));
                    }
                    all.append(&mut page);
                    if is_last || all.len() >= limit {
                        break;
                    }
                }
                all.truncate(limit);
                Ok(framed(&all))
            }
            Method::Put => {
                Routes::check_writer(request)?;
                pool.make_group(spot.place())?;
                Ok(Response::new(204, ""))
            }
            Method::Post | Method::Delete => {
                let why = "a group is changed and removed at /trees/UUID/objects/PATH";
                Err(Error::Argument(why.to_owned()))
            }
        }
    }

    /// What a query finds.
    pub(crate) fn query(&self, request: &mut Request) -> Result<Response> {
        let member = self.asked(request)?;
        let body = body_of(request, QUESTION_MOST)?;
        let question: Question = serde_json::from_slice(&body)
            .map_err(|error| Error::Argument(format!("the question cannot be read: {error}")))?;
        let trees = &self.shared().trees;
        let mut groups = Vec::with_capacity(question.trees.len());
        for uuid in &question.trees {
            let group = trees.group(uuid)?.ok_or_else(|| {
                Error::NotFound(format!("subtree {uuid} is not here: look it up again"))
            })?;
            // Paths are those of the cluster where it stands at its name.
            trees.settle(uuid)?;
            groups.push(group);
        }
        let from = question.is_from_tree && groups.len() == 1;
        let pool = self.shared().parts.pool();
        let hits = pool.query(&question.text, &groups, from, is_of_user(request))?;
        let shared = Arc::clone(self.shared());
        Ok(framed(&hits).checked(move || shared.answers(member)))
    }
}

fn none_there(path: &str) -> Error {
    Error::Store(StoreError::new(Kind::NotFound, format!("there is no {path:?} in the subtree")))
}

fn broken(error: &std::io::Error) -> Error {
    Error::NodeAway(format!("the body broke off: {error}"))
}

fn body_of(request: &mut Request, most: u64) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    request.body.by_ref().take(most + 1).read_to_end(&mut data).map_err(|error| broken(&error))?;
    if data.len() as u64 > most {
        return Err(Error::Argument(format!("the body has more than {most} bytes")));
    }
    Ok(data)
}
