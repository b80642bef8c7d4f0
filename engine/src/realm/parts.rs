//! Deleting a group where there is no room to delete it in one commit.
//!
//! A commit copies each page that it changes, and LMDB reuses none before the next. A group of
//! thousands lies in more pages than the catalog's reserve has (P5), so on a mount that is full to
//! the last block its deletion finds no room, though it is what would make some. Then its members
//! go first, the deepest before, some in each commit, and so few as find room: what one commit
//! frees, a later one uses. The group goes last. A death in between leaves the members that were
//! still there; nothing was acknowledged by then.
//!
//! A chunked array of thousands of chunks goes likewise: chunks first, the array last. Until then
//! it has zeros where chunks have gone.
//!
//! A batch is one commit, and stays that: in it there is no such way out.

use crate::batch;
use crate::catalog::Headroom;
use crate::chunked;
use crate::error::{Kind, Result};
use crate::group;
use crate::id::Member;
use crate::protect;
use crate::realm::Realm;
use crate::realm::expects::Expects;

/// So many members go in one commit, if there is room for that.
const MOST: usize = 256;

impl Realm {
    /// Deletes a member by `whole`, in one commit; where that finds no room, in parts.
    pub(super) fn whole_or_in_parts(
        &self,
        member: impl FnOnce() -> Result<Option<Member>>,
        whole: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let refused = match whole() {
            Err(error) if error.kind() == Kind::PoolFull && !batch::runs(&self.core) => error,
            done => return done,
        };
        let Some(member) = member()? else { return Err(refused) };
        let mut most = MOST;
        loop {
            match self.thin(member, most) {
                Ok(0) => return whole(),
                Ok(_) => most = MOST.min(most * 2),
                Err(error) if error.kind() == Kind::PoolFull && most > 1 => most /= 2,
                Err(error) => return Err(error),
            }
        }
    }

    fn thin(&self, member: Member, most: usize) -> Result<usize> {
        let inside = &self.core.enter()?;
        let gone = self.core.commit(inside, Headroom::Relief, |rows| {
            Expects::check(self.expects(), rows)?;
            protect::refuse_deletion(rows, member)?;
            match member {
                Member::Group(gid) => group::thin(rows, gid, most),
                Member::Object(oid) => chunked::rows::remove_all(rows, oid, most),
            }
        })?;
        self.core.after_commit(inside);
        Ok(gone)
    }
}
