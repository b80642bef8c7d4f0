//! One tree out of the rows of several realms.
//!
//! The rules, in which "earlier" is the order private, shared, published:
//!
//! * A group is *true* in a realm where its record is no mirror. It lies where its true record
//!   says; if there is none to be seen, where the first mirror says.
//! * A name leads to what the first realm says whose row counts. The row of an object counts unless
//!   an earlier realm has the object as well (it is moving). The row of a true group counts unless
//!   an earlier realm has it true as well. The row of a mirror counts only where no realm has the
//!   group true, nor an earlier one a mirror of it.
//! * The root is every realm's. Everything said of it is said in the shared realm, if that is seen.

use std::collections::VecDeque;

use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Member, id_key};
use engram_base::name::{NAME_BYTES_MAX, Name, Path};
use engram_base::scope::Scope;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_ops::group;
use engram_ops::group::{DEPTH_MAX, GroupInfo, with_record};
use engram_ops::marks::{Going, refuse_leaving};
use engram_ops::mirror;
use engram_ops::mirror::presence;
use engram_ops::protect;
use engram_records::object::Record;

/// How many names are read at a time where some may not count.
const PART: usize = 256;

/// A group and those above it but for the root, innermost first, each with its realm.
pub(super) type Chain = Vec<(usize, GroupInfo)>;

/// The rows of every realm that is seen.
pub(super) struct Tree<'t, 'r> {
    rows: &'t mut [&'r mut dyn Rows],
    scopes: &'t [Scope],
    root: Gid,
}

/// Where a member was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberLocation {
    /// The realm, by its place among those seen.
    pub at: usize,
    /// The group that holds it.
    pub parent: Gid,
    pub member: Member,
}

/// How far along a path there is something.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// The last group that is there.
    pub group: Gid,
    /// Its realm; `None` for the root, which is every realm's.
    pub home: Option<usize>,
    /// How many components of the path, the last one apart, are not there.
    pub missing: usize,
    /// What has the name that the path ends with.
    pub taken: Option<MemberLocation>,
}

impl<'t, 'r> Tree<'t, 'r> {
    pub(super) fn new(rows: &'t mut [&'r mut dyn Rows], scopes: &'t [Scope], root: Gid) -> Self {
        Tree { rows, scopes, root }
    }

    /// The rows of one realm.
    #[expect(clippy::mut_mut, reason = "rows are looked at through a trait of sized types")]
    pub(super) fn at(&mut self, at: usize) -> &mut &'r mut dyn Rows {
        &mut self.rows[at]
    }

    /// The realm that says where a group lies and what its attributes are.
    pub(super) fn home_of_group(&mut self, gid: Gid) -> Result<Option<usize>> {
        if gid == self.root {
            let shared = self.scopes.iter().position(|scope| *scope == Scope::Shared);
            return Ok(shared.or(if self.rows.is_empty() { None } else { Some(0) }));
        }
        let mut mirror = None;
        for at in 0..self.rows.len() {
            match presence(&mut self.rows[at], gid)? {
                Some(false) => return Ok(Some(at)),
                Some(true) => mirror = mirror.or(Some(at)),
                None => {}
            }
        }
        Ok(mirror)
    }

    /// The realm of a member.
    pub(super) fn home(&mut self, member: Member) -> Result<Option<usize>> {
        let (table, key) = group::table_of(member);
        if let Member::Group(gid) = member {
            return self.home_of_group(gid);
        }
        for at in 0..self.rows.len() {
            if self.rows[at].has(table, &key)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// The realm of an object that has no name any more, and is open.
    pub(super) fn home_of_orphan(&mut self, member: Member) -> Result<Option<usize>> {
        let Member::Object(oid) = member else { return Ok(None) };
        for at in 0..self.rows.len() {
            if self.rows[at].has(Table::Orphans, &id_key(oid))? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Whether the row of a realm that leads to a member says where that is.
    pub(super) fn counts(&mut self, at: usize, member: Member) -> Result<bool> {
        Ok(self.home(member)? == Some(at))
    }

    /// The member of a group.
    pub(super) fn child(&mut self, group: Gid, name: &str) -> Result<Option<MemberLocation>> {
        for at in 0..self.rows.len() {
            if let Some(member) = group::child(&mut self.rows[at], group, name)?
                && self.counts(at, member)?
            {
                return Ok(Some(MemberLocation { at, parent: group, member }));
            }
        }
        Ok(None)
    }

    /// Another member that has the name of this one in a realm.
    pub(super) fn same_name(&mut self, at: usize, member: Member) -> Result<Option<Member>> {
        let Some(home) = self.home(member)? else { return Ok(None) };
        let read = |record: &Record<'_>| Ok((record.parent, record.name.to_owned()));
        let (parent, name) = with_record(&mut self.rows[home], member, read)?;
        let there = group::child(&mut self.rows[at], parent, &name)?;
        Ok(there.filter(|there| *there != member))
    }

    /// The mirror that has a name in one realm, though the group is elsewhere by now.
    pub(super) fn squatter(&mut self, at: usize, group: Gid, name: &str) -> Result<Option<Gid>> {
        match group::child(&mut self.rows[at], group, name)? {
            Some(Member::Group(gid)) if !self.counts(at, Member::Group(gid))? => Ok(Some(gid)),
            _ => Ok(None),
        }
    }

    /// The realms that have a group, as a mirror or true.
    pub(super) fn having(&mut self, gid: Gid) -> Result<Vec<usize>> {
        let mut having = Vec::new();
        for at in 0..self.rows.len() {
            if presence(&mut self.rows[at], gid)?.is_some() {
                having.push(at);
            }
        }
        Ok(having)
    }

    /// The realms that have something below a group: those that have the group, and those that have
    /// the mirror of another which was moved into it since, whatever that mirror says; each with
    /// the groups by which it has it.
    pub(super) fn reaching(&mut self, gid: Gid) -> Result<Vec<(usize, Vec<Gid>)>> {
        let mut reaching = Vec::new();
        for at in 0..self.rows.len() {
            let mut by = Vec::new();
            if presence(&mut self.rows[at], gid)?.is_some() {
                by.push(gid);
            } else {
                for (chain, _) in self.mirrors(at)? {
                    if chain.iter().skip(1).any(|(_, above)| above.gid == gid) {
                        by.extend(chain.first().map(|(_, mirror)| mirror.gid));
                    }
                }
            }
            if !by.is_empty() {
                reaching.push((at, by));
            }
        }
        Ok(reaching)
    }

    /// Whether a realm lacks a group of a chain, or has a mirror of it that says something else.
    pub(super) fn is_behind(&mut self, at: usize, chain: &[(usize, GroupInfo)]) -> Result<bool> {
        for (home, info) in chain {
            if *home == at {
                continue;
            }
            let row = self.rows[at].get(Table::Groups, &id_key(info.gid))?;
            let Some(row) = row else { return Ok(true) };
            let record = Record::parse(&row)?;
            if record.flags.mirror && (record.parent, record.name) != (info.parent, &info.name) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The chains of every mirror of a realm, each with whether its name leads to it.
    fn mirrors(&mut self, at: usize) -> Result<Vec<(Chain, bool)>> {
        let mut mirrors = Vec::new();
        for mirror in mirror::all(&mut self.rows[at])? {
            mirrors.push((self.chain(mirror.gid)?, mirror.named));
        }
        Ok(mirrors)
    }

    /// The mirrors of a realm of which no true group is seen, and that have a name: they are that
    /// realm's groups.
    pub(super) fn orphans(&mut self, at: usize) -> Result<Vec<Gid>> {
        let mut orphans = Vec::new();
        for mirror in mirror::all(&mut self.rows[at])? {
            if mirror.named && self.home_of_group(mirror.gid)? == Some(at) {
                orphans.push(mirror.gid);
            }
        }
        Ok(orphans)
    }

    /// Returns the mirrors to which no name leads, because another member has their name and hides
    /// them.
    pub(super) fn nameless(&mut self, at: usize) -> Result<Vec<Gid>> {
        let mut nameless = Vec::new();
        for mirror in mirror::all(&mut self.rows[at])? {
            if !mirror.named && self.home_of_group(mirror.gid)? == Some(at) {
                nameless.push(mirror.gid);
            }
        }
        Ok(nameless)
    }

    /// The group of a chain whose name another mirror of this realm has, and rightly: it is of a
    /// group that has the same name in another realm, and that one of this chain hides.
    pub(super) fn usurped(
        &mut self,
        at: usize,
        chain: &[(usize, GroupInfo)],
    ) -> Result<Option<Gid>> {
        for (_, info) in chain {
            let there = group::child(&mut self.rows[at], info.parent, &info.name)?;
            let Some(Member::Group(other)) = there.filter(|there| there.id() != info.gid) else {
                continue;
            };
            if presence(&mut self.rows[at], other)? == Some(true)
                && let Some((_, true_one)) = self.chain(other)?.first()
                && (true_one.parent, &true_one.name) == (info.parent, &info.name)
            {
                return Ok(Some(info.gid));
            }
        }
        Ok(None)
    }

    /// The chains of every mirror of a realm that says something else than the true group.
    pub(super) fn all_behind(&mut self, at: usize) -> Result<Vec<Chain>> {
        let mut behind = Vec::new();
        for (chain, _) in self.mirrors(at)? {
            if self.is_behind(at, &chain)? {
                behind.push(chain);
            }
        }
        Ok(behind)
    }

    /// The mirrors of a realm below a group that no name leads to: a member has theirs.
    pub(super) fn unnamed_below(&mut self, at: usize, gid: Gid) -> Result<Vec<Gid>> {
        let below = |chain: &Chain| chain.iter().skip(1).any(|(_, above)| above.gid == gid);
        let mirrors = self.mirrors(at)?.into_iter();
        let unnamed = mirrors.filter(|(chain, named)| !named && below(chain));
        Ok(unnamed.filter_map(|(chain, _)| Some(chain.first()?.1.gid)).collect())
    }

    /// `BusyError` where a member is on its way from one realm to another, or, if asked, anything
    /// that is below it. Its row in the one realm would outlive a change in the other.
    pub(super) fn refuse_moving(&mut self, member: Member, below: bool) -> Result<()> {
        for at in 0..self.rows.len() {
            let mut from = Vec::new();
            while let Some((mut key, row)) = self.rows[at].first_from(Table::Leaving, &from)? {
                let (_, going) = Going::parse(&key, &row)?;
                let met = going.member == member
                    || (below && self.is_below(at, going.member, member.id())?);
                if met {
                    refuse_leaving(&mut self.rows[at], going.member.id())?;
                }
                key.push(0);
                from = key;
            }
        }
        Ok(())
    }

    /// Whether anything is read-only, in any realm.
    fn has_read_only(&mut self) -> Result<bool> {
        for rows in self.rows.iter_mut() {
            if rows.has_read_only()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The nearest group above a member that is read-only, whichever realm has that.
    pub(super) fn read_only_above(&mut self, member: Member) -> Result<Option<Gid>> {
        if !self.has_read_only()? || member == Member::Group(self.root) {
            return Ok(None);
        }
        let Some(home) = self.home(member)? else { return Ok(None) };
        let parent = with_record(&mut self.rows[home], member, |record| Ok(record.parent))?;
        self.read_only_from(parent)
    }

    /// The nearest group from this one upwards that is read-only; the root is so in the shared
    /// realm.
    pub(super) fn read_only_from(&mut self, gid: Gid) -> Result<Option<Gid>> {
        if !self.has_read_only()? {
            return Ok(None);
        }
        let mut above: Vec<(usize, Gid)> =
            self.chain(gid)?.into_iter().map(|(home, info)| (home, info.gid)).collect();
        above.extend(self.home_of_group(self.root)?.map(|home| (home, self.root)));
        for (home, gid) in above {
            if self.rows[home].has(Table::ReadOnly, &id_key(gid))? {
                return Ok(Some(gid));
            }
        }
        Ok(None)
    }

    /// Whether changes of a member are refused, by itself or by a group above it.
    pub(super) fn is_read_only(&mut self, member: Member) -> Result<bool> {
        // Of what is gone, the first realm tells.
        let home = self.home(member)?.unwrap_or(0);
        Ok(protect::holds(&mut self.rows[home], member)? || self.read_only_above(member)?.is_some())
    }

    /// Refuses to change a member below a read-only group, whichever realm has that. The member's
    /// own realm asks what the member says of itself, in the commit that changes it.
    pub(super) fn refuse_read_only(&mut self, member: Member) -> Result<()> {
        let Some(above) = self.read_only_above(member)? else { return Ok(()) };
        let path = self.path_of(member)?;
        Err(protect::refused_from_above(&path, false, &self.path_of(Member::Group(above))?))
    }

    /// Refuses a new name in a group that is read-only, or below one.
    pub(super) fn refuse_new(&mut self, group: Gid, name: &str) -> Result<()> {
        let Some(above) = self.read_only_from(group)? else { return Ok(()) };
        Err(protect::refused_from_above(name, true, &self.path_of(Member::Group(above))?))
    }

    /// Whether a group is on its way from one realm to another.
    pub(super) fn is_moving(&mut self, gid: Gid) -> Result<bool> {
        for rows in self.rows.iter_mut() {
            if rows.has(Table::Leaving, &id_key(gid))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a member of a realm lies below a group.
    fn is_below(&mut self, at: usize, member: Member, gid: Gid) -> Result<bool> {
        let (table, key) = group::table_of(member);
        let Some(row) = self.rows[at].get(table, &key)? else { return Ok(false) };
        let parent = Record::parse(&row)?.parent;
        Ok(parent == gid || self.chain(parent)?.iter().any(|(_, above)| above.gid == gid))
    }

    fn start(&self, from: Gid, path: &Path<'_>) -> Gid {
        if path.absolute { self.root } else { from }
    }

    /// The member at a path.
    pub(super) fn resolve(&mut self, from: Gid, path: &Path<'_>) -> Result<Option<MemberLocation>> {
        let mut group = self.start(from, path);
        for name in &path.parents {
            match self.child(group, name.as_str())? {
                Some(MemberLocation { member: Member::Group(gid), .. }) => group = gid,
                _ => return Ok(None),
            }
        }
        self.child(group, path.last.as_str())
    }

    /// How far there is something along a path on which something is to be made.
    pub(super) fn reach(&mut self, from: Gid, path: &Path<'_>) -> Result<Reach> {
        let mut group = self.start(from, path);
        self.require(group)?;
        let mut missing: &[Name<'_>] = &path.parents;
        while let Some((name, rest)) = missing.split_first() {
            match self.child(group, name.as_str())?.map(|place| place.member) {
                Some(Member::Group(gid)) => (group, missing) = (gid, rest),
                Some(Member::Object(_)) => fail!(
                    Exists,
                    "{:?} is an object, not a group: nothing can be made below it",
                    name.as_str()
                ),
                None => break,
            }
        }
        let taken = if missing.is_empty() { self.child(group, path.last.as_str())? } else { None };
        let home = if group == self.root { None } else { self.home_of_group(group)? };
        Ok(Reach { group, home, missing: missing.len(), taken })
    }

    /// Refuses a group that is gone.
    pub(super) fn require(&mut self, gid: Gid) -> Result<()> {
        if gid != self.root && self.home_of_group(gid)?.is_none() {
            fail!(NotFound, "the group {gid:#x} was deleted: open it again by its path");
        }
        Ok(())
    }

    /// A group, and those above it but for the root, innermost first, each with its realm.
    pub(super) fn chain(&mut self, gid: Gid) -> Result<Chain> {
        let (mut chain, mut at) = (Vec::new(), gid);
        while at != self.root && at != 0 {
            let Some(home) = self.home_of_group(at)? else {
                fail!(NotFound, "the group {at:#x} was deleted: open it again by its path")
            };
            let read = |record: &Record<'_>| Ok(group::info(at, record));
            let info = with_record(&mut self.rows[home], Member::Group(at), read)?;
            at = info.parent;
            chain.push((home, info));
            if chain.len() > DEPTH_MAX as usize {
                fail!(Corrupt, "the groups above {gid:#x} form a loop: run verify");
            }
        }
        Ok(chain)
    }

    /// The path of a member, without a leading slash; empty for the root.
    pub(super) fn path_of(&mut self, member: Member) -> Result<String> {
        if member == Member::Group(self.root) {
            return Ok(String::new());
        }
        // Of what is gone, the first realm tells.
        let home = self.home(member)?.unwrap_or(0);
        let read = |record: &Record<'_>| Ok((record.parent, record.name.to_owned()));
        let (parent, name) = with_record(&mut self.rows[home], member, read)?;
        let above = self.chain(parent)?;
        let mut path = String::new();
        for (_, info) in above.iter().rev() {
            path.push_str(&info.name);
            path.push('/');
        }
        path.push_str(&name);
        Ok(path)
    }

    /// Up to `limit` members of a group after a name, in byte order of their names.
    pub(super) fn list(
        &mut self,
        gid: Gid,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, MemberLocation)>> {
        if after.is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            fail!(InvalidName, "a listing cannot go on after a name of over 255 bytes");
        }
        self.require(gid)?;
        let part = limit.min(PART);
        let mut streams: Vec<Stream> = Vec::new();
        for at in 0..self.rows.len() {
            let done = presence(&mut self.rows[at], gid)?.is_none();
            let after = after.map(str::to_owned);
            streams.push(Stream { waiting: VecDeque::new(), after, done });
        }
        let mut found: Vec<(String, MemberLocation)> = Vec::new();
        while found.len() < limit {
            for (at, stream) in streams.iter_mut().enumerate() {
                stream.fill(&mut self.rows[at], gid, part)?;
            }
            let first = streams.iter().filter_map(Stream::first).min();
            let Some(name) = first.map(str::to_owned) else { break };
            let mut place = None;
            for (at, stream) in streams.iter_mut().enumerate() {
                if stream.first() != Some(&name) {
                    continue;
                }
                let (_, member) = stream.waiting.pop_front().expect("it has a first");
                if place.is_none() && self.counts(at, member)? {
                    place = Some(MemberLocation { at, parent: gid, member });
                }
            }
            if let Some(place) = place {
                found.push((name, place));
            }
        }
        Ok(found)
    }
}

/// The names of one realm, some at a time.
struct Stream {
    waiting: VecDeque<(String, Member)>,
    after: Option<String>,
    done: bool,
}

impl Stream {
    fn first(&self) -> Option<&str> {
        self.waiting.front().map(|(name, _)| name.as_str())
    }

    fn fill(&mut self, rows: &mut dyn Rows, gid: Gid, part: usize) -> Result<()> {
        if self.done || !self.waiting.is_empty() {
            return Ok(());
        }
        self.waiting = group::members(rows, gid, self.after.as_deref(), part)?.into();
        self.done = self.waiting.len() < part;
        if let Some((last, _)) = self.waiting.back() {
            self.after = Some(last.clone());
        }
        Ok(())
    }
}
