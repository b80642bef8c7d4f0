//! A realm without a pool around it: its folder is made by hand, as `namespace::make` makes one.

mod batches;
mod changes;
mod spaces;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::process::core_of;
use crate::realm::{LIMIT, NEXT_ID, USED};
use crate::session::Session;
use crate::{HasCore, Mode, Payload, Purpose, Realm, Setup, prepare_locks};
use engram_base::id::{COUNTER_BITS, Member, id_key};
use engram_base::scope::Scope;
use engram_catalog::testing::MemoryRows;
use engram_catalog::{Catalog, Table};
use engram_files::folder::make_folder;
use engram_files::paths;
use engram_files::pool_file::{FORMAT, PoolFile};
use engram_files::realm_file::RealmFile;
use engram_files::toml_file::write_toml;
use engram_media::filesystem::admit;
use engram_ops::group::group_record;
use engram_records::object::{NewObject, Placement};
use engram_records::stamp::Stamp;
use engram_space::extent::Growing;

const ID_PREFIX: u64 = 7;
/// The bound of the arena.
const SIZE: u64 = 8 << 20;
const MAP_SIZE: u64 = 64 << 20;

/// A realm on a folder of its own, which goes with it.
struct World {
    setup: Setup,
    realm: Realm,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let pool = fs::canonicalize(dir.path()).unwrap().join("pool");
        fs::create_dir(&pool).unwrap();
        let mount = admit(&pool, true).unwrap();
        let file = PoolFile {
            format: FORMAT,
            uuid: "0123456789abcdef0123456789abcdef".to_owned(),
            durability: "process".to_owned(),
            size: SIZE,
            checksums: true,
            emulated: false,
            devices: vec![pool.clone()],
            incompatible: Vec::new(),
            read_only: Vec::new(),
        };
        file.begin(&pool).unwrap();
        let namespace = paths::place(&pool, paths::DEFAULT);
        let setup = Setup {
            dir: namespace.join(paths::SHARED),
            pool: pool.clone(),
            uuid: file.uuid.clone(),
            namespace: paths::DEFAULT.to_owned(),
            file_mode: 0o600,
            durable: false,
            mount,
            map_size: MAP_SIZE,
            id_prefix: ID_PREFIX,
            root: (ID_PREFIX << COUNTER_BITS) | 1,
            scope: Scope::Shared,
            checksums: true,
            emulated: false,
            immutable: false,
        };
        let spans = paths::on_device(&pool, &file, paths::DEFAULT).join(paths::SHARED);
        make(&setup, &namespace, &spans);
        PoolFile::finish(&pool).unwrap();
        let core = core_of(setup.clone(), Purpose::Use).unwrap();
        let realm = Realm::new(core, Session::new(Mode::ReadWrite));
        World { setup, realm, _dir: dir }
    }

    /// Another handle, by which nothing may be changed.
    fn looking(&self) -> Realm {
        Realm::new(Arc::clone(self.realm.core()), Session::new(Mode::Read))
    }

    /// Every row of the tables that say what is in the realm.
    fn rows(&self) -> MemoryRows {
        let inside = self.realm.core().enter().unwrap();
        let txn = inside.read().unwrap();
        let mut rows = MemoryRows::of(&txn).unwrap();
        // Preparations for a change stay where the change is refused: ids are taken in blocks, keys
        // get numbers, the arena grows, space is reserved and given back.
        for key in [NEXT_ID, b"keys"] {
            rows.remove(Table::Meta, key);
        }
        let space = [Table::ExtentsByOffset, Table::ExtentsBySize, Table::ExtentsPending];
        for table in space.into_iter().chain([Table::Keys, Table::Spans]) {
            let keys: Vec<Vec<u8>> = rows.in_order(table).map(|(key, _)| key.to_vec()).collect();
            for key in keys {
                rows.remove(table, &key);
            }
        }
        rows
    }

    fn put(&self, path: &str, value: &[u8]) -> engram_base::error::Result<u64> {
        let placement = Placement::default();
        self.realm.put(self.realm.root(), path, &NewObject::blob(), value, placement)
    }

    /// The member at a path, as another thread finds it.
    fn seen_elsewhere(&self, path: &str) -> Option<Member> {
        let looking = self.looking();
        let look = || looking.lookup(looking.root(), path).unwrap();
        std::thread::scope(|scope| scope.spawn(look).join().unwrap())
    }
}

fn make(setup: &Setup, namespace: &Path, spans: &Path) {
    for folder in [namespace, &setup.dir, &setup.catalog(), &setup.leases()] {
        make_folder(folder, 0o700).unwrap();
    }
    fs::create_dir_all(spans).unwrap();
    Growing::prepare(&setup.dir, setup.file_mode).unwrap();
    prepare_locks(&setup.dir, setup.file_mode).unwrap();
    let file = RealmFile {
        format: FORMAT,
        map_size: setup.map_size,
        id_prefix: setup.id_prefix,
        root: setup.root,
        incompatible: Vec::new(),
    };
    write_toml(&setup.dir.join(paths::REALM_FILE), &file, setup.file_mode).unwrap();
    let options = setup.catalog_options();
    Catalog::create(&setup.catalog(), &options).unwrap();
    let catalog = Catalog::open(&setup.catalog(), &options).unwrap();
    catalog.growth().set_boot_id(engram_media::boot_id());
    let stamp = Stamp::now(engram_base::user::current(), true).unwrap();
    let root = group_record(0, "", stamp, &[], &[]).encode();
    catalog
        .run(|txn| {
            for (key, value) in [(LIMIT, SIZE), (USED, 0), (NEXT_ID, 2)] {
                txn.put(Table::Meta, key, &value.to_le_bytes())?;
            }
            txn.put(Table::Groups, &id_key(setup.root), &root)
        })
        .unwrap();
}

/// The bytes of a payload.
fn bytes_of(payload: Payload) -> Vec<u8> {
    match payload {
        Payload::Inline(bytes) => bytes,
        Payload::Extent(view) => {
            let mut bytes = vec![0; view.len()];
            view.copy_out(0, &mut bytes);
            bytes
        }
    }
}
