//! One number in a file, which many processes map: raised by some, looked at by all.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::map::MappedFile;
use engram_base::error::Result;
use engram_base::fail;

/// The number.
#[derive(Debug)]
pub struct SharedCounter {
    page: MappedFile,
    gone: AtomicBool,
}

impl SharedCounter {
    /// What the file has: one page, all of it allocated.
    pub const FILE_BYTES: u64 = 4096;

    /// Maps the file, which is open for writing.
    pub fn map(file: &File) -> Result<SharedCounter> {
        let page = MappedFile::map(file, Self::FILE_BYTES)?;
        if page.len() as u64 != Self::FILE_BYTES {
            fail!(Corrupt, "a file of one number has {} bytes, not 4096", page.len());
        }
        Ok(SharedCounter { page, gone: AtomicBool::new(false) })
    }

    fn number(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped for reading and writing as long as `self` lives, its start is
        // aligned, and every process touches the number by atomic operations alone.
        unsafe { AtomicU64::from_ptr(self.page.as_ptr().cast()) }
    }

    /// The number, and with it all that was done before it was raised.
    pub fn get(&self) -> u64 {
        self.number().load(Ordering::Acquire)
    }

    /// Raises the number by one; `false` if the file was let go of, and so nothing was done. Never
    /// at the same time as `let_go`, which is the caller's to see to.
    pub fn raise(&self) -> bool {
        let here = !self.gone.load(Ordering::Acquire);
        if here {
            self.number().fetch_add(1, Ordering::AcqRel);
        }
        here
    }

    /// Lets go of the file, so that its filesystem can be unmounted; the number is `u64::MAX` from
    /// then on. Others may read it all the while. If it cannot be, the file stays mapped.
    pub fn let_go(&self) {
        if !self.gone.load(Ordering::Acquire) && self.page.exchange(u64::MAX) {
            self.gone.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SharedCounter;

    #[test]
    fn what_one_raises_the_other_sees() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SharedCounter::FILE_BYTES).unwrap();
        let (one, other) = (SharedCounter::map(&file).unwrap(), SharedCounter::map(&file).unwrap());
        assert_eq!(other.get(), 0);
        assert!(one.raise());
        assert_eq!(other.get(), 1);
        one.let_go();
        assert_eq!((one.get(), one.raise(), other.get()), (u64::MAX, false, 1));
        assert!(other.raise());
        assert_eq!((one.get(), other.get()), (u64::MAX, 2));
        file.set_len(2 * SharedCounter::FILE_BYTES).unwrap();
        assert!(SharedCounter::map(&file).is_err(), "a file of another length is none of ours");
    }
}
