//! What is done while power may fail, and what a pool shows of it.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use engram::query::ast::Literal;
use engram::{
    Clash, CreateOptions, DType, Durability, Flush, IndexMode, IndexSettings, Kind, Layout, Member,
    Mode, NewObject, Payload, Placement, Pool, Properties, Realm, RealmAllocation, Value,
};

use super::common::grids::{chunked, whole};
use super::common::{KEEP, OVER, Random, contents, filled, floats, lookup};
use super::record::{Event, with};

/// What a pool shows: the bytes of objects and what else is said of things, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Of groups, objects, namespaces and devices.
    pub said: BTreeMap<String, String>,
    /// Of objects.
    pub bytes: BTreeMap<String, Arc<Vec<u8>>>,
}

/// What an operation means for what is seen after it, or in the middle of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// All of it or nothing.
    Whole,
    /// The object's words change one by one, and stay as they please until it is flushed.
    InPlace(&'static str),
    /// The object's words are settled.
    Flush(&'static str),
    /// Some of the object's words change one by one, and are settled when it is done.
    Stored(&'static str),
    /// The file's size and some of its bytes change, and are as they please until it is synced.
    Unsynced(&'static str),
    /// The file's size and bytes are settled.
    Synced(&'static str),
}

/// One operation, and what the pool showed after it.
#[derive(Clone)]
pub struct Step {
    /// What was done.
    pub what: String,
    /// How it goes.
    pub nature: Nature,
    /// What everybody saw then.
    pub after: Arc<Shown>,
}

/// Everything that a pool shows.
pub fn shown(pool: &Pool) -> Shown {
    let mut shown = Shown::default();
    let devices = pool.devices().expect("devices").len();
    shown.said.insert("devices".into(), devices.to_string());
    for namespace in pool.namespaces().expect("namespaces") {
        let name = namespace.name;
        let realm = pool.realm(&name).expect("a namespace");
        let size = realm.space().expect("accounts").size;
        shown.said.insert(format!("{name}:"), format!("{size} bytes"));
        let mut groups = vec![(realm.root(), format!("{name}:"))];
        while let Some((group, prefix)) = groups.pop() {
            for (name, member) in realm.list(group, None, usize::MAX).expect("a listing") {
                let path = format!("{prefix}{name}");
                let attrs = realm.attrs(member).expect("attributes");
                shown.said.insert(path.clone(), format!("{attrs:?}"));
                match member {
                    Member::Group(inner) => groups.push((inner, format!("{path}/"))),
                    Member::Object(oid) => {
                        let info = realm.object(oid).expect("it is there");
                        let bytes = if info.layout == Layout::Contiguous {
                            match realm.payload(oid).expect("a value").0 {
                                Payload::Inline(bytes) => bytes,
                                Payload::Extent(view) => contents(&view),
                            }
                        } else {
                            let namespace = pool.namespace(realm.namespace()).expect("a namespace");
                            whole(&namespace, oid)
                        };
                        shown.bytes.insert(path, Arc::new(bytes));
                    }
                }
            }
        }
    }
    shown
}

fn number(value: i64) -> Value {
    Value {
        dtype: DType::scalar(b'i', b'<', 8),
        shape: Vec::new(),
        data: value.to_le_bytes().into(),
    }
}

/// The worker that does it.
pub struct Worker<'p> {
    path: &'p Path,
    pool: Option<Pool>,
    /// What was done so far.
    pub steps: Vec<Step>,
    version: u64,
}

impl<'p> Worker<'p> {
    /// Nothing is there yet.
    pub fn new(path: &'p Path) -> Self {
        Worker { path, pool: None, steps: Vec::new(), version: 0 }
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("an open pool")
    }

    fn realm(&self) -> Realm {
        self.pool().realm("default").expect("the default namespace")
    }

    /// Does it, and notes what everybody sees then.
    fn step(&mut self, what: &str, nature: Nature, work: impl FnOnce(&mut Self)) {
        let number = self.steps.len();
        with(|recorder| {
            recorder.point("an operation");
            recorder.note(Event::Begun(number));
        });
        work(self);
        with(|recorder| {
            recorder.look();
            recorder.note(Event::Done(number));
        });
        let after = match (&self.pool, self.steps.last()) {
            (Some(pool), _) => Arc::new(shown(pool)),
            (None, Some(last)) => Arc::clone(&last.after),
            (None, None) => Arc::default(),
        };
        self.steps.push(Step { what: what.to_owned(), nature, after });
    }

    fn whole(&mut self, what: &str, work: impl FnOnce(&mut Self)) {
        self.step(what, Nature::Whole, work);
    }

    fn object(&mut self, words: usize) -> (NewObject, Vec<u8>) {
        self.version += 1;
        let orbit = ("orbit".to_owned(), number(self.version as i64 % 3));
        let serial = ("serial".to_owned(), number(self.version as i64));
        let attrs = vec![orbit, serial];
        (NewObject { attrs, ..floats(&[words as u64]) }, filled(self.version, 1, words))
    }

    fn put(&mut self, path: &str, words: usize, placement: Placement) {
        let (new, data) = self.object(words);
        let realm = self.realm();
        realm.put(realm.root(), path, &new, &data, placement).expect("put");
    }

    /// A pool, and the first things in it.
    pub fn begin(&mut self, devices: Vec<std::path::PathBuf>) {
        self.whole("create", |w| {
            let durability = Some(Durability::System);
            let options =
                CreateOptions { size: 4 << 20, devices, durability, ..Default::default() };
            w.pool = Some(Pool::create(w.path, &options).expect("a new pool"));
        });
        self.whole("put inline", |w| w.put("a/small", 16, KEEP));
        self.whole("put large", |w| w.put("a/large", 5_000, KEEP));
        self.whole("set index settings", |w| {
            let settings = IndexSettings {
                tail_rows: Some(5),
                segment_rows: Some(8),
                split_threshold: Some(2),
                queue_max: Some(6),
                split_on: Some(("serial".into(), Literal::Int(20))),
                ..IndexSettings::default()
            };
            let realm = w.realm();
            realm.set_index_settings(realm.root(), &settings).expect("settings");
        });
    }

    /// Every kind of operation, once or some times.
    pub fn every_kind(&mut self) {
        self.whole("replace large", |w| w.put("a/large", 6_000, OVER));
        self.whole("replace inline by large", |w| w.put("a/small", 4_000, OVER));
        self.allocations();
        self.whole("zeros", |w| {
            let realm = w.realm();
            let new = floats(&[3_000]);
            realm.create_zeroed(realm.root(), "b/zeros", &new, KEEP).expect("zeros");
        });
        self.in_place("default:b/zeros", "b/zeros");
        self.in_place("default:b/made", "b/made");
        self.store("default:b/zeros", "b/zeros", Flush::Once);
        self.store("default:b/made", "b/made", Flush::AsWritten);
        self.chunks();
        self.files();
        self.whole("put inline to be promoted", |w| w.put("b/promoted", 32, KEEP));
        self.in_place("default:b/promoted", "b/promoted");
        self.whole("swap a value", |w| {
            let realm = w.realm();
            let oid = lookup(&realm, "a/large").expect("there");
            let (_, generation) = realm.payload(oid).expect("a value");
            let data = filled(77, 7, 6_000);
            assert!(realm.replace_payload(oid, generation, &data).expect("replaced"));
        });
        self.batch("batch", 6, 3_000);
        self.whole("annotate", |w| {
            let realm = w.realm();
            let oid = lookup(&realm, "a/large").expect("there");
            let attrs = [("note".to_owned(), Value::text("seen")), ("orbit".into(), number(9))];
            realm.set_attrs(Member::Object(oid), &attrs).expect("annotated");
        });
        self.whole("move", |w| {
            let realm = w.realm();
            realm.rename(realm.root(), "a", realm.root(), "c/moved").expect("moved");
        });
        self.whole("delete an object", |w| w.delete("b/made"));
        self.queued();
        self.whole("delete a group", |w| w.delete("batch"));
        for round in 0..8 {
            self.whole("put to seal", |w| w.put(&format!("s/{round}"), 20, KEEP));
        }
    }

    fn allocations(&mut self) {
        self.allocate("allocate", "b/made", RealmAllocation::write);
        self.allocate("allocate, and fill once more", "b/again", |space, data| {
            space.write(&vec![1; data.len()]);
            space.write_at(0, data);
        });
        self.allocate("allocate, and fill from a file", "b/read", |space, data| {
            space.write(&vec![1; data.len()]);
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(data).expect("room");
            let read = space.read_from(0, file.as_fd(), 0, data.len()).expect("readable");
            assert_eq!(read, data.len());
        });
        self.whole("allocate and give up", |w| {
            let (new, data) = w.object(9_000);
            let realm = w.realm();
            let space = realm.allocate(realm.root(), "b/lost", &new, 72_000, KEEP).expect("space");
            space.write(&data);
        });
    }

    fn allocate(&mut self, what: &str, path: &str, fill: impl FnOnce(&RealmAllocation, &[u8])) {
        self.whole(what, |w| {
            let (new, data) = w.object(9_000);
            let realm = w.realm();
            let space = realm.allocate(realm.root(), path, &new, 72_000, KEEP).expect("space");
            fill(&space, &data);
            space.publish().expect("published");
        });
    }

    fn delete(&mut self, path: &str) {
        let realm = self.realm();
        realm.delete(realm.root(), path).expect("deleted");
    }

    fn batch(&mut self, what: &str, objects: usize, words: usize) {
        self.whole(what, |w| {
            let realm = w.realm();
            realm.begin_batch().expect("a batch");
            for n in 0..objects {
                w.put(&format!("{what}/{n}"), if n % 2 == 0 { words } else { 10 }, OVER);
            }
            realm.commit_batch().expect("committed");
        });
    }

    /// Writes to an object's words, then flushes them.
    fn in_place(&mut self, path: &'static str, local: &str) {
        for round in 0..2 {
            self.step("write in place", Nature::InPlace(path), |w| {
                let realm = w.realm();
                let oid = lookup(&realm, local).expect("there");
                let Payload::Extent(view) = realm.view(oid, true).expect("a view") else {
                    panic!("{local} is inline");
                };
                let data = filled(round, 99, view.len() / 8);
                let half = data.len() / 16 * 8;
                // SAFETY: the writable view's own memory.
                unsafe {
                    let from = data.as_ptr();
                    view.as_ptr().copy_from(from, half);
                    with(super::record::Recorder::look);
                    view.as_ptr().add(half).copy_from(from.add(half), data.len() - half);
                }
            });
        }
        self.step("flush", Nature::Flush(path), |w| {
            let realm = w.realm();
            realm.flush(lookup(&realm, local).expect("there")).expect("flushed");
        });
    }

    /// Stores a box in the middle of an object.
    fn store(&mut self, path: &'static str, local: &str, flush: Flush) {
        self.step(&format!("store {flush:?}"), Nature::Stored(path), |w| {
            let oid = lookup(&w.realm(), local).expect("there");
            let namespace = w.pool().namespace("default").expect("the default namespace");
            let data = filled(3, 98, 2_000);
            namespace.store_slab(oid, &[500], &[2_000], &data, flush).expect("stored");
        });
    }

    /// A chunked array: what changes one chunk, or the shape, is one commit.
    fn chunks(&mut self) {
        let array = |w: &Self| {
            let namespace = w.pool().namespace("default").expect("the default namespace");
            (namespace, lookup(&w.realm(), "b/chunks").expect("there"))
        };
        self.whole("put in chunks", |w| {
            let (new, data) = w.object(600);
            let new = NewObject { layout: chunked(&[600], &[200], "shuffle+lz4").layout, ..new };
            let realm = w.realm();
            realm.put(realm.root(), "b/chunks", &new, &data, KEEP).expect("put");
        });
        self.whole("store in a chunk", |w| {
            let (namespace, oid) = array(w);
            let data = filled(5, 97, 150);
            namespace.store_slab(oid, &[210], &[150], &data, Flush::Once).expect("stored");
        });
        self.whole("append", |w| {
            let (namespace, oid) = array(w);
            namespace.append(oid, 0, &[450], &filled(6, 96, 450)).expect("appended");
        });
        self.whole("cut", |w| {
            let (namespace, oid) = array(w);
            namespace.reshape(oid, &[730]).expect("cut");
        });
    }

    /// Files that grow, shrink, have holes and further names: names and forms change by commits,
    /// sizes and bytes until they are synced.
    fn files(&mut self) {
        const PATH: &str = "default:f/file";
        let root = self.realm().root();
        let mut file = None;
        self.whole("make a file", |w| w.make_file("f/other", &[7; 900]));
        self.whole("make a file and open it", |w| {
            w.make_file("f/file", b"small");
            let oid = lookup(&w.realm(), "f/file").expect("there");
            file = Some(w.realm().open_file(oid, true).expect("open"));
        });
        let file = file.expect("made");
        self.whole("append within the record", |_| assert!(file.append(&[1; 500]).is_ok()));
        let unsynced: [(&str, &dyn Fn()); 11] = [
            ("append beyond the record", &|| assert!(file.append(&vec![2; 10_000]).is_ok())),
            ("overwrite", &|| file.write_at(3000, &[3; 6000]).expect("there")),
            ("append a segment", &|| assert!(file.append(&vec![4; 60_000]).is_ok())),
            ("append another", &|| assert!(file.append(&vec![5; 60_000]).is_ok())),
            ("append a third", &|| assert!(file.append(&vec![6; 60_000]).is_ok())),
            ("write far behind the end", &|| file.write_at(400_000, &[8; 5000]).expect("room")),
            ("write into a hole", &|| file.write_at(300_100, &vec![9; 30_000]).expect("room")),
            ("cut", &|| file.set_size(100_000).expect("cut")),
            ("extend by a hole", &|| file.set_size(230_000).expect("extended")),
            ("punch", &|| file.punch(20_000, 50_000).expect("punched")),
            ("allocate", &|| file.allocate(150_000, 100_000, false).expect("room")),
        ];
        for (what, work) in unsynced {
            self.step(what, Nature::Unsynced(PATH), |_| work());
            if !["overwrite", "append a segment"].contains(&what) {
                self.step("sync", Nature::Synced(PATH), |_| file.sync().expect("synced"));
            }
        }
        let folder = self.realm().lookup(root, "f").expect("looked").expect("there").id();
        self.whole("link", |w| w.realm().link(file.oid(), folder, "further").expect("linked"));
        self.whole("take a name away", |w| w.realm().unlink(folder, "file").expect("gone"));
        for clash in [Clash::Exchange, Clash::Replace] {
            self.whole(&format!("rename: {clash:?}"), |w| {
                let renamed = w.realm().rename_over(folder, "further", folder, "other", clash);
                renamed.expect("renamed");
            });
        }
        self.whole("make another", |w| w.make_file("f/last", &[5; 5000]));
        self.whole("take its last name away", |w| w.realm().unlink(folder, "other").expect("gone"));
        self.whole("write without a name", |_| {
            assert!(file.append(&vec![6; 50_000]).is_ok());
            file.sync().expect("synced");
        });
        self.whole("close", |_| drop(file));
    }

    fn make_file(&mut self, path: &str, data: &[u8]) {
        let properties = Properties { written: 1, accessed: 2, rest: b"kept" }.encode();
        let new = NewObject { properties, ..NewObject::blob() };
        let placement = Placement { index: Some(IndexMode::None), ..KEEP };
        let realm = self.realm();
        realm.put(realm.root(), path, &new, data, placement).expect("a new file");
    }

    /// Objects that are indexed later.
    fn queued(&mut self) {
        self.whole("a group of later indexing", |w| {
            let realm = w.realm();
            let group = realm.create_group(realm.root(), "q", &[], &[], false).expect("a group");
            let mode = Some(IndexMode::Async);
            let settings = IndexSettings { mode, ..IndexSettings::default() };
            realm.set_index_settings(group, &settings).expect("settings");
        });
        for n in 0..4 {
            self.whole("put to the queue", |w| w.put(&format!("q/{n}"), 12, KEEP));
        }
        self.whole("drain", |w| {
            w.realm().drain_queue(u64::MAX).expect("drained");
        });
    }

    /// More of everything: the catalog, the arena, namespaces, devices, processes.
    pub fn growth(&mut self, device: &Path) {
        self.whole("a group without an index", |w| {
            let realm = w.realm();
            let group = realm.create_group(realm.root(), "many", &[], &[], false).expect("a group");
            let settings = IndexSettings { mode: Some(IndexMode::None), ..Default::default() };
            realm.set_index_settings(group, &settings).expect("settings");
        });
        self.batch("many", 700, 120);
        self.whole("resize", |w| w.realm().resize(12 << 20).expect("resized"));
        self.whole("grow the arena", |w| w.put("big", 400_000, KEEP));
        self.whole("delete much", |w| w.delete("big"));
        self.whole("add a device", |w| w.pool().add_device(device, false).expect("a device"));
        self.whole("make a namespace", |w| {
            w.pool().create_namespace("other", 0o700, None, Some(4 << 20)).expect("a namespace");
        });
        self.whole("put in it", |w| {
            let (new, data) = w.object(3_000);
            let realm = w.pool().realm("other").expect("there");
            realm.put(realm.root(), "x/y", &new, &data, KEEP).expect("put");
        });
        self.whole("grow onto the device", |w| {
            let (new, data) = w.object(200_000);
            let realm = w.realm();
            let placement = Placement { device: Some(1), ..KEEP };
            realm.put(realm.root(), "far", &new, &data, placement).expect("put");
        });
        self.whole("close and open", |w| {
            w.pool().close();
            w.pool = None;
            w.pool = Some(Pool::open(w.path, Mode::ReadWrite, false).expect("opened"));
        });
        self.whole("maintain", |w| while w.realm().maintain().expect("maintained") > 0 {});
        self.whole("remove the namespace", |w| {
            w.pool().remove_namespace("other").expect("removed");
        });
        self.whole("put after all", |w| w.put("after", 4_000, KEEP));
    }

    /// Anything, by chance.
    pub fn at_random(&mut self, random: &mut Random, steps: usize) {
        for _ in 0..steps {
            let name = format!("r/{}", random.below(6));
            let words = [10, 100, 700, 5_000, 20_000][random.below(5) as usize];
            match random.below(6) {
                0 => self.batch("r/batch", 5, words),
                1 if lookup(&self.realm(), &name).is_some() => {
                    self.whole("delete by chance", |w| w.delete(&name));
                }
                2 if lookup(&self.realm(), &name).is_some() => {
                    self.whole("move by chance", |w| {
                        let realm = w.realm();
                        let to = format!("{name}-{}", w.version);
                        realm.rename(realm.root(), &name, realm.root(), &to).expect("moved");
                    });
                }
                _ => self.whole("put by chance", |w| w.put(&name, words, OVER)),
            }
        }
    }

    /// Closes the pool.
    pub fn end(&mut self) {
        self.whole("close", |w| {
            w.pool().close();
            w.pool = None;
        });
    }
}

/// Works in a pool that has been through a failure: it must be as good as any.
pub fn work_on(pool: &Pool) -> engram::Result<()> {
    let realm = pool.realm("default")?;
    let root = realm.root();
    for (name, words) in [("again/large", 3_000), ("again/small", 9), ("again/large", 2_000)] {
        let data = filled(5, 5, words);
        realm.put(root, name, &floats(&[words as u64]), &data, OVER)?;
        if super::common::read(&realm, name) != data {
            let what = format!("{name} is not what was put");
            return Err(engram::Error::new(Kind::Corrupt, what));
        }
    }
    realm.delete(root, "again")?;
    // Whoever had a file's tail is gone, and transactions have no number twice.
    let Some(Member::Group(folder)) = realm.lookup(root, "f")? else { return Ok(()) };
    for (name, member) in realm.list(folder, None, usize::MAX)? {
        let file = realm.open_file(member.id(), true)?;
        let mut before = vec![0; file.size()? as usize];
        file.read_at(0, &mut before)?;
        let at = file.append(&vec![0x77; 70_000])?;
        file.set_size(at + 9)?;
        let mut after = vec![0; at as usize + 10];
        let count = file.read_at(0, &mut after)?;
        let whole = count == before.len() + 9
            && after.starts_with(&before)
            && after[before.len()..count].iter().all(|byte| *byte == 0x77);
        if at != before.len() as u64 || !whole {
            let what = format!("what was appended to {name} does not lie behind its end");
            return Err(engram::Error::new(Kind::Corrupt, what));
        }
    }
    Ok(())
}
