//! What other realms of the namespace have a realm do: keep mirrors, and let go of a group.

use crate::attrs::Value;
use crate::batch;
use crate::catalog::Headroom;
use crate::error::Result;
use crate::group::GroupInfo;
use crate::id::{Gid, Member};
use crate::mirror::{self, Original};
use crate::realm::Realm;
use crate::realm::expects::Expects;

impl Realm {
    /// Makes mirrors of which nobody here sees a true one this realm's own groups.
    pub(crate) fn own_groups(&self, gids: &[Gid]) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        core.commit(inside, Headroom::Normal, |rows| {
            Expects::check(self.expects(), rows)?;
            gids.iter().try_for_each(|gid| mirror::own(rows, Member::Group(*gid)))
        })
    }

    /// Makes mirrors of a chain of groups of other realms, outermost first, or makes those that are
    /// here say what the true ones say.
    pub(crate) fn reflect(&self, chain: &[(GroupInfo, Vec<(String, Value)>)]) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        let mut originals = Vec::with_capacity(chain.len());
        for (info, attrs) in chain {
            originals.push(Original {
                gid: info.gid,
                parent: info.parent,
                name: info.name.clone(),
                owner: info.owner,
                created: info.created,
                modified: info.modified,
                attrs: core.encode_attrs(inside, attrs)?,
                checked: core.setup.checksums,
            });
        }
        let in_batch = batch::change(core, inside.catalog(), self.expects(), |rows| {
            mirror::reflect(rows, &originals)
        })?;
        match in_batch {
            Some(()) => Ok(()),
            None => core.commit(inside, Headroom::Normal, |rows| {
                Expects::check(self.expects(), rows)?;
                mirror::reflect(rows, &originals)
            }),
        }
    }

    /// Deletes a group with all that this realm has below it, wherever it lies by now, and mirrors
    /// below it that no name leads to.
    pub(crate) fn delete_group(&self, gid: Gid, unnamed: &[Gid]) -> Result<()> {
        let core = self.writable()?;
        let root = self.root();
        let all = || [gid].into_iter().chain(unnamed.iter().copied());
        let in_batch = {
            let inside = &core.enter()?;
            batch::change(core, inside.catalog(), self.expects(), |rows| {
                all().try_for_each(|gid| mirror::delete(rows, gid, root))
            })?
        };
        if in_batch.is_some() {
            return Ok(());
        }
        self.whole_or_in_parts(
            || Ok(Some(Member::Group(gid))),
            || {
                let inside = &core.enter()?;
                core.commit(inside, Headroom::Relief, |rows| {
                    Expects::check(self.expects(), rows)?;
                    all().try_for_each(|gid| mirror::delete(rows, gid, root))
                })?;
                core.after_commit(inside);
                Ok(())
            },
        )
    }
}
