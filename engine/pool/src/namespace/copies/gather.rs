//! What is copied: read from a snapshot.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::tree::{MemberLocation, Tree};
use super::super::{Namespace, moves, view};
use super::{CopyItem, CopyPlan};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Member, Oid, id_key};
use engram_base::name::Path;
use engram_catalog::rows::{Row, Rows};
use engram_catalog::{ReadTxn, Table};
use engram_ops::{chunk_rows, group};
use engram_realm::{HasCore, Mode, Realm, keys, look_together, space};
use engram_records::attrs;
use engram_records::attrs::KeyId;
use engram_records::extent::Extent;
use engram_records::object::{Record, Stored};
use engram_records::segmented::Segmented;
use engram_space::head::FileHead;

/// So many names are read at a time.
const PAGE: usize = 4096;
/// So often a file is looked at that others go on cutting.
const LOOKS_MAX: usize = 100;

/// See [`CopyPlan::of`].
pub(super) fn plan(namespace: &Namespace, parent: Gid, path: &str) -> Result<CopyPlan> {
    if namespace.mode() == Mode::ReadWrite {
        moves::recover(namespace)?; // the marks of the dead say nothing
    }
    let then =
        if namespace.is_snapshot() { namespace.clone() } else { namespace.snapshot(None)? };
    let realms = view::snapshots(&then);
    let items = then.look(&realms, |tree| {
        let start = start(tree, then.root(), parent, path)?;
        let mut walk = CopyWalk { items: Vec::new(), known: HashMap::new() };
        walk.take(tree, start)?;
        Ok(walk.items)
    })?;
    let keys = vec![HashMap::new(); realms.len()];
    let mut plan = CopyPlan { realms, items, keys };
    for at in 0..plan.realms.len() {
        complete(&mut plan, at)?;
    }
    Ok(plan)
}

/// The topmost member.
fn start(tree: &mut Tree<'_, '_>, root: Gid, from: Gid, path: &str) -> Result<MemberLocation> {
    if path == "/" {
        return Ok(MemberLocation { at: 0, parent: 0, member: Member::Group(root) });
    }
    match tree.resolve(from, &Path::new(path)?)? {
        Some(found) => Ok(found),
        None => fail!(
            NotFound,
            "there is no {path:?} in this group: list its members with keys() or tree()"
        ),
    }
}

struct CopyWalk {
    items: Vec<CopyItem>,
    /// The places of objects, which may have several names.
    known: HashMap<u64, usize>,
}

impl CopyWalk {
    fn take(&mut self, tree: &mut Tree<'_, '_>, start: MemberLocation) -> Result<()> {
        self.add(tree, start, None, String::new())?;
        let mut place = 0;
        // Groups come before what is in them: those that are added are looked through in turn.
        while place < self.items.len() {
            if let Member::Group(gid) = self.items[place].member {
                let mut after: Option<String> = None;
                loop {
                    let found = tree.list(gid, after.as_deref(), PAGE)?;
                    let whole = found.len() == PAGE;
                    after = found.last().map(|(name, _)| name.clone());
                    for (name, member) in found {
                        self.add(tree, member, Some(place), name)?;
                    }
                    if !whole {
                        break;
                    }
                }
            }
            place += 1;
        }
        Ok(())
    }

    fn add(
        &mut self,
        tree: &mut Tree<'_, '_>,
        found: MemberLocation,
        above: Option<usize>,
        name: String,
    ) -> Result<()> {
        let member = found.member;
        if let (Member::Object(oid), Some(above)) = (member, above) {
            match self.known.entry(oid) {
                Entry::Occupied(place) => {
                    self.items[*place.get()].further.push((above, name));
                    return Ok(());
                }
                Entry::Vacant(place) => {
                    place.insert(self.items.len());
                }
            }
        }
        let at = tree.home(member)?.unwrap_or(found.at);
        let rows = &mut **tree.at(at);
        let (table, key) = group::table_of(member);
        let Some(row) = rows.get(table, &key)?.map(std::borrow::Cow::into_owned) else {
            fail!(Corrupt, "{:#x} has a name and no record: run verify", member.id())
        };
        let record = Record::parse(&row)?;
        let settings = match table {
            Table::Groups => {
                rows.get(Table::IndexSettings, &key)?.map(std::borrow::Cow::into_owned)
            }
            _ => None,
        };
        let mut chunks = Vec::new();
        if record.is_chunked() {
            let mut from = id_key(member.id()).to_vec();
            while let Some(chunk) = chunk_rows::next(rows, member.id(), &mut from)? {
                chunks.push(chunk);
            }
        }
        let further = Vec::new();
        self.items.push(CopyItem { member, at, above, name, further, row, settings, chunks });
        Ok(())
    }
}

/// Learns the names of keys in one realm, and reads files, which are as they are by now.
fn complete(plan: &mut CopyPlan, at: usize) -> Result<()> {
    let realm = plan.realms[at].clone();
    let core = realm.core();
    let (keys, items) = (&mut plan.keys[at], &mut plan.items);
    for item in items.iter_mut().filter(|item| item.at == at) {
        let record = Record::parse(&item.row)?;
        if let Stored::Segmented(segmented) = record.stored {
            let (row, chunks) = read_file(&realm, item, segmented)?;
            (item.row, item.chunks) = (row, chunks);
        }
    }
    let inside = core.enter()?;
    let txn = inside.read()?;
    for item in items.iter().filter(|item| item.at == at) {
        learn(&realm, &txn, keys, &Record::parse(&item.row)?)?;
    }
    Ok(())
}

fn learn(
    realm: &Realm,
    txn: &ReadTxn<'_>,
    keys: &mut HashMap<KeyId, String>,
    record: &Record<'_>,
) -> Result<()> {
    for entry in attrs::entries(record.attrs) {
        let key = entry?.key;
        if let Entry::Vacant(place) = keys.entry(key) {
            place.insert(keys::key_name_at(realm.core(), txn, key)?.to_string());
        }
    }
    Ok(())
}

/// The record of a file with its size, and the segments below that. What is by now another file's,
/// the snapshot keeps.
fn read_file(realm: &Realm, item: &CopyItem, segmented: Segmented) -> Result<(Vec<u8>, Vec<Row>)> {
    let head = FileHead::new(space::memory_at(realm.core(), segmented.head)?)?;
    let oid = item.member.id();
    let (mut size, mut found) = (0, Vec::new());
    for _ in 0..LOOKS_MAX {
        size = head.size();
        found = match newest_segments(realm, oid, segmented.head)? {
            Some(found) => found,
            None => {
                look_together(std::slice::from_ref(realm), |rows| segments(&mut *rows[0], oid))?
            }
        };
        // One that was cut meanwhile is looked at again.
        if head.size() == size {
            break;
        }
    }
    let mut chunks = Vec::new();
    for (key, row) in found {
        if chunk_rows::segment(oid, &key, &row)?.0 < size {
            chunks.push((key, row));
        }
    }
    let record = Record::parse(&item.row)?;
    let stored = Stored::Segmented(Segmented { nbytes: size, ..segmented });
    Ok((Record { stored, ..record }.encode(), chunks))
}

/// The segments of a file as they are now; `None` where it is gone, or another's.
fn newest_segments(realm: &Realm, oid: Oid, head: Extent) -> Result<Option<Vec<Row>>> {
    let inside = realm.core().enter()?;
    let txn = inside.read()?;
    let rows = &mut txn.rows();
    let same = match rows.get(Table::Objects, &id_key(oid))? {
        Some(row) => {
            matches!(Record::parse(&row)?.stored, Stored::Segmented(now) if now.head == head)
        }
        None => false,
    };
    if same { segments(rows, oid).map(Some) } else { Ok(None) }
}

fn segments(rows: &mut dyn Rows, oid: Oid) -> Result<Vec<Row>> {
    let (mut found, mut from) = (Vec::new(), id_key(oid).to_vec());
    while let Some(row) = chunk_rows::next(rows, oid, &mut from)? {
        found.push(row);
    }
    Ok(found)
}
