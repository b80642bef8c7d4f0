//! Names made, changed and taken away.

use engram::{Member, NamesSeen};

use super::Asked;
use crate::caller::{Protection, SEARCH, WRITE};
use crate::errno::{Result, refuse, refuse_at, shown_name};
use crate::fs::{Clash, Ino, ROOT};
use crate::shown::is_shown;
use crate::stat::{NodeKind, Stat};
use crate::walk::{Answer, At, Last, Unanswered, Way, stale_is_absent};

/// A name leads to something else than it did, or to nothing.
const MOVED: &[i32] = &[libc::ENOENT, libc::ESTALE];

/// A name that is to go, and the node that it leads to.
struct Leaving<'p> {
    way: Way<'p>,
    stat: Stat,
}

impl Asked<'_> {
    /// `mkdir`.
    pub fn mkdir(&self, at: At<'_>, mode: u32) -> Answer<Stat> {
        let way = self.new_name(&at, true)?;
        let mode = self.caller.mode_in(&way.folder.protection, NodeKind::Folder, mode);
        let made = self.fs.mkdir(way.folder.ino, way.name(), mode, self.caller.maker());
        Ok(made.map_err(stale_is_absent)?)
    }

    /// `mknod`.
    pub fn mknod(&self, at: At<'_>, mode: u32, rdev: u64) -> Answer<Stat> {
        let kind = match NodeKind::of_mode(mode) {
            Some(NodeKind::Folder) => refuse_at!(EPERM, "a folder is made by mkdir"),
            Some(kind) if kind != NodeKind::Symlink => kind,
            _ => refuse_at!(EINVAL, "a node of the mode {mode:o} cannot be made so"),
        };
        let way = self.new_name(&at, false)?;
        // Anybody may make the mark of what is hidden in an overlay.
        let is_mark = kind == NodeKind::CharDevice && rdev == 0;
        let is_device = matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice);
        if is_device && !is_mark && !self.caller.is_root() {
            refuse_at!(EPERM, "user {} may make no device: root may", self.caller.uid);
        }
        let bits = self.caller.mode_in(&way.folder.protection, kind, mode);
        let mode = mode & libc::S_IFMT | bits;
        let made = self.fs.mknod(way.folder.ino, way.name(), mode, rdev, self.caller.maker());
        Ok(made.map_err(stale_is_absent)?)
    }

    /// `symlink`.
    pub fn symlink(&self, target: &[u8], at: At<'_>) -> Answer<Stat> {
        if target.is_empty() {
            refuse_at!(ENOENT, "a symbolic link leads somewhere");
        }
        if target.len() > crate::walk::PATH_BYTES_MAX {
            refuse_at!(ENAMETOOLONG, "a target of {} bytes is too long", target.len());
        }
        let way = self.new_name(&at, false)?;
        let made = self.fs.symlink(way.folder.ino, way.name(), target, self.caller.maker());
        Ok(made.map_err(stale_is_absent)?)
    }

    /// `link`: a further name; of a symbolic link itself, unless links are followed.
    pub fn link(&self, old: At<'_>, new: At<'_>, follow: bool) -> Answer<Stat> {
        let look = || {
            let stat = self.find(&old, follow)?;
            let way = self.new_name(&new, false).map_err(second)?;
            Ok((stat, way))
        };
        let gone: &[i32] = if old.number().is_some() { &[] } else { MOVED };
        Self::again(gone, look, |(stat, way): (Stat, Way<'_>)| {
            if stat.kind == NodeKind::Folder {
                refuse_at!(EPERM, "a folder has one name");
            }
            Ok(self.fs.link(stat.ino, way.folder.ino, way.name())?)
        })
    }

    /// `unlink`.
    pub fn unlink(&self, at: At<'_>) -> Answer<()> {
        if self.unlink_at_once(&at)? {
            return Ok(());
        }
        let look = || {
            let way = self.way(&at)?;
            if way.last != Last::Name {
                refuse_at!(EISDIR, "a folder is removed by rmdir");
            }
            let leaving = self.leaving(way)?;
            // do_unlinkat: a slash decides before any permission.
            if leaving.way.slash && leaving.stat.kind != NodeKind::Folder {
                refuse_at!(ENOTDIR, "{:?} is no folder", shown_name(leaving.way.name()));
            }
            if leaving.way.slash {
                refuse_at!(EISDIR, "a folder is removed by rmdir");
            }
            self.check_removes(&leaving.way, &leaving.stat, false)?;
            Ok(leaving)
        };
        Self::again(MOVED, look, |Leaving { way, stat }| {
            let is_it = |oid: u64, _: u32, _: &[u8]| oid == stat.ino;
            Ok(self.fs.unlink_if(way.folder.ino, way.name(), Some(&is_it))?)
        })
    }

    /// Takes a name away without a look, and judges in the commit what it leads to. `false`: it was
    /// not done, and a look says why.
    fn unlink_at_once(&self, at: &At<'_>) -> Answer<bool> {
        let way = self.way(at)?;
        if way.last != Last::Name || way.slash || is_shown(way.folder.ino) {
            return Ok(false);
        }
        let may_go = |_, owner, properties: &[u8]| {
            let node = self.fs.protection_of(owner, properties);
            node.is_some_and(|node| {
                self.caller.check_removes(&way.folder.protection, &node).is_ok()
            })
        };
        Ok(self.fs.unlink_if(way.folder.ino, way.name(), Some(&may_go)).is_ok())
    }

    /// `rmdir`.
    pub fn rmdir(&self, at: At<'_>) -> Answer<()> {
        let look = || {
            let way = self.way(&at)?;
            match way.last {
                Last::Name => {}
                Last::Dot => refuse_at!(EINVAL, "a folder is not removed under the name \".\""),
                Last::DotDot => refuse_at!(ENOTEMPTY, "what is above has at least this in it"),
                Last::Root => refuse_at!(EBUSY, "the root stays"),
            }
            let leaving = self.leaving(way)?;
            self.check_removes(&leaving.way, &leaving.stat, true)?;
            Ok(leaving)
        };
        Self::again(MOVED, look, |Leaving { way, stat }| {
            Ok(self.fs.rmdir_seen(way.folder.ino, way.name(), Some(stat.ino))?)
        })
    }

    /// `rename`, and what becomes of what has the new name.
    pub fn rename(&self, old: At<'_>, new: At<'_>, clash: Clash) -> Answer<()> {
        let look = || {
            let (from, to) = (self.way(&old)?, self.way(&new).map_err(second)?);
            if from.last != Last::Name {
                refuse_at!(EBUSY, "what is to be renamed is in use under this name");
            }
            match (to.last, clash) {
                (Last::Name, _) => {}
                (_, Clash::Refuse) => refuse_at!(EEXIST, "the new name is there already"),
                _ => refuse_at!(EBUSY, "what has the new name is in use under it"),
            }
            let leaving = self.leaving(from)?;
            let there = self.fs.seek(to.folder.ino, to.name())?;
            self.check_rename(&leaving, &to, there.as_ref(), clash)?;
            Ok((leaving, to, there))
        };
        Self::again(MOVED, look, |(Leaving { way, stat }, to, there)| {
            if there.is_some_and(|there| there.ino == stat.ino) {
                return Ok(());
            }
            let was = NamesSeen { member: member(&stat), there: there.as_ref().map(member) };
            let (from, into) = (way.folder.ino, to.folder.ino);
            let (old, new) = (way.name(), to.name());
            Ok(self.fs.rename_seen(from, old, into, new, clash, Some(was))?)
        })
    }

    /// The folder and the name of what is to be made; by `filename_create` and `may_create`.
    fn new_name<'p>(&self, at: &At<'p>, folder: bool) -> Answer<Way<'p>> {
        let way = self.way(at)?;
        if way.last != Last::Name || self.fs.seek(way.folder.ino, way.name())?.is_some() {
            refuse_at!(EEXIST, "the name is there already");
        }
        if way.slash && !folder {
            refuse_at!(ENOENT, "there is no folder {:?}", shown_name(way.name()));
        }
        self.check_writable()?;
        self.caller.check(WRITE | SEARCH, &way.folder.protection)?;
        Ok(way)
    }

    /// What has a name that is to go.
    fn leaving<'p>(&self, way: Way<'p>) -> Answer<Leaving<'p>> {
        self.check_writable()?;
        match self.fs.seek(way.folder.ino, way.name())? {
            Some(stat) => Ok(Leaving { way, stat }),
            None => refuse_at!(ENOENT, "there is no {:?}", shown_name(way.name())),
        }
    }

    /// Refuses to take a name off a node, or a folder; by `may_delete`.
    fn check_removes(&self, way: &Way<'_>, stat: &Stat, folder: bool) -> Result<()> {
        self.caller.check_removes(&way.folder.protection, &Protection::from(stat))?;
        match (folder, stat.kind == NodeKind::Folder) {
            (true, false) => refuse!(ENOTDIR, "{:?} is no folder", shown_name(way.name())),
            (false, true) => refuse!(EISDIR, "{:?} is a folder", shown_name(way.name())),
            _ if is_shown(stat.ino) => {
                refuse!(EPERM, "{:?} is only shown, and not changed", shown_name(way.name()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a rename, by `do_renameat2` and then `vfs_rename`.
    fn check_rename(
        &self,
        leaving: &Leaving<'_>,
        to: &Way<'_>,
        there: Option<&Stat>,
        clash: Clash,
    ) -> Result<()> {
        let Leaving { way: from, stat } = leaving;
        let is_folder = stat.kind == NodeKind::Folder;
        let onto_folder = there.is_some_and(|there| there.kind == NodeKind::Folder);
        match (there, clash) {
            (Some(_), Clash::Refuse) => refuse!(EEXIST, "the new name is there already"),
            (None, Clash::Exchange) => refuse!(ENOENT, "there is nothing to exchange names with"),
            _ => {}
        }
        let of_folders = |way: &Way<'_>, folder: bool| {
            if way.slash && !folder {
                refuse!(ENOTDIR, "{:?} is no folder", shown_name(way.name()));
            }
            Ok(())
        };
        if clash == Clash::Exchange {
            of_folders(to, onto_folder)?;
        } else {
            of_folders(to, is_folder)?;
        }
        of_folders(from, is_folder)?;
        if is_folder && self.holds(stat.ino, to)? {
            refuse!(EINVAL, "{:?} cannot be moved into itself", shown_name(from.name()));
        }
        if let Some(there) = there.filter(|_| onto_folder)
            && self.holds(there.ino, from)?
        {
            match clash {
                Clash::Exchange => refuse!(EINVAL, "a folder cannot be moved into itself"),
                _ => refuse!(ENOTEMPTY, "{:?} holds what is to replace it", shown_name(to.name())),
            }
        }
        if there.is_some_and(|there| there.ino == stat.ino) {
            return Ok(());
        }
        self.check_removes(from, stat, is_folder)?;
        match there {
            None => self.caller.check(WRITE | SEARCH, &to.folder.protection)?,
            Some(there) => {
                let folder = if clash == Clash::Exchange { onto_folder } else { is_folder };
                self.check_removes(to, there, folder)?;
            }
        }
        if from.folder.ino != to.folder.ino {
            // What is above a folder stands in it.
            if is_folder {
                self.caller.check(WRITE, &stat.into())?;
            }
            if let Some(there) = there.filter(|_| onto_folder && clash == Clash::Exchange) {
                self.caller.check(WRITE, &there.into())?;
            }
        }
        Ok(())
    }

    /// Whether a folder is the one of a way, or above it.
    fn holds(&self, folder: Ino, way: &Way<'_>) -> Result<bool> {
        let (mut below, mut moment) = (way.folder, self.fs.moment()?);
        while below.ino != folder {
            if below.ino == ROOT {
                return Ok(false);
            }
            below = self.fs.known_folder(below.above, &mut moment).map_err(stale_is_absent)?;
        }
        Ok(true)
    }
}

/// The member of the engine that a node is.
fn member(stat: &Stat) -> Member {
    match stat.kind {
        NodeKind::Folder => Member::Group(stat.ino),
        _ => Member::Object(stat.ino),
    }
}

/// Says that it is the second path which leads elsewhere.
fn second(why: Unanswered) -> Unanswered {
    match why {
        Unanswered::Leaves(mut leaves) => {
            leaves.second = true;
            Unanswered::Leaves(leaves)
        }
        other => other,
    }
}
