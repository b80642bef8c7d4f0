//! The corruption campaign: damage at random places of a closed pool, and what is made of it.
//!
//! A pool with checksums is filled once. Each round damages one of its files, then lets processes
//! of their own read everything (what a user sees), verify it, and salvage it into a new pool. The
//! rules: whatever a user would see otherwise than before, `verify` reports; neither it nor the
//! salvage dies or goes on for ever; and nothing comes out of the salvage that was not put in.
//! Damage to free space, to dead pages and to what is made anew may pass in silence.
//!
//! `CORRUPTIONS=5000 SEED=7` makes it as long as one likes; it prints what it has found.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Fixture, Random, attach, bytes_of, contents, deadline, filled};
use engram::query::parse;
use engram::{
    Class, CreateOptions, DType, Found, HeadFacts, IndexSettings, Loss, Member, Mode, NewObject,
    ObjectInfo, Payload, Placement, Pool, Properties, QueryOptions, Realm, Salvage, Value, Witness,
};

const PAGE: usize = 4096;
/// What a child is to do, to which pool, and where it says what it found.
const TASK: &str = "ENGRAM_CORRUPT_TASK";
const POOL: &str = "ENGRAM_CORRUPT_POOL";
const SAID: &str = "ENGRAM_CORRUPT_SAID";

const QUERIES: &[&str] = &[
    "n < 40",
    "n >= 100 and kind = \"b\"",
    "x > 0.5",
    "@path contains \"g1\"",
    "exists(long)",
    "not exists(n)",
    "serial = 77",
];

fn object(class: Class, shape: &[u64], attrs: Vec<(String, Value)>) -> NewObject {
    let dtype = match class {
        Class::Strings => DType::Text,
        Class::Blob => DType::bytes(),
        _ => DType::Scalar { kind: b'f', order: b'<', size: 8, unit: None },
    };
    let dims = (class == Class::Array).then(|| vec!["t".to_owned(); shape.len()]);
    NewObject {
        class,
        dtype,
        shape: shape.to_vec(),
        dims,
        attrs,
        origin: b"{}".to_vec(),
        properties: Vec::new(),
        layout: engram::Layout::default(),
    }
}

fn number(kind: u8, bytes: [u8; 8]) -> Value {
    let dtype = DType::Scalar { kind, order: b'<', size: 8, unit: None };
    Value { dtype, shape: Vec::new(), data: bytes.to_vec() }
}

/// A pool with a bit of everything, closed.
fn template() -> Fixture {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs at /dev/shm");
    let path = dir.path().join("pool");
    let options =
        CreateOptions { size: 64 << 20, force: true, checksums: true, ..CreateOptions::default() };
    let pool = Pool::create(&path, &options).expect("a new pool");
    let fixture = Fixture { dir, path, pool };
    fill(&fixture.realm(), 300);
    fill(&fixture.pool.create_namespace("other", 0o700, None, None).unwrap(), 20);
    fixture.pool.close();
    fixture
}

fn fill(realm: &Realm, count: u64) {
    let root = realm.root();
    let small =
        IndexSettings { tail_rows: Some(32), segment_rows: Some(64), ..IndexSettings::default() };
    realm.set_index_settings(root, &small).unwrap();
    for n in 0..count {
        let mut attrs = vec![
            ("n".to_owned(), number(b'i', n.to_le_bytes())),
            (
                "x".to_owned(),
                number(b'f', (f64::from(n as u32) / f64::from(count as u32)).to_le_bytes()),
            ),
            ("kind".to_owned(), Value::text(["a", "b", "c"][n as usize % 3])),
            ("serial".to_owned(), number(b'i', (n * 7919 % 1000).to_le_bytes())),
        ];
        if n % 50 == 3 {
            attrs.push(("long".to_owned(), Value::text(&"long ".repeat(4000))));
        }
        let path = format!("g{}/inner/{n}", n % 4);
        let place = Placement::default();
        let words = [3, 20, 100, 900][n as usize % 4];
        match n % 10 {
            8 => {
                let data = bytes_of(n as u8, 50 + n as usize * 30);
                realm.put(root, &path, &object(Class::Blob, &[], attrs), &data, place)
            }
            9 => {
                let data = [0u64, 1, 3].into_iter().flat_map(u64::to_le_bytes);
                let data: Vec<u8> = data.chain(*b"abc").collect();
                realm.put(root, &path, &object(Class::Strings, &[2], attrs), &data, place)
            }
            _ => {
                let data = filled(n + 1, n + 1, words);
                realm.put(root, &path, &object(Class::Array, &[words as u64], attrs), &data, place)
            }
        }
        .unwrap();
        if n % 15 == 14 {
            realm.delete(root, &format!("g{}/inner/{n}", n % 4)).unwrap();
        }
    }
    fill_files(realm);
    let g1 = realm.lookup(root, "g1").unwrap().unwrap();
    realm.set_attrs(g1, &[("title".to_owned(), Value::text("one"))]).unwrap();
    realm.maintain().unwrap();
}

/// Files: in their records, in segments with holes between them, of several names, and of none.
fn fill_files(realm: &Realm) {
    let root = realm.root();
    let folder = realm.make_group(root, FILES, b"", None).unwrap();
    for n in 0..12_u8 {
        let properties = Properties { written: 1, accessed: 2, rest: b"mode" }.encode();
        let attrs = vec![("n".to_owned(), number(b'i', u64::from(n).to_le_bytes()))];
        let new = NewObject { properties, ..object(Class::Blob, &[], attrs) };
        let path = format!("{FILES}/{n}");
        let oid = realm.put(root, &path, &new, &[n; 100], Placement::default()).unwrap();
        let file = realm.open_file(oid, true).unwrap();
        if n % 3 > 0 {
            file.append(&vec![n; 9000]).unwrap();
            file.write_at(100_000, &vec![n; 5000]).unwrap();
        }
        if n % 4 == 0 {
            realm.link(oid, folder, &format!("{n}-further")).unwrap();
        }
        if n == 11 {
            // It is open as long as this process lives.
            realm.unlink(folder, "11").unwrap();
            std::mem::forget(file);
        }
    }
}

/// Where they are. Nothing but a head says how long a file is, and nothing what is in it: of both,
/// each process that writes has its word, without a checksum. So neither is compared.
const FILES: &str = "files";

/// What is known of a file beside its size and bytes.
fn see_file(realm: &Realm, mut info: ObjectInfo) -> String {
    let oid = info.oid;
    let names = realm.count_names(oid);
    let segments = realm.open_file(oid, false).and_then(|file| file.segments());
    info.nbytes = 0;
    info.head = info.head.map(|_| HeadFacts::default());
    format!("{info:?} {names:?} {segments:?} {:?}", realm.attrs(Member::Object(oid)))
}

/// All that a user sees of one realm, a line for each thing.
fn see(name: &str, realm: &Realm, said: &mut String) {
    let mut groups = vec![(realm.root(), String::new())];
    while let Some((gid, prefix)) = groups.pop() {
        let info = realm.group(gid).map(|info| (info.gid, info.parent, info.name, info.origin));
        let attrs = realm.attrs(Member::Group(gid));
        let _ = writeln!(said, "{name}:{prefix} {info:?} {attrs:?}");
        let members = match realm.list_found(gid, None, usize::MAX) {
            Ok(members) => members,
            Err(error) => {
                let _ = writeln!(said, "{name}:{prefix} listing: {error}");
                continue;
            }
        };
        for (member, found) in members {
            let path = format!("{prefix}{member}");
            match found {
                Found::Group(inner) => groups.push((inner, format!("{path}/"))),
                Found::Object(info) if info.head.is_some() => {
                    let _ = writeln!(said, "{name}:{path} {}", see_file(realm, info));
                }
                Found::Object(info) => {
                    let oid = info.oid;
                    let attrs = realm.attrs(Member::Object(oid));
                    let value = match realm.payload(oid) {
                        Ok((Payload::Inline(bytes), _)) => Ok(sum(&bytes)),
                        Ok((Payload::Extent(view), _)) => Ok(sum(&contents(&view))),
                        Err(error) => Err(error),
                    };
                    let info = format!("{info:?} {:?}", realm.path_of(Member::Object(oid)));
                    let _ = writeln!(said, "{name}:{path} {value:?} {} {info}", sum(&attrs));
                }
            }
        }
    }
    for text in QUERIES {
        let query = parse(text).unwrap();
        let found = realm.query(&query, &QueryOptions::default()).map(|answer| {
            let mut oids = answer.oids;
            oids.sort_unstable();
            oids
        });
        let _ = writeln!(said, "{name}? {text}: {found:?}");
    }
}

fn sum(what: &impl std::fmt::Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{what:?}").hash(&mut hasher);
    hasher.finish()
}

/// What a user sees of a pool.
fn seen(path: &Path) -> String {
    let mut said = String::new();
    let pool = match Pool::open(path, Mode::Read, true) {
        Ok(pool) => pool,
        Err(error) => return format!("opening: {error}\n"),
    };
    let infos = pool
        .namespaces()
        .map(|all| all.into_iter().map(|info| (info.name, info.mode)).collect::<Vec<_>>());
    let _ = writeln!(said, "{infos:?} {:?} {:?}", pool.uuid(), pool.durability());
    for name in ["default", "other"] {
        match pool.realm(name) {
            Ok(realm) => see(name, &realm, &mut said),
            Err(error) => drop(writeln!(said, "{name}: {error}")),
        }
    }
    said
}

struct Noted(String);

impl Witness for Noted {
    fn begin(&mut self, _: u64, _: &str) -> bool {
        true
    }
    fn lose(&mut self, loss: Loss) {
        let _ = writeln!(self.0, "lost {loss:?}");
    }
    fn pulse(&mut self) {}
}

/// Salvages a pool into one beside it; says what has come out, and what not.
fn salvage(path: &Path) -> String {
    let salvage = match Salvage::open(path, &mut || ()) {
        Ok(salvage) => salvage,
        Err(error) => return format!("cannot be salvaged: {error}\n"),
    };
    let target = path.with_file_name("salvaged");
    let options = CreateOptions { size: 128 << 20, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&target, &options).unwrap();
    let mut said = String::new();
    for loss in salvage.losses() {
        let _ = writeln!(said, "lost {loss:?}");
    }
    for (name, _) in salvage.namespaces() {
        let realm = match name.as_str() {
            "default" => pool.realm("default").unwrap(),
            other => pool.create_namespace(other, 0o700, None, None).unwrap(),
        };
        let mut noted = Noted(String::new());
        salvage.copy(&name, &realm, 0, &mut noted).unwrap();
        said += &noted.0;
        values(&name, &realm, &mut said);
    }
    pool.close();
    Pool::destroy(&target).unwrap();
    said
}

/// The values of a realm and their attributes, a line for each.
fn values(name: &str, realm: &Realm, said: &mut String) {
    for (path, value) in crate::common::map_of(realm, "") {
        if let Some(value) = value {
            let oid = crate::common::lookup(realm, &path).unwrap();
            let attrs = realm.attrs(Member::Object(oid)).unwrap();
            let value = if path.starts_with(FILES) { 0 } else { sum(&value) };
            let _ = writeln!(said, "value {name}:{path} {value} {}", sum(&attrs));
        }
    }
}

/// Not a test of its own: what the campaign's children run.
#[test]
fn a_child_of_the_campaign() {
    let Ok(task) = std::env::var(TASK) else { return };
    let path = PathBuf::from(std::env::var(POOL).unwrap());
    let said = match task.as_str() {
        "see" => seen(&path),
        "verify" => match engram::verify(&path) {
            Ok(report) => report.problems.join("\n"),
            Err(error) => format!("problem {error}\n"),
        },
        "salvage" => salvage(&path),
        "values" => {
            let (pool, realm) = attach(&path, Mode::Read);
            let mut said = String::new();
            values("default", &realm, &mut said);
            values("other", &pool.realm("other").unwrap(), &mut said);
            said
        }
        other => panic!("unknown task {other}"),
    };
    fs::write(std::env::var(SAID).unwrap(), said).unwrap();
}

/// How a child ended: with what it said, or by which signal or failure.
fn child(fixture: &Fixture, task: &str) -> Result<String, String> {
    let said = fixture.dir.path().join("said");
    let _ = fs::remove_file(&said);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "corrupt::a_child_of_the_campaign", "--nocapture"])
        .envs([(TASK, task), (POOL, fixture.path.to_str().unwrap())])
        .env(SAID, &said)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let until = deadline();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if std::time::Instant::now() > until => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{task} went on for ever"));
            }
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    };
    if status.success() {
        return Ok(fs::read_to_string(said).unwrap());
    }
    let mut text = String::new();
    let _ = std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text);
    Err(match status.signal() {
        Some(signal) => format!("{task} died of signal {signal}: {text}"),
        None => format!("{task} failed: {text}"),
    })
}

/// A file of the pool, as it was.
struct Kept {
    path: PathBuf,
    len: u64,
    /// Its bytes, up to the last that are not zero.
    bytes: Vec<u8>,
}

fn keep(folder: &Path, kept: &mut Vec<Kept>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            keep(&path, kept);
            continue;
        }
        let file = fs::File::open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        let mut bytes = vec![0; len.min(24 << 20) as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(end);
        kept.push(Kept { path, len, bytes });
    }
}

/// Puts every file back, and removes those that have come.
fn restore(root: &Path, kept: &[Kept]) {
    let mut now = Vec::new();
    list(root, &mut now);
    for path in now {
        if !kept.iter().any(|one| one.path == path) {
            fs::remove_file(path).unwrap();
        }
    }
    for one in kept {
        let file = fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&one.path)
            .unwrap();
        let mut bytes = vec![0; (one.len.min(24 << 20)) as usize];
        let same = file.metadata().unwrap().len() == one.len
            && file.read_exact_at(&mut bytes, 0).is_ok()
            && bytes.starts_with(&one.bytes)
            && bytes[one.bytes.len()..].iter().all(|byte| *byte == 0);
        if !same {
            file.set_len(0).unwrap();
            file.set_len(one.len).unwrap();
            file.write_all_at(&one.bytes, 0).unwrap();
        }
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { list(&path, files) } else { files.push(path) }
    }
}

/// Damages a file, and says how.
fn damage(one: &Kept, random: &mut Random) -> (String, String) {
    let file = fs::File::options().read(true).write(true).open(&one.path).unwrap();
    let len = one.bytes.len().max(1);
    let pages = len.div_ceil(PAGE);
    let page = |random: &mut Random| random.below(pages as u64) as usize * PAGE;
    let read = |at: usize| {
        let mut page = vec![0; PAGE];
        let end = (at + PAGE).min(one.bytes.len()).max(at);
        page[..end - at].copy_from_slice(&one.bytes[at..end]);
        page
    };
    let write = |at: usize, bytes: &[u8]| {
        let bytes = &bytes[..bytes.len().min(one.len as usize - at)];
        file.write_all_at(bytes, at as u64).unwrap();
    };
    let kind = random.below(100);
    let (kind, what) = if kind < 60 {
        let (at, bit) = (random.below(len as u64) as usize, random.below(8));
        let byte = one.bytes.get(at).copied().unwrap_or(0);
        write(at, &[byte ^ (1 << bit)]);
        ("a bit turned", format!("bit {bit} of byte {at}"))
    } else if kind < 70 {
        let at = page(random);
        write(at, &vec![0; PAGE]);
        ("a page zeroed", format!("at {at}"))
    } else if kind < 78 {
        let (a, b) = (page(random), page(random));
        write(a, &read(b));
        write(b, &read(a));
        ("two pages swapped", format!("{a} and {b}"))
    } else if kind < 86 {
        let (a, b) = (page(random), page(random));
        write(a, &read(b));
        ("a page over another", format!("{b} over {a}"))
    } else if kind < 92 {
        let at = page(random);
        let bytes: Vec<u8> = (0..PAGE).map(|_| random.below(256) as u8).collect();
        write(at, &bytes);
        ("a page of nonsense", format!("at {at}"))
    } else if kind < 97 {
        let at = random.below(len as u64);
        file.set_len(at).unwrap();
        ("cut short", format!("at {at}"))
    } else {
        fs::remove_file(&one.path).unwrap();
        ("missing", String::new())
    };
    (kind.to_owned(), what)
}

/// Of what kind a file is.
fn kind_of(path: &Path) -> &'static str {
    let name = path.file_name().unwrap().to_str().unwrap();
    match name {
        "data.mdb" => "data.mdb",
        "lock.mdb" => "lock.mdb",
        "growth" => "growth",
        "pool.toml" => "pool.toml",
        "realm.toml" => "realm.toml",
        "namespace.toml" => "namespace.toml",
        "spare" => "leases",
        _ if name.starts_with("span-") => "spans",
        _ => "others",
    }
}

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// How damage of one kind was taken.
#[derive(Default)]
struct Taken {
    rounds: u64,
    found: u64,
    silent: u64,
    readers_died: u64,
}

/// A campaign: the pool as it was, what a user saw of it, and what has been found.
struct Campaign {
    fixture: Fixture,
    kept: Vec<Kept>,
    seen: String,
    values: Vec<String>,
    table: BTreeMap<(&'static str, String), Taken>,
    failures: Vec<String>,
    saved: u64,
}

impl Campaign {
    fn new() -> Self {
        let fixture = template();
        let mut kept = Vec::new();
        keep(&fixture.path, &mut kept);
        let seen = child(&fixture, "see").unwrap();
        let values = child(&fixture, "values").unwrap();
        let values = values.lines().map(str::to_owned).collect();
        assert_eq!(child(&fixture, "verify").unwrap(), "", "the pool is sound at first");
        restore(&fixture.path, &kept);
        let (table, failures) = (BTreeMap::new(), Vec::new());
        Campaign { fixture, kept, seen, values, table, failures, saved: 0 }
    }

    /// Damages the pool once, and lets processes read, verify and salvage it.
    fn round(&mut self, random: &mut Random) {
        // Most of it to the catalog, where most can go wrong.
        let wanted = match random.below(10) {
            0..=5 => "data.mdb",
            6..=7 => "spans",
            _ => "",
        };
        // The file without a name keeps its realm open in this process: its lock table is memory
        // that processes share now, mutexes among it. That of the other namespace is a file.
        let live = |one: &&Kept| one.path.ends_with("default/shared/catalog/lock.mdb");
        let of_kind =
            |one: &&Kept| !live(one) && (wanted.is_empty() || kind_of(&one.path) == wanted);
        let files: Vec<&Kept> = self.kept.iter().filter(of_kind).collect();
        let one = files[random.below(files.len() as u64) as usize];
        let mut again = random.clone();
        let (kind, what) = damage(one, random);
        let here = format!("{kind}, {what}, of {}", one.path.display());
        let seen = child(&self.fixture, "see");
        restore(&self.fixture.path, &self.kept);
        damage(one, &mut again);
        let taken = self.table.entry((kind_of(&one.path), kind)).or_default();
        taken.rounds += 1;
        taken.readers_died += u64::from(seen.is_err());
        match child(&self.fixture, "verify") {
            Ok(said) if !said.is_empty() => taken.found += 1,
            Ok(_) if seen.as_ref() == Ok(&self.seen) => taken.silent += 1,
            Ok(_) => {
                let seen = seen.unwrap_or_else(|error| error);
                let what = first_difference(&self.seen, &seen);
                self.failures.push(format!("{here}: verify says nothing; {what}"));
            }
            Err(error) => self.failures.push(format!("{here}: {error}")),
        }
        match child(&self.fixture, "salvage") {
            Ok(said) => self.salvaged(&here, &said),
            Err(error) => self.failures.push(format!("{here}: {error}")),
        }
        restore(&self.fixture.path, &self.kept);
    }

    /// What was salvaged was there before.
    fn salvaged(&mut self, here: &str, said: &str) {
        for line in said.lines().filter(|line| line.starts_with("value ")) {
            self.saved += 1;
            // An object that has lost an attribute has said so; its value is as it was.
            let value = line.rsplit_once(' ').unwrap().0;
            let same_value = || self.values.iter().any(|known| known.starts_with(value));
            let known = self.values.iter().any(|known| known == line)
                || said.contains("attribute") && same_value()
                || line.contains("lost+found");
            if !known {
                self.failures.push(format!("{here}: salvaged {line}"));
            }
        }
    }

    fn print(&self) {
        let heads = ["file", "damage", "rounds", "found", "silent", "readers died"];
        let [file, kind, rounds, found, silent, died] = heads;
        println!("{file:<16}{kind:<22}{rounds:>8}{found:>8}{silent:>8}{died:>14}");
        for ((file, kind), taken) in &self.table {
            let Taken { rounds, found, silent, readers_died } = taken;
            println!("{file:<16}{kind:<22}{rounds:>8}{found:>8}{silent:>8}{readers_died:>14}");
        }
        println!("{} values salvaged; {} failures", self.saved, self.failures.len());
    }
}

#[test]
fn whatever_is_damaged_verify_says_so_and_the_rest_is_salvaged() {
    if std::env::var(TASK).is_ok() {
        return;
    }
    let (rounds, seed) = (variable("CORRUPTIONS", 30), variable("SEED", crate::common::seed()));
    println!("{rounds} corruptions, SEED={seed}");
    let mut random = Random(seed);
    let mut campaign = Campaign::new();
    for _ in 0..rounds {
        campaign.round(&mut random);
    }
    campaign.print();
    assert!(campaign.failures.is_empty(), "SEED={seed}:\n{}", campaign.failures.join("\n"));
}

fn first_difference(before: &str, after: &str) -> String {
    let differing = before.lines().zip(after.lines()).find(|(a, b)| a != b);
    match differing {
        Some((a, b)) => format!("{a:.300}\n  became {b:.300}"),
        None => format!("{} lines became {}", before.lines().count(), after.lines().count()),
    }
}

/// Of each byte that says what an attribute is called: a salvaged attribute has its name, or none.
#[test]
fn no_attribute_is_salvaged_under_another_name() {
    if std::env::var(TASK).is_ok() {
        return;
    }
    let fixture = template();
    let catalog = fs::File::options()
        .read(true)
        .write(true)
        .open(fixture.path.join("ns/default/shared/catalog/data.mdb"))
        .unwrap();
    let mut bytes = vec![0; 1 << 20];
    let read = catalog.read_at(&mut bytes, 0).unwrap();
    let (target, mut doubted) = (fixture.path.with_file_name("salvaged"), 0);
    for at in (0..read - 6).filter(|at| bytes[*at..].starts_with(b"serial")) {
        catalog.write_all_at(b"k", at as u64 + 5).unwrap();
        let salvage = Salvage::open(&fixture.path, &mut || ()).unwrap();
        let options = CreateOptions { size: 64 << 20, force: true, ..CreateOptions::default() };
        let pool = Pool::create(&target, &options).unwrap();
        let realm = pool.realm("default").unwrap();
        salvage.copy("default", &realm, 0, &mut Noted(String::new())).unwrap();
        let one = Member::Object(crate::common::lookup(&realm, "g0/inner/0").unwrap());
        let names: Vec<_> = realm.attrs(one).unwrap().into_iter().map(|(name, _)| name).collect();
        let told = salvage.losses().iter().any(|loss| loss.what.contains("\"serial\""));
        if told {
            assert_eq!(names, ["kind", "n", "x"], "of what is in doubt nothing is kept");
            doubted += 1;
        } else {
            assert_eq!(names, ["kind", "n", "serial", "x"], "{:?}", salvage.losses());
        }
        pool.close();
        Pool::destroy(&target).unwrap();
        catalog.write_all_at(b"l", at as u64 + 5).unwrap();
    }
    assert_eq!(doubted, 2, "the name stands in two rows");
}

/// Of each byte that says how a file is called, too: a name that one row has and no other is lost.
#[test]
fn no_file_is_salvaged_under_a_name_that_it_never_had() {
    if std::env::var(TASK).is_ok() {
        return;
    }
    let fixture = template();
    let path = fixture.path.join("ns/default/shared/catalog/data.mdb");
    let catalog = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let read = catalog.read_at(&mut bytes, 0).unwrap();
    let (target, mut lost) = (fixture.path.with_file_name("salvaged"), 0);
    for at in (0..read - 8).filter(|at| bytes[*at..].starts_with(b"-further")) {
        catalog.write_all_at(b"a", at as u64 + 6).unwrap();
        let salvage = Salvage::open(&fixture.path, &mut || ()).unwrap();
        let options = CreateOptions { size: 64 << 20, force: true, ..CreateOptions::default() };
        let pool = Pool::create(&target, &options).unwrap();
        let realm = pool.realm("default").unwrap();
        let mut noted = Noted(String::new());
        salvage.copy("default", &realm, 0, &mut noted).unwrap();
        let found = crate::common::map_of(&realm, "");
        assert!(found.keys().all(|name| !name.contains("furthar")), "{:?}", found.keys());
        lost += usize::from(noted.0.contains("its further name"));
        pool.close();
        Pool::destroy(&target).unwrap();
        catalog.write_all_at(b"e", at as u64 + 6).unwrap();
    }
    assert!(lost > 0, "a name in doubt is told");
}
