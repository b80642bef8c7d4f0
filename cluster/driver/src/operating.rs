//! A cluster as its operator has it: who answers, who is to end, who is given up.

use std::collections::HashSet;
use std::time::Duration;

use engram_protocol::Rules;
use engram_protocol::coordinator::{Reply, Request};
use engram_protocol::map::{Entry, State};
use engram_protocol::stop::Stop;
use engram_protocol::strike::{Strike, Verdict};
use engram_wire::Ask;

use crate::clock::wall;
use crate::cluster::Cluster;
use crate::error::{Error, Result};

impl Cluster {
    /// Asks the processes of a node to end; without one, those of all nodes. They do when they look
    /// next.
    pub fn ask_to_stop(&self, node: Option<&str>) -> Result<()> {
        match self.coordinator.answer(&Stop::ask(&self.keys, node, wall())) {
            Reply::Committed { .. } => Ok(()),
            Reply::Refused(why) => Err(Error::Coordinator(format!("etcd says: {why}"))),
            _ => Err(self.no_coordinator()),
        }
    }

    /// The nodes that serve. Members whose leases have ended are struck.
    pub fn serving(&self) -> Result<Vec<Entry>> {
        // Leases first: a member whose lease is gone by then is gone for good.
        let reply = self.coordinator.answer(&Request::List { prefix: self.keys.members() });
        let Reply::Rows { rows, .. } = reply else { return Err(self.no_coordinator()) };
        let leases: HashSet<String> = rows.into_iter().map(|row| row.key).collect();
        let runs = |entry: &&Entry| leases.contains(&self.keys.member(entry.member));
        let map = self.read_map()?;
        let mut all_run = true;
        for entry in map.serving().filter(|entry| !runs(entry)) {
            self.suspect(&entry.identity.node, entry.member);
            all_run = false;
        }
        let map = if all_run { map } else { self.read_map()? };
        Ok(map.serving().cloned().collect())
    }

    /// The names of which a node holds something that no other node has which answers. Members
    /// whose leases have ended are struck.
    pub fn names_only_at(&self, node: &str) -> Result<Vec<String>> {
        self.serving()?;
        let map = self.map();
        let mut all = self.list("")?;
        all.retain(|(_, manifest)| manifest.is_only_at(node, &map));
        Ok(all.into_iter().map(|(name, _)| name).collect())
    }

    /// Gives a node up for good: what it alone holds is lost. One that serves is refused.
    pub fn give_up(&self, node: &str) -> Result<()> {
        let map = self.read_map()?;
        let Some((entry, _)) = map.node(node) else {
            return Err(Error::NotFound(format!("there is no node {node} in the cluster")));
        };
        if entry.state == State::Lost {
            return Ok(());
        }
        let strike = Strike::new(&self.keys, node, entry.member, wall(), Rules::ALL).for_good();
        match self.judge(strike) {
            Verdict::Struck => Ok(()),
            Verdict::Alive => Err(Error::Argument(format!(
                "node {node} on {} serves, so nothing of it is lost: stop its process first, and \
                 wait until its lease has ended",
                entry.identity.host
            ))),
            Verdict::Unknown => Err(self.no_coordinator()),
        }
    }

    /// What the node server at an address says that it is, as JSON.
    pub fn describe(&self, address: &str, within: Duration) -> Result<String> {
        let ask = Ask { deadline: within, connect: within, ..Ask::default() };
        let answer = self.wire.get(address, "/", &ask)?.accepted()?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }
}
