//! Forking: how a child gets a lease of its own (protocol P4).
//!
//! `pthread_atfork` runs three handlers in the thread that forks:
//!
//! * *prepare*: take the registry, then every core's state for writing. From here on no thread is
//!   inside an operation, a look-up or a commit. Make the child a lease of its own with a copy of
//!   every pin, raise the epoch, and make a spare for the next fork. The file is the spare, that of
//!   a child that is dead, a new one, or the realm's spare. Where there is none, or on any error,
//!   the parent's lease keeps for ever what it keeps now.
//! * *parent*: close the child's lease (the child keeps it locked).
//! * *child*: close the parent's lease and spare, take the child's lease as its own, abandon the
//!   inherited catalog without ending its read transactions (that would write the parent's reader
//!   slots), forget ids, peers and batches. Its own catalog is opened on first use. A child without
//!   a lease makes one then. It keeps the parent's open, and so locked, if it may view anything.
//!
//! *Exec* ends the process's lease with its descriptors, and files without a name that it has open.
//! So a program that hands open files on to the one that it becomes leaves its leases to that one
//! (`leave_leases`): it inherits the descriptors, and closes them once it has opened the files by a
//! lease of its own. Until then the leases live, and nobody takes over what they hold. So the
//! process is held still as for a fork, and no thread of it holds the tail of a file.
//!
//! Handlers must not fail and must not wait for another process; they wait for short operations
//! of this one only.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, MutexGuard, RwLockWriteGuard};

use crate::caretaker;
use crate::process;
use crate::process::Registry;
use crate::realm::files::tail;
use crate::realm::{Core, State};
use engram_base::error::Result;
use engram_base::faults::step;
use engram_catalog::raise_lease_epoch;
use engram_space::lease::{Children, Lease, Spare};

/// Installs the handlers; called once a process.
pub(crate) fn install() {
    // SAFETY: the three handlers are `extern "C"` functions without arguments that do not unwind
    // (each catches panics), and live as long as the process.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// One core, held still across a fork.
struct HeldCore {
    core: Arc<Core>,
    /// Borrows from `core`, which is kept alive beside it and never moved out of its `Arc`.
    state: RwLockWriteGuard<'static, State>,
    child: Option<Lease>,
}

struct Forking {
    held: Vec<HeldCore>,
    registry: MutexGuard<'static, Option<Registry>>,
    sessions: MutexGuard<'static, ()>,
}

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

extern "C" fn prepare() {
    quietly(|| hold_all(lease_out));
}

/// Holds every core still, until [`release`].
fn hold_all(each: impl Fn(HeldCore) -> HeldCore) {
    let sessions = process::sessions();
    let slot = process::registry();
    let mut cores: Vec<Arc<Core>> = slot.iter().flat_map(HashMap::values).cloned().collect();
    // In the order in which an operation on several enters them (`realm/together.rs`).
    cores.sort_by_key(Arc::as_ptr);
    let held = cores.into_iter().map(|core| each(hold(core))).collect();
    FORKING.with_borrow_mut(|forking| {
        *forking = Some(Forking { held, registry: slot, sessions });
    });
}

fn hold(core: Arc<Core>) -> HeldCore {
    let guard = core.gate.write();
    // SAFETY: the guard borrows the lock inside the `Arc` that `HeldCore` keeps beside it;
    // `release` drops the guard before the `Arc`, and the allocation behind an `Arc` never moves.
    let state: RwLockWriteGuard<'static, State> = unsafe { std::mem::transmute(guard) };
    HeldCore { core, state, child: None }
}

/// Makes the child a lease, and a spare for the next one.
fn lease_out(held: HeldCore) -> HeldCore {
    let HeldCore { core, mut state, .. } = held;
    if core.setup.immutable {
        return HeldCore { core, state, child: None };
    }
    let child = lease_for_child(&core, &mut state);
    let child = child.and_then(|child| announce(&core, &state, child));
    step!("fork.announced");
    match &child {
        Some(child) => state.children.add(child.id()),
        None => state.lease.iter().for_each(Lease::keep_for_child),
    }
    if state.spare.is_none() {
        let spare = state.children.spare(&core.setup.leases());
        state.spare = spare.or_else(|| new_spare(&core));
    }
    HeldCore { core, state, child }
}

/// Where the file of a child's lease comes from.
type Source = fn(&Core, &mut State) -> Option<Spare>;

/// A lease for the child, with all that this process's keeps.
fn lease_for_child(core: &Core, state: &mut State) -> Option<Lease> {
    let sources: [Source; 4] = [
        // It may have been swept up, with the pool or by hand.
        |_, state| state.spare.take(),
        |core, state| state.children.spare(&core.setup.leases()),
        |core, _| new_spare(core),
        |core, _| Spare::of_realm(&core.setup.leases()),
    ];
    sources.iter().find_map(|source| {
        let spare = source(core, state)?;
        state.lease.as_ref()?.fork(spare, &core.setup.leases()).ok()
    })
}

fn new_spare(core: &Core) -> Option<Spare> {
    Spare::create(&core.setup.leases(), core.setup.file_mode).ok()
}

/// Raises the epoch, so that allocators come to know the child's lease; `None` if that fails.
/// (A child that forks before it has used the realm has no catalog open.)
fn announce(core: &Core, state: &State, child: Lease) -> Option<Lease> {
    let raised = match &state.catalog {
        Some(catalog) => {
            catalog.growth().raise_lease_epoch();
            Ok(())
        }
        None => raise_lease_epoch(&core.setup.catalog(), &core.setup.catalog_options()),
    };
    if raised.is_ok() {
        Some(child)
    } else {
        child.end();
        None
    }
}

extern "C" fn parent() {
    quietly(|| {
        // Closes our descriptor of the child's lease; the child's own keeps it locked.
        release(|held| drop(held.child.take()));
        step!("fork.parted");
    });
}

extern "C" fn child() {
    quietly(|| {
        tail::forget();
        release(|held| {
            match held.child.take() {
                Some(own) => {
                    own.adopt();
                    // Closes our descriptor of the parent's lease; the parent's keeps it locked.
                    held.state.lease = Some(own);
                }
                None => inherit(&mut held.state),
            }
            // The spare is the parent's as well, and so are its children.
            held.state.spare = None;
            held.state.children = Children::default();
            if held.core.setup.immutable {
                return;
            }
            if let Some(catalog) = held.state.catalog.take() {
                catalog.abandon();
            }
            held.core.forget();
            caretaker::forget();
            step!("fork.adopted");
        });
    });
}

/// Has forks be seen to from now on, before anything is open: for a program with handlers of its
/// own, some of which are to run before these, and some after them.
pub fn watch() -> Result<()> {
    drop(process::registry());
    engram_catalog::watch_forks()
}

/// Leaves this process's leases to the program that it is about to become: the descriptors that
/// keep them, for that program to inherit. Until then, or until [`keep_leases`] in this thread, no
/// other thread is inside an operation or holds the tail of a file.
pub fn leave_leases() -> Vec<RawFd> {
    tail::close();
    hold_all(|held| held);
    FORKING.with_borrow(|held| {
        let mut left = Vec::new();
        for HeldCore { state, .. } in held.iter().flat_map(|held| &held.held) {
            left.extend(state.lease.iter().map(Lease::leave));
            left.extend(state.inherited.iter().map(Lease::descriptor));
        }
        left
    })
}

/// The process has not become another program: its leases are its own again, and it goes on.
pub fn keep_leases() {
    release(|held| held.state.lease.iter().for_each(Lease::adopt));
    tail::open();
}

/// Does what happens around a fork, for a child that `make` begins in another way, without handlers
/// of `pthread_atfork`: a copy of this process, of the calling thread alone, where it returns 0.
pub fn around(make: impl FnOnce() -> i32) -> i32 {
    prepare();
    let pid = make();
    if pid == 0 {
        child();
        engram_catalog::note_fork();
    } else {
        parent();
    }
    pid
}

/// No lease could be made for this child: it keeps the parent's, for what it has inherited.
fn inherit(state: &mut State) {
    let lease = state.lease.take();
    state.inherited.extend(lease.filter(Lease::is_shared));
}

/// Lets go of what `prepare` held, in an order in which no guard outlives its lock.
fn release(mut each: impl FnMut(&mut HeldCore)) {
    let Some(forking) = FORKING.with_borrow_mut(Option::take) else { return };
    let mut cores = Vec::new();
    let Forking { held, registry, sessions } = forking;
    for mut held in held {
        each(&mut held);
        let HeldCore { core, state, .. } = held;
        drop(state);
        cores.push(core);
    }
    // The registry is let go of before the cores: dropping the last of one takes it.
    drop((registry, sessions));
}

/// A handler must not unwind into the C library.
fn quietly(handler: impl FnOnce()) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(handler));
}
