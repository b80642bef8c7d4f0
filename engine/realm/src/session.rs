//! A session: one `open` of a pool, and the handles that came of it.
//!
//! It holds one user of each core that it has opened. Closing it ends its handles, and leaves the
//! cores to other sessions and to live views.

use crate::realm::locks;
use crate::realm::snapshot;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::batch;
use crate::process;
use crate::process::between_forks;
use crate::realm::{Core, Mode, Purpose, Setup};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::mutex::lock;
use engram_media::shared_counter::SharedCounter;

/// One `open` of a pool.
pub struct Session {
    mode: Mode,
    open: AtomicBool,
    cores: Mutex<Vec<Arc<Core>>>,
    /// What handles have mapped beside that.
    counters: Mutex<Vec<Weak<SharedCounter>>>,
}

impl Session {
    /// An open session without cores.
    pub fn new(mode: Mode) -> Arc<Self> {
        Arc::new(Session {
            mode,
            open: AtomicBool::new(true),
            cores: Mutex::default(),
            counters: Mutex::default(),
        })
    }

    /// What its handles may do.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// The core of a realm; opened at its first use in this process.
    pub fn core(&self, setup: Setup) -> Result<Arc<Core>> {
        let purpose = match self.mode {
            Mode::Read => Purpose::Look,
            Mode::ReadWrite => Purpose::Use,
        };
        let core = process::core_of(setup, purpose)?;
        let kept = between_forks(|| {
            let mut cores = lock(&self.cores);
            let open = self.is_open();
            let known = cores.iter().any(|known| Arc::ptr_eq(known, &core));
            if open && !known {
                cores.push(Arc::clone(&core));
            }
            (open, known)
        });
        match kept {
            (true, false) => Ok(core),
            (open, _) => {
                core.remove_session();
                if !open {
                    fail!(
                        Argument,
                        "the pool {} is closed: open it again",
                        core.setup.pool.display()
                    );
                }
                Ok(core)
            }
        }
    }

    /// Lets go of the realm in this folder, if it has it. `BusyError` if another session has it.
    pub fn forget(&self, dir: &std::path::Path) -> Result<()> {
        let forgotten = between_forks(|| {
            let mut cores = lock(&self.cores);
            let Some(place) = cores.iter().position(|core| core.setup.dir == dir) else {
                return Ok(None);
            };
            if cores[place].sessions() > 1 {
                fail!(
                    Busy,
                    "namespace {:?} has another opening in this process: close it first",
                    cores[place].setup.namespace
                );
            }
            Ok(Some(cores.swap_remove(place)))
        })?;
        if let Some(core) = forgotten {
            snapshot::end_snapshots_of(&core, self);
            locks::unlock_all_of(&core, self);
            core.remove_session();
        }
        Ok(())
    }

    /// Lets go of the shared counter when the session is closed, though handles of it live on.
    pub fn keep_counter(&self, counter: &Arc<SharedCounter>) {
        between_forks(|| {
            let mut counters = lock(&self.counters);
            counters.retain(|known| known.strong_count() > 0);
            counters.push(Arc::downgrade(counter));
            if !self.is_open() {
                counter.let_go();
            }
        });
    }

    /// Lets go of a realm, if it has it.
    pub fn let_go(&self, core: &Arc<Core>) {
        let gone = between_forks(|| {
            let mut cores = lock(&self.cores);
            let place = cores.iter().position(|known| Arc::ptr_eq(known, core))?;
            Some(cores.swap_remove(place))
        });
        if let Some(core) = gone {
            core.remove_session();
        }
    }

    /// Whether this thread runs a batch on one of the realms.
    pub fn runs_batch(&self) -> bool {
        batch::undo_abandoned();
        between_forks(|| lock(&self.cores).iter().any(batch::runs))
    }

    /// Looks whether the files of its realms still have their names, if it could write to them.
    pub fn check_present(&self) -> Result<()> {
        if self.mode == Mode::Read {
            return Ok(());
        }
        let cores = between_forks(|| lock(&self.cores).clone());
        cores.iter().try_for_each(|core| core.check_present())
    }

    /// Ends the handles. Views stay.
    pub fn close(&self) {
        self.open.store(false, Ordering::Release);
        let cores = between_forks(|| std::mem::take(&mut *lock(&self.cores)));
        for core in cores {
            // A watcher that sleeps finds the session closed.
            core.ring();
            snapshot::end_snapshots_of(&core, self);
            locks::unlock_all_of(&core, self);
            core.remove_session();
        }
        between_forks(|| {
            let counters = std::mem::take(&mut *lock(&self.counters));
            counters.iter().filter_map(Weak::upgrade).for_each(|counter| counter.let_go());
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}
