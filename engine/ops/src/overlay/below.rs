//! What lies below a batch's list: the catalog, looked at no more often than it takes.
//!
//! Every operation of a batch sees the newest snapshot, as it would outside one. It is begun when
//! the operation first asks for a row that the list does not know.
//!
//! Most such rows are names about to be made, to see that they are free. A free name lies in a
//! *gap*, between two names that follow each other, and every name in a gap is free. So the gap is
//! remembered, with the snapshot that showed it; while that is still the newest (nobody has
//! committed since), a name in the gap is free without a look. It is guarded like any other.

use engram_base::error::Result;
use engram_catalog::{Catalog, ReadTxn, Table};

/// So many gaps in a row that nothing fell into, and no more are looked for: names come in no
/// order, between too many others.
const IDLE_MAX: u8 = 4;

/// The newest snapshot, or the one that the caller already has.
pub(crate) enum Below<'a> {
    Catalog(&'a Catalog),
    Begun(ReadTxn<'a>),
    Given(&'a ReadTxn<'a>),
}

impl<'a> Below<'a> {
    /// The snapshot, begun at the first call.
    pub(crate) fn txn(&mut self) -> Result<&ReadTxn<'a>> {
        if let Below::Catalog(catalog) = self {
            *self = Below::Begun(catalog.read()?);
        }
        match self {
            Below::Begun(txn) => Ok(txn),
            Below::Given(txn) => Ok(txn),
            Below::Catalog(_) => unreachable!("it has just been begun"),
        }
    }

    /// The id of the snapshot: begun now, it would have this one at least.
    fn id(&self) -> Result<u64> {
        match self {
            Below::Begun(txn) => Ok(txn.id()),
            Below::Given(txn) => Ok(txn.id()),
            Below::Catalog(catalog) => catalog.last_id(),
        }
    }
}

/// Two keys of `names` that followed each other in one snapshot; `None` where the table ends.
struct Gap {
    snapshot: u64,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

/// The last gap, and whether gaps are worth looking for.
#[derive(Default)]
pub(crate) struct Gaps {
    last: Option<Gap>,
    idle: u8,
}

impl Gaps {
    /// If this name is known to be free: the snapshot that shows it, which is the newest.
    pub(crate) fn show_free(&mut self, key: &[u8], below: &Below<'_>) -> Result<Option<u64>> {
        let Some(gap) = &self.last else { return Ok(None) };
        let within = gap.before.as_deref().is_none_or(|before| before < key)
            && gap.after.as_deref().is_none_or(|after| key < after);
        if !within || below.id()? != gap.snapshot {
            return Ok(None);
        }
        self.idle = 0;
        Ok(Some(gap.snapshot))
    }

    /// Remembers the gap around a name that this snapshot does not have.
    pub(crate) fn note(&mut self, key: &[u8], txn: &ReadTxn<'_>) -> Result<()> {
        if self.idle < IDLE_MAX {
            self.idle += 1;
            let (before, after) = txn.around(Table::Names, key)?;
            let (before, after) = (before.map(<[u8]>::to_vec), after.map(<[u8]>::to_vec));
            self.last = Some(Gap { snapshot: txn.id(), before, after });
        }
        Ok(())
    }
}
