//! What other realms of the namespace have a realm do: keep mirrors, and let go of a group.

use crate::realm::Realm;
use crate::realm::write;
use engram_base::error::Result;
use engram_base::id::{Gid, Member};
use engram_catalog::Headroom;
use engram_ops::group::GroupInfo;
use engram_ops::mirror;
use engram_ops::mirror::Original;
use engram_records::attrs::Value;

impl Realm {
    /// Makes mirrors of which nobody here sees a true one this realm's own groups.
    pub fn own_groups(&self, gids: &[Gid]) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        core.commit_if(inside, Headroom::Normal, self.precondition(), |rows| {
            gids.iter().try_for_each(|gid| mirror::own(rows, Member::Group(*gid)))
        })
    }

    /// Makes mirrors of a chain of groups of other realms, outermost first, or makes those that are
    /// here say what the true ones say.
    pub fn reflect(&self, chain: &[(GroupInfo, Vec<(String, Value)>)]) -> Result<()> {
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
                attrs: write::encode_attrs(core, inside, attrs)?,
                checked: core.setup.checksums,
            });
        }
        core.write(inside, Headroom::Normal, self.precondition(), |rows| {
            mirror::reflect(rows, &originals)
        })
    }

    /// Deletes a group with all that this realm has below it, wherever it lies by now, and mirrors
    /// below it that no name leads to.
    pub fn delete_group(&self, gid: Gid, unnamed: &[Gid]) -> Result<()> {
        let core = self.writable()?;
        let root = self.root();
        let all = || [gid].into_iter().chain(unnamed.iter().copied());
        self.delete_whole_or_in_batches(
            || Ok(Some(Member::Group(gid))),
            || {
                let inside = &core.enter()?;
                core.write(inside, Headroom::Relief, self.precondition(), |rows| {
                    all().try_for_each(|gid| mirror::delete(rows, gid, root))
                })
            },
        )
    }
}
