//! The gate: what an operation is inside of while it touches the catalog, the lease or the arena.
//!
//! **Entering.** Every operation enters: it holds the state for reading while it touches the
//! catalog, the lease or the arena's mappings. Opening, closing and forking hold it for writing,
//! so they and the operations exclude each other, and a child never inherits a lock of ours that
//! somebody held, nor a transaction that somebody ran. No user code runs inside, and copying of
//! bulk data happens outside: a fork waits for short things only.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::realm::snapshot::SnapshotHandle;
use engram_base::error::Result;
use engram_base::id::Oid;
use engram_catalog::{Catalog, ReadTxn};
use engram_records::extent::Extent;
use engram_space::extent::Arena;
use engram_space::lease::{Children, Hold, Lease, ObjectUse, Spare, ViewHold};

/// What a fork, an open or a close replaces.
pub struct State {
    /// `None` in a child that has not used the realm yet, and once shut.
    pub catalog: Option<Catalog>,
    /// `None` once shut, and in the rare child for which no lease could be made.
    pub lease: Option<Lease>,
    /// Leases of parents that could make none for this child. Only their owners write them; open
    /// here, they keep what this process has inherited.
    pub inherited: Vec<Lease>,
    /// The lease file for the next fork.
    pub spare: Option<Spare>,
    /// The leases that forks have handed out.
    pub children: Children,
    /// Whether the last user has left.
    pub shut: bool,
}

impl State {
    /// What an opening begins with.
    pub(super) fn opened(catalog: Catalog, lease: Option<Lease>, spare: Option<Spare>) -> Self {
        State {
            catalog: Some(catalog),
            lease,
            inherited: Vec::new(),
            spare,
            children: Children::default(),
            shut: false,
        }
    }
}

/// The state behind its lock.
pub(crate) struct Gate(RwLock<State>);

impl Gate {
    /// Makes the gate of a state that an opening has brought up.
    pub(crate) fn new(state: State) -> Self {
        Gate(RwLock::new(state))
    }

    /// Holds the state as an operation does, whatever it is.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the state alone: for an open, a close, a fork.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the last user has left.
    pub(crate) fn is_shut(&self) -> bool {
        self.read().shut
    }

    /// Whether this process has its catalog open.
    pub(crate) fn is_up(&self) -> bool {
        self.read().catalog.is_some()
    }

    /// The ids of this process's leases.
    pub(crate) fn leases(&self) -> Vec<u64> {
        let state = self.read();
        state.lease.iter().chain(&state.inherited).map(Lease::id).collect()
    }

    /// Gives up a hold on an object that was open.
    pub(crate) fn close_object(&self, oid: Oid, hold: Hold) {
        if let Some(lease) = &self.read().lease {
            lease.leave_object(oid, ObjectUse::Open, hold);
        }
    }

    /// Gives up a hold.
    pub(crate) fn unpin(&self, extent: Extent, hold: Hold) {
        if let Some(lease) = &self.read().lease {
            lease.unpin(extent, hold);
        }
    }

    /// Gives up what a view of a file kept.
    pub(crate) fn leave_shown(&self, oid: Oid, shown: &ViewHold) {
        if let Some(lease) = &self.read().lease {
            lease.leave_shown(oid, shown);
        }
    }
}

/// The state, held for reading, with a catalog and a lease in it.
pub struct Inside<'a> {
    pub(super) state: RwLockReadGuard<'a, State>,
    pub(super) arena: &'a Arena,
}

impl Inside<'_> {
    /// The catalog.
    pub fn catalog(&self) -> &Catalog {
        self.state.catalog.as_ref().expect("`enter` has seen to it")
    }

    /// This process's lease.
    ///
    /// # Panics
    ///
    /// In a published realm, which has none: what asks for it begins with a refusal there.
    pub fn lease(&self) -> &Lease {
        self.state.lease.as_ref().expect("`enter` has seen to it")
    }

    /// The state itself.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// All leases that keep what this process views: its own, and those of parents.
    pub fn own_leases(&self) -> impl Iterator<Item = &Lease> + Clone {
        self.state.lease.iter().chain(&self.state.inherited)
    }

    /// The arena.
    pub fn arena(&self) -> &Arena {
        self.arena
    }

    /// Begins a read transaction that may look at rows, but not go after extents.
    pub fn read(&self) -> Result<ReadTxn<'_>> {
        self.catalog().read()
    }

    /// Begins a look-up (P2) that may pin what it finds.
    pub fn look(&self) -> Result<LookUp<'_>> {
        let begin = || {
            let txn = self.catalog().read()?;
            let id = txn.id();
            Ok((txn, id))
        };
        let lease = self.state.lease.as_ref();
        let (txn, age) = lease.map_or_else(begin, |lease| lease.look(begin))?;
        Ok(LookUp { lease, age, txn: Some(txn) })
    }

    /// The same at a snapshot, if there is one.
    pub(crate) fn read_at(&self, at: Option<&SnapshotHandle>) -> Result<ReadTxn<'_>> {
        match at {
            Some(at) => at.read(self),
            None => self.read(),
        }
    }

    /// The same at a snapshot, if there is one.
    pub(crate) fn look_at(&self, at: Option<&SnapshotHandle>) -> Result<LookUp<'_>> {
        let Some(at) = at else { return self.look() };
        let txn = at.read(self)?;
        let age = txn.id();
        // The snapshot holds its age, and cannot end while the transaction is borrowed.
        let lease = self.state.lease.as_ref();
        if let Some(lease) = lease {
            lease.look_again(age);
        }
        Ok(LookUp { lease, age, txn: Some(txn) })
    }
}

/// A look-up: a snapshot with an age, ended in the right order on drop.
pub struct LookUp<'a> {
    /// `None` in a published realm, whose extents nobody ever gives away.
    lease: Option<&'a Lease>,
    age: u64,
    txn: Option<ReadTxn<'a>>,
}

impl<'a> LookUp<'a> {
    /// Holds what this look-up shows beyond its end; the number that the catalog knows it by.
    /// Writers ask for it once the catalog's last page is this one.
    pub(crate) fn hold(mut self, catalog: &Catalog, ask_at: u64) -> u64 {
        if let Some(lease) = self.lease {
            lease.hold_snapshot(self.age, ask_at);
        }
        catalog.hold(self.txn.take().expect("present until drop"))
    }

    /// The snapshot.
    pub fn txn(&self) -> &ReadTxn<'a> {
        self.txn.as_ref().expect("present until drop")
    }

    /// Ends the snapshot; the extents that it has shown are kept from reuse still.
    pub fn rest(&mut self) {
        drop(self.txn.take());
    }

    /// Keeps an object open that this snapshot shows.
    pub(crate) fn open_object(&self, oid: Oid) -> Hold {
        let open = |lease: &Lease| lease.use_object(oid, ObjectUse::Open, self.age);
        self.lease.map_or(Hold::Aged(self.age), open)
    }

    /// Keeps extents of a file that this snapshot shows, for a view.
    pub(crate) fn keep_shown(&self, oid: Oid, extents: Vec<Extent>) -> ViewHold {
        let keep = |lease: &Lease| lease.keep_shown(oid, extents, self.age);
        self.lease.map_or(ViewHold::Whole(Hold::Aged(self.age)), keep)
    }

    /// Keeps an extent that this snapshot shows.
    pub(crate) fn pin(&self, extent: Extent) -> Hold {
        self.lease.map_or(Hold::Aged(self.age), |lease| lease.pin(extent, self.age))
    }
}

impl Drop for LookUp<'_> {
    fn drop(&mut self) {
        drop(self.txn.take());
        if let Some(lease) = self.lease {
            lease.end_look(self.age);
        }
    }
}
