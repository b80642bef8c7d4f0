//! Subtrees as users have them: objects at the node that a name below is at home at.
//!
//! Whoever has a subtree's manifest asks no coordinator: the home of a name is computed, and asked.
//! A node that is not the member that the manifest names, or has the subtree no more, says so; then
//! the caller looks the name up again. What lies on this host's own node is reached in its pool,
//! and not by these.

use engram_parts::pool::{BoxOf, Listed};
use engram_protocol::Rules;
use engram_protocol::coordinator::LeaseId;
use engram_protocol::manifest::{Content, Holder, Manifest};
use engram_protocol::map::Standing;
use engram_protocol::placement::Placement;
use engram_wire::{Error as WireError, Method, Pull, target};
use serde_json::json;

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::tree_routes::{push_framed, take_framed};

/// A subtree, as its manifest has it.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Its name.
    pub path: String,
    /// The uuid of its manifest.
    pub uuid: String,
    /// Its holders.
    pub holders: Vec<Holder>,
    /// Where names below are at home; none where all is at one holder.
    placement: Option<Placement>,
}

impl Tree {
    /// The subtree that a manifest is; an error where it is an array.
    pub fn of(path: &str, manifest: &Manifest) -> Result<Tree> {
        let nodes = manifest.holders.iter().map(|holder| holder.node.as_str());
        let placement = match &manifest.content {
            Content::Node => None,
            Content::Hash { weights } => Some(Placement::new(nodes.zip(weights.iter().copied()))),
            Content::Array(_) => {
                return Err(Error::Argument(format!("{path:?} is an array, and no subtree")));
            }
        };
        let (uuid, holders) = (manifest.uuid.clone(), manifest.holders.clone());
        Ok(Tree { path: path.to_owned(), uuid, holders, placement })
    }

    /// The holder at which what lies below is at home: its first name decides.
    pub fn home(&self, below: &str) -> &Holder {
        let first = below.split('/').next().unwrap_or_default();
        let place = self.placement.as_ref().and_then(|placement| placement.home(first));
        &self.holders[place.unwrap_or(0)]
    }

    fn target(&self, kind: &str, below: &str, member: LeaseId, more: &str) -> String {
        let path = target::encode_path(below);
        format!("/trees/{}/{kind}/{path}?member={member:x}{more}", self.uuid)
    }
}

/// An object that was looked at.
pub struct Seen {
    /// The bytes of its head.
    pub head: Vec<u8>,
    /// Its value, if it is short and in one piece.
    pub value: Option<Vec<u8>>,
}

fn query_box(cut: &BoxOf<'_>) -> String {
    let text = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let of = cut.of.map(|of| format!("&of={of:x}")).unwrap_or_default();
    format!("&offsets={}&counts={}{of}", text(cut.offsets), text(cut.counts))
}

fn odd() -> Error {
    Error::Corrupt("what a node has answered of a subtree cannot be read".to_owned())
}

fn listed(body: &[u8]) -> Result<Vec<Listed>> {
    let (mut rest, mut all) = (body, Vec::new());
    while !rest.is_empty() {
        let mut next = || take_framed(&mut rest).ok_or_else(odd);
        let name = String::from_utf8(next()?.to_vec()).map_err(|_| odd())?;
        all.push(Listed { name, head: next()?.to_vec(), more: next()?.to_vec() });
    }
    Ok(all)
}

impl Cluster {
    /// Has a holder make an empty subtree, which nobody finds before its manifest is there.
    pub fn prepare_tree(
        &self,
        tree: &Tree,
        holder: &Holder,
        maker: LeaseId,
        begun: u64,
    ) -> Result<()> {
        let path = target::encode_query(&tree.path);
        let member = holder.member;
        let target = format!(
            "/trees/{}?member={member:x}&maker={maker:x}&begun={begun}&path={path}",
            tree.uuid
        );
        self.ask_holder(holder, Method::Put, &target, &[]).map(drop)
    }

    /// Has a holder move a subtree to its name, where the manifest is there.
    pub fn settle_tree(&self, tree: &Tree, holder: &Holder) -> Result<()> {
        let target = format!("/trees/{}?member={:x}", tree.uuid, holder.member);
        self.ask_holder(holder, Method::Post, &target, &[]).map(drop)
    }

    /// Gives back a subtree that was prepared, and is not published.
    pub fn drop_tree(&self, tree: &Tree, holder: &Holder, maker: LeaseId) -> Result<()> {
        let member = holder.member;
        let target = format!("/trees/{}?member={member:x}&maker={maker:x}", tree.uuid);
        self.ask_holder(holder, Method::Delete, &target, &[]).map(drop)
    }

    /// An object below a subtree, or a group, by its head; none where nothing has the name.
    pub fn look_below(&self, tree: &Tree, below: &str) -> Result<Option<Seen>> {
        let home = tree.home(below);
        let target = tree.target("objects", below, home.member, "");
        let answer = match self.ask_holder(home, Method::Get, &target, &[]) {
            // The subtree itself may be the one that is not there.
            Err(Error::NotFound(text)) if !text.contains("look it up again") => return Ok(None),
            answer => answer?,
        };
        let mut rest = answer.body.as_slice();
        let head = take_framed(&mut rest).ok_or_else(odd)?.to_vec();
        let told = engram_parts::head::Head::decode(&head)?.told.unwrap_or_default();
        let is_whole = told.is_contiguous && rest.len() as u64 == told.nbytes;
        Ok(Some(Seen { head, value: is_whole.then(|| rest.to_vec()) }))
    }

    /// Pulls an object's value into memory of its size. `tag` says which object, in which state.
    pub fn pull_below(
        &self,
        tree: &Tree,
        below: &str,
        tag: Option<String>,
        out: &mut [u8],
    ) -> Result<()> {
        let home = tree.home(below);
        let map = self.map();
        let Standing::Serving(entry) = map.standing(home, Rules::ALL) else {
            return Err(Cluster::away(&map, std::slice::from_ref(home), &format!("{below:?}")));
        };
        let target = tree.target("objects", below, home.member, "&value=");
        let deadline = self.patience(out.len());
        let how = Pull { etag: tag, deadline, confirm: true, ..Pull::default() };
        let go_on = &mut |_| std::ops::ControlFlow::Continue(());
        match self.wire.pull(&[&entry.identity.address], &target, out, &how, go_on) {
            Ok(_) => Ok(()),
            Err(error) => {
                if error.is_of_the_way() {
                    self.suspect(&home.node, home.member);
                }
                Err(match error {
                    WireError::Changed(why) => Error::Conflict(format!(
                        "{below:?} was replaced while it was read: look it up again ({why})"
                    )),
                    other => other.into(),
                })
            }
        }
    }

    /// A box of an object's value, or a range of a blob's bytes. Where the box is of one object
    /// alone, and another has the name by now, that is a conflict.
    pub fn load_below(&self, tree: &Tree, below: &str, cut: &BoxOf<'_>) -> Result<Vec<u8>> {
        let home = tree.home(below);
        let more = query_box(cut);
        let target = tree.target("objects", below, home.member, &more);
        Ok(self.ask_holder(home, Method::Get, &target, &[])?.body)
    }

    /// Writes a box of an object's value in place.
    pub fn store_below(
        &self,
        tree: &Tree,
        below: &str,
        cut: &BoxOf<'_>,
        data: &[u8],
    ) -> Result<()> {
        let home = tree.home(below);
        let more = query_box(cut);
        let target = tree.target("objects", below, home.member, &more);
        self.ask_holder(home, Method::Put, &target, data).map(drop)
    }

    /// Makes an object; one that is there is replaced, or with `is_new` an error.
    pub fn put_below(
        &self,
        tree: &Tree,
        below: &str,
        head: &[u8],
        data: &[u8],
        is_new: bool,
    ) -> Result<()> {
        let home = tree.home(below);
        let more = if is_new { "&new=" } else { "" };
        let target = tree.target("objects", below, home.member, more);
        let mut body = Vec::with_capacity(4 + head.len() + data.len());
        push_framed(&mut body, head);
        body.extend_from_slice(data);
        self.ask_holder(home, Method::Put, &target, &body).map(drop)
    }

    /// Sets attributes: those of a head.
    pub fn set_attrs_below(&self, tree: &Tree, below: &str, head: &[u8]) -> Result<()> {
        let home = tree.home(below);
        let target = tree.target("objects", below, home.member, "");
        self.ask_holder(home, Method::Post, &target, head).map(drop)
    }

    /// Removes an attribute.
    pub fn drop_attr_below(&self, tree: &Tree, below: &str, key: &str) -> Result<()> {
        let home = tree.home(below);
        let more = format!("&drop={}", target::encode_query(key));
        let target = tree.target("objects", below, home.member, &more);
        self.ask_holder(home, Method::Post, &target, &[]).map(drop)
    }

    /// Removes an object, or a group with all that is in it.
    pub fn remove_below(&self, tree: &Tree, below: &str) -> Result<()> {
        let home = tree.home(below);
        let target = tree.target("objects", below, home.member, "");
        self.ask_holder(home, Method::Delete, &target, &[]).map(drop)
    }

    /// Makes a group.
    pub fn group_below(&self, tree: &Tree, below: &str) -> Result<()> {
        let home = tree.home(below);
        let target = tree.target("groups", below, home.member, "");
        self.ask_holder(home, Method::Put, &target, &[]).map(drop)
    }

    /// Up to so many members that a holder has of a group, after a name.
    pub fn list_below(
        &self,
        tree: &Tree,
        holder: &Holder,
        below: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Listed>> {
        let more = format!("&after={}&limit={limit}", target::encode_query(after));
        let target = tree.target("groups", below, holder.member, &more);
        listed(&self.ask_holder(holder, Method::Get, &target, &[])?.body)
    }

    /// What a query finds in subtrees that a holder has, in its order.
    pub fn query_holder(
        &self,
        holder: &Holder,
        text: &str,
        trees: &[String],
        is_from_tree: bool,
    ) -> Result<Vec<Listed>> {
        let question = json!({ "text": text, "trees": trees, "is_from_tree": is_from_tree });
        let target = format!("/query?member={:x}", holder.member);
        let body = question.to_string();
        listed(&self.ask_holder(holder, Method::Post, &target, body.as_bytes())?.body)
    }
}
