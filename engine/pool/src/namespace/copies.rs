//! Copies of members: into another group, another namespace, or another pool.
//!
//! A copy has the same name below the new one, the same value, layout, attributes, dimensions,
//! properties, index mode and settings, protection and further names. It is a new object: its ids,
//! owner and times are its own. All of it lies in one realm: the one into which its name falls.
//!
//! **C0**: a snapshot of the source is taken and held, so that all that is copied is of one commit,
//! and no extent of it is reused meanwhile. What is written in place is no commit: as for any
//! reader, a value that is written to meanwhile is copied as it is found. A file has its segments
//! as they are after its size was read, so that none of its bytes is missing. **C1**: space is
//! reserved in the target, and the values are copied into it, chunk by chunk as they are stored,
//! with no lock held, and flushed (P1). A hole has no row, and gets none. **C2**: one commit of the
//! target makes all of it be there. So whoever looks sees the whole copy or nothing of it; and a
//! process that dies before C2 leaves reservations of a dead lease, which anyone takes back.
//!
//! **A move to another namespace** is a copy of members that are marked as leaving (T0 of
//! `transfer`), so that nobody changes them meanwhile, and their removal (T3) once C2 is done. The
//! row of such a move names its own realm as the other one, where no receipt ever comes: who finds
//! the move of a dead process takes the marks away, and the members stay. So a move that is cut
//! short leaves them where they were, or, from C2 on, in both places; never in none. It is ended by
//! another one, which finds the copy to be the same ([`CopyPlan::difference`]).
//!
//! *Two moves in opposite directions* must not each take away what the other one counts on. Each
//! marks first and then looks whether the copy that it has found is marked; so one of them sees the
//! other, and leaves all as it is.

mod compare;
mod gather;
mod put;

use std::collections::HashMap;

use super::Namespace;
use super::retry::Retry;
use crate::transfer::Moved;
use engram_base::error::Result;
use engram_base::id::{Gid, Member};
use engram_base::scope::Scope;
use engram_catalog::rows::Row;
use engram_realm::{Realm, look_together};
use engram_records::attrs::KeyId;
use engram_records::object::Record;

/// Members of a namespace that are to be copied, as one commit has left them. While it lives, it
/// keeps their values.
pub struct CopyPlan {
    /// The realms of the snapshot.
    realms: Vec<Realm>,
    /// What is copied: groups before what is in them.
    items: Vec<CopyItem>,
    /// The names of the keys of their attributes, for each realm.
    keys: Vec<HashMap<KeyId, String>>,
}

/// A member that is to be copied.
struct CopyItem {
    member: Member,
    /// Its realm, by its place among those of the plan.
    at: usize,
    /// The group that it is in, by its place in the plan; `None` for the topmost.
    above: Option<usize>,
    name: String,
    /// Its further names among what is copied.
    further: Vec<(usize, String)>,
    /// Its record, with key numbers and places of its realm.
    row: Vec<u8>,
    /// The group's settings of the index, if it has any.
    settings: Option<Vec<u8>>,
    /// The rows of an array's chunks, or of a file's segments.
    chunks: Vec<Row>,
}

/// Ids of a copy, by those of what it is of.
pub type CopiedIds = HashMap<u64, u64>;

/// How members are copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyOptions {
    /// Whether an object replaces the object that has its name.
    pub overwrite: bool,
    /// Who sees the copy. If it is not said: its user alone, where anything of it is private; else
    /// who sees its group.
    pub scope: Option<Scope>,
}

/// A caller's part in a copy.
pub trait Copier {
    /// Hears of bytes that have been copied; an error ends the copy.
    fn copied(&mut self, nbytes: u64) -> Result<()>;
    /// Says what an importer keeps of copies, by the ids of what they are of: it is told what is
    /// kept of members that have such, and which ids copies have.
    fn origins(
        &mut self,
        ids: &CopiedIds,
        kept: Vec<(u64, Vec<u8>)>,
    ) -> Result<Vec<(u64, Vec<u8>)>>;
    /// Says what a file system keeps of a copy, by what it keeps, and whether that was another
    /// user's.
    fn properties(&self, kept: &[u8], is_another: bool) -> Vec<u8>;
}

impl CopyPlan {
    /// The member of a namespace at a path, with all that is below it.
    pub fn of(namespace: &Namespace, parent: Gid, path: &str) -> Result<CopyPlan> {
        gather::plan(namespace, parent, path)
    }

    /// What is copied: the topmost.
    pub fn root(&self) -> Member {
        self.items[0].member
    }

    /// How many objects and groups, and the bytes of their values.
    pub fn counts(&self) -> Result<Moved> {
        let mut all = Moved::default();
        for item in &self.items {
            match item.member {
                Member::Object(_) => all.objects += 1,
                Member::Group(_) => all.groups += 1,
            }
            all.bytes += Record::parse(&item.row)?.stored.nbytes();
        }
        Ok(all)
    }

    /// How many bytes are copied: those of values that lie in extents, as they are stored.
    pub fn bytes_to_copy(&self) -> Result<u64> {
        put::bytes_to_copy(self)
    }

    /// Makes the copy, under a name in a group of any namespace: all of it, or nothing.
    pub fn put(
        &self,
        to: &Namespace,
        parent: Gid,
        path: &str,
        options: CopyOptions,
        copier: &mut dyn Copier,
    ) -> Result<Member> {
        to.retry(Retry::IfMoved, || put::put(self, to, parent, path, options, copier))
    }

    /// Looks whether all of this is in another plan, too, under the same names: with the same
    /// values, and the same said of it. Returns the path of the first member that is not, and what
    /// of it differs. What is on its way elsewhere is refused: it will not be there.
    pub fn difference(&self, other: &CopyPlan) -> Result<Option<(String, &'static str)>> {
        compare::difference(self, other)
    }

    /// Refuses what was read of values if the snapshot has been given up meanwhile: then they were
    /// kept no longer, and others may have written over them.
    fn check_kept(&self) -> Result<()> {
        look_together(&self.realms, |_| Ok(()))
    }

    /// Everything that is copied.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        self.items.iter().map(|item| item.member)
    }

    /// The path of an item, from that of the topmost.
    fn path(&self, place: usize) -> String {
        let mut names = vec![self.items[place].name.as_str()];
        let mut at = self.items[place].above;
        while let Some(above) = at {
            names.push(&self.items[above].name);
            at = self.items[above].above;
        }
        names.reverse();
        names.join("/")
    }
}
