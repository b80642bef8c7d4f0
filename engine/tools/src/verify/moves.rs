//! Moves between realms: marks and moves agree, and every marked member is there.

use std::collections::{HashMap, HashSet};

use super::{RecordFacts, Walk};
use engram_base::error::Result;
use engram_base::id::Member;
use engram_catalog::{ReadTxn, Table};
use engram_ops::marks::{Going, Transfer};

impl Walk<'_> {
    /// Every mark belongs to a move, and stands at a member.
    pub(super) fn moves(
        &mut self,
        txn: &ReadTxn<'_>,
        groups: &HashMap<u64, RecordFacts>,
        objects: &HashMap<u64, RecordFacts>,
    ) -> Result<()> {
        let moves: HashSet<u64> = match Transfer::all(txn) {
            Ok(moves) => moves.into_iter().map(|transfer| transfer.number).collect(),
            Err(error) => {
                self.problem(error);
                return Ok(());
            }
        };
        let mut cursor = txn.seek(Table::Leaving, &[])?;
        while let Some((key, row)) = cursor.next()? {
            match Going::parse(key, row) {
                Err(error) => self.problem(error),
                Ok((number, going)) => {
                    if !moves.contains(&number) {
                        let id = going.member.id();
                        self.problem(format!(
                            "{id:#x} is marked by the unknown move {number:016x}"
                        ));
                    }
                    let there = match going.member {
                        Member::Group(gid) => groups.contains_key(&gid),
                        Member::Object(oid) => objects.contains_key(&oid),
                    };
                    if !there {
                        self.problem(format!("{:?} is on its way, and not there", going.member));
                    }
                }
            }
        }
        Ok(())
    }
}
