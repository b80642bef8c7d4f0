//! Batches: many operations, one commit.
//!
//! A batch is a list of row changes under construction. Each operation runs against the overlay:
//! its reads come from the list first and from a snapshot of the catalog below, its writes go into
//! the list. A row that it read from below is a *guard*. On exit one transaction checks the guards
//! and applies the list: if any row that an operation relied on has changed meanwhile, nothing is
//! applied, and that is `BusyError`. If nobody has committed since the batch's first look, the
//! guards hold without looking.
//!
//! Bulk data goes into reserved space as the batch runs, some of it reserved ahead (`ahead`); the
//! list adopts it. A batch belongs to
//! its thread and to one realm; inner batches join it. A forked child does not inherit it.
//! What guards hold against moves between realms: see `overlay::guards`.

use crate::realm::ahead::Ahead;
use crate::realm::space;
use crate::realm::write;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::realm::Core;
use crate::realm::Precondition;
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::telemetry::operation;
use engram_catalog::{Catalog, Table, forks};
use engram_ops::marks::ARRIVED;
use engram_ops::overlay::Overlay;
use engram_ops::overlay::guards::conflict;
use engram_ops::rows_mut::RowsMut;

/// A batch that is running in a thread.
struct RunningBatch {
    core: Arc<Core>,
    /// How many forks lay behind the process it began in: a child has no part in it.
    forks: u64,
    /// Who began it and who joined it, innermost last; `None` for those without a guard.
    holders: Vec<Option<Weak<()>>>,
    failed: bool,
    overlay: Overlay,
    ahead: Ahead,
    hooks: Hooks,
}

/// What is to be done when the batch has ended, the last first. A forked child does none of it, as
/// the batch is its parent's, nor does a thread that ends within its batch.
struct Hooks {
    forks: u64,
    committed: bool,
    all: Vec<Box<dyn FnOnce(bool)>>,
}

impl Drop for Hooks {
    fn drop(&mut self) {
        let mut hooks = std::mem::take(&mut self.all);
        if self.forks == forks() && RUNNING.try_with(|_| ()).is_ok() {
            while let Some(hook) = hooks.pop() {
                hook(self.committed);
            }
        } else {
            // What they hold may run code when it is dropped, too.
            std::mem::forget(hooks);
        }
    }
}

/// A thread's batch, if it runs one. Each operation looks: what it takes out is to be small.
type OwnBatch = Option<Box<RunningBatch>>;

thread_local! {
    static RUNNING: RefCell<OwnBatch> = const { RefCell::new(None) };
}

/// Looks at this thread's batch. A thread that ends has none, and may still read and write: a
/// program's last bytes are written when it exits, after what is local to its thread is gone.
fn look<T>(look: impl FnOnce(&mut OwnBatch) -> T) -> T {
    if RUNNING.try_with(|_| ()).is_err() {
        return look(&mut None);
    }
    RUNNING.with_borrow_mut(look)
}

/// A batch, as its maker holds it. It belongs to the thread that began it; one that is dropped
/// without an end, wherever that happens, is undone when its thread next looks.
pub struct Batch {
    core: Arc<Core>,
    holder: Arc<()>,
}

impl Batch {
    pub(crate) fn begin(core: &Arc<Core>) -> Result<Self> {
        let holder = Arc::new(());
        begin(core, Some(Arc::downgrade(&holder)))?;
        Ok(Batch { core: Arc::clone(core), holder })
    }

    /// Ends it; the outermost commits.
    ///
    /// On error nothing of the whole batch is visible, and its space has gone back.
    pub fn commit(self) -> Result<()> {
        end(&self.core, Some(&self.holder), true)
    }

    /// Ends it with an error: nothing of the whole batch will be kept.
    pub fn abort(self) -> Result<()> {
        end(&self.core, Some(&self.holder), false)
    }
}

impl RunningBatch {
    /// Where this holder stands; without a guard it is the holder that came last.
    fn place_of(&self, holder: Option<&Arc<()>>) -> Option<usize> {
        match holder {
            None => self.holders.len().checked_sub(1),
            Some(holder) => {
                let holder = Arc::downgrade(holder);
                let is_it = |known: &Weak<()>| known.ptr_eq(&holder);
                self.holders.iter().position(|known| known.as_ref().is_some_and(is_it))
            }
        }
    }

    /// Whether somebody has let go of the batch without ending it.
    fn is_abandoned(&self) -> bool {
        self.holders.iter().flatten().any(|holder| holder.strong_count() == 0)
    }
}

/// Undoes a batch that nobody can end any more. Called before an operation enters: giving back
/// what the batch has reserved enters, too.
pub(crate) fn undo_abandoned() {
    let is_dead = |running: &RunningBatch| running.forks != forks() || running.is_abandoned();
    drop(look(|slot| slot.take_if(|running| is_dead(running))));
}

/// Begins a batch in this thread, or joins the one that runs.
pub(crate) fn begin(core: &Arc<Core>, holder: Option<Weak<()>>) -> Result<()> {
    look(|slot| {
        discard_inherited(slot);
        match slot {
            Some(running) if Arc::ptr_eq(&running.core, core) => running.holders.push(holder),
            Some(running) => return other_realm(running),
            None => {
                *slot = Some(Box::new(RunningBatch {
                    core: Arc::clone(core),
                    forks: forks(),
                    holders: vec![holder],
                    failed: false,
                    overlay: Overlay::default(),
                    ahead: Ahead::default(),
                    hooks: Hooks { forks: forks(), committed: false, all: Vec::new() },
                }));
            }
        }
        Ok(())
    })
}

fn other_realm<T>(running: &RunningBatch) -> Result<T> {
    fail!(
        Busy,
        "this thread runs a batch on the {} part of namespace {:?} of {}: a batch covers one scope \
         of one namespace; finish it before touching another",
        running.core.setup.scope.as_str(),
        running.core.setup.namespace,
        running.core.setup.pool.display()
    )
}

fn discard_inherited(slot: &mut OwnBatch) {
    if slot.as_ref().is_some_and(|running| running.forks != forks()) {
        *slot = None;
    }
}

/// Ends the innermost batch. Only the outermost one applies the list, or drops it.
///
/// On error nothing of the batch is visible, and its space has gone back.
pub(crate) fn end(core: &Arc<Core>, holder: Option<&Arc<()>>, keep: bool) -> Result<()> {
    let ended = look(|slot| {
        discard_inherited(slot);
        // A batch may have gone to another realm of its namespace; its holders know it still.
        let is_it = |running: &RunningBatch| {
            Arc::ptr_eq(&running.core, core)
                || (holder.is_some() && running.place_of(holder).is_some())
        };
        let Some(running) = slot.as_mut().filter(|running| is_it(running)) else {
            fail!(
                Busy,
                "no batch on this namespace runs in this thread (or it was begun before a fork)"
            )
        };
        let Some(place) = running.place_of(holder) else {
            fail!(Busy, "this batch was begun in another thread: only that one can end it")
        };
        // One that ends before what joined it cannot know what it would keep.
        running.failed |= !keep || place + 1 < running.holders.len();
        running.holders.remove(place);
        if !running.holders.is_empty() {
            return Ok(None);
        }
        Ok(slot.take())
    })?;
    let Some(mut running) = ended else { return Ok(()) };
    let applied = match (running.failed, keep) {
        (false, _) => {
            let _operation = operation!(DEBUG, "batch.commit");
            write::apply(&running.core, &running.overlay)
        }
        (true, false) => return Ok(()),
        (true, true) => return inner_failed(),
    };
    if applied.is_ok() {
        running.hooks.committed = true;
        running.overlay = Overlay::default();
    }
    applied
}

/// Whether this thread runs a batch, of whatever realm.
pub fn in_batch() -> bool {
    undo_abandoned();
    look(|slot| slot.is_some())
}

/// Has `hook` called when the batch that this thread runs has ended, if it runs one: with whether
/// it is committed; if not, nothing of it is left by then.
pub fn when_ended(hook: impl FnOnce(bool) + 'static) {
    undo_abandoned();
    look(|slot| {
        if let Some(running) = slot {
            running.hooks.all.push(Box::new(hook));
        }
    });
}

/// Gives back what was reserved and is not used: all of it, if the list was not applied. A thread
/// that ends without ending its batch undoes it so.
impl Drop for RunningBatch {
    fn drop(&mut self) {
        if self.forks == forks() {
            let mut all = self.ahead.empty();
            all.extend(self.overlay.reservations());
            space::give_all_back(&self.core, &all);
        }
    }
}

fn inner_failed() -> Result<()> {
    fail!(
        Busy,
        "an inner batch ended with an error, and a batch is all or nothing: nothing of it was kept"
    )
}

/// Runs `with` on this thread's list, if it runs a batch; `Err` if that is another realm's.
pub(crate) fn with<T>(
    core: &Arc<Core>,
    with: impl FnOnce(&mut Overlay) -> Result<T>,
) -> Result<Option<T>> {
    look(|slot| {
        if slot.is_none() {
            return Ok(None);
        }
        discard_inherited(slot);
        match slot {
            Some(running) if Arc::ptr_eq(&running.core, core) => {
                let done = with(&mut running.overlay);
                // Damage on media may have stopped an operation half-way in the list.
                running.failed |= done.as_ref().is_err_and(|e| e.kind() == Kind::Corrupt);
                running.failed |= running.overlay.torn;
                done.map(Some)
            }
            Some(running) => other_realm(running),
            None => Ok(None),
        }
    })
}

/// Gives a batch of this thread that has changed nothing yet to another realm; one that has is
/// refused.
pub(crate) fn hand_over(from: &Arc<Core>, to: &Arc<Core>) -> Result<()> {
    let left = look(|slot| match slot {
        Some(running) if Arc::ptr_eq(&running.core, from) => {
            if running.overlay.changes_something() {
                return other_realm(running);
            }
            running.core = Arc::clone(to);
            running.overlay = Overlay::default();
            Ok(running.ahead.empty())
        }
        _ => Ok(Vec::new()),
    })?;
    space::give_all_back(from, &left);
    Ok(())
}

/// Looks at what this thread's batch has reserved ahead, if it runs one on this realm.
pub(crate) fn ahead<T>(core: &Arc<Core>, look_at: impl FnOnce(&mut Ahead) -> T) -> Option<T> {
    look(|slot| {
        let own = |running: &&mut Box<RunningBatch>| {
            Arc::ptr_eq(&running.core, core) && running.forks == forks()
        };
        slot.as_mut().filter(own).map(|running| look_at(&mut running.ahead))
    })
}

/// Notes a commit that this thread made beside its batch, for nothing that a guard relies on.
pub(crate) fn helped(core: &Core, id: u64) {
    // Where the thread ends without having ended its batch, there is none any more.
    let _ = RUNNING.try_with(|slot| {
        // Borrowed while an operation runs: whatever it commits then is the batch itself.
        if let Ok(mut slot) = slot.try_borrow_mut()
            && let Some(running) = slot.as_mut().filter(|r| std::ptr::eq(&raw const *r.core, core))
        {
            running.overlay.helped(id);
        }
    });
}

/// Whether this thread runs a batch on this realm.
pub fn runs(core: &Arc<Core>) -> bool {
    look(|slot| slot.as_ref().is_some_and(|r| Arc::ptr_eq(&r.core, core) && r.forks == forks()))
}

/// Runs an operation on this thread's list, if it runs a batch, and if what it relies on holds.
pub(crate) fn change<T>(
    core: &Arc<Core>,
    catalog: &Catalog,
    precondition: Option<&Precondition>,
    operation: &mut dyn FnMut(&mut dyn RowsMut) -> Result<T>,
) -> Result<Option<T>> {
    with(core, |overlay| {
        let mut rows = overlay.on(catalog);
        Precondition::check(precondition, &mut rows)?;
        let done = operation(&mut rows);
        drop(rows);
        match done {
            // The realm was the only one when the operation began: a member that it has read since
            // may have gone to another. It happens when a namespace gets its first other realm.
            Ok(_) if precondition.is_some_and(Precondition::is_over) => {
                overlay.torn = true;
                conflict(Table::Meta, ARRIVED)
            }
            // A row read earlier and a row read now may not fit: no damage, but a conflict.
            Err(error) if error.kind() == Kind::Corrupt => {
                overlay.torn = true;
                overlay.check_guards(&mut catalog.read()?.rows())?;
                Err(error)
            }
            done => done,
        }
    })
}
