//! What has been gathered, put into a realm: values first, then all rows in one commit.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::super::write::Aim;
use super::super::{Namespace, moves, write};
use super::{CopiedIds, Copier, CopyItem, CopyOptions, CopyPlan};
use engram_base::checksum::{NONE, is_checksum};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Gid, Member, NameKey, id_key};
use engram_base::name::Path;
use engram_base::scope::Scope;
use engram_catalog::{Headroom, Table};
use engram_ops::group::{self, Taker, Target};
use engram_ops::rows_mut::{Reserved, RowsMut};
use engram_ops::{chunk_rows, group_times, index_modes, links, protect};
use engram_realm::{
    Changes, Core, HasCore, after_commit, batch, chunks, ids, keys, look_together, space,
};
use engram_records::attrs;
use engram_records::attrs::KeyId;
use engram_records::extent::Extent;
use engram_records::index_mode::Touch;
use engram_records::object::{Flags, Record, Stored};
use engram_records::segmented::{HEAD_BYTES, HeadFacts};
use engram_records::stamp::Stamp;
use engram_space::head::FileHead;

/// So many values have their space reserved in one commit.
const AT_ONCE: usize = 512;

/// A value that has been copied: where it lies, and its checksum.
type CopiedPart = (Reserved, u64);

/// See [`CopyPlan::put`], which begins again what has met a move.
pub(super) fn put(
    plan: &CopyPlan,
    to: &Namespace,
    parent: Gid,
    path: &str,
    options: CopyOptions,
    copier: &mut dyn Copier,
) -> Result<Member> {
    moves::refuse_reader(to, "copy to")?;
    let private = plan.items.iter().any(|item| plan.realms[item.at].scope() == Scope::Private);
    let scope = options.scope.or(if private { Some(Scope::Private) } else { None });
    let taker = match plan.root() {
        Member::Object(_) => Taker::Object { overwrite: options.overwrite },
        Member::Group(_) => Taker::Group,
    };
    let Aim { realm, group: from, path: rest } = match write::only(to, scope)? {
        Some(realm) => Aim { realm, group: parent, path },
        None => write::aim_among_realms(to, parent, path, scope, taker)?,
    };
    let core = realm.core();
    if batch::runs(core) {
        fail!(
            Busy,
            "a batch runs in this thread, and a copy is one commit of its own: end it first"
        );
    }
    let path = Path::new(rest)?;
    let place = TargetPlace { from, root: realm.root(), path: &path, taker };
    look_together(std::slice::from_ref(&realm), |rows| {
        group::check_room(&mut *rows[0], &place.target(), taker)
    })?;
    let mut values = CopiedParts { core, copied: HashMap::new() };
    values.copy(plan, copier)?;
    step!("copy.copied");
    let stamp = engram_realm::write::stamp(core)?;
    let made = CopyRows::new(plan, core, &path, stamp, copier)?;
    let inside = core.enter()?;
    values.refuse_other_lease(inside.lease().id())?;
    let root = core.commit(&inside, Headroom::Normal, |rows| {
        realm.check_precondition(rows)?;
        made.put(rows, &place, &values, stamp)
    })?;
    values.copied.clear(); // they are in use
    step!("copy.committed");
    after_commit(core, &inside);
    Ok(root)
}

/// Where the topmost member comes to.
struct TargetPlace<'p> {
    from: Gid,
    root: Gid,
    path: &'p Path<'p>,
    taker: Taker,
}

impl TargetPlace<'_> {
    fn target(&self) -> Target<'_> {
        Target { from: self.from, root: self.root, path: self.path }
    }
}

/// What has been copied, and is not yet in use; their space goes back with this.
struct CopiedParts<'c> {
    core: &'c Arc<Core>,
    /// By the key of each value's row: of a member's own, its id.
    copied: HashMap<Vec<u8>, CopiedPart>,
}

impl Drop for CopiedParts<'_> {
    fn drop(&mut self) {
        let all: Vec<Reserved> = self.copied.values().map(|(reserved, _)| *reserved).collect();
        space::give_all_back(self.core, &all);
    }
}

/// A value that is to be copied.
struct PartToCopy {
    /// The place of its realm, and of its item.
    at: usize,
    item: usize,
    key: Vec<u8>,
    extent: Extent,
    nbytes: u64,
    checksum: u64,
    /// The same, if it is a file's head.
    head: Option<usize>,
}

impl CopiedParts<'_> {
    fn copy(&mut self, plan: &CopyPlan, copier: &mut dyn Copier) -> Result<()> {
        let mut waiting = Vec::new();
        for (place, item) in plan.items.iter().enumerate() {
            values_of(item, place, &mut waiting)?;
            if waiting.len() >= AT_ONCE {
                self.copy_all(plan, &std::mem::take(&mut waiting), copier)?;
            }
        }
        self.copy_all(plan, &waiting, copier)?;
        plan.check_kept()
    }

    fn copy_all(
        &mut self,
        plan: &CopyPlan,
        values: &[PartToCopy],
        copier: &mut dyn Copier,
    ) -> Result<()> {
        for some in values.chunks(AT_ONCE) {
            let lens: Vec<u64> = some.iter().map(|value| value.nbytes).collect();
            let places = chunks::reserve_all(self.core, &lens)?;
            for (value, (reserved, _)) in some.iter().zip(&places) {
                self.copied.insert(value.key.clone(), (*reserved, 0));
            }
            step!("copy.reserved");
            for (value, (reserved, _)) in some.iter().zip(&places) {
                let from = plan.realms[value.at].core();
                let Some(place) = value.head else {
                    let whole = (value.extent, value.nbytes);
                    let told = &mut |nbytes| copier.copied(nbytes);
                    let sum = space::copy_value(self.core, from, whole, *reserved, told)?;
                    refuse_damaged(plan, from, value, sum)?;
                    self.copied.insert(value.key.clone(), (*reserved, sum));
                    continue;
                };
                let head = head_of(from, value.extent, &plan.items[place])?;
                space::memory_at(self.core, reserved.extent)?.write(&head);
                space::flush_extent(self.core, reserved.extent, HEAD_BYTES)?;
            }
        }
        Ok(())
    }

    /// Refuses what was reserved before a fork.
    fn refuse_other_lease(&self, lease: u64) -> Result<()> {
        if self.copied.values().any(|(reserved, _)| reserved.lease != lease) {
            fail!(Busy, "this process has forked while values were copied: copy them again");
        }
        Ok(())
    }

    /// Where a value is that lies elsewhere in the source.
    fn place(&self, key: &[u8], stored: Stored<'_>) -> Result<Option<CopiedPart>> {
        match (stored.extent(), self.copied.get(key)) {
            (None, _) => Ok(None),
            (Some(_), Some(copied)) => Ok(Some(*copied)),
            (Some(_), None) => fail!(Corrupt, "a value was not copied: run verify"),
        }
    }
}

/// See [`CopyPlan::bytes_to_copy`].
pub(super) fn bytes_to_copy(plan: &CopyPlan) -> Result<u64> {
    let (mut bytes, mut values) = (0, Vec::new());
    for (place, item) in plan.items.iter().enumerate() {
        values_of(item, place, &mut values)?;
        let copied = values.drain(..).filter(|value| value.head.is_none());
        bytes += copied.map(|value| value.nbytes).sum::<u64>();
    }
    Ok(bytes)
}

/// The values of an item that lie in extents.
fn values_of(item: &CopyItem, place: usize, values: &mut Vec<PartToCopy>) -> Result<()> {
    let record = Record::parse(&item.row)?;
    let at = item.at;
    if let Some((extent, nbytes, checksum)) = record.stored.extent() {
        let head = matches!(record.stored, Stored::Segmented(_)).then_some(place);
        let key = id_key(item.member.id()).to_vec();
        values.push(PartToCopy { at, item: place, key, extent, nbytes, checksum, head });
    }
    for (key, row) in &item.chunks {
        if let Some((extent, nbytes, checksum)) = chunk_rows::parse(row)?.stored.extent() {
            let key = key.clone();
            values.push(PartToCopy { at, item: place, key, extent, nbytes, checksum, head: None });
        }
    }
    Ok(())
}

/// The head of a file's copy: it has the size that was read, and the segments that were found.
fn head_of(from: &Core, head: Extent, item: &CopyItem) -> Result<[u8; HEAD_BYTES as usize]> {
    let facts = FileHead::new(space::memory_at(from, head)?)?.facts();
    let size = Record::parse(&item.row)?.stored.nbytes();
    let mut space = 0;
    for (_, row) in &item.chunks {
        space += chunk_rows::parse(row)?.stored.nbytes();
    }
    Ok(HeadFacts { size, space, ..facts }.to_bytes())
}

/// Refuses a value that has not the checksum which its record has still.
fn refuse_damaged(plan: &CopyPlan, from: &Core, value: &PartToCopy, sum: u64) -> Result<()> {
    if sum == NONE || !is_checksum(value.checksum) || sum == value.checksum {
        return Ok(());
    }
    let inside = from.enter()?;
    let txn = inside.read()?;
    let item = &plan.items[value.item];
    let own = id_key(item.member.id());
    let row = if value.key == own {
        txn.get(Table::Objects, &own)?
    } else {
        txn.get(Table::Chunks, &value.key)?
    };
    // One that was written in place meanwhile has none, or another one, or lies elsewhere.
    let now = row.map(Record::parse).transpose()?.and_then(|record| record.stored.extent());
    if now.is_some_and(|(extent, _, word)| extent == value.extent && word == value.checksum) {
        fail!(
            Corrupt,
            "the value of {:?} has not the checksum that was kept of it: run verify",
            plan.path(value.item)
        );
    }
    Ok(())
}

/// The rows of a copy.
struct CopyRows<'p> {
    plan: &'p CopyPlan,
    /// The id of each item's copy, and those of groups above that are missing.
    ids: Vec<u64>,
    above: Range<u64>,
    /// The numbers of keys here, by those of each realm of the plan.
    keys: Vec<HashMap<KeyId, KeyId>>,
    origins: HashMap<u64, Vec<u8>>,
    properties: Vec<Vec<u8>>,
}

impl<'p> CopyRows<'p> {
    fn new(
        plan: &'p CopyPlan,
        core: &Core,
        path: &Path<'_>,
        stamp: Stamp,
        copier: &mut dyn Copier,
    ) -> Result<Self> {
        let count = plan.items.len() as u64;
        let all = ids::take_range(core, count + path.parents.len() as u64)?;
        let (first, above) = (all.start, all.start + count..all.end);
        let ids: Vec<u64> = (first..first + count).collect();
        let keys = plan.keys.iter().map(|keys| keys::translate(core, keys));
        let keys = keys.collect::<Result<_>>()?;
        let (mut kept, mut properties) = (Vec::new(), Vec::with_capacity(ids.len()));
        for item in &plan.items {
            let record = Record::parse(&item.row)?;
            if !record.origin.is_empty() {
                kept.push((item.member.id(), record.origin.to_vec()));
            }
            properties.push(match record.properties {
                [] => Vec::new(),
                kept => copier.properties(kept, record.owner != stamp.owner),
            });
        }
        let known: CopiedIds =
            plan.items.iter().map(|item| item.member.id()).zip(ids.iter().copied()).collect();
        let origins = copier.origins(&known, kept)?.into_iter().collect();
        Ok(CopyRows { plan, ids, above, keys, origins, properties })
    }

    fn put(
        &self,
        rows: &mut Changes<'_>,
        place: &TargetPlace<'_>,
        values: &CopiedParts<'_>,
        stamp: Stamp,
    ) -> Result<Member> {
        let mut above = self.above.clone();
        let mut new_id = || above.next().expect("one for each component of the path");
        let parent = group::make_room(rows, &place.target(), place.taker, stamp, &mut new_id)?;
        let name = place.path.last.as_str();
        let mut settings = false;
        for nth in 0..self.ids.len() {
            let (parent, name) = match self.plan.items[nth].above {
                Some(above) => (self.ids[above], self.plan.items[nth].name.as_str()),
                None => (parent, name),
            };
            self.put_item(rows, nth, (parent, name), values, stamp)?;
            settings |= self.plan.items[nth].settings.is_some();
        }
        self.put_further(rows)?;
        step!("copy.recorded");
        if settings {
            index_modes::changed(rows)?;
        }
        Ok(self.member(0))
    }

    /// The copy of an item.
    fn member(&self, nth: usize) -> Member {
        match self.plan.items[nth].member {
            Member::Object(_) => Member::Object(self.ids[nth]),
            Member::Group(_) => Member::Group(self.ids[nth]),
        }
    }

    fn put_item(
        &self,
        rows: &mut Changes<'_>,
        nth: usize,
        name: (Gid, &str),
        values: &CopiedParts<'_>,
        stamp: Stamp,
    ) -> Result<()> {
        let (item, member) = (&self.plan.items[nth], self.member(nth));
        let (parent, name) = name;
        let was = Record::parse(&item.row)?;
        let own = values.place(&id_key(item.member.id()), was.stored)?;
        let attrs = attrs::rekey(was.attrs, &self.keys[item.at])?;
        let record = Record {
            generation: 0,
            owner: stamp.owner,
            parent,
            created: stamp.now,
            modified: stamp.now,
            name,
            attrs: &attrs,
            origin: self.origins.get(&item.member.id()).map_or(&[], Vec::as_slice),
            properties: &self.properties[nth],
            flags: Flags { mirror: false, ..was.flags },
            checked: stamp.checksums,
            stored: lying(was.stored, own),
            ..was
        };
        let (table, key) = group::table_of(member);
        if !record.properties.is_empty() {
            group_times::begin(rows, parent, stamp.now)?;
        }
        rows.put(Table::Names, NameKey::new(parent, name).as_bytes(), &member.to_row())?;
        rows.names_changed(parent, i32::from(matches!(member, Member::Group(_))))?;
        rows.put_record(table, &key, &record)?;
        if record.flags.read_only {
            protect::note(rows, member, true)?;
        }
        if let Some((reserved, _)) = own {
            rows.adopt(reserved)?;
        }
        match member {
            Member::Group(gid) => {
                if !record.properties.is_empty() {
                    group_times::begin(rows, gid, stamp.now)?;
                }
                match &item.settings {
                    Some(settings) => rows.put(Table::IndexSettings, &key, settings),
                    None => Ok(()),
                }
            }
            Member::Object(oid) => {
                Self::put_chunks(rows, item, oid, values, stamp)?;
                rows.index(oid, Touch::New(record.index))
            }
        }
    }

    fn put_chunks(
        rows: &mut Changes<'_>,
        item: &CopyItem,
        oid: u64,
        values: &CopiedParts<'_>,
        stamp: Stamp,
    ) -> Result<()> {
        for (key, row) in &item.chunks {
            let was = chunk_rows::parse(row)?;
            let place = values.place(key, was.stored)?;
            let record = Record {
                generation: 0,
                owner: stamp.owner,
                parent: oid,
                created: stamp.now,
                modified: stamp.now,
                checked: stamp.checksums,
                stored: lying(was.stored, place),
                ..was
            };
            let own = id_key(oid);
            rows.put_record(Table::Chunks, &[&own, &key[own.len()..]].concat(), &record)?;
            if let Some((reserved, _)) = place {
                rows.adopt(reserved)?;
            }
        }
        Ok(())
    }

    /// Gives objects their further names.
    fn put_further(&self, rows: &mut Changes<'_>) -> Result<()> {
        for (nth, item) in self.plan.items.iter().enumerate() {
            for (above, name) in &item.further {
                let (oid, parent) = (self.ids[nth], self.ids[*above]);
                let row = Member::Object(oid).to_row();
                rows.put(Table::Names, NameKey::new(parent, name).as_bytes(), &row)?;
                rows.put(Table::Links, &links::key_of(oid, parent, name), &[])?;
                rows.names_changed(parent, 0)?;
            }
        }
        Ok(())
    }
}

/// A value where it lies by now.
fn lying(stored: Stored<'_>, place: Option<CopiedPart>) -> Stored<'_> {
    let Some((reserved, checksum)) = place else { return stored };
    match stored.moved_to(reserved.extent.offset) {
        Stored::Contiguous { extent, nbytes, .. } => {
            let extent = Extent { len: reserved.extent.len, ..extent };
            Stored::Contiguous { extent, nbytes, checksum }
        }
        stored => stored,
    }
}
