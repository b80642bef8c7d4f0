//! Values: those that have a checksum are read and compared.
//!
//! They are read from the files, not through a mapping: a file that has lost its end is an error
//! then, and no signal. (A devdax node, which can only be mapped, loses no end.) What is written in
//! place meanwhile has its checksum taken away first (see
//! `checksum`), so a value that differs counts only if its row is still the same afterwards.

use engram_realm::spans;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use super::{RecordFacts, Walk};
use engram_base::checksum;
use engram_base::checksum::RunningChecksum;
use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_base::id::Oid;
use engram_catalog::{ReadTxn, Table};
use engram_media::devdax;
use engram_ops::chunk_rows::split_key;
use engram_ops::group::DEPTH_MAX;
use engram_realm::Core;
use engram_records::chunked::codec::{CHECK, check_of};
use engram_records::extent::Extent;
use engram_records::object::{Record, Stored};
use engram_space::extent::Span;

/// So much is read at once.
const PIECE: usize = 1 << 20;

/// The files of an arena, to be read without mapping them.
pub(crate) struct SpanFiles {
    spans: Vec<(Span, PathBuf, Result<File>)>,
}

impl SpanFiles {
    /// Opens the files of these spans; one that does not open is an error where it is needed.
    pub(crate) fn open(spans: impl Iterator<Item = (Span, PathBuf)>) -> Self {
        let open = |path: &PathBuf| {
            let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
            let opened = File::options().read(true).custom_flags(flags).open(path);
            opened.map_err(|e| Error::os(format!("opening {}", path.display()), &e))
        };
        let spans = spans.map(|(span, path)| {
            let file = open(&path);
            (span, path, file)
        });
        SpanFiles { spans: spans.collect() }
    }

    /// Whether there are spans for all of an extent.
    pub(crate) fn cover(&self, extent: Extent) -> bool {
        let mut at = extent.offset;
        while at < extent.end() {
            let holds = |range: Extent| range.offset <= at && at - range.offset < range.len;
            match self.spans.iter().find(|(span, ..)| holds(span.range)) {
                Some((span, ..)) => at = span.range.end(),
                None => return false,
            }
        }
        true
    }

    /// Reads `nbytes` from `offset` of the arena on, piece by piece.
    pub(crate) fn read(
        &self,
        mut offset: u64,
        nbytes: u64,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut piece = vec![0; PIECE.min(nbytes as usize)];
        let mut left = nbytes;
        while left > 0 {
            let holds = |range: Extent| range.offset <= offset && offset - range.offset < range.len;
            let Some((span, path, file)) = self.spans.iter().find(|(span, ..)| holds(span.range))
            else {
                fail!(Corrupt, "byte {offset} of the arena is in no span")
            };
            let range = span.range;
            let file = file.as_ref().map_err(Clone::clone)?;
            let at = offset - range.offset;
            let count = left.min(range.len - at).min(PIECE as u64);
            let part = &mut piece[..count as usize];
            if span.place == 0 {
                file.read_exact_at(part, at).map_err(|e| {
                    Error::os(format!("reading {count} bytes at {at} of {}", path.display()), &e)
                })?;
            } else {
                devdax::read(file, span.place.saturating_add(at), part)?;
            }
            take(part)?;
            offset += count;
            left -= count;
        }
        Ok(())
    }

    /// Reads a value, and compares it with its checksum word, if that is one.
    pub(crate) fn read_checked(
        &self,
        extent: Extent,
        nbytes: u64,
        word: u64,
        mut take: impl FnMut(&[u8]),
    ) -> Result<()> {
        let mut running = RunningChecksum::new();
        let sum = checksum::is_checksum(word);
        self.read(extent.offset, nbytes, |piece| {
            if sum {
                running.add(piece);
            }
            take(piece);
            Ok(())
        })?;
        if sum && running.word() != word {
            fail!(Corrupt, "its bytes are not those of its checksum");
        }
        Ok(())
    }

    /// The checksum word of a value.
    pub(crate) fn checksum(&self, extent: Extent, nbytes: u64) -> Result<u64> {
        let mut running = RunningChecksum::new();
        self.read(extent.offset, nbytes, |piece| {
            running.add(piece);
            Ok(())
        })?;
        Ok(running.word())
    }

    /// Whether a chunk ends with the check of its bytes.
    fn has_its_check(&self, extent: Extent, nbytes: u64) -> Result<bool> {
        let len = nbytes.saturating_sub(CHECK as u64);
        let word = self.checksum(extent, len)?;
        let mut check: Vec<u8> = Vec::new();
        self.read(extent.offset + len, nbytes - len, |piece| {
            check.extend(piece);
            Ok(())
        })?;
        Ok(check == check_of(word))
    }
}

/// A value in an extent, to be compared.
pub(super) struct Sum {
    /// The row that says so: one of `objects`, or of `chunks`.
    pub table: Table,
    pub key: Vec<u8>,
    pub extent: Extent,
    pub nbytes: u64,
    pub word: u64,
    /// A chunk of an array with a codec: it ends with a check, whatever the pool says.
    pub coded: bool,
}

impl Walk<'_> {
    /// Compares every value that has a checksum with its bytes. The snapshot keeps the extents.
    pub(super) fn values(
        &mut self,
        txn: &ReadTxn<'_>,
        sums: &[Sum],
        objects: &HashMap<u64, RecordFacts>,
        groups: &HashMap<u64, RecordFacts>,
    ) -> Result<()> {
        let core = self.core;
        let spans = Span::all(&mut txn.rows())?;
        let files =
            spans.iter().filter_map(|span| Some((*span, spans::span_path(core, *span).ok()?)));
        let files = SpanFiles::open(files);
        for sum in sums {
            let found = if checksum::is_checksum(sum.word) {
                files.checksum(sum.extent, sum.nbytes).map(|word| word == sum.word)
            } else if sum.coded {
                files.has_its_check(sum.extent, sum.nbytes)
            } else {
                self.report.unchecked += 1;
                continue;
            };
            self.report.checked += 1;
            self.report.checked_bytes += sum.nbytes;
            (self.pulse)();
            if found.as_ref().is_ok_and(|is_right| *is_right) || !still_so(core, sum)? {
                continue;
            }
            let what = match found {
                Ok(_) => "its bytes are not those of its checksum".to_owned(),
                Err(error) => error.to_string(),
            };
            let at = sum.extent.offset;
            self.problem(format!(
                "{}: the value of {} bytes at {at} of the arena is damaged: {what}",
                whose(sum, objects, groups),
                sum.nbytes
            ));
        }
        Ok(())
    }
}

/// What to call a value: the object that it is of.
fn whose(
    sum: &Sum,
    objects: &HashMap<u64, RecordFacts>,
    groups: &HashMap<u64, RecordFacts>,
) -> String {
    let oid = sum.key.first_chunk().map_or(0, |oid| u64::from_be_bytes(*oid));
    let object = format!("object {oid:#x} {:?}", path_of(oid, objects, groups));
    match split_key(&sum.key) {
        Ok((_, cell)) => format!("{object}, chunk {cell:?}"),
        Err(_) => object,
    }
}

/// Whether a row still says the same of its value.
fn still_so(core: &Core, sum: &Sum) -> Result<bool> {
    let inside = core.enter()?;
    let txn = inside.read()?;
    let Some(row) = txn.get(sum.table, &sum.key)? else { return Ok(false) };
    let Stored::Contiguous { extent, nbytes, checksum } = Record::parse(row)?.stored else {
        return Ok(false);
    };
    Ok((extent, nbytes, checksum) == (sum.extent, sum.nbytes, sum.word))
}

/// The path of an object, as far as there are groups above it.
fn path_of(
    oid: Oid,
    objects: &HashMap<u64, RecordFacts>,
    groups: &HashMap<u64, RecordFacts>,
) -> String {
    let Some(known) = objects.get(&oid) else { return String::new() };
    let mut names = vec![known.name.as_str()];
    let mut above = groups.get(&known.parent);
    for _ in 0..DEPTH_MAX {
        let Some(group) = above.filter(|group| group.parent != 0) else { break };
        names.push(&group.name);
        above = groups.get(&group.parent);
    }
    names.reverse();
    names.join("/")
}
