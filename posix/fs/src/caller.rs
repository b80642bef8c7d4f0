//! Who asks, and what may be done to a node by its owner, its group and its mode.
//!
//! *Invariant*: the rules are Linux's, and stand here alone. Of owner, group and others the first
//! class to which a caller belongs decides, also if a later one would allow more. The user 0 has
//! every capability: reads and writes anything, searches any folder, and runs a file that somebody
//! may run.

use crate::errno::{Result, refuse};
use crate::fs::Maker;
use crate::stat::{NodeKind, Stat};

/// To read a file, or to list a folder.
pub const READ: u16 = 0o4;
/// To write a file, or to change the names in a folder.
pub const WRITE: u16 = 0o2;
/// To look up names in a folder, or to run a file.
pub const SEARCH: u16 = 0o1;

const SET_USER: u16 = 0o4000;
const SET_GROUP: u16 = 0o2000;
const STICKY: u16 = 0o1000;
const GROUP_RUNS: u16 = 0o010;

/// Who asks for something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user, as whom files are asked for.
    pub uid: u32,
    /// The group, as whose files are made.
    pub gid: u32,
    /// Further groups of the user.
    pub groups: Vec<u32>,
    /// What is taken off the mode of what is made.
    pub umask: u32,
}

/// What a node is protected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protection {
    pub kind: NodeKind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
}

impl From<&Stat> for Protection {
    fn from(stat: &Stat) -> Self {
        Protection { kind: stat.kind, mode: stat.mode, uid: stat.uid, gid: stat.gid }
    }
}

impl Caller {
    /// Whether it has the kernel's capabilities.
    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it is in a group.
    fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether it may leave set-group-id on what is of this group.
    fn keeps_set_group(&self, gid: u32) -> bool {
        self.is_root() || self.is_in(gid)
    }

    /// Whether it may change what only an owner changes.
    pub(crate) fn owns(&self, of: &Protection) -> bool {
        self.is_root() || self.uid == of.uid
    }

    /// Whose is what it makes.
    pub(crate) fn maker(&self) -> Maker {
        Maker { uid: self.uid, gid: self.gid }
    }

    /// Whether it has all of these rights.
    pub(crate) fn may(&self, rights: u16, of: &Protection) -> bool {
        let class = if self.uid == of.uid {
            of.mode >> 6
        } else if self.is_in(of.gid) {
            of.mode >> 3
        } else {
            of.mode
        };
        if rights & !class == 0 {
            return true;
        }
        let runs = rights & SEARCH != 0 && of.kind != NodeKind::Folder;
        self.is_root() && (!runs || of.mode & 0o111 != 0)
    }

    /// Refuses with `EACCES` what it may not do.
    pub(crate) fn check(&self, rights: u16, of: &Protection) -> Result<()> {
        if self.may(rights, of) {
            return Ok(());
        }
        let what = match (of.kind, rights) {
            (NodeKind::Folder, READ) => "list a folder",
            (NodeKind::Folder, SEARCH) => "search a folder",
            (NodeKind::Folder, _) => "change the names in a folder",
            (_, READ) => "read a file",
            (_, SEARCH) => "run a file",
            (_, WRITE) => "write a file",
            _ => "read and write a file",
        };
        let Protection { mode, uid, gid, .. } = of;
        refuse!(
            EACCES,
            "user {} may not {what} of user {uid}, group {gid} and mode {mode:o}: its owner may \
             change the mode",
            self.uid
        )
    }

    /// Refuses with `EPERM` what only an owner does.
    pub(crate) fn check_owns(&self, of: &Protection, what: &str) -> Result<()> {
        if self.owns(of) {
            return Ok(());
        }
        refuse!(EPERM, "user {} may not {what} of user {}'s: ask that user", self.uid, of.uid)
    }

    /// Refuses to take a name out of a folder: by its mode, and if it is sticky, by the owners.
    pub(crate) fn check_removes(&self, folder: &Protection, node: &Protection) -> Result<()> {
        self.check(WRITE | SEARCH, folder)?;
        if folder.mode & STICKY != 0 && self.uid != folder.uid && !self.owns(node) {
            refuse!(
                EPERM,
                "user {} may not take the name off user {}'s in a sticky folder of user {}'s",
                self.uid,
                node.uid,
                folder.uid
            );
        }
        Ok(())
    }

    /// The mode of a node that it makes in a folder: without what its umask takes, and without
    /// set-group-id of a group that the node inherits and the caller is not in.
    pub(crate) fn mode_in(&self, folder: &Protection, kind: NodeKind, mode: u32) -> u32 {
        let mut mode = match kind {
            NodeKind::Folder => mode & 0o1777,
            _ => mode & 0o7777,
        };
        let runs_as_group = u32::from(SET_GROUP | GROUP_RUNS);
        if kind != NodeKind::Folder
            && mode & runs_as_group == runs_as_group
            && folder.mode & SET_GROUP != 0
            && !self.keeps_set_group(folder.gid)
        {
            mode &= !u32::from(SET_GROUP);
        }
        mode & !(self.umask & 0o777)
    }

    /// What protects a node to which it gives a mode.
    pub(crate) fn with_mode(&self, of: Protection, mode: u32) -> Result<Protection> {
        self.check_owns(&of, "change the mode")?;
        let mut mode = (mode & 0o7777) as u16;
        if !self.keeps_set_group(of.gid) {
            mode &= !SET_GROUP;
        }
        Ok(Protection { mode, ..of })
    }

    /// What protects a node which it gives to a user, or to a group.
    pub(crate) fn with_owner(
        &self,
        of: Protection,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<Protection> {
        let given = Protection { uid: uid.unwrap_or(of.uid), gid: gid.unwrap_or(of.gid), ..of };
        let is_own = self.uid == of.uid;
        if uid.is_some() && !self.is_root() && !(is_own && given.uid == of.uid) {
            refuse!(
                EPERM,
                "user {} may not give what is user {}'s to user {}: root may",
                self.uid,
                of.uid,
                given.uid
            );
        }
        let to_own_group = is_own && (given.gid == of.gid || self.is_in(given.gid));
        if gid.is_some() && !self.is_root() && !to_own_group {
            refuse!(
                EPERM,
                "user {} may not give what is user {}'s to group {}: its owner may, if in it",
                self.uid,
                of.uid,
                given.gid
            );
        }
        let mode = if of.kind == NodeKind::Folder { of.mode } else { self.without_set_ids(&of) };
        if mode == of.mode {
            return Ok(given);
        }
        // To lose these bits is to be given a mode.
        self.check_owns(&of, "change the mode")?;
        let kept = if self.keeps_set_group(given.gid) { mode } else { mode & !SET_GROUP };
        Ok(Protection { mode: kept, ..given })
    }

    /// What protects a file whose bytes it has changed.
    pub(crate) fn having_written(&self, of: &Protection) -> Protection {
        if self.is_root() || of.kind != NodeKind::File {
            return *of;
        }
        Protection { mode: self.without_set_ids(of), ..*of }
    }

    /// A mode without set-user-id; and without set-group-id, unless that is a mark for locks in a
    /// group that it is in.
    fn without_set_ids(&self, of: &Protection) -> u16 {
        let marks = of.mode & GROUP_RUNS == 0 && self.keeps_set_group(of.gid);
        of.mode & !(SET_USER | if marks { 0 } else { SET_GROUP })
    }

    /// Refuses to set times that are not this moment's, or, of this moment, of what it may neither
    /// write nor owns.
    pub(crate) fn check_times(&self, of: &Protection, both_now: bool) -> Result<()> {
        if self.owns(of) {
            Ok(())
        } else if both_now {
            self.check(WRITE, of)
        } else {
            self.check_owns(of, "set the times")
        }
    }

    /// Refuses an attribute of this name, by what it is of: as Linux does before it looks for it.
    pub(crate) fn check_attribute(&self, name: &[u8], of: &Protection, set: bool) -> Result<()> {
        if name.starts_with(b"security.") || name.starts_with(b"system.") {
            return Ok(());
        }
        let shown = || name.escape_ascii().to_string();
        let refused = |why: &str| {
            if set {
                refuse!(EPERM, "the attribute {:?} is not set: {why}", shown())
            }
            refuse!(ENODATA, "there is no attribute {:?}: {why}", shown())
        };
        if name.starts_with(b"trusted.") {
            return if self.is_root() { Ok(()) } else { refused("it is for root") };
        }
        if name.starts_with(b"user.") {
            if !matches!(of.kind, NodeKind::File | NodeKind::Folder) {
                return refused("only files and folders have such");
            }
            let is_sticky = of.kind == NodeKind::Folder && of.mode & STICKY != 0;
            if set && is_sticky && !self.owns(of) {
                return refused("the folder is sticky, and another user's");
            }
        }
        self.check(if set { WRITE } else { READ }, of)
    }
}

#[cfg(test)]
mod tests {
    use super::{Caller, Protection, READ, SEARCH, WRITE};
    use crate::stat::NodeKind;

    fn of(kind: NodeKind, mode: u16) -> Protection {
        Protection { kind, mode, uid: 5, gid: 7 }
    }

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: groups.to_vec(), umask: 0o022 }
    }

    #[test]
    fn the_first_class_that_matches_decides() {
        let (owner, member, further, other) =
            (caller(5, 7, &[]), caller(6, 7, &[]), caller(6, 1, &[3, 7]), caller(6, 1, &[]));
        let file = of(NodeKind::File, 0o047);
        assert!(!owner.may(READ, &file), "others may what the owner may not");
        assert!(member.may(READ, &file) && further.may(READ, &file));
        assert!(!member.may(READ | WRITE, &file) && !further.may(SEARCH, &file));
        assert!(other.may(READ | WRITE | SEARCH, &file));
    }

    #[test]
    fn root_runs_only_what_somebody_may_run() {
        let root = caller(0, 0, &[]);
        assert!(root.may(READ | WRITE, &of(NodeKind::File, 0)));
        assert!(!root.may(SEARCH, &of(NodeKind::File, 0o666)));
        assert!(root.may(SEARCH, &of(NodeKind::File, 0o001)));
        assert!(root.may(SEARCH | WRITE, &of(NodeKind::Folder, 0)));
    }

    #[test]
    fn a_file_that_is_given_away_runs_as_nobody_else() {
        let (owner, root) = (caller(5, 7, &[8]), caller(0, 0, &[]));
        let file = of(NodeKind::File, 0o6755);
        assert_eq!(owner.with_owner(file, None, Some(8)).unwrap().mode, 0o755);
        assert_eq!(root.with_owner(file, Some(1), None).unwrap().mode, 0o755);
        let marked = of(NodeKind::File, 0o2745);
        assert_eq!(owner.with_owner(marked, None, Some(8)).unwrap().mode, 0o2745);
        let folder = of(NodeKind::Folder, 0o2755);
        assert_eq!(owner.with_owner(folder, None, Some(8)).unwrap().mode, 0o2755);
        for (uid, gid) in [(Some(1), None), (None, Some(9))] {
            assert_eq!(owner.with_owner(file, uid, gid).unwrap_err().code, libc::EPERM);
        }
        assert_eq!(caller(6, 7, &[]).having_written(&file).mode, 0o755);
        assert_eq!(caller(6, 1, &[]).having_written(&marked).mode, 0o745);
        assert_eq!(root.having_written(&file).mode, 0o6755);
    }
}
