//! A pool for a test, and the short ways to use it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engram::catalog::{self, Catalog};
use engram::{
    Class, CreateOptions, DType, Kind, Mode, NewObject, Oid, Payload, Placement, Pool, Realm,
    Report, View,
};

/// Refuse what exists.
pub const KEEP: Placement = Placement {
    overwrite: false,
    device: None,
    index: None,
    read_only: false,
    owner: None,
    scope: None,
};
/// Replace what exists.
pub const OVER: Placement = Placement { overwrite: true, ..KEEP };

/// A pool on tmpfs that goes with the test.
pub struct Fixture {
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
    pub pool: Pool,
}

impl Fixture {
    pub fn new(size: u64) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs at /dev/shm");
        Self::within(dir, size)
    }

    /// In a folder of any filesystem.
    pub fn within(dir: tempfile::TempDir, size: u64) -> Self {
        let path = dir.path().join("pool");
        let options = CreateOptions { size, force: true, ..CreateOptions::default() };
        let pool = Pool::create(&path, &options).expect("a new pool");
        Fixture { dir, path, pool }
    }

    /// On a tmpfs of so many bytes, which is the whole mount; and that.
    pub fn on_small_mount(test: &str, bytes: u64) -> Option<(Self, PathBuf)> {
        let dir = small_tmpfs(test, bytes)?;
        let mount = dir.path().to_owned();
        Some((Self::within(dir, 1 << 30), mount))
    }

    pub fn realm(&self) -> Realm {
        self.pool.realm("default").expect("the default namespace")
    }

    /// The folder of the default namespace's realm.
    pub fn realm_dir(&self) -> PathBuf {
        self.path.join("ns/default/shared")
    }

    /// The names of the lease files that there are.
    pub fn leases(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.realm_dir().join("leases")).expect("leases");
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// The files of all spans in a folder, whatever realm they are of.
pub fn span_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(span_files(&path));
        } else if entry.file_name().to_string_lossy().starts_with("span-") {
            found.push(path);
        }
    }
    found
}

/// Opens the pool at `path` as another program would, and its default namespace.
pub fn attach(path: &Path, mode: Mode) -> (Pool, Realm) {
    let pool = Pool::open(path, mode, true).expect("an open pool");
    let realm = pool.realm("default").expect("the default namespace");
    (pool, realm)
}

/// What verify says of the pool.
pub fn report_of(path: &Path) -> Report {
    engram::verify(path).expect("a walk")
}

/// Verifies that nothing is wrong.
pub fn sound(path: &Path) -> Report {
    let report = report_of(path);
    assert_eq!(report.problems, Vec::<String>::new());
    report
}

pub fn floats(shape: &[u64]) -> NewObject {
    NewObject {
        class: Class::Array,
        dtype: DType::Scalar { kind: b'f', order: b'<', size: 8, unit: None },
        shape: shape.to_vec(),
        dims: None,
        attrs: Vec::new(),
        origin: Vec::new(),
        properties: Vec::new(),
        layout: engram::Layout::default(),
    }
}

pub fn blob() -> NewObject {
    NewObject::blob()
}

pub fn bytes_of(byte: u8, len: usize) -> Vec<u8> {
    vec![byte; len]
}

/// Puts an array of 8-byte items, replacing what has the name.
pub fn put(realm: &Realm, path: &str, data: &[u8]) -> Oid {
    let new = floats(&[data.len() as u64 / 8]);
    realm.put(realm.root(), path, &new, data, OVER).expect("put")
}

/// Puts an array of 8-byte items under a new name.
pub fn put_new(realm: &Realm, path: &str, data: &[u8]) -> engram::Result<Oid> {
    realm.put(realm.root(), path, &floats(&[data.len() as u64 / 8]), data, KEEP)
}

pub fn lookup(realm: &Realm, path: &str) -> Option<Oid> {
    realm.lookup(realm.root(), path).expect("a look-up").map(engram::Member::id)
}

/// A copy of the value at a path.
pub fn read(realm: &Realm, path: &str) -> Vec<u8> {
    let oid = lookup(realm, path).unwrap_or_else(|| panic!("{path} is gone"));
    match realm.payload(oid).expect("a payload").0 {
        Payload::Inline(bytes) => bytes,
        Payload::Extent(view) => contents(&view),
    }
}

/// A copy of what a view shows.
pub fn contents(view: &View) -> Vec<u8> {
    // SAFETY: a live view of `len` bytes that nobody writes to meanwhile.
    unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) }.to_vec()
}

/// A view of the array at a path.
pub fn view(realm: &Realm, path: &str) -> View {
    let oid = lookup(realm, path).unwrap_or_else(|| panic!("{path} is gone"));
    match realm.view(oid, false).expect("a view") {
        Payload::Extent(view) => view,
        Payload::Inline(_) => panic!("{path} is inline"),
    }
}

/// Every member below a group (or the root, `""`): its path, and the bytes of objects.
pub fn map_of(realm: &Realm, below: &str) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut groups = match below {
        "" => vec![(realm.root(), String::new())],
        _ => lookup(realm, below).map(|gid| (gid, format!("{below}/"))).into_iter().collect(),
    };
    while let Some((gid, prefix)) = groups.pop() {
        for (name, member) in realm.list(gid, None, usize::MAX).expect("a listing") {
            let path = format!("{prefix}{name}");
            let several = |oid| realm.count_names(oid).expect("it is there") > 1;
            if !matches!(member, engram::Member::Object(oid) if several(oid)) {
                assert_eq!(realm.path_of(member).expect("a path"), path);
            }
            match member {
                engram::Member::Group(inner) => {
                    groups.push((inner, format!("{path}/")));
                    found.insert(path, None);
                }
                engram::Member::Object(_) => {
                    let bytes = read(realm, &path);
                    found.insert(path, Some(bytes));
                }
            }
        }
    }
    found
}

/// Writes to every byte that can be had, in arrays of 1 MiB, and deletes them: what somebody still
/// looks at must survive that.
pub fn churn(realm: &Realm, rounds: u64) {
    const MIB: usize = 1 << 20;
    let data = super::filled(77, 77, MIB / 8);
    for _ in 0..rounds {
        for index in 0.. {
            match put_new(realm, &format!("churn/{index}"), &data) {
                Ok(_) => {}
                Err(error) if error.kind() == Kind::PoolFull && index > 0 => break,
                Err(error) => panic!("churning: {error}"),
            }
        }
        realm.delete(realm.root(), "churn").expect("deleting");
    }
}

/// The default namespace's catalog, opened beside the engine, by a process that has the pool not
/// open itself.
pub fn catalog_of(fixture: &Fixture) -> Catalog {
    catalog_of_path(&fixture.path)
}

/// The same of the pool at a path.
pub fn catalog_of_path(pool: &Path) -> Catalog {
    let options = catalog_options();
    Catalog::open(&pool.join("ns/default/shared/catalog"), &options).expect("the catalog")
}

/// How a `process` pool opens its catalogs.
pub fn catalog_options() -> catalog::Options {
    catalog::Options { file_mode: 0o600, ..catalog::Options::default() }
}

/// A tmpfs of so many bytes, seen by this process and its children alone. Takes root: says that
/// the test is skipped, and is `None`, without.
pub fn small_tmpfs(test: &str, bytes: u64) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |path: &Path| std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let (point, options) = (path(dir.path()), path(format!("size={bytes}").as_ref()));
    let tmpfs = c"tmpfs".as_ptr();
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: strings that end in NUL; only this process's own mount namespace changes.
    let mounted = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(tmpfs, c"/".as_ptr(), tmpfs, private, std::ptr::null()) == 0
            && libc::mount(tmpfs, point.as_ptr(), tmpfs, 0, options.as_ptr().cast()) == 0
    };
    if !mounted {
        println!("{test} is skipped: no mounting here: {}", std::io::Error::last_os_error());
    }
    mounted.then_some(dir)
}

/// Takes every byte that is free where `dir` lies, in a file that can be removed.
pub fn fill_up(dir: &Path) -> PathBuf {
    use std::io::Write;
    let path = dir.join("filler");
    let mut file = std::fs::File::create(&path).expect("a filler");
    for bytes in [1 << 20, 1 << 12, 1] {
        while file.write_all(&vec![0xff; bytes]).is_ok() {}
    }
    path
}
