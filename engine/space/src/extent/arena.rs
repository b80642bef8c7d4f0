//! The arena: one reserved address range, filled by spans of device files.
//!
//! A span is a file `span-<n>` on one device, `fallocate`d whole before its row in `spans` commits,
//! or a range of a devdax node, zeroed before; it never changes afterwards. Spans are appended:
//! span n begins where span n-1 ends. So an offset means the same bytes in every process and for
//! ever, and an extent may run over from one device to the next and still be one numpy array. A
//! process attaches a span the first time that it meets an offset in it.
//!
//! **Growing** (outside the writer lock: allocating blocks takes time): (1) take the growth lock;
//! (2) `fallocate` the file; (3) one transaction adds the span's row and its free extent. A file
//! without a row is what a crash between (2) and (3) leaves: nobody knows it, and the next grower,
//! which wants the same number, removes it.

use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_base::pool_lock::wait_for;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_media::devdax;
use engram_media::emulated::Emulated;
use engram_media::map::AddressRange;
use engram_media::memory::Memory;
use engram_records::extent::{Extent, HUGE};

/// One span: a row of `spans`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its number, from zero.
    pub number: u32,
    /// The device that its file lies on.
    pub device: u32,
    /// The bytes of the arena that it fills.
    pub range: Extent,
    /// The number in its file's name: its own, unless spans before it were given back.
    pub file: u32,
    /// Where it begins in its file: 0, but on a devdax node, which is one file for all its spans.
    pub place: u64,
}

impl Span {
    /// The device of a span that has no file: addresses that are not in use (published realms
    /// have such, where what they held was withdrawn).
    pub const NO_DEVICE: u32 = u32::MAX;

    /// Whether there are bytes behind its addresses.
    pub fn has_file(self) -> bool {
        self.device != Self::NO_DEVICE
    }

    /// The row's key: the number, big-endian.
    pub fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    /// The row's value: offset, length, device, place, number of the file.
    pub fn to_row(self) -> [u8; 32] {
        let mut row = [0; 32];
        row[..8].copy_from_slice(&self.range.offset.to_le_bytes());
        row[8..16].copy_from_slice(&self.range.len.to_le_bytes());
        row[16..20].copy_from_slice(&self.device.to_le_bytes());
        row[20..28].copy_from_slice(&self.place.to_le_bytes());
        row[28..].copy_from_slice(&self.file.to_le_bytes());
        row
    }

    /// The span of a row; `CorruptError` if it can be none.
    #[expect(clippy::missing_panics_doc, reason = "the row's length is checked first")]
    pub fn from_row(number: u32, row: &[u8]) -> Result<Self> {
        let Ok(row) = <[u8; 32]>::try_from(row) else {
            fail!(Corrupt, "span {number} has a row of {} bytes", row.len())
        };
        let word = |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().expect("eight"));
        let range = super::allocator::checked(word(0), word(8))?;
        let half = |at: usize| u32::from_le_bytes(row[at..at + 4].try_into().expect("four"));
        Ok(Span { number, device: half(16), range, file: half(28), place: word(20) })
    }

    /// Every span, in order; checks that they follow one another without a gap.
    pub fn all(rows: &mut dyn Rows) -> Result<Vec<Span>> {
        let mut spans: Vec<Span> = Vec::new();
        loop {
            let number = spans.len() as u32;
            let Some(row) = rows.get(Table::Spans, &Self::key(number))? else { return Ok(spans) };
            let span = Self::from_row(number, &row)?;
            if span.range.offset != spans.last().map_or(0, |last| last.range.end()) {
                fail!(
                    Corrupt,
                    "span {number} begins at {}, not where the last ends",
                    span.range.offset
                );
            }
            spans.push(span);
        }
    }
}

impl Span {
    /// The pieces of a devdax node of `len` bytes that none of these spans has, in order.
    pub fn gaps(spans: &[Span], device: u32, len: u64) -> Result<Vec<Extent>> {
        let on_node = spans.iter().filter(|span| span.device == device && span.place != 0);
        let mut taken: Vec<(u64, u64)> =
            on_node.map(|span| (span.place, span.place.saturating_add(span.range.len))).collect();
        taken.sort_unstable();
        let end = len / HUGE * HUGE;
        taken.push((end, end));
        let (mut gaps, mut at) = (Vec::new(), devdax::LABEL_LEN);
        for (from, to) in taken {
            if from < at || !from.is_multiple_of(HUGE) || !to.is_multiple_of(HUGE) {
                fail!(
                    Corrupt,
                    "a span on device {device} lies at {from} to {to} of {len}, where none can be \
                     after {at}"
                );
            }
            if from > at {
                gaps.push(Extent { offset: at, len: from - at });
            }
            at = to;
        }
        Ok(gaps)
    }
}

/// The arena, as far as this process has it attached.
pub struct Arena {
    range: Arc<AddressRange>,
    writable: bool,
    attached: Mutex<Vec<Span>>,
}

impl Arena {
    /// Reserves the address range: `bytes`, or as many as the process may, but at least `least`.
    /// Spans are attached for reading alone where it is not `writable`.
    pub fn reserve(bytes: u64, least: u64, writable: bool) -> Result<Self> {
        let range = Arc::new(AddressRange::reserve(bytes, least)?);
        Ok(Arena { range, writable, attached: Mutex::default() })
    }

    /// The same, whose copying takes as long as on this device, if there is one to emulate.
    #[must_use]
    pub fn emulating(self, device: Option<Emulated>) -> Self {
        if let Some(device) = device {
            self.range.emulate(device);
        }
        self
    }

    /// Attaches every span of `rows` that is not attached yet, so that `end` is reachable.
    /// `file` opens a span's file, which has the span at its `place`, and says whether it may be
    /// written to.
    pub fn reach(
        &self,
        end: u64,
        rows: &mut dyn Rows,
        file: impl Fn(&Span) -> Result<(File, bool)>,
    ) -> Result<()> {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let mut have = attached.last().map_or(0, |span| span.range.end());
        if end <= have {
            return Ok(());
        }
        for span in Span::all(rows)?.into_iter().skip(attached.len()) {
            if span.has_file() {
                let (opened, writable) = file(&span)?;
                let Extent { offset, len } = span.range;
                let writable = writable && self.writable;
                self.range.attach(offset, len, &opened, span.place, writable)?;
            } else {
                self.range.skip(span.range.offset, span.range.len)?;
            }
            have = span.range.end();
            attached.push(span);
        }
        if end > have {
            fail!(Corrupt, "a record points to offset {end}, the spans end at {have}");
        }
        Ok(())
    }

    /// The spans that are attached.
    pub fn attached(&self) -> Vec<Span> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One of them: the nth, as far as they go around.
    pub fn attached_in_turn(&self, nth: usize) -> Option<Span> {
        let attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.get(nth % attached.len().max(1)).copied()
    }

    /// The extent's memory. It must have been reached, and the caller must hold the extent.
    pub fn memory(&self, extent: Extent) -> Memory {
        Memory::new(&self.range, extent.offset, extent.len)
    }

    /// Memory of several extents, or of zeros, mapped side by side: of each piece where it begins
    /// in the arena, and its length, both of whole pages. All must have been reached, and the
    /// caller must hold them.
    pub fn stitched(&self, pieces: &[(Option<u64>, u64)]) -> Result<Memory> {
        let range = Arc::new(self.range.stitched(pieces)?);
        Ok(Memory::new(&range, 0, range.attached()))
    }

    /// Lets go of the spans, unless somebody still holds memory in them.
    pub fn release(&self) {
        AddressRange::release(&self.range);
    }

    /// Makes the first `nbytes` of an extent durable.
    pub fn flush(&self, extent: Extent, nbytes: u64) -> Result<()> {
        self.range.flush(extent.offset, nbytes.min(extent.len))
    }

    /// Maps every page of an extent now.
    pub fn prefault(&self, extent: Extent) -> Result<()> {
        self.range.prefault(extent.offset, extent.len)
    }

    /// How many bytes can be addressed at all.
    pub fn reserved(&self) -> u64 {
        self.range.reserved()
    }
}

/// The right to grow this realm's arena: one process at a time, released by the kernel on death.
pub struct Growing {
    _lock: File,
}

impl Growing {
    /// Makes the file of the lock, with exactly this mode; `dir` is the realm's.
    pub fn prepare(dir: &Path, mode: u32) -> Result<()> {
        let path = dir.join("growing");
        let made = File::create_new(&path)
            .and_then(|file| file.set_permissions(Permissions::from_mode(mode)).map(|()| file))
            .map_err(|e| Error::os(format!("making {}", path.display()), &e))?;
        engram_files::folder::hand_over(&made, &path)
    }

    /// Takes the growth lock if nobody has it; `dir` is the realm's.
    pub fn try_begin(dir: &Path) -> Result<Option<Self>> {
        let lock = Self::open(&dir.join("growing"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Growing { _lock: lock })),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(e)) => {
                Err(Error::os(format!("locking the growth of {}", dir.display()), &e))
            }
        }
    }

    /// Waits for the growth lock, unless its holder stands still; `dir` is the realm's.
    pub fn begin(dir: &Path) -> Result<Self> {
        let path = dir.join("growing");
        let lock = Self::open(&path)?;
        wait_for(&lock, &path, Duration::MAX)?;
        Ok(Growing { _lock: lock })
    }

    fn open(path: &Path) -> Result<File> {
        File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(|e| Error::os(format!("opening {}", path.display()), &e))
    }
}

#[cfg(test)]
mod tests {
    use super::{Extent, HUGE, Span};

    /// Spans of these (device, place, length), in units of 2 MiB, one behind the other.
    fn spans(of: &[(u32, u64, u64)]) -> Vec<Span> {
        let mut offset = 0;
        let span = |(number, &(device, place, len)): (usize, &(u32, u64, u64))| {
            let range = Extent { offset, len: len * HUGE };
            offset += range.len;
            Span { number: number as u32, file: 0, device, range, place: place * HUGE }
        };
        of.iter().enumerate().map(span).collect()
    }

    /// The gaps on device 1, of 20 units and a bit, in units.
    fn gaps(of: &[(u32, u64, u64)]) -> Option<Vec<(u64, u64)>> {
        let gaps = Span::gaps(&spans(of), 1, 20 * HUGE + 4096).ok()?;
        Some(gaps.into_iter().map(|gap| (gap.offset / HUGE, gap.len / HUGE)).collect())
    }

    #[test]
    fn what_no_span_has_of_a_node_is_free_and_nothing_else_is() {
        assert_eq!(gaps(&[]), Some(vec![(1, 19)]));
        assert_eq!(gaps(&[(0, 0, 5), (2, 1, 5)]), Some(vec![(1, 19)]), "others' spans");
        assert_eq!(gaps(&[(1, 1, 4), (1, 5, 2)]), Some(vec![(7, 13)]));
        assert_eq!(gaps(&[(1, 9, 4), (1, 3, 2)]), Some(vec![(1, 2), (5, 4), (13, 7)]));
        assert_eq!(gaps(&[(1, 1, 19)]), Some(vec![]));
        for wrong in [vec![(1, 1, 4), (1, 4, 2)], vec![(1, 19, 2)], vec![(1, u64::MAX / HUGE, 2)]] {
            assert_eq!(gaps(&wrong), None, "{wrong:?}");
        }
    }
}
