//! A folder on tmpfs and `Fs` do the same: the same results, the same errors, the same tree.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use engram::{CreateOptions, Pool};
use engram_fs::{Changes, Clash, Fs, Handle, Maker, NodeKind, OpenFlags, Options, ROOT, Stat};
use proptest::prelude::*;

/// What is done; names are of few letters, so that they meet.
#[derive(Clone, Debug)]
enum Step {
    Create(String),
    Mkdir(String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, u32),
    Link(String, String),
    Symlink(String, String),
    Readlink(String),
    Write(String, u64, usize),
    Append(String, usize),
    Truncate(String, u64),
    Chmod(String, u32),
    Read(String),
    List(String),
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[abc]", 1..4).prop_map(|names| names.join("/"))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => path().prop_map(Step::Create),
        4 => path().prop_map(Step::Mkdir),
        2 => path().prop_map(Step::Unlink),
        2 => path().prop_map(Step::Rmdir),
        3 => (path(), path(), 0u32..3).prop_map(|(old, new, flags)| Step::Rename(old, new, flags)),
        2 => (path(), path()).prop_map(|(old, new)| Step::Link(old, new)),
        1 => (path(), path()).prop_map(|(target, at)| Step::Symlink(target, at)),
        1 => path().prop_map(Step::Readlink),
        3 => (path(), 0u64..9000, 1usize..6000)
            .prop_map(|(at, from, len)| Step::Write(at, from, len)),
        2 => (path(), 1usize..6000).prop_map(|(at, len)| Step::Append(at, len)),
        2 => (path(), 0u64..9000).prop_map(|(at, size)| Step::Truncate(at, size)),
        1 => (path(), 0u32..0o1000).prop_map(|(at, mode)| Step::Chmod(at, mode)),
        2 => path().prop_map(Step::Read),
        1 => path().prop_map(Step::List),
    ]
}

/// What a step gives: something to compare, or an errno.
type Given = Result<String, i32>;

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().expect("an errno")
}

/// The folder on tmpfs.
struct Real(PathBuf);

impl Real {
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn run(&self, step: &Step) -> Given {
        let done = |done: std::io::Result<()>| done.map(|()| String::new());
        let given = match step {
            Step::Create(path) => done(fs::File::create_new(self.at(path)).map(drop)),
            Step::Mkdir(path) => done(fs::create_dir(self.at(path))),
            Step::Unlink(path) => done(self.call(path, |path| {
                // SAFETY: a path that ends with NUL.
                unsafe { libc::unlink(path) }
            })),
            Step::Rmdir(path) => done(fs::remove_dir(self.at(path))),
            Step::Rename(old, new, flags) => {
                let new = CString::new(self.at(new).as_os_str().as_bytes()).expect("a path");
                done(self.call(old, |old| {
                    // SAFETY: two paths that end with NUL.
                    unsafe {
                        libc::renameat2(libc::AT_FDCWD, old, libc::AT_FDCWD, new.as_ptr(), *flags)
                    }
                }))
            }
            Step::Link(old, new) => done(fs::hard_link(self.at(old), self.at(new))),
            Step::Symlink(target, at) => done(symlink(target, self.at(at))),
            Step::Readlink(path) => {
                fs::read_link(self.at(path)).map(|target| target.to_string_lossy().into_owned())
            }
            Step::Write(path, from, len) => {
                let opened = fs::File::options().write(true).open(self.at(path));
                done(opened.and_then(|file| file.write_all_at(&bytes(*from, *len), *from)))
            }
            Step::Append(path, len) => {
                let opened = fs::File::options().append(true).open(self.at(path));
                done(opened.and_then(|mut file| file.write_all(&bytes(0, *len))))
            }
            Step::Truncate(path, size) => {
                let opened = fs::File::options().write(true).open(self.at(path));
                done(opened.and_then(|file| file.set_len(*size)))
            }
            Step::Chmod(path, mode) => {
                let mode = fs::Permissions::from_mode(*mode);
                done(fs::set_permissions(self.at(path), mode))
            }
            Step::Read(path) => fs::read(self.at(path)).map(|bytes| format!("{bytes:?}")),
            Step::List(path) => fs::read_dir(self.at(path)).map(|entries| {
                let names = entries.map(|entry| entry.expect("an entry").file_name());
                let mut names: Vec<_> = names.collect();
                names.sort();
                format!("{names:?}")
            }),
        };
        given.map_err(|error| errno(&error))
    }

    fn call(
        &self,
        path: &str,
        call: impl FnOnce(*const libc::c_char) -> i32,
    ) -> std::io::Result<()> {
        let path = CString::new(self.at(path).as_os_str().as_bytes()).expect("a path");
        if call(path.as_ptr()) == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

fn bytes(from: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (from as usize + at) as u8 ^ 0x5a).collect()
}

/// The same by `Fs`, as a kernel walks paths.
struct Ours(Fs);

const ME: Maker = Maker { uid: 0, gid: 0 };

#[expect(clippy::needless_pass_by_value, reason = "given to map_err")]
fn code(error: engram_fs::Errno) -> i32 {
    error.code
}

/// That a step was done, or why it was not.
fn done<T>(given: engram_fs::Result<T>) -> Given {
    given.map(|_| String::new()).map_err(code)
}

impl Ours {
    /// The node of a path; links in it are followed, the last one if `follow`.
    fn walk(&self, path: &str, follow: bool) -> Result<Stat, i32> {
        self.walk_from(ROOT, path, follow, 0).map(|(_, stat)| stat)
    }

    fn walk_from(
        &self,
        from: u64,
        path: &str,
        follow: bool,
        deep: u32,
    ) -> Result<(u64, Stat), i32> {
        if deep > 40 {
            return Err(libc::ELOOP);
        }
        let (mut at, mut stat) = (from, self.0.stat(from).map_err(code)?);
        let mut above = at;
        let names: Vec<&str> = path.split('/').collect();
        for (place, name) in names.iter().enumerate() {
            if stat.kind != NodeKind::Folder {
                return Err(libc::ENOTDIR);
            }
            above = at;
            stat = self.0.lookup(at, name.as_bytes()).map_err(code)?;
            let last = place + 1 == names.len();
            if stat.kind == NodeKind::Symlink && (follow || !last) {
                let target = self.0.readlink(stat.ino).map_err(code)?;
                let target = String::from_utf8(target).expect("a text");
                stat = self.walk_from(above, &target, true, deep + 1)?.1;
            }
            at = stat.ino;
        }
        Ok((above, stat))
    }

    /// The folder that is to have a name, and the name.
    fn split<'p>(&self, path: &'p str) -> Result<(u64, &'p str), i32> {
        let Some((folder, name)) = path.rsplit_once('/') else { return Ok((ROOT, path)) };
        let stat = self.walk(folder, true)?;
        if stat.kind == NodeKind::Folder { Ok((stat.ino, name)) } else { Err(libc::ENOTDIR) }
    }

    /// The same of a name that is to be new.
    fn split_new<'p>(&self, path: &'p str) -> Result<(u64, &'p str), i32> {
        let (folder, name) = self.split(path)?;
        if self.0.lookup(folder, name.as_bytes()).is_ok() {
            return Err(libc::EEXIST);
        }
        Ok((folder, name))
    }

    fn open(&self, path: &str, flags: OpenFlags) -> Result<Handle, i32> {
        self.0.open(self.walk(path, true)?.ino, flags).map_err(code)
    }

    fn run(&self, step: &Step) -> Given {
        let write = OpenFlags { write: true, ..OpenFlags::default() };
        match step {
            Step::Create(path) => {
                let (folder, name) = self.split_new(path)?;
                done(self.0.create(folder, name.as_bytes(), 0o644, write, ME))
            }
            Step::Mkdir(path) => {
                let (folder, name) = self.split(path)?;
                done(self.0.mkdir(folder, name.as_bytes(), 0o755, ME))
            }
            Step::Unlink(path) => {
                let (folder, name) = self.split(path)?;
                done(self.0.unlink(folder, name.as_bytes()))
            }
            Step::Rmdir(path) => {
                let (folder, name) = self.split(path)?;
                done(self.0.rmdir(folder, name.as_bytes()))
            }
            // Both folders first, as the kernel does.
            Step::Rename(old, new, flags) => {
                self.rename(self.split(old)?, self.split(new)?, *flags)
            }
            Step::Link(old, new) => {
                let node = self.walk(old, false)?;
                let (folder, name) = self.split_new(new)?;
                done(self.0.link(node.ino, folder, name.as_bytes()))
            }
            Step::Symlink(target, at) => {
                let (folder, name) = self.split(at)?;
                done(self.0.symlink(folder, name.as_bytes(), target.as_bytes(), ME))
            }
            Step::Readlink(path) => {
                let target = self.0.readlink(self.walk(path, false)?.ino).map_err(code)?;
                Ok(String::from_utf8(target).expect("a text"))
            }
            Step::Write(path, from, len) => {
                done(self.open(path, write)?.write(*from, &bytes(*from, *len)))
            }
            Step::Append(path, len) => {
                let flags = OpenFlags { append: true, ..write };
                done(self.open(path, flags)?.write(0, &bytes(0, *len)))
            }
            Step::Truncate(path, size) => done(self.open(path, write)?.set_size(*size)),
            Step::Chmod(path, mode) => {
                let changes = Changes { mode: Some(*mode as u16), ..Changes::default() };
                done(self.0.change(self.walk(path, true)?.ino, changes))
            }
            Step::Read(path) => self.read(path),
            Step::List(path) => self.list(path),
        }
    }

    fn read(&self, path: &str) -> Given {
        let stat = self.walk(path, true)?;
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let handle = self.0.open(stat.ino, flags).map_err(code)?;
        let mut bytes = vec![0; stat.size as usize];
        assert_eq!(handle.read(0, &mut bytes).map_err(code)?, bytes.len());
        Ok(format!("{bytes:?}"))
    }

    fn list(&self, path: &str) -> Given {
        let stat = self.walk(path, true)?;
        if stat.kind != NodeKind::Folder {
            return Err(libc::ENOTDIR);
        }
        let mut names = self.names(stat.ino);
        names.sort();
        Ok(format!("{names:?}"))
    }

    fn rename(&self, old: (u64, &str), new: (u64, &str), flags: u32) -> Given {
        let clash = match flags {
            libc::RENAME_NOREPLACE => Clash::Refuse,
            libc::RENAME_EXCHANGE => Clash::Exchange,
            _ => Clash::Replace,
        };
        let renamed = self.0.rename(old.0, old.1.as_bytes(), new.0, new.1.as_bytes(), clash);
        done(renamed)
    }

    fn names(&self, ino: u64) -> Vec<String> {
        let mut names = Vec::new();
        let folder = self.0.open_folder(ino).expect("a folder");
        let listed = folder.list(0, |entry, _| {
            if entry.name != "." && entry.name != ".." {
                names.push(entry.name.clone());
            }
            true
        });
        listed.expect("a listing");
        names
    }
}

/// A whole tree: of each path its kind, mode, links, size and bytes; hard links are told by a
/// number for each node.
type Tree = BTreeMap<String, (String, usize)>;

fn real_tree(root: &Path) -> Tree {
    let (mut tree, mut nodes, mut open) = (Tree::new(), Vec::new(), vec![PathBuf::new()]);
    while let Some(below) = open.pop() {
        let mut entries: Vec<_> = fs::read_dir(root.join(&below)).unwrap().flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, meta) = (below.join(entry.file_name()), entry.metadata().unwrap());
            let bytes =
                if meta.is_file() { fs::read(root.join(&path)).unwrap() } else { Vec::new() };
            let kind = meta.mode() & libc::S_IFMT;
            let mode = if kind == libc::S_IFLNK { 0o777 } else { meta.mode() & 0o7777 };
            let size = if meta.is_dir() { 0 } else { meta.size() };
            let said = format!("{kind:o} {mode:o} {} {size} {bytes:?}", meta.nlink());
            tree.insert(path.to_str().unwrap().to_owned(), (said, number(&mut nodes, meta.ino())));
            if meta.is_dir() {
                open.push(path);
            }
        }
    }
    tree
}

fn our_tree(ours: &Ours) -> Tree {
    let (mut tree, mut nodes) = (Tree::new(), Vec::new());
    let mut open = vec![(String::new(), ROOT)];
    while let Some((below, ino)) = open.pop() {
        let mut names = ours.names(ino);
        names.sort();
        for name in names {
            let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            let stat = ours.0.lookup(ino, name.as_bytes()).unwrap();
            let mut bytes = Vec::new();
            if stat.kind == NodeKind::File {
                bytes = vec![0; stat.size as usize];
                let flags = OpenFlags { read: true, ..OpenFlags::default() };
                ours.0.open(stat.ino, flags).unwrap().read(0, &mut bytes).unwrap();
            }
            let (kind, mode) = (stat.full_mode() & libc::S_IFMT, stat.mode);
            let size = if stat.kind == NodeKind::Folder { 0 } else { stat.size };
            let said = format!("{kind:o} {mode:o} {} {size} {bytes:?}", stat.nlink);
            tree.insert(path.clone(), (said, number(&mut nodes, stat.ino)));
            if stat.kind == NodeKind::Folder {
                open.push((path, stat.ino));
            }
        }
    }
    tree
}

/// The place of a node among those that were met.
fn number(nodes: &mut Vec<u64>, ino: u64) -> usize {
    nodes.iter().position(|known| *known == ino).unwrap_or_else(|| {
        nodes.push(ino);
        nodes.len() - 1
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn a_folder_and_a_namespace_do_the_same(steps in prop::collection::vec(step(), 1..60)) {
        // SAFETY: sets a number of this process.
        unsafe { libc::umask(0o022) };
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let real = Real(dir.path().join("real"));
        fs::create_dir(&real.0).unwrap();
        let path = dir.path().join("pool");
        let options = CreateOptions { size: 32 << 20, force: true, ..CreateOptions::default() };
        let pool = Pool::create(&path, &options).unwrap();
        let namespace = pool.namespace("default").unwrap();
        let ours = Ours(Fs::new(namespace, Options::default()).unwrap());
        for (at, step) in steps.iter().enumerate() {
            let (expected, given) = (real.run(step), ours.run(step));
            prop_assert_eq!(expected, given, "step {}: {:?}", at, step);
        }
        prop_assert_eq!(real_tree(&real.0), our_tree(&ours));
        drop(ours);
        pool.close();
        prop_assert_eq!(engram::verify(&path).unwrap().problems, Vec::<String>::new());
    }
}
