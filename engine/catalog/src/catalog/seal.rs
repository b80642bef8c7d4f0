//! The seal: which commit is known to be whole on persistent memory.
//!
//! LMDB's commit point is its meta page: one of two, by turns. It writes the page by stores into
//! its map (three cache lines: the trees' roots, and last the transaction's id) and then calls
//! `msync`. It has no checksum. A disk writes the sector of those bytes whole or not at all; on
//! persistent memory each *line* gets there by itself, whenever the processor pleases. So when
//! power fails between the stores and the end of `msync`, the medium may have the new id beside old
//! roots, and LMDB, which takes the page of the greater id, would read trees that were never there.
//!
//! Where the growth page is persistent memory itself (`MAP_SYNC`; nowhere else is anything of this
//! done, nor needed), one word of it, in a line of its own, is the greatest id that is *sealed*:
//!
//! 1. A writer whose commit has returned seals its id, by a store, a write-back of the line and a
//!    fence, before anybody is told that the commit is done.
//! 2. A writer that has begun (it has the writer lock) sees to it, before it changes anything, that
//!    the id it begins from is sealed. It writes that line back in any case: the writer that stored
//!    the word may not have come to it yet. If the word is behind, the one before is about to seal,
//!    and is waited for a moment; or it has died between its stores and now, and the file is synced
//!    first.
//!
//! So a commit page is only overwritten once the *other* one is whole, durable and sealed, and:
//!
//! *when power fails with id s sealed, the page of s is whole; of the other one nothing is known,
//! and nothing of it was acknowledged, unless it is the older one.*
//!
//! 3. The first process to open a catalog after a restart (the growth page has another boot's id;
//!    under the lock of `growth`, before LMDB looks) writes what the page of s says over the other
//!    one. Both are then the same; LMDB takes either, and its next commit goes to the page that s
//!    is not on. If power fails meanwhile, the next one finds what this one has found.
//!
//! After a mere death nothing is taken back: memory is whole then, and others may have seen the
//! commit. Nothing is sealed (0) in a catalog that is new, or was written to where there is no
//! persistent memory: a process that opens one there takes the seal away, since commits pass it by.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::growth::{Growth, open_file};
use super::{Catalog, Options, open_growth, sync_file};
use engram_base::error::{Error, Result};
use engram_media::boot_id;

/// Where a meta page says its number, its transaction, and what lies between.
const BODY: std::ops::Range<usize> = 16..152;
const ID_AT: usize = 144;
/// How often one looks for the seal of the writer before.
const LOOKS: u32 = 2000;

/// Takes back, after a restart of the machine, what was not sealed. This comes before LMDB opens
/// the file.
pub(super) fn roll_back_unsealed(
    data: &File,
    path: &Path,
    growth: &Growth,
    boot: [u8; 16],
) -> Result<()> {
    if !growth.is_persistent() {
        if growth.sealed() != 0 {
            growth.unseal();
            growth.sync()?;
        }
        return Ok(());
    }
    // Where the kernel does not tell its boots apart, nobody knows whether others are at work.
    if growth.boot_id() == boot || boot == [0; 16] {
        return Ok(());
    }
    let _lock = growth.lock()?;
    if growth.boot_id() == boot {
        return Ok(());
    }
    if growth.sealed() != 0 {
        take_back(data, growth.sealed(), growth.page_bytes())
            .map_err(|error| Error::os(format_args!("settling {}", path.display()), &error))?;
    }
    growth.set_boot_id(boot);
    growth.sync()
}

/// Does the same for a catalog that nobody has open yet, before a caller reads its pages without
/// opening it.
pub fn roll_back_closed(dir: &Path, options: &Options) -> Result<()> {
    let path = dir.join("data.mdb");
    let (data, _) = open_file(&path)?;
    roll_back_unsealed(&data, &path, &open_growth(dir, options)?, boot_id())
}

/// Makes the other meta page say what the one of the sealed transaction says.
fn take_back(data: &File, sealed: u64, page_bytes: u64) -> std::io::Result<()> {
    let mut pages = [[0; BODY.end]; 2];
    for (number, page) in pages.iter_mut().enumerate() {
        data.read_exact_at(page, number as u64 * page_bytes)?;
    }
    let place = (sealed & 1) as usize;
    let id = u64::from_le_bytes(pages[place][ID_AT..][..8].try_into().expect("eight bytes"));
    // Another id: the file is not the one that was sealed. LMDB and `verify` say what it is.
    if id == sealed && pages[place][BODY] != pages[1 - place][BODY] {
        let at = (1 - place) as u64 * page_bytes + BODY.start as u64;
        data.write_all_at(&pages[place][BODY], at)?;
        data.sync_all()?;
    }
    Ok(())
}

/// Sees to it that the transaction which a writer begins from is sealed. The caller has the
/// writer lock, and has changed nothing yet.
pub(super) fn seal_last(catalog: &Catalog) -> Result<()> {
    let last = catalog.env.last_id()?;
    if catalog.growth.has_flushed(last) {
        return Ok(());
    }
    for _ in 0..LOOKS {
        if catalog.growth.sealed() >= last {
            catalog.growth.seal(last);
            return Ok(());
        }
        std::hint::spin_loop();
    }
    sync_file(&catalog.data, &catalog.data_path).inspect_err(|_| catalog.poison())?;
    catalog.growth.seal(last);
    Ok(())
}
