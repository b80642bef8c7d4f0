//! Stage-in: trees of the kernel's file systems brought into a pool.
//!
//! *Protocol*. A file of at most [`SMALL`] bytes comes in one commit, with its mode, times and
//! attributes; small files that are new come together, up to 64 of them. A larger one is made under
//! a name of its own in the stage's [work folder](WORK), part by part; how many parts are there, an
//! attribute says ([`PARTS`]). When all are, it gets what else it is to have, and then, in one
//! commit, its own name. Whoever dies leaves whole files, and parts that the next one goes on with.
//! A source that was changed while it was read is read again, a few times; then it is a
//! [`Trouble`](crate::Trouble).

mod copy;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use engram::faults::step;
use engram::telemetry::operation;
use engram::{Clash, Member, Value};
use engram_fs::xattr::value_of_bytes;
use engram_fs::{Changes, Errno, Fs, Given, Ino, Maker, NodeKind, ROOT, Stat, Time, Whole};

use crate::awaited::Awaited;
use crate::failure::{Done, Failure, is_there};
use crate::manifest::{self, Line, What};
use crate::options::{Existing, Options, Order};
use crate::pace::Pace;
use crate::plan::pair_key;
use crate::progress::{Progress, Report};
use crate::staged::Staged;
use crate::sum::Sum;
use crate::tree::{self, Outside, Tree, TreeEntry};
use copy::Copy;

/// The folder that stages work in, in a namespace's root.
pub const WORK: &str = ".engram-stage";
/// The attribute that says how many parts of a file are there.
pub const PARTS: &str = "engram.parts";
/// Files up to so many bytes come in one commit.
pub const SMALL: u64 = 1 << 20;
/// So many bytes are read at a time: they stay in a cache until they are written and summed up.
const PIECE: usize = 256 << 10;
/// So many small files come in one commit at most, and so many bytes of them.
const GATHERED: (usize, usize) = (64, 1 << 20);

/// What is to be brought, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A folder, of which the whole tree is brought, or a file.
    pub from: PathBuf,
    /// The path that it is to have in the namespace. A folder that is there gets what it lacks.
    pub to: String,
    /// The device of the pool that its bytes are to lie on; `None`: wherever there is room.
    pub device: Option<u32>,
}

impl Source {
    /// A source whose bytes lie wherever there is room.
    pub fn new(from: impl Into<PathBuf>, to: impl Into<String>) -> Source {
        Source { from: from.into(), to: to.into(), device: None }
    }
}

/// A tree, and where its folders are in the pool.
pub(crate) struct Brought {
    root: PathBuf,
    tree: Tree,
    /// The name of the one entry that a tree without folders of its own has.
    renamed: Option<Vec<u8>>,
    /// `None`: it could not be made, and what is in it is not brought.
    folders: Vec<Option<Ino>>,
    /// Where the root is in the pool.
    to: String,
    /// What tells it from other pairs of a path outside and one in the namespace.
    pub key: String,
    device: Option<u32>,
}

impl Brought {
    fn from(&self, entry: &TreeEntry) -> PathBuf {
        self.root.join(self.tree.path_of(entry))
    }

    fn name<'n>(&'n self, entry: &'n TreeEntry) -> &'n [u8] {
        self.renamed.as_deref().unwrap_or(entry.name.as_bytes())
    }

    /// The path of an entry in the namespace.
    fn path(&self, entry: &TreeEntry) -> String {
        let folder = self.tree.folders[entry.folder as usize].path.to_string_lossy();
        let name = String::from_utf8_lossy(self.name(entry));
        let parts = [self.to.as_str(), &folder, &name];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    }

    /// The names that are to be there, each with the number of its folder.
    pub(crate) fn names(&self) -> impl Iterator<Item = (Ino, &[u8])> {
        let entries = self.tree.entries.iter();
        entries.filter_map(|entry| Some((self.folders[entry.folder as usize]?, self.name(entry))))
    }

    /// Leaves out what is not to be brought.
    fn choose(&mut self, order: &Order) {
        let mut entries = std::mem::take(&mut self.tree.entries);
        order.choose(&mut entries, |entry| self.path(entry));
        self.tree.entries = entries;
    }
}

/// Whether something outside is what a stage has left beside files: its manifests, half-made
/// copies, and the work folder of a pool that was copied as a whole.
fn is_left(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [manifest::NAME, manifest::SHA256_NAME, WORK].map(Path::new).contains(&path)
        || (name.starts_with(".engram-") && name.ends_with(".part"))
}

/// How the names of a pair's half-made copies begin, in the work folder.
pub(crate) fn hidden_of(key: &str) -> String {
    format!("in-{}-", &key[..16])
}

/// A stage-in at work.
pub(crate) struct StageIn<'a> {
    pub fs: &'a Fs,
    options: &'a Options,
    pace: &'a Pace,
    progress: &'a Progress,
    pub work: Ino,
    pub maker: Maker,
    /// Files outside that have several names: by which of them each is copied.
    linked: Mutex<HashMap<(u64, u64), FirstName>>,
    /// What programs wait for, if they are to.
    awaited: OnceLock<Awaited>,
}

/// The name by which a file is copied that has several.
struct FirstName {
    folder: Ino,
    name: Vec<u8>,
    /// What it is in the pool, once it is there.
    node: Option<Ino>,
}

/// What a thread works with.
struct Worker<'b> {
    buffer: Vec<u8>,
    /// Small files that were read, and are not in the pool yet.
    read: Vec<ReadFile<'b>>,
}

/// A small file that was read.
struct ReadFile<'b> {
    brought: &'b Brought,
    entry: &'b TreeEntry,
    /// The folder that it is to be in.
    folder: Ino,
    name: &'b [u8],
    from: PathBuf,
    given: Given,
    bytes: Vec<u8>,
    line: Line,
}

impl ReadFile<'_> {
    fn whole(&self) -> Whole<'_> {
        let ReadFile { folder, name, given, bytes, .. } = self;
        Whole { parent: *folder, name, given, value: bytes }
    }
}

/// What came of an entry.
enum Copied {
    /// It is in the pool, by this number.
    There(Ino),
    /// It was read, and is to be put under a name that is free.
    Read { given: Given, bytes: Vec<u8>, sum: Sum },
}

/// What tells a file of the kernel's from all others.
fn key_of(entry: &TreeEntry) -> (u64, u64) {
    (entry.outside.seen.dev, entry.outside.seen.ino)
}

/// Brings trees into a namespace. What could not be brought the report says; an error, that nobody
/// could go on.
pub fn stage_in(
    fs: &Fs,
    sources: &[Source],
    options: &Options,
    pace: &Pace,
    progress: &Progress,
) -> engram::Result<Report> {
    let _operation = operation!(INFO, "stage.in", trees = sources.len());
    let begun = Instant::now();
    let maker = Maker::this_process()?;
    let work = folder_of(fs, ROOT, WORK.as_bytes(), 0o700, maker)?;
    let (linked, awaited) = (Mutex::default(), OnceLock::new());
    let stage = StageIn { fs, options, pace, progress, work, maker, linked, awaited };
    let brought: Vec<Brought> = sources.iter().filter_map(|source| stage.plan(source)).collect();
    if options.awaited && !brought.is_empty() {
        let awaited = Awaited::announce(&stage, &brought)?;
        stage.awaited.get_or_init(|| awaited);
    }
    stage.copy_all(&brought);
    stage.link_all(&brought);
    stage.finish_folders(&brought);
    let untold = stage.awaited.get().map_or(Ok(()), |awaited| awaited.end(&stage));
    let (report, fatal) = progress.report(begun.elapsed());
    match fatal {
        Some(error) => Err(error),
        None => Ok(untold.map(|()| report)?),
    }
}

/// A folder in another, made if it is not there.
pub(crate) fn folder_of(
    fs: &Fs,
    parent: Ino,
    name: &[u8],
    mode: u32,
    maker: Maker,
) -> engram_fs::Result<Ino> {
    loop {
        match fs.lookup(parent, name) {
            Ok(stat) if stat.kind == NodeKind::Folder => return Ok(stat.ino),
            Ok(_) => {
                let name = name.escape_ascii();
                let why = format!("{name} is no folder there, and the source is one");
                return Err(Errno::new(libc::ENOTDIR, why));
            }
            Err(error) if error.code != libc::ENOENT => return Err(error),
            Err(_) => {}
        }
        match fs.mkdir(parent, name, mode, maker) {
            // Another was quicker.
            Err(error) if error.code == libc::EEXIST => {}
            made => return made.map(|stat| stat.ino),
        }
    }
}

impl StageIn<'_> {
    /// Looks at a source, and makes its folders.
    fn plan(&self, source: &Source) -> Option<Brought> {
        let shown = source.from.to_string_lossy();
        let is_folder = match fs::metadata(&source.from) {
            Ok(meta) => meta.is_dir(),
            Err(error) => {
                self.progress.trouble(shown, error.to_string());
                return None;
            }
        };
        let to = source.to.trim_matches('/').to_owned();
        let found = if is_folder {
            Tree::walk(&source.from, |path| !is_left(path))
        } else {
            Tree::of_one(&source.from)
        };
        let tree = match found {
            Ok(tree) => tree,
            Err(error) => {
                self.progress.trouble(shown, error.to_string());
                return None;
            }
        };
        for unseen in &tree.unseen {
            let path = source.from.join(&unseen.path);
            self.progress.trouble(path.to_string_lossy(), unseen.why.as_str());
        }
        let (root, to, renamed) = if is_folder {
            (source.from.clone(), to, None)
        } else {
            let above = source.from.parent().unwrap_or(Path::new("")).to_owned();
            let (to, name) = match to.rsplit_once('/') {
                Some((to, name)) => (to.to_owned(), name),
                None => (String::new(), to.as_str()),
            };
            (above, to, Some(name.as_bytes().to_vec()))
        };
        let outside = std::path::absolute(&source.from).unwrap_or_else(|_| source.from.clone());
        let key = pair_key(outside.as_os_str().as_bytes(), source.to.trim_matches('/').as_bytes());
        let (folders, device) = (Vec::new(), source.device);
        let mut brought = Brought { root, tree, renamed, folders, to, key, device };
        brought.choose(&self.options.order);
        self.progress.files.fetch_add(brought.tree.entries.len() as u64, Relaxed);
        self.progress.bytes.fetch_add(brought.tree.bytes(), Relaxed);
        self.make_folders(&mut brought);
        Some(brought)
    }

    fn make_folders(&self, brought: &mut Brought) {
        let mut top = Ok(ROOT);
        for name in brought.to.split('/').filter(|name| !name.is_empty()) {
            top =
                top.and_then(|above| folder_of(self.fs, above, name.as_bytes(), 0o755, self.maker));
        }
        for (number, folder) in brought.tree.folders.iter().enumerate() {
            let made = match brought.folders.get(folder.above as usize) {
                _ if number == 0 => std::mem::replace(&mut top, Ok(ROOT)).map(Some),
                Some(Some(above)) => {
                    let name = folder.path.file_name().unwrap_or_default().as_bytes();
                    folder_of(self.fs, *above, name, 0o700, self.maker).map(Some)
                }
                _ => Ok(None),
            };
            let made = made.unwrap_or_else(|error| {
                let path = brought.root.join(&folder.path);
                self.note(&path, error.into());
                None
            });
            brought.folders.push(made);
        }
    }

    fn note(&self, path: &Path, failure: Failure) {
        failure.note(self.progress, &path.to_string_lossy());
    }

    /// Copies everything but further names.
    fn copy_all(&self, brought: &[Brought]) {
        let mut all: Vec<(&Brought, &TreeEntry)> = brought
            .iter()
            .flat_map(|one| one.tree.entries.iter().map(move |entry| (one, entry)))
            .collect();
        let size = |(_, entry): &(&Brought, &TreeEntry)| entry.outside.seen.size;
        self.options.order.arrange(&mut all, |(one, entry)| one.path(entry), size);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.options.workers.max(1).min(all.len()) {
                scope.spawn(|| {
                    let mut worker = Worker { buffer: vec![0; PIECE], read: Vec::new() };
                    while let Some((brought, entry)) = all.get(next.fetch_add(1, Relaxed)) {
                        if self.progress.is_stopped() {
                            break;
                        }
                        self.copy(brought, entry, &mut worker);
                    }
                    self.put_read(&mut worker.read);
                });
            }
        });
    }

    fn linked(&self) -> MutexGuard<'_, HashMap<(u64, u64), FirstName>> {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the name of a file by which it is copied: its first, or its only one.
    fn is_first_name(&self, entry: &TreeEntry, folder: Ino, name: &[u8]) -> bool {
        if entry.outside.names < 2 {
            return true;
        }
        match self.linked().entry(key_of(entry)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(FirstName { folder, name: name.to_vec(), node: None });
                true
            }
        }
    }

    fn copy<'b>(&self, brought: &'b Brought, entry: &'b TreeEntry, worker: &mut Worker<'b>) {
        let Some(folder) = brought.folders[entry.folder as usize] else { return };
        if !self.is_first_name(entry, folder, brought.name(entry)) {
            return;
        }
        let from = brought.from(entry);
        if !self.pace.file(|| self.progress.is_stopped()) {
            return;
        }
        let copy = Copy { stage: self, brought, entry, folder, from: &from };
        match copy.run(&mut worker.buffer) {
            Ok(Copied::There(node)) => {
                self.came(folder, brought.name(entry));
                if let Some(first) = self.linked().get_mut(&key_of(entry)) {
                    first.node = Some(node);
                }
            }
            Ok(Copied::Read { given, bytes, sum }) => {
                let line = copy.line(What::File, bytes.len() as u64, sum);
                let name = brought.name(entry);
                worker.read.push(ReadFile {
                    brought,
                    entry,
                    folder,
                    name,
                    from,
                    given,
                    bytes,
                    line,
                });
                let nbytes: usize = worker.read.iter().map(|file| file.bytes.len()).sum();
                let is_slow = self.pace.limits() != (None, None);
                if is_slow || worker.read.len() >= GATHERED.0 || nbytes >= GATHERED.1 {
                    self.put_read(&mut worker.read);
                }
            }
            Err(failure) => {
                self.came(folder, brought.name(entry));
                self.note(&from, failure);
            }
        }
    }

    /// Nobody waits any more for what is there, or cannot come.
    fn came(&self, folder: Ino, name: &[u8]) {
        if let Some(awaited) = self.awaited.get()
            && let Err(error) = awaited.came(folder, name)
        {
            self.progress.fail(error.into());
        }
    }

    /// Puts files that were read under their names: all in one commit, or, if that cannot be, each
    /// in its own.
    fn put_read(&self, files: &mut Vec<ReadFile<'_>>) {
        let together = files.len() > 1 && self.put_together(files).is_ok();
        for file in files.drain(..) {
            let put = if together { Ok(()) } else { self.put_one(&file) };
            let put = match put {
                // Another was quicker: it may be what this one would be, or make way for it.
                Err(error) if error.code == libc::EEXIST => self.meet(&file).map(|()| None),
                put => put.map(|()| Some(file.line)).map_err(Failure::from),
            };
            self.came(file.folder, file.name);
            match put {
                Err(failure) => self.note(&file.from, failure),
                Ok(None) => {}
                Ok(Some(line)) => {
                    self.progress.bytes_done.fetch_add(line.size, Relaxed);
                    self.progress.done(line);
                }
            }
        }
    }

    /// Copies a file whose name another has taken since it was read.
    fn meet(&self, file: &ReadFile<'_>) -> Done<()> {
        let ReadFile { brought, entry, folder, from, .. } = file;
        let copy = Copy { stage: self, brought, entry, folder: *folder, from };
        match copy.run(&mut vec![0; PIECE])? {
            Copied::There(_) => Ok(()),
            // It has gone again meanwhile: whoever does that goes on.
            Copied::Read { .. } => Err(is_there(&file.line.path)),
        }
    }

    fn put_one(&self, file: &ReadFile<'_>) -> engram_fs::Result<()> {
        self.fs.put_whole(file.whole())?;
        step!("stage.put");
        Ok(())
    }

    fn put_together(&self, files: &[ReadFile<'_>]) -> engram_fs::Result<()> {
        let all: Vec<Whole<'_>> = files.iter().map(ReadFile::whole).collect();
        self.fs.put_together(&all)?;
        step!("stage.put-together");
        Ok(())
    }

    /// Gives files their further names.
    fn link_all(&self, brought: &[Brought]) {
        let linked = self.linked();
        for one in brought {
            for entry in one.tree.entries.iter().filter(|entry| entry.outside.names > 1) {
                let Some(folder) = one.folders[entry.folder as usize] else { continue };
                let (Some(first), name) = (linked.get(&key_of(entry)), one.name(entry)) else {
                    continue;
                };
                let is_first = (first.folder, first.name.as_slice()) == (folder, name);
                let Some(node) = first.node.filter(|_| !is_first) else {
                    self.came(folder, name);
                    continue;
                };
                if self.progress.is_stopped() {
                    return;
                }
                let done =
                    self.link(node, folder, name, &one.path(entry), entry.outside.seen.written);
                self.came(folder, name);
                match done {
                    Ok(()) => self.progress.looked(entry.outside.seen.size),
                    Err(failure) => self.note(&one.from(entry), failure),
                }
            }
        }
    }

    fn link(&self, node: Ino, folder: Ino, name: &[u8], path: &str, written: i64) -> Done<()> {
        match self.fs.lookup(folder, name) {
            Ok(there) if there.ino == node => Ok(()),
            Ok(there) if self.is_as_staged(&there)? => self.replace_by_link(node, folder, name),
            Ok(_) if self.options.existing == Existing::Refuse => Err(is_there(path)),
            Ok(there) if self.options.existing == Existing::Update && there.written >= written => {
                Ok(())
            }
            Ok(_) => self.replace_by_link(node, folder, name),
            Err(error) if error.code == libc::ENOENT => {
                Ok(self.fs.link(node, folder, name).map(drop)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether something in the pool was staged in, and nobody has changed it since.
    fn is_as_staged(&self, there: &Stat) -> Done<bool> {
        if there.kind != NodeKind::File {
            return Ok(false);
        }
        match Staged::of(self.fs, there.ino)? {
            Some(staged) => staged.is_unchanged(self.fs, there),
            None => Ok(false),
        }
    }

    fn replace_by_link(&self, node: Ino, folder: Ino, name: &[u8]) -> Done<()> {
        let hidden = format!("link-{node:x}-{folder:x}");
        let _ = self.fs.unlink(self.work, hidden.as_bytes());
        self.fs.link(node, self.work, hidden.as_bytes())?;
        Ok(self.fs.rename(self.work, hidden.as_bytes(), folder, name, Clash::Replace)?)
    }

    /// Gives folders what they are to have, once nothing more is put into them.
    fn finish_folders(&self, brought: &[Brought]) {
        for one in brought.iter().filter(|one| one.renamed.is_none()) {
            let all = one.tree.folders.iter().zip(&one.folders);
            for (folder, made) in all.collect::<Vec<_>>().into_iter().rev() {
                let Some(made) = made.filter(|made| *made != ROOT) else { continue };
                let path = one.root.join(&folder.path);
                let done = self.give(made, &path, &folder.outside, Vec::new());
                if let Err(failure) = done {
                    self.note(&path, failure);
                }
            }
        }
    }

    fn maker_of(&self, outside: &Outside) -> Maker {
        if self.options.keep_owners {
            Maker { uid: outside.uid, gid: outside.gid }
        } else {
            self.maker
        }
    }

    /// The mode that a copy is to have. A program that runs as its owner does so only if that is
    /// whom the source belongs to.
    fn mode_of(&self, outside: &Outside) -> u16 {
        let maker = self.maker_of(outside);
        let mut mode = outside.mode;
        if outside.kind != NodeKind::Folder {
            if maker.uid != outside.uid {
                mode &= !0o4000;
            }
            if maker.gid != outside.gid {
                mode &= !0o2000;
            }
        }
        mode
    }

    /// Gives a node its attributes, mode, owner and times.
    fn give(
        &self,
        node: Ino,
        path: &Path,
        outside: &Outside,
        own: Vec<(String, Value)>,
    ) -> Done<()> {
        let mut attrs = attributes(path)?;
        attrs.extend(own);
        if !attrs.is_empty() {
            let member = if outside.kind == NodeKind::Folder {
                Member::Group(node)
            } else {
                Member::Object(node)
            };
            self.fs.namespace().set_attrs(member, &attrs)?;
        }
        let maker = self.maker_of(outside);
        self.fs.change(
            node,
            Changes {
                mode: Some(self.mode_of(outside)),
                uid: Some(maker.uid),
                gid: Some(maker.gid),
                accessed: Some(Time::At(outside.accessed)),
                written: Some(Time::At(outside.seen.written)),
                ..Changes::default()
            },
        )?;
        Ok(())
    }
}

/// The attributes that a copy of a node outside is to have.
fn attributes(path: &Path) -> Done<Vec<(String, Value)>> {
    Ok(kept(tree::attributes(path)?))
}

/// Attributes as the pool keeps them; what it says of its own is not told by a source.
fn kept(attributes: Vec<(String, Vec<u8>)>) -> Vec<(String, Value)> {
    let others = attributes.into_iter().filter(|(key, _)| !key.starts_with("engram."));
    others.map(|(key, value)| (key, value_of_bytes(&value))).collect()
}
