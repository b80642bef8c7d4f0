//! What a batch relies on, and what it says where that no longer holds.
//!
//! **Moves between realms.** A look at all realms finds which one an operation falls into; the list
//! is of that realm, and committed later. What has moved to it or from it meanwhile, and is nothing
//! to the batch, must not fail it. So it does not rely on the number of moves that `expects` has
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
//! Who gives a *group* another name or place relies on more: that nothing below it has been
//! published since. It relies on the number itself.
//!
//! Each operation still expects the number of its own look, so that both are of one moment; if it
//! is another, the operation alone looks again.

use std::sync::Arc;

use super::layer::{Change, Guard};
use super::{Layered, Overlay, with};
use crate::catalog::{Catalog, Table};
use crate::chunked;
use crate::error::{Kind, Result};
use crate::fail;
use crate::id::{NameKey, split_name_key};
use crate::object::Record;
use crate::realm::{ARRIVED, Changes, Core, Expects};
use crate::rows::{Rows, Snapshot};

/// Runs an operation on this thread's list, if it runs a batch, and if what it relies on holds.
pub(crate) fn change<T>(
    core: &Arc<Core>,
    catalog: &Catalog,
    expects: Option<&Expects>,
    operation: impl FnOnce(&mut Layered<'_>) -> Result<T>,
) -> Result<Option<T>> {
    with(core, |overlay| {
        let mut rows = overlay.on(catalog);
        Expects::check(expects, &mut rows)?;
        let done = operation(&mut rows);
        drop(rows);
        match done {
            // The realm was the only one when the operation began: what it has read since may have
            // gone to another. It happens when a namespace gets its first other realm.
            Ok(_) if expects.is_some_and(Expects::is_over) => {
                overlay.torn = true;
                conflict(Table::Meta, ARRIVED)
            }
            // What was read earlier and what is read now may not fit: no damage, but a conflict.
            Err(error) if error.kind() == Kind::Corrupt => {
                overlay.torn = true;
                overlay.check_guards(&mut Snapshot(&catalog.read()?))?;
                Err(error)
            }
            done => done,
        }
    })
}

/// Has a batch rely on that nothing moves to its realm or from it, until it is committed.
pub(crate) fn rely_on_all_moves(rows: &mut impl Rows) -> Result<()> {
    if rows.is_list() {
        rows.get(Table::Meta, ARRIVED)?;
    }
    Ok(())
}

/// What a row's being there, or not, is as a guard.
pub(super) fn presence(table: Table, row: Option<&[u8]>) -> Result<Guard<&'static [u8]>> {
    Ok(match row {
        None => Guard::Absent,
        Some(row) if matches!(table, Table::Groups) => {
            Guard::Group { mirror: Record::parse(row)?.flags.mirror }
        }
        Some(_) => Guard::Present,
    })
}

impl Overlay {
    pub(super) fn check_guards(&self, rows: &mut impl Rows) -> Result<()> {
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
    pub(super) fn check_emptied(&self, rows: &mut Changes<'_>) -> Result<()> {
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
        if rows.txn().entries(Table::Chunks)? == 0 {
            return Ok(());
        }
        for row in self.layers[Table::Objects as usize].in_order() {
            let Ok(oid) = <[u8; 8]>::try_from(row.key).map(u64::from_be_bytes) else { continue };
            if matches!(row.change, Some(Change::Remove)) && chunked::rows::any(rows, oid)? {
                return conflict(Table::Chunks, row.key);
            }
        }
        Ok(())
    }
}

fn conflict<T>(table: Table, key: &[u8]) -> Result<T> {
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
