//! A file in very many segments, beside one of the same size in one.

use std::hint::black_box;
use std::path::Path;

use engram::{CreateOptions, Pool};
use engram_fs::Handle;

use crate::contestants::{InPool, text};
use crate::store::timed;
use crate::{Result, json};

const PAGE: u64 = 4096;
/// The bytes of a segment.
const PIECE: u64 = 4 * PAGE;
/// An odd number, by which every place comes up once.
const STEP: u64 = 0x9e37_79b1;

/// Reads pages here and there in both, by turns: seconds for each.
pub fn measure(folder: &Path, segments: u64, reads: u64, rounds: u64) -> Result<String> {
    let path = folder.join("fragments.pool");
    let size = 2 * segments * PIECE + (64 << 20);
    drop(Pool::create(&path, &CreateOptions { size, ..Default::default() })?);
    let pool = InPool::open(&path)?;
    let files = [filled(&pool, "one", segments, true)?, filled(&pool, "many", segments, false)?];
    let mut samples = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (file, samples) in files.iter().zip(&mut samples) {
            let taken = timed(reads, || pages(file, segments * PIECE, round * reads, reads))?;
            if round > 0 {
                samples.push(taken);
            }
        }
    }
    drop((files, pool));
    Pool::destroy(&path)?;
    Ok(json(&[("one segment", &samples[0]), ("many", &samples[1])]))
}

/// A file that is written piece by piece, here and there: into space that was reserved as one
/// segment, or into a hole, where each piece gets a segment of its own.
fn filled(pool: &InPool, name: &str, segments: u64, one: bool) -> Result<Handle> {
    let (file, bytes) = (pool.create_file(name, false)?, segments * PIECE);
    if one {
        file.fallocate(0, 0, bytes).map_err(text)?;
    } else {
        file.set_size(bytes).map_err(text)?;
    }
    let (piece, places) = (vec![7; PIECE as usize], segments.next_power_of_two());
    let order = (0..places).map(|turn| turn.wrapping_mul(STEP) % places);
    for place in order.filter(|place| *place < segments) {
        file.write(place * PIECE, &piece).map_err(text)?;
    }
    let count = pool.fs.namespace().open_file(file.ino(), false)?.segments()?.len() as u64;
    let wanted = if one { 1 } else { segments };
    if count != wanted {
        return Err(format!("the file {name} is in {count} segments, not {wanted}").into());
    }
    Ok(file)
}

/// Reads pages here and there.
fn pages(file: &Handle, bytes: u64, first: u64, reads: u64) -> Result<()> {
    let mut into = vec![0; PAGE as usize];
    for turn in first..first + reads {
        let page = turn.wrapping_mul(STEP) % (bytes / PAGE);
        file.read(page * PAGE, &mut into).map_err(text)?;
    }
    black_box(into);
    Ok(())
}
