//! Engram's side: a pool into which arrays of 32 doubles are put under one group.

use std::path::{Path, PathBuf};
use std::time::Instant;

use engram_engine::{Class, CreateOptions, DType, Gid, Member, NewObject, Payload};
use engram_engine::{Placement, Pool, Realm};

use crate::Result;

/// The bytes of each array.
pub const VALUE_BYTES: usize = 256;
/// Arrays in one batch.
pub const BATCH: u64 = 1000;
/// The bytes of each name.
pub const NAME_BYTES: usize = 17;

/// A pool, its group and how many arrays the group has.
pub struct Store {
    path: PathBuf,
    pool: Pool,
    realm: Realm,
    group: Gid,
    new: NewObject,
    /// How many arrays have been put.
    pub count: u64,
}

impl Store {
    /// A new pool at `path`, with one array in it.
    pub fn create(path: &Path) -> Result<Self> {
        let pool = Pool::create(path, &CreateOptions { size: 64 << 20, ..Default::default() })?;
        let realm = pool.realm("default")?;
        let group = realm.create_group(realm.root(), "g", &[], &[], false)?;
        let dtype = DType::Scalar { kind: b'f', order: b'<', size: 8, unit: None };
        let new = NewObject {
            class: Class::Array,
            dtype,
            shape: vec![VALUE_BYTES as u64 / 8],
            dims: None,
            attrs: Vec::new(),
            origin: Vec::new(),
        };
        Ok(Store { path: path.to_owned(), pool, realm, group, new, count: 0 })
    }

    /// Puts arrays up to `count`, in batches.
    pub fn fill(&mut self, count: u64, random: bool) -> Result<()> {
        while self.count < count {
            self.put_batch((count - self.count).min(BATCH), random)?;
        }
        Ok(())
    }

    /// Puts one array, in one commit.
    pub fn put(&mut self, random: bool) -> Result<()> {
        let name = name(self.count, random);
        let value = [self.count as u8; VALUE_BYTES];
        self.realm.put(self.group, &name, &self.new, &value, Placement::default())?;
        self.count += 1;
        Ok(())
    }

    /// Puts `count` arrays, in one commit.
    pub fn put_batch(&mut self, count: u64, random: bool) -> Result<()> {
        self.realm.begin_batch()?;
        for _ in 0..count {
            self.put(random)?;
        }
        self.realm.commit_batch()?;
        Ok(())
    }

    /// Finds array `number` by its path and copies its bytes out.
    pub fn read(&self, number: u64) -> Result<Vec<u8>> {
        let path = format!("g/{}", name(number, false));
        let Some(Member::Object(oid)) = self.realm.lookup(self.realm.root(), &path)? else {
            return Err(format!("{path} is not there").into());
        };
        match self.realm.payload(oid)? {
            (Payload::Inline(bytes), _) => Ok(bytes),
            (Payload::Extent(_), _) => Err(format!("{path} is not inline").into()),
        }
    }

    /// Where the pool's catalog lies.
    pub fn catalog(&self) -> PathBuf {
        self.path.join("ns/default/shared/catalog")
    }

    /// Closes the pool and removes it.
    pub fn destroy(self) -> Result<()> {
        let Store { path, pool, realm, .. } = self;
        pool.close();
        drop((pool, realm));
        Ok(Pool::destroy(&path)?)
    }
}

/// The name of array `number`: ordered names ascend, random ones do not; all are equally long.
pub fn name(number: u64, random: bool) -> String {
    let digits = if random { scramble(number) } else { number };
    format!("n{digits:016x}")
}

/// A number for a number, one to one, without order (the finaliser of `SplitMix64`).
pub fn scramble(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Seconds that `work` took for each of `units`.
pub fn timed(units: u64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() / units as f64)
}
