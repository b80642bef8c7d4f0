//! Stage-out: trees of a pool brought to the kernel's file systems.
//!
//! *Protocol*. A copy is written beside its place, as `.engram-….part`. It gets its mode, owner,
//! attributes and times, is made durable, and is looked at ([`Verify`]). Then it takes its name.
//! The stage's [log](crate::log) says so, and of a large file also which parts are durable. Whoever
//! dies leaves whole files under their names, and `.part` files that the next one goes on with. At
//! last the folders get their times, and the [manifest](crate::manifest) is written, whole: it is
//! there only if all of the stage was done.

mod copy;

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use engram::faults::step;
use engram::telemetry::operation;
use engram_fs::{Entry, Errno, Fs, Ino, Maker, NodeKind, ROOT, Stat};
use rustix::fs::{Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use crate::check::Aligned;
use crate::failure::{Done, Failure, is_there, outside};
use crate::inward::{WORK, folder_of};
use crate::log::{Log, Written};
use crate::manifest::{self, Line, Manifest};
use crate::options::{Existing, Options, Verify};
use crate::pace::Pace;
use crate::progress::{Progress, Report};
use crate::sum::Sum;
use crate::tree::Seen;
use copy::Copy;

/// So many bytes are written at a time.
const PIECE: usize = 256 << 10;

/// What is to be brought, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The path of a folder, of which the whole tree is brought, or of a file in the namespace.
    pub from: String,
    /// The path that it is to have outside. A folder that is there gets what it lacks.
    pub to: PathBuf,
}

impl Target {
    /// Where the copy is written of what is to have a path outside, until it takes its name.
    pub fn part_of(&self, fs: &Fs, to: &Path) -> PathBuf {
        part_of(fs, &Log::name(&self.from, &self.to), to)
    }
}

/// A folder on its way.
struct OutFolder {
    ino: Ino,
    stat: Stat,
    /// Where it is outside.
    to: PathBuf,
    /// Its path below the target.
    path: String,
    /// The file system outside that it is on, by its device, once it is there, so that something
    /// can be put into it.
    made: Option<u64>,
    /// Whether this stage has made it: nothing else is in it.
    is_new: bool,
}

impl OutFolder {
    /// Sees that it is on the file system on which it was made, or found.
    fn check(&self) -> Done<()> {
        let to = self.to.display();
        let why = match device_of(&self.to, self.path.is_empty()) {
            Ok(device) if Some(device) == self.made => return Ok(()),
            Ok(_) => format!(
                "{to} is on another file system than at the beginning: see that the right one is \
                 mounted, and stage out again"
            ),
            Err(error) => format!("{to} was there at the beginning, and is not now: {error}"),
        };
        Err(Failure::All(Errno::new(libc::ENODEV, why)))
    }
}

/// Anything else on its way.
struct OutEntry {
    folder: usize,
    name: String,
    stat: Stat,
}

/// A tree on its way.
struct Brought {
    folders: Vec<OutFolder>,
    entries: Vec<OutEntry>,
    /// Whether it is a folder's, and gets a manifest.
    whole: bool,
    /// The path in the namespace of the folder, or the file.
    from: String,
    /// What tells the names of its half-made copies from those of other pairs.
    key: String,
    log: Log,
    lines: Mutex<Vec<Line>>,
}

impl Brought {
    fn to(&self, entry: &OutEntry) -> PathBuf {
        self.folders[entry.folder].to.join(&entry.name)
    }

    /// The path of an entry below the target.
    fn path(&self, entry: &OutEntry) -> String {
        joined(&self.folders[entry.folder].path, &entry.name)
    }

    /// Sees that its folders are on the file systems on which they were. One may have been
    /// unmounted meanwhile, and copies be below the place where it was.
    fn check_devices(&self) -> Done<()> {
        self.folders.iter().filter(|folder| folder.made.is_some()).try_for_each(OutFolder::check)
    }

    /// The path of an entry in the namespace.
    fn path_inside(&self, entry: &OutEntry) -> String {
        if self.whole { joined(&self.from, &self.path(entry)) } else { self.from.clone() }
    }
}

/// The device of a folder outside, which may be a link to one if it is the target itself: below it,
/// a link in a folder's place is somebody else's. (The number may change on a file system that a
/// process serves.)
fn device_of(folder: &Path, is_target: bool) -> io::Result<u64> {
    let meta = if is_target { fs::metadata(folder)? } else { fs::symlink_metadata(folder)? };
    if meta.is_dir() { Ok(meta.dev()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Makes a folder, and the missing ones above it. One that is there is an error, whoever made it.
fn create_with_parents(folder: &Path) -> io::Result<()> {
    match (fs::create_dir(folder), folder.parent()) {
        (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(above)?;
            fs::create_dir(folder)
        }
        (created, _) => created,
    }
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The name by which a file was copied that has several.
#[derive(Clone)]
struct FirstName {
    /// The tree, by its number.
    tree: usize,
    path: String,
}

struct StageOut<'a> {
    fs: &'a Fs,
    options: &'a Options,
    pace: &'a Pace,
    progress: &'a Progress,
    work: Ino,
    maker: Maker,
    /// Files that have several names: the first of them, once that is outside.
    linked: Mutex<HashMap<Ino, Option<FirstName>>>,
}

/// Brings trees of a namespace outside. What could not be brought the report says; an error, that
/// nobody could go on: what is there is resumed by the same stage.
pub fn stage_out(
    fs: &Fs,
    targets: &[Target],
    options: &Options,
    pace: &Pace,
    progress: &Progress,
) -> engram::Result<Report> {
    let _operation = operation!(INFO, "stage.out", trees = targets.len());
    let begun = Instant::now();
    let maker = Maker::this_process()?;
    let work = folder_of(fs, ROOT, WORK.as_bytes(), 0o700, maker)?;
    let linked = Mutex::default();
    let stage = StageOut { fs, options, pace, progress, work, maker, linked };
    let mut all = Vec::new();
    for target in targets {
        match stage.plan(target) {
            Ok(brought) => all.push(brought),
            Err(failure) => failure.note(progress, &target.from),
        }
    }
    stage.copy_all(&all);
    stage.link_all(&all);
    let done = progress.is_whole();
    for brought in &all {
        stage.finish(brought, done);
    }
    let (mut report, fatal) = progress.report(begun.elapsed());
    for brought in all {
        report
            .lines
            .append(&mut brought.lines.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    match fatal {
        Some(error) => Err(error),
        None => Ok(report),
    }
}

/// What is in a folder of a namespace, without what stages and fronts keep for themselves.
pub(crate) fn listed(fs: &Fs, folder: Ino) -> Done<Vec<(Entry, Stat)>> {
    let mut entries = Vec::new();
    fs.open_folder(folder)?.list(0, |entry, _| {
        let hidden = folder == ROOT && [WORK, ".engram"].contains(&entry.name.as_str());
        if ![".", ".."].contains(&entry.name.as_str()) && !hidden {
            entries.push(entry.clone());
        }
        true
    })?;
    let mut all = Vec::with_capacity(entries.len());
    for entry in entries {
        match fs.stat_entry(&entry) {
            // It has gone since.
            Err(error) if [libc::ENOENT, libc::ESTALE].contains(&error.code) => {}
            stat => all.push((entry, stat?)),
        }
    }
    Ok(all)
}

impl StageOut<'_> {
    /// Looks at what is to be brought, and makes its folders.
    fn plan(&self, target: &Target) -> Done<Brought> {
        let Some(stat) = self.fs.walk(ROOT, &target.from)?.stat else {
            let why = "is not in the namespace: `engram ls POOL` shows what is";
            return Err(Failure::One(why.to_owned()));
        };
        let to = std::path::absolute(&target.to).map_err(outside)?;
        let log = Log::open(self.fs, self.work, &target.from, &to)?;
        let is_folder = stat.kind == NodeKind::Folder;
        let (folder, name) = match (is_folder, to.parent(), to.file_name()) {
            (true, ..) => (to.clone(), None),
            (false, Some(above), Some(name)) => {
                let name = name.to_string_lossy().into_owned();
                (above.to_owned(), Some(name))
            }
            _ => return Err(Failure::One(format!("cannot become {}", to.display()))),
        };
        let first = OutFolder {
            ino: stat.ino,
            stat,
            to: folder,
            path: String::new(),
            made: None,
            is_new: false,
        };
        let mut brought = Brought {
            folders: vec![first],
            entries: Vec::new(),
            whole: is_folder,
            from: target.from.trim_matches('/').to_owned(),
            key: Log::name(&target.from, &to),
            log,
            lines: Mutex::default(),
        };
        if let Some(name) = name {
            brought.entries.push(OutEntry { folder: 0, name, stat });
        }
        let mut next = 0;
        while next < brought.folders.len() {
            self.make_folder(&mut brought, next)?;
            if is_folder {
                self.list(&mut brought, next)?;
            }
            next += 1;
        }
        let mut entries = std::mem::take(&mut brought.entries);
        self.options.order.choose(&mut entries, |entry| brought.path_inside(entry));
        entries.retain(|entry| {
            let is_own = is_folder && entry.folder == 0 && self.writes(&entry.name);
            if is_own {
                let why = "is the name of what the stage itself writes there: rename it in the \
                           pool, and stage out again";
                self.progress.trouble(brought.path_inside(entry), why);
            }
            !is_own
        });
        brought.entries = entries;
        let files = brought.entries.iter().filter(|entry| entry.stat.kind == NodeKind::File);
        self.progress.bytes.fetch_add(files.map(|entry| entry.stat.size).sum(), Relaxed);
        self.progress.files.fetch_add(brought.entries.len() as u64, Relaxed);
        Ok(brought)
    }

    /// Whether the stage writes something of this name into a target.
    fn writes(&self, name: &str) -> bool {
        name == manifest::NAME || (self.options.sha256 && name == manifest::SHA256_NAME)
    }

    fn list(&self, brought: &mut Brought, folder: usize) -> Done<()> {
        let (ino, to, path) = {
            let OutFolder { ino, to, path, .. } = &brought.folders[folder];
            (*ino, to.clone(), path.clone())
        };
        for (entry, stat) in listed(self.fs, ino)? {
            if stat.kind == NodeKind::Folder {
                let (to, path) = (to.join(&entry.name), joined(&path, &entry.name));
                brought.folders.push(OutFolder {
                    ino: stat.ino,
                    stat,
                    to,
                    path,
                    made: None,
                    is_new: false,
                });
            } else {
                brought.entries.push(OutEntry { folder, name: entry.name, stat });
            }
        }
        Ok(())
    }

    fn make_folder(&self, brought: &mut Brought, number: usize) -> Done<()> {
        let to = &brought.folders[number].to;
        let made = match number {
            0 => create_with_parents(to),
            _ => DirBuilder::new().mode(0o700).create(to),
        };
        let is_new = made.is_ok();
        let there = match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => device_of(to, number == 0),
        };
        let there = match there {
            Ok(there) => Some(there),
            Err(error) if number == 0 => return Err(outside(error)),
            Err(error) => {
                outside(error).note(self.progress, &to.to_string_lossy());
                None
            }
        };
        let folder = &mut brought.folders[number];
        (folder.made, folder.is_new) = (there, is_new);
        Ok(())
    }

    fn copy_all(&self, all: &[Brought]) {
        let trees = all.iter().enumerate();
        let mut all: Vec<(usize, &Brought, &OutEntry)> = trees
            .flat_map(|(tree, one)| one.entries.iter().map(move |entry| (tree, one, entry)))
            .filter(|(_, one, entry)| one.folders[entry.folder].made.is_some())
            .collect();
        let size = |(.., entry): &(usize, &Brought, &OutEntry)| entry.stat.size;
        self.options.order.arrange(&mut all, |(_, one, entry)| one.path_inside(entry), size);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.options.workers.max(1).min(all.len()) {
                scope.spawn(|| {
                    let mut buffers = (vec![0; PIECE], Aligned::new());
                    while let Some((tree, brought, entry)) = all.get(next.fetch_add(1, Relaxed)) {
                        let stopped = || self.progress.is_stopped();
                        if stopped() || !self.pace.file(stopped) {
                            return;
                        }
                        if self.is_first_name(entry) {
                            self.copy(*tree, brought, entry, &mut buffers);
                        }
                    }
                });
            }
        });
    }

    fn linked(&self) -> std::sync::MutexGuard<'_, HashMap<Ino, Option<FirstName>>> {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the name of a file by which it is copied: its first, or its only one.
    fn is_first_name(&self, entry: &OutEntry) -> bool {
        if entry.stat.nlink < 2 {
            return true;
        }
        let mut linked = self.linked();
        let is_first = !linked.contains_key(&entry.stat.ino);
        linked.entry(entry.stat.ino).or_insert(None);
        is_first
    }

    fn copy(
        &self,
        tree: usize,
        brought: &Brought,
        entry: &OutEntry,
        buffers: &mut (Vec<u8>, Aligned),
    ) {
        let to = brought.to(entry);
        let copy = Copy { stage: self, brought, entry, to: &to };
        match copy.run(buffers) {
            Ok(()) if entry.stat.nlink > 1 => {
                let path = brought.path(entry);
                self.linked().insert(entry.stat.ino, Some(FirstName { tree, path }));
            }
            Ok(()) => {}
            Err(failure) => failure.note(self.progress, &brought.path_inside(entry)),
        }
    }

    /// Gives files their further names.
    fn link_all(&self, all: &[Brought]) {
        for brought in all {
            for entry in brought.entries.iter().filter(|entry| entry.stat.nlink > 1) {
                if self.progress.is_stopped() {
                    return;
                }
                let first = self.linked().get(&entry.stat.ino).cloned().flatten();
                let Some(first) = first else { continue };
                let (tree, to) = (&all[first.tree], brought.to(entry));
                if tree.folders[0].to.join(&first.path) == to {
                    continue;
                }
                match self.link(tree, &first.path, &to, brought, entry) {
                    Ok(()) => self.progress.looked(entry.stat.size),
                    Err(failure) => failure.note(self.progress, &brought.path_inside(entry)),
                }
            }
        }
    }

    fn link(
        &self,
        tree: &Brought,
        first: &str,
        to: &Path,
        brought: &Brought,
        entry: &OutEntry,
    ) -> Done<()> {
        let from = tree.folders[0].to.join(first);
        let seen = |path: &Path| fs::symlink_metadata(path).map(|meta| Seen::of(&meta));
        let own = seen(&from).map_err(outside)?;
        let there = seen(to).ok();
        if there.is_none_or(|there| (there.dev, there.ino) != (own.dev, own.ino)) {
            let path = brought.path(entry);
            // One that a stage has made, and nobody has changed since, makes way.
            let is_ours = there.zip(brought.log.written(&path)).is_some_and(|(there, written)| {
                Seen { changed: there.changed, ..written.copy } == there
            });
            match (there, self.options.existing) {
                (Some(_), Existing::Refuse) if !is_ours => {
                    return Err(is_there(&to.to_string_lossy()));
                }
                (Some(there), Existing::Update) if there.written >= entry.stat.written => {
                    return Ok(());
                }
                _ => {}
            }
            let part = part_of(self.fs, &brought.key, to);
            let _ = fs::remove_file(&part);
            // Until its log says how it is with the further name, it is known by all else.
            if let Some(written) = tree.log.written(first) {
                tree.log.note_naming(first, &written)?;
            }
            fs::hard_link(&from, &part).and_then(|()| fs::rename(&part, to)).map_err(outside)?;
            // A further name changes when the file was changed.
            if let Some(written) = tree.log.written(first) {
                let copy = seen(&from).map_err(outside)?;
                let written = Written { copy, ..written };
                tree.log.note_written(first, &written)?;
                brought.log.note_written(&path, &written)?;
            }
        }
        let path = brought.path(entry);
        let lines = tree.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.iter().find(|line| line.path == first).cloned();
        drop(lines);
        if let Some(line) = line {
            let mut lines = brought.lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(Line { path, ..line });
        }
        Ok(())
    }

    /// Gives folders what they are to have, makes them durable, and, if all was done, writes the
    /// manifest.
    fn finish(&self, brought: &Brought, done: bool) {
        if let Err(failure) = brought.check_devices() {
            return failure.note(self.progress, &brought.from);
        }
        let mut is_told = false;
        let made = brought.folders.iter().filter(|folder| folder.made.is_some());
        // The target is the last.
        for folder in made.collect::<Vec<_>>().into_iter().rev() {
            let is_target = folder.path.is_empty();
            let mut finished = Ok(());
            if is_target && brought.whole && done && self.progress.is_whole() {
                finished = self.tell(brought);
                is_told = finished.is_ok();
            }
            let finished = finished.and_then(|()| self.finish_folder(brought, folder, done));
            if let Err(failure) = finished {
                failure.note(self.progress, &folder.to.to_string_lossy());
                if is_told {
                    // It would say that all of the stage was done.
                    let _ = fs::remove_file(folder.to.join(manifest::NAME));
                }
            }
        }
    }

    fn finish_folder(&self, brought: &Brought, folder: &OutFolder, done: bool) -> Done<()> {
        let mut how = OpenOptions::new();
        // Below the target, a link in a folder's place is somebody else's.
        let nofollow = if folder.path.is_empty() { 0 } else { libc::O_NOFOLLOW };
        how.read(true).custom_flags(libc::O_DIRECTORY | nofollow);
        let open = how.open(&folder.to).map_err(outside)?;
        // What the folder of a single file is, or one that was there above all, is not the stage's.
        if brought.whole && folder.ino != ROOT {
            // Until all is there, its owner has to be able to put the rest into it.
            let mode = folder.stat.mode | if done { 0 } else { 0o700 };
            self.give(&open, &folder.to, &Stat { mode, ..folder.stat })?;
        }
        if self.options.verify != Verify::Size {
            match open.sync_all() {
                // A file system that keeps no folder in memory knows no such call.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                synced => synced.map_err(outside)?,
            }
        }
        Ok(())
    }

    /// Writes the manifest, and beside it what `sha256sum -c` reads, if there are such sums. Lines
    /// of an earlier one stay, of files that this stage has not touched and that are there still.
    fn tell(&self, brought: &Brought) -> Done<()> {
        let folder = &brought.folders[0].to;
        let mut lines = Vec::new();
        if let Ok(text) = fs::read_to_string(folder.join(manifest::NAME))
            && let Ok(earlier) = Manifest::parse(&text)
        {
            let there = |line: &&Line| fs::symlink_metadata(folder.join(&line.path)).is_ok();
            lines.extend(earlier.lines().iter().filter(there).cloned());
        }
        let own = brought.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend(own.iter().cloned());
        drop(own);
        let manifest = Manifest::new(lines);
        if self.options.sha256 {
            let text = manifest.sha256_text();
            put(self.fs, &brought.key, folder, manifest::SHA256_NAME, text.as_bytes())?;
        }
        put(self.fs, &brought.key, folder, manifest::NAME, manifest.text().as_bytes())
    }

    /// Gives a node outside its owner, mode, attributes and times.
    fn give(&self, open: &File, path: &Path, stat: &Stat) -> Done<()> {
        if self.options.keep_owners {
            let now = open.metadata().map_err(outside)?;
            if (now.uid(), now.gid()) != (stat.uid, stat.gid) {
                let (uid, gid) = (Uid::from_raw(stat.uid), Gid::from_raw(stat.gid));
                rustix::fs::fchown(open, Some(uid), Some(gid)).map_err(outside)?;
            }
        }
        for name in self.fs.list_xattr(stat.ino)? {
            if name.starts_with("user.engram.") {
                continue;
            }
            let value = self.fs.get_xattr(stat.ino, name.as_bytes())?;
            let set = rustix::fs::fsetxattr(open, name.as_str(), &value, XattrFlags::empty());
            if let Err(error) = set {
                let path = path.display();
                return Err(Failure::One(format!(
                    "the attribute {name} cannot be kept at {path}: {}",
                    io::Error::from(error)
                )));
            }
        }
        // Attributes first: one that may not be written to takes none any more.
        let mode = self.mode_of(stat);
        rustix::fs::fchmod(open, mode).map_err(outside)?;
        rustix::fs::futimens(open, &times(stat)).map_err(outside)
    }

    /// The mode that a copy is to have. A program that runs as its owner does so only if that is
    /// whom the file in the pool belongs to.
    fn mode_of(&self, stat: &Stat) -> Mode {
        let keeps = |own: u32, theirs: u32| self.options.keep_owners || own == theirs;
        let mut mode = stat.mode;
        if stat.kind != NodeKind::Folder {
            if !keeps(self.maker.uid, stat.uid) {
                mode &= !0o4000;
            }
            if !keeps(self.maker.gid, stat.gid) {
                mode &= !0o2000;
            }
        }
        Mode::from_raw_mode(mode.into())
    }
}

fn times(stat: &Stat) -> Timestamps {
    let of = |at: i64| Timespec {
        tv_sec: at.div_euclid(1_000_000_000),
        tv_nsec: at.rem_euclid(1_000_000_000) as _,
    };
    Timestamps { last_access: of(stat.accessed), last_modification: of(stat.written) }
}

/// Where a copy of a pair of paths is written until it takes its name. Stages of other pairs, and
/// of other pools, have others for the same name: none takes its name with another one's bytes.
fn part_of(fs: &Fs, key: &str, to: &Path) -> PathBuf {
    let name = to.file_name().unwrap_or_default().as_bytes();
    let namespace = fs.namespace();
    let uuid = namespace.uuid();
    let whose = [uuid.as_bytes(), namespace.namespace().as_bytes(), key.as_bytes(), name];
    let sum = Sum::of(&whose.join(&b'\0'), false);
    to.with_file_name(format!(".engram-{sum}.part"))
}

/// Writes a file in a folder, whole.
fn put(fs: &Fs, key: &str, folder: &Path, name: &str, bytes: &[u8]) -> Done<()> {
    let to = folder.join(name);
    let part = part_of(fs, key, &to);
    let write = || -> io::Result<()> {
        let file = anew(&part)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        step!("stage.manifest-written");
        fs::rename(&part, &to)?;
        step!("stage.manifest-named");
        Ok(())
    };
    write().map_err(outside)
}

/// A file that nobody else has, in place of what a stage may have left.
fn anew(part: &Path) -> io::Result<File> {
    let create =
        || OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(part);
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(part)?;
            create()
        }
        created => created,
    }
}

/// What tells a file's state in the pool.
pub(crate) fn source_of(stat: &Stat) -> Seen {
    Seen { dev: 0, ino: stat.ino, size: stat.size, written: stat.written, changed: 0 }
}
