//! Pools: creating, opening, closing, destroying; devices and namespaces.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use engram::{CreateOptions, Durability, Mode};
use pyo3::prelude::*;

use crate::error::{Result, argument, of_pool};
use crate::namespace::Namespace;
use crate::value::{Name, Truth};

/// One opening of a pool.
#[pyclass(frozen, weakref, module = "engram._engram")]
pub struct Pool {
    engine: engram::Pool,
}

/// A device of a pool.
#[pyclass(frozen, get_all, module = "engram._engram")]
pub struct DeviceInfo {
    /// Its number: 0 is the pool's own path.
    index: u32,
    /// Its directory, or its devdax node.
    path: PathBuf,
    /// The filesystem's name; "devdax" for a node.
    filesystem: String,
    /// What its mapped memory is kept on: "memory", "page cache" or persistent memory.
    medium: &'static str,
    /// Whether what is synced there survives power loss.
    durable: bool,
    /// Free bytes on the filesystem.
    free: u64,
}

/// A namespace of a pool.
#[pyclass(frozen, get_all, module = "engram._engram")]
pub struct NamespaceInfo {
    /// Its name.
    name: String,
    /// The uid of its owner.
    owner: u32,
    /// The gid of its group.
    group: u32,
    /// Its POSIX mode.
    mode: u32,
}

#[pymethods]
impl DeviceInfo {
    fn __repr__(&self) -> String {
        format!(
            "<engram.DeviceInfo {} {:?} on {} ({}), durable {}, {} bytes free>",
            self.index,
            self.path.to_string_lossy(),
            self.filesystem,
            self.medium,
            if self.durable { "True" } else { "False" },
            self.free
        )
    }
}

#[pymethods]
impl NamespaceInfo {
    fn __repr__(&self) -> String {
        format!(
            "<engram.NamespaceInfo {:?} owner {} group {} mode 0o{:o}>",
            self.name, self.owner, self.group, self.mode
        )
    }
}

#[pymethods]
impl Pool {
    /// Creates a pool. `durability` is "auto", "process" or "system".
    #[staticmethod]
    #[pyo3(signature = (path, *, size, devices, durability, prefault, force, checksums, emulated,
                        mode, group))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // each is named
    fn create(
        py: Python<'_>,
        path: PathBuf,
        size: u64,
        devices: Vec<PathBuf>,
        durability: &str,
        prefault: Truth,
        force: Truth,
        checksums: Truth,
        emulated: bool,
        mode: Option<u32>,
        group: Option<u32>,
    ) -> Result<Self> {
        let durability = match durability {
            "auto" => None,
            "process" => Some(Durability::Process),
            "system" => Some(Durability::System),
            other => {
                return Err(argument(format!(
                    "durability {other:?} is unknown: use \"auto\", \"process\" or \"system\""
                )));
            }
        };
        let (prefault, force, checksums) = (prefault.0, force.0, checksums.0);
        let options = CreateOptions {
            size,
            devices,
            durability,
            prefault,
            force,
            checksums,
            emulated,
            mode,
            group,
        };
        let engine =
            py.detach(move || engram::Pool::create(&path, &options)).map_err(|e| of_pool(py, e))?;
        Ok(Pool { engine })
    }

    /// Opens a pool.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, write: bool, force: Truth) -> Result<Self> {
        let mode = if write { Mode::ReadWrite } else { Mode::Read };
        let engine = py
            .detach(move || engram::Pool::open(&path, mode, force.0))
            .map_err(|e| of_pool(py, e))?;
        Ok(Pool { engine })
    }

    /// Ends this opening's handles; views live on.
    fn close(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.engine.try_close())?)
    }

    /// Whether this opening is open still.
    #[getter]
    fn is_open(&self) -> bool {
        self.engine.is_open()
    }

    /// The pool's path.
    #[getter]
    fn path(&self) -> PathBuf {
        self.engine.path().to_path_buf()
    }

    /// The pool's uuid: 32 hexadecimal digits.
    #[getter]
    fn uuid(&self) -> &str {
        self.engine.uuid()
    }

    /// Whether the pool was opened for writing.
    #[getter]
    fn writable(&self) -> bool {
        self.engine.mode() == Mode::ReadWrite
    }

    /// "process" or "system".
    #[getter]
    fn durability(&self) -> &'static str {
        self.engine.durability().as_str()
    }

    /// Whether the pool keeps checksums.
    #[getter]
    fn checksums(&self) -> bool {
        self.engine.checksums()
    }

    /// Whether the pool copies at the pace of persistent memory.
    #[getter]
    fn emulated(&self) -> bool {
        self.engine.emulated()
    }

    /// The pool's devices.
    fn devices(&self, py: Python<'_>) -> Result<Vec<DeviceInfo>> {
        self.check_open()?;
        let devices = py.detach(|| self.engine.devices())?;
        let info = |d: engram::DeviceInfo| DeviceInfo {
            index: d.index,
            path: d.path,
            filesystem: d.filesystem,
            medium: d.medium.as_str(),
            durable: d.durable,
            free: d.free,
        };
        Ok(devices.into_iter().map(info).collect())
    }

    /// Adds a device.
    fn add_device(&self, py: Python<'_>, path: PathBuf, force: Truth) -> Result<()> {
        Ok(py.detach(move || self.engine.add_device(&path, force.0))?)
    }

    /// A namespace, as this user sees it.
    fn namespace(&self, py: Python<'_>, name: Name<'_>) -> Result<Namespace> {
        let engine = py.detach(|| self.engine.namespace(name.0))?;
        Ok(Namespace::new(self.engine.clone(), engine))
    }

    /// Creates a namespace.
    fn create_namespace(
        &self,
        py: Python<'_>,
        name: Name<'_>,
        mode: u32,
        group: Option<u32>,
        size: Option<u64>,
    ) -> Result<Namespace> {
        let engine = py.detach(|| {
            self.engine.create_namespace(name.0, mode, group, size)?;
            self.engine.namespace(name.0)
        })?;
        Ok(Namespace::new(self.engine.clone(), engine))
    }

    /// The pool's namespaces.
    fn namespaces(&self, py: Python<'_>) -> Result<Vec<NamespaceInfo>> {
        self.check_open()?;
        let namespaces = py.detach(|| self.engine.namespaces())?;
        let info = |n: engram::NamespaceInfo| NamespaceInfo {
            name: n.name,
            owner: n.owner,
            group: n.group,
            mode: n.mode,
        };
        Ok(namespaces.into_iter().map(info).collect())
    }

    /// Removes a namespace with all that is in it.
    fn remove_namespace(&self, py: Python<'_>, name: Name<'_>) -> Result<()> {
        Ok(py.detach(|| self.engine.remove_namespace(name.0))?)
    }

    /// Removes this user's private realm in a namespace with all that is in it.
    fn remove_private(&self, py: Python<'_>, name: Name<'_>) -> Result<()> {
        Ok(py.detach(|| self.engine.remove_private(name.0))?)
    }
}

impl Pool {
    /// The engine's.
    pub fn engine(&self) -> &engram::Pool {
        &self.engine
    }

    fn check_open(&self) -> Result<()> {
        if self.engine.is_open() {
            return Ok(());
        }
        Err(argument(format!("the pool {} is closed: open it again", self.engine.path().display())))
    }
}

/// What a walk found: problems, counts of what was walked, namespaces not to be opened.
type Walked = (Vec<String>, Vec<(&'static str, u64)>, Vec<String>);

/// Says on stderr, once a second, that work goes on, for those who wait for this process.
pub fn pulse() {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
        *last = Some(Instant::now());
        // That nobody listens any more is no reason to stop.
        let _ = std::io::stderr().write_all(b".");
    }
}

/// Walks a pool; a damaged catalog may kill the process. Returns what it found.
#[pyfunction]
pub fn verify(py: Python<'_>, path: PathBuf) -> Result<Walked> {
    let report =
        py.detach(move || engram::verify_with(&path, &mut pulse)).map_err(|e| of_pool(py, e))?;
    let counts = vec![
        ("namespaces", report.namespaces),
        ("groups", report.groups),
        ("objects", report.objects),
        ("attributes", report.attributes),
        ("checked", report.checked),
        ("checked_bytes", report.checked_bytes),
        ("unchecked", report.unchecked),
        ("extents", report.extents),
        ("used", report.used),
        ("free", report.free),
        ("pending", report.pending),
        ("orphaned", report.orphaned),
        ("arena", report.arena),
    ];
    Ok((report.problems, counts, report.skipped))
}

/// Destroys a pool that nobody has open; with `force` also without some of its devices.
#[pyfunction]
pub fn destroy(py: Python<'_>, path: PathBuf, force: bool) -> Result<()> {
    let (gone, path) = py.detach(move || (engram::Pool::destroy_with(&path, force), path));
    gone.map_err(|e| if path.exists() { e.into() } else { of_pool(py, e) })
}

/// Gives a namespace of a pool another mode.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "paths from Python come so")]
pub fn chmod(py: Python<'_>, path: PathBuf, name: Name<'_>, mode: u32) -> Result<()> {
    let changed = py.detach(|| engram::Pool::set_mode(&path, name.0, mode));
    changed.map_err(|e| if path.join("pool.toml").exists() { e.into() } else { of_pool(py, e) })
}

/// Says that this pool is the one that its devices belong to.
#[pyfunction]
pub fn adopt(py: Python<'_>, path: PathBuf) -> Result<()> {
    py.detach(move || engram::Pool::adopt(&path)).map_err(|e| of_pool(py, e))
}
