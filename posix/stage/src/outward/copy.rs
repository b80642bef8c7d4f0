//! A file, link or special file on its way out of a pool.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use engram::faults::step;
use engram_fs::{Handle, NodeKind, OpenFlags, Stat, Whence};
use rustix::fs::{Advice, AtFlags, CWD, FileType, Gid, Mode, RenameFlags, Uid};

use crate::check::{Aligned, sum_of};
use crate::failure::{Done, Failure, is_there, outside, stopped};
use crate::log::Written;
use crate::manifest::{Line, What};
use crate::options::{Existing, Verify};
use crate::staged::{Staged, sums_up_to};
use crate::sum::{RunningSum, Sum};
use crate::tree::Seen;

use super::{Brought, OutEntry, StageOut, anew, part_of, source_of, times};

/// After so many bytes, the kernel is told to begin writing them to the medium: so that little is
/// left when the copy is made durable.
const BEGUN: u64 = 8 << 20;
/// So often a file is read that others write to meanwhile.
const READS: u32 = 3;

/// One entry that is copied.
pub(super) struct Copy<'a> {
    pub(super) stage: &'a StageOut<'a>,
    pub(super) brought: &'a Brought,
    pub(super) entry: &'a OutEntry,
    pub(super) to: &'a Path,
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

    pub(super) fn run(&self, buffers: &mut (Vec<u8>, Aligned)) -> Done<()> {
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
            // Times do not tell a write through a view.
            if same
                && written.copy == Seen::of(there)
                && sums_up_to(stage.fs, &entry.stat, written.sum)?
            {
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
            let part = part_of(stage.fs, &brought.key, to);
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
        let Some(sum) = staged.sum.filter(|_| staged.source == seen) else { return Ok(None) };
        if !staged.is_unchanged(self.stage.fs, stat)? {
            return Ok(None);
        }
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
        let (mut at, mut written, mut begun) = (0, 0, durable);
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
                    if written - begun >= BEGUN {
                        // What is clean already makes way; what is dirty begins to be written.
                        let len = NonZeroU64::new(written - begun);
                        let _ = rustix::fs::fadvise(&file, begun, len, Advice::DontNeed);
                        begun = written;
                    }
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
        let part = part_of(self.stage.fs, &self.brought.key, self.to);
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
        let part = part_of(self.stage.fs, &self.brought.key, self.to);
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
            rustix::fs::chmod(part, self.stage.mode_of(stat)).map_err(outside)?;
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
    // One with a second name is another file's, too, and one of another user's is not ours.
    let is_own = meta.nlink() == 1 && meta.uid() == rustix::process::geteuid().as_raw();
    (meta.is_file() && is_own && meta.len() >= durable).then_some(file)
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
