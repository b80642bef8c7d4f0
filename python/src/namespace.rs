//! A namespace: what every handle holds, and all natives take.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use engram::{Mode, Scope};
use engram_fs::{Fs, Options};
use pyo3::prelude::*;

use crate::error::{Result, argument};
use crate::naming::SeenFields;

/// Where a namespace is, as another process can be told.
pub struct Place {
    /// The pool's path.
    pub path: PathBuf,
    /// The pool's uuid.
    pub uuid: String,
    /// The namespace's name.
    pub namespace: String,
}

/// A namespace, as its user sees it, through one opening of its pool.
#[pyclass(frozen, module = "engram._engram")]
pub struct Namespace {
    pool: engram::Pool,
    engine: engram::Namespace,
    root: u64,
    /// What tells a snapshot from every other, in any process.
    snapshot: Option<String>,
    /// Made when a view first asks for it, and shared by all views.
    place: OnceLock<Arc<Place>>,
    /// The same as a file system; made when first asked for.
    files: OnceLock<Fs>,
    seen: SeenFields,
}

impl Namespace {
    /// The namespace of this opening.
    pub fn new(pool: engram::Pool, engine: engram::Namespace) -> Self {
        let root = engine.root();
        Namespace {
            pool,
            engine,
            root,
            snapshot: None,
            place: OnceLock::new(),
            files: OnceLock::new(),
            seen: SeenFields::default(),
        }
    }

    /// Where it is. Whoever keeps this keeps no pool open.
    pub fn place(&self) -> Arc<Place> {
        let place = self.place.get_or_init(|| {
            Arc::new(Place {
                path: self.pool.path().to_path_buf(),
                uuid: self.engine.uuid().to_owned(),
                namespace: self.engine.namespace().to_owned(),
            })
        });
        Arc::clone(place)
    }

    /// The engine's view of it. What the program should be told is told first, as warnings.
    pub fn engine(&self) -> &engram::Namespace {
        let notices = self.engine.take_notices();
        if !notices.is_empty() {
            Python::attach(|py| crate::error::warn(py, &notices));
        }
        &self.engine
    }

    /// The namespace as a file system.
    pub fn files(&self) -> Result<&Fs> {
        if let Some(fs) = self.files.get() {
            return Ok(fs);
        }
        let fs = Fs::new(self.engine().clone(), Options::default())?;
        Ok(self.files.get_or_init(|| fs))
    }

    /// The root group's GID.
    pub fn root_gid(&self) -> u64 {
        self.root
    }

    /// The attributes that queries were seen to name not in vain.
    pub fn seen(&self) -> &SeenFields {
        &self.seen
    }

    /// A device's index, from its index or its path.
    pub fn device(&self, device: Option<&Bound<'_, PyAny>>) -> Result<Option<u32>> {
        let Some(device) = device.filter(|d| !d.is_none()) else {
            return Ok(None);
        };
        let devices = self.pool.devices()?;
        let found = if let Ok(index) = device.extract::<u32>() {
            devices.iter().find(|d| d.index == index)
        } else if let Ok(path) = device.extract::<PathBuf>() {
            let path = path.canonicalize().unwrap_or(path);
            devices.iter().find(|d| d.path.canonicalize().is_ok_and(|p| p == path))
        } else {
            None
        };
        let Some(found) = found else {
            let all: Vec<_> =
                devices.iter().map(|d| format!("{} {}", d.index, d.path.display())).collect();
            return Err(argument(format!(
                "device {device:?} is none of this pool's: give a path or an index of {}",
                all.join(", ")
            )));
        };
        Ok(Some(found.index))
    }
}

/// Who sees what is made, from Python: "private" or "shared"; None where its group says it.
pub fn scope_of(scope: Option<&Bound<'_, PyAny>>) -> Result<Option<Scope>> {
    let Some(scope) = scope.filter(|scope| !scope.is_none()) else { return Ok(None) };
    match scope.extract::<&str>().ok().and_then(Scope::parse) {
        Some(scope) => Ok(Some(scope)),
        None => Err(argument(format!(
            "scope {scope:?} is unknown: use \"private\" or \"shared\" (and publish what is \
             finished)"
        ))),
    }
}

/// Where a namespace's space is, in bytes.
#[pyclass(frozen, get_all, module = "engram._engram")]
pub struct Space {
    /// The bound on the arena.
    size: u64,
    /// Allocated from the devices so far.
    arena: u64,
    /// Of extents that rows point to.
    used: u64,
    /// Free in the arena.
    free: u64,
    /// Reserved, or freed and still looked at.
    pending: u64,
    /// Free, with its blocks given back to the filesystem.
    vacant: u64,
    /// The largest free extent.
    largest_free: u64,
    /// What the catalog has allocated, apart from the arena.
    catalog: u64,
    /// Process ids that have the namespace open.
    pids: Vec<u32>,
    /// How many extents this process has views of.
    views: u64,
}

#[pymethods]
impl Space {
    fn __repr__(&self) -> String {
        let Space { size, arena, used, free, pending, vacant, largest_free, catalog, .. } = self;
        format!(
            "<engram.Space size={size} arena={arena} used={used} free={free} pending={pending} \
             vacant={vacant} largest_free={largest_free} catalog={catalog} pids={:?} views={}>",
            self.pids, self.views
        )
    }
}

#[pymethods]
impl Namespace {
    /// The namespace's name.
    #[getter]
    fn name(&self) -> &str {
        self.engine.namespace()
    }

    /// The pool's uuid: 32 hexadecimal digits.
    #[getter]
    fn uuid(&self) -> &str {
        self.engine.uuid()
    }

    /// The pool's path.
    #[getter]
    fn pool_path(&self) -> PathBuf {
        self.pool.path().to_path_buf()
    }

    /// Sets the POSIX mode.
    fn set_mode(&self, py: Python<'_>, mode: u32) -> Result<()> {
        Ok(py.detach(|| self.engine.set_posix_mode(mode))?)
    }

    /// The root group's GID.
    #[getter]
    fn root(&self) -> u64 {
        self.root
    }

    /// Whether the pool was opened for writing.
    #[getter]
    fn writable(&self) -> bool {
        self.engine.mode() == Mode::ReadWrite
    }

    /// Whether this opening of the pool is open still.
    #[getter]
    fn is_open(&self) -> bool {
        self.engine.is_open()
    }

    /// Whether this is of a snapshot.
    #[getter]
    fn is_snapshot(&self) -> bool {
        self.engine.is_snapshot()
    }

    /// What this snapshot was named when it was taken; None where this is of none.
    #[getter]
    fn snapshot_name(&self) -> Option<&str> {
        self.snapshot.as_deref()
    }

    /// Which version of what is published this sees; None where nothing is.
    #[getter]
    fn published_version(&self, py: Python<'_>) -> Result<Option<u64>> {
        let found = py.detach(|| self.engine.realm_of(Scope::Published, false))?;
        Ok(found.map(|realm| realm.id_prefix()))
    }

    /// The namespace as the newest commit has left it, under a name that no other snapshot has.
    fn snapshot(&self, py: Python<'_>, max_growth: Option<u64>, name: String) -> Result<Namespace> {
        let held = py.detach(|| self.engine.snapshot(max_growth))?;
        Ok(Namespace { snapshot: Some(name), ..Namespace::new(self.pool.clone(), held) })
    }

    /// Ends the snapshot that this is of.
    fn end_snapshot(&self, py: Python<'_>) {
        py.detach(|| self.engine.end_snapshot());
    }

    /// Whether the other namespace is of the same pool; a copy of it is another.
    fn same_pool(&self, other: &Namespace) -> bool {
        self.pool.is(&other.pool)
    }

    /// Where the space is.
    fn space(&self, py: Python<'_>) -> Result<Space> {
        let space = py.detach(|| self.engine.space())?;
        Ok(Space {
            size: space.size,
            arena: space.arena,
            used: space.used,
            free: space.free,
            pending: space.pending,
            vacant: space.vacant,
            largest_free: space.largest_free,
            catalog: space.catalog,
            pids: space.pids,
            views: space.views,
        })
    }

    /// Sets the bound on the arena, in bytes.
    fn resize(&self, py: Python<'_>, size: u64) -> Result<()> {
        Ok(py.detach(|| self.engine.resize(size))?)
    }
}
