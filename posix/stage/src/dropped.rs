//! Dropping a stage: the room that its files have in the pool, and what it keeps to be resumed.
//!
//! *Invariant*: a file is dropped only if it is safe outside, unless one insists. A file that was
//! staged in is safe if nobody has written to it, and its source is what it was. Any file is safe
//! of which a stage-out has made a copy, if neither was changed since. Files that a stage has not
//! brought stay: a stage-in's are those that it has put into the pool, a stage-out's those that it
//! has brought out.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use engram::Result;
use engram_fs::{Fs, Ino, NodeKind, ROOT, Stat};

use crate::failure::{Done, Failure};
use crate::inward::Source;
use crate::log::{Log, Written};
use crate::manifest;
use crate::outward::{Target, listed, source_of};
use crate::plan::Work;
use crate::staged::{Staged, sums_up_to};
use crate::status;
use crate::tree::Seen;

/// What came of dropping a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// How many files and links are gone from the pool, or would be.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// The files that are nowhere else. Unless the caller insisted, they are there, and so is all
    /// that the stage has.
    pub lost: Vec<String>,
    /// Whether the stage is gone.
    pub done: bool,
}

/// Something in the pool that a stage has brought.
struct Own {
    folder: Ino,
    name: String,
    path: String,
    size: u64,
    /// What tells its state, as it was looked at.
    seen: Seen,
    is_safe: bool,
}

/// A folder in the pool.
struct FoundFolder {
    above: Ino,
    name: String,
    ino: Ino,
    /// Whether it is a folder outside, too: one that is empty is safe then.
    is_outside: bool,
}

/// A stage's files and folders in the pool.
#[derive(Default)]
struct Found {
    own: Vec<Own>,
    /// Folders, each behind the one that it is in.
    folders: Vec<FoundFolder>,
    /// What half-made copies outside are called, if there are any.
    parts: Vec<PathBuf>,
}

/// Drops a stage: its files in the pool, if they are safe outside or one `insists`, its half-made
/// copies and its status file. With `keep`, all files stay in the pool.
pub fn drop_stage(fs: &Fs, name: &str, keep: bool, insists: bool) -> Result<Dropped> {
    let outside = Outside::of(fs)?;
    status::remove(fs, name, |work, plan| {
        let mut found = Found::default();
        let looked = match &plan.work {
            Work::In(sources) => {
                sources.iter().try_for_each(|source| found.of_source(fs, source, &outside))
            }
            Work::Out(targets) => {
                targets.iter().try_for_each(|target| found.of_target(fs, target, &outside))
            }
        };
        looked.map_err(Failure::into_error)?;
        if keep {
            found.own.clear();
            found.folders.clear();
        }
        let lost = found.own.iter().filter(|own| !own.is_safe);
        let mut dropped = Dropped {
            files: found.own.len() as u64,
            bytes: found.own.iter().map(|own| own.size).sum(),
            lost: lost.map(|own| own.path.clone()).collect(),
            done: true,
        };
        if !dropped.lost.is_empty() && !insists {
            dropped.done = false;
            return Ok((dropped, false));
        }
        let left = found.remove(fs)?;
        if !left.is_empty() {
            dropped.files -= left.len() as u64;
            (dropped.lost, dropped.done) = (left, false);
            return Ok((dropped, false));
        }
        let beginnings = plan.work.beginnings()?;
        found.forget(fs, work, &beginnings).map_err(Failure::into_error)?;
        Ok((dropped, true))
    })
}

impl Found {
    fn of_source(&mut self, fs: &Fs, source: &Source, outside: &Outside) -> Done<()> {
        self.below(fs, &source.to, &source.from, |found, own, stat, below| {
            let outer = joined(&source.from, below);
            let is_source_there = match stat.kind {
                NodeKind::File => match Staged::of(fs, stat.ino)? {
                    Some(staged) => {
                        let now = fs::symlink_metadata(&outer).map(|meta| Seen::of(&meta));
                        now.is_ok_and(|now| now == staged.source)
                            && staged.is_unchanged(fs, stat)?
                    }
                    None => return Ok(()),
                },
                // A link that leads elsewhere was made by somebody else.
                NodeKind::Symlink if is_same_link(fs, stat, &outer)? => true,
                _ if is_same_special(stat, &outer) => true,
                _ => return Ok(()),
            };
            let is_safe = is_source_there || outside.has(fs, &own.path, stat)?;
            found.own.push(Own { is_safe, ..own });
            Ok(())
        })
    }

    fn of_target(&mut self, fs: &Fs, target: &Target, outside: &Outside) -> Done<()> {
        self.parts.push(target.part_of(fs, &target.to.join(manifest::NAME)));
        self.below(fs, &target.from, &target.to, |found, own, stat, below| {
            let outer = joined(&target.to, below);
            found.parts.push(target.part_of(fs, &outer));
            let is_safe = match stat.kind {
                NodeKind::File if outside.came_to(&own.path, &outer) => {
                    outside.has(fs, &own.path, stat)?
                }
                NodeKind::Symlink if is_same_link(fs, stat, &outer)? => true,
                _ if is_same_special(stat, &outer) => true,
                // It was not brought, or not yet.
                _ => return Ok(()),
            };
            found.own.push(Own { is_safe, ..own });
            Ok(())
        })
    }

    /// Looks at everything at a path in the namespace, and below it. `each` is told the node, not
    /// known to be safe, and its path below that one. `outer` is where that one is outside.
    fn below(
        &mut self,
        fs: &Fs,
        top: &str,
        outer: &Path,
        mut each: impl FnMut(&mut Found, Own, &Stat, &str) -> Done<()>,
    ) -> Done<()> {
        let Some((parent, name, stat)) = looked_up(fs, top)? else { return Ok(()) };
        let own = |folder, name: &str, path: String, stat: &Stat| Own {
            folder,
            name: name.to_owned(),
            path,
            size: stat.size,
            seen: source_of(stat),
            is_safe: false,
        };
        if stat.kind != NodeKind::Folder {
            let one = own(parent, name, top.to_owned(), &stat);
            return each(self, one, &stat, "");
        }
        if !name.is_empty() {
            let (name, is_outside) = (name.to_owned(), outer.is_dir());
            self.folders.push(FoundFolder { above: parent, name, ino: stat.ino, is_outside });
        }
        let mut folders = vec![(stat.ino, String::new())];
        while let Some((folder, below)) = folders.pop() {
            for (entry, stat) in listed(fs, folder)? {
                let path = under(&below, &entry.name);
                if stat.kind == NodeKind::Folder {
                    let (ino, is_outside) = (stat.ino, outer.join(&path).is_dir());
                    let name = entry.name;
                    self.folders.push(FoundFolder { above: folder, name, ino, is_outside });
                    folders.push((ino, path));
                } else {
                    let one = own(folder, &entry.name, under(top, &path), &stat);
                    each(self, one, &stat, &path)?;
                }
            }
        }
        Ok(())
    }

    /// Removes what was found, and the folders that are empty by that. It gives the paths of what
    /// stays, since it was changed after it was looked at.
    fn remove(&self, fs: &Fs) -> Result<Vec<String>> {
        let (mut left, mut emptied) = (Vec::new(), HashSet::new());
        for own in &self.own {
            let name = own.name.as_bytes();
            let gone = |code| [libc::ENOENT, libc::ESTALE].contains(&code);
            let now = match fs.lookup(own.folder, name) {
                Err(error) if gone(error.code) => continue,
                now => now?,
            };
            if source_of(&now) != own.seen {
                left.push(own.path.clone());
                continue;
            }
            match fs.unlink(own.folder, name) {
                Err(error) if gone(error.code) => {}
                done => {
                    done?;
                    emptied.insert(own.folder);
                }
            }
        }
        for FoundFolder { above, name, ino, is_outside } in self.folders.iter().rev() {
            // What has something in it stays.
            let may_go = *is_outside || emptied.contains(ino);
            if may_go && fs.rmdir(*above, name.as_bytes()).is_ok() {
                emptied.insert(*above);
            }
        }
        Ok(left)
    }

    /// Removes what a stage keeps so that it can be resumed, on both sides.
    fn forget(&self, fs: &Fs, work: Ino, beginnings: &BTreeSet<String>) -> Done<()> {
        for part in &self.parts {
            let _ = fs::remove_file(part);
        }
        for (entry, _) in listed(fs, work)? {
            if beginnings.iter().any(|beginning| entry.name.starts_with(beginning)) {
                match fs.unlink(work, entry.name.as_bytes()) {
                    Err(error) if error.code == libc::ENOENT => {}
                    done => done?,
                }
            }
        }
        Ok(())
    }
}

/// What has a path in the namespace: its folder, its name there, itself. A link is not followed.
fn looked_up<'p>(fs: &Fs, path: &'p str) -> Done<Option<(Ino, &'p str, Stat)>> {
    let path = path.trim_matches('/');
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let absent = |code| [libc::ENOENT, libc::ENOTDIR].contains(&code);
    let folder = match fs.walk(ROOT, above) {
        Err(error) if absent(error.code) => return Ok(None),
        walked => walked?.stat,
    };
    let Some(folder) = folder else { return Ok(None) };
    if name.is_empty() {
        return Ok(Some((folder.ino, name, folder)));
    }
    match fs.lookup(folder.ino, name.as_bytes()) {
        Err(error) if absent(error.code) => Ok(None),
        stat => Ok(Some((folder.ino, name, stat?))),
    }
}

/// A path below a folder in the namespace.
fn under(folder: &str, path: &str) -> String {
    if folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") }
}

/// A path below a folder outside, or that folder.
fn joined(folder: &Path, path: &str) -> PathBuf {
    if path.is_empty() { folder.to_owned() } else { folder.join(path) }
}

/// Whether a link outside leads to where one in the pool does.
fn is_same_link(fs: &Fs, stat: &Stat, outer: &Path) -> Done<bool> {
    let target = fs.readlink(stat.ino)?;
    Ok(fs::read_link(outer).is_ok_and(|found| found.as_os_str().as_bytes() == target))
}

/// Whether what is neither file nor link is the same outside.
fn is_same_special(stat: &Stat, outer: &Path) -> bool {
    ![NodeKind::File, NodeKind::Folder, NodeKind::Symlink].contains(&stat.kind)
        && fs::symlink_metadata(outer).is_ok_and(|meta| {
            NodeKind::of_mode(meta.mode()) == Some(stat.kind) && meta.rdev() == stat.rdev
        })
}

/// What the stages of a namespace have brought out, by paths in the namespace.
struct Outside(HashMap<String, Vec<(PathBuf, Written)>>);

impl Outside {
    fn of(fs: &Fs) -> Result<Outside> {
        let mut all: HashMap<String, Vec<(PathBuf, Written)>> = HashMap::new();
        let Some(work) = status::work_of(fs)? else { return Ok(Outside(all)) };
        for told in status::all(fs)? {
            let Work::Out(targets) = told.plan.work else { continue };
            for Target { from, to } in targets {
                let log = Log::open(fs, work, &from, &to).map_err(Failure::into_error)?;
                // Of one file the log has the name that it got outside.
                let is_file = fs.walk(ROOT, &from).is_ok_and(|walked| {
                    walked.stat.is_some_and(|stat| stat.kind != NodeKind::Folder)
                });
                for (path, written) in log.all_written() {
                    let path = if is_file { "" } else { &path };
                    let inside = if is_file { from.clone() } else { under(&from, path) };
                    all.entry(inside).or_default().push((joined(&to, path), written));
                }
            }
        }
        Ok(Outside(all))
    }

    /// Whether a stage has brought a file to this path outside, whatever became of both since.
    fn came_to(&self, path: &str, outer: &Path) -> bool {
        self.0.get(path).is_some_and(|copies| copies.iter().any(|(known, _)| known == outer))
    }

    /// Whether a file that is so now has a copy outside that is as a stage has made it.
    fn has(&self, fs: &Fs, path: &str, stat: &Stat) -> Done<bool> {
        let is_as_made = |outer: &Path, written: &Written| {
            fs::symlink_metadata(outer).is_ok_and(|meta| Seen::of(&meta) == written.copy)
        };
        for (outer, written) in self.0.get(path).into_iter().flatten() {
            if written.source == source_of(stat)
                && is_as_made(outer, written)
                && sums_up_to(fs, stat, written.sum)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
