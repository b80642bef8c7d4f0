//! What a batch relies on, and what it says where that no longer holds.
//!
//! **Moves between realms.** A look at all realms finds which one an operation falls into; the list
//! is of that realm, and committed later. A move to it or from it meanwhile, which is nothing to
//! the batch, must not fail it. So it does not rely on the number of moves that `precondition` has
//! for other changes, but on those rows of its own realm that a move of what it has touched would
//! change:
//!
//! * a name that it took as free, gave, or went along: its row;
//! * an object, or a group, that it changes or deletes: its record, which goes where that moves
//!   away; and of a group that it deletes, the records of all that is in it;
//! * a group that it puts something into: that it is there, and *whether as a mirror*. A group that
//!   moves away leaves a mirror where others have something in it, and one that comes takes the
//!   mirror's place. No other guard would tell, and what is put would be seen by the wrong ones.
//!
//! An operation that gives a *group* another name or place relies on more: that nothing below it
//! has been published since. It relies on the number itself.
//!
//! Each operation still expects the number of its own look, so that both are of one moment; if it
//! is another, the operation alone looks again.

use crate::chunk_rows;
use crate::marks::ARRIVED;
use crate::overlay::Overlay;
use crate::overlay::layer::{Change, Guard};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{NameKey, split_name_key};
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_records::object::Record;

/// What a row's being there, or not, is as a guard.
pub(crate) fn presence(table: Table, row: Option<&[u8]>) -> Result<Guard<&'static [u8]>> {
    Ok(match row {
        None => Guard::Absent,
        Some(row) if matches!(table, Table::Groups) => {
            Guard::Group { mirror: Record::parse(row)?.flags.mirror }
        }
        Some(_) => Guard::Present,
    })
}

impl Overlay {
    /// Whether all that the list relies on is so in these rows, which others may have changed
    /// since; if not, `BusyError`, and the batch is to be run again.
    pub fn check_guards(&self, rows: &mut dyn Rows) -> Result<()> {
        if self.settings == Some(false) && rows.has_index_settings()? {
            return conflict(Table::IndexSettings, &[]);
        }
        if self.read_only == Some(false) && rows.has_read_only()? {
            return conflict(Table::ReadOnly, &[]);
        }
        for table in Table::ALL {
            for row in self.layers[table as usize].in_order() {
                let Some(guard) = row.guard else { continue };
                let now = rows.get(table, row.key)?;
                let holds = match guard {
                    Guard::Absent => now.is_none(),
                    Guard::Present | Guard::Group { .. } => {
                        presence(table, now.as_deref())? == guard
                    }
                    Guard::Equals(bytes) => now.as_deref() == Some(bytes),
                };
                if !holds {
                    return conflict(table, row.key);
                }
            }
        }
        Ok(())
    }

    /// A group that the list deletes must hold nothing that somebody has put there since, and an
    /// array no chunk.
    pub fn check_emptied(&self, rows: &mut dyn Rows, has_chunks: bool) -> Result<()> {
        for row in self.layers[Table::Groups as usize].in_order() {
            let Ok(gid) = <[u8; 8]>::try_from(row.key).map(u64::from_be_bytes) else { continue };
            if matches!(row.change, Some(Change::Remove)) {
                let first = rows.first_from(Table::Names, NameKey::new(gid, "").as_bytes())?;
                if let Some((name, _)) = first
                    && split_name_key(&name)?.0 == gid
                {
                    return conflict(Table::Names, &name);
                }
            }
        }
        if !has_chunks {
            return Ok(());
        }
        for row in self.layers[Table::Objects as usize].in_order() {
            let Ok(oid) = <[u8; 8]>::try_from(row.key).map(u64::from_be_bytes) else { continue };
            // An orphan's segments stay with it.
            let stays = || self.orphans.iter().any(|(orphan, _)| *orphan == oid);
            let goes = matches!(row.change, Some(Change::Remove)) && !stays();
            if goes && chunk_rows::any(rows, oid)? {
                return conflict(Table::Chunks, row.key);
            }
        }
        Ok(())
    }
}

/// The refusal of a batch that relied on this row.
pub fn conflict<T>(table: Table, key: &[u8]) -> Result<T> {
    let what = match (table, split_name_key(key)) {
        (Table::Names, Ok((_, name))) => format!("the name {name:?}"),
        (Table::Meta, _) if key == ARRIVED => "who sees some of the members".to_owned(),
        _ => format!("a row of `{}`", table.name()),
    };
    fail!(
        Busy,
        "the batch was not applied: somebody else has changed {what} since the batch looked at it; \
         run the batch again"
    )
}
