//! How a stage is to be done.

use std::cmp::Reverse;
use std::collections::HashMap;

/// The part of a large file that is done or not, if nothing else is said.
pub const PART: u64 = 64 << 20;

/// How a copy is looked at before it takes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// It has as many bytes as its source.
    Size,
    /// What was handed on to be written sums up to what the copy is said to be, and is durable.
    Written,
    /// The copy is read again, past all caches, and sums up to the same.
    Readback,
}

/// What becomes of a file that has a copy's name and is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the stage says so.
    Refuse,
    /// It is replaced.
    Overwrite,
    /// It is replaced if it was written before the source was.
    Update,
}

/// Which files come first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they are found: folder by folder, in byte order of names.
    #[default]
    Found,
    /// By their size, the smallest first.
    Smallest,
    /// By their size, the largest first.
    Largest,
    /// By a list of paths in the namespace.
    Listed {
        /// What comes first, in this order.
        paths: Vec<String>,
        /// Whether what is not in the list is left out; else it comes last.
        only: bool,
    },
}

/// Words that stand for the values of an option.
macro_rules! words {
    ($option:ident { $($value:ident => $word:literal,)+ }) => {
        impl $option {
            /// The word that stands for it.
            pub fn word(self) -> &'static str {
                match self {
                    $($option::$value => $word,)+
                }
            }

            /// What a word stands for.
            pub fn of_word(word: &str) -> Option<$option> {
                match word {
                    $($word => Some($option::$value),)+
                    _ => None,
                }
            }
        }
    };
}

words!(Verify { Size => "size", Written => "written", Readback => "readback", });
words!(Existing { Refuse => "refuse", Overwrite => "overwrite", Update => "update", });

impl Order {
    /// The word that stands for it.
    pub fn word(&self) -> &'static str {
        match self {
            Order::Found => "found",
            Order::Smallest => "smallest",
            Order::Largest => "largest",
            Order::Listed { only: false, .. } => "listed",
            Order::Listed { only: true, .. } => "only-listed",
        }
    }

    /// What a word stands for; a list is empty.
    pub fn of_word(word: &str) -> Option<Order> {
        Some(match word {
            "found" => Order::Found,
            "smallest" => Order::Smallest,
            "largest" => Order::Largest,
            "listed" | "only-listed" => {
                Order::Listed { paths: Vec::new(), only: word == "only-listed" }
            }
            _ => return None,
        })
    }

    /// The places of a list's paths in it; of any other order, none.
    fn ranks(&self) -> HashMap<&str, usize> {
        let Order::Listed { paths, .. } = self else { return HashMap::new() };
        let ranks = paths.iter().enumerate().rev();
        ranks.map(|(rank, path)| (path.trim_matches('/'), rank)).collect()
    }

    /// Leaves out what is not in the list, if only that is to be brought; `path` gives a file's in
    /// the namespace.
    pub(crate) fn choose<T>(&self, files: &mut Vec<T>, path: impl Fn(&T) -> String) {
        if let Order::Listed { only: true, .. } = self {
            let ranks = self.ranks();
            files.retain(|file| ranks.contains_key(path(file).as_str()));
        }
    }

    /// Puts files in this order, each of which has a path in the namespace and a size.
    pub(crate) fn arrange<T>(
        &self,
        files: &mut [T],
        path: impl Fn(&T) -> String,
        size: impl Fn(&T) -> u64,
    ) {
        match self {
            Order::Found => {}
            Order::Smallest => files.sort_by_key(size),
            Order::Largest => files.sort_by_key(|file| Reverse(size(file))),
            Order::Listed { .. } => {
                let ranks = self.ranks();
                let last = usize::MAX;
                files.sort_by_cached_key(|file| *ranks.get(path(file).as_str()).unwrap_or(&last));
            }
        }
    }
}

/// How a stage is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many files are copied at a time.
    pub workers: usize,
    /// How copies are looked at.
    pub verify: Verify,
    /// Whether files are summed up by SHA-256, too.
    pub sha256: bool,
    /// What becomes of other files of the same names.
    pub existing: Existing,
    /// So many bytes of a large file are copied again at most by who goes on with it.
    pub part: u64,
    /// Whether each copy belongs to whom its source belongs; else to who runs the stage.
    pub keep_owners: bool,
    /// Which files come first.
    pub order: Order,
    /// Whether programs that open a file which is on its way into the pool wait until it is there.
    pub awaited: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8),
            verify: Verify::Written,
            sha256: false,
            existing: Existing::Refuse,
            part: PART,
            keep_owners: rustix::process::geteuid().is_root(),
            order: Order::Found,
            awaited: false,
        }
    }
}
