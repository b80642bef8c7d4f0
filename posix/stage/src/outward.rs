//! Stage-out: trees of a pool brought to the kernel's file systems.
//!
//! *Protocol*. A copy is written beside its place, as `.engram-….part`. It gets its mode, owner,
//! attributes and times, is made durable, and is looked at ([`Verify`]). Then it takes its name.
//! The stage's [log](crate::log) says so, and of a large file also which parts are durable. Whoever
//! dies leaves whole files under their names, and `.part` files that the next one goes on with. At
//! last the folders get their times, and the [manifest](crate::manifest) is written, whole: it is
//! there only if all of the stage was done.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use engram::faults::step;
use engram_fs::{Entry, Errno, Fs, Handle, Ino, Maker, NodeKind, OpenFlags, ROOT, Stat, Whence};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};

use crate::check::{Aligned, sum_of};
use crate::failure::{Done, Failure, is_there, outside, stopped};
use crate::inward::{WORK, folder_of};
use crate::log::{Log, Written};
use crate::manifest::{self, Line, Manifest, What};
use crate::options::{Existing, Options, Verify};
use crate::pace::Pace;
use crate::progress::{Progress, Report};
use crate::staged::Staged;
use crate::sum::{RunningSum, Sum};
use crate::tree::Seen;

/// So many bytes are written at a time.
const PIECE: usize = 256 << 10;
/// So often a file is read that others write to meanwhile.
const READS: u32 = 3;

/// What is to be brought, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The path of a folder, of which the whole tree is brought, or of a file in the namespace.
    pub from: String,
    /// The path that it is to have outside. A folder that is there gets what it lacks.
    pub to: PathBuf,
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
        let why = match device_of(&self.to) {
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

/// The device of a folder outside. (Its number may change on a file system that a process serves.)
fn device_of(folder: &Path) -> io::Result<u64> {
    let meta = fs::metadata(folder)?;
    if meta.is_dir() { Ok(meta.dev()) } else { Err(io::ErrorKind::NotADirectory.into()) }
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
            return Err(Failure::One("is not in the namespace".to_owned()));
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
        brought.entries = entries;
        let files = brought.entries.iter().filter(|entry| entry.stat.kind == NodeKind::File);
        self.progress.bytes.fetch_add(files.map(|entry| entry.stat.size).sum(), Relaxed);
        self.progress.files.fetch_add(brought.entries.len() as u64, Relaxed);
        Ok(brought)
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
            0 => fs::create_dir_all(to),
            _ => DirBuilder::new().mode(0o700).create(to),
        };
        let is_new = number > 0 && made.is_ok();
        let there = match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => device_of(to),
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
            match (there, self.options.existing) {
                (Some(_), Existing::Refuse) => return Err(is_there(&to.to_string_lossy())),
                (Some(there), Existing::Update) if there.written >= entry.stat.written => {
                    return Ok(());
                }
                _ => {}
            }
            let part = part_of(self.fs, to);
            let _ = fs::remove_file(&part);
            // Until its log says how it is with the further name, it is known by all else.
            if let Some(written) = tree.log.written(first) {
                tree.log.note_naming(first, &written)?;
            }
            fs::hard_link(&from, &part).and_then(|()| fs::rename(&part, to)).map_err(outside)?;
            // A further name changes when the file was changed.
            if let Some(written) = tree.log.written(first) {
                let copy = seen(&from).map_err(outside)?;
                tree.log.note_written(first, &Written { copy, ..written })?;
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
        if brought.whole
            && done
            && let Err(failure) = self.tell(brought)
        {
            failure.note(self.progress, &brought.folders[0].to.to_string_lossy());
        }
        let made = brought.folders.iter().filter(|folder| folder.made.is_some());
        for folder in made.collect::<Vec<_>>().into_iter().rev() {
            let finished = self.finish_folder(brought, folder, done);
            if let Err(failure) = finished {
                failure.note(self.progress, &folder.to.to_string_lossy());
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
            put(self.fs, folder, "MANIFEST.sha256", manifest.sha256_text().as_bytes())?;
        }
        put(self.fs, folder, manifest::NAME, manifest.text().as_bytes())
    }

    /// Gives a node outside its owner, mode, attributes and times.
    fn give(&self, open: &File, path: &Path, stat: &Stat) -> Done<()> {
        let owner = if self.options.keep_owners {
            Maker { uid: stat.uid, gid: stat.gid }
        } else {
            self.maker
        };
        let now = open.metadata().map_err(outside)?;
        if self.options.keep_owners && (now.uid(), now.gid()) != (owner.uid, owner.gid) {
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            rustix::fs::fchown(open, Some(uid), Some(gid)).map_err(outside)?;
        }
        rustix::fs::fchmod(open, Mode::from_raw_mode(stat.mode.into())).map_err(outside)?;
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
        rustix::fs::futimens(open, &times(stat)).map_err(outside)
    }
}

fn times(stat: &Stat) -> Timestamps {
    let of = |at: i64| Timespec {
        tv_sec: at.div_euclid(1_000_000_000),
        tv_nsec: at.rem_euclid(1_000_000_000) as _,
    };
    Timestamps { last_access: of(stat.accessed), last_modification: of(stat.written) }
}

/// Where a copy is written until it takes its name. Stages of other pools have others for the same
/// name: none takes its name with another one's bytes.
pub fn part_of(fs: &Fs, to: &Path) -> PathBuf {
    let name = to.file_name().unwrap_or_default().as_bytes();
    let namespace = fs.namespace();
    let whose = [namespace.uuid().as_bytes(), namespace.namespace().as_bytes()];
    let sum = Sum::of(&[whose[0], b"\0", whose[1], b"\0", name].concat(), false);
    to.with_file_name(format!(".engram-{sum}.part"))
}

/// Writes a file in a folder, whole.
fn put(fs: &Fs, folder: &Path, name: &str, bytes: &[u8]) -> Done<()> {
    let to = folder.join(name);
    let part = part_of(fs, &to);
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

/// One entry that is copied.
struct Copy<'a> {
    stage: &'a StageOut<'a>,
    brought: &'a Brought,
    entry: &'a OutEntry,
    to: &'a Path,
}

impl Copy<'_> {
    fn told(&self, what: What, size: u64, sum: Sum, reused: bool) {
        let line = Line { what, size, sum, path: self.brought.path(self.entry) };
        let progress = self.stage.progress;
        if reused {
            progress.reused_bytes(size);
        }
        progress.looked(0);
        self.brought.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn run(&self, buffers: &mut (Vec<u8>, Aligned)) -> Done<()> {
        let found = if self.brought.folders[self.entry.folder].is_new {
            Err(io::ErrorKind::NotFound.into())
        } else {
            fs::symlink_metadata(self.to)
        };
        let there = match found {
            Ok(meta) => Some(meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(outside(error)),
        };
        match self.entry.stat.kind {
            NodeKind::File => self.file(there.as_ref(), buffers),
            NodeKind::Symlink => self.symlink(there.as_ref()),
            _ => self.special(there.as_ref()),
        }
    }

    /// What becomes of another file that has the name: whether it is replaced. One that a stage has
    /// written, and nobody since, makes way.
    fn replaces(&self, there: &fs::Metadata, written: Option<&Written>) -> Done<bool> {
        if there.is_dir() {
            return Err(Failure::One(format!(
                "{} is a folder: remove it, or stage elsewhere",
                self.to.display()
            )));
        }
        let seen = Seen::of(there);
        if written.is_some_and(|written| written.copy == seen) {
            return Ok(true);
        }
        match self.stage.options.existing {
            Existing::Overwrite => Ok(true),
            Existing::Update => Ok(seen.written < self.entry.stat.written),
            Existing::Refuse => Err(is_there(&self.to.to_string_lossy())),
        }
    }

    fn file(&self, there: Option<&fs::Metadata>, buffers: &mut (Vec<u8>, Aligned)) -> Done<()> {
        let Copy { stage, brought, entry, to } = self;
        let path = brought.path(entry);
        let written = match self.known(&path, there)? {
            None => self.source_there(&path, there)?,
            written => written,
        };
        if let (Some(there), Some(written)) = (there, &written) {
            let sums = written.sum.sha256.is_some() || !stage.options.sha256;
            let same = written.source == source_of(&entry.stat) && sums;
            if same && written.copy == Seen::of(there) {
                self.told(What::File, entry.stat.size, written.sum, true);
                return Ok(());
            }
        }
        if let Some(there) = there
            && !self.replaces(there, written.as_ref())?
        {
            stage.progress.looked(entry.stat.size);
            return Ok(());
        }
        for _ in 0..READS {
            let flags = OpenFlags { read: true, ..OpenFlags::default() };
            let source = stage.fs.open(entry.stat.ino, flags)?;
            let stat = source.stat()?;
            let part = part_of(stage.fs, to);
            let Some((open, sum)) = self.write(&source, &stat, &part, &path, &mut buffers.0)?
            else {
                continue;
            };
            stage.give(&open, &part, &stat)?;
            // Also where the size is enough: what the log says is there has to be there.
            open.sync_all().map_err(outside)?;
            step!("stage.copy-written");
            if stage.options.verify == Verify::Readback {
                self.look(&part, stat.size, sum, &mut buffers.1)?;
            }
            step!("stage.copy-looked-at");
            let seen = || open.metadata().map(|meta| Seen::of(&meta)).map_err(outside);
            let copied = Written { source: source_of(&stat), copy: seen()?, sum };
            brought.log.note_naming(&path, &copied)?;
            self.take_name(&part, there)?;
            step!("stage.copy-named");
            brought.log.note_written(&path, &Written { copy: seen()?, ..copied })?;
            step!("stage.copy-logged");
            self.told(What::File, stat.size, sum, false);
            return Ok(());
        }
        Err(Failure::One(format!(
            "was written to while it was copied, {READS} times: stage it when nobody writes to it"
        )))
    }

    /// What the log says of a copy: also of one that has its name, and whose stage died before it
    /// could say so.
    fn known(&self, path: &str, there: Option<&fs::Metadata>) -> Done<Option<Written>> {
        let (log, seen) = (&self.brought.log, there.map(Seen::of));
        let written = log.written(path);
        if let Some(seen) = seen
            && written.is_none_or(|written| written.copy != seen)
            && let Some(named) = log.named(path, seen)
        {
            let named = Written { copy: seen, ..named };
            log.note_written(path, &named)?;
            return Ok(Some(named));
        }
        Ok(written)
    }

    /// What there is to say of a file that was staged in from there, and of which neither side was
    /// changed since: it is outside already.
    fn source_there(&self, path: &str, there: Option<&fs::Metadata>) -> Done<Option<Written>> {
        let stat = &self.entry.stat;
        let (Some(there), Some(staged)) = (there, Staged::of(self.stage.fs, stat.ino)?) else {
            return Ok(None);
        };
        let seen = Seen::of(there);
        let Some(sum) = staged.sum.filter(|_| staged.source == seen && staged.is_untouched(stat))
        else {
            return Ok(None);
        };
        let written = Written { source: source_of(stat), copy: seen, sum };
        self.brought.log.note_written(path, &written)?;
        Ok(Some(written))
    }

    /// Takes the name, of what had it if there was something, and of nothing else.
    fn take_name(&self, part: &Path, there: Option<&fs::Metadata>) -> Done<()> {
        let taken = || is_there(&self.to.to_string_lossy());
        // Else it could come to lie below the place where the right one was mounted.
        self.brought.folders[self.entry.folder].check()?;
        if let Some(there) = there {
            // What was decided on may have made way for something else while this was copied.
            let now = fs::symlink_metadata(self.to).map_err(outside)?;
            if Seen::of(&now) != Seen::of(there) {
                return Err(taken());
            }
            return fs::rename(part, self.to).map_err(outside);
        }
        match rustix::fs::renameat_with(CWD, part, CWD, self.to, RenameFlags::NOREPLACE) {
            // A file system that knows no such renaming, as many that nodes share.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
            Err(rustix::io::Errno::EXIST) => return Err(taken()),
            renamed => return renamed.map_err(outside),
        }
        match fs::hard_link(part, self.to) {
            Ok(()) => fs::remove_file(part).map_err(outside),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(taken()),
            // Nor further names: a look is all that can be had.
            Err(_) if fs::symlink_metadata(self.to).is_ok() => Err(taken()),
            Err(_) => fs::rename(part, self.to).map_err(outside),
        }
    }

    /// Reads the copy again.
    fn look(&self, part: &Path, size: u64, sum: Sum, piece: &mut Aligned) -> Done<()> {
        let (found_size, found) = sum_of(part, false, piece).map_err(outside)?;
        if found_size == size && found.xxh3 == sum.xxh3 {
            return Ok(());
        }
        // What is there is not to be gone on with.
        let _ = fs::remove_file(part);
        Err(Failure::One(format!(
            "the copy at {} has {found_size} bytes that sum up to {found}, read again, and the \
             file {size} that sum up to {sum}: it was removed, and the file is in the pool; look \
             at the file system, and stage out again",
            self.to.display()
        )))
    }

    /// Writes the copy, or what it lacks; `None`: the file was written to meanwhile.
    fn write(
        &self,
        source: &Handle,
        stat: &Stat,
        part: &Path,
        path: &str,
        buffer: &mut [u8],
    ) -> Done<Option<(File, Sum)>> {
        let stage = self.stage;
        let from = source_of(stat);
        let parts = self.brought.log.parts(path, &from);
        let part_bytes = stage.options.part;
        let mut durable = parts.saturating_mul(part_bytes).min(stat.size);
        let file = if let Some(file) = continued(part, durable) {
            file
        } else {
            durable = 0;
            anew(part).map_err(outside)?
        };
        let mut sum = RunningSum::new(stage.options.sha256);
        let (mut at, mut written) = (0, 0);
        while at < stat.size {
            let (data, hole) = next_data(source, at, stat.size)?;
            sum.add_zeros(data - at);
            stage.progress.bytes_done.fetch_add(data - at, Relaxed);
            at = data;
            while at < hole {
                // Within a part, so that each ends where the log can say so.
                let end = hole.min((at / part_bytes + 1) * part_bytes);
                let most = buffer.len().min((end - at) as usize);
                let count = source.read(at, &mut buffer[..most])?;
                if count == 0 {
                    return Ok(None);
                }
                sum.add(&buffer[..count]);
                if at >= durable {
                    if !stage.pace.bytes(count as u64, || stage.progress.is_stopped()) {
                        return Err(stopped());
                    }
                    file.write_all_at(&buffer[..count], at).map_err(outside)?;
                    written = at + count as u64;
                }
                at += count as u64;
                stage.progress.bytes_done.fetch_add(count as u64, Relaxed);
                if at.is_multiple_of(part_bytes) && at > durable && at < stat.size {
                    file.sync_data().map_err(outside)?;
                    step!("stage.part-written");
                    self.brought.log.note_parts(path, &from, at / part_bytes)?;
                    step!("stage.part-logged");
                }
            }
        }
        if written != stat.size || durable > 0 {
            // A hole at its end; or a part that was longer once.
            file.set_len(stat.size).map_err(outside)?;
        }
        let now = source.stat()?;
        if source_of(&now) != from {
            stage.progress.bytes_done.fetch_sub(stat.size, Relaxed);
            return Ok(None);
        }
        Ok(Some((file, sum.done())))
    }

    fn symlink(&self, there: Option<&fs::Metadata>) -> Done<()> {
        let stage = self.stage;
        let target = stage.fs.readlink(self.entry.stat.ino)?;
        let sum = Sum::of(&target, stage.options.sha256);
        let target_path = Path::new(std::ffi::OsStr::from_bytes(&target));
        if let Some(there) = there {
            let same = fs::read_link(self.to).is_ok_and(|found| found == target_path);
            if same {
                self.told(What::Link, target.len() as u64, sum, true);
                return Ok(());
            }
            if !self.replaces(there, None)? {
                stage.progress.looked(0);
                return Ok(());
            }
        }
        let part = part_of(self.stage.fs, self.to);
        let _ = fs::remove_file(&part);
        symlink(target_path, &part).map_err(outside)?;
        self.finish_node(&part, there)?;
        self.told(What::Link, target.len() as u64, sum, false);
        Ok(())
    }

    fn special(&self, there: Option<&fs::Metadata>) -> Done<()> {
        let stat = &self.entry.stat;
        if let Some(there) = there {
            let same = NodeKind::of_mode(there.mode()) == Some(stat.kind);
            if (same && there.rdev() == stat.rdev) || !self.replaces(there, None)? {
                self.stage.progress.looked(0);
                return Ok(());
            }
        }
        let part = part_of(self.stage.fs, self.to);
        let _ = fs::remove_file(&part);
        let kind = match stat.kind {
            NodeKind::Fifo => FileType::Fifo,
            NodeKind::Socket => FileType::Socket,
            NodeKind::CharDevice => FileType::CharacterDevice,
            _ => FileType::BlockDevice,
        };
        let mode = Mode::from_raw_mode(stat.mode.into());
        rustix::fs::mknodat(CWD, &part, kind, mode, stat.rdev).map_err(outside)?;
        self.finish_node(&part, there)?;
        self.stage.progress.looked(0);
        Ok(())
    }

    /// Gives what is no file its owner and times, and its name.
    fn finish_node(&self, part: &Path, there: Option<&fs::Metadata>) -> Done<()> {
        let stat = &self.entry.stat;
        if self.stage.options.keep_owners {
            let (uid, gid) = (Uid::from_raw(stat.uid), Gid::from_raw(stat.gid));
            rustix::fs::chownat(CWD, part, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(outside)?;
        }
        if stat.kind != NodeKind::Symlink {
            rustix::fs::chmod(part, Mode::from_raw_mode(stat.mode.into())).map_err(outside)?;
        }
        rustix::fs::utimensat(CWD, part, &times(stat), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(outside)?;
        self.take_name(part, there)
    }
}

/// A half-made copy that has as many bytes as its log says; `None`: there is none.
fn continued(part: &Path, durable: u64) -> Option<File> {
    if durable == 0 {
        return None;
    }
    let mut how = OpenOptions::new();
    how.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = how.open(part).ok()?;
    let meta = file.metadata().ok()?;
    // One with a second name is another file's, too.
    (meta.is_file() && meta.nlink() == 1 && meta.len() >= durable).then_some(file)
}

/// A file that nobody else has, in place of what a stage may have left.
fn anew(part: &Path) -> io::Result<File> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(part)
}

/// What tells a file's state in the pool.
pub(crate) fn source_of(stat: &Stat) -> Seen {
    Seen { dev: 0, ino: stat.ino, size: stat.size, written: stat.written, changed: 0 }
}

/// Where the next data of a file in the pool begins and ends.
fn next_data(source: &Handle, at: u64, end: u64) -> Done<(u64, u64)> {
    match source.seek(Whence::Data, at) {
        Ok(data) if data < end => {
            let hole = source.seek(Whence::Hole, data)?;
            Ok((data.max(at), hole.min(end).max(data)))
        }
        Ok(_) => Ok((end, end)),
        Err(error) if error.code == libc::ENXIO => Ok((end, end)),
        Err(error) => Err(error.into()),
    }
}
