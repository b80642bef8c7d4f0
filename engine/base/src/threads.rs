//! Threads: large data is encoded, decoded and copied by several at once.
//!
//! The caller's thread works, too; the others live as long as the call. There are as many as there
//! are processors for this process: one alone for a rank that is bound to a core. Their work
//! touches no catalog, takes no lock of the realm and knows no batch: that stays with the caller's
//! thread.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::error::Result;
use crate::mutex::lock;

/// A thread more for each so many bytes: less is done before it has begun.
const BYTES_EACH: usize = if cfg!(miri) { 8 << 10 } else { 512 << 10 };

/// How many processors there are for us; the kernel is asked once.
fn processors() -> usize {
    static KNOWN: OnceLock<usize> = OnceLock::new();
    *KNOWN.get_or_init(|| std::thread::available_parallelism().map_or(1, Into::into))
}

/// Does `work` for each number below `count`, of `bytes` in all, with what `begin` makes once for
/// each thread. Returns what they give, in order; after an error nothing more is begun.
pub fn each<W, T: Send>(
    count: usize,
    bytes: usize,
    begin: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = processors().min(count).min(1 + bytes / BYTES_EACH);
    if threads <= 1 {
        let mut own = begin();
        return (0..count).map(|at| work(&mut own, at)).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let failed = Mutex::new(None);
    let run = || {
        let mut own = begin();
        let mut given = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                break;
            }
            match work(&mut own, at) {
                Ok(one) => given.push((at, one)),
                Err(error) => {
                    next.store(count, Ordering::Relaxed);
                    lock(&failed).get_or_insert(error);
                    break;
                }
            }
        }
        lock(&done).append(&mut given);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where no thread can be had, the caller's does it all.
            let _ = std::thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
    if let Some(error) = lock(&failed).take() {
        return Err(error);
    }
    let mut done = std::mem::take(&mut *lock(&done));
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, one)| one).collect())
}

/// A thread more for each so many bytes that are copied, and how many at most: more threads copy no
/// faster than memory does.
const COPIED_EACH: usize = 16 << 20;
const COPYING: usize = 8;

/// How long the parts are into which a copy of so many bytes is cut, one for each thread.
fn part_of(nbytes: usize) -> usize {
    let parts = processors().min(COPYING).min(nbytes / COPIED_EACH).max(1);
    nbytes.div_ceil(parts).next_multiple_of(4096)
}

/// Lets threads copy out of `data`, each a part and where it begins.
#[expect(clippy::missing_panics_doc, reason = "its work never fails")]
pub fn copy_from(data: &[u8], copy: impl Fn(u64, &[u8]) + Sync) {
    let len = part_of(data.len()).max(1);
    let parts: Vec<&[u8]> = data.chunks(len).collect();
    let copied = each(
        parts.len(),
        data.len(),
        || (),
        |(), at| {
            copy((at * len) as u64, parts[at]);
            Ok(())
        },
    );
    copied.expect("copying does not fail");
}

/// Lets threads copy `nbytes` from elsewhere, each a part: where it begins and its length. `copy`
/// says how many bytes it has copied: fewer where the source ends. Returns how many were copied
/// before the first such end.
///
/// # Errors
///
/// The first of a part.
#[expect(clippy::missing_panics_doc, reason = "its work never fails")]
pub fn copy_parts(
    nbytes: usize,
    copy: impl Fn(u64, usize) -> io::Result<usize> + Sync,
) -> io::Result<usize> {
    let len = part_of(nbytes).max(1);
    let of = |at: usize| len.min(nbytes - at * len);
    let count = nbytes.div_ceil(len);
    let copied = each(count, nbytes, || (), |(), at| Ok(copy((at * len) as u64, of(at))));
    let mut done = 0;
    for (at, copied) in copied.expect("copying does not fail").into_iter().enumerate() {
        let copied = copied?;
        done += copied;
        if copied < of(at) {
            break;
        }
    }
    Ok(done)
}

/// Lets threads copy into `data`, likewise.
#[expect(clippy::missing_panics_doc, reason = "its work never fails")]
pub fn copy_into(data: &mut [u8], copy: impl Fn(u64, &mut [u8]) + Sync) {
    let (len, nbytes) = (part_of(data.len()).max(1), data.len());
    let parts: Vec<_> = data.chunks_mut(len).map(Mutex::new).collect();
    let copied = each(
        parts.len(),
        nbytes,
        || (),
        |(), at| {
            copy((at * len) as u64, &mut lock(&parts[at]));
            Ok(())
        },
    );
    copied.expect("copying does not fail");
}

#[cfg(test)]
mod tests {
    use super::{copy_from, copy_into, copy_parts, each};
    use crate::error::{Error, Kind};
    use crate::mutex::lock;
    use std::io;
    use std::sync::Mutex;

    #[test]
    fn what_threads_do_comes_back_in_order_and_the_first_error_ends_it() {
        let squares = each(1000, 1 << 30, || (), |(), at| Ok(at * at)).unwrap();
        assert_eq!(squares, (0..1000).map(|at| at * at).collect::<Vec<_>>());
        let refused = each(
            1000,
            1 << 30,
            || (),
            |(), at| match at {
                500 => Err(Error::new(Kind::Corrupt, "five hundred")),
                _ => Ok(()),
            },
        );
        assert_eq!(refused.unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(each(0, 0, || (), |(), at| Ok(at)).unwrap(), Vec::<usize>::new());
    }

    #[test]
    fn every_byte_is_copied_once() {
        for nbytes in [0, 1, 4096, (64 << 20) + 5] {
            let data: Vec<u8> = (0..nbytes).map(|at: usize| (at % 251) as u8).collect();
            let parts = Mutex::new(Vec::new());
            copy_from(&data, |at, part| lock(&parts).push((at as usize, part.to_vec())));
            let mut parts = parts.into_inner().unwrap();
            parts.sort_unstable_by_key(|(at, _)| *at);
            let mut end = 0;
            for (at, part) in parts {
                assert!(at == end && part == data[at..at + part.len()], "{nbytes}: at {at}");
                end += part.len();
            }
            assert_eq!(end, nbytes);
            let mut out = vec![0; nbytes];
            copy_into(&mut out, |at, part| {
                part.copy_from_slice(&data[at as usize..][..part.len()]);
            });
            assert!(out == data, "{nbytes}");
        }
    }

    #[test]
    fn parts_are_counted_up_to_where_the_first_ends() {
        for nbytes in [0, 1, 4096, (200 << 20) + 5] {
            for there in [nbytes, nbytes / 2, nbytes / 5, 0] {
                let copied = Mutex::new(0);
                let copy = |at: u64, len: usize| {
                    assert!(len > 0 && at as usize + len <= nbytes);
                    *lock(&copied) += len;
                    Ok(there.saturating_sub(at as usize).min(len))
                };
                assert_eq!(copy_parts(nbytes, copy).unwrap(), there, "of {nbytes}");
                assert_eq!(*lock(&copied), nbytes);
            }
        }
        let refuse = |at: u64, len: usize| match at {
            0 => Ok(len),
            _ => Err(io::Error::from_raw_os_error(5)),
        };
        let refused = copy_parts(200 << 20, refuse);
        assert_eq!(refused.is_err(), super::part_of(200 << 20) < 200 << 20);
    }
}
