//! Space: every byte of the arena is in use, pending or free, and only one of these.

use engram_realm::spans;
use std::collections::{BTreeSet, HashSet};

use super::Walk;
use engram_base::error::{Error, Result};
use engram_catalog::meta::meta_u64;
use engram_catalog::{ReadTxn, Table};
use engram_realm::{Core, USED, read_limit};
use engram_records::extent::{Extent, HUGE, SIZE_MAX};
use engram_space::extent::{
    ExtentHolder, Pending, Span, parse_free, parse_size_key, pending_rows, vacant_rows,
};

/// The ids of all leases that there are.
pub(super) fn lease_ids(core: &Core) -> Result<HashSet<u64>> {
    if core.setup.immutable {
        return Ok(HashSet::new());
    }
    let dir = core.setup.leases();
    let entries = std::fs::read_dir(&dir)
        .map_err(|e| Error::os(format!("listing the leases in {}", dir.display()), &e))?;
    let id = |name: std::ffi::OsString| u64::from_str_radix(name.to_str()?, 16).ok();
    Ok(entries.filter_map(|entry| id(entry.ok()?.file_name())).collect())
}

/// The bytes of extents, which may be nonsense.
fn total<'e>(extents: impl Iterator<Item = &'e Extent>) -> u64 {
    extents.fold(0, |sum: u64, extent| sum.saturating_add(extent.len))
}

impl Walk<'_> {
    /// Every byte of the arena is accounted for, once.
    pub(super) fn space(&mut self, txn: &ReadTxn<'_>, in_use: Vec<(Extent, String)>) -> Result<()> {
        let spans = Span::all(&mut txn.rows())?;
        let arena = spans.last().map_or(0, |last| last.range.end());
        let limit = read_limit(txn)?;
        let bounded = !self.core.setup.immutable;
        if (bounded && limit < arena) || !limit.is_multiple_of(HUGE) || limit > SIZE_MAX {
            self.problem(format!(
                "the size says {limit} bytes, which spans of {arena} cannot have"
            ));
        }
        for one in spans.iter().filter(|span| span.has_file()) {
            if let Err(error) = spans::open_span(self.core, *one, None) {
                self.problem(format!("span {}: {error}", one.number));
            }
        }
        let used = total(in_use.iter().map(|(extent, _)| extent));
        let account = meta_u64(txn.get(Table::Meta, USED)?)?;
        if used != account {
            self.problem(format!("objects take {used} bytes, the account says {account}"));
        }
        self.report.extents += in_use.len() as u64;
        let pending = pending_rows(txn)?;
        let pending_bytes = total(pending.iter().map(|row| &row.extent));
        self.report.orphaned += self.orphaned(&pending)?;
        let free = self.free(txn)?;
        let vacant = vacant_rows(txn)?;
        let free_bytes = total(free.iter().chain(&vacant));
        self.vacant(&vacant, &spans);
        let all = in_use
            .into_iter()
            .chain(pending.into_iter().map(|row| (row.extent, format!("{:?}", row.holder))))
            .chain(free.into_iter().map(|extent| (extent, "free".to_owned())))
            .chain(vacant.into_iter().map(|extent| (extent, "vacant".to_owned())));
        for problem in overlaps(all.collect(), arena) {
            self.problem(problem);
        }
        if used.saturating_add(pending_bytes).saturating_add(free_bytes) != arena {
            self.problem(format!(
                "{used} in use + {pending_bytes} pending + {free_bytes} free is not the arena's \
                 {arena} bytes"
            ));
        }
        self.report.used += used;
        self.report.pending += pending_bytes;
        self.report.free += free_bytes;
        self.report.arena += arena;
        Ok(())
    }

    /// The bytes that are reserved by a lease that there neither was before nor is by now. That is
    /// no damage: a lease is never synced, so a loss of power may take it away and leave what it
    /// had reserved.
    fn orphaned(&self, pending: &[Pending]) -> Result<u64> {
        let now = lease_ids(self.core)?;
        let is_orphaned = |holder: &ExtentHolder| match holder {
            ExtentHolder::Lease(lease) => !self.leases.contains(lease) && !now.contains(lease),
            ExtentHolder::Txn(_) => false,
        };
        let orphaned = pending.iter().filter(|row| is_orphaned(&row.holder));
        Ok(total(orphaned.map(|row| &row.extent)))
    }

    /// Vacant extents are parts of files, one each.
    fn vacant(&mut self, vacant: &[Extent], spans: &[Span]) {
        for extent in vacant {
            let holds = |span: &&Span| {
                span.range.offset <= extent.offset && extent.end() <= span.range.end()
            };
            let span = spans.iter().find(holds);
            if !span.is_some_and(|span| span.has_file() && span.place == 0) {
                self.problem(format!("vacant {extent:?} is no part of a span's file"));
            }
        }
    }

    /// The free extents; both tables must have the same, and no two may touch.
    fn free(&mut self, txn: &ReadTxn<'_>) -> Result<Vec<Extent>> {
        let mut by_size = BTreeSet::new();
        let mut cursor = txn.seek(Table::ExtentsBySize, &[])?;
        while let Some((key, _)) = cursor.next()? {
            let extent = parse_size_key(key)?;
            by_size.insert((extent.offset, extent.len));
        }
        let mut free: Vec<Extent> = Vec::new();
        let mut cursor = txn.seek(Table::ExtentsByOffset, &[])?;
        while let Some((key, value)) = cursor.next()? {
            let extent = parse_free(key, value)?;
            if !by_size.remove(&(extent.offset, extent.len)) {
                self.problem(format!("free {extent:?} is not in `extents_by_size`"));
            }
            if free.last().is_some_and(|before| before.end() == extent.offset) {
                self.problem(format!("free {extent:?} touches the one before it"));
            }
            free.push(extent);
        }
        for (offset, len) in by_size {
            self.problem(format!("free {len} bytes at {offset} are not in `extents_by_offset`"));
        }
        Ok(free)
    }
}

/// Says which extents overlap one before them, or go beyond the arena.
fn overlaps(mut all: Vec<(Extent, String)>, arena: u64) -> Vec<String> {
    all.sort();
    let (mut problems, mut end, mut last) = (Vec::new(), 0, String::new());
    for (extent, what) in all {
        if extent.offset < end {
            problems.push(format!("{extent:?} ({what}) overlaps one before it ({last})"));
        }
        if extent.end() > arena {
            problems.push(format!("{extent:?} ({what}) goes beyond the arena's {arena} bytes"));
        }
        if extent.end() > end {
            (end, last) = (extent.end(), what);
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{Extent, overlaps};

    #[test]
    fn what_overlaps_is_told_beside_the_extent_that_it_overlaps() {
        let extent = |offset, len, what: &str| (Extent { offset, len }, what.to_owned());
        let all = [
            extent(0, 4096, "long"),
            extent(64, 64, "inside"),
            extent(1024, 64, "behind"),
            extent(4096, 64, "beside"),
            extent(8128, 128, "beyond"),
        ];
        let problems = overlaps(all.into(), 8192);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].ends_with("(inside) overlaps one before it (long)"));
        assert!(problems[1].ends_with("(behind) overlaps one before it (long)"));
        assert!(problems[2].ends_with("(beyond) goes beyond the arena's 8192 bytes"));
    }
}
