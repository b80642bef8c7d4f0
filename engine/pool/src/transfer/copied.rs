//! Moves in a copy: a move that was under way when a namespace was copied has ended there.
//!
//! The copies of a namespace's realms are of one moment. So what they say of a move between them
//! says how it ends, as it does for a process that comes after a death (`recover`), and nobody is
//! at it in the copy. Marks, moves and receipts do not go into it. A member that is in both realms
//! of a move, or has come and is published still, is taken out of one of them. Where the other
//! realm is not in the copy, the member stays where it is: it is nowhere else.

use std::sync::Arc;

use super::copy_in::remove_members;
use engram_base::error::Result;
use engram_base::id::{Member, id_key};
use engram_base::scope::Scope;
use engram_catalog::rows::Rows;
use engram_catalog::{Headroom, ReadTxn, Table};
use engram_ops::group::table_of;
use engram_ops::marks::{Going, Stage, Transfer, members_of};
use engram_realm::{Purpose, Setup, open, shut};
use engram_records::object::Record;
use engram_space::extent::{Floor, reclaim};

/// The members of moves that a realm's copy is not to have, by its snapshot and those of the other
/// realms of that moment; `other` gives these.
pub fn leaves_out<'t, 'e: 't>(
    here: &ReadTxn<'_>,
    other: impl Fn(Scope, u32) -> Option<&'t ReadTxn<'e>>,
) -> Result<Vec<Vec<Going>>> {
    let mut out = Vec::new();
    for transfer in Transfer::all(here)? {
        let Some(other) = other(transfer.other, transfer.uid) else { continue };
        let members = || members_of(&mut here.rows(), transfer.number);
        let received = other.rows().has(Table::Received, &id_key(transfer.number))?;
        let gone = match transfer.stage {
            Stage::Leaving | Stage::Ending => received,
            // Published still, or taken from there by another.
            Stage::Arrived => !received,
            Stage::Gone => false,
        };
        if gone {
            out.push(members()?);
        }
    }
    Ok(out)
}

/// Whether one of these members is there, for itself.
pub(super) fn any_there(txn: &ReadTxn<'_>, members: &[Going]) -> Result<bool> {
    for going in members {
        let (table, key) = table_of(going.member);
        let Some(row) = txn.get(table, &key)? else { continue };
        let stands_in =
            matches!(going.member, Member::Group(_)) && Record::parse(row)?.flags.mirror;
        if !stands_in {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes members out of a realm that nobody else knows yet.
pub fn take_out(setup: &Setup, moves: &[Vec<Going>]) -> Result<()> {
    let core = Arc::new(open(setup.clone(), Purpose::Use)?);
    let taken = (|| {
        let inside = core.enter()?;
        for members in moves {
            core.commit(&inside, Headroom::Normal, |rows| {
                remove_members(rows, members, setup.root())
            })?;
        }
        // Nobody looks: a freed extent is free.
        let floor = Floor { age: u64::MAX, ..Floor::default() };
        core.commit(&inside, Headroom::Relief, |rows| {
            reclaim(rows.txn(), &floor, None, usize::MAX).map(|_| ())
        })
    })();
    shut(&core);
    taken
}
