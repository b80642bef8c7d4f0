//! A file, link or special file on its way into a pool.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use engram::faults::step;
use engram::{Clash, Member, Value};
use engram_fs::{Given, Handle, Ino, NodeKind, OpenFlags, Stat, Whole};
use rustix::fs::{Advice, SeekFrom};

use crate::failure::{Done, Failure, is_there, stopped};
use crate::manifest::{Line, What};
use crate::options::{Existing, Verify};
use crate::staged::{self, Staged, sums_up_to};
use crate::sum::{RunningSum, Sum};
use crate::tree::{self, Outside, Seen, TreeEntry};

use super::{Brought, Copied, PARTS, PIECE, SMALL, StageIn, hidden_of, kept};

/// So often a source is read that others change meanwhile.
const READS: u32 = 3;

/// One entry that is copied.
pub(super) struct Copy<'a> {
    pub(super) stage: &'a StageIn<'a>,
    pub(super) brought: &'a Brought,
    pub(super) entry: &'a TreeEntry,
    /// The folder that it is to be in.
    pub(super) folder: Ino,
    pub(super) from: &'a Path,
}

impl Copy<'_> {
    fn name(&self) -> &[u8] {
        self.brought.name(self.entry)
    }

    pub(super) fn line(&self, what: What, size: u64, sum: Sum) -> Line {
        Line { what, size, sum, path: self.brought.path(self.entry) }
    }

    /// Copies it, unless it is there.
    pub(super) fn run(&self, buffer: &mut [u8]) -> Done<Copied> {
        let there = match self.stage.fs.lookup(self.folder, self.name()) {
            Ok(stat) => Some(stat),
            Err(error) if error.code == libc::ENOENT => None,
            Err(error) => return Err(error.into()),
        };
        match self.entry.outside.kind {
            NodeKind::File => self.file(there, buffer),
            NodeKind::Symlink => self.symlink(there).map(Copied::There),
            _ => self.special(there).map(Copied::There),
        }
    }

    /// What becomes of another file of this name: whether it is replaced. A copy that nobody has
    /// written to since it was staged in makes way for a newer one.
    fn replaces(&self, there: &Stat, staged: Option<&Staged>) -> Done<bool> {
        if there.kind == NodeKind::Folder {
            return Err(Failure::One(format!(
                "{} is a folder there: remove it, or stage elsewhere",
                self.brought.path(self.entry)
            )));
        }
        if let Some(staged) = staged
            && staged.is_unchanged(self.stage.fs, there)?
        {
            return Ok(true);
        }
        match self.stage.options.existing {
            Existing::Overwrite => Ok(true),
            Existing::Update => Ok(there.written < self.entry.outside.seen.written),
            Existing::Refuse => Err(is_there(&self.brought.path(self.entry))),
        }
    }

    fn file(&self, there: Option<Stat>, buffer: &mut [u8]) -> Done<Copied> {
        let Copy { stage, entry, .. } = self;
        let staged = match &there {
            Some(there) if there.kind == NodeKind::File => Staged::of(stage.fs, there.ino)?,
            _ => None,
        };
        if let (Some(there), Some(Staged { source, sum: Some(sum) })) = (&there, staged)
            && source == entry.outside.seen
            && staged.is_some_and(|staged| staged.is_untouched(there))
            && (!self.is_read_again() || sums_up_to(stage.fs, there, sum)?)
            && (sum.sha256.is_some() || !stage.options.sha256)
        {
            stage.progress.reused(self.line(What::File, source.size, sum));
            return Ok(Copied::There(there.ino));
        }
        if let Some(there) = &there
            && !self.replaces(there, staged.as_ref())?
        {
            stage.progress.looked(0);
            return Ok(Copied::There(there.ino));
        }
        let mut outside = entry.outside;
        for _ in 0..READS {
            let source = tree::open_to_read(self.from)?;
            if outside.seen.size <= SMALL {
                if let Some((given, bytes, sum)) = self.read(&source, &outside)? {
                    // One that has several names is there before they are given to it.
                    if there.is_none() && outside.names < 2 && !self.is_read_again() {
                        return Ok(Copied::Read { given, bytes, sum });
                    }
                    let node = self.put(&given, &bytes, there.as_ref())?;
                    stage.progress.bytes_done.fetch_add(bytes.len() as u64, Relaxed);
                    stage.progress.done(self.line(What::File, bytes.len() as u64, sum));
                    return Ok(Copied::There(node));
                }
            } else if let Some((node, sum)) =
                self.large(&source, &outside, there.as_ref(), buffer)?
            {
                stage.progress.done(self.line(What::File, outside.seen.size, sum));
                return Ok(Copied::There(node));
            }
            // It is another one than it was.
            let now = match Outside::of(&source.metadata()?) {
                Some(now) if now.kind == NodeKind::File => now,
                _ => return Err(Failure::One("is no file any more: stage it again".to_owned())),
            };
            stage
                .progress
                .changed(self.from.to_string_lossy(), [outside, now].map(|one| one.seen.size));
            outside = now;
        }
        Err(Failure::One(format!(
            "has changed while it was read, {READS} times: stage it when nobody writes to it"
        )))
    }

    /// Reads a small file, and what it is to be in the pool; `None`: it is not as it was seen.
    fn read(&self, source: &File, outside: &Outside) -> Done<Option<(Given, Vec<u8>, Sum)>> {
        let stage = self.stage;
        if !stage.pace.bytes(outside.seen.size, || stage.progress.is_stopped()) {
            return Err(stopped());
        }
        let mut bytes = vec![0; outside.seen.size as usize];
        match source.read_exact_at(&mut bytes, 0) {
            // It has become shorter, or is a folder now.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::EISDIR) => return Ok(None),
            read => read?,
        }
        let mut attrs = kept(tree::attributes_of(source)?);
        if Seen::of(&source.metadata()?) != outside.seen {
            return Ok(None);
        }
        let sum = Sum::of(&bytes, stage.options.sha256);
        let staged = Staged { source: outside.seen, sum: Some(sum) };
        attrs.push((staged::KEY.to_owned(), staged.value()));
        let given = Given {
            kind: NodeKind::File,
            mode: stage.mode_of(outside),
            maker: stage.maker_of(outside),
            rdev: 0,
            written: outside.seen.written,
            accessed: outside.accessed,
            attrs,
            device: self.brought.device,
        };
        Ok(Some((given, bytes, sum)))
    }

    /// Puts a node under its name, in place of what has it.
    fn put(&self, given: &Given, value: &[u8], there: Option<&Stat>) -> Done<Ino> {
        let stage = self.stage;
        let is_looked_at = given.kind == NodeKind::File && self.is_read_again();
        let whole = Whole { parent: self.folder, name: self.name(), given, value };
        if there.is_none() && !is_looked_at {
            return match stage.fs.put_whole(whole) {
                Err(error) if error.code == libc::EEXIST => {
                    Err(is_there(&self.brought.path(self.entry)))
                }
                put => Ok(put?),
            };
        }
        let hidden = self.hidden();
        let _ = stage.fs.unlink(stage.work, hidden.as_bytes());
        let name = hidden.as_bytes();
        let node = stage.fs.put_whole(Whole { parent: stage.work, name, ..whole })?;
        if is_looked_at {
            let flags = OpenFlags { read: true, ..OpenFlags::default() };
            let sum = Sum::of(value, false);
            look(&stage.fs.open(node, flags)?, value.len() as u64, sum, &mut vec![0; PIECE])?;
        }
        self.take_name(&hidden, there)?;
        Ok(node)
    }

    /// Whether copies are read again before they have their names.
    fn is_read_again(&self) -> bool {
        self.stage.options.verify == Verify::Readback
    }

    /// Takes the name, of what had it if there was something, and of nothing else.
    fn take_name(&self, hidden: &str, there: Option<&Stat>) -> Done<()> {
        let (fs, work) = (self.stage.fs, self.stage.work);
        let clash = if there.is_some() { Clash::Replace } else { Clash::Refuse };
        if let Some(there) = there {
            // What was decided on may have been written to while this was copied.
            let same = |now: &Stat| {
                (now.ino, now.size, now.written) == (there.ino, there.size, there.written)
            };
            if !fs.lookup(self.folder, self.name()).is_ok_and(|now| same(&now)) {
                let _ = fs.unlink(work, hidden.as_bytes());
                return Err(is_there(&self.brought.path(self.entry)));
            }
        }
        match fs.rename(work, hidden.as_bytes(), self.folder, self.name(), clash) {
            Err(error) if error.code == libc::EEXIST => {
                let _ = fs.unlink(work, hidden.as_bytes());
                return Err(is_there(&self.brought.path(self.entry)));
            }
            renamed => renamed?,
        }
        step!("stage.taken");
        Ok(())
    }

    /// The name that a copy has while it is made: the same whenever it is made.
    fn hidden(&self) -> String {
        let path = self.brought.path(self.entry);
        format!("{}{}", hidden_of(&self.brought.key), Sum::of(path.as_bytes(), false))
    }

    /// Copies a file part by part; `None`: it has changed meanwhile. Bytes of a copy that is not
    /// taken are not there.
    fn large(
        &self,
        source: &File,
        outside: &Outside,
        there: Option<&Stat>,
        buffer: &mut [u8],
    ) -> Done<Option<(Ino, Sum)>> {
        let progress = self.stage.progress;
        let mut sum = RunningSum::new(self.stage.options.sha256);
        let copied = self.large_summed(source, outside, there, buffer, &mut sum);
        if !matches!(copied, Ok(Some(_))) && !progress.is_stopped() {
            progress.bytes_done.fetch_sub(sum.bytes(), Relaxed);
        }
        copied
    }

    /// The same, with a sum that has as many bytes as were counted.
    fn large_summed(
        &self,
        source: &File,
        outside: &Outside,
        there: Option<&Stat>,
        buffer: &mut [u8],
        sum: &mut RunningSum,
    ) -> Done<Option<(Ino, Sum)>> {
        let stage = self.stage;
        let hidden = self.hidden();
        let (copy, parts) = self.begin(&hidden, outside)?;
        let mut at = 0;
        let part = stage.options.part;
        let kept = parts.saturating_mul(part).min(outside.seen.size);
        while at < kept {
            let most = buffer.len().min((kept - at) as usize);
            let count = copy.read(at, &mut buffer[..most])?;
            if count == 0 {
                // It is shorter than it was noted to be: it is not to be gone on with.
                stage.fs.unlink(stage.work, hidden.as_bytes())?;
                return Ok(None);
            }
            sum.add(&buffer[..count]);
            stage.progress.bytes_done.fetch_add(count as u64, Relaxed);
            at += count as u64;
        }
        let _ = rustix::fs::fadvise(source, at, None, Advice::Sequential);
        while at < outside.seen.size {
            let end = (at + part).min(outside.seen.size);
            if !self.part(source, &copy, [at, end], outside.sparse, sum, buffer)? {
                // What was read of it is not to be gone on with.
                stage.fs.unlink(stage.work, hidden.as_bytes())?;
                return Ok(None);
            }
            copy.sync()?;
            step!("stage.part-copied");
            at = end;
            let parts = Value::text(&(at.div_ceil(part)).to_string());
            let file = Member::Object(copy.ino());
            stage.fs.namespace().set_attrs(file, &[(PARTS.to_owned(), parts)])?;
            step!("stage.part-noted");
        }
        if Seen::of(&source.metadata()?) != outside.seen {
            stage.fs.unlink(stage.work, hidden.as_bytes())?;
            return Ok(None);
        }
        let sum = sum.so_far();
        if self.is_read_again() {
            look(&copy, outside.seen.size, sum, buffer)?;
        }
        let staged = Staged { source: outside.seen, sum: Some(sum) };
        let own = vec![(staged::KEY.to_owned(), staged.value())];
        stage.fs.namespace().delete_attr(Member::Object(copy.ino()), PARTS)?;
        stage.give(copy.ino(), self.from, outside, own)?;
        step!("stage.given");
        self.take_name(&hidden, there)?;
        Ok(Some((copy.ino(), sum)))
    }

    /// The copy that is being made of a file, and how many parts of it are there.
    fn begin(&self, hidden: &str, outside: &Outside) -> Done<(Handle, u64)> {
        let StageIn { fs, work, .. } = *self.stage;
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let expected = Staged { source: outside.seen, sum: None };
        match fs.lookup(work, hidden.as_bytes()) {
            Err(error) if error.code == libc::ENOENT => {}
            Err(error) => return Err(error.into()),
            Ok(left) => {
                if Staged::of(fs, left.ino)? == Some(expected) {
                    let parts = fs.namespace().attr(Member::Object(left.ino), PARTS)?;
                    let parts = parts.and_then(|parts| {
                        std::str::from_utf8(&parts.data).ok()?.parse::<u64>().ok()
                    });
                    let copy = fs.open(left.ino, flags)?;
                    self.give_space(&copy, outside)?;
                    return Ok((copy, parts.unwrap_or(0)));
                }
                fs.unlink(work, hidden.as_bytes())?;
            }
        }
        let maker = self.stage.maker;
        let (stat, copy) = fs.create(work, hidden.as_bytes(), 0o600, flags, maker)?;
        if let Err(error) = self.give_space(&copy, outside) {
            let _ = fs.unlink(work, hidden.as_bytes());
            return Err(error.into());
        }
        let attrs = [(staged::KEY.to_owned(), expected.value())];
        fs.namespace().set_attrs(Member::Object(stat.ino), &attrs)?;
        step!("stage.begun");
        Ok((copy, 0))
    }

    /// Gives a copy the space that it is to have, in one piece if there is one; of a file with
    /// holes, its size.
    fn give_space(&self, copy: &Handle, outside: &Outside) -> engram_fs::Result<()> {
        copy.set_device(self.brought.device)?;
        if outside.sparse {
            return copy.set_size(outside.seen.size);
        }
        // It lies behind the end until it is written: nobody has to make zeros of it before.
        copy.fallocate(libc::FALLOC_FL_KEEP_SIZE, 0, outside.seen.size)
    }

    /// Copies a part; `false`: the source has become shorter.
    fn part(
        &self,
        source: &File,
        copy: &Handle,
        [mut at, end]: [u64; 2],
        sparse: bool,
        sum: &mut RunningSum,
        buffer: &mut [u8],
    ) -> Done<bool> {
        let stage = self.stage;
        while at < end {
            let (data, hole) = if sparse { next_data(source, at, end)? } else { (at, end) };
            sum.add_zeros(data - at);
            stage.progress.bytes_done.fetch_add(data - at, Relaxed);
            at = data;
            while at < hole {
                let most = buffer.len().min((hole - at) as usize);
                if !stage.pace.bytes(most as u64, || stage.progress.is_stopped()) {
                    return Err(stopped());
                }
                let count = source.read_at(&mut buffer[..most], at)?;
                if count == 0 {
                    return Ok(false);
                }
                copy.write(at, &buffer[..count])?;
                sum.add(&buffer[..count]);
                at += count as u64;
                stage.progress.bytes_done.fetch_add(count as u64, Relaxed);
            }
        }
        Ok(true)
    }

    fn symlink(&self, there: Option<Stat>) -> Done<Ino> {
        let stage = self.stage;
        let target = fs::read_link(self.from)?;
        let target = target.as_os_str().as_bytes();
        let line =
            self.line(What::Link, target.len() as u64, Sum::of(target, stage.options.sha256));
        if let Some(there) = &there {
            if there.kind == NodeKind::Symlink && stage.fs.readlink(there.ino)? == target {
                stage.progress.reused(line);
                return Ok(there.ino);
            }
            if !self.replaces(there, None)? {
                stage.progress.looked(0);
                return Ok(there.ino);
            }
        }
        let node = self.put(&self.given(), target, there.as_ref())?;
        stage.progress.done(line);
        Ok(node)
    }

    fn special(&self, there: Option<Stat>) -> Done<Ino> {
        let (stage, outside) = (self.stage, &self.entry.outside);
        if let Some(there) = &there {
            let same = (there.kind, there.rdev) == (outside.kind, outside.rdev);
            if same || !self.replaces(there, None)? {
                stage.progress.looked(0);
                return Ok(there.ino);
            }
        }
        let node = self.put(&self.given(), b"", there.as_ref())?;
        stage.progress.looked(0);
        Ok(node)
    }

    fn given(&self) -> Given {
        let outside = &self.entry.outside;
        Given {
            kind: outside.kind,
            mode: self.stage.mode_of(outside),
            maker: self.stage.maker_of(outside),
            rdev: outside.rdev,
            written: outside.seen.written,
            accessed: outside.accessed,
            attrs: Vec::new(),
            device: None,
        }
    }
}

/// Where the next data of a file begins and ends, within a range.
fn next_data(source: &File, at: u64, end: u64) -> Done<(u64, u64)> {
    match rustix::fs::seek(source, SeekFrom::Data(at)) {
        Ok(data) if data < end => {
            let hole = rustix::fs::seek(source, SeekFrom::Hole(data))?;
            Ok((data.max(at), hole.min(end)))
        }
        Ok(_) | Err(rustix::io::Errno::NXIO) => Ok((end, end)),
        Err(error) => Err(error.into()),
    }
}

/// Reads a copy again, and compares what it sums up to.
fn look(copy: &Handle, size: u64, expected: Sum, buffer: &mut [u8]) -> Done<()> {
    let mut sum = RunningSum::new(false);
    let mut at = 0;
    loop {
        let count = copy.read(at, buffer)?;
        if count == 0 {
            break;
        }
        sum.add(&buffer[..count]);
        at += count as u64;
    }
    let found = sum.done();
    if at == size && found.xxh3 == expected.xxh3 {
        return Ok(());
    }
    Err(Failure::One(format!(
        "the copy has {at} bytes that sum up to {found}, and the source {size} that sum up to \
         {expected}: the copy was not taken; stage it again"
    )))
}
