//! Engram's side of the evaluation: a pool that holds a corpus, one group for each granule.

use std::path::{Path, PathBuf};
use std::time::Instant;

use engram::catalog::{Catalog, Options, Table};
use engram::{Class, CreateOptions, DType, Durability, Gid, IndexMode, IndexSettings};
use engram::{NewObject, Placement, Policy, Pool, Realm, Value};

use crate::Result;
use crate::corpus::{Corpus, Item};

/// The items of each object's value: 256 bytes.
const ITEMS: u64 = 32;

/// How a pool is filled.
pub struct Plan {
    /// When objects are indexed.
    pub mode: IndexMode,
    /// Keys in an attribute group, at most; 0 for all in one.
    pub per_group: u32,
    /// Whether attribute groups follow what is stored and asked.
    pub policy: Policy,
    /// What a commit survives.
    pub durability: Durability,
    /// Objects in a commit.
    pub batch: usize,
}

/// A pool with a corpus in it, open.
pub struct Ours {
    path: PathBuf,
    pool: Pool,
    pub realm: Realm,
}

impl Ours {
    pub fn create(path: &Path, plan: &Plan) -> Result<Self> {
        let durability = Some(plan.durability);
        let options = CreateOptions { size: 64 << 20, durability, ..Default::default() };
        let pool = Pool::create(path, &options)?;
        let realm = pool.realm("default")?;
        let settings = IndexSettings {
            attributes_per_group: Some(plan.per_group),
            policy: Some(plan.policy),
            ..Default::default()
        };
        realm.set_index_settings(realm.root(), &settings)?;
        Ok(Ours { path: path.to_owned(), pool, realm })
    }

    pub fn open(path: &Path) -> Result<Self> {
        let pool = Pool::open(path, engram::Mode::ReadWrite, false)?;
        let realm = pool.realm("default")?;
        Ok(Ours { path: path.to_owned(), pool, realm })
    }

    /// Puts the corpus's objects into it; seconds for each. The clock stands still while what is
    /// put is made and freed: the others are given the corpus itself.
    pub fn fill(&self, corpus: &Corpus, plan: &Plan) -> Result<f64> {
        let scalar = |kind| DType::Scalar { kind, order: b'<', size: 8, unit: None };
        let mut new = NewObject {
            class: Class::Array,
            dtype: scalar(b'f'),
            shape: vec![ITEMS],
            dims: None,
            attrs: Vec::new(),
            origin: Vec::new(),
            properties: Vec::new(),
            layout: engram::Layout::default(),
        };
        let placement = Placement { index: Some(plan.mode), ..Default::default() };
        let batch = plan.batch;
        let mut taken_s = 0.0;
        let mut group: (&str, Gid) = ("", self.realm.root());
        let mut place = 0;
        while place < corpus.len() {
            let end = (place + batch).min(corpus.len());
            let ready: Vec<_> = (place..end).map(|p| (value(p), attrs(corpus, p))).collect();
            let mut put = Vec::with_capacity(ready.len());
            let start = Instant::now();
            if batch > 1 {
                self.realm.begin_batch()?;
            }
            for (data, attrs) in ready {
                let granule = corpus.granule(place);
                if granule != group.0 {
                    let root = self.realm.root();
                    group = (granule, self.realm.create_group(root, granule, &[], &[], true)?);
                }
                let before = std::mem::replace(&mut new.attrs, attrs);
                self.realm.put(group.1, corpus.name(place), &new, &data, placement)?;
                put.push((data, before));
                place += 1;
            }
            if batch > 1 {
                self.realm.commit_batch()?;
            }
            taken_s += start.elapsed().as_secs_f64();
        }
        Ok(taken_s / corpus.len() as f64)
    }

    /// Closes it, and tells what its catalog takes.
    pub fn close(self) -> Result<CatalogBytes> {
        let Ours { path, pool, realm } = self;
        pool.close();
        drop((pool, realm));
        CatalogBytes::of(&path.join("ns/default/shared/catalog"))
    }
}

/// What a catalog takes, in bytes.
pub struct CatalogBytes {
    /// Up to the last page.
    pub whole: f64,
    /// Of each table's pages.
    pub tables: Vec<(&'static str, f64)>,
}

impl CatalogBytes {
    fn of(path: &Path) -> Result<Self> {
        let catalog = Catalog::open(path, &Options::default())?;
        let stats = catalog.stats()?;
        let page = stats.page_bytes as f64;
        let tables = Table::ALL.into_iter().map(|table| {
            let held = stats.tables[table as usize];
            let pages = held.branch_pages + held.leaf_pages + held.overflow_pages;
            (table.name(), pages as f64 * page)
        });
        let tables = tables.collect();
        Ok(CatalogBytes { whole: (stats.last_page + 1) as f64 * page, tables })
    }
}

/// An object's value: ascending doubles that begin with its number.
fn value(place: usize) -> Vec<u8> {
    (0..ITEMS).flat_map(|item| ((place as u64 + item) as f64).to_le_bytes()).collect()
}

/// An object's attributes, as the engine takes them.
pub fn attrs(corpus: &Corpus, place: usize) -> Vec<(String, Value)> {
    let scalar = |kind, data: [u8; 8]| Value {
        dtype: DType::Scalar { kind, order: b'<', size: 8, unit: None },
        shape: Vec::new(),
        data: data.to_vec(),
    };
    let attrs = corpus.attributes(place).map(|(name, item)| {
        let value = match item {
            Item::Int(value) => scalar(b'i', value.to_le_bytes()),
            Item::Float(value) => scalar(b'f', value.to_le_bytes()),
            Item::Text(text) => Value::text(text),
        };
        (name.to_owned(), value)
    });
    attrs.collect()
}
