//! What a stage-in is to bring, told to programs that open it before it is there: they wait.
//!
//! The stage writes a [list](engram_fs::expected) of its names into its work folder, and notes it
//! in the folders that they come to. Both are gone when it has ended. Whoever dies leaves a list
//! that nobody waits for; the next one writes it anew.

use std::collections::{BTreeMap, BTreeSet};

use engram_fs::{Expected, Ino, OpenFlags};

use crate::inward::{Brought, StageIn, hidden_of};

/// The names on the way, and the folders in which they are noted.
pub(crate) struct Awaited {
    expected: Expected,
    /// Each with the list that it noted before, if some of what that leads to is on its way still.
    folders: BTreeMap<Ino, Option<Ino>>,
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
        let folders: BTreeSet<Ino> = names().map(|(folder, _)| folder).collect();
        let noted = folders.into_iter().map(|one| Ok((one, stage.fs.expected_in(one)?)));
        let noted: BTreeMap<Ino, Option<Ino>> = noted.collect::<engram_fs::Result<_>>()?;
        let alive = |was: &Option<Ino>| was.filter(|list| stage.fs.is_anything_expected(*list));
        let folders: BTreeMap<Ino, Option<Ino>> =
            noted.iter().map(|(folder, was)| (*folder, alive(was))).collect();
        let others = folders.values().flatten().copied().collect();
        let expected = Expected::write(list, &others, names())?;
        let own = Some(expected.ino());
        for (folder, was) in &noted {
            stage.fs.expect_in(*folder, *was, own)?;
            // Another stage may have begun there just now: its names are not waited for then.
            let noted = stage.fs.expected_in(*folder)?;
            if noted != own {
                stage.fs.expect_in(*folder, noted, own)?;
            }
        }
        Ok(Awaited { expected, folders, file })
    }

    /// A name is there, or will not come.
    pub fn came(&self, folder: Ino, name: &[u8]) -> engram_fs::Result<()> {
        self.expected.arrived(folder, name)
    }

    /// The stage has ended. Where a folder notes a later list, that leads to this one still.
    pub fn end(&self, stage: &StageIn<'_>) -> engram_fs::Result<()> {
        let mut is_noted = false;
        for (folder, before) in &self.folders {
            let own = Some(self.expected.ino());
            match stage.fs.expect_in(*folder, own, *before) {
                // Somebody has removed it meanwhile.
                Err(error) if [libc::ENOENT, libc::ESTALE].contains(&error.code) => continue,
                done => done?,
            }
            is_noted |= stage.fs.expected_in(*folder)? != *before;
        }
        // One that leads from a later list to an earlier one stays until its stage is dropped.
        if is_noted && self.folders.values().any(Option::is_some) {
            return Ok(());
        }
        match stage.fs.unlink(stage.work, self.file.as_bytes()) {
            Err(error) if error.code != libc::ENOENT => Err(error),
            _ => Ok(()),
        }
    }
}
