//! What is changed of a node: its mode, whose it is, its size, its times.

use std::cell::RefCell;

use engram::{Kind, Member, Properties};

use crate::caller::Protection;
use crate::errno::{Result, gone_is_stale, refuse};
use crate::fs::{Fs, Ino, Node, now};
use crate::handle::OpenFlags;
use crate::properties::{PosixProperties, without_suid};
use crate::stat::{NodeKind, Stat};

/// A time that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// This moment.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// What is to be changed of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// The permissions.
    pub mode: Option<u16>,
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// How many bytes it is to have.
    pub size: Option<u64>,
    /// When it was read.
    pub accessed: Option<Time>,
    /// When it was written.
    pub written: Option<Time>,
    /// Whether a file loses its set-user-id and set-group-id bits: somebody changes its bytes who
    /// may not leave them there. What is given to somebody else loses them in any case.
    pub drop_suid: bool,
}

impl Fs {
    /// Changes a node; what is known of it then.
    pub fn change(&self, ino: Ino, changes: Changes) -> Result<Stat> {
        self.check_writable()?;
        let Node::Member(member) = self.node(ino)? else {
            refuse!(EPERM, "what is below .engram is shown, and not changed")
        };
        if let Some(size) = changes.size {
            self.resize(ino, member, size)?;
        }
        self.set_times(ino, member, changes)?;
        let drop_suid = changes.drop_suid && has_suid(&self.stat(ino)?);
        if changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some() || drop_suid {
            self.set_properties(ino, member, changes, None, None)?;
        }
        self.stat(ino)
    }

    /// Takes the set-user-id and set-group-id bits off a file, if it has any (see [`Changes`]).
    pub fn drop_suid(&self, ino: Ino) -> Result<()> {
        // Each write of an ordinary user comes here: most files have none.
        if has_suid(&self.stat(ino)?) {
            self.change(ino, Changes { drop_suid: true, ..Changes::default() })?;
        }
        Ok(())
    }

    fn resize(&self, ino: Ino, member: Member, size: u64) -> Result<()> {
        let Member::Object(_) = member else { refuse!(EISDIR, "a folder has no size to be set") };
        match self.open_core(ino) {
            Some(core) if core.is_writable() => core.set_size(size),
            _ => self.open(ino, OpenFlags { write: true, ..OpenFlags::default() })?.set_size(size),
        }
    }

    /// Sets times: in a head, in a group's row, in the properties.
    fn set_times(&self, ino: Ino, member: Member, changes: Changes) -> Result<()> {
        let at = |time: Option<Time>| {
            time.map(|time| match time {
                Time::Now => now(),
                Time::At(at) => Ok(at),
            })
            .transpose()
        };
        let (accessed, written) = (at(changes.accessed)?, at(changes.written)?);
        if accessed.is_none() && written.is_none() {
            return Ok(());
        }
        let in_head = match member {
            Member::Group(gid) => {
                if let Some(written) = written {
                    self.namespace().set_group_times(gid, written).map_err(gone_is_stale)?;
                }
                false
            }
            Member::Object(_) => {
                if let Some(core) = self.open_core(ino) {
                    core.set_times(written, accessed)?
                } else if self.stat(ino)?.kind == NodeKind::File {
                    let flags = OpenFlags { read: true, ..OpenFlags::default() };
                    self.open(ino, flags)?.core.set_times(written, accessed)?
                } else {
                    // Of a symbolic link, or a special file, nothing is opened.
                    false
                }
            }
        };
        // That something was changed is the record's to say, whoever has the times.
        let (written, accessed) = if in_head { (None, None) } else { (written, accessed) };
        self.set_properties(ino, member, Changes::default(), written, accessed)
    }

    fn set_properties(
        &self,
        ino: Ino,
        member: Member,
        changes: Changes,
        written: Option<i64>,
        accessed: Option<i64>,
    ) -> Result<()> {
        let was = self.stat(ino)?;
        let set = |_: u32, section: &[u8]| {
            let kept = Properties::parse(section)?;
            let posix = kept.and_then(|kept| PosixProperties::parse(kept.rest).ok());
            let mut posix = posix.unwrap_or(PosixProperties {
                kind: was.kind,
                mode: was.mode,
                gid: was.gid,
                rdev: was.rdev,
            });
            let drops = changes.uid.is_some() || changes.gid.is_some() || changes.drop_suid;
            posix.mode = match changes.mode {
                Some(mode) => mode & 0o7777,
                None if drops && was.kind != NodeKind::Folder => without_suid(posix.mode),
                None => posix.mode,
            };
            posix.gid = changes.gid.unwrap_or(posix.gid);
            let written = written.unwrap_or(kept.map_or(was.written, |kept| kept.written));
            let accessed = accessed.unwrap_or(kept.map_or(was.accessed, |kept| kept.accessed));
            Ok(posix.section(written, accessed))
        };
        self.namespace().set_properties(member, changes.uid, &set).map_err(gone_is_stale)
    }

    /// Changes what protects a node. What it is to be, `decide` says of what the commit itself
    /// finds: so nobody else's change comes between. Its user is to be `uid`, if that is given.
    pub(crate) fn protect(
        &self,
        stat: &Stat,
        uid: Option<u32>,
        decide: &dyn Fn(Protection) -> Result<Protection>,
    ) -> Result<()> {
        self.check_writable()?;
        let Node::Member(member) = self.node(stat.ino)? else {
            refuse!(EPERM, "what is below .engram is shown, and not changed")
        };
        let refused = RefCell::new(None);
        let set = |whose: u32, section: &[u8]| {
            let kept = Properties::parse(section)?;
            let was = match kept.map(|kept| PosixProperties::parse(kept.rest)) {
                Some(Ok(posix)) => posix,
                _ => PosixProperties {
                    kind: stat.kind,
                    mode: stat.mode,
                    gid: stat.gid,
                    rdev: stat.rdev,
                },
            };
            let of = Protection { kind: was.kind, mode: was.mode, uid: whose, gid: was.gid };
            let written = kept.map_or(stat.written, |kept| kept.written);
            let accessed = kept.map_or(stat.accessed, |kept| kept.accessed);
            match decide(of) {
                Ok(Protection { mode, gid, .. }) => {
                    Ok(PosixProperties { mode, gid, ..was }.section(written, accessed))
                }
                Err(error) => {
                    let told = engram::Error::new(Kind::Access, error.message.clone());
                    *refused.borrow_mut() = Some(error);
                    Err(told)
                }
            }
        };
        let done = self.namespace().set_properties(member, uid, &set).map_err(gone_is_stale);
        match refused.take() {
            Some(error) => Err(error),
            None => done,
        }
    }
}

/// Whether a file has set-user-id or set-group-id bits that go when others write to it.
fn has_suid(stat: &Stat) -> bool {
    stat.kind == NodeKind::File && without_suid(stat.mode) != stat.mode
}
