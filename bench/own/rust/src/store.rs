//! Engram's side: a pool into which arrays of 32 doubles are put under one group.

use std::path::{Path, PathBuf};
use std::time::Instant;

use engram::{Class, CreateOptions, DType, Gid, Member, Namespace, NewObject, Oid, Payload};
use engram::{Placement, Pool, Realm};

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
    door: Door,
    group: Gid,
    new: NewObject,
    /// How many arrays have been put.
    pub count: u64,
}

/// How a store is used: as programs do, through the view over all realms of the namespace, or its
/// shared realm alone, as if there were no other kind.
enum Door {
    View(Namespace),
    Realm(Realm),
}

/// Which store to make.
#[derive(Clone, Copy, Default)]
pub struct Made {
    /// Past the view over all realms of the namespace.
    pub one_realm: bool,
    /// Values have checksums.
    pub checksums: bool,
}

impl Store {
    /// A new pool at `path`, without arrays.
    pub fn create(path: &Path, made: Made) -> Result<Self> {
        let Made { one_realm, checksums } = made;
        let options = CreateOptions { size: 64 << 20, checksums, ..Default::default() };
        let pool = Pool::create(path, &options)?;
        let realm = pool.realm("default")?;
        let group = realm.create_group(realm.root(), "g", &[], &[], false)?;
        let view = || pool.namespace("default").map(Door::View);
        let door = if one_realm { Door::Realm(realm) } else { view()? };
        let dtype = DType::Scalar { kind: b'f', order: b'<', size: 8, unit: None };
        let new = NewObject {
            class: Class::Array,
            dtype,
            shape: vec![VALUE_BYTES as u64 / 8],
            dims: None,
            attrs: Vec::new(),
            origin: Vec::new(),
            properties: Vec::new(),
            layout: engram::Layout::default(),
        };
        Ok(Store { path: path.to_owned(), pool, door, group, new, count: 0 })
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
        let placement = Placement::default();
        match &self.door {
            Door::View(view) => view.put(self.group, &name, &self.new, &value, placement),
            Door::Realm(realm) => realm.put(self.group, &name, &self.new, &value, placement),
        }?;
        self.count += 1;
        Ok(())
    }

    /// Puts `count` arrays, in one commit.
    pub fn put_batch(&mut self, count: u64, random: bool) -> Result<()> {
        let batch = match &self.door {
            Door::View(view) => Some(view.batch()?),
            Door::Realm(realm) => realm.begin_batch().map(|()| None)?,
        };
        for _ in 0..count {
            self.put(random)?;
        }
        match (&self.door, batch) {
            (_, Some(batch)) => batch.commit()?,
            (Door::Realm(realm), None) => realm.commit_batch()?,
            (Door::View(_), None) => {}
        }
        Ok(())
    }

    /// Finds array `number` by its path and copies its bytes out.
    pub fn read(&self, number: u64) -> Result<Vec<u8>> {
        let path = format!("g/{}", name(number, false));
        let payload: Option<(Payload, u32)> = match &self.door {
            Door::View(view) => {
                let found = view.lookup(view.root(), &path)?.and_then(object);
                found.map(|oid| view.payload(oid)).transpose()?
            }
            Door::Realm(realm) => {
                let found = realm.lookup(realm.root(), &path)?.and_then(object);
                found.map(|oid| realm.payload(oid)).transpose()?
            }
        };
        match payload.ok_or_else(|| format!("{path} is not there"))? {
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
        let Store { path, pool, door, .. } = self;
        pool.close();
        drop((pool, door));
        Ok(Pool::destroy(&path)?)
    }
}

fn object(member: Member) -> Option<Oid> {
    match member {
        Member::Object(oid) => Some(oid),
        Member::Group(_) => None,
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
