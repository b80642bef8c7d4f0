//! Notices: what the program should be told, though nothing has failed.
//!
//! Threads of ours find them out, which have nobody to tell. So they are kept here, a few of them,
//! until somebody asks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use engram_base::mutex::lock;

/// So many are kept at most: the newest.
const KEPT: usize = 16;

/// What a process has to tell of a realm.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    any: AtomicBool,
    texts: Mutex<Vec<String>>,
}

impl Notices {
    /// Keeps a notice.
    pub(crate) fn add(&self, text: String) {
        let mut texts = lock(&self.texts);
        if texts.len() == KEPT {
            texts.remove(0);
        }
        texts.push(text);
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut texts = lock(&self.texts);
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *texts)
    }
}
