//! What a cluster asks of a node pool: parts of arrays, subtrees, and the objects in these.
//!
//! A process has one engine: two copies of it cannot have one pool open. What drives a cluster lies
//! in a library of its own, which a process of one node never loads, and reaches the engine that is
//! there by a table of C functions.
//!
//! This crate owns that table ([`table`]), and its safe sides: the pool ([`NodePool`]), the parts
//! that lie in it ([`Parts`]) and its subtrees ([`Trees`]).
//!
//! *Invariant*: a part is whole or not there. Its bytes are written into space that nobody else
//! sees, and it appears when they all are. Whoever has a part's bytes keeps them: a part that is
//! freed meanwhile is read to its end.
//!
//! | module | what it offers |
//! |---|---|
//! | [`table`] | the C functions |
//! | [`pool`] | a node pool: objects and groups by their places |
//! | [`head`] | what an object is, beside its value |
//! | [`trees`] | subtrees: groups of a node pool that a name of the cluster is |
//! | [`dtype`] | dtypes as manifests have them |

#![deny(missing_docs)]

pub mod dtype;
pub mod head;
pub mod pool;
pub mod table;
pub mod trees;

use std::path::Path;

use engram_base::checksum::RunningChecksum;
use engram_base::dtype::DType;
use engram_base::error::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::head::Head;
use crate::pool::{BoxOf, New, Place};
pub use crate::pool::{Facts, Looked, NodePool, Writer};
use crate::table::Table;
pub use crate::trees::Trees;

/// The group of all parts.
const PARTS: &str = ".cluster/parts";
/// Members that are listed at a time.
const LISTED: usize = 1000;

/// Which part it is: the uuid of its manifest, and its number there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartName {
    /// The uuid of the manifest.
    pub uuid: String,
    /// The number.
    pub part: u32,
}

/// What stands in the record of a part: a manifest can be proved from the parts alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The name whose part it is.
    pub path: String,
    /// Who makes it.
    pub maker: u64,
    /// Of which publication of its maker it is, as that one counts them.
    pub begun: u64,
    /// Where its box begins in the array.
    pub offsets: Vec<u64>,
    /// What its bytes sum up to, if it is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<u64>,
}

impl Mark {
    /// The mark that stands in a record; none where something else does.
    pub fn decode(bytes: &[u8]) -> Option<Mark> {
        serde_json::from_slice(bytes).ok()
    }

    /// As it stands in a record.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a mark is JSON")
    }
}

/// A part that is to be made.
#[derive(Clone, Debug)]
pub struct NewPart {
    /// Which it is.
    pub name: PartName,
    /// What stands in its record.
    pub mark: Mark,
    /// The type of its items.
    pub dtype: DType,
    /// How long its box is: its shape.
    pub counts: Vec<u64>,
}

impl NewPart {
    /// How many bytes it has.
    pub fn nbytes(&self) -> Result<u64> {
        let items = self.counts.iter().try_fold(1_u64, |all, count| all.checked_mul(*count));
        items.and_then(|items| items.checked_mul(self.dtype.itemsize())).ok_or_else(|| {
            Error::new(Kind::Argument, format!("{:?} items are too many for a part", self.counts))
        })
    }
}

/// The parts of one node pool, which is open as long as this is.
#[derive(Clone)]
pub struct Parts {
    pool: NodePool,
}

impl PartName {
    /// Where the part lies in its pool; an error where the uuid cannot be one.
    fn path(&self) -> Result<String> {
        check_uuid(&self.uuid)?;
        Ok(format!("{PARTS}/{}/{}", self.uuid, self.part))
    }
}

/// Refuses what cannot be a uuid: it is a name in the pool.
fn check_uuid(uuid: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !uuid.is_empty() && uuid.len() <= 64 && uuid.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Error::new(Kind::Argument, format!("{uuid:?} is no uuid: letters, digits and dashes")))
}

impl Parts {
    /// Opens a node pool, by the engine of this process.
    pub fn open(table: &'static Table, pool: &Path) -> Result<Parts> {
        Ok(Parts { pool: NodePool::open(table, pool)? })
    }

    /// The pool in which they lie.
    pub fn pool(&self) -> &NodePool {
        &self.pool
    }

    /// What the pool is.
    pub fn facts(&self) -> Result<Facts> {
        self.pool.facts()
    }

    /// Reserves space for a part; without room it fails before any byte moves.
    pub fn begin(&self, new: &NewPart) -> Result<Writer> {
        let head = Head::array(new.dtype.clone(), new.counts.clone()).encode();
        let mark = new.mark.encode();
        let object = New { head: &head, mark: &mark, nbytes: new.nbytes()?, overwrite: false };
        self.pool.begin(Place::at(&new.name.path()?), &object)
    }

    /// Makes a part of these bytes.
    pub fn put(&self, new: &NewPart, data: &[u8]) -> Result<()> {
        let (own, given) = (new.nbytes()?, data.len() as u64);
        if own != given {
            let why = format!("a part of {:?} items has {own} bytes, not {given}", new.counts);
            return Err(Error::new(Kind::Argument, why));
        }
        let mut writer = self.begin(new)?;
        writer.write_at(0, data);
        writer.finish()
    }

    /// Makes a part whose items all have these bytes; without any they are zeros.
    pub fn fill(&self, new: &NewPart, item: &[u8]) -> Result<()> {
        let mut writer = self.begin(new)?;
        let size = new.dtype.itemsize() as usize;
        if item.is_empty() || size == 0 {
            writer.memory().fill(0);
        } else if item.len() == size {
            writer.memory().chunks_exact_mut(size).for_each(|place| place.copy_from_slice(item));
        } else {
            let why = format!("an item has {size} bytes, not {}", item.len());
            return Err(Error::new(Kind::Argument, why));
        }
        writer.finish()
    }

    /// Sums up a part that was written in place, and has nobody write it any more: what its bytes
    /// sum up to. A part that is sealed already tells what it did before.
    ///
    /// `Busy` where a process has its memory for writing.
    pub fn seal(&self, name: &PartName) -> Result<u64> {
        self.pool.seal(Place::at(&name.path()?))
    }

    /// Copies a box of a part out, in the part's own coordinates.
    pub fn load(&self, name: &PartName, cut: BoxOf<'_>, out: &mut [u8]) -> Result<()> {
        self.pool.load(Place::at(&name.path()?), cut, out)
    }

    /// Writes a box of a part that is not sealed, in the part's own coordinates.
    pub fn store(&self, name: &PartName, cut: BoxOf<'_>, data: &[u8]) -> Result<()> {
        self.pool.store(Place::at(&name.path()?), cut, data)
    }

    /// Gives a part another number; one that has it already is an error.
    pub fn renumber(&self, from: &PartName, to: &PartName) -> Result<()> {
        self.pool.rename(Place::at(&from.path()?), Place::at(&to.path()?))
    }

    /// A part's bytes, kept as long as they are held; none where there is no such part.
    pub fn bytes(&self, name: &PartName) -> Result<Option<Looked>> {
        let Ok(path) = name.path() else { return Ok(None) };
        self.pool.look(Place::at(&path))
    }

    /// All parts, and what stands in their records. One whose record cannot be read is left out.
    pub fn all(&self) -> Result<Vec<(PartName, Mark)>> {
        let mut all = Vec::new();
        each(&self.pool, PARTS, &mut |group| {
            let uuid = group.name;
            each(&self.pool, &format!("{PARTS}/{uuid}"), &mut |found| {
                if let (Ok(part), Some(mark)) = (found.name.parse(), Mark::decode(&found.more)) {
                    all.push((PartName { uuid: uuid.clone(), part }, mark));
                }
                Ok(())
            })
        })?;
        Ok(all)
    }

    /// What stands in the record of one part; none where it is not there.
    pub fn mark(&self, name: &PartName) -> Result<Option<Mark>> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        Ok(Mark::decode(bytes.mark()))
    }

    /// Frees a part, if it is there: its memory stays until the last who has it has gone.
    pub fn free(&self, name: &PartName) -> Result<()> {
        let Ok(path) = name.path() else { return Ok(()) };
        self.pool.free(Place::at(&path))?;
        // One that has other parts stays, and one that has gone is gone.
        let _ = self.pool.prune(Place::at(&format!("{PARTS}/{}", name.uuid)));
        Ok(())
    }

    /// Whether the bytes of a part sum up to what they summed up to when it was made; one that is
    /// not sealed is whole. It is given up, as one that is not, where `goes_on` says so.
    pub fn is_whole(
        &self,
        name: &PartName,
        checksum: Option<u64>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let Some(expected) = checksum else { return Ok(true) };
        let Some(bytes) = self.bytes(name)? else { return Ok(false) };
        Ok(bytes.checksum(goes_on) == Some(expected))
    }
}

/// Looks at each member of a group; a group that is not there has none.
fn each(
    pool: &NodePool,
    group: &str,
    look: &mut dyn FnMut(pool::Listed) -> Result<()>,
) -> Result<()> {
    let mut after = String::new();
    loop {
        let found = match pool.list(Place::at(group), &after, LISTED) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            found => found?,
        };
        let Some(last) = found.last() else { return Ok(()) };
        after.clone_from(&last.name);
        for member in found {
            look(member)?;
        }
    }
}

/// The checksum of bytes that lie side by side.
pub fn checksum_of(bytes: &[u8]) -> u64 {
    let mut sum = RunningChecksum::new();
    sum.add(bytes);
    sum.word()
}
