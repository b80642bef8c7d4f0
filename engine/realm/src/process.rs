//! What a process has once: the registry of its cores.
//!
//! **One environment per process and path.** LMDB may not be opened twice in one process: closing
//! one would drop the other's locks. So cores are found by device and inode of the realm's folder.
//! A second copy of the engine in the process (another extension module, a C library) has a
//! registry of its own; it is recognised by its lease (`realm::open`), because a symbol that the
//! dynamic linker would show to both does not exist for modules loaded privately.

use crate::realm::index;
use crate::realm::open::admit;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use crate::caretaker;
use crate::fork;
use crate::realm::{Core, Purpose, Setup, open, shut};
use engram_base::error::{Error, Result};
use engram_files::pool_file::missing;

type Key = (u64, u64);
pub(crate) type Registry = HashMap<Key, Arc<Core>>;

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
static HANDLERS: Once = Once::new();
/// Taken before the small locks of sessions, so that no child inherits one of them held.
static SESSIONS: Mutex<()> = Mutex::new(());

/// Runs something short that a fork waits for.
pub fn between_forks<T>(short: impl FnOnce() -> T) -> T {
    let _still = sessions();
    short()
}

/// The sessions' lock, held.
pub(crate) fn sessions() -> MutexGuard<'static, ()> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The registry, held.
pub(crate) fn registry() -> MutexGuard<'static, Option<Registry>> {
    HANDLERS.call_once(fork::install);
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last part of a path: of two published versions it differs.
fn last_of(path: &Path) -> Option<std::ffi::OsString> {
    path.file_name().map(ToOwned::to_owned)
}

fn key_of(dir: &Path) -> Result<Key> {
    let meta = std::fs::metadata(dir)
        .map_err(|e| Error::os(format!("looking at the realm {}", dir.display()), &e))?;
    Ok((meta.dev(), meta.ino()))
}

/// This process's core of a realm, with one session more: the caller's. Opened if it is not yet.
pub fn core_of(setup: Setup, purpose: Purpose) -> Result<Arc<Core>> {
    let key = key_of(&setup.dir)?;
    let mut slot = registry();
    let registry = slot.get_or_insert_default();
    // A folder that was removed may have left its inode to another realm, or to another namespace's
    // published version of the same number.
    let named =
        |setup: &Setup| (setup.id_prefix, setup.root(), setup.uuid.clone(), last_of(&setup.dir));
    let same = |core: &Arc<Core>| named(&core.setup) == named(&setup);
    if let Some(core) = registry.get(&key).filter(|core| same(core)) {
        // In a forked child the catalog is opened here, and may be refused.
        let inside = core.enter()?;
        if !core.setup.immutable {
            // It may have been opened to be verified.
            admit(&core.setup, inside.catalog(), purpose)?;
        }
        drop(inside);
        core.add_session();
        begin_work(core, purpose);
        return Ok(Arc::clone(core));
    }
    let (pool, dir) = (setup.pool.clone(), setup.dir.clone());
    // Of published versions, the newest may just have taken this one's place.
    let lasts = !setup.immutable;
    let opened = open(setup, purpose);
    let core = Arc::new(if lasts { opened.map_err(|e| missing(&pool, &dir, e)) } else { opened }?);
    let _ = core.me.set(Arc::downgrade(&core));
    registry.insert(key, Arc::clone(&core));
    begin_work(&core, purpose);
    Ok(core)
}

/// A process that opens a realm to work with it sees to what is queued there.
fn begin_work(core: &Core, purpose: Purpose) {
    if purpose == Purpose::Use && !core.setup.immutable {
        core.index.used.store(true, Ordering::Release);
        caretaker::ensure();
        // Nothing is lost if it cannot be looked at now.
        let _ = index::ring_if_queued(core);
    }
}

/// Starts a thread that signals pass by: a program's handlers run in its own threads. `false` if
/// there can be none.
pub(crate) fn spawn_quietly(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let mut all = std::mem::MaybeUninit::uninit();
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: two places for sets of signals; the first is filled before it is used, and the mask
    // of this thread, which the new one inherits, is put back as it was.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    // SAFETY: the set that the call above has filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    spawned.is_ok()
}

/// The leases of this process in a realm that only views hold, if any: no session has it open.
pub fn leases_of_views(dir: &Path) -> Vec<u64> {
    let Ok(key) = key_of(dir) else { return Vec::new() };
    match registry().get_or_insert_default().get(&key) {
        Some(core) if core.sessions() == 0 => core.gate.leases(),
        _ => Vec::new(),
    }
}

/// Ends this process's part in a realm that is being removed. Views of it keep their memory.
pub fn detach(dir: &Path) {
    let Ok(key) = key_of(dir) else { return };
    let mut slot = registry();
    if let Some(core) = slot.get_or_insert_default().remove(&key) {
        shut(&core);
    }
}

/// Does something while nothing else in this process uses a core, or comes to; `None` if something
/// does. The caller has one session of it. A fork, and any realm that is opened, wait for the end.
pub(crate) fn alone<T>(core: &Core, work: impl FnOnce() -> T) -> Option<T> {
    let _registry = registry();
    core.is_used_once().then(work)
}

/// Shuts a core that nobody uses any more, unless somebody has come since.
pub(crate) fn retire(core: &Arc<Core>) {
    let mut slot = registry();
    let registry = slot.get_or_insert_default();
    if core.in_use() {
        return;
    }
    let before = registry.len();
    registry.retain(|_, known| !Arc::ptr_eq(known, core));
    if registry.len() < before {
        shut(core);
    }
    core.space.arena.release();
}
