//! What a move takes along: the members below its roots, and the groups above them.

use engram_realm::keys;
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Member, NameKey, id_key, split_name_key};
use engram_catalog::rows::{Row, Rows};
use engram_catalog::{ReadTxn, Table};
use engram_ops::chunk_rows;
use engram_ops::group;
use engram_ops::group::DEPTH_MAX;
use engram_ops::marks::Going;
use engram_realm::Core;
use engram_records::attrs;
use engram_records::attrs::KeyId;
use engram_records::extent::Extent;
use engram_records::object::Record;

/// A member's record, as it was where it comes from.
pub(crate) struct Passenger {
    pub going: Going,
    /// The record, with its key numbers.
    pub row: Vec<u8>,
    /// The group's settings of the index, if it has any.
    pub settings: Option<Vec<u8>>,
    /// Rows of a chunked array's chunks, or of a file's segments.
    pub chunks: Vec<Row>,
}

/// A value that is copied: the key of its row, its extent, and its length.
pub(crate) type Valued<'p> = (Cow<'p, [u8]>, Extent, u64);

impl Passenger {
    /// What of it lies in extents: its value, or those of its chunks.
    pub(crate) fn values(&self) -> Result<Vec<Valued<'_>>> {
        let own = id_key(self.going.member.id()).to_vec();
        let mut values = Vec::new();
        if let Some((extent, nbytes)) = Record::parse(&self.row)?.stored_extent() {
            values.push((own.into(), extent, nbytes));
        }
        for (key, row) in &self.chunks {
            if let Some((extent, nbytes)) = chunk_rows::parse(row)?.stored_extent() {
                values.push((key.as_slice().into(), extent, nbytes));
            }
        }
        Ok(values)
    }
}

/// What is read of a source before anything is copied.
pub(crate) struct MovePlan {
    /// What goes, groups before what is in them.
    pub passengers: Vec<Passenger>,
    /// The groups above the roots that stay, the namespace's root not among them, topmost first.
    pub above: Vec<(Gid, Vec<u8>)>,
    /// The keys of their attributes.
    pub keys: HashMap<KeyId, String>,
}

/// The roots and all that is below them, groups before what is in them. A member below another root
/// is taken once.
pub(crate) fn gather(rows: &mut dyn Rows, root: Gid, roots: &[Member]) -> Result<Vec<Going>> {
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    for member in roots {
        if *member == Member::Group(root) {
            fail!(Argument, "the root group belongs to every scope: name what is in it");
        }
        take(rows, *member, &mut seen, &mut all)?;
    }
    // A root may lie below one that came after it; the members above it go first all the same.
    all.sort_by_key(|going: &Going| going.depth);
    Ok(all)
}

fn take(
    rows: &mut dyn Rows,
    member: Member,
    seen: &mut HashSet<u64>,
    all: &mut Vec<Going>,
) -> Result<()> {
    let mut open = vec![(member, depth_of(rows, member)?)];
    while let Some((member, depth)) = open.pop() {
        if !seen.insert(member.id()) {
            continue;
        }
        let Member::Group(gid) = member else {
            all.push(Going { member, mirror: false, depth });
            continue;
        };
        let mirror = group::with_record(rows, member, |record| Ok(record.flags.mirror))?;
        all.push(Going { member, mirror, depth });
        let mut from = NameKey::new(gid, "").as_bytes().to_vec();
        while let Some((mut key, row)) = rows.first_from(Table::Names, &from)? {
            if split_name_key(&key)?.0 != gid {
                break;
            }
            open.push((Member::from_row(&row)?, depth + 1));
            key.push(0);
            from = key;
        }
    }
    Ok(())
}

/// How many groups are above a member.
fn depth_of(rows: &mut dyn Rows, member: Member) -> Result<u32> {
    let mut above = group::with_record(rows, member, |record| Ok(record.parent))?;
    for depth in 0..DEPTH_MAX {
        if above == 0 {
            return Ok(depth);
        }
        above = group::parent_of_group(rows, above)?;
    }
    fail!(Corrupt, "the groups above {:#x} form a loop: run verify", member.id())
}

impl MovePlan {
    /// Reads what goes; nobody changes it any more.
    pub(crate) fn read(core: &Core, txn: &ReadTxn<'_>, going: &[Going]) -> Result<MovePlan> {
        let mut plan = MovePlan { passengers: Vec::new(), above: Vec::new(), keys: HashMap::new() };
        let goes: HashSet<u64> = going.iter().map(|going| going.member.id()).collect();
        let mut known: HashSet<Gid> = goes.iter().copied().chain([core.setup.root()]).collect();
        for going in going {
            let (table, key) = group::table_of(going.member);
            let Some(row) = txn.get(table, &key)? else {
                fail!(NotFound, "{:#x} was deleted meanwhile: list again", going.member.id())
            };
            let record = Record::parse(row)?;
            plan.learn(core, txn, &record)?;
            if !goes.contains(&record.parent) {
                plan.climb(core, txn, record.parent, &mut known)?;
            }
            let settings = match table {
                Table::Groups => txn.get(Table::IndexSettings, &key)?.map(<[u8]>::to_vec),
                _ => None,
            };
            let mut chunks = Vec::new();
            if record.has_parts() {
                let oid = going.member.id();
                let mut from = id_key(oid).to_vec();
                while let Some(chunk) = chunk_rows::next(&mut txn.rows(), oid, &mut from)? {
                    chunks.push(chunk);
                }
            }
            plan.passengers.push(Passenger { going: *going, row: row.to_vec(), settings, chunks });
        }
        Ok(plan)
    }

    /// The groups from `gid` up that are not known yet.
    fn climb(
        &mut self,
        core: &Core,
        txn: &ReadTxn<'_>,
        mut gid: Gid,
        known: &mut HashSet<Gid>,
    ) -> Result<()> {
        let mut chain = Vec::new();
        while known.insert(gid) {
            let Some(row) = txn.get(Table::Groups, &id_key(gid))?.map(<[u8]>::to_vec) else {
                fail!(Corrupt, "there is no group {gid:#x} above a member of it: run verify")
            };
            let record = Record::parse(&row)?;
            self.learn(core, txn, &record)?;
            let above = record.parent;
            chain.push((gid, row));
            gid = above;
        }
        chain.reverse();
        self.above.extend(chain);
        Ok(())
    }

    fn learn(&mut self, core: &Core, txn: &ReadTxn<'_>, record: &Record<'_>) -> Result<()> {
        for entry in attrs::entries(record.attrs) {
            let key = entry?.key;
            if let Entry::Vacant(place) = self.keys.entry(key) {
                place.insert(keys::key_name_at(core, txn, key)?.to_string());
            }
        }
        Ok(())
    }

    /// All that is copied, in order.
    pub(crate) fn values(&self) -> Result<Vec<Valued<'_>>> {
        let mut values = Vec::new();
        for passenger in &self.passengers {
            values.append(&mut passenger.values()?);
        }
        Ok(values)
    }

    /// How many bytes of values lie in extents, and how many objects and groups go.
    pub(crate) fn counts(&self) -> Result<(u64, u64, u64)> {
        let (mut objects, mut groups, mut bytes) = (0, 0, 0);
        for passenger in &self.passengers {
            let record = Record::parse(&passenger.row)?;
            match passenger.going.member {
                Member::Object(_) => objects += 1,
                Member::Group(_) if passenger.going.mirror => {}
                Member::Group(_) => groups += 1,
            }
            bytes += record.stored.nbytes();
        }
        Ok((objects, groups, bytes))
    }
}
