//! Files: heads and segments, further names, files without a name, times of groups.

use std::collections::{HashMap, HashSet};

use super::{RecordFacts, SpanFiles, Walk};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Oid, id_of_key};
use engram_catalog::{ReadTxn, Table};
use engram_ops::{chunk_rows, group_times, links};
use engram_realm::spans;
use engram_records::extent::Extent;
use engram_records::object::{Record, Stored};
use engram_records::segmented::{HEAD_BYTES, HeadFacts, Segmented};
use engram_space::extent::Span;

/// What there is of files: those in segments, with the place where the last of them ends.
#[derive(Default)]
pub(super) struct Files {
    pub(super) segmented: HashMap<Oid, (Segmented, u64)>,
}

impl Files {
    /// The files that records and orphans tell of.
    pub(super) fn of(txn: &ReadTxn<'_>) -> Result<Files> {
        let mut files = Files::default();
        let mut note = |key: &[u8], row: &[u8]| {
            if let Ok(record) = Record::parse(row)
                && let Stored::Segmented(segmented) = record.stored
                && let Ok(oid) = id_of_key(key)
            {
                files.segmented.insert(oid, (segmented, 0));
            }
        };
        let mut cursor = txn.seek(Table::Objects, &[])?;
        while let Some((key, row)) = cursor.next()? {
            note(key, row);
        }
        let mut cursor = txn.seek(Table::Orphans, &[])?;
        while let Some((key, row)) = cursor.next()? {
            if let Ok((_, record)) = links::split_orphan(row) {
                note(key, record);
            }
        }
        Ok(files)
    }

    /// Checks a segment's row, and takes its extent down; `None`: it is of no file.
    pub(super) fn segment(
        &mut self,
        oid: Oid,
        key: &[u8],
        row: &[u8],
    ) -> Option<Result<(u64, Extent)>> {
        let (_, end) = self.segmented.get_mut(&oid)?;
        let segment = chunk_rows::segment(oid, key, row).and_then(|(at, extent)| {
            if at < *end {
                fail!(Corrupt, "two segments of file {oid:#x} overlap at {at}");
            }
            *end = at + extent.len;
            Ok((at, extent))
        });
        Some(segment)
    }
}

impl Walk<'_> {
    /// Heads are heads, and say no more bytes than records and segments do.
    pub(super) fn heads(&mut self, txn: &ReadTxn<'_>, files: &Files) -> Result<()> {
        if files.segmented.is_empty() {
            return Ok(());
        }
        let mut places = Vec::new();
        for span in Span::all(&mut txn.rows())?.into_iter().filter(|span| span.has_file()) {
            places.push((span, spans::span_path(self.core, span)?));
        }
        let spans = SpanFiles::open(places.into_iter());
        for (oid, (segmented, end)) in &files.segmented {
            let mut bytes = Vec::new();
            let read = spans.read(segmented.head.offset, HEAD_BYTES, |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            });
            let most = segmented.nbytes.max(*end);
            match read.and_then(|()| HeadFacts::parse(&bytes)) {
                Err(error) => self.problem(format!("file {oid:#x}: {error}")),
                Ok(facts) if facts.size > most => {
                    let size = facts.size;
                    self.problem(format!(
                        "file {oid:#x}: its head says {size} bytes, and there are {most} at most"
                    ));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Orphans are files that had a name; their heads are in use like any other's.
    pub(super) fn orphans(
        &mut self,
        txn: &ReadTxn<'_>,
        objects: &HashMap<u64, RecordFacts>,
        extents: &mut Vec<(Extent, String)>,
    ) -> Result<()> {
        let mut cursor = txn.seek(Table::Orphans, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let checked = id_of_key(key).and_then(|oid| {
                let (since, row) = links::split_orphan(row)?;
                let record = Record::parse(row)?;
                self.check_checked(&record)?;
                record.check()?;
                if objects.contains_key(&oid) {
                    fail!(Corrupt, "file {oid:#x} has a name, and is an orphan, too");
                }
                if since > txn.id() {
                    fail!(Corrupt, "file {oid:#x} lost its name in {since}, after {}", txn.id());
                }
                Ok(record.extent().map(|extent| (extent, format!("orphan {oid:#x}"))))
            });
            match checked {
                Ok(extent) => extents.extend(extent),
                Err(error) => self.problem(format!("`orphans`: {error}")),
            }
        }
        Ok(())
    }

    /// Further names: of each object that is there, by OID, group and name.
    pub(super) fn links(
        &mut self,
        txn: &ReadTxn<'_>,
        objects: &HashMap<u64, RecordFacts>,
    ) -> Result<HashSet<(Oid, Gid, String)>> {
        let mut known = HashSet::new();
        let mut cursor = txn.seek(Table::Links, &[])?;
        while let Some((key, row)) = cursor.next()? {
            match links::split_key(key) {
                Err(error) => self.problem(error),
                Ok((oid, ..)) if !objects.contains_key(&oid) => {
                    self.problem(format!("a further name is of {oid:#x}, which is not there"));
                }
                Ok(_) if !row.is_empty() => self.problem("a row of `links` has a value"),
                Ok((oid, parent, name)) => {
                    known.insert((oid, parent, name.to_owned()));
                }
            }
        }
        Ok(known)
    }

    /// Times of groups: each of a group, with as many groups in it as there are.
    pub(super) fn group_times(
        &mut self,
        txn: &ReadTxn<'_>,
        groups: &HashMap<u64, RecordFacts>,
    ) -> Result<()> {
        let mut inner: HashMap<Gid, u32> = HashMap::new();
        for known in groups.values().filter(|known| known.named) {
            *inner.entry(known.parent).or_default() += 1;
        }
        let mut cursor = txn.seek(Table::GroupTimes, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let checked = id_of_key(key).and_then(|gid| {
                let times = group_times::GroupTimes::parse(row)?;
                if !groups.contains_key(&gid) {
                    fail!(Corrupt, "group {gid:#x} is not there");
                }
                let there = inner.get(&gid).copied().unwrap_or(0);
                if times.groups != there {
                    let said = times.groups;
                    fail!(Corrupt, "group {gid:#x} has {there} groups in it, not {said}");
                }
                Ok(())
            });
            if let Err(error) = checked {
                self.problem(format!("`group_times`: {error}"));
            }
        }
        Ok(())
    }
}
