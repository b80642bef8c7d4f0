//! Files that come whole: bytes, mode, owner, times and attributes in one commit.
//!
//! Whoever copies a tree knows all of a file before it is there. So others see it as it is to be,
//! or not at all.

use engram::{IndexMode, Member, NewObject, Placement, Value};

use crate::errno::{Result, name_of, refuse};
use crate::fs::{Fs, Ino, Maker, gone_is_absent};
use crate::properties::PosixProperties;
use crate::stat::NodeKind;

/// What a node is to be, besides its bytes.
#[derive(Clone, Debug)]
pub struct Given {
    /// What kind of node: a file, a symbolic link or a special file.
    pub kind: NodeKind,
    /// The permissions.
    pub mode: u16,
    /// Whose it is to be. Its group is that, whatever the folder's is.
    pub maker: Maker,
    /// The device, of a special file.
    pub rdev: u64,
    /// When it was written, in ns since 1970.
    pub written: i64,
    /// When it was read, in ns since 1970.
    pub accessed: i64,
    /// Its attributes.
    pub attrs: Vec<(String, Value)>,
    /// The device that its bytes are to lie on; `None`: wherever there is room.
    pub device: Option<u32>,
}

/// A node that is to be put under a name.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'w> {
    /// The folder that it is to be in.
    pub parent: Ino,
    /// Its name there.
    pub name: &'w [u8],
    /// What it is to be.
    pub given: &'w Given,
    /// Its bytes; of a symbolic link, where it leads.
    pub value: &'w [u8],
}

impl Fs {
    /// Puts a node with its value under a name that is free.
    pub fn put_whole(&self, whole: Whole<'_>) -> Result<Ino> {
        self.check_writable()?;
        self.put_checked(whole)
    }

    /// Puts nodes in one commit: all of them, or, on error, none.
    pub fn put_together(&self, all: &[Whole<'_>]) -> Result<Vec<Ino>> {
        self.check_writable()?;
        let batch = self.namespace().batch()?;
        let put: Result<Vec<Ino>> = all.iter().map(|whole| self.put_checked(*whole)).collect();
        let put = put?;
        batch.commit()?;
        Ok(put)
    }

    fn put_checked(&self, whole: Whole<'_>) -> Result<Ino> {
        let Whole { parent, name, given, value } = whole;
        if given.kind == NodeKind::Folder {
            refuse!(EISDIR, "a folder has no value");
        }
        let (name, group) = (name_of(name)?, self.real_folder(parent)?);
        let (kind, mode, rdev) = (given.kind, given.mode & 0o7777, given.rdev);
        let kept = PosixProperties { kind, mode, gid: given.maker.gid, rdev };
        let properties = kept.section(given.written, given.accessed);
        let attrs = given.attrs.clone();
        let object = NewObject { properties, attrs, ..NewObject::blob() };
        let index = Some(IndexMode::None);
        let (owner, device) = (Some(given.maker.uid), given.device);
        let placement = Placement { index, owner, device, ..Placement::default() };
        let put = self.namespace().put(group, name, &object, value, placement);
        let oid = put.map_err(gone_is_absent)?;
        self.note(Member::Object(oid));
        Ok(oid)
    }
}
