//! The same by [`Asked`], with a front's part: paths that leave come back in, or end the step.

use engram_fs::{
    Answer, Asked, At, Beyond, Caller, Clash, Fs, Handle, Leaves, NodeKind, Opened, ROOT, Stat,
    Time, Unanswered,
};

use crate::real::said;
use crate::steps::{Call, Given, Step};

pub struct Ours {
    pub fs: Fs,
    /// Where the kernel's folder stands, which links with absolute targets name.
    pub prefix: String,
}

/// How a step ends.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Given(Given),
    /// The kernel answers it: a path leads out of what is shown.
    Outside,
}

/// A path of a call, as far as it was followed by the front.
#[derive(Clone)]
struct Place {
    folder: u64,
    path: Vec<u8>,
    links: u32,
}

impl Place {
    fn begin(folder: u64, path: &str) -> Place {
        let path = match path.strip_prefix('@') {
            Some("") => b"/".to_vec(),
            Some(rest) => rest.as_bytes().to_vec(),
            None => path.as_bytes().to_vec(),
        };
        Place { folder, path, links: 0 }
    }

    fn at(&self) -> At<'_> {
        At::path(self.folder, &self.path).after(self.links)
    }
}

fn done<T>(answer: Answer<T>) -> Answer<String> {
    answer.map(|_| String::new())
}

pub fn said_of(stat: &Stat) -> String {
    let size = if stat.kind == NodeKind::Folder { 0 } else { stat.size };
    said(stat.full_mode(), stat.uid, stat.gid, u64::from(stat.nlink), size)
}

fn time(nsec: i64) -> Option<Time> {
    match nsec {
        libc::UTIME_OMIT => None,
        libc::UTIME_NOW => Some(Time::Now),
        nsec => Some(Time::At(9_000_000_000 + nsec)),
    }
}

impl Ours {
    /// The folder that a step begins at.
    pub fn begin(&self, from: Option<&str>) -> Option<u64> {
        let Some(name) = from else { return Some(ROOT) };
        let found = self.fs.lookup(ROOT, name.as_bytes()).ok();
        found.filter(|stat| stat.kind == NodeKind::Folder).map(|stat| stat.ino)
    }

    /// Where a path that left comes back in; `None` if it does not, or ends where this stands.
    fn back(&self, leaves: &Leaves) -> Option<Place> {
        let whole = match &leaves.to {
            Beyond::Absolute(path) => path.clone(),
            Beyond::Above(rest) => {
                let above = self.prefix.rsplit_once('/').expect("a path").0;
                [above.as_bytes(), b"/", rest].concat()
            }
        };
        let whole = String::from_utf8(whole).expect("a text");
        let ours: Vec<&str> = self.prefix.split('/').skip(1).collect();
        let (mut depth, mut rest) = (0, whole.as_str());
        while depth < ours.len() {
            rest = rest.trim_start_matches('/');
            let (name, behind) = rest.split_once('/')?;
            match name {
                "." => {}
                ".." => depth = usize::saturating_sub(depth, 1),
                name if name == ours[depth] => depth += 1,
                _ => return None,
            }
            rest = behind;
        }
        let rest = rest.trim_start_matches('/');
        let path = format!("/{rest}").into_bytes();
        (!rest.is_empty()).then_some(Place { folder: ROOT, path, links: leaves.links })
    }

    pub fn run(&self, step: &Step, from: u64) -> End {
        let asked = self.fs.asked_by(&step.caller);
        let (first, second) = step.call.paths();
        let mut first = Place::begin(from, first);
        let mut second = Place::begin(from, second.unwrap_or_default());
        loop {
            match self.call(asked, &step.call, &step.caller, &first, &second) {
                Ok(given) => return End::Given(Ok(given)),
                Err(Unanswered::Refused(error)) => return End::Given(Err(error.code)),
                Err(Unanswered::Leaves(leaves)) => {
                    let Some(back) = self.back(&leaves) else { return End::Outside };
                    *(if leaves.second { &mut second } else { &mut first }) = back;
                }
                Err(Unanswered::Expected) => panic!("no stage brings anything here"),
            }
        }
    }

    fn call(
        &self,
        asked: Asked<'_>,
        call: &Call,
        caller: &Caller,
        first: &Place,
        second: &Place,
    ) -> Answer<String> {
        let at = first.at();
        match call {
            Call::Stat(_, follow) => asked.stat(at, *follow).map(|stat| said_of(&stat)),
            Call::Access(_, rights, follow) => done(asked.access(at, *rights, *follow)),
            Call::Open(_, flags, mode) => match asked.open(at, *flags, *mode)? {
                Opened::File(handle) => Ok(said_of(&handle.stat()?)),
                Opened::Folder(folder) => Ok(said_of(&self.fs.stat(folder.ino())?)),
                Opened::Node(stat) => Ok(said_of(&stat)),
            },
            Call::Write(_) => match asked.open(at, libc::O_WRONLY, 0)? {
                Opened::File(handle) => self.write(caller, &handle),
                _ => panic!("what is opened to be written is a file"),
            },
            Call::Mkdir(_, mode) => done(asked.mkdir(at, *mode)),
            Call::Mknod(_, mode, rdev) => done(asked.mknod(at, *mode, *rdev)),
            Call::Symlink(target, _) => {
                let target = target.replace('@', &self.prefix);
                done(asked.symlink(target.as_bytes(), at))
            }
            Call::Readlink(_) => {
                asked.readlink(at).map(|target| String::from_utf8_lossy(&target).into_owned())
            }
            Call::Link(_, _, follow) => done(asked.link(at, second.at(), *follow)),
            Call::Unlink(_) => done(asked.unlink(at)),
            Call::Rmdir(_) => done(asked.rmdir(at)),
            Call::Rename(_, _, flags) => {
                let clash = match *flags {
                    libc::RENAME_NOREPLACE => Clash::Refuse,
                    libc::RENAME_EXCHANGE => Clash::Exchange,
                    _ => Clash::Replace,
                };
                done(asked.rename(at, second.at(), clash))
            }
            Call::Chmod(_, mode, follow) => done(asked.chmod(at, *mode, *follow)),
            Call::Chown(_, uid, gid, follow) => done(asked.chown(at, *uid, *gid, *follow)),
            Call::Utimes(_, read, written, follow) => {
                done(asked.utimes(at, time(*read), time(*written), *follow))
            }
            Call::Truncate(_, size) => done(asked.truncate(at, *size)),
            Call::SetXattr(_, flags, follow) => {
                done(asked.set_xattr(at, b"user.k", b"value", *flags, *follow))
            }
            Call::GetXattr(_, follow) => {
                let got = asked.get_xattr(at, b"user.k", *follow)?;
                Ok(String::from_utf8_lossy(&got).into_owned())
            }
            Call::RemoveXattr(_, follow) => done(asked.remove_xattr(at, b"user.k", *follow)),
            Call::ListXattr(_, follow) => {
                let names = asked.list_xattr(at, *follow)?;
                Ok(names.iter().flat_map(|name| [name, "\0"]).collect())
            }
            Call::List(_) => {
                let folder = asked.open_folder(at)?;
                let mut names = self.names(folder.ino());
                names.sort();
                Ok(names.join(" "))
            }
            Call::Chdir(_) => done(asked.chdir(at)),
            Call::Statfs(_) => done(asked.statfs(at)),
        }
    }

    fn write(&self, caller: &Caller, handle: &Handle) -> Answer<String> {
        self.fs.asked_by(caller).before_write(handle)?;
        handle.write(0, b"bytes")?;
        Ok(said_of(&handle.stat()?))
    }

    fn names(&self, ino: u64) -> Vec<String> {
        let mut names = Vec::new();
        let folder = self.fs.open_folder(ino).expect("a folder");
        let listed = folder.list(0, |entry, _| {
            if entry.name != "." && entry.name != ".." {
                names.push(entry.name.clone());
            }
            true
        });
        listed.expect("a listing");
        names
    }

    /// The whole tree, by path.
    pub fn tree(&self) -> Vec<String> {
        let (mut all, mut open) = (Vec::new(), vec![(".".to_owned(), ROOT)]);
        while let Some((below, ino)) = open.pop() {
            for name in self.names(ino) {
                let stat = self.fs.lookup(ino, name.as_bytes()).unwrap();
                let path = format!("{below}/{name}");
                all.push(format!("{path}: {}", said_of(&stat)));
                if stat.kind == NodeKind::Folder {
                    open.push((path, stat.ino));
                }
            }
        }
        all.sort();
        all
    }
}
