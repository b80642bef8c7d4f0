//! Maintenance: what is done to the index between commits, one step in a transaction.
//!
//! A commit only ever adds to the tail or the queue, or marks a position dead. Everything else is a
//! step of its own, taken after a commit by the process that made it, under the writer lock, where
//! it looks again at what is due: another process may have done it. Each step leaves a whole index,
//! so that dying between two leaves work to do, and nothing to mend.
//!
//! A step holds the writer lock, and others wait for it. So it does no more than a thread does in
//! some milliseconds, and leaves the rest to the next one: [`STEP_BYTES`] of records or as many
//! objects as a segment has, [`DROPPED_MAX`] segments that go, the entries of runs of
//! [`MERGED_SEGMENTS`] segments. Bounds count what is done, and follow from what that was measured
//! to cost: 1 to 2 us an object and 3 ns a byte of its record where it is read, a quarter of that
//! where columns are copied.
//!
//! 1. *Seal* the tail once it has `tail_rows`, or all of it where nothing else is to do.
//! 2. *Drop* segments without live rows, families that were merged away, those of deleted tags,
//!    and those to which nothing belongs.
//! 3. *Merge* runs: every rewrite of segments adds runs, and a query looks into each.
//! 4. *Unite* small segments of a family: all of them, once they fill a segment or are
//!    [`SMALL_MAX`], or [`TINY_MAX`] of them are tiny. So each object is read a few times on its
//!    way into a full segment.
//! 5. *Rewrite* the objects of segments that are more than half dead, older than their family's
//!    groups, or of a family that was split or merged: of several segments together. Objects that
//!    have their new place are dead in the old one, which goes with the last of them. Where a
//!    family was split into many, new objects gather in it until each leaf gets some.
//! 6. *Regroup* the attributes of a family whose keys are queried together, *split* a family with
//!    too many objects or where a setting or a query says, *take back* a split whose halves have
//!    shrunk; none of it where groups are fixed.
//! 7. *Count* anew what a family's objects have, once most of those that came have gone (see
//!    `renew`).

use std::collections::{BTreeMap, HashMap, HashSet};

use super::directory::{self, SegmentEntry};
use super::family::{Families, Family};
use super::hints::{HINTED_MAX, Hint, split_places};
use super::renew;
use super::seal::{self, COLUMNS_USUAL, Origin, seal, settings_of};
use super::settings::{self, Effective};
use super::split;
use super::tail::{self, StepRoom};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Gid, id_key};
use engram_catalog::{Table, WriteTxn};
use engram_columns::column_key::ColumnKey;
use engram_columns::runs;
use engram_columns::segment::GroupKind;

/// How many small segments a family has at most before they are united.
const SMALL_MAX: usize = 16;
/// How many of less than so many rows.
const TINY_MAX: usize = 4;
const TINY_ROWS: usize = 64;
/// Objects that one step reads, where a segment has fewer.
const STEP_ROWS: usize = 1024;
/// Bytes of records that one step reads, about.
const STEP_BYTES: usize = 2 << 20;
/// Full segments of entries of runs that one step merges, at 0.1 us an entry.
const MERGED_SEGMENTS: usize = 8;
/// How many segments without live rows one step drops.
const DROPPED_MAX: usize = 64;
/// The most families that splits may make of one tag.
const FAMILIES_MAX: usize = 1024;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many objects went from the tail or the queue into segments.
    Sealed(usize),
    /// Segments that have no live position any more are gone.
    Dropped,
    /// Small segments of a family became one.
    United,
    /// Objects of segments were written anew: many positions there were dead, or belong elsewhere,
    /// or the columns lie in other groups.
    Rewritten,
    /// A family was split by value.
    Split,
    /// A split of a family was taken back.
    TakenBack,
    /// A family's keys were put into other groups.
    Regrouped,
    /// Runs of sorted values became one.
    MergedRuns,
    /// A family has forgotten what its objects had that are gone.
    Recounted,
}

/// Seals a part of the tail, if it is as long as it may be, or of any length if `all` is to be.
pub fn seal_tail(txn: &mut WriteTxn<'_>, root: Gid, all: bool) -> Result<Option<Step>> {
    let settings = settings_of(txn, root, 0)?;
    let waiting = txn.entries(Table::IndexTail)? + tail::spans(txn)?;
    if waiting == 0 || waiting < settings.tail_rows as u64 && !all {
        return Ok(None);
    }
    let oids = tail::take(txn, settings.segment_rows.max(STEP_ROWS), STEP_BYTES)?;
    step!("index.tail-taken");
    let sealed = seal(txn, root, &oids, Origin::New)?;
    step!("index.sealed");
    Ok((sealed > 0).then_some(Step::Sealed(sealed)))
}

/// All that is known of the segments of one tag's families.
struct TagFamilies {
    families: Families,
    settings: Effective,
    segments: BTreeMap<u32, Vec<SegmentEntry>>,
}

/// How many rows of a segment are dead.
fn dead_rows(txn: &WriteTxn<'_>) -> Result<HashMap<u32, u32>> {
    let mut dead = HashMap::new();
    let mut cursor = txn.seek(Table::IndexDead, &[])?;
    while let Some((key, bits)) = cursor.next()? {
        let Ok(segment) = <[u8; 4]>::try_from(key) else {
            fail!(Corrupt, "a key of `index_dead` has {} bytes", key.len())
        };
        let count = bits.iter().map(|byte| byte.count_ones()).sum();
        dead.insert(u32::from_be_bytes(segment), count);
    }
    Ok(dead)
}

/// The tag of every family.
fn tags(txn: &WriteTxn<'_>) -> Result<BTreeMap<u32, Gid>> {
    let mut tags = BTreeMap::new();
    let mut cursor = txn.seek(Table::IndexFamilies, &[])?;
    while let Some((key, row)) = cursor.next()? {
        let family = Family::parse(key, row)?;
        tags.insert(family.id, family.tag);
    }
    Ok(tags)
}

/// Does one thing that is due, if any; or that can be done at all.
pub fn step(
    txn: &mut WriteTxn<'_>,
    root: Gid,
    hints: &[Hint],
    thorough: bool,
) -> Result<Option<Step>> {
    let dead = dead_rows(txn)?;
    let all = directory::all(txn)?;
    let gone = all.iter().filter(|entry| dead.get(&entry.segment) == Some(&entry.rows));
    let gone: Vec<u32> = gone.map(|entry| entry.segment).take(DROPPED_MAX).collect();
    if !gone.is_empty() {
        gone.iter().try_for_each(|segment| seal::remove(txn, *segment))?;
        step!("index.dropped");
        return Ok(Some(Step::Dropped));
    }
    // Before anything that writes new runs: a point query looks into every one there is.
    let rows = settings_of(txn, root, 0)?.segment_rows;
    if runs::merge_some(txn, MERGED_SEGMENTS * rows)? {
        return Ok(Some(Step::MergedRuns));
    }
    let tags = tags(txn)?;
    let mut by_tag: BTreeMap<Gid, BTreeMap<u32, Vec<SegmentEntry>>> = BTreeMap::new();
    for tag in tags.values() {
        by_tag.entry(*tag).or_default();
    }
    for entry in all {
        let Some(tag) = tags.get(&entry.family) else {
            fail!(Corrupt, "segment {} is of the unknown family {}", entry.segment, entry.family)
        };
        by_tag.entry(*tag).or_default().entry(entry.family).or_default().push(entry);
    }
    for (tag, segments) in by_tag {
        let settings = settings_of(txn, root, tag)?;
        let families = Families::load(txn, tag)?;
        let mut known = TagFamilies { families, settings, segments };
        let mut done = known.step(txn, root, &dead, hints)?;
        // The last of all: what a family has is counted where its objects lie in its own segments.
        if done.is_none() && known.recount(txn, thorough)? {
            done = Some(Step::Recounted);
        }
        known.families.save(txn)?;
        if done.is_some() {
            return Ok(done);
        }
    }
    Ok(None)
}

impl TagFamilies {
    fn step(
        &mut self,
        txn: &mut WriteTxn<'_>,
        root: Gid,
        dead: &HashMap<u32, u32>,
        hints: &[Hint],
    ) -> Result<Option<Step>> {
        if self.drop_families(txn)? || self.drop_deleted_tag(txn)? {
            step!("index.families-dropped");
            return Ok(Some(Step::Dropped));
        }
        if self.settings.policy != settings::Policy::Fixed
            && renew::drop_empty(&mut self.families, txn, &self.segments)?
        {
            step!("index.families-emptied");
            return Ok(Some(Step::Dropped));
        }
        let ids: Vec<u32> = self.families.all.keys().copied().collect();
        for id in &ids {
            let tag = self.families.tag;
            let origin = Origin::Family { tag, id: *id };
            let due = self.due(*id, dead)?;
            if !due.is_empty() {
                let rows = self.settings.segment_rows.max(STEP_ROWS);
                let room = StepRoom::new(rows, STEP_BYTES);
                rewrite(txn, root, &due, origin, room)?;
                step!("index.rewritten");
                return Ok(Some(Step::Rewritten));
            }
            let small = self.small(txn, *id, dead)?;
            if !small.is_empty() {
                if !seal::unite(txn, root, tag, *id, &small)? {
                    // From records, which takes longer: two are fewer than before, too.
                    rewrite(txn, root, &small[..2], origin, StepRoom::ENDLESS)?;
                }
                step!("index.united");
                return Ok(Some(Step::United));
            }
        }
        for id in ids {
            if self.settings.policy == settings::Policy::Fixed {
                continue; // whatever queries say
            }
            if self.regroup(txn, id, hints)? {
                step!("index.regrouped");
                return Ok(Some(Step::Regrouped));
            }
            if self.take_back(id, dead)? {
                step!("index.taken-back");
                return Ok(Some(Step::TakenBack));
            }
            if self.split_on_setting(txn, id)?
                || self.split_on_hint(txn, id, dead, hints)?
                || self.split(txn, id, dead)?
            {
                step!("index.split");
                return Ok(Some(Step::Split));
            }
        }
        Ok(None)
    }

    /// Has a family forget what its objects had that are gone, but where groups are fixed.
    fn recount(&mut self, txn: &WriteTxn<'_>, thorough: bool) -> Result<bool> {
        if self.settings.policy == settings::Policy::Fixed
            || !renew::recount(&mut self.families, txn, &self.segments, thorough)?
        {
            return Ok(false);
        }
        step!("index.recounted");
        Ok(true)
    }

    fn segments(&self, family: u32) -> &[SegmentEntry] {
        self.segments.get(&family).map_or(&[], Vec::as_slice)
    }

    /// Forgets families that were merged away and have no segments, nor children with some.
    fn drop_families(&mut self, txn: &mut WriteTxn<'_>) -> Result<bool> {
        let idle = |family: &&Family| {
            let pointed = |other: &Family| {
                let split = other.split.as_ref();
                other.into == family.id
                    || split.is_some_and(|s| s.low == family.id || s.high == family.id)
            };
            family.into != 0
                && self.segments(family.id).is_empty()
                && !self.families.all.values().any(pointed)
        };
        let idle: Vec<u32> = self.families.all.values().filter(idle).map(|f| f.id).collect();
        idle.iter().try_for_each(|id| self.families.remove(txn, *id))?;
        Ok(!idle.is_empty())
    }

    /// Forgets the families of a tag that was deleted, once its last object has gone.
    fn drop_deleted_tag(&mut self, txn: &mut WriteTxn<'_>) -> Result<bool> {
        let tag = self.families.tag;
        if tag == 0 || !self.segments.is_empty() || txn.get(Table::Groups, &id_key(tag))?.is_some()
        {
            return Ok(false);
        }
        let all: Vec<u32> = self.families.all.keys().copied().collect();
        all.iter().try_for_each(|id| self.families.remove(txn, *id))?;
        Ok(!all.is_empty())
    }

    /// How many objects of a family are sealed.
    fn rows(&self, id: u32, dead: &HashMap<u32, u32>) -> u64 {
        self.segments(id).iter().map(|entry| live(entry, dead) as u64).sum()
    }

    /// The segments of a family whose objects are to be written anew, the oldest first.
    fn due(&self, id: u32, dead: &HashMap<u32, u32>) -> Result<Vec<u32>> {
        let family = self.families.get(id)?;
        let gathers = family.into == 0 && family.split.is_some() && family.parent == 0;
        let few = || self.families.are_few(id, self.rows(id, dead), self.settings.leaf_rows());
        let stays = family.is_leaf() || gathers && few()?;
        let is_due = |entry: &&SegmentEntry| {
            !stays
                || family.is_leaf() && entry.segment < family.renewed
                || live(entry, dead) * 2 < entry.rows as usize
        };
        Ok(self.segments(id).iter().filter(is_due).map(|entry| entry.segment).collect())
    }

    /// The small segments of a family that are to become one, if they are.
    fn small(&self, txn: &WriteTxn<'_>, id: u32, dead: &HashMap<u32, u32>) -> Result<Vec<u32>> {
        let live = |entry: &SegmentEntry| live(entry, dead);
        let full = self.settings.segment_rows;
        let mut small = Vec::new();
        for entry in self.segments(id).iter().filter(|entry| live(entry) * 2 <= full) {
            let columns = columns_of(txn, entry.segment)?;
            // One of many columns is as large as one of many rows.
            if columns.len() * 2 <= COLUMNS_USUAL {
                small.push((live(entry), entry.segment, columns));
            }
        }
        let tiny = small.iter().filter(|(live, ..)| *live < TINY_ROWS).count();
        let total: usize = small.iter().map(|(live, ..)| live).sum();
        let many = small.len() >= SMALL_MAX || tiny >= TINY_MAX || total >= full;
        if small.len() < 2 || !many {
            return Ok(Vec::new());
        }
        // The smallest first, up to a full segment; at least two.
        small.sort_unstable_by_key(|(live, segment, _)| (*live, *segment));
        let (mut rows, mut columns, mut taken) = (0, HashSet::new(), Vec::new());
        for (live, segment, own) in small {
            columns.extend(own);
            rows += live;
            if rows > full || columns.len() > COLUMNS_USUAL {
                break;
            }
            taken.push(segment);
        }
        Ok(if taken.len() > 1 { taken } else { Vec::new() })
    }

    /// Brings keys that are queried together into one attribute group. One look moves a key once at
    /// most: what two queries want of it would never come to an end.
    fn regroup(&mut self, txn: &WriteTxn<'_>, id: u32, hints: &[Hint]) -> Result<bool> {
        if !self.families.get(id)?.is_leaf() {
            return Ok(false);
        }
        let most = self.settings.attributes_per_group;
        let mut moved: Vec<ColumnKey> = Vec::new();
        for hint in hints {
            let Hint::Merge(keys) = hint else { continue };
            let mut family = self.families.get(id)?.clone();
            let in_columns = |key: &ColumnKey| {
                let groups = family.groups.iter().filter(|g| g.kind == GroupKind::Columns);
                groups.into_iter().any(|group| group.columns.contains(key))
            };
            let mut here = keys.clone();
            here.retain(in_columns);
            let one_group = (2..=most).contains(&here.len());
            if !one_group || here.iter().any(|key| moved.contains(key)) {
                continue;
            }
            if family.bring_together(&here, most) {
                family.merges += 1;
                let next =
                    engram_catalog::meta::meta_u64(txn.get(Table::Meta, seal::NEXT_SEGMENT)?)?;
                family.renewed = next as u32;
                *self.families.change(id)? = family;
                return Ok(true);
            }
            moved.extend(here);
        }
        Ok(false)
    }

    /// Whether there may be two more families.
    fn may_split(&self, id: u32) -> Result<bool> {
        let room = self.families.all.len() + 2 <= FAMILIES_MAX;
        Ok(room && self.families.get(id)?.is_leaf() && !self.segments(id).is_empty())
    }

    /// Splits a leaf where its tag's settings say, so that what was there before them lies so, too.
    fn split_on_setting(&mut self, txn: &mut WriteTxn<'_>, id: u32) -> Result<bool> {
        let Some((key, value)) = &self.settings.split_on else { return Ok(false) };
        if !self.may_split(id)? {
            return Ok(false);
        }
        let Some(key) = split::known_key(txn, key)? else { return Ok(false) };
        for at in split_places(value) {
            if self.families.parts(id, key, &at)?
                && split::parted(txn, key, &at, self.segments(id))?.leaves(1)
            {
                split::split(&mut self.families, txn, id, key, at, false)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Splits a family where a query has asked for it, if that leaves halves of some size.
    fn split_on_hint(
        &mut self,
        txn: &mut WriteTxn<'_>,
        id: u32,
        dead: &HashMap<u32, u32>,
        hints: &[Hint],
    ) -> Result<bool> {
        if hints.is_empty() || !self.may_split(id)? {
            return Ok(false);
        }
        let asked = |family: &&Family| family.split.as_ref().is_some_and(|split| split.hinted);
        if self.families.all.values().filter(asked).count() >= HINTED_MAX {
            return Ok(false);
        }
        let (family, segments) = (self.families.get(id)?, self.segments(id));
        let has = |key: &&ColumnKey| family.keys.binary_search_by_key(*key, |(k, _)| *k).is_ok();
        let least = self.settings.hinted_rows();
        for hint in hints {
            let place = match hint {
                Hint::SplitOn(key, at) if has(&key) && self.families.parts(id, *key, at)? => {
                    let parted = split::parted(txn, *key, at, segments)?;
                    parted.leaves(least).then(|| (*key, at.clone()))
                }
                Hint::SplitAbove(keys, most)
                    if self.rows(id, dead) > self.settings.split_rows(*most) =>
                {
                    let keys: Vec<ColumnKey> = keys.iter().filter(has).copied().collect();
                    split::best(txn, &keys, segments, self.settings.child_rows())?
                }
                _ => None,
            };
            if let Some((key, at)) = place {
                split::split(&mut self.families, txn, id, key, at, true)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn split(&mut self, txn: &mut WriteTxn<'_>, id: u32, dead: &HashMap<u32, u32>) -> Result<bool> {
        let most = self.settings.split_rows(self.settings.split_threshold);
        if self.rows(id, dead) <= most || !self.may_split(id)? {
            return Ok(false);
        }
        let family = self.families.get(id)?;
        let keys: Vec<ColumnKey> = family.keys.iter().map(|(key, _)| *key).collect();
        let least = self.settings.child_rows();
        let Some((key, at)) = split::best(txn, &keys, self.segments(id), least)? else {
            return Ok(false);
        };
        split::split(&mut self.families, txn, id, key, at, false)?;
        Ok(true)
    }

    fn take_back(&mut self, id: u32, dead: &HashMap<u32, u32>) -> Result<bool> {
        let family = self.families.get(id)?;
        let Some(split) = &family.split else { return Ok(false) };
        let (low, high) = (self.families.get(split.low)?, self.families.get(split.high)?);
        let busy = !low.is_leaf() || !high.is_leaf();
        let rows = self.rows(low.id, dead) + self.rows(high.id, dead) + self.rows(id, dead);
        let few = if split.hinted {
            rows < self.settings.hinted_rows()
        } else {
            rows * 4 < self.settings.split_rows(self.settings.split_threshold)
        };
        if busy || !few || self.settings.split_on.is_some() {
            return Ok(false);
        }
        split::unsplit(&mut self.families, id)?;
        Ok(true)
    }
}

/// How many rows of a segment are live.
fn live(entry: &SegmentEntry, dead: &HashMap<u32, u32>) -> usize {
    entry.rows.saturating_sub(dead.get(&entry.segment).copied().unwrap_or(0)) as usize
}

fn columns_of(txn: &WriteTxn<'_>, segment: u32) -> Result<Vec<ColumnKey>> {
    directory::head(txn, segment)?.columns().map(|column| Ok(column?.key)).collect()
}

/// Writes live rows of segments anew, from the first segment on, while there is room.
fn rewrite(
    txn: &mut WriteTxn<'_>,
    root: Gid,
    segments: &[u32],
    origin: Origin,
    mut room: StepRoom,
) -> Result<()> {
    let mut oids = Vec::new();
    for segment in segments {
        if room.is_full() {
            break;
        }
        let live = directory::live(txn, *segment)?;
        let mut moved = Vec::new();
        for (position, oid) in &live {
            if room.is_full() {
                break;
            }
            room.take(txn.get(Table::Objects, &id_key(*oid))?.map_or(0, <[u8]>::len));
            moved.push(*position);
            oids.push(*oid);
        }
        if moved.len() == live.len() {
            seal::remove(txn, *segment)?;
        } else {
            directory::mark_all_dead(txn, *segment, &moved)?;
        }
    }
    step!("index.segments-taken");
    oids.sort_unstable();
    seal(txn, root, &oids, origin).map(|_| ())
}
