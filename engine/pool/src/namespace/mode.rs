//! Changing a namespace's mode.
//!
//! Two folders decide who comes in, each by a mode that one system call sets: the namespace's own
//! folder, who enters and reads what is published, and the shared realm's, whether the group comes
//! into that. All else lies below one of them, or on a device. So the order is:
//!
//! 1. `namespace.toml` says which mode is to be;
//! 2. what the namespace has on devices admits whom the old mode admits, and the new one;
//! 3. if the group is to write: all that is in the shared realm, and what is published, is given
//!    to it, and **the shared realm's folder** last;
//! 4. **the namespace's folder** gets the new mode: from here on it holds for all who come;
//! 5. if the group is not to write any more: the shared realm's folder is the owner's alone;
//! 6. what lies on devices admits whom the new mode admits;
//! 7. `namespace.toml` says the new mode.
//!
//! A death before (4) leaves the old mode, one after it the new one. At no step is anything open to
//! anybody whom neither the old mode nor the new one admits. The owner's next opening for writing,
//! or next change of the mode, does the rest: each part is the same when it is done twice.
//!
//! *Who has it open meanwhile*: views show what they have mapped, whoever may enter now; who has
//! the shared realm open goes on; who reads what is published looks at the folders each time, and
//! is refused. Whether the group writes is a matter of every file that a process makes in the
//! shared realm, so that changes only while nobody has it open, under its compaction lock.
//!
//! Nothing is given a mode by its name: members of the group may put other things there. What is
//! opened must be the namespace owner's (see `engram_files::folder`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::make::users;
use super::scopes::SCOPES;
use super::setup::{namespace_file, setup};
use crate::namespace::NamespaceFile;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::pool_lock::PoolLock;
use engram_base::scope::Scope;
use engram_base::user;
use engram_files::folder::give_mode;
use engram_files::paths::{NAMESPACE_FILE, SHARED, modes, on_device, place};
use engram_files::pool_file::{FORMAT, PoolFile, real_path};
use engram_files::toml_file::write_toml;
use engram_media::filesystem;
use engram_realm::Setup;
use engram_realm::compaction_lock::{CompactionLock, wait_for_it};

const ROOT: u32 = 0;
const GROUP_WRITES: u32 = 0o020;
/// What lets others than the owner enter: x of either, w of the group.
const OTHERS_ENTER: u32 = 0o031;
/// The mode of the folder of versions: it is the namespace's folder that admits.
const PUBLISHED: [u32; 2] = [0o755, 0o2775];

/// Refuses a mode that no namespace can have.
pub(super) fn check(mode: u32) -> Result<()> {
    if mode & !0o777 != 0 || mode & 0o700 != 0o700 {
        fail!(
            Argument,
            "mode {mode:#o} must be within 0o777 and let the owner read, write and enter (0o700)"
        );
    }
    if mode & 0o002 != 0 {
        fail!(
            Argument,
            "mode {mode:#o} lets all others write, and nobody writes but the owner and the group: \
             give {:#o}, and the namespace to a group of those who are to write",
            mode & !0o002
        );
    }
    Ok(())
}

/// Refuses a namespace that nobody but its owner may enter: nobody would read what is published.
pub(super) fn refuse_closed(pool: &Path, name: &str) -> Result<()> {
    let mode = super::info(pool, name)?.mode;
    if mode & OTHERS_ENTER == 0 {
        fail!(
            ClosedNamespace,
            "namespace {name:?} has mode {mode:o}, so that nobody but its owner may enter it and \
             read what is published there: open it (`engram ns {} {name} --mode 755`), or publish \
             all the same (closed=True, --closed)",
            pool.display()
        );
    }
    Ok(())
}

/// The mode of the folder of a namespace that was to have this mode.
pub(super) fn of_folder(mode: u32) -> u32 {
    // Sticky: members of the group do not take away, or put something in the place of, what is the
    // owner's and everybody's here: the description, the private realms.
    let least = if mode & GROUP_WRITES == 0 { 0o700 } else { 0o3770 };
    least | (mode & 0o055)
}

/// The mode that a namespace has, of whose change a process may have died.
pub(super) fn in_effect(file: &NamespaceFile, folder: u32) -> u32 {
    match file.next_mode {
        Some(next) if folder & 0o7777 == of_folder(next) => next,
        _ => file.mode,
    }
}

/// Whether a process died while it changed the mode, so that more of it is to be done.
pub fn is_half_changed(pool: &Path, name: &str) -> bool {
    namespace_file(pool, FORMAT, name).is_ok_and(|file| file.next_mode.is_some())
}

/// Gives a namespace another mode: its owner may, and root.
///
/// Whether the group writes changes only while nobody has the shared realm open, this process
/// neither: `Busy` names who has. On error the mode is as it was, or an opening of the namespace by
/// its owner does the rest.
pub fn set_mode(pool: &Path, name: &str, mode: u32) -> Result<()> {
    check(mode)?;
    let pool = &real_path(pool)?;
    let file = PoolFile::read(pool)?;
    let _pool_lock = PoolLock::take(pool)?;
    ModeChange::of(pool, &file, name, mode)?.run()
}

/// Does the rest of a change whose process has died, if this user may; somebody who has the realm
/// open puts that off.
pub(crate) fn resume(pool: &Path, file: &PoolFile, name: &str) {
    let Ok(Some(mode)) = namespace_file(pool, file.format, name).map(|file| file.next_mode) else {
        return;
    };
    let Ok(_pool_lock) = PoolLock::take(pool) else { return };
    let _ = ModeChange::of(pool, file, name, mode).and_then(|change| change.run());
}

/// A change of a mode.
struct ModeChange<'a> {
    pool: &'a Path,
    file: &'a PoolFile,
    name: &'a str,
    mode: u32,
    namespace: PathBuf,
    description: NamespaceFile,
    owner: u32,
    group: u32,
    /// The mode of the namespace's folder before.
    folder: u32,
}

impl<'a> ModeChange<'a> {
    fn of(pool: &'a Path, file: &'a PoolFile, name: &'a str, mode: u32) -> Result<Self> {
        let description = namespace_file(pool, file.format, name)?;
        let namespace = place(pool, name);
        let meta = fs::symlink_metadata(&namespace)
            .map_err(|e| Error::os(format!("looking at namespace {name:?}"), &e))?;
        let (owner, group, caller) = (meta.uid(), meta.gid(), user::current());
        if caller != owner && caller != ROOT {
            fail!(
                Access,
                "namespace {name:?} is that of {}, who alone, beside root, may change its mode: \
                 ask them; you are {}",
                user::shown(owner),
                user::shown(caller)
            );
        }
        let folder = meta.mode() & 0o7777;
        Ok(ModeChange { pool, file, name, mode, namespace, description, owner, group, folder })
    }

    fn run(&self) -> Result<()> {
        let group_writes = self.mode & GROUP_WRITES != 0;
        let shared = self.namespace.join(SHARED);
        let meta = fs::symlink_metadata(&shared)
            .map_err(|e| Error::os(format!("looking at {}", shared.display()), &e))?;
        let before = meta.mode() & GROUP_WRITES != 0;
        let _alone = if before == group_writes { None } else { Some(self.alone()?) };
        self.describe(self.description.mode, Some(self.mode))?;
        step!("mode.intended");
        self.devices(self.folder | of_folder(self.mode))?;
        step!("mode.devices");
        if group_writes && !before {
            self.open_to_group()?;
        }
        self.give(&self.namespace, of_folder(self.mode))?;
        step!("mode.folder");
        // A process that died on the way to either mode may have left a part open.
        if !group_writes && (before || self.description.next_mode.is_some()) {
            self.close_to_group()?;
        }
        self.devices(of_folder(self.mode))?;
        step!("mode.settled");
        self.describe(self.mode, None)?;
        step!("mode.described");
        Ok(())
    }

    /// Keeps others from the shared realm, which nobody has open.
    fn alone(&self) -> Result<CompactionLock> {
        let mount = filesystem::admit(self.pool, true)?;
        let setup = setup(self.pool, self.file, mount, self.name)?;
        self.refuse_users(&setup)?;
        // The process that had one is gone: it would have the pool lock.
        wait_for_it(&setup.dir)?;
        let lock = CompactionLock::take(&setup)?;
        self.refuse_users(&setup)?;
        Ok(lock)
    }

    fn refuse_users(&self, setup: &Setup) -> Result<()> {
        let users = users(&setup.dir)?;
        if !users.is_empty() {
            fail!(
                Busy,
                "namespace {:?} is open in process {users:?}, and whether its group writes there \
                 ({:o}) changes only while nobody has it open: close it there first, and change \
                 the mode of a pool that is closed (`engram ns`, engram.chmod)",
                self.name,
                self.mode
            );
        }
        Ok(())
    }

    fn describe(&self, mode: u32, next_mode: Option<u32>) -> Result<()> {
        let NamespaceFile { format, root, size, .. } = self.description;
        let file = NamespaceFile { format, mode, root, size, next_mode };
        write_toml(&self.namespace.join(NAMESPACE_FILE), &file, 0o644)
    }

    /// Gives something of the namespace owner's a mode, and the namespace's group.
    fn give(&self, at: &Path, mode: u32) -> Result<()> {
        give_mode(at, self.owner, self.group, mode)
    }

    /// What the namespace has on each device.
    fn on_devices(&self) -> Vec<PathBuf> {
        let devices = self.file.folders();
        devices.iter().map(|device| on_device(device, self.file, self.name)).collect()
    }

    fn devices(&self, mode: u32) -> Result<()> {
        self.on_devices().iter().try_for_each(|outer| self.give(outer, mode))
    }

    /// The folders of the shared realm, and of its spans.
    fn shared(&self) -> Vec<PathBuf> {
        let on_devices = self.on_devices().into_iter().map(|outer| outer.join(SHARED));
        on_devices.chain([self.namespace.join(SHARED)]).collect()
    }

    /// The folders of what is published, and of its spans.
    fn published(&self) -> Vec<PathBuf> {
        let published = Scope::Published.as_str();
        let on_devices = self.on_devices().into_iter().map(|outer| outer.join(published));
        on_devices.chain([self.namespace.join(published)]).collect()
    }

    fn open_to_group(&self) -> Result<()> {
        let modes = modes(self.mode);
        self.give(&self.namespace.join(SCOPES), modes.1)?;
        for folder in self.shared() {
            self.give_within(&folder, modes.0, Some(modes.1))?;
        }
        for folder in self.published() {
            self.give_within(&folder, PUBLISHED[1], None)?;
            self.give(&folder, PUBLISHED[1])?;
        }
        step!("mode.given");
        // The realm's own folder comes last: before that nobody else comes to any of it.
        self.shared().iter().try_for_each(|folder| self.give(folder, modes.0))?;
        step!("mode.opened");
        Ok(())
    }

    fn close_to_group(&self) -> Result<()> {
        let modes = modes(self.mode);
        // In the other order: nobody comes to what lies in it any more, whatever its mode is.
        self.shared().iter().rev().try_for_each(|folder| self.give(folder, modes.0))?;
        step!("mode.closed");
        for folder in self.published() {
            self.give(&folder, PUBLISHED[0])?;
        }
        self.give(&self.namespace.join(SCOPES), modes.1)
    }

    /// Gives all that is in a folder its mode: folders, and files if there is one for them.
    fn give_within(&self, folder: &Path, folders: u32, files: Option<u32>) -> Result<()> {
        let refused = |e| Error::os(format!("listing {}", folder.display()), &e);
        let entries = match fs::read_dir(folder) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(refused)?,
        };
        for entry in entries {
            let entry = entry.map_err(refused)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(refused)?);
            if kind.is_dir() {
                self.give_within(&path, folders, files)?;
                self.give(&path, folders)?;
            } else if let Some(mode) = files.filter(|_| kind.is_file()) {
                match self.give(&path, mode) {
                    // The lock of this very change, or of a process that goes just now.
                    Err(error) if error.kind() == Kind::NotFound => {}
                    given => given?,
                }
            }
        }
        Ok(())
    }
}
