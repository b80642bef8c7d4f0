//! What a change relies on that was seen in a look at several realms.
//!
//! A look finds the realm that a member is in, or is to be in; a commit of that realm changes it.
//! Between the two a move can take the member out of the realm, or bring something in that bears
//! the same name. Marks refuse changes of what is on its way (T0 to T3); what has gone leaves
//! nothing behind that could refuse anything. **So every move raises `arrived` of a realm in the
//! commit with which something comes (T2), and in the one with which something goes (T3); and who
//! changes a realm expects there, in the commit itself, the number that the look saw.** If it is
//! another, nothing is changed (`Error::moved`), and the look is taken again.
//!
//! Only the realm that is changed is asked. What moves between two others leaves the view of names
//! as it was, and this realm's part of it.
//!
//! Where the shared realm is the only one, nothing is looked at beforehand. Then nothing has gone
//! from it as long as the word in `scopes` is the one at which it was the only one: that is raised
//! before anything can go elsewhere, and it is looked at under the writer lock, without which
//! nothing goes.
//!
//! A batch relies on the number from its first change to its commit: it is among its guards.

use std::sync::Arc;

use crate::catalog::Table;
use crate::error::{Error, Result};
use crate::media::word::Word;
use crate::realm::Realm;
use crate::realm::space::meta_u64;
use crate::realm::together::ARRIVED;
use crate::rows::Rows;

/// What is expected of a realm.
#[derive(Clone, Debug)]
pub(crate) enum Expects {
    /// That so many moves have come or gone.
    Arrived(u64),
    /// That it is the only one still: the word, and the number at which it was.
    Alone(Arc<Word>, u64),
}

impl Expects {
    /// Refuses a change, the rows of which are these, if it relies on what no longer holds.
    pub(super) fn check(expects: Option<&Expects>, rows: &mut impl Rows) -> Result<()> {
        let holds = match expects {
            None => true,
            Some(Expects::Arrived(number)) => arrived_of(rows)? == *number,
            Some(Expects::Alone(word, number)) => {
                if rows.is_list() {
                    arrived_of(rows)?;
                }
                word.get() == *number
            }
        };
        if holds { Ok(()) } else { Err(Error::moved()) }
    }
}

/// How many moves have come to a realm, or gone from it.
pub(super) fn arrived_of(rows: &mut impl Rows) -> Result<u64> {
    meta_u64(rows.get(Table::Meta, ARRIVED)?.as_deref())
}

impl Realm {
    /// What its changes rely on.
    pub(super) fn expects(&self) -> Option<&Expects> {
        self.expects.as_ref()
    }

    /// Refuses a change, the rows of which are these, if what this handle relies on has changed.
    pub(crate) fn check_expected(&self, rows: &mut impl Rows) -> Result<()> {
        Expects::check(self.expects(), rows)
    }

    /// A handle of which every change relies on this.
    pub(crate) fn expecting(&self, expects: Expects) -> Realm {
        Realm { expects: Some(expects), ..self.clone() }
    }
}
