//! Which nodes there are, and how each stands.
//!
//! *Protocol*. Each node has one row. Whatever changes a row touches the epoch's row in the same
//! transaction: so the epoch's revision says whether any node came or went, whatever the number of
//! nodes, and two that join at once do not hinder each other. A row stays when its node goes: it
//! says then since when the node is away, or that it is lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::coordinator::{Keys, LeaseId, Revision, Row};
use crate::manifest::Holder;
use crate::{Rule, Rules};

/// How a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its member answers, as far as anybody knows.
    Serving,
    /// It was struck, or has left: it may come back with all it had.
    Away,
    /// It does not come back, and what lay on it alone is lost.
    Lost,
}

/// A node as the map has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its member, or the last one.
    pub member: LeaseId,
    /// How it stands.
    pub state: State,
    /// Since when, in seconds since 1970 by the clock of whoever wrote it: for people.
    pub since: u64,
    /// Whether the member has entered its parts into the manifests again.
    pub entered: bool,
    /// What it is.
    #[serde(flatten)]
    pub identity: Identity,
}

/// What a node is, as it says itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The node's uuid, which lies in its pool.
    pub node: String,
    /// The pool's uuid.
    pub pool: String,
    /// The host's name.
    pub host: String,
    /// Where the pool lies there.
    pub path: String,
    /// The host's boot: memory does not outlive it.
    pub boot: String,
    /// Where its node server answers: `address:port`.
    pub address: String,
    /// Its share of names, beside those of other nodes.
    pub weight: f64,
    /// The format of its pool.
    pub format: u32,
    /// The version of Engram that serves it.
    pub version: String,
}

/// All nodes, at one epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map {
    /// The epoch: the revision of the last change of any node.
    pub epoch: Revision,
    nodes: BTreeMap<String, (Entry, Revision)>,
}

/// How the holder of a part stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing<'m> {
    /// It answers at this node's address.
    Serving(&'m Entry),
    /// Its node is here again, and has yet to enter what it has.
    Returning(&'m Entry),
    /// Its node is away.
    Away(&'m Entry),
    /// What it held is lost.
    Lost,
}

impl Map {
    /// The map that these rows are, or which of them cannot be read.
    pub fn of(keys: &Keys, rows: &[Row]) -> Result<Map, String> {
        let mut map = Map::default();
        for row in rows {
            map.put(keys, row)?;
        }
        Ok(map)
    }

    /// Takes a row that has changed.
    pub fn put(&mut self, keys: &Keys, row: &Row) -> Result<(), String> {
        if let Some(node) = keys.node_of(&row.key) {
            let entry = serde_json::from_slice(&row.value)
                .map_err(|error| format!("{} of the map cannot be read: {error}", row.key))?;
            self.nodes.insert(node.to_owned(), (entry, row.modified));
        } else if row.key == keys.epoch() {
            self.epoch = row.modified;
        }
        Ok(())
    }

    /// How a node stands, and at which revision that was written.
    pub fn node(&self, node: &str) -> Option<(&Entry, Revision)> {
        self.nodes.get(node).map(|(entry, revision)| (entry, *revision))
    }

    /// All nodes, in the order of their uuids.
    pub fn nodes(&self) -> impl Iterator<Item = &Entry> {
        self.nodes.values().map(|(entry, _)| entry)
    }

    /// The nodes that answer.
    pub fn serving(&self) -> impl Iterator<Item = &Entry> {
        self.nodes().filter(|entry| entry.state == State::Serving)
    }

    /// How a holder stands. A holder is a node in one life; another life of the node is another.
    pub fn standing(&self, holder: &Holder, rules: Rules) -> Standing<'_> {
        let Some((entry, _)) = self.nodes.get(&holder.node) else { return Standing::Lost };
        let same = entry.member == holder.member || !rules.has(Rule::Incarnations);
        match entry.state {
            State::Serving if same => Standing::Serving(entry),
            State::Serving if entry.entered => Standing::Lost,
            State::Serving => Standing::Returning(entry),
            State::Away => Standing::Away(entry),
            State::Lost => Standing::Lost,
        }
    }

    /// Whether a holder is the member that its node is now.
    pub fn is_member(&self, holder: &Holder, rules: Rules) -> bool {
        matches!(self.standing(holder, rules), Standing::Serving(_))
    }
}
