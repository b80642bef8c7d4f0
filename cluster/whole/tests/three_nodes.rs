//! Three nodes on loopback, a real etcd, and those who use them.

mod own_etcd;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engram::{CreateOptions, DType, Member, Mode, Payload, Pool, Slab};
use engram_cluster::TABLE;
use engram_cluster::driver::cluster::{Cluster, ClusterOptions, Draft};
use engram_cluster::driver::error::{Error, Result};
use engram_cluster::driver::node::{Node, NodeOptions, Standing};
use engram_parts::{Mark, NewPart, PartName, dtype};
use engram_protocol::holdings::KEPT;
use engram_protocol::manifest::{Boxes, Content, Holder, Manifest, Part};
use engram_protocol::map::State;
use engram_wire::{Ask, Client, Headers, Method};
use own_etcd::OwnEtcd;
use own_etcd::slow::Between;

const TTL: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes leave before their etcd ends.
struct Rig {
    nodes: Vec<Option<Node>>,
    etcd: OwnEtcd,
    folder: tempfile::TempDir,
}

impl Rig {
    /// Some nodes that are members; none where there is no etcd.
    fn start(count: usize) -> Option<Rig> {
        let etcd = OwnEtcd::start()?;
        let folder = tempfile::Builder::new().prefix("engram-cluster-").tempdir_in("/dev/shm");
        let mut rig = Rig { nodes: Vec::new(), etcd, folder: folder.expect("a folder") };
        for number in 0..count {
            let options = CreateOptions { size: 32 << 20, force: true, ..CreateOptions::default() };
            Pool::create(&rig.pool(number), &options).expect("a pool").close();
            rig.nodes.push(None);
            rig.begin(number);
        }
        Some(rig)
    }

    fn pool(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("node{number}"))
    }

    fn options(&self, pool: &Path) -> NodeOptions {
        NodeOptions {
            cluster: "job".to_owned(),
            pool: pool.to_owned(),
            etcd: vec![self.etcd.endpoint.clone()],
            ttl: TTL,
            host: "127.0.0.1".to_owned(),
            weight: 1.0,
            kept: KEPT,
            tls: None,
            table: &TABLE,
            caller: None,
        }
    }

    fn begin(&mut self, number: usize) {
        let node = Node::start(self.options(&self.pool(number))).expect("a node");
        let serves = |standing: &Standing| matches!(standing, Standing::Serves(_));
        assert!(node.wait_until(PATIENCE, serves), "{:?}", node.standing());
        self.nodes[number] = Some(node);
    }

    fn open(&self, at: Option<usize>) -> Cluster {
        self.open_with(at.map(|number| self.pool(number)))
    }

    fn open_with(&self, pool: Option<PathBuf>) -> Cluster {
        Cluster::open(self.user(pool)).expect("a cluster")
    }

    fn user(&self, pool: Option<PathBuf>) -> ClusterOptions {
        ClusterOptions {
            name: "job".to_owned(),
            etcd: vec![self.etcd.endpoint.clone()],
            tls: None,
            pool,
            table: &TABLE,
            deadline: Duration::from_secs(30),
            ttl: TTL,
        }
    }
}

/// The holders that all nodes are.
fn holders(cluster: &Cluster) -> Vec<Holder> {
    let serving = cluster.nodes().expect("the map").into_iter();
    let serving = serving.filter(|entry| entry.state == State::Serving);
    serving.map(|entry| Holder { node: entry.identity.node, member: entry.member }).collect()
}

/// A number for each item of an array of this shape.
fn values(rows: std::ops::Range<u64>, columns: u64, salt: u64) -> Vec<u8> {
    rows.flat_map(|row| (0..columns).map(move |column| row * 10_000 + column + salt))
        .flat_map(u64::to_le_bytes)
        .collect()
}

const ROWS: u64 = 600;
const COLUMNS: u64 = 70;

/// Makes the parts of an array, six bands of rows, two on each of three nodes.
fn prepare(cluster: &Cluster, path: &str, salt: u64) -> Result<Draft> {
    let mut draft = cluster.draft(&[path])?;
    let (uuid, dtype) = (Cluster::new_uuid()?, DType::scalar(b'u', b'<', 8));
    let holders = holders(cluster);
    let mut parts = Vec::new();
    for number in 0..6_u64 {
        let rows = number * 100..(number + 1) * 100;
        let at = number as usize * holders.len() / 6;
        let (offsets, counts) = (vec![rows.start, 0], vec![100, COLUMNS]);
        let name = PartName { uuid: uuid.clone(), part: number as u32 };
        let mark = Mark {
            path: path.to_owned(),
            maker: draft.maker,
            begun: draft.begun(),
            offsets: offsets.clone(),
            checksum: None,
        };
        let new = NewPart { name, mark, dtype: dtype.clone(), counts: counts.clone() };
        let sum = cluster.make_part(&holders[at], &new, &values(rows, COLUMNS, salt))?;
        parts.push(Part { offsets, counts, holders: vec![at as u32], checksum: Some(sum) });
    }
    let boxes = Boxes {
        dtype: dtype::text_of(&dtype),
        shape: vec![ROWS, COLUMNS],
        sealed: true,
        replicas: 1,
        parts,
        ..Boxes::default()
    };
    let generation = draft.generation;
    let content = Content::Array(boxes);
    draft.proposals[0].manifest = Some(Manifest { uuid, generation, holders, content });
    Ok(draft)
}

fn load(cluster: &Cluster, path: &str, rows: std::ops::Range<u64>) -> Result<Vec<u8>> {
    let count = rows.end - rows.start;
    let slab = Slab::new(&[ROWS, COLUMNS], &[rows.start, 0], &[count, COLUMNS])?;
    let mut out = vec![1; (count * COLUMNS * 8) as usize];
    cluster.load(path, &DType::scalar(b'u', b'<', 8), &slab, &mut out)?;
    Ok(out)
}

#[test]
fn what_one_publishes_all_read() {
    let Some(rig) = Rig::start(3) else { return };
    let (maker, reader) = (rig.open(Some(0)), rig.open(None));
    assert_eq!(holders(&reader).len(), 3);
    assert!(matches!(load(&reader, "run/T", 0..10), Err(Error::NotFound(_))));
    let draft = prepare(&maker, "run/T", 0).unwrap();
    // Before it is published nobody finds it.
    assert!(matches!(load(&reader, "run/T", 0..10), Err(Error::NotFound(_))));
    let first = maker.publish(draft).unwrap();
    for rows in [0..ROWS, 0..1, 150..450, 599..600] {
        for cluster in [&reader, &maker, &rig.open(Some(2))] {
            assert_eq!(
                load(cluster, "run/T", rows.clone()).unwrap(),
                values(rows.clone(), COLUMNS, 0)
            );
        }
    }
    let dtype = DType::scalar(b'u', b'<', 8);
    // Pieces of rows of several parts; pieces of parts, of which little or most is wanted.
    for (rows, columns) in
        [(90..310, 7..10), (5..6, 69..70), (10..49, 0..70), (10..61, 0..70), (199..201, 3..70)]
    {
        let counts = [rows.end - rows.start, columns.end - columns.start];
        let slab = Slab::new(&[ROWS, COLUMNS], &[rows.start, columns.start], &counts).unwrap();
        let mut out = vec![0; (counts[0] * counts[1] * 8) as usize];
        reader.load("run/T", &dtype, &slab, &mut out).unwrap();
        let row = |row: u64| columns.clone().map(move |column| row * 10_000 + column);
        let expected: Vec<u8> = rows.flat_map(row).flat_map(u64::to_le_bytes).collect();
        assert_eq!(out, expected);
    }

    // Two see the same generation: one publishes, the other is told.
    let (one, other) =
        (prepare(&maker, "run/T", 5).unwrap(), prepare(&reader, "run/T", 6).unwrap());
    let second = reader.publish(other).unwrap();
    assert!(second > first);
    assert!(matches!(maker.publish(one), Err(Error::Conflict(_))));
    assert_eq!(load(&maker, "run/T", 3..5).unwrap(), values(3..5, COLUMNS, 6));
    maker.remove("run/T").unwrap();
    assert!(matches!(load(&reader, "run/T", 0..10), Err(Error::NotFound(_))));
    assert!(matches!(maker.remove("run/T"), Err(Error::NotFound(_))));
}

#[test]
fn any_http_client_reads_a_part() {
    let Some(rig) = Rig::start(2) else { return };
    let maker = rig.open(None);
    maker.publish(prepare(&maker, "T", 0).unwrap()).unwrap();
    let (manifest, _) = maker.look_up("T").unwrap().unwrap();
    let (client, ask) = (Client::new(None), Ask::default());
    for entry in maker.nodes().unwrap() {
        let told = client.get(&entry.identity.address, "/", &ask).unwrap();
        let told = String::from_utf8(told.body).unwrap();
        assert!(told.contains(&entry.identity.node) && told.contains("\"job\""), "{told}");
    }
    for part in 0..6 {
        let holder = manifest.holders_of(part)[0];
        let nodes = maker.nodes().unwrap();
        let entry = nodes.iter().find(|entry| entry.identity.node == holder.node).unwrap();
        let path = format!("/parts/{}/{part}", manifest.uuid);
        let answer = client.get(&entry.identity.address, &path, &ask).unwrap();
        let rows = u64::from(part) * 100..u64::from(part + 1) * 100;
        assert_eq!((answer.status, answer.body), (200, values(rows, COLUMNS, 0)));
        // Another life of the node is another member.
        let other = client.get(&entry.identity.address, &format!("{path}?member=1"), &ask).unwrap();
        assert_eq!(other.status, 421);
        let gone = format!("/parts/{}/{part}", "0".repeat(32));
        assert_eq!(client.get(&entry.identity.address, &gone, &ask).unwrap().status, 404);
        for odd in ["/parts/../0", "/parts/x/y", "/parts//0", "/elsewhere", "/parts/a/1/2"] {
            let status = client.get(&entry.identity.address, odd, &ask).unwrap().status;
            assert!((400..500).contains(&status), "{odd}: {status}");
        }
    }
}

#[test]
fn a_node_that_goes_is_away_at_once_and_comes_back_with_its_parts() {
    let Some(mut rig) = Rig::start(3) else { return };
    let reader = rig.open(None);
    reader.publish(prepare(&reader, "T", 0).unwrap()).unwrap();
    let gone = match rig.nodes[1].as_ref().unwrap().standing() {
        Standing::Serves(member) => member,
        other => panic!("{other:?}"),
    };
    let place = holders(&reader).iter().position(|holder| holder.member == gone).unwrap() as u64;
    rig.nodes[1] = None;
    let begun = Instant::now();
    let why = load(&reader, "T", place * 200..place * 200 + 10).unwrap_err();
    assert!(matches!(why, Error::NodeAway(_)), "{why}");
    assert!(why.to_string().contains("is away for"), "{why}");
    assert!(begun.elapsed() < TTL, "it left by itself: nobody waits for its lease");
    // What lies elsewhere is read, and published.
    let other = (place + 1) % 3 * 200;
    assert_eq!(
        load(&reader, "T", other..other + 10).unwrap(),
        values(other..other + 10, COLUMNS, 0)
    );

    rig.begin(1);
    let begun = Instant::now();
    let rows = place * 200..place * 200 + 10;
    let again = loop {
        match load(&reader, "T", rows.clone()) {
            Ok(bytes) => break bytes,
            Err(Error::NodeAway(why)) => assert!(begun.elapsed() < PATIENCE, "{why}"),
            Err(other) => panic!("{other}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(again, values(rows, COLUMNS, 0));
    let (manifest, _) = reader.look_up("T").unwrap().unwrap();
    assert!(manifest.holders.iter().all(|holder| holder.member != gone));
}

#[test]
fn a_pool_that_is_gone_is_lost_and_what_another_cluster_has_is_refused() {
    let Some(mut rig) = Rig::start(2) else { return };
    let reader = rig.open(None);
    reader.publish(prepare(&reader, "T", 0).unwrap()).unwrap();
    let mut options = rig.options(&rig.pool(0));
    options.cluster = "other".to_owned();
    let why = Node::start(options).err().expect("it is of another cluster").to_string();
    assert!(why.contains("\"job\"") && why.contains("\"other\""), "{why}");
    let twice = Node::start(rig.options(&rig.pool(0))).err().expect("it takes part already");
    assert!(twice.to_string().contains("already"), "{twice}");
    rig.nodes[0] = None;
    assert!(matches!(
        Node::start(NodeOptions { etcd: Vec::new(), ..rig.options(&rig.pool(0)) }),
        Err(Error::Argument(_))
    ));
}

#[test]
fn a_copy_of_a_pool_holds_nothing_and_no_stranger_is_published_as_a_holder() {
    let Some(rig) = Rig::start(1) else { return };
    let copy = rig.folder.path().join("copy");
    let copied = std::process::Command::new("cp").arg("-r").arg(rig.pool(0)).arg(&copy).status();
    assert!(copied.expect("cp").success());
    let user = rig.open_with(Some(copy));
    assert!(matches!(user.own_holder(), Err(Error::Fenced(_))));
    // It can be a user like any other.
    user.publish(prepare(&user, "T", 0).unwrap()).unwrap();
    assert_eq!(load(&rig.open(None), "T", 0..ROWS).unwrap(), values(0..ROWS, COLUMNS, 0));
    let mut draft = prepare(&user, "T", 1).unwrap();
    let manifest = draft.proposals[0].manifest.as_mut().unwrap();
    manifest.holders[0].member = 1;
    assert!(matches!(user.publish(draft), Err(Error::NodeAway(_))));
    let many: Vec<String> = (0..101).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(matches!(user.draft(&many), Err(Error::Argument(_))));
}

#[test]
fn a_reader_whose_map_is_older_than_a_node_drops_no_fetch() {
    let Some(mut rig) = Rig::start(2) else { return };
    let reader = rig.open(None);
    let options = CreateOptions { size: 32 << 20, force: true, ..CreateOptions::default() };
    Pool::create(&rig.pool(2), &options).expect("a pool").close();
    rig.nodes.push(None);
    rig.begin(2);
    let maker = rig.open(None);
    maker.publish(prepare(&maker, "T", 0).unwrap()).unwrap();
    // A fetch that was dropped would be waited for until the deadline, and then fail.
    assert_eq!(load(&reader, "T", 0..ROWS).unwrap(), values(0..ROWS, COLUMNS, 0));
}

#[test]
fn a_part_that_was_damaged_while_its_node_was_away_is_not_entered_again() {
    let Some(mut rig) = Rig::start(3) else { return };
    let reader = rig.open(None);
    reader.publish(prepare(&reader, "T", 0).unwrap()).unwrap();
    let (manifest, _) = reader.look_up("T").unwrap().unwrap();
    let gone = match rig.nodes[1].as_ref().unwrap().standing() {
        Standing::Serves(member) => member,
        other => panic!("{other:?}"),
    };
    rig.nodes[1] = None;
    let of_it = |part: &u32| manifest.holders_of(*part)[0].member == gone;
    let own: Vec<u32> = (0..6).filter(of_it).collect();
    let (damaged, whole) = (own[0], own[1]);
    let pool = Pool::open(&rig.pool(1), Mode::ReadWrite, true).unwrap();
    let all = pool.namespace("default").unwrap();
    let name = format!(".cluster/parts/{}/{damaged}", manifest.uuid);
    let Some(Member::Object(oid)) = all.lookup(all.root(), &name).unwrap() else { panic!() };
    let Payload::Extent(view) = all.view(oid, true).unwrap() else { panic!("it is small") };
    view.write_at(0, &[0xff; 8]);
    drop(view);
    pool.close();
    rig.begin(1);
    // The other part of the node is entered again; the damaged one is not.
    let begun = Instant::now();
    let after = loop {
        let (now, _) = reader.look_up("T").unwrap().unwrap();
        if now.holders_of(whole)[0].member != gone {
            break now;
        }
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(after.holders_of(damaged)[0].member, gone);
    let rows = u64::from(damaged) * 100..u64::from(damaged) * 100 + 10;
    let why = load(&rig.open(Some(1)), "T", rows).unwrap_err();
    assert!(matches!(why, Error::PartsLost(_) | Error::NodeAway(_)), "{why}");
}

#[test]
fn a_lease_is_renewed_where_etcd_lets_all_else_wait() {
    let Some(mut rig) = Rig::start(0) else { return };
    let options = CreateOptions { size: 32 << 20, force: true, ..CreateOptions::default() };
    Pool::create(&rig.pool(0), &options).expect("a pool").close();
    let between = Between::start(&rig.etcd.endpoint);
    // Each question is asked at six endpoints, and waits for a while at each.
    let etcd = vec![between.endpoint.clone(); 6];
    let node = Node::start(NodeOptions { etcd, ..rig.options(&rig.pool(0)) }).expect("a node");
    let serves = |standing: &Standing| matches!(standing, Standing::Serves(_));
    assert!(node.wait_until(PATIENCE, serves), "{:?}", node.standing());
    let member = node.standing();
    between.hold();
    let left = node.wait_until(TTL * 3, |standing| *standing != member);
    assert!(!left, "{member:?} became {:?}", node.standing());
    rig.nodes.push(Some(node));
}

#[test]
fn a_part_is_given_back_by_its_maker_alone_and_only_while_it_is_not_published() {
    let Some(rig) = Rig::start(1) else { return };
    let maker = rig.open(None);
    let node = maker.nodes().unwrap().pop().expect("a node");
    let client = Client::new(None);
    let asks = |method, target: &str| {
        let (headers, ask) = (Headers::default(), Ask::default());
        let address = &node.identity.address;
        client.request(method, address, target, &headers, &[], &ask).unwrap().status
    };
    let uuid_of = |draft: &Draft| draft.proposals[0].manifest.as_ref().expect("made").uuid.clone();
    let draft = prepare(&maker, "T", 0).unwrap();
    let (id, part) = (draft.maker, format!("/parts/{}/0", uuid_of(&draft)));
    for (odd, status) in [("", 400), ("?maker=", 400), ("?maker=x", 400), ("?maker=1", 403)] {
        assert_eq!(asks(Method::Delete, &format!("{part}{odd}")), status, "{odd:?}");
    }
    maker.publish(draft).unwrap();
    assert_eq!(asks(Method::Delete, &format!("{part}?maker={id:x}")), 403);
    assert_eq!(load(&maker, "T", 0..ROWS).unwrap(), values(0..ROWS, COLUMNS, 0));
    // The next generation is not published yet.
    let draft = prepare(&maker, "T", 1).unwrap();
    let part = format!("/parts/{}/0", uuid_of(&draft));
    assert_eq!(asks(Method::Get, &part), 200);
    assert_eq!(asks(Method::Delete, &format!("{part}?maker={id:x}")), 204);
    assert_eq!(asks(Method::Get, &part), 404);
    assert_eq!(asks(Method::Delete, &format!("{part}?maker={id:x}")), 204);
}

#[test]
fn a_name_that_would_lie_elsewhere_in_etcd_is_no_clusters_name() {
    let Some(rig) = Rig::start(0) else { return };
    for odd in ["", "a/b", "../x", "a\nb", "a b", "-a", ".", "ä", &"a".repeat(65)] {
        let node = NodeOptions { cluster: odd.to_owned(), ..rig.options(&rig.pool(0)) };
        let why = Node::start(node).err().expect("refused");
        assert!(matches!(why, Error::Argument(_)) && why.to_string().contains("name"), "{why}");
        let user = ClusterOptions { name: odd.to_owned(), ..rig.user(None) };
        assert!(matches!(Cluster::open(user), Err(Error::Argument(_))), "{odd:?}");
    }
}
