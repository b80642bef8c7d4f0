//! What is asked of the coordinator, in which words, and where its keys lie.
//!
//! The coordinator is a store of rows that is linearizable: each row has the revision at which it
//! was last changed, and one transaction compares and changes several. Rows that belong to a lease
//! go when it ends. Etcd is one; the simulation has another.
//!
//! ```text
//! /engram/<cluster>/map/epoch          touched by each change of the map; its revision: the epoch
//!                   map/nodes/<node>   how a node stands
//!                   members/<member>   there while the member's lease runs
//!                   makers/<maker>     there while the lease of a process that publishes runs
//!                   names/<path>       the manifest of a name
//!                   removed            touched by each removal of a name
//!                   stopped            touched to stop all nodes
//!                   stopped/<node>     touched to stop one
//! ```

use std::time::Duration;

/// A lease of the coordinator, which is the id of a member or maker, too. None is given twice.
pub type LeaseId = u64;

/// A revision of the coordinator: every change of any row makes a new one.
pub type Revision = u64;

/// The most keys that one request may name, and the most guards and changes of a transaction.
pub const KEYS_MOST: usize = 128;

/// A row as the coordinator has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision of its last change.
    pub modified: Revision,
}

/// What must hold for a transaction to change anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The row was last changed at this revision; 0: there is none.
    Unchanged {
        /// The row's key.
        key: String,
        /// The revision at which it was seen to be changed.
        modified: Revision,
    },
    /// The row is there.
    Present {
        /// The row's key.
        key: String,
    },
}

/// What a transaction does to one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes it.
    Put {
        /// The row's key.
        key: String,
        /// Its new value.
        value: Vec<u8>,
        /// The lease with which it goes.
        lease: Option<LeaseId>,
    },
    /// Removes it.
    Delete {
        /// The row's key.
        key: String,
    },
}

/// Changes of several rows, at once or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What must hold, all of it.
    pub guards: Vec<Guard>,
    /// What is done then.
    pub changes: Vec<Change>,
    /// The rows that are told where a guard did not hold.
    pub otherwise: Vec<String>,
}

/// A question to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A new lease.
    Grant {
        /// How long it runs without being renewed.
        ttl: Duration,
    },
    /// The lease begins anew.
    Renew {
        /// Which.
        lease: LeaseId,
    },
    /// The lease ends, and the rows that belong to it go.
    Revoke {
        /// Which.
        lease: LeaseId,
    },
    /// These rows, as they are at one revision.
    Get {
        /// Their keys.
        keys: Vec<String>,
    },
    /// All rows whose keys begin so, as they are at one revision.
    List {
        /// How their keys begin.
        prefix: String,
    },
    /// A transaction.
    Commit(Transaction),
}

/// What the coordinator says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The lease that was asked for.
    Granted(LeaseId),
    /// The lease began anew, and runs so long if it is not renewed; none where it has ended.
    Renewed(Option<Duration>),
    /// The lease has ended.
    Revoked,
    /// The rows that were asked for, those that are there.
    Rows {
        /// The revision at which they are so.
        revision: Revision,
        /// The rows.
        rows: Vec<Row>,
    },
    /// The transaction's end.
    Committed {
        /// Whether the guards held, and all was done.
        done: bool,
        /// The revision at which the guards were looked at.
        revision: Revision,
        /// Where they did not hold: the rows that were to be told, those that are there.
        rows: Vec<Row>,
    },
    /// Nothing was done, for this reason: a lease that has ended, above all.
    Refused(String),
    /// Nobody knows whether it was done: no answer came.
    Unreachable,
}

/// The keys of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    root: String,
}

impl Keys {
    /// The keys of the cluster of this name.
    pub fn new(cluster: &str) -> Keys {
        Keys { root: format!("/engram/{cluster}/") }
    }

    /// How the keys of the map begin.
    pub fn map(&self) -> String {
        format!("{}map/", self.root)
    }

    /// The row whose revision is the epoch of the map.
    pub fn epoch(&self) -> String {
        format!("{}map/epoch", self.root)
    }

    /// How a node stands.
    pub fn node(&self, node: &str) -> String {
        format!("{}map/nodes/{node}", self.root)
    }

    /// The row that is there while a member's lease runs.
    pub fn member(&self, member: LeaseId) -> String {
        format!("{}members/{member:x}", self.root)
    }

    /// How the rows of members begin.
    pub fn members(&self) -> String {
        format!("{}members/", self.root)
    }

    /// The row that is there while a maker's lease runs.
    pub fn maker(&self, maker: LeaseId) -> String {
        format!("{}makers/{maker:x}", self.root)
    }

    /// The manifest of a name.
    pub fn name(&self, path: &str) -> String {
        format!("{}names/{path}", self.root)
    }

    /// The row whose revision is that of the last removal of any name.
    pub fn removed(&self) -> String {
        format!("{}removed", self.root)
    }

    /// The row that is touched to stop all nodes.
    pub fn stopped(&self) -> String {
        format!("{}stopped", self.root)
    }

    /// The row that is touched to stop one node.
    pub fn stopped_node(&self, node: &str) -> String {
        format!("{}stopped/{node}", self.root)
    }

    /// The node whose row this is.
    pub(crate) fn node_of<'k>(&self, key: &'k str) -> Option<&'k str> {
        key.strip_prefix(self.root.as_str())?.strip_prefix("map/nodes/")
    }
}
