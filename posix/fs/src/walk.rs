//! Paths that are followed through symbolic links, for callers that have no kernel to do so.

use engram::Member;

use crate::errno::{Result, refuse};
use crate::fs::{Fs, Ino, ROOT, gone_is_absent};
use crate::stat::{NodeKind, Stat};

/// So many symbolic links are followed at most, as by Linux.
const LINKS_MAX: usize = 40;

/// Where a path leads.
#[derive(Clone, Debug)]
pub struct Walked {
    /// The folder of the last name.
    pub parent: Ino,
    /// The last name; empty if the path leads to that folder itself.
    pub name: String,
    /// What is known of the node; `None` if nothing has that name.
    pub stat: Option<Stat>,
}

impl Fs {
    /// Follows a relative path from a folder, through symbolic links, also that of the last name.
    ///
    /// A link with an absolute target leads out of what is shown here, and is `EXDEV`.
    pub fn walk(&self, from: Ino, path: &str) -> Result<Walked> {
        // The names that are still to be followed, the next one last.
        let mut rest: Vec<String> = parts(path);
        let (mut parent, mut links) = (from, 0);
        while let Some(name) = rest.pop() {
            if name == ".." {
                parent = self.above(self.folder_of(parent)?)?;
                continue;
            }
            let stat = match self.lookup(parent, name.as_bytes()) {
                Ok(stat) => stat,
                Err(error) if error.code == libc::ENOENT && rest.is_empty() => {
                    return Ok(Walked { parent, name, stat: None });
                }
                Err(error) => return Err(error),
            };
            if stat.kind == NodeKind::Symlink {
                links += 1;
                if links > LINKS_MAX {
                    refuse!(ELOOP, "{path:?} leads through more than {LINKS_MAX} symbolic links");
                }
                let target = self.readlink(stat.ino)?;
                let Ok(target) = String::from_utf8(target) else {
                    refuse!(EILSEQ, "the symbolic link {name:?} leads to no name of UTF-8")
                };
                if target.starts_with('/') {
                    refuse!(
                        EXDEV,
                        "the symbolic link {name:?} leads to {target:?}, out of the pool"
                    );
                }
                rest.extend(parts(&target));
            } else if rest.is_empty() {
                return Ok(Walked { parent, name, stat: Some(stat) });
            } else if stat.kind == NodeKind::Folder {
                parent = stat.ino;
            } else {
                refuse!(ENOTDIR, "{name:?} in {path:?} is no folder");
            }
        }
        Ok(Walked { parent, name: String::new(), stat: Some(self.stat(parent)?) })
    }

    /// The folder that a folder is in; of the root, itself.
    pub(crate) fn above(&self, gid: u64) -> Result<Ino> {
        Ok(match self.namespace().group(gid).map_err(gone_is_absent)?.parent {
            0 => ROOT,
            above => self.ino_of(Member::Group(above)),
        })
    }
}

/// The names of a path, the last one first.
fn parts(path: &str) -> Vec<String> {
    let names = path.rsplit('/').filter(|name| !name.is_empty() && *name != ".");
    names.map(str::to_owned).collect()
}
