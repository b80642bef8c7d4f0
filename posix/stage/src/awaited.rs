//! What a stage-in is to bring, told to programs that open it before it is there: they wait.
//!
//! The stage writes a [list](engram_fs::expected) of its names into its work folder, and notes it
//! in the folders that they come to. Both are gone when it has ended. Whoever dies leaves a list
//! that nobody waits for; the next one writes it anew.

use std::collections::BTreeSet;

use engram_fs::{Expected, Ino, OpenFlags};

use crate::inward::{Brought, StageIn, hidden_of};

/// The names on the way, and the folders in which they are noted.
pub(crate) struct Awaited {
    expected: Expected,
    folders: BTreeSet<Ino>,
    file: String,
}

impl Awaited {
    /// Tells programs what is to come.
    pub fn announce(stage: &StageIn<'_>, brought: &[Brought]) -> engram_fs::Result<Awaited> {
        let file = format!("{}expected", hidden_of(&brought[0].key));
        match stage.fs.unlink(stage.work, file.as_bytes()) {
            Err(error) if error.code != libc::ENOENT => return Err(error),
            _ => {}
        }
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let (_, list) = stage.fs.create(stage.work, file.as_bytes(), 0o600, flags, stage.maker)?;
        let names = || brought.iter().flat_map(Brought::names);
        let expected = Expected::write(list, names())?;
        let folders: BTreeSet<Ino> = names().map(|(folder, _)| folder).collect();
        for folder in &folders {
            stage.fs.expect_in(*folder, Some(expected.ino()))?;
        }
        Ok(Awaited { expected, folders, file })
    }

    /// A name is there, or will not come.
    pub fn came(&self, folder: Ino, name: &[u8]) -> engram_fs::Result<()> {
        self.expected.arrived(folder, name)
    }

    /// The stage has ended.
    pub fn end(&self, stage: &StageIn<'_>) -> engram_fs::Result<()> {
        for folder in &self.folders {
            match stage.fs.expect_in(*folder, None) {
                // Somebody has removed it meanwhile.
                Err(error) if [libc::ENOENT, libc::ESTALE].contains(&error.code) => {}
                done => done?,
            }
        }
        stage.fs.unlink(stage.work, self.file.as_bytes())
    }
}
