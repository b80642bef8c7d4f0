//! A session: one `open` of a pool, and the handles that came of it.
//!
//! It holds one user of each core that it has opened. Closing it ends its handles, and leaves the
//! cores to other sessions and to live views.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::batch;
use crate::error::Result;
use crate::fail;
use crate::media::word::Word;
use crate::process::{self, between_forks};
use crate::realm::{Core, Mode, Purpose, Setup, lock};

/// One `open` of a pool.
pub(crate) struct Session {
    mode: Mode,
    open: AtomicBool,
    cores: Mutex<Vec<Arc<Core>>>,
    /// What handles have mapped beside that.
    words: Mutex<Vec<Weak<Word>>>,
}

impl Session {
    /// An open session without cores.
    pub(crate) fn new(mode: Mode) -> Arc<Self> {
        Arc::new(Session {
            mode,
            open: AtomicBool::new(true),
            cores: Mutex::default(),
            words: Mutex::default(),
        })
    }

    /// What its handles may do.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether it is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// The core of a realm; opened at its first use in this process.
    pub(crate) fn core(&self, setup: Setup) -> Result<Arc<Core>> {
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
    pub(crate) fn forget(&self, dir: &std::path::Path) -> Result<()> {
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
            core.end_snapshots_of(self);
            core.unlock_all_of(self);
            core.remove_session();
        }
        Ok(())
    }

    /// Lets go of the word when the session is closed, though handles of it live on.
    pub(crate) fn keep_word(&self, word: &Arc<Word>) {
        between_forks(|| {
            let mut words = lock(&self.words);
            words.retain(|known| known.strong_count() > 0);
            words.push(Arc::downgrade(word));
            if !self.is_open() {
                word.let_go();
            }
        });
    }

    /// Lets go of a realm, if it has it.
    pub(crate) fn let_go(&self, core: &Arc<Core>) {
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
    pub(crate) fn runs_batch(&self) -> bool {
        batch::bury();
        between_forks(|| lock(&self.cores).iter().any(batch::runs))
    }

    /// Ends the handles. Views stay.
    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::Release);
        let cores = between_forks(|| std::mem::take(&mut *lock(&self.cores)));
        for core in cores {
            core.end_snapshots_of(self);
            core.unlock_all_of(self);
            core.remove_session();
        }
        between_forks(|| {
            let words = std::mem::take(&mut *lock(&self.words));
            words.iter().filter_map(Weak::upgrade).for_each(|word| word.let_go());
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}
