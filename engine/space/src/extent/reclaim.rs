//! Reclaim: when space that was freed or reserved is free again (protocol P2, the allocator's
//! side).
//!
//! `extents_pending` holds three kinds of rows: (1, lease, offset) for what a lease has reserved,
//! (2, transaction, offset) for what that transaction freed, and those of `vacant`. Only the writer
//! of a transaction touches them. An extent freed by transaction F is reusable iff
//!
//! 1. F is committed: it is, where its number is below that of the running transaction;
//! 2. every live lease's age is IDLE or at least F: no look-up runs on a snapshot that still shows
//!    the extent, and none is about to begin on one (PIN counts as zero);
//! 3. no live lease pins the extent, views the object that it was of, or, where that is gone, has
//!    it open.
//!
//! Where pins keep some pages of an extent, the rest of it is reusable: its row is cut.
//!
//! The reader stores age = PIN, fences, begins, finds the row, stores its pin, and only then age =
//! IDLE. The allocator fences, then reads each age, then the pins. If the reader's fence comes
//! first, the allocator sees PIN (or the pin that followed); if the allocator's comes first, the
//! reader's snapshot begins after F was committed, and does not show the extent. So an extent in
//! somebody's hands is never given away, and nobody waits. (`make model` tries it: see `lease`.)

use std::collections::HashSet;

use crate::extent::Ranges;
use crate::extent::allocator::{checked, insert_free, parse_len};
use crate::lease::{ObjectUse, Pin, UsedObject};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::Oid;
use engram_catalog::{ReadTxn, Table, WriteTxn};
use engram_records::extent::Extent;

/// What the live leases still look at, read after the fence, while holding the writer lock.
#[derive(Debug, Default)]
pub struct Floor {
    /// The least age; `u64::MAX` when all are idle.
    pub age: u64,
    /// The offsets of every pinned extent that is not of whole pages.
    pub pins: HashSet<u64>,
    /// The pages that are pinned.
    pub pages: Ranges,
    /// The objects that are open or viewed, as leases list them.
    pub objects: HashSet<UsedObject>,
}

/// What a floor says of a freed extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A view holds all of it: its own extent, and no other space.
    Viewed,
    /// A look-up may still find it; so many bytes of it are in no view.
    Waits(u64),
    /// Of these parts, which are all of it or what is in no view, nobody looks at any, and nobody
    /// can come to.
    Free(Vec<Extent>),
}

impl Floor {
    /// What is to become of an extent that the committed transaction `freed_by` freed, and that was
    /// of this.
    pub(crate) fn fate(&self, extent: Extent, of: FreedOf, freed_by: u64) -> Fate {
        if self.pins.contains(&extent.offset) || self.uses(of) {
            return Fate::Viewed;
        }
        match self.pages.outside(extent) {
            parts if parts.is_empty() => Fate::Viewed,
            parts if freed_by > self.age => Fate::Waits(parts.iter().map(|part| part.len).sum()),
            parts => Fate::Free(parts),
        }
    }
}

impl Floor {
    /// Adds what a lease keeps.
    pub(crate) fn keep(&mut self, pin: Pin) {
        match pin {
            Pin::Extent { offset, .. } => drop(self.pins.insert(offset)),
            Pin::Pages { pages, .. } => self.pages.add(pages),
            Pin::Object(word) => drop(self.objects.insert(word)),
        }
    }

    /// Adds what another floor keeps.
    pub fn join(&mut self, other: &Floor) {
        self.age = self.age.min(other.age);
        self.pins.extend(&other.pins);
        other.pages.joined().iter().for_each(|pages| self.pages.add(*pages));
        self.objects.extend(&other.objects);
    }

    /// How many bytes of an extent that the committed transaction `freed_by` freed wait for this.
    pub fn held(&self, row: &Pending, freed_by: u64) -> u64 {
        match self.fate(row.extent, row.of, freed_by) {
            Fate::Viewed | Fate::Waits(_) => row.extent.len,
            Fate::Free(parts) => row.extent.len - parts.iter().map(|part| part.len).sum::<u64>(),
        }
    }

    /// Whether some process has an object open.
    pub fn has_open(&self, oid: Oid) -> bool {
        self.objects.contains(&UsedObject::of(oid, ObjectUse::Open))
    }

    /// Whether some process uses what an extent was of, so that it may look at the extent.
    fn uses(&self, of: FreedOf) -> bool {
        let viewed = |oid| self.objects.contains(&UsedObject::of(oid, ObjectUse::View));
        !self.objects.is_empty()
            && match of {
                FreedOf::Nothing => false,
                FreedOf::Cut(oid) => viewed(oid),
                FreedOf::Gone(oid) => viewed(oid) || self.has_open(oid),
            }
    }

    /// Whether an object that a look-up could find until transaction `since` may be open, or come
    /// to be.
    pub fn may_open(&self, oid: Oid, since: u64) -> bool {
        since > self.age || self.has_open(oid)
    }
}

/// What a run of `reclaim` found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reclaimed {
    /// Bytes that became free.
    pub bytes: u64,
    /// Bytes that only wait for look-ups now running: asking again soon helps.
    pub waiting: u64,
    /// Where to go on: the run stopped at its bound.
    pub resume: Option<[u8; 17]>,
}

pub(super) const VACANT: u8 = 0;
/// The length of a freed extent's row.
const FREED_BYTES: usize = 17;
const RESERVED: u8 = 1;
const FREED: u8 = 2;

/// The key of a row in `extents_pending`.
pub(super) fn pending_key(kind: u8, by: u64, offset: u64) -> [u8; 17] {
    let mut key = [kind; 17];
    key[1..9].copy_from_slice(&by.to_be_bytes());
    key[9..].copy_from_slice(&offset.to_be_bytes());
    key
}

/// The holder of a pending extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentHolder {
    /// Reserved by this lease.
    Lease(u64),
    /// Freed by this transaction.
    Txn(u64),
}

/// An extent that is reserved or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// By whom.
    pub holder: ExtentHolder,
    /// The extent.
    pub extent: Extent,
    /// What a freed one was of.
    pub of: FreedOf,
}

/// What a freed extent was of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedOf {
    /// No object: it was reserved.
    Nothing,
    /// An object that is gone, or lies elsewhere.
    Gone(Oid),
    /// A file that is there still, and was cut.
    Cut(Oid),
}

fn parse_pending(key: &[u8], value: &[u8]) -> Result<Pending> {
    let Ok(key) = <[u8; 17]>::try_from(key) else {
        fail!(Corrupt, "a key of `extents_pending` has {} bytes", key.len())
    };
    let by = u64::from_be_bytes(key[1..9].try_into().expect("eight bytes"));
    let offset = u64::from_be_bytes(key[9..].try_into().expect("eight bytes"));
    let (len, of) = match key[0] {
        FREED => parse_freed(value)?,
        _ => (parse_len(value)?, FreedOf::Nothing),
    };
    let extent = checked(offset, len)?;
    match key[0] {
        RESERVED => Ok(Pending { holder: ExtentHolder::Lease(by), extent, of }),
        FREED => Ok(Pending { holder: ExtentHolder::Txn(by), extent, of }),
        kind => fail!(Corrupt, "a row of `extents_pending` has the unknown kind {kind}"),
    }
}

/// Every extent that is reserved or freed, with its holder, for `verify` and the statistics.
pub fn pending_rows(txn: &ReadTxn<'_>) -> Result<Vec<Pending>> {
    let mut found = Vec::new();
    let mut cursor = txn.seek(Table::ExtentsPending, &pending_key(RESERVED, 0, 0))?;
    while let Some((key, value)) = cursor.next()? {
        found.push(parse_pending(key, value)?);
    }
    Ok(found)
}

/// The length of a freed extent, and what it was of.
fn parse_freed(value: &[u8]) -> Result<(u64, FreedOf)> {
    let Ok(value) = <[u8; FREED_BYTES]>::try_from(value) else {
        fail!(Corrupt, "a freed extent's row has {} bytes, not {FREED_BYTES}", value.len())
    };
    let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("8 bytes"));
    let of = match (value[16], word(8)) {
        (0, 0) => FreedOf::Nothing,
        (1, oid) => FreedOf::Gone(oid),
        (2, oid) => FreedOf::Cut(oid),
        (how, oid) => fail!(Corrupt, "a freed extent was of {oid:#x} in the way {how}"),
    };
    Ok((word(0), of))
}

/// The row that keeps a reservation.
pub fn reserve_row(txn: &mut WriteTxn<'_>, lease: u64, extent: Extent) -> Result<()> {
    let key = pending_key(RESERVED, lease, extent.offset);
    txn.put(Table::ExtentsPending, &key, &extent.len.to_le_bytes())
}

/// Ends a reservation: the extent is somebody else's to account for.
pub fn end_reservation(txn: &mut WriteTxn<'_>, lease: u64, extent: Extent) -> Result<()> {
    if !txn.delete(Table::ExtentsPending, &pending_key(RESERVED, lease, extent.offset))? {
        fail!(
            Busy,
            "the reservation of {extent:?} was taken back: its lease {lease:016x} has ended"
        );
    }
    Ok(())
}

/// The row of an extent that this transaction frees.
pub fn freed_row(txn: &mut WriteTxn<'_>, extent: Extent, of: FreedOf) -> Result<()> {
    freed_row_by(txn, txn.id(), extent, of)
}

/// The same of one that the transaction `freed_by` freed.
fn freed_row_by(txn: &mut WriteTxn<'_>, freed_by: u64, extent: Extent, of: FreedOf) -> Result<()> {
    let key = pending_key(FREED, freed_by, extent.offset);
    let (how, oid) = match of {
        FreedOf::Nothing => (0, 0),
        FreedOf::Gone(oid) => (1, oid),
        FreedOf::Cut(oid) => (2, oid),
    };
    let mut row = [how; FREED_BYTES];
    row[..8].copy_from_slice(&extent.len.to_le_bytes());
    row[8..16].copy_from_slice(&oid.to_le_bytes());
    txn.put(Table::ExtentsPending, &key, &row)
}

/// Whether `lease` has anything reserved.
pub fn has_reserved(txn: &ReadTxn<'_>, lease: u64) -> Result<bool> {
    let first = txn.seek(Table::ExtentsPending, &pending_key(RESERVED, lease, 0))?.next()?;
    let first = first.map(|(key, value)| parse_pending(key, value)).transpose()?;
    Ok(first.is_some_and(|row| row.holder == ExtentHolder::Lease(lease)))
}

/// The leases that have reserved something.
pub fn reserving(txn: &ReadTxn<'_>) -> Result<Vec<u64>> {
    let mut leases = Vec::new();
    let mut from = 0;
    loop {
        let row = txn.seek(Table::ExtentsPending, &pending_key(RESERVED, from, 0))?.next()?;
        match row.map(|(key, value)| parse_pending(key, value)).transpose()? {
            Some(Pending { holder: ExtentHolder::Lease(lease), .. }) => leases.push(lease),
            _ => return Ok(leases),
        }
        match leases.last().and_then(|lease| lease.checked_add(1)) {
            Some(next) => from = next,
            None => return Ok(leases),
        }
    }
}

/// Turns what `lease` has reserved into freed extents (a child may still pin them).
/// Returns the bytes taken back.
pub fn take_back(txn: &mut WriteTxn<'_>, lease: u64) -> Result<u64> {
    let mut bytes = 0;
    loop {
        let from = pending_key(RESERVED, lease, 0);
        let row = txn.seek(Table::ExtentsPending, &from)?.next()?.map(|(k, v)| parse_pending(k, v));
        match row.transpose()? {
            Some(Pending { holder: ExtentHolder::Lease(by), extent, .. }) if by == lease => {
                end_reservation(txn, lease, extent)?;
                step!("dead.ended");
                freed_row(txn, extent, FreedOf::Nothing)?;
                bytes += extent.len;
            }
            _ => return Ok(bytes),
        }
    }
}

/// Frees what the floor allows, at most `rows_max` rows from `resume` (or from the oldest) on.
pub fn reclaim(
    txn: &mut WriteTxn<'_>,
    floor: &Floor,
    resume: Option<[u8; 17]>,
    rows_max: usize,
) -> Result<Reclaimed> {
    let mut outcome = Reclaimed::default();
    let mut from = resume.unwrap_or_else(|| pending_key(FREED, 0, 0));
    for _ in 0..rows_max {
        let row = txn.seek(Table::ExtentsPending, &from)?.next()?.map(|(k, v)| parse_pending(k, v));
        let Some(Pending { holder: ExtentHolder::Txn(freed_by), extent, of }) = row.transpose()?
        else {
            return Ok(outcome);
        };
        let key = pending_key(FREED, freed_by, extent.offset);
        if freed_by >= txn.id() {
            return Ok(outcome);
        }
        match floor.fate(extent, of, freed_by) {
            Fate::Viewed => {}
            Fate::Waits(bytes) => outcome.waiting += bytes,
            Fate::Free(parts) => {
                txn.delete(Table::ExtentsPending, &key)?;
                step!("reclaim.taken");
                let free: Ranges = parts.iter().copied().collect();
                for kept in free.outside(extent) {
                    freed_row_by(txn, freed_by, kept, of)?;
                }
                for part in parts {
                    insert_free(txn, part)?;
                    outcome.bytes += part.len;
                }
            }
        }
        from = pending_key(FREED, freed_by, extent.end());
    }
    outcome.resume = Some(from);
    Ok(outcome)
}
