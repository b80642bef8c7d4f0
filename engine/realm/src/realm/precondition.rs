//! What a change relies on that was seen in a look at several realms.
//!
//! A look finds the realm that a member is in, or is to be in; a commit of that realm changes it.
//! Between the two a move can take the member out of the realm, or bring something in that bears
//! the same name. Marks refuse changes of a member that is on its way (T0 to T3); a member that has
//! gone leaves nothing behind that could refuse anything. **So every move raises `arrived` of a
//! realm in the commit with which something comes (T2), and in the one with which something goes
//! (T3); and a change of a realm expects there, in the commit itself, the number that the look
//! saw.** If it is another, nothing is changed (`Error::moved`), and the look is taken again.
//!
//! Only the realm that is changed is asked. A move between two others leaves the view of names as
//! it was, and this realm's part of it.
//!
//! Where the shared realm is the only one, nothing is looked at beforehand. Then nothing has gone
//! from it as long as the shared counter in `scopes` is the one at which it was the only one: that
//! is raised before anything can go elsewhere, and it is looked at under the writer lock, without
//! which nothing goes.
//!
//! An operation of a batch relies on the number of its own look when it goes into the list. From
//! then on the batch relies on the rows that it has touched (`batch::guards`): any other move is
//! nothing to it.

use std::sync::Arc;

use engram_base::error::{Error, Result};
use engram_catalog::Table;
use engram_catalog::meta::meta_u64;
use engram_catalog::rows::Rows;
use engram_media::shared_counter::SharedCounter;
use engram_ops::marks::ARRIVED;

/// The precondition of a change: what must hold in the realm when it commits.
#[derive(Clone, Debug)]
pub enum Precondition {
    /// That so many moves have come or gone.
    Arrived(u64),
    /// That it is the only one still: the shared counter, and the number at which it was.
    Alone(Arc<SharedCounter>, u64),
}

impl Precondition {
    /// Refuses a change, the rows of which are these, if it relies on what no longer holds.
    pub(crate) fn check(precondition: Option<&Precondition>, rows: &mut dyn Rows) -> Result<()> {
        let holds = match precondition {
            None => true,
            Some(Precondition::Arrived(number)) => arrived_of(rows)? == *number,
            Some(Precondition::Alone(counter, number)) => counter.get() == *number,
        };
        if holds { Ok(()) } else { Err(Error::moved()) }
    }

    /// Whether the realm was to be the only one, and is not any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Precondition::Alone(counter, number) if counter.get() != *number)
    }
}

/// How many moves have come to a realm, or gone from it; in a batch, by now.
pub(super) fn arrived_of(rows: &mut dyn Rows) -> Result<u64> {
    meta_u64(rows.glance(Table::Meta, ARRIVED)?.as_deref())
}
