//! Where a range of a file lies in this process's memory, piece by piece: for traces.

use super::OpenFile;
use super::small::FileForm;
use crate::realm::space;
use engram_base::error::Result;

/// A piece of a range: within one segment, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePiece {
    /// Where it begins in the file.
    pub at: u64,
    /// How many bytes it has.
    pub len: u64,
    /// The address of its first byte in this process; `None` of a hole. It tells where the bytes
    /// lay, and is not to be followed: nothing keeps them there.
    pub address: Option<u64>,
}

impl OpenFile {
    /// See [`super::File::pieces`].
    pub(super) fn pieces(&self, offset: u64, len: u64) -> Result<Vec<FilePiece>> {
        let end = offset.saturating_add(len);
        if let Some(used) = self.using()? {
            let (map, mut pieces) = (&used.map, Vec::new());
            map.pieces(&self.core, offset, end.min(map.head.size()), |at, len, memory| {
                let address = memory.map(|memory| memory.as_ptr() as u64);
                pieces.push(FilePiece { at, len, address });
                true
            });
            return Ok(pieces);
        }
        let inside = self.core.enter()?;
        let FileForm::Extent(extent, nbytes) = self.form(&inside)? else { return Ok(Vec::new()) };
        let len = end.min(nbytes).saturating_sub(offset);
        if len == 0 {
            return Ok(Vec::new());
        }
        space::reach(&self.core, &inside, extent.end())?;
        let address = self.core.space.arena.memory(extent).as_ptr() as u64 + offset;
        Ok(vec![FilePiece { at: offset, len, address: Some(address) }])
    }
}
