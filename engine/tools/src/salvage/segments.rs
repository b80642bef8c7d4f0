//! Salvage of files: each segment for itself. What is missing is a hole.

use super::Witness;
use super::gather::{Gathered, Saved};
use engram_base::error::{Error, Kind, Result};
use engram_base::id::{Member, Oid};
use engram_ops::chunk_rows;
use engram_realm::{File, Realm};
use engram_records::object::{NewObject, Placement};
use engram_records::segmented::{HEAD_BYTES, HeadFacts, Segmented};

/// A file to be copied.
pub(super) struct SavedFile<'a> {
    pub gathered: &'a Gathered,
    pub oid: Oid,
    pub saved: &'a Saved,
    pub segmented: Segmented,
}

impl SavedFile<'_> {
    /// Makes a file, and puts what can be read of each segment into it.
    pub(super) fn copy(
        &self,
        path: &str,
        new: &NewObject,
        placement: Placement,
        to: &Realm,
        witness: &mut dyn Witness,
        lose: &mut dyn FnMut(String),
    ) -> Result<()> {
        let (rows, damaged) = self.gathered.chunks_of(self.saved, self.oid);
        let mut segments = Vec::new();
        for (cell, saved) in rows.into_iter().flatten() {
            let key = chunk_rows::key_of(self.oid, cell);
            match chunk_rows::segment(self.oid, &key, &saved.row) {
                Ok(segment) => segments.push((segment, saved.realm)),
                Err(error) => lose(format!("a segment: {}", error.message())),
            }
        }
        let end = segments.iter().map(|((at, extent), _)| at + extent.len).max().unwrap_or(0);
        let most = end.max(self.segmented.nbytes);
        let facts = self.head().unwrap_or_else(|error| {
            lose(format!("its size and times: {}", error.message()));
            HeadFacts { size: self.segmented.nbytes, ..HeadFacts::default() }
        });
        let open = Placement { read_only: false, ..placement };
        let made = to.put(to.root(), path, new, &[], open)?;
        let file = to.open_file(made, true)?;
        let size = facts.size.min(most);
        file.set_size(size)?;
        for ((at, extent), realm) in segments {
            let (mut at, spans) = (at, self.gathered.spans(realm));
            let copied = spans.read(extent.offset, extent.len, |piece| {
                witness.pulse();
                let count = size.saturating_sub(at).min(piece.len() as u64) as usize;
                put(&file, at, &piece[..count])?;
                at += piece.len() as u64;
                Ok(())
            });
            match copied {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), Kind::PoolFull | Kind::Access) => {
                    return Err(error);
                }
                Err(error) => lose(format!("bytes from {at} on: {}", error.message())),
            }
        }
        file.set_times(Some(facts.written), Some(facts.accessed))?;
        if damaged {
            lose("perhaps some of its bytes, with what is damaged of the catalog".to_owned());
        }
        if placement.read_only {
            to.set_read_only(Member::Object(made), true)?;
        }
        Ok(())
    }

    /// What its head says.
    fn head(&self) -> Result<HeadFacts> {
        let mut bytes = Vec::new();
        let spans = self.gathered.spans(self.saved.realm);
        spans.read(self.segmented.head.offset, HEAD_BYTES, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        HeadFacts::parse(&bytes)
    }
}

/// Writes what is not all zeros: a hole stays one.
fn put(file: &File, at: u64, bytes: &[u8]) -> Result<()> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    file.write_at(at, bytes).map_err(|error: Error| error.context("writing the copy"))
}
