//! How the processes of all nodes, or of one, learn that they are to end.
//!
//! *Protocol*. Whoever stops a cluster writes one row, and each process that serves looks at it
//! when it looks at the map. A process ends if that row was changed after the process began to take
//! part: so a cluster that is started anew is not stopped by what stopped it before, and a process
//! that waited for the one before it to end does not take its place. The one before it leaves word
//! of that on their host: the coordinator may have ended by then.

use crate::coordinator::{Change, Keys, Request, Revision, Row, Transaction};

/// One process's part in a node, and whether it is to end.
#[derive(Clone, Debug)]
pub struct Stop {
    keys: Keys,
    /// The revision of the coordinator at which the process began to take part.
    began: Revision,
}

impl Stop {
    /// A process that takes part since this revision.
    pub fn new(keys: &Keys, began: Revision) -> Stop {
        Stop { keys: keys.clone(), began }
    }

    /// The rows that a process of this node looks at.
    pub fn rows(&self, node: &str) -> [String; 2] {
        [self.keys.stopped(), self.keys.stopped_node(node)]
    }

    /// When a process of this node was asked to end, by rows that were read.
    pub fn asked(&self, node: &str, rows: &[Row]) -> Option<Revision> {
        let asks = self.rows(node);
        let asked = rows.iter().filter(|row| asks.contains(&row.key)).map(|row| row.modified);
        asked.max().filter(|asked| self.is_since(*asked))
    }

    /// Whether this was asked after the process began to take part.
    pub fn is_since(&self, asked: Revision) -> bool {
        asked > self.began
    }

    /// Asks the processes of a node to end; without one, those of all nodes. `wall` is the time for
    /// people, in seconds since 1970.
    pub fn ask(keys: &Keys, node: Option<&str>, wall: u64) -> Request {
        let key = node.map_or_else(|| keys.stopped(), |node| keys.stopped_node(node));
        let value = wall.to_string().into_bytes();
        let changes = vec![Change::Put { key, value, lease: None }];
        Request::Commit(Transaction { changes, ..Transaction::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::Stop;
    use crate::coordinator::{Change, Keys, Request, Row};

    /// The row that this asks for, if it is changed at a revision.
    fn written(ask: Request, modified: u64) -> Row {
        let Request::Commit(done) = ask else { panic!("{ask:?}") };
        assert!(done.guards.is_empty());
        let [Change::Put { key, value, lease: None }] = &done.changes[..] else {
            panic!("{done:?}")
        };
        Row { key: key.clone(), value: value.clone(), modified }
    }

    #[test]
    fn a_process_ends_for_what_was_asked_after_it_began() {
        let keys = Keys::new("c");
        let stop = Stop::new(&keys, 10);
        let all = |modified| [written(Stop::ask(&keys, None, 5), modified)];
        assert_eq!(stop.asked("n1", &[]), None);
        assert_eq!(stop.asked("n1", &all(9)), None);
        assert_eq!(stop.asked("n1", &all(10)), None);
        assert_eq!(stop.asked("n1", &all(11)), Some(11));
        assert!(stop.is_since(11) && !stop.is_since(10));
    }

    #[test]
    fn one_node_is_asked_and_no_other() {
        let keys = Keys::new("c");
        let stop = Stop::new(&keys, 10);
        let row = written(Stop::ask(&keys, Some("n1"), 5), 11);
        assert!(stop.rows("n1").contains(&row.key));
        assert_eq!(stop.asked("n1", std::slice::from_ref(&row)), Some(11));
        assert_eq!(stop.asked("n2", &[row]), None);
        let other = Row { key: keys.node("n1"), value: Vec::new(), modified: 12 };
        assert_eq!(stop.asked("n1", &[other]), None);
    }
}
